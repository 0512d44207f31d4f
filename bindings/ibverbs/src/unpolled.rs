//! Requests whose completions were not polled. As with EFA, a place in a queue becomes free when
//! the completion is polled, not when the device has executed the request; programs rely on that
//! count.

use crate::per_qp::PerQp;
use srd::{CompletionOp, Qpn, WorkCompletion};
use std::sync::atomic::{AtomicU32, Ordering};

/// The queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send = 0,
    Recv = 1,
}

/// Completions of one open device polled so far, by queue pair: of sends, and of receives.
#[derive(Default)]
pub(crate) struct Polled(PerQp<[AtomicU32; 2]>);

impl Polled {
    /// Counts a completion that the program polled.
    #[inline]
    pub(crate) fn add(&self, c: &WorkCompletion) {
        let side = match c.op {
            CompletionOp::Send | CompletionOp::Read | CompletionOp::Write => Side::Send,
            CompletionOp::Recv | CompletionOp::RecvRdmaImm => Side::Recv,
            // Consumed no request.
            CompletionOp::RecvUnsolicited => return,
        };
        self.of(c.qpn)[side as usize].fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn of(&self, qpn: Qpn) -> &[AtomicU32; 2] {
        self.0.of(qpn)
    }
}

/// Counts the unpolled requests of one queue pair.
pub(crate) struct Unpolled {
    qpn: Qpn,
    /// Requests posted, starting from the value of [`Polled`] at creation.
    posted: [AtomicU32; 2],
}

impl Unpolled {
    /// For a new queue pair.
    pub(crate) fn new(qpn: Qpn, polled: &Polled) -> Self {
        let new = Self { qpn, posted: [const { AtomicU32::new(0) }; 2] };
        new.forget(polled);
        new
    }

    /// Counts posted requests.
    #[inline]
    pub(crate) fn add(&self, side: Side, n: u32) {
        self.posted[side as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Number of requests whose completions were not polled.
    #[inline]
    pub(crate) fn count(&self, polled: &Polled, side: Side) -> u32 {
        // Read in this order: a polled request was posted before.
        let polled = polled.of(self.qpn)[side as usize].load(Ordering::Acquire);
        let n = self.posted[side as usize].load(Ordering::Relaxed).wrapping_sub(polled);
        // A poll may be counted before its post: values above half of the range are negative.
        if n > u32::MAX / 2 { 0 } else { n }
    }

    /// No further completion will come: all requests count as polled.
    pub(crate) fn forget(&self, polled: &Polled) {
        for (posted, polled) in self.posted.iter().zip(polled.of(self.qpn)) {
            posted.store(polled.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_with_the_poll_of_their_side() {
        let qpn = Qpn(0xfd01);
        let of = |op| WorkCompletion { qpn, op, ..WorkCompletion::default() };
        let polled = Polled::default();
        let queue = Unpolled::new(qpn, &polled);
        queue.add(Side::Send, 3);
        queue.add(Side::Recv, 1);
        polled.add(&of(CompletionOp::Write));
        polled.add(&of(CompletionOp::RecvUnsolicited));
        assert_eq!((queue.count(&polled, Side::Send), queue.count(&polled, Side::Recv)), (2, 1));
        polled.add(&of(CompletionOp::RecvRdmaImm));
        assert_eq!(queue.count(&polled, Side::Recv), 0);
        queue.forget(&polled);
        assert_eq!(queue.count(&polled, Side::Send), 0);
        let next = Unpolled::new(qpn, &polled);
        next.add(Side::Send, 1);
        assert_eq!(next.count(&polled, Side::Send), 1);
        polled.add(&of(CompletionOp::Send));
        polled.add(&of(CompletionOp::Send));
        assert_eq!(next.count(&polled, Side::Send), 0, "a count below zero is none");
    }
}
