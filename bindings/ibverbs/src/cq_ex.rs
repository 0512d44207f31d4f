//! Completion queues: the extended polling interface (`ibv_start_poll`) with efadv's additions.

use crate::{
    abi::{
        efadv_cq, efadv_cq_init_attr, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_gid,
        ibv_poll_cq_attr,
    },
    cq::{self, Cq},
    errno,
    num::{
        EFADV_WC_EX_WITH_IS_UNSOLICITED, EFADV_WC_EX_WITH_SGID, IBV_CQ_INIT_ATTR_MASK_FLAGS,
        IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_STANDARD_FLAGS,
    },
    pd::Pd,
    tail::read_tail,
};
use libc::{c_int, c_uint};
use srd::{AhId, CompletionOp, WorkCompletion};
use srd_guard::guarded;
use std::{mem::offset_of, ptr};

/// The function table around the plain queue.
pub(crate) const fn table(base: ibv_cq) -> ibv_cq_ex {
    ibv_cq_ex {
        base,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll,
        next_poll,
        end_poll,
        read_opcode,
        read_vendor_err,
        read_byte_len,
        read_imm_data,
        read_qp_num,
        read_src_qp,
        read_wc_flags,
        read_slid,
        read_sl: read_zero,
        read_dlid_path_bits: read_zero,
        reserved: [None; 5],
    }
}

/// efadv's function table.
pub(crate) const EFADV: efadv_cq =
    efadv_cq { comp_mask: 0, wc_read_sgid: read_sgid, wc_is_unsolicited: is_unsolicited };

/// `ibv_create_cq_ex`.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: required of the caller.
    unsafe { create(context, attr, &efadv_cq_init_attr::default()) }
}

/// `efadv_create_cq`, called by libefa.so.1.
///
/// # Safety
/// As the efadv manual page requires: `efa` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_create_cq(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
    efa: *const efadv_cq_init_attr,
    len: u32,
) -> *mut ibv_cq_ex {
    // SAFETY: required of the caller.
    match unsafe { read_tail(efa, len as usize) } {
        // SAFETY: required of the caller.
        Some(efa) => unsafe { create(context, attr, &efa) },
        None => errno::null(libc::EINVAL),
    }
}

/// # Safety
/// As the verbs manual page requires.
unsafe fn create(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
    efa: &efadv_cq_init_attr,
) -> *mut ibv_cq_ex {
    // SAFETY: a valid structure.
    let attr = unsafe { &*attr };
    let masks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    let flags = i64::from(attr.comp_mask) & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
    let wc_flags = (EFADV_WC_EX_WITH_SGID | EFADV_WC_EX_WITH_IS_UNSOLICITED) as u64;
    if efa.comp_mask != 0 || efa.reserved != 0 {
        return errno::null(libc::EINVAL);
    }
    // Completions in a device's memory are not supported.
    if i64::from(attr.comp_mask) & !masks != 0
        || (flags && i64::from(attr.flags) & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0)
        || attr.wc_flags & !(IBV_WC_STANDARD_FLAGS as u64) != 0
        || efa.wc_flags & !wc_flags != 0
        || efa.flags != 0
    {
        return errno::null(libc::EOPNOTSUPP);
    }
    let mut domain = ptr::null_mut();
    if i64::from(attr.comp_mask) & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
        domain = attr.parent_domain;
        // SAFETY: null or a live domain.
        if !unsafe { domain.cast::<Pd>().as_ref() }.is_some_and(Pd::is_parent) {
            return errno::null(libc::EINVAL);
        }
    }
    let (cqe, vector) = (attr.cqe, attr.comp_vector);
    // SAFETY: the context is open, the channel and the domain null or alive.
    unsafe { cq::create(context, cqe, attr.cq_context, attr.channel, vector, domain) }.cast()
}

/// `efadv_cq_from_ibv_cq_ex`, called by libefa.so.1.
///
/// # Safety
/// As the efadv manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_cq_from_ibv_cq_ex(cq: *mut ibv_cq_ex) -> *mut efadv_cq {
    // SAFETY: a live queue.
    (&raw const unsafe { Cq::of(cq.cast()) }.efadv).cast_mut()
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: null or a valid structure.
    if unsafe { attr.as_ref() }.is_some_and(|a| a.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: a live queue.
    let this = unsafe { Cq::of(cq.cast()) };
    // It is unlocked if there is no completion, or if this panics.
    let Some(mut locked) = this.locked() else { return libc::EDEADLK };
    match locked.taken().take(&this.cq, &this.opened.polled, false) {
        Some(completion) => {
            locked.taken().current = completion;
            // SAFETY: the lock is held.
            unsafe { show(cq, &completion) };
            // The lock is held until `end_poll`.
            std::mem::forget(locked);
            0
        }
        None if this.opened.device.has_failed() => libc::EIO,
        None => libc::ENOENT,
    }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: a live queue, locked since `start_poll`.
    let (this, taken) = unsafe {
        let this = Cq::of(cq.cast());
        (this, this.held())
    };
    match taken.take(&this.cq, &this.opened.polled, true) {
        Some(completion) => {
            taken.current = completion;
            // SAFETY: the lock is held.
            unsafe { show(cq, &completion) };
            0
        }
        None => libc::ENOENT,
    }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: a live queue, locked since `start_poll`.
    unsafe { Cq::of(cq.cast()) }.unlock();
}

/// Writes the fields that programs read without a call.
///
/// # Safety
/// As the verbs manual page requires.
unsafe fn show(cq: *mut ibv_cq_ex, c: &WorkCompletion) {
    // SAFETY: the caller holds the queue's lock.
    unsafe {
        (&raw mut (*cq).wr_id).write(c.wr_id);
        (&raw mut (*cq).status).write(cq::status(c.status));
    }
}

/// The completion whose fields are being read.
///
/// # Safety
/// As the verbs manual page requires.
unsafe fn current<'a>(cq: *mut ibv_cq_ex) -> &'a WorkCompletion {
    // SAFETY: a live queue, locked since `start_poll`.
    unsafe { &Cq::of(cq.cast()).held().current }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: called between start and end of a poll.
    cq::opcode(unsafe { current(cq) }.op)
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: called between start and end of a poll.
    cq::vendor_err(unsafe { current(cq) }.status)
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: called between start and end of a poll.
    unsafe { current(cq) }.byte_len
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: called between start and end of a poll.
    unsafe { current(cq) }.imm.unwrap_or(0).to_be()
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: called between start and end of a poll.
    u32::from(unsafe { current(cq) }.qpn.0)
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: called between start and end of a poll.
    u32::from(unsafe { current(cq) }.src_qpn.0)
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: called between start and end of a poll.
    cq::wc_flags(unsafe { current(cq) })
}

/// The number of the sender's address handle.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_slid(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: called between start and end of a poll.
    let (this, c) = unsafe { (Cq::of(cq.cast()), current(cq)) };
    u32::from(this.opened.ah_of(c).0)
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn read_zero(_cq: *mut ibv_cq_ex) -> u8 {
    0
}

/// The queue that contains efadv's table.
///
/// # Safety
/// As the verbs manual page requires.
unsafe fn around<'a>(efadv: *mut efadv_cq) -> &'a Cq {
    // SAFETY: such pointers are to the field of a live queue.
    unsafe { &*efadv.byte_sub(offset_of!(Cq, efadv)).cast::<Cq>() }
}

/// The sender's GID, if no address handle exists for it.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded(-libc::EIO)]
unsafe extern "C" fn read_sgid(efadv: *mut efadv_cq, gid: *mut ibv_gid) -> c_int {
    // SAFETY: called between start and end of a poll.
    let (this, c) = unsafe {
        let this = around(efadv);
        (this, &this.held().current)
    };
    match c.src_ip {
        Some(ip) if this.opened.ah_of(c) == AhId::UNKNOWN => {
            // SAFETY: a place for the GID.
            unsafe { gid.write(ibv_gid(srd::gid_from_ip(ip))) };
            0
        }
        _ => -libc::ENOENT,
    }
}

/// # Safety
/// As the verbs manual page requires.
#[guarded(look)]
unsafe extern "C" fn is_unsolicited(efadv: *mut efadv_cq) -> bool {
    // SAFETY: called between start and end of a poll.
    unsafe { around(efadv).held().current.op == CompletionOp::RecvUnsolicited }
}
