//! Fluid model: the result of an assignment of rates with infinitely small packets.

use crate::assign::Rate;
use crate::weight::Paths;

/// Result of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluid {
    /// When each flow ended, in the unit of the weights at line rate.
    pub ends: Vec<f64>,
    /// Largest sum of rates on any link at any time; up to 1 is feasible.
    pub load_max: f64,
}

/// Runs all flows from time 0 at their rates until the last has ended. An overloaded link slows its
/// flows in proportion; a flow is slowed by the worst link of its path.
pub fn run(paths: &Paths, rates: &[Rate]) -> Fluid {
    let n = paths.len();
    let mut left: Vec<f64> = (0..n).map(|f| paths.weight(f) as f64).collect();
    let mut out = Fluid { ends: vec![0.0; n], load_max: 0.0 };
    let mut active: Vec<usize> = (0..n).collect();
    let mut load = vec![0.0; paths.links_end()];
    let mut now = 0.0;
    while !active.is_empty() {
        load.fill(0.0);
        for f in &active {
            paths.links(*f).iter().for_each(|l| load[*l as usize] += rates[*f].share());
        }
        let speed = |f: usize| {
            let worst = paths.links(f).iter().map(|l| load[*l as usize]).fold(1.0, f64::max);
            rates[f].share() / worst
        };
        out.load_max = load.iter().copied().fold(out.load_max, f64::max);
        let step = active.iter().map(|f| left[*f] / speed(*f)).fold(f64::INFINITY, f64::min);
        now += step;
        for f in &active {
            left[*f] -= step * speed(*f);
        }
        // A remainder caused by rounding counts as zero.
        active.retain(|f| {
            let ended = left[*f] <= paths.weight(*f) as f64 * 1e-12;
            if ended {
                out.ends[*f] = now;
            }
            !ended
        });
    }
    out
}
