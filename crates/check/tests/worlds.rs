//! The checker checked: it finds nothing where nothing is wrong, sees what is broken on purpose,
//! and says the same thing twice.

use srd_check::runner::{self, Plan};
use srd_check::summary::Summary;
use srd_check::{
    Class, Classes, Limits, Options, Oracle, Scenario, Tamper, Trouble, corpus, shrink,
};
use std::sync::atomic::AtomicBool;

fn run(first: u64, seeds: u64, threads: usize) -> Summary {
    runner::run_many(&Plan::new(first, seeds, threads), &AtomicBool::new(false))
}

fn failures(sum: &Summary) -> Vec<String> {
    sum.failures.iter().map(|f| format!("seed {}: {:?}", f.seed, f.violation)).collect()
}

#[test]
fn every_promise_is_kept_in_two_hundred_worlds() {
    let sum = run(1_000_000, 200, 2);
    assert_eq!(failures(&sum), Vec::<String>::new());
    assert_eq!((sum.seeds, sum.replays), (200, 10));
    assert!(sum.tally.completed > 20_000, "{:?}", sum.tally);
    for &c in &Class::ALL[..Class::ORDINARY] {
        assert!(sum.classes[c as usize] > 5, "{c:?} is hardly ever on");
    }
}

/// Peers that lie, die or flood, one class after the other; those that the engine does not pass yet
/// are left out by name.
#[test]
fn every_promise_is_kept_beside_hostile_peers() {
    for &class in &Class::ALL[Class::ORDINARY..] {
        // These worlds are rarer than others.
        let rare = Classes::CROWD.has(class) || matches!(class, Class::Rails | Class::RailDown);
        let seeds = if rare { 4_000 } else { 1_500 };
        let plan = Plan { with: Some(class), ..Plan::new(2_000_000, seeds, 2) };
        let sum = runner::run_many(&plan, &AtomicBool::new(false));
        assert!(sum.seeds > 2 && sum.tally.requests > 0, "{class:?}: {sum:?}");
        if Limits::USUAL.classes.has(class) {
            assert_eq!(failures(&sum), Vec::<String>::new(), "{class:?}");
        }
    }
}

#[test]
fn every_seed_that_ever_failed_is_well() {
    for e in corpus::parse(corpus::BUILT_IN).unwrap() {
        let outcome = runner::check_twice(&Scenario::from_seed(e.seed, Limits::NONE));
        assert_eq!(outcome.violation, None, "seed {}: {}", e.seed, e.story);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (one, three) = (run(7, 40, 1), run(7, 40, 3));
    let numbers = |s: &Summary| {
        let t = &s.tally;
        let packets = (t.packets, t.judged, t.retransmitted, s.lost, s.duplicated, s.corrupted);
        (s.seeds, s.range.clone(), t.requests, t.completed, packets, s.classes, s.planned)
    };
    assert_eq!(numbers(&one), numbers(&three));
}

#[test]
fn the_same_seed_is_the_same_world_and_another_is_not() {
    let hash = |seed| srd_check::run(&Scenario::from_seed(seed, Limits::NONE), Options::default());
    assert_eq!(hash(3).hash, hash(3).hash);
    assert_ne!(hash(3).hash, hash(4).hash);
    let bytes: Vec<u8> = (0..64).collect();
    let world = |b: &[u8]| srd_check::run(&Scenario::from_bytes(b), Options::default()).hash;
    assert_eq!(world(&bytes), world(&bytes));
    assert_ne!(world(&bytes), world(&bytes[1..]));
}

/// A copy that is dropped, late, or of the wrong bytes: the datapath's part of the promises.
#[test]
fn mistakes_of_the_harness_are_seen() {
    let seen = |tamper| {
        (0..20).find_map(|seed| {
            let s = Scenario::from_seed(seed, Limits::NONE);
            srd_check::run(&s, Options { tamper, trace: false }).violation
        })
    };
    let early = [Oracle::CompletionAfterPlacement, Oracle::Placement];
    for tamper in [Tamper::CopyDropped, Tamper::CopyLate, Tamper::WrongBytes] {
        let violation = seen(tamper).expect("seen within 20 seeds");
        assert!(early.contains(&violation.oracle), "{tamper:?}: {violation:?}");
    }
}

#[test]
fn what_is_taken_away_is_gone() {
    let limits = Limits { classes: Classes::default(), hosts: 2, messages: 3, faults: 0 };
    for seed in 0..50 {
        let s = Scenario::from_seed(seed, limits);
        assert!(s.hosts == 2 && s.faults.is_empty() && s.incidents.is_empty(), "seed {seed}");
        assert!(s.profile.messages <= 3);
    }
    assert!(shrink::shrink(1).is_none(), "a world that does not fail has no least form");
}

#[test]
fn a_trace_tells_the_story_and_holds_the_packets() {
    let s = Scenario::from_seed(5, Limits::NONE);
    let traced = srd_check::run(&s, Options { trace: true, ..Options::default() });
    let plain = srd_check::run(&s, Options::default());
    assert_eq!(traced.hash, plain.hash, "to look is not to touch");
    let trace = traced.trace.unwrap();
    assert_eq!(trace.packets.len() as u64, traced.tally.packets);
    assert!(trace.lines.iter().any(|l| l.contains("posts request 0")));
    assert!(trace.pcapng().len() > 40 * trace.packets.len());
}

#[test]
fn a_run_can_be_stopped_and_says_what_it_came_to() {
    let stop = AtomicBool::new(true);
    let sum = runner::run_many(&Plan::new(0, 1000, 2), &stop);
    assert_eq!((sum.seeds, sum.range.clone()), (0, 0..0));
    let text = run(0, 25, 2).text();
    assert!(text.contains("25 seeds from 0 to 24 (2 of them twice), 0 failed"), "{text}");
    for word in ["packets per", "lost packets by reason", "restarted", "Loss ", "Churn "] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn bad_arguments_are_refused_with_a_reason() {
    let cli = |line: &str| {
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        srd_check::cli(&args, &AtomicBool::new(false))
    };
    let Err(Trouble::Usage(why)) = cli("--sedes 5") else { panic!("refused") };
    assert!(why.contains("--sedes") && why.contains("--help"), "{why}");
    let Err(Trouble::Failed(why)) = cli("--corpus /nowhere/corpus.toml") else { panic!("refused") };
    assert!(why.contains("cannot read /nowhere"), "{why}");
}
