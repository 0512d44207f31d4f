//! What a crowd must have achieved. Each bound follows from `docs/congestion.md`, with room for
//! what that document says is missed.

use super::plan::{Kind, Plan};
use super::stage::Measured;
use crate::ledger::Oracle;
use srd_core::wire;

/// Most that is lost for ever before a buffer long enough to be proven, per thousand: the goal of
/// 1 %, and as much for those who rise until it overflows.
const LOST_BUFFER_PERMILLE: u64 = 20;
/// Most that is lost for ever behind a policer or a short buffer, per thousand. Losses below 5 %
/// slow nobody down who has no cap (CC-19, CC-41), so that only this is promised, whatever the goal
/// (2 %) is; a fifth more for what the counts of one phase differ by chance.
const LOST_LIMIT_PERMILLE: u64 = 60;
/// Least of Jain's index before such a buffer, per thousand, for equal round trips and others. The
/// goal is 950; 8 senders at 20 ms reach 834, 64 with unequal round trips 641.
const JAIN_PERMILLE: u64 = 750;
/// See [`JAIN_PERMILLE`].
const JAIN_UNEQUAL_PERMILLE: u64 = 550;
/// Least use of such a buffer's link in percent; 97 is usual.
const USED_BUFFER_PERCENT: u64 = 80;
/// The same of a policer's rate. A cap that ended the losses is below what passes by an eighth at
/// most, and of what falls twice in a row before the first fall shows, three quarters are left.
const USED_LIMIT_PERCENT: u64 = 60;
/// Least use of what a bottleneck permits after it has changed, in percent, after the time in which
/// the rules say that all of it is used.
const USED_AGAIN_PERCENT: u64 = 60;
/// Least use of what a bad link lets pass, in percent: at worst every other interval belongs to a
/// trial of the cap (8 of 40, twice as rare each time), with half of the rate and less.
const USED_BAD_LINK_PERCENT: u64 = 50;
/// Most bursts of each sender per base RTT while all packets are marked: CC-43 leaves one per round
/// trip, and where a burst is one packet, the least window of two packets is in force.
const MARKED_BURSTS: u64 = 3;

/// The first promise that a world breaks.
pub(super) fn check(plan: &Plan, measured: &[Measured]) -> Option<(Oracle, String)> {
    let Some(first) = measured.first() else {
        return Some((Oracle::Counters, "nothing was measured".into()));
    };
    let what = |oracle, text: &str| Some((oracle, format!("{text}: {first}")));
    let limit = plan.is_limit();
    let jain = if plan.is_unequal() { JAIN_UNEQUAL_PERMILLE } else { JAIN_PERMILLE };
    match plan.kind {
        Kind::Marks if is_unmoved(plan, first) => what(Oracle::Marks, "marks did not slow a crowd"),
        Kind::Buffer { .. } | Kind::Policer { .. } | Kind::Lifted { .. } => {
            let lost = if limit { LOST_LIMIT_PERMILLE } else { LOST_BUFFER_PERMILLE };
            let used = if limit { USED_LIMIT_PERCENT } else { USED_BUFFER_PERCENT };
            let least = plan.least_percent();
            match () {
                () if first.lost_permille() > lost => {
                    what(Oracle::Loss, &format!("more than {lost} per thousand are lost for ever"))
                }
                () if first.least_percent() < least => {
                    what(Oracle::Fair, &format!("a sender has less than {least} % of its part"))
                }
                () if !limit && first.jain_permille() < jain => {
                    what(Oracle::Fair, &format!("Jain's index is below {jain} per thousand"))
                }
                () if used_percent(plan, first, plan.rate) < used => {
                    what(Oracle::Used, &format!("less than {used} % of the bottleneck is used"))
                }
                () => again(plan, measured),
            }
        }
        Kind::Marks => again(plan, measured),
        Kind::BadLink { permille } => {
            let passes = plan.rate * (1000 - permille) / 1000;
            match used_percent(plan, first, passes) < USED_BAD_LINK_PERCENT {
                true => what(Oracle::Used, "losses of a bad link are taken for a limit"),
                false => None,
            }
        }
    }
}

/// Bytes on the wire of what arrived, in percent of a rate.
fn used_percent(plan: &Plan, measured: &Measured, rate: u64) -> u64 {
    let packet = plan.mtu() + wire::OVERHEAD_BYTES as u64;
    (u128::from(measured.rate()) * u128::from(packet) * 100
        / (u128::from(plan.mtu()) * u128::from(rate))) as u64
}

/// Whether senders whose packets are all marked send more than a burst per round trip.
fn is_unmoved(plan: &Plan, measured: &Measured) -> bool {
    let burst = u64::from(plan.config.rate.burst_bytes).max(plan.mtu());
    let bytes = |(k, _): (usize, &u64)| {
        u128::from(MARKED_BURSTS * burst) * u128::from(measured.ns) / u128::from(plan.trip_ns(k))
    };
    let most: u128 = measured.delivered.iter().enumerate().map(bytes).sum();
    let sum: u128 = measured.delivered.iter().map(|&d| u128::from(d)).sum();
    sum > most
}

/// Whether what a bottleneck permits after it has changed is used.
fn again(plan: &Plan, measured: &[Measured]) -> Option<(Oracle, String)> {
    if plan.recover_ns == 0 {
        return None;
    }
    let Some(last) = measured.get(1) else {
        return Some((Oracle::Counters, "nothing was measured after the change".into()));
    };
    let rate = match plan.kind {
        Kind::Lifted { .. } => super::plan::LIFTED_TIMES * plan.rate,
        _ => plan.rate,
    };
    let ports = plan.line() * (plan.hosts() as u64 - 1);
    (used_percent(plan, last, rate.min(ports)) < USED_AGAIN_PERCENT).then(|| {
        let text = "what a bottleneck permits since it has changed is not used";
        (Oracle::Used, format!("{text}: {last}; before: {}", measured[0]))
    })
}

#[cfg(test)]
#[path = "oracles_tests.rs"]
mod tests;
