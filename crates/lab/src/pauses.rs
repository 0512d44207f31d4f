//! Pauses of links in networks with priority flow control.

use crate::figures::{head, name_of};
use crate::result::RunResult;
use srd_fabric::{Host, LinkId, Ps, World};

/// Most links of a tier that a result names.
const LINKS_MAX: usize = 4;

/// Pauses of a tier's links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierPauses {
    /// Name of the tier, such as "host->leaf".
    pub name: String,
    /// Its links.
    pub links: u32,
    /// Links that were paused at least once.
    pub paused_links: u32,
    /// Sum of the time for which its links were paused.
    pub paused_ps: Ps,
    /// PAUSE frames.
    pub frames: u64,
    /// Largest number of bytes of one link that a receiver held.
    pub held_bytes_max: u64,
}

/// Pauses of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PauseOutcome {
    /// By tier, only those with a paused link.
    pub tiers: Vec<TierPauses>,
    /// The links paused longest, with their time in ps; at most four of each tier.
    pub longest: Vec<(String, Ps)>,
    /// Simulated time of the run.
    pub run_ps: Ps,
}

/// Pauses of a world; `None` without priority flow control.
pub fn outcome<P: Clone, H: Host<P>>(world: &World<P, H>) -> Option<PauseOutcome> {
    let topo = world.topology();
    world.pauses(LinkId(0))?;
    let mut tiers: Vec<TierPauses> = Vec::new();
    let mut longest = Vec::new();
    for link in (0..topo.links()).map(LinkId) {
        let Some(p) = world.pauses(link) else { continue };
        let name = tier_of(&topo.link_name(link));
        let at = tiers.iter().position(|t| t.name == name).unwrap_or_else(|| {
            tiers.push(TierPauses { name, ..TierPauses::default() });
            tiers.len() - 1
        });
        let tier = &mut tiers[at];
        tier.links += 1;
        tier.paused_links += u32::from(p.frames > 0);
        tier.paused_ps += p.paused_ps;
        tier.frames += p.frames;
        tier.held_bytes_max = tier.held_bytes_max.max(p.held_bytes_max);
        if p.paused_ps > 0 {
            longest.push((topo.link_name(link), p.paused_ps));
        }
    }
    longest.sort_by_key(|(_, ps)| std::cmp::Reverse(*ps));
    let mut named: Vec<(String, usize)> = Vec::new();
    longest.retain(|(link, _)| {
        let tier = tier_of(link);
        let at = named.iter().position(|(name, _)| *name == tier).unwrap_or_else(|| {
            named.push((tier, 0));
            named.len() - 1
        });
        named[at].1 += 1;
        named[at].1 <= LINKS_MAX
    });
    tiers.retain(|t| t.frames > 0);
    Some(PauseOutcome { tiers, longest, run_ps: world.now() })
}

/// Paused time by tier, one line per case and tier.
pub fn pause_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case, tier",
        "links",
        "paused",
        "pause frames",
        "paused % of link time",
        "longest %",
        "link",
        "held max KB",
    ]);
    for case in cases {
        let Some(p) = &case[0].pauses else { continue };
        let percent = |ps: Ps, links: u32| {
            100.0 * ps as f64 / (p.run_ps.max(1) as f64 * f64::from(links.max(1)))
        };
        for tier in &p.tiers {
            let longest = p.longest.iter().find(|(name, _)| tier_of(name) == tier.name);
            let (link, ps) = longest.map_or(("-", 0), |(name, ps)| (name.as_str(), *ps));
            rows.push(vec![
                format!("{}, {}", name_of(case), tier.name),
                tier.links.to_string(),
                tier.paused_links.to_string(),
                tier.frames.to_string(),
                format!("{:.3}", percent(tier.paused_ps, tier.links)),
                format!("{:.2}", percent(ps, 1)),
                link.to_string(),
                format!("{:.1}", tier.held_bytes_max as f64 / 1e3),
            ]);
        }
    }
    rows
}

/// A link's name without the numbers of its nodes, which is its tier's name.
fn tier_of(link: &str) -> String {
    link.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Deadlocks, one line per run that one has ended.
pub fn deadlock_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&["case", "seed", "cycle"]);
    for r in cases.iter().flat_map(|c| c.iter()) {
        let Some(text) = &r.deadlock else { continue };
        let case = name_of(std::slice::from_ref(r));
        rows.push(vec![case, r.seed.to_string(), text.clone()]);
    }
    rows
}
