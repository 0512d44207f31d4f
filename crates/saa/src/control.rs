//! Control packets: 16 bytes, one per event. A flow adds its weight to the links of its way when it
//! starts, asks now and then what the heaviest of them weighs, and takes its weight off at the end.
//!
//! Links keep one sum and nothing of a flow. What is lost is sent again with the same number, and
//! links ignore a number that they have counted; so a packet that was lost half-way is counted on
//! the second half alone.

use srd_fabric::Ps;

/// Bytes of a control packet's contents.
pub const CONTROL_BYTES: u32 = 16;
/// Largest number of a flow at its host: 24 bits are on the wire.
pub const FLOW_MAX: u32 = (1 << 24) - 1;
/// Doublings of the time until a repetition: lossless networks lose little, and a link that comes
/// back is to be noticed soon.
const BACKOFF_MAX: u32 = 6;

/// What a control packet is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The flow starts: its weight is added to every link.
    Announce,
    /// What is the largest weight on the way? Changes nothing.
    Probe,
    /// The flow has ended: its weight is taken off every link.
    Withdraw,
    /// From the receiver: the largest weight that the event of this number met.
    Answer,
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// What it is about.
    pub event: Event,
    /// The flow's number at its sender, at most [`FLOW_MAX`].
    pub flow: u32,
    /// The event's number at its sender; a repetition has the same.
    pub number: u32,
    /// Announce, withdraw: w_f. Answer: W_f. Probe: 0.
    pub value: u64,
}

/// Bytes that are no control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotControl;

impl std::fmt::Display for NotControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the first byte names no event")
    }
}

impl std::error::Error for NotControl {}

impl Control {
    /// As on the wire: event (1 byte), flow (3), number (4), value (8), the high byte first.
    pub fn encode(&self) -> [u8; CONTROL_BYTES as usize] {
        let mut out = [0; CONTROL_BYTES as usize];
        let first = u32::from(self.event as u8 + 1) << 24 | self.flow & FLOW_MAX;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..8].copy_from_slice(&self.number.to_be_bytes());
        out[8..].copy_from_slice(&self.value.to_be_bytes());
        out
    }

    /// From the wire.
    ///
    /// # Errors
    /// If the first byte names no event.
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

/// What a sender's side of one flow has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Idle,
    /// Announced, not answered yet: no rate.
    Announced,
    /// Answered: it has been told a rate, which may be too high, because others that start with it
    /// may not have announced themselves yet.
    Told,
    /// It asks once more, and has no answer yet.
    Confirming,
    /// Flows that started together with it are counted: it sends at its assigned rate.
    Running,
    /// Withdrawn, not answered yet.
    Withdrawn,
    /// Its weight is off every link.
    Ended,
}

/// The control of one flow at its sender.
#[derive(Clone, Debug)]
pub struct FlowControl {
    flow: u32,
    weight: u64,
    state: State,
    /// Number of the event that waits for its answer.
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

/// Control packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlCounters {
    /// Announcements, confirmations and withdrawals, repetitions left aside.
    pub events: u64,
    /// Probes that rode on data packets.
    pub probes: u64,
    /// Events sent again.
    pub repeated: u64,
    /// Answers that told of a new W_f.
    pub rates: u64,
}

impl ControlCounters {
    /// Adds those of another flow.
    pub const fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.probes += other.probes;
        self.repeated += other.repeated;
        self.rates += other.rates;
    }
}

/// Numbers of a host's events: each once.
#[derive(Clone, Debug, Default)]
pub struct Numbers(u32);

impl Numbers {
    /// None yet.
    pub const fn new() -> Self {
        Self(0)
    }
    /// The next one; never 0.
    pub fn take(&mut self) -> u32 {
        self.0 = self.0.checked_add(1).expect("2^32 events of one host are hours of simulation");
        self.0
    }
}

impl FlowControl {
    /// Of a flow of `weight` that probes with every `probe_packets`th data packet and repeats what
    /// is not answered within `timeout_ps`.
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

    /// Where it is.
    pub const fn state(&self) -> State {
        self.state
    }

    /// What it has sent.
    pub const fn counters(&self) -> &ControlCounters {
        &self.counters
    }

    /// What it has sent since it was last asked.
    pub fn counters_take(&mut self) -> ControlCounters {
        std::mem::take(&mut self.counters)
    }

    fn event(&mut self, now: Ps, event: Event, numbers: &mut Numbers) -> Control {
        self.number = numbers.take();
        (self.sent_at, self.tries) = (now, 0);
        self.counters.events += 1;
        self.control(event)
    }

    /// The event that waits for its answer, as it is sent.
    const fn control(&self, event: Event) -> Control {
        let value = if matches!(event, Event::Probe) { 0 } else { self.weight };
        Control { event, flow: self.flow, number: self.number, value }
    }

    /// The flow starts: what to send first.
    pub fn announce(&mut self, now: Ps, numbers: &mut Numbers) -> Control {
        debug_assert!(matches!(self.state, State::Idle | State::Ended), "a flow starts once");
        self.state = State::Announced;
        // The first data packet probes: by then all that started with it have announced.
        self.since_probe = self.probe_packets;
        self.answered = 0;
        self.event(now, Event::Announce, numbers)
    }

    /// A flow that has been told a rate asks whether it still holds: what to send. A probe without
    /// data; it is repeated like an announcement, because the flow waits for its answer.
    pub fn confirm(&mut self, now: Ps, numbers: &mut Numbers) -> Option<Control> {
        if self.state != State::Told {
            return None;
        }
        self.state = State::Confirming;
        Some(self.event(now, Event::Probe, numbers))
    }

    /// The last data packet has left: what to send behind it.
    pub fn withdraw(&mut self, now: Ps, numbers: &mut Numbers) -> Control {
        debug_assert_eq!(self.state, State::Running, "a flow ends once");
        self.state = State::Withdrawn;
        self.event(now, Event::Withdraw, numbers)
    }

    /// A data packet leaves: the probe that rides on it, if it is time for one.
    pub fn probe(&mut self, numbers: &mut Numbers) -> Option<Control> {
        self.since_probe = self.since_probe.saturating_add(1);
        if self.state != State::Running || self.since_probe <= self.probe_packets {
            return None;
        }
        self.since_probe = 1;
        self.counters.probes += 1;
        Some(Control { event: Event::Probe, flow: self.flow, number: numbers.take(), value: 0 })
    }

    /// An answer has come. `Some(W_f)` if it tells of a rate.
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
            // Answers of probes may overtake each other where ways differ: only later ones count.
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

    /// When the last event must be sent again; [`Ps::MAX`] if nothing waits.
    pub const fn due(&self) -> Ps {
        match self.state {
            State::Announced | State::Confirming | State::Withdrawn => {
                let doubled = if self.tries > BACKOFF_MAX { BACKOFF_MAX } else { self.tries };
                self.sent_at.saturating_add(self.timeout_ps << doubled)
            }
            State::Idle | State::Told | State::Running | State::Ended => Ps::MAX,
        }
    }

    /// The last event once more, with its number. Call it at [`FlowControl::due`].
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
