//! Work for one peer that waits for a PSN, except responses to reads: requests by queue pair,
//! datagrams, messages that the peer is to forget, and ranges to be cut into smaller packets.

use crate::api::{Opcode, Qpn, WrHandle};
use crate::limits::{QPS_MAX, WINDOW_MAX};
use crate::objects::wr::{Wqe, WrQueue, WrTable};
use crate::peer::recut::Recut;
use std::collections::VecDeque;

/// The requests of one queue pair to one peer, at least one.
#[derive(Debug)]
struct Flow {
    qp: Qpn,
    queue: WrQueue,
}

/// Index of a flow among those of a peer, valid until one of them ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowAt(usize);

/// The send queues of one peer.
#[derive(Debug, Default)]
pub(crate) struct SendQueues {
    flows: Vec<Flow>,
    /// Index of the flow whose turn it is, modulo the number of flows.
    cursor: usize,
    /// Packets sent so far in the present turn of a flow.
    turn: u16,
    /// Unreliable datagrams.
    datagrams: WrQueue,
    /// Ids of messages that the peer must be told to forget.
    cancels: VecDeque<u32>,
    /// Ranges that were recalled because their packets had become too large for the paths. Each
    /// counts as one unresolved packet of its request or read.
    recuts: VecDeque<Recut>,
    /// Bytes of requests that have no PSN yet. A read counts with its full length.
    unsent_bytes: u64,
}

impl SendQueues {
    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.flows.capacity() * size_of::<Flow>()
            + self.cancels.capacity() * size_of::<u32>()
            + self.recuts.capacity() * size_of::<Recut>()
    }
    /// Largest value of [`Self::held_bytes`] with `qps` queue pairs, `requests` requests and
    /// `window` unresolved PSNs.
    pub fn held_bytes_max(qps: usize, requests: usize, window: usize) -> usize {
        // Lists grow by doubling.
        2 * (qps * size_of::<Flow>() + requests * size_of::<u32>() + window * size_of::<Recut>())
    }

    /// Drops all work. The turn among flows stays.
    pub fn clear(&mut self) {
        self.requests_clear();
        self.cancels.clear();
        self.recuts.clear();
    }
    /// Drops the requests, which have all ended, and the recalled ranges of writes.
    pub fn requests_clear(&mut self) {
        self.flows.clear();
        self.datagrams = WrQueue::default();
        self.unsent_bytes = 0;
        self.recuts.retain(|r| !r.is_write());
    }
    /// Drops recalled ranges and messages to forget, because the peer has forgotten all that it was
    /// sent.
    pub fn sent_forget(&mut self) {
        self.recuts.clear();
        self.cancels.clear();
    }

    /// Whether no work waits, not even a range to be cut again.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
            && self.datagrams.is_empty()
            && self.cancels.is_empty()
            && self.recuts.is_empty()
    }
    /// Whether nothing waits that the peer needs because of what it was sent before.
    pub fn sent_is_empty(&self) -> bool {
        self.cancels.is_empty() && self.recuts.is_empty()
    }
    /// Bytes of requests that have no PSN yet.
    #[inline(always)]
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }
    /// Counts `bytes` of a queued request that have no PSN.
    #[inline(always)]
    pub fn unsent_add(&mut self, bytes: u32) {
        self.unsent_bytes += u64::from(bytes);
    }
    /// Stops counting `bytes` that now have a PSN or were given up.
    #[inline(always)]
    pub fn unsent_take(&mut self, bytes: u32) {
        debug_assert!(self.unsent_bytes >= u64::from(bytes), "bytes are sent once");
        self.unsent_bytes -= u64::from(bytes);
    }

    // ---- flows ---------------------------------------------------------------------------------

    /// The queue of the requests of `qp`, made if there is none. The caller adds a request to it.
    #[inline(always)]
    pub fn flow(&mut self, qp: Qpn) -> &mut WrQueue {
        let at = self.flows.iter().position(|f| f.qp == qp).unwrap_or_else(|| {
            self.flows.push(Flow { qp, queue: WrQueue::default() });
            self.flows.len() - 1
        });
        debug_assert!(self.flows.len() <= QPS_MAX, "one for each queue pair");
        &mut self.flows[at].queue
    }
    /// Number of flows.
    #[inline(always)]
    pub fn flows_len(&self) -> usize {
        self.flows.len()
    }
    /// The flow whose turn it is, and its first request. There must be at least one flow.
    #[inline(always)]
    pub fn flow_next(&self) -> (FlowAt, WrHandle) {
        debug_assert!(!self.flows.is_empty(), "somebody has a turn");
        let at = self.cursor % self.flows.len();
        let first = self.flows[at].queue.front();
        (FlowAt(at), first.expect("an empty flow is removed at once"))
    }
    /// Gives the turn to the flow after `at`.
    pub fn flow_pass(&mut self, at: FlowAt) {
        debug_assert!(at.0 < self.flows.len(), "a flow of this peer");
        self.cursor = at.0 + 1;
    }
    /// Counts a packet of the flow whose turn it is; after `burst` packets the next flow has its
    /// turn.
    #[inline(always)]
    pub fn flow_advance(&mut self, burst: u16) {
        debug_assert!(burst > 0, "a turn is a packet at least");
        debug_assert!(self.turn < burst, "a turn ends in time");
        self.turn += 1;
        // A burst on one path stays with one flow where possible: packets of equal size make one
        // GSO send.
        if self.turn >= burst {
            self.turn = 0;
            self.cursor = self.cursor.wrapping_add(1);
        }
    }
    /// Moves the first request of a flow to its end, if it is a write with immediate that was sent
    /// before and not all of these had their turn. `turned`: the first request that was moved.
    /// Returns whether the request was moved.
    pub fn flow_turn(
        &mut self,
        at: FlowAt,
        wrs: &mut WrTable,
        turned: &mut Option<WrHandle>,
    ) -> bool {
        let queue = &mut self.flows[at.0].queue;
        let refused = |w: &Wqe| w.started && w.wr.op == Opcode::WriteImm;
        let may = |wi: &WrHandle| refused(wrs.get(*wi)) && *turned != Some(*wi);
        let Some(wi) = queue.front().filter(may) else { return false };
        turned.get_or_insert(wi);
        queue.pop_front(wrs);
        queue.push_back(wrs, wi);
        true
    }
    /// Removes the first request of a flow; an empty flow is removed.
    #[inline]
    pub fn flow_pop(&mut self, at: FlowAt, wrs: &mut WrTable) {
        self.flows[at.0].queue.pop_front(wrs);
        self.flow_end(at);
    }
    /// Like [`Self::flow_pop`], where the caller holds the first request.
    #[inline(always)]
    pub fn flow_pop_known(&mut self, at: FlowAt, w: &mut Wqe) {
        self.flows[at.0].queue.pop_known(w);
        self.flow_end(at);
    }
    /// Removes the flow if it is empty.
    #[inline(always)]
    fn flow_end(&mut self, at: FlowAt) {
        if self.flows[at.0].queue.is_empty() {
            self.flows.swap_remove(if planted!(FlowForgotten) { 0 } else { at.0 });
        }
    }
    /// Removes request `wi` of `qp` from its queue.
    pub fn remove(&mut self, qp: Qpn, wi: WrHandle, wrs: &mut WrTable) {
        let Some(at) = self.flows.iter().position(|f| f.qp == qp) else {
            self.datagrams.remove(wrs, wi);
            return;
        };
        self.flows[at].queue.remove(wrs, wi);
        if self.flows[at].queue.is_empty() {
            self.flows.swap_remove(at);
        }
    }

    // ---- datagrams -----------------------------------------------------------------------------

    /// The queue of unreliable datagrams.
    pub fn datagrams(&mut self) -> &mut WrQueue {
        &mut self.datagrams
    }
    /// The datagram that is to be sent next.
    #[inline(always)]
    pub fn datagram_next(&self) -> Option<WrHandle> {
        self.datagrams.front()
    }

    // ---- messages that the peer is to forget ---------------------------------------------------

    /// Queues a message that the peer must be told to forget.
    pub fn cancel_push(&mut self, msg_id: u32) {
        debug_assert!(self.cancels.len() < usize::from(u16::MAX), "each holds a credit");
        debug_assert!(!self.cancels.contains(&msg_id), "the peer is told once");
        self.cancels.push_back(msg_id);
    }
    /// Takes the next message that the peer is told to forget.
    #[inline(always)]
    pub fn cancel_pop(&mut self) -> Option<u32> {
        self.cancels.pop_front()
    }
    /// Number of messages that the peer must be told to forget.
    pub fn cancels_len(&self) -> usize {
        self.cancels.len()
    }

    // ---- ranges to be cut again ----------------------------------------------------------------

    /// Number of ranges to be cut again.
    #[inline(always)]
    pub fn recuts_len(&self) -> usize {
        self.recuts.len()
    }
    /// Queues a range that was recalled.
    pub fn recut_push(&mut self, r: Recut) {
        debug_assert!(self.recuts.len() < usize::from(WINDOW_MAX), "each is of an open PSN");
        self.recuts.push_back(r);
    }
    /// Queues the rest of a range in front, to be cut next.
    pub fn recut_push_front(&mut self, r: Recut) {
        debug_assert!(self.recuts.len() < usize::from(WINDOW_MAX), "each is of an open PSN");
        self.recuts.push_front(r);
    }
    /// Takes the next range.
    pub fn recut_pop(&mut self) -> Option<Recut> {
        self.recuts.pop_front()
    }
    /// Drops the ranges of request `wi`, which has ended.
    pub fn recuts_drop(&mut self, wi: WrHandle) {
        self.recuts.retain(|r| !r.is_of(wi));
    }
    /// Number of ranges of writes (`write`), or of reads being served.
    #[cfg(debug_assertions)]
    pub fn recuts_count(&self, write: bool) -> usize {
        self.recuts.iter().filter(|r| r.is_write() == write).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AhId, SendRequest};
    use crate::ids::Ctx;
    use crate::objects::wr::WrList;

    fn post(q: &mut SendQueues, t: &mut WrTable, qp: Qpn, op: Opcode) -> WrHandle {
        let wr = SendRequest {
            wr_id: 0,
            op,
            ah: AhId(0),
            dst_qpn: Qpn(0),
            qkey: 0,
            len: 10,
            rkey: 0,
            raddr: 0,
            imm: 0,
        };
        q.unsent_add(wr.len);
        t.post(wr, qp, Ctx(0), 0, q.flow(qp), &mut WrList::default())
    }

    #[test]
    fn flows_take_turns_of_a_burst_each_and_empty_ones_go() {
        let (mut q, mut t) = (SendQueues::default(), WrTable::new(8));
        let a = [(); 3].map(|()| post(&mut q, &mut t, Qpn(1), Opcode::Send));
        let b = [(); 2].map(|()| post(&mut q, &mut t, Qpn(2), Opcode::Send));
        let mut order = Vec::new();
        while q.flows_len() > 0 {
            let (at, wi) = q.flow_next();
            q.flow_pop(at, &mut t);
            q.unsent_take(10);
            q.flow_advance(2);
            order.push(wi);
        }
        assert_eq!(order, [a[0], a[1], b[0], b[1], a[2]]);
        assert!(q.is_empty() && q.unsent_bytes() == 0);
    }

    #[test]
    fn a_refused_write_with_immediate_lets_others_pass_once() {
        let (mut q, mut t) = (SendQueues::default(), WrTable::new(8));
        let refused = [(); 2].map(|()| post(&mut q, &mut t, Qpn(1), Opcode::WriteImm));
        refused.iter().for_each(|&wi| t.get_mut(wi).started = true);
        let mut turned = None;
        let (at, first) = q.flow_next();
        assert!(q.flow_turn(at, &mut t, &mut turned) && turned == Some(first));
        assert!(q.flow_turn(at, &mut t, &mut turned), "the other one");
        assert!(!q.flow_turn(at, &mut t, &mut turned), "all have had their turn");
        assert_eq!(q.flow_next().1, refused[0]);
        let fresh = post(&mut q, &mut t, Qpn(2), Opcode::WriteImm);
        q.flow_pass(at);
        let (other, wi) = q.flow_next();
        assert_eq!((wi, q.flow_turn(other, &mut t, &mut None)), (fresh, false), "it never left");
    }

    #[test]
    fn what_ends_leaves_its_queue_and_requests_alone_can_go() {
        let (mut q, mut t) = (SendQueues::default(), WrTable::new(8));
        let (a, b) = (
            post(&mut q, &mut t, Qpn(1), Opcode::Send),
            post(&mut q, &mut t, Qpn(2), Opcode::Send),
        );
        q.remove(Qpn(1), a, &mut t);
        assert_eq!((q.flows_len(), q.flow_next().1), (1, b));
        q.cancel_push(5);
        q.requests_clear();
        assert!(q.flows_len() == 0 && !q.is_empty() && q.unsent_bytes() == 0);
        assert_eq!((q.cancel_pop(), q.cancel_pop()), (Some(5), None));
    }
}
