//! `demo --mpi`: an MPI program over SRD and over TCP on a network with two spines, which die.

use super::{
    Figures, figures, program,
    stage::{Kind, Over, Stage},
    tools_of,
};
use crate::{Result, tools};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::Stdio,
    thread::sleep,
    time::Duration,
};

/// What is shown beside each other.
const SHOWN: [Over; 2] = [Over::Srd, Over::TcpBtl];
/// Time for a figure.
const SECONDS: &str = "0.3";
/// How long the program runs while spines die.
const HOLD_S: &str = "7";
/// How long each spine is dead.
const DEAD: &str = "1s";

/// Builds what is needed, measures, and shows a table.
///
/// # Errors
/// Something is missing, or a program ended badly.
pub fn run() -> Result {
    tools::ensure(&["mpicc", "ip"])?;
    let tools = tools_of(None, None)?;
    let program = program(&tools.folder)?;
    let stage = Stage::build(Kind::Fabric, &tools)?;
    println!("two hosts at 400 Mb/s, two spines of 200 Mb/s between them; one MPI rank on each");
    let mut table = Vec::new();
    for over in SHOWN {
        println!("over {}: latency and bandwidth", over.name());
        let mut all = figures(&stage.run(over, &program, &["brief", SECONDS])?);
        println!("over {}: allreduces while each spine is dead for {DEAD}", over.name());
        all.extend(broken(&stage, over, &program)?);
        table.push(all);
    }
    show(&table);
    Ok(())
}

/// The program runs while one spine after the other is dead.
fn broken(stage: &Stage<'_>, over: Over, program: &Path) -> Result<Figures> {
    let mut c = stage.mpirun(over, program, &["hold", HOLD_S]);
    let fail = |e| format!("the MPI program: {e}");
    let mut child = c.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    let out = child.stdout.take().ok_or("the MPI program has no output")?;
    let mut lines = BufReader::new(out);
    let mut first = String::new();
    lines.read_line(&mut first).map_err(fail)?;
    for spine in ["0", "1"] {
        sleep(Duration::from_millis(1200));
        stage.blackhole(spine, DEAD)?;
    }
    let mut text = String::new();
    lines.read_to_string(&mut text).map_err(fail)?;
    let status = child.wait().map_err(fail)?;
    if status.success() { Ok(figures(&text)) } else { Err(format!("it ended with {status}")) }
}

fn show(table: &[Figures]) {
    println!("\n{:<44} {:>12} {:>22}", "", SHOWN[0].name(), SHOWN[1].name());
    let rows = [
        ("latency of 8 B, median", "latency-p50", 8),
        ("bandwidth of 1 MiB messages", "bandwidth", 1 << 20),
        ("longest allreduce while each spine was dead", "longest", 8192),
    ];
    for (what, name, bytes) in rows {
        let cell = |all: &Figures| {
            let found = all.get(&(name.to_owned(), bytes));
            found.map_or_else(|| "-".to_owned(), |(value, unit)| format!("{value:.1} {unit}"))
        };
        println!("{what:<44} {:>12} {:>22}", cell(&table[0]), cell(&table[1]));
    }
}
