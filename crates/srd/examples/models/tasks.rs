//! Tasks that wait for items, and threads that bring them.

use super::wakers::{Place, Tasks, wait};
use loom::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
};
use std::{
    mem::ManuallyDrop,
    sync::Arc,
    task::{Poll, Wake, Waker},
};

/// An executor of one task: it sleeps until the task is woken. If nobody wakes it, the model
/// reports a deadlock.
#[derive(Default)]
struct Sleep {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Sleep {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Sleep {
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// A queue of items with the weakest order that there is: only the list's own steps make an item
/// visible. Its end has a list of its own, as a device's has.
#[derive(Default)]
struct Queue {
    items: AtomicU32,
    tasks: Tasks,
    ended: AtomicU32,
    ending: Tasks,
    /// Polls that found nothing do not look again: wrong, to see that the models notice.
    looks_once: bool,
}

impl Queue {
    fn new(looks_once: bool) -> Arc<Self> {
        Arc::new(Self { looks_once, ..Self::default() })
    }

    fn push(&self) {
        self.items.fetch_add(1, Relaxed);
        self.tasks.wake();
    }

    fn end(&self) {
        self.ended.store(1, Relaxed);
        self.ending.wake();
    }

    /// True for an item, false for the end.
    fn look(&self) -> Option<bool> {
        let less = |n: u32| n.checked_sub(1);
        if self.items.fetch_update(Relaxed, Relaxed, less).is_ok() {
            return Some(true);
        }
        (self.ended.load(Relaxed) > 0).then_some(false)
    }

    fn places(&self) -> [Place<'_>; 2] {
        [&self.tasks, &self.ending].map(Place::new)
    }

    /// As the future of `next_of`.
    fn poll(&self, places: &mut [Place<'_>; 2], waker: &Waker) -> Poll<bool> {
        match self.look() {
            Some(found) => Poll::Ready(found),
            None => wait(places, waker, || if self.looks_once { None } else { self.look() }),
        }
    }

    fn next(&self) -> bool {
        let sleep = Arc::new(Sleep::default());
        let waker = Waker::from(Arc::clone(&sleep));
        // Not left when the model reports a deadlock: nothing of it can be used then.
        let mut places = ManuallyDrop::new(self.places());
        loop {
            if let Poll::Ready(found) = self.poll(&mut places, &waker) {
                drop(ManuallyDrop::into_inner(places));
                return found;
            }
            sleep.wait();
        }
    }
}

/// Runs `step` in a thread of its own.
fn beside(queue: &Arc<Queue>, step: fn(&Queue)) -> thread::JoinHandle<()> {
    let queue = Arc::clone(queue);
    thread::spawn(move || step(&queue))
}

pub(crate) fn one_item(looks_once: bool) {
    let queue = Queue::new(looks_once);
    let pusher = beside(&queue, Queue::push);
    assert!(queue.next());
    pusher.join().unwrap();
}

pub(crate) fn the_end() {
    let queue = Queue::new(false);
    let ender = beside(&queue, Queue::end);
    assert!(!queue.next());
    ender.join().unwrap();
}

pub(crate) fn items_of_two_threads() {
    let queue = Queue::new(false);
    let pushers = [(); 2].map(|()| beside(&queue, Queue::push));
    assert!(queue.next() && queue.next());
    for pusher in pushers {
        pusher.join().unwrap();
    }
}

pub(crate) fn two_tasks() {
    let queue = Queue::new(false);
    let other = beside(&queue, |queue| assert!(queue.next()));
    let pusher = beside(&queue, |queue| {
        queue.push();
        queue.push();
    });
    assert!(queue.next());
    other.join().unwrap();
    pusher.join().unwrap();
}

pub(crate) fn a_task_that_leaves() {
    let queue = Queue::new(false);
    let pusher = beside(&queue, Queue::push);
    let leaver = beside(&queue, |queue| {
        // Woken or not, it leaves without a second poll; what the first one found, it gives back.
        if queue.poll(&mut queue.places(), Waker::noop()) == Poll::Ready(true) {
            queue.push();
        }
    });
    assert!(queue.next());
    pusher.join().unwrap();
    leaver.join().unwrap();
}
