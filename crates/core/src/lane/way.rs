//! The paths to one address: changes of their state, turns to send, and the size of packets.

use crate::api::AsyncEvent;
use crate::events::{Event, Observer};
use crate::ids::Ctx;
use crate::lane::Lane;
use crate::lane::Shared;
use crate::outbox::ProbeOut;
use crate::path::table::PathEntry;
use crate::path::{PathChange, Step, next_below};
use crate::psn::TxLow;
use crate::time::Time;
use crate::timer::TimerOf;
use srd_wire::OVERHEAD_BYTES;

impl<O: Observer> Lane<'_, O> {
    /// Queues a note for the other engines of the host, if one is due: that this engine sends to
    /// the address, or (`idle`) that it has nothing more to send there.
    #[inline(always)]
    pub(crate) fn share_touch(&mut self, idle: bool) {
        if self.shared.cfg.host_shared
            && self.way.paths.share_wants(self.now, idle)
            && !self.shared.out.share_push(self.way.number)
        {
            self.way.paths.share_unqueued();
        }
    }

    /// See [`Shared::path_changes`].
    pub fn path_changes(&mut self) {
        self.shared.path_changes(self.now, self.way);
    }

    /// Checks that the bytes in flight to the peer are among those in flight to its address, and
    /// equal to them where no other context of the address is active.
    #[inline(always)]
    pub(crate) fn inflight_check(&self) {
        let (here, there) = (self.win.board.in_flight_bytes(), self.way.paths.inflight());
        let fits = if self.way.active == 1 { here == there } else { here <= there };
        // Leaks of planted bugs are left for the checker's oracles to find.
        debug_assert!(fits || cfg!(planted_bugs), "in flight to the peer {here}, there {there}");
        debug_assert!(self.way.active > 0, "who sends is active");
    }

    /// See [`Shared::inflight_freed`].
    pub fn inflight_freed(&mut self) {
        self.shared.inflight_freed(self.way);
    }

    /// Largest payload of a packet now, in bytes: what both sides accept and the paths carry.
    #[inline(always)]
    pub(crate) fn mtu_of(&self) -> u16 {
        self.way.payload_max(&self.shared.sizes, self.peer.limits().mtu)
    }

    /// Largest payload in bytes of a single-packet message with a type header of `body_bytes`.
    /// Where the paths carry less than full packets, that is a few bytes more than
    /// [`Self::mtu_of`], which leaves room for the longest headers.
    #[inline(always)]
    pub(crate) fn message_max(&self, body_bytes: usize) -> u16 {
        let limits = self.peer.limits();
        debug_assert!(limits.head_bytes() + body_bytes <= OVERHEAD_BYTES, "no headers are longer");
        let spare = OVERHEAD_BYTES - limits.head_bytes() - body_bytes;
        self.way.message_max(&self.shared.sizes, limits.mtu, spare as u16)
    }

    /// Tells the search for the packet size that transmission `echoed` was echoed, or that a packet
    /// of size `arrived` has arrived. Only called while some address has such a search.
    #[cold]
    pub(crate) fn mtu_passed(&mut self, echoed: Option<TxLow>, arrived: Option<u16>) {
        let mtu = &mut self.way.mtu;
        if let Some(tx_num) = echoed {
            mtu.on_echo(self.ci, tx_num);
        }
        if let Some(size) = arrived {
            mtu.on_arrived(size);
        }
        self.shared.sizes.recount(self.way);
    }

    /// Whether the search for the packet size is testing if packets of `len` bytes can arrive at
    /// all. For the few rounds of the test such packets are still sent.
    pub(crate) fn mtu_doubted(&self, len: u16) -> bool {
        if self.shared.sizes.awake == 0 {
            return false;
        }
        self.way.mtu.doubts() && len > next_below(self.way.ip, 0, false)
    }
}

impl<O: Observer> Shared<O> {
    /// Reports paths whose state has changed, and sets the timer of the address.
    pub fn path_changes(&mut self, now: Time, way: &mut PathEntry) {
        let ip = way.ip;
        while let Some(change) = way.paths.change_take() {
            let PathChange { path, live, was_live, from, to } = change;
            self.observer.event(now, Event::Path { ip, path, from, to });
            if live == was_live {
                continue;
            }
            if live {
                self.counters.paths_returned += 1;
            } else {
                self.counters.paths_retired += 1;
            }
            self.event_push(AsyncEvent::PathChanged(ip, path, !live));
        }
        self.timers.arm(TimerOf::Path(way.number).number(), way.deadline());
    }

    /// Lets the parked contexts of an address try again, because bytes in flight went down or more
    /// may be in flight: all of them, those with the least in flight first and equals in the order
    /// in which they were parked, because room for one packet would otherwise go to the same
    /// context each time.
    pub fn inflight_freed(&mut self, way: &mut PathEntry) {
        for ci in way.waits.parked_take() {
            if self.out.unpark(ci) {
                self.out.ready_push(ci);
                if planted!(WaiterForgotten) {
                    break;
                }
            }
        }
    }

    /// Gives the context that is first at the pacer of the address its turn, if the pacer allows it
    /// now.
    pub fn pace_call(&mut self, now: Time, way: &mut PathEntry) {
        if let Some(ci) = way.waits.pace_call(now) {
            self.out.ready_push(ci);
        }
    }

    /// Removes context `ci` from the wait for the pacer. If another context is then the first, it
    /// gets a turn, and learns in it when the pacer lets it send.
    pub fn pace_leave(&mut self, way: &mut PathEntry, ci: Ctx) {
        if self.out.pace_end(ci)
            && let Some(next) = way.waits.pace_leave(ci)
        {
            self.out.ready_push(next);
        }
    }

    /// Sends the probes of half a round of the search for the packet size. `full`: largest payload
    /// that the context that carries the probes may send; `None` if no context can carry them.
    pub fn mtu_round(&mut self, now: Time, way: &mut PathEntry, full: Option<u16>) {
        let Some(ci) = way.mtu.carrier() else { return };
        let Some(full) = full else { return way.mtu.search_end(now) };
        let (aligned, rxq_drops) = (self.cfg.mtu_aligned(), self.rx.rxq_drops);
        let PathEntry { paths, mtu, ip, .. } = way;
        let wait = paths.answer_wait();
        let step = Step { wait, rxq_drops, ip: *ip, full, aligned };
        let path_any = || paths.awake(now).path_any(&mut self.rng);
        mtu.step_begin(now, &step, path_any, |path, size| {
            self.out.probe_push(ProbeOut { ci, path, size, asks: true });
        });
        // This also sets the timer.
        self.path_changes(now, way);
    }

    /// Reports that the size of packets to the address has changed.
    pub fn mtu_changed(&mut self, now: Time, way: &mut PathEntry) {
        let size = way.mtu.size().min(self.cfg.mtu);
        self.counters.mtu_changes += 1;
        debug_assert!(size > 0, "a packet carries something");
        self.event_push(AsyncEvent::PathMtu(way.ip, size));
        self.path_changes(now, way);
    }
}
