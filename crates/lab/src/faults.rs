//! Faults of the network from a spec.

use crate::spec::{FaultSpec, SlowSet};
use srd_fabric::{
    CableId, Effect, Fault, HostId, LinkId, Node, Ps, Rng, SwitchId, Target, Topology, US,
};

/// The faults with their times.
///
/// # Errors
/// If the network lacks a named switch, link or host, or has too few links.
pub fn faults_of(
    specs: &[FaultSpec],
    topo: &Topology,
    seed: u64,
) -> Result<Vec<(Ps, Fault)>, String> {
    let mut out = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        let mut rng = Rng::stream(seed, 0xfa17, i as u64);
        fault_add(spec, topo, &mut rng, &mut out).map_err(|e| format!("fault {}: {e}", i + 1))?;
    }
    Ok(out)
}

fn fault_add(
    spec: &FaultSpec,
    topo: &Topology,
    rng: &mut Rng,
    out: &mut Vec<(Ps, Fault)>,
) -> Result<(), String> {
    match spec {
        FaultSpec::SpineHole { at_us, spine, routing_us, until_us } => {
            let switch = switch_of_top(topo, *spine)?;
            let routing = routing_us.map(|t| t * US);
            out.push((at_us * US, Fault::SwitchHole { switch, routing }));
            if let Some(until) = until_us {
                out.push((until * US, Fault::SwitchHoleEnd { switch, routing }));
            }
        }
        FaultSpec::SlowLinks { at_us, links, count, percent } => {
            for at in slow_set(topo, *links, *count, rng)? {
                out.push((at_us * US, Fault::Rate { at, percent: *percent }));
            }
        }
        FaultSpec::CoreLoss { at_us, prob } => {
            let effect = Effect::Loss(*prob);
            out.push((at_us * US, Fault::Impair { at: Target::Core, effect }));
        }
        FaultSpec::Down { at_us, at, for_us, routing_us } => {
            let (at, routing) = (target_of(topo, at)?, routing_us.map(|t| t * US));
            out.push((at_us * US, Fault::Down { at, routing }));
            out.extend(for_us.map(|t| ((at_us + t) * US, Fault::Up { at, routing })));
        }
        FaultSpec::Flap { at_us, at, down_us, up_us, times, routing_us } => {
            let (at, routing) = (target_of(topo, at)?, routing_us.map(|t| t * US));
            let (down_ps, up_ps, times) = (down_us * US, up_us * US, *times);
            out.push((at_us * US, Fault::Flap { at, down_ps, up_ps, times, routing }));
        }
        FaultSpec::Hole { at_us, at, for_us, routing_us } => {
            let (at, routing) = (target_of(topo, at)?, routing_us.map(|t| t * US));
            out.push((at_us * US, Fault::BlackHole { at, routing }));
            out.extend(for_us.map(|t| ((at_us + t) * US, Fault::BlackHoleEnd { at, routing })));
        }
        FaultSpec::Loss { at_us, at, prob, for_us } => {
            let at = target_of(topo, at)?;
            let fault = |prob| Fault::Impair { at, effect: Effect::Loss(prob) };
            out.push((at_us * US, fault(*prob)));
            out.extend(for_us.map(|t| ((at_us + t) * US, fault(0.0))));
        }
        FaultSpec::Slow { at_us, at, percent, for_us } => {
            let at = target_of(topo, at)?;
            out.push((at_us * US, Fault::Rate { at, percent: *percent }));
            out.extend(for_us.map(|t| ((at_us + t) * US, Fault::Rate { at, percent: 100 })));
        }
        FaultSpec::SwitchDown { at_us, switch, for_us, routing_us } => {
            let routing = routing_us.map(|t| t * US);
            let Node::Switch(switch) = node_of(topo, switch)? else {
                return Err(format!("`{switch}` is not a switch"));
            };
            out.push((at_us * US, Fault::SwitchDown { switch, routing }));
            let hash_seed = Some(rng.below(u64::MAX));
            let up = Fault::SwitchUp { switch, hash_seed, routing };
            out.extend(for_us.map(|t| ((at_us + t) * US, up)));
        }
        FaultSpec::HostStall { at_us, host, for_us } => {
            let host = HostId(*host);
            out.push((at_us * US, Fault::HostStall { host, for_ps: for_us * US }));
        }
        FaultSpec::HostSlow { at_us, host, percent, for_us } => {
            let drain = |percent| Fault::HostDrain { host: HostId(*host), percent };
            out.push((at_us * US, drain(*percent)));
            out.extend(for_us.map(|t| ((at_us + t) * US, drain(100))));
        }
        FaultSpec::HostPulse { at_us, host, percent, slow_us, fast_us, times } => {
            let drain = |percent| Fault::HostDrain { host: HostId(*host), percent };
            for at in (0..u64::from(*times)).map(|i| at_us + i * (slow_us + fast_us)) {
                out.push((at * US, drain(*percent)));
                out.push(((at + slow_us) * US, drain(100)));
            }
        }
    }
    Ok(())
}

/// The node of a name in reports.
fn node_of(topo: &Topology, name: &str) -> Result<Node, String> {
    let switches = (0..topo.switches()).map(|s| Node::Switch(SwitchId(s)));
    let hosts = (0..topo.hosts()).map(|h| Node::Host(HostId(h)));
    let found = switches.chain(hosts).find(|node| topo.node_name(*node) == name);
    found.ok_or_else(|| {
        let switch = |s: u32| topo.node_name(Node::Switch(SwitchId(s)));
        let last = topo.switches().checked_sub(1).map(switch).unwrap_or_default();
        format!(
            "there is no `{name}`; the nodes are host0 to host{}, leaf0 to {last}",
            topo.hosts() - 1
        )
    })
}

/// The links of a name: `a->b`, `a-b`, a switch, a host, `core`.
fn target_of(topo: &Topology, name: &str) -> Result<Target, String> {
    if name == "core" {
        return Ok(Target::Core);
    }
    let (ends, one_way) = match name.split_once("->") {
        Some(ends) => (Some(ends), true),
        None => (name.split_once('-'), false),
    };
    let Some((a, b)) = ends else {
        return Ok(match node_of(topo, name)? {
            Node::Switch(switch) => Target::Switch(switch),
            Node::Host(host) => Target::Host(host),
        });
    };
    let (a, b) = (node_of(topo, a)?, node_of(topo, b)?);
    let mut links = topo.links_between(a, b);
    let link = links.next().ok_or_else(|| format!("there is no cable `{name}`"))?;
    Ok(if one_way { Target::Link(link) } else { Target::Cable(link.cable()) })
}

fn top_tier(topo: &Topology) -> u8 {
    (0..topo.switches()).map(|s| topo.tier(SwitchId(s))).max().unwrap_or(0)
}

/// Switch `n` of the top tier.
fn switch_of_top(topo: &Topology, n: u32) -> Result<SwitchId, String> {
    let tier = top_tier(topo);
    let mut switches = topo.tier_switches(tier);
    switches
        .nth(n as usize)
        .ok_or_else(|| format!("there are only {} spines", topo.tier_switches(tier).count()))
}

/// Cables to the top tier, ordered by the switches below.
fn top_cables(topo: &Topology) -> Vec<CableId> {
    let tier = top_tier(topo);
    let is_top = |n: Node| matches!(n, Node::Switch(s) if topo.tier(s) == tier);
    topo.core_cables().filter(|c| is_top(topo.cables()[c.0 as usize].b)).collect()
}

fn slow_set(
    topo: &Topology,
    set: SlowSet,
    count: u32,
    rng: &mut Rng,
) -> Result<Vec<Target>, String> {
    let mut cables = top_cables(topo);
    let n = count as usize;
    if cables.len() < n {
        return Err(format!("{count} slow links, but only {} cables to the top", cables.len()));
    }
    if matches!(set, SlowSet::DownRandom | SlowSet::BothRandom) {
        rng.shuffle(&mut cables);
    }
    let down = |c: &CableId| -> LinkId { c.down() };
    Ok(cables[..n]
        .iter()
        .map(|c| match set {
            SlowSet::DownFirst | SlowSet::DownRandom => Target::Link(down(c)),
            SlowSet::BothFirst | SlowSet::BothRandom => Target::Cable(*c),
        })
        .collect())
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;
