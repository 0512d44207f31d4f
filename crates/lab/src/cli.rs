//! The command line: `run` and `list`.

use crate::batch::{jobs_of, run_all};
use crate::report;
use crate::result::RunResult;
use crate::spec::{EMBEDDED, SpecFile};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Experiments on the simulated network.
#[derive(Debug, Parser)]
#[command(name = "srd-lab")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment by name, or a spec file; `all` runs every experiment
    Run(Run),
    /// Name the experiments
    List,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Experiments or spec files
    #[arg(required = true)]
    names: Vec<String>,
    /// Runs per case (default: as the spec says)
    #[arg(long)]
    seeds: Option<u32>,
    /// The reduced set: fewer seeds, no slow cases
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this
    #[arg(long)]
    case: Option<String>,
    /// Change a field of every case: `engine.paths=16` (a TOML value; more than once)
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Runs at once
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Write table, CSV and JSON into this folder
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Entry with the process's arguments.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::try_parse_from(args).unwrap_or_else(|e| e.exit());
    match execute(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("srd-lab: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Does what a command says, printing to standard output.
///
/// # Errors
/// The sentence to show.
pub fn execute(command: &Command) -> Result<(), String> {
    match command {
        Command::List => {
            for (name, _) in EMBEDDED {
                let file = SpecFile::load(name, false)?;
                let cases: Vec<_> = file.cases.iter().map(|c| c.case.as_str()).collect();
                println!("{name:12} {} ({})", file.cases[0].title, cases.join(", "));
            }
            Ok(())
        }
        Command::Run(options) => run(options),
    }
}

fn run(o: &Run) -> Result<(), String> {
    let all = o.names.iter().any(|n| n == "all");
    let names: Vec<&str> = if all {
        EMBEDDED.iter().map(|(n, _)| *n).collect()
    } else {
        o.names.iter().map(String::as_str).collect()
    };
    for name in names {
        let mut file = SpecFile::load_with(name, o.quick, &o.set)?;
        if let Some(part) = &o.case {
            file.cases.retain(|c| c.case.contains(part.as_str()));
            if file.cases.is_empty() {
                continue;
            }
        }
        let jobs = jobs_of(&file, o.seeds);
        let bar = ProgressBar::new(jobs.len() as u64);
        let style = "{prefix} {wide_bar} {pos}/{len} runs, {elapsed}";
        bar.set_style(ProgressStyle::with_template(style).map_err(|e| e.to_string())?);
        bar.set_prefix(name.to_string());
        bar.tick();
        let results = run_all(&jobs, o.threads, &|done| bar.set_position(done as u64))?;
        bar.finish_and_clear();
        let text = text_of(&results);
        print!("{text}");
        if let Some(folder) = &o.out {
            write(folder, &results, &text)?;
        }
    }
    Ok(())
}

fn text_of(results: &[RunResult]) -> String {
    let spec = &results[0].spec;
    format!(
        "{}: {}\nmtu {} B, base RTT {:.2} us; FCT from post to last completion, floor = all bytes \
         with headers at the slower end + base RTT\n{}\n",
        spec.name,
        spec.title,
        results[0].mtu(),
        results.iter().map(|r| r.base_rtt_ps).max().unwrap_or(0) as f64 / 1e6,
        report::table(results, true)
    )
}

fn write(folder: &Path, results: &[RunResult], text: &str) -> Result<(), String> {
    let name = &results[0].spec.name;
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let files = [
        ("txt", text.to_string()),
        ("csv", report::csv(results)),
        ("json", format!("{:#}\n", report::json(results))),
    ];
    for (ending, content) in files {
        let path = folder.join(format!("{name}.{ending}"));
        std::fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
