//! Placement of flows: the published congestion is reproduced, and all resources are released.

use super::super::circuits::{Adaptation, Ties};
use super::*;
use crate::rng::Rng;
use crate::topo::SwitchId;

fn permutation(hosts: u32, rng: &mut Rng) -> Vec<(HostId, HostId)> {
    let mut to: Vec<u32> = (0..hosts).collect();
    rng.shuffle(&mut to);
    let mut pairs: Vec<_> = (0..hosts).map(|s| (HostId(s), HostId(to[s as usize]))).collect();
    rng.shuffle(&mut pairs);
    pairs
}

/// Largest and mean congestion of the flows of a random permutation, over runs.
fn congestion(k: u32, w: u32, adaptation: Adaptation, ties: Ties, runs: u64) -> (f64, f64) {
    let tree = KaryNTree::new(k, 3, w).expect("sound");
    let mut placement = Placement::new(tree, CircuitConfig { adaptation, entries: None, ties }, 0);
    let (mut max_sum, mut mean_sum) = (0.0, 0.0);
    for seed in 0..runs {
        placement.clear(seed);
        let pairs = permutation(tree.hosts(), &mut Rng::new(seed));
        let mut paths = vec![Vec::new(); pairs.len()];
        for ((src, dst), path) in pairs.iter().zip(&mut paths) {
            placement.place(*src, *dst, path);
        }
        let met: Vec<u32> = paths.iter().map(|p| placement.congestion(p)).collect();
        max_sum += f64::from(*met.iter().max().expect("flows"));
        mean_sum += met.iter().map(|m| f64::from(*m)).sum::<f64>() / met.len() as f64;
        for ((_, dst), path) in pairs.iter().zip(&paths) {
            placement.remove(*dst, path);
        }
        assert!((0..tree.links()).all(|l| placement.flows(LinkId(l)) == 0), "seed {seed}");
        let entries = |s| placement.circuits().entries_used(SwitchId(s));
        assert!((0..tree.switches()).all(|s| entries(s) == 0), "seed {seed}");
    }
    (max_sum / runs as f64, mean_sum / runs as f64)
}

#[test]
fn congestion_of_random_permutations_is_the_known_one() {
    // Ranges that include the figures of two independent models of the published system and the
    // statistical error of 200 runs (k = 8 and k = 4).
    for (k, w, adaptation, low, high) in [
        (8, 0, Adaptation::Default, 4.45, 4.65),
        (8, 2, Adaptation::LeastFlows, 2.3, 2.8),
        (4, 0, Adaptation::Default, 2.95, 3.2),
        (4, 2, Adaptation::LeastFlows, 1.9, 2.1),
    ] {
        let (max, mean) = congestion(k, w, adaptation, Ties::Drawn, 200);
        println!("k = {k}, w = {w}, {}: {max:.3} / {mean:.3}", adaptation.name());
        assert!((low..=high).contains(&max), "k = {k}, w = {w}: {max}");
    }
}

#[test]
#[ignore = "half a minute without optimization"]
fn congestion_of_the_published_size() {
    for (w, adaptation) in [
        (0, Adaptation::Default),
        (0, Adaptation::Random),
        (0, Adaptation::LeastFlows),
        (1, Adaptation::LeastFlows),
        (2, Adaptation::LeastFlows),
        (3, Adaptation::LeastFlows),
        (4, Adaptation::LeastFlows),
        (8, Adaptation::LeastFlows),
    ] {
        for ties in Ties::ALL {
            let (max, mean) = congestion(16, w, adaptation, ties, 20);
            let (adaptation, ties) = (adaptation.name(), ties.name());
            println!("k = 16, w = {w}, {adaptation}, ties {ties}: {max:.3} / {mean:.3}");
        }
    }
}

#[test]
fn entries_limit_what_leaves_the_default() {
    let tree = KaryNTree::new(4, 3, 2).expect("sound");
    for entries in [0, 1, 3] {
        let config = CircuitConfig {
            adaptation: Adaptation::LeastFlows,
            entries: Some(entries),
            ties: Ties::Drawn,
        };
        let mut placement = Placement::new(tree, config, 3);
        let mut path = Vec::new();
        let mut used_max = 0;
        for (src, dst) in permutation(64, &mut Rng::new(5)) {
            placement.place(src, dst, &mut path);
            if entries == 0 {
                let defaults = path[1..].iter().all(|l| {
                    let at = tree.from(*l);
                    tree.ways(at, dst, 0).default == *l
                });
                assert!(defaults, "no entry, no other way");
            }
            let used = |s| placement.circuits().entries_used(SwitchId(s));
            used_max = (0..tree.switches()).map(used).max().expect("switches").max(used_max);
        }
        assert_eq!(used_max, entries, "as many as there are, and no more");
    }
}

#[test]
fn random_ascent_uses_all_ports_alike() {
    let tree = KaryNTree::new(4, 2, 0).expect("sound");
    let config = CircuitConfig { adaptation: Adaptation::Random, entries: None, ties: Ties::Drawn };
    let mut placement = Placement::new(tree, config, 11);
    let mut path = Vec::new();
    for _ in 0..4_000 {
        placement.place(HostId(0), HostId(5), &mut path);
        assert_eq!(path.len(), 4);
    }
    for port in 0..4 {
        let (link, _) = tree.up(SwitchId(0), port).expect("a port");
        // The mean is 1,000; five standard deviations are 137.
        assert!(
            (863..=1_137).contains(&placement.flows(link)),
            "{port}: {}",
            placement.flows(link)
        );
    }
}
