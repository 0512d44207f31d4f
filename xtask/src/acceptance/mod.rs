//! `acceptance`: programs from outside, unmodified, on hosts of a fabric with two ways. Each must
//! do its job, and its bytes must be seen by the device and by both spines.

mod application;
mod cases;
mod fabric;
mod mpi4py;

use crate::{
    Result,
    args::Args,
    process::{command, output, root, run, target_dir},
    tools, verbs,
};
use cases::{CASES, Case};
use fabric::Fabric;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

const DOCUMENT: &str = "docs/compatibility.md";
const BEGIN: &str = "<!-- made by `cargo xtask acceptance --update` -->";
const END: &str = "<!-- end of what is made -->";
/// Bytes below which a job is too small to be seen on every spine.
const SEEN_BYTES_MIN: u64 = 4096;

/// How a case ended.
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// `acceptance [--short] [--update] [--only WORD] [--srd PROGRAM] [--verbs DIR]
/// [--mpi4py-src DIR]`.
pub fn run_command(args: &mut Args) -> Result {
    let (short, update) = (args.flag("--short"), args.flag("--update"));
    let only: Option<String> = args.value("--only")?;
    let given = Given {
        srd: args.value("--srd")?,
        verbs: args.value("--verbs")?,
        mpi4py: args.value("--mpi4py-src")?,
    };
    args.end()?;
    if update && (short || only.is_some()) {
        return Err("--update wants all cases".into());
    }
    acceptance(short, only.as_deref(), update, &given)
}

/// The short set, for the gate.
pub fn short() -> Result {
    acceptance(true, None, false, &Given::default())
}

/// What is given instead of being built, or cannot be had otherwise.
#[derive(Default)]
struct Given {
    srd: Option<PathBuf>,
    verbs: Option<PathBuf>,
    /// The source of mpi4py, with its tests.
    mpi4py: Option<PathBuf>,
}

/// A line of the table: program, what ran, how it ended.
type Row = (String, String, Outcome);

fn acceptance(short: bool, only: Option<&str>, update: bool, given: &Given) -> Result {
    let chosen = |c: &&Case| (c.short || !short) && only.is_none_or(|word| c.name.contains(word));
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let srd = match &given.srd {
        Some(program) => program.clone(),
        None => tools::build_release("srd-cli", "srd")?,
    };
    let verbs = match &given.verbs {
        Some(folder) => folder.clone(),
        None => verbs::build(None)?,
    };
    let folder = target_dir().join("acceptance");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    if installed("mpicc") {
        let source = root().join("bindings/ibverbs/tests/programs/mpi_check.c");
        let mut c = command("mpicc", &["-O2", "-Wall", "-Werror", "-o"]);
        run(c.arg(folder.join("mpi_check")).arg(source))?;
    }
    let fabric = match Fabric::up(srd, verbs, folder) {
        Ok(fabric) => fabric,
        Err(e) => {
            println!("SKIPPED: acceptance, all of it: {e}");
            return Ok(());
        }
    };
    let mut rows: Vec<Row> = Vec::new();
    for case in cases {
        let began = Instant::now();
        let outcome = one(case, &fabric);
        told(case.name, began, &outcome);
        rows.push((version(case.needs), case.name.to_owned(), outcome));
    }
    if !short {
        rows.extend(mpi4py_rows(&fabric, only, given.mpi4py.as_deref()));
    }
    if update {
        document_write(&rows)?;
    }
    let failed = rows.iter().filter(|(_, _, o)| matches!(o, Outcome::Failed(_))).count();
    let skipped = rows.iter().filter(|(_, _, o)| matches!(o, Outcome::Skipped(_))).count();
    println!("acceptance: {} cases, {failed} failed, {skipped} skipped", rows.len());
    if failed == 0 { Ok(()) } else { Err(format!("{failed} outside programs failed")) }
}

/// Says how one ended.
fn told(name: &str, began: Instant, outcome: &Outcome) {
    let seconds = began.elapsed().as_secs_f64();
    match outcome {
        Outcome::Passed(remark) => println!("pass   {seconds:>5.1} s  {name}  {remark}"),
        Outcome::Failed(why) => println!("FAIL   {seconds:>5.1} s  {name}  {why}"),
        Outcome::Skipped(why) => println!("SKIPPED          {name}: {why}"),
    }
}

/// mpi4py's own tests, on two and on four ranks.
fn mpi4py_rows(fabric: &Fabric, only: Option<&str>, source: Option<&Path>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ranks in [2, 4] {
        let name = format!("mpi4py's own tests, {ranks} ranks on 2 hosts");
        if only.is_some_and(|word| !name.contains(word)) {
            continue;
        }
        let began = Instant::now();
        let outcome = match source.map(|s| mpi4py::ready(s).map(|()| s)) {
            None => Outcome::Skipped("name the unpacked source with --mpi4py-src DIR".into()),
            Some(Err(why)) => Outcome::Skipped(why),
            Some(Ok(source)) => match mpi4py::run(fabric, source, ranks) {
                Ok(remark) => Outcome::Passed(remark),
                Err(why) => Outcome::Failed(why),
            },
        };
        told(&name, began, &outcome);
        rows.push((version("mpi4py"), name, outcome));
    }
    rows
}

fn one(case: &Case, fabric: &Fabric) -> Outcome {
    if !installed(case.needs) {
        let why = format!("{} is not installed; `sh scripts/apt-ensure {0}`", case.needs);
        return Outcome::Skipped(why);
    }
    let judged = || {
        let before = fabric.spine_bytes()?;
        let remark = (case.run)(fabric)?;
        let after = fabric.spine_bytes()?;
        let grown: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        if case.travels && grown.iter().any(|&bytes| bytes < SEEN_BYTES_MIN) {
            return Err(format!("a spine saw nothing of it: {grown:?} bytes"));
        }
        Ok(remark)
    };
    match judged() {
        Ok(remark) => Outcome::Passed(remark),
        Err(why) => Outcome::Failed(why),
    }
}

fn installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status();
    found.is_ok_and(|s| s.success())
}

/// Version of the package that a program is of.
fn version(program: &str) -> String {
    let (package, name) = match program {
        "ibv_devinfo" => ("ibverbs-utils", "rdma-core"),
        "fi_pingpong" => ("libfabric-bin", "libfabric"),
        "ib_send_bw" => ("perftest", "perftest"),
        "lmp" => ("lammps", "LAMMPS"),
        "mpi4py" => ("python3-mpi4py", "mpi4py"),
        _ => ("openmpi-bin", "Open MPI"),
    };
    let asked = output(&mut command("dpkg-query", &["-W", "-f", "${Version}", package]));
    format!("{name} {}", asked.map_or_else(|_| "?".into(), |v| v.trim().to_owned()))
}

/// Replaces the table in the document.
fn document_write(rows: &[Row]) -> Result {
    let mut table = String::from("| program | what ran | result | remark |\n|---|---|---|---|\n");
    for (program, what, outcome) in rows {
        let (word, remark) = match outcome {
            Outcome::Passed(remark) => ("pass", remark.clone()),
            Outcome::Failed(why) => ("**fail**", why.lines().next().unwrap_or("").to_owned()),
            Outcome::Skipped(why) => ("skipped", why.clone()),
        };
        let _ = writeln!(table, "| {program} | {what} | {word} | {remark} |");
    }
    let path = root().join(DOCUMENT);
    replace(&path, &table)?;
    println!("{DOCUMENT} written");
    Ok(())
}

fn replace(path: &Path, table: &str) -> Result {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(head, rest)| {
        let (_, foot) = rest.split_once(END)?;
        Some((head, foot))
    });
    let Some((head, foot)) = parts else {
        return Err(format!("{} has no place for the table", path.display()));
    };
    let new = format!("{head}{BEGIN}\n\n{table}\n{END}{foot}");
    fs::write(path, new).map_err(|e| format!("{}: {e}", path.display()))
}
