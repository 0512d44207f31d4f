//! The engine. (Signatures first; the machinery follows.)

use crate::{api::*, config::EngineConfig, counters::Counters, events::Observer, path::PathStats, rng::Rng, time::Time};
use core::net::IpAddr;

/// State of a queue pair (verbs names; the table of moves is EFA's for SRD).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "verbs states")]
pub enum QpState { Reset, Init, Rtr, Rts, Sqd, Sqe, Err }

/// How to create a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// SRD or UD.
    pub kind: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Completions of sends go here.
    pub send_cq: CqId,
    /// Completions of receives go here.
    pub recv_cq: CqId,
    /// Send requests outstanding at most.
    pub sq_depth: u32,
    /// Receives posted at most.
    pub rq_depth: u32,
    /// A write with immediate consumes no receive (EFA: unsolicited write receive).
    pub unsolicited_write_recv: bool,
}

/// What to change. `None` = leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpModify {
    /// Move to this state; refused when the table has no such move.
    pub state: Option<QpState>,
    /// Q_Key (needed Reset to Init).
    pub qkey: Option<u32>,
    /// 0 to 7, 7 = for ever (only Rtr to Rts).
    pub rnr_retry: Option<u8>,
}

/// What a queue pair is.
#[derive(Clone, Copy, Debug)]
pub struct QpAttr {
    /// Its state.
    pub state: QpState,
    /// Its Q_Key.
    pub qkey: u32,
    /// Its RNR retry count.
    pub rnr_retry: u8,
    /// How it was created.
    pub init: QpInit,
}

/// Why an object call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectError {
    /// The table is full (ENOMEM).
    NoRoom,
    /// No such object (EINVAL).
    Unknown,
    /// Something still uses it (EBUSY).
    Busy,
    /// The value or the move is not allowed (EINVAL).
    Invalid,
}

/// One engine: the protocol state of one device (or one simulated host).
pub struct Engine<O: Observer = ()> {
    observer: O,
    cfg: EngineConfig,
}

#[allow(unused_variables, missing_docs, reason = "signatures first")]
impl<O: Observer> Engine<O> {
    pub fn new(cfg: EngineConfig, rng: Rng, now: Time, observer: O) -> Result<Self, &'static str> { todo!() }
    pub fn config(&self) -> &EngineConfig { &self.cfg }
    pub fn observer(&mut self) -> &mut O { &mut self.observer }
    pub fn counters(&self) -> &Counters { todo!() }
    // objects
    pub fn pd_create(&mut self) -> Result<PdId, ObjectError> { todo!() }
    pub fn pd_destroy(&mut self, pd: PdId) -> Result<(), ObjectError> { todo!() }
    pub fn cq_create(&mut self, depth: u32) -> Result<CqId, ObjectError> { todo!() }
    pub fn cq_destroy(&mut self, cq: CqId) -> Result<(), ObjectError> { todo!() }
    /// Takes the next completion. Its slot stays promised until `cq_release`.
    pub fn cq_poll(&mut self, cq: CqId) -> Option<Completion> { todo!() }
    /// Gives `n` slots of polled completions back: room for new posts.
    pub fn cq_release(&mut self, cq: CqId, n: u32) { todo!() }
    pub fn ah_create(&mut self, now: Time, pd: PdId, ip: IpAddr) -> Result<AhId, ObjectError> { todo!() }
    /// Outstanding sends through it end with status 4 (LocalInvalidAh).
    pub fn ah_destroy(&mut self, now: Time, ah: AhId) -> Result<(), ObjectError> { todo!() }
    /// Registers `len` bytes at address `addr` (the address space peers use in `raddr`).
    pub fn mr_register(&mut self, pd: PdId, addr: u64, len: u64, access: Access) -> Result<MrKey, ObjectError> { todo!() }
    /// After this nothing is read from or placed into the region any more; reads being served fail at the requester.
    pub fn mr_deregister(&mut self, now: Time, key: MrKey) -> Result<(), ObjectError> { todo!() }
    pub fn qp_create(&mut self, now: Time, init: QpInit) -> Result<Qpn, ObjectError> { todo!() }
    pub fn qp_modify(&mut self, now: Time, qp: Qpn, m: QpModify) -> Result<(), ObjectError> { todo!() }
    pub fn qp_query(&self, qp: Qpn) -> Result<QpAttr, ObjectError> { todo!() }
    /// Outstanding sends are withdrawn without completion (`AsyncEvent::WrReleased` for each), receives are dropped,
    /// completions of this queue pair not yet polled are removed.
    pub fn qp_destroy(&mut self, now: Time, qp: Qpn) -> Result<(), ObjectError> { todo!() }
    // work
    pub fn post_send(&mut self, now: Time, qp: Qpn, wr: &SendWr) -> Result<WrHandle, PostError> { todo!() }
    pub fn post_recv(&mut self, qp: Qpn, wr: &RecvWr) -> Result<RecvHandle, PostError> { todo!() }
    /// Ends a send request early with `status` (its local memory went away).
    pub fn wr_abort(&mut self, now: Time, wr: WrHandle, status: Status) { todo!() }
    // packets
    pub fn handle(&mut self, now: Time, meta: &RxMeta, packet: &Packet<'_>) -> Rx { todo!() }
    /// The datapath has handed over all it had: time to decide about acknowledgments.
    pub fn rx_burst_end(&mut self, now: Time) { todo!() }
    /// Puts up to `max` packets into `sink`; returns how many.
    pub fn poll_transmit(&mut self, now: Time, max: usize, sink: &mut impl TxSink) -> usize { todo!() }
    /// When `handle_timeout` or `poll_transmit` next has something to do by itself (`Time::NEVER` = not before input).
    pub fn next_timeout(&self) -> Time { todo!() }
    pub fn handle_timeout(&mut self, now: Time) { todo!() }
    pub fn poll_event(&mut self) -> Option<AsyncEvent> { todo!() }
    /// Tells every open peer that this engine goes away (packets come out of `poll_transmit`).
    pub fn shutdown(&mut self, now: Time) { todo!() }
    /// State of each path to `ip`, for tools.
    pub fn path_stats(&self, ip: IpAddr) -> Vec<PathStats> { todo!() }
}
