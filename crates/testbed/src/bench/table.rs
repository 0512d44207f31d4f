//! Statistics, and tables to print them.

pub use super::conditions::Busy;

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

/// Quartiles of values, of which the middle one is the median, as text: `1.02/1.05/1.31`.
pub fn quartiles(values: &[f64]) -> String {
    let mut values = values.to_vec();
    [0.25, 0.5, 0.75].map(|share| format!("{:.2}", percentile(&mut values, share))).join("/")
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

    #[test]
    fn quartiles_do_not_depend_on_the_order() {
        assert_eq!(quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]), "2.00/3.00/4.00");
        assert_eq!(quartiles(&[1.5]), "1.50/1.50/1.50");
    }
}
