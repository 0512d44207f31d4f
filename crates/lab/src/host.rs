//! A host that runs SRD: one protocol engine without payload, and its card.

mod kernel;
mod share;

pub use kernel::KernelCounts;

use crate::board::{FlowEnd, SharedBoard};
use crate::noise::HostModel;
use crate::observe::{Counted, Resent};
use crate::packet::{LabPacket, wire_bytes};
use crate::rounds::WARM;
use crate::state::HostState;
use crate::timeline::{EngineEvents, Posted, Recorder, SPORT_BASE};
use crate::watch::{Watch, WatchSpec, address_of, place_of};
use kernel::Kernel;
use rustc_hash::FxHashMap;
use share::Share;
use srd_core::config::Integrity;
use srd_core::wire::OVERHEAD_BYTES;
use srd_core::{
    Access, AhId, CompletionKind, CqId, Endpoint, Engine, EngineConfig, MrKey, Opcode, PdId,
    PostRefusal, QpInit, QpModify, QpState, QpType, Qpn, RecvRequest, Rng, Rx, RxMeta, RxWaiting,
    SendRequest, Span, Status, Time, Transmit, TxSink,
};
use srd_fabric::{Delivered, Host, HostId, HostIo, NS, Outbound, Ps};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Engine clock at time 0 of the network, so that no deadline lies before the origin.
const EPOCH_NS: u64 = 1_000_000_000;
/// Capacity of the card in full packets: one on the wire and one behind it. Other packets wait in
/// the engine, where they can still change their path or become obsolete by an acknowledgment.
const CARD_PACKETS: u64 = 2;
/// Most posted requests of one flow.
const POSTED_MAX: u32 = 64;
/// Length of every host's region, which exceeds any flow.
const REGION_BYTES: u64 = 1 << 62;
const QKEY: u32 = 0x11;

/// Translation of flows into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// RDMA writes of up to `message_bytes`.
    Write,
    /// RDMA writes, the last with immediate data, which tells the receiver the end.
    WriteImm,
    /// Sends of one packet each into posted receives.
    Send,
}

/// Settings of all SRD hosts of a run.
#[derive(Clone, Debug)]
pub struct SrdSettings {
    /// Engine configuration; the address is replaced by each host's own.
    pub engine: EngineConfig,
    /// Translation of flows into messages.
    pub verb: Verb,
    /// Largest message in bytes (writes).
    pub message_bytes: u32,
    /// Whether all flows of a host share one queue pair, instead of one per flow.
    pub qp_shared: bool,
    /// Whether flows carry the messages of a program: the round is then a message's number, which
    /// is also the immediate data of its last write.
    pub messages: bool,
    /// Records of arriving payload.
    pub watch: WatchSpec,
}

/// A flow in the state of its sender.
#[derive(Clone, Debug)]
struct Sending {
    /// Index in the workload.
    flow: u32,
    dst: HostId,
    bytes: u64,
    qp: Qpn,
    ah: AhId,
    dst_qpn: Qpn,
    rkey: u32,
    /// Messages under way, in the order of their start.
    messages: VecDeque<Message>,
    /// Requests posted and not completed.
    open: u32,
}

/// One round of a flow, or one message of a program.
#[derive(Clone, Copy, Debug)]
struct Message {
    round: u32,
    unposted: u64,
    open: u32,
}

/// Addressing data of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// Queue pair.
    pub qpn: Qpn,
    /// Key of its region.
    pub rkey: MrKey,
}

/// One simulated host.
pub struct SrdHost {
    engine: Engine<EngineEvents>,
    id: HostId,
    settings: SrdSettings,
    board: SharedBoard,
    pd: PdId,
    cq: CqId,
    rkey: MrKey,
    recv_qp: Option<Qpn>,
    send_qps: Vec<Qpn>,
    ahs: FxHashMap<u32, AhId>,
    sending: Vec<Sending>,
    /// Wire bytes of a full packet.
    full_bytes: u64,
    /// Packets that the card refused after the engine had emitted them.
    card_refused: u64,
    /// Records of placed payload.
    watch: Watch,
    /// Packets of corrupted frames, dropped by the frame check.
    corrupt: u64,
    /// Model of socket, thread and system calls, if configured.
    kernel: Option<Box<Kernel>>,
    /// Processes that share the host's ring, this one included.
    ring_sharing: u64,
    /// What it shares with other engines of its server, if it does.
    share: Option<Share>,
}

/// Address of host 0: 10.0.0.0.
const IP_FIRST: u32 = 0x0A00_0000;

/// Address of a host: 10.0.0.0 plus its number.
pub fn ip_of(host: HostId) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(IP_FIRST + host.0))
}

fn host_of(ip: IpAddr) -> HostId {
    match ip {
        IpAddr::V4(v4) => HostId(v4.to_bits().wrapping_sub(IP_FIRST)),
        IpAddr::V6(_) => unreachable!("hosts of the lab have IPv4 addresses"),
    }
}

/// Name of an operation in a recording.
const fn name_of(op: Opcode) -> &'static str {
    match op {
        Opcode::Send | Opcode::SendImm => "send",
        Opcode::Write | Opcode::WriteImm => "write",
        Opcode::Read => "read",
    }
}

fn time_of(now: Ps) -> Time {
    Time(EPOCH_NS + now / NS)
}

/// The first network time at which the engines' clock shows `t`.
fn ps_of(t: Time) -> Ps {
    (t.0.saturating_sub(EPOCH_NS)).saturating_mul(NS)
}

impl SrdHost {
    /// A host without flows. `seed`: for its engine's random numbers.
    ///
    /// # Errors
    /// If the engine refuses its configuration; the text names the field.
    pub fn new(
        id: HostId,
        settings: SrdSettings,
        seed: u64,
        board: SharedBoard,
        recorder: Recorder,
    ) -> Result<Self, String> {
        let mut cfg = settings.engine.clone();
        cfg.ip = ip_of(id);
        let full = OVERHEAD_BYTES as u32 - 16 + u32::from(cfg.mtu);
        let events = EngineEvents::new(recorder, id, EPOCH_NS, IP_FIRST);
        let mut engine = Engine::new(cfg, Rng::from_seed(seed), time_of(0), events)?;
        let watch = Watch::new(settings.watch);
        let fail = |e| format!("an object of host {} was refused: {e:?}", id.0);
        let pd = engine.pd_create().map_err(fail)?;
        let cq = engine.cq_create(1 << 20).map_err(fail)?;
        let access = Access(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::LOCAL_WRITE);
        let rkey = engine.mr_register(pd, 0, REGION_BYTES, access).map_err(fail)?;
        Ok(Self {
            engine,
            id,
            settings,
            board,
            pd,
            cq,
            rkey,
            recv_qp: None,
            send_qps: Vec::new(),
            ahs: FxHashMap::default(),
            sending: Vec::new(),
            full_bytes: u64::from(wire_bytes(full)),
            card_refused: 0,
            watch,
            corrupt: 0,
            kernel: None,
            ring_sharing: 1,
            share: None,
        })
    }

    /// Inserts a kernel model between engine and card. `seed`: for its draws.
    pub fn kernel_set(&mut self, model: Arc<HostModel>, seed: u64) {
        self.kernel = Some(Box::new(Kernel::new(model, srd_fabric::Rng::new(seed))));
    }

    /// The host's ring is shared among so many processes.
    pub(crate) fn ring_shared(mut self, processes: u64) -> Self {
        self.ring_sharing = processes;
        self
    }

    /// Counters of the kernel model, if any.
    pub fn kernel_counts(&self) -> Option<KernelCounts> {
        self.kernel.as_ref().map(|k| k.counts())
    }

    fn qp_new(&mut self, rq_depth: u32) -> Result<Qpn, String> {
        let now = time_of(0);
        let init = QpInit {
            kind: QpType::Srd,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            sq_depth: 1 << 16,
            rq_depth,
            unsolicited_write_recv: true,
        };
        let to = |state, qkey, rnr_retry| QpModify { state: Some(state), qkey, rnr_retry };
        let engine = &mut self.engine;
        let made = engine.qp_create(now, init).and_then(|qp| {
            engine.qp_modify(now, qp, to(QpState::Init, Some(QKEY), None))?;
            engine.qp_modify(now, qp, to(QpState::Rtr, None, None))?;
            engine.qp_modify(now, qp, to(QpState::Rts, None, Some(7)))?;
            Ok(qp)
        });
        made.map_err(|e| format!("host {} cannot have another queue pair: {e:?}", self.id.0))
    }

    /// Prepares the host to receive from `from` and returns the addressing data for the sender.
    /// # Errors
    /// If the engine's tables are full.
    pub fn receive_from(&mut self, from: HostId) -> Result<Remote, String> {
        self.ah_to(from)?;
        let qpn = match self.recv_qp {
            Some(qpn) => qpn,
            None => {
                let depth = if self.settings.verb == Verb::Send { 4096 } else { 1 };
                let qpn = self.qp_new(depth)?;
                if self.settings.verb == Verb::Send {
                    for _ in 0..depth {
                        self.recv_post(qpn);
                    }
                }
                self.recv_qp = Some(qpn);
                qpn
            }
        };
        Ok(Remote { qpn, rkey: self.rkey })
    }

    fn recv_post(&mut self, qpn: Qpn) {
        let wr = RecvRequest { wr_id: 0, len: u32::from(self.settings.engine.mtu) };
        let _ = self.engine.post_recv(qpn, &wr);
    }

    fn ah_to(&mut self, to: HostId) -> Result<AhId, String> {
        if let Some(ah) = self.ahs.get(&to.0) {
            return Ok(*ah);
        }
        let ah = self.engine.ah_create(time_of(0), self.pd, ip_of(to));
        let ah = ah.map_err(|e| format!("host {}: no address handle left: {e:?}", self.id.0))?;
        self.ahs.insert(to.0, ah);
        Ok(ah)
    }

    /// Adds flow number `flow` of the workload and returns the token that starts it. Flows share
    /// queue pairs when the engine has only 254 or fewer for them.
    ///
    /// # Errors
    /// If the engine's tables are full.
    pub fn flow_add(
        &mut self,
        flow: u32,
        dst: HostId,
        bytes: u64,
        remote: Remote,
    ) -> Result<u64, String> {
        let n = self.sending.len();
        if self.settings.qp_shared {
            // One queue pair sends and receives.
            self.send_qps = vec![self.receive_from(dst)?.qpn];
        } else if self.send_qps.len() < 254 && self.send_qps.len() <= n {
            let qp = self.qp_new(1)?;
            self.send_qps.push(qp);
        }
        let qp = self.send_qps[n % self.send_qps.len()];
        let ah = self.ah_to(dst)?;
        self.sending.push(Sending {
            flow,
            dst,
            bytes,
            qp,
            ah,
            dst_qpn: remote.qpn,
            rkey: remote.rkey.0,
            messages: VecDeque::new(),
            open: 0,
        });
        Ok(n as u64)
    }

    /// Queue pairs and contexts of this process, and the bytes that its engine holds for them.
    pub fn state(&self) -> HostState {
        let mut qps: Vec<Qpn> = self.send_qps.iter().copied().chain(self.recv_qp).collect();
        qps.sort_unstable();
        qps.dedup();
        let contexts = self.engine.context_stats();
        let mut peers: Vec<u32> = self.sending.iter().map(|s| s.dst.0).collect();
        peers.sort_unstable();
        peers.dedup();
        HostState {
            queue_pairs: qps.len() as u64,
            contexts: contexts.len() as u64,
            peers: peers.len() as u64,
            bytes: self.engine.peers_held_bytes() as u64,
        }
    }

    /// The engine, read-only.
    pub fn engine(&self) -> &Engine<EngineEvents> {
        &self.engine
    }

    /// Packets that the card refused after the engine had emitted them.
    pub fn card_refused(&self) -> u64 {
        self.card_refused
    }

    /// Frames dropped by the frame check.
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Records of placed payload.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Posts as many requests of a flow as are permitted now.
    fn flow_post(&mut self, now: Ps, i: usize) {
        let verb = self.settings.verb;
        let message_max = match verb {
            Verb::Send => u64::from(self.settings.engine.mtu),
            Verb::Write | Verb::WriteImm => u64::from(self.settings.message_bytes),
        };
        loop {
            let s = &mut self.sending[i];
            if s.open >= POSTED_MAX {
                return;
            }
            let Some(m) = s.messages.iter_mut().find(|m| m.unposted > 0) else { return };
            let len = m.unposted.min(message_max);
            // Messages of a program overwrite each other; rounds have places of their own.
            let before = if self.settings.messages { 0 } else { u64::from(m.round) * s.bytes };
            let position = before + (s.bytes - m.unposted);
            let op = match verb {
                Verb::Send => Opcode::Send,
                Verb::WriteImm if len == m.unposted => Opcode::WriteImm,
                _ => Opcode::Write,
            };
            let warm = s.flow & WARM != 0;
            let wr = SendRequest {
                wr_id: i as u64 | u64::from(m.round) << 32,
                op,
                ah: s.ah,
                dst_qpn: s.dst_qpn,
                qkey: QKEY,
                len: len as u32,
                rkey: s.rkey,
                raddr: address_of((!warm).then_some(s.flow), position),
                imm: if self.settings.messages && !warm { m.round } else { s.flow },
            };
            match self.engine.post_send(time_of(now), s.qp, &wr) {
                Ok(handle) => {
                    m.unposted -= len;
                    m.open += 1;
                    s.open += 1;
                    if self.engine.observer().is_on() {
                        let (qpn, to, flow) = (s.qp.0, s.dst, s.flow);
                        let (op, at_ns) = (name_of(op), now / NS);
                        let posted = Posted { qpn, to, op, bytes: len as u32, flow, at_ns };
                        self.engine.observer().posted(handle.0, posted);
                    }
                }
                // A completion of this or another flow frees room.
                Err(PostRefusal::QueueFull | PostRefusal::CqFull | PostRefusal::NoRoom) => return,
                Err(e) => unreachable!("host {} cannot post flow {}: {e:?}", self.id.0, s.flow),
            }
        }
    }

    /// Polls completions; true if something was posted.
    fn completions_take(&mut self, now: Ps) -> bool {
        let mut posted = false;
        while let Some(c) = self.engine.cq_poll(self.cq) {
            self.engine.cq_release(self.cq, 1);
            match c.kind {
                CompletionKind::Send(handle, _) => {
                    if self.engine.observer().is_on() {
                        let status = if c.status == Status::Ok { "ok" } else { "failed" };
                        self.engine.observer().ended(handle.0, now / NS, status);
                    }
                    posted |= self.send_ended(now, c.wr_id, c.status);
                }
                CompletionKind::RecvUnsolicited => {
                    let imm = c.imm.unwrap_or(u32::MAX);
                    let (flow, round) = match (self.settings.messages, imm & WARM == 0) {
                        (true, true) => (0, imm),
                        _ => (imm, 0),
                    };
                    self.board.flow_arrived(FlowEnd { flow, round, at: now });
                }
                CompletionKind::Recv(_) | CompletionKind::RecvRdmaImm(_) => self.recv_post(c.qpn),
            }
        }
        while self.engine.poll_event().is_some() {}
        posted
    }

    fn send_ended(&mut self, now: Ps, wr_id: u64, status: Status) -> bool {
        let (i, round) = ((wr_id & 0xFFFF_FFFF) as usize, (wr_id >> 32) as u32);
        if status != Status::Ok {
            self.board.failure();
        }
        let verb = self.settings.verb;
        let s = &mut self.sending[i];
        s.open -= 1;
        let Some(k) = s.messages.iter().position(|m| m.round == round) else { return false };
        let m = &mut s.messages[k];
        m.open -= 1;
        let m = *m;
        if verb == Verb::Send && self.watch.has_progress() {
            // Sends have no address, so completed bytes count as arrived.
            let open = u64::from(m.open) * u64::from(self.settings.engine.mtu);
            let before = u64::from(m.round) * s.bytes;
            let done = before + (s.bytes - m.unposted).saturating_sub(open);
            self.board.progress_set(s.flow, done);
        }
        if m.unposted == 0 && m.open == 0 {
            s.messages.remove(k);
            self.board.flow_end(FlowEnd { flow: s.flow, round, at: now });
        }
        if self.sending[i].messages.iter().any(|m| m.unposted > 0) {
            self.flow_post(now, i);
            return true;
        }
        false
    }

    /// Records placed payload.
    #[cold]
    fn placed(&mut self, now: Ps, address: u64, bytes: u32) {
        self.watch.placed(now, address, bytes);
        let Some((flow, _)) = place_of(address) else { return };
        if self.watch.has_progress() {
            self.board.progress_add(flow, bytes);
        }
        if self.watch.has_arrivals() {
            self.board.payload_arrived(flow, bytes, now);
        }
    }

    /// Passes a packet to the engine; true if its payload was placed.
    fn packet_take(&mut self, now: Ps, p: &Delivered<LabPacket>, meta: &RxMeta) -> bool {
        let taken = self.engine.handle(time_of(now), meta, &p.payload.as_packet());
        let Rx::Place(place) = taken else { return false };
        if self.watch.is_on() {
            self.placed(now, p.payload.address().unwrap_or(u64::MAX), place.len);
        }
        true
    }

    /// Tells the engine what waits in this host's ring, and asks to be called when the threshold
    /// is crossed downwards without a packet.
    fn ring_tell(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        let Some(ring) = io.rx_ring_waiting() else { return };
        let handled = io.rx_ring().is_some();
        // Processes of a host share its ring in equal parts.
        let (bytes, limit_bytes) =
            (ring.backlog_bytes / self.ring_sharing, ring.limit_bytes / self.ring_sharing);
        self.engine.rx_waiting(time_of(now), &RxWaiting { bytes, limit_bytes, handled });
        if handled {
            let below = self.engine.rx_waiting_below().map(|b| b * self.ring_sharing);
            let call = below.map(|b| ring.written_bytes + ring.backlog_bytes.saturating_sub(b));
            io.rx_ring_call(call);
        }
    }

    /// Records windows and rates at intervals, if anything is recorded.
    #[inline]
    fn sample(&mut self, now: Ps) {
        if self.engine.observer().is_on() && self.engine.observer().sample_due(now / NS) {
            let contexts = self.engine.context_stats();
            self.engine.observer().sample(now / NS, &contexts);
        }
    }

    /// Fires due timers, sends packets while the card has room, and sets the timer for the next
    /// action. Timers fire with every packet, as in the turns of a device: a host that always has
    /// more to send than its card holds would otherwise not get to its acknowledgments and grants.
    fn pump(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        let t = time_of(now);
        let limit = CARD_PACKETS * self.full_bytes;
        self.engine.handle_timeout(t);
        loop {
            self.share_turn(t);
            let room = limit.saturating_sub(io.nic_backlog_bytes()).div_ceil(self.full_bytes);
            if room > 0 {
                let mut sink = CardSink { io, refused: 0 };
                let sent = self.engine.poll_transmit(t, room as usize, &mut sink);
                self.card_refused += sink.refused;
                if sent > 0 {
                    continue;
                }
            }
            if !self.completions_take(now) {
                break;
            }
        }
        self.sample(now);
        let next = self.engine.next_timeout();
        if next == Time::NEVER {
            io.timer_clear();
        } else if next == Time(0) {
            // With more to send than the card holds, continues when all but one of its packets have
            // left.
            let rest = io.nic_backlog_bytes().saturating_sub(limit - self.full_bytes);
            let wait = now + self.card_ps(rest).max(NS);
            io.timer_set(wait.min(ps_of(self.engine.next_timer()).max(now + NS)));
        } else {
            io.timer_set(ps_of(next).max(now));
        }
    }

    /// Time in which the card sends `bytes`.
    fn card_ps(&self, bytes: u64) -> Ps {
        let rate = u128::from(self.settings.engine.rate.line_bytes_per_sec);
        (u128::from(bytes) * 1_000_000_000_000 / rate) as Ps
    }
}

impl Counted for SrdHost {
    fn resent(&self) -> Resent {
        let c = self.engine.counters();
        Resent { packets: c.retrans_pkts, timeouts: c.retrans_timeout_events }
    }

    fn path_packets(&self, sum: &mut Vec<u64>) {
        let mut peers: Vec<u32> = self.ahs.keys().copied().collect();
        peers.sort_unstable();
        for peer in peers {
            for p in self.engine.path_stats(ip_of(HostId(peer))) {
                let path = usize::from(p.path);
                if sum.len() <= path {
                    sum.resize(path + 1, 0);
                }
                sum[path] += p.packets_sent;
            }
        }
    }
}

impl Host<LabPacket> for SrdHost {
    fn on_packet(&mut self, now: Ps, p: Delivered<LabPacket>, io: &mut HostIo<'_, LabPacket>) {
        if p.corrupt != 0 {
            self.corrupt += 1;
            return;
        }
        if let Some(address) = p.payload.address()
            && self.watch.drops(address, p.payload.payload_len())
        {
            return;
        }
        if self.kernel.is_some() {
            return self.kernel_packet(now, p, io);
        }
        if p.payload.payload_len() > 0
            && io.rx_ring().is_some_and(|r| r.backlog_bytes + u64::from(p.bytes) > r.limit_bytes)
        {
            // The card accepts only packets that it can place; this call counts the refused packet.
            let _ = io.rx_ring_put();
            return;
        }
        self.ring_tell(now, io);
        let meta = RxMeta {
            src_ip: ip_of(p.src),
            ce: p.ce,
            rxq_drops: io.rx_ring_waiting().map_or(0, |r| r.dropped as u32),
            waited: Span(p.waited_ps / NS),
        };
        if self.packet_take(now, &p, &meta) {
            // The ring has room, or there is no ring.
            let _ = io.rx_ring_put();
            self.ring_tell(now, io);
        }
        self.engine.rx_burst_end(time_of(now));
        self.pump(now, io);
    }

    fn on_ring(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        self.ring_tell(now, io);
        self.pump(now, io);
    }

    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, LabPacket>) {
        if self.kernel.is_some() {
            return self.kernel_timer(now, io);
        }
        self.pump(now, io);
    }

    /// Starts a flow, or its next round.
    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, LabPacket>) {
        let (i, round) = ((token & 0xFFFF_FFFF) as usize, (token >> 32) as u32);
        let s = &mut self.sending[i];
        s.messages.push_back(Message { round, unposted: s.bytes, open: 0 });
        self.flow_post(now, i);
        if self.kernel.is_some() {
            return self.kernel_posted(now, io);
        }
        self.pump(now, io);
    }
}

/// Passes the engine's packets to the card.
struct CardSink<'a, 'b> {
    io: &'a mut HostIo<'b, LabPacket>,
    refused: u64,
}

impl TxSink for CardSink<'_, '_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let Endpoint { ip, port } = t.dst;
        let udp = t.packet.headers_len() as u32 + u32::from(t.packet.payload_len);
        let out = Outbound {
            dst: host_of(ip),
            sport: SPORT_BASE + u16::from(t.path),
            dport: port,
            bytes: wire_bytes(udp.max(u32::from(t.padded_len))),
            ect: true,
        };
        if self.io.send(out, LabPacket::new(&t.packet)).is_err() {
            self.refused += 1;
        }
    }
}

/// Engine settings of a network with links of `bits_per_s` and a base RTT of `rtt_ps`:
/// [`EngineConfig::datacenter`].
pub fn engine_config(mtu: u16, bits_per_s: u64, rtt_ps: Ps) -> EngineConfig {
    let rtt = Span(rtt_ps / NS);
    EngineConfig::datacenter(ip_of(HostId(0)), 0, mtu, bits_per_s / 8, rtt)
}

/// Engine settings of sockets at a port of `bits_per_s`: [`EngineConfig::sockets`]; without
/// `rtt_ps` the base RTT is measured.
pub fn socket_config(mtu: u16, bits_per_s: u64, rtt_ps: Option<Ps>) -> EngineConfig {
    let mut c = EngineConfig::sockets(ip_of(HostId(0)), 0, mtu);
    // Payload is never damaged in memory, and damaged frames fail the frame check, as for
    // `EngineConfig::simulated`.
    c.integrity = Integrity::Off;
    // The simulated links carry all packet sizes.
    c.mtu_search = false;
    c.line_set(bits_per_s / 8);
    if let Some(rtt) = rtt_ps {
        c.rate.rtt_initial = Span(rtt / NS);
    }
    c
}
