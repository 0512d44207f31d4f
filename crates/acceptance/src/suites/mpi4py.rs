//! mpi4py's own tests, over SRD and over Open MPI's TCP: what passes there must pass here. A test
//! that does not is run over libfabric's TCP as well: where it fails too, it is Open MPI's way
//! through libfabric that it fails on, not SRD. Those of which that is known are left out, as they
//! end or hang the whole run: a list names them with the evidence.

use super::fabric::Fabric;
use crate::{Result, mpi::stage::Over, process::root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The system's Python: the package of mpi4py is its own.
pub const PYTHON: &str = "/usr/bin/python3";
/// Seconds of one run of all tests.
const LIMIT_S: u32 = 120;
/// Tests that may end a run early, one after another, until it is given up.
const CRASHES_MAX: usize = 120;
/// What is left out: `PATTERN | EVIDENCE`.
const KNOWN: &str = "bindings/ibverbs/tests/expected/mpi4py.txt";
/// Where the table of it goes, and its place there.
const DOCUMENT: &str = "docs/conformance.md";
const PLACE: &str = "<!-- mpi4py: made by `cargo xtask acceptance` -->";
/// Package that holds mpi4py; an error that mpi4py is missing names it.
const PACKAGE: &str = "python3-mpi4py";

/// How a test ended, of all ranks the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Pass,
    Skip,
    Fail,
    /// It ended the whole run, or never ended.
    Crash,
}

/// Ends by test.
type Ends = BTreeMap<String, End>;

/// A pattern of tests that are left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pattern: String,
    evidence: String,
}

/// The list of what is left out.
///
/// # Errors
/// It cannot be read, or a line lacks the evidence.
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

/// Writes the table of what is left out.
fn known_write(known: &[Known], left: &BTreeMap<String, BTreeSet<String>>) -> Result {
    let mut table = String::from("| tests | how many | evidence |\n|---|---|---|\n");
    for k in known {
        let n = left.get(&k.pattern).map_or(0, BTreeSet::len);
        let _ = writeln!(table, "| {} | {n} | {} |", k.pattern.replace('*', "\\*"), k.evidence);
    }
    super::replace(DOCUMENT, PLACE, &table)
}

/// What must be there.
///
/// # Errors
/// It is not; the text says what to do.
pub fn ready(source: &Path, ranks: u32) -> Result {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if processors < ranks as usize {
        // Ranks that wait spin: over Open MPI's own TCP, too, tests then last longer than they may.
        return Err(format!("{ranks} ranks need {ranks} processors, here are {processors}"));
    }
    if !source.join("test/test_p2p_buf.py").is_file() {
        return Err(format!("{} is not mpi4py's source: no test/", source.display()));
    }
    let mut c = std::process::Command::new(PYTHON);
    let found = c.args(["-c", "import mpi4py"]).output().is_ok_and(|o| o.status.success());
    let missing = || format!("{PYTHON} has no mpi4py: apt-get install {PACKAGE}");
    found.then_some(()).ok_or_else(missing)
}

/// Runs them on some ranks; a remark for the table. With `update`, the document's table of what is
/// left out is written.
///
/// # Errors
/// A test that passes over TCP, both ways, does not pass over SRD; or the list names tests that do
/// not exist.
pub fn run(f: &Fabric, source: &Path, ranks: u32, update: bool) -> Result<String> {
    let known = known_read()?;
    let (tests, out) = (source.join("test"), f.folder().join("mpi4py"));
    let run = Run { f, tests, out, ranks, known: &known };
    let tcp = run.all(Over::TcpBtl, None)?;
    if let Some(gone) = known.iter().find(|k| !tcp.left.contains_key(&k.pattern)) {
        return Err(format!("{KNOWN}: no test is called `{}`", gone.pattern));
    }
    let srd = run.all(Over::Srd, None)?;
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
    let other = run.all(Over::TcpOfi, Some(&differ))?;
    let ours: Vec<&String> = differ.iter().filter(|t| passes(&other, t)).collect();
    if ours.is_empty() {
        println!("    over libfabric's TCP these fail, too: {differ:?}");
        return Ok(format!("{remark}; the other {} fail over libfabric's TCP, too", differ.len()));
    }
    Err(format!("{} tests fail over SRD alone: {ours:?}", ours.len()))
}

/// What came of all tests.
#[derive(Default)]
struct All {
    ends: Ends,
    /// What was left out, by pattern.
    left: BTreeMap<String, BTreeSet<String>>,
    /// What `srd run` said of the last run.
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
    /// All tests, or only some; after one that ends the run it goes on with those behind it.
    fn all(&self, over: Over, only: Option<&BTreeSet<String>>) -> Result<All> {
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

    /// What each rank wrote, what `srd run` said, and the exit code.
    fn once(
        &self,
        over: Over,
        only: Option<&BTreeSet<String>>,
        done: &Ends,
    ) -> Result<(Vec<String>, String, i32)> {
        // Nothing to remove is as good.
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
        let through = if over == Over::Srd && said.code == 0 {
            super::cases::through(&said)?
        } else {
            String::new()
        };
        Ok((texts, through, said.code))
    }
}

/// What the ranks wrote, put together.
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

/// What the lines "known ID PATTERN" say.
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
    fn the_worst_rank_counts_and_an_open_test_crashed() {
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
    fn what_is_left_out_has_evidence() {
        let all = known_parse("# why\n\na.b*.c | crashes over tcp, too\n").unwrap();
        let expected = Known { pattern: "a.b*.c".into(), evidence: "crashes over tcp, too".into() };
        assert_eq!(all, [expected]);
        assert!(known_parse("a.b").is_err());
        assert!(known_parse("a.b | ").is_err());
        assert!(!known_read().unwrap().is_empty());
    }
}
