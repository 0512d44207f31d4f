//! Schedules the faults of each class.

use crate::class::Class;
use crate::draw::Draw;
use crate::scenario::{Incident, Scenario, stream};
use srd_fabric::{
    Burst, CableId, EcnFault, Effect, Fault, HostId, LinkId, NS, Node, Ps, SwitchId, Target, US,
};

/// A random time between 2 % and 90 % of the fault phase.
fn when(d: &mut Draw, s: &Scenario) -> Ps {
    s.heal_at * d.range(2, 90) / 100
}

fn percent(d: &mut Draw, lo: u64, hi: u64) -> f64 {
    d.range(lo, hi) as f64 / 100.0
}

/// A random cable between switches, or a host's cable if there is none.
fn cable(d: &mut Draw, s: &Scenario) -> CableId {
    let core: Vec<CableId> = s.topology.core_cables().collect();
    if core.is_empty() || d.percent(15) {
        let host = Node::Host(HostId(d.below(u64::from(s.hosts)) as u32));
        let own: Vec<CableId> = s.topology.cables_of(host).collect();
        return d.pick(&own);
    }
    d.pick(&core)
}

fn link(d: &mut Draw, s: &Scenario) -> LinkId {
    let c = cable(d, s);
    if d.percent(50) { c.up() } else { c.down() }
}

fn routing(d: &mut Draw) -> Option<Ps> {
    if d.percent(40) { None } else { Some(d.range(10, 2_000) * US) }
}

/// Schedules the faults of every class of `s`.
pub(crate) fn plan(s: &mut Scenario) {
    for c in s.classes.iter() {
        let mut d = Draw::new(s.seed, stream::FAULT, c as u64);
        let n = d.range(1, 3).min(u64::from(s.limits.faults));
        for _ in 0..n {
            let mut out = Vec::new();
            one(&mut d, s, c, &mut out);
            let before = s.incidents.len();
            incident(&mut d, s, c);
            // Drop faults of components that this topology does not have.
            out.retain(|(_, f)| f.check(&s.topology).is_ok());
            let any = !out.is_empty() || s.incidents.len() > before;
            s.planned[c as usize] += u32::from(any);
            s.faults.extend(out);
        }
    }
}

/// Schedules a fault of a machine.
fn incident(d: &mut Draw, s: &mut Scenario, c: Class) {
    let slot = d.pick(&s.slots.clone());
    let host = d.below(u64::from(s.hosts)) as u32;
    let at = when(d, s);
    let what = match c {
        Class::Restart => Incident::Restart { slot, gentle: d.percent(25) },
        Class::Stale => {
            for k in 0..3 {
                let (at, packets) = (when(d, s), d.range(1, 40) as u32);
                let host = (host + k) % s.hosts;
                s.incidents.push((at, host, Incident::Stale { slot, packets }));
            }
            return;
        }
        Class::Garbage => Incident::Garbage { slot, packets: d.range(1, 60) as u32 },
        Class::Clock => Incident::Leap { slot, by_ns: d.range(1_000, 40_000_000) },
        _ => return,
    };
    s.incidents.push((at, host, what));
}

/// Schedules one fault of the network.
fn one(d: &mut Draw, s: &Scenario, c: Class, out: &mut Vec<(Ps, Fault)>) {
    let at = when(d, s);
    let end = at + (s.heal_at - at) * d.range(1, 100) / 100;
    let mut impair = |target: Target, on: Effect, off: Effect| {
        out.push((at, Fault::Impair { at: target, effect: on }));
        out.push((end, Fault::Impair { at: target, effect: off }));
    };
    match c {
        Class::Loss => impair(Target::All, Effect::Loss(percent(d, 1, 12)), Effect::Loss(0.0)),
        Class::Burst => {
            let b = Burst {
                enter: percent(d, 1, 5),
                leave: percent(d, 5, 40),
                loss_good: 0.0,
                loss_bad: percent(d, 30, 100),
            };
            impair(Target::Core, Effect::Burst(Some(b)), Effect::Burst(None));
        }
        Class::Duplicate => {
            let (prob, delay_ps) = (percent(d, 1, 30), d.range(0, 300) * US);
            let off = Effect::Duplicate { prob: 0.0, delay_ps: 0 };
            impair(Target::All, Effect::Duplicate { prob, delay_ps }, off);
        }
        Class::Skew | Class::Spike => {
            let (target, prob) = match c {
                Class::Skew => (Target::Cable(cable(d, s)), 1.0),
                _ => (Target::All, percent(d, 1, 10)),
            };
            let (fixed_ps, jitter_ps) = (d.range(1, 60) * US, d.range(0, 400) * US);
            let off = Effect::Delay { prob: 0.0, fixed_ps: 0, jitter_ps: 0 };
            impair(target, Effect::Delay { prob, fixed_ps, jitter_ps }, off);
        }
        Class::Corrupt => {
            impair(Target::All, Effect::Corrupt(percent(d, 1, 10)), Effect::Corrupt(0.0));
        }
        Class::Gray => {
            let target = Target::Cable(cable(d, s));
            impair(target, Effect::Loss(percent(d, 1, 20)), Effect::Loss(0.0));
        }
        Class::Ecn => {
            let how = if d.percent(50) { EcnFault::Set } else { EcnFault::Clear };
            impair(Target::Core, Effect::Ecn(how), Effect::Ecn(EcnFault::None));
        }
        // Here engines search for the packet size and must find that every size passes.
        Class::Mtu if s.config.mtu_search && s.seed.is_multiple_of(3) => {}
        Class::Mtu if s.config.mtu_search => {
            // All paths at once, early, and until near the end of the phase; 484 bytes fit the
            // smallest packet size.
            let (at, end) = (d.range(5, 800) * US, s.heal_at * d.range(30, 98) / 100);
            let on = Effect::Mtu(Some(d.pick(&[500, 576, 800])));
            out.push((at, Fault::Impair { at: Target::All, effect: on }));
            out.push((end, Fault::Impair { at: Target::All, effect: Effect::Mtu(None) }));
        }
        Class::Mtu => {
            let most = u32::from(s.config.mtu) + d.range(20, 110) as u32;
            impair(Target::Cable(cable(d, s)), Effect::Mtu(Some(most)), Effect::Mtu(None));
        }
        Class::OneWay => {
            let at_link = Target::Link(link(d, s));
            if d.percent(50) {
                let share = percent(d, 10, 90);
                impair(at_link, Effect::FlowHole(share), Effect::FlowHole(0.0));
            } else {
                let routing = routing(d);
                out.push((at, Fault::BlackHole { at: at_link, routing }));
                out.push((end, Fault::BlackHoleEnd { at: at_link, routing }));
            }
        }
        _ => hard(d, s, c, (at, end), out),
    }
}

/// Schedules outages and other faults of whole components.
fn hard(d: &mut Draw, s: &Scenario, c: Class, (at, end): (Ps, Ps), out: &mut Vec<(Ps, Fault)>) {
    let switch = SwitchId(d.below(u64::from(s.topology.switches().max(1))) as u32);
    let routing = routing(d);
    match c {
        Class::BlackHole => {
            let target = Target::Cable(cable(d, s));
            out.push((at, Fault::BlackHole { at: target, routing }));
            out.push((end, Fault::BlackHoleEnd { at: target, routing }));
        }
        Class::Flap => out.push((
            at,
            Fault::Flap {
                at: Target::Cable(cable(d, s)),
                down_ps: d.range(5, 500) * US,
                up_ps: d.range(5, 500) * US,
                times: d.range(1, 4) as u32,
                routing,
            },
        )),
        Class::SwitchDeath => {
            out.push((at, Fault::SwitchDown { switch, routing }));
            out.push((end, Fault::SwitchUp { switch, hash_seed: None, routing }));
        }
        Class::Rehash => out.push((at, Fault::Rehash { switch, hash_seed: None })),
        Class::Overflow => {
            let percent = d.pick(&[5, 20, 50]);
            out.push((at, Fault::Rate { at: Target::Core, percent }));
            out.push((end, Fault::Rate { at: Target::Core, percent: 100 }));
        }
        Class::HostStall => {
            let host = HostId(d.below(u64::from(s.hosts)) as u32);
            let for_ps = d.range(5_000, 12_000_000) * NS;
            out.push((at, Fault::HostStall { host, for_ps }));
        }
        Class::Backpressure => {
            let host = HostId(d.below(u64::from(s.hosts)) as u32);
            let bytes = Some(u64::from(s.config.mtu) * d.range(1, 6) + 600);
            out.push((at, Fault::Buffer { at: Target::Host(host), bytes }));
            out.push((end, Fault::Buffer { at: Target::Host(host), bytes: None }));
        }
        _ => {}
    }
}
