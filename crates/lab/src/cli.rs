//! The command line of the lab: `run`, `paper`, `merge`, `list`, `show`, `fields` and
//! `plot-library`. The tool
//! `srd` includes it as `srd lab`; `srd-lab` is the same without the rest of the tool.

mod fields;
mod merge;
mod paper;
mod perfetto;

use crate::batch::{Seeds, jobs_of, run_all};
use crate::figures::figures;
use crate::pages::huge_pages;
use crate::plots::plots;
use crate::report::{self, Origin};
use crate::request::Request;
use crate::result::RunResult;
use crate::spec::{EMBEDDED, SpecFile, embedded};
use crate::{guards, level};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use perfetto::Recording;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Experiments on the simulated network.
#[derive(Debug, Parser)]
#[command(name = "srd-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  srd lab list                                  all experiments
  srd lab run fig2 --quick --out report         tables, CSV and plots (report/fig2.html)
  srd lab run incast --set engine.paths=16      with another value of a field
  srd lab show incast > mine.toml               a spec to change: srd lab run mine.toml
  srd lab fields network.                       what a spec may say of the network

Exit codes: 0 done, 1 a run or a file failed, 2 wrong usage or a wrong spec.";

/// Command of the lab.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Run experiments by name, or spec files; `all` runs every experiment
    Run(Run),
    /// Name the experiments and their cases
    List,
    /// Print the spec of an experiment, to start one's own from
    Show {
        /// Experiment
        name: String,
    },
    /// List every field of a spec: unit, values, default, meaning
    Fields {
        /// Only fields whose names contain this text, for example `network.` or `tcp.cc`
        name: Option<String>,
        /// Print a JSON Schema instead, with which editors complete and check specs
        #[arg(long, conflicts_with = "name")]
        schema: bool,
    },
    /// Draw the figures of publications that experiments repeat, on one page
    Paper(paper::Paper),
    /// Print the JavaScript library that draws the plots of pages, for programs that make pages
    /// from results by themselves, as the Python module does
    PlotLibrary,
    /// Join reports of runs with different seeds or cases
    Merge {
        /// Folders that `run --out` wrote
        #[arg(required = true, value_name = "DIR")]
        reports: Vec<PathBuf>,
        /// Folder of the joined report
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Experiments or spec files
    #[arg(required = true, value_name = "NAME|FILE")]
    names: Vec<String>,
    /// Number of runs per case, with the seeds 1, 2, …; or the first and the last seed, as in
    /// 101..200 (default: as in the spec)
    #[arg(long, value_name = "N|A..B")]
    seeds: Option<Seeds>,
    /// Run the reduced set: fewer seeds, no slow cases
    #[arg(long)]
    quick: bool,
    /// Run only the cases whose names contain this text
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Change a field of every case, for example `engine.paths=16` (a TOML value; repeatable).
    /// Settings of transports change in every group of flows; `workload.also.NAME.FIELD` is a field
    /// of one group
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Run every case with each value of a field, for example `engine.paths=16,64,128` (TOML
    /// values; repeatable)
    #[arg(long, value_name = "FIELD=V,V")]
    sweep: Vec<String>,
    /// Number of parallel runs; results do not depend on it, except the columns of speed and memory
    /// (default: one per processor)
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<NonZeroU32>,
    /// Write the table, CSV, JSON and a page with plots into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Record the first run of the only case for Perfetto (ui.perfetto.dev) into this file:
    /// messages, paths, losses, windows, rates and round trips over time
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Omit speed and memory, which differ from run to run; all other figures follow from the seeds
    #[arg(long)]
    no_cost: bool,
}

/// Parses the number of parallel runs.
fn threads(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of threads; give 1 or more"))
}

/// Error of a command.
#[derive(Debug)]
pub enum Failure {
    /// The request is invalid; the text says what to change.
    Usage(String),
    /// The request failed.
    Failed(String),
    /// The reader of the output has closed it.
    OutputClosed,
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write the output: {e}")),
        }
    }
}

/// Runs the program with the process's arguments.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = Cli::try_parse_from(&args).unwrap_or_else(|e| e.exit());
    if matches!(cli.command, Command::Run(_)) {
        huge_pages(&args);
    }
    let program = Program { name: "srd-lab", commit: option_env!("SRD_COMMIT") };
    match execute(&cli.command, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::OutputClosed) => ExitCode::FAILURE,
        Err(Failure::Failed(text)) => {
            eprintln!("srd-lab: {text}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(text)) => {
            eprintln!("srd-lab: {text}");
            ExitCode::from(2)
        }
    }
}

/// What reports say of the program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name that the user calls.
    pub name: &'static str,
    /// The commit that it was built from; `None`: not known.
    pub commit: Option<&'static str>,
}

/// The command line of a command of the lab.
fn command_of(program: Program, command: &str) -> String {
    format!("{} lab {command}", program.name).replace("srd-lab lab", "srd-lab")
}

/// Executes a command and prints to standard output.
///
/// # Errors
/// See [`Failure`].
pub fn execute(command: &Command, program: Program) -> Result<(), Failure> {
    match command {
        Command::List => list(),
        Command::Run(options) => run(options, program),
        Command::Show { name } => print(&show(name)?),
        Command::Fields { schema: true, .. } => print(&format!("{:#}\n", fields::schema())),
        Command::Fields { name, .. } => {
            print(&fields::text(name.as_deref()).map_err(Failure::Usage)?)
        }
        Command::Paper(options) => print(&paper::paper(options, program)?),
        Command::PlotLibrary => print(&report::plot_library()),
        Command::Merge { reports, out } => {
            let folders = reports.iter().chain([out]).map(|p| quoted(&p.to_string_lossy()));
            let mut words: Vec<String> = folders.collect();
            words.insert(reports.len(), "--out".into());
            let line = command_of(program, &format!("merge {}", words.join(" ")));
            print(&merge::merge(reports, out, &line)?)
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// The text of an embedded spec.
fn show(name: &str) -> Result<String, Failure> {
    embedded(name).map(String::from).ok_or_else(|| {
        let names: Vec<_> = EMBEDDED.iter().map(|(n, _)| *n).collect();
        Failure::Usage(format!("there is no experiment {name}: give one of {}", names.join(", ")))
    })
}

fn list() -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for (name, _) in EMBEDDED {
        let file = SpecFile::load(name, false).map_err(Failure::Failed)?;
        let runs: u32 = file.cases.iter().map(|c| c.seeds).sum();
        let title = &file.cases[0].title;
        writeln!(out, "{name:<18} {title} ({} cases, {runs} runs)", file.cases.len())?;
    }
    Ok(())
}

/// Reads an experiment and selects the requested part.
fn load(o: &Run, name: &str) -> Result<SpecFile, Failure> {
    let request = Request {
        name: name.into(),
        quick: o.quick,
        case: o.case.clone(),
        set: o.set.clone(),
        sweep: o.sweep.clone(),
        observe: o.out.is_some(),
        timeline: o.perfetto.is_some(),
    };
    let file = request.load().map_err(Failure::Usage)?;
    if file.cases.is_empty() && o.names.len() == 1 && name != "all" {
        return Err(Failure::Usage(request.nothing()));
    }
    Ok(file)
}

fn run(o: &Run, program: Program) -> Result<(), Failure> {
    let all = o.names.iter().any(|n| n == "all");
    let names: Vec<&str> = if all {
        EMBEDDED.iter().map(|(n, _)| *n).collect()
    } else {
        o.names.iter().map(String::as_str).collect()
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = o.threads.map_or_else(cores, |n| n.get() as usize);
    // All specs are read before any run, so that an error in the last one is reported at once.
    let files = names.iter().map(|n| Ok((*n, load(o, n)?))).collect::<Result<Vec<_>, Failure>>()?;
    if files.iter().all(|(_, f)| f.cases.is_empty()) {
        return Err(Failure::Usage("there is no case to run: see `lab list`".into()));
    }
    if let Some(folder) = &o.out {
        let fail = |e| Failure::Failed(format!("{}: {e}", folder.display()));
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    let recording = o.perfetto.as_deref().map(|path| Recording::new(path, &files));
    let mut recording = recording.transpose()?;
    let (begin, mut experiments, mut runs) = (Instant::now(), 0, 0);
    for (name, file) in files.into_iter().filter(|(_, f)| !f.cases.is_empty()) {
        if name == guards::NAME {
            guards_run(o, &file, threads)?;
            continue;
        }
        warn(name, &file);
        let jobs = jobs_of(&file, o.seeds);
        let bar = progress_bar(jobs.len(), name);
        let results = run_all(&jobs, threads, &|done| bar.set_position(done as u64));
        bar.finish_and_clear();
        let results = results.map_err(Failure::Usage)?;
        if let Some(recording) = recording.take() {
            recording.write(&results[0])?;
        }
        (experiments, runs) = (experiments + 1, runs + results.len());
        let text = text_of(&results, !o.no_cost);
        io::stdout().lock().write_all(text.as_bytes())?;
        if let Some(folder) = &o.out {
            let command = command_line(o, program, name);
            let origin = Origin { command: &command, commit: program.commit };
            let written = write(folder, &results, &text, origin);
            let path = written.map_err(Failure::Failed)?;
            writeln!(io::stdout().lock(), "report: {}\n", path.display())?;
        }
    }
    if experiments > 1 && !o.no_cost {
        let seconds = begin.elapsed().as_secs_f64();
        let out = &mut io::stdout().lock();
        writeln!(
            out,
            "{experiments} experiments, {runs} runs, up to {threads} at a time: {seconds:.1} s"
        )?;
    }
    Ok(())
}

/// Runs the rows of `guards` with each guard turned off in turn.
fn guards_run(o: &Run, file: &SpecFile, threads: usize) -> Result<(), Failure> {
    let bar = progress_bar(0, guards::NAME);
    let text = guards::table(file, o.seeds, threads, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let text = text.map_err(Failure::Usage)?;
    io::stdout().lock().write_all(text.as_bytes())?;
    let Some(folder) = &o.out else { return Ok(()) };
    let path = folder.join(format!("{}.txt", guards::NAME));
    std::fs::write(&path, text).map_err(|e| Failure::Failed(format!("{}: {e}", path.display())))
}

fn progress_bar(jobs: usize, name: &str) -> ProgressBar {
    let bar = ProgressBar::new(jobs as u64);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} runs, {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(name.to_string());
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Warns of a comparison that is not level, unless the spec says why.
fn warn(name: &str, file: &SpecFile) {
    if file.cases[0].not_level.is_some() {
        return;
    }
    for warning in level::warnings(&file.cases) {
        eprintln!("{name}: not level: {warning}");
    }
}

/// The command that reproduces one experiment.
fn command_line(o: &Run, program: Program, name: &str) -> String {
    let mut line = command_of(program, &format!("run {}", quoted(name)));
    let mut add = |option: &str, value: &str| line += &format!(" --{option} {}", quoted(value));
    if let Some(n) = o.seeds {
        add("seeds", &n.to_string());
    }
    if let Some(case) = &o.case {
        add("case", case);
    }
    o.set.iter().for_each(|change| add("set", change));
    o.sweep.iter().for_each(|sweep| add("sweep", sweep));
    if let Some(folder) = &o.out {
        add("out", &folder.to_string_lossy());
    }
    if let Some(file) = &o.perfetto {
        add("perfetto", &file.to_string_lossy());
    }
    for (given, flag) in [(o.quick, " --quick"), (o.no_cost, " --no-cost")] {
        line += if given { flag } else { "" };
    }
    line
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn text_of(results: &[RunResult], cost: bool) -> String {
    let spec = &results[0].spec;
    let mut mtus: Vec<u32> = results.iter().map(RunResult::mtu).collect();
    mtus.sort_unstable();
    mtus.dedup();
    if results.iter().all(|r| r.fct_ps.is_empty()) {
        let (title, tables) = (&spec.title, figures(results, cost));
        return format!(
            "{}: {title}\nflows placed without packets, in a drawn order\n{tables}\n",
            spec.name
        );
    }
    let mtus: Vec<String> = mtus.iter().map(|m| format!("{m} B")).collect();
    format!(
        "{}: {}\npackets with up to {} of payload, base RTT {:.2} us; FCT from post to last \
         completion (TCP: to the last byte in order), floor = all bytes with headers at the slower \
         end + base RTT\n{}{}\n",
        spec.name,
        spec.title,
        mtus.join(", "),
        results.iter().map(|r| r.base_rtt_ps).max().unwrap_or(0) as f64 / 1e6,
        report::table(results, cost),
        figures(results, cost)
    )
}

/// Writes all files of an experiment; returns the path of the page.
fn write(
    folder: &Path,
    results: &[RunResult],
    text: &str,
    origin: Origin<'_>,
) -> Result<PathBuf, String> {
    let name = &results[0].spec.name;
    let files = [
        (".txt", format!("$ {}\n{text}", origin.command)),
        (".csv", report::csv(results)),
        ("-summary.csv", report::summary_csv(results)),
        ("-series.csv", report::series_csv(results)),
        (".json", format!("{:#}\n", report::json(results, origin))),
        (".html", report::page(results, origin.command)),
    ];
    let plots = plots(results).into_iter().enumerate();
    let plots = plots.map(|(i, (_, figure))| (format!("-{}.svg", i + 1), figure.svg()));
    let files = files.map(|(ending, content)| (ending.to_string(), content));
    for (ending, content) in files.into_iter().chain(plots) {
        let path = folder.join(format!("{name}{ending}"));
        std::fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(folder.join(format!("{name}.html")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Run {
        let words = line.split(' ').map(|w| OsString::from(w.replace('_', " ")));
        match Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command {
            Command::Run(run) => run,
            other => panic!("{other:?} is no run"),
        }
    }

    #[test]
    fn the_command_in_a_report_is_the_one_that_was_given() {
        let run = parsed("srd-lab run --quick a.toml --set engine.paths=16 --case 2_MB --seeds 3");
        let srd = Program { name: "srd", commit: None };
        let line = command_line(&run, srd, "a.toml");
        let want = "srd lab run a.toml --seeds 3 --case '2 MB' --set engine.paths=16 --quick";
        assert_eq!(line, want);
        let lab = Program { name: "srd-lab", commit: None };
        assert!(command_line(&run, lab, "a.toml").starts_with("srd-lab run a.toml "));
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_anything_runs() {
        let srd = Program { name: "srd", commit: None };
        let fails = |line: &str| match run(&parsed(line), srd) {
            Err(Failure::Usage(text)) => text,
            other => panic!("{line}: {other:?}"),
        };
        assert!(fails("srd-lab run nothing.toml").contains("neither a file nor an experiment"));
        let text = fails("srd-lab run incast --case nobody");
        assert!(text.contains("no case contains \"nobody\"; the cases are \"2 MB\""), "{text}");
        let text = fails("srd-lab run incast --set engine.path=3");
        assert!(text.contains("unknown field `path`"), "{text}");
        assert!(Cli::try_parse_from(["srd-lab", "run", "incast", "--seeds", "0"]).is_err());
        let nameless = std::env::temp_dir().join(format!("srd-nameless-{}", std::process::id()));
        let spec = "name = \"a\"\ntitle = \"a\"\nnetwork.shape = \"back-to-back\"\n\
            workload.pattern = \"permutation\"";
        std::fs::write(&nameless, spec).unwrap();
        let text = fails(&format!("srd-lab run {} --case b", nameless.display()));
        std::fs::remove_file(&nameless).unwrap();
        assert!(text.contains("no case contains \"b\", as no case has a name"), "{text}");
        // What depends on the network, too, is told when specs are read.
        for (set, part) in [
            ("workload.senders = 1_000", "workload.senders = 1000"),
            ("fault = [{ kind = \"hole\", at = \"leaf99\", at_us = 1 }]", "leaf99"),
            ("engine.paths = 3", "paths"),
            ("transport = \"rc\"\nrc.window_bytes = 7", "rc.window_bytes = 7"),
            ("transport = \"rc\"\nmeasure.order = true", "measure.order"),
            ("[[workload.also]]\nname = \"b\"\npattern = \"incast\"\nsenders = 999", "group 2"),
        ] {
            let run = Run { set: vec![set.into()], ..parsed("srd-lab run incast") };
            match load(&run, "incast") {
                Err(Failure::Usage(text)) => assert!(text.contains(part), "{set}: {text}"),
                other => panic!("{set}: {other:?}"),
            }
        }
    }
}
