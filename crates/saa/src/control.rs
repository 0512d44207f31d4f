//! Control packets: 16 bytes, one per event. A flow adds its weight to the links of its path when
//! it starts, queries the weight of the heaviest link from time to time, and subtracts its weight
//! at the end.
//!
//! Links keep one sum and no state per flow. A lost packet is retransmitted with the same number,
//! and a link ignores a number that it has counted; so a packet that was lost on a middle link is
//! counted on the remaining links only.

use srd_fabric::Ps;

/// Bytes of a control packet's contents.
pub const CONTROL_BYTES: u32 = 16;
/// Largest flow number: 24 bits on the wire.
pub const FLOW_MAX: u32 = (1 << 24) - 1;
/// Most doublings of the retransmission timeout: few, since lossless networks lose little and a
/// restored link should be noticed soon.
const BACKOFF_MAX: u32 = 6;

/// Type of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Announcement: the flow starts, and its weight is added to every link.
    Announce,
    /// Probe: queries the largest weight on the path; changes nothing.
    Probe,
    /// Withdrawal: the flow has ended, and its weight is subtracted from every link.
    Withdraw,
    /// Answer of the receiver: the largest weight that the event of this number met.
    Answer,
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Type.
    pub event: Event,
    /// The flow's number at its sender, at most [`FLOW_MAX`].
    pub flow: u32,
    /// The sender's number of the event; a retransmission keeps it.
    pub number: u32,
    /// Announcement, withdrawal: w_f. Answer: W_f. Probe: 0.
    pub value: u64,
}

/// The bytes are not a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotControl;

impl std::fmt::Display for NotControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the first byte is not a known event")
    }
}

impl std::error::Error for NotControl {}

impl Control {
    /// Wire format: event (1 byte), flow (3), number (4), value (8), big-endian.
    pub fn encode(&self) -> [u8; CONTROL_BYTES as usize] {
        let mut out = [0; CONTROL_BYTES as usize];
        let first = u32::from(self.event as u8 + 1) << 24 | self.flow & FLOW_MAX;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..8].copy_from_slice(&self.number.to_be_bytes());
        out[8..].copy_from_slice(&self.value.to_be_bytes());
        out
    }

    /// Parses the wire format.
    ///
    /// # Errors
    /// If the first byte is not a known event.
    pub fn decode(bytes: &[u8; CONTROL_BYTES as usize]) -> Result<Self, NotControl> {
        let event = match bytes[0] {
            1 => Event::Announce,
            2 => Event::Probe,
            3 => Event::Withdraw,
            4 => Event::Answer,
            _ => return Err(NotControl),
        };
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let value = u64::from(u32::from_be_bytes(word(8))) << 32;
        Ok(Self {
            event,
            flow: u32::from_be_bytes(word(0)) & FLOW_MAX,
            number: u32::from_be_bytes(word(4)),
            value: value | u64::from(u32::from_be_bytes(word(12))),
        })
    }
}

/// State of a flow at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Idle,
    /// Announced, not answered: no rate yet.
    Announced,
    /// Answered. The rate may be too high, because flows that start at the same time may not be
    /// announced yet.
    Told,
    /// Queried again to confirm the rate, not answered.
    Confirming,
    /// Flows that started at the same time are counted: the flow sends at its assigned rate.
    Running,
    /// Withdrawn, not answered.
    Withdrawn,
    /// Its weight is subtracted from every link.
    Ended,
}

/// The control of one flow at its sender.
#[derive(Clone, Debug)]
pub struct FlowControl {
    flow: u32,
    weight: u64,
    state: State,
    /// Number of the unanswered event.
    number: u32,
    timeout_ps: Ps,
    sent_at: Ps,
    tries: u32,
    probe_packets: u32,
    /// Data packets since the last probe.
    since_probe: u32,
    /// Number of the latest probe whose answer was used.
    answered: u32,
    counters: ControlCounters,
}

/// Counters of a flow's control packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlCounters {
    /// Announcements, confirmations and withdrawals, without retransmissions.
    pub events: u64,
    /// Probes piggybacked on data packets.
    pub probes: u64,
    /// Retransmitted events.
    pub repeated: u64,
    /// Answers with a changed W_f.
    pub rates: u64,
}

impl ControlCounters {
    /// Adds the counters of another flow.
    pub const fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.probes += other.probes;
        self.repeated += other.repeated;
        self.rates += other.rates;
    }
}

/// Allocates the numbers of a host's events; none is used twice.
#[derive(Clone, Debug, Default)]
pub struct Numbers(u32);

impl Numbers {
    /// Before the first event.
    pub const fn new() -> Self {
        Self(0)
    }
    /// The next number; never 0.
    pub fn take(&mut self) -> u32 {
        self.0 = self.0.checked_add(1).expect("2^32 events of one host are hours of simulation");
        self.0
    }
}

impl FlowControl {
    /// For a flow of `weight` that probes with every `probe_packets`th data packet and retransmits
    /// events not answered within `timeout_ps`.
    pub const fn new(flow: u32, weight: u64, probe_packets: u32, timeout_ps: Ps) -> Self {
        Self {
            flow,
            weight,
            state: State::Idle,
            number: 0,
            timeout_ps,
            sent_at: 0,
            tries: 0,
            probe_packets: if probe_packets == 0 { 1 } else { probe_packets },
            since_probe: 0,
            answered: 0,
            counters: ControlCounters { events: 0, probes: 0, repeated: 0, rates: 0 },
        }
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Its counters.
    pub const fn counters(&self) -> &ControlCounters {
        &self.counters
    }

    /// Its counters since the last call.
    pub fn counters_take(&mut self) -> ControlCounters {
        std::mem::take(&mut self.counters)
    }

    fn event(&mut self, now: Ps, event: Event, numbers: &mut Numbers) -> Control {
        self.number = numbers.take();
        (self.sent_at, self.tries) = (now, 0);
        self.counters.events += 1;
        self.control(event)
    }

    /// The unanswered event as a packet.
    const fn control(&self, event: Event) -> Control {
        let value = if matches!(event, Event::Probe) { 0 } else { self.weight };
        Control { event, flow: self.flow, number: self.number, value }
    }

    /// Starts the flow; returns the announcement.
    pub fn announce(&mut self, now: Ps, numbers: &mut Numbers) -> Control {
        debug_assert!(matches!(self.state, State::Idle | State::Ended), "a flow starts once");
        self.state = State::Announced;
        // The first data packet probes: by then all flows that started with it are announced.
        self.since_probe = self.probe_packets;
        self.answered = 0;
        self.event(now, Event::Announce, numbers)
    }

    /// Queries whether the rate is still valid. Returns a probe without data; it is retransmitted
    /// like an announcement, because the flow waits for the answer.
    pub fn confirm(&mut self, now: Ps, numbers: &mut Numbers) -> Option<Control> {
        if self.state != State::Told {
            return None;
        }
        self.state = State::Confirming;
        Some(self.event(now, Event::Probe, numbers))
    }

    /// Called after the last data packet; returns the withdrawal.
    pub fn withdraw(&mut self, now: Ps, numbers: &mut Numbers) -> Control {
        debug_assert_eq!(self.state, State::Running, "a flow ends once");
        self.state = State::Withdrawn;
        self.event(now, Event::Withdraw, numbers)
    }

    /// Called for each data packet; returns the probe to piggyback, if one is due.
    pub fn probe(&mut self, numbers: &mut Numbers) -> Option<Control> {
        self.since_probe = self.since_probe.saturating_add(1);
        if self.state != State::Running || self.since_probe <= self.probe_packets {
            return None;
        }
        self.since_probe = 1;
        self.counters.probes += 1;
        Some(Control { event: Event::Probe, flow: self.flow, number: numbers.take(), value: 0 })
    }

    /// Handles an answer. Returns `Some(W_f)` if it changes the rate.
    pub fn answer(&mut self, answer: &Control) -> Option<u64> {
        match self.state {
            State::Announced | State::Confirming if answer.number == self.number => {
                self.state = match self.state {
                    State::Announced => State::Told,
                    _ => State::Running,
                };
                self.answered = answer.number;
                self.counters.rates += 1;
                Some(answer.value)
            }
            // Answers of probes may be reordered: only later probes count.
            State::Running if answer.number > self.answered => {
                self.answered = answer.number;
                self.counters.rates += 1;
                Some(answer.value)
            }
            State::Withdrawn if answer.number == self.number => {
                self.state = State::Ended;
                None
            }
            _ => None,
        }
    }

    /// When the unanswered event must be retransmitted; [`Ps::MAX`] if there is none.
    pub const fn due(&self) -> Ps {
        match self.state {
            State::Announced | State::Confirming | State::Withdrawn => {
                let doubled = if self.tries > BACKOFF_MAX { BACKOFF_MAX } else { self.tries };
                self.sent_at.saturating_add(self.timeout_ps << doubled)
            }
            State::Idle | State::Told | State::Running | State::Ended => Ps::MAX,
        }
    }

    /// Retransmits the unanswered event. Call it at [`FlowControl::due`].
    pub const fn repeat(&mut self, now: Ps) -> Control {
        let event = match self.state {
            State::Withdrawn => Event::Withdraw,
            State::Confirming => Event::Probe,
            _ => Event::Announce,
        };
        self.sent_at = now;
        self.tries += 1;
        self.counters.repeated += 1;
        self.control(event)
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
