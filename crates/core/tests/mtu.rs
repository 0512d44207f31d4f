//! The way to a peer carries smaller packets than before: requests go on with smaller ones, at most
//! once as ever, and the application is told.

use crate::common::overload::{Load, Overload};
use crate::common::*;
use srd_core::*;

/// As on sockets: the engine looks for the size that passes.
fn searching(i: usize) -> EngineConfig {
    EngineConfig { mtu_search: true, ..config(i) }
}

fn pair(seed: u64) -> Pair {
    Pair::with(seed, vec![searching(0), searching(1)])
}

/// A request for `data` to or from a region of the peer's.
fn rdma(p: &mut Pair, op: Opcode, wr_id: u64, data: &[u8]) -> MrKey {
    let now = p.net.now;
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let there = if op == Opcode::Read { data.to_vec() } else { vec![0; data.len()] };
    let (key, raddr) = p.net.hosts[1].region(there, all);
    let mut wr = send_wr(wr_id, p.ah[0], p.qp[1], data.len());
    (wr.op, wr.rkey, wr.raddr) = (op, key.0, raddr);
    let own = if op == Opcode::Read { vec![0; data.len()] } else { data.to_vec() };
    p.net.hosts[0].post(now, p.qp[0], wr, own).unwrap();
    key
}

fn told(host: &Host) -> Vec<u16> {
    let sizes = host.events.iter().filter_map(|e| match e {
        AsyncEvent::PathMtu(_, size) => Some(*size),
        _ => None,
    });
    sizes.collect()
}

/// A hop shrinks in mid-transfer and says nothing. Packets of full size vanish on all paths, small
/// ones pass. Before, requests ended with status 13 after 100 tries.
#[test]
fn a_hop_that_shrinks_in_mid_transfer_is_found_and_requests_go_on() {
    for (seed, op) in (0..12).flat_map(|seed| [(seed, Opcode::Write), (seed, Opcode::Read)]) {
        let mut p = pair(seed);
        let data = pattern(seed, 400_000);
        // Delays differ, so that some packets of full size arrive after later ones were lost.
        p.net.faults.jitter_ns = 3_000 * (seed % 4);
        let key = rdma(&mut p, op, 1, &data);
        p.net.run(Span::from_us(20 + 2 * seed));
        p.net.faults.longer_lost = 600;
        let ok = p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 1);
        assert!(ok, "seed {seed}: {op:?} hangs: {:?}", p.net.hosts[0].engine.context_stats());
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "seed {seed}: {op:?}");
        if op == Opcode::Write {
            assert_eq!(p.net.hosts[1].region_bytes(key), data, "seed {seed}");
        }
        let sender = usize::from(op == Opcode::Read);
        // The largest of the table that passes: 576 − 28 − 72, in whole blocks of 128.
        assert_eq!(told(&p.net.hosts[sender]), [384], "seed {seed}: {op:?}");
        assert!(p.net.hosts[sender].engine.counters().recalls > 0);
        assert_eq!(p.net.hosts[sender].engine.path_mtu(ip(1 - sender)), Some(384));
    }
}

/// Messages that fit go on; one that is too long for the way ends with status 6, once it is known
/// that it has not arrived.
#[test]
fn messages_that_fit_go_on_and_longer_ones_end_with_a_reason() {
    let mut p = pair(3);
    for i in 0..200 {
        p.net.hosts[1].recv(p.qp[1], i, 1024);
    }
    p.send(0, 0, pattern(0, 1024)).unwrap();
    assert!(p.net.run_until(Span::from_ms(5), |n| n.hosts[0].sends_done() == 1));
    p.net.faults.longer_lost = 600;
    for i in 1..21 {
        p.send(0, i, pattern(i, if i % 2 == 0 { 1024 } else { 300 })).unwrap();
    }
    assert!(p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 21));
    let status_of = |id: u64| p.net.hosts[0].done.iter().find(|c| c.wr_id == id).unwrap().status;
    for i in 1..21 {
        let want = if i % 2 == 0 { Status::LocalBadLength } else { Status::Ok };
        assert_eq!(status_of(i), want, "message {i}");
    }
    assert_eq!(p.net.hosts[1].received.len(), 11, "what was refused was not delivered");
    // From now on it is known, and costs nothing on the wire.
    let sent = |p: &Pair| p.net.hosts[0].sent_packets - p.net.hosts[0].engine.counters().probe_pkts;
    let before = sent(&p);
    p.send(0, 99, pattern(99, 1024)).unwrap();
    p.net.run(Span::from_ms(1));
    assert_eq!(p.net.hosts[0].sends_done(), 22);
    // Beside probes of the paths that were blamed before the size was.
    assert!(sent(&p) - before <= 2);
}

/// Packets have headers of unlike length, so on some ways messages of full size pass while segments
/// of writes with as much payload do not. A size was a payload, whatever the headers: each message
/// that arrived ended the doubt that segments had begun, and once a size was found, messages that
/// pass were refused.
#[test]
fn a_way_on_which_only_some_full_packets_pass_is_found() {
    // UDP payload: 1400 bytes behind the headers of a message take 1436, of a write 1448, of a
    // write with immediate 1456; the last carries everything.
    for (n, width) in [1440, 1436, 1435, 1447, 1448, 1451, 1455, 1456].into_iter().enumerate() {
        for (immediate, every_us) in [(false, 200), (true, 200), (false, 25_000), (true, 25_000)] {
            let mut c = [searching(0), searching(1)];
            c.iter_mut().for_each(|c| (c.mtu, c.open_padded_len) = (1400, 1472));
            let mut p = Pair::with(n as u64, c.to_vec());
            for i in 0..300 {
                p.net.hosts[1].recv(p.qp[1], i, 1400);
            }
            p.send(0, 0, pattern(0, 8)).unwrap();
            let ok = p.net.run_until(Span::from_ms(5), |n| n.hosts[0].sends_done() == 1);
            assert!(ok, "{width}: no handshake");
            p.net.faults.link_bytes = width;
            let op = if immediate { Opcode::WriteImm } else { Opcode::Write };
            for i in 1..61 {
                let data = pattern(i, 30_000);
                match i % 3 {
                    0 => drop(rdma(&mut p, op, 1000 + i, &data)),
                    1 => drop(rdma(&mut p, Opcode::Read, 2000 + i, &data)),
                    _ => drop(p.send(0, i, pattern(i, 1400)).unwrap()),
                }
                p.net.run(Span::from_us(every_us));
            }
            let ok = p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 61);
            assert!(ok, "{width}, {op:?}: hangs");
            for c in &p.net.hosts[0].done {
                let message = (1..1000).contains(&c.wr_id);
                let too_long = message && width < 1436;
                let want = if too_long { Status::LocalBadLength } else { Status::Ok };
                assert_eq!(c.status, want, "{width}, {op:?}: {}", c.wr_id);
            }
            let narrow = width < if immediate { 1456 } else { 1448 };
            assert_eq!(!told(&p.net.hosts[0]).is_empty(), narrow, "{width}, {op:?}");
        }
    }
}

/// The way carries large packets again: that is found without being told, and told.
#[test]
fn a_way_that_widens_is_used_again() {
    let mut p = pair(4);
    let data = pattern(4, 300_000);
    rdma(&mut p, Opcode::Write, 1, &data);
    p.net.run(Span::from_us(30));
    p.net.faults.longer_lost = 600;
    assert!(p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 1));
    p.net.faults.longer_lost = usize::MAX;
    for i in 0..400 {
        p.net.hosts[1].recv(p.qp[1], i, 8);
        p.send(0, 10 + i, pattern(i, 8)).unwrap();
        p.net.run(Span::from_ms(10));
    }
    assert_eq!(told(&p.net.hosts[0]), [384, 1024]);
    assert_eq!(p.net.hosts[0].engine.path_mtu(ip(1)), None);
}

/// One path of 64 has a hop with a smaller MTU: it goes out of use and stays so, instead of coming
/// back with each small probe only to lose what it is given.
#[test]
fn one_path_with_a_smaller_mtu_stays_out_of_use() {
    let lost = |search: bool| {
        let mut c = [config(0), config(1)];
        c.iter_mut().for_each(|c| {
            c.mtu_search = search;
            c.path.paths = 64;
        });
        let mut p = Pair::with(5, c.to_vec());
        p.net.faults.longer_lost_on = Some((vec![17], 600));
        for i in 0..40 {
            let data = pattern(i, 200_000);
            rdma(&mut p, Opcode::Write, i, &data);
            p.net.run(Span::from_ms(5));
        }
        assert_eq!(p.net.hosts[0].statuses(), vec![Status::Ok; 40]);
        assert_eq!(told(&p.net.hosts[0]), [], "no reason to send smaller packets");
        let returned = p.net.hosts[0].engine.counters().paths_returned;
        (returned, p.net.hosts[0].engine.counters().retrans_pkts)
    };
    let (before, now) = (lost(false), lost(true));
    assert!(before.0 > 5, "small probes bring it back again and again: {before:?}");
    assert_eq!(now.0, 0, "{now:?}");
    assert!(now.1 * 4 < before.1, "packets sent again: {now:?}, with small probes {before:?}");
}

/// The local link carries less than before (EMSGSIZE): what is under way goes on in smaller packets
/// at once.
#[test]
fn a_local_link_that_shrinks_is_believed_at_once() {
    for op in [Opcode::Write, Opcode::Read] {
        let mut p = pair(6);
        let data = pattern(6, 300_000);
        let key = rdma(&mut p, op, 1, &data);
        p.net.run(Span::from_us(30));
        p.net.faults.longer_lost = 700;
        let sender = usize::from(op == Opcode::Read);
        let (now, to) = (p.net.now, ip(1 - sender));
        p.net.hosts[sender].engine.path_too_long(now, to, 1024, Some(700));
        assert!(p.net.run_until(Span::from_ms(100), |n| n.hosts[0].sends_done() == 1));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok]);
        if op == Opcode::Write {
            assert_eq!(p.net.hosts[1].region_bytes(key), data);
        }
        assert_eq!(told(&p.net.hosts[sender]), [640], "whole blocks of 128");
    }
}

/// A report that is false (nothing is as small as it says) costs a second of smaller packets.
#[test]
fn a_false_report_is_outgrown() {
    let mut p = pair(7);
    let data = pattern(7, 100_000);
    rdma(&mut p, Opcode::Write, 1, &data);
    p.net.run(Span::from_us(20));
    let now = p.net.now;
    p.net.hosts[0].engine.path_too_long(now, ip(1), 1024, Some(68));
    assert!(p.net.run_until(Span::from_ms(100), |n| n.hosts[0].sends_done() == 1));
    for i in 0..150 {
        p.net.hosts[1].recv(p.qp[1], i, 8);
        p.send(0, 10 + i, pattern(i, 8)).unwrap();
        p.net.run(Span::from_ms(10));
    }
    assert_eq!(told(&p.net.hosts[0]), [64, 1024]);
}

/// A way is narrow for a while and loses small packets, too, so that no round of the doubt counts;
/// then all sizes pass again. What was sent meanwhile says nothing of the peer. It was counted as
/// if it did: the next loss ended each request with status 13, and the one after that took the
/// whole context with it.
#[test]
fn what_is_sent_while_the_size_is_doubted_is_not_held_against_the_peer() {
    for seed in 0..20 {
        let mut c = [searching(0), searching(1)];
        c.iter_mut().for_each(|c| c.loss.rto_max = Span::from_us(200));
        let mut p = Pair::with(seed, c.to_vec());
        for i in 0..20 {
            p.net.hosts[1].recv(p.qp[1], i, 1024);
        }
        p.send(0, 0, pattern(0, 1024)).unwrap();
        assert!(p.net.run_until(Span::from_ms(5), |n| n.hosts[0].sends_done() == 1));
        (p.net.faults.longer_lost, p.net.faults.loss) = (600, 3_000);
        for i in 1..4 {
            p.send(0, i, pattern(i, 1024)).unwrap();
        }
        p.net.run(Span::from_ms(150));
        let again = p.net.hosts[0].engine.counters().retrans_pkts;
        assert!(again > 600, "seed {seed}: three messages are sent again {again} times");
        p.net.faults.longer_lost = usize::MAX;
        for i in 4..20 {
            p.send(0, i, pattern(i, 1024)).unwrap();
        }
        assert!(p.net.run_until(Span::from_secs(2), |n| n.hosts[0].sends_done() == 20));
        assert_eq!(p.net.hosts[0].statuses(), vec![Status::Ok; 20], "seed {seed}");
        let silent = |e: &AsyncEvent| matches!(e, AsyncEvent::PeerUnresponsive(_));
        assert!(!p.net.hosts[0].events.iter().any(silent), "seed {seed}");
    }
}

/// Losses that have nothing to do with sizes change no size.
#[test]
fn heavy_loss_is_not_mistaken_for_a_smaller_mtu() {
    for seed in 0..10 {
        let mut p = pair(seed);
        p.net.faults.loss = 2_000;
        let data = pattern(seed, 300_000);
        rdma(&mut p, Opcode::Write, 1, &data);
        assert!(p.net.run_until(Span::from_secs(20), |n| n.hosts[0].sends_done() == 1));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "seed {seed}");
        assert_eq!(told(&p.net.hosts[0]), [], "seed {seed}");
    }
}

/// Both hosts keep a few messages of full size under way for `span`, where all sizes pass: no size
/// may be blamed for what halts and full queues lose. Returns how many ended, and how many packets
/// of full size found the queue full.
fn overloaded(seed: u64, load: Load, span: Span) -> (usize, u64) {
    const SENDS_MAX: usize = 4_000;
    let mut c = [searching(0), searching(1)];
    c.iter_mut().for_each(|c| {
        (c.loss.unresponsive_after, c.loss.rto_max) = (Span::from_secs(30), Span::from_ms(20));
        c.rate.line_bytes_per_sec = 25_000_000;
    });
    let mut p = Pair::with(seed, c.to_vec());
    for (i, host) in (0..SENDS_MAX as u64).flat_map(|i| [(i, 0), (i, 1)]) {
        p.net.hosts[host].recv(p.qp[host], i, 1024);
    }
    p.send(0, 0, pattern(0, 1024)).unwrap();
    assert!(p.net.run_until(Span::from_ms(5), |n| n.hosts[0].sends_done() == 1));
    p.net.overload = Some(Overload::new(load, seed, 2));
    let end = p.net.now + span;
    let mut posted = [1, 0];
    while p.net.now < end {
        for (from, posted) in posted.iter_mut().enumerate() {
            while *posted < SENDS_MAX && *posted - p.net.hosts[from].sends_done() < 3 + 5 * from {
                p.send(from, *posted as u64, vec![1; 1024]).unwrap();
                *posted += 1;
            }
        }
        p.net.run(Span::from_us(500));
    }
    for h in &p.net.hosts {
        assert_eq!(told(h), [], "seed {seed}: {load:?}");
        assert!(h.statuses().iter().all(|&s| s == Status::Ok), "seed {seed}: {load:?}");
    }
    let done = p.net.hosts.iter().map(Host::sends_done).sum();
    (done, p.net.overload.unwrap().refused.0)
}

/// Neither peers that halt for a while, nor full sockets, nor queues in which large packets find no
/// room, nor our own halts are mistaken for a smaller MTU.
#[test]
fn overload_is_not_mistaken_for_a_smaller_mtu() {
    let halts = Load {
        halt_max: Span::from_ms(120),
        run_max: Span::from_ms(60),
        socket_bytes: 8_000,
        ..Load::default()
    };
    let queue = Load {
        socket_bytes: 200_000,
        room_max: 1_500,
        busy_max: Span::from_ms(400),
        free_max: Span::from_ms(20),
        ..Load::default()
    };
    let both = Load { socket_bytes: 8_000, room_max: 2_000, ..Load { ..queue } };
    let both = Load { halt_max: halts.halt_max, run_max: halts.run_max, ..both };
    for seed in 0..12 {
        for load in [halts, queue, both] {
            let (done, refused) = overloaded(seed, load, Span::from_secs(5));
            println!("{seed}: {done} messages, {refused} packets of full size refused");
            assert!(done > 100, "seed {seed}: {done} messages");
        }
    }
}

/// With the defaults of sockets, on a way that is well otherwise, a smaller MTU is found and told
/// within a second, under a lone message as under a stream, on many paths as on one.
#[test]
fn a_true_black_hole_is_found_in_time() {
    let mut longest = Span::ZERO;
    for (paths, bytes, delay_us) in [1, 64].into_iter().flat_map(|paths| {
        [(8900, 20), (3_000_000, 20), (8900, 500), (3_000_000, 500)].map(|(b, d)| (paths, b, d))
    }) {
        let c = [0, 1].map(|i| {
            let mut c = EngineConfig::sockets(ip(i), 0, 8900);
            c.path.paths = paths;
            c.path.live_min = c.path.live_min.min(paths);
            c
        });
        let mut p = Pair::with(9, c.to_vec());
        p.net.faults.delay_ns = 1000 * delay_us;
        p.net.faults.jitter_ns = 100 * delay_us;
        rdma(&mut p, Opcode::Write, 0, &pattern(0, 100_000));
        assert!(p.net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 1));
        p.net.run(Span::from_us(100));
        let began = p.net.now;
        p.net.faults.longer_lost = 1400;
        rdma(&mut p, Opcode::Write, 1, &pattern(1, bytes));
        let found = p.net.run_until(Span::from_secs(3), |n| !told(&n.hosts[0]).is_empty());
        assert!(found, "{paths} paths, {bytes} bytes, {delay_us} us");
        let took = p.net.now.since(began);
        println!(
            "{paths} paths, {bytes} bytes, {delay_us} us: found after {} ms",
            took.0 / 1_000_000
        );
        longest = longest.max(took);
        assert_eq!(told(&p.net.hosts[0]), [1400]);
        assert!(p.net.run_until(Span::from_secs(3), |n| n.hosts[0].sends_done() == 2));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 2]);
    }
    assert!(longest < Span::from_secs(1), "{longest:?}");
}
