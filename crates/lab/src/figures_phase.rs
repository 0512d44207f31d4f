//! Tables of communication phases: congestion without packets, completion in units of a flow.

use crate::congestion::Met;
use crate::figures::{head, name_of};
use crate::result::{Detail, RunResult};
use crate::saa::SaaOutcome;
use crate::stats::{Quantiles, standard_error};
use srd_fabric::Ps;

/// Congestion of a run without packets; `None` for other runs.
pub fn met(r: &RunResult) -> Option<&Met> {
    match &r.detail {
        Detail::Static(met) => Some(met),
        _ => None,
    }
}

/// The transport's part of the results of a run with transport "saa".
pub fn saa(r: &RunResult) -> Option<&SaaOutcome> {
    match &r.detail {
        Detail::Saa(outcome) => Some(outcome),
        _ => None,
    }
}

/// Congestion of placed flows, one line per case.
pub fn congestion_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "placements",
        "flows",
        "max",
        "+-",
        "least",
        "most",
        "mean",
        "links per way",
        "entries",
        "ports per host",
        "hash",
    ]);
    for case in cases {
        let Some(first) = met(&case[0]) else { continue };
        let mean = |f: fn(&Met) -> f64| {
            case.iter().filter_map(met).map(f).sum::<f64>() / case.len() as f64
        };
        let hash = case.iter().fold(0u64, |h, r| h.rotate_left(9) ^ r.hash);
        let range = case.iter().filter_map(met).map(|m| m.max_range);
        rows.push(vec![
            name_of(case),
            case.iter().filter_map(met).map(|m| m.runs).sum::<u32>().to_string(),
            first.flows.to_string(),
            format!("{:.3}", mean(|m| m.max)),
            format!("{:.3}", mean(|m| m.max_error) / (case.len() as f64).sqrt()),
            range.clone().map(|r| r.0).min().unwrap_or(0).to_string(),
            range.map(|r| r.1).max().unwrap_or(0).to_string(),
            format!("{:.3}", mean(|m| m.mean)),
            format!("{:.2}", mean(|m| m.links)),
            format!("{:.1}", mean(|m| m.entries)),
            format!("{:.2}", case[0].ports_per_host.unwrap_or(0.0)),
            format!("{hash:016x}"),
        ]);
    }
    rows
}

/// Time of the largest flow's payload at line rate: the unit of phases.
pub fn unit_ps(r: &RunResult) -> Ps {
    let bytes = r.flows.iter().map(|f| f.bytes).max().unwrap_or(0);
    (bytes as f64 * 8e3 / r.spec.network.link_gbps) as Ps
}

/// Duration of each flow of each round: until the arrival of its last byte if that is known,
/// otherwise until the sender's last acknowledgment.
fn ends(r: &RunResult) -> &[Vec<Option<Ps>>] {
    let known = r.arrived_ps.iter().flatten().all(Option::is_some);
    if known && !r.arrived_ps.is_empty() { &r.arrived_ps } else { &r.fct_ps }
}

/// Completion of each round in units; `None` if a flow did not end.
fn completions(r: &RunResult) -> Vec<Option<f64>> {
    let unit = unit_ps(r).max(1) as f64;
    let last =
        |(i, fct): (usize, &Option<Ps>)| Some(fct.as_ref()? + r.flows[i].start_ps.unwrap_or(0));
    let round = |fcts: &Vec<Option<Ps>>| {
        let ends: Option<Vec<Ps>> = fcts.iter().enumerate().map(last).collect();
        ends.and_then(|all| all.into_iter().max()).map(|ps| ps as f64 / unit)
    };
    // Flows of later steps count from the first step's start.
    if r.flows.iter().any(|f| f.start_ps.is_none()) {
        return vec![r.phase_ps.map(|ps| ps as f64 / unit)];
    }
    ends(r).iter().map(round).collect()
}

/// Completion of every phase of a case in units; `None` if a flow of any run did not end.
fn all_completions(case: &[RunResult]) -> Option<Vec<f64>> {
    let all: Option<Vec<f64>> = case.iter().flat_map(completions).collect();
    all.filter(|a| !a.is_empty())
}

/// Mean completion of a case in units; `None` if a flow of any run did not end.
pub fn completion(case: &[RunResult]) -> Option<f64> {
    all_completions(case).map(|a| Quantiles::of(a).mean)
}

/// Mean of W over the runs of a case, in units; `None` where paths are not fixed.
fn largest(case: &[RunResult]) -> Option<f64> {
    let all: Option<Vec<f64>> = case.iter().map(|r| saa(r)?.largest).collect();
    all.map(|a| Quantiles::of(a).mean)
}

/// Completion of phases, one line per case.
pub fn phase_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "runs",
        "flows",
        "unit us",
        "W",
        "completion",
        "+-",
        "least",
        "most",
        "/ W",
        "/ P",
        "mean end",
        "early",
        "ports per host",
    ]);
    let asked = |c: &&&[RunResult]| saa(&c[0]).is_some() || c[0].spec.measure.phase;
    for case in cases.iter().filter(asked) {
        let first = &case[0];
        let unit = unit_ps(first).max(1) as f64;
        let all = Quantiles::of(
            case.iter()
                .flat_map(|r| ends(r).iter().flatten().flatten())
                .map(|t| *t as f64 / unit)
                .collect(),
        );
        let dash =
            |v: Option<f64>, digits: usize| v.map_or("-".into(), |v| format!("{v:.digits$}"));
        let (every, w) = (all_completions(case), largest(case));
        let error = every.as_deref().and_then(standard_error);
        let of = every.map(Quantiles::of);
        let done = of.map(|q| q.mean);
        let p = first.spec.workload.permutations.map(f64::from);
        let early = case.iter().map(early).try_fold(0, |sum, e| Some(sum + e?));
        rows.push(vec![
            name_of(case),
            case.len().to_string(),
            first.flows.len().to_string(),
            format!("{:.2}", unit / 1e6),
            dash(w, 2),
            dash(done, 3),
            dash(error, 3),
            dash(of.map(|q| q.min), 3),
            dash(of.map(|q| q.max), 3),
            dash(done.zip(w).map(|(d, w)| d / w), 3),
            dash(done.zip(p).map(|(d, p)| d / p), 3),
            format!("{:.3}", all.mean),
            early.map_or("-".into(), |e: u64| e.to_string()),
            dash(first.ports_per_host, 2),
        ]);
    }
    rows
}

/// CSV column names of [`phase_cells`].
pub const PHASE_COLUMNS: &str = "largest_weight_units,completion_units,mean_end_units,early,\
     ports_per_host,placements,congestion_max,congestion_mean,control_events,control_repeated,\
     answers,probes,first_rate_us_mean,last_change_us_mean,circuits_torn,circuits_set_up_again,\
     weight_left,entries_left";

/// A run's values of its phase in full precision; `None` where a value is undefined.
pub fn phase_cells(r: &RunResult) -> [Option<f64>; 18] {
    let (run, met, saa) = (std::slice::from_ref(r), met(r), saa(r));
    let phase = saa.is_some() || r.spec.measure.phase;
    let unit = unit_ps(r).max(1) as f64;
    let all = ends(r).iter().flatten().flatten().map(|t| *t as f64 / unit);
    let mean = |us: &[f64]| (!us.is_empty()).then(|| us.iter().sum::<f64>() / us.len() as f64);
    let count = |f: fn(&SaaOutcome) -> u64| saa.map(|o| f(o) as f64);
    [
        saa.and_then(|o| o.largest),
        phase.then(|| completion(run)).flatten(),
        phase.then(|| mean(&all.collect::<Vec<_>>())).flatten(),
        early(r).map(|n| n as f64),
        r.ports_per_host,
        met.map(|m| f64::from(m.runs)),
        met.map(|m| m.max),
        met.map(|m| m.mean),
        count(|o| o.control.events),
        count(|o| o.control.repeated),
        count(|o| o.answers),
        count(|o| o.control.probes),
        saa.and_then(|o| mean(&o.first_rate_us)),
        saa.and_then(|o| mean(&o.last_rate_us)),
        count(|o| o.torn.0),
        count(|o| o.torn.1),
        count(|o| o.weight_left),
        count(|o| o.entries_left),
    ]
}

/// Circuits cut by failed links, one line per case that has any.
pub fn torn_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows =
        head(&["case", "runs", "torn down", "set up anew", "came early", "flows undone"]);
    for case in cases {
        let sum = |f: fn(&SaaOutcome) -> u64| case.iter().filter_map(saa).map(f).sum::<u64>();
        if sum(|o| o.torn.0) == 0 {
            continue;
        }
        rows.push(vec![
            name_of(case),
            case.len().to_string(),
            sum(|o| o.torn.0).to_string(),
            sum(|o| o.torn.1).to_string(),
            sum(|o| o.early).to_string(),
            case.iter().map(RunResult::unfinished).sum::<usize>().to_string(),
        ]);
    }
    rows
}

/// Packets that arrived before an earlier one of their flow, if counted.
fn early(r: &RunResult) -> Option<u64> {
    saa(r).map(|o| o.early).or_else(|| r.order.map(|o| o.early))
}

/// Cost of the distributed computation, one line per case.
pub fn control_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "control packets per flow",
        "probes per flow",
        "repeated",
        "first rate us",
        "max",
        "last change us",
        "max",
        "base RTT us",
        "weight left",
        "entries left",
    ]);
    for case in cases {
        let outcomes: Vec<&SaaOutcome> = case.iter().filter_map(saa).collect();
        if outcomes.is_empty() || outcomes.iter().all(|o| o.control.events == 0) {
            continue;
        }
        let flows: f64 = case.iter().map(|r| (r.flows.len() * r.fct_ps.len()) as f64).sum();
        let sum = |f: fn(&SaaOutcome) -> u64| outcomes.iter().map(|o| f(o)).sum::<u64>();
        let first = Quantiles::of(outcomes.iter().flat_map(|o| o.first_rate_us.clone()).collect());
        let last = Quantiles::of(outcomes.iter().flat_map(|o| o.last_rate_us.clone()).collect());
        rows.push(vec![
            name_of(case),
            format!(
                "{:.2}",
                sum(|o| o.control.events + o.control.repeated + o.answers) as f64 / flows
            ),
            format!("{:.2}", sum(|o| o.control.probes) as f64 / flows),
            sum(|o| o.control.repeated).to_string(),
            format!("{:.2}", first.mean),
            format!("{:.2}", first.max),
            format!("{:.2}", last.mean),
            format!("{:.2}", last.max),
            format!("{:.2}", case[0].base_rtt_ps as f64 / 1e6),
            sum(|o| o.weight_left).to_string(),
            sum(|o| o.entries_left).to_string(),
        ]);
    }
    rows
}
