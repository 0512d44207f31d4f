//! BBR version 1, as in the Linux kernel (`tcp_bbr.c`; Cardwell et al., "BBR: congestion-based
//! congestion control", ACM Queue 2016): the path is modelled by its bandwidth (largest delivery
//! rate of ten rounds) and its least round trip of ten seconds. Segments are paced at the
//! bandwidth, and about two bandwidth-delay products may be in flight.

use super::Window;
use srd_fabric::rng::mix64;
use srd_fabric::{MS, Ps, SEC};

/// Gain of the start: 2 / ln 2, the least with which the rate doubles each round.
const HIGH_GAIN: f64 = 2_885.0 / 1_000.0;
/// Gain that empties in one round the queue that the start built.
const DRAIN_GAIN: f64 = 1_000.0 / 2_885.0;
/// Gains of the eight phases of the steady state, each a least round trip long.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Bandwidth-delay products that may be in flight in the steady state.
const CWND_GAIN: f64 = 2.0;
/// Rounds over which the largest delivery rate is taken.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Growth of the bandwidth, and rounds without it, after which the pipe counts as full.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Pacing is this much below the bandwidth, so that no queue stands.
const PACING_MARGIN: f64 = 0.99;
/// Segments that are in flight at least, and while the least round trip is measured.
const WINDOW_MIN: u32 = 4;
/// Age from which the least round trip is measured again, and for how long.
const MIN_RTT_AGE: Ps = 10 * SEC;
const PROBE_RTT_TIME: Ps = 200 * MS;
/// Rounds of each of the two slots in which the largest excess of acknowledgments is kept.
const EXTRA_ROUNDS: u32 = 5;
/// Time at the bandwidth to which that excess is limited.
const EXTRA_TIME: Ps = 100 * MS;
/// Segments after which an epoch of the excess ends.
const EPOCH_SEGMENTS: u64 = 0xF_FFFF;

/// A delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Segments delivered over `interval_ps`.
    pub delivered: u64,
    /// Segments that were delivered in all when the newest acknowledged one was sent.
    pub prior_delivered: u64,
    /// Time over which they were delivered; `None`: shorter than the least round trip, which is no
    /// measurement.
    pub interval_ps: Option<Ps>,
    /// The application had less to send than the window permitted.
    pub limited: bool,
}

/// What the sender repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repair {
    /// Nothing.
    Nothing,
    /// Losses, in fast recovery.
    Losses,
    /// Everything, after a timeout.
    Timeout,
}

/// An acknowledgement as BBR reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub now: Ps,
    pub sample: Option<Sample>,
    /// Segments newly acknowledged, and newly marked lost.
    pub acked: u32,
    pub lost: u32,
    pub rtt: Option<Ps>,
    /// Segments in flight after and before the acknowledgement.
    pub flight: u32,
    pub flight_prior: u32,
    /// Segments delivered in all.
    pub delivered: u64,
    pub repair: Repair,
}

/// What BBR does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BbrMode {
    /// Finds the bandwidth: the rate grows by 2.885 per round.
    Startup,
    /// Empties the queue that the start built.
    Drain,
    /// The steady state, in eight phases.
    ProbeBw,
    /// Four segments in flight, to measure the least round trip.
    ProbeRtt,
}

/// State of BBR.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mode: BbrMode,
    /// Largest delivery rates, segments per second, with their rounds; decreasing.
    rates: Vec<(u64, f64)>,
    min_rtt: Ps,
    min_rtt_at: Ps,
    round: u64,
    round_start: bool,
    /// A round ends when a segment sent after this many deliveries is acknowledged.
    round_end: u64,
    full: bool,
    full_rate: f64,
    full_rounds: u32,
    phase: usize,
    phase_at: Ps,
    pacing_gain: f64,
    cwnd_gain: f64,
    /// Pacing rate, segments per second.
    pace: f64,
    /// Whether a round trip has been measured, on which the first pacing rate is based.
    seen_rtt: bool,
    /// Largest number of segments handed to the card at once.
    burst: u32,
    initial: u32,
    seed: u64,
    idle_restart: bool,
    probe_done_at: Option<Ps>,
    probe_round_done: bool,
    window_prior: u32,
    repair_prior: Repair,
    /// In the first round of a recovery as much is sent as arrives.
    conserve: bool,
    epoch_at: Ps,
    epoch_acked: u64,
    extra: [u32; 2],
    extra_at: usize,
    extra_rounds: u32,
}

impl Bbr {
    /// A connection's state before its first acknowledgement. `seed`: decides the first phase of
    /// the steady state.
    pub fn new(initial: u32, burst: u32, seed: u64) -> Self {
        Self {
            mode: BbrMode::Startup,
            rates: Vec::new(),
            min_rtt: Ps::MAX,
            min_rtt_at: 0,
            round: 0,
            round_start: false,
            round_end: 0,
            full: false,
            full_rate: 0.0,
            full_rounds: 0,
            phase: 0,
            phase_at: 0,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            // Without a round trip the kernel assumes 1 ms.
            pace: HIGH_GAIN * f64::from(initial) * SEC as f64 / MS as f64,
            seen_rtt: false,
            burst: burst.max(2),
            initial,
            seed,
            idle_restart: false,
            probe_done_at: None,
            probe_round_done: false,
            window_prior: 0,
            repair_prior: Repair::Nothing,
            conserve: false,
            epoch_at: 0,
            epoch_acked: 0,
            extra: [0; 2],
            extra_at: 0,
            extra_rounds: 0,
        }
    }

    pub const fn mode(&self) -> BbrMode {
        self.mode
    }

    /// Pacing rate, segments per second.
    pub const fn pace(&self) -> f64 {
        self.pace
    }

    /// Bandwidth of the path, segments per second.
    pub fn bandwidth(&self) -> f64 {
        self.rates.first().map_or(0.0, |(_, rate)| *rate)
    }

    /// The handshake has measured a round trip.
    pub fn opened(&mut self, now: Ps, rtt: Ps, window: u32) {
        (self.min_rtt, self.min_rtt_at) = (rtt, now);
        self.first_pace(rtt, window);
    }

    fn first_pace(&mut self, rtt: Ps, window: u32) {
        self.seen_rtt = true;
        self.pace = HIGH_GAIN * f64::from(window) * SEC as f64 / rtt.max(1) as f64;
    }

    /// Evaluates an acknowledgement and sets the window. Returns whether the connection is to count
    /// as limited by its application, because the least round trip is being measured.
    pub fn on_ack(&mut self, r: &Report, window: &mut Window) -> bool {
        self.bandwidth_update(r);
        self.extra_update(r, window.size);
        self.phase_update(r);
        self.full_check(r);
        self.drain_check(r);
        let limited = self.min_rtt_update(r, window);
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            BbrMode::Startup => (HIGH_GAIN, HIGH_GAIN),
            BbrMode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            BbrMode::ProbeBw => (CYCLE[self.phase], CWND_GAIN),
            BbrMode::ProbeRtt => (1.0, 1.0),
        };
        if let Some(rtt) = r.rtt.filter(|_| !self.seen_rtt) {
            self.first_pace(rtt, window.size);
        }
        self.pace_set(self.pacing_gain);
        self.window_set(r, window);
        limited
    }

    fn pace_set(&mut self, gain: f64) {
        let pace = self.bandwidth() * gain * PACING_MARGIN;
        if pace > 0.0 && (self.full || pace > self.pace) {
            self.pace = pace;
        }
    }

    /// Segments of `gain` bandwidth-delay products, and room for bursts and delayed acks.
    fn inflight(&self, gain: f64) -> u32 {
        self.room_add(self.bdp(gain))
    }

    fn bdp(&self, gain: f64) -> u32 {
        if self.min_rtt == Ps::MAX {
            return self.initial;
        }
        let bdp = self.bandwidth() * self.min_rtt as f64 / SEC as f64;
        ceil(bdp * gain)
    }

    fn room_add(&self, segments: u32) -> u32 {
        let even = (segments.saturating_add(3 * self.burst + 1)) & !1;
        even + if self.mode == BbrMode::ProbeBw && self.phase == 0 { 2 } else { 0 }
    }

    fn bandwidth_update(&mut self, r: &Report) {
        self.round_start = false;
        let Some(sample) = r.sample else { return };
        let Some(interval) = sample.interval_ps.filter(|ps| *ps > 0) else { return };
        if sample.prior_delivered >= self.round_end {
            self.round_end = r.delivered;
            self.round += 1;
            self.round_start = true;
            self.conserve = false;
        }
        let rate = sample.delivered as f64 * SEC as f64 / interval as f64;
        if !sample.limited || rate >= self.bandwidth() {
            while self.rates.last().is_some_and(|(_, lower)| *lower <= rate) {
                self.rates.pop();
            }
            self.rates.push((self.round, rate));
        }
        let oldest = self.round.saturating_sub(BANDWIDTH_ROUNDS);
        while self.rates.len() > 1 && self.rates[0].0 < oldest {
            self.rates.remove(0);
        }
    }

    /// Measures by how much acknowledgements run ahead of the bandwidth, as those of delayed or
    /// aggregated acks do.
    fn extra_update(&mut self, r: &Report, window: u32) {
        let valid = r.sample.is_some_and(|s| s.interval_ps.is_some());
        if r.acked == 0 || !valid {
            return;
        }
        if self.round_start {
            self.extra_rounds += 1;
            if self.extra_rounds >= EXTRA_ROUNDS {
                self.extra_rounds = 0;
                self.extra_at ^= 1;
                self.extra[self.extra_at] = 0;
            }
        }
        let passed = r.now.saturating_sub(self.epoch_at) as f64 / SEC as f64;
        let mut expected = (self.bandwidth() * passed) as u64;
        if self.epoch_acked <= expected || self.epoch_acked + u64::from(r.acked) >= EPOCH_SEGMENTS {
            (self.epoch_acked, self.epoch_at, expected) = (0, r.now, 0);
        }
        self.epoch_acked += u64::from(r.acked);
        let extra = (self.epoch_acked - expected).min(window.into()) as u32;
        self.extra[self.extra_at] = self.extra[self.extra_at].max(extra);
    }

    fn extra_window(&self) -> u32 {
        if !self.full {
            return 0;
        }
        let most = self.bandwidth() * EXTRA_TIME as f64 / SEC as f64;
        self.extra[0].max(self.extra[1]).min(most as u32)
    }

    /// Moves to the next phase of the steady state when it is due.
    fn phase_update(&mut self, r: &Report) {
        if self.mode != BbrMode::ProbeBw {
            return;
        }
        let whole = r.now.saturating_sub(self.phase_at) > self.min_rtt;
        let gain = CYCLE[self.phase];
        let next = if gain > 1.0 {
            whole && (r.lost > 0 || r.flight_prior >= self.inflight(gain))
        } else {
            whole || gain < 1.0 && r.flight_prior <= self.inflight(1.0)
        };
        if next {
            self.phase = (self.phase + 1) % CYCLE.len();
            self.phase_at = r.now;
        }
    }

    fn full_check(&mut self, r: &Report) {
        if self.full || !self.round_start || r.sample.is_none_or(|s| s.limited) {
            return;
        }
        if self.bandwidth() >= self.full_rate * FULL_GROWTH {
            (self.full_rate, self.full_rounds) = (self.bandwidth(), 0);
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    fn drain_check(&mut self, r: &Report) {
        if self.mode == BbrMode::Startup && self.full {
            self.mode = BbrMode::Drain;
        }
        if self.mode == BbrMode::Drain && r.flight <= self.inflight(1.0) {
            self.cruise(r.now);
        }
    }

    /// Enters the steady state in any phase but that which drains.
    fn cruise(&mut self, now: Ps) {
        self.mode = BbrMode::ProbeBw;
        let drawn = mix64(self.seed ^ now) % (CYCLE.len() as u64 - 1);
        self.phase = (CYCLE.len() - drawn as usize) % CYCLE.len();
        self.phase_at = now;
    }

    fn min_rtt_update(&mut self, r: &Report, window: &mut Window) -> bool {
        let expired = r.now > self.min_rtt_at.saturating_add(MIN_RTT_AGE);
        if let Some(rtt) = r.rtt.filter(|rtt| *rtt < self.min_rtt || expired) {
            (self.min_rtt, self.min_rtt_at) = (rtt, r.now);
        }
        if expired && !self.idle_restart && self.mode != BbrMode::ProbeRtt {
            self.mode = BbrMode::ProbeRtt;
            self.window_save(window.size);
            self.probe_done_at = None;
        }
        let probing = self.mode == BbrMode::ProbeRtt;
        if probing {
            match self.probe_done_at {
                None if r.flight <= WINDOW_MIN => {
                    self.probe_done_at = Some(r.now + PROBE_RTT_TIME);
                    self.probe_round_done = false;
                    self.round_end = r.delivered;
                }
                None => {}
                Some(_) => {
                    self.probe_round_done |= self.round_start;
                    if self.probe_round_done {
                        self.probe_check(r.now, window);
                    }
                }
            }
        }
        if r.sample.is_some_and(|s| s.delivered > 0) {
            self.idle_restart = false;
        }
        probing
    }

    fn probe_check(&mut self, now: Ps, window: &mut Window) {
        if self.probe_done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.min_rtt_at = now;
        window.size = window.size.max(self.window_prior);
        if self.full { self.cruise(now) } else { self.mode = BbrMode::Startup }
    }

    fn window_set(&mut self, r: &Report, window: &mut Window) {
        if r.acked > 0 && !self.window_repair(r, window) {
            let target =
                self.room_add(self.bdp(self.cwnd_gain).saturating_add(self.extra_window()));
            if self.full {
                window.size = window.size.saturating_add(r.acked).min(target);
            } else if window.size < target || r.delivered < u64::from(self.initial) {
                window.size = window.size.saturating_add(r.acked);
            }
            window.size = window.size.max(WINDOW_MIN);
        }
        if self.mode == BbrMode::ProbeRtt {
            window.size = window.size.min(WINDOW_MIN);
        }
    }

    /// The window while losses are repaired, and after it. True while it follows deliveries alone.
    fn window_repair(&mut self, r: &Report, window: &mut Window) -> bool {
        if r.lost > 0 {
            window.size = window.size.saturating_sub(r.lost).max(1);
        }
        let before = std::mem::replace(&mut self.repair_prior, r.repair);
        if r.repair == Repair::Losses && before != Repair::Losses {
            self.conserve = true;
            self.round_end = r.delivered;
            window.size = r.flight + r.acked;
        } else if before > Repair::Nothing && r.repair == Repair::Nothing {
            window.size = window.size.max(self.window_prior);
            self.conserve = false;
        }
        if self.conserve {
            window.size = window.size.max(r.flight + r.acked);
        }
        self.conserve
    }

    /// Remembers the window to which it returns after a repair or a measurement.
    pub fn window_save(&mut self, size: u32) {
        let undisturbed = self.repair_prior == Repair::Nothing && self.mode != BbrMode::ProbeRtt;
        self.window_prior = if undisturbed { size } else { self.window_prior.max(size) };
    }

    /// A retransmission timeout: the bandwidth is found anew.
    pub const fn timed_out(&mut self) {
        self.repair_prior = Repair::Timeout;
        self.full_rate = 0.0;
        self.round_start = true;
    }

    /// A loss proved spurious.
    pub const fn undone(&mut self) {
        (self.full_rate, self.full_rounds) = (0.0, 0);
    }

    /// Sending resumes with nothing in flight. `limited`: the application had nothing to send.
    pub fn resumed(&mut self, now: Ps, limited: bool) {
        if !limited {
            return;
        }
        self.idle_restart = true;
        (self.epoch_at, self.epoch_acked) = (now, 0);
        if self.mode == BbrMode::ProbeBw {
            self.pace_set(1.0);
        }
    }
}

fn ceil(x: f64) -> u32 {
    let whole = x as u32;
    if f64::from(whole) < x { whole.saturating_add(1) } else { whole }
}
