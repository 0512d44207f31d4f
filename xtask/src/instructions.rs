//! `bench-instructions`: instructions per operation of the core and of a device, by callgrind.
//!
//! Counts hardly depend on the machine or its load, so growth by a few percent is real: the core
//! reads no clock, and the device's program has one of its own, which moves with each reading. Each
//! scenario of `bench/instructions` runs for N and for 2N operations; the difference divided by N
//! excludes the setup.

use crate::{
    Result,
    args::Args,
    process::{self, cargo, command, output, run},
    tools,
};
use std::{collections::BTreeMap, fs, path::Path};

/// File with the counts of the last accepted state.
const TABLE: &str = "bench/instructions/table.csv";
/// The programs of `bench/instructions`: the core alone, and a device.
const PROGRAMS: [&str; 2] = ["srd-bench", "srd-bench-device"];
/// Largest accepted growth.
const GROWTH_MAX_PERCENT: f64 = 5.0;
/// Variables by which `.ci/run` has other programs built without link-time optimization.
const PROFILE: [&str; 2] = ["CARGO_PROFILE_RELEASE_LTO", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS"];
/// First line of the file.
const TITLE: &str = "scenario,instructions_per_operation";

type Table = BTreeMap<String, f64>;

/// `bench-instructions [--update]`.
pub fn run_command(args: &mut Args) -> Result {
    let update = args.flag("--update");
    args.end()?;
    compare(update)
}

/// Counts instructions and compares them with the table, or rewrites the table.
pub fn compare(update: bool) -> Result {
    tools::ensure(&["valgrind"])?;
    let path = process::root().join(TABLE);
    let old = match fs::read_to_string(&path) {
        Ok(text) => parse(&text)?,
        Err(_) if update => Table::new(),
        Err(e) => return Err(format!("cannot read {TABLE}: {e}")),
    };
    let mut new = Table::new();
    let mut wrong = Vec::new();
    for program in PROGRAMS {
        let path = build(program)?;
        for line in output(&mut command(&path, &["scenarios"]))?.lines() {
            let scenario = Scenario::parse(line)?;
            let once = count(&path, &scenario, scenario.operations)?;
            let twice = count(&path, &scenario, 2 * scenario.operations)?;
            let each = twice.saturating_sub(once) as f64 / scenario.operations as f64;
            println!("{:<16} {each:>10.1} instructions per operation", scenario.name);
            let before = old.get(&scenario.name).copied().filter(|_| !update);
            wrong.extend(judge(&scenario.name, before, each));
            new.insert(scenario.name, each);
        }
    }
    if update {
        fs::write(&path, print(&new)).map_err(|e| format!("cannot write {TABLE}: {e}"))?;
        println!("wrote {TABLE}");
        return Ok(());
    }
    wrong.extend(gone(&old, &new));
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err("instruction counts differ from the table; if this is intended, run \
         `cargo xtask bench-instructions --update` and explain the change in the commit"
        .into())
}

/// Builds the programs that the gate runs.
pub fn prebuild() -> Result {
    PROGRAMS.iter().try_for_each(|name| build(name).map(|_| ()))
}

/// Builds a program as it is shipped, whatever the environment says of the release profile.
fn build(name: &str) -> Result<String> {
    let mut c = cargo(&["build", "--release", "-p", "srd-bench", "--bin", name]);
    for variable in PROFILE {
        c.env_remove(variable);
    }
    run(&mut c)?;
    Ok(process::target_dir().join("release").join(name).to_string_lossy().into_owned())
}

/// `bench-core [--seconds N]`.
pub fn bench_core(args: &mut Args) -> Result {
    let seconds: u64 = args.value("--seconds")?.unwrap_or(3);
    args.end()?;
    let program = tools::build_release("srd-bench", "srd-bench")?;
    run(&mut command(&program.to_string_lossy(), &["core", &seconds.to_string()]))
}

/// A scenario as listed by the benchmark program: `name operations function...`.
struct Scenario {
    name: String,
    operations: u64,
    /// Functions whose entry and exit toggle counting.
    toggles: Vec<String>,
}

impl Scenario {
    fn parse(line: &str) -> Result<Self> {
        let fail = || format!("srd-bench scenarios: cannot read `{line}`");
        let mut words = line.split_whitespace();
        let name = words.next().ok_or_else(fail)?.into();
        let operations = words.next().and_then(|w| w.parse().ok()).ok_or_else(fail)?;
        Ok(Self { name, operations, toggles: words.map(String::from).collect() })
    }
}

/// Counts the instructions of one run.
fn count(program: &str, scenario: &Scenario, operations: u64) -> Result<u64> {
    let file = process::target_dir().join(format!("callgrind.{}", scenario.name));
    let mut c = command("valgrind", &["--tool=callgrind", "--quiet"]);
    c.arg(format!("--callgrind-out-file={}", file.display()));
    for function in &scenario.toggles {
        // Function names are mangled; the wildcards match the surrounding text.
        c.arg(format!("--toggle-collect=*{function}*"));
    }
    c.args([program, "run", &scenario.name, &operations.to_string()]);
    output(&mut c)?;
    totals(&file)
}

/// The sum at the end of callgrind's output file.
fn totals(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file)
        .map_err(|e| format!("cannot read callgrind's {}: {e}", file.display()))?;
    let sum = text.lines().find_map(|l| l.strip_prefix("totals: ")?.trim().parse().ok());
    match sum {
        Some(n) if n > 0 => Ok(n),
        _ => Err(format!("callgrind counted nothing ({})", file.display())),
    }
}

fn parse(text: &str) -> Result<Table> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(format!("{TABLE} must begin with `{TITLE}`"));
    }
    let entry = |line: &str| {
        let (name, figure) = line.split_once(',')?;
        Some((name.to_string(), figure.parse().ok()?))
    };
    lines.map(|l| entry(l).ok_or_else(|| format!("{TABLE}: cannot read `{l}`"))).collect()
}

fn print(table: &Table) -> String {
    let line = |(name, figure): (&String, &f64)| format!("{name},{figure:.1}\n");
    format!("{TITLE}\n{}", table.iter().map(line).collect::<String>())
}

/// An error for growth beyond the limit, and for a scenario that is not in the table. Prints
/// improvements.
fn judge(name: &str, before: Option<f64>, now: f64) -> Option<String> {
    let Some(before) = before else {
        return Some(format!("{name}: not in the table"));
    };
    let percent = (now - before) / before * 100.0;
    if percent < -GROWTH_MAX_PERCENT {
        println!("{name}: {before:.1} -> {now:.1} ({percent:.1} %): --update records the gain");
    }
    (percent > GROWTH_MAX_PERCENT)
        .then(|| format!("{name}: {before:.1} -> {now:.1} instructions (+{percent:.1} %)"))
}

/// Errors: scenarios that are only in the table.
fn gone(old: &Table, new: &Table) -> Vec<String> {
    let names = old.keys().filter(|name| !new.contains_key(*name));
    names.map(|name| format!("{name}: in the table, but there is no such scenario")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, f64)]) -> Table {
        entries.iter().map(|(n, f)| ((*n).to_string(), *f)).collect()
    }

    #[test]
    fn table_survives_writing_and_reading() {
        let t = table(&[("ack", 120.5), ("send", 300.0)]);
        assert_eq!(parse(&print(&t)).unwrap(), t);
        assert!(parse("send,1\n").is_err());
        assert!(parse(&format!("{TITLE}\nsend\n")).is_err());
    }

    #[test]
    fn growth_fails_and_gains_do_not() {
        assert_eq!(judge("send", Some(100.0), 104.9), None);
        assert_eq!(judge("send", Some(100.0), 60.0), None);
        assert!(judge("send", Some(100.0), 105.2).unwrap().contains("+5.2 %"));
        assert!(judge("recv", None, 1.0).is_some());
        assert_eq!(gone(&table(&[("send", 100.0)]), &table(&[("recv", 1.0)])).len(), 1);
    }
}
