//! A plot as SVG, which browsers and code hosts show without a library: lines over two logarithmic
//! axes.

use super::results::size_text;

/// Size of the picture, and of the margins around the axes, in pixels.
const SIZE: (f64, f64) = (720.0, 420.0);
const MARGIN: (f64, f64) = (70.0, 50.0);
/// Width of the legend on the right.
const LEGEND: f64 = 150.0;
/// Colours that colour-blind readers can distinguish.
const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#666666"];

/// A line of the plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Message size in bytes, and time in ms; both above 0.
    pub points: Vec<(u64, f64)>,
    /// Index of the colour; `None`: black.
    pub color: Option<usize>,
    /// Whether it is drawn with dashes.
    pub dashed: bool,
}

/// A logarithmic axis from `low` to `high`, `length` pixels long.
struct Axis {
    low: f64,
    high: f64,
    length: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, length: f64) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, 0f64);
        for v in values {
            (low, high) = (low.min(v), high.max(v));
        }
        (low > 0.0 && high.is_finite()).then(|| Self { low, high: high.max(low * 1.01), length })
    }

    fn at(&self, value: f64) -> f64 {
        (value / self.low).ln() / (self.high / self.low).ln() * self.length
    }
}

/// Draws the lines.
pub fn svg(title: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|s| s.points.iter().copied());
    let (width, height) = (SIZE.0 - MARGIN.0 - LEGEND, SIZE.1 - 2.0 * MARGIN.1);
    let x = Axis::of(all().map(|(bytes, _)| bytes as f64), width);
    let y = Axis::of(all().map(|(_, ms)| ms), height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"20\" font-size=\"14\">{}</text>\n",
        SIZE.0,
        SIZE.1,
        MARGIN.0,
        escaped(title)
    );
    let (Some(x), Some(y)) = (x, y) else { return out + "</svg>\n" };
    let place = |bytes: f64, ms: f64| (MARGIN.0 + x.at(bytes), MARGIN.1 + height - y.at(ms));
    let mut line = |text: String| out += &(text + "\n");
    let mut sizes: Vec<u64> = all().map(|(bytes, _)| bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for bytes in sizes {
        let (px, bottom) = (place(bytes as f64, y.low).0, MARGIN.1 + height);
        line(format!(
            "<path d=\"M{px:.1} {:.1}V{bottom:.1}\" stroke=\"#dddddd\"/><text x=\"{px:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            MARGIN.1,
            bottom + 18.0,
            size_text(bytes)
        ));
    }
    for ms in ticks(y.low, y.high) {
        let py = place(x.low, ms).1;
        line(format!(
            "<path d=\"M{:.1} {py:.1}h{width:.1}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            MARGIN.0,
            MARGIN.0 - 6.0,
            py + 4.0
        ));
    }
    for (i, s) in series.iter().enumerate() {
        let color = s.color.map_or("black", |c| COLORS[c % COLORS.len()]);
        let dash = if s.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let points: Vec<String> = s
            .points
            .iter()
            .map(|(bytes, ms)| {
                let (px, py) = place(*bytes as f64, *ms);
                format!("{px:.1},{py:.1}")
            })
            .collect();
        let style = format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}");
        line(format!("<polyline points=\"{}\" {style}/>", points.join(" ")));
        let (lx, ly) = (SIZE.0 - LEGEND + 10.0, MARGIN.1 + 18.0 * i as f64);
        line(format!(
            "<path d=\"M{lx} {ly}h24\" {style}/><text x=\"{}\" y=\"{}\">{}</text>",
            lx + 30.0,
            ly + 4.0,
            escaped(&s.name)
        ));
    }
    out + "</svg>\n"
}

/// 1, 2 and 5 times powers of ten between two values.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let steps = powers.flat_map(|p| [1.0, 2.0, 5.0].map(|s| s * 10f64.powi(p)));
    steps.filter(|t| (low * 0.999..=high * 1.001).contains(t)).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: &[(u64, f64)]) -> Series {
        Series { name: "a<b".into(), points: points.to_vec(), color: Some(1), dashed: true }
    }

    /// Coordinates of the lines.
    fn points(text: &str) -> Vec<Vec<(f64, f64)>> {
        let of = |l: &str| {
            let list = l.strip_prefix("<polyline points=\"")?.split('"').next()?;
            let pair = |p: &str| {
                let (x, y) = p.split_once(',')?;
                Some((x.parse().ok()?, y.parse().ok()?))
            };
            list.split(' ').map(pair).collect::<Option<Vec<_>>>()
        };
        text.lines().filter_map(of).collect()
    }

    #[test]
    fn equal_ratios_are_equally_long_and_larger_times_higher() {
        let text = svg("t", &[series(&[(1_000, 1.0), (10_000, 10.0), (100_000, 100.0)])]);
        let p = &points(&text)[0];
        assert!((p[1].0 - p[0].0 - (p[2].0 - p[1].0)).abs() < 0.2, "{p:?}");
        assert!((p[0].1 - p[1].1 - (p[1].1 - p[2].1)).abs() < 0.2, "{p:?}");
        assert!(p[0].1 > p[1].1 && p[0].0 < p[1].0, "{p:?}");
        assert!(text.contains("a&lt;b") && text.contains("50 ms") && text.contains("dasharray"));
        assert!(p.iter().all(|(x, y)| (0.0..SIZE.0).contains(x) && (0.0..SIZE.1).contains(y)));
    }

    #[test]
    fn one_point_and_none_are_drawn_within_the_picture() {
        let p = points(&svg("t", &[series(&[(8192, 3.0)])]));
        assert!(p[0][0].0.is_finite() && p[0][0].1.is_finite(), "{p:?}");
        assert!(svg("t", &[]).ends_with("</svg>\n"));
        assert_eq!(points(&svg("t", &[])), Vec::<Vec<(f64, f64)>>::new());
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(ticks(1.5, 60.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
    }
}
