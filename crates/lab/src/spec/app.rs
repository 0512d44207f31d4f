//! Parallel programs in a spec: `[app]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A parallel program that computes and communicates in steps. Only with `pattern = "app"`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AppSpec {
    /// What the ranks exchange in each step.
    pub pattern: AppPattern,
    /// How an allreduce is done (allreduce only; default "ring").
    pub algorithm: Option<AppAlgorithm>,
    /// Number of ranks; default: one per process of the network's hosts.
    pub ranks: Option<u32>,
    /// Number of steps (default 1); a rank begins the next one when it has ended its own.
    #[serde(default = "one")]
    pub steps: u32,
    /// Bytes of a step, of which the pattern makes messages: a face of the whole grid (halo3d), the
    /// whole array (spectral), or the buffer of each rank (alltoall, allreduce).
    pub bytes: u64,
    /// Computation of a step by one rank alone, in us, which the ranks share (default 0).
    #[serde(default)]
    pub compute_us: f64,
    /// Part of `compute_us` in percent that cannot be shared: every rank does all of it (default
    /// 0).
    #[serde(default)]
    pub serial_percent: f64,
    /// Spread of the ranks' computations: that of each rank and step is drawn uniformly from 1 -
    /// `imbalance` to 1 + `imbalance` times the mean (0 to 1, default 0).
    #[serde(default)]
    pub imbalance: f64,
    /// Exchanges of the pattern in each step, each after an equal part of the computation (default
    /// 1).
    #[serde(default = "one")]
    pub exchanges: u32,
    /// Allreduces of 8 bytes at the end of each step, such as dot products and norms (default 0).
    #[serde(default)]
    pub reductions: u32,
    /// Largest piece in which ring and tree pass a buffer on, in bytes (default 65,536).
    #[serde(default = "slice_bytes")]
    pub slice_bytes: u64,
    /// Figures of real programs, to compare with.
    #[serde(default)]
    pub published: Vec<PublishedSpec>,
}

/// A figure of a real program; one of `efficiency_percent` and `time_ratio`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSpec {
    /// Label, of an axis or a case, of the cases that the figure is for.
    pub of: String,
    /// Efficiency T1 / (N T_N) in percent; default: the figure is a `time_ratio`.
    pub efficiency_percent: Option<f64>,
    /// Time over that of the case with the label `against` in place of `of`; default: the figure is
    /// an efficiency.
    pub time_ratio: Option<f64>,
    /// Label of the other case for `time_ratio`, where it is required; default: none.
    pub against: Option<String>,
    /// Whether `compute_us` was chosen so that this figure results; default: it is predicted.
    #[serde(default)]
    pub given: bool,
}

/// What the ranks of a program exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppPattern {
    /// A grid in three dimensions, cut into boxes: every rank sends each face of its box to the
    /// neighbour there, on a torus. `bytes`: a face of the whole grid.
    Halo3d,
    /// Every rank sends an equal part of its buffer to every other. `bytes`: the buffer of a rank.
    Alltoall,
    /// The sum of all ranks' buffers at every rank. `bytes`: the buffer of a rank.
    Allreduce,
    /// A transpose of a distributed array, as a Fourier transform needs. `bytes`: the whole array.
    Spectral,
}

/// How an allreduce is done. The sums themselves take no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppAlgorithm {
    /// 2 (N - 1) steps around a ring with 1/N of the buffer each.
    Ring,
    /// Two binary trees with half of the buffer each; the inner ranks of one are leaves of the
    /// other.
    Tree,
    /// Recursive doubling: the whole buffer in each of log2 N steps.
    Doubling,
    /// Recursive halving, then doubling: N must be a power of two.
    HalvingDoubling,
}

const fn one() -> u32 {
    1
}
const fn slice_bytes() -> u64 {
    65_536
}

impl AppSpec {
    /// Checks everything that does not depend on the network.
    ///
    /// # Errors
    /// The text names the field and what to give instead.
    pub fn check(&self) -> Result<(), String> {
        if self.algorithm.is_some() && self.pattern != AppPattern::Allreduce {
            return Err(
                "app.algorithm: only app.pattern = \"allreduce\" has it; leave it out".into()
            );
        }
        let counts = [
            ("steps", self.steps, 1, 1_000_000),
            ("exchanges", self.exchanges, 1, 10_000),
            ("reductions", self.reductions, 0, 10_000),
        ];
        for (name, n, least, most) in counts {
            if !(least..=most).contains(&n) {
                return Err(format!("app.{name} = {n} must be from {least} to {most}"));
            }
        }
        if !(1..=1 << 50).contains(&self.bytes) || !(1..=1 << 40).contains(&self.slice_bytes) {
            return Err("app.bytes and app.slice_bytes must be at least 1, and at most 2^50 and \
                        2^40"
                .into());
        }
        let parts = [
            ("compute_us", self.compute_us, 1e9),
            ("serial_percent", self.serial_percent, 100.0),
            ("imbalance", self.imbalance, 1.0),
        ];
        for (name, value, most) in parts {
            if !(0.0..=most).contains(&value) {
                return Err(format!("app.{name} = {value} must be from 0 to {most}"));
            }
        }
        self.published.iter().try_for_each(PublishedSpec::check)
    }
}

impl PublishedSpec {
    fn check(&self) -> Result<(), String> {
        if self.efficiency_percent.is_some() == self.time_ratio.is_some() {
            return Err("app.published: give one of efficiency_percent and time_ratio".into());
        }
        if self.time_ratio.is_some() != self.against.is_some() {
            return Err("app.published: time_ratio needs the label of a case in against, and \
                        nothing else does"
                .into());
        }
        let value = self.efficiency_percent.or(self.time_ratio).unwrap_or(0.0);
        if !(value > 0.0 && value.is_finite()) {
            return Err(format!("app.published = {value} must be more than 0"));
        }
        Ok(())
    }
}
