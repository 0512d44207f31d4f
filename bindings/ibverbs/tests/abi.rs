//! Sizes, offsets and numbers of our own declarations, compared with the headers of the system by
//! its C compiler.

use srd_ibverbs::{abi::*, comp_cntr::*, num};
use std::{
    fmt::Write as _,
    fs,
    mem::offset_of,
    path::Path,
    process::{Command, Stdio},
};

/// Asserts about one structure: its size, unless it has grown in newer headers, and its fields
/// (without commas: a formatter would give each a line).
macro_rules! layout {
    ($out:ident, $c:expr, $rust:ident, $size:ident; $($field:ident)*) => {
        size($out, $c, size_of::<$rust>(), Size::$size);
        $(field($out, $c, stringify!($field), offset_of!($rust, $field));)*
    };
}

/// How our size and the header's compare.
enum Size {
    Same,
    /// Ours is the newest one, which has grown at its end.
    Grown,
    /// Ours ends after the last field that is used.
    Begin,
}

fn size(out: &mut String, c: &str, ours: usize, how: Size) {
    let relation = match how {
        Size::Same => "==",
        Size::Grown => "<=",
        Size::Begin => ">=",
    };
    let _ = writeln!(out, "_Static_assert(sizeof({c}) {relation} {ours}, \"size of {c}\");");
}

fn field(out: &mut String, c: &str, name: &str, ours: usize) {
    let _ =
        writeln!(out, "_Static_assert(__builtin_offsetof({c}, {name}) == {ours}, \"{c}.{name}\");");
}

fn numbers(out: &mut String, list: &[(&str, i64)]) {
    for (name, value) in list {
        let _ = writeln!(out, "_Static_assert((long long){name} == {value}LL, \"{name}\");");
    }
}

fn objects(out: &mut String) {
    layout! { out, "union ibv_gid", ibv_gid, Same; }
    layout! { out, "struct ibv_device", ibv_device, Same;
        node_type transport_type name dev_name dev_path ibdev_path
    }
    layout! { out, "struct ibv_context_ops", ibv_context_ops, Same;
        alloc_mw bind_mw dealloc_mw poll_cq req_notify_cq post_srq_recv post_send post_recv
    }
    layout! { out, "struct ibv_context", ibv_context, Same;
        device ops cmd_fd async_fd num_comp_vectors mutex abi_compat
    }
    layout! { out, "struct ibv_pd", ibv_pd, Same; context handle }
    layout! { out, "struct ibv_td", ibv_td, Same; context }
    layout! { out, "struct ibv_parent_domain_init_attr", ibv_parent_domain_init_attr, Same;
        pd td comp_mask alloc free pd_context
    }
    layout! { out, "struct ibv_mr", ibv_mr, Same; context pd addr length handle lkey rkey }
    layout! { out, "struct ibv_global_route", ibv_global_route, Same;
        dgid flow_label sgid_index hop_limit traffic_class
    }
    layout! { out, "struct ibv_ah_attr", ibv_ah_attr, Same;
        grh dlid sl src_path_bits static_rate is_global port_num
    }
    layout! { out, "struct ibv_ah", ibv_ah, Same; context pd handle }
    layout! { out, "struct ibv_grh", ibv_grh, Same;
        version_tclass_flow paylen next_hdr hop_limit sgid dgid
    }
    layout! { out, "struct ibv_async_event", ibv_async_event, Same; element event_type }
    layout! { out, "struct ibv_gid_entry", ibv_gid_entry, Same;
        gid gid_index port_num gid_type ndev_ifindex
    }
}

fn device(out: &mut String) {
    layout! { out, "struct ibv_device_attr", ibv_device_attr, Same;
        fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver
        max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd
        atomic_cap max_ah max_srq max_pkeys local_ca_ack_delay phys_port_cnt
    }
    layout! { out, "struct ibv_device_attr_ex", ibv_device_attr_ex, Begin; orig_attr comp_mask }
    field(out, "struct ibv_device_attr_ex", "phys_port_cnt_ex", PHYS_PORT_CNT_EX_OFFSET);
    layout! { out, "struct ibv_port_attr", ibv_port_attr, Grown;
        state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr
        qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply
        active_width active_speed phys_state link_layer flags port_cap_flags2
    }
    // The structure grows at its front: what counts is the distance from its last field.
    let ours = offset_of!(verbs_context, context);
    for (name, at) in [
        ("query_port", offset_of!(verbs_context, query_port)),
        ("alloc_parent_domain", offset_of!(verbs_context, alloc_parent_domain)),
        ("dealloc_td", offset_of!(verbs_context, dealloc_td)),
        ("alloc_td", offset_of!(verbs_context, alloc_td)),
        ("create_cq_ex", offset_of!(verbs_context, create_cq_ex)),
        ("query_device_ex", offset_of!(verbs_context, query_device_ex)),
        ("create_qp_ex", offset_of!(verbs_context, create_qp_ex)),
        ("sz", offset_of!(verbs_context, sz)),
    ] {
        let _ = writeln!(
            out,
            "_Static_assert(__builtin_offsetof(struct verbs_context, context) - \
             __builtin_offsetof(struct verbs_context, {name}) == {}, \"verbs_context.{name}\");",
            ours - at
        );
    }
}

fn queues(out: &mut String) {
    layout! { out, "struct ibv_comp_channel", ibv_comp_channel, Same; context fd refcnt }
    layout! { out, "struct ibv_cq", ibv_cq, Same;
        context channel cq_context handle cqe mutex cond comp_events_completed
        async_events_completed
    }
    layout! { out, "struct ibv_cq_ex", ibv_cq_ex, Same;
        comp_mask status wr_id start_poll next_poll end_poll read_opcode read_vendor_err
        read_byte_len read_imm_data read_qp_num read_src_qp read_wc_flags read_slid read_sl
        read_dlid_path_bits
    }
    layout! { out, "struct ibv_cq_init_attr_ex", ibv_cq_init_attr_ex, Same;
        cqe cq_context channel comp_vector wc_flags comp_mask flags parent_domain
    }
    layout! { out, "struct ibv_wc", ibv_wc, Same;
        wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl
        dlid_path_bits
    }
    layout! { out, "struct ibv_qp_cap", ibv_qp_cap, Same;
        max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data
    }
    layout! { out, "struct ibv_qp_init_attr", ibv_qp_init_attr, Same;
        qp_context send_cq recv_cq srq cap qp_type sq_sig_all
    }
    layout! { out, "struct ibv_qp_init_attr_ex", ibv_qp_init_attr_ex, Same;
        qp_context send_cq recv_cq srq cap qp_type sq_sig_all comp_mask pd xrcd create_flags
        max_tso_header rwq_ind_tbl rx_hash_conf source_qpn send_ops_flags
    }
    layout! { out, "struct ibv_qp_attr", ibv_qp_attr, Same;
        qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
        qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify
        sq_draining min_rnr_timer port_num timeout retry_cnt rnr_retry rate_limit
    }
    layout! { out, "struct ibv_qp", ibv_qp, Same;
        context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex cond
        events_completed
    }
    layout! { out, "struct ibv_qp_ex", ibv_qp_ex, Grown;
        comp_mask wr_id wr_flags wr_atomic_cmp_swp wr_bind_mw wr_local_inv wr_rdma_read
        wr_rdma_write wr_rdma_write_imm wr_send wr_send_imm wr_send_inv wr_send_tso wr_set_ud_addr
        wr_set_xrc_srqn wr_set_inline_data wr_set_inline_data_list wr_set_sge wr_set_sge_list
        wr_start wr_complete wr_abort wr_atomic_write
    }
    layout! { out, "struct ibv_sge", ibv_sge, Same; addr length lkey }
    layout! { out, "struct ibv_data_buf", ibv_data_buf, Same; addr length }
    layout! { out, "struct ibv_send_wr", ibv_send_wr, Same;
        wr_id next sg_list num_sge opcode send_flags imm_data
    }
    field(out, "struct ibv_send_wr", "wr.ud.ah", offset_of!(ibv_send_wr, ah));
    field(out, "struct ibv_send_wr", "wr.ud.remote_qpn", offset_of!(ibv_send_wr, remote_qpn));
    let qkey = offset_of!(ibv_send_wr, remote_qkey);
    field(out, "struct ibv_send_wr", "wr.ud.remote_qkey", qkey);
    layout! { out, "struct ibv_recv_wr", ibv_recv_wr, Same; wr_id next sg_list num_sge }
}

fn efadv(out: &mut String) {
    layout! { out, "struct efadv_device_attr", efadv_device_attr, Same;
        comp_mask max_sq_wr max_rq_wr max_sq_sge max_rq_sge inline_buf_size device_caps
        max_rdma_size
    }
    layout! { out, "struct efadv_ah_attr", efadv_ah_attr, Same; comp_mask ahn }
    layout! { out, "struct efadv_qp_init_attr", efadv_qp_init_attr, Grown;
        comp_mask driver_qp_type
    }
    layout! { out, "struct efadv_cq_init_attr", efadv_cq_init_attr, Grown; comp_mask wc_flags }
    layout! { out, "struct efadv_cq", efadv_cq, Grown; comp_mask wc_read_sgid }
}

/// Completion counters, which rdma-core has since version 65.
fn counters(out: &mut String) {
    layout! { out, "struct ibv_comp_cntr", ibv_comp_cntr, Same; handle }
    let c = "struct ibv_comp_cntr_init_attr";
    layout! { out, c, ibv_comp_cntr_init_attr, Same; flags }
    field(out, c, "type", offset_of!(ibv_comp_cntr_init_attr, kind));
    layout! { out, "struct ibv_comp_cntr_caps", ibv_comp_cntr_caps, Same;
        max_counters supported_qp_attach_ops
    }
    layout! { out, "struct ibv_qp_attach_comp_cntr_attr", ibv_qp_attach_comp_cntr_attr, Same;
        op_mask
    }
    let c = "struct efadv_memory_location";
    layout! { out, c, efadv_memory_location, Same; }
    field(out, c, "dmabuf.offset", offset_of!(efadv_memory_location, dmabuf_offset));
    field(out, c, "dmabuf.fd", offset_of!(efadv_memory_location, dmabuf_fd));
    field(out, c, "type", offset_of!(efadv_memory_location, kind));
    layout! { out, "struct efadv_comp_cntr_init_attr", efadv_comp_cntr_init_attr, Same;
        flags comp_cntr_ext_mem err_cntr_ext_mem
    }
}

/// The sizes that the headers of rdma-core 65 give, for machines with older headers.
#[test]
fn structures_of_counters_have_their_sizes() {
    assert_eq!(size_of::<ibv_comp_cntr>(), 16);
    assert_eq!(size_of::<ibv_comp_cntr_init_attr>(), 12);
    assert_eq!(size_of::<ibv_comp_cntr_caps>(), 16);
    assert_eq!(size_of::<ibv_qp_attach_comp_cntr_attr>(), 8);
    assert_eq!(size_of::<efadv_memory_location>(), 32);
    assert_eq!(size_of::<efadv_comp_cntr_init_attr>(), 80);
}

fn has_header(name: &str) -> bool {
    Path::new("/usr/include/infiniband").join(name).is_file()
}

#[test]
fn declarations_are_those_of_the_headers() {
    let compiler = Command::new("cc").arg("--version").stdout(Stdio::null()).status();
    if !has_header("verbs.h") || !has_header("efadv.h") || compiler.is_err() {
        eprintln!(
            "SKIPPED: no verbs headers or no C compiler; `apt-get install libibverbs-dev gcc`"
        );
        return;
    }
    let mut c = String::from("#include <infiniband/verbs.h>\n#include <infiniband/efadv.h>\n");
    objects(&mut c);
    device(&mut c);
    queues(&mut c);
    efadv(&mut c);
    numbers(&mut c, num::VERBS);
    numbers(&mut c, num::EFADV);
    // Only newer headers have these.
    let header = fs::read_to_string("/usr/include/infiniband/efadv.h").unwrap();
    let known: Vec<_> =
        num::EFADV_NEWER.iter().copied().filter(|(name, _)| header.contains(name)).collect();
    numbers(&mut c, &known);
    if header.contains("efadv_create_comp_cntr") {
        counters(&mut c);
        numbers(&mut c, num::VERBS_NEWER);
    }
    assert!(c.lines().count() > 300, "the list of asserts has shrunk");
    let folder = std::env::temp_dir().join(format!("srd-abi-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join("abi.c");
    fs::write(&source, &c).unwrap();
    let out = Command::new("cc").args(["-std=gnu11", "-fsyntax-only"]).arg(&source).output();
    let out = out.unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
