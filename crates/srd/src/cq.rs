//! Completion queues.

use crate::{
    CompletionChannel, Device, Error, WorkCompletion,
    budget::CqSlots,
    driving::drive_all,
    nic::Nic,
    queue::{CQS_MAX, CqCore},
    sync::lock,
    taker::Taker,
    tasks::Tasks,
    wait::SOON_ENOUGH,
};
use srd_core::CqId;
use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    time::Duration,
};

/// Configuration of a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqInit<'a> {
    /// Number of slots: a post takes one, a polled completion returns it.
    pub depth: u32,
    /// Channel to which [`CompletionQueue::req_notify`] sends events.
    pub channel: Option<&'a CompletionChannel>,
    /// A number of the caller's, returned in events.
    pub context: u64,
}

/// A completion queue. Cheap to clone.
///
/// Every post reserves a slot for its completion, so a queue never overruns: if no slot is free,
/// the post fails with [`PostError::CqFull`](crate::PostError::CqFull).
#[derive(Clone, Debug)]
pub struct CompletionQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Device,
    core: Arc<CqCore>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.destroy_on_all(|_, nic| {
            // Queue pairs hold their completion queues, so no queue pair uses this one any more.
            let _ = nic.engine.cq_destroy(self.core.id);
            if let Some(side) = nic.tables.cqs.get_mut(usize::from(self.core.id.0)) {
                *side = None;
            }
        });
        if let Some(channel) = &self.core.channel {
            channel.purge(self.core.id);
        }
    }
}

impl CompletionQueue {
    pub(crate) fn create(device: &Device, init: &CqInit<'_>) -> Result<Self, Error> {
        if init.depth == 0 || init.depth > device.attr().max_cqe {
            return Err(Error::Invalid("completion queue depth must be from 1 to max_cqe"));
        }
        if init.channel.is_some_and(|c| !c.device().is_same(device)) {
            return Err(Error::Invalid("the channel belongs to another device"));
        }
        let destroy = |nic: &mut Nic, id| {
            let _ = nic.engine.cq_destroy(id);
        };
        let create = |nic: &mut Nic, _| {
            let id = nic.engine.cq_create(init.depth);
            let id = id.map_err(|e| Error::from_core(e, "completion queue"))?;
            if usize::from(id.0) >= CQS_MAX {
                destroy(nic, id);
                return Err(Error::NoRoom("completion queue"));
            }
            Ok(id)
        };
        let core = Arc::new(CqCore {
            id: device.create_on_all(create, destroy)?,
            reader: Mutex::default(),
            shards: AtomicU64::new(0),
            slots: CqSlots::new(init.depth),
            pushed: AtomicU32::new(0),
            popped: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            channel: init.channel.map(|c| Arc::clone(c.core())),
            context: init.context,
            sleepers: AtomicU32::new(0),
            soon: AtomicU8::new(SOON_ENOUGH),
            bed: (Mutex::new(()), Condvar::new()),
            tasks: Tasks::default(),
        });
        Ok(Self(Arc::new(Inner { device: device.clone(), core })))
    }

    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.0.core
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its number in events.
    pub fn id(&self) -> CqId {
        self.0.core.id
    }

    /// Number of slots.
    pub fn depth(&self) -> u32 {
        self.0.core.slots.limit()
    }

    /// The number given when it was created.
    pub fn context(&self) -> u64 {
        self.0.core.context
    }

    /// Whether a queue pair (or another handle) refers to it.
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Moves completions to `out`, as many as are ready and fit; returns how many. With
    /// [`Progress::Caller`](crate::Progress::Caller) a poll of an empty queue makes the engine take
    /// a turn.
    ///
    /// # Errors
    /// In a child of `fork`; when the device is shut down and no completion is left.
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, Error> {
        // The owner of an armed queue is about to sleep, so the device's thread must drive.
        self.poll_or(out, |taker| self.drive(!self.0.core.armed.load(Ordering::Relaxed), taker))
    }

    /// Moves completions to `out`; if there are none, has `drive` make some, which either takes
    /// them or returns whether there may be any.
    #[inline]
    pub(crate) fn poll_or(
        &self,
        out: &mut [WorkCompletion],
        drive: impl FnOnce(&mut Taker<'_>) -> bool,
    ) -> Result<usize, Error> {
        match self.0.device.check_poll() {
            Err(Error::Forked) => return Err(Error::Forked),
            alive => {
                self.posts_flush();
                let n = self.take(out);
                if n > 0 || out.is_empty() {
                    return Ok(n);
                }
                alive?;
            }
        }
        let mut taker = Taker::new(&self.0.core, out);
        let done = drive(&mut taker);
        Ok(match taker.taken() {
            0 if done => self.take(out),
            n => n,
        })
    }

    /// Drives the engines for a poll that found nothing; returns whether anything was done.
    /// `stays`: the caller will poll again soon, so the device's threads need not drive.
    #[inline]
    pub(crate) fn drive(&self, stays: bool, taker: &mut Taker<'_>) -> bool {
        match self.0.device.shards() {
            [only] => only.drive_from_poll(stays, Some(taker)),
            shards => drive_all(shards, self.shards_used(), stays),
        }
    }

    /// The next completion, as a future: `cq.next().await`. Any executor will do.
    ///
    /// It is *cancel-safe*: a future that is dropped, by `select!` or a timeout, takes no
    /// completion along. Several tasks may wait for one queue; each completion goes to one of them.
    ///
    /// With [`Progress::Thread`](crate::Progress::Thread), the default, a thread of the device
    /// drives and wakes the task: use this with an executor whose threads sleep, as tokio's do.
    /// With [`Progress::Shared`](crate::Progress::Shared) the task drives when it is polled, and
    /// the thread while it sleeps. With [`Progress::Caller`](crate::Progress::Caller) nobody but
    /// the caller drives, so a waiting task asks to be polled again at once: it works with every
    /// executor, which then never sleeps, and the device does nothing, not even acknowledge, while
    /// no task waits.
    ///
    /// A task is woken by the thread that drives, after it has given up the device's lock: a waker
    /// may poll, post, and create and destroy objects of the device, or the device itself.
    ///
    /// ```
    /// use srd::{CompletionQueue, WorkCompletion};
    ///
    /// type Failure = Box<dyn std::error::Error>;
    /// async fn two(cq: &CompletionQueue) -> Result<[WorkCompletion; 2], Failure> {
    ///     Ok([cq.next().await?.ok()?, cq.next().await?.ok()?])
    /// }
    /// ```
    ///
    /// # Errors
    /// When the device is shut down and no completion is left; in a child of `fork`.
    #[cfg(feature = "async")]
    pub fn next(&self) -> impl Future<Output = Result<WorkCompletion, Error>> + Send + Unpin + '_ {
        crate::tasks::next_of(&self.0.device, &self.0.core.tasks, |drive| {
            let mut one = [WorkCompletion::default()];
            let n = self.poll_or(&mut one, |taker| {
                if drive {
                    return self.drive(false, taker);
                }
                self.leave();
                true
            })?;
            Ok((n == 1).then_some(one[0]))
        })
    }

    /// The shards that complete into this queue, one bit each; the only one of a device, whether it
    /// does or not.
    pub(crate) fn shards_used(&self) -> u64 {
        let only = self.0.device.shard_count() == 1;
        if only { 1 } else { self.0.core.shards.load(Ordering::Acquire) }
    }

    /// A caller that does not come back by itself leaves the shards to their threads, which threads
    /// that wait take from them no more; see [`crate::wait`].
    fn leave(&self) {
        self.0.device.shared().common.relied.store(true, Ordering::SeqCst);
        self.callers_rest();
    }

    /// A caller is about to sleep on the queue: the shards' threads drive from now on.
    pub(crate) fn callers_rest(&self) {
        let used = self.shards_used();
        for shard in self.0.device.shards() {
            if used >> shard.index & 1 != 0 {
                shard.driving.callers.rest();
            }
        }
    }

    /// As [`CompletionQueue::poll`], but takes only completions that are ready: the engine takes no
    /// turn. For callers that already have a completion and look for more before they process it.
    ///
    /// # Errors
    /// In a child of `fork`.
    pub fn poll_waiting(&self, out: &mut [WorkCompletion]) -> Result<usize, Error> {
        match self.0.device.shared().check() {
            Err(Error::Forked) => Err(Error::Forked),
            _ => Ok(self.take(out)),
        }
    }

    /// Sends posts of the device that wait for the next poll, as every [`CompletionQueue::poll`]
    /// does. For callers that have taken completions in advance and pass one on without a poll.
    #[inline]
    pub fn posts_flush(&self) {
        self.0.device.shards().iter().for_each(|shard| shard.uncork());
    }

    /// Takes the oldest completion.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn poll_one(&self) -> Result<Option<WorkCompletion>, Error> {
        let mut one = [WorkCompletion::default()];
        Ok((self.poll(&mut one)? == 1).then_some(one[0]))
    }

    /// Arms the queue: the next completion causes one event on its channel; a completion that is
    /// already waiting causes it at once.
    ///
    /// # Errors
    /// The queue has no channel, or the device is not usable.
    pub fn req_notify(&self) -> Result<(), Error> {
        self.req_notify_beyond(0)
    }

    /// As [`CompletionQueue::req_notify`], for a caller that has polled `unread` completions but
    /// not processed them: they count as waiting.
    ///
    /// # Errors
    /// As [`CompletionQueue::req_notify`].
    pub fn req_notify_beyond(&self, unread: usize) -> Result<(), Error> {
        let core = &self.0.core;
        self.0.device.shared().check()?;
        let Some(channel) = &core.channel else {
            return Err(Error::Invalid("the completion queue was created without a channel"));
        };
        // The caller is about to sleep rather than to poll.
        self.posts_flush();
        core.armed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Either the turn sees that the queue is armed, or this thread sees the new completion.
        if (unread > 0 || self.has_waiting()) && core.armed.swap(false, Ordering::SeqCst) {
            channel.push(core.id, core.context);
        }
        self.leave();
        Ok(())
    }

    /// Removes the queue's events from its channel; no more follow until the queue is armed again.
    /// For callers that count events and are about to destroy the queue.
    pub fn events_forget(&self) {
        let core = &self.0.core;
        core.armed.store(false, Ordering::SeqCst);
        if let Some(channel) = &core.channel {
            channel.purge(core.id);
        }
    }

    /// Whether completions wait to be polled.
    fn has_waiting(&self) -> bool {
        !lock(&self.0.core.reader).is_empty()
    }

    /// Sleeps up to `limit` until the turn has added a completion.
    pub(crate) fn sleep(&self, limit: Duration) {
        let core = &self.0.core;
        core.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let guard = lock(&core.bed.0);
        // The waker takes the same lock after adding the completion: either this check sees the
        // completion, or the notification comes while this thread waits.
        if !self.has_waiting() {
            drop(core.bed.1.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner));
        }
        core.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes what has arrived.
    #[inline]
    fn take(&self, out: &mut [WorkCompletion]) -> usize {
        if self.0.core.may_have() { self.take_ring(out) } else { 0 }
    }

    fn take_ring(&self, out: &mut [WorkCompletion]) -> usize {
        let core = &self.0.core;
        let mut reader = lock(&core.reader);
        // The engine is told first: a post that takes the slot must find it free in the engine,
        // too.
        let (n, mut freed) = reader.take(out);
        if n > 0 {
            core.slots.polled(n as u32);
            core.popped_add(n as u32);
            drop(reader);
            while freed != 0 {
                let shard = &self.0.device.shards()[freed.trailing_zeros() as usize];
                shard.note_poll(usize::from(core.id.0));
                freed &= freed - 1;
            }
        }
        n
    }
}
