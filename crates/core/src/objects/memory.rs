//! Protection domains, memory regions and address handles: numbers and rights, no pointers.

use crate::api::{Access, AhId, MrKey, PdId};
use crate::ids::Ctx;
use crate::limits::MRS_MAX;
use crate::objects::keys::KeyMaker;
use crate::random::Random;
use crate::time::Time;
use core::net::IpAddr;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A registered range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mr {
    pub pd: PdId,
    pub addr: u64,
    pub len: u64,
    pub access: Access,
}

impl Mr {
    /// Whether `len` bytes at `addr` lie inside.
    pub fn covers(&self, addr: u64, len: u64) -> bool {
        addr >= self.addr
            && addr
                .checked_add(len)
                .is_some_and(|end| end - self.addr <= self.len + u64::from(planted!(RegionOneMore)))
    }
}

/// The table of regions, by key (see [`KeyMaker`]).
#[derive(Debug)]
pub(crate) struct MrTable {
    /// Keys are our own and scattered: no keyed hash needed.
    by_key: FxHashMap<u32, Mr>,
    keys: KeyMaker,
}

impl MrTable {
    /// `secret` decides what the keys will be.
    pub fn new(secret: (u64, u64)) -> Self {
        Self { by_key: FxHashMap::default(), keys: KeyMaker::new(secret) }
    }

    pub fn register(&mut self, mr: Mr, random: &mut impl Random) -> Option<MrKey> {
        if self.by_key.len() >= MRS_MAX {
            return None;
        }
        let key = self.keys.next(random, |k| !self.by_key.contains_key(&k));
        self.by_key.insert(key, mr);
        Some(MrKey(key))
    }
    #[inline]
    pub fn get(&self, key: MrKey) -> Option<&Mr> {
        self.by_key.get(&key.0)
    }
    /// Whether a region had this key once.
    pub fn has_had(&self, key: MrKey) -> bool {
        self.keys.has_made(key.0)
    }
    /// Changes with each region that is registered.
    pub fn stand(&self) -> u32 {
        self.keys.stand()
    }
    /// For looking ahead.
    #[inline]
    pub fn ahead(&self) -> u64 {
        self.by_key.len() as u64
    }
    pub fn deregister(&mut self, key: MrKey) -> bool {
        if planted!(KeyStale) {
            return self.by_key.contains_key(&key.0);
        }
        self.by_key.remove(&key.0).is_some()
    }
    pub fn uses_pd(&self, pd: PdId) -> bool {
        self.by_key.values().any(|m| m.pd == pd)
    }
}

/// An address handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ah {
    pub pd: PdId,
    pub ip: IpAddr,
    /// The context used last through this handle: its number and our tag, which proves that the
    /// number still means the same context.
    pub last: Option<(Ctx, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum AhSlot {
    Free,
    Used(Ah),
}

/// The table of address handles, with the way back from address to handle.
#[derive(Debug, Default)]
pub(crate) struct AhTable {
    slots: Vec<AhSlot>,
    /// Freed numbers and when they may be used again, oldest first.
    free: VecDeque<(Time, u16)>,
    /// Address to (a handle for it, how many there are). Local calls alone add to it.
    by_ip: FxHashMap<IpAddr, (AhId, u32)>,
    /// Changes whenever a handle comes or goes: what contexts remember of `find` is then stale.
    generation: u32,
}

impl AhTable {
    pub fn create(&mut self, now: Time, ah: Ah) -> Option<AhId> {
        let rested = self.free.front().is_some_and(|f| f.0 <= now);
        let i = match rested.then(|| self.free.pop_front()).flatten() {
            Some((_, i)) => usize::from(i),
            None if self.slots.len() < usize::from(AhId::UNKNOWN.0) => {
                self.slots.push(AhSlot::Free);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.slots[i] = AhSlot::Used(ah);
        let id = AhId(i as u16);
        self.by_ip.entry(ah.ip).or_insert((id, 0)).1 += 1;
        self.generation = self.generation.wrapping_add(1);
        Some(id)
    }
    pub fn get(&self, id: AhId) -> Option<&Ah> {
        match self.slots.get(usize::from(id.0))? {
            AhSlot::Used(a) => Some(a),
            AhSlot::Free => None,
        }
    }
    /// Remembers the context used last through `id`.
    pub fn note_context(&mut self, id: AhId, ci: Ctx, tag: u32) {
        if let Some(AhSlot::Used(a)) = self.slots.get_mut(usize::from(id.0)) {
            a.last = Some((ci, tag));
        }
    }
    pub fn destroy(&mut self, id: AhId, free_at: Time) -> bool {
        let Some(&Ah { ip, .. }) = self.get(id) else { return false };
        self.slots[usize::from(id.0)] = AhSlot::Free;
        self.free.push_back((free_at, id.0));
        self.generation = self.generation.wrapping_add(1);
        let entry = self.by_ip.get_mut(&ip);
        if let Some((first, count)) = entry {
            *count -= 1;
            if *count == 0 {
                self.by_ip.remove(&ip);
            } else if *first == id {
                let other =
                    self.slots.iter().position(|s| matches!(s, AhSlot::Used(a) if a.ip == ip));
                *first = AhId(other.unwrap_or(usize::from(AhId::UNKNOWN.0)) as u16);
            }
        }
        true
    }
    /// Number of the present set of handles.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// A handle for `ip`, or `AhId::UNKNOWN`.
    pub fn find(&self, ip: &IpAddr) -> AhId {
        self.by_ip.get(ip).map_or(AhId::UNKNOWN, |e| e.0)
    }
    pub fn uses_pd(&self, pd: PdId) -> bool {
        self.slots.iter().any(|s| matches!(s, AhSlot::Used(a) if a.pd == pd))
    }
}
