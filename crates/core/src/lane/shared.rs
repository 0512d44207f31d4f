//! The state that all peers of an engine share, other than its objects: configuration, outgoing
//! queues, timers, counters, and the receive side.

use crate::api::AsyncEvent;
use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::events::{Event, Observer};
use crate::guards::Guard;
use crate::hash::Keyed;
use crate::ids::Ctx;
use crate::lane::flows::Flows;
use crate::lane::host::HostQueue;
use crate::networks::Networks;
use crate::outbox::{Control, Outbox};
use crate::path::table::MtuCounts;
use crate::peer::{ContextState, Peer};
use crate::rate::{Granter, Port};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::timer::Timers;
use srd_wire::AckBlock;

/// State that all peers of an engine share.
#[derive(Debug)]
pub(crate) struct Shared<O> {
    pub cfg: EngineConfig,
    pub counters: Counters,
    pub observer: O,
    /// Random numbers for choices that peers may guess.
    pub rng: Rng,
    pub out: Outbox,
    pub timers: Timers,
    /// Counts of addresses whose packet size is limited or under test.
    pub sizes: MtuCounts,
    pub networks: Networks,
    pub rx: Receiving,
    /// The port of the host, which all addresses share.
    pub port: Port,
}

impl<O: Observer> Shared<O> {
    pub fn new(cfg: EngineConfig, now: Time, observer: O, rng: Rng, keyed: Keyed) -> Self {
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
            flows: Flows::new(now, &cfg),
            rxq_drops: 0,
            host: HostQueue::new(now, cfg.rate.host_policy, cfg.mtu, cfg.rate.rtt_initial),
            unread: Span::ZERO,
        };
        Self {
            port: Port::new(now, &cfg),
            cfg,
            counters: Counters::default(),
            observer,
            rng,
            out: Outbox::default(),
            timers: Timers::default(),
            sizes: MtuCounts::default(),
            networks: Networks::new(keyed),
            rx,
        }
    }

    /// Withdraws a close, because the peer still uses the context: it stays open and gets a turn to
    /// send.
    pub fn close_withdraw(&mut self, now: Time, ci: Ctx, peer: &mut Peer, has_window: bool) {
        if let Some(from) = peer.handshake_mut().close_withdraw() {
            debug_assert_eq!(peer.state(), ContextState::Open, "it stays open");
            let (endpoint, to) = (peer.endpoint(), peer.state().name());
            let event = Event::Context { ctx: ci, peer: endpoint, from: from.name(), to };
            self.observer.event(now, event);
            if has_window {
                self.out.ready_push(ci);
            }
        }
    }

    /// Queues an event for the user; it is dropped and counted if the queue is full.
    pub fn event_push(&mut self, e: AsyncEvent) {
        if !self.out.event_push(e) {
            self.counters.events_dropped += 1;
        }
    }

    /// Queues a handshake packet; it is dropped and counted if the queue is full.
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

/// The part of the receive side that all peers share.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub granter: Granter,
    /// The block in which acknowledgments are built.
    pub scratch: AckBlock,
    /// Shares of the receive budget.
    pub flows: Flows,
    /// Datagrams that the receive socket has dropped so far.
    pub rxq_drops: u32,
    /// The queue between the network and the host's memory.
    pub host: HostQueue,
    /// Packets that arrived within this time before now may still wait to be read; all earlier ones
    /// were handled.
    pub unread: Span,
}
