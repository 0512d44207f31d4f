//! Threads that wait for a completion.
//!
//! Where callers and the device's threads share the work ([`Progress::Shared`]), a thread that
//! waits has two ways. It drives the shards of its queue and sleeps in their sockets, as a poll
//! does where others want the processor: a packet wakes it, and nobody else. Or it leaves the
//! shards to their threads, which handle the packets and wake it for its completion: each message
//! then wakes two threads, and changing from one way to the other wakes the thread of each shard.
//! The first is the cheaper one for an answer that comes soon; the second lets a long wait sleep
//! without looking at the time. So a thread waits in the first way for [`PATIENCE`], unless one of
//! the last waits took longer; and only while no other thread waits, because a packet would wake
//! all of them. Where a queue was ever armed or awaited by a task, it always waits in the second
//! way: who relies on the threads of the shards must not depend on how soon this thread waits
//! again.
//!
//! [`Progress::Shared`]: crate::Progress::Shared

use crate::{
    CompletionQueue, Error, WorkCompletion,
    driving::drive_and_sleep,
    thread::{HANDOVER, deadline},
};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Longest sleep before a thread checks whether the device has been shut down.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// How long a thread that waits drives. Some sleeps of a poll: if it was in vain, as much was lost
/// as changing to the other way costs.
const PATIENCE: Duration = Duration::from_millis(1);

/// Waits in a row that were over soon after which the next one drives again. An answer that comes
/// late is mostly preceded by the completion of its request, which comes soon.
pub(crate) const SOON_ENOUGH: u8 = 4;

/// A thread is counted among those that wait.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(waiting: &'a AtomicU32) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }

    /// Whether it is the only one.
    fn is_alone(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 1
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CompletionQueue {
    /// Takes the oldest completion; sleeps up to `timeout` for one. Drives the engine unless
    /// another thread does.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<WorkCompletion>, Error> {
        let mut one = [WorkCompletion::default()];
        if self.poll_or(&mut one, |_| false)? == 1 {
            return Ok(Some(one[0]));
        }
        let (begin, end) = (Instant::now(), deadline(timeout));
        let (shards, shared) = (self.device().shards(), self.device().shared());
        let counted = Counted::new(&shared.common.waiting);
        let mut drove = false;
        let done = loop {
            let now = Instant::now();
            let waited = now.saturating_duration_since(begin);
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            let drives = waited < PATIENCE && counted.is_alone() && self.can_drive();
            drove |= drives;
            // One that leaves the shards to their threads takes none from them just before.
            let n = self.poll_or(&mut one, |taker| match drives {
                true => drive_and_sleep(shards, self.shards_used(), left),
                false => self.drive(false, taker),
            })?;
            if n == 1 {
                self.note(begin.elapsed());
                break Some(one[0]);
            }
            if waited >= PATIENCE {
                self.note(waited);
            }
            if left.is_zero() {
                break None;
            }
            if drives {
                continue;
            }
            if !shared.driving.by_caller_only() {
                self.callers_rest();
                self.sleep(left.min(SLEEP_MAX));
            } else if let Some(mut nic) = shared.try_nic() {
                shared.sleep(&mut nic, Some(left));
                nic.turn(shared);
            } else {
                // Another thread drives. If it stops, this thread takes over after a short wait.
                self.sleep(left.min(HANDOVER));
            }
        };
        if drove && (!counted.is_alone() || shared.common.relied.load(Ordering::SeqCst)) {
            // The others have left the shards to their threads, but this one may have taken them
            // back since.
            self.callers_rest();
        }
        Ok(done)
    }

    /// Notes how long a thread has waited.
    fn note(&self, waited: Duration) {
        let soon = &self.core().soon;
        let before = soon.load(Ordering::Relaxed);
        let now = if waited < PATIENCE { SOON_ENOUGH.min(before + 1) } else { 0 };
        soon.store(now, Ordering::Relaxed);
    }

    /// Whether a thread that waits alone may drive: completions come soon, nobody relies on the
    /// threads of the shards, and it can sleep in the sockets of all.
    fn can_drive(&self) -> bool {
        let (shared, used) = (self.device().shared(), self.shards_used());
        let mut shards = self.device().shards().iter().filter(|s| used >> s.index & 1 != 0);
        shared.driving.is_shared()
            && self.core().soon.load(Ordering::Relaxed) == SOON_ENOUGH
            && !shared.common.relied.load(Ordering::SeqCst)
            && used != 0
            && shards.all(|shard| !shard.receivers.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CqInit, Device, DeviceConfig, Progress, QKey, QpInit, QueuePair, RecvWr, SendWr};
    use std::thread;

    /// Longer than any test runs: a thread of the device never drives because callers are late.
    const SHARED: Progress = Progress::Shared { idle: Duration::from_secs(3_600) };
    const LONG: Duration = Duration::from_secs(60);
    const QKEY: QKey = QKey(5);

    fn device(shards: u16, progress: Progress) -> Device {
        let mut config = DeviceConfig::loopback();
        (config.shards, config.progress) = (shards, progress);
        (config.paths, config.share, config.status) = (4, false, false);
        Device::open(config).unwrap()
    }

    fn queue_pair(device: &Device, cq: &CompletionQueue) -> QueuePair {
        let qp = device.pd_create().unwrap().qp_create(&QpInit::srd(cq, cq)).unwrap();
        qp.activate(QKEY).unwrap();
        qp
    }

    #[test]
    fn a_thread_that_waits_may_drive_where_completions_come_soon_and_nobody_relies_on_threads() {
        for shards in [1, 3] {
            let device = device(shards, SHARED);
            let channel = device.channel_create().unwrap();
            let init = CqInit { depth: 64, channel: Some(&channel), context: 0 };
            let cq = device.cq_create_ex(&init).unwrap();
            assert_eq!(cq.can_drive(), shards == 1, "no shard completes into the queue");
            let _qps = [(); 3].map(|()| queue_pair(&device, &cq));
            assert!(cq.can_drive());
            // Nothing comes, for longer than the patience.
            assert!(cq.wait(4 * PATIENCE).unwrap().is_none());
            assert!(!cq.can_drive(), "the wait was long");
            for _ in 0..SOON_ENOUGH {
                assert!(!cq.can_drive());
                cq.note(PATIENCE / 2);
            }
            assert!(cq.can_drive());
            assert_eq!(device.shared().common.waiting.load(Ordering::SeqCst), 0);
            cq.req_notify().unwrap();
            assert!(!cq.can_drive(), "who arms the queue relies on the threads");
        }
        for progress in [Progress::Caller, Progress::Thread { spin: Duration::ZERO }] {
            let device = device(1, progress);
            let cq = device.cq_create(64).unwrap();
            let _qp = queue_pair(&device, &cq);
            assert!(!cq.can_drive(), "{progress:?}");
        }
    }

    #[test]
    fn a_wait_that_drives_leaves_no_shard_to_its_thread() {
        let ends = [(); 2].map(|()| {
            let device = device(3, SHARED);
            let cq = device.cq_create(64).unwrap();
            let qps = [(); 3].map(|()| queue_pair(&device, &cq));
            (device, cq, qps)
        });
        let [(device, cq, at), (_, _, from)] = &ends;
        let to = from.each_ref().map(|from| from.pd().ah_create(device.ip()).unwrap());
        for ((at, from), to) in at.iter().zip(from).zip(&to) {
            at.post_recv(&RecvWr::recv(1)).unwrap();
            from.post_send(&SendWr::send(2, to, at.qpn(), QKEY)).unwrap();
        }
        let mut numbers = Vec::new();
        while numbers.len() < 6 {
            for (device, cq, _) in &ends {
                drive_and_sleep(device.shards(), cq.shards_used(), LONG);
                numbers.extend(cq.poll_one().unwrap().map(|wc| wc.ok().unwrap().wr_id));
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 1, 1, 2, 2, 2]);
        assert!(device.shards().iter().all(|shard| shard.driving.callers.drive()));
        // Beside another thread that waits, this one leaves them.
        let _other = Counted::new(&device.shared().common.waiting);
        assert!(cq.wait(PATIENCE).unwrap().is_none());
        assert!(device.shards().iter().all(|shard| !shard.driving.callers.drive()));
    }

    /// No thread of the device takes over by itself, so none that waits may leave with the shards
    /// while others wait for completions of theirs.
    #[test]
    fn threads_that_wait_for_queues_of_one_device_all_get_their_completions() {
        const THREADS: usize = 4;
        const ROUNDS: u64 = if cfg!(miri) { 3 } else { 200 };
        for shards in [1, 2] {
            let (near, far) = (device(shards, SHARED), device(shards, SHARED));
            let ends = [&near, &far].map(|device| {
                [(); THREADS].map(|()| {
                    let cq = device.cq_create(64).unwrap();
                    (queue_pair(device, &cq), cq)
                })
            });
            let numbers = ends.each_ref().map(|end| end.each_ref().map(|(qp, _)| qp.qpn()));
            let answer = |side: usize, i: usize| {
                let (qp, cq) = &ends[side][i];
                let to = qp.pd().ah_create([&far, &near][side].ip()).unwrap();
                let send = |round| {
                    let wr = SendWr::send(round, &to, numbers[1 - side][i], QKEY);
                    qp.post_send(&wr).unwrap();
                };
                qp.post_recv(&RecvWr::recv(0)).unwrap();
                if side == 0 {
                    send(0);
                }
                let (mut received, mut sent) = (0, 0);
                while received < ROUNDS || sent < ROUNDS {
                    let wc = cq.wait(LONG).unwrap().expect("a completion in time").ok().unwrap();
                    if wc.op != crate::CompletionOp::Recv {
                        sent += 1;
                        continue;
                    }
                    received += 1;
                    qp.post_recv(&RecvWr::recv(received)).unwrap();
                    // The first side has sent one in advance.
                    if side == 1 || received < ROUNDS {
                        send(received);
                    }
                }
                // It does not come back, and what it received last may not be acknowledged yet.
                cq.callers_rest();
            };
            thread::scope(|scope| {
                for (side, i) in (0..2).flat_map(|side| (0..THREADS).map(move |i| (side, i))) {
                    let answer = &answer;
                    scope.spawn(move || answer(side, i));
                }
            });
        }
    }
}
