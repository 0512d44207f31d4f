//! Packets that are sent to an address: the choice of their path, and what they use of window,
//! pacing and credits.

use super::{Awake, choose};
use crate::config::PathPolicy;
use crate::guards::Guard;
use crate::ids::Ctx;
use crate::params::Chooser;
use crate::rate::RateControl;
use crate::rng::Rng;
use crate::tuning::{EXPLORE_EACH, LOOP_EXPLORED, PROOF_AGE_MAX, RESTART_RTTS};

impl Awake<'_> {
    /// Chooses the path of the next packet or burst of reliability context `flow`. `avoid`: the
    /// path that lost the packet; it is not taken while there is another (except by plain ECMP).
    pub(crate) fn path_choose(&mut self, flow: Ctx, avoid: Option<u8>, rng: &mut Rng) -> u8 {
        let (p, now, salt) = (self.p, self.now, self.salt);
        let active = &mut *self.active;
        let alone = active.is_resting(p, now);
        let age_max = active.proof_age_max(p);
        let need = choose::Need { now, flow, avoid, age_max, salt, alone, guards: p.guards };
        let choice = match p.path_policy {
            Chooser::Policy(policy) => choose::choose(policy, &mut active.set, &need, rng),
            Chooser::Own => active.own_choose(&need, rng).into(),
        };
        // Whoever sends one packet for each that comes back reuses one path, perhaps the worst.
        let same = core::mem::replace(&mut active.path_last, choice.path) == choice.path;
        let srd = p.path_policy == Chooser::Policy(PathPolicy::Srd);
        let lone = choice.trusted || srd && same && active.inflight == 0;
        active.lone = active.lone.wrapping_add(u32::from(lone));
        let often = choice.trusted || active.lone >= LOOP_EXPLORED;
        let each = choice.trusted && active.lone.is_multiple_of(EXPLORE_EACH);
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
        core::mem::take(&mut active.explore).then(|| active.set.scan_live(rng))
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
            return path;
        }
        let path = active.ack_paths.choose(&mut active.set, p.guards, rng);
        debug_assert!(usize::from(path) < active.set.paths.len(), "a path of the table");
        path
    }

    /// The next of all live paths, for a probe or for the repetition of an acknowledgment that the
    /// peer seems to have missed: most of the few paths over which acknowledgments rotate may have
    /// died together.
    pub(crate) fn path_any(&mut self, rng: &mut Rng) -> u8 {
        let active = &mut *self.active;
        active.set.scan_live(rng)
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
            // While no round has ended, the window is small, and no round would ever end.
            let blocked = !a.app_limited && now.since(a.meter.acked_at()) <= srtt;
            if !(blocked && a.rate.is_opening()) {
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
