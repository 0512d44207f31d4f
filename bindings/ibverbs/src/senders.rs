//! Identifies senders in completions by the address handle of the receiving queue pair's own
//! domain. The device knows handles of all domains; a domain without one gets the sender's GID.

use crate::{events::Queues, per_qp::PerQp};
use srd::{AhId, Qpn, WorkCompletion};
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers of address handles have 16 bits.
const HANDLES: usize = 1 << 16;

/// For each queue pair and address handle of one open device, the family of its domain.
pub(crate) struct Senders {
    /// Completions of destroyed queue pairs are dropped.
    queues: PerQp<AtomicU32>,
    /// By number of the handle; 0 = none.
    handles: Box<[AtomicU32]>,
}

impl Default for Senders {
    fn default() -> Self {
        Self {
            queues: PerQp::default(),
            handles: (0..HANDLES).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Senders {
    /// Records the domain family of a new queue pair.
    pub(crate) fn qp_add(&self, qpn: Qpn, family: u32) {
        self.queues.of(qpn).store(family, Ordering::Relaxed);
    }

    /// Records the domain family of an address handle.
    pub(crate) fn ah_set(&self, ah: AhId, family: u32) {
        self.handles[usize::from(ah.0)].store(family, Ordering::Relaxed);
    }

    /// The sender's address handle in the domain of the receiving queue pair, by number.
    #[inline]
    pub(crate) fn ah_of(&self, queues: &Queues, c: &WorkCompletion) -> AhId {
        if c.src_ah == AhId::UNKNOWN {
            return AhId::UNKNOWN;
        }
        let family = self.queues.of(c.qpn).load(Ordering::Relaxed);
        if self.handles[usize::from(c.src_ah.0)].load(Ordering::Relaxed) == family {
            return c.src_ah;
        }
        elsewhere(queues, c)
    }
}

/// The handle belongs to another domain; this one may have a handle with another number.
#[cold]
fn elsewhere(queues: &Queues, c: &WorkCompletion) -> AhId {
    c.src_ip.and_then(|ip| queues.handle_of(c.qpn, ip)).unwrap_or(AhId::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_another_family_does_not_name_the_sender() {
        let senders = Senders::default();
        senders.ah_set(AhId(7), 3);
        senders.qp_add(Qpn(0xfe01), 3);
        senders.qp_add(Qpn(0xfe02), 4);
        let of = |qpn, ah| {
            let c = WorkCompletion { qpn: Qpn(qpn), src_ah: ah, ..WorkCompletion::default() };
            senders.ah_of(&Queues::default(), &c)
        };
        assert_eq!(of(0xfe01, AhId(7)), AhId(7));
        assert_eq!(of(0xfe02, AhId(7)), AhId::UNKNOWN);
        assert_eq!(of(0xfe01, AhId::UNKNOWN), AhId::UNKNOWN);
        senders.ah_set(AhId(7), 0);
        assert_eq!(of(0xfe01, AhId(7)), AhId::UNKNOWN);
    }
}
