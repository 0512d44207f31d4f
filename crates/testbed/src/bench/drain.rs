//! A receiving host that is slower than its link: when it may read from its sockets.

/// Most of a pause, in ns, that a receiver makes up for after it got no processor or found nothing
/// to read. Shorter than the time to drain a full socket, so that the rate holds over each part of
/// a run.
const CATCH_UP_NS: u64 = 10_000_000;

/// A token bucket for bytes read: a receiver that has read more than its rate allows must pause.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    bits_per_sec: u64,
    free_at_ns: u64,
}

impl Drain {
    /// A host that reads `bits_per_sec`, at least 1.
    pub fn new(bits_per_sec: u64) -> Self {
        Self { bits_per_sec: bits_per_sec.max(1), free_at_ns: 0 }
    }

    /// Counts `bytes` that the host has read.
    pub fn take(&mut self, now_ns: u64, bytes: usize) {
        let from = self.free_at_ns.max(now_ns.saturating_sub(CATCH_UP_NS));
        let time = u128::from(bytes as u64) * 8_000_000_000 / u128::from(self.bits_per_sec);
        self.free_at_ns = from + u64::try_from(time).unwrap_or(u64::MAX / 2);
    }

    /// Time at which the host may read again, in ns; not after now if it may read already.
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
        // At 1 byte per microsecond; the first burst also uses the pause before it, up to the
        // limit.
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
