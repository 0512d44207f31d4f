//! From the engine to the network.

use super::{Entry, Outgoing, Route, SealLayer, header_of};
use crate::handshake::{
    End, HalfOpen, Initiator, Offer, PARAMS_BYTES, SEALED_CHALLENGE_BYTES, SEALED_OPEN_ACK_BYTES,
    SEALED_OPEN_BYTES,
};
use crate::query::{CONTEXT_GONE, CONTEXT_QUERY, Query};
use crate::slots::SlotId;
use crate::{KeyRing, Session};
use srd_wire::{
    AEAD_TAG_BYTES, Body, Flags, HEADER_BYTES, HEADERS_BYTES_MAX, OpenParams, Packet, emit,
};
use zeroize::Zeroizing;

const DST_TAG_AT: usize = 4;
const NUMBER_AT: usize = 8;
const COOKIE_IN_PARAMS: usize = PARAMS_BYTES - 8;
/// Opens of the engine after which a handshake of its own is begun beside an answered one, because
/// the answered one may have been a copy of an old packet.
const OPENS_ANSWERED: u8 = 2;

/// The bytes of a packet without payload, without checksum.
fn bytes_of(packet: &Packet<'_>) -> ([u8; HEADERS_BYTES_MAX], usize) {
    let mut bare = *packet;
    bare.header.flags = Flags(bare.header.flags.0 & Flags::ACK_REQUEST);
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = emit(&bare, &mut bytes);
    (bytes, len)
}

/// The parameters as they are sealed: the cookie travels apart.
fn params_of(bytes: &[u8]) -> [u8; PARAMS_BYTES] {
    let mut params: [u8; PARAMS_BYTES] =
        *bytes[HEADER_BYTES..].first_chunk().expect("an Open has its parameters");
    params[COOKIE_IN_PARAMS..].fill(0);
    params
}

impl SealLayer {
    /// What is to be done with a packet of the engine to `dst`.
    #[inline]
    pub fn route(&mut self, dst: End, packet: &Packet<'_>) -> Route {
        let tag = packet.header.dst_tag;
        if let Some((end, recent_tag, slot)) = self.recent
            && (end, recent_tag) == (dst, tag)
            && !matches!(
                packet.body,
                Body::OpenAck(_) | Body::Challenge { .. } | Body::Reset { .. }
            )
        {
            return Route::Sealed(slot);
        }
        self.route_find(dst, packet)
    }

    fn route_find(&mut self, dst: End, packet: &Packet<'_>) -> Route {
        if let Body::Open(_) | Body::OpenAck(_) | Body::Challenge { .. } | Body::Reset { .. } =
            packet.body
        {
            return Route::Handshake;
        }
        let key = (dst, packet.header.dst_tag);
        let entry = self.by_peer.get(&key).and_then(|own| self.entries.get(own));
        match entry {
            Some(Entry { slot: Some(slot), .. }) => {
                self.recent = Some((key.0, key.1, *slot));
                Route::Sealed(*slot)
            }
            None if !self.requires() => {
                self.counters.plain += 1;
                Route::Plain
            }
            _ => {
                self.counters.withheld += 1;
                Route::Withheld
            }
        }
    }

    /// Seals a datagram in place: its last 16 bytes are room for the tag. Returns whether it may be
    /// sent; a number that was used before is refused.
    #[inline]
    pub fn seal(&mut self, slot: SlotId, datagram: &mut [u8]) -> bool {
        let sealed = self.slots.session(slot).is_some_and(|session| {
            let low = u32::from_be_bytes(*datagram[NUMBER_AT..].first_chunk().expect("a header"));
            let number = session.sender.number_complete(low);
            session.sender.seal(number, datagram).is_ok()
        });
        if sealed {
            self.counters.sealed += 1;
        } else {
            self.counters.withheld += 1;
        }
        sealed
    }

    /// Makes the datagrams for a packet that opens or ends a context; `padded_len` as in
    /// `srd_core::Transmit`.
    pub fn handshake_out(
        &mut self,
        ring: &KeyRing,
        dst: End,
        packet: &Packet<'_>,
        padded_len: u16,
    ) -> Outgoing {
        let mut out = Outgoing::default();
        let padded = usize::from(padded_len);
        match packet.body {
            Body::Open(ref p) => self.open_out(ring, dst, packet, p, padded, &mut out),
            Body::OpenAck(ref p) => self.open_ack_out(dst, packet, p, padded, &mut out),
            Body::Challenge { echo_tag, cookie } => {
                self.challenge_out(ring, dst, packet, echo_tag, cookie, &mut out);
            }
            Body::Reset { echo_tag, code, nonce } => {
                // Within a context: the goodbye of the engine. Any other Reset goes to a stranger,
                // says nothing secret and is believed by nobody, unless it answers a question.
                let within = self.goodbye_within(dst, packet, echo_tag);
                let datagram = match within {
                    None if nonce != 0 => {
                        self.gone_out(ring, dst, packet, echo_tag, code as u8, nonce)
                    }
                    within => within,
                };
                out.plain = datagram.is_none();
                out.datagrams.extend(datagram);
            }
            _ => out.plain = !self.requires(),
        }
        if out.datagrams.is_empty() && !out.plain {
            self.counters.withheld += 1;
        }
        out
    }

    /// The goodbye of a context, which names our own tag. A refusal does not: anybody who has seen
    /// the peer's tag can cause one that carries it. Such a Reset has no transmission number, and
    /// sealing it could move the count of the context past numbers that the engine still uses.
    fn goodbye_within(&mut self, dst: End, packet: &Packet<'_>, echo_tag: u32) -> Option<Vec<u8>> {
        let tag = packet.header.dst_tag;
        let own = self.by_peer.get(&(dst, tag)).filter(|&&own| tag != 0 && own == echo_tag)?;
        let slot = self.entries.get(own)?.slot?;
        self.within(slot, tag, packet, 0)
    }

    /// A packet that opens, sent within the context whose keys `slot` has.
    fn within(
        &mut self,
        slot: SlotId,
        peer_tag: u32,
        packet: &Packet<'_>,
        padded_len: usize,
    ) -> Option<Vec<u8>> {
        let (bytes, len) = bytes_of(packet);
        let mut datagram = bytes[..len].to_vec();
        datagram[DST_TAG_AT..DST_TAG_AT + 4].copy_from_slice(&peer_tag.to_be_bytes());
        datagram.resize((len + AEAD_TAG_BYTES).max(padded_len), 0);
        self.seal(slot, &mut datagram).then_some(datagram)
    }

    fn open_out(
        &mut self,
        ring: &KeyRing,
        dst: End,
        packet: &Packet<'_>,
        p: &OpenParams,
        padded_len: usize,
        out: &mut Outgoing,
    ) {
        if self.entry(p.tag, dst).is_none() {
            return;
        }
        if dst == self.cfg.own {
            self.itself_begin(p);
        }
        let Some(entry) = self.entries.get_mut(&p.tag) else { return };
        if entry.plain {
            out.plain = true;
            return;
        }
        let (slot, peer_tag, answered) = (entry.slot, entry.peer_tag, entry.half.is_some());
        entry.opens = entry.opens.saturating_add(1);
        let own = entry.initiator.is_some()
            || entry.slot.is_none()
            || answered && entry.opens > OPENS_ANSWERED;
        if let Some(slot) = slot {
            out.datagrams.extend(self.within(slot, peer_tag, packet, padded_len));
        }
        if own {
            let (bytes, _) = bytes_of(packet);
            let begun = self.initiator_begin(ring, dst, p, &bytes);
            if let Some(initiator) = begun {
                let mut datagram = vec![0; padded_len.max(SEALED_OPEN_BYTES)];
                if initiator.write(&header_of(&bytes), &mut datagram).is_ok() {
                    out.datagrams.push(datagram);
                }
            }
        }
    }

    /// The handshake of a tag that this engine begins; the same as long as the tag has it.
    fn initiator_begin(
        &mut self,
        ring: &KeyRing,
        dst: End,
        p: &OpenParams,
        bytes: &[u8],
    ) -> Option<&Initiator> {
        let entry = self.entries.get(&p.tag)?;
        if entry.initiator.is_none() {
            let ephemeral = self.ephemeral()?;
            let params = params_of(bytes);
            let offer = Offer { suites: self.cfg.suites, params: &params };
            let ends = self.ends_to(dst);
            let key = ring.sending();
            let made =
                Initiator::new(key, &ends, self.cfg.limits, p.tag, &offer, ephemeral).ok()?;
            let entry = self.entries.get_mut(&p.tag)?;
            entry.initiator = Some(Box::new(made));
            (entry.own_start, entry.own_retired) = (p.tx_num_start, false);
        }
        if let Some(old) = self.opening.insert(dst, p.tag).filter(|&old| old != p.tag) {
            self.answer_forget(old);
        }
        self.entries.get(&p.tag)?.initiator.as_deref()
    }

    /// A context of the engine with itself needs no handshake: both ends are here.
    fn itself_begin(&mut self, p: &OpenParams) {
        if self.entries.get(&p.tag).is_none_or(|entry| entry.slot.is_some()) {
            return;
        }
        let mut random = Zeroizing::new([0; crate::SECRET_BYTES]);
        if !self.entropy.fill(&mut random) {
            return;
        }
        let (suite, limits) = (self.cfg.suites.first(), self.cfg.limits);
        if let Ok(session) = Session::with_itself(suite, limits, &mut random, p.tx_num_start) {
            self.keys_set(p.tag, p.tag, session, 0);
        }
    }

    fn open_ack_out(
        &mut self,
        dst: End,
        packet: &Packet<'_>,
        p: &OpenParams,
        padded_len: usize,
        out: &mut Outgoing,
    ) {
        let peer_tag = packet.header.dst_tag;
        let known = self.entries.get(&p.tag).filter(|entry| entry.peer_tag == peer_tag);
        let again = planted!(OpenAckRebuilt)
            && self.waiting.iter().any(|w| w.from == dst && w.proposal.tag() == peer_tag);
        if let Some(Entry { slot: Some(slot), half, .. }) = known
            && (half.is_none() || p.cookie != 0)
            && !again
        {
            let slot = *slot;
            out.datagrams.extend(self.within(slot, peer_tag, packet, padded_len));
            return;
        }
        let (bytes, _) = bytes_of(packet);
        if known.is_none_or(|entry| entry.half.is_none()) || again {
            let at =
                self.waiting.iter().position(|w| w.from == dst && w.proposal.tag() == peer_tag);
            let Some(waiting) = at.and_then(|at| self.waiting.remove(at)) else {
                // An answer within a context has a number. Any other leaves without a seal only if
                // it was asked for so: its SealedOpen may have been forgotten.
                let before = self.waiting_plain.len();
                self.waiting_plain.retain(|waiting| *waiting != (dst, peer_tag));
                let asked = self.waiting_plain.len() < before;
                out.plain = (asked || p.cookie != 0) && !self.requires();
                if out.plain
                    && let Some(entry) = self.entries.get_mut(&p.tag)
                {
                    entry.plain = true;
                }
                return;
            };
            self.answer_begin(dst, p, &bytes, waiting.proposal);
        }
        let half = self.entries.get(&p.tag).and_then(|entry| entry.half.as_deref());
        out.datagrams.extend(half.and_then(|half| {
            let mut datagram = vec![0; padded_len.max(SEALED_OPEN_ACK_BYTES)];
            half.write(&header_of(&bytes), &mut datagram).ok().map(|()| datagram)
        }));
    }

    /// Answers the handshake of a peer: the keys are there from now on, and the answer is kept.
    fn answer_begin(
        &mut self,
        dst: End,
        p: &OpenParams,
        bytes: &[u8],
        proposal: crate::Proposal,
    ) -> Option<SlotId> {
        let params = params_of(bytes);
        let (peer_tag, key_id) = (proposal.tag(), proposal.key_id());
        let peer_start = super::inbound::tx_num_start(proposal.params());
        // The engine has one tag for a peer: what it has begun with another one is over.
        if self.opening.get(&dst).is_some_and(|&tag| tag != p.tag) {
            self.opening.remove(&dst);
        }
        let ephemeral = self.ephemeral()?;
        let offer = Offer { suites: self.cfg.suites, params: &params };
        let mut half: HalfOpen = match proposal.answer(&offer, ephemeral) {
            Ok(half) => half,
            Err(refusal) => {
                self.refusal_count(refusal);
                return None;
            }
        };
        let session = half.keys_take()?.session(p.tx_num_start, peer_start).ok()?;
        self.entry(p.tag, dst)?;
        let slot = self.keys_set(p.tag, peer_tag, session, key_id)?;
        let entry = self.entries.get_mut(&p.tag)?;
        entry.half = Some(Box::new(half));
        entry.opens = 0;
        self.unconfirmed.insert(p.tag);
        Some(slot)
    }

    fn challenge_out(
        &mut self,
        ring: &KeyRing,
        dst: End,
        packet: &Packet<'_>,
        echo_tag: u32,
        cookie: u64,
        out: &mut Outgoing,
    ) {
        let (bytes, _) = bytes_of(packet);
        let header = header_of(&bytes);
        let waits = self
            .waiting
            .iter()
            .find(|w| w.from == dst && w.proposal.tag() == packet.header.dst_tag);
        if let Some(waiting) = waits {
            let mut datagram = vec![0; SEALED_CHALLENGE_BYTES];
            if waiting.proposal.challenge_write(cookie, &header, &mut datagram).is_ok() {
                out.datagrams.push(datagram);
            }
        } else if self.by_peer.contains_key(&(dst, echo_tag)) {
            let key = ring.sending();
            let kind = CONTEXT_QUERY;
            let query = Query { kind, key_id: key.id(), echo_tag, nonce: cookie, code: 0 };
            let datagram = query.write(key, &self.ends_to(dst), &self.cfg.limits, &header);
            out.datagrams.push(datagram.to_vec());
        } else {
            out.plain = !self.requires();
        }
    }

    /// The answer to a question after a context that is gone, if there was one.
    fn gone_out(
        &mut self,
        ring: &KeyRing,
        dst: End,
        packet: &Packet<'_>,
        echo_tag: u32,
        code: u8,
        nonce: u64,
    ) -> Option<Vec<u8>> {
        let at = self.asked.iter().position(|a| (a.from, a.echo_tag) == (dst, echo_tag))?;
        let asked = self.asked.remove(at)?;
        let key = ring.accepted(asked.key_id)?;
        let (bytes, _) = bytes_of(packet);
        let query = Query { kind: CONTEXT_GONE, key_id: key.id(), echo_tag, nonce, code };
        let ends = self.ends_to(dst);
        Some(query.write(key, &ends, &self.cfg.limits, &header_of(&bytes)).to_vec())
    }
}
