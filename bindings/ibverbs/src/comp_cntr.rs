//! Completion counters (`ibv_create_comp_cntr`, `efadv_create_comp_cntr` and what belongs to
//! them): the counters of the crate [`srd`]. Two parts of the interface are optional, and this
//! device lacks them: counters of bytes, and counters of a peer's reads and writes, because a
//! responder is not told where a write without immediate ends.

use crate::{
    abi::{ibv_context, ibv_qp},
    context::Context,
    errno,
    num::{
        EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM, EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM,
        EFADV_MEMORY_LOCATION_VA, IBV_COMP_CNTR_TYPE_WRS, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ,
        IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE, IBV_QP_ATTACH_COMP_CNTR_OP_RECV,
        IBV_QP_ATTACH_COMP_CNTR_OP_SEND,
    },
    opened::Opened,
    pd::next_handle,
    qp::Qp,
    tail::{read_tail, write_tail},
};
use libc::{c_int, size_t};
use srd::{COUNTERS_MAX, CompletionCounter, CountedOp};
use srd_guard::guarded;
use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

/// `struct ibv_comp_cntr`.
#[repr(C)]
pub struct ibv_comp_cntr {
    /// The context that it was created in.
    pub context: *mut ibv_context,
    /// A number for logs.
    pub handle: u32,
}

/// `struct ibv_comp_cntr_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_comp_cntr_init_attr {
    /// Must be 0.
    pub comp_mask: u32,
    /// What is counted: `IBV_COMP_CNTR_TYPE_…`.
    pub kind: c_int,
    /// Must be 0.
    pub flags: u32,
}

/// `struct ibv_comp_cntr_caps`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_comp_cntr_caps {
    /// Largest value, after which a counter is 0 again.
    pub max_value: u64,
    /// Counters of a device.
    pub max_counters: u32,
    /// `IBV_QP_ATTACH_COMP_CNTR_OP_…`.
    pub supported_qp_attach_ops: u32,
}

/// `struct ibv_qp_attach_comp_cntr_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attach_comp_cntr_attr {
    /// Must be 0.
    pub comp_mask: u32,
    /// `IBV_QP_ATTACH_COMP_CNTR_OP_…`.
    pub op_mask: u32,
}

/// `struct efadv_memory_location`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct efadv_memory_location {
    /// Address, as a number.
    pub ptr: usize,
    /// Offset of a memory of the type `EFADV_MEMORY_LOCATION_DMABUF`.
    pub dmabuf_offset: u64,
    /// Descriptor of such a memory.
    pub dmabuf_fd: i32,
    /// Not used.
    pub dmabuf_reserved: u32,
    /// `EFADV_MEMORY_LOCATION_…`.
    pub kind: u8,
    /// Not used.
    pub reserved: [u8; 7],
}

/// `struct efadv_comp_cntr_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct efadv_comp_cntr_init_attr {
    /// Must be 0.
    pub comp_mask: u64,
    /// `EFADV_COMP_CNTR_INIT_WITH_…`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Where the number of completions is.
    pub comp_cntr_ext_mem: efadv_memory_location,
    /// Where the number of errors is.
    pub err_cntr_ext_mem: efadv_memory_location,
}

/// The operations that can be counted.
const OPS: [(i64, CountedOp); 4] = [
    (IBV_QP_ATTACH_COMP_CNTR_OP_SEND, CountedOp::Send),
    (IBV_QP_ATTACH_COMP_CNTR_OP_RECV, CountedOp::Recv),
    (IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ, CountedOp::Read),
    (IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE, CountedOp::Write),
];

/// [`OPS`] as a mask.
fn ops_mask() -> u32 {
    OPS.iter().fold(0, |mask, (bit, _)| mask | *bit as u32)
}

/// A counter.
#[repr(C)]
struct CompCntr {
    base: ibv_comp_cntr,
    counter: CompletionCounter,
    _opened: Arc<Opened>,
}

impl CompCntr {
    /// # Safety
    /// `cntr` was created here and is not destroyed.
    unsafe fn of<'a>(cntr: *mut ibv_comp_cntr) -> &'a Self {
        // SAFETY: such pointers are to the first field.
        unsafe { &*cntr.cast::<Self>() }
    }
}

/// # Safety
/// As the verbs manual page requires: `caps` has `size` bytes.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    _context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
    size: size_t,
) -> c_int {
    let told = ibv_comp_cntr_caps {
        max_value: u64::MAX,
        max_counters: COUNTERS_MAX,
        supported_qp_attach_ops: ops_mask(),
    };
    // SAFETY: `size` bytes are there.
    unsafe { write_tail(caps, size, &told) };
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_create_comp_cntr(
    context: *mut ibv_context,
    attr: *const ibv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    // SAFETY: required of the caller.
    unsafe { create(context, attr, &efadv_comp_cntr_init_attr::default()) }
}

/// `efadv_create_comp_cntr`, called by libefa.so.1.
///
/// # Safety
/// As the efadv manual page requires: `efa` has `len` bytes, and what it refers to stays valid.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_create_comp_cntr(
    context: *mut ibv_context,
    attr: *const ibv_comp_cntr_init_attr,
    efa: *const efadv_comp_cntr_init_attr,
    len: u32,
) -> *mut ibv_comp_cntr {
    let len = len as usize;
    // SAFETY: `len` bytes are there.
    let read = unsafe { read_tail(efa, len) };
    match read.filter(|_| len >= size_of::<efadv_comp_cntr_init_attr>()) {
        // SAFETY: required of the caller.
        Some(efa) => unsafe { create(context, attr, &efa) },
        None => errno::null(libc::EINVAL),
    }
}

/// # Safety
/// As the manual pages of both functions require.
unsafe fn create(
    context: *mut ibv_context,
    attr: *const ibv_comp_cntr_init_attr,
    efa: &efadv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    // SAFETY: null or a valid structure.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return errno::null(libc::EINVAL) };
    if efa.reserved != 0 {
        return errno::null(libc::EINVAL);
    }
    const FLAGS: i64 =
        EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM;
    if attr.comp_mask != 0
        || attr.flags != 0
        || i64::from(attr.kind) != IBV_COMP_CNTR_TYPE_WRS
        || efa.comp_mask != 0
        || i64::from(efa.flags) & !FLAGS != 0
    {
        return errno::null(libc::EOPNOTSUPP);
    }
    let places = [
        (EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM, &efa.comp_cntr_ext_mem),
        (EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM, &efa.err_cntr_ext_mem),
    ];
    let mut memory = [None; 2];
    for (place, (flag, location)) in memory.iter_mut().zip(places) {
        match place_of(i64::from(efa.flags) & flag != 0, location) {
            Ok(found) => *place = found,
            Err(code) => return errno::null(code),
        }
    }
    // SAFETY: the context is open.
    let opened = Arc::clone(&unsafe { Context::of(context) }.opened);
    // SAFETY: the memory is the program's, which keeps it until the counter is destroyed, and that
    // is refused while a queue pair counts there.
    match unsafe { opened.device.counter_create_in(memory[0], memory[1]) } {
        Ok(counter) => {
            let base = ibv_comp_cntr { context, handle: next_handle() };
            Box::into_raw(Box::new(CompCntr { base, counter, _opened: opened })).cast()
        }
        Err(e) => errno::null(e.errno()),
    }
}

/// The program's memory for one number, if it wants some.
fn place_of(wanted: bool, of: &efadv_memory_location) -> Result<Option<NonNull<u64>>, c_int> {
    if !wanted {
        // The program need not have written anything there.
        return Ok(None);
    }
    match i64::from(of.kind) {
        EFADV_MEMORY_LOCATION_VA => {
            let place = NonNull::new(ptr::with_exposed_provenance_mut::<u64>(of.ptr));
            place.ok_or(libc::EINVAL).map(Some)
        }
        // A buffer of another device (`EFADV_MEMORY_LOCATION_DMABUF`): processors and devices would
        // not see one number there.
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_destroy_comp_cntr(cntr: *mut ibv_comp_cntr) -> c_int {
    // SAFETY: a live counter.
    if unsafe { CompCntr::of(cntr) }.counter.in_use() {
        return libc::EBUSY;
    }
    // SAFETY: it came from `create`.
    drop(unsafe { Box::from_raw(cntr.cast::<CompCntr>()) });
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    qp: *mut ibv_qp,
    cntr: *mut ibv_comp_cntr,
    attr: *const ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    // SAFETY: null or a valid structure.
    let Some(attr) = (unsafe { attr.as_ref() }).filter(|attr| attr.comp_mask == 0) else {
        return libc::EINVAL;
    };
    if attr.op_mask & !ops_mask() != 0 {
        return libc::EOPNOTSUPP;
    }
    let wanted = OPS.iter().filter(|(bit, _)| i64::from(attr.op_mask) & bit != 0);
    let ops: Vec<_> = wanted.map(|(_, op)| *op).collect();
    // SAFETY: a live queue pair and a live counter.
    let (this, cntr) = unsafe { (Qp::of(qp), CompCntr::of(cntr)) };
    this.qp.counter_attach(&cntr.counter, &ops).map_or_else(srd::Error::errno, |()| 0)
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_set_comp_cntr(cntr: *mut ibv_comp_cntr, value: u64) -> c_int {
    // SAFETY: a live counter.
    unsafe { CompCntr::of(cntr) }.counter.set(value);
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_set_err_comp_cntr(cntr: *mut ibv_comp_cntr, value: u64) -> c_int {
    // SAFETY: a live counter.
    unsafe { CompCntr::of(cntr) }.counter.set_errors(value);
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_inc_comp_cntr(cntr: *mut ibv_comp_cntr, amount: u64) -> c_int {
    // SAFETY: a live counter.
    unsafe { CompCntr::of(cntr) }.counter.add(amount);
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_inc_err_comp_cntr(cntr: *mut ibv_comp_cntr, amount: u64) -> c_int {
    // SAFETY: a live counter.
    unsafe { CompCntr::of(cntr) }.counter.add_errors(amount);
    0
}

/// Drives the device if the counter stands still: programs that count poll nothing.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_read_comp_cntr(cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int {
    // SAFETY: a live counter.
    let counter = &unsafe { CompCntr::of(cntr) }.counter;
    // SAFETY: a place for the value.
    unsafe { read(counter, CompletionCounter::completions, value) }
}

/// See [`ibv_read_comp_cntr`].
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_read_err_comp_cntr(
    cntr: *mut ibv_comp_cntr,
    value: *mut u64,
) -> c_int {
    // SAFETY: a live counter.
    let counter = &unsafe { CompCntr::of(cntr) }.counter;
    // SAFETY: a place for the value.
    unsafe { read(counter, CompletionCounter::errors, value) }
}

/// # Safety
/// `value` is a place for a number.
unsafe fn read(
    counter: &CompletionCounter,
    number: fn(&CompletionCounter) -> u64,
    value: *mut u64,
) -> c_int {
    if let Err(e) = counter.progress() {
        return e.errno();
    }
    // SAFETY: required of the caller.
    unsafe { value.write(number(counter)) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::EFADV_MEMORY_LOCATION_DMABUF;

    #[test]
    fn a_location_counts_only_where_it_is_wanted() {
        let at = |kind: i64, ptr| efadv_memory_location {
            kind: kind as u8,
            ptr,
            ..efadv_memory_location::default()
        };
        for kind in 0..=u8::MAX {
            let garbage = at(i64::from(kind), 0xdead_beef);
            assert_eq!(place_of(false, &garbage), Ok(None), "kind {kind}");
            let known = i64::from(kind) == EFADV_MEMORY_LOCATION_VA;
            let wanted = place_of(true, &garbage).map(|place| place.is_some());
            assert_eq!(wanted, if known { Ok(true) } else { Err(libc::EOPNOTSUPP) });
        }
        assert_eq!(place_of(true, &at(EFADV_MEMORY_LOCATION_VA, 0)), Err(libc::EINVAL));
        let dmabuf = at(EFADV_MEMORY_LOCATION_DMABUF, 8);
        assert_eq!(place_of(true, &dmabuf), Err(libc::EOPNOTSUPP));
    }

    #[test]
    fn what_must_be_zero_is_looked_at_before_anything_else() {
        let attr = ibv_comp_cntr_init_attr::default();
        let code = || std::io::Error::last_os_error().raw_os_error();
        let mut efa = efadv_comp_cntr_init_attr { reserved: 1, ..Default::default() };
        // SAFETY: refused before the context is used.
        assert!(unsafe { create(ptr::null_mut(), &raw const attr, &efa) }.is_null());
        assert_eq!(code(), Some(libc::EINVAL));
        (efa.reserved, efa.comp_mask) = (0, 1);
        // SAFETY: the same.
        assert!(unsafe { create(ptr::null_mut(), &raw const attr, &efa) }.is_null());
        assert_eq!(code(), Some(libc::EOPNOTSUPP));
    }
}
