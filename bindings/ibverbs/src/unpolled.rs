//! Requests whose completions the program has not polled. As with EFA, a place in a queue is free
//! when the completion was polled, not when the device is done: programs that count rely on that.

use srd::{CompletionOp, Qpn, WorkCompletion};
use std::sync::atomic::{AtomicU32, Ordering};

/// Queue pairs of one device: their numbers differ in the low byte, the index.
const QUEUES: usize = 1 << 8;

/// The queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send = 0,
    Recv = 1,
}

/// Completions of one open device that were polled so far, by the index of the queue pair: of
/// sends, and of receives.
pub(crate) struct Polled([[AtomicU32; 2]; QUEUES]);

impl Default for Polled {
    fn default() -> Self {
        Self([const { [AtomicU32::new(0), AtomicU32::new(0)] }; QUEUES])
    }
}

impl Polled {
    /// The program has polled a completion.
    #[inline]
    pub(crate) fn add(&self, c: &WorkCompletion) {
        let side = match c.op {
            CompletionOp::Send | CompletionOp::Read | CompletionOp::Write => Side::Send,
            CompletionOp::Recv | CompletionOp::RecvRdmaImm => Side::Recv,
            // Took no request.
            CompletionOp::RecvUnsolicited => return,
        };
        self.of(c.qpn)[side as usize].fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn of(&self, qpn: Qpn) -> &[AtomicU32; 2] {
        &self.0[usize::from(qpn.index())]
    }
}

/// Requests of one queue pair.
pub(crate) struct Unpolled {
    qpn: Qpn,
    /// Posted, in the count that [`Polled`] goes on with.
    posted: [AtomicU32; 2],
}

impl Unpolled {
    /// Of a new queue pair.
    pub(crate) fn new(qpn: Qpn, polled: &Polled) -> Self {
        let new = Self { qpn, posted: [const { AtomicU32::new(0) }; 2] };
        new.forget(polled);
        new
    }

    /// Requests were posted.
    #[inline]
    pub(crate) fn add(&self, side: Side, n: u32) {
        self.posted[side as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Requests without polled completions.
    #[inline]
    pub(crate) fn count(&self, polled: &Polled, side: Side) -> u32 {
        // In this order: what was polled had been posted before.
        let polled = polled.of(self.qpn)[side as usize].load(Ordering::Acquire);
        let n = self.posted[side as usize].load(Ordering::Relaxed).wrapping_sub(polled);
        // A poll may be counted before its post: half of all numbers are below zero.
        if n > u32::MAX / 2 { 0 } else { n }
    }

    /// No completion comes any more.
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
