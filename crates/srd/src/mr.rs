//! Memory regions: what the device and peers may read and write.

use crate::{
    Access, Device, Error, LKey, ProtectionDomain, RKey,
    mem::Memory,
    nic::Nic,
    queue::{Piece, WrData},
    regions::{RegionId, RegionView},
};
use srd_core::{MrKey, Status, WrHandle};
use std::sync::Arc;

/// A piece of registered memory in a work request, addressed as its region is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the region.
    pub lkey: LKey,
}

/// A registered memory region.
///
/// The safe way is memory that the region owns ([`ProtectionDomain::mr_allocate`]), read and
/// written by copying: [`MemoryRegion::read_at`], [`MemoryRegion::write_at`]. The device may write
/// at the same time, when a receive arrives or a peer writes; then, as with any RDMA device, the
/// copy may mix old and new bytes until the completion (or whatever the two sides agreed on)
/// signals that the data is complete. There is no other consequence: the memory stays valid as long
/// as any work request refers to it, in whatever order handles are dropped.
///
/// Dropping it deregisters it.
#[derive(Debug)]
pub struct MemoryRegion {
    pd: ProtectionDomain,
    memory: Arc<Memory>,
    key: MrKey,
    id: RegionId,
}

impl MemoryRegion {
    pub(crate) fn allocate(
        pd: &ProtectionDomain,
        len: usize,
        access: Access,
    ) -> Result<Self, Error> {
        check(pd, len, access)?;
        let memory = Memory::owned(len, access, pd.id())
            .map_err(|_| Error::NoRoom("memory region of this size"))?;
        Self::enter(pd, memory)
    }

    /// # Safety
    /// As [`ProtectionDomain::mr_register`].
    pub(crate) unsafe fn register(
        pd: &ProtectionDomain,
        base: *mut u8,
        len: usize,
        addr: u64,
        access: Access,
    ) -> Result<Self, Error> {
        check(pd, len, access)?;
        if base.is_null() || addr.checked_add(len as u64).is_none() {
            return Err(Error::Invalid("memory region address"));
        }
        // SAFETY: promised by the caller.
        let memory = unsafe { Memory::borrowed(base, len, addr, access, pd.id()) };
        Self::enter(pd, memory)
    }

    fn enter(pd: &ProtectionDomain, memory: Memory) -> Result<Self, Error> {
        let device = pd.device();
        let memory = Arc::new(memory);
        let (addr, len, access) = (memory.addr(), memory.len() as u64, memory.access().to_core());
        let register = |nic: &mut Nic, chosen: Option<(MrKey, RegionId)>| {
            let key = match chosen {
                None => nic.engine.mr_register(pd.id(), addr, len, access),
                Some((key, _)) => {
                    nic.engine.mr_register_as(pd.id(), addr, len, access, key).map(|()| key)
                }
            };
            let key = key.map_err(|e| Error::from_core(e, "memory region"))?;
            Ok((key, nic.tables.regions.insert(key.0, Arc::clone(&memory))))
        };
        let deregister = |nic: &mut Nic, (key, _): (MrKey, RegionId)| {
            let _ = nic.engine.mr_deregister(key);
            nic.tables.regions.remove(key.0);
        };
        let (key, id) = device.create_on_all(register, deregister)?;
        device.shared().common.regions.insert(key.0, RegionView::new(id, &memory));
        Ok(Self { pd: pd.clone(), memory, key, id })
    }

    /// Key for local use, in an [`Sge`].
    pub fn lkey(&self) -> LKey {
        LKey(self.key.0)
    }

    /// Key that peers name in RDMA requests.
    pub fn rkey(&self) -> RKey {
        RKey(self.key.0)
    }

    /// Address of the first byte, as work requests and peers name it.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Access rights.
    pub fn access(&self) -> Access {
        self.memory.access()
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Address of the first byte in this process. Accesses through it race with the device unless
    /// completions order them; no Rust reference to the memory may be held meanwhile.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.memory.base()
    }

    /// The piece of `len` bytes from `offset` on, for a work request. Its bounds are checked when
    /// the request is posted.
    pub fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge { addr: self.addr().wrapping_add(offset as u64), len, lkey: self.lkey() }
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Errors
    /// The bytes do not fit; nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        if self.memory.write(offset, bytes) { Ok(()) } else { Err(OUTSIDE) }
    }

    /// Copies bytes from `offset` on into `out`.
    ///
    /// # Errors
    /// The region ends before that; nothing was copied.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        if self.memory.read(offset, out) { Ok(()) } else { Err(OUTSIDE) }
    }

    /// A copy of `len` bytes from `offset` on.
    ///
    /// # Errors
    /// The region ends before that.
    pub fn to_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
        if offset > self.len() || len > self.len() - offset {
            return Err(OUTSIDE);
        }
        let mut out = vec![0; len];
        self.read_at(offset, &mut out)?;
        Ok(out)
    }

    /// Deregisters the region. When this returns, the device no longer accesses its memory:
    /// outstanding requests that use it end with status 5 ([`Status::LocalInvalidLkey`]), a receive
    /// when a message would have filled it, and requests of peers end with status 7.
    pub fn deregister(self) {}
}

const OUTSIDE: Error = Error::Invalid("the range lies outside the memory region");

fn check(pd: &ProtectionDomain, len: usize, access: Access) -> Result<(), Error> {
    pd.device().shared().check()?;
    if len == 0 || len as u64 > pd.device().attr().max_mr_size {
        return Err(Error::Invalid("the length of a memory region must be from 1 to max_mr_size"));
    }
    if access.allows(Access::REMOTE_WRITE) && !access.allows(Access::LOCAL_WRITE) {
        return Err(Error::Invalid("REMOTE_WRITE needs LOCAL_WRITE"));
    }
    Ok(())
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let device: &Device = self.pd.device();
        device.destroy_on_all(|shard, nic| {
            // Before any shard forgets it, no post may name it.
            if shard.index == 0 {
                shard.common.regions.remove(self.key.0);
            }
            // Posts in progress end with the same status as posts after the deregistration.
            let now = Nic::now();
            nic.take_posts(shard, now);
            let _ = nic.engine.mr_deregister(self.key);
            nic.tables.regions.remove(self.key.0);
            nic.forget_memory(self.id);
            nic.deliver(shard);
        });
    }
}

impl Nic {
    /// Removes a region from every work request. The datapath references no payload between turns,
    /// so nothing else can still access it.
    fn forget_memory(&mut self, region: RegionId) {
        let uses = |pieces: &[Piece]| pieces.iter().any(|p| p.region == region);
        let now = Self::now();
        for (index, slot) in self.tables.wrs.iter_mut().enumerate() {
            if let WrData::Pieces(pieces) = &slot.data
                && slot.live
                && uses(pieces)
            {
                slot.data = WrData::Empty;
                self.engine.wr_abort(now, WrHandle(index as u32), Status::LocalInvalidLkey);
            }
        }
        for slot in self.tables.qps.iter_mut().flatten().flat_map(|q| &mut q.recv_slots) {
            if slot.live && uses(&slot.pieces) {
                slot.lost_memory = true;
                slot.pieces.clear();
            }
        }
    }
}
