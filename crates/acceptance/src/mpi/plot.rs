//! Bar charts over time, drawn with characters.

/// Height of a plot in lines.
const LINES: usize = 3;
/// The eight steps within a line.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One contender's values, one column each; `top` has the full height. The name is on the first
/// line. A value above 0 is drawn at least as the smallest step, to differ from 0.
pub fn bars(name: &str, values: &[u64], top: u64) -> String {
    let height = |value: u64| {
        let whole = value as f64 / top.max(1) as f64 * (LINES * 8) as f64;
        (whole.round() as usize).max(usize::from(value > 0))
    };
    let mut text = String::new();
    for line in (0..LINES).rev() {
        let row: String =
            values.iter().map(|v| EIGHTHS[height(*v).saturating_sub(line * 8).min(8)]).collect();
        let label = if line == LINES - 1 { name } else { "" };
        text += format!("{label:<20} {row}").trim_end();
        text.push('\n');
    }
    text
}

/// The axis below: thick during faults, given as `(from, to, word)` in columns.
pub fn axis(columns: usize, broken: &[(usize, usize, &str)]) -> String {
    let within = |c: usize| broken.iter().any(|(from, to, _)| (*from..*to).contains(&c));
    let line: String = (0..columns).map(|c| if within(c) { '━' } else { '─' }).collect();
    let mut words = String::new();
    for (from, _, word) in broken {
        let gap = from.saturating_sub(words.chars().count());
        words += &format!("{:gap$}{word} ", "");
    }
    format!("{:20} {line}\n{:20} {}\n", "", "", words.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_high_as_its_value() {
        let text = bars("x", &[24, 12, 1, 0], 24);
        let rows: Vec<Vec<char>> = text.lines().map(|l| l.chars().skip(21).collect()).collect();
        assert_eq!(rows, [vec!['█'], vec!['█', '▄'], vec!['█', '█', '▁']]);
    }

    #[test]
    fn small_values_differ_from_zero() {
        assert!(bars("x", &[1, 10_000], 10_000).lines().last().is_some_and(|l| l.contains('▁')));
    }

    #[test]
    fn faults_are_marked_on_the_axis() {
        let text = axis(8, &[(1, 3, "a"), (5, 6, "b")]);
        let rows: Vec<&str> = text.lines().map(|l| l.trim_start()).collect();
        assert_eq!(rows, ["─━━──━──", "a   b"]);
    }
}
