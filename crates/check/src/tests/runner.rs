//! Many worlds: which seeds are run, and how a failing world is reported.

use crate::class::{Class, Classes};
use crate::ledger::{Oracle, Tamper};
use crate::runner::{self, Plan};
use crate::scenario::{Limits, Scenario};
use crate::summary::Summary;
use crate::world::Options;
use std::sync::atomic::AtomicBool;

fn many(plan: &Plan) -> Summary {
    runner::run_many(plan, &AtomicBool::new(false))
}

#[test]
fn only_worlds_with_a_wanted_class_are_run() {
    let wanted = Classes::default().with(Class::Flap).with(Class::Stale);
    let sum = many(&Plan { only: wanted, ..Plan::new(0, 60, 2) });
    let want = (0..60).filter(|seed| {
        let s = Scenario::from_seed(*seed, Limits::USUAL);
        wanted.iter().any(|c| s.classes.has(c))
    });
    assert_eq!(sum.seeds, want.count() as u64);
    assert!(sum.seeds > 0 && sum.seeds < 60);
    assert_eq!(many(&Plan { only: Classes::default(), ..Plan::new(0, 20, 1) }).seeds, 0);
}

#[test]
fn one_world_in_twenty_is_run_twice() {
    for (seeds, twice) in [(1, 1), (20, 1), (21, 2), (41, 3)] {
        let sum = many(&Plan::new(0, seeds, 2));
        assert_eq!((sum.seeds, sum.replays), (seeds, twice));
        assert_eq!(sum.range, 0..seeds);
    }
}

#[test]
fn a_panic_is_a_broken_promise_and_not_the_end() {
    let mut s = Scenario::from_seed(1, Limits { classes: Classes::ORDINARY, ..Limits::NONE });
    assert_eq!(runner::check(&s, Options::default()).violation, None);
    // An invalid configuration: creating the engine panics.
    s.config.window = 0;
    let outcome = runner::check(&s, Options::default());
    assert_eq!(outcome.violation.map(|v| v.oracle), Some(Oracle::Panic));
}

#[test]
fn a_mistake_leaves_the_hash_of_other_worlds_alone() {
    let run = |seed, tamper| {
        let s = Scenario::from_seed(seed, Limits::NONE);
        runner::check(&s, Options { tamper, trace: false }).hash
    };
    let before = run(9, Tamper::None);
    let _ = run(8, Tamper::CopyDropped);
    assert_eq!(run(9, Tamper::None), before);
    let twice = runner::check_twice(&Scenario::from_seed(9, Limits::NONE));
    assert_eq!((twice.hash, twice.violation), (before, None));
}
