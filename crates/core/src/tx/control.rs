//! Packets that carry no work: handshake answers, pure acknowledgments, probes.

use crate::api::{Endpoint, Transmit, TxSink};
use crate::config::{Integrity, PathPolicy};
use crate::engine::Engine;
use crate::events::Observer;
use crate::outbox::{Control, ProbeOut};
use crate::peer::Answer;
use crate::time::Time;
use crate::tx::Out;
use srd_wire::{Backlog, Body, Flags, Header, Packet};

/// What a packet has beside its payload.
const OVERHEAD: u16 = srd_wire::OVERHEAD_BYTES as u16;

/// A packet without PSN and payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    pub body: Body,
    pub flags: u8,
    pub path: u8,
    pub padded_len: u16,
}

impl<O: Observer> Engine<O> {
    pub(crate) fn control_push(&mut self, dst: Endpoint, dst_tag: u32, body: Body) {
        self.shared.control_push(Control { dst, dst_tag, body, padded_len: 0, tx_num: 0, psn: 0 });
    }

    /// A handshake packet of context `ci`: it takes a transmission number like any other.
    pub(crate) fn control_push_of(&mut self, ci: u32, body: Body, padded_len: u16) {
        let control = self.control_of(ci, body, padded_len);
        self.shared.control_push(control);
    }

    fn control_of(&mut self, ci: u32, body: Body, padded_len: u16) -> Control {
        let c = self.contexts.get_mut(ci);
        let tx_num = c.tx_num_take();
        let (dst, dst_tag, psn) = (c.peer, c.peer_tag, c.psn_next());
        Control { dst, dst_tag, body, padded_len, tx_num, psn }
    }

    /// Answers an Open, or the Challenge whose number is `cookie`. However often a peer asks before
    /// the answer can leave, it is one.
    pub(crate) fn open_ack_send(&mut self, ci: u32, cookie: u64, padded_len: u16) {
        let full = self.shared.out.answers_are_full();
        let answer = &mut self.contexts.get_mut(ci).answer;
        if full && !answer.waits {
            self.shared.counters.control_dropped += 1;
            return;
        }
        if !answer.waits {
            self.shared.out.answer_push(ci);
        }
        // Of a full Open and a smaller one beside it, the full one is answered: without padding.
        let full = answer.waits && padded_len.min(answer.padded_len) == 0;
        let padded_len = if full { 0 } else { padded_len.max(answer.padded_len) };
        *answer = Answer { waits: true, padded_len, cookie };
    }

    /// Up to `most` handshake packets: those that we begin, then answers. Each takes a path at
    /// random, so that a dead path costs one try.
    pub(crate) fn emit_control(&mut self, now: Time, most: usize, out: &mut Out<'_, impl TxSink>) {
        let enough = out.left.saturating_sub(most);
        while out.left > enough {
            if let Some(c) = self.shared.out.control_pop() {
                self.emit_one(now, &c, out);
                continue;
            }
            let Some(ci) = self.shared.out.answer_pop() else { return };
            let answer = self.contexts.find_mut(ci).map(|c| core::mem::take(&mut c.answer));
            let Some(Answer { waits: true, padded_len, cookie }) = answer else { continue };
            let mut params = self.open_params(ci);
            let c = self.contexts.get_mut(ci);
            if c.peer_tag == 0 {
                continue;
            }
            (params.echo_tag, params.cookie) = (c.peer_tag, cookie);
            let open_ack = self.control_of(ci, Body::OpenAck(params), padded_len);
            self.emit_one(now, &open_ack, out);
        }
    }

    /// One handshake packet, or answer to a stranger.
    pub(crate) fn emit_one(&mut self, now: Time, c: &Control, out: &mut Out<'_, impl TxSink>) {
        let path = self.shared.rng.below(u32::from(self.shared.cfg.path.paths)) as u8;
        let checked = self.shared.cfg.integrity != Integrity::Off;
        let header = Header {
            kind: c.body.kind(),
            flags: Flags(if checked { Flags::CHECKED } else { 0 }),
            backlog: Backlog(0),
            path,
            slot: self.shared.cfg.slot,
            dst_tag: c.dst_tag,
            tx_num: c.tx_num as u32,
            timestamp: now.to_wire(),
            psn: c.psn,
            una_delta: 0,
            ack_echo: 0,
        };
        let packet = Packet { header, ack: None, body: c.body, payload_len: 0 };
        self.shared.counters.tx_pkts += 1;
        let bytes = packet.headers_len().max(usize::from(c.padded_len));
        self.shared.counters.tx_bytes += bytes as u64;
        let padded_len = c.padded_len;
        out.push(&Transmit { dst: c.dst, path, packet, payload: None, padded_len });
    }

    /// Puts the context into the queue of those with an acknowledgment due, or arms its timer.
    pub(crate) fn ack_schedule(&mut self, now: Time, ci: u32) {
        let c = self.contexts.get_mut(ci);
        let Some(a) = c.active.as_ref() else { return };
        if a.ack.due() <= now {
            self.shared.out.ack_push(ci);
        }
    }

    /// Acknowledgments that are due, each as a packet of its own.
    pub(crate) fn emit_acks(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(ci) = self.shared.out.ack_pop() else { return };
            let Some(c) = self.contexts.find_mut(ci) else { continue };
            if c.peer_tag == 0 || c.active.as_ref().is_none_or(|a| a.ack.due() > now) {
                continue;
            }
            let ack = &c.act().ack;
            let (repeat, alone) = (ack.is_repeat(), ack.is_alone());
            let path_ctx = c.path_ctx;
            let pc = &mut self.paths.get_mut(path_ctx).ctx;
            // Plain ECMP spreads nothing.
            let path = if repeat && self.shared.cfg.path.policy != PathPolicy::Ecmp {
                pc.path_any(now, &mut self.shared.rng)
            } else {
                pc.ack_path_choose(now, alone, &mut self.shared.rng)
            };
            let rest = self.ack_build(now, ci);
            let alone = Alone { body: Body::Ack, flags: Flags::ACK_BLOCK, path, padded_len: 0 };
            self.emit_alone(now, ci, &alone, out);
            self.shared.counters.ack_pkts += 1;
            let tx_num = self.contexts.get(ci).tx_num_next.wrapping_sub(1);
            self.ack_left(now, ci, path, tx_num, rest);
            self.ack_schedule(now, ci);
            self.shared.out.rearm_push(ci);
        }
    }

    /// An acknowledgment block has left on `path`.
    pub(crate) fn ack_left(
        &mut self,
        now: Time,
        ci: u32,
        path: u8,
        tx_num: u64,
        rest: Option<(u32, u32)>,
    ) {
        let c = self.contexts.get_mut(ci);
        c.act().ack.sent(now, rest);
        if planted!(VerdictToldOnce) {
            c.act().verdicts.clear();
        }
        let path_ctx = c.path_ctx;
        self.paths.get_mut(path_ctx).ctx.ack_sent(now, path, tx_num as u16);
    }

    /// A packet without PSN and payload: acknowledgment or probe. An acknowledgment block, if
    /// flagged, is taken from the scratch block.
    pub(crate) fn emit_alone(
        &mut self,
        now: Time,
        ci: u32,
        alone: &Alone,
        out: &mut Out<'_, impl TxSink>,
    ) {
        let Alone { body, flags, path, padded_len } = *alone;
        let c = self.contexts.get_mut(ci);
        let tx_num = c.tx_num_take();
        let (psn, dst, path_ctx) = (c.psn_next(), c.peer, c.path_ctx);
        if matches!(body, Body::Probe) {
            let a = c.act();
            a.sent_log.note(now, tx_num, path, a.board.ring_len());
        }
        let header = self.header_of(now, ci, body.kind(), flags, path, tx_num, psn);
        let ack = (flags & Flags::ACK_BLOCK != 0).then_some(&self.shared.rx.scratch);
        let packet = Packet { header, ack, body, payload_len: 0 };
        let bytes = packet.headers_len().max(usize::from(padded_len));
        self.paths.get_mut(path_ctx).ctx.on_uncounted_sent(now, path, bytes as u32);
        self.shared.counters.tx_pkts += 1;
        self.shared.counters.tx_bytes += bytes as u64;
        out.push(&Transmit { dst, path, packet, payload: None, padded_len });
    }

    /// Probes: of retired paths, and of peers that have fallen silent.
    pub(crate) fn emit_probes(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(ProbeOut { ci, path, size, asks }) = self.shared.out.probe_pop() else {
                return;
            };
            let Some(c) = self.contexts.find(ci) else { continue };
            if c.peer_tag == 0 || c.active.is_none() {
                continue;
            }
            self.shared.counters.probe_pkts += 1;
            let padded_len = if size == 0 { 0 } else { size.saturating_add(OVERHEAD) };
            let (body, flags) = (Body::Probe, Flags::ACK_REQUEST);
            if size > 0 {
                let c = self.contexts.get(ci);
                let (path_ctx, tx_num) = (c.path_ctx, c.tx_num_next);
                self.paths.get_mut(path_ctx).mtu.on_probe_sent(ci, tx_num, size, asks);
            }
            self.emit_alone(now, ci, &Alone { body, flags, path, padded_len }, out);
        }
    }
}
