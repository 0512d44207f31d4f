//! Devices over two rails: even paths leave by one network, odd ones by the other. One host's cable
//! in one of them goes down, in both directions or in one, and may come up again.
//!
//! Nobody is hostile here. What is demanded is that work goes on over the other rail: each flow
//! finishes a job at least every [`PAUSE_MAX_NS`] while the cable is down.

use super::jobs::Flow;
use super::plan::Plan;
use super::stage::Stage;
use crate::class::Class;
use crate::draw::Draw;
use crate::ledger::Oracle;
use crate::scenario::stream;
use srd_core::Opcode;

/// Share of the plans with two rails whose devices join them, in percent.
const SHARE: u64 = 50;
/// One of so many seeds has such a world: of 18 kinds of hostile worlds one has rails.
pub const JOINED_EACH: u64 = super::HOSTILE_EACH * 18 * 100 / SHARE;
/// Longest time without the end of a job of a flow: eleven timeouts of 72 us, which is three round
/// trips. The worst of 693 worlds took half of it.
pub const PAUSE_MAX_NS: u64 = 800_000;
/// Time with load.
const LOAD_NS: u64 = 6_000_000;

/// A cable that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailDown {
    /// Whose cable.
    host: usize,
    /// Which of its cables.
    rail: u8,
    /// Whether it carries nothing from the host.
    from_it: bool,
    /// Whether it carries nothing to the host.
    to_it: bool,
    /// When it goes down, and comes up again.
    from_ns: u64,
    until_ns: u64,
    /// Jobs of each flow at a time.
    depth: u32,
    /// Only the host whose cable it is sends (`Some(true)`), or only the others: whoever only
    /// receives has nothing but acknowledgments to learn from which way is open.
    sends: Option<bool>,
}

impl RailDown {
    /// Makes some of the plans with two rails worlds of this kind; the draws are of a stream of
    /// their own, so that the other plans stay as they are.
    pub(super) fn draw(seed: u64, plan: &mut Plan) {
        let mut d = Draw::new(seed, stream::JOINED, 0);
        if plan.class != Class::Rails || !d.percent(SHARE) {
            return;
        }
        plan.class = Class::RailDown;
        plan.load_ns = LOAD_NS;
        plan.config.path.rails = 2;
        plan.config.path.paths = d.pick(&[8, 64]);
        let from_ns = d.range(500, 2_000) * 1000;
        let (from_it, to_it) = d.pick(&[(true, true), (true, true), (true, false), (false, true)]);
        let down_ns = d.pick(&[2_000_000, LOAD_NS]);
        plan.rail_down = Some(Self {
            host: d.below(2) as usize,
            rail: d.below(2) as u8,
            from_it,
            to_it,
            from_ns,
            until_ns: (from_ns + down_ns).min(LOAD_NS),
            depth: d.pick(&[1, 2, 4, 16]),
            sends: d.pick(&[None, Some(true), Some(false)]),
        });
    }

    /// Whether a packet that leaves now on `path` is lost.
    pub(super) fn loses(&self, now: u64, (from, to): (usize, usize), path: u8) -> bool {
        let down = (self.from_ns..self.until_ns).contains(&now) && path % 2 == self.rail;
        down && (self.from_it && from == self.host || self.to_it && to == self.host)
    }

    /// The time in which work must go on.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.from_ns, self.until_ns)
    }
}

impl Stage<'_> {
    /// Makes the flows of such a world.
    pub(super) fn cast_joined(&mut self) {
        let Some(down) = &self.plan.rail_down else { return };
        let sends = |f: &Flow| down.sends.is_none_or(|own| own == (f.from == down.host));
        self.board.flows.retain(sends);
        for f in &mut self.board.flows {
            f.depth = down.depth;
            if down.sends.is_some() {
                // The answer to a read is data.
                f.ops = &[Opcode::Send, Opcode::Write];
            }
        }
    }
}

/// Checks that no flow paused for long while the cable was down.
pub(super) fn end_check(plan: &Plan, stage: &mut Stage) {
    let Some(down) = &plan.rail_down else { return };
    let (from, until) = down.span();
    let pause = |f: &Flow| f.pause_ns.max(until.saturating_sub(f.last_at.max(from)));
    let worst = stage.board.flows.iter().filter(|f| f.compared).max_by_key(|f| pause(f));
    let Some((f, ns)) = worst.map(|f| (f, pause(f))).filter(|(_, ns)| *ns > PAUSE_MAX_NS) else {
        return;
    };
    let what = format!(
        "member {} finished nothing with member {} for {ns} ns while a rail was down: {down:?}",
        f.from, f.to
    );
    stage.board.fail(stage.now, Oracle::Pause, what);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Classes;
    use crate::corpus;
    use crate::hostile::draw;

    #[test]
    fn a_share_of_the_seeds_joins_its_rails_and_none_of_the_corpus() {
        let only = Classes::default().with(Class::RailDown);
        for entry in corpus::parse(corpus::BUILT_IN).unwrap() {
            let named = entry.story.starts_with("Joined");
            assert_eq!(draw(entry.seed, &[], only).is_some(), named, "{}", entry.seed);
        }
        let n = (0..20_000).filter(|&seed| draw(seed, &[], only).is_some()).count() as u64;
        let usual = 20_000 / JOINED_EACH;
        assert!((usual / 2..usual * 3 / 2).contains(&n), "{n}");
    }

    #[test]
    fn a_cable_loses_what_it_is_to_lose() {
        let (host, rail, from_ns, until_ns) = (1, 0, 10, 20);
        let (depth, sends) = (1, None);
        let down =
            RailDown { host, rail, from_it: true, to_it: false, from_ns, until_ns, depth, sends };
        assert!(down.loses(10, (1, 0), 4) && !down.loses(10, (1, 0), 5), "of its rail");
        assert!(!down.loses(10, (0, 1), 4) && !down.loses(10, (2, 0), 4), "of its way");
        assert!(!down.loses(9, (1, 0), 4) && !down.loses(20, (1, 0), 4), "of its time");
    }
}
