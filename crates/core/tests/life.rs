//! Peers that restart, stall, vanish; queue pairs destroyed under way; contexts that close.

use crate::common::*;
use srd_core::limits::RNR_RETRY_INFINITE;
use srd_core::*;

fn post_some(p: &mut Pair, n: u64) {
    for i in 0..n {
        p.send(0, i, pattern(i, 500)).unwrap();
    }
}

fn all_done(p: &mut Pair, n: usize) -> Vec<Status> {
    let ok = p.net.run_until(Span::from_secs(10), |net| net.hosts[0].sends_done() == n);
    assert!(ok, "{:?} {:#?}", p.net.hosts[0].statuses(), p.net.hosts[0].engine.context_stats());
    p.net.hosts[0].statuses()
}

#[test]
fn rnr_waits_or_gives_up() {
    let mut p = Pair::new(1);
    post_some(&mut p, 10);
    p.net.run(Span::from_ms(5));
    assert_eq!(p.net.hosts[0].sends_done(), 0, "rnr_retry 7 is for ever");
    for i in 0..10 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    assert_eq!(all_done(&mut p, 10), [Status::Ok; 10]);
    assert_eq!(p.net.hosts[1].received.len(), 10);

    let now = p.net.now;
    let init = p.net.hosts[0].engine.qp_query(p.qp[0]).unwrap().init;
    let patient = p.net.hosts[0].engine.qp_create(now, init).unwrap();
    p.net.hosts[0].qp_ready(now, patient, 2);
    p.net.hosts[0].done.clear();
    let before = p.net.hosts[1].engine.counters().rnr_events;
    let wr = send_wr(1, p.ah[0], p.qp[1], 10);
    p.net.hosts[0].post(now, patient, wr, pattern(1, 10)).unwrap();
    assert_eq!(all_done(&mut p, 1), [Status::RemoteRnr]);
    let asked = p.net.hosts[1].engine.counters().rnr_events - before;
    assert_eq!(asked, 3, "once and two retries");
}

/// Programs of verbs need not say how often to retry: EFA then does so for ever.
#[test]
fn rnr_waits_where_no_limit_was_set() {
    let mut p = Pair::new(1);
    let (now, sender) = (p.net.now, &mut p.net.hosts[0].engine);
    let init = sender.qp_query(p.qp[0]).unwrap().init;
    let silent = sender.qp_create(now, init).unwrap();
    let to = |state, qkey| QpModify { state: Some(state), qkey, rnr_retry: None };
    for step in [to(QpState::Init, Some(0x11)), to(QpState::Rtr, None), to(QpState::Rts, None)] {
        sender.qp_modify(now, silent, step).unwrap();
    }
    assert_eq!(sender.qp_query(silent).unwrap().rnr_retry, RNR_RETRY_INFINITE);
    p.net.hosts[0].done.clear();
    let wr = send_wr(1, p.ah[0], p.qp[1], 10);
    p.net.hosts[0].post(now, silent, wr, pattern(1, 10)).unwrap();
    p.net.run(Span::from_ms(50));
    assert_eq!(p.net.hosts[0].sends_done(), 0, "it is refused, and tried again");
    assert!(p.net.hosts[1].engine.counters().rnr_events > 7);
    p.net.hosts[1].recv(p.qp[1], 1, 500);
    assert_eq!(all_done(&mut p, 1), [Status::Ok]);
}

#[test]
fn too_long_for_the_receive() {
    let mut p = Pair::new(2);
    p.net.hosts[1].recv(p.qp[1], 1, 100);
    p.send(0, 1, pattern(1, 101)).unwrap();
    p.send(0, 2, pattern(2, 100)).unwrap();
    let mut got = all_done(&mut p, 2);
    got.sort_by_key(|s| *s as u8);
    assert_eq!(got, [Status::Ok, Status::RemoteBadLength]);
    assert_eq!(p.net.hosts[1].received, [pattern(2, 100)]);
}

#[test]
fn a_peer_that_was_never_there() {
    let mut p = Pair::new(3);
    p.net.faults.dead = true;
    post_some(&mut p, 5);
    assert_eq!(all_done(&mut p, 5), [Status::LocalUnreachRemote; 5]);
    assert!(matches!(p.net.hosts[0].events[0], AsyncEvent::PeerUnreachable(_)));
    assert!(p.net.hosts[0].engine.context_stats().is_empty());
    p.net.faults.dead = false;
    p.net.hosts[0].done.clear();
    p.net.hosts[1].recv(p.qp[1], 1, 500);
    p.send(0, 1, pattern(1, 500)).unwrap();
    assert_eq!(all_done(&mut p, 1), [Status::Ok]);
}

#[test]
fn a_peer_that_falls_silent_and_returns() {
    for seed in 0..10 {
        let mut p = Pair::new(seed);
        for i in 0..40 {
            p.net.hosts[1].recv(p.qp[1], i, 500);
        }
        post_some(&mut p, 10);
        all_done(&mut p, 10);
        p.net.hosts[0].done.clear();
        p.net.faults.dead = true;
        post_some(&mut p, 10);
        assert_eq!(all_done(&mut p, 10), [Status::LocalUnrespRemote; 10]);
        let e = &p.net.hosts[0].events;
        assert!(e.iter().any(|e| matches!(e, AsyncEvent::PeerUnresponsive(_))));
        let c = p.net.hosts[0].engine.counters();
        assert_eq!(c.paths_retired, 0, "a silent peer is not 64 dead paths");
        p.net.hosts[0].done.clear();
        p.net.faults.dead = false;
        post_some(&mut p, 10);
        assert_eq!(all_done(&mut p, 10), [Status::Ok; 10]);
        p.net.run(Span::from_ms(100));
        assert_eq!(p.net.hosts[1].received.len(), 20, "what was given up is not delivered later");
    }
}

#[test]
fn a_short_stall_costs_no_request_and_no_path() {
    let mut p = Pair::new(4);
    for i in 0..400 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    post_some(&mut p, 200);
    p.net.run(Span::from_us(5));
    p.net.faults.dead = true;
    p.net.run(Span::from_ms(50));
    p.net.faults.dead = false;
    assert_eq!(all_done(&mut p, 200), [Status::Ok; 200]);
    assert_eq!(p.net.hosts[1].received.len(), 200);
    assert_eq!(p.net.hosts[0].engine.counters().paths_retired, 0);
}

#[test]
fn a_restarted_peer_gets_nothing_old() {
    for seed in 0..20 {
        let mut p = Pair::new(seed);
        p.net.faults.jitter_ns = 50_000;
        for i in 0..100 {
            p.net.hosts[1].recv(p.qp[1], i, 500);
        }
        post_some(&mut p, 50);
        let some = 1 + 2 * seed as usize;
        assert!(p.net.run_until(Span::from_ms(9), |n| n.hosts[1].received.len() >= some));
        p.net.restart(1, seed + 1000);
        let now = p.net.now;
        p.qp[1] = p.net.hosts[1].qp(now, QpType::Srd, false);
        let to = p.net.hosts[0].ip;
        p.ah[1] = p.net.hosts[1].ah(now, to);
        let statuses = all_done(&mut p, 50);
        let aborted = statuses.iter().filter(|s| **s == Status::RemoteAbort).count();
        let fine = statuses.iter().filter(|s| **s == Status::Ok).count();
        assert_eq!(aborted + fine, 50, "seed {seed}: {statuses:?}");
        assert!(p.net.hosts[1].received.is_empty() && p.net.hosts[1].done.is_empty());
        p.net.hosts[0].done.clear();
        for i in 0..100 {
            p.net.hosts[1].recv(p.qp[1], i, 500);
        }
        post_some(&mut p, 20);
        assert_eq!(all_done(&mut p, 20), [Status::Ok; 20], "seed {seed}");
        assert_eq!(p.net.hosts[1].received.len(), 20);
    }
}

#[test]
fn a_restarted_peer_that_speaks_first_must_prove_itself() {
    let mut p = Pair::new(5);
    for i in 0..10 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    post_some(&mut p, 10);
    all_done(&mut p, 10);
    p.net.restart(1, 77);
    let now = p.net.now;
    p.qp[1] = p.net.hosts[1].qp(now, QpType::Srd, false);
    let to = p.net.hosts[0].ip;
    p.ah[1] = p.net.hosts[1].ah(now, to);
    p.net.hosts[0].recv(p.qp[0], 1, 500);
    p.send(1, 1, pattern(1, 500)).unwrap();
    let ok = p.net.run_until(Span::from_ms(100), |n| n.hosts[1].sends_done() == 1);
    assert!(ok);
    assert_eq!(p.net.hosts[1].statuses(), [Status::Ok]);
    assert_eq!(p.net.hosts[0].engine.counters().challenges_sent, 1);
    assert!(p.net.hosts[0].events.iter().any(|e| matches!(e, AsyncEvent::PeerReset(_))));
}

#[test]
fn both_open_at_once() {
    for seed in 0..20 {
        let mut p = Pair::new(seed);
        p.net.faults.loss = 2000;
        p.net.faults.jitter_ns = 3000;
        p.net.hosts[0].recv(p.qp[0], 1, 100);
        p.net.hosts[1].recv(p.qp[1], 1, 100);
        p.send(0, 5, pattern(1, 100)).unwrap();
        p.send(1, 6, pattern(2, 100)).unwrap();
        let ok = p.net.run_until(Span::from_ms(90), |n| n.hosts.iter().all(|h| h.done.len() == 2));
        assert!(ok, "seed {seed}");
        for h in &p.net.hosts {
            assert!(h.done.iter().all(|c| c.status == Status::Ok));
            assert_eq!(h.engine.context_stats().len(), 1);
        }
    }
}

#[test]
fn a_destroyed_queue_pair_disturbs_nobody() {
    for seed in 0..20 {
        let mut p = Pair::new(seed);
        p.net.faults.loss = 500;
        let now = p.net.now;
        let doomed = p.net.hosts[0].qp(now, QpType::Srd, false);
        let remote = p.net.hosts[1].region(vec![0; 1 << 20], Access::REMOTE_WRITE);
        for i in 0..100 {
            p.net.hosts[1].recv(p.qp[1], i, 500);
        }
        for i in 0..8 {
            let mut wr = send_wr(900 + i, p.ah[0], p.qp[1], 100_000);
            let op = if i % 2 == 0 { Opcode::Write } else { Opcode::WriteImm };
            (wr.op, wr.rkey, wr.raddr) = (op, remote.0.0, remote.1);
            p.net.hosts[0].post(now, doomed, wr, pattern(i, 100_000)).unwrap();
        }
        post_some(&mut p, 50);
        p.net.run(Span::from_us(20 + seed));
        let now = p.net.now;
        p.net.hosts[0].engine.qp_destroy(now, doomed).unwrap();
        assert_eq!(all_done(&mut p, 50), [Status::Ok; 50], "seed {seed}");
        assert!(p.net.hosts[0].done.iter().all(|c| c.qpn != doomed));
        p.net.run(Span::from_secs(3));
        let released = |e: &&AsyncEvent| matches!(e, AsyncEvent::WrReleased(_));
        assert!(p.net.hosts[0].events.iter().filter(released).count() <= 8);
        let reserved = p.net.hosts[0].engine.cq_reserved(p.net.hosts[0].cq);
        assert_eq!(reserved, Some(0), "seed {seed}");
        for h in &p.net.hosts {
            assert!(h.engine.context_stats().iter().all(|c| !c.is_active), "seed {seed}");
            assert_eq!(h.engine.context_stats()[0].inflight_bytes, 0);
        }
    }
}

#[test]
fn error_state_flushes_everything() {
    let mut p = Pair::new(6);
    post_some(&mut p, 5);
    p.net.hosts[0].recv(p.qp[0], 1, 100);
    p.net.run(Span::from_us(100));
    let to = QpModify { state: Some(QpState::Err), ..QpModify::default() };
    let now = p.net.now;
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to).unwrap();
    p.net.run(Span::from_ms(1));
    assert_eq!(p.net.hosts[0].done.len(), 6);
    assert!(p.net.hosts[0].done.iter().all(|c| c.status == Status::Flushed));
    assert_eq!(p.send(0, 1, vec![]), Err(PostRefusal::BadState));
}

#[test]
fn a_destroyed_address_handle_ends_its_sends() {
    let mut p = Pair::new(7);
    post_some(&mut p, 5);
    p.net.run(Span::from_us(100));
    let (ah, now) = (p.ah[0], p.net.now);
    p.net.hosts[0].engine.ah_destroy(now, ah).unwrap();
    assert_eq!(all_done(&mut p, 5), [Status::LocalInvalidAh; 5]);
    assert_eq!(p.send(0, 1, vec![]), Err(PostRefusal::BadAh));
}

#[test]
fn full_queues_refuse_and_lose_nothing() {
    let mut p = Pair::new(8);
    let now = p.net.now;
    let cq = p.net.hosts[0].engine.cq_create(3).unwrap();
    let mut init = p.net.hosts[0].engine.qp_query(p.qp[0]).unwrap().init;
    (init.sq_depth, init.rq_depth, init.send_cq, init.recv_cq) = (2, 2, cq, cq);
    let qp = p.net.hosts[0].engine.qp_create(now, init).unwrap();
    p.net.hosts[0].qp_ready(now, qp, 7);
    let wr = send_wr(1, p.ah[0], p.qp[1], 0);
    let host = &mut p.net.hosts[0].engine;
    assert!(host.post_send(now, qp, &wr).is_ok());
    assert!(host.post_send(now, qp, &wr).is_ok());
    assert_eq!(host.post_send(now, qp, &wr), Err(PostRefusal::QueueFull));
    let recv = RecvRequest { wr_id: 1, len: 0 };
    assert!(host.post_recv(qp, &recv).is_ok());
    assert_eq!(host.post_recv(qp, &recv), Err(PostRefusal::CqFull));
    assert_eq!(host.cq_reserved(cq), Some(3));
    assert_eq!(
        host.post_send(now, qp, &send_wr(1, p.ah[0], p.qp[1], 2000)),
        Err(PostRefusal::BadLength)
    );
    assert_eq!(host.post_send(now, Qpn(99), &wr), Err(PostRefusal::BadQp));
    host.qp_destroy(now, qp).unwrap();
    assert_eq!(host.cq_reserved(cq), Some(0));
}

#[test]
fn a_full_table_challenges_strangers_and_closes_the_idle() {
    let mut configs: Vec<_> = (0..9).map(config).collect();
    configs[0].contexts_max = 4;
    configs[0].idle_after = Span::from_us(100);
    let mut net = Net::new(11, configs);
    let now = net.now;
    let server = net.hosts[0].qp(now, QpType::Srd, false);
    let to = net.hosts[0].ip;
    for i in 1..9 {
        let t = net.now;
        net.hosts[0].recv(server, i as u64, 100);
        let qp = net.hosts[i].qp(t, QpType::Srd, false);
        let ah = net.hosts[i].ah(t, to);
        net.hosts[i].post(t, qp, send_wr(1, ah, server, 10), pattern(1, 10)).unwrap();
        let ok = net.run_until(Span::from_ms(90), |n| n.hosts[i].sends_done() == 1);
        assert!(ok, "host {i} {:#?}", net.hosts[0].engine.context_stats());
        assert_eq!(net.hosts[i].statuses(), [Status::Ok], "host {i}");
        net.run(Span::from_ms(1));
    }
    let c = net.hosts[0].engine.counters();
    assert!(c.challenges_sent > 0 && c.contexts_closed > 0, "{c:#?}");
    assert!(net.hosts[0].engine.context_stats().len() <= 4);
}

#[test]
fn going_away_is_told() {
    let mut p = Pair::new(12);
    for i in 0..5 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    post_some(&mut p, 10);
    p.net.run(Span::from_ms(1));
    p.net.hosts[1].engine.shutdown();
    let got = all_done(&mut p, 10);
    assert_eq!(got.iter().filter(|s| **s == Status::Ok).count(), 5);
    assert_eq!(got.iter().filter(|s| **s == Status::RemoteAbort).count(), 5);
}

/// Statuses of 20 sends that were all received, by a host that then goes away, with or without
/// making peace before.
fn left_behind(seed: u64, peace: bool) -> Vec<Status> {
    let mut p = Pair::new(seed);
    p.net.faults.loss = 2_000;
    for i in 0..20 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    post_some(&mut p, 20);
    assert!(p.net.run_until(Span::from_secs(10), |net| net.hosts[1].received.len() == 20));
    let end = p.net.now + Span::from_secs(1);
    while peace && p.net.hosts[1].engine.peace_make(p.net.now) > 0 {
        assert!(p.net.now < end, "{:#?}", p.net.hosts[1].engine.context_stats());
        p.net.step();
    }
    p.net.hosts[1].engine.shutdown();
    p.net.step();
    p.net.faults.dead = true;
    all_done(&mut p, 20)
}

#[test]
fn peace_is_made_before_going_away() {
    let mut torn = 0;
    for seed in 0..90 {
        assert_eq!(left_behind(seed, true), [Status::Ok; 20], "seed {seed}");
        torn += u32::from(left_behind(seed, false).iter().any(|s| *s != Status::Ok));
    }
    assert!(torn > 5, "only {torn} of 90 needed it");
}

#[test]
fn peace_with_a_dead_peer_ends() {
    let mut p = Pair::new(15);
    p.net.hosts[1].recv(p.qp[1], 1, 500);
    post_some(&mut p, 1);
    assert_eq!(all_done(&mut p, 1), [Status::Ok]);
    p.net.faults.dead = true;
    let began = p.net.now;
    while p.net.hosts[1].engine.peace_make(p.net.now) > 0 {
        p.net.step();
    }
    assert!(p.net.now < began + Span::from_ms(300));
    assert!(p.net.hosts[1].engine.context_stats().is_empty());
}

#[test]
fn draining_holds_new_work_back() {
    let mut p = Pair::new(13);
    for i in 0..10 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    let now = p.net.now;
    let to = |s| QpModify { state: Some(s), ..QpModify::default() };
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Sqd)).unwrap();
    p.net.run(Span::from_us(1));
    assert_eq!(p.net.hosts[0].events, [AsyncEvent::SqDrained(p.qp[0])]);
    post_some(&mut p, 10);
    p.net.run(Span::from_ms(5));
    assert_eq!(p.net.hosts[0].sends_done(), 0);
    let now = p.net.now;
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Rts)).unwrap();
    assert_eq!(all_done(&mut p, 10), [Status::Ok; 10]);
}

#[test]
fn long_rnr_waits_for_a_late_receiver_and_ends() {
    let mut p = Pair::new(1);
    let now = p.net.now;
    let patient = {
        let (pd, cq) = (p.net.hosts[0].pd, p.net.hosts[0].cq);
        let init = QpInit {
            kind: QpType::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 8,
            rq_depth: 8,
            unsolicited_write_recv: false,
        };
        let qp = p.net.hosts[0].engine.qp_create(now, init).unwrap();
        p.net.hosts[0].qp_ready(now, qp, limits::RNR_RETRY_LONG);
        qp
    };
    let send = |p: &mut Pair, wr_id| {
        let wr = send_wr(wr_id, p.ah[0], p.qp[1], 5);
        let now = p.net.now;
        p.net.hosts[0].post(now, patient, wr, b"hello".to_vec()).unwrap();
    };
    send(&mut p, 1);
    p.net.run(Span::from_secs(30));
    assert_eq!(p.net.hosts[0].sends_done(), 0);
    p.net.hosts[1].recv(p.qp[1], 2, 5);
    assert!(p.net.run_until(Span::from_ms(100), |n| n.hosts[0].sends_done() == 1));
    // Nobody ever receives the second.
    send(&mut p, 2);
    let start = p.net.now;
    assert!(p.net.run_until(Span::from_secs(90), |n| n.hosts[0].sends_done() == 2));
    assert!(p.net.now.since(start) > Span::from_secs(39), "{:?}", p.net.now.since(start));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok, Status::RemoteRnr]);
}
