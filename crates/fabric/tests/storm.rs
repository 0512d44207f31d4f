//! Random traffic under random faults: every packet is accounted for, and a run depends on its seed
//! alone.

use crate::common;
use crate::common::{Probe, leaf_spine, port};
use srd_fabric::{
    Burst, CableId, Delivered, EcnFault, Effect, FatTree, Fault, Host, HostId, HostIo, LinkId, MS,
    NS, Outbound, Ps, Rng, SwitchId, Tap, TapEvent, TapWhat, Target, Topology, US, World,
    WorldConfig,
};
use std::sync::{Arc, Mutex};

/// Sends at random; answers some packets at once.
struct Chatter {
    rng: Rng,
    hosts: u64,
    got: u64,
}

impl Chatter {
    fn send(&mut self, dst: HostId, io: &mut HostIo<'_, u64>) {
        let out = Outbound {
            dst,
            sport: self.rng.below(64) as u16,
            dport: 1,
            bytes: self.rng.range(64, 9_000) as u32,
            ect: self.rng.chance(0.5),
        };
        // Refused packets are part of the test.
        let _ = io.send(out, self.rng.next_u64());
    }
}

impl Host<u64> for Chatter {
    fn on_packet(&mut self, _: Ps, p: Delivered<u64>, io: &mut HostIo<'_, u64>) {
        self.got += 1;
        if self.rng.chance(0.3) {
            self.send(p.src, io);
        }
    }
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, u64>) {
        let dst = HostId(self.rng.below(self.hosts) as u32);
        self.send(dst, io);
        if now < MS {
            io.timer_set(now + self.rng.below(2 * US));
        }
    }
    fn on_call(&mut self, now: Ps, _: u64, io: &mut HostIo<'_, u64>) {
        io.timer_set(now);
    }
}

fn effect(rng: &mut Rng) -> Effect {
    let p = rng.unit() * if rng.chance(0.5) { 0.0 } else { 0.5 };
    let ps = rng.below(20 * US);
    match rng.below(8) {
        0 => Effect::Loss(p),
        1 => Effect::Burst((p > 0.0).then_some(Burst {
            enter: p,
            leave: 0.2,
            loss_good: 0.01,
            loss_bad: 0.7,
        })),
        2 => Effect::FlowHole(p),
        3 => Effect::Corrupt(p),
        4 => Effect::Duplicate { prob: p, delay_ps: ps },
        5 => Effect::Delay { prob: p, fixed_ps: ps / 2, jitter_ps: ps },
        6 => Effect::Ecn([EcnFault::None, EcnFault::Set, EcnFault::Clear][rng.below(3) as usize]),
        _ => Effect::Mtu((p > 0.0).then_some(rng.range(500, 9_000) as u32)),
    }
}

fn fault(rng: &mut Rng, t: &Topology) -> Fault {
    let switch = SwitchId(rng.below(u64::from(t.switches())) as u32);
    let host = HostId(rng.below(u64::from(t.hosts())) as u32);
    let link = LinkId(rng.below(u64::from(t.links())) as u32);
    let at = match rng.below(10) {
        0..=3 => Target::Link(link),
        4..=6 => Target::Cable(CableId(link.0 / 2)),
        7 => Target::Switch(switch),
        8 => Target::Host(host),
        _ => Target::Core,
    };
    let routing = rng.chance(0.7).then(|| rng.below(100 * US));
    let ps = rng.range(1, 60 * US);
    match rng.below(17) {
        0 => Fault::Down { at, routing },
        1 | 2 => Fault::Up { at, routing },
        3 => Fault::Flap { at, down_ps: ps, up_ps: 2 * ps, times: 3, routing },
        4 => Fault::BlackHole { at, routing },
        5 => Fault::BlackHoleEnd { at, routing },
        6 => Fault::SwitchHole { switch, routing },
        7 => Fault::SwitchHoleEnd { switch, routing },
        8 => Fault::SwitchDown { switch, routing },
        9 => Fault::SwitchUp { switch, hash_seed: None, routing },
        10 => Fault::Rehash { switch, hash_seed: Some(ps) },
        11 => Fault::Rate { at, percent: rng.range(1, 200) as u32 },
        12 => Fault::Buffer { at, bytes: rng.chance(0.5).then(|| rng.below(60_000)) },
        13 => Fault::HostStall { host, for_ps: ps },
        14 if rng.chance(0.3) => Fault::HealAll,
        _ => Fault::Impair { at, effect: effect(rng) },
    }
}

fn storm(seed: u64, slot_shift: Option<u32>) -> World<u64, Chatter> {
    let mut rng = Rng::new(seed);
    let topology = match seed % 3 {
        0 => leaf_spine(3, 2, 2),
        1 => FatTree::k_ary(4, port().buffer(100_000), port().buffer(50_000)).build(),
        _ => srd_fabric::dumbbell(3, 3, port(), port().buffer(40_000), port().buffer(30_000)),
    };
    let hosts = u64::from(topology.hosts());
    let mut config = WorldConfig::new(seed);
    config.slot_shift = slot_shift;
    config.host_hold_bytes = 50_000;
    let chatter = |h: HostId| Chatter { rng: Rng::stream(seed, 77, u64::from(h.0)), hosts, got: 0 };
    let mut w = World::new(topology, config, chatter).expect("sound");
    for h in 0..hosts as u32 {
        w.call_at(u64::from(h) * NS, HostId(h), 0);
    }
    for _ in 0..40 {
        let (at, fault) = (rng.below(MS), fault(&mut rng, w.topology()));
        w.fault_at(at, fault).expect("sound");
    }
    w
}

#[test]
fn every_packet_is_accounted_for_under_all_faults() {
    let (mut dropped, mut delivered) = (0, 0);
    for seed in 0..60 {
        let mut w = storm(seed, None);
        for step in 1..=25 {
            w.run_until(step * 50 * US);
            assert!(w.totals().conserved(), "seed {seed}: {:?}", w.totals());
        }
        w.fault_now(Fault::HealAll).expect("sound");
        w.run_to_end();
        let t = w.totals();
        assert!(t.conserved() && t.in_flight == 0, "seed {seed}: {t:?}");
        assert_eq!(t.delivered, w.hosts().iter().map(|h| h.got).sum::<u64>());
        let by_link: u64 =
            (0..w.topology().links()).map(|l| w.link_stats(LinkId(l)).drops.total()).sum();
        assert_eq!(by_link, t.drops.total(), "seed {seed}: every drop has its link");
        dropped += t.drops.total();
        delivered += t.delivered;
    }
    assert!(dropped > 10_000 && delivered > 50_000, "{dropped} {delivered}");
}

#[test]
fn the_network_works_after_healing() {
    for seed in 0..30 {
        let mut w = storm(seed, None);
        w.run_until(MS + MS / 2);
        w.fault_now(Fault::HealAll).expect("sound");
        w.run_to_end();
        let before = w.totals();
        for h in 0..w.topology().hosts() {
            let dst = HostId((h + 1) % w.topology().hosts());
            let out = Outbound { dst, sport: 1, dport: 1, bytes: 100, ect: false };
            w.with_host(HostId(h), |_, io| io.send(out, 1)).expect("room");
        }
        w.run_to_end();
        assert_eq!(w.totals().drops, before.drops, "seed {seed}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "whole worlds in parallel: what is shown to be safe")]
fn a_run_depends_on_its_seed_alone() {
    let run = |seed, shift| {
        let mut w = storm(seed, shift);
        w.run_until(2 * MS);
        (w.run_hash(), w.totals())
    };
    for seed in 0..30 {
        let first = run(seed, None);
        assert_eq!(first, run(seed, None), "seed {seed} twice");
        assert_eq!(first, run(seed, Some(6)), "seed {seed}: slots of another width");
        assert_ne!(first.0, run(seed + 300, None).0);
    }
    let alone: Vec<_> = (0..8).map(|seed| run(seed, None)).collect();
    let threads: Vec<_> = (0..8).map(|s| std::thread::spawn(move || storm_result(s))).collect();
    let together: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
    assert_eq!(alone, together);
}

fn storm_result(seed: u64) -> (u64, srd_fabric::Totals) {
    let mut w = storm(seed, None);
    w.run_until(2 * MS);
    (w.run_hash(), w.totals())
}

#[test]
fn stepping_and_running_are_the_same() {
    let mut a = storm(4, None);
    let mut b = storm(4, None);
    a.run_until(MS);
    while b.next_event_at().is_some_and(|t| t <= MS) {
        assert!(b.step());
    }
    assert_eq!((a.run_hash(), a.totals()), (b.run_hash(), b.totals()));
}

/// Counts tap events.
#[derive(Default)]
struct Counts {
    sent: u64,
    delivered: u64,
    dropped: u64,
    marked: u64,
    corrupted: u64,
    duplicated: u64,
}

struct Shared(Arc<Mutex<Counts>>);

impl Tap<u64> for Shared {
    fn on_event(&mut self, event: &TapEvent, _: &u64) {
        let mut c = self.0.lock().expect("not poisoned");
        match event.what {
            TapWhat::Sent => c.sent += 1,
            TapWhat::Delivered => c.delivered += 1,
            TapWhat::Dropped(_) => c.dropped += 1,
            TapWhat::Marked => c.marked += 1,
            TapWhat::Corrupted => c.corrupted += 1,
            TapWhat::Duplicated => c.duplicated += 1,
            TapWhat::Delayed(ps) => assert!(ps > 0),
        }
    }
}

#[test]
fn a_tap_sees_everything_and_changes_nothing() {
    for seed in 0..10 {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let mut w = storm(seed, None);
        w.tap_set(Some(Box::new(Shared(Arc::clone(&counts)))));
        w.run_until(2 * MS);
        assert_eq!((w.run_hash(), w.totals()), storm_result(seed));
        let (t, c) = (w.totals(), counts.lock().expect("not poisoned"));
        assert_eq!((c.sent, c.delivered, c.dropped), (t.sent, t.delivered, t.drops.total()));
        let rest = (c.marked, c.corrupted, c.duplicated);
        assert_eq!(rest, (t.marked, t.corrupted, t.duplicated));
    }
}

#[test]
fn probes_and_chatter_share_nothing() {
    // Two worlds stepped alternately end as each would alone.
    let mut a = storm(1, None);
    let mut b = storm(2, None);
    let mut c: World<u64, Probe> = common::world(leaf_spine(2, 2, 2), 3);
    for step in 1..=20 {
        a.run_until(step * 100 * US);
        b.run_until(step * 100 * US);
        c.run_until(step * 100 * US);
    }
    assert_eq!((a.run_hash(), a.totals()), storm_result(1));
    assert_eq!((b.run_hash(), b.totals()), storm_result(2));
}
