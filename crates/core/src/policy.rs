//! Policies of one's own: how fast to send and on which path, as objects that an engine calls.
//!
//! They are for experiments: `EngineConfig::own` takes them, the lab offers them to specs
//! (docs/lab.md). The policies of the product are enums ([`crate::config::RatePolicy`],
//! [`crate::config::PathPolicy`]), whose code the compiler knows where it is called.
//!
//! An engine makes one object for each remote address that it sends to, and drops it when the
//! address has been idle for some time. All times are those of the engine; nothing is called from
//! several threads.

use crate::rng::Rng;
use crate::time::Time;
use core::fmt::Debug;
use std::sync::Arc;

/// What is known of the way to a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Now.
    pub now: Time,
    /// Rate of the own port in bytes per second; no policy sends faster.
    pub line_bytes_per_sec: u64,
    /// Least RTT in ns: measured, or the one of the configuration before the first sample.
    pub rtt_ns_min: u64,
    /// Whether `rtt_ns_min` was measured.
    pub rtt_known: bool,
    /// Smoothed RTT of all paths in ns, at least `rtt_ns_min`.
    pub rtt_ns_smoothed: u64,
    /// Payload of a full packet in bytes.
    pub mtu: u64,
    /// Bytes that may leave back to back.
    pub burst_bytes: u64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Whether the receiver grants credits for its last hop, which bound what is sent as well.
    pub credited: bool,
}

/// The round trip of one packet, of any type; not every packet has one. Time that packets waited in
/// hosts is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The packet's path, below the number of paths.
    pub path: u8,
    /// RTT in ns.
    pub rtt_ns: u64,
    /// How much longer than the least RTT it was, in ns.
    pub queue_ns: u64,
    /// Whether a switch marked the packet (ECN).
    pub marked: bool,
}

/// What an acknowledgment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Bytes on the wire that it acknowledges for the first time; 0: it only answers probes.
    pub bytes: u64,
    /// Whether everything that was posted has been sent: the rate was not what limits.
    pub app_limited: bool,
}

/// A packet that was declared lost; it will be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The packet's path.
    pub path: u8,
    /// Its bytes on the wire.
    pub bytes: u64,
    /// Whether a timeout declared it, and not an acknowledgment of later packets.
    pub timeout: bool,
}

/// Sum over a round trip: from one packet to the acknowledgment of a packet that was sent after
/// the acknowledgment of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundView {
    /// Median over the paths of the least queueing delay of each, in ns; `None`: no sample.
    pub queue_ns: Option<u64>,
    /// Bytes per second acknowledged.
    pub delivered_bytes_per_sec: u64,
    /// Bytes per second sent in the round before, which are acknowledged in this one.
    pub sent_bytes_per_sec: u64,
    /// Lost bytes per thousand of lost and delivered ones.
    pub lost_permille: u32,
    /// Whether the sender had nothing to send for a part of the round.
    pub app_limited: bool,
}

/// How fast to send to one address. Rate and cap are read after each acknowledgment and each loss.
pub trait RateLaw: Debug + Send {
    /// Rate at which packets leave, in bytes on the wire per second. The line rate bounds it.
    fn rate_bytes_per_sec(&self) -> u64;
    /// Most bytes in flight; at least a packet is.
    fn inflight_bytes_max(&self, link: &LinkView) -> u64;
    /// A packet's round trip was measured. An acknowledgment may bring several; [`Self::on_acked`]
    /// follows.
    fn on_echo(&mut self, _link: &LinkView, _echo: &Echo) {}
    /// An acknowledgment was handled.
    fn on_acked(&mut self, _link: &LinkView, _acked: &Acked) {}
    /// A packet was declared lost.
    fn on_lost(&mut self, _link: &LinkView, _lost: &Lost) {}
    /// A round trip is over.
    fn on_round(&mut self, _link: &LinkView, _round: &RoundView) {}
    /// Sending begins again after a pause of many round trips.
    fn on_restart(&mut self, _link: &LinkView) {}
}

/// The paths to an address. Numbers beyond the table are masked.
pub trait PathTable {
    /// Number of paths, a power of two up to 256.
    fn paths(&self) -> usize;
    /// Whether a path is in use: not given up because of losses.
    fn is_live(&self, path: u8) -> bool;
    /// Smoothed RTT in ns; 0 before the first sample.
    fn rtt_ns_smoothed(&self, path: u8) -> u64;
    /// Packets sent on it.
    fn packets_sent(&self, path: u8) -> u64;
    /// Packets lost on it.
    fn packets_lost(&self, path: u8) -> u64;
    /// Marked packets (ECN) among those whose round trip was measured.
    fn packets_marked(&self, path: u8) -> u64;
}

/// Which path the next packet or burst to one address takes.
pub trait PathLaw: Debug + Send {
    /// Chooses a path of the table. `avoid`: the path that just lost this packet. A path that is
    /// out of use is replaced by the next one in use.
    fn choose(&mut self, now: Time, paths: &dyn PathTable, avoid: Option<u8>, rng: &mut Rng) -> u8;
    /// A packet's round trip was measured.
    fn on_echo(&mut self, _now: Time, _echo: &Echo) {}
    /// A packet was declared lost.
    fn on_lost(&mut self, _now: Time, _lost: &Lost) {}
}

/// Makes the object of an address.
pub trait Make<T: ?Sized>: Debug + Send + Sync {
    /// A new object. `link`: what is known of the address.
    fn make(&self, link: &LinkView) -> Box<T>;
}

/// Policies of one's own, in place of those that the configuration names.
#[derive(Clone, Debug, Default)]
pub struct OwnPolicies {
    /// In place of `rate.policy`.
    pub rate: Option<Arc<dyn Make<dyn RateLaw>>>,
    /// In place of `path.policy`.
    pub path: Option<Arc<dyn Make<dyn PathLaw>>>,
}
