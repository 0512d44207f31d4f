//! A queue of plain values in one allocation, which grows by doubling.
//!
//! It works like a `VecDeque`, but writes a value directly to its place: completions are too large
//! to be copied twice.

/// The queue; see the module. The length of `slots` is 0 or a power of two.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    slots: Vec<T>,
    /// Position of the oldest value, counted without wrapping to the length.
    head: usize,
    len: usize,
}

impl<T: Copy> Ring<T> {
    /// An empty queue, without an allocation.
    pub fn new() -> Self {
        Self { slots: Vec::new(), head: 0, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn place(&self, k: usize) -> usize {
        debug_assert!(self.slots.len().is_power_of_two(), "places are lower bits of counts");
        k & self.slots.len().wrapping_sub(1)
    }

    /// Appends a value; `room`: capacity of the first allocation.
    #[inline(always)]
    pub fn push(&mut self, value: T, room: usize) {
        if self.len == self.slots.len() {
            self.grow(value, room);
        }
        let at = self.place(self.head.wrapping_add(self.len));
        self.slots[at] = value;
        self.len += 1;
    }

    /// Doubles the capacity; `filler` is the content of the new places until they are used.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, filler: T, room: usize) {
        let mut slots = Vec::with_capacity((2 * self.slots.len()).max(room.next_power_of_two()));
        slots.extend(self.iter().copied());
        slots.resize(slots.capacity(), filler);
        slots.truncate(1 << slots.len().ilog2());
        (self.slots, self.head) = (slots, 0);
        debug_assert!(self.len < self.slots.len(), "room for one more at least");
    }

    /// Takes the oldest value, which stays in its place until the next push.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        let at = self.place(self.head);
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some(&self.slots[at])
    }

    /// All values, the oldest first.
    fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).map(|k| &self.slots[self.place(self.head.wrapping_add(k))])
    }

    /// Keeps the values for which `keep` is true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let kept: Vec<T> = self.iter().copied().filter(|v| keep(v)).collect();
        (self.head, self.len) = (0, kept.len());
        debug_assert!(self.len <= self.slots.len(), "those that are kept were there");
        self.slots[..kept.len()].copy_from_slice(&kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    #[test]
    fn agrees_with_a_plain_queue() {
        for seed in 0..20 {
            let mut rng = Rng::from_seed(seed);
            let (mut ring, mut plain) = (Ring::new(), VecDeque::new());
            for step in 0..2000 {
                match rng.below(20) {
                    0 => {
                        ring.retain(|v| v % 3 > 0);
                        plain.retain(|v| v % 3 > 0);
                    }
                    1..=11 => {
                        ring.push(step, 3);
                        plain.push_back(step);
                    }
                    _ => assert_eq!(
                        ring.pop().copied(),
                        plain.pop_front(),
                        "seed {seed}, step {step}"
                    ),
                }
                assert_eq!(ring.len(), plain.len(), "seed {seed}, step {step}");
            }
        }
    }
}
