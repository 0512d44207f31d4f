//! COPA's settings in a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use srd_copa::{CopaConfig, HEADER_BYTES, Policy, Reaction, Recovery, Verb};
use srd_fabric::Ps;

/// Settings of COPA's transport that differ from its defaults. Only with `transport = "copa"`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopaSpec {
    /// "stream", "window", "aimd" or "dup-ack".
    pub policy: CopaPolicySpec,
    /// Most unacknowledged packets (window; default 1).
    pub window: Option<u32>,
    /// Depth of the ring, as a share of its size, up to which packets are acknowledged (dup-ack;
    /// default 0.5).
    pub threshold: Option<f64>,
    /// A sender's reaction to a duplicate acknowledgment: "stop-go" (default), "stop-go-at-once" or
    /// "clocked" (dup-ack).
    pub initiator: Option<CopaInitiatorSpec>,
    /// "go-back-n" or "selective".
    pub recovery: CopaRecoverySpec,
    /// "put": the first host of a pair sends to the second. "get": the first reads from the second.
    pub verb: CopaVerbSpec,
    /// Payload of a full packet, bytes.
    pub payload_bytes: u32,
    /// Retransmission timeout in base round trips.
    pub timeout_rtts: u32,
    /// Size of a sender's retransmit buffer in packets.
    pub outstanding_packets: u32,
}

impl Default for CopaSpec {
    fn default() -> Self {
        let c = CopaConfig::new(1);
        Self {
            policy: CopaPolicySpec::DupAck,
            window: None,
            threshold: None,
            initiator: None,
            recovery: CopaRecoverySpec::GoBackN,
            verb: CopaVerbSpec::Put,
            payload_bytes: c.payload_bytes,
            timeout_rtts: c.timeout_rtts,
            outstanding_packets: c.outstanding_packets,
        }
    }
}

/// See [`CopaSpec::policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_copa::Policy")]
pub enum CopaPolicySpec {
    Stream,
    Window,
    Aimd,
    DupAck,
}

/// See [`CopaSpec::initiator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_copa::Reaction")]
pub enum CopaInitiatorSpec {
    StopGo,
    StopGoAtOnce,
    Clocked,
}

/// See [`CopaSpec::recovery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_copa::Recovery")]
pub enum CopaRecoverySpec {
    GoBackN,
    Selective,
}

/// See [`CopaSpec::verb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_copa::Verb")]
pub enum CopaVerbSpec {
    Put,
    Get,
}

impl CopaSpec {
    /// The transport's configuration for a network with this base round trip.
    ///
    /// # Errors
    /// The text names the invalid field.
    pub fn config(&self, rtt_ps: Ps) -> Result<CopaConfig, String> {
        let only = |given: bool, field: &str, policy: &str| {
            let text =
                format!("copa.{field}: only copa.policy = \"{policy}\" uses it; leave it out");
            if given { Err(text) } else { Ok(()) }
        };
        if self.policy != CopaPolicySpec::Window {
            only(self.window.is_some(), "window", "window")?;
        }
        if self.policy != CopaPolicySpec::DupAck {
            only(self.threshold.is_some(), "threshold", "dup-ack")?;
            only(self.initiator.is_some(), "initiator", "dup-ack")?;
        }
        let control_bytes = crate::packet::wire_bytes(HEADER_BYTES);
        let config = CopaConfig {
            policy: match self.policy {
                CopaPolicySpec::Stream => Policy::Stream,
                CopaPolicySpec::Window => Policy::Window(self.window.unwrap_or(1)),
                CopaPolicySpec::Aimd => Policy::Aimd,
                CopaPolicySpec::DupAck => Policy::DupAck(self.threshold.unwrap_or(0.5)),
            },
            recovery: match self.recovery {
                CopaRecoverySpec::GoBackN => Recovery::GoBackN,
                CopaRecoverySpec::Selective => Recovery::Selective,
            },
            reaction: match self.initiator {
                Some(CopaInitiatorSpec::StopGo) | None => Reaction::StopGo,
                Some(CopaInitiatorSpec::StopGoAtOnce) => Reaction::StopGoAtOnce,
                Some(CopaInitiatorSpec::Clocked) => Reaction::Clocked,
            },
            verb: match self.verb {
                CopaVerbSpec::Put => Verb::Put,
                CopaVerbSpec::Get => Verb::Get,
            },
            payload_bytes: self.payload_bytes,
            overhead_bytes: control_bytes,
            control_bytes,
            rtt_ps,
            timeout_rtts: self.timeout_rtts,
            outstanding_packets: self.outstanding_packets,
        };
        config.check().map_err(|e| format!("copa.{e}"))?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<CopaConfig, String> {
        toml::from_str::<CopaSpec>(text).map_err(|e| e.message().to_string())?.config(7)
    }

    #[test]
    fn fields_reach_the_transport() {
        let c = of("policy = \"window\"\nwindow = 7\nrecovery = \"selective\"\nverb = \"get\"")
            .unwrap();
        assert_eq!((c.policy, c.recovery), (Policy::Window(7), Recovery::Selective));
        assert_eq!((c.verb, c.rtt_ps, c.control_bytes), (Verb::Get, 7, 90));
        let c = of("threshold = 0.25\ninitiator = \"clocked\"").unwrap();
        assert_eq!((c.policy, c.reaction), (Policy::DupAck(0.25), Reaction::Clocked));
        assert_eq!(of("").unwrap().packet_bytes(), 4_186);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, part) in [
            ("policy = \"window\"\nwindow = 0", "copa.window = 0"),
            ("window = 3", "copa.window: only copa.policy = \"window\""),
            ("policy = \"aimd\"\nthreshold = 0.5", "copa.threshold: only"),
            ("policy = \"stream\"\ninitiator = \"clocked\"", "copa.initiator: only"),
            ("threshold = 1.01", "copa.threshold = 1.01: give a share of the ring, 0 to 1"),
            ("threshold = -0.5", "copa.threshold = -0.5"),
            ("payload_bytes = 0", "copa.payload_bytes = 0"),
            ("policy = \"vegas\"", "vegas"),
            ("treshold = 1", "treshold"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
