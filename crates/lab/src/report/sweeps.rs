//! Plots of a figure against the axes of an experiment, with the spread over seeds.

use super::rows::{Row, cases};
use crate::figure::{Axis, Figure, Panel, Point, Series, Stroke};
use crate::stats::Quantiles;

/// Least number of values of an axis that is drawn.
const VALUES_MIN: usize = 3;
/// Most lines of a panel.
const LINES_MAX: usize = 10;
/// Most values of an axis of numbers that have a tick each.
const NAMES_MAX: usize = 8;
/// Most panels of a figure.
const PANELS_MAX: usize = 6;
/// Ratio of largest to least value from which an axis is logarithmic.
const LOG_FROM: f64 = 20.0;

/// A figure of a run by its name.
type Metric = (&'static str, fn(&Row) -> Option<f64>);

/// What is drawn against each axis.
const METRICS: [Metric; 8] = [
    ("largest completion time, us", |r| r.get("fct_max_us")),
    ("median completion time, us", |r| r.get("fct_median_us")),
    ("largest completion time over its floor", |r| r.get("over_floor_max")),
    ("retransmitted packets, %", |r| Some(r.retransmitted_percent())),
    ("completion of the phase, units", |r| r.get("completion_units")),
    ("median step of the program, us", |r| r.get("app_step_us_median")),
    ("efficiency of the program", |r| r.get("app_efficiency")),
    ("bus bandwidth, Gb/s", |r| r.get("app_bus_gbps")),
];

/// Figures against the axis with most values, numbers first.
pub fn sweeps(rows: &[Row]) -> Vec<Figure> {
    let groups = cases(rows);
    let Some(axis) = swept(&groups) else { return Vec::new() };
    METRICS.iter().filter_map(|metric| figure(&groups, &axis, *metric)).collect()
}

/// An axis and its values in order.
struct Swept {
    name: String,
    /// Labels, and their numbers if the axis is a number.
    values: Vec<(String, f64)>,
    number: bool,
}

impl Swept {
    /// A tick for each value, without the name of the axis.
    fn ticks(&self) -> Vec<(f64, String)> {
        let own = |label: &str| {
            let rest = label.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix(' '));
            rest.unwrap_or(label).to_string()
        };
        self.values.iter().map(|(label, x)| (*x, own(label))).collect()
    }
}

fn swept(groups: &[&[Row]]) -> Option<Swept> {
    let mut all: Vec<Swept> = Vec::new();
    for on in groups.iter().flat_map(|g| &g[0].axes) {
        let at = all.iter().position(|s| s.name == on.name).unwrap_or_else(|| {
            let number = on.value.is_some();
            all.push(Swept { name: on.name.clone(), values: Vec::new(), number });
            all.len() - 1
        });
        let known = &mut all[at].values;
        if !known.iter().any(|(label, _)| *label == on.label) {
            let place = on.value.unwrap_or(known.len() as f64);
            known.push((on.label.clone(), place));
        }
    }
    all.retain(|s| s.values.len() >= VALUES_MIN);
    // The first of those with most values.
    all.into_iter().rev().max_by_key(|s| (s.number, s.values.len()))
}

/// The parts of a case's name without one axis.
fn others<'a>(row: &'a Row, axis: &str) -> Vec<&'a str> {
    let labels = row.axes.iter().filter(|a| a.name != axis).map(|a| a.label.as_str());
    let all: Vec<&str> = row.axes.iter().map(|a| a.label.as_str()).collect();
    // What precedes the labels is the case's own name.
    let own = row.case.strip_suffix(&all.join(", ")).unwrap_or("").trim_end_matches(", ");
    (!own.is_empty()).then_some(own).into_iter().chain(labels).collect()
}

fn figure(groups: &[&[Row]], axis: &Swept, (title, value): Metric) -> Option<Figure> {
    let mut lines: Vec<(Vec<&str>, Vec<Point>)> = Vec::new();
    for group in groups {
        let Some(on) = group[0].on(&axis.name) else { continue };
        let values: Vec<f64> =
            group.iter().filter(|r| r.number("unfinished") == 0.0).filter_map(value).collect();
        if values.is_empty() || values.iter().all(|v| *v == 0.0) && title.ends_with("us") {
            continue;
        }
        let place = axis.values.iter().find(|(label, _)| *label == on.label);
        let q = Quantiles::of(values);
        let point = Point {
            x: place.map_or(0.0, |(_, x)| *x),
            y: q.median,
            spread: (group.len() > 1).then_some((q.min, q.max)),
        };
        let name = others(&group[0], &axis.name);
        match lines.iter_mut().find(|(n, _)| *n == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    lines.retain(|(_, points)| points.len() > 1);
    for (_, points) in &mut lines {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let y: Vec<f64> = lines.iter().flat_map(|(_, p)| p.iter().map(|p| p.y)).collect();
    let x: Vec<f64> = axis.values.iter().map(|(_, x)| *x).collect();
    if y.iter().all(|v| *v == 0.0) {
        return None;
    }
    let seeds = groups.iter().map(|g| g.len()).max().unwrap_or(1);
    let spread = match seeds {
        1 => String::new(),
        n => format!(" Median over up to {n} seeds, with the least and the largest."),
    };
    let (panels, left) = panels_of(lines);
    let cut = if left > 0 { format!(" {left} more lines are not drawn.") } else { String::new() };
    Some(Figure {
        title: format!("{}, by {}", capital(title), axis.name),
        note: format!("A point for each case.{spread}{cut}"),
        x: Axis {
            names: (!axis.number || axis.values.len() <= NAMES_MAX).then(|| axis.ticks()),
            ..Axis::new(&axis.name, axis.number && is_wide(&x))
        },
        y: Axis::new(title, is_wide(&y)),
        panels,
    })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

/// Whether values span so much that a logarithmic axis shows them better. Zeros have no place on
/// it.
pub fn is_wide(values: &[f64]) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    least > 0.0 && most / least > LOG_FROM
}

/// Lines in one panel, or in one for each of their first parts; and how many have no room.
fn panels_of(lines: Vec<(Vec<&str>, Vec<Point>)>) -> (Vec<Panel>, usize) {
    let split = lines.len() > LINES_MAX;
    let mut panels: Vec<Panel> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut left = 0;
    for (parts, points) in lines {
        let (title, name) = match (split, parts.as_slice()) {
            (true, [first, rest @ ..]) => ((*first).to_string(), rest.join(", ")),
            _ => (String::new(), parts.join(", ")),
        };
        let at = panels.iter().position(|p| p.title == title).unwrap_or_else(|| {
            panels.push(Panel { title, series: Vec::new() });
            panels.len() - 1
        });
        if at >= PANELS_MAX || panels[at].series.len() >= LINES_MAX {
            left += 1;
            continue;
        }
        let color = names.iter().position(|n| *n == name).unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        });
        panels[at].series.push(Series { name, points, stroke: Stroke::Marked, color });
    }
    panels.truncate(PANELS_MAX);
    (panels, left)
}
