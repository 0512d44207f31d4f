//! What must not pass the barrier between C and the library: panics, cancellations, and the end of
//! the process while a lock is held. Each case runs in a process of its own, with the loopback
//! interface as its device, and calls the library as C does.
#![cfg(debug_assertions)]

mod common;

use common::{
    Node, case, ibv_ack_async_event, ibv_alloc_pd, ibv_create_ah, ibv_destroy_cq, ibv_destroy_qp,
    ibv_get_async_event, ibv_get_cq_event, pthread_cancel, pthread_testcancel, run,
    srd_debug_panic,
};
use libc::{c_int, c_void};
use srd_ibverbs::{
    abi::{ibv_ah_attr, ibv_async_event},
    num::*,
};
use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
    time::Duration,
};

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
fn sigusr1_ends_no_process_and_a_handler_of_the_program_stays() {
    assert!(run("sigusr1").expect("it hangs").success());
    assert!(run("sigusr1-own").expect("it hangs").success());
}

#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn the_case() {
    match case().as_str() {
        "panic-outside" => panicking(1),
        "panic-locked" => panicking(2),
        "exit" => exiting(),
        "cancel" => cancelled(),
        "cancel-wait" => cancelled_in_wait(),
        "sigusr1" => {
            let _node = Node::new();
            // SAFETY: a number; without the library's handler it ends the process.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        }
        "sigusr1-own" => sigusr1_own(),
        other => panic!("no case: {other}"),
    }
}

static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(_: c_int) {
    HANDLED.store(true, Ordering::SeqCst);
}

fn sigusr1_own() {
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
    let _node = Node::new();
    // SAFETY: a number.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    assert!(HANDLED.load(Ordering::SeqCst));
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
