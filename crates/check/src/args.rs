//! The arguments of `srd check`.

use crate::class::{Class, Classes};
use crate::kill;
use crate::runner::Plan;
use std::time::Duration;

/// Text of `--help`.
pub const HELP: &str = "\
Fault checker: runs the SRD core in simulated worlds with random faults and checks its promises.

Usage: srd check [OPTIONS]              run many worlds, each made from a seed
       srd check --seed S [OPTIONS]     run one world
       srd check --corpus FILE          run every seed that ever failed (`-`: the built-in list)
       srd check --canary               break the harness on purpose: the oracles must detect it
       srd check bugs                   list the planted bugs of this build
       srd check kill-table [OPTIONS]   measure how many seeds detect each planted bug

Many worlds
  --seeds N        number of worlds (default 1000)
  --minutes M      run for M minutes instead of a number of worlds
  --first S        first seed (default 0)
  --with CLASS     skip worlds without this class of faults (Loss, Liar, Flood, ...)
  --threads T      threads (default: all cores); they do not change the result
  --json           print the summary as one line of JSON, with the hash of all worlds

One world
  --seed S         its seed; a failing world is shrunk to what it needs to fail
  --trace          print its events, and write its packets as a capture
  --whole          with --trace: do not shrink the world
  --pcap FILE      with --trace: file of the capture (default seed-S.pcapng)

Planted bugs (only in a build with RUSTFLAGS=\"--cfg planted_bugs\")
  --planted N      run one world or many with bug N
  --blocks B       kill-table: independent blocks of seeds per bug (default 20)
  --limit L        kill-table: seeds after which a block ends undetected (default 1000)
  --only N,N...    kill-table: measure these bugs only
  --write FILE     kill-table: replace the table (with --only: these rows) in this document

Examples:
  srd check --minutes 10               check for ten minutes on all cores
  srd check --seed 7 --trace | less    see what happens in world 7

The first Ctrl-C ends the run and prints its summary, the second one ends it at once.
Exit code: 0 no violation, 1 a promise was violated, 2 wrong usage.";

/// The requested command.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Many worlds.
    Many(Plan),
    /// One world.
    One(One),
    /// The seeds of a corpus file.
    Corpus(String),
    /// Deliberate faults of the harness.
    Canary,
    /// The table of planted bugs.
    Table(kill::Table),
    /// The list of planted bugs.
    Bugs,
    /// The usage text.
    Help,
}

/// Options for one world.
#[derive(Debug, Default)]
pub(crate) struct One {
    pub seed: u64,
    pub trace: bool,
    pub whole: bool,
    pub pcap: Option<String>,
}

/// Options of a run with a planted bug.
#[derive(Debug)]
pub(crate) struct Asked {
    pub mode: Mode,
    pub planted: Option<u32>,
    /// The summary as JSON.
    pub json: bool,
}

/// Options given and not yet used, each with its value ("" for a flag).
struct Given(Vec<(String, String)>);

/// Options without a value.
const FLAGS: [&str; 4] = ["--trace", "--whole", "--canary", "--json"];
/// Options with a value.
const VALUES: [&str; 13] = [
    "--seeds",
    "--minutes",
    "--first",
    "--threads",
    "--seed",
    "--pcap",
    "--corpus",
    "--planted",
    "--blocks",
    "--limit",
    "--only",
    "--write",
    "--with",
];

impl Given {
    fn read(args: &[String]) -> Result<(Option<String>, Self), String> {
        let (mut word, mut given) = (None, Vec::new());
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let (name, tied) = match arg.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let value = if FLAGS.contains(&name) {
                match tied {
                    None => String::new(),
                    Some(_) => return Err(format!("{name} has no value; see --help")),
                }
            } else if VALUES.contains(&name) {
                let next = tied.or_else(|| rest.next().cloned());
                next.ok_or_else(|| format!("{name} needs a value; see --help"))?
            } else if word.is_none() && ["bugs", "kill-table"].contains(&name) {
                word = Some(name.to_owned());
                continue;
            } else {
                return Err(format!("`{arg}` is not known; see --help"));
            };
            if given.iter().any(|(n, _)| n == name) {
                return Err(format!("{name} is given twice"));
            }
            given.push((name.to_owned(), value));
        }
        Ok((word, Self(given)))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    /// A whole number, at least `least`.
    fn number(&mut self, name: &str, least: u64) -> Result<Option<u64>, String> {
        self.take(name).map(|text| number(name, &text, least)).transpose()
    }

    /// Refuses options that `what` does not use.
    fn end(&self, what: &str) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("{name} means nothing with {what}; see --help")),
        }
    }
}

fn number(name: &str, text: &str, least: u64) -> Result<u64, String> {
    match text.replace('_', "").parse() {
        Ok(n) if n >= least => Ok(n),
        Ok(_) => Err(format!("{name} {text}: at least {least}")),
        Err(_) => Err(format!("{name} needs a whole number below 2^64, not `{text}`")),
    }
}

/// Parses the number of a planted bug.
fn bug(name: &str, text: &str) -> Result<u32, String> {
    let n = number(name, text, 1)?;
    u32::try_from(n).map_err(|_| format!("{name}: there is no bug {n}; `bugs` lists them"))
}

/// Parses the arguments.
pub(crate) fn parse(args: &[String]) -> Result<Asked, String> {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        return Ok(Asked { mode: Mode::Help, planted: None, json: false });
    }
    let (word, mut given) = Given::read(args)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = given.number("--threads", 1)?;
    let threads = threads.map_or(cores, |t| t.min(1024) as usize);
    let planted = given.take("--planted").map(|text| bug("--planted", &text)).transpose()?;
    let (mode, what) = match word.as_deref() {
        Some("bugs") => (Mode::Bugs, "bugs"),
        Some(_) => (Mode::Table(table(&mut given, threads)?), "kill-table"),
        None => world(&mut given, threads)?,
    };
    let json = matches!(mode, Mode::Many(_)) && given.flag("--json");
    given.end(what)?;
    if planted.is_some() && !matches!(mode, Mode::Many(_) | Mode::One(_)) {
        return Err(format!("--planted means nothing with {what}; see --help"));
    }
    Ok(Asked { mode, planted, json })
}

fn table(given: &mut Given, threads: usize) -> Result<kill::Table, String> {
    let usual = kill::Table::default();
    let only = given.take("--only").unwrap_or_default();
    let only = only.split(',').filter(|n| !n.is_empty()).map(|n| bug("--only", n));
    Ok(kill::Table {
        blocks: given.number("--blocks", 1)?.unwrap_or(usual.blocks),
        limit: given.number("--limit", 1)?.unwrap_or(usual.limit),
        only: only.collect::<Result<_, _>>()?,
        write: given.take("--write"),
        threads,
    })
}

fn world(given: &mut Given, threads: usize) -> Result<(Mode, &'static str), String> {
    if let Some(file) = given.take("--corpus") {
        return Ok((Mode::Corpus(file), "--corpus"));
    }
    if given.flag("--canary") {
        return Ok((Mode::Canary, "--canary"));
    }
    if let Some(seed) = given.number("--seed", 0)? {
        let (trace, whole) = (given.flag("--trace"), given.flag("--whole"));
        let pcap = given.take("--pcap");
        if (whole || pcap.is_some()) && !trace {
            return Err("--whole and --pcap need --trace".into());
        }
        return Ok((Mode::One(One { seed, trace, whole, pcap }), "--seed"));
    }
    if ["--trace", "--whole", "--pcap"].into_iter().any(|name| given.flag(name)) {
        return Err("--trace, --whole and --pcap look at one world: name its --seed".into());
    }
    if ["--blocks", "--limit", "--only", "--write"].into_iter().any(|name| given.flag(name)) {
        return Err("--blocks, --limit, --only and --write belong to kill-table".into());
    }
    let seeds = given.number("--seeds", 1)?;
    let time = given.take("--minutes").map(|text| minutes(&text)).transpose()?;
    let usual = if time.is_some() { u64::MAX } else { 1000 };
    let first = given.number("--first", 0)?.unwrap_or(0);
    let with = given.take("--with").map(|text| class(&text)).transpose()?;
    let plan = Plan { time, with, tell: true, ..Plan::new(first, seeds.unwrap_or(usual), threads) };
    Ok((Mode::Many(plan), "many worlds"))
}

fn class(text: &str) -> Result<Class, String> {
    let named = |c: &Class| format!("{c:?}").eq_ignore_ascii_case(text);
    let all = || Classes::ALL.to_string();
    let found = Class::ALL.into_iter().find(named);
    found.ok_or_else(|| format!("--with {text}: no such class; there are: {}", all()))
}

fn minutes(text: &str) -> Result<Duration, String> {
    let wrong = || format!("--minutes needs a number above 0, not `{text}`");
    let minutes: f64 = text.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| wrong())?;
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (line, word) in [
            ("--seeds x", "whole number"),
            ("--seeds -1", "whole number"),
            ("--seeds 0", "at least 1"),
            ("--threads 0", "at least 1"),
            ("--minutes nan", "above 0"),
            ("--minutes 0", "above 0"),
            ("--minutes -3", "above 0"),
            ("--seed", "needs a value"),
            ("--seed 99999999999999999999", "2^64"),
            ("--trace", "--seed"),
            ("--seed 1 --whole", "--trace"),
            ("--seed 1 --seeds 5", "--seeds means nothing"),
            ("--seed 1 --seed 2", "twice"),
            ("--seed 1 --json", "--json means nothing with --seed"),
            ("--canary=yes", "no value"),
            ("--canary --corpus -", "--canary means nothing"),
            ("--sedes 5", "--help"),
            ("--with nothing", "there are: Loss"),
            ("corpus", "--help"),
            ("bugs kill-table", "--help"),
            ("--blocks 5", "kill-table"),
            ("kill-table --only 1,x", "`x`"),
            ("kill-table --planted 3", "--planted means nothing"),
            ("--planted 4294967297", "no bug 4294967297"),
        ] {
            let why = asked(line).unwrap_err();
            assert!(why.contains(word), "{line}: {why}");
        }
    }

    #[test]
    fn what_makes_sense_is_understood() {
        let Mode::Many(plan) = asked("--minutes=2 --first 1_000 --threads 3").unwrap().mode else {
            panic!("many worlds");
        };
        assert_eq!((plan.first, plan.seeds, plan.threads), (1000, u64::MAX, 3));
        assert_eq!(plan.time, Some(Duration::from_secs(120)));
        let Mode::Many(plan) = asked("").unwrap().mode else { panic!("many worlds") };
        assert_eq!((plan.first, plan.seeds, plan.time), (0, 1000, None));
        let Mode::Table(table) = asked("--blocks 2 kill-table --only 1,4").unwrap().mode else {
            panic!("a table");
        };
        assert_eq!((table.blocks, table.limit, table.only), (2, 1000, vec![1, 4]));
        assert!(matches!(asked("--seeds x --help").unwrap().mode, Mode::Help));
    }
}
