//! Sealed worlds: engines behind the layers of `srd-seal`, with true keys and the true ciphers, on
//! a network that an attacker without a key reads and changes.
//!
//! The oracles of other worlds hold: every request ends once, with the right bytes at the right
//! place. Beside them: what nobody has authenticated changes nothing but counters and contexts that
//! are not open yet; no nonce is used twice under one key; no payload is shown, and nothing leaves
//! without a seal where there has to be one; both sides hear of a refusal; what is half open is
//! bounded.

mod attack;
mod member;
mod network;
mod plan;
mod receive;
mod stage;

use crate::ledger::{Oracle, Tally};
use crate::world::{Options, Outcome};
pub(crate) use plan::draw;
pub use plan::{Odd, Plan, SEALED_EACH, Threat};
use srd_core::Status;
use srd_fabric::Totals;
use srd_seal::{Policy, Refusal};
use stage::Stage;

/// Runs the world of a plan.
pub(crate) fn run(plan: &Plan, seed: u64, options: Options) -> Outcome {
    let mut stage = Stage::new(plan, seed, options.trace);
    stage.run();
    if stage.wrong.is_none() {
        end_check(plan, &mut stage);
    }
    let with = |ok: bool| {
        let n = stage.jobs.iter().filter(|j| j.ended.is_some_and(|e| (e.1 == Status::Ok) == ok));
        n.count() as u64
    };
    let copies = stage.members.iter().map(|m| m.engine.counters().retrans_pkts).sum();
    let tally = Tally {
        packets: stage.network.sent,
        received: stage.received,
        requests: stage.jobs.len() as u64,
        completed: with(true),
        failed: with(false),
        forged: stage.forged,
        retransmitted: copies,
        restarts: stage.restarts,
        ..Tally::default()
    };
    Outcome {
        violation: stage.wrong.take(),
        hash: stage.hash ^ stage.network.sent << 20 ^ stage.received,
        tally,
        network: Totals::default(),
        trace: stage.trace.take(),
    }
}

/// Checks at the end that everything has ended, that the last requests have succeeded, and that
/// nothing is left.
fn end_check(plan: &Plan, stage: &mut Stage) {
    let last = plan.last_ns();
    let open = stage.jobs.iter().position(|j| {
        let must = j.posted_at >= last && plan.can_meet(j.from, j.to);
        let bad = j.ended.is_none_or(|e| must && e.1 != Status::Ok);
        bad && !j.orphan && !stage.is_of_liar(j.from, j.to)
    });
    if let Some(k) = open {
        let what = format!("request {k} has not ended, or not well: {:?}", stage.jobs[k]);
        return stage.fail(Oracle::Liveness, what);
    }
    refusals_check(plan, stage);
    bounds_check(plan, stage);
}

/// Who cannot have a context with a peer has been told, and so has the peer that refused it.
fn refusals_check(plan: &Plan, stage: &mut Stage) {
    for a in 0..plan.members {
        for b in 0..plan.members {
            let asked = stage.jobs.iter().any(|j| (j.from, j.to) == (a, b) && !j.orphan);
            if plan.can_meet(a, b) || !asked {
                continue;
            }
            let (at_a, at_b) = (stage.members[a].at, stage.members[b].at);
            let told = stage.told.contains(&(a, at_b));
            let denied = stage.denied.contains(&(b, at_a));
            if !(told && denied) {
                let what = format!(
                    "{b} refuses {a}: {a} was {}told, {b} was {}told",
                    if told { "" } else { "not " },
                    if denied { "" } else { "not " }
                );
                return stage.fail(Oracle::Verdict, what);
            }
        }
    }
}

/// What layers hold belongs to contexts of their engines.
fn bounds_check(plan: &Plan, stage: &mut Stage) {
    let now = stage.now;
    for id in 0..plan.members {
        let m = &mut stage.members[id];
        m.tick(now, plan.renews);
        let contexts = m.engine.context_stats();
        let Some(layer) = &m.layer else { continue };
        let held = layer.contexts();
        let counters = *layer.counters();
        if held > contexts.len() {
            let what = format!("member {id} has keys of {held} contexts, but {contexts:?}");
            return stage.fail(Oracle::Memory, what);
        }
        let plain = contexts.iter().find(|c| c.state == "Open" && !c.sealed);
        if plan.policies[id] == Policy::Require
            && let Some(c) = plain
        {
            let what = format!("member {id} has an open context without a seal: {c:?}");
            return stage.fail(Oracle::Secrecy, what);
        }
        // A stranger's handshake ends at its keyed hash: it costs no more than that.
        let at = Refusal::ALL.iter().position(|&r| r == Refusal::Seal);
        let past_mac = counters.refused[at.expect("the list has every reason")];
        if past_mac > 0 && !plan.liar {
            let what = format!("member {id} opened {past_mac} handshakes of a stranger");
            return stage.fail(Oracle::Authentic, what);
        }
    }
}

#[cfg(test)]
#[path = "sealed_tests.rs"]
mod tests;
