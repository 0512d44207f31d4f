//! Copies of what is in flight while little is: they leave early, and are paid for by arrivals.

use crate::common::*;
use srd_core::*;

/// Two engines with little noise, so that an early copy (40 us) and a usual one (400 us) differ.
fn pair(seed: u64) -> Pair {
    let mut configs = vec![config(0), config(1)];
    for c in &mut configs {
        c.loss.hedge_min = Span::from_us(40);
        c.loss.tlp_min = Span::from_us(400);
        c.loss.rto_min = Span::from_ms(2);
    }
    Pair::with(seed, configs)
}

/// A message is lost with all that follows until a copy leaves, then arrives. Whether the copy left
/// early.
fn is_copied_early(p: &mut Pair) -> bool {
    p.net.faults.dead = true;
    let copies = |n: &Net| n.hosts[0].engine.counters().tlp_pkts;
    let (began, before) = (p.net.now, copies(&p.net));
    p.net.hosts[1].recv(p.qp[1], 1, 100);
    p.send(0, 1, vec![1; 100]).unwrap();
    assert!(p.net.run_until(Span::from_ms(1), |n| copies(n) > before), "a copy leaves");
    let early = p.net.now.since(began) < Span::from_us(400);
    p.net.faults.dead = false;
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].done.len() == 1));
    p.net.hosts[0].done.clear();
    early
}

/// A copy that left late, because there was nothing left to pay for an early one, took what had
/// been saved for the next: whoever lost one message of seven had no early copy any more.
#[test]
fn only_early_copies_are_paid_for() {
    for seed in 0..5 {
        let mut p = pair(seed);
        assert!(p.batch(1, 100, Span::from_ms(50)) == [Status::Ok], "seed {seed}");
        let free = (0..20).position(|_| !is_copied_early(&mut p));
        let free = free.unwrap_or_else(|| panic!("seed {seed}: 20 lost messages pay for copies"));
        assert!(free >= 8, "seed {seed}: {free} copies are saved up at first");
        // Seven arrivals each: three times as many pay for a copy.
        let mut early = 0;
        for _ in 0..30 {
            for _ in 0..6 {
                assert!(p.batch(1, 100, Span::from_ms(50)) == [Status::Ok], "seed {seed}");
            }
            early += u32::from(is_copied_early(&mut p));
        }
        assert!((10..=15).contains(&early), "seed {seed}: {early} of 30 were copied early");
    }
}
