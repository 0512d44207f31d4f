//! Messages, exactly once, over networks that lose, repeat, reorder and blacken.

use crate::common::*;
use srd_core::*;

/// `n` messages of assorted sizes each way; all arrive once, intact, and complete once.
fn exchange(p: &mut Pair, n: u64, limit: Span) {
    let mut expected = [vec![], vec![]];
    for i in 0..n {
        for from in 0..2 {
            let len = [0, 1, 64, 1000, 1024][(i % 5) as usize];
            let data = pattern(i * 2 + from as u64, len);
            p.net.hosts[1 - from].recv(p.qp[1 - from], i, 1024);
            p.send(from, i, data.clone()).unwrap();
            expected[1 - from].push(data);
        }
    }
    let all = |net: &Net| net.hosts.iter().all(|h| h.done.len() as u64 == 2 * n);
    let finished = p.net.run_until(limit, all);
    for (i, h) in p.net.hosts.iter_mut().enumerate() {
        let mut got = core::mem::take(&mut h.received);
        got.sort();
        expected[i].sort();
        assert_eq!(got.len(), expected[i].len(), "host {i}: {:#?}", h.engine.context_stats());
        assert!(got == expected[i], "contents differ");
        assert!(h.done.iter().all(|c| c.status == Status::Ok));
    }
    assert!(finished);
}

#[test]
fn clean_network() {
    let mut p = Pair::new(1);
    exchange(&mut p, 500, Span::from_ms(100));
    let c = p.net.hosts[0].engine.counters();
    assert_eq!(c.retrans_pkts, 0, "{c:#?}");
    assert!(p.net.hosts[0].paths_used.iter().filter(|&&n| n > 0).count() > 32);
    p.net.run(Span::from_secs(2));
    assert!(p.net.hosts[0].engine.context_stats().iter().all(|c| !c.is_active));
    assert_eq!(p.net.hosts[0].engine.next_timeout(), Time::NEVER, "an idle engine sleeps");
    for h in &mut p.net.hosts {
        h.done.clear();
    }
    exchange(&mut p, 20, Span::from_ms(100));
}

#[test]
fn loss_duplication_reorder() {
    for seed in 0..30 {
        let mut p = Pair::new(seed);
        p.net.faults.loss = 1000;
        p.net.faults.duplicate = 1000;
        p.net.faults.jitter_ns = 20_000;
        exchange(&mut p, 200, Span::from_secs(5));
    }
}

#[test]
fn numbers_wrap() {
    for seed in 0..10 {
        let configs = (0..2).map(|i| {
            let mut c = config(i);
            c.psn_start = Some(u32::MAX - 50);
            c.tx_num_start = Some(u64::from(u32::MAX) - 70);
            c
        });
        let mut p = Pair::with(seed, configs.collect());
        p.net.faults.loss = 500;
        p.net.faults.jitter_ns = 10_000;
        exchange(&mut p, 300, Span::from_secs(5));
    }
}

#[test]
fn tiny_window() {
    for seed in 0..10 {
        let configs = (0..2).map(|i| EngineConfig { window: 16, ..config(i) });
        let mut p = Pair::with(seed, configs.collect());
        p.net.faults.loss = 1000;
        exchange(&mut p, 300, Span::from_secs(5));
    }
}

#[test]
fn black_paths_are_left() {
    let mut p = Pair::new(3);
    exchange(&mut p, 200, Span::from_ms(100));
    p.net.faults.black_paths = (0..16).collect();
    for h in &mut p.net.hosts {
        h.done.clear();
    }
    exchange(&mut p, 1000, Span::from_secs(1));
    let c = *p.net.hosts[0].engine.counters();
    assert!(c.paths_retired > 0, "{c:#?}");
    p.net.faults.black_paths.clear();
    for _ in 0..40 {
        for h in &mut p.net.hosts {
            h.done.clear();
        }
        exchange(&mut p, 10, Span::from_secs(1));
        p.net.run(Span::from_ms(10));
    }
    let c = p.net.hosts[0].engine.counters();
    assert_eq!(c.paths_returned, c.paths_retired, "{c:#?}");
}

#[test]
fn to_oneself() {
    let mut net = Net::new(9, vec![config(0)]);
    let now = net.now;
    let qp = net.hosts[0].qp(now, QpType::Srd, false);
    let me = net.hosts[0].ip;
    let ah = net.hosts[0].ah(now, me);
    for i in 0..50 {
        net.hosts[0].recv(qp, i, 1024);
        net.hosts[0].post(now, qp, send_wr(i, ah, qp, 100), pattern(i, 100)).unwrap();
    }
    assert!(net.run_until(Span::from_ms(100), |n| n.hosts[0].done.len() == 100));
    assert!(net.hosts[0].done.iter().all(|c| c.status == Status::Ok));
}

#[test]
fn datagrams() {
    let mut net = Net::pair(4);
    let now = net.now;
    let qp: Vec<_> = (0..2).map(|i| net.hosts[i].qp(now, QpType::Ud, false)).collect();
    let to = net.hosts[1].ip;
    let ah = net.hosts[0].ah(now, to);
    for i in 0..10 {
        net.hosts[1].recv(qp[1], i, 1064);
    }
    for i in 0..20 {
        net.hosts[0].post(now, qp[0], send_wr(i, ah, qp[1], 1024), pattern(i, 1024)).unwrap();
    }
    net.run(Span::from_ms(10));
    assert_eq!(net.hosts[0].statuses(), vec![Status::Ok; 20]);
    assert_eq!(net.hosts[1].received.len(), 10, "the rest found no receive");
    assert!(net.hosts[1].done.iter().all(|c| c.byte_len == 1064));
}

#[test]
fn credits_pace_and_never_deadlock() {
    for seed in 0..10 {
        let configs = (0..2).map(|i| {
            let mut c = config(i);
            c.rate.credits = true;
            c.rate.line_bytes_per_sec = 125_000_000;
            c
        });
        let mut p = Pair::with(seed, configs.collect());
        p.net.faults.loss = 300 * (seed as u32 % 2);
        exchange(&mut p, 500, Span::from_secs(5));
    }
}
