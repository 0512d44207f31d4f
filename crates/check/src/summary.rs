//! Summary of many runs.

use crate::class::{Class, Classes, PerClass};
use crate::ledger::{Tally, Violation};
use crate::scenario::Scenario;
use crate::world::Outcome;
use srd_fabric::{DropReason, Totals};
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

/// A seed whose world had a violation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Classes of faults of its world.
    pub classes: Classes,
    /// The violation.
    pub violation: Violation,
}

/// Sum of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Worlds.
    pub seeds: u64,
    /// Worlds run a second time.
    pub replays: u64,
    /// Range of seeds; every one of it was run.
    pub range: Range<u64>,
    /// Failures in order of seeds.
    pub failures: Vec<Failure>,
    /// Hash of all worlds: the same for the same seeds, in any order, on any machine.
    pub hash: u64,
    /// Counters of engines.
    pub tally: Tally,
    /// Packets that the network lost, by reason.
    pub lost: [u64; DropReason::ALL.len()],
    /// Packets duplicated by the network.
    pub duplicated: u64,
    /// Packets corrupted by the network.
    pub corrupted: u64,
    /// Packets marked by queues (CE).
    pub marked: u64,
    /// Worlds with each class of faults.
    pub classes: PerClass,
    /// Faults per class, for classes whose faults have a start time.
    pub planned: PerClass,
    /// Duration of the run.
    pub wall: Duration,
    /// CPU time of this process during the run; zero if the system does not report it.
    pub cpu: Duration,
    /// Worker threads.
    pub threads: usize,
}

fn each_plus(mine: &mut [u64], theirs: impl IntoIterator<Item = u64>) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

/// A term of the sum that is the hash of many worlds: it depends on which world has which hash.
fn mixed(seed: u64, hash: u64) -> u64 {
    // The multiplier is 2^64 over the golden ratio, made odd.
    let word = |x: u64| (x ^ (x >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word(word(seed).wrapping_add(hash))
}

impl Summary {
    pub(crate) fn add(&mut self, s: &Scenario, o: &Outcome) {
        self.seeds += 1;
        self.hash = self.hash.wrapping_add(mixed(s.seed, o.hash));
        self.tally.add(&o.tally);
        let Totals { duplicated, corrupted, marked, drops, .. } = o.network;
        each_plus(&mut self.lost, DropReason::ALL.map(|r| drops.of(r)));
        self.duplicated += duplicated;
        self.corrupted += corrupted;
        self.marked += marked;
        each_plus(&mut *self.planned, s.planned.map(u64::from));
        for c in s.classes.iter() {
            self.classes[c as usize] += 1;
        }
        if let Some(violation) = &o.violation {
            self.failures.push(Failure {
                seed: s.seed,
                classes: s.classes,
                violation: violation.clone(),
            });
        }
    }

    pub(crate) fn merge(&mut self, mut other: Self) {
        self.seeds += other.seeds;
        self.replays += other.replays;
        self.hash = self.hash.wrapping_add(other.hash);
        self.failures.append(&mut other.failures);
        self.tally.add(&other.tally);
        each_plus(&mut self.lost, other.lost);
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.marked += other.marked;
        each_plus(&mut *self.classes, *other.classes);
        each_plus(&mut *self.planned, *other.planned);
    }

    /// All packets that the network lost.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// Failures by oracle and hostile class.
    fn failures_by_class(&self) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for f in &self.failures {
            let hostile = f.classes.iter().find(|&c| c as usize >= Class::ORDINARY);
            let class = hostile.map_or_else(|| "others".into(), |c| format!("{c:?}"));
            *counts.entry((f.violation.oracle, class)).or_insert(0) += 1;
        }
        let each = counts.iter().map(|((o, c), n)| format!("{o:?} {c} {n}"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// The summary as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let t = &self.tally;
        let cpu = if self.cpu.is_zero() { self.wall * self.threads as u32 } else { self.cpu };
        let per = |n: u64| n as f64 / cpu.as_secs_f64().max(1e-9);
        let Range { start, end } = self.range;
        let _ = writeln!(
            out,
            "{} seeds from {start} to {} ({} of them twice), {} failed",
            self.seeds,
            end.saturating_sub(1),
            self.replays,
            self.failures.len(),
        );
        let _ = writeln!(
            out,
            "{:.0} s, {:.0} s of processor time on {} threads: {:.0} seeds and {:.0} packets per \
             second of processor time",
            self.wall.as_secs_f64(),
            cpu.as_secs_f64(),
            self.threads,
            per(self.seeds + self.replays),
            per(t.packets),
        );
        let _ = writeln!(
            out,
            "{} requests: {} succeeded, {} ended with an error, the rest went with its queue pair",
            t.requests, t.completed, t.failed,
        );
        let _ = writeln!(
            out,
            "{} packets: {} sent again, {} recalled after {} changes of size, {} judged, {} of \
             them not ready; {} lost, {} doubled, {} damaged, {} marked by the network",
            t.packets,
            t.retransmitted,
            t.recalls,
            t.sizes,
            t.judged,
            t.rnr,
            self.lost_total(),
            self.duplicated,
            self.corrupted,
            self.marked,
        );
        let lost = DropReason::ALL.iter().zip(self.lost).filter(|(_, n)| *n > 0);
        let lost: Vec<String> = lost.map(|(r, n)| format!("{} {n}", r.name())).collect();
        let _ = writeln!(out, "lost packets by reason: {}", lost.join(", "));
        let _ = writeln!(
            out,
            "at hosts: {} engines restarted, {} packets of the past, {} forgeries, {} leaps of \
             clocks, {} packets refused by cards, {} dropped by full receive queues, {} objects \
             churned, {} denials of paths",
            t.restarts, t.stale, t.forged, t.leaps, t.refused, t.overflowed, t.churned, t.denials,
        );
        let class = |c: &Class| {
            let (worlds, faults) = (self.classes[*c as usize], self.planned[*c as usize]);
            if faults > 0 { format!("{c:?} {worlds}/{faults}") } else { format!("{c:?} {worlds}") }
        };
        let classes: Vec<String> = Class::ALL.iter().map(class).collect();
        let _ = writeln!(out, "worlds/faults by class: {}", classes.join(", "));
        if !self.failures.is_empty() {
            let _ = writeln!(out, "failures by oracle and class: {}", self.failures_by_class());
        }
        for f in &self.failures {
            let v = &f.violation;
            let what: String = v.what.chars().take(300).collect();
            let _ = writeln!(out, "seed {} ({}): {:?}: {what}", f.seed, f.classes, v.oracle);
        }
        out
    }
}
