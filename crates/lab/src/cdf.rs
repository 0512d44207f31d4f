//! Flow sizes drawn from a cumulative distribution, which a file gives as points.
//!
//! A line of the file is a size in bytes and the share of flows of at most that size, from 0 to 1;
//! `#` begins a comment. Both columns are non-decreasing, and the last share is 1. Between two
//! points the share grows linearly. A first share above 0 is the share of flows of exactly the
//! first size.

use std::path::Path;

/// Most points of a file.
const POINTS_MAX: usize = 100_000;
/// Largest size in bytes, given by the addresses of the lab's receivers.
const BYTES_MAX: f64 = (1u64 << 38) as f64;

/// Distributions embedded in the program: name and text.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("web-search", include_str!("../data/web-search.cdf")),
    ("data-mining", include_str!("../data/data-mining.cdf")),
];

/// A cumulative distribution of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeCdf {
    /// Size in bytes and share, both non-decreasing.
    points: Vec<(f64, f64)>,
}

impl SizeCdf {
    /// Reads an embedded distribution by name, or a file in `folder`.
    ///
    /// # Errors
    /// The text says what is wrong, and in which line.
    pub fn load(name: &str, folder: &Path) -> Result<Self, String> {
        if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Self::parse(text);
        }
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            let names: Vec<&str> = EMBEDDED.iter().map(|(n, _)| *n).collect();
            format!("{}: {e}; give a file of sizes, or one of {}", path.display(), names.join(", "))
        })?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text says what is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let point =
                point_of(line, points.last()).map_err(|e| format!("line {}: {e}", n + 1))?;
            points.push(point);
            if points.len() > POINTS_MAX {
                return Err(format!("more than {POINTS_MAX} points: give fewer"));
            }
        }
        match points.last() {
            None => Err("no point: give lines of a size in bytes and a share from 0 to 1".into()),
            Some((bytes, _)) if *bytes < 1.0 => {
                Err("every size is 0: flows need at least one byte".into())
            }
            Some((_, share)) if *share != 1.0 => Err(format!(
                "the last share is {share}: it must be 1, the share of flows of at most the \
                 largest size"
            )),
            Some(_) => Ok(Self { points }),
        }
    }

    /// The quantile of `u` (0 to 1) in whole bytes, at least 1.
    pub fn bytes_at(&self, u: f64) -> u64 {
        let at = self.points.partition_point(|(_, share)| *share < u);
        let (bytes, share) = self.points[at.min(self.points.len() - 1)];
        let size = match at.checked_sub(1).map(|below| self.points[below]) {
            Some((from, least)) if share > least => {
                from + (bytes - from) * ((u - least) / (share - least))
            }
            _ => bytes,
        };
        (size.round() as u64).max(1)
    }

    /// Mean size in bytes.
    pub fn bytes_mean(&self) -> f64 {
        let (first, share) = self.points[0];
        let parts = self.points.windows(2).map(|w| (w[1].1 - w[0].1) * (w[0].0 + w[1].0) / 2.0);
        (first * share + parts.sum::<f64>()).max(1.0)
    }
}

/// Parses one line: a size and a share, neither below the previous point's.
fn point_of(line: &str, before: Option<&(f64, f64)>) -> Result<(f64, f64), String> {
    let mut words = line.split_whitespace();
    let (Some(bytes), Some(share), None) = (words.next(), words.next(), words.next()) else {
        return Err(format!("`{line}` is not a size in bytes and a share: give two numbers"));
    };
    let number = |word: &str| word.parse::<f64>().map_err(|_| format!("`{word}` is not a number"));
    let (bytes, share) = (number(bytes)?, number(share)?);
    if !(0.0..=BYTES_MAX).contains(&bytes) {
        return Err(format!("the size {bytes} is not from 0 to {BYTES_MAX} bytes"));
    }
    if !(0.0..=1.0).contains(&share) {
        return Err(format!("the share {share} is not from 0 to 1 (percent? divide by 100)"));
    }
    match before {
        Some((least, _)) if bytes < *least => {
            Err(format!("the size {bytes} is below {least}, the one before: sort the lines"))
        }
        Some((_, least)) if share < *least => Err(format!(
            "the share {share} is below {least}, the one before: shares are cumulative"
        )),
        _ => Ok((bytes, share)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lie_evenly_between_points() {
        let cdf = SizeCdf::parse("# sizes\n0 0\n100 0.5 # half\n\n1100 1\n").unwrap();
        let sizes = [0.0, 0.25, 0.5, 0.75, 1.0].map(|u| cdf.bytes_at(u));
        assert_eq!(sizes, [1, 50, 100, 600, 1100]);
        assert_eq!(cdf.bytes_mean(), 0.5 * 50.0 + 0.5 * 600.0);
        let one = SizeCdf::parse("1500 1").unwrap();
        assert_eq!((one.bytes_at(0.0), one.bytes_at(0.99), one.bytes_mean()), (1500, 1500, 1500.0));
        let steps = SizeCdf::parse("10 0.5\n20 0.5\n20 1").unwrap();
        assert_eq!([0.2, 0.5, 0.51, 1.0].map(|u| steps.bytes_at(u)), [10, 10, 20, 20]);
    }

    #[test]
    fn the_committed_distributions_have_the_means_that_papers_name() {
        let mean = |name| SizeCdf::load(name, Path::new(".")).unwrap().bytes_mean();
        // Sums of trapezoids of the points, by hand.
        assert!((mean("web-search") - 1_711_250.0).abs() < 1.0, "{}", mean("web-search"));
        assert!((mean("data-mining") - 12_657_690.0).abs() < 1_000.0, "{}", mean("data-mining"));
    }

    #[test]
    fn what_is_no_distribution_is_refused_with_its_line() {
        for (text, part) in [
            ("", "no point"),
            ("# nothing", "no point"),
            ("0 0\n0 1", "every size is 0"),
            ("10 0.5\n20 0.9", "the last share is 0.9"),
            ("10 0\n20 50\n30 100", "line 2: the share 50 is not from 0 to 1 (percent?"),
            ("20 0.5\n10 1", "line 2: the size 10 is below 20"),
            ("10 0.5\n20 0.4", "line 2: the share 0.4 is below 0.5"),
            ("10", "line 1: `10` is not a size"),
            ("10 0.5 3", "line 1: `10 0.5 3` is not"),
            ("ten 1", "line 1: `ten` is not a number"),
            ("-1 0", "the size -1 is not from 0"),
            ("1e300 1", "is not from 0 to"),
            ("nan 1", "the size NaN"),
            ("1 nan", "the share NaN"),
        ] {
            let e = SizeCdf::parse(text).unwrap_err();
            assert!(e.contains(part), "{text:?}: {e}");
        }
        let e = SizeCdf::load("web-serch", Path::new(".")).unwrap_err();
        assert!(e.contains("web-serch") && e.contains("one of web-search, data-mining"), "{e}");
    }
}
