//! Deadlines of contexts, paths and requests in back-off: an indexed 4-ary heap with one entry per
//! owner.
//!
//! Retransmission timers move later with every acknowledgment. The timer of a context moves along
//! when its deadline is recalculated, once per poll, because firing in vain costs more than a sift.
//! An address only ever moves its timer earlier, and sets its real deadline when it fires.

use crate::api::WrHandle;
use crate::ids::{Ctx, Way};
use crate::memory::first;
use crate::time::Time;

const NONE: u32 = u32::MAX;

/// Owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerOf {
    /// A context.
    Context(Ctx),
    /// The paths to an address.
    Path(Way),
    /// The back-off of a request.
    Backoff(WrHandle),
}

impl TimerOf {
    /// Number of the owner in the heap.
    pub const fn number(self) -> u32 {
        match self {
            Self::Context(i) => 3 * i.0,
            Self::Path(i) => 3 * i.0 + 1,
            Self::Backoff(i) => 3 * i.0 + 2,
        }
    }

    /// The owner with this number.
    pub const fn owner(number: u32) -> Self {
        match number % 3 {
            0 => Self::Context(Ctx(number / 3)),
            1 => Self::Path(Way(number / 3)),
            _ => Self::Backoff(WrHandle(number / 3)),
        }
    }
}

/// The heap. Owners are small dense numbers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Time, u32)>,
    /// Position in the heap of each owner, or `NONE`.
    position: Vec<u32>,
}

impl Timers {
    /// Calls `see` with the memory that the next calls will need.
    #[inline]
    pub fn ahead(&self, see: &mut impl FnMut(*const u8, usize)) {
        first(see, &self.heap, 4);
        first(see, &self.position, 16);
    }

    /// Makes sure that the timer of `owner` fires at `at` or before. `Time::NEVER` changes nothing.
    pub fn arm(&mut self, owner: u32, at: Time) {
        if at == Time::NEVER {
            return;
        }
        if self.position.len() <= owner as usize {
            self.position.resize(owner as usize + 1, NONE);
        }
        match self.position[owner as usize] {
            NONE => {
                self.heap.push((at, owner));
                self.position[owner as usize] = self.heap.len() as u32 - 1;
                self.sift_up(self.heap.len() - 1);
            }
            pos => {
                debug_assert_eq!(self.heap[pos as usize].1, owner, "its place is its own");
                if at < self.heap[pos as usize].0 {
                    self.heap[pos as usize].0 = at;
                    self.sift_up(pos as usize);
                }
            }
        }
        debug_assert!(self.next() <= at || cfg!(planted_bugs), "it fires then or before");
    }

    /// Lets the timer of `owner` fire at `at`, and no longer at an earlier time.
    pub fn set(&mut self, owner: u32, at: Time) {
        match self.position.get(owner as usize) {
            Some(&pos) if pos != NONE && at != Time::NEVER && self.heap[pos as usize].0 < at => {
                debug_assert_eq!(self.heap[pos as usize].1, owner, "its place is its own");
                self.heap[pos as usize].0 = at;
                self.sift_down(pos as usize);
            }
            _ if at == Time::NEVER => self.disarm(owner),
            _ => self.arm(owner, at),
        }
    }

    /// Removes the timer of `owner`.
    pub fn disarm(&mut self, owner: u32) {
        let Some(&pos) = self.position.get(owner as usize) else { return };
        if pos != NONE {
            self.remove(pos as usize);
        }
        debug_assert_eq!(self.position[owner as usize], NONE, "it is in no place");
    }

    /// The earliest deadline.
    pub fn next(&self) -> Time {
        self.heap.first().map_or(Time::NEVER, |e| e.0)
    }

    /// Takes an owner whose deadline is `now` or earlier.
    pub fn pop(&mut self, now: Time) -> Option<u32> {
        let &(at, owner) = self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove(0);
        debug_assert!(self.next() >= at || cfg!(planted_bugs), "the earliest first");
        debug_assert_eq!(self.position[owner as usize], NONE, "who has fired is in no place");
        Some(owner)
    }

    fn remove(&mut self, pos: usize) {
        let (_, owner) = self.heap.swap_remove(pos);
        debug_assert_eq!(self.position[owner as usize] as usize, pos, "its place is its own");
        self.position[owner as usize] = NONE;
        if pos < self.heap.len() {
            self.position[self.heap[pos].1 as usize] = pos as u32;
            if !planted!(TimerDisorder) {
                self.sift_down(pos);
            }
            self.sift_up(pos);
        }
    }

    fn sift_up(&mut self, mut i: usize) {
        while i > 0 {
            let parent = (i - 1) / 4;
            if self.heap[parent] <= self.heap[i] {
                break;
            }
            self.swap(i, parent);
            i = parent;
        }
    }

    fn sift_down(&mut self, mut i: usize) {
        loop {
            let first = 4 * i + 1;
            let last = (first + 4).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&c| self.heap[c]) else { return };
            debug_assert_eq!(
                self.position[self.heap[least].1 as usize] as usize, least,
                "its place is its own"
            );
            if self.heap[i] <= self.heap[least] {
                return;
            }
            self.swap(i, least);
            i = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        debug_assert!(a != b, "two places");
        self.heap.swap(a, b);
        self.position[self.heap[a].1 as usize] = a as u32;
        self.position[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn fires_in_order_and_keeps_the_earlier_deadline() {
        let mut t = Timers::default();
        t.arm(3, Time(30));
        t.arm(1, Time(10));
        t.arm(3, Time(50));
        t.arm(2, Time(20));
        t.arm(2, Time(5));
        t.set(4, Time(1));
        t.set(4, Time(40));
        assert_eq!(t.next(), Time(5));
        assert_eq!(t.pop(Time(4)), None);
        assert_eq!(t.pop(Time(100)), Some(2));
        t.disarm(1);
        assert_eq!(t.pop(Time(100)), Some(3));
        assert_eq!((t.pop(Time(39)), t.pop(Time(40))), (None, Some(4)));
        assert_eq!(t.next(), Time::NEVER);
    }

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut rng = Rng::from_seed(7);
        let mut t = Timers::default();
        let mut model = [Time::NEVER; 64];
        for step in 0..20_000 {
            let owner = rng.below(64);
            match rng.below(4) {
                3 => {
                    let at = Time(u64::from(rng.below(1000)));
                    let at = if at.0 < 900 { at } else { Time::NEVER };
                    t.set(owner, at);
                    model[owner as usize] = at;
                }
                0 => {
                    t.disarm(owner);
                    model[owner as usize] = Time::NEVER;
                }
                1 => {
                    let now = Time(u64::from(rng.below(1000)));
                    let least = *model.iter().min().unwrap();
                    match t.pop(now) {
                        Some(o) => {
                            assert_eq!(model[o as usize], least, "step {step}");
                            model[o as usize] = Time::NEVER;
                        }
                        None => assert!(least > now),
                    }
                }
                _ => {
                    let at = Time(u64::from(rng.below(1000)));
                    t.arm(owner, at);
                    model[owner as usize] = model[owner as usize].min(at);
                }
            }
            assert_eq!(t.next(), *model.iter().min().unwrap());
        }
    }
}
