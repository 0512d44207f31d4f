//! Verdicts other than OK, kept until the sender's lower edge has passed them.

use crate::psn;
use srd_wire::{Verdict, VerdictEntry};
use std::collections::VecDeque;

/// In PSN order. Bounded by the receive window: one entry per PSN above the peer's `una`.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(VecDeque<VerdictEntry>);

impl Verdicts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn insert(&mut self, p: u32, verdict: Verdict) {
        let at = self.0.partition_point(|e| psn::before(e.psn, p));
        self.0.insert(at, VerdictEntry { psn: p, verdict });
    }

    /// The sender has resolved everything below `una`.
    pub fn retire(&mut self, una: u32) {
        while self
            .0
            .front()
            .is_some_and(|e| psn::before(e.psn, una) || planted!(VerdictRetiredEarly))
        {
            self.0.pop_front();
        }
    }

    /// In PSN order.
    pub fn iter(&self) -> impl Iterator<Item = &VerdictEntry> {
        self.0.iter()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_and_retired_across_the_wrap() {
        let mut v = Verdicts::default();
        for p in [2, u32::MAX, 0] {
            v.insert(p, Verdict::Rnr);
        }
        assert_eq!(v.iter().map(|e| e.psn).collect::<Vec<_>>(), [u32::MAX, 0, 2]);
        v.retire(1);
        assert_eq!(v.iter().map(|e| e.psn).collect::<Vec<_>>(), [2]);
    }
}
