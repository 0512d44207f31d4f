//! Misuse from C is an error with words, never a crash.

use srd_c::*;
use std::{
    ffi::{CStr, c_int},
    ptr,
};

fn words() -> String {
    // SAFETY: the string lives until the next failure of this thread.
    unsafe { CStr::from_ptr(srd_last_error()) }.to_string_lossy().into_owned()
}

#[track_caller]
fn fails(result: c_int, errno: c_int, part: &str) {
    assert_eq!(result, -errno, "{}", words());
    assert!(words().contains(part), "{:?} does not say {part:?}", words());
}

#[test]
fn null_is_refused_everywhere() {
    // SAFETY: null is what is tested.
    unsafe {
        fails(srd_device_config_init(ptr::null_mut()), libc::EINVAL, "NULL");
        fails(srd_device_open(ptr::null(), ptr::null_mut()), libc::EINVAL, "NULL");
        fails(srd_device_close(ptr::null_mut()), libc::EINVAL, "device is NULL");
        fails(srd_device_query(ptr::null(), ptr::null_mut()), libc::EINVAL, "device");
        fails(srd_pd_create(ptr::null(), ptr::null_mut()), libc::EINVAL, "device");
        fails(srd_pd_destroy(ptr::null_mut()), libc::EINVAL, "protection domain");
        fails(srd_ah_destroy(ptr::null_mut()), libc::EINVAL, "address handle");
        fails(srd_mr_deregister(ptr::null_mut()), libc::EINVAL, "memory region");
        fails(srd_cq_poll(ptr::null(), ptr::null_mut(), 1), libc::EINVAL, "completion queue");
        fails(srd_qp_post_send(ptr::null(), ptr::null()), libc::EINVAL, "queue pair");
        fails(srd_channel_fd(ptr::null()), libc::EINVAL, "channel");
        assert_eq!(srd_mr_key(ptr::null()), 0);
    }
}

#[test]
fn values_out_of_range_are_named() {
    // SAFETY: every pointer passed is null or valid; every object is used before it is destroyed.
    unsafe {
        let mut config = std::mem::MaybeUninit::<srd_device_config>::uninit();
        assert_eq!(srd_device_config_init(config.as_mut_ptr()), 0);
        let mut config = config.assume_init();
        let mut device = ptr::null_mut();
        config.slot = 256;
        fails(srd_device_open(&raw const config, &raw mut device), libc::EINVAL, "slot");
        config.slot = -1;
        config.path_policy = 9;
        fails(srd_device_open(&raw const config, &raw mut device), libc::EINVAL, "path_policy");
        config.path_policy = 0;
        config.bind = c"no-such-if".as_ptr();
        fails(srd_device_open(&raw const config, &raw mut device), libc::ENODEV, "does not exist");
        config.bind = c"127.0.0.1".as_ptr();
        assert_eq!(srd_device_open(&raw const config, &raw mut device), 0, "{}", words());

        let (mut pd, mut cq, mut qp, mut mr) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        fails(srd_cq_create(device, 0, ptr::null(), 0, &raw mut cq), libc::EINVAL, "depth");
        assert_eq!(srd_pd_create(device, &raw mut pd), 0);
        assert_eq!(srd_cq_create(device, 16, ptr::null(), 0, &raw mut cq), 0);
        fails(srd_cq_req_notify(cq), libc::EINVAL, "channel");
        let mut memory = [0_u8; 64];
        let base = memory.as_mut_ptr().cast();
        fails(srd_mr_register(pd, base, 64, 2, &raw mut mr), libc::EINVAL, "LOCAL_WRITE");
        assert_eq!(srd_mr_register(pd, base, 64, 7, &raw mut mr), 0);

        let mut init = std::mem::MaybeUninit::<srd_qp_init>::uninit();
        assert_eq!(srd_qp_init_defaults(init.as_mut_ptr(), cq), 0);
        let mut init = init.assume_init();
        init.qp_type = 7;
        fails(srd_qp_create(pd, &raw const init, &raw mut qp), libc::EINVAL, "type");
        init.qp_type = 0;
        assert_eq!(srd_qp_create(pd, &raw const init, &raw mut qp), 0);
        fails(srd_qp_activate(qp, 1, 9), libc::EINVAL, "queue pair");
        let attr = srd_qp_attr { state: 6, qkey: 0, rnr_retry: 0 };
        fails(srd_qp_modify(qp, &raw const attr, 64), libc::EINVAL, "mask");
        let sges = [srd_sge { addr: memory.as_ptr() as u64, len: 8, lkey: srd_mr_key(mr) }; 9];
        let wr = srd_recv_wr { wr_id: 1, sges: sges.as_ptr(), num_sge: 9 };
        fails(srd_qp_post_recv(qp, &raw const wr), libc::EINVAL, "scatter/gather");
        let wr = srd_recv_wr { wr_id: 1, sges: ptr::null(), num_sge: 1 };
        fails(srd_qp_post_recv(qp, &raw const wr), libc::EINVAL, "NULL");

        fails(srd_pd_destroy(pd), libc::EBUSY, "in use");
        fails(srd_cq_destroy(cq), libc::EBUSY, "in use");
        fails(srd_device_close(device), libc::EBUSY, "in use");
        for result in [
            srd_qp_destroy(qp),
            srd_mr_deregister(mr),
            srd_cq_destroy(cq),
            srd_pd_destroy(pd),
            srd_device_close(device),
        ] {
            assert_eq!(result, 0, "{}", words());
        }
    }
}

#[test]
fn every_status_has_words() {
    for status in 0..=18_u32 {
        // SAFETY: the function returns a constant string.
        let text = unsafe { CStr::from_ptr(srd_status_text(status)) }.to_str().unwrap();
        let known = status <= 15 || status == 18;
        assert_eq!(text == "unknown status", !known, "{status}: {text}");
    }
}
