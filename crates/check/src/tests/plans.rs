//! Plans of hostile worlds, and the corpus.

use crate::class::{Class, Classes};
use crate::corpus;
use crate::hostile;
use srd_core::config::Integrity;
use srd_core::{Engine, Rng, Time};
use std::collections::BTreeSet;

fn plans(n: usize) -> Vec<hostile::Plan> {
    (0..).filter_map(|seed| hostile::draw(seed, &[], Classes::ALL)).take(n).collect()
}

#[test]
fn engines_of_hostile_worlds_can_be_made() {
    for plan in plans(300) {
        let made = Engine::new(plan.config.clone(), Rng::from_seed(1), Time(1), ());
        assert!(made.is_ok(), "{plan:?}: {:?}", made.err());
        assert!(plan.honest >= 1 && plan.dead >= 2 && plan.words >= 20, "{plan:?}");
        assert!(plan.load_ns >= 1_000_000 && plan.pause_ns > 0, "{plan:?}");
    }
}

#[test]
fn damage_is_rare_where_work_must_end_well() {
    let mut seen = BTreeSet::new();
    for plan in plans(600).iter().filter(|p| p.class == Class::Damage) {
        let checked = plan.config.integrity == Integrity::On;
        assert!(!checked || plan.damage <= 20, "{plan:?}");
        assert!(!plan.mixed, "every engine checks, or none: {plan:?}");
        seen.insert(checked);
    }
    assert_eq!(seen.len(), 2, "with and without checksums");
}

#[test]
fn bytes_make_hostile_worlds_when_the_first_is_odd() {
    for first in 0..=255_u8 {
        let bytes = [first, 1, 2, 3, 4, 5, 6, 7, 8];
        let plan = hostile::draw(7, &bytes, Classes::ALL);
        assert_eq!(plan.is_some(), first % 2 == 1, "{first}");
    }
    let odd: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![1, n, 0, n, 3, n, 1, 9, n]).collect();
    let classes: BTreeSet<Class> = odd
        .iter()
        .filter_map(|bytes| hostile::draw(7, bytes, Classes::ALL))
        .map(|p| p.class)
        .collect();
    assert!(classes.len() > 4, "{classes:?}");
}

#[test]
fn classes_that_are_not_allowed_are_not_drawn() {
    for seed in 0..3_000 {
        let Some(plan) = hostile::draw(seed, &[], Classes::ALL) else { continue };
        assert!(hostile::draw(seed, &[], Classes::ALL.without(plan.class)).is_none());
        let alone = Classes::default().with(plan.class);
        assert_eq!(hostile::draw(seed, &[], alone).unwrap().class, plan.class);
        assert!(hostile::draw(seed, &[], Classes::ORDINARY).is_none());
    }
}

#[test]
fn the_corpus_names_each_seed_once() {
    let all = corpus::parse(corpus::BUILT_IN).unwrap();
    let seeds: BTreeSet<u64> = all.iter().map(|e| e.seed).collect();
    assert_eq!(seeds.len(), all.len(), "a seed stands there twice");
    assert!(all.iter().all(|e| e.story.ends_with('.') || e.story.len() > 30));
}

#[test]
fn a_corpus_says_where_it_is_wrong() {
    for (text, told) in [
        ("[[seed]]\nstory = \"s\"", "entry 1"),
        ("[[seed]]\nseed = 1\nstory = s", "line 3: not in quotes"),
        ("[[seed]]\nseed = -1", "line 2: not a number"),
        ("[[seed]]\nseed = 99999999999999999999", "below 2^64"),
        ("[[seed]]\ncolour = 1", "neither seed nor story"),
        ("[[seed]]\nnonsense", "not `name = value`"),
        ("story = \"s\"", "before the first"),
        ("[[seed]]\nseed = 1\nstory = \"s\"\n[[seed]]\nseed = 2", "entry 2"),
    ] {
        let error = corpus::parse(text).expect_err(text);
        assert!(error.contains(told), "{error}");
    }
    let good = "# a comment\n\n[[seed]]\n  seed = 18_446_744_073_709_551_615\nstory = \"a = b\"\n";
    let [entry] = &corpus::parse(good).unwrap()[..] else { panic!("one entry") };
    assert_eq!((entry.seed, entry.story.as_str()), (u64::MAX, "a = b"));
    assert_eq!(corpus::parse("").unwrap(), []);
}
