//! The shards of a device: engines that work at the same time, each with a lock, a receive socket
//! and a slot of its own. A queue pair belongs to the shard whose slot its number names; completion
//! queues, regions, address handles and protection domains belong to the device: every shard knows
//! them by the same numbers.
//!
//! Locks are taken in this order: the order of commands ([`Common::commands`]), one shard's lock,
//! the small locks of queues and tables. No thread holds the locks of two shards.

use crate::{
    Device, DeviceAttr, Error, PortAttr, QpInit,
    events::EventQueue,
    failed::Holder,
    nic::Nic,
    regions::RegionViews,
    shard::Shard,
    sync::lock,
    tasks::{Debts, Tasks},
};
use srd_core::path::PathStats;
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, Weak,
    atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
};

/// Most shards of a device. Each takes one of the 256 slots of its address; more processors than
/// this serve no port.
pub const SHARDS_MAX: u16 = 64;

/// What the shards of a device have in common.
pub(crate) struct Common {
    pub attr: DeviceAttr,
    pub port: PortAttr,
    pub regions: RegionViews,
    pub events: EventQueue,
    /// Futures that must learn when a shard has closed.
    pub ending: Tasks,
    /// Threads that wait for a completion; see [`crate::wait`].
    pub waiting: AtomicU32,
    /// Whether a queue was ever armed, or awaited by a task: who does that relies on the threads of
    /// the shards.
    pub relied: AtomicBool,
    /// Number of completion counters.
    pub counters: AtomicU32,
    /// Whether a shard has failed: then all fail.
    failing: AtomicBool,
    /// Held while an object is created or destroyed in one shard after the other, so that all
    /// shards see these commands in one order. Not used where there is one shard.
    commands: Mutex<()>,
    /// The thread that has locked it.
    holder: Holder,
    shards: OnceLock<Vec<Weak<Shard>>>,
}

impl Common {
    pub(crate) fn new(attr: DeviceAttr, port: PortAttr, events: EventQueue) -> Self {
        Self {
            attr,
            port,
            regions: RegionViews::default(),
            events,
            ending: Tasks::default(),
            waiting: AtomicU32::new(0),
            relied: AtomicBool::new(false),
            counters: AtomicU32::new(0),
            failing: AtomicBool::new(false),
            commands: Mutex::default(),
            holder: Holder::default(),
            shards: OnceLock::new(),
        }
    }

    pub(crate) fn shards_set(&self, shards: &[Arc<Shard>]) {
        // A device has its shards from the start, and sets them once.
        let _ = self.shards.set(shards.iter().map(Arc::downgrade).collect());
    }

    fn shards(&self) -> &[Weak<Shard>] {
        self.shards.get().map_or(&[], Vec::as_slice)
    }

    /// Whether several engines make up the device.
    pub(crate) fn is_sharded(&self) -> bool {
        self.shards().len() > 1
    }

    /// Whether a shard has failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
    }

    /// Notes that a shard fails; true for the first one.
    pub(crate) fn failing_begin(&self) -> bool {
        !self.failing.swap(true, Ordering::SeqCst)
    }

    /// Has the other shards fail, too, each by its own thread: a thread that fails may hold what
    /// others wait for, so it must not wait for their locks.
    pub(crate) fn fail_others(&self, index: u8) {
        for shard in self.shards().iter().filter_map(Weak::upgrade) {
            if shard.index != index && shard.stop.doom() {
                shard.waker.wake();
                shard.driving.callers.rest();
            }
        }
    }
}

/// Whether a shard runs.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicU8);

impl Stop {
    const RUNS: u8 = 0;
    /// Another shard has failed, so this one's thread is about to end its requests.
    const DOOMED: u8 = 1;
    /// Closed.
    const ENDED: u8 = 2;

    /// Whether the shard accepts nothing any more and its thread is to end.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.0.load(Ordering::SeqCst) != Self::RUNS
    }

    /// As [`Stop::is_ending`], for callers that need no order with other accesses.
    #[inline]
    pub(crate) fn is_ending_relaxed(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::RUNS
    }

    /// Whether it is closed: no completion follows.
    #[inline]
    fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::ENDED
    }

    /// Closes it.
    pub(crate) fn end(&self) {
        self.0.store(Self::ENDED, Ordering::SeqCst);
    }

    /// Makes its thread end it; false if it is ending already.
    fn doom(&self) -> bool {
        let (from, to) = (Self::RUNS, Self::DOOMED);
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Commands on all shards are in the hands of one thread.
struct InOrder<'a> {
    common: &'a Common,
    /// `None`: there is one shard.
    _locked: Option<MutexGuard<'a, ()>>,
    /// Dropped after the lock: tasks are woken without it.
    _debts: Debts,
}

impl Drop for InOrder<'_> {
    fn drop(&mut self) {
        if self._locked.is_some() {
            self.common.holder.set(0);
        }
    }
}

impl Shard {
    /// Closes it: nothing is accepted any more, and futures learn of it.
    pub(crate) fn end(&self) {
        self.stop.end();
        self.common.ending.wake();
    }

    /// What the shard's thread does last, where there are several: it fails or says goodbye, at the
    /// same time as the others.
    pub(crate) fn end_as_one_of_several(&self) {
        if !self.common.is_sharded() {
            return;
        }
        if let Ok(mut nic) = self.nic_for_driver() {
            if self.common.is_failing() {
                nic.fail(self);
            } else {
                nic.say_goodbye(self);
            }
        }
    }
}

impl Device {
    /// Whether the device is usable for a poll: it is until every shard is closed, because until
    /// then completions may follow.
    #[inline]
    pub(crate) fn check_poll(&self) -> Result<(), Error> {
        if self.shared().is_left() {
            return Err(Error::Forked);
        }
        if self.shards().iter().all(|shard| shard.stop.has_ended()) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// The shards in the order in which a new queue pair tries them: the fewest queue pairs first,
    /// among equals one that completes into its queues already, so that a poll serves few.
    pub(crate) fn shards_by_load(&self, init: &QpInit<'_>) -> Vec<&Arc<Shard>> {
        let used = [init.send_cq, init.recv_cq]
            .map(|cq| cq.core().shards.load(Ordering::Acquire))
            .iter()
            .fold(0, |all, one| all | one);
        let mut order: Vec<&Arc<Shard>> = self.shards().iter().collect();
        order.sort_by_cached_key(|s| (s.queue_pairs(), used >> s.index & 1 == 0, s.index));
        order
    }

    /// Begins a command on all shards. A thread that is in the middle of one, and was interrupted
    /// by a signal, gets an error.
    fn commands_begin(&self) -> Result<InOrder<'_>, Error> {
        let common = &*self.shared().common;
        if self.shared().is_left() {
            return Err(Error::Forked);
        }
        if self.shard_count() == 1 {
            return Ok(InOrder { common, _locked: None, _debts: Debts::new() });
        }
        if common.holder.is_me() {
            return Err(Error::Closed);
        }
        let locked = lock(&common.commands);
        common.holder.set(Holder::me());
        Ok(InOrder { common, _locked: Some(locked), _debts: Debts::new() })
    }

    /// Creates an object in every shard under one number. The first shard chooses it; `make` gets
    /// it for the others. If a shard refuses, `undo` takes the object back from those before.
    pub(crate) fn create_on_all<T: Copy + PartialEq>(
        &self,
        make: impl Fn(&mut Nic, Option<T>) -> Result<T, Error>,
        undo: impl Fn(&mut Nic, T),
    ) -> Result<T, Error> {
        let _in_order = self.commands_begin()?;
        let mut chosen = None;
        for (i, shard) in self.shards().iter().enumerate() {
            let made = shard.nic().and_then(|mut nic| {
                let made = make(&mut nic, chosen)?;
                if chosen.is_some_and(|chosen| chosen != made) {
                    // Only after a command that reached some shards and not others, because the
                    // device is about to close.
                    undo(&mut nic, made);
                    return Err(Error::Closed);
                }
                Ok(made)
            });
            match (made, chosen) {
                (Ok(made), _) => chosen = Some(made),
                (Err(e), None) => return Err(e),
                (Err(e), Some(chosen)) => {
                    for before in &self.shards()[..i] {
                        if let Ok(mut nic) = before.nic_to_destroy() {
                            undo(&mut nic, chosen);
                        }
                    }
                    return Err(e);
                }
            }
        }
        chosen.ok_or(Error::Closed)
    }

    /// Destroys an object in every shard that is usable.
    pub(crate) fn destroy_on_all(&self, end: impl Fn(&Shard, &mut Nic)) {
        let Ok(_in_order) = self.commands_begin() else { return };
        for shard in self.shards() {
            if let Ok(mut nic) = shard.nic_to_destroy() {
                end(shard, &mut nic);
            }
        }
    }
}

/// Adds what another shard knows of the paths to an address.
pub(crate) fn paths_add(all: &mut Vec<PathStats>, more: Vec<PathStats>) {
    if all.is_empty() {
        *all = more;
        return;
    }
    for one in more {
        let Some(sum) = all.iter_mut().find(|sum| sum.path == one.path) else {
            all.push(one);
            continue;
        };
        let least = |a: u64, b: u64| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        let most = if one.packets_sent > sum.packets_sent { one } else { *sum };
        // A shard that has sent most may have heard nothing yet, and another one something.
        let smoothed = match most.rtt_ns_smoothed {
            0 => sum.rtt_ns_smoothed.max(one.rtt_ns_smoothed),
            known => known,
        };
        *sum = PathStats {
            path: one.path,
            rtt_ns_smoothed: smoothed,
            rtt_ns_min: least(sum.rtt_ns_min, one.rtt_ns_min),
            packets_sent: sum.packets_sent + one.packets_sent,
            packets_lost: sum.packets_lost + one.packets_lost,
            packets_ce: sum.packets_ce + one.packets_ce,
            state: most.state,
            echoed: sum.echoed || one.echoed,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_doomed_once_and_ends_for_good() {
        let stop = Stop::default();
        assert!(!stop.is_ending() && !stop.has_ended());
        assert!(stop.doom() && !stop.doom());
        assert!(stop.is_ending() && stop.is_ending_relaxed() && !stop.has_ended());
        stop.end();
        assert!(stop.is_ending() && stop.has_ended() && !stop.doom());
    }

    #[test]
    fn paths_have_the_packets_of_all_shards() {
        let path = |path, sent, rtt, state| PathStats {
            path,
            rtt_ns_smoothed: 2 * rtt,
            rtt_ns_min: rtt,
            packets_sent: sent,
            packets_lost: 1,
            packets_ce: 2,
            state,
            echoed: false,
        };
        let mut all = Vec::new();
        paths_add(&mut all, vec![path(0, 5, 70, "live"), path(1, 9, 0, "live")]);
        paths_add(&mut all, vec![path(1, 3, 50, "retired"), path(0, 6, 90, "denied")]);
        paths_add(&mut all, Vec::new());
        let found = |i: usize| {
            let p = &all[i];
            (p.path, p.packets_sent, p.packets_lost, p.rtt_ns_min, p.rtt_ns_smoothed, p.state)
        };
        assert_eq!(found(0), (0, 11, 2, 70, 180, "denied"));
        assert_eq!(found(1), (1, 12, 2, 50, 100, "live"), "a least one and no smoothed one");
        assert_eq!((all.len(), all[1].packets_ce), (2, 4));
    }
}
