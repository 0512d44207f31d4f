//! Tables of goals with the results, and of the fluid optimum.

use crate::figures::{head, name_of};
use crate::figures_load::resent_per_lost;
use crate::poisson::by_class;
use crate::result::RunResult;
use crate::spec::FigureSpec;
use crate::stats::Quantiles;

/// A case's value of a figure; `None` if it has none.
fn figure(case: &[RunResult], figure: FigureSpec) -> Option<f64> {
    let of = |f: &dyn Fn(&RunResult) -> f64| Quantiles::of(case.iter().map(f).collect());
    let class = |at: usize, q: fn(&Quantiles) -> f64| {
        let runs = case.iter().filter_map(|r| r.open_loop.as_ref());
        let all: Vec<_> = runs.flat_map(|r| r.slowdowns.iter().copied()).collect();
        let (_, flows, quantiles) = by_class(&all).swap_remove(at);
        (flows > 0).then(|| q(&quantiles))
    };
    match figure {
        FigureSpec::MedianFloor => Some(of(&|r| r.summary.over_floor.median).median),
        FigureSpec::MaxFloor => Some(of(&|r| r.summary.over_floor.max).max),
        FigureSpec::MaxMin => Some(of(&|r| r.summary.max_over_min).max),
        FigureSpec::MaxUs => Some(of(&|r| r.summary.fct_us.max).max),
        FigureSpec::ResentPercent => Some(of(&RunResult::retransmitted_percent).max),
        FigureSpec::ResentLost => resent_per_lost(case),
        FigureSpec::MaxFluid => case.iter().filter_map(max_over_fluid).reduce(f64::max),
        FigureSpec::SlowdownP50 => class(0, |q| q.median),
        FigureSpec::SlowdownP99 => class(0, |q| q.p99),
        FigureSpec::SlowdownP99Small => class(1, |q| q.p99),
    }
}

/// Slowest flow over the slowest of the fluid optimum; `None` if a flow did not end.
fn max_over_fluid(r: &RunResult) -> Option<f64> {
    if r.unfinished() > 0 {
        return None;
    }
    let best = r.fluid_ps.as_ref()?.iter().max()?;
    let most = r.fct_ps.iter().flatten().flatten().max()?;
    Some(*most as f64 / *best as f64)
}

/// One line per goal of every case.
pub fn goal_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&["case", "figure", "goal", "result", ""]);
    for case in cases {
        let spec = &case[0].spec;
        let undone: usize = case.iter().map(RunResult::unfinished).sum();
        for goal in spec.goal.iter().filter(|g| g.applies(spec.network.link_gbps)) {
            let result = figure(case, goal.figure);
            let verdict = match result {
                _ if undone > 0 => format!("missed: {undone} flows undone"),
                Some(value) if value > goal.most => "missed".into(),
                Some(_) => "met".into(),
                None => "-".into(),
            };
            rows.push(vec![
                name_of(case),
                goal.figure.name().into(),
                goal.most.to_string(),
                result.map_or("-".into(), |v| format!("{v:.3}")),
                verdict,
            ]);
        }
    }
    rows
}

/// One line per case with a fluid optimum.
pub fn fluid_rows(cases: &[&[RunResult]]) -> Vec<Vec<String>> {
    let mut rows = head(&[
        "case",
        "fluid med us",
        "fluid max us",
        "max us",
        "max/fluid",
        "flows med",
        "flows p99",
        "flows max",
    ]);
    for case in cases {
        let mut own = Vec::new();
        let mut best = Vec::new();
        for r in *case {
            let Some(fluid) = &r.fluid_ps else { continue };
            best.extend(fluid.iter().map(|ps| *ps as f64 / 1e6));
            for round in &r.fct_ps {
                let pairs = round.iter().zip(fluid);
                own.extend(pairs.filter_map(|(fct, best)| Some((*fct)? as f64 / *best as f64)));
            }
        }
        if best.is_empty() {
            continue;
        }
        let most = case.iter().map(|r| r.summary.fct_us.max).fold(0.0, f64::max);
        let worst = case.iter().filter_map(max_over_fluid).reduce(f64::max);
        let (best, own) = (Quantiles::of(best), Quantiles::of(own));
        rows.push(vec![
            name_of(case),
            format!("{:.1}", best.median),
            format!("{:.1}", best.max),
            format!("{most:.1}"),
            worst.map_or("-".into(), |w| format!("{w:.3}")),
            format!("{:.3}", own.median),
            format!("{:.3}", own.p99),
            format!("{:.3}", own.max),
        ]);
    }
    rows
}
