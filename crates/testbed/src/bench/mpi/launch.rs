//! Open MPI on a fabric: the programs that it needs, and how its ranks are started on the hosts.

use crate::{
    bench::{FlowSpec, contender::TcpSystem},
    error::{NetError, Result},
    fabric::Fabric,
    ns::{NetNs, SYSTEM_PATH},
    spec::Node,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    env, fs,
    hash::{BuildHasher as _, RandomState},
    io::Read as _,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Network of all hosts' addresses.
const NET: &str = "10.1.0.0/16";
/// The host of the receivers, on which `mpirun` runs.
const RECEIVER: (u8, u8) = (1, 0);
/// Leaf of the senders' hosts.
const SENDER_LEAF: u8 = 0;
/// The measuring program.
const SOURCE: &str = include_str!("incast.c");
/// Package that contains `mpicc` and `mpirun`.
const PACKAGES: &str = "install Open MPI: `apt-get install openmpi-bin libopenmpi-dev` (Debian, \
                        Ubuntu) or `dnf install openmpi openmpi-devel` (Fedora)";

/// The programs that are needed, with what to install for each.
const PROGRAMS: [(&str, &str); 6] = [
    ("mpicc", PACKAGES),
    ("mpirun", PACKAGES),
    ("nsenter", "install the package util-linux"),
    ("unshare", "install the package util-linux"),
    ("setpriv", "install the package util-linux"),
    ("timeout", "install the package coreutils"),
];

/// A kind of transport below MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// SRD, through the drop-in libraries and libfabric's `efa` provider.
    Srd,
    /// Open MPI's own TCP transport, with these settings of the kernel's TCP.
    Tcp(TcpSystem),
}

/// Numbers of hosts and ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Hosts with senders.
    pub hosts: u32,
    /// Senders on all hosts together.
    pub senders: u32,
    /// Receivers, which are the first ranks.
    pub receivers: u32,
}

impl Ranks {
    /// The flows between the hosts of these ranks.
    pub fn flows(self) -> Vec<FlowSpec> {
        let host = |h: u32| FlowSpec { from: (SENDER_LEAF, h as u8), to: RECEIVER };
        (0..self.hosts).map(host).collect()
    }

    /// Hosts with their number of ranks, for `mpirun --host`: the receivers' host first.
    fn hosts_text(self, ip: impl Fn(u8, u8) -> String) -> String {
        let mut all = vec![format!("{}:{}", ip(RECEIVER.0, RECEIVER.1), self.receivers)];
        for h in 0..self.hosts {
            let count = self.senders / self.hosts + u32::from(h < self.senders % self.hosts);
            all.push(format!("{}:{count}", ip(SENDER_LEAF, h as u8)));
        }
        all.join(",")
    }
}

/// Output of a job.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Why the job failed, if it did.
    pub failed: Option<String>,
}

impl Said {
    /// The output, if the program succeeded.
    ///
    /// # Errors
    /// The program failed.
    fn complete(self) -> Result<Self> {
        self.failed.clone().map_or(Ok(self), |why| Err(NetError::new(why)))
    }
}

/// The compiled program and the scripts, in a private folder that is removed when dropped.
pub struct Launcher {
    folder: PathBuf,
    /// First number of Open MPI's version.
    major: u32,
}

impl Launcher {
    /// Finds the programs and compiles the measuring program.
    ///
    /// # Errors
    /// A program is missing, or is not Open MPI's; the text says what to install.
    pub fn new() -> Result<Self> {
        programs_find(&search_path())?;
        let said = output(command("mpirun").arg("--version"), "mpirun --version")?.complete()?;
        let major = version(&said.out).ok_or_else(|| {
            let first = said.out.lines().next().unwrap_or("nothing").to_owned();
            NetError::new(format!(
                "`mpirun` is not Open MPI's (`mpirun --version` prints `{first}`): {PACKAGES}"
            ))
        })?;
        // Hashers of the standard library have random keys: an unpredictable name prevents others
        // from creating it first.
        let random = RandomState::new().hash_one(std::process::id());
        let folder = env::temp_dir().join(format!("srd-mpi-{random:016x}"));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|e| NetError::system(&format!("cannot create {}", folder.display()), e))?;
        let made = Self { folder, major };
        let source = made.folder.join("incast.c");
        fs::write(&source, SOURCE)?;
        let mut compile = command("mpicc");
        compile.args(["-O2", "-std=gnu11", "-o"]).arg(made.program()).arg(&source);
        output(&mut compile, "mpicc")?.complete()?;
        Ok(made)
    }

    fn program(&self) -> PathBuf {
        self.folder.join("mpi_incast")
    }

    /// Runs the program once, and returns its output. A run that takes longer than `limit` counts
    /// as failed.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn run(
        &self,
        fabric: &Fabric,
        over: Over,
        ranks: Ranks,
        program_args: &[String],
        limit: Duration,
    ) -> Result<Said> {
        let agent = self.agent_write(fabric, limit)?;
        let ns = fabric.ns(Node::Host(RECEIVER.0, RECEIVER.1))?;
        let mut c = inside(ns, RECEIVER);
        c.args(bounded(limit));
        if over == Over::Srd {
            c.arg(env::current_exe()?).args(["run", "--interface", "e0", "--"]);
        }
        let ip = |l, h| fabric.spec().ip(l, h).to_string();
        c.args(self.mpirun(over, &agent)).args(["--host", &ranks.hosts_text(ip)]);
        c.args(["--map-by", "slot", "--bind-to", "none"]);
        c.args(["-np", &(ranks.senders + ranks.receivers).to_string()]);
        c.arg(self.program()).arg(ranks.receivers.to_string()).args(program_args);
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            c.env(name, "1");
        }
        for name in ["PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            c.env(name, "1");
        }
        // Files of Open MPI and of failing programs are removed together with the folder.
        c.current_dir(&self.folder).env("TMPDIR", &self.folder);
        output(&mut c, "the MPI program")
    }

    /// `mpirun` with the options of its version and of the transport.
    fn mpirun(&self, over: Over, agent: &Path) -> Vec<String> {
        let agent = agent.display();
        // The hosts share this machine's processors, but Open MPI does not know that: without
        // yielding, a rank that waits keeps its processor for a whole time slice.
        let mut line = if self.major >= 5 {
            format!("mpirun --prtemca plm_ssh_agent {agent}")
        } else {
            format!("mpirun --mca plm_rsh_agent {agent} --mca oob_tcp_if_include {NET}")
        };
        line += " --mca mpi_yield_when_idle 1";
        if matches!(over, Over::Tcp(_)) {
            line += &format!(" --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {NET}");
        }
        line.split(' ').map(str::to_owned).collect()
    }

    /// Writes the program by which Open MPI starts its daemon on a host given by its address.
    fn agent_write(&self, fabric: &Fabric, limit: Duration) -> Result<PathBuf> {
        let (folder, start) = (self.folder.display(), bounded(limit).join(" "));
        let mut text = format!(
            "#!/bin/sh\nexport TMPDIR={folder}\n\
             while case \"$1\" in -*) true ;; *) false ;; esac; do shift; done\n\
             host=$1\nshift\ncase $host in\n"
        );
        for node in fabric.spec().host_nodes() {
            let Node::Host(l, h) = node else { continue };
            let (ip, path) = (fabric.spec().ip(l, h), fabric.ns(node)?.path());
            text += &format!(
                "{ip}) exec {start} nsenter --net={path} unshare -u \
                 sh -c \"hostname h{l}x{h}; $*\" ;;\n"
            );
        }
        text += "*) echo \"no host $host\" >&2; exit 1 ;;\nesac\n";
        let path = self.folder.join("agent");
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Remaining files are harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Checks that `srd run` finds the drop-in libraries.
///
/// # Errors
/// It finds no libraries; the text says how to build them.
pub fn libraries_find() -> Result {
    let mut c = Command::new(env::current_exe()?);
    output(c.arg("env"), "srd env")
        .and_then(Said::complete)
        .map(|_| ())
        .map_err(|e| NetError::new(format!("MPI over SRD needs the drop-in libraries: {e}")))
}

/// Words to put before a command so that it and its child processes end when the parent process
/// dies (`timeout` passes the signal on), and after `limit` at the latest. The daemons on the hosts
/// need both: a connection to a launcher whose namespace no longer exists never breaks.
fn bounded(limit: Duration) -> Vec<String> {
    let seconds = limit.as_secs().max(1).to_string();
    let words = ["setpriv", "--pdeathsig", "TERM", "timeout", "-k", "5", &seconds];
    words.map(str::to_owned).to_vec()
}

/// A command that starts in the namespace of a host and with that host's name: libfabric and Open
/// MPI would take ranks with the same host name for ranks on one host.
fn inside(ns: &NetNs, host: (u8, u8)) -> Command {
    let mut c = command("nsenter");
    c.arg(format!("--net={}", ns.path())).args(["unshare", "-u", "sh", "-c"]);
    c.args(["hostname \"$0\"; exec \"$@\"", &format!("h{}x{}", host.0, host.1)]);
    c
}

fn search_path() -> String {
    format!("{}:{SYSTEM_PATH}", env::var("PATH").unwrap_or_default())
}

fn command(program: &str) -> Command {
    let mut c = Command::new(program);
    c.env("PATH", search_path());
    c
}

/// Checks that all programs are in `path`, folders separated by colons.
fn programs_find(path: &str) -> Result {
    let present = |name: &str| path.split(':').any(|dir| Path::new(dir).join(name).is_file());
    match PROGRAMS.into_iter().find(|(name, _)| !present(name)) {
        Some((name, install)) => {
            Err(NetError::new(format!("`{name}` is not installed: {install}")))
        }
        None => Ok(()),
    }
}

/// First number of the version that Open MPI's `mpirun --version` prints.
fn version(text: &str) -> Option<u32> {
    let line = text.lines().find(|l| l.contains("Open MPI"))?;
    let word = line.split_whitespace().last()?;
    word.split('.').next()?.parse().ok()
}

/// Runs a command. Returns its output and, if it failed, why, with the end of its error output.
///
/// # Errors
/// The command cannot be started.
fn output(c: &mut Command, name: &str) -> Result<Said> {
    c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = c.spawn().map_err(|e| NetError::system(&format!("cannot run {name}"), e))?;
    let group = Pid::from_child(&child);
    let errors = child.stderr.take();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = errors.map(|mut e| e.read_to_end(&mut text));
        (text, read.transpose())
    });
    let mut out = Vec::new();
    let read = child.stdout.take().map(|mut o| o.read_to_end(&mut out)).transpose();
    let status = child.wait();
    // Kills the ranks of a failed launcher, which would continue; fails if all have ended.
    let _ = kill_process_group(group, Signal::KILL);
    let (err, read_err) = reader.join().map_err(|_| NetError::new("a thread ended early"))?;
    read.and(read_err)?;
    let mut said = Said {
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
        failed: None,
    };
    let status = status?;
    if status.success() {
        return Ok(said);
    }
    let lines: Vec<&str> = said.err.lines().filter(|l| !l.trim().is_empty()).collect();
    let why = match status.code() {
        Some(124) => "it took longer than its time limit".to_owned(),
        _ => status.to_string(),
    };
    let tail = lines[lines.len().saturating_sub(8)..].join("\n    ");
    said.failed = Some(format!("{name}: {why}\n    {tail}").trim_end().to_owned());
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_with_its_packages() {
        let text = programs_find("/nowhere:/proc").unwrap_err().to_string();
        assert!(text.contains("`mpicc` is not installed"), "{text}");
        assert!(text.contains("openmpi-bin libopenmpi-dev"), "{text}");
        let folder = env::temp_dir().join(format!("srd-mpi-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, _) in PROGRAMS {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(programs_find(&format!("/nowhere:{}", folder.display())), Ok(()));
        fs::remove_file(folder.join("setpriv")).unwrap();
        let text = programs_find(&folder.display().to_string()).unwrap_err().to_string();
        assert!(text.contains("util-linux"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn versions_of_open_mpi_only_are_read() {
        assert_eq!(version("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n"), Some(4));
        assert_eq!(version("mpirun (Open MPI) 5.0.7rc1\n"), Some(5));
        assert_eq!(version("HYDRA build details:\n    Version: 4.1.2\n"), None);
    }

    #[test]
    fn ranks_are_spread_over_the_hosts_after_the_receivers() {
        let ranks = Ranks { hosts: 4, senders: 10, receivers: 3 };
        let text = ranks.hosts_text(|l, h| format!("{l}.{h}"));
        assert_eq!(text, "1.0:3,0.0:3,0.1:3,0.2:2,0.3:2");
        assert_eq!(ranks.flows().len(), 4);
    }

    #[test]
    fn a_command_that_fails_is_reported_with_its_last_lines() {
        let said = output(command("sh").args(["-c", "echo a; echo b >&2"]), "sh").unwrap();
        assert_eq!((said.out.as_str(), said.err.as_str(), said.failed), ("a\n", "b\n", None));
        let said =
            output(command("sh").args(["-c", "echo a; echo why >&2; exit 3"]), "sh").unwrap();
        let why = said.failed.clone().unwrap();
        assert!(why.contains("exit status: 3") && why.contains("why"), "{why}");
        // Output printed before the failure is kept.
        assert_eq!(said.out, "a\n");
        assert!(said.complete().is_err());
        let late = output(command("timeout").args(["0.1", "sleep", "60"]), "it").unwrap();
        assert!(late.failed.unwrap().contains("time limit"));
    }
}
