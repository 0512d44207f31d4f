//! From the rings to the engine: work requests in, freed completion slots in.

use crate::{
    completion::{CompletionOp, WorkCompletion},
    nic::{CqSide, Engine, Nic, QpSide, RecvSlot, Tables, WrSlot},
    queue::{CqCore, CqEntry, QpCore},
    regions::Regions,
    shard::Shard,
};
use rtrb::Consumer;
use srd_core::{Opcode, PostRefusal, Qpn, Status, Time};
use std::sync::atomic::Ordering;

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
    #[inline(always)]
    pub(crate) fn take_posts(&mut self, shared: &Shard, now: Time) -> usize {
        let held = shared.held.load(Ordering::Relaxed);
        let some = held || shared.posted.to_drain() || shared.polled.to_drain();
        if some { self.take_some_posts(shared, now) } else { 0 }
    }

    #[inline(never)]
    fn take_some_posts(&mut self, shared: &Shard, now: Time) -> usize {
        if self.cork.taken(now) {
            shared.corked.store(false, Ordering::Relaxed);
        }
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
    pub(crate) fn take_posts_of(&mut self, shared: &Shard, now: Time, index: usize) -> usize {
        let Self { engine, tables: Tables { wrs, qps, cqs, regions, .. }, .. } = self;
        let Some(qp) = qps[index].as_deref_mut() else { return 0 };
        qp.held = false;
        let taken =
            qp.take_recvs(engine, regions, cqs) + qp.take_sends(engine, regions, cqs, wrs, now);
        if qp.held {
            shared.held.store(true, Ordering::SeqCst);
        }
        taken
    }
}

impl QpSide {
    /// Takes receives until there is none or one must wait; returns their number.
    fn take_recvs(
        &mut self,
        engine: &mut Engine,
        regions: &Regions,
        cqs: &mut [Option<CqSide>],
    ) -> usize {
        let Self { core, recvs, recv_slots, held, .. } = self;
        // Those that are posted from now on wait for the next turn.
        let (posted, mut taken) = (recvs.slots(), 0);
        while taken < posted
            && let Ok(entry) = recvs.peek()
        {
            match engine.post_recv(core.qpn, &entry.wr).map_err(Refusal::from) {
                Ok(handle) => {
                    let index = handle.index as usize;
                    if index >= recv_slots.len() {
                        recv_slots.resize_with(index + 1, RecvSlot::default);
                    }
                    let lost_memory = entry.faulty || !regions.hold(&entry.pieces);
                    let (wr_id, pieces) = (entry.wr.wr_id, entry.pieces);
                    recv_slots[index] = RecvSlot { wr_id, pieces, live: true, lost_memory };
                    took(recvs);
                }
                Err(Refusal::Held) => {
                    *held = true;
                    break;
                }
                Err(refusal) => {
                    let wr_id = entry.wr.wr_id;
                    took(recvs);
                    // After its place in the ring is free, and before its completion can be seen.
                    core.rq_slots.give(1);
                    refuse(cqs, refusal, core, &core.recv_cq, wr_id, CompletionOp::Recv);
                }
            }
            taken += 1;
        }
        taken
    }

    /// Takes sends until there is none or one must wait; returns their number.
    fn take_sends(
        &mut self,
        engine: &mut Engine,
        regions: &Regions,
        cqs: &mut [Option<CqSide>],
        wrs: &mut Vec<WrSlot>,
        now: Time,
    ) -> usize {
        let Self { core, sends, held, .. } = self;
        let (posted, mut taken) = (sends.slots(), 0);
        while taken < posted
            && let Ok(entry) = sends.peek()
        {
            // Deregistered between post and now: the same result as if deregistered a little later.
            let result = match &entry.data {
                Ok(data) if regions.hold(data.pieces()) => engine
                    .post_send(now, core.qpn, &entry.wr)
                    .map(|handle| (handle, data))
                    .map_err(Refusal::from),
                Ok(_) => Err(Refusal::Ended(Status::LocalInvalidLkey)),
                Err(status) => Err(Refusal::Ended(*status)),
            };
            match result {
                Ok((handle, data)) => {
                    WrSlot::insert(wrs, handle, core.qpn, &entry.wr, data);
                    took(sends);
                }
                Err(Refusal::Held) => {
                    *held = true;
                    break;
                }
                Err(refusal) => {
                    let (wr_id, op) = (entry.wr.wr_id, completion_op(entry.wr.op));
                    took(sends);
                    // As for receives.
                    core.sq_slots.give(1);
                    refuse(cqs, refusal, core, &core.send_cq, wr_id, op);
                }
            }
            taken += 1;
        }
        taken
    }
}

/// Removes the oldest request of a ring, which is in the engine's tables now or has ended. Until
/// then it stays in the ring, so that each is in one place if the engine panics.
#[inline]
fn took<T: Copy>(ring: &mut Consumer<T>) {
    let there = ring.pop().is_ok();
    debug_assert!(there, "it was read");
}

/// Ends a request that the engine did not take.
#[cold]
fn refuse(
    cqs: &mut [Option<CqSide>],
    refusal: Refusal,
    qp: &QpCore,
    cq: &CqCore,
    wr_id: u64,
    op: CompletionOp,
) {
    let Some(Some(side)) = cqs.get_mut(usize::from(cq.id.0)) else { return };
    match refusal {
        Refusal::Ended(status) => {
            qp.counters.count(op, status);
            side.push(ended(wr_id, status, op, qp.qpn));
        }
        Refusal::Held | Refusal::Dropped => side.core.slots.give(1),
    }
}
