//! The event queue: a wheel of time slots with an overflow heap, popping in exact `(time, order)`
//! order. A slot is a list of fixed chunks, sorted only when its turn comes; a push costs no
//! comparison and no allocation once the chunks are warm.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Slots of the wheel. With a slot of 8 ns it looks 134 µs ahead.
const SLOTS: usize = 1 << 14;
const MASK: u64 = SLOTS as u64 - 1;
/// Entries per chunk: with 8 bytes of event a chunk is 1 KiB, so that following the list is rare.
const CHUNK: usize = 42;
/// End of a list.
const NIL: u32 = u32::MAX;

/// One queued event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<E> {
    /// When, in the caller's unit.
    pub time: u64,
    /// Breaks ties of `time`; the caller keeps `(time, order)` unique.
    pub order: u64,
    /// What.
    pub event: E,
}

impl<E> Entry<E> {
    #[inline]
    const fn key(&self) -> u128 {
        (self.time as u128) << 64 | self.order as u128
    }
}

/// Orders entries by key alone.
#[derive(Clone, Copy, Debug)]
struct ByKey<E>(Entry<E>);

impl<E> PartialEq for ByKey<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}
impl<E> Eq for ByKey<E> {}
impl<E> PartialOrd for ByKey<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for ByKey<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.key().cmp(&other.0.key())
    }
}

#[derive(Clone, Debug)]
struct Chunk<E> {
    entries: [Entry<E>; CHUNK],
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    chunk: u32,
    len: u32,
}

/// A slot that holds nothing: its chunk is "full", so the next push takes one.
const EMPTY: Head = Head { chunk: NIL, len: CHUNK as u32 };

/// Priority queue of events in time.
#[derive(Clone, Debug)]
pub struct Wheel<E> {
    /// Log2 of a slot's width.
    shift: u32,
    /// Number of the slot whose entries are in `current`.
    slot: u64,
    /// Entries of the present slot, latest first.
    current: Vec<Entry<E>>,
    /// Entries pushed into the present slot (or before it) after it was sorted.
    late: BinaryHeap<Reverse<ByKey<E>>>,
    /// The chunk that fills and its length, per slot. All chunks behind it are full. Kept apart
    /// from the chunks so that a push only stores to them and never waits for a load.
    heads: Vec<Head>,
    /// One bit per slot that holds anything, and one per word of those.
    bits: Vec<u64>,
    summary: [u64; SLOTS / 64 / 64],
    chunks: Vec<Chunk<E>>,
    free: u32,
    /// Entries beyond the wheel's reach.
    far: BinaryHeap<Reverse<ByKey<E>>>,
    len: usize,
}

impl<E: Copy + Default> Wheel<E> {
    /// An empty queue with slots of `2^shift` time units; tens of entries per slot are best.
    pub fn new(shift: u32) -> Self {
        assert!(shift < 40, "a slot of 2^{shift} units leaves no slots: use a shift below 40");
        Self {
            shift,
            slot: 0,
            current: Vec::new(),
            late: BinaryHeap::new(),
            heads: vec![EMPTY; SLOTS],
            bits: vec![0; SLOTS / 64],
            summary: [0; SLOTS / 64 / 64],
            chunks: Vec::new(),
            free: NIL,
            far: BinaryHeap::new(),
            len: 0,
        }
    }

    /// Entries queued.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues an event. A time before the last popped one is popped next.
    #[inline]
    pub fn push(&mut self, time: u64, order: u64, event: E) {
        let entry = Entry { time, order, event };
        let slot = time >> self.shift;
        self.len += 1;
        if slot <= self.slot {
            self.late.push(Reverse(ByKey(entry)));
        } else if slot - self.slot < SLOTS as u64 {
            self.slot_push((slot & MASK) as usize, entry);
        } else {
            self.far.push(Reverse(ByKey(entry)));
        }
    }

    /// Takes the earliest entry if its time is at most `end`.
    #[inline]
    pub fn pop_until(&mut self, end: u64) -> Option<Entry<E>> {
        if self.current.is_empty() && self.late.is_empty() && !self.advance() {
            return None;
        }
        let from_late = match (self.current.last(), self.late.peek()) {
            (Some(c), Some(l)) => l.0.0.key() < c.key(),
            (None, Some(_)) => true,
            _ => false,
        };
        if from_late {
            if self.late.peek()?.0.0.time > end {
                return None;
            }
            self.len -= 1;
            return self.late.pop().map(|e| e.0.0);
        }
        if self.current.last()?.time > end {
            return None;
        }
        self.len -= 1;
        self.current.pop()
    }

    /// Time of the earliest entry.
    pub fn next_time(&mut self) -> Option<u64> {
        if self.current.is_empty() && self.late.is_empty() && !self.advance() {
            return None;
        }
        let late = self.late.peek().map(|e| e.0.0.time);
        let current = self.current.last().map(|e| e.time);
        match (current, late) {
            (Some(c), Some(l)) => Some(c.min(l)),
            (c, l) => c.or(l),
        }
    }

    /// Removes every entry for which `pred` holds and returns them in order. Costs a pass over the
    /// whole queue: for rare events such as a cable cut.
    pub fn extract(&mut self, mut pred: impl FnMut(&E) -> bool) -> Vec<Entry<E>> {
        let mut out = Vec::new();
        self.current.retain(|e| keep(e, &mut pred, &mut out));
        self.late.retain(|e| keep(&e.0.0, &mut pred, &mut out));
        self.far.retain(|e| keep(&e.0.0, &mut pred, &mut out));
        let mut kept = Vec::new();
        let mut next = self.bit_from(0);
        while let Some(slot) = next {
            self.slot_drain(slot, &mut kept);
            kept.retain(|e| keep(e, &mut pred, &mut out));
            kept.drain(..).for_each(|e| self.slot_push(slot, e));
            next = if slot + 1 < SLOTS { self.bit_from(slot + 1) } else { None };
        }
        self.len -= out.len();
        out.sort_unstable_by_key(Entry::key);
        out
    }

    #[inline]
    fn slot_push(&mut self, slot: usize, entry: Entry<E>) {
        let head = &mut self.heads[slot];
        if (head.len as usize) < CHUNK {
            self.chunks[head.chunk as usize].entries[head.len as usize] = entry;
            head.len += 1;
            return;
        }
        self.chunk_add(slot, entry);
    }

    /// Starts a chunk for a slot that has none or whose chunk is full.
    fn chunk_add(&mut self, slot: usize, entry: Entry<E>) {
        let next = self.heads[slot].chunk;
        if next == NIL {
            self.bits[slot / 64] |= 1 << (slot % 64);
            self.summary[slot / 4096] |= 1 << (slot / 64 % 64);
        }
        let mut at = self.free;
        if at == NIL {
            at = self.chunks.len() as u32;
            self.chunks.push(Chunk { entries: [Entry::default(); CHUNK], next });
        }
        let chunk = &mut self.chunks[at as usize];
        self.free = if self.free == NIL { NIL } else { chunk.next };
        chunk.entries[0] = entry;
        chunk.next = next;
        self.heads[slot] = Head { chunk: at, len: 1 };
    }

    /// Moves a slot's entries to the end of `out`, in no order.
    fn slot_drain(&mut self, slot: usize, out: &mut Vec<Entry<E>>) {
        let head = std::mem::replace(&mut self.heads[slot], EMPTY);
        let (mut at, mut len) = (head.chunk, head.len as usize);
        while at != NIL {
            let chunk = &mut self.chunks[at as usize];
            out.extend_from_slice(&chunk.entries[..len]);
            let next = std::mem::replace(&mut chunk.next, self.free);
            self.free = at;
            (at, len) = (next, CHUNK);
        }
        self.bits[slot / 64] &= !(1 << (slot % 64));
        if self.bits[slot / 64] == 0 {
            self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
    }

    /// The next entries to be popped, soonest last, unless something is pushed before them: for
    /// looking ahead. Empty when the present slot is used up.
    pub fn upcoming(&self) -> &[Entry<E>] {
        &self.current
    }

    /// Fills `current` from the next slot that holds anything. False if the queue is empty.
    #[cold]
    fn advance(&mut self) -> bool {
        let near = self.slot_next();
        let far = self.far.peek().map(|e| e.0.0.time >> self.shift);
        let slot = match (near, far) {
            (Some(n), Some(f)) => n.min(f),
            (Some(s), None) | (None, Some(s)) => s,
            (None, None) => return false,
        };
        self.slot = slot;
        let mut current = std::mem::take(&mut self.current);
        self.slot_drain((slot & MASK) as usize, &mut current);
        while let Some(e) = self.far.peek() {
            let entry = e.0.0;
            let at = entry.time >> self.shift;
            if at - slot >= SLOTS as u64 {
                break;
            }
            self.far.pop();
            if at == slot {
                current.push(entry);
            } else {
                self.slot_push((at & MASK) as usize, entry);
            }
        }
        current.sort_unstable_by_key(|e| Reverse(e.key()));
        self.current = current;
        true
    }

    /// Number of the next slot after the present one that holds anything.
    fn slot_next(&self) -> Option<u64> {
        let base = (self.slot & MASK) as usize;
        let start = (base + 1) % SLOTS;
        let at = self.bit_from(start).or_else(|| self.bit_from(0))?;
        let ahead = (at + SLOTS - base) % SLOTS;
        Some(self.slot + ahead as u64)
    }

    /// First set bit at or after `start`.
    fn bit_from(&self, start: usize) -> Option<usize> {
        let word = start / 64;
        let first = self.bits[word] & (!0 << (start % 64));
        if first != 0 {
            return Some(word * 64 + first.trailing_zeros() as usize);
        }
        let mut group = word / 64;
        let after = word % 64 + 1;
        let mut mask = if after == 64 { 0 } else { self.summary[group] & (!0 << after) };
        while mask == 0 {
            group += 1;
            mask = *self.summary.get(group)?;
        }
        let word = group * 64 + mask.trailing_zeros() as usize;
        Some(word * 64 + self.bits[word].trailing_zeros() as usize)
    }
}

/// Moves `e` to `out` if `pred` holds; true if it stays.
fn keep<E: Copy>(e: &Entry<E>, pred: &mut impl FnMut(&E) -> bool, out: &mut Vec<Entry<E>>) -> bool {
    let taken = pred(&e.event);
    if taken {
        out.push(*e);
    }
    !taken
}

#[cfg(test)]
mod tests;
