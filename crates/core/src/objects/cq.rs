//! Completion queues. A slot is promised when work is posted, so a completion always finds room.

use crate::api::{Completion, CompletionKind, CqId, Qpn, WrHandle};
use std::collections::VecDeque;

/// Completions for which a queue has room from the start; it grows with use. Thousands of engines
/// in one process would not fit its memory with all that was asked for.
const READY_FIRST: u32 = 64;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    depth: u32,
    /// Slots promised to posted work, or holding a completion that the user has not given back.
    reserved: u32,
    ready: VecDeque<Completion>,
}

impl Cq {
    /// Promises one slot.
    #[must_use]
    pub fn reserve(&mut self) -> bool {
        if self.reserved == self.depth {
            return false;
        }
        self.reserved += 1;
        true
    }
    /// Whether a slot could be promised.
    pub fn has_room(&self) -> bool {
        self.reserved < self.depth
    }
    /// Takes promises back: work that ends without completion, or completions the user has polled.
    pub fn release(&mut self, n: u32) {
        debug_assert!(n <= self.reserved, "released more than was reserved");
        self.reserved = self.reserved.saturating_sub(n);
    }
    /// Fills a promised slot.
    pub fn push(&mut self, c: Completion) {
        debug_assert!((self.ready.len() as u32) < self.reserved, "completion without reservation");
        self.ready.push_back(c);
    }
    pub fn pop(&mut self) -> Option<Completion> {
        self.ready.pop_front()
    }
    /// Removes what a destroyed queue pair left, and the promises with it. Returns the send
    /// requests whose completions these were.
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
        sends
    }
    /// Slots promised or filled.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }
}

/// The table of completion queues.
#[derive(Debug, Default)]
pub(crate) struct CqTable(Vec<Option<Cq>>);

impl CqTable {
    pub fn create(&mut self, depth: u32) -> Option<CqId> {
        let cq = Cq {
            depth,
            reserved: 0,
            ready: VecDeque::with_capacity(depth.min(READY_FIRST) as usize),
        };
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
        self.0[usize::from(id.0)] = None;
    }
    pub fn get(&self, id: CqId) -> Option<&Cq> {
        self.0.get(usize::from(id.0))?.as_ref()
    }
    pub fn get_mut(&mut self, id: CqId) -> Option<&mut Cq> {
        self.0.get_mut(usize::from(id.0))?.as_mut()
    }
}
