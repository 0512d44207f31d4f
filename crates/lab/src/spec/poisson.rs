//! Settings of flows that arrive at random times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most flows of a run, as expected from load and time; bounds memory.
pub const FLOWS_MAX: f64 = 1_000_000.0;

/// Open-loop arrivals. Only with `pattern = "poisson"`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PoissonSpec {
    /// Distribution of flow sizes: "web-search", "data-mining", or a file of points (see
    /// `docs/lab.md`), relative to the spec file.
    pub sizes: String,
    /// Mean payload rate of every host as a share of its link's rate, above 0 and at most 1.
    pub load: f64,
    /// Number of hosts that send and receive, spread over the network; default: all.
    pub hosts: Option<u32>,
    /// Length of the warm-up in us: earlier flows are not measured.
    #[serde(default = "warmup_us")]
    pub warmup_us: u64,
    /// Length of the measurement window after the warm-up, in us; flows that start in it are
    /// measured. Arrivals then continue for another warm-up.
    #[serde(default = "window_us")]
    pub window_us: u64,
}

const fn warmup_us() -> u64 {
    1_000
}
const fn window_us() -> u64 {
    10_000
}

impl PoissonSpec {
    /// Checks the ranges of the fields.
    ///
    /// # Errors
    /// The text names the field and its range.
    pub fn check(&self) -> Result<(), String> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(format!(
                "workload.poisson.load = {}: give a share of the link's rate above 0 and at most 1",
                self.load
            ));
        }
        if self.window_us == 0 || self.window_us > 10_000_000 || self.warmup_us > 10_000_000 {
            return Err("workload.poisson: give window_us from 1 to 10,000,000, and warmup_us up \
                        to 10,000,000"
                .into());
        }
        match self.hosts {
            Some(n) if n < 2 => {
                Err(format!("workload.poisson.hosts = {n}: give at least 2, or leave it out"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a flow that starts `start_ps` after the first round's start is measured.
    pub const fn measures(&self, start_ps: u64) -> bool {
        let from = self.warmup_us * srd_fabric::US;
        start_ps >= from && start_ps < from + self.window_us * srd_fabric::US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<PoissonSpec, String> {
        let spec: PoissonSpec = toml::from_str(text).map_err(|e| e.message().to_string())?;
        spec.check().map(|()| spec)
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (text, part) in [
            ("sizes = \"a\"", "missing field `load`"),
            ("load = 0.5", "missing field `sizes`"),
            ("sizes = \"a\"\nload = 0", "workload.poisson.load = 0:"),
            ("sizes = \"a\"\nload = 60", "workload.poisson.load = 60:"),
            ("sizes = \"a\"\nload = nan", "workload.poisson.load = NaN:"),
            ("sizes = \"a\"\nload = 0.5\nhosts = 1", "workload.poisson.hosts = 1:"),
            ("sizes = \"a\"\nload = 0.5\nwindow_us = 0", "window_us from 1"),
            ("sizes = \"a\"\nload = 0.5\nlaod = 1", "laod"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }

    #[test]
    fn the_window_begins_with_the_warm_ups_end() {
        let p = of("sizes = \"a\"\nload = 1\nwarmup_us = 2\nwindow_us = 3").unwrap();
        let us = [1.9, 2.0, 4.9, 5.0].map(|us| p.measures((us * 1e6) as u64));
        assert_eq!(us, [false, true, true, false]);
    }
}
