//! efadv's queries, called by libefa.so.1. The other efadv functions are in the modules of their
//! objects.

use crate::{
    abi::{
        efadv_ah_attr, efadv_device_attr, efadv_mr_attr, efadv_rq_depth_attr, efadv_sq_depth_attr,
        ibv_ah, ibv_context,
    },
    context::{Context, RQ_DEPTH_MAX, SQ_DEPTH_MAX},
    num::{
        EFADV_DEVICE_ATTR_CAPS_COMP_CNTR, EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID,
        EFADV_DEVICE_ATTR_CAPS_RDMA_READ, EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE,
        EFADV_DEVICE_ATTR_CAPS_RNR_RETRY, EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV,
        EFADV_SQ_DEPTH_ATTR_INLINE_WRITE,
    },
    pd::Ah,
    tail::{read_tail, write_tail},
};
use libc::{c_int, c_void};
use srd::{DeviceAttr, caps};
use srd_guard::guarded;

/// Least size of the caller's structure: the fields of the first version.
const DEVICE_ATTR_MIN: usize = 32;

/// # Safety
/// As the efadv manual page requires: `attr` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_query_device(
    context: *mut ibv_context,
    attr: *mut efadv_device_attr,
    len: u32,
) -> c_int {
    if (len as usize) < DEVICE_ATTR_MIN {
        return libc::EINVAL;
    }
    // SAFETY: the context is open.
    let of = unsafe { Context::of(context) }.opened.device.attr();
    let told = efadv_device_attr {
        comp_mask: 0,
        max_sq_wr: SQ_DEPTH_MAX.min(of.max_sq_wr),
        max_rq_wr: RQ_DEPTH_MAX.min(of.max_rq_wr),
        max_sq_sge: of.max_sq_sge as u16,
        max_rq_sge: of.max_rq_sge as u16,
        inline_buf_size: of.inline_buf_size as u16,
        inline_buf_size_ex: of.inline_buf_size_ex as u16,
        device_caps: caps_of(of),
        max_rdma_size: of.max_rdma_size,
    };
    // SAFETY: `len` bytes are there.
    unsafe { write_tail(attr, len as usize, &told) };
    0
}

/// The device's capabilities as efadv's bits.
fn caps_of(attr: &DeviceAttr) -> u32 {
    const MAP: [(u32, i64); 5] = [
        (caps::RDMA_READ, EFADV_DEVICE_ATTR_CAPS_RDMA_READ),
        (caps::RNR_RETRY, EFADV_DEVICE_ATTR_CAPS_RNR_RETRY),
        (caps::CQ_WITH_SGID, EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID),
        (caps::RDMA_WRITE, EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE),
        (caps::UNSOLICITED_WRITE_RECV, EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV),
    ];
    let has = MAP.iter().filter(|(own, _)| attr.device_caps & own != 0);
    let counts = EFADV_DEVICE_ATTR_CAPS_COMP_CNTR as u32;
    has.fold(counts, |sum, (_, theirs)| sum | *theirs as u32)
}

/// # Safety
/// As the efadv manual page requires: `attr` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_query_ah(
    ah: *mut ibv_ah,
    attr: *mut efadv_ah_attr,
    len: u32,
) -> c_int {
    if (len as usize) < size_of::<efadv_ah_attr>() - 6 {
        return libc::EINVAL;
    }
    // SAFETY: a live handle.
    let ahn = unsafe { Ah::of(ah) }.number();
    // SAFETY: `len` bytes are there.
    unsafe { write_tail(attr, len as usize, &efadv_ah_attr { ahn, ..efadv_ah_attr::default() }) };
    0
}

/// Queue depths do not depend on the size of requests.
///
/// # Safety
/// As the efadv manual page requires: `attr` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded(-libc::EIO)]
pub unsafe extern "C" fn srd_efadv_get_max_sq_depth(
    context: *mut ibv_context,
    attr: *const efadv_sq_depth_attr,
    len: u32,
) -> c_int {
    // SAFETY: `len` bytes are there.
    let Some(attr) = (unsafe { read_tail(attr, len as usize) }) else { return -libc::EINVAL };
    // SAFETY: the context is open.
    let of = unsafe { Context::of(context) }.opened.device.attr();
    if attr.comp_mask != 0
        || i64::from(attr.flags) & !EFADV_SQ_DEPTH_ATTR_INLINE_WRITE != 0
        || attr.max_send_sge > of.max_sq_sge
        || attr.max_rdma_sge > 1
        || attr.max_inline_data > of.inline_buf_size_ex
    {
        return -libc::EINVAL;
    }
    SQ_DEPTH_MAX.min(of.max_sq_wr) as c_int
}

/// # Safety
/// As the efadv manual page requires: `attr` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded(-libc::EIO)]
pub unsafe extern "C" fn srd_efadv_get_max_rq_depth(
    context: *mut ibv_context,
    attr: *const efadv_rq_depth_attr,
    len: u32,
) -> c_int {
    // SAFETY: `len` bytes are there.
    let Some(attr) = (unsafe { read_tail(attr, len as usize) }) else { return -libc::EINVAL };
    // SAFETY: the context is open.
    let of = unsafe { Context::of(context) }.opened.device.attr();
    if attr.comp_mask != 0 || attr.max_recv_sge > of.max_rq_sge {
        return -libc::EINVAL;
    }
    RQ_DEPTH_MAX.min(of.max_rq_wr) as c_int
}

/// Regions are ordinary memory: no interconnect is reported.
///
/// # Safety
/// As the efadv manual page requires: `attr` has `len` bytes.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn srd_efadv_query_mr(
    _mr: *mut c_void,
    attr: *mut efadv_mr_attr,
    len: u32,
) -> c_int {
    if (len as usize) < size_of::<u64>() + size_of::<u16>() {
        return libc::EINVAL;
    }
    // SAFETY: `len` bytes are there.
    unsafe { write_tail(attr, len as usize, &efadv_mr_attr::default()) };
    0
}
