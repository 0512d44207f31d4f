//! Goals of a case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure of a case and its upper bound.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GoalSpec {
    /// The figure.
    pub figure: FigureSpec,
    /// Upper bound.
    pub most: f64,
    /// Applies only if the rate of hosts' links is at least this, Gb/s.
    pub from_gbps: Option<f64>,
    /// Applies only if the rate of hosts' links is below this, Gb/s.
    pub below_gbps: Option<f64>,
}

impl GoalSpec {
    /// Whether the goal applies to links of this rate.
    pub fn applies(&self, gbps: f64) -> bool {
        self.from_gbps.is_none_or(|from| gbps >= from)
            && self.below_gbps.is_none_or(|below| gbps < below)
    }
}

/// See [`GoalSpec::figure`]. The names are those in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
pub enum FigureSpec {
    /// Median completion time over the floor.
    #[serde(rename = "med/floor")]
    MedianFloor,
    /// Completion time of the slowest flow over its floor.
    #[serde(rename = "max/floor")]
    MaxFloor,
    /// Slowest over fastest flow of a round.
    #[serde(rename = "max/min")]
    MaxMin,
    /// Completion time of the slowest flow in us.
    #[serde(rename = "max us")]
    MaxUs,
    /// Retransmitted data packets in percent.
    #[serde(rename = "resent %")]
    ResentPercent,
    /// Retransmitted packets per lost packet.
    #[serde(rename = "resent/lost")]
    ResentLost,
    /// Completion time of the slowest flow over that of the slowest flow in the fluid optimum.
    #[serde(rename = "max/fluid")]
    MaxFluid,
    /// Median slowdown.
    #[serde(rename = "slowdown p50")]
    SlowdownP50,
    /// 99th percentile of slowdown.
    #[serde(rename = "slowdown p99")]
    SlowdownP99,
    /// 99th percentile of slowdown of flows below 10 KB.
    #[serde(rename = "slowdown p99 < 10 KB")]
    SlowdownP99Small,
}

impl FigureSpec {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MedianFloor => "med/floor",
            Self::MaxFloor => "max/floor",
            Self::MaxMin => "max/min",
            Self::MaxUs => "max us",
            Self::ResentPercent => "resent %",
            Self::ResentLost => "resent/lost",
            Self::MaxFluid => "max/fluid",
            Self::SlowdownP50 => "slowdown p50",
            Self::SlowdownP99 => "slowdown p99",
            Self::SlowdownP99Small => "slowdown p99 < 10 KB",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_for_their_rates() {
        let text = "figure = \"max/floor\"\nmost = 1.1\nfrom_gbps = 25\nbelow_gbps = 100";
        let goal: GoalSpec = toml::from_str(text).unwrap();
        assert_eq!([10.0, 25.0, 99.0, 100.0].map(|g| goal.applies(g)), [false, true, true, false]);
        assert_eq!(goal.figure.name(), "max/floor");
        let e = toml::from_str::<GoalSpec>("figure = \"max/flor\"\nmost = 1").unwrap_err();
        assert!(e.message().contains("`max/floor`"), "{e}");
    }
}
