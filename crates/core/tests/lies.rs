//! Statements of a peer that holds the tag and that no honest engine would make, one story each.

mod common;
#[path = "common/puppet.rs"]
mod puppet;
use common::*;
use puppet::Puppet;
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
        a.verdicts.push(wire::VerdictEntry { psn: a.cum.wrapping_sub(1), verdict: Verdict::Rnr });
    });
    p.pass(Span::from_ms(40));
    assert_eq!(p.victim.statuses(), [Status::RemoteRnr]);
    p.ack_all();
    p.ack_all();
    assert_eq!(p.victim.statuses(), [Status::RemoteRnr, Status::Ok]);
}
