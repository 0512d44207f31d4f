//! Queue pairs: state machine, receive queue, limits.

use crate::api::{CqId, PdId, QpType, Qpn, RecvRequest};
use crate::limits;
use crate::state::state_machine;
use crate::time::Time;

state_machine! {
    /// State of a queue pair, with the names of verbs and the transitions of EFA's table for SRD.
    pub enum QpState {
        /// Just created: no work may be posted.
        Reset,
        /// The Q_Key is set: receives may be posted.
        Init,
        /// Ready to receive.
        Rtr,
        /// Ready to send.
        Rts,
        /// Draining: sends that have started are completed, no others start.
        Sqd,
        /// A send failed locally (kept for verbs; SRD never enters it by itself).
        Sqe,
        /// Error: all outstanding work is flushed.
        Err,
    }
    /// Reset to Init.
    to_init: Reset => Init;
    /// Init to ready-to-receive.
    to_rtr: Init => Rtr;
    /// To ready-to-send, for the first time or again.
    to_rts: Rtr | Rts | Sqd | Sqe => Rts;
    /// Drain the send queue.
    to_sqd: Rts => Sqd;
    /// Flush all outstanding work.
    to_err: Reset | Init | Rtr | Rts | Sqd | Sqe | Err => Err;
    /// Return to the initial state.
    to_reset: Reset | Init | Rtr | Rts | Sqd | Sqe | Err => Reset;
}

impl QpState {
    /// Whether messages from the network are accepted.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }
    /// Whether new sends may be posted (EFA: Rts and Sqd).
    pub const fn posts_send(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }
    /// Whether receives may be posted.
    pub const fn posts_recv(self) -> bool {
        !matches!(self, Self::Reset | Self::Err)
    }
}

/// Attributes with which a queue pair is created.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Transport type: SRD or UD.
    pub kind: QpType,
    /// Protection domain whose regions and address handles the queue pair may use.
    pub pd: PdId,
    /// Completion queue of sends.
    pub send_cq: CqId,
    /// Completion queue of receives.
    pub recv_cq: CqId,
    /// Maximum number of outstanding send requests, at least 1.
    pub sq_depth: u32,
    /// Maximum number of posted receives, at least 1.
    pub rq_depth: u32,
    /// Whether a write with immediate consumes no receive (EFA: unsolicited write receive).
    pub unsolicited_write_recv: bool,
}

/// Attributes to change; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpModify {
    /// The new state; refused if the state machine has no such transition.
    pub state: Option<QpState>,
    /// Q_Key; required for the transition from Reset to Init.
    pub qkey: Option<u32>,
    /// RNR retries, 0 to 8: 7 stands for no limit (verbs), 8 for about a minute of retries. Changes
    /// only together with the transition from Rtr to Rts. A queue pair for which it is never set
    /// has 7, as on EFA.
    pub rnr_retry: Option<u8>,
}

/// Attributes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpAttr {
    /// Present state.
    pub state: QpState,
    /// Q_Key that a message must carry to be accepted.
    pub qkey: u32,
    /// RNR retries; see [`QpModify::rnr_retry`].
    pub rnr_retry: u8,
    /// Attributes with which the queue pair was created.
    pub init: QpInit,
}

/// Posted receives: a ring of `rq_depth` slots. Receives are consumed in order; the device keeps
/// the buffers of each under its slot number.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    slots: Vec<RecvRequest>,
    head: u32,
    len: u32,
}

impl RecvQueue {
    fn new(depth: u32) -> Self {
        Self { slots: vec![RecvRequest { wr_id: 0, len: 0 }; depth as usize], head: 0, len: 0 }
    }
    /// Adds a receive and returns its slot, or `None` if the queue is full.
    #[inline(always)]
    pub fn push(&mut self, wr: RecvRequest) -> Option<u32> {
        let depth = self.slots.len() as u32;
        if self.len == depth {
            return None;
        }
        let slot = (self.head + self.len) % depth;
        debug_assert!(slot < depth, "a place of the ring");
        self.slots[slot as usize] = wr;
        self.len += 1;
        Some(slot)
    }
    /// The receive that the next message consumes, with its slot.
    #[inline(always)]
    pub fn front(&self) -> Option<(u32, RecvRequest)> {
        debug_assert!(self.len as usize <= self.slots.len(), "no more than its depth");
        (self.len > 0).then(|| (self.head, self.slots[self.head as usize]))
    }
    /// Consumes the receive that [`Self::front`] returns.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(u32, RecvRequest)> {
        let front = self.front()?;
        self.head = (self.head + 1) % self.slots.len() as u32;
        self.len -= 1;
        debug_assert!((self.head as usize) < self.slots.len(), "a place of the ring");
        Some(front)
    }
    /// Number of receives posted and not consumed.
    pub fn len(&self) -> u32 {
        self.len
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub init: QpInit,
    pub state: QpState,
    pub qkey: u32,
    pub rnr_retry: u8,
    pub rq: RecvQueue,
    /// Send requests posted and not completed.
    pub sq_used: u32,
    /// Send requests among `sq_used` of which at least one packet was sent.
    pub sq_started: u32,
    /// `AsyncEvent::SqDrained` must be reported when `sq_started` reaches zero.
    pub drain_event: bool,
}

/// The table of queue pairs: 256 slots, each unusable for a while after its queue pair was
/// destroyed.
#[derive(Debug)]
pub(crate) struct QpTable {
    /// One slot for each of the 256 indices of a queue pair number.
    slots: Box<[QpSlot; limits::QPS_MAX]>,
    engine_slot: u8,
    cursor: u8,
}

#[derive(Debug)]
enum QpSlot {
    Free(Time),
    Used(Box<Qp>),
}

impl QpTable {
    /// An empty table whose first queue pair gets the index `first`.
    pub fn new(engine_slot: u8, first: u8) -> Self {
        let slots = Box::new([const { QpSlot::Free(Time(0)) }; limits::QPS_MAX]);
        Self { slots, engine_slot, cursor: first }
    }

    /// Creates a queue pair under the next free number; `None` if every number is used or was freed
    /// too recently.
    pub fn create(&mut self, now: Time, init: QpInit) -> Option<Qpn> {
        debug_assert!(init.sq_depth > 0 && init.rq_depth > 0, "depths were checked");
        for step in 0..limits::QPS_MAX {
            let i = self.cursor.wrapping_add(step as u8);
            if matches!(self.slots[usize::from(i)], QpSlot::Free(t) if t <= now) {
                self.cursor = i.wrapping_add(1);
                self.slots[usize::from(i)] = QpSlot::Used(Box::new(Qp {
                    init,
                    state: QpState::Reset,
                    qkey: 0,
                    rnr_retry: limits::RNR_RETRY_INFINITE,
                    rq: RecvQueue::new(init.rq_depth),
                    sq_used: 0,
                    sq_started: 0,
                    drain_event: false,
                }));
                return Some(Qpn(u16::from(self.engine_slot) << 8 | u16::from(i)));
            }
        }
        None
    }

    pub fn destroy(&mut self, qpn: Qpn, free_at: Time) {
        let rests = |q: &Qp| q.sq_used == 0 && q.rq.len() == 0;
        debug_assert!(self.get(qpn).is_some_and(rests), "its work is withdrawn before it goes");
        self.slots[usize::from(qpn.index())] = QpSlot::Free(free_at);
    }

    #[inline(always)]
    pub fn get(&self, qpn: Qpn) -> Option<&Qp> {
        if qpn.slot() != self.engine_slot {
            return None;
        }
        match &self.slots[usize::from(qpn.index())] {
            QpSlot::Used(q) => {
                debug_assert!(q.sq_started <= q.sq_used, "what has left was posted");
                Some(q)
            }
            QpSlot::Free(_) => None,
        }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        if qpn.slot() != self.engine_slot {
            return None;
        }
        match &mut self.slots[usize::from(qpn.index())] {
            QpSlot::Used(q) => Some(q),
            QpSlot::Free(_) => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().filter_map(|s| match s {
            QpSlot::Used(q) => Some(&**q),
            QpSlot::Free(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_consumed_in_order_and_slots_come_round() {
        let mut q = RecvQueue::new(3);
        let receive = |wr_id| RecvRequest { wr_id, len: 10 };
        for (wr_id, slot) in [(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, None)] {
            assert_eq!(q.push(receive(wr_id)), slot);
        }
        assert_eq!(q.front().map(|(slot, r)| (slot, r.wr_id)), Some((0, 1)));
        assert_eq!(q.pop().map(|(slot, r)| (slot, r.wr_id)), Some((0, 1)));
        assert_eq!((q.push(receive(5)), q.len()), (Some(0), 3));
        let rest: Vec<_> = core::iter::from_fn(|| q.pop()).map(|(s, r)| (s, r.wr_id)).collect();
        assert_eq!((rest, q.len()), (vec![(1, 2), (2, 3), (0, 5)], 0));
    }

    #[test]
    fn numbers_rest_for_a_while() {
        let init = QpInit {
            kind: QpType::Srd,
            pd: PdId(0),
            send_cq: CqId(0),
            recv_cq: CqId(0),
            sq_depth: 1,
            rq_depth: 1,
            unsolicited_write_recv: false,
        };
        let mut t = QpTable::new(3, 255);
        let first = t.create(Time(0), init).unwrap();
        assert_eq!((first, t.create(Time(0), init)), (Qpn(0x3FF), Some(Qpn(0x300))));
        assert!(t.get(first).is_some() && t.get(Qpn(0x2FF)).is_none(), "another engine's");
        t.destroy(first, Time(100));
        assert!(t.get(first).is_none());
        let others = (0..255).filter(|_| t.create(Time(99), init).is_some()).count();
        assert_eq!((others, t.create(Time(99), init)), (254, None));
        assert_eq!(t.create(Time(100), init), Some(first));
    }
}
