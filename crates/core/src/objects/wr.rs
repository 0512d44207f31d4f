//! The table of send work requests: one slot per request from post to completion.

use crate::api::{AhId, Opcode, Qpn, SendRequest, Status, WrHandle};
use crate::ids::Ctx;
use crate::limits::{RNR_RETRY_LONG, RNR_ROUNDS_LONG};
use crate::memory::first;
use crate::objects::qp::QpTable;
use crate::objects::tiling::Tiling;
use crate::time::Time;

/// State of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrState {
    /// In the queue of its flow; some of its bytes may already have PSNs.
    Queued,
    /// Every byte has a PSN; a read waits for its response.
    Sent,
    /// The peer refused it with RNR or busy; it is sent again when its back-off timer fires.
    Backoff,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub wr: SendRequest,
    pub qp: Qpn,
    /// Reliability context through which it is sent.
    pub ctx: Ctx,
    pub msg_id: u32,
    pub state: WrState,
    /// Bytes that have PSNs.
    pub cut: u32,
    /// Number of its PSNs that are not resolved.
    pub open: u32,
    /// For a read: bytes of the response that are still to arrive.
    pub awaited: u32,
    /// For a read: which bytes of the response have arrived.
    pub arrived: Tiling,
    /// The first error; the request ends with it once all of its PSNs are resolved.
    pub failed: Option<Status>,
    pub rnr_left: u8,
    pub rnr_round: u16,
    /// When the peer first answered the read with "busy" (`NEVER`: it did not).
    pub busy_since: Time,
    /// At least one of its packets was sent: a draining queue pair waits for its end.
    pub started: bool,
    /// Only the immediate has to be sent again.
    pub imm_only: bool,
    /// Holds one of the peer's read or write-with-immediate credits.
    pub credited: bool,
    /// The request is cancelled: its unresolved PSNs become tombstones.
    pub withdrawn: bool,
    /// The request is in a queue ([`WrQueue`]), that of its flow or that of its context's
    /// datagrams.
    queued: bool,
    /// The previous request in that queue. Stale in the first request of the queue; the queue's
    /// `head` says which request that is.
    prev: Link,
    /// The next request in that queue; none in the last.
    next: Link,
    /// Neighbours in the list of its context's live requests ([`WrList`]).
    older: Link,
    newer: Link,
}

impl Wqe {
    /// Marks the request as started when its first packet is sent: from now on its queue pair is
    /// drained only when the request has ended.
    #[inline]
    pub fn start(&mut self, qps: &mut QpTable) {
        debug_assert!(!self.started, "a request starts once");
        if let Some(qp) = qps.get_mut(self.qp) {
            qp.sq_started += 1;
            debug_assert!(qp.sq_started <= qp.sq_used, "what has left was posted");
        }
        self.started = true;
    }

    /// Whether the request is retried after a refusal for lack of a receive (RNR).
    pub fn rnr_retries(&self) -> bool {
        debug_assert!(self.rnr_left <= RNR_RETRY_LONG, "a count that verbs know: {self:?}");
        match self.rnr_left {
            RNR_RETRY_LONG => self.rnr_round < RNR_ROUNDS_LONG,
            left => left > u8::from(planted!(RnrOneTooFew)),
        }
    }
}

/// Handle of another request of the table, or none; half the size of an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link(WrHandle);

impl Link {
    /// The link to no request.
    const NIL: Self = Self(WrHandle(u32::MAX));

    /// The link to request `h`.
    #[inline(always)]
    const fn to(h: WrHandle) -> Self {
        Self(h)
    }
    /// The request, if there is one.
    #[inline(always)]
    fn get(self) -> Option<WrHandle> {
        (self != Self::NIL).then_some(self.0)
    }
    /// Whether this is the link to request `h`.
    fn is(self, h: WrHandle) -> bool {
        self.0 == h
    }
    /// Whether this is the link to no request.
    #[inline(always)]
    fn is_nil(self) -> bool {
        self == Self::NIL
    }
}

/// The table of requests. Each slot has a 16-bit generation, so that a message id is not reused for
/// a long time.
#[derive(Debug)]
pub(crate) struct WrTable {
    slots: Vec<Option<Wqe>>,
    generation: Vec<u16>,
    free: Vec<u32>,
    max: u32,
}

impl WrTable {
    /// Calls `see` with the memory that the next calls will need.
    #[inline]
    pub fn ahead(&self, see: &mut impl FnMut(*const u8, usize)) {
        first(see, &self.slots, 1);
    }

    pub fn new(max: u32) -> Self {
        debug_assert!(max <= 1 << 16, "a message id has 16 bits for the slot");
        Self { slots: Vec::new(), generation: Vec::new(), free: Vec::new(), max }
    }

    /// Whether [`Self::post`] would find a free slot.
    pub fn has_room(&self) -> bool {
        debug_assert!(self.slots.len() as u32 <= self.max, "a bounded table");
        !self.free.is_empty() || (self.slots.len() as u32) < self.max
    }

    /// Takes a slot for a request and appends the request to `queue` and to `live`, the list of its
    /// context. The caller has checked that there is a free slot.
    #[inline(always)]
    pub fn post(
        &mut self,
        wr: SendRequest,
        qp: Qpn,
        ctx: Ctx,
        rnr_retry: u8,
        queue: &mut WrQueue,
        live: &mut WrList,
    ) -> WrHandle {
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generation.push(0);
            self.slots.len() as u32 - 1
        });
        debug_assert!(self.slots[i as usize].is_none() || cfg!(planted_bugs), "a slot of nobody");
        let g = &mut self.generation[i as usize];
        // No request has a message id below 2^16; the message id 0 stands for no request.
        *g = g.wrapping_add(1).max(1);
        self.slots[i as usize] = Some(Wqe {
            wr,
            qp,
            ctx,
            msg_id: u32::from(*g) << 16 | i,
            state: WrState::Queued,
            cut: 0,
            open: 0,
            awaited: if wr.op == Opcode::Read { wr.len } else { 0 },
            arrived: Tiling::EMPTY,
            failed: None,
            rnr_left: rnr_retry,
            rnr_round: 0,
            busy_since: Time::NEVER,
            started: false,
            imm_only: false,
            credited: false,
            withdrawn: false,
            queued: true,
            prev: queue.tail,
            next: Link::NIL,
            older: live.newest,
            newer: Link::NIL,
        });
        debug_assert!(i < self.max, "the caller has asked for room");
        debug_assert_eq!(queue.head.is_nil(), queue.tail.is_nil(), "a queue has both ends or none");
        let h = WrHandle(i);
        match queue.tail.get() {
            None => queue.head = Link::to(h),
            Some(tail) => self.get_mut(tail).next = Link::to(h),
        }
        queue.tail = Link::to(h);
        if let Some(newest) = live.newest.get() {
            let newest = self.get_mut(newest);
            debug_assert!(newest.newer.is_nil(), "nobody comes after the newest");
            newest.newer = Link::to(h);
        }
        live.newest = Link::to(h);
        h
    }

    /// Ends a request. Its slot stays taken until [`Self::give_back`], because its handle is still
    /// to be reported to the user.
    #[inline(always)]
    pub fn retire(&mut self, h: WrHandle) {
        if planted!(HandleEarly) {
            self.free.push(h.0);
        }
        let slot = &mut self.slots[h.0 as usize];
        assert!(slot.is_some(), "ended twice: a request ends once");
        *slot = None;
    }

    /// Frees the slot of a retired request, after its completion or release was reported to the
    /// user.
    pub fn give_back(&mut self, h: WrHandle) {
        if !planted!(HandleEarly) {
            debug_assert!(self.slots[h.0 as usize].is_none(), "a live request has its handle");
            self.free.push(h.0);
        }
        debug_assert!(self.free.len() <= self.slots.len() || cfg!(planted_bugs), "given back once");
    }

    #[inline(always)]
    pub fn get(&self, h: WrHandle) -> &Wqe {
        self.slots[h.0 as usize].as_ref().expect("only live requests are referred to")
    }

    #[inline(always)]
    pub fn get_mut(&mut self, h: WrHandle) -> &mut Wqe {
        self.slots[h.0 as usize].as_mut().expect("only live requests are referred to")
    }

    /// The live request with handle `h`, which may come from outside.
    pub fn find(&self, h: WrHandle) -> Option<&Wqe> {
        self.slots.get(h.0 as usize)?.as_ref()
    }

    /// The live request with this message id, if it belongs to `ctx`.
    pub fn by_msg_id(&self, msg_id: u32, ctx: Ctx) -> Option<WrHandle> {
        let i = msg_id & 0xFFFF;
        let w = self.slots.get(i as usize)?.as_ref()?;
        debug_assert_eq!(w.msg_id & 0xFFFF, i, "a message id names its slot");
        (w.msg_id == msg_id && w.ctx == ctx || planted!(ReadLateTaken)).then_some(WrHandle(i))
    }

    /// The live requests for which `pick` is true.
    pub fn select(&self, pick: impl Fn(&Wqe) -> bool) -> Vec<WrHandle> {
        let live = self.slots.iter().enumerate();
        live.filter_map(|(i, s)| s.as_ref().is_some_and(&pick).then_some(WrHandle(i as u32)))
            .collect()
    }

    /// Whether any live request goes through `ah`.
    pub fn uses_ah(&self, ah: AhId) -> bool {
        self.slots.iter().flatten().any(|w| w.wr.ah == ah)
    }
}

/// The doubly linked list of a context's live requests. With it, the work of a silent peer is ended
/// without a search through the requests of all peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrList {
    newest: Link,
}

impl Default for WrList {
    fn default() -> Self {
        Self { newest: Link::NIL }
    }
}

impl WrList {
    /// The newest request of the list.
    pub fn front(&self) -> Option<WrHandle> {
        self.newest.get()
    }
    /// All requests of the list, the newest first.
    pub fn iter<'a>(&self, t: &'a WrTable) -> impl Iterator<Item = (WrHandle, &'a Wqe)> + use<'a> {
        let mut next = self.front();
        core::iter::from_fn(move || {
            let h = next?;
            let w = t.get(h);
            next = w.older.get();
            Some((h, w))
        })
    }
    /// Unlinks request `h`, before it is removed from the table.
    #[inline(always)]
    pub fn unlink(&mut self, t: &mut WrTable, h: WrHandle) {
        let Wqe { older, newer, .. } = *t.get(h);
        let linked =
            |at: Link, back: fn(&Wqe) -> Link| at.get().is_none_or(|at| back(t.get(at)).is(h));
        debug_assert!(
            linked(newer, |w| w.older) && linked(older, |w| w.newer) || cfg!(planted_bugs),
            "both neighbours name it"
        );
        debug_assert_eq!(newer.is_nil(), self.newest.is(h), "the newest has nobody after it");
        match newer.get() {
            None => self.newest = older,
            Some(_) if planted!(LiveKept) => {}
            Some(newer) => t.get_mut(newer).older = older,
        }
        if let Some(older) = older.get() {
            t.get_mut(older).newer = newer;
        }
        debug_assert!(!self.newest.is_nil() || older.is_nil(), "the last one leaves nobody behind");
    }
}

/// A queue of requests: a doubly linked list through the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrQueue {
    head: Link,
    tail: Link,
}

impl Default for WrQueue {
    fn default() -> Self {
        Self { head: Link::NIL, tail: Link::NIL }
    }
}

impl WrQueue {
    pub fn is_empty(&self) -> bool {
        debug_assert_eq!(self.head.is_nil(), self.tail.is_nil(), "a queue has both ends or none");
        self.head.is_nil()
    }
    pub fn front(&self) -> Option<WrHandle> {
        self.head.get()
    }
    pub fn push_back(&mut self, t: &mut WrTable, h: WrHandle) {
        self.put(t, h, self.tail, Link::NIL);
    }
    pub fn push_front(&mut self, t: &mut WrTable, h: WrHandle) {
        self.put(t, h, Link::NIL, self.head);
    }
    pub fn pop_front(&mut self, t: &mut WrTable) -> Option<WrHandle> {
        let h = self.front()?;
        self.pop_known(t.get_mut(h));
        Some(h)
    }

    /// Like [`Self::pop_front`], where the caller holds the first request.
    #[inline(always)]
    pub fn pop_known(&mut self, w: &mut Wqe) {
        debug_assert!(w.queued && self.head.is(WrHandle(w.msg_id & 0xFFFF)), "it is the first");
        w.queued = false;
        self.head = w.next;
        if self.head.is_nil() {
            self.tail = Link::NIL;
        }
        debug_assert_eq!(self.head.is_nil(), self.tail.is_nil(), "a queue has both ends or none");
    }

    /// Removes request `h` if it is in a queue, which must be this one. Returns whether it was.
    pub fn remove(&mut self, t: &mut WrTable, h: WrHandle) -> bool {
        let w = t.get_mut(h);
        if !core::mem::take(&mut w.queued) {
            return false;
        }
        // `prev` of the first request is stale: it may be a request that was popped.
        let prev = if self.head.is(h) { Link::NIL } else { w.prev };
        let next = w.next;
        let linked =
            |at: Link, back: fn(&Wqe) -> Link| at.get().is_none_or(|at| back(t.get(at)).is(h));
        debug_assert!(linked(prev, |w| w.next) && linked(next, |w| w.prev), "neighbours name it");
        debug_assert_eq!(next.is_nil(), self.tail.is(h), "the last has nobody after it");
        match prev.get() {
            None => self.head = next,
            Some(p) => t.get_mut(p).next = next,
        }
        match next.get() {
            None => self.tail = prev,
            Some(_) if planted!(QueueLinkKept) => {}
            Some(n) => t.get_mut(n).prev = prev,
        }
        true
    }

    /// Inserts request `h`, which is in no queue, between two neighbours.
    fn put(&mut self, t: &mut WrTable, h: WrHandle, prev: Link, next: Link) {
        let w = t.get_mut(h);
        debug_assert!(!w.queued, "in one queue at a time");
        debug_assert!(prev.is_nil() || next.is_nil(), "it joins at one of the ends");
        (w.queued, w.prev, w.next) = (true, prev, next);
        match prev.get() {
            None => self.head = Link::to(h),
            Some(p) => t.get_mut(p).next = Link::to(h),
        }
        match next.get() {
            None => self.tail = Link::to(h),
            Some(n) => t.get_mut(n).prev = Link::to(h),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    fn table(n: u32) -> WrTable {
        let mut t = WrTable::new(n);
        let wr = SendRequest {
            wr_id: 0,
            op: Opcode::Send,
            ah: AhId(0),
            dst_qpn: Qpn(0),
            qkey: 0,
            len: 0,
            rkey: 0,
            raddr: 0,
            imm: 0,
        };
        let (mut queue, mut live) = (WrQueue::default(), WrList::default());
        for _ in 0..n {
            t.post(wr, Qpn(0), Ctx(0), 0, &mut queue, &mut live);
        }
        while queue.pop_front(&mut t).is_some() {}
        t
    }

    #[test]
    fn queues_agree_with_plain_ones() {
        for seed in 0..20 {
            let mut rng = Rng::from_seed(seed);
            let mut t = table(24);
            let mut q = WrQueue::default();
            let mut plain = VecDeque::new();
            for _ in 0..3000 {
                let i = WrHandle(rng.below(24));
                let at = plain.iter().position(|&k| k == i);
                match (rng.below(4), at) {
                    (0, None) => {
                        q.push_back(&mut t, i);
                        plain.push_back(i);
                    }
                    (1, None) => {
                        q.push_front(&mut t, i);
                        plain.push_front(i);
                    }
                    (2, at) => {
                        assert_eq!(q.remove(&mut t, i), at.is_some());
                        at.map(|at| plain.remove(at));
                    }
                    (3, _) => assert_eq!(q.pop_front(&mut t), plain.pop_front()),
                    _ => {}
                }
                assert_eq!((q.front(), q.is_empty()), (plain.front().copied(), plain.is_empty()));
            }
        }
    }
}
