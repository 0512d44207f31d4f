//! Results of a schedule.

use crate::stats::Quantiles;
use srd_fabric::Ps;

/// Times of a parallel program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppOutcome {
    /// Number of ranks.
    pub ranks: u32,
    /// Whether it ended in time.
    pub done: bool,
    /// Operations that are not done.
    pub undone: usize,
    /// Time from the beginning to the end of the last operation.
    pub total_ps: Ps,
    /// Length of each step: from the end of the one before to the end of its last rank.
    pub steps_ps: Vec<Ps>,
    /// Sum of the computations of all ranks.
    pub computed_ps: Ps,
    /// What one rank alone would compute, without communication and imbalance.
    pub work_ps: Ps,
    /// Processors of all ranks.
    pub cpus: u64,
}

impl AppOutcome {
    /// Share of the processors' time in which they wait for messages or for other ranks.
    pub fn waiting_share(&self) -> f64 {
        let all = self.cpus as f64 * self.total_ps as f64;
        if all == 0.0 { 0.0 } else { 1.0 - self.computed_ps as f64 / all }
    }

    /// T1 / (N T_N): time of one rank alone over that of all ranks together.
    pub fn efficiency(&self) -> f64 {
        let all = f64::from(self.ranks) * self.total_ps as f64;
        if all == 0.0 { 0.0 } else { self.work_ps as f64 / all }
    }

    /// Lengths of the steps in us.
    pub fn steps_us(&self) -> Quantiles {
        Quantiles::of(self.steps_ps.iter().map(|ps| *ps as f64 / 1e6).collect())
    }
}

/// Amdahl's bound of the efficiency of `ranks` ranks if `serial` (0 to 1) of the work cannot be
/// shared: T1 / (N T_N) with T_N = T1 (serial + (1 - serial) / N).
pub fn amdahl(ranks: u32, serial: f64) -> f64 {
    1.0 / (f64::from(ranks) * serial + 1.0 - serial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amdahls_bound_is_that_of_the_textbook() {
        // 5 % serial work: a speedup of 20 at most, of 16.8 / 2 = 8.42 on 14.
        assert!((amdahl(1, 0.05) - 1.0).abs() < 1e-12);
        assert!((amdahl(1_000_000, 0.05) * 1e6 - 20.0).abs() < 0.001);
        assert!((amdahl(10, 0.1) * 10.0 - 5.263_157_89).abs() < 1e-6);
        assert_eq!(amdahl(64, 0.0), 1.0);
    }

    #[test]
    fn efficiency_is_what_one_rank_would_need_over_what_all_took() {
        let o = AppOutcome {
            ranks: 4,
            cpus: 4,
            total_ps: 500,
            work_ps: 1_000,
            computed_ps: 1_200,
            ..AppOutcome::default()
        };
        assert_eq!((o.efficiency(), o.waiting_share()), (0.5, 0.4));
    }
}
