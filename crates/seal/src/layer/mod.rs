//! The layer between an engine, which knows packets and no keys, and a network, on which packets
//! are sealed.
//!
//! ```text
//! engine ── Open, OpenAck, Challenge, Reset ──► SealLayer ──► SealedOpen, SealedOpenAck, …
//!        ── all other packets ──────────────►             ──► the same, sealed
//!        ◄── plain packets, marked as authentic ──        ◄── what arrives
//! ```
//!
//! The engine names a context by tags, and the tag that it gave to its peer names the keys here:
//! one tag has at most one handshake that it began and one that it answered. So the engine decides
//! everything as it does without a seal (whom it believes, when a cookie is asked for, when an
//! attempt is repeated), and the layer sees to it that what the engine hears in a sealed context
//! was said by the peer.
//!
//! The layer reads no clock and no file. Random bytes come from an [`Entropy`].

#[cfg(test)]
mod attack_tests;
mod inbound;
mod outbound;

use crate::capture_secret::CaptureSecret;
use crate::handshake::{Ends, HalfOpen, Initiator, Proposal};
use crate::packet::OpenError;
use crate::slots::{KeySlots, SlotId};
use crate::{End, Ephemeral, KeyRing, Limits, Refusal, SECRET_BYTES, Suites};
use core::fmt;
use core::net::IpAddr;
use rustc_hash::{FxHashMap, FxHashSet};
use srd_wire::HEADER_BYTES;
use std::collections::{HashMap, VecDeque};
use zeroize::Zeroizing;

/// Most SealedOpens that wait for the engine's answer, and most questions after a context. What is
/// older is forgotten, and the peer repeats it.
const WAITING_MAX: usize = 256;

/// Which contexts a device accepts and begins. It is a local setting: nothing that a peer or the
/// network says changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// None is sealed.
    Never,
    /// Its own are sealed unless the peer answers that it has no key; a peer may open either kind.
    /// Who can send packets from the peer's address, or change packets on the way, can prevent the
    /// seal.
    Prefer,
    /// All are sealed, and no payload leaves in any other way.
    #[default]
    Require,
}

impl Policy {
    /// The policy with this name, as in the environment variable `SRD_SEAL`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Never, Self::Prefer, Self::Require].into_iter().find(|p| p.name() == name)
    }

    /// Its name: `never`, `prefer` or `require`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Prefer => "prefer",
            Self::Require => "require",
        }
    }
}

/// Gives random bytes that nobody else knows: those of the operating system, or in a simulation
/// those of a seed.
pub trait Entropy: Send {
    /// Fills `bytes`. `false`: there are none now, and the handshake is not begun.
    fn fill(&mut self, bytes: &mut [u8; SECRET_BYTES]) -> bool;
}

impl<F: FnMut(&mut [u8; SECRET_BYTES]) -> bool + Send> Entropy for F {
    fn fill(&mut self, bytes: &mut [u8; SECRET_BYTES]) -> bool {
        self(bytes)
    }
}

/// Configuration of a [`SealLayer`].
#[derive(Clone, Copy, Debug)]
pub struct LayerConfig {
    /// Where this engine receives, as its peers know it.
    pub own: End,
    /// UDP port of slot 0.
    pub port_base: u16,
    /// Which contexts are sealed: [`Policy::Prefer`] or [`Policy::Require`].
    pub policy: Policy,
    /// Ciphers, the preferred one first.
    pub suites: Suites,
    /// Length of an epoch, and failures that a context bears.
    pub limits: Limits,
    /// Most contexts of the engine; the layer keeps keys for twice as many, because those of an
    /// ended context are erased a little later.
    pub contexts_max: u32,
}

/// What the layer has done and refused, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCounters {
    /// Handshakes completed, begun by either side.
    pub handshakes: u64,
    /// Packets sealed.
    pub sealed: u64,
    /// Packets opened.
    pub opened: u64,
    /// Sealed packets refused, by the place of the reason in [`OpenError::ALL`].
    pub not_opened: [u64; OpenError::ALL.len()],
    /// Handshake packets refused, by the place of the reason in [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Copies of SealedOpens whose context is open, and those that lost against our own.
    pub repeated: u64,
    /// Packets without a seal that a sealed context or the policy does not take.
    pub unsealed: u64,
    /// Packets of the engine that were not sent because there was no key for them.
    pub withheld: u64,
    /// Packets of contexts without a seal that were sent ([`Policy::Prefer`]).
    pub plain: u64,
}

/// What is known of one tag of the engine.
#[derive(Debug)]
struct Entry {
    peer: End,
    /// The peer's tag; 0 until a handshake has told it.
    peer_tag: u32,
    /// Its keys, once a handshake has given them.
    slot: Option<SlotId>,
    /// The handshake of the peer that was answered, until the peer has shown that it has the keys.
    half: Option<Box<HalfOpen>>,
    /// The handshake that was begun, until it is answered.
    initiator: Option<Box<Initiator>>,
    /// First transmission number of the handshake that was begun.
    own_start: u64,
    /// The pre-shared key of the handshake that was begun is gone since, or is another key now.
    own_retired: bool,
    /// Opens of the engine since `half` is there.
    opens: u8,
    /// [`Policy::Prefer`]: this context is not sealed.
    plain: bool,
    /// Number of the pre-shared key that the keys come from.
    key_id: u32,
    /// That key has left the ring, or another one has its number now.
    retired: bool,
    /// Numbers sealed and opened at the last tick, to tell whether the context rests.
    seen: (u64, u64),
}

impl Entry {
    fn new(peer: End) -> Self {
        Self {
            peer,
            peer_tag: 0,
            slot: None,
            half: None,
            initiator: None,
            own_start: 0,
            own_retired: false,
            opens: 0,
            plain: false,
            key_id: 0,
            retired: false,
            seen: (0, 0),
        }
    }
}

/// A SealedOpen that the engine has not answered yet.
#[derive(Debug)]
struct Waiting {
    from: End,
    proposal: Proposal,
    /// Of the tick before the last one.
    old: bool,
}

/// A question after a context, which the engine has not answered yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    from: End,
    echo_tag: u32,
    key_id: u32,
}

/// What is to be done with a packet of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Write it without a checksum and with 16 bytes of room, and give it to [`SealLayer::seal`].
    Sealed(SlotId),
    /// It opens or ends a context: [`SealLayer::handshake_out`] makes the datagrams.
    Handshake,
    /// Send it as it is.
    Plain,
    /// Do not send it: there is no key for it, and it must not leave without.
    Withheld,
}

/// Datagrams that take the place of a packet that opens or ends a context.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// The packet itself leaves, unsealed.
    pub plain: bool,
    /// Datagrams to the same destination; at most two.
    pub datagrams: Vec<Vec<u8>>,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A packet without a seal, which may be handled as it is.
    Plain,
    /// The first bytes of the datagram, as many as told, are now the packet that the peer sealed.
    /// It is to be marked with [`srd_wire::Flags::SEALED`].
    Opened(usize),
    /// [`SealLayer::made`] is the packet that the peer has sealed, to be marked likewise.
    Made,
    /// A sealed packet with this tag, for which there are no keys: if the engine has no context
    /// with the tag either, its sender should be told.
    Unknown(u32),
    /// The peer that has asked for this tag should be told why it is refused.
    Refuse(u32, srd_wire::CloseCode),
    /// Dropped and counted.
    Dropped,
}

/// Sealing between an engine and the network, as the head of this file describes.
pub struct SealLayer {
    cfg: LayerConfig,
    entropy: Box<dyn Entropy>,
    slots: KeySlots,
    /// By the engine's tag.
    entries: FxHashMap<u32, Entry>,
    /// Tags whose peer has not shown yet that it has the keys.
    unconfirmed: FxHashSet<u32>,
    /// The engine's tag by the peer and its tag. Peers choose their tags, so the hash is keyed.
    by_peer: HashMap<(End, u32), u32>,
    /// The engine's tag of the handshake under way with a peer.
    opening: HashMap<End, u32>,
    waiting: VecDeque<Waiting>,
    /// [`Policy::Prefer`]: Opens without a seal that the engine has not answered yet, by their
    /// sender and its tag. Nothing else is answered without a seal.
    waiting_plain: VecDeque<(End, u32)>,
    asked: VecDeque<Asked>,
    /// The last result of `by_peer`: packets to one peer come in a row.
    recent: Option<(End, u32, SlotId)>,
    made: Vec<u8>,
    /// Secrets of new contexts that nobody has taken yet; `None` unless they were asked for.
    capture: Option<Vec<CaptureSecret>>,
    counters: LayerCounters,
}

impl fmt::Debug for SealLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealLayer")
            .field("cfg", &self.cfg)
            .field("contexts", &self.entries.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl SealLayer {
    /// A layer without contexts.
    pub fn new(cfg: LayerConfig, entropy: impl Entropy + 'static) -> Self {
        Self {
            cfg,
            entropy: Box::new(entropy),
            slots: KeySlots::new(Self::capacity(&cfg)),
            entries: FxHashMap::default(),
            unconfirmed: FxHashSet::default(),
            by_peer: HashMap::new(),
            opening: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_plain: VecDeque::new(),
            asked: VecDeque::new(),
            recent: None,
            made: Vec::new(),
            capture: None,
            counters: LayerCounters::default(),
        }
    }

    fn capacity(cfg: &LayerConfig) -> usize {
        2 * cfg.contexts_max as usize + WAITING_MAX
    }

    /// The policy.
    pub const fn policy(&self) -> Policy {
        self.cfg.policy
    }

    /// Whether nothing may leave or be taken without a seal.
    fn requires(&self) -> bool {
        self.cfg.policy == Policy::Require && !planted!(RequireIgnored)
    }

    /// What it has done so far.
    pub const fn counters(&self) -> &LayerCounters {
        &self.counters
    }

    /// Contexts that have keys.
    pub fn contexts(&self) -> usize {
        self.slots.len()
    }

    /// Keeps the secrets of new contexts for a capture from now on. Who gets them reads these
    /// contexts; call [`Self::capture_take`] after each packet of a handshake.
    pub fn capture_begin(&mut self) {
        self.capture = Some(Vec::new());
    }

    /// Keeps no secrets for a capture any more.
    pub fn capture_end(&mut self) {
        self.capture = None;
    }

    /// Secrets of all contexts as they are now: they open what is sent from now on, and nothing of
    /// earlier epochs.
    pub fn capture_present(&self) -> Vec<CaptureSecret> {
        let of = |(&tag, entry): (&u32, &Entry)| {
            let session = self.slots.session_ref(entry.slot?)?;
            Some(CaptureSecret::of(session, (entry.peer, entry.peer_tag), (self.cfg.own, tag)))
        };
        self.entries.iter().filter_map(of).flatten().collect()
    }

    /// Secrets of contexts that are new since the last call.
    pub fn capture_take(&mut self) -> Vec<CaptureSecret> {
        self.capture.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Highest transmission number of an authentic packet in the context whose peer uses `tag`, if
    /// it has keys: for tests, which see that nothing else moves it.
    pub fn newest(&self, tag: u32) -> Option<u64> {
        let slot = self.entries.get(&tag)?.slot?;
        self.slots.session_ref(slot).map(|session| session.receiver.newest())
    }

    /// The packet of the last [`Incoming::Made`].
    pub fn made(&self) -> &[u8] {
        &self.made
    }

    /// Erases what belongs to contexts that the engine no longer has, forgets what it has not
    /// answered, and frees prepared keys of contexts that rest. To be called each second or so,
    /// when no packet of the engine waits. Returns the tags of contexts whose pre-shared key has
    /// left the ring: they should end.
    pub fn tick(&mut self, ring: &KeyRing, mut has_context: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut retired = Vec::new();
        let Self { entries, slots, unconfirmed, by_peer, opening, waiting, asked, .. } = self;
        entries.retain(|&tag, entry| {
            if !has_context(tag) {
                if let Some(slot) = entry.slot
                    && !planted!(KeysKept)
                {
                    slots.remove(slot);
                }
                unconfirmed.remove(&tag);
                if by_peer.get(&(entry.peer, entry.peer_tag)) == Some(&tag) {
                    by_peer.remove(&(entry.peer, entry.peer_tag));
                }
                if opening.get(&entry.peer) == Some(&tag) {
                    opening.remove(&entry.peer);
                }
                return false;
            }
            if let Some(session) = entry.slot.and_then(|slot| slots.session(slot)) {
                let seen = (session.sender.next(), session.receiver.newest());
                if core::mem::replace(&mut entry.seen, seen) == seen {
                    session.rest();
                }
                let gone = entry.key_id != 0 && ring.accepted(entry.key_id).is_none();
                if (gone || entry.retired) && !planted!(RetiredKept) {
                    retired.push(tag);
                }
            }
            true
        });
        waiting.retain_mut(|w| !core::mem::replace(&mut w.old, true));
        asked.clear();
        self.waiting_plain.clear();
        self.recent = None;
        retired.sort_unstable();
        retired
    }

    /// The pre-shared keys with these numbers are gone, or are other keys now: contexts that come
    /// from them should end, those that are about to begin included, and [`Self::tick`] returns
    /// them from now on. Handshakes of peers with these keys that wait for the engine are
    /// forgotten.
    pub fn keys_removed(&mut self, ids: &[u32]) {
        self.waiting.retain(|waiting| !ids.contains(&waiting.proposal.key_id()));
        self.asked.retain(|asked| !ids.contains(&asked.key_id));
        self.entries.values_mut().for_each(|entry| {
            entry.retired |= entry.slot.is_some() && ids.contains(&entry.key_id);
            let begun = entry.initiator.as_ref().map(|initiator| initiator.key_id());
            entry.own_retired |= begun.is_some_and(|id| ids.contains(&id));
        });
    }

    /// Handshakes begin with another pre-shared key from now on: the tags, in order, of those that
    /// were begun with the one before and are not answered. The engine should open each of them
    /// with another tag, and tell that by [`Self::handshake_forget`]: peers that are a step ahead
    /// in a change of keys may not accept the key before any more.
    pub fn handshakes_begun(&self) -> Vec<u32> {
        let begun = |entry: &Entry| entry.initiator.is_some() && !planted!(HandshakesKept);
        let begun = self.entries.iter().filter(|(_, entry)| begun(entry));
        let mut tags: Vec<u32> = begun.map(|(&tag, _)| tag).collect();
        tags.sort_unstable();
        tags
    }

    /// The engine has given up this tag: a late answer to the handshake that was begun for it has
    /// no effect.
    pub fn handshake_forget(&mut self, tag: u32) {
        if let Some(entry) = self.entries.get_mut(&tag) {
            entry.initiator = None;
            if self.opening.get(&entry.peer) == Some(&tag) {
                self.opening.remove(&entry.peer);
            }
        }
    }

    /// The engine has another tag for the peer of this one: what was answered with it is over, and
    /// a copy of it is answered with the new tag.
    fn answer_forget(&mut self, tag: u32) {
        self.settle(tag);
        self.keys_drop(tag);
    }

    /// Erases the keys of a tag.
    fn keys_drop(&mut self, tag: u32) {
        self.recent = None;
        let Some(entry) = self.entries.get_mut(&tag) else { return };
        if let Some(old) = entry.slot.take() {
            self.slots.remove(old);
            if self.by_peer.get(&(entry.peer, entry.peer_tag)) == Some(&tag) {
                self.by_peer.remove(&(entry.peer, entry.peer_tag));
            }
        }
    }

    fn end_of(&self, ip: IpAddr, slot: u8) -> End {
        End { ip, port: self.cfg.port_base.wrapping_add(u16::from(slot)) }
    }

    /// The ends of a handshake that this engine begins.
    fn ends_to(&self, peer: End) -> Ends {
        Ends { initiator: self.cfg.own, responder: peer }
    }

    /// The ends of a handshake that the peer begins.
    fn ends_from(&self, peer: End) -> Ends {
        Ends { initiator: peer, responder: self.cfg.own }
    }

    fn ephemeral(&mut self) -> Option<Ephemeral> {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        self.entropy.fill(&mut bytes).then(|| Ephemeral::take(&mut bytes))
    }

    /// The entry of a tag, made if there is room for one.
    fn entry(&mut self, tag: u32, peer: End) -> Option<&mut Entry> {
        let full = self.entries.len() >= Self::capacity(&self.cfg);
        if full && !self.entries.contains_key(&tag) {
            return None;
        }
        Some(self.entries.entry(tag).or_insert_with(|| Entry::new(peer)))
    }

    /// Gives the keys of a handshake to a tag, in place of those that it may have.
    fn keys_set(
        &mut self,
        tag: u32,
        peer_tag: u32,
        session: crate::Session,
        key_id: u32,
    ) -> Option<SlotId> {
        self.keys_drop(tag);
        let entry = self.entries.get_mut(&tag)?;
        if let Some(capture) = &mut self.capture {
            // More than one handshake at a time is not made between two calls of `capture_take`.
            capture.truncate(2 * WAITING_MAX);
            let (peer, own) = ((entry.peer, peer_tag), (self.cfg.own, tag));
            capture.extend(CaptureSecret::of(&session, peer, own));
        }
        let slot = self.slots.insert(tag, session).ok()?;
        (entry.slot, entry.peer_tag, entry.key_id) = (Some(slot), peer_tag, key_id);
        entry.retired = false;
        self.by_peer.insert((entry.peer, peer_tag), tag);
        self.counters.handshakes += 1;
        Some(slot)
    }

    /// Forgets the handshakes of a tag: its keys are settled.
    fn settle(&mut self, tag: u32) {
        self.unconfirmed.remove(&tag);
        if let Some(entry) = self.entries.get_mut(&tag) {
            (entry.half, entry.initiator) = (None, None);
            if self.opening.get(&entry.peer) == Some(&tag) {
                self.opening.remove(&entry.peer);
            }
        }
    }

    fn refusal_count(&mut self, refusal: Refusal) {
        let at = Refusal::ALL.iter().position(|&r| r == refusal);
        self.counters.refused[at.expect("the list has every reason")] += 1;
    }
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

fn header_of(packet: &[u8]) -> [u8; HEADER_BYTES] {
    *packet.first_chunk().expect("a packet has a header")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::IDLE_BYTES;

    /// An idle sealed peer: its slot, and its places in the two maps of the layer, which are at
    /// least 7/16 full.
    #[test]
    fn an_idle_peer_is_small() {
        let entry = size_of::<(u32, Entry)>() + 1;
        let by_peer = size_of::<((End, u32), u32)>() + 1;
        let bytes = IDLE_BYTES + (entry + by_peer) * 16 / 7;
        assert!(bytes <= 700, "{bytes} bytes");
    }
}
