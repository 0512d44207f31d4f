//! Which thread drives the engine now: callers, or the device's thread.

use crate::{
    Progress,
    callers::Callers,
    crowd::{self, Room},
    failed::NicGuard,
    nic::{Nic, Turn},
    shard::Shard,
    taker::Taker,
};
use arrayvec::ArrayVec;
use std::{os::fd::RawFd, sync::Arc, thread, time::Duration};

/// Most full sockets that a sleep looks at. Those beyond are tried again when its time is up.
const FULL_MAX: usize = 16;

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

    /// Whether callers drive the engine and the device's thread does while they do not.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.progress, Progress::Shared { .. })
    }

    /// Whether a post transmits packets itself, because no other thread drives at the moment.
    #[inline]
    pub(crate) fn posts_leave_at_once(&self) -> bool {
        self.is_shared()
    }
}

impl Shard {
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

    /// Tries again to take the lock for a poll that found it taken, after a yield or a sleep if
    /// others want the processor: the holder, which [`Shard::drive_begin`] woke if it slept, may
    /// need this one, and would not get it from a caller that looks again and again. A poll never
    /// waits for the lock itself, whatever its holder does.
    #[cold]
    fn nic_if_crowded(&self, stays: bool) -> Option<NicGuard<'_>> {
        match if stays { crowd::idle(Nic::now().0) } else { Room::Stay } {
            Room::Stay => return None,
            Room::Yield => crowd::yield_now(|| Nic::now().0),
            Room::Sleep => thread::sleep(crowd::LOCK_SLEEP),
        }
        self.try_nic()
    }

    /// Drives the engine for a poll that found its queue empty and that serves several shards.
    /// Returns whether anything was done. `None`: another thread has the lock.
    fn drive_among_others(&self, stays: bool) -> Option<bool> {
        let mut nic = self.try_nic()?;
        let done = nic.turn(self) != Turn::default();
        let now = nic.turned_at;
        if stays {
            nic.polled(self, now);
            self.driving.callers.turned(now.0);
        }
        Some(done)
    }

    /// Drives the engine for a poll that found its queue empty; returns whether anything was done.
    /// `stays`: the caller will poll again soon, so the device's thread need not drive. The taker,
    /// if there is one, gets completions of its queue.
    #[inline]
    pub(crate) fn drive_from_poll(&self, stays: bool, mut taker: Option<&mut Taker<'_>>) -> bool {
        let Some(stays) = self.drive_begin(stays) else { return false };
        let nic = self.try_nic().or_else(|| self.nic_if_crowded(stays));
        let Some(mut nic) = nic else { return false };
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
                crowd::yield_now(|| Nic::now().0);
            }
        }
        done
    }
}

/// Drives those of the shards whose bits are set in `which`, for a caller that found nothing;
/// returns whether anything was done. `stays`: the caller will look again soon.
pub(crate) fn drive_all(shards: &[Arc<Shard>], which: u64, stays: bool) -> bool {
    let wanted = || shards.iter().filter(|shard| which >> shard.index & 1 != 0).map(|s| &**s);
    if which.is_power_of_two() {
        return wanted().any(|only| only.drive_from_poll(stays, None));
    }
    let Some(drive) = drive_each(wanted(), stays) else { return false };
    if !stays {
        return drive.done;
    }
    if drive.done {
        crowd::busy();
        return true;
    }
    match crowd::idle(Nic::now().0) {
        Room::Stay => return false,
        Room::Yield | Room::Sleep if drive.missed == 0 => sleep_in_all(wanted(), crowd::SLEEP_MAX),
        Room::Yield => crowd::yield_now(|| Nic::now().0),
        Room::Sleep => thread::sleep(crowd::LOCK_SLEEP),
    }
    drive_each(wanted(), stays).is_some_and(|drive| drive.done)
}

/// Drives those of the shards whose bits are set in `which`, for a caller that waits: if nothing is
/// done, it sleeps up to `limit` until a packet arrives for one of them or something else is due,
/// and drives them once more. Returns whether anything was done.
pub(crate) fn drive_and_sleep(shards: &[Arc<Shard>], which: u64, limit: Duration) -> bool {
    let wanted = || shards.iter().filter(|shard| which >> shard.index & 1 != 0).map(|s| &**s);
    let limit = limit.min(crowd::SLEEP_MAX);
    match drive_each(wanted(), true) {
        None => return false,
        Some(drive) if drive.done => return true,
        Some(drive) if drive.missed == 0 => sleep_in_all(wanted(), limit),
        // Its thread gives up the lock, or another caller drives.
        Some(_) => thread::sleep(limit.min(crowd::LOCK_SLEEP)),
    }
    drive_each(wanted(), true).is_some_and(|drive| drive.done)
}

/// What a caller found that drove several shards.
#[derive(Clone, Copy, Debug, Default)]
struct Drive {
    /// Whether anything was done.
    done: bool,
    /// Shards whose lock was taken: their threads or other callers drive them.
    missed: usize,
}

/// Drives each of the shards. `None`: callers do not drive.
fn drive_each<'a>(shards: impl Iterator<Item = &'a Shard> + Clone, stays: bool) -> Option<Drive> {
    // Those whose threads drive are all woken before the caller looks at the first.
    let stays = shards.clone().map(|shard| shard.drive_begin(stays)).max().flatten()?;
    let mut all = Drive::default();
    for shard in shards {
        match shard.drive_among_others(stays) {
            Some(done) => all.done |= done,
            None => all.missed += 1,
        }
    }
    Some(all)
}

/// Sleeps up to `limit` until a packet for one of the shards arrives or something else is due. The
/// caller stays the one that drives them: to leave them to their threads would wake each of these
/// now, and again when the caller is back.
///
/// It holds no lock meanwhile, so other threads can post, poll and command.
fn sleep_in_all<'a>(shards: impl Iterator<Item = &'a Shard> + Clone, mut limit: Duration) {
    let mut full = ArrayVec::<RawFd, FULL_MAX>::new();
    for shard in shards.clone() {
        if shard.has_work_of_callers() {
            return;
        }
        // Whoever holds the lock sees to the timers, and to what the kernel did not accept.
        let Some(nic) = shard.try_nic() else { continue };
        limit = nic.idle_time(Some(limit)).map_or(limit, |due| due.min(limit));
        nic.net.full(&mut |fd| full.extend((!full.is_full()).then_some(fd)));
    }
    if !limit.is_zero() {
        let receivers = shards.flat_map(|s| s.receivers.iter().copied());
        // An error is as good as a packet: the caller looks.
        let _ = srd_datapath::wait_any(receivers, full.into_iter(), limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceConfig, QKey, QpInit, RecvWr, SendWr, WorkCompletion};

    /// Longer than any test runs: a thread of the device never drives because callers are late.
    const IDLE: Duration = Duration::from_secs(3_600);
    const QKEY: QKey = QKey(5);

    fn device(shards: u16) -> Device {
        let mut config = DeviceConfig::loopback();
        (config.shards, config.progress) = (shards, Progress::Shared { idle: IDLE });
        (config.paths, config.share, config.status) = (4, false, false);
        let device = Device::open(config).unwrap();
        assert_eq!(device.shard_count(), usize::from(shards));
        device
    }

    /// Runs it in a thread that holds that others want its processor.
    fn crowded(body: impl FnOnce() + Send) {
        thread::scope(|scope| {
            scope.spawn(|| {
                crowd::this_thread_is_crowded();
                body();
            });
        });
    }

    /// Longer than polls look again and again before one sleeps.
    fn pause() {
        thread::sleep(Duration::from_millis(1));
    }

    #[test]
    fn a_caller_that_sleeps_stays_the_one_that_drives_all_shards() {
        crowded(|| {
            let ends = [device(3), device(3)].map(|device| {
                let (pd, cq) = (device.pd_create().unwrap(), device.cq_create(64).unwrap());
                let to = pd.ah_create(device.ip()).unwrap();
                let qps = [(); 3].map(|()| pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap());
                qps.iter().for_each(|qp| qp.activate(QKEY).unwrap());
                (device, cq, to, qps)
            });
            let [(_, _, to, from), (_, _, _, at)] = &ends;
            for round in 0..30 {
                for (from, at) in from.iter().zip(at) {
                    at.post_recv(&RecvWr::recv(round)).unwrap();
                    from.post_send(&SendWr::send(round, to, at.qpn(), QKEY)).unwrap();
                }
                let mut open = 6;
                while open > 0 {
                    for (_, cq, ..) in &ends {
                        let Some(wc) = cq.poll_one().unwrap() else { continue };
                        assert_eq!(wc.ok().unwrap().wr_id, round);
                        open -= 1;
                    }
                }
            }
            for (device, cq, ..) in &ends {
                for _ in 0..3 {
                    // From the second on it sleeps, for want of packets.
                    assert_eq!(cq.poll(&mut [WorkCompletion::default()]).unwrap(), 0);
                    pause();
                }
                for shard in device.shards() {
                    assert!(shard.driving.callers.drive(), "shard {} was left", shard.index);
                    assert!(shard.try_nic().is_some(), "its thread drives shard {}", shard.index);
                }
            }
        });
    }

    #[test]
    fn a_caller_gets_the_lock_of_a_thread_that_sleeps_with_it() {
        crowded(|| {
            let device = device(1);
            let shared = device.shared();
            while !shared.rest.needs_wake() {
                thread::yield_now();
            }
            assert!(shared.try_nic().is_none(), "the thread sleeps, or is about to");
            assert!(shared.nic_if_crowded(false).is_none(), "one that does not look again soon");
            assert!(shared.nic_if_crowded(true).is_none(), "no poll has woken the thread");
            assert_eq!(shared.drive_begin(true), Some(true));
            while shared.nic_if_crowded(true).is_none() {}
            assert!(shared.driving.callers.drive());
        });
    }
}
