//! Hostile worlds: engines beside peers that lie, die or flood, on hosts whose sockets are never
//! empty.
//!
//! In the worlds of `world.rs` networks and hosts fail, but every member follows the protocol, so
//! the oracles can check each packet. Here one side does not follow it, so that less can be
//! demanded of the traffic between that side and its victim, and more of everything else: no input
//! makes an engine panic or loop, memory stays bounded, and the jobs of honest third parties
//! succeed, with the right bytes, nearly as fast as without the hostile side. Where throughput is
//! compared, the world runs a second time without it.

mod dead;
mod flood;
mod jobs;
mod joined;
mod liar;
mod liar_acks;
mod mutate;
mod narrow;
mod net;
mod peer;
mod plan;
mod secrets;
mod stage;
mod work;

use crate::class::Class;
use crate::ledger::{Oracle, Tally};
use crate::packet::Datagram;
use crate::world::{Options, Outcome};
pub(crate) use joined::JOINED_EACH;
use liar::Grants;
#[cfg(feature = "sealed")]
pub(crate) use mutate::mutate;
pub(crate) use plan::draw;
pub use plan::{AWAITED, HOSTILE_EACH, Mode, Plan};
use srd_core::{ContextStats, EngineConfig, Status};
use srd_fabric::Totals;
use stage::Stage;
use std::fmt::Write as _;

/// Least share of their throughput that honest third parties must keep, in percent of the cable
/// capacity that the hostile side's bytes leave.
const KEPT_PERCENT: u64 = 90;
/// Most that engines may send to the dead while throughput counts, in percent of a cable's
/// capacity.
const TO_DEAD_PERCENT: u64 = 5;
/// Most of a receiver's line that one sender may hold unused with credits, in microseconds
/// (`GRANT_AHEAD` of the core).
const GRANTED_US: u64 = 200;
/// Full packets that liars may be granted beside that: one grant is larger than what is left.
const GRANTED_PKTS: u64 = 64;
/// Jobs needed for a comparison of throughputs; fewer are not significant.
const PIECES_MIN: u64 = 100;
/// Least believed RTT as a share of the true one, in percent, whatever the peer reports.
const LEAST_PERCENT: u64 = 75;
/// Most retransmissions in a network without loss, in percent of all data packets.
const COPIES_PERCENT: u64 = 1;

/// Runs the world of a plan.
pub(crate) fn run(plan: &Plan, seed: u64, bytes: &[u8], options: Options) -> Outcome {
    let mut stage = Stage::new(plan, seed, bytes, false);
    stage.trace = options.trace.then(Box::default);
    stage.run();
    let kept = stage.bytes_kept();
    end_check(plan, &mut stage);
    let compares = matches!(plan.class, Class::Liar | Class::Flood | Class::Rails | Class::Dead)
        && !(plan.class == Class::Liar && plan.shares_address);
    if stage.board.wrong.is_none() && compares {
        let mut alone = Stage::new(plan, seed, bytes, true);
        alone.run();
        let without = alone.bytes_kept();
        if without.1 >= PIECES_MIN && is_slowed(plan, &stage, kept.0, without.0) {
            let mut what = format!(
                "honest third parties moved {} bytes; without the hostile side it is {}",
                kept.0, without.0
            );
            if plan.class == Class::Dead {
                let _ = write!(what, "; {} bytes were sent to the dead", stage.to_dead_bytes);
            }
            stage.board.fail(plan.load_ns, Oracle::Neighbour, what);
        }
    }
    let (said, copies) = (stage.said, stage.copies());
    let board = &mut stage.board;
    let ended = |ok: bool| {
        let n = board.jobs.iter().filter(|j| j.ended.is_some_and(|e| (e.1 == Status::Ok) == ok));
        n.count() as u64
    };
    let tally = Tally {
        packets: board.packets,
        received: board.received,
        requests: board.jobs.len() as u64,
        completed: ended(true),
        failed: ended(false),
        forged: said,
        retransmitted: copies,
        ..Tally::default()
    };
    Outcome {
        violation: board.wrong.take(),
        hash: board.hash ^ board.packets << 20 ^ board.received,
        tally,
        network: Totals::default(),
        trace: stage.trace.take(),
    }
}

/// Whether honest third parties, who moved `kept` bytes, are slower than the hostile side's use of
/// the cables explains; `without` = bytes moved in the same world without that side. A hostile
/// sender or reader takes a share of the cables, up to the turn of one peer; only a loss beyond
/// this share is the engines' fault. Engines that die are peers like any other until then: only
/// what is moved afterwards is compared, and only what is then sent to them is their share.
fn is_slowed(plan: &Plan, stage: &Stage, kept: u64, without: u64) -> bool {
    let cable_bytes = plan::BYTES_PER_US * (plan.load_ns - plan.dies_ns()) / 1000;
    // Towards the victim and from it: each direction has its own cable.
    let guest_bytes = stage.net.guest_bytes.min(cable_bytes / (plan.honest as u64 + 1));
    let to_dead_bytes = stage.to_dead_bytes.min(cable_bytes * TO_DEAD_PERCENT / 100);
    // If receivers allocate their link by credits, what they had granted to each stays unused.
    let granted = plan.class == Class::Dead && plan.config.rate.credits;
    let granted_bytes = u64::from(granted) * plan.dead as u64 * plan::BYTES_PER_US * GRANTED_US;
    let taken_bytes =
        stage.net.strange_bytes.max(guest_bytes).max(to_dead_bytes).max(granted_bytes);
    let taken_percent = (taken_bytes * 100).div_ceil(cable_bytes).min(100);
    // If receivers allocate their link by credits, a liar that announces data has a turn like any
    // sender and may leave it unused.
    let turns = plan.honest as u64;
    let senders = turns + u64::from(plan.class == Class::Liar && plan.config.rate.credits);
    kept * senders * 100 * 100 < without * turns * KEPT_PERCENT * (100 - taken_percent)
}

fn end_check(plan: &Plan, stage: &mut Stage) {
    let now = stage.now;
    let board = &stage.board;
    let late = board.jobs.iter().position(|j| j.honest && j.ended.is_none());
    if let Some(k) = late {
        let n = board.jobs.iter().filter(|j| j.honest && j.ended.is_none()).count();
        let what = format!("honest job {k} and {} more have not ended: {:?}", n - 1, board.jobs[k]);
        stage.board.fail(now, Oracle::Liveness, what);
    }
    let told = stage.board.jobs.iter().position(|j| j.must_end && j.ended.is_none());
    if let Some(k) = told {
        let what = format!("job {k} must end, but has not: {:?}", stage.board.jobs[k]);
        stage.board.fail(now, Oracle::Liveness, what);
    }
    memory_check(plan, stage);
    grants_check(plan, stage);
    if plan.class == Class::Liar
        && let Some(what) = secrets::check(plan)
    {
        stage.board.fail(now, Oracle::Secrets, what);
    }
    narrow::end_check(plan, stage);
    joined::end_check(plan, stage);
    if plan.class == Class::Late && stage.net.dropped == 0 {
        let (copies, packets) = (stage.copies(), stage.board.packets);
        if copies * 100 > packets * COPIES_PERCENT {
            let what =
                format!("{copies} retransmissions among {packets} packets although none was lost");
            stage.board.fail(now, Oracle::Copies, what);
        }
    }
}

/// Checks the victim's bytes in flight and RTT estimate: whatever delay a liar reports, no answer
/// can arrive sooner than a round trip.
fn belief_check(stage: &mut Stage) {
    let floor = LEAST_PERCENT * 2 * plan::DELAY_NS / 100;
    let Some(victim) = stage.peers.first() else { return };
    let known = victim.ahs.iter().flat_map(|(ip, _)| victim.engine.path_stats(*ip));
    let held = victim.engine.context_stats();
    if let Some(c) = held.iter().find(|c| c.psns_unresolved > u32::from(victim.cfg.window)) {
        let what = format!("the victim holds more than its window: {c:?}");
        return stage.board.fail(stage.now, Oracle::Memory, what);
    }
    if let Some(what) = held.iter().find_map(|c| is_heavy(c, &victim.cfg)) {
        return stage.board.fail(stage.now, Oracle::Memory, what);
    }
    let least = known.map(|p| p.rtt_ns_min).filter(|&ns| ns > 0).min();
    if let Some(ns) = least.filter(|&ns| ns < floor) {
        let what =
            format!("the RTT estimate is {ns} ns, but no round trip takes less than {floor} ns");
        stage.board.fail(stage.now, Oracle::Belief, what);
    }
}

/// Checks what a liar was granted that leaves out transmission numbers, as if it had sent what
/// nobody has seen.
fn grants_check(plan: &Plan, stage: &mut Stage) {
    if !plan.leaves_out || stage.liars.is_empty() {
        return;
    }
    let all: Vec<_> = stage.liars.iter().map(|l| l.grants).collect();
    let granted: u64 = all.iter().map(|g| g.bytes).sum();
    let ahead = GRANTED_US * plan::BYTES_PER_US + GRANTED_PKTS * u64::from(plan.config.mtu);
    let most = Grants::most_bytes(&all, ahead);
    if granted > most {
        let sent: u64 = all.iter().map(|g| g.earned_bytes).sum();
        let what =
            format!("{granted} bytes were granted to liars that sent {sent}: at most {most}");
        stage.board.fail(stage.now, Oracle::Limits, what);
    }
}

/// Describes the violation if an engine holds more for a peer than its bound.
fn is_heavy(c: &ContextStats, cfg: &EngineConfig) -> Option<String> {
    let most = cfg.peer_bytes_max();
    (c.held_bytes > most).then(|| format!("more than {most} bytes are held for a peer: {c:?}"))
}

/// Checks what each engine holds for its peers.
fn memory_check(plan: &Plan, stage: &mut Stage) {
    let (now, last) = (stage.now, stage.to_dead_at_last);
    let mut wrong = None;
    for p in stage.peers.iter().filter(|p| p.alive) {
        let stats = p.engine.context_stats();
        if stats.len() > p.cfg.contexts_max as usize {
            wrong = Some((Oracle::Limits, format!("engine {}: {} contexts", p.id, stats.len())));
        }
        for c in &stats {
            if let Some(what) = is_heavy(c, &p.cfg) {
                wrong = Some((Oracle::Memory, what));
            }
            if c.psns_unresolved > u32::from(p.cfg.window) {
                let what = format!("engine {} holds more than its window: {c:?}", p.id);
                wrong = Some((Oracle::Memory, what));
            }
            let dead = stage.peers.iter().any(|d| !d.alive && d.at == c.peer);
            if dead && c.reads_served > 0 {
                let what = format!("engine {} serves reads of the dead: {c:?}", p.id);
                wrong = Some((Oracle::Memory, what));
            }
            if dead && c.is_active && c.outstanding == 0 && plan.class == Class::Dead {
                let what = format!("engine {} keeps a window for the dead: {c:?}", p.id);
                wrong = Some((Oracle::Memory, what));
            }
        }
    }
    if plan.class == Class::Dead && last > 2 * plan.dead as u64 && wrong.is_none() {
        let what = format!("{last} packets were sent to dead members long after they died");
        wrong = Some((Oracle::Memory, what));
    }
    if let Some((oracle, what)) = wrong {
        stage.board.fail(now, oracle, what);
    }
}

/// A datagram in the form that a capture needs.
fn datagram(g: &net::Gram) -> Datagram {
    Datagram {
        head: g.bytes.clone(),
        tail_len: 0,
        content: None,
        request: None,
        forged: g.honest.is_none(),
        src: g.src,
        dst: g.dst,
        sport: 20_000,
    }
}
