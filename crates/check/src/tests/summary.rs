//! The text of a summary.

use crate::class::{Class, Classes, PerClass};
use crate::ledger::{Oracle, Tally, Violation};
use crate::scenario::{Limits, Scenario};
use crate::summary::{Failure, Summary};
use crate::world::Outcome;
use srd_fabric::{DropReason, Totals};
use std::time::Duration;

fn failure(seed: u64, class: Class, oracle: Oracle, what: &str) -> Failure {
    let violation = Violation { oracle, at: 0, what: what.into() };
    Failure { seed, classes: Classes::default().with(class), violation }
}

fn filled() -> Summary {
    let mut lost = [0; DropReason::ALL.len()];
    lost[0] = 4;
    lost[1] = 5;
    let (mut classes, mut planned) = (PerClass::default(), PerClass::default());
    (classes[Class::Loss as usize], planned[Class::Loss as usize]) = (11, 22);
    classes[Class::Burst as usize] = 13;
    Summary {
        seeds: 100,
        replays: 5,
        range: 40..140,
        tally: Tally { packets: 1_000, retransmitted: 17, rnr: 3, ..Tally::default() },
        lost,
        duplicated: 6,
        corrupted: 7,
        marked: 8,
        classes,
        planned,
        wall: Duration::from_secs(10),
        cpu: Duration::from_secs(20),
        threads: 2,
        ..Summary::default()
    }
}

#[test]
fn the_text_has_every_number() {
    let text = filled().text();
    for part in [
        "100 seeds from 40 to 139 (5 of them twice), 0 failed",
        "20 s of processor time on 2 threads: 5 seeds and 50 packets per second",
        "17 sent again",
        "9 lost, 6 doubled, 7 damaged, 8 marked",
        "Loss 11/22",
        "Burst 13,",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("failures by oracle"), "there are none:\n{text}");
    for reason in &DropReason::ALL[..2] {
        assert!(text.contains(reason.name()), "{text}");
    }
    assert!(!text.contains(DropReason::ALL[2].name()), "what did not happen is not said");
}

#[test]
fn where_the_system_tells_no_processor_time_the_clock_serves() {
    let text = Summary { cpu: Duration::ZERO, ..filled() }.text();
    assert!(text.contains("20 s of processor time"), "10 s on two threads:\n{text}");
}

#[test]
fn failures_are_told_by_oracle_and_class_and_one_by_one() {
    let mut s = filled();
    s.failures = vec![
        failure(7, Class::Loss, Oracle::Window, "first"),
        failure(8, Class::Burst, Oracle::Window, "second"),
        failure(9, Class::Flood, Oracle::Window, &"x".repeat(1_000)),
        failure(10, Class::Flood, Oracle::Panic, "fourth"),
    ];
    let text = s.text();
    assert!(text.contains("4 failed"), "{text}");
    for part in
        ["Window others 2", "Window Flood 1", "Panic Flood 1", "seed 7 (Loss): Window: first"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.lines().all(|l| l.len() < 500), "long stories are cut");
}

fn outcome(packets: u64, violation: Option<Violation>) -> Outcome {
    let network = Totals { duplicated: 2, marked: 3, ..Totals::default() };
    let tally = Tally { packets, ..Tally::default() };
    Outcome { violation, hash: 0, tally, network, trace: None }
}

#[test]
fn worlds_are_added_one_by_one() {
    let mut sum = Summary::default();
    let s = Scenario::from_seed(11, Limits { classes: Classes::ORDINARY, ..Limits::NONE });
    sum.add(&s, &outcome(10, None));
    let broken = Violation { oracle: Oracle::Ack, at: 1, what: "w".into() };
    sum.add(&s, &outcome(20, Some(broken)));
    assert_eq!((sum.seeds, sum.tally.packets), (2, 30));
    assert_eq!((sum.duplicated, sum.marked), (4, 6));
    assert_eq!(sum.failures.len(), 1);
    assert_eq!(sum.failures[0].seed, 11);
    for c in Class::ALL {
        assert_eq!(sum.classes[c as usize], 2 * u64::from(s.classes.has(c)), "{c:?}");
        assert_eq!(sum.planned[c as usize], 2 * u64::from(s.planned[c as usize]), "{c:?}");
    }
}

#[test]
fn sums_of_threads_are_merged() {
    let mut a = filled();
    a.failures = vec![failure(1, Class::Loss, Oracle::Ack, "a")];
    let mut b = filled();
    b.failures = vec![failure(2, Class::Loss, Oracle::Ack, "b")];
    a.merge(b);
    assert_eq!((a.seeds, a.replays, a.tally.packets), (200, 10, 2_000));
    assert_eq!((a.lost_total(), a.duplicated, a.corrupted, a.marked), (18, 12, 14, 16));
    assert_eq!(a.classes[Class::Loss as usize], 22);
    assert_eq!(a.planned[Class::Loss as usize], 44);
    assert_eq!(a.failures.len(), 2);
}
