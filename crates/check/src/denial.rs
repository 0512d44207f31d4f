//! Paths that an operator denies and allows, and the oracle that nothing leaves on a denied one.

use crate::draw::Draw;
use crate::ledger::{Ledger, Oracle};
use crate::node::Node;
use crate::packet::ip_of;
use crate::scenario::{Incident, Scenario, stream};
use srd_core::{DenyError, PathMask, Time};

/// Share of the seeds in whose worlds paths are denied, in percent.
const SHARE: u64 = 6;

/// An operator's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The host whose address it is about.
    pub to: u32,
    /// The denied paths; all others are allowed.
    pub mask: PathMask,
    /// Paths that must remain.
    pub least: u16,
}

/// Schedules orders in some worlds. They come from a stream of their own, so that the other seeds
/// keep their worlds. Some denials last until the end of the world.
pub(crate) fn plan(s: &mut Scenario) {
    let mut d = Draw::new(s.seed, stream::DENIAL, 0);
    if !d.percent(SHARE) {
        return;
    }
    let n = d.range(1, 6).min(u64::from(s.limits.faults).saturating_mul(2));
    for _ in 0..n {
        let at = s.heal_at * d.range(1, 90) / 100;
        let host = d.below(u64::from(s.hosts)) as u32;
        let slot = d.pick(&s.slots.clone());
        let to = d.below(u64::from(s.hosts)) as u32;
        let mut mask = PathMask::NONE;
        let share = d.pick(&[0, 25, 50, 90, 100]);
        for path in 0..=u8::MAX {
            mask.put(path, d.percent(share));
        }
        // Mostly one path remains, whatever was drawn.
        if d.percent(90) {
            mask.put(d.below(u64::from(s.config.path.paths)) as u8, false);
        }
        let least = d.pick(&[0, 1, 1, 2]);
        s.incidents.push((at, host, Incident::Deny { slot, order: Order { to, mask, least } }));
    }
}

impl Node {
    /// Gives an order to the engine, which must refuse it only if too few paths would remain.
    pub fn deny(&mut self, led: &mut Ledger, order: &Order) {
        let (now, ip) = (self.clock.read(led.now), ip_of(order.to));
        let paths = self.cfg.path.paths;
        let mask = order.mask.below(paths);
        let (left, least) = (paths - mask.len(), order.least.max(1));
        let few = left < least && !mask.is_empty();
        let expected = if few { Err(DenyError::TooFewLeft { left, least }) } else { Ok(()) };
        let got = self.engine.paths_deny(now, ip, &order.mask, order.least);
        let id = self.id;
        led.require(got == expected, Oracle::Paths, || {
            format!("engine {id} was to deny {} of {paths} paths to {ip}: {got:?}", mask.len())
        });
        if got.is_ok() {
            self.denied.insert(ip, mask);
            led.tally.denials += 1;
        }
        let told = self.engine.paths_denied(ip);
        let known = self.denied.get(&ip).copied().unwrap_or_default();
        led.require(told == known, Oracle::Paths, || {
            format!("engine {id} says that the denied paths to {ip} are {told:?}, not {known:?}")
        });
        self.observed(led);
    }

    /// Denies the same paths to an engine that was started again, as its device does.
    pub fn deny_again(&mut self, now: Time) {
        for (ip, mask) in &self.denied {
            let told = self.engine.paths_deny(now, *ip, mask, 1);
            assert_eq!(told, Ok(()), "it was possible before");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus;
    use crate::scenario::Limits;

    fn orders(seed: u64) -> usize {
        let s = Scenario::from_seed(seed, Limits::USUAL);
        s.incidents.iter().filter(|i| matches!(i.2, Incident::Deny { .. })).count()
    }

    /// Seeds of the corpus that were found before there were denials keep their worlds.
    #[test]
    fn some_worlds_have_denials_and_those_found_without_have_none() {
        for entry in corpus::parse(corpus::BUILT_IN).unwrap() {
            let told = entry.story.contains("denied");
            assert_eq!(orders(entry.seed) > 0, told, "seed {}", entry.seed);
        }
        let with = (0..2_000).filter(|&seed| orders(seed) > 0).count();
        assert!((60..200).contains(&with), "{with} of 2,000 worlds");
    }
}
