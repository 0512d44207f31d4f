//! Oracles of what an engine does with a packet: each sees what is wrong, and is content with what
//! is right.

use super::*;
use crate::mirror::QpModel;
use crate::tests::{broken, node, packet, req};
use srd_core::wire::{Message, ReadResp};
use srd_core::{MrKey, QpState, QpType, Qpn, RecvHandle, WrHandle};

/// A datagram of engine 1 with these 100 bytes.
fn gram(owner: Owner, offset: u64) -> Datagram {
    Datagram {
        head: vec![0; 40],
        tail_len: 100,
        content: Some(Content { owner, offset, len: 100 }),
        request: Some(0),
        forged: false,
        src: crate::packet::ip_of(1),
        dst: crate::packet::endpoint_of(0, 0),
        sport: 20_000,
    }
}

/// An engine, and the ledger with a request of 100 bytes.
fn engine(op: Opcode) -> (Node, Ledger) {
    let (_, n, mut led) = node();
    led.reqs.push(req(op, 100));
    (n, led)
}

const WRONG: Option<Oracle> = Some(Oracle::Placement);

#[test]
fn a_write_goes_to_its_address_in_its_region() {
    let placed = |at: u64, change: &dyn Fn(&mut Placement, &mut Datagram)| {
        let (mut n, mut led) = engine(Opcode::Write);
        let (&key, region) = n.mirror.mrs.iter().next().expect("each engine has some");
        let raddr = region.addr + at;
        (led.reqs[0].wr.rkey, led.reqs[0].wr.raddr) = (key, raddr);
        let mut place = Placement { target: Target::Region(MrKey(key)), offset: raddr, len: 100 };
        let mut d = gram(Owner::Request(0), 0);
        change(&mut place, &mut d);
        n.written(&mut led, &d, Some(place), raddr, 100);
        (broken(&mut led), led.reqs[0].placed.total())
    };
    assert_eq!(placed(10, &|_, _| {}), (None, 100));
    let oracle = |change: &dyn Fn(&mut Placement, &mut Datagram)| placed(10, change).0;
    assert_eq!(oracle(&|p, _| p.offset += 1), WRONG, "a byte too far");
    assert_eq!(oracle(&|p, _| p.len -= 1), WRONG, "a byte too few");
    assert_eq!(oracle(&|p, _| p.target = Target::Recv(RecvHandle { qp: Qpn(0), index: 0 })), WRONG);
    let content = |owner, offset, len| Some(Content { owner, offset, len });
    assert_eq!(oracle(&|_, d| d.content = content(Owner::Request(0), 1, 100)), WRONG);
    assert_eq!(oracle(&|_, d| d.content = content(Owner::Request(1), 0, 100)), WRONG);
    assert_eq!(oracle(&|_, d| d.content = content(Owner::Request(0), 0, 99)), WRONG);
    let outside = Some(Oracle::Bounds);
    assert_eq!(placed(1 << 17, &|_, _| {}).0, outside, "behind the end of any region");
    assert_eq!(oracle(&|p, _| p.target = Target::Region(MrKey(u32::MAX))), outside);
}

#[test]
fn a_write_of_no_bytes_is_placed_nowhere() {
    let place = Placement { target: Target::Region(MrKey(1)), offset: 0, len: 0 };
    for (place, right) in [(None, None), (Some(place), WRONG)] {
        let (mut n, mut led) = engine(Opcode::Write);
        n.written(&mut led, &gram(Owner::Request(0), 0), place, 0, 0);
        assert_eq!(broken(&mut led), right, "{place:?}");
    }
    let (mut n, mut led) = engine(Opcode::Write);
    n.written(&mut led, &gram(Owner::Request(0), 0), None, 0, 100);
    assert_eq!(broken(&mut led), WRONG, "accepted, but not placed");
}

/// An answer to a read of 100 bytes from address 5000 of region 0, which is of engine 1.
fn answer(change: impl FnOnce(&mut Node, &mut Ledger, &mut Placement, &mut Datagram)) -> Ledger {
    let (mut n, mut led) = engine(Opcode::Read);
    led.regions = vec![(1, 77), (2, 77), (1, 78)];
    let r = &mut led.reqs[0];
    (r.dst, r.wr.rkey, r.wr.raddr) = (Some(1), 77, 5000);
    n.wrs = vec![Some(0)];
    let mut place = Placement { target: Target::Wr(WrHandle(0)), offset: 0, len: 100 };
    let mut d = gram(Owner::Region(0), 5000);
    change(&mut n, &mut led, &mut place, &mut d);
    let r = ReadResp { msg_id: 0, offset: 0, status: ReadStatus::Ok };
    n.response(&mut led, &d, &r, (Verdict::Ok, Some(place)));
    led
}

#[test]
fn what_a_read_returns_is_of_the_region_that_it_names() {
    let mut led = answer(|_, _, _, _| {});
    assert_eq!((broken(&mut led), led.reqs[0].placed.total()), (None, 100));
    for (region, why) in [(1, "of another engine"), (2, "of another key"), (9, "of nobody")] {
        let from = Some(Content { owner: Owner::Region(region), offset: 5000, len: 100 });
        assert_eq!(broken(&mut answer(|_, _, _, d| d.content = from)), WRONG, "{why}");
    }
    assert_eq!(broken(&mut answer(|_, _, _, d| *d = gram(Owner::Request(0), 5000))), WRONG);
    assert_eq!(broken(&mut answer(|_, _, _, d| *d = gram(Owner::Region(0), 5001))), WRONG);
    assert_eq!(broken(&mut answer(|_, _, p, _| p.offset = 1)), WRONG, "elsewhere");
    assert_eq!(broken(&mut answer(|_, _, p, _| p.len = 99)), WRONG, "not all of it");
    assert_eq!(broken(&mut answer(|_, _, p, _| p.target = Target::Wr(WrHandle(1)))), WRONG);
    assert_eq!(broken(&mut answer(|_, l, _, _| l.reqs[0].wr.op = Opcode::Write)), WRONG);
    assert_eq!(broken(&mut answer(|_, l, _, _| l.reqs[0].state = ReqState::Released)), WRONG);
    let ended = broken(&mut answer(|n, _, _, _| n.wrs.clear()));
    assert_eq!(ended, Some(Oracle::Destroyed), "its read has ended");
}

#[test]
fn a_read_is_told_that_its_region_has_gone_and_places_nothing_then() {
    let (mut n, mut led) = engine(Opcode::Read);
    n.wrs = vec![Some(0)];
    let r = ReadResp { msg_id: 0, offset: 0, status: ReadStatus::RegionGone };
    let d = gram(Owner::Region(0), 0);
    n.response(&mut led, &d, &r, (Verdict::Ok, None));
    assert!(broken(&mut led).is_none() && led.reqs[0].region_gone);
    let place = Placement { target: Target::Wr(WrHandle(0)), offset: 0, len: 100 };
    n.response(&mut led, &d, &r, (Verdict::NoRequest, Some(place)));
    assert_eq!(broken(&mut led), WRONG, "refused, but placed");
}

/// A message to queue pair `to`.
fn message(to: Qpn) -> Body {
    Body::Send(Message { src_qpn: 1, dst_qpn: to.0, qkey: 0x11, msg_id: 5 })
}

#[test]
fn a_message_completes_one_receive_once() {
    let (mut n, mut led) = engine(Opcode::Send);
    let q = &mut n.mirror.qps[0];
    q.receives = [(0, 21, 200), (1, 22, 200)].into();
    let (p, d) = (packet(9, message(q.qpn), 100), gram(Owner::Request(0), 0));
    n.message(&mut led, &d, &p, 100, false);
    assert_eq!((broken(&mut led), n.mirror.expected.len()), (None, 1));
    let first = n.mirror.expected[0];
    assert_eq!(
        (first.request, first.completion.wr_id, first.completion.byte_len),
        (Some(0), 21, 100)
    );
    n.message(&mut led, &d, &p, 100, false);
    assert_eq!(broken(&mut led), Some(Oracle::Receive), "delivered twice");
    n.message(&mut led, &d, &p, 100, false);
    assert_eq!(broken(&mut led), Some(Oracle::Judgment), "no receive is left");
}

#[test]
fn a_datagram_goes_behind_the_room_for_its_header_in_a_receive_that_has_room() {
    let placed = |room: u32, qkey, offset, kind| {
        let (mut n, mut led) = engine(Opcode::Send);
        n.mirror.qps = vec![QpModel {
            qpn: Qpn(3),
            kind,
            state: QpState::Rts,
            qkey,
            pd: 0,
            receives: [(4, 21, room)].into(),
            unsolicited: false,
            rnr_retry: 7,
            sends: 0,
        }];
        let m = Message { src_qpn: 1, dst_qpn: 3, qkey: 0x11, msg_id: 5 };
        let target = Target::Recv(RecvHandle { qp: Qpn(3), index: 4 });
        let place = Placement { target, offset, len: 100 };
        let p = packet(9, Body::Ud(m), 100);
        n.datagram(&mut led, &gram(Owner::Request(0), 0), &p, place);
        broken(&mut led)
    };
    assert_eq!(placed(140, 0x11, 40, QpType::Ud), None);
    assert_eq!(placed(139, 0x11, 40, QpType::Ud), WRONG, "a byte too short");
    assert_eq!(placed(140, 0x12, 40, QpType::Ud), WRONG, "another key");
    assert_eq!(placed(140, 0x11, 0, QpType::Ud), WRONG, "over the header");
    assert_eq!(placed(140, 0x11, 40, QpType::Srd), WRONG, "not for datagrams");
    let (mut n, mut led) = engine(Opcode::Send);
    let target = Target::Wr(WrHandle(0));
    let place = Placement { target, offset: 40, len: 100 };
    let p = packet(9, message(n.mirror.qps[0].qpn), 100);
    n.datagram(&mut led, &gram(Owner::Request(0), 0), &p, place);
    assert_eq!(broken(&mut led), Some(Oracle::Judgment), "reliable packets are judged first");
}

#[test]
fn a_number_is_judged_once_per_context() {
    let (mut n, mut led) = engine(Opcode::Send);
    let peer = crate::packet::endpoint_of(1, 0);
    let mut p = packet(9, message(Qpn(0)), 0);
    n.remember(&mut led, peer, &p, Verdict::Rnr);
    assert_eq!((broken(&mut led), &n.judgments[&peer].owed[..]), (None, &[(9, Verdict::Rnr)][..]));
    n.remember(&mut led, peer, &p, Verdict::Ok);
    assert_eq!(broken(&mut led), Some(Oracle::Judgment), "once more");
    p.header.dst_tag += 1;
    n.remember(&mut led, peer, &p, Verdict::Ok);
    let j = &n.judgments[&peer];
    assert!(broken(&mut led).is_none() && j.owed.is_empty() && j.verdicts.len() == 1, "{j:?}");
}

#[test]
fn deliberate_mistakes_of_copies_are_made_now_and_then() {
    let copied = |tamper, received| {
        let (mut n, mut led) = engine(Opcode::Send);
        (led.tamper, led.tally.received) = (tamper, received);
        n.copy_bytes(&mut led, 0, 0, 100);
        (led.reqs[0].placed.total(), n.late.len(), broken(&mut led))
    };
    assert_eq!(copied(Tamper::None, 16), (100, 0, None));
    assert_eq!(copied(Tamper::CopyDropped, 16), (0, 0, None));
    assert_eq!(copied(Tamper::CopyDropped, 17), (100, 0, None));
    assert_eq!(copied(Tamper::WrongBytes, 16), (0, 0, WRONG));
    assert_eq!(copied(Tamper::CopyLate, 17), (0, 1, None));
}

#[test]
fn only_strangers_may_send_what_cannot_be_read() {
    for (forged, right) in [(true, None), (false, Some(Oracle::Judgment))] {
        let (mut n, mut led) = engine(Opcode::Send);
        let d = Datagram { head: vec![0xEE; 40], forged, ..gram(Owner::Request(0), 0) };
        n.deliver(&mut led, false, &d, (0, 0));
        assert_eq!(broken(&mut led), right, "forged: {forged}");
        assert_eq!(n.counts.0, 0, "no packet for the engine");
    }
}
