//! `check-seeds`: the fault checker as the gate runs it.
//!
//! Seeds that failed once, the canary, fresh seeds that follow from the commit, and a sample of
//! planted bugs in a build of their own, which the checker must notice.

use crate::{
    Result,
    args::Args,
    process::{self, cargo, command, run},
};
use std::path::PathBuf;

/// Planted bugs measured in each run of the gate.
const SAMPLE: u64 = 8;

/// `check-seeds [--minutes M]`.
pub fn run_command(args: &mut Args) -> Result {
    let minutes = args.value("--minutes")?.unwrap_or(3);
    args.end()?;
    all(minutes)
}

/// Everything, with `minutes` for fresh seeds.
pub fn all(minutes: u64) -> Result {
    let commit = commit()?;
    let program = build(None)?;
    let check = |args: &[&str]| run(&mut command(&program.to_string_lossy(), args));
    check(&["--corpus", "-"])?;
    check(&["--canary"])?;
    // Far from the seeds of the tests and of the kill table.
    let first = (commit >> 24).to_string();
    check(&["--first", &first, "--minutes", &minutes.to_string()])?;
    let planted = build(Some("--cfg planted_bugs"))?;
    let bugs = bugs(&planted)?;
    let picked = (0..SAMPLE.min(bugs)).map(|k| (commit.wrapping_add(k * 7) % bugs + 1).to_string());
    let only = picked.collect::<Vec<_>>().join(",");
    let args = ["kill-table", "--blocks", "1", "--only", &only];
    run(&mut command(&planted.to_string_lossy(), &args))
        .map_err(|e| format!("{e}\na planted bug was not noticed within 1,000 seeds"))
}

/// The commit's first 64 bits.
fn commit() -> Result<u64> {
    let id = process::output(&mut command("git", &["rev-parse", "HEAD"]))?;
    let start = id.get(..16).ok_or("git names no commit")?;
    u64::from_str_radix(start, 16).map_err(|_| format!("`{id}` is not a commit"))
}

/// The checker, optimised and with every assertion. Other flags build into another folder.
fn build(flags: Option<&str>) -> Result<PathBuf> {
    let folder = match flags {
        None => process::target_dir(),
        Some(_) => process::target_dir().join("planted"),
    };
    let mut c = cargo(&["build", "--profile", "checker", "--package", "srd-check", "--target-dir"]);
    c.arg(&folder);
    if let Some(flags) = flags {
        c.env("RUSTFLAGS", flags);
    }
    run(&mut c)?;
    Ok(folder.join("checker").join("srd-check"))
}

/// How many planted bugs there are: one a line.
fn bugs(program: &std::path::Path) -> Result<u64> {
    let list = process::output(&mut command(&program.to_string_lossy(), &["bugs"]))?;
    match list.lines().count() as u64 {
        0 => Err("the build with planted bugs has none".into()),
        n => Ok(n),
    }
}
