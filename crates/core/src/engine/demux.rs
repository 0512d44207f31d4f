//! Demultiplexing: finds the context of a packet by its tag, checks source and transmission number,
//! and passes the packet on.

use crate::api::{Endpoint, Rx, RxMeta};
use crate::config::Integrity;
use crate::counters::DropReason;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::{Ctx, OwnTag, PeerTag};
use crate::lane::Arrival;
use crate::limits::REPLAYS_MAX;
use crate::peer::ContextState;
use crate::time::Time;
use srd_wire::{Body, Flags, Header, Packet};

impl<O: Observer> Engine<O> {
    pub(crate) fn packet_in(
        &mut self,
        now: Time,
        meta: &RxMeta,
        packet: &Packet<'_>,
    ) -> Result<Rx, DropReason> {
        let h = &packet.header;
        let from =
            Endpoint { ip: meta.src_ip, port: self.shared.cfg.port_base + u16::from(h.slot) };
        match packet.body {
            Body::Open(_) | Body::OpenAck(_) | Body::Challenge { .. } | Body::Reset { .. }
                if self.lacks_checksum(h) =>
            {
                return Err(DropReason::Unchecked);
            }
            Body::Open(p) => {
                let size = Self::narrow_of(packet, p.mtu);
                return self.open_received(now, from, h, &p, size);
            }
            Body::Reset { echo_tag, code, nonce } => {
                return self.reset_received(now, from, h, PeerTag(echo_tag), code, nonce);
            }
            _ => {}
        }
        let known = self.contexts.by_tag_noted(OwnTag(h.dst_tag));
        let guessed = if planted!(TagUnchecked) { self.contexts.by_endpoint(&from) } else { None };
        let Some(ci) = known.or(guessed) else {
            self.stranger(now, from, h, &packet.body);
            return Err(DropReason::UnknownTag);
        };
        let c = self.contexts.get(ci);
        debug_assert!(
            c.handshake().local_tag() == OwnTag(h.dst_tag) || cfg!(planted_bugs),
            "a packet is for whoever has its tag"
        );
        if c.endpoint() != from {
            return Err(DropReason::BadSource);
        }
        if c.limits().checked {
            if !h.flags.has(Flags::CHECKED) && !planted!(UncheckedTaken) {
                return Err(DropReason::Unchecked);
            }
        } else if c.limits().sealed && !h.flags.has(Flags::SEALED) {
            return Err(DropReason::Unsealed);
        }
        if self.gone {
            self.stranger(now, from, h, &packet.body);
            return Err(DropReason::BadState);
        }
        match packet.body {
            Body::OpenAck(p) => {
                let size = Self::narrow_of(packet, u16::MAX);
                return self.open_acked(now, ci, h, &p, size);
            }
            Body::Challenge { echo_tag, cookie } => {
                return self.challenged(now, ci, OwnTag(echo_tag), cookie);
            }
            // The sender of a CloseAck has no context any more, so the packet has no transmission
            // number.
            Body::CloseAck => return self.close_acked(now, ci),
            _ => {}
        }
        if packet.payload_len > self.shared.cfg.mtu && !planted!(PayloadLongTaken) {
            return Err(DropReason::TooLong);
        }
        let c = self.contexts.get(ci);
        let ready =
            matches!(c.state(), ContextState::Open | ContextState::Closing) && c.is_active();
        if !ready {
            self.context_proven(now, ci)?;
            self.context_activate(ci);
        }
        self.of_context(now, ci, meta, packet)
    }

    /// Handles a packet of context `ci`, which is open and has window state, from its peer.
    #[inline]
    fn of_context(
        &mut self,
        now: Time,
        ci: Ctx,
        meta: &RxMeta,
        packet: &Packet<'_>,
    ) -> Result<Rx, DropReason> {
        let h = &packet.header;
        let mut lane = self.lane(now, ci);
        debug_assert!(lane.peer.handshake().knows_peer(), "who is open knows its peer");
        let (tx_num, passed) = match lane.tx_num_take_in(h) {
            Ok(n) => n,
            Err(reason) => {
                // If many numbers were refused in a row, or two because they are too far ahead, one
                // side has a wrong count: the peer is asked for its own number.
                let replay = &lane.win.replay;
                let wrong = replay.is_behind() || replay.refused().is_multiple_of(REPLAYS_MAX);
                if reason == DropReason::Replay && wrong {
                    let _ = self.doubt_begin(now, ci, false);
                }
                return Err(reason);
            }
        };
        let back = lane.heard(meta, packet, passed);
        if let Some(ack) = packet.ack {
            lane.peer.reports_mut().ack_heard(h.tx_num as u16);
            lane.ack_received(Arrival { waited: meta.waited, back, tx_num }, ack)?;
        }
        if !matches!(packet.body, Body::Close) {
            return lane.body_received(meta, packet);
        }
        // What was sent after it, and came before it, may have told us that our last work was
        // taken: the Close was withdrawn then. Another one follows if it was not.
        let overtaken = lane.win.replay.newest() != tx_num;
        let asks = h.flags.has(Flags::ACK_REQUEST);
        let result = if overtaken { Ok(Rx::Done) } else { self.close_received(now, ci, asks) };
        if let Some(mut lane) = self.lane_find(now, ci) {
            lane.ack_schedule();
            lane.rearm_push();
        }
        result
    }

    /// Whether a packet lacks a checksum, which the seal of a sealed one replaces. Called for the
    /// packet kinds that must have one whatever was negotiated, because the flag that announces it
    /// may itself have been damaged.
    fn lacks_checksum(&self, h: &Header) -> bool {
        self.shared.cfg.integrity != Integrity::Off
            && !h.flags.has(Flags::CHECKED)
            && !h.flags.has(Flags::SEALED)
            && !planted!(UncheckedTaken)
    }

    /// Confirms a context, because a packet with our tag proves that its sender took part in the
    /// handshake.
    #[cold]
    fn context_proven(&mut self, now: Time, ci: Ctx) -> Result<(), DropReason> {
        let c = self.contexts.get(ci);
        match c.state() {
            ContextState::Open | ContextState::Closing => Ok(()),
            _ if !c.handshake().knows_peer() => Err(DropReason::BadState),
            _ => {
                self.context_confirm(now, ci);
                Ok(())
            }
        }
    }
}
