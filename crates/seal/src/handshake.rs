//! The handshake of a sealed context, as state machines without clock, network or random numbers.
//!
//! ```text
//! Initiator::new ──── SealedOpen ───► Greeting::read     the keyed hash; strangers end here
//!       ▲                             (SealedChallenge, if an address has to be proven)
//!       │                             Greeting::propose  the peer's parameters
//!       │                             Proposal::answer   Diffie-Hellman: HalfOpen, with the keys
//!       └─────────── SealedOpenAck ── HalfOpen::write    as often as it is asked for
//! Initiator::finish: the keys
//! ```
//!
//! `docs/sealing.md` has the formats and the reasons.

use crate::Refusal;
use crate::key_ring::Key;
use crate::key_ring::KeyRing;
use crate::noise::{Ephemeral, MESSAGE_OVERHEAD_BYTES, Opening, Received, SHARE_BYTES, Split};
use crate::packet::{Limits, NUMBER_END, Receiver, Sender, Session};
use crate::secret::{MAC_BYTES, Secret};
use crate::suite::{SUITES_BYTES, Suite, Suites};
use core::net::IpAddr;
use srd_wire::{Flags, HEADER_BYTES, PacketType, VERSION};

/// Bytes of the parameters that each side sends: the type-specific header of an Open.
pub const PARAMS_BYTES: usize = PacketType::Open.body_bytes();
const PAYLOAD_BYTES: usize = SUITES_BYTES + PARAMS_BYTES;
const MESSAGE_BYTES: usize = PAYLOAD_BYTES + MESSAGE_OVERHEAD_BYTES;

/// Packet type of a SealedOpen.
pub const SEALED_OPEN: u8 = 9;
/// Packet type of a SealedOpenAck.
pub const SEALED_OPEN_ACK: u8 = 10;
/// Packet type of a SealedChallenge.
pub const SEALED_CHALLENGE: u8 = 11;

const TAG_AT: usize = HEADER_BYTES;
const KEY_ID_AT: usize = TAG_AT + 4;
const OPEN_MESSAGE_AT: usize = KEY_ID_AT + 4;
const COOKIE_AT: usize = OPEN_MESSAGE_AT + MESSAGE_BYTES;
const OPEN_MAC_AT: usize = COOKIE_AT + 8;
/// Bytes of a SealedOpen without padding.
pub const SEALED_OPEN_BYTES: usize = OPEN_MAC_AT + MAC_BYTES;

const ACK_MESSAGE_AT: usize = HEADER_BYTES;
const ACK_MAC_AT: usize = ACK_MESSAGE_AT + MESSAGE_BYTES;
/// Bytes of a SealedOpenAck without padding: fewer than a SealedOpen has, so that the answer to a
/// forged address is no longer than the forged packet.
pub const SEALED_OPEN_ACK_BYTES: usize = ACK_MAC_AT + MAC_BYTES;

const CHALLENGE_COOKIE_AT: usize = HEADER_BYTES + 4;
const CHALLENGE_MAC_AT: usize = CHALLENGE_COOKIE_AT + 8;
/// Bytes of a SealedChallenge, which has no padding.
pub const SEALED_CHALLENGE_BYTES: usize = CHALLENGE_MAC_AT + MAC_BYTES;

const _: () = assert!(SEALED_OPEN_ACK_BYTES <= SEALED_OPEN_BYTES);
const _: () = assert!(SEALED_CHALLENGE_BYTES <= SEALED_OPEN_BYTES);

/// The tag that the sender of a SealedOpen wants in packets to it, if the bytes have the shape of
/// one. For an engine without keys, which refuses it with a reason.
pub fn sealed_open_tag(packet: &[u8]) -> Option<u32> {
    shape_check(packet, SEALED_OPEN, SEALED_OPEN_BYTES).ok()?;
    Some(u32_at(packet, TAG_AT)).filter(|&tag| tag != 0)
}

const DST_TAG_AT: usize = 4;
/// First byte of the three types; the flags of all are `SEALED` alone.
pub(crate) const fn first_byte(kind: u8) -> u8 {
    VERSION << 5 | kind
}

/// Where an engine receives: its address, and its UDP port, which is the base port plus its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// Address of the host, as its peers know it.
    pub ip: IpAddr,
    /// UDP port of the engine's receive socket.
    pub port: u16,
}

/// The two ends of a handshake, by their parts in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Who sends the SealedOpen.
    pub initiator: End,
    /// Who answers it.
    pub responder: End,
}

const DOMAIN: &[u8; 10] = b"srd seal 1";
const END_BYTES: usize = 16 + 2;
const PROLOGUE_BYTES: usize = DOMAIN.len() + 1 + 2 * END_BYTES + 4 + 4;
pub(crate) type Prologue = [u8; PROLOGUE_BYTES];

/// What both ends must agree on without saying it, and what travels readable.
pub(crate) fn prologue(ends: &Ends, limits: &Limits, key_id: u32, tag: u32) -> Prologue {
    let mut bytes = [0; PROLOGUE_BYTES];
    let mut room = &mut bytes[..];
    let mut put = |field: &[u8]| {
        let (head, rest) = core::mem::take(&mut room).split_at_mut(field.len());
        head.copy_from_slice(field);
        room = rest;
    };
    put(DOMAIN);
    put(&[limits.epoch_bits as u8]);
    for end in [ends.initiator, ends.responder] {
        let ip = match end.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        put(&ip.octets());
        put(&end.port.to_be_bytes());
    }
    put(&key_id.to_be_bytes());
    put(&tag.to_be_bytes());
    bytes
}

/// Fills `out` with the header of a handshake packet, whose type, flags and tag are set here, and
/// zeros.
pub(crate) fn begin(out: &mut [u8], header: &[u8; HEADER_BYTES], kind: u8, dst_tag: u32) {
    out.fill(0);
    out[..HEADER_BYTES].copy_from_slice(header);
    out[0] = first_byte(kind);
    out[1] = header[1] & 0xf0 | Flags::SEALED;
    out[DST_TAG_AT..DST_TAG_AT + 4].copy_from_slice(&dst_tag.to_be_bytes());
}

/// The keyed hash of a packet whose own hash is at `at`. It covers the length of the datagram, so
/// that no padding is cut off or added.
fn packet_mac(
    key: &Secret,
    prologue: &Prologue,
    bound: &[u8],
    packet: &[u8],
    at: usize,
) -> [u8; MAC_BYTES] {
    let length = (packet.len() as u32).to_be_bytes();
    key.mac(&[prologue, bound, &length, &packet[..at]])
}

fn packet_mac_matches(
    key: &Secret,
    prologue: &Prologue,
    bound: &[u8],
    packet: &[u8],
    at: usize,
) -> bool {
    let length = (packet.len() as u32).to_be_bytes();
    let mac = &packet[at..at + MAC_BYTES];
    key.mac_matches(&[prologue, bound, &length, &packet[..at]], mac)
}

/// What can be told of a handshake packet without a key.
fn shape_check(packet: &[u8], kind: u8, bytes_min: usize) -> Result<(), Refusal> {
    match packet.first() {
        Some(first) if first >> 5 != VERSION => return Err(Refusal::Version),
        Some(&first) if first != first_byte(kind) => return Err(Refusal::Type),
        _ if packet.len() < bytes_min => return Err(Refusal::Truncated),
        _ => {}
    }
    if packet[1] & 0x0f != Flags::SEALED {
        return Err(Refusal::Flags);
    }
    if packet[bytes_min..].iter().any(|&byte| byte != 0) {
        return Err(Refusal::Padding);
    }
    Ok(())
}

pub(crate) fn u32_at(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*packet[at..].first_chunk().expect("the length was checked"))
}

pub(crate) fn u64_at(packet: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*packet[at..].first_chunk().expect("the length was checked"))
}

/// The keys of a context whose handshake has ended, before its transmission numbers are known.
#[derive(Debug)]
pub struct SessionKeys {
    suite: Suite,
    limits: Limits,
    outbound: Secret,
    inbound: Secret,
    hash: [u8; 32],
}

impl SessionKeys {
    fn new(suite: Suite, limits: Limits, split: Split, initiator: bool) -> Self {
        let Split { from_initiator, from_responder, hash } = split;
        let (outbound, inbound) = if planted!(KeyOfOneDirection) {
            (from_initiator.duplicate(), from_initiator)
        } else if initiator {
            (from_initiator, from_responder)
        } else {
            (from_responder, from_initiator)
        };
        Self { suite, limits, outbound, inbound, hash }
    }

    /// The cipher that the responder chose.
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// A value that both ends, and nobody else, compute for this handshake, and that says nothing
    /// of its keys: for logs that are compared.
    pub const fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The session, with the first transmission numbers of this end and of the peer
    /// (`tx_num_start` of the parameters).
    ///
    /// # Errors
    /// [`Refusal::Numbers`] if a number is 2^63 or more; no engine starts there.
    pub fn session(self, own_start: u64, peer_start: u64) -> Result<Session, Refusal> {
        if own_start >= NUMBER_END || peer_start >= NUMBER_END {
            return Err(Refusal::Numbers);
        }
        let Self { suite, limits, outbound, inbound, .. } = self;
        Ok(Session {
            sender: Sender::new(suite, outbound, own_start, limits),
            receiver: Receiver::new(suite, inbound, peer_start, limits),
        })
    }
}

/// What a side brings to a handshake besides its key.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The ciphers that it accepts.
    pub suites: Suites,
    /// Its parameters, as they would follow the header of an Open or OpenAck. They are encrypted.
    pub params: &'a [u8; PARAMS_BYTES],
}

impl Offer<'_> {
    fn payload(&self, suites: [u8; SUITES_BYTES]) -> [u8; PAYLOAD_BYTES] {
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..SUITES_BYTES].copy_from_slice(&suites);
        payload[SUITES_BYTES..].copy_from_slice(self.params);
        payload
    }
}

fn payload_split(payload: &[u8; PAYLOAD_BYTES]) -> ([u8; SUITES_BYTES], [u8; PARAMS_BYTES]) {
    let (suites, params) = payload.split_at(SUITES_BYTES);
    (suites.try_into().expect("split there"), params.try_into().expect("split there"))
}

/// The side that opens.
#[derive(Debug)]
pub struct Initiator {
    prologue: Prologue,
    limits: Limits,
    mac_key: Secret,
    key_id: u32,
    tag: u32,
    suites: Suites,
    message: [u8; MESSAGE_BYTES],
    cookie: u64,
    /// Until the answer was taken: there is one set of keys from one handshake.
    opening: Option<Opening>,
}

impl Initiator {
    /// Begins a handshake with the key that the ring sends with. `tag` is the tag that the peer
    /// shall put into its packets.
    ///
    /// # Errors
    /// [`Refusal::Tag`] if `tag` is 0, [`Refusal::Limits`] if the limits are out of their range.
    pub fn new(
        key: &Key,
        ends: &Ends,
        limits: Limits,
        tag: u32,
        offer: &Offer<'_>,
        ephemeral: Ephemeral,
    ) -> Result<Self, Refusal> {
        if tag == 0 {
            return Err(Refusal::Tag);
        }
        if !limits.valid() {
            return Err(Refusal::Limits);
        }
        let prologue = prologue(ends, &limits, key.id(), tag);
        let payload = offer.payload(offer.suites.bytes());
        let mut message = [0; MESSAGE_BYTES];
        let opening = Opening::new(key.psk(), &prologue, ephemeral, &payload, &mut message);
        Ok(Self {
            prologue,
            limits,
            mac_key: key.mac_key().duplicate(),
            key_id: key.id(),
            tag,
            suites: offer.suites,
            message,
            cookie: 0,
            opening: Some(opening),
        })
    }

    /// Number of the key that this handshake uses.
    pub const fn key_id(&self) -> u32 {
        self.key_id
    }

    /// The cookie that the next [`Self::write`] carries; 0: none.
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The public share, which names this handshake.
    pub fn share(&self) -> &[u8; SHARE_BYTES] {
        self.message.first_chunk().expect("a message starts with its share")
    }

    /// Writes the SealedOpen, with the cookie if the peer has asked for one, and zeros up to the
    /// end of `out`, which is as long as the datagram shall be. Of `header`, the type, the flags
    /// and the tag are ignored. Each transmission carries the same message: only the header, the
    /// keyed hash and the cookie differ.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if `out` is shorter than [`SEALED_OPEN_BYTES`].
    pub fn write(&self, header: &[u8; HEADER_BYTES], out: &mut [u8]) -> Result<(), Refusal> {
        if out.len() < SEALED_OPEN_BYTES {
            return Err(Refusal::Truncated);
        }
        begin(out, header, SEALED_OPEN, 0);
        out[TAG_AT..KEY_ID_AT].copy_from_slice(&self.tag.to_be_bytes());
        out[KEY_ID_AT..OPEN_MESSAGE_AT].copy_from_slice(&self.key_id.to_be_bytes());
        out[OPEN_MESSAGE_AT..COOKIE_AT].copy_from_slice(&self.message);
        out[COOKIE_AT..OPEN_MAC_AT].copy_from_slice(&self.cookie.to_be_bytes());
        let mac = packet_mac(&self.mac_key, &self.prologue, &[], out, OPEN_MAC_AT);
        out[OPEN_MAC_AT..SEALED_OPEN_BYTES].copy_from_slice(&mac);
        Ok(())
    }

    /// Takes the cookie of a SealedChallenge for this handshake; the next [`Self::write`] carries
    /// it.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing has changed then.
    pub fn challenged(&mut self, packet: &[u8]) -> Result<(), Refusal> {
        shape_check(packet, SEALED_CHALLENGE, SEALED_CHALLENGE_BYTES)?;
        if packet.len() != SEALED_CHALLENGE_BYTES {
            return Err(Refusal::Padding);
        }
        if u32_at(packet, HEADER_BYTES) != self.tag {
            return Err(Refusal::Tag);
        }
        let bound = self.share();
        if !packet_mac_matches(&self.mac_key, &self.prologue, bound, packet, CHALLENGE_MAC_AT) {
            return Err(Refusal::Mac);
        }
        self.cookie = u64_at(packet, CHALLENGE_COOKIE_AT);
        Ok(())
    }

    /// Reads a SealedOpenAck. It gives the keys once: a second copy of the answer is refused.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing has changed then, and a true answer may follow.
    pub fn finish(&mut self, packet: &[u8]) -> Result<(SessionKeys, [u8; PARAMS_BYTES]), Refusal> {
        shape_check(packet, SEALED_OPEN_ACK, SEALED_OPEN_ACK_BYTES)?;
        if u32_at(packet, DST_TAG_AT) != self.tag {
            return Err(Refusal::Tag);
        }
        let opening = self.opening.as_ref().ok_or(Refusal::Settled)?;
        let bound = self.share();
        if !packet_mac_matches(&self.mac_key, &self.prologue, bound, packet, ACK_MAC_AT) {
            return Err(Refusal::Mac);
        }
        let mut payload = [0; PAYLOAD_BYTES];
        let split = opening.finish(&packet[ACK_MESSAGE_AT..ACK_MAC_AT], &mut payload)?;
        let (chosen, params) = payload_split(&payload);
        let suite = Suite::from_number(chosen[0]).ok_or(Refusal::Suite)?;
        if chosen[1..] != [0; SUITES_BYTES - 1] || !self.suites.contains(suite) {
            return Err(Refusal::Suite);
        }
        self.opening = None;
        Ok((SessionKeys::new(suite, self.limits, split, true), params))
    }
}

/// A SealedOpen of somebody who holds the key that it names, or has copied the packet of one from
/// the same address.
#[derive(Debug)]
pub struct Greeting<'a> {
    key: &'a Key,
    packet: &'a [u8],
    prologue: Prologue,
    limits: Limits,
}

impl<'a> Greeting<'a> {
    /// Reads a SealedOpen that came from `ends.initiator`, and checks its keyed hash. This costs
    /// two HMACs over some 200 bytes and leaves nothing behind.
    ///
    /// # Errors
    /// A [`Refusal`]: the packet is dropped and counted. At most a Reset answers it.
    pub fn read(
        packet: &'a [u8],
        ends: &Ends,
        limits: Limits,
        ring: &'a KeyRing,
    ) -> Result<Self, Refusal> {
        shape_check(packet, SEALED_OPEN, SEALED_OPEN_BYTES)?;
        if !limits.valid() {
            return Err(Refusal::Limits);
        }
        let tag = u32_at(packet, TAG_AT);
        if tag == 0 || u32_at(packet, DST_TAG_AT) != 0 {
            return Err(Refusal::Tag);
        }
        let key_id = u32_at(packet, KEY_ID_AT);
        let key = ring.accepted(key_id).ok_or(Refusal::KeyId)?;
        let prologue = prologue(ends, &limits, key_id, tag);
        let matches = packet_mac_matches(key.mac_key(), &prologue, &[], packet, OPEN_MAC_AT);
        if !matches && !planted!(OpenMacUnchecked) {
            return Err(Refusal::Mac);
        }
        Ok(Self { key, packet, prologue, limits })
    }

    /// The tag that the initiator wants in packets to it.
    pub fn tag(&self) -> u32 {
        u32_at(self.packet, TAG_AT)
    }

    /// Number of the key that the initiator uses.
    pub fn key_id(&self) -> u32 {
        self.key.id()
    }

    /// The initiator's public share: the same in each copy of this SealedOpen, and in no other.
    pub fn share(&self) -> &[u8; SHARE_BYTES] {
        self.packet[OPEN_MESSAGE_AT..].first_chunk().expect("the length was checked")
    }

    /// The cookie that it carries, 0 if none.
    pub fn cookie(&self) -> u64 {
        u64_at(self.packet, COOKIE_AT)
    }

    /// Opens the initiator's parameters.
    ///
    /// # Errors
    /// [`Refusal::Seal`] if they were not sealed with the key; a holder of it made the packet.
    pub fn propose(&self) -> Result<Proposal, Refusal> {
        let mut payload = [0; PAYLOAD_BYTES];
        let message = &self.packet[OPEN_MESSAGE_AT..COOKIE_AT];
        let received = Received::new(self.key.psk(), &self.prologue, message, &mut payload)?;
        let (offered, params) = payload_split(&payload);
        Ok(Proposal {
            received,
            offered,
            params,
            tag: self.tag(),
            share: *self.share(),
            prologue: self.prologue,
            limits: self.limits,
            mac_key: self.key.mac_key().duplicate(),
            key_id: self.key.id(),
        })
    }
}

/// What a peer wants, before it is answered.
#[derive(Debug)]
pub struct Proposal {
    received: Received,
    offered: [u8; SUITES_BYTES],
    params: [u8; PARAMS_BYTES],
    tag: u32,
    share: [u8; SHARE_BYTES],
    prologue: Prologue,
    limits: Limits,
    mac_key: Secret,
    key_id: u32,
}

impl Proposal {
    /// The initiator's parameters.
    pub const fn params(&self) -> &[u8; PARAMS_BYTES] {
        &self.params
    }

    /// The tag that the initiator wants in packets to it.
    pub const fn tag(&self) -> u32 {
        self.tag
    }

    /// Number of the key that the initiator uses.
    pub const fn key_id(&self) -> u32 {
        self.key_id
    }

    /// Writes the SealedChallenge that asks for this cookie. Its keyed hash is bound to the share,
    /// so a copy of it disturbs no other handshake. The next SealedOpen of the initiator carries
    /// the cookie under its own keyed hash: nobody else can put the cookie into a copied one.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if `out` is not [`SEALED_CHALLENGE_BYTES`] long.
    pub fn challenge_write(
        &self,
        cookie: u64,
        header: &[u8; HEADER_BYTES],
        out: &mut [u8],
    ) -> Result<(), Refusal> {
        if out.len() != SEALED_CHALLENGE_BYTES {
            return Err(Refusal::Truncated);
        }
        begin(out, header, SEALED_CHALLENGE, self.tag);
        out[HEADER_BYTES..CHALLENGE_COOKIE_AT].copy_from_slice(&self.tag.to_be_bytes());
        out[CHALLENGE_COOKIE_AT..CHALLENGE_MAC_AT].copy_from_slice(&cookie.to_be_bytes());
        let mac = packet_mac(&self.mac_key, &self.prologue, &self.share, out, CHALLENGE_MAC_AT);
        out[CHALLENGE_MAC_AT..].copy_from_slice(&mac);
        Ok(())
    }

    /// Accepts: computes the keys and the answer. This is the one place at which a peer's packet
    /// costs Diffie-Hellman.
    ///
    /// # Errors
    /// [`Refusal::Suite`] if no cipher suits both, [`Refusal::Share`] if the peer's share is none.
    pub fn answer(self, offer: &Offer<'_>, ephemeral: Ephemeral) -> Result<HalfOpen, Refusal> {
        let suite = offer.suites.choose(self.offered).ok_or(Refusal::Suite)?;
        let payload = offer.payload([suite as u8, 0, 0, 0]);
        let mut message = [0; MESSAGE_BYTES];
        let split = self.received.answer(ephemeral, &payload, &mut message)?;
        Ok(HalfOpen {
            share: self.share,
            tag: self.tag,
            prologue: self.prologue,
            mac_key: self.mac_key,
            message,
            keys: Some(SessionKeys::new(suite, self.limits, split, false)),
        })
    }
}

/// An answered handshake whose peer has not shown yet that it has the keys. It keeps the answer,
/// because one made anew would have other keys.
#[derive(Debug)]
pub struct HalfOpen {
    share: [u8; SHARE_BYTES],
    tag: u32,
    prologue: Prologue,
    mac_key: Secret,
    message: [u8; MESSAGE_BYTES],
    keys: Option<SessionKeys>,
}

impl HalfOpen {
    /// Whether the greeting is another copy of the SealedOpen that this answers.
    pub fn answers(&self, greeting: &Greeting<'_>) -> bool {
        self.share == *greeting.share() && self.prologue == greeting.prologue
    }

    /// The initiator's share, which names the handshake.
    pub const fn share(&self) -> &[u8; SHARE_BYTES] {
        &self.share
    }

    /// The tag that the initiator wants in packets to it.
    pub const fn tag(&self) -> u32 {
        self.tag
    }

    /// The keys, the first time.
    pub fn keys_take(&mut self) -> Option<SessionKeys> {
        self.keys.take()
    }

    /// Writes the SealedOpenAck, the same message each time, and zeros up to the end of `out`. Of
    /// `header`, the type, the flags and the tag are ignored.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if `out` is shorter than [`SEALED_OPEN_ACK_BYTES`].
    pub fn write(&self, header: &[u8; HEADER_BYTES], out: &mut [u8]) -> Result<(), Refusal> {
        if out.len() < SEALED_OPEN_ACK_BYTES {
            return Err(Refusal::Truncated);
        }
        begin(out, header, SEALED_OPEN_ACK, self.tag);
        out[ACK_MESSAGE_AT..ACK_MAC_AT].copy_from_slice(&self.message);
        let mac = packet_mac(&self.mac_key, &self.prologue, &self.share, out, ACK_MAC_AT);
        out[ACK_MAC_AT..SEALED_OPEN_ACK_BYTES].copy_from_slice(&mac);
        Ok(())
    }
}

/// Which of two SealedOpens that crossed makes the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// Ours: the peer's is not answered.
    Ours,
    /// The peer's: it is answered, and ours is forgotten.
    Theirs,
}

/// Decides between our own SealedOpen, not answered yet, and an authentic one of the same peer: the
/// smaller share wins. Both ends know both shares and come to the same decision.
pub fn crossing(ours: &[u8; SHARE_BYTES], theirs: &[u8; SHARE_BYTES]) -> Crossing {
    // Equal shares are a copy of our own, which the addresses in the keyed hash exclude.
    if ours <= theirs { Crossing::Ours } else { Crossing::Theirs }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
