//! Shared buffers compared with arithmetic: the share of each port, and losses.

use crate::common;
use crate::common::{Net, Probe, finish, port, send_at};
use srd_fabric::{
    DropReason, FatTree, Fault, HostId, LinkId, MS, Node, Outbound, Port, Ps, Rng, SharedBuffer,
    SwitchId, Target, Topology, US, World, WorldConfig,
};

/// Bytes of every packet.
const PACKET: u32 = 1_000;
/// A byte takes 8 µs on a receiver's link: no queue drains while a test fills it.
const SLOW: Port = Port::new(1_000_000, US);
const FAST: Port = Port::new(1_000_000_000_000, US);

/// Hosts on one switch with a shared buffer; the first `receivers` of them have slow links.
fn star(hosts: u32, receivers: u32, buffer: SharedBuffer) -> Net {
    let mut t = Topology::new(hosts);
    let switch = t.switch_add(0);
    for h in 0..hosts {
        let down = if h < receivers { SLOW } else { FAST };
        t.cable_add(Node::Host(HostId(h)), Node::Switch(switch), FAST, down);
    }
    t.buffer_share(switch, buffer);
    common::world(t, 1)
}

/// The port towards a host.
fn towards(host: u32) -> LinkId {
    LinkId(2 * host + 1)
}

/// Number of packets queued for a receiver, before any has left.
fn waiting(w: &Net, host: u32) -> u64 {
    w.link_stats(towards(host)).packets
}

#[test]
fn one_full_queue_holds_its_share_of_the_buffer() {
    // Admitted while queue + 1000 <= alpha * (100,000 - queue).
    for (alpha, packets) in [(0.125, 11), (0.5, 33), (1.0, 50), (2.0, 67), (8.0, 89)] {
        let mut w = star(2, 1, SharedBuffer { bytes: 100_000, alpha });
        for i in 0..200 {
            send_at(&mut w, 0, 1, 0, 1, PACKET, i);
        }
        w.run_until(5 * US);
        assert_eq!(waiting(&w, 0), packets, "alpha {alpha}");
        let stats = w.link_stats(towards(0));
        assert_eq!(stats.drops.of(DropReason::BufferFull), 200 - packets);
        assert_eq!(stats.queue_bytes_max, packets * u64::from(PACKET));
        // Exactly the accepted packets arrive.
        finish(&mut w);
        assert_eq!(w.totals().delivered, packets);
    }
}

#[test]
fn full_queues_get_equal_parts_and_leave_some_free() {
    for (receivers, each) in [(2, 33), (3, 25), (4, 20), (9, 10)] {
        let mut w = star(receivers + 1, receivers, SharedBuffer { bytes: 100_000, alpha: 1.0 });
        for i in 0..100 {
            for to in 0..receivers {
                send_at(&mut w, 0, receivers, to, 1, PACKET, i);
            }
        }
        w.run_until(5 * US);
        let all: Vec<u64> = (0..receivers).map(|to| waiting(&w, to)).collect();
        // alpha / (1 + n * alpha) of 100 packets, plus at most the one accepted last.
        assert!(all.iter().all(|n| (each..=each + 1).contains(n)), "{all:?}");
        assert!(
            all.iter().sum::<u64>() <= u64::from(receivers) * 100 / u64::from(receivers + 1) + 1
        );
        finish(&mut w);
    }
}

#[test]
fn a_late_queue_takes_half_of_what_is_free_and_the_first_waits_until_it_is_below() {
    let mut w = star(3, 2, SharedBuffer { bytes: 100_000, alpha: 1.0 });
    for i in 0..100 {
        send_at(&mut w, 0, 2, 0, 1, PACKET, i);
        send_at(&mut w, 10 * US, 2, 1, 1, PACKET, i);
    }
    send_at(&mut w, 20 * US, 2, 0, 1, PACKET, 100);
    w.run_until(30 * US);
    // 50 packets fill half; the other port finds 50,000 bytes free and may hold as much as it
    // leaves free.
    assert_eq!((waiting(&w, 0), waiting(&w, 1)), (50, 25));
    // Both drain at 125 bytes per ms. There is room once the first holds 49,000 bytes less.
    send_at(&mut w, 400 * MS, 2, 0, 1, PACKET, 101);
    w.run_until(401 * MS);
    assert_eq!(waiting(&w, 0), 51);
    finish(&mut w);
}

#[test]
fn a_limit_of_the_port_holds_besides_and_other_switches_have_nothing_to_do_with_it() {
    let mut w = star(2, 1, SharedBuffer { bytes: 100_000, alpha: 1.0 });
    let fault = Fault::Buffer { at: Target::Link(towards(0)), bytes: Some(20_000) };
    w.fault_now(fault).unwrap();
    (0..200).for_each(|i| send_at(&mut w, 0, 1, 0, 1, PACKET, i));
    w.run_until(5 * US);
    assert_eq!(waiting(&w, 0), 20);
    // `HealAll` restores the buffer as built, which is shared.
    w.fault_now(Fault::HealAll).unwrap();
    (0..200).for_each(|i| send_at(&mut w, 6 * US, 1, 0, 1, PACKET, i));
    w.run_until(10 * US);
    assert_eq!(waiting(&w, 0), 50);
    finish(&mut w);

    // Only the second of two consecutive switches shares; the first one's queue is unlimited.
    let mut t = srd_fabric::dumbbell(1, 1, FAST, FAST, SLOW);
    t.buffer_share(SwitchId(1), SharedBuffer { bytes: 2_000, alpha: 1.0 });
    let mut w = common::world(t, 1);
    (0..50).for_each(|i| send_at(&mut w, 0, 0, 1, 1, PACKET, i));
    finish(&mut w);
    assert_eq!(w.totals().delivered, 50);
}

#[test]
fn a_buffer_that_cannot_be_shared_is_refused() {
    let with = |switch, buffer| {
        let mut t = srd_fabric::dumbbell(1, 1, port(), port(), port());
        t.buffer_share(SwitchId(switch), buffer);
        t.validate().map_err(|e| e.to_string())
    };
    assert_eq!(with(1, SharedBuffer { bytes: 1, alpha: 0.1 }), Ok(()));
    for (switch, bytes, alpha) in
        [(2, 1, 1.0), (0, 0, 1.0), (0, 1, 0.0), (0, 1, -1.0), (0, 1, f64::NAN)]
    {
        let e = with(switch, SharedBuffer { bytes, alpha }).unwrap_err();
        assert!(e.contains(&format!("of switch {switch}: use a switch that exists")), "{e}");
    }
}

/// Random traffic in a fat tree whose switches all share: no pool ever exceeds its size.
#[test]
fn no_pool_overflows_and_no_packet_is_unaccounted_for() {
    let buffer = SharedBuffer { bytes: 60_000, alpha: 2.0 };
    for seed in 0..4 {
        let mut t = FatTree::k_ary(4, port(), port()).build();
        (0..t.switches()).for_each(|s| t.buffer_share(SwitchId(s), buffer));
        let mut w =
            World::new(t, WorldConfig::new(seed), |_| Probe::default()).expect("a sound topology");
        let mut rng = Rng::new(seed);
        for id in 0..4_000 {
            // A quarter of the traffic goes to one host.
            let dst = if rng.chance(0.25) { 0 } else { rng.below(16) as u32 };
            let bytes = rng.range(64, 4_150) as u32;
            let at: Ps = rng.below(100) * US;
            send_at(&mut w, at, rng.below(16) as u32, dst, rng.below(99) as u16, bytes, id);
        }
        let mut most = 0;
        for at in 0..200 {
            w.run_until(at * US);
            let mut held = vec![0; w.topology().switches() as usize];
            let from: Vec<Node> =
                (0..w.topology().links()).map(|l| w.topology().from(LinkId(l))).collect();
            w.links_sample(at * US, |l, s| {
                if let Node::Switch(switch) = from[l.0 as usize] {
                    held[switch.0 as usize] += s.queue_bytes;
                }
            });
            most = held.into_iter().fold(most, u64::max);
            assert!(w.totals().conserved());
        }
        // Sizes of single queues are rounded up.
        assert!((30_000..=60_000 + 4).contains(&most), "{most}");
        finish(&mut w);
        let t = w.totals();
        let full = t.drops.of(DropReason::BufferFull);
        assert!(full > 100 && full == t.drops.total() && t.delivered > 2_000, "{t:?}");
    }
}

/// A sender that is never refused, because the hosts' cards have unlimited queues.
#[test]
fn cards_of_hosts_are_not_part_of_it() {
    let mut w = star(2, 1, SharedBuffer { bytes: 1_000, alpha: 1.0 });
    let out = Outbound { dst: HostId(0), sport: 1, dport: 1, bytes: PACKET, ect: false };
    w.with_host(HostId(1), |_, io| {
        for _ in 0..10 {
            assert!(io.send(out, 1).is_ok());
        }
    });
    finish(&mut w);
    assert_eq!(w.totals().drops.of(DropReason::BufferFull), 9);
}
