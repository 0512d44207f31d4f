//! Small specs for tests.
#![allow(dead_code, reason = "each test file uses its part")]

use srd_lab::spec::{Spec, SpecFile};
use srd_lab::{RunResult, run};
use std::path::Path;

/// The cases of a spec's text.
pub fn cases(text: &str) -> Vec<Spec> {
    SpecFile::parse(text, Path::new("."), false).unwrap_or_else(|e| panic!("{e}\n{text}")).cases
}

/// Runs the first case of a spec's text.
pub fn run_text(text: &str, seed: u64) -> RunResult {
    let spec = &cases(text)[0];
    run(spec, Path::new("."), seed).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A spec with this network and workload.
pub fn spec(network: &str, workload: &str, rest: &str) -> String {
    format!(
        "name = \"test\"\ntitle = \"test\"\n{rest}\n[network]\n{network}\n[workload]\n{workload}\n"
    )
}
