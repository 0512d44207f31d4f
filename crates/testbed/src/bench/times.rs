//! Histograms of times: how long packets waited, how long round trips took.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Classes per doubling of the time: a time is known to 3 %.
const CLASSES: u32 = 32;

/// A histogram with classes whose width grows with the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    classes: BTreeMap<u32, u64>,
}

/// Class of a time: its highest bits.
fn class(ns: u64) -> u32 {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(CLASSES.ilog2() + 1);
    shift * CLASSES + (ns >> shift) as u32
}

/// Middle of a class in ns.
fn middle_ns(class: u32) -> u64 {
    let shift = (class / CLASSES).saturating_sub(1);
    let least = u64::from(class - shift * CLASSES) << shift;
    least + (1 << shift) / 2
}

impl Times {
    /// Counts a time.
    pub fn add(&mut self, ns: u64) {
        *self.classes.entry(class(ns)).or_default() += 1;
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (class, n) in &other.classes {
            *self.classes.entry(*class).or_default() += n;
        }
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.classes.values().sum()
    }

    /// The time in ms that at least a fraction `share` of the times do not exceed; `None` if there
    /// are none.
    pub fn percentile_ms(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut counted = 0;
        let reaches = |(_, n): &(&u32, &u64)| {
            counted += **n;
            counted >= wanted
        };
        let found = self.classes.iter().find(reaches);
        found.map(|(class, _)| middle_ns(*class) as f64 / 1e6)
    }
}

/// A histogram of times that were measured within a part of a run.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    from_ns: u64,
    until_ns: u64,
    /// The times counted so far.
    pub times: Times,
}

impl Timed {
    /// Starts counting again, from `from_ns` until before `until_ns` of the monotonic clock.
    pub fn begin(&mut self, from_ns: u64, until_ns: u64) {
        *self = Self { from_ns, until_ns, times: Times::default() };
    }

    /// Counts the time `ns`, if its measurement ended (at `now_ns`) within the part of the run.
    pub fn note(&mut self, now_ns: u64, ns: u64) {
        if (self.from_ns..self.until_ns).contains(&now_ns) {
            self.times.add(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_class_near_it() {
        for ns in (0..2_000).chain((0..60).map(|b| (1_u64 << b) + (1_u64 << b) / 3)) {
            let middle = middle_ns(class(ns));
            assert!(middle.abs_diff(ns) <= ns / 60 + 1, "{ns}: {middle}");
            assert_eq!(class(middle), class(ns), "{ns}");
            assert!(class(ns) <= class(ns + 1), "{ns}");
        }
    }

    #[test]
    fn only_the_part_of_a_run_counts() {
        let mut timed = Timed::default();
        timed.note(5, 1);
        assert_eq!(timed.times.count(), 0, "not begun");
        timed.begin(10, 20);
        [9, 10, 19, 20].into_iter().for_each(|now| timed.note(now, 1));
        assert_eq!(timed.times.count(), 2);
        timed.begin(20, 30);
        assert_eq!(timed.times.count(), 0);
    }

    #[test]
    fn percentiles_are_those_of_all_that_were_added() {
        let (mut some, mut all) = (Times::default(), Times::default());
        assert_eq!(all.percentile_ms(0.5), None);
        (1..=50).for_each(|ms| some.add(ms * 1_000_000));
        (51..=100).for_each(|ms| all.add(ms * 1_000_000));
        all.add_all(&some);
        assert_eq!(all.count(), 100);
        for (share, ms) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let got = all.percentile_ms(share).unwrap_or_default();
            assert!((got / ms - 1.0).abs() < 0.02, "{share}: {got} instead of {ms}");
        }
    }
}
