//! Completion queues. A slot is reserved when work is posted, so a completion always finds room.

use crate::api::{Completion, CompletionKind, CqId, Qpn, WrHandle};
use crate::memory::first;
use crate::ring::Ring;

/// Completions for which a queue allocates room at its first completion; the room grows with use.
/// Allocating the full depth would exceed the memory of a process with thousands of engines.
const READY_FIRST: usize = 64;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    depth: u32,
    /// Slots reserved for posted work, or holding a completion that the user has not released.
    reserved: u32,
    ready: Ring<Completion>,
}

impl Cq {
    /// Reserves one slot; false if the queue has none left.
    #[must_use]
    pub fn reserve(&mut self) -> bool {
        if self.reserved == self.depth {
            return false;
        }
        self.reserved += 1;
        debug_assert!(self.ready.len() as u32 <= self.reserved, "each has its slot");
        true
    }
    /// Whether a slot could be reserved.
    pub fn has_room(&self) -> bool {
        debug_assert!(self.reserved <= self.depth, "no more is promised than there is");
        self.reserved < self.depth
    }
    /// Releases `n` reserved slots: of work that ends without completion, or of completions that
    /// the user has polled.
    pub fn release(&mut self, n: u32) {
        debug_assert!(n <= self.reserved, "released more than was reserved");
        self.reserved = self.reserved.saturating_sub(n);
    }
    /// Adds a completion, for which a slot was reserved.
    #[inline(always)]
    pub fn push(&mut self, c: Completion) {
        debug_assert!((self.ready.len() as u32) < self.reserved, "completion without reservation");
        self.ready.push(c, READY_FIRST.min(self.depth as usize));
    }
    #[inline(always)]
    pub fn pop(&mut self) -> Option<&Completion> {
        debug_assert!(self.ready.len() as u32 <= self.reserved, "its slot stays promised");
        self.ready.pop()
    }
    /// Whether a completion waits to be polled.
    #[inline(always)]
    pub fn waits(&self) -> bool {
        self.ready.len() > 0
    }
    /// Removes the completions of a destroyed queue pair and releases their slots. Returns the send
    /// requests that these completed.
    pub fn purge(&mut self, qpn: Qpn) -> Vec<WrHandle> {
        let before = self.ready.len();
        let mut sends = Vec::new();
        self.ready.retain(|c| {
            if c.qpn == qpn
                && let CompletionKind::Send(h, _) = c.kind
            {
                sends.push(h);
            }
            c.qpn != qpn || planted!(PurgeForgotten)
        });
        self.release((before - self.ready.len()) as u32);
        debug_assert!(self.ready.len() as u32 <= self.reserved, "each has its slot");
        sends
    }
    /// Number of slots reserved or filled.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }
}

/// The table of completion queues.
#[derive(Debug, Default)]
pub(crate) struct CqTable(Vec<Option<Cq>>);

impl CqTable {
    /// Calls `see` with the memory that the next calls will need.
    #[inline]
    pub fn ahead(&self, see: &mut impl FnMut(*const u8, usize)) {
        first(see, &self.0, 1);
    }

    pub fn create(&mut self, depth: u32) -> Option<CqId> {
        debug_assert!(depth > 0, "depths were checked");
        let cq = Cq { depth, reserved: 0, ready: Ring::new() };
        if let Some(i) = self.0.iter().position(Option::is_none) {
            self.0[i] = Some(cq);
            return Some(CqId(i as u16));
        }
        if self.0.len() >= usize::from(u16::MAX) {
            return None;
        }
        self.0.push(Some(cq));
        Some(CqId(self.0.len() as u16 - 1))
    }
    pub fn destroy(&mut self, id: CqId) {
        debug_assert!(self.get(id).is_some(), "it is destroyed once");
        self.0[usize::from(id.0)] = None;
    }
    #[inline(always)]
    pub fn get(&self, id: CqId) -> Option<&Cq> {
        self.0.get(usize::from(id.0))?.as_ref()
    }
    #[inline(always)]
    pub fn get_mut(&mut self, id: CqId) -> Option<&mut Cq> {
        self.0.get_mut(usize::from(id.0))?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AhId, Opcode, Status};

    fn completion(qpn: u16, h: u32) -> Completion {
        Completion {
            wr_id: 0,
            status: Status::Ok,
            kind: CompletionKind::Send(WrHandle(h), Opcode::Send),
            qpn: Qpn(qpn),
            byte_len: 0,
            imm: None,
            src_qpn: Qpn(0),
            src_ah: AhId::UNKNOWN,
            src_ip: None,
        }
    }

    #[test]
    fn a_slot_is_promised_until_its_completion_is_given_back() {
        let mut t = CqTable::default();
        let id = t.create(2).unwrap();
        let cq = t.get_mut(id).unwrap();
        assert!(cq.reserve() && cq.reserve() && !cq.reserve() && !cq.has_room());
        cq.push(completion(1, 5));
        assert_eq!(cq.pop().map(|c| c.qpn), Some(Qpn(1)));
        assert!(!cq.has_room(), "polled, and not given back");
        cq.release(1);
        assert!(cq.has_room() && cq.reserved() == 1);
    }

    #[test]
    fn what_a_queue_pair_left_is_removed_with_its_promises() {
        let mut t = CqTable::default();
        let id = t.create(4).unwrap();
        let cq = t.get_mut(id).unwrap();
        for (qpn, h) in [(1, 5), (2, 6), (1, 7)] {
            assert!(cq.reserve());
            cq.push(completion(qpn, h));
        }
        assert_eq!(cq.purge(Qpn(1)), [WrHandle(5), WrHandle(7)]);
        assert_eq!((cq.reserved(), cq.pop().map(|c| c.qpn), cq.pop()), (1, Some(Qpn(2)), None));
        t.destroy(id);
        assert!(t.get(id).is_none() && t.create(1) == Some(id), "its number is free");
    }
}
