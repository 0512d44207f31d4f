//! What must not pass the barrier between C and the library: panics, cancellations, and the end of
//! the process while a lock is held. Each case runs in a process of its own, with the loopback
//! interface as its device, and calls the library as C does.
#![cfg(debug_assertions)]

use libc::{c_int, c_void};
use srd_ibverbs::{
    abi::{
        ibv_ah_attr, ibv_async_event, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap,
        ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
    },
    num::*,
};
use std::{
    env,
    process::{Command, ExitStatus, Stdio},
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
    time::{Duration, Instant},
};

// SAFETY: as in the headers of verbs, efadv and pthread; the last one is the library's own.
unsafe extern "C-unwind" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_open_device(device: *mut c_void) -> *mut ibv_context;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut c_void;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut c_void,
        vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(
        channel: *mut c_void,
        cq: *mut *mut ibv_cq,
        context: *mut *mut c_void,
    ) -> c_int;
    fn srd_efadv_create_driver_qp(
        pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
        kind: u32,
    ) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut c_void;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    fn srd_debug_panic(place: c_int);
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_testcancel();
}

/// Links the library whose functions are called by name.
const _: fn(i64) -> c_int = int;

/// How long a case may take; nothing is expected of it.
const PATIENCE: Duration = Duration::from_secs(60);
const CASE: &str = "BARRIER_CASE";

/// Runs a case in a process of its own: how it ended, or `None` if it did not.
fn run(case: &str) -> Option<ExitStatus> {
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

#[test]
fn a_panic_outside_of_the_engine_ends_every_request_and_no_process() {
    assert!(run("panic-outside").expect("it hangs").success());
}

#[test]
fn a_panic_in_the_engine_ends_every_request_and_no_process() {
    assert!(run("panic-locked").expect("it hangs").success());
}

#[test]
fn a_handler_of_a_signal_may_end_the_process_while_a_lock_is_held() {
    // Where the signal comes is chance: several times.
    for _ in 0..5 {
        assert_eq!(run("exit").expect("it hangs").code(), Some(7));
    }
}

#[test]
fn a_thread_that_is_cancelled_leaves_nothing_locked() {
    assert!(run("cancel").expect("it hangs").success());
}

#[test]
fn a_thread_that_waits_for_events_can_be_cancelled() {
    assert!(run("cancel-wait").expect("it hangs").success());
}

#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn the_case() {
    match env::var(CASE).as_deref() {
        Ok("panic-outside") => panicking(1),
        Ok("panic-locked") => panicking(2),
        Ok("exit") => exiting(),
        Ok("cancel") => cancelled(),
        Ok("cancel-wait") => cancelled_in_wait(),
        other => panic!("no case: {other:?}"),
    }
}

/// A device with a queue pair that is ready to send.
struct Node {
    context: *mut ibv_context,
    channel: *mut c_void,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Node {
    fn new() -> Self {
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
            let cap = ibv_qp_cap {
                max_send_wr: 8,
                max_recv_wr: 8,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            };
            let mut init = ibv_qp_init_attr {
                qp_context: ptr::null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq: ptr::null_mut(),
                cap,
                qp_type: int(IBV_QPT_DRIVER),
                sq_sig_all: 1,
            };
            let qp = srd_efadv_create_driver_qp(pd, &raw mut init, 0);
            assert!(!qp.is_null());
            let node = Self { context, channel, pd, cq, qp };
            node.step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
            node.step(IBV_QPS_RTR, 0);
            node.step(IBV_QPS_RTS, IBV_QP_SQ_PSN);
            node
        }
    }

    fn step(&self, state: i64, mask: i64) {
        let mut attr = ibv_qp_attr { qp_state: int(state), ..ibv_qp_attr::default() };
        (attr.port_num, attr.qkey) = (1, 5);
        // SAFETY: the queue pair lives.
        assert_eq!(unsafe { ibv_modify_qp(self.qp, &raw mut attr, int(mask | IBV_QP_STATE)) }, 0);
    }

    fn receive(&self, wr_id: u64) -> c_int {
        let mut wr =
            ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
        // SAFETY: one request without data.
        unsafe { ((*self.context).ops.post_recv)(self.qp, &raw mut wr, &mut ptr::null_mut()) }
    }

    /// Posts a message to an address where nobody answers.
    fn send(&self, wr_id: u64, ah: *mut c_void) -> c_int {
        // SAFETY: numbers and null pointers make a request.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        (wr.wr_id, wr.opcode, wr.ah) = (wr_id, int(IBV_WR_SEND), ah.cast());
        (wr.remote_qpn, wr.remote_qkey) = (0xf000, 5);
        // SAFETY: one request without data.
        unsafe { ((*self.context).ops.post_send)(self.qp, &raw mut wr, &mut ptr::null_mut()) }
    }

    fn poll(&self) -> Result<Option<ibv_wc>, c_int> {
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

fn panicking(place: c_int) {
    let node = Node::new();
    let mut attr = ibv_ah_attr { port_num: 1, ..ibv_ah_attr::default() };
    attr.grh.dgid.0 = srd::gid_from_ip(std::net::Ipv4Addr::LOCALHOST.into());
    // SAFETY: the domain lives.
    let ah = unsafe { ibv_create_ah(node.pd, &raw mut attr) };
    assert_eq!((node.receive(1), node.receive(2), node.send(3, ah)), (0, 0, 0));
    // SAFETY: a number.
    unsafe { srd_debug_panic(place) };
    assert_eq!(node.poll().err(), Some(-1), "the call that panicked");
    let mut ended = Vec::new();
    while let Ok(Some(wc)) = node.poll() {
        assert_ne!(wc.status, int(IBV_WC_SUCCESS));
        ended.push(wc.wr_id);
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3]);
    assert_eq!(node.poll().err(), Some(-1), "later calls fail");
    assert_ne!(node.receive(4), 0);
    let mut event = ibv_async_event { element: ptr::null_mut(), event_type: 0 };
    // SAFETY: the context is open; objects are destroyed in order.
    unsafe {
        assert_eq!(ibv_get_async_event(node.context, &raw mut event), 0);
        assert_eq!(event.event_type, int(IBV_EVENT_DEVICE_FATAL));
        ibv_ack_async_event(&raw mut event);
        assert!(ibv_alloc_pd(node.context).is_null());
        assert_eq!((ibv_destroy_qp(node.qp), ibv_destroy_cq(node.cq)), (0, 0));
    }
}

extern "C" fn end_now(_: c_int) {
    // SAFETY: what programs do though they should not.
    unsafe { libc::exit(7) };
}

/// The signal comes while this thread polls, most likely with the engine's lock held.
fn exiting() {
    let node = Node::new();
    // SAFETY: a handler that is a function, and the number of this thread.
    let this = unsafe {
        libc::signal(libc::SIGALRM, end_now as *const () as usize);
        libc::pthread_self()
    };
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: that thread lives until the process ends.
        unsafe { libc::pthread_kill(this, libc::SIGALRM) };
    });
    loop {
        let _ = node.poll();
    }
}

static SHARED: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static STARTED: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn polls(_: *mut c_void) -> *mut c_void {
    STARTED.store(true, Ordering::SeqCst);
    loop {
        // SAFETY: the node lives until the process ends.
        let _ = unsafe { &*SHARED.load(Ordering::SeqCst) }.poll();
        // SAFETY: nothing of this frame needs to be dropped.
        unsafe { pthread_testcancel() };
    }
}

extern "C-unwind" fn waits(_: *mut c_void) -> *mut c_void {
    STARTED.store(true, Ordering::SeqCst);
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the channel lives until the process ends.
    unsafe {
        let node = SHARED.load(Ordering::SeqCst);
        ibv_get_cq_event((*node).channel, &raw mut cq, &raw mut context);
    }
    ptr::null_mut()
}

/// Starts a thread as C does, cancels it, and sees it end.
fn cancel(start: extern "C-unwind" fn(*mut c_void) -> *mut c_void) {
    STARTED.store(false, Ordering::SeqCst);
    let mut thread = 0;
    let mut end = ptr::null_mut();
    // SAFETY: the function has C's calling convention, and lets unwinding pass.
    unsafe {
        let start = std::mem::transmute::<
            extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(start);
        assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), start, ptr::null_mut()), 0);
        while !STARTED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut end), 0);
    }
    assert_eq!(end.addr(), usize::MAX, "PTHREAD_CANCELED");
}

fn cancelled() {
    SHARED.store(Box::into_raw(Box::new(Node::new())), Ordering::SeqCst);
    for _ in 0..20 {
        cancel(polls);
        // SAFETY: the node lives until the process ends.
        let node = unsafe { &*SHARED.load(Ordering::SeqCst) };
        assert!(node.poll().is_ok());
        // Takes the engine's lock.
        node.step(IBV_QPS_RTS, 0);
    }
}

fn cancelled_in_wait() {
    SHARED.store(Box::into_raw(Box::new(Node::new())), Ordering::SeqCst);
    cancel(waits);
    // SAFETY: the node lives until the process ends.
    let node = unsafe { &*SHARED.load(Ordering::SeqCst) };
    assert!(node.poll().is_ok());
}
