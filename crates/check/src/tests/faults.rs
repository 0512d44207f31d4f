//! Models of faults in action: one that does nothing would let every engine pass.

use crate::class::{Class, Classes};
use crate::world::Outcome;
use crate::{Limits, Options, Scenario, run};
use srd_fabric::DropReason;

/// Worlds per class, and the least number in which a fault must show: many begin when all work is
/// done, or where nobody sends.
const WORLDS: usize = 24;
const LEAST: usize = 2;

/// The first worlds in which this class of faults is on, and no other.
fn worlds(class: Class, n: usize) -> impl Iterator<Item = Scenario> {
    let limits = Limits { classes: Classes::default().with(class), ..Limits::NONE };
    let all = (0..).map(move |seed| Scenario::from_seed(seed, limits));
    all.filter(move |s| s.classes.has(class)).take(n)
}

/// What only faults of this class leave behind in a world without others.
fn traces(class: Class, o: &Outcome) -> u64 {
    use DropReason::{
        BlackHole, BufferFull, BurstLoss, Cut, FlowHole, LinkDown, Loss, Mtu, NoRoute,
    };
    let lost = |reasons: &[DropReason]| reasons.iter().map(|&r| o.network.drops.of(r)).sum();
    match class {
        Class::Loss | Class::Gray => lost(&[Loss]),
        Class::Burst => lost(&[BurstLoss]),
        Class::Duplicate => o.network.duplicated,
        Class::Corrupt => o.network.corrupted,
        Class::Garbage => o.tally.forged,
        Class::BlackHole => lost(&[BlackHole]),
        Class::OneWay => lost(&[BlackHole, FlowHole]),
        Class::Flap | Class::SwitchDeath => lost(&[LinkDown, Cut, NoRoute]),
        Class::Overflow => lost(&[BufferFull]),
        Class::Mtu => lost(&[Mtu]),
        Class::Rnr => o.tally.rnr,
        Class::Restart => o.tally.restarts,
        Class::Stale => o.tally.stale,
        Class::Clock => o.tally.leaps,
        Class::Backpressure => o.tally.refused + o.tally.overflowed,
        Class::Churn => o.tally.churned,
        _ => panic!("{class:?} leaves none that is counted"),
    }
}

#[test]
fn each_class_of_faults_leaves_its_traces_in_its_own_worlds_alone() {
    // These leave none that is counted; the next test compares whole worlds.
    let silent = [Class::Skew, Class::Spike, Class::Rehash, Class::Ecn];
    let uncounted = |c| silent.contains(&c) || matches!(c, Class::HostStall | Class::CqFull);
    let ordinary = &Class::ALL[..Class::ORDINARY];
    let calm = Scenario::from_seed(2, Limits { classes: Classes::default(), ..Limits::NONE });
    let calm = run(&calm, Options::default());
    let mut seen = Vec::new();
    for &class in ordinary.iter().filter(|&&c| !uncounted(c)) {
        let left = |s: &Scenario| traces(class, &run(s, Options::default())) > 0;
        seen.push((class, worlds(class, WORLDS).filter(left).count()));
        // Receives are sometimes not ready where no class asks for it.
        assert!(class == Class::Rnr || traces(class, &calm) == 0, "{class:?} in a calm world");
    }
    assert!(seen.iter().all(|&(_, n)| n >= LEAST), "worlds of {WORLDS}: {seen:?}");
}

#[test]
fn each_scheduled_fault_changes_its_world() {
    use Class::{Churn, CqFull, Rnr};
    let scheduled = |c: &&Class| !matches!(c, Rnr | CqFull | Churn);
    let mut changed = Vec::new();
    for &class in Class::ALL[..Class::ORDINARY].iter().filter(scheduled) {
        let differs = |s: &Scenario| {
            let without = Scenario::from_seed(s.seed, Limits { faults: 0, ..s.limits });
            assert!(without.faults.is_empty() && without.incidents.is_empty(), "{class:?}");
            run(s, Options::default()).hash != run(&without, Options::default()).hash
        };
        changed.push((class, worlds(class, WORLDS).filter(differs).count()));
    }
    assert!(changed.iter().all(|&(_, n)| n >= LEAST), "worlds of {WORLDS}: {changed:?}");
}

#[test]
fn small_completion_queues_are_small_and_polled_late() {
    for s in worlds(Class::CqFull, 20) {
        assert!(s.machine.lazy_poll && s.machine.cq_depth < 24, "{:?}", s.machine);
    }
}
