//! Paths of pure acknowledgments: a few are used in turn, and replaced when acknowledgments on them
//! get lost.
//!
//! If all acknowledgments took one path and it became a black hole, every healthy forward path
//! would look dead. So acknowledgments rotate over several paths, each carries a number that the
//! peer echoes, and a path whose numbers are never echoed while those of others are is replaced.

use super::rails::Rails;
use super::set::PathSet;
use crate::guards::{Guard, Guards};
use crate::ids::Ctx;
use crate::params::ns32;
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{
    ACK_HEARD, ACK_PATHS, ACK_PATIENCE, ACK_PATIENCE_MORE, ACKS_PER_ECHO_GAIN, ACKS_PER_ECHO_MAX,
    ACKS_REMEMBERED, BASE_WINDOW_HALF, ECHO_LONGEST,
};

/// An acknowledgment that was sent and not echoed yet.
#[derive(Clone, Copy, Debug)]
struct AwaitedAck {
    tx_num_low: u16,
    /// Slot of its path; [`ACK_PATHS`] = none.
    slot: u8,
    /// Rail of its path.
    rail: u8,
}

#[derive(Debug)]
pub(crate) struct AckPaths {
    paths: [u8; ACK_PATHS],
    /// Acknowledgments sent on the path of each slot since one of them was echoed.
    missed: [u8; ACK_PATHS],
    sent: [AwaitedAck; ACKS_REMEMBERED],
    slot: u8,
    echoed_last: u16,
    /// Acknowledgments per echo, smoothed, times 8.
    per_echo_8: u16,
    since_echo: u16,
    /// The acknowledgment whose echo is timed, by its context, whose numbers are its own, and when
    /// it was sent, in units of 16 ns.
    timed: Option<(Ctx, u16, u32)>,
    /// Least time from an acknowledgment to its echo, in ns; 0 = no sample yet.
    echo_ns: u32,
    /// When that was measured, in units of 16 ns.
    echo_at: u32,
}

impl AckPaths {
    pub(crate) fn new(set: &mut PathSet, rng: &mut Rng) -> Self {
        Self {
            paths: core::array::from_fn(|_| set.scan_next(rng)),
            missed: [0; ACK_PATHS],
            sent: [AwaitedAck { tx_num_low: 0, slot: ACK_PATHS as u8, rail: 0 }; ACKS_REMEMBERED],
            slot: 0,
            echoed_last: 0,
            per_echo_8: 8,
            since_echo: 0,
            timed: None,
            echo_ns: 0,
            echo_at: 0,
        }
    }

    /// Least time from an acknowledgment to its echo: a round trip as a host sees it that only
    /// receives. [`Span::ZERO`]: not known.
    pub(crate) fn echo(&self) -> Span {
        Span(self.echo_ns.into())
    }

    /// Times one acknowledgment after the other. The echo of a later one ends it, too.
    fn time(&mut self, now: Time, ctx: Ctx, echoed: u16) {
        let Some((of, number, at)) = self.timed else { return };
        if of != ctx || echoed.wrapping_sub(number) > u16::MAX / 2 {
            return;
        }
        self.timed = None;
        let sample = ns32(now.since_wire(at)).max(1);
        // Queues and pauses of the peer make samples long, and nothing makes one short.
        let old = now.since_wire(self.echo_at) > BASE_WINDOW_HALF;
        if self.echo_ns == 0 || sample < self.echo_ns || old {
            (self.echo_ns, self.echo_at) = (sample, now.to_wire());
        }
    }

    /// The path of the next acknowledgment.
    /// Rule CC-09.
    pub(crate) fn choose(&mut self, set: &mut PathSet, guards: Guards, rng: &mut Rng) -> u8 {
        self.slot = (self.slot + 1) % ACK_PATHS as u8;
        debug_assert!(self.paths.iter().all(|&p| usize::from(p) < set.paths.len()), "of the table");
        let slot = usize::from(self.slot);
        let entry = set.get(self.paths[slot]);
        let usable = entry.is_live() || (planted!(DeniedAcked) && entry.is_denied());
        let dead = guards.has(Guard::AckDead) && self.suspect(slot);
        if !usable || dead {
            self.replace(slot, set, rng);
        }
        if set.denied > 0 && set.get(self.paths[slot]).is_denied() && !planted!(DeniedAcked) {
            // All live paths are in the slots already.
            return set.scan_live(rng);
        }
        self.paths[slot]
    }

    fn per_echo(&self) -> u32 {
        u32::from(self.per_echo_8).div_ceil(8)
    }

    /// Whether no acknowledgment on the path of a slot is echoed, while those of other slots are.
    fn suspect(&self, slot: usize) -> bool {
        self.patience().is_some_and(|most| u32::from(self.missed[slot]) > most)
    }

    /// How many acknowledgments in a row may lack an echo on a path, or on a rail; `None`: the peer
    /// echoes none at all.
    pub(crate) fn patience(&self) -> Option<u32> {
        let heard = u32::from(self.since_echo) <= ACK_HEARD * self.per_echo() + ACK_PATHS as u32;
        heard.then(|| ACK_PATIENCE * self.per_echo() + ACK_PATIENCE_MORE)
    }

    fn replace(&mut self, slot: usize, set: &mut PathSet, rng: &mut Rng) {
        for _ in 0..set.paths.len() {
            let path = set.scan_next(rng);
            if set.get(path).is_live() && !self.paths.contains(&path) {
                self.paths[slot] = path;
                self.missed[slot] = 0;
                return;
            }
        }
        self.missed[slot] = 0;
    }

    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        ctx: Ctx,
        path: u8,
        tx_num_low: u16,
        rails: Option<&mut Rails>,
    ) {
        let lost = self.timed.is_some_and(|(.., at)| now.since_wire(at) > ECHO_LONGEST);
        if self.timed.is_none() || lost {
            self.timed = Some((ctx, tx_num_low, now.to_wire()));
        }
        let mut rail = 0;
        let slot = self.paths.iter().position(|&p| p == path);
        if let Some(rails) = rails {
            rail = rails.of(path) as u8;
            rails.on_ack_sent(path);
        } else if slot.is_none() {
            return;
        }
        let slot = slot.unwrap_or(ACK_PATHS);
        if let Some(missed) = self.missed.get_mut(slot) {
            *missed = missed.saturating_add(1);
        }
        self.since_echo = self.since_echo.saturating_add(1);
        self.sent[usize::from(tx_num_low) % ACKS_REMEMBERED] =
            AwaitedAck { tx_num_low, slot: slot as u8, rail };
    }

    pub(crate) fn on_echoed(
        &mut self,
        now: Time,
        ctx: Ctx,
        tx_num_low: u16,
        rails: Option<&mut Rails>,
    ) {
        if tx_num_low == self.echoed_last {
            return;
        }
        self.time(now, ctx, tx_num_low);
        let sent = &mut self.sent[usize::from(tx_num_low) % ACKS_REMEMBERED];
        let slot = usize::from(sent.slot);
        if sent.tx_num_low != tx_num_low {
            return;
        }
        if let Some(rails) = rails {
            rails.on_ack_echoed(sent.rail);
        } else if slot >= ACK_PATHS {
            return;
        }
        sent.slot = ACK_PATHS as u8;
        self.echoed_last = tx_num_low;
        if let Some(missed) = self.missed.get_mut(slot) {
            *missed = 0;
        }
        let gain = ACKS_PER_ECHO_GAIN;
        let sample = self.since_echo.min(ACKS_PER_ECHO_MAX) * 8;
        self.per_echo_8 = self.per_echo_8 - self.per_echo_8 / gain + sample / gain;
        self.since_echo = 0;
        debug_assert!(self.per_echo_8 <= 8 * ACKS_PER_ECHO_MAX, "no sample is larger");
    }
}
