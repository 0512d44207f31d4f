//! Figures that an experiment declares: those by which a reader knows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure of the experiment, drawn at the head of its page.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlotSpec {
    /// Heading.
    pub title: String,
    /// Kind of figure.
    pub kind: PlotKind,
    /// Publication and number of the figure that this one repeats; `srd lab paper` draws these.
    pub source: Option<String>,
    /// What the source says of its figure.
    pub claim: Option<String>,
    /// Axis of the experiment along the horizontal axis (lines).
    pub x: Option<String>,
    /// Values: "max us" (largest completion time of each round), "dropped/host %", "goodput/host",
    /// "completion units", "congestion max", "congestion mean", or columns of `NAME-summary.csv`
    /// (lines).
    #[serde(default)]
    pub y: Vec<String>,
    /// Axes of the experiment whose values have a line each; "case" is a case's own name.
    #[serde(default)]
    pub series: Vec<String>,
    /// Axis of the experiment whose values have a panel each; "case" is a case's own name.
    pub panels: Option<String>,
    /// Only cases with all these labels.
    #[serde(default)]
    pub with: Vec<String>,
    /// No case with any of these labels.
    #[serde(default)]
    pub without: Vec<String>,
    /// Whether the ideal is drawn: payload alone at the slower end, shared equally.
    #[serde(default)]
    pub ideal: bool,
    /// Whether the horizontal axis is logarithmic (lines, cdf).
    #[serde(default)]
    pub log_x: bool,
    /// Whether the vertical axis is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// End of the horizontal axis in us from the start of the run (goodput, rounds); default: the
    /// end of the run.
    pub until_us: Option<f64>,
    /// Seeds per case in `srd lab paper`, if that is fewer than the spec's; default: the spec's.
    pub seeds: Option<u32>,
}

/// See [`PlotSpec::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// Values of cases against an axis.
    Lines,
    /// Distribution of completion times.
    Cdf,
    /// Completion times of the flows of the first sender, a dot each.
    Dots,
    /// Throughput of each flow over time; needs `measure.flows`.
    Flows,
    /// Throughput of all flows over time; needs `measure.goodput_us`.
    Goodput,
    /// Largest completion time of each round over time.
    Rounds,
    /// Bytes on each uplink of the senders' switch, from idle to busy; needs
    /// `shape = "leaf-spine"` and `measure.observe`, which `--out` and `srd lab paper` set.
    Uplinks,
}
