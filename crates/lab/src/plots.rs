//! Figures that experiments declare, made of their results.

use crate::figure::{Axis, Figure, Panel, Point, Series, Stroke};
use crate::figures_copa::{dropped_over_host, goodput_over_host};
use crate::figures_phase::{completion, met};
use crate::report::rows::{Row, is_column};
use crate::result::RunResult;
use crate::spec::{PlotKind, PlotSpec, Spec};
use crate::stats::Quantiles;
use srd_fabric::Ps;

/// Most points of a distribution.
const POINTS_MAX: usize = 400;
/// Name of the axis that is a case's own name.
const OWN: &str = "case";
/// Values that are not columns of the summary.
const VALUES: [&str; 6] = [
    "max us",
    "dropped/host %",
    "goodput/host",
    "completion units",
    "congestion max",
    "congestion mean",
];

/// A case's runs, one per seed.
type Case<'a> = &'a [RunResult];

impl PlotSpec {
    /// Whether the figure shows a case.
    pub fn shows(&self, spec: &Spec) -> bool {
        let has = |axis: &String| axis == OWN || spec.on(axis).is_some();
        let axes = self.x.iter().chain(&self.series).chain(&self.panels);
        axes.into_iter().all(has)
            && self.with.iter().all(|l| spec.labels.contains(l))
            && !self.without.iter().any(|l| spec.labels.contains(l))
    }

    /// Checks the declaration against the cases of its file.
    ///
    /// # Errors
    /// The text names the field.
    pub fn check(&self, cases: &[Spec]) -> Result<(), String> {
        let at = format!("plot \"{}\"", self.title);
        for axis in self.x.iter().chain(&self.series).chain(&self.panels) {
            if axis != OWN && !cases.iter().any(|c| c.on(axis).is_some()) {
                return Err(format!("{at}: no case is run across an axis `{axis}`"));
            }
        }
        let lines = self.kind == PlotKind::Lines;
        if lines != self.x.is_some() || lines == self.y.is_empty() {
            return Err(format!("{at}: kind = \"lines\" needs `x` and `y`; other kinds have none"));
        }
        if let Some(y) = self.y.iter().find(|y| !VALUES.contains(&y.as_str()) && !is_column(y)) {
            let known = VALUES.map(|v| format!("\"{v}\"")).join(", ");
            return Err(format!(
                "{at}: y = \"{y}\" is neither one of {known} nor a column of NAME-summary.csv"
            ));
        }
        let shown = || cases.iter().filter(|c| self.shows(c));
        let measure = match self.kind {
            PlotKind::Flows => shown().any(|c| !c.measure.flows || c.measure.goodput_us == 0),
            PlotKind::Goodput => shown().any(|c| c.measure.goodput_us == 0),
            _ => false,
        };
        if measure {
            return Err(format!(
                "{at}: kind = \"{}\" needs measure.goodput_us{}",
                if self.kind == PlotKind::Flows { "flows" } else { "goodput" },
                if self.kind == PlotKind::Flows { " and measure.flows = true" } else { "" }
            ));
        }
        Ok(())
    }
}

/// The declared figures of these results, without those that show none of their cases.
pub fn plots(results: &[RunResult]) -> Vec<(&PlotSpec, Figure)> {
    let Some(first) = results.first() else { return Vec::new() };
    let cases: Vec<Case<'_>> =
        results.chunk_by(|a, b| a.spec.case == b.spec.case && a.spec.name == b.spec.name).collect();
    let of = |plot| {
        let figure = figure(plot, &cases);
        (!figure.is_empty()).then_some((plot, figure))
    };
    first.spec.plot.iter().filter_map(of).collect()
}

fn figure(plot: &PlotSpec, cases: &[Case<'_>]) -> Figure {
    let shown: Vec<Case<'_>> = cases.iter().copied().filter(|c| plot.shows(&c[0].spec)).collect();
    let mut panels: Vec<(String, Vec<Case<'_>>)> = Vec::new();
    for case in shown {
        let title = panel_of(plot, &case[0]);
        match panels.iter_mut().find(|(t, _)| *t == title) {
            Some((_, cases)) => cases.push(case),
            None => panels.push((title, vec![case])),
        }
    }
    let mut names = Names::default();
    let seeds = panels.iter().flat_map(|(_, c)| c).map(|c| c.len()).max().unwrap_or(0);
    let (x, y, note) = axes(plot, &panels, seeds);
    let panels = panels.into_iter().map(|(title, cases)| Panel {
        title,
        series: match plot.kind {
            PlotKind::Lines => lines(plot, &cases, &mut names),
            PlotKind::Cdf => cdf(plot, &cases, &mut names),
            PlotKind::Dots => dots(plot, &cases, &mut names),
            PlotKind::Flows => flows(plot, &cases, &mut names),
            PlotKind::Goodput => over_time(plot, &cases, &mut names, goodput),
            PlotKind::Rounds => over_time(plot, &cases, &mut names, rounds),
            PlotKind::Uplinks => uplinks(plot, &cases, &mut names),
        },
    });
    Figure { title: plot.title.clone(), note, x, y, panels: panels.collect() }
}

/// Colours of names, the same in all panels.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn color(&mut self, name: &str) -> usize {
        self.0.iter().position(|n| n == name).unwrap_or_else(|| {
            self.0.push(name.into());
            self.0.len() - 1
        })
    }

    fn series(&mut self, name: String, points: Vec<Point>, stroke: Stroke) -> Series {
        let color = self.color(&name);
        Series { name, points, stroke, color }
    }
}

/// A case's value on an axis, or its own name.
fn label<'a>(spec: &'a Spec, axis: &str) -> &'a str {
    if axis == OWN { spec.own_name() } else { spec.on(axis).map_or("", |a| a.label.as_str()) }
}

fn panel_of(plot: &PlotSpec, r: &RunResult) -> String {
    match (&plot.panels, plot.kind) {
        (Some(axis), _) => label(&r.spec, axis).into(),
        // Many lines of one colour need a panel for each case.
        (None, PlotKind::Flows) => name_of(plot, r),
        (None, _) => String::new(),
    }
}

/// Name of a case's line: its values on the axes of series, or else all of its name.
fn name_of(plot: &PlotSpec, r: &RunResult) -> String {
    let parts: Vec<&str> = plot.series.iter().map(|axis| label(&r.spec, axis)).collect();
    match parts.is_empty() {
        true if r.spec.case.is_empty() => r.spec.name.clone(),
        true => r.spec.case.clone(),
        false => parts.join(", "),
    }
}

fn us(ps: Ps) -> f64 {
    ps as f64 / 1e6
}

/// Titles of the axes, and the explanation.
fn axes(plot: &PlotSpec, panels: &[(String, Vec<Case<'_>>)], seeds: usize) -> (Axis, Axis, String) {
    let axis = |title: &str, log: bool| Axis::new(title, log);
    let free = |title: &str, log: bool| Axis { from_zero: false, ..Axis::new(title, log) };
    let time = "time, us since the start of the run";
    let seed_text = match seeds {
        0 | 1 => "One seed".to_string(),
        n => format!("{n} seeds"),
    };
    let all = "All rounds and seeds together";
    match plot.kind {
        PlotKind::Lines => {
            let name = plot.x.as_deref().unwrap_or_default();
            let spread = match plot.y.iter().any(|y| y == "max us") {
                true => "points: the largest of all rounds and seeds, bars: down to the round with \
                         the least",
                false => "points: means over seeds, bars: the least and the largest",
            };
            let x = Axis { names: Some(ticks(name, panels)), ..free(name, plot.log_x) };
            (x, axis(&plot.y.join(", "), plot.log_y), format!("{seed_text}; {spread}."))
        }
        PlotKind::Cdf => (
            free("flow completion time, us", plot.log_x),
            axis("share of flows", false),
            format!("{all}; dashed: the ideal."),
        ),
        PlotKind::Dots => (
            free("flow of the first sender", false),
            axis("flow completion time, us", plot.log_y),
            format!("{all}; a dot for each flow and round; dashed: the ideal."),
        ),
        PlotKind::Flows => (
            free(time, false),
            axis("throughput of a flow, Gb/s", plot.log_y),
            "A line for each flow; dashed: the fair share. First seed.".into(),
        ),
        PlotKind::Goodput => (
            free(time, false),
            axis("throughput of all flows, Gb/s", plot.log_y),
            "Payload that arrived, first seed.".into(),
        ),
        PlotKind::Rounds => (
            free(time, false),
            axis("completion time, us", plot.log_y),
            "The largest completion time of each round at its start, first seed; a line ends where \
             the next round starts later."
                .into(),
        ),
        PlotKind::Uplinks => (
            free("uplink of the senders' switch, from idle to busy", false),
            axis("bytes over the mean of all uplinks", false),
            "A level line: all uplinks carry the same. First seed.".into(),
        ),
    }
}

/// Place of a case on the horizontal axis: its number, or the place of its label.
fn place(axis: &str, spec: &Spec, labels: &[String]) -> f64 {
    let on = spec.on(axis);
    let at = |label: &str| labels.iter().position(|l| l == label).unwrap_or(0) as f64;
    on.and_then(|a| a.value).unwrap_or_else(|| at(label(spec, axis)))
}

fn labels(axis: &str, panels: &[(String, Vec<Case<'_>>)]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for case in panels.iter().flat_map(|(_, cases)| cases) {
        let label = label(&case[0].spec, axis);
        if !out.iter().any(|l| l == label) {
            out.push(label.into());
        }
    }
    out
}

fn ticks(axis: &str, panels: &[(String, Vec<Case<'_>>)]) -> Vec<(f64, String)> {
    let labels = labels(axis, panels);
    let mut out: Vec<(f64, String)> = Vec::new();
    for case in panels.iter().flat_map(|(_, cases)| cases) {
        let label = label(&case[0].spec, axis).to_string();
        if out.iter().all(|(_, l)| *l != label) {
            out.push((place(axis, &case[0].spec, &labels), label));
        }
    }
    out.sort_by(|a, b| a.0.total_cmp(&b.0));
    out
}

/// A value of a case with its spread; `None` if a flow did not end, or the case has no such value.
fn value(y: &str, case: Case<'_>) -> Option<(f64, (f64, f64))> {
    let each = |of: &dyn Fn(&RunResult) -> Option<f64>| {
        let values: Vec<f64> = case.iter().filter_map(of).collect();
        let q = Quantiles::of(values.clone());
        (!values.is_empty()).then_some((q.mean, (q.min, q.max)))
    };
    let one = |r: &RunResult| std::slice::from_ref(r).to_vec();
    match y {
        "max us" => {
            let rounds = case.iter().flat_map(|r| &r.fct_ps);
            // A flow without an end makes the round's largest time unknown.
            let largest = rounds.map(|f| {
                f.iter().copied().max().flatten().filter(|_| f.iter().all(Option::is_some))
            });
            let all: Vec<f64> = largest.map(|ps| ps.map(us)).collect::<Option<_>>()?;
            let q = Quantiles::of(all);
            Some((q.max, (q.min, q.max)))
        }
        "dropped/host %" => each(&|r| Some(dropped_over_host(&one(r)))),
        "goodput/host" => each(&|r| Some(goodput_over_host(&one(r)))),
        "completion units" => each(&|r| completion(&one(r))),
        "congestion max" => each(&|r| met(r).map(|m| m.max)),
        "congestion mean" => each(&|r| met(r).map(|m| m.mean)),
        column => each(&|r| Row::of(r).get(column)),
    }
}

fn lines(plot: &PlotSpec, cases: &[Case<'_>], names: &mut Names) -> Vec<Series> {
    let axis = plot.x.as_deref().unwrap_or_default();
    let labels = labels(axis, &[(String::new(), cases.to_vec())]);
    let mut out: Vec<Series> = Vec::new();
    let mut add = |name: String, point: Point, stroke: Stroke| match out
        .iter_mut()
        .find(|s| s.name == name)
    {
        Some(series) => series.points.push(point),
        None => out.push(names.series(name, vec![point], stroke)),
    };
    for case in cases {
        let x = place(axis, &case[0].spec, &labels);
        for y in &plot.y {
            let Some((mean, spread)) = value(y, case) else { continue };
            let name = match (plot.y.len(), plot.series.is_empty()) {
                (1, _) => name_of(plot, &case[0]),
                (_, true) => y.clone(),
                _ => format!("{}, {y}", name_of(plot, &case[0])),
            };
            let point = Point { x, y: mean, spread: Some(spread) };
            add(name, point, Stroke::Marked);
        }
        if plot.ideal {
            let ideal = us(case[0].ideal_ps.iter().copied().max().unwrap_or(0));
            add("ideal".into(), (x, ideal).into(), Stroke::Dashed);
        }
    }
    for series in &mut out {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        // The ideal is the same for cases that differ in their series only.
        series.points.dedup_by(|a, b| a.x == b.x && series.stroke == Stroke::Dashed);
    }
    out
}

/// The largest ideal of some cases.
fn ideal(cases: &[Case<'_>]) -> f64 {
    us(cases.iter().flat_map(|c| &c[0].ideal_ps).copied().max().unwrap_or(0))
}

fn cdf(plot: &PlotSpec, cases: &[Case<'_>], names: &mut Names) -> Vec<Series> {
    let mut out = Vec::new();
    for case in cases {
        let fcts = case.iter().flat_map(|r| r.fct_ps.iter().flatten());
        let all: Vec<Option<Ps>> = fcts.copied().collect();
        let mut ended: Vec<f64> = all.iter().flatten().map(|ps| us(*ps)).collect();
        ended.sort_unstable_by(f64::total_cmp);
        let Some(last) = ended.len().checked_sub(1) else { continue };
        let count = ended.len().min(POINTS_MAX);
        let at = |k: usize| k * last / (count - 1).max(1);
        let point = |k: usize| Point::from((ended[at(k)], (at(k) + 1) as f64 / all.len() as f64));
        let mut points: Vec<Point> = vec![(ended[0], 0.0).into()];
        points.extend((0..count).map(point));
        out.push(names.series(name_of(plot, &case[0]), points, Stroke::Steps));
    }
    if plot.ideal && !out.is_empty() {
        let x = ideal(cases);
        let line = vec![(x, 0.0).into(), (x, 1.0).into()];
        out.push(names.series("ideal".into(), line, Stroke::Dashed));
    }
    out
}

fn dots(plot: &PlotSpec, cases: &[Case<'_>], names: &mut Names) -> Vec<Series> {
    let mut out = Vec::new();
    let mut flows_max = 0;
    for (i, case) in cases.iter().enumerate() {
        // Cases stand beside each other.
        let shift = (i as f64 + 0.5) / cases.len() as f64 * 0.6 - 0.3;
        let mut points: Vec<Point> = Vec::new();
        for r in *case {
            let Some(sender) = r.flows.first().map(|f| f.src) else { continue };
            for fcts in &r.fct_ps {
                let own = fcts.iter().zip(&r.flows).filter(|(_, f)| f.src == sender);
                for (n, (fct, _)) in own.enumerate() {
                    flows_max = flows_max.max(n + 1);
                    points.extend(fct.map(|ps| Point::from((n as f64 + 1.0 + shift, us(ps)))));
                }
            }
        }
        out.push(names.series(name_of(plot, &case[0]), points, Stroke::Dots));
    }
    if plot.ideal && flows_max > 0 {
        let y = ideal(cases);
        let line = vec![(0.5, y).into(), (flows_max as f64 + 0.5, y).into()];
        out.push(names.series("ideal".into(), line, Stroke::Dashed));
    }
    out
}

/// Steps of a series of bytes per interval, in Gb/s, without its last interval, which is not
/// complete. The first is left out as well.
fn rates(bytes: &[u64], interval_us: u64) -> Vec<Point> {
    let ns = interval_us as f64 * 1e3;
    let n = bytes.len().saturating_sub(1);
    let at = |i: usize| (i as f64 * interval_us as f64, bytes[i] as f64 * 8.0 / ns).into();
    (1..n).map(at).collect()
}

fn flows(plot: &PlotSpec, cases: &[Case<'_>], names: &mut Names) -> Vec<Series> {
    let mut out = Vec::new();
    for case in cases {
        let r = &case[0];
        let name = name_of(plot, r);
        let longest = r.flow_goodput.iter().map(Vec::len).max().unwrap_or(0);
        for (i, bytes) in r.flow_goodput.iter().enumerate() {
            // A flow that stands still at the end has no bytes there.
            let mut bytes = bytes.clone();
            bytes.resize(longest, 0);
            let points = rates(&bytes, r.spec.measure.goodput_us);
            let mut series = names.series(name.clone(), points, Stroke::Thin);
            if i > 0 {
                series.name.clear();
            }
            out.push(series);
        }
        let sum: f64 = out.iter().flat_map(|s: &Series| s.points.iter().map(|p| p.y)).sum();
        let points: usize = out.iter().map(|s| s.points.len()).sum();
        let ends = out.first().and_then(|s| s.points.first().zip(s.points.last()));
        if let (true, Some((a, b))) = (plot.ideal && points > 0, ends) {
            let fair = sum / points as f64;
            let line = vec![(a.x, fair).into(), (b.x, fair).into()];
            out.push(names.series("fair share".into(), line, Stroke::Dashed));
        }
    }
    out
}

fn over_time(
    plot: &PlotSpec,
    cases: &[Case<'_>],
    names: &mut Names,
    of: fn(&RunResult) -> (Vec<Point>, Stroke),
) -> Vec<Series> {
    let until = plot.until_us.unwrap_or(f64::INFINITY);
    let series = |case: &Case<'_>| {
        let (mut points, stroke) = of(&case[0]);
        points.retain(|p| p.x <= until);
        names.series(name_of(plot, &case[0]), points, stroke)
    };
    cases.iter().map(series).collect()
}

fn goodput(r: &RunResult) -> (Vec<Point>, Stroke) {
    (rates(&r.goodput, r.spec.measure.goodput_us), Stroke::Steps)
}

fn rounds(r: &RunResult) -> (Vec<Point>, Stroke) {
    let largest = r.fct_ps.iter().map(|f| f.iter().flatten().max().copied());
    let points = r.round_at_ps.iter().zip(largest);
    (points.filter_map(|(at, ps)| Some((us(*at), us(ps?)).into())).collect(), Stroke::Marked)
}

/// Bytes of each uplink of the switch of the first sender, over their mean.
fn uplinks(plot: &PlotSpec, cases: &[Case<'_>], names: &mut Names) -> Vec<Series> {
    let mut out = Vec::new();
    for case in cases {
        let (r, n) = (&case[0], &case[0].spec.network);
        let (Some(o), Some(spines), Some(hosts)) = (&r.observation, n.spines, n.hosts_per_leaf)
        else {
            continue;
        };
        let leaf = r.flows.first().map_or(0, |f| f.src.0 / hosts.max(1));
        let own = format!("leaf{leaf}->spine");
        let mut bytes: Vec<f64> =
            o.busiest.iter().filter(|l| l.name.starts_with(&own)).map(|l| l.bytes as f64).collect();
        // Idle ones are not among the busiest.
        bytes.resize((spines * n.cables_per_spine.unwrap_or(1)) as usize, 0.0);
        bytes.sort_unstable_by(f64::total_cmp);
        let mean = bytes.iter().sum::<f64>() / bytes.len().max(1) as f64;
        let point = |(i, b): (usize, &f64)| (i as f64 + 1.0, b / mean.max(1.0)).into();
        let points = bytes.iter().enumerate().map(point).collect();
        out.push(names.series(name_of(plot, r), points, Stroke::Marked));
    }
    out
}
