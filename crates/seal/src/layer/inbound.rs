//! From the network to the engine.

use super::{Asked, Incoming, SealLayer, WAITING_MAX, Waiting, header_of, u32_of};
use crate::handshake::{
    Crossing, End, Greeting, PARAMS_BYTES, SEALED_CHALLENGE, SEALED_OPEN, SEALED_OPEN_ACK,
    SEALED_OPEN_ACK_BYTES, SEALED_OPEN_BYTES, crossing, sealed_open_tag,
};
use crate::packet::OpenError;
use crate::query::{CONTEXT_GONE, CONTEXT_QUERY, Query};
use crate::{KeyRing, Refusal};
use core::net::IpAddr;
use srd_wire::{
    AEAD_TAG_BYTES, CHECKSUM_BYTES, CloseCode, Flags, HEADER_BYTES, PacketType, VERSION,
};

const DST_TAG_AT: usize = 4;
const SLOT_AT: usize = 3;
const TYPE_BITS: u8 = 0x1f;
/// Bytes of an Open or OpenAck without padding.
const OPEN_BYTES: usize = HEADER_BYTES + PARAMS_BYTES;
const TX_NUM_START_AT: usize = 20;
/// Bytes of the Reset that answers a stranger. What is shorter gets no answer, so that nobody can
/// have more bytes sent to somebody else's address than he sends himself.
const RESET_BYTES: usize = HEADER_BYTES + 16 + CHECKSUM_BYTES;
const COOKIE_AT: usize = HEADER_BYTES + PARAMS_BYTES - 8;

/// The first transmission number that parameters tell.
pub(super) fn tx_num_start(params: &[u8; PARAMS_BYTES]) -> u64 {
    u64::from_be_bytes(*params[TX_NUM_START_AT..].first_chunk().expect("52 bytes"))
}

fn tag_of(params: &[u8; PARAMS_BYTES]) -> u32 {
    u32_of(params, 0)
}

impl SealLayer {
    /// Handles a datagram from `src`. What is sealed is opened in place.
    #[inline]
    pub fn receive(&mut self, ring: &KeyRing, src: IpAddr, datagram: &mut [u8]) -> Incoming {
        if datagram.len() < HEADER_BYTES || datagram[0] >> 5 != VERSION {
            // Nobody can read it; the parser says why.
            return Incoming::Plain;
        }
        let kind = datagram[0] & TYPE_BITS;
        if datagram[1] & Flags::SEALED == 0 {
            let reset = kind == PacketType::Reset as u8;
            if planted!(ResetBelieved) && reset {
                return Incoming::Opened(datagram.len());
            }
            if planted!(StrippedTaken) && !reset {
                return Incoming::Opened(datagram.len());
            }
            return self.plain_in(src, datagram);
        }
        if !(SEALED_OPEN..=CONTEXT_GONE).contains(&kind) {
            return self.sealed_in(src, datagram);
        }
        let from = self.end_of(src, datagram[SLOT_AT]);
        let handled = match kind {
            SEALED_OPEN => self.sealed_open_in(ring, from, datagram),
            SEALED_OPEN_ACK => self.sealed_open_ack_in(from, datagram),
            SEALED_CHALLENGE => self.sealed_challenge_in(from, datagram),
            _ => self.query_in(ring, from, datagram),
        };
        handled.unwrap_or_else(|refusal| {
            self.refusal_count(refusal);
            let stranger = matches!(refusal, Refusal::KeyId | Refusal::Mac);
            match sealed_open_tag(datagram).filter(|_| stranger && kind == SEALED_OPEN) {
                Some(tag) => Incoming::Refuse(tag, CloseCode::KeyUnknown),
                None => Incoming::Dropped,
            }
        })
    }

    fn sealed_in(&mut self, src: IpAddr, datagram: &mut [u8]) -> Incoming {
        let tag = u32_of(datagram, DST_TAG_AT);
        match self.slots.open(datagram) {
            Ok(opened) => {
                self.counters.opened += 1;
                // The engine finds the context of these two by address, so the keys must be those
                // of the address: a copy from elsewhere would speak for another peer.
                let kind = datagram[0] & TYPE_BITS;
                let by_address = kind == PacketType::Open as u8 || kind == PacketType::Reset as u8;
                let theirs = self.is_from_peer(tag, src, datagram[SLOT_AT]);
                if by_address && !theirs && !planted!(AddressUnbound) {
                    self.refusal_count(Refusal::Tag);
                    return Incoming::Dropped;
                }
                if !self.unconfirmed.is_empty() && self.unconfirmed.contains(&tag) {
                    self.settle(tag);
                }
                Incoming::Opened(self.opening_restore(datagram, opened.opened.packet.end))
            }
            Err(error) => {
                let at = OpenError::ALL.iter().position(|&e| e == error);
                self.counters.not_opened[at.expect("the list has every reason")] += 1;
                let stranger = error == OpenError::UnknownTag
                    && datagram.len() >= RESET_BYTES
                    && !self.entries.contains_key(&tag);
                if stranger { Incoming::Unknown(tag) } else { Incoming::Dropped }
            }
        }
    }

    /// Whether a datagram from `src` with this slot comes from the peer of the tag.
    fn is_from_peer(&self, tag: u32, src: IpAddr, slot: u8) -> bool {
        let from = self.end_of(src, slot);
        self.entries.get(&tag).is_some_and(|entry| entry.peer == from)
    }

    /// Opens and OpenAcks that were sent within a context look again as the engine made them, and
    /// their padding has the length that the datagram proves. Returns the length of the packet.
    fn opening_restore(&self, datagram: &mut [u8], end: usize) -> usize {
        let kind = datagram[0] & TYPE_BITS;
        if kind == PacketType::Open as u8 {
            datagram[DST_TAG_AT..DST_TAG_AT + 4].fill(0);
        }
        let opens = kind == PacketType::Open as u8 || kind == PacketType::OpenAck as u8;
        if !opens || end <= OPEN_BYTES {
            return end;
        }
        datagram[end..end + AEAD_TAG_BYTES].fill(0);
        end + AEAD_TAG_BYTES
    }

    /// A packet without a seal: the policy decides, and the tag's context.
    fn plain_in(&mut self, src: IpAddr, datagram: &[u8]) -> Incoming {
        let kind = datagram[0] & TYPE_BITS;
        let tag = u32_of(datagram, DST_TAG_AT);
        let from = self.end_of(src, datagram[SLOT_AT]);
        if kind == PacketType::Open as u8 {
            return self.plain_open_in(from, datagram);
        }
        let prefers = !self.requires();
        let Some(entry) = self.entries.get_mut(&tag) else { return Incoming::Plain };
        if kind == PacketType::Reset as u8 {
            // The word of anybody at that address; who prefers a seal does without one then.
            let at =
                HEADER_BYTES + if datagram[1] & Flags::CHECKED != 0 { CHECKSUM_BYTES } else { 0 };
            let unknown = datagram.get(at + 4) == Some(&(CloseCode::SealUnknown as u8));
            if unknown && prefers && entry.peer == from && entry.slot.is_none() {
                (entry.plain, entry.initiator) = (true, None);
            }
            return Incoming::Plain;
        }
        if entry.plain {
            return Incoming::Plain;
        }
        self.counters.unsealed += 1;
        Incoming::Dropped
    }

    fn plain_open_in(&mut self, from: End, datagram: &[u8]) -> Incoming {
        let checked = datagram[1] & Flags::CHECKED != 0;
        let wanted = u32_of(datagram, HEADER_BYTES + if checked { CHECKSUM_BYTES } else { 0 });
        if !self.requires() {
            if self.waiting_plain.len() >= WAITING_MAX {
                self.waiting_plain.pop_front();
            }
            self.waiting_plain.push_back((from, wanted));
            return Incoming::Plain;
        }
        self.counters.unsealed += 1;
        match wanted {
            0 => Incoming::Dropped,
            tag if srd_wire::verify(datagram).is_ok() => {
                Incoming::Refuse(tag, CloseCode::SealRequired)
            }
            _ => Incoming::Dropped,
        }
    }

    fn sealed_open_in(
        &mut self,
        ring: &KeyRing,
        from: End,
        datagram: &[u8],
    ) -> Result<Incoming, Refusal> {
        let ends = self.ends_from(from);
        let greeting = Greeting::read(datagram, &ends, self.cfg.limits, ring)?;
        let proposal = greeting.propose()?;
        if tag_of(proposal.params()) != greeting.tag() {
            return Err(Refusal::Tag);
        }
        let known = self.by_peer.get(&(from, greeting.tag())).and_then(|t| self.entries.get(t));
        // A copy of the SealedOpen whose answer may be lost is answered again. Any other for a tag
        // of the peer that has keys is late, or was replayed.
        let known = known.filter(|_| !planted!(OpenAckRebuilt));
        let answered = known.map(|entry| entry.half.as_ref().is_some_and(|h| h.answers(&greeting)));
        let opening = self.opening.get(&from).and_then(|tag| self.entries.get(tag));
        let ours = opening.and_then(|entry| entry.initiator.as_ref());
        let lost = ours.is_some_and(|i| crossing(i.share(), greeting.share()) == Crossing::Ours);
        if answered == Some(false) || lost || from == self.cfg.own {
            self.counters.repeated += 1;
            return Ok(Incoming::Dropped);
        }
        let padded = if datagram.len() > SEALED_OPEN_BYTES { datagram.len() } else { 0 };
        let (cookie, params) = (greeting.cookie(), *proposal.params());
        self.waiting.retain(|w| w.from != from || w.proposal.tag() != proposal.tag());
        if answered.is_none() {
            if self.waiting.len() >= WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(Waiting { from, proposal, old: false });
        }
        self.made_open(datagram, PacketType::Open, 0, &params, cookie, padded);
        Ok(Incoming::Made)
    }

    fn sealed_open_ack_in(&mut self, from: End, datagram: &[u8]) -> Result<Incoming, Refusal> {
        let tag = u32_of(datagram, DST_TAG_AT);
        let entry = self.entries.get_mut(&tag).filter(|entry| entry.peer == from);
        let entry = entry.ok_or(Refusal::Tag)?;
        let own_start = entry.own_start;
        let initiator = entry.initiator.as_mut().ok_or(Refusal::Settled)?;
        // A late answer for a tag that the engine has replaced: its keys would take the place of
        // those of the present tag, for which the peer may have the same tag.
        if self.opening.get(&from) != Some(&tag) {
            return Err(Refusal::Settled);
        }
        let key_id = initiator.key_id();
        let (keys, params) = initiator.finish(datagram)?;
        let session = keys.session(own_start, tx_num_start(&params))?;
        let peer_tag = tag_of(&params);
        // Each side has answered the other: both must keep the keys of the same handshake. If the
        // tag of the answer is that of the peer's own handshake, that one is no copy of an old one,
        // and the peer, which gets our answer to it, decides by the same shares. Until it has our
        // answer it lacks the keys: the context begins with its first packet.
        let share = *initiator.share();
        let crossed = entry.half.as_ref().filter(|half| half.tag() == peer_tag);
        if crossed.is_some_and(|half| crossing(&share, half.share()) == Crossing::Theirs) {
            self.counters.repeated += 1;
            return Ok(Incoming::Dropped);
        }
        let retired = entry.own_retired;
        self.settle(tag);
        if peer_tag == 0 || self.keys_set(tag, peer_tag, session, key_id).is_none() {
            return Err(Refusal::Tag);
        }
        if let Some(entry) = self.entries.get_mut(&tag) {
            entry.retired = retired;
        }
        let padded = if datagram.len() > SEALED_OPEN_ACK_BYTES { datagram.len() } else { 0 };
        self.made_open(datagram, PacketType::OpenAck, tag, &params, 0, padded);
        Ok(Incoming::Made)
    }

    fn sealed_challenge_in(&mut self, from: End, datagram: &[u8]) -> Result<Incoming, Refusal> {
        let tag = u32_of(datagram, DST_TAG_AT);
        let entry = self.entries.get_mut(&tag).filter(|entry| entry.peer == from);
        let initiator = entry.and_then(|entry| entry.initiator.as_mut()).ok_or(Refusal::Tag)?;
        initiator.challenged(datagram)?;
        let cookie = initiator.cookie();
        self.made_begin(datagram, PacketType::Challenge, tag);
        self.made.extend_from_slice(&tag.to_be_bytes());
        self.made.extend_from_slice(&cookie.to_be_bytes());
        Ok(Incoming::Made)
    }

    fn query_in(
        &mut self,
        ring: &KeyRing,
        from: End,
        datagram: &[u8],
    ) -> Result<Incoming, Refusal> {
        let query = Query::read(datagram, &self.ends_from(from), &self.cfg.limits, ring)?;
        let Query { kind, key_id, echo_tag, nonce, code } = query;
        if kind == CONTEXT_QUERY {
            if self.asked.len() >= WAITING_MAX {
                self.asked.pop_front();
            }
            self.asked.push_back(Asked { from, echo_tag, key_id });
            self.made_begin(datagram, PacketType::Challenge, echo_tag);
            self.made.extend_from_slice(&echo_tag.to_be_bytes());
            self.made.extend_from_slice(&nonce.to_be_bytes());
        } else {
            self.made_begin(datagram, PacketType::Reset, 0);
            self.made.extend_from_slice(&echo_tag.to_be_bytes());
            self.made.extend_from_slice(&[code, 0, 0, 0]);
            self.made.extend_from_slice(&nonce.to_be_bytes());
        }
        Ok(Incoming::Made)
    }

    /// Begins the plain packet that stands for a handshake packet, with its header.
    fn made_begin(&mut self, datagram: &[u8], kind: PacketType, dst_tag: u32) {
        self.made.clear();
        self.made.extend_from_slice(&header_of(datagram));
        self.made[0] = VERSION << 5 | kind as u8;
        self.made[1] &= 0xf0;
        self.made[DST_TAG_AT..DST_TAG_AT + 4].copy_from_slice(&dst_tag.to_be_bytes());
    }

    fn made_open(
        &mut self,
        datagram: &[u8],
        kind: PacketType,
        dst_tag: u32,
        params: &[u8; PARAMS_BYTES],
        cookie: u64,
        padded_len: usize,
    ) {
        self.made_begin(datagram, kind, dst_tag);
        self.made.extend_from_slice(params);
        self.made[COOKIE_AT..COOKIE_AT + 8].copy_from_slice(&cookie.to_be_bytes());
        self.made.resize(padded_len.max(OPEN_BYTES), 0);
    }
}
