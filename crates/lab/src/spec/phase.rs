//! Settings of the transport "saa" and of flows placed without packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rates of flows. Only with `transport = "saa"`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SaaSpec {
    /// "none": limited by cards and credits only. "optimal": computed once from all sizes and
    /// paths. "distributed": computed by control packets.
    pub rates: RatesSpec,
    /// Translation of a rate into departures of packets: "exact", "bucket" or "none" (only with
    /// rates; default: exact).
    pub injection: Option<InjectionSpec>,
    /// Capacity of a bucket in packets (bucket; default 4).
    pub bucket_packets: Option<u32>,
    /// Bytes of a full packet on the wire, headers included.
    pub packet_bytes: u32,
    /// Bytes of headers in a full packet.
    pub header_bytes: u32,
    /// Every `probe_packets`-th packet of a flow carries a probe (distributed).
    pub probe_packets: u32,
    /// Time after which an unanswered announcement or withdrawal is repeated, us (distributed);
    /// default: 20 base RTTs.
    pub timeout_us: Option<f64>,
}

impl Default for SaaSpec {
    fn default() -> Self {
        Self {
            rates: RatesSpec::None,
            injection: None,
            bucket_packets: None,
            // 4,096 B of payload, with the frame headers of SRD and TCP.
            packet_bytes: 4_162,
            header_bytes: 66,
            probe_packets: 8,
            timeout_us: None,
        }
    }
}

/// See [`SaaSpec::rates`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "explained where it is used")]
pub enum RatesSpec {
    None,
    Optimal,
    Distributed,
}

/// See [`SaaSpec::injection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "explained where it is used")]
pub enum InjectionSpec {
    Exact,
    Bucket,
    None,
}

/// Placement of flows without packets. Only with `transport = "static"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticSpec {
    /// Number of workloads that are drawn from the run's seed and placed.
    pub runs: u32,
}

impl Default for StaticSpec {
    fn default() -> Self {
        Self { runs: 1_000 }
    }
}
