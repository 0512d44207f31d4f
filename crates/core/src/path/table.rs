//! One path-and-rate context per remote address, shared by all reliability contexts to it.

use super::waits::Waits;
use super::{Denials, PathContext, PathMtu};
use crate::hash::Keyed;
use crate::ids::{Ctx, Network, Way};
use crate::random::Random;
use crate::time::Time;
use core::hash::BuildHasher;
use core::net::IpAddr;
use hashbrown::HashTable;

/// Entry of one remote address.
#[derive(Debug)]
pub(crate) struct PathEntry {
    /// Number of the entry in the table.
    pub number: Way,
    pub ip: IpAddr,
    /// The network that the address belongs to.
    pub network: Network,
    pub paths: PathContext,
    /// Reliability contexts that use it.
    pub contexts: u32,
    /// Number of these contexts with window state.
    pub active: u32,
    /// Contexts that wait to send.
    pub waits: Waits,
    /// Reads being served to these contexts.
    pub jobs: u32,
    /// The context that sent last; probes of paths are sent on it.
    pub carrier: Ctx,
    /// Path MTU. After a change of it, [`MtuCounts::recount`] must be called.
    pub mtu: PathMtu,
    /// How the entry is counted in [`MtuCounts`]: as small, as awake.
    counted: [bool; 2],
    /// Credit units granted so far to all contexts of the address together (wraps).
    pub credit_total: u32,
}

/// Numbers of addresses with a reduced path MTU or a search for it. While both are zero, which is
/// the usual case, the datapath need not look at the address's path MTU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MtuCounts {
    /// Addresses to which packets may not have the full size.
    pub small: u32,
    /// Addresses for which acknowledgments and echoes bear on the path MTU.
    pub awake: u32,
}

/// The table of remote addresses. Strangers choose their addresses, so the hash is keyed.
#[derive(Debug)]
pub(crate) struct PathTable {
    slots: Vec<Option<PathEntry>>,
    free: Vec<Way>,
    /// Numbers of entries; the address is in the entry.
    by_ip: HashTable<Way>,
    keyed: Keyed,
    /// Denied paths by address, whether or not the address has an entry.
    pub denials: Denials,
}

impl MtuCounts {
    /// Counts an address anew after a change of its `mtu`.
    pub fn recount(&mut self, e: &mut PathEntry) {
        let now = [e.mtu.is_small(), e.mtu.is_awake()];
        self.replace(core::mem::replace(&mut e.counted, now), now);
    }
    /// The address is forgotten.
    pub fn forget(&mut self, e: &PathEntry) {
        self.replace(e.counted, [false; 2]);
    }
    fn replace(&mut self, was: [bool; 2], now: [bool; 2]) {
        self.small = self.small - u32::from(was[0]) + u32::from(now[0]);
        self.awake = self.awake - u32::from(was[1]) + u32::from(now[1]);
    }
}

impl PathEntry {
    /// Largest payload of a packet at present, where both ends accept `full`.
    #[inline(always)]
    pub fn payload_max(&self, sizes: &MtuCounts, full: u16) -> u16 {
        debug_assert!(sizes.small > 0 || !self.mtu.is_small(), "counted");
        if sizes.small == 0 { full } else { full.min(self.mtu.size()) }
    }

    /// The same for a packet whose headers are `spare` bytes shorter than the longest.
    #[inline(always)]
    pub fn message_max(&self, sizes: &MtuCounts, full: u16, spare: u16) -> u16 {
        if sizes.small == 0 { full } else { full.min(self.mtu.size().saturating_add(spare)) }
    }

    /// Next deadline of the address: a probe, the search for the path MTU, or a context that waits
    /// for the pacer.
    pub fn deadline(&self) -> Time {
        self.paths.probe_next().min(self.mtu.next()).min(self.waits.pace_at())
    }
}

impl PathTable {
    pub fn new(rng: &mut impl Random) -> Self {
        let (by_ip, keyed) = (HashTable::new(), Keyed::draw(rng));
        let denials = Denials::default();
        Self { slots: Vec::new(), free: Vec::new(), by_ip, keyed, denials }
    }
    /// All slots, used or free.
    pub fn all(&self) -> &[Option<PathEntry>] {
        &self.slots
    }
    pub fn iter(&self) -> impl Iterator<Item = &PathEntry> {
        self.slots.iter().flatten()
    }
    pub fn by_ip(&self, ip: &IpAddr) -> Option<Way> {
        let same = |&k: &Way| ip_of(&self.slots, k) == Some(*ip);
        self.by_ip.find(self.keyed.hash_one(ip), same).copied()
    }
    pub fn insert(&mut self, ip: IpAddr, network: Network, paths: PathContext) -> Way {
        let entry = PathEntry {
            number: Way(0),
            ip,
            network,
            paths,
            contexts: 0,
            active: 0,
            waits: Waits::default(),
            jobs: 0,
            carrier: Ctx(0),
            mtu: PathMtu::default(),
            counted: [false; 2],
            credit_total: 0,
        };
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Way(self.slots.len() as u32 - 1)
        });
        self.slots[i.index()] = Some(PathEntry { number: i, ..entry });
        let (slots, keyed) = (&self.slots, &self.keyed);
        self.by_ip.insert_unique(keyed.hash_one(ip), i, |&k| {
            keyed.hash_one(ip_of(slots, k).expect("only live entries are listed"))
        });
        i
    }
    pub fn remove(&mut self, i: Way) -> Option<PathEntry> {
        let e = self.slots[i.index()].take()?;
        if let Ok(entry) = self.by_ip.find_entry(self.keyed.hash_one(e.ip), |&k| k == i) {
            entry.remove();
        }
        debug_assert!(e.number == i && self.free.len() < self.slots.len(), "a number is free once");
        debug_assert!(e.waits.paced_first().is_none(), "who waits for the pacer has left");
        self.free.push(i);
        Some(e)
    }
    #[inline(always)]
    pub fn get(&self, i: Way) -> &PathEntry {
        self.slots[i.index()].as_ref().expect("only live path contexts are referred to")
    }
    #[inline(always)]
    pub fn get_mut(&mut self, i: Way) -> &mut PathEntry {
        self.slots[i.index()].as_mut().expect("only live path contexts are referred to")
    }
    pub fn find_mut(&mut self, i: Way) -> Option<&mut PathEntry> {
        self.slots.get_mut(i.index())?.as_mut()
    }
}

fn ip_of(slots: &[Option<PathEntry>], i: Way) -> Option<IpAddr> {
    slots[i.index()].as_ref().map(|e| e.ip)
}
