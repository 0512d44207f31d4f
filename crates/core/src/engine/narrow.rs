//! Opening of contexts over paths that do not carry full packets.
//!
//! An Open is as large as the largest packet, so that a context opens only where full packets pass.
//! If a few full Opens stay without answer, smaller ones are sent beside them, of a different size
//! each time. The peer answers a smaller Open with an OpenAck of the same length, never a longer
//! one, so its answer shows that this size passes in both directions. It does not show that a
//! larger size fails: the peer may just have started, or the network may be overloaded. So the
//! context opens with the smaller size only when, in several rounds in a row, the smaller Open was
//! answered and the full one beside it was not. From then on packets to the address are no larger,
//! and the usual search tests from time to time whether larger ones pass.

use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::path::below;
use crate::peer::ContextState;
use crate::time::Time;
use arrayvec::ArrayVec;
use srd_wire::{OVERHEAD_BYTES, Packet};

/// Unanswered Opens of full size after which smaller ones are sent beside them.
const FULL_TRIES: u8 = 4;
/// Rounds in a row in which only the smaller Open must be answered before the context opens with
/// it: the same number as in any other test of a size (see `path/mtu.rs`).
const ROUNDS: u8 = 10;

fn rounds() -> u8 {
    if planted!(OneOpenDecides) { 1 } else { ROUNDS }
}

impl<O: Observer> Engine<O> {
    /// The packet size in use for the address of a context, before the peer's limit is known.
    fn open_size(&self, ci: Ctx) -> u16 {
        let c = self.contexts.get(ci);
        self.shared.cfg.mtu.min(self.paths.get(c.way()).mtu.size())
    }

    /// The lengths in bytes of the Opens that are sent now.
    pub(crate) fn open_lens(&mut self, ci: Ctx) -> ArrayVec<u16, 2> {
        let full = self.shared.cfg.open_padded_len;
        let mut lens = ArrayVec::from_iter([full]);
        if full == 0 || !self.shared.cfg.mtu_search || planted!(OpensAllFull) {
            return lens;
        }
        let (size, aligned) = (self.open_size(ci), self.shared.cfg.mtu_aligned());
        let len_of = |size: u16| size.saturating_add(OVERHEAD_BYTES as u16);
        if size < self.shared.cfg.mtu {
            lens[0] = len_of(size);
        }
        let c = self.contexts.get_mut(ci);
        let round = c.handshake().round();
        if let Some(answered) = c.handshake().narrow().answered() {
            c.handshake_mut().narrow_change(|n| n.round_begin(round));
            debug_assert!(answered < self.shared.cfg.mtu, "less than full");
            lens.push(len_of(answered));
        } else if let Some(n) = round.checked_sub(FULL_TRIES)
            && let Some(size) = below(c.endpoint().ip, size, aligned, n.into())
        {
            lens.push(len_of(size));
        }
        lens
    }

    /// The packet size that a handshake packet proves, if that is less than `mtu`, what its sender
    /// accepts. A packet without padding proves nothing.
    pub(crate) fn narrow_of(packet: &Packet<'_>, mtu: u16) -> Option<u16> {
        let padding = packet.payload_len;
        let bytes = packet.headers_len() + usize::from(padding);
        let size = u16::try_from(bytes.saturating_sub(OVERHEAD_BYTES)).unwrap_or(u16::MAX);
        ((padding > 0 || planted!(BareOpenProves)) && size < mtu).then_some(size)
    }

    /// Notes the packet size that the peer's Open proves; `None`: the full size.
    pub(crate) fn narrow_heard(&mut self, ci: Ctx, size: Option<u16>) {
        let c = self.contexts.get_mut(ci);
        c.handshake_mut().narrow_change(|n| n.heard(size.unwrap_or(u16::MAX)));
    }

    /// Notes the answer to our Open of size `size`; `None`: the full one. Returns whether the
    /// context opens.
    pub(crate) fn narrow_answered(&mut self, now: Time, ci: Ctx, size: Option<u16>) -> bool {
        let known = self.open_size(ci);
        let c = self.contexts.get_mut(ci);
        let Some(size) = size.filter(|&s| s < known && self.shared.cfg.mtu_search) else {
            c.handshake_mut().narrow_change(core::mem::take);
            return true;
        };
        if c.handshake().narrow().answered().is_none() {
            // The peer may just have started, so a full Open is sent again at once.
            c.handshake_mut().narrow_begin(size);
            self.open_send(now, ci);
            self.shared.out.rearm_push(ci);
            return false;
        }
        let round = c.handshake().round();
        c.handshake_mut().narrow_change(|n| n.round_answered(round, size)) >= rounds()
    }

    /// Limits packets to the peer's address to the size that the completed handshake has proven.
    pub(crate) fn narrow_take(&mut self, now: Time, ci: Ctx, from: ContextState) {
        let c = self.contexts.get_mut(ci);
        let n = c.handshake_mut().narrow_change(core::mem::take);
        let (pi, ip) = (c.way(), c.endpoint().ip);
        let size = n.proved(from == ContextState::Opening, rounds());
        if size == 0 || size >= self.shared.cfg.mtu || !self.shared.cfg.mtu_search {
            return;
        }
        // Every path carries the smallest size of the table, whatever the peer proves.
        let size = size
            .max(below(ip, 0, self.shared.cfg.mtu_aligned(), 0).unwrap_or(size))
            .min(self.shared.cfg.mtu);
        self.size_limit(now, pi, size);
    }
}
