//! Which acknowledgment of a peer is the newest: what it says of the peer itself holds until one
//! that was sent later says otherwise. One story each.

use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::counters::DropReason;
use srd_core::wire::{AckBlock, Body};
use srd_core::*;

fn open() -> Puppet {
    Puppet::new(config(0), |_| {})
}

/// Bytes that the victim may have in flight to the puppet by what the puppet has told.
fn budget(p: &Puppet) -> u32 {
    p.victim.engine.context_stats()[0].rx_budget
}

/// An acknowledgment of nothing, in a packet `ahead` of the puppet's next one.
fn say_ahead(p: &mut Puppet, ahead: u32, fill: impl FnOnce(&mut AckBlock)) {
    let mut a = AckBlock { cum: p.cum, base: p.cum, rx_budget: u32::MAX, ..AckBlock::default() };
    fill(&mut a);
    p.say_as(Body::Ack, 0, Some(a), |h| h.tx_num = h.tx_num.wrapping_add(ahead));
}

#[test]
fn the_newest_says_what_may_be_in_flight() {
    let mut p = open();
    for (ahead, told, held) in [(5, 500, 500), (3, 300, 500), (6, 600, 600), (4, 400, 600)] {
        say_ahead(&mut p, ahead, |a| a.rx_budget = told);
        assert_eq!(budget(&p), held, "{ahead}");
    }
}

/// The number of a refused acknowledgment was kept as that of the newest, of which nothing had been
/// read: what the peer said until it came to that number was passed over.
#[test]
fn one_that_is_refused_is_not_the_newest() {
    let mut p = open();
    say_ahead(&mut p, 8_000, |a| a.cum = a.cum.wrapping_add(1));
    assert_eq!(p.victim.engine.counters().drops[DropReason::BadAck as usize], 1);
    p.ack(p.cum, |a| a.rx_budget = 4_000);
    assert_eq!(budget(&p), 4_000);
}

/// Numbers that the peer had not used yet moved the replay window away from it, step by step. It
/// was asked, and heard again; but what it said of itself was passed over for as many packets as
/// the window had gone ahead.
#[test]
fn a_peer_that_is_put_right_is_listened_to() {
    let mut p = open();
    for step in 1..=20 {
        say_ahead(&mut p, 8_000 * step, |a| a.rx_budget = 1);
    }
    assert_eq!(budget(&p), 1);
    p.heard.clear();
    for _ in 0..16 {
        p.say(Body::Probe, 0, None);
    }
    p.pass(Span::from_us(10));
    let asked = p.heard.iter().find_map(|f| match f.body {
        Body::Challenge { cookie, .. } => Some(cookie),
        _ => None,
    });
    p.refute(asked.expect("all that the peer sends is refused"));
    p.ack(p.cum, |a| a.rx_budget = 4_000);
    assert_eq!(budget(&p), 4_000);
}

/// Drops that the peer had told were counted once more after each acknowledgment that was
/// overtaken by the one that told them: the cap of what may be in flight was lowered again.
#[test]
fn drops_are_counted_once() {
    for overtaken in [(3, 0), (4, 3)] {
        let mut p = open();
        p.post(Opcode::Write, 400_000);
        p.pass(Span::from_us(20));
        let mut caps = vec![];
        for (ahead, drops) in [(0, 0), (5, 9), overtaken, (6, 9), (7, 12)] {
            say_ahead(&mut p, ahead, |a| a.rxq_drops = drops);
            caps.push(p.victim.engine.context_stats()[0].inflight_bytes_max);
            p.pass(Span::from_us(100));
        }
        assert!(caps[1] < caps[0] && caps[4] < caps[3], "drops lower the cap: {caps:?}");
        assert!(caps[1] <= caps[2] && caps[2] <= caps[3], "no drop is new: {caps:?}");
    }
}
