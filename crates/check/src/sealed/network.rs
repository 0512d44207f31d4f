//! What the network sees: every datagram that honest engines have sent, and the oracles that need
//! no more than that.

use super::member::{Left, MARK};
use super::plan::Plan;
use crate::ledger::Oracle;
use rustc_hash::{FxHashMap, FxHashSet};
use srd_core::Endpoint;
use srd_core::wire::{Flags, HEADER_BYTES, PacketType};
use srd_seal::{CONTEXT_GONE, SEALED_OPEN, SEALED_OPEN_ACK, SlotId};
use std::net::IpAddr;

/// Datagrams that an attacker remembers.
const MEMORY_MAX: usize = 512;

/// Types that open and end contexts, and carry nothing of a user.
const OPENING: [u8; 4] = [
    PacketType::Open as u8,
    PacketType::OpenAck as u8,
    PacketType::Challenge as u8,
    PacketType::Reset as u8,
];

/// Type of a packet.
pub(super) fn kind_of(bytes: &[u8]) -> u8 {
    bytes[0] & 0x1f
}

/// Whether a datagram is one of the packets of handshakes and questions, which no context's keys
/// seal.
pub(super) fn is_greeting(bytes: &[u8]) -> bool {
    is_sealed(bytes) && (SEALED_OPEN..=CONTEXT_GONE).contains(&kind_of(bytes))
}

/// Whether a datagram says that it is sealed.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    bytes[1] & Flags::SEALED != 0
}

/// A datagram on the network.
#[derive(Clone, Debug)]
pub(super) struct Gram {
    pub bytes: Vec<u8>,
    pub src: IpAddr,
    pub dst: Endpoint,
    /// The member whose engine made exactly these bytes for this destination.
    pub honest: Option<usize>,
    /// Its place in the order of all that honest engines have sent, and when it left.
    pub id: u64,
    pub at: u64,
    /// Request whose payload it carries.
    pub job: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// First bytes of the streams of all ciphers so far.
    streams: FxHashSet<u128>,
    /// Sender, its life, its keys, and number of all packets so far that carry data.
    numbers: FxHashSet<(usize, u32, SlotId, u32)>,
    /// Sender, receiver and tag of sealed contexts.
    contexts: FxHashSet<(usize, Endpoint, u32)>,
    /// Sender, its life and its keys, and when they sealed the first packet that carries data.
    keys: FxHashMap<(usize, u32, SlotId), u64>,
    /// Answers to handshakes so far, by sender and receiver.
    answers: FxHashMap<(usize, Endpoint), u32>,
    /// What an attacker may use again: the newest, and some of all lives.
    pub past: Vec<Gram>,
    /// Tags seen in packets from one member to another's endpoint.
    pub tags: FxHashMap<(usize, Endpoint), u32>,
    /// The last question: who asked whom, and its packet.
    pub asked: Option<Gram>,
    /// The last packet within a context that opens or ends one.
    pub opener: Option<Gram>,
    /// Datagrams, and those that were sealed within a context.
    pub sent: u64,
    pub sealed: u64,
    pub wrong: Option<(Oracle, String)>,
}

impl Network {
    fn fail(&mut self, oracle: Oracle, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(|| (oracle, what()));
    }

    /// Checks a datagram of an honest engine (or of a liar, whose layer is as it should be).
    pub fn leave(
        &mut self,
        plan: &Plan,
        (from, life): (usize, u32),
        to: Option<usize>,
        left: &Left,
        now: u64,
    ) {
        self.sent += 1;
        self.secrecy_check(plan, from, to, left);
        let Left { bytes, dst, text, .. } = left;
        let tag = u32::from_be_bytes(*bytes[4..].first_chunk().expect("a header"));
        if tag != 0 && !is_greeting(bytes) {
            self.tags.insert((from, *dst), tag);
        }
        let Some(text) = text else { return };
        self.sealed += 1;
        self.contexts.insert((from, *dst, tag));
        let number = u32::from_be_bytes(*bytes[8..].first_chunk().expect("a header"));
        if let Some(slot) = left.slot {
            if !self.numbers.insert((from, life, slot, number)) {
                self.fail(Oracle::Nonce, || format!("member {from}: a number twice: {bytes:02x?}"));
            }
            let first = *self.keys.entry((from, life, slot)).or_insert(now);
            // A context with itself comes from no pre-shared key.
            if to != Some(from) && plan.is_retired(first, now) {
                let what = "uses keys that come from a pre-shared one which was removed";
                self.fail(Oracle::Authentic, || format!("member {from}, to {dst:?}, {what}"));
            }
        }
        // The stream of the cipher depends on key and nonce alone: twice the same stream is twice
        // the same nonce under one key.
        let both = bytes[HEADER_BYTES..].first_chunk::<16>();
        let both = both.zip(text.get(HEADER_BYTES..).and_then(|t| t.first_chunk::<16>()));
        let Some((sealed, plain)) = both else { return };
        let stream = u128::from_be_bytes(*sealed) ^ u128::from_be_bytes(*plain);
        if !self.streams.insert(stream) {
            self.fail(Oracle::Nonce, || {
                format!("member {from} used a nonce twice: {:02x?}", &text[..HEADER_BYTES])
            });
        }
    }

    /// Nothing that has to be sealed leaves without a seal, and then shows nothing.
    fn secrecy_check(&mut self, plan: &Plan, from: usize, to: Option<usize>, left: &Left) {
        let Left { bytes, dst, .. } = left;
        let tag = u32::from_be_bytes(*bytes[4..].first_chunk().expect("a header"));
        let bare = !is_sealed(bytes);
        let kind = kind_of(bytes);
        let opens = OPENING.contains(&kind);
        let must = plan.hides(from, to) && kind != PacketType::Reset as u8;
        if bare && (must || !opens && self.contexts.contains(&(from, *dst, tag))) {
            let head = &bytes[..HEADER_BYTES];
            self.fail(Oracle::Secrecy, || {
                format!("member {from} sends without a seal to {dst:?}: {head:02x?}")
            });
        }
        let shown = || bytes.windows(MARK.len()).any(|w| w == MARK);
        if (!bare || plan.hides(from, to)) && shown() {
            self.fail(Oracle::Secrecy, || format!("member {from} shows payload to {dst:?}"));
        }
    }

    /// Whether the network loses this answer to a handshake: the first ones of a pair, and all of a
    /// while.
    pub fn loses_answer(
        &mut self,
        plan: &Plan,
        from: usize,
        to: Option<usize>,
        gram: &Gram,
        now: u64,
    ) -> bool {
        let answer = is_greeting(&gram.bytes) && kind_of(&gram.bytes) == SEALED_OPEN_ACK;
        let Some(to) = to.filter(|_| answer) else { return false };
        let so_far = self.answers.entry((from, gram.dst)).or_default();
        *so_far += 1;
        if plan.answers_lost_ns.is_some_and(|[from, until]| (from..until).contains(&now)) {
            return true;
        }
        *so_far <= plan.answers_lost[usize::from(from > to)]
    }

    /// An attacker remembers a datagram. `at` chooses which one is forgotten for it.
    pub fn remember(&mut self, gram: &Gram, at: usize) {
        if kind_of(&gram.bytes) == srd_seal::CONTEXT_QUERY {
            self.asked = Some(gram.clone());
        }
        if is_sealed(&gram.bytes) && OPENING.contains(&kind_of(&gram.bytes)) {
            self.opener = Some(gram.clone());
        }
        if self.past.len() < MEMORY_MAX {
            self.past.push(gram.clone());
        } else {
            self.past[at % MEMORY_MAX] = gram.clone();
        }
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
