//! Packets that were damaged on the way, past UDP's checksum: dropped and sent again, never acted
//! upon, where both sides check.

use crate::common::*;
use srd_core::config::Integrity;
use srd_core::counters::DropReason;
use srd_core::wire::{Features, Flags, PacketType};
use srd_core::*;

fn configs(a: Integrity, b: Integrity) -> Vec<EngineConfig> {
    [a, b]
        .into_iter()
        .enumerate()
        .map(|(i, it)| EngineConfig { integrity: it, ..config(i) })
        .collect()
}

/// Messages both ways and a long write, with damage. Whether all of it arrived as it was sent.
fn exchange(seed: u64, integrity: Integrity, damage: u32) -> (bool, Net) {
    let mut p = Pair::with(seed, configs(integrity, integrity));
    let now = p.net.now;
    let written = pattern(seed ^ 0xAA, 200_000);
    let (key, raddr) = p.net.hosts[1].region(vec![0; written.len()], Access::REMOTE_WRITE);
    let mut wr = send_wr(1000, p.ah[0], p.qp[1], written.len());
    (wr.op, wr.rkey, wr.raddr) = (Opcode::Write, key.0, raddr);
    p.net.hosts[0].post(now, p.qp[0], wr, written.clone()).unwrap();
    let sent: Vec<Vec<u8>> = (0..200).map(|i| pattern(i, 1 + i as usize * 5)).collect();
    for (i, data) in sent.iter().enumerate() {
        for from in 0..2 {
            p.net.hosts[1 - from].recv(p.qp[1 - from], i as u64, 1024);
            p.send(from, i as u64, data.clone()).unwrap();
        }
    }
    p.net.faults.damage = damage;
    p.net.run(Span::from_ms(150));
    let mut want = sent;
    want.sort();
    let whole = p.net.hosts.iter_mut().zip([201, 200]).all(|(h, pieces)| {
        h.received.sort();
        h.received == want && h.statuses() == vec![Status::Ok; pieces]
    });
    (whole && p.net.hosts[1].region_bytes(key) == written, p.net)
}

fn drops(net: &Net, why: DropReason) -> u64 {
    net.hosts.iter().map(|h| h.engine.counters().drops[why as usize]).sum()
}

#[test]
fn no_damage_reaches_an_application_where_both_sides_check() {
    let (mut readable, mut all) = (0, 0);
    for seed in 0..20 {
        let (whole, net) = exchange(seed, Integrity::On, 500);
        assert!(whole, "seed {seed}: {:?}", net.hosts[0].statuses());
        assert!(net.damaged.0 > 20, "seed {seed}: {:?}", net.damaged);
        readable += net.damaged.1;
        all += net.damaged.0;
    }
    // Only where the flag itself was damaged, and then the engine misses the checksum.
    assert!(readable * 100 < all, "{readable} of {all} damaged packets could be read");
}

/// The harness does damage: without checksums it arrives.
#[test]
fn without_checksums_damage_is_delivered() {
    assert!((0..20).any(|seed| !exchange(seed, Integrity::Off, 500).0));
}

/// What engine 0 says when it opens, and what it sends then, to a peer with `other`.
fn kinds_checked(own: Integrity, other: Integrity) -> Vec<(PacketType, bool, Option<Features>)> {
    let mut p = Pair::with(5, configs(own, other));
    p.net.hosts[1].recv(p.qp[1], 1, 64);
    p.send(0, 1, vec![7; 64]).unwrap();
    let mut seen = vec![];
    for _ in 0..20 {
        for i in 0..2 {
            for f in p.net.hosts[i].transmit(p.net.now) {
                let features = match f.body {
                    wire::Body::Open(o) | wire::Body::OpenAck(o) => Some(o.features),
                    _ => None,
                };
                if i == 0 {
                    seen.push((f.header.kind, f.header.flags.has(Flags::CHECKED), features));
                }
                p.net.hand_over(f);
            }
        }
        p.net.now += Span::from_us(50);
        for h in &mut p.net.hosts {
            h.engine.handle_timeout(p.net.now);
            h.collect();
        }
    }
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "{own:?} with {other:?}");
    seen
}

#[test]
fn data_is_checked_where_both_want_it_and_handshakes_always() {
    use Integrity::{Handshakes, Off, On};
    for (own, other, opens, data) in [
        (On, On, true, true),
        (On, Handshakes, true, false),
        (Handshakes, On, true, false),
        (Handshakes, Handshakes, true, false),
        (Off, Off, false, false),
    ] {
        let seen = kinds_checked(own, other);
        for (kind, checked, features) in &seen {
            let want = if features.is_some() { opens } else { data };
            assert_eq!(*checked, want, "{own:?} with {other:?}: {kind:?}");
            if let Some(f) = features {
                assert_eq!(f.has(Features::INTEGRITY), own == On);
            }
        }
        assert!(seen.iter().any(|s| s.0 == PacketType::Send));
    }
}

/// A flag that was flipped takes the checksum away: such a packet is not believed.
#[test]
fn a_packet_without_its_checksum_is_dropped() {
    let mut p = Pair::with(6, configs(Integrity::On, Integrity::On));
    p.net.hosts[1].recv(p.qp[1], 1, 64);
    p.net.hosts[1].recv(p.qp[1], 2, 64);
    p.send(0, 1, vec![7; 64]).unwrap();
    assert!(p.net.run_until(Span::from_ms(5), |n| n.hosts[0].sends_done() == 1));
    p.send(0, 2, vec![8; 64]).unwrap();
    let mut out = p.net.hosts[0].transmit(p.net.now);
    let before = drops(&p.net, DropReason::Unchecked);
    let mut data = out.remove(0);
    assert_eq!(data.header.kind, PacketType::Send);
    data.header.flags.0 &= !Flags::CHECKED;
    p.net.hand_over(data);
    assert_eq!(drops(&p.net, DropReason::Unchecked), before + 1);
    assert_eq!(p.net.hosts[1].received.len(), 1, "nothing was delivered");
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].sends_done() == 2));
    assert_eq!(p.net.hosts[1].received, [vec![7; 64], vec![8; 64]]);
}
