use crate::batch::{jobs_of, run_all};
use crate::result::RunResult;
use crate::spec::SpecFile;
use srd_fabric::DropReason;
use std::path::Path;

/// One run between two leaves with these faults.
fn run(faults: &str) -> Result<RunResult, String> {
    let text = format!(
        "name = \"test\"\ntitle = \"test\"\ntime_ms_max = 5_000\nfault = [{faults}]\n\
         [network]\nshape = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 4\n\
         [workload]\npattern = \"leaf-pairs\"\npairs = 4\nflows_per_pair = 4\nbytes = 1_000_000\n"
    );
    let file = SpecFile::parse(&text, Path::new("."), false)?;
    Ok(run_all(&jobs_of(&file, None), 1, &|_| ())?.remove(0))
}

#[test]
fn every_kind_of_fault_does_what_it_says_and_no_flow_is_lost() {
    let well = run("").unwrap();
    assert_eq!((well.drops.total(), well.unfinished()), (0, 0));
    for (fault, reason) in [
        ("kind = 'down', at_us = 350, at = 'leaf0-spine1', for_us = 100", DropReason::LinkDown),
        ("kind = 'down', at_us = 350, at = 'spine1->leaf1', routing_us = 50", DropReason::Cut),
        (
            "kind = 'flap', at_us = 350, at = 'spine2', down_us = 20, up_us = 20, times = 3",
            DropReason::LinkDown,
        ),
        ("kind = 'hole', at_us = 350, at = 'leaf0->spine0', for_us = 90", DropReason::BlackHole),
        ("kind = 'loss', at_us = 0, at = 'core', prob = 0.01", DropReason::Loss),
        (
            "kind = 'switch-down', at_us = 350, switch = 'spine3', for_us = 80, routing_us = 10",
            DropReason::Cut,
        ),
    ] {
        let r = run(&format!("{{ {fault} }}")).unwrap_or_else(|e| panic!("{fault}: {e}"));
        assert_eq!((r.unfinished(), r.failures), (0, 0), "{fault}");
        assert!(r.drops.of(reason) > 0, "{fault}: {:?}", r.drops);
        assert_ne!(r.hash, well.hash);
    }
    // Neither fault loses packets; both delay them.
    for fault in [
        "kind = 'slow', at_us = 350, at = 'host0', percent = 20, for_us = 200",
        "kind = 'host-stall', at_us = 350, host = 4, for_us = 100",
    ] {
        let r = run(&format!("{{ {fault} }}")).unwrap_or_else(|e| panic!("{fault}: {e}"));
        assert_eq!((r.unfinished(), r.failures), (0, 0), "{fault}");
        let later = r.summary.fct_us.max - well.summary.fct_us.max;
        assert!((50.0..1_000.0).contains(&later), "{fault}: {later} us later");
    }
}

#[test]
fn places_that_do_not_exist_are_refused() {
    for (fault, words) in [
        (
            "kind = 'down', at_us = 1, at = 'leaf9'",
            "fault 1: there is no `leaf9`; the nodes are host0 to host7",
        ),
        ("kind = 'down', at_us = 1, at = 'leaf0-leaf1'", "there is no cable `leaf0-leaf1`"),
        ("kind = 'hole', at_us = 1, at = 'leaf0->'", "there is no ``"),
        ("kind = 'switch-down', at_us = 1, switch = 'host0'", "is not a switch"),
        ("kind = 'host-stall', at_us = 1, host = 8, for_us = 1", "8"),
        ("kind = 'slow', at_us = 1, at = 'core', percent = 0", "rate 0 %"),
        ("kind = 'down', at = 'core'", "at_us"),
        ("kind = 'meteor', at_us = 1", "meteor"),
    ] {
        let e = run(&format!("{{ {fault} }}")).map(|r| r.hash).unwrap_err();
        assert!(e.contains(words), "{fault}: {e}");
    }
}
