//! The event queue: a wheel of time slots with an overflow heap, which pops in exact `(time,
//! order)` order. A slot is a list of fixed chunks, sorted only when its turn comes; a push costs
//! no comparison, and no allocation once the chunks exist.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Slots of the wheel. Slots of 8 ns cover 134 µs.
const SLOTS: usize = 1 << 14;
const MASK: u64 = SLOTS as u64 - 1;
/// Entries per chunk: with events of 24 bytes a chunk is 1 KiB, so list links are rarely followed.
const CHUNK: usize = 25;
/// End of a list.
const NIL: u32 = u32::MAX;

/// One queued event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<E> {
    /// Time, in the caller's unit.
    pub time: u64,
    /// Breaks ties of `time`; the caller keeps `(time, order)` unique.
    pub order: u64,
    /// Content.
    pub event: E,
}

impl<E> Entry<E> {
    #[inline]
    const fn key(&self) -> u128 {
        (self.time as u128) << 64 | self.order as u128
    }
}

/// Orders entries by `(time, order)` alone.
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

/// An empty slot: its absent chunk counts as full, so the next push takes one.
const EMPTY: Head = Head { chunk: NIL, len: CHUNK as u32 };

/// Position of an entry of the open span in the order of popping; sorting moves ranks, not entries.
#[derive(Clone, Copy, Debug)]
struct Rank {
    /// Time within the slot, and the upper bits of the order.
    key: u64,
    /// Index in `current`.
    at: u32,
}

/// Entries of the present slot that are popped together: those of one group, or all of them.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Number of the group plus 1; 0 where the slot is popped in the order of time alone.
    group: u32,
    /// Its part of `current`.
    start: u32,
    end: u32,
}

impl Span {
    const fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Settings for popping a window (a slot) group by group: see [`Wheel::windows`].
#[derive(Clone, Debug)]
struct Windows<E> {
    group: fn(&E) -> Option<u32>,
    /// For each group the number of its entries, then the place of its next entry in `current`.
    places: Vec<u32>,
}

/// Priority queue of events in time.
#[derive(Clone, Debug)]
pub struct Wheel<E> {
    /// Log2 of a slot's width.
    shift: u32,
    /// Number of the slot whose entries are in `current`.
    slot: u64,
    /// Entries of the present slot, span by span, those already popped included. Entries beyond the
    /// last span are of earlier slots.
    current: Vec<Entry<E>>,
    /// Spans of the present slot in the order of popping, and the number of those opened.
    spans: Vec<Span>,
    spans_opened: usize,
    /// Ranks of the open span's entries that are still queued, latest first.
    ranks: Vec<Rank>,
    /// The span that was opened last.
    open: Span,
    /// Whether [`Wheel::opened`] has yet to tell of it.
    open_new: bool,
    windows: Option<Windows<E>>,
    /// Entries pushed into the present slot (or before it) after it was sorted.
    late: BinaryHeap<Reverse<ByKey<E>>>,
    /// The chunk being filled and its length, per slot; all chunks behind it are full. Separate
    /// from the chunks, so that a push only stores to them and never waits for a load.
    heads: Vec<Head>,
    /// One bit per non-empty slot, and one bit per non-zero word of those.
    bits: Vec<u64>,
    summary: [u64; SLOTS / 64 / 64],
    chunks: Vec<Chunk<E>>,
    free: u32,
    /// Entries beyond the range of the wheel.
    far: BinaryHeap<Reverse<ByKey<E>>>,
    len: usize,
}

impl<E: Copy + Default> Wheel<E> {
    /// An empty queue with slots of `2^shift` time units; some hundred entries per slot are best.
    pub fn new(shift: u32) -> Self {
        assert!(shift < 40, "a slot of 2^{shift} units leaves no slots: use a shift below 40");
        Self {
            shift,
            slot: 0,
            current: Vec::new(),
            spans: Vec::new(),
            spans_opened: 0,
            ranks: Vec::new(),
            open: Span { group: 0, start: 0, end: 0 },
            open_new: false,
            windows: None,
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

    /// From now on, a slot that lies entirely before `end` is popped group by group: all entries of
    /// one of `groups` groups in the order of time, then those of the next. Requires that groups do
    /// not affect each other within the width of a slot: the handling of an entry may push only
    /// entries of its own group into the present slot. A slot with an entry for which `group`
    /// returns `None` is popped in the order of time alone.
    pub fn windows(&mut self, groups: u32, group: fn(&E) -> Option<u32>) {
        self.windows = Some(Windows { group, places: vec![0; groups as usize] });
    }

    /// Whether a slot is being popped group by group.
    #[inline]
    pub fn in_window(&self) -> bool {
        let left = !self.ranks.is_empty() || !self.late.is_empty();
        self.open.group != 0 && (left || self.spans_opened < self.spans.len())
    }

    /// True once for each group: its first entry was popped, see [`Wheel::group_present`].
    #[inline]
    pub const fn opened(&mut self) -> bool {
        std::mem::replace(&mut self.open_new, false)
    }

    /// All entries of the group being popped that were queued when its turn came, in no order.
    pub fn group_present(&self) -> &[Entry<E>] {
        &self.current[self.open.range()]
    }

    /// The entries of the group that is popped `ahead` groups after the present one, in no order;
    /// none if there is none in this window.
    pub fn group_coming(&self, ahead: usize) -> &[Entry<E>] {
        let span = self.spans.get(self.spans_opened + ahead - 1);
        span.map_or(&[], |s| &self.current[s.range()])
    }

    /// Number of queued entries.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues an event. If its time lies before the last popped one, it is popped next.
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

    /// Pops the earliest entry if its time is at most `end`.
    #[inline]
    pub fn pop_until(&mut self, end: u64) -> Option<Entry<E>> {
        if self.ranks.is_empty() && self.late.is_empty() && !self.span_next(end) {
            return None;
        }
        if !self.late.is_empty() {
            return self.pop_with_late(end);
        }
        let entry = self.current[self.ranks.last()?.at as usize];
        if entry.time > end {
            return None;
        }
        self.len -= 1;
        self.ranks.pop();
        Some(entry)
    }

    /// Like [`Wheel::pop_until`], when entries were pushed late.
    #[inline(never)]
    fn pop_with_late(&mut self, end: u64) -> Option<Entry<E>> {
        let late = self.late.peek()?.0.0;
        // Late entries belong to the group of the open span.
        let current = self.ranks.last().map(|r| self.current[r.at as usize]);
        let entry = current.filter(|c| c.key() < late.key()).unwrap_or(late);
        if entry.time > end {
            return None;
        }
        self.len -= 1;
        if entry.key() == late.key() {
            self.late.pop();
        } else {
            self.ranks.pop();
        }
        Some(entry)
    }

    /// Time of the earliest entry. Does not advance the wheel, so later pushes still find their
    /// slot.
    pub fn next_time(&self) -> Option<u64> {
        let late = self.late.peek().map(|e| e.0.0.time);
        let current = match self.ranks.last() {
            Some(r) => Some(self.current[r.at as usize].time),
            None => self.group_coming(1).iter().map(|e| e.time).min(),
        };
        if let (Some(_), _) | (_, Some(_)) = (current, late) {
            return [current, late].into_iter().flatten().min();
        }
        let far = self.far.peek().map(|e| e.0.0.time);
        let near = self.slot_next().map(|slot| self.slot_time((slot & MASK) as usize));
        [near, far].into_iter().flatten().min()
    }

    /// Earliest time in a non-empty slot.
    fn slot_time(&self, slot: usize) -> u64 {
        let Head { chunk, len } = self.heads[slot];
        let (mut at, mut len, mut least) = (chunk, len as usize, u64::MAX);
        while at != NIL {
            let chunk = &self.chunks[at as usize];
            least = chunk.entries[..len].iter().fold(least, |least, e| least.min(e.time));
            (at, len) = (chunk.next, CHUNK);
        }
        least
    }

    /// Removes every entry for which `pred` holds and returns them in order. Scans the whole queue,
    /// so it suits rare events such as a cable cut.
    pub fn extract(&mut self, mut pred: impl FnMut(&E) -> bool) -> Vec<Entry<E>> {
        let mut out = Vec::new();
        let current = &mut self.current;
        self.ranks.retain(|r| keep(&current[r.at as usize], &mut pred, &mut out));
        for span in &mut self.spans[self.spans_opened..] {
            let mut end = span.start;
            for at in span.range() {
                let entry = current[at];
                if keep(&entry, &mut pred, &mut out) {
                    current[end as usize] = entry;
                    end += 1;
                }
            }
            span.end = end;
        }
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

    /// Starts a chunk for a slot without one or with a full one.
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

    /// Moves a slot's entries to the end of `out`, unordered.
    fn slot_drain(&mut self, slot: usize, out: &mut Vec<Entry<E>>) {
        self.slot_take(slot, |entries| out.extend_from_slice(entries));
    }

    /// Empties a slot after calling `see` with each chunk's entries.
    fn slot_take(&mut self, slot: usize, mut see: impl FnMut(&[Entry<E>])) {
        let head = std::mem::replace(&mut self.heads[slot], EMPTY);
        let (mut at, mut len) = (head.chunk, head.len as usize);
        while at != NIL {
            let chunk = &mut self.chunks[at as usize];
            see(&chunk.entries[..len]);
            let next = std::mem::replace(&mut chunk.next, self.free);
            self.free = at;
            (at, len) = (next, CHUNK);
        }
        self.bits[slot / 64] &= !(1 << (slot % 64));
        if self.bits[slot / 64] == 0 {
            self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
    }

    /// Opens the next span of the present slot, or of the next slot that holds anything, unless
    /// that begins after `end`. False if there is none.
    #[inline(never)]
    fn span_next(&mut self, end: u64) -> bool {
        if self.spans_opened == self.spans.len() && !self.advance(end) {
            return false;
        }
        self.open = self.spans[self.spans_opened];
        self.spans_opened += 1;
        self.open_new = self.open.group != 0;
        self.ranks.clear();
        for (e, at) in self.current[self.open.range()].iter().zip(self.open.start..) {
            let order = e.order >> self.shift;
            let key = if self.shift == 0 { order } else { e.time << (64 - self.shift) | order };
            self.ranks.push(Rank { key, at });
        }
        ranks_sort(&mut self.ranks, &self.current);
        // An extraction may have left nothing of it.
        !self.ranks.is_empty() || self.span_next(end)
    }

    /// Fills `current` from the next slot that holds anything, unless it begins after `end`. False
    /// if there is none.
    #[cold]
    fn advance(&mut self, end: u64) -> bool {
        let near = self.slot_next();
        let far = self.far.peek().map(|e| e.0.0.time >> self.shift);
        let Some(slot) = [near, far].into_iter().flatten().min() else { return false };
        // The wheel must not advance beyond `end`: pushes into slots that time has not reached
        // would be late.
        if slot > end >> self.shift {
            return false;
        }
        self.slot = slot;
        while let Some(e) = self.far.peek() {
            let entry = e.0.0;
            let at = entry.time >> self.shift;
            if at - slot >= SLOTS as u64 {
                break;
            }
            self.far.pop();
            self.slot_push((at & MASK) as usize, entry);
        }
        self.spans.clear();
        self.spans_opened = 0;
        let whole = (slot + 1) << self.shift <= end;
        let at = (slot & MASK) as usize;
        if !(whole && self.fill_by_group(at)) {
            let mut current = std::mem::take(&mut self.current);
            current.clear();
            self.slot_drain(at, &mut current);
            self.spans.push(Span { group: 0, start: 0, end: current.len() as u32 });
            self.current = current;
        }
        true
    }

    /// Fills `current` with the entries of a slot, group by group, with a counting sort. Returns
    /// false if the slot must be popped by time alone.
    fn fill_by_group(&mut self, slot: usize) -> bool {
        let Some(mut w) = self.windows.take() else { return false };
        w.places.fill(0);
        let whole = self.groups_count(slot, &mut w);
        if whole {
            let mut sum = 0;
            for (place, group) in w.places.iter_mut().zip(1..) {
                let (start, end) = (sum, sum + *place);
                if start < end {
                    self.spans.push(Span { group, start, end });
                }
                sum = end;
                *place = start;
            }
            let mut current = std::mem::take(&mut self.current);
            if current.len() < sum as usize {
                current.resize(sum as usize, Entry::default());
            }
            self.slot_take(slot, |entries| {
                for e in entries {
                    let Some(group) = (w.group)(&e.event) else { continue };
                    let place = &mut w.places[group as usize];
                    current[*place as usize] = *e;
                    *place += 1;
                }
            });
            self.current = current;
        }
        self.windows = Some(w);
        whole
    }

    /// Counts the entries of a slot by group. Returns false if one of them has no group.
    fn groups_count(&self, slot: usize, w: &mut Windows<E>) -> bool {
        let Head { chunk, len } = self.heads[slot];
        let (mut at, mut len) = (chunk, len as usize);
        while at != NIL {
            let chunk = &self.chunks[at as usize];
            for e in &chunk.entries[..len] {
                let Some(group) = (w.group)(&e.event) else { return false };
                w.places[group as usize] += 1;
            }
            (at, len) = (chunk.next, CHUNK);
        }
        true
    }

    /// Number of the next non-empty slot after the present one.
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

/// Sorts ranks, latest first.
fn ranks_sort<E>(ranks: &mut [Rank], current: &[Entry<E>]) {
    let order = |r: &Rank| current[r.at as usize].order;
    ranks.sort_unstable_by(|a, b| b.key.cmp(&a.key).then_with(|| order(b).cmp(&order(a))));
}

/// Moves `e` to `out` if `pred` holds. Returns true if the entry stays.
fn keep<E: Copy>(e: &Entry<E>, pred: &mut impl FnMut(&E) -> bool, out: &mut Vec<Entry<E>>) -> bool {
    let taken = pred(&e.event);
    if taken {
        out.push(*e);
    }
    !taken
}

#[cfg(test)]
mod tests;
