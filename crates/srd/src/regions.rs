//! The tables of registered regions: the engine's table, which owns the memory, and the view
//! against which posts are checked.

use crate::{Access, mem::Memory, queue::Piece};
use rustc_hash::FxBuildHasher;
use srd_core::PdId;
use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Keys are chosen by the engine, so nobody outside can choose colliding ones.
type ByKey<T> = HashMap<u32, T, FxBuildHasher>;

/// A registration: a place in the table, and a number that the place never reuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionId {
    slot: u32,
    serial: u32,
}

/// The engine's table. All accesses to memory go through it under the engine's lock, so a region
/// that was removed can no longer be accessed.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: ByKey<u32>,
}

#[derive(Debug)]
struct Slot {
    serial: u32,
    memory: Option<Arc<Memory>>,
}

impl Regions {
    pub(crate) fn insert(&mut self, key: u32, memory: Arc<Memory>) -> RegionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { serial: 0, memory: None });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.memory = Some(memory);
        self.by_key.insert(key, slot);
        RegionId { slot, serial: place.serial }
    }

    pub(crate) fn remove(&mut self, key: u32) {
        let Some(slot) = self.by_key.remove(&key) else { return };
        let place = &mut self.slots[slot as usize];
        place.memory = None;
        place.serial = place.serial.wrapping_add(1);
        self.free.push(slot);
    }

    /// The region with this key.
    #[inline]
    pub(crate) fn by_key(&self, key: u32) -> Option<&Memory> {
        self.slots[*self.by_key.get(&key)? as usize].memory.as_deref()
    }

    /// Whether all the regions of the pieces are still registered.
    #[inline]
    pub(crate) fn hold(&self, pieces: &[Piece]) -> bool {
        pieces.iter().all(|p| self.get(p.region).is_some())
    }

    /// The region of this registration, if it still exists.
    #[inline]
    pub(crate) fn get(&self, id: RegionId) -> Option<&Memory> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.memory.as_deref().filter(|_| slot.serial == id.serial)
    }
}

/// The data against which a post is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionView {
    pub id: RegionId,
    pub pd: PdId,
    pub access: Access,
    addr: u64,
    len: u64,
}

impl RegionView {
    pub(crate) fn new(id: RegionId, memory: &Memory) -> Self {
        let (pd, access) = (memory.pd(), memory.access());
        Self { id, pd, access, addr: memory.addr(), len: memory.len() as u64 }
    }

    /// Offset of `addr` in the region, if `len` bytes from there lie within it.
    #[inline]
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.addr)?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }
}

/// The regions that posts may name.
#[derive(Debug, Default)]
pub(crate) struct RegionViews {
    views: RwLock<ByKey<RegionView>>,
    /// Number of regions removed so far.
    removed: AtomicU64,
}

impl RegionViews {
    pub(crate) fn insert(&self, key: u32, view: RegionView) {
        self.views.write().unwrap_or_else(PoisonError::into_inner).insert(key, view);
    }

    pub(crate) fn remove(&self, key: u32) {
        self.views.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.removed.fetch_add(1, Ordering::Release);
    }
}

/// Entries of a [`RegionCache`].
const CACHED: usize = 4;

/// The regions last used by the posts of one queue: their look-up takes no lock.
#[derive(Debug, Default)]
pub(crate) struct RegionCache {
    /// [`RegionViews::removed`] when the entries were read.
    removed: u64,
    entries: [Option<(u32, RegionView)>; CACHED],
}

impl RegionCache {
    /// The region with this key. A region that is being deregistered may still be found: the
    /// engine's table decides.
    #[inline]
    pub(crate) fn get(&mut self, views: &RegionViews, key: u32) -> Option<RegionView> {
        let removed = views.removed.load(Ordering::Acquire);
        if removed == self.removed
            && let Some((cached, view)) = self.entries[key as usize % CACHED]
            && cached == key
        {
            return Some(view);
        }
        self.fill(views, removed, key)
    }

    #[cold]
    fn fill(&mut self, views: &RegionViews, removed: u64, key: u32) -> Option<RegionView> {
        if removed != self.removed {
            *self = Self { removed, ..Self::default() };
        }
        let view = *views.views.read().unwrap_or_else(PoisonError::into_inner).get(&key)?;
        self.entries[key as usize % CACHED] = Some((key, view));
        Some(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> Arc<Memory> {
        Arc::new(Memory::owned(len, Access::LOCAL_WRITE, PdId(3)).unwrap())
    }

    #[test]
    fn a_registration_ends_for_good() {
        let mut regions = Regions::default();
        let first = regions.insert(77, memory(10));
        assert_eq!(regions.by_key(77).map(Memory::len), Some(10));
        regions.remove(77);
        regions.remove(77);
        assert!(regions.get(first).is_none() && regions.by_key(77).is_none());
        let second = regions.insert(77, memory(20));
        assert!(regions.get(first).is_none(), "same place, same key, another registration");
        assert_eq!(regions.get(second).map(Memory::len), Some(20));
        let third = regions.insert(78, memory(30));
        assert_eq!(regions.get(third).map(Memory::len), Some(30));
    }

    #[test]
    fn a_cache_forgets_what_was_removed() {
        let (views, mut cache) = (RegionViews::default(), RegionCache::default());
        let mut regions = Regions::default();
        // Three keys that share an entry.
        for key in [1, 5, 9] {
            let memory = memory(key as usize * 100);
            let view = RegionView::new(regions.insert(key, Arc::clone(&memory)), &memory);
            views.insert(key, view);
        }
        for key in [1, 5, 9, 9, 5, 1] {
            let view = cache.get(&views, key).unwrap();
            assert_eq!(regions.get(view.id).map(Memory::len), Some(key as usize * 100));
        }
        views.remove(1);
        assert!(cache.get(&views, 1).is_none());
        assert!(cache.get(&views, 5).is_some());
        assert!(cache.get(&views, 2).is_none());
    }
}
