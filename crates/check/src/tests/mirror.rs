//! The verdict that a responder must give, rule by rule and in the order of the rules.

use crate::mirror::{Expected, Mirror, MrModel, QpModel};
use crate::tests::packet;
use srd_core::wire::{Body, Message, Rdma, ReadReq, Verdict};
use srd_core::{
    Access, AhId, Completion, CompletionKind, QpState, QpType, Qpn, RecvHandle, Status,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));
const QKEY: u32 = 0x77;
const RKEY: u32 = 0x1234;
const REGION: u64 = 0x1000;
const REGION_LEN: u64 = 0x800;

fn qp(index: u16, kind: QpType, receives: &[(u32, u64, u32)]) -> QpModel {
    QpModel {
        qpn: Qpn(index),
        kind,
        state: QpState::Rts,
        qkey: QKEY,
        pd: 1,
        receives: receives.iter().copied().collect(),
        unsolicited: false,
        rnr_retry: 7,
        sends: 0,
    }
}

/// An engine with two receives of 100 and 50 bytes, a region that may be read and written, and one
/// known peer.
fn engine() -> Mirror {
    let region = MrModel {
        id: 0,
        addr: REGION,
        len: REGION_LEN,
        access: Access(Access::REMOTE_READ | Access::REMOTE_WRITE),
        pd: 1,
    };
    Mirror {
        qps: vec![
            qp(0, QpType::Srd, &[(0, 10, 100), (1, 11, 50)]),
            qp(1, QpType::Srd, &[]),
            qp(2, QpType::Ud, &[(0, 20, 100)]),
        ],
        mrs: [(RKEY, region)].into_iter().collect(),
        ahs: vec![(AhId(4), PEER)],
        cq_depth: 16,
        serves: (true, true, true),
        ..Mirror::default()
    }
}

fn to(qpn: u16) -> Message {
    Message { src_qpn: 0x300, dst_qpn: qpn, qkey: QKEY, msg_id: 5 }
}

fn verdict(m: &Mirror, body: Body, len: u16) -> Option<Verdict> {
    m.verdict(PEER, &packet(0, body, len), Some(0))
}

#[track_caller]
fn decides(m: &Mirror, body: Body, len: u16, want: Verdict) {
    assert_eq!(verdict(m, body, len), Some(want), "{body:?} of {len} bytes");
}

#[test]
fn messages_need_a_queue_pair_a_key_and_a_receive() {
    let m = engine();
    for body in [Body::Send, |m| Body::SendImm(m, 3)] {
        decides(&m, body(to(0)), 100, Verdict::Ok);
        decides(&m, body(to(0)), 0, Verdict::Ok);
        // The first receive is used, not the largest.
        decides(&m, body(to(0)), 101, Verdict::BadLength);
        decides(&m, body(to(1)), 1, Verdict::Rnr);
        decides(&m, body(to(9)), 1, Verdict::BadQpn);
        // A UD queue pair accepts no reliable message.
        decides(&m, body(to(2)), 1, Verdict::BadQpn);
        decides(&m, body(Message { qkey: QKEY + 1, ..to(0) }), 1, Verdict::BadQkey);
        // The QPN is checked before the Q_Key, the Q_Key before the receives.
        decides(&m, body(Message { qkey: 0, ..to(9) }), 1, Verdict::BadQpn);
        decides(&m, body(Message { qkey: 0, ..to(1) }), 1, Verdict::BadQkey);
    }
}

#[test]
fn only_queue_pairs_that_receive_are_there() {
    let states = [
        (QpState::Reset, false),
        (QpState::Init, false),
        (QpState::Rtr, true),
        (QpState::Rts, true),
        (QpState::Sqd, true),
        (QpState::Sqe, true),
        (QpState::Err, false),
    ];
    for (state, receives) in states {
        let mut m = engine();
        m.qp(Qpn(0)).unwrap().state = state;
        let want = if receives { Verdict::Ok } else { Verdict::BadQpn };
        decides(&m, Body::Send(to(0)), 1, want);
        decides(&m, Body::Write(to(0), Rdma { rkey: RKEY, raddr: REGION }), 1, want);
    }
}

fn write(raddr: u64) -> Body {
    Body::Write(to(0), Rdma { rkey: RKEY, raddr })
}

#[test]
fn writes_stay_within_their_region() {
    let m = engine();
    let end = REGION + REGION_LEN;
    for (at, len, good) in [
        (REGION, 1, true),
        (REGION, REGION_LEN as u16, true),
        (end - 1, 1, true),
        (REGION - 1, 1, false),
        (end - 1, 2, false),
        (end, 1, false),
        (REGION, REGION_LEN as u16 + 1, false),
        (u64::MAX, 1, false),
        (u64::MAX - 1, 2, false),
    ] {
        let want = if good { Verdict::Ok } else { Verdict::BadRkey };
        decides(&m, write(at), len, want);
    }
    // Nothing is written, so nothing is checked.
    decides(&m, write(u64::MAX), 0, Verdict::Ok);
    decides(&m, Body::Write(to(0), Rdma { rkey: RKEY + 1, raddr: 0 }), 0, Verdict::Ok);
    decides(&m, Body::Write(to(0), Rdma { rkey: RKEY + 1, raddr: REGION }), 1, Verdict::BadRkey);
}

#[test]
fn a_region_at_the_end_of_memory_does_not_wrap() {
    let mut m = engine();
    let region = m.mrs.get_mut(&RKEY).unwrap();
    (region.addr, region.len) = (u64::MAX - 9, 10);
    decides(&m, write(u64::MAX - 9), 10, Verdict::Ok);
    decides(&m, write(u64::MAX), 1, Verdict::Ok);
    decides(&m, write(u64::MAX), 2, Verdict::BadRkey);
    decides(&m, write(0), 1, Verdict::BadRkey);
}

#[test]
fn rights_and_domains_are_the_regions_own() {
    let read = Body::ReadReq(to(0), ReadReq { rkey: RKEY, raddr: REGION, len: 8 });
    for (access, writes, reads) in [
        (Access::REMOTE_WRITE, true, false),
        (Access::REMOTE_READ, false, true),
        (Access::LOCAL_WRITE, false, false),
        (0, false, false),
    ] {
        let mut m = engine();
        m.mrs.get_mut(&RKEY).unwrap().access = Access(access);
        decides(&m, write(REGION), 8, if writes { Verdict::Ok } else { Verdict::BadRkey });
        let got = verdict(&m, read, 0);
        assert_eq!(got, if reads { None } else { Some(Verdict::BadRkey) }, "{access}");
    }
    let mut m = engine();
    m.mrs.get_mut(&RKEY).unwrap().pd = 2;
    decides(&m, write(REGION), 8, Verdict::BadRkey);
    decides(&m, read, 0, Verdict::BadRkey);
}

#[test]
fn reads_are_served_to_known_peers_if_at_all() {
    let read = |len| Body::ReadReq(to(0), ReadReq { rkey: RKEY, raddr: REGION, len });
    let m = engine();
    assert_eq!(verdict(&m, read(8), 0), None, "taken, or refused as busy");
    decides(&m, read(0), 0, Verdict::Ok);
    decides(&m, read(REGION_LEN as u32 + 1), 0, Verdict::BadRkey);
    let strange = |m: &Mirror, body, len| m.verdict(STRANGER, &packet(0, body, len), None);
    assert_eq!(strange(&m, read(8), 0), Some(Verdict::UnknownPeer));
    assert_eq!(strange(&m, write(REGION), 8), Some(Verdict::UnknownPeer));
    assert_eq!(strange(&m, Body::Send(to(0)), 8), Some(Verdict::Ok), "messages need no handle");
    let open = Mirror { serves: (true, true, false), ..engine() };
    assert_eq!(strange(&open, write(REGION), 8), Some(Verdict::Ok));
    assert_eq!(strange(&open, read(8), 0), None);
    // Operations that are not offered are refused before the peer is looked up.
    let none = Mirror { serves: (false, false, true), ..engine() };
    assert_eq!(strange(&none, read(8), 0), Some(Verdict::FeatureMismatch));
    assert_eq!(strange(&none, write(REGION), 8), Some(Verdict::FeatureMismatch));
    decides(&none, Body::Send(to(0)), 8, Verdict::Ok);
}

fn imm(qpn: u16, msg_len: u32, raddr: u64) -> Body {
    let rdma = Rdma { rkey: RKEY, raddr };
    Body::WriteImm { msg: to(qpn), rdma, msg_len, imm: 1 }
}

#[test]
fn the_last_segment_of_a_write_with_immediate_needs_a_receive() {
    let mut m = engine();
    decides(&m, imm(0, 40, REGION), 40, Verdict::Ok);
    decides(&m, imm(1, 40, REGION), 40, Verdict::Rnr);
    decides(&m, imm(1, 80, REGION), 40, Verdict::Ok);
    m.imm_bytes.insert(0, 40);
    decides(&m, imm(1, 80, REGION), 40, Verdict::Rnr);
    decides(&m, imm(0, 80, REGION), 40, Verdict::Ok);
    // An unsolicited immediate needs a slot of the completion queue instead of a receive.
    m.qp(Qpn(1)).unwrap().unsolicited = true;
    decides(&m, imm(1, 80, REGION), 40, Verdict::Ok);
    m.cq_depth = m.reserved();
    decides(&m, imm(1, 80, REGION), 40, Verdict::Rnr);
    decides(&m, imm(0, 80, REGION), 40, Verdict::Ok);
}

#[test]
fn an_immediate_alone_comes_after_all_its_bytes() {
    let mut m = engine();
    for (before, want) in [(0, Verdict::NoRequest), (79, Verdict::NoRequest), (80, Verdict::Ok)] {
        m.imm_bytes.insert(0, before);
        decides(&m, imm(0, 80, REGION), 0, want);
    }
    decides(&m, imm(1, 80, REGION), 0, Verdict::Rnr);
    m.imm_bytes.remove(&0);
    // A write with immediate of no bytes is judged like a message.
    decides(&m, imm(0, 0, REGION), 0, Verdict::Ok);
    decides(&m, imm(1, 0, REGION), 0, Verdict::Rnr);
}

#[test]
fn segments_of_what_was_given_up_belong_to_nobody() {
    let mut m = engine();
    m.cancelled.insert(0);
    decides(&m, imm(0, 80, REGION), 40, Verdict::NoRequest);
    // A single packet carries the whole request: there is nothing to cancel.
    decides(&m, imm(0, 40, REGION), 40, Verdict::Ok);
    let other = m.verdict(PEER, &packet(0, imm(0, 80, REGION), 40), Some(1));
    assert_eq!(other, Some(Verdict::Ok), "another request");
    decides(&m, imm(0, 80, REGION - 1), 40, Verdict::BadRkey);
}

#[test]
fn reservations_are_all_that_may_still_complete() {
    let mut m = engine();
    assert_eq!(m.reserved(), 3, "receives posted");
    (m.sends, m.unreleased) = (5, 2);
    assert_eq!(m.reserved(), 10);
    let c = m.consume(PEER, &to(0), 10, None, false).unwrap();
    assert_eq!(m.reserved(), 9, "until its completion is expected");
    m.expected.push_back(Expected { completion: c, request: Some(1) });
    assert_eq!(m.reserved(), 10);
}

#[test]
fn receives_are_consumed_in_order() {
    let mut m = engine();
    let first = m.consume(PEER, &to(0), 70, None, false).unwrap();
    let want = Completion {
        wr_id: 10,
        status: Status::Ok,
        kind: CompletionKind::Recv(RecvHandle { qp: Qpn(0), index: 0 }),
        qpn: Qpn(0),
        byte_len: 70,
        imm: None,
        src_qpn: Qpn(0x300),
        src_ah: AhId(4),
        src_ip: Some(PEER),
    };
    assert_eq!(first, want);
    let second = m.consume(STRANGER, &to(0), 0, Some(9), true).unwrap();
    let handle = RecvHandle { qp: Qpn(0), index: 1 };
    assert_eq!(second.kind, CompletionKind::RecvRdmaImm(handle));
    assert_eq!((second.wr_id, second.imm), (11, Some(9)));
    assert_eq!(second.src_ah, AhId::UNKNOWN, "no handle names the sender");
    assert_eq!(m.consume(PEER, &to(0), 0, None, false), None, "nothing is left");
    assert_eq!(m.consume(PEER, &to(9), 0, None, false), None, "no such queue pair");
}

#[test]
fn unsolicited_immediates_leave_the_receives_alone() {
    let mut m = engine();
    m.qp(Qpn(0)).unwrap().unsolicited = true;
    let c = m.consume(PEER, &to(0), 4, Some(1), true).unwrap();
    assert_eq!((c.kind, c.wr_id), (CompletionKind::RecvUnsolicited, 0));
    let left: VecDeque<_> = m.qp(Qpn(0)).unwrap().receives.clone();
    assert_eq!(left.len(), 2);
    let c = m.consume(PEER, &to(0), 4, Some(1), false).unwrap();
    assert_eq!(c.wr_id, 10, "a message takes one all the same");
}

#[test]
fn what_is_nobodys_request_is_always_well() {
    let m = engine();
    for body in [Body::Ack, Body::Probe, Body::Tombstone, Body::Cancel { msg_id: 1 }] {
        decides(&m, body, 0, Verdict::Ok);
    }
}
