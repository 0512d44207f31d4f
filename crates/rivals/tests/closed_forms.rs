//! Against what is known in closed form: rates, windows, round trips.

use crate::wire::{Log, bottleneck, exact, forward, net, open};
use srd_fabric::{Effect, Fault, HostId, MS, Ps, SEC, Target, US};
use srd_rivals::{Algorithm, Recovery, SlowStart, TcpConfig};

/// Bytes on the wire of a full segment.
fn wire_bytes(tcp: &TcpConfig) -> u64 {
    u64::from(tcp.mss + tcp.header_bytes + tcp.link_bytes)
}

/// Payload bits per second that a link can carry.
fn goodput_max(rate: u64, tcp: &TcpConfig) -> f64 {
    rate as f64 * f64::from(tcp.mss) / wire_bytes(tcp) as f64
}

#[test]
fn one_flow_fills_a_link_whose_queue_holds_a_round_trip() {
    let (rate, delay) = (1_000_000_000, 500 * US);
    for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
        for recovery in [Recovery::Rack, Recovery::Sack] {
            let tcp = exact().mss(1448).algorithm(algorithm).recovery(recovery);
            let mut net = net(bottleneck(1, rate, delay, 130_000), 1, &tcp);
            let conn = open(&mut net, 1)[0];
            let id = net.message_at(conn, 10 * MS, 60_000_000);
            assert!(net.run_done(10 * SEC));
            let fct = net.message(id).and_then(|m| m.fct_ps()).expect("it arrived");
            let share = 60_000_000.0 * 8e12 / fct as f64 / goodput_max(rate, &tcp);
            let c = net.counters();
            assert!(share > 0.97 && share <= 1.0, "{algorithm:?} {recovery:?}: {share} {c:?}");
            assert!(c.fast_recoveries > 2 && c.timeouts == 0, "{algorithm:?} {recovery:?}: {c:?}");
            assert_eq!(net.world.totals().drops.total(), c.retransmits, "no needless copies");
        }
    }
}

#[test]
fn slow_start_sends_ten_segments_and_doubles() {
    let tcp = TcpConfig { slow_start: SlowStart::Standard, ..exact().mss(1448) };
    let mut net = net(bottleneck(1, 100_000_000_000, 10 * MS, 1 << 30), 1, &tcp);
    let log = Log::watch(&mut net);
    let conn = open(&mut net, 1)[0];
    let start = 100 * MS;
    net.message_at(conn, start, 1448 * (10 + 20 + 40 + 80));
    assert!(net.run_done(SEC));
    let mut rounds = [0; 5];
    for (at, _) in log.data_sent() {
        rounds[((at - start) / (20 * MS)) as usize] += 1;
    }
    assert_eq!(rounds, [10, 20, 40, 80, 0]);
}

#[test]
fn a_flow_of_one_segment_takes_one_and_a_half_round_trips() {
    let tcp = exact().mss(1448);
    let delay = 100 * US;
    let mut net = net(bottleneck(1, 10_000_000_000, delay, 1 << 20), 1, &tcp);
    let id = net.flow_at(HostId(0), HostId(1), MS, 1448);
    assert!(net.run_done(SEC));
    let fct = net.message(id).and_then(|m| m.fct_ps()).expect("it arrived");
    let way = |bytes: u64| delay + 2 * 1_000 + bytes * 800 + 2 * bytes * 20;
    let syn = u64::from(tcp.header_bytes + tcp.link_bytes) + 8;
    assert_eq!(fct, 2 * way(syn) + way(wire_bytes(&tcp)));
}

#[test]
fn reno_halves_and_climbs_one_segment_per_round_trip() {
    // 100 Mb/s, 20 ms, queue of one bandwidth-delay product: the window swings between W/2 and W
    // with W = 2 BDP in W/2 round trips of growing length.
    let tcp = exact().mss(1448).algorithm(Algorithm::Reno);
    let bdp = (100_000_000.0 * 0.02 / 8.0) as u64;
    let mut net = net(bottleneck(1, 100_000_000, 10 * MS, bdp), 1, &tcp);
    let conn = open(&mut net, 1)[0];
    net.message_at(conn, MS, 1 << 40);
    let mut peaks = Vec::new();
    let (mut last, mut recovering) = (0, false);
    for t in 5..20_000u64 {
        net.run_until(t * 5 * MS);
        let s = net.sender(conn).expect("open");
        let now = s.state() == srd_rivals::State::Recovery;
        if now && !recovering {
            peaks.push((t * 5, last, s.ssthresh()));
        }
        (last, recovering) = (s.cwnd(), now);
    }
    let full = 2 * bdp / wire_bytes(&tcp);
    let steady = &peaks[2..];
    assert!(steady.len() > 8, "{peaks:?}");
    for (_, peak, threshold) in steady {
        assert!(peak.abs_diff(full as u32) <= 4, "peak {peak}, queue and link hold {full}");
        assert!(threshold.abs_diff(full as u32 / 2) <= 2, "{threshold}");
    }
    // W/2 rounds, from BDP (20 ms) to 2 BDP (40 ms): 30 ms each on average, plus the recovery.
    let period = (steady.last().unwrap().0 - steady[0].0) as f64 / (steady.len() - 1) as f64;
    let model = full as f64 / 2.0 * 30.0;
    assert!((period / model - 1.0).abs() < 0.05, "period {period} ms, model {model} ms");
}

/// Mean window of a flow under random loss, in segments.
fn window_under_loss(tcp: &TcpConfig, delay: Ps, p: f64, seconds: u64) -> f64 {
    let mut net = net(bottleneck(1, 100_000_000_000, delay, 1 << 30), 3, tcp);
    let conn = open(&mut net, 1)[0];
    let at = Target::Link(forward(&net));
    net.world.fault_now(Fault::Impair { at, effect: Effect::Loss(p) }).expect("a link");
    net.message_at(conn, 10 * MS, 1 << 42);
    net.run_until(5 * SEC);
    let before = net.sender(conn).expect("open").acked_bytes();
    net.run_until((5 + seconds) * SEC);
    let bytes = net.sender(conn).expect("open").acked_bytes() - before;
    bytes as f64 / f64::from(tcp.mss) / seconds as f64 * (2 * delay) as f64 / SEC as f64
}

#[test]
fn reno_follows_the_square_root_law() {
    // Mathis et al.: W = sqrt(3 / 2p) segments when every acknowledged segment counts.
    let tcp = TcpConfig { window_bytes: 1 << 29, ..exact().mss(1448).algorithm(Algorithm::Reno) };
    for (p, seconds) in [(0.001, 200), (0.004, 100)] {
        let window = window_under_loss(&tcp, 5 * MS, p, seconds);
        let law = (1.5 / p).sqrt();
        assert!((window / law - 1.0).abs() < 0.12, "p {p}: {window}, law {law}");
    }
}

#[test]
fn cubic_follows_its_response_function() {
    // RFC 9438 (5.1): W = (C (3 + b) / (4 (1 - b)))^(1/4) (RTT / p)^(3/4), C = 0.4, b = 0.7.
    let tcp = TcpConfig { window_bytes: 1 << 29, ..exact().mss(1448) };
    let (p, rtt) = (0.0004, 0.2);
    let window = window_under_loss(&tcp, 100 * MS, p, 1500);
    let law = (0.4f64 * 3.7 / 1.2).sqrt().sqrt() * (rtt / p).powf(0.75);
    // The law is for losses at equal distances; random ones cost some of it.
    let ratio = window / law;
    assert!((0.75..1.15).contains(&ratio), "{window}, law {law}");
    // At a short round trip it is Reno's equal instead, which the cubic alone would not reach.
    let short = window_under_loss(&tcp, 2 * MS, 0.001, 60);
    let cubic = 1.054 * (0.004f64 / 0.001).powf(0.75);
    let reno = (1.5f64 / 0.001).sqrt();
    assert!(short > 5.0 * cubic && (short / reno - 1.0).abs() < 0.2, "{short} {cubic} {reno}");
}

#[test]
fn two_flows_become_equal() {
    for (algorithm, floor) in [(Algorithm::Reno, 0.99), (Algorithm::Cubic, 0.95)] {
        let tcp = exact().mss(1448).algorithm(algorithm);
        let tcp = TcpConfig { sample_ps: Some(SEC), ..tcp };
        let mut net = net(bottleneck(2, 100_000_000, 5 * MS, 125_000), 1, &tcp);
        let conns = open(&mut net, 2);
        net.message_at(conns[0], MS, 1 << 40);
        net.message_at(conns[1], 5 * SEC, 1 << 40);
        net.run_until(120 * SEC);
        let late = |i: usize| net.samples(conns[i])[40..120].iter().sum::<u64>() as f64;
        let (a, b) = (late(0), late(1));
        let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
        assert!(jain > floor, "{algorithm:?}: {a} {b}, Jain {jain}");
        let share = (a + b) * 8.0 / 80.0 / goodput_max(100_000_000, &tcp);
        assert!(share > 0.97, "{algorithm:?}: {share}");
        assert_eq!(net.samples(conns[0])[..120].len(), 120);
    }
}

#[test]
fn dctcp_keeps_the_queue_near_its_mark() {
    let tcp = exact().mss(1448).algorithm(Algorithm::Dctcp);
    let ecn = srd_fabric::Ecn::step(100_000);
    let fast = srd_fabric::Port::new(400_000_000_000, 1_000);
    let port = srd_fabric::Port::new(10_000_000_000, 20 * US).buffer(4 << 20).ecn(ecn);
    let mut net = net(srd_fabric::dumbbell(2, 2, fast, fast, port), 1, &tcp);
    let conns = open(&mut net, 2);
    conns.iter().for_each(|c| _ = net.message_at(*c, MS, 1 << 40));
    let link = forward(&net);
    net.run_until(20 * MS);
    net.world.monitor(vec![link], MS);
    net.run_until(60 * MS);
    let stats = net.world.link_stats(link);
    assert_eq!(stats.drops.total(), 0);
    let series = net.world.monitored().series(link).expect("watched").to_vec();
    let steady = &series[25..59];
    let queue = steady.iter().map(|b| b.queue_bytes_max).max().unwrap();
    assert!((90_000..250_000).contains(&queue), "{queue}");
    let bytes: u64 = steady.iter().map(|b| b.bytes).sum();
    let share = bytes as f64 * 8.0 / (steady.len() as f64 * 1e-3) / 1e10;
    assert!(share > 0.97, "{share}");
}
