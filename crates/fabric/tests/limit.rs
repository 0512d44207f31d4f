//! Limits of single flows at their senders' cards, compared with arithmetic.

use crate::common::{Net, PER_BYTE, Probe, RATE, finish, ids, leaf_spine, port, send_at, world};
use srd_fabric::{
    CreditConfig, DropReason, FlowControl, FlowLimit, FlowLimitStats, HostId, LIMITED_FLOWS_MAX,
    LinkId, MS, Outbound, Ps, Rng, Service, US, World, WorldConfig, back_to_back,
};

/// 5 Gb/s: 1,600 ps per byte, a twentieth of the links.
const LIMIT: FlowLimit =
    FlowLimit { bits_per_s: RATE / 20, burst_bytes: 64_000, queue_bytes: 1_000_000 };
const LIMIT_PER_BYTE: Ps = 1_600;

fn limited(limit: FlowLimit) -> Net {
    let mut w = world(back_to_back(port()), 1);
    w.flow_limit_set(limit).expect("a possible limit");
    w
}

fn stats(w: &Net) -> FlowLimitStats {
    w.flow_limit_stats(HostId(0)).expect("there is a limit")
}

#[test]
fn a_flow_sends_its_burst_at_the_links_rate_and_then_at_its_own() {
    let mut w = limited(LIMIT);
    for i in 0..100 {
        send_at(&mut w, 0, 0, 1, 9, 4_000, i);
    }
    finish(&mut w);
    let got = &w.hosts()[1].got;
    assert_eq!(got.len(), 100);
    for (i, g) in (0..).zip(got) {
        // 16 packets are the burst; each further one needs its own bytes of tokens.
        let leaves = if i < 16 { i * 4_000 * PER_BYTE } else { (i - 15) * 4_000 * LIMIT_PER_BYTE };
        assert_eq!((g.id, g.at), (i, leaves + 4_000 * PER_BYTE + US), "packet {i}");
    }
    let want = FlowLimitStats {
        flows: 1,
        waited: 84,
        dropped: 0,
        wait_ps_max: 84 * 4_000 * LIMIT_PER_BYTE - 99 * 4_000 * PER_BYTE,
    };
    assert_eq!(stats(&w), want);
    assert_eq!(w.flow_limit_stats(HostId(1)), Some(FlowLimitStats::default()));
}

#[test]
fn flows_have_buckets_of_their_own_by_destination_and_both_ports() {
    let mut w = world(leaf_spine(2, 2, 2), 1);
    w.flow_limit_set(LIMIT).unwrap();
    let flow = |dst, sport, dport| Outbound { dst: HostId(dst), sport, dport, bytes: 1, ect: true };
    for out in [flow(1, 1, 7), flow(2, 1, 7), flow(1, 2, 7), flow(1, 1, 8)] {
        for id in 0..17 {
            let host = w.host_mut(HostId(0));
            host.queued.push((Outbound { bytes: 4_000, ..out }, id));
            let token = host.queued.len() as u64 - 1;
            w.call_at(0, HostId(0), token);
        }
    }
    finish(&mut w);
    // Each has its burst of 16, and one packet that waits.
    let want = FlowLimitStats {
        flows: 4,
        waited: 4,
        dropped: 0,
        wait_ps_max: 4_000 * LIMIT_PER_BYTE - 16 * 4_000 * PER_BYTE,
    };
    assert_eq!(stats(&w), want);
}

/// Tokens counted one after the other, for packets of drawn sizes at drawn times.
#[test]
fn departures_are_those_of_a_bucket_that_is_counted_packet_by_packet() {
    for seed in 1..=20 {
        let mut rng = Rng::new(seed);
        let mut w = limited(FlowLimit { queue_bytes: 1 << 30, ..LIMIT });
        let (mut now, mut want) = (0, Vec::new());
        let full = 64_000 * LIMIT_PER_BYTE;
        let (mut tokens, mut counted_at, mut link_free, mut taken) = (full, 0, 0, 0);
        for id in 0..400 {
            now += rng.below(20) * US;
            let bytes = 64 + rng.below(9_000);
            // Every tenth packet is larger than the bucket.
            let bytes = if id % 10 == 9 { bytes + 64_000 } else { bytes };
            send_at(&mut w, now, 0, 1, 9, bytes as u32, id);
            let handed: Ps = now.max(taken);
            taken = handed + bytes * PER_BYTE;
            let first = handed.max(counted_at);
            tokens = full.min(tokens + (first - counted_at));
            let needs = full.min(bytes * LIMIT_PER_BYTE);
            let leaves = first + needs.saturating_sub(tokens);
            tokens = tokens.max(needs);
            // A larger packet takes more than the bucket holds, which later ones wait for.
            let rest = bytes * LIMIT_PER_BYTE - needs;
            (tokens, counted_at) = (tokens - needs, leaves + rest);
            link_free = leaves.max(link_free) + bytes * PER_BYTE;
            want.push((id, link_free + US));
        }
        finish(&mut w);
        let got: Vec<(u64, Ps)> = w.hosts()[1].got.iter().map(|g| (g.id, g.at)).collect();
        assert_eq!(got, want, "seed {seed}");
    }
}

#[test]
fn what_would_wait_too_long_is_dropped_and_counted() {
    let mut w = limited(FlowLimit { queue_bytes: 40_000, ..LIMIT });
    for i in 0..100 {
        send_at(&mut w, 0, 0, 1, 9, 4_000, i);
    }
    finish(&mut w);
    // 16 in the burst, 11 that wait at most 64 us, and one for each packet that left meanwhile: the
    // host hands one over in 0.32 us, and one leaves in 6.4 us.
    let want: Vec<u64> = (0..27).chain([40, 60, 80]).collect();
    assert_eq!(ids(&w, 1), want);
    let s = stats(&w);
    assert_eq!((s.waited, s.dropped), (14, 70));
    assert_eq!(s.wait_ps_max, 40_000 * LIMIT_PER_BYTE);
    assert_eq!(w.totals().drops.of(DropReason::BufferFull), 70);
    assert_eq!(w.link_stats(LinkId(0)).drops.of(DropReason::BufferFull), 70);
}

#[test]
fn the_table_of_flows_is_bounded_and_full_buckets_make_room() {
    // A bucket needs 0.8 ms for 100 bytes.
    let mut w = limited(FlowLimit { bits_per_s: RATE / 100_000, ..LIMIT });
    let flows = LIMITED_FLOWS_MAX as u16;
    for i in 0..flows {
        send_at(&mut w, 0, 0, 1, i, 100, i.into());
    }
    // One too many while no bucket is full again; a known flow goes on.
    send_at(&mut w, 0, 0, 1, flows, 100, 70_000);
    send_at(&mut w, 0, 0, 1, 5, 100, 70_001);
    send_at(&mut w, MS, 0, 1, flows, 100, 70_002);
    finish(&mut w);
    let got = ids(&w, 1);
    assert_eq!(got.len(), LIMITED_FLOWS_MAX + 2);
    assert_eq!(got[LIMITED_FLOWS_MAX..], [70_001, 70_002]);
    let s = stats(&w);
    assert_eq!((s.flows, s.dropped), (LIMITED_FLOWS_MAX as u64 + 1, 1));
}

/// Dropped packets take the host's time, too, so that nobody sends faster than the link.
#[test]
fn the_host_hands_over_packets_at_its_links_rate() {
    let mut w = limited(FlowLimit { queue_bytes: 0, ..LIMIT });
    for i in 0..50 {
        send_at(&mut w, 0, 0, 1, 9, 4_000, i);
    }
    w.run_until(0);
    w.with_host(HostId(0), |_, io| {
        assert_eq!(io.nic_backlog_bytes(), 200_000);
        assert_eq!(io.nic_free_at(), 200_000 * PER_BYTE);
    });
    finish(&mut w);
    assert!(stats(&w).dropped > 30, "{:?}", stats(&w));
}

/// A host's packets are the same whether its events are processed alone or among others'.
#[test]
fn windows_do_not_change_what_is_limited() {
    let run = |windows| {
        let config = WorldConfig { windows, ..WorldConfig::new(5) };
        let mut w = World::new(leaf_spine(4, 4, 4), config, |_| Probe::default()).unwrap();
        w.flow_limit_set(FlowLimit { queue_bytes: 60_000, ..LIMIT }).unwrap();
        let mut rng = Rng::new(7);
        for id in 0..8_000 {
            let (src, to) = (rng.below(16) as u32, 1 + rng.below(2) as u32);
            let at = rng.below(100_000_000);
            send_at(&mut w, at, src, (src + to) % 16, rng.below(2) as u16, 2_000, id);
        }
        finish(&mut w);
        (w.run_hash(), (0..16).map(|h| w.flow_limit_stats(HostId(h))).collect::<Vec<_>>())
    };
    let (hash, cards) = run(false);
    assert!(cards.iter().flatten().any(|s| s.waited > 0 && s.dropped > 0), "{cards:?}");
    assert_eq!((hash, cards), run(true));
}

#[test]
fn impossible_limits_are_refused_with_what_to_give_instead() {
    let mut w = world(back_to_back(port()), 1);
    for bits_per_s in [0, RATE + 1] {
        let text = w.flow_limit_set(FlowLimit { bits_per_s, ..LIMIT }).unwrap_err().to_string();
        assert!(text.contains("must be above 0 and at most 100000000000"), "{text}");
    }
    let text = w.flow_limit_set(FlowLimit { burst_bytes: 0, ..LIMIT }).unwrap_err().to_string();
    assert!(text.contains("burst of at least 1 byte"), "{text}");
    assert_eq!(w.flow_limit_stats(HostId(0)), None);
    w.flow_limit_set(FlowLimit { bits_per_s: RATE, ..LIMIT }).unwrap();

    let credits = CreditConfig { input_bytes: 100_000, lanes: 1, service: Service::RoundRobin };
    let config = WorldConfig { flow_control: FlowControl::Credits(credits), ..WorldConfig::new(1) };
    let mut w = World::new(back_to_back(port()), config, |_| Probe::default()).unwrap();
    let text = w.flow_limit_set(LIMIT).unwrap_err().to_string();
    assert!(text.contains("use FlowControl::Drop"), "{text}");
}
