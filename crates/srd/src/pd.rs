//! Protection domains: which objects may be used together.

use crate::{Access, AddressHandle, Device, Error, MemoryRegion, QpInit, QueuePair, nic::Nic};
use srd_core::PdId;
use std::{net::IpAddr, sync::Arc};

/// A protection domain. Memory regions, address handles and queue pairs can be used together if
/// they were created from the same one. Cheap to clone; destroyed with its last handle.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    id: PdId,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.destroy_on_all(|_, nic| {
            // Every object created from it held it, so no user is left.
            let _ = nic.engine.pd_destroy(self.id);
        });
    }
}

impl ProtectionDomain {
    pub(crate) fn create(device: &Device) -> Result<Self, Error> {
        let create = |nic: &mut Nic, _| {
            nic.engine.pd_create().map_err(|e| Error::from_core(e, "protection domain"))
        };
        let destroy = |nic: &mut Nic, id| {
            let _ = nic.engine.pd_destroy(id);
        };
        let id = device.create_on_all(create, destroy)?;
        Ok(Self(Arc::new(Inner { device: device.clone(), id })))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its number.
    pub fn id(&self) -> PdId {
        self.0.id
    }

    /// Whether memory regions, address handles or queue pairs (or other handles) refer to it.
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Allocates and registers `len` zeroed bytes.
    ///
    /// # Errors
    /// A length of 0, not enough memory, a full table, or a device that is not usable.
    pub fn mr_allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        MemoryRegion::allocate(self, len, access)
    }

    /// Registers memory of the caller's under its own address.
    ///
    /// # Errors
    /// As [`ProtectionDomain::mr_allocate`].
    ///
    /// # Safety
    /// From this call until [`MemoryRegion::deregister`] has returned (or the region was dropped),
    /// the `len` bytes at `base` must stay valid: readable, and writable if `access` has
    /// [`Access::LOCAL_WRITE`] or [`Access::REMOTE_WRITE`]. Rust references to the range must not
    /// be used while the device may write to it.
    pub unsafe fn mr_register(
        &self,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: promised by the caller.
        unsafe { self.mr_register_at(base, len, base.addr() as u64, access) }
    }

    /// As [`ProtectionDomain::mr_register`], with the first byte named `addr` in work requests
    /// and by peers (verbs: `ibv_reg_mr_iova`).
    ///
    /// # Errors
    /// As [`ProtectionDomain::mr_allocate`]; also when `addr + len` overflows.
    ///
    /// # Safety
    /// As [`ProtectionDomain::mr_register`].
    pub unsafe fn mr_register_at(
        &self,
        base: *mut u8,
        len: usize,
        addr: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: promised by the caller.
        unsafe { MemoryRegion::register(self, base, len, addr, access) }
    }

    /// Creates an address handle for the host at `ip`. The queue pair number of each request
    /// selects the engine on that host.
    ///
    /// # Errors
    /// A full table, an address of another family than the device's, or a device that is not
    /// usable.
    pub fn ah_create(&self, ip: IpAddr) -> Result<AddressHandle, Error> {
        AddressHandle::create(self, ip)
    }

    /// Makes a queue pair in the state RESET.
    ///
    /// # Errors
    /// Values beyond [`Device::attr`], completion queues of another device, a full table, or a
    /// device that is not usable.
    pub fn qp_create(&self, init: &QpInit<'_>) -> Result<QueuePair, Error> {
        QueuePair::create(self, init)
    }
}
