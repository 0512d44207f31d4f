//! What is between a host's card and its memory.

use serde::{Deserialize, Serialize};

/// The receive path of hosts: a ring that drains at a rate of its own.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSpec {
    /// Rate at which what waits is written to memory, in Gb/s of bytes on the wire; left out: at
    /// once.
    pub drain_gbps: Option<f64>,
    /// Bytes on the wire that may wait; what does not fit is dropped. The default is what a socket
    /// or a card of some hundred Gb/s has: 1 MiB.
    pub ring_bytes: u64,
    /// From the end of waiting until a packet is in memory, in ns.
    pub dma_delay_ns: u64,
    /// Where the transport is: on the "card", before the ring, or on the "host", behind it.
    pub placement: PlacementSpec,
    /// Hosts that have such a ring; left out: all that receive.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are those of srd_fabric::Placement")]
pub enum PlacementSpec {
    Card,
    Host,
}
