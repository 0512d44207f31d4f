//! Registered memory as the device sees it: an address range that stays valid while anything
//! refers to it. The one place that reads and writes user memory.

use crate::Access;
use crate::copy::copy_shared;
use srd_core::PdId;
use srd_datapath::Part;
use std::{io, ptr};

/// Page-aligned zeroed memory of the process, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps `len` zeroed bytes (at least 1); pages are touched only when used.
    fn new(len: usize) -> io::Result<Self> {
        // Miri does not reserve memory and supports no other flags.
        let unreserved = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches
        // nothing that exists.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | unreserved,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap, and whoever refers to it holds the Memory that owns it.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// One registered region. Shared by its handle and the engine's table of regions.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    len: usize,
    /// Address of the first byte in work requests and for peers.
    addr: u64,
    access: Access,
    pd: PdId,
    /// Owned memory; `None` = the caller's, who must keep it valid.
    _mapping: Option<Mapping>,
}

// SAFETY: the range is touched only by copies that tolerate races (copy_shared) and by the
// kernel; all other fields are plain values that do not change.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New zeroed memory of `len` bytes.
    pub(crate) fn owned(len: usize, access: Access, pd: PdId) -> io::Result<Self> {
        let mapping = Mapping::new(len)?;
        let base = mapping.base;
        Ok(Self { base, len, addr: base.addr() as u64, access, pd, _mapping: Some(mapping) })
    }

    /// Memory of the caller's.
    ///
    /// # Safety
    /// The range must stay valid for reads and writes (writes only if `access` has any write
    /// right) until the region has been deregistered.
    pub(crate) unsafe fn borrowed(
        base: *mut u8,
        len: usize,
        addr: u64,
        access: Access,
        pd: PdId,
    ) -> Self {
        Self { base, len, addr, access, pd, _mapping: None }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Offset of `addr` in the region, if `len` bytes from there lie within it.
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.addr)?;
        (offset.checked_add(len)? <= self.len as u64).then_some(offset as usize)
    }

    /// Copies `bytes` in at `offset`; false (and nothing done) if they do not fit.
    #[must_use]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        if offset > self.len || bytes.len() > self.len - offset {
            return false;
        }
        // SAFETY: the range lies within the region, which is valid while `self` is; `bytes` is
        // private memory, which cannot overlap a region.
        unsafe { copy_shared(bytes.as_ptr(), self.base.add(offset), bytes.len()) };
        true
    }

    /// Copies out from `offset`; false (and nothing done) if the region is shorter.
    #[must_use]
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        if offset > self.len || bytes.len() > self.len - offset {
            return false;
        }
        // SAFETY: as in `write`.
        unsafe { copy_shared(self.base.add(offset), bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// The bytes at `offset` for the datapath to gather; `None` if they do not lie within.
    ///
    /// The result refers to this memory: the caller keeps it alive until the datapath's next flush.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Option<Part> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: the range lies within the region; every user of this function flushes or
        // discards the datapath's queue under the lock that also guards the tables which keep the
        // region. That the owner may write meanwhile is the race that RDMA permits: torn bytes are
        // sent.
        Some(unsafe { Part::new(self.base.add(offset), len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_both_ends() {
        let m = Memory::owned(100, Access::LOCAL_WRITE, PdId(1)).unwrap();
        assert_eq!(m.addr() % 4096, 0);
        assert!(m.write(90, &[7; 10]) && !m.write(91, &[7; 10]) && !m.write(usize::MAX, &[1]));
        let mut out = [0; 10];
        assert!(m.read(90, &mut out) && !m.read(91, &mut out));
        assert_eq!(out, [7; 10]);
        assert_eq!(m.offset_of(m.addr() + 90, 10), Some(90));
        assert_eq!(m.offset_of(m.addr() + 90, 11), None);
        assert_eq!(m.offset_of(m.addr().wrapping_sub(1), 1), None);
        assert_eq!(m.offset_of(m.addr() + 1, u64::MAX), None);
        assert!(m.part(100, 0).is_some() && m.part(100, 1).is_none());
    }
}
