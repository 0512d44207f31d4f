//! Engines at one address share what may be in flight to it, and the pacer: each has its turn.

use crate::common::*;
use srd_core::*;

/// What all engines at one address share.
#[derive(Clone, Copy, Debug)]
enum Shared {
    /// Room in flight for one packet.
    Room,
    /// A rate of a packet per 10 us.
    Rate,
}

/// Host 0 works with engines at one address, all at once, with little to share.
/// Returns how many requests each had ended when the first of them had ended all.
fn ended_beside_the_first(
    seed: u64,
    shared: Shared,
    peers: usize,
    op: Opcode,
    requests: usize,
) -> Vec<usize> {
    let mut configs: Vec<_> = (0..=peers).map(|i| config(i.min(1))).collect();
    for (slot, c) in configs.iter_mut().skip(1).enumerate() {
        c.slot = slot as u8;
    }
    // The answers to reads leave at the other end, for one engine: there is nothing to share.
    configs[0].rate.policy = config::RatePolicy::Fixed;
    match shared {
        Shared::Room => configs[0].rate.inflight_fixed_bytes = 1,
        Shared::Rate => configs[0].rate.rate_fixed_bytes_per_sec = 100_000_000,
    }
    let mut net = Net::new(seed, configs);
    let (now, to) = (net.now, net.hosts[1].ip);
    let back = net.hosts[0].ip;
    let ah = net.hosts[0].ah(now, to);
    let mut own = vec![];
    for peer in 1..=peers {
        let there = net.hosts[peer].qp(now, QpType::Srd, false);
        net.hosts[peer].ah(now, back);
        let (key, raddr) = net.hosts[peer].region(vec![1; 1000], Access::REMOTE_READ);
        let qp = net.hosts[0].qp(now, QpType::Srd, false);
        for i in 0..requests as u64 {
            net.hosts[peer].recv(there, i, 1000);
            let mut wr = send_wr(i, ah, there, 1000);
            (wr.op, wr.rkey, wr.raddr) = (op, key.0, raddr);
            net.hosts[0].post(now, qp, wr, vec![0; 1000]).unwrap();
        }
        own.push(qp);
    }
    let of = |n: &Net, qp: Qpn| n.hosts[0].done.iter().filter(|c| c.qpn == qp).count();
    let first = |n: &Net| own.iter().any(|&qp| of(n, qp) == requests);
    assert!(net.run_until(Span::from_secs(1), first), "seed {seed}: {op:?} hangs");
    own.iter().map(|&qp| of(&net, qp)).collect()
}

/// Whoever was parked last was let go first, as soon as there was room: with room for one packet
/// that is who has just had it, and the others waited until it had nothing left to send. Two
/// engines that did so to each other, each with reads under way whose answers waited, never ended.
#[test]
fn room_for_one_packet_goes_round() {
    for (seed, op) in (0..5).flat_map(|seed| [(seed, Opcode::Send), (seed, Opcode::Read)]) {
        for peers in [2, 3, 4] {
            let ended = ended_beside_the_first(seed, Shared::Room, peers, op, 100);
            let least = ended.iter().min().unwrap();
            assert!(*least >= 80, "seed {seed}: {op:?}: {ended:?} of 100");
        }
    }
}

/// Each waited for the pacer with a timer of its own. All timers fired in the same instant, the
/// lowest number first: that one sent, and the others waited again until it had nothing left.
#[test]
fn a_pacer_goes_round() {
    for (seed, op) in (0..5).flat_map(|seed| [(seed, Opcode::Send), (seed, Opcode::Read)]) {
        for peers in [2, 3, 4] {
            let ended = ended_beside_the_first(seed, Shared::Rate, peers, op, 100);
            let least = ended.iter().min().unwrap();
            assert!(*least >= 80, "seed {seed}: {op:?}: {ended:?} of 100");
        }
    }
}
