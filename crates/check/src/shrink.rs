//! Reduces a failing world to what it needs to fail.

use crate::class::Classes;
use crate::ledger::Violation;
use crate::runner::check;
use crate::scenario::{Limits, Scenario};
use crate::world::Options;

/// The smallest failing world that was found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Remaining limits.
    pub limits: Limits,
    /// Remaining classes of faults.
    pub classes: Classes,
    /// Its violation, of the same oracle as before.
    pub violation: Violation,
    /// Worlds tried.
    pub tries: u32,
}

/// Shrinks the failing world of `seed`. `None`: it does not fail.
pub fn shrink(seed: u64) -> Option<Shrunk> {
    let fails = |limits: Limits| {
        let s = Scenario::from_seed(seed, limits);
        check(&s, Options::default()).violation.map(|v| (v, s.classes))
    };
    let (violation, classes) = fails(Limits::NONE)?;
    let mut best = Shrunk { limits: Limits::NONE, classes, violation, tries: 1 };
    let accept = |best: &mut Shrunk, limits: Limits| {
        best.tries += 1;
        match fails(limits) {
            Some((v, classes)) if v.oracle == best.violation.oracle => {
                (best.limits, best.classes, best.violation) = (limits, classes, v);
                true
            }
            _ => false,
        }
    };
    loop {
        let mut smaller = false;
        for c in best.classes.iter().collect::<Vec<_>>() {
            let limits = Limits { classes: best.limits.classes.without(c), ..best.limits };
            smaller |= accept(&mut best, limits);
        }
        for faults in [0, 1, 2] {
            if faults < best.limits.faults {
                let limits = Limits { faults, ..best.limits };
                smaller |= accept(&mut best, limits);
            }
        }
        for hosts in [2, 3] {
            if hosts < best.limits.hosts {
                let limits = Limits { hosts, ..best.limits };
                smaller |= accept(&mut best, limits);
            }
        }
        let most = best.limits.messages.min(256);
        for messages in [0, 1, most / 8, most / 2, most - most.min(1)] {
            if messages < best.limits.messages {
                let limits = Limits { messages, ..best.limits };
                smaller |= accept(&mut best, limits);
            }
        }
        if !smaller {
            return Some(best);
        }
    }
}
