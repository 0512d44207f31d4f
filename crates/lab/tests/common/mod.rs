//! Small specs for tests.

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

/// Links and sockets of a slow namespace fabric: the end of `[network]`, and `[engine]`.
pub const SLOW_WIRES: &str = r#"
link_delay_ns = 2_500
buffer_bytes = 200_000
ecn_bytes_min = 0
ecn_bytes_max = 0

[engine]
defaults = "sockets"
mtu = 8936
verb = "send"
message_bytes = 8936
qp_shared = true
"#;

/// All cases of a spec's text with `SLOW_WIRES` for the line `# slow wires`.
pub fn file_on_slow_wires(text: &str) -> SpecFile {
    let text = text.replace("# slow wires", SLOW_WIRES);
    SpecFile::parse(&text, Path::new("."), false).unwrap_or_else(|e| panic!("{e}\n{text}"))
}
