//! What each device of a host shows to tools while it runs: counters, peers and their paths.
//!
//! Each device has a file of its own in `/dev/shm` ([`StatusFile`]), which only its user (and root)
//! can read. The device writes a [`Status`] into it a few times per second; a tool reads all files
//! ([`status_list`]). The file holds two copies: the device writes the older one, so that a
//! complete copy exists whenever it is stopped or killed. A copy carries a number and a checksum,
//! hence a reader needs no lock and notices a copy that changed while it was read. The file of a
//! process that was killed is recognised by the lock that the kernel took from it, and removed by
//! the next reader or the next device.
//!
//! Readers believe nothing in a file: it may hold any bytes, and a reader that is root reads the
//! files of other users.

mod counter;
mod fields;
mod file;
#[cfg(test)]
mod tests;

pub use counter::Counter;
pub use file::{StatusFile, StatusList, StatusRow, StatusScope, status_list};

use srd_core::path::PathStats;
use std::net::{IpAddr, Ipv6Addr};

/// Most remote addresses of a device that are shown; those with requests outstanding come first.
pub const STATUS_PEERS_MAX: usize = 64;
/// Most remote addresses of a device whose paths are shown one by one.
pub const STATUS_PATHED_MAX: usize = 8;
/// Most bytes of the name of a device or a program.
pub const STATUS_NAME_BYTES_MAX: usize = 63;

/// What a device does about sealing (see `docs/sealing.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SealMode {
    /// It has no key file: nothing is sealed.
    #[default]
    Never,
    /// It seals with those peers that can.
    Prefer,
    /// It talks to no peer that does not seal.
    Require,
}

impl SealMode {
    /// The name, as in `SRD_SEAL`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Prefer => "prefer",
            Self::Require => "require",
        }
    }
}

/// What keeps a device from sending more to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Limit {
    /// No request to the address is outstanding.
    Idle,
    /// The program: all that was posted is under way.
    Program,
    /// The paced rate, which congestion control decides.
    Rate,
    /// The congestion window: as many bytes are in flight as may be.
    Window,
    /// The receiver: as many bytes are in flight as it has room for.
    Credits,
    /// This host: the kernel takes no more packets, or packets wait to be read.
    Host,
}

impl Limit {
    /// All limits, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Program, Self::Rate, Self::Window, Self::Credits, Self::Host];

    /// The name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Program => "program",
            Self::Rate => "rate",
            Self::Window => "window",
            Self::Credits => "credits",
            Self::Host => "host",
        }
    }
}

/// State of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PathState {
    /// In use.
    #[default]
    Live,
    /// Avoided for a while.
    Penalised,
    /// Not used.
    Retired,
    /// Tested for its return to use.
    Probing,
    /// Not used, because an operator denied it.
    Denied,
}

impl PathState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Live, Self::Penalised, Self::Retired, Self::Probing, Self::Denied];

    /// The name in tables and metrics, as in [`PathStats::state`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Penalised => "penalised",
            Self::Retired => "retired",
            Self::Probing => "probing",
            Self::Denied => "denied",
        }
    }

    fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.name() == name).unwrap_or_default()
    }
}

/// What a device shows at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Name of the program, as in `/proc/PID/comm` when the device was opened.
    pub program: String,
    /// Rank of the process in its MPI job, if the launcher said so.
    pub rank: Option<u32>,
    /// Name of the device: that of the drop-in library, or of the network interface.
    pub name: String,
    /// Address of the device.
    pub local: IpAddr,
    /// UDP port of the device.
    pub port: u16,
    /// Engine slot: the high byte of the numbers of its queue pairs.
    pub slot: u8,
    /// Largest message in bytes.
    pub mtu: u16,
    /// Paths per remote address.
    pub paths: u16,
    /// What the device does about sealing.
    pub seal: SealMode,
    /// When the device was opened, ns of the host's monotonic clock.
    pub opened_ns: u64,
    /// When this was written, ns of the host's monotonic clock.
    pub written_ns: u64,
    /// Queue pairs that exist.
    pub qps: u32,
    /// Peer engines that the device has a context with: in MPI, other ranks.
    pub contexts: u32,
    /// Contexts in which every packet is sealed.
    pub contexts_sealed: u32,
    /// Remote addresses of the contexts. [`Status::peers`] may hold fewer.
    pub addresses: u32,
    /// Counters, by [`Counter`]; all of them count from the opening of the device.
    pub counters: [u64; Counter::COUNT],
    /// Remote addresses, those with requests outstanding first; at most [`STATUS_PEERS_MAX`].
    pub peers: Vec<Peer>,
}

impl Status {
    /// One counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Messages that were posted: sends, reads and writes.
    pub fn messages_sent(&self) -> u64 {
        use Counter::{RdmaReadWrs, RdmaWriteWrs, SendWrs};
        [SendWrs, RdmaReadWrs, RdmaWriteWrs].iter().map(|&c| self.counter(c)).sum()
    }

    /// Bytes of messages that left: of sends, of writes, and of reads that peers posted.
    pub fn bytes_sent(&self) -> u64 {
        use Counter::{RdmaReadRespBytes, RdmaWriteBytes, SendBytes};
        [SendBytes, RdmaWriteBytes, RdmaReadRespBytes].iter().map(|&c| self.counter(c)).sum()
    }

    /// Bytes of messages that arrived: of sends, of peers' writes, and of own reads.
    pub fn bytes_received(&self) -> u64 {
        use Counter::{RdmaReadBytes, RdmaWriteRecvBytes, RecvBytes};
        [RecvBytes, RdmaWriteRecvBytes, RdmaReadBytes].iter().map(|&c| self.counter(c)).sum()
    }
}

impl Default for Status {
    fn default() -> Self {
        Self {
            program: String::new(),
            rank: None,
            name: String::new(),
            local: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            port: 0,
            slot: 0,
            mtu: 0,
            paths: 0,
            seal: SealMode::Never,
            opened_ns: 0,
            written_ns: 0,
            qps: 0,
            contexts: 0,
            contexts_sealed: 0,
            addresses: 0,
            counters: [0; Counter::COUNT],
            peers: Vec::new(),
        }
    }
}

/// A remote address. All contexts with it share the values from `inflight_bytes` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The remote address.
    pub ip: IpAddr,
    /// Contexts with engines at the address.
    pub contexts: u32,
    /// Contexts in which every packet is sealed.
    pub contexts_sealed: u32,
    /// Contexts in which no path answers.
    pub contexts_stalled: u32,
    /// Send requests posted and not completed.
    pub outstanding: u32,
    /// Packets sent and neither acknowledged nor declared lost.
    pub packets_in_flight: u32,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Congestion window in bytes.
    pub inflight_bytes_max: u64,
    /// Paced rate, bytes per second.
    pub rate_bytes_per_sec: u64,
    /// Delivery rate in the last round trip that was reported, bytes per second; 0 = not known.
    pub delivered_bytes_per_sec: u64,
    /// Smoothed RTT in ns, at most 4 s; 0 = none measured.
    pub rtt_ns_smoothed: u32,
    /// Least recent RTT in ns, at most 4 s; 0 = none measured.
    pub rtt_ns_min: u32,
    /// Packets sent to the address.
    pub packets_sent: u64,
    /// Of these, packets declared lost.
    pub packets_lost: u64,
    /// Packets acknowledged with the mark CE ("congestion experienced").
    pub packets_ce: u64,
    /// Paths by state: [`PathState::ALL`].
    pub path_counts: [u32; PathState::ALL.len()],
    /// How often each limit was found when the status was written: [`Limit::ALL`].
    pub limits: [u32; 6],
    /// Paths, if they are shown one by one; see [`STATUS_PATHED_MAX`].
    pub paths: Vec<Path>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            ip: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            contexts: 0,
            contexts_sealed: 0,
            contexts_stalled: 0,
            outstanding: 0,
            packets_in_flight: 0,
            inflight_bytes: 0,
            inflight_bytes_max: 0,
            rate_bytes_per_sec: 0,
            delivered_bytes_per_sec: 0,
            rtt_ns_smoothed: 0,
            rtt_ns_min: 0,
            packets_sent: 0,
            packets_lost: 0,
            packets_ce: 0,
            path_counts: [0; PathState::ALL.len()],
            limits: [0; 6],
            paths: Vec::new(),
        }
    }
}

impl Peer {
    /// Takes over what the engine says about the paths to the address; `each`: one by one, too.
    pub fn paths_set(&mut self, stats: &[PathStats], each: bool) {
        for of in stats {
            self.packets_sent += of.packets_sent;
            self.packets_lost += of.packets_lost;
            self.packets_ce += of.packets_ce;
            self.path_counts[PathState::of(of.state) as usize] += 1;
        }
        if each {
            self.paths.extend(stats.iter().map(Path::of));
        }
    }
}

/// A path to a remote address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Number of the path.
    pub path: u8,
    /// UDP port that its packets leave from, by which switches choose their way; 0 = not known.
    pub port: u16,
    /// State.
    pub state: PathState,
    /// Smoothed RTT in ns, at most 4 s; 0 = none measured.
    pub rtt_ns_smoothed: u32,
    /// Least RTT in ns, at most 4 s; 0 = none measured.
    pub rtt_ns_min: u32,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Of these, packets declared lost.
    pub packets_lost: u64,
    /// Packets acknowledged with the mark CE.
    pub packets_ce: u64,
    /// Whether a packet that took it came back since `srd paths probe` last asked.
    pub echoed: bool,
}

impl Path {
    fn of(stats: &PathStats) -> Self {
        Self {
            path: stats.path,
            port: 0,
            state: PathState::of(stats.state),
            rtt_ns_smoothed: ns_of(stats.rtt_ns_smoothed),
            rtt_ns_min: ns_of(stats.rtt_ns_min),
            packets_sent: stats.packets_sent,
            packets_lost: stats.packets_lost,
            packets_ce: stats.packets_ce,
            echoed: stats.echoed,
        }
    }
}

/// A time in ns as 32 bits: at most 4.3 s.
pub fn ns_of(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}
