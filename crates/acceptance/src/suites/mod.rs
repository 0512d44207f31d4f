//! `acceptance`: unmodified programs run on hosts of a fabric with two paths. Each must succeed,
//! and its bytes must be counted by the device and by both spines.

mod application;
mod cases;
mod clients;
mod coarrays;
mod counters;
mod fabric;
mod fabtests;
mod hdf5;
mod hpcc;
mod impi;
mod kubernetes;
mod mpi4py;
mod openfoam;
mod petsc;
mod prometheus;
mod pyverbs;
mod rails;
mod sealed;
mod share;
mod slurm;
mod suite;
mod wheel;

use crate::{
    Result,
    args::Args,
    process::{command, output, root, run, target_dir},
    tools, verbs,
};
use cases::{CASES, Case};
use fabric::{Fabric, Shell};
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
/// What the cases of `apps` need.
const APPS: [&str; 3] = ["lmp", "simpleFoam", "hpcc"];
/// Bytes below which a program may not use every spine.
const SEEN_BYTES_MIN: u64 = 4096;

/// Result of a case.
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// Selection of cases.
#[derive(Default)]
struct Wanted {
    short: bool,
    /// Only the cases of scientific applications.
    apps: bool,
    update: bool,
    /// Each case that communicates, with a key file, instead of without.
    sealed: bool,
    only: Option<String>,
    given: Given,
    clients: clients::Environments,
    suites: suite::Paths,
}

/// `acceptance [--short | --all] [--sealed] [--update] [--only WORD] [--srd PROGRAM] [--verbs DIR]
/// [--mpi4py-src DIR] [--mpi-wheel DIR] [--impi DIR] [--libfabric DIR] [--pyverbs-src DIR]
/// [--fabtests-bin DIR]`, and the options of `clients`.
pub fn run_command(args: &mut Args) -> Result {
    let (short, all) = (args.flag("--short"), args.flag("--all"));
    if short && all {
        return Err("--short is a part, --all (also without it) is everything: give one".into());
    }
    let wanted = Wanted {
        short,
        apps: false,
        update: args.flag("--update"),
        sealed: args.flag("--sealed"),
        only: args.value("--only")?,
        given: Given {
            srd: args.value("--srd")?,
            verbs: args.value("--verbs")?,
            mpi4py: args.value("--mpi4py-src")?,
            wheel: args.value("--mpi-wheel")?,
            impi: args.value("--impi")?,
            libfabric: args.value("--libfabric")?,
        },
        clients: clients::Environments::take(args)?,
        suites: suite::Paths::take(args)?,
    };
    args.end()?;
    acceptance(&wanted)
}

/// `apps [--update] [--only WORD] [--srd PROGRAM] [--verbs DIR]`: the scientific applications
/// alone.
pub fn apps_command(args: &mut Args) -> Result {
    let wanted = Wanted {
        apps: true,
        update: args.flag("--update"),
        only: args.value("--only")?,
        given: Given {
            srd: args.value("--srd")?,
            verbs: args.value("--verbs")?,
            ..Given::default()
        },
        ..Wanted::default()
    };
    args.end()?;
    acceptance(&wanted)
}

/// Runs the short set, for the gate.
pub fn short() -> Result {
    acceptance(&Wanted { short: true, ..Wanted::default() })
}

/// Programs and folders given on the command line.
#[derive(Default)]
struct Given {
    srd: Option<PathBuf>,
    verbs: Option<PathBuf>,
    /// Source folder of mpi4py, with its tests.
    mpi4py: Option<PathBuf>,
    /// A virtual environment with Open MPI 5.
    wheel: Option<PathBuf>,
    /// A virtual environment with Intel MPI.
    impi: Option<PathBuf>,
    /// Prefix below which a libfabric is installed.
    libfabric: Option<PathBuf>,
}

/// A case that uses the wheel in a folder.
type Job = Box<dyn Fn(&Fabric, &Path) -> Result<String>>;
/// A row of the table: program, what ran, result.
type Row = (String, String, Outcome);

fn acceptance(wanted: &Wanted) -> Result {
    let (only, given) = (wanted.only.as_deref(), &wanted.given);
    let chosen = |c: &&Case| {
        (c.short || !wanted.short)
            && (!wanted.apps || APPS.contains(&c.needs))
            && only.is_none_or(|word| c.name.contains(word))
    };
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    if wanted.update && wanted.short {
        return Err(
            "--update requires all cases, or those that --only names: give it without --short"
                .into(),
        );
    }
    let suites = wanted.suites.open()?;
    let srd = match &given.srd {
        Some(program) => program.clone(),
        None => tools::build_tool()?,
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
    let rows = if wanted.sealed {
        fabric.segment()?;
        fabric.sealed(|| rows_of(wanted, cases, &fabric))
    } else {
        let short = sealed::short(&cases);
        let mut rows = rows_of(wanted, cases, &fabric);
        if wanted.short {
            fabric.segment()?;
            rows.extend(fabric.sealed(|| rows_of(wanted, short, &fabric)));
        }
        rows
    };
    if wanted.update && !rows.is_empty() {
        document_write(&rows, only.is_some() || wanted.apps || wanted.sealed)?;
    }
    let unexpected = if wanted.short || wanted.apps || wanted.sealed {
        0
    } else {
        suites.run(&fabric, only, wanted.update)?
    };
    let fails = rows.iter().filter(|(_, _, o)| matches!(o, Outcome::Failed(_)));
    let names: Vec<&str> = fails.map(|(_, name, _)| name.as_ref()).collect();
    let failed = names.len();
    let skipped = rows.iter().filter(|(_, _, o)| matches!(o, Outcome::Skipped(_))).count();
    println!("acceptance: {} cases, {failed} failed, {skipped} skipped", rows.len());
    match (failed, unexpected) {
        (0, 0) => Ok(()),
        (_, 0) => Err(format!("{failed} outside programs failed: {}", names.join("; "))),
        _ => Err(format!(
            "{failed} outside programs failed, {unexpected} tests of suites not as expected"
        )),
    }
}

/// Runs the cases, and programs in given folders.
fn rows_of(wanted: &Wanted, cases: Vec<&Case>, fabric: &Fabric) -> Vec<Row> {
    let (only, given) = (wanted.only.as_deref(), &wanted.given);
    let mut rows: Vec<Row> = Vec::new();
    for case in cases.into_iter().filter(|case| case.travels || !fabric.is_sealed()) {
        let began = Instant::now();
        let outcome = one(case, fabric);
        let name = sealed::name(fabric, case.name);
        report(&name, began, &outcome);
        rows.push((version(case.needs), name, outcome));
    }
    if !wanted.short && !wanted.apps {
        rows.extend(wheel_rows(fabric, only, given.wheel.as_deref()));
        rows.extend(impi_rows(fabric, only, given.impi.as_deref()));
        rows.extend(libfabric_rows(fabric, only, given.libfabric.as_deref()));
        rows.extend(slurm_rows(fabric, only));
        rows.extend(kubernetes_rows(fabric, only));
        rows.extend(prometheus_rows(fabric, only));
        rows.extend(futures_rows(fabric, only, given.wheel.as_deref()));
        rows.extend(wanted.clients.rows(fabric, only));
        // The table of mpi4py's tests in the document is that of a run without a seal.
        let update = wanted.update && !wanted.sealed;
        rows.extend(mpi4py_rows(fabric, only, given.mpi4py.as_deref(), update));
    }
    rows
}

/// Prints the result of a case.
fn report(name: &str, began: Instant, outcome: &Outcome) {
    let seconds = began.elapsed().as_secs_f64();
    match outcome {
        Outcome::Passed(remark) => println!("pass   {seconds:>5.1} s  {name}  {remark}"),
        Outcome::Failed(why) => println!("FAIL   {seconds:>5.1} s  {name}  {why}"),
        Outcome::Skipped(why) => println!("SKIPPED          {name}: {why}"),
    }
}

/// Runs Open MPI 5 and libfabric from PyPI wheels, if a folder with them is given.
fn wheel_rows(fabric: &Fabric, only: Option<&str>, folder: Option<&Path>) -> Vec<Row> {
    let mut jobs: Vec<(String, Job)> = Vec::new();
    for ranks in [2, 4] {
        let name = format!("Open MPI of PyPI, {ranks} ranks on 2 hosts, up to 64 KiB");
        let by = Shell::Ordinary;
        jobs.push((name, Box::new(move |f, folder| wheel::run(f, folder, ranks, by))));
    }
    let name = "Open MPI of PyPI, the caller's variables by a shell that passes none".to_owned();
    jobs.push((name, Box::new(|f, folder| wheel::run(f, folder, 2, Shell::Bare))));
    let name = "Open MPI of PyPI over UCX's `srd`, 2 ranks on 2 hosts, up to 64 KiB".to_owned();
    jobs.push((name, Box::new(|f, folder| wheel::ucx(f, folder, 2))));
    for kind in ["efa-direct", "efa"] {
        let name = format!("libfabric of that wheel, fabric `{kind}`: send, RDMA write, RDMA read");
        jobs.push((name, Box::new(move |f, folder| wheel::libfabric(f, folder, kind))));
    }
    let found = of_venv(folder, "--mpi-wheel", wheel::version);
    job_rows(fabric, only, "Open MPI 5 (wheel)", &found, jobs)
}

/// Runs Intel MPI from PyPI wheels, if a folder with it is given.
fn impi_rows(fabric: &Fabric, only: Option<&str>, folder: Option<&Path>) -> Vec<Row> {
    let mut jobs: Vec<(String, Job)> = Vec::new();
    for ranks in [2, 4] {
        let name = format!("Intel MPI of PyPI, {ranks} ranks on 2 hosts, up to 64 KiB");
        let by = Shell::Ordinary;
        jobs.push((name, Box::new(move |f, folder| impi::run(f, folder, ranks, by))));
    }
    let name = "Intel MPI of PyPI, the caller's variables by a shell that passes none".to_owned();
    jobs.push((name, Box::new(|f, folder| impi::run(f, folder, 2, Shell::Bare))));
    let found = of_venv(folder, "--impi", impi::version);
    job_rows(fabric, only, "Intel MPI (wheel)", &found, jobs)
}

/// Runs a libfabric that was built from its source, if its folder is given.
fn libfabric_rows(fabric: &Fabric, only: Option<&str>, prefix: Option<&Path>) -> Vec<Row> {
    let job = |kind: &'static str| -> (String, Job) {
        let what = "send, RDMA write, RDMA read, counters";
        let name = format!("libfabric from its source, fabric `{kind}`: {what}");
        (name, Box::new(move |f, prefix| wheel::built(f, prefix, kind)))
    };
    let found = prefix.ok_or("name the prefix of an installed libfabric with --libfabric DIR");
    let found = found.map_err(str::to_owned).and_then(|dir| Ok((wheel::built_version(dir)?, dir)));
    job_rows(fabric, only, "libfabric (source)", &found, ["efa-direct", "efa"].map(job).into())
}

/// Runs MPI programs by Slurm, if it is installed and may run here. Its own messages are not
/// sealed.
fn slurm_rows(fabric: &Fabric, only: Option<&str>) -> Vec<Row> {
    if fabric.is_sealed() {
        return Vec::new();
    }
    let jobs: [(&str, Job); 2] = [
        ("Slurm: `srun --mpi=pmix`, 2 ranks on 2 nodes, by the task prolog", Box::new(slurm::srun)),
        ("Slurm: `sbatch` and `mpirun`, 2 ranks on 2 nodes", Box::new(slurm::sbatch)),
    ];
    let jobs = jobs.into_iter().map(|(name, job)| (name.to_owned(), job)).collect();
    let found = slurm::version().map(|version| (version, fabric.folder()));
    job_rows(fabric, only, "Slurm", &found, jobs)
}

/// Validates the manifests for Kubernetes, if the schemas can be had.
fn kubernetes_rows(fabric: &Fabric, only: Option<&str>) -> Vec<Row> {
    let name = "Kubernetes: the manifests of docs/clusters by the schemas, and what they copy";
    if fabric.is_sealed() || only.is_some_and(|word| !name.contains(word)) {
        return Vec::new();
    }
    let began = Instant::now();
    let outcome = match kubernetes::environment(fabric.folder()) {
        Ok(bin) => seen(fabric, false, || kubernetes::run(fabric, &bin)),
        Err(why) => Outcome::Skipped(why),
    };
    report(name, began, &outcome);
    vec![("this project".to_owned(), name.to_owned(), outcome)]
}

/// Has Prometheus evaluate the dashboard. What it reads is not sealed.
fn prometheus_rows(fabric: &Fabric, only: Option<&str>) -> Vec<Row> {
    if fabric.is_sealed() {
        return Vec::new();
    }
    let name =
        "Prometheus scrapes `srd export`, and evaluates the dashboard for Grafana".to_owned();
    let found = prometheus::version().map(|version| (version, fabric.folder()));
    job_rows(fabric, only, "Prometheus", &found, vec![(name, Box::new(prometheus::run))])
}

/// Has the ranks of Open MPI 5 run a sweep of the lab, if the virtual environment has mpi4py and
/// the package of this project.
fn futures_rows(fabric: &Fabric, only: Option<&str>, folder: Option<&Path>) -> Vec<Row> {
    let mut jobs: Vec<(String, Job)> = Vec::new();
    for (over, by_ucx) in [("libfabric", false), ("UCX's `srd`", true)] {
        let name = format!("srd.lab.sweep by mpi4py.futures over {over}, 3 ranks on 2 hosts");
        jobs.push((name, Box::new(move |f, folder| wheel::futures(f, folder, by_ucx))));
    }
    let found = of_venv(folder, "--mpi-wheel", wheel::futures_version);
    job_rows(fabric, only, "mpi4py (wheel)", &found, jobs)
}

/// What is installed in the virtual environment that `option` names, by `version`.
fn of_venv<'a>(
    folder: Option<&'a Path>,
    option: &str,
    version: impl FnOnce(&Path) -> Result<String>,
) -> Result<(String, &'a Path)> {
    let folder = folder.ok_or_else(|| format!("name a virtual environment with {option} DIR"))?;
    Ok((version(folder)?, folder))
}

/// Runs the selected jobs with the version and folder in `found`, or reports why they cannot run.
fn job_rows(
    fabric: &Fabric,
    only: Option<&str>,
    program: &str,
    found: &Result<(String, &Path)>,
    jobs: Vec<(String, Job)>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, job) in jobs {
        if only.is_some_and(|word| !name.contains(word)) {
            continue;
        }
        let began = Instant::now();
        let (program, outcome) = match found {
            Err(why) => (program, Outcome::Skipped(why.clone())),
            Ok((version, folder)) => (version.as_str(), seen(fabric, true, || job(fabric, folder))),
        };
        let name = sealed::name(fabric, &name);
        report(&name, began, &outcome);
        rows.push((program.to_owned(), name, outcome));
    }
    rows
}

/// Runs mpi4py's own tests, on two and on four ranks.
fn mpi4py_rows(
    fabric: &Fabric,
    only: Option<&str>,
    source: Option<&Path>,
    update: bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for ranks in [2, 4] {
        let name = format!("mpi4py's own tests, {ranks} ranks on 2 hosts");
        if only.is_some_and(|word| !name.contains(word)) {
            continue;
        }
        let began = Instant::now();
        let outcome = match source.map(|s| mpi4py::ready(s, ranks).map(|()| s)) {
            None => Outcome::Skipped("name the unpacked source with --mpi4py-src DIR".into()),
            Some(Err(why)) => Outcome::Skipped(why),
            Some(Ok(source)) => {
                // One table is sufficient, because the same tests are left out on four ranks.
                let update = update && ranks == 2;
                seen(fabric, true, || mpi4py::run(fabric, source, ranks, update))
            }
        };
        let name = sealed::name(fabric, &name);
        report(&name, began, &outcome);
        rows.push((version("mpi4py"), name, outcome));
    }
    rows
}

fn one(case: &Case, fabric: &Fabric) -> Outcome {
    if !installed(case.needs) {
        let why = format!("{} is not installed; `sh scripts/apt-ensure {0}`", case.needs);
        return Outcome::Skipped(why);
    }
    seen(fabric, case.travels, || (case.run)(fabric))
}

/// Runs a case; if it crosses the fabric, both spines must have counted its bytes.
fn seen(fabric: &Fabric, travels: bool, run: impl FnOnce() -> Result<String>) -> Outcome {
    let judged = || {
        let before = fabric.spine_bytes()?;
        let remark = if fabric.is_sealed() { sealed::watched(fabric, run)? } else { run()? };
        let after = fabric.spine_bytes()?;
        let grown: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        if travels && grown.iter().any(|&bytes| bytes < SEEN_BYTES_MIN) {
            return Err(format!("a spine saw nothing of it: {grown:?} bytes"));
        }
        Ok(remark)
    };
    match judged() {
        Ok(remark) => Outcome::Passed(remark),
        Err(why) => Outcome::Failed(why),
    }
}

/// Whether a program, or a C header (`rdma/fabric.h`), is there.
fn installed(program: &str) -> bool {
    if program.ends_with(".h") {
        return Path::new("/usr/include").join(program).exists();
    }
    if program == "petsc4py" {
        return petsc::module().is_some();
    }
    let found = Command::new("sh")
        .args(["-c", &format!("PATH=\"$PATH:/usr/sbin:/sbin\"; command -v {program}")])
        .stdout(Stdio::null())
        .status();
    found.is_ok_and(|s| s.success())
}

/// Version of the package that contains a program.
fn version(program: &str) -> String {
    if program == "ip" {
        return "this project".to_owned();
    }
    let (package, name) = match program {
        "ibv_devinfo" => ("ibverbs-utils", "rdma-core"),
        "infiniband/efadv.h" => ("libibverbs-dev", "rdma-core"),
        "fi_pingpong" => ("libfabric-bin", "libfabric"),
        "rdma/fabric.h" => ("libfabric-dev", "libfabric"),
        "ib_send_bw" => ("perftest", "perftest"),
        "lmp" => ("lammps", "LAMMPS"),
        "simpleFoam" => ("openfoam", "OpenFOAM"),
        "hpcc" => ("hpcc", "HPC Challenge"),
        "mpi4py" => ("python3-mpi4py", "mpi4py"),
        "petsc4py" => ("python3-petsc4py", "PETSc"),
        "h5pcc.openmpi" => ("libhdf5-openmpi-dev", "HDF5"),
        "caf" => ("libcoarrays-openmpi-dev", "OpenCoarrays"),
        _ => ("openmpi-bin", "Open MPI"),
    };
    let asked = output(&mut command("dpkg-query", &["-W", "-f", "${Version}", package]));
    format!("{name} {}", asked.map_or_else(|_| "?".into(), |v| v.trim().to_owned()))
}

/// Replaces the table in the document, or only these rows of it.
fn document_write(rows: &[Row], only: bool) -> Result {
    let lines = rows.iter().map(|(program, what, outcome)| {
        let (word, remark) = match outcome {
            Outcome::Passed(remark) => ("pass", remark.clone()),
            Outcome::Failed(why) => ("**fail**", why.lines().next().unwrap_or("").to_owned()),
            Outcome::Skipped(why) => ("skipped", why.clone()),
        };
        format!("| {program} | {what} | {word} | {remark} |")
    });
    let path = root().join(DOCUMENT);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let kept = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(t, _)| t);
    let kept = kept.filter(|_| only).map_or_else(Vec::new, |t| t.lines().collect());
    let mut table = String::from("| program | what ran | result | remark |\n|---|---|---|---|\n");
    for line in merge(kept, lines.collect()) {
        let _ = writeln!(table, "{line}");
    }
    replace(DOCUMENT, BEGIN, &table)
}

/// Whether a line is a row of the table, not its head.
fn is_row(line: &str) -> bool {
    line.starts_with("| ") && !line.starts_with("| program |")
}

/// The kept rows with the new ones in their place: that of the same name, or behind the case before
/// it, or at the end.
fn merge(kept: Vec<&str>, new: Vec<String>) -> Vec<String> {
    let name = |line: &str| line.split(" | ").nth(1).unwrap_or_default().to_owned();
    let mut lines: Vec<String> =
        kept.into_iter().filter(|l| is_row(l)).map(str::to_owned).collect();
    for line in new {
        let what = name(&line);
        if let Some(old) = lines.iter_mut().find(|l| name(l) == what) {
            *old = line;
            continue;
        }
        let number = CASES.iter().position(|c| c.name == what);
        let before = CASES[..number.unwrap_or(0)].iter().rev();
        let places = before.filter_map(|c| lines.iter().position(|l| name(l) == c.name));
        let place = places.map(|p| p + 1).next().unwrap_or(lines.len());
        lines.insert(place, line);
    }
    lines
}

/// Replaces the text between `begin` and the end marker in a document.
fn replace(document: &str, begin: &str, table: &str) -> Result {
    let path = root().join(document);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parts = text.split_once(begin).and_then(|(head, rest)| {
        let (_, foot) = rest.split_once(END)?;
        Some((head, foot))
    });
    let Some((head, foot)) = parts else {
        return Err(format!("{} has no place for the table", path.display()));
    };
    let new = format!("{head}{begin}\n\n{table}\n{END}{foot}");
    println!("{document} written");
    fs::write(&path, new).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_some_cases_take_their_places_among_the_others() {
        let row = |name: &str, result: &str| format!("| program 1 | {name} | {result} |  |");
        let (a, b, c) = (CASES[0].name, CASES[1].name, CASES[2].name);
        let old = [row(a, "pass"), row(c, "pass"), row("of a wheel", "pass")];
        let kept = || old.iter().map(String::as_str).collect::<Vec<_>>();
        let merged = merge(kept(), vec![row(b, "new"), row(c, "**fail**"), row("other", "new")]);
        let wanted = [
            row(a, "pass"),
            row(b, "new"),
            row(c, "**fail**"),
            row("of a wheel", "pass"),
            row("other", "new"),
        ];
        assert_eq!(merged, wanted);
        assert_eq!(merge(Vec::new(), vec![row(a, "new"), row(b, "new")]).len(), 2);
    }

    /// A case that cannot run is skipped with the command that installs what it needs: the case
    /// with two domains passed on one when libfabric's headers were missing.
    #[test]
    fn each_case_names_what_it_needs_and_how_to_install_it() {
        let script = fs::read_to_string(root().join("scripts/apt-ensure")).unwrap();
        for case in CASES {
            let needs = case.needs;
            assert!(script.contains(&format!("\n        {needs}) echo ")), "apt-ensure: {needs}");
        }
        let of = |word: &str| CASES.iter().find(|c| c.name.contains(word)).unwrap().needs;
        assert_eq!(of("two domains"), "rdma/fabric.h");
        assert_eq!(of("two devices"), "infiniband/efadv.h");
        assert!(!installed("rdma/no-such-header.h") && !installed("no-such-program"));
        assert!(!version("rdma/fabric.h").starts_with("Open MPI"));
    }
}
