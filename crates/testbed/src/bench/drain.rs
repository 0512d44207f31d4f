//! A host that is slower than its link, and what it takes from its sockets when.

/// A receiver that got no processor for a while, or found nothing to read, makes up for so much of
/// it: short of what a socket holds, so that the rate holds over each part of a run.
const CATCH_UP_NS: u64 = 10_000_000;

/// Takes bytes at a rate (a token bucket): whoever is ahead of it stops reading.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    bits_per_sec: u64,
    free_at_ns: u64,
}

impl Drain {
    /// A host that takes so many bits per second, at least 1.
    pub fn new(bits_per_sec: u64) -> Self {
        Self { bits_per_sec: bits_per_sec.max(1), free_at_ns: 0 }
    }

    /// The host has read `bytes`.
    pub fn take(&mut self, now_ns: u64, bytes: usize) {
        let from = self.free_at_ns.max(now_ns.saturating_sub(CATCH_UP_NS));
        let time = u128::from(bytes as u64) * 8_000_000_000 / u128::from(self.bits_per_sec);
        self.free_at_ns = from + u64::try_from(time).unwrap_or(u64::MAX / 2);
    }

    /// When it reads again; a time in the past if it may read now.
    pub fn free_at_ns(&self) -> u64 {
        self.free_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_whatever_is_read_at_once() {
        let mut drain = Drain::new(8_000_000);
        let start = 1_000_000_000;
        // A byte per microsecond; the first burst finds what was missed before.
        drain.take(start, 2_000_000);
        assert_eq!(drain.free_at_ns(), start - CATCH_UP_NS + 2_000_000_000);
        for burst in [1, 100, 50_000, 7] {
            let free = drain.free_at_ns();
            drain.take(free, burst);
            assert_eq!(drain.free_at_ns(), free + burst as u64 * 1_000, "{burst}");
        }
    }

    #[test]
    fn a_long_pause_is_not_made_up_for() {
        let mut drain = Drain::new(8_000_000);
        drain.take(1_000_000_000, 1);
        let late = 5_000_000_000;
        drain.take(late, 1_000);
        assert_eq!(drain.free_at_ns(), late - CATCH_UP_NS + 1_000_000);
    }
}
