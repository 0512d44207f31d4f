//! Events of completion queues while their queue is destroyed by another thread: an event that the
//! program was given keeps its queue alive until it is acknowledged, and no event is given for a
//! queue that is gone. Each case runs in a process of its own, with the loopback interface as its
//! device, and calls the library as C does.

mod common;

use common::{
    Node, case, ibv_ack_cq_events, ibv_create_cq, ibv_destroy_cq, ibv_destroy_qp, ibv_get_cq_event,
    run,
};
use libc::c_void;
use srd_ibverbs::{
    abi::{ibv_comp_channel, ibv_cq},
    num::*,
};
use std::{
    hint, io, ptr,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

#[test]
fn a_queue_is_destroyed_only_after_its_events_are_acknowledged() {
    assert!(run("acknowledged").expect("it hangs").success());
}

#[test]
fn no_event_is_given_for_a_queue_that_was_destroyed() {
    assert!(run("pending").expect("it hangs").success());
}

#[test]
fn events_race_with_the_end_of_their_queues() {
    assert!(run("race").expect("it hangs").success());
}

#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn the_case() {
    match case().as_str() {
        "acknowledged" => acknowledged(),
        "pending" => pending(),
        "race" => race(),
        other => panic!("no case: {other}"),
    }
}

/// A pointer that other threads may use.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: verbs functions may be called by any thread.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// A queue whose events carry `context`, with one event: the receive of a queue pair that was set
/// to the error state.
fn queue_with_event(node: &Node, context: *mut c_void) -> *mut ibv_cq {
    // SAFETY: the calls follow the rules of verbs.
    unsafe {
        let cq = ibv_create_cq(node.context, 16, context, node.channel, 0);
        assert!(!cq.is_null(), "{}", io::Error::last_os_error());
        assert_eq!(((*node.context).ops.req_notify_cq)(cq, 0), 0);
        let other = node.qp_on(cq);
        assert_eq!(other.receive(1), 0);
        other.step(IBV_QPS_ERR, 0);
        assert_eq!(ibv_destroy_qp(other.qp), 0);
        cq
    }
}

/// The next event's queue and context, or `None` if there is no event now.
fn event_next(channel: *mut c_void) -> Option<(*mut ibv_cq, *mut c_void)> {
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the channel lives.
    let result = unsafe { ibv_get_cq_event(channel, &raw mut cq, &raw mut context) };
    (result == 0).then_some((cq, context))
}

/// From now on [`event_next`] does not wait.
fn channel_nonblocking(node: &Node) {
    // SAFETY: the channel lives.
    unsafe {
        let fd = (*node.channel.cast::<ibv_comp_channel>()).fd;
        let flags = libc::fcntl(fd, libc::F_GETFL);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
    }
}

fn acknowledged() {
    let node = Node::new();
    let mut mark = 0_u64;
    let made = queue_with_event(&node, (&raw mut mark).cast());
    let (cq, context) = event_next(node.channel).expect("an event");
    assert_eq!((cq, context), (made, (&raw mut mark).cast()));
    let acknowledged = AtomicBool::new(false);
    let shared = Shared(cq);
    thread::scope(|s| {
        let ends = s.spawn(|| {
            // SAFETY: nothing else uses the queue but the acknowledgment.
            assert_eq!(unsafe { ibv_destroy_cq(shared.get()) }, 0);
            assert!(acknowledged.load(Ordering::SeqCst), "it did not wait");
        });
        thread::sleep(Duration::from_millis(50));
        acknowledged.store(true, Ordering::SeqCst);
        // SAFETY: the queue lives until this.
        unsafe { ibv_ack_cq_events(cq, 1) };
        ends.join().unwrap();
    });
}

fn pending() {
    let node = Node::new();
    channel_nonblocking(&node);
    let (first, second) = (ptr::without_provenance_mut(1), ptr::without_provenance_mut(2));
    let gone = queue_with_event(&node, first);
    let stays = queue_with_event(&node, second);
    // SAFETY: a queue that nobody uses.
    assert_eq!(unsafe { ibv_destroy_cq(gone) }, 0);
    assert_eq!(event_next(node.channel), Some((stays, second)));
    // SAFETY: the queue lives.
    unsafe { ibv_ack_cq_events(stays, 1) };
    assert_eq!(event_next(node.channel), None);
    assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock);
}

/// Queues that one thread destroys while another takes their event: both begin at once, each of
/// them later by as much as the round says, up to more than a thread needs to wake. In the last
/// round the event is taken first in any case, so that a machine on which one thread always wins
/// shows both.
fn race() {
    const ROUNDS: usize = 1_000;
    let node = Node::new();
    channel_nonblocking(&node);
    // Of each queue: whether it was destroyed.
    let destroyed: Vec<AtomicBool> = (0..ROUNDS).map(|_| AtomicBool::new(false)).collect();
    let start = Barrier::new(2);
    let last_taken = AtomicBool::new(false);
    let (channel, mut taken) = (Shared(node.channel), 0);
    thread::scope(|s| {
        let takes = s.spawn(|| {
            let mut taken = 0;
            for round in 0..ROUNDS {
                start.wait();
                delay(round / DELAYS % DELAYS);
                let event = event_next(channel.get());
                last_taken.store(round == ROUNDS - 1, Ordering::SeqCst);
                if let Some((cq, context)) = event {
                    // SAFETY: `queue_with_event` was given one of these.
                    let destroyed = unsafe { &*context.cast::<AtomicBool>() };
                    assert!(!destroyed.load(Ordering::SeqCst), "an event of a queue that is gone");
                    // Time to destroy the queue, if nothing prevents that.
                    thread::sleep(Duration::from_micros(200));
                    assert!(!destroyed.load(Ordering::SeqCst), "it ended with an event in hand");
                    // SAFETY: the event was not acknowledged: the queue lives.
                    unsafe { ibv_ack_cq_events(cq, 1) };
                    taken += 1;
                }
                start.wait();
            }
            taken
        });
        for (round, destroyed) in destroyed.iter().enumerate() {
            let cq = queue_with_event(&node, ptr::from_ref(destroyed).cast_mut().cast());
            start.wait();
            delay(round % DELAYS);
            while round == ROUNDS - 1 && !last_taken.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // SAFETY: the other thread acknowledges what it takes.
            assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
            destroyed.store(true, Ordering::SeqCst);
            start.wait();
        }
        taken = takes.join().unwrap();
    });
    assert!(taken > 0, "no event was taken before its queue ended");
}

/// The delays that [`delay`] has.
const DELAYS: usize = 16;

/// Some ten ns, doubled for each of `steps`: up to the better part of a ms.
fn delay(steps: usize) {
    (0..1_usize << steps).for_each(|_| hint::spin_loop());
}
