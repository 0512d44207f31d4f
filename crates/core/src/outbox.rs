//! Queues of packets and events that leave the engine, and of contexts that wait for their turn.
//!
//! A context is in each queue at most once; a mark says whether it is. Marks are kept here, not in
//! the context, so that code that has borrowed one context can queue another.

use crate::api::{AsyncEvent, Endpoint};
use crate::ids::{Ctx, PeerTag, Way};
use crate::limits::{CONTROL_QUEUE_MAX, EVENTS_MAX, SHARES_MAX};
use crate::memory::first;
use crate::psn::{Psn, TxNum};
use srd_wire::Body;
use std::collections::VecDeque;

/// A packet to a peer with which there may be no context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub dst: Endpoint,
    pub dst_tag: PeerTag,
    pub body: Body,
    pub padded_len: u16,
    /// For a packet of a context: its transmission number and the next PSN.
    pub tx_num: TxNum,
    pub psn: Psn,
    /// The packet leaves on a path of the same rail as this one; `None`: on any path.
    pub near: Option<u8>,
}

impl Control {
    /// A packet that belongs to no context, without padding.
    pub fn of_none(dst: Endpoint, dst_tag: PeerTag, body: Body) -> Self {
        Self { dst, dst_tag, body, padded_len: 0, tx_num: TxNum(0), psn: Psn(0), near: None }
    }
}

/// A probe to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeOut {
    pub ci: Ctx,
    pub path: u8,
    /// Payload of the data packet whose size the probe has; 0: the smallest probe.
    pub size: u16,
    /// Whether the probe belongs to a search for the path MTU.
    pub asks: bool,
}

impl ProbeOut {
    pub fn small(ci: Ctx, path: u8) -> Self {
        Self { ci, path, size: 0, asks: false }
    }
}

/// Mark: the context has something to send.
const READY: u8 = 1;
/// Mark: an acknowledgment of the context is due.
const ACK: u8 = 2;
/// Mark: the context's timer is to be recalculated.
const REARM: u8 = 4;
/// Mark: the context waits until less is in flight to its address.
const PARKED: u8 = 8;
/// Mark: the context waits for the pacer of its address.
const PACED: u8 = 16;

/// The queues of an engine; see the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: VecDeque<Control>,
    /// Contexts whose answer to an Open or a Challenge is to be sent.
    answers: VecDeque<Ctx>,
    acks: VecDeque<Ctx>,
    probes: VecDeque<ProbeOut>,
    closes: VecDeque<Ctx>,
    ready: VecDeque<Ctx>,
    rearm: VecDeque<Ctx>,
    /// Addresses about which the other engines of the host are to get a note.
    shares: VecDeque<Way>,
    /// Marks by context: the queues that it is in.
    marks: Vec<u8>,
    events: VecDeque<AsyncEvent>,
    /// Number of these events, without releases of requests.
    events_bounded: usize,
}

impl Outbox {
    /// Calls `see` with the memory that the next calls will need.
    #[inline]
    pub fn ahead(&self, see: &mut impl FnMut(*const u8, usize)) {
        first(see, &self.marks, 1);
        first(see, self.ready.as_slices().0, 1);
        first(see, self.rearm.as_slices().0, 1);
    }

    /// Context `ci` begins: clears the marks of an earlier context with this number.
    pub fn context_begin(&mut self, ci: Ctx) {
        let i = ci.index();
        if self.marks.len() <= i {
            self.marks.resize(i + 1, 0);
        }
        self.marks[i] = 0;
    }
    /// Context `ci` has ended: its entries in queues are skipped from now on.
    pub fn context_end(&mut self, ci: Ctx) {
        debug_assert!(ci.index() < self.marks.len(), "it has begun");
        self.marks[ci.index()] = 0;
    }

    /// Whether nothing is to be sent before the next timer, but for contexts that are ready.
    pub fn is_empty(&self) -> bool {
        self.has_only_rearms() && self.rearm.is_empty()
    }
    /// Whether timers are to be recalculated.
    pub fn has_rearms(&self) -> bool {
        !self.rearm.is_empty()
    }
    /// Whether nothing is to be sent before the next timer, but for contexts that are ready. Timers
    /// may be to be recalculated.
    pub fn has_only_rearms(&self) -> bool {
        self.control.is_empty()
            && self.answers.is_empty()
            && self.acks.is_empty()
            && self.probes.is_empty()
            && self.closes.is_empty()
    }

    /// Whether handshake packets or answers are to be sent.
    pub fn has_control(&self) -> bool {
        !self.control.is_empty() || !self.answers.is_empty()
    }

    /// Whether contexts have turns to come.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Queues a note about an address to the host's other engines. Returns whether there is room;
    /// without, the note is queued later.
    pub fn share_push(&mut self, way: Way) -> bool {
        let room = self.shares.len() < SHARES_MAX;
        if room && self.shares.back() != Some(&way) {
            self.shares.push_back(way);
        }
        room
    }
    /// The next of them.
    #[inline]
    pub fn share_pop(&mut self) -> Option<Way> {
        self.shares.pop_front()
    }

    /// Sets a mark. Returns whether it was not set before.
    #[inline(always)]
    fn mark(&mut self, ci: Ctx, mark: u8) -> bool {
        debug_assert!(mark.is_power_of_two(), "one queue at a time");
        let marks = &mut self.marks[ci.index()];
        let new = *marks & mark == 0;
        *marks |= mark;
        new
    }
    /// Clears a mark. Returns whether it was set.
    #[inline(always)]
    fn unmark(&mut self, ci: Ctx, mark: u8) -> bool {
        let Some(marks) = self.marks.get_mut(ci.index()) else { return false };
        let was = *marks & mark != 0;
        *marks &= !mark;
        was
    }

    /// Puts a context into the round robin of those that send.
    #[inline]
    pub fn ready_push(&mut self, ci: Ctx) {
        let lost = planted!(ReadyUnqueued) && self.ready.len() == 3;
        if self.mark(ci, READY) && !lost {
            self.ready.push_back(ci);
        }
    }
    /// The next of them.
    #[inline]
    pub fn ready_pop(&mut self) -> Option<Ctx> {
        loop {
            let ci = self.ready.pop_front()?;
            if self.unmark(ci, READY) {
                debug_assert!(self.marks[ci.index()] & READY == 0, "out of the queue, unmarked");
                return Some(ci);
            }
        }
    }

    /// The context changed: its timer is recalculated before the next timeout is read. Many changes
    /// between two polls cost one calculation.
    #[inline]
    pub fn rearm_push(&mut self, ci: Ctx) {
        if self.mark(ci, REARM) {
            self.rearm.push_back(ci);
        }
    }
    /// The next context whose timer is to be recalculated; it may have ended.
    pub fn rearm_pop(&mut self) -> Option<Ctx> {
        let ci = self.rearm.pop_front()?;
        self.unmark(ci, REARM);
        Some(ci)
    }

    /// An acknowledgment of the context is due.
    pub fn ack_push(&mut self, ci: Ctx) {
        if self.mark(ci, ACK) {
            self.acks.push_back(ci);
        }
    }
    /// The next context of which an acknowledgment is due; it may have ended.
    pub fn ack_pop(&mut self) -> Option<Ctx> {
        let ci = self.acks.pop_front()?;
        self.unmark(ci, ACK);
        Some(ci)
    }
    /// Whether an acknowledgment of this context is queued.
    pub fn ack_waits(&self, ci: Ctx) -> bool {
        debug_assert!(
            self.marks[ci.index()] & ACK == 0 || !self.acks.is_empty(),
            "who is marked stands in the queue"
        );
        self.marks[ci.index()] & ACK != 0
    }

    /// The context joins the list of those that wait for room at their address. Returns whether it
    /// was not in it before.
    pub fn park(&mut self, ci: Ctx) -> bool {
        self.mark(ci, PARKED)
    }
    /// The context leaves that list. Returns whether it was in it.
    pub fn unpark(&mut self, ci: Ctx) -> bool {
        self.unmark(ci, PARKED)
    }

    /// The context joins the list of those that wait for the pacer of their address. Returns
    /// whether it was not in it before.
    pub fn pace_begin(&mut self, ci: Ctx) -> bool {
        self.mark(ci, PACED)
    }
    /// The context leaves that list. Returns whether it was in it.
    pub fn pace_end(&mut self, ci: Ctx) -> bool {
        self.unmark(ci, PACED)
    }

    /// Queues a handshake packet. `false`: there is no room for it.
    #[must_use]
    pub fn control_push(&mut self, control: Control) -> bool {
        // A peer that keeps opening and closing contexts must not fill the whole queue.
        let answers = matches!(control.body, Body::CloseAck);
        let room = self.control.len() < CONTROL_QUEUE_MAX >> u8::from(answers);
        if room {
            self.control.push_back(control);
        }
        debug_assert!(self.control.len() <= CONTROL_QUEUE_MAX, "a bounded queue");
        room
    }
    pub fn control_pop(&mut self) -> Option<Control> {
        debug_assert!(self.control.len() <= CONTROL_QUEUE_MAX, "a bounded queue");
        self.control.pop_front()
    }

    /// Whether the queue of contexts that answer is full.
    pub fn answers_are_full(&self) -> bool {
        self.answers.len() >= CONTROL_QUEUE_MAX
    }
    pub fn answer_push(&mut self, ci: Ctx) {
        debug_assert!(!self.answers_are_full(), "a bounded queue");
        self.answers.push_back(ci);
    }
    pub fn answer_pop(&mut self) -> Option<Ctx> {
        debug_assert!(self.answers.len() <= CONTROL_QUEUE_MAX, "a bounded queue");
        self.answers.pop_front()
    }

    pub fn probe_push(&mut self, probe: ProbeOut) {
        debug_assert!(probe.ci.index() < self.marks.len(), "its context has begun");
        self.probes.push_back(probe);
    }
    /// Probes that wait to be sent.
    pub fn probes_len(&self) -> usize {
        self.probes.len()
    }
    pub fn probe_pop(&mut self) -> Option<ProbeOut> {
        self.probes.pop_front()
    }

    /// Queues the context's Close.
    pub fn close_push(&mut self, ci: Ctx) {
        debug_assert!(ci.index() < self.marks.len(), "it has begun");
        self.closes.push_back(ci);
    }
    pub fn close_pop(&mut self) -> Option<Ctx> {
        self.closes.pop_front()
    }

    /// Queues an event for the user. `false`: there is no room for it.
    #[must_use]
    pub fn event_push(&mut self, e: AsyncEvent) -> bool {
        let max = match e {
            // Releases are never dropped; their number is bounded by the table of requests.
            AsyncEvent::WrReleased(_) => {
                self.events.push_back(e);
                return true;
            }
            AsyncEvent::QpFatal(_) | AsyncEvent::SqDrained(_) => EVENTS_MAX,
            // Events that peers and networks may cause without limit leave a quarter of the room to
            // the others.
            _ => EVENTS_MAX - EVENTS_MAX / 4,
        };
        debug_assert!(self.events_bounded <= self.events.len(), "they are some of all");
        let room = self.events_bounded < max;
        if room {
            self.events_bounded += 1;
            self.events.push_back(e);
        }
        room
    }
    pub fn event_pop(&mut self) -> Option<AsyncEvent> {
        let e = self.events.pop_front()?;
        self.events_bounded -= usize::from(!matches!(e, AsyncEvent::WrReleased(_)));
        debug_assert!(self.events_bounded <= self.events.len(), "they are some of all");
        Some(e)
    }

    /// Checks that each marked context is in its queue.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        for (mark, queue) in [(READY, &self.ready), (ACK, &self.acks), (REARM, &self.rearm)] {
            let mut waits: Vec<bool> = self.marks.iter().map(|m| m & mark != 0).collect();
            // The newest entry is that of the context that has the number now.
            for ci in queue.iter().rev() {
                waits[ci.index()] = false;
            }
            assert!(!waits.contains(&true), "marked {mark}, and in no queue");
        }
    }
    /// Whether the context waits for room at its address.
    #[cfg(debug_assertions)]
    pub fn is_parked(&self, ci: Ctx) -> bool {
        self.marks[ci.index()] & PARKED != 0
    }
    /// Whether the context waits for the pacer of its address.
    #[cfg(debug_assertions)]
    pub fn is_paced(&self, ci: Ctx) -> bool {
        self.marks[ci.index()] & PACED != 0
    }
    /// Whether the context has a turn to come.
    #[cfg(debug_assertions)]
    pub fn is_ready(&self, ci: Ctx) -> bool {
        self.marks[ci.index()] & READY != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_stands_in_a_queue_once() {
        let mut out = Outbox::default();
        (0..2).for_each(|ci| out.context_begin(Ctx(ci)));
        for ci in [Ctx(1), Ctx(0), Ctx(1)] {
            out.ready_push(ci);
            out.rearm_push(ci);
            out.ack_push(ci);
        }
        assert!(out.ack_waits(Ctx(1)));
        for pop in [Outbox::ready_pop, Outbox::rearm_pop, Outbox::ack_pop] {
            assert_eq!(
                [pop(&mut out), pop(&mut out), pop(&mut out)],
                [Some(Ctx(1)), Some(Ctx(0)), None]
            );
        }
        assert!(!out.ack_waits(Ctx(1)) && out.is_empty() && !out.has_ready());
        assert!(out.park(Ctx(1)) && !out.park(Ctx(1)) && out.unpark(Ctx(1)) && !out.unpark(Ctx(1)));
    }

    #[test]
    fn who_has_ended_gets_no_turn_and_leaves_none_to_the_next() {
        let mut out = Outbox::default();
        out.context_begin(Ctx(0));
        out.ready_push(Ctx(0));
        assert!(out.park(Ctx(0)));
        out.context_end(Ctx(0));
        assert!(!out.unpark(Ctx(0)));
        out.context_begin(Ctx(0));
        assert_eq!(out.ready_pop(), None);
        out.ready_push(Ctx(0));
        assert_eq!((out.ready_pop(), out.ready_pop()), (Some(Ctx(0)), None));
    }

    #[test]
    fn events_and_handshakes_are_bounded_but_for_releases() {
        let mut out = Outbox::default();
        let fatal = AsyncEvent::QpFatal(crate::api::Qpn(1));
        assert!((0..EVENTS_MAX).all(|_| out.event_push(fatal)) && !out.event_push(fatal));
        assert!(out.event_push(AsyncEvent::WrReleased(crate::api::WrHandle(0))));
        let dst = Endpoint { ip: core::net::Ipv4Addr::LOCALHOST.into(), port: 1 };
        while out.event_pop().is_some() {}
        let paths = (0..EVENTS_MAX)
            .filter(|_| out.event_push(AsyncEvent::PathChanged(dst.ip, 1, true)))
            .count();
        assert_eq!(paths, EVENTS_MAX - EVENTS_MAX / 4);
        assert!(out.event_push(AsyncEvent::SqDrained(crate::api::Qpn(1))));
        // Nor must a queue pair that is destroyed with much outstanding.
        while out.event_pop().is_some() {}
        let release = AsyncEvent::WrReleased(crate::api::WrHandle(0));
        assert!((0..=EVENTS_MAX).all(|_| out.event_push(release)) && out.event_push(fatal));
        let of = |body| Control::of_none(dst, PeerTag::NONE, body);
        let acks = (0..CONTROL_QUEUE_MAX).filter(|_| out.control_push(of(Body::CloseAck))).count();
        assert_eq!(acks, CONTROL_QUEUE_MAX / 2, "half of the room is for others");
        let others = (0..CONTROL_QUEUE_MAX).filter(|_| out.control_push(of(Body::Close))).count();
        assert_eq!(others, CONTROL_QUEUE_MAX / 2);
    }
}
