//! Observation of a run: throughput, links, queues and losses over time, and paths of packets.
//!
//! A [`Sampler`] reads the network at the end of every interval and keeps differences of existing
//! counters, so recording adds no cost per packet and does not change the run. Memory is bounded:
//! at most [`SAMPLES_MAX`] intervals (pairs are merged beyond that), and series for at most
//! [`FLOWS_MAX`] flows and [`LINKS_MAX`] links; the distributions over flows and links include all
//! others.

mod data;
mod links;

pub use data::{
    FlowSeries, Interval, LinkSeries, LinkUse, Observation, RingSeries, Share, Spread, Tier,
    TierInterval, gbps,
};

use crate::workload::Flow;
use links::Links;
use srd_fabric::{DropReason, Host, Ps, Topology, US, World};

/// Most intervals kept; even, because pairs are merged.
pub const SAMPLES_MAX: usize = 400;
/// Most flows with series: the paper's incast has 48.
pub const FLOWS_MAX: usize = 64;
/// Most links with series.
pub const LINKS_MAX: usize = 128;
/// Most rings with series.
pub const RINGS_MAX: usize = 64;

/// The protocol's state at one moment, unknown to the network. All counts are since the start.
pub struct Moment<'a> {
    /// Payload of a flow that has arrived, in all rounds.
    pub flow_bytes: &'a dyn Fn(usize) -> u64,
    /// Whether a flow has started and not ended.
    pub flow_active: &'a dyn Fn(usize) -> bool,
    /// Retransmissions.
    pub resent: Resent,
}

/// Retransmissions of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resent {
    /// Retransmitted packets.
    pub packets: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl Resent {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, timeouts: self.timeouts + other.timeouts }
    }
}

/// A host of any transport, for observation.
pub trait Counted {
    /// Retransmissions since the start.
    fn resent(&self) -> Resent;
    /// Adds the packets sent on each path to `sum`, for multipath transports.
    fn path_packets(&self, _sum: &mut Vec<u64>) {}
}

/// Samples a run at the end of every interval.
#[derive(Debug)]
pub struct Sampler {
    out: Observation,
    due: Ps,
    flow_bytes: Vec<u64>,
    flow_active: Vec<bool>,
    before: Interval,
    links: Links,
    /// Drops of each ring at the last sample.
    ring_drops: Vec<u64>,
}

/// A round interval length (one, two or five times a power of ten, at least 1 µs) that divides
/// `expected_ps` into some 200 intervals.
pub fn interval_for(expected_ps: Ps) -> Ps {
    let least = (expected_ps / 200).max(US);
    let mut step = US;
    loop {
        for factor in [1, 2, 5] {
            if factor * step >= least {
                return factor * step;
            }
        }
        step *= 10;
    }
}

impl Sampler {
    /// A sampler that starts at `start_ps`. Beyond [`FLOWS_MAX`] flows, series are evenly sampled.
    /// Links with series are all links or, in a larger network, the last links to the chosen flows'
    /// receivers.
    pub fn new(topo: &Topology, flows: &[Flow], start_ps: Ps, interval_ps: Ps) -> Self {
        let n = flows.len();
        let chosen = (0..n.min(FLOWS_MAX)).map(|i| i * n / n.min(FLOWS_MAX));
        let series = |i: usize| FlowSeries {
            flow: i as u32,
            src: flows[i].src.0,
            dst: flows[i].dst.0,
            bytes: Vec::new(),
        };
        let series: Vec<FlowSeries> = chosen.map(series).collect();
        let links = Links::new(topo, &series);
        Self {
            out: Observation {
                start_ps,
                end_ps: start_ps,
                interval_ps,
                flows_all: n as u32,
                flows: series,
                tiers: links.tiers(),
                links: links.series(topo),
                ..Observation::default()
            },
            due: start_ps,
            flow_bytes: vec![0; n],
            flow_active: vec![false; n],
            before: Interval::default(),
            links,
            ring_drops: Vec::new(),
        }
    }

    /// Time of the next sample; all earlier events must have been processed.
    pub const fn due(&self) -> Ps {
        self.due
    }

    /// Takes a sample at `at`: [`Sampler::due`], or the end of the run.
    pub fn take<P: Clone, H: Host<P>>(
        &mut self,
        world: &mut World<P, H>,
        at: Ps,
        moment: &Moment<'_>,
    ) {
        let first = at <= self.out.start_ps;
        let spread = self.flows_take(at, moment, first);
        let totals = world.totals();
        let now = Interval {
            bytes: self.flow_bytes.iter().sum(),
            retransmitted: moment.resent.packets,
            timeouts: moment.resent.timeouts,
            marked: totals.marked,
            drops: DropReason::ALL.map(|r| totals.drops.of(r)),
        };
        self.links.take(world, at, at - self.out.end_ps, first, &mut self.out);
        self.rings_take(world, at, first);
        if !first {
            self.out.intervals.push(now.since(&self.before));
            self.out.spreads.push(spread);
            self.out.end_ps = at;
        }
        self.before = now;
        if self.out.intervals.len() == SAMPLES_MAX {
            self.out.halve();
        }
        self.due = at + self.out.interval_ps;
    }

    /// Samples the rings, the first of them if there are many.
    fn rings_take<P: Clone, H: Host<P>>(&mut self, world: &mut World<P, H>, at: Ps, first: bool) {
        let (rings, before) = (&mut self.out.rings, &mut self.ring_drops);
        let mut i = 0;
        world.rings_sample(at, |host, sample| {
            if first && rings.len() < RINGS_MAX {
                let (depth_max, drops) = (Vec::new(), Vec::new());
                rings.push(RingSeries { host: host.0, depth_max, drops });
                before.push(sample.dropped);
            } else if let Some(ring) = rings.get_mut(i) {
                ring.depth_max.push(sample.backlog_bytes_max);
                let old = std::mem::replace(&mut before[i], sample.dropped);
                ring.drops.push(sample.dropped - old);
            }
            i += 1;
        });
    }

    /// Samples the bytes that each flow received since the last sample.
    fn flows_take(&mut self, at: Ps, moment: &Moment<'_>, first: bool) -> Spread {
        let mut active = Vec::new();
        let mut series = self.out.flows.iter_mut().peekable();
        for i in 0..self.flow_bytes.len() {
            let bytes = (moment.flow_bytes)(i).max(self.flow_bytes[i]);
            let new = bytes - std::mem::replace(&mut self.flow_bytes[i], bytes);
            let is = (moment.flow_active)(i);
            if std::mem::replace(&mut self.flow_active[i], is) && is {
                active.push(new);
            }
            if let Some(s) = series.next_if(|s| s.flow as usize == i)
                && !first
            {
                s.bytes.push(new);
            }
        }
        Spread::of(active, at - self.out.end_ps)
    }

    /// Takes the last sample at the end of the run and returns the observation.
    pub fn finish<P: Clone, H: Host<P>>(
        mut self,
        world: &mut World<P, H>,
        moment: &Moment<'_>,
        paths: Vec<u64>,
    ) -> Observation {
        let now = world.now();
        if now > self.out.end_ps {
            self.take(world, now, moment);
        }
        self.out.paths = paths;
        self.links.finish(world, &mut self.out);
        self.out
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
