//! Unit tests of what the oracles are made of: models of engines, ledgers of packets, and worlds as
//! data. An error here blames the engine wrongly, or hides its bugs.

mod class;
mod draw;
mod faults;
mod ledger;
mod mirror;
mod plans;
mod recorder;
mod runner;
mod scenario;
mod summary;
mod trace;

use crate::cover::Cover;
use crate::ledger::{Ledger, Oracle, Public, Req, ReqState};
use crate::node::Node;
use crate::{Classes, Limits, Scenario};
use srd_core::wire::{Backlog, Body, Flags, Header, Packet};
use srd_core::{AhId, Opcode, Qpn, SendRequest};

/// The header of a packet with this body, and zeros where a test does not care.
pub(crate) fn header(body: &Body) -> Header {
    Header {
        kind: body.kind(),
        flags: Flags(0),
        backlog: Backlog(0),
        path: 0,
        slot: 0,
        dst_tag: 1,
        tx_num: 0,
        timestamp: 0,
        psn: 0,
        una_delta: 0,
        ack_echo: 0,
    }
}

/// A packet with this header number, body and length of payload.
pub(crate) fn packet(psn: u32, body: Body, payload_len: u16) -> Packet<'static> {
    Packet { header: Header { psn, ..header(&body) }, ack: None, body, payload_len }
}

/// A request of `len` bytes of engine 3, just posted.
pub(crate) fn req(op: Opcode, len: u32) -> Req {
    let wr = SendRequest {
        wr_id: 0,
        op,
        ah: AhId(0),
        dst_qpn: Qpn(1),
        qkey: 0,
        len,
        rkey: 0,
        raddr: 0,
        imm: 0,
    };
    Req {
        owner: 3,
        epoch: 0,
        at: 0,
        qpn: Qpn(0),
        wr,
        datagram: false,
        dst: None,
        rnr_retry: 7,
        state: ReqState::Live,
        placed: Cover::default(),
        verdicts: 0,
        rnr: 0,
        delivered: 0,
        region_gone: false,
        calm: false,
        credit: Some(1),
    }
}

/// Engine 0 of a world without faults, and the ledger.
pub(crate) fn node() -> (Scenario, Node, Ledger) {
    let s = Scenario::from_seed(1, Limits { classes: Classes::default(), ..Limits::NONE });
    let public = vec![Public::default(); s.hosts as usize * s.slots.len()];
    let mut led = Ledger { public, ..Ledger::default() };
    let node = Node::new(&s, &mut led, 0, (0, s.slots[0]), None);
    (s, node, led)
}

/// The oracle that was broken since the last look.
pub(crate) fn broken(led: &mut Ledger) -> Option<Oracle> {
    led.violation.take().map(|v| v.oracle)
}
