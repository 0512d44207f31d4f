//! `lab`: the reduced set of the simulator's experiments against its committed tables.
//!
//! Times in them are virtual and follow from the seeds, so they are compared digit by digit; speed
//! and memory are left out.

use crate::{
    Result,
    args::Args,
    process::{command, output, root},
    tools,
};
use std::fs;

/// The tables of the last accepted state.
const TABLES: &str = "docs/results/quick.txt";
/// Most differing rows that are printed.
const SHOWN_MAX: usize = 60;
/// How an experiment's line of explanation begins: packets ran, or flows were placed without.
const EXPLANATIONS: [&str; 2] = ["packets with up to ", "flows placed without packets"];
/// The column in which every change shows.
const HASH: &str = "hash";

/// `lab [--update]`.
pub fn run_command(args: &mut Args) -> Result {
    let update = args.flag("--update");
    args.end()?;
    compare(update)
}

/// Runs the reduced set and compares it with its tables, or rewrites them.
pub fn compare(update: bool) -> Result {
    let program = tools::build_release("srd-cli", "srd")?.to_string_lossy().into_owned();
    let line = ["lab", "run", "all", "--quick", "--no-cost"];
    println!("$ srd {}", line.join(" "));
    let new = output(&mut command(&program, &line))?;
    let path = root().join(TABLES);
    if update {
        fs::write(&path, &new).map_err(|e| format!("cannot write {TABLES}: {e}"))?;
        println!("wrote {TABLES}");
        return Ok(());
    }
    let old = fs::read_to_string(&path).map_err(|e| format!("cannot read {TABLES}: {e}"))?;
    let (before, after) = (rows(&old), rows(&new));
    if old == new {
        println!("{} rows, all as in {TABLES}", after.len());
        return Ok(());
    }
    let changes = changes(&before, &after);
    changes.iter().take(SHOWN_MAX).for_each(|c| println!("{c}"));
    if changes.len() > SHOWN_MAX {
        println!("… and {} more", changes.len() - SHOWN_MAX);
    }
    Err(format!(
        "{} of {} rows are not those of {TABLES}. If that is meant, `cargo xtask lab --update` \
         writes them anew: look at `git diff --word-diff {TABLES}` and say why in the commit",
        changes.len(),
        after.len()
    ))
}

/// A line of a table.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    /// Experiment, headline of the table, first cell.
    name: [&'a str; 3],
    /// Names of the columns with what stands in them.
    cells: Vec<(&'a str, &'a str)>,
}

/// Cells of a line: two spaces or more lie between them.
fn split(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// All lines of all tables. A table has a headline and the names of its columns and ends with an
/// empty line; an experiment's first one has the experiment's name and a line of explanation.
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut out = Vec::new();
    let mut experiment = "";
    for table in text.split("\n\n") {
        let mut lines = table.lines().filter(|l| !l.is_empty()).peekable();
        let Some(mut headline) = lines.next() else { continue };
        let explains = |l: &&str| EXPLANATIONS.iter().any(|e| l.starts_with(e));
        if lines.peek().is_some_and(explains) {
            lines.next();
            experiment = headline.split_once(':').map_or(headline, |(name, _)| name);
            headline = "";
        }
        let head = lines.next().map(split).unwrap_or_default();
        for line in lines {
            let cells = split(line);
            let name = [experiment, headline, cells.first().copied().unwrap_or("")];
            let cells = if cells.len() == head.len() {
                head.iter().copied().zip(cells).skip(1).collect()
            } else {
                vec![("line", line)]
            };
            out.push(Row { name, cells });
        }
    }
    out
}

/// A line for each row that is new, gone or different.
fn changes(old: &[Row], new: &[Row]) -> Vec<String> {
    let title = |r: &Row| match r.name {
        [experiment, "", case] => format!("{experiment}, {case}"),
        [experiment, table, case] => format!("{experiment}, {case} ({table:.30})"),
    };
    let mut out = Vec::new();
    for was in old {
        match new.iter().find(|r| r.name == was.name) {
            None => out.push(format!("{}: gone", title(was))),
            Some(is) if is.cells != was.cells => {
                let cells = differing(was, is);
                out.push(format!("{}: {cells}", title(was)));
            }
            Some(_) => {}
        }
    }
    let added = new.iter().filter(|r| old.iter().all(|o| o.name != r.name));
    out.extend(added.map(|r| format!("{}: new", title(r))));
    out
}

/// Which cells of a row are different; the hash only if nothing else is.
fn differing(old: &Row, new: &Row) -> String {
    let of = |row: &Row, column: &str| {
        let cell = row.cells.iter().find(|(name, _)| *name == column);
        cell.map_or_else(|| "-".to_string(), |(_, value)| (*value).to_string())
    };
    let mut columns: Vec<&str> = old.cells.iter().map(|(name, _)| *name).collect();
    columns.extend(new.cells.iter().map(|(name, _)| *name).filter(|n| of(old, n) == "-"));
    let changed = columns.iter().map(|c| (*c, of(old, c), of(new, c))).filter(|(_, a, b)| a != b);
    let text: Vec<String> = changed
        .filter(|(column, ..)| *column != HASH)
        .map(|(column, a, b)| format!("{column} {a} -> {b}"))
        .collect();
    if text.is_empty() { "other packets, same figures (hash)".into() } else { text.join(" · ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "fig2: bursty\npackets with up to 4096 B of payload\n\
        case   max us  hash\n8 KB, SRD    46.1  95bb\n8 KB, TCP    41.1  7b46\n\n\
        against the ideal\ncase   ideal us\n8 KB, SRD    31.5\n\n\
        fig3: more\npackets with up to 1 B\ncase   max us  hash\n8 KB, SRD    46.1  95bb\n\n";

    #[test]
    fn tables_become_rows_with_names() {
        let rows = rows(OLD);
        let names: Vec<[&str; 3]> = rows.iter().map(|r| r.name).collect();
        let want = [
            ["fig2", "", "8 KB, SRD"],
            ["fig2", "", "8 KB, TCP"],
            ["fig2", "against the ideal", "8 KB, SRD"],
            ["fig3", "", "8 KB, SRD"],
        ];
        assert_eq!(names, want);
        assert_eq!(rows[1].cells, [("max us", "41.1"), ("hash", "7b46")]);
    }

    #[test]
    fn says_what_is_different() {
        let new = OLD
            .replacen("46.1  95bb", "47.0  95bc", 1)
            .replace("31.5", "31.6")
            .replace("8 KB, TCP    41.1  7b46", "9 KB, TCP    41.1  7b46")
            .replace("more\n", "more!\n")
            .replace("46.1  95bb", "46.1  0000");
        let got = changes(&rows(OLD), &rows(&new));
        let want = [
            "fig2, 8 KB, SRD: max us 46.1 -> 47.0",
            "fig2, 8 KB, TCP: gone",
            "fig2, 8 KB, SRD (against the ideal): ideal us 31.5 -> 31.6",
            "fig3, 8 KB, SRD: other packets, same figures (hash)",
            "fig2, 9 KB, TCP: new",
        ];
        assert_eq!(got, want);
        assert!(changes(&rows(OLD), &rows(OLD)).is_empty());
    }
}
