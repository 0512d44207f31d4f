use super::*;
use crate::fluid;
use proptest::prelude::*;
use srd_fabric::Rng;

/// A random network: flows of random sizes over random paths, of equal or very unequal load.
fn random(seed: u64) -> Paths {
    let mut rng = Rng::stream(seed, 0x7e57, 0);
    let (links, flows) = (rng.range(1, 40), rng.range(1, 60));
    let (hops_max, weight_max) =
        (rng.range(1, 8.min(links)), [1, 64, 1 << 20][rng.below(3) as usize]);
    let mut paths = Paths::new();
    for _ in 0..flows {
        let mut all: Vec<u32> = (0..links as u32).collect();
        rng.shuffle(&mut all);
        paths.push(rng.range(1, weight_max), &all[..rng.range(1, hops_max) as usize]);
    }
    paths
}

/// Whether the shares of one link sum up to at most 1, in integers; `None` if their common
/// denominator is too large.
fn feasible(rates: &[Rate]) -> Option<bool> {
    let gcd = |mut a: u128, mut b: u128| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut common = 1u128;
    for rate in rates {
        let most = u128::from(rate.most);
        common = common.checked_mul(most / gcd(common, most))?;
    }
    let part = |r: &Rate| (common / u128::from(r.most)).checked_mul(u128::from(r.weight));
    let sum = rates.iter().try_fold(0u128, |sum, r| sum.checked_add(part(r)?))?;
    Some(sum <= common)
}

#[test]
fn rates_fit_every_link_and_the_phase_takes_exactly_its_largest_weight() {
    let mut exact = 0;
    for seed in 0..10_000 {
        let paths = random(seed);
        let assigned = optimal(&paths);
        for link in 0..paths.links_end() as u32 {
            let on = (0..paths.len()).filter(|f| paths.links(*f).contains(&link));
            let rates: Vec<Rate> = on.map(|f| assigned.rates[f]).collect();
            if let Some(fits) = feasible(&rates) {
                assert!(fits, "seed {seed}, link {link}");
                exact += 1;
            }
        }
        let got = fluid::run(&paths, &assigned.rates);
        assert!(got.load_max <= 1.0 + 1e-12, "seed {seed}: {}", got.load_max);
        let last = got.ends.iter().copied().fold(0.0, f64::max);
        let w = assigned.largest as f64;
        assert!((last - w).abs() <= w * 1e-9, "seed {seed}: ends at {last}, W = {w}");
        for (f, end) in got.ends.iter().enumerate() {
            let most = assigned.rates[f].most() as f64;
            assert!(
                (end - most).abs() <= most * 1e-9,
                "seed {seed}, flow {f}: {end}, W_f = {most}"
            );
        }
    }
    assert!(exact > 50_000, "{exact} links compared in whole numbers");
}

#[test]
fn no_assignment_is_shorter_and_faster_flows_overload_the_busiest_link() {
    for seed in 0..1_000 {
        let paths = random(seed);
        let assigned = optimal(&paths);
        // Every flow 10 % faster: the busiest link is overloaded, and no flow ends earlier.
        let faster = |r: &Rate| Rate::new(r.weight * 11, (r.most * 10).max(r.weight * 11));
        let rates: Vec<Rate> = assigned.rates.iter().map(|r| faster(r).expect("a share")).collect();
        let last = fluid::run(&paths, &rates).ends.into_iter().fold(0.0, f64::max);
        let w = assigned.largest as f64;
        assert!(last >= w * (1.0 - 1e-9), "seed {seed}: {last} < {w}");
    }
}

#[test]
fn a_rate_is_a_share_or_none() {
    assert_eq!(Rate::new(0, 5), None);
    assert_eq!(Rate::new(3, 2), None);
    assert_eq!(Rate::new(2, 2).map(Rate::share), Some(1.0));
    let third = Rate::new(1, 3).expect("a share");
    assert_eq!((third.due(100, 1), third.due(100, 2)), (300, 600));
    assert_eq!(Rate::new(3, 7).expect("a share").due(100, 1), 234, "rounded up, never early");
    assert_eq!(Rate::new(1, u64::MAX).expect("a share").due(Ps::MAX, u64::MAX >> 1), Ps::MAX);
}

proptest! {
    #[test]
    fn no_packet_is_due_before_its_share_or_a_picosecond_after(
        (weight, more, packet, n) in (1u64..1000, 0u64..100_000, 1u64..1_000_000, 0u64..10_000)
    ) {
        let rate = Rate::new(weight, weight + more).expect("a share");
        let due = rate.due(packet, n);
        // due · w_f >= n · packet · W_f, and no smaller time satisfies that.
        let sent = u128::from(n * packet) * u128::from(weight + more);
        let weight = u128::from(weight);
        prop_assert!(u128::from(due) * weight >= sent);
        prop_assert!(due == 0 || u128::from(due - 1) * weight < sent);
    }
}
