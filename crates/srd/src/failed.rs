//! A device whose engine panicked. The engine must not be used again, but threads must not wait for
//! ever: all requests end with an error, without the engine, and the device is closed.

use crate::{
    completion::CompletionOp,
    events::AsyncEvent,
    nic::{Nic, Tables},
    posts::{completion_op, ended},
    queue::CqEntry,
    shard::Shard,
    tasks::Debts,
};
use srd_core::{CqId, QpState, Status};
use std::{
    ops::{Deref, DerefMut},
    ptr,
    sync::{
        MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Status of the requests of a failed device.
const STATUS: Status = Status::LocalQpInternalError;

/// Which thread holds a device's lock.
///
/// A signal handler that calls `exit` runs the destructors of libraries, which close devices, in
/// the middle of whatever its thread was doing. If that thread holds the lock, waiting for it would
/// never end.
#[derive(Debug, Default)]
pub(crate) struct Holder(AtomicUsize);

impl Holder {
    /// A number that no other thread of now has, and not 0.
    #[inline]
    pub(crate) fn me() -> usize {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| ptr::from_ref(here).addr())
    }

    /// Whether the calling thread is the one.
    pub(crate) fn is_me(&self) -> bool {
        // Only this thread stores its own number, so it sees the newest value if it is that.
        self.0.load(Ordering::Relaxed) == Self::me()
    }

    #[inline]
    pub(crate) fn set(&self, holder: usize) {
        self.0.store(holder, Ordering::Relaxed);
    }
}

/// The device's lock, held. A panic while it is held makes the device fail.
pub(crate) struct NicGuard<'a> {
    nic: MutexGuard<'a, Nic>,
    shared: &'a Shard,
    /// Whether the thread was already unwinding when it took the lock: that panic is not the
    /// device's.
    unwinding: bool,
    /// Dropped after the lock: tasks are woken without it.
    _debts: Debts,
}

impl<'a> NicGuard<'a> {
    #[inline]
    pub(crate) fn new(nic: MutexGuard<'a, Nic>, shared: &'a Shard) -> Self {
        shared.holder.set(Holder::me());
        Self { nic, shared, unwinding: thread::panicking(), _debts: Debts::new() }
    }
}

impl Deref for NicGuard<'_> {
    type Target = Nic;
    #[inline]
    fn deref(&self) -> &Nic {
        &self.nic
    }
}

impl DerefMut for NicGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }
}

impl Drop for NicGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if thread::panicking() && !self.unwinding {
            self.nic.fail(self.shared);
        }
        self.shared.holder.set(0);
    }
}

impl Nic {
    /// Ends all requests without the engine and closes the device. A second call has no effect.
    #[cold]
    pub(crate) fn fail(&mut self, shared: &Shard) {
        if shared.failed.load(Ordering::Relaxed) {
            return;
        }
        // Completions before the closed state: a thread that sees the device closed has seen all of
        // them.
        if shared.common.failing_begin() {
            shared.common.events.push(AsyncEvent::DeviceFatal);
        }
        self.tables.requests_end();
        shared.end();
        // Requests that were posted meanwhile end as well.
        self.tables.requests_end();
        shared.failed.store(true, Ordering::SeqCst);
        for side in self.tables.cqs.iter_mut().flatten() {
            side.fresh = false;
            side.notify();
        }
        shared.common.fail_others(shared.index);
    }
}

impl Tables {
    /// Ends every request: those in the engine, in no order, then those in the rings.
    fn requests_end(&mut self) {
        let mut ends: Vec<(CqId, CqEntry)> = Vec::new();
        for slot in self.wrs.iter_mut().filter(|s| s.live) {
            slot.live = false;
            let side = self.qps[usize::from(slot.qpn.index())].as_deref();
            if let Some(side) = side.filter(|q| q.core.qpn == slot.qpn) {
                let op = completion_op(slot.op);
                ends.push((side.core.send_cq.id, ended(slot.wr_id, STATUS, op, slot.qpn)));
                side.core.sq_slots.give(1);
                side.core.counters.count(op, STATUS);
            }
        }
        for side in self.qps.iter_mut().flatten() {
            let (core, qpn) = (&side.core, side.core.qpn);
            core.set_state(QpState::Err);
            let held = side.recv_slots.iter_mut().filter(|s| s.live);
            let recvs = held.map(|slot| {
                slot.live = false;
                slot.wr_id
            });
            let posted = std::iter::from_fn(|| side.recvs.pop().ok()).map(|e| e.wr.wr_id);
            for wr_id in recvs.chain(posted) {
                ends.push((core.recv_cq.id, ended(wr_id, STATUS, CompletionOp::Recv, qpn)));
                core.rq_slots.give(1);
                core.counters.count(CompletionOp::Recv, STATUS);
            }
            while let Ok(entry) = side.sends.pop() {
                let op = completion_op(entry.wr.op);
                ends.push((core.send_cq.id, ended(entry.wr.wr_id, STATUS, op, qpn)));
                core.sq_slots.give(1);
                core.counters.count(op, STATUS);
            }
        }
        for (cq, entry) in ends {
            if let Some(Some(side)) = self.cqs.get_mut(usize::from(cq.0)) {
                // A slot was reserved for each request.
                side.push(entry);
            }
        }
    }
}
