//! From the rings to the engine: work requests in, freed completion slots in.

use crate::{
    completion::{CompletionOp, WorkCompletion},
    device::Shared,
    nic::{CqSide, Nic, QpSide, RecvSlot},
    queue::{CqCore, CqEntry, QpCore, copy_of},
};
use srd_core::{Opcode, PostRefusal, Qpn, Status, Time};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::Ordering,
};

/// How a refusal by the engine affects a request that the post accepted.
enum Refusal {
    /// No room at the moment: it stays the oldest in its ring.
    Held,
    /// The request ends at once, without the engine.
    Ended(Status),
    /// The queue pair is gone: no completion is owed.
    Dropped,
}

impl From<PostRefusal> for Refusal {
    fn from(e: PostRefusal) -> Self {
        match e {
            // The post took slots, but unsolicited completions take slots in the engine that no
            // post knows of, and only the engine knows its contexts: an idle context must be
            // evicted before one to a new peer fits.
            PostRefusal::QueueFull | PostRefusal::CqFull | PostRefusal::NoRoom => Self::Held,
            PostRefusal::BadState => Self::Ended(Status::Flushed),
            PostRefusal::BadQp => Self::Dropped,
            PostRefusal::BadAh => Self::Ended(Status::LocalInvalidAh),
            PostRefusal::BadLength => Self::Ended(Status::LocalBadLength),
            PostRefusal::BadOpcode => Self::Ended(Status::LocalUnsupportedOp),
            _ => Self::Ended(Status::LocalQpInternalError),
        }
    }
}

/// The operation's name in completions.
pub(crate) const fn completion_op(op: Opcode) -> CompletionOp {
    match op {
        Opcode::Send | Opcode::SendImm => CompletionOp::Send,
        Opcode::Write | Opcode::WriteImm => CompletionOp::Write,
        Opcode::Read => CompletionOp::Read,
    }
}

/// Runs the body. Returns a panic, so that the caller can restore its state and then resume it.
fn caught(body: impl FnOnce()) -> Option<Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(body)).err()
}

/// A completion that the engine does not know of.
pub(crate) fn ended(wr_id: u64, status: Status, op: CompletionOp, qpn: Qpn) -> CqEntry {
    let wc = WorkCompletion { wr_id, status, op, qpn, ..WorkCompletion::default() };
    CqEntry { wc, engine_slot: false }
}

impl CqSide {
    /// Passes a completion to the user's ring.
    #[inline]
    pub(crate) fn push(&mut self, entry: CqEntry) {
        // The ring holds twice the queue's depth: the engine never reserves more than the depth,
        // and posts that end without the engine hold a slot of their own.
        let pushed = self.ring.push(entry).is_ok();
        debug_assert!(pushed, "completion ring overrun");
        if self.among_others {
            self.core.pushed.fetch_add(1, Ordering::Release);
        } else {
            // Nobody else writes it, and this is quicker.
            let pushed = self.core.pushed.load(Ordering::Relaxed);
            self.core.pushed.store(pushed.wrapping_add(1), Ordering::Release);
        }
        self.fresh = true;
    }
}

impl Nic {
    /// Takes freed completion slots, then every posted request, in order per queue. Returns the
    /// number of requests.
    pub(crate) fn take_posts(&mut self, shared: &Shared, now: Time) -> usize {
        let Self { engine, tables, .. } = self;
        shared.polled.drain(tables.cqs.len(), |index| {
            if let Some(Some(cq)) = tables.cqs.get_mut(index) {
                let released = cq.freed.load(Ordering::Acquire);
                let n = released.wrapping_sub(std::mem::replace(&mut cq.released, released));
                engine.cq_release(cq.core.id, n);
            }
        });
        let mut taken = 0;
        if shared.held.load(Ordering::Relaxed) && shared.held.swap(false, Ordering::SeqCst) {
            for index in 0..self.tables.qps.len() {
                if self.tables.qps[index].as_ref().is_some_and(|q| q.held) {
                    taken += self.take_posts_of(shared, now, index);
                }
            }
        }
        let queues = self.tables.qps.len();
        shared.posted.drain(queues, |index| {
            // Most numbers that share a bit of the set are those of no queue pair.
            if self.tables.qps[index].is_some() {
                taken += self.take_posts_of(shared, now, index);
            }
        });
        taken
    }

    /// Takes every posted request of one queue pair; receives first, so that answers to the sends
    /// find a posted receive.
    pub(crate) fn take_posts_of(&mut self, shared: &Shared, now: Time, index: usize) -> usize {
        let Some(mut qp) = self.tables.qps[index].take() else { return 0 };
        qp.held = false;
        // The queue pair is restored even if the engine panics, so that its requests end.
        let mut taken = 0;
        let panic = caught(|| taken = self.take_recvs(&mut qp) + self.take_sends(now, &mut qp));
        if qp.held {
            shared.held.store(true, Ordering::SeqCst);
        }
        self.tables.qps[index] = Some(qp);
        panic.map_or(taken, |panic| resume_unwind(panic))
    }

    /// Takes receives until there is none or one must wait; returns their number.
    fn take_recvs(&mut self, qp: &mut QpSide) -> usize {
        let (posted, mut taken) = (qp.recvs.slots(), 0);
        loop {
            let (more, refused) = self.take_recvs_to_refusal(qp, posted - taken);
            taken += more;
            let Some((refusal, wr_id)) = refused else { return taken };
            // After its place in the ring is free, and before its completion can be seen.
            qp.core.rq_slots.give(1);
            self.refuse(refusal, &qp.core, &qp.core.recv_cq, wr_id, CompletionOp::Recv);
        }
    }

    /// Takes at most `n` receives, up to one that the engine refuses.
    fn take_recvs_to_refusal(
        &mut self,
        qp: &mut QpSide,
        n: usize,
    ) -> (usize, Option<(Refusal, u64)>) {
        let QpSide { core, recvs, recv_slots, held, .. } = qp;
        let Ok(chunk) = recvs.read_chunk(n) else { return (0, None) };
        let (older, newer) = chunk.as_slices();
        let (mut taken, mut refused) = (0, None);
        let panic = caught(|| {
            for entry in older.iter().chain(newer) {
                match self.engine.post_recv(core.qpn, &entry.wr).map_err(Refusal::from) {
                    Ok(handle) => {
                        let index = handle.index as usize;
                        if index >= recv_slots.len() {
                            recv_slots.resize_with(index + 1, RecvSlot::default);
                        }
                        let slot = &mut recv_slots[index];
                        (slot.live, slot.wr_id) = (true, entry.wr.wr_id);
                        slot.lost_memory = entry.faulty || !self.tables.holds(&entry.pieces);
                        slot.pieces = copy_of(&entry.pieces);
                    }
                    Err(Refusal::Held) => {
                        *held = true;
                        break;
                    }
                    Err(refusal) => refused = Some((refusal, entry.wr.wr_id)),
                }
                taken += 1;
                if refused.is_some() {
                    break;
                }
            }
        });
        // A request that the engine holds must not stay in the ring, even after a panic.
        chunk.commit(taken);
        panic.map_or((taken, refused), |panic| resume_unwind(panic))
    }

    /// Takes sends until there is none or one must wait; returns their number.
    fn take_sends(&mut self, now: Time, qp: &mut QpSide) -> usize {
        let (posted, mut taken) = (qp.sends.slots(), 0);
        loop {
            let (more, refused) = self.take_sends_to_refusal(now, qp, posted - taken);
            taken += more;
            let Some((refusal, wr_id, op)) = refused else { return taken };
            // As for receives.
            qp.core.sq_slots.give(1);
            self.refuse(refusal, &qp.core, &qp.core.send_cq, wr_id, op);
        }
    }

    /// Takes at most `n` sends, up to one that the engine refuses.
    fn take_sends_to_refusal(
        &mut self,
        now: Time,
        qp: &mut QpSide,
        n: usize,
    ) -> (usize, Option<(Refusal, u64, CompletionOp)>) {
        let QpSide { core, sends, held, .. } = qp;
        let Ok(chunk) = sends.read_chunk(n) else { return (0, None) };
        let (older, newer) = chunk.as_slices();
        let (mut taken, mut refused) = (0, None);
        let panic = caught(|| {
            for entry in older.iter().chain(newer) {
                // Deregistered between post and now: the same result as if deregistered a little
                // later.
                let result = if let Some(status) = entry.fault {
                    Err(Refusal::Ended(status))
                } else if self.tables.holds(entry.data.pieces()) {
                    self.engine.post_send(now, core.qpn, &entry.wr).map_err(Refusal::from)
                } else {
                    Err(Refusal::Ended(Status::LocalInvalidLkey))
                };
                match result {
                    Ok(handle) => self.tables.wr_insert(handle, core.qpn, entry),
                    Err(Refusal::Held) => {
                        *held = true;
                        break;
                    }
                    Err(refusal) => {
                        refused = Some((refusal, entry.wr.wr_id, completion_op(entry.wr.op)));
                    }
                }
                taken += 1;
                if refused.is_some() {
                    break;
                }
            }
        });
        // A request that the engine holds must not stay in the ring, even after a panic.
        chunk.commit(taken);
        panic.map_or((taken, refused), |panic| resume_unwind(panic))
    }

    /// Ends a request that the engine did not take.
    fn refuse(&mut self, refusal: Refusal, qp: &QpCore, cq: &CqCore, wr_id: u64, op: CompletionOp) {
        let Some(Some(side)) = self.tables.cqs.get_mut(usize::from(cq.id.0)) else { return };
        match refusal {
            Refusal::Ended(status) => {
                qp.counters.count(op, status);
                side.push(ended(wr_id, status, op, qp.qpn));
            }
            Refusal::Held | Refusal::Dropped => side.core.slots.give(1),
        }
    }
}
