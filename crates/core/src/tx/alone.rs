//! Packets that carry no requests: pure acknowledgments and probes.

use crate::api::{Transmit, TxSink};
use crate::config::PathPolicy;
use crate::events::Observer;
use crate::guards::Guard;
use crate::lane::Lane;
use crate::outbox::ProbeOut;
use crate::tx::Out;
use srd_wire::{Body, Flags, Packet};

/// Bytes of a packet besides its payload.
const OVERHEAD: u16 = srd_wire::OVERHEAD_BYTES as u16;

/// A packet without PSN and payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    pub body: Body,
    pub flags: u8,
    pub path: u8,
    pub padded_len: u16,
}

impl<O: Observer> Lane<'_, O> {
    /// Sends an acknowledgment as a packet of its own, if one is due.
    pub(crate) fn emit_ack(&mut self, out: &mut Out<'_, impl TxSink>) {
        if !self.peer.handshake().knows_peer() || self.win.ack.due() > self.now {
            return;
        }
        let (repeat, alone) = (self.win.ack.is_repeat(), self.win.ack.is_alone());
        // Plain ECMP keeps acknowledgments on one path.
        let repeat = repeat && self.shared.cfg.guards.has(Guard::AckRepeat);
        let path = if repeat && self.shared.cfg.path.policy != PathPolicy::Ecmp {
            self.way.paths.awake(self.now).path_repeat(&mut self.shared.rng)
        } else {
            self.way.paths.awake(self.now).ack_path_choose(alone, &mut self.shared.rng)
        };
        let rest = self.ack_build();
        let alone = Alone { body: Body::Ack, flags: Flags::ACK_BLOCK, path, padded_len: 0 };
        self.emit_alone(&alone, out);
        self.shared.counters.ack_pkts += 1;
        self.win.ack.note_unanswered();
        let tx_num = self.peer.tx_num_next().prev();
        self.ack_left(path, tx_num, rest);
        self.ack_schedule();
        self.rearm_push();
    }

    /// Sends a probe.
    pub(crate) fn emit_probe(&mut self, probe: &ProbeOut, out: &mut Out<'_, impl TxSink>) {
        if !self.peer.handshake().knows_peer() {
            return;
        }
        let ProbeOut { path, size, asks, .. } = *probe;
        // The path was denied after the probe was queued.
        if self.way.paths.is_denied(path) {
            return;
        }
        self.shared.counters.probe_pkts += 1;
        debug_assert!(size > 0 || !asks, "a search asks for a size");
        let padded_len = if size == 0 { 0 } else { size.saturating_add(OVERHEAD) };
        let (body, flags) = (Body::Probe, Flags::ACK_REQUEST);
        if size > 0 {
            self.way.mtu.on_probe_sent(self.ci, self.peer.tx_num_next().low(), size, asks);
        }
        self.emit_alone(&Alone { body, flags, path, padded_len }, out);
    }

    /// Sends a packet without PSN and payload: an acknowledgment or a probe. If flagged, the
    /// acknowledgment block is taken from the scratch block.
    pub(crate) fn emit_alone(&mut self, alone: &Alone, out: &mut Out<'_, impl TxSink>) {
        let Alone { body, flags, path, padded_len } = *alone;
        debug_assert!(matches!(body, Body::Probe | Body::Ack), "{body:?} is not alone");
        let tx_num = self.peer.tx_num_take();
        debug_assert!(tx_num.next() == self.peer.tx_num_next(), "each number is used once");
        let (psn, dst) = (self.win.board.next(), self.peer.endpoint());
        if matches!(body, Body::Probe) {
            self.win.sent_log.note(self.now, tx_num, path, false, self.win.board.ring_len());
        }
        let header = self.header_of(body.kind(), flags, path, tx_num, psn);
        let ack = (flags & Flags::ACK_BLOCK != 0).then_some(&self.shared.rx.scratch);
        let packet = Packet { header, ack, body, payload_len: 0 };
        let bytes = packet.headers_len().max(usize::from(padded_len));
        self.way.paths.awake(self.now).on_uncounted_sent(path, bytes as u32);
        self.shared.counters.tx_pkts += 1;
        self.shared.counters.tx_bytes += bytes as u64;
        out.push(&Transmit { dst, path, packet, payload: None, padded_len });
    }

    /// Queues a probe on the next of all live paths.
    pub(crate) fn probe_push(&mut self) {
        let path = self.way.paths.awake(self.now).path_ask(&mut self.shared.rng);
        if !planted!(StallUnprobed) {
            self.shared.out.probe_push(ProbeOut::small(self.ci, path));
        }
    }
}
