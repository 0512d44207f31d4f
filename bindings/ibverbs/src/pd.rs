//! Protection domains, memory regions, address handles.

use crate::{
    abi::{
        ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_mr, ibv_parent_domain_init_attr, ibv_pd,
        ibv_td, ibv_td_init_attr, ibv_wc,
    },
    context::Context,
    errno,
    num::{
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_WRITE, IBV_WC_GRH,
    },
};
use libc::{c_int, c_uint, c_void, size_t};
use srd::{Access, AddressHandle, MemoryRegion, ProtectionDomain, ip_from_gid};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// The address handles of a domain: one per address, however often it was asked for, so that equal
/// addresses have equal numbers.
type Handles = Arc<Mutex<BTreeMap<IpAddr, (AddressHandle, usize)>>>;

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    base: ibv_pd,
    pub pd: ProtectionDomain,
    handles: Handles,
}

impl Pd {
    /// # Safety
    /// `pd` came from here and was not given back.
    pub(crate) unsafe fn of<'a>(pd: *mut ibv_pd) -> &'a Self {
        // SAFETY: such pointers are to the first field.
        unsafe { &*pd.cast::<Self>() }
    }
}

/// Numbers for the fields called `handle`, by which programs tell objects apart in their logs.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the context is open.
    match unsafe { Context::of(context) }.device.pd_create() {
        Ok(pd) => give_pd(context, pd, Handles::default()),
        Err(e) => errno::null(e.errno()),
    }
}

fn give_pd(context: *mut ibv_context, pd: ProtectionDomain, handles: Handles) -> *mut ibv_pd {
    let base = ibv_pd { context, handle: next_handle() };
    Box::into_raw(Box::new(Pd { base, pd, handles })).cast()
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: a live domain.
    if unsafe { Pd::of(pd) }.pd.in_use() {
        return libc::EBUSY;
    }
    // SAFETY: it came from `give_pd`.
    drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
    0
}

/// A domain for use together with its parent. Thread domains change nothing here, and memory is
/// never taken from allocators of the program.
///
/// # Safety
/// As verbs.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: a valid structure.
    let attr = unsafe { &*attr };
    if attr.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    if attr.comp_mask != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: a live domain.
    let parent = unsafe { Pd::of(attr.pd) };
    give_pd(context, parent.pd.clone(), Arc::clone(&parent.handles))
}

/// # Safety
/// As verbs.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: a valid structure.
    if unsafe { (*attr).comp_mask } != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    Box::into_raw(Box::new(ibv_td { context }))
}

/// # Safety
/// As verbs.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: it came from `alloc_td`.
    drop(unsafe { Box::from_raw(td) });
    0
}

/// A memory region.
#[repr(C)]
struct Mr {
    base: ibv_mr,
    _region: MemoryRegion,
}

/// # Safety
/// As verbs: the memory stays valid until it was deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: as promised by the caller.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr.addr() as u64, access as c_uint) }
}

/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: as promised by the caller.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let access = match access_of(access) {
        Ok(access) => access,
        Err(code) => return errno::null(code),
    };
    // SAFETY: a live domain.
    let domain = unsafe { Pd::of(pd) };
    // SAFETY: the caller keeps the memory until it is deregistered.
    let region = unsafe { domain.pd.mr_register_at(addr.cast(), length, iova, access) };
    match region {
        Ok(region) => {
            let (lkey, rkey) = (region.lkey(), region.rkey());
            let context = domain.base.context;
            let base = ibv_mr { context, pd, addr, length, handle: next_handle(), lkey, rkey };
            Box::into_raw(Box::new(Mr { base, _region: region })).cast()
        }
        Err(e) => errno::null(e.errno()),
    }
}

/// Rights as the device has them. Optional ones that it does not have are left out.
fn access_of(access: c_uint) -> Result<u8, i32> {
    const MAP: [(i64, u8); 3] = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
    ];
    let mut left = i64::from(access) & !IBV_ACCESS_OPTIONAL_RANGE;
    let mut rights = 0;
    for (bit, right) in MAP {
        if left & bit != 0 {
            (left, rights) = (left & !bit, rights | right);
        }
    }
    if left == 0 { Ok(rights) } else { Err(libc::EOPNOTSUPP) }
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: it came from a registration here; dropping the region deregisters it.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    0
}

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    base: ibv_ah,
    pub ah: AddressHandle,
    handles: Handles,
}

impl Ah {
    /// # Safety
    /// `ah` came from here and was not given back.
    pub(crate) unsafe fn of<'a>(ah: *mut ibv_ah) -> &'a Self {
        // SAFETY: such pointers are to the first field.
        unsafe { &*ah.cast::<Self>() }
    }

    /// The number by which completions name it.
    pub(crate) fn number(&self) -> u16 {
        self.ah.id().0
    }
}

/// Only the destination's GID and the port count, as for EFA.
///
/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: a live domain and a valid structure.
    let (domain, attr) = unsafe { (Pd::of(pd), &*attr) };
    if attr.port_num != 1 {
        return errno::null(libc::EINVAL);
    }
    let ip = ip_from_gid(attr.grh.dgid.0);
    let mut handles = domain.handles.lock().unwrap_or_else(PoisonError::into_inner);
    let ah = match handles.get_mut(&ip) {
        Some((ah, users)) => {
            *users += 1;
            ah.clone()
        }
        None => match domain.pd.ah_create(ip) {
            Ok(ah) => {
                handles.insert(ip, (ah.clone(), 1));
                ah
            }
            Err(e) => return errno::null(e.errno()),
        },
    };
    drop(handles);
    let base = ibv_ah { context: domain.base.context, pd, handle: u32::from(ah.id().0) };
    Box::into_raw(Box::new(Ah { base, ah, handles: Arc::clone(&domain.handles) })).cast()
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: it came from `ibv_create_ah`.
    let this = unsafe { Box::from_raw(ah.cast::<Ah>()) };
    let mut handles = this.handles.lock().unwrap_or_else(PoisonError::into_inner);
    let last = handles.get_mut(&this.ah.ip()).is_some_and(|(_, users)| {
        *users -= 1;
        *users == 0
    });
    if last {
        handles.remove(&this.ah.ip());
    }
    0
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: a valid completion.
    if grh.is_null() || unsafe { (*wc).wc_flags } & IBV_WC_GRH as c_uint == 0 {
        return errno::minus_one(libc::EINVAL);
    }
    let mut of = ibv_ah_attr { is_global: 1, port_num: port, ..ibv_ah_attr::default() };
    // SAFETY: 40 bytes of header, perhaps not aligned, and a place for the attributes.
    unsafe {
        of.grh.dgid = (&raw const (*grh).sgid).read_unaligned();
        attr.write(of);
    }
    0
}

/// # Safety
/// As verbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr::default();
    // SAFETY: as promised by the caller.
    unsafe {
        let context = Pd::of(pd).base.context;
        if ibv_init_ah_from_wc(context, port, wc, grh, &raw mut attr) != 0 {
            return std::ptr::null_mut();
        }
        ibv_create_ah(pd, &raw mut attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_translated_and_unknown_ones_refused() {
        assert_eq!(access_of(0), Ok(0));
        assert_eq!(
            access_of(7),
            Ok(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)
        );
        assert_eq!(access_of(1 | 1 << 20), Ok(Access::LOCAL_WRITE));
        assert_eq!(access_of(8), Err(libc::EOPNOTSUPP));
    }
}
