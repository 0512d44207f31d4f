//! What acknowledgments, echoes and losses tell about the paths and the rate to an address.

use super::health::{Evidence, Loss};
use super::{ActivePaths, Awake, Sample, rtt};
use crate::config::HostPolicy;
use crate::events::LossRule;
use crate::guards::Guard;
use crate::params::ns32;
use crate::rate::RateControl;
use crate::time::{Span, Time};
use crate::tuning::{
    DELIVERED_KEPT, DROP_CAP, DROP_CAP_PKTS_MIN, DROP_CAP_RISE, HOST_DROP_RTTS, HOST_HALF_LIFE,
    HOST_MEAN_GAIN, LATE_RTTS, OPENING_RTTS, SILENCE_OF_RTT, SILENCE_OF_TIMEOUT, UNEVEN,
    UNPROVEN_PKTS_MAX,
};

impl Awake<'_> {
    /// A packet sent at `sent` was acknowledged.
    pub(crate) fn on_acked(&mut self, path: u8, bytes: u32, sent: Time) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        a.leave_flight(bytes);
        self.credit.on_acked(bytes);
        // An acknowledgment that comes sooner than the least RTT is for an earlier copy of the
        // packet.
        let least = Span(u64::from(a.rtt.min_ns()));
        let sent = if now.since(sent) < least { Time(0) } else { sent };
        a.meter.on_acked(bytes, sent);
        a.on_told();
        a.health.probes_earn(bytes);
        a.health.judge(p, &mut a.set, now, path, Evidence::Arrived);
    }

    /// A valid echo named a transmission, which proves its arrival.
    pub(crate) fn on_proof(&mut self) {
        self.active.on_proof();
        debug_assert!(self.active.unproven >= -UNPROVEN_PKTS_MAX, "what is saved up is bounded");
    }

    /// Takes the RTT sample of a full packet, such as an Open, without the receiver's delay; `ce`:
    /// it was ECN-marked.
    pub(crate) fn on_echo(&mut self, path: u8, rtt: Span, ce: bool) {
        let (back, claimed) = (Span::ZERO, Span::ZERO);
        let sent = Time(self.now.0.saturating_sub(rtt.0));
        self.on_proof();
        self.on_sample(path, &Sample { rtt, back, sent, claimed, ce, full: true });
    }

    /// Takes the RTT sample of one packet of any type, with its components.
    pub(crate) fn on_sample(&mut self, path: u8, sample: &Sample) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        let (ns, ce) = (rtt::sample_ns(sample.rtt), sample.ce);
        let base_before = a.rtt.min_ns();
        let whole_ns = rtt::sample_ns(sample.rtt + sample.claimed);
        let queue_ns = a.rtt.on_sample(now, ns, whole_ns, ns32(sample.back));
        a.queue_ns_last = queue_ns;
        let base = a.rtt.min_ns();
        let target = rtt::target(p, base).0;
        let floor_ns = a.rtt.floor_ns();
        let entry = a.set.get_mut(path);
        entry.rtt.on_sample(ns);
        entry.echoed_set(true);
        entry.rtt_ns_min = entry.rtt_ns_min.min(ns.max(floor_ns));
        debug_assert!(base >= floor_ns, "no round trip is believed to be shorter");
        entry.ce = entry.ce.saturating_add(u32::from(ce));
        let own_ns = if sample.full { a.rtt.on_full(p, ns) } else { 0 };
        a.meter.on_echo(ce, queue_ns.saturating_sub(own_ns), sample.full);
        let late = self.lateness(queue_ns, base, target);
        let a = &mut *self.active;
        if late == 0 {
            a.rtt.on_time.on_sample(ns);
        }
        // Where a round touches one path, the median is that path's own queue.
        let few = a.has_few(p) && u64::from(queue_ns) < target;
        a.health.judge(p, &mut a.set, now, path, Evidence::Echo { late, sent: sample.sent, few });
        self.rail_return(path);
        let a = &mut *self.active;
        if a.set.get(path).is_live() {
            // An ECN mark counts as a queueing delay of at least the target: the rate must not
            // rise.
            let least = if ce && p.guards.has(Guard::Mark) {
                u32::try_from(target).unwrap_or(u32::MAX)
            } else {
                0
            };
            a.set.touch(path, queue_ns.max(least));
        }
        if base != base_before {
            a.cap_update(p);
        }
        if a.rate.has_own() {
            a.own_echo(p, now, path, ns, queue_ns, ce);
        }
    }

    /// Lateness of a path: its queueing delay above the median of the last round, in delay targets,
    /// rounded down. 0 = the path may be reused; a path that is given up counts as at least 1.
    /// Where every path has a queue, at the last hop or because all are full, no path is late.
    /// Somewhat late paths are given up now and then, in proportion to their lateness: all senders
    /// see the same queue, and if all of them left it at once, they would only move it.
    /// Rule CC-06.
    fn lateness(&mut self, queue_ns: u32, base_ns: u32, target_ns: u64) -> u64 {
        let p = self.p;
        let a = &mut *self.active;
        let more = u64::from(queue_ns.saturating_sub(a.queue_ns_usual));
        a.late_ns += more.min(target_ns);
        let worth = LATE_RTTS * u64::from(base_ns.max(1));
        let given_up = a.late_ns >= worth && p.guards.has(Guard::LateShare);
        if given_up {
            // The remainder only, so that one very late path does not cause other paths to be given
            // up.
            a.late_ns %= worth;
        }
        debug_assert!(a.late_ns < worth || !p.guards.has(Guard::LateShare), "given up in time");
        (more / target_ns.max(1)).max(u64::from(given_up))
    }

    /// Takes the delay that the two hosts added to a round trip, waiting in sockets and for the
    /// processor. It is covered by more bytes in flight and longer timers; it never counts against
    /// a path or as congestion.
    /// Rule CC-02.
    pub(crate) fn on_host_delay(&mut self, host: Span) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        if !p.guards.has(Guard::HostDelay) {
            return;
        }
        let halvings = now.since(a.host_at).0 / HOST_HALF_LIFE.0;
        if halvings > 0 {
            a.host_ns >>= halvings.min(31);
            a.host_at = now;
        }
        let mean = u64::from(a.host_mean_ns);
        a.host_mean_ns = ns32(Span(mean - mean / HOST_MEAN_GAIN + host.0 / HOST_MEAN_GAIN));
        if ns32(host) > a.host_ns {
            (a.host_ns, a.host_at) = (ns32(host), now);
            a.cap_update(p);
        }
    }

    /// An acknowledgment block was handled. `app_limited`: everything posted has been sent.
    /// `credited`: the block came from an engine that grants credits.
    pub(crate) fn on_ack_end(&mut self, acked: u32, app_limited: bool, credited: bool) {
        let (p, now) = (self.p, self.now);
        let mtu = u64::from(p.mtu);
        self.proof_check();
        let a = &mut *self.active;
        a.app_limited = app_limited;
        a.credited = credited;
        // What only whole rounds and policies of one's own need of the link costs a hundred
        // instructions, and most blocks are neither.
        let link = ActivePaths::link(p, a.rtt.min_ns(), a.rtt.all.srtt_ns);
        let acked = a.share.whole_of(acked.into());
        if acked > 0 && a.rate.on_acked(&link, acked, a.queue_ns_last.into()) {
            a.cap_update(p);
        }
        if a.rate.has_own() {
            let link = a.link_now(p);
            a.own_acked(p, now, &link, acked, app_limited);
        }
        let ends = p.guards.has(Guard::OpeningEnds);
        let opening_max = if ends {
            Span(OPENING_RTTS * (link.base_ns + link.target_ns))
        } else {
            Span(u64::MAX)
        };
        let round = a.meter.on_ack_end(now, app_limited, mtu, opening_max, link.line);
        let Some(mut round) = round else { return };
        let link = a.link_now(p);
        debug_assert!(round.lost_permille <= 1000, "a share of what was sent");
        a.delivered = round.delivered.max(DELIVERED_KEPT.of(a.delivered));
        let quartiles = a.set.quartiles_take();
        a.queue_ns_usual = quartiles.map_or(0, |(median, _)| median);
        round.median_ns = u64::from(a.queue_ns_usual);
        round.own_ns = if round.full { a.rtt.own_ns(p).into() } else { 0 };
        round.shared_ns = match quartiles {
            Some((_, quartile)) if a.share.senders() <= 1 => {
                u64::from(quartile).saturating_sub(round.own_ns)
            }
            _ => 0,
        };
        round.queue_ns = quartiles.map(|(median, quartile)| {
            // Rule CC-04.
            debug_assert!(quartile <= median, "a quarter is less than half");
            // A shared queue delays all paths alike. Differences between paths are noise of the
            // host, up to the measured noise of the datapath, or come from an unevenly loaded
            // fabric.
            let uneven =
                UNEVEN * u64::from(median - quartile) * u64::from(p.guards.has(Guard::Uneven));
            u64::from(median).saturating_sub(uneven.min(u64::from(p.floors.target_ns())))
        });
        a.rtt.on_round();
        if a.drop_cap != u64::MAX {
            let risen = a.drop_cap + DROP_CAP_RISE.of(a.drop_cap).max(1);
            a.drop_cap = if a.inflight_max < a.drop_cap { u64::MAX } else { risen };
        }
        a.share_round(p, now, &link, round);
        let rise_ns = a.rate.base_rise_ns();
        if rise_ns > 0 {
            a.rtt.least_raise(a.rtt.min_ns().saturating_add(rise_ns));
        }
        a.rate_apply(p);
    }

    /// Slows down towards a peer that acknowledges far more packets than its echoes prove to have
    /// arrived. A peer that invents acknowledgments shows neither losses nor long round trips, so
    /// nothing else would limit the rate.
    /// Rule CC-27.
    fn proof_check(&mut self) {
        let p = self.p;
        let a = &mut *self.active;
        if a.unproven >= UNPROVEN_PKTS_MAX {
            a.unproven = 0;
            a.rate.on_unproven(&a.link_now(p));
            a.rate_apply(p);
        }
    }

    /// A packet was declared lost. Returns whether its path is blamed for it, which it is not while
    /// the peer is silent on all paths.
    pub(crate) fn on_lost(&mut self, path: u8, bytes: u32, rule: LossRule) -> bool {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        a.leave_flight(bytes);
        let queued = u64::from(a.queue_ns_last) > a.link_now(p).target_ns;
        self.credit.on_lost(bytes, queued);
        // Rule CC-32.
        if a.host.drop_take(now, a.srtt(p).scale(HOST_DROP_RTTS, 1)) {
            return false;
        }
        a.share.lost = a.share.lost.wrapping_add(1);
        let entry = a.set.get(path);
        let rto = rtt::rto(p, entry.rtt, a.rtt.all, 0);
        let srtt = a.srtt(p);
        // A peer that stalls just before an acknowledgment is due is silent for `rto - srtt` when
        // the timeout comes.
        let silence_max = SILENCE_OF_TIMEOUT.of_span(rto - srtt).max(SILENCE_OF_RTT.of_span(srtt));
        let silence_max =
            if p.guards.has(Guard::SilenceBlame) { silence_max } else { Span(u64::MAX) };
        let loss = Evidence::Lost(Loss { rule, srtt, silence_max });
        let judged = a.health.judge(p, &mut a.set, now, path, loss);
        a.meter.on_lost(bytes, judged.first);
        if a.rate.has_own() {
            a.own_lost(p, now, path, bytes, rule);
        }
        judged.blamed
    }

    /// A packet that had been given up without blame on `path` never arrived, but a later copy did.
    /// `counted`: it was declared lost.
    pub(crate) fn on_proved_lost(&mut self, path: u8, counted: bool) {
        let (p, now) = (self.p, self.now);
        if !p.guards.has(Guard::ProvedLost) {
            return;
        }
        let a = &mut *self.active;
        if !counted {
            a.meter.on_proved_lost(p.mtu.into());
        }
        let proved = Evidence::Proved { counted, srtt: a.srtt(p) };
        a.health.judge(p, &mut a.set, now, path, proved);
    }

    /// A loss on `path` was spurious: removes the penalty of the path and widens the reordering
    /// slack.
    /// Rule CC-13.
    pub(crate) fn on_spurious(&mut self, path: u8) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        a.rtt.on_spurious();
        a.meter.on_spurious(u64::from(p.mtu));
        if p.guards.has(Guard::Acquit) {
            a.health.judge(p, &mut a.set, now, path, Evidence::Acquitted);
        }
    }

    /// The peer's receive queue dropped `drops` more packets: lowers the inflight cap, and blames
    /// no path.
    /// Rule CC-26.
    pub(crate) fn on_receiver_drops(&mut self, drops: u32) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        if drops > 0 && p.host_policy != HostPolicy::Off {
            a.host.on_drops(now, drops);
        }
        let recent = a.drop_cap != u64::MAX && now.since(a.drop_cap_at) < a.srtt(p);
        if drops == 0 || recent || !p.guards.has(Guard::DropCap) {
            return;
        }
        a.drop_cap_at = now;
        let left = DROP_CAP.of(a.inflight.min(a.inflight_max));
        a.drop_cap = left.max(DROP_CAP_PKTS_MIN * u64::from(p.mtu));
        a.cap_update(p);
        debug_assert!(a.inflight_max <= a.drop_cap, "the cap is obeyed");
    }

    /// A peer that was silent is heard again.
    pub(crate) fn resumed(&mut self) {
        self.active.health.resumed(self.now);
    }
}
