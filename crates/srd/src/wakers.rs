//! The list of the tasks that wait for one thing. `examples/models` checks it under every order of
//! its steps.
//!
//! Wakers are an executor's code: it may drop a task that waits in the same list, come back at
//! once, or panic. So none is called, cloned or dropped while the list is locked. Nor while the
//! thread holds a device's lock: a waker may poll the task, and a task may own queue pairs, which
//! could not be destroyed then (see [`Debts`]).

use super::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
    lock,
};
use arrayvec::ArrayVec;
use std::{
    cell::{Cell, RefCell},
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Poll, Waker},
};

/// Wakers that are taken out of the list at a time.
const WOKEN_AT_ONCE: usize = 16;

/// The tasks that wait for one thing.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// Entries of `list`.
    count: AtomicU32,
    list: Mutex<Vec<(u64, Waker)>>,
    /// Number of the next entry; changes under the lock of `list`, which is in this order.
    next: AtomicU64,
}

impl Tasks {
    /// Wakes all tasks. What they wait for must be visible before. Wakers run in the caller's
    /// thread with no lock of this list, and if the thread holds a device's lock, after that.
    #[inline]
    pub(crate) fn wake(&self) {
        // Either this thread sees the new task, or the task sees what is new.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        // Tasks that come back while the others are woken are not woken again.
        let mut end = None;
        loop {
            let mut list = lock(&self.list);
            let end = *end.get_or_insert_with(|| self.next.load(Ordering::Relaxed));
            let old = list.partition_point(|(number, _)| *number < end);
            let some: ArrayVec<Waker, WOKEN_AT_ONCE> =
                list.drain(..old.min(WOKEN_AT_ONCE)).map(|(_, waker)| waker).collect();
            self.count_set(&list);
            drop(list);
            if some.is_empty() {
                return;
            }
            some.into_iter().for_each(|waker| {
                if let Some(waker) = owe(waker) {
                    wake_one(waker);
                }
            });
        }
    }

    fn count_set(&self, list: &[(u64, Waker)]) {
        self.count.store(list.len() as u32, Ordering::Relaxed);
    }
}

thread_local! {
    /// Locks of devices that this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread calls what it owes: a waker that comes due meanwhile is called by the
    /// same loop, so that tasks that are polled in `wake` do not pile up on the stack.
    static PAYING: Cell<bool> = const { Cell::new(false) };
    /// Wakers to be called when it holds none any more.
    static OWED: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the waker for later if the thread holds a device's lock, else gives it back.
fn owe(waker: Waker) -> Option<Waker> {
    if HELD.get() == 0 {
        return Some(waker);
    }
    let mut kept = Some(waker);
    // At the end of a thread there is no later.
    let _ = OWED.try_with(|owed| owed.borrow_mut().extend(kept.take()));
    kept
}

/// Held with a device's lock and dropped after it: the last one that a thread drops calls the
/// wakers that came due meanwhile.
#[derive(Debug)]
pub(crate) struct Debts(());

impl Debts {
    #[inline]
    pub(crate) fn new() -> Self {
        HELD.set(HELD.get() + 1);
        Self(())
    }
}

impl Drop for Debts {
    #[inline]
    fn drop(&mut self) {
        let held = HELD.get() - 1;
        HELD.set(held);
        if held == 0 && owed() {
            pay();
        }
    }
}

/// Whether wakers wait until this thread has given up its locks: it must not sleep before.
#[inline]
pub(crate) fn owed() -> bool {
    !PAYING.get() && OWED.try_with(|owed| !owed.borrow().is_empty()).unwrap_or(false)
}

/// Calls the wakers that came due, also while a lock is held.
#[cold]
pub(crate) fn pay() {
    if PAYING.replace(true) {
        return;
    }
    loop {
        let some = OWED.try_with(|owed| mem::take(&mut *owed.borrow_mut())).unwrap_or_default();
        if some.is_empty() {
            break;
        }
        some.into_iter().for_each(wake_one);
    }
    PAYING.set(false);
}

/// Wakes a task. A waker that panics leaves neither the other tasks asleep nor the turn undone,
/// which would make the whole device fail.
fn wake_one(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        log::error!("the waker of a task panicked: its executor may not poll the task again");
        // What it panicked with may panic when it is dropped.
        mem::forget(panic);
    }
}

/// A future's place in a list, left when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    tasks: &'a Tasks,
    number: Option<u64>,
}

impl<'a> Place<'a> {
    pub(crate) fn new(tasks: &'a Tasks) -> Self {
        Self { tasks, number: None }
    }

    /// Has this waker woken by the next [`Tasks::wake`]. What came before wakes nobody: the caller
    /// must look once more.
    fn take(&mut self, waker: &Waker) {
        let mut waker = waker.clone();
        let mut list = lock(&self.tasks.list);
        let own = |number| list.binary_search_by_key(&number, |(number, _)| *number).ok();
        let old = match self.number.and_then(own) {
            Some(at) => {
                mem::swap(&mut list[at].1, &mut waker);
                Some(waker)
            }
            None => {
                let number = self.tasks.next.fetch_add(1, Ordering::Relaxed);
                list.push((number, waker));
                self.number = Some(number);
                self.tasks.count_set(&list);
                None
            }
        };
        drop(list);
        fence(Ordering::SeqCst);
        drop(old);
    }

    /// Stays in the list until the next [`Tasks::wake`], whatever becomes of the future.
    pub(crate) fn forget(&mut self) {
        self.number = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut list = lock(&self.tasks.list);
        if let Ok(at) = list.binary_search_by_key(&number, |(number, _)| *number) {
            let (_, waker) = list.remove(at);
            self.tasks.count_set(&list);
            drop(list);
            drop(waker);
        }
    }
}

/// What a poll does that has found nothing: it has the task woken by any of the lists, and looks
/// once more for what came before that.
pub(crate) fn wait<T>(
    places: &mut [Place<'_>],
    waker: &Waker,
    look: impl FnOnce() -> Option<T>,
) -> Poll<T> {
    places.iter_mut().for_each(|place| place.take(waker));
    look().map_or(Poll::Pending, Poll::Ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{Arc, atomic::AtomicUsize},
        task::Wake,
    };

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn each_waiting_task_is_woken_once_and_one_that_left_is_not() {
        let tasks = Tasks::default();
        let counts: Vec<Arc<Count>> = (0..40).map(|_| Arc::default()).collect();
        let mut places: Vec<Place<'_>> = counts.iter().map(|_| Place::new(&tasks)).collect();
        for (place, count) in places.iter_mut().zip(&counts) {
            place.take(Waker::noop());
            place.take(&Waker::from(Arc::clone(count)));
        }
        assert_eq!(tasks.count.load(Ordering::SeqCst), 40, "one entry each, however often polled");
        drop(places.remove(7));
        tasks.wake();
        tasks.wake();
        let woken = |i: usize| counts[i].0.load(Ordering::SeqCst);
        assert!((0..40).all(|i| woken(i) == usize::from(i != 7)));
        assert_eq!(tasks.count.load(Ordering::SeqCst), 0);
        assert!(counts.iter().all(|c| Arc::strong_count(c) == 1), "no waker is kept");
        // A place is taken again after it was woken.
        places[0].take(&Waker::from(Arc::clone(&counts[0])));
        tasks.wake();
        assert_eq!(woken(0), 2);
    }

    /// A waker that waits again at once, as an executor does that polls in `wake`.
    struct Again(Arc<Tasks>, AtomicUsize);

    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            let mut place = Place::new(&self.0);
            place.take(&Waker::from(Arc::clone(&self)));
            // It stays in the list.
            place.number = None;
        }
    }

    #[test]
    fn a_waker_may_come_back_while_it_is_woken() {
        let tasks = Arc::new(Tasks::default());
        let again = Arc::new(Again(Arc::clone(&tasks), AtomicUsize::new(0)));
        Place::new(&tasks).take(Waker::noop());
        let mut place = Place::new(&tasks);
        place.take(&Waker::from(Arc::clone(&again)));
        tasks.wake();
        assert_eq!(again.1.load(Ordering::SeqCst), 1, "woken once, and not for ever");
        tasks.wake();
        assert_eq!(again.1.load(Ordering::SeqCst), 2);
        lock(&tasks.list).clear();
    }

    /// A waker whose drop looks whether the list is locked, as it is to a task that is dropped with
    /// its last waker and whose futures wait in the list, too.
    struct Last(Arc<Tasks>, Arc<AtomicUsize>);

    impl Wake for Last {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Last {
        fn drop(&mut self) {
            let free = self.0.list.try_lock().is_ok();
            self.1.fetch_add(if free { 1 } else { 100 }, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakers_are_dropped_with_no_lock() {
        let (tasks, drops) = (Arc::new(Tasks::default()), Arc::new(AtomicUsize::new(0)));
        let last = || Waker::from(Arc::new(Last(Arc::clone(&tasks), Arc::clone(&drops))));
        let mut place = Place::new(&tasks);
        place.take(&last());
        place.take(&last());
        assert_eq!(drops.load(Ordering::SeqCst), 1, "a task that gave its future to another");
        tasks.wake();
        assert_eq!(drops.load(Ordering::SeqCst), 2, "woken");
        place.take(&last());
        drop(place);
        assert_eq!(drops.load(Ordering::SeqCst), 3, "left");
    }

    #[test]
    fn who_holds_a_lock_wakes_tasks_after_it() {
        let tasks = Tasks::default();
        let count = Arc::new(Count::default());
        let mut place = Place::new(&tasks);
        let (outer, inner) = (Debts::new(), Debts::new());
        place.take(&Waker::from(Arc::clone(&count)));
        tasks.wake();
        drop(inner);
        assert!(count.0.load(Ordering::SeqCst) == 0 && owed(), "a lock is still held");
        drop(outer);
        assert!(count.0.load(Ordering::SeqCst) == 1 && !owed());
        let again = Arc::new(Deep(AtomicUsize::new(0), AtomicUsize::new(0)));
        let lock = Debts::new();
        assert!(owe(Waker::from(Arc::clone(&again))).is_none());
        drop(lock);
        assert_eq!(again.0.load(Ordering::SeqCst), 100);
    }

    /// A waker that is due again whenever it is called, 100 times, and never within itself.
    struct Deep(AtomicUsize, AtomicUsize);

    impl Wake for Deep {
        fn wake(self: Arc<Self>) {
            assert_eq!(self.1.fetch_add(1, Ordering::SeqCst), 0);
            let lock = Debts::new();
            if self.0.fetch_add(1, Ordering::SeqCst) < 99 {
                assert!(owe(Waker::from(Arc::clone(&self))).is_none());
            }
            drop(lock);
            self.1.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A waker that panics, with something that panics again when it is dropped.
    struct Panics;

    struct Worse;

    impl Drop for Worse {
        fn drop(&mut self) {
            panic!("a panic in a panic");
        }
    }

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new(Worse));
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_asleep() {
        let tasks = Tasks::default();
        let counts: Vec<Arc<Count>> = (0..40).map(|_| Arc::default()).collect();
        let mut places: Vec<Place<'_>> = Vec::new();
        for (i, count) in counts.iter().enumerate() {
            let mut place = Place::new(&tasks);
            place.take(&if i % 3 == 0 {
                Arc::new(Panics).into()
            } else {
                Arc::clone(count).into()
            });
            places.push(place);
        }
        tasks.wake();
        let woken = |i: usize| counts[i].0.load(Ordering::SeqCst);
        assert!((0..40).all(|i| woken(i) == usize::from(i % 3 != 0)));
        assert_eq!(tasks.count.load(Ordering::SeqCst), 0);
    }
}
