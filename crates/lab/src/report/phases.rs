//! The two figures of the publication: congestion of one permutation, completion of superposed
//! ones.

use super::cases;
use super::charts::{Chart, axis, case_name, color, layout, plot};
use crate::congestion::Met;
use crate::figures_phase::{completion, met};
use crate::result::RunResult;
use plotly::common::{Line, Marker, Mode};
use plotly::layout::BarMode;
use plotly::{Bar, Scatter};

/// A chart for each network size: bars of largest and mean congestion of one permutation, and lines
/// of the largest congestion of several against their number.
pub fn congestion(results: &[RunResult]) -> Vec<Chart> {
    let superposed = |r: &RunResult| r.spec.workload.permutations.is_some();
    let one = by_size(results, |r| met(r).is_some() && !superposed(r));
    let several = by_size(results, |r| met(r).is_some() && superposed(r));
    let largest = |c: &[RunResult]| Some(met_mean(c, |m| m.max));
    let lines = several.iter().filter_map(|group| {
        let title = format!("Largest sum of flows on a link, {} hosts", group[0][0].hosts);
        let note = "W of superposed permutations in flows, means over placements: so many units a \
                    phase takes at least on these ways, and with computed rates.";
        lines_of(group, "flows on the busiest link", largest, title, note)
    });
    one.iter().map(|group| congestion_of(group)).chain(lines).collect()
}

/// Mean of a congestion value over the runs of a case.
fn met_mean(case: &[RunResult], f: fn(&Met) -> f64) -> f64 {
    case.iter().filter_map(met).map(f).sum::<f64>() / case.len() as f64
}

/// Cases grouped by the number of hosts, for which `wanted` holds.
fn by_size(results: &[RunResult], wanted: impl Fn(&RunResult) -> bool) -> Vec<Vec<&[RunResult]>> {
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
    let mut p = plot(layout(axis("", false), axis("flows", false)).bar_mode(BarMode::Group));
    // The title gives the size.
    let name = |c: &&[RunResult]| match c[0].spec.labels.get(1..) {
        Some(labels) if !labels.is_empty() => labels.join(", "),
        _ => case_name(&c[0]).to_string(),
    };
    let names: Vec<String> = group.iter().map(name).collect();
    let bar = |name: &str, i: usize, values: Vec<f64>| {
        Bar::new(names.clone(), values).name(name).marker(Marker::new().color(color(i)))
    };
    p.add_trace(bar("largest", 0, group.iter().map(|c| met_mean(c, |m| m.max)).collect()));
    p.add_trace(bar("mean over flows", 1, group.iter().map(|c| met_mean(c, |m| m.mean)).collect()));
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

/// A chart for each network size: completion against the number of superposed permutations.
pub fn phases(results: &[RunResult]) -> Vec<Chart> {
    let superposed = |r: &RunResult| r.spec.workload.permutations.is_some() && met(r).is_none();
    let note = "When the last flow has arrived, means over the runs of a case. A case whose flows \
                did not all end is left out.";
    let lines = |group: &Vec<&[RunResult]>| {
        let title = format!("Completion of a communication phase, {} hosts", group[0][0].hosts);
        lines_of(group, "completion, in units of a flow at line rate", completion, title, note)
    };
    by_size(results, superposed).iter().filter_map(lines).collect()
}

/// Labels of a case except the one with the number of permutations.
fn series_name(r: &RunResult) -> String {
    let p = r.spec.workload.permutations.unwrap_or(0);
    let own = |l: &&String| **l != format!("P = {p}");
    r.spec.labels.iter().filter(own).cloned().collect::<Vec<_>>().join(", ")
}

/// A line for each kind of case: `value` against the number of permutations.
fn lines_of(
    group: &[&[RunResult]],
    what: &str,
    value: fn(&[RunResult]) -> Option<f64>,
    title: String,
    note: &str,
) -> Option<Chart> {
    let mut names: Vec<String> = Vec::new();
    for case in group {
        let name = series_name(&case[0]);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut p = plot(layout(axis("superposed permutations", false), axis(what, false)));
    for (i, name) in names.iter().enumerate() {
        let mine = group.iter().filter(|c| series_name(&c[0]) == *name);
        let point = |c: &&[RunResult]| Some((c[0].spec.workload.permutations?, value(c)?));
        let points: Vec<(u32, f64)> = mine.filter_map(point).collect();
        let (x, y): (Vec<u32>, Vec<f64>) = points.into_iter().unzip();
        let line = Line::new().color(color(i));
        p.add_trace(Scatter::new(x, y).mode(Mode::LinesMarkers).line(line).name(name));
    }
    (!p.data().is_empty()).then(|| Chart { title, note: note.into(), plot: p })
}
