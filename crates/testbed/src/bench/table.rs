//! Statistics, and tables to print them.

use crate::error::Result;

/// The smallest of `values` that at least a share of `share` do not exceed. Sorts `values`.
pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    let at = (share * (values.len() - 1) as f64).round() as usize;
    values[at.min(values.len() - 1)]
}

/// The largest value; 0 if there are none.
pub fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The mean; 0 if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Prints a table: the first column left-aligned, the others right-aligned.
///
/// # Errors
/// The reader of the output has exited.
pub fn print(head: &[&str], rows: &[Vec<String>]) -> Result {
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    for line in &lines {
        let cell = |(i, text): (usize, &String)| match i {
            0 => format!("{text:<w$}", w = width(i)),
            _ => format!("  {text:>w$}", w = width(i)),
        };
        let text: String = line.iter().enumerate().map(cell).collect();
        crate::say(text.trim_end())?;
    }
    Ok(())
}

/// CPU time of all processors since boot, in jiffies: idle, total.
fn jiffies() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or("");
    let n: Vec<u64> = line.split_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
    // Idle and iowait; the first eight columns do not overlap.
    let idle = n.get(3).unwrap_or(&0) + n.get(4).unwrap_or(&0);
    (idle, n.iter().take(8).sum())
}

/// Measures how busy the machine is: results of a busy machine are doubtful.
#[derive(Debug)]
pub struct Busy(u64, u64);

impl Busy {
    /// Starts measuring.
    pub fn start() -> Self {
        let (idle, all) = jiffies();
        Self(idle, all)
    }

    /// Share of CPU time used since the start, 0 to 1.
    pub fn share(&self) -> f64 {
        let (idle, all) = jiffies();
        let all = all.saturating_sub(self.1).max(1);
        1.0 - idle.saturating_sub(self.0) as f64 / all as f64
    }

    /// Summary below a table.
    pub fn text(&self) -> String {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("?").to_owned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        format!(
            "processors {:.0} % busy ({cpus} of them, everything on the machine), load {load}",
            self.share() * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut v: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert!((percentile(&mut v, 0.5) - 51.0).abs() < 1e-9);
        assert!((percentile(&mut v, 0.99) - 100.0).abs() < 1e-9);
        assert!((percentile(&mut v, 1.0) - 101.0).abs() < 1e-9);
        assert!(percentile(&mut [], 0.5).abs() < 1e-9);
    }
}
