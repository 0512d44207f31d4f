//! Slurm on two hosts of the fabric: a controller, two nodes, and munge, with the task prolog and
//! the batch script of `docs/clusters`. The daemons change to the users of jobs, so they need real
//! root.

use super::{
    cases::{checked, expect_end, program},
    fabric::{Fabric, Said, said},
    installed,
};
use crate::{
    Result,
    process::{command, output, root},
};
use std::{
    env, fs,
    io::Read as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Nodes: hosts of both leaves, with their addresses.
const NODES: [(&str, &str); 2] = [("h0x0", "10.1.0.10"), ("h1x0", "10.1.1.10")];
/// Programs that the case starts, as `scripts/apt-ensure slurmd` installs them.
const PROGRAMS: [&str; 5] = ["slurmd", "slurmctld", "srun", "sbatch", "munged"];
/// Time limit of a job in seconds.
const LIMIT_S: u32 = 120;
/// Time limit of the daemons in seconds: that of all jobs, and some for start and end.
const DAEMONS_S: u32 = 2 * LIMIT_S;
/// Longest time until the nodes are ready, and until a daemon has ended.
const READY_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(10);
/// Bytes of munge's key.
const KEY_BYTES: u64 = 1024;
/// What of the ranks' data must be in their statistics, in bytes: the checker sends more than this
/// to the other rank.
const RANK_BYTES_MIN: u64 = 100_000;

/// Version for the table.
///
/// # Errors
/// Slurm cannot run here; the text says why.
pub fn version() -> Result<String> {
    if let Some(program) = PROGRAMS.iter().chain(&["mpicc"]).find(|p| !installed(p)) {
        let wanted = if *program == "mpicc" { "mpicc" } else { "slurmd" };
        return Err(format!("{program} is not installed; `sh scripts/apt-ensure {wanted}`"));
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let id = output(&mut command("id", &["-u"]))?;
    if id.trim() != "0" || !map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return Err("its daemons change users: run as root, outside of a user namespace".into());
    }
    let asked = output(&mut command("dpkg-query", &["-W", "-f", "${Version}", "slurmd"]));
    Ok(format!("Slurm {}", asked.map_or_else(|_| "?".into(), |v| v.trim().to_owned())))
}

/// `srun` starts the ranks by PMIx. Their variables are only those of the task prolog.
///
/// # Errors
/// A rank fails, has wrong results, or sent nothing through SRD.
pub fn srun(f: &Fabric, _: &Path) -> Result<String> {
    let slurm = Slurm::start(f)?;
    let line = format!("srun --mpi=pmix --nodes=2 --ntasks=2 {} 65536", program(f));
    let said = slurm.run(&line)?;
    expect_end(&said)?;
    if !said.text.lines().any(|l| l.starts_with("mpi_check: ") && l.ends_with(" 0 wrong")) {
        return Err(format!("wrong results, {}", said.tail()));
    }
    slurm.strict()
}

/// `sbatch` starts a script on the first node, in which `mpirun` starts the ranks by Slurm.
///
/// # Errors
/// As [`srun`].
pub fn sbatch(f: &Fabric, _: &Path) -> Result<String> {
    let slurm = Slurm::start(f)?;
    let out = slurm.folder.join("out");
    let script = root().join("docs/clusters/job.sbatch");
    let (script, shown) = (script.display(), out.display());
    let line = format!("sbatch --wait --output={shown} {script} {} 65536", program(f));
    let submitted = slurm.run(&line)?;
    let text = fs::read_to_string(&out).map_err(|e| format!("{e}, {}", submitted.tail()))?;
    checked(&Said { text, code: submitted.code })
}

/// A running cluster; its daemons end when it is dropped.
struct Slurm<'a> {
    fabric: &'a Fabric,
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl<'a> Slurm<'a> {
    /// Starts the daemons, and waits until both nodes are ready.
    fn start(fabric: &'a Fabric) -> Result<Self> {
        // Sockets have short paths: not below the folder of the acceptance tests.
        let folder = env::temp_dir().join(format!("srd-slurm-{}", std::process::id()));
        let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::DirBuilder::new().mode(0o755).create(&folder).map_err(fail)?;
        let mut slurm = Self { fabric, folder: folder.clone(), daemons: Vec::new() };
        for (node, _) in NODES {
            fs::create_dir(folder.join(format!("tmp.{node}"))).map_err(fail)?;
            fs::create_dir(folder.join(format!("spool.{node}"))).map_err(fail)?;
        }
        for name in ["state", "stats"] {
            fs::create_dir(folder.join(name)).map_err(fail)?;
        }
        fs::write(folder.join("slurm.conf"), slurm.conf()).map_err(fail)?;
        slurm.munge().map_err(fail)?;
        slurm.daemon(NODES[0].0, "slurmctld -D")?;
        for (node, _) in NODES {
            slurm.daemon(node, "slurmd -D")?;
        }
        let until = Instant::now() + READY_MAX;
        loop {
            let mut shown = slurm.on(NODES[0].0, 10, "sinfo --noheader --Node --format=%T");
            let shown = said(shown.stdin(Stdio::null()).output())?;
            if shown.code == 0 && shown.text.lines().filter(|l| *l == "idle").count() == NODES.len()
            {
                return Ok(slurm);
            }
            if Instant::now() >= until {
                return Err(format!("Slurm's nodes do not get ready: {}", shown.tail()));
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// Both nodes are one machine, so what a daemon writes has the node's name in its path.
    fn conf(&self) -> String {
        let (folder, prolog) = (self.folder.display(), root().join("docs/clusters/task-prolog.sh"));
        let mut text = format!(
            "ClusterName=srd\nSlurmctldHost={}({})\n\
             AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={folder}/munge.socket\n\
             SlurmUser=root\nSlurmdUser=root\nReturnToService=2\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\n\
             JobAcctGatherType=jobacct_gather/none\n\
             StateSaveLocation={folder}/state\nSlurmctldPidFile={folder}/slurmctld.pid\n\
             SlurmdSpoolDir={folder}/spool.%n\nSlurmdPidFile={folder}/slurmd.%n.pid\n\
             TmpFS={folder}/tmp.%n\nTaskProlog={}\n",
            NODES[0].0,
            NODES[0].1,
            prolog.display()
        );
        for (node, ip) in NODES {
            text.push_str(&format!("NodeName={node} NodeAddr={ip} CPUs=2 State=UNKNOWN\n"));
        }
        text + "PartitionName=all Nodes=ALL Default=YES State=UP\n"
    }

    /// Starts munge with a key of its own.
    fn munge(&mut self) -> std::io::Result<()> {
        let mut key = Vec::new();
        fs::File::open("/dev/urandom")?.take(KEY_BYTES).read_to_end(&mut key)?;
        let path = self.folder.join("munge.key");
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        std::io::Write::write_all(&mut file, &key)?;
        let mut c = Command::new("munged");
        // `--force`: with warnings about the folder's place below /tmp.
        c.args(["--foreground", "--force"]).env("PATH", path_with_sbin());
        for (option, name) in [
            ("key-file", "munge.key"),
            ("socket", "munge.socket"),
            ("pid-file", "munged.pid"),
            ("log-file", "munged.log"),
            ("seed-file", "munged.seed"),
        ] {
            c.arg(format!("--{option}={}", self.folder.join(name).display()));
        }
        let log = self.log("munged.out")?;
        c.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push(c.spawn()?);
        Ok(())
    }

    fn log(&self, name: &str) -> std::io::Result<fs::File> {
        fs::File::create(self.folder.join(name))
    }

    /// Starts a daemon in the foreground of a process of ours.
    fn daemon(&mut self, node: &str, line: &str) -> Result {
        let name = line.split(' ').next().unwrap_or(line);
        let fail = |e| format!("cannot start {name}: {e}");
        let log = self.log(&format!("{name}.{node}.log")).map_err(fail)?;
        let mut c = self.on(node, DAEMONS_S, line);
        c.stdin(Stdio::null()).stdout(log.try_clone().map_err(fail)?).stderr(log);
        self.daemons.push(c.spawn().map_err(fail)?);
        Ok(())
    }

    /// A command on a node that finds Slurm's settings.
    fn on(&self, node: &str, seconds: u32, line: &str) -> Command {
        let mut c = self.fabric.on_plain(node, seconds, line);
        c.env("SLURM_CONF", self.folder.join("slurm.conf")).env("PATH", path_with_sbin());
        c
    }

    /// Runs a command of a user who asks for SRD, on the first node.
    fn run(&self, line: &str) -> Result<Said> {
        let (tool, verbs) = self.fabric.installed_in();
        let mut c = self.on(NODES[0].0, LIMIT_S, line);
        c.env("PATH", format!("{}:{}", tool.display(), path_with_sbin()));
        c.env("USE_SRD", "1").env("SRD_VERBS_DIR", verbs);
        c.env("SRD_STATS_DIR", self.folder.join("stats"));
        // Nodes are hosts of one machine: ranks must not be bound to the same processors.
        c.env("OMPI_MCA_mpi_yield_when_idle", "1");
        c.env("OMPI_MCA_hwloc_base_binding_policy", "none");
        let said = said(c.stdin(Stdio::null()).output())?;
        if said.code == 0 { Ok(said) } else { Err(format!("{}{}", said.tail(), self.logs())) }
    }

    /// Each of two ranks must have sent its data through SRD, over more than one path. What `srd
    /// run` asks of the statistics, for ranks that it has not started.
    fn strict(&self) -> Result<String> {
        let (mut ranks, mut messages, mut bytes, mut paths) = (0, 0, 0, 0);
        let fail = |e: std::io::Error| format!("statistics: {e}");
        for entry in fs::read_dir(self.folder.join("stats")).map_err(fail)? {
            let text = fs::read_to_string(entry.map_err(fail)?.path()).map_err(fail)?;
            if !text.contains("\"program\":\"mpi_check\"") {
                continue;
            }
            let sent = number(&text, "bytes")?;
            if sent < RANK_BYTES_MIN {
                return Err(format!("a rank sent only {sent} bytes through SRD: {text}"));
            }
            ranks += 1;
            bytes += sent;
            messages += number(&text, "messages")?;
            paths = paths.max(number(&text, "paths")?);
        }
        match (ranks, paths) {
            (2, 2..) => {
                let mb = bytes as f64 / 1e6;
                Ok(format!("{messages} messages, {mb:.1} MB, {paths} paths"))
            }
            _ => Err(format!("{ranks} of 2 ranks used SRD, on {paths} paths{}", self.logs())),
        }
    }

    /// What the nodes' daemons wrote last.
    fn logs(&self) -> String {
        let of = |(node, _): (&str, &str)| {
            let text = fs::read_to_string(self.folder.join(format!("slurmd.{node}.log")));
            let text = text.unwrap_or_default();
            let lines: Vec<&str> = text.lines().filter(|l| l.contains("error")).collect();
            let from = lines.len().saturating_sub(4);
            lines[from..].iter().map(|l| format!("\n    {node}: {l}")).collect::<String>()
        };
        NODES.map(of).concat()
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        // The nodes before the controller, and munge last.
        for daemon in self.daemons.iter_mut().rev() {
            end(daemon);
        }
        // Remaining files are harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Asks a process to end, and ends it if it does not.
pub fn end(child: &mut Child) {
    // Each call fails only if the process has ended.
    let _ = output(&mut command("kill", &[&child.id().to_string()]));
    let until = Instant::now() + END_MAX;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default())
}

/// The number of a field in a line of statistics.
fn number(text: &str, name: &str) -> Result<u64> {
    let rest = text.split(&format!("\"{name}\":")).nth(1);
    let digits = rest.and_then(|r| r.split(|c: char| !c.is_ascii_digit()).next());
    digits.and_then(|d| d.parse().ok()).ok_or_else(|| format!("no `{name}` in {text}"))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn fields_of_statistics_are_read() {
        let text = r#"{"program":"a","messages":280,"bytes":1197434,"paths":64}"#;
        assert_eq!((number(text, "messages"), number(text, "paths")), (Ok(280), Ok(64)));
        assert!(number(text, "peers").is_err() && number(text, "program").is_err());
    }
}
