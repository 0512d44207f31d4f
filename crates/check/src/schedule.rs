//! Events of a world in the order of their times, for worlds with a network of their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events by time; those of one time in the order in which they were scheduled.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    slots: Vec<Option<E>>,
    free: Vec<usize>,
    order: u64,
}

impl<E> Schedule<E> {
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), order: 0 }
    }

    /// Schedules an event.
    pub fn at(&mut self, at: u64, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.order += 1;
        self.heap.push(Reverse((at, self.order, slot)));
    }

    /// The next event, if it is no later than `end`.
    pub fn next(&mut self, end: u64) -> Option<(u64, E)> {
        let &Reverse((at, _, slot)) = self.heap.peek()?;
        if at > end {
            return None;
        }
        self.heap.pop();
        self.free.push(slot);
        Some((at, self.slots[slot].take()?))
    }
}
