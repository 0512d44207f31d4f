//! Plots of a report, as data for the plotting library.

use super::cases;
use crate::observe::{Observation, gbps};
use crate::result::RunResult;
use crate::stats::Quantiles;
use plotly::color::NamedColor;
use plotly::common::{
    ColorScale, ColorScalePalette, DashType, Line, LineShape, Mode, Orientation, Title,
};
use plotly::configuration::{DisplayModeBar, ImageButtonFormats, ToImageButtonOptions};
use plotly::layout::{Axis, AxisType, BarMode, HoverMode, Legend, Margin, RangeMode};
use plotly::{Bar, Configuration, HeatMap, Layout, Plot, Scatter};
use srd_fabric::DropReason;

/// Most points of one line.
const POINTS_MAX: usize = 500;
/// Ratio of largest to least value from which an axis is logarithmic.
const LOG_FROM: f64 = 20.0;
/// Colours that colour-blind readers can distinguish.
const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];

/// A plot with its explanation.
pub struct Chart {
    /// Heading.
    pub title: String,
    /// Definitions.
    pub note: String,
    /// Data and layout.
    pub plot: Plot,
}

/// Rounds to four significant digits, the resolution of a screen.
fn short(v: f64) -> f64 {
    if v == 0.0 || !v.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - v.abs().log10().floor() as i32);
    (v * scale).round() / scale
}

pub fn color(i: usize) -> &'static str {
    COLORS[i % COLORS.len()]
}

pub fn axis(title: &str, log: bool) -> Axis {
    let axis = Axis::new().title(Title::with_text(title)).auto_margin(true);
    if log { axis.type_(AxisType::Log) } else { axis.range_mode(RangeMode::ToZero) }
}

pub fn layout(x: Axis, y: Axis) -> Layout {
    Layout::new()
        .x_axis(x)
        .y_axis(y)
        .height(380)
        .margin(Margin::new().top(20).left(70).right(20).bottom(50))
        .legend(Legend::new().orientation(Orientation::Vertical))
        .paper_background_color(NamedColor::White)
        .hover_mode(HoverMode::Closest)
}

pub fn plot(layout: Layout) -> Plot {
    let mut plot = Plot::new();
    plot.set_layout(layout);
    // For papers, which need lines that can be enlarged.
    let image = ToImageButtonOptions::new().format(ImageButtonFormats::Svg);
    let config = Configuration::new().responsive(true).display_logo(false);
    let config = config.display_mode_bar(DisplayModeBar::Hover).to_image_button_options(image);
    plot.set_configuration(config);
    plot
}

/// Name of a case in legends.
pub fn case_name(r: &RunResult) -> &str {
    if r.spec.case.is_empty() { &r.spec.name } else { &r.spec.case }
}

/// Flow completion times of these runs in us, ascending.
fn fcts_us(runs: &[RunResult]) -> Vec<f64> {
    let all = runs.iter().flat_map(|r| r.fct_ps.iter().flatten().flatten());
    let mut all: Vec<f64> = all.map(|ps| *ps as f64 / 1e6).collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

/// Distribution of the flow completion times of all cases.
pub fn cdf(results: &[RunResult]) -> Chart {
    let all = fcts_us(results);
    let log = all.last().zip(all.first()).is_some_and(|(max, min)| max / min > LOG_FROM);
    let time = axis("flow completion time, us", log).range_mode(RangeMode::Normal);
    let mut p = plot(layout(time, axis("share of flows", false)));
    for (i, case) in cases(results).into_iter().enumerate() {
        let all = fcts_us(case);
        if all.is_empty() {
            continue;
        }
        let points = ranks(all.len());
        let x: Vec<f64> = points.iter().map(|k| short_fct(all[*k])).collect();
        let y: Vec<f64> = points.iter().map(|k| (k + 1) as f64 / all.len() as f64).collect();
        let line = Line::new().shape(LineShape::Hv).color(color(i));
        let trace = Scatter::new(x, y).mode(Mode::Lines).line(line).name(case_name(&case[0]));
        p.add_trace(trace);
        let floor = Quantiles::of(case.iter().map(|r| r.summary.floor_us).collect()).median;
        let line = Line::new().dash(DashType::Dot).color(color(i));
        let name = format!("floor: {}", case_name(&case[0]));
        let x = vec![short_fct(floor); 2];
        p.add_trace(Scatter::new(x, vec![0.0, 1.0]).mode(Mode::Lines).line(line).name(name));
    }
    Chart {
        title: "Flow completion times: distribution".into(),
        note:
            "All seeds and rounds together. Flows that did not end are not included. Dotted: the \
               floor."
                .into(),
        plot: p,
    }
}

/// Rounds to seven digits, because completion times differ in the last ones.
fn short_fct(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

/// Up to [`POINTS_MAX`] evenly spaced indices of `0..n`, both ends included.
fn ranks(n: usize) -> Vec<usize> {
    let m = n.min(POINTS_MAX);
    (0..m).map(|k| k * (n - 1) / (m - 1).max(1)).collect()
}

/// Least, median, 99th percentile and largest completion time of every case, and its floor.
pub fn completion(results: &[RunResult]) -> Chart {
    let groups = cases(results);
    let names: Vec<String> = groups.iter().map(|c| case_name(&c[0]).to_string()).collect();
    let us = |ps: u64| ps as f64 / 1e6;
    let of: Vec<Quantiles> = groups.iter().map(|c| Quantiles::of(fcts_us(c))).collect();
    let ideal =
        |c: &&[RunResult]| c.iter().flat_map(|r| &r.ideal_ps).copied().max().map_or(0.0, us);
    let floor = |c: &&[RunResult]| c.iter().map(|r| r.summary.floor_us).fold(0.0, f64::max);
    let bars: [(&str, Vec<f64>); 6] = [
        ("ideal", groups.iter().map(ideal).collect()),
        ("floor", groups.iter().map(floor).collect()),
        ("min", of.iter().map(|q| q.min).collect()),
        ("median", of.iter().map(|q| q.median).collect()),
        ("p99", of.iter().map(|q| q.p99).collect()),
        ("max", of.iter().map(|q| q.max).collect()),
    ];
    let top = of.iter().map(|q| q.max).fold(0.0, f64::max);
    let low = of.iter().map(|q| q.min).filter(|m| *m > 0.0).fold(f64::MAX, f64::min);
    let y = axis("us", top / low > LOG_FROM);
    let mut p = plot(layout(Axis::new().auto_margin(true), y).bar_mode(BarMode::Group));
    for (name, values) in bars {
        let values: Vec<f64> = values.into_iter().map(short_fct).collect();
        p.add_trace(Bar::new(names.clone(), values).name(name));
    }
    Chart {
        title: "Flow completion times: least, median, 99 %, largest".into(),
        note: "Ideal: payload alone at the slower end, no headers, no round trip. Floor: with all \
               headers and the base round trip."
            .into(),
        plot: p,
    }
}

/// A step line over the intervals of an observation.
fn steps(o: &Observation, values: Vec<f64>, name: &str) -> Box<Scatter<f64, f64>> {
    // The last value is repeated at the end of its interval.
    let mut values: Vec<f64> = values.into_iter().map(short).collect();
    let n = values.len();
    let start = |i: usize| (o.start_ps + i as u64 * o.interval_ps) as f64 / 1e6;
    let mut x: Vec<f64> = (0..n).map(start).collect();
    if let Some(last) = values.last() {
        values.push(*last);
        x.push(o.end_ps as f64 / 1e6);
    }
    Scatter::new(x, values).mode(Mode::Lines).name(name)
}

const TIME: &str = "us since the start of the run";

fn over_time(y: &str) -> Plot {
    plot(layout(axis(TIME, false).range_mode(RangeMode::Normal), axis(y, false)))
}

/// All plots of one observed run.
pub fn observed(o: &Observation) -> Vec<Chart> {
    let mut charts = vec![throughput(o), flows(o), used(o), queues(o), losses(o)];
    charts.extend(rings(o));
    charts.extend(link_maps(o));
    charts.push(sorted(o));
    charts.extend(paths(o));
    charts.extend(spines(o));
    charts
}

fn throughput(o: &Observation) -> Chart {
    let mut p = over_time("Gb/s of payload");
    let rate = |i: usize| gbps(o.intervals[i].bytes, o.width_ps(i));
    let all = (0..o.intervals.len()).map(rate).collect();
    p.add_trace(steps(o, all, "all flows").line(line(0)));
    Chart {
        title: "Throughput".into(),
        note: "Payload that arrived at receivers, each byte once, without headers.".into(),
        plot: p,
    }
}

fn line(i: usize) -> Line {
    Line::new().shape(LineShape::Hv).color(color(i)).width(1.5)
}

fn flows(o: &Observation) -> Chart {
    let mut p = over_time("Gb/s of payload");
    for f in &o.flows {
        let rates = f.bytes.iter().enumerate().map(|(i, b)| gbps(*b, o.width_ps(i))).collect();
        let name = format!("flow {}: {} to {}", f.flow, f.src, f.dst);
        let thin = Line::new().shape(LineShape::Hv).width(1.0);
        p.add_trace(steps(o, rates, &name).line(thin).opacity(0.6));
    }
    for (i, (name, of)) in [
        ("least under way", (|s| s.min) as fn(&crate::observe::Spread) -> f64),
        ("median under way", |s| s.median),
        ("largest under way", |s| s.max),
    ]
    .into_iter()
    .enumerate()
    {
        let values = o.spreads.iter().map(of).collect();
        p.add_trace(steps(o, values, name).line(line(i).width(2.5)));
    }
    let jain: Vec<f64> = o.spreads.iter().filter(|s| s.flows > 1).map(|s| s.jain).collect();
    let jain = Quantiles::of(jain);
    Chart {
        title: "Throughput of single flows".into(),
        note: format!(
            "{} of {} flows. Least, median and largest are over all flows that were active for \
             the whole interval. Jain's index over intervals: median {:.4}, least {:.4} (1 = all \
             equal).",
            o.flows.len(),
            o.flows_all,
            jain.median,
            jain.min
        ),
        plot: p,
    }
}

fn used(o: &Observation) -> Chart {
    let mut p = over_time("share of the rate");
    for (i, tier) in o.tiers.iter().enumerate() {
        let mean = tier.intervals.iter().map(|t| t.used_mean).collect();
        p.add_trace(steps(o, mean, &format!("{} mean of {}", tier.name, tier.links)).line(line(i)));
        let max = tier.intervals.iter().map(|t| t.used_max).collect();
        let dotted = line(i).dash(DashType::Dot);
        p.add_trace(steps(o, max, &format!("{} busiest", tier.name)).line(dotted));
    }
    Chart {
        title: "Use of links".into(),
        note: "Bytes that left a link, headers and frame gaps included, as a share of its \
               built rate. Busiest: the link that sent most in the interval."
            .into(),
        plot: p,
    }
}

fn queues(o: &Observation) -> Chart {
    let mut p = over_time("bytes");
    for (i, tier) in o.tiers.iter().enumerate() {
        for (name, dash, of) in [
            ("max", DashType::Solid, (|t| t.queue_max) as fn(&crate::observe::TierInterval) -> u64),
            ("p99", DashType::Dash, |t| t.queue_p99),
            ("median", DashType::Dot, |t| t.queue_median),
        ] {
            let values = tier.intervals.iter().map(|t| of(t) as f64).collect();
            let name = format!("{} {name}", tier.name);
            p.add_trace(steps(o, values, &name).line(line(i).dash(dash)));
        }
    }
    Chart {
        title: "Depth of queues".into(),
        note: "Bytes in a port's queue, the packet on the wire included. Max: at any moment of \
               the interval in any port of the tier. Median and 99 %: over the tier's ports at \
               the interval's end."
            .into(),
        plot: p,
    }
}

fn rings(o: &Observation) -> Option<Chart> {
    if o.rings.is_empty() {
        return None;
    }
    let mut p = over_time("bytes");
    for (i, ring) in o.rings.iter().enumerate() {
        let depth = ring.depth_max.iter().map(|b| *b as f64).collect();
        p.add_trace(steps(o, depth, &format!("host{}", ring.host)).line(line(i)));
    }
    Some(Chart {
        title: "Depth of receive rings".into(),
        note: "Largest number of bytes between a host's card and its memory in each interval."
            .into(),
        plot: p,
    })
}

fn losses(o: &Observation) -> Chart {
    let mut p = over_time("packets per interval");
    let mut add = |name: &str, of: &dyn Fn(&crate::observe::Interval) -> u64, i: usize| {
        let values: Vec<f64> = o.intervals.iter().map(|n| of(n) as f64).collect();
        if values.iter().any(|v| *v > 0.0) {
            p.add_trace(steps(o, values, name).line(line(i)));
        }
    };
    add("sent again", &|n| n.retransmitted, 0);
    add("timeouts", &|n| n.timeouts, 1);
    add("marked", &|n| n.marked, 2);
    for (i, reason) in DropReason::ALL.into_iter().enumerate() {
        let name = format!("dropped: {}", reason.name());
        add(&name, &|n| n.drops[reason as usize], 3 + i);
    }
    let none = if p.data().is_empty() { " There were none." } else { "" };
    Chart {
        title: "Drops, retransmissions, marks".into(),
        note: format!("Of packets of any kind, in {} us each.{none}", o.interval_ps as f64 / 1e6),
        plot: p,
    }
}

fn link_maps(o: &Observation) -> Vec<Chart> {
    if o.links.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = o.links.iter().map(|l| l.name.clone()).collect();
    let x: Vec<f64> = (0..o.intervals.len()).map(|i| short_fct(o.middle_us(i))).collect();
    let map = |z: Vec<Vec<f64>>| {
        let left = Axis::new().auto_margin(true);
        let height = (120 + 14 * o.links.len()).clamp(300, 1_200);
        let mut p = plot(layout(axis(TIME, false).range_mode(RangeMode::Normal), left));
        p.set_layout(p.layout().clone().height(height));
        let colors = ColorScale::Palette(ColorScalePalette::Viridis);
        p.add_trace(HeatMap::new(x.clone(), names.clone(), z).color_scale(colors));
        p
    };
    let used = |l: &crate::observe::LinkSeries| {
        let share =
            |(i, b): (usize, &u64)| short(gbps(*b, o.width_ps(i)) * 1e9 / l.bits_per_s as f64);
        l.bytes.iter().enumerate().map(share).collect()
    };
    let queue = |l: &crate::observe::LinkSeries| l.queue_max.iter().map(|b| *b as f64).collect();
    vec![
        Chart {
            title: "Use of single links".into(),
            note: "Share of the built rate. In larger networks: the last links to the \
                   receivers of the flows above."
                .into(),
            plot: map(o.links.iter().map(used).collect()),
        },
        Chart {
            title: "Queues of single links".into(),
            note: "Largest number of bytes in each interval.".into(),
            plot: map(o.links.iter().map(queue).collect()),
        },
    ]
}

fn sorted(o: &Observation) -> Chart {
    let mut p = plot(layout(axis("share of the links", false), axis("share of the rate", false)));
    for (i, tier) in o.tiers.iter().enumerate() {
        let n = tier.used_sorted.len();
        let x: Vec<f64> = (0..n).map(|k| short((k + 1) as f64 / n as f64)).collect();
        let y: Vec<f64> = tier.used_sorted.iter().map(|u| short(*u)).collect();
        p.add_trace(Scatter::new(x, y).mode(Mode::Lines).line(line(i)).name(&tier.name));
    }
    Chart {
        title: "Use of links over the whole time, from idle to busy".into(),
        note: "A flat line: every link of the tier carries the same.".into(),
        plot: p,
    }
}

fn paths(o: &Observation) -> Option<Chart> {
    if o.paths.is_empty() {
        return None;
    }
    let mut p = plot(layout(axis("path (source port)", false), axis("packets", false)));
    let x: Vec<u32> = (0..o.paths.len() as u32).collect();
    p.add_trace(Bar::new(x, o.paths.clone()).name("packets"));
    Some(Chart {
        title: "Packets per path".into(),
        note: "All senders and peers together, from the start of the run.".into(),
        plot: p,
    })
}

fn spines(o: &Observation) -> Option<Chart> {
    if o.spines.is_empty() {
        return None;
    }
    let total: u64 = o.spines.iter().map(|s| s.packets).sum();
    let mut p = plot(layout(Axis::new().auto_margin(true), axis("share of packets", false)));
    let names: Vec<String> = o.spines.iter().map(|s| s.name.clone()).collect();
    let share = |n: u64| n as f64 / total.max(1) as f64;
    let y: Vec<f64> = o.spines.iter().map(|s| short(share(s.packets))).collect();
    p.add_trace(Bar::new(names, y).name("share"));
    Some(Chart {
        title: "Packets per top-tier switch".into(),
        note: format!("Of {total} packets of any kind sent to these switches while recording."),
        plot: p,
    })
}
