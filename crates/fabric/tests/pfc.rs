//! Priority flow control: nothing is ever lost, the closed forms of headroom and pauses, and
//! deadlocks detected.

use crate::common::flows::{BYTES, CONTROL_BYTES, Flows, Payload, Sending, permutations, tree};
use srd_fabric::{
    Fault, FlowControl, HostId, LeafSpine, LinkId, MS, NS, Node, PfcConfig, Port, Ps, Rng,
    RoutingConfig, Service, Target, Topology, US, World, WorldConfig,
};

fn pfc(xoff_bytes: u64, xon_bytes: u64) -> PfcConfig {
    PfcConfig {
        xoff_bytes,
        xon_bytes,
        headroom_bytes: None,
        packet_bytes: BYTES,
        service: Service::Fcfs,
    }
}

fn config(seed: u64, pfc: PfcConfig) -> WorldConfig {
    WorldConfig { flow_control: FlowControl::Pfc(pfc), ..WorldConfig::new(seed) }
}

/// `n` hosts on one switch.
fn star(n: u32, port: Port) -> Topology {
    let mut topo = Topology::new(n);
    let switch = topo.switch_add(0);
    for h in 0..n {
        topo.cable_add(Node::Host(HostId(h)), Node::Switch(switch), port, port);
    }
    topo
}

/// `n` switches in a ring, with a host each.
fn ring(n: u32, port: Port) -> Topology {
    let mut topo = Topology::new(n);
    let switches: Vec<_> = (0..n).map(|_| topo.switch_add(0)).collect();
    for h in 0..n {
        topo.cable_add(Node::Host(HostId(h)), Node::Switch(switches[h as usize]), port, port);
    }
    for i in 0..n as usize {
        let next = switches[(i + 1) % n as usize];
        let core = port.buffer(100_000);
        topo.cable_add(Node::Switch(switches[i]), Node::Switch(next), core, core);
    }
    topo
}

fn send(w: &mut World<Payload, Flows>, from: u32, to: u32, packets: u64) {
    let flow = Sending { dst: HostId(to), packets, sent: 0, id: None, weight: 1 };
    w.host_mut(HostId(from)).flows.push(flow);
    w.call_at(0, HostId(from), 0);
}

/// The largest filling of any buffer, as a share of its room.
fn filling(w: &World<Payload, Flows>) -> f64 {
    let links = (0..w.topology().links()).map(LinkId);
    let share = |l| {
        let p = w.pauses(l).expect("priority flow control");
        assert!(p.held_bytes_max <= p.limit_bytes, "{l:?}: {p:?}");
        p.held_bytes_max as f64 / p.limit_bytes as f64
    };
    links.map(share).fold(0.0, f64::max)
}

#[test]
fn nothing_is_lost_in_a_thousand_trees() {
    let (mut fullest, mut paused) = (0.0f64, 0u32);
    for seed in 0..1_000 {
        let mut rng = Rng::stream(seed, 0x9fc, 0);
        let mut draw = |least: u64, most: u64| rng.range(least, most);
        let mut port = || Port::new(draw(10, 400) * 1_000_000_000, draw(1, 3_000) * NS);
        let (nic, edge, uplink) = (port(), port(), port());
        let xoff = draw(u64::from(BYTES), 60_000);
        let pfc = pfc(xoff, draw(0, xoff - 1));
        let topology = LeafSpine {
            leaves: draw(1, 3) as u32,
            spines: draw(1, 2) as u32,
            hosts_per_leaf: draw(2, 5) as u32,
            cables_per_spine: 1,
            nic,
            edge,
            uplink,
        }
        .build();
        let mut w = permutations(topology, config(seed, pfc), draw(1, 4) as u32, draw(1, 120));
        w.run_to_end();
        let t = w.totals();
        let what = format!("seed {seed}: {pfc:?} {t:?}");
        assert_eq!(w.deadlock(), None, "{what}");
        assert_eq!((t.drops.total(), t.in_flight, t.delivered), (0, 0, t.sent), "{what}");
        w.credits_check().unwrap_or_else(|e| panic!("{what}: {e}"));
        let links = (0..w.topology().links()).map(LinkId);
        paused += u32::from(links.filter_map(|l| w.pauses(l)).any(|p| p.frames > 0));
        fullest = fullest.max(filling(&w));
    }
    println!("{paused} of 1,000 trees paused; fullest buffer {fullest:.3} of its room");
    assert!(paused > 300, "{paused} of 1,000 trees paused");
    assert!(fullest > 0.9, "the headroom is far from needed: {fullest:.3}");
}

#[test]
fn slower_links_get_the_headroom_that_they_need() {
    for seed in 0..100 {
        let port = Port::new(100_000_000_000, 500 * NS);
        let topology = LeafSpine {
            leaves: 3,
            spines: 2,
            hosts_per_leaf: 4,
            cables_per_spine: 1,
            nic: port,
            edge: port,
            uplink: port,
        }
        .build();
        let mut rng = Rng::stream(seed, 0x9fd, 0);
        let mut w = permutations(topology, config(seed, pfc(20_480, 10_240)), 4, 200);
        for _ in 0..6 {
            let at = Target::Link(LinkId(rng.below(w.topology().links().into()) as u32));
            let percent = rng.range(5, 90) as u32;
            w.fault_at(rng.below(40 * US), Fault::Rate { at, percent }).expect("possible");
        }
        w.run_to_end();
        let t = w.totals();
        assert_eq!((t.drops.total(), t.in_flight), (0, 0), "seed {seed}: {t:?}");
        filling(&w);
    }
}

#[test]
fn two_senders_are_paused_for_half_of_the_time() {
    let port = Port::new(100_000_000_000, US);
    let (packets, whole) = (4_000, Ps::from(BYTES) * 80);
    let mut w = World::new(star(3, port), config(1, pfc(40_960, 30_720)), |_| Flows::default())
        .expect("sound");
    send(&mut w, 0, 2, packets);
    send(&mut w, 1, 2, packets);
    w.run_to_end();
    // The output never idles from the first packet on, so all is there after 2 N packet times.
    let end = w.hosts()[2].ended_at;
    let least = 2 * packets * whole;
    assert!((least..least + 5 * US).contains(&end), "{end} {least}");
    for link in [LinkId(0), LinkId(2)] {
        let p = w.pauses(link).expect("priority flow control");
        // A sender is idle only while it is paused, so its pauses are the time that it does not
        // send, except that a pause begins while a packet is leaving. What the switch holds at the
        // end, at most the buffer, is sent while the sender has nothing left.
        let sending = packets * whole;
        let held = p.limit_bytes * 80 * 2;
        let (low, high) = (end - sending - held - 5 * US, end - sending + p.frames * whole);
        assert!((low..=high).contains(&p.paused_ps), "{p:?}: {low} to {high}");
        // Between two pauses the buffer falls to xon and fills again.
        assert!(p.frames > 50 && p.held_bytes_max > 40_960, "{p:?}");
    }
    assert_eq!(w.pauses(LinkId(5)).expect("a link").frames, 0, "hosts take everything at once");
}

#[test]
fn the_first_pause_begins_when_it_must() {
    let port = Port::new(100_000_000_000, US);
    let whole = Ps::from(BYTES) * 80;
    let xoff = 10 * u64::from(BYTES);
    let mut w =
        World::new(star(3, port), config(1, pfc(xoff, 0)), |_| Flows::default()).expect("sound");
    send(&mut w, 0, 2, 200);
    send(&mut w, 1, 2, 200);
    // Both inputs fill at half of the rate. The first packets are small and leave at once; at the
    // n-th arrival after them the output has sent n - 1 packets of both inputs together.
    let reached = |w: &World<Payload, Flows>| w.pauses(LinkId(0)).expect("a link").frames;
    let mut steps = 0;
    while reached(&w) == 0 {
        assert!(w.step());
        steps += 1;
        assert!(steps < 10_000);
    }
    let since = w.now() - US - Ps::from(CONTROL_BYTES) * 80;
    let arrivals = since / whole;
    assert_eq!(since % whole, 0, "a pause begins with an arrival");
    // Gone from this input until then: half of what the output has sent, to within one packet.
    let gone = arrivals - 10;
    assert!(gone.abs_diff((arrivals - 1) / 2) <= 1, "{arrivals} arrivals, {gone} gone");
}

#[test]
fn deadlocks_stand_and_are_named() {
    let port = Port::new(100_000_000_000, US);
    let make = |flow_control| {
        let config = WorldConfig { flow_control, ..WorldConfig::new(3) };
        let mut w = World::new(ring(5, port), config, |_| Flows::default()).expect("sound");
        for h in 0..5 {
            w.host_mut(HostId(h)).pace_ps = Some(Ps::from(BYTES) * 80);
        }
        // Two hops clockwise are fewer than three the other way.
        (0..5).for_each(|h| send(&mut w, h, (h + 2) % 5, 5_000));
        w
    };
    let mut w = make(FlowControl::Pfc(pfc(40_960, 30_720)));
    w.run_until(10 * MS);
    let deadlock = w.deadlock().expect("a ring whose links are all overloaded").clone();
    let text = deadlock.describe(w.topology());
    assert!(deadlock.at_ps < MS && deadlock.paused, "{text}");
    assert_eq!(deadlock.cycle.len(), 5, "{text}");
    let topo = w.topology();
    for (i, (link, _)) in deadlock.cycle.iter().enumerate() {
        let (next, _) = deadlock.cycle[(i + 1) % 5];
        assert_eq!(topo.to(*link), topo.from(next), "{text}");
        assert!(text.contains(&topo.link_name(*link)) && text.contains("paused"), "{text}");
    }
    assert!(w.totals().conserved() && w.totals().in_flight > 0 && !w.step());
    // Where packets are dropped, the ring never stands.
    let mut w = make(FlowControl::Drop);
    w.run_to_end();
    assert!(w.totals().in_flight == 0 && w.totals().drops.total() > 0);
}

#[test]
fn a_stalled_host_pauses_but_is_no_deadlock() {
    let port = Port::new(100_000_000_000, US);
    let mut w = World::new(star(3, port), config(1, pfc(20_480, 10_240)), |_| Flows::default())
        .expect("sound");
    send(&mut w, 0, 2, 500);
    let stall = Fault::HostStall { host: HostId(2), for_ps: 20 * MS };
    w.fault_now(stall).expect("possible");
    w.run_to_end();
    assert_eq!(w.deadlock(), None);
    assert_eq!((w.totals().delivered, w.totals().drops.total()), (500, 0));
    // The switch is paused by the host, and the sender by the switch.
    for link in [LinkId(5), LinkId(0)] {
        let p = w.pauses(link).expect("a link");
        assert!(p.paused_ps > 19 * MS && p.paused_ps < 20 * MS, "{p:?}");
    }
}

#[test]
fn settings_that_would_lose_packets_are_refused() {
    let topo = || star(3, Port::new(100_000_000_000, US));
    let needed = pfc(60_000, 40_000).headroom_bytes(&topo(), LinkId(0));
    // Two packets; the same and two frames ahead of the pause; two microseconds.
    assert_eq!(needed, 3 * u64::from(BYTES) + 168 + 25_000);
    let fails = |c: PfcConfig| {
        World::<Payload, Flows>::new(topo(), config(1, c), |_| Flows::default())
            .expect_err("refused")
            .to_string()
    };
    let small = PfcConfig { headroom_bytes: Some(needed - 1), ..pfc(60_000, 40_000) };
    let text = fails(small);
    assert!(text.contains("pfc_headroom_bytes") && text.contains(&needed.to_string()), "{text}");
    assert!(fails(pfc(40_000, 40_000)).contains("pfc_xon_bytes"));
    assert!(fails(pfc(1_000, 0)).contains("pfc_xoff_bytes"));
    let exact = PfcConfig { headroom_bytes: Some(needed), ..pfc(60_000, 40_000) };
    let made = World::<Payload, Flows>::new(topo(), config(1, exact), |_| Flows::default());
    assert!(made.is_ok());
    // Circuits and registers of a lossless tree work over pauses, too.
    let routing = RoutingConfig::Circuits(srd_fabric::routing::CircuitConfig::default());
    let c = WorldConfig { routing, ..config(1, pfc(40_960, 30_720)) };
    let mut w = permutations(tree(3, 2, 0), c, 3, 50);
    w.run_to_end();
    assert_eq!((w.totals().drops.total(), w.totals().in_flight), (0, 0));
    assert_eq!(w.hosts().iter().map(|h| h.out_of_order).sum::<u64>(), 0);
}
