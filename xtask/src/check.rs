//! `check-seeds`: the fault checker as part of the gate.
//!
//! Runs the seeds that failed earlier, the canary, fresh seeds determined by the commit, and, in a
//! separate build, a sample of planted bugs that the checker must detect.

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

/// Number of planted bugs tested in each run of the gate.
const SAMPLE: usize = 8;

/// Worlds in which the checker searches for a planted bug, not counting those that cannot show it:
/// for a bug of hostile peers, worlds without them.
const WORLDS: u64 = 1_000;

/// Minutes of fresh seeds in the gate.
const MINUTES: u64 = 1;
/// Most minutes that a build of the tests' profile, which the tests have made before, runs. The
/// checker's own profile is twice as fast and takes a minute and a half of two processors to build.
const MINUTES_UNOPTIMIZED: u64 = 2;
/// Compiler's option for a build with planted bugs.
const PLANTED: &str = "--cfg planted_bugs";
/// A text that every program with planted bugs contains; split so that this program does not.
const MARK: [&str; 2] = ["software-srd has ", "planted bugs"];

/// `check-seeds [--minutes M]`.
pub fn run_command(args: &mut Args) -> Result {
    let minutes = args.value("--minutes")?.unwrap_or(MINUTES);
    args.end()?;
    if minutes == 0 { Err("--minutes must be at least 1".into()) } else { all(minutes) }
}

/// The gate's run. The number of seeds depends on the speed of the machine, their order does not;
/// the summary shows which were run.
pub fn gate() -> Result {
    all(MINUTES)
}

/// Builds the programs that the gate runs.
pub fn prebuild() -> Result {
    build(false, None)?;
    build(false, Some(PLANTED)).map(|_| ())
}

fn all(minutes: u64) -> Result {
    let commit = commit()?;
    let optimized = minutes > MINUTES_UNOPTIMIZED;
    let program = build(optimized, None)?;
    let check = |args: &[&str]| run(&mut command(&program.to_string_lossy(), args));
    check(&["--corpus", "-"])?;
    check(&["--canary"])?;
    // A range without the seeds of the tests and of the kill table.
    let first = (commit >> 24).to_string();
    check(&["--first", &first, "--minutes", &minutes.to_string()])?;
    // It runs for seconds, so that compiling it is what takes time.
    let planted = build(false, Some(PLANTED))?;
    let tool = tools::build_tool()?;
    marks(&[&program, &tool], &planted)?;
    let bugs = bugs(&planted)?;
    detected(&planted, sample(commit, &bugs))
}

/// Requires that the checker detects each of these bugs.
fn detected(planted: &Path, bugs: impl Iterator<Item = u32>) -> Result {
    let only = bugs.map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let limit = WORLDS.to_string();
    let args = ["kill-table", "--blocks", "1", "--limit", &limit, "--only", &only];
    run(&mut command(&planted.to_string_lossy(), &args))
        .map_err(|e| format!("{e}\na planted bug was not detected within {WORLDS} worlds"))
}

/// Numbers of the planted bugs for this commit: spread over the list, different for each commit.
fn sample(commit: u64, bugs: &[u32]) -> impl Iterator<Item = u32> {
    let all = bugs.len();
    let (n, from) = (SAMPLE.min(all), (commit % all as u64) as usize);
    (0..n).map(move |k| bugs[(from + k * all / n) % all])
}

/// Requires that released programs contain no planted bugs. Checks also that the build with planted
/// bugs contains the mark, to prove that the search finds it.
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
        Err("the mark of planted bugs was not found in the build that has them".into())
    }
}

/// The first 64 bits of the commit hash.
fn commit() -> Result<u64> {
    let id = process::output(&mut command("git", &["rev-parse", "HEAD"]))?;
    let start = id.get(..16).ok_or("git names no commit")?;
    u64::from_str_radix(start, 16).map_err(|_| format!("`{id}` is not a commit"))
}

/// Builds the checker with all assertions, by its own profile or by that of the tests. A build with
/// `flags` uses another folder.
fn build(optimized: bool, flags: Option<&str>) -> Result<PathBuf> {
    let folder = match flags {
        None => process::target_dir(),
        Some(_) => process::target_dir().join("planted"),
    };
    let (profile, output) = if optimized { ("checker", "checker") } else { ("dev", "debug") };
    let mut c = cargo(&["build", "--profile", profile, "--package", "srd-check", "--target-dir"]);
    c.arg(&folder);
    if let Some(flags) = flags {
        c.env("RUSTFLAGS", flags);
    }
    run(&mut c)?;
    Ok(folder.join(output).join("srd-check"))
}

/// Numbers of the planted bugs: the first word of each line of the list.
fn bugs(program: &Path) -> Result<Vec<u32>> {
    let list = process::output(&mut command(&program.to_string_lossy(), &["bugs"]))?;
    let number = |line: &str| line.split(' ').next().and_then(|word| word.parse().ok());
    let all: Option<Vec<u32>> = list.lines().map(number).collect();
    match all {
        None => Err(format!("the list of planted bugs has a line without a number: {list}")),
        Some(all) if all.is_empty() => Err("the build with planted bugs has none".into()),
        Some(all) => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_distinct_existing_bugs() {
        for commit in [0, 59, 60, u64::MAX] {
            let bugs: Vec<u32> = (1..=50).chain(201..=210).collect();
            let mut all: Vec<u32> = sample(commit, &bugs).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), SAMPLE);
            assert!(all.iter().all(|n| bugs.contains(n)));
        }
        assert_eq!(sample(5, &[1, 2, 3]).count(), 3);
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
