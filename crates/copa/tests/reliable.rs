//! Puts and gets arrive whatever the network loses, nothing blocks, and no acknowledgment comes
//! before its packet has a place.

mod common;
use common::{Cell, Net, Out, base_rtt, shape};
use srd_copa::{CopaConfig, CopaHost, CopaPacket, Policy, Reaction, Recovery, Verb};
use srd_fabric::{
    Effect, Fault, HostId, LinkId, MS, NS, Placement, RingConfig, Rng, Tap, TapEvent, TapWhat,
    Target, US, World, WorldConfig,
};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every policy with every recovery.
fn all() -> Vec<(Policy, Reaction, Recovery)> {
    let mut out = Vec::new();
    for recovery in [Recovery::GoBackN, Recovery::Selective] {
        for policy in [Policy::Stream, Policy::Window(1), Policy::Window(60), Policy::Aimd] {
            out.push((policy, Reaction::StopGo, recovery));
        }
        for reaction in [Reaction::StopGo, Reaction::StopGoAtOnce, Reaction::Clocked] {
            out.push((Policy::DupAck(0.5), reaction, recovery));
        }
    }
    out
}

/// Three senders and two receivers, each sender with a flow to each; slow hosts, losses on all
/// links both ways, drains that pulse.
fn storm(
    seed: u64,
    (policy, reaction, recovery): (Policy, Reaction, Recovery),
    verb: Verb,
) -> (Net, usize) {
    let delay = 300 * NS;
    let mut config = CopaConfig { policy, reaction, recovery, verb, ..CopaConfig::new(NS) };
    config.outstanding_packets = 300;
    config.rtt_ps = base_rtt(&config, delay);
    config.check().unwrap();
    let config = Rc::new(config);
    let host = |h| CopaHost::new(h, Rc::clone(&config));
    let mut w = World::new(shape(3, 2, delay), WorldConfig::new(seed), host).unwrap();
    let mut rng = Rng::stream(seed, 1, 0);
    for h in 0..5 {
        let ring = RingConfig {
            limit_bytes: rng.range(20_000, 300_000),
            bits_per_s: Some(rng.range(100, 400) * 1_000_000_000),
            dma_delay_ps: rng.below(2) * 200 * NS,
            placement: Placement::Card,
        };
        w.ring_set(HostId(h), ring).unwrap();
        for _ in 0..4 {
            let fault = Fault::HostDrain { host: HostId(h), percent: rng.range(20, 100) as u32 };
            w.fault_at(rng.below(300 * US), fault).unwrap();
        }
    }
    let loss = [0.0, 0.001, 0.03][(seed % 3) as usize];
    w.fault_now(Fault::Impair { at: Target::All, effect: Effect::Loss(loss) }).unwrap();
    let effect = Effect::Corrupt(loss / 2.0);
    w.fault_now(Fault::Impair { at: Target::All, effect }).unwrap();
    let mut rounds = 0;
    for src in 0..3 {
        for dst in 3..5 {
            let bytes = rng.range(1, 1_500_000);
            let flow = src * 2 + dst;
            let token = w.host_mut(HostId(src)).flow_add(flow, HostId(dst), bytes);
            for round in 0..2 {
                // Without the first one's end in between.
                w.call_at(round * 40 * US, HostId(src), token | round << 32);
                rounds += 1;
            }
        }
    }
    (w, rounds)
}

#[test]
fn everything_arrives_once_whatever_is_lost_and_nothing_blocks() {
    for (k, what) in all().into_iter().enumerate() {
        for seed in 0..6 {
            let verb = if (seed + k as u64).is_multiple_of(2) { Verb::Put } else { Verb::Get };
            let (mut w, rounds) = storm(seed, what, verb);
            // Long enough for every timeout to double some times.
            w.run_until(400 * MS);
            assert!(w.next_event_at().is_none(), "{what:?}, seed {seed}: it goes on");
            let done = (0..5).flat_map(|h| w.host_mut(HostId(h)).ends_take());
            let mut ends: Vec<_> = done.collect();
            assert!(ends.iter().all(|e| e.done || e.arrived));
            ends.retain(|e| e.done);
            assert_eq!(ends.len(), rounds, "{what:?}, {verb:?}, seed {seed}");
            for h in w.hosts() {
                assert!(h.unacknowledged().all(|n| n == 0), "{what:?}, seed {seed}");
            }
            assert!(w.totals().conserved() && w.totals().in_flight == 0);
        }
    }
}

#[test]
fn a_stop_without_a_go_ends_by_itself() {
    // The way back is cut in the middle, when the sender has been stopped or is about to be.
    for what in all() {
        for cut_us in [15, 30, 60] {
            let mut cell = Cell::new(0.5, 1.5, 3_000, |c| {
                (c.policy, c.reaction, c.recovery) = what;
            });
            cell.seed = cut_us;
            let mut w = cell.world();
            let back = Target::Link(LinkId(0).reverse());
            w.fault_at(cut_us * US, Fault::BlackHole { at: back, routing: None }).unwrap();
            w.fault_at((cut_us + 50) * US, Fault::BlackHoleEnd { at: back, routing: None })
                .unwrap();
            w.run_until(200 * MS);
            let out = Out::of(&mut w);
            assert!(out.ends.iter().any(|e| e.done), "{what:?}, cut at {cut_us} us: {out:?}");
        }
    }
}

/// Notes how many packets of the one stream are acknowledged, as acknowledgments leave.
struct Acks(Arc<AtomicU64>);

impl Tap<CopaPacket> for Acks {
    fn on_event(&mut self, event: &TapEvent, payload: &CopaPacket) {
        if let (TapWhat::Sent, CopaPacket::Ack(ack)) = (event.what, payload) {
            self.0.fetch_max(ack.next, Ordering::Relaxed);
        }
    }
}

#[test]
fn no_acknowledgment_comes_before_its_packet_has_its_place_in_the_ring() {
    for what in all() {
        let cell = Cell::new(0.6, 0.3, 1_500, |c| (c.policy, c.reaction, c.recovery) = what);
        let mut w = cell.world();
        w.fault_now(Fault::Impair { at: Target::All, effect: Effect::Loss(0.002) }).unwrap();
        let told = Arc::new(AtomicU64::new(0));
        w.tap_set(Some(Box::new(Acks(Arc::clone(&told)))));
        let packet = u64::from(cell.config.packet_bytes());
        let mut green = 0;
        for _ in 0..200_000 {
            if !w.step() {
                break;
            }
            let ring = w.ring_stats(HostId(1)).unwrap();
            let acked = told.load(Ordering::Relaxed);
            let placed = ring.written_bytes + ring.waiting_bytes;
            assert!(acked * packet <= placed, "{what:?}: {acked} acknowledged, {placed} B placed");
            if let (Policy::DupAck(share), false) = (what.0, acked == green) {
                // Nor above the threshold.
                let threshold = (cell.ring_config().limit_bytes as f64 * share) as u64;
                assert!(acked * packet <= ring.written_bytes + threshold, "{what:?}");
                green = acked;
            }
        }
        assert_eq!(told.load(Ordering::Relaxed), 1_500, "{what:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for what in [all()[0], all()[3], all()[4], all()[13]] {
        let run = |seed| {
            let (mut w, _) = storm(seed, what, Verb::Put);
            w.run_until(20 * MS);
            Out::of(&mut w)
        };
        assert_eq!(run(2), run(2), "{what:?}");
        assert_ne!(run(2).hash, run(5).hash);
    }
}

#[test]
fn two_flows_into_a_slow_host_share_it() {
    // Apart from each other at the sender's card, they meet in the ring.
    let cell = Cell::new(0.5, 2.0, 1, |c| c.reaction = Reaction::Clocked);
    let config = Rc::new(cell.config);
    let host = |h| CopaHost::new(h, Rc::clone(&config));
    let mut w = World::new(shape(1, 1, cell.delay), WorldConfig::new(1), host).unwrap();
    w.ring_set(HostId(1), cell.ring_config()).unwrap();
    for flow in 0..2 {
        let token = w.host_mut(HostId(0)).flow_add(flow, HostId(1), 20_000_000);
        w.call_at(0, HostId(0), token);
    }
    w.run_until(10 * MS);
    let out = Out::of(&mut w);
    let at: Vec<u64> = out.ends.iter().filter(|e| e.done).map(|e| e.at).collect();
    assert_eq!((at.len(), out.sum.full), (2, 0));
    assert!(at[1] as f64 / (at[0] as f64) < 1.02, "{at:?}");
    let streams: Vec<_> = w.hosts()[1].acknowledged().map(|(_, n)| n).collect();
    assert_eq!(streams, [4_883, 4_883]);
}
