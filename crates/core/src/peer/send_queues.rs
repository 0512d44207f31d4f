//! What waits for a PSN on its way to one peer, reads that are served apart: requests by queue
//! pair, datagrams, messages to forget, ranges to be cut anew.

use crate::api::{Opcode, Qpn, WrHandle};
use crate::limits::{QPS_MAX, WINDOW_MAX};
use crate::objects::wr::{Wqe, WrQueue, WrTable};
use crate::peer::recut::Recut;
use std::collections::VecDeque;

/// Requests of one queue pair to one peer. It has one at least.
#[derive(Debug)]
struct Flow {
    qp: Qpn,
    queue: WrQueue,
}

/// Place of a flow among those of a peer, good until one of them ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowAt(usize);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SendQueues {
    flows: Vec<Flow>,
    /// Whose turn it is, modulo their number.
    cursor: usize,
    /// Packets cut from the flow whose turn it is.
    turn: u16,
    /// Unreliable datagrams.
    datagrams: WrQueue,
    /// Messages the peer must be told to forget.
    cancels: VecDeque<u32>,
    /// Ranges that were taken back because their packets had become too large. Each is one of the
    /// open packets of its request or read.
    recuts: VecDeque<Recut>,
    /// Bytes of requests that have no PSN yet. A read counts all that it asks for.
    unsent_bytes: u64,
}

impl SendQueues {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.flows.capacity() * size_of::<Flow>()
            + self.cancels.capacity() * size_of::<u32>()
            + self.recuts.capacity() * size_of::<Recut>()
    }
    /// The most that it may hold, of so many queue pairs, requests and open PSNs.
    pub fn held_bytes_max(qps: usize, requests: usize, window: usize) -> usize {
        // Lists grow by doubling.
        2 * (qps * size_of::<Flow>() + requests * size_of::<u32>() + window * size_of::<Recut>())
    }

    /// Forgets all. Whose turn it is stays as it is.
    pub fn clear(&mut self) {
        self.requests_clear();
        self.cancels.clear();
        self.recuts.clear();
    }
    /// All requests have ended: their queues, and what was taken back of them.
    pub fn requests_clear(&mut self) {
        self.flows.clear();
        self.datagrams = WrQueue::default();
        self.unsent_bytes = 0;
        self.recuts.retain(|r| !r.is_write());
    }
    /// The peer has forgotten all that it was sent: nothing of that is taken back, or need be
    /// forgotten.
    pub fn sent_forget(&mut self) {
        self.recuts.clear();
        self.cancels.clear();
    }

    /// Whether nothing waits, not even a range to be cut anew.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
            && self.datagrams.is_empty()
            && self.cancels.is_empty()
            && self.recuts.is_empty()
    }
    /// Bytes of requests that have no PSN yet.
    #[inline(always)]
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }
    /// Bytes of a request, which joins or has joined a queue, have no PSN.
    #[inline(always)]
    pub fn unsent_add(&mut self, bytes: u32) {
        self.unsent_bytes += u64::from(bytes);
    }
    /// They have one now, or are given up.
    #[inline(always)]
    pub fn unsent_take(&mut self, bytes: u32) {
        debug_assert!(self.unsent_bytes >= u64::from(bytes), "bytes are sent once");
        self.unsent_bytes -= u64::from(bytes);
    }

    // ---- flows ---------------------------------------------------------------------------------

    /// The queue that requests of `qp` wait in, made if there is none. The caller puts one there.
    #[inline(always)]
    pub fn flow(&mut self, qp: Qpn) -> &mut WrQueue {
        let at = self.flows.iter().position(|f| f.qp == qp).unwrap_or_else(|| {
            self.flows.push(Flow { qp, queue: WrQueue::default() });
            self.flows.len() - 1
        });
        debug_assert!(self.flows.len() <= QPS_MAX, "one for each queue pair");
        &mut self.flows[at].queue
    }
    /// Flows.
    #[inline(always)]
    pub fn flows_len(&self) -> usize {
        self.flows.len()
    }
    /// The flow whose turn it is, and its first request. There is one at least.
    #[inline(always)]
    pub fn flow_next(&self) -> (FlowAt, WrHandle) {
        debug_assert!(!self.flows.is_empty(), "somebody has a turn");
        let at = self.cursor % self.flows.len();
        let first = self.flows[at].queue.front();
        (FlowAt(at), first.expect("an empty flow is removed at once"))
    }
    /// The flow after it has its turn.
    pub fn flow_pass(&mut self, at: FlowAt) {
        debug_assert!(at.0 < self.flows.len(), "a flow of this peer");
        self.cursor = at.0 + 1;
    }
    /// A packet was cut from the flow whose turn it is; after `burst` of them it is the next one's.
    #[inline(always)]
    pub fn flow_advance(&mut self, burst: u16) {
        debug_assert!(burst > 0, "a turn is a packet at least");
        debug_assert!(self.turn < burst, "a turn ends in time");
        self.turn += 1;
        // A burst of one path stays with one flow where it can: equal sizes make one GSO send.
        if self.turn >= burst {
            self.turn = 0;
            self.cursor = self.cursor.wrapping_add(1);
        }
    }
    /// Puts the first request of a flow, a write with immediate that was refused before, behind the
    /// others of it, unless all have had their turn. `turned`: the first that was put there.
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
    /// Takes the first request out of a flow; an empty flow goes.
    #[inline]
    pub fn flow_pop(&mut self, at: FlowAt, wrs: &mut WrTable) {
        self.flows[at.0].queue.pop_front(wrs);
        self.flow_end(at);
    }
    /// The same where the first request is at hand.
    #[inline(always)]
    pub fn flow_pop_known(&mut self, at: FlowAt, w: &mut Wqe) {
        self.flows[at.0].queue.pop_known(w);
        self.flow_end(at);
    }
    /// The flow goes if it is empty.
    #[inline(always)]
    fn flow_end(&mut self, at: FlowAt) {
        if self.flows[at.0].queue.is_empty() {
            self.flows.swap_remove(if planted!(FlowForgotten) { 0 } else { at.0 });
        }
    }
    /// Takes request `wi` of `qp` out of its queue.
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
    /// The datagram that would leave next.
    #[inline(always)]
    pub fn datagram_next(&self) -> Option<WrHandle> {
        self.datagrams.front()
    }

    // ---- messages to forget --------------------------------------------------------------------

    /// The peer must be told to forget a message.
    pub fn cancel_push(&mut self, msg_id: u32) {
        debug_assert!(self.cancels.len() < usize::from(u16::MAX), "each holds a credit");
        debug_assert!(!self.cancels.contains(&msg_id), "the peer is told once");
        self.cancels.push_back(msg_id);
    }
    /// The next message of which it is told.
    #[inline(always)]
    pub fn cancel_pop(&mut self) -> Option<u32> {
        self.cancels.pop_front()
    }
    /// Messages that it must be told to forget.
    pub fn cancels_len(&self) -> usize {
        self.cancels.len()
    }

    // ---- ranges to be cut anew -----------------------------------------------------------------

    /// Ranges to be cut anew.
    #[inline(always)]
    pub fn recuts_len(&self) -> usize {
        self.recuts.len()
    }
    /// A range was taken back.
    pub fn recut_push(&mut self, r: Recut) {
        debug_assert!(self.recuts.len() < usize::from(WINDOW_MAX), "each is of an open PSN");
        self.recuts.push_back(r);
    }
    /// What remains of a range is cut next.
    pub fn recut_push_front(&mut self, r: Recut) {
        debug_assert!(self.recuts.len() < usize::from(WINDOW_MAX), "each is of an open PSN");
        self.recuts.push_front(r);
    }
    /// The next range.
    pub fn recut_pop(&mut self) -> Option<Recut> {
        self.recuts.pop_front()
    }
    /// Request `wi` has ended: its ranges are no more.
    pub fn recuts_drop(&mut self, wi: WrHandle) {
        self.recuts.retain(|r| !r.is_of(wi));
    }
    /// Ranges of writes, and of reads that are served.
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
