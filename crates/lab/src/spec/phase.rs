//! Fields of the transport "saa", and of flows that are placed without packets.

use serde::{Deserialize, Serialize};

/// How packets get their rates. Only with `transport = "saa"`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SaaSpec {
    /// "none": as fast as cards and credits let them. "optimal": computed once from all sizes and
    /// ways. "distributed": by control packets.
    pub rates: RatesSpec,
    /// How packets are made of a rate: "exact", "bucket" or "none" (only with rates; default:
    /// exact).
    pub injection: Option<InjectionSpec>,
    /// Packets that a bucket holds (bucket; default 4).
    pub bucket_packets: Option<u32>,
    /// Bytes of a full packet on the wire, headers included.
    pub packet_bytes: u32,
    /// Of these, headers.
    pub header_bytes: u32,
    /// Every so manieth packet of a flow carries a probe (distributed).
    pub probe_packets: u32,
    /// An announcement or withdrawal that is not answered within this time is repeated, us
    /// (distributed); default: 20 base RTTs.
    pub timeout_us: Option<f64>,
}

impl Default for SaaSpec {
    fn default() -> Self {
        Self {
            rates: RatesSpec::None,
            injection: None,
            bucket_packets: None,
            // 4,096 B of payload with the headers of a frame that SRD and TCP would have, too.
            packet_bytes: 4_162,
            header_bytes: 66,
            probe_packets: 8,
            timeout_us: None,
        }
    }
}

/// See [`SaaSpec::rates`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "explained where it is used")]
pub enum RatesSpec {
    None,
    Optimal,
    Distributed,
}

/// See [`SaaSpec::injection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "explained where it is used")]
pub enum InjectionSpec {
    Exact,
    Bucket,
    None,
}

/// Flows placed without packets. Only with `transport = "static"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticSpec {
    /// Workloads drawn and placed, one after the other, from the run's seed.
    pub runs: u32,
}

impl Default for StaticSpec {
    fn default() -> Self {
        Self { runs: 1_000 }
    }
}
