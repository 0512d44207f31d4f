//! The table of contexts, with lookup by tag (for packets), by endpoint (for posts and Opens) and
//! by number.

use super::origins::Origins;
use crate::api::Endpoint;
use crate::hash::Keyed;
use crate::ids::{Ctx, OwnTag};
use crate::peer::Context;
use crate::random::Random;
use core::hash::BuildHasher;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// The context that was last found by its tag; `OwnTag::NONE` if there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    tag: OwnTag,
    ci: Ctx,
}

/// The table of contexts.
#[derive(Debug)]
pub(crate) struct ContextTable {
    slots: Vec<Option<Context>>,
    free: Vec<Ctx>,
    /// Context numbers by tag; the tag itself is in the context. We draw tags at random, so no
    /// keyed hash is needed.
    by_tag: HashTable<Ctx>,
    /// Cache of the last lookup, because packets of a peer come in runs.
    recent: Recent,
    /// Context numbers by endpoint; the endpoint itself is in the context.
    by_endpoint: HashTable<Ctx>,
    keyed: Keyed,
    max: u32,
    /// Counts of contexts by network of the peer.
    pub origins: Origins,
}

impl ContextTable {
    pub fn new(max: u32, rng: &mut impl Random) -> Self {
        let keyed = Keyed::draw(rng);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_tag: HashTable::new(),
            recent: Recent::default(),
            by_endpoint: HashTable::new(),
            origins: Origins::new(keyed.clone()),
            keyed,
            max,
        }
    }

    /// All slots, used or free.
    pub fn all(&self) -> &[Option<Context>] {
        &self.slots
    }
    pub fn len(&self) -> u32 {
        debug_assert!(self.free.len() <= self.slots.len(), "a number is free once");
        (self.slots.len() - self.free.len()) as u32
    }
    /// Whether three quarters of the table are in use, so that strangers must prove their address.
    pub fn is_nearly_full(&self) -> bool {
        self.len() >= self.max - self.max / 4
    }
    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Draws a tag that no context has.
    pub fn tag_draw(&self, rng: &mut impl Random) -> OwnTag {
        if planted!(TagCounted) {
            let free = |&t: &OwnTag| self.by_tag(t).is_none();
            return (1..).map(OwnTag).find(free).unwrap_or(OwnTag(1));
        }
        loop {
            let tag = OwnTag(rng.next_u32());
            if tag != OwnTag::NONE && self.by_tag(tag).is_none() {
                return tag;
            }
        }
    }

    /// Adds a context; the caller has checked that there is room, and no other context for its
    /// peer.
    pub fn insert(&mut self, c: Context) -> Ctx {
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Ctx(self.slots.len() as u32 - 1)
        });
        debug_assert!(
            c.handshake().local_tag() != OwnTag::NONE && self.by_endpoint(&c.endpoint()).is_none(),
            "one for each peer"
        );
        let (tag, hash) = (c.handshake().local_tag(), self.keyed.hash_one(c.endpoint()));
        debug_assert!(self.slots[i.index()].is_none(), "a number of nobody");
        self.slots[i.index()] = Some(c);
        self.list_tag(tag, i);
        let (slots, keyed) = (&self.slots, &self.keyed);
        self.by_endpoint.insert_unique(hash, i, |&k| {
            keyed.hash_one(peer_of(slots, k).expect("only live contexts are listed"))
        });
        debug_assert!(self.len() <= self.max, "the caller has asked for room");
        i
    }

    pub fn remove(&mut self, i: Ctx) -> Context {
        let c = self.slots[i.index()].take().expect("a context ends once");
        self.unlist_tag(c.handshake().local_tag(), i);
        if !planted!(TagRemembered) {
            self.recent = Recent::default();
        }
        let found = self.by_endpoint.find_entry(self.keyed.hash_one(c.endpoint()), |&k| k == i);
        debug_assert!(found.is_ok(), "found by its endpoint until it ends");
        if let Ok(entry) = found {
            entry.remove();
        }
        debug_assert!(self.free.len() < self.slots.len(), "a number is free once");
        self.free.push(i);
        c
    }

    /// Gives a context another tag: packets with the old one no longer belong to it.
    pub fn retag(&mut self, i: Ctx, tag: OwnTag) {
        let old = self.get_mut(i).handshake_mut().retag(tag);
        debug_assert!(old != tag, "a tag is drawn for one");
        self.unlist_tag(old, i);
        self.recent = Recent::default();
        self.list_tag(tag, i);
    }

    /// Adds context `i` to the index under `tag`, which it has.
    fn list_tag(&mut self, tag: OwnTag, i: Ctx) {
        debug_assert!(tag != OwnTag::NONE && self.by_tag(tag).is_none(), "a tag is drawn for one");
        let slots = &self.slots;
        self.by_tag.insert_unique(hash_of(tag), i, |&k| hash_of(tag_of(slots, k)));
    }
    /// Removes context `i` from the index, where it was under `tag`.
    fn unlist_tag(&mut self, tag: OwnTag, i: Ctx) {
        let listed = self.by_tag.find_entry(hash_of(tag), |&k| k == i);
        debug_assert!(listed.is_ok(), "found by its tag while it has it");
        if let Ok(listed) = listed {
            listed.remove();
        }
    }

    pub fn by_tag(&self, tag: OwnTag) -> Option<Ctx> {
        let found = self.by_tag.find(hash_of(tag), |&k| tag_of(&self.slots, k) == tag).copied();
        debug_assert!(found.is_none() || tag != OwnTag::NONE, "each has a tag");
        found
    }
    /// Like [`Self::by_tag`], for a received packet: with the cache.
    #[inline]
    pub fn by_tag_noted(&mut self, tag: OwnTag) -> Option<Ctx> {
        if tag == self.recent.tag && tag != OwnTag::NONE {
            let ci = self.recent.ci;
            let known = self.find(ci).is_some_and(|c| c.handshake().local_tag() == tag);
            debug_assert!(known, "what is remembered is true");
            return Some(ci);
        }
        let ci = self.by_tag(tag)?;
        debug_assert_eq!(self.get(ci).handshake().local_tag(), tag, "found by its own");
        self.recent = Recent { tag, ci };
        Some(ci)
    }
    pub fn by_endpoint(&self, e: &Endpoint) -> Option<Ctx> {
        let same = |&k: &Ctx| peer_of(&self.slots, k) == Some(*e);
        let found = self.by_endpoint.find(self.keyed.hash_one(e), same).copied();
        debug_assert!(found.is_none_or(|ci| self.find(ci).is_some()), "only live ones are listed");
        found
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
    /// Number of slots, used or free; all context numbers are below.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }
    /// The numbers of all slots, used or free.
    pub fn numbers(&self) -> impl Iterator<Item = Ctx> + use<> {
        (0..self.slots()).map(Ctx)
    }
    pub fn iter(&self) -> impl Iterator<Item = (Ctx, &Context)> {
        self.slots.iter().enumerate().filter_map(|(i, s)| s.as_ref().map(|c| (Ctx(i as u32), c)))
    }
}

fn hash_of(tag: OwnTag) -> u64 {
    FxBuildHasher.hash_one(tag)
}

/// Our tag of a live context.
fn tag_of(slots: &[Option<Context>], i: Ctx) -> OwnTag {
    slots[i.index()].as_ref().map_or(OwnTag::NONE, |c| c.handshake().local_tag())
}

fn peer_of(slots: &[Option<Context>], i: Ctx) -> Option<Endpoint> {
    slots[i.index()].as_ref().map(|c| c.endpoint())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Way;
    use crate::peer::handshake::Handshake;
    use crate::peer::{ContextState, FirstNumbers, Peer};
    use crate::psn::{Psn, TxNum};
    use crate::rng::Rng;
    use crate::time::Time;
    use core::net::Ipv4Addr;

    fn endpoint(i: u32) -> Endpoint {
        Endpoint { ip: Ipv4Addr::from(0x0A00_0000 + i / 4).into(), port: (i % 4) as u16 }
    }

    /// Contexts are added, get new tags and are removed: tag, endpoint and number always find the
    /// same context.
    #[test]
    fn tag_endpoint_and_number_lead_to_the_same_context() {
        let mut rng = Rng::from_seed(3);
        let mut t = ContextTable::new(100, &mut rng);
        let mut live: Vec<(Ctx, u32, OwnTag)> = vec![];
        let mut gone = vec![];
        for step in 0..3_000 {
            let peer = rng.below(60);
            let at = live.iter().position(|l| l.1 == peer);
            let tag = t.tag_draw(&mut rng);
            match (at, rng.below(3)) {
                (None, _) => {
                    let numbers = FirstNumbers { psn: Psn(0), tx_num: TxNum(0) };
                    let handshake = Handshake::new(ContextState::Opening, tag);
                    let new = Peer::new(endpoint(peer), Way(0), handshake, numbers, Time(0));
                    live.push((t.insert(Context::new(new)), peer, tag));
                }
                (Some(at), 0) => {
                    gone.push(core::mem::replace(&mut live[at].2, tag));
                    t.retag(live[at].0, tag);
                }
                (Some(at), 1) => {
                    let (ci, _, tag) = live.swap_remove(at);
                    t.remove(ci);
                    gone.push(tag);
                }
                (Some(at), _) => {
                    let (ci, _, tag) = live[at];
                    assert_eq!((t.by_tag_noted(tag), t.by_tag_noted(tag)), (Some(ci), Some(ci)));
                }
            }
            assert_eq!(t.len() as usize, live.len());
            if step % 50 == 0 {
                for &(ci, peer, tag) in &live {
                    assert_eq!(
                        (t.by_tag(tag), t.by_endpoint(&endpoint(peer))),
                        (Some(ci), Some(ci))
                    );
                    assert_eq!(t.get(ci).endpoint(), endpoint(peer));
                }
                assert!(gone.iter().all(|&tag| t.by_tag(tag).is_none()));
                assert_eq!(t.iter().count(), live.len());
            }
        }
        assert!(!t.is_nearly_full() && live.len() > 20);
    }
}
