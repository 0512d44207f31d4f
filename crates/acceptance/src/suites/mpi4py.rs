//! mpi4py's own tests, over SRD and over Open MPI's TCP: tests that pass over TCP must pass over
//! SRD. A test that does not is repeated over libfabric's TCP: if it fails there, too, the cause is
//! Open MPI's use of libfabric, not SRD. Known tests of this kind are left out, because they abort
//! or block the whole run; a list names them, with the evidence.

use super::fabric::Fabric;
use crate::{Result, mpi::stage::Transport, process::root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The system's Python, for which the package of mpi4py is built.
pub const PYTHON: &str = "/usr/bin/python3";
/// Time limit of one run of all tests in seconds.
const LIMIT_S: u32 = 120;
/// Most tests that may abort a run, one after another, before it is given up.
const CRASHES_MAX: usize = 120;
/// List of tests that are left out: `PATTERN | EVIDENCE`.
const KNOWN: &str = "bindings/ibverbs/tests/expected/mpi4py.txt";
/// Document with the table of this list, and the marker of its position.
const DOCUMENT: &str = "docs/conformance.md";
const PLACE: &str = "<!-- mpi4py: made by `cargo xtask acceptance` -->";
/// Package that contains mpi4py, for an error text.
const PACKAGE: &str = "python3-mpi4py";

/// Result of a test, the worst over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Pass,
    Skip,
    Fail,
    /// The test aborted the run or did not end.
    Crash,
}

/// Results by test.
type Ends = BTreeMap<String, End>;

/// A pattern of tests that are left out, and the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pattern: String,
    evidence: String,
}

/// Reads the list of tests that are left out.
///
/// # Errors
/// The list cannot be read, or a line lacks the evidence.
fn known_read() -> Result<Vec<Known>> {
    let path = root().join(KNOWN);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    known_parse(&text).map_err(|line| format!("{KNOWN}: `{line}` is not `PATTERN | EVIDENCE`"))
}

fn known_parse(text: &str) -> std::result::Result<Vec<Known>, String> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let one = |line: &str| {
        let (pattern, evidence) = line.split_once(" | ")?;
        let whole = !pattern.is_empty() && !evidence.trim().is_empty();
        whole.then(|| Known { pattern: pattern.trim().into(), evidence: evidence.trim().into() })
    };
    lines.map(|line| one(line).ok_or_else(|| line.to_owned())).collect()
}

/// Writes the table of tests that are left out.
fn known_write(known: &[Known], left: &BTreeMap<String, BTreeSet<String>>) -> Result {
    let mut table = String::from("| tests | how many | evidence |\n|---|---|---|\n");
    for k in known {
        let n = left.get(&k.pattern).map_or(0, BTreeSet::len);
        let _ = writeln!(table, "| {} | {n} | {} |", k.pattern.replace('*', "\\*"), k.evidence);
    }
    super::replace(DOCUMENT, PLACE, &table)
}

/// Checks the requirements.
///
/// # Errors
/// A requirement is not met; the text says what to do.
pub fn ready(source: &Path, ranks: u32) -> Result {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if processors < ranks as usize {
        // Waiting ranks spin; with fewer processors, tests exceed their time limit even over Open
        // MPI's TCP.
        return Err(format!("{ranks} ranks need {ranks} processors, here are {processors}"));
    }
    if !source.join("test/test_p2p_buf.py").is_file() {
        return Err(format!("{} is not mpi4py's source: it has no test/", source.display()));
    }
    let mut c = std::process::Command::new(PYTHON);
    let found = c.args(["-c", "import mpi4py"]).output().is_ok_and(|o| o.status.success());
    let missing = || format!("{PYTHON} has no mpi4py: apt-get install {PACKAGE}");
    found.then_some(()).ok_or_else(missing)
}

/// Runs the tests on `ranks` ranks; returns a remark for the table. With `update`, writes the
/// document's table of tests that are left out.
///
/// # Errors
/// A test that passes over both kinds of TCP does not pass over SRD; or the list names tests that
/// do not exist.
pub fn run(f: &Fabric, source: &Path, ranks: u32, update: bool) -> Result<String> {
    let known = known_read()?;
    let (tests, out) = (source.join("test"), f.folder().join("mpi4py"));
    let run = Run { f, tests, out, ranks, known: &known };
    let tcp = run.all(Transport::TcpBtl, None)?;
    if let Some(gone) = known.iter().find(|k| !tcp.left.contains_key(&k.pattern)) {
        return Err(format!("{KNOWN}: no test is called `{}`", gone.pattern));
    }
    let srd = run.all(Transport::Srd, None)?;
    if update {
        known_write(&known, &tcp.left)?;
    }
    let passes = |of: &All, test: &String| of.ends.get(test) == Some(&End::Pass);
    let good: BTreeSet<&String> = tcp.ends.keys().filter(|t| passes(&tcp, t)).collect();
    let differ: BTreeSet<String> =
        good.iter().filter(|t| !passes(&srd, t)).map(|t| (*t).clone()).collect();
    let left: usize = tcp.left.values().map(BTreeSet::len).sum();
    let remark = format!(
        "{} of {} tests that pass over Open MPI's TCP, {left} left out (conformance.md); {}",
        good.len() - differ.len(),
        good.len(),
        srd.through
    );
    if differ.is_empty() {
        return Ok(remark);
    }
    let other = run.all(Transport::TcpOfi, Some(&differ))?;
    let ours: Vec<&String> = differ.iter().filter(|t| passes(&other, t)).collect();
    if ours.is_empty() {
        println!("    over libfabric's TCP these fail, too: {differ:?}");
        return Ok(format!("{remark}; the other {} fail over libfabric's TCP, too", differ.len()));
    }
    Err(format!("{} tests fail over SRD alone: {ours:?}", ours.len()))
}

/// Results of all tests.
#[derive(Default)]
struct All {
    ends: Ends,
    /// Tests that were left out, by pattern.
    left: BTreeMap<String, BTreeSet<String>>,
    /// Summary of `srd run` of the last run.
    through: String,
}

struct Run<'a> {
    f: &'a Fabric,
    tests: PathBuf,
    out: PathBuf,
    ranks: u32,
    known: &'a [Known],
}

impl Run<'_> {
    /// Runs all tests, or only some; after a test that aborts the run, continues with the remaining
    /// ones.
    fn all(&self, over: Transport, only: Option<&BTreeSet<String>>) -> Result<All> {
        let mut all = All::default();
        for _ in 0..=CRASHES_MAX {
            let (texts, through, code) = self.once(over, only, &all.ends)?;
            let ends = ends(&texts);
            if ends.is_empty() && all.ends.is_empty() {
                return Err(format!("{}: no test ran, exit code {code}", over.name()));
            }
            all.left = left(&texts);
            let dead: Vec<&String> =
                ends.iter().filter(|e| *e.1 == End::Crash).map(|e| e.0).collect();
            if dead.is_empty() {
                all.ends.extend(ends);
                all.through = through;
                return Ok(all);
            }
            println!("    {} ends in {dead:?}", over.name());
            all.ends.extend(ends);
        }
        let crashed: Vec<_> = all.ends.iter().filter(|e| *e.1 == End::Crash).collect();
        Err(format!("{}: run after run ends early: {crashed:?}", over.name()))
    }

    /// Runs once; returns the output of each rank, the summary of `srd run`, and the exit code.
    fn once(
        &self,
        over: Transport,
        only: Option<&BTreeSet<String>>,
        done: &Ends,
    ) -> Result<(Vec<String>, String, i32)> {
        // The folder may not exist.
        let _ = fs::remove_dir_all(&self.out);
        let fail = |e| format!("{}: {e}", self.out.display());
        fs::create_dir_all(&self.out).map_err(fail)?;
        let chosen: String = match only {
            Some(all) => {
                all.iter().filter(|t| !done.contains_key(*t)).map(|t| format!("+{t}\n")).collect()
            }
            None => {
                let known = self.known.iter().map(|k| format!("~{}\n", k.pattern));
                known.chain(done.keys().map(|t| format!("-{t}\n"))).collect()
            }
        };
        if only.is_some() && chosen.is_empty() {
            return Ok((Vec::new(), String::new(), 0));
        }
        let list = self.out.join("list");
        fs::write(&list, chosen).map_err(fail)?;
        let program = root().join("bindings/ibverbs/tests/programs/mpi4py_tests.py");
        let line = format!(
            "{PYTHON} {} {} {} {}",
            program.display(),
            self.tests.display(),
            self.out.display(),
            list.display()
        );
        let said = self.f.mpi_over(over, LIMIT_S, self.ranks, &line)?;
        let texts: Vec<String> = (0..self.ranks)
            .filter_map(|rank| fs::read_to_string(self.out.join(format!("rank.{rank}"))).ok())
            .collect();
        if texts.len() != self.ranks as usize {
            let heard = texts.len();
            return Err(format!("{heard} of {} ranks began: {}", self.ranks, said.text.trim()));
        }
        let through = if over == Transport::Srd && said.code == 0 {
            super::cases::through(&said)?
        } else {
            String::new()
        };
        Ok((texts, through, said.code))
    }
}

/// Combines the results of the ranks.
fn ends(texts: &[String]) -> Ends {
    let mut all = Ends::new();
    for text in texts {
        let mut open: Option<&str> = None;
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(word), Some(test)) = (words.next(), words.next()) else { continue };
            let end = match word {
                "start" => {
                    open = Some(test);
                    continue;
                }
                "pass" => End::Pass,
                "skip" => End::Skip,
                "known" => continue,
                _ => End::Fail,
            };
            open = None;
            worse(&mut all, test, end);
        }
        if let Some(test) = open {
            worse(&mut all, test, End::Crash);
        }
    }
    all
}

/// Parses the lines `known ID PATTERN`.
fn left(texts: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in texts.iter().flat_map(|t| t.lines()).filter_map(|l| l.strip_prefix("known ")) {
        if let Some((test, pattern)) = line.split_once(' ') {
            all.entry(pattern.to_owned()).or_default().insert(test.to_owned());
        }
    }
    all
}

fn worse(all: &mut Ends, test: &str, end: End) {
    let at = all.entry(test.to_owned()).or_insert(end);
    *at = end.max(*at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_rank_counts_and_an_unfinished_test_crashed() {
        let texts = [
            "start a\npass a\nstart b\nskip b why not\nstart c\npass c\n".to_owned(),
            "known d d*\nstart a\nfail a Error: x\nstart b\nskip b\nstart c\n".to_owned(),
        ];
        let all = ends(&texts);
        let of = |t: &str| all[t];
        assert_eq!((of("a"), of("b"), of("c")), (End::Fail, End::Skip, End::Crash));
        assert_eq!((all.len(), left(&texts)["d*"].len()), (3, 1));
    }

    #[test]
    fn excluded_tests_need_evidence() {
        let all = known_parse("# why\n\na.b*.c | crashes over tcp, too\n").unwrap();
        let expected = Known { pattern: "a.b*.c".into(), evidence: "crashes over tcp, too".into() };
        assert_eq!(all, [expected]);
        assert!(known_parse("a.b").is_err());
        assert!(known_parse("a.b | ").is_err());
        assert!(!known_read().unwrap().is_empty());
    }
}
