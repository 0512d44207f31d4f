//! The command `srd check`.

pub use crate::args::HELP;
use crate::args::{self, Mode, One};
use crate::corpus;
use crate::json;
use crate::kill;
use crate::ledger::Tamper;
use crate::runner;
use crate::scenario::{Limits, Scenario};
use crate::shrink;
use crate::world::Options;
use std::io::Write as _;
use std::sync::atomic::AtomicBool;

/// Why the command ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Invalid arguments; the text says why.
    Usage(String),
    /// Another error; the text says what to do.
    Failed(String),
    /// The reader of the output has closed it.
    Unread,
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// Prints a line.
///
/// # Errors
/// The output is closed, or its file system is full.
pub(crate) fn say(line: &str) -> Result<(), Trouble> {
    let mut out = std::io::stdout().lock();
    let done = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n"));
    done.and_then(|()| out.flush()).map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => Trouble::Unread,
        _ => Trouble::Failed(format!("cannot write the output: {e}")),
    })
}

/// Runs the command, until `stop` is set at the latest. `Ok(false)`: it ran and found violations.
///
/// # Errors
/// Invalid arguments, or files that cannot be read or written; the text says what to do.
pub fn cli(args: &[String], stop: &AtomicBool) -> Result<bool, Trouble> {
    let asked = args::parse(args).map_err(Trouble::Usage)?;
    runner::panics_keep();
    if let Some(n) = asked.planted {
        kill::plant(n).map_err(Trouble::Usage)?;
    }
    match asked.mode {
        Mode::Help => say(HELP).map(|()| true),
        Mode::Bugs => {
            kill::plant(0).map_err(Trouble::Usage)?;
            for (n, name, area) in kill::bugs() {
                say(&format!("{n} {name} ({area})"))?;
            }
            Ok(true)
        }
        Mode::Table(table) => {
            kill::plant(0).map_err(Trouble::Usage)?;
            kill::run(&table, stop)
        }
        Mode::Canary => canary(),
        Mode::Corpus(file) => corpus_run(&file),
        Mode::One(one) => look(&one),
        Mode::Many(plan) => {
            let sum = runner::run_many(&plan, stop);
            if asked.json {
                say(&json::summary(&sum))?;
                return Ok(sum.failures.is_empty());
            }
            say(sum.text().trim_end())?;
            if let Some(f) = sum.failures.first() {
                say(&format!("look at it with: srd check --seed {} --trace", f.seed))?;
            }
            Ok(sum.failures.is_empty())
        }
    }
}

/// Runs one seed and prints the verdict; on failure shrinks the world.
fn look(one: &One) -> Result<bool, Trouble> {
    let seed = one.seed;
    let s = Scenario::from_seed(seed, Limits::NONE);
    say(&format!("seed {seed}: {:?}, {} hosts, faults: {}", s.workload, s.hosts, s.classes))?;
    let first = runner::check_twice(&s);
    let mut limits = Limits::NONE;
    if let Some(v) = &first.violation {
        say(&format!("broken: {:?} at {:.3} us: {}", v.oracle, v.at as f64 / 1e6, v.what))?;
        if !one.whole
            && let Some(small) = shrink::shrink(seed)
        {
            limits = small.limits;
            say(&format!("still fails with faults: {}, {}", small.classes, small.limits))?;
            say(&format!("after {} tries: {}", small.tries, small.violation.what))?;
        }
    } else {
        say(&format!("every promise kept; {:?}", first.tally))?;
    }
    if one.trace {
        let s = Scenario::from_seed(seed, limits);
        let traced = runner::check(&s, Options { trace: true, ..Options::default() });
        let Some(trace) = traced.trace else {
            return Err(Trouble::Failed("the world panics, so there is no trace".into()));
        };
        for line in s.describe().iter().chain(&trace.lines) {
            say(line)?;
        }
        let file = one.pcap.clone().unwrap_or_else(|| format!("seed-{seed}.pcapng"));
        std::fs::write(&file, trace.pcapng()).map_err(|e| format!("cannot write {file}: {e}"))?;
        say(&format!("{} packets written to {file}", trace.packets.len()))?;
    }
    Ok(first.violation.is_none())
}

fn corpus_run(file: &str) -> Result<bool, Trouble> {
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
            say(&format!("seed {} ({}): {:?}: {}", e.seed, e.story, v.oracle, v.what))?;
        }
    }
    say(&format!("corpus: {} seeds, {broken} broken", entries.len()))?;
    Ok(broken == 0)
}

/// Breaks the harness on purpose; the oracles must detect each fault within 100 seeds.
fn canary() -> Result<bool, Trouble> {
    let mut awake = true;
    for tamper in [Tamper::CopyDropped, Tamper::CopyLate, Tamper::WrongBytes] {
        let noticed = (0..100).find(|&seed| {
            let s = Scenario::from_seed(seed, Limits::NONE);
            runner::check(&s, Options { tamper, trace: false }).violation.is_some()
        });
        say(&match noticed {
            Some(seed) => format!("canary {tamper:?}: detected at seed {seed}"),
            None => format!("canary {tamper:?}: not detected in 100 seeds: an oracle is broken"),
        })?;
        awake &= noticed.is_some();
    }
    Ok(awake)
}
