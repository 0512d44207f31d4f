//! Forgers who do not see the traffic, as small stories: what one packet, or a flood of them, may
//! not do. Where a story needs a number that a forger has to guess, the guess is granted.

use crate::common::door::*;
use crate::common::puppet;
use crate::common::*;
use core::net::{IpAddr, Ipv4Addr};
use srd_core::wire::{Body, CloseCode, Message, OpenParams, PacketType};
use srd_core::*;

/// Two hosts, of which the first sends to the second and is answered.
fn at_work(seed: u64) -> Pair {
    let mut p = Pair::new(seed);
    for i in 0..4_000 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    p.work(10);
    p
}

fn is_reset(e: &AsyncEvent) -> bool {
    matches!(e, AsyncEvent::PeerReset(_))
}

fn reset(echo_tag: u32, code: CloseCode, nonce: u64) -> Body {
    Body::Reset { echo_tag, code, nonce }
}

/// One packet with the right tag ended a context and all its work with status 8. Now it is a reason
/// to ask the peer, and the peer contradicts. Guesses at the secret number of the question fail.
#[test]
fn a_reset_alone_ends_nothing() {
    let mut p = at_work(1);
    for i in 0..20 {
        p.send(0, i, vec![1; 500]).unwrap();
    }
    let tag = p.net.tag_for(0);
    let mut rng = Rng::from_seed(9);
    for i in 0..2_000 {
        let nonce = if i % 2 == 0 { 0 } else { rng.next_u64() };
        p.net.forge((1, 0), reset(tag, CloseCode::UnknownTag, nonce), |h| h.dst_tag = 0);
        if i % 100 == 0 {
            p.net.run(Span::from_us(7));
        }
    }
    let n = p.net.hosts[0].sends_done();
    assert!(p.net.run_until(Span::from_ms(100), |net| net.hosts[0].sends_done() >= 30), "{n}");
    p.work(10);
    assert!(!p.net.hosts[0].events.iter().any(is_reset));
    let c = *p.net.hosts[0].engine.counters();
    assert_eq!((c.contexts_closed, c.doubts, c.doubts_refuted), (0, 1, 1));
    assert!(c.challenges_sent < 10, "a flood of Resets makes {} questions", c.challenges_sent);
}

/// The same with the packet of an engine that goes away, which shows both tags: who is still there
/// contradicts, and who is gone does not.
#[test]
fn a_goodbye_is_believed_when_silence_follows() {
    for gone in [false, true] {
        let mut p = at_work(2);
        let tag = p.net.tag_for(0);
        p.net.faults.killed = if gone { vec![1] } else { vec![] };
        for i in 0..20 {
            p.send(0, i, vec![1; 500]).unwrap();
        }
        p.net.run(Span::from_us(20));
        p.net.forge((1, 0), reset(tag, CloseCode::GoingAway, 0), |_| {});
        let ended = p.net.run_until(Span::from_ms(5), |net| net.hosts[0].sends_done() == 30);
        assert!(ended);
        let fine = p.net.hosts[0].statuses().iter().filter(|s| **s == Status::Ok).count();
        assert_eq!(fine, if gone { 10 } else { 30 });
        let aborted = |s: &Status| *s == Status::RemoteAbort;
        assert_eq!(p.net.hosts[0].statuses().iter().any(aborted), gone);
        assert_eq!(p.net.hosts[0].events.iter().any(is_reset), gone);
    }
}

/// A peer that has lost the context proves it with the number that it was asked with: a round trip
/// more than before, not a timeout.
#[test]
fn a_peer_that_forgot_proves_it_at_once() {
    let mut p = at_work(3);
    p.net.restart(1, 77);
    let now = p.net.now;
    p.qp[1] = p.net.hosts[1].qp(now, QpType::Srd, false);
    p.send(0, 1, vec![1; 500]).unwrap();
    assert!(p.net.run_until(Span::from_us(100), |net| net.hosts[0].sends_done() == 11));
    assert_eq!(p.net.hosts[0].statuses().pop(), Some(Status::RemoteAbort));
    assert!(p.net.hosts[0].events.iter().any(is_reset));
}

/// One packet with a transmission number far ahead moved the replay window away from its peer for
/// ever: everything that the peer sent was an old number.
#[test]
fn one_number_far_ahead_locks_nobody_out() {
    for far in [9_000, 1 << 20, (1 << 31) - 1] {
        let mut p = at_work(4);
        p.net.forge((0, 1), Body::Probe, |h| h.tx_num = h.tx_num.wrapping_add(far));
        p.work(100);
        assert_eq!(p.net.hosts[1].engine.counters().doubts, 0);
    }
}

/// Two neighbouring ones did, and the second was delivered: a forger who had guessed tag and PSN
/// had no number to guess besides. Now no number of that kind is taken, however many come; the peer
/// is asked for its own, which is the one that was expected.
#[test]
fn numbers_far_ahead_spare_no_guess() {
    let mut p = at_work(5);
    let now = p.net.now;
    let qp = p.net.hosts[1].qp(now, QpType::Ud, false);
    (0..50).for_each(|i| p.net.hosts[1].recv(qp, i, 500));
    let message = Message { src_qpn: 1, dst_qpn: qp.0, qkey: 0x11, msg_id: 9 };
    let before = p.net.hosts[1].done.len();
    for k in 0..50 {
        let body = if k % 3 == 0 { Body::Probe } else { Body::Ud(message) };
        let far = (1 << 20) + if k < 25 { k } else { (k - 25) << 14 };
        p.net.forge((0, 1), body, |h| h.tx_num = h.tx_num.wrapping_add(far));
    }
    assert_eq!(p.net.hosts[1].done.len(), before, "a forged datagram was delivered");
    p.work(1_000);
    let c = p.net.hosts[1].engine.counters();
    assert_eq!((c.doubts, c.doubts_refuted), (1, 1));
    let path_alone = |e: &AsyncEvent| matches!(e, AsyncEvent::PathChanged(..));
    assert!(p.net.hosts[0].events.iter().all(path_alone), "{:?}", p.net.hosts[0].events);
}

/// After an outage in which more packets were lost than the window holds, the numbers of an honest
/// peer are far ahead. With the second one it is asked, and what it proves lets it in.
#[test]
fn after_a_long_outage_the_peer_is_heard() {
    let mut p = puppet::Puppet::new(config(0), |_| {});
    p.lose(20_000);
    for _ in 0..2 {
        assert!(p.heard.is_empty());
        p.say(Body::Probe, 0, None);
        p.pass(Span::from_us(10));
    }
    let asked = p.heard.iter().find_map(|f| match f.body {
        Body::Challenge { cookie, .. } => Some(cookie),
        _ => None,
    });
    p.heard.clear();
    p.refute(asked.expect("the second number is a reason to ask"));
    p.say(Body::Probe, 0, None);
    p.pass(Span::from_us(10));
    assert!(p.heard.iter().any(|f| f.header.kind == PacketType::Ack));
}

/// Packets with tags that nobody has were answered one by one, before anything else left.
#[test]
fn resets_to_strangers_are_few_and_leave_last() {
    let mut p = at_work(6);
    let now = p.net.now;
    let other = p.net.hosts[0].ah(now, ip(7));
    let flood = |host: &mut Host, now| {
        for i in 0..5_000u32 {
            let src = Ipv4Addr::from(0x0B00_0000 + i).into();
            host.receive(now, &from(src), &stranger(Body::Probe, 0, 0xDEAD_0000 + i), &[]);
        }
    };
    for i in 0..20 {
        p.send(0, i, vec![1; 500]).unwrap();
    }
    flood(&mut p.net.hosts[0], now);
    let wr = send_wr(1, other, Qpn(0), 10);
    p.net.hosts[0].post(now, p.qp[0], wr, vec![0; 10]).unwrap();
    let mut sent = vec![];
    loop {
        let out = p.net.hosts[0].transmit(now);
        if out.is_empty() {
            break;
        }
        sent.extend(out.into_iter().map(|f| f.header.kind));
    }
    let first = sent.iter().position(|k| *k == PacketType::Reset).unwrap();
    let place = |kind| sent.iter().rposition(|k| *k == kind).unwrap();
    assert!(place(PacketType::Open) < first && place(PacketType::Send) < first, "{sent:?}");
    // So many at once, and 10,000 a second.
    let mut resets = p.net.hosts[0].engine.counters().resets_sent;
    assert_eq!(resets, u64::from(limits::STRANGER_RESETS_MAX));
    for _ in 0..10 {
        p.net.run(Span::from_ms(1));
        let now = p.net.now;
        flood(&mut p.net.hosts[0], now);
    }
    resets = p.net.hosts[0].engine.counters().resets_sent - resets;
    assert!((90..=100).contains(&resets), "{resets} in 10 ms");
}

/// All strangers shared one rate, so an address that flooded kept all others from an answer.
#[test]
fn one_address_that_floods_keeps_no_other_from_its_answer() {
    let mut p = at_work(6);
    let flooder: IpAddr = Ipv4Addr::from(0x0B00_0001).into();
    let endpoint = |ip| Endpoint { ip, port: 9 };
    let mut unanswered: Vec<u32> = (0x0C00_0000..0x0C00_0100).collect();
    let asked = unanswered.len();
    // Each honest stranger asks once each second or so, as one does that opens a context.
    for second in 0..3 {
        unanswered.retain(|&stranger| {
            p.net.run(Span::from_ms(3));
            let now = p.net.now;
            let engine = &mut p.net.hosts[0].engine;
            let honest = Ipv4Addr::from(stranger).into();
            for i in 0..200 {
                engine.seal_refuse(now, endpoint(flooder), 77 + i, CloseCode::KeyUnknown);
            }
            engine.seal_refuse(now, endpoint(honest), 7, CloseCode::KeyUnknown);
            let told = |f: &Flying| (f.dst.ip, f.header.kind) == (honest, PacketType::Reset);
            let host = &mut p.net.hosts[0];
            let batches = std::iter::from_fn(|| Some(host.transmit(now)).filter(|b| !b.is_empty()));
            let frames: Vec<Flying> = batches.flatten().collect();
            assert!(frames.iter().any(|f| f.dst.ip == flooder), "what is left over is for all");
            !frames.iter().any(told)
        });
        assert!(unanswered.len() < asked / 16, "{unanswered:x?} in second {second}");
        p.net.run(Span::from_secs(1));
    }
    assert_eq!(unanswered, Vec::<u32>::new());
}

/// Opens with forged addresses filled three quarters of the table.
#[test]
fn forged_opens_do_not_fill_the_table() {
    let mut d = Door::new(|_| {});
    for i in 0..50_000 {
        let _ = d.open(network(i), 0, 0);
    }
    assert_eq!(d.contexts(), 1024);
    // Who receives at its address gets in.
    assert!(d.enter(ip(3), 0) && d.enter(ip(3), 1));
    assert_eq!(d.contexts(), 1026);
    // And when the flood is over, its contexts go.
    d.now += Span::from_ms(101);
    while d.host.engine.next_timeout() <= d.now {
        d.host.engine.handle_timeout(d.now);
        d.host.transmit(d.now);
    }
    assert_eq!(d.contexts(), 2);
    assert!(d.open(network(1), 0, 0).is_ok(), "nobody else has to prove anything");
}

/// Forged addresses of one network make that network prove its addresses, and nobody else.
#[test]
fn forged_opens_of_one_network_are_its_own_trouble() {
    let mut d = Door::new(|_| {});
    for slot in 0..8 {
        for host in 0..=255 {
            let _ = d.open(Ipv4Addr::new(10, 9, 9, host).into(), slot, 0);
        }
    }
    assert_eq!(d.contexts(), 256);
    assert!(d.open(network(1), 0, 0).is_ok());
    assert!(d.enter(Ipv4Addr::new(10, 9, 9, 9).into(), 77), "the network itself gets in, too");
}

/// Who really has all addresses of a network has a quarter of the table. Contexts that are not used
/// make room.
#[test]
fn one_network_does_not_hold_the_table() {
    let mut d = Door::new(|c| c.inbound_per_prefix_max = 100);
    let entered = (0..=255).filter(|&i| d.enter(Ipv4Addr::new(10, 9, 9, i).into(), 0)).count();
    assert_eq!((entered, d.contexts()), (100, 100));
    assert!(d.enter(network(1), 0));
    // The same in an IPv6 /64.
    let v6 = |i: u16| core::net::Ipv6Addr::new(0xFD00, 0, 0, 7, i, 2, 3, i).into();
    assert_eq!((0..300).filter(|&i| d.enter(v6(i), 0)).count(), 100);
    // Idle contexts are asked to close, and make room for others of their network.
    let mut d = Door::new(|c| {
        c.inbound_per_prefix_max = 4;
        c.idle_after = Span::from_us(100);
    });
    for i in 0..4 {
        assert!(d.enter(Ipv4Addr::new(10, 9, 9, i).into(), 0));
    }
    for _ in 0..200 {
        d.now += Span::from_ms(1);
        d.host.engine.handle_timeout(d.now);
        d.host.transmit(d.now);
    }
    let mut tries = 0;
    while !d.enter(Ipv4Addr::new(10, 9, 9, 200).into(), 0) {
        tries += 1;
        assert!(tries < 50, "{:#?}", d.host.engine.context_stats());
        d.now += Span::from_ms(10);
        d.host.engine.handle_timeout(d.now);
        d.host.transmit(d.now);
    }
}

/// A late copy of an Open made a context that nobody confirmed. The next real Open of that peer, or
/// its word that it knows no such context, was told as the restart of a peer.
#[test]
fn a_stale_open_is_no_restart() {
    for by_reset in [false, true] {
        let mut d = Door::new(|_| {});
        let tag = d.open(ip(3), 0, 0).unwrap();
        assert_ne!(tag, 0);
        if by_reset {
            let body = reset(d.tag, CloseCode::UnknownTag, 0);
            d.host.receive(d.now, &from(ip(3)), &stranger(body, 0, 0), &[]);
            assert_eq!(d.contexts(), 1);
        }
        assert!(d.enter(ip(3), 0));
        assert_eq!(d.contexts(), 1);
        assert_eq!(d.host.events, [], "by reset: {by_reset}");
    }
}

/// What an Open must offer was not asked of its answer.
#[test]
fn an_answer_that_offers_nothing_is_none() {
    for (window, mtu) in [(0, 1024), (4096, 0), (8, 1024), (u16::MAX, 1024), (4096, 63)] {
        let now = Time(1_000_000);
        let mut host = Host::new(config(0), 4, now);
        let (qp, ah) = (host.qp(now, QpType::Srd, false), host.ah(now, ip(1)));
        host.post(now, qp, send_wr(1, ah, Qpn(0), 10), vec![0; 10]).unwrap();
        let own = host.transmit(now).iter().find_map(|f| match f.body {
            Body::Open(p) => Some(p),
            _ => None,
        });
        let own = own.unwrap();
        let params = OpenParams { tag: 7, echo_tag: own.tag, window, mtu, ..own };
        host.receive(now, &from(ip(1)), &stranger(Body::OpenAck(params), 0, own.tag), &[]);
        assert_eq!(host.engine.context_stats()[0].state, "Opening", "{window} {mtu}");
    }
}
