//! The table of contexts: found by tag (packets), by endpoint (posts, Opens), by number.

use super::origins::Origins;
use crate::api::Endpoint;
use crate::hash::Keyed;
use crate::ids::Ctx;
use crate::peer::Context;
use crate::random::Random;
use core::hash::BuildHasher;
use hashbrown::HashTable;
use rustc_hash::FxHashMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct ContextTable {
    slots: Vec<Option<Context>>,
    free: Vec<Ctx>,
    /// Tags are random numbers of ours: no keyed hash needed.
    by_tag: FxHashMap<u32, Ctx>,
    /// The one that was found last: packets of a peer come in runs. Tag 0, of none: not known.
    recent: (u32, Ctx),
    /// Numbers only: the endpoint is in the context.
    by_endpoint: HashTable<Ctx>,
    keyed: Keyed,
    max: u32,
    /// Contexts by network of the peer.
    pub origins: Origins,
}

impl ContextTable {
    pub fn new(max: u32, rng: &mut impl Random) -> Self {
        let keyed = Keyed::draw(rng);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_tag: FxHashMap::default(),
            recent: (0, Ctx(0)),
            by_endpoint: HashTable::new(),
            origins: Origins::new(keyed.clone()),
            keyed,
            max,
        }
    }

    pub fn len(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }
    /// Beyond three quarters, strangers must prove their address first.
    pub fn is_nearly_full(&self) -> bool {
        self.len() >= self.max - self.max / 4
    }
    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// A tag that no context has; never 0.
    pub fn tag_draw(&self, rng: &mut impl Random) -> u32 {
        if planted!(TagCounted) {
            return (1..).find(|t| !self.by_tag.contains_key(t)).unwrap_or(1);
        }
        loop {
            let tag = rng.next_u32();
            if tag != 0 && !self.by_tag.contains_key(&tag) {
                return tag;
            }
        }
    }

    /// Takes a context in; the caller has made sure that there is room and no other for its peer.
    pub fn insert(&mut self, c: Context) -> Ctx {
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Ctx(self.slots.len() as u32 - 1)
        });
        debug_assert!(
            c.local_tag != 0 && self.by_endpoint(&c.endpoint).is_none(),
            "one for each peer"
        );
        let other = self.by_tag.insert(c.local_tag, i);
        debug_assert!(other.is_none(), "a tag is drawn for one");
        let hash = self.keyed.hash_one(c.endpoint);
        self.slots[i.index()] = Some(c);
        let (slots, keyed) = (&self.slots, &self.keyed);
        self.by_endpoint.insert_unique(hash, i, |&k| {
            keyed.hash_one(peer_of(slots, k).expect("only live contexts are listed"))
        });
        i
    }

    pub fn remove(&mut self, i: Ctx) -> Context {
        let c = self.slots[i.index()].take().expect("a context ends once");
        let listed = self.by_tag.remove(&c.local_tag);
        debug_assert_eq!(listed, Some(i), "found by its tag until it ends");
        if !planted!(TagRemembered) {
            self.recent = (0, Ctx(0));
        }
        let found = self.by_endpoint.find_entry(self.keyed.hash_one(c.endpoint), |&k| k == i);
        debug_assert!(found.is_ok(), "found by its endpoint until it ends");
        if let Ok(entry) = found {
            entry.remove();
        }
        debug_assert!(self.free.len() < self.slots.len(), "a number is free once");
        self.free.push(i);
        c
    }

    /// Gives a context another tag: packets with the old one are strangers' from now on.
    pub fn retag(&mut self, i: Ctx, tag: u32) {
        let old = core::mem::replace(&mut self.get_mut(i).local_tag, tag);
        let listed = self.by_tag.remove(&old);
        debug_assert_eq!(listed, Some(i), "it had the old one");
        self.recent = (0, Ctx(0));
        let other = self.by_tag.insert(tag, i);
        debug_assert!(tag != 0 && other.is_none(), "a tag is drawn for one");
    }

    pub fn by_tag(&self, tag: u32) -> Option<Ctx> {
        self.by_tag.get(&tag).copied()
    }
    /// The same for a packet that came.
    #[inline]
    pub fn by_tag_noted(&mut self, tag: u32) -> Option<Ctx> {
        if tag == self.recent.0 && tag != 0 {
            let known = self.find(self.recent.1).is_some_and(|c| c.local_tag == tag);
            debug_assert!(known, "what is remembered is true");
            return Some(self.recent.1);
        }
        let found = self.by_tag(tag)?;
        self.recent = (tag, found);
        Some(found)
    }
    pub fn by_endpoint(&self, e: &Endpoint) -> Option<Ctx> {
        let same = |&k: &Ctx| peer_of(&self.slots, k) == Some(*e);
        self.by_endpoint.find(self.keyed.hash_one(e), same).copied()
    }
    #[inline(always)]
    pub fn get(&self, i: Ctx) -> &Context {
        self.slots[i.index()].as_ref().expect("only live contexts are referred to")
    }
    #[inline(always)]
    pub fn get_mut(&mut self, i: Ctx) -> &mut Context {
        self.slots[i.index()].as_mut().expect("only live contexts are referred to")
    }
    pub fn find(&self, i: Ctx) -> Option<&Context> {
        self.slots.get(i.index())?.as_ref()
    }
    pub fn find_mut(&mut self, i: Ctx) -> Option<&mut Context> {
        self.slots.get_mut(i.index())?.as_mut()
    }
    /// Slots in use or free: numbers run below this.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }
    /// Numbers of all slots.
    pub fn numbers(&self) -> impl Iterator<Item = Ctx> + use<> {
        (0..self.slots()).map(Ctx)
    }
    pub fn iter(&self) -> impl Iterator<Item = (Ctx, &Context)> {
        self.slots.iter().enumerate().filter_map(|(i, s)| s.as_ref().map(|c| (Ctx(i as u32), c)))
    }
}

fn peer_of(slots: &[Option<Context>], i: Ctx) -> Option<Endpoint> {
    slots[i.index()].as_ref().map(|c| c.endpoint)
}
