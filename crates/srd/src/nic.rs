//! The state behind the device's one lock: engine, datapath, and the tables that map the engine's
//! handles to memory and rings.

use crate::{
    arrivals::Arrivals,
    cork::Cork,
    few::Few,
    mirror::Mirror,
    path_events::{PathFeed, PathTap},
    paths_control::PathsControl,
    queue::{CqCore, CqEntry, Lane, Piece, QpCore, RECV_SGES_MAX, RecvEntry, SendEntry, WrData},
    regions::Regions,
    sealing::Sealing,
    shard::Shard,
    share::Share,
    status::Shown,
    sync::lock,
};
use rtrb::{Consumer, Producer};
use srd_core::{Opcode, Qpn, RecvHandle, SendRequest, Time, WrHandle, limits};
use srd_datapath::{Datapath, clock};
use srd_wire::{AckBlock, HEADERS_BYTES_MAX, ParseError};
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// The engine of a device, which tells changes of paths.
pub(crate) type Engine = srd_core::Engine<PathTap>;

/// Number of kinds of [`ParseError`].
pub(crate) const PARSE_ERRORS: usize = 8;

/// Most packets transmitted in one turn: bounds how long received packets wait.
pub(crate) const TX_BATCH: usize = 64;

/// Longest sleep while the kernel accepts no more packets.
const BACKLOG_SLEEP_MAX: Duration = Duration::from_millis(1);

/// Where a parse error is counted.
pub(crate) const fn parse_error_index(e: ParseError) -> usize {
    match e {
        ParseError::Truncated => 0,
        ParseError::Version => 1,
        ParseError::Type => 2,
        ParseError::ListTooLong => 3,
        ParseError::Value => 4,
        ParseError::Sealed => 5,
        ParseError::TrailingBytes => 6,
        ParseError::Checksum => 7,
    }
}

/// A send request that the engine holds, by its handle.
#[derive(Debug)]
pub(crate) struct WrSlot {
    pub qpn: Qpn,
    /// The user's number and operation, needed to end the request if the engine fails.
    pub wr_id: u64,
    pub op: Opcode,
    pub data: WrData,
    pub live: bool,
}

impl WrSlot {
    /// Stores a send request by its handle. The table grows to the largest handle ever used.
    #[inline]
    pub(crate) fn insert(
        all: &mut Vec<Self>,
        handle: WrHandle,
        qpn: Qpn,
        wr: &SendRequest,
        data: &WrData,
    ) {
        let slot = Self { qpn, wr_id: wr.wr_id, op: wr.op, data: *data, live: true };
        let index = handle.0 as usize;
        if let Some(place) = all.get_mut(index) {
            *place = slot;
            return;
        }
        let unused = || Self { live: false, data: WrData::Empty, ..slot };
        all.resize_with(index, unused);
        all.push(slot);
    }
}

/// A posted receive that the engine holds, by its index.
#[derive(Debug, Default)]
pub(crate) struct RecvSlot {
    /// The user's number.
    pub wr_id: u64,
    pub pieces: Few<Piece, RECV_SGES_MAX>,
    pub live: bool,
    /// One of its regions was deregistered: nothing is placed, and the receive ends with status 5.
    pub lost_memory: bool,
}

/// A queue pair's state in the turn.
#[derive(Debug)]
pub(crate) struct QpSide {
    pub core: Arc<QpCore>,
    pub sends: Consumer<SendEntry>,
    pub recvs: Consumer<RecvEntry>,
    pub recv_slots: Vec<RecvSlot>,
    /// The engine had no room: the oldest request of a ring waits for the next turn.
    pub held: bool,
}

/// A completion queue's state in the turn.
#[derive(Debug)]
pub(crate) struct CqSide {
    pub core: Arc<CqCore>,
    pub ring: Producer<CqEntry>,
    /// Count of polled completions of this shard; see [`Lane`].
    pub freed: Arc<AtomicU32>,
    /// Its value that the engine was told.
    pub released: u32,
    /// Whether completions were put into the ring since the user was last notified.
    pub fresh: bool,
    /// Whether other shards may complete into the queue at the same time.
    pub among_others: bool,
}

/// The tables, separate from the engine so that both can be borrowed at once.
#[derive(Debug)]
pub(crate) struct Tables {
    pub local_ip: IpAddr,
    pub wrs: Vec<WrSlot>,
    pub qps: Vec<Option<Box<QpSide>>>,
    pub cqs: Vec<Option<CqSide>>,
    pub regions: Regions,
}

impl Tables {
    pub(crate) fn new(local_ip: IpAddr) -> Self {
        Self {
            local_ip,
            wrs: Vec::new(),
            qps: (0..limits::QPS_MAX).map(|_| None).collect(),
            cqs: Vec::new(),
            regions: Regions::default(),
        }
    }

    /// The queue pair with this number.
    #[inline]
    pub(crate) fn qp(&mut self, qpn: Qpn) -> Option<&mut QpSide> {
        self.qps[usize::from(qpn.index())].as_deref_mut().filter(|q| q.core.qpn == qpn)
    }

    /// The posted receive.
    #[inline]
    pub(crate) fn recv(&self, handle: RecvHandle) -> Option<&RecvSlot> {
        let qp = self.qps[usize::from(handle.qp.index())].as_deref()?;
        let slot = qp.recv_slots.get(handle.index as usize)?;
        (qp.core.qpn == handle.qp && slot.live).then_some(slot)
    }

    /// The send request.
    #[inline]
    pub(crate) fn wr(&self, handle: WrHandle) -> Option<&WrSlot> {
        self.wrs.get(handle.0 as usize).filter(|s| s.live)
    }

    /// Removes a completed send request; returns its queue pair, if there was one.
    #[inline]
    pub(crate) fn wr_end(&mut self, handle: WrHandle) -> Option<Qpn> {
        let slot = self.wrs.get_mut(handle.0 as usize)?;
        std::mem::take(&mut slot.live).then_some(slot.qpn)
    }

    /// Gives a completion queue a ring for this shard's completions, at its first queue pair here.
    pub(crate) fn cq_attach(&mut self, shared: &Shard, core: &Arc<CqCore>) {
        let index = usize::from(core.id.0);
        if index >= self.cqs.len() {
            self.cqs.resize_with(index + 1, || None);
        }
        let side = &mut self.cqs[index];
        if side.is_some() {
            return;
        }
        let (ring, consumer) = rtrb::RingBuffer::new(2 * core.slots.limit() as usize);
        let freed = Arc::new(AtomicU32::new(0));
        let (shard, released) = (shared.index, Arc::clone(&freed));
        lock(&core.reader).lane_add(Lane { shard, ring: consumer, released });
        core.shards.fetch_or(1 << shard, Ordering::Release);
        *side = Some(CqSide {
            core: Arc::clone(core),
            ring,
            freed,
            released: 0,
            fresh: false,
            among_others: shared.common.is_sharded(),
        });
    }
}

/// Counters that neither the engine nor the datapath has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NicCounters {
    /// By [`parse_error_index`].
    pub parse_errors: [u64; PARSE_ERRORS],
    /// Packets not passed to the datapath: it refused them, or their payload memory was gone.
    pub tx_refused: u64,
    /// Placements that found no memory: the receive or region was gone when the payload was copied.
    pub rx_unplaced: u64,
    pub turns: u64,
    /// One bit per path; set if a packet was sent on the path.
    pub paths_used: [u64; 4],
}

/// Everything behind the device's lock.
pub(crate) struct Nic {
    pub engine: Engine,
    /// Where changes of paths are told.
    pub feed: Arc<PathFeed>,
    pub net: Box<dyn Datapath>,
    pub tables: Tables,
    pub counters: NicCounters,
    /// Scratch for the acknowledgment block of a received packet.
    pub ack: AckBlock,
    /// Scratch for the headers of a packet to send.
    pub headers: Box<[u8; HEADERS_BYTES_MAX]>,
    /// Last errno of the datapath that was reported; 0 = it works.
    pub net_errno: i32,
    /// When the last turn began.
    pub turned_at: Time,
    /// State of packets that may wait in the socket.
    pub arrivals: Arrivals,
    /// The device's slot in the table shared with other processes of the host, if it has one.
    pub share: Option<Share>,
    /// What the device shows to tools, if it shows anything.
    pub status: Option<Box<Shown>>,
    /// Orders of an operator about paths.
    pub paths: Option<Box<PathsControl>>,
    /// Where packets are mirrored while `srd capture` runs.
    pub mirror: Option<Box<Mirror>>,
    /// Keys, if the device seals.
    pub seal: Option<Box<Sealing>>,
    /// Whether datagrams were left in the socket when the engine was last told of the backlog.
    pub behind: bool,
    /// Whether the last turn left timers to be recalculated by the next one.
    pub unsettled: bool,
    /// Posts that wait for the next poll.
    pub cork: Cork,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Work requests taken, packets received and sent, completions delivered.
    pub done: usize,
    /// Whether more work is due at once, because a full batch was received or sent.
    pub more: bool,
}

impl Nic {
    /// A device that has done nothing yet.
    pub(crate) fn new(
        engine: Engine,
        feed: Arc<PathFeed>,
        net: Box<dyn Datapath>,
        tables: Tables,
        seal: Option<Box<Sealing>>,
        share: Option<Share>,
    ) -> Self {
        Self {
            engine,
            feed,
            net,
            tables,
            counters: NicCounters::default(),
            ack: AckBlock::default(),
            headers: Box::new([0; HEADERS_BYTES_MAX]),
            net_errno: 0,
            turned_at: Time(0),
            arrivals: Arrivals::default(),
            share,
            status: None,
            paths: None,
            mirror: None,
            seal,
            behind: false,
            unsettled: false,
            cork: Cork::default(),
        }
    }

    /// The clock of the engine and the datapath.
    #[inline]
    pub(crate) fn now() -> Time {
        Time(clock::now_ns())
    }

    /// Time until the next timer, at most `limit`; `None` = nothing is due until a packet or a post
    /// arrives.
    pub(crate) fn idle_time(&self, limit: Option<Duration>) -> Option<Duration> {
        if !self.net.tx_ready() {
            // Due packets cannot leave while there is a backlog: the datapath wakes up when the
            // kernel accepts packets again. Timers are late by at most this much.
            return Some(limit.map_or(BACKLOG_SLEEP_MAX, |l| l.min(BACKLOG_SLEEP_MAX)));
        }
        let shown = self.status.as_ref().map_or(Time::NEVER, |shown| shown.due());
        let next = self.engine.next_timeout().min(shown);
        if next == Time::NEVER {
            return limit;
        }
        let own = Duration::from_nanos(next.since(Self::now()).0);
        Some(limit.map_or(own, |l| l.min(own)))
    }
}
