//! Futures: tasks of an executor that wait until the turn has something for them.
//!
//! No runtime is needed and none is used: a task that finds nothing leaves its waker in the list of
//! what it waits for, and whoever takes the turn wakes all tasks of the list after it. A future
//! takes an item only in the poll that returns it, so that one that is dropped early loses nothing
//! (it is *cancel-safe*).

pub(crate) use crate::wakers::{Debts, Tasks, owed, pay};
use crate::{
    Device, Error,
    shard::Shard,
    wakers::{Place, wait},
};
use std::{
    future::{Future, poll_fn},
    task::Poll,
};

/// The next item that `take` finds, whose arrival wakes `tasks`. `take` is told whether it is to
/// drive the device first, where this is the caller's duty.
pub(crate) fn next_of<'a, T: 'a>(
    device: &'a Device,
    tasks: &'a Tasks,
    mut take: impl FnMut(bool) -> Result<Option<T>, Error> + Send + Unpin + 'a,
) -> impl Future<Output = Result<T, Error>> + Send + Unpin + 'a {
    let shared = device.shared();
    let mut places = Places { shared, lists: [tasks, &shared.common.ending].map(Place::new) };
    poll_fn(move |cx| {
        if let Some(item) = take(true).transpose() {
            return Poll::Ready(item);
        }
        if shared.driving.by_caller_only() {
            // Nobody else drives: the executor comes back as soon as it has served the others.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        wait(&mut places.lists, cx.waker(), || take(false).transpose())
    })
}

/// A future's places in the lists of what ends its waiting.
struct Places<'a> {
    shared: &'a Shard,
    lists: [Place<'a>; 2],
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        // A thread that holds a list's lock at the moment of a `fork` does not exist in the child.
        if self.shared.is_left() {
            self.lists.iter_mut().for_each(Place::forget);
        }
    }
}
