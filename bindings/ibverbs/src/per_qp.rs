//! A table by queue pair number, with room for the slots that a device uses.

use srd::Qpn;
use std::sync::OnceLock;

/// Engine slots of a host, and queue pairs of each: the two bytes of a number.
const HALF: usize = 1 << 8;

/// One `T` for each queue pair number. Entries of destroyed queue pairs remain.
pub(crate) struct PerQp<T>(Box<[OnceLock<Box<[T]>>]>);

impl<T: Default> Default for PerQp<T> {
    fn default() -> Self {
        Self((0..HALF).map(|_| OnceLock::new()).collect())
    }
}

impl<T: Default> PerQp<T> {
    /// The entry of a queue pair. The first one of an engine slot takes room for all of the slot.
    #[inline]
    pub(crate) fn of(&self, qpn: Qpn) -> &T {
        let slot = self.0[usize::from(qpn.slot())]
            .get_or_init(|| (0..HALF).map(|_| T::default()).collect());
        &slot[usize::from(qpn.index())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn queue_pairs_of_two_slots_with_one_index_differ() {
        let table = PerQp::<AtomicU32>::default();
        for n in [0x0000, 0x0101, 0x0201, 0xFFFF] {
            table.of(Qpn(n)).store(u32::from(n) + 1, Ordering::Relaxed);
        }
        for n in [0x0000, 0x0101, 0x0201, 0xFFFF] {
            assert_eq!(table.of(Qpn(n)).load(Ordering::Relaxed), u32::from(n) + 1);
        }
        assert_eq!(table.of(Qpn(0x0100)).load(Ordering::Relaxed), 0);
    }
}
