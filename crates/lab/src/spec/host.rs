//! Settings of the receive path between a host's card and its memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The receive path of hosts: a ring that drains at its own rate.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSpec {
    /// Rate at which waiting bytes are written to memory, in Gb/s on the wire; default: without
    /// delay.
    pub drain_gbps: Option<f64>,
    /// Capacity in bytes on the wire; packets that do not fit are dropped. Default: 1 MiB, the
    /// order of magnitude of sockets and of cards of some hundred Gb/s.
    pub ring_bytes: u64,
    /// Delay from the end of waiting until a packet is in memory, in ns.
    pub dma_delay_ns: u64,
    /// Position of the transport: on the "card", before the ring, or on the "host", behind it.
    pub placement: PlacementSpec,
    /// Hosts with such a ring; default: all receivers.
    pub hosts: Option<Vec<u32>>,
}

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            drain_gbps: None,
            ring_bytes: 1 << 20,
            dma_delay_ns: 0,
            placement: PlacementSpec::Card,
            hosts: None,
        }
    }
}

/// See [`HostSpec::placement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::Placement")]
pub enum PlacementSpec {
    Card,
    Host,
}
