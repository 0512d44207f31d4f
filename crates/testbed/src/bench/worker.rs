//! A worker: one process of a host, which opens a device and executes orders from standard input.

use super::{
    block::{self, BlockHead, FlowRx, now_ns},
    drain::Drain,
    orders::Orders,
    pings::{PING_BYTES, Pings},
    protocol::{Counted, Order, Report, Run, SendFlow, Watched},
    times::Timed,
    trace::Trace,
};
use crate::error::{NetError, Result};
use clap::Args;
use srd::{
    Access, AddressHandle, CompletionQueue, Device, DeviceConfig, HostPolicy, MemoryRegion,
    Progress, ProtectionDomain, QKey, QpInit, Qpn, QueuePair, RecvWr, SendWr, WorkCompletion,
    datapath::watch::Watch,
};
use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write as _},
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Q_Key of all queue pairs of a measurement.
const QKEY: QKey = QKey(0x6E65_7400);
/// Posted receives: messages that can arrive between two polls.
const RECVS: u32 = 1024;
/// Most blocks in flight over all flows of one worker.
const SLOTS: u32 = 1024;
/// Blocks in flight that are sufficient for all flows of one worker: several times what any link
/// holds, but few enough that a run does not begin with all workers filling blocks and competing
/// for processors.
pub const BLOCKS_SUFFICIENT: u32 = 128;
/// Minimum window of a flow in blocks.
const WINDOW_MIN: u32 = 8;
/// Blocks posted before the device is driven again: filling a whole window takes milliseconds,
/// during which the link would be idle.
const POSTS: u32 = 16;
/// Interval at which an idle worker checks for orders.
const IDLE: Duration = Duration::from_millis(20);
/// Interval at which a busy worker checks for orders.
const BUSY: Duration = Duration::from_millis(2);

/// Options of a worker.
#[derive(Clone, Debug, Args)]
pub struct WorkerArgs {
    /// Address of the worker's host
    #[arg(long)]
    pub ip: IpAddr,
    /// Rate of the host's link in bits per second, which a NIC would report
    #[arg(long)]
    pub link_rate: u64,
    /// Window of each flow in blocks
    #[arg(long, default_value_t = 64)]
    pub window: u32,
    /// Requested receive buffer in bytes
    #[arg(long)]
    pub rcvbuf: Option<usize>,
    /// Paths per peer
    #[arg(long, default_value_t = 64)]
    pub paths: u16,
    /// Use one path per peer, as a TCP connection has
    #[arg(long)]
    pub one_path: bool,
    /// Do not grant and obey receiver credits
    #[arg(long)]
    pub no_credits: bool,
    /// Do not tell the device the rate of its port
    #[arg(long, conflicts_with = "no_credits")]
    pub unknown_rate: bool,
    /// Write the state of the contexts to this file every 10 ms
    #[arg(long)]
    pub trace: Option<PathBuf>,
    /// Reaction to a receiving host that is slower than its link: off, stop-go, budget
    #[arg(long, value_parser = super::contender::host_policy)]
    pub host_policy: Option<HostPolicy>,
    /// Blocks in flight that are sufficient for all flows of this worker
    #[arg(long, default_value_t = BLOCKS_SUFFICIENT)]
    pub blocks: u32,
    /// Drive the device only as fast as these bits per second are received
    #[arg(long)]
    pub drain: Option<u64>,
}

/// The `wr_id` of sends of small messages.
const PING_ID: u64 = u64::MAX;

/// A flow that this worker sends.
#[derive(Debug)]
struct Sending {
    flow: u32,
    to: IpAddr,
    qpn: Qpn,
    /// Number of the next block.
    next: u64,
    in_flight: u32,
    accepted: u64,
}

struct Worker {
    ip: IpAddr,
    /// Configured window of a flow in blocks.
    window: u32,
    /// Blocks in flight that are sufficient for all flows.
    blocks: u32,
    /// Window that applies to the current flows.
    window_now: u32,
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    source: MemoryRegion,
    target: MemoryRegion,
    mtu: usize,
    /// Address handles by address; those of earlier flows are kept.
    peers: BTreeMap<IpAddr, AddressHandle>,
    sending: Vec<Sending>,
    receiving: HashMap<u32, FlowRx>,
    flows_in: Vec<u32>,
    slots: Vec<u32>,
    /// Index of the flow of each slot in flight.
    slot_flow: Vec<usize>,
    run: Option<Run>,
    sent_told: bool,
    failed: u64,
    why: String,
    damaged: u64,
    buffer: Vec<u8>,
    turn_from: usize,
    trace: Option<Trace>,
    /// How fast the device is driven, to simulate a slow host; `None`: as fast as possible.
    drain: Option<Drain>,
    /// Times that packets waited in the socket.
    waits: Arc<Mutex<Timed>>,
    /// Small round-trip messages, and the host and queue pair that they are sent to.
    pings: Pings,
    ping_to: Option<(IpAddr, Qpn)>,
}

/// Runs a worker until an order to quit or the end of standard input.
///
/// # Errors
/// The device cannot be opened, or fails.
pub fn run(args: &WorkerArgs) -> Result {
    // The kernel kills this process with its parent, even if the parent is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let done = Worker::open(args).and_then(|mut w| w.serve());
    if let Err(e) = &done {
        tell(&Report::Failed(e.to_string()))?;
    }
    done
}

fn tell(report: &Report) -> Result {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

impl Worker {
    fn open(args: &WorkerArgs) -> Result<Self> {
        let mut config = DeviceConfig::ip(args.ip);
        config.progress = Progress::Caller;
        config.paths = args.paths;
        if args.one_path {
            config.path_policy = srd::PathPolicy::Ecmp;
        }
        let rate = args.link_rate / 8;
        let (credits, host_policy) = (!args.no_credits, args.host_policy);
        let unknown_rate = args.unknown_rate;
        config.tune = Some(Box::new(move |engine| {
            match unknown_rate {
                true => engine.line_unknown(),
                false => engine.line_set(rate),
            }
            engine.rate.credits = credits;
            engine.rate.host_policy = host_policy.unwrap_or(engine.rate.host_policy);
        }));
        let waits = Arc::<Mutex<Timed>>::default();
        if args.drain.is_some() {
            let waits = Arc::clone(&waits);
            config.wrap = Some(Box::new(move |inner| {
                Box::new(Watch::new(inner, move |d| {
                    let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
                    waits.note(now_ns(), d.waited_ns);
                }))
            }));
        }
        if let Some(bytes) = args.rcvbuf {
            config.tune_udp = Some(Box::new(move |udp| udp.rcvbuf_bytes = bytes));
        }
        let device = Device::open(config)?;
        let mtu = device.mtu();
        let pd = device.pd_create()?;
        let cq = device.cq_create(RECVS + SLOTS)?;
        let init = QpInit { sq_depth: SLOTS, rq_depth: RECVS, ..QpInit::srd(&cq, &cq) };
        let qp = pd.qp_create(&init)?;
        qp.activate_with(QKEY, srd::RNR_RETRY_INFINITE)?;
        let source = pd.mr_allocate(mtu * SLOTS as usize, Access::LOCAL_WRITE)?;
        let target = pd.mr_allocate(mtu * RECVS as usize, Access::LOCAL_WRITE)?;
        for slot in 0..RECVS {
            let sges = [target.sge(slot as usize * mtu, mtu as u32)];
            qp.post_recv(&RecvWr { wr_id: u64::from(slot), sges: &sges })?;
        }
        tell(&Report::Ready { qpn: qp.qpn().0, mtu: mtu as u32 })?;
        Ok(Self {
            ip: args.ip,
            window: args.window,
            blocks: args.blocks,
            window_now: args.window,
            buffer: vec![0; mtu],
            slots: (0..SLOTS).rev().collect(),
            slot_flow: vec![0; SLOTS as usize],
            device,
            pd,
            cq,
            qp,
            source,
            target,
            mtu,
            peers: BTreeMap::new(),
            sending: Vec::new(),
            receiving: HashMap::new(),
            flows_in: Vec::new(),
            run: None,
            sent_told: true,
            failed: 0,
            why: String::new(),
            damaged: 0,
            turn_from: 0,
            trace: args.trace.as_deref().map(Trace::create).transpose()?,
            drain: args.drain.map(Drain::new),
            waits,
            pings: Pings::default(),
            ping_to: None,
        })
    }

    fn serve(&mut self) -> Result {
        let mut orders = Orders::default();
        let mut look_ns = 0;
        loop {
            let now = now_ns();
            if now >= look_ns {
                if !orders.read()? {
                    return Ok(());
                }
                while let Some(order) = orders.next()? {
                    if !self.execute(order)? {
                        return Ok(());
                    }
                }
                let idle = self.run.is_none() || (self.sent_told && self.flows_in.is_empty());
                let wait = if idle { IDLE } else { BUSY };
                look_ns = now + wait.as_nanos() as u64;
            }
            self.completions()?;
            let next = self.post()?;
            self.sent_tell()?;
            if let (Some(trace), Some(run)) = (&mut self.trace, &self.run) {
                trace.write(&self.device, run)?;
            }
            let until = next.map_or(look_ns, |at| at.min(look_ns));
            let now = now_ns();
            let free_at = self.drain.map_or(0, |d| d.free_at_ns());
            if free_at > now {
                // A host that is slower than its link: the device is not driven meanwhile.
                thread::sleep(Duration::from_nanos(free_at.min(look_ns).saturating_sub(now)));
            } else {
                self.device.wait(Some(Duration::from_nanos(until.saturating_sub(now))))?;
            }
        }
    }

    fn execute(&mut self, order: Order) -> Result<bool> {
        match order {
            Order::Flows { send, receive } => self.flows_set(send, receive)?,
            Order::Go(run) => {
                self.run = Some(run);
                self.sent_told = false;
                (self.failed, self.why) = (0, String::new());
                for s in &mut self.sending {
                    (s.next, s.accepted) = (0, 0);
                }
                let mut early = std::mem::take(&mut self.receiving);
                let begin = |f: &u32| {
                    let mut flow = early.remove(f).unwrap_or_else(|| FlowRx::new(*f));
                    flow.begin(run.run, run.start_ns);
                    (*f, flow)
                };
                self.receiving = self.flows_in.iter().map(begin).collect();
            }
            Order::Collect => {
                // Everything acknowledged before this order arrived is in the completion queue by
                // now.
                self.completions()?;
                let mut flows: Vec<_> = self.receiving.values().map(FlowRx::stats).collect();
                flows.sort_by_key(|f| f.flow);
                tell(&Report::Received { flows, damaged: self.damaged })?;
                self.damaged = 0;
            }
            Order::Counters => tell(&Report::Counters(self.counted()?))?,
            Order::Watch { from_ns, until_ns } => {
                self.pings.times.begin(from_ns, until_ns);
                let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
                waits.begin(from_ns, until_ns);
            }
            Order::Times => {
                let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
                let round_trips = self.pings.times.times.clone();
                tell(&Report::Times(Watched { waits: waits.times.clone(), round_trips }))?;
            }
            Order::Explain => self.explain()?,
            Order::Quit => return Ok(false),
        }
        Ok(true)
    }

    fn flows_set(&mut self, send: Vec<SendFlow>, receive: Vec<u32>) -> Result {
        for flow in &send {
            if !self.peers.contains_key(&flow.ip) {
                self.peers.insert(flow.ip, self.pd.ah_create(flow.ip)?);
            }
        }
        let sending = |f: SendFlow| Sending {
            flow: f.flow,
            to: f.ip,
            qpn: Qpn(f.qpn),
            next: 0,
            in_flight: 0,
            accepted: 0,
        };
        let (pings, send): (Vec<_>, Vec<_>) = send.into_iter().partition(|f| f.ping);
        self.ping_to = pings.first().map(|f| (f.ip, Qpn(f.qpn)));
        self.sending = send.into_iter().map(sending).collect();
        let share = self.blocks / self.sending.len().clamp(1, self.blocks.max(1) as usize) as u32;
        self.window_now = self.window.min(share.max(WINDOW_MIN));
        self.flows_in = receive;
        self.run = None;
        self.sent_told = true;
        Ok(())
    }

    fn completions(&mut self) -> Result {
        let mut wcs = [WorkCompletion::default(); 64];
        loop {
            // The device of a slow host is driven in one place only, when its rate allows.
            let slow = self.drain.is_some();
            let n = if slow { self.cq.poll_waiting(&mut wcs)? } else { self.cq.poll(&mut wcs)? };
            for wc in &wcs[..n] {
                if wc.op.is_recv() { self.received(wc)? } else { self.completed(wc) }
            }
            if n < wcs.len() {
                return Ok(());
            }
        }
    }

    fn received(&mut self, wc: &WorkCompletion) -> Result {
        let slot = wc.wr_id as usize;
        if wc.is_ok() {
            let now = now_ns();
            let len = (wc.byte_len as usize).min(self.mtu);
            self.target.read_at(slot * self.mtu, &mut self.buffer[..len])?;
            if let Some(drain) = &mut self.drain {
                drain.take(now, len);
            }
            match <[u8; PING_BYTES]>::try_from(&self.buffer[..len]) {
                Ok(message) => self.ping_received(wc, now, message)?,
                Err(_) => self.block_received(now, len),
            }
        }
        let sges = [self.target.sge(slot * self.mtu, self.mtu as u32)];
        self.qp.post_recv(&RecvWr { wr_id: wc.wr_id, sges: &sges })?;
        Ok(())
    }

    fn block_received(&mut self, now: u64, len: usize) {
        match block::check(&self.buffer[..len]) {
            // Other workers may have begun the run before this one.
            Some(head) => self
                .receiving
                .entry(head.flow)
                .or_insert_with(|| FlowRx::new(head.flow))
                .take(&head, len, now),
            None => self.damaged += 1,
        }
    }

    /// Handles a small message: an answer to one of this worker's, or one to be returned.
    fn ping_received(
        &mut self,
        wc: &WorkCompletion,
        now: u64,
        message: [u8; PING_BYTES],
    ) -> Result {
        match (self.ping_to, wc.src_ip) {
            (Some(_), _) => self.pings.answered(now, message),
            (None, Some(ip)) => self.ping_post(ip, wc.src_qpn, message)?,
            (None, None) => self.damaged += 1,
        }
        Ok(())
    }

    fn ping_post(&mut self, ip: IpAddr, qpn: Qpn, message: [u8; PING_BYTES]) -> Result {
        if !self.peers.contains_key(&ip) {
            self.peers.insert(ip, self.pd.ah_create(ip)?);
        }
        let peer = self.peers.get(&ip).ok_or_else(|| NetError::new("no address handle"))?;
        match self.qp.post_send(&SendWr::send(PING_ID, peer, qpn, QKEY).inline(&message)) {
            Ok(()) => Ok(()),
            // Dropped: the sender of the message sends another one.
            Err(e) if e.is_full() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends the small message if it is due. Returns when the next one is due, in ns.
    fn ping(&mut self, run: &Run, now: u64) -> Result<Option<u64>> {
        let Some((ip, qpn)) = self.ping_to else { return Ok(None) };
        if self.pings.due_ns(run).is_some_and(|at| at <= now) {
            let message = self.pings.ask(now);
            self.ping_post(ip, qpn, message)?;
        }
        Ok(self.pings.due_ns(run))
    }

    fn completed(&mut self, wc: &WorkCompletion) {
        if wc.wr_id == PING_ID {
            return;
        }
        let slot = wc.wr_id as usize;
        let flow = self.slot_flow[slot];
        self.slots.push(slot as u32);
        if let Some(s) = self.sending.get_mut(flow) {
            s.in_flight = s.in_flight.saturating_sub(1);
            if wc.is_ok() {
                s.accepted += 1;
            }
        }
        if !wc.is_ok() {
            self.failed += 1;
            if self.why.is_empty() {
                self.why = srd::status_text(wc.status).to_owned();
            }
        }
    }

    /// Posts the blocks that are due, the flows in turn. Returns when the next block is due, if
    /// known.
    fn post(&mut self) -> Result<Option<u64>> {
        let Some(run) = self.run else { return Ok(None) };
        let now = now_ns();
        if now < run.start_ns {
            return Ok(Some(run.start_ns));
        }
        let count = self.sending.len();
        let (mut idle, mut posts) = (0, 0);
        let mut next = self.ping(&run, now)?;
        while idle < count && !self.slots.is_empty() {
            if posts == POSTS {
                return Ok(Some(now));
            }
            let index = self.turn_from % count;
            self.turn_from = (self.turn_from + 1) % count;
            match self.due(&run, index, now) {
                Due::Now(due_ns) => {
                    if !self.post_one(&run, index, due_ns)? {
                        break;
                    }
                    (idle, posts) = (0, posts + 1);
                }
                Due::At(t) => {
                    next = Some(next.map_or(t, |n: u64| n.min(t)));
                    idle += 1;
                }
                Due::No => idle += 1,
            }
        }
        Ok(next)
    }

    fn due(&self, run: &Run, index: usize, now: u64) -> Due {
        let s = &self.sending[index];
        let finished = if run.blocks > 0 { s.next >= run.blocks } else { now >= run.stop_ns };
        if finished || s.in_flight >= self.window_now {
            return Due::No;
        }
        if run.pace_ns == 0 {
            return Due::Now(now);
        }
        match run.start_ns + s.next * run.pace_ns {
            due if due <= now => Due::Now(due),
            due if run.blocks == 0 && due >= run.stop_ns => Due::No,
            due => Due::At(due),
        }
    }

    /// Posts one block; `Ok(false)` if the send queue is full.
    fn post_one(&mut self, run: &Run, index: usize, due_ns: u64) -> Result<bool> {
        let Some(slot) = self.slots.pop() else { return Ok(false) };
        let at = slot as usize * self.mtu;
        let s = &mut self.sending[index];
        let len = (run.bytes_of(s.next) as usize).min(self.mtu);
        let head = BlockHead { flow: s.flow, run: run.run, number: s.next, due_ns };
        block::fill(&mut self.buffer[..len], &head);
        self.source.write_at(at, &self.buffer[..len])?;
        let peer = self.peers.get(&s.to).ok_or_else(|| NetError::new("no address handle"))?;
        let sges = [self.source.sge(at, len as u32)];
        let wr = SendWr::send(u64::from(slot), peer, s.qpn, QKEY).sges(&sges);
        match self.qp.post_send(&wr) {
            Ok(()) => {
                self.slot_flow[slot as usize] = index;
                s.next += 1;
                s.in_flight += 1;
                Ok(true)
            }
            Err(e) if e.is_full() => {
                self.slots.push(slot);
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn sent_tell(&mut self) -> Result {
        let Some(run) = self.run else { return Ok(()) };
        if self.sent_told || now_ns() < run.start_ns || self.slots.len() < SLOTS as usize {
            return Ok(());
        }
        let now = now_ns();
        let open = |s: &Sending| {
            if run.blocks > 0 { s.next < run.blocks } else { now < run.stop_ns }
        };
        if self.sending.iter().any(open) {
            return Ok(());
        }
        self.sent_told = true;
        let blocks = self.sending.iter().map(|s| (s.flow, s.accepted)).collect();
        tell(&Report::Sent { blocks, failed: self.failed, why: self.why.clone() })
    }

    /// Prints the state that may explain why a run does not end.
    fn explain(&self) -> Result {
        let mut text = format!(
            "{}: {} sends in flight, run {:?}\n",
            self.ip,
            SLOTS as usize - self.slots.len(),
            self.run
        );
        for s in &self.sending {
            text += &format!("  {s:?}\n");
        }
        for peer in self.device.context_stats()? {
            let mut states = BTreeMap::new();
            for path in self.device.path_stats(peer.peer.ip)? {
                *states.entry(path.state).or_insert(0) += 1;
            }
            text += &format!("  {peer:?}, paths {states:?}\n");
        }
        text += &format!("  {:?}", self.device.counters()?);
        eprintln!("{text}");
        Ok(())
    }

    fn counted(&self) -> Result<Counted> {
        let c = self.device.counters()?;
        let peers = self.device.context_stats()?;
        let slowest = peers.iter().max_by_key(|c| c.srtt_ns);
        let statm = std::fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = statm.split(' ').nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
        Ok(Counted {
            tx_packets: c.engine.tx_pkts,
            retransmitted: c.engine.retrans_pkts,
            spurious: c.engine.retrans_spurious_pkts,
            probes: c.engine.probe_pkts,
            timeouts: c.engine.retrans_timeout_events,
            stalls: c.engine.stalls,
            paths_retired: c.engine.paths_retired,
            duplicates_dropped: c.engine.dup_pkts,
            socket_drops: c.datapath.rxq_drops,
            memory_bytes: pages * rustix::param::page_size() as u64,
            rate_bits_per_sec: peers.iter().map(|c| c.rate_bytes_per_sec * 8).max().unwrap_or(0),
            srtt_ns: slowest.map_or(0, |c| c.srtt_ns),
            rtt_ns_min: slowest.map_or(0, |c| c.rtt_ns_min),
        })
    }
}

/// When the next block of a flow may be sent.
enum Due {
    Now(u64),
    At(u64),
    No,
}
