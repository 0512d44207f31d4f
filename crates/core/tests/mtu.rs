//! The way to a peer carries smaller packets than before: requests go on with smaller ones, at most
//! once as ever, and the application is told.

mod common;
use common::*;
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
    let before = p.net.hosts[0].sent_packets;
    p.send(0, 99, pattern(99, 1024)).unwrap();
    p.net.run(Span::from_ms(1));
    assert_eq!(p.net.hosts[0].sends_done(), 22);
    assert!(p.net.hosts[0].sent_packets - before <= 2);
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
