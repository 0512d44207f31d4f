//! The turns to send: handshakes, acknowledgments, probes and Closes first, then data of the peers
//! in turn.

use crate::api::{Transmit, TxSink};
use crate::config::Integrity;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::{Ctx, PeerTag};
use crate::outbox::Control;
use crate::peer::handshake::AnswerOut;
use crate::peer::{ContextState, Numbered};
use crate::psn::{Psn, TxNum};
use crate::time::Time;
use crate::tx::Out;
use core::net::IpAddr;
use srd_wire::{Backlog, Body, Flags, Header, OpenParams, Packet, PacketType};

impl<O: Observer> Engine<O> {
    /// Sends up to `most` handshake packets: our own first, then answers. Each takes a random path,
    /// so that a dead path costs one try. Of several rails, our own take one after the other, and
    /// answers the one by which the question came.
    pub(crate) fn emit_control(&mut self, now: Time, most: usize, out: &mut Out<'_, impl TxSink>) {
        let enough = out.left.saturating_sub(most);
        while out.left > enough {
            if let Some(c) = self.shared.out.control_pop() {
                self.emit_one(now, &c, out);
                continue;
            }
            let Some(ci) = self.shared.out.answer_pop() else { return };
            let answer = self.contexts.find_mut(ci).and_then(|c| c.handshake_mut().answer_take());
            let Some(AnswerOut { echo_tag, cookie, padded_len, near }) = answer else { continue };
            debug_assert!(echo_tag != PeerTag::NONE, "an answer says whom it answers");
            let params = OpenParams { echo_tag: echo_tag.0, cookie, ..self.open_params(ci) };
            let open_ack = self.control_of(ci, Body::OpenAck(params), padded_len, near);
            self.emit_one(now, &open_ack, out);
        }
    }

    /// Sends the acknowledgments that are due, each as a packet of its own.
    pub(crate) fn emit_acks(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(ci) = self.shared.out.ack_pop() else { return };
            if let Some(mut lane) = self.lane_find(now, ci) {
                lane.emit_ack(out);
            }
        }
    }

    /// Sends probes of retired paths and of silent peers.
    pub(crate) fn emit_probes(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(probe) = self.shared.out.probe_pop() else { return };
            if let Some(mut lane) = self.lane_find(now, probe.ci) {
                lane.emit_probe(&probe, out);
            }
        }
    }

    pub(crate) fn emit_closes(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(ci) = self.shared.out.close_pop() else { return };
            let Some(c) = self.contexts.find(ci) else { continue };
            if c.state() != ContextState::Closing {
                continue;
            }
            self.emit_close(now, ci, out);
        }
    }

    /// Sends reliable packets of the ready contexts in turn, at most one burst each, until none is
    /// ready, `out` is full, or the port of the host has enough.
    /// Rule CC-39.
    pub(crate) fn emit_ready(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 && self.shared.port.is_open(now) {
            let Some(ci) = self.shared.out.ready_pop() else { return };
            let (bytes, pkts) = (self.shared.counters.tx_bytes, out.sent);
            if let Some(mut lane) = self.lane_find(now, ci) {
                lane.turn(out);
            }
            let pkts = out.sent - pkts;
            if pkts > 0 {
                let bytes = self.shared.counters.tx_bytes - bytes;
                self.shared.port.on_sent(now, bytes, pkts);
            }
            self.shared.out.rearm_push(ci);
        }
    }

    /// Sends answers to strangers, as far as `out` has room after all other packets.
    pub(crate) fn emit_strangers(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(c) = self.strangers.queue.pop_front() else { return };
            debug_assert_eq!((c.tx_num, c.psn), (TxNum(0), Psn(0)), "of no context");
            self.emit_one(now, &c, out);
        }
    }

    /// Sends one handshake packet or answer to a stranger.
    fn emit_one(&mut self, now: Time, c: &Control, out: &mut Out<'_, impl TxSink>) {
        let paths = self.shared.cfg.path.paths;
        let path = self.paths.denials.draw(&c.dst.ip, paths, &mut self.shared.rng);
        let path = match c.near {
            Some(near) if self.shared.cfg.path.rails > 1 => self.path_near(&c.dst.ip, path, near),
            _ => path,
        };
        let checked = self.shared.cfg.integrity != Integrity::Off;
        let header = Header {
            kind: c.body.kind(),
            flags: Flags(if checked { Flags::CHECKED } else { 0 }),
            backlog: Backlog(0),
            path,
            slot: self.shared.cfg.slot,
            dst_tag: c.dst_tag.0,
            tx_num: c.tx_num.low().0,
            timestamp: now.to_wire(),
            psn: c.psn.0,
            una_delta: 0,
            ack_echo: 0,
        };
        let packet = Packet { header, ack: None, body: c.body, payload_len: 0 };
        self.shared.counters.tx_pkts += 1;
        debug_assert!(!c.body.kind().is_reliable(), "no PSN is taken: {:?}", c.body);
        let bytes = packet.headers_len().max(usize::from(c.padded_len));
        self.shared.counters.tx_bytes += bytes as u64;
        let padded_len = c.padded_len;
        out.push(&Transmit { dst: c.dst, path, packet, payload: None, padded_len });
    }

    /// A path close to `path` of the same rail as `near`, unless it is denied.
    #[cold]
    fn path_near(&self, ip: &IpAddr, path: u8, near: u8) -> u8 {
        let paths = self.shared.cfg.path.paths;
        let rails = u16::from(self.shared.cfg.path.rails).min(paths);
        let first = u16::from(path) - u16::from(path) % rails;
        let same = first + u16::from(near) % rails;
        let same = if same < paths { same } else { same - rails } as u8;
        debug_assert!(u16::from(same) < paths, "a path of the table");
        if self.paths.denials.get(ip).has(same) { path } else { same }
    }

    /// Sends a Close. The context may have no window state.
    fn emit_close(&mut self, now: Time, ci: Ctx, out: &mut Out<'_, impl TxSink>) {
        let c = self.contexts.get_mut(ci);
        let way = &mut self.paths.get_mut(c.way()).paths;
        let path = way.awake(now).ack_path_choose(false, &mut self.shared.rng);
        let (tx_num, una, psn) = (c.tx_num_take(), c.una(), c.psn_next());
        let backlog = c.win().map_or(0, |a| a.backlog_packets(c.limits().mtu));
        let number = Numbered { path, tx_num, psn, una, backlog };
        let slot = self.shared.cfg.slot;
        let flags = if c.handshake().is_draining() { Flags::ACK_REQUEST } else { 0 };
        let header = c.header(now, slot, PacketType::Close, flags, &number);
        let packet = Packet { header, ack: None, body: Body::Close, payload_len: 0 };
        let bytes = packet.headers_len();
        way.awake(now).on_uncounted_sent(path, bytes as u32);
        self.shared.counters.tx_pkts += 1;
        self.shared.counters.tx_bytes += bytes as u64;
        out.push(&Transmit { dst: c.endpoint(), path, packet, payload: None, padded_len: 0 });
    }
}
