//! What all peers of an engine share, objects apart: its configuration, what waits to leave,
//! timers, counters, and what is said of its own receive side.

use crate::api::AsyncEvent;
use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::events::Observer;
use crate::guards::Guard;
use crate::ids::Ctx;
use crate::outbox::{Control, Outbox};
use crate::path::table::MtuCounts;
use crate::rate::Granter;
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::timer::Timers;
use srd_wire::AckBlock;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared<O> {
    pub cfg: EngineConfig,
    pub counters: Counters,
    pub observer: O,
    /// For choices that nobody need be kept from guessing.
    pub rng: Rng,
    pub out: Outbox,
    pub timers: Timers,
    /// Addresses to which packets are not as they usually are.
    pub sizes: MtuCounts,
    pub rx: Receiving,
}

impl<O: Observer> Shared<O> {
    pub fn new(cfg: EngineConfig, now: Time, observer: O, rng: Rng) -> Self {
        let mut granter = Granter::new(
            cfg.rate.line_bytes_per_sec,
            cfg.mtu,
            cfg.rate.rtt_initial,
            cfg.head_bytes_max(),
        );
        if !cfg.guards.has(Guard::LoneGrant) {
            granter.lone_off();
        }
        let rx = Receiving {
            granter,
            scratch: AckBlock::default(),
            flows: Flows::new(now),
            rxq_drops: 0,
            rxq_depth: 0,
            unread: Span::ZERO,
        };
        Self {
            cfg,
            counters: Counters::default(),
            observer,
            rng,
            out: Outbox::default(),
            timers: Timers::default(),
            sizes: MtuCounts::default(),
            rx,
        }
    }

    /// Tells the user, unless too much waits to be read already.
    pub fn event_push(&mut self, e: AsyncEvent) {
        if !self.out.event_push(e) {
            self.counters.events_dropped += 1;
        }
    }

    /// Sends a handshake packet soon, unless too many wait already.
    pub fn control_push(&mut self, control: Control) {
        if !self.out.control_push(control) {
            self.counters.control_dropped += 1;
        }
    }

    /// The time up to which everything that arrived has been handled.
    pub fn seen(&self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.rx.unread.0))
    }
}

/// The receive side, as far as it concerns all peers.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub granter: Granter,
    /// Acknowledgments are built here.
    pub scratch: AckBlock,
    /// Who shares the receive budget.
    pub flows: Flows,
    /// Datagrams that the receive socket has dropped so far.
    pub rxq_drops: u32,
    /// Packets that wait behind the one being handled.
    pub rxq_depth: u16,
    /// How far the packets that were handled lie behind the time: younger ones may wait unread.
    pub unread: Span,
}

/// Senders looked at with one acknowledgment for those that fell silent.
const FLOWS_SCAN: usize = 32;

/// Senders with more to come; they share the receive budget.
#[derive(Debug)]
pub(crate) struct Flows {
    /// By context: when a sender with more to come was last heard, `NEVER` for all others.
    heard: Vec<Time>,
    flowing: u32,
    /// When the silent ones among them were last struck off.
    struck_at: Time,
    /// Where the search for the silent ones goes on.
    hand: usize,
}

impl Flows {
    pub fn new(now: Time) -> Self {
        Self { heard: Vec::new(), flowing: 0, struck_at: now, hand: 0 }
    }

    /// Context `ci` begins.
    pub fn context_begin(&mut self, ci: Ctx) {
        let i = ci.index();
        if self.heard.len() <= i {
            self.heard.resize(i + 1, Time::NEVER);
        }
    }
    /// It has ended.
    pub fn context_end(&mut self, ci: Ctx) {
        if planted!(FlowingLeaks) {
            self.heard[ci.index()] = Time::NEVER;
        }
        self.note(Time::NEVER, ci, false);
    }

    /// The sender was heard; it has more to come, or not.
    #[inline]
    pub fn note(&mut self, now: Time, ci: Ctx, more: bool) {
        let heard = &mut self.heard[ci.index()];
        let had = *heard != Time::NEVER;
        *heard = if more { now } else { Time::NEVER };
        if had != more {
            self.flowing = if more { self.flowing + 1 } else { self.flowing - 1 };
        }
    }

    /// The peer was heard, and has not said whether it has more to come.
    #[inline]
    pub fn heard(&mut self, now: Time, ci: Ctx) {
        let heard = &mut self.heard[ci.index()];
        if *heard != Time::NEVER {
            *heard = now;
        }
    }

    /// How many share. Who was silent for that long gives its share back: a few are looked at each
    /// time, until all have been.
    pub fn count(&mut self, now: Time, silence: Span) -> u32 {
        if now.since(self.struck_at) > silence {
            self.strike(now, silence);
        }
        self.flowing.max(1)
    }

    fn strike(&mut self, now: Time, silence: Span) {
        for _ in 0..FLOWS_SCAN {
            let Some(heard) = self.heard.get_mut(self.hand) else {
                (self.hand, self.struck_at) = (0, now);
                return;
            };
            self.hand += 1;
            if *heard != Time::NEVER && now.since(*heard) > silence {
                *heard = Time::NEVER;
                self.flowing -= 1;
            }
        }
    }

    /// Whether as many share as are known to have more to come.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        let flowing = self.heard.iter().filter(|&&t| t != Time::NEVER).count();
        assert_eq!(self.flowing as usize, flowing, "senders with more to come");
    }

    /// For looking ahead.
    pub fn ahead(&self) -> u64 {
        u64::from(self.flowing) ^ self.struck_at.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_senders_give_their_share_back() {
        const SILENCE: Span = Span(100);
        let mut f = Flows::new(Time(0));
        (0..40).for_each(|ci| f.context_begin(Ctx(ci)));
        (0..40).for_each(|ci| f.note(Time(5), Ctx(ci), true));
        f.note(Time(6), Ctx(3), false);
        f.note(Time(6), Ctx(3), false);
        assert_eq!(f.count(Time(50), SILENCE), 39);
        f.heard(Time(90), Ctx(0));
        f.heard(Time(90), Ctx(3));
        assert_eq!(f.count(Time(150), SILENCE), 39 - 30, "32 are looked at, of which two stay");
        assert_eq!(f.count(Time(151), SILENCE), 1);
        f.context_end(Ctx(0));
        assert_eq!(f.count(Time(152), SILENCE), 1, "nobody: the whole is for who comes");
    }
}
