//! `lab paper`: one page with the figures of publications as this lab draws them, each beside what
//! its source says and the command that repeats it.

use super::{Failure, Program, command_of, progress_bar, quoted};
use crate::batch::{Seeds, jobs_of, run_all};
use crate::figure::{Figure, escape};
use crate::plots::plots;
use crate::report::{add_figure, document};
use crate::request::{cases_check, figures_check};
use crate::spec::{EMBEDDED, PlotSpec, Spec, SpecFile};
use clap::Args;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Name of the page.
const PAGE: &str = "index.html";

/// Options of `paper`.
#[derive(Debug, Args)]
pub struct Paper {
    /// Only the figures of these experiments or spec files (default: all figures that repeat one of
    /// a publication)
    names: Vec<String>,
    /// Folder of the page and of an SVG file for each figure
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Run the reduced set: fewer seeds, no slow cases
    #[arg(long)]
    quick: bool,
    /// Number of runs per case, or the first and the last seed (default: as in the spec)
    #[arg(long, value_name = "N|A..B")]
    seeds: Option<Seeds>,
    /// Number of parallel runs (default: one per processor)
    #[arg(long, value_name = "N", value_parser = super::threads)]
    threads: Option<NonZeroU32>,
}

/// A drawn figure.
struct Drawn {
    plot: PlotSpec,
    figure: Figure,
    /// File name of the SVG.
    file: String,
    command: String,
    not_level: Option<String>,
}

/// Runs the experiments and writes the page. Returns the text for the terminal.
///
/// # Errors
/// See [`Failure`].
pub fn paper(o: &Paper, program: Program) -> Result<String, Failure> {
    let all = EMBEDDED.iter().map(|(name, _)| (*name).to_string());
    let names: Vec<String> = if o.names.is_empty() { all.collect() } else { o.names.clone() };
    let mut files = Vec::new();
    for name in &names {
        if let Some(file) = load(o, name)? {
            files.push((name.clone(), file));
        } else if !o.names.is_empty() {
            return Err(Failure::Usage(format!(
                "{name} declares no figure with a `source`, or --quick omits its cases"
            )));
        }
    }
    let fail = |e: std::io::Error| Failure::Failed(format!("{}: {e}", o.out.display()));
    std::fs::create_dir_all(&o.out).map_err(fail)?;
    let mut drawn = Vec::new();
    for (name, file) in &files {
        drawn.extend(draw(o, name, file, program)?);
    }
    let mut text = String::new();
    for d in &drawn {
        std::fs::write(o.out.join(&d.file), d.figure.svg()).map_err(fail)?;
        let _ = writeln!(text, "{:<24} {}", d.file, d.plot.title);
    }
    let page = o.out.join(PAGE);
    std::fs::write(&page, page_of(&drawn)).map_err(fail)?;
    let _ = writeln!(text, "{} figures: {}", drawn.len(), page.display());
    Ok(text)
}

/// The cases that a figure with a source shows; `None` if there are none.
fn load(o: &Paper, name: &str) -> Result<Option<SpecFile>, Failure> {
    let mut file = SpecFile::load(name, o.quick).map_err(Failure::Usage)?;
    figures_check(name, &file).map_err(Failure::Usage)?;
    let sourced: Vec<PlotSpec> =
        file.cases[0].plot.iter().filter(|p| p.source.is_some()).cloned().collect();
    file.cases.retain(|c| sourced.iter().any(|p| p.shows(c)));
    cases_check(name, &file).map_err(Failure::Usage)?;
    for case in &mut file.cases {
        case.measure.observe = true;
        case.seeds = seeds(&sourced, case);
        case.plot.clone_from(&sourced);
    }
    Ok((!file.cases.is_empty()).then_some(file))
}

/// Seeds of a case: those of its spec, or fewer, if all figures that show it are content with them.
fn seeds(plots: &[PlotSpec], case: &Spec) -> u32 {
    let of = plots.iter().filter(|p| p.shows(case)).map(|p| p.seeds.unwrap_or(case.seeds));
    of.max().unwrap_or(case.seeds).min(case.seeds)
}

fn draw(o: &Paper, name: &str, file: &SpecFile, program: Program) -> Result<Vec<Drawn>, Failure> {
    let jobs = jobs_of(file, o.seeds);
    let bar = progress_bar(jobs.len(), name);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = o.threads.map_or_else(cores, |n| n.get() as usize);
    let results = run_all(&jobs, threads, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let results = results.map_err(Failure::Usage)?;
    let stem =
        Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    let mut words = format!("paper {} --out {}", quoted(name), quoted(&o.out.to_string_lossy()));
    if o.quick {
        words += " --quick";
    }
    if let Some(seeds) = o.seeds {
        let _ = write!(words, " --seeds {seeds}");
    }
    let drawn = plots(&results).into_iter().enumerate().map(|(i, (plot, figure))| Drawn {
        plot: plot.clone(),
        figure,
        file: format!("{stem}-{}.svg", i + 1),
        command: command_of(program, &words),
        not_level: file.cases[0].not_level.clone(),
    });
    Ok(drawn.collect())
}

fn page_of(drawn: &[Drawn]) -> String {
    let mut body = String::from(
        "<h1>Figures of the publications, repeated</h1>\n\
         <p>Each figure is of simulated runs of this lab, and follows from its command alone. \
         Completion times are from the post of a flow to its last completion; the ideal is the \
         payload alone at the slower end, shared equally.</p>\n<ul class=\"contents\">\n",
    );
    for (i, d) in drawn.iter().enumerate() {
        let source = d.plot.source.as_deref().unwrap_or_default();
        let _ = writeln!(
            body,
            "<li><a href=\"#figure{i}\">{}: {}</a></li>",
            escape(source),
            escape(&d.plot.title)
        );
    }
    body.push_str("</ul>\n");
    for (i, d) in drawn.iter().enumerate() {
        let source = d.plot.source.as_deref().unwrap_or_default();
        let _ = write!(body, "<section id=\"figure{i}\">\n<h2>{}</h2>\n", escape(source));
        if let Some(claim) = &d.plot.claim {
            let _ = writeln!(body, "<p><strong>The source says:</strong> {}</p>", escape(claim));
        }
        add_figure(&mut body, &d.figure);
        if let Some(why) = &d.not_level {
            let _ = writeln!(body, "<p>Not level: {}.</p>", escape(why.trim_end_matches('.')));
        }
        let _ = write!(
            body,
            "<p class=\"command\"><code>{}</code></p>\n<p>File: {}</p>\n</section>\n",
            escape(&d.command),
            escape(&d.file)
        );
    }
    document("Figures of the publications, repeated", "", &body, "")
}
