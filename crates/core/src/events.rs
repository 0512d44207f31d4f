//! Events inside an engine, for an observer chosen at compile time. The observer `()` ignores them
//! and costs nothing.

use crate::{
    api::Endpoint,
    ids::Ctx,
    psn::{Psn, TxNum},
    time::Time,
};
use core::net::IpAddr;

/// What happens inside an engine, as seen by tests, traces and the fault checker.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "field names say it; the variants are documented")]
pub enum Event {
    /// A reliable packet was sent, or retransmitted.
    Sent { ctx: Ctx, psn: Psn, tx_num: TxNum, path: u8, bytes: u32, retransmit: bool },
    /// A PSN was acknowledged.
    Acked { ctx: Ctx, psn: Psn },
    /// A packet was declared lost, by `rule`.
    Lost { ctx: Ctx, psn: Psn, path: u8, rule: LossRule },
    /// A packet that had been declared lost had arrived.
    Spurious { ctx: Ctx, psn: Psn, path: u8 },
    /// A PSN arrived for the first time and got its verdict.
    Judged { ctx: Ctx, psn: Psn, verdict: srd_wire::Verdict },
    /// An RTT sample, without the receiver's delay. `ce`: the packet was ECN-marked.
    Rtt { ctx: Ctx, path: u8, rtt_ns: u64, ce: bool },
    /// The rate policy set the rate and the inflight cap.
    Rate { bytes_per_sec: u64, inflight_max: u64, inflight: u64 },
    /// A context changed state.
    Context { ctx: Ctx, peer: Endpoint, from: &'static str, to: &'static str },
    /// A path to an address changed state.
    Path { ip: IpAddr, path: u8, from: &'static str, to: &'static str },
    /// Nothing is heard from the peer on any path: it counts as stalled.
    Stalled { ctx: Ctx },
    /// A stalled peer was heard again.
    Resumed { ctx: Ctx },
    /// The peer was silent for too long: the context was dropped with all its state.
    Forgotten { ctx: Ctx, peer: Endpoint },
}

/// Which rule declared a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossRule {
    /// Packets that were sent later, on any path, have arrived.
    Overtaken,
    /// The retransmission timer fired.
    Timeout,
}

/// Receives events.
pub trait Observer {
    /// Takes one event, which happened at `now`.
    fn event(&mut self, now: Time, event: Event);
}

impl Observer for () {
    #[inline(always)]
    fn event(&mut self, _: Time, _: Event) {}
}
