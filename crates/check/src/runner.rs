//! Many worlds: on all cores, some of them twice, counted.

use crate::ledger::{Oracle, Tally, Violation};
use crate::scenario::{Limits, Scenario};
use crate::summary::Summary;
use crate::world::{Options, Outcome, run};
use srd_fabric::Totals;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Every so many seeds is run twice.
const REPLAY_EVERY: u64 = 20;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the words of a panic for its violation instead of printing them. For a program that does
/// nothing but check: it concerns the whole process.
pub fn panics_keep() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with(|p| *p.borrow_mut() = info.to_string());
    }));
}

/// Runs one world; a panic in it is a broken promise, too.
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

/// Runs a world twice and compares.
pub fn check_twice(s: &Scenario) -> Outcome {
    let (mut first, second) = (check(s, Options::default()), check(s, Options::default()));
    if first.violation.is_none() && first.hash != second.hash {
        let what = format!("two runs of seed {} differ", s.seed);
        first.violation = Some(Violation { oracle: Oracle::Replay, at: 0, what });
    }
    first
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// First seed.
    pub first: u64,
    /// Most seeds.
    pub seeds: u64,
    /// Longest time.
    pub time: Option<Duration>,
    /// Threads.
    pub threads: usize,
    /// Stop at the first failure.
    pub stop_at_failure: bool,
    /// Say at once what has failed, and every minute how far it is.
    pub tell: bool,
}

impl Plan {
    /// `seeds` seeds from `first` on, on `threads` threads, to the end and in silence.
    pub const fn new(first: u64, seeds: u64, threads: usize) -> Self {
        Self { first, seeds, time: None, threads, stop_at_failure: false, tell: false }
    }
}

/// How long since the process first asked.
#[expect(clippy::disallowed_methods, reason = "bounds a run; no world sees it")]
fn clock() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Processor time of this process, from Linux's `/proc/self/stat`: fields 14 and 15, in ticks of
/// 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|f| f.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Says a line to whoever waits, if somebody does.
fn tell(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Runs many worlds, until `stop` is set at the longest. What is found does not depend on the
/// number of threads.
#[expect(clippy::disallowed_methods, reason = "worlds on several cores; each has one thread")]
pub fn run_many(plan: &Plan, stop: &AtomicBool) -> Summary {
    let (start, cpu_start) = (clock(), cpu());
    let (next, done, minutes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let sum = Mutex::new(Summary { threads: plan.threads, ..Summary::default() });
    let on = || {
        let ended = stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        !ended && plan.time.is_none_or(|t| clock() - start < t)
    };
    let work = || {
        let mut own = Summary::default();
        while on() {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= plan.seeds {
                break;
            }
            let s = Scenario::from_seed(plan.first.wrapping_add(k), Limits::NONE);
            let twice = k.is_multiple_of(REPLAY_EVERY);
            let outcome = if twice { check_twice(&s) } else { check(&s, Options::default()) };
            own.replays += u64::from(twice);
            own.add(&s, &outcome);
            if let Some(v) = &outcome.violation {
                if plan.tell {
                    let what: String = v.what.chars().take(300).collect();
                    tell(&format!("seed {} failed: {:?}: {what}", s.seed, v.oracle));
                }
                failed.fetch_or(plan.stop_at_failure, Ordering::Relaxed);
            }
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            let minute = (clock() - start).as_secs() / 60;
            if plan.tell && minutes.fetch_max(minute, Ordering::Relaxed) < minute {
                tell(&format!("{minute} min: {n} seeds, {:.0} s of processor", secs(cpu_start)));
            }
        }
        if let Ok(mut sum) = sum.lock() {
            sum.merge(own);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let mut sum = sum.into_inner().unwrap_or_default();
    sum.failures.sort_by_key(|f| f.seed);
    sum.range = plan.first..plan.first.wrapping_add(sum.seeds);
    sum.wall = clock() - start;
    sum.cpu = cpu().saturating_sub(cpu_start);
    sum
}

/// Seconds of processor time since `start`.
fn secs(start: Duration) -> f64 {
    cpu().saturating_sub(start).as_secs_f64()
}
