//! What leaves to an address: on which path, and what that uses up.

use super::active::ActivePaths;
use super::{Awake, choose};
use crate::config::PathPolicy;
use crate::guards::Guard;
use crate::rate::RateControl;
use crate::rng::Rng;
use crate::tuning::{EXPLORE_EACH, PROOF_AGE_MAX, RESTART_RTTS};

impl Awake<'_> {
    /// The path of the next packet or burst of reliability context `flow`. `avoid`: the path that
    /// lost the packet, not taken while there is another (except by plain ECMP).
    pub(crate) fn path_choose(&mut self, flow: u32, avoid: Option<u8>, rng: &mut Rng) -> u8 {
        let (p, now, salt) = (self.p, self.now, self.salt);
        let active = &mut *self.active;
        let alone = active.is_resting(p, now);
        let age_max = active.proof_age_max(p);
        let need = choose::Need { now, flow, avoid, age_max, salt, alone, guards: p.guards };
        let choice = choose::choose(p.path_policy, &mut active.set, &need, rng);
        active.lone += u32::from(choice.trusted);
        active.explore |= choice.trusted
            && p.guards.has(Guard::Explore)
            && (active.lone.is_power_of_two() || active.lone.is_multiple_of(EXPLORE_EACH));
        debug_assert!(usize::from(choice.path) < active.set.paths.len(), "a path of the table");
        choice.path
    }

    /// A path to be probed because packets that leave alone keep to those that are known to be
    /// quick: what is known of the others would grow old. `None`: not now.
    /// Rule CC-08.
    pub(crate) fn explore_take(&mut self, rng: &mut Rng) -> Option<u8> {
        let active = &mut *self.active;
        core::mem::take(&mut active.explore).then(|| active.set.scan_live(rng))
    }

    /// The path of the next packet that carries only acknowledgments. `alone`: of a packet or two,
    /// not of a burst.
    pub(crate) fn ack_path_choose(&mut self, alone: bool, rng: &mut Rng) -> u8 {
        let (p, now, salt) = (self.p, self.now, self.salt);
        let active = &mut *self.active;
        // Plain ECMP spreads nothing.
        if p.path_policy == PathPolicy::Ecmp {
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

    /// The next of all paths in use, for a probe, or for the repetition of an acknowledgment that
    /// the peer seems to have missed: the few that acknowledgments rotate over may mostly have
    /// died together.
    pub(crate) fn path_any(&mut self, rng: &mut Rng) -> u8 {
        let active = &mut *self.active;
        active.set.scan_live(rng)
    }

    /// A reliable packet left: it counts as in flight until one of [`Self::on_acked`],
    /// [`Self::on_lost`], [`PathContext::on_forgotten`] is called for it.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, path: u8, bytes: u32, retransmit: bool, credited: bool) {
        let (p, now) = (self.p, self.now);
        let a = &mut *self.active;
        if credited {
            let idle = now.since(a.meter.last_sent()) >= a.credit_patience(p);
            if a.inflight == 0 && idle {
                self.credit.refill(a.share.of(ActivePaths::window_first(p, a.rtt.min_ns())));
            }
            self.credit.on_sent(bytes);
        }
        a.set.get_mut(path).count_sent();
        // What the pacer held back is no pause: a rate below a packet per round trip would begin a
        // new measurement with each packet, never end one, and so last for ever.
        let pause = a.meter.on_sent(now, bytes).min(now.since(a.pacing.next()));
        let srtt = a.srtt(p);
        if a.inflight == 0 && pause > srtt && !retransmit {
            a.meter.restart(now, bytes);
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

    /// A packet left that nothing held back (acknowledgment, probe): it does not count as in
    /// flight, and uses up what the pacer has to spare, no more.
    pub(crate) fn on_uncounted_sent(&mut self, path: u8, bytes: u32) {
        self.active.set.get_mut(path).count_sent();
        self.active.pacing.on_free(self.now, bytes);
    }

    /// An unreliable datagram left: paced, but not counted as in flight.
    pub(crate) fn on_datagram_sent(&mut self, path: u8, bytes: u32) {
        self.active.set.get_mut(path).count_sent();
        self.active.pacing.on_sent(self.now, bytes);
    }
}
