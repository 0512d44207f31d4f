//! Peers that die and never return, as small stories: what they held is free again, nobody else
//! waits for them, and nobody spends time on them.

use crate::common::*;
use core::net::IpAddr;
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

/// How many places each address can take of `places`, one after the other, until none is left: an
/// address gets one as long as it holds fewer than are left.
fn shares(places: u32) -> Vec<u32> {
    let mut left = places;
    core::iter::from_fn(|| {
        let share = left.div_ceil(2);
        left -= share;
        (share > 0).then_some(share)
    })
    .collect()
}

/// Engines at so many addresses that together they hold every place for reads at host 0, and one
/// more at another address. Returns the hosts that die, each with its number of reads, and the
/// survivor.
fn full_house(make: impl Fn(IpAddr, u8) -> EngineConfig) -> (Net, Vec<(usize, u32)>, usize) {
    let server = make(ip(0), 0);
    let (places, each) = (server.reads_max, u32::from(server.reads_per_context_max));
    let (mut configs, mut dying) = (vec![server], Vec::new());
    let shares = shares(places);
    for (k, share) in shares.iter().enumerate() {
        for slot in 0..share.div_ceil(each) {
            dying.push((configs.len(), each.min(share - slot * each)));
            configs.push(make(ip(1 + k), slot as u8));
        }
    }
    let survivor = configs.len();
    configs.push(make(ip(1 + shares.len()), 0));
    (Net::new(1, configs), dying, survivor)
}

/// Reads that host 0 serves now.
fn served(net: &Net) -> u32 {
    net.hosts[0].engine.context_stats().iter().map(|c| c.reads_served).sum()
}

/// Requesters that died in mid-read held their places among the reads that the responder serves for
/// ever: when they held all, every other client was told "busy" without end.
fn the_dead_leave_their_places(make: impl Fn(IpAddr, u8) -> EngineConfig) {
    const LEN: usize = 4096;
    let (mut net, dying, survivor) = full_house(make);
    let places = net.hosts[0].engine.config().reads_max;
    let silence = net.hosts[0].engine.config().loss.unresponsive_after;
    let now = net.now;
    let server = net.hosts[0].qp(now, QpType::Srd, false);
    let region = net.hosts[0].region(vec![7; LEN], Access::REMOTE_READ);
    let mut last = ip(0);
    let readers = dying.iter().copied().chain([(survivor, 1)]);
    let objects: Vec<_> = readers
        .map(|(host, _)| {
            let at = net.hosts[host].ip;
            if core::mem::replace(&mut last, at) != at {
                net.hosts[0].ah(now, at);
            }
            let qp = net.hosts[host].qp(now, QpType::Srd, false);
            (qp, net.hosts[host].ah(now, ip(0)))
        })
        .collect();
    let read = |net: &mut Net, host: usize, n: u32| {
        let (qp, ah) = objects[host - 1];
        for k in 0..n {
            let wr = read_wr(u64::from(k), ah, server, region, LEN);
            let now = net.now;
            net.hosts[host].post(now, qp, wr, vec![0; LEN]).unwrap();
        }
    };
    // No answer arrives: all die in mid-read.
    net.faults.longer_lost = 0;
    let mut held = 0;
    for &(host, n) in &dying {
        read(&mut net, host, n);
        held += n;
        let all = net.run_until(Span::from_ms(50), |net| served(net) == held);
        assert!(all, "{} reads are served, not {held}", served(&net));
        net.faults.killed.push(host);
    }
    assert_eq!(served(&net), places, "every place is taken");
    net.faults.longer_lost = usize::MAX;
    read(&mut net, survivor, 1);
    net.run(silence.scale(1, 4));
    assert_eq!((net.hosts[survivor].sends_done(), served(&net)), (0, places), "no place is free");
    let done = net.run_until(silence.scale(2, 1), |n| n.hosts[survivor].sends_done() == 1);
    assert!(done, "{} places are taken", served(&net));
    assert_eq!(net.hosts[survivor].statuses(), [Status::Ok]);
    // The dead have no window state and are left alone.
    net.run(silence.scale(8, 1));
    let left = net.hosts[0].engine.context_stats();
    let alive = net.hosts[survivor].ip;
    let of_the_dead = left.iter().filter(|c| c.peer.ip != alive && c.is_active).count();
    assert_eq!((served(&net), of_the_dead), (0, 0), "{left:#?}");
    let sent = net.hosts[0].sent_packets;
    net.run(silence.scale(8, 1));
    assert_eq!(net.hosts[0].sent_packets, sent, "packets to the dead");
}

#[test]
fn readers_that_die_in_mid_read_leave_their_places() {
    assert_eq!(shares(8), [4, 2, 1, 1]);
    the_dead_leave_their_places(|at, slot| EngineConfig {
        ip: at,
        slot,
        reads_max: 8,
        ..config(0)
    });
}

/// The same at the defaults of sockets: 70 engines at thirteen addresses hold all 4,096 places.
#[test]
fn seventy_readers_at_thirteen_addresses_leave_their_places() {
    assert_eq!(shares(4096), [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1]);
    let make = |at, slot| EngineConfig::sockets(at, slot, 1024);
    assert_eq!(full_house(make).1.len(), 70);
    the_dead_leave_their_places(make);
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
    let mut p = Pair::opened(3, 500);
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

/// Refusals that the peer has not confirmed kept its window state for up to two hundred times the
/// time of an idle context: the more often it had been refused, the more rarely it was probed.
#[test]
fn a_peer_that_dies_after_many_refusals_is_forgotten() {
    let mut r = Readers::new(5, 1, |c| (c.reads_max, c.idle_after) = (0, Span::from_ms(5)));
    r.read(1);
    r.net.run(Span::from_ms(500));
    let sent = r.net.hosts[0].sent_packets;
    assert!(sent > 20, "{sent} packets: each refusal is one at least");
    r.net.faults.killed = vec![1];
    // Twice the silence of a peer that is gone.
    r.net.run(Span::from_ms(400));
    let left = r.net.hosts[0].engine.context_stats();
    assert!(left.iter().all(|c| !c.is_active), "{left:#?}");
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
