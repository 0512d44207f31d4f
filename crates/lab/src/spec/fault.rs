//! What goes wrong in a run, as a spec says it.

use serde::{Deserialize, Serialize};

/// A fault, at a time. Times count from the start of the run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultSpec {
    /// A top-tier switch swallows all packets; routing avoids it `routing_us` later (left out:
    /// never).
    SpineHole {
        /// When.
        at_us: u64,
        /// Which of its tier.
        spine: u32,
        /// Routing's delay.
        routing_us: Option<u64>,
        /// When it is well again.
        until_us: Option<u64>,
    },
    /// Links run at a share of their rate.
    SlowLinks {
        /// When.
        #[serde(default)]
        at_us: u64,
        /// Which links.
        links: SlowSet,
        /// How many of them.
        count: u32,
        /// Share of the built rate.
        percent: u32,
    },
    /// All links between switches lose packets at random.
    CoreLoss {
        /// When.
        #[serde(default)]
        at_us: u64,
        /// Probability.
        prob: f64,
    },
    /// Links lose their carrier, and all that is on them.
    Down {
        /// When.
        at_us: u64,
        /// Which links: `leaf0->spine2` (one way), `leaf0-spine2`, `spine2` or `host7` (all of it),
        /// `core` (all between switches).
        at: String,
        /// For how long; left out: for good.
        for_us: Option<u64>,
        /// Routing's delay, both times; left out: never.
        routing_us: Option<u64>,
    },
    /// Links lose their carrier again and again.
    Flap {
        /// When.
        at_us: u64,
        /// Which links.
        at: String,
        /// How long each time.
        down_us: u64,
        /// Time between.
        up_us: u64,
        /// How often.
        times: u32,
        /// Routing's delay.
        routing_us: Option<u64>,
    },
    /// Links take packets, which vanish.
    Hole {
        /// When.
        at_us: u64,
        /// Which links.
        at: String,
        /// For how long; left out: for good.
        for_us: Option<u64>,
        /// Routing's delay, both times; left out: never.
        routing_us: Option<u64>,
    },
    /// Links lose packets at random, and nobody notices.
    Loss {
        /// When.
        at_us: u64,
        /// Which links.
        at: String,
        /// Probability.
        prob: f64,
        /// For how long; left out: for good.
        for_us: Option<u64>,
    },
    /// Links run at a share of their rate.
    Slow {
        /// When.
        at_us: u64,
        /// Which links.
        at: String,
        /// Share of the built rate.
        percent: u32,
        /// For how long; left out: for good.
        for_us: Option<u64>,
    },
    /// A switch dies; when it comes back its ECMP has another hash seed.
    SwitchDown {
        /// When.
        at_us: u64,
        /// Which: `spine2`.
        switch: String,
        /// For how long; left out: for good.
        for_us: Option<u64>,
        /// Routing's delay, both times; left out: never.
        routing_us: Option<u64>,
    },
    /// A host does nothing; what arrives waits in its card, as far as that has room.
    HostStall {
        /// When.
        at_us: u64,
        /// Which.
        host: u32,
        /// For how long.
        for_us: u64,
    },
    /// A host's ring drains at a share of its rate.
    HostSlow {
        /// When.
        at_us: u64,
        /// Which.
        host: u32,
        /// Share of `host.drain_gbps`.
        percent: u32,
        /// For how long; left out: for good.
        for_us: Option<u64>,
    },
    /// A host's ring drains slowly and at its rate in turn, slowly first.
    HostPulse {
        /// When.
        at_us: u64,
        /// Which.
        host: u32,
        /// Share of `host.drain_gbps` while it is slow.
        percent: u32,
        /// For how long each time.
        slow_us: u64,
        /// Time between.
        fast_us: u64,
        /// How often.
        times: u32,
    },
}

impl FaultSpec {
    /// When it begins, in us.
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

/// Which links are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowSet {
    /// Links from the top tier down, switch by switch below: those of the first aggregation
    /// switch (or leaf) first.
    DownFirst,
    /// Links from the top tier down, drawn from the seed.
    DownRandom,
    /// Cables to the top tier in both directions, drawn from the seed.
    BothRandom,
    /// Cables of the first leaf (or aggregation switch), in both directions, in order.
    BothFirst,
}
