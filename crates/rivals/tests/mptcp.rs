//! Multipath TCP: its shares beside TCP, its paths, a path that fails.

use crate::wire;
use crate::wire::{bottleneck, exact, net, open};
use srd_fabric::{
    Fault, HostId, LeafSpine, MS, Port, Ps, SEC, SwitchId, Topology, US, World, WorldConfig,
};
use srd_rivals::{Algorithm, Conn, Scheduler, TcpConfig, TcpHost, TcpNet};
use std::sync::Arc;

const RATE: u64 = 10_000_000_000;

fn leaf_spine(spines: u32, hosts: u32) -> Topology {
    let port = Port::new(RATE, US).buffer(200_000);
    LeafSpine {
        leaves: 2,
        spines,
        hosts_per_leaf: hosts,
        cables_per_spine: 1,
        nic: Port::new(RATE, US).buffer(4_000_000),
        edge: port,
        uplink: port,
    }
    .build()
}

fn mptcp(algorithm: Algorithm) -> TcpConfig {
    // Timers without the slack of 2 ms, which is most of the round trips here.
    let tcp = TcpConfig { timer_slack_ps: 0, ..exact().mss(1448) };
    tcp.algorithm(algorithm).rto_min_ps(5 * MS).subflows(8)
}

fn spread(net: &TcpNet, conn: Conn) -> Vec<u64> {
    let host = &net.world.hosts()[conn.src.0 as usize];
    host.subflows(conn).map(|s| s.acked_bytes()).collect()
}

#[test]
fn everything_arrives_once_over_eight_subflows() {
    for scheduler in [Scheduler::LowestRtt, Scheduler::RoundRobin] {
        let tcp = TcpConfig { scheduler, ..mptcp(Algorithm::Cubic) };
        let mut net = net(bottleneck(1, RATE, 10 * US, 1 << 23), 1, &tcp);
        let conn = open(&mut net, 1)[0];
        // The last message is shorter than a segment.
        let sizes = [100_000, 10_000_000, 1];
        let ids: Vec<_> = sizes
            .iter()
            .zip([MS, 2 * MS, 2 * MS])
            .map(|(b, t)| net.message_at(conn, t, *b))
            .collect();
        assert!(net.run_done(SEC));
        let acked = net.world.now() + 50 * MS;
        net.run_until(acked);
        let messages: Vec<_> = ids.iter().map(|id| net.message(*id).expect("written")).collect();
        assert!(messages.iter().all(|m| m.acked_ps.is_some() && m.received_ps <= m.acked_ps));
        assert!(messages[1].received_ps <= messages[2].received_ps, "in order");
        let bytes = spread(&net, conn);
        assert_eq!(bytes.iter().sum::<u64>(), 10_100_001, "{bytes:?}");
        assert!(bytes.len() == 8 && bytes.iter().all(|b| *b > 500_000), "{bytes:?}");
        let c = net.counters();
        assert_eq!((c.timeouts, c.reinjected, c.joined_duplicates), (0, 0, 0), "{scheduler:?}");
        assert_eq!(net.world.totals().drops.total(), 0);
        // All subflows share one link, which is full.
        let wire = f64::from(tcp.mss + tcp.overhead_bytes()) / f64::from(tcp.mss);
        let ideal = 10_000_000.0 * 8e12 * wire / RATE as f64;
        let fct = messages[1].fct_ps().expect("it arrived") as f64;
        assert!(fct > ideal && fct < 1.05 * ideal + 100e6, "{scheduler:?}: {fct} of {ideal}");
    }
}

#[test]
fn the_first_subflow_opens_and_the_others_join_after_it() {
    let delay = 100 * US;
    let mut net = net(bottleneck(1, RATE, delay, 1 << 20), 1, &mptcp(Algorithm::Cubic));
    let log = wire::Log::watch(&mut net);
    let conn = open(&mut net, 1)[0];
    net.message_at(conn, 0, 1448);
    net.run_until(10 * MS);
    let syns: Vec<Ps> = log
        .all()
        .iter()
        .filter(|s| s.what == srd_fabric::TapWhat::Sent)
        .filter(|s| matches!(s.segment, srd_rivals::TcpSegment::Syn { .. }))
        .map(|s| s.at)
        .collect();
    assert_eq!(syns.len(), 8);
    assert!(syns[0] == 0 && syns[1..].iter().all(|at| *at > 2 * delay && *at < 2 * delay + US));
    let host = &net.world.hosts()[0];
    let mut ports: Vec<u16> = host.subflows(conn).map(|s| s.ports().0).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);
}

/// Rate of a connection of host 0 in shares of the rate of host 1's plain Reno at one bottleneck.
fn against_reno(tcp: &TcpConfig) -> f64 {
    let topology = bottleneck(2, 100_000_000, 5 * MS, 125_000);
    let plain = Arc::new(exact().mss(1448).algorithm(Algorithm::Reno));
    let many = Arc::new(tcp.clone());
    // Receivers send acks of their own kind: host 2 receives from host 0, host 3 from host 1.
    let config = |id: HostId| if id.0.is_multiple_of(2) { &many } else { &plain };
    let mut world = World::new(topology, WorldConfig::new(5), |id| {
        TcpHost::new(id, Arc::clone(config(id)), Arc::default())
    })
    .expect("sound");
    let connect = |world: &mut World<_, TcpHost>, from: u32| {
        world.with_host(HostId(from), |h, io| {
            let conn = h.connect(HostId(from + 2), (40_000, 5_001), io);
            h.write(conn, 1 << 40, io);
            conn
        })
    };
    let conns = [connect(&mut world, 0), connect(&mut world, 1)];
    let bytes = |world: &World<_, TcpHost>, i: usize| world.hosts()[i + 2].received_bytes(conns[i]);
    world.run_until(30 * SEC);
    let before = [bytes(&world, 0), bytes(&world, 1)];
    world.run_until(120 * SEC);
    (bytes(&world, 0) - before[0]) as f64 / (bytes(&world, 1) - before[1]) as f64
}

#[test]
fn coupled_subflows_take_the_share_of_one_tcp() {
    let one = |a| mptcp(a).subflows(4).rto_min_ps(50 * MS);
    // Uncoupled, four subflows take four shares.
    let uncoupled = against_reno(&one(Algorithm::Reno));
    assert!((2.8..5.5).contains(&uncoupled), "{uncoupled}");
    for algorithm in [Algorithm::Lia, Algorithm::Olia] {
        let share = against_reno(&one(algorithm));
        assert!((0.5..1.9).contains(&share), "{algorithm:?}: {share}");
    }
}

#[test]
fn many_paths_beat_one_in_a_permutation() {
    let longest = |tcp: &TcpConfig| {
        let mut sum = 0.0;
        for seed in 1..3 {
            let topology = leaf_spine(16, 16);
            let mut net =
                TcpNet::new(topology, WorldConfig::new(seed), tcp.clone()).expect("sound");
            let conns: Vec<_> =
                (0..16).map(|h| net.connect(HostId(h), HostId(16 + (h + 5) % 16))).collect();
            let round = net.rounds(&conns, 10_000_000, 2, MS, SEC).pop().expect("two");
            sum += round.max_ps().expect("all arrive") as f64;
        }
        sum / 2.0
    };
    let one = longest(&mptcp(Algorithm::Cubic).subflows(1));
    for algorithm in [Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia] {
        let many = longest(&mptcp(algorithm));
        assert!(many < 0.65 * one, "{algorithm:?}: {many} against {one}");
    }
}

/// One of 16 spines becomes a black hole for ever: the subflows that pass it wait for one timeout,
/// and what they had in flight goes over the others.
#[test]
fn a_dead_spine_costs_one_timeout() {
    let tcp = mptcp(Algorithm::Lia);
    let mut hit = 0;
    for seed in 1..9 {
        let topology = leaf_spine(16, 1);
        let spine: SwitchId = topology.tier_switches(1).nth(3).expect("a spine");
        let mut net = TcpNet::new(topology, WorldConfig::new(seed), tcp.clone()).expect("sound");
        let conn = net.connect(HostId(0), HostId(1));
        net.message_at(conn, MS, 4_000_000);
        assert!(net.run_done(SEC));
        net.run_until(50 * MS);
        let hole = Fault::SwitchHole { switch: spine, routing: None };
        net.world.fault_at(51 * MS, hole).expect("a spine that exists");
        let before = net.counters();
        let id = net.message_at(conn, 50 * MS, 4_000_000);
        assert!(net.run_done(10 * SEC));
        let fct = net.message(id).and_then(|m| m.fct_ps()).expect("it arrived");
        let c = net.counters();
        let timeouts = c.timeouts - before.timeouts;
        if timeouts == 0 {
            assert!(fct < 4 * MS, "{fct}: no subflow passes there");
            continue;
        }
        hit += 1;
        assert!(c.reinjected > 0);
        // 1 ms until the hole (less the age of the last acknowledgment), a timeout of 5 ms and the
        // round trip, and what is left of the message then.
        assert!(fct > 5_900 * US && fct < 8 * MS, "seed {seed}: {fct}");
    }
    assert!(hit >= 2, "{hit} of 8 seeds");
}

#[test]
fn what_cannot_be_is_refused() {
    let fails = |c: TcpConfig| c.check().expect_err("refused").to_string();
    assert!(fails(TcpConfig::default().subflows(0)).contains("subflows = 0"));
    assert!(fails(TcpConfig::default().subflows(65)).contains("subflows = 65"));
    assert!(fails(TcpConfig::default().algorithm(Algorithm::Lia)).contains("subflows = 2"));
}
