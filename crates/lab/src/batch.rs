//! Execution of many runs on several threads. Results are in the order of the jobs, independently
//! of the number of threads.

use crate::check::place;
use crate::result::RunResult;
use crate::run::run;
use crate::spec::{Spec, SpecFile};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One run to execute.
#[derive(Clone, Debug)]
pub struct Job {
    /// The experiment's case.
    pub spec: Spec,
    /// The seed.
    pub seed: u64,
    /// Folder of the files that the spec names.
    pub folder: PathBuf,
}

/// Seeds of the runs of a case, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// Most seeds of a case.
    const MOST: u64 = 1_000_000;

    /// The seeds 1 to `n`, at least one.
    pub fn up_to(n: u32) -> Self {
        Self { first: 1, last: u64::from(n.max(1)) }
    }
}

impl FromStr for Seeds {
    type Err = String;

    /// Reads `10` (the seeds 1 to 10) or `101..200` (both included).
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<u64>().ok().filter(|n| *n > 0);
        let wrong = |why: &str| {
            Err(format!("{why}; give a number of seeds, or the first and the last, as in 101..200"))
        };
        let (first, last) = match text.split_once("..") {
            None => (Some(1), number(text)),
            Some((first, last)) => (number(first), number(last)),
        };
        match first.zip(last) {
            None => wrong("seeds are whole numbers from 1 on"),
            Some((first, last)) if last < first => wrong("the last seed is before the first"),
            Some((first, last)) if last - first >= Self::MOST => {
                wrong("a command runs a case with up to 1,000,000 seeds")
            }
            Some((first, last)) => Ok(Self { first, last }),
        }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first {
            1 => write!(f, "{}", self.last),
            first => write!(f, "{first}..{}", self.last),
        }
    }
}

/// The runs of a spec file: each case with the seeds 1 to its own number of seeds, or with `seeds`.
/// The first run of each case is recorded, if the spec asks for it.
pub fn jobs_of(file: &SpecFile, seeds: Option<Seeds>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for spec in &file.cases {
        let seeds = seeds.unwrap_or(Seeds::up_to(spec.seeds));
        for seed in seeds.first..=seeds.last {
            let mut spec = spec.clone();
            spec.measure.observe &= seed == seeds.first;
            spec.measure.timeline &= seed == seeds.first;
            jobs.push(Job { spec, seed, folder: file.folder.clone() });
        }
    }
    jobs
}

/// Executes all runs on up to `threads` threads. `progress` is called after each with the number of
/// finished runs.
///
/// # Errors
/// The first error in the order of the jobs.
pub fn run_all(
    jobs: &[Job],
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<RunResult>, String> {
    let results = run_until(jobs, threads, progress, &AtomicBool::new(false))?;
    Ok(results.expect("nobody stops it"))
}

/// Like [`run_all`], but begins no further run once `stop` is true; the results are then `None`.
///
/// # Errors
/// As [`run_all`].
pub fn run_until(
    jobs: &[Job],
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
    stop: &AtomicBool,
) -> Result<Option<Vec<RunResult>>, String> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<RunResult, String>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return };
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let result = run(&job.spec, Path::new(&job.folder), job.seed)
                .map_err(|e| format!("{}: {e}", place(&job.spec.name, &job.spec.case)));
            *results[at].lock().expect("no run panics while it stores") = Some(result);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.clamp(1, jobs.len().max(1)) {
            s.spawn(work);
        }
        work();
    });
    let taken = results.into_iter().map(|r| r.into_inner().expect("all threads have ended"));
    let results: Option<Vec<RunResult>> = taken.map(Option::transpose).collect::<Result<_, _>>()?;
    Ok(results.map(apart))
}

/// Results of groups of flows as cases of their own, after that of the first group.
fn apart(results: Vec<RunResult>) -> Vec<RunResult> {
    if results.iter().all(|r| r.also.is_empty()) {
        return results;
    }
    let mut out: Vec<RunResult> = Vec::new();
    let mut rest: Vec<RunResult> = Vec::new();
    let same =
        |a: &RunResult, b: &RunResult| (&a.spec.case, &a.spec.name) == (&b.spec.case, &b.spec.name);
    for mut result in results {
        if out.last().is_some_and(|last| !same(last, &result)) {
            out.append(&mut grouped(&mut rest));
        }
        rest.append(&mut result.also);
        out.push(result);
    }
    out.append(&mut grouped(&mut rest));
    out
}

/// Orders results by their case, in which cases appear first; seeds keep their order.
fn grouped(results: &mut Vec<RunResult>) -> Vec<RunResult> {
    let mut cases: Vec<String> = Vec::new();
    for r in results.iter() {
        if !cases.contains(&r.spec.case) {
            cases.push(r.spec.case.clone());
        }
    }
    results.sort_by_key(|r| cases.iter().position(|c| *c == r.spec.case));
    std::mem::take(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_stopped_has_no_results() {
        let file = SpecFile::load("fig2", true).unwrap();
        let jobs = &jobs_of(&file, Some(Seeds::up_to(1)))[..2];
        let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let after_one = |n| {
            done.store(n, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        };
        assert!(run_until(jobs, 1, &after_one, &stop).unwrap().is_none());
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn seeds_are_a_number_or_a_range() {
        for (text, first, last) in [("10", 1, 10), ("101..200", 101, 200), ("7..7", 7, 7)] {
            let seeds: Seeds = text.parse().unwrap();
            assert_eq!(seeds, Seeds { first, last });
            assert_eq!(seeds.to_string(), text);
        }
        for wrong in ["0", "", "5..4", "0..3", "a..b", "1..", "-3", "1..1000001"] {
            let e = wrong.parse::<Seeds>().unwrap_err();
            assert!(e.contains("101..200"), "{wrong}: {e}");
        }
    }
}
