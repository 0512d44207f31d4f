//! A poll that takes the engine's turn itself gets the turn's completions without their ring.
//!
//! Order is that of the ring: what is in the ring is older, so nothing goes past it.

use crate::{
    completion::WorkCompletion,
    nic::{Nic, Turn},
    queue::{CqCore, CqEntry, CqReader},
    shard::Shard,
};
use srd_core::CqId;
use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::MutexGuard,
};

/// The buffer of a thread that polls a completion queue of a device with one shard.
#[derive(Debug)]
pub(crate) struct Taker<'a> {
    cq: &'a CqCore,
    out: &'a mut [WorkCompletion],
    /// Completions in `out`.
    taken: usize,
}

impl<'a> Taker<'a> {
    /// An empty buffer.
    #[inline]
    pub(crate) fn new(cq: &'a CqCore, out: &'a mut [WorkCompletion]) -> Self {
        Self { cq, out, taken: 0 }
    }

    /// Completions that a turn has put into the buffer.
    #[inline]
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Locks the ring of the taker's queue if it is this one, and if nothing is in the ring.
    #[inline]
    pub(crate) fn lock_empty(&self, cq: CqId) -> Option<MutexGuard<'a, CqReader>> {
        if self.cq.id != cq {
            return None;
        }
        let reader = self.cq.reader.try_lock().ok()?;
        // Only a turn adds to the ring, and this thread takes the turn.
        (!self.cq.may_have()).then_some(reader)
    }

    /// Where the next completion goes, unless the buffer is full. It counts from
    /// [`Taker::took`] on.
    #[inline]
    pub(crate) fn place(&mut self) -> Option<&mut WorkCompletion> {
        self.out.get_mut(self.taken)
    }

    /// The next completion is in its place.
    #[inline]
    pub(crate) fn took(&mut self) {
        self.taken += 1;
    }
}

impl Nic {
    /// Takes a turn for a poll. If the turn panics, the poll returns nothing, and what it had taken
    /// waits in the ring for the next one.
    #[inline]
    pub(crate) fn turn_for(&mut self, shared: &Shard, taker: Option<&mut Taker<'_>>) -> Turn {
        let Some(taker) = taker else { return self.turn(shared) };
        match catch_unwind(AssertUnwindSafe(|| self.turn_to(shared, Some(taker)))) {
            Ok(turn) => turn,
            Err(panic) => {
                self.take_back(taker);
                resume_unwind(panic)
            }
        }
    }

    /// Puts what was handed over into the ring, which was empty then.
    #[cold]
    fn take_back(&mut self, taker: &mut Taker<'_>) {
        let index = usize::from(taker.cq.id.0);
        let Some(Some(side)) = self.tables.cqs.get_mut(index) else { return };
        for &wc in &taker.out[..mem::take(&mut taker.taken)] {
            side.core.slots.take_anyway();
            side.push(CqEntry { wc, engine_slot: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceConfig, Progress, QKey, QpInit, RecvWr};

    /// After a panic of the turn, what it had handed over is in the ring, once and in order, and a
    /// queue whose buffer is full or whose ring is not empty uses the ring.
    #[test]
    fn what_is_taken_back_is_polled_once_and_in_order() {
        let mut config = DeviceConfig::loopback();
        config.progress = Progress::Caller;
        let device = Device::open(config).unwrap();
        let (pd, cq) = (device.pd_create().unwrap(), device.cq_create(8).unwrap());
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(QKey(1)).unwrap();
        let (shared, core) = (device.shared(), cq.core());
        let mut out = [WorkCompletion::default(); 8];
        for wr_id in 0..5 {
            qp.post_recv(&RecvWr::recv(wr_id)).unwrap();
        }
        let mut places = [WorkCompletion::default(); 3];
        {
            let mut nic = shared.nic().unwrap();
            nic.take_posts(shared, Nic::now());
            let end = srd_core::QpModify {
                state: Some(srd_core::QpState::Err),
                ..srd_core::QpModify::default()
            };
            nic.engine.qp_modify(Nic::now(), qp.qpn(), end).unwrap();
            // Three receives that were flushed fit, and two go to the ring.
            let mut taker = Taker::new(core, &mut places);
            assert_eq!(nic.deliver_to(shared, Some(&mut taker)), 5);
            assert_eq!(taker.taken(), 3);
            assert!(core.may_have() && taker.lock_empty(core.id).is_none());
            assert_eq!(cq.poll_waiting(&mut out).unwrap(), 2);
            assert_eq!(out[..2].iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [3, 4]);
            assert!(taker.lock_empty(core.id).is_some());
            assert!(taker.lock_empty(CqId(core.id.0 + 1)).is_none(), "another queue");
            nic.take_back(&mut taker);
            nic.take_back(&mut taker);
        }
        assert_eq!(cq.poll_waiting(&mut out).unwrap(), 3);
        assert_eq!(out[..3].iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [0, 1, 2]);
        // All eight slots are free again.
        assert!((0..8).all(|_| core.slots.take()) && !core.slots.take());
        core.slots.give(8);
    }
}
