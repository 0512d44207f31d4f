//! Opening a device, and queries about it.

use crate::{
    abi::{
        ABI_IS_EXTENDED, PHYS_PORT_CNT_EX_OFFSET, PORT_ATTR_COMPAT_BYTES, ibv_context,
        ibv_context_ops, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry,
        ibv_port_attr, ibv_query_device_ex_input, verbs_context,
    },
    channel, cq, cq_ex,
    devices::{Entry, FW_VER, chars},
    errno,
    events::Inbox,
    num::{
        IBV_ATOMIC_NONE, IBV_LINK_LAYER_UNSPECIFIED, IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024,
        IBV_MTU_2048, IBV_MTU_4096, IBV_PORT_ACTIVE, int,
    },
    opened::Opened,
    pd, qp, recv,
    settings::settings,
    stack, stubs, wr,
};
use libc::{c_int, c_void, size_t};
use srd::datapath::route;
use srd_guard::guarded;
use std::{mem::offset_of, os::fd::AsRawFd, ptr, sync::Arc};

/// Largest queue depth offered: sufficient for the known programs, and small enough that programs
/// which fill the receive queue with MTU-sized buffers do not need hundreds of mebibytes.
pub(crate) const SQ_DEPTH_MAX: u32 = 4096;
/// See [`SQ_DEPTH_MAX`].
pub(crate) const RQ_DEPTH_MAX: u32 = 4096;
/// Completion vectors. They do not differ, but programs reserve one for "no events".
const COMP_VECTORS: c_int = 2;
/// Memory regions, protection domains and address handles reported; the device has no fixed tables
/// for them.
const OBJECTS_MAX: c_int = 65_535;
/// The only entry of the port's partition key table, as for EFA.
const PKEY: u16 = 0xffff;
/// `phys_state`: link up.
const PHYS_STATE_LINK_UP: u8 = 5;
/// `gid_type` of an address that is not a RoCE address.
const GID_TYPE_IB: u32 = 0;

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    verbs: verbs_context,
    pub opened: Arc<Opened>,
    pub entry: &'static Entry,
    pub inbox: Arc<Inbox>,
}

impl Context {
    /// The context behind a program's pointer.
    ///
    /// # Safety
    /// `context` came from `ibv_open_device` and is open.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        let offset = offset_of!(verbs_context, context);
        // SAFETY: such pointers are to the last field of `verbs`, which is the first of `Self`.
        unsafe { &*context.byte_sub(offset).cast::<Self>() }
    }

    fn base(&self) -> *mut ibv_context {
        (&raw const self.verbs.context).cast_mut()
    }
}

const OPS: ibv_context_ops = ibv_context_ops {
    reserved0: [None; 7],
    alloc_mw: None,
    bind_mw: Some(stubs::unsupported),
    dealloc_mw: Some(stubs::unsupported),
    reserved10: None,
    poll_cq: cq::poll_cq,
    req_notify_cq: channel::req_notify_cq,
    reserved13: [None; 7],
    post_srq_recv: stubs::not_supported,
    reserved21: [None; 4],
    post_send: wr::post_send,
    post_recv: recv::post_recv,
    reserved27: [None; 5],
};

/// Opens a device. All contexts of one device in a process share it.
///
/// # Safety
/// As the verbs manual page requires: `device` came from the list.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: it came from the list.
    let entry = unsafe { Entry::of(device) };
    let acquired = entry.acquire();
    stack::clear();
    let opened = match acquired {
        Ok(opened) => opened,
        Err(code) => return errno::null(code),
    };
    // Allocated first, because its address identifies the owner of the inbox.
    let mut place = Box::<Context>::new_uninit();
    let address = place.as_ptr().addr() + offset_of!(verbs_context, context);
    let Some(inbox) = Inbox::new(address) else {
        entry.release(&opened);
        return errno::null(libc::EMFILE);
    };
    // Programs read events from the descriptor and make it non-blocking; both descriptors are
    // theirs until they close the context.
    let async_fd = inbox.descriptor(&opened.device);
    // SAFETY: no memory is passed.
    let cmd_fd =
        unsafe { libc::fcntl(opened.device.event_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    opened.inboxes().push(Arc::clone(&inbox));
    place.write(Context {
        verbs: verbs_context {
            reserved0: [None; 6],
            query_port,
            reserved7: [None; 13],
            alloc_parent_domain: pd::alloc_parent_domain,
            dealloc_td: pd::dealloc_td,
            alloc_td: pd::alloc_td,
            reserved23: [None; 8],
            create_cq_ex: cq_ex::create_cq_ex,
            reserved32: ptr::null_mut(),
            query_device_ex,
            reserved34: [None; 5],
            create_qp_ex: qp::create_qp_ex,
            reserved40: [None; 4],
            reserved44: 0,
            sz: size_of::<verbs_context>(),
            context: ibv_context {
                device,
                ops: OPS,
                cmd_fd,
                async_fd,
                num_comp_vectors: COMP_VECTORS,
                mutex: libc::PTHREAD_MUTEX_INITIALIZER,
                abi_compat: ptr::without_provenance_mut(ABI_IS_EXTENDED),
            },
        },
        opened,
        entry,
        inbox,
    });
    // SAFETY: just written.
    Box::leak(unsafe { place.assume_init() }).base()
}

/// Closes a context. Objects created from it remain usable until they are destroyed.
///
/// # Safety
/// As the verbs manual page requires: `context` is open.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: it came from `ibv_open_device`, which gave a box away.
    let this = unsafe { Box::from_raw(ptr::from_ref(Context::of(context)).cast_mut()) };
    // SAFETY: the descriptors are this context's.
    unsafe {
        libc::close(this.verbs.context.cmd_fd);
        libc::close(this.verbs.context.async_fd);
    }
    this.opened.inboxes().retain(|inbox| !Arc::ptr_eq(inbox, &this.inbox));
    this.entry.release(&this.opened);
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the context is open; `attr` is a place for the attributes.
    unsafe { attr.write(device_attr(Context::of(context))) };
    0
}

/// Fills in the fields for which the caller's structure has room.
///
/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: size_t,
) -> c_int {
    // SAFETY: null or a valid structure.
    if unsafe { input.as_ref() }.is_some_and(|i| i.comp_mask != 0) || size < size_of_val_attr() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's structure has `size` bytes; the context is open.
    unsafe {
        ptr::write_bytes(attr.cast::<u8>(), 0, size);
        (&raw mut (*attr).orig_attr).write(device_attr(Context::of(context)));
        if size >= PHYS_PORT_CNT_EX_OFFSET + size_of::<u32>() {
            attr.byte_add(PHYS_PORT_CNT_EX_OFFSET).cast::<u32>().write(1);
        }
    }
    0
}

const fn size_of_val_attr() -> usize {
    size_of::<ibv_device_attr>()
}

fn device_attr(context: &Context) -> ibv_device_attr {
    let attr = context.opened.device.attr();
    let guid = context.entry.guid().to_be();
    let int = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
    ibv_device_attr {
        fw_ver: chars(FW_VER),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: attr.max_mr_size,
        page_size_cap: !0xfff,
        vendor_id: settings().vendor_id,
        vendor_part_id: settings().part_id,
        hw_ver: settings().part_id,
        max_qp: int(attr.max_qp),
        max_qp_wr: int(SQ_DEPTH_MAX.min(attr.max_sq_wr)),
        device_cap_flags: 0,
        max_sge: int(attr.max_sq_sge.min(attr.max_rq_sge)),
        max_sge_rd: int(attr.max_sge_rd.min(1)),
        max_cq: int(attr.max_cq),
        max_cqe: int(attr.max_cqe),
        max_mr: OBJECTS_MAX,
        max_pd: OBJECTS_MAX,
        max_qp_rd_atom: 0,
        max_ee_rd_atom: 0,
        max_res_rd_atom: 0,
        max_qp_init_rd_atom: 0,
        max_ee_init_rd_atom: 0,
        atomic_cap: crate::num::int(IBV_ATOMIC_NONE),
        max_ee: 0,
        max_rdd: 0,
        max_mw: 0,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: OBJECTS_MAX,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

/// # Safety
/// As the verbs manual page requires: `attr` has at least the size of the oldest header's
/// structure.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: required of the caller.
    unsafe { query_port(context, port, attr, PORT_ATTR_COMPAT_BYTES) }
}

/// Speed in units of 100 Mb/s.
///
/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the context is open.
    let ip = unsafe { Context::of(context) }.opened.device.port().ip;
    // An unknown speed counts as 100 Gb/s, as for the port's width and speed.
    let bits = route::link_bits_per_sec(ip).unwrap_or(100_000_000_000);
    // SAFETY: a place for the number.
    unsafe { speed.write(bits / 100_000_000) };
    0
}

/// # Safety
/// As the verbs manual page requires.
#[guarded]
unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: size_t,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the context is open.
    let of = port_attr(unsafe { Context::of(context) });
    let known = size.min(size_of::<ibv_port_attr>());
    // SAFETY: the caller's structure has `size` bytes.
    unsafe {
        ptr::write_bytes(attr.cast::<u8>(), 0, size);
        ptr::copy_nonoverlapping((&raw const of).cast::<u8>(), attr.cast(), known);
    }
    0
}

fn port_attr(context: &Context) -> ibv_port_attr {
    let port = context.opened.device.port();
    let mtu = int(match port.active_mtu {
        4096 => IBV_MTU_4096,
        2048 => IBV_MTU_2048,
        1024 => IBV_MTU_1024,
        512 => IBV_MTU_512,
        _ => IBV_MTU_256,
    });
    let (active_width, active_speed) = width_and_speed(route::link_bits_per_sec(port.ip));
    ibv_port_attr {
        state: int(IBV_PORT_ACTIVE),
        max_mtu: mtu,
        active_mtu: mtu,
        gid_tbl_len: port.gid_tbl_len as c_int,
        max_msg_sz: port.max_msg_sz,
        pkey_tbl_len: port.pkey_tbl_len,
        lmc: 1,
        max_vl_num: 1,
        active_width,
        active_speed,
        phys_state: PHYS_STATE_LINK_UP,
        link_layer: IBV_LINK_LAYER_UNSPECIFIED as u8,
        ..ibv_port_attr::default()
    }
}

/// InfiniBand's codes for the number of lanes and the speed of a lane, rounded down; 100 Gb/s if
/// the speed is unknown, as EFA's driver reports.
fn width_and_speed(bits_per_sec: Option<u64>) -> (u8, u8) {
    /// Width (1: one lane, 2: four, 16: two), speed (1: 2.5 Gb/s, 4: 10, 32: 25, 64: 50).
    const TABLE: [(u64, u8, u8); 6] =
        [(200, 2, 64), (100, 2, 32), (50, 16, 32), (40, 2, 4), (25, 1, 32), (10, 2, 1)];
    let gigabits = bits_per_sec.map_or(100, |bits| bits / 1_000_000_000);
    let fits = TABLE.iter().find(|(speed, ..)| *speed <= gigabits);
    fits.map_or((1, 1), |&(_, width, speed)| (width, speed))
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded(-1)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    if port != 1 || index != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the context is open; `gid` is a place for the GID.
    unsafe { gid.write(ibv_gid(Context::of(context).opened.device.gid())) };
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: size_t,
) -> c_int {
    if port != 1 || index != 0 || flags != 0 || size < size_of::<ibv_gid_entry>() {
        return libc::EINVAL;
    }
    // SAFETY: the context is open; `entry` has `size` bytes.
    unsafe {
        ptr::write_bytes(entry.cast::<u8>(), 0, size);
        entry.write(gid_entry(Context::of(context)));
    }
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded(-(libc::EIO as isize))]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max: size_t,
    flags: u32,
    size: size_t,
) -> isize {
    if flags != 0 || size < size_of::<ibv_gid_entry>() {
        return -(libc::EINVAL as isize);
    }
    // The table has one entry, so 0 is too little room.
    if max == 0 {
        return -(libc::EINVAL as isize);
    }
    // SAFETY: the context is open; there is room for `max` entries of `size` bytes.
    unsafe { entries.write(gid_entry(Context::of(context))) };
    1
}

fn gid_entry(context: &Context) -> ibv_gid_entry {
    let gid = ibv_gid(context.opened.device.gid());
    let name = std::ffi::CString::new(context.entry.interface.as_str()).unwrap_or_default();
    // SAFETY: the name ends with zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    ibv_gid_entry { gid, gid_index: 0, port_num: 1, gid_type: GID_TYPE_IB, ndev_ifindex: index }
}

/// Private to rdma-core, but its tools call it.
///
/// # Safety
/// `kind` is a place for the type.
#[unsafe(no_mangle)]
#[guarded(-1)]
pub unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    kind: *mut c_int,
) -> c_int {
    if port != 1 || index != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: a place for the type.
    unsafe { kind.write(GID_TYPE_IB as c_int) };
    0
}

/// # Safety
/// As the verbs manual page requires.
#[unsafe(no_mangle)]
#[guarded(-1)]
pub unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if port != 1 || index != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: a place for the key.
    unsafe { pkey.write(PKEY.to_be()) };
    0
}

/// The index of a partition key (network byte order).
#[unsafe(no_mangle)]
#[guarded(-1)]
pub extern "C" fn ibv_get_pkey_index(_context: *mut c_void, port: u8, pkey: u16) -> c_int {
    if port == 1 && pkey == PKEY.to_be() { 0 } else { errno::minus_one(libc::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_never_zero_and_never_above_the_link() {
        let lanes = |width| [(1, 1), (2, 4), (16, 2)].iter().find(|l| l.0 == width).unwrap().1;
        let speed =
            |n| [(1, 2.5), (4, 10.0), (32, 25.0), (64, 50.0)].iter().find(|s| s.0 == n).unwrap().1;
        for gigabits in [1, 10, 25, 40, 50, 100, 200, 400_u64] {
            let (w, s) = width_and_speed(Some(gigabits * 1_000_000_000));
            let told: f64 = f64::from(lanes(w)) * speed(s);
            assert!(told > 0.0 && told <= (gigabits as f64).max(2.5), "{gigabits}: {told}");
        }
        assert_eq!(width_and_speed(None), (2, 32));
    }
}
