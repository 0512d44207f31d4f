//! Peers that die and never return, as small stories: what they held is free again, nobody else
//! waits for them, and nobody spends time on them.

mod common;
use common::*;
use srd_core::*;

/// A request to read all of a region.
fn read_wr(wr_id: u64, ah: AhId, dst: Qpn, region: (MrKey, u64), len: usize) -> SendRequest {
    let mut wr = send_wr(wr_id, ah, dst, len);
    (wr.op, wr.rkey, wr.raddr) = (Opcode::Read, region.0.0, region.1);
    wr
}

/// Host 0 serves a megabyte; all others have a queue pair and an address handle for it.
struct Readers {
    net: Net,
    server: Qpn,
    region: (MrKey, u64),
    qp: Vec<Qpn>,
    ah: Vec<AhId>,
}

const MEGABYTE: usize = 1 << 20;

impl Readers {
    fn new(seed: u64, clients: usize, tune: impl Fn(&mut EngineConfig)) -> Self {
        let mut configs: Vec<_> = (0..=clients).map(config).collect();
        configs.iter_mut().for_each(tune);
        let mut net = Net::new(seed, configs);
        let now = net.now;
        let server = net.hosts[0].qp(now, QpType::Srd, false);
        let region = net.hosts[0].region(vec![7; MEGABYTE], Access::REMOTE_READ);
        let (mut qp, mut ah) = (vec![Qpn(0)], vec![AhId::UNKNOWN]);
        for i in 1..=clients {
            qp.push(net.hosts[i].qp(now, QpType::Srd, false));
            ah.push(net.hosts[i].ah(now, ip(0)));
            net.hosts[0].ah(now, ip(i));
        }
        Self { net, server, region, qp, ah }
    }

    fn read(&mut self, i: usize) {
        let wr = read_wr(1, self.ah[i], self.server, self.region, MEGABYTE);
        let now = self.net.now;
        self.net.hosts[i].post(now, self.qp[i], wr, vec![0; MEGABYTE]).unwrap();
    }
}

/// A requester that died in mid-read held its place among the reads that the responder serves for
/// ever: four of them filled a table of eight, and every other client was told "busy" without end.
#[test]
fn readers_that_die_in_mid_read_leave_their_places() {
    let mut r = Readers::new(1, 5, |c| c.reads_max = 8);
    for i in 1..=4 {
        r.read(i);
        r.read(i);
    }
    assert!(r.net.run_until(Span::from_ms(5), |n| {
        n.hosts[0].engine.counters().rdma_read_resp_bytes > 8 * 1024
    }));
    r.net.faults.killed = vec![1, 2, 3, 4];
    r.read(5);
    let done = r.net.run_until(Span::from_secs(1), |n| n.hosts[5].sends_done() == 1);
    assert!(done, "{:#?}", r.net.hosts[0].engine.context_stats());
    assert_eq!(r.net.hosts[5].statuses(), [Status::Ok]);
    // The dead have no window state and are left alone.
    r.net.run(Span::from_secs(2));
    let of_the_dead = |h: &Host| {
        h.engine.context_stats().iter().filter(|c| c.peer.ip != ip(5) && c.is_active).count()
    };
    assert_eq!(of_the_dead(&r.net.hosts[0]), 0);
    let sent = r.net.hosts[0].sent_packets;
    r.net.run(Span::from_secs(10));
    assert_eq!(r.net.hosts[0].sent_packets, sent, "packets to the dead");
}

/// A write with immediate of which only a part arrived, and packets that came out of order, were
/// kept for the dead as well.
#[test]
fn what_a_dead_writer_began_is_forgotten() {
    for seed in 0..5 {
        let mut p = Pair::new(seed);
        p.net.faults.loss = 1_000;
        let region = p.net.hosts[1].region(vec![0; MEGABYTE], Access::REMOTE_WRITE);
        let mut wr = send_wr(1, p.ah[0], p.qp[1], MEGABYTE);
        (wr.op, wr.rkey, wr.raddr) = (Opcode::WriteImm, region.0.0, region.1);
        let now = p.net.now;
        p.net.hosts[0].post(now, p.qp[0], wr, vec![1; MEGABYTE]).unwrap();
        p.net.run(Span::from_us(100));
        p.net.faults.killed = vec![0];
        p.net.run(Span::from_secs(1));
        let left = p.net.hosts[1].engine.context_stats();
        assert!(left.iter().all(|c| !c.is_active), "seed {seed}: {left:#?}");
        let sent = p.net.hosts[1].sent_packets;
        p.net.run(Span::from_secs(10));
        assert_eq!(p.net.hosts[1].sent_packets, sent, "seed {seed}: packets to the dead");
    }
}

/// Requests to a dead peer end with status 13; their tombstones kept a window for ever.
#[test]
fn requests_to_the_dead_leave_nothing() {
    let mut p = Pair::new(3);
    p.net.hosts[1].recv(p.qp[1], 1, 500);
    p.send(0, 1, vec![1; 500]).unwrap();
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].sends_done() == 1));
    p.net.faults.killed = vec![1];
    for i in 0..100 {
        p.send(0, i, vec![1; 500]).unwrap();
    }
    assert!(p.net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 101));
    assert_eq!(p.net.hosts[0].statuses()[1..], [Status::LocalUnrespRemote; 100]);
    p.net.run(Span::from_secs(1));
    assert!(p.net.hosts[0].engine.context_stats().is_empty());
    assert_eq!(p.net.hosts[0].engine.counters().contexts_forgotten, 1);
}

/// A peer that was forgotten while the network was cut learns it, and its next request is served.
#[test]
fn a_reader_that_returns_after_it_was_forgotten_begins_anew() {
    for seed in 0..10 {
        let mut r = Readers::new(seed, 1, |_| {});
        r.read(1);
        r.net.run(Span::from_us(60));
        r.net.faults.dead = true;
        r.net.run(Span::from_ms(1_000));
        r.net.faults.dead = false;
        assert_eq!(r.net.hosts[1].statuses(), [Status::LocalUnrespRemote], "seed {seed}");
        assert!(r.net.hosts[0].engine.context_stats().is_empty(), "seed {seed}");
        for _ in 0..2 {
            r.read(1);
            r.net.run(Span::from_ms(20));
        }
        let last = r.net.hosts[1].statuses().pop();
        assert_eq!(last, Some(Status::Ok), "seed {seed}");
    }
}

/// Reads went on through a queue pair that was destroyed: nobody could end them but the requester.
#[test]
fn reads_end_with_the_queue_pair_they_came_through() {
    for to_error in [false, true] {
        let mut r = Readers::new(4, 1, |_| {});
        r.read(1);
        r.net.run(Span::from_us(60));
        let (now, server) = (r.net.now, &mut r.net.hosts[0].engine);
        assert!(server.counters().rdma_read_resp_bytes > 0);
        if to_error {
            let to = QpModify { state: Some(QpState::Err), ..QpModify::default() };
            server.qp_modify(now, r.server, to).unwrap();
        } else {
            server.qp_destroy(now, r.server).unwrap();
        }
        assert!(r.net.run_until(Span::from_ms(50), |n| n.hosts[1].sends_done() == 1));
        assert_eq!(r.net.hosts[1].statuses(), [Status::RemoteBadAddress], "error {to_error}");
    }
}

/// A read was refused as busy for ever: no completion, no event.
#[test]
fn a_peer_that_is_busy_for_ever_is_told() {
    let mut r = Readers::new(5, 1, |c| {
        c.reads_max = 0;
        c.loss.busy_after = Span::from_ms(300);
    });
    r.read(1);
    r.net.run(Span::from_ms(290));
    assert_eq!(r.net.hosts[1].sends_done(), 0);
    r.net.run(Span::from_ms(40));
    assert_eq!(r.net.hosts[1].statuses(), [Status::RemoteRnr]);
}

/// The peer chose how much is kept for packets under way to it.
#[test]
fn a_peer_does_not_choose_our_memory() {
    let mut configs: Vec<_> = (0..2).map(config).collect();
    configs[0].window = 256;
    configs[1].window = 32_768;
    configs[0].rate.policy = config::RatePolicy::Fixed;
    configs[0].rate.inflight_fixed_bytes = 4 << 20;
    let mut p = Pair::with(6, configs);
    p.net.faults.delay_ns = 200_000;
    p.net.hosts[1].recv(p.qp[1], 1, 10);
    p.send(0, 1, vec![1; 10]).unwrap();
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].sends_done() == 1));
    let region = p.net.hosts[1].region(vec![0; 4 * MEGABYTE], Access::REMOTE_WRITE);
    let mut wr = send_wr(1, p.ah[0], p.qp[1], 4 * MEGABYTE);
    (wr.op, wr.rkey, wr.raddr) = (Opcode::Write, region.0.0, region.1);
    let now = p.net.now;
    p.net.hosts[0].post(now, p.qp[0], wr, vec![1; 4 * MEGABYTE]).unwrap();
    let mut most = 0;
    while p.net.hosts[0].sends_done() < 2 {
        p.net.step();
        most = most.max(p.net.hosts[0].engine.context_stats()[0].psns_unresolved);
    }
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 2]);
    assert!(most > 128 && most <= 256, "{most}");
}

/// When a switch dies, every peer behind it falls silent at once. Each looked at all contexts, and
/// each ended request at all requests: quadratic, in one call.
#[test]
fn many_silent_peers_are_little_work_per_call() {
    const PEERS: usize = 400;
    let mut configs: Vec<_> = (0..=PEERS).map(config).collect();
    for c in &mut configs {
        c.window = 64;
    }
    let mut net = Net::new(7, configs);
    let now = net.now;
    let qp = net.hosts[0].qp(now, QpType::Srd, false);
    for i in 1..=PEERS {
        let to = net.hosts[i].qp(now, QpType::Srd, false);
        net.hosts[i].recv(to, 1, 10);
        let ah = net.hosts[0].ah(now, ip(i));
        net.hosts[0].post(now, qp, send_wr(1, ah, to, 10), vec![1; 10]).unwrap();
        net.hosts[0].post(now, qp, send_wr(2, ah, to, 10), vec![1; 10]).unwrap();
    }
    assert!(net.run_until(Span::from_ms(90), |n| n.hosts[0].sends_done() == PEERS));
    net.faults.killed = (1..=PEERS).collect();
    let before = net.hosts[0].engine.counters().timer_steps;
    assert!(net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 2 * PEERS));
    let all = net.hosts[0].engine.counters().timer_steps - before;
    // One context's timer may pass the bound by what it has outstanding.
    let bound = srd_core::limits::TIMER_STEPS_MAX + 8;
    assert!(net.timer_steps_max <= bound, "{} in one call", net.timer_steps_max);
    assert!(all < 100 * PEERS as u64, "{all} steps for {PEERS} peers");
}
