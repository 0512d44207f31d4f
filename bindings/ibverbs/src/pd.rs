//! Protection domains, memory regions, address handles.

use crate::{
    abi::{
        ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_mr, ibv_mr_init_attr,
        ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, ibv_wc,
    },
    context::Context,
    errno,
    num::{
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_WRITE, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, IBV_WC_GRH,
    },
    opened::Opened,
};
use libc::{c_int, c_uint, c_void, size_t};
use srd::{Access, AddressHandle, AhId, MemoryRegion, ProtectionDomain, ip_from_gid};
use srd_guard::guarded;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// The address handles of a domain and of its parent domains: one per address, however often it was
/// requested, so that equal addresses have equal numbers.
struct Handles {
    /// Number shared by the domain and the parent domains made from it.
    family: u32,
    by_ip: Mutex<BTreeMap<IpAddr, (AddressHandle, usize)>>,
}

impl Handles {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<IpAddr, (AddressHandle, usize)>> {
        self.by_ip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    base: ibv_pd,
    pub pd: ProtectionDomain,
    handles: Arc<Handles>,
    /// Number of objects and of parent domains made from it.
    users: AtomicU32,
    /// The domain that a parent domain was made from; null for others.
    origin: *mut ibv_pd,
    /// The thread domain of a parent domain, or null.
    thread: *mut ibv_td,
}

impl Pd {
    /// # Safety
    /// `pd` was created here and is not freed.
    pub(crate) unsafe fn of<'a>(pd: *mut ibv_pd) -> &'a Self {
        // SAFETY: such pointers are to the first field.
        unsafe { &*pd.cast::<Self>() }
    }

    /// Adds a user.
    pub(crate) fn refer(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a user.
    pub(crate) fn unrefer(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether it is a parent domain, made from another domain.
    pub(crate) fn is_parent(&self) -> bool {
        !self.origin.is_null()
    }

    /// The number shared with the parent domains made from it.
    pub(crate) fn family(&self) -> u32 {
        self.handles.family
    }

    /// The number of its address handle for a host, if there is one.
    pub(crate) fn handle_of(&self, ip: IpAddr) -> Option<AhId> {
        self.handles.locked().get(&ip).map(|(ah, _)| ah.id())
    }
}

/// Next value of the fields called `handle`, by which programs distinguish objects in logs.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the context is open.
    match unsafe { Context::of(context) }.opened.device.pd_create() {
        Ok(pd) => {
            let handles = Handles { family: next_handle(), by_ip: Mutex::default() };
            give_pd(context, pd, Arc::new(handles), (ptr::null_mut(), ptr::null_mut()))
        }
        Err(e) => errno::null(e.errno()),
    }
}

fn give_pd(
    context: *mut ibv_context,
    pd: ProtectionDomain,
    handles: Arc<Handles>,
    (origin, thread): (*mut ibv_pd, *mut ibv_td),
) -> *mut ibv_pd {
    let base = ibv_pd { context, handle: next_handle() };
    let users = AtomicU32::new(0);
    Box::into_raw(Box::new(Pd { base, pd, handles, users, origin, thread })).cast()
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: a live domain.
    if unsafe { Pd::of(pd) }.users.load(Ordering::Acquire) > 0 {
        return libc::EBUSY;
    }
    // SAFETY: it came from `give_pd`.
    let this = unsafe { Box::from_raw(pd.cast::<Pd>()) };
    if this.is_parent() {
        // SAFETY: the domain that a parent domain was made from cannot be freed before it.
        unsafe {
            Pd::of(this.origin).unrefer();
            if let Some(thread) = this.thread.cast::<Td>().as_ref() {
                thread.users.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
    0
}

/// Creates a parent domain. Thread domains have no effect, and the program's allocators are not
/// used.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: a valid structure.
    let attr = unsafe { &*attr };
    if attr.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    if i64::from(attr.comp_mask) & !IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: a live domain, and null or a live thread domain.
    let (origin, thread) = unsafe { (Pd::of(attr.pd), attr.td.cast::<Td>().as_ref()) };
    if origin.is_parent() {
        return errno::null(libc::EINVAL);
    }
    origin.refer();
    if let Some(thread) = thread {
        thread.users.fetch_add(1, Ordering::AcqRel);
    }
    give_pd(context, origin.pd.clone(), Arc::clone(&origin.handles), (attr.pd, attr.td))
}

/// A thread domain.
#[repr(C)]
struct Td {
    base: ibv_td,
    /// Number of parent domains made with it.
    users: AtomicU32,
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: a valid structure.
    if unsafe { (*attr).comp_mask } != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    Box::into_raw(Box::new(Td { base: ibv_td { context }, users: AtomicU32::new(0) })).cast()
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: it came from `alloc_td`.
    unsafe {
        let td = td.cast::<Td>();
        if (*td).users.load(Ordering::Acquire) > 0 {
            return libc::EBUSY;
        }
        drop(Box::from_raw(td));
    }
    0
}

/// A memory region.
#[repr(C)]
struct Mr {
    base: ibv_mr,
    _region: MemoryRegion,
}

/// # Safety
/// As the verbs manual page requires: the memory stays valid until the region is deregistered.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: required of the caller.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr.addr() as u64, access as c_uint) }
}

/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: required of the caller.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
#[guarded]
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
            let base = ibv_mr {
                context,
                pd,
                addr,
                length,
                handle: next_handle(),
                lkey: lkey.0,
                rkey: rkey.0,
            };
            domain.refer();
            Box::into_raw(Box::new(Mr { base, _region: region })).cast()
        }
        Err(e) => errno::null(e.errno()),
    }
}

/// Ordinary memory only: device memory and dma-buf are not supported.
///
/// # Safety
/// As [`ibv_reg_mr`].
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    /// `IBV_REG_MR_MASK_IOVA`, and that of the address.
    const IOVA: u64 = 1;
    const ADDR: u64 = 1 << 1;
    // SAFETY: a valid structure.
    let attr = unsafe { &*attr };
    if attr.comp_mask & !(IOVA | ADDR) != 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    if attr.comp_mask & ADDR == 0 {
        return errno::null(libc::EINVAL);
    }
    let here = attr.addr.addr() as u64;
    let iova = if attr.comp_mask & IOVA != 0 { attr.iova } else { here };
    // SAFETY: required of the caller.
    unsafe { ibv_reg_mr_iova2(pd, attr.addr, attr.length, iova, attr.access as c_uint) }
}

/// Access rights of the device. Optional ones that it does not support are ignored.
fn access_of(access: c_uint) -> Result<Access, i32> {
    const MAP: [(i64, Access); 3] = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
    ];
    let mut left = i64::from(access) & !IBV_ACCESS_OPTIONAL_RANGE;
    let mut rights = Access::NONE;
    for (bit, right) in MAP {
        if left & bit != 0 {
            (left, rights) = (left & !bit, rights | right);
        }
    }
    if left == 0 { Ok(rights) } else { Err(libc::EOPNOTSUPP) }
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: it came from a registration here; dropping the region deregisters it.
    let pd = unsafe { Box::from_raw(mr.cast::<Mr>()) }.base.pd;
    // SAFETY: a region's domain cannot be freed before it.
    unsafe { Pd::of(pd) }.unrefer();
    0
}

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    base: ibv_ah,
    pub ah: AddressHandle,
    handles: Arc<Handles>,
    opened: Arc<Opened>,
}

impl Ah {
    /// # Safety
    /// `ah` was created here and is not destroyed.
    pub(crate) unsafe fn of<'a>(ah: *mut ibv_ah) -> &'a Self {
        // SAFETY: such pointers are to the first field.
        unsafe { &*ah.cast::<Self>() }
    }

    /// The number that identifies it in completions.
    pub(crate) fn number(&self) -> u16 {
        self.ah.id().0
    }
}

/// Only the destination's GID and the port are used, as for EFA.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: a live domain and a valid structure.
    let (domain, attr) = unsafe { (Pd::of(pd), &*attr) };
    if attr.port_num != 1 {
        return errno::null(libc::EINVAL);
    }
    let ip = ip_from_gid(attr.grh.dgid.0);
    // SAFETY: the domain's context is open.
    let opened = unsafe { Context::of(domain.base.context) }.opened.clone();
    let mut handles = domain.handles.locked();
    let ah = match handles.get_mut(&ip) {
        Some((ah, users)) => {
            *users += 1;
            ah.clone()
        }
        None => match domain.pd.ah_create(ip) {
            Ok(ah) => {
                handles.insert(ip, (ah.clone(), 1));
                opened.senders.ah_set(ah.id(), domain.family());
                ah
            }
            Err(e) => return errno::null(e.errno()),
        },
    };
    drop(handles);
    let base = ibv_ah { context: domain.base.context, pd, handle: u32::from(ah.id().0) };
    domain.refer();
    Box::into_raw(Box::new(Ah { base, ah, handles: Arc::clone(&domain.handles), opened })).cast()
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: it came from `ibv_create_ah`.
    let this = unsafe { Box::from_raw(ah.cast::<Ah>()) };
    let mut handles = this.handles.locked();
    let last = handles.get_mut(&this.ah.ip()).is_some_and(|(_, users)| {
        *users -= 1;
        *users == 0
    });
    if last {
        this.opened.senders.ah_set(this.ah.id(), 0);
        handles.remove(&this.ah.ip());
    }
    drop(handles);
    // SAFETY: a handle's domain cannot be freed before it.
    unsafe { Pd::of(this.base.pd) }.unrefer();
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded(-1)]
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
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr::default();
    // SAFETY: required of the caller.
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
        assert_eq!(access_of(0), Ok(Access::NONE));
        assert_eq!(
            access_of(7),
            Ok(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)
        );
        assert_eq!(access_of(1 | 1 << 20), Ok(Access::LOCAL_WRITE));
        assert_eq!(access_of(8), Err(libc::EOPNOTSUPP));
    }

    #[test]
    fn domains_go_after_what_was_made_from_them() {
        use crate::{
            context::{ibv_close_device, ibv_open_device},
            devices::Entry,
        };
        let entry = Entry::leaked(std::net::Ipv4Addr::LOCALHOST.into(), "lo");
        let mut gid = ibv_ah_attr { port_num: 1, ..ibv_ah_attr::default() };
        gid.grh.dgid.0 = srd::gid_from_ip(std::net::Ipv4Addr::LOCALHOST.into());
        // SAFETY: the calls follow the rules of verbs, or are refused.
        unsafe {
            let context = ibv_open_device(entry);
            assert!(!context.is_null());
            let td = alloc_td(context, &mut ibv_td_init_attr { comp_mask: 0 });
            let pd = ibv_alloc_pd(context);
            let mut attr = ibv_parent_domain_init_attr {
                pd,
                td,
                comp_mask: 0,
                alloc: None,
                free: None,
                pd_context: ptr::null_mut(),
            };
            let parent = alloc_parent_domain(context, &raw mut attr);
            assert!(!parent.is_null());
            attr.pd = parent;
            assert!(alloc_parent_domain(context, &raw mut attr).is_null(), "no parents of parents");
            let [a, b] = [pd, parent].map(|pd| ibv_create_ah(pd, &raw mut gid));
            assert_eq!(Ah::of(a).number(), Ah::of(b).number(), "one family");
            assert_eq!(dealloc_td(td), libc::EBUSY);
            assert_eq!([ibv_dealloc_pd(pd), ibv_dealloc_pd(parent)], [libc::EBUSY; 2]);
            assert_eq!([ibv_destroy_ah(a), ibv_destroy_ah(b)], [0; 2]);
            assert_eq!([ibv_dealloc_pd(pd), ibv_dealloc_pd(parent)], [libc::EBUSY, 0]);
            assert_eq!([ibv_dealloc_pd(pd), dealloc_td(td), ibv_close_device(context)], [0; 3]);
        }
    }
}
