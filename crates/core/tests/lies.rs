//! Statements of a peer that holds the tag and that no honest engine would make, one story each.

use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::wire::{Body, ReadResp, ReadStatus, Verdict};
use srd_core::*;

fn open() -> Puppet {
    Puppet::new(config(0), |_| {})
}

/// A read that was refused as busy waits in the list of back-offs. A response that says that its
/// region is gone ended it there, and the list went on to refer to it.
#[test]
fn a_read_in_back_off_takes_no_response() {
    let mut p = open();
    p.post(Opcode::Read, 1000);
    p.pass(Span::from_us(5));
    let msg = p.read_heard();
    p.refuse(p.cum, Verdict::Busy);
    let gone = ReadResp { msg_id: msg.msg_id, offset: 0, status: ReadStatus::RegionGone };
    p.say(Body::ReadResp(gone), 0, None);
    p.pass(Span::from_ms(50));
    assert_eq!(p.victim.statuses(), [], "the read goes again and is still open");
    let again = p.read_heard();
    assert_eq!(again.msg_id, msg.msg_id);
    p.respond(msg, 0, 1000);
    p.ack(p.cum.wrapping_add(2), |_| {});
    p.pass(Span::from_us(1));
    assert_eq!(p.victim.statuses(), [Status::Ok]);
}

/// "Not ready" for one segment of a write that is still being cut put the request in front of
/// itself in its queue.
#[test]
fn a_plain_write_is_never_tried_again() {
    let mut cfg = config(0);
    cfg.window = 64;
    let mut p = Puppet::new(cfg, |params| (params.window, params.rx_budget) = (16, 0));
    p.post(Opcode::Write, 48_000);
    p.post(Opcode::Write, 2_000);
    p.pass(Span::from_us(5));
    p.ack(p.cum.wrapping_add(1), |a| {
        a.rx_budget = 0;
        a.verdicts.push(wire::VerdictEntry::one(a.cum.wrapping_sub(1), Verdict::Rnr));
    });
    p.pass(Span::from_ms(40));
    assert_eq!(p.victim.statuses(), [Status::RemoteRnr]);
    p.ack_all();
    p.ack_all();
    assert_eq!(p.victim.statuses(), [Status::RemoteRnr, Status::Ok]);
}

/// A peer that says for ever that a send has arrived, and never how it was judged, is asked in
/// vain; the request ends like one that never arrives.
#[test]
fn a_peer_that_never_tells_a_verdict_keeps_nothing_open() {
    let mut p = open();
    for _ in 0..3 {
        p.post(Opcode::Send, 100);
    }
    let (mut asked, mut sent) = (0, 0);
    for _ in 0..2_000 {
        p.pass(Span::from_ms(1));
        asked += p.heard.iter().filter(|f| matches!(f.body, Body::Probe)).count();
        let psns: Vec<u32> = p.reliable().iter().map(|f| f.header.psn).collect();
        sent += psns.len();
        p.cum = psns.into_iter().map(|psn| psn.wrapping_add(1)).fold(p.cum, u32::max);
        p.ack(p.cum, |a| a.partial = true);
    }
    assert_eq!(p.victim.statuses(), [Status::LocalUnrespRemote; 3]);
    assert!(asked > 100 && sent > 300, "asked {asked} times, sent {sent} packets");
    // In the end the context is given up, with all that was kept for it.
    assert!(p.victim.engine.context_stats().is_empty());
}

/// The answer to the first question was lost; the second is answered.
#[test]
fn a_verdict_is_asked_for_again() {
    let mut p = open();
    p.post(Opcode::Send, 100);
    p.pass(Span::from_us(5));
    let psns = p.reliable().len();
    p.ack(p.cum.wrapping_add(1), |a| a.partial = true);
    p.pass(Span::from_us(200));
    let asked = p.heard.iter().filter(|f| matches!(f.body, Body::Probe)).count();
    assert!(asked >= 2, "asked {asked} times");
    assert_eq!((psns, p.reliable().len()), (1, 0), "sent once");
    p.refuse(p.cum, Verdict::BadQpn);
    assert_eq!(p.victim.statuses(), [Status::RemoteBadDestQpn]);
    p.pass(Span::from_ms(10));
    assert_eq!(p.heard.len(), 0, "nothing more is asked");
}
