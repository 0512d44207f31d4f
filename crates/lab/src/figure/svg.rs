//! Drawing of figures. Everything has a place of its own: headings above the panels, titles of axes
//! beside them, the legend below; only lines are within the panels.

use super::{Axis, Figure, Panel, Scale, Series, Stroke};
use std::fmt::Write as _;

/// Width of a figure.
const WIDTH: f64 = 1000.0;
/// Height of a panel with its lines.
const HEIGHT: f64 = 330.0;
/// Most panels beside each other.
const BESIDE_MAX: usize = 3;
/// Left of a panel: ticks and the title of the axis.
const LEFT: f64 = 92.0;
/// Between a panel and the next.
const RIGHT: f64 = 38.0;
/// Above a panel: its heading.
const ABOVE: f64 = 30.0;
/// Below a panel: ticks and the title of the axis.
const BELOW: f64 = 56.0;
/// Line of a legend.
const LEGEND_LINE: f64 = 22.0;
/// Estimated width of a character of 13 px; those of common fonts are narrower.
const CHARACTER: f64 = 7.3;
/// Colours that colour-blind readers can distinguish.
const COLORS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933",
    "#882255", "#88ccee",
];

/// Text with the characters replaced that mean something in HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A panel's place.
struct Frame {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

pub fn draw(figure: &Figure) -> String {
    let x = Scale::new(&figure.x, &figure.values(|p| [p.x, p.x, p.x]));
    let y = Scale::new(
        &figure.y,
        &figure.values(|p| {
            let (low, high) = p.spread.unwrap_or((p.y, p.y));
            [p.y, low, high]
        }),
    );
    let beside = figure.panels.len().clamp(1, BESIDE_MAX);
    let rows = figure.panels.len().div_ceil(beside);
    let width = WIDTH / beside as f64;
    let row_height = ABOVE + HEIGHT + BELOW;
    let legend = legend(figure);
    let legend_top = rows as f64 * row_height;
    let height = legend_top + legend.lines as f64 * LEGEND_LINE + 6.0;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" height=\"{height:.0}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" role=\"img\">\n<title>{}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"#fff\"/>\n",
        escape(&figure.title)
    );
    for (i, panel) in figure.panels.iter().enumerate() {
        let frame = Frame {
            x: (i % beside) as f64 * width + LEFT,
            y: (i / beside) as f64 * row_height + ABOVE,
            width: width - LEFT - RIGHT,
            height: HEIGHT,
        };
        axes(&mut out, &frame, figure, &x, &y);
        if !panel.title.is_empty() {
            let middle = frame.x + frame.width / 2.0;
            let title = shortened(&panel.title, frame.width);
            text(&mut out, middle, frame.y - 10.0, "middle", "font-weight=\"bold\"", &title);
        }
        lines(&mut out, &frame, panel, &x, &y);
    }
    let _ = write!(out, "<g transform=\"translate(0 {legend_top:.0})\">\n{}</g>\n", legend.text);
    out.push_str("</svg>\n");
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, more: &str, words: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{}</text>",
        escape(words)
    );
}

/// Text that fits into a width.
fn shortened(words: &str, width: f64) -> String {
    let most = (width / CHARACTER) as usize;
    if words.chars().count() <= most {
        return words.into();
    }
    words.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Frame, grid, ticks and titles of a panel.
fn axes(out: &mut String, f: &Frame, figure: &Figure, x: &Scale, y: &Scale) {
    let (right, bottom) = (f.x + f.width, f.y + f.height);
    for (value, label) in &y.ticks {
        let at = bottom - y.place(*value) * f.height;
        let _ = writeln!(out, "<path d=\"M{:.1} {at:.1}H{right:.1}\" stroke=\"#e3e3e3\"/>", f.x);
        text(out, f.x - 6.0, at + 4.5, "end", "", label);
    }
    let mut free_from = f64::NEG_INFINITY;
    for (value, label) in &x.ticks {
        let at = f.x + x.place(*value) * f.width;
        let _ = writeln!(out, "<path d=\"M{at:.1} {bottom:.1}v5\" stroke=\"#555\"/>");
        // A label that would touch its neighbour is left out; its tick stays.
        let half = label.chars().count() as f64 * CHARACTER / 2.0;
        if at - half >= free_from {
            text(out, at, bottom + 19.0, "middle", "", label);
            free_from = at + half + 4.0;
        }
    }
    let _ = writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" \
         stroke=\"#555\"/>",
        f.x, f.y, f.width, f.height
    );
    let title = shortened(&titled(&figure.x), f.width + LEFT);
    text(out, f.x + f.width / 2.0, bottom + 42.0, "middle", "", &title);
    let (tx, ty) = (f.x - LEFT + 16.0, f.y + f.height / 2.0);
    let turned = format!("transform=\"rotate(-90 {tx:.1} {ty:.1})\"");
    text(out, tx, ty, "middle", &turned, &shortened(&titled(&figure.y), f.height + ABOVE));
}

fn titled(axis: &Axis) -> String {
    if axis.log { format!("{} (log)", axis.title) } else { axis.title.clone() }
}

fn color(series: &Series) -> &'static str {
    COLORS[series.color % COLORS.len()]
}

fn lines(out: &mut String, f: &Frame, panel: &Panel, x: &Scale, y: &Scale) {
    let place =
        |px: f64, py: f64| (f.x + x.place(px) * f.width, f.y + f.height - y.place(py) * f.height);
    for series in &panel.series {
        let color = color(series);
        let _ = writeln!(out, "<g class=\"series\" stroke=\"{color}\" fill=\"none\">");
        for p in &series.points {
            let Some((low, high)) = p.spread.filter(|(low, high)| low != high) else { continue };
            let ((at, bottom), (_, top)) = (place(p.x, low), place(p.x, high));
            let _ = writeln!(
                out,
                "<path d=\"M{at:.1} {bottom:.1}V{top:.1}M{:.1} {bottom:.1}h8M{:.1} {top:.1}h8\" \
                 stroke-width=\"1\"/>",
                at - 4.0,
                at - 4.0
            );
        }
        path(out, series, &place);
        if matches!(series.stroke, Stroke::Marked | Stroke::Dots) {
            let radius = if series.stroke == Stroke::Dots { 2.8 } else { 3.2 };
            for p in &series.points {
                let (cx, cy) = place(p.x, p.y);
                let _ = writeln!(
                    out,
                    "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius}\" fill=\"{color}\" \
                     stroke=\"none\"/>"
                );
            }
        }
        out.push_str("</g>\n");
    }
}

/// Attributes of a line.
fn pen(stroke: Stroke) -> &'static str {
    match stroke {
        Stroke::Dashed => "stroke-width=\"2\" stroke-dasharray=\"7 5\"",
        Stroke::Thin => "stroke-width=\"1\" stroke-opacity=\"0.55\"",
        _ => "stroke-width=\"2\"",
    }
}

fn path(out: &mut String, series: &Series, place: &dyn Fn(f64, f64) -> (f64, f64)) {
    if series.stroke == Stroke::Dots || series.points.is_empty() {
        return;
    }
    let mut d = String::new();
    for (i, p) in series.points.iter().enumerate() {
        let (x, y) = place(p.x, p.y);
        let _ = match (i, series.stroke) {
            (0, _) => write!(d, "M{x:.1} {y:.1}"),
            (_, Stroke::Steps | Stroke::Thin) => write!(d, "H{x:.1}V{y:.1}"),
            _ => write!(d, "L{x:.1} {y:.1}"),
        };
    }
    let _ = writeln!(out, "<path d=\"{d}\" {}/>", pen(series.stroke));
}

/// A drawn legend.
struct Legend {
    text: String,
    lines: usize,
}

/// One entry for each name of all panels.
fn legend(figure: &Figure) -> Legend {
    let mut entries: Vec<&Series> = Vec::new();
    for series in figure.panels.iter().flat_map(|p| &p.series) {
        if !series.name.is_empty() && entries.iter().all(|e| e.name != series.name) {
            entries.push(series);
        }
    }
    let (mut out, mut x, mut line) = (String::new(), LEFT, 0);
    for entry in &entries {
        let name = shortened(&entry.name, WIDTH - 2.0 * LEFT);
        let width = 34.0 + name.chars().count() as f64 * CHARACTER + 20.0;
        if x + width > WIDTH && x > LEFT {
            (x, line) = (LEFT, line + 1);
        }
        let y = f64::from(line) * LEGEND_LINE + 12.0;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {y:.1}h26\" stroke=\"{}\" {}/>",
            color(entry),
            pen(entry.stroke)
        );
        text(&mut out, x + 33.0, y + 4.5, "start", "", &name);
        x += width;
    }
    let lines = if entries.is_empty() { 0 } else { line as usize + 1 };
    Legend { text: out, lines }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    fn figure(panels: usize, series: usize) -> Figure {
        let line = |i: usize| Series {
            name: format!("a rather long name of the series number {i} & more"),
            points: vec![(1.0, 1.0 + i as f64).into(), (2.0, 2.0).into()],
            stroke: Stroke::Marked,
            color: i,
        };
        let panel = |i: usize| Panel {
            title: format!("panel {i}"),
            series: (0..series).map(line).collect(),
        };
        Figure {
            title: "t".into(),
            note: String::new(),
            x: Axis::new("x", false),
            y: Axis::new("y", true),
            panels: (0..panels).map(panel).collect(),
        }
    }

    /// Numbers that follow a text.
    fn numbers(svg: &str, before: &str) -> Vec<f64> {
        let number = |part: &str| {
            part.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap().parse().unwrap()
        };
        svg.split(before).skip(1).map(number).collect()
    }

    #[test]
    fn all_lines_and_one_entry_of_the_legend_for_each_name_are_drawn() {
        let svg = figure(2, 3).svg();
        assert_eq!(svg.matches("class=\"series\"").count(), 6);
        assert_eq!(svg.matches("series number 1 &amp; more").count(), 1);
        assert_eq!(svg.matches("font-weight=\"bold\"").count(), 2);
        // Everything is within the picture.
        let height = numbers(&svg, "<rect width=\"1000\" height=\"")[0];
        for (before, most) in [("<text x=\"", 1000.0), ("\" y=\"", height)] {
            assert!(numbers(&svg, before).iter().all(|v| (0.0..=most).contains(v)));
        }
    }

    #[test]
    fn labels_that_would_touch_are_left_out() {
        let mut f = figure(3, 1);
        f.x.names =
            Some((0..40).map(|i| (1.0 + f64::from(i) / 40.0, "a long label".into())).collect());
        let labels = f.svg().matches("a long label").count();
        assert!((3..60).contains(&labels), "{labels}");
    }
}
