//! The faults of a soak, and when a soak reports an error.

use super::*;
use std::collections::BTreeSet;

#[test]
fn the_same_seed_gives_the_same_faults() {
    let faults = |seed| {
        let mut dice = Dice(seed);
        (0..20).map(|_| plan(&mut dice, 4)).collect::<Vec<_>>()
    };
    assert_eq!(faults(1), faults(1));
    assert_ne!(faults(1), faults(2));
}

#[test]
fn every_kind_of_fault_occurs_at_every_place() {
    let mut dice = Dice(7);
    let (mut kinds, mut places) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..400 {
        for (place, fault) in plan(&mut dice, 4) {
            kinds.insert(match (place, fault) {
                (Place::Spine(_), Fault::Blackhole) => "spine hole",
                (Place::Link { .. }, Fault::Blackhole) => "link hole",
                (Place::Spine(_), Fault::LinkDown) => "spine down",
                (Place::Link { .. }, Fault::LinkDown) => "link down",
                (Place::Spine(_), Fault::Loss(ppm)) => {
                    assert!((1_000..=50_000).contains(&ppm), "{ppm}");
                    "loss"
                }
                (Place::Link { .. }, Fault::Rate(bits)) => {
                    assert!(bits > 0);
                    "slow"
                }
                other => panic!("not planned: {other:?}"),
            });
            places.insert(match place {
                Place::Spine(s) => (9, s),
                Place::Link { leaf, spine } => (leaf, spine),
            });
        }
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    // Four spines, and two links to each.
    assert_eq!(places.len(), 12, "{places:?}");
}

#[test]
fn random_numbers_are_uniform() {
    let mut dice = Dice(3);
    let mut counts = [0_u32; 6];
    for _ in 0..60_000 {
        counts[dice.below(6) as usize] += 1;
    }
    assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
}

fn end(sum: &Sum, memory: &[u64]) -> Result {
    sum.end(memory, &Counted::default(), Duration::from_secs(60), &Busy::start())
}

#[test]
fn a_soak_without_errors_succeeds() {
    let sum = Sum { runs: 9, blocks: 1000, ..Sum::default() };
    assert!(end(&sum, &[1 << 20; 9]).is_ok());
    // Memory that settles does not count as growth.
    let mut memory = vec![1 << 20, 8 << 20, 16 << 20, 20 << 20];
    memory.extend([21 << 20; 5]);
    assert!(end(&sum, &memory).is_ok());
}

#[test]
fn every_error_fails_a_soak() {
    let well = || Sum { runs: 9, blocks: 1000, ..Sum::default() };
    let wrong = [
        Sum { lost: 1, ..well() },
        Sum { duplicated: 1, ..well() },
        Sum { damaged: 1, ..well() },
        Sum { failed: 1, ..well() },
        Sum { blocks: 0, ..well() },
    ];
    for sum in wrong {
        assert!(end(&sum, &[1 << 20; 9]).unwrap_err().to_string().contains("blocks were lost"));
    }
    let mut memory = vec![1 << 20; 9];
    memory.push(4 << 20);
    assert!(end(&well(), &memory).unwrap_err().to_string().contains("memory"));
}

#[test]
fn sums_keep_the_first_reason() {
    let out = |failed, why: &str| Outcome {
        lost: 1,
        duplicated: 2,
        damaged: 3,
        failed,
        why: why.into(),
        ..Outcome::default()
    };
    let mut sum = Sum::default();
    sum.wrong(&out(0, "no reason"), "here");
    assert_eq!(sum.why, "", "nothing failed");
    sum.wrong(&out(4, "no answer"), "here");
    sum.wrong(&out(5, "another"), "there");
    assert_eq!((sum.lost, sum.duplicated, sum.damaged, sum.failed), (3, 6, 9, 9));
    assert_eq!(sum.why, " (here: no answer)");
}
