//! Which thread drives the engine now: callers, or the device's thread.

use crate::{
    Progress,
    callers::Callers,
    crowd::{self, Room},
    device::Shared,
    nic::Turn,
    taker::Taker,
};
use std::{sync::Arc, thread};

/// The configured [`Progress`], and its current state.
#[derive(Debug)]
pub(crate) struct Driving {
    progress: Progress,
    pub callers: Callers,
}

impl Driving {
    pub(crate) fn new(progress: Progress) -> Self {
        Self { progress, callers: Callers::new() }
    }

    /// Whether only callers ever drive the engine.
    pub(crate) fn by_caller_only(&self) -> bool {
        self.progress == Progress::Caller
    }

    /// Whether a post transmits packets itself, because no other thread drives at the moment.
    #[inline]
    pub(crate) fn posts_leave_at_once(&self) -> bool {
        matches!(self.progress, Progress::Shared { .. })
    }
}

impl Shared {
    /// Whether a poll that found its queue empty drives, and whether it does so instead of the
    /// device's thread: `stays`: the caller will poll again soon.
    #[inline]
    fn drive_begin(&self, stays: bool) -> Option<bool> {
        match self.driving.progress {
            Progress::Thread { .. } => None,
            Progress::Shared { .. } if stays => {
                self.driving.callers.begin();
                if self.rest.needs_wake() {
                    self.waker.wake();
                }
                Some(true)
            }
            Progress::Caller | Progress::Shared { .. } => Some(false),
        }
    }

    /// Drives the engine for a poll that found its queue empty and that serves several shards.
    /// Returns whether anything was done, and when the turn began in ns, 0 if there was none.
    pub(crate) fn drive_among_others(&self, stays: bool) -> (bool, u64) {
        let Some(stays) = self.drive_begin(stays) else { return (false, 0) };
        let Some(mut nic) = self.try_nic() else { return (false, 0) };
        let done = nic.turn(self) != Turn::default();
        if stays {
            let now = nic.turned_at;
            nic.polled(self, now);
            self.driving.callers.turned(nic.turned_at.0);
        }
        (done, nic.turned_at.0)
    }

    /// Drives the engine for a poll that found its queue empty; returns whether anything was done.
    /// `stays`: the caller will poll again soon, so the device's thread need not drive. The taker,
    /// if there is one, gets completions of its queue.
    #[inline]
    pub(crate) fn drive_from_poll(&self, stays: bool, mut taker: Option<&mut Taker<'_>>) -> bool {
        let Some(stays) = self.drive_begin(stays) else { return false };
        let Some(mut nic) = self.try_nic() else { return false };
        let mut done = nic.turn_for(self, taker.as_deref_mut()) != Turn::default();
        if stays {
            let now = nic.turned_at;
            nic.polled(self, now);
            let mut room = Room::Stay;
            if done {
                crowd::busy();
            } else {
                room = crowd::idle(now.0);
            }
            if room == Room::Sleep {
                self.sleep_in_poll(&mut nic);
                done = nic.turn_for(self, taker) != Turn::default();
            }
            self.driving.callers.turned(nic.turned_at.0);
            drop(nic);
            if room == Room::Yield {
                // What has come meanwhile, the caller's next poll takes.
                thread::yield_now();
            }
        }
        done
    }
}

/// Drives those of the shards whose bits are set in `which`, for a caller that waits for requests
/// of theirs and will look again soon.
pub(crate) fn drive_all(shards: &[Arc<Shared>], which: u64) {
    let mut wanted = shards.iter().filter(|shard| which >> shard.index & 1 != 0);
    match which.count_ones() {
        1 => {
            wanted.next().map(|only| only.drive_from_poll(true, None));
        }
        // One thread cannot sleep in several sockets.
        _ => wanted.for_each(|shard| {
            shard.drive_among_others(true);
        }),
    }
}
