//! From a spec's faults to the network's.

use crate::spec::{FaultSpec, SlowSet};
use srd_fabric::{CableId, Effect, Fault, LinkId, Node, Ps, Rng, SwitchId, Target, Topology, US};

/// The faults with their times.
///
/// # Errors
/// If the network has no such switch, or not so many links.
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
    }
    Ok(())
}

fn top_tier(topo: &Topology) -> u8 {
    (0..topo.switches()).map(|s| topo.tier(SwitchId(s))).max().unwrap_or(0)
}

/// Switch number `n` of the top tier.
fn switch_of_top(topo: &Topology, n: u32) -> Result<SwitchId, String> {
    let tier = top_tier(topo);
    let mut switches = topo.tier_switches(tier);
    switches
        .nth(n as usize)
        .ok_or_else(|| format!("there are only {} spines", topo.tier_switches(tier).count()))
}

/// Cables to the top tier, in the order in which the switches below come.
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
