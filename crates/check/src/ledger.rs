//! What all engines of a world have promised each other, and the first broken promise.

use crate::cover::Cover;
use crate::trace::Trace;
use rustc_hash::FxHashMap;
use srd_core::wire::Verdict;
use srd_core::{Access, Opcode, Qpn, SendRequest, Status};
use srd_fabric::Ps;

/// A broken promise: the oracle that saw it, and what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub oracle: Oracle,
    /// When.
    pub at: Ps,
    /// What was seen.
    pub what: String,
}

/// The promises that are watched. `docs/reliability.md` says each in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// Each byte of a request is placed at most once, at the right place, from the right source;
    /// a request that succeeded has all of them placed.
    Placement,
    /// Each request ends once.
    Completion,
    /// A request ends well only after its bytes are placed.
    CompletionAfterPlacement,
    /// Nothing is acknowledged that was not judged, or with another verdict; none goes unsaid.
    Ack,
    /// Nothing is written or read outside a region and its rights.
    Bounds,
    /// Nothing happens to what was destroyed, nor on behalf of it.
    Destroyed,
    /// The responder judges as its queue pairs, receives, regions and rights say.
    Judgment,
    /// The requester learns what the responder decided.
    Verdict,
    /// Nothing meant for a former life of an engine reaches the new one.
    Epoch,
    /// Data never leaves faster than the rate allows.
    Pacing,
    /// Paths out of use carry nothing, enough of them stay in use, and what was lost takes another.
    Paths,
    /// Windows, credits of reads and writes, numbers on the wire.
    Window,
    /// Bytes in flight are those of packets in flight.
    Inflight,
    /// Completion queues hold what was promised, no more.
    CqReservation,
    /// Receive completions come in order and say what arrived.
    Receive,
    /// Queues keep within their limits.
    Limits,
    /// Counters add up.
    Counters,
    /// After the network has healed everything ends, and new work succeeds.
    Liveness,
    /// A post is refused only for the reason given.
    Post,
    /// An engine must not panic.
    Panic,
    /// A call has a bounded number of steps, and an instant a bounded number of calls.
    Loop,
    /// What an engine holds for a peer is bounded, and goes with the peer.
    Memory,
    /// Honest third parties keep their throughput.
    Neighbour,
    /// Round trips are believed as far as they can be true.
    Belief,
    /// Nothing is sent again that was not lost.
    Copies,
    /// What was damaged on the way is dropped where both sides check.
    Integrity,
    /// Two runs of one seed are the same.
    Replay,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReqState {
    /// Posted.
    Live,
    /// Its completion was polled.
    Done(Status),
    /// Withdrawn with its queue pair.
    Released,
    /// Its engine was killed.
    Orphan,
}

/// A send request of any engine.
#[derive(Debug)]
pub struct Req {
    /// Engine that posted it.
    pub owner: u16,
    /// The engine's life in which it did.
    pub epoch: u32,
    /// When.
    pub at: Ps,
    /// Queue pair.
    pub qpn: Qpn,
    /// The request.
    pub wr: SendRequest,
    /// An unreliable datagram.
    pub datagram: bool,
    /// Engine it is for, if that exists.
    pub dst: Option<u16>,
    /// `rnr_retry` of its queue pair when posted.
    pub rnr_retry: u8,
    /// Where it stands.
    pub state: ReqState,
    /// Bytes placed.
    pub placed: Cover,
    /// Verdicts given, one bit each.
    pub verdicts: u16,
    /// How often RNR was the verdict.
    pub rnr: u32,
    /// Times its immediate (or its message) was delivered as a completion at the responder.
    pub delivered: u32,
    /// The responder said that the region went away.
    pub region_gone: bool,
    /// Posted after the network had healed.
    pub calm: bool,
    /// It takes a credit of the peer since it was first sent: in which engagement of the two.
    pub credit: Option<u32>,
}

/// In place of an engagement: the request takes no credit any more.
pub const NO_CREDIT: u32 = u32::MAX;

impl Req {
    /// Whether `v` was ever the verdict.
    pub fn judged(&self, v: Verdict) -> bool {
        self.verdicts >> v as u16 & 1 == 1
    }
    /// Whether its credit must still be taken, for all that is known outside of the engine: it has
    /// not done all it should, and nothing has ended it.
    pub fn holds_credit(&self, engagement: u32) -> bool {
        let done = match self.wr.op {
            Opcode::Read => self.placed.total() == u64::from(self.wr.len) || self.region_gone,
            _ => self.delivered > 0,
        };
        // A read that is refused for now gives its credit back until it is tried again.
        let rnr = u16::from(self.wr.op == Opcode::WriteImm) << Verdict::Rnr as u16;
        let good = 1 << Verdict::Ok as u16 | rnr;
        let refused = self.verdicts & !good != 0
            || (self.rnr_retry < 7 && self.rnr > u32::from(self.rnr_retry));
        let live = self.state == ReqState::Live && self.credit == Some(engagement);
        live && !done && !refused
    }
    /// Whether the responder completes a receive for it.
    pub fn is_message(&self) -> bool {
        !matches!(self.wr.op, Opcode::Write | Opcode::Read)
    }
}

/// A region of any engine.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Engine.
    pub owner: u16,
    /// Number in the ledger.
    pub id: u32,
    /// Its key.
    pub key: u32,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Rights.
    pub access: Access,
}

/// What applications know of each other's engines, by means outside the network.
#[derive(Clone, Debug, Default)]
pub struct Public {
    /// Lives so far.
    pub epoch: u32,
    /// Its receive window in PSNs.
    pub window: u16,
    /// Queue pairs: number, key, datagrams.
    pub qps: Vec<(Qpn, u32, bool)>,
    /// Regions.
    pub regions: Vec<Region>,
}

/// One direction of a context, known by receiver and tag: what its PSNs carry.
#[derive(Debug, Default)]
pub struct Direction {
    /// First PSN that was ever sent.
    pub psn_first: Option<u32>,
    /// What each PSN carries.
    pub psns: FxHashMap<u32, Carried>,
    /// Newest transmission number, once there is one, and the sender's life and context that used
    /// it: a tag can be given to two of them while it opens.
    pub tx_num: Option<((u32, u32), u32)>,
}

/// What a PSN carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Request (or none) and offset, and the wire type.
    Data(Option<u32>, u32, u8),
    /// Nothing any more.
    Nothing,
    /// The question whether what it carried has arrived: it is too large for the way now.
    Recall,
}

/// Faults of the checker itself, to prove that the oracles are awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tamper {
    /// None.
    #[default]
    None,
    /// One payload in some is not copied.
    CopyDropped,
    /// Payload is copied only after completions have been polled.
    CopyLate,
    /// A packet is handed to the engine with another byte range.
    WrongBytes,
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets handed to the network.
    pub packets: u64,
    /// Packets handed to engines.
    pub received: u64,
    /// Requests posted.
    pub requests: u64,
    /// Requests that ended well.
    pub completed: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Reliable packets judged.
    pub judged: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Times that packets to an address got another size.
    pub sizes: u64,
    /// PSNs that were recalled because they had become too large.
    pub recalls: u64,
    /// Verdicts "not ready".
    pub rnr: u64,
    /// Engines killed and started again.
    pub restarts: u64,
    /// Packets of the past that arrived again.
    pub stale: u64,
    /// Packets made up by strangers.
    pub forged: u64,
    /// Leaps of clocks.
    pub leaps: u64,
    /// Packets that a card had no room for.
    pub refused: u64,
    /// Datagrams dropped by a full receive queue.
    pub overflowed: u64,
    /// Queue pairs, regions and address handles destroyed or failed in flight.
    pub churned: u64,
}

impl Tally {
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.packets, other.packets),
            (&mut self.received, other.received),
            (&mut self.requests, other.requests),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.judged, other.judged),
            (&mut self.retransmitted, other.retransmitted),
            (&mut self.sizes, other.sizes),
            (&mut self.recalls, other.recalls),
            (&mut self.rnr, other.rnr),
            (&mut self.restarts, other.restarts),
            (&mut self.stale, other.stale),
            (&mut self.forged, other.forged),
            (&mut self.leaps, other.leaps),
            (&mut self.refused, other.refused),
            (&mut self.overflowed, other.overflowed),
            (&mut self.churned, other.churned),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
    }
}

/// The common knowledge of a world.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Present time.
    pub now: Ps,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Hash of everything that was decided, in order.
    pub hash: u64,
    /// All requests ever posted.
    pub reqs: Vec<Req>,
    /// Regions ever registered, by number: engine and key. A new life may give out a key again.
    pub regions: Vec<(u16, u32)>,
    /// What is public of each engine.
    pub public: Vec<Public>,
    /// Directions by receiving engine and its tag.
    pub directions: FxHashMap<(u16, u32), Direction>,
    /// Requests of writes with immediate by engine, life and message id.
    pub messages: FxHashMap<(u16, u32, u32), u32>,
    /// Life of the engine that gave out the tag.
    pub tags: FxHashMap<(u16, u32), u32>,
    /// Pairs of engines between which contexts were ended by silence or restart.
    pub disturbed: bool,
    /// From when on some way may carry smaller packets only.
    pub narrow_from: Option<Ps>,
    /// The network has healed.
    pub calm: bool,
    /// Fault of the checker itself.
    pub tamper: Tamper,
    /// Readable account of the run, if wanted.
    pub trace: Option<Box<Trace>>,
    /// Numbers.
    pub tally: Tally,
}

impl Ledger {
    /// Notes a broken promise; the first one counts.
    #[cold]
    pub fn fail(&mut self, oracle: Oracle, what: String) {
        let at = self.now;
        if let Some(t) = &mut self.trace {
            t.line(at, format!("VIOLATION {oracle:?}: {what}"));
        }
        if self.violation.is_none() {
            self.violation = Some(Violation { oracle, at, what });
        }
    }

    /// Notes a broken promise unless `ok`.
    pub fn require(&mut self, ok: bool, oracle: Oracle, what: impl FnOnce() -> String) {
        if !ok {
            self.fail(oracle, what());
        }
    }

    /// Folds a decision into the hash.
    pub fn fold(&mut self, a: u64, b: u64) {
        let x = self.hash.rotate_left(9) ^ a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b;
        self.hash = x.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ self.now;
    }

    /// Adds a line to the account, if one is wanted.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.now;
        if let Some(t) = &mut self.trace {
            t.line(at, line());
        }
    }

    /// Bytes `at..at + len` of request `id` were placed.
    pub fn place(&mut self, id: u32, at: u32, len: u32) {
        self.fold(u64::from(id) << 32 | u64::from(at), u64::from(len));
        let req = &mut self.reqs[id as usize];
        let fits = u64::from(at) + u64::from(len) <= u64::from(req.wr.len);
        let once = fits && req.placed.add(at, len);
        if !once {
            let (owner, op, whole) = (req.owner, req.wr.op, req.wr.len);
            let what = format!(
                "request {id} ({op:?} of engine {owner}, {whole} bytes): bytes {at}+{len} placed \
                 a second time or beyond its end"
            );
            self.fail(Oracle::Placement, what);
        }
    }

    /// A verdict was given on a packet of request `id`.
    pub fn judged(&mut self, id: u32, v: Verdict) {
        let req = &mut self.reqs[id as usize];
        req.verdicts |= 1 << v as u16;
        req.rnr += u32::from(v == Verdict::Rnr);
        self.tally.rnr += u64::from(v == Verdict::Rnr);
        self.fold(u64::from(id), 1 << 40 | v as u64);
    }
}
