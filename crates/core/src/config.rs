//! Configuration of an engine. Each replaceable algorithm is a named policy that is chosen here.

use crate::{guards::Guards, limits, policy::OwnPolicies, time::Span, tuning::LINE_MOST};
use core::net::IpAddr;

/// Default of [`EngineConfig::port_base`]: the first of the 256 UDP ports that the engines of one
/// host share. Peers must agree on it.
pub const PORT_BASE_DEFAULT: u16 = 18_700;

/// How a path is chosen for each packet or burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum PathPolicy {
    /// Reuse paths whose packets came back without delay; otherwise scan all paths, passing over
    /// those with penalties (for delay, ECN marks and losses).
    #[default]
    Srd,
    /// Round robin over all paths in a scrambled order, whatever their delays and losses.
    Oblivious,
    /// One path per remote engine, as a flow under ECMP has.
    Ecmp,
    /// Of two paths drawn at random, the one with the lower smoothed RTT (power of two choices).
    RttP2c,
}

/// How the sending rate and the bytes in flight are controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum RatePolicy {
    /// Rate and inflight cap follow the delivery rate and the queueing delay of the median path.
    #[default]
    Srd,
    /// Constant rate and inflight cap (`rate_fixed_bytes_per_sec`, `inflight_fixed_bytes`).
    Fixed,
}

/// What a receiver signals when its host falls behind, and how senders react.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum HostPolicy {
    /// Nothing is signalled, and signals of peers are ignored.
    Off,
    /// A sender that gets the signal stops until the peer signals that its host has caught up.
    StopGo,
    /// The receiver measures how fast its host drains, and announces to each sender its share of
    /// that.
    #[default]
    Budget,
}

/// Which packets carry a checksum beyond UDP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Integrity {
    /// No packet, and none is required of peers. For simulators, whose packets are never damaged.
    /// Such an engine talks only to engines with the same setting.
    Off,
    /// Only packets that begin and end contexts ([`crate::wire::PacketType::Open`], `OpenAck`,
    /// `Challenge`, `Reset`), whatever the peer wants.
    Handshakes,
    /// All packets, to peers that want it as well.
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
    /// Least number of paths that stay in use, however many losses they have. From 1 to `paths`.
    pub live_min: u16,
    /// Interval before the first probes of a retired path. It doubles up to `probe_max`.
    pub probe_first: Span,
    /// Rails: networks by which paths leave in turn, path *k* by rail *k* modulo their number. From
    /// 1 to 4.
    pub rails: u8,
    /// Longest interval between probes of a retired path.
    pub probe_max: Span,
}

/// Rate, bytes in flight, credits, and the signals of receiving hosts.
#[derive(Clone, Copy, Debug)]
pub struct RateConfig {
    /// Which policy.
    pub policy: RatePolicy,
    /// Line rate of the local port, above zero; the sending rate never exceeds it.
    pub line_bytes_per_sec: u64,
    /// The rate of the port is not known: `line_bytes_per_sec` is the most that is believed, and
    /// the rate is learnt from what is delivered. Then there are no receiver credits.
    pub line_learnt: bool,
    /// RTT assumed before the first sample.
    pub rtt_initial: Span,
    /// Smallest queueing-delay target, where the noise of the host (see [`Self::noise_max`]) does
    /// not ask for more.
    pub target_min: Span,
    /// Upper bound of the measured noise of the host: how long packets take from the time given to
    /// the engine to the card, and how late timers are. The noise is at least the transmission time
    /// of eight full packets, unless this bound is lower. Multiples of it are the floors of the
    /// queueing-delay target (4), of the reordering slack between paths and of the wait before a
    /// lone packet is copied (8), of the tail-loss probe timeout (20) and of the retransmission
    /// timeout (80). Zero: only the floors of this configuration hold.
    pub noise_max: Span,
    /// Bytes that may leave back to back, faster than the paced rate.
    pub burst_bytes: u32,
    /// For [`RatePolicy::Fixed`].
    pub rate_fixed_bytes_per_sec: u64,
    /// For [`RatePolicy::Fixed`].
    pub inflight_fixed_bytes: u64,
    /// Grant and obey receiver credits, if the peer does so as well and both know the rate of their
    /// port.
    pub credits: bool,
    /// What is signalled when a host falls behind, and how senders react. It takes effect if both
    /// ends have a policy other than [`HostPolicy::Off`].
    pub host_policy: HostPolicy,
}

impl RateConfig {
    /// Whether this end grants and obeys credits: a learnt rate of the port is not exact enough to
    /// share it out.
    pub(crate) fn grants(&self) -> bool {
        self.credits && !self.line_learnt
    }
}

/// Timers of loss detection and of peers that do not answer. Those of loss detection are floors and
/// ceilings of times that follow from measured RTTs.
#[derive(Clone, Copy, Debug)]
pub struct LossConfig {
    /// Floor of the reordering slack between paths, which is otherwise half of the smoothed RTT.
    pub reorder_min: Span,
    /// Floor of a path's retransmission timeout.
    pub rto_min: Span,
    /// Ceiling of backed-off timeouts and of the interval between probes of a silent peer.
    pub rto_max: Span,
    /// Floor of the tail-loss probe timeout, which is otherwise 1.5 times the smoothed RTT.
    pub tlp_min: Span,
    /// Floor of the same timeout while at most a few packets are in flight and the RTT is known. At
    /// most one packet in sixteen is sent again because of it.
    pub hedge_min: Span,
    /// When the peer of an open context has been silent for this long, outstanding requests end
    /// with status 13. Without outstanding requests, the context is dropped with all its state.
    pub unresponsive_after: Span,
    /// When the peer has not answered the handshake for this long, outstanding requests end with
    /// status 15.
    pub unreachable_after: Span,
    /// Interval before the first Open is repeated; it doubles with each repetition.
    pub open_retry: Span,
    /// When the peer has refused a read as busy for this long, the read ends with status 10.
    pub busy_after: Span,
}

/// When acknowledgments are sent.
#[derive(Clone, Copy, Debug)]
pub struct AckConfig {
    /// Packets received after which an acknowledgment is due without a request.
    pub every: u16,
    /// Longest delay of an acknowledgment that was not requested.
    pub delay_max: Span,
    /// Delay of a requested acknowledgment, so that a packet with data may carry it.
    pub delay_requested: Span,
}

/// Back-off after a receiver-not-ready (RNR) refusal.
#[derive(Clone, Copy, Debug)]
pub struct RnrConfig {
    /// First back-off, randomised by half; it doubles with each refusal.
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
    /// First UDP port of the engines of a host; see [`PORT_BASE_DEFAULT`].
    pub port_base: u16,
    /// Largest payload of one packet in bytes, at least [`limits::MTU_MIN`]; constant for the
    /// device.
    pub mtu: u16,
    /// Bytes of UDP payload to which an Open is padded, so that its arrival proves the path MTU; 0
    /// = no padding.
    pub open_padded_len: u16,
    /// Search for the path MTU to a peer (RFC 8899) when large packets are lost, and return a
    /// retired path to use only when it carries packets of full size.
    pub mtu_search: bool,
    /// Receive window in PSNs, a power of two from 16 to 32768; also the most PSNs under way to one
    /// peer, whatever window that peer offers.
    pub window: u16,
    /// Most packets sent in a row to one peer on one path (for GSO), at least 1; with 1, each
    /// packet chooses its own path. `rate.burst_bytes`, the rate and the inflight cap bound bursts
    /// in bytes.
    pub burst_packets: u16,
    /// Most contexts, at least 1. While more than three quarters are taken, peers without a context
    /// must answer a cookie before they get one.
    pub contexts_max: u32,
    /// Half-open contexts (opened by a peer that has not confirmed yet) beyond which a peer must
    /// answer a cookie before it gets one; at least 1. A peer from an IPv4 /24 or IPv6 /64 that
    /// holds a quarter of them must do so earlier. An honest peer confirms within a round trip; a
    /// forged address never does, and its context stays for `loss.unreachable_after`.
    pub half_opens_max: u32,
    /// Contexts that peers of one IPv4 /24 or IPv6 /64 may have opened, at least 1; more are
    /// refused with the reason "no room". The default is a quarter of the default of
    /// `contexts_max`. Raise it where more than 16,384 peers of one such network open contexts to
    /// one engine.
    pub inbound_per_prefix_max: u32,
    /// Most outstanding send requests, from 1 to [`limits::WRS_MAX`].
    pub wrs_max: u32,
    /// Most reads that are served at once for one context.
    pub reads_per_context_max: u16,
    /// Most reads that the engine serves at once.
    pub reads_max: u32,
    /// Most writes with immediate of several packets that are received at once on one context.
    pub write_imms_per_context_max: u16,
    /// Bytes of receive buffer (of the socket) that all senders share; `u32::MAX` = no limit.
    pub rx_budget_bytes: u32,
    /// Idle time after which a context returns its window state to the pool.
    pub idle_after: Span,
    /// Least time before the number of a destroyed queue pair or address handle is used again.
    pub reuse_delay: Span,
    /// Which packets carry a checksum.
    pub integrity: Integrity,
    /// The driver can seal packets: it encrypts and authenticates what leaves, opens what arrives,
    /// and marks what it has opened with [`Flags::SEALED`](crate::wire::Flags::SEALED). The packets
    /// that open and close contexts then take transmission numbers, because each sealed packet
    /// needs its own.
    pub seals: bool,
    /// Whether RDMA reads are served.
    pub rdma_read: bool,
    /// Whether RDMA writes are served.
    pub rdma_write: bool,
    /// The responder refuses RDMA requests unless it has an address handle for the requester (EFA
    /// status 14).
    pub rdma_needs_ah: bool,
    /// Index of the first queue pair, the low byte of its number; later ones follow. `None`: random
    /// for each engine, so that a request for a queue pair of an ended process rarely matches one
    /// of the process that took its slot. Where runs are replayed ([`crate::Rng`]), `None` is 0.
    pub qpn_start: Option<u8>,
    /// First PSN of each context; `None` = random. Tests set it near the wrap.
    pub psn_start: Option<u32>,
    /// First transmission number of each context; `None` = 31 random bits.
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
    /// Other engines of this host send to the same addresses, and the driver exchanges notes
    /// between them and this one ([`crate::Engine::share_next`]).
    pub host_shared: bool,
    /// Engines of this device, this one included, that know its regions by the same keys
    /// ([`Engine::region_keys_as`](crate::Engine::region_keys_as)), at least 1: together they
    /// judge as many guesses of keys as one engine would.
    pub engines_of_device: u32,
    /// Special cases of congestion control that are on: all of them, except in measurements.
    pub guards: Guards,
    /// Policies of one's own, for experiments; none by default.
    pub own: OwnPolicies,
}

/// Most bytes of one segmented send: less than the 64 KiB of an IP datagram with its headers.
const SEGMENTED_BYTES_MAX: usize = 65_000;
/// Most packets of one segmented send that every kernel accepts (128 since Linux 6.9).
const SEGMENTS_MAX: usize = 64;

/// Packets of one segmented send: one more would need a second system call.
fn segments_of(mtu: u16) -> u16 {
    let fit = SEGMENTED_BYTES_MAX / (usize::from(mtu) + srd_wire::OVERHEAD_BYTES);
    fit.clamp(1, SEGMENTS_MAX) as u16
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
            burst_packets: segments_of(mtu),
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
            seals: false,
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
                rails: 1,
                probe_first: Span::from_ms(1),
                probe_max: Span::from_ms(100),
            },
            rate: RateConfig {
                policy: RatePolicy::Srd,
                line_bytes_per_sec: 12_500_000_000,
                line_learnt: false,
                rtt_initial: Span::from_us(100),
                target_min: Span::from_us(4),
                noise_max: Span::from_us(25),
                burst_bytes: 65_536,
                rate_fixed_bytes_per_sec: 1_250_000_000,
                inflight_fixed_bytes: 1 << 20,
                credits: true,
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
            engines_of_device: 1,
            guards: Guards::ALL,
            own: OwnPolicies::default(),
        }
    }

    /// Sets the line rate of the local port, and raises `rate.target_min` to the transmission time
    /// of eight full packets at that rate. The least RTT may stem from a probe, which is
    /// transmitted faster than a full packet; the difference, over the links there and back, is not
    /// queueing delay.
    pub fn line_set(&mut self, bytes_per_sec: u64) {
        let wire_ns = u64::from(self.mtu) * 1_000_000_000 / bytes_per_sec.max(1);
        self.rate.line_bytes_per_sec = bytes_per_sec;
        self.rate.line_learnt = false;
        self.rate.target_min = self.rate.target_min.max(Span(8 * wire_ns));
    }

    /// The line rate of the local port is not known. It is learnt from what is delivered, up to 400
    /// Gb/s.
    pub fn line_unknown(&mut self) {
        self.rate.line_bytes_per_sec = LINE_MOST;
        self.rate.line_learnt = true;
    }

    /// Defaults for the simulator: links of `line_bytes_per_sec`, all of the same MTU, and a base
    /// RTT of about `rtt`. Packets carry no checksum: simulated packets hold no bytes that could be
    /// damaged, and real cards check the link's frame, which the size of a simulated frame
    /// includes.
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

    /// Defaults for a whole fabric whose links have one known rate: those of the simulator, with
    /// 128 paths and receiver credits. (64 paths load a fat tree of 16 ways unevenly: a full
    /// permutation ends some 5 us later.)
    pub fn datacenter(ip: IpAddr, slot: u8, mtu: u16, line_bytes_per_sec: u64, rtt: Span) -> Self {
        let mut c = Self::simulated(ip, slot, mtu, line_bytes_per_sec, rtt);
        c.path.paths = 128;
        c.rate.credits = true;
        c
    }

    /// Whether the MTU is a multiple of 128 bytes; segments then keep to such multiples.
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
        if !(1..=limits::RAILS_MAX).contains(&self.path.rails.into()) {
            return Err("path.rails must be from 1 to 4");
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
        if self.engines_of_device == 0 {
            return Err("engines_of_device must be at least 1");
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
