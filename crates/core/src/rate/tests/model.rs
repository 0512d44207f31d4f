//! A network small enough to reason about: senders, paths with a fixed extra delay, one queue.
//!
//! Packets of one size; each is acknowledged by itself after half a base RTT. Loss is detected by
//! the two rules and the timeout that the context's spans define.

use super::network::{Events, Line};
use crate::config::EngineConfig;
use crate::events::LossRule;
use crate::ids::Ctx;
use crate::path::{Gate, Lost, PathContext};
use crate::rng::Rng;
use crate::time::{Span, Time};
use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

pub(crate) const MTU: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    Queue(usize, u64),
    Ack(usize, u64),
    Timers(usize),
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    path: u8,
    sent: Time,
}

pub(crate) struct Sender {
    pub context: PathContext,
    /// Obeys credits.
    pub credited: bool,
    flying: BTreeMap<u64, Flying>,
    lost: BTreeMap<u64, u8>,
    resend: u32,
    avoid: Option<u8>,
    nic: Line,
    wake_at: Time,
    /// Last send or acknowledgment: silence after it is probed for loss.
    heard: Time,
    pub active: bool,
    pub delivered: u64,
    pub losses: u64,
    pub spurious: u64,
}

pub(crate) struct Model {
    pub now: Time,
    pub senders: Vec<Sender>,
    pub path_extra: [Span; 256],
    pub path_dead: [bool; 256],
    /// Everything is lost while set.
    pub silent: bool,
    pub loss_permille: u32,
    /// Up to this much is added to each RTT sample.
    pub noise: Span,
    pub buffer: u64,
    pub queue_ns_max: u64,
    bottleneck: Line,
    base: Span,
    events: Events<Event>,
    packets: u64,
    rng: Rng,
}

impl Model {
    /// `n` senders with NICs of `line` share a queue of `rate`.
    pub(crate) fn new(n: usize, line: u64, rate: u64, base: Span, seed: u64) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self::with_config(
            n,
            &EngineConfig::simulated(ip, 0, MTU as u16, line, base),
            rate,
            base,
            seed,
        )
    }

    pub(crate) fn with_config(
        n: usize,
        config: &EngineConfig,
        rate: u64,
        base: Span,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::from_seed(seed);
        let sender = |rng: &mut Rng| Sender {
            context: PathContext::new(&config.path, &config.rate, &config.loss, config.mtu, rng),
            credited: false,
            flying: BTreeMap::new(),
            lost: BTreeMap::new(),
            resend: 0,
            avoid: None,
            nic: Line::new(config.rate.line_bytes_per_sec),
            wake_at: Time::NEVER,
            heard: Time(0),
            active: true,
            delivered: 0,
            losses: 0,
            spurious: 0,
        };
        let mut model = Self {
            now: Time(1_000_000),
            senders: (0..n).map(|_| sender(&mut rng)).collect(),
            path_extra: [Span::ZERO; 256],
            path_dead: [false; 256],
            silent: false,
            loss_permille: 0,
            noise: Span::ZERO,
            buffer: 1 << 20,
            queue_ns_max: 0,
            bottleneck: Line::new(rate),
            base,
            events: Events::new(),
            packets: 0,
            rng,
        };
        for s in 0..n {
            model.at(model.now, Event::Wake(s));
            model.at(model.now, Event::Timers(s));
        }
        model
    }

    /// Changes the rate of the queue, in bytes per second; what waits in it waits no longer.
    pub(crate) fn rate_set(&mut self, rate: u64) {
        self.bottleneck = Line::new(rate);
    }

    fn at(&mut self, time: Time, event: Event) {
        self.events.add(time, event);
    }

    /// Gives each sender the sample of an undisturbed handshake.
    pub(crate) fn handshakes(&mut self) {
        for sender in &mut self.senders {
            let rtt = self.base + sender.nic.time_of(MTU) + self.bottleneck.time_of(MTU);
            sender.context.awake(self.now).on_echo(0, rtt, false);
        }
    }

    /// Lets a sender that rested send again.
    pub(crate) fn start(&mut self, s: usize) {
        self.senders[s].active = true;
        self.at(self.now, Event::Wake(s));
    }

    /// Forgets what was counted.
    pub(crate) fn counters_reset(&mut self) {
        self.queue_ns_max = 0;
        for s in &mut self.senders {
            s.delivered = 0;
        }
    }

    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        while let Some((time, event)) = self.events.pop_until(end) {
            self.now = time;
            match event {
                Event::Wake(s) => self.wake(s),
                Event::Queue(s, id) => self.queue(s, id),
                Event::Ack(s, id) => self.ack(s, id),
                Event::Timers(s) => self.timers(s),
            }
        }
        self.now = end;
    }

    fn wake(&mut self, s: usize) {
        let now = self.now;
        if self.senders[s].wake_at <= now {
            self.senders[s].wake_at = Time::NEVER;
        }
        while self.senders[s].active {
            let sender = &self.senders[s];
            match sender.context.gate(now, sender.credited) {
                Gate::Open { bytes } => {
                    assert!(bytes >= MTU, "an open gate has room for a packet");
                    self.send(s);
                }
                Gate::Until(t) | Gate::Uncredited(t) => {
                    assert!(t > now, "a pause ends in the future");
                    if t < self.senders[s].wake_at {
                        self.senders[s].wake_at = t;
                        self.at(t, Event::Wake(s));
                    }
                    return;
                }
                Gate::Blocked => return,
            }
        }
    }

    fn send(&mut self, s: usize) {
        let (now, sender) = (self.now, &mut self.senders[s]);
        sender.heard = now;
        let again = sender.resend > 0;
        sender.resend -= u32::from(again);
        let avoid = if again { sender.avoid } else { None };
        let path = sender.context.awake(now).path_choose(
            Ctx(s as u32),
            avoid.map(Lost::on),
            &mut self.rng,
        );
        sender.context.awake(now).on_sent(path, MTU, again, sender.credited);
        self.packets += 1;
        let id = self.packets;
        sender.flying.insert(id, Flying { path, sent: now });
        let extra = self.path_extra[usize::from(path)];
        let arrival = sender.nic.send(now, MTU) + extra + self.base.scale(1, 2);
        let unlucky = self.rng.below(1000) < self.loss_permille;
        if !unlucky && !self.silent && !self.path_dead[usize::from(path)] {
            self.at(arrival, Event::Queue(s, id));
        }
    }

    fn queue(&mut self, s: usize, id: u64) {
        let wait = self.bottleneck.wait(self.now);
        if wait.0 * (self.bottleneck.rate() / 1_000_000) / 1000 > self.buffer {
            return;
        }
        self.queue_ns_max = self.queue_ns_max.max(wait.0);
        let leaves = self.bottleneck.send(self.now, MTU);
        let noise = Span((u64::from(self.rng.next_u32()) * self.noise.0) >> 32);
        self.at(leaves + self.base.scale(1, 2) + noise, Event::Ack(s, id));
    }

    fn ack(&mut self, s: usize, id: u64) {
        let (now, sender) = (self.now, &mut self.senders[s]);
        if self.silent {
            return;
        }
        if let Some(path) = sender.lost.remove(&id) {
            sender.spurious += 1;
            sender.context.awake(now).on_spurious(path);
            return;
        }
        sender.heard = now;
        let Some(f) = sender.flying.remove(&id) else { return };
        sender.delivered += u64::from(MTU);
        sender.context.awake(now).on_acked(f.path, MTU, f.sent);
        sender.context.awake(now).on_echo(f.path, now.since(f.sent), false);
        let slack = sender.context.reorder_slack();
        let late = |o: &Flying| o.sent + slack < f.sent;
        let gone: Vec<u64> = sender.flying.iter().filter(|o| late(o.1)).map(|o| *o.0).collect();
        for id in gone {
            sender.lose(now, id, LossRule::Overtaken);
        }
        sender.context.awake(now).on_ack_end(MTU, false, sender.credited);
        self.wake(s);
    }

    fn timers(&mut self, s: usize) {
        let (now, sender) = (self.now, &mut self.senders[s]);
        let late: Vec<u64> = sender
            .flying
            .iter()
            .filter(|(_, f)| now.since(f.sent) > sender.context.rto(f.path))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            sender.lose(now, id, LossRule::Timeout);
        }
        while let Some(probe) = sender.context.probe_poll(now, 0) {
            let path = probe.path;
            sender.context.awake(now).on_uncounted_sent(path, 64);
            if !self.path_dead[usize::from(path)] && !self.silent {
                // Answered within the time to the next look at the timers.
                let then = now + self.base;
                sender.context.awake(then).on_echo(path, self.base, false);
            }
        }
        self.wake(s);
        let sender = &self.senders[s];
        let quiet = now.since(sender.heard) > sender.context.tlp_delay();
        if quiet && !sender.flying.is_empty() {
            self.send(s);
        }
        self.at(now + Span::from_us(20), Event::Timers(s));
    }
}

impl Sender {
    fn lose(&mut self, now: Time, id: u64, rule: LossRule) {
        let Some(f) = self.flying.remove(&id) else { return };
        self.context.awake(now).on_lost(f.path, MTU, rule);
        self.lost.insert(id, f.path);
        self.losses += 1;
        self.resend += 1;
        self.avoid = Some(f.path);
    }

    /// Paths in use.
    pub(crate) fn live(&self) -> usize {
        let mut stats = Vec::new();
        self.context.stats(&mut stats);
        stats.iter().filter(|p| p.state == "live" || p.state == "penalised").count()
    }
}
