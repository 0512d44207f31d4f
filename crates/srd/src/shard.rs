//! One shard of a device: an engine on a datapath behind a lock, and what the handles, the threads
//! that drive the engine and its turns share.

use crate::{
    Error, Progress, crowd,
    dirty::DirtySet,
    driving::Driving,
    failed::{Holder, NicGuard},
    fork::Process,
    nic::Nic,
    queue::QpCore,
    rest::Rest,
    shards::{Common, Stop},
    sync::lock,
    tasks::owed,
};
use srd_datapath::Waker;
use std::{
    os::fd::RawFd,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

/// One shard of the device: an engine with its datapath and its lock. State shared by all handles,
/// the driving thread and the turn.
pub(crate) struct Shard {
    /// What all shards of the device have in common.
    pub common: Arc<Common>,
    /// Number of the shard in its device, from 0.
    pub index: u8,
    pub slot: u8,
    process: Process,
    nic: Mutex<Nic>,
    /// The thread that has locked it.
    pub holder: Holder,
    /// Threads that wait for the lock while its holder may sleep in the datapath.
    pub control_waiting: AtomicU32,
    /// Whether the driver sleeps in the datapath and must be woken for new work.
    pub rest: Rest,
    pub waker: Waker,
    /// Descriptors that are readable while packets wait, for a thread that waits for several
    /// shards. They live as long as the datapath, which lives as long as this.
    pub receivers: Box<[RawFd]>,
    /// Queue pairs with new posts.
    pub posted: DirtySet,
    /// Completion queues with freed slots.
    pub polled: DirtySet,
    /// Whether some queue pair's posts wait for freed slots.
    pub held: AtomicBool,
    /// Whether posts wait for the next poll; see [`Cork`](crate::cork::Cork).
    pub corked: AtomicBool,
    /// Whether a post has come since the last poll.
    pub post_follows: AtomicBool,
    /// The queue pairs whose posts wait for freed slots.
    queues: Mutex<Vec<Arc<QpCore>>>,
    /// Whether the send queues together are deeper than the engine's table of requests.
    sends_limited: AtomicBool,
    pub stop: Stop,
    /// Whether the engine has panicked; see [`Nic::fail`].
    pub failed: AtomicBool,
    pub driving: Driving,
}

impl Shard {
    /// Shard `index` of a device, which nothing drives yet.
    pub(crate) fn new(common: &Arc<Common>, index: u8, progress: Progress, nic: Nic) -> Self {
        let mut receivers = Vec::new();
        nic.net.receivers(&mut |fd| receivers.push(fd));
        Self {
            common: Arc::clone(common),
            index,
            slot: nic.engine.config().slot,
            process: Process::current(),
            driving: Driving::new(progress),
            control_waiting: AtomicU32::new(0),
            rest: Rest::new(),
            waker: nic.net.waker(),
            receivers: receivers.into(),
            posted: DirtySet::default(),
            polled: DirtySet::default(),
            held: AtomicBool::new(false),
            corked: AtomicBool::new(false),
            post_follows: AtomicBool::new(false),
            queues: Mutex::default(),
            sends_limited: AtomicBool::new(false),
            stop: Stop::default(),
            failed: AtomicBool::new(false),
            nic: Mutex::new(nic),
            holder: Holder::default(),
        }
    }

    /// Whether the device is usable.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.process.is_left() {
            return Err(Error::Forked);
        }
        if self.stop.is_ending_relaxed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Whether this process is a child of `fork` of the process that opened the device.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        self.process.is_left()
    }

    /// Takes the lock for a command. Wakes the holder if it sleeps.
    pub(crate) fn nic(&self) -> Result<NicGuard<'_>, Error> {
        self.check()?;
        self.nic_to_destroy()
    }

    /// Takes the lock to destroy an object. It also succeeds on a device that is shut down, which
    /// may still be closing its contexts.
    pub(crate) fn nic_to_destroy(&self) -> Result<NicGuard<'_>, Error> {
        if self.process.is_left() {
            return Err(Error::Forked);
        }
        let mut nic = match self.try_nic() {
            Some(nic) => nic,
            None => self.nic_after_holder()?,
        };
        // A command finds sent what was posted before it.
        nic.uncork(self);
        Ok(nic)
    }

    /// Takes the lock that another thread holds, which is woken if it sleeps.
    #[cold]
    fn nic_after_holder(&self) -> Result<NicGuard<'_>, Error> {
        self.control_waiting.fetch_add(1, Ordering::SeqCst);
        self.waker.wake();
        let nic = self.nic_for_driver();
        self.control_waiting.fetch_sub(1, Ordering::SeqCst);
        nic
    }

    /// Takes the lock unless another thread holds it.
    #[inline(always)]
    pub(crate) fn try_nic(&self) -> Option<NicGuard<'_>> {
        match self.nic.try_lock() {
            Ok(nic) if !self.failed.load(Ordering::Relaxed) => Some(NicGuard::new(nic, self)),
            Ok(_) | Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => {
                self.end();
                None
            }
        }
    }

    /// Takes the lock. If a thread panicked while it held the lock, the engine must not be used
    /// again: the device is closed, sends nothing more, and reads no registered memory. A thread
    /// that holds the lock already, and was interrupted by a signal, gets an error.
    pub(crate) fn nic_for_driver(&self) -> Result<NicGuard<'_>, Error> {
        if self.holder.is_me() {
            return Err(Error::Closed);
        }
        let locked = self.nic.lock().map_err(|_| {
            self.end();
            Error::Closed
        })?;
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        Ok(NicGuard::new(locked, self))
    }

    /// Notes that a queue pair has new posts.
    #[inline]
    pub(crate) fn note_post(&self, qp_index: usize) {
        self.posted.insert(qp_index);
        if self.driving.posts_leave_at_once()
            && let Some(mut nic) = self.try_nic()
        {
            nic.posts_come(self, qp_index);
        } else if self.rest.needs_wake() {
            self.waker.wake();
        }
    }

    /// Notes that a queue pair has new receives: the next turn takes them before it handles
    /// packets.
    #[inline]
    pub(crate) fn note_recvs(&self, qp_index: usize) {
        self.posted.insert(qp_index);
    }

    /// Notes that a completion queue has freed slots.
    #[inline]
    pub(crate) fn note_poll(&self, cq_index: usize) {
        self.polled.insert(cq_index);
        if self.held.load(Ordering::SeqCst) && self.rest.needs_wake() {
            self.waker.wake();
        }
    }

    /// Notes that the driver itself has freed slots of a completion queue in the engine: posts that
    /// waited for them are due.
    #[inline]
    pub(crate) fn note_freed(&self, cq_index: usize) {
        if self.held.load(Ordering::SeqCst) {
            self.polled.insert(cq_index);
        }
    }

    /// Whether there is work that neither a packet nor a timer announces.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work_of_callers() || self.driving.callers.drive()
    }

    /// As [`Shard::has_work`], for a caller, which drives itself.
    pub(crate) fn has_work_of_callers(&self) -> bool {
        self.posted.any()
            || (self.held.load(Ordering::SeqCst) && self.polled.any())
            || self.control_waiting.load(Ordering::SeqCst) > 0
            || self.stop.is_ending()
            || owed()
    }

    /// Sleeps in the datapath, up to `limit`, until something can be done.
    pub(crate) fn sleep(&self, nic: &mut Nic, limit: Option<Duration>) {
        self.sleep_unless(|| self.has_work(), nic, limit);
    }

    /// Sleeps in a poll that found nothing, because others want the processor.
    pub(crate) fn sleep_in_poll(&self, nic: &mut Nic) {
        self.sleep_unless(|| self.has_work_of_callers(), nic, Some(crowd::SLEEP_MAX));
    }

    fn sleep_unless(
        &self,
        has_work: impl FnOnce() -> bool,
        nic: &mut Nic,
        limit: Option<Duration>,
    ) {
        self.rest.sleep_unless(has_work, || {
            let idle = nic.idle_time(limit);
            if idle != Some(Duration::ZERO)
                && let Err(e) = nic.net.wait(idle)
            {
                nic.net_failed(self, &e);
            }
        });
    }

    /// Notes that a queue pair was created (before its first post) or destroyed.
    pub(crate) fn queues_change(&self, change: impl FnOnce(&mut Vec<Arc<QpCore>>)) {
        let mut queues = lock(&self.queues);
        change(&mut queues);
        let sends: u64 = queues.iter().map(|q| u64::from(q.sq_slots.limit())).sum();
        self.sends_limited.store(sends > u64::from(self.common.attr.max_wr), Ordering::Release);
    }

    /// Number of its queue pairs.
    pub(crate) fn queue_pairs(&self) -> usize {
        lock(&self.queues).len()
    }

    /// Whether the engine's table has room for another send request. Requests are counted only if
    /// the send queues together could exceed the table. Two threads that post concurrently may both
    /// find the last free entry: the request that does not get it waits in its ring.
    #[inline]
    pub(crate) fn sends_have_room(&self) -> bool {
        !self.sends_limited.load(Ordering::Acquire) || self.sends_used() < self.common.attr.max_wr
    }

    #[cold]
    fn sends_used(&self) -> u32 {
        lock(&self.queues).iter().map(|q| q.sq_slots.used()).sum()
    }
}
