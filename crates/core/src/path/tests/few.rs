//! Choices when few paths are left, because the others are denied, and what is told of paths that
//! come back.

use super::*;

/// Denies all paths but those of `kept`.
fn keep(b: &mut Bench, kept: &[u8]) {
    let mut mask = PathMask::NONE;
    let paths = b.context.params.paths;
    (0..paths).for_each(|i| mask.put(i as u8, !kept.contains(&(i as u8))));
    b.context.deny(b.now, &mask, |_, _, _| {});
}

/// Most draws miss, so that most choices are those made after the last draw.
#[test]
fn two_choices_spread_over_the_few_paths_that_are_left() {
    let kept = [0, 20, 21, 40, 63];
    let mut b = Bench::new(PathPolicy::RttP2c, 64);
    keep(&mut b, &kept);
    for (avoid, others) in [(None, 5), (Some(0), 4), (Some(21), 4), (Some(7), 5)] {
        let mut counts = [0; 64];
        (0..10_000).for_each(|_| counts[usize::from(b.choose(0, avoid))] += 1);
        let fair = 10_000 / others;
        for path in kept.iter().filter(|p| avoid != Some(**p)) {
            let count = counts[usize::from(*path)];
            assert!((fair * 9 / 10..fair * 11 / 10).contains(&count), "{avoid:?}: {counts:?}");
        }
        let used = kept.iter().map(|p| counts[usize::from(*p)]).sum::<i32>();
        assert_eq!((used, counts.iter().filter(|n| **n > 0).count()), (10_000, others as usize));
    }
    keep(&mut b, &[21]);
    assert_eq!((b.choose(0, None), b.choose(0, Some(21))), (21, 21), "there is no other");
}

/// A run of denied paths does not send all its flows to the path that follows it.
#[test]
fn ecmp_spreads_the_flows_of_denied_paths_and_moves_no_other() {
    let mut b = Bench::new(PathPolicy::Ecmp, 64);
    let home: Vec<u8> = (0..8192).map(|flow| b.choose(flow, None)).collect();
    let kept: Vec<u8> = (0..64).filter(|i| !(8..48).contains(i)).collect();
    keep(&mut b, &kept);
    let mut moved = [0; 64];
    for (flow, path) in home.iter().enumerate() {
        let now = b.choose(flow as u32, None);
        assert_eq!(b.choose(flow as u32, Some(now)), now, "a flow stays");
        if kept.contains(path) {
            assert_eq!(now, *path);
        } else {
            moved[usize::from(now)] += 1;
        }
    }
    let all: u32 = moved.iter().sum();
    let fair = all / kept.len() as u32;
    assert!(all > 4000);
    for path in 0..64 {
        let count = moved[usize::from(path)];
        let right = if kept.contains(&path) { fair / 2..fair * 3 / 2 } else { 0..1 };
        assert!(right.contains(&count), "path {path}: {count} of {all}, {fair} expected");
    }
}

/// A probe of full size that does not come back is told with the next one.
#[test]
fn a_path_that_carries_only_small_probes_is_told_to_be_retired_again() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(3, 10);
    b.lose(3, LossRule::Timeout);
    assert_eq!(change(&mut b), Some((3, "live", "retired")));
    let probe = |b: &mut Bench| loop {
        // The probes before must be paid for first.
        b.now = b.context.probe_next();
        if let Some(probe) = b.context.probe_poll(b.now, 4096) {
            return probe.payload;
        }
    };
    assert_eq!((probe(&mut b), change(&mut b)), (0, None));
    b.wait_us(10);
    b.echo(3, 10);
    assert_eq!(change(&mut b), Some((3, "retired", "probing")));
    assert_eq!((probe(&mut b), change(&mut b)), (4096, None));
    assert_eq!((probe(&mut b), change(&mut b)), (0, Some((3, "probing", "retired"))));
}
