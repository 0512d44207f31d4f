//! `paper-map`: generates `docs/paper-map.md` from its template and the tables in `docs/results`.
//!
//! The template is the document with placeholders for figures: `{{fig2 | 2 MB, SRD | max us}}` (see
//! [`figure`]). A figure may give the range of the published claim. A row may say `holds` only if
//! each of its figures is in its range, and must say `in part` if one is not.

mod figure;

use crate::{
    Result,
    args::Args,
    process::root,
    tables::{Row, rows},
};
use figure::Figure;
use std::{collections::BTreeMap, fs};

/// The template, which is edited by hand.
const TEMPLATE: &str = "docs/paper-map.md.in";
/// The generated document.
const DOCUMENT: &str = "docs/paper-map.md";
/// Folder of the tables.
const TABLES: &str = "docs/results";
/// First line of the document.
const NOTE: &str =
    "<!-- Written by `cargo xtask paper-map --update` from paper-map.md.in: edit that. -->\n";

/// `paper-map [--update]`.
pub fn run_command(args: &mut Args) -> Result {
    let update = args.flag("--update");
    args.end()?;
    compare(update)
}

/// Compares the document with the generated text, or writes it.
pub fn compare(update: bool) -> Result {
    let read = |path: &str| {
        fs::read_to_string(root().join(path)).map_err(|e| format!("cannot read {path}: {e}"))
    };
    let template = read(TEMPLATE)?;
    let mut texts = BTreeMap::new();
    for name in names(&template) {
        texts.insert(name.to_string(), read(&format!("{TABLES}/{name}.txt"))?);
    }
    let tables = texts.iter().map(|(name, text)| (name.as_str(), rows(text))).collect();
    let new = format!("{NOTE}{}", render(&template, &tables)?);
    if update {
        fs::write(root().join(DOCUMENT), new).map_err(|e| format!("cannot write: {e}"))?;
        println!("wrote {DOCUMENT}");
        return Ok(());
    }
    let old = read(DOCUMENT)?;
    let Some(at) = first_difference(&old, &new) else {
        println!("{DOCUMENT}: every figure agrees with {TABLES}");
        return Ok(());
    };
    Err(format!(
        "{DOCUMENT}:{at} differs from the text generated from {TEMPLATE} and {TABLES}; \
         `cargo xtask paper-map --update` writes it"
    ))
}

/// Number of the first differing line, from 1.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let len = a.lines().count().max(b.lines().count());
    (0..len).find(|at| a.lines().nth(*at) != b.lines().nth(*at)).map(|at| at + 1)
}

/// Tables by experiment.
type Tables<'a> = BTreeMap<&'a str, Vec<Row<'a>>>;

/// Texts between `{{` and `}}`.
fn slots(template: &str) -> impl Iterator<Item = &str> {
    template.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(slot, _)| slot)
}

/// Experiments that the figures refer to.
fn names(template: &str) -> impl Iterator<Item = &str> {
    slots(template).filter_map(|s| s.split('|').next()).map(str::trim)
}

/// The template with its figures filled in.
fn render(template: &str, tables: &Tables<'_>) -> Result<String> {
    let mut out = String::new();
    for (at, line) in template.lines().enumerate() {
        let fail = |e: String| format!("{TEMPLATE}:{}: {e}", at + 1);
        out += &render_line(line, tables).map_err(fail)?;
        out.push('\n');
    }
    Ok(out)
}

/// Result of the ranges in a row.
#[derive(Default)]
struct Judged {
    ranges: usize,
    outside: Vec<String>,
}

fn render_line(line: &str, tables: &Tables<'_>) -> Result<String> {
    let mut out = String::new();
    let mut judged = Judged::default();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let (slot, after) = after.split_once("}}").ok_or("`{{` without `}}`")?;
        let figure = Figure::parse(slot)?;
        let rows = tables.get(figure.experiment).map_or(&[][..], Vec::as_slice);
        let shown = figure.show(rows).map_err(|e| format!("{{{{{slot}}}}}: {e}"))?;
        out += before;
        out += &shown.text;
        if let Some(inside) = shown.inside {
            judged.ranges += 1;
            if !inside {
                judged.outside.push(format!("{} ({slot})", shown.text));
            }
        }
        rest = after;
    }
    out += rest;
    check_status(&out, &judged)?;
    Ok(out)
}

/// Checks that the status of a row agrees with its figures.
fn check_status(line: &str, judged: &Judged) -> Result {
    let status = line.trim_matches('|').split(" | ").nth(2).unwrap_or_default().trim();
    match status {
        "holds" if !judged.outside.is_empty() => Err(format!(
            "says `holds`, but these figures are out of range: {}",
            judged.outside.join("; ")
        )),
        "in part" if judged.ranges > 0 && judged.outside.is_empty() => {
            Err("says `in part`, but every figure is in its range".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fig: a title\npackets with up to 4096 B\n\
        case      max us  med us\nSRD, few    10.0     9.0\nTCP, few    40.0    12.0\n";

    fn line(text: &str) -> Result<String> {
        render_line(text, &BTreeMap::from([("fig", rows(TEXT))]))
    }

    #[test]
    fn figures_replace_their_placeholders() {
        let got = line("SRD {{fig | SRD, few | max us}} us, TCP {{fig | TCP, few | max us}} us");
        assert_eq!(got.unwrap(), "SRD 10.0 us, TCP 40.0 us");
        assert!(line("{{fig | SRD, many | max us}}").unwrap_err().contains("SRD, many"));
        assert!(line("{{fig | SRD, few | max ms}}").unwrap_err().contains("max ms"));
        assert!(line("{{other | SRD, few | max us}}").is_err());
        assert!(line("{{fig | SRD, few | max us").is_err());
    }

    #[test]
    fn a_row_holds_only_within_its_ranges() {
        let row = |status: &str, range: &str| {
            line(&format!(
                "| P1 | it says | {status} | a | b | {{{{fig | * | max us | {range}}}}} |"
            ))
        };
        assert_eq!(
            row("holds", "within 10..40").unwrap(),
            "| P1 | it says | holds | a | b | 10.0 to 40.0 |"
        );
        assert!(row("holds", "within 20..").unwrap_err().contains("out of range"));
        assert!(row("in part", "within 20..").is_ok());
        assert!(row("in part", "within ..40").unwrap_err().contains("is in its range"));
        assert!(line("| P1 | it says | in part | a | b | not run |").is_ok(), "no range, no proof");
        assert!(row("differs", "within 20..").is_ok(), "a claim that differs may have any figures");
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some(2));
    }
}
