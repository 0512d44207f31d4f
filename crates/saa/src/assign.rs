//! The assignment: r_f = w_f / W_f.
//!
//! *Feasible*: on a link l every flow has W_f >= W_l, so that the rates sum up to at most Σ w_f /
//! W_l = 1. *Shortest*: a flow of size w_f ends after w_f / r_f = W_f, the last one after W, and
//! the link of weight W cannot carry its flows in less time. The assignment leaves capacity unused
//! if no flow that could use it would shorten the phase.

use crate::weight::{LinkWeights, Paths};
use srd_fabric::Ps;

/// A share of the line rate: w_f / W_f, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    weight: u64,
    most: u64,
}

impl Rate {
    /// The line rate.
    pub const LINE: Self = Self { weight: 1, most: 1 };

    /// w_f / W_f. `None` if that is not a share: a flow of weight 0, or a path whose weight is
    /// below the flow's own (an announcement has not been counted there).
    pub const fn new(weight: u64, most: u64) -> Option<Self> {
        if weight == 0 || most < weight { None } else { Some(Self { weight, most }) }
    }

    /// As a floating point number, for reports.
    pub const fn share(self) -> f64 {
        self.weight as f64 / self.most as f64
    }

    /// W_f.
    pub const fn most(self) -> u64 {
        self.most
    }

    /// Earliest departure of the `n`th packet after the one at time 0, for packets of `packet_ps`
    /// at this rate: n · packet · W_f / w_f, rounded up.
    pub const fn due(self, packet_ps: Ps, n: u64) -> Ps {
        let Some(ps) = (n as u128 * packet_ps as u128).checked_mul(self.most as u128) else {
            return Ps::MAX;
        };
        let due = ps.div_ceil(self.weight as u128);
        if due > Ps::MAX as u128 { Ps::MAX } else { due as Ps }
    }
}

/// Rates of all flows of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// r_f of each flow.
    pub rates: Vec<Rate>,
    /// W: duration of the phase, in the unit of the weights at line rate.
    pub largest: u64,
}

/// The optimal assignment with complete knowledge. Each flow needs a weight and at least one link.
///
/// # Panics
/// If a flow has no weight or no links.
pub fn optimal(paths: &Paths) -> Assignment {
    let weights = LinkWeights::of(paths);
    let rate = |f| Rate::new(paths.weight(f), weights.most_on(paths.links(f)));
    let rates = (0..paths.len()).map(|f| rate(f).expect("a flow has a weight and links"));
    Assignment { rates: rates.collect(), largest: weights.largest() }
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
