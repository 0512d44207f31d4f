//! The ledger shared by all engines of a world, and the first violation.

use crate::cover::Cover;
use crate::trace::Trace;
use rustc_hash::FxHashMap;
use srd_core::wire::Verdict;
use srd_core::{Access, Opcode, Qpn, SendRequest, Status};
use srd_fabric::Ps;

/// A violation: the oracle that detected it, and what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle.
    pub oracle: Oracle,
    /// Time.
    pub at: Ps,
    /// Description.
    pub what: String,
}

/// The oracles. `docs/reliability.md` states each of their promises in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// Each byte of a request is placed at most once, at the right place, from the right source;
    /// a request that succeeded has all of them placed.
    Placement,
    /// Each request ends once.
    Completion,
    /// A request ends well only after its bytes are placed.
    CompletionAfterPlacement,
    /// Only judged packets are acknowledged, with their verdict; no verdict stays unreported.
    Ack,
    /// Memory is accessed only within a region and its access rights.
    Bounds,
    /// Nothing happens to destroyed objects, or on their behalf.
    Destroyed,
    /// The responder's verdict follows from queue pairs, receives, regions and access rights.
    Judgment,
    /// The requester learns the responder's verdict.
    Verdict,
    /// No packet for a former incarnation of an engine takes effect in the new one.
    Epoch,
    /// Data never leaves faster than the rate allows.
    Pacing,
    /// Retired paths carry no data, enough paths stay in use, and a lost packet takes another path.
    Paths,
    /// Windows, credits of reads and writes, and numbers on the wire are respected.
    Window,
    /// Bytes in flight equal the sum over packets in flight.
    Inflight,
    /// Completion queues hold the reserved slots and no more.
    CqReservation,
    /// Receive completions come in order and describe what arrived.
    Receive,
    /// Queues respect their limits, and what liars were granted its bound.
    Limits,
    /// Counters are consistent.
    Counters,
    /// After the network has healed every request ends, and new requests succeed.
    Liveness,
    /// A post fails only for the reason reported.
    Post,
    /// An engine must not panic.
    Panic,
    /// A call has a bounded number of steps, and an instant a bounded number of calls.
    Loop,
    /// What an engine holds for a peer is bounded, and freed with the peer.
    Memory,
    /// Honest third parties keep their throughput.
    Neighbour,
    /// The RTT estimate is plausible.
    Belief,
    /// Only lost packets are retransmitted.
    Copies,
    /// Damaged packets are dropped if both sides use checksums.
    Integrity,
    /// What peers must not guess depends on the seed of the secrets alone.
    Secrets,
    /// No nonce is used twice under one key.
    Nonce,
    /// What has to be sealed leaves sealed, and shows no payload.
    Secrecy,
    /// What nobody has authenticated changes nothing, and what a peer has sealed opens, once.
    Authentic,
    /// A crowd loses few packets for ever before a bottleneck.
    Loss,
    /// While one rail of a device is down, work goes on over the other.
    Pause,
    /// Nobody starves in a crowd.
    Fair,
    /// What a bottleneck carries is used.
    Used,
    /// Marks of all packets lower the rate.
    Marks,
    /// Two runs of one seed are identical.
    Replay,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReqState {
    /// Posted.
    Live,
    /// Its completion was polled.
    Done(Status),
    /// Released with its queue pair.
    Released,
    /// Its engine was killed.
    Orphan,
}

/// A send request of any engine.
#[derive(Debug)]
pub struct Req {
    /// Engine that posted it.
    pub owner: u16,
    /// Incarnation of that engine.
    pub epoch: u32,
    /// Time of the post.
    pub at: Ps,
    /// Queue pair.
    pub qpn: Qpn,
    /// The request.
    pub wr: SendRequest,
    /// It is an unreliable datagram.
    pub datagram: bool,
    /// Destination engine, if it exists.
    pub dst: Option<u16>,
    /// `rnr_retry` of its queue pair at the post.
    pub rnr_retry: u8,
    /// State.
    pub state: ReqState,
    /// Bytes placed.
    pub placed: Cover,
    /// Verdicts given so far, one bit each.
    pub verdicts: u16,
    /// Number of RNR verdicts.
    pub rnr: u32,
    /// Completions at the responder for its immediate or message.
    pub delivered: u32,
    /// The responder reported that the region was deregistered.
    pub region_gone: bool,
    /// Posted after the network had healed.
    pub calm: bool,
    /// Engagement in which it holds a credit of the peer, from its first transmission on.
    pub credit: Option<u32>,
}

/// Value of `credit` once the request no longer takes one.
pub const NO_CREDIT: u32 = u32::MAX;

impl Req {
    /// Whether verdict `v` was ever given.
    pub fn judged(&self, v: Verdict) -> bool {
        self.verdicts >> v as u16 & 1 == 1
    }
    /// Whether it must hold a credit, as far as is known outside the engine: it is neither complete
    /// nor ended.
    pub fn holds_credit(&self, engagement: u32) -> bool {
        let done = match self.wr.op {
            Opcode::Read => self.placed.total() == u64::from(self.wr.len) || self.region_gone,
            _ => self.delivered > 0,
        };
        // A read that gets RNR returns its credit until the retry.
        let rnr = u16::from(self.wr.op == Opcode::WriteImm) << Verdict::Rnr as u16;
        let good = 1 << Verdict::Ok as u16 | rnr;
        let refused = self.verdicts & !good != 0
            || (self.rnr_retry < 7 && self.rnr > u32::from(self.rnr_retry));
        let live = self.state == ReqState::Live && self.credit == Some(engagement);
        live && !done && !refused
    }
    /// Whether it completes a receive at the responder.
    pub fn is_message(&self) -> bool {
        !matches!(self.wr.op, Opcode::Write | Opcode::Read)
    }
}

/// A region of any engine.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Engine that registered it.
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

/// What applications know of each other's engines, independent of the network.
#[derive(Clone, Debug, Default)]
pub struct Public {
    /// Number of restarts.
    pub epoch: u32,
    /// Its receive window in PSNs.
    pub window: u16,
    /// Queue pairs: number, key, datagrams.
    pub qps: Vec<(Qpn, u32, bool)>,
    /// Regions.
    pub regions: Vec<Region>,
}

/// One direction of a context, identified by receiver and tag, and the content of its PSNs.
#[derive(Debug, Default)]
pub struct Direction {
    /// First PSN that was ever sent.
    pub psn_first: Option<u32>,
    /// What each PSN carries.
    pub psns: FxHashMap<u32, Carried>,
    /// Latest transmission number, with the sender's incarnation and context: during a handshake a
    /// tag can belong to two of them.
    pub tx_num: Option<((u32, u32), u32)>,
}

/// Content of a PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Request (if any), offset and wire type.
    Data(Option<u32>, u32, u8),
    /// No content any more.
    Nothing,
    /// A recall: asks whether the content, now too large for the path, has arrived.
    Recall,
}

/// Deliberate faults of the checker, which prove that the oracles detect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tamper {
    /// None.
    #[default]
    None,
    /// Some payloads are not copied.
    CopyDropped,
    /// Payload is copied only after completions were polled.
    CopyLate,
    /// A packet reaches the engine with a wrong byte range.
    WrongBytes,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets passed to the network.
    pub packets: u64,
    /// Packets passed to engines.
    pub received: u64,
    /// Requests posted.
    pub requests: u64,
    /// Requests that succeeded.
    pub completed: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Reliable packets judged.
    pub judged: u64,
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// Changes of the packet size to an address.
    pub sizes: u64,
    /// PSNs recalled because their packets had become too large.
    pub recalls: u64,
    /// RNR verdicts.
    pub rnr: u64,
    /// Restarts of engines.
    pub restarts: u64,
    /// Old packets that arrived again.
    pub stale: u64,
    /// Forged packets.
    pub forged: u64,
    /// Clock leaps.
    pub leaps: u64,
    /// Packets refused by a full NIC.
    pub refused: u64,
    /// Datagrams dropped by a full receive queue.
    pub overflowed: u64,
    /// Queue pairs, regions and address handles destroyed or failed while in use.
    pub churned: u64,
    /// Orders to deny and allow paths that took effect.
    pub denials: u64,
}

impl Tally {
    /// Adds the counters of another run.
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
            (&mut self.denials, other.denials),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
    }
}

/// State shared by all engines of a world.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Current time.
    pub now: Ps,
    /// The first violation.
    pub violation: Option<Violation>,
    /// Hash of all decisions in order.
    pub hash: u64,
    /// All requests ever posted.
    pub reqs: Vec<Req>,
    /// Regions ever registered, by number: engine and key. A later incarnation may reuse a key.
    pub regions: Vec<(u16, u32)>,
    /// Public information on each engine.
    pub public: Vec<Public>,
    /// Directions by receiving engine and tag.
    pub directions: FxHashMap<(u16, u32), Direction>,
    /// Requests of writes with immediate by engine, incarnation and message id.
    pub messages: FxHashMap<(u16, u32, u32), u32>,
    /// Incarnation of the engine that assigned the tag, by engine and tag.
    pub tags: FxHashMap<(u16, u32), u32>,
    /// Some context was ended by silence or restart.
    pub disturbed: bool,
    /// Time from which paths may carry smaller packets only.
    pub narrow_from: Option<Ps>,
    /// The network has healed.
    pub calm: bool,
    /// Deliberate fault of the checker.
    pub tamper: Tamper,
    /// Readable trace of the run, if requested.
    pub trace: Option<Box<Trace>>,
    /// Counters.
    pub tally: Tally,
}

impl Ledger {
    /// Records a violation; only the first is kept.
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

    /// Records a violation unless `ok`.
    pub fn require(&mut self, ok: bool, oracle: Oracle, what: impl FnOnce() -> String) {
        if !ok {
            self.fail(oracle, what());
        }
    }

    /// Adds a decision to the hash.
    pub fn fold(&mut self, a: u64, b: u64) {
        self.hash = fold(self.hash, a, b) ^ self.now;
    }

    /// Adds a line to the trace, if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.now;
        if let Some(t) = &mut self.trace {
            t.line(at, line());
        }
    }

    /// Records that bytes `at..at + len` of request `id` were placed.
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

    /// Records a verdict on a packet of request `id`.
    pub fn judged(&mut self, id: u32, v: Verdict) {
        let req = &mut self.reqs[id as usize];
        req.verdicts |= 1 << v as u16;
        req.rnr += u32::from(v == Verdict::Rnr);
        self.tally.rnr += u64::from(v == Verdict::Rnr);
        self.fold(u64::from(id), 1 << 40 | v as u64);
    }
}

/// A hash with two more numbers.
pub(crate) fn fold(hash: u64, a: u64, b: u64) -> u64 {
    let x = hash.rotate_left(9) ^ a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b;
    x.wrapping_mul(0xBF58_476D_1CE4_E5B9)
}
