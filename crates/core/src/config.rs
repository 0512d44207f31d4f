//! Configuration of an engine. Every algorithm is a named policy chosen here.

use crate::{guards::Guards, limits, time::Span};
use core::net::IpAddr;

/// First UDP port of the 256 that engines of one host share; peers must agree on it.
pub const PORT_BASE_DEFAULT: u16 = 18_700;

/// How a path is chosen for each packet or burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum PathPolicy {
    /// Recycle paths that came back clean, else scan with penalties (RTT, ECN, loss).
    #[default]
    Srd,
    /// Round robin over all paths in a scrambled order, whatever happens to them.
    Oblivious,
    /// One path per remote engine, as a flow under ECMP has.
    Ecmp,
    /// The lower RTT of two paths drawn at random.
    RttP2c,
}

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum RatePolicy {
    /// Rate and inflight from delivery rate and the median path's delay.
    #[default]
    Srd,
    /// Constant rate and inflight cap (`rate_fixed_bytes_per_sec`, `inflight_fixed_bytes`).
    Fixed,
}

/// What becomes of the word that a receiving host falls behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum HostPolicy {
    /// Nothing: neither told nor obeyed.
    Off,
    /// Whoever is told stops until it is told that the host has caught up.
    StopGo,
    /// The receiver measures how fast its host drains, and tells each sender its part of that.
    #[default]
    Budget,
}

/// Which packets carry a checksum beyond UDP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Integrity {
    /// None, and none is asked for. For networks that deliver no damage because they are memory:
    /// simulators. Such an engine talks only to its like.
    Off,
    /// Those that begin and end contexts ([`crate::wire::PacketType::Open`], `OpenAck`,
    /// `Challenge`, `Reset`); the others carry none, to whichever peer.
    Handshakes,
    /// All, to peers that want it, too.
    #[default]
    On,
}

/// Paths and their health.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Which policy.
    pub policy: PathPolicy,
    /// Paths per remote address, a power of two up to 256.
    pub paths: u16,
    /// Paths that stay in use whatever their health.
    pub live_min: u16,
    /// First and last distance between probes of a retired path.
    pub probe_first: Span,
    /// See `probe_first`.
    pub probe_max: Span,
}

/// Rate, inflight, credits.
#[derive(Clone, Copy, Debug)]
pub struct RateConfig {
    /// Which policy.
    pub policy: RatePolicy,
    /// Line rate of the local port; the rate never exceeds it.
    pub line_bytes_per_sec: u64,
    /// RTT assumed before the first sample.
    pub rtt_initial: Span,
    /// Smallest queueing-delay target, where the noise of the host (see [`Self::noise_max`]) does
    /// not ask for more.
    pub target_min: Span,
    /// What the measured noise of the host counts for at most: how long packets take from the
    /// time given to the engine to the card, and how late timers are. It is at least the time of
    /// eight full packets on the wire. The least target of queueing delay (four times the noise),
    /// the slack of reordering between paths and the wait for a lone packet (8), the wait for a
    /// tail (20) and the retransmission timeout (80) follow from it. Zero: these have the floors of
    /// this configuration alone.
    pub noise_max: Span,
    /// Bytes that may leave back to back at more than the paced rate.
    pub burst_bytes: u32,
    /// For [`RatePolicy::Fixed`].
    pub rate_fixed_bytes_per_sec: u64,
    /// For [`RatePolicy::Fixed`].
    pub inflight_fixed_bytes: u64,
    /// Grant and obey receiver credits when the peer does, too.
    pub credits: bool,
    /// What is told of a host that falls behind, and how senders react. Both ends need a policy
    /// other than [`HostPolicy::Off`].
    pub host_policy: HostPolicy,
}

/// Timers of loss detection. All are floors or factors; RTTs are measured.
#[derive(Clone, Copy, Debug)]
pub struct LossConfig {
    /// Floor of the cross-path reordering slack (with RTT/2).
    pub reorder_min: Span,
    /// Floor of a path's retransmission timeout: the datapath's measured noise.
    pub rto_min: Span,
    /// Ceiling of backed-off timeouts and stall probes.
    pub rto_max: Span,
    /// Floor of the tail-loss probe timer (with 1.5 SRTT).
    pub tlp_min: Span,
    /// The same while next to nothing is in flight, on a path whose times are known. At most one
    /// packet in sixteen is sent again by it.
    pub hedge_min: Span,
    /// An open context whose peer is silent this long with work outstanding: status 13. Without
    /// work outstanding, the peer is forgotten with all that is kept for it.
    pub unresponsive_after: Span,
    /// A context that never opened for this long with work outstanding: status 15.
    pub unreachable_after: Span,
    /// First distance between Opens; doubles.
    pub open_retry: Span,
    /// A read that the peer refuses as busy for this long: status 10.
    pub busy_after: Span,
}

/// When to acknowledge.
#[derive(Clone, Copy, Debug)]
pub struct AckConfig {
    /// Packets received before an acknowledgment is due without request.
    pub every: u16,
    /// Longest delay of an acknowledgment that nobody asked for.
    pub delay_max: Span,
    /// Delay of a requested acknowledgment, in which an answer may still carry it.
    pub delay_requested: Span,
}

/// RNR back-off.
#[derive(Clone, Copy, Debug)]
pub struct RnrConfig {
    /// First back-off (randomised by half); doubles.
    pub delay_first: Span,
    /// Longest back-off.
    pub delay_max: Span,
}

/// Everything an engine needs to know.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Address of this host as peers see it.
    pub ip: IpAddr,
    /// This engine's slot: it receives at `port_base + slot`.
    pub slot: u8,
    /// See [`PORT_BASE_DEFAULT`].
    pub port_base: u16,
    /// Largest payload of one packet (constant for the device).
    pub mtu: u16,
    /// Bytes of UDP payload to which an Open is padded (proves the path MTU); 0 = none.
    pub open_padded_len: u16,
    /// Look for the size of packets that the way to each peer carries (RFC 8899) when large ones
    /// are lost, and return a path to use only when it carries packets of full size.
    pub mtu_search: bool,
    /// Receive window in PSNs, a power of two; also the most PSNs under way to one peer, whatever
    /// window that peer offers.
    pub window: u16,
    /// Most packets of one path sent in a row to one peer (GSO); 1 = spray every packet.
    pub burst_packets: u16,
    /// Most contexts; beyond three quarters, strangers must answer a cookie first.
    pub contexts_max: u32,
    /// Contexts that peers opened and have not confirmed yet, beyond which whoever opens one must
    /// answer a cookie first; who comes from an IPv4 /24 or IPv6 /64 that has a quarter of them,
    /// before. An honest peer confirms within a round trip, a forged address never does: its
    /// context stays for `loss.unreachable_after`.
    pub half_opens_max: u32,
    /// Contexts that peers of one IPv4 /24 or IPv6 /64 may have opened; more are refused with the
    /// reason "no room". A quarter of the default table. Raise it where more than 16,384 peers of
    /// one such network open contexts to one engine.
    pub inbound_per_prefix_max: u32,
    /// Send requests outstanding, at most [`limits::WRS_MAX`].
    pub wrs_max: u32,
    /// Reads served at once, per context and per engine.
    pub reads_per_context_max: u16,
    /// See `reads_per_context_max`.
    pub reads_max: u32,
    /// Multi-segment writes with immediate tracked at once per context.
    pub write_imms_per_context_max: u16,
    /// Bytes of receive buffering (socket buffer) shared by all senders; `u32::MAX` = not a limit.
    pub rx_budget_bytes: u32,
    /// A context idle this long gives its window state back to the pool.
    pub idle_after: Span,
    /// A QPN (and an AH number) is not used again for this long.
    pub reuse_delay: Span,
    /// Which packets carry a checksum.
    pub integrity: Integrity,
    /// Whether RDMA reads are served.
    pub rdma_read: bool,
    /// Whether RDMA writes are served.
    pub rdma_write: bool,
    /// RDMA needs an address handle for the requester at the responder (EFA status 14).
    pub rdma_needs_ah: bool,
    /// Index of the first queue pair, the low byte of its number; later ones follow. `None`: random
    /// in each life of an engine, so that a request for a queue pair of a process that has gone
    /// rarely finds one of the process that has its place. Where runs are replayed
    /// ([`crate::Rng`]), `None` is 0.
    pub qpn_start: Option<u8>,
    /// First PSN of each context; `None` = random. Set by tests near the wrap.
    pub psn_start: Option<u32>,
    /// First transmission number of each context; `None` = random 31 bits.
    pub tx_num_start: Option<u64>,
    /// Paths.
    pub path: PathConfig,
    /// Rate.
    pub rate: RateConfig,
    /// Loss.
    pub loss: LossConfig,
    /// Acknowledgments.
    pub ack: AckConfig,
    /// RNR.
    pub rnr: RnrConfig,
    /// Other engines of this host send to the same addresses, and the driver tells them and this
    /// one of each other ([`crate::Engine::share_next`]).
    pub host_shared: bool,
    /// Special cases of paths, loss and rate that are on: all, but for measurements.
    pub guards: Guards,
}

impl EngineConfig {
    /// Defaults for real sockets on a host at `ip`.
    pub fn sockets(ip: IpAddr, slot: u8, mtu: u16) -> Self {
        Self {
            ip,
            slot,
            port_base: PORT_BASE_DEFAULT,
            mtu,
            open_padded_len: mtu + srd_wire::OVERHEAD_BYTES as u16,
            mtu_search: true,
            window: 4096,
            burst_packets: 8,
            contexts_max: 65_536,
            half_opens_max: 1024,
            inbound_per_prefix_max: 16_384,
            wrs_max: 16_384,
            reads_per_context_max: 64,
            reads_max: 4096,
            write_imms_per_context_max: 64,
            rx_budget_bytes: u32::MAX,
            idle_after: Span::from_ms(500),
            reuse_delay: Span::from_secs(1),
            integrity: Integrity::On,
            rdma_read: true,
            rdma_write: true,
            rdma_needs_ah: true,
            qpn_start: None,
            psn_start: None,
            tx_num_start: None,
            path: PathConfig {
                policy: PathPolicy::Srd,
                paths: 64,
                live_min: 4,
                probe_first: Span::from_ms(1),
                probe_max: Span::from_ms(100),
            },
            rate: RateConfig {
                policy: RatePolicy::Srd,
                line_bytes_per_sec: 12_500_000_000,
                rtt_initial: Span::from_us(100),
                target_min: Span::from_us(4),
                noise_max: Span::from_us(25),
                burst_bytes: 65_536,
                rate_fixed_bytes_per_sec: 1_250_000_000,
                inflight_fixed_bytes: 1 << 20,
                credits: false,
                host_policy: HostPolicy::Budget,
            },
            loss: LossConfig {
                reorder_min: Span::from_us(20),
                rto_min: Span::from_us(100),
                rto_max: Span::from_ms(100),
                tlp_min: Span::from_us(30),
                hedge_min: Span::from_us(20),
                unresponsive_after: Span::from_secs(5),
                unreachable_after: Span::from_secs(5),
                open_retry: Span::from_ms(5),
                busy_after: Span::from_secs(30),
            },
            ack: AckConfig {
                every: 8,
                delay_max: Span::from_us(50),
                delay_requested: Span::from_us(5),
            },
            rnr: RnrConfig { delay_first: Span::from_us(100), delay_max: Span::from_ms(20) },
            host_shared: false,
            guards: Guards::ALL,
        }
    }

    /// Tells the line rate of the local port, and what follows from it: the least RTT may be that
    /// of a probe, which passes wires faster than a full packet. Eight wires there and back at
    /// this rate are no queue.
    pub fn line_set(&mut self, bytes_per_sec: u64) {
        let wire_ns = u64::from(self.mtu) * 1_000_000_000 / bytes_per_sec.max(1);
        self.rate.line_bytes_per_sec = bytes_per_sec;
        self.rate.target_min = self.rate.target_min.max(Span(8 * wire_ns));
    }

    /// Defaults for the simulator: `line_bytes_per_sec` links, which carry packets of one size, and
    /// a base RTT of about `rtt`. No
    /// checksum: simulated packets hold no bytes to be damaged, and SRD's cards check what they
    /// receive within the frame of the link, which a simulated frame counts already.
    pub fn simulated(ip: IpAddr, slot: u8, mtu: u16, line_bytes_per_sec: u64, rtt: Span) -> Self {
        let mut c = Self::sockets(ip, slot, mtu);
        c.burst_packets = 1;
        c.integrity = Integrity::Off;
        c.mtu_search = false;
        c.rate.line_bytes_per_sec = line_bytes_per_sec;
        c.rate.rtt_initial = rtt;
        c.rate.target_min = Span::from_us(4);
        c.rate.noise_max = Span::ZERO;
        c.rate.burst_bytes = 2 * u32::from(mtu);
        c.loss.reorder_min = Span::from_us(20);
        c.loss.rto_min = rtt.scale(3, 1);
        c.loss.tlp_min = rtt;
        c.loss.hedge_min = rtt;
        c.loss.open_retry = rtt.scale(4, 1);
        c.ack.every = 4;
        c.ack.delay_max = rtt.scale(1, 8);
        c.ack.delay_requested = Span::ZERO;
        c
    }

    /// Defaults for a whole fabric whose links have one known rate: those of the simulator, 128
    /// paths (64 load a fat tree of 16 ways unevenly: a full permutation ends some 5 us later) and
    /// receiver credits.
    pub fn datacenter(ip: IpAddr, slot: u8, mtu: u16, line_bytes_per_sec: u64, rtt: Span) -> Self {
        let mut c = Self::simulated(ip, slot, mtu, line_bytes_per_sec, rtt);
        c.path.paths = 128;
        c.rate.credits = true;
        c
    }

    /// Whether packets keep to multiples of 128 bytes.
    pub(crate) fn mtu_aligned(&self) -> bool {
        self.mtu.is_multiple_of(128)
    }

    /// Bytes of the common header, with a checksum where packets may carry one.
    pub(crate) fn head_bytes_max(&self) -> usize {
        let checked = self.integrity == Integrity::On;
        srd_wire::HEADER_BYTES + if checked { srd_wire::CHECKSUM_BYTES } else { 0 }
    }

    /// Checks the bounds that other code relies on; the message says which field and why.
    pub fn validate(&self) -> Result<(), &'static str> {
        if !self.window.is_power_of_two()
            || !(limits::WINDOW_MIN..=limits::WINDOW_MAX).contains(&self.window)
        {
            return Err("window must be a power of two from 16 to 32768");
        }
        if !self.path.paths.is_power_of_two() || usize::from(self.path.paths) > limits::PATHS_MAX {
            return Err("path.paths must be a power of two up to 256");
        }
        if self.path.live_min == 0 || self.path.live_min > self.path.paths {
            return Err("path.live_min must be from 1 to path.paths");
        }
        if self.mtu < limits::MTU_MIN {
            return Err("mtu must be at least 64 bytes");
        }
        if self.wrs_max == 0 || self.wrs_max as usize > limits::WRS_MAX {
            return Err("wrs_max must be from 1 to 65536");
        }
        if self.contexts_max == 0 {
            return Err("contexts_max must be at least 1");
        }
        if self.half_opens_max == 0 || self.inbound_per_prefix_max == 0 {
            return Err("half_opens_max and inbound_per_prefix_max must be at least 1");
        }
        if self.burst_packets == 0 {
            return Err("burst_packets must be at least 1");
        }
        if self.rate.line_bytes_per_sec == 0 || self.rate.rate_fixed_bytes_per_sec == 0 {
            return Err("rates must be above zero");
        }
        Ok(())
    }
}
