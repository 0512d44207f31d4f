//! mpi4py's own tests, over SRD and over Open MPI's TCP: what passes there must pass here. A test
//! that does not is run over libfabric's TCP as well: where it fails too, it is Open MPI's way
//! through libfabric that it fails on, not SRD.

use super::fabric::Fabric;
use crate::{Result, mpi::stage::Over, process::root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The system's Python: the package of mpi4py is its own.
pub const PYTHON: &str = "/usr/bin/python3";
/// Seconds of one run of all tests.
const LIMIT_S: u32 = 120;
/// Tests that may end a run early, one after another, until it is given up.
const CRASHES_MAX: usize = 120;
/// Packages whose lack is told, not worked around.
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

/// What must be there.
///
/// # Errors
/// It is not; the text says what to do.
pub fn ready(source: &Path) -> Result {
    if !source.join("test/test_p2p_buf.py").is_file() {
        return Err(format!("{} is not mpi4py's source: no test/", source.display()));
    }
    let mut c = std::process::Command::new(PYTHON);
    let found = c.args(["-c", "import mpi4py"]).output().is_ok_and(|o| o.status.success());
    let missing = || format!("{PYTHON} has no mpi4py: apt-get install {PACKAGE}");
    found.then_some(()).ok_or_else(missing)
}

/// Runs them on some ranks; a remark for the table.
///
/// # Errors
/// A test that passes over TCP, both ways, does not pass over SRD.
pub fn run(f: &Fabric, source: &Path, ranks: u32) -> Result<String> {
    let run = Run { f, tests: source.join("test"), out: f.folder().join("mpi4py"), ranks };
    let (tcp, _) = run.all(Over::TcpBtl, None)?;
    let (srd, through) = run.all(Over::Srd, None)?;
    let passes = |ends: &Ends, test: &String| ends.get(test) == Some(&End::Pass);
    let good: BTreeSet<&String> = tcp.keys().filter(|t| passes(&tcp, t)).collect();
    let differ: BTreeSet<String> =
        good.iter().filter(|t| !passes(&srd, t)).map(|t| (*t).clone()).collect();
    let remark = format!(
        "{} of {} tests that pass over Open MPI's TCP; {through}",
        good.len() - differ.len(),
        good.len()
    );
    if differ.is_empty() {
        return Ok(remark);
    }
    let (other, _) = run.all(Over::TcpOfi, Some(&differ))?;
    let ours: Vec<&String> = differ.iter().filter(|t| passes(&other, t)).collect();
    if ours.is_empty() {
        let all: Vec<&str> = differ.iter().map(String::as_str).collect();
        return Ok(format!("{remark}; over libfabric's TCP these fail, too: {}", all.join(", ")));
    }
    Err(format!("{} tests fail over SRD alone: {ours:?}", ours.len()))
}

struct Run<'a> {
    f: &'a Fabric,
    tests: PathBuf,
    out: PathBuf,
    ranks: u32,
}

impl Run<'_> {
    /// All tests, or only some; after one that ends the run it goes on with those behind it. And
    /// what `srd run` said of the last run.
    fn all(&self, over: Over, only: Option<&BTreeSet<String>>) -> Result<(Ends, String)> {
        let mut all = Ends::new();
        for _ in 0..=CRASHES_MAX {
            let (ends, through, code) = self.once(over, only, &all)?;
            if ends.is_empty() && all.is_empty() {
                return Err(format!("{}: no test ran, exit code {code}", over.name()));
            }
            let dead: Vec<&String> =
                ends.iter().filter(|e| *e.1 == End::Crash).map(|e| e.0).collect();
            if dead.is_empty() {
                all.extend(ends);
                return Ok((all, through));
            }
            println!("    {} ends in {dead:?}", over.name());
            all.extend(ends);
        }
        let crashed: Vec<_> = all.iter().filter(|e| *e.1 == End::Crash).collect();
        Err(format!("{}: run after run ends early: {crashed:?}", over.name()))
    }

    fn once(
        &self,
        over: Over,
        only: Option<&BTreeSet<String>>,
        done: &Ends,
    ) -> Result<(Ends, String, i32)> {
        // Nothing to remove is as good.
        let _ = fs::remove_dir_all(&self.out);
        let fail = |e| format!("{}: {e}", self.out.display());
        fs::create_dir_all(&self.out).map_err(fail)?;
        let chosen: String = match only {
            Some(all) => {
                all.iter().filter(|t| !done.contains_key(*t)).map(|t| format!("+{t}\n")).collect()
            }
            None => done.keys().map(|t| format!("-{t}\n")).collect(),
        };
        if only.is_some() && chosen.is_empty() {
            return Ok((Ends::new(), String::new(), 0));
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
        Ok((ends(&texts), through, said.code))
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
            "start a\nfail a Error: x\nstart b\nskip b\nstart c\n".to_owned(),
        ];
        let all = ends(&texts);
        let of = |t: &str| all[t];
        assert_eq!((of("a"), of("b"), of("c")), (End::Fail, End::Skip, End::Crash));
    }
}
