//! Settings shared by all hosts of a run.

use srd_fabric::{PACKET_BYTES_MAX, Ps, US};
use std::fmt;

/// What bounds the sender's packets in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// No bound: packets leave at the rate of the link.
    Stream,
    /// At most this many unacknowledged packets; 1 is the baseline of the slides.
    Window(u32),
    /// Additive increase, multiplicative decrease, as in TCP.
    Aimd,
    /// The proposal of the slides: a threshold in the receiver's ring, as a share of the ring.
    DupAck(f64),
}

/// What a sender retransmits after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Everything from the lost packet on; receivers discard packets received out of order.
    GoBackN,
    /// The lost packet only.
    Selective,
}

/// How a sender reacts to a duplicate acknowledgment ([`Policy::DupAck`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The sender stops. It resumes after an acknowledgment of new data, unless another duplicate
    /// follows within the arrival interval of two of its packets.
    StopGo,
    /// The sender stops, and resumes with the next acknowledgment of new data.
    StopGoAtOnce,
    /// The sender sends one packet per newly acknowledged packet, until a round trip has passed
    /// without a duplicate.
    Clocked,
}

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The host that starts a flow sends the data.
    Put,
    /// The host that starts a flow requests and receives the data.
    Get,
}

/// Settings shared by all hosts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopaConfig {
    /// What bounds the packets in flight.
    pub policy: Policy,
    /// What is retransmitted.
    pub recovery: Recovery,
    /// Reaction to a duplicate acknowledgment.
    pub reaction: Reaction,
    /// Direction of the data.
    pub verb: Verb,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Bytes of a data packet on the wire besides the payload.
    pub overhead_bytes: u32,
    /// Bytes of an acknowledgment, a NACK or a request on the wire.
    pub control_bytes: u32,
    /// Round trip time without queues.
    pub rtt_ps: Ps,
    /// Timeout: after this many round trips without an answer, everything in flight is lost.
    pub timeout_rtts: u32,
    /// Capacity of the retransmit buffer: most unacknowledged packets.
    pub outstanding_packets: u32,
}

impl CopaConfig {
    /// The defaults of `docs/copa.md`: packets of 4,096 bytes, go-back-N, [`Reaction::StopGo`], a
    /// threshold at half of the ring.
    pub const fn new(rtt_ps: Ps) -> Self {
        Self {
            policy: Policy::DupAck(0.5),
            recovery: Recovery::GoBackN,
            reaction: Reaction::StopGo,
            verb: Verb::Put,
            payload_bytes: 4_096,
            overhead_bytes: crate::HEADER_BYTES + 66,
            control_bytes: crate::HEADER_BYTES + 66,
            rtt_ps,
            timeout_rtts: 16,
            outstanding_packets: 8_192,
        }
    }

    /// Bytes of a full packet on the wire.
    pub const fn packet_bytes(&self) -> u32 {
        self.payload_bytes + self.overhead_bytes
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Names the invalid field and its valid values.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError(text));
        match self.policy {
            Policy::Window(0) => return refuse("window = 0 sends nothing: give at least 1".into()),
            Policy::DupAck(t) if !(0.0..=1.0).contains(&t) => {
                return refuse(format!("threshold = {t}: give a share of the ring, 0 to 1"));
            }
            _ => {}
        }
        if self.payload_bytes == 0
            || u64::from(self.payload_bytes) + u64::from(self.overhead_bytes)
                > u64::from(PACKET_BYTES_MAX)
        {
            return refuse(format!(
                "payload_bytes = {}: give 1 to {}",
                self.payload_bytes,
                PACKET_BYTES_MAX - self.overhead_bytes.min(PACKET_BYTES_MAX)
            ));
        }
        if !(1..=1_000_000).contains(&self.timeout_rtts) {
            return refuse(format!("timeout_rtts = {}: give 1 to 1,000,000", self.timeout_rtts));
        }
        if !(1..=1 << 20).contains(&self.outstanding_packets) {
            return refuse(format!(
                "outstanding_packets = {}: give 1 to {}",
                self.outstanding_packets,
                1 << 20
            ));
        }
        if self.rtt_ps == 0 || self.rtt_ps > 1_000_000 * US {
            return refuse("rtt_ps must be above 0, and at most a second".into());
        }
        Ok(())
    }
}

/// Invalid settings. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_give() {
        let good = CopaConfig::new(6 * US);
        assert_eq!(good.check(), Ok(()));
        for (config, words) in [
            (CopaConfig { policy: Policy::Window(0), ..good }, "window = 0"),
            (CopaConfig { policy: Policy::DupAck(1.5), ..good }, "threshold = 1.5: give a share"),
            (CopaConfig { policy: Policy::DupAck(f64::NAN), ..good }, "threshold = NaN"),
            (CopaConfig { payload_bytes: 0, ..good }, "payload_bytes = 0"),
            (CopaConfig { payload_bytes: 1 << 20, ..good }, "give 1 to 1048486"),
            (CopaConfig { timeout_rtts: 0, ..good }, "timeout_rtts = 0"),
            (CopaConfig { outstanding_packets: 0, ..good }, "outstanding_packets = 0"),
            (CopaConfig { rtt_ps: 0, ..good }, "rtt_ps"),
        ] {
            let e = config.check().unwrap_err().to_string();
            assert!(e.contains(words), "{e}");
        }
    }
}
