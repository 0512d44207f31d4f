//! What each special case of the law of congestion is worth: the rows of `specs/guards.toml` with
//! all of them, then with each turned off, seed by seed.

use crate::batch::{Job, Seeds, run_all};
use crate::report::columns;
use crate::result::RunResult;
use crate::spec::SpecFile;
use crate::stats::standard_error;
use srd_core::guards::Guard;
use std::fmt::Write as _;

/// What the command calls it.
pub const NAME: &str = "guards";

/// A change of a row counts from this part of its floor on, in percent, …
const WORTH_PERCENT: f64 = 1.0;
/// … and from so many standard errors on: with about a thousand cells in the table, one in it may
/// be chance.
const WORTH_ERRORS: f64 = 4.0;
/// Seeds in which a run that does not end is as bad as this many floors.
const UNFINISHED_FLOORS: f64 = 100.0;

/// Runs all rows of `file`, with each guard off in turn, and returns the table. `progress` is told
/// of runs done and of all.
///
/// # Errors
/// What a run refuses.
pub fn table(
    file: &SpecFile,
    seeds: Option<Seeds>,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<String, String> {
    let rounds = 1 + Guard::ALL.len();
    let all = crate::jobs_of(file, seeds).len();
    let run_with = |at: usize, off: Option<Guard>| -> Result<Vec<RunResult>, String> {
        let mut jobs: Vec<Job> = crate::jobs_of(file, seeds);
        for job in &mut jobs {
            job.spec.engine.guards_off.extend(off.map(|g| g.name().to_string()));
        }
        run_all(&jobs, threads, &|done| progress(at * all + done, rounds * all))
    };
    let with = cells_of(file, &run_with(0, None)?);
    let mut rows = Vec::new();
    for (i, &guard) in Guard::ALL.iter().enumerate() {
        rows.push((guard, cells_of(file, &run_with(i + 1, Some(guard))?)));
    }
    Ok(text_of(file, &with, &rows))
}

/// What one run of a row came to.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The row's figure in percent of the floor.
    figure: f64,
    /// Packets sent again, in percent of the data packets.
    copies: f64,
    /// Hash of every delivery.
    hash: u64,
}

/// One row, seed by seed.
type Cell = Vec<Outcome>;

/// One of the two things that are compared.
type Measure = fn(&Outcome) -> f64;

fn cells_of(file: &SpecFile, results: &[RunResult]) -> Vec<Cell> {
    let outcome = |r: &RunResult| Outcome {
        figure: percent(r),
        copies: r.retransmitted_percent(),
        hash: r.hash,
    };
    let of = |case: &str| results.iter().filter(|r| r.spec.case == case).map(outcome).collect();
    file.cases.iter().map(|c| of(&c.case)).collect()
}

/// The figure that the row's name ends with, in percent of the floor.
fn percent(r: &RunResult) -> f64 {
    let mut all = Vec::new();
    for round in &r.fct_ps {
        for (fct, floor) in round.iter().zip(&r.floor_ps) {
            let floors = fct.map_or(UNFINISHED_FLOORS, |ps| ps as f64 / *floor as f64);
            all.push(floors * 100.0);
        }
    }
    all.sort_unstable_by(f64::total_cmp);
    let share = match figure(&r.spec.case) {
        "max" => 1.0,
        "p99.9" => 0.999,
        "p99" => 0.99,
        _ => 0.5,
    };
    let at = ((all.len() as f64 * share).ceil() as usize).clamp(1, all.len().max(1)) - 1;
    // A failed request is none that was quick.
    all.get(at).copied().unwrap_or(0.0) + r.failures as f64 * 100.0
}

fn figure(case: &str) -> &str {
    case.rsplit(", ").next().unwrap_or("")
}

/// Difference without the guard, its seeds one by one.
fn differences(with: &Cell, without: &Cell, of: Measure) -> Vec<f64> {
    with.iter().zip(without).map(|(a, b)| of(b) - of(a)).collect()
}

/// Whether any seed's packets differ.
fn differs(with: &Cell, without: &Cell) -> bool {
    with.iter().zip(without).any(|(a, b)| a.hash != b.hash)
}

/// What a change of so much comes to, beside the noise of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// The same packets left.
    None,
    /// Within the noise, or too little to count.
    Noise(f64),
    /// It is worse without the guard.
    Worse(f64),
    /// It is better without the guard.
    Better(f64),
}

impl Change {
    fn of(with: &Cell, without: &Cell, measure: Measure, error: f64) -> Self {
        if !differs(with, without) {
            return Self::None;
        }
        let all = differences(with, without, measure);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        // The row's own noise, or this cell's if that is larger: one seed decides nothing.
        let error = error.max(standard_error(&all).unwrap_or(0.0) / 2.0);
        let counts = mean.abs() >= WORTH_PERCENT && mean.abs() >= WORTH_ERRORS * error;
        match counts {
            true if mean > 0.0 => Self::Worse(mean),
            true => Self::Better(mean),
            false => Self::Noise(mean),
        }
    }

    fn text(self) -> String {
        let figure = |x: f64| {
            if x.abs() < 100.0 { format!("{x:+.1}") } else { format!("{x:+.0}") }
        };
        match self {
            Self::None => ".".into(),
            Self::Noise(x) => figure(x),
            Self::Worse(x) => format!("{}*", figure(x)),
            Self::Better(x) => format!("{}!", figure(x)),
        }
    }
}

/// The noise of each row: the median, over the guards that change a packet in it, of the standard
/// error of the difference. Most guards matter in few rows, so most differences are chance.
fn noise(with: &[Cell], rows: &[(Guard, Vec<Cell>)], measure: Measure) -> Vec<f64> {
    let of_row = |row: usize| {
        let changed = rows.iter().filter(|(_, cells)| differs(&with[row], &cells[row]));
        let mut errors: Vec<f64> = changed
            .filter_map(|(_, cells)| standard_error(&differences(&with[row], &cells[row], measure)))
            .collect();
        errors.sort_unstable_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or(0.0)
    };
    (0..with.len()).map(of_row).collect()
}

fn text_of(file: &SpecFile, with: &[Cell], rows: &[(Guard, Vec<Cell>)]) -> String {
    let measures: [Measure; 2] = [|o| o.figure, |o| o.copies];
    let errors = measures.map(|m| noise(with, rows, m));
    let mut out = format!(
        "{}: {}\nrows with all special cases, means over seeds: their figure in percent of the \
         floor, and the packets sent again in percent of the data; each with the standard error of \
         a difference\n",
        file.cases[0].name, file.cases[0].title
    );
    let head = ["row", "figure", "% of floor", "+-", "again %", "+-"];
    let mut legend = vec![head.map(String::from).to_vec()];
    for (i, (case, cell)) in file.cases.iter().zip(with).enumerate() {
        let mean = |of: Measure| cell.iter().map(of).sum::<f64>() / cell.len().max(1) as f64;
        let name = case.case.strip_suffix(figure(&case.case)).unwrap_or(&case.case);
        legend.push(vec![
            format!("{:>2}  {}", i + 1, name.trim_end_matches(", ")),
            figure(&case.case).to_string(),
            format!("{:.1}", mean(measures[0])),
            format!("{:.1}", errors[0][i]),
            format!("{:.2}", mean(measures[1])),
            format!("{:.2}", errors[1][i]),
        ]);
    }
    out += &columns(&legend);
    let _ = write!(
        out,
        "\nwithout each special case: change in percent of the row's floor (. no packet differs; * \
         worse, ! better by at least {WORTH_PERCENT} % and {WORTH_ERRORS} standard errors)\n"
    );
    out += &changes(with, rows, measures[0], &errors[0]);
    let _ = write!(
        out,
        "\nwithout each special case: change of the packets sent again, in percent of the data (* \
         more, ! fewer by at least {WORTH_PERCENT} % of the data and {WORTH_ERRORS} standard \
         errors)\n"
    );
    out += &changes(with, rows, measures[1], &errors[1]);
    out + "\n"
}

/// A line per special case: what each row is without it.
fn changes(with: &[Cell], rows: &[(Guard, Vec<Cell>)], measure: Measure, errors: &[f64]) -> String {
    let mut table = vec![vec!["without".to_string()]];
    table[0].extend((1..=with.len()).map(|i| i.to_string()));
    table[0].push("verdict".into());
    for (guard, cells) in rows {
        let changes: Vec<Change> = cells
            .iter()
            .enumerate()
            .map(|(i, cell)| Change::of(&with[i], cell, measure, errors[i]))
            .collect();
        let mut line = vec![guard.name().to_string()];
        line.extend(changes.iter().map(|c| c.text()));
        line.push(verdict(&changes).into());
        table.push(line);
    }
    columns(&table)
}

fn verdict(changes: &[Change]) -> &'static str {
    let any = |f: fn(&Change) -> bool| changes.iter().any(f);
    let (pays, costs) =
        (any(|c| matches!(c, Change::Worse(_))), any(|c| matches!(c, Change::Better(_))));
    match (pays, costs) {
        (true, true) => "pays, and costs",
        (true, false) => "pays",
        (false, true) => "costs",
        (false, false) if any(|c| *c != Change::None) => "no row",
        (false, false) => "no packet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of four seeds, and half of them as copies.
    fn cell(figures: [f64; 4], hash: u64) -> Cell {
        let outcome = |(i, &figure)| Outcome { figure, copies: figure / 2.0, hash: hash + i };
        (0..).zip(&figures).map(outcome).collect()
    }

    #[test]
    fn one_seed_in_four_decides_nothing() {
        let with = cell([100.0; 4], 0);
        let all = cell([103.0; 4], 9);
        let one = cell([112.0, 100.0, 100.0, 100.0], 9);
        let of = |a, b, error| Change::of(a, b, |o| o.figure, error);
        assert_eq!(of(&with, &all, 0.2), Change::Worse(3.0));
        assert_eq!(of(&all, &with, 0.2), Change::Better(-3.0));
        assert_eq!(of(&with, &one, 0.2), Change::Noise(3.0));
        assert_eq!(of(&with, &all, 1.0), Change::Noise(3.0));
        assert_eq!(of(&with, &with, 0.2), Change::None);
    }

    /// A case that saves no time may save copies, and the reverse.
    #[test]
    fn copies_are_judged_by_themselves() {
        let (with, without) = (cell([100.0; 4], 0), cell([104.0; 4], 9));
        assert_eq!(Change::of(&with, &without, |o| o.copies, 0.2), Change::Worse(2.0));
        let rows = [(Guard::Alone, vec![with.clone()]), (Guard::Lossy, vec![without])];
        let text = changes(&[with], &rows, |o| o.copies, &[0.2]);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[1][1..], [".", "no", "packet"], "{text}");
        assert_eq!(lines[2][1..], ["+2.0*", "pays"], "{text}");
    }

    #[test]
    fn a_guard_is_turned_off_by_its_name() {
        let file = SpecFile::load("guards", true).unwrap();
        let case = file.cases.iter().find(|c| c.case.starts_with("incast cold")).unwrap();
        let run = |off: &[&str]| {
            let mut spec = case.clone();
            spec.engine.guards_off = off.iter().map(|g| (*g).to_string()).collect();
            crate::run(&spec, &file.folder, 1)
        };
        let (with, without) = (run(&[]).unwrap(), run(&["quick-start"]).unwrap());
        assert_ne!(with.hash, without.hash, "fewer bytes in the first window");
        assert!(run(&["quick-end"]).unwrap_err().contains("the guards are alone, explore"));
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_names_its_figure() {
        let file = SpecFile::load("guards", false).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for case in &file.cases {
            assert!(names.insert(&case.case), "results are found by the name: {}", case.case);
            assert!(["max", "p99", "p99.9"].contains(&figure(&case.case)), "{}", case.case);
        }
    }
}
