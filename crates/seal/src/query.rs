//! The question whether a peer still has a sealed context, and the answer that it has not.
//!
//! A peer that has the context answers within it. One that has lost the context has lost its keys
//! as well, so both packets are authenticated by the pre-shared key: only a member can say that a
//! context is gone, and only to the question that was asked, whose secret number it returns.

use crate::handshake::{Ends, begin, first_byte, prologue, u32_at, u64_at};
use crate::key_ring::{Key, KeyRing};
use crate::packet::Limits;
use crate::refusal::Refusal;
use crate::secret::MAC_BYTES;
use srd_wire::{Flags, HEADER_BYTES, VERSION};

/// Packet type of a ContextQuery.
pub const CONTEXT_QUERY: u8 = 12;
/// Packet type of a ContextGone.
pub const CONTEXT_GONE: u8 = 13;

const KEY_ID_AT: usize = HEADER_BYTES;
const ECHO_TAG_AT: usize = KEY_ID_AT + 4;
const NONCE_AT: usize = ECHO_TAG_AT + 4;
const CODE_AT: usize = NONCE_AT + 8;
const MAC_AT: usize = CODE_AT + 8;
/// Bytes of a ContextQuery, and of a ContextGone: the answer is no longer than the question.
pub const CONTEXT_QUERY_BYTES: usize = MAC_AT + MAC_BYTES;

/// What a ContextQuery asks, or a ContextGone answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// [`CONTEXT_QUERY`] or [`CONTEXT_GONE`].
    pub kind: u8,
    /// Number of the pre-shared key.
    pub key_id: u32,
    /// The tag, of the asked side, of the context in question.
    pub echo_tag: u32,
    /// The secret number of the question.
    pub nonce: u64,
    /// Why the context is gone: the code of a Reset. 0 in a question.
    pub code: u8,
}

impl Query {
    /// Writes the packet; `ends.initiator` is its sender. Of `header`, the type, the flags and the
    /// tag are replaced.
    pub fn write(
        &self,
        key: &Key,
        ends: &Ends,
        limits: &Limits,
        header: &[u8; HEADER_BYTES],
    ) -> [u8; CONTEXT_QUERY_BYTES] {
        let mut out = [0; CONTEXT_QUERY_BYTES];
        let dst_tag = if self.kind == CONTEXT_QUERY { self.echo_tag } else { 0 };
        begin(&mut out, header, self.kind, dst_tag);
        out[KEY_ID_AT..ECHO_TAG_AT].copy_from_slice(&key.id().to_be_bytes());
        out[ECHO_TAG_AT..NONCE_AT].copy_from_slice(&self.echo_tag.to_be_bytes());
        out[NONCE_AT..CODE_AT].copy_from_slice(&self.nonce.to_be_bytes());
        out[CODE_AT] = self.code;
        let prologue = prologue(ends, limits, key.id(), self.echo_tag);
        let length = (CONTEXT_QUERY_BYTES as u32).to_be_bytes();
        let mac = key.mac_key().mac(&[&prologue, &length, &out[..MAC_AT]]);
        out[MAC_AT..].copy_from_slice(&mac);
        out
    }

    /// Reads a ContextQuery or a ContextGone that came from `ends.initiator`.
    ///
    /// # Errors
    /// A [`Refusal`]: the packet is dropped and counted.
    pub fn read(
        packet: &[u8],
        ends: &Ends,
        limits: &Limits,
        ring: &KeyRing,
    ) -> Result<Self, Refusal> {
        let kind = match packet.first() {
            Some(first) if first >> 5 != VERSION => return Err(Refusal::Version),
            Some(&first) if first == first_byte(CONTEXT_QUERY) => CONTEXT_QUERY,
            Some(&first) if first == first_byte(CONTEXT_GONE) => CONTEXT_GONE,
            _ => return Err(Refusal::Type),
        };
        if packet.len() != CONTEXT_QUERY_BYTES {
            return Err(Refusal::Truncated);
        }
        if packet[1] & 0x0f != Flags::SEALED {
            return Err(Refusal::Flags);
        }
        let key_id = u32_at(packet, KEY_ID_AT);
        let echo_tag = u32_at(packet, ECHO_TAG_AT);
        let key = ring.accepted(key_id).ok_or(Refusal::KeyId)?;
        let prologue = prologue(ends, limits, key_id, echo_tag);
        let length = (CONTEXT_QUERY_BYTES as u32).to_be_bytes();
        let parts: [&[u8]; 3] = [&prologue, &length, &packet[..MAC_AT]];
        let matches = key.mac_key().mac_matches(&parts, &packet[MAC_AT..]);
        let unchecked = planted!(GoneMacUnchecked) && kind == CONTEXT_GONE;
        if !matches && !unchecked {
            return Err(Refusal::Mac);
        }
        let (nonce, code) = (u64_at(packet, NONCE_AT), packet[CODE_AT]);
        Ok(Self { kind, key_id, echo_tag, nonce, code })
    }
}
