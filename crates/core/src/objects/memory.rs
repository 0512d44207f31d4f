//! Memory regions and address handles: numbers and access rights, no pointers.

use crate::api::{Access, AhId, MrKey, PdId};
use crate::ids::{Ctx, OwnTag};
use crate::limits::MRS_MAX;
use crate::objects::keys::KeyMaker;
use crate::random::{HashKey, Random};
use crate::time::Time;
use core::hash::BuildHasher;
use core::net::IpAddr;
use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};
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
    /// Whether `len` bytes at `addr` lie inside the region.
    pub fn covers(&self, addr: u64, len: u64) -> bool {
        debug_assert!(self.addr.checked_add(self.len).is_some(), "registered as it is: {self:?}");
        addr >= self.addr
            && addr
                .checked_add(len)
                .is_some_and(|end| end - self.addr <= self.len + u64::from(planted!(RegionOneMore)))
    }
}

/// The table of memory regions, by key (see [`KeyMaker`]).
#[derive(Debug)]
pub(crate) struct MrTable {
    /// We make the keys, and they are spread at random, so no keyed hash is needed.
    by_key: FxHashMap<u32, Mr>,
    keys: KeyMaker,
}

impl MrTable {
    /// An empty table. `secret` is the key of the permutation that makes region keys.
    pub fn new(secret: HashKey) -> Self {
        Self { by_key: FxHashMap::default(), keys: KeyMaker::new(secret) }
    }

    pub fn register(&mut self, mr: Mr, random: &mut impl Random) -> Option<MrKey> {
        if self.by_key.len() >= MRS_MAX {
            return None;
        }
        let key = self.keys.next(random, |k| !self.by_key.contains_key(&k));
        debug_assert!(mr.addr.checked_add(mr.len).is_some(), "bounds were checked: {mr:?}");
        let other = self.by_key.insert(key, mr);
        debug_assert!(other.is_none() && self.has_had(MrKey(key)), "a key is made for one");
        Some(MrKey(key))
    }
    /// Registers a region under a key that the table whose keys this one has
    /// ([`MrTable::keys_as`]) has made. False if there is no room, or another region has it.
    #[must_use]
    pub fn register_as(&mut self, mr: Mr, key: MrKey) -> bool {
        if self.by_key.len() >= MRS_MAX || self.by_key.contains_key(&key.0) {
            return false;
        }
        debug_assert!(mr.addr.checked_add(mr.len).is_some(), "bounds were checked: {mr:?}");
        self.keys.follow(key.0);
        self.by_key.insert(key.0, mr);
        true
    }
    /// Has the keys of another table from now on: both tables know the keys that the other makes
    /// and this one is told of. Only before the first region.
    pub fn keys_as(&mut self, other: &Self) {
        debug_assert!(self.by_key.is_empty(), "a key is known by the secret it was made with");
        self.keys = other.keys.clone();
    }
    #[inline]
    pub fn get(&self, key: MrKey) -> Option<&Mr> {
        self.by_key.get(&key.0)
    }
    /// Whether the key was given out at some time.
    pub fn has_had(&self, key: MrKey) -> bool {
        self.keys.has_made(key.0)
    }
    /// A number that changes whenever a region is registered.
    pub fn stand(&self) -> u32 {
        self.keys.stand()
    }
    pub fn deregister(&mut self, key: MrKey) -> bool {
        if planted!(KeyStale) {
            return self.by_key.contains_key(&key.0);
        }
        let known = self.by_key.remove(&key.0).is_some();
        debug_assert!(!known || self.has_had(key), "a key that was given out");
        known
    }
    pub fn uses_pd(&self, pd: PdId) -> bool {
        self.by_key.values().any(|m| m.pd == pd)
    }
}

/// The context that was last used through an address handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastUsed {
    pub ci: Ctx,
    /// Our tag of the context, which shows whether `ci` is still the same context.
    pub tag: OwnTag,
}

/// An address handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ah {
    pub pd: PdId,
    pub ip: IpAddr,
    pub last: Option<LastUsed>,
    /// Number of other handles for the same address; kept in the first handle only.
    others: u16,
}

impl Ah {
    /// A handle for the address `ip`, not used yet.
    pub fn new(pd: PdId, ip: IpAddr) -> Self {
        Self { pd, ip, last: None, others: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
enum AhSlot {
    Free,
    Used(Ah),
}

/// The table of address handles, with an index from address to handle.
#[derive(Debug, Default)]
pub(crate) struct AhTable {
    slots: Vec<AhSlot>,
    /// Freed handle numbers with the time from which each may be used again, oldest first.
    free: VecDeque<(Time, u16)>,
    /// The first handle for each address; the address itself is in the handle's slot. Only local
    /// calls add to the index, so no keyed hash is needed.
    by_ip: HashTable<AhId>,
    /// Changes whenever a handle is created or destroyed; contexts that cached the result of `find`
    /// must then look again.
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
        debug_assert!(matches!(self.slots[i], AhSlot::Free), "a number means one handle");
        let id = AhId(i as u16);
        self.enter(id, ah);
        Some(id)
    }
    /// Creates a handle under the number that another table has chosen, even if that rests here.
    /// False if a handle has it.
    #[must_use]
    pub fn create_as(&mut self, id: AhId, ah: Ah) -> bool {
        let i = usize::from(id.0);
        if id == AhId::UNKNOWN || self.get(id).is_some() {
            return false;
        }
        match self.free.iter().position(|f| f.1 == id.0) {
            Some(at) => {
                self.free.remove(at);
            }
            None => {
                // Numbers that are stepped over are free at once.
                self.free.extend((self.slots.len()..i).map(|n| (Time(0), n as u16)));
                self.slots.resize(self.slots.len().max(i + 1), AhSlot::Free);
            }
        }
        if planted!(ShardHandleUnfound) {
            self.slots[i] = AhSlot::Used(ah);
            return true;
        }
        self.enter(id, ah);
        true
    }
    /// Puts a handle into its slot and into the index.
    fn enter(&mut self, id: AhId, ah: Ah) {
        match self.first_of(&ah.ip) {
            Some(first) => self.used(first).others += 1,
            None => {
                let rehash = |&k: &AhId| hash_of(&ip_of(&self.slots, k));
                self.by_ip.insert_unique(hash_of(&ah.ip), id, rehash);
            }
        }
        debug_assert!(ah.others == 0 && ah.last.is_none(), "nobody has used it yet");
        self.slots[usize::from(id.0)] = AhSlot::Used(ah);
        self.generation = self.generation.wrapping_add(1);
    }
    pub fn get(&self, id: AhId) -> Option<&Ah> {
        match self.slots.get(usize::from(id.0))? {
            AhSlot::Used(a) => Some(a),
            AhSlot::Free => None,
        }
    }
    /// Notes the context that was last used through `id`.
    pub fn note_context(&mut self, id: AhId, last: LastUsed) {
        if let Some(AhSlot::Used(a)) = self.slots.get_mut(usize::from(id.0)) {
            debug_assert!(last.tag != OwnTag::NONE, "a context has a tag");
            a.last = Some(last);
        }
    }
    pub fn destroy(&mut self, id: AhId, free_at: Time) -> bool {
        let Some(&Ah { ip, .. }) = self.get(id) else { return false };
        self.first_leaves(id, &ip);
        self.slots[usize::from(id.0)] = AhSlot::Free;
        self.free.push_back((free_at, id.0));
        debug_assert!(self.free.len() <= self.slots.len(), "a number is free once");
        self.generation = self.generation.wrapping_add(1);
        true
    }
    /// A number that changes whenever a handle is created or destroyed.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// A handle for `ip`, or `AhId::UNKNOWN`.
    pub fn find(&self, ip: &IpAddr) -> AhId {
        self.first_of(ip).unwrap_or(AhId::UNKNOWN)
    }
    fn first_of(&self, ip: &IpAddr) -> Option<AhId> {
        self.by_ip.find(hash_of(ip), |&k| ip_of(&self.slots, k) == *ip).copied()
    }
    fn used(&mut self, id: AhId) -> &mut Ah {
        match &mut self.slots[usize::from(id.0)] {
            AhSlot::Used(ah) => ah,
            AhSlot::Free => unreachable!("only live handles are listed"),
        }
    }
    /// Handle `id` for `ip` is about to be destroyed: another handle for the address, if there is
    /// one, becomes the first.
    fn first_leaves(&mut self, id: AhId, ip: &IpAddr) {
        let listed = self.by_ip.find_entry(hash_of(ip), |&k| ip_of(&self.slots, k) == *ip);
        debug_assert!(listed.is_ok(), "found by its address until it goes");
        let Ok(mut listed) = listed else { return };
        let first = *listed.get();
        if first != id {
            return self.used(first).others -= 1;
        }
        let others = match self.slots[usize::from(id.0)] {
            AhSlot::Used(Ah { others: 0, .. }) | AhSlot::Free => {
                listed.remove();
                return;
            }
            AhSlot::Used(Ah { others, .. }) => others - 1,
        };
        let is_other = |(i, s): &(usize, &AhSlot)| {
            *i != usize::from(id.0) && matches!(s, AhSlot::Used(a) if a.ip == *ip)
        };
        let other = self.slots.iter().enumerate().find(is_other).map(|(i, _)| AhId(i as u16));
        debug_assert!(other.is_some(), "as many as are counted");
        if let Some(other) = other {
            *listed.get_mut() = other;
            self.used(other).others = others;
        }
    }
    pub fn uses_pd(&self, pd: PdId) -> bool {
        self.slots.iter().any(|s| matches!(s, AhSlot::Used(a) if a.pd == pd))
    }
}

fn hash_of(ip: &IpAddr) -> u64 {
    FxBuildHasher.hash_one(ip)
}

/// The address of a live handle.
fn ip_of(slots: &[AhSlot], id: AhId) -> IpAddr {
    match &slots[usize::from(id.0)] {
        AhSlot::Used(ah) => ah.ip,
        AhSlot::Free => unreachable!("only live handles are listed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use core::net::Ipv4Addr;

    /// A table that is told the numbers and keys of another one has the same handles and regions,
    /// and tells a stale key from a guess as the other does.
    #[test]
    fn a_table_follows_another() {
        let ip = |i: u32| IpAddr::V4(Ipv4Addr::from(0x0A00_0000 + i));
        let (mut a, mut b, mut rng) = (AhTable::default(), AhTable::default(), Rng::from_seed(5));
        let mut live: Vec<AhId> = vec![];
        for now in 0..4_000 {
            if rng.below(5) < 3 && live.len() < 40 {
                let ah = Ah::new(PdId(0), ip(rng.below(12)));
                let id = a.create(Time(now), ah).unwrap();
                assert!(b.create_as(id, ah) && !b.create_as(id, ah));
                live.push(id);
            } else if !live.is_empty() {
                let id = live.swap_remove(rng.below(live.len() as u32) as usize);
                // The clock of the other may be a little ahead.
                let later = u64::from(rng.below(20));
                assert!(a.destroy(id, Time(now + 10)) && b.destroy(id, Time(now + 10 + later)));
            }
            let ips =
                |t: &AhTable| live.iter().map(|&id| t.get(id).unwrap().ip).collect::<Vec<_>>();
            assert_eq!(ips(&a), ips(&b));
        }

        let secret = HashKey { low: 7, high: 9 };
        let (mut a, mut b) = (MrTable::new(secret), MrTable::new(HashKey { low: 1, high: 2 }));
        b.keys_as(&a);
        let mr = Mr { pd: PdId(0), addr: 0x1000, len: 64, access: Access(0) };
        let keys: Vec<MrKey> = (0..500).map(|_| a.register(mr, &mut rng).unwrap()).collect();
        for (i, &key) in keys.iter().enumerate() {
            // Some registrations do not reach the other table.
            assert!(i % 7 == 3 || b.register_as(mr, key) && !b.register_as(mr, key));
            assert!(i % 7 == 3 || a.deregister(key) && b.deregister(key));
        }
        let guesses: Vec<u32> = (0..500).map(|_| rng.next_u64() as u32).collect();
        for key in keys.iter().map(|key| key.0).chain(guesses) {
            assert_eq!(a.has_had(MrKey(key)), b.has_had(MrKey(key)));
        }
        assert!(keys.iter().all(|&key| b.has_had(key)) && a.stand() == b.stand());
    }

    /// Handles for a few addresses are created and destroyed: a lookup always returns a live handle
    /// for its address, and returns one as long as there is one.
    #[test]
    fn an_address_is_found_while_it_has_a_handle() {
        let ip = |i: u32| IpAddr::V4(Ipv4Addr::from(0x0A00_0000 + i));
        let (mut t, mut rng) = (AhTable::default(), Rng::from_seed(4));
        let mut live: Vec<(AhId, u32)> = vec![];
        for now in 0..4_000 {
            let generation = t.generation();
            if rng.below(2) == 0 && live.len() < 40 {
                let i = rng.below(12);
                live.push((t.create(Time(now), Ah::new(PdId(0), ip(i))).unwrap(), i));
            } else if !live.is_empty() {
                let (id, _) = live.swap_remove(rng.below(live.len() as u32) as usize);
                assert!(t.destroy(id, Time(now + 10)) && !t.destroy(id, Time(now + 10)));
            }
            assert!(t.generation() == generation.wrapping_add(1) || live.is_empty());
            for i in 0..12 {
                let found = t.find(&ip(i));
                let right = live.contains(&(found, i));
                let none = found == AhId::UNKNOWN && live.iter().all(|l| l.1 != i);
                assert!(right || none, "{i}: {found:?} of {live:?}");
            }
        }
    }
}
