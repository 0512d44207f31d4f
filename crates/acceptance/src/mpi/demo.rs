//! `demo`: an MPI program over SRD and over TCP, on a network with two spines that fail in turn.

use super::{
    Figures, figures, plot, program,
    stage::{Kind, Stage, Transport},
    tools_of,
};
use crate::{Result, tools};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

/// The compared transports.
const SHOWN: [Transport; 2] = [Transport::Srd, Transport::TcpBtl];
/// Measuring time per figure in seconds.
const SECONDS: &str = "0.3";
/// Running time of the program while spines fail, in seconds.
const HOLD_S: &str = "7";
/// Columns of the plot; the program counts per tenth of a second.
const COLUMNS: usize = 70;
/// Duration of each spine's failure.
const DEAD: &str = "1s";
/// Interval between faults.
const BETWEEN: Duration = Duration::from_millis(1200);
/// Alternative where no fabric can be built.
const NO_FABRIC: &str = "the demonstration needs a network of namespaces; \
                         `./x demo --copy` shows a transfer over the loopback interface instead";

/// Results of one contender.
struct Shown {
    over: Transport,
    figures: Figures,
    /// Allreduces completed in each tenth of a second.
    slots: Vec<u64>,
    /// Begin and end of each spine's failure, in tenths of a second since the start.
    dead: Vec<(usize, usize)>,
}

/// Builds the programs, measures, and prints a plot and a table. If no fabric can be built, prints
/// the reason, which is an error if `required`.
///
/// # Errors
/// A program is missing or fails.
pub fn run(required: bool) -> Result {
    tools::ensure(&["mpicc", "ip"])?;
    let tools = tools_of(None, None)?;
    let program = program(&tools.folder)?;
    let stage = match Stage::build(Kind::Fabric, &tools) {
        Ok(stage) => stage,
        Err(e) if required => return Err(format!("{e}\n{NO_FABRIC}")),
        Err(e) => {
            println!("SKIPPED: the demonstration of MPI: {e}");
            return Ok(());
        }
    };
    println!("\ntwo hosts at 400 Mb/s, two spines of 200 Mb/s between them; one MPI rank on each");
    let mut all = Vec::new();
    for over in SHOWN {
        println!("over {}: latency and bandwidth", over.name());
        let brief = figures(&stage.run(over, &program, &["brief", SECONDS])?);
        println!("over {}: allreduces while each spine is down for {DEAD}", over.name());
        let mut shown = broken(&stage, over, &program)?;
        shown.figures.extend(brief);
        all.push(shown);
    }
    show(&all);
    Ok(())
}

/// Runs the program while one spine after the other fails.
fn broken(stage: &Stage<'_>, over: Transport, program: &Path) -> Result<Shown> {
    let mut c = stage.mpirun(over, program, &["hold", HOLD_S]);
    let fail = |e| format!("the MPI program: {e}");
    let mut child = c.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    let out = child.stdout.take().ok_or("the MPI program has no output")?;
    let mut lines = BufReader::new(out);
    let mut first = String::new();
    lines.read_line(&mut first).map_err(fail)?;
    let start = Instant::now();
    let tenths = || (start.elapsed().as_millis() / 100) as usize;
    let mut dead = Vec::new();
    for spine in ["0", "1"] {
        sleep(BETWEEN);
        let from = tenths();
        stage.blackhole(spine, DEAD)?;
        dead.push((from, tenths()));
    }
    let mut text = String::new();
    lines.read_to_string(&mut text).map_err(fail)?;
    let status = child.wait().map_err(fail)?;
    if !status.success() {
        return Err(format!("the MPI program over {} ended with {status}", over.name()));
    }
    Ok(Shown { over, figures: figures(&text), slots: slots(&text), dead })
}

/// Parses the lines `slot TENTHS ROUNDS`, which are in order.
fn slots(text: &str) -> Vec<u64> {
    let one = |l: &str| l.strip_prefix("slot ")?.split_once(' ')?.1.parse().ok();
    text.lines().filter_map(one).take(COLUMNS).collect()
}

fn show(all: &[Shown]) {
    println!("\nallreduces of 8 KiB that ended in each tenth of a second:\n");
    let top = all.iter().flat_map(|s| &s.slots).copied().max().unwrap_or(1);
    for s in all {
        let dead = s.dead.iter().zip(["spine 0 down", "spine 1 down"]);
        let dead: Vec<_> = dead.map(|(&(from, to), word)| (from, to, word)).collect();
        print!("{}", plot::bars(s.over.name(), &s.slots, top));
        print!("{}", plot::axis(COLUMNS, &dead));
    }
    println!("\n{:<44} {:>12} {:>22}", "", SHOWN[0].name(), SHOWN[1].name());
    let rows = [
        ("latency of 8 B, median", "latency-p50", 8),
        ("bandwidth of 1 MiB messages", "bandwidth", 1 << 20),
        ("longest allreduce while each spine was down", "longest", 8192),
    ];
    for (what, name, bytes) in rows {
        let cell = |s: &Shown| {
            let found = s.figures.get(&(name.to_owned(), bytes));
            found.map_or_else(|| "-".to_owned(), |(value, unit)| format!("{value:.1} {unit}"))
        };
        println!("{what:<44} {:>12} {:>22}", cell(&all[0]), cell(&all[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_each_slot_are_read() {
        assert_eq!(slots("figure began 8192 0 s\nslot 0 12\nslot 1 0\nslot x\n"), [12, 0]);
    }
}
