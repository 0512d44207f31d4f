//! Ways that carry less than full packets from the start: contexts open with smaller ones, and only
//! where full ones really do not pass.

use crate::common::door::{Door, from, network, open, stranger};
use crate::common::overload::{Load, Overload};
use crate::common::*;
use srd_core::wire::Body;
use srd_core::*;

fn pair(seed: u64) -> Pair {
    let c = [0, 1].map(|i| EngineConfig::sockets(ip(i), 0, 8900));
    let mut p = Pair::with(seed, c.to_vec());
    p.net.faults.delay_ns = 20_000;
    p
}

fn told(host: &Host) -> Vec<u16> {
    let sizes = host.events.iter().filter_map(|e| match e {
        AsyncEvent::PathMtu(_, size) => Some(*size),
        _ => None,
    });
    sizes.collect()
}

fn write(p: &mut Pair, wr_id: u64, len: usize) {
    let now = p.net.now;
    let (key, raddr) = p.net.hosts[1].region(vec![0; len], Access::REMOTE_WRITE);
    let mut wr = send_wr(wr_id, p.ah[0], p.qp[1], len);
    (wr.op, wr.rkey, wr.raddr) = (Opcode::Write, key.0, raddr);
    p.net.hosts[0].post(now, p.qp[0], wr, pattern(wr_id, len)).unwrap();
}

/// Before, each of these ended with status 15: an Open was always of full size.
#[test]
fn a_way_that_is_narrow_from_the_start_is_used_and_told() {
    for (passes, want) in [(8166, 8066), (2000, 1400), (1400, 1400), (1200, 1180), (500, 476)] {
        let mut p = pair(1);
        (p.net.faults.longer_lost, p.net.faults.opens_too) = (passes, true);
        write(&mut p, 1, 100_000);
        assert!(p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 1));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "{passes}");
        println!("{passes}: {want} after {} ms", p.net.now.0 / 1_000_000);
        p.net.run(Span::from_ms(10));
        for host in &p.net.hosts {
            assert_eq!(told(host), [want], "{passes}");
        }
        // Another context with the address begins with the size that is known.
        assert_eq!(p.net.hosts[0].engine.path_mtu(ip(1)), Some(want));
        // The way widens: that is found.
        (p.net.faults.longer_lost, p.net.faults.opens_too) = (usize::MAX, false);
        for i in 0..100 {
            write(&mut p, 10 + i, 8);
            p.net.run(Span::from_ms(100));
        }
        assert_eq!(told(&p.net.hosts[0]), [want, 8900], "{passes}");
    }
}

/// A host with a smaller device behind links that fit it.
#[test]
fn devices_of_different_sizes_agree_on_the_smaller() {
    let c = [8900, 1400].into_iter().enumerate();
    let c = c.map(|(i, mtu)| EngineConfig::sockets(ip(i), 0, mtu));
    let mut p = Pair::with(2, c.collect());
    (p.net.faults.longer_lost, p.net.faults.opens_too) = (1400, true);
    write(&mut p, 1, 100_000);
    assert!(p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 1));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok]);
    assert_eq!((told(&p.net.hosts[0]), told(&p.net.hosts[1])), (vec![1400], vec![]));
    // The other way round the Open is of full size for its sender.
    p.net.hosts[0].recv(p.qp[0], 1, 1400);
    p.send(1, 1, vec![1; 1400]).unwrap();
    assert!(p.net.run_until(Span::from_secs(5), |n| n.hosts[1].sends_done() == 1));
    assert_eq!(p.net.hosts[1].statuses(), [Status::Ok]);
}

/// A peer that comes up late, when Opens of all sizes are under way, is no narrow way, whatever is
/// lost: a message of full size arrives.
#[test]
fn a_late_peer_and_loss_are_not_mistaken_for_a_narrow_way() {
    for seed in 0..60 {
        let mut p = pair(seed);
        (p.net.faults.loss, p.net.faults.jitter_ns) = (1_500 * (seed as u32 % 3), 40_000);
        p.net.faults.killed = vec![1];
        p.net.hosts[1].recv(p.qp[1], 1, 8900);
        p.send(0, 1, vec![1; 8900]).unwrap();
        p.net.run(Span::from_ms(100 + 31 * seed));
        p.net.faults.killed.clear();
        assert!(p.net.run_until(Span::from_secs(5), |n| n.hosts[0].sends_done() == 1));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "seed {seed}");
        p.net.run(Span::from_ms(50));
        for host in &p.net.hosts {
            assert_eq!(told(host), [], "seed {seed}");
        }
    }
}

/// Neither are hosts that halt and queues in which large packets find no room.
#[test]
fn overload_is_not_mistaken_for_a_narrow_way() {
    let queue = Load {
        socket_bytes: 200_000,
        room_max: 14_000,
        busy_max: Span::from_ms(800),
        free_max: Span::from_ms(20),
        ..Load::default()
    };
    let halt = (Span::from_ms(120), Span::from_ms(60));
    let both = Load { halt_max: halt.0, run_max: halt.1, socket_bytes: 30_000, ..queue };
    for (seed, load) in (0..60).flat_map(|seed| [(seed, queue), (seed, both)]) {
        let mut p = pair(seed);
        p.net.hosts[1].recv(p.qp[1], 1, 8900);
        p.net.overload = Some(Overload::new(load, seed, 2));
        p.send(0, 1, vec![1; 8900]).unwrap();
        assert!(p.net.run_until(Span::from_secs(9), |n| n.hosts[0].sends_done() == 1));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "seed {seed}");
        for host in &p.net.hosts {
            assert_eq!(told(host), [], "seed {seed}");
        }
    }
}

/// Of a peer's two Opens in each round the full one was lost for a while, and then the peer opened
/// the context because its Challenge was answered: that shows nothing of the way. A single small
/// Open used to be enough (seed 922918055802).
#[test]
fn a_few_small_opens_of_the_peer_prove_nothing() {
    for (opens, want) in [(1, vec![]), (9, vec![]), (10, vec![1000])] {
        let mut d = Door::new(|c| c.mtu_search = true);
        let (who, mut tag) = (network(1), None);
        for _ in 0..opens {
            let mut small = stranger(open(1, 0), 0, 0);
            small.payload_len =
                1000 - (small.headers_len() - srd_core::wire::OVERHEAD_BYTES) as u16;
            let padding = vec![0; small.payload_len.into()];
            d.host.receive(d.now, &from(who), &small, &padding);
            for f in d.host.transmit(d.now) {
                if let Body::OpenAck(a) = f.body {
                    tag = Some(a.tag);
                }
            }
        }
        let mut first = stranger(Body::Probe, 0, tag.expect("an Open is answered"));
        (first.header.tx_num, first.header.psn) = (1, 1);
        d.host.receive(d.now, &from(who), &first, &[]);
        assert_eq!(told(&d.host), want, "{opens} small Opens");
    }
}

/// What an Open makes its receiver send is never longer than the Open: nobody can make it send more
/// to somebody else.
#[test]
fn an_answer_is_never_longer_than_what_asked() {
    for padded in [0, 84, 100, 300, 548, 1472, 8972] {
        let mut p = pair(3);
        p.send(0, 1, vec![1; 100]).unwrap();
        let mut open = p.net.hosts[0].transmit(p.net.now).pop().unwrap();
        open.padded_len = padded;
        let asked = padded.max(80);
        p.net.hand_over(open);
        let answers = p.net.hosts[1].transmit(p.net.now);
        assert_eq!(answers.len(), 1);
        let narrow = (81..8972).contains(&padded);
        assert_eq!(answers[0].padded_len, if narrow { asked } else { 0 }, "{padded}");
    }
}
