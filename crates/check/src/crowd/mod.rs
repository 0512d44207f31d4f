//! Crowded worlds: senders that always have something to send, before one bottleneck.
//!
//! The oracles of other worlds ask whether the protocol is right; these ask whether a crowd of
//! engines is a good citizen, as `docs/congestion.md` promises: few packets are lost for ever,
//! nobody starves, what there is gets used, and marks of switches are answered. All numbers are
//! looked at after the senders have had the time to settle that the rules themselves name. Each
//! bound stands beside the reason for it, in `oracles.rs`.

mod member;
mod net;
mod oracles;
mod plan;
mod stage;

use crate::ledger::Tally;
use crate::world::{Options, Outcome};
pub(crate) use plan::{AWAITED, CROWD_EACH, draw};
pub use plan::{Kind, Plan};
use srd_fabric::Totals;
use stage::Stage;

/// Runs the world of a plan.
pub(crate) fn run(plan: &Plan, options: Options) -> Outcome {
    let mut stage = Stage::new(plan, options.trace);
    stage.run();
    if stage.wrong.is_none()
        && let Some((oracle, what)) = oracles::check(plan, &stage.measured)
    {
        stage.fail(oracle, what);
    }
    let sum = |count: fn(&member::Member) -> u64| stage.members.iter().map(count).sum();
    let tally = Tally {
        packets: stage.packets,
        received: stage.received,
        requests: sum(|m| m.posted),
        completed: sum(|m| m.ended),
        retransmitted: sum(|m| m.engine.counters().retrans_pkts),
        ..Tally::default()
    };
    let network = Totals { marked: stage.net.marked, ..Totals::default() };
    Outcome {
        violation: stage.wrong.take(),
        hash: stage.hash ^ stage.packets << 20 ^ stage.received,
        tally,
        network,
        trace: stage.trace.take(),
    }
}

#[cfg(test)]
#[path = "crowd_tests.rs"]
mod tests;
