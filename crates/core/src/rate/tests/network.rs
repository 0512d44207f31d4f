//! Parts of both models of a network: events in the order of their times, and lines.

use crate::time::{Span, Time};
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come. Those of one time happen in the order in which they were added.
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<(Time, u64, E)>>,
    added: u64,
}

impl<E: Ord> Events<E> {
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }
    pub fn add(&mut self, time: Time, event: E) {
        self.added += 1;
        self.heap.push(Reverse((time, self.added, event)));
    }
    /// Removes and returns the next event, if it happens at `end` at the latest.
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        let Reverse((time, ..)) = self.heap.peek()?;
        if *time > end {
            return None;
        }
        self.heap.pop().map(|Reverse((time, _, event))| (time, event))
    }
}

/// A line that sends one packet after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    rate: u64,
    free_at: Time,
}

impl Line {
    /// An idle line of `rate` bytes per second.
    pub fn new(rate: u64) -> Self {
        Self { rate, free_at: Time(0) }
    }
    pub fn rate(&self) -> u64 {
        self.rate
    }
    /// How long `bytes` take.
    pub fn time_of(&self, bytes: u32) -> Span {
        Span(u64::from(bytes) * 1_000_000_000 / self.rate)
    }
    /// How long a packet that arrives at `now` waits for those before it.
    pub fn wait(&self, now: Time) -> Span {
        self.free_at.since(now)
    }
    /// When `bytes` that arrive at `now` have left.
    pub fn send(&mut self, now: Time, bytes: u32) -> Time {
        self.free_at = self.free_at.max(now) + self.time_of(bytes);
        self.free_at
    }
}
