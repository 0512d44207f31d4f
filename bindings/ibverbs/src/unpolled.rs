//! Requests whose completions the program has not polled. As with EFA, a place in a queue is free
//! when the completion was polled, not when the device is done: programs that count rely on that.

use srd::{CompletionOp, WorkCompletion};
use std::sync::atomic::{AtomicU32, Ordering};

/// Completions polled so far, by the number of the queue pair: of sends, and of receives.
static POLLED: [[AtomicU32; 2]; 1 << 16] =
    [const { [AtomicU32::new(0), AtomicU32::new(0)] }; 1 << 16];

/// The queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send = 0,
    Recv = 1,
}

/// The program has polled a completion.
#[inline]
pub(crate) fn polled(c: &WorkCompletion) {
    let side = match c.op {
        CompletionOp::Send | CompletionOp::Read | CompletionOp::Write => Side::Send,
        CompletionOp::Recv | CompletionOp::RecvRdmaImm => Side::Recv,
        // Took no request.
        CompletionOp::RecvUnsolicited => return,
    };
    POLLED[usize::from(c.qpn.0)][side as usize].fetch_add(1, Ordering::Release);
}

/// Requests of one queue pair.
pub(crate) struct Unpolled {
    qpn: u16,
    /// Posted, in the count that [`POLLED`] goes on with.
    posted: [AtomicU32; 2],
}

impl Unpolled {
    /// Of a new queue pair.
    pub(crate) fn new(qpn: u16) -> Self {
        let new = Self { qpn, posted: [const { AtomicU32::new(0) }; 2] };
        new.forget();
        new
    }

    /// Requests were posted.
    #[inline]
    pub(crate) fn add(&self, side: Side, n: u32) {
        self.posted[side as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Requests without polled completions.
    #[inline]
    pub(crate) fn count(&self, side: Side) -> u32 {
        // In this order: what was polled had been posted before.
        let polled = POLLED[usize::from(self.qpn)][side as usize].load(Ordering::Acquire);
        let n = self.posted[side as usize].load(Ordering::Relaxed).wrapping_sub(polled);
        // A poll may be counted before its post: half of all numbers are below zero.
        if n > u32::MAX / 2 { 0 } else { n }
    }

    /// No completion comes any more.
    pub(crate) fn forget(&self) {
        for (posted, polled) in self.posted.iter().zip(&POLLED[usize::from(self.qpn)]) {
            posted.store(polled.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd::Qpn;

    #[test]
    fn places_come_back_with_the_poll_of_their_side() {
        let of = |op| WorkCompletion { qpn: Qpn(0xfd01), op, ..WorkCompletion::default() };
        let queue = Unpolled::new(0xfd01);
        queue.add(Side::Send, 3);
        queue.add(Side::Recv, 1);
        polled(&of(CompletionOp::Write));
        polled(&of(CompletionOp::RecvUnsolicited));
        assert_eq!((queue.count(Side::Send), queue.count(Side::Recv)), (2, 1));
        polled(&of(CompletionOp::RecvRdmaImm));
        assert_eq!(queue.count(Side::Recv), 0);
        queue.forget();
        assert_eq!(queue.count(Side::Send), 0);
        let next = Unpolled::new(0xfd01);
        next.add(Side::Send, 1);
        assert_eq!(next.count(Side::Send), 1);
        polled(&of(CompletionOp::Send));
        polled(&of(CompletionOp::Send));
        assert_eq!(next.count(Side::Send), 0, "a count below zero is none");
    }
}
