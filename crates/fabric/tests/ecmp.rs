//! ECMP spreads evenly, with an independent hash in each switch.

use crate::common;
use crate::common::{leaf_spine, port, send_at, world};
use srd_fabric::{FatTree, LinkId, NS, Node, SwitchId, Topology, World};

/// Chi-square of counts against an even spread.
fn chi_square(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|c| (*c as f64 - mean).powi(2) / mean).sum()
}

fn packets(w: &World<u64, common::Probe>, links: &[LinkId]) -> Vec<u64> {
    links.iter().map(|l| w.link_stats(*l).packets).collect()
}

/// One packet from each of `n` source ports from host 0 to `dst`.
fn spray(topology: Topology, seed: u64, dst: u32, n: u16) -> World<u64, common::Probe> {
    let mut w = world(topology, seed);
    for port in 0..n {
        send_at(&mut w, u64::from(port) * 100 * NS, 0, dst, port, 500, u64::from(port));
    }
    common::finish(&mut w);
    assert_eq!(w.totals().delivered, u64::from(n));
    w
}

fn uplinks(t: &Topology, switch: u32) -> Vec<LinkId> {
    let node = Node::Switch(SwitchId(switch));
    t.core_cables().map(|c| c.up()).filter(|l| t.from(*l) == node).collect()
}

#[test]
fn entropies_spread_evenly_over_spines() {
    // 99.9 % points of chi-square: 37.7 for 15 degrees of freedom; 20 seeds may exceed it once.
    let mut high = 0;
    for seed in 0..20 {
        let w = spray(leaf_spine(2, 16, 1), seed, 1, 4_096);
        let links = uplinks(w.topology(), 0);
        assert_eq!(links.len(), 16);
        high += u32::from(chi_square(&packets(&w, &links)) > 37.7);
    }
    assert!(high <= 1, "{high} of 20 seeds spread unevenly");
}

#[test]
fn tiers_hash_independently() {
    // If all switches used one hash, an aggregation switch would see only the flows of one residue
    // and use one core link. 3 degrees of freedom: 99.9 % point 16.3.
    let w = spray(FatTree::k_ary(8, port(), port()).build(), 5, 127, 8_192);
    let t = w.topology();
    let aggs: Vec<u32> = (0..4).map(|i| 32 + i).collect();
    let spread: Vec<u64> = aggs.iter().flat_map(|a| packets(&w, &uplinks(t, *a))).collect();
    assert_eq!((spread.len(), spread.iter().sum::<u64>()), (16, 8_192));
    for agg in spread.chunks(4) {
        assert!(chi_square(agg) < 16.3, "{agg:?}");
    }
    assert!(chi_square(&spread) < 37.7, "{spread:?}");
}

#[test]
fn flows_of_many_hosts_spread_evenly_without_port_entropy() {
    let mut w = world(leaf_spine(2, 8, 64), 9);
    for src in 0..64 {
        for dst in 64..128 {
            send_at(&mut w, 0, src, dst, 1, 100, 0);
        }
    }
    common::finish(&mut w);
    let counts = packets(&w, &uplinks(w.topology(), 0));
    // 7 degrees of freedom: 99.9 % point 24.3.
    assert!(chi_square(&counts) < 24.3, "{counts:?}");
}

#[test]
fn parallel_cables_share() {
    let mut t = leaf_spine(2, 1, 1);
    let (leaf, spine) = (Node::Switch(SwitchId(0)), Node::Switch(SwitchId(2)));
    t.cable_add(leaf, spine, port(), port());
    let w = spray(t, 2, 1, 1_000);
    let links: Vec<_> = w.topology().links_between(leaf, spine).collect();
    let counts = packets(&w, &links);
    assert!(counts.len() == 2 && chi_square(&counts) < 10.8, "{counts:?}");
}

#[test]
fn the_seed_changes_paths() {
    let path = |seed| {
        let w = spray(leaf_spine(2, 16, 1), seed, 1, 64);
        packets(&w, &uplinks(w.topology(), 0))
    };
    assert_eq!(path(1), path(1));
    assert_ne!(path(1), path(2));
}
