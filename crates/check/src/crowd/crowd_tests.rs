use super::*;
use crate::class::{Class, Classes};
use crate::corpus;
use crate::scenario::{Limits, Scenario};

/// The plans of all seeds from `first` on that have crowded worlds.
fn plans(first: u64) -> impl Iterator<Item = (u64, Plan)> {
    (first..).filter_map(|seed| draw(seed, u64::MAX).map(|p| (seed, p)))
}

#[test]
fn a_share_of_the_seeds_is_crowded_and_none_of_the_corpus() {
    let crowded = |seed| Scenario::from_seed(seed, Limits::NONE).crowd.is_some();
    for entry in corpus::parse(corpus::BUILT_IN).unwrap() {
        assert_eq!(crowded(entry.seed), entry.story.starts_with("Crowded"), "{}", entry.seed);
    }
    let n = (0..20_000).filter(|&seed| crowded(seed)).count() as u64;
    let usual = 20_000 / CROWD_EACH;
    // Some others are hostile or sealed.
    assert!((usual / 2..usual * 3 / 2).contains(&n), "{n}");
    for class in [Class::Crowd, Class::CrowdHard] {
        let is = |limits| (0..2_000).any(|s| Scenario::from_seed(s, limits).classes.has(class));
        let without = Limits { classes: Classes::ALL.without(class), ..Limits::NONE };
        assert!(is(Limits::NONE) && !is(without), "{class:?}");
        assert_eq!(is(Limits::USUAL), !AWAITED.has(class), "{class:?}");
    }
}

#[test]
fn plans_are_of_all_kinds_and_within_their_bounds() {
    let (mut kinds, mut unequal, mut shared, mut many) = ([0; 6], 0, 0, 0);
    for (seed, p) in plans(0).take(400) {
        let kind = match p.kind {
            Kind::Buffer { .. } if p.is_limit() => 0,
            Kind::Buffer { .. } => 1,
            Kind::Policer { .. } => 2,
            Kind::Lifted { .. } => 3,
            Kind::Marks => 4,
            Kind::BadLink { .. } => 5,
        };
        kinds[kind] += 1;
        unequal += u32::from(p.is_unequal());
        shared += u32::from(p.engines_per_host > 1 && p.senders() > 1);
        many += u32::from(p.senders() > 16);
        assert!((1..=64).contains(&p.senders()), "seed {seed}: {p:?}");
        assert_eq!(p.config.validate(), Ok(()), "seed {seed}");
        let ends = p.ends_ns();
        assert!(ends.is_sorted() && p.measure_ns > 0, "seed {seed}: {ends:?}");
        assert!(p.depth() >= 2 && p.depth() <= 256, "seed {seed}: {}", p.depth());
        let few = Scenario::from_seed(seed, Limits { hosts: 2, ..Limits::NONE });
        assert!(few.crowd.is_none_or(|p| p.senders() == 1 && p.hosts() == 2), "seed {seed}");
    }
    assert!(kinds.iter().all(|&n| n >= 4), "{kinds:?}");
    assert!(unequal >= 20 && shared >= 20 && many >= 40, "{unequal} {shared} {many}");
}

/// One small world of each kind, twice, and with a trace.
#[test]
fn a_world_of_each_kind_keeps_its_promises() {
    let kinds: [fn(&Plan) -> bool; 5] = [
        |p| matches!(p.kind, Kind::Buffer { .. }) && p.is_limit(),
        |p| matches!(p.kind, Kind::Policer { .. }),
        |p| matches!(p.kind, Kind::Lifted { .. }),
        |p| p.kind == Kind::Marks,
        |p| matches!(p.kind, Kind::BadLink { .. }),
    ];
    for fits in kinds {
        let small = |p: &Plan| p.senders() <= 4;
        let (seed, plan) =
            plans(0).find(|(_, p)| fits(p) && small(p) && p.class() == Class::Crowd).unwrap();
        let ran = [false, true].map(|trace| run(&plan, Options { trace, ..Options::default() }));
        let [a, b] = &ran;
        assert_eq!(a.violation, None, "seed {seed}: {plan:?}");
        assert_eq!((a.hash, a.tally.packets), (b.hash, b.tally.packets), "seed {seed}");
        assert!(a.tally.requests > 0 && a.tally.completed == a.tally.requests, "seed {seed}");
        assert_eq!(a.network.marked > 0, plan.kind == Kind::Marks, "seed {seed}");
        let lines = &b.trace.as_ref().unwrap().lines;
        assert!(lines.iter().any(|l| l.contains("Jain's index")), "{lines:?}");
    }
}

/// What the worlds of a range of seeds measure: `SURVEY_FIRST`, `SURVEY_WORLDS`.
#[test]
#[ignore = "a table of minutes"]
fn survey() {
    let var = |name: &str, usual: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(usual)
    };
    for (seed, plan) in plans(var("SURVEY_FIRST", 0)).take(var("SURVEY_WORLDS", 40) as usize) {
        let mut stage = Stage::new(&plan, false);
        stage.run();
        println!(
            "{seed}: {:?}{}, {} senders, {} of {} bytes per second, base {} ns{}, packets of {}, \
             bursts of {}, {} packets; {:?} {:?}",
            plan.kind,
            if plan.is_limit() { " (limit)" } else { "" },
            plan.senders(),
            plan.rate,
            plan.line(),
            plan.trip_ns(0),
            if plan.is_unequal() { " and more" } else { "" },
            plan.mtu(),
            plan.config.burst_packets,
            stage.packets,
            stage.wrong.as_ref().map(|v| &v.what),
            oracles::check(&plan, &stage.measured).map(|v| v.0),
        );
        for m in &stage.measured {
            println!("    {} % used: {m}", m.rate() * 100 / plan.rate);
        }
    }
}
