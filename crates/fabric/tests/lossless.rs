//! Networks with credits: no loss, flows in order, credits and entries all released, and deadlocks
//! detected.

use crate::common::flows::{
    BYTES, CONTROL_BYTES, Flows, Payload, Sending, permutations, port, tree,
};
use srd_fabric::routing::{Adaptation, CircuitConfig, Ties};
use srd_fabric::{
    CableId, CreditConfig, Credits, Effect, Fault, FlowControl, HostId, KaryNTree, LinkId, NS,
    Node, Ps, Rng, RoutingConfig, Service, SwitchId, Target, Topology, US, World, WorldConfig,
};

fn credits(packets: u64, lanes: u32, service: Service) -> FlowControl {
    let input_bytes = packets * u64::from(BYTES);
    FlowControl::Credits(CreditConfig { input_bytes, lanes, service })
}

fn circuits(adaptation: Adaptation, entries: Option<u32>) -> RoutingConfig {
    RoutingConfig::Circuits(CircuitConfig { adaptation, entries, ties: Ties::Drawn })
}

fn least_flows() -> RoutingConfig {
    circuits(Adaptation::LeastFlows, None)
}

fn config(seed: u64, flow_control: FlowControl, routing: RoutingConfig) -> WorldConfig {
    WorldConfig { flow_control, routing, ..WorldConfig::new(seed) }
}

/// Checks that everything arrived in order and nothing is left in the network.
fn finished(w: &World<Payload, Flows>, what: &str) {
    let name = |d: &srd_fabric::Deadlock| d.describe(w.topology());
    assert_eq!(w.deadlock().map(name), None, "{what}");
    let t = w.totals();
    assert!(t.conserved() && t.in_flight == 0, "{what}: {t:?}");
    assert_eq!(t.drops.total(), 0, "{what}: {t:?}");
    let sent: u64 = w.hosts().iter().flat_map(|h| &h.flows).map(|f| f.packets).sum();
    assert_eq!((t.sent, t.delivered), (sent, sent), "{what}");
    assert_eq!(w.hosts().iter().map(|h| h.out_of_order).sum::<u64>(), 0, "{what}");
    all_free(w, what);
}

/// Checks that no credit, entry, flow or register is left over.
fn all_free(w: &World<Payload, Flows>, what: &str) {
    w.credits_check().unwrap_or_else(|e| panic!("{what}: {e}"));
    for link in (0..w.topology().links()).map(LinkId) {
        for lane in 0..2 {
            let Some(c) = w.credits(link, lane) else { continue };
            assert_eq!((c.wire, c.held, c.returning), (0, 0, 0), "{what} {link:?} {lane}");
        }
        assert_eq!(w.register(link), 0, "{what} {link:?}");
        assert_eq!(w.circuits().map_or(0, |c| c.flows(link)), 0, "{what} {link:?}");
    }
    for switch in (0..w.topology().switches()).map(SwitchId) {
        assert_eq!(w.circuits().map_or(0, |c| c.entries_used(switch)), 0, "{what} {switch:?}");
    }
}

#[test]
fn one_packet_takes_what_its_links_take() {
    let routing = RoutingConfig::Oblivious;
    let mut w =
        World::new(tree(2, 2, 0), config(1, credits(2, 1, Service::RoundRobin), routing), |_| {
            Flows::default()
        })
        .expect("sound");
    let flow = Sending { dst: HostId(3), packets: 3, sent: 0, id: None, weight: 4 };
    w.host_mut(HostId(0)).flows.push(flow);
    w.call_at(0, HostId(0), 0);
    w.run_to_end();
    finished(&w, "three packets");
    // Four links. The middle packet follows the first at once; the last follows the middle packet.
    let per_byte = 80;
    let whole = Ps::from(BYTES) * per_byte;
    let control = Ps::from(CONTROL_BYTES) * per_byte;
    let expected = control + 4 * (whole + 20 * NS) + control;
    assert_eq!(w.hosts()[3].ended_at, expected);
    assert_eq!(w.hosts()[3].register_max, 4);
}

#[test]
fn order_and_everything_else_is_kept_under_every_setting() {
    let mut seed = 0;
    for (k, n, horizontal) in [(2, 3, 1), (4, 2, 0), (4, 3, 2), (3, 3, 1)] {
        for service in [Service::RoundRobin, Service::Fcfs] {
            for routing in [
                RoutingConfig::Oblivious,
                least_flows(),
                circuits(Adaptation::LeastFlows, Some(2)),
                circuits(Adaptation::LeastQueue, None),
                circuits(Adaptation::Random, Some(4)),
                circuits(Adaptation::Default, None),
            ] {
                seed += 1;
                let flow_control = credits(1 + seed % 6, 2, service);
                let topology = tree(k, n, horizontal);
                let mut w = permutations(topology, config(seed, flow_control, routing), 4, 12);
                w.run_to_end();
                finished(&w, &format!("seed {seed}: k {k}, n {n}, w {horizontal}, {routing:?}"));
                let stats = w.circuit_stats();
                if matches!(routing, RoutingConfig::Circuits(_)) {
                    let flows = w.hosts().iter().map(|h| h.flows.len() as u64).sum();
                    assert_eq!((stats.set_up, stats.ended, stats.torn), (flows, flows, 0));
                }
            }
        }
    }
}

#[test]
fn ecmp_with_credits_loses_nothing_in_a_leaf_spine() {
    let switch = port();
    let topology = srd_fabric::LeafSpine {
        leaves: 4,
        spines: 2,
        hosts_per_leaf: 6,
        cables_per_spine: 1,
        nic: switch,
        edge: switch,
        uplink: switch,
    }
    .build();
    for (seed, service) in [(1, Service::RoundRobin), (2, Service::Fcfs)] {
        let flow_control = credits(4, 1, service);
        let config = config(seed, flow_control, RoutingConfig::Ecmp);
        let mut w = permutations(topology.clone(), config, 6, 20);
        w.run_to_end();
        finished(&w, "leaf-spine");
    }
}

#[test]
fn a_ring_with_one_lane_deadlocks_and_the_cycle_is_named() {
    let mut found = 0;
    for seed in 0..30 {
        let flow_control = credits(4, 1, Service::RoundRobin);
        let mut w = permutations(tree(4, 3, 2), config(seed, flow_control, least_flows()), 8, 64);
        w.run_to_end();
        w.credits_check().expect("books");
        assert!(w.totals().conserved());
        let Some(deadlock) = w.deadlock() else {
            finished(&w, &format!("seed {seed}"));
            continue;
        };
        found += 1;
        let topo = w.topology();
        let tree = topo.tree().expect("a tree");
        let text = deadlock.describe(topo);
        let cycle = &deadlock.cycle;
        assert!(cycle.len() > 1 && deadlock.buffers >= cycle.len(), "{text}");
        for (i, (link, lane)) in cycle.iter().enumerate() {
            let (next, _) = cycle[(i + 1) % cycle.len()];
            assert_eq!((topo.to(*link), *lane), (topo.from(next), 0), "{text}");
            assert!(w.credits(*link, *lane).expect("a lane").free < u64::from(BYTES), "{text}");
            assert!(text.contains(&topo.link_name(*link)));
        }
        assert!(cycle.iter().any(|(l, _)| tree.is_ring(*l)), "{text}");
        assert!(w.totals().in_flight > 0 && !w.step() && w.run_to_end() == 0);
    }
    println!("{found} of 30 seeds deadlock");
    assert!(found >= 10, "{found} of 30 seeds deadlock with one lane");
}

#[test]
fn a_deadlock_ends_the_run_with_the_event_that_closes_the_circle() {
    let mut found = 0;
    for seed in 0..30 {
        let make = || {
            let flow_control = credits(4, 1, Service::RoundRobin);
            permutations(tree(4, 3, 2), config(seed, flow_control, least_flows()), 8, 64)
        };
        let mut w = make();
        w.run_to_end();
        let Some(at) = w.deadlock().map(|d| d.at_ps) else { continue };
        found += 1;
        // The deadlock did not exist earlier: right before, packets or credits were still on their
        // way to some of the stuck buffers.
        let links: Vec<LinkId> = (0..w.topology().links()).map(LinkId).collect();
        let books = |w: &World<_, _>| -> Vec<Credits> {
            links.iter().map(|l| w.credits(*l, 0).expect("a lane")).collect()
        };
        let moves = |c: &Credits| c.wire + c.returning > 0;
        let after = books(&w);
        let mut w = make();
        w.run_until(at - 1);
        assert_eq!(w.deadlock(), None, "seed {seed}");
        let before = books(&w);
        let settled = before.iter().zip(&after).filter(|(b, a)| moves(b) && !moves(a)).count();
        assert!(settled > 0, "seed {seed}: nothing came to rest at {at}");
    }
    assert!(found >= 10, "{found} of 30 seeds deadlock with one lane");
}

/// Runs seeds of the deadlocking network with two lanes.
fn two_lanes(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let buffer = [4, 2, 1][seed as usize % 3];
        let service = [Service::RoundRobin, Service::Fcfs][seed as usize / 3 % 2];
        let flow_control = credits(buffer, 2, service);
        let mut w = permutations(tree(4, 3, 2), config(seed, flow_control, least_flows()), 8, 10);
        w.run_to_end();
        finished(&w, &format!("seed {seed}"));
    }
}

#[test]
fn two_lanes_and_a_seam_never_deadlock() {
    two_lanes(0..60);
}

#[test]
#[ignore = "a minute"]
fn two_lanes_and_a_seam_never_deadlock_over_a_thousand_seeds() {
    two_lanes(0..1_000);
}

#[test]
fn round_robin_is_over_inputs_and_fcfs_over_arrivals() {
    // Host 0 has one flow to host 3, host 1 has three. Service by inputs gives host 0 half of the
    // upward link until the end. First come, first served ignores flows as well and gives the same
    // here. Both use the link without a gap.
    for service in [Service::RoundRobin, Service::Fcfs] {
        let config = config(5, credits(8, 1, service), RoutingConfig::Oblivious);
        let mut w = World::new(tree(2, 2, 0), config, |_| Flows::default()).expect("sound");
        for (src, flows) in [(0, 1), (1, 3)] {
            for _ in 0..flows {
                let flow = Sending { dst: HostId(3), packets: 202, sent: 0, id: None, weight: 1 };
                w.host_mut(HostId(src)).flows.push(flow);
            }
            w.call_at(0, HostId(src), 0);
        }
        let unit = 200 * Ps::from(BYTES) * 80;
        w.run_until(2 * unit + US);
        let of = |src, flow| w.hosts()[3].expected.get(&(HostId(src), flow)).copied().unwrap_or(0);
        assert_eq!(of(0, 0), 202, "{service:?}: half of the link for two units");
        let others: u64 = (0..3).map(|f| of(1, f)).sum();
        assert!((190..=215).contains(&others), "{service:?}: {others}");
        w.run_to_end();
        finished(&w, "shared");
        let gaps = w.hosts()[3].ended_at as f64 / (4 * unit) as f64;
        assert!((1.0..1.01).contains(&gaps), "{service:?}: {gaps}");
    }
}

#[test]
fn a_stalled_host_stops_its_senders_and_is_no_deadlock() {
    for service in [Service::RoundRobin, Service::Fcfs] {
        let config = config(3, credits(2, 2, service), least_flows());
        let mut w = permutations(tree(3, 2, 1), config, 4, 30);
        let host = HostId(5);
        w.fault_now(Fault::HostStall { host, for_ps: 500 * US }).expect("sound");
        w.run_until(499 * US);
        assert_eq!(w.deadlock(), None);
        let link = w.topology().links_between(Node::Switch(SwitchId(1)), Node::Host(host)).next();
        let books = w.credits(link.expect("a cable"), 0).expect("a lane");
        assert!(books.free < u64::from(BYTES) && books.held > 0, "{service:?}: {books:?}");
        assert!(w.totals().in_flight > 4, "others wait behind it");
        w.run_to_end();
        finished(&w, &format!("{service:?}"));
    }
}

/// A random fault.
fn fault(rng: &mut Rng, topo: &Topology) -> Fault {
    let cable = CableId(rng.below(u64::from(topo.links() / 2)) as u32);
    let switch = SwitchId(rng.below(u64::from(topo.switches())) as u32);
    let host = HostId(rng.below(u64::from(topo.hosts())) as u32);
    let routing = rng.chance(0.7).then(|| rng.below(3 * US));
    let at = if rng.chance(0.5) { Target::Cable(cable) } else { Target::Link(cable.up()) };
    match rng.below(12) {
        0..=2 => Fault::Down { at, routing },
        3 => Fault::Up { at, routing },
        4 => Fault::Flap { at, down_ps: US, up_ps: 2 * US, times: 3, routing },
        5 => Fault::BlackHole { at, routing },
        6 => Fault::SwitchDown { switch, routing },
        7 => Fault::SwitchUp { switch, hash_seed: None, routing },
        8 => Fault::Rate { at, percent: rng.range(20, 150) as u32 },
        9 => Fault::HostStall { host, for_ps: rng.range(1, 4 * US) },
        10 => Fault::Impair { at, effect: Effect::Loss(0.2) },
        _ => Fault::Impair { at, effect: Effect::Corrupt(0.2) },
    }
}

fn storm(seed: u64, faults: u64) -> World<Payload, Flows> {
    let mut rng = Rng::stream(seed, 0x57, 1);
    let (k, n, w) = [(2, 3, 1), (4, 2, 1), (2, 2, 0), (3, 2, 2)][seed as usize % 4];
    let service = [Service::RoundRobin, Service::Fcfs][rng.below(2) as usize];
    let routing = match rng.below(4) {
        0 => RoutingConfig::Ecmp,
        1 => RoutingConfig::Oblivious,
        2 => circuits(Adaptation::LeastFlows, Some(rng.below(4) as u32)),
        _ => circuits(Adaptation::LeastQueue, None),
    };
    let flow_control = credits(rng.range(1, 4), 2, service);
    let p = rng.range(1, 4) as u32;
    let mut world =
        permutations(tree(k, n, w), config(seed, flow_control, routing), p, rng.range(2, 14));
    for host in 0..world.topology().hosts() {
        world.host_mut(HostId(host)).pace_ps = rng.chance(0.3).then_some(300 * NS);
    }
    for _ in 0..faults {
        let (at, fault) = (rng.below(12 * US), fault(&mut rng, world.topology()));
        world.fault_at(at, fault).expect("sound");
    }
    world
}

#[test]
fn credits_are_conserved_after_every_event_of_random_storms() {
    let (mut dropped, mut torn, mut again, mut events) = (0, 0, 0, 0);
    for seed in 0..150 {
        let faults = if seed < 50 { 0 } else { 8 };
        let mut w = storm(seed, faults);
        while w.step() {
            events += 1;
            w.credits_check().unwrap_or_else(|e| panic!("seed {seed}, event {events}: {e}"));
            assert!(w.totals().conserved(), "seed {seed}: {:?}", w.totals());
        }
        w.fault_now(Fault::HealAll).expect("sound");
        w.run_to_end();
        let t = w.totals();
        assert!(w.deadlock().is_none() && t.in_flight == 0, "seed {seed}: {t:?}");
        if faults == 0 {
            finished(&w, &format!("seed {seed}"));
        }
        dropped += t.drops.total();
        torn += w.circuit_stats().torn;
        again += w.circuit_stats().set_up_again;
    }
    println!("{events} events, {dropped} dropped, {torn} torn, {again} set up again");
    assert!(dropped > 500 && torn > 20 && again > 10, "{dropped} {torn} {again}");
}

#[test]
fn entries_and_flows_are_all_freed_whatever_fails() {
    for seed in 200..320 {
        let mut w = storm(seed, 8);
        w.run_to_end();
        w.fault_now(Fault::HealAll).expect("sound");
        w.run_to_end();
        let t = w.totals();
        assert!(w.deadlock().is_none() && t.in_flight == 0, "seed {seed}: {t:?}");
        w.credits_check().expect("books");
        let Some(circuits) = w.circuits() else { continue };
        for link in (0..w.topology().links()).map(LinkId) {
            assert_eq!(circuits.flows(link), 0, "seed {seed} {link:?}");
        }
        for switch in (0..w.topology().switches()).map(SwitchId) {
            assert_eq!(circuits.entries_used(switch), 0, "seed {seed} {switch:?}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "whole worlds in parallel: what is shown to be safe")]
fn a_run_depends_on_its_seed_alone() {
    let result = |seed| {
        let mut w = storm(seed, 6);
        w.run_to_end();
        (w.run_hash(), w.totals(), w.circuit_stats())
    };
    let alone: Vec<_> = (0..24).map(result).collect();
    let threads: Vec<_> = (0..24).map(|s| std::thread::spawn(move || result(s))).collect();
    let together: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
    assert_eq!(alone, together);
    for (seed, first) in alone.iter().enumerate() {
        assert_ne!(first.0, result(seed as u64 + 400).0);
    }
}

#[test]
fn stepping_running_and_slots_of_another_width_are_the_same() {
    for seed in 0..8 {
        let mut a = storm(seed, 6);
        let mut b = storm(seed, 6);
        a.run_to_end();
        while b.step() {}
        assert_eq!((a.run_hash(), a.totals()), (b.run_hash(), b.totals()), "seed {seed}");
    }
}

#[test]
fn circuits_over_a_failed_link_are_set_up_anew() {
    let tree = KaryNTree::new(4, 3, 1).expect("sound");
    for seed in 0..12 {
        let flow_control = credits(4, 2, Service::RoundRobin);
        let mut w = permutations(
            tree.build(port(), port(), port()),
            config(seed, flow_control, least_flows()),
            2,
            60,
        );
        w.run_until(5 * US);
        // The busiest link between switches.
        let circuits = w.circuits().expect("circuits");
        let between =
            |l: &LinkId| matches!(tree.to(*l), Node::Switch(_)) && l.0 >= 2 * tree.hosts();
        let busiest =
            (0..tree.links()).map(LinkId).filter(between).max_by_key(|l| circuits.flows(*l));
        let link = busiest.expect("links");
        let flows = circuits.flows(link);
        assert!(flows > 0);
        w.fault_now(Fault::Down { at: Target::Link(link), routing: Some(100 * NS) })
            .expect("sound");
        w.run_until(6 * US);
        let stats = w.circuit_stats();
        assert!(stats.torn >= u64::from(flows), "seed {seed}: {stats:?} of {flows}");
        assert_eq!(w.circuits().expect("circuits").flows(link), 0, "seed {seed}");
        w.run_to_end();
        let stats = w.circuit_stats();
        assert!(stats.set_up_again > 0 && stats.set_up_again <= stats.torn, "{seed}: {stats:?}");
        let t = w.totals();
        assert!(t.conserved() && t.in_flight == 0 && t.drops.total() > 0, "seed {seed}: {t:?}");
        // Lost are the packets on the wire and those queued for it, and no later ones.
        assert!(t.drops.total() < 60, "seed {seed}: {t:?}");
        w.credits_check().expect("books");
        for l in (0..tree.links()).map(LinkId) {
            assert_eq!(w.circuits().expect("circuits").flows(l), 0);
            assert_eq!(w.register(l), 0, "seed {seed}: weights move with their circuits");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |topology, config| {
        World::<Payload, Flows>::new(topology, config, |_| Flows::default())
            .map(|_| ())
            .expect_err("refused")
            .to_string()
    };
    let pair = || srd_fabric::back_to_back(port());
    let good = credits(4, 2, Service::Fcfs);
    let text = refused(pair(), config(1, good, least_flows()));
    assert!(text.contains("k-ary n-tree"), "{text}");
    let text = refused(tree(2, 2, 0), config(1, FlowControl::Drop, least_flows()));
    assert!(text.contains("credits"), "{text}");
    let text = refused(pair(), config(1, credits(4, 3, Service::Fcfs), RoutingConfig::Ecmp));
    assert!(text.contains("lanes = 3"), "{text}");
    let text = refused(pair(), config(1, credits(0, 1, Service::Fcfs), RoutingConfig::Ecmp));
    assert!(text.contains("input buffers"), "{text}");
    let mut w = permutations(tree(2, 2, 0), config(1, good, least_flows()), 1, 2);
    let at = Target::All;
    for fault in [
        Fault::Buffer { at, bytes: Some(1) },
        Fault::Impair { at, effect: Effect::Delay { prob: 0.1, fixed_ps: 1, jitter_ps: 0 } },
        Fault::Impair { at, effect: Effect::Duplicate { prob: 0.1, delay_ps: 0 } },
    ] {
        let text = w.fault_now(fault).expect_err("refused").to_string();
        assert!(text.contains("credits"), "{text}");
    }
}
