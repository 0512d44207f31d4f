//! Memory regions.

use crate::{
    device::srd_pd,
    fail::{Fail, run},
    handle::{at, give, take},
};
use srd::Access;
use std::ffi::{c_int, c_void};

/// A registered memory region.
pub struct srd_mr(srd::MemoryRegion);

/// Access rights, to be added up.
#[repr(C)]
pub enum srd_access {
    /// The device may write into it (receives, reads).
    LocalWrite = 1,
    /// Peers may write; needs local write, too.
    RemoteWrite = 2,
    /// Peers may read.
    RemoteRead = 4,
}

fn access_of(access: u32) -> Result<Access, Fail> {
    let known = u8::try_from(access).ok().and_then(Access::from_bits);
    known.ok_or_else(|| Fail::invalid("unknown access right"))
}

/// Registers `len` bytes at `addr`, which must stay valid until srd_mr_deregister has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_mr_register(
    pd: *const srd_pd,
    addr: *mut c_void,
    len: usize,
    access: u32,
    mr: *mut *mut srd_mr,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let pd = unsafe { at(pd, "the protection domain") }?;
        // SAFETY: the caller keeps the memory valid, as said above.
        let new = unsafe { pd.0.mr_register(addr.cast(), len, access_of(access)?) }?;
        // SAFETY: as above.
        unsafe { give(mr, srd_mr(new)) }?;
        Ok(0)
    })
}

/// As srd_mr_register, with the first byte named `iova` in requests and by peers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_mr_register_iova(
    pd: *const srd_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: u32,
    mr: *mut *mut srd_mr,
) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        let pd = unsafe { at(pd, "the protection domain") }?;
        // SAFETY: the caller keeps the memory valid, as said above.
        let new = unsafe { pd.0.mr_register_at(addr.cast(), len, iova, access_of(access)?) }?;
        // SAFETY: as above.
        unsafe { give(mr, srd_mr(new)) }?;
        Ok(0)
    })
}

/// Key of a region: lkey and rkey are the same. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_mr_key(mr: *const srd_mr) -> u32 {
    // SAFETY: the contract of the header.
    unsafe { mr.as_ref() }.map_or(0, |m| m.0.lkey().0)
}

/// Deregisters a region. When this returns, the device touches the memory no more; outstanding
/// requests that use it end with status 5.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_mr_deregister(mr: *mut srd_mr) -> c_int {
    run(|| {
        // SAFETY: the contract of the header.
        unsafe { take(mr, "the memory region", |_| false) }?.0.deregister();
        Ok(0)
    })
}
