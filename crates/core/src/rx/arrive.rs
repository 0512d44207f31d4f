//! An arriving packet of a peer: its transmission number, the fields of its header, its body.

use crate::api::{Rx, RxMeta};
use crate::counters::DropReason;
use crate::events::{Event, Observer};
use crate::lane::Lane;
use crate::limits::WINDOW_MAX;
use crate::psn::{Psn, TxLow, TxNum};
use crate::time::{Span, Time};
use srd_wire::{Body, Flags, Header, Packet, PacketType};

/// Twice the largest window: the PSNs in flight from one incarnation of a peer are nearer to the
/// window.
const PSN_DISTANCE_MAX: u32 = 2 * WINDOW_MAX as u32;

impl<O: Observer> Lane<'_, O> {
    /// Checks and records the packet's transmission number. Each number is accepted at most once.
    /// Also returns how many numbers it is ahead of the newest one before; 0: it was overtaken.
    pub(crate) fn tx_num_take_in(&mut self, h: &Header) -> Result<(TxNum, u32), DropReason> {
        // The PSN is far from every PSN that can be in flight: a former incarnation of the peer
        // sent the packet to the same tag. Its transmission number must not move the replay window.
        if Psn(h.psn).diff(self.win.rx_window.cum()).unsigned_abs() > PSN_DISTANCE_MAX {
            return Err(DropReason::TooFar);
        }
        let newest = self.win.replay.newest();
        let n = TxNum::nearest(TxLow(h.tx_num), newest);
        if !self.win.replay.take(n) {
            return Err(DropReason::Replay);
        }
        let passed = u32::try_from(n.0.saturating_sub(newest.0)).unwrap_or(u32::MAX);
        Ok((n, passed))
    }

    /// Handles the header of a packet of any type, which shows that the peer is alive. Returns the
    /// one-way delay of the packet above the recent minimum. `passed`: what
    /// [`Self::tx_num_take_in`] returned.
    pub(crate) fn heard(&mut self, meta: &RxMeta, packet: &Packet<'_>, passed: u32) -> Span {
        let h = &packet.header;
        let una = Psn(h.una());
        self.peer.heard_within(self.now);
        if meta.ce {
            self.peer.reports_mut().ce_note();
            self.shared.counters.ce_pkts += 1;
        }
        if self.peer.rx_una_advance(una) {
            self.win.verdicts.retire(una);
        }
        let arrived = Time(self.now.0.saturating_sub(meta.waited.0));
        let back = self.win.inbound.on_packet(arrived, h.timestamp);
        debug_assert!(arrived <= self.now, "it waited no longer than since it arrived");
        self.way.paths.ack_echoed(self.now, self.ci, h.ack_echo);
        if self.shared.cfg.path.rails > 1 {
            self.way.paths.rail_heard(h.path);
        }
        if self.win.loss.is_stalled() {
            self.resume();
        }
        if self.granting() {
            // Bytes as the sender counts them: of reliable packets only, without the acknowledgment
            // block.
            let counted =
                h.encoded_len() + packet.body.encoded_len() + usize::from(packet.payload_len);
            let bytes = if h.kind.is_reliable() { counted as u32 } else { 0 };
            let (more, echo) = (h.backlog.packets_max(), self.way.paths.echo());
            self.shared.rx.granter.on_backlog(self.now, self.ci, more, (bytes, passed), echo);
        }
        back
    }

    /// Handles the body of a packet, except of a Close, which ends the context.
    pub(crate) fn body_received(
        &mut self,
        meta: &RxMeta,
        packet: &Packet<'_>,
    ) -> Result<Rx, DropReason> {
        let h = &packet.header;
        let requested = h.flags.has(Flags::ACK_REQUEST);
        debug_assert_eq!(self.peer.last_heard(), self.now, "it was heard just now");
        if h.kind.is_reliable() || h.kind == PacketType::Probe {
            // The time that the packet waited in this host counts as delay of this host in the
            // echo.
            let arrived = Time(self.now.0.saturating_sub(meta.waited.0));
            self.win.ack.note_echo(arrived, h, meta.ce);
            // The end of a burst is looked at when all before it has arrived.
            if requested {
                let delay = self.shared.cfg.ack.delay_requested;
                self.win.ack.hasten(self.now, delay);
            }
        }
        let result = match packet.body {
            Body::Ack | Body::CloseAck => Ok(Rx::Done),
            Body::Probe => {
                self.win.ack.note_missed();
                self.win.ack.hasten(self.now, Span::ZERO);
                Ok(Rx::Done)
            }
            Body::Ud(msg) => self.ud_received(packet, &msg, None),
            Body::UdImm(msg, imm) => self.ud_received(packet, &msg, Some(imm)),
            _ => self.reliable_received(packet),
        };
        self.ack_schedule();
        self.rearm_push();
        result
    }

    /// A stalled peer is heard again. The acknowledgments that follow decide what becomes of the
    /// packets that were in flight.
    fn resume(&mut self) {
        self.win.loss.resume(self.now);
        debug_assert!(!self.win.loss.is_stalled(), "who is heard is not silent");
        self.way.paths.awake(self.now).resumed();
        self.shared.observer.event(self.now, Event::Resumed { ctx: self.ci });
        self.ready_push();
    }
}
