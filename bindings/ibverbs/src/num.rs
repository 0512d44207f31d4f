//! Constants of verbs and efadv. `tests/abi.rs` compares them with the system's headers.
#![allow(missing_docs, reason = "documented by verbs' and efadv's manual pages")]

use libc::c_int;

/// Defines constants and the list that the test compares with the headers.
macro_rules! numbers {
    ($list:ident: $($name:ident = $value:expr;)*) => {
        $(pub const $name: i64 = $value;)*
        /// Names and values of all constants above.
        pub const $list: &[(&str, i64)] = &[$((stringify!($name), $name),)*];
    };
}

numbers! { VERBS:
    IBV_NODE_UNSPECIFIED = 7;
    IBV_TRANSPORT_UNSPECIFIED = 4;
    IBV_PORT_ACTIVE = 4;
    IBV_LINK_LAYER_UNSPECIFIED = 0;
    IBV_MTU_256 = 1;
    IBV_MTU_512 = 2;
    IBV_MTU_1024 = 3;
    IBV_MTU_2048 = 4;
    IBV_MTU_4096 = 5;
    IBV_ATOMIC_NONE = 0;
    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 2;
    IBV_ACCESS_REMOTE_READ = 4;
    IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000;
    IBV_QPT_UD = 4;
    IBV_QPT_DRIVER = 0xff;
    IBV_QPS_RESET = 0;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;
    IBV_QPS_SQD = 4;
    IBV_QPS_SQE = 5;
    IBV_QPS_ERR = 6;
    IBV_QP_STATE = 1;
    IBV_QP_CUR_STATE = 1 << 1;
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_QKEY = 1 << 6;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_CAP = 1 << 19;
    IBV_QP_INIT_ATTR_PD = 1;
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6;
    IBV_QP_EX_WITH_RDMA_WRITE = 1;
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1;
    IBV_QP_EX_WITH_SEND = 1 << 2;
    IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3;
    IBV_QP_EX_WITH_RDMA_READ = 1 << 4;
    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_SEND = 2;
    IBV_WR_SEND_WITH_IMM = 3;
    IBV_SEND_SIGNALED = 2;
    IBV_SEND_INLINE = 8;
    IBV_WC_SUCCESS = 0;
    IBV_WC_LOC_LEN_ERR = 1;
    IBV_WC_LOC_QP_OP_ERR = 2;
    IBV_WC_LOC_PROT_ERR = 4;
    IBV_WC_WR_FLUSH_ERR = 5;
    IBV_WC_BAD_RESP_ERR = 7;
    IBV_WC_REM_INV_REQ_ERR = 9;
    IBV_WC_REM_ACCESS_ERR = 10;
    IBV_WC_REM_OP_ERR = 11;
    IBV_WC_RNR_RETRY_EXC_ERR = 13;
    IBV_WC_REM_INV_RD_REQ_ERR = 15;
    IBV_WC_REM_ABORT_ERR = 16;
    IBV_WC_RESP_TIMEOUT_ERR = 20;
    IBV_WC_SEND = 0;
    IBV_WC_RDMA_WRITE = 1;
    IBV_WC_RECV = 128;
    IBV_WC_RECV_RDMA_WITH_IMM = 129;
    IBV_WC_GRH = 1;
    IBV_WC_WITH_IMM = 2;
    IBV_WC_EX_WITH_BYTE_LEN = 1;
    IBV_WC_STANDARD_FLAGS = 0x7f;
    IBV_CQ_INIT_ATTR_MASK_FLAGS = 1;
    IBV_CQ_INIT_ATTR_MASK_PD = 2;
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1;
    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_SQ_DRAINED = 5;
    IBV_EVENT_DEVICE_FATAL = 8;
    IBV_EVENT_PORT_ERR = 10;
    IBV_FORK_UNNEEDED = 2;
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 2;
}

numbers! { EFADV:
    EFADV_QP_DRIVER_TYPE_SRD = 0;
    EFADV_DEVICE_ATTR_CAPS_RDMA_READ = 1;
    EFADV_DEVICE_ATTR_CAPS_RNR_RETRY = 2;
    EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID = 4;
    EFADV_WC_EX_WITH_SGID = 1;
}

numbers! { EFADV_NEWER:
    EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE = 8;
    EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV = 16;
    EFADV_WC_EX_WITH_IS_UNSOLICITED = 2;
    EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV = 1;
    EFADV_QP_FLAGS_INLINE_WRITE = 2;
    EFADV_WR_EX_WITH_PROCESSING_HINTS = 1;
    EFADV_SQ_DEPTH_ATTR_INLINE_WRITE = 1;
    EFADV_DEVICE_ATTR_CAPS_COMP_CNTR = 64;
    EFADV_MEMORY_LOCATION_VA = 0;
    EFADV_MEMORY_LOCATION_DMABUF = 1;
    EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM = 1;
    EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM = 2;
}

numbers! { VERBS_NEWER:
    IBV_COMP_CNTR_TYPE_WRS = 0;
    IBV_COMP_CNTR_TYPE_BYTES = 1;
    IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1;
    IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1;
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2;
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3;
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4;
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5;
}

/// A constant as C's `int`.
pub const fn int(n: i64) -> c_int {
    n as c_int
}
