//! Experiments on the simulated network.

use crate::errors::SpecError;
use pyo3::prelude::*;
use srd_lab::{Request, RunResult, Seeds, jobs_of, run_all, run_until};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// The experiment whose report is not made of runs alone.
const GUARDS: &str = "guards";
/// How often a call looks for Ctrl-C and finished runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Finished runs.
#[pyclass(frozen, module = "srd._native")]
pub struct Runs(Vec<RunResult>);

#[pymethods]
impl Runs {
    /// One line per run, as in `NAME-summary.csv` of `srd lab run --out`.
    fn csv(&self, py: Python<'_>) -> String {
        py.detach(|| srd_lab::summary_csv(&self.0))
    }

    /// One line per flow and round of all runs.
    fn flows_csv(&self, py: Python<'_>) -> String {
        py.detach(|| srd_lab::csv(&self.0))
    }

    /// One line per value over time, of runs that were observed.
    fn series_csv(&self, py: Python<'_>) -> String {
        py.detach(|| srd_lab::series_csv(&self.0))
    }

    /// A page with tables and interactive plots, which `library` draws: the output of `srd lab
    /// plot-library`.
    fn page(&self, py: Python<'_>, command: &str, library: &str) -> String {
        py.detach(|| srd_lab::page_with(&self.0, command, library))
    }

    /// The figures that the experiment declares, as SVG.
    fn figures(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| srd_lab::plots(&self.0).into_iter().map(|(_, f)| f.svg()).collect())
    }
}

fn request(
    spec: String,
    quick: bool,
    case: Option<String>,
    set: Vec<String>,
    sweep: Vec<String>,
    observe: bool,
) -> PyResult<Request> {
    if spec == GUARDS {
        let text = "the experiment guards has a report of its own: `srd lab run guards`";
        return Err(SpecError::new_err(text));
    }
    Ok(Request { name: spec, quick, case, set, sweep, observe, timeline: false })
}

fn seeds_of(seeds: Option<&str>) -> PyResult<Option<Seeds>> {
    let parse = |text: &str| text.parse().map_err(|e| SpecError::new_err(format!("seeds: {e}")));
    seeds.map(parse).transpose()
}

/// Runs an experiment. `progress` is called with the number of finished runs and of all; an
/// exception in it, or Ctrl-C, ends the call when the runs under way have ended.
#[pyfunction]
#[pyo3(signature = (spec, *, quick, case, set, sweep, seeds, threads, observe, progress))]
#[allow(clippy::too_many_arguments, reason = "the options of `srd lab run`, by name")]
fn lab_run(
    py: Python<'_>,
    spec: String,
    quick: bool,
    case: Option<String>,
    set: Vec<String>,
    sweep: Vec<String>,
    seeds: Option<&str>,
    threads: Option<usize>,
    observe: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Runs> {
    let request = request(spec, quick, case, set, sweep, observe)?;
    let seeds = seeds_of(seeds)?;
    let threads =
        threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    py.detach(|| {
        let file = request.load().map_err(SpecError::new_err)?;
        if file.cases.is_empty() {
            return Err(SpecError::new_err(request.nothing()));
        }
        let jobs = jobs_of(&file, seeds);
        let count = |n| {
            done.fetch_max(n, Ordering::Relaxed);
        };
        let watched = thread::scope(|scope| {
            let runs = scope.spawn(|| run_until(&jobs, threads, &count, &stop));
            let told = told_until(&|| runs.is_finished(), &done, jobs.len(), progress.as_ref());
            stop.store(told.is_err(), Ordering::Relaxed);
            let results = runs.join().map_err(|_| SpecError::new_err("a run has panicked"));
            told.and(results)
        });
        let results = watched?.map_err(SpecError::new_err)?;
        results.map(Runs).ok_or_else(|| SpecError::new_err("the runs were stopped"))
    })
}

/// Calls `progress` whenever a run has ended, until all have, or until Ctrl-C.
fn told_until(
    ended: &dyn Fn() -> bool,
    done: &AtomicUsize,
    all: usize,
    progress: Option<&Py<PyAny>>,
) -> PyResult<()> {
    let mut last = 0;
    loop {
        let is_last = ended();
        let now = done.load(Ordering::Relaxed);
        Python::attach(|py| {
            py.check_signals()?;
            match progress {
                Some(progress) if now > last => progress.call1(py, (now, all)).map(drop),
                _ => Ok(()),
            }
        })?;
        if is_last {
            return Ok(());
        }
        last = now;
        thread::sleep(LOOK_EVERY);
    }
}

/// The jobs of an experiment: case and seed of each run.
#[pyfunction]
#[pyo3(signature = (spec, *, quick, case, set, sweep, seeds))]
fn lab_jobs(
    spec: String,
    quick: bool,
    case: Option<String>,
    set: Vec<String>,
    sweep: Vec<String>,
    seeds: Option<&str>,
) -> PyResult<Vec<(usize, String, u64)>> {
    let request = request(spec, quick, case, set, sweep, false)?;
    let file = request.load().map_err(SpecError::new_err)?;
    if file.cases.is_empty() {
        return Err(SpecError::new_err(request.nothing()));
    }
    let seeds = seeds_of(seeds)?;
    let mut out = Vec::new();
    for (at, case) in file.cases.iter().enumerate() {
        let mut one = file.clone();
        one.cases = vec![case.clone()];
        out.extend(jobs_of(&one, seeds).into_iter().map(|job| (at, case.case.clone(), job.seed)));
    }
    Ok(out)
}

/// Runs one job of [`lab_jobs`]: the case at this place of the experiment with this seed.
#[pyfunction]
#[pyo3(signature = (spec, at, seed, *, quick, case, set, sweep))]
#[allow(clippy::too_many_arguments, reason = "the options of `srd lab run`, by name")]
fn lab_job(
    py: Python<'_>,
    spec: String,
    at: usize,
    seed: u64,
    quick: bool,
    case: Option<String>,
    set: Vec<String>,
    sweep: Vec<String>,
) -> PyResult<String> {
    let request = request(spec, quick, case, set, sweep, false)?;
    let ran = py.detach(|| {
        let mut file = request.load()?;
        let no = || format!("{}: there is no case number {at}", request.name);
        file.cases = vec![file.cases.get(at).cloned().ok_or_else(no)?];
        let seeds = format!("{seed}..{seed}").parse::<Seeds>()?;
        run_all(&jobs_of(&file, Some(seeds)), 1, &|_| {}).map(|r| srd_lab::summary_csv(&r))
    });
    ran.map_err(SpecError::new_err)
}

/// The runs of several calls of [`lab_job`] as one text: for each case, in order, those of its
/// seeds.
#[pyfunction]
fn lab_join(cases: Vec<Vec<String>>) -> PyResult<String> {
    srd_lab::summaries_join(&cases).map_err(SpecError::new_err)
}

/// The table of runs that [`Runs::csv`] lists.
#[pyfunction]
fn lab_table(csv: &str) -> PyResult<String> {
    srd_lab::summary_table(csv).map_err(SpecError::new_err)
}

/// A page with the table of such runs, and plots over the axes of a sweep.
#[pyfunction]
fn lab_rows_page(csv: &str, name: &str, command: &str) -> PyResult<String> {
    srd_lab::summary_page(csv, name, command).map_err(SpecError::new_err)
}

/// Names of the experiments.
#[pyfunction]
fn lab_experiments() -> Vec<&'static str> {
    srd_lab::spec::EMBEDDED.iter().map(|(name, _)| *name).collect()
}

/// The spec of an experiment, as TOML.
#[pyfunction]
fn lab_spec(name: &str) -> PyResult<String> {
    let no = || {
        SpecError::new_err(format!(
            "there is no experiment {name}; experiments() lists them: {}",
            lab_experiments().join(", ")
        ))
    };
    srd_lab::spec::embedded(name).map(str::to_owned).ok_or_else(no)
}

/// Adds the functions.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Runs>()?;
    module.add_function(wrap_pyfunction!(lab_run, module)?)?;
    module.add_function(wrap_pyfunction!(lab_jobs, module)?)?;
    module.add_function(wrap_pyfunction!(lab_job, module)?)?;
    module.add_function(wrap_pyfunction!(lab_join, module)?)?;
    module.add_function(wrap_pyfunction!(lab_table, module)?)?;
    module.add_function(wrap_pyfunction!(lab_rows_page, module)?)?;
    module.add_function(wrap_pyfunction!(lab_experiments, module)?)?;
    module.add_function(wrap_pyfunction!(lab_spec, module)?)
}
