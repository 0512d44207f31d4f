//! Completions and events as futures, under tokio and under an executor of nothing but a thread.

use crate::{common::*, tasks_pair};
use srd::{
    AsyncEvent, Device, DeviceConfig, Error, PathPolicy, PathState, Progress, QpModify, QpState,
    RecvWr, SendWr, WorkCompletion,
};
use srd_share::{PathControl, PathMask};
use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    time::timeout,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps until the future's waker is called and no longer.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn tokio_run<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("a task was not woken")
}

const WAYS: [Progress; 3] =
    [Progress::Caller, THREAD, Progress::Shared { idle: Duration::from_micros(100) }];

/// One end of a ping-pong.
async fn rally(me: &Node, other: (IpAddr, srd::Qpn), begins: bool, rounds: u64) {
    let (memory, ah) = (me.memory(8), me.pd.ah_create(other.0).unwrap());
    let hit = |n| me.qp.post_send(&SendWr::send(n, &ah, other.1, QKEY).inline(b"ball")).unwrap();
    for n in 0..rounds {
        if begins {
            hit(n);
        }
        // A side that begins sees its send end and the answer arrive, in any order.
        let mut seen = [false; 2];
        while seen != [true, true] {
            let wc = me.cq.next().await.unwrap().ok().unwrap();
            seen[usize::from(wc.op.is_recv())] = true;
            if wc.op.is_recv() {
                me.qp.post_recv(&RecvWr::recv(n).sges(&[memory.sge(0, 8)])).unwrap();
                if !begins {
                    hit(n);
                }
            }
        }
    }
}

#[test]
fn a_thread_that_only_sleeps_and_polls_is_executor_enough() {
    for progress in WAYS {
        let (a, b) = loopback_pair(1000, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let [at_a, at_b] = [&a, &b].map(|node| (node.device.ip(), node.qp.qpn()));
        let (memory_a, memory_b) = (a.memory(8), b.memory(8));
        for (node, memory) in [(&a, &memory_a), (&b, &memory_b)] {
            node.qp.post_recv(&RecvWr::recv(0).sges(&[memory.sge(0, 8)])).unwrap();
        }
        thread::scope(|scope| {
            let other = scope.spawn(|| block_on(rally(&b, at_a, false, 300)));
            block_on(rally(&a, at_b, true, 300));
            // Where callers drive, the other side still needs the acknowledgment of its last ball.
            while !other.is_finished() {
                a.device.progress().unwrap();
            }
        });
    }
}

/// Every other future is dropped at some point of its life: none takes a completion along.
#[test]
fn futures_that_are_dropped_lose_nothing() {
    const MESSAGES: u64 = 2_000;
    for progress in WAYS {
        let (a, b) = mem_pair(1000, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let ah = a.ah_to(&b);
        let seen = tokio_run(async {
            let mut seen = Vec::new();
            let (mut sent, mut ended, mut dropped) = (0, 0, 0);
            while (seen.len() as u64) < MESSAGES || ended < MESSAGES {
                while sent < MESSAGES && sent < ended.min(seen.len() as u64) + 64 {
                    b.qp.post_recv(&RecvWr::recv(sent)).unwrap();
                    a.qp.post_send(&SendWr::send(sent, &ah, b.qp.qpn(), QKEY)).unwrap();
                    sent += 1;
                }
                // Two tasks wait for one queue, and a third thing is ready sooner or later.
                let wc = tokio::select! {
                    wc = b.cq.next() => wc.unwrap(),
                    wc = b.cq.next() => wc.unwrap(),
                    wc = a.cq.next() => {
                        wc.unwrap().ok().unwrap();
                        ended += 1;
                        continue;
                    }
                    () = tokio::task::yield_now() => {
                        dropped += 1;
                        continue;
                    }
                };
                assert!(wc.is_ok());
                seen.push(wc.wr_id);
            }
            assert!(dropped > 0, "nothing was ever dropped");
            seen
        });
        let mut sorted = seen;
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..MESSAGES), "each completion came exactly once");
    }
}

#[test]
fn each_completion_wakes_some_task_of_many() {
    const TASKS: u64 = 50;
    for progress in WAYS {
        let (a, b) = loopback_pair(1000, progress);
        let (a, b) = (Node::new(a), Arc::new(Node::new(b)));
        let ah = a.ah_to(&b);
        (0..TASKS).for_each(|n| b.qp.post_recv(&RecvWr::recv(n)).unwrap());
        let mut ids: Vec<u64> = tokio_run(async {
            let wait = |b: Arc<Node>| async move { b.cq.next().await.unwrap().ok().unwrap().wr_id };
            let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(wait(Arc::clone(&b)))).collect();
            // All of them wait before there is anything to wait for.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            // Where callers drive, B acknowledges only while some task of it waits.
            let device = b.device.clone();
            let drives = tokio::spawn(async move { device.event_next().await });
            for n in 0..TASKS {
                a.qp.post_send(&SendWr::send(n, &ah, b.qp.qpn(), QKEY)).unwrap();
                a.cq.next().await.unwrap().ok().unwrap();
            }
            drives.abort();
            let mut ids = Vec::new();
            for task in tasks {
                ids.push(within(task).await.unwrap());
            }
            ids
        });
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..TASKS));
    }
}

#[test]
fn tasks_that_wait_learn_that_the_device_was_closed() {
    for progress in WAYS {
        let (a, _b) = loopback_pair(1000, progress);
        let a = Node::new(a);
        let (device, cq) = (a.device.clone(), a.cq.clone());
        let changes = device.path_events().unwrap();
        let ends = tokio_run(async {
            let waits = tokio::spawn(async move {
                tokio::join!(cq.next(), device.event_next(), changes.next())
            });
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            a.device.close();
            within(waits).await.unwrap()
        });
        assert_eq!((ends.0.unwrap_err(), ends.1.unwrap_err()), (Error::Closed, Error::Closed));
        assert_eq!(ends.2.unwrap_err(), Error::Closed);
    }
}

/// A waker that panics when it is called.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker's panic"));
    }
}

#[test]
fn a_waker_that_panics_does_no_harm_to_the_device() {
    let (a, b) = loopback_pair(1000, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    for n in 0..3 {
        let mut futures: Vec<_> = [&a, &b].into_iter().map(|node| node.cq.next()).collect();
        let waker = Waker::from(Arc::new(Panics));
        for future in &mut futures {
            assert!(std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        b.qp.post_recv(&RecvWr::recv(n)).unwrap();
        a.qp.post_send(&SendWr::send(n, &ah, b.qp.qpn(), QKEY)).unwrap();
        assert_eq!(block_on(b.cq.next()).unwrap().ok().unwrap().wr_id, n);
        assert_eq!(block_on(a.cq.next()).unwrap().ok().unwrap().wr_id, n);
    }
    assert_eq!(a.device.event_get(), None);
}

/// An executor that polls its task in `wake`, in whichever thread that is, and drops it there.
struct InWake {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    again: AtomicBool,
    done: AtomicBool,
}

impl InWake {
    fn start(task: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let task = Mutex::new(Some(Box::pin(task) as _));
        let [again, done] = [false, false].map(AtomicBool::new);
        let this = Arc::new(Self { task, again, done });
        Waker::from(Arc::clone(&this)).wake();
        this
    }

    /// Whether the task has ended. It takes no lock: `wake` counts on whoever holds the task to
    /// look at `again` afterwards.
    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
}

impl Wake for InWake {
    fn wake(self: Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        while self.again.load(Ordering::SeqCst)
            && let Ok(mut place) = self.task.try_lock()
            && self.again.swap(false, Ordering::SeqCst)
            && let Some(task) = place.as_mut()
        {
            let waker = Waker::from(Arc::clone(&self));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *place = None;
                self.done.store(true, Ordering::SeqCst);
            }
        }
    }
}

/// Wakers run without the device's lock: a task that is polled there may use its device, and its
/// objects, which it destroys with the last handle of the device, are gone afterwards.
#[test]
fn tasks_that_are_polled_in_wake_may_do_anything() {
    for progress in [THREAD, Progress::Shared { idle: Duration::from_micros(100) }] {
        let (a, b) = loopback_pair(1000, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let [at_a, at_b] = [&a, &b].map(|node| (node.device.ip(), node.qp.qpn()));
        let task = |node: Node, other, begins| async move {
            let memory = node.memory(8);
            node.qp.post_recv(&RecvWr::recv(0).sges(&[memory.sge(0, 8)])).unwrap();
            rally(&node, other, begins, 300).await;
            node.device.counters().unwrap();
            node.qp.modify(QpModify { state: Some(QpState::Err), ..QpModify::default() }).unwrap();
            let Node { device, pd, cq, qp } = node;
            drop((pd, cq, qp, memory));
            assert!(!device.in_use(), "something was not destroyed");
        };
        let second = InWake::start(task(b, at_a, false));
        let first = InWake::start(task(a, at_b, true));
        let end = Instant::now() + PATIENCE;
        while !(first.is_done() && second.is_done()) {
            assert!(Instant::now() < end, "a task failed or was not woken");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_function_that_watches_events_may_panic() {
    let mut config = DeviceConfig::loopback();
    config.watch = Some(Box::new(|_| std::panic::resume_unwind(Box::new("a watch's panic"))));
    let (a, b) = (
        Node::new(Device::open(config).unwrap()),
        Node::new(Device::open(DeviceConfig::loopback()).unwrap()),
    );
    a.qp.modify(QpModify { state: Some(QpState::Sqd), ..QpModify::default() }).unwrap();
    assert_eq!(block_on(a.device.event_next()).unwrap(), AsyncEvent::SqDrained(a.qp.qpn()));
    b.qp.post_recv(&RecvWr::recv(1)).unwrap();
    a.qp.modify(QpModify { state: Some(QpState::Rts), ..QpModify::default() }).unwrap();
    let ah = a.ah_to(&b);
    a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert_eq!(block_on(a.cq.next()).unwrap().ok().unwrap().wr_id, 2);
}

#[test]
fn a_failed_device_ends_requests_and_reports_it_to_tasks() {
    let (a, b) = loopback_pair(1000, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let device = a.device.clone();
    a.qp.post_recv(&RecvWr::recv(7)).unwrap();
    let (wc, event) = tokio_run(async {
        let both = async { tokio::join!(a.cq.next(), a.device.event_next()) };
        let fail = async {
            tokio::task::yield_now().await;
            device.fail();
        };
        within(async { tokio::join!(both, fail).0 }).await
    });
    let wc: WorkCompletion = wc.unwrap();
    assert_eq!((wc.wr_id, wc.status), (7, srd::Status::LocalQpInternalError));
    assert_eq!(event.unwrap(), AsyncEvent::DeviceFatal);
    drop(b);
}

#[test]
fn events_of_devices_and_paths_wake_tasks() {
    let open = |host, progress| {
        let mut config = DeviceConfig::ip(IpAddr::from([127, 0, 78, host]));
        config.progress = progress;
        (config.mtu, config.paths, config.path_policy) = (Some(1024), 8, PathPolicy::Oblivious);
        Device::open(config).unwrap()
    };
    let control = PathControl::open().unwrap();
    for (host, progress) in (1..).step_by(2).zip(WAYS) {
        let (a, b) = (Node::new(open(host, progress)), Node::new(open(host + 1, THREAD)));
        let (ah, to) = (a.ah_to(&b), b.device.ip());
        b.qp.post_recv(&RecvWr::recv(0)).unwrap();
        tokio_run(within(async {
            a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY)).unwrap();
            a.cq.next().await.unwrap().ok().unwrap();
            let drain = async {
                tokio::task::yield_now().await;
                a.qp.modify(QpModify { state: Some(QpState::Sqd), ..QpModify::default() }).unwrap();
            };
            let (event, ()) = tokio::join!(a.device.event_next(), drain);
            assert_eq!(event.unwrap(), AsyncEvent::SqDrained(a.qp.qpn()));

            let changes = a.device.path_events().unwrap();
            let deny = async {
                tokio::task::yield_now().await;
                let mut mask = PathMask::NONE;
                mask.put(3, true);
                control.change(to, 8, 1, |_| mask).unwrap();
            };
            let (change, ()) = tokio::join!(changes.next(), deny);
            let change = change.unwrap();
            assert_eq!((change.ip, change.path, change.to), (to, 3, PathState::Denied));
        }));
        control.change(to, 8, 1, |_| PathMask::NONE).unwrap();
    }
}

#[test]
fn the_two_sides_of_the_example_ask_and_answer() {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    tokio_run(async {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let ask = async { tasks_pair::ask(TcpStream::connect(at).await.unwrap(), ip).await };
        let answer = async { tasks_pair::answer(listener.accept().await.unwrap().0, ip).await };
        let (asked, answered) = tokio::join!(ask, answer);
        asked.unwrap();
        answered.unwrap();
    });
}
