//! Looking ahead: reading state that is about to be needed, so that a processor fetches it while it
//! has other things to do. Worth it for who runs thousands of engines that no cache holds together,
//! as a simulator does; a device has one, whose state stays in cache.
//!
//! Measured alone, the gain is not told from noise: the permutations of up to 8,192 hosts
//! (`srd lab run permutation`) took 31 and 35 s of processor time with it and 35 s without, on two
//! busy processors; the results are the same.

use crate::api::Qpn;
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::timer::TimerOf;
use srd_wire::{AckBlock, Header};

/// Stages of [`Engine::look_ahead`].
pub const LOOK_AHEAD_STAGES: u32 = 5;

/// What is known of a packet that will come.
#[derive(Clone, Copy, Debug)]
pub struct Coming<'a> {
    /// Its header.
    pub header: &'a Header,
    /// Its acknowledgment block.
    pub ack: Option<&'a AckBlock>,
    /// The queue pair it is for.
    pub qpn: Option<Qpn>,
}

impl<O: Observer> Engine<O> {
    /// Reads what a packet, or a timer where there is none, will need, and returns a number made of
    /// it that means nothing. Changes nothing.
    ///
    /// Call it for many engines in a row with stage 0, then for all of them with stage 1, and so on
    /// below [`LOOK_AHEAD_STAGES`]: each stage reads where the one before found pointers, so that
    /// the reads of one stage do not wait for each other. For another packet of an engine just
    /// looked at, the last two stages are enough.
    pub fn look_ahead(&self, stage: u32, packet: Option<Coming<'_>>) -> u64 {
        if stage == 0 {
            return self.ahead_of_engine();
        }
        let ci = match packet {
            Some(p) => self.contexts.by_tag(p.header.dst_tag),
            None => self.ahead_of_timer(),
        };
        let Some((ci, c)) = ci.and_then(|ci| Some((ci, self.contexts.find(ci)?))) else { return 0 };
        let pc = &self.paths.get(c.way).paths;
        match (stage, c.win()) {
            (1, _) => {
                c.ahead()
                    ^ pc.ahead()
                    ^ self.shared.timers.ahead(TimerOf::Context(ci).number())
                    ^ self.shared.rx.granter.ahead(ci.0)
            }
            (2, Some(a)) => {
                let qp = packet.and_then(|p| p.qpn).and_then(|qpn| self.objects.qps.get(qpn));
                a.ahead() ^ pc.ahead_active() ^ qp.map_or(0, |qp| u64::from(qp.qkey))
            }
            (3, Some(a)) => {
                let sum = a.board.ahead() ^ self.objects.wrs.ahead() ^ self.objects.mrs.ahead();
                packet.map_or(sum, |Coming { header: h, ack, .. }| {
                    let ack = ack.map_or(0, |ack| u64::from(ack.cum) ^ ack.words.len() as u64);
                    sum ^ ack ^ a.window.ahead(h.psn) ^ a.replay.ahead(u64::from(h.tx_num))
                })
            }
            (_, Some(a)) => {
                let oldest = a.board.oldest().map_or(0, |p| a.board.get(p).path);
                let echoes = packet.and_then(|p| p.ack).map_or(&[][..], |ack| &ack.echoes);
                let echoes = echoes.iter().fold(0, |sum, e| sum ^ pc.ahead_path(e.path));
                echoes ^ pc.ahead_path(oldest)
            }
            (_, None) => 0,
        }
    }

    /// Parts of the engine itself that lie apart from each other.
    fn ahead_of_engine(&self) -> u64 {
        let n = &self.shared.counters;
        let cfg = &self.shared.cfg;
        let a = n.tx_pkts ^ n.rx_pkts ^ n.rdma_write_recv_bytes ^ n.retrans_pkts ^ n.ack_pkts;
        let b = u64::from(cfg.mtu) ^ cfg.loss.rto_max.0 ^ cfg.ack.delay_max.0 ^ cfg.idle_after.0;
        let c = self.shared.out.ahead() ^ self.pool.len() as u64;
        let e = u64::from(self.contexts.slots())
            ^ self.shared.rx.granter.next().0
            ^ self.shared.timers.next().0;
        let f = u64::from(self.shared.rx.scratch.cum) ^ self.shared.rx.flows.ahead();
        let g = self.path_params.line_bytes_per_sec ^ u64::from(self.path_params.mtu);
        a ^ b ^ c ^ e ^ f ^ g
    }

    /// The context that a timer, or room in the card, most likely concerns.
    fn ahead_of_timer(&self) -> Option<Ctx> {
        let timer = || match TimerOf::owner(self.shared.timers.owner_next()?) {
            TimerOf::Context(ci) => Some(ci),
            TimerOf::Path(pi) => Some(self.paths.get(pi).carrier),
            TimerOf::Backoff(wi) => Some(self.objects.wrs.find(wi)?.ctx),
        };
        self.shared.out.ready_front().or_else(timer)
    }
}
