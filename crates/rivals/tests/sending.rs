//! When segments leave: unused windows, pacing, bursts, marks.

use crate::wire::{Log, bottleneck, exact, forward, net, open};
use srd_fabric::{Ecn, MS, Port, Ps, SEC, US, dumbbell};
use srd_rivals::{SlowStart, TcpConfig};

#[test]
fn an_unused_window_does_not_grow() {
    let tcp = TcpConfig { slow_start: SlowStart::Standard, ..exact().mss(1448) };
    let mut net = net(bottleneck(1, 10_000_000_000, MS, 1 << 30), 1, &tcp);
    let conn = open(&mut net, 1)[0];
    // Two segments every 5 ms: ten are allowed.
    for i in 0..200 {
        net.message_at(conn, (10 + 5 * i) * MS, 2 * 1448);
    }
    assert!(net.run_done(10 * SEC));
    assert_eq!(net.sender(conn).unwrap().cwnd(), 10);
    // A use of all of it makes it grow.
    let now = net.world.now();
    net.message_at(conn, now, 30 * 1448);
    assert!(net.run_done(10 * SEC));
    assert!(net.sender(conn).unwrap().cwnd() >= 20);
}

#[test]
fn pacing_spreads_a_window_over_the_round_trip() {
    // A round of slow start at twice the window per round trip: gaps of RTT / 2 W.
    let tcp = TcpConfig {
        pacing: true,
        slow_start: SlowStart::Standard,
        initial_window: 40,
        ..exact().mss(1448)
    };
    let mut net = net(bottleneck(1, 10_000_000_000, 5 * MS, 1 << 30), 1, &tcp);
    let conn = open(&mut net, 1)[0];
    net.run_until(20 * MS);
    let log = Log::watch(&mut net);
    net.message_at(conn, 20 * MS, 40 * 1448);
    assert!(net.run_done(SEC));
    let sent = log.data_sent();
    let spread = sent[39].0 - sent[0].0;
    // Headers count as well, so it is a little more.
    let model = 39 * (10 * MS / 80) * 1518 / 1448;
    assert!(spread.abs_diff(model) < model / 50, "{spread}, model {model}");
    let gaps: Vec<Ps> = sent.windows(2).map(|w| w[1].0 - w[0].0).collect();
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(most - least < most / 20, "{gaps:?}");
}

#[test]
fn large_bursts_wait_for_a_third_of_the_window() {
    let groups = |tso_bytes: u32| {
        let tcp = TcpConfig { tso_bytes, ..exact().mss(1448) };
        let mut net = net(bottleneck(1, 1_000_000_000, 500 * US, 200_000), 1, &tcp);
        let log = Log::watch(&mut net);
        let conn = open(&mut net, 1)[0];
        let id = net.message_at(conn, 10 * MS, 10_000 * 1448);
        assert!(net.run_done(10 * SEC));
        let mut times: Vec<Ps> = log.data_sent().iter().map(|s| s.0).collect();
        let segments = times.len();
        times.dedup();
        (segments / times.len(), net.message(id).and_then(|m| m.fct_ps()).unwrap())
    };
    let (alone, fct) = groups(0);
    let (bursts, fct_bursts) = groups(65_536);
    assert!(alone <= 2 && bursts >= 10, "{alone} {bursts}");
    assert!(fct_bursts < fct * 105 / 100, "{fct_bursts} {fct}");
}

#[test]
fn marks_shrink_the_window_without_a_loss() {
    let fast = Port::new(400_000_000_000, 1_000);
    let marking = Port::new(1_000_000_000, 500 * US).buffer(1 << 20).ecn(Ecn::step(60_000));
    let run = |ecn: bool| {
        let tcp = TcpConfig { ecn, ..exact().mss(1448) };
        let mut net = net(dumbbell(1, 1, fast, fast, marking), 1, &tcp);
        let conn = open(&mut net, 1)[0];
        net.message_at(conn, 10 * MS, 100_000_000);
        assert!(net.run_done(10 * SEC));
        let stats = net.world.link_stats(forward(&net));
        let most = net.counters().cwnd_max;
        (stats.marked, stats.drops.total(), stats.queue_bytes_max, most, net.world.now())
    };
    let (marked, drops, queue, _, took) = run(true);
    assert!(marked > 0 && drops == 0, "{marked} {drops}");
    assert!(queue < 400_000, "{queue}");
    let ideal = 100_000_000 * 8_000 * 1518 / 1448;
    // The segment that confirms a reduction may be marked itself, which makes it two in a row; one
    // per mark would leave the link mostly idle.
    assert!(took < ideal * 112 / 100, "{took}, ideal {ideal}");
    let (marked, drops, queue, most, _) = run(false);
    assert!(marked == 0 && drops > 0 && queue > 1_000_000, "{marked} {drops} {queue} {most}");
}
