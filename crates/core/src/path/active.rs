//! The part of a path and rate context that exists while it is used.

use super::ack_path::AckPaths;
use super::health::{Around, Evidence, Health, Loss};
use super::rtt::{self, Rtt, Smoothed};
use super::set::{PathSet, PathState};
use super::{Gate, PathStats, Sample};
use crate::events::LossRule;
use crate::guards::Guard;
use crate::params::{Params, ns32};
use crate::rate::credit::Credit;
use crate::rate::pacing::Pacing;
use crate::rate::{Link, RateControl, RateState, RoundMeter};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{
    CREDIT_PATIENCE_RTTS, DELIVERED_KEPT, DROP_CAP, DROP_CAP_PKTS_MIN, DROP_CAP_RISE, ECHO_PKTS,
    HOST_COVERED, HOST_HALF_LIFE, HOST_NS_MAX, LATE_RTTS, OPENING_RTTS, PROOF_RTTS, RESTART_RTTS,
    SILENCE_OF_RTT, SILENCE_OF_TIMEOUT, UNEVEN, UNPROVEN_PKTS_MAX,
};

#[derive(Debug)]
pub(crate) struct ActivePaths {
    pub set: PathSet,
    pub rtt: Rtt,
    pub health: Health,
    pub ack_paths: AckPaths,
    pub pacing: Pacing,
    pub meter: RoundMeter,
    pub rate: RateState,
    pub inflight: u64,
    /// In effect: the policy's, and what the drops of the peer's receive queue taught.
    pub inflight_max: u64,
    /// Cap after drops of the peer's receive queue; `u64::MAX` = none.
    drop_cap: u64,
    drop_cap_at: Time,
    /// The most that the hosts lately took of a round trip, on top of the network, and when.
    host_ns: u64,
    host_at: Time,
    /// Bytes per second that lately arrived: the newest round, or a slowly sinking peak.
    delivered: u64,
    /// Queueing delay of the newest echo.
    queue_ns_last: u32,
    /// Queueing delay of the median path in the last round.
    queue_ns_usual: u32,
    /// Lateness of paths that were used again all the same.
    late_ns: u64,
    /// At the newest acknowledgment all that had been posted was sent.
    app_limited: bool,
    /// Packets acknowledged beyond those that echoes stand for; below zero: saved up.
    unproven: i32,
    /// Packets that left alone, on a path that is trusted.
    pub lone: u32,
    /// It is time to ask how another path does.
    pub explore: bool,
}

impl ActivePaths {
    pub(crate) fn new(p: &Params, now: Time, all: Smoothed, rtt_ns_min: u32, salt: u32) -> Self {
        let mut set = PathSet::new(p.paths, salt);
        let mut order = Rng::from_seed(u64::from(salt));
        let rate = RateState::new(p);
        let mut active = Self {
            ack_paths: AckPaths::new(&mut set, &mut order),
            set,
            rtt: Rtt::new(now, all, rtt_ns_min),
            health: Health::new(now),
            pacing: Pacing::new(now, rate.rate(), p.burst_bytes, p.mtu),
            meter: RoundMeter::new(now),
            rate,
            inflight: 0,
            inflight_max: 0,
            drop_cap: u64::MAX,
            drop_cap_at: now,
            host_ns: 0,
            host_at: now,
            delivered: 0,
            queue_ns_last: 0,
            queue_ns_usual: 0,
            late_ns: 0,
            app_limited: false,
            unproven: 0,
            lone: 0,
            explore: false,
        };
        active.cap_update(p);
        active
    }

    /// Retires the paths of a bitmap, without telling anybody.
    pub(crate) fn retire_all(&mut self, p: &Params, now: Time, mut bits: u64) {
        while bits != 0 {
            self.health.retire(p, &mut self.set, now, bits.trailing_zeros() as u8);
            bits &= bits - 1;
        }
    }

    fn link_now(&self, p: &Params) -> Link {
        // Three quarters: what waits in the peer's socket because of us must not feed on itself.
        let host_bytes = Link::bytes(self.delivered, HOST_COVERED.of(self.host_delay(p).0));
        Link { host_bytes, ..Self::link(p, self.rtt.min_ns(), self.rtt.all.srtt_ns) }
    }

    fn link(p: &Params, rtt_ns_min: u32, srtt_ns: u32) -> Link {
        let base = if rtt_ns_min == 0 { p.rtt_ns_initial } else { rtt_ns_min };
        Link {
            line: p.line_bytes_per_sec,
            base_ns: u64::from(base),
            base_known: rtt_ns_min != 0,
            srtt_ns: u64::from(srtt_ns.max(base)),
            host_bytes: 0,
            burst: u64::from(p.burst_bytes),
            target_ns: rtt::target(p, base).0,
            mtu: u64::from(p.mtu),
            credited: false,
            guards: p.guards,
        }
    }

    /// Bytes that a new context may have in flight, and that need no credit.
    pub(crate) fn window_first(p: &Params, rtt_ns_min: u32) -> u64 {
        RateState::new(p).inflight_max(&Self::link(p, rtt_ns_min, 0))
    }

    /// What the hosts may take of a round trip, beyond the datapath's known noise, at most
    /// [`HOST_NS_MAX`].
    pub(crate) fn host_delay(&self, p: &Params) -> Span {
        Span(self.host_ns.saturating_sub(u64::from(p.floors.target_ns())).min(HOST_NS_MAX))
    }

    /// A peak that halves every [`HOST_HALF_LIFE`]: a busy host is late rarely, but then by much.
    /// Rule CC-02.
    pub(crate) fn on_host_delay(&mut self, p: &Params, now: Time, ns: u64) {
        if !p.guards.has(Guard::HostDelay) {
            return;
        }
        let halvings = now.since(self.host_at).0 / HOST_HALF_LIFE.0;
        if halvings > 0 {
            self.host_ns >>= halvings.min(63);
            self.host_at = now;
        }
        if ns > self.host_ns {
            (self.host_ns, self.host_at) = (ns, now);
            self.cap_update(p);
        }
    }

    pub(crate) fn srtt(&self, p: &Params) -> Span {
        let ns = self.rtt.all.srtt_ns;
        Span(u64::from(if ns == 0 { p.rtt_ns_initial } else { ns }))
    }

    /// Nothing is in flight, and not because the pacer held it back.
    pub(crate) fn is_resting(&self, p: &Params, now: Time) -> bool {
        let last = self.meter.last_sent().max(self.pacing.next());
        self.inflight == 0 && now.since(last) > self.on_time(p)
    }

    /// Smoothed RTT of paths that are not late.
    pub(crate) fn on_time(&self, p: &Params) -> Span {
        match self.rtt.on_time.srtt_ns {
            0 => self.srtt(p),
            ns => Span(u64::from(ns)),
        }
    }

    /// How long ago a path may have come back clean and still be known to be so.
    pub(crate) fn proof_age_max(&self, p: &Params) -> Span {
        self.on_time(p).scale(PROOF_RTTS, 1)
    }

    fn cap_update(&mut self, p: &Params) {
        let policy = self.rate.inflight_max(&self.link_now(p));
        self.inflight_max = policy.min(self.drop_cap).max(u64::from(p.mtu));
    }

    /// Whether nothing more may leave before an acknowledgment comes.
    #[inline(always)]
    pub(crate) fn is_blocked(&self, p: &Params, credit: Option<&Credit>) -> bool {
        let full = || self.inflight_max.saturating_sub(self.inflight) < u64::from(p.mtu);
        self.inflight > 0 && (full() || credit.is_some_and(|c| c.room() == 0))
    }

    #[inline(always)]
    pub(crate) fn gate(&self, p: &Params, now: Time, credit: Option<&Credit>) -> Gate {
        if self.is_blocked(p, credit) {
            return Gate::Blocked;
        }
        let mtu = u64::from(p.mtu);
        let room = self.inflight_max.saturating_sub(self.inflight);
        let mut bytes = u64::from(self.pacing.burst_bytes()).min(room);
        let open_at = self.pacing.next();
        if let Some(credit) = credit {
            match credit.room() {
                0 => {
                    let at = self.meter.last_sent() + self.credit_patience(p);
                    if at > now {
                        return Gate::Uncredited(at);
                    }
                }
                granted => bytes = bytes.min(granted),
            }
        }
        if open_at > now {
            return Gate::Until(open_at);
        }
        Gate::Open { bytes: bytes.max(mtu) as u32 }
    }

    /// With nothing in flight, no acknowledgment brings credit: after this long the first window is
    /// free again. Not longer than a timeout may be: a host that stood still has made round trips
    /// long, and with a window per round trip they would be forgotten only slowly.
    fn credit_patience(&self, p: &Params) -> Span {
        let least = Span(u64::from(self.rtt.min_ns())).scale(CREDIT_PATIENCE_RTTS, 1);
        let longest = Span(u64::from(p.rto_ns_max)).max(least);
        self.srtt(p).scale(CREDIT_PATIENCE_RTTS, 1).min(longest)
    }

    #[inline(always)]
    pub(crate) fn on_sent(
        &mut self,
        p: &Params,
        now: Time,
        path: u8,
        bytes: u32,
        retransmit: bool,
        credit: Option<&mut Credit>,
    ) {
        if let Some(credit) = credit {
            let idle = now.since(self.meter.last_sent()) >= self.credit_patience(p);
            if self.inflight == 0 && idle {
                credit.refill(Self::window_first(p, self.rtt.min_ns()));
            }
            credit.on_sent(bytes);
        }
        self.set.get_mut(path).count_sent();
        // What the pacer held back is no pause: a rate below a packet per round trip would begin a
        // new measurement with each packet, never end one, and so last for ever.
        let pause = self.meter.on_sent(now, bytes).min(now.since(self.pacing.next()));
        let srtt = self.srtt(p);
        if self.inflight == 0 && pause > srtt && !retransmit {
            self.meter.restart(now, bytes);
            // Rule CC-24.
            if p.guards.has(Guard::Restart)
                && pause.0 > RESTART_RTTS * (srtt + self.host_delay(p)).0
            {
                self.rate.on_restart(&self.link_now(p));
                self.rate_apply(p);
            }
        }
        self.inflight += u64::from(bytes);
        self.pacing.on_sent(now, bytes);
    }

    fn rate_apply(&mut self, p: &Params) {
        self.pacing.rate_set(self.rate.rate(), p.burst_bytes, p.mtu);
        self.cap_update(p);
    }

    pub(crate) fn leave_flight(&mut self, bytes: u32) {
        debug_assert!(self.inflight >= u64::from(bytes), "more left flight than was sent");
        self.inflight = self.inflight.saturating_sub(u64::from(bytes));
    }

    /// A packet was said to have arrived.
    pub(crate) fn on_told(&mut self) {
        self.unproven = self.unproven.saturating_add(1);
    }

    /// An echo named a transmission: whoever says so has received it.
    pub(crate) fn on_proof(&mut self) {
        self.unproven = self.unproven.saturating_sub(ECHO_PKTS).max(-UNPROVEN_PKTS_MAX);
    }

    /// Slows down towards a peer that acknowledges far more than it shows to have received. Whoever
    /// invents acknowledgments loses no packet and has no round trip that could be too long.
    /// Rule CC-27.
    fn proof_check(&mut self, p: &Params) {
        if self.unproven >= UNPROVEN_PKTS_MAX {
            self.unproven = 0;
            self.rate.on_unproven(&self.link_now(p));
            self.rate_apply(p);
        }
    }

    pub(crate) fn on_echo(&mut self, p: &Params, now: Time, path: u8, sample: &Sample) {
        let (ns, ce) = (rtt::sample_ns(sample.rtt), sample.ce);
        let base_before = self.rtt.min_ns();
        let whole_ns = rtt::sample_ns(sample.rtt + sample.claimed);
        let queue_ns = self.rtt.on_sample(now, ns, whole_ns, ns32(sample.back));
        self.queue_ns_last = queue_ns;
        let base = self.rtt.min_ns();
        let target = rtt::target(p, base).0;
        let floor_ns = self.rtt.floor_ns();
        let entry = self.set.get_mut(path);
        entry.rtt.on_sample(ns);
        entry.rtt_ns_min = entry.rtt_ns_min.min(ns.max(floor_ns));
        entry.ce = entry.ce.saturating_add(u32::from(ce));
        let late = self.lateness(p, queue_ns, base, target);
        if late == 0 {
            self.rtt.on_time.on_sample(ns);
        }
        self.health.judge(p, &mut self.set, now, path, Evidence::Echo { late });
        if self.set.get(path).is_live() {
            // A mark says "no faster" even where the delay does not show it yet.
            let least = if ce && p.guards.has(Guard::Mark) {
                u32::try_from(target).unwrap_or(u32::MAX)
            } else {
                0
            };
            self.set.touch(path, queue_ns.max(least));
        }
        if base != base_before {
            self.cap_update(p);
        }
    }

    /// How late a path is compared with the median of the last round: 0 = use it again, else
    /// by how many targets (at least 1). Where every path has a queue, because the last hop has one
    /// or all are full, none is to blame for it. Somewhat late paths are given up now and then, in
    /// proportion to their lateness: all senders see the same queue, and if all left it at once
    /// they would only move it.
    /// Rule CC-06.
    fn lateness(&mut self, p: &Params, queue_ns: u32, base_ns: u32, target_ns: u64) -> u64 {
        let more = u64::from(queue_ns.saturating_sub(self.queue_ns_usual));
        self.late_ns += more.min(target_ns);
        let worth = LATE_RTTS * u64::from(base_ns.max(1));
        let given_up = self.late_ns >= worth && p.guards.has(Guard::LateShare);
        if given_up {
            // One very late path must not cost others theirs.
            self.late_ns %= worth;
        }
        (more / target_ns.max(1)).max(u64::from(given_up))
    }

    pub(crate) fn on_ack_end(
        &mut self,
        p: &Params,
        now: Time,
        acked: u32,
        app_limited: bool,
        credited: bool,
    ) {
        let mtu = u64::from(p.mtu);
        self.app_limited = app_limited;
        self.proof_check(p);
        let link = Link { credited, ..self.link_now(p) };
        if acked > 0 && self.rate.on_acked(&link, acked.into(), self.queue_ns_last.into()) {
            self.cap_update(p);
        }
        let ends = p.guards.has(Guard::OpeningEnds);
        let opening_max = if ends {
            Span(OPENING_RTTS * (link.base_ns + link.target_ns))
        } else {
            Span(u64::MAX)
        };
        let round = self.meter.on_ack_end(now, app_limited, mtu, opening_max);
        let Some(mut round) = round else { return };
        self.delivered = round.delivered.max(DELIVERED_KEPT.of(self.delivered));
        let quartiles = self.set.quartiles_take();
        self.queue_ns_usual = quartiles.map_or(0, |(median, _)| median);
        round.queue_ns = quartiles.map(|(median, quartile)| {
            // Rule CC-04.
            // A queue that all share delays all alike. What differs between paths is the host's
            // noise, up to what the datapath is known for, or an uneven fabric.
            let uneven =
                UNEVEN * u64::from(median - quartile) * u64::from(p.guards.has(Guard::Uneven));
            u64::from(median).saturating_sub(uneven.min(u64::from(p.floors.target_ns())))
        });
        self.rtt.on_round();
        if self.drop_cap != u64::MAX {
            let risen = self.drop_cap + DROP_CAP_RISE.of(self.drop_cap).max(1);
            self.drop_cap = if self.inflight_max < self.drop_cap { u64::MAX } else { risen };
        }
        self.rate.on_round(&link, &round);
        self.rate_apply(p);
    }

    pub(crate) fn on_lost(
        &mut self,
        p: &Params,
        now: Time,
        path: u8,
        bytes: u32,
        rule: LossRule,
    ) -> bool {
        self.leave_flight(bytes);
        let entry = self.set.get(path);
        let rto = rtt::rto(p, entry.rtt, self.rtt.all, 0);
        let srtt = self.srtt(p);
        // A peer that stalls just before an acknowledgment is due is silent for `rto - srtt` when
        // the timeout comes.
        let silence_max = SILENCE_OF_TIMEOUT.of_span(rto - srtt).max(SILENCE_OF_RTT.of_span(srtt));
        let silence_max =
            if p.guards.has(Guard::SilenceBlame) { silence_max } else { Span(u64::MAX) };
        let loss = Evidence::Lost(Loss { rule, around: self.around(p), silence_max });
        let judged = self.health.judge(p, &mut self.set, now, path, loss);
        if judged.first {
            self.meter.on_lost(bytes);
        }
        judged.blamed
    }

    pub(crate) fn on_proved_lost(&mut self, p: &Params, now: Time, path: u8, counted: bool) {
        if !p.guards.has(Guard::ProvedLost) {
            return;
        }
        let proved = Evidence::Proved { counted, around: self.around(p) };
        self.health.judge(p, &mut self.set, now, path, proved);
    }

    fn around(&self, p: &Params) -> Around {
        Around { permille: self.meter.lost_permille(), srtt: self.srtt(p) }
    }

    /// Halves what is in flight, at most once per round trip.
    /// Rule CC-26.
    pub(crate) fn on_receiver_drops(&mut self, p: &Params, now: Time) {
        let recent = self.drop_cap != u64::MAX && now.since(self.drop_cap_at) < self.srtt(p);
        if recent || !p.guards.has(Guard::DropCap) {
            return;
        }
        self.drop_cap_at = now;
        let left = DROP_CAP.of(self.inflight.min(self.inflight_max));
        self.drop_cap = left.max(DROP_CAP_PKTS_MIN * u64::from(p.mtu));
        self.cap_update(p);
    }

    /// A loss on `path` was none.
    /// Rule CC-13.
    pub(crate) fn on_spurious(&mut self, p: &Params, now: Time, path: u8) {
        self.rtt.on_spurious();
        self.meter.on_spurious(u64::from(p.mtu));
        if p.guards.has(Guard::Acquit) {
            self.health.judge(p, &mut self.set, now, path, Evidence::Acquitted);
        }
    }

    pub(crate) fn stats(&self, out: &mut Vec<PathStats>) {
        out.extend(self.set.paths.iter().enumerate().map(|(i, e)| PathStats {
            path: i as u8,
            rtt_ns_smoothed: u64::from(e.rtt.srtt_ns),
            rtt_ns_min: if e.rtt_ns_min == u32::MAX { 0 } else { u64::from(e.rtt_ns_min) },
            packets_sent: e.sent(),
            packets_lost: u64::from(e.lost),
            packets_ce: u64::from(e.ce),
            state: match e.state {
                PathState::Live if e.level > 0 => "penalised",
                PathState::Live => "live",
                PathState::Retired => "retired",
                PathState::Probing => "probing",
            },
        }));
    }
}
