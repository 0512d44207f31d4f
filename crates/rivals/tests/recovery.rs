//! Single losses, timeouts, probes, delayed acks: each at its exact moment.

use crate::wire::{Log, back, bottleneck, exact, forward, net, open, swallow};
use srd_fabric::{Effect, Fault, HostId, MS, Port, Ps, SEC, Target, US};
use srd_rivals::{
    Algorithm, Conn, Counters, MessageId, Recovery, SlowStart, State, TcpConfig, TcpNet,
};

const RATE: u64 = 10_000_000_000;
const DELAY: Ps = MS;
/// A round trip of an empty link, a little more than two delays.
const RTT: Ps = 2 * DELAY;

/// An open connection over an empty link, and a log.
fn quiet(tcp: &TcpConfig) -> (TcpNet, Conn, Log) {
    let mut net = net(bottleneck(1, RATE, DELAY, 1 << 30), 1, tcp);
    let conn = open(&mut net, 1)[0];
    net.run_until(10 * MS);
    let log = Log::watch(&mut net);
    (net, conn, log)
}

fn near(a: Ps, b: Ps, within: Ps) -> bool {
    a.abs_diff(b) <= within
}

/// Sends `segments` at 20 ms and loses those that reach the far end within 2 µs after the `lost`-th
/// would. Returns what happened.
fn lose_one(tcp: &TcpConfig, segments: u64, lost: u64) -> (TcpNet, Conn, Log, Ps) {
    let (mut net, conn, log) = quiet(tcp);
    let id = net.message_at(conn, 20 * MS, segments * u64::from(tcp.mss));
    // 1518 bytes take 1.2144 µs on the bottleneck.
    let wire = u64::from(tcp.mss + tcp.header_bytes + tcp.link_bytes) * 800;
    let at = 20 * MS + DELAY + 1_000 + (lost + 1) * wire;
    let link = forward(&net);
    swallow(&mut net, link, at - wire / 2 + 30_000, at + wire / 2 + 30_000);
    assert!(net.run_done(10 * SEC));
    let fct = net.message(id).and_then(|m| m.fct_ps()).expect("it arrived");
    (net, conn, log, fct)
}

#[test]
fn a_lost_segment_is_sent_again_once_after_one_round_trip() {
    for recovery in [Recovery::Rack, Recovery::Sack, Recovery::NewReno] {
        for (algorithm, factor) in [(Algorithm::Reno, 0.5), (Algorithm::Cubic, 0.7)] {
            let tcp = TcpConfig { initial_window: 20, ..exact().mss(1448) };
            let tcp = tcp.algorithm(algorithm).recovery(recovery);
            let (net, conn, log, fct) = lose_one(&tcp, 20, 5);
            let c = net.counters();
            let label = format!("{recovery:?} {algorithm:?}: {c:?}");
            assert_eq!((c.retransmits, c.fast_recoveries, c.timeouts), (1, 1, 0), "{label}");
            assert_eq!(net.world.totals().drops.total(), 1, "{label}");
            let sent = log.data_sent();
            let copy = sent.iter().find(|(at, seq)| *seq == 5 * 1448 && *at > 20 * MS).unwrap();
            assert!(near(copy.0, 20 * MS + RTT, 50 * US), "{label} {copy:?}");
            assert!(near(fct, RTT + DELAY, 50 * US), "{label} {fct}");
            let s = net.sender(conn).unwrap();
            let before = f64::from(c.cwnd_max);
            assert!(near(s.ssthresh().into(), (before * factor) as u64, 1), "{label}");
        }
    }
}

#[test]
fn without_sack_each_hole_costs_a_round_trip() {
    let tcp = TcpConfig { initial_window: 40, ..exact().mss(1448).recovery(Recovery::NewReno) };
    let (mut net, conn, _) = quiet(&tcp);
    let id = net.message_at(conn, 20 * MS, 40 * 1448);
    let wire = 1518 * 800;
    let link = forward(&net);
    for lost in [5, 10, 15] {
        let at = 20 * MS + DELAY + 1_000 + (lost + 1) * wire;
        swallow(&mut net, link, at - wire / 2 + 30_000, at + wire / 2 + 30_000);
    }
    assert!(net.run_done(SEC));
    let fct = net.message(id).and_then(|m| m.fct_ps()).unwrap();
    let c = net.counters();
    assert_eq!((c.retransmits, c.fast_recoveries, c.timeouts), (3, 1, 0), "{c:?}");
    assert!(near(fct, 3 * RTT + DELAY, 100 * US), "{fct}");
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let tcp = TcpConfig { timer_slack_ps: MS, ..exact().mss(1448) };
    let (net, _, log, fct) = lose_one(&tcp, 10, 9);
    let c = net.counters();
    assert_eq!((c.probes, c.timeouts, c.retransmits), (1, 0, 1), "{c:?}");
    // The timer starts anew with the ack of what was not lost, one round trip after sending.
    let copy = log.data_sent().pop().unwrap();
    let due = tcp_due(20 * MS, 2 * RTT, tcp.rto_min_ps);
    assert!(near(copy.0, due, 100 * US), "{copy:?}, due {due}");
    assert!(near(fct, due - 20 * MS + DELAY, 100 * US), "{fct}");
}

/// When the probe for one segment left over comes: the last ack, two smoothed round trips and the
/// allowance for a delayed ack, but not after the timeout.
fn tcp_due(start: Ps, two_rtt: Ps, rto_min: Ps) -> Ps {
    start + two_rtt / 2 + (two_rtt + rto_min).min(two_rtt / 2 + rto_min)
}

#[test]
fn two_lost_segments_at_the_tail_are_probed_soon() {
    let tcp = TcpConfig { timer_slack_ps: MS, initial_window: 20, ..exact().mss(1448) };
    let (mut net, conn, log) = quiet(&tcp);
    let id = net.message_at(conn, 20 * MS, 10 * 1448);
    let wire = 1518 * 800;
    let link = forward(&net);
    let at = 20 * MS + DELAY + 1_000 + 9 * wire;
    swallow(&mut net, link, at - wire / 2 + 30_000, at + 2 * wire);
    assert!(net.run_done(SEC));
    let fct = net.message(id).and_then(|m| m.fct_ps()).unwrap();
    let c = net.counters();
    // The probe repairs the last one and shows the other to be lost.
    assert_eq!((c.probes, c.timeouts, c.retransmits, c.fast_recoveries), (1, 0, 2, 1), "{c:?}");
    let probe = log.data_sent()[10];
    assert_eq!(probe.1, 9 * 1448);
    assert!(near(probe.0, 20 * MS + RTT + 2 * RTT + MS, 200 * US), "{probe:?}");
    assert!(near(fct, RTT + 2 * RTT + MS + RTT + DELAY, 300 * US), "{fct}");
}

#[test]
fn timeouts_double_and_the_connection_gives_up() {
    for floor in [5 * MS, 50 * MS, 200 * MS] {
        let tcp = TcpConfig { tlp: false, retries_max: 5, ..exact().mss(1448) }.rto_min_ps(floor);
        let (mut net, conn, log) = quiet(&tcp);
        let link = forward(&net);
        swallow(&mut net, link, 15 * MS, 1000 * SEC);
        let id = net.message_at(conn, 20 * MS, 1448);
        assert!(!net.run_done(1000 * SEC));
        let sent: Vec<Ps> = log.data_sent().iter().map(|s| s.0).collect();
        assert_eq!(sent.len(), 6, "the original and five copies");
        let rto = net.sender(conn).unwrap().srtt_ps() + floor;
        for (i, pair) in sent.windows(2).enumerate() {
            assert_eq!(pair[1] - pair[0], rto << i, "floor {floor}, timeout {i}");
        }
        assert_eq!(net.sender(conn).unwrap().state(), State::Aborted);
        assert_eq!(net.message(id).unwrap().received_ps, None);
        assert_eq!((net.counters().timeouts, net.counters().aborted), (6, 1));
    }
}

#[test]
fn a_lost_syn_costs_a_second_and_a_window_of_one() {
    let tcp = exact().mss(1448);
    let mut net = net(bottleneck(1, RATE, DELAY, 1 << 30), 1, &tcp);
    let link = forward(&net);
    swallow(&mut net, link, 0, 500 * MS);
    let log = Log::watch(&mut net);
    let id = net.flow_at(HostId(0), HostId(1), 0, 3 * 1448);
    assert!(net.run_done(10 * SEC));
    let fct = net.message(id).and_then(|m| m.fct_ps()).unwrap();
    // SYN again after a second; one segment, then two.
    assert!(near(fct, SEC + RTT + RTT + DELAY, 50 * US), "{fct}");
    assert_eq!(log.data_sent().len(), 3);
}

#[test]
fn acks_are_quick_at_first_then_every_second_then_delayed() {
    let tcp = TcpConfig { initial_window: 101, ..exact().mss(1448) };
    let (mut net, conn, log) = quiet(&tcp);
    let id = net.message_at(conn, 20 * MS, 101 * 1448);
    net.run_until(SEC);
    let last = net.message(id).and_then(|m| m.received_ps).unwrap();
    let acks = log.acks_sent();
    // 16 at once, 42 for 84 segments, one that waits for a second segment in vain.
    assert_eq!(acks.len(), 16 + 42 + 1);
    assert_eq!(acks[58], last + 40 * MS);
    assert_eq!(net.counters().retransmits, 0, "no probe needs less patience");
    // After a pause above the floor they are quick again.
    net.message_at(conn, 2 * SEC, 5 * 1448);
    net.run_until(3 * SEC);
    assert_eq!(log.acks_sent().len(), 59 + 5);
}

#[test]
fn a_pause_shrinks_the_window_by_half_per_timeout() {
    let window = |restart: bool, pause: Ps| {
        let tcp = TcpConfig {
            restart_after_idle: restart,
            slow_start: SlowStart::Standard,
            ..exact().mss(1448)
        };
        let (mut net, conn, _) = quiet(&tcp);
        net.message_at(conn, 20 * MS, 700 * 1448);
        assert!(net.run_done(SEC));
        net.run_until(net.world.now() + 10 * MS);
        let before = net.sender(conn).unwrap().cwnd();
        assert!(before > 200, "{before}");
        let start = net.world.now() + pause;
        net.message_at(conn, start, 1448);
        net.run_until(start);
        (before, net.sender(conn).unwrap().cwnd())
    };
    let (before, after) = window(true, 30 * MS);
    assert_eq!(before, after, "shorter than a timeout");
    let (before, after) = window(true, 80 * MS);
    assert_eq!(before / 2, after);
    assert_eq!(window(true, 10 * SEC).1, 10, "down to the first window");
    let (before, after) = window(false, 10 * SEC);
    assert_eq!(before, after);
}

/// Delays what is on the way by 100 ms for a while in the midst of a transfer. What was counted,
/// and the window before and after.
fn stall(tlp: bool, recovery: Recovery) -> (Counters, u32, u32) {
    let tcp = TcpConfig { slow_start: SlowStart::Standard, tlp, ..exact().mss(1448) };
    let tcp = TcpConfig { recovery, ..tcp };
    let (mut net, conn, _) = quiet(&tcp);
    net.message_at(conn, 20 * MS, 40_000 * 1448);
    let at = Target::Link(forward(&net));
    net.run_until(28 * MS);
    let before = net.sender(conn).unwrap().cwnd();
    let effect = Effect::Delay { prob: 1.0, fixed_ps: 100 * MS, jitter_ps: 0 };
    net.world.fault_now(Fault::Impair { at, effect }).unwrap();
    net.run_until(31 * MS);
    let effect = Effect::Delay { prob: 0.0, fixed_ps: 0, jitter_ps: 0 };
    net.world.fault_now(Fault::Impair { at, effect }).unwrap();
    net.run_until(138 * MS);
    let after = net.sender(conn).unwrap().cwnd();
    assert!(net.run_done(10 * SEC));
    (net.counters(), before, after)
}

#[test]
fn mistaken_reductions_are_taken_back() {
    // Without probes the timeout comes first, and an ack of an original betrays it.
    let (c, before, after) = stall(false, Recovery::Rack);
    assert!(c.timeouts >= 1 && c.undone >= 1, "{c:?}");
    assert!(after >= before, "window {before}, after the stall {after}: {c:?}");
    // Without SACK only the timestamp can tell.
    let (c, ..) = stall(false, Recovery::NewReno);
    assert!(c.timeouts >= 1 && c.undone >= 1, "{c:?}");
    // A probe overtakes all and makes them look lost; reported duplicates put that right.
    let (c, before, after) = stall(true, Recovery::Rack);
    assert!(c.timeouts == 0 && c.duplicates_reported > 100 && c.undone >= 1, "{c:?}");
    assert!(after >= before, "window {before}, after the stall {after}: {c:?}");
}

#[test]
fn reordering_does_not_shrink_the_window_for_long() {
    // A tenth of the segments is late by a fifth of a round trip.
    let tcp = TcpConfig { slow_start: SlowStart::Standard, ..exact().mss(1448) };
    let (mut net, conn, _) = quiet(&tcp);
    let at = Target::Link(forward(&net));
    let effect = Effect::Delay { prob: 0.1, fixed_ps: RTT / 5, jitter_ps: 0 };
    net.world.fault_now(Fault::Impair { at, effect }).unwrap();
    net.message_at(conn, 20 * MS, 20_000 * 1448);
    assert!(net.run_done(10 * SEC));
    let c = net.counters();
    // Once reordering has been seen it is waited for.
    assert!(c.retransmits < 400, "{c:?}");
    assert_eq!(c.timeouts, 0, "{c:?}");
    let (mut old, conn, _) = quiet(&tcp.recovery(Recovery::Sack));
    old.world.fault_now(Fault::Impair { at, effect }).unwrap();
    old.message_at(conn, 20 * MS, 20_000 * 1448);
    assert!(old.run_done(100 * SEC));
    assert!(old.counters().retransmits > 2 * c.retransmits, "{:?}", old.counters());
    assert!(old.world.now() > net.world.now());
}

#[test]
fn lost_acks_cost_nothing_while_later_ones_come() {
    let tcp = TcpConfig { initial_window: 40, ..exact().mss(1448) };
    let (mut net, conn, _) = quiet(&tcp);
    let link = back(&net);
    let at = Target::Link(link);
    net.world.fault_now(Fault::Impair { at, effect: Effect::Loss(0.3) }).unwrap();
    net.message_at(conn, 20 * MS, 4_000 * 1448);
    assert!(net.run_done(10 * SEC));
    let c = net.counters();
    assert_eq!((c.fast_recoveries, c.timeouts), (0, 0), "{c:?}");
    assert!(c.retransmits <= 2, "{c:?}");
}

#[test]
fn a_probe_that_repaired_a_loss_still_shrinks_the_window() {
    let tcp = TcpConfig { timer_slack_ps: MS, ..exact().mss(1448) };
    let (mut net, conn, _, _) = lose_one(&tcp, 10, 9);
    let now = net.world.now();
    assert!(net.sender(conn).unwrap().ssthresh() > 1000);
    net.message_at(conn, now, 5 * 1448);
    assert!(net.run_done(SEC));
    net.run_until(now + 100 * MS);
    let s = net.sender(conn).unwrap();
    let before = f64::from(net.counters().cwnd_max);
    assert!(near(s.ssthresh().into(), (before * 0.7) as u64, 2), "{} of {before}", s.ssthresh());
    assert_eq!((net.counters().timeouts, s.state()), (0, State::Open));
}

#[test]
fn the_ack_of_a_filled_hole_is_not_delayed() {
    // 35 segments: quick acks are used up by the 16th, the 30th is lost. The copy makes an odd
    // number in order; its ack comes at once.
    let tcp = TcpConfig { initial_window: 35, ..exact().mss(1448) };
    let (net, conn, log, fct) = lose_one(&tcp, 35, 30);
    let filled = net.message(MessageId { conn, index: 0 }).unwrap().start_ps + fct;
    assert_eq!(log.acks_sent().last(), Some(&filled));
}

#[test]
fn what_is_still_in_the_card_is_not_sent_again() {
    // 12 flows put 120 segments of 72 µs into a card: the last leaves after more than a timeout.
    let slow = Port::new(1_000_000_000, US);
    let tcp = exact().rto_min_ps(2 * MS);
    let mut net = net(srd_fabric::back_to_back(slow), 1, &tcp);
    let conns: Vec<_> = (0..12).map(|_| net.connect(HostId(0), HostId(1))).collect();
    conns.iter().for_each(|c| _ = net.message_at(*c, MS, 10 * 8948));
    assert!(net.run_done(SEC));
    let c = net.counters();
    assert!(c.timeouts + c.probes > 0, "{c:?}");
    assert_eq!((c.retransmits, c.duplicates_received), (0, 0), "{c:?}");
}

#[test]
fn a_probe_that_may_not_be_sent_does_not_push_the_timeout_back() {
    let floor = 50 * MS;
    let tcp = TcpConfig { quick_acks: 0, ..exact().mss(1448).rto_min_ps(floor) };
    let tcp = TcpConfig { delayed_ack_ps: 40 * MS, tlp: true, ..tcp };
    let (mut net, conn, log) = quiet(&tcp);
    let id = net.message_at(conn, 20 * MS, 2 * 1448);
    // The first segment passes and waits for a delayed ack; the second and its probe are lost.
    let link = forward(&net);
    let first = 20 * MS + DELAY + 1_000 + 1518 * 800;
    swallow(&mut net, link, first + 600_000, 40 * MS);
    assert!(net.run_done(10 * SEC));
    let c = net.counters();
    assert_eq!((c.probes, c.timeouts, c.retransmits), (1, 1, 2), "{c:?}");
    let sent = log.data_sent();
    let late = log.acks_sent().into_iter().find(|at| *at > 20 * MS).expect("an ack");
    assert!(near(late, 20 * MS + DELAY + 40 * MS, 100 * US), "{late}");
    // After that ack a probe is due a timeout later: srtt has an eighth of 40 ms in it. Another
    // one is still open, so it becomes the head's timeout, which is long over.
    let copy = sent.last().expect("a copy").0;
    let rto = floor + RTT + 40 * MS / 8;
    assert!(near(copy, late + DELAY + rto, MS), "{copy}");
    let fct = net.message(id).and_then(|m| m.fct_ps()).expect("it arrived");
    assert!(near(20 * MS + fct, copy + DELAY, 10 * US), "{fct}");
}
