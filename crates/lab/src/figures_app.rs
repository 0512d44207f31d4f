//! Tables of parallel programs: length of steps, waiting, efficiency, and comparison with published
//! figures; bus bandwidth of collective operations.

use crate::app::{AppOutcome, amdahl};
use crate::figures::{head, name_of};
use crate::result::RunResult;
use crate::spec::{AppPattern, AppSpec, PublishedSpec};
use crate::stats::Quantiles;

/// Points of percent within which a prediction agrees with a published figure.
const CONSISTENT_POINTS: f64 = 10.0;

/// The programs of a case's seeds.
fn programs(case: &[RunResult]) -> impl Iterator<Item = &AppOutcome> {
    case.iter().filter_map(|r| r.app.as_ref())
}

/// Mean of a figure over the seeds.
fn mean(case: &[RunResult], figure: impl Fn(&AppOutcome) -> f64) -> f64 {
    let all: Vec<f64> = programs(case).map(figure).collect();
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Steps, waiting and efficiency of programs.
pub fn app_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "ranks",
        "steps",
        "step p50 us",
        "p99 us",
        "max us",
        "waiting %",
        "efficiency %",
        "speedup",
        "Amdahl %",
        "published",
        "off by points",
        "undone",
    ]);
    for case in cases.iter().filter(|c| c[0].app.is_some()) {
        let steps: Vec<f64> =
            programs(case).flat_map(|o| &o.steps_ps).map(|ps| *ps as f64 / 1e6).collect();
        let (n, q) = (steps.len(), Quantiles::of(steps));
        let ranks = programs(case).next().map_or(0, |o| o.ranks);
        let app = case[0].spec.app.as_ref();
        let computes = programs(case).all(|o| o.work_ps > 0);
        let cell = |known: bool, value: f64, digits: usize| {
            if known { format!("{value:.digits$}") } else { "-".into() }
        };
        let efficiency = mean(case, AppOutcome::efficiency);
        let serial = app.map_or(0.0, |a| a.serial_percent / 100.0);
        let (published, off) = published_cells(cases, case, app);
        rows.push(vec![
            name_of(case),
            ranks.to_string(),
            cell(n > 0, n as f64, 0),
            cell(n > 0, q.median, 1),
            cell(n > 0, q.p99, 1),
            cell(n > 0, q.max, 1),
            cell(computes, 100.0 * mean(case, AppOutcome::waiting_share), 1),
            // A schedule from a file says nothing of what one rank alone would have to compute.
            cell(computes && app.is_some(), 100.0 * efficiency, 1),
            cell(computes && app.is_some(), efficiency * f64::from(ranks), 2),
            cell(computes && app.is_some(), 100.0 * amdahl(ranks, serial), 1),
            published,
            off,
            programs(case).map(|o| o.undone).sum::<usize>().to_string(),
        ]);
    }
    rows
}

/// The published figure of a case, and how far the run is from it.
fn published_cells(
    cases: &[&[RunResult]],
    case: &[RunResult],
    app: Option<&AppSpec>,
) -> (String, String) {
    let labels = &case[0].spec.labels;
    let published = app.and_then(|a| a.published.iter().find(|p| labels.contains(&p.of)));
    let Some(p) = published else { return ("-".into(), "-".into()) };
    let (name, off) = match (p.efficiency_percent, p.time_ratio) {
        (Some(want), _) => {
            let off = 100.0 * mean(case, AppOutcome::efficiency) - want;
            (format!("efficiency {want} %"), Some(off))
        }
        (None, want) => {
            let want = want.unwrap_or(0.0);
            let off = time_ratio(cases, case, p).map(|is| 100.0 * (is - want));
            (format!("time {want} of {}", p.against.as_deref().unwrap_or("?")), off)
        }
    };
    let verdict = |off: f64| {
        let word = if p.given {
            "given"
        } else if off.abs() <= CONSISTENT_POINTS {
            "consistent"
        } else {
            "not consistent"
        };
        format!("{off:+.1}, {word}")
    };
    (name, off.map_or_else(|| "the other case did not run".into(), verdict))
}

/// Time of a case over that of the one that it is compared with.
fn time_ratio(cases: &[&[RunResult]], case: &[RunResult], p: &PublishedSpec) -> Option<f64> {
    let other =
        |label: &String| if *label == p.of { p.against.clone() } else { Some(label.clone()) };
    let labels: Option<Vec<String>> = case[0].spec.labels.iter().map(other).collect();
    let against = cases.iter().find(|c| Some(&c[0].spec.labels) == labels.as_ref())?;
    let total = |c: &[RunResult]| mean(c, |o| o.total_ps as f64);
    Some(total(case) / total(against))
}

/// Bus bandwidth of collective operations without computation: the rate at which every rank would
/// have to send if it sent only what no algorithm can avoid, 2 (N - 1) / N of the buffer for an
/// allreduce and (N - 1) / N for an all-to-all.
pub fn collective_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&["case", "ranks", "buffer bytes", "time us", "bus Gb/s", "of the line %"]);
    for case in cases {
        let (Some(app), Some(o)) = (&case[0].spec.app, &case[0].app) else { continue };
        let time_us = mean(case, |o| o.total_ps as f64 / 1e6) / operations(app);
        let Some(bus) = bus_gbps(app, o.ranks, time_us) else { continue };
        // A host's line is shared by its processes.
        let per_host = case[0].spec.workload.processes_per_host;
        let line = case[0].spec.network.link_gbps / f64::from(per_host);
        rows.push(vec![
            name_of(case),
            o.ranks.to_string(),
            app.bytes.to_string(),
            format!("{time_us:.1}"),
            format!("{bus:.2}"),
            format!("{:.1}", 100.0 * bus / line),
        ]);
    }
    rows
}

/// Operations of the pattern in a program.
fn operations(app: &AppSpec) -> f64 {
    f64::from(app.steps) * f64::from(app.exchanges)
}

/// Bus bandwidth of a collective operation of `ranks` ranks that takes `time_us`; `None` for other
/// programs.
fn bus_gbps(app: &AppSpec, ranks: u32, time_us: f64) -> Option<f64> {
    let times = match app.pattern {
        AppPattern::Allreduce => 2.0,
        AppPattern::Alltoall => 1.0,
        AppPattern::Halo3d | AppPattern::Spectral => return None,
    };
    if app.compute_us > 0.0 || app.reductions > 0 || time_us <= 0.0 {
        return None;
    }
    let n = f64::from(ranks);
    Some(times * (n - 1.0) / n * app.bytes as f64 * 8.0 / (time_us * 1e3))
}

/// Figures of a program in `NAME-summary.csv`, and in `NAME.json` without `app_`: the number of
/// ranks and of steps; the length of a step; the time of the whole program; the share of the
/// processors' time that is waiting, and the efficiency T1 / (N T_N), if anything is computed;
/// Amdahl's bound of that efficiency; bus bandwidth of a collective operation; operations that were
/// not done when the run ended. Shares and efficiencies are from 0 to 1. A program that did not end
/// has no total, share or efficiency.
pub const APP_COLUMNS: &str = "app_ranks,app_steps,app_step_us_median,app_step_us_p99,\
    app_step_us_max,app_total_us,app_waiting_share,app_efficiency,app_efficiency_amdahl,\
    app_bus_gbps,app_operations_undone";

/// A run's values of its program in full precision, in the order of [`APP_COLUMNS`]; `None` where a
/// value is undefined.
pub fn app_cells(r: &RunResult) -> [Option<f64>; 11] {
    let Some(o) = &r.app else { return [None; 11] };
    let q = Some(o.steps_us()).filter(|_| !o.steps_ps.is_empty());
    let step = |of: fn(&Quantiles) -> f64| q.as_ref().map(of);
    let total_us = o.total_ps as f64 / 1e6;
    // A schedule from a file says nothing of what one rank alone would have to compute.
    let app = r.spec.app.as_ref();
    let computed = o.work_ps > 0;
    let scaled = app.filter(|_| computed);
    [
        Some(o.ranks.into()),
        Some(o.steps_ps.len() as f64),
        step(|q| q.median),
        step(|q| q.p99),
        step(|q| q.max),
        Some(total_us).filter(|_| o.done),
        (computed && o.done).then(|| o.waiting_share()),
        scaled.filter(|_| o.done).map(|_| o.efficiency()),
        scaled.map(|a| amdahl(o.ranks, a.serial_percent / 100.0)),
        app.filter(|_| o.done).and_then(|a| bus_gbps(a, o.ranks, total_us / operations(a))),
        Some(o.undone as f64),
    ]
}
