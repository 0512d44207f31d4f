//! Many worlds: on all cores, some of them twice, counted.

use crate::class::Class;
use crate::ledger::{Oracle, Tally, Violation};
use crate::scenario::{Limits, Scenario};
use crate::world::{Options, Outcome, run};
use srd_fabric::Totals;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Every so many seeds is run twice.
const REPLAY_EVERY: u64 = 20;

/// A seed whose world broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
}

/// The sum of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Worlds.
    pub seeds: u64,
    /// Worlds run a second time.
    pub replays: u64,
    /// Failures in order of seeds.
    pub failures: Vec<Failure>,
    /// Numbers of engines.
    pub tally: Tally,
    /// Packets that the network lost.
    pub lost: u64,
    /// Packets that the network doubled.
    pub duplicated: u64,
    /// Worlds with each class of faults.
    pub classes: [u64; Class::COUNT],
    /// Time from start to end.
    pub wall: Duration,
    /// Processor time of this process meanwhile; zero where the system does not tell.
    pub cpu: Duration,
    /// Threads.
    pub threads: usize,
}

impl Summary {
    fn add(&mut self, s: &Scenario, o: &Outcome) {
        self.seeds += 1;
        let (a, b) = (&mut self.tally, &o.tally);
        a.packets += b.packets;
        a.received += b.received;
        a.requests += b.requests;
        a.completed += b.completed;
        a.failed += b.failed;
        a.judged += b.judged;
        a.retransmitted += b.retransmitted;
        let Totals { duplicated, .. } = o.network;
        self.lost += o.network.drops.total();
        self.duplicated += duplicated;
        for c in s.classes.iter() {
            self.classes[c as usize] += 1;
        }
        if let Some(violation) = &o.violation {
            self.failures.push(Failure { seed: s.seed, violation: violation.clone() });
        }
    }

    fn merge(&mut self, other: Self) {
        let mut rest = other;
        self.seeds += rest.seeds;
        self.replays += rest.replays;
        self.failures.append(&mut rest.failures);
        let (a, b) = (&mut self.tally, &rest.tally);
        a.packets += b.packets;
        a.received += b.received;
        a.requests += b.requests;
        a.completed += b.completed;
        a.failed += b.failed;
        a.judged += b.judged;
        a.retransmitted += b.retransmitted;
        self.lost += rest.lost;
        self.duplicated += rest.duplicated;
        for (mine, theirs) in self.classes.iter_mut().zip(rest.classes) {
            *mine += theirs;
        }
    }
}

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

/// Runs many worlds. What is found does not depend on the number of threads.
#[expect(clippy::disallowed_methods, reason = "worlds on several cores; each has one thread")]
pub fn run_many(plan: &Plan) -> Summary {
    let (start, cpu_start) = (clock(), cpu());
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let sum = Mutex::new(Summary { threads: plan.threads, ..Summary::default() });
    let work = || {
        let mut own = Summary::default();
        while !stop.load(Ordering::Relaxed) && plan.time.is_none_or(|t| clock() - start < t) {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= plan.seeds {
                break;
            }
            let s = Scenario::from_seed(plan.first.wrapping_add(k), Limits::NONE);
            let twice = k.is_multiple_of(REPLAY_EVERY);
            let outcome = if twice { check_twice(&s) } else { check(&s, Options::default()) };
            own.replays += u64::from(twice);
            own.add(&s, &outcome);
            if plan.stop_at_failure && outcome.violation.is_some() {
                stop.store(true, Ordering::Relaxed);
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
    sum.wall = clock() - start;
    sum.cpu = cpu().saturating_sub(cpu_start);
    sum
}
