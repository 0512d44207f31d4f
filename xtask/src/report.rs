//! `report`: measures SRD beside raw UDP and kernel TCP and writes `docs/performance.md`.

use crate::{
    Result,
    args::Args,
    process::{cargo, command, root, run},
    tools, verbs,
};

/// Builds the measured programs, and passes the options on.
pub fn run_command(args: &mut Args) -> Result {
    let options = args.rest();
    tools::ensure(&["cc"])?;
    // The raw UDP program, which the results are compared with.
    run(&mut cargo(&["build", "--release", "-p", "srd-datapath", "--example", "raw"]))?;
    if options.iter().any(|o| o == "--peers") {
        // Programs for libfabric run over SRD by these.
        tools::build_release("srd-cli", "srd")?;
        verbs::build(None)?;
    }
    let secure = |o: &String| {
        o == "--sealed" || o == "--peers" || o.starts_with("tls-") || o.starts_with("quic-")
    };
    if options.iter().any(secure) {
        let manifest = root().join("bench/secure/Cargo.toml");
        let manifest = manifest.to_string_lossy();
        run(&mut cargo(&["build", "--release", "--manifest-path", &manifest]))?;
    }
    // The program `peers`, and the benchmark of the core alone.
    tools::build_release("srd-report", "peers")?;
    tools::build_release("srd-bench", "srd-bench")?;
    let program = tools::build_release("srd-report", "srd-report")?;
    run(command(&program.to_string_lossy(), &[]).args(options))
}
