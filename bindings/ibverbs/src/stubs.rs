//! Verbs functions without a meaning on a software SRD device: every call fails with `EOPNOTSUPP`.
//! They exist so that programs and libraries linked against all of verbs can be loaded.

use crate::errno;
use libc::{c_int, c_void};

/// A function that returns a number: the error code.
macro_rules! number {
    ($($name:ident)*) => {
        $(#[doc = "Not supported."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            libc::EOPNOTSUPP
        })*
    };
}

/// A function that returns an object: null, with the code in `errno`.
macro_rules! object {
    ($($name:ident)*) => {
        $(#[doc = "Not supported."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut c_void {
            errno::null(libc::EOPNOTSUPP)
        })*
    };
}

/// A function without a result.
macro_rules! nothing {
    ($($name:ident)*) => {
        $(#[doc = "Does nothing."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {})*
    };
}

number! {
    ibv_modify_srq ibv_query_srq ibv_destroy_srq
    ibv_attach_mcast ibv_detach_mcast
    ibv_rereg_mr
    ibv_query_ece ibv_set_ece
    ibv_dealloc_dmah ibv_dm_export_dmabuf_fd ibv_export_buf_dmabuf_fd
    ibv_resolve_eth_l2_from_gid
    srd_efadv_query_qp_wqs srd_efadv_query_cq
}

object! {
    ibv_create_srq
    ibv_import_device ibv_import_pd ibv_import_mr ibv_import_dm
    ibv_reg_dmabuf_mr ibv_alloc_dmah
    ibv_alloc_buf ibv_reg_buf_mr
}

nothing! {
    ibv_unimport_pd ibv_unimport_mr ibv_unimport_dm
    ibv_free_buf
    ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern ibv_copy_ah_attr_from_kern
    ibv_register_driver
}

/// Memory is never pinned, so that `fork` needs no preparation.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// See [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    crate::num::int(crate::num::IBV_FORK_UNNEEDED)
}

/// See [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// See [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// For function tables.
///
/// # Safety
/// As the verbs manual page requires.
pub(crate) unsafe extern "C" fn not_supported() -> c_int {
    libc::EOPNOTSUPP
}

/// For slots of function tables whose type does not matter: the result is read as a number.
///
/// # Safety
/// As the verbs manual page requires.
pub(crate) unsafe extern "C" fn unsupported() {}
