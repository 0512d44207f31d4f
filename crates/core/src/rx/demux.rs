//! From packet to context: tag, source, replay; then on to whoever the packet is for.

use crate::api::{Endpoint, Rx, RxMeta};
use crate::config::Integrity;
use crate::counters::Drop;
use crate::engine::Engine;
use crate::events::{Event, Observer};
use crate::limits::{REPLAYS_MAX, WINDOW_MAX};
use crate::peer::ContextState;
use crate::psn;
use crate::time::{Span, Time};
use srd_wire::{Body, Flags, Header, Packet, PacketType};

/// Bytes of a handshake packet, and those of them that only pad it.
fn lens(packet: &Packet<'_>) -> (usize, u16) {
    (packet.headers_len() + usize::from(packet.payload_len), packet.payload_len)
}

/// Twice the largest window: what is under way of one life of a peer is nearer.
const PSN_DISTANCE_MAX: u32 = 2 * WINDOW_MAX as u32;

impl<O: Observer> Engine<O> {
    pub(crate) fn packet_in(
        &mut self,
        now: Time,
        meta: &RxMeta,
        packet: &Packet<'_>,
    ) -> Result<Rx, Drop> {
        let h = &packet.header;
        let from =
            Endpoint { ip: meta.src_ip, port: self.shared.cfg.port_base + u16::from(h.slot) };
        match packet.body {
            Body::Open(_) | Body::OpenAck(_) | Body::Challenge { .. } | Body::Reset { .. }
                if self.lacks_checksum(h) =>
            {
                return Err(Drop::Unchecked);
            }
            Body::Open(p) => {
                let size = Self::narrow_of(lens(packet), p.mtu);
                return self.open_received(now, from, h, &p, size);
            }
            Body::Reset { echo_tag, code, nonce } => {
                return self.reset_received(now, from, h, (echo_tag, code, nonce));
            }
            _ => {}
        }
        let known = self.contexts.by_tag(h.dst_tag);
        let guessed = if planted!(TagUnchecked) { self.contexts.by_endpoint(&from) } else { None };
        let Some(ci) = known.or(guessed) else {
            self.stranger(now, from, h, &packet.body);
            return Err(Drop::UnknownTag);
        };
        let c = self.contexts.get(ci);
        if c.peer != from {
            return Err(Drop::BadSource);
        }
        if c.limits.checked && !h.flags.has(Flags::CHECKED) && !planted!(UncheckedTaken) {
            return Err(Drop::Unchecked);
        }
        if self.gone {
            self.stranger(now, from, h, &packet.body);
            return Err(Drop::BadState);
        }
        match packet.body {
            Body::OpenAck(p) => {
                let size = Self::narrow_of(lens(packet), u16::MAX);
                return self.open_acked(now, ci, &p, size);
            }
            Body::Challenge { echo_tag, cookie } => {
                return self.challenged(now, ci, echo_tag, cookie);
            }
            // Its sender has no context any more, hence no transmission numbers.
            Body::CloseAck => return self.close_acked(now, ci),
            _ => {}
        }
        if packet.payload_len > self.shared.cfg.mtu && !planted!(PayloadLongTaken) {
            return Err(Drop::TooLong);
        }
        self.context_proven(now, ci)?;
        self.tx_num_take_in(now, ci, h)?;
        let back = self.context_heard(now, ci, meta, packet);
        if let Some(ack) = packet.ack {
            self.contexts.get_mut(ci).ack_echo = h.tx_num as u16;
            self.ack_received(now, (meta.waited, back), ci, ack)?;
        }
        self.body_received(now, ci, meta, packet)
    }

    /// Whether the packet, of a kind that is checked whatever was agreed on, is not: the flag
    /// itself may have been damaged.
    fn lacks_checksum(&self, h: &Header) -> bool {
        self.shared.cfg.integrity != Integrity::Off
            && !h.flags.has(Flags::CHECKED)
            && !planted!(UncheckedTaken)
    }

    /// A packet that carries our tag proves that its sender took part in the handshake.
    fn context_proven(&mut self, now: Time, ci: u32) -> Result<(), Drop> {
        let c = self.contexts.get(ci);
        match c.state {
            ContextState::Open | ContextState::Closing => Ok(()),
            _ if c.peer_tag == 0 => Err(Drop::BadState),
            _ => {
                self.context_confirm(now, ci);
                Ok(())
            }
        }
    }

    fn tx_num_take_in(&mut self, now: Time, ci: u32, h: &Header) -> Result<(), Drop> {
        self.context_activate(ci);
        let c = self.contexts.get_mut(ci);
        let a = c.act();
        // Far from every PSN that can be under way: sent by a former life of the peer to the same
        // tag. Its transmission number must not move the replay window.
        if psn::diff(h.psn, a.window.cum()).unsigned_abs() > PSN_DISTANCE_MAX {
            return Err(Drop::TooFar);
        }
        let n = psn::expand(h.tx_num, a.replay.newest());
        if !a.replay.take(n) {
            return Err(self.replay_refused(now, ci));
        }
        c.rx_tx_num_max = c.act().replay.newest();
        Ok(())
    }

    /// A transmission number was refused. If many were, one side has the numbers wrong: the peer is
    /// asked for its own.
    #[cold]
    fn replay_refused(&mut self, now: Time, ci: u32) -> Drop {
        if self.contexts.get_mut(ci).act().replay.refused().is_multiple_of(REPLAYS_MAX) {
            let _ = self.doubt_begin(now, ci, false);
        }
        Drop::Replay
    }

    /// Whatever it is, the peer is alive. Returns how much longer than the quickest the packet was
    /// on its way.
    fn context_heard(&mut self, now: Time, ci: u32, meta: &RxMeta, packet: &Packet<'_>) -> Span {
        let h = &packet.header;
        let una = h.una();
        let c = self.contexts.get_mut(ci);
        c.last_heard = now;
        self.shared.rx.flows.heard(now, ci);
        c.proven = true;
        if meta.ce {
            c.rx_ce_count = c.rx_ce_count.wrapping_add(1);
            self.shared.counters.ce_pkts += 1;
        }
        if psn::before(c.rx_una, una) {
            c.rx_una = una;
            c.act().verdicts.retire(una);
        }
        let arrived = Time(now.0.saturating_sub(meta.waited.0));
        let back = c.act().inbound.on_packet(arrived, h.timestamp);
        let path_ctx = c.path_ctx;
        let there = Time(arrived.0.saturating_sub(back.0));
        let entry = self.paths.get_mut(path_ctx);
        entry.last_heard = now;
        entry.ctx.ack_echoed(there, h.ack_echo);
        if self.contexts.get_mut(ci).act().loss.stalled {
            self.context_resume(now, ci);
        }
        if self.granting(ci) {
            // As the sender counts them: reliable packets without acknowledgment block.
            let counted =
                h.encoded_len() + packet.body.encoded_len() + usize::from(packet.payload_len);
            let bytes = if h.kind.is_reliable() { counted as u32 } else { 0 };
            self.shared.rx.granter.on_backlog(now, ci, h.backlog.packets_max(), bytes);
        }
        back
    }

    fn body_received(
        &mut self,
        now: Time,
        ci: u32,
        meta: &RxMeta,
        packet: &Packet<'_>,
    ) -> Result<Rx, Drop> {
        let h = &packet.header;
        let requested = h.flags.has(Flags::ACK_REQUEST);
        if h.kind.is_reliable() || h.kind == PacketType::Probe {
            let a = self.contexts.get_mut(ci).act();
            // The wait in this host is the host's: the echo counts it as ours.
            let arrived = Time(now.0.saturating_sub(meta.waited.0));
            a.ack.note_echo(arrived, h, meta.ce);
            if requested {
                let delay = self.shared.cfg.ack.delay_requested;
                self.contexts.get_mut(ci).act().ack.hasten(now, delay);
            }
        }
        let result = match packet.body {
            Body::Ack | Body::CloseAck => Ok(Rx::Done),
            Body::Probe => {
                let a = self.contexts.get_mut(ci).act();
                a.ack.note_missed();
                a.ack.hasten(now, crate::time::Span::ZERO);
                Ok(Rx::Done)
            }
            Body::Close => self.close_received(now, ci),
            Body::Ud(msg) => self.ud_received(ci, packet, &msg, None),
            Body::UdImm(msg, imm) => self.ud_received(ci, packet, &msg, Some(imm)),
            _ => self.reliable_received(now, ci, packet),
        };
        if self.contexts.find(ci).is_some() {
            self.ack_schedule(now, ci);
            self.shared.out.rearm_push(ci);
        }
        result
    }

    /// The peer is heard again: what was in flight is judged by the acknowledgments that follow.
    pub(crate) fn context_resume(&mut self, now: Time, ci: u32) {
        let c = self.contexts.get_mut(ci);
        c.act().loss.resume(now);
        let path_ctx = c.path_ctx;
        self.paths.get_mut(path_ctx).ctx.thaw(now);
        self.shared.observer.event(now, Event::Resumed { ctx: ci });
        self.shared.out.ready_push(ci);
    }
}
