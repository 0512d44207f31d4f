//! The fabric of the acceptance tests: hosts on two leaves, with two spines in between.

use super::sealed::Ear;
use crate::{Result, mpi::stage::Transport, process::output};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::Duration,
};

/// Number of spines, and thus of paths between the leaves.
const SPINES: usize = 2;
/// Network of all hosts' addresses.
const NET: &str = "10.1.0.0/16";
/// Time that a server needs before a client may start.
const SERVER_START: Duration = Duration::from_millis(1200);

/// A fabric, and paths of programs.
pub struct Fabric {
    srd: PathBuf,
    verbs: PathBuf,
    name: String,
    folder: PathBuf,
    /// Whether programs get the key file.
    sealed: AtomicBool,
}

/// Output of a command (both streams together) and its exit code.
pub struct Said {
    pub text: String,
    pub code: i32,
}

impl Said {
    /// The last lines, for an error text.
    pub fn tail(&self) -> String {
        let lines: Vec<_> = self.text.lines().filter(|l| !l.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(8);
        format!("exit code {}:\n    {}", self.code, lines[from..].join("\n    "))
    }
}

impl Fabric {
    /// Builds the fabric.
    ///
    /// # Errors
    /// The kernel refuses namespaces, or `ip` is missing.
    pub fn up(srd: PathBuf, verbs: PathBuf, folder: PathBuf) -> Result<Self> {
        let name = format!("acceptance-{}", std::process::id());
        let pid = std::process::id().to_string();
        let spines = SPINES.to_string();
        let mut c = Command::new(&srd);
        c.args([
            "net", "up", "--name", &name, "--spines", &spines, "--leaves", "2", "--rails", "2",
        ]);
        c.args(["--hosts", "2", "--host-rate", "2G", "--uplink-rate", "2G", "--until-pid", &pid]);
        output(&mut c)?;
        let fabric = Self { srd, verbs, name, folder, sealed: AtomicBool::new(false) };
        fabric.agent_write()?;
        let key = fabric.key();
        if key.exists() {
            fs::remove_file(&key).map_err(|e| format!("{}: {e}", key.display()))?;
        }
        fabric.srd(&["key", "new", &key.display().to_string()])?;
        Ok(fabric)
    }

    /// Folder of the tool, and that of the drop-in libraries.
    pub fn installed_in(&self) -> (&Path, &Path) {
        (self.srd.parent().unwrap_or(Path::new("/")), &self.verbs)
    }

    /// The key file of sealed runs.
    pub fn key(&self) -> PathBuf {
        self.folder.join("keys")
    }

    /// Runs the tool itself, outside of the fabric, and returns what it printed.
    ///
    /// # Errors
    /// It fails.
    pub fn srd(&self, words: &[&str]) -> Result<String> {
        output(Command::new(&self.srd).args(words))
    }

    /// The command line of the tool with these words, for [`Fabric::plain`].
    pub fn tool(&self, words: &str) -> String {
        format!("{} {words}", self.srd.display())
    }

    /// Runs `work` with all programs sealed, and returns its result.
    pub fn sealed<T>(&self, work: impl FnOnce() -> T) -> T {
        self.sealed.store(true, Ordering::Relaxed);
        let done = work();
        self.sealed.store(false, Ordering::Relaxed);
        done
    }

    /// Whether programs are sealed now.
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Listens at each spine until the ears are asked.
    ///
    /// # Errors
    /// The tool cannot be started.
    pub fn listen(&self) -> Result<Vec<Ear>> {
        (0..SPINES).map(|spine| Ear::open(&self.srd, &self.name, spine, &self.folder)).collect()
    }

    /// Makes all hosts send each datagram in a packet of its own, as a network card does, so that
    /// spines see them apart.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn segment(&self) -> Result {
        for node in ["h0x0", "h0x1", "h1x0", "h1x1"] {
            for device in ["e0", "e1"] {
                let line = ["--", "ip", "link", "set", "dev", device, "gso_max_segs", "1"];
                self.srd(&[&["net", "exec", node, "--name", &self.name], &line[..]].concat())?;
            }
        }
        Ok(())
    }

    /// Writes the program by which MPI starts ranks on a host given by its address.
    fn agent_write(&self) -> Result {
        let text = format!(
            "#!/bin/sh\n\
             while case \"$1\" in -*) true ;; *) false ;; esac; do shift; done\n\
             node=h$(echo \"$1\" | awk -F. '{{ print $3 \"x\" $4 - 10 }}')\n\
             shift\n\
             exec {} net exec \"$node\" --name {} -- \\\n\
             unshare -u sh -c \"hostname $node; $*\"\n",
            self.srd.display(),
            self.name
        );
        let path = self.agent();
        let fail = |e| format!("{}: {e}", path.display());
        fs::write(&path, text).map_err(fail)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(fail)
    }

    /// Writes a program that starts the agent as a remote shell does that passes no variable on.
    fn bare_agent(&self) -> Result<PathBuf> {
        let path = self.folder.join("bare_agent");
        let text = format!(
            "#!/bin/sh\n\
             exec env -i PATH=\"$PATH\" HOME=\"$HOME\" OMPI_ALLOW_RUN_AS_ROOT=1 \\\n\
             OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} \"$@\"\n",
            self.agent().display()
        );
        let fail = |e| format!("{}: {e}", path.display());
        fs::write(&path, text).map_err(fail)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(fail)?;
        Ok(path)
    }

    /// Runs an MPI program with a rank on each of two hosts, by [`Shell::Bare`].
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi_bare(&self, seconds: u32, program: &str) -> Result<Said> {
        let line = format!(
            "mpirun --mca plm_rsh_agent {} --mca oob_tcp_if_include {NET} {} \
             --host 10.1.0.10:1,10.1.1.10:1 --map-by node --bind-to none -np 2 {program}",
            self.shell(Shell::Bare)?.display(),
            Shell::Bare.option()
        );
        let mut c = self.on("h0x0", seconds, &line);
        said(c.envs(Shell::Bare.variables()).stdin(Stdio::null()).output())
    }

    fn shell(&self, by: Shell) -> Result<PathBuf> {
        match by {
            Shell::Ordinary => Ok(self.agent()),
            Shell::Bare => self.bare_agent(),
        }
    }

    fn agent(&self) -> PathBuf {
        self.folder.join("agent")
    }

    /// Folder of compiled programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command under `srd run` on a host, with a time limit in seconds.
    fn on(&self, node: &str, seconds: u32, line: &str) -> Command {
        self.on_plain(node, seconds, &self.under("", line))
    }

    /// The command line of `srd run` with additional options, for [`Fabric::plain`].
    pub fn under(&self, options: &str, line: &str) -> String {
        let key = match self.is_sealed() {
            true => format!("--key {}", self.key().display()),
            false => String::new(),
        };
        format!(
            "{} run {options} {key} --verbs-dir {} -- {line}",
            self.srd.display(),
            self.verbs.display()
        )
    }

    /// A command on a host, not under `srd run`, with a time limit in seconds.
    pub fn on_plain(&self, node: &str, seconds: u32, line: &str) -> Command {
        let script = format!("hostname {node}; exec timeout -k 5 {seconds} {line}");
        // Not at raised priority: MPI's daemons on other hosts run in their own sessions, whose
        // ranks would get no CPU time while raised ones spin.
        let mut c = Command::new("setsid");
        c.arg("-w").arg(&self.srd);
        c.args(["net", "exec", node, "--name", &self.name, "--", "unshare", "-u", "sh", "-c"]);
        c.arg(script);
        // Programs that fail leave files in the current folder.
        c.current_dir(&self.folder);
        c.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        c
    }

    /// Runs one command until it ends.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn one(&self, node: &str, seconds: u32, line: &str) -> Result<Said> {
        self.said(self.on(node, seconds, line).stdin(Stdio::null()).output())
    }

    /// Runs one command, not under `srd run`, until it ends.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn plain(&self, node: &str, seconds: u32, line: &str) -> Result<Said> {
        self.said(self.on_plain(node, seconds, line).stdin(Stdio::null()).output())
    }

    /// Runs a server and a client on two hosts, not under `srd run`, until both end.
    ///
    /// # Errors
    /// A command cannot be started.
    pub fn plain_pair(
        &self,
        nodes: [&str; 2],
        seconds: u32,
        [server, client]: [&str; 2],
    ) -> Result<[Said; 2]> {
        let mut serving = self.on_plain(nodes[0], seconds, server);
        serving.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let serving = serving.spawn().map_err(|e| format!("cannot start a server: {e}"))?;
        sleep(SERVER_START);
        let client = self.plain(nodes[1], seconds, client)?;
        Ok([self.said(serving.wait_with_output())?, client])
    }

    /// Runs a server on a host of the first leaf and a client on one of the second; returns both
    /// outputs.
    ///
    /// # Errors
    /// A command cannot be started.
    pub fn pair(&self, seconds: u32, server: &str, client: &str) -> Result<[Said; 2]> {
        self.pair_rails(seconds, [server, &format!("{client} 10.1.0.10")])
    }

    /// As [`Fabric::pair`], with command lines that contain the server's address.
    ///
    /// # Errors
    /// A command cannot be started.
    pub fn pair_rails(&self, seconds: u32, [server, client]: [&str; 2]) -> Result<[Said; 2]> {
        self.plain_pair(
            ["h0x0", "h1x0"],
            seconds,
            [&self.under("", server), &self.under("", client)],
        )
    }

    /// Runs an MPI program with ranks on hosts of both leaves.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi(&self, seconds: u32, ranks: u32, program: &str) -> Result<Said> {
        self.mpi_over(Transport::Srd, seconds, ranks, program)
    }

    /// As [`Fabric::mpi`], but the ranks of a host use different interfaces.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi_rails(&self, seconds: u32, program: &str) -> Result<Said> {
        self.mpi(seconds, 4, &format!("{} {program}", self.either_rail()?.display()))
    }

    /// Writes a script that starts a rank on the interface with the rank's number on its host.
    fn either_rail(&self) -> Result<PathBuf> {
        let path = self.folder.join("either_rail");
        let text = "#!/bin/sh\nSRD_INTERFACE=e$OMPI_COMM_WORLD_LOCAL_RANK exec \"$@\"\n";
        let fail = |e| format!("{}: {e}", path.display());
        fs::write(&path, text).map_err(fail)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(fail)?;
        Ok(path)
    }

    /// As [`Fabric::mpi`], over a given transport.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi_over(
        &self,
        over: Transport,
        seconds: u32,
        ranks: u32,
        program: &str,
    ) -> Result<Said> {
        let hosts = if ranks <= 4 {
            "10.1.0.10:2,10.1.1.10:2"
        } else {
            "10.1.0.10:2,10.1.1.10:2,10.1.0.11:2,10.1.1.11:2"
        };
        self.mpi_hosts(over, seconds, hosts, ranks, program)
    }

    /// As [`Fabric::mpi_over`], with one rank on each of two or four hosts.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi_spread(
        &self,
        over: Transport,
        seconds: u32,
        hosts: u32,
        program: &str,
    ) -> Result<Said> {
        let all = ["10.1.0.10:1", "10.1.1.10:1", "10.1.0.11:1", "10.1.1.11:1"];
        let chosen = all.get(..hosts as usize).ok_or("the fabric has four hosts")?.join(",");
        self.mpi_hosts(over, seconds, &chosen, hosts, program)
    }

    /// Runs an MPI program on hosts given as `mpirun` expects them.
    fn mpi_hosts(
        &self,
        over: Transport,
        seconds: u32,
        hosts: &str,
        ranks: u32,
        program: &str,
    ) -> Result<Said> {
        let agent = self.agent();
        // The hosts share this machine's processors, but Open MPI does not know that.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let yields = u8::from(ranks as usize > cpus);
        let line = format!(
            "{} --mca plm_rsh_agent {} --mca oob_tcp_if_include {NET} --host {hosts} \
             --mca mpi_yield_when_idle {yields} --map-by node --bind-to none -np {ranks} {program}",
            over.mpirun(NET).join(" "),
            agent.display()
        );
        let mut c = match over {
            Transport::Srd => self.on("h0x0", seconds, &line),
            Transport::TcpBtl | Transport::TcpOfi => self.on_plain("h0x0", seconds, &line),
        };
        self.said(c.stdin(Stdio::null()).output())
    }

    /// As [`Fabric::mpi`], with the launcher of Open MPI 5 in the folder `bin`, which has other
    /// options, and a remote shell.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi_wheel(
        &self,
        seconds: u32,
        ranks: u32,
        bin: &Path,
        by: Shell,
        program: &str,
    ) -> Result<Said> {
        let line = format!(
            "{}/mpirun --prtemca plm_ssh_agent {} --host 10.1.0.10:2,10.1.1.10:2 --map-by node \
             --bind-to none -np {ranks} {} {program}",
            bin.display(),
            self.shell(by)?.display(),
            by.option()
        );
        let mut c = self.on("h0x0", seconds, &line);
        c.env("PRTE_ALLOW_RUN_AS_ROOT", "1").env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        self.said(c.envs(by.variables()).stdin(Stdio::null()).output())
    }

    /// As [`Fabric::mpi`], with Intel MPI from the virtual environment `folder` and a remote shell.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn mpi_intel(
        &self,
        seconds: u32,
        ranks: u32,
        folder: &Path,
        by: Shell,
        line: &str,
    ) -> Result<Said> {
        // Selects the interface, because otherwise hosts would have to resolve each other's names.
        let line = format!(
            "{}/bin/mpiexec.hydra -launcher ssh -launcher-exec {} -iface e0 \
             -hosts 10.1.0.10,10.1.1.10 -ppn {} -n {ranks} {line}",
            folder.display(),
            self.shell(by)?.display(),
            ranks.div_ceil(2)
        );
        let mut c = self.on("h0x0", seconds, &line);
        c.envs(by.variables()).env("I_MPI_ROOT", folder);
        self.said(c.stdin(Stdio::null()).output())
    }

    /// Injects a fault in the background; `what` contains the arguments of `srd net fail`.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn fail(&self, what: &str) -> Result<Child> {
        let mut c = Command::new(&self.srd);
        c.args(["net", "fail", "--name", &self.name]).args(what.split_whitespace());
        c.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        c.spawn().map_err(|e| format!("cannot break the fabric: {e}"))
    }

    /// Removes all faults.
    ///
    /// # Errors
    /// The faults cannot be removed.
    pub fn heal(&self) -> Result {
        output(Command::new(&self.srd).args(["net", "heal", "--name", &self.name])).map(|_| ())
    }

    /// Bytes received by each spine so far.
    ///
    /// # Errors
    /// The counters of a spine cannot be read.
    pub fn spine_bytes(&self) -> Result<Vec<u64>> {
        let of = |spine: usize| {
            let node = format!("s{spine}");
            let mut c = Command::new(&self.srd);
            c.args(["net", "exec", &node, "--name", &self.name, "--", "cat", "/proc/net/dev"]);
            output(&mut c).map(|text| text.lines().filter_map(received).sum())
        };
        (0..SPINES).map(of).collect()
    }
}

/// A remote shell that starts daemons of MPI on other hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// It passes the caller's variables on, as all hosts are on one machine here.
    Ordinary,
    /// It passes none on. The caller has two of its own, one for software SRD, the other named to
    /// the launcher.
    Bare,
}

impl Shell {
    fn variables(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [("SRD_PATHS", "16"), ("GIVEN", "by-x")];
        all.into_iter().filter(move |_| self == Self::Bare)
    }

    /// Names the variable to Open MPI's launchers.
    const fn option(self) -> &'static str {
        match self {
            Self::Ordinary => "",
            Self::Bare => "-x GIVEN",
        }
    }

    /// The command of a rank: with [`Shell::Bare`], it starts the program only if both variables,
    /// and those of `srd run`, have come.
    pub fn rank(self, program: &str) -> String {
        match self {
            Self::Ordinary => program.to_owned(),
            Self::Bare => format!(
                "sh -c '[ \"$SRD_PATHS,$GIVEN,$FI_PROVIDER\" = 16,by-x,efa ] && exec {program}; \
                 echo \"got $SRD_PATHS,$GIVEN,$FI_PROVIDER\"; exit 1'"
            ),
        }
    }

    /// Requires that the remark about a run says how many paths the variable allows.
    ///
    /// # Errors
    /// It says something else.
    pub fn heeded(self, remark: String) -> Result<String> {
        match self {
            Self::Bare if !remark.ends_with(" 16 paths") => {
                Err(format!("SRD_PATHS is 16, but: {remark}"))
            }
            _ => Ok(remark),
        }
    }
}

impl Fabric {
    /// What a program printed. Where programs are sealed, each summary of `srd run` must say so.
    fn said(&self, out: std::io::Result<std::process::Output>) -> Result<Said> {
        let said = said(out)?;
        let summary = |l: &&str| l.starts_with("srd: ") && l.contains("through SRD in");
        let ending = if self.is_sealed() { ", sealed" } else { ", not sealed" };
        match said.text.lines().filter(summary).find(|l| !l.ends_with(ending)) {
            Some(line) => Err(format!("the summary should end with `{ending}`: {line}")),
            None => Ok(said),
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // The fabric also ends with this process.
        let _ = output(Command::new(&self.srd).args(["net", "down", "--name", &self.name]));
    }
}

/// Bytes received by an interface, given its line of `/proc/net/dev`.
fn received(line: &str) -> Option<u64> {
    let (name, rest) = line.split_once(':')?;
    if name.trim() == "lo" {
        return None;
    }
    rest.split_whitespace().next()?.parse().ok()
}

pub fn said(out: std::io::Result<std::process::Output>) -> Result<Said> {
    let out = out.map_err(|e| format!("cannot run: {e}"))?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    Ok(Said { text, code: out.status.code().unwrap_or(-1) })
}

#[cfg(test)]
mod tests {
    use super::received;

    #[test]
    fn lines_of_interfaces_are_read() {
        assert_eq!(received("    d0: 6182355    2290    0"), Some(6_182_355));
        assert_eq!(received("    lo:       7       0    0"), None);
        assert_eq!(received(" face |bytes    packets errs"), None);
    }
}
