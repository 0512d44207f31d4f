//! Data of an observed run, for files and plots.

use serde::Serialize;
use srd_fabric::{DROP_REASONS, Ps};

/// The whole network in one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Payload bytes that arrived, each counted once.
    pub bytes: u64,
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Packets marked by queues.
    pub marked: u64,
    /// Packets dropped, in the order of `DropReason::ALL`.
    pub drops: [u64; DROP_REASONS],
}

impl Interval {
    /// Difference to the counts at an earlier moment.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            retransmitted: self.retransmitted - before.retransmitted,
            timeouts: self.timeouts - before.timeouts,
            marked: self.marked - before.marked,
            drops: std::array::from_fn(|i| self.drops[i] - before.drops[i]),
        }
    }
    fn merge(&mut self, next: &Self) {
        self.bytes += next.bytes;
        self.retransmitted += next.retransmitted;
        self.timeouts += next.timeouts;
        self.marked += next.marked;
        self.drops.iter_mut().zip(next.drops).for_each(|(a, b)| *a += b);
    }
}

/// Throughput over the flows that were active for a whole interval, in Gb/s of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Number of these flows.
    pub flows: u32,
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// Jain's index: 1 = all equal, 1/n = one has everything; 0 without flows.
    pub jain: f64,
}

impl Spread {
    /// From the bytes of each flow in `width_ps`.
    pub fn of(mut bytes: Vec<u64>, width_ps: Ps) -> Self {
        let n = bytes.len();
        if n == 0 || width_ps == 0 {
            return Self::default();
        }
        bytes.sort_unstable();
        let sum: f64 = bytes.iter().map(|b| *b as f64).sum();
        let squares: f64 = bytes.iter().map(|b| (*b as f64).powi(2)).sum();
        let jain = if squares > 0.0 { sum * sum / (n as f64 * squares) } else { 0.0 };
        let rate = |b: u64| gbps(b, width_ps);
        let median = rate(bytes[(n - 1) / 2]);
        Self { flows: n as u32, min: rate(bytes[0]), median, max: rate(bytes[n - 1]), jain }
    }
    /// Merges two intervals: the extremes of both, the mean of medians and indices.
    fn merge(&mut self, next: &Self) {
        *self = match (self.flows, next.flows) {
            (_, 0) => *self,
            (0, _) => *next,
            _ => Self {
                flows: self.flows.max(next.flows),
                min: self.min.min(next.min),
                median: f64::midpoint(self.median, next.median),
                max: self.max.max(next.max),
                jain: f64::midpoint(self.jain, next.jain),
            },
        };
    }
}

/// Rate in Gb/s of `bytes` in a time.
pub fn gbps(bytes: u64, width_ps: Ps) -> f64 {
    bytes as f64 * 8e3 / width_ps.max(1) as f64
}

/// Share of a link's rate that corresponds to `bytes` in a time; 0 if the time is 0.
pub(super) fn used_share(bytes: u64, width_ps: Ps, bits_per_s: u64) -> f64 {
    if width_ps == 0 {
        return 0.0;
    }
    bytes as f64 * 8e12 / (width_ps as f64 * bits_per_s as f64)
}

/// Series of one flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowSeries {
    /// Index of the flow in the workload.
    pub flow: u32,
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Payload bytes that arrived in each interval.
    pub bytes: Vec<u64>,
}

/// All links between two tiers in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierInterval {
    /// Share of the built rate used by all links together.
    pub used_mean: f64,
    /// Share of the built rate used by the busiest link.
    pub used_max: f64,
    /// Median of queues at the end of the interval, bytes.
    pub queue_median: u64,
    /// 99th percentile of queues at the end of the interval, bytes.
    pub queue_p99: u64,
    /// Largest queue of any link at any moment of the interval, bytes.
    pub queue_max: u64,
}

impl TierInterval {
    /// Merges two intervals: means of the means, the later quantiles, the larger maxima.
    fn merge(&mut self, next: &Self) {
        *self = Self {
            used_mean: f64::midpoint(self.used_mean, next.used_mean),
            used_max: self.used_max.max(next.used_max),
            queue_median: next.queue_median,
            queue_p99: next.queue_p99,
            queue_max: self.queue_max.max(next.queue_max),
        };
    }
}

/// All links between two tiers in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tier {
    /// Name such as `leaf->host`.
    pub name: String,
    /// Number of links.
    pub links: u32,
    /// The tier's intervals.
    pub intervals: Vec<TierInterval>,
    /// Share of the built rate used by each link over the whole time, ascending; evenly sampled if
    /// there are many.
    pub used_sorted: Vec<f64>,
}

/// Series of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkSeries {
    /// Name such as `leaf0->host0`.
    pub name: String,
    /// Number of the link in the topology.
    pub link: u32,
    /// Built rate.
    pub bits_per_s: u64,
    /// Bytes sent in each interval.
    pub bytes: Vec<u64>,
    /// Largest queue in each interval, bytes, the packet on the wire included.
    pub queue_max: Vec<u64>,
}

/// Series of one host's ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingSeries {
    /// Index of the host.
    pub host: u32,
    /// Largest number of waiting bytes in each interval.
    pub depth_max: Vec<u64>,
    /// Packets that did not fit, in each interval.
    pub drops: Vec<u64>,
}

/// Totals of one link over the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkUse {
    /// Name such as `leaf0->host0`.
    pub name: String,
    /// Packets that entered its queue while recording.
    pub packets: u64,
    /// Bytes sent while recording.
    pub bytes: u64,
    /// Largest queue of the whole run in bytes.
    pub queue_max: u64,
    /// Packets lost at it in the whole run.
    pub drops: u64,
}

/// Packets that took one top-tier switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Name of a top-tier switch.
    pub name: String,
    /// Packets sent to it while recording.
    pub packets: u64,
}

/// An observed run. Interval `i` is from `start_ps + i * interval_ps` to the start of the next one;
/// the last interval ends at `end_ps` and may be shorter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Observation {
    /// Start of the first interval.
    pub start_ps: Ps,
    /// End of the last interval.
    pub end_ps: Ps,
    /// Length of an interval.
    pub interval_ps: Ps,
    /// Number of times that pairs of intervals were merged.
    pub merges: u32,
    /// Series of the whole network.
    pub intervals: Vec<Interval>,
    /// Throughput over the active flows.
    pub spreads: Vec<Spread>,
    /// Number of flows of the workload.
    pub flows_all: u32,
    /// Flows with series of their own.
    pub flows: Vec<FlowSeries>,
    /// Links by tier.
    pub tiers: Vec<Tier>,
    /// Links with series of their own.
    pub links: Vec<LinkSeries>,
    /// Rings of hosts.
    pub rings: Vec<RingSeries>,
    /// The busiest links.
    pub busiest: Vec<LinkUse>,
    /// Packets that took each top-tier switch.
    pub spines: Vec<Share>,
    /// Packets sent on each path (source port), for all peers together, warm-up included.
    pub paths: Vec<u64>,
}

impl Observation {
    /// Length of an interval in ps.
    pub fn width_ps(&self, i: usize) -> Ps {
        let start = self.start_ps + i as u64 * self.interval_ps;
        self.interval_ps.min(self.end_ps.saturating_sub(start))
    }
    /// Middle of an interval in us since the start of the run.
    pub fn middle_us(&self, i: usize) -> f64 {
        let start = self.start_ps + i as u64 * self.interval_ps;
        (start + self.width_ps(i) / 2) as f64 / 1e6
    }
    /// A copy with intervals at least `factor` times as long, where `factor` is a power of two.
    #[must_use]
    pub fn thinned(&self, factor: u32) -> Self {
        let mut out = self.clone();
        (0..factor.ilog2()).for_each(|_| out.halve());
        out
    }
    /// Merges pairs of intervals; an odd last one stays alone.
    pub(super) fn halve(&mut self) {
        fn pairs<T: Clone>(all: &mut Vec<T>, merge: impl Fn(&mut T, &T)) {
            for i in 0..all.len().div_ceil(2) {
                let mut one = all[2 * i].clone();
                if let Some(next) = all.get(2 * i + 1) {
                    merge(&mut one, next);
                }
                all[i] = one;
            }
            all.truncate(all.len().div_ceil(2));
        }
        let add = |a: &mut u64, b: &u64| *a += b;
        pairs(&mut self.intervals, Interval::merge);
        pairs(&mut self.spreads, Spread::merge);
        self.flows.iter_mut().for_each(|f| pairs(&mut f.bytes, add));
        self.tiers.iter_mut().for_each(|t| pairs(&mut t.intervals, TierInterval::merge));
        for link in &mut self.links {
            pairs(&mut link.bytes, add);
            pairs(&mut link.queue_max, |a, b| *a = (*a).max(*b));
        }
        for ring in &mut self.rings {
            pairs(&mut ring.depth_max, |a, b| *a = (*a).max(*b));
            pairs(&mut ring.drops, add);
        }
        self.interval_ps *= 2;
        self.merges += 1;
    }
}
