//! Verdicts other than OK, kept until the sender's lower edge has passed their PSNs.

use crate::psn::Psn;
use arrayvec::ArrayVec;
use srd_wire::{ACK_MASK_BITS, ACK_VERDICTS_MAX, Others, Verdict, VerdictEntry};

/// A ring indexed by PSN, as large as the window, so that every PSN of a sender that respects its
/// window has room. It is allocated at the first refusal and kept while the context is in use: one
/// byte and two bits for each PSN of the window.
#[derive(Debug)]
pub(crate) struct Verdicts {
    size: u32,
    /// The verdict on each refused PSN.
    codes: Vec<Verdict>,
    /// Which PSNs are refused.
    refused: Vec<u64>,
    /// Which refused PSNs have the same verdict as the PSN before.
    alike: Vec<u64>,
    /// All refused PSNs are in `first` up to but not including `end`.
    first: Psn,
    end: Psn,
    len: u32,
}

impl Verdicts {
    /// No refusals yet, in a window of `window` PSNs.
    pub fn new(window: u16) -> Self {
        let size = u32::from(window).next_power_of_two().max(64);
        let (codes, refused, alike) = (Vec::new(), Vec::new(), Vec::new());
        Self { size, codes, refused, alike, first: Psn(0), end: Psn(0), len: 0 }
    }

    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.codes) + size_of_val(&*self.refused) + size_of_val(&*self.alike)
    }

    /// Largest value of [`Self::held_bytes`].
    pub fn held_bytes_max(&self) -> usize {
        let size = self.size as usize;
        size * size_of::<Verdict>() + 2 * size.div_ceil(64) * size_of::<u64>()
    }

    pub fn is_empty(&self) -> bool {
        debug_assert!(self.len <= self.size, "one for each PSN of the window");
        self.len == 0
    }

    /// Notes that PSN `p` is refused. All refused PSNs lie within a window above the sender's lower
    /// edge; for a sender that violates that, nothing is kept.
    pub fn insert(&mut self, p: Psn, verdict: Verdict) {
        debug_assert!(verdict != Verdict::Ok, "only refusals are kept");
        if self.codes.is_empty() {
            self.codes = vec![Verdict::Ok; self.size as usize];
            self.refused = vec![0; (self.size / 64) as usize];
            self.alike = vec![0; (self.size / 64) as usize];
        }
        if self.len == 0 {
            (self.first, self.end) = (p, p);
        }
        let first = if p.is_before(self.first) { p } else { self.first };
        let end = if p.is_before(self.end) { self.end } else { p.next() };
        if end.since(first) > self.size {
            return;
        }
        self.len += u32::from(!self.is_refused(p));
        (self.first, self.end) = (first, end);
        debug_assert!(self.len <= end.since(first), "each once");
        let (i, bit) = self.place(p);
        self.refused[i] |= bit;
        let at = self.code_at(p);
        self.codes[at] = verdict;
        for q in [p, p.next()] {
            let before = q.minus(1);
            let alike = self.is_refused(q)
                && self.is_refused(before)
                && self.codes[self.code_at(q)] == self.codes[self.code_at(before)];
            let (i, bit) = self.place(q);
            if alike {
                self.alike[i] |= bit;
            } else {
                self.alike[i] &= !bit;
            }
        }
    }

    /// Drops the verdicts below `una`, the sender's lower edge.
    pub fn retire(&mut self, una: Psn) {
        let una = if planted!(VerdictRetiredEarly) { self.end } else { una };
        if self.len == 0 || !self.first.is_before(una) {
            return;
        }
        let to = if una.is_before(self.end) { una } else { self.end };
        while self.first != to {
            // One word at a time.
            let room = 64 - self.first.0 % 64;
            let n = room.min(to.since(self.first));
            let bits = (u64::MAX >> (64 - n)) << (self.first.0 % 64);
            let (i, _) = self.place(self.first);
            self.len -= (self.refused[i] & bits).count_ones();
            self.refused[i] &= !bits;
            self.first = self.first.plus(n);
        }
        debug_assert!(self.len <= self.end.since(self.first), "those that are left");
    }

    /// Lists the refusals in the order of PSNs, each entry in the form that covers more PSNs.
    /// Returns whether some found no room, and how many words of the ring were read.
    pub fn list(&self, list: &mut ArrayVec<VerdictEntry, ACK_VERDICTS_MAX>) -> (bool, u64) {
        let mut at = self.first;
        while let Some(p) = self.next_from(at) {
            let entry = self.entry(p);
            debug_assert!(at.is_before(Psn(entry.end())) || cfg!(planted_bugs), "it goes on");
            if list.try_push(entry).is_err() {
                return (true, self.words_to(at));
            }
            at = Psn(entry.end());
        }
        (false, self.words_to(at))
    }

    fn words_to(&self, at: Psn) -> u64 {
        u64::from(at.since(self.first).div_ceil(64))
    }

    pub fn clear(&mut self) {
        self.len = 0;
        self.refused.fill(0);
    }

    /// The longest entry that begins with the refused PSN `p`.
    fn entry(&self, p: Psn) -> VerdictEntry {
        debug_assert!(self.is_refused(p), "{p:?} begins an entry");
        let run = self.run(p);
        let verdict = self.codes[self.code_at(p)];
        let mut mask = self.bits(&self.refused, p.next()) & ((1 << ACK_MASK_BITS) - 1);
        // An entry has one verdict, so the mask ends before the first PSN with another one.
        let mut bits = mask;
        while bits != 0 {
            let k = bits.trailing_zeros();
            if self.codes[self.code_at(p.plus(1 + k))] != verdict {
                mask &= (1 << k) - 1;
                break;
            }
            bits &= bits - 1;
        }
        let others = if mask != 0 && u64::BITS - mask.leading_zeros() >= run {
            Others::Mask(mask as u32)
        } else {
            Others::Run(u16::try_from(run).unwrap_or(u16::MAX))
        };
        VerdictEntry { psn: p.0, verdict, others }
    }

    /// Number of consecutive PSNs from `p` on with the same verdict.
    fn run(&self, p: Psn) -> u32 {
        debug_assert!(self.is_refused(p), "{p:?} begins a run");
        let mut n = 1;
        while p.plus(n).is_before(self.end) {
            let at = p.plus(n);
            let alike = self.bits(&self.refused, at) & self.bits(&self.alike, at);
            n += alike.trailing_ones();
            if alike != u64::MAX {
                break;
            }
        }
        n.min(self.end.since(p))
    }

    /// The first refused PSN from `at` on.
    fn next_from(&self, mut at: Psn) -> Option<Psn> {
        while at.is_before(self.end) {
            let bits = self.bits(&self.refused, at);
            if bits != 0 {
                return Some(at.plus(bits.trailing_zeros()));
            }
            at = at.plus(64);
        }
        None
    }

    /// The 64 bits of `ring` from PSN `at` on; those from `end` on are 0.
    fn bits(&self, ring: &[u64], at: Psn) -> u64 {
        debug_assert_eq!(64 * ring.len(), self.size as usize, "a bit for each PSN of the window");
        let (low, _) = self.place(at);
        let (high, _) = self.place(at.plus(63));
        let shift = at.0 % 64;
        let mut bits = ring[low] >> shift;
        if shift > 0 {
            bits |= ring[high] << (64 - shift);
        }
        match self.end.diff(at) {
            left @ 1..64 => bits & (u64::MAX >> (64 - left)),
            ..=0 => 0,
            _ => bits,
        }
    }

    fn is_refused(&self, p: Psn) -> bool {
        let (i, bit) = self.place(p);
        p.is_within(self.first, self.end) && self.refused[i] & bit != 0
    }

    fn code_at(&self, p: Psn) -> usize {
        p.place(self.size as usize)
    }

    /// Word and bit of PSN `p`.
    fn place(&self, p: Psn) -> (usize, u64) {
        (self.code_at(p) / 64, 1 << (p.0 % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    fn list(v: &Verdicts) -> (Vec<VerdictEntry>, bool) {
        let mut list = ArrayVec::new();
        let (partial, steps) = v.list(&mut list);
        assert!(steps <= u64::from(v.size / 64) + 1, "{steps}");
        (list.to_vec(), partial)
    }

    #[test]
    fn sorted_and_retired_across_the_wrap() {
        let mut v = Verdicts::new(64);
        for p in [2, u32::MAX, 0] {
            v.insert(Psn(p), Verdict::Rnr);
        }
        let all = VerdictEntry { psn: u32::MAX, verdict: Verdict::Rnr, others: Others::Mask(5) };
        assert_eq!(list(&v), (vec![all], false));
        v.retire(Psn(1));
        assert_eq!(list(&v), (vec![VerdictEntry::one(2, Verdict::Rnr)], false));
        v.retire(Psn(3));
        assert!(v.is_empty());
    }

    #[test]
    fn a_late_receiver_is_one_entry() {
        let mut v = Verdicts::new(4096);
        for p in 0..4096_u32 {
            v.insert(Psn(p).minus(100), Verdict::Rnr);
        }
        let others = Others::Run(4096);
        let run = VerdictEntry { psn: u32::MAX - 99, verdict: Verdict::Rnr, others };
        assert_eq!(list(&v), (vec![run], false));
        v.retire(Psn(1000));
        assert_eq!(list(&v).0[0].psns().count(), 2996);
    }

    /// Random refusals in random order against a plain map: the list has exactly the refusals that
    /// fit into it, with their verdicts, and says whether it has all.
    #[test]
    fn agrees_with_a_map() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let window = [64, 128, 1024][rng.below(3) as usize];
            let mut v = Verdicts::new(window);
            let mut map = BTreeMap::new();
            let start = Psn(u32::MAX - 200);
            let (mut una, codes, dense) = (0_u32, 1 + rng.below(3), 1 + rng.below(12));
            for _ in 0..800 {
                if rng.below(4) == 0 {
                    una += rng.below(1 + u32::from(window) / 4);
                    v.retire(start.plus(una));
                    map.retain(|&k, _| k >= una);
                } else {
                    let from = una + rng.below(u32::from(window));
                    let n = 1 + rng.below(30);
                    for k in (from..from + n).filter(|k| *k < una + u32::from(window)) {
                        if rng.below(12) < dense && !map.contains_key(&k) {
                            let verdict = Verdict::ALL[1 + rng.below(codes) as usize];
                            v.insert(start.plus(k), verdict);
                            map.insert(k, verdict);
                        }
                    }
                }
                let (entries, partial) = list(&v);
                let told: Vec<_> =
                    entries.iter().flat_map(|e| e.psns().map(|p| (p, e.verdict))).collect();
                let right = map.iter().map(|(k, v)| (start.plus(*k).0, *v));
                let right: Vec<_> = right.take(told.len()).collect();
                assert_eq!(told, right, "seed {seed}");
                assert_eq!(partial, told.len() < map.len(), "seed {seed}");
                assert_eq!(v.is_empty(), map.is_empty(), "seed {seed}");
                assert!(!partial || entries.len() == ACK_VERDICTS_MAX, "seed {seed}");
            }
            v.clear();
            assert_eq!(list(&v), (vec![], false));
        }
    }
}
