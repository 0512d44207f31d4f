//! Every parameter of the simulated TCP; the default is the kernel's value or the paper's.

use srd_fabric::rng::mix64;
use srd_fabric::{HostId, MS, Ps, SEC, US};
use std::fmt;

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681: one segment per round trip, half on loss.
    Reno,
    /// RFC 9438, with the kernel's faster growth before the first loss.
    Cubic,
    /// RFC 8257; needs switches that mark.
    Dctcp,
    /// RFC 6356: the subflows of Multipath TCP together grow like one TCP on their best path.
    Lia,
    /// The same, moving windows to the better paths (draft-khalili-mptcp-congestion-control).
    Olia,
    /// BBR version 1, as in the kernel: paced at the path's bandwidth, about two bandwidth-delay
    /// products in flight; losses are repaired, but are no signal.
    Bbr,
}

/// When slow start ends without a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStart {
    /// Never (RFC 5681).
    Standard,
    /// The kernel's HyStart for CUBIC: an ack train longer than half the minimum RTT, or a delay
    /// increase.
    HyStart,
    /// RFC 9406: a delay increase, confirmed over some rounds of slower growth.
    HyStartPlusPlus,
}

/// Which subflow of Multipath TCP carries the next data, of those whose windows have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// That with the least round trip.
    LowestRtt,
    /// The next in turn.
    RoundRobin,
}

/// Most subflows of a connection.
const SUBFLOWS_MAX: u32 = 64;
/// Bytes of Multipath TCP's option in a data segment (RFC 8684: 64-bit data sequence number, 32-bit
/// acknowledgement, no checksum) and in an ack.
const DSS_BYTES: u32 = 24;
const DATA_ACK_BYTES: u32 = 8;

/// How losses are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// By time (RACK, RFC 8985), as the kernel does.
    Rack,
    /// By three later segments acknowledged selectively (RFC 6675).
    Sack,
    /// By three duplicate acks, without SACK (RFC 6582).
    NewReno,
}

/// Parameters of a host's TCP. [`TcpConfig::parameters`] prints them all.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// Congestion control. Default CUBIC, as in the kernel.
    pub algorithm: Algorithm,
    /// What ends slow start. Default [`SlowStart::HyStart`], as in the kernel.
    pub slow_start: SlowStart,
    /// Subflows of a connection, each with ports and thus a path of its own: Multipath TCP (RFC
    /// 8684). Default 1: plain TCP.
    pub subflows: u32,
    /// Choice among subflows. Default [`Scheduler::LowestRtt`], as in the kernel.
    pub scheduler: Scheduler,
    /// Loss detection. Default RACK.
    pub recovery: Recovery,
    /// Tail loss probes (RFC 8985 §7). Default on; needs [`Recovery::Rack`] or [`Recovery::Sack`].
    pub tlp: bool,
    /// Largest payload of a segment, bytes. Default 8948: a 9000-byte IP packet less 52.
    pub mss: u32,
    /// IP header and TCP header with the timestamp option, bytes per packet. Default 52.
    pub header_bytes: u32,
    /// Framing below IP, bytes per packet. Default 18: Ethernet header and frame check sequence.
    pub link_bytes: u32,
    /// First congestion window, segments. Default 10 (RFC 6928).
    pub initial_window: u32,
    /// Minimum retransmission timeout. Default 50 ms, the paper's; the kernel's is 200 ms. As in
    /// the kernel it bounds the variance term: the timeout is never below SRTT + this minimum.
    pub rto_min_ps: Ps,
    /// Retransmission timeout before the first RTT sample (RFC 6298). Default 1 s.
    pub rto_initial_ps: Ps,
    /// Maximum retransmission timeout. Default 120 s.
    pub rto_max_ps: Ps,
    /// Consecutive timeouts after which a connection is aborted. Default 15.
    pub retries_max: u32,
    /// Timers for retransmission and delayed acks fire at multiples of this. Default 1 ms (HZ =
    /// 1000), with a random phase per host; 0 = exact timers.
    pub tick_ps: Ps,
    /// Slack that the kernel adds to the probe and reordering timers. Default 2 ms.
    pub timer_slack_ps: Ps,
    /// Longest delay of an ack. Default 40 ms.
    pub delayed_ack_ps: Ps,
    /// Full segments per ack after the quick acks. Default 2.
    pub ack_every: u32,
    /// Acks sent without delay at the start and after a pause longer than `rto_min_ps`. Default 16.
    pub quick_acks: u32,
    /// Receive window, bytes, constant (no auto-tuning). Default 6 MiB, the kernel's maximum.
    pub window_bytes: u32,
    /// Largest burst handed to the NIC at once (TSO), bytes; 0 = one segment at a time. With bursts
    /// the sender waits until a third of its window is free, as the kernel does. Default 0.
    pub tso_bytes: u32,
    /// Most bytes of one connection in the NIC queue (TCP small queues; never below two bursts).
    /// Default 1 MiB.
    pub small_queue_bytes_max: u64,
    /// The same limit as time at the connection's rate; 0 = always two bursts. Default 1 ms.
    pub small_queue_ps: Ps,
    /// Pace segments over the round trip: at twice the window per round trip in slow start, at 1.2
    /// times later. Default off, as CUBIC without the fq scheduler.
    pub pacing: bool,
    /// Negotiate ECN (RFC 3168). DCTCP always does. Default off.
    pub ecn: bool,
    /// New connections do a handshake. If off, they are open at once and have no RTT sample.
    /// Default on.
    pub handshake: bool,
    /// Shrink the window after an idle period of an RTO (RFC 2861). Default on, as in the kernel.
    pub restart_after_idle: bool,
    /// A timeout changes the path: IPv6 flow labels with ECMP that hashes them ("protective
    /// reroute"). Default off.
    pub rehash_on_rto: bool,
    /// Count the bytes received per interval of this length. Default none.
    pub sample_ps: Option<Ps>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Cubic,
            slow_start: SlowStart::HyStart,
            subflows: 1,
            scheduler: Scheduler::LowestRtt,
            recovery: Recovery::Rack,
            tlp: true,
            mss: 8948,
            header_bytes: 52,
            link_bytes: 18,
            initial_window: 10,
            rto_min_ps: 50 * MS,
            rto_initial_ps: SEC,
            rto_max_ps: 120 * SEC,
            retries_max: 15,
            tick_ps: MS,
            timer_slack_ps: 2 * MS,
            delayed_ack_ps: 40 * MS,
            ack_every: 2,
            quick_acks: 16,
            window_bytes: 6 << 20,
            tso_bytes: 0,
            small_queue_bytes_max: 1 << 20,
            small_queue_ps: MS,
            pacing: false,
            ecn: false,
            handshake: true,
            restart_after_idle: true,
            rehash_on_rto: false,
            sample_ps: None,
        }
    }
}

/// An invalid parameter. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for ConfigError {}

impl TcpConfig {
    /// The kernel's timer defaults: RTO minimum 200 ms, HZ = 250.
    pub fn linux() -> Self {
        Self { rto_min_ps: 200 * MS, tick_ps: 4 * MS, ..Self::default() }
    }

    /// Replaces the segment size.
    pub const fn mss(mut self, bytes: u32) -> Self {
        self.mss = bytes;
        self
    }

    /// Replaces the algorithm; all but CUBIC get standard slow start, since the kernel has HyStart
    /// for CUBIC only.
    pub const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        if !matches!(algorithm, Algorithm::Cubic) {
            self.slow_start = SlowStart::Standard;
        }
        self
    }

    /// Replaces the number of subflows.
    pub const fn subflows(mut self, subflows: u32) -> Self {
        self.subflows = subflows;
        self
    }

    /// Replaces the minimum RTO.
    pub const fn rto_min_ps(mut self, ps: Ps) -> Self {
        self.rto_min_ps = ps;
        self
    }

    /// Replaces the loss detection; [`Recovery::NewReno`] turns tail loss probes off.
    pub const fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        if matches!(recovery, Recovery::NewReno) {
            self.tlp = false;
        }
        self
    }

    /// Sets whether each timeout changes the path.
    pub const fn rehash_on_rto(mut self, on: bool) -> Self {
        self.rehash_on_rto = on;
        self
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Names the first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError(text));
        let wire = u64::from(self.mss) + u64::from(self.header_bytes) + u64::from(self.link_bytes);
        if self.mss == 0 || wire > u64::from(srd_fabric::PACKET_BYTES_MAX) {
            return fail(format!("mss {}: use 1 up to a packet of 1 MiB", self.mss));
        }
        if self.header_bytes + self.link_bytes == 0 {
            return fail("header_bytes and link_bytes are 0: an ack would be empty".into());
        }
        if self.initial_window == 0 || self.ack_every == 0 {
            return fail("initial_window and ack_every must be at least 1".into());
        }
        if self.rto_min_ps == 0 || self.rto_min_ps > self.rto_max_ps || self.rto_initial_ps == 0 {
            return fail("the timeout needs 0 < rto_min <= rto_max and rto_initial > 0".into());
        }
        if self.rto_max_ps > 1_000_000 * SEC || self.tick_ps > SEC || self.timer_slack_ps > SEC {
            return fail("use rto_max up to 10^6 s, tick and timer_slack up to 1 s".into());
        }
        if u64::from(self.window_bytes) < 2 * u64::from(self.mss) || self.window_bytes >= 1 << 30 {
            return fail(format!("window_bytes {}: use 2 MSS up to 1 GiB", self.window_bytes));
        }
        if !(1..=SUBFLOWS_MAX).contains(&self.subflows) {
            return fail(format!("subflows = {}: give 1 to {SUBFLOWS_MAX}", self.subflows));
        }
        if self.subflows > 1 && self.recovery == Recovery::NewReno {
            return fail("subflows need SACK: use another recovery".into());
        }
        if self.subflows == 1 && matches!(self.algorithm, Algorithm::Lia | Algorithm::Olia) {
            return fail("LIA and OLIA couple subflows: give subflows = 2 or more".into());
        }
        if self.algorithm == Algorithm::Bbr && self.recovery == Recovery::NewReno {
            return fail("BBR measures deliveries by SACK: use another recovery".into());
        }
        if self.algorithm == Algorithm::Bbr && self.slow_start != SlowStart::Standard {
            return fail("BBR has a start of its own: leave slow_start out".into());
        }
        if self.tlp && self.recovery == Recovery::NewReno {
            return fail("tail loss probes need SACK: turn tlp off with NewReno".into());
        }
        if self.sample_ps.is_some_and(|ps| ps < US) {
            return fail("sample_ps below 1 us would need too much memory: use more".into());
        }
        Ok(())
    }

    /// Whether data packets are ECN-capable (ECT).
    pub(crate) const fn ect(&self) -> bool {
        self.ecn || matches!(self.algorithm, Algorithm::Dctcp)
    }

    /// Bytes of a data segment beyond its payload.
    pub const fn overhead_bytes(&self) -> u32 {
        self.header_bytes + self.link_bytes + if self.subflows > 1 { DSS_BYTES } else { 0 }
    }

    /// Bytes of an ack without SACK blocks.
    pub(crate) const fn ack_bytes(&self) -> u32 {
        self.header_bytes + self.link_bytes + if self.subflows > 1 { DATA_ACK_BYTES } else { 0 }
    }

    /// Most segments handed to the NIC at once.
    pub(crate) const fn burst_segments(&self) -> u32 {
        let n = self.tso_bytes / self.mss;
        if n == 0 { 1 } else { n }
    }

    /// Rounds a time up to the next tick of a host; each host has its own phase.
    pub(crate) const fn tick(&self, at: Ps, host: HostId) -> Ps {
        if self.tick_ps == 0 {
            return at;
        }
        let phase = mix64(host.0 as u64 + 1) % self.tick_ps;
        let ticks = at.saturating_sub(phase).div_ceil(self.tick_ps);
        ticks.saturating_mul(self.tick_ps).saturating_add(phase)
    }

    /// Every parameter with its value and unit, for reports.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let time = |ps: Ps| match ps {
            0 => "0".to_owned(),
            _ if ps.is_multiple_of(MS) => format!("{} ms", ps / MS),
            _ => format!("{} us", ps as f64 / US as f64),
        };
        let flag = |on: bool| if on { "on" } else { "off" }.to_owned();
        let bytes = |n: u64| format!("{n} B");
        vec![
            ("algorithm", format!("{:?}", self.algorithm)),
            ("slow_start", format!("{:?}", self.slow_start)),
            ("subflows", self.subflows.to_string()),
            ("scheduler", format!("{:?}", self.scheduler)),
            ("recovery", format!("{:?}", self.recovery)),
            ("tlp", flag(self.tlp)),
            ("mss", bytes(self.mss.into())),
            ("header_bytes", bytes(self.header_bytes.into())),
            ("link_bytes", bytes(self.link_bytes.into())),
            ("initial_window", format!("{} segments", self.initial_window)),
            ("rto_min", time(self.rto_min_ps)),
            ("rto_initial", time(self.rto_initial_ps)),
            ("rto_max", time(self.rto_max_ps)),
            ("retries_max", self.retries_max.to_string()),
            ("tick", time(self.tick_ps)),
            ("timer_slack", time(self.timer_slack_ps)),
            ("delayed_ack", time(self.delayed_ack_ps)),
            ("ack_every", format!("{} segments", self.ack_every)),
            ("quick_acks", self.quick_acks.to_string()),
            ("window", bytes(self.window_bytes.into())),
            ("tso", if self.tso_bytes == 0 { flag(false) } else { bytes(self.tso_bytes.into()) }),
            ("small_queue_max", bytes(self.small_queue_bytes_max)),
            ("small_queue_time", time(self.small_queue_ps)),
            ("pacing", flag(self.pacing || self.algorithm == Algorithm::Bbr)),
            ("ecn", flag(self.ect())),
            ("handshake", flag(self.handshake)),
            ("restart_after_idle", flag(self.restart_after_idle)),
            ("rehash_on_rto", flag(self.rehash_on_rto)),
            ("sample", self.sample_ps.map_or_else(|| flag(false), time)),
        ]
    }
}
