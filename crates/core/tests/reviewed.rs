//! Cases that reading the code brought up: draining, eviction of the dead, packets that never
//! arrive.

use crate::common::*;
use srd_core::*;

fn to(state: QpState) -> QpModify {
    QpModify { state: Some(state), ..QpModify::default() }
}

#[test]
fn draining_longer_than_the_silence_limit_is_no_silence() {
    let mut p = Pair::new(13);
    for i in 0..10 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    p.send(0, 1, pattern(1, 500)).unwrap();
    p.net.run(Span::from_ms(1));
    let now = p.net.now;
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Sqd)).unwrap();
    p.send(0, 2, pattern(2, 500)).unwrap();
    p.net.run(Span::from_secs(6));
    let now = p.net.now;
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Rts)).unwrap();
    p.net.run(Span::from_ms(5));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 2]);
}

#[test]
fn a_request_in_back_off_is_drained_and_a_new_one_is_not_waited_for() {
    let mut p = Pair::new(13);
    p.send(0, 1, pattern(1, 500)).unwrap();
    p.net.run(Span::from_ms(1));
    let now = p.net.now;
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Sqd)).unwrap();
    p.send(0, 2, pattern(2, 500)).unwrap();
    p.net.run(Span::from_ms(50));
    assert!(p.net.hosts[0].events.is_empty());
    p.net.hosts[1].recv(p.qp[1], 1, 500);
    p.net.run(Span::from_ms(200));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok]);
    assert_eq!(p.net.hosts[0].events, [AsyncEvent::SqDrained(p.qp[0])]);
}

#[test]
fn work_withdrawn_before_the_open_leaves_no_event() {
    let mut p = Pair::new(3);
    p.net.faults.dead = true;
    p.send(0, 1, pattern(1, 500)).unwrap();
    let now = p.net.now;
    p.net.hosts[0].engine.qp_destroy(now, p.qp[0]).unwrap();
    p.net.run(Span::from_ms(50));
    let unreachable = |e: &AsyncEvent| matches!(e, AsyncEvent::PeerUnreachable(_));
    assert!(!p.net.hosts[0].events.iter().any(unreachable));
    assert!(p.net.hosts[0].engine.context_stats().is_empty());
}

/// Peers that died with work outstanding must make room for those that live.
#[test]
fn the_dead_leave_a_full_table() {
    let mut configs: Vec<_> = (0..9).map(config).collect();
    configs[0].contexts_max = 4;
    let mut net = Net::new(11, configs);
    let now = net.now;
    let client = net.hosts[0].qp(now, QpType::Srd, false);
    for i in 1..9 {
        let t = net.now;
        let server = net.hosts[i].qp(t, QpType::Srd, false);
        net.hosts[i].recv(server, 1, 100);
        let (ip, cfg) = (net.hosts[i].ip, net.hosts[i].engine.config().clone());
        let ah = net.hosts[0].ah(t, ip);
        for k in 0..2 {
            net.hosts[0].post(t, client, send_wr(k, ah, server, 10), pattern(k, 10)).unwrap();
        }
        let ok = net.run_until(Span::from_ms(90), |n| n.hosts[0].sends_done() == 2 * i - 1);
        assert!(ok, "peer {i}: {:#?}", net.hosts[0].engine.context_stats());
        net.faults.dead = true;
        let ok = net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 2 * i);
        assert!(ok, "peer {i}");
        net.faults.dead = false;
        // Gone for good: nobody listens at its address any more.
        net.hosts[i] = Host::new(EngineConfig { slot: 200, ..cfg }, 1, net.now);
    }
    assert!(net.hosts[0].engine.context_stats().len() <= 4);
}

/// One packet never arrives while everything else does: it is given up, the window goes on.
#[test]
fn what_never_arrives_is_not_sent_for_ever() {
    let mut p = Pair::new(5);
    for i in 0..50 {
        p.net.hosts[1].recv(p.qp[1], i, 1024);
    }
    p.net.faults.longer_lost = 900;
    p.send(0, 1, pattern(1, 1024)).unwrap();
    for i in 2..10 {
        p.send(0, i, pattern(i, 100)).unwrap();
    }
    let ok = p.net.run_until(Span::from_secs(60), |n| n.hosts[0].sends_done() == 9);
    assert!(ok, "{:#?}", p.net.hosts[0].engine.context_stats());
    let mut statuses = p.net.hosts[0].statuses();
    statuses.sort_by_key(|s| *s as u8);
    assert_eq!(statuses[..8], [Status::Ok; 8]);
    assert_eq!(statuses[8], Status::LocalUnrespRemote);
    p.net.run(Span::from_secs(1));
    assert!(!p.net.hosts[0].engine.context_stats()[0].is_active, "the tombstone got through");
}

#[test]
fn machines_draw_themselves() {
    assert!(QpState::dot().contains("Rtr -> Rts [label=\"to_rts\"]"), "{}", QpState::dot());
    assert!(ContextState::dot().contains("Open -> Closing"), "{}", ContextState::dot());
    assert!(path::PathState::dot().starts_with("digraph PathState"), "{}", path::PathState::dot());
}
