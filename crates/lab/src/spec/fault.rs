//! Faults in a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fault. Times are in us from the start of the run.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultSpec {
    /// A top-tier switch is a black hole; routing avoids it `routing_us` later (default: never).
    SpineHole {
        /// Time, us.
        at_us: u64,
        /// Index of the switch in its tier.
        spine: u32,
        /// Delay of routing, us; default: never.
        routing_us: Option<u64>,
        /// Time of recovery, us; default: never.
        until_us: Option<u64>,
    },
    /// Links run at a share of their rate.
    SlowLinks {
        /// Time, us.
        #[serde(default)]
        at_us: u64,
        /// Set of links.
        links: SlowSet,
        /// Number of links.
        count: u32,
        /// Percent of the built rate.
        percent: u32,
    },
    /// All links between switches lose packets at random.
    CoreLoss {
        /// Time, us.
        #[serde(default)]
        at_us: u64,
        /// Probability per packet.
        prob: f64,
    },
    /// Links lose their carrier and all packets on them.
    Down {
        /// Time, us.
        at_us: u64,
        /// Links: `leaf0->spine2` (one direction), `leaf0-spine2` (a cable), `spine2` or `host7`
        /// (all links of a node), `core` (all links between switches).
        at: String,
        /// Duration, us; default: until the end.
        for_us: Option<u64>,
        /// Delay of routing at both ends, us; default: never.
        routing_us: Option<u64>,
    },
    /// Links lose their carrier repeatedly.
    Flap {
        /// Time, us.
        at_us: u64,
        /// Links, as for `down`.
        at: String,
        /// Length of each outage, us.
        down_us: u64,
        /// Time between outages, us.
        up_us: u64,
        /// Number of outages.
        times: u32,
        /// Delay of routing, us; default: never.
        routing_us: Option<u64>,
    },
    /// Links accept packets and lose them (black hole).
    Hole {
        /// Time, us.
        at_us: u64,
        /// Links, as for `down`.
        at: String,
        /// Duration, us; default: until the end.
        for_us: Option<u64>,
        /// Delay of routing at both ends, us; default: never.
        routing_us: Option<u64>,
    },
    /// Links lose packets at random; routing does not react.
    Loss {
        /// Time, us.
        at_us: u64,
        /// Links, as for `down`.
        at: String,
        /// Probability per packet.
        prob: f64,
        /// Duration, us; default: until the end.
        for_us: Option<u64>,
    },
    /// Links run at a share of their rate.
    Slow {
        /// Time, us.
        at_us: u64,
        /// Links, as for `down`.
        at: String,
        /// Percent of the built rate.
        percent: u32,
        /// Duration, us; default: until the end.
        for_us: Option<u64>,
    },
    /// A switch goes down; afterwards its ECMP has another hash seed.
    SwitchDown {
        /// Time, us.
        at_us: u64,
        /// The switch, such as `spine2`.
        switch: String,
        /// Duration, us; default: until the end.
        for_us: Option<u64>,
        /// Delay of routing at both ends, us; default: never.
        routing_us: Option<u64>,
    },
    /// A host stops; its card holds arriving packets until its capacity is reached.
    HostStall {
        /// Time, us.
        at_us: u64,
        /// Index of the host.
        host: u32,
        /// Duration, us.
        for_us: u64,
    },
    /// A host's ring drains at a share of its rate.
    HostSlow {
        /// Time, us.
        at_us: u64,
        /// Index of the host.
        host: u32,
        /// Percent of `host.drain_gbps`.
        percent: u32,
        /// Duration, us; default: until the end.
        for_us: Option<u64>,
    },
    /// A host's ring alternates between a slow drain, first, and its own rate.
    HostPulse {
        /// Time, us.
        at_us: u64,
        /// Index of the host.
        host: u32,
        /// Percent of `host.drain_gbps` while slow.
        percent: u32,
        /// Length of each slow span, us.
        slow_us: u64,
        /// Length of each fast span, us.
        fast_us: u64,
        /// Number of slow spans.
        times: u32,
    },
}

impl FaultSpec {
    /// Start of the fault, us.
    pub const fn at_us(&self) -> u64 {
        match self {
            Self::SpineHole { at_us, .. }
            | Self::SlowLinks { at_us, .. }
            | Self::CoreLoss { at_us, .. }
            | Self::Down { at_us, .. }
            | Self::Flap { at_us, .. }
            | Self::Hole { at_us, .. }
            | Self::Loss { at_us, .. }
            | Self::Slow { at_us, .. }
            | Self::SwitchDown { at_us, .. }
            | Self::HostStall { at_us, .. }
            | Self::HostSlow { at_us, .. }
            | Self::HostPulse { at_us, .. } => *at_us,
        }
    }
}

/// Set of slow links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowSet {
    /// Downward links of the top tier, ordered by the switch below: those of the first aggregation
    /// switch (or leaf) first.
    DownFirst,
    /// Downward links of the top tier, drawn from the seed.
    DownRandom,
    /// Cables to the top tier in both directions, drawn from the seed.
    BothRandom,
    /// Cables of the first leaf (or aggregation switch), in both directions, in order.
    BothFirst,
}
