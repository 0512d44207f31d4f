use super::*;
use crate::assign::optimal;
use crate::fluid;
use srd_fabric::routing::{Adaptation, CircuitConfig, Ties};
use srd_fabric::{KaryNTree, Rng};

const OBLIVIOUS: CircuitConfig =
    CircuitConfig { adaptation: Adaptation::Default, entries: None, ties: Ties::Drawn };
const CIRCUITS: CircuitConfig =
    CircuitConfig { adaptation: Adaptation::LeastFlows, entries: None, ties: Ties::Drawn };

fn load(k: u32, w: u32, config: CircuitConfig) -> StaticLoad {
    let tree = KaryNTree::new(k, 3, w).expect("a tree");
    StaticLoad::new(Placement::new(tree, config, 0))
}

/// Places `n` random permutations without fixed points, in a random order.
fn permutations(load: &mut StaticLoad, hosts: u32, n: u32, seed: u64) {
    let mut rng = Rng::stream(seed, 1, 0);
    let mut pairs = Vec::new();
    for _ in 0..n {
        let mut to: Vec<u32> = (0..hosts).collect();
        while to.iter().enumerate().any(|(i, t)| i as u32 == *t) {
            rng.shuffle(&mut to);
        }
        pairs.extend(to.iter().enumerate().map(|(a, b)| (HostId(a as u32), HostId(*b))));
    }
    rng.shuffle(&mut pairs);
    load.clear(seed);
    pairs.into_iter().for_each(|(a, b)| load.place(a, b));
}

/// Means over `runs` of the largest and the mean congestion of one permutation.
fn means(k: u32, w: u32, config: CircuitConfig, runs: u64) -> (f64, f64) {
    let mut load = load(k, w, config);
    let (mut max, mut mean) = (0.0, 0.0);
    for seed in 0..runs {
        permutations(&mut load, k.pow(3), 1, seed);
        let met = load.congestion();
        max += f64::from(met.max) / runs as f64;
        mean += met.mean / runs as f64;
    }
    (max, mean)
}

#[test]
fn one_permutation_meets_what_was_derived_from_the_slides() {
    // k, w, routing; largest and mean congestion of an independent model, and the tolerance for
    // this few runs (three standard errors of the largest).
    for (k, w, config, want) in [
        (4, 0, OBLIVIOUS, (3.06, 1.79)),
        (4, 2, CIRCUITS, (1.99, 1.19)),
        (8, 0, OBLIVIOUS, (4.56, 2.15)),
        (8, 0, CIRCUITS, (4.56, 2.15)),
        (8, 2, CIRCUITS, (2.56, 1.64)),
    ] {
        let got = means(k, w, config, 150);
        assert!((got.0 - want.0).abs() < 0.17, "k = {k}, w = {w}: {got:?}, want {want:?}");
        assert!((got.1 - want.1).abs() < 0.03, "k = {k}, w = {w}: {got:?}, want {want:?}");
    }
}

#[test]
fn the_largest_congestion_is_how_long_the_fluid_takes() {
    for (seed, config) in (0..40).flat_map(|s| [(s, OBLIVIOUS), (s, CIRCUITS)]) {
        let w = if config == CIRCUITS { 2 } else { 0 };
        let mut load = load(4, w, config);
        permutations(&mut load, 64, 1 + seed as u32 % 4, seed);
        let paths = load.paths(|_| 1);
        let assigned = optimal(&paths);
        assert_eq!(assigned.largest, u64::from(load.congestion().max), "seed {seed}");
        let end = fluid::run(&paths, &assigned.rates).ends.into_iter().fold(0.0, f64::max);
        assert!((end - assigned.largest as f64).abs() < 1e-9 * end, "seed {seed}: {end}");
    }
}

#[test]
fn a_cleared_load_draws_the_same_again() {
    let mut a = load(4, 2, CIRCUITS);
    permutations(&mut a, 64, 2, 5);
    let first = a.paths(|_| 1);
    permutations(&mut a, 64, 2, 6);
    assert_ne!(a.paths(|_| 1), first);
    permutations(&mut a, 64, 2, 5);
    assert_eq!(a.paths(|_| 1), first);
}
