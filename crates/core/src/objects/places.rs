//! Places: one for each read that is being served, of all peers. Reads are found by region, by
//! queue pair, and by the progress that each makes.

use crate::api::{MrKey, Qpn};
use crate::ids::{Ctx, JobId, Place};
use crate::limits::{READ_PATIENCE, READS_LOOKED_MAX, READS_SLOW_MAX};
use crate::time::Time;
use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;

/// A read that is being served: its context and its job number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub ctx: Ctx,
    pub job: JobId,
}

/// Index of the list of a region's reads in [`Entry::links`]; index 1 is the list of a queue pair's
/// reads.
const REGION: usize = 0;

/// Neighbours of a read in one list.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    before: Option<Place>,
    after: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    served: Served,
    key: MrKey,
    qp: Qpn,
    /// When the read's progress was last reset, or the read began.
    since: Time,
    /// Bytes of the read that have arrived at the requester since then.
    bytes: u64,
    links: [Links; 2],
}

/// Size of one place in memory, in bytes.
pub(crate) const PLACE_BYTES: usize = size_of::<Option<Entry>>();

/// The table of places.
#[derive(Debug, Default)]
pub(crate) struct Places {
    slots: Vec<Option<Entry>>,
    free: Vec<Place>,
    taken: u32,
    /// First read in the list of each region, by key, and of each queue pair. We make both numbers,
    /// so no keyed hash is needed.
    of_region: FxHashMap<u32, Place>,
    of_qp: FxHashMap<u16, Place>,
    /// Where the search for slow reads continues, and the slow reads found so far.
    hand: usize,
    slow: ArrayVec<Served, READS_SLOW_MAX>,
}

impl Places {
    /// Number of places taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Takes a place for a read of region `key` through `qp`, which begins now.
    pub fn begin(&mut self, now: Time, served: Served, key: MrKey, qp: Qpn) -> Place {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Place(self.slots.len() as u32 - 1)
        });
        let first = [self.of_region.insert(key.0, place), self.of_qp.insert(qp.0, place)];
        let links = first.map(|after| Links { before: None, after });
        for (list, first) in first.into_iter().enumerate() {
            if let Some(first) = first {
                let before = self.get_mut(first).links[list].before.replace(place);
                debug_assert!(before.is_none(), "nobody comes before the first");
            }
        }
        let entry = Entry { served, key, qp, since: now, bytes: 0, links };
        debug_assert!(self.slots[place.index()].is_none(), "a place of nobody");
        self.slots[place.index()] = Some(entry);
        self.taken += 1;
        self.taken_check();
        place
    }

    /// Frees the place of a read that has ended or has lost its place.
    pub fn end(&mut self, place: Place) {
        let gone = self.slots[place.index()].take().expect("a read leaves its place once");
        for (list, Links { before, after }) in gone.links.into_iter().enumerate() {
            let kept = planted!(PlaceLinkKept) && list == REGION;
            if let Some(after) = after.filter(|_| !kept) {
                let named = core::mem::replace(&mut self.get_mut(after).links[list].before, before);
                debug_assert_eq!(named, Some(place), "its neighbour names it");
            }
            debug_assert!(
                before.is_none_or(|b| self.get(b).links[list].after == Some(place)),
                "its neighbour names it"
            );
            match (before, after) {
                (Some(before), _) => self.get_mut(before).links[list].after = after,
                (None, Some(after)) if list == REGION => {
                    self.of_region.insert(gone.key.0, after);
                }
                (None, Some(after)) => {
                    self.of_qp.insert(gone.qp.0, after);
                }
                (None, None) if list == REGION => {
                    self.of_region.remove(&gone.key.0);
                }
                (None, None) => {
                    self.of_qp.remove(&gone.qp.0);
                }
            }
        }
        self.free.push(place);
        self.taken -= u32::from(!planted!(JobsLeak));
        self.taken_check();
    }

    /// Checks that every place is either counted as taken or free.
    #[inline(always)]
    fn taken_check(&self) {
        debug_assert!(
            self.taken as usize + self.free.len() == self.slots.len() || cfg!(planted_bugs),
            "places taken and free"
        );
    }

    /// Notes that `bytes` more of the read have arrived at the requester.
    #[inline]
    pub fn progress(&mut self, place: Place, bytes: u16) {
        self.get_mut(place).bytes += u64::from(bytes);
    }

    /// A read of region `key` that is being served, if there is one.
    pub fn of_region(&self, key: MrKey) -> Option<Served> {
        let first = self.get(*self.of_region.get(&key.0)?);
        debug_assert_eq!(first.key, key, "a list for each region");
        Some(first.served)
    }
    /// A read through queue pair `qp` that is being served, if there is one.
    pub fn of_qp(&self, qp: Qpn) -> Option<Served> {
        let first = self.get(*self.of_qp.get(&qp.0)?);
        debug_assert_eq!(first.qp, qp, "a list for each queue pair");
        Some(first.served)
    }

    /// Called when a place is wanted and none is free: examines some of the reads, and notes each
    /// that has made less progress than `bytes_per_sec` since its last examination, for
    /// [`Self::slow_take`].
    pub fn slow_look(&mut self, now: Time, bytes_per_sec: u64) {
        for _ in 0..READS_LOOKED_MAX.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(entry) = &mut self.slots[self.hand] else { continue };
            let time = now.since(entry.since);
            debug_assert!(entry.since <= now, "looked at before");
            if time < READ_PATIENCE {
                continue;
            }
            let least = u128::from(bytes_per_sec) * u128::from(time.0) / 1_000_000_000;
            if u128::from(entry.bytes) >= least {
                (entry.since, entry.bytes) = (now, 0);
            } else if !self.slow.contains(&entry.served)
                && self.slow.try_push(entry.served).is_err()
            {
                return;
            }
        }
    }

    /// Takes one of the reads that [`Self::slow_look`] found to be slow.
    #[inline]
    pub fn slow_take(&mut self) -> Option<Served> {
        self.slow.pop()
    }

    fn get(&self, place: Place) -> &Entry {
        self.slots[place.index()].as_ref().expect("only places that are taken are listed")
    }
    fn get_mut(&mut self, place: Place) -> &mut Entry {
        self.slots[place.index()].as_mut().expect("only places that are taken are listed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::time::Span;

    fn served(n: u32) -> Served {
        Served { ctx: Ctx(n % 5), job: JobId(n) }
    }

    /// Reads that begin and end in any order, against a plain list.
    #[test]
    fn reads_are_found_by_region_and_queue_pair() {
        let (mut p, mut rng) = (Places::default(), Rng::from_seed(1));
        let mut known: Vec<(Place, u32, u32, u16)> = vec![];
        for n in 0..5_000 {
            if rng.below(100) < 52 && known.len() < 60 {
                let (key, qp) = (rng.below(7), rng.below(4) as u16);
                known.push((p.begin(Time(0), served(n), MrKey(key), Qpn(qp)), n, key, qp));
            } else if !known.is_empty() {
                p.end(known.swap_remove(rng.below(known.len() as u32) as usize).0);
            }
            assert_eq!(p.taken() as usize, known.len());
        }
        // Each list has all reads that belong to it, once.
        for key in 0..7 {
            let mut left: Vec<_> = known.iter().filter(|k| k.2 == key).copied().collect();
            while let Some(found) = p.of_region(MrKey(key)) {
                let at = left.iter().position(|k| served(k.1) == found).expect("of the region");
                p.end(left.swap_remove(at).0);
                known.retain(|k| served(k.1) != found);
            }
            assert!(left.is_empty());
            for qp in 0..4 {
                let any = known.iter().any(|k| k.3 == qp);
                assert_eq!(p.of_qp(Qpn(qp)).is_some(), any);
            }
        }
        assert_eq!((p.taken(), p.of_region.len(), p.of_qp.len()), (0, 0, 0));
    }

    #[test]
    fn reads_that_make_too_little_progress_are_found() {
        let mut p = Places::default();
        let places: Vec<_> =
            (0..8).map(|n| p.begin(Time(0), served(n), MrKey(1), Qpn(1))).collect();
        let found = |p: &mut Places, at: Span| {
            (0..8).for_each(|_| p.slow_look(Time(0) + at, 1000));
            let mut found: Vec<_> =
                core::iter::from_fn(|| p.slow_take()).map(|s| s.job.0).collect();
            found.sort_unstable();
            found
        };
        let round = Span(READ_PATIENCE.0);
        assert_eq!(found(&mut p, Span(round.0 - 1)), []);
        let enough = 1000 * round.0 / 1_000_000_000;
        for (n, &place) in places.iter().enumerate() {
            for _ in 0..enough / 100 - u64::from(n == 3) {
                p.progress(place, 100);
            }
        }
        assert_eq!(found(&mut p, round), [3]);
        p.end(places[3]);
        assert_eq!(found(&mut p, Span(2 * round.0 - 1)), [], "those have a round more");
        assert_eq!(found(&mut p, Span(2 * round.0)), [0, 1, 2, 4, 5, 6, 7]);
    }
}
