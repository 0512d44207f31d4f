//! An engine of a crowded world.

use super::net::Gram;
use super::plan::{PACKETS, Plan};
use crate::engines::{Watch, qp_ready, wake_ns};
use crate::packet::{endpoint_of, ip_of};
use srd_core::wire::{self, AckBlock};
use srd_core::{
    Access, AhId, CompletionKind, CqId, Endpoint, Engine, EngineConfig, MrKey, Opcode, Qpn, Rng,
    Rx, RxMeta, SendRequest, Source, Span, Status, Time, Transmit, TxSink,
};

/// Address of the receiver's region.
const REGION_AT: u64 = 1 << 20;
/// Q_Key of all queue pairs.
const QKEY: u32 = 7;
/// Depth of queues, and half of the completion queue's.
const DEPTH: u32 = 512;
/// Packets per poll.
const BATCH: usize = 16;
/// Most batches and timers of an engine at one instant.
const ROUNDS_MAX: u32 = 20_000;

/// Where senders write to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    pub qpn: Qpn,
    pub key: MrKey,
}

/// An engine.
pub(super) struct Member {
    pub engine: Engine<Watch>,
    pub host: usize,
    pub at: Endpoint,
    qpn: Qpn,
    cq: CqId,
    key: MrKey,
    /// Time of its next wake-up.
    pub wake_at: u64,
    /// Requests posted, and those that have ended.
    pub posted: u64,
    pub ended: u64,
    ah: Option<AhId>,
    ack: AckBlock,
    pub out: Vec<Gram>,
}

impl Member {
    pub fn new(plan: &Plan, host: usize, slot: u8) -> Self {
        let ip = ip_of(host as u32);
        let mut cfg = EngineConfig { ip, slot, ..plan.config.clone() };
        if host == 0 {
            cfg.rate.line_bytes_per_sec = plan.line_of_receiver();
        }
        let rng = Rng::from_seed(plan.seed ^ (host as u64) << 8 ^ u64::from(slot));
        let now = Time(0);
        let watch = Watch::of(&cfg);
        let mut engine = Engine::new(cfg, rng, now, watch).expect("a sound plan");
        let cq = engine.cq_create(2 * DEPTH).expect("a fresh engine has room");
        let pd = engine.pd_create().expect("a fresh engine has room");
        let bytes = PACKETS * plan.mtu();
        let all = Access(Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        let key = engine.mr_register(pd, REGION_AT, bytes, all).expect("a fresh engine has room");
        let qpn = qp_ready(&mut engine, now, (pd, cq), DEPTH, QKEY);
        // The receiver is on the first host.
        let ah = (host > 0).then(|| engine.ah_create(now, pd, ip_of(0)).expect("room"));
        Self {
            engine,
            host,
            at: endpoint_of(host as u32, slot),
            qpn,
            cq,
            key,
            wake_at: u64::MAX,
            posted: 0,
            ended: 0,
            ah,
            ack: AckBlock::default(),
            out: Vec::new(),
        }
    }

    pub fn goal(&self) -> Goal {
        Goal { qpn: self.qpn, key: self.key }
    }

    /// Posts a request. False: the queue is full.
    pub fn post(&mut self, now: u64, goal: Goal, len: u64) -> bool {
        let Some(ah) = self.ah else { return false };
        let wr = SendRequest {
            wr_id: self.posted,
            op: Opcode::Write,
            ah,
            dst_qpn: goal.qpn,
            qkey: QKEY,
            len: len as u32,
            rkey: goal.key.0,
            raddr: REGION_AT,
            imm: 0,
        };
        self.engine.observer().steps = 0;
        let posted = self.engine.post_send(Time(now), self.qpn, &wr).is_ok();
        self.posted += u64::from(posted);
        posted
    }

    /// Passes a datagram to the engine. Returns the bytes that it places, or what is wrong.
    pub fn deliver(&mut self, now: u64, gram: &Gram, buffer: &mut [u8]) -> Result<u64, String> {
        let n = gram.head.len();
        buffer[..n].copy_from_slice(&gram.head);
        buffer[n..gram.len].fill(0);
        let mut placed = Ok(0);
        match wire::parse(&buffer[..gram.len], &mut self.ack) {
            Ok((packet, _)) => {
                let meta = RxMeta { src_ip: gram.src, ce: gram.ce, rxq_drops: 0, waited: Span(0) };
                self.engine.observer().steps = 0;
                if let Rx::Place(place) = self.engine.handle(Time(now), &meta, &packet) {
                    placed = Ok(u64::from(place.len));
                }
                self.engine.rx_burst_end(Time(now));
            }
            Err(e) => placed = Err(format!("an engine's packet cannot be parsed: {e:?}")),
        }
        self.ack.clear();
        placed
    }

    /// Lets the engine do all it can now. Returns what is wrong.
    pub fn pump(&mut self, now: u64) -> Result<(), String> {
        for round in 0.. {
            if self.engine.next_timeout() > Time(now) {
                break;
            }
            if round > ROUNDS_MAX {
                return Err("an engine does not become idle".into());
            }
            self.engine.observer().steps = 0;
            self.engine.handle_timeout(Time(now));
            self.engine.observer().steps = 0;
            let mut sink = Emitter { out: &mut self.out, src: self.at };
            let _ = self.engine.poll_transmit(Time(now), BATCH, &mut sink);
        }
        while self.engine.poll_event().is_some() {}
        while let Some(c) = self.engine.cq_poll(self.cq) {
            self.engine.cq_release(self.cq, 1);
            let sent = matches!(c.kind, CompletionKind::Send(..));
            if !sent || c.status != Status::Ok || c.wr_id >= self.posted {
                return Err(format!("a request ended badly: {c:?}"));
            }
            self.ended += 1;
        }
        Ok(())
    }

    /// When the engine is to be woken.
    pub fn due(&self, now: u64) -> u64 {
        wake_ns(&self.engine, now)
    }
}

struct Emitter<'a> {
    out: &'a mut Vec<Gram>,
    src: Endpoint,
}

impl TxSink for Emitter<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        debug_assert!(t.payload.is_none_or(|p| matches!(p.source, Source::Wr(_))), "only writes");
        let mut head = vec![0; t.packet.headers_len()];
        let n = wire::emit(&t.packet, &mut head);
        let len = (n + usize::from(t.packet.payload_len)).max(usize::from(t.padded_len));
        let (src, dst) = (self.src.ip, t.dst);
        self.out.push(Gram { head, len, src, dst, sender: 0, forth: true, ce: false });
    }
}
