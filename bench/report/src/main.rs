//! Measures SRD beside raw UDP and TCP over a veth pair between two network namespaces, and writes
//! `docs/performance.md`. `cargo xtask report` builds everything and starts this.
#![forbid(unsafe_code)]

mod beside;
mod checksum;
mod end;
mod figures;
mod goals;
mod measure;
mod net;
mod options;
mod page;
mod pair;
mod rows;
mod sealed;

use measure::Plan;
use std::{path::PathBuf, process::ExitCode};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// First line of a section that another command writes at the end of the page.
const KEPT_FROM: &str = "<!-- made by `cargo xtask mpi-figures` -->";

const HELP: &str = "\
cargo xtask report [OPTIONS]    measures, and writes docs/performance.md

  --runs N        rounds; each row once per round (default 5)
  --seconds S     length of one run (default 1)
  --quick         one round of half a second, printed instead of written
  --checksum      only the rows about the checksum; rewrites only their section of the page
  --sealed        only the rows about sealing, TLS and QUIC; rewrites only their section
  --peers         only the rows beside libfabric, UCX and QUIC; rewrites only their section
  --row NAME      only this row, with the complete output of both ends; writes no file
  --out FILE      write this file instead

Works in two network namespaces of its own, as root or where users may create namespaces.";

/// Parsed arguments.
struct Args {
    plan: Plan,
    row: Option<rows::Row>,
    /// Measure only the rows about the cost of the checksum.
    checksum: bool,
    /// Measure only the rows about sealing.
    sealed: bool,
    /// Measure only the rows beside other transports.
    peers: bool,
    out: Option<PathBuf>,
}

impl Args {
    /// Parses arguments; `None` asks for help.
    fn parse(args: Vec<String>) -> Result<Option<Self>> {
        if args.iter().any(|a| a == "--help" || a == "-h") {
            return Ok(None);
        }
        let quick = args.iter().any(|a| a == "--quick");
        let checksum = args.iter().any(|a| a == "--checksum");
        let sealed = args.iter().any(|a| a == "--sealed");
        let peers = args.iter().any(|a| a == "--peers");
        let flags = ["--quick", "--checksum", "--sealed", "--peers"];
        let flag = |a: &String| flags.contains(&a.as_str());
        let mut o = options::Options::new(args.into_iter().filter(|a| !flag(a)))?;
        let row = o.get::<String>("row")?.map(|name| rows::Row::named(&name)).transpose()?;
        let few = quick || row.is_some();
        let plan = Plan {
            runs: o.or("runs", if few { 1 } else { 5 })?,
            seconds: o.or("seconds", if quick { 0.5 } else { 1.0 })?,
        };
        let file = o.get("out")?.or_else(|| (!few).then(|| "docs/performance.md".into()));
        o.end()?;
        let parts = [checksum, sealed, peers, row.is_some()];
        if parts.into_iter().filter(|&given| given).count() > 1 {
            return Err("--checksum, --sealed, --peers and --row each select rows: give one".into());
        }
        if plan.runs == 0 || !(0.1..=10.0).contains(&plan.seconds) {
            return Err("--runs must be at least 1, --seconds from 0.1 to 10".into());
        }
        Ok(Some(Self { plan, row, checksum, sealed, peers, out: file }))
    }
}

fn report(args: Vec<String>) -> Result<()> {
    let Some(args) = Args::parse(args)? else {
        println!("{HELP}");
        return Ok(());
    };
    net::tools_check()?;
    net::enter()?;
    if let Some(row) = args.row {
        return measure::one(row, args.plan);
    }
    let text = if args.checksum {
        let part = checksum::part(&measure::some(args.plan, &checksum::rows())?)?;
        match &args.out {
            None => part,
            Some(file) => checksum::put(&std::fs::read_to_string(file)?, &part)?,
        }
    } else if args.sealed {
        let part = sealed::part(&measure::some(args.plan, &sealed::rows())?)?;
        match &args.out {
            None => part,
            Some(file) => sealed::put(&std::fs::read_to_string(file)?, &part),
        }
    } else if args.peers {
        let part = beside::part(args.plan)?;
        match &args.out {
            None => part,
            Some(file) => beside::put(&std::fs::read_to_string(file)?, &part),
        }
    } else {
        let page = page::page(&measure::all(args.plan)?)?;
        page + &args.out.as_deref().map_or_else(String::new, kept)
    };
    match args.out {
        None => println!("{text}"),
        Some(file) => {
            std::fs::write(&file, text)
                .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
            println!("wrote {}", file.display());
        }
    }
    Ok(())
}

/// The sections of the old page that other commands generate (`cargo xtask report --sealed` and
/// `--peers`, `cargo xtask mpi-figures`); they are the last.
fn kept(file: &std::path::Path) -> String {
    let old = std::fs::read_to_string(file).unwrap_or_default();
    let first =
        [beside::BEGIN, sealed::BEGIN, KEPT_FROM].iter().filter_map(|mark| old.find(mark)).min();
    first.map_or_else(String::new, |at| format!("\n{}", &old[at..]))
}

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let result = if args.first().is_some_and(|a| a == "end") && args.len() > 1 {
        let rest = args.split_off(2);
        options::Options::new(rest).and_then(|o| end::run(&args[1], o))
    } else {
        report(args)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("srd-report: {e}");
            ExitCode::FAILURE
        }
    }
}
