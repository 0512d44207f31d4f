//! A host that takes less than its link brings: what it tells, and what those who are told do.

use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::config::HostPolicy;
use srd_core::wire::{AckBlock, Backlog, Body, Features, Flags, Message};
use srd_core::*;

/// Round trip that is assumed without samples; the puppet's acknowledgments have no echoes.
const RTT: Span = Span::from_us(10);

fn open(policy: HostPolicy, features: u32) -> Puppet {
    let mut cfg = config(0);
    cfg.rate.host_policy = policy;
    // Losses are another matter.
    cfg.loss.rto_min = Span::from_ms(5);
    cfg.loss.tlp_min = Span::from_ms(5);
    cfg.loss.hedge_min = Span::from_ms(5);
    Puppet::new(cfg, |params| params.features.0 |= features)
}

/// Reliable packets heard since the last look.
fn heard(p: &mut Puppet) -> u32 {
    p.reliable().len() as u32
}

/// Acknowledges `n` more packets.
fn ack(p: &mut Puppet, n: u32, fill: impl FnOnce(&mut AckBlock)) {
    p.cum = p.cum.wrapping_add(n);
    p.ack(p.cum, fill);
}

#[test]
fn who_is_told_to_stop_stops_and_goes_on_when_told() {
    let mut p = open(HostPolicy::StopGo, Features::HOST_SIGNAL);
    p.post(Opcode::Write, 1_000_000);
    p.pass(Span::from_us(20));
    let flying = heard(&mut p);
    assert!(flying > 20, "the first window: {flying}");
    ack(&mut p, flying - 5, |a| a.above = true);
    p.pass(Span::from_us(100));
    assert_eq!(heard(&mut p), 0, "five are under way, and an answer to them will come");
    ack(&mut p, 0, |a| a.above = false);
    p.pass(Span::from_us(20));
    assert!(heard(&mut p) > 20);
}

#[test]
fn a_stop_ends_although_the_word_to_go_on_is_lost() {
    let mut p = open(HostPolicy::StopGo, Features::HOST_SIGNAL);
    p.post(Opcode::Write, 1_000_000);
    p.pass(Span::from_us(20));
    let flying = heard(&mut p);
    ack(&mut p, flying, |a| a.above = true);
    p.pass(RTT);
    assert_eq!(heard(&mut p), 0);
    p.pass(RTT);
    p.pass(Span::from_us(1));
    assert_eq!(heard(&mut p), 1, "two round trips later one packet asks");
    p.pass(Span::from_us(500));
    assert_eq!(heard(&mut p), 0, "and waits for its answer");
    ack(&mut p, 1, |a| a.above = true);
    p.pass(RTT.scale(2, 1));
    p.pass(Span::from_us(1));
    assert_eq!(heard(&mut p), 1);
    ack(&mut p, 1, |_| {});
    p.pass(Span::from_us(20));
    assert!(heard(&mut p) > 20);
}

#[test]
fn an_older_acknowledgment_says_nothing_of_the_host() {
    for stale_stops in [true, false] {
        let mut p = open(HostPolicy::StopGo, Features::HOST_SIGNAL);
        p.post(Opcode::Write, 1_000_000);
        p.pass(Span::from_us(20));
        let flying = heard(&mut p);
        // What was sent later arrives first.
        p.lose(1);
        ack(&mut p, flying - 2, |a| (a.above, a.rx_budget) = (!stale_stops, u32::MAX));
        let old = AckBlock {
            cum: p.cum,
            base: p.cum,
            above: stale_stops,
            rx_budget: if stale_stops { 1 } else { u32::MAX },
            ..AckBlock::default()
        };
        p.say_as(Body::Ack, 0, Some(old), |h| h.tx_num -= 2);
        p.pass(Span::from_us(20));
        assert_eq!(heard(&mut p) > 20, stale_stops, "the newest says that it goes on, or not");
    }
}

#[test]
fn who_may_have_less_than_a_packet_in_flight_sends_one_in_several_round_trips() {
    let mut p = open(HostPolicy::Budget, Features::HOST_SIGNAL);
    p.post(Opcode::Write, 1_000_000);
    p.pass(Span::from_us(20));
    let flying = heard(&mut p);
    ack(&mut p, flying, |a| (a.above, a.rx_budget) = (true, 256));
    // 1,024 bytes are four times that.
    p.pass(RTT.scale(3, 1) - Span::from_us(1));
    assert_eq!(heard(&mut p), 0);
    p.pass(RTT + Span::from_us(2));
    assert_eq!(heard(&mut p), 1);
    ack(&mut p, 1, |a| a.rx_budget = 0);
    p.pass(RTT.scale(17, 1));
    assert_eq!(heard(&mut p), 1, "never for ever");
    ack(&mut p, 1, |a| a.rx_budget = 3_000);
    p.pass(RTT);
    assert_eq!(heard(&mut p), 2);
}

/// The round trip in which these waits are counted is that of packets on time. After a clock leapt,
/// or while a queue of the network lasts, slow ones count as on time: a wait of 2 round trips
/// became one of 6 ms, in which no better sample comes.
#[test]
fn waits_for_a_host_are_counted_in_four_least_round_trips_at_most() {
    let (stop, least) = ((HostPolicy::StopGo, u32::MAX, 2), (HostPolicy::Budget, 0, 16));
    for (policy, budget, rtts) in [stop, least] {
        let waits = |slow: u32| {
            let mut p = open(policy, Features::HOST_SIGNAL);
            (0..40).for_each(|_| p.echoed(RTT, Span::ZERO));
            (0..slow).for_each(|_| p.echoed(Span::from_ms(3), Span::ZERO));
            ack(&mut p, 0, |a| (a.above, a.rx_budget) = (true, budget));
            p.post(Opcode::Write, 100);
            p.quiet_for()
        };
        let counted = |rtt: Span| rtt.scale(rtts, 1);
        let around = |is: Span, right: Span| is.0.abs_diff(right.0) <= RTT.0;
        let known = waits(0);
        assert!(around(known, counted(RTT)), "{policy:?}: {known:?}");
        let bounded = waits(100);
        assert!(around(bounded, counted(RTT.scale(4, 1))), "{policy:?}: {bounded:?}");
    }
}

/// Who may have few bytes in flight waited for a delayed acknowledgment of each packet: the one
/// that took the last room did not ask for its own, as one that fills the inflight cap does.
#[test]
fn the_packet_that_takes_the_last_room_asks_for_its_acknowledgment() {
    let mut p = open(HostPolicy::Budget, Features::HOST_SIGNAL);
    p.post(Opcode::Write, 1_000_000);
    p.pass(Span::from_us(20));
    let mut flying = heard(&mut p);
    for room in [1, 2, 3, 5] {
        // Packets of 1,024 bytes with their headers, and half of another one.
        ack(&mut p, flying, |a| a.rx_budget = room * 1_060 + 500);
        p.pass(Span::from_us(20));
        let asks = p.reliable().into_iter().map(|f| f.header.flags.has(Flags::ACK_REQUEST));
        let asks: Vec<_> = asks.collect();
        flying = asks.len() as u32;
        assert_eq!((flying, asks.last()), (room, Some(&true)), "{asks:?}");
    }
}

#[test]
fn only_who_agreed_on_the_signal_obeys_it() {
    for (policy, features) in
        [(HostPolicy::Off, Features::HOST_SIGNAL), (HostPolicy::StopGo, 0), (HostPolicy::Budget, 0)]
    {
        let mut p = open(policy, features);
        p.post(Opcode::Write, 1_000_000);
        p.pass(Span::from_us(20));
        let flying = heard(&mut p);
        ack(&mut p, flying - 5, |a| a.above = true);
        p.pass(Span::from_us(20));
        assert!(heard(&mut p) > 20, "{policy:?}");
    }
}

/// The puppet sends a message with more to come.
fn message(p: &mut Puppet) {
    p.victim.recv(p.qp, 1, 1024);
    let msg = Message { src_qpn: 1, dst_qpn: p.qp.0, qkey: 0x11, msg_id: 1 };
    p.say_as(Body::Send(msg), 1024, None, |h| {
        (h.backlog, h.una_delta) = (Backlog(15), 0);
        h.flags = Flags(0);
    });
}

/// What the acknowledgments since the last look told.
fn told(p: &mut Puppet) -> Vec<(u16, bool, u32)> {
    p.listen();
    let heard = core::mem::take(&mut p.heard);
    let acks = heard.into_iter().filter_map(|f| f.ack);
    acks.map(|a| (a.rxq_depth, a.above, a.rx_budget)).collect()
}

/// A depth was set with each packet and cleared at the end of the burst, before any acknowledgment
/// was built: every one of them said 0.
#[test]
fn what_waits_is_told_and_crossings_are_told_at_once() {
    let mut p = open(HostPolicy::Budget, Features::HOST_SIGNAL);
    let tell = |p: &mut Puppet, bytes| {
        let w = RxWaiting { bytes, limit_bytes: 100_000, handled: true };
        p.victim.engine.rx_waiting(p.now, &w);
        p.victim.engine.rx_burst_end(p.now);
    };
    message(&mut p);
    tell(&mut p, 20_000);
    p.pass(Span::from_us(20));
    assert_eq!(told(&mut p), [(20, false, u32::MAX)], "below half of what there is room for");
    message(&mut p);
    tell(&mut p, 60_000);
    assert_eq!(told(&mut p), [(59, true, u32::MAX)], "at once");
    tell(&mut p, 60_001);
    assert_eq!(told(&mut p), [], "once");
    assert_eq!(p.victim.engine.rx_waiting_below(), Some(50_000 - 4 * 1_024));
    tell(&mut p, 40_000);
    let back = told(&mut p);
    assert!(matches!(back[..], [(40, false, _)]), "{back:?}");
}

#[test]
fn a_peer_without_the_feature_is_told_the_depth_and_no_more() {
    for (policy, features) in [(HostPolicy::Budget, 0), (HostPolicy::Off, Features::HOST_SIGNAL)] {
        let mut p = open(policy, features);
        message(&mut p);
        let w = RxWaiting { bytes: 90_000, limit_bytes: 100_000, handled: false };
        p.victim.engine.rx_waiting(p.now, &w);
        p.pass(Span::from_us(20));
        assert_eq!(told(&mut p), [(88, false, u32::MAX)], "{policy:?}");
    }
}

#[test]
fn a_host_that_drains_is_shared_among_who_sends() {
    let mut p = open(HostPolicy::Budget, Features::HOST_SIGNAL);
    let mut waiting = 4_000;
    for _ in 0..60 {
        message(&mut p);
        // A message in 2 us, of which half is written.
        waiting += 512;
        p.now += Span::from_us(2);
        let w = RxWaiting { bytes: waiting, limit_bytes: 100_000, handled: false };
        p.victim.engine.rx_waiting(p.now, &w);
    }
    p.pass(Span::from_us(20));
    let budget = told(&mut p).last().expect("messages are acknowledged").2;
    // What is read counts, with its headers: 1,060 bytes in 2 us, for one round trip, and 16
    // packets as threshold.
    let expected = 1_060 / 2 * 10 + 16 * 1_024;
    assert!(budget.abs_diff(expected) < 1_500, "{budget}, about {expected}");
}
