//! Packets in a row on one path: how many follow each other, and whose they are.

use crate::common::{Pair, config, send_wr};
use srd_core::config::{PathPolicy, RatePolicy};
use srd_core::wire::{Body, OVERHEAD_BYTES};
use srd_core::*;

const MTU: u16 = 1400;

/// Two hosts with the defaults of sockets, but a fixed window and rate, whose context is open.
fn pair(window_bytes: u64, bytes_per_sec: u64) -> Pair {
    let configs = [0, 1].map(|i| {
        let ip = config(i).ip;
        let mut c = EngineConfig::sockets(ip, 0, MTU);
        // Each burst takes the next path.
        c.path.policy = PathPolicy::Oblivious;
        c.rate.policy = RatePolicy::Fixed;
        c.rate.inflight_fixed_bytes = window_bytes;
        c.rate.rate_fixed_bytes_per_sec = bytes_per_sec;
        c
    });
    let mut p = Pair::with(7, configs.into());
    assert_eq!(p.batch(1, 100, Span::from_ms(50)), [Status::Ok]);
    p.net.run(Span::from_ms(1));
    p
}

/// Lengths of the runs of data packets on one path among those that leave at once.
fn runs(p: &mut Pair) -> Vec<usize> {
    for i in 0..200 {
        p.send(0, i, vec![1; MTU.into()]).unwrap();
    }
    let now = p.net.now;
    let left = p.net.hosts[0].transmit(now);
    let data: Vec<_> = left.iter().filter(|f| matches!(f.body, Body::Send(_))).collect();
    data.chunk_by(|a, b| a.header.path == b.header.path).map(<[_]>::len).collect()
}

#[test]
fn a_fast_sender_fills_one_segmented_send_per_path() {
    let mut p = pair(1 << 20, 12_500_000_000);
    let fit = 65_000 / (usize::from(MTU) + OVERHEAD_BYTES);
    assert_eq!(runs(&mut p), [fit, 64 - fit], "as much as one system call takes");
}

#[test]
fn a_window_is_spread_over_eight_paths_at_least() {
    const WINDOW: usize = 120_000;
    let mut p = pair(WINDOW as u64, 12_500_000_000);
    let runs = runs(&mut p);
    let most = WINDOW / 8 / usize::from(MTU) + 1;
    assert!(runs.len() >= 5 && runs.iter().all(|&n| n <= most), "{runs:?}, {most} each");
}

/// Hosts whose calls are slow lose more by tiny bursts than paths gain.
#[test]
fn a_small_window_leaves_in_runs_of_a_queue_pairs_turn() {
    let mut p = pair(30_000, 12_500_000_000);
    let runs = runs(&mut p);
    assert!(runs[0] == 8 && runs.iter().all(|&n| n <= 8), "{runs:?}");
}

#[test]
fn a_slow_sender_sends_what_20_us_take() {
    let mut p = pair(1 << 20, 500_000_000);
    let runs = runs(&mut p);
    assert!(
        !runs.is_empty() && runs.iter().all(|&n| n <= 10_000 / usize::from(MTU) + 1),
        "{runs:?}"
    );
}

/// A run on one path is longer than the turn of one queue pair.
#[test]
fn queue_pairs_take_turns_within_a_run() {
    let mut p = pair(1 << 20, 12_500_000_000);
    let now = p.net.now;
    let other = p.net.hosts[0].qp(now, QpType::Srd, false);
    for i in 0..100 {
        for qp in [p.qp[0], other] {
            let wr = send_wr(i, p.ah[0], p.qp[1], MTU.into());
            p.net.hosts[0].post(now, qp, wr, vec![1; MTU.into()]).unwrap();
        }
    }
    let left = p.net.hosts[0].transmit(now);
    let of = |f: &crate::common::Flying| match f.body {
        Body::Send(msg) => (f.header.path, msg.src_qpn),
        _ => panic!("{:?}", f.body),
    };
    let turns: Vec<_> = left.chunk_by(|a, b| of(a).1 == of(b).1).map(<[_]>::len).collect();
    assert!(turns.iter().all(|&n| n <= 8) && turns.len() >= 8, "{turns:?}");
    assert!(left[..32].iter().all(|f| f.header.path == left[0].header.path), "one path");
}
