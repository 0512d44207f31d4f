//! Sets of classes: a class that is in the wrong set is never drawn, or never in the right world.

use crate::class::{Class, Classes, PerClass};
use std::collections::BTreeSet;

#[test]
fn each_class_has_its_number_and_its_name_once() {
    for (i, c) in Class::ALL.into_iter().enumerate() {
        assert_eq!(c as usize, i, "{c:?}");
    }
    let names: BTreeSet<String> = Class::ALL.iter().map(|c| format!("{c:?}")).collect();
    assert_eq!(names.len(), Class::COUNT);
}

#[test]
fn every_class_is_in_one_kind_of_world() {
    for c in Class::ALL {
        let kinds = [Classes::ORDINARY, Classes::HOSTILE, Classes::SEALED, Classes::CROWD];
        assert_eq!(kinds.iter().filter(|k| k.has(c)).count(), 1, "{c:?}");
        assert!(Classes::ALL.has(c), "{c:?}");
    }
    assert!(Classes::ORDINARY.has(Class::Churn) && !Classes::ORDINARY.has(Class::Liar));
    assert!(Classes::HOSTILE.has(Class::Narrow) && !Classes::HOSTILE.has(Class::Sealed));
    assert_eq!(Classes::ALL.0.count_ones() as usize, Class::COUNT);
}

#[test]
fn a_set_is_changed_by_one_class_at_a_time() {
    for c in Class::ALL {
        let alone = Classes::default().with(c);
        assert_eq!(alone.iter().collect::<Vec<_>>(), [c]);
        assert_eq!((alone.without(c), alone.and(Classes::ALL)), (Classes::default(), alone));
        let others = Classes::ALL.without(c);
        assert!(!others.has(c) && others.iter().count() == Class::COUNT - 1);
        assert_eq!((others.with(c), others.and(alone)), (Classes::ALL, Classes::default()));
    }
}

#[test]
fn a_set_is_written_as_its_names() {
    let two = Classes::default().with(Class::Mtu).with(Class::Loss);
    assert_eq!(two.to_string(), "Loss Mtu", "in their order, not in that of the calls");
    assert_eq!(Classes::default().to_string(), "none");
}

#[test]
fn counts_begin_at_zero_and_are_by_class() {
    let mut n = PerClass::default();
    assert!(n.iter().all(|&n| n == 0) && n.len() == Class::COUNT);
    n[Class::Sealed as usize] += 2;
    assert_eq!((n[Class::Sealed as usize], n.iter().sum::<u64>()), (2, 2));
}
