//! `lab`: compares the simulator's reduced set of experiments with its committed tables.
//!
//! Times in the tables are virtual and determined by seeds, so they must be equal digit by digit;
//! speed and memory are not included.

use crate::{
    Result,
    args::Args,
    process::{command, output, root},
    tables::{Row, rows},
    tools,
};
use std::fs;

/// The tables of the last accepted state.
const TABLES: &str = "docs/results/quick.txt";
/// Largest number of differing rows that are printed.
const SHOWN_MAX: usize = 60;
/// Column that differs whenever anything differs.
const HASH: &str = "hash";

/// `lab [--update]`.
pub fn run_command(args: &mut Args) -> Result {
    let update = args.flag("--update");
    args.end()?;
    compare(update)
}

/// Runs the reduced set and compares it with the tables, or rewrites them.
pub fn compare(update: bool) -> Result {
    let program = tools::build_tool()?.to_string_lossy().into_owned();
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
        "{} of {} rows differ from {TABLES}. If this is intended, run `cargo xtask lab --update`, \
         check `git diff --word-diff {TABLES}`, and explain the change in the commit",
        changes.len(),
        after.len()
    ))
}

/// One line for each row that is new, missing or different.
fn changes(old: &[Row], new: &[Row]) -> Vec<String> {
    let title = |r: &Row| match r.name {
        [experiment, "", case] => format!("{experiment}, {case}"),
        [experiment, table, case] => format!("{experiment}, {case} ({table:.30})"),
    };
    let mut out = Vec::new();
    for was in old {
        match new.iter().find(|r| r.name == was.name) {
            None => out.push(format!("{}: missing", title(was))),
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

/// The differing cells of a row; the hash only if no other cell differs.
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
    fn lists_the_differences() {
        let new = OLD
            .replacen("46.1  95bb", "47.0  95bc", 1)
            .replace("31.5", "31.6")
            .replace("8 KB, TCP    41.1  7b46", "9 KB, TCP    41.1  7b46")
            .replace("more\n", "more!\n")
            .replace("46.1  95bb", "46.1  0000");
        let got = changes(&rows(OLD), &rows(&new));
        let want = [
            "fig2, 8 KB, SRD: max us 46.1 -> 47.0",
            "fig2, 8 KB, TCP: missing",
            "fig2, 8 KB, SRD (against the ideal): ideal us 31.5 -> 31.6",
            "fig3, 8 KB, SRD: other packets, same figures (hash)",
            "fig2, 9 KB, TCP: new",
        ];
        assert_eq!(got, want);
        assert!(changes(&rows(OLD), &rows(OLD)).is_empty());
    }
}
