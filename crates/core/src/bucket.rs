//! A token bucket: a number of tokens at once, then one more after each interval.

use crate::time::{Span, Time};

/// A bucket of tokens; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    left: u32,
    most: u32,
    every: Span,
    /// Time up to which new tokens have been added.
    counted_to: Time,
}

impl Bucket {
    /// A full bucket of `most` tokens, which gains one token each `every`.
    pub fn new(now: Time, most: u32, every: Span) -> Self {
        debug_assert!(most > 0 && every.0 > 0, "one token at least, and not all at once");
        Self { left: most, most, every, counted_to: now }
    }

    /// Whether no token is left now.
    pub fn is_empty(&mut self, now: Time) -> bool {
        debug_assert!(self.left <= self.most, "no more than it holds: {self:?}");
        let more = now.since(self.counted_to).0 / self.every.0;
        self.counted_to += self.every.scale(more, 1);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(self.most);
        self.left == 0
    }

    /// Takes a token, if one is left.
    pub fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_with_time() {
        const MOST: u32 = 1024;
        const EVERY: Span = Span::from_ms(8);
        let mut b = Bucket::new(Time(5), MOST, EVERY);
        (0..MOST).for_each(|_| b.take());
        assert!(b.is_empty(Time(5)));
        assert!(!b.is_empty(Time(5) + EVERY));
        b.take();
        assert!(b.is_empty(Time(4) + EVERY.scale(2, 1)));
        assert!(!b.is_empty(Time(5) + EVERY.scale(2, 1)));
        assert!(!b.is_empty(Time(5) + Span::from_secs(1_000_000)));
        (0..MOST).for_each(|_| b.take());
        assert!(b.is_empty(Time(5) + Span::from_secs(1_000_000)), "no more than the most");
    }
}
