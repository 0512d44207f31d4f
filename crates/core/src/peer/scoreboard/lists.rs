//! The intrusive lists of the scoreboard: doubly linked through the entries of its ring.

use super::entry::Entry;

/// Ring index that stands for no entry.
pub(super) const NIL: u16 = u16::MAX;

/// The ends of a list, as ring indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub head: u16,
    pub tail: u16,
}

/// The empty list.
pub(super) const EMPTY: List = List { head: NIL, tail: NIL };

/// Appends entry `i` to the order list or the lost list.
#[inline]
pub(super) fn order_push(ring: &mut [Entry], l: &mut List, i: u16) {
    debug_assert!(l.tail == NIL || ring[usize::from(l.tail)].next == NIL, "the last is the last");
    let e = &mut ring[usize::from(i)];
    (e.prev, e.next) = (l.tail, NIL);
    match core::mem::replace(&mut l.tail, i) {
        NIL => l.head = i,
        t => ring[usize::from(t)].next = i,
    }
}

/// Removes entry `i` from the list that it is in.
#[inline]
pub(super) fn order_remove(ring: &mut [Entry], l: &mut List, i: u16) {
    let Entry { prev, next, .. } = ring[usize::from(i)];
    let linked = |at, back: fn(&Entry) -> u16, end| match at {
        NIL => end == i,
        at => back(&ring[usize::from(at)]) == i,
    };
    debug_assert!(linked(prev, |e| e.next, l.head), "the one before names it, or the list does");
    debug_assert!(linked(next, |e| e.prev, l.tail), "the one after names it, or the list does");
    match prev {
        NIL => l.head = next,
        p => ring[usize::from(p)].next = next,
    }
    match next {
        NIL => l.tail = prev,
        _ if planted!(FlightLinkKept) => {}
        n => ring[usize::from(n)].prev = prev,
    }
}
