//! Queue pairs.

use crate::{
    CompletionQueue, Device, Error, ProtectionDomain, QKey,
    budget::QueueSlots,
    counter::{Attached, QpCounters},
    nic::{Nic, QpSide},
    queue::{
        INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, Poster, QpCore, RECV_SGES_MAX, SEND_SGES_MAX,
        state_to_u8,
    },
    shard::Shard,
    sync::lock,
};
use srd_core::{QpState, QpType, Qpn, WrHandle, limits};
use std::{
    fmt,
    sync::{Arc, Mutex, atomic::AtomicU8},
};

/// How to create a queue pair. Start from [`QpInit::srd`] or [`QpInit::ud`], then change fields.
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a> {
    /// Reliable (SRD) or unreliable (UD) datagrams.
    pub kind: QpType,
    /// Completions of sends, writes and reads go here.
    pub send_cq: &'a CompletionQueue,
    /// Completions of receives go here; may be the same queue as `send_cq`.
    pub recv_cq: &'a CompletionQueue,
    /// Depth of the send queue: most outstanding send requests.
    pub sq_depth: u32,
    /// Depth of the receive queue: most posted receives.
    pub rq_depth: u32,
    /// Scatter/gather entries per send request, 1 to 2.
    pub send_sges_max: u32,
    /// Scatter/gather entries per receive, 1 to 4.
    pub recv_sges_max: u32,
    /// Inline bytes per send request, up to 80.
    pub inline_bytes_max: u32,
    /// A peer's write with immediate consumes no receive (EFA: unsolicited write receive).
    pub unsolicited_write_recv: bool,
}

impl<'a> QpInit<'a> {
    /// An SRD queue pair with room for 256 sends and 256 receives.
    pub fn srd(send_cq: &'a CompletionQueue, recv_cq: &'a CompletionQueue) -> Self {
        Self {
            kind: QpType::Srd,
            send_cq,
            recv_cq,
            sq_depth: 256,
            rq_depth: 256,
            send_sges_max: SEND_SGES_MAX as u32,
            recv_sges_max: RECV_SGES_MAX as u32,
            inline_bytes_max: INLINE_BYTES_DEFAULT,
            unsolicited_write_recv: false,
        }
    }

    /// A UD queue pair with room for 256 sends and 256 receives.
    pub fn ud(send_cq: &'a CompletionQueue, recv_cq: &'a CompletionQueue) -> Self {
        Self { kind: QpType::Ud, ..Self::srd(send_cq, recv_cq) }
    }

    fn check(&self, device: &Device) -> Result<(), Error> {
        let attr = device.attr();
        let within = |n: u32, max: u32| (1..=max).contains(&n);
        if !self.send_cq.device().is_same(device) || !self.recv_cq.device().is_same(device) {
            return Err(Error::Invalid("a completion queue belongs to another device"));
        }
        if !within(self.sq_depth, attr.max_sq_wr) || !within(self.rq_depth, attr.max_rq_wr) {
            return Err(Error::Invalid("queue depths must be from 1 to max_sq_wr and max_rq_wr"));
        }
        if !within(self.send_sges_max, attr.max_sq_sge)
            || !within(self.recv_sges_max, attr.max_rq_sge)
        {
            return Err(Error::Invalid("scatter/gather entries: 1 to 2 for sends, 1 to 4 else"));
        }
        if self.inline_bytes_max as usize > INLINE_BYTES_MAX {
            return Err(Error::Invalid("inline_bytes_max must be at most 80"));
        }
        if self.unsolicited_write_recv && self.kind == QpType::Ud {
            return Err(Error::Invalid("unsolicited_write_recv is for SRD queue pairs"));
        }
        Ok(())
    }
}

/// Change of a queue pair; [`QueuePair::modify`] leaves alone what is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpModify {
    /// The new state; refused if the state machine has no such transition.
    pub state: Option<QpState>,
    /// Q_Key; required for the transition from RESET to INIT.
    pub qkey: Option<QKey>,
    /// RNR retries, 0 to 8: 7 = for ever, 8 = for about a minute. Changes only together with the
    /// transition from RTR to RTS. A queue pair for which it is never set has 7, as on EFA.
    pub rnr_retry: Option<u8>,
}

impl QpModify {
    fn to_core(self) -> srd_core::QpModify {
        let Self { state, qkey, rnr_retry } = self;
        srd_core::QpModify { state, qkey: qkey.map(|key| key.0), rnr_retry }
    }
}

/// Attributes of a queue pair.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QpAttr {
    /// Present state.
    pub state: QpState,
    /// Q_Key that a message must carry to be accepted.
    pub qkey: QKey,
    /// RNR retries, 0 to 8; see [`QpModify::rnr_retry`].
    pub rnr_retry: u8,
    /// Depth of the send queue.
    pub sq_depth: u32,
    /// Depth of the receive queue.
    pub rq_depth: u32,
    /// Whether a peer's write with immediate consumes no receive.
    pub unsolicited_write_recv: bool,
}

/// A queue pair. Posting is safe from several threads; dropping it destroys it: outstanding
/// requests are withdrawn without completion, and completions not yet polled are removed.
pub struct QueuePair {
    pub(crate) pd: ProtectionDomain,
    pub(crate) core: Arc<QpCore>,
    /// The shard that it belongs to.
    pub(crate) shard: Arc<Shard>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    /// Dropped after the queue pair has left the shard: then no counter changes any more.
    pub(crate) attached: Mutex<Vec<Attached>>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("core", &self.core).finish_non_exhaustive()
    }
}

impl QueuePair {
    pub(crate) fn create(pd: &ProtectionDomain, init: &QpInit<'_>) -> Result<Self, Error> {
        let device = pd.device();
        init.check(device)?;
        // The shard with the fewest queue pairs that has a number left.
        let mut full = Error::Closed;
        for shard in device.shards_by_load(init) {
            match Self::create_in(pd, init, shard) {
                Err(e @ Error::NoRoom(_)) => full = e,
                other => return other,
            }
        }
        Err(full)
    }

    /// Creates it in this shard.
    fn create_in(
        pd: &ProtectionDomain,
        init: &QpInit<'_>,
        shard: &Arc<Shard>,
    ) -> Result<Self, Error> {
        let (sends_tx, sends) = rtrb::RingBuffer::new(init.sq_depth as usize);
        let (recvs_tx, recvs) = rtrb::RingBuffer::new(init.rq_depth as usize);
        let mut nic = shard.nic()?;
        let qpn = nic
            .engine
            .qp_create(
                Nic::now(),
                srd_core::QpInit {
                    kind: init.kind,
                    pd: pd.id(),
                    send_cq: init.send_cq.id(),
                    recv_cq: init.recv_cq.id(),
                    sq_depth: init.sq_depth,
                    rq_depth: init.rq_depth,
                    unsolicited_write_recv: init.unsolicited_write_recv,
                },
            )
            .map_err(|e| Error::from_core(e, "queue pair"))?;
        for cq in [init.send_cq, init.recv_cq] {
            nic.tables.cq_attach(shard, cq.core());
        }
        let core = Arc::new(QpCore {
            qpn,
            kind: init.kind,
            pd: pd.id(),
            state: AtomicU8::new(state_to_u8(QpState::Reset)),
            sq: Mutex::new(Poster::new(sends_tx)),
            rq: Mutex::new(Poster::new(recvs_tx)),
            sq_slots: QueueSlots::new(init.sq_depth),
            rq_slots: QueueSlots::new(init.rq_depth),
            send_cq: Arc::clone(init.send_cq.core()),
            recv_cq: Arc::clone(init.recv_cq.core()),
            send_sges_max: init.send_sges_max as usize,
            recv_sges_max: init.recv_sges_max as usize,
            inline_bytes_max: init.inline_bytes_max as usize,
            counters: QpCounters::default(),
        });
        nic.tables.qps[usize::from(qpn.index())] = Some(Box::new(QpSide {
            core: Arc::clone(&core),
            sends,
            recvs,
            recv_slots: Vec::new(),
            held: false,
        }));
        shard.queues_change(|queues| queues.push(Arc::clone(&core)));
        drop(nic);
        Ok(Self {
            pd: pd.clone(),
            core,
            shard: Arc::clone(shard),
            send_cq: init.send_cq.clone(),
            recv_cq: init.recv_cq.clone(),
            attached: Mutex::default(),
        })
    }

    /// Its queue pair number, by which peers name it.
    pub fn qpn(&self) -> Qpn {
        self.core.qpn
    }

    /// Its type.
    pub fn kind(&self) -> QpType {
        self.core.kind
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.pd.device()
    }

    /// Completion queue of sends.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.send_cq
    }

    /// Completion queue of receives.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.recv_cq
    }

    /// Its state, read without a lock.
    pub fn state(&self) -> QpState {
        self.core.state()
    }

    /// Sends posted and not completed.
    pub fn sends_outstanding(&self) -> u32 {
        self.core.sq_slots.used()
    }

    /// Receives posted and not completed.
    pub fn recvs_outstanding(&self) -> u32 {
        self.core.rq_slots.used()
    }

    /// Takes a fresh queue pair to RTS with this Q_Key. Messages of an SRD queue pair that find no
    /// receive posted are tried again for about a minute ([`RNR_RETRY_LONG`]), then end with
    /// status 10. A peer that may take longer needs [`QueuePair::activate_with`].
    ///
    /// [`RNR_RETRY_LONG`]: crate::RNR_RETRY_LONG
    ///
    /// # Errors
    /// The queue pair is not in RESET, or the device is not usable.
    pub fn activate(&self, qkey: QKey) -> Result<(), Error> {
        self.activate_with(qkey, limits::RNR_RETRY_LONG)
    }

    /// Like [`QueuePair::activate`], with a limit of RNR retries: 0 to 6, 7 = for ever, 8 = for
    /// about a minute. UD queue pairs never retry and ignore the limit.
    ///
    /// # Errors
    /// As [`QueuePair::activate`]; also when `rnr_retry` is above 8.
    pub fn activate_with(&self, qkey: QKey, rnr_retry: u8) -> Result<(), Error> {
        let to = |state| QpModify { state: Some(state), ..QpModify::default() };
        let rnr_retry = (self.kind() == QpType::Srd).then_some(rnr_retry);
        self.modify(QpModify { qkey: Some(qkey), ..to(QpState::Init) })?;
        self.modify(to(QpState::Rtr))?;
        self.modify(QpModify { rnr_retry, ..to(QpState::Rts) })
    }

    /// Changes state, Q_Key or RNR retries, as EFA's table of state changes permits. On a change to
    /// ERR, outstanding requests end with status 1 (flushed). On a change to RESET, outstanding
    /// requests are withdrawn, and completions not yet polled are removed.
    ///
    /// # Errors
    /// The change of state or a value is not allowed, or the device is not usable.
    pub fn modify(&self, change: QpModify) -> Result<(), Error> {
        let shared = &*self.shard;
        let mut nic = shared.nic()?;
        let now = Nic::now();
        let index = usize::from(self.core.qpn.index());
        nic.take_posts_of(shared, now, index);
        nic.engine
            .qp_modify(now, self.core.qpn, change.to_core())
            .map_err(|e| Error::from_core(e, "queue pair state or attribute"))?;
        if let Some(state) = change.state {
            self.core.set_state(state);
        }
        nic.deliver(shared);
        // Posts that waited, or arrived meanwhile, are handled in the new state: in ERR they are
        // flushed.
        nic.take_posts_of(shared, now, index);
        nic.deliver(shared);
        if change.state == Some(QpState::Reset) {
            nic.qp_forget(shared.index, self.core.qpn);
        }
        Ok(())
    }

    /// Its state, its Q_Key and the attributes that it was created with.
    ///
    /// # Errors
    /// The device is not usable.
    pub fn query(&self) -> Result<QpAttr, Error> {
        let nic = self.shard.nic()?;
        let attr = nic.engine.qp_query(self.core.qpn);
        let attr = attr.map_err(|e| Error::from_core(e, "queue pair"))?;
        Ok(QpAttr {
            state: attr.state,
            qkey: QKey(attr.qkey),
            rnr_retry: attr.rnr_retry,
            sq_depth: attr.init.sq_depth,
            rq_depth: attr.init.rq_depth,
            unsolicited_write_recv: attr.init.unsolicited_write_recv,
        })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let shared = &*self.shard;
        let Ok(mut nic) = shared.nic_to_destroy() else { return };
        let _ = nic.engine.qp_destroy(Nic::now(), self.core.qpn);
        nic.deliver(shared);
        nic.qp_forget(shared.index, self.core.qpn);
        nic.tables.qps[usize::from(self.core.qpn.index())] = None;
        shared.queues_change(|queues| queues.retain(|q| q.qpn != self.core.qpn));
    }
}

impl Nic {
    /// Drops all requests of a queue pair that the engine has destroyed: those in the rings and
    /// tables, and completions not polled.
    fn qp_forget(&mut self, shard: u8, qpn: Qpn) {
        for index in 0..self.tables.wrs.len() {
            if self.tables.wrs[index].live && self.tables.wrs[index].qpn == qpn {
                self.tables.withdraw(WrHandle(index as u32));
            }
        }
        let Some(qp) = self.tables.qp(qpn) else { return };
        let core = Arc::clone(&qp.core);
        qp.held = false;
        let sends = std::iter::from_fn(|| qp.sends.pop().ok()).count() as u32;
        core.sq_slots.give(sends);
        core.send_cq.slots.give(sends);
        let mut recvs = std::iter::from_fn(|| qp.recvs.pop().ok()).count() as u32;
        for slot in qp.recv_slots.iter_mut().filter(|s| s.live) {
            slot.live = false;
            slot.pieces.clear();
            recvs += 1;
        }
        core.rq_slots.give(recvs);
        core.recv_cq.slots.give(recvs);
        for cq in [&core.send_cq, &core.recv_cq] {
            let (engine, all) = {
                let mut reader = lock(&cq.reader);
                let purged = reader.purge(shard, qpn);
                cq.popped_add(purged.1);
                purged
            };
            self.engine.cq_release(cq.id, engine);
            cq.slots.give(all);
        }
    }
}
