//! The seed's two figures: congestion of one permutation, completion of superposed ones.

use super::cases;
use super::charts::{Chart, axis, case_name, color, layout, plot};
use crate::figures_phase::{completion, met};
use crate::result::RunResult;
use plotly::common::{Line, Marker, Mode};
use plotly::layout::BarMode;
use plotly::{Bar, Scatter};

/// A chart for each size of network: bars of largest and mean congestion.
pub fn congestion(results: &[RunResult]) -> Vec<Chart> {
    let placed = by_size(results, |r| met(r).is_some());
    placed.iter().map(|group| congestion_of(group)).collect()
}

/// Cases by the number of hosts, those that `wanted` names.
fn by_size(results: &[RunResult], wanted: fn(&RunResult) -> bool) -> Vec<Vec<&[RunResult]>> {
    let mut groups: Vec<Vec<&[RunResult]>> = Vec::new();
    for case in cases(results).into_iter().filter(|c| wanted(&c[0])) {
        match groups.iter_mut().find(|g| g[0][0].hosts == case[0].hosts) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    groups
}

fn congestion_of(group: &[&[RunResult]]) -> Chart {
    let mut p = plot(
        layout(axis("", false), axis("flows on the busiest link of a way", false))
            .bar_mode(BarMode::Group),
    );
    let names: Vec<String> = group.iter().map(|c| case_name(&c[0]).to_string()).collect();
    let mean = |c: &&[RunResult], f: fn(&crate::congestion::Met) -> f64| {
        c.iter().filter_map(met).map(f).sum::<f64>() / c.len() as f64
    };
    let bar = |name: &str, i: usize, values: Vec<f64>| {
        Bar::new(names.clone(), values).name(name).marker(Marker::new().color(color(i)))
    };
    p.add_trace(bar("largest", 0, group.iter().map(|c| mean(c, |m| m.max)).collect()));
    p.add_trace(bar("mean over flows", 1, group.iter().map(|c| mean(c, |m| m.mean)).collect()));
    Chart {
        title: format!("Congestion that flows meet, {} hosts", group[0][0].hosts),
        note: format!(
            "Flows on the busiest link of a flow's way: the largest of all flows, and the mean \
             over flows; means over {} placements.",
            met(&group[0][0]).map_or(0, |m| m.runs)
        ),
        plot: p,
    }
}

/// A chart for each size of network: completion against the number of superposed permutations.
pub fn phases(results: &[RunResult]) -> Vec<Chart> {
    let superposed = |r: &RunResult| r.spec.workload.permutations.is_some() && met(r).is_none();
    by_size(results, superposed).iter().filter_map(|group| phases_of(group)).collect()
}

/// Labels of a case without the one that changes with the number of permutations.
fn series_name(r: &RunResult) -> String {
    let p = r.spec.workload.permutations.unwrap_or(0);
    let own = |l: &&String| **l != format!("P = {p}");
    r.spec.labels.iter().filter(own).cloned().collect::<Vec<_>>().join(", ")
}

fn phases_of(group: &[&[RunResult]]) -> Option<Chart> {
    let mut names: Vec<String> = Vec::new();
    for case in group {
        let name = series_name(&case[0]);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut p = plot(layout(
        axis("superposed permutations", false),
        axis("completion, in units of a flow at line rate", false),
    ));
    for (i, name) in names.iter().enumerate() {
        let mine = group.iter().filter(|c| series_name(&c[0]) == *name);
        let point = |c: &&[RunResult]| Some((c[0].spec.workload.permutations?, completion(c)?));
        let points: Vec<(u32, f64)> = mine.filter_map(point).collect();
        let (x, y): (Vec<u32>, Vec<f64>) = points.into_iter().unzip();
        let line = Line::new().color(color(i));
        p.add_trace(Scatter::new(x, y).mode(Mode::LinesMarkers).line(line).name(name));
    }
    (!p.data().is_empty()).then(|| Chart {
        title: format!("Completion of a communication phase, {} hosts", group[0][0].hosts),
        note: "When the last flow has arrived, means over the runs of a case. A case whose flows \
               did not all end is left out."
            .into(),
        plot: p,
    })
}
