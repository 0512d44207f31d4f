//! `fuzz`: runs every target in fuzz/ for a limited time.
//!
//! The layout is that of cargo-fuzz, so `cargo fuzz run TARGET` works, but this command does not
//! need cargo-fuzz. With a nightly toolchain the targets run with the address sanitizer; otherwise
//! the command says so and uses the pinned stable compiler, which supports coverage instrumentation
//! but no sanitizer.

use crate::{
    Result,
    args::Args,
    process::{self, cargo, command, run},
    tools,
};
use std::{fs, path::PathBuf};
use toml::de::DeTable;

/// The flags of cargo-fuzz, without the sanitizer.
const RUSTFLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1 \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// `fuzz [--seconds N]`.
pub fn run_command(args: &mut Args) -> Result {
    let seconds = args.value("--seconds")?.unwrap_or(30);
    args.end()?;
    all(seconds)
}

/// Runs each target for `seconds`, starting from the corpus that earlier runs left in
/// `fuzz/corpus`.
pub fn all(seconds: u64) -> Result {
    let targets = targets()?.into_iter().map(|name| (name, seconds));
    run_targets(&targets.collect::<Vec<_>>(), &[])
}

/// The gate's run: parsing of received packets. The fault checker's worlds run there from seeds, a
/// hundred times as many per second as with the sanitizer.
pub fn gate() -> Result {
    run_targets(&gate_targets(), GATE_FEATURES)
}

/// Builds the programs that the gate runs.
pub fn prebuild() -> Result {
    build(&gate_targets(), GATE_FEATURES, nightly_is_there()).map(|_| ())
}

/// Without the targets that need the libraries for ciphers or the fault checker.
const GATE_FEATURES: &[&str] = &["--no-default-features"];

/// Targets of the gate with their seconds.
fn gate_targets() -> [(String, u64); 1] {
    [("wire_parse".into(), 20)]
}

/// Builds these targets; returns the folder of the programs.
fn build(targets: &[(String, u64)], features: &[&str], sanitizer: bool) -> Result<PathBuf> {
    tools::ensure(&["c++"])?;
    let host = tools::host()?;
    let folder = if sanitizer { "fuzz-asan" } else { "fuzz" };
    let built = process::target_dir().join(folder);
    let what = ["build", "--release", "--manifest-path", "fuzz/Cargo.toml"];
    let mut build = if sanitizer {
        let mut nightly = command("cargo", &["+nightly"]);
        nightly.args(what);
        nightly
    } else {
        eprintln!(
            "fuzz: no nightly toolchain (`rustup toolchain install nightly --profile minimal`): \
             the targets run without the address sanitizer"
        );
        cargo(&what)
    };
    // With an explicit target, build scripts and macros are not instrumented.
    build.args(["--target", &host, "--target-dir"]).arg(&built).args(features);
    build.args(targets.iter().flat_map(|(name, _)| ["--bin", name]));
    let mut flags = RUSTFLAGS.to_owned();
    if sanitizer {
        flags.push_str(" -Zsanitizer=address");
    }
    run(build.env("RUSTFLAGS", flags))?;
    Ok(built.join(&host).join("release"))
}

/// Builds these targets and runs each for its seconds.
fn run_targets(targets: &[(String, u64)], features: &[&str]) -> Result {
    let sanitizer = nightly_is_there();
    let programs = build(targets, features, sanitizer)?;
    for (target, seconds) in targets {
        let corpus = format!("fuzz/corpus/{target}");
        let artifacts = format!("fuzz/artifacts/{target}/");
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(process::root().join(folder))
                .map_err(|e| format!("cannot make folder {folder}: {e}"))?;
        }
        let program = programs.join(target);
        let mut c = command(&program.to_string_lossy(), &[&corpus]);
        let seeds = format!("fuzz/seeds/{target}");
        if process::root().join(&seeds).is_dir() {
            c.arg(seeds);
        }
        c.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={artifacts}"));
        // The sanitizer delays the reuse of freed memory, and is slower.
        let (timeout, memory) = if sanitizer {
            ("-timeout=20", "-rss_limit_mb=2048")
        } else {
            ("-timeout=10", "-rss_limit_mb=1024")
        };
        c.args([timeout, memory, "-print_final_stats=1", "-verbosity=1"]);
        run(&mut c).map_err(|e| format!("{e}\nthe input that failed is in {artifacts}"))?;
    }
    Ok(())
}

/// Names of the binaries in fuzz/Cargo.toml.
fn targets() -> Result<Vec<String>> {
    let path = process::root().join("fuzz/Cargo.toml");
    let text = fs::read_to_string(path).map_err(|e| format!("cannot read fuzz/Cargo.toml: {e}"))?;
    let names = target_names(&text).map_err(|e| format!("fuzz/Cargo.toml: {e}"))?;
    if names.is_empty() { Err("fuzz/Cargo.toml names no [[bin]]".into()) } else { Ok(names) }
}

fn target_names(text: &str) -> std::result::Result<Vec<String>, toml::de::Error> {
    let table = DeTable::parse(text)?;
    let bins = table.get_ref().get("bin").and_then(|b| b.get_ref().as_array());
    let name = |b: &toml::Spanned<toml::de::DeValue<'_>>| {
        b.get_ref().get("name")?.get_ref().as_str().map(String::from)
    };
    Ok(bins.into_iter().flat_map(|b| b.iter()).filter_map(name).collect())
}

/// Whether a nightly toolchain can be selected by name, which requires rustup.
fn nightly_is_there() -> bool {
    let mut probe = command("cargo", &["+nightly", "--version"]);
    probe.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    probe.status().is_ok_and(|s| s.success())
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_targets() {
        let text = "[[bin]]\nname = \"a\"\n[[bin]]\nname = \"b\"\npath = \"x.rs\"\n";
        assert_eq!(super::target_names(text).unwrap(), ["a", "b"]);
        assert!(super::target_names("[package]\n").unwrap().is_empty());
    }
}
