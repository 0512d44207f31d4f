//! Format, lints and tests.

use crate::{
    Result,
    args::Args,
    process::{cargo, run, watch},
    tools,
};
use std::process::Command;

/// `fmt [--check]`.
pub fn fmt(args: &mut Args) -> Result {
    let check = args.flag("--check");
    args.end()?;
    if check { fmt_check() } else { run(&mut cargo(&["fmt", "--all"])) }
}

/// Reports unformatted code.
pub fn fmt_check() -> Result {
    run(&mut cargo(&["fmt", "--all", "--check"]))
        .map_err(|_| "the code is not formatted; run `cargo xtask fmt`".into())
}

/// Requires that `Cargo.lock` agrees with the manifests, so that all builds use the same versions.
pub fn lockfile() -> Result {
    crate::process::output(&mut cargo(&["metadata", "--locked", "--format-version", "1"]))
        .map(|_| ())
        .map_err(|e| format!("{e}\nCargo.lock is out of date: run `cargo check` and commit it"))
}

/// Runs Clippy and rustdoc on the workspace; every warning is an error.
pub fn lint() -> Result {
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    run(&mut cargo(&clippy))?;
    let without = ["clippy", "-p", "srd", "--no-default-features", "--", "--deny", "warnings"];
    run(&mut cargo(&without))?;
    // Only libraries, because the tool `srd` and the library `srd` have the same page.
    run(cargo(&["doc", "--workspace", "--no-deps", "--lib"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the models of the device's lock-free parts (`crates/srd/examples/models`).
pub fn models() -> Result {
    run(&mut models_command())
}

/// The command that runs the models.
pub fn models_command() -> Command {
    let mut c = cargo(&["run", "--quiet", "--package", "srd", "--example", "models"]);
    // Shuttle warns that it treats all orderings as sequentially consistent, which the models allow
    // for.
    c.env("SILENCE_SHUTTLE_WARNINGS", "1");
    c
}

/// `test [--quick]`.
pub fn test(args: &mut Args) -> Result {
    let quick = args.flag("--quick");
    args.end()?;
    test_all(quick)
}

/// Runs the tests of the workspace and prints the sums.
pub fn test_all(quick: bool) -> Result {
    let mut line = vec!["test", "--workspace", "--no-fail-fast"];
    if !quick {
        // Read captures and make networks of namespaces in tests that are skipped without them.
        tools::ensure(&["tshark", "ip"])?;
    }
    if quick {
        line.extend(["--lib", "--bins"]);
    }
    let mut sum = Sum::default();
    let ended = watch(&mut cargo(&line), |text| sum.add(text));
    println!("\ntests: {} passed, {} failed, {} ignored", sum.passed, sum.failed, sum.ignored);
    ended?;
    // A test runner that finds no tests succeeds, too.
    if sum.passed == 0 { Err("no test was run".into()) } else { Ok(()) }
}

/// Sums of libtest's result lines.
#[derive(Default)]
pub struct Sum {
    pub passed: u64,
    failed: u64,
    ignored: u64,
}

impl Sum {
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; …`
    pub fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let count = |word: &str| {
            let before = rest.split(word).next().filter(|b| b.len() < rest.len())?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        self.passed += count(" passed").unwrap_or(0);
        self.failed += count(" failed").unwrap_or(0);
        self.ignored += count(" ignored").unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn sums_result_lines() {
        let mut sum = Sum::default();
        sum.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        sum.add("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured");
        sum.add("test foo ... ok");
        assert_eq!((sum.passed, sum.failed, sum.ignored), (15, 2, 1));
    }
}
