//! One host: an engine with the memory that its device would keep, and the packets it sends.

use srd_core::wire::{AckBlock, Packet};
use srd_core::*;
use std::{collections::HashMap, net::IpAddr};

/// A packet on its way.
#[derive(Clone)]
pub struct Flying {
    pub dst: Endpoint,
    pub src_ip: IpAddr,
    pub header: wire::Header,
    pub ack: Option<AckBlock>,
    pub body: wire::Body,
    pub payload: Vec<u8>,
    pub path: u8,
    pub padded_len: u16,
    /// Length in all.
    pub bytes: usize,
}

/// Buffers of one host, as its device would keep them.
#[derive(Default)]
struct Memory {
    wrs: HashMap<u32, Vec<u8>>,
    recvs: HashMap<(u16, u32), Vec<u8>>,
    regions: HashMap<u32, (u64, Vec<u8>)>,
}

/// One engine with its memory and its usual objects.
pub struct Host {
    pub engine: Engine,
    memory: Memory,
    pub ip: IpAddr,
    pub pd: PdId,
    pub cq: CqId,
    pub done: Vec<Completion>,
    pub events: Vec<AsyncEvent>,
    /// Contents of completed receives, in order of completion.
    pub received: Vec<Vec<u8>>,
    pub sent_packets: u64,
    pub paths_used: [u64; 256],
}

struct Collect<'a> {
    memory: &'a Memory,
    src_ip: IpAddr,
    out: Vec<Flying>,
    paths_used: &'a mut [u64; 256],
}

impl TxSink for Collect<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let payload = match t.payload {
            None => Vec::new(),
            Some(p) => {
                let (from, start) = match p.source {
                    Source::Wr(h) => (&self.memory.wrs[&h.0], p.offset as usize),
                    Source::Region(k) => {
                        let (addr, bytes) = &self.memory.regions[&k.0];
                        (bytes, (p.offset - addr) as usize)
                    }
                };
                from[start..start + usize::from(p.len)].to_vec()
            }
        };
        assert_eq!(payload.len(), usize::from(t.packet.payload_len));
        self.paths_used[usize::from(t.path)] += 1;
        // Through bytes and back: what is checked here is what would travel.
        let mut bytes = [0; wire::HEADERS_BYTES_MAX];
        let n = wire::emit(&t.packet, &mut bytes);
        let mut whole = bytes[..n].to_vec();
        whole.extend_from_slice(&payload);
        wire::stamp(&mut whole);
        let mut ack = AckBlock::default();
        let (p, at) =
            wire::parse_checked(&whole, &mut ack).expect("the core emits what can be parsed");
        assert_eq!(at, n);
        let (header, body, has_ack) = (p.header, p.body, p.ack.is_some());
        self.out.push(Flying {
            dst: t.dst,
            src_ip: self.src_ip,
            header,
            ack: has_ack.then_some(ack),
            body,
            payload,
            path: t.path,
            padded_len: t.padded_len,
            bytes: whole.len().max(t.padded_len.into()),
        });
    }
}

impl Host {
    pub fn new(cfg: EngineConfig, seed: u64, now: Time) -> Self {
        let ip = cfg.ip;
        let mut engine = Engine::new(cfg, Rng::from_seed(seed), now, ()).unwrap();
        let pd = engine.pd_create().unwrap();
        let cq = engine.cq_create(100_000).unwrap();
        Self::of(engine, (pd, cq), ip)
    }

    /// With this engine and its usual objects.
    pub fn of(engine: Engine, (pd, cq): (PdId, CqId), ip: IpAddr) -> Self {
        Self {
            engine,
            memory: Memory::default(),
            ip,
            pd,
            cq,
            done: vec![],
            events: vec![],
            received: vec![],
            sent_packets: 0,
            paths_used: [0; 256],
        }
    }

    pub fn qp(&mut self, now: Time, kind: QpType, unsolicited: bool) -> Qpn {
        let init = QpInit {
            kind,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            sq_depth: 4096,
            rq_depth: 4096,
            unsolicited_write_recv: unsolicited,
        };
        let qp = self.engine.qp_create(now, init).unwrap();
        self.qp_ready(now, qp, 7);
        qp
    }

    pub fn qp_ready(&mut self, now: Time, qp: Qpn, rnr_retry: u8) {
        let to = |state, qkey, rnr_retry| QpModify { state: Some(state), qkey, rnr_retry };
        self.engine.qp_modify(now, qp, to(QpState::Init, Some(0x11), None)).unwrap();
        self.engine.qp_modify(now, qp, to(QpState::Rtr, None, None)).unwrap();
        self.engine.qp_modify(now, qp, to(QpState::Rts, None, Some(rnr_retry))).unwrap();
    }

    pub fn ah(&mut self, now: Time, to: IpAddr) -> AhId {
        self.engine.ah_create(now, self.pd, to).unwrap()
    }

    pub fn region(&mut self, bytes: Vec<u8>, access: u8) -> (MrKey, u64) {
        let addr = 0x7000_0000_0000;
        let len = bytes.len() as u64;
        let key = self.engine.mr_register(self.pd, addr, len, Access(access)).unwrap();
        self.memory.regions.insert(key.0, (addr, bytes));
        (key, addr)
    }

    pub fn region_bytes(&self, key: MrKey) -> &[u8] {
        &self.memory.regions[&key.0].1
    }

    pub fn region_remove(&mut self, key: MrKey) {
        self.engine.mr_deregister(key).unwrap();
        self.memory.regions.remove(&key.0);
    }

    pub fn recv(&mut self, qp: Qpn, wr_id: u64, len: u32) {
        let h = self.engine.post_recv(qp, &RecvRequest { wr_id, len }).unwrap();
        self.memory.recvs.insert((h.qp.0, h.index), vec![0; len as usize]);
    }

    pub fn post(
        &mut self,
        now: Time,
        qp: Qpn,
        wr: SendRequest,
        data: Vec<u8>,
    ) -> Result<WrHandle, PostRefusal> {
        let h = self.engine.post_send(now, qp, &wr)?;
        self.memory.wrs.insert(h.0, data);
        Ok(h)
    }

    pub fn wr_bytes(&self, h: WrHandle) -> &[u8] {
        &self.memory.wrs[&h.0]
    }

    /// Lets up to 64 packets leave.
    pub fn transmit(&mut self, now: Time) -> Vec<Flying> {
        let mut sink = Collect {
            memory: &self.memory,
            src_ip: self.ip,
            out: vec![],
            paths_used: &mut self.paths_used,
        };
        let n = self.engine.poll_transmit(now, 64, &mut sink);
        let out = sink.out;
        self.sent_packets += n as u64;
        self.collect();
        out
    }

    /// Hands one packet over, and puts its payload where the engine says.
    pub fn receive(&mut self, now: Time, meta: &RxMeta, packet: &Packet<'_>, payload: &[u8]) {
        if let Rx::Place(p) = self.engine.handle(now, meta, packet) {
            self.place(p, payload);
        }
        self.engine.rx_burst_end(now);
        self.collect();
    }

    fn place(&mut self, p: Placement, payload: &[u8]) {
        let len = p.len as usize;
        assert_eq!(len, payload.len());
        let (to, at) = match p.target {
            Target::Recv(h) => {
                (self.memory.recvs.get_mut(&(h.qp.0, h.index)).unwrap(), p.offset as usize)
            }
            Target::Region(k) => {
                let (addr, bytes) = self.memory.regions.get_mut(&k.0).unwrap();
                (bytes, (p.offset - *addr) as usize)
            }
            Target::Wr(h) => (self.memory.wrs.get_mut(&h.0).unwrap(), p.offset as usize),
        };
        to[at..at + len].copy_from_slice(payload);
    }

    pub fn collect(&mut self) {
        while let Some(c) = self.engine.cq_poll(self.cq) {
            self.engine.cq_release(self.cq, 1);
            if let CompletionKind::Recv(h) = c.kind
                && c.status == Status::Ok
            {
                let buffer = &self.memory.recvs[&(h.qp.0, h.index)];
                self.received.push(buffer[..c.byte_len as usize].to_vec());
            }
            self.done.push(c);
        }
        while let Some(e) = self.engine.poll_event() {
            self.events.push(e);
        }
    }

    pub fn statuses(&self) -> Vec<Status> {
        let sends = self.done.iter().filter(|c| matches!(c.kind, CompletionKind::Send(..)));
        sends.map(|c| c.status).collect()
    }

    pub fn sends_done(&self) -> usize {
        self.statuses().len()
    }
}
