//! Round-trip times: smoothed per path and per peer, least per peer, and the widening of the
//! reordering slack.

use crate::params::{Params, ns32};
use crate::time::{Span, Time};
use crate::tuning::{
    BASE_WINDOW_HALF, NARROW_ROUNDS, OWN_LINKS, RTO_CEILING_RTTS, RTO_DEVIATIONS,
    RTO_DOUBLINGS_MAX, RTO_MARGIN, RTO_UNKNOWN_RTTS, RTT_BELIEVED, RTT_BELIEVED_INVERSE,
    RTT_VAR_GAIN, SLACK_WIDENING, SRTT_GAIN, TARGET, WIDEN_MAX,
};

/// Smoothed RTT and its mean deviation in ns. Gains 1/8 and 1/4 (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Smoothed {
    /// 0 = no sample yet.
    pub srtt_ns: u32,
    pub var_ns: u32,
}

impl Smoothed {
    pub(crate) fn on_sample(&mut self, ns: u32) {
        if self.srtt_ns == 0 {
            *self = Self { srtt_ns: ns.max(1), var_ns: ns / 2 };
            return;
        }
        let off = self.srtt_ns.abs_diff(ns);
        self.var_ns = self.var_ns - self.var_ns / RTT_VAR_GAIN + off / RTT_VAR_GAIN;
        self.srtt_ns = (self.srtt_ns - self.srtt_ns / SRTT_GAIN + ns / SRTT_GAIN).max(1);
    }

    /// `srtt + 4 var`, the base of a retransmission timeout; with a margin above the smoothed RTT
    /// where no deviation has been seen (RFC 6298's G).
    pub(crate) fn timeout_ns(self) -> u64 {
        let deviations = RTO_DEVIATIONS * u64::from(self.var_ns);
        u64::from(self.srtt_ns) + deviations.max(RTO_MARGIN.of(self.srtt_ns.into()))
    }
}

/// Windowed minimum: the least sample of the present half window and of the previous one;
/// `u32::MAX` without any.
#[derive(Clone, Copy, Debug)]
struct Least {
    now: u32,
    before: u32,
}

impl Least {
    fn known(before: u32) -> Self {
        Self { now: u32::MAX, before }
    }

    fn get(&self) -> u32 {
        self.now.min(self.before)
    }

    fn on_sample(&mut self, ns: u32) {
        self.now = self.now.min(ns);
    }

    fn half_end(&mut self) {
        self.before = core::mem::replace(&mut self.now, u32::MAX);
    }
}

/// RTTs of a peer over all its paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// All samples, including the full delay of the acknowledgment.
    pub all: Smoothed,
    /// Samples of paths that were not late, without the excess delay of the acknowledgment.
    pub on_time: Smoothed,
    /// Least round trip without the delays that hosts reported.
    least: Least,
    /// Least whole round trip, as measured here.
    whole: Least,
    /// Least round trip of full packets, without the delays that hosts reported.
    full: Least,
    /// Cached result of [`Self::min_ns`].
    base_ns: u32,
    /// Least RTT that other engines of this host measured; `u32::MAX` = none.
    hint_ns: u32,
    half_began: Time,
    widened: u8,
    rounds_quiet: u8,
}

impl Rtt {
    /// Starts from the summary of a context that had shrunk (zeros: nothing known).
    pub(crate) fn new(now: Time, all: Smoothed, min_ns: u32) -> Self {
        let least = if min_ns == 0 { u32::MAX } else { min_ns };
        Self {
            all,
            on_time: Smoothed::default(),
            base_ns: min_ns,
            hint_ns: u32::MAX,
            least: Least::known(least),
            // The remembered least RTT stays above the floor, and does not lower the floor further.
            whole: Least::known(
                RTT_BELIEVED_INVERSE.of(least.into()).try_into().unwrap_or(u32::MAX),
            ),
            full: Least::known(u32::MAX),
            half_began: now,
            widened: 0,
            rounds_quiet: 0,
        }
    }

    /// Takes a sample; returns by how many ns it exceeds the least RTT. `whole_ns`: round trip
    /// measured here; `ns`: the same without the delays that the peer reported and without
    /// `back_ns`; `back_ns`: one-way delay of the acknowledgment above the recent minimum.
    /// Rule CC-03.
    pub(crate) fn on_sample(&mut self, now: Time, ns: u32, whole_ns: u32, back_ns: u32) -> u32 {
        self.all.on_sample(ns.saturating_add(back_ns));
        if now.since(self.half_began) > BASE_WINDOW_HALF {
            self.half_began = now;
            self.least.half_end();
            self.whole.half_end();
            self.full.half_end();
        }
        self.least.on_sample(ns);
        self.whole.on_sample(whole_ns);
        self.base_ns = self.least.get().min(self.hint_ns).max(self.floor_ns());
        debug_assert!(self.base_ns > 0, "zero would read as no sample");
        ns.saturating_sub(self.base_ns)
    }

    /// Takes a sample of a full packet, after [`Self::on_sample`]. Returns [`Self::own_ns`].
    pub(crate) fn on_full(&mut self, p: &Params, ns: u32) -> u32 {
        self.full.on_sample(ns);
        self.own_ns(p)
    }

    /// By how many ns the least RTT of a full packet exceeds the least RTT, which may be that of a
    /// small one: its own transmission on each link of the way. A queue that never was empty while
    /// full packets left must not pass for it, so it is bounded.
    pub(crate) fn own_ns(&self, p: &Params) -> u32 {
        let full = self.full.get();
        if full == u32::MAX {
            return 0;
        }
        let once = u64::from(p.mtu) * 1_000_000_000 / p.line.bytes_per_sec().max(1);
        full.saturating_sub(self.base_ns).min(ns32(Span(OWN_LINKS * once)))
    }

    /// Least RTT in ns; 0 before the first sample.
    pub(crate) fn min_ns(&self) -> u32 {
        self.base_ns
    }

    /// Least RTT that this engine measured itself, in ns; 0 before the first sample.
    pub(crate) fn least_ns(&self) -> u32 {
        let least = self.least.get();
        if least == u32::MAX { 0 } else { least }
    }

    /// The paths that had the least RTT are out of use or became longer, and that of those in use
    /// is `ns`.
    pub(crate) fn least_raise(&mut self, ns: u32) {
        if ns <= self.least.get() {
            return;
        }
        (self.least, self.full) = (Least::known(ns), Least::known(u32::MAX));
        self.base_ns = ns.min(self.hint_ns).max(self.floor_ns());
        debug_assert!(self.base_ns > 0, "zero would read as no sample");
    }

    /// Takes the least RTT that other engines of this host measured, in ns; 0: none. It is never
    /// passed on as this engine's own measurement; otherwise it would never expire.
    pub(crate) fn hint(&mut self, ns: u32) {
        self.hint_ns = if ns == 0 { u32::MAX } else { ns };
    }

    /// Lower bound of the least RTT in ns: three quarters of the shortest round trip measured here,
    /// whatever delays the peer reports. Honest peers occasionally answer sooner than usual, so
    /// larger reports are used in full for other packets; a peer that lies lowers the least RTT by
    /// a quarter at most.
    pub(crate) fn floor_ns(&self) -> u32 {
        let whole = self.whole.get();
        if whole == u32::MAX || planted!(WaitBelieved) {
            0
        } else {
            RTT_BELIEVED.of(whole.into()) as u32
        }
    }

    /// A loss was spurious: widens the reordering slack by one step.
    pub(crate) fn on_spurious(&mut self) {
        debug_assert!(self.widened <= WIDEN_MAX, "the slack is bounded");
        self.widened = (self.widened + 1).min(WIDEN_MAX);
        self.rounds_quiet = 0;
    }

    /// A round has ended: after enough rounds without a spurious loss, the slack narrows by one
    /// step.
    pub(crate) fn on_round(&mut self) {
        self.rounds_quiet += 1;
        if self.rounds_quiet >= NARROW_ROUNDS {
            self.rounds_quiet = 0;
            self.widened = self.widened.saturating_sub(1);
        }
    }

    /// What spurious losses have added to the reordering slack.
    pub(crate) fn widening(&self, srtt: Span) -> Span {
        SLACK_WIDENING.of_span(srtt).scale(self.widened.into(), 1)
    }
}

/// Retransmission timeout of a path: not below that of all paths together, doubled for each of
/// `timeouts` in a row. The ceiling is at least two RTTs; a lower one would retransmit packets that
/// are still under way.
/// Rule CC-12.
pub(crate) fn rto(p: &Params, path: Smoothed, all: Smoothed, timeouts: u8) -> Span {
    let first = if all.srtt_ns == 0 {
        RTO_UNKNOWN_RTTS * u64::from(p.rtt_ns_initial)
    } else {
        all.timeout_ns()
    };
    let base = first.max(path.timeout_ns()).max(u64::from(p.floors.timeout_ns()));
    let ceiling = u64::from(p.rto_ns_max).max(RTO_CEILING_RTTS * u64::from(all.srtt_ns));
    Span((base << timeouts.min(RTO_DOUBLINGS_MAX)).min(ceiling))
}

/// Queueing-delay target for a least RTT: three quarters of it, but not below the floor that
/// follows from the noise of the host.
pub(crate) fn target(p: &Params, base_ns: u32) -> Span {
    Span(TARGET.of(base_ns.into()).max(u64::from(p.floors.target_ns())))
}

/// An RTT sample in ns as 32 bits, at least 1, since zero means "no sample".
pub(crate) fn sample_ns(rtt: Span) -> u32 {
    ns32(rtt).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_later_than_the_usual_round_trip_although_none_deviated() {
        let steady = Smoothed { srtt_ns: 160_000, var_ns: 0 };
        assert_eq!(steady.timeout_ns(), 170_000);
        assert_eq!(Smoothed { var_ns: 10_000, ..steady }.timeout_ns(), 200_000);
    }
}
