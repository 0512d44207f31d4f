//! Worlds as data: properties of every world, whatever its seed.

use crate::class::{Class, Classes};
use crate::draw::Draw;
use crate::packet::{endpoint_of, host_of, ip_of};
use crate::scenario::{Incident, Limits, Scenario};
use crate::workload::Workload;
use srd_core::Engine;
use srd_core::config::RatePolicy;
use srd_core::{Rng, Time};
use srd_fabric::{Effect, Fault, MS};
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 1_500;

/// Successive worlds of honest members.
fn honest() -> impl Iterator<Item = Scenario> {
    let limits = Limits { classes: Classes::ORDINARY, ..Limits::NONE };
    (0..SEEDS).map(move |seed| Scenario::from_seed(seed, limits))
}

#[test]
fn every_engine_of_every_world_can_be_made() {
    for s in honest().take(400) {
        for (host, &slot) in (0..s.hosts).flat_map(|h| s.slots.iter().map(move |slot| (h, slot))) {
            let c = s.config_of(host, slot);
            assert_eq!((c.ip, c.slot), (ip_of(host), slot));
            let made = Engine::new(c, Rng::from_seed(1), Time(1), ());
            assert!(made.is_ok(), "seed {}: {:?}", s.seed, made.err());
        }
    }
}

#[test]
fn faults_begin_within_the_phase_and_hit_what_is_there() {
    for s in honest() {
        for (at, fault) in &s.faults {
            assert!(*at > 0 && *at <= s.heal_at, "seed {}: {fault:?} at {at}", s.seed);
            assert!(fault.check(&s.topology).is_ok(), "seed {}: {fault:?}", s.seed);
        }
        for (at, host, what) in &s.incidents {
            assert!(*at > 0 && *at <= s.heal_at, "seed {}: {what:?} at {at}", s.seed);
            assert!(*host < s.hosts, "seed {}: host {host}", s.seed);
            let (Incident::Restart { slot, .. }
            | Incident::Stale { slot, .. }
            | Incident::Garbage { slot, .. }
            | Incident::Leap { slot, .. }
            | Incident::Deny { slot, .. }) = what;
            assert!(s.slots.contains(slot), "seed {}: slot {slot}", s.seed);
        }
    }
}

/// What a fault impairs: the key of its begin and of its end, and which of both it is.
fn begins(fault: &Fault) -> Option<(String, bool)> {
    let none = |prob: f64| prob == 0.0;
    Some(match *fault {
        Fault::Impair { at, effect } => {
            let (kind, ends) = match effect {
                Effect::Loss(prob) => ("loss", none(prob)),
                Effect::Burst(how) => ("burst", how.is_none()),
                Effect::Duplicate { prob, .. } => ("duplicate", none(prob)),
                Effect::Delay { prob, .. } => ("delay", none(prob)),
                Effect::Corrupt(prob) => ("corrupt", none(prob)),
                Effect::FlowHole(share) => ("flow hole", none(share)),
                Effect::Mtu(most) => ("size", most.is_none()),
                _ => return None,
            };
            (format!("{kind} {at:?}"), !ends)
        }
        Fault::BlackHole { at, .. } => (format!("hole {at:?}"), true),
        Fault::BlackHoleEnd { at, .. } => (format!("hole {at:?}"), false),
        Fault::SwitchDown { switch, .. } => (format!("switch {switch:?}"), true),
        Fault::SwitchUp { switch, .. } => (format!("switch {switch:?}"), false),
        Fault::Rate { at, percent } => (format!("rate {at:?}"), percent < 100),
        Fault::Buffer { at, bytes } => (format!("buffer {at:?}"), bytes.is_some()),
        _ => return None,
    })
}

/// A fault that never ends would hide what comes after it, until the network heals.
#[test]
fn what_begins_ends_within_the_phase() {
    let mut kinds = BTreeSet::new();
    for s in honest() {
        let mut open: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (at, key, on) in s.faults.iter().filter_map(|(at, f)| {
            let (key, on) = begins(f)?;
            Some((*at, key, on))
        }) {
            kinds.insert(key.split(' ').next().unwrap().to_string());
            let began = open.entry(key.clone()).or_default();
            if on {
                began.push(at);
            } else {
                // Each is planned with its end behind it.
                let from = began.pop().unwrap_or_else(|| panic!("seed {}: {key} ends", s.seed));
                assert!(from <= at && at <= s.heal_at, "seed {}: {key} {from} {at}", s.seed);
            }
        }
        let left: Vec<_> = open.iter().filter(|(_, began)| !began.is_empty()).collect();
        assert!(left.is_empty(), "seed {}: no end of {left:?}", s.seed);
    }
    assert_eq!(kinds.len(), 11, "{kinds:?}");
}

#[test]
fn a_class_that_is_off_plans_nothing() {
    let mut on = BTreeMap::new();
    for s in honest() {
        for c in Class::ALL {
            let planned = s.planned[c as usize];
            assert!(planned == 0 || s.classes.has(c), "seed {}: {c:?}", s.seed);
            assert!(planned <= 3, "seed {}: {planned} of {c:?}", s.seed);
            *on.entry(c).or_insert(0) += u32::from(s.classes.has(c));
        }
    }
    for c in &Class::ALL[..Class::ORDINARY] {
        assert!((50..1_200).contains(&on[c]), "{c:?} in {} of {SEEDS} worlds", on[c]);
    }
    assert!(Class::ALL[Class::ORDINARY..].iter().all(|c| on[c] == 0));
}

#[test]
fn every_workload_and_every_topology_comes() {
    let (mut kinds, mut hosts, mut slots) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for s in honest() {
        kinds.insert(format!("{:?}", s.workload));
        hosts.insert(s.hosts);
        slots.insert(s.slots.len());
        let unique: BTreeSet<u8> = s.slots.iter().copied().collect();
        assert!(unique.len() == s.slots.len() || s.slots == [0, 0], "{:?}", s.slots);
        assert!(s.hosts >= 2 && s.hosts <= s.topology.hosts(), "seed {}", s.seed);
    }
    assert_eq!(kinds.len(), Workload::ALL.len() + Workload::FOCUSED.len(), "{kinds:?}");
    assert_eq!(hosts, BTreeSet::from([2, 4]));
    assert_eq!(slots, BTreeSet::from([1, 2, 3, 4]));
}

#[test]
fn bursts_are_as_short_and_as_long_as_those_of_engines_in_use() {
    let bursts: BTreeSet<u16> = honest().map(|s| s.config.burst_packets).collect();
    assert_eq!(bursts, BTreeSet::from([1, 2, 8, 16, 64]));
}

#[test]
fn profiles_are_shares_of_a_hundred() {
    for w in Workload::ALL.into_iter().chain(Workload::FOCUSED) {
        let p = w.profile();
        assert_eq!(p.ops.iter().sum::<u32>(), 100, "{w:?}");
        assert_eq!(p.lens.iter().sum::<u32>(), 100, "{w:?}");
        assert!(p.messages > 0 && p.burst > 0, "{w:?}");
    }
}

#[test]
fn what_is_taken_away_changes_nothing_else() {
    for seed in 0..200 {
        let whole =
            Scenario::from_seed(seed, Limits { classes: Classes::ORDINARY, ..Limits::NONE });
        for c in whole.classes.iter() {
            let limits = Limits { classes: Classes::ORDINARY.without(c), ..Limits::NONE };
            let less = Scenario::from_seed(seed, limits);
            assert_eq!(less.classes, whole.classes.without(c), "seed {seed}");
            assert_eq!((less.workload, less.hosts), (whole.workload, whole.hosts));
            assert_eq!(less.slots, whole.slots);
            // Other faults have the same times. Some depend on the length of the phase, which
            // narrow paths prolong, and on the permitted packet sizes.
            if c != Class::Mtu && c != Class::Overflow {
                let of = |s: &Scenario, k: Class| s.planned[k as usize];
                assert!(less.classes.iter().all(|k| of(&less, k) == of(&whole, k)), "{c:?}");
                assert_eq!(less.heal_at, whole.heal_at);
            }
        }
    }
}

#[test]
fn limits_are_told_and_kept() {
    let limits = Limits { classes: Classes::ORDINARY, hosts: 2, messages: 7, faults: 1 };
    for seed in 0..300 {
        let s = Scenario::from_seed(seed, limits);
        assert!(s.hosts == 2 && s.profile.messages <= 7, "seed {seed}");
        assert!(s.planned.iter().all(|n| *n <= 1), "seed {seed}: {:?}", s.planned);
    }
    assert_eq!(
        limits.to_string(),
        "at most 2 hosts, at most 7 messages per engine, at most 1 faults per class"
    );
    assert!(Limits::NONE.to_string().starts_with("all hosts, all messages"));
}

#[test]
fn there_is_time_for_what_is_left() {
    for s in honest() {
        let (none, one, many) = (s.settle_ps(0), s.settle_ps(1), s.settle_ps(1_000));
        let silence = s.config.loss.unresponsive_after.0.max(s.config.loss.unreachable_after.0);
        assert!(none > 2 * silence * 1000, "seed {}: longer than a silence", s.seed);
        assert!(one >= none && many >= one, "seed {}", s.seed);
        let each = one - none;
        assert!(many - none == 1_000 * each, "seed {}: the same for each packet", s.seed);
        let capped = s.config.rate.policy == RatePolicy::Fixed
            && s.config.rate.inflight_fixed_bytes < u64::from(s.config.mtu);
        assert!(!capped || each > 0, "seed {}: one at a time needs time", s.seed);
        let bytes = u128::from(s.least_mtu()) * 1_000;
        let rate = u128::from(s.config.rate.line_bytes_per_sec);
        let wire = bytes * 1_000_000_000_000 / rate;
        assert!(u128::from(many - none) > wire, "seed {}: the wire carries it", s.seed);
        assert!((2 * MS..=100 * MS).contains(&s.heal_at), "seed {}", s.seed);
    }
}

#[test]
fn bytes_decide_worlds_and_any_bytes_do() {
    let mut worlds = BTreeSet::new();
    for n in 0..64_u8 {
        let bytes: Vec<u8> = (0..n).map(|i| i.wrapping_mul(37) ^ n).collect();
        let (a, b) = (Scenario::from_bytes(&bytes), Scenario::from_bytes(&bytes));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        worlds.insert(format!("{:?}", (a.seed, a.workload, a.classes, a.config)));
    }
    assert!(worlds.len() > 60, "{} worlds of 64 strings", worlds.len());
}

#[test]
fn choices_are_even_and_those_of_bytes_come_first() {
    let mut d = Draw::new(3, 1, 0);
    let mut counts = [0_u32; 5];
    for _ in 0..50_000 {
        counts[d.below(5) as usize] += 1;
    }
    assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    let mut d = Draw::with_bytes(3, 1, 0, &[7, 0, 0, 1, 9]);
    assert_eq!((d.below(100), d.below(100)), (7, 56), "pairs of bytes, the low one first");
    assert_eq!(d.below(1000), Draw::new(3, 1, 0).below(1000), "an odd byte decides nothing");
    let mut d = Draw::new(1, 2, 3);
    assert!((0..1000).all(|_| (5..=9).contains(&d.range(5, 9))));
    assert_eq!((d.range(4, 4), d.range(4, 3), d.below(0)), (4, 4, 0));
    assert!((0..100).all(|_| d.percent(100) && !d.percent(0)));
    let weights = [0, 3, 0, 1];
    let mut hits = [0; 4];
    for _ in 0..40_000 {
        hits[d.weighted(&weights)] += 1;
    }
    assert!(hits[0] + hits[2] == 0 && (29_000..31_000).contains(&hits[1]), "{hits:?}");
    assert_eq!(d.weighted(&[0, 0]), 0);
}

#[test]
fn streams_of_a_seed_do_not_meet() {
    let first = |seed, kind, id| Draw::new(seed, kind, id).bits();
    let all: BTreeSet<u64> = (0..10)
        .flat_map(|seed| (1..8).flat_map(move |k| (0..8).map(move |id| first(seed, k, id))))
        .collect();
    assert_eq!(all.len(), 10 * 7 * 8);
}

#[test]
fn sets_of_classes_are_sets() {
    let mut set = Classes::default();
    assert_eq!(set.to_string(), "none");
    for (k, c) in Class::ALL.into_iter().enumerate() {
        assert_eq!(c as usize, k, "numbers are those of the list");
        assert!(!set.has(c));
        set = set.with(c).with(c);
        assert!(set.has(c) && set.iter().count() == k + 1);
    }
    assert_eq!(set, Classes::ALL);
    let parts = [Classes::ORDINARY, Classes::HOSTILE, Classes::SEALED, Classes::CROWD];
    let of = |c: Class| parts.iter().filter(|part| part.has(c)).count();
    assert!(Class::ALL.into_iter().all(|c| of(c) == 1), "each class is in one part");
    assert!(parts.iter().all(|part| part.and(Classes::ALL) == *part), "and nothing else is");
    let two = Classes::default().with(Class::Flood).with(Class::Loss);
    assert_eq!(two.to_string(), "Loss Flood", "in order");
    assert_eq!(two.without(Class::Loss).without(Class::Burst).to_string(), "Flood");
}

#[test]
fn addresses_are_of_hosts_that_exist() {
    for host in [0, 1, 3, 200, 254, 256, 1000] {
        assert_eq!(host_of(ip_of(host), 2000), Some(host));
        assert_eq!(host_of(ip_of(host), host), None, "there are only so many");
    }
    for ip in ["10.0.0.0", "10.1.0.1", "11.0.0.1", "::1"] {
        assert_eq!(host_of(ip.parse().unwrap(), 1000), None, "{ip}");
    }
    let ports: BTreeSet<u16> = [0, 1, 255].map(|slot| endpoint_of(5, slot).port).into();
    assert_eq!(ports.len(), 3);
}

#[test]
fn a_world_is_described_engine_by_engine_and_fault_by_fault() {
    for s in honest().take(100) {
        let lines = s.describe();
        let count = |word: &str| lines.iter().filter(|l| l.starts_with(word)).count();
        assert_eq!(count("engine "), s.hosts as usize * s.slots.len(), "seed {}", s.seed);
        assert_eq!(count("fault at "), s.faults.len() + s.incidents.len(), "seed {}", s.seed);
        let times: Vec<f64> = lines
            .iter()
            .filter_map(|l| l.strip_prefix("fault at ")?.split(' ').next()?.parse().ok())
            .collect();
        assert!(times.windows(2).all(|w| w[0] <= w[1]), "in order of time: {times:?}");
    }
}

#[test]
fn hostile_worlds_are_a_share_and_have_one_class() {
    let mut counts = BTreeMap::new();
    for seed in 0..4_000 {
        let s = Scenario::from_seed(seed, Limits::NONE);
        let Some(plan) = &s.hostile else { continue };
        assert_eq!(s.classes, Classes::default().with(plan.class), "seed {seed}");
        assert!(Classes::HOSTILE.has(plan.class) && s.faults.is_empty(), "seed {seed}");
        assert_eq!(s.workload, Workload::Hostile);
        *counts.entry(plan.class).or_insert(0) += 1;
        assert!(!s.describe().is_empty());
        let without = Limits { classes: Classes::ALL.without(plan.class), ..Limits::NONE };
        let honest = Scenario::from_seed(seed, without);
        assert!(honest.hostile.is_none(), "seed {seed}: taken away, it is an honest world");
    }
    let all: u32 = counts.values().sum();
    assert!((250..400).contains(&all), "{all} of 4,000");
    assert_eq!(counts.len(), Classes::HOSTILE.iter().count(), "{counts:?}");
}
