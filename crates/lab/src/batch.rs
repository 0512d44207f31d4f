//! Execution of many runs on several threads. Results are in the order of the jobs, independently
//! of the number of threads.

use crate::result::RunResult;
use crate::run::run;
use crate::spec::{Spec, SpecFile};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The runs of a spec file: each case with the seeds 1 to its own number of seeds, or to `seeds`.
pub fn jobs_of(file: &SpecFile, seeds: Option<u32>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for spec in &file.cases {
        for seed in 1..=u64::from(seeds.unwrap_or(spec.seeds).max(1)) {
            let mut spec = spec.clone();
            spec.measure.observe &= seed == 1;
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
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<RunResult, String>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return };
            let result = run(&job.spec, Path::new(&job.folder), job.seed).map_err(|e| {
                match job.spec.case.as_str() {
                    "" => format!("{}: {e}", job.spec.name),
                    case => format!("{}, case \"{case}\": {e}", job.spec.name),
                }
            });
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
    let results: Vec<RunResult> =
        taken.map(|r| r.expect("every job was taken")).collect::<Result<_, String>>()?;
    Ok(apart(results))
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
