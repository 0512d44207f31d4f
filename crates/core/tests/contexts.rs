//! How contexts begin and end, as small stories: what one side has dropped and the other has not,
//! peers that offer nothing or take nothing, and peers that are nobody else.

use crate::common::door::{from, open, stranger};
use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::wire::{Body, PacketType};
use srd_core::*;

/// Whether the first host has an open context.
fn is_open(n: &Net) -> bool {
    n.hosts[0].engine.context_stats().iter().any(|c| c.state == "Open")
}

/// Two hosts with a context whose confirmation was lost, and whose work was withdrawn.
fn withdrawn(seed: u64) -> Pair {
    let mut p = Pair::new(seed);
    p.net.hosts[1].recv(p.qp[1], 1, 100);
    p.send(0, 1, vec![1; 100]).unwrap();
    assert!(p.net.run_until(Span::from_ms(1), is_open));
    let (ah, now) = (p.ah[0], p.net.now);
    p.net.hosts[0].engine.ah_destroy(now, ah).unwrap();
    p.net.faults.dead = true;
    p.net.run(Span::from_ms(1));
    p.net.faults.dead = false;
    p
}

/// A message that is posted now arrives within 10 ms.
fn later_work_succeeds(p: &mut Pair) {
    p.net.hosts[0].done.clear();
    let now = p.net.now;
    p.ah[0] = p.net.hosts[0].ah(now, ip(1));
    p.send(0, 2, vec![2; 100]).unwrap();
    assert!(p.net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == 1));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok]);
}

/// The peer accepted our Open, our confirmation was lost, and the work that the context was for was
/// withdrawn. The peer dropped the context after a while; later work ended as if it had restarted.
#[test]
fn work_for_a_context_that_the_peer_dropped_unused_succeeds() {
    let mut p = withdrawn(1);
    p.net.run(Span::from_ms(500));
    assert!(p.net.hosts[1].engine.context_stats().is_empty(), "dropped");
    assert!(is_open(&p.net), "not dropped");
    later_work_succeeds(&mut p);
    assert_eq!(p.net.hosts[1].received, [vec![2; 100]]);
    assert!(p.net.hosts[0].events.is_empty(), "{:?}", p.net.hosts[0].events);
}

/// The same when the peer still has the context: it goes on with it.
#[test]
fn work_for_a_context_that_the_peer_kept_goes_through_it() {
    let mut p = withdrawn(2);
    later_work_succeeds(&mut p);
    let c = p.net.hosts[1].engine.counters();
    assert_eq!((c.contexts_closed, c.challenges_sent), (0, 0));
}

/// Work was posted to more peers than one call sets the timers of, and the idle timer of one of
/// those that were left was due: its window state went, with the work.
#[test]
fn work_that_is_posted_when_the_idle_timer_is_due_stays() {
    let mut p = Pair::opened(3, 100);
    p.net.run(Span::from_ms(490));
    let host = &mut p.net.hosts[0];
    let known = |e: &Engine| e.context_stats().into_iter().find(|c| c.peer.ip == ip(1)).unwrap();
    assert!(known(&host.engine).is_active, "not idle for long enough");
    let now = p.net.now + Span::from_ms(20);
    for i in 0..1_100 {
        let ah = host.ah(now, ip(2 + i));
        let to = send_wr(10, ah, p.qp[1], 100);
        host.post(now, p.qp[0], to, vec![0; 100]).unwrap();
    }
    let to = send_wr(2, p.ah[0], p.qp[1], 100);
    host.post(now, p.qp[0], to, vec![2; 100]).unwrap();
    host.engine.handle_timeout(now);
    let context = known(&host.engine);
    assert!(context.is_active && context.outstanding == 1, "{context:?}");
}

/// A peer that is alive and takes nothing kept the tombstones of its requests under way for ever.
#[test]
fn tombstones_are_given_up() {
    let mut p = Puppet::new(config(0), |_| {});
    p.post(Opcode::Send, 100);
    let mut sent = 0;
    for _ in 0..6_000 {
        p.say(Body::Probe, 0, None);
        p.pass(Span::from_ms(10));
        sent += p.reliable().len();
    }
    assert_eq!(p.victim.statuses(), [Status::LocalUnrespRemote]);
    assert!((200..=210).contains(&sent), "{sent} transmissions");
    assert!(p.victim.engine.context_stats().is_empty());
    let unresponsive = |e: &AsyncEvent| matches!(e, AsyncEvent::PeerUnresponsive(_));
    assert_eq!(p.victim.events.iter().filter(|e| unresponsive(e)).count(), 1);
    p.pass(Span::from_secs(10));
    assert!(p.heard.is_empty(), "nothing leaves any more");
}

/// The same peer, where it takes all but the word that a message is over.
#[test]
fn a_cancel_is_given_up() {
    let mut p = Puppet::new(config(0), |_| {});
    p.post(Opcode::WriteImm, 3000);
    let mut cancels = 0;
    for _ in 0..8_000 {
        let sent = p.reliable();
        let cancel = |f: &&Flying| matches!(f.body, Body::Cancel { .. });
        cancels += sent.iter().filter(cancel).count();
        match sent.iter().find(cancel).map(|f| f.header.psn) {
            // All before it has arrived.
            Some(psn) => p.ack(psn, |_| {}),
            None => p.say(Body::Probe, 0, None),
        }
        p.pass(Span::from_ms(10));
    }
    assert_eq!(p.victim.statuses(), [Status::LocalUnrespRemote]);
    assert!((200..=210).contains(&cancels), "{cancels} transmissions");
    assert!(p.victim.engine.context_stats().is_empty());
}

/// Who offers reads, or writes with immediate, and takes none at a time, was waited for for ever.
#[test]
fn a_peer_that_takes_none_at_a_time_does_not_offer_it() {
    for (op, len) in [(Opcode::Read, 100), (Opcode::WriteImm, 5_000)] {
        let mut p = Puppet::new(config(0), |o| (o.reads_max, o.write_imms_max) = (0, 0));
        p.post(op, len);
        p.pass(Span::from_us(10));
        assert_eq!(p.victim.statuses(), [Status::RemoteFeatureMismatch], "{op:?}");
    }
    // A write with immediate of one packet needs no place.
    let mut p = Puppet::new(config(0), |o| o.write_imms_max = 0);
    p.post(Opcode::WriteImm, 100);
    p.pass(Span::from_us(10));
    let heard = p.reliable();
    assert!(heard.iter().any(|f| f.header.kind == PacketType::WriteImm));
}

/// The address of a process that has gone may be that of the one which asks for it. It sent to
/// itself, without end where receives are waited for, and nobody said so.
#[test]
fn a_send_to_oneself_that_is_refused_is_told() {
    for queue_pair_exists in [false, true] {
        let mut net = Net::new(3, vec![config(0)]);
        let now = net.now;
        let qp = net.hosts[0].qp(now, QpType::Srd, false);
        let ah = net.hosts[0].ah(now, ip(0));
        let to = if queue_pair_exists { qp } else { Qpn(99) };
        for i in 0..3 {
            net.hosts[0].post(now, qp, send_wr(i, ah, to, 10), vec![1; 10]).unwrap();
        }
        net.run(Span::from_ms(50));
        let soon = net.hosts[0].events.len();
        assert_eq!(soon, usize::from(!queue_pair_exists), "a receive may be posted a little later");
        net.run(Span::from_ms(250));
        let port = net.hosts[0].engine.config().port_base;
        assert_eq!(net.hosts[0].events, [AsyncEvent::PeerIsSelf(Endpoint { ip: ip(0), port })]);
        let ended = if queue_pair_exists { 0 } else { 3 };
        assert_eq!(net.hosts[0].statuses(), vec![Status::RemoteBadDestQpn; ended]);
    }
}

/// Who sends to itself and receives is left alone.
#[test]
fn a_send_to_oneself_that_is_meant_is_not_told() {
    let mut net = Net::new(4, vec![config(0)]);
    let now = net.now;
    let qp = net.hosts[0].qp(now, QpType::Srd, false);
    let ah = net.hosts[0].ah(now, ip(0));
    net.hosts[0].recv(qp, 1, 10);
    net.hosts[0].post(now, qp, send_wr(1, ah, qp, 10), vec![1; 10]).unwrap();
    assert!(net.run_until(Span::from_ms(50), |n| n.hosts[0].sends_done() == 1));
    assert_eq!(net.hosts[0].statuses(), [Status::Ok]);
    assert_eq!(net.hosts[0].events, []);
}

/// The queue pairs of every process had the numbers 0, 1, 2 of its slot: a request for a process
/// that had gone always found a queue pair of the one that came after it.
#[test]
fn queue_pairs_of_each_life_begin_anywhere() {
    let mut first = std::collections::BTreeSet::new();
    for life in 0..64 {
        let random = Randomness::from_entropy([life; 32], [u64::from(life) + 1; 4]);
        let mut engine = Engine::new(config(0), random, Time(1), ()).unwrap();
        let (pd, cq) = (engine.pd_create().unwrap(), engine.cq_create(10).unwrap());
        let init = QpInit {
            kind: QpType::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 1,
            rq_depth: 1,
            unsolicited_write_recv: false,
        };
        let [a, b] = [(); 2].map(|()| engine.qp_create(Time(1), init).unwrap());
        assert_eq!(b.index(), a.index().wrapping_add(1));
        assert_eq!(a.slot(), 0);
        first.insert(a.index());
    }
    assert!(first.len() > 40, "{} of 64 are different", first.len());
}

/// What one engine with these seeds shows to others: its Opens, the tag that it gives out, a
/// cookie, a region key.
fn shown(secret: u8, fast: [u64; 4]) -> Vec<String> {
    let now = Time(1_000_000);
    let random = Randomness::from_entropy([secret; 32], fast);
    let mut cfg = config(0);
    cfg.half_opens_max = 4;
    let mut engine = Engine::new(cfg, random, now, ()).unwrap();
    let (pd, cq) = (engine.pd_create().unwrap(), engine.cq_create(100).unwrap());
    let mut host = Host::of(engine, (pd, cq), ip(0));
    let qp = host.qp(now, QpType::Srd, false);
    for i in 1..6 {
        let ah = host.ah(now, ip(i));
        host.post(now, qp, send_wr(1, ah, Qpn(0), 100), vec![0; 100]).unwrap();
    }
    for i in 0..10 {
        let asks = stranger(open(77 + i, 0), i as u8, 0);
        host.receive(now, &from(ip(9)), &asks, &[]);
    }
    let mut shown = vec![format!("{:?} {qp:?}", host.region(vec![0], 1).0)];
    loop {
        let out = host.transmit(now);
        if out.is_empty() {
            return shown;
        }
        shown.extend(out.iter().map(|f| format!("{:?} {:?}", f.body, f.header.tx_num)));
    }
}

/// Had tags, PSNs, transmission numbers or cookies come from the generator that chooses paths, no
/// test would have told: where runs are replayed, all numbers come from one.
#[test]
fn what_peers_must_not_guess_comes_from_the_secret_seed_alone() {
    let (one, same, other) = (shown(1, [1; 4]), shown(1, [2; 4]), shown(2, [1; 4]));
    let count = |kind| one.iter().filter(|s| s.starts_with(kind)).count();
    assert_eq!((count("Open("), count("OpenAck("), count("Challenge")), (5, 1, 9), "{one:#?}");
    assert_eq!(one, same);
    assert!(one.iter().zip(&other).all(|(a, b)| a != b), "{one:#?} {other:#?}");
}
