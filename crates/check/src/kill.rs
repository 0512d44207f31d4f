//! Planted bugs: how many seeds it takes to detect each.

use crate::class::{Class, Classes};
use crate::cli::{Trouble, say};
use crate::hostile::{HOSTILE_EACH, JOINED_EACH};
use crate::runner::{Plan, run_many};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Markers around the table in a document.
const BEGIN: &str = "<!-- kill-table: made by `srd-check kill-table` -->";
/// Areas whose bugs only hostile worlds detect.
const HOSTILE: [&str; 2] = ["hostile peers", "sizes of packets"];
/// Areas whose bugs only crowded worlds detect.
const CROWDS: &str = "crowds";
/// See [`CROWDS`].
const FULL_BUFFERS: &str = "full buffers";
/// Area whose bugs only worlds with devices over two rails detect.
const RAILS: &str = "rails";
/// Area whose bugs only worlds with devices of several shards detect.
const SHARDS: &str = "shards";
/// Area whose bugs only sealed worlds detect.
#[cfg(feature = "sealed")]
const SEALS: &str = "seals";
const END: &str = "<!-- end of kill-table -->";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Table {
    /// Independent blocks of seeds per bug.
    pub blocks: u64,
    /// Seeds after which a block ends without detection.
    pub limit: u64,
    /// Numbers of the bugs to measure; empty = all.
    pub only: Vec<u32>,
    /// Document in which the table is replaced; with `only`, the rows of these bugs.
    pub write: Option<String>,
    /// Worker threads.
    pub threads: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { blocks: 20, limit: 1000, only: Vec::new(), write: None, threads: 1 }
    }
}

/// Activates bug `n` (0 = none).
///
/// # Errors
/// In a build without planted bugs, or for an unknown number.
pub fn plant(n: u32) -> Result<(), String> {
    #[cfg(planted_bugs)]
    {
        let found = n == 0 || bugs().iter().any(|b| b.0 == n);
        let core = srd_core::planted::all().len() as u32;
        srd_core::planted::plant(if found && n > core { 0 } else { n })?;
        #[cfg(feature = "sealed")]
        srd_seal::planted::plant(n);
        Ok(())
    }
    #[cfg(not(planted_bugs))]
    {
        Err(format!(
            "bug {n} is not in this program: build it with RUSTFLAGS=\"--cfg planted_bugs\""
        ))
    }
}

/// Number, name and area of every planted bug of this build.
pub fn bugs() -> Vec<(u32, &'static str, &'static str)> {
    #[cfg(planted_bugs)]
    {
        let all = srd_core::planted::all();
        #[cfg(feature = "sealed")]
        let all = [all, srd_seal::planted::all()].concat();
        all
    }
    #[cfg(not(planted_bugs))]
    {
        Vec::new()
    }
}

/// The classes whose worlds can show bugs of this area, and one of how many seeds has one of them.
fn worlds_of(area: &str) -> (Classes, u64) {
    #[cfg(feature = "sealed")]
    if area == SEALS {
        return (Classes::SEALED, crate::sealed::SEALED_EACH);
    }
    if area == CROWDS {
        return (Classes::CROWD.without(Class::CrowdHard), crate::crowd::CROWD_EACH);
    }
    if area == FULL_BUFFERS {
        return (Classes::CROWD.without(Class::Crowd), crate::crowd::CROWD_EACH);
    }
    if area == RAILS {
        return (Classes::default().with(Class::RailDown), JOINED_EACH);
    }
    if area == SHARDS {
        return (Classes::ALL, crate::shards::SHARDED_EACH);
    }
    if HOSTILE.contains(&area) { (Classes::HOSTILE, HOSTILE_EACH) } else { (Classes::ALL, 1) }
}

/// Measures every bug and prints the table. `Ok(false)`: a block did not detect its bug.
///
/// # Errors
/// In a build without planted bugs; if the document cannot be read or written, or has no markers;
/// or when `stop` was set.
pub fn run(table: &Table, stop: &AtomicBool) -> Result<bool, Trouble> {
    plant(0)?;
    let mut rows = format!(
        "| bug | area | noticed by | seeds until noticed: median | worst of {} |\n\
         |---|---|---|---|---|\n",
        table.blocks
    );
    let mut all = true;
    let known = |n: u32| bugs().iter().any(|b| b.0 == n);
    if let Some(n) = table.only.iter().find(|&&n| !known(n)) {
        return Err(Trouble::Usage(format!("--only {n}: there is no such bug; `bugs` lists them")));
    }
    let wanted = |b: &(u32, &str, &str)| table.only.is_empty() || table.only.contains(&b.0);
    for (n, name, area) in bugs().into_iter().filter(wanted) {
        plant(n)?;
        // Other seeds cannot detect these bugs and are skipped.
        let (only, each) = worlds_of(area);
        let limit = each * table.limit;
        let (mut seeds, mut oracles) = (Vec::new(), BTreeMap::new());
        for block in 0..table.blocks {
            // Blocks are far apart, and each bug has its own range of seeds.
            let first = (u64::from(n) << 40) + (block << 20);
            let plan = Plan { only, ..Plan::new(first, limit, table.threads) };
            let sum = run_many(&Plan { stop_at_failure: true, ..plan }, stop);
            if stop.load(Ordering::Relaxed) {
                return Err(Trouble::Failed("stopped; no table was written".into()));
            }
            match sum.failures.first() {
                Some(f) => {
                    seeds.push(f.seed - first + 1);
                    *oracles.entry(f.violation.oracle).or_insert(0) += 1;
                }
                None => {
                    all = false;
                    seeds.push(u64::MAX);
                }
            }
        }
        seeds.sort_unstable();
        let count = |n: u64| if n == u64::MAX { "never".to_owned() } else { n.to_string() };
        let (median, worst) = (seeds[(seeds.len() - 1) / 2], seeds[seeds.len() - 1]);
        let most = oracles.iter().max_by_key(|(_, n)| **n);
        let by = most.map_or_else(|| "-".to_owned(), |(o, _)| format!("{o:?}"));
        let row = format!("| {n} {name} | {area} | {by} | {} | {} |", count(median), count(worst));
        say(&row)?;
        let _ = writeln!(rows, "{row}");
    }
    plant(0)?;
    if let Some(file) = &table.write {
        let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?;
        let text =
            replace(&text, &rows).ok_or_else(|| format!("{file} lacks `{BEGIN}`, `{END}`"))?;
        std::fs::write(file, text).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    Ok(all)
}

/// `text` with `rows` between the marks. Rows that stood there stay for bugs that `rows` leaves
/// out.
fn replace(text: &str, rows: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (old, after) = rest.split_once(END)?;
    let number = |row: &str| row.strip_prefix("| ")?.split(' ').next()?.parse::<u32>().ok();
    let all = |text: &str| -> Vec<(u32, String)> {
        text.lines().filter_map(|row| Some((number(row)?, row.to_owned()))).collect()
    };
    let mut table = BTreeMap::from_iter(all(old));
    table.extend(all(rows));
    let head = rows.lines().take_while(|row| number(row).is_none());
    let rows: Vec<&str> = head.chain(table.values().map(String::as_str)).collect();
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", rows.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_between_its_marks() {
        let text = format!("a\n{BEGIN}\n\n| bug |\n|---|\n| 2 old |\n| 10 kept |\n{END}\nb");
        let new = replace(&text, "| bug |\n|---|\n| 2 new |\n| 3 more |\n").unwrap();
        let table = "| bug |\n|---|\n| 2 new |\n| 3 more |\n| 10 kept |";
        assert_eq!(new, format!("a\n{BEGIN}\n\n{table}\n\n{END}\nb"));
        assert!(replace("no marks", "").is_none());
    }

    #[test]
    #[cfg(not(planted_bugs))]
    fn a_program_without_bugs_refuses_to_have_one() {
        assert!(plant(1).unwrap_err().contains("planted_bugs"));
        assert!(run(&Table::default(), &AtomicBool::new(false)).is_err() && bugs().is_empty());
    }
}
