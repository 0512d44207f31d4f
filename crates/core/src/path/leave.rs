//! Packets that are sent to an address: the choice of their path, and what they use of window,
//! pacing and credits.

use super::{Awake, choose};
use crate::config::PathPolicy;
use crate::guards::Guard;
use crate::ids::Ctx;
use crate::params::Chooser;
use crate::rate::RateControl;
use crate::rng::Rng;
use crate::time::Time;
use crate::tuning::{
    EXPLORE_EACH, EXPLORE_EVERY, LOOP_EXPLORED, PROOF_AGE_MAX, RESTART_RTTS, WINDOW_TARGETS,
};

/// What is known of a packet that is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// The path of its last transmission, and when that was.
    pub path: u8,
    pub sent: Time,
    /// It had been sent again before.
    pub again: bool,
}

#[cfg(test)]
impl Lost {
    /// A packet that was lost for the first time, on this path.
    pub(crate) fn on(path: u8) -> Self {
        Self { path, sent: Time(0), again: false }
    }
}

impl Awake<'_> {
    /// Chooses the path of the next packet or burst of reliability context `flow`. `lost`: it was
    /// lost, or is copied; the path that it took then is not taken while there is another (except
    /// by plain ECMP).
    pub(crate) fn path_choose(&mut self, flow: Ctx, lost: Option<Lost>, rng: &mut Rng) -> u8 {
        let (p, now, salt) = (self.p, self.now, self.salt);
        let active = &mut *self.active;
        let alone = active.is_lone(p, now);
        let age_max = active.proof_age_max(p);
        if let Some(rails) = &active.rails
            && let Some(lost) = lost
            && let Some(path) = rails.other_path(&mut active.set, lost.path, rng)
        {
            return path;
        }
        let avoid = lost.map(|lost| lost.path);
        let again = lost.filter(|lost| alone && lost.again && p.guards.has(Guard::Alone));
        let doubt = again.map(|lost| lost.sent);
        let (railed, guards) = (active.rails.is_some(), p.guards);
        let need = choose::Need { now, flow, avoid, age_max, salt, alone, railed, doubt, guards };
        let choice = match p.path_policy {
            Chooser::Policy(policy) => choose::choose(policy, &mut active.set, &need, rng),
            Chooser::Own => active.own_choose(&need, rng).into(),
        };
        // Whoever sends one packet for each that comes back reuses one path, perhaps the worst.
        let same = core::mem::replace(&mut active.path_last, choice.path) == choice.path;
        let srd = p.path_policy == Chooser::Policy(PathPolicy::Srd);
        let lone = choice.trusted || srd && same && (alone || active.inflight == 0);
        active.lone = active.lone.wrapping_add(u32::from(lone));
        let often = choice.trusted || active.lone >= LOOP_EXPLORED;
        let each = choice.trusted
            && active.lone.is_multiple_of(EXPLORE_EACH)
            && now.since(active.explored_at) >= EXPLORE_EVERY;
        active.explore |= lone
            && p.guards.has(Guard::Explore)
            && (each || often && active.lone.is_power_of_two());
        debug_assert!(usize::from(choice.path) < active.set.paths.len(), "a path of the table");
        choice.path
    }

    /// A path that is to be probed now, if any: lone packets keep to paths that were clean, so the
    /// state of the other paths would become outdated, or never be known.
    /// Rule CC-08.
    pub(crate) fn explore_take(&mut self, rng: &mut Rng) -> Option<u8> {
        let active = &mut *self.active;
        let last = active.path_last;
        let look = core::mem::take(&mut active.explore);
        if look {
            active.explored_at = self.now;
        }
        look.then(|| active.set.scan_where(rng, |path, _| path != last)).flatten()
    }

    /// Chooses the path of the next pure acknowledgment. `alone`: it acknowledges a packet or two,
    /// not a burst.
    pub(crate) fn ack_path_choose(&mut self, alone: bool, rng: &mut Rng) -> u8 {
        let (p, now, salt) = (self.p, self.now, self.salt);
        let active = &mut *self.active;
        // Plain ECMP keeps acknowledgments on one path as well.
        if p.path_policy == Chooser::Policy(PathPolicy::Ecmp) {
            return choose::of_hash(&active.set, salt);
        }
        if alone
            && p.guards.has(Guard::AckProof)
            && let Some(path) =
                active.set.clean_newest(now, active.proof_age_max(p).max(PROOF_AGE_MAX), None)
        {
            return active.rail_of_ack(path, rng);
        }
        let path = active.ack_paths.choose(&mut active.set, p.guards, rng);
        debug_assert!(usize::from(path) < active.set.paths.len(), "a path of the table");
        active.rail_of_ack(path, rng)
    }

    /// The next of all live paths, for a probe or for the repetition of an acknowledgment that the
    /// peer seems to have missed: most of the few paths over which acknowledgments rotate may have
    /// died together.
    pub(crate) fn path_any(&mut self, rng: &mut Rng) -> u8 {
        let active = &mut *self.active;
        active.set.scan_live(rng)
    }

    /// The same for the repetition of an acknowledgment, by the rail on which the peer's newest
    /// packet came.
    pub(crate) fn path_repeat(&mut self, rng: &mut Rng) -> u8 {
        let active = &mut *self.active;
        let rail = active.rails.as_mut().and_then(|r| r.repeat_path(&mut active.set, rng));
        rail.unwrap_or_else(|| active.set.scan_live(rng))
    }

    /// The same for a question to a silent peer, by another rail each time.
    pub(crate) fn path_ask(&mut self, rng: &mut Rng) -> u8 {
        let active = &mut *self.active;
        let rail = active.rails.as_mut().and_then(|r| r.ask_path(&mut active.set, rng));
        rail.unwrap_or_else(|| active.set.scan_live(rng))
    }

    /// A reliable packet was sent. It counts as in flight until [`Self::on_acked`],
    /// [`Self::on_lost`] or [`PathContext::on_forgotten`] is called for it.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, path: u8, bytes: u32, retransmit: bool, credited: bool) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        if credited {
            a.credit_silence(p, now, self.credit);
            let silence = now.since(a.meter.last_sent());
            if a.inflight == 0 && silence >= a.credit_patience(p) {
                self.credit.refill(a.uncredited_max(p), 0);
            }
            self.credit.on_sent(bytes);
        }
        a.set.get_mut(path).count_sent();
        // Waiting for the pacer is no pause. Otherwise, at a rate below a packet per round trip,
        // each packet would begin a new measurement, none would end, and the rate would never
        // change.
        let pause =
            a.meter.on_sent(now, bytes, p.line.bytes_per_sec()).min(now.since(a.pacing.next()));
        let srtt = a.srtt(p);
        if a.inflight == 0 && pause > srtt && !retransmit {
            // With more to send, one acknowledgment for all that was in flight makes no pause.
            // Where the window is small, because no round has ended yet or because round trips
            // are longer than what it covers, no round would ever end.
            let blocked = !a.app_limited && now.since(a.meter.acked_at()) <= srtt;
            let small = a.rate.is_opening() || {
                let link = a.link_now(p);
                srtt.0 > link.base_ns + WINDOW_TARGETS.of(link.target_ns)
            };
            if !(blocked && small) {
                a.meter.restart(now, bytes);
            }
            // Rule CC-24.
            if p.guards.has(Guard::Restart) && pause.0 > RESTART_RTTS * (srtt + a.host_delay(p)).0 {
                let link = a.link_now(p);
                a.rate.on_restart(&link);
                a.share_adopt(&link);
                a.rate_apply(p);
            }
        }
        a.inflight += u64::from(bytes);
        a.share.sent = a.share.sent.wrapping_add(1);
        a.pacing.on_sent(now, bytes);
        debug_assert!(
            bytes > 0 && a.inflight >= u64::from(bytes),
            "it is in flight until it is told"
        );
    }

    /// An acknowledgment or probe was sent. Neither waits for the pacer or counts as in flight; its
    /// bytes reduce only what the pacer allows late senders to catch up.
    pub(crate) fn on_uncounted_sent(&mut self, path: u8, bytes: u32) {
        self.active.set.get_mut(path).count_sent();
        self.active.pacing.on_free(self.now, bytes);
    }

    /// An unreliable datagram was sent: it is paced, but does not count as in flight.
    pub(crate) fn on_datagram_sent(&mut self, path: u8, bytes: u32) {
        self.active.set.get_mut(path).count_sent();
        self.active.pacing.on_sent(self.now, bytes);
    }
}
