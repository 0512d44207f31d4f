//! The fabric compared with arithmetic: times, orders and counts that can be computed by hand.

use crate::common;
use crate::common::{PER_BYTE, Probe, RATE, finish, ids, leaf_spine, port, send_at, world};
use srd_fabric::{
    DropReason, Ecn, FatTree, HostId, LinkId, MS, NS, Node, Outbound, Port, Ps, SwitchId, Topology,
    US, World, WorldConfig, back_to_back, dumbbell,
};

#[test]
fn a_packet_takes_serialisation_and_propagation_of_every_link() {
    let mut w = world(leaf_spine(2, 4, 2), 1);
    send_at(&mut w, 5 * US, 0, 3, 9, 4_150, 1);
    send_at(&mut w, 5 * US, 2, 3, 9, 64, 2);
    finish(&mut w);
    let got = &w.hosts()[3].got;
    // Same leaf: two links. Across: four.
    assert_eq!((got[0].id, got[0].at), (2, 5 * US + 2 * (US + 64 * PER_BYTE)));
    assert_eq!((got[1].id, got[1].at), (1, 5 * US + 4 * (US + 4_150 * PER_BYTE)));
}

#[test]
fn a_packet_crosses_six_links_of_a_fat_tree_between_pods() {
    let tree = FatTree::k_ary(4, port(), port().buffer(1 << 20));
    let mut w = world(tree.build(), 1);
    assert_eq!((w.topology().hosts(), w.topology().switches()), (16, 20));
    send_at(&mut w, 0, 0, 15, 1, 1_000, 1);
    send_at(&mut w, 0, 2, 5, 1, 1_000, 2);
    send_at(&mut w, 0, 8, 10, 1, 1_000, 3);
    finish(&mut w);
    let one = US + 1_000 * PER_BYTE;
    assert_eq!(w.hosts()[15].got[0].at, 6 * one);
    assert_eq!(w.hosts()[5].got[0].at, 6 * one);
    assert_eq!(w.hosts()[10].got[0].at, 4 * one);
}

#[test]
fn tiers_may_differ_in_rate_and_delay_and_be_oversubscribed() {
    let fast = Port::new(4 * RATE, 2 * US);
    let slow = Port::new(RATE / 4, 5 * US);
    let tree = FatTree {
        pods: 3,
        leaves_per_pod: 2,
        aggs_per_pod: 1,
        hosts_per_leaf: 3,
        cores_per_agg: 2,
        nic: port(),
        edge: port(),
        agg: fast,
        core: slow,
    };
    let mut w = world(tree.build(), 1);
    assert_eq!((w.topology().hosts(), w.topology().switches()), (18, 6 + 3 + 2));
    send_at(&mut w, 0, 0, 17, 1, 1_000, 1);
    finish(&mut w);
    let edges = 2 * (US + 1_000 * 80);
    let aggs = 2 * (2 * US + 1_000 * 20);
    let cores = 2 * (5 * US + 1_000 * 320);
    assert_eq!(w.hosts()[17].got[0].at, edges + aggs + cores);
}

#[test]
fn the_card_sends_one_packet_after_the_other() {
    let mut w = world(back_to_back(port()), 1);
    for i in 0..100 {
        send_at(&mut w, 0, 0, 1, i as u16, 1_500, i);
    }
    w.run_until(0);
    w.with_host(HostId(0), |_, io| {
        assert_eq!(io.nic_backlog_bytes(), 150_000);
        assert_eq!(io.nic_free_at(), 150_000 * PER_BYTE);
    });
    finish(&mut w);
    for (i, g) in w.hosts()[1].got.iter().enumerate() {
        assert_eq!((g.id, g.at), (i as u64, (i as u64 + 1) * 1_500 * PER_BYTE + US));
    }
    assert_eq!(w.link_stats(LinkId(0)).queue_bytes_max, 150_000);
    assert_eq!(w.link_stats(LinkId(0)).bytes, 150_000);
    assert_eq!(w.link_stats(LinkId(1)).bytes, 0);
}

#[test]
fn rates_without_a_whole_number_of_ps_per_byte_stay_exact_over_many_packets() {
    // 56 Gb/s = 142.857 ps per byte; each packet is rounded down by less than 1 ps.
    let rate = 56_000_000_000;
    let mut w = world(back_to_back(Port::new(rate, 0)), 1);
    send_at(&mut w, 0, 0, 1, 0, 1_501, 0);
    w.run_until(0);
    w.with_host(HostId(0), |_, io| assert_eq!(io.nic_backlog_bytes(), 1_501));
    for i in 1..1_000 {
        send_at(&mut w, 0, 0, 1, 0, 1_501, i);
    }
    finish(&mut w);
    let exact = 1_501_000u128 * 8_000_000_000_000 / u128::from(rate);
    let last = w.hosts()[1].got[999].at;
    assert!(exact as u64 - last <= 1_000, "{last} {exact}");
    assert_eq!(Port::new(rate, 0).serialise_ps(1_501_000), exact as u64);
}

#[test]
fn a_full_card_refuses_and_counts_nothing() {
    let mut w = world(back_to_back(port().buffer(3_000)), 1);
    for i in 0..5 {
        send_at(&mut w, 0, 0, 1, 0, 1_000, i);
    }
    // One packet time later there is room for exactly one more.
    send_at(&mut w, 1_000 * PER_BYTE, 0, 1, 0, 1_000, 5);
    send_at(&mut w, 1_000 * PER_BYTE, 0, 1, 0, 1_000, 6);
    finish(&mut w);
    assert_eq!(w.hosts()[0].refused, [3, 4, 6]);
    assert_eq!(ids(&w, 1), [0, 1, 2, 5]);
    assert_eq!((w.totals().sent, w.totals().drops.total()), (4, 0));
}

/// Many hosts on the left of a dumbbell whose bottleneck has the given buffer.
fn incast(n: u32, buffer: u64, ecn: Ecn, rounds: u64, seed: u64) -> (World<u64, Probe>, LinkId) {
    let bottleneck = Port::new(RATE, US).buffer(buffer).ecn(ecn);
    let mut w = world(dumbbell(n, 1, port(), port(), bottleneck), seed);
    for round in 0..rounds {
        for h in 0..n {
            send_at(&mut w, round * 1_000 * PER_BYTE, h, n, 1, 1_000, round << 32 | u64::from(h));
        }
    }
    let (a, b) = (Node::Switch(SwitchId(0)), Node::Switch(SwitchId(1)));
    let link = w.topology().links_between(a, b).next().expect("a bottleneck");
    finish(&mut w);
    (w, link)
}

#[test]
fn a_burst_overflows_by_what_does_not_fit() {
    let (w, link) = incast(10, 4_000, Ecn::OFF, 1, 1);
    let s = w.link_stats(link);
    assert_eq!((s.packets, s.drops.of(DropReason::BufferFull)), (4, 6));
    assert_eq!(s.queue_bytes_max, 4_000);
    assert_eq!(w.totals().delivered, 4);
}

#[test]
fn overload_loses_all_but_the_rate_and_the_buffer() {
    // Three senders at line rate for 100 packet times into one link that holds 16 packets. The link
    // accepts three packets in the first packet time, and later as many as have left since then.
    let (w, link) = incast(3, 16_000, Ecn::OFF, 100, 1);
    let s = w.link_stats(link);
    assert_eq!(s.packets, 16 + 99);
    assert_eq!(s.drops.of(DropReason::BufferFull), 300 - 115);
}

#[test]
fn no_sender_in_step_is_favoured() {
    // Two senders whose packets always arrive in the same picosecond at a full queue.
    let (w, _) = incast(2, 4_000, Ecn::OFF, 4_000, 1);
    let of_first = w.hosts()[2].got.iter().filter(|g| g.src == HostId(0)).count() as f64;
    let share = of_first / w.hosts()[2].got.len() as f64;
    assert!((0.45..0.55).contains(&share), "{share}");
    let (other, _) = incast(2, 4_000, Ecn::OFF, 4_000, 2);
    assert_ne!(ids(&w, 2), ids(&other, 2), "the seed decides the order");
}

#[test]
fn a_step_marks_what_finds_the_threshold_ahead() {
    let (w, link) = incast(10, 1 << 20, Ecn::step(3_000), 1, 1);
    assert_eq!(w.link_stats(link).marked, 7);
    assert_eq!(w.hosts()[10].got.iter().filter(|g| g.ce).count(), 7);
    assert_eq!(w.totals().marked, 7);
}

#[test]
fn a_ramp_marks_in_proportion() {
    // Every packet except the first few finds the queue between 19,000 and 20,000 bytes, in the
    // middle of the ramp. Two senders keep it there, because the buffer ends at 20,000.
    let ecn = Ecn { min_bytes: 10_000, max_bytes: 29_000, prob_max: 0.4 };
    let (w, link) = incast(2, 20_000, ecn, 20_000, 1);
    let s = w.link_stats(link);
    let share = s.marked as f64 / s.packets as f64;
    // The backlog is 19,000 whenever a packet fits: 0.4 × 9 / 19.
    let want = 0.4 * 9.0 / 19.0;
    assert!((share - want).abs() < 0.015, "{share} {want}");
}

#[test]
fn packets_not_capable_of_ecn_are_not_marked() {
    let port = port().ecn(Ecn::step(0));
    let mut w = world(back_to_back(port), 1);
    w.with_host(HostId(0), |_, io| {
        for ect in [true, false] {
            let out = Outbound { dst: HostId(1), sport: 1, dport: 1, bytes: 100, ect };
            io.send(out, u64::from(ect)).expect("room");
        }
    });
    finish(&mut w);
    let marks: Vec<_> = w.hosts()[1].got.iter().map(|g| (g.id, g.ce)).collect();
    assert_eq!(marks, [(1, true), (0, false)]);
}

#[test]
fn one_flow_stays_in_order_and_on_one_path() {
    let mut w = world(leaf_spine(2, 8, 4), 3);
    for i in 0..2_000 {
        send_at(&mut w, i * 37 * NS, 0, 7, 77, 200 + (i as u32 * 7) % 3_000, i);
    }
    finish(&mut w);
    assert_eq!(ids(&w, 7), (0..2_000).collect::<Vec<_>>());
    let used = w.topology().core_cables().filter(|c| w.link_stats(c.up()).packets > 0).count();
    assert_eq!(used, 1);
}

#[test]
fn timers_fire_when_set_and_only_then() {
    let mut w = world(back_to_back(port()), 1);
    let set = |w: &mut common::Net, at: Ps| w.with_host(HostId(0), |_, io| io.timer_set(at));
    set(&mut w, 10 * US);
    set(&mut w, 30 * US);
    w.run_until(20 * US);
    assert!(w.hosts()[0].timers.is_empty(), "moved later");
    set(&mut w, 25 * US);
    w.run_until(40 * US);
    assert_eq!(w.hosts()[0].timers, [25 * US], "moved earlier, fires once");
    w.with_host(HostId(0), |_, io| {
        io.timer_set(60 * US);
        io.timer_set_earlier(70 * US);
        assert_eq!(io.timer(), 60 * US);
        io.timer_set_earlier(50 * US);
        io.timer_clear();
        io.timer_set_earlier(55 * US);
    });
    w.run_until(100 * US);
    assert_eq!(w.hosts()[0].timers, [25 * US, 55 * US]);
    set(&mut w, 3);
    w.run_until(101 * US);
    assert_eq!(w.hosts()[0].timers[2], 100 * US, "a time that has passed means now");
    w.host_mut(HostId(0)).again_ps = Some(7 * US);
    set(&mut w, 200 * US);
    w.run_until(MS);
    let want: Vec<Ps> = (0..).map(|i| 200 * US + i * 7 * US).take_while(|t| *t <= MS).collect();
    assert_eq!(w.hosts()[0].timers[3..], want);
}

#[test]
fn moving_a_timer_about_leaves_no_trail_of_events() {
    let mut w = world(back_to_back(port()), 1);
    w.with_host(HostId(0), |_, io| {
        for i in 0..1_000 {
            io.timer_set((100 - i % 100) * US);
            io.timer_set((200 + i % 7) * US);
        }
    });
    w.run_to_end();
    assert_eq!(w.hosts()[0].timers, [205 * US]);
    // One event for each time that was earlier than all before, and those that were requeued.
    assert!(w.totals().events <= 102, "{}", w.totals().events);
}

#[test]
fn calls_come_at_their_time_in_the_order_made() {
    let mut w = world(back_to_back(port()), 1);
    for (at, token) in [(5, 100), (3, 101), (5, 102), (0, 103)] {
        w.call_at(at * US, HostId(1), token);
    }
    assert_eq!(w.next_event_at(), Some(0));
    assert!(w.step());
    assert_eq!(w.events_run(Ps::MAX, 100), 3);
    assert!(!w.step());
    let want = [(0, 103), (3 * US, 101), (5 * US, 100), (5 * US, 102)];
    assert_eq!(w.hosts()[1].calls, want);
}

#[test]
fn a_watched_link_shows_its_load_over_time() {
    let mut w = world(back_to_back(port().buffer(20_000)), 1);
    w.monitor(vec![LinkId(0)], 10 * US);
    // 100 packets of 1,250 bytes = 0.1 µs each, one every 0.2 µs, in the first 20 µs; none later.
    for i in 0..100 {
        send_at(&mut w, i * 200 * NS, 0, 1, 0, 1_250, i);
    }
    finish(&mut w);
    let series = w.monitored().series(LinkId(0)).expect("watched");
    assert_eq!(series.iter().map(|b| b.bytes).collect::<Vec<_>>(), [62_500, 62_500]);
    assert!(series.iter().all(|b| b.queue_bytes_max == 1_250));
    assert!(w.monitored().series(LinkId(1)).is_none());
}

/// Two senders at line rate, 100 packets of 1,250 bytes = 0.1 µs each, into one link.
fn two_into_one(mut look: impl FnMut(&mut World<u64, Probe>, LinkId)) -> World<u64, Probe> {
    let mut w = world(dumbbell(2, 1, port(), port(), port()), 1);
    for h in 0..2 {
        for i in 0..100 {
            send_at(&mut w, 0, h, 2, 1, 1_250, i);
        }
    }
    let (a, b) = (Node::Switch(SwitchId(0)), Node::Switch(SwitchId(1)));
    let link = w.topology().links_between(a, b).next().expect("a bottleneck");
    look(&mut w, link);
    finish(&mut w);
    w
}

#[test]
fn a_sample_shows_the_queue_of_an_overload_and_changes_nothing() {
    let mut seen = Vec::new();
    let sampled = two_into_one(|w, link| {
        // The first pair of packets reaches the queue after 1.1 µs, then a pair every 0.1 µs.
        for at in [1_100 * NS, 6_100 * NS, 21_100 * NS, 22_100 * NS] {
            w.events_run(at, u64::MAX);
            w.links_sample(at, |l, s| {
                if l == link {
                    seen.push((s.packets, s.sent_bytes, s.queue_bytes, s.queue_bytes_max));
                }
            });
        }
    });
    // 5 µs later 51 pairs have arrived and 50 packets have left. The last packet leaves 20 µs after
    // the first arrival; in the second before the last sample the link was idle.
    let want = [
        (2, 0, 2_500, 2_500),
        (102, 62_500, 65_000, 65_000),
        (200, 250_000, 0, 126_250),
        (200, 250_000, 0, 0),
    ];
    assert_eq!(seen, want);
    let plain = two_into_one(|_, _| ());
    assert_eq!(sampled.run_hash(), plain.run_hash());
    for link in (0..sampled.topology().links()).map(LinkId) {
        assert_eq!(sampled.link_stats(link), plain.link_stats(link));
    }
}

#[test]
fn unsound_topologies_are_refused_with_the_reason() {
    let refuse = |t: Topology, why: &str| {
        let e = World::<u64, Probe>::new(t, WorldConfig::new(1), |_| Probe::default()).err();
        let text = e.expect("refused").to_string();
        assert!(text.contains(why), "{text}");
    };
    let (h0, h1) = (Node::Host(HostId(0)), Node::Host(HostId(1)));
    refuse(Topology::new(0), "no hosts");
    refuse(Topology::new(1), "exactly one");
    let mut t = Topology::new(2);
    t.cable_add(h0, h1, port(), Port::new(10, 0));
    refuse(t, "below 1 Mb/s");
    let mut t = Topology::new(2);
    t.cable_add(h0, Node::Switch(SwitchId(0)), port(), port());
    refuse(t, "does not exist");
    let mut t = Topology::new(2);
    let ecn = Ecn { min_bytes: 9, max_bytes: 8, prob_max: 0.1 };
    t.cable_add(h0, h1, port().ecn(ecn), port());
    refuse(t, "min <= max");
    let mut t = Topology::new(1);
    let s = Node::Switch(t.switch_add(0));
    t.cable_add(h0, s, port(), port());
    t.cable_add(s, s, port(), port());
    refuse(t, "to itself");
}

#[test]
fn a_packet_for_nobody_reachable_is_dropped() {
    let mut t = Topology::new(2);
    for h in 0..2 {
        let s = Node::Switch(t.switch_add(0));
        t.cable_add(Node::Host(HostId(h)), s, port(), port());
    }
    let mut w = world(t, 1);
    send_at(&mut w, 0, 0, 1, 1, 100, 1);
    finish(&mut w);
    assert_eq!(w.totals().drops.of(DropReason::NoRoute), 1);
}

#[test]
fn names_tell_where_things_are() {
    let t = FatTree::k_ary(4, port(), port()).build();
    assert_eq!(t.link_name(LinkId(0)), "host0->leaf0");
    let up = t.core_cables().next().expect("a cable").up();
    assert_eq!(t.link_name(up), "leaf0->agg0");
    let last = LinkId(t.links() - 1);
    assert_eq!(t.link_name(last), "core3->agg7");
    let t = leaf_spine(2, 2, 1);
    assert_eq!(t.link_name(LinkId(t.links() - 1)), "spine1->leaf1");
}
