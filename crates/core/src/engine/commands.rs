//! Calls that create, change and destroy objects: protection domains, completion queues, memory
//! regions, address handles, queue pairs.

use crate::api::{Access, AhId, AsyncEvent, CqId, MrKey, PdId, Qpn, Status, WrHandle};
use crate::engine::Engine;
use crate::events::Observer;
use crate::lane::Ending;
use crate::limits::RNR_RETRY_LONG;
use crate::objects::memory::{Ah, Mr};
use crate::objects::qp::{QpAttr, QpInit, QpModify, QpState};
use crate::time::Time;
use core::net::IpAddr;

/// Maximum number of protection domains (their numbers have 16 bits).
const PDS_MAX: usize = 65_535;
/// Maximum depth of a send or receive queue.
const QUEUE_DEPTH_MAX: u32 = 1 << 16;
/// Maximum depth of a completion queue.
const CQ_DEPTH_MAX: u32 = 1 << 22;

/// Why an object call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectError {
    /// The table is full (ENOMEM).
    NoRoom,
    /// The object does not exist (EINVAL).
    Unknown,
    /// The object is still in use (EBUSY).
    Busy,
    /// The value or the state transition is not allowed (EINVAL).
    Invalid,
}

impl<O: Observer> Engine<O> {
    /// Creates a protection domain.
    pub fn pd_create(&mut self) -> Result<PdId, ObjectError> {
        if let Some(i) = self.objects.pds.iter().position(|used| !used) {
            self.objects.pds[i] = true;
            return Ok(PdId(i as u16));
        }
        if self.objects.pds.len() >= PDS_MAX {
            return Err(ObjectError::NoRoom);
        }
        self.objects.pds.push(true);
        debug_assert!(self.objects.pds.len() <= PDS_MAX, "numbers of 16 bits");
        Ok(PdId(self.objects.pds.len() as u16 - 1))
    }

    fn pd_check(&self, pd: PdId) -> Result<(), ObjectError> {
        let live = self.objects.pds.get(usize::from(pd.0)).copied().unwrap_or(false);
        live.then_some(()).ok_or(ObjectError::Unknown)
    }

    /// Destroys a protection domain, which no object may use.
    pub fn pd_destroy(&mut self, pd: PdId) -> Result<(), ObjectError> {
        self.pd_check(pd)?;
        let used = self.objects.qps.iter().any(|q| q.init.pd == pd)
            || self.objects.mrs.uses_pd(pd)
            || self.objects.ahs.uses_pd(pd);
        if used {
            return Err(ObjectError::Busy);
        }
        debug_assert!(self.objects.pds[usize::from(pd.0)], "it is freed once");
        self.objects.pds[usize::from(pd.0)] = false;
        Ok(())
    }

    /// Creates a completion queue of `depth` slots, 1 to 4,194,304.
    pub fn cq_create(&mut self, depth: u32) -> Result<CqId, ObjectError> {
        if depth == 0 || depth > CQ_DEPTH_MAX {
            return Err(ObjectError::Invalid);
        }
        self.objects.cqs.create(depth).ok_or(ObjectError::NoRoom)
    }

    /// Destroys a completion queue, which no queue pair may use.
    pub fn cq_destroy(&mut self, cq: CqId) -> Result<(), ObjectError> {
        self.objects.cqs.get(cq).ok_or(ObjectError::Unknown)?;
        if self.objects.qps.iter().any(|q| q.init.send_cq == cq || q.init.recv_cq == cq) {
            return Err(ObjectError::Busy);
        }
        self.objects.cqs.destroy(cq);
        Ok(())
    }

    /// Number of slots of a completion queue that are reserved or filled; `None` if it does not
    /// exist.
    pub fn cq_reserved(&self, cq: CqId) -> Option<u32> {
        self.objects.cqs.get(cq).map(crate::objects::cq::Cq::reserved)
    }

    /// Creates an address handle for `ip`. Sending to it needs no further set-up. A peer that uses
    /// RDMA on us needs a handle of ours for its address, if [`crate::EngineConfig::rdma_needs_ah`]
    /// is set.
    pub fn ah_create(&mut self, now: Time, pd: PdId, ip: IpAddr) -> Result<AhId, ObjectError> {
        self.pd_check(pd)?;
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(ObjectError::Invalid);
        }
        self.objects.ahs.create(now, Ah::new(pd, ip)).ok_or(ObjectError::NoRoom)
    }

    /// Creates an address handle under the number that another engine of the same device gave it,
    /// so that both know it by one number.
    pub fn ah_create_as(&mut self, pd: PdId, ip: IpAddr, id: AhId) -> Result<(), ObjectError> {
        self.pd_check(pd)?;
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(ObjectError::Invalid);
        }
        self.objects.ahs.create_as(id, Ah::new(pd, ip)).then_some(()).ok_or(ObjectError::NoRoom)
    }

    /// Destroys an address handle; outstanding sends through it end with status 4
    /// ([`Status::LocalInvalidAh`]).
    pub fn ah_destroy(&mut self, now: Time, ah: AhId) -> Result<(), ObjectError> {
        self.objects.ahs.get(ah).ok_or(ObjectError::Unknown)?;
        if self.objects.wrs.uses_ah(ah) {
            let list = self.objects.wrs.select(|w| w.wr.ah == ah);
            self.wrs_cancel(now, &list, Ending::Complete(Status::LocalInvalidAh));
        }
        debug_assert!(!self.objects.wrs.uses_ah(ah), "nobody sends through it any more");
        self.objects.ahs.destroy(ah, now + self.shared.cfg.reuse_delay);
        Ok(())
    }

    /// Registers a memory region of `len` bytes that peers address from `addr` on in `raddr`.
    /// Returns its key.
    pub fn mr_register(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        access: Access,
    ) -> Result<MrKey, ObjectError> {
        self.pd_check(pd)?;
        if addr.checked_add(len).is_none() {
            return Err(ObjectError::Invalid);
        }
        let mr = Mr { pd, addr, len, access };
        self.objects
            .mrs
            .register(mr, &mut self.secrets.or(&mut self.shared.rng))
            .ok_or(ObjectError::NoRoom)
    }

    /// Makes the keys of regions as another engine of the same device does, before the first region
    /// is registered. Both then know each other's keys: peers name a region by one key, whichever
    /// engine of the device they ask.
    pub fn region_keys_as(&mut self, other: &Self) {
        self.objects.mrs.keys_as(&other.objects.mrs);
    }

    /// Registers a memory region under the key that another engine of the same device has made for
    /// it ([`Self::region_keys_as`]).
    pub fn mr_register_as(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        access: Access,
        key: MrKey,
    ) -> Result<(), ObjectError> {
        self.pd_check(pd)?;
        if addr.checked_add(len).is_none() {
            return Err(ObjectError::Invalid);
        }
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let access = if planted!(ShardRegionRights) { Access(all) } else { access };
        let mr = Mr { pd, addr, len, access };
        self.objects.mrs.register_as(mr, key).then_some(()).ok_or(ObjectError::NoRoom)
    }

    /// Deregisters a region: from now on no packet reads from it or writes to it. Reads of it that
    /// are being served fail at their requesters.
    pub fn mr_deregister(&mut self, key: MrKey) -> Result<(), ObjectError> {
        let several = self.shared.cfg.engines_of_device > 1;
        if planted!(ShardRegionStays) && several && self.shared.cfg.slot > 0 {
            return Ok(());
        }
        if !self.objects.mrs.deregister(key) {
            return Err(ObjectError::Unknown);
        }
        if !planted!(RegionReadOn) {
            self.jobs_region_gone(key);
        }
        debug_assert!(
            self.objects.places.of_region(key).is_none() || cfg!(planted_bugs),
            "nothing is read from it"
        );
        Ok(())
    }

    /// Creates a queue pair in state Reset. Both queue depths are 1 to 65,536; a queue pair that
    /// only sends or only receives still has one slot in the other queue.
    pub fn qp_create(&mut self, now: Time, init: QpInit) -> Result<Qpn, ObjectError> {
        self.pd_check(init.pd)?;
        self.objects.cqs.get(init.send_cq).ok_or(ObjectError::Unknown)?;
        self.objects.cqs.get(init.recv_cq).ok_or(ObjectError::Unknown)?;
        let depths = 1..=QUEUE_DEPTH_MAX;
        if !depths.contains(&init.sq_depth) || !depths.contains(&init.rq_depth) {
            return Err(ObjectError::Invalid);
        }
        self.objects.qps.create(now, init).ok_or(ObjectError::NoRoom)
    }

    /// Changes state and attributes of a queue pair by EFA's rules: Reset to Init needs a Q_Key,
    /// and `rnr_retry` (0 to 8) may only be set from Rtr to Rts. In Err, all outstanding work ends
    /// with status 1; in Reset, it is withdrawn without completions. In both cases reads that are
    /// being served through the queue pair fail at their requesters.
    pub fn qp_modify(&mut self, now: Time, qpn: Qpn, m: QpModify) -> Result<(), ObjectError> {
        let qp = self.objects.qps.get_mut(qpn).ok_or(ObjectError::Unknown)?;
        let mut state = qp.state;
        if let Some(to) = m.state {
            let moved = match to {
                QpState::Reset => state.to_reset(),
                QpState::Init if m.qkey.is_none() => return Err(ObjectError::Invalid),
                QpState::Init => state.to_init(),
                QpState::Rtr => state.to_rtr(),
                QpState::Rts => state.to_rts(),
                QpState::Sqd => state.to_sqd(),
                QpState::Err => state.to_err(),
                QpState::Sqe => return Err(ObjectError::Invalid),
            };
            moved.map_err(|_| ObjectError::Invalid)?;
        }
        if let Some(retry) = m.rnr_retry {
            let to_rts = qp.state == QpState::Rtr && m.state == Some(QpState::Rts);
            if retry > RNR_RETRY_LONG || !to_rts {
                return Err(ObjectError::Invalid);
            }
            qp.rnr_retry = retry;
        }
        if let Some(qkey) = m.qkey {
            qp.qkey = qkey;
        }
        qp.state = state;
        match m.state {
            Some(QpState::Err) => {
                self.jobs_qp_gone(qpn);
                self.qp_flush(now, qpn, Status::Flushed);
            }
            Some(QpState::Reset) => {
                self.jobs_qp_gone(qpn);
                self.qp_withdraw(now, qpn);
            }
            Some(QpState::Sqd) => {
                debug_assert!(!qp.drain_event, "one event for each time that it drains");
                if qp.sq_started == 0 {
                    self.shared.event_push(AsyncEvent::SqDrained(qpn));
                } else {
                    qp.drain_event = true;
                }
            }
            Some(QpState::Rts) => {
                qp.drain_event = false;
                self.qp_wake(qpn);
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets the requests start that were held back while the queue pair drained.
    fn qp_wake(&mut self, qpn: Qpn) {
        for wi in self.objects.wrs.select(|w| w.qp == qpn) {
            let ci = self.objects.wrs.get(wi).ctx;
            debug_assert!(self.contexts.get(ci).outstanding() > 0, "it has a request at least");
            self.shared.out.ready_push(ci);
            self.shared.out.rearm_push(ci);
        }
    }

    /// The present attributes of a queue pair.
    pub fn qp_query(&self, qpn: Qpn) -> Result<QpAttr, ObjectError> {
        let qp = self.objects.qps.get(qpn).ok_or(ObjectError::Unknown)?;
        Ok(QpAttr { state: qp.state, qkey: qp.qkey, rnr_retry: qp.rnr_retry, init: qp.init })
    }

    /// Destroys a queue pair: outstanding sends are withdrawn (with one [`AsyncEvent::WrReleased`]
    /// each), receives are dropped, and completions not yet polled are removed. Reads that are
    /// being served through it fail at their requesters. Other queue pairs are not affected.
    pub fn qp_destroy(&mut self, now: Time, qpn: Qpn) -> Result<(), ObjectError> {
        self.objects.qps.get(qpn).ok_or(ObjectError::Unknown)?;
        self.jobs_qp_gone(qpn);
        self.qp_withdraw(now, qpn);
        debug_assert!(self.objects.places.of_qp(qpn).is_none(), "no read that came through it");
        self.objects.qps.destroy(qpn, now + self.shared.cfg.reuse_delay);
        Ok(())
    }

    /// Withdraws all work of a queue pair without completions.
    fn qp_withdraw(&mut self, now: Time, qpn: Qpn) {
        let list = self.objects.wrs.select(|w| w.qp == qpn);
        self.wrs_cancel(now, &list, Ending::Release);
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        let (send_cq, recv_cq) = (qp.init.send_cq, qp.init.recv_cq);
        let mut receives = 0;
        debug_assert_eq!(qp.sq_used, 0, "its sends are withdrawn");
        while qp.rq.pop().is_some() {
            receives += 1;
        }
        let mut sends = Vec::new();
        if let Some(cq) = self.objects.cqs.get_mut(recv_cq) {
            cq.release(receives);
            sends = cq.purge(qpn);
        }
        if send_cq != recv_cq
            && let Some(cq) = self.objects.cqs.get_mut(send_cq)
        {
            sends.extend(cq.purge(qpn));
        }
        for h in sends {
            self.shared.event_push(AsyncEvent::WrReleased(h));
        }
    }

    /// Ends a send request early with `status`, for example because its local memory was released.
    pub fn wr_abort(&mut self, now: Time, wr: WrHandle, status: Status) {
        if self.objects.wrs.find(wr).is_some() {
            self.wrs_cancel(now, &[wr], Ending::Complete(status));
        }
    }
}
