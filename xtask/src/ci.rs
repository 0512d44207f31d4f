//! `ci`: all checks in order, with a table of results and durations.

use crate::{
    Result, args::Args, check, demo, fuzz, instructions, lab, package, paper_map, report, steps,
    suites, tidy, tools, verbs,
};
use std::time::{Duration, Instant};

type Step = (&'static str, fn() -> Result);

/// Cheap and informative steps first.
const STEPS: [Step; 15] = [
    ("lockfile", steps::lockfile),
    ("fmt", steps::fmt_check),
    ("tidy", tidy::run),
    ("paper-map", || paper_map::compare(false)),
    ("report-age", report::age),
    ("lint", steps::lint),
    ("test", || steps::test_all(false)),
    ("models", steps::models),
    ("demo", demo::gate),
    ("lab", || lab::compare(false)),
    ("acceptance", suites::short),
    ("package-check", package::check),
    ("bench-instructions", || instructions::compare(false)),
    ("check-seeds", check::gate),
    ("fuzz", fuzz::gate),
];

/// Result of a step.
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    Skipped,
    NotRun,
}

/// `ci [--skip STEP]...`.
pub fn run(args: &mut Args) -> Result {
    let skip = args.values("--skip")?;
    args.end()?;
    if let Some(unknown) = skip.iter().find(|s| !STEPS.iter().any(|(name, _)| name == s)) {
        return Err(format!("--skip {unknown}: there is no such step"));
    }
    let mut error = None;
    let mut table = Vec::new();
    for (name, step) in STEPS {
        let outcome = if error.is_some() {
            Outcome::NotRun
        } else if skip.iter().any(|s| s == name) {
            Outcome::Skipped
        } else {
            println!("\n== {name} ==");
            let start = Instant::now();
            match step() {
                Ok(()) => Outcome::Passed(start.elapsed()),
                Err(e) => {
                    eprintln!("xtask: {e}");
                    error = Some(format!("step `{name}` failed; `cargo xtask {name}` repeats it"));
                    Outcome::Failed(start.elapsed())
                }
            }
        };
        table.push((name, outcome));
    }
    print_table(&table);
    error.map_or(Ok(()), Err)
}

/// `prebuild`: builds the programs of the steps after the tests. Half of the time of the tests is
/// spent waiting, so that a run of this command beside them, at the lowest priority, costs little.
pub fn prebuild() -> Result {
    tools::build_tool()?;
    verbs::build(None)?;
    check::prebuild()?;
    instructions::prebuild()?;
    fuzz::prebuild()
}

fn print_table(table: &[(&str, Outcome)]) {
    println!("\n{:<20} {:>8}  result", "step", "seconds");
    for (name, outcome) in table {
        let (time, word) = match outcome {
            Outcome::Passed(t) => (format!("{:.1}", t.as_secs_f64()), "pass"),
            Outcome::Failed(t) => (format!("{:.1}", t.as_secs_f64()), "FAIL"),
            Outcome::Skipped => ("-".into(), "skipped"),
            Outcome::NotRun => ("-".into(), "not run"),
        };
        println!("{name:<20} {time:>8}  {word}");
    }
}
