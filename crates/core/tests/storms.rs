//! Peers that ask, open, close and give up without end, and what that costs those beside them.

use crate::common::door::*;
use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::counters::DropReason;
use srd_core::wire::{Body, Message, OpenParams, ReadReq};
use srd_core::*;

/// A peer that we open a context to may ask for a proof. Each cookie was answered with an Open at
/// once: so many that what others were to be told found no room.
#[test]
fn a_peer_that_challenges_without_end_is_opened_to_once() {
    let mut d = Door::new(|_| {});
    let qp = d.host.qp(d.now, QpType::Srd, false);
    let (liar, honest) = (d.host.ah(d.now, ip(1)), d.host.ah(d.now, ip(7)));
    d.host.post(d.now, qp, send_wr(1, liar, Qpn(0), 10), vec![0; 10]).unwrap();
    let tag = d
        .host
        .transmit(d.now)
        .iter()
        .find_map(|f| match f.body {
            Body::Open(p) => Some(p.tag),
            _ => None,
        })
        .unwrap();
    for cookie in 1..=3_000 {
        let ask = stranger(Body::Challenge { echo_tag: tag, cookie }, 0, tag);
        d.host.receive(d.now, &from(ip(1)), &ask, &[]);
    }
    d.host.post(d.now, qp, send_wr(2, honest, Qpn(0), 10), vec![0; 10]).unwrap();
    let mut out = vec![];
    loop {
        let more = d.host.transmit(d.now);
        if more.is_empty() {
            break;
        }
        out.extend(more);
    }
    let opens = |to: usize| out.iter().filter(|f| f.dst.ip == ip(to)).count();
    assert_eq!((opens(1), opens(7)), (1, 1));
    // The last cookie is answered, a little later.
    let due = d.host.engine.next_timeout();
    assert!(due <= d.now + d.host.engine.config().loss.open_retry, "{due:?}");
    d.host.engine.handle_timeout(due);
    let cookies: Vec<_> =
        d.host.transmit(due).iter().filter(|f| f.dst.ip == ip(1)).map(|f| f.body).collect();
    assert!(matches!(cookies[..], [Body::Open(OpenParams { cookie: 3_000, .. })]), "{cookies:?}");
}

/// A forged Open in our own name, and then a request to ourselves.
#[test]
fn an_open_in_our_own_name_does_not_keep_us_from_ourselves() {
    let mut n = Net::new(3, vec![config(0)]);
    let now = n.now;
    let me = n.hosts[0].ip;
    let qp = n.hosts[0].qp(now, QpType::Srd, false);
    let ah = n.hosts[0].ah(now, me);
    n.hosts[0].recv(qp, 1, 100);
    n.hosts[0].receive(now, &from(me), &stranger(open(77, 0), 0, 0), &[]);
    n.hosts[0].post(now, qp, send_wr(1, ah, qp, 10), vec![0; 10]).unwrap();
    let done = n.run_until(Span::from_ms(90), |n| n.hosts[0].sends_done() == 1);
    assert!(done, "{:?}", n.hosts[0].engine.context_stats());
    assert_eq!(n.hosts[0].statuses(), [Status::Ok]);
}

/// Cancels of messages that never were, behind a gap: each was kept, 32 KiB of them, and each
/// segment of a write with immediate was compared with them all.
#[test]
fn messages_given_up_behind_a_gap_are_few() {
    let mut p = Puppet::new(config(0), |_| {});
    let held = |p: &Puppet| p.victim.engine.context_stats()[0].held_bytes;
    let before = held(&p);
    let cancel = |p: &mut Puppet, n: u32, after: u32| {
        p.say_as(Body::Cancel { msg_id: n << 16 }, 0, None, |h| h.psn += after);
    };
    for n in 0..900 {
        cancel(&mut p, n, 1);
    }
    let drops = |p: &Puppet| p.victim.engine.counters().drops[DropReason::TooFar as usize];
    assert_eq!(drops(&p), 900 - limits::CANCELLED_MAX as u64);
    assert!(held(&p) - before <= 2048 + 64, "{} bytes", held(&p) - before);
    // What was dropped was not acknowledged, and what was taken is in mind.
    p.listen();
    let ack = p.heard.iter().filter_map(|f| f.ack.as_ref()).next_back().unwrap();
    let arrived: u32 = ack.words.iter().map(|w| w.count_ones()).sum();
    assert_eq!(arrived, limits::CANCELLED_MAX as u32);
    // The gap closes: there is room again.
    p.say_as(Body::Probe, 0, None, |_| {});
    p.say_as(Body::Tombstone, 0, None, |h| h.psn -= 900);
    let before = drops(&p);
    cancel(&mut p, 77_777, 0);
    assert_eq!(drops(&p), before);
}

/// An engine that goes away asks its peers to close. One that agreed while it was still served a
/// read, with new work posted meanwhile, made the engine begin anew with packets under way that
/// belonged to nobody: an assertion in tests, else bytes in flight and a read for ever.
#[test]
fn who_agrees_to_close_in_mid_read_gets_no_more_of_it() {
    let mut p = Puppet::new(config(0), |_| {});
    let (key, raddr) = p.victim.region(vec![0; 1 << 20], Access::REMOTE_READ);
    let msg = Message { src_qpn: 1, dst_qpn: p.qp.0, qkey: 0x11, msg_id: 1 << 16 };
    p.say(Body::ReadReq(msg, ReadReq { rkey: key.0, raddr, len: 1 << 20 }), 0, None);
    p.listen();
    assert_eq!(p.victim.engine.peace_make(p.now), 1);
    p.post(Opcode::Send, 10);
    p.say(Body::CloseAck, 0, None);
    let c = &p.victim.engine.context_stats()[0];
    assert_eq!((c.state, c.outstanding), ("Opening", 1));
    assert_eq!((c.reads_served, c.packets_in_flight, c.inflight_bytes), (0, 0, 0));
    p.pass(Span::from_ms(500));
    assert_eq!(p.victim.statuses(), [Status::LocalUnreachRemote]);
    assert!(p.victim.engine.context_stats().is_empty());
}
