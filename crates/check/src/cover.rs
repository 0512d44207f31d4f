//! Tracks which bytes of a request have been placed.

/// A set of disjoint ranges in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Cover {
    ranges: Vec<(u32, u32)>,
    total: u64,
}

impl Cover {
    /// Adds `len` bytes at `at`. Returns false if any of them was in the set.
    #[must_use]
    pub fn add(&mut self, at: u32, len: u32) -> bool {
        let end = at + len;
        let k = self.ranges.partition_point(|r| r.1 <= at);
        if self.ranges.get(k).is_some_and(|r| r.0 < end) && len > 0 {
            return false;
        }
        self.total += u64::from(len);
        let joins_left = k > 0 && self.ranges[k - 1].1 == at;
        let joins_right = self.ranges.get(k).is_some_and(|r| r.0 == end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[k - 1].1 = self.ranges[k].1;
                self.ranges.remove(k);
            }
            (true, false) => self.ranges[k - 1].1 = end,
            (false, true) => self.ranges[k].0 = at,
            (false, false) if len > 0 => self.ranges.insert(k, (at, end)),
            (false, false) => {}
        }
        true
    }

    /// Bytes in the set.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::Rng;

    #[test]
    fn agrees_with_a_plain_array() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut c, mut model) = (Cover::default(), [false; 64]);
            for _ in 0..60 {
                let at = rng.below(60) as usize;
                let len = rng.below(5) as usize;
                let free = model[at..(at + len).min(64)].iter().all(|b| !b);
                assert_eq!(c.add(at as u32, len as u32), free, "seed {seed}: {at}+{len} {c:?}");
                if free {
                    model[at..(at + len).min(64)].fill(true);
                }
                if !free {
                    continue;
                }
                let sorted = c.ranges.windows(2).all(|w| w[0].1 < w[1].0);
                assert!(sorted, "seed {seed}: {c:?}");
            }
            assert_eq!(c.total(), model.iter().filter(|b| **b).count() as u64);
        }
    }
}
