//! Contexts whose driver seals, as the engine sees them: what is not marked as sealed changes
//! nothing. The network of these tests marks what the engines send, as a driver does that has
//! opened it, and a forger's packets lack the mark.

use crate::common::door::{from, open, stranger};
use crate::common::*;
use srd_core::counters::DropReason;
use srd_core::wire::{Body, CloseCode, Flags, OpenParams, Packet};
use srd_core::*;

fn sealing() -> Pair {
    let configs = (0..2).map(|i| EngineConfig { seals: true, ..config(i) }).collect();
    let mut p = Pair::with(5, configs);
    p.net.faults.marks = Flags::SEALED;
    p.net.hosts.iter().for_each(|h| assert!(h.engine.config().seals));
    for i in 0..400 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    p.work(10);
    p
}

fn drops(p: &Pair, reason: DropReason) -> u64 {
    p.net.hosts[0].engine.counters().drops[reason as usize]
}

#[test]
fn a_sealed_context_is_known_as_one_and_needs_no_checksum() {
    let p = sealing();
    for host in &p.net.hosts {
        let stats = host.engine.context_stats();
        assert!(stats.len() == 1 && stats[0].sealed && !stats[0].checked);
    }
}

#[test]
fn a_packet_without_the_mark_changes_nothing() {
    let mut p = sealing();
    let bodies = [Body::Close, Body::CloseAck, Body::Ack, Body::Probe];
    for body in bodies {
        let before = drops(&p, DropReason::Unsealed);
        p.net.forge((1, 0), body, |_| {});
        p.net.run(Span::from_us(50));
        assert_eq!(drops(&p, DropReason::Unsealed), before + 1, "{body:?}");
    }
    p.work(10);
    assert_eq!(p.net.hosts[0].engine.counters().contexts_closed, 0);
}

#[test]
fn a_reset_without_the_mark_only_asks_whatever_it_knows() {
    let mut p = sealing();
    let tag = p.net.tag_for(0);
    for i in 0..20 {
        p.send(0, i, vec![1; 500]).unwrap();
    }
    for code in [CloseCode::UnknownTag, CloseCode::GoingAway] {
        for nonce in 0..200 {
            p.net.forge((1, 0), Body::Reset { echo_tag: tag, code, nonce }, |_| {});
            p.net.run(Span::from_us(3));
        }
    }
    assert!(p.net.run_until(Span::from_ms(150), |net| net.hosts[0].sends_done() == 30));
    assert!(p.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
    let c = *p.net.hosts[0].engine.counters();
    assert_eq!((c.contexts_closed, c.doubts - c.doubts_refuted), (0, 0));
}

/// A packet of the peer that is under way would withdraw the Close, and the peer could agree to it
/// all the same: its next request would end as if the context had been lost.
#[test]
fn a_context_is_closed_for_another_key_when_it_rests() {
    let mut p = sealing();
    let tag = p.net.tag_for(1);
    let stats = |p: &Pair| p.net.hosts[0].engine.context_stats()[0];
    assert!(stats(&p).is_active && stats(&p).outstanding == 0, "between two requests");
    let now = p.net.now;
    p.net.hosts[0].engine.context_close(now, tag);
    assert_eq!(stats(&p).state, "Open");
    p.work(10);
    let limit = p.net.hosts[0].engine.config().idle_after.scale(20, 1);
    assert!(p.net.run_until(limit, |net| !net.hosts[0].engine.context_stats()[0].is_active));
    let now = p.net.now;
    p.net.hosts[0].engine.context_close(now, tag);
    assert_eq!(stats(&p).state, "Closing");
    assert!(p.net.run_until(limit, |net| net.hosts[0].engine.context_stats().is_empty()));
    p.work(10);
}

/// Closed for another key were only contexts that had rested for half a second, so a program with
/// shorter pauses kept its old key until it was ended.
#[test]
fn a_short_pause_is_enough_to_be_closed_for_another_key() {
    let mut p = sealing();
    let tag = p.net.tag_for(1);
    let state = |p: &Pair| p.net.hosts[0].engine.context_stats()[0].state;
    p.net.run(Span::from_ms(25));
    assert!(p.net.hosts[0].engine.context_stats()[0].is_active, "it has not rested for long");
    let now = p.net.now;
    p.net.hosts[0].engine.context_close(now, tag);
    assert_eq!(state(&p), "Closing");
    // Work that comes meanwhile waits for the next context, and none of it is lost.
    p.work(10);
    assert!(p.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
    assert_eq!(p.net.hosts[0].engine.counters().contexts_opened, 2, "opened anew");
}

/// A Close was withdrawn when work of ours came, and the acknowledgment of that work, which was
/// sent later, comes first: to agree to the Close then would leave the peer with half a context.
#[test]
fn a_close_that_a_later_packet_has_overtaken_is_not_agreed_to() {
    let mut p = Pair::new(9);
    p.net.hosts[1].recv(p.qp[1], 0, 500);
    p.send(0, 0, vec![1; 500]).unwrap();
    assert!(p.net.run_until(Span::from_ms(50), |net| net.hosts[0].sends_done() == 1));
    let closed = |p: &Pair| p.net.hosts[1].engine.counters().contexts_closed;
    p.net.forge((0, 1), Body::Probe, |h| h.tx_num += 9);
    p.net.forge((0, 1), Body::Close, |h| h.tx_num += 7);
    assert_eq!(closed(&p), 0, "overtaken");
    p.net.forge((0, 1), Body::Close, |h| h.tx_num += 10);
    assert_eq!(closed(&p), 1, "the newest of its sender");
}

/// A host that opens to nobody, the tag of its Open, and the time.
fn opening() -> (Host, u32, Time) {
    let (now, mut cfg) = (Time(1_000_000), config(0));
    cfg.loss.unreachable_after = Span::from_secs(20);
    let mut host = Host::new(cfg, 3, now);
    let (qp, ah) = (host.qp(now, QpType::Srd, false), host.ah(now, ip(7)));
    host.post(now, qp, send_wr(1, ah, Qpn(0), 10), vec![0; 10]).unwrap();
    let tag = host.transmit(now).iter().find_map(|f| match f.body {
        Body::Open(p) => Some(p.tag),
        _ => None,
    });
    (host, tag.unwrap(), now)
}

/// When the request of a host ends, after the Open's refusal with `code` for the tag `dst_tag`.
fn refused_after(code: CloseCode, other_tag: bool) -> (Span, Vec<Status>) {
    let (mut host, tag, began) = opening();
    let body = Body::Reset { echo_tag: 0, code, nonce: 0 };
    let reset = stranger(body, 0, tag.wrapping_add(u32::from(other_tag)));
    host.receive(began, &from(ip(7)), &reset, &[]);
    let mut now = began;
    while host.statuses().is_empty() {
        now += Span::from_ms(10);
        host.engine.handle_timeout(now);
        host.transmit(now);
        host.collect();
        assert!(now.since(began) < Span::from_secs(60));
    }
    (now.since(began), host.statuses())
}

#[test]
fn who_is_refused_by_its_seal_waits_less_and_others_do_not() {
    let (soon, late) = (limits::REFUSED_AFTER, Span::from_secs(20));
    let within = |after: Span, wanted: Span| after >= wanted && after < wanted + Span::from_secs(1);
    for code in [CloseCode::SealRequired, CloseCode::SealUnknown, CloseCode::KeyUnknown] {
        let (after, statuses) = refused_after(code, false);
        assert!(within(after, soon), "{code:?}: {after:?}");
        assert_eq!(statuses, [Status::LocalUnreachRemote]);
        assert!(within(refused_after(code, true).0, late), "of another context: {code:?}");
    }
    assert!(within(refused_after(CloseCode::NoRoom, false).0, late), "room may come");
}

/// The driver has another key: the Open leaves at once with another tag, and a refusal of the old
/// one is forgotten.
#[test]
fn an_open_without_an_answer_is_begun_anew_for_another_key() {
    let (mut host, tag, began) = opening();
    let body = Body::Reset { echo_tag: 0, code: CloseCode::KeyUnknown, nonce: 0 };
    host.receive(began, &from(ip(7)), &stranger(body, 0, tag), &[]);
    let now = began + Span::from_us(10);
    assert!(!host.engine.context_open_anew(now, tag.wrapping_add(1)), "nobody has this tag");
    assert!(host.engine.context_open_anew(now, tag));
    assert!(!host.engine.has_context(tag));
    let opens = host.transmit(now);
    let again = opens.iter().find_map(|f| match f.body {
        Body::Open(p) => Some(p.tag),
        _ => None,
    });
    assert!(again.is_some_and(|again| again != tag && host.engine.has_context(again)));
    let mut now = now;
    while host.statuses().is_empty() {
        now += Span::from_ms(10);
        host.engine.handle_timeout(now);
        host.transmit(now);
        host.collect();
        assert!(now.since(began) < Span::from_secs(60));
    }
    assert!(now.since(began) >= Span::from_secs(20), "the new Open has its whole time");
}

#[test]
fn a_context_whose_peer_has_answered_is_not_opened_anew() {
    let mut p = sealing();
    let (tag, now) = (p.net.tag_for(1), p.net.now);
    assert!(!p.net.hosts[0].engine.context_open_anew(now, tag));
    p.work(10);
    assert_eq!(p.net.hosts[0].engine.counters().contexts_closed, 0);
}

/// A host that opens to a peer, and has answered the peer's own Open, when its driver has another
/// key: the tag of its Open, and the time.
fn crossing() -> (Host, u32, Time) {
    let (mut host, tag, now) = opening();
    host.receive(now, &from(ip(7)), &stranger(open(77, 0), 0, 0), &[]);
    assert_eq!(told(&mut host, now).1, Some(tag), "answered");
    assert!(!host.engine.context_open_anew(now, tag), "the answer may be under way");
    (host, tag, now)
}

/// The tags in the Open and in the OpenAck that a host sends now.
fn told(host: &mut Host, now: Time) -> (Option<u32>, Option<u32>) {
    let out = host.transmit(now);
    let open = out.iter().find_map(|f| match f.body {
        Body::Open(p) => Some(p.tag),
        _ => None,
    });
    let ack = out.iter().find_map(|f| match f.body {
        Body::OpenAck(p) => Some(p.tag),
        _ => None,
    });
    (open, ack)
}

/// Both sides had begun, and each answer was lost: the Opens were repeated with the key before
/// until they were given up, and no other was tried.
#[test]
fn an_open_is_begun_anew_although_the_open_of_the_peer_was_answered() {
    let (mut host, tag, now) = crossing();
    host.receive(now, &from(ip(7)), &stranger(open(77, 0), 0, 0), &[]);
    assert_eq!(told(&mut host, now), (None, None), "no answer may be under way at the change");
    let now = now + host.engine.config().loss.open_retry;
    host.engine.handle_timeout(now);
    let (anew, ack) = told(&mut host, now);
    let anew = anew.expect("it opens anew");
    assert!(anew != tag && ack.is_none() && !host.engine.has_context(tag));
    host.receive(now, &from(ip(7)), &stranger(open(77, 0), 0, 0), &[]);
    assert_eq!(told(&mut host, now).1, Some(anew), "the peer's Open is answered with the new tag");
}

#[test]
fn a_peer_that_has_the_answer_in_time_keeps_the_context() {
    let (mut host, tag, now) = crossing();
    let first = Body::Ack;
    host.receive(now, &from(ip(7)), &stranger(first, 0, tag), &[]);
    let stats = host.engine.context_stats();
    assert!(stats.len() == 1 && stats[0].state == "Open", "{stats:?}");
    let mut now = now;
    for _ in 0..4 {
        now += host.engine.config().loss.open_retry;
        host.engine.handle_timeout(now);
        assert_eq!(told(&mut host, now).0, None);
    }
    assert!(host.engine.has_context(tag));
}

/// The peer's sealed answer to the Open with `tag`, or to the Challenge whose number is `cookie`.
fn answer(tag: u32, cookie: u64) -> Packet<'static> {
    let Body::Open(p) = open(77, cookie) else { unreachable!("an Open") };
    let mut packet = stranger(Body::OpenAck(OpenParams { echo_tag: tag, ..p }), 0, tag);
    packet.header.flags = Flags(Flags::SEALED);
    packet
}

/// A host whose Open to a peer was answered after `opens` Opens: the tag of its Open, the time, and
/// what it sends then.
fn answered(opens: u32) -> (Host, u32, Time, Vec<Flying>) {
    let (mut host, tag, mut now) = opening();
    for _ in 1..opens {
        now += host.engine.config().loss.open_retry;
        host.engine.handle_timeout(now);
        assert_eq!(told(&mut host, now).0, Some(tag), "the Open is repeated");
    }
    host.receive(now, &from(ip(7)), &answer(tag, 0), &[]);
    let out = host.transmit(now);
    (host, tag, now, out)
}

fn sends(out: &[Flying]) -> bool {
    out.iter().any(|f| matches!(f.body, Body::Send(_)))
}

/// The number of the Challenge that is sent.
fn asks(out: &[Flying]) -> Option<u64> {
    out.iter().find_map(|f| match f.body {
        Body::Challenge { echo_tag: 77, cookie } => Some(cookie),
        _ => None,
    })
}

#[test]
fn requests_begin_at_once_in_a_context_that_the_first_open_has_made() {
    let (_, _, _, out) = answered(1);
    assert!(sends(&out) && asks(&out).is_none());
}

/// An answer to a repeated Open may be so old that the peer has dropped the context: it does so
/// when nobody uses the context and its driver has another key.
#[test]
fn requests_wait_until_a_late_answer_is_confirmed() {
    let (mut host, tag, now, out) = answered(2);
    let nonce = asks(&out).expect("the peer is asked");
    assert!(!sends(&out));
    let again = now + host.engine.config().loss.open_retry;
    host.engine.handle_timeout(again);
    let out = host.transmit(again);
    assert!(!sends(&out) && asks(&out) == Some(nonce), "asked until it answers");
    host.receive(again, &from(ip(7)), &answer(tag, nonce), &[]);
    assert!(sends(&host.transmit(again)));
}

/// Requests that waited ended as if the peer had restarted, with status 8.
#[test]
fn a_late_answer_of_a_context_that_is_gone_costs_no_request() {
    let gone = |nonce| {
        let (echo_tag, code) = (77, CloseCode::UnknownTag);
        let mut packet = stranger(Body::Reset { echo_tag, code, nonce }, 0, 0);
        packet.header.flags = Flags(Flags::SEALED);
        packet
    };
    let (mut host, tag, now, out) = answered(2);
    let nonce = asks(&out).expect("the peer is asked");
    host.receive(now, &from(ip(7)), &gone(nonce.wrapping_add(1)), &[]);
    assert!(host.engine.has_context(tag), "only the number proves it");
    host.receive(now, &from(ip(7)), &gone(nonce), &[]);
    let anew = told(&mut host, now).0.expect("it opens anew");
    assert!(anew != tag && !host.engine.has_context(tag));
    host.receive(now, &from(ip(7)), &answer(anew, 0), &[]);
    assert!(sends(&host.transmit(now)) && host.statuses().is_empty());
}

/// The same, where the peer's own Open says it first.
#[test]
fn a_peer_that_opens_anew_instead_costs_no_request_that_waits() {
    let (mut host, tag, now, _) = answered(2);
    let sealed = |cookie| {
        let mut packet = stranger(open(78, cookie), 0, 0);
        packet.header.flags = Flags(Flags::SEALED);
        packet
    };
    host.receive(now, &from(ip(7)), &sealed(0), &[]);
    let cookie = host.transmit(now).iter().find_map(|f| match f.body {
        Body::Challenge { echo_tag: 78, cookie } => Some(cookie),
        _ => None,
    });
    host.receive(now, &from(ip(7)), &sealed(cookie.expect("it is to prove itself")), &[]);
    let (_, ack) = told(&mut host, now);
    assert!(ack.is_some_and(|anew| anew != tag && host.engine.has_context(anew)), "{ack:?}");
    assert!(host.statuses().is_empty());
}

/// Who has the key may say again and again that it has lost the context that it has just accepted.
/// Requests wait as long for it as for a peer that never answers, and not for ever.
#[test]
fn who_says_again_and_again_that_it_lost_the_context_holds_no_request_for_ever() {
    let (mut host, mut tag, began, out) = answered(2);
    let mut nonce = asks(&out).expect("the peer is asked");
    let (mut now, mut turns) = (began, 0);
    while host.statuses().is_empty() {
        let (echo_tag, code) = (77, CloseCode::UnknownTag);
        let mut gone = stranger(Body::Reset { echo_tag, code, nonce }, 0, 0);
        gone.header.flags = Flags(Flags::SEALED);
        host.receive(now, &from(ip(7)), &gone, &[]);
        let anew = told(&mut host, now).0;
        // The answer comes after the Open was repeated, so it is late once more.
        now += host.engine.config().loss.open_retry;
        host.engine.handle_timeout(now);
        host.collect();
        let again = told(&mut host, now).0;
        if let (Some(anew), Some(again)) = (anew, again) {
            assert_eq!(anew, again);
            tag = anew;
            host.receive(now, &from(ip(7)), &answer(tag, 0), &[]);
            nonce = asks(&host.transmit(now)).expect("asked about each context");
            turns += 1;
        }
        host.collect();
        assert!(now.since(began) < Span::from_secs(30), "held for ever, {turns} times");
    }
    assert!(turns > 10 && host.statuses() == [Status::LocalUnreachRemote], "{turns} times");
    assert!(!host.engine.has_context(tag));
}

/// A process that was stopped finds an answer that is as old as its stop, before it has repeated
/// its Open.
#[test]
fn an_answer_found_after_a_stop_is_late_too() {
    let (mut host, tag, now) = opening();
    let now = now + host.engine.config().loss.open_retry;
    host.receive(now, &from(ip(7)), &answer(tag, 0), &[]);
    let out = host.transmit(now);
    assert!(asks(&out).is_some() && !sends(&out), "asked before requests begin");
}
