//! `lab`: the reduced set of the simulator's experiments against its committed tables.
//!
//! Times in them are virtual and follow from the seeds, so they are compared digit by digit; speed
//! and memory are left out.

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
/// Most differing rows that are printed.
const SHOWN_MAX: usize = 60;
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
