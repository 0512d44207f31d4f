//! Choice of the path for the next packet or burst: one type for each policy.

use super::set::{Path, PathSet};
use crate::config::PathPolicy;
use crate::guards::{Guard, Guards};
use crate::ids::Ctx;
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{DRAWS_MAX, SCAN_MAX};

/// Inputs of a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub now: Time,
    /// Number of the reliability context.
    pub flow: Ctx,
    /// The path that just lost the packet.
    pub avoid: Option<u8>,
    /// Longest time since the last clean echo after which a path still counts as clean.
    pub age_max: Span,
    /// Fixed random number of the context.
    pub salt: u32,
    /// It is a lone packet.
    pub alone: bool,
    /// There are several rails, one of which may be dead: paths of it that were quick are no better
    /// than unknown ones.
    pub railed: bool,
    /// When its last copy left, if it was sent again in vain: what was known of paths before is in
    /// doubt.
    pub doubt: Option<Time>,
    pub guards: Guards,
}

/// The chosen path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub path: u8,
    /// The path was chosen because it was clean some time ago, although the scan would have chosen
    /// another.
    pub trusted: bool,
}

impl From<u8> for Choice {
    fn from(path: u8) -> Self {
        Self { path, trusted: false }
    }
}

/// A path policy.
trait Choose {
    fn choose(set: &mut PathSet, need: &Need, rng: &mut Rng) -> Choice;
}

/// Chooses a path by `policy`.
pub(crate) fn choose(policy: PathPolicy, set: &mut PathSet, need: &Need, rng: &mut Rng) -> Choice {
    let need = &if planted!(PathNotAvoided) { Need { avoid: None, ..*need } } else { *need };
    match policy {
        PathPolicy::Srd => Srd::choose(set, need, rng),
        PathPolicy::Oblivious => Oblivious::choose(set, need, rng),
        PathPolicy::Ecmp => Ecmp::choose(set, need, rng),
        PathPolicy::RttP2c => RttP2c::choose(set, need, rng),
    }
}

/// Where packets are few, the most recently clean path is the best choice, however long ago that
/// was. A path that has died since is removed from the list with the first packet that it loses.
const ANY_AGE: Span = Span(u64::MAX);

/// Reuses clean paths first; otherwise scans all paths, passing over those with penalties.
/// Rule CC-07.
struct Srd;

impl Choose for Srd {
    fn choose(set: &mut PathSet, need: &Need, rng: &mut Rng) -> Choice {
        if let Some(since) = need.doubt {
            let known = set.clean_newest(need.now, need.now.since(since), need.avoid);
            let any = || set.scan_where(rng, |path, _| need.avoid != Some(path));
            if let Some(path) = known.or_else(any) {
                return path.into();
            }
        }
        if need.avoid.is_some()
            && need.guards.has(Guard::ProofOrder)
            && let Some(path) = set.clean_newest(need.now, ANY_AGE, need.avoid)
        {
            // Each clean path takes one retransmission.
            set.clean_forget(path);
            return path.into();
        }
        if let Some(path) = set.clean_next(need.now, need.age_max, need.avoid) {
            return path.into();
        }
        // A lone packet has no other packets to spread over paths, and a loss costs it a whole
        // timeout. Of the paths that are not clean, one that was measured is better than one that
        // nothing is known of: probes explore, not messages. Rule CC-52.
        if need.alone && need.guards.has(Guard::Alone) {
            if need.avoid.is_none()
                && let Some(path) = set.clean_newest(need.now, ANY_AGE, None)
            {
                return Choice { path, trusted: true };
            }
            if !need.railed
                && let Some(path) = set.quickest(need.avoid)
            {
                return Choice { path, trusted: true };
            }
        }
        scan(set, need.avoid, rng).into()
    }
}

/// Round robin over live paths; a path with a penalty is passed over, and its penalty falls by one.
fn scan(set: &mut PathSet, avoid: Option<u8>, rng: &mut Rng) -> u8 {
    let mut best: Option<(u8, u8)> = None;
    let mut seen = 0;
    // The order changes at each wrap, so one turn may miss some paths; two turns reach at least one
    // live path.
    for _ in 0..2 * set.paths.len() {
        let path = set.scan_next(rng);
        let entry = set.get_mut(path);
        if !(entry.is_live() || planted!(PathRetiredChosen)) || avoid == Some(path) {
            continue;
        }
        if entry.level == 0 {
            return path;
        }
        debug_assert!(!entry.is_clean(), "a clean path has no penalty");
        entry.level -= 1;
        if best.is_none_or(|(level, _)| entry.level < level) {
            best = Some((entry.level, path));
        }
        seen += 1;
        if seen == SCAN_MAX {
            break;
        }
    }
    best.map_or_else(|| fallback(set, avoid, rng), |(_, path)| path)
}

/// Any live path; the avoided one if there is no other.
#[cold]
fn fallback(set: &PathSet, avoid: Option<u8>, rng: &mut Rng) -> u8 {
    live_other(set, avoid, rng).unwrap_or_else(|| avoid.map_or(0, |p| p & set.mask() as u8))
}

/// One of the live paths other than `avoid`, each as likely as the others.
#[cold]
fn live_other(set: &PathSet, avoid: Option<u8>, rng: &mut Rng) -> Option<u8> {
    let is = |i: u8, entry: &Path| entry.is_live() && avoid != Some(i);
    let avoided = avoid.is_some_and(|p| usize::from(p) < set.paths.len() && set.get(p).is_live());
    let others = set.live() - usize::from(avoided);
    let which = match others {
        0 => return None,
        1 => 0,
        _ => rng.below(others as u32) as usize,
    };
    let path = set.nth(which, is);
    debug_assert!(path.is_some(), "the sum of live paths agrees with the paths");
    path
}

/// Round robin over all paths, whatever their state.
struct Oblivious;

impl Choose for Oblivious {
    fn choose(set: &mut PathSet, need: &Need, rng: &mut Rng) -> Choice {
        if set.denied > 0 {
            return allowed_next(set, need.avoid, rng).into();
        }
        let path = set.scan_next(rng);
        if need.avoid != Some(path) {
            return path.into();
        }
        // At a wrap the order changes, and the next path may be the same one again.
        let next = set.scan_next(rng);
        if next == path { ((path ^ 1) & set.mask() as u8).into() } else { next.into() }
    }
}

/// The next path of the round robin that is not denied, in whatever state; the avoided one if there
/// is no other.
#[cold]
fn allowed_next(set: &mut PathSet, avoid: Option<u8>, rng: &mut Rng) -> u8 {
    let mut last = avoid.unwrap_or(0);
    // Two turns reach every path; see `scan`.
    for _ in 0..2 * set.paths.len() {
        let path = set.scan_next(rng);
        if set.get(path).is_denied() {
            continue;
        }
        if avoid != Some(path) {
            return path;
        }
        last = path;
    }
    last
}

/// One fixed path per flow, chosen by a hash of the flow.
struct Ecmp;

impl Choose for Ecmp {
    fn choose(set: &mut PathSet, need: &Need, _: &mut Rng) -> Choice {
        of_hash(set, need.flow.0 ^ need.salt).into()
    }
}

/// The fixed path of a flow, by Fibonacci hashing: the high bits of the product with 2^32 / golden
/// ratio. If that path is denied, a second hash draws from those that are not, so that the flows of
/// denied paths are spread over all others, and no other flow moves.
pub(crate) fn of_hash(set: &PathSet, flow: u32) -> u8 {
    let hash = flow.wrapping_mul(0x9E37_79B1);
    let fixed = (hash >> 24) as usize & set.mask();
    if set.denied == 0 || !set.paths[fixed].is_denied() {
        return fixed as u8;
    }
    let allowed = set.paths.len() - usize::from(set.denied);
    // The finalizer of MurmurHash3: the high bits of `hash` are the same for all these flows.
    let mut second = hash ^ hash >> 16;
    second = second.wrapping_mul(0x85EB_CA6B);
    second = (second ^ second >> 13).wrapping_mul(0xC2B2_AE35);
    second ^= second >> 16;
    let k = ((u64::from(second) * allowed as u64) >> 32) as usize;
    set.nth(k, |_, entry| !entry.is_denied()).unwrap_or(fixed as u8)
}

/// The lower smoothed RTT of two live paths drawn at random; an unknown RTT counts as zero.
struct RttP2c;

impl Choose for RttP2c {
    fn choose(set: &mut PathSet, need: &Need, rng: &mut Rng) -> Choice {
        let Some(first) = draw(set, need.avoid, rng) else {
            return fallback(set, need.avoid, rng).into();
        };
        let Some(second) = draw(set, need.avoid, rng) else { return first.into() };
        let rtt = |p: u8| set.get(p).rtt.srtt_ns;
        if rtt(second) < rtt(first) { second.into() } else { first.into() }
    }
}

/// A random live path other than `avoid`; `None` if there is none. [`DRAWS_MAX`] misses are likely
/// only if few paths are live; then these are counted.
fn draw(set: &PathSet, avoid: Option<u8>, rng: &mut Rng) -> Option<u8> {
    let paths = set.paths.len() as u32;
    debug_assert!(paths.is_power_of_two(), "the mask finds a path for each number");
    let mut drawn = (0..DRAWS_MAX).map(|_| rng.below(paths) as u8);
    let found = drawn.find(|&p| set.get(p).is_live() && avoid != Some(p));
    found.or_else(|| live_other(set, avoid, rng))
}
