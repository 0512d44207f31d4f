//! Figures as data: axes, panels and series, drawn as SVG.

mod scale;
mod svg;

pub use scale::Scale;
pub use svg::escape;

/// A point with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Least and largest value over seeds, if they differ from `y`.
    pub spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, spread: None }
    }
}

/// How the points of a series are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// By lines, with a mark at each.
    Marked,
    /// By lines.
    Plain,
    /// By dashed lines: bounds and ideals.
    Dashed,
    /// By horizontal steps: each value holds until the next point.
    Steps,
    /// Not at all: a dot each.
    Dots,
    /// As steps, thin: one of many.
    Thin,
}

/// A line of a panel.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend; empty: it has no entry.
    pub name: String,
    /// Points, ascending in `x`.
    pub points: Vec<Point>,
    /// How they are joined.
    pub stroke: Stroke,
    /// Number of its colour; equal in all panels.
    pub color: usize,
}

/// A panel: a plot with axes of its own, of the same scales.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Heading; empty if there is one panel only.
    pub title: String,
    /// Its lines.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub title: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Whether it includes zero (not if it is logarithmic).
    pub from_zero: bool,
    /// Names of places, in place of numbers.
    pub names: Option<Vec<(f64, String)>>,
}

impl Axis {
    /// An axis of numbers.
    pub fn new(title: &str, log: bool) -> Self {
        Self { title: title.into(), log, from_zero: true, names: None }
    }
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Heading.
    pub title: String,
    /// What is drawn, in full sentences.
    pub note: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// One panel, or several side by side.
    pub panels: Vec<Panel>,
}

impl Figure {
    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.panels.iter().all(|p| p.series.iter().all(|s| s.points.is_empty()))
    }

    /// The figure as an SVG document of its own.
    pub fn svg(&self) -> String {
        svg::draw(self)
    }

    /// All values on an axis.
    fn values(&self, of: fn(&Point) -> [f64; 3]) -> Vec<f64> {
        let points = self.panels.iter().flat_map(|p| &p.series).flat_map(|s| &s.points);
        points.flat_map(of).filter(|v| v.is_finite()).collect()
    }
}
