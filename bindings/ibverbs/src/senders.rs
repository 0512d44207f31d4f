//! How completions name senders: by the address handle that the receiving queue pair's own domain
//! has for them. The device knows handles of all domains; a domain without one is told the GID.

use crate::events;
use srd::{AhId, Qpn, WorkCompletion};
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers of queue pairs and of address handles have 16 bits.
const NUMBERS: usize = 1 << 16;

/// The family of domains of each queue pair of this process, by number. Stale entries are of queue
/// pairs that are gone, whose completions are dropped.
static QPS: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];

/// A queue pair was made in a domain of this family.
pub(crate) fn qp_add(number: u16, family: u32) {
    QPS[usize::from(number)].store(family, Ordering::Relaxed);
}

/// The families that address handles of one device are of, by number; 0: none.
pub(crate) struct Senders(Box<[AtomicU32]>);

impl Default for Senders {
    fn default() -> Self {
        Self((0..NUMBERS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Senders {
    /// A handle is of this family from now on.
    pub(crate) fn ah_set(&self, ah: AhId, family: u32) {
        self.0[usize::from(ah.0)].store(family, Ordering::Relaxed);
    }

    /// The number of the sender's address handle in the domain of the queue pair that received.
    #[inline]
    pub(crate) fn ah_of(&self, c: &WorkCompletion) -> AhId {
        if c.src_ah == AhId::UNKNOWN {
            return AhId::UNKNOWN;
        }
        let family = QPS[usize::from(c.qpn.0)].load(Ordering::Relaxed);
        if self.0[usize::from(c.src_ah.0)].load(Ordering::Relaxed) == family {
            return c.src_ah;
        }
        elsewhere(c.qpn, c)
    }
}

/// Another domain knows the sender; this one may know it under another number.
#[cold]
fn elsewhere(qpn: Qpn, c: &WorkCompletion) -> AhId {
    c.src_ip.and_then(|ip| events::handle_of(qpn, ip)).unwrap_or(AhId::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_another_family_does_not_name_the_sender() {
        let senders = Senders::default();
        senders.ah_set(AhId(7), 3);
        qp_add(0xfe01, 3);
        qp_add(0xfe02, 4);
        let of = |qpn, ah| {
            let c = WorkCompletion { qpn: Qpn(qpn), src_ah: ah, ..WorkCompletion::default() };
            senders.ah_of(&c)
        };
        assert_eq!(of(0xfe01, AhId(7)), AhId(7));
        assert_eq!(of(0xfe02, AhId(7)), AhId::UNKNOWN);
        assert_eq!(of(0xfe01, AhId::UNKNOWN), AhId::UNKNOWN);
        senders.ah_set(AhId(7), 0);
        assert_eq!(of(0xfe01, AhId(7)), AhId::UNKNOWN);
    }
}
