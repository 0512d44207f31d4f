//! Posting: every check that needs no engine, then a push into the ring. Never blocks.

use crate::{
    Access, AddressHandle, PostError, QKey, QueuePair, RKey, RemoteMemory, Sge, caps,
    few::Few,
    queue::{Piece, RecvEntry, SEND_SGES_MAX, SendEntry, WrData},
    regions::RegionCache,
    sync::lock,
};
use srd_core::{
    Opcode, QpState, QpType, Qpn, Status,
    limits::{GRH_BYTES, RDMA_BYTES_MAX},
};

/// When a post with an invalid lkey or length fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// At once: nothing is posted.
    AtPost,
    /// With the request's completion (status 5 or 6), as on devices that check keys during
    /// execution.
    AtCompletion,
}

impl Faults {
    /// The status of the completion that reports the error, if one does.
    fn status_of(self, e: PostError) -> Option<Status> {
        match e {
            _ if self == Self::AtPost => None,
            PostError::BadLkey
            | PostError::OutOfBounds
            | PostError::BadAccess
            | PostError::WrongPd => Some(Status::LocalInvalidLkey),
            PostError::BadLength => Some(Status::LocalBadLength),
            _ => None,
        }
    }
}

/// Local data of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Registered memory: read when the request is transmitted (written, for an RDMA read), so it
    /// must not change before the completion.
    Sges(&'a [Sge]),
    /// Bytes that are copied at once.
    Inline(&'a [u8]),
}

/// A send request.
///
/// ```
/// # fn f(ah: &srd::AddressHandle, peer: srd::Qpn, mr: &srd::MemoryRegion) {
/// use srd::{QKey, RKey, SendWr};
/// let hello = SendWr::send(1, ah, peer, QKey(0x11)).inline(b"hello");
/// let pieces = [mr.sge(0, 4096)];
/// let block = SendWr::write(2, ah, peer, QKey(0x11))
///     .remote(0x7f00_0000_1000, RKey(42))
///     .sges(&pieces)
///     .imm(9);
/// # }
/// ```
///
/// Its functions return the changed request and leave the former as it is:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(ah: &srd::AddressHandle, peer: srd::Qpn) {
/// let hello = srd::SendWr::send(1, ah, peer, srd::QKey(0x11));
/// hello.inline(b"hello");
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request has no effect until it is posted, and its functions return a changed one"]
pub struct SendWr<'a> {
    /// A number of the caller's, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: Opcode,
    /// The destination host.
    pub ah: &'a AddressHandle,
    /// The destination queue pair.
    pub dst_qpn: Qpn,
    /// The destination's Q_Key.
    pub qkey: QKey,
    /// Local data.
    pub data: Data<'a>,
    /// RDMA: key of the remote region.
    pub rkey: RKey,
    /// RDMA: first byte there, in the region's own addresses.
    pub raddr: u64,
    /// Immediate data, for the operations that carry some.
    pub imm: u32,
}

impl<'a> SendWr<'a> {
    fn new(op: Opcode, wr_id: u64, ah: &'a AddressHandle, dst_qpn: Qpn, qkey: QKey) -> Self {
        let data = Data::Sges(&[]);
        Self { wr_id, op, ah, dst_qpn, qkey, data, rkey: RKey(0), raddr: 0, imm: 0 }
    }

    /// A message of at most one MTU; it has no data until data is given.
    pub fn send(wr_id: u64, ah: &'a AddressHandle, dst_qpn: Qpn, qkey: QKey) -> Self {
        Self::new(Opcode::Send, wr_id, ah, dst_qpn, qkey)
    }

    /// An RDMA write of at most 1 GiB.
    pub fn write(wr_id: u64, ah: &'a AddressHandle, dst_qpn: Qpn, qkey: QKey) -> Self {
        Self::new(Opcode::Write, wr_id, ah, dst_qpn, qkey)
    }

    /// An RDMA read of at most 1 GiB into the local data's memory.
    pub fn read(wr_id: u64, ah: &'a AddressHandle, dst_qpn: Qpn, qkey: QKey) -> Self {
        Self::new(Opcode::Read, wr_id, ah, dst_qpn, qkey)
    }

    /// Sets where to write to or read from: address and rkey of the peer's region.
    pub fn remote(mut self, raddr: u64, rkey: RKey) -> Self {
        (self.raddr, self.rkey) = (raddr, rkey);
        self
    }

    /// Sets where to write to or read from: the region of the peer's, from this byte on.
    pub fn remote_at(self, memory: &RemoteMemory, offset: u64) -> Self {
        self.remote(memory.addr.wrapping_add(offset), memory.rkey)
    }

    /// Local data in registered memory.
    pub fn sges(mut self, sges: &'a [Sge]) -> Self {
        self.data = Data::Sges(sges);
        self
    }

    /// Local data copied at the post.
    pub fn inline(mut self, bytes: &'a [u8]) -> Self {
        self.data = Data::Inline(bytes);
        self
    }

    /// Makes a send or write carry immediate data; a read stays as it is.
    pub fn imm(mut self, imm: u32) -> Self {
        self.imm = imm;
        self.op = match self.op {
            Opcode::Send => Opcode::SendImm,
            Opcode::Write => Opcode::WriteImm,
            other => other,
        };
        self
    }
}

/// A receive request. A UD receive needs 40 bytes more than the message.
///
/// ```
/// # fn f(qp: &srd::QueuePair, mr: &srd::MemoryRegion) -> Result<(), srd::PostError> {
/// use srd::RecvWr;
/// qp.post_recv(&RecvWr::recv(7).sges(&[mr.sge(0, 4096)]))?;
/// qp.post_recv(&RecvWr::recv(8))?; // for a write with immediate, which fills no buffer
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request has no effect until it is posted, and its functions return a changed one"]
pub struct RecvWr<'a> {
    /// A number of the caller's, returned in the completion.
    pub wr_id: u64,
    /// Where the message is placed, in order. May be empty for messages without data.
    pub sges: &'a [Sge],
}

impl<'a> RecvWr<'a> {
    /// A receive without buffers, until buffers are given: for messages without data, and for the
    /// notice of a write with immediate.
    pub const fn recv(wr_id: u64) -> Self {
        Self { wr_id, sges: &[] }
    }

    /// Where the message is placed, in order.
    pub const fn sges(mut self, sges: &'a [Sge]) -> Self {
        self.sges = sges;
        self
    }
}

impl QueuePair {
    /// Posts a send request. Exactly one completion follows, unless the queue pair is destroyed or
    /// reset first.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted.
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.enqueue_send(wr, Faults::AtPost)?;
        self.doorbell();
        Ok(())
    }

    /// Notifies the device of requests that [`QueuePair::enqueue_send`] and
    /// [`QueuePair::enqueue_recv`] put into the queues.
    #[inline]
    pub fn doorbell(&self) {
        self.shard.note_post(usize::from(self.core.qpn.index()));
    }

    /// [`QueuePair::doorbell`] for receives only. They take effect when messages arrive: a sleeping
    /// device need not wake up for them.
    #[inline]
    pub fn doorbell_recv(&self) {
        self.shard.note_recvs(usize::from(self.core.qpn.index()));
    }

    /// Like [`QueuePair::post_send`] for one of several requests: the device need not start on it
    /// before [`QueuePair::doorbell`] is called.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was enqueued.
    pub fn enqueue_send(&self, wr: &SendWr<'_>, faults: Faults) -> Result<(), PostError> {
        let shared = &*self.shard;
        self.check_send(wr)?;
        let core = &self.core;
        let mut sq = lock(&core.sq);
        let mut entry = entry_of(wr);
        self.send_fill(wr, &mut sq.regions, faults, &mut entry)?;
        if !core.sq_slots.any_free() {
            return Err(PostError::QueueFull);
        }
        if !shared.sends_have_room() {
            return Err(PostError::NoRoom);
        }
        if !core.send_cq.slots.take() {
            return Err(PostError::CqFull);
        }
        core.sq_slots.take();
        // There is room: the ring is as long as the queue is deep, and a slot was just taken.
        let pushed = sq.ring.push(entry).is_ok();
        debug_assert!(pushed, "send ring overrun");
        Ok(())
    }

    /// Like [`QueuePair::enqueue_send`] for several requests: either all or none are enqueued.
    ///
    /// # Errors
    /// See [`PostError`]: the error of the first invalid request. Nothing was enqueued.
    pub fn enqueue_sends<'a>(
        &self,
        wrs: impl Iterator<Item = SendWr<'a>>,
        faults: Faults,
    ) -> Result<(), PostError> {
        let core = &self.core;
        let mut sq = lock(&core.sq);
        let mut entries = Vec::new();
        for wr in wrs {
            self.check_send(&wr)?;
            let mut entry = entry_of(&wr);
            self.send_fill(&wr, &mut sq.regions, faults, &mut entry)?;
            entries.push(entry);
        }
        let n = u32::try_from(entries.len()).map_err(|_| PostError::QueueFull)?;
        if core.sq_slots.limit() - core.sq_slots.used() < n {
            return Err(PostError::QueueFull);
        }
        if !self.shard.sends_have_room() {
            return Err(PostError::NoRoom);
        }
        let taken = (0..n).take_while(|_| core.send_cq.slots.take()).count() as u32;
        if taken < n {
            core.send_cq.slots.give(taken);
            return Err(PostError::CqFull);
        }
        for entry in entries {
            core.sq_slots.take();
            let pushed = sq.ring.push(entry).is_ok();
            debug_assert!(pushed, "send ring overrun");
        }
        Ok(())
    }

    /// Checks of a request that do not depend on its data.
    #[inline]
    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        check_alive(&self.shard)?;
        if !matches!(self.core.state(), QpState::Rts | QpState::Sqd) {
            return Err(PostError::BadState);
        }
        if wr.ah.pd().id() != self.core.pd || !wr.ah.pd().device().is_same(self.device()) {
            return Err(PostError::BadAh);
        }
        self.check_op(wr.op)
    }

    /// Puts the request's data into its entry, which has none yet.
    #[inline]
    fn send_fill(
        &self,
        wr: &SendWr<'_>,
        regions: &mut RegionCache,
        faults: Faults,
        entry: &mut SendEntry,
    ) -> Result<(), PostError> {
        match self.send_data(wr, regions, &mut entry.data) {
            Ok(len) => entry.wr.len = len,
            Err(e) => entry.data = Err(faults.status_of(e).ok_or(e)?),
        }
        Ok(())
    }

    /// Posts a receive request. Exactly one completion follows, unless the queue pair is destroyed
    /// or reset first.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.enqueue_recv(wr, Faults::AtPost)?;
        self.doorbell();
        Ok(())
    }

    /// Like [`QueuePair::post_recv`] for one of several requests: the device need not read it
    /// before [`QueuePair::doorbell`] is called or a message arrives.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was enqueued.
    pub fn enqueue_recv(&self, wr: &RecvWr<'_>, faults: Faults) -> Result<(), PostError> {
        check_alive(&self.shard)?;
        let core = &self.core;
        if matches!(core.state(), QpState::Reset | QpState::Err) {
            return Err(PostError::BadState);
        }
        if wr.sges.len() > core.recv_sges_max {
            return Err(PostError::TooManySges);
        }
        let mut rq = lock(&core.rq);
        let mut pieces = Few::default();
        let (mut len, mut fault) = (0_u64, None);
        for sge in wr.sges {
            len += u64::from(sge.len);
            match self.piece(&mut rq.regions, sge, true) {
                Ok(piece) => pieces.push(piece),
                // The error is reported when the receive would be filled.
                Err(e) => fault = Some(faults.status_of(e).ok_or(e)?),
            }
        }
        let len = u32::try_from(len).map_err(|_| PostError::BadLength)?;
        if core.kind == QpType::Ud && len < GRH_BYTES {
            return Err(PostError::BadLength);
        }
        if !core.rq_slots.any_free() {
            return Err(PostError::QueueFull);
        }
        if !core.recv_cq.slots.take() {
            return Err(PostError::CqFull);
        }
        core.rq_slots.take();
        if fault.is_some() {
            pieces.clear();
        }
        let wr = srd_core::RecvRequest { wr_id: wr.wr_id, len };
        let entry = RecvEntry { wr, pieces, faulty: fault.is_some() };
        let pushed = rq.ring.push(entry).is_ok();
        debug_assert!(pushed, "receive ring overrun");
        Ok(())
    }

    fn check_op(&self, op: Opcode) -> Result<(), PostError> {
        let offered = match op {
            Opcode::Send | Opcode::SendImm => true,
            _ if self.core.kind == QpType::Ud => false,
            Opcode::Read => self.device().attr().device_caps & caps::RDMA_READ != 0,
            Opcode::Write | Opcode::WriteImm => {
                self.device().attr().device_caps & caps::RDMA_WRITE != 0
            }
        };
        if offered { Ok(()) } else { Err(PostError::BadOpcode) }
    }

    #[inline]
    fn check_len(&self, op: Opcode, len: u64) -> Result<(), PostError> {
        let rdma = matches!(op, Opcode::Write | Opcode::WriteImm | Opcode::Read);
        let max = if rdma { u64::from(RDMA_BYTES_MAX) } else { self.device().mtu() as u64 };
        if len > max { Err(PostError::BadLength) } else { Ok(()) }
    }

    /// Puts the local data, checked, into `data`, where it is empty; returns its length in bytes.
    #[inline]
    fn send_data(
        &self,
        wr: &SendWr<'_>,
        regions: &mut RegionCache,
        data: &mut Result<WrData, Status>,
    ) -> Result<u32, PostError> {
        let len = match wr.data {
            Data::Sges([]) => return Ok(0),
            Data::Sges(sges) => self.send_pieces(wr.op, sges, regions, data)?,
            Data::Inline(bytes) => {
                if bytes.len() > self.core.inline_bytes_max || wr.op == Opcode::Read {
                    return Err(PostError::BadInline);
                }
                *data = Ok(WrData::Inline(Few::from_slice(bytes).ok_or(PostError::BadInline)?));
                bytes.len() as u64
            }
        };
        self.check_len(wr.op, len)?;
        Ok(len as u32)
    }

    /// As [`QueuePair::send_data`], for registered memory, whose length in all is not checked.
    fn send_pieces(
        &self,
        op: Opcode,
        sges: &[Sge],
        regions: &mut RegionCache,
        data: &mut Result<WrData, Status>,
    ) -> Result<u64, PostError> {
        if sges.len() > self.core.send_sges_max {
            return Err(PostError::TooManySges);
        }
        let mut pieces = Few::<Piece, SEND_SGES_MAX>::default();
        let mut len = 0;
        for sge in sges {
            len += u64::from(sge.len);
            pieces.push(self.piece(regions, sge, op == Opcode::Read)?);
        }
        *data = Ok(WrData::Pieces(pieces));
        Ok(len)
    }

    /// A scatter/gather entry, checked against its region.
    #[inline]
    fn piece(
        &self,
        regions: &mut RegionCache,
        sge: &Sge,
        written: bool,
    ) -> Result<Piece, PostError> {
        let views = &self.shard.common.regions;
        let region = regions.get(views, sge.lkey.0).ok_or(PostError::BadLkey)?;
        if region.pd != self.core.pd {
            return Err(PostError::WrongPd);
        }
        if written && !region.access.allows(Access::LOCAL_WRITE) {
            return Err(PostError::BadAccess);
        }
        let offset =
            region.offset_of(sge.addr, u64::from(sge.len)).ok_or(PostError::OutOfBounds)?;
        Ok(Piece { region: region.id, offset, len: sge.len })
    }
}

/// A request in the format of the ring, without its data.
#[inline]
fn entry_of(wr: &SendWr<'_>) -> SendEntry {
    let wr = srd_core::SendRequest {
        wr_id: wr.wr_id,
        op: wr.op,
        ah: wr.ah.id(),
        dst_qpn: wr.dst_qpn,
        qkey: wr.qkey.0,
        len: 0,
        rkey: wr.rkey.0,
        raddr: wr.raddr,
        imm: wr.imm,
    };
    SendEntry { wr, data: Ok(WrData::Empty) }
}

#[inline]
fn check_alive(shared: &crate::shard::Shard) -> Result<(), PostError> {
    shared.check().map_err(|e| match e {
        crate::Error::Forked => PostError::Forked,
        _ => PostError::Closed,
    })
}
