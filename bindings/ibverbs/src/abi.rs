//! Structures, constants and function tables of verbs and efadv, laid out as in their headers.
//! `tests/abi.rs` compares sizes, offsets and values with the system's headers.
//!
//! Names are those of verbs. Fields that are not used here are called `reserved`.
#![allow(non_camel_case_types, reason = "names of the C interface")]
#![allow(missing_docs, reason = "documented by verbs' and efadv's manual pages")]

use crate::num::{IBV_QPT_DRIVER, int};
use libc::{c_char, c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t, size_t};

/// `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct ibv_gid(pub [u8; 16]);

#[repr(C)]
pub struct ibv_device {
    pub reserved: [usize; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// An unused slot of a function table.
pub type Empty = Option<unsafe extern "C" fn()>;

/// `struct ibv_context_ops`: only the functions that the headers' inline functions call are set.
#[repr(C)]
pub struct ibv_context_ops {
    pub reserved0: [Empty; 7],
    pub alloc_mw: Empty,
    pub bind_mw: Empty,
    pub dealloc_mw: Empty,
    pub reserved10: Empty,
    pub poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub reserved13: [Empty; 7],
    pub post_srq_recv: unsafe extern "C" fn() -> c_int,
    pub reserved21: [Empty; 4],
    pub post_send:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub post_recv:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    pub reserved27: [Empty; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// `struct verbs_context`, in the length of the newest known version. The structure grows at its
/// front, and programs address it backwards from `context`.
#[repr(C)]
pub struct verbs_context {
    pub reserved0: [Empty; 6],
    pub query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, size_t) -> c_int,
    pub reserved7: [Empty; 13],
    pub alloc_parent_domain:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
    pub dealloc_td: unsafe extern "C" fn(*mut ibv_td) -> c_int,
    pub alloc_td: unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td,
    pub reserved23: [Empty; 8],
    pub create_cq_ex:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    pub reserved32: *mut c_void,
    pub query_device_ex: unsafe extern "C" fn(
        *mut ibv_context,
        *const ibv_query_device_ex_input,
        *mut ibv_device_attr_ex,
        size_t,
    ) -> c_int,
    pub reserved34: [Empty; 5],
    pub create_qp_ex:
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    pub reserved40: [Empty; 4],
    pub reserved44: u64,
    pub sz: size_t,
    pub context: ibv_context,
}

/// Value of `ibv_context::abi_compat` meaning that the context is part of a `verbs_context`.
pub const ABI_IS_EXTENDED: usize = usize::MAX;

#[repr(C)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// The fields of `struct ibv_device_attr_ex` that are filled in; the rest is set to zero.
#[repr(C)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
}

/// Offset of `phys_port_cnt_ex` in `struct ibv_device_attr_ex`.
pub const PHYS_PORT_CNT_EX_OFFSET: usize = 396;

#[repr(C)]
pub struct ibv_query_device_ex_input {
    pub comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_port_attr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    /// Only in newer headers.
    pub active_speed_ex: u32,
}

/// Size of the port attributes for which the oldest callers of `ibv_query_port` have room.
pub const PORT_ATTR_COMPAT_BYTES: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);

#[repr(C)]
pub struct ibv_gid_entry {
    pub gid: ibv_gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}

#[repr(C)]
pub struct ibv_td_init_attr {
    pub comp_mask: u32,
}

#[repr(C)]
pub struct ibv_parent_domain_init_attr {
    pub pd: *mut ibv_pd,
    pub td: *mut ibv_td,
    pub comp_mask: u32,
    pub alloc: Empty,
    pub free: Empty,
    pub pd_context: *mut c_void,
}

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: size_t,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct ibv_mr_init_attr {
    pub length: size_t,
    pub access: c_int,
    pub comp_mask: u64,
    pub iova: u64,
    pub addr: *mut c_void,
    pub fd: c_int,
    pub fd_offset: u64,
    pub dmah: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// `struct ibv_grh`: the 40 bytes before a received UD message.
#[repr(C)]
pub struct ibv_grh {
    pub version_tclass_flow: u32,
    pub paylen: u16,
    pub next_hdr: u8,
    pub hop_limit: u8,
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
}

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

#[repr(C)]
pub struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}

type CqRead<T> = unsafe extern "C" fn(*mut ibv_cq_ex) -> T;

#[repr(C)]
pub struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: c_int,
    pub wr_id: u64,
    pub start_poll: unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
    pub next_poll: CqRead<c_int>,
    pub end_poll: CqRead<()>,
    pub read_opcode: CqRead<c_int>,
    pub read_vendor_err: CqRead<u32>,
    pub read_byte_len: CqRead<u32>,
    pub read_imm_data: CqRead<u32>,
    pub read_qp_num: CqRead<u32>,
    pub read_src_qp: CqRead<u32>,
    pub read_wc_flags: CqRead<c_uint>,
    pub read_slid: CqRead<u32>,
    pub read_sl: CqRead<u8>,
    pub read_dlid_path_bits: CqRead<u8>,
    pub reserved: [Empty; 5],
}

#[repr(C)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

impl ibv_qp_init_attr {
    /// Attributes of a driver's queue pair (SRD) whose completions go to `cq`: `depth` requests
    /// each way, of one piece each, and every one has a completion.
    pub fn driver(cq: *mut ibv_cq, depth: u32) -> Self {
        let cap = ibv_qp_cap {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let null = std::ptr::null_mut();
        let qp_type = int(IBV_QPT_DRIVER);
        Self { qp_context: null, send_cq: cq, recv_cq: cq, srq: null, cap, qp_type, sq_sig_all: 1 }
    }
}

/// `struct ibv_qp_init_attr_ex`. Its first fields equal [`ibv_qp_init_attr`], except for that
/// structure's padding at the end.
#[repr(C)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

impl ibv_qp_init_attr_ex {
    /// The fields that both structures share.
    pub fn base(&self) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: self.qp_context,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            cap: self.cap,
            qp_type: self.qp_type,
            sq_sig_all: self.sq_sig_all,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_qp_attr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_int,
    pub qp_type: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: size_t,
}

#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
    /// Remainder of the unions, for operations that the device does not support.
    pub reserved: [u64; 9],
}

#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// An operation that the device does not support. A program does not call it if it uses only the
/// operations granted at creation.
pub type NoWr = unsafe extern "C" fn(*mut ibv_qp_ex);

#[repr(C)]
pub struct ibv_qp_ex {
    pub base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: NoWr,
    pub wr_atomic_fetch_add: NoWr,
    pub wr_bind_mw: NoWr,
    pub wr_local_inv: NoWr,
    pub wr_rdma_read: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64),
    pub wr_rdma_write: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64),
    pub wr_rdma_write_imm: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32),
    pub wr_send: unsafe extern "C" fn(*mut ibv_qp_ex),
    pub wr_send_imm: unsafe extern "C" fn(*mut ibv_qp_ex, u32),
    pub wr_send_inv: NoWr,
    pub wr_send_tso: NoWr,
    pub wr_set_ud_addr: unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32),
    pub wr_set_xrc_srqn: NoWr,
    pub wr_set_inline_data: unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, size_t),
    pub wr_set_inline_data_list: unsafe extern "C" fn(*mut ibv_qp_ex, size_t, *const ibv_data_buf),
    pub wr_set_sge: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32),
    pub wr_set_sge_list: unsafe extern "C" fn(*mut ibv_qp_ex, size_t, *const ibv_sge),
    pub wr_start: unsafe extern "C" fn(*mut ibv_qp_ex),
    pub wr_complete: unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int,
    pub wr_abort: unsafe extern "C" fn(*mut ibv_qp_ex),
    pub wr_atomic_write: NoWr,
    pub wr_flush: NoWr,
}

#[repr(C)]
pub struct ibv_async_event {
    pub element: *mut c_void,
    pub event_type: c_int,
}

// efadv.

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_device_attr {
    pub comp_mask: u64,
    pub max_sq_wr: u32,
    pub max_rq_wr: u32,
    pub max_sq_sge: u16,
    pub max_rq_sge: u16,
    pub inline_buf_size: u16,
    pub inline_buf_size_ex: u16,
    pub device_caps: u32,
    pub max_rdma_size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_ah_attr {
    pub comp_mask: u64,
    pub ahn: u16,
    pub reserved: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_qp_init_attr {
    pub comp_mask: u64,
    pub driver_qp_type: u32,
    pub flags: u16,
    pub sl: u8,
    pub reserved: u8,
    pub wr_flags: u64,
}

#[repr(C)]
pub struct efadv_qp {
    pub comp_mask: u64,
    pub wr_set_processing_hints: unsafe extern "C" fn(*mut efadv_qp, u32),
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_cq_init_attr {
    pub comp_mask: u64,
    pub wc_flags: u64,
    pub flags: u64,
    pub ext_mem_buffer: u64,
    pub ext_mem_length: u64,
    pub ext_mem_offset: u64,
    pub ext_mem_fd: i32,
    pub reserved: u32,
}

#[repr(C)]
pub struct efadv_cq {
    pub comp_mask: u64,
    pub wc_read_sgid: unsafe extern "C" fn(*mut efadv_cq, *mut ibv_gid) -> c_int,
    pub wc_is_unsolicited: unsafe extern "C" fn(*mut efadv_cq) -> bool,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_sq_depth_attr {
    pub comp_mask: u64,
    pub flags: u32,
    pub max_send_sge: u32,
    pub max_rdma_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_rq_depth_attr {
    pub comp_mask: u64,
    pub max_recv_sge: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct efadv_mr_attr {
    pub comp_mask: u64,
    pub ic_id_validity: u16,
    pub recv_ic_id: u16,
    pub rdma_read_ic_id: u16,
    pub rdma_recv_ic_id: u16,
}
