//! Storms of faults: everything arrives, once, in order; equal seeds give equal runs.

use srd_fabric::{
    Effect, Fault, HostId, LeafSpine, MS, Port, Rng, SEC, Target, Topology, US, World, WorldConfig,
};
use srd_rivals::{Algorithm, Recovery, Scheduler, SlowStart, TcpConfig, TcpNet};

fn topology() -> Topology {
    let port = Port::new(10_000_000_000, US).buffer(60_000);
    LeafSpine {
        leaves: 2,
        spines: 4,
        hosts_per_leaf: 4,
        cables_per_spine: 1,
        nic: Port::new(10_000_000_000, US).buffer(2_000_000),
        edge: port,
        uplink: port,
    }
    .build()
}

/// A random configuration.
fn config(rng: &mut Rng) -> TcpConfig {
    let pick = |rng: &mut Rng, n| rng.below(n) as usize;
    let mut algorithms = vec![Algorithm::Cubic, Algorithm::Reno, Algorithm::Dctcp, Algorithm::Bbr];
    let subflows = if rng.chance(0.3) { rng.range(2, 9) as u32 } else { 1 };
    if subflows > 1 {
        algorithms.extend([Algorithm::Lia, Algorithm::Olia]);
    }
    let algorithm = algorithms[pick(rng, algorithms.len() as u64)];
    // BBR and subflows need SACK, and BBR has a start of its own.
    let choices = if algorithm == Algorithm::Bbr { (2, 1) } else { (3, 3) };
    let choices = if subflows > 1 { (2, choices.1) } else { choices };
    let recovery = [Recovery::Rack, Recovery::Sack, Recovery::NewReno][pick(rng, choices.0)];
    let start = [SlowStart::Standard, SlowStart::HyStart, SlowStart::HyStartPlusPlus];
    let tcp = TcpConfig {
        slow_start: start[pick(rng, choices.1)],
        tso_bytes: [0, 65_536][pick(rng, 2)],
        pacing: rng.chance(0.3),
        ecn: rng.chance(0.3),
        handshake: rng.chance(0.7),
        rehash_on_rto: rng.chance(0.3),
        tlp: rng.chance(0.7),
        tick_ps: [0, MS, 4 * MS][pick(rng, 3)],
        scheduler: [Scheduler::LowestRtt, Scheduler::RoundRobin][pick(rng, 2)],
        subflows,
        retries_max: 1000,
        rto_max_ps: SEC,
        ..TcpConfig::default()
            .algorithm(algorithm)
            .rto_min_ps([5 * MS, 50 * MS][pick(rng, 2)])
            .mss([536, 1448, 8948][pick(rng, 3)])
    };
    tcp.clone().recovery(recovery).tlp_if(tcp.tlp && recovery != Recovery::NewReno)
}

trait TlpIf {
    fn tlp_if(self, on: bool) -> Self;
}
impl TlpIf for TcpConfig {
    fn tlp_if(mut self, on: bool) -> Self {
        self.tlp = on;
        self
    }
}

fn storm(net: &mut TcpNet, rng: &mut Rng) {
    for _ in 0..12 {
        let at = Target::Core;
        let effect = match rng.below(6) {
            0 => Effect::Loss(0.3 * rng.unit()),
            1 => Effect::Duplicate { prob: 0.3, delay_ps: 300 * US },
            2 => Effect::Delay { prob: 0.2, fixed_ps: 20 * US, jitter_ps: 2 * MS },
            3 => Effect::Corrupt(0.1),
            4 => Effect::FlowHole(0.3),
            _ => Effect::Loss(1.0),
        };
        let from = rng.below(300) * MS;
        net.world.fault_at(from, Fault::Impair { at, effect }).expect("a sound fault");
    }
    net.world.fault_at(400 * MS, Fault::HealAll).expect("a sound fault");
}

/// Messages of random sizes under a storm. The run's hash.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let tcp = config(&mut rng);
    let mut net = TcpNet::new(topology(), WorldConfig::new(seed), tcp.clone()).expect("sound");
    storm(&mut net, &mut rng);
    let mut expected = Vec::new();
    for _ in 0..12 {
        let src = HostId(rng.below(8) as u32);
        let dst = HostId(rng.below(8) as u32);
        if src == dst {
            continue;
        }
        let conn = net.connect(src, dst);
        let mut at = 0;
        for _ in 0..rng.range(1, 6) {
            at += rng.below(100) * MS;
            let bytes = rng.range(1, 300_000);
            expected.push((net.message_at(conn, at, bytes), at, bytes));
        }
    }
    let label = format!("seed {seed}: {tcp:?}");
    assert!(net.run_done(600 * SEC), "{label}: {:?}", net.messages());
    for (id, at, bytes) in expected {
        let m = net.message(id).expect("written");
        assert_eq!((m.start_ps, m.bytes), (at, bytes), "{label}");
        assert!(m.received_ps > Some(at), "{label}");
    }
    // All that was written was received, not a byte more, and the senders learn of it.
    net.run_until(net.world.now() + 10 * SEC);
    let messages = net.messages();
    assert!(messages.iter().all(|m| m.acked_ps >= m.received_ps), "{label}");
    let written: u64 = messages.iter().map(|m| m.bytes).sum();
    let acked: u64 =
        net.world.hosts().iter().flat_map(|h| h.senders()).map(|s| s.acked_bytes()).sum();
    // Subflows also carry what others had in flight when they timed out.
    assert!(acked == written || tcp.subflows > 1 && acked > written, "{label}: {written} {acked}");
    let conns: std::collections::BTreeSet<_> = messages.iter().map(|m| (m.conn, m.dst)).collect();
    let received = |(conn, dst): &(srd_rivals::Conn, HostId)| {
        net.world.hosts()[dst.0 as usize].received_bytes(*conn)
    };
    assert_eq!(written, conns.iter().map(received).sum::<u64>(), "{label}");
    for sender in net.world.hosts().iter().flat_map(|h| h.senders()) {
        assert_eq!(sender.in_flight(), 0, "{label}");
    }
    assert!(net.world.totals().conserved(), "{label}");
    assert_eq!(net.world.totals().in_flight, 0, "{label}");
    let c = net.counters();
    assert_eq!(c.aborted, 0, "{label} {c:?}");
    assert!(c.corrupt == 0 || net.world.totals().corrupted > 0, "{label} {c:?}");
    net.world.run_hash()
}

#[test]
fn everything_arrives_whatever_happens() {
    for seed in 0..150 {
        run(seed);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "threads must not change a run")]
fn equal_seeds_give_equal_runs() {
    let hashes: Vec<u64> = (0..8).map(run).collect();
    let again: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    assert_eq!(hashes, again);
    let mut distinct = hashes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), hashes.len(), "different seeds, different runs");
}

#[test]
fn senders_keep_little_in_their_card() {
    // 12 flows share a card of 1 Gb/s with 10 Gb/s behind it.
    let fast = Port::new(10_000_000_000, US);
    let slow = Port::new(1_000_000_000, US);
    for (tso, most) in [(0, 12 * 3 * 9018), (65_536, 12 * 3 * 7 * 9018)] {
        let tcp = TcpConfig { small_queue_ps: 0, tso_bytes: tso, ..TcpConfig::default() };
        let topology = srd_fabric::dumbbell(1, 1, slow, fast, fast);
        let mut net = TcpNet::new(topology, WorldConfig::new(1), tcp).expect("sound");
        for _ in 0..12 {
            let conn = net.connect(HostId(0), HostId(1));
            net.message_at(conn, MS, 4_000_000);
        }
        assert!(net.run_done(10 * SEC));
        let card = net.world.topology().cables_of(srd_fabric::Node::Host(HostId(0))).next();
        let stats = net.world.link_stats(card.expect("a card").up());
        assert!(stats.queue_bytes_max <= most, "{} of {most}", stats.queue_bytes_max);
        let ideal = 12 * 4_000_000 * 8_000 * 9018 / 8948 + MS;
        assert!(net.world.now() < ideal * 101 / 100, "the card was idle: {}", net.world.now());
    }
}

#[test]
fn a_full_card_is_waited_for() {
    let port = Port::new(1_000_000_000, US).buffer(40_000);
    let tcp = TcpConfig { initial_window: 100, ..TcpConfig::default() };
    let topology = srd_fabric::back_to_back(port);
    let mut net = TcpNet::new(topology, WorldConfig::new(1), tcp).expect("sound");
    for _ in 0..4 {
        let conn = net.connect(HostId(0), HostId(1));
        net.message_at(conn, MS, 4_000_000);
    }
    assert!(net.run_done(10 * SEC));
    let c = net.counters();
    assert!(c.local_drops > 0, "{c:?}");
    assert_eq!((c.retransmits, c.timeouts), (0, 0), "{c:?}");
    let ideal = 4 * 4_000_000 * 8_000 * 9018 / 8948 + MS;
    assert!(net.world.now() < ideal * 103 / 100, "the card was idle: {}", net.world.now());
}

#[test]
fn a_new_path_is_taken_after_a_timeout_if_asked_for() {
    let run = |rehash: bool| {
        let tcp = TcpConfig::default().rehash_on_rto(rehash);
        let mut net = TcpNet::new(topology(), WorldConfig::new(5), tcp).expect("sound");
        let conns: Vec<_> = (0..16).map(|_| net.connect(HostId(0), HostId(5))).collect();
        conns.iter().for_each(|c| _ = net.message_at(*c, 10 * MS, 1_000_000));
        let switch = net.world.topology().tier_switches(1).next().expect("a spine");
        net.world.fault_at(12 * MS, Fault::SwitchHole { switch, routing: None }).expect("sound");
        let done = net.run_done(20 * SEC);
        (done, net.counters().rehashes)
    };
    let (done, rehashes) = run(true);
    assert!(done && rehashes > 0, "{rehashes}");
    assert_eq!(run(false), (false, 0), "fixed paths end in the hole");
}

#[test]
fn nonsense_is_refused() {
    let refused = |tcp: TcpConfig, word: &str| {
        let error = TcpNet::new(topology(), WorldConfig::new(1), tcp).expect_err("nonsense");
        assert!(error.to_string().contains(word), "{error}");
    };
    let ok = TcpConfig::default;
    refused(ok().mss(0), "mss");
    refused(ok().mss(2 << 20), "mss");
    refused(TcpConfig { initial_window: 0, ..ok() }, "initial_window");
    refused(TcpConfig { rto_min_ps: 0, ..ok() }, "timeout");
    refused(TcpConfig { rto_min_ps: 200 * SEC, ..ok() }, "timeout");
    refused(TcpConfig { window_bytes: 1000, ..ok() }, "window");
    refused(TcpConfig { recovery: Recovery::NewReno, ..ok() }, "tlp");
    refused(TcpConfig { tick_ps: 2 * SEC, ..ok() }, "tick");
    refused(TcpConfig { sample_ps: Some(1), ..ok() }, "sample");
    refused(TcpConfig { header_bytes: 0, link_bytes: 0, ..ok() }, "header");
    let error = TcpNet::new(Topology::new(0), WorldConfig::new(1), ok()).expect_err("no hosts");
    assert!(error.to_string().contains("hosts"), "{error}");
    let names: Vec<_> = ok().parameters().into_iter().map(|p| p.0).collect();
    assert!(names.contains(&"rto_min") && names.len() >= 25, "{names:?}");
}

/// A world and its hosts can be moved to another thread.
const fn _is_send<T: Send>() {}
const _: () = _is_send::<World<srd_rivals::TcpSegment, srd_rivals::TcpHost>>();
