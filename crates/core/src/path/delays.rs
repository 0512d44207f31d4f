//! Times to wait: smoothed and least RTT, retransmission timeout, probe timeouts, reordering slack.

use super::PathContext;
use super::rtt::{self, Smoothed};
use crate::guards::Guard;
use crate::time::Span;
use crate::tuning::{HEDGE, SLACK_CROSS, TAIL_PROBE};

impl PathContext {
    /// Smoothed RTT over all paths; the configured one before the first sample.
    pub fn srtt(&self) -> Span {
        match self.smoothed().srtt_ns {
            0 => Span(u64::from(self.params.rtt_ns_initial)),
            ns => Span(u64::from(ns)),
        }
    }

    /// Round trip in which waits for a host that is behind are counted: unlike [`Self::srtt`] not
    /// raised by round trips in which a host was away or its clock leapt.
    pub fn host_rtt(&self) -> Span {
        self.active.as_ref().map_or_else(|| self.srtt(), |a| a.host_rtt(&self.params))
    }

    fn smoothed(&self) -> Smoothed {
        self.active.as_ref().map_or(self.rtt, |a| a.rtt.all)
    }

    /// Least RTT of the last 5 to 10 s; the configured one before the first sample.
    pub fn rtt_min(&self) -> Span {
        match self.active.as_ref().map_or(self.rtt_ns_min, |a| a.rtt.min_ns()) {
            0 => Span(u64::from(self.params.rtt_ns_initial)),
            ns => Span(u64::from(ns)),
        }
    }

    /// Retransmission timeout of a packet on `path`: SRTT + 4 deviations, floor and ceiling from
    /// the configuration, doubled by each timeout of the path in a row; at least 1.5
    /// turns of the host's engines.
    pub fn rto(&self, path: u8) -> Span {
        let known = self.active.as_ref().map(|a| a.set.get(path));
        let (rtt, timeouts) = known.map_or((Smoothed::default(), 0), |e| (e.rtt, e.timeouts));
        let least = TAIL_PROBE.of_span(self.turn());
        rtt::rto(&self.params, rtt, self.smoothed(), timeouts).max(least) + self.host_wait()
    }

    /// Time within which a probe should be answered, whatever path it takes and however many
    /// timeouts that path has had.
    pub(crate) fn answer_wait(&self) -> Span {
        let rto = rtt::rto(&self.params, Smoothed::default(), self.smoothed(), 0);
        self.tlp_delay().max(rto + self.host_wait())
    }

    /// Least RTT with a packet of each engine of this host before one's own; zero for one engine.
    /// Rule CC-50.
    pub(crate) fn turn(&self) -> Span {
        self.active.as_ref().map_or(Span::ZERO, |a| a.turn(&self.params))
    }

    fn widening(&self) -> Span {
        if !self.params.guards.has(Guard::Widen) {
            return Span::ZERO;
        }
        self.active.as_ref().map_or(Span::ZERO, |a| a.rtt.widening(self.srtt()))
    }

    /// Reordering slack: how much later than a packet another one must have been sent to prove, by
    /// its acknowledgment, that the first is lost. Half of the smoothed RTT with a floor, more
    /// after spurious losses.
    pub fn reorder_slack(&self) -> Span {
        let floor = Span(u64::from(self.params.floors.reorder_ns()));
        SLACK_CROSS.of_span(self.srtt().max(self.turn())).max(floor) + self.widening()
    }

    /// Tail-loss probe timeout: 1.5 times the smoothed RTT, or the turn of the host's engines, with
    /// a floor, plus the delay in the hosts.
    pub fn tlp_delay(&self) -> Span {
        let usual = self.srtt().max(self.turn());
        TAIL_PROBE.of_span(usual).max(Span(u64::from(self.params.floors.tail_ns())))
            + self.host_wait()
    }

    /// The same timeout while only a few packets are in flight: it follows from the RTT of paths
    /// that are not late, and excludes the delay in the hosts, because such copies are limited in
    /// number (see `tx/loss.rs`).
    pub fn hedge_delay(&self) -> Span {
        let known = self.active.as_ref().map_or(Smoothed::default(), |a| a.rtt.on_time);
        if known.srtt_ns == 0 {
            return self.tlp_delay();
        }
        let usual = u64::from(known.srtt_ns).max(self.turn().0);
        let ns = known.timeout_ns().max(HEDGE.of(usual));
        Span(ns.max(self.params.floors.hedge_ns().into())).min(self.tlp_delay())
    }
}
