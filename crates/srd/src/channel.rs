//! Completion channels: a file descriptor that becomes readable when an armed completion queue
//! gets a completion.

use crate::{
    Device, Error, eventfd::EventFd, eventfd::poll_readable, sync::lock, thread::deadline,
};
use srd_core::CqId;
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// An event of a channel: an armed completion queue has got a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqEvent {
    /// The completion queue.
    pub cq: CqId,
    /// The number given when it was created.
    pub context: u64,
}

/// The part of a channel that the engine's turn writes.
#[derive(Debug)]
pub(crate) struct ChannelCore {
    fd: EventFd,
    waiting: Mutex<VecDeque<CqEvent>>,
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { fd: EventFd::new()?, waiting: Mutex::new(VecDeque::new()) })
    }

    /// Adds a pending event. An armed queue causes one event, so the number of events is bounded by
    /// how often users arm queues without reading the channel.
    pub(crate) fn push(&self, cq: CqId, context: u64) {
        let mut waiting = lock(&self.waiting);
        waiting.push_back(CqEvent { cq, context });
        self.fd.add();
    }

    pub(crate) fn pop(&self) -> Option<CqEvent> {
        self.pop_with(|_| ())
    }

    /// Passes the event to `taken` before the lock is released.
    pub(crate) fn pop_with(&self, taken: impl FnOnce(&CqEvent)) -> Option<CqEvent> {
        let mut waiting = lock(&self.waiting);
        let event = waiting.pop_front()?;
        taken(&event);
        self.fd.take();
        Some(event)
    }

    /// Drops the events of a destroyed queue.
    pub(crate) fn purge(&self, cq: CqId) {
        let mut waiting = lock(&self.waiting);
        let before = waiting.len();
        waiting.retain(|e| e.cq != cq);
        (waiting.len()..before).for_each(|_| self.fd.take());
    }
}

/// A completion channel (verbs: `ibv_comp_channel`).
///
/// Arm a queue with [`CompletionQueue::req_notify`](crate::CompletionQueue::req_notify), poll it
/// once more, then wait: the next completion that arrives makes one event. The descriptor is
/// readable while events are pending. With [`Progress::Caller`](crate::Progress::Caller) a caller
/// must drive the device meanwhile; [`CompletionChannel::get`] does.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    device: Device,
    core: Arc<ChannelCore>,
}

impl CompletionChannel {
    pub(crate) fn new(device: Device) -> Result<Self, Error> {
        let core = ChannelCore::new().map_err(|_| Error::NoRoom("file descriptor"))?;
        Ok(Self { device, core: Arc::new(core) })
    }

    pub(crate) fn core(&self) -> &Arc<ChannelCore> {
        &self.core
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The oldest pending event.
    pub fn try_get(&self) -> Option<CqEvent> {
        self.core.pop()
    }

    /// As [`CompletionChannel::try_get`]; passes the event to `taken` while the channel is locked.
    /// Callers that destroy queues count events there: after
    /// [`CompletionQueue::events_forget`](crate::CompletionQueue::events_forget) every event ever
    /// taken from the queue has been counted.
    pub fn try_get_with(&self, taken: impl FnOnce(&CqEvent)) -> Option<CqEvent> {
        self.core.pop_with(taken)
    }

    /// The oldest event; waits up to `timeout` for one (`None` = no limit).
    ///
    /// # Errors
    /// In a child of `fork`, or when the device is shut down.
    pub fn get(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>, Error> {
        let deadline = timeout.and_then(deadline);
        loop {
            self.device.shared().check()?;
            if let Some(event) = self.core.pop() {
                return Ok(Some(event));
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if self.device.shared().driving.by_caller_only() {
                self.device.progress()?;
                if let Some(event) = self.core.pop() {
                    return Ok(Some(event));
                }
                self.device.wait(left)?;
            } else {
                // Bounded, so that the wait notices when the device is shut down.
                let ms = left.map_or(1000, |l| l.as_millis().clamp(1, 1000) as i32);
                poll_readable(self.core.fd.as_raw_fd(), ms)
                    .map_err(|_| Error::Invalid("channel descriptor"))?;
            }
        }
    }

    /// Whether a completion queue reports to it.
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.core) > 1
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.fd.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.core.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn an_event_that_is_being_taken_is_counted_before_its_queue_can_go() {
        let c = Arc::new(ChannelCore::new().unwrap());
        c.push(CqId(1), 10);
        let (counted, mut destroyer) = (Arc::new(AtomicBool::new(false)), None);
        let (other, seen) = (Arc::clone(&c), Arc::clone(&counted));
        c.pop_with(|_| {
            // The queue is destroyed between taking the event and counting it.
            destroyer = Some(std::thread::spawn(move || {
                other.purge(CqId(1));
                seen.load(Ordering::SeqCst)
            }));
            // Long enough for a purge that does not wait for the count.
            std::thread::sleep(Duration::from_millis(50));
            counted.store(true, Ordering::SeqCst);
        });
        let destroyer = destroyer.expect("there was an event");
        assert!(destroyer.join().unwrap(), "the queue went before the event was counted");
    }

    #[test]
    fn events_come_in_order_and_purge_takes_the_readiness_along() {
        let c = ChannelCore::new().unwrap();
        for (cq, context) in [(1, 10), (2, 20), (1, 11)] {
            c.push(CqId(cq), context);
        }
        c.purge(CqId(1));
        assert!(poll_readable(c.fd.as_raw_fd(), 0).unwrap());
        assert_eq!(c.pop(), Some(CqEvent { cq: CqId(2), context: 20 }));
        assert_eq!(c.pop(), None);
        assert!(!poll_readable(c.fd.as_raw_fd(), 0).unwrap());
    }
}
