//! Round-trip times: smoothed per path and per peer, least per peer, and the slack for reordering.

use crate::params::{Params, ns32};
use crate::time::{Span, Time};
use crate::tuning::{
    BASE_WINDOW_HALF, NARROW_ROUNDS, RTO_CEILING_RTTS, RTO_DEVIATIONS, RTO_DOUBLINGS_MAX,
    RTO_UNKNOWN_RTTS, RTT_BELIEVED, RTT_BELIEVED_INVERSE, RTT_VAR_GAIN, SLACK_WIDENING, SRTT_GAIN,
    TARGET, WIDEN_MAX,
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

    /// `srtt + 4 var`, the base of a retransmission timeout.
    pub(crate) fn timeout_ns(self) -> u64 {
        u64::from(self.srtt_ns) + RTO_DEVIATIONS * u64::from(self.var_ns)
    }
}

/// The least of samples since a half window began, and in the one before; `u32::MAX` without any.
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
    /// With the way back, however long it took.
    pub all: Smoothed,
    /// Of paths that were not late, and without what the way back took too long.
    pub on_time: Smoothed,
    /// Of round trips without what hosts took.
    least: Least,
    /// Of whole round trips, as measured here.
    whole: Least,
    /// [`Self::min_ns`].
    base_ns: u32,
    /// Least of other engines of this host; `u32::MAX` = none.
    hint_ns: u32,
    half_began: Time,
    widened: u8,
    rounds_quiet: u8,
}

impl Rtt {
    /// With what an earlier life of the context knew (zeros: nothing).
    pub(crate) fn new(now: Time, all: Smoothed, min_ns: u32) -> Self {
        let least = if min_ns == 0 { u32::MAX } else { min_ns };
        Self {
            all,
            on_time: Smoothed::default(),
            base_ns: min_ns,
            hint_ns: u32::MAX,
            least: Least::known(least),
            // What was believed stays so, and is no reason to believe still less.
            whole: Least::known(
                RTT_BELIEVED_INVERSE.of(least.into()).try_into().unwrap_or(u32::MAX),
            ),
            half_began: now,
            widened: 0,
            rounds_quiet: 0,
        }
    }

    /// Takes a sample; returns by how many ns it exceeds the least RTT. `whole_ns`: what was
    /// measured here, of which `ns` is left without what the peer says of waits; `back_ns`: what
    /// the way back took longer than others, not in `ns`.
    /// Rule CC-03.
    pub(crate) fn on_sample(&mut self, now: Time, ns: u32, whole_ns: u32, back_ns: u32) -> u32 {
        self.all.on_sample(ns.saturating_add(back_ns));
        if now.since(self.half_began) > BASE_WINDOW_HALF {
            self.half_began = now;
            self.least.half_end();
            self.whole.half_end();
        }
        self.least.on_sample(ns);
        self.whole.on_sample(whole_ns);
        self.base_ns = self.least.get().min(self.hint_ns).max(self.floor_ns());
        debug_assert!(self.base_ns > 0, "zero would read as no sample");
        ns.saturating_sub(self.base_ns)
    }

    /// Least RTT in ns; 0 before the first sample.
    pub(crate) fn min_ns(&self) -> u32 {
        self.base_ns
    }

    /// The least that this engine measured itself in ns; 0 before the first sample.
    pub(crate) fn least_ns(&self) -> u32 {
        let least = self.least.get();
        if least == u32::MAX { 0 } else { least }
    }

    /// What other engines of this host measured at least in ns; 0: nothing. It is never told on as
    /// one's own, or it would never be forgotten.
    pub(crate) fn hint(&mut self, ns: u32) {
        self.hint_ns = if ns == 0 { u32::MAX } else { ns };
    }

    /// No round trip is believed to be shorter, whatever the peer says of how long packets waited
    /// there and how late theirs were: three quarters of the quickest that was measured here.
    /// Honest peers answer sooner now and then, and what they say of other packets is believed
    /// whole; one that lies takes a quarter off.
    pub(crate) fn floor_ns(&self) -> u32 {
        let whole = self.whole.get();
        if whole == u32::MAX || planted!(WaitBelieved) {
            0
        } else {
            RTT_BELIEVED.of(whole.into()) as u32
        }
    }

    /// A loss was none: be more patient.
    pub(crate) fn on_spurious(&mut self) {
        debug_assert!(self.widened <= WIDEN_MAX, "the slack is bounded");
        self.widened = (self.widened + 1).min(WIDEN_MAX);
        self.rounds_quiet = 0;
    }

    /// An RTT has passed.
    pub(crate) fn on_round(&mut self) {
        self.rounds_quiet += 1;
        if self.rounds_quiet >= NARROW_ROUNDS {
            self.rounds_quiet = 0;
            self.widened = self.widened.saturating_sub(1);
        }
    }

    /// What reordering feedback adds to the slack of both rules.
    pub(crate) fn widening(&self, srtt: Span) -> Span {
        SLACK_WIDENING.of_span(srtt).scale(self.widened.into(), 1)
    }
}

/// Retransmission timeout of a path: never under what all paths together suggest, backed off by the
/// timeouts in a row. A ceiling below two RTTs would only repeat what is still under way.
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

/// Queueing-delay target for a least RTT: three quarters of it, at least the datapath's noise.
pub(crate) fn target(p: &Params, base_ns: u32) -> Span {
    Span(TARGET.of(base_ns.into()).max(u64::from(p.floors.target_ns())))
}

/// An RTT sample as 32 bits; zero would read as "none".
pub(crate) fn sample_ns(rtt: Span) -> u32 {
    ns32(rtt).max(1)
}
