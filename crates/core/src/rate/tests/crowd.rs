//! A crowd: many senders with the real path context before one bottleneck.
//!
//! The bottleneck is a tail-drop queue bounded in bytes, or a policer. Losses are found as the
//! engine finds them (`tx/loss.rs`): overtaken packets, early copies within their limit, tail
//! probes, timeouts, and probes of a peer that has fallen silent. A copy waits for the pacer like
//! any packet. Each packet is acknowledged by itself.

use super::network::{Events, Line};
use crate::config::EngineConfig;
use crate::events::LossRule;
use crate::ids::Ctx;
use crate::path::{Gate, Lost, PathContext};
use crate::rng::Rng;
use crate::time::{Span, Time};
use crate::tuning::{
    DOUBLING_EACH, DOUBLINGS_MAX, HEDGE_COST, HEDGE_CREDIT_MAX, HEDGED_MAX, HEDGES_MAX,
    STALL_DOUBLINGS_MAX, STALL_PROBES_QUICK,
};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of a probe of a silent peer on the wire.
const PROBE: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake,
    /// A packet reaches the bottleneck; `None`: a probe.
    Queue(Option<u64>),
    /// Its acknowledgment arrives.
    Ack(Option<u64>),
    Timer,
}

/// What the bottleneck is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bottleneck {
    /// A queue of this many bytes, served at the rate.
    Queue(u64),
    /// A token bucket of this many bytes, filled at the rate. What passes does not wait.
    Policer(u64),
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    psn: u64,
    path: u8,
    at: Time,
    again: u8,
}

#[derive(Clone, Copy, Debug)]
struct GivenUp {
    psn: u64,
    tx: u64,
    path: u8,
    counted: bool,
    blamed: bool,
    at: Time,
}

pub(crate) struct Sender {
    pub context: PathContext,
    base: Span,
    flying: BTreeMap<u64, Sent>,
    given_up: VecDeque<GivenUp>,
    resend: VecDeque<(u64, u8, u8)>,
    psn_next: u64,
    nic: Line,
    wake_at: Time,
    timer_at: Time,
    heard: Time,
    newest: Time,
    last_sent: Time,
    resumed_at: Time,
    tail_probes: u8,
    hedge_credit: u8,
    stalled: Option<(Time, u8)>,
    /// It has nothing to send any more.
    pub left: bool,
    pub delivered: u64,
    /// Packets that left, and of these, packets sent again.
    pub sent: u64,
    pub again: u64,
}

pub(crate) struct Crowd {
    pub now: Time,
    pub senders: Vec<Sender>,
    /// Packets that reached the bottleneck, and of these, packets that it dropped.
    pub offered: u64,
    pub dropped: u64,
    /// Waits of data packets in the queue in ns: their sum, and the longest of any packet.
    pub wait_ns: u64,
    pub wait_ns_max: u64,
    /// Packets per thousand that are lost before the bottleneck, whatever waits there.
    pub random_permille: u32,
    mtu: u32,
    bottleneck: Line,
    kind: Bottleneck,
    noise: Span,
    tokens: u64,
    tokens_at: Time,
    events: Events<(u32, Event)>,
    packets: u64,
    rng: Rng,
}

impl Crowd {
    /// One sender for each base RTT, which all begin within one of them.
    pub(crate) fn new(
        bases: &[Span],
        config: &EngineConfig,
        rate: u64,
        kind: Bottleneck,
        noise: Span,
    ) -> Self {
        let mut rng = Rng::from_seed(7);
        let sender = |rng: &mut Rng, base: Span| Sender {
            context: PathContext::new(&config.path, &config.rate, &config.loss, config.mtu, rng),
            base,
            flying: BTreeMap::new(),
            given_up: VecDeque::new(),
            resend: VecDeque::new(),
            psn_next: 0,
            nic: Line::new(config.rate.line_bytes_per_sec),
            wake_at: Time::NEVER,
            timer_at: Time::NEVER,
            heard: Time(0),
            newest: Time(0),
            last_sent: Time(0),
            resumed_at: Time(0),
            tail_probes: 0,
            hedge_credit: HEDGE_CREDIT_MAX,
            stalled: None,
            left: false,
            delivered: 0,
            sent: 0,
            again: 0,
        };
        let mut crowd = Self {
            now: Time(1_000_000),
            senders: bases.iter().map(|b| sender(&mut rng, *b)).collect(),
            offered: 0,
            dropped: 0,
            wait_ns: 0,
            wait_ns_max: 0,
            random_permille: 0,
            mtu: u32::from(config.mtu),
            bottleneck: Line::new(rate),
            kind,
            noise,
            tokens: 0,
            tokens_at: Time(0),
            events: Events::new(),
            packets: 0,
            rng,
        };
        for (s, base) in bases.iter().enumerate() {
            let (nic, queue) = (crowd.senders[s].nic, crowd.bottleneck);
            let rtt = *base + nic.time_of(crowd.mtu) + queue.time_of(crowd.mtu);
            crowd.senders[s].context.awake(crowd.now).on_echo(0, rtt, false);
            let within = u32::try_from(base.0).unwrap_or(u32::MAX);
            let at = Time(crowd.now.0 + u64::from(crowd.rng.below(within)));
            crowd.at(at, s, Event::Wake);
        }
        crowd
    }

    fn at(&mut self, time: Time, s: usize, event: Event) {
        self.events.add(time, (s as u32, event));
    }

    pub(crate) fn counters_reset(&mut self) {
        (self.offered, self.dropped, self.wait_ns, self.wait_ns_max) = (0, 0, 0, 0);
        for s in &mut self.senders {
            (s.delivered, s.sent, s.again) = (0, 0, 0);
        }
    }

    /// Runs for `span`, or until the bottleneck has seen `packets_max`.
    pub(crate) fn run(&mut self, span: Span, packets_max: u64) {
        let end = self.now + span;
        let enough = self.offered + packets_max;
        while self.offered < enough {
            let Some((time, (s, event))) = self.events.pop_until(end) else { break };
            self.now = time;
            let s = s as usize;
            match event {
                Event::Wake => {
                    if self.senders[s].wake_at <= time {
                        self.senders[s].wake_at = Time::NEVER;
                    }
                    self.wake(s);
                }
                Event::Queue(id) => self.queue(s, id),
                Event::Ack(Some(id)) => self.ack(s, id),
                Event::Ack(None) => self.probe_answered(s),
                Event::Timer => {
                    if self.senders[s].timer_at == time {
                        self.senders[s].timer_at = Time::NEVER;
                        self.timer(s);
                    }
                }
            }
            self.timer_arm(s);
        }
        if self.offered < enough {
            self.now = end;
        }
    }

    fn wake(&mut self, s: usize) {
        let now = self.now;
        while self.senders[s].stalled.is_none() && !self.senders[s].left {
            match self.senders[s].context.gate(now, false) {
                Gate::Open { .. } => self.send(s),
                Gate::Until(t) | Gate::Uncredited(t) => {
                    if t < self.senders[s].wake_at {
                        self.senders[s].wake_at = t;
                        self.at(t, s, Event::Wake);
                    }
                    return;
                }
                Gate::Blocked => return,
            }
        }
    }

    fn send(&mut self, s: usize) {
        let (now, mtu) = (self.now, self.mtu);
        let sender = &mut self.senders[s];
        let (psn, again, avoid) = match sender.resend.pop_front() {
            Some((psn, again, path)) => (psn, again, Some(path)),
            None => {
                sender.psn_next += 1;
                (sender.psn_next, 0, None)
            }
        };
        let path = sender.context.awake(now).path_choose(
            Ctx(s as u32),
            avoid.map(Lost::on),
            &mut self.rng,
        );
        // The model has no use for probes of other paths.
        let _ = sender.context.awake(now).explore_take(&mut self.rng);
        sender.context.awake(now).on_sent(path, mtu, again > 0, false);
        self.packets += 1;
        sender.flying.insert(self.packets, Sent { psn, path, at: now, again });
        sender.last_sent = now;
        sender.sent += 1;
        sender.again += u64::from(again > 0);
        let noise = Span((u64::from(self.rng.next_u32()) * self.noise.0) >> 32);
        let arrival = sender.nic.send(now, mtu) + sender.base.scale(1, 2) + noise;
        self.at(arrival, s, Event::Queue(Some(self.packets)));
    }

    fn queue(&mut self, s: usize, id: Option<u64>) {
        let bytes = if id.is_some() { self.mtu } else { PROBE };
        self.offered += u64::from(id.is_some());
        let half = self.senders[s].base.scale(1, 2);
        if self.random_permille > 0 && self.rng.below(1000) < self.random_permille {
            self.dropped += u64::from(id.is_some());
            return;
        }
        let leaves = match self.kind {
            Bottleneck::Queue(buffer) => {
                let wait = self.bottleneck.wait(self.now);
                let queued =
                    u128::from(wait.0) * u128::from(self.bottleneck.rate()) / 1_000_000_000;
                if queued + u128::from(bytes) > u128::from(buffer) {
                    self.dropped += u64::from(id.is_some());
                    return;
                }
                self.wait_ns += if id.is_some() { wait.0 } else { 0 };
                self.wait_ns_max = self.wait_ns_max.max(wait.0);
                self.bottleneck.send(self.now, bytes)
            }
            Bottleneck::Policer(depth) => {
                let since = self.now.since(self.tokens_at);
                let more = u128::from(since.0) * u128::from(self.bottleneck.rate()) / 1_000_000_000;
                if more > 0 {
                    self.tokens = depth.min(self.tokens + more as u64);
                    self.tokens_at = self.now;
                }
                if self.tokens < u64::from(bytes) {
                    self.dropped += u64::from(id.is_some());
                    return;
                }
                self.tokens -= u64::from(bytes);
                self.now + self.senders[s].nic.time_of(bytes)
            }
        };
        self.at(leaves + half, s, Event::Ack(id));
    }

    fn ack(&mut self, s: usize, id: u64) {
        let (now, mtu) = (self.now, self.mtu);
        self.heard(s);
        let sender = &mut self.senders[s];
        if let Some(at) = sender.given_up.iter().position(|g| g.tx == id) {
            let g = sender.given_up.remove(at).expect("it was found");
            if g.counted {
                sender.context.awake(now).on_spurious(g.path);
            }
            let copy = sender.flying.iter().find(|(_, f)| f.psn == g.psn).map(|(k, f)| (*k, *f));
            if let Some((k, f)) = copy {
                sender.flying.remove(&k);
                sender.context.awake(now).on_acked(f.path, mtu, f.at);
            } else if let Some(at) = sender.resend.iter().position(|r| r.0 == g.psn) {
                sender.resend.remove(at);
            } else {
                return;
            }
            sender.newest = sender.newest.max(g.at);
            sender.delivered += u64::from(mtu);
            sender.context.awake(now).on_echo(g.path, now.since(g.at), false);
            return self.ack_end(s, mtu);
        }
        let Some(f) = sender.flying.remove(&id) else { return };
        sender.delivered += u64::from(mtu);
        sender.newest = sender.newest.max(f.at);
        // Echoes come before what is acknowledged.
        sender.context.awake(now).on_echo(f.path, now.since(f.at), false);
        sender.context.awake(now).on_acked(f.path, mtu, f.at);
        if f.again > 0
            && let Some(at) = sender.given_up.iter().position(|g| g.psn == f.psn && !g.blamed)
        {
            let g = sender.given_up.remove(at).expect("it was found");
            sender.context.awake(now).on_proved_lost(g.path, g.counted);
        }
        self.ack_end(s, mtu);
    }

    fn ack_end(&mut self, s: usize, acked: u32) {
        let now = self.now;
        let sender = &mut self.senders[s];
        sender.tail_probes = 0;
        sender.hedge_credit = (sender.hedge_credit + 1).min(HEDGE_CREDIT_MAX);
        sender.last_sent = sender.last_sent.max(now);
        sender.context.awake(now).on_ack_end(acked, false, false);
        self.overtaken(s);
        self.wake(s);
    }

    fn heard(&mut self, s: usize) {
        let now = self.now;
        let sender = &mut self.senders[s];
        sender.heard = now;
        if sender.stalled.take().is_some() {
            sender.context.awake(now).resumed();
            (sender.resumed_at, sender.last_sent, sender.tail_probes) = (now, now, 0);
        }
    }

    fn probe_answered(&mut self, s: usize) {
        self.heard(s);
        self.wake(s);
    }

    fn overtaken(&mut self, s: usize) {
        let now = self.now;
        while let Some((id, at)) = self.senders[s].overtaken_at() {
            if at > now {
                return;
            }
            self.senders[s].lose(now, id, self.mtu, LossRule::Overtaken);
        }
    }

    fn timer(&mut self, s: usize) {
        let (now, mtu, base) = (self.now, self.mtu, self.senders[s].base);
        let sender = &mut self.senders[s];
        if let Some((at, round)) = sender.stalled {
            if at <= now {
                let doublings = round.saturating_sub(STALL_PROBES_QUICK).min(STALL_DOUBLINGS_MAX);
                let wait = sender.context.srtt().scale(1 << doublings, 1).min(Span::from_ms(100));
                sender.stalled = Some((now + wait.max(Span::from_us(20)), round.saturating_add(1)));
                self.at(now + base.scale(1, 2), s, Event::Queue(None));
            }
            return;
        }
        self.overtaken(s);
        let sender = &mut self.senders[s];
        let hedged = sender.is_hedged();
        if sender.tail_at() <= now {
            let Some((&id, &f)) = sender.flying.first_key_value() else { return };
            sender.tail_probes += 1;
            sender.hedge_credit -= if hedged { HEDGE_COST } else { 0 };
            sender.last_sent = now;
            sender.forget(id, &f, mtu);
            return self.wake(s);
        }
        while let Some((&id, &f)) = sender.flying.first_key_value() {
            if sender.timeout_at(&f) > now {
                break;
            }
            if sender.heard < f.at.max(sender.resumed_at) {
                let flying: Vec<_> = sender.flying.iter().map(|(i, f)| (*i, *f)).collect();
                for (id, f) in flying {
                    sender.forget(id, &f, mtu);
                }
                sender.stalled = Some((now, 0));
                return;
            }
            sender.lose(now, id, mtu, LossRule::Timeout);
        }
        self.wake(s);
    }

    fn timer_arm(&mut self, s: usize) {
        let sender = &mut self.senders[s];
        let due = match sender.stalled {
            Some((at, _)) => at,
            None => match sender.flying.first_key_value() {
                None => Time::NEVER,
                Some((_, f)) => {
                    let first = sender.timeout_at(f).min(sender.tail_at());
                    first.min(sender.overtaken_at().map_or(Time::NEVER, |o| o.1))
                }
            },
        };
        let due = due.max(self.now);
        if due < sender.timer_at && due != Time::NEVER {
            sender.timer_at = due;
            self.at(due, s, Event::Timer);
        }
        // A timer that is armed too early finds nothing due, and arms the next one.
    }
}

impl Sender {
    /// The oldest packet in flight, and when it counts as lost because later ones arrived.
    fn overtaken_at(&self) -> Option<(u64, Time)> {
        let (&id, f) = self.flying.first_key_value()?;
        if f.at >= self.newest {
            return None;
        }
        let due = f.at + self.context.reorder_slack();
        let late = due + self.context.srtt() + self.context.host_delay();
        Some((id, if due < self.newest { Time(0) } else { late }))
    }

    fn is_hedged(&self) -> bool {
        self.flying.len() <= HEDGED_MAX as usize && self.hedge_credit >= HEDGE_COST
    }

    fn tail_at(&self) -> Time {
        if self.flying.is_empty() {
            return Time::NEVER;
        }
        let wait = match self.is_hedged() {
            true if self.tail_probes < HEDGES_MAX => {
                self.context.hedge_delay().scale(1 << self.tail_probes, 1)
            }
            false if self.tail_probes == 0 => self.context.tlp_delay(),
            _ => return Time::NEVER,
        };
        self.last_sent + wait
    }

    fn timeout_at(&self, f: &Sent) -> Time {
        let doublings = (f.again / DOUBLING_EACH).min(DOUBLINGS_MAX);
        let timeout = self.context.rto(f.path);
        let longer = timeout.scale(1 << doublings, 1).min(Span::from_ms(100));
        f.at.max(self.resumed_at) + timeout.max(longer)
    }

    fn remember(&mut self, id: u64, f: &Sent, counted: bool, blamed: bool) {
        if self.given_up.len() == 64 {
            self.given_up.pop_front();
        }
        self.given_up.push_back(GivenUp {
            psn: f.psn,
            tx: id,
            path: f.path,
            counted,
            blamed,
            at: f.at,
        });
        self.resend.push_back((f.psn, f.again.saturating_add(1), f.path));
    }

    fn forget(&mut self, id: u64, f: &Sent, mtu: u32) {
        self.flying.remove(&id);
        self.context.on_forgotten(mtu);
        self.remember(id, f, false, false);
    }

    fn lose(&mut self, now: Time, id: u64, mtu: u32, rule: LossRule) {
        let Some(f) = self.flying.remove(&id) else { return };
        let blamed = self.context.awake(now).on_lost(f.path, mtu, rule);
        self.remember(id, &f, true, blamed);
    }
}
