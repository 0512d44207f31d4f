//! The verbs functions as C sees them, a device with a queue pair, and test cases that run in a
//! process of their own.
#![allow(dead_code, reason = "each test program uses a part")]
#![allow(unreachable_pub, reason = "shared by test programs")]

use libc::{c_int, c_uint, c_void};
use srd_ibverbs::{
    abi::{
        ibv_ah_attr, ibv_async_event, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr,
        ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
    },
    num::*,
};
use std::{
    env,
    process::{Command, ExitStatus, Stdio},
    ptr,
    time::{Duration, Instant},
};

// SAFETY: as in the headers of verbs, efadv and pthread; the last one is the library's own.
unsafe extern "C-unwind" {
    pub fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    pub fn ibv_open_device(device: *mut c_void) -> *mut ibv_context;
    pub fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    pub fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut c_void;
    pub fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut c_void,
        vector: c_int,
    ) -> *mut ibv_cq;
    pub fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    pub fn ibv_get_cq_event(
        channel: *mut c_void,
        cq: *mut *mut ibv_cq,
        context: *mut *mut c_void,
    ) -> c_int;
    pub fn srd_efadv_create_driver_qp(
        pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
        kind: u32,
    ) -> *mut ibv_qp;
    pub fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut c_void;
    pub fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    pub fn ibv_ack_async_event(event: *mut ibv_async_event);
    pub fn ibv_ack_cq_events(cq: *mut ibv_cq, n: c_uint);
    pub fn srd_debug_panic(place: c_int);
    pub fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    pub fn pthread_testcancel();
}

/// Links the library whose functions are called by name.
const _: fn(i64) -> c_int = int;

/// How long a case may take; nothing is expected of it.
const PATIENCE: Duration = Duration::from_secs(60);
const CASE: &str = "VERBS_CASE";

/// Runs a case in a process of its own: how it ended, or `None` if it did not.
pub fn run(case: &str) -> Option<ExitStatus> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "the_case", "--ignored", "--nocapture"])
        .env(CASE, case)
        .env("SRD_IP", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// The case that this process was started for.
pub fn case() -> String {
    env::var(CASE).unwrap_or_default()
}

/// A device with a queue pair that is ready to send.
pub struct Node {
    pub context: *mut ibv_context,
    pub channel: *mut c_void,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
}

impl Node {
    pub fn new() -> Self {
        // SAFETY: the calls follow the rules of verbs, here and below.
        unsafe {
            let mut n = 0;
            let list = ibv_get_device_list(&raw mut n);
            assert_eq!(n, 1);
            let context = ibv_open_device(*list);
            assert!(!context.is_null());
            let channel = ibv_create_comp_channel(context);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 64, ptr::null_mut(), channel, 0);
            let node = Self { context, channel, pd, cq, qp: ptr::null_mut() };
            node.qp_on(cq)
        }
    }

    /// The same device with another queue pair, whose completions go to `cq`. If its numbers are
    /// used up, waits: a number rests for a second after its queue pair was destroyed.
    pub fn qp_on(&self, cq: *mut ibv_cq) -> Self {
        let mut init = ibv_qp_init_attr::driver(cq, 8);
        let end = Instant::now() + PATIENCE;
        let qp = loop {
            // SAFETY: domain and queue live.
            let qp = unsafe { srd_efadv_create_driver_qp(self.pd, &raw mut init, 0) };
            if !qp.is_null() {
                break qp;
            }
            assert!(Instant::now() < end, "{}", std::io::Error::last_os_error());
            std::thread::sleep(Duration::from_millis(10));
        };
        let node = Self { qp, cq, ..*self };
        node.step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
        node.step(IBV_QPS_RTR, 0);
        node.step(IBV_QPS_RTS, IBV_QP_SQ_PSN);
        node
    }

    pub fn step(&self, state: i64, mask: i64) {
        let mut attr = ibv_qp_attr { qp_state: int(state), ..ibv_qp_attr::default() };
        (attr.port_num, attr.qkey) = (1, 5);
        // SAFETY: the queue pair lives.
        assert_eq!(unsafe { ibv_modify_qp(self.qp, &raw mut attr, int(mask | IBV_QP_STATE)) }, 0);
    }

    pub fn receive(&self, wr_id: u64) -> c_int {
        let mut wr =
            ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
        // SAFETY: one request without data.
        unsafe { ((*self.context).ops.post_recv)(self.qp, &raw mut wr, &mut ptr::null_mut()) }
    }

    /// Posts a message to an address where nobody answers.
    pub fn send(&self, wr_id: u64, ah: *mut c_void) -> c_int {
        // SAFETY: numbers and null pointers make a request.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        (wr.wr_id, wr.opcode, wr.ah) = (wr_id, int(IBV_WR_SEND), ah.cast());
        (wr.remote_qpn, wr.remote_qkey) = (0xf000, 5);
        // SAFETY: one request without data.
        unsafe { ((*self.context).ops.post_send)(self.qp, &raw mut wr, &mut ptr::null_mut()) }
    }

    pub fn poll(&self) -> Result<Option<ibv_wc>, c_int> {
        // SAFETY: numbers make a completion; the queue lives.
        unsafe {
            let mut wc: ibv_wc = std::mem::zeroed();
            match ((*self.context).ops.poll_cq)(self.cq, 1, &raw mut wc) {
                0 => Ok(None),
                1 => Ok(Some(wc)),
                n => Err(n),
            }
        }
    }
}
