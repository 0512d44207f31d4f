//! The sending end of a connection.

use super::paths::Paths;
use super::{Nscc, UeConfig};
use crate::messages::Messages;
use srd_fabric::{HostId, Ps, Rng};
use std::collections::{BTreeSet, VecDeque};

/// Round trips without an acknowledgment after which a probe is sent while there is more to send.
const PROBE_RTTS: u64 = 3;
/// Least number of packets out of order before missing ones count as lost.
const EARLY_LEAST: f64 = 5.0;

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UeCounters {
    /// Data packets sent, repetitions included.
    pub sent: u64,
    /// Repetitions.
    pub repeated: u64,
    /// Packets that timed out.
    pub timeouts: u64,
    /// Probes sent.
    pub probes: u64,
    /// Acknowledgments sent.
    pub acks: u64,
    /// Credits sent.
    pub credits: u64,
    /// Data packets that the receiver already had.
    pub duplicates: u64,
}

impl UeCounters {
    /// Adds the counters of another host.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.repeated += other.repeated;
        self.timeouts += other.timeouts;
        self.probes += other.probes;
        self.acks += other.acks;
        self.credits += other.credits;
        self.duplicates += other.duplicates;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flight,
    Lost,
    Acked,
}

/// A packet that was sent and is not acknowledged cumulatively.
#[derive(Clone, Copy, Debug)]
struct Sent {
    state: State,
    len: u32,
    entropy: u16,
    at: Ps,
    repeated: bool,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub psn: u64,
    pub len: u32,
    pub entropy: u16,
    pub wanted: u64,
    pub ask: bool,
}

/// An acknowledgment as the sender reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub expected: u64,
    pub psn: u64,
    pub base: u64,
    pub bits: u64,
    pub early: u32,
    pub entropy: u16,
    pub marked: bool,
    pub probe: bool,
}

/// The sending end of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) dst: HostId,
    /// The port from which entropies count.
    pub(super) sport: u16,
    messages: Messages,
    sent: VecDeque<Sent>,
    una: u64,
    next: u64,
    /// Wire bytes in flight.
    flight: u64,
    lost: BTreeSet<u64>,
    lost_bytes: u64,
    /// Payload that has not been sent.
    unsent_bytes: u64,
    nscc: Option<Nscc>,
    paths: Paths,
    /// Recovery lasts until this packet is acknowledged; packets before `repeat_next` have been
    /// judged.
    recovery_end: Option<u64>,
    repeat_next: u64,
    /// Credit in bytes, without any before the first answer; sum of all credit granted.
    credit: f64,
    granted: u64,
    speculating: bool,
    pub(super) timer_at: Ps,
    /// When the last probe was sent that is not answered.
    probed_at: Option<Ps>,
    pub(super) queued: bool,
    pub(super) counters: UeCounters,
}

impl Connection {
    /// Bytes of this end with its queues.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.sent.capacity() * size_of::<Sent>() + self.messages.held_bytes()
    }

    pub(super) fn new(dst: HostId, sport: u16, config: &UeConfig, rng: Rng) -> Self {
        Self {
            dst,
            sport,
            messages: Messages::default(),
            sent: VecDeque::new(),
            una: 0,
            next: 0,
            flight: 0,
            lost: BTreeSet::new(),
            lost_bytes: 0,
            unsent_bytes: 0,
            nscc: config.nscc.then(|| Nscc::new(config)),
            paths: Paths::new(config, rng),
            recovery_end: None,
            repeat_next: 0,
            credit: if config.rccc { config.window_bytes_max() } else { 0.0 },
            granted: 0,
            speculating: true,
            timer_at: Ps::MAX,
            probed_at: None,
            queued: false,
            counters: UeCounters::default(),
        }
    }

    /// The window of NSCC in bytes; `None` without it.
    pub fn window(&self) -> Option<f64> {
        self.nscc.as_ref().map(Nscc::window)
    }

    /// Wire bytes in flight.
    pub const fn flight(&self) -> u64 {
        self.flight
    }

    pub(super) fn post(&mut self, tag: u64, bytes: u64, config: &UeConfig) {
        let packets = self.messages.add(Some(tag), bytes, config.mtu);
        self.unsent_bytes += bytes + packets * u64::from(config.header_bytes);
        if self.speculating || !config.rccc {
            return;
        }
        // A new message after silence begins like the first: with a window of its own.
        if self.flight == 0 && self.lost.is_empty() && self.messages.count() == 1 {
            self.speculating = true;
            self.credit = self.credit.max(config.window_bytes_max());
        }
    }

    fn window_max(&self, config: &UeConfig) -> f64 {
        self.nscc.as_ref().map_or(f64::INFINITY, Nscc::window).min(if config.nscc {
            f64::INFINITY
        } else {
            // Credit limits what is in flight; a bound for safety.
            4.0 * config.window_bytes_max()
        })
    }

    /// Whether a packet may be sent.
    pub(super) fn ready(&self, config: &UeConfig) -> bool {
        if self.lost.is_empty() && self.next == self.messages.end() {
            return false;
        }
        if config.rccc && self.credit <= 0.0 {
            return false;
        }
        let room = self.flight as f64 + f64::from(config.wire_bytes()) <= self.window_max(config);
        room || self.flight == 0 || (self.recovery_end.is_some() && !self.lost.is_empty())
    }

    /// Takes the packet that is sent next. `active`: connections of this host that are sending.
    pub(super) fn take(&mut self, now: Ps, active: u64, config: &UeConfig) -> Option<Next> {
        if !self.ready(config) {
            return None;
        }
        let entropy = self.paths.next();
        let (psn, len) = if let Some(psn) = self.lost.pop_first() {
            let sent = &mut self.sent[(psn - self.una) as usize];
            *sent = Sent { state: State::Flight, at: now, entropy, repeated: true, ..*sent };
            self.lost_bytes -= u64::from(sent.len + config.header_bytes);
            self.counters.repeated += 1;
            (psn, sent.len)
        } else {
            let psn = self.next;
            let len = self.messages.part(psn, config.mtu).map_or(0, |part| part.len);
            self.next += 1;
            let sent = Sent { state: State::Flight, len, entropy, at: now, repeated: false };
            self.sent.push_back(sent);
            self.unsent_bytes -= u64::from(len + config.header_bytes);
            (psn, len)
        };
        let wire = u64::from(len + config.header_bytes);
        self.flight += wire;
        self.counters.sent += 1;
        if config.rccc {
            self.credit -= wire as f64;
        }
        let wanted = if config.rccc { self.wanted(active, config) } else { 0 };
        let ask = self.next == self.messages.end() && self.lost.is_empty();
        self.timer_arm(now, config);
        Some(Next { psn, len, entropy, wanted, ask: ask || !self.ready(config) })
    }

    /// Credit that is wanted, in bytes since the start.
    fn wanted(&self, active: u64, config: &UeConfig) -> u64 {
        let backlog = (self.unsent_bytes + self.lost_bytes) as f64;
        let more = (backlog.min(config.window_bytes_max()) - self.credit).max(0.0);
        let share = more / active.max(1) as f64;
        // Never less than a packet while there is anything to send.
        let least = if backlog > 0.0 { f64::from(config.wire_bytes()) } else { 0.0 };
        self.granted + share.max(least) as u64
    }

    /// Credit has arrived.
    pub(super) fn on_credit(&mut self, granted: u64) {
        self.speculation_end();
        self.credit += granted.saturating_sub(self.granted) as f64;
        self.granted = self.granted.max(granted);
    }

    fn speculation_end(&mut self) {
        if std::mem::take(&mut self.speculating) {
            self.credit = self.credit.min(0.0);
        }
    }

    /// Handles an acknowledgment; `done` gets the tag of every message that it completes.
    pub(super) fn on_ack(&mut self, now: Ps, a: &Acked, config: &UeConfig, done: impl FnMut(u64)) {
        if config.rccc {
            self.speculation_end();
        }
        let sample = a.psn.checked_sub(self.una).and_then(|i| self.sent.get(i as usize));
        let sample = sample.filter(|s| !a.probe && !s.repeated && s.state != State::Acked);
        let rtt = sample.map(|s| now - s.at);
        let newly = self.acked_take(a, config);
        self.messages.complete(self.una, done);
        if !a.probe {
            self.paths.acked(a.entropy, a.marked);
        }
        let flight = self.flight as f64;
        if let Some(nscc) = &mut self.nscc {
            let delay = rtt.map(|rtt| nscc.delay_of(rtt, a.marked));
            nscc.on_ack(now, newly as f64, delay, a.marked, flight);
        }
        if a.probe
            && let Some(probed_at) = self.probed_at.take()
            && now - probed_at < config.base_rtt_ps + config.target_ps
        {
            // The probe met no queue, so what was sent before it should have arrived.
            self.recovery_begin();
            self.repeat_next = self.una;
        }
        self.losses_find(now, a.early, config);
        self.timer_arm(now, config);
    }

    /// Marks what an acknowledgment reports; the wire bytes that are new.
    fn acked_take(&mut self, a: &Acked, config: &UeConfig) -> u64 {
        let mut newly = 0;
        let reported = (0..64).filter(|i| a.bits >> i & 1 == 1).map(|i| a.base + i);
        let cumulative = self.una..a.expected.min(self.next);
        for psn in cumulative.chain(reported) {
            let Some(at) = psn.checked_sub(self.una) else { continue };
            let Some(sent) = self.sent.get_mut(at as usize) else { continue };
            let wire = u64::from(sent.len + config.header_bytes);
            match std::mem::replace(&mut sent.state, State::Acked) {
                State::Flight => self.flight -= wire,
                State::Lost => {
                    self.lost.remove(&psn);
                    self.lost_bytes -= wire;
                }
                State::Acked => continue,
            }
            newly += wire;
        }
        while self.una < a.expected && self.sent.pop_front().is_some() {
            self.una += 1;
        }
        newly
    }

    fn recovery_begin(&mut self) {
        if self.recovery_end.is_none() {
            self.recovery_end = Some(self.next);
        }
    }

    /// Judges packets lost if many after them have arrived.
    fn losses_find(&mut self, now: Ps, early: u32, config: &UeConfig) {
        let packet = f64::from(config.mtu);
        let most = config.window_bytes_max();
        let window = self.nscc.as_ref().map_or(most, Nscc::window);
        let threshold = ((config.early_windows * window).min(most) / packet).max(EARLY_LEAST);
        if self.recovery_end.is_some_and(|end| self.una >= end) {
            self.recovery_end = None;
        }
        if self.recovery_end.is_none() {
            if f64::from(early) < threshold {
                return;
            }
            self.recovery_begin();
        }
        let Some(end) = self.recovery_end else { return };
        let to = end.min(self.una + (window / packet).max(1.0) as u64);
        let from = self.repeat_next.max(self.una);
        // A packet younger than this may still wait in a queue: it is judged with a later
        // acknowledgment.
        let age = config.base_rtt_ps + config.late_targets * config.target_ps;
        for psn in from..to {
            let sent = &self.sent[(psn - self.una) as usize];
            if sent.state == State::Flight && now - sent.at < age {
                self.repeat_next = psn;
                return;
            }
            self.lose(now, psn, config);
        }
        self.repeat_next = from.max(to);
    }

    /// Counts a packet in flight as lost.
    fn lose(&mut self, now: Ps, psn: u64, config: &UeConfig) {
        let sent = &mut self.sent[(psn - self.una) as usize];
        if sent.state != State::Flight {
            return;
        }
        sent.state = State::Lost;
        let wire = u64::from(sent.len + config.header_bytes);
        self.paths.lost(sent.entropy);
        self.flight -= wire;
        self.lost_bytes += wire;
        self.lost.insert(psn);
        let flight = self.flight as f64;
        if let Some(nscc) = &mut self.nscc {
            nscc.on_loss(now, wire as f64, flight);
        }
    }

    /// Sets the timer to the next probe, at which packets in flight may also time out.
    fn timer_arm(&mut self, now: Ps, config: &UeConfig) {
        if !self.active() || self.next == 0 {
            self.timer_at = Ps::MAX;
            return;
        }
        let more = self.next < self.messages.end() || !self.lost.is_empty();
        let wait = if more {
            PROBE_RTTS * config.base_rtt_ps
        } else {
            config.base_rtt_ps + config.target_ps
        };
        self.timer_at = now + wait;
    }

    /// Handles the timer. Returns true if a probe must be sent.
    pub(super) fn on_timer(&mut self, now: Ps, config: &UeConfig) -> bool {
        if self.timer_at > now || !self.active() {
            return false;
        }
        let old = |s: &Sent| s.state == State::Flight && s.at + config.timeout_ps <= now;
        let late: Vec<u64> =
            (self.una..).zip(&self.sent).filter(|(_, s)| old(s)).map(|(psn, _)| psn).collect();
        for psn in &late {
            self.counters.timeouts += 1;
            self.lose(now, *psn, config);
        }
        if !late.is_empty() && config.rccc {
            // The receiver may not know that it is wanted: one packet asks again.
            self.credit = self.credit.max(f64::from(config.wire_bytes()));
        }
        self.timer_arm(now, config);
        let probe = self.flight > 0 || !self.ready(config);
        self.counters.probes += u64::from(probe);
        self.probed_at = if probe { Some(now) } else { self.probed_at };
        probe
    }

    /// Sequence number, path and wish of a probe.
    pub(super) fn probe(&mut self, active: u64, config: &UeConfig) -> Next {
        let wanted = if config.rccc { self.wanted(active, config) } else { 0 };
        let entropy = self.paths.next();
        Next { psn: self.next.saturating_sub(1), len: 0, entropy, wanted, ask: true }
    }

    /// Whether anything is left to send or in flight.
    pub(super) fn active(&self) -> bool {
        self.una < self.messages.end()
    }
}
