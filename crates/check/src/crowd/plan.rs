//! What a crowded world is made of: drawn from its seed before time starts.

use crate::class::{Class, Classes};
use crate::draw::Draw;
use crate::packet::ip_of;
use crate::scenario::stream;
use srd_core::config::Integrity;
use srd_core::{EngineConfig, Span};

/// One of so many seeds has a crowded world. They take some fifty times as long as others.
pub(crate) const CROWD_EACH: u64 = 200;

/// Classes whose worlds are run only when asked for by name (`--with`), because the engine does not
/// pass them yet. `docs/reliability.md` says what it does.
pub(crate) const AWAITED: Classes = Classes::CROWD;

/// Losses of a bad link, per thousand, from which on its world is one of these.
const HARD_PERMILLE: u64 = 150;
/// Bytes per second of 1 Mb/s.
const MBIT: u64 = 125_000;
/// Packets that the bottleneck carries in one phase, at most: the cost of a world.
const PACKETS_MAX: u64 = 40_000;
/// Least queueing delay that engines tolerate here, in ns: four times the noise that an engine
/// assumes until it is told of some (25 us), rule CC-28.
const TARGET_LEAST_NS: u64 = 100_000;
/// Longest delay of a packet beside its base RTT, in ns: what is left of the noise of hosts.
pub(super) const JITTER_NS: u64 = 500;
/// Packets of one request.
pub(super) const PACKETS: u64 = 32;
/// Rounds in which the rate falls from the line rate to a burst per round trip while all packets
/// are marked: 16 until marks count, and 16 for each factor of e (rule CC-43). The largest factor
/// drawn is below 100. A round lasts up to two round trips where few packets are in flight.
const MARKED_ROUNDS: u64 = 2 * (16 + 16 * 5);
/// Rounds in which a rate returns to the line rate: 64, with 1/64 of it each (rule CC-22), once
/// more while the queue that it builds slows it down.
const RISE_ROUNDS: u64 = 2 * 64;
/// Intervals in which a cap that is not needed any more has risen to four times as much (rule
/// CC-42), beside the doublings of its rise: 8 until it rises at all, and some 8 in which it rises
/// by a quarter each.
const LIFT_INTERVALS: u64 = 8 + 8;
/// These doublings; each takes 8 of the least intervals, and 4 of all the packets of one.
const LIFT_DOUBLINGS: u64 = 9;
/// Intervals after which it is known for long that losses are a bad link's (rule CC-42): two until
/// the trial begins, at most 16 falls by an eighth with an interval after each, and 32 in which the
/// losses count for nothing. The trial that follows is followed by 64.
const BAD_LINK_INTERVALS: u64 = 2 + 2 * 16 + 32;

/// Least part of any sender before a buffer long enough to be proven, in percent of an equal part:
/// 23 was the least of 64 senders.
const LEAST_BUFFER_PERCENT: u64 = 10;
/// The same behind a policer or a short buffer, where caps become equal slowly: 15 was the least.
const LEAST_LIMIT_PERCENT: u64 = 2;
/// Packets of each sender in an interval of the cap (rule CC-41).
const CAP_PACKETS: u64 = 256;
/// How much faster a policer becomes.
pub(super) const LIFTED_TIMES: u64 = 4;

/// What is between the senders and the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A queue of this many bytes that drops what does not fit.
    Buffer {
        /// Its size.
        bytes: u64,
    },
    /// A token bucket of this many bytes, which drops what it has no tokens for and delays nothing.
    Policer {
        /// Its size.
        bytes: u64,
    },
    /// The same, until it fills at four times the rate.
    Lifted {
        /// Its size.
        bytes: u64,
    },
    /// A switch that marks all packets, whatever waits there, until it marks none.
    Marks,
    /// A link that loses packets at random, per thousand.
    BadLink {
        /// Packets lost.
        permille: u64,
    },
}

/// A crowded world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The bottleneck.
    pub kind: Kind,
    /// Its rate in bytes per second.
    pub rate: u64,
    /// Base RTT of each sender in ns, without the times on the wire.
    pub bases_ns: Vec<u64>,
    /// Engines of each sending host, which have a context each and share the port.
    pub engines_per_host: usize,
    /// Configuration that all engines start from; its line rate is that of all ports.
    pub config: EngineConfig,
    /// Time until the senders have settled, in ns.
    pub settle_ns: u64,
    /// Time that is measured, in ns.
    pub measure_ns: u64,
    /// After that, time in which senders use what a bottleneck that has changed permits, in ns; 0:
    /// it does not change.
    pub recover_ns: u64,
    /// Seed of the engines and the network.
    pub seed: u64,
}

/// The plan of a seed, if its world is crowded.
pub(crate) fn draw(seed: u64, senders_max: u64) -> Option<Plan> {
    let mut d = Draw::new(seed, stream::CROWD, 0);
    (d.below(CROWD_EACH) == 0).then(|| plan(&mut d, senders_max))
}

fn plan(d: &mut Draw, senders_max: u64) -> Plan {
    let mtu = d.pick(&[1024, 4096, 4096, 8192]);
    // Bursts and their headers have to fit into what a bottleneck holds.
    let packets = d.pick(&[1, 2, 4, 8]);
    let rate = MBIT * d.pick(&[250, 1_000, 1_000, 2_500, 10_000]);
    let times = d.pick(&[1, 2, 4, 10]);
    let senders = match d.below(4) {
        0 => d.range(1, 4),
        1 => d.range(5, 16),
        _ => d.range(17, 64),
    };
    let kind = d.weighted(&[5, 3, 2, 2, 2]);
    let base_ns = 1000 * d.pick(&[10, 20, 50, 100, 200, 500, 1_000, 5_000]);
    let (seed, share) = (d.bits(), d.range(10, 250));
    let mut w = Wish { mtu, packets, rate, line: rate * times, senders, base_ns };
    let kind = w.fit(kind, share);
    w.senders = w.senders.min(senders_max).max(1);
    let unequal = d.percent(25) && matches!(kind, Kind::Buffer { .. } | Kind::Policer { .. });
    let base = |k: u64| base_ns_of(w.base_ns, if unequal { k % 4 } else { 0 });
    let config = w.config(d);
    let (settle_ns, measure_ns, recover_ns) = w.phases(kind);
    Plan {
        kind,
        rate: w.rate,
        bases_ns: (0..w.senders).map(base).collect(),
        engines_per_host: if d.percent(15) { 2 } else { 1 },
        config,
        settle_ns,
        measure_ns,
        recover_ns,
        seed,
    }
}

/// The base RTT of a sender that is `k` steps farther away than the nearest.
fn base_ns_of(nearest_ns: u64, k: u64) -> u64 {
    nearest_ns + k * nearest_ns / 2
}

/// What was drawn, until it fits.
struct Wish {
    mtu: u64,
    packets: u64,
    rate: u64,
    line: u64,
    senders: u64,
    base_ns: u64,
}

impl Wish {
    /// Bytes of this rate in so many ns.
    fn bytes(rate: u64, ns: u64) -> u64 {
        (u128::from(rate) * u128::from(ns) / 1_000_000_000) as u64
    }

    /// Time of `bytes` at the rate of the bottleneck in ns.
    fn ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.rate)) as u64
    }

    /// The base RTT with the time of a packet on both links.
    fn trip_ns(&self) -> u64 {
        self.base_ns + self.ns(self.mtu) + self.ns(self.mtu) * self.rate / self.line
    }

    /// The queueing delay that engines tolerate at the line rate (rule CC-03), in ns.
    fn target_ns(&self) -> u64 {
        let eight = 8 * self.ns(self.mtu) * self.rate / self.line;
        TARGET_LEAST_NS.max(3 * self.trip_ns() / 4).max(eight)
    }

    /// Makes a bottleneck for which `docs/congestion.md` promises something, and which costs little
    /// enough. `share`: room in a buffer, in percent of the tolerated delay.
    fn fit(&mut self, kind: usize, share: u64) -> Kind {
        // 100 base RTTs hold no more packets than one phase may.
        while Self::bytes(self.rate, self.base_ns) > PACKETS_MAX / 200 * self.mtu {
            (self.rate, self.line) = (self.rate / 2, self.line / 2);
        }
        match kind {
            0 => {
                // A proven buffer delays by half of a delay target and 50 us at least (CC-40). One
                // that delays by less is a limit like a policer (CC-41).
                let delay_ns = self.target_ns() * share / 100;
                let burst = 2 * self.packets * self.mtu;
                let bytes = Self::bytes(self.rate, delay_ns).max(burst).max(4 * self.mtu);
                if self.is_short(bytes) {
                    self.calm(8);
                }
                self.few();
                Kind::Buffer { bytes }
            }
            1 | 2 => {
                self.calm(if kind == 1 { 16 } else { 1 });
                if kind == 2 {
                    // The line is not the limit afterwards.
                    self.line = self.line.max(LIFTED_TIMES * self.rate);
                }
                let bytes = (self.senders * self.packets * self.mtu).max(64 << 10);
                if kind == 1 { Kind::Policer { bytes } } else { Kind::Lifted { bytes } }
            }
            3 => {
                self.senders = self.senders.min(4);
                self.packets = self.packets.min(2);
                // Far more than a burst per round trip.
                while Self::bytes(self.line, self.trip_ns()) < 32 * self.packets * self.mtu {
                    self.base_ns *= 2;
                }
                while Self::bytes(self.line, self.trip_ns()) > 64 * self.packets * self.mtu {
                    (self.rate, self.line) = (self.rate / 2, self.line / 2);
                }
                self.rate = self.line * self.senders;
                Kind::Marks
            }
            _ => {
                self.senders = self.senders.min(2);
                self.slow();
                self.line = self.rate;
                Kind::BadLink { permille: [5, 30, 70, 100, HARD_PERMILLE][(share % 5) as usize] }
            }
        }
    }

    /// Whether a buffer of `bytes` is too short for the rule of full buffers.
    fn is_short(&self, bytes: u64) -> bool {
        let delay_ns = self.ns(bytes);
        4 * delay_ns < 3 * self.target_ns() || delay_ns < 75_000
    }

    /// At most so many senders, whose least rate (a packet per eight base RTTs) is below a quarter
    /// of their part: no cap is lower (CC-41). Their first windows pass within the time to settle.
    fn calm(&mut self, senders_max: u64) {
        self.senders = self.senders.min(senders_max);
        self.slow();
        while self.senders * self.mtu > 2 * Self::bytes(self.rate, self.trip_ns()) {
            self.base_ns *= 2;
        }
        self.line = self.line.min(4 * self.rate);
    }

    /// A rate at which an interval of the cap holds at most twice the packets that it has to
    /// (CC-41).
    fn slow(&mut self) {
        while Self::bytes(self.rate, self.trips_ns()) > 2 * CAP_PACKETS * self.senders * self.mtu {
            (self.rate, self.line) = (self.rate / 2, self.line / 2);
        }
    }

    /// Ports so slow that what all senders have outstanding is no more than one phase carries.
    fn few(&mut self) {
        let outstanding =
            |w: &Self| 2 * w.senders * Self::bytes(w.line, w.base_ns + 3 * w.target_ns());
        while outstanding(self) > PACKETS_MAX * self.mtu && self.line > self.rate {
            self.line = self.rate.max(self.line / 2);
        }
    }

    fn config(&self, d: &mut Draw) -> EngineConfig {
        let mut c = EngineConfig::sockets(ip_of(0), 0, self.mtu as u16);
        c.line_set(self.line);
        c.burst_packets = self.packets as u16;
        c.rate.burst_bytes = (self.packets * self.mtu) as u32;
        c.integrity = Integrity::Off;
        // The receiver has no handles.
        c.rdma_needs_ah = false;
        c.contexts_max = 256;
        c.half_opens_max = 256;
        c.path.paths = d.pick(&[1, 8, 64]);
        c.path.live_min = c.path.live_min.min(c.path.paths);
        c.ack.every = d.pick(&[2, 8]);
        c.loss.unresponsive_after = Span::from_secs(5);
        c
    }

    /// Length of an interval of the cap (rule CC-41), in ns.
    fn interval_ns(&self) -> u64 {
        self.trips_ns().max(self.packets_ns())
    }

    /// Time of the packets of such an interval, in ns.
    fn packets_ns(&self) -> u64 {
        self.ns(CAP_PACKETS * self.mtu * self.senders)
    }

    /// Least of such an interval, in ns; the queue delays by two targets at most.
    fn trips_ns(&self) -> u64 {
        16 * (self.trip_ns() + 2 * self.target_ns())
    }

    /// Times to settle, to measure and to recover, in ns.
    fn phases(&self, kind: Kind) -> (u64, u64, u64) {
        let longest = base_ns_of(self.trip_ns(), 3);
        let turns = self.ns(200 * self.senders * self.mtu);
        let usual = turns.max(100 * longest).max(20_000_000);
        let most = self.ns(PACKETS_MAX * self.mtu);
        match kind {
            Kind::Buffer { bytes } if !self.is_short(bytes) => {
                // Twelve overflows and 32 round trips of the full buffer prove it.
                let proof = 64 * (self.trip_ns() + self.ns(bytes));
                ((2 * usual).max(2 * proof).min(4 * most), usual.min(most), 0)
            }
            Kind::Buffer { .. } | Kind::Policer { .. } => {
                let intervals = 32 * self.interval_ns();
                (intervals.max(usual).min(4 * most), usual.min(most), 0)
            }
            Kind::Lifted { .. } => {
                let doubling = (8 * self.trips_ns()).max(4 * self.packets_ns());
                let lift = LIFT_INTERVALS * self.interval_ns() + LIFT_DOUBLINGS * doubling;
                (24 * self.interval_ns(), usual.min(most), lift)
            }
            Kind::Marks => {
                let fall = MARKED_ROUNDS * (longest + TARGET_LEAST_NS);
                (fall, 50 * longest, RISE_ROUNDS * longest)
            }
            Kind::BadLink { .. } => {
                let intervals = BAD_LINK_INTERVALS * self.interval_ns();
                (intervals, 32 * self.interval_ns(), 0)
            }
        }
    }
}

impl Plan {
    /// Hosts: the receiver's and those of the senders.
    pub(crate) fn hosts(&self) -> u32 {
        1 + self.bases_ns.len().div_ceil(self.engines_per_host) as u32
    }

    /// The class of the world.
    pub(crate) fn class(&self) -> Class {
        let hard = match self.kind {
            Kind::Buffer { .. } => !self.is_limit(),
            Kind::BadLink { permille } => permille >= HARD_PERMILLE,
            Kind::Policer { .. } | Kind::Lifted { .. } | Kind::Marks => false,
        };
        if hard { Class::CrowdHard } else { Class::Crowd }
    }

    /// Senders.
    pub(super) fn senders(&self) -> usize {
        self.bases_ns.len()
    }

    /// Line rate of the receiver's port in bytes per second: that of all ports, or what the
    /// bottleneck before it passes, if that is more.
    pub(super) fn line_of_receiver(&self) -> u64 {
        let most = match self.kind {
            Kind::Lifted { .. } => LIFTED_TIMES * self.rate,
            _ => self.rate,
        };
        most.max(self.line())
    }

    /// Line rate of the senders' ports in bytes per second.
    pub(super) fn line(&self) -> u64 {
        self.config.rate.line_bytes_per_sec
    }

    /// Bytes of a full packet's payload.
    pub(super) fn mtu(&self) -> u64 {
        u64::from(self.config.mtu)
    }

    /// Base RTT of a sender with the times of a packet on the wire, in ns.
    pub(super) fn trip_ns(&self, sender: usize) -> u64 {
        let wire = self.mtu() * 1_000_000_000;
        self.bases_ns[sender] + wire / self.rate + wire / self.line()
    }

    /// Whether the bottleneck limits without a delay that could be proven to be a buffer's: a
    /// policer, or a short buffer.
    pub(super) fn is_limit(&self) -> bool {
        match self.kind {
            Kind::Buffer { bytes } => self.wish().is_short(bytes),
            Kind::Policer { .. } | Kind::Lifted { .. } => true,
            Kind::Marks | Kind::BadLink { .. } => false,
        }
    }

    /// Least part that any sender has to have, in percent of an equal part.
    pub(super) fn least_percent(&self) -> u64 {
        if self.is_limit() { LEAST_LIMIT_PERCENT } else { LEAST_BUFFER_PERCENT }
    }

    /// Whether the senders have different round trips.
    pub(super) fn is_unequal(&self) -> bool {
        self.bases_ns.iter().any(|&b| b != self.bases_ns[0])
    }

    fn wish(&self) -> Wish {
        Wish {
            mtu: self.mtu(),
            packets: u64::from(self.config.burst_packets),
            rate: self.rate,
            line: self.line(),
            senders: self.bases_ns.len() as u64,
            base_ns: self.bases_ns.iter().copied().min().unwrap_or(0),
        }
    }

    /// Requests that each sender keeps outstanding: twice what it may have in flight at most (rule
    /// CC-23), so that the rate decides and not what there is to send.
    pub(super) fn depth(&self) -> u64 {
        let w = self.wish();
        let longest = self.bases_ns.iter().copied().max().unwrap_or(0) + w.target_ns();
        let most = 2 * Wish::bytes(self.line(), longest + 2 * w.target_ns());
        (most / (PACKETS * self.mtu()) + 2).min(2 * u64::from(self.config.window) / PACKETS)
    }

    /// When each phase ends, in ns: the senders have settled, were measured, have recovered, were
    /// measured again.
    pub(super) fn ends_ns(&self) -> [u64; 4] {
        let measured = self.settle_ns + self.measure_ns;
        let again = if self.recover_ns > 0 { self.measure_ns } else { 0 };
        [self.settle_ns, measured, measured + self.recover_ns, measured + self.recover_ns + again]
    }

    /// Time after the load in which all requests must have ended, as in other worlds: twice the
    /// longest silence and eight of the longest timeouts, and what all that is outstanding takes if
    /// each sender has the least part that is promised.
    pub(super) fn drain_ns(&self) -> u64 {
        let l = &self.config.loss;
        let bytes = self.senders() as u64 * self.depth() * PACKETS * self.mtu();
        2 * (l.unresponsive_after.0 + 8 * l.rto_max.0)
            + self.wish().ns(bytes) * 100 / self.least_percent()
    }
}
