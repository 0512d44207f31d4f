//! `paper-map`: writes `docs/paper-map.md` from its template and the tables in `docs/results`.
//!
//! The template is the document with figures left open: `{{fig2 | 2 MB, SRD | max us}}` (see
//! [`figure`]). A figure may name the range that the published claim gives. A row may say `holds`
//! only if each of its figures lies in its range, and must say `in part` if one does not.

mod figure;

use crate::{
    Result,
    args::Args,
    process::root,
    tables::{Row, rows},
};
use figure::Figure;
use std::{collections::BTreeMap, fs};

/// What people edit.
const TEMPLATE: &str = "docs/paper-map.md.in";
/// What is made of it.
const DOCUMENT: &str = "docs/paper-map.md";
/// Where the tables lie.
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

/// Compares the document with what the template and the tables give, or writes it.
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
        println!("{DOCUMENT}: every figure is the one in {TABLES}");
        return Ok(());
    };
    Err(format!(
        "{DOCUMENT}:{at} is not what {TEMPLATE} and {TABLES} give; \
         `cargo xtask paper-map --update` writes it"
    ))
}

/// Number of the first line that differs, from 1.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let len = a.lines().count().max(b.lines().count());
    (0..len).find(|at| a.lines().nth(*at) != b.lines().nth(*at)).map(|at| at + 1)
}

/// Tables of each experiment named.
type Tables<'a> = BTreeMap<&'a str, Vec<Row<'a>>>;

/// Texts between `{{` and `}}`.
fn slots(template: &str) -> impl Iterator<Item = &str> {
    template.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(slot, _)| slot)
}

/// Experiments that figures are taken from.
fn names(template: &str) -> impl Iterator<Item = &str> {
    slots(template).filter_map(|s| s.split('|').next()).map(str::trim)
}

/// The template with its figures.
fn render(template: &str, tables: &Tables<'_>) -> Result<String> {
    let mut out = String::new();
    for (at, line) in template.lines().enumerate() {
        let fail = |e: String| format!("{TEMPLATE}:{}: {e}", at + 1);
        out += &render_line(line, tables).map_err(fail)?;
        out.push('\n');
    }
    Ok(out)
}

/// What became of a row's ranges.
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

/// A row's status says what its figures say.
fn check_status(line: &str, judged: &Judged) -> Result {
    let status = line.trim_matches('|').split(" | ").nth(2).unwrap_or_default().trim();
    match status {
        "holds" if !judged.outside.is_empty() => {
            Err(format!("says `holds`, but out of range is {}", judged.outside.join("; ")))
        }
        "in part" if judged.ranges > 0 && judged.outside.is_empty() => {
            Err("says `in part`, and every figure lies in its range".into())
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
    fn figures_stand_where_they_were_left_open() {
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
        assert!(row("in part", "within ..40").unwrap_err().contains("lies in its range"));
        assert!(line("| P1 | it says | in part | a | b | not run |").is_ok(), "no range, no proof");
        assert!(row("differs", "within 20..").is_ok(), "what differs may lie anywhere");
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some(2));
    }
}
