//! Statistics of samples for tables.

use srd_fabric::Ps;

/// Quantiles of a set of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Minimum.
    pub min: f64,
    /// Median: half of the samples are at most this.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

impl Quantiles {
    /// Quantiles of samples in any order; all zero if there are none.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let Some(last) = samples.len().checked_sub(1) else { return Self::default() };
        // The nearest rank, so the result is one of the samples.
        let at =
            |q: f64| samples[((samples.len() as f64 * q).ceil() as usize).clamp(1, last + 1) - 1];
        Self {
            min: samples[0],
            median: at(0.5),
            p99: at(0.99),
            max: samples[last],
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
        }
    }
}

/// Standard error of the mean of independent samples; `None` for fewer than two.
pub fn standard_error(samples: &[f64]) -> Option<f64> {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares = samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
    (samples.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt())
}

/// Flow completion times of one run, in us and in multiples of the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Flow completion times in us.
    pub fct_us: Quantiles,
    /// The largest floor of a flow in us.
    pub floor_us: f64,
    /// Completion time of each flow over its own floor.
    pub over_floor: Quantiles,
    /// Slowest over fastest flow of a round, in the worst round.
    pub max_over_min: f64,
}

impl Summary {
    /// `fcts[round][flow]` is `None` where a flow did not end; `floors[flow]`.
    pub fn of(fcts: &[Vec<Option<Ps>>], floors: &[Ps]) -> Self {
        let us = |ps: Ps| ps as f64 / 1e6;
        let mut over = Vec::new();
        let mut all = Vec::new();
        let mut spread = 0.0f64;
        for round in fcts {
            let (mut least, mut most) = (Ps::MAX, 0);
            for (fct, floor) in round.iter().zip(floors) {
                let Some(fct) = *fct else { continue };
                over.push(fct as f64 / *floor as f64);
                all.push(us(fct));
                (least, most) = (least.min(fct), most.max(fct));
            }
            if most > 0 {
                spread = spread.max(most as f64 / least as f64);
            }
        }
        Self {
            fct_us: Quantiles::of(all),
            floor_us: us(floors.iter().copied().max().unwrap_or(0)),
            over_floor: Quantiles::of(over),
            max_over_min: spread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let q = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((q.min, q.median, q.p99, q.max, q.mean), (1.0, 50.0, 99.0, 100.0, 50.5));
        assert_eq!(Quantiles::of(vec![7.0]).p99, 7.0);
        assert_eq!(Quantiles::of(vec![]), Quantiles::default());
    }

    #[test]
    fn one_sample_says_nothing_of_the_error_of_its_mean() {
        assert_eq!(standard_error(&[4.0]), None);
        assert_eq!(standard_error(&[]), None);
        // Squares 4, 0 and 4, with 2 degrees of freedom and 3 samples.
        let error = standard_error(&[3.0, 5.0, 7.0]).unwrap();
        assert!((error - (8.0f64 / 2.0 / 3.0).sqrt()).abs() < 1e-12, "{error}");
    }

    #[test]
    fn a_flow_that_did_not_end_is_no_sample() {
        let s = Summary::of(
            &[vec![Some(2_000_000), None], vec![Some(3_000_000), Some(1_500_000)]],
            &[1_000_000, 1_000_000],
        );
        assert_eq!((s.over_floor.min, s.over_floor.max, s.max_over_min), (1.5, 3.0, 2.0));
    }
}
