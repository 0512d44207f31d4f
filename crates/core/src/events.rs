//! The one seam for looking inside: an observer chosen at compile time. `()` observes nothing and
//! compiles to nothing.

use crate::{api::Endpoint, ids::Ctx, time::Time};
use core::net::IpAddr;

/// What happens inside an engine, as seen by tests, traces and the fault checker.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "field names say it; the variants are documented")]
pub enum Event {
    /// A reliable packet left (first time or again).
    Sent { ctx: Ctx, psn: u32, tx_num: u64, path: u8, bytes: u32, retransmit: bool },
    /// A PSN was acknowledged.
    Acked { ctx: Ctx, psn: u32 },
    /// A PSN was declared lost by a rule.
    Lost { ctx: Ctx, psn: u32, path: u8, rule: LossRule },
    /// A loss turned out to be none.
    Spurious { ctx: Ctx, psn: u32, path: u8 },
    /// A PSN arrived for the first time and was judged.
    Judged { ctx: Ctx, psn: u32, verdict: srd_wire::Verdict },
    /// An RTT sample without the receiver's delay.
    Rtt { ctx: Ctx, path: u8, rtt_ns: u64, ce: bool },
    /// The rate policy decided.
    Rate { bytes_per_sec: u64, inflight_max: u64, inflight: u64 },
    /// A context changed state.
    Context { ctx: Ctx, peer: Endpoint, from: &'static str, to: &'static str },
    /// A path to an address changed state.
    Path { ip: IpAddr, path: u8, from: &'static str, to: &'static str },
    /// All paths are silent: the peer has stalled.
    Stalled { ctx: Ctx },
    /// It is heard again.
    Resumed { ctx: Ctx },
    /// It was silent for too long: the context goes with all that was kept for it.
    Forgotten { ctx: Ctx, peer: Endpoint },
}

/// Which rule declared a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossRule {
    /// Packets that left later, on whatever path, have arrived.
    Overtaken,
    /// The retransmission timer fired.
    Timeout,
}

/// Receives events.
pub trait Observer {
    /// Something happened at `now`.
    fn event(&mut self, now: Time, event: Event);
}

impl Observer for () {
    #[inline(always)]
    fn event(&mut self, _: Time, _: Event) {}
}
