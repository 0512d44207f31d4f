//! `mpi-figures`: MPI over SRD beside MPI over TCP, on two hosts in network namespaces.

pub mod demo;
mod page;
mod plot;
pub mod stage;

use crate::{
    Result,
    args::Args,
    process::{command, root, run, target_dir},
    tools, verbs,
};
use stage::{Kind, Stage, Tools, Transport};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Arguments of the program for the tail: number of small reductions per draw, enough to have
/// several beyond the 99.9th percentile, and the pause after each.
const TAIL: [&str; 3] = ["tail", "5000", "200"];

/// Name of a figure, and message size in bytes.
pub type Key = (String, u64);
/// Value and unit of each figure.
pub type Figures = BTreeMap<Key, (f64, String)>;

/// One round: the figures of each contender, in the order of [`Transport::ALL`].
pub type Round = [Figures; 3];

/// All results.
#[derive(Default)]
pub struct Measured {
    /// Rounds on the plain link.
    pub link: Vec<Round>,
    /// Rounds on the fabric.
    pub fabric: Vec<Round>,
    /// Durations of small reductions beside a bulk TCP flow ("elephant") in µs, per draw and
    /// contender.
    pub tails: Vec<[Vec<f64>; 3]>,
    /// Load of the machine, before and after.
    pub load: [String; 2],
}

/// `mpi-figures [--rounds N] [--seconds S] [--srd PROGRAM] [--verbs DIR] [--print]`.
pub fn run_command(args: &mut Args) -> Result {
    let rounds = args.value::<u32>("--rounds")?.unwrap_or(5).max(1);
    let seconds = args.value::<f64>("--seconds")?.unwrap_or(0.3).to_string();
    let print = args.flag("--print");
    let srd = args.value::<PathBuf>("--srd")?;
    let verbs = args.value::<PathBuf>("--verbs")?;
    args.end()?;
    tools::ensure(&["mpicc", "ip", "ethtool", "iperf3"])?;
    let tools = tools_of(srd, verbs)?;
    let program = program(&tools.folder)?;
    let measured = measure(&tools, &program, rounds, &seconds)?;
    let text = page::text(&measured, rounds, &seconds);
    if print {
        println!("{text}");
        return Ok(());
    }
    page::write(&root(), &text)
}

/// Builds the tools that were not given.
fn tools_of(srd: Option<PathBuf>, verbs: Option<PathBuf>) -> Result<Tools> {
    let srd = match srd {
        Some(program) => program,
        None => tools::build_tool()?,
    };
    let verbs = match verbs {
        Some(folder) => folder,
        None => verbs::build(None)?,
    };
    Ok(Tools { srd, verbs, folder: target_dir().join("mpi") })
}

/// Compiles the measuring program.
fn program(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = folder.join("mpi_figures");
    let source = root().join("bindings/ibverbs/tests/programs/mpi_figures.c");
    run(command("mpicc", &["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(source))?;
    Ok(program)
}

fn measure(tools: &Tools, program: &Path, rounds: u32, seconds: &str) -> Result<Measured> {
    let mut m = Measured { load: [load(), String::new()], ..Measured::default() };
    for kind in [Kind::Link, Kind::Fabric] {
        let stage = Stage::build(kind, tools)?;
        for round in 1..=rounds {
            println!("{kind:?}, round {round} of {rounds}");
            // A full set over the fabric's slow links would take minutes with TCP.
            let what = if kind == Kind::Link { "all" } else { "brief" };
            let args = [what, seconds];
            let one = each(|over| stage.run(over, program, &args).map(|text| figures(&text)))?;
            match kind {
                Kind::Link => m.link.push(one),
                Kind::Fabric => m.fabric.push(one),
            }
        }
        if kind == Kind::Fabric {
            let _elephant = stage.elephant()?;
            for round in 1..=rounds {
                println!("{kind:?} with an elephant, round {round} of {rounds}");
                let one = each(|over| stage.run(over, program, &TAIL).map(|text| samples(&text)))?;
                m.tails.push(one);
            }
        }
    }
    m.load[1] = load();
    Ok(m)
}

/// Calls `of` for each contender in turn.
fn each<T>(mut of: impl FnMut(Transport) -> Result<T>) -> Result<[T; 3]> {
    let [a, b, c] = Transport::ALL;
    Ok([of(a)?, of(b)?, of(c)?])
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

/// Parses the lines `figure NAME BYTES VALUE UNIT`.
fn figures(text: &str) -> Figures {
    let one = |line: &str| {
        let mut words = line.strip_prefix("figure ")?.split(' ');
        let key = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some((key, (words.next()?.parse().ok()?, words.next()?.to_owned())))
    };
    text.lines().filter_map(one).collect()
}

/// Parses the lines `sample MICROSECONDS`.
fn samples(text: &str) -> Vec<f64> {
    text.lines().filter_map(|l| l.strip_prefix("sample ")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_are_read() {
        let text = "noise\nfigure latency-p50 8 4.149 us\nsample 3.5\nsample x\nsample 7\n";
        let all = figures(text);
        assert_eq!(all[&("latency-p50".to_owned(), 8)], (4.149, "us".to_owned()));
        assert_eq!((all.len(), samples(text)), (1, vec![3.5, 7.0]));
    }
}
