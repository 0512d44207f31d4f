//! `check-seeds`: the fault checker as the gate runs it.
//!
//! Seeds that failed once, the canary, fresh seeds that follow from the commit, and a sample of
//! planted bugs in a build of their own, which the checker must notice.

use crate::{
    Result,
    args::Args,
    process::{self, cargo, command, run},
    tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Planted bugs measured in each run of the gate.
const SAMPLE: usize = 8;

/// Worlds in which a planted bug is looked for, of the kind that can show it: for one of hostile
/// peers the checker passes over the others.
const WORLDS: u64 = 1_000;

/// Minutes of fresh seeds in the gate.
const MINUTES: u64 = 3;
/// What every program with planted bugs contains, put together so that this one does not.
const MARK: [&str; 2] = ["software-srd has ", "planted bugs"];

/// `check-seeds [--minutes M]`.
pub fn run_command(args: &mut Args) -> Result {
    let minutes = args.value("--minutes")?.unwrap_or(MINUTES);
    args.end()?;
    if minutes == 0 { Err("--minutes: at least 1".into()) } else { all(minutes) }
}

/// The gate's run. The number of seeds depends on the machine, their order does not: the summary
/// says which were run.
pub fn gate() -> Result {
    all(MINUTES)
}

fn all(minutes: u64) -> Result {
    let commit = commit()?;
    let program = build(None)?;
    let check = |args: &[&str]| run(&mut command(&program.to_string_lossy(), args));
    check(&["--corpus", "-"])?;
    check(&["--canary"])?;
    // Far from the seeds of the tests and of the kill table.
    let first = (commit >> 24).to_string();
    check(&["--first", &first, "--minutes", &minutes.to_string()])?;
    let planted = build(Some("--cfg planted_bugs"))?;
    let tool = tools::build_release("srd-cli", "srd")?;
    marks(&[&program, &tool], &planted)?;
    let bugs = bugs(&planted)?;
    noticed(&planted, sample(commit, bugs))
}

/// Each of these bugs is noticed.
fn noticed(planted: &Path, bugs: impl Iterator<Item = usize>) -> Result {
    let only = bugs.map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let limit = WORLDS.to_string();
    let args = ["kill-table", "--blocks", "1", "--limit", &limit, "--only", &only];
    run(&mut command(&planted.to_string_lossy(), &args))
        .map_err(|e| format!("{e}\na planted bug was not noticed within {WORLDS} worlds"))
}

/// Numbers of the planted bugs whose turn it is: spread over the list, others with each commit.
fn sample(commit: u64, bugs: usize) -> impl Iterator<Item = usize> {
    let (n, from) = (SAMPLE.min(bugs), (commit % bugs as u64) as usize);
    (0..n).map(move |k| (from + k * bugs / n) % bugs + 1)
}

/// Programs that are released have no planted bugs; the one built for them has, so that the search
/// is known to find them.
fn marks(released: &[&Path], planted: &Path) -> Result {
    let mark = MARK.concat().into_bytes();
    let has = |program: &Path| {
        let bytes = fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
        Ok::<bool, String>(bytes.windows(mark.len()).any(|w| w == mark))
    };
    for program in released {
        if has(program)? {
            return Err(format!("{} has planted bugs", program.display()));
        }
        println!("no planted bugs in {}", program.display());
    }
    if has(planted)? {
        Ok(())
    } else {
        Err("the mark of planted bugs is not found where it is".into())
    }
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

/// How many planted bugs there are: each has a line of the list.
fn bugs(program: &Path) -> Result<usize> {
    let list = process::output(&mut command(&program.to_string_lossy(), &["bugs"]))?;
    match list.lines().count() {
        0 => Err("the build with planted bugs has none".into()),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_no_bug_twice_and_none_that_is_not_there() {
        for commit in [0, 59, 60, u64::MAX] {
            let mut all: Vec<usize> = sample(commit, 60).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), SAMPLE);
            assert!(all.iter().all(|n| (1..=60).contains(n)));
        }
        assert_eq!(sample(5, 3).count(), 3);
    }

    #[test]
    fn planted_bugs_are_found_by_their_mark() {
        let folder = std::env::temp_dir().join(format!("xtask-marks-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (clean, dirty) = (folder.join("clean"), folder.join("dirty"));
        fs::write(&clean, b"some program").unwrap();
        fs::write(&dirty, format!("a program: {}!", MARK.concat())).unwrap();
        assert_eq!(marks(&[&clean], &dirty), Ok(()));
        assert!(marks(&[&dirty], &dirty).unwrap_err().contains("has planted bugs"));
        assert!(marks(&[&clean], &clean).unwrap_err().contains("not found"));
        fs::remove_dir_all(folder).unwrap();
    }
}
