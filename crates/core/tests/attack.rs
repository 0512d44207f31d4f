//! What a hostile review found that no other story tells: peers and strangers that keep to the
//! letter of the protocol and take more than their share.

use crate::common::door::*;
use crate::common::puppet;
use crate::common::puppet::Puppet;
use crate::common::*;
use core::net::{IpAddr, Ipv4Addr};
use srd_core::counters::DropReason;
use srd_core::wire::{Body, CloseCode, Message, OpenParams, PacketType, Rdma, ReadReq, Verdict};
use srd_core::*;
use std::collections::BTreeSet;

/// Whoever could forge the address of a peer kept an engine from ever opening a context to it,
/// without a guess: a forged Open in the peer's name was taken for the peer's own, the peer said
/// that it knew nothing of it, and that made the engine draw a new tag, for which the peer's true
/// answer, still under way, was too late. Each round trip anew.
#[test]
fn forged_opens_do_not_keep_peers_apart() {
    let mut p = Pair::new(1);
    p.net.faults.delay_ns = 500_000;
    p.net.hosts[1].recv(p.qp[1], 1, 100);
    let peer = p.net.hosts[1].ip;
    let (mut spoofed, mut took) = (0, Span::ZERO);
    while p.net.hosts[0].sends_done() == 0 {
        spoofed += 1;
        let now = p.net.now;
        p.net.hosts[0].receive(now, &from(peer), &stranger(open(spoofed, 0), 0, 0), &[]);
        p.net.run(Span::from_us(20));
        if spoofed == 520 {
            p.send(0, 1, vec![1; 100]).unwrap();
        }
        took = took + Span::from_us(if spoofed < 520 { 0 } else { 20 });
    }
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok]);
    assert!(took < Span::from_ms(40), "{took:?}");
}

/// The same at the other end: forged Opens in the name of the one that opens, each disowned by it,
/// took turns there, and its own Open had to prove itself against another one each time.
#[test]
fn forged_opens_do_not_keep_out_who_opens() {
    let patient = |i| {
        let mut c = config(i);
        c.loss.open_retry = Span::from_ms(5);
        c.loss.unreachable_after = Span::from_secs(5);
        c
    };
    let mut p = Pair::with(2, vec![patient(0), patient(1)]);
    p.net.faults.delay_ns = 5_000_000;
    p.net.hosts[1].recv(p.qp[1], 1, 100);
    let opener = p.net.hosts[0].ip;
    let mut posted = Time(0);
    for spoofed in 1.. {
        let now = p.net.now;
        p.net.hosts[1].receive(now, &from(opener), &stranger(open(spoofed, 0), 0, 0), &[]);
        p.net.run(Span::from_us(110));
        if spoofed == 300 {
            posted = p.net.now;
            p.send(0, 1, vec![1; 100]).unwrap();
        }
        if p.net.hosts[0].sends_done() > 0 {
            break;
        }
    }
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok]);
    let took = p.net.now.since(posted);
    assert!(took < Span::from_ms(100), "{took:?} with round trips of 10 ms");
}

/// A region of the host behind the door, which knows the hosts `known`.
fn vault(d: &mut Door, known: &[usize]) -> (Qpn, (MrKey, u64)) {
    let qp = d.host.qp(d.now, QpType::Srd, false);
    for &i in known {
        d.host.ah(d.now, ip(i));
    }
    (qp, d.host.region(vec![0; 1 << 20], Access::REMOTE_READ))
}

fn read(qp: Qpn, key: u32, raddr: u64, len: u32) -> Body {
    let msg = Message { src_qpn: 1, dst_qpn: qp.0, qkey: 0x11, msg_id: 1 << 16 };
    Body::ReadReq(msg, ReadReq { rkey: key, raddr, len })
}

/// `n`-th packet of the peer at `ip` within its context.
fn within(d: &mut Door, (ip, slot): (IpAddr, u8), tag: u32, n: u32, body: Body) {
    let mut packet = stranger(body, slot, tag);
    (packet.header.tx_num, packet.header.psn) = (n, n);
    d.host.receive(d.now, &from(ip), &packet, &[]);
}

/// A new context had one guess of a region key for nothing, and a context costs two packets: who
/// closed and opened guessed as fast as packets travel.
#[test]
fn who_begins_anew_guesses_no_faster() {
    let mut d = Door::new(|_| {});
    let (qp, (key, addr)) = vault(&mut d, &[1, 2]);
    let mut rng = Rng::from_seed(9);
    for _ in 0..5_000 {
        let tag = d.open(ip(1), 0, 0).unwrap();
        within(&mut d, (ip(1), 0), tag, 1, read(qp, rng.next_u32(), addr, 1));
        within(&mut d, (ip(1), 0), tag, 2, Body::Close);
        d.host.transmit(d.now);
    }
    assert_eq!(d.contexts(), 0, "each was closed");
    let judged = d.host.engine.counters().rkey_guesses;
    assert!(judged <= 1025, "{judged} guesses were judged");
    // Whoever has not guessed reads as ever.
    let tag = d.open(ip(2), 0, 0).unwrap();
    within(&mut d, (ip(2), 0), tag, 1, read(qp, key.0, addr, 1));
    let out = d.host.transmit(d.now);
    assert!(out.iter().any(|f| f.header.kind == PacketType::ReadResp), "{:?}", out.len());
}

/// A peer that asks a thousand times whether its context is still there was answered a thousand
/// times, before anything else left; and what others were to be told found no room.
#[test]
fn a_peer_that_asks_without_end_is_answered_once() {
    for by_open in [false, true] {
        let mut p = Puppet::new(config(0), |_| {});
        let ah = p.victim.ah(p.now, ip(7));
        let tag = p.tag();
        for cookie in 1..=3_000 {
            if by_open {
                let again = OpenParams {
                    tag: puppet::TAG,
                    incarnation: 77,
                    ..match open(1, 0) {
                        Body::Open(params) => params,
                        _ => unreachable!(),
                    }
                };
                p.say(Body::Open(again), 0, None);
            } else {
                p.say(Body::Challenge { echo_tag: tag, cookie }, 0, None);
            }
        }
        p.victim.post(p.now, p.qp, send_wr(1, ah, Qpn(0), 10), vec![0; 10]).unwrap();
        p.listen();
        let count = |kind| p.heard.iter().filter(|f| f.header.kind == kind).count();
        assert_eq!((count(PacketType::OpenAck), count(PacketType::Open)), (1, 1));
        // The next question is answered again.
        p.heard.clear();
        p.say(Body::Challenge { echo_tag: tag, cookie: 5 }, 0, None);
        p.listen();
        let answer = p.heard.iter().find_map(|f| match f.body {
            Body::OpenAck(a) => Some(a.cookie),
            _ => None,
        });
        assert_eq!(answer, Some(5));
    }
}

/// Those who open and close without end are answered each time, and were answered before any work
/// left: now work has half of what leaves.
#[test]
fn handshakes_do_not_starve_work() {
    let mut d = Door::new(|c| c.rate.burst_bytes = 1 << 20);
    let qp = d.host.qp(d.now, QpType::Srd, false);
    let ah = d.host.ah(d.now, ip(1));
    let tag = d.open(ip(1), 0, 0).unwrap();
    within(&mut d, (ip(1), 0), tag, 1, Body::Probe);
    while !d.host.transmit(d.now).is_empty() {}
    d.now += Span::from_us(100);
    for i in 0..10 {
        d.host.post(d.now, qp, send_wr(i, ah, Qpn(0), 100), vec![0; 100]).unwrap();
    }
    for slot in 1..=100 {
        let body = open(1000 + u32::from(slot), 0);
        d.host.receive(d.now, &from(ip(2)), &stranger(body, slot, 0), &[]);
    }
    let out = d.host.transmit(d.now);
    let count = |kind| out.iter().filter(|f| f.header.kind == kind).count();
    assert_eq!((out.len(), count(PacketType::Send)), (64, 10));
}

/// A packet with the tag of an idle context and numbers that fit nothing leased window state for
/// it, and nothing ever gave that back: such a context was not asked to close when the table was
/// full, however long its peer had gone.
#[test]
fn a_packet_that_fits_nothing_keeps_no_window_state() {
    for far in [1 << 20, 0] {
        let mut p = Puppet::new(config(0), |_| {});
        p.pass(Span::from_secs(2));
        assert!(!p.victim.engine.context_stats()[0].is_active);
        p.say_as(Body::Probe, 0, None, |h| {
            h.psn += far;
            h.tx_num -= u32::from(far == 0);
        });
        let drops = p.victim.engine.counters().drops;
        assert_eq!(drops[DropReason::TooFar as usize] + drops[DropReason::Replay as usize], 1);
        p.pass(Span::from_secs(2));
        assert!(!p.victim.engine.context_stats()[0].is_active);
    }
}

/// What a write with immediate says of its length is what the receiver's completion says. Segments
/// were counted, but the last one, or the immediate that was tried again, could name any length.
#[test]
fn a_write_with_immediate_has_one_length() {
    for posted in [true, false] {
        let mut p = Puppet::new(config(0), |_| {});
        let (key, raddr) = p.victim.region(vec![0; 4096], Access::REMOTE_WRITE);
        let msg = Message { src_qpn: 1, dst_qpn: p.qp.0, qkey: 0x11, msg_id: 1 << 16 };
        let segment = |p: &mut Puppet, at, msg_len, len: u16| {
            let rdma = Rdma { rkey: key.0, raddr: raddr + at };
            p.say(Body::WriteImm { msg, rdma, msg_len, imm: 3 }, len, None);
        };
        if posted {
            p.victim.recv(p.qp, 1, 0);
        }
        segment(&mut p, 0, 2000, 1000);
        segment(&mut p, 1000, if posted { 4_000_000_000 } else { 2000 }, 1000);
        if !posted {
            p.victim.recv(p.qp, 1, 0);
            segment(&mut p, 0, 4_000_000_000, 0);
        }
        p.pass(Span::from_us(50));
        let told = p.heard.iter().filter_map(|f| f.ack.as_ref()).flat_map(|a| &a.verdicts).last();
        assert_eq!(told.map(|e| e.verdict), Some(Verdict::BadLength));
        assert!(p.victim.done.is_empty(), "{:?}", p.victim.done);
        // The truth is still taken.
        if posted {
            segment(&mut p, 1000, 2000, 1000);
        } else {
            segment(&mut p, 0, 2000, 0);
        }
        assert_eq!(p.victim.done.iter().map(|c| c.byte_len).collect::<Vec<_>>(), [2000]);
    }
}

/// Nor could the bytes be more than the region has: the same ones, written over and over, made a
/// message as long as one liked.
#[test]
fn a_write_with_immediate_is_no_longer_than_its_region() {
    let mut p = Puppet::new(config(0), |_| {});
    let (key, raddr) = p.victim.region(vec![0; 1000], Access::REMOTE_WRITE);
    p.victim.recv(p.qp, 1, 0);
    let msg = Message { src_qpn: 1, dst_qpn: p.qp.0, qkey: 0x11, msg_id: 1 << 16 };
    for _ in 0..4 {
        let rdma = Rdma { rkey: key.0, raddr };
        p.say(Body::WriteImm { msg, rdma, msg_len: 4000, imm: 3 }, 1000, None);
    }
    assert!(p.victim.done.is_empty(), "{:?}", p.victim.done);
}

/// A peer that knows our tag before we open can answer an Open that it has not got yet. That made
/// the least round trip to its address that of a function call, for all who send there.
#[test]
fn an_answer_before_its_question_is_no_round_trip() {
    let mut d = Door::new(|_| {});
    let qp = d.host.qp(d.now, QpType::Srd, false);
    let ah = d.host.ah(d.now, ip(1));
    let before = d.host.engine.config().rate.rtt_initial;
    let tag = d.open(ip(1), 0, 0).unwrap();
    d.host.post(d.now, qp, send_wr(1, ah, Qpn(0), 10), vec![0; 10]).unwrap();
    assert_eq!(d.host.engine.context_stats()[0].state, "Opening");
    let Body::Open(params) = open(d.tag, 0) else { unreachable!() };
    let answer = OpenParams { echo_tag: tag, ..params };
    d.now += Span(16);
    d.host.receive(d.now, &from(ip(1)), &stranger(Body::OpenAck(answer), 0, tag), &[]);
    let c = &d.host.engine.context_stats()[0];
    assert_eq!((c.state, c.rtt_ns_min), ("Open", before.0));
}

/// Timers that lose many packets at once did not count them: one call could take as long as there
/// are packets in flight to all peers.
#[test]
fn packets_that_a_timer_loses_are_steps() {
    let mut cfg = config(0);
    cfg.rate.burst_bytes = 1 << 20;
    let mut p = Puppet::new(cfg, |_| {});
    for _ in 0..100 {
        p.post(Opcode::Send, 10);
    }
    p.listen();
    p.now += Span::from_us(5);
    p.post(Opcode::Send, 10);
    p.listen();
    assert_eq!(p.reliable().len(), 101);
    let cum = p.cum;
    p.ack(cum, |a| {
        a.base = cum.wrapping_add(100);
        a.words.push(1);
    });
    let steps = p.victim.engine.counters().timer_steps;
    p.pass(Span::from_us(37));
    let steps = p.victim.engine.counters().timer_steps - steps;
    let again = p.reliable().len();
    assert!(again >= 98, "{again} of 100 were sent again");
    assert!(steps >= 98, "{steps} steps for {again} packets");
}

/// Processes of one host that ask for much and take nothing held every place among the reads that
/// are served for as long as they liked, and all others were told to wait.
#[test]
fn reads_are_shared_among_the_hosts_that_ask() {
    let mut d = Door::new(|c| (c.reads_max, c.reads_per_context_max) = (16, 3));
    let (qp, (key, addr)) = vault(&mut d, &[1, 2, 3]);
    let ask = |d: &mut Door, host, slot| {
        let tag = d.open(ip(host), slot, 0).unwrap();
        let mut busy = BTreeSet::new();
        for n in 1..=20 {
            within(d, (ip(host), slot), tag, n, read(qp, key.0, addr, 1 << 20));
            let out = d.host.transmit(d.now);
            let acks = out.iter().filter_map(|f| f.ack.as_ref());
            busy.extend(acks.flat_map(|a| &a.verdicts).flat_map(|e| e.psns()));
        }
        20 - busy.len()
    };
    let who = [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)];
    let served = who.map(|(host, slot)| ask(&mut d, host, slot));
    assert_eq!(served, [6, 2, 0, 4, 2, 0]);
    // Places of processes that have gone are free again.
    for slot in 0..2 {
        let Err(Some(cookie)) = d.open(ip(1), slot, 0) else { panic!("a new life") };
        d.tag -= 1;
        d.open(ip(1), slot, cookie).unwrap();
    }
    assert_eq!(ask(&mut d, 3, 2), 4);
}

/// An answer to a question whether the context is still there, overtaken by what left after it,
/// moved the replay window back: what had been taken since was taken once more, and datagrams with
/// it.
#[test]
fn a_late_answer_lets_nothing_in_twice() {
    let mut p = Puppet::new(config(0), |_| {});
    let qp = p.victim.qp(p.now, QpType::Ud, false);
    for i in 0..4 {
        p.victim.recv(qp, i, 100);
    }
    let reset = Body::Reset { echo_tag: puppet::TAG, code: CloseCode::UnknownTag, nonce: 0 };
    p.say(reset, 0, None);
    p.listen();
    let asked = p.heard.iter().find_map(|f| match f.body {
        Body::Challenge { cookie, .. } => Some((cookie, f.header)),
        _ => None,
    });
    let (cookie, echo_tag) = (asked.unwrap().0, p.tag());
    let mut taken = 0;
    p.say_as(Body::Probe, 0, None, |h| taken = h.tx_num);
    let Body::Open(params) = open(puppet::TAG, cookie) else { unreachable!() };
    let answer = OpenParams { incarnation: 77, echo_tag, tx_num_start: taken.into(), ..params };
    let msg = Message { src_qpn: 1, dst_qpn: qp.0, qkey: 0x11, msg_id: 0 };
    p.say(Body::Ud(msg), 10, None);
    p.say(Body::OpenAck(answer), 0, None);
    assert_eq!(p.victim.engine.counters().doubts_refuted, 1);
    p.say_as(Body::Ud(msg), 10, None, |h| h.tx_num = taken + 1);
    assert_eq!(p.victim.received.len(), 1);
}

/// A peer in doubt that was heard a while after the question was forgotten when its silence had
/// lasted half as long as any peer is given.
#[test]
fn a_doubt_makes_no_silence_shorter() {
    let mut p = Puppet::new(config(0), |_| {});
    let reset = Body::Reset { echo_tag: puppet::TAG, code: CloseCode::UnknownTag, nonce: 0 };
    p.say(reset, 0, None);
    assert_eq!(p.victim.engine.counters().doubts, 1);
    p.pass(Span::from_ms(80));
    p.say(Body::Probe, 0, None);
    p.pass(Span::from_ms(190));
    assert_eq!(p.victim.engine.counters().contexts_forgotten, 0);
    p.pass(Span::from_ms(20));
    assert_eq!(p.victim.engine.counters().contexts_forgotten, 1);
}

/// Where a network may have few contexts, forged Opens had them all, and its honest hosts none.
#[test]
fn forged_opens_leave_room_in_a_small_network() {
    let mut d = Door::new(|c| c.inbound_per_prefix_max = 100);
    for slot in 0..4 {
        for host in 0..=255 {
            let _ = d.open(Ipv4Addr::new(10, 9, 9, host).into(), slot, 0);
        }
    }
    assert!(d.enter(Ipv4Addr::new(10, 9, 9, 9).into(), 77), "{} contexts", d.contexts());
}
