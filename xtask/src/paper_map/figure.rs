//! One figure in the template: `{{EXPERIMENT | CASES | COLUMN | OPTION…}}`.
//!
//! CASES are names of cases, separated by `;`, in which `*` matches any text. COLUMN is the name of
//! a column; `+N` after it selects the Nth column to its right. Several values are shown as "lowest
//! to highest". Options:
//!
//! - `each`: all values, in the order of CASES; `least`, `most`: the lowest, the highest.
//! - `over CASES`: divided by the value of that case, or pairwise by those of as many cases.
//! - `change`: shows a quotient as a change in percent.
//! - `x FACTOR`: multiplies; `digits N`: N digits after the decimal point.
//! - `under CASES : COLUMN`: the number of values that are smaller than those there, pairwise.
//! - `within LOW..HIGH`: the range given by the claim; either bound may be omitted.

use crate::{Result, tables::Row};

/// A parsed figure.
pub struct Figure<'a> {
    /// File of the tables, without its extension.
    pub experiment: &'a str,
    cases: &'a str,
    column: &'a str,
    pick: Pick,
    over: Option<&'a str>,
    under: Option<(&'a str, &'a str)>,
    change: bool,
    factor: f64,
    digits: Option<usize>,
    range: Option<(f64, f64)>,
}

/// Which of several values are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pick {
    /// The lowest and the highest.
    Span,
    Each,
    Least,
    Most,
}

/// The result of a figure.
#[derive(Debug, PartialEq)]
pub struct Shown {
    /// The text for the document.
    pub text: String,
    /// Whether all values are in the range; `None` if there is no range.
    pub inside: Option<bool>,
}

/// A value with the number of digits of its table cell.
#[derive(Clone, Copy)]
struct Value {
    number: f64,
    digits: usize,
}

impl<'a> Figure<'a> {
    /// Parses the text between the braces.
    pub fn parse(slot: &'a str) -> Result<Self> {
        let fail = |what: &str| format!("{{{{{slot}}}}}: {what}");
        let mut parts = slot.split('|').map(str::trim);
        let mut next = || parts.next().filter(|p| !p.is_empty());
        let (Some(experiment), Some(cases), Some(column)) = (next(), next(), next()) else {
            return Err(fail("must be EXPERIMENT | CASES | COLUMN"));
        };
        let mut figure = Self {
            experiment,
            cases,
            column,
            pick: Pick::Span,
            over: None,
            under: None,
            change: false,
            factor: 1.0,
            digits: None,
            range: None,
        };
        for option in parts {
            figure.option(option).ok_or_else(|| fail(&format!("cannot use `{option}`")))?;
        }
        Ok(figure)
    }

    /// Parses an option; `None` if it is unknown.
    fn option(&mut self, option: &'a str) -> Option<()> {
        let (word, rest) = option.split_once(' ').unwrap_or((option, ""));
        match word {
            "each" => self.pick = Pick::Each,
            "least" => self.pick = Pick::Least,
            "most" => self.pick = Pick::Most,
            "change" => self.change = true,
            "over" => self.over = Some(rest),
            "x" => self.factor = rest.parse().ok()?,
            "digits" => self.digits = Some(rest.parse().ok()?),
            "under" => {
                let (cases, column) = rest.rsplit_once(" : ")?;
                self.under = Some((cases, column));
            }
            "within" => {
                let (low, high) = rest.split_once("..")?;
                let end = |text: &str, none: f64| match text.trim() {
                    "" => Some(none),
                    number => number.parse().ok(),
                };
                self.range = Some((end(low, f64::NEG_INFINITY)?, end(high, f64::INFINITY)?));
            }
            _ => return None,
        }
        Some(())
    }

    /// Computes the figure from these rows.
    pub fn show(&self, rows: &[Row<'_>]) -> Result<Shown> {
        let mut values = values(rows, self.cases, self.column)?;
        if let Some((cases, column)) = self.under {
            let others = paired(values.len(), cases, self::values(rows, cases, column)?)?;
            let under = values.iter().zip(&others).filter(|(a, b)| a.number < b.number).count();
            let text = format!("{under} of {}", values.len());
            return Ok(Shown { text, inside: Some(under == values.len()) });
        }
        if let Some(cases) = self.over {
            let others = paired(values.len(), cases, self::values(rows, cases, self.column)?)?;
            for (value, other) in values.iter_mut().zip(&others) {
                value.number /= other.number;
            }
        }
        for value in &mut values {
            value.number *= self.factor;
            if self.change {
                value.number = (value.number - 1.0) * 100.0;
            }
            value.digits = self.digits.unwrap_or(value.digits);
        }
        let by_size = |a: &&Value, b: &&Value| a.number.total_cmp(&b.number);
        let least = *values.iter().min_by(by_size).ok_or("no value")?;
        let most = *values.iter().max_by(by_size).ok_or("no value")?;
        let shown = match self.pick {
            Pick::Each => values,
            Pick::Least => vec![least],
            Pick::Most => vec![most],
            Pick::Span => vec![least, most],
        };
        let inside =
            self.range.map(|(low, high)| shown.iter().all(|v| v.number >= low && v.number <= high));
        let mut texts: Vec<String> = shown.iter().map(|v| self.text_of(*v)).collect();
        let between = if self.pick == Pick::Each { ", " } else { " to " };
        if self.pick == Pick::Span {
            texts.dedup();
        }
        Ok(Shown { text: texts.join(between), inside })
    }

    fn text_of(&self, value: Value) -> String {
        let text = format!("{:.*}", value.digits, value.number.abs());
        let sign = match () {
            () if text.chars().all(|c| "0.".contains(c)) => "",
            () if value.number < 0.0 => "− ",
            () if self.change => "+ ",
            () => "",
        };
        format!("{sign}{text}{}", if self.change { " %" } else { "" })
    }
}

/// Repeats a single value to `len` values; otherwise requires `len` values.
fn paired(len: usize, cases: &str, mut values: Vec<Value>) -> Result<Vec<Value>> {
    if values.len() == 1 {
        values = vec![values[0]; len];
    }
    if values.len() == len {
        Ok(values)
    } else {
        Err(format!("{len} values cannot be paired with {} of `{cases}`", values.len()))
    }
}

/// The values of a column, for each case of the first table that has both.
fn values(rows: &[Row<'_>], cases: &str, column: &str) -> Result<Vec<Value>> {
    let beside = column.rsplit_once(" +").and_then(|(c, n)| Some((c, n.parse().ok()?)));
    let (column, skip): (&str, usize) = beside.unwrap_or((column, 0));
    let mut out = Vec::new();
    for pattern in cases.split(';').map(str::trim) {
        let mut seen: Vec<&str> = Vec::new();
        for row in rows.iter().filter(|r| matches(pattern, r.name[2])) {
            let at = row.cells.iter().position(|(name, _)| *name == column);
            let cell = at.and_then(|at| row.cells.get(at + skip));
            let Some((_, text)) = cell.filter(|_| !seen.contains(&row.name[2])) else { continue };
            seen.push(row.name[2]);
            // The column does not apply to this case.
            if *text == "-" {
                continue;
            }
            let number = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
            let digits = text.split_once('.').map_or(0, |(_, after)| after.len());
            out.push(Value { number, digits });
        }
        if seen.is_empty() {
            return Err(format!("no case `{pattern}` has a column `{column}`"));
        }
    }
    Ok(out)
}

/// Whether a name matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    if rest.is_empty() {
        return true;
    }
    loop {
        if matches(rest, name) {
            return true;
        }
        let mut chars = name.chars();
        if chars.next().is_none() {
            return false;
        }
        name = chars.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::rows;

    const TEXT: &str = "fig: a title\npackets with up to 4096 B\n\
        case        max us   +-\n8 KB, SRD     10.0  0.1\n8 KB, TCP     40.0  0.2\n\
        2 MB, SRD     20.5  0.3\n2 MB, TCP     20.0  0.4\n\n\
        another\ncase        mean\n8 KB, SRD     11\n8 KB, TCP      9\n";

    fn show(slot: &str) -> Result<Shown> {
        Figure::parse(slot)?.show(&rows(TEXT))
    }

    fn text(slot: &str) -> String {
        show(slot).unwrap().text
    }

    #[test]
    fn one_value_or_several() {
        assert_eq!(text("fig | 2 MB, SRD | max us"), "20.5");
        assert_eq!(text("fig | *, SRD | max us"), "10.0 to 20.5");
        assert_eq!(text("fig | *, SRD | max us | most"), "20.5");
        assert_eq!(text("fig | *, SRD | max us | least | digits 0"), "10");
        assert_eq!(text("fig | 2 MB, TCP; 8 KB, * | max us | each"), "20.0, 10.0, 40.0");
        assert_eq!(text("fig | 8 KB, SRD | mean"), "11", "the second table's column");
        assert_eq!(text("fig | 8 KB, TCP | max us +1"), "0.2", "the column beside it");
    }

    #[test]
    fn quotients_changes_and_units() {
        assert_eq!(text("fig | 8 KB, TCP | max us | over 8 KB, SRD | digits 1"), "4.0");
        assert_eq!(text("fig | *, TCP | max us | over *, SRD | digits 2"), "0.98 to 4.00");
        assert_eq!(text("fig | 8 KB, SRD | max us | over 8 KB, TCP | change | digits 0"), "− 75 %");
        assert_eq!(
            text("fig | 8 KB, TCP | max us | over 8 KB, SRD | change | digits 0"),
            "+ 300 %"
        );
        assert_eq!(text("fig | 8 KB, TCP | max us | over 8 KB, TCP | change | digits 0"), "0 %");
        assert_eq!(text("fig | 8 KB, TCP | max us | x 0.001 | digits 2"), "0.04");
        assert!(
            show("fig | * | max us | over *, SRD")
                .unwrap_err()
                .contains("4 values cannot be paired with 2")
        );
    }

    #[test]
    fn ranges_apply_to_the_shown_values() {
        let inside = |slot: &str| show(slot).unwrap().inside;
        assert_eq!(inside("fig | *, SRD | max us"), None);
        assert_eq!(inside("fig | *, SRD | max us | within 10..20"), Some(false));
        assert_eq!(inside("fig | *, SRD | max us | least | within 10..20"), Some(true));
        assert_eq!(inside("fig | *, SRD | max us | within ..20.5"), Some(true));
        assert_eq!(inside("fig | *, SRD | max us | within 10.1.."), Some(false));
    }

    #[test]
    fn counts_pairs_with_a_smaller_value() {
        let both =
            show("fig | 8 KB, SRD; 2 MB, SRD | max us | under 8 KB, TCP; 2 MB, TCP : max us");
        assert_eq!(both, Ok(Shown { text: "1 of 2".into(), inside: Some(false) }));
        let one = show("fig | 8 KB, SRD | max us | under 8 KB, SRD : mean").unwrap();
        assert_eq!(one, Shown { text: "1 of 1".into(), inside: Some(true) });
    }

    #[test]
    fn invalid_parts_are_named() {
        assert!(Figure::parse("fig | case").err().unwrap().contains("COLUMN"));
        for option in ["whithin 1..2", "within 1", "within a..b", "x y", "digits -1", "under a b"] {
            let slot = format!("fig | a | b | {option}");
            assert!(Figure::parse(&slot).err().unwrap().contains(option), "{option}");
        }
    }

    #[test]
    fn stars_match_any_text() {
        for (pattern, name, want) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("*b", "abc", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
