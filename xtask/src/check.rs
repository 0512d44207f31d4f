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

/// Planted bugs that need worlds of a rare kind: one that stays unnoticed within the usual 1,000 is
/// no news. They are looked for in 12,000. The list may only shrink (docs/reliability.md has the
/// figures).
const RARE: [&str; 2] = ["VerdictOverflowAcked", "EchoUnmatched"];

/// Worlds in which a planted bug is looked for, of the kind that can show it: for one of hostile
/// peers the checker passes over the others.
const WORLDS: u64 = 1_000;

/// The same for rare ones.
const WORLDS_RARE: u64 = 12_000;

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
    let (rare, usual): (Vec<_>, Vec<_>) =
        sample(commit, bugs.len()).partition(|&n| RARE.contains(&bugs[n - 1].as_str()));
    noticed(&planted, &usual, WORLDS)?;
    noticed(&planted, &rare, WORLDS_RARE)
}

/// Each of these bugs is noticed within so many worlds.
fn noticed(planted: &Path, bugs: &[usize], worlds: u64) -> Result {
    if bugs.is_empty() {
        return Ok(());
    }
    let only = bugs.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let limit = worlds.to_string();
    let args = ["kill-table", "--blocks", "1", "--limit", &limit, "--only", &only];
    run(&mut command(&planted.to_string_lossy(), &args))
        .map_err(|e| format!("{e}\na planted bug was not noticed within {worlds} worlds"))
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

/// The names of the planted bugs, in the order of their numbers: `NUMBER NAME (AREA)` a line.
fn bugs(program: &Path) -> Result<Vec<String>> {
    let list = process::output(&mut command(&program.to_string_lossy(), &["bugs"]))?;
    let names = list.lines().filter_map(|l| l.split(' ').nth(1)).map(str::to_owned);
    let names = names.collect::<Vec<_>>();
    if names.is_empty() {
        return Err("the build with planted bugs has none".into());
    }
    match RARE.iter().find(|r| !names.iter().any(|n| n == *r)) {
        Some(gone) => Err(format!("{gone} is no planted bug any more: take it out of RARE")),
        None => Ok(names),
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
