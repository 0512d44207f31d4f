//! An honest device ("party") in the namespace of a host: sends blocks, checks received ones, and
//! requests reads and writes from peers.

use crate::{
    bench::block::{self, BlockHead, FlowRx, now_ns},
    error::{NetError, Result},
    fabric::Fabric,
    spec::Node,
};
use srd::{
    Access, AddressHandle, CompletionOp, CompletionQueue, Device, DeviceConfig, MemoryRegion,
    ProtectionDomain, QKey, QpInit, Qpn, QueuePair, RKey, RecvWr, SendWr, WorkCompletion,
};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

/// Q_Key of all queue pairs here.
pub const QKEY: QKey = QKey(0x686F_7374);
/// Blocks in flight from one party, and receives posted at one: enough to fill a link of 1 Gb/s at
/// the round-trip times of a fabric of namespaces.
const DEPTH: u32 = 128;
/// Most outstanding requests to a stranger (a peer that may be hostile), beside the blocks.
const STRANGER_DEPTH: u32 = 128;
/// Length of the longest request to a stranger in packets.
const ANSWER_PACKETS: usize = 4;
/// Time within which an acknowledged block reaches its receiver. A device acknowledges in the turn
/// at whose end it delivers, but its thread may be preempted in between.
const DELIVERED_WITHIN: Duration = Duration::from_secs(5);
/// Bit in the `wr_id` of requests to a stranger; the other bits are the request's number.
const STRANGER: u64 = 1 << 32;

/// Number of requests to a stranger by the text of their final status.
pub type Ends = BTreeMap<&'static str, u32>;

/// An honest device with one queue pair.
pub struct Party {
    // Fields are dropped in this order: queue pair, regions, completion queue, device.
    qp: QueuePair,
    source: MemoryRegion,
    target: MemoryRegion,
    /// Memory region that any stranger with the key may read and write.
    bait: MemoryRegion,
    /// Memory region for strangers' answers; blocks never arrive in it.
    answers: MemoryRegion,
    cq: CompletionQueue,
    /// The device.
    pub device: Device,
    mtu: usize,
    /// Interface of the host (rail); also the flow number of its blocks.
    rail: u8,
    slots: Vec<u32>,
    /// The party with which blocks are exchanged.
    peer: Option<IpAddr>,
    run: u32,
    next: u64,
    /// Number of blocks accepted by the peer.
    accepted: u64,
    received: FlowRx,
    damaged: u64,
    /// Number of blocks from another rail, or from another address than the peer's.
    strayed: u64,
    failed: Ends,
    strangers: u32,
    stranger_ends: Ends,
}

impl Party {
    /// Opens a device on a host of the fabric, with the default configuration.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(fabric: &Fabric, host: (u8, u8)) -> Result<Self> {
        Self::open_rail(fabric, host, 0, None)
    }

    /// Opens one device on all interfaces of a host.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open_joined(fabric: &Fabric, host: (u8, u8)) -> Result<Self> {
        let spec = fabric.spec();
        let more: Vec<String> = (1..spec.rails)
            .map(|rail| format!("{}/16", spec.rail_ip(rail, host.0, host.1)))
            .collect();
        let mut config = DeviceConfig::ip(spec.rail_ip(0, host.0, host.1));
        config.rails = Some(more.join(","));
        Self::open_config(fabric, host, config, (0, spec.rails), None)
    }

    /// As [`Party::open`], on one of the host's interfaces. With a `twin`, the queue pair gets the
    /// same number as the twin's.
    ///
    /// # Errors
    /// The device cannot be opened, or cannot assign the number.
    pub fn open_rail(
        fabric: &Fabric,
        host: (u8, u8),
        rail: u8,
        twin: Option<&Self>,
    ) -> Result<Self> {
        let config = DeviceConfig::ip(fabric.spec().rail_ip(rail, host.0, host.1));
        Self::open_config(fabric, host, config, (rail, 1), twin)
    }

    /// Opens a device with so many rails, of which the one with this number is its own.
    fn open_config(
        fabric: &Fabric,
        host: (u8, u8),
        mut config: DeviceConfig,
        (rail, rails): (u8, u8),
        twin: Option<&Self>,
    ) -> Result<Self> {
        let line = fabric.spec().host_bits_per_sec / 8 * u64::from(rails);
        // The link rate, which a virtual interface does not report.
        config.tune = Some(Box::new(move |engine| engine.line_set(line)));
        // The device's thread starts in the namespace of the thread that opens the device.
        let device = fabric.ns(Node::Host(host.0, host.1))?.inside(|| Ok(Device::open(config)?))?;
        let mtu = device.mtu();
        let pd = device.pd_create()?;
        let cq = device.cq_create(2 * DEPTH + STRANGER_DEPTH)?;
        let init =
            QpInit { sq_depth: DEPTH + STRANGER_DEPTH, rq_depth: DEPTH, ..QpInit::srd(&cq, &cq) };
        let qp = match twin {
            None => pd.qp_create(&init)?,
            Some(twin) => qp_with_number(&pd, &init, twin.qpn())?,
        };
        qp.activate(QKEY)?;
        let source = pd.mr_allocate(mtu * DEPTH as usize, Access::LOCAL_WRITE)?;
        let target = pd.mr_allocate(mtu * DEPTH as usize, Access::LOCAL_WRITE)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let bait = pd.mr_allocate(1 << 20, rights)?;
        let answers = pd.mr_allocate(ANSWER_PACKETS * mtu, Access::LOCAL_WRITE)?;
        for slot in 0..DEPTH {
            let sges = [target.sge(slot as usize * mtu, mtu as u32)];
            qp.post_recv(&RecvWr { wr_id: u64::from(slot), sges: &sges })?;
        }
        Ok(Self {
            qp,
            source,
            target,
            bait,
            answers,
            cq,
            device,
            mtu,
            rail,
            slots: (0..DEPTH).collect(),
            peer: None,
            run: 0,
            next: 0,
            accepted: 0,
            received: FlowRx::new(u32::from(rail)),
            damaged: 0,
            strayed: 0,
            failed: Ends::new(),
            strangers: 0,
            stranger_ends: Ends::new(),
        })
    }

    /// An address handle for `ip`.
    ///
    /// # Errors
    /// The device has no free handle.
    pub fn handle(&self, ip: IpAddr) -> Result<AddressHandle> {
        Ok(self.qp.pd().ah_create(ip)?)
    }

    /// Key and address of the region that strangers may read and write.
    pub fn bait(&self) -> (u32, u64) {
        (self.bait.rkey().0, self.bait.addr())
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    /// Handles completions and received blocks. Returns whether there were any.
    fn look(&mut self) -> Result<bool> {
        let mut wcs = [WorkCompletion::default(); 32];
        let n = self.cq.poll(&mut wcs)?;
        for wc in &wcs[..n] {
            match wc.op {
                op if op.is_recv() => self.arrived(wc)?,
                _ if wc.wr_id & STRANGER != 0 => {
                    self.strangers -= 1;
                    *self.stranger_ends.entry(srd::status_text(wc.status)).or_default() += 1;
                }
                _ => {
                    self.slots.push(wc.wr_id as u32);
                    if wc.is_ok() {
                        self.accepted += 1;
                    } else {
                        *self.failed.entry(srd::status_text(wc.status)).or_default() += 1;
                    }
                }
            }
        }
        Ok(n > 0)
    }

    fn arrived(&mut self, wc: &WorkCompletion) -> Result {
        // A write with immediate, which only a stranger sends, consumes a receive but not its
        // buffer; one without a receive has nothing to post again.
        if wc.op == CompletionOp::RecvUnsolicited {
            return Ok(());
        }
        let at = wc.wr_id as usize * self.mtu;
        if wc.is_ok() && wc.op == CompletionOp::Recv {
            let block = self.target.to_vec(at, (wc.byte_len as usize).min(self.mtu))?;
            match block::check(&block) {
                Some(head) if head.flow != u32::from(self.rail) || wc.src_ip != self.peer => {
                    self.strayed += 1;
                }
                Some(head) => self.received.take(&head, block.len(), now_ns()),
                None if wc.src_ip == self.peer => self.damaged += 1,
                // A message from a stranger may have any content.
                None => {}
            }
        }
        let sges = [self.target.sge(at, self.mtu as u32)];
        self.qp.post_recv(&RecvWr { wr_id: wc.wr_id, sges: &sges })?;
        Ok(())
    }

    fn post(&mut self, to: &AddressHandle, qpn: Qpn) -> Result<bool> {
        let Some(slot) = self.slots.pop() else { return Ok(false) };
        let at = slot as usize * self.mtu;
        let flow = u32::from(self.rail);
        let head = BlockHead { flow, run: self.run, number: self.next, due_ns: now_ns() };
        let mut bytes = vec![0; self.mtu];
        block::fill(&mut bytes, &head);
        self.source.write_at(at, &bytes)?;
        let sges = [self.source.sge(at, self.mtu as u32)];
        let wr = SendWr::send(u64::from(slot), to, qpn, QKEY).sges(&sges);
        self.qp.post_send(&wr)?;
        self.next += 1;
        Ok(true)
    }

    /// Sends one request of each kind to a stranger: a message, a write, a write with immediate, a
    /// read of several segments. Any of them may fail. Returns how many were posted.
    ///
    /// # Errors
    /// The device has failed.
    pub fn ask_stranger(&mut self, to: &AddressHandle, qpn: Qpn) -> Result<u32> {
        let mut posted = 0;
        let id = STRANGER;
        let sges = [self.answers.sge(0, (ANSWER_PACKETS * self.mtu) as u32)];
        let asks = [
            SendWr::send(id, to, qpn, QKEY).inline(b"is anybody there?"),
            SendWr::write(id, to, qpn, QKEY).remote(0x1000, RKey(77)).sges(&sges),
            SendWr::write(id, to, qpn, QKEY).remote(0x1000, RKey(77)).sges(&sges).imm(5),
            SendWr::read(id, to, qpn, QKEY).remote(0x1000, RKey(77)).sges(&sges),
        ];
        for ask in &asks {
            if self.strangers == STRANGER_DEPTH {
                break;
            }
            match self.qp.post_send(ask) {
                Ok(()) => {
                    self.strangers += 1;
                    posted += 1;
                }
                Err(e) if e.is_full() => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(posted)
    }

    /// Waits until all requests to strangers have ended. Returns their statuses.
    ///
    /// # Errors
    /// Some have not ended within `limit`.
    pub fn strangers_end(&mut self, limit: Duration) -> Result<Ends> {
        let began = Instant::now();
        while self.strangers > 0 {
            if began.elapsed() > limit {
                return Err(NetError::new(format!(
                    "{} requests to the stranger have not ended {:.0} s after it stopped sending",
                    self.strangers,
                    limit.as_secs_f64()
                )));
            }
            if !self.look()? {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(std::mem::take(&mut self.stranger_ends))
    }
}

/// Creates queue pairs until one has this number, and frees the others.
fn qp_with_number(pd: &ProtectionDomain, init: &QpInit<'_>, number: Qpn) -> Result<QueuePair> {
    let mut others = Vec::new();
    // The low byte counts the queue pairs of a device; the high byte is the device's slot.
    for _ in 0..256 {
        let qp = pd.qp_create(init)?;
        if qp.qpn() == number {
            return Ok(qp);
        }
        others.push(qp);
    }
    Err(NetError::new(format!(
        "the device at {} assigned no queue pair the number {}",
        pd.device().ip(),
        number.0
    )))
}

/// Result of an exchange between two parties.
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// Blocks that arrived undamaged at both parties, without duplicates.
    pub blocks: u64,
    /// Duration until the last block was acknowledged.
    pub time: Duration,
    /// Longest time without a block at either party, while blocks were sent.
    pub pause: Duration,
}

impl Exchanged {
    /// Blocks per second of the exchange.
    pub fn per_sec(&self) -> f64 {
        self.blocks as f64 / self.time.as_secs_f64()
    }
}

/// Result of one direction of a transfer.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Blocks posted, all of which have completed.
    pub sent: u64,
    /// Blocks that completed successfully.
    pub accepted: u64,
    /// Blocks that failed, by the text of their status.
    pub failed: Ends,
    /// Blocks that arrived undamaged, without duplicates.
    pub arrived: u64,
    /// Duplicate blocks.
    pub twice: u64,
    /// Damaged blocks.
    pub damaged: u64,
    /// Blocks that arrived at the wrong device or from a wrong address.
    pub strayed: u64,
    /// Longest time without a block, until the last one, in ns.
    pub pause_ns: u64,
}

impl Direction {
    fn of(from: &mut Party, to: &Party) -> Self {
        let got = to.received.stats();
        Self {
            sent: from.next,
            accepted: from.accepted,
            failed: std::mem::take(&mut from.failed),
            arrived: got.blocks,
            twice: got.duplicated,
            damaged: to.damaged,
            strayed: to.strayed,
            pause_ns: got.gap_ns,
        }
    }

    /// Whether no block was duplicated, damaged or misdelivered, and all successful ones arrived.
    pub fn is_true(&self) -> bool {
        let ended: u64 = self.accepted + self.failed.values().map(|n| u64::from(*n)).sum::<u64>();
        self.twice + self.damaged + self.strayed == 0
            && (self.accepted..=self.sent).contains(&self.arrived)
            && ended == self.sent
    }

    /// Whether all blocks arrived.
    fn is_whole(&self) -> bool {
        self.is_true() && self.failed.is_empty() && self.arrived == self.sent
    }
}

/// Both parties send as fast as possible for `time`. Then all blocks must be acknowledged within
/// `limit`, and must have arrived once and undamaged. Calls `beside` repeatedly.
///
/// # Errors
/// A block was lost, damaged, refused or duplicated, or has not completed within `limit`.
pub fn exchange(
    a: &mut Party,
    b: &mut Party,
    time: Duration,
    limit: Duration,
    beside: impl FnMut(&mut Party) -> Result,
) -> Result<Exchanged> {
    let (ways, time) = transfer(a, b, time, limit, beside)?;
    match ways.iter().find(|w| !w.is_whole()) {
        Some(bad) => {
            Err(NetError::new(format!("not all blocks arrived once and undamaged: {bad:?}")))
        }
        None => {
            let pause_ns = ways.iter().map(|w| w.pause_ns).max().unwrap_or(0);
            let pause = Duration::from_nanos(pause_ns);
            Ok(Exchanged { blocks: ways.iter().map(|w| w.arrived).sum(), time, pause })
        }
    }
}

/// As [`exchange`], but returns the result of each direction, that of `a` first.
///
/// # Errors
/// A block has not completed within `limit`.
pub fn transfer(
    a: &mut Party,
    b: &mut Party,
    time: Duration,
    limit: Duration,
    mut beside: impl FnMut(&mut Party) -> Result,
) -> Result<([Direction; 2], Duration)> {
    let (to_b, to_a) = (a.handle(b.device.ip())?, b.handle(a.device.ip())?);
    let (qpn_a, qpn_b) = (a.qpn(), b.qpn());
    (a.peer, b.peer) = (Some(b.device.ip()), Some(a.device.ip()));
    let began = Instant::now();
    for p in [&mut *a, &mut *b] {
        p.run += 1;
        (p.next, p.accepted, p.damaged, p.strayed) = (0, 0, 0, 0);
        p.received.begin(p.run, now_ns());
    }
    loop {
        let sending = began.elapsed() < time;
        let mut busy = a.look()? | b.look()?;
        if sending {
            beside(b)?;
            busy |= a.post(&to_b, qpn_b)? | b.post(&to_a, qpn_a)?;
        } else if a.slots.len() + b.slots.len() == 2 * DEPTH as usize {
            break;
        } else if began.elapsed() > time + limit {
            let left = 2 * DEPTH as usize - a.slots.len() - b.slots.len();
            return Err(NetError::new(format!(
                "{left} blocks have not completed {:.0} s after the last one was sent",
                limit.as_secs_f64()
            )));
        }
        if !busy {
            thread::sleep(Duration::from_micros(200));
        }
    }
    let time = began.elapsed();
    let ended = Instant::now();
    while a.received.blocks() < b.accepted || b.received.blocks() < a.accepted {
        if !(a.look()? | b.look()?) {
            if ended.elapsed() > DELIVERED_WITHIN {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    while a.look()? | b.look()? {}
    Ok(([Direction::of(a, b), Direction::of(b, a)], time))
}
