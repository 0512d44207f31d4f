//! The scoreboard: state of the unresolved PSNs of one peer, in a ring indexed by PSN with two
//! intrusive lists.
//!
//! The *order* list has all transmissions in flight, oldest first, for loss detection and timers.
//! The *lost* list has the PSNs that wait to be retransmitted. A PSN is in at most one of the two,
//! so both use the same links.

mod entry;
mod lists;

use crate::psn::{Psn, TxNum};
use crate::time::Time;
pub(crate) use entry::{Entry, Kind, SentState, Settled, Work};
use lists::{EMPTY, List, NIL, order_push, order_remove};

/// Size of an unused ring, in PSNs.
const RING_MIN: usize = 32;

/// The scoreboard of one context.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    ring: Vec<Entry>,
    una: Psn,
    next: Psn,
    order: List,
    lost: List,
    /// Send time of the newest transmission known to have arrived, on any path.
    newest_acked: Time,
    /// Transmissions in flight.
    in_flight: u32,
    /// Bytes on the wire of the transmissions in flight.
    in_flight_bytes: u64,
    lost_len: u32,
    /// PSNs that have arrived and whose verdicts are not known yet.
    arrived_len: u32,
    /// While `arrived_len` is not 0: every PSN before this one has arrived.
    arrived_to: Psn,
}

impl Scoreboard {
    /// A small empty scoreboard; the ring grows with use up to the window.
    pub fn new(psn_start: Psn) -> Self {
        Self {
            ring: vec![Entry::new(Kind::Tombstone, Work::NONE, 0, 0); RING_MIN],
            una: psn_start,
            next: psn_start,
            order: EMPTY,
            lost: EMPTY,
            newest_acked: Time(0),
            in_flight: 0,
            in_flight_bytes: 0,
            lost_len: 0,
            arrived_len: 0,
            arrived_to: psn_start,
        }
    }

    /// Starts over at `psn_start`; the scoreboard must be empty.
    pub fn reset(&mut self, psn_start: Psn) {
        debug_assert_eq!(self.una, self.next);
        debug_assert_eq!(
            (self.in_flight, self.lost_len, self.arrived_len),
            (0, 0, 0),
            "it is empty"
        );
        (self.una, self.next) = (psn_start, psn_start);
        self.newest_acked = Time(0);
    }

    /// Lower edge: every PSN below it is resolved.
    pub fn una(&self) -> Psn {
        self.una
    }
    /// The next PSN to be used.
    pub fn next(&self) -> Psn {
        self.next
    }
    /// Number of PSNs between the lower edge and the next PSN.
    pub fn span(&self) -> u32 {
        let span = self.next.since(self.una);
        debug_assert!(span as usize <= self.ring.len(), "each has its place in the ring");
        span
    }
    /// Transmissions in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
    /// Bytes on the wire of the transmissions in flight.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }
    /// PSNs that wait to be retransmitted.
    pub fn lost_len(&self) -> u32 {
        self.lost_len
    }
    /// PSNs that have arrived and whose verdicts are not known yet.
    pub fn arrived_len(&self) -> u32 {
        self.arrived_len
    }
    /// Every PSN before this one is known to have arrived.
    pub fn arrived_to(&self) -> Psn {
        let known = self.arrived_len > 0 && self.una.is_before(self.arrived_to);
        let to = if known { self.arrived_to } else { self.una };
        debug_assert!(!self.next.is_before(to) || cfg!(planted_bugs), "between the edges");
        to
    }
    /// Notes that the peer has received every PSN before `cum`.
    pub fn note_arrived_to(&mut self, cum: Psn) {
        debug_assert!(!self.next.is_before(cum), "what was never sent has not arrived");
        if self.arrived_to().is_before(cum) {
            self.arrived_to = cum;
        }
    }
    /// Whether the verdict on `p` is known.
    pub fn is_acked(&self, p: Psn) -> bool {
        self.ring[usize::from(self.index(p))].state == SentState::Acked
    }
    /// Whether every PSN is resolved.
    pub fn is_empty(&self) -> bool {
        self.una == self.next
    }
    /// Memory held by the ring, in bytes.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.ring)
    }
    /// Largest value of [`Self::held_bytes`] with a window of `window` PSNs.
    pub fn held_bytes_max(window: usize) -> usize {
        window.next_power_of_two().max(RING_MIN) * size_of::<Entry>()
    }
    /// Size of the ring, in PSNs.
    pub fn ring_len(&self) -> usize {
        self.ring.len()
    }

    fn index(&self, p: Psn) -> u16 {
        p.place(self.ring.len()) as u16
    }
    /// PSN of ring index `i`.
    fn psn_of(&self, i: u16) -> Psn {
        let mask = self.ring.len() as u32 - 1;
        let p = self.una.plus(u32::from(i).wrapping_sub(self.una.0) & mask);
        debug_assert!(p.since(self.una) < self.span(), "only the unresolved are listed");
        p
    }

    /// The entry of an unresolved PSN.
    pub fn get(&self, p: Psn) -> &Entry {
        debug_assert!(p.since(self.una) < self.span(), "{p:?} is one of the unresolved");
        &self.ring[usize::from(self.index(p))]
    }
    fn get_mut(&mut self, p: Psn) -> &mut Entry {
        debug_assert!(p.since(self.una) < self.span(), "{p:?} is one of the unresolved");
        let i = self.index(p);
        &mut self.ring[usize::from(i)]
    }

    /// Turns `p` into a tombstone, because the work that it carried was given up.
    pub fn bury(&mut self, p: Psn) {
        let e = self.get_mut(p);
        debug_assert!(e.state != SentState::Acked, "what is judged stays as it was: {e:?}");
        (e.kind, e.len) = (Kind::Tombstone, 0);
    }
    /// Turns `p`, whose packet has become too large for the paths, into a recall of that packet: a
    /// small packet, with as many tries as any other.
    pub fn recall(&mut self, p: Psn) {
        let e = self.get_mut(p);
        debug_assert!(e.kind.recall() != e.kind && e.state == SentState::Lost, "{e:?}");
        (e.kind, e.again) = (e.kind.recall(), 1);
    }
    /// Does not count the newest transmission of `p` as a try.
    pub fn try_excuse(&mut self, p: Psn) {
        let e = self.get_mut(p);
        debug_assert!(e.again > 0, "it was sent before");
        e.again -= 1;
    }

    /// Takes the next PSN for `entry`, which joins a list only when it is marked as sent.
    #[inline(always)]
    pub fn append(&mut self, entry: Entry) -> Psn {
        if self.span() as usize == self.ring.len() {
            self.grow();
        }
        let p = self.next;
        let i = self.index(p);
        // The other fields are written when the packet is sent, before they are read.
        let Entry { kind, state, path, again, len, work, off, .. } = entry;
        debug_assert!(state == SentState::Acked && again == 0, "it has not left: {entry:?}");
        let e = &mut self.ring[usize::from(i)];
        (e.kind, e.state, e.path, e.again) = (kind, state, path, again);
        (e.len, e.work, e.off) = (len, work, off);
        self.next = p.next();
        p
    }

    /// Notes that `p` was sent or retransmitted: it becomes the newest of the order list.
    #[inline(always)]
    pub fn mark_sent(&mut self, p: Psn, path: u8, tx_num: TxNum, now: Time, wire_bytes: u32) {
        let i = self.index(p);
        let e = &mut self.ring[usize::from(i)];
        debug_assert!(e.state != SentState::InFlight, "{p:?} flies once at a time");
        e.state = SentState::InFlight;
        e.path = path;
        e.tx_num = tx_num;
        e.sent = now;
        e.wire_bytes = wire_bytes;
        self.in_flight += 1;
        self.in_flight_bytes += u64::from(wire_bytes);
        debug_assert!(p.since(self.una) < self.span(), "{p:?} is one of the unresolved");
        order_push(&mut self.ring, &mut self.order, i);
    }

    /// Removes entry `i` from the order list and the counts in flight.
    #[inline(always)]
    fn unlink_in_flight(&mut self, i: u16) {
        let Entry { wire_bytes, .. } = self.ring[usize::from(i)];
        debug_assert!(
            self.in_flight > 0 && self.in_flight_bytes >= u64::from(wire_bytes),
            "counted once"
        );
        order_remove(&mut self.ring, &mut self.order, i);
        self.in_flight -= 1;
        self.in_flight_bytes -= u64::from(wire_bytes);
    }

    /// Checks that the lists are empty where their counts are 0, and that no PSN is counted twice.
    #[inline(always)]
    fn lists_check(&self) {
        debug_assert!(
            (self.in_flight == 0) == (self.order.head == NIL)
                && (self.lost_len == 0) == (self.lost.head == NIL)
                && (self.in_flight > 0 || self.in_flight_bytes == 0)
                && self.in_flight + self.lost_len + self.arrived_len <= self.span(),
            "sums and lists: {self:?}"
        );
    }

    /// Declares `p`, which is in flight, lost, and appends it to the lost list.
    pub fn mark_lost(&mut self, p: Psn) {
        let i = self.index(p);
        debug_assert_eq!(self.ring[usize::from(i)].state, SentState::InFlight, "{p:?}");
        self.unlink_in_flight(i);
        if planted!(LostInFlight) {
            self.in_flight_bytes += u64::from(self.ring[usize::from(i)].wire_bytes);
        }
        self.ring[usize::from(i)].state = SentState::Lost;
        order_push(&mut self.ring, &mut self.lost, i);
        self.lost_len += 1;
    }

    /// Removes and returns the PSN that was declared lost first; the caller must mark it as sent.
    pub fn lost_pop(&mut self) -> Option<Psn> {
        if self.lost.head == NIL {
            return None;
        }
        let i = self.lost.head;
        order_remove(&mut self.ring, &mut self.lost, i);
        self.lost_len -= 1;
        self.lists_check();
        let e = &mut self.ring[usize::from(i)];
        debug_assert_eq!(e.state, SentState::Lost, "what waits to be sent again is lost");
        e.again = e.again.saturating_add(1);
        Some(self.psn_of(i))
    }

    /// The lost PSN that is to be retransmitted next.
    pub fn lost_front(&self) -> Option<Psn> {
        let head = self.head_of(&self.lost, SentState::Lost)?;
        Some(self.psn_of(head))
    }

    /// Marks `p` as acknowledged. Returns its previous state, or `None` if it was acknowledged
    /// already.
    #[inline(always)]
    pub fn mark_acked(&mut self, p: Psn) -> Option<Settled> {
        self.settle(p, SentState::Acked)
    }

    /// Marks `p` as arrived with a verdict that is not known yet. Returns its previous state, or
    /// `None` if its arrival was known already.
    #[inline(never)]
    pub fn mark_arrived(&mut self, p: Psn) -> Option<Settled> {
        self.settle(p, SentState::Arrived)
    }

    #[inline(always)]
    fn settle(&mut self, p: Psn, to: SentState) -> Option<Settled> {
        let i = self.index(p);
        let Entry { kind, state, path, again, work, wire_bytes, sent, .. } =
            self.ring[usize::from(i)];
        let was = Settled { kind, state, path, again, work, wire_bytes, sent };
        match was.state {
            SentState::Acked => return None,
            SentState::Arrived if to == SentState::Arrived => return None,
            SentState::Arrived => {
                debug_assert!(self.arrived_len > 0, "counted when it arrived");
                self.arrived_len -= 1;
            }
            SentState::InFlight => {
                self.unlink_in_flight(i);
                // After a retransmission, only the echo tells which of the transmissions arrived.
                if was.again == 0 {
                    self.note_arrival(was.sent);
                }
            }
            SentState::Lost => {
                order_remove(&mut self.ring, &mut self.lost, i);
                self.lost_len -= 1;
            }
        }
        if to == SentState::Arrived {
            if self.arrived_len == 0 {
                self.arrived_to = self.una;
            }
            self.arrived_len += 1;
        }
        self.ring[usize::from(i)].state = to;
        Some(was)
    }

    /// Queues every arrived PSN without a known verdict for retransmission, because the peer does
    /// not report its verdict. Returns their number.
    pub fn arrived_lose(&mut self) -> u32 {
        let lost_before = self.lost_len;
        for p in self.psns() {
            let i = self.index(p);
            let e = &mut self.ring[usize::from(i)];
            if e.state == SentState::Arrived {
                e.state = SentState::Lost;
                order_push(&mut self.ring, &mut self.lost, i);
                self.lost_len += 1;
            }
        }
        debug_assert_eq!(self.lost_len - lost_before, self.arrived_len, "all that are counted");
        core::mem::take(&mut self.arrived_len)
    }

    /// Notes the arrival of a transmission that was sent at `sent`; it may be a probe, or one that
    /// was given up.
    pub fn note_arrival(&mut self, sent: Time) {
        self.newest_acked = self.newest_acked.max(sent);
    }

    /// Drops every PSN. Returns the bytes that were in flight.
    pub fn drain(&mut self) -> u32 {
        let bytes = self.iter_in_flight().map(|p| self.get(p).wire_bytes).sum();
        (self.order, self.lost) = (EMPTY, EMPTY);
        (self.in_flight, self.in_flight_bytes, self.lost_len) = (0, 0, 0);
        self.arrived_len = 0;
        self.una = self.next;
        self.lists_check();
        bytes
    }

    /// Advances the lower edge over the acknowledged PSNs.
    pub fn advance(&mut self) {
        while self.una != self.next && self.get(self.una).state == SentState::Acked {
            self.una = self.una.next();
        }
        self.lists_check();
    }

    /// Send time of the newest transmission known to have arrived, on any path.
    pub fn newest_acked(&self) -> Time {
        self.newest_acked
    }
    /// The oldest transmission in flight.
    pub fn oldest(&self) -> Option<Psn> {
        let head = self.head_of(&self.order, SentState::InFlight)?;
        Some(self.psn_of(head))
    }
    /// Ring index of the first entry of `list`, whose entries are all in `state`.
    #[inline(always)]
    fn head_of(&self, list: &List, state: SentState) -> Option<u16> {
        debug_assert_eq!(list.head == NIL, list.tail == NIL, "a list has both ends or none");
        let head = (list.head != NIL).then_some(list.head)?;
        debug_assert_eq!(self.ring[usize::from(head)].state, state, "a list of one state");
        Some(head)
    }

    fn iter_in_flight(&self) -> impl Iterator<Item = Psn> + '_ {
        let mut i = self.order.head;
        core::iter::from_fn(move || {
            if i == NIL {
                return None;
            }
            let p = self.psn_of(i);
            i = self.ring[usize::from(i)].next;
            Some(p)
        })
    }

    /// Every PSN between the lower edge and the next PSN.
    pub fn psns(&self) -> impl Iterator<Item = Psn> + use<> {
        let (una, span) = (self.una, self.span());
        (0..span).map(move |k| una.plus(k))
    }

    /// Checks the counts and lists against the entries.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        let count = |state| self.psns().filter(|&p| self.get(p).state == state).count() as u32;
        assert_eq!(self.in_flight, count(SentState::InFlight), "packets in flight");
        assert_eq!(self.lost_len, count(SentState::Lost), "packets lost");
        assert_eq!(self.arrived_len, count(SentState::Arrived), "packets arrived");
        let (mut bytes, mut packets, mut sent) = (0, 0, Time(0));
        for e in self.iter_in_flight().map(|p| self.get(p)) {
            assert_eq!(e.state, SentState::InFlight, "a list of what is in flight");
            assert!(sent <= e.sent, "the oldest first");
            sent = e.sent;
            bytes += u64::from(e.wire_bytes);
            packets += 1;
        }
        assert_eq!((self.in_flight, self.in_flight_bytes), (packets, bytes), "bytes in flight");
    }

    #[cold]
    fn grow(&mut self) {
        let old_len = self.ring.len();
        let mut ring = vec![Entry::new(Kind::Tombstone, Work::NONE, 0, 0); old_len * 2];
        let new_len = ring.len();
        debug_assert!(new_len <= usize::from(NIL), "a place is 16 bits, and none is none");
        let una = self.una;
        let moved = |i: u16| {
            if i == NIL {
                return NIL;
            }
            let p = una.plus(u32::from(i).wrapping_sub(una.0) & (old_len as u32 - 1));
            p.place(new_len) as u16
        };
        for k in 0..self.span() {
            let p = una.plus(k);
            let mut e = self.ring[p.place(old_len)];
            (e.prev, e.next) = (moved(e.prev), moved(e.next));
            ring[p.place(new_len)] = e;
        }
        let relocate = |l: List| List { head: moved(l.head), tail: moved(l.tail) };
        self.order = relocate(self.order);
        self.lost = relocate(self.lost);
        self.ring = ring;
        debug_assert!(self.span() as usize == old_len, "it grows when it is full");
    }
}

#[cfg(test)]
mod tests;
