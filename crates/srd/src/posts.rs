//! From the rings to the engine: work requests in, freed completion slots in.

use crate::{
    completion::{CompletionOp, WorkCompletion},
    device::Shared,
    nic::{CqSide, Nic, QpSide, RecvSlot},
    queue::CqEntry,
};
use arrayvec::ArrayVec;
use srd_core::{CqId, Opcode, PostError, Qpn, Status, Time};
use std::sync::atomic::Ordering;

/// What a refusal by the engine means for a request that the post accepted.
enum Refusal {
    /// No room at the moment: it stays the oldest of its ring.
    Held,
    /// It ends at once, without the engine.
    Ended(Status),
    /// Its queue pair is gone: nobody waits for it.
    Dropped,
}

impl From<PostError> for Refusal {
    fn from(e: PostError) -> Self {
        match e {
            // Slots were counted when it was posted, but unsolicited completions take slots of
            // the engine that no post asked for, and contexts are the engine's alone: an idle one
            // must go before one to a new peer fits in.
            PostError::QueueFull | PostError::CqFull | PostError::NoRoom => Self::Held,
            PostError::BadState => Self::Ended(Status::Flushed),
            PostError::BadQp => Self::Dropped,
            PostError::BadAh => Self::Ended(Status::LocalInvalidAh),
            PostError::BadLength => Self::Ended(Status::LocalBadLength),
            PostError::BadOpcode => Self::Ended(Status::LocalUnsupportedOp),
            _ => Self::Ended(Status::LocalQpInternalError),
        }
    }
}

/// What the completion of an operation is called.
pub(crate) const fn completion_op(op: Opcode) -> CompletionOp {
    match op {
        Opcode::Send | Opcode::SendImm => CompletionOp::Send,
        Opcode::Write | Opcode::WriteImm => CompletionOp::Write,
        Opcode::Read => CompletionOp::Read,
    }
}

/// A completion that the engine does not know of.
fn ended(wr_id: u64, status: Status, op: CompletionOp, qpn: Qpn) -> CqEntry {
    let wc = WorkCompletion { wr_id, status, op, qpn, ..WorkCompletion::default() };
    CqEntry { wc, engine_slot: false }
}

impl CqSide {
    /// Hands a completion to the user's side.
    #[inline]
    pub(crate) fn push(&mut self, entry: CqEntry) {
        // The ring holds twice the queue's depth: the engine never promises more than the depth,
        // and posts that end without the engine hold a slot of their own.
        let pushed = self.ring.push(entry).is_ok();
        debug_assert!(pushed, "completion ring overrun");
        self.fresh = true;
    }
}

impl Nic {
    /// Takes freed completion slots, then every posted request, in order per queue. Returns how
    /// many requests were taken.
    pub(crate) fn take_posts(&mut self, shared: &Shared, now: Time) -> usize {
        shared.polled.drain(|index| {
            if let Some(Some(cq)) = self.tables.cqs.get(index) {
                let n = cq.core.released.swap(0, Ordering::AcqRel);
                self.engine.cq_release(cq.core.id, n);
            }
        });
        let mut taken = 0;
        if shared.held.swap(false, Ordering::SeqCst) {
            for index in 0..self.tables.qps.len() {
                if self.tables.qps[index].as_ref().is_some_and(|q| q.held) {
                    taken += self.take_posts_of(shared, now, index);
                }
            }
        }
        shared.posted.drain(|index| taken += self.take_posts_of(shared, now, index));
        taken
    }

    /// Takes every posted request of one queue pair; receives first, so that what the sends make
    /// a peer answer finds them.
    pub(crate) fn take_posts_of(&mut self, shared: &Shared, now: Time, index: usize) -> usize {
        let Some(mut qp) = self.tables.qps[index].take() else { return 0 };
        qp.held = false;
        let mut taken = 0;
        while self.take_recv(&mut qp) {
            taken += 1;
        }
        while self.take_send(shared, now, &mut qp) {
            taken += 1;
        }
        if qp.held {
            shared.held.store(true, Ordering::SeqCst);
        }
        self.tables.qps[index] = Some(qp);
        taken
    }

    /// Takes one receive; false when there is none or it must wait.
    fn take_recv(&mut self, qp: &mut QpSide) -> bool {
        let Ok(entry) = qp.recvs.peek() else { return false };
        let result = self.engine.post_recv(qp.core.qpn, &entry.wr).map_err(Refusal::from);
        if matches!(result, Err(Refusal::Held)) {
            qp.held = true;
            return false;
        }
        let Ok(entry) = qp.recvs.pop() else { return false };
        match result {
            Ok(handle) => {
                let index = handle.index as usize;
                if index >= qp.recv_slots.len() {
                    qp.recv_slots.resize_with(index + 1, RecvSlot::default);
                }
                let lost_memory = !self.tables.holds(&entry.pieces);
                let pieces = if lost_memory { ArrayVec::new() } else { entry.pieces };
                qp.recv_slots[index] = RecvSlot { pieces, live: true, lost_memory };
            }
            Err(refusal) => {
                let op = CompletionOp::Recv;
                self.refuse(refusal, qp.core.recv_cq.id, entry.wr.wr_id, op, qp.core.qpn);
                qp.core.rq_slots.give(1);
            }
        }
        true
    }

    /// Takes one send; false when there is none or it must wait.
    fn take_send(&mut self, shared: &Shared, now: Time, qp: &mut QpSide) -> bool {
        let Ok(entry) = qp.sends.peek() else { return false };
        // Deregistered between post and now: the same end as deregistered a little later.
        let result = if self.tables.holds(entry.data.pieces()) {
            self.engine.post_send(now, qp.core.qpn, &entry.wr).map_err(Refusal::from)
        } else {
            Err(Refusal::Ended(Status::LocalInvalidLkey))
        };
        if matches!(result, Err(Refusal::Held)) {
            qp.held = true;
            return false;
        }
        let Ok(entry) = qp.sends.pop() else { return false };
        match result {
            Ok(handle) => self.tables.wr_insert(handle, qp.core.qpn, entry.data),
            Err(refusal) => {
                let op = completion_op(entry.wr.op);
                self.refuse(refusal, qp.core.send_cq.id, entry.wr.wr_id, op, qp.core.qpn);
                qp.core.sq_slots.give(1);
                shared.wr_slots.give(1);
            }
        }
        true
    }

    /// Ends a request that the engine did not take.
    fn refuse(&mut self, refusal: Refusal, cq: CqId, wr_id: u64, op: CompletionOp, qpn: Qpn) {
        let Some(Some(side)) = self.tables.cqs.get_mut(usize::from(cq.0)) else { return };
        match refusal {
            Refusal::Ended(status) => side.push(ended(wr_id, status, op, qpn)),
            Refusal::Held | Refusal::Dropped => side.core.slots.give(1),
        }
    }
}
