//! The part of a path and rate context that exists while the context is in use.

use super::ack_path::AckPaths;
use super::health::{Health, ProbePay};
use super::host::HostCap;
use super::rails::Rails;
use super::rtt::{self, Rtt, Smoothed};
use super::set::{PathSet, PathState};
use super::share::Share;
use super::{Gate, PathMask, PathStats};
use crate::params::Params;
use crate::rate::credit::Credit;
use crate::rate::pacing::Pacing;
use crate::rate::{Link, RateControl, RateState, RoundMeter};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{
    CREDIT_PATIENCE_RTTS, DROP_CAP_PKTS_MIN, ECHO_PKTS, FLOW_TURN_PKTS, GRANT_STALE, HEDGED_MAX,
    HOST_COVERED, HOST_NS_MAX, HOST_RTT_LEAST_MAX, PATH_BURST, PROBE_RTT_MIN, PROOF_RTTS,
    UNPROVEN_PKTS_MAX, UNSURE_DEVIATIONS,
};

#[derive(Debug)]
pub(crate) struct ActivePaths {
    pub set: PathSet,
    pub rtt: Rtt,
    pub health: Health,
    pub ack_paths: AckPaths,
    /// `None`: there is one.
    pub rails: Option<Box<Rails>>,
    pub pacing: Pacing,
    pub meter: RoundMeter,
    pub rate: RateState,
    pub inflight: u64,
    /// Inflight cap in effect: the least of the rate policy's cap, `drop_cap` and the cap of the
    /// receiving host.
    pub inflight_max: u64,
    /// Inflight cap after drops in the peer's receive queue; `u64::MAX` = none.
    pub drop_cap: u64,
    pub drop_cap_at: Time,
    /// Whether the receiving host has fallen behind.
    pub host: HostCap,
    /// Largest recent delay in the hosts within a round trip (decaying), in ns, and when it was
    /// measured.
    pub host_ns: u32,
    /// Mean of these delays, ns, each with the weight [`HOST_MEAN_GAIN`].
    pub host_mean_ns: u32,
    pub host_at: Time,
    /// Recent delivery rate in bytes per second: that of the newest round, or a decaying peak.
    pub delivered: u64,
    /// Queueing delay of the newest echo.
    pub queue_ns_last: u32,
    /// Queueing delay of the median path in the last round.
    pub queue_ns_usual: u32,
    /// Accumulated lateness of paths that were reused nevertheless, in ns.
    pub late_ns: u64,
    /// At the newest acknowledgment, everything posted had been sent.
    pub app_limited: bool,
    /// The newest acknowledgment came from an engine that grants credits.
    pub credited: bool,
    /// Packets acknowledged beyond those that echoes account for; below zero, echoes account for
    /// more.
    pub unproven: i32,
    /// Lone packets sent on a path because it was clean before.
    pub lone: u32,
    /// The path that was chosen last.
    pub path_last: u8,
    /// A probe of another path is to be sent.
    pub explore: bool,
    /// When a path was last probed for that reason.
    pub explored_at: Time,
    /// This engine's share of the host's rate to the address.
    pub share: Share,
}

impl ActivePaths {
    pub(crate) fn new(p: &Params, now: Time, all: Smoothed, rtt_ns_min: u32, salt: u32) -> Self {
        let mut set = PathSet::new(p.paths, salt);
        // What was chosen before the peer was forgotten may have been of a dead rail.
        let anew = if p.rails > 1 { now.0.rotate_left(32) } else { 0 };
        let mut order = Rng::from_seed(u64::from(salt) ^ anew);
        let link = || Self::link(p, rtt_ns_min, all.srtt_ns).view(now, 0);
        let rate = RateState::new(p, link);
        let mut active = Self {
            ack_paths: AckPaths::new(&mut set, &mut order),
            set,
            rails: Rails::new(p, now),
            rtt: Rtt::new(now, all, rtt_ns_min),
            health: Health::new(now),
            pacing: Pacing::new(now, rate.rate(), p.burst_bytes, p.mtu),
            meter: RoundMeter::new(now),
            rate,
            inflight: 0,
            inflight_max: 0,
            drop_cap: u64::MAX,
            drop_cap_at: now,
            host: HostCap::default(),
            host_ns: 0,
            host_mean_ns: 0,
            host_at: now,
            delivered: 0,
            queue_ns_last: 0,
            queue_ns_usual: 0,
            late_ns: 0,
            app_limited: false,
            credited: false,
            unproven: 0,
            lone: 0,
            path_last: 0,
            explore: false,
            explored_at: Time(0),
            share: Share::ALONE,
        };
        active.cap_update(p);
        active
    }

    /// Retires the paths of `mask`, without reporting changes.
    pub(crate) fn retire_all(&mut self, p: &Params, now: Time, mask: &PathMask) {
        if mask.is_empty() {
            return;
        }
        for i in 0..self.set.paths.len() {
            if mask.has(i as u8) {
                self.health.retire(p, &mut self.set, now, i as u8);
                self.set.told_set(i as u8);
            }
        }
    }

    /// A path for an acknowledgment that would take `path`: another one while its rail is in doubt.
    #[inline(always)]
    pub(super) fn rail_of_ack(&mut self, path: u8, rng: &mut Rng) -> u8 {
        let patience = || self.ack_paths.patience();
        match &mut self.rails {
            Some(rails) => rails.ack_path(&mut self.set, path, patience(), rng),
            None => path,
        }
    }

    pub(super) fn link_now(&self, p: &Params) -> Link {
        // Three quarters of the delay: covering all of it would let our own backlog in the peer's
        // socket grow by itself.
        let covered = if self.host.is_swamped() { 0 } else { self.host_delay(p).0 };
        let delivered = self.share.whole_of(self.delivered);
        let host_bytes = Link::bytes(delivered, HOST_COVERED.of(covered));
        let link = Self::link(p, self.rtt.min_ns(), self.rtt.all.srtt_ns);
        let slack = (link.srtt_ns / 2).max(p.floors.reorder_ns().into());
        let known_ns = link.srtt_ns + slack;
        let unsure_ns = UNSURE_DEVIATIONS * u64::from(self.rtt.all.var_ns);
        let credited = self.credited && self.share.senders() <= 1;
        Link { host_bytes, known_ns, unsure_ns, credited, ..link }
    }

    pub(super) fn link(p: &Params, rtt_ns_min: u32, srtt_ns: u32) -> Link {
        let base = if rtt_ns_min == 0 { p.rtt_ns_initial } else { rtt_ns_min };
        Link {
            line: p.line.bytes_per_sec(),
            line_known: !p.line.is_learnt(),
            base_ns: u64::from(base),
            base_known: rtt_ns_min != 0,
            srtt_ns: u64::from(srtt_ns.max(base)),
            host_bytes: 0,
            burst: u64::from(p.burst_bytes),
            known_ns: 0,
            target_ns: rtt::target(p, base).0,
            unsure_ns: 0,
            mtu: u64::from(p.mtu),
            credited: false,
            guards: p.guards,
        }
    }

    /// Budget of probes of retired paths: this engine's share, where several engines of the host
    /// send to the address.
    pub(super) fn probe_pay(&self, p: &Params, full: u16) -> ProbePay {
        let base_ns = self.srtt(p).max(PROBE_RTT_MIN).0;
        let least = Link { base_ns, ..Self::link(p, 0, 0) }.rate_min();
        let least = least / u64::from(self.share.senders());
        ProbePay { full, arriving: self.delivered, least }
    }

    /// First window of a context in bytes. It needs no credit.
    pub(crate) fn window_first(p: &Params, rtt_ns_min: u32) -> u64 {
        Self::window_of(p, &Self::link(p, rtt_ns_min, 0))
    }

    fn window_of(p: &Params, link: &Link) -> u64 {
        RateState::new(p, || link.view(Time(0), 0)).inflight_max(link)
    }

    /// Bytes that may be sent without credits after a pause: this engine's part of the first
    /// window. It covers the delay in the hosts where they halt for twice as long as both ends
    /// remember a grant.
    pub(crate) fn uncredited_max(&self, p: &Params) -> u64 {
        let link = match self.host_delay(p) > GRANT_STALE.scale(2, 1) {
            true => self.link_now(p),
            false => Self::link(p, self.rtt.min_ns(), 0),
        };
        self.share.of(Self::window_of(p, &link))
    }

    /// Delay in the hosts beyond the measured noise of the datapath, at most [`HOST_NS_MAX`].
    pub(crate) fn host_delay(&self, p: &Params) -> Span {
        Span(self.host_wait(p).0.min(HOST_NS_MAX))
    }

    /// The same for timers. A host that is late as a rule is not asked before it can answer, or the
    /// questions make it later still: twice the mean delay is covered, at most `loss.rto_max`.
    pub(crate) fn host_wait(&self, p: &Params) -> Span {
        let usual = 2 * u64::from(self.host_mean_ns);
        let longest = usual.min(p.rto_ns_max.into()).max(HOST_NS_MAX);
        let beyond = u64::from(self.host_ns).saturating_sub(p.floors.target_ns().into());
        Span(beyond.min(longest))
    }

    pub(crate) fn srtt(&self, p: &Params) -> Span {
        let ns = self.rtt.all.srtt_ns;
        Span(u64::from(if ns == 0 { p.rtt_ns_initial } else { ns }))
    }

    /// Whether all that was posted has been sent, and it is so little that it is not spread over
    /// paths.
    pub(crate) fn has_few(&self, p: &Params) -> bool {
        self.app_limited && self.inflight <= u64::from(HEDGED_MAX) * u64::from(p.mtu)
    }

    /// Whether the next packet is a lone one: all that was posted has been sent, and what is in
    /// flight is less than a packet; or nothing left for a round trip, for reasons other than the
    /// pacer. What is still in flight then may have arrived, and its acknowledgment waits in our
    /// socket until the program looks, or is late.
    /// Rule CC-52.
    pub(crate) fn is_lone(&self, p: &Params, now: Time) -> bool {
        let last = self.meter.last_sent().max(self.pacing.next());
        let rests = || now.since(last) > self.on_time(p);
        self.app_limited && self.inflight < u64::from(p.mtu)
            || (self.inflight == 0 || self.has_few(p)) && rests()
    }

    /// Smoothed RTT of paths that are not late.
    pub(crate) fn on_time(&self, p: &Params) -> Span {
        match self.rtt.on_time.srtt_ns {
            0 => self.srtt(p),
            ns => Span(u64::from(ns)),
        }
    }

    /// Round trip in which waits for a host that is behind are counted: the smoothed one of packets
    /// on time, but not more than [`HOST_RTT_LEAST_MAX`] times the least one. After clocks leapt
    /// there may be no other sample for as long as the wait lasts, so that the smoothed one alone
    /// would keep itself high. With nothing in flight a wait that is too short sends one packet.
    /// Rule CC-30.
    pub(crate) fn host_rtt(&self, p: &Params) -> Span {
        match self.rtt.min_ns() {
            0 => self.on_time(p),
            ns => self.on_time(p).min(Span(u64::from(ns)).scale(HOST_RTT_LEAST_MAX, 1)),
        }
    }

    /// How long a path counts as clean after its last clean echo.
    pub(crate) fn proof_age_max(&self, p: &Params) -> Span {
        self.on_time(p).scale(PROOF_RTTS, 1)
    }

    pub(super) fn cap_update(&mut self, p: &Params) {
        self.share.asked = super::grants_asked(p, Span(self.rtt.min_ns().into()), 1);
        let policy = self.share.of(self.rate.inflight_max(&self.link_now(p)));
        let mtu = u64::from(p.mtu);
        let host = self.host.inflight_max(p.host_policy, mtu);
        debug_assert!(self.drop_cap >= DROP_CAP_PKTS_MIN * mtu, "room for some packets");
        self.inflight_max = policy.min(self.drop_cap).min(host).max(mtu);
    }

    /// Whether nothing may leave before an acknowledgment arrives.
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
        let share = PATH_BURST.of(self.inflight_max).max(u64::from(FLOW_TURN_PKTS) * mtu);
        let mut bytes = u64::from(self.pacing.burst_bytes()).min(share).min(room);
        let mut open_at = self.pacing.next();
        if self.inflight == 0 {
            let sent = self.meter.last_sent();
            open_at = open_at.max(self.host.opens_at(p.host_policy, now, sent, self.host_rtt(p)));
        }
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

    /// With nothing in flight, no acknowledgment brings credit; after this time the first window
    /// may be sent without credits again. The time is at most that of a timeout: after a stall of a
    /// host the smoothed RTT is long, and with one window per such RTT it would fall only slowly.
    pub(super) fn credit_patience(&self, p: &Params) -> Span {
        let least = Span(u64::from(self.rtt.min_ns())).scale(CREDIT_PATIENCE_RTTS, 1);
        let longest = Span(u64::from(p.rto_ns_max)).max(least);
        self.srtt(p).scale(CREDIT_PATIENCE_RTTS, 1).min(longest)
    }

    /// Drops what was granted before a silence.
    pub(super) fn credit_silence(&self, p: &Params, now: Time, credit: &mut Credit) {
        let silence = now.since(self.meter.last_sent());
        let rtt = Span(u64::from(self.rtt.min_ns()));
        credit.on_silence(now, silence, p.mtu, p.line.bytes_per_sec(), rtt);
    }

    pub(super) fn rate_apply(&mut self, p: &Params) {
        let mut burst = self.share.burst(p);
        let mut rate = self.share.of(self.rate.rate());
        if let Some(pace) = self.rate.full_pace_256() {
            let turn = PATH_BURST.of(Link::bytes(rate, self.srtt(p).0));
            burst = burst.min(u32::try_from(turn).unwrap_or(u32::MAX)).max(p.mtu.into());
            let paced = (u128::from(rate) * u128::from(pace)) >> 8;
            rate = paced.min(p.line.bytes_per_sec().into()) as u64;
        }
        self.pacing.rate_set(rate, burst, p.mtu);
        self.pacing.late_set(self.share.late(p, burst));
        self.cap_update(p);
    }

    pub(crate) fn leave_flight(&mut self, bytes: u32) {
        debug_assert!(self.inflight >= u64::from(bytes), "more left flight than was sent");
        self.inflight = self.inflight.saturating_sub(u64::from(bytes));
    }

    /// The peer acknowledged a packet.
    pub(crate) fn on_told(&mut self) {
        self.unproven = self.unproven.saturating_add(1);
    }

    /// A valid echo named a transmission, which proves that the peer received it.
    pub(crate) fn on_proof(&mut self) {
        self.unproven = self.unproven.saturating_sub(ECHO_PKTS).max(-UNPROVEN_PKTS_MAX);
    }

    pub(crate) fn stats(&self, out: &mut Vec<PathStats>) {
        let known = |ns: u32| if ns == u32::MAX { 0 } else { u64::from(ns) };
        out.extend(self.set.paths.iter().enumerate().map(|(i, e)| PathStats {
            path: i as u8,
            // Samples may be below the least that is believed: by delays that the peer reports.
            rtt_ns_smoothed: u64::from(e.rtt.srtt_ns).max(known(e.rtt_ns_min)),
            rtt_ns_min: known(e.rtt_ns_min),
            packets_sent: e.sent(),
            packets_lost: u64::from(e.lost),
            packets_ce: u64::from(e.ce),
            state: match e.state {
                PathState::Live if e.level > 0 => "penalised",
                other => other.word(),
            },
            echoed: e.echoed(),
        }));
    }
}
