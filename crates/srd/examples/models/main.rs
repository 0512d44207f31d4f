//! The device's lock-free parts under every order of their steps. The files under test are the
//! crate's own; only the atomics beneath them are a model's.
//!
//! `loom` knows what relaxed, acquire and release orders and fences allow, and takes sequentially
//! consistent accesses for weaker than they are; so the budgets, the dirty set and the list of
//! wakers, which has fences, run under it, in every order (three tasks and threads: see
//! [`PREEMPTIONS`]). What rests on sequential consistency (going to sleep without missing work)
//! runs under `shuttle`, which knows nothing else, in orders drawn at random.
//!
//! `cargo run -p srd --example models` runs all; a failure prints the order that leads to it.
#![allow(dead_code, reason = "the files under test have more than the models use")]
#![allow(clippy::duplicate_mod, reason = "once over the atomics of each model")]

mod strong;
mod unfenced;
mod weak;

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use weak::tasks;

/// Orders of steps that a model under `shuttle` runs through: they are too many for all.
const ORDERS: usize = 20_000;
/// Places in a run where another thread is preferred (probabilistic concurrency testing: every bug
/// that needs no more of them is found with a known probability).
const SWITCHES: usize = 4;

/// How often a thread of three that could go on is stopped at most ([`loom_run_bounded`]).
const PREEMPTIONS: usize = 2;

/// What it shows, and a function that returns how many orders it ran through.
type Model = (&'static str, fn() -> u64);

fn main() {
    let models: [Model; 16] = [
        ("dirty set: what was written before an insertion is seen", dirty_set_hands_over),
        ("dirty set: two insertions, none is lost", dirty_set_loses_nothing),
        ("queue slots: never more in use than there are", queue_slots_are_bounded),
        ("completion slots: never oversold", completion_slots_are_not_oversold),
        ("completion slots: who polls and who posts", completion_slots_come_back),
        ("rest: a post that comes while the driver goes to sleep", no_post_is_slept_over),
        ("rest: two posts and a command, one after the other", no_command_is_slept_over),
        ("shared progress: callers that go to sleep are taken over", no_caller_is_left_alone),
        ("shared progress: callers that poll take over", no_caller_waits_for_a_sleeper),
        ("futures: an item wakes the task that waits", || loom_run(|| tasks::one_item(false))),
        ("futures: the end of the device wakes it, too", || loom_run(tasks::the_end)),
        ("futures: items of two shards", || loom_run_bounded(tasks::items_of_two_threads)),
        ("futures: two tasks wait, two items come", || loom_run_bounded(tasks::two_tasks)),
        ("futures: a task leaves, the other is woken", || {
            loom_run_bounded(tasks::a_task_that_leaves)
        }),
        ("futures: a list without fences is found out", unfenced_list_is_found_out),
        ("futures: polls that look once are found out", single_look_is_found_out),
    ];
    let mut orders = 0;
    for (name, model) in models {
        let n = model();
        orders += n;
        println!("{n:>9}  {name}");
    }
    println!("{orders:>9}  orders of steps, {} models, none failed", models.len());
}

/// Runs a model under `loom` and counts the orders.
fn loom_run(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let count = Arc::default();
    loom_count(&count, None, model);
    count.load(Relaxed)
}

/// The same for three threads, whose orders are too many: all orders in which at most
/// [`PREEMPTIONS`] times a thread is stopped that could go on.
fn loom_run_bounded(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let count = Arc::default();
    loom_count(&count, Some(PREEMPTIONS), model);
    count.load(Relaxed)
}

/// Runs a model in which a thread must sleep for ever, and counts the orders until it does.
fn loom_fails(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let count = Arc::default();
    let told = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let end = panic::catch_unwind(panic::AssertUnwindSafe(|| loom_count(&count, None, model)));
    panic::set_hook(told);
    let text = end.err().and_then(|panic| panic.downcast::<String>().ok());
    let found = text.is_some_and(|text| text.contains("deadlock"));
    assert!(found, "the model does not notice what it is for");
    count.load(Relaxed)
}

/// Runs a model in all orders, or in those with so many preemptions, and counts them on the way.
fn loom_count(
    count: &Arc<AtomicU64>,
    preemptions: Option<usize>,
    model: impl Fn() + Send + Sync + 'static,
) {
    let counted = Arc::clone(count);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
}

fn unfenced_list_is_found_out() -> u64 {
    loom_fails(|| unfenced::tasks::one_item(false))
}

fn single_look_is_found_out() -> u64 {
    loom_fails(|| tasks::one_item(true))
}

/// The same under `shuttle`, in orders drawn at random.
fn shuttle_run(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let run = move || {
        counted.fetch_add(1, Relaxed);
        model();
    };
    shuttle::check_pct(run, ORDERS, SWITCHES);
    count.load(Relaxed)
}

fn dirty_set_hands_over() -> u64 {
    use loom::{sync::Arc, sync::atomic, thread};
    loom_run(|| {
        let shared = Arc::new((weak::dirty::DirtySet::default(), atomic::AtomicU32::new(0)));
        let other = Arc::clone(&shared);
        let poster = thread::spawn(move || {
            other.1.store(7, atomic::Ordering::Relaxed);
            other.0.insert(65);
        });
        let mut seen = 0;
        let drain = |seen: &mut i32| {
            shared.0.drain(66, |i| {
                // The number 1 comes out with 65: they are equal modulo 64.
                if i == 65 {
                    assert_eq!(shared.1.load(atomic::Ordering::Relaxed), 7);
                    *seen += 1;
                }
            });
        };
        drain(&mut seen);
        poster.join().unwrap();
        drain(&mut seen);
        assert_eq!(seen, 1);
    })
}

fn dirty_set_loses_nothing() -> u64 {
    use loom::{sync::Arc, thread};
    loom_run(|| {
        let set = Arc::new(weak::dirty::DirtySet::default());
        let posters = [3, 5].map(|i| {
            let set = Arc::clone(&set);
            thread::spawn(move || set.insert(i))
        });
        let mut seen = [0; 8];
        set.drain(8, |i| seen[i] += 1);
        for poster in posters {
            poster.join().unwrap();
        }
        set.drain(8, |i| seen[i] += 1);
        assert_eq!(seen, [0, 0, 0, 1, 0, 1, 0, 0]);
        assert!(!set.any());
    })
}

fn queue_slots_are_bounded() -> u64 {
    use loom::{sync::Arc, sync::atomic, thread};
    loom_run(|| {
        let slots = Arc::new(weak::budget::QueueSlots::new(2));
        let ended = Arc::new(atomic::AtomicU32::new(0));
        let (engine, posted) = (Arc::clone(&slots), Arc::clone(&ended));
        let turn = thread::spawn(move || {
            // The engine gives back what it has taken out of the ring.
            for _ in 0..2 {
                if posted.load(atomic::Ordering::Acquire) > 0 {
                    posted.fetch_sub(1, atomic::Ordering::AcqRel);
                    engine.give(1);
                }
            }
        });
        for _ in 0..3 {
            if slots.any_free() {
                slots.take();
                ended.fetch_add(1, atomic::Ordering::AcqRel);
            }
            assert!(slots.used() <= slots.limit());
        }
        turn.join().unwrap();
        assert_eq!(slots.used(), ended.load(atomic::Ordering::Acquire));
    })
}

fn completion_slots_are_not_oversold() -> u64 {
    use loom::{sync::Arc, thread};
    loom_run(|| {
        let slots = Arc::new(weak::budget::CqSlots::new(2));
        let others = [(); 2].map(|()| {
            let slots = Arc::clone(&slots);
            thread::spawn(move || u32::from(slots.take()))
        });
        let own = u32::from(slots.take());
        let sold: u32 = others.map(|o| o.join().unwrap()).iter().sum::<u32>() + own;
        assert_eq!(sold, 2);
    })
}

fn completion_slots_come_back() -> u64 {
    use loom::{sync::Arc, sync::atomic, thread};
    loom_run(|| {
        let slots = Arc::new(weak::budget::CqSlots::new(1));
        let in_use = Arc::new(atomic::AtomicU32::new(1));
        assert!(slots.take());
        let (sells, uses) = (Arc::clone(&slots), Arc::clone(&in_use));
        let poster = thread::spawn(move || {
            let sold = sells.take();
            if sold {
                let before = uses.fetch_add(1, atomic::Ordering::Relaxed);
                assert_eq!(before, 0, "the slot was free when it was sold again");
            }
            sold
        });
        in_use.fetch_sub(1, atomic::Ordering::Relaxed);
        slots.polled(1);
        let sold = poster.join().unwrap();
        assert_eq!(slots.take(), !sold, "a slot that came back is sold once");
    })
}

/// A driver with the device's order of steps: it takes what was posted, looks for more, and sleeps.
struct Driver {
    posted: strong::dirty::DirtySet,
    control_waiting: shuttle::sync::atomic::AtomicU32,
    rest: strong::rest::Rest,
    waker: strong::waker::Waker,
}

impl Driver {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            posted: strong::dirty::DirtySet::default(),
            control_waiting: shuttle::sync::atomic::AtomicU32::new(0),
            rest: strong::rest::Rest::new(),
            waker: strong::waker::Waker::new().unwrap(),
        })
    }

    /// As `Shared::note_post`.
    fn post(&self, qp: usize) {
        self.posted.insert(qp);
        if self.rest.needs_wake() {
            self.waker.wake();
        }
    }

    fn has_work(&self) -> bool {
        let waiting = self.control_waiting.load(shuttle::sync::atomic::Ordering::SeqCst);
        self.posted.any() || waiting > 0
    }

    /// Turns and sleeps until `done`. A wake that is missed leaves the model in a deadlock.
    fn run(&self, mut done: impl FnMut(usize) -> bool) {
        loop {
            let mut posts = 0;
            self.posted.drain(64, |_| posts += 1);
            if done(posts) {
                return;
            }
            self.rest.sleep_unless(
                || self.has_work(),
                || {
                    self.waker.event().wait();
                    self.waker.take();
                },
            );
        }
    }
}

fn no_post_is_slept_over() -> u64 {
    shuttle_run(|| {
        let driver = Driver::new();
        let poster = {
            let driver = Arc::clone(&driver);
            shuttle::thread::spawn(move || driver.post(1))
        };
        let mut taken = 0;
        driver.run(|posts| {
            taken += posts;
            taken == 1
        });
        poster.join().unwrap();
    })
}

fn no_command_is_slept_over() -> u64 {
    use shuttle::sync::atomic::Ordering::SeqCst;
    shuttle_run(|| {
        let driver = Driver::new();
        let poster = {
            let driver = Arc::clone(&driver);
            shuttle::thread::spawn(move || {
                driver.post(1);
                driver.post(2);
                // As `Shared::nic_to_destroy`: it is counted, then the sleeper is woken.
                driver.control_waiting.fetch_add(1, SeqCst);
                driver.waker.wake();
            })
        };
        let mut taken = 0;
        driver.run(|posts| {
            taken += posts;
            taken == 2 && driver.control_waiting.load(SeqCst) == 1
        });
        poster.join().unwrap();
    })
}

/// A device with `Progress::Shared`: what `thread::run_when_idle` and `CompletionQueue::wait` do
/// about each other.
struct SharedDriver {
    callers: strong::callers::Callers,
    rest: strong::rest::Rest,
    waker: strong::waker::Waker,
    /// Somebody has the engine's lock and takes a turn.
    nic: shuttle::sync::Mutex<u32>,
    completed: (shuttle::sync::Mutex<bool>, shuttle::sync::Condvar),
    stop: shuttle::sync::atomic::AtomicBool,
}

/// Callers that have polled stay for longer than a model lasts.
const IDLE: std::time::Duration = std::time::Duration::from_secs(1);

impl SharedDriver {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            callers: strong::callers::Callers::new(),
            rest: strong::rest::Rest::new(),
            waker: strong::waker::Waker::new().unwrap(),
            nic: shuttle::sync::Mutex::new(0),
            completed: (shuttle::sync::Mutex::new(false), shuttle::sync::Condvar::new()),
            stop: shuttle::sync::atomic::AtomicBool::new(false),
        })
    }

    /// The device's thread. `turn` says whether it found work. A rest that nobody ends, and a sleep
    /// that nobody ends, leave the model in a deadlock.
    fn thread(&self, turn: impl Fn(&Self) -> bool) {
        use shuttle::sync::atomic::Ordering::SeqCst;
        while !self.stop.load(SeqCst) {
            if self.callers.drive() {
                self.callers.thread_rest(IDLE);
                if self.callers.stay(0, IDLE) {
                    continue;
                }
            }
            let nic = self.nic.lock().unwrap();
            while !self.callers.drive() && !self.stop.load(SeqCst) {
                if !turn(self) {
                    self.rest.sleep_unless(
                        || self.callers.drive() || self.stop.load(SeqCst),
                        || {
                            self.waker.event().wait();
                            self.waker.take();
                        },
                    );
                }
            }
            drop(nic);
        }
    }

    /// As `Owner::close`.
    fn close(&self) {
        self.stop.store(true, shuttle::sync::atomic::Ordering::SeqCst);
        self.waker.wake();
        self.callers.rest();
    }
}

fn no_caller_is_left_alone() -> u64 {
    shuttle_run(|| {
        let device = SharedDriver::new();
        let thread = {
            let device = Arc::clone(&device);
            shuttle::thread::spawn(move || {
                // What was asked for completes with the first turn of the thread.
                device.thread(|d| {
                    *d.completed.0.lock().unwrap() = true;
                    d.completed.1.notify_all();
                    false
                });
            })
        };
        device.callers.thread_set(thread.thread().clone());
        // As `wait`: a poll that finds nothing, then sleep until the completion.
        device.callers.begin();
        if device.rest.needs_wake() {
            device.waker.wake();
        }
        device.callers.rest();
        let mut completed = device.completed.0.lock().unwrap();
        while !*completed {
            completed = device.completed.1.wait(completed).unwrap();
        }
        drop(completed);
        device.close();
        thread.join().unwrap();
    })
}

fn no_caller_waits_for_a_sleeper() -> u64 {
    shuttle_run(|| {
        let device = SharedDriver::new();
        let thread = {
            let device = Arc::clone(&device);
            shuttle::thread::spawn(move || device.thread(|_| false))
        };
        device.callers.thread_set(thread.thread().clone());
        // As `drive_from_poll`: the thread gives the engine up, wherever it was.
        device.callers.begin();
        if device.rest.needs_wake() {
            device.waker.wake();
        }
        *device.nic.lock().unwrap() += 1;
        device.close();
        thread.join().unwrap();
    })
}
