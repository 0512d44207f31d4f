//! The thread that drives a device with [`Progress::Thread`](crate::Progress::Thread).

use crate::{
    DeviceError, Progress,
    nic::{Nic, Turn},
    shard::Shard,
    tasks::owed,
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How soon one of several waiting threads notices that the driving thread stopped.
pub(crate) const HANDOVER: Duration = Duration::from_millis(1);

/// How late timers of the thread may fire, in nanoseconds.
const TIMER_SLACK_NS: u32 = 1_000;

/// How late the thread may notice that callers stopped polling. Longer than the kernel's tick, so
/// that the check coincides with an interrupt that occurs anyway: a timer before the next tick
/// costs 12 µs to set in a virtual machine and as much when it fires, which was the 99th percentile
/// of a ping-pong's round trip.
const REST_SLACK_NS: u32 = 4_500_000;

/// Largest factor by which the thread extends its rest while callers keep polling.
const RESTS_LONGER_MAX: u32 = 7;

/// When a time from now is over; `None`: no clock reaches that, so it is no limit.
pub(crate) fn deadline(after: Duration) -> Option<Instant> {
    Instant::now().checked_add(after)
}

/// When the thread drives the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// Always. The thread polls for this long before it sleeps.
    Always { spin: Duration },
    /// After this long without a poll by a caller.
    WhenIdle { idle: Duration },
}

impl Manner {
    /// `None`: no thread drives.
    pub(crate) fn of(progress: Progress) -> Option<Self> {
        match progress {
            Progress::Caller => None,
            Progress::Thread { spin } => Some(Self::Always { spin }),
            Progress::Shared { idle } => Some(Self::WhenIdle { idle }),
        }
    }
}

/// Starts the thread.
pub(crate) fn start(shared: Arc<Shard>, manner: Manner) -> Result<JoinHandle<()>, DeviceError> {
    thread::Builder::new()
        .name("srd-engine".to_owned())
        .spawn(move || {
            // The kernel's default slack of 50 µs would be added to every acknowledgment delay. If
            // this fails, only precision suffers.
            let _ = srd_datapath::timer_slack_ns_set(TIMER_SLACK_NS);
            let closing = CloseOnExit(&shared);
            match manner {
                Manner::Always { spin } => run(closing.0, spin),
                Manner::WhenIdle { idle } => run_when_idle(closing.0, idle),
            }
            closing.0.end_as_one_of_several();
        })
        .map_err(|source| DeviceError::Os { what: "starting the engine's thread", source })
}

/// Marks the device closed however the thread ends, so that no other thread waits for it.
struct CloseOnExit<'a>(&'a Shard);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Drives the engine until the device stops.
fn run(shared: &Shard, spin: Duration) {
    let mut busy_until = deadline(spin);
    while !shared.stop.is_ending() {
        if shared.control_waiting.load(Ordering::SeqCst) > 0 {
            // The lock is not fair: yield, so that waiting commands can take it.
            thread::yield_now();
            continue;
        }
        let Ok(mut nic) = shared.nic_for_driver() else { return };
        if nic.turn(shared) != Turn::default() {
            if !spin.is_zero() {
                busy_until = deadline(spin);
            }
            continue;
        }
        if !spin.is_zero() && busy_until.is_none_or(|until| Instant::now() < until) {
            drop(nic);
            std::hint::spin_loop();
            continue;
        }
        shared.sleep(&mut nic, None);
    }
}

/// Drives the engine while callers do not, until the device stops.
fn run_when_idle(shared: &Shard, idle: Duration) {
    let mut rests = 0;
    while !shared.stop.is_ending() {
        if shared.driving.callers.drive() {
            let _ = srd_datapath::timer_slack_ns_set(REST_SLACK_NS);
            // Each check takes the CPU from a caller that spins on it.
            shared.driving.callers.thread_rest(idle.saturating_mul(1 + rests));
            let _ = srd_datapath::timer_slack_ns_set(TIMER_SLACK_NS);
            if shared.driving.callers.stay(Nic::now().0, idle) {
                rests = (rests + 1).min(RESTS_LONGER_MAX);
                continue;
            }
        }
        rests = 0;
        let Ok(mut nic) = shared.nic_for_driver() else { return };
        while !shared.driving.callers.drive()
            && shared.control_waiting.load(Ordering::SeqCst) == 0
            && !shared.stop.is_ending()
            && !owed()
        {
            if nic.turn(shared) == Turn::default() {
                shared.sleep(&mut nic, None);
            }
        }
        drop(nic);
        if shared.control_waiting.load(Ordering::SeqCst) > 0 {
            // The lock is not fair: yield, so that waiting commands can take it.
            thread::yield_now();
        }
    }
}
