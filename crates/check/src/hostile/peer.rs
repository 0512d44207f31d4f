//! An engine in a hostile world with its objects, jobs and memory, and the oracles that inspect it.

use super::jobs::{Board, Job, bytes_of};
use super::net::Gram;
use super::plan::Plan;
use crate::engines::{Watch, qp_ready, wake_ns};
use crate::ledger::Oracle;
use srd_core::config::{Integrity, PORT_BASE_DEFAULT};
use srd_core::wire::{self, AckBlock, Flags};
use srd_core::{
    Access, AhId, AsyncEvent, CompletionKind, CqId, Endpoint, Engine, EngineConfig, MrKey, Opcode,
    PdId, Qpn, RecvRequest, Rng, Rx, RxMeta, SendRequest, Source, Span, Target, Time, Transmit,
    TxSink,
};
use std::net::IpAddr;

/// Address of every region; the content follows from the address.
pub(super) const REGION_AT: u64 = 1 << 20;
/// Bytes of every region.
pub(super) const REGION_BYTES: u64 = 1 << 26;
/// Q_Key of queue pairs for honest work; liars never learn it.
pub(super) const QKEY: u32 = 0x5EC2_E700;
/// Q_Key of queue pairs for work with liars.
pub(super) const QKEY_HOSTILE: u32 = 0x0BAD;
/// Depth of queues.
const DEPTH: u32 = 4096;
/// Packets per poll.
const BATCH: usize = 16;
/// Most batches and timers of an engine at one instant.
const ROUNDS_MAX: u32 = 20_000;

/// A queue pair and its objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub qpn: Qpn,
    pub qkey: u32,
    pub pd: PdId,
    /// Key of a region that peers of this queue pair may write.
    pub key: MrKey,
}

/// An engine of a hostile world.
pub(super) struct Peer {
    pub id: usize,
    pub host: usize,
    pub at: Endpoint,
    pub engine: Engine<Watch>,
    pub cfg: EngineConfig,
    /// For honest work.
    pub main: Side,
    /// For work with liars and dead members.
    pub other: Side,
    pub cq: CqId,
    /// Job of each handle.
    pub wrs: Vec<Option<u32>>,
    pub alive: bool,
    /// Time of its next wake-up.
    pub wake_at: u64,
    /// Receives kept posted on the main queue pair.
    pub receives: u32,
    /// Until this time the socket is never empty and timers fire as late as the device permits.
    pub busy_until: u64,
    /// Time that packets wait in the socket until then.
    pub lag_ns: u64,
    /// Address handles of dead members and the time from which no packet may be sent to them.
    pub ahs: Vec<(IpAddr, AhId)>,
    posted: [u32; 2],
    ack: AckBlock,
    pub out: Vec<(Endpoint, Gram)>,
    /// Packets sent, split by whether the address belongs to a member.
    pub sent: u64,
}

impl Peer {
    /// Creates an engine in `slot` of `host`. Objects are created in a fixed order, so that all
    /// engines of one slot have the same numbers.
    pub fn new(plan: &Plan, id: usize, (host, ip): (usize, IpAddr), slot: u8, now: u64) -> Self {
        let integrity = plan.integrity(id);
        let cfg = EngineConfig { ip, slot, integrity, ..plan.config.clone() };
        let watch = Watch::of(&cfg);
        let seed = u64::from(plan.words) << 32 | (id as u64) << 8 | u64::from(plan.config.mtu);
        let (rng, now) = (Rng::from_seed(seed ^ plan.pause_ns << 40), Time(now));
        let mut engine = Engine::new(cfg.clone(), rng, now, watch).expect("a sound plan");
        let cq = engine.cq_create(16_384).expect("room");
        let mut side = |qkey| {
            let pd = engine.pd_create().expect("room");
            let all = Access(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE);
            let key = engine.mr_register(pd, REGION_AT, REGION_BYTES, all).expect("room");
            Side { qpn: qp_ready(&mut engine, now, (pd, cq), DEPTH, qkey), qkey, pd, key }
        };
        let (main, other) = (side(QKEY), side(QKEY_HOSTILE));
        let at = Endpoint { ip, port: cfg.port_base + u16::from(slot) };
        Self {
            id,
            host,
            at,
            engine,
            cfg,
            main,
            other,
            cq,
            wrs: Vec::new(),
            alive: true,
            wake_at: u64::MAX,
            receives: 64,
            busy_until: 0,
            lag_ns: 0,
            ahs: Vec::new(),
            posted: [0; 2],
            ack: AckBlock::default(),
            out: Vec::new(),
            sent: 0,
        }
    }

    /// The address handle for `ip`.
    pub fn ah(&mut self, now: u64, ip: IpAddr) -> AhId {
        if let Some(a) = self.ahs.iter().find(|a| a.0 == ip) {
            return a.1;
        }
        let ah = self.engine.ah_create(Time(now), self.main.pd, ip).expect("room");
        self.ahs.push((ip, ah));
        ah
    }

    /// Keeps receives posted on both queue pairs.
    pub fn receives_fill(&mut self) {
        for (k, (qpn, most)) in
            [(self.main.qpn, self.receives), (self.other.qpn, 16)].into_iter().enumerate()
        {
            while self.posted[k] < most {
                let wr = RecvRequest { wr_id: 0, len: u32::from(self.cfg.mtu) };
                if self.engine.post_recv(qpn, &wr).is_err() {
                    break;
                }
                self.posted[k] += 1;
            }
        }
    }

    /// Posts a job. False: the queue is full.
    pub fn post(&mut self, now: u64, board: &mut Board, job: Job) -> bool {
        let side = if job.main { self.main } else { self.other };
        let ah = self.ah(now, job.dst.ip);
        let wr = SendRequest {
            wr_id: board.jobs.len() as u64,
            op: job.op,
            ah,
            dst_qpn: job.dst_qpn,
            qkey: side.qkey,
            len: job.len,
            rkey: job.rkey,
            raddr: job.raddr,
            imm: board.jobs.len() as u32,
        };
        self.engine.observer().steps = 0;
        let Ok(h) = self.engine.post_send(Time(now), side.qpn, &wr) else { return false };
        let k = h.0 as usize;
        if self.wrs.len() <= k {
            self.wrs.resize(k + 1, None);
        }
        if self.wrs[k].replace(board.jobs.len() as u32).is_some() {
            board.fail(now, Oracle::Post, format!("{h:?} was returned twice"));
        }
        board.jobs.push(job);
        true
    }

    /// Destroys and recreates the queue pair for work with liars.
    pub fn other_renew(&mut self, now: u64, board: &mut Board) {
        self.engine.observer().steps = 0;
        if let Err(e) = self.engine.qp_destroy(Time(now), self.other.qpn) {
            return board.fail(now, Oracle::Post, format!("{:?}: {e:?}", self.other.qpn));
        }
        self.events(now, board);
        // Completions not yet polled went with it.
        for slot in &mut self.wrs {
            if slot.is_some_and(|j| !board.jobs[j as usize].main) {
                *slot = None;
            }
        }
        self.other.qpn =
            qp_ready(&mut self.engine, Time(now), (self.other.pd, self.cq), DEPTH, self.other.qkey);
        self.posted[1] = 0;
    }

    fn events(&mut self, now: u64, board: &mut Board) {
        while let Some(e) = self.engine.poll_event() {
            match e {
                AsyncEvent::WrReleased(h) => {
                    let job = self.wrs.get_mut(h.0 as usize).and_then(Option::take);
                    if job.is_none_or(|j| board.jobs[j as usize].main) {
                        board.fail(now, Oracle::Completion, format!("{h:?} was released: {job:?}"));
                    }
                }
                AsyncEvent::PathMtu(ip, size) => board.sizes.push((self.id, ip, size)),
                _ => {}
            }
        }
    }

    /// Passes a datagram to the engine and executes the result.
    pub fn deliver(&mut self, now: u64, board: &mut Board, g: &Gram, more: bool) {
        let mut ack = core::mem::take(&mut self.ack);
        if let Ok((packet, start)) = wire::parse_checked(&g.bytes, &mut ack) {
            let meta = RxMeta {
                src_ip: g.src,
                ce: false,
                rxq_drops: 0,
                waited: Span(g.waits_since.map_or(0, |t| now - t)),
            };
            self.engine.observer().steps = 0;
            board.received += 1;
            let bare = !packet.header.flags.has(Flags::CHECKED) && packet.header.dst_tag != 0;
            let port = PORT_BASE_DEFAULT + u16::from(packet.header.slot);
            let from = Endpoint { ip: g.src, port };
            let stats = if bare { self.engine.context_stats() } else { Vec::new() };
            let must_check = stats.iter().any(|c| c.peer == from && c.checked);
            let rx = self.engine.handle(Time(now), &meta, &packet);
            let taken = !matches!(rx, Rx::Dropped(_));
            if must_check && taken {
                let what =
                    format!("engine {} accepts a packet without checksum: {packet:?}", self.id);
                board.fail(now, Oracle::Integrity, what);
            }
            if g.honest.is_none() && taken {
                self.held_check(now, board);
            }
            // Worlds with damage have one checksum setting for all members.
            if g.damaged && self.cfg.integrity == Integrity::On && taken {
                let what =
                    format!("engine {} accepts a damaged packet: {rx:?}, {packet:?}", self.id);
                board.fail(now, Oracle::Integrity, what);
            }
            if let Rx::Place(place) = rx {
                let payload = &g.bytes[start..start + usize::from(packet.payload_len)];
                let fits = packet.payload_len <= self.cfg.mtu;
                if place.len as usize != payload.len() || !fits {
                    let what = format!("{place:?} for {} bytes", payload.len());
                    board.fail(now, Oracle::Placement, what);
                }
                self.place(now, board, g, &place, payload);
            }
        } else if g.honest.is_some() && !g.damaged {
            board.fail(now, Oracle::Judgment, "an engine's packet cannot be parsed".into());
        }
        ack.clear();
        self.ack = ack;
        if !more {
            self.engine.rx_burst_end(Time(now));
        }
    }

    /// Checks what the engine grants its peers, after it accepted a liar's packet.
    fn held_check(&self, now: u64, board: &mut Board) {
        let window = u32::from(self.cfg.window).max(64);
        // A requester counts a read complete before the last acknowledgment arrives.
        let reads = 2 * u32::from(self.cfg.reads_per_context_max);
        for c in self.engine.context_stats() {
            if c.psns_ahead > window {
                let what = format!("engine {} lets a peer exceed its window: {c:?}", self.id);
                board.fail(now, Oracle::Window, what);
            }
            if c.reads_served > reads {
                let what = format!("engine {} serves more than one peer's share: {c:?}", self.id);
                board.fail(now, Oracle::Limits, what);
            }
        }
    }

    fn place(
        &mut self,
        now: u64,
        board: &mut Board,
        g: &Gram,
        place: &srd_core::Placement,
        bytes: &[u8],
    ) {
        let id = self.id;
        let job = match place.target {
            Target::Wr(h) => self.wrs.get(h.0 as usize).copied().flatten(),
            _ => g.job,
        };
        let honest = job.is_some_and(|j| board.jobs[j as usize].honest);
        let own = match place.target {
            Target::Recv(r) => r.qp == self.main.qpn,
            Target::Region(key) => key == self.main.key,
            Target::Wr(_) => honest,
        };
        // A peer may answer a read with any bytes, but each byte must arrive once.
        if let (Target::Wr(_), Some(j), false) = (place.target, job, honest) {
            let placed = &mut board.jobs[j as usize].placed;
            let _ = placed.add(place.offset as u32, place.len);
            return;
        }
        // Without a checksum the protocol cannot detect damage.
        if g.damaged {
            return;
        }
        if own && g.honest.is_none() {
            let what = format!("engine {id} places a payload that a liar sent: {place:?}");
            return board.fail(now, Oracle::Bounds, what);
        }
        let Some(j) = job.filter(|_| honest && g.honest.is_some()) else { return };
        let job = &mut board.jobs[j as usize];
        let writes = matches!(job.op, Opcode::Write | Opcode::WriteImm);
        let (base, right) = match place.target {
            Target::Wr(_) => (0, job.op == Opcode::Read && self.id == job.from),
            Target::Region(_) => (job.raddr, writes && self.id == job.to),
            Target::Recv(_) => (0, job.op == Opcode::Send && self.id == job.to),
        };
        let offset = place.offset.wrapping_sub(base);
        let same = bytes_of(j, job, offset, bytes.len()).eq(bytes.iter().copied());
        let fits = offset + bytes.len() as u64 <= u64::from(job.len);
        let once = fits && job.placed.add(offset as u32, bytes.len() as u32);
        if !(right && same && once) {
            let what = format!("engine {id}: {place:?} for work {j}: {job:?}");
            board.fail(now, Oracle::Placement, what);
        }
    }

    /// Lets the engine do all it can now, and polls it until it is idle. Returns whether any of its
    /// jobs ended.
    pub fn pump(&mut self, now: u64, board: &mut Board) -> bool {
        for round in 0.. {
            self.engine.observer().steps = 0;
            let due = self.engine.next_timeout();
            if due > Time(now) {
                break;
            }
            if round > ROUNDS_MAX {
                let what = format!("engine {} does not become idle at {now} ns", self.id);
                board.fail(now, Oracle::Loop, what);
                break;
            }
            self.timers(now, due);
            self.engine.observer().steps = 0;
            let mut sink = Emitter {
                wrs: &self.wrs,
                board,
                out: &mut self.out,
                ip: self.cfg.ip,
                id: self.id,
                now,
                sent: &mut self.sent,
            };
            let n = self.engine.poll_transmit(Time(now), BATCH, &mut sink);
            if n > BATCH {
                board.fail(now, Oracle::Limits, format!("{n} packets for a batch of {BATCH}"));
            }
            if n == 0 && self.busy_until > now {
                break;
            }
        }
        self.events(now, board);
        self.completions(now, board)
    }

    /// Fires the timers that are due, as late as the device permits: packets that arrived since the
    /// oldest unread one are not known yet.
    fn timers(&mut self, now: u64, due: Time) {
        if due > Time(now) {
            return;
        }
        if self.busy_until > now {
            let read_until = Time(now.saturating_sub(self.lag_ns));
            return self.engine.handle_timeout_unread(Time(now), read_until);
        }
        self.engine.handle_timeout(Time(now));
    }

    fn completions(&mut self, now: u64, board: &mut Board) -> bool {
        let mut any = false;
        while let Some(c) = self.engine.cq_poll(self.cq) {
            self.engine.cq_release(self.cq, 1);
            let CompletionKind::Send(h, op) = c.kind else {
                let k = usize::from(c.qpn != self.main.qpn);
                self.posted[k] = self.posted[k].saturating_sub(1);
                continue;
            };
            any = true;
            let job = self.wrs.get_mut(h.0 as usize).and_then(Option::take);
            let Some(j) = job else {
                let what = format!("engine {}: {c:?} without a request", self.id);
                board.fail(now, Oracle::Completion, what);
                continue;
            };
            board.ended(now, j, op, c.status);
        }
        self.receives_fill();
        any
    }

    /// When the engine is to be woken.
    pub fn due(&self, now: u64) -> u64 {
        wake_ns(&self.engine, now)
    }
}

struct Emitter<'a> {
    wrs: &'a [Option<u32>],
    board: &'a mut Board,
    out: &'a mut Vec<(Endpoint, Gram)>,
    ip: IpAddr,
    id: usize,
    now: u64,
    sent: &'a mut u64,
}

impl TxSink for Emitter<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let mut bytes = vec![0; t.packet.headers_len()];
        wire::emit(&t.packet, &mut bytes);
        *self.sent += 1;
        self.board.packets += 1;
        let handle = t.packet.body.message().map(|m| m.msg_id & 0xFFFF);
        let mut job = handle.and_then(|h| self.wrs.get(h as usize).copied().flatten());
        if let Some(p) = t.payload {
            let len = usize::from(p.len);
            match p.source {
                Source::Wr(_) => {
                    let Some(j) = job else {
                        let what = format!("engine {} sends without a request: {t:?}", self.id);
                        return self.board.fail(self.now, Oracle::Destroyed, what);
                    };
                    bytes.extend(bytes_of(j, &self.board.jobs[j as usize], p.offset, len));
                }
                Source::Region(_) => {
                    job = None;
                    bytes.extend((0..len as u64).map(|k| super::jobs::region_byte(p.offset + k)));
                }
            }
        }
        bytes.resize(bytes.len().max(usize::from(t.padded_len)), 0);
        wire::stamp(&mut bytes);
        let gram = Gram {
            bytes,
            src: self.ip,
            dst: t.dst,
            path: t.path,
            honest: Some(self.id),
            job,
            damaged: false,
            waits_since: None,
        };
        self.out.push((t.dst, gram));
    }
}
