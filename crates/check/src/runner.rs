//! Runs many worlds on all cores, some of them twice, and adds up the results.

use crate::class::{Class, Classes};
use crate::ledger::{Oracle, Tally, Violation};
use crate::scenario::{Limits, Scenario};
use crate::summary::Summary;
use crate::watchdog::{Watchdog, Work, process_cpu};
use crate::world::{Options, Outcome, run};
use srd_fabric::Totals;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One seed in this many runs twice.
const REPLAY_EVERY: u64 = 20;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Stores the message of a panic for its violation instead of printing it. It changes the panic
/// hook of the whole process, so only a program that does nothing but check may call it.
pub fn panics_keep() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with(|p| *p.borrow_mut() = info.to_string());
    }));
}

/// Runs one world; a panic in it is a violation, too.
pub fn check(s: &Scenario, options: Options) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(s, options))).unwrap_or_else(|_| {
        let what = PANIC.with(|p| p.borrow_mut().split_off(0));
        let violation = Violation { oracle: Oracle::Panic, at: 0, what };
        Outcome {
            violation: Some(violation),
            hash: 0,
            tally: Tally::default(),
            network: Totals::default(),
            trace: None,
        }
    })
}

/// Runs a world twice and compares the hashes.
pub fn check_twice(s: &Scenario) -> Outcome {
    let (mut first, second) = (check(s, Options::default()), check(s, Options::default()));
    if first.violation.is_none() && first.hash != second.hash {
        let what = format!("two runs of seed {} differ", s.seed);
        first.violation = Some(Violation { oracle: Oracle::Replay, at: 0, what });
    }
    first
}

/// Watches the worlds of a run until it is over.
fn watch(work: &[Work], over: &AtomicBool) {
    let mut dog = Watchdog::new(work.len());
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(100));
        dog.check(work);
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// First seed.
    pub first: u64,
    /// Most seeds.
    pub seeds: u64,
    /// Longest duration.
    pub time: Option<Duration>,
    /// Threads.
    pub threads: usize,
    /// Stop at the first failure.
    pub stop_at_failure: bool,
    /// Only worlds with this class of faults; other seeds are skipped.
    pub with: Option<Class>,
    /// Only worlds with one of these classes; worlds without any class are skipped, too, unless
    /// this is all classes.
    pub only: Classes,
    /// Print each failure at once, and the progress every minute.
    pub tell: bool,
}

impl Plan {
    /// A silent run of `seeds` seeds from `first` on, on `threads` threads.
    pub const fn new(first: u64, seeds: u64, threads: usize) -> Self {
        let (with, only) = (None, Classes::ALL);
        Self { first, seeds, time: None, threads, stop_at_failure: false, with, only, tell: false }
    }
}

/// Time since the first call in this process.
#[expect(clippy::disallowed_methods, reason = "bounds a run; no world sees it")]
fn clock() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Prints a line to standard error, ignoring errors.
pub(crate) fn tell(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Runs many worlds, until `stop` is set at the latest. The result does not depend on the number of
/// threads.
#[expect(clippy::disallowed_methods, reason = "worlds on several cores; each has one thread")]
pub fn run_many(plan: &Plan, stop: &AtomicBool) -> Summary {
    let (start, cpu_start) = (clock(), process_cpu());
    let (next, done, minutes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let sum = Mutex::new(Summary { threads: plan.threads, ..Summary::default() });
    let on = || {
        let ended = stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        !ended && plan.time.is_none_or(|t| clock() - start < t)
    };
    let threads = plan.threads.max(1);
    let under: Vec<Work> = (0..threads).map(|_| Work::default()).collect();
    let (thread_next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        let mut own = Summary::default();
        let mine = &under[thread_next.fetch_add(1, Ordering::Relaxed) as usize];
        mine.own();
        while on() {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= plan.seeds {
                break;
            }
            let named = plan.with.is_some() || plan.only != Classes::ALL;
            let limits = if named { Limits::NONE } else { Limits::USUAL };
            let s = Scenario::from_seed(plan.first.wrapping_add(k), limits);
            let wanted = plan.only == Classes::ALL || plan.only.iter().any(|c| s.classes.has(c));
            if plan.with.is_some_and(|c| !s.classes.has(c)) || !wanted {
                continue;
            }
            mine.begin(s.seed);
            let twice = k.is_multiple_of(REPLAY_EVERY);
            let outcome = if twice { check_twice(&s) } else { check(&s, Options::default()) };
            mine.end();
            own.replays += u64::from(twice);
            own.add(&s, &outcome);
            if let Some(v) = &outcome.violation {
                if plan.tell {
                    let what: String = v.what.chars().take(300).collect();
                    tell(&format!(
                        "seed {} ({}) failed: {:?}: {what}",
                        s.seed, s.classes, v.oracle
                    ));
                }
                failed.fetch_or(plan.stop_at_failure, Ordering::Relaxed);
            }
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            let minute = (clock() - start).as_secs() / 60;
            if plan.tell && minutes.fetch_max(minute, Ordering::Relaxed) < minute {
                tell(&format!("{minute} min: {n} seeds, {:.0} s of CPU time", secs(cpu_start)));
            }
        }
        if let Ok(mut sum) = sum.lock() {
            sum.merge(own);
        }
    };
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&under, &over));
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            if let Err(panic) = other.join() {
                over.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        }
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
    });
    let mut sum = sum.into_inner().unwrap_or_default();
    sum.failures.sort_by_key(|f| f.seed);
    let looked_at = next.load(Ordering::Relaxed).min(plan.seeds);
    let looked_at = if plan.with.is_some() { looked_at } else { sum.seeds };
    sum.range = plan.first..plan.first.wrapping_add(looked_at);
    sum.wall = clock() - start;
    sum.cpu = process_cpu().saturating_sub(cpu_start);
    sum
}

/// Seconds of CPU time since `start`.
fn secs(start: Duration) -> f64 {
    process_cpu().saturating_sub(start).as_secs_f64()
}
