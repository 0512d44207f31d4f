//! The command line: `srd check …`.

use crate::class::Class;
use crate::corpus;
use crate::kill;
use crate::ledger::Tamper;
use crate::runner::{self, Plan, Summary};
use crate::scenario::{Limits, Scenario};
use crate::shrink;
use crate::world::Options;
use std::fmt::Write as _;
use std::time::Duration;

/// Usage.
pub const HELP: &str = "\
Runs the SRD core in worlds made of seeds, with faults, and watches every promise it makes.

  --seeds N            worlds to run (default 1000)
  --minutes M          or as many as fit into M minutes
  --first S            first seed (default 0)
  --threads T          threads (default: all cores)
  --seed S             one world; when it fails, the least of it that still does
  --trace              with --seed: the events of the shrunk world as text, and a capture
  --whole              with --seed --trace: do not shrink
  --pcap FILE          with --trace: where the capture goes (default seed-S.pcapng)
  --corpus FILE        every seed of a corpus (`-`: the one built in)
  --canary             break the harness on purpose: every oracle of placement must notice
  --planted N          with bug N of a build with `--cfg planted_bugs`
  kill-table [--blocks B] [--limit L] [--only N,N…] [--write FILE]
                       seeds until each planted bug is noticed, as a table
  bugs                 the planted bugs of this build";

/// What the arguments ask for.
#[derive(Debug)]
struct Asked {
    plan: Plan,
    seed: Option<u64>,
    trace: bool,
    whole: bool,
    pcap: Option<String>,
    corpus: Option<String>,
    canary: bool,
    planted: Option<u32>,
    kill: Option<kill::Table>,
    bugs: bool,
}

/// Runs the command. `Ok(false)`: it ran, and promises were broken.
///
/// # Errors
/// Arguments that make no sense, files that cannot be read or written; the text says what to do.
pub fn cli(args: &[String]) -> Result<bool, String> {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        println!("{HELP}");
        return Ok(true);
    }
    let asked = parse(args)?;
    runner::panics_keep();
    if let Some(n) = asked.planted {
        kill::plant(n)?;
    }
    if asked.bugs {
        kill::plant(0)?;
        for (n, name, area) in kill::bugs() {
            println!("{n} {name} ({area})");
        }
        return Ok(true);
    }
    if let Some(table) = &asked.kill {
        return kill::run(table);
    }
    if asked.canary {
        return Ok(canary());
    }
    if let Some(file) = &asked.corpus {
        return corpus_run(file);
    }
    if let Some(seed) = asked.seed {
        return one(seed, &asked);
    }
    let sum = runner::run_many(&asked.plan);
    print!("{}", report(&sum));
    Ok(sum.failures.is_empty())
}

fn parse(args: &[String]) -> Result<Asked, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan { first: 0, seeds: 1000, time: None, threads, stop_at_failure: false };
    let mut a = Asked {
        plan,
        seed: None,
        trace: false,
        whole: false,
        pcap: None,
        corpus: None,
        canary: false,
        planted: None,
        kill: None,
        bugs: false,
    };
    let mut rest = args.iter();
    let mut counted = false;
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{arg} needs a value; see --help"));
        match arg.as_str() {
            "--seeds" => (a.plan.seeds, counted) = (number(arg, value()?)?, true),
            "--minutes" => {
                let minutes: f64 = value()?.parse().map_err(|_| "--minutes needs a number")?;
                let time = Duration::try_from_secs_f64(minutes * 60.0);
                a.plan.time = Some(time.map_err(|_| "--minutes needs a number from 0 up")?);
            }
            "--first" => a.plan.first = number(arg, value()?)?,
            "--threads" => a.plan.threads = number(arg, value()?)?.clamp(1, 1024) as usize,
            "--seed" => a.seed = Some(number(arg, value()?)?),
            "--trace" => a.trace = true,
            "--whole" => a.whole = true,
            "--pcap" => a.pcap = Some(value()?.clone()),
            "--corpus" => a.corpus = Some(value()?.clone()),
            "--canary" => a.canary = true,
            "--planted" => a.planted = Some(number(arg, value()?)? as u32),
            "bugs" => a.bugs = true,
            "kill-table" => a.kill = Some(kill::Table::default()),
            "--blocks" | "--limit" | "--write" | "--only" => {
                let table = a.kill.as_mut().ok_or("kill-table comes before its options")?;
                match arg.as_str() {
                    "--blocks" => table.blocks = number(arg, value()?)?.max(1),
                    "--only" => {
                        let numbers = value()?.split(',').map(|n| number(arg, n));
                        table.only =
                            numbers.map(|n| n.map(|n| n as u32)).collect::<Result<_, _>>()?;
                    }
                    "--limit" => table.limit = number(arg, value()?)?.max(1),
                    _ => table.write = Some(value()?.clone()),
                }
            }
            other => return Err(format!("`{other}` is not known; see --help")),
        }
    }
    if a.plan.time.is_some() && !counted {
        a.plan.seeds = u64::MAX;
    }
    if let Some(table) = &mut a.kill {
        table.threads = a.plan.threads;
    }
    if (a.trace || a.whole || a.pcap.is_some()) && a.seed.is_none() {
        return Err("--trace, --whole and --pcap need --seed".into());
    }
    Ok(a)
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{name} needs a number, not `{text}`"))
}

/// One seed: verdict, and on failure what is left of it after shrinking.
fn one(seed: u64, asked: &Asked) -> Result<bool, String> {
    let s = Scenario::from_seed(seed, Limits::NONE);
    println!("seed {seed}: {:?}, {} hosts, faults: {}", s.workload, s.hosts, s.classes);
    let first = runner::check_twice(&s);
    let mut limits = Limits::NONE;
    if let Some(v) = &first.violation {
        println!("broken: {:?} at {:.3} us: {}", v.oracle, v.at as f64 / 1e6, v.what);
        if !asked.whole
            && let Some(small) = shrink::shrink(seed)
        {
            limits = small.limits;
            println!("still broken with faults: {}, {:?}", small.classes, small.limits);
            println!("after {} tries: {}", small.tries, small.violation.what);
        }
    } else {
        println!("every promise kept; {:?}", first.tally);
    }
    if asked.trace {
        let s = Scenario::from_seed(seed, limits);
        let traced = runner::check(&s, Options { trace: true, ..Options::default() });
        let Some(trace) = traced.trace else {
            return Err("the world panics: no trace came out of it".into());
        };
        for line in &trace.lines {
            println!("{line}");
        }
        let file = asked.pcap.clone().unwrap_or_else(|| format!("seed-{seed}.pcapng"));
        std::fs::write(&file, trace.pcapng()).map_err(|e| format!("cannot write {file}: {e}"))?;
        println!("{} packets are in {file}", trace.packets.len());
    }
    Ok(first.violation.is_none())
}

fn corpus_run(file: &str) -> Result<bool, String> {
    let text = match file {
        "-" => corpus::BUILT_IN.to_owned(),
        _ => std::fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?,
    };
    let entries = corpus::parse(&text)?;
    let mut broken = 0;
    for e in &entries {
        let outcome = runner::check_twice(&Scenario::from_seed(e.seed, Limits::NONE));
        if let Some(v) = outcome.violation {
            broken += 1;
            println!("seed {} ({}): {:?}: {}", e.seed, e.story, v.oracle, v.what);
        }
    }
    println!("corpus: {} seeds, {broken} broken", entries.len());
    Ok(broken == 0)
}

/// The harness makes mistakes on purpose; the oracles must see each within 100 seeds.
fn canary() -> bool {
    let mut awake = true;
    for tamper in [Tamper::CopyDropped, Tamper::CopyLate, Tamper::WrongBytes] {
        let noticed = (0..100).find(|&seed| {
            let s = Scenario::from_seed(seed, Limits::NONE);
            runner::check(&s, Options { tamper, trace: false }).violation.is_some()
        });
        match noticed {
            Some(seed) => println!("canary {tamper:?}: noticed at seed {seed}"),
            None => println!("canary {tamper:?}: not noticed in 100 seeds: the alarm is broken"),
        }
        awake &= noticed.is_some();
    }
    awake
}

/// The summary for people.
pub fn report(sum: &Summary) -> String {
    let mut out = String::new();
    let t = &sum.tally;
    let cpu = if sum.cpu.is_zero() { sum.wall * sum.threads as u32 } else { sum.cpu };
    let per = |n: u64| n as f64 / cpu.as_secs_f64().max(1e-9);
    let _ = writeln!(
        out,
        "{} seeds ({} of them twice), {} failed, {:.1} s on {} threads: {:.0} seeds and {:.0} \
         packets per second of processor time",
        sum.seeds,
        sum.replays,
        sum.failures.len(),
        sum.wall.as_secs_f64(),
        sum.threads,
        per(sum.seeds + sum.replays),
        per(t.packets),
    );
    let _ = writeln!(
        out,
        "{} requests ({} succeeded, {} ended with an error), {} packets ({} lost, {} doubled by \
         the network, {} sent again), {} judged",
        t.requests,
        t.completed,
        t.failed,
        t.packets,
        sum.lost,
        sum.duplicated,
        t.retransmitted,
        t.judged,
    );
    let classes: Vec<String> =
        Class::ALL.iter().map(|&c| format!("{c:?} {}", sum.classes[c as usize])).collect();
    let _ = writeln!(out, "worlds by class of faults: {}", classes.join(", "));
    for f in sum.failures.iter().take(20) {
        let v = &f.violation;
        let what: String = v.what.chars().take(300).collect();
        let _ = writeln!(out, "seed {}: {:?}: {what}", f.seed, v.oracle);
    }
    if let Some(f) = sum.failures.first() {
        let _ = writeln!(out, "repeat with: srd check --seed {} --trace", f.seed);
    }
    out
}
