//! Two hosts in network namespaces, and MPI programs with one rank on each.

use crate::{
    Result,
    process::{command, output},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

/// Time limit of a run in seconds.
const LIMIT_S: &str = "120";
/// Starts a session at raised priority where permitted, so that other load on the machine disturbs
/// all contenders less.
pub const RAISE: &str = "echo -15 2>/dev/null >/proc/self/autogroup; \
                     renice -n -15 $$ >/dev/null 2>&1; exec \"$@\"";
/// Sets a different hostname on each host, because libfabric would treat ranks with the same one as
/// neighbours; then runs the command.
const NAMED: &str = "hostname \"$0\"; exec \"$@\"";
/// For the plain link: keeps a namespace alive until the end of its standard input.
const LINK: &str = "ip link set lo up; echo ready; read line";
/// Offloads of a network card with GRO, on a link that carries unmerged packets.
const OFFLOADS: &str = "tso off gso off tx-udp-segmentation off gro on";

/// Transport of an MPI program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// SRD, through libfabric's `efa` provider.
    Srd,
    /// Open MPI's own TCP.
    TcpBtl,
    /// libfabric's TCP.
    TcpOfi,
}

impl Transport {
    /// All transports, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Srd, Self::TcpBtl, Self::TcpOfi];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Srd => "SRD",
            Self::TcpBtl => "TCP, Open MPI's own",
            Self::TcpOfi => "TCP, libfabric's",
        }
    }

    /// `mpirun` with options for this transport; `net` is the network of the hosts' addresses. With
    /// SRD, it must be started by `srd run`.
    pub fn mpirun(self, net: &str) -> Vec<String> {
        let line = match self {
            Self::Srd => "mpirun".to_owned(),
            Self::TcpBtl => {
                format!("mpirun --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {net}")
            }
            // One-sided operations use Open MPI's own TCP, because its btl/ofi accepts only the efa
            // provider.
            Self::TcpOfi => format!(
                "env FI_PROVIDER=tcp mpirun -x FI_PROVIDER --mca pml cm --mca mtl ofi --mca \
                 mtl_ofi_provider_include tcp --mca btl tcp,self --mca btl_tcp_if_include {net} \
                 --mca osc ^ucx"
            ),
        };
        line.split_whitespace().map(str::to_owned).collect()
    }
}

/// Kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A veth pair without a rate limit: the processors are the bottleneck.
    Link,
    /// Leaves and two spines; each path is half as fast as a host.
    Fabric,
}

/// The required programs.
pub struct Tools {
    /// The tool `srd`.
    pub srd: PathBuf,
    /// Folder of the drop-in libraries.
    pub verbs: PathBuf,
    /// Folder for scripts and compiled programs.
    pub folder: PathBuf,
}

/// Two hosts in network namespaces.
pub struct Stage<'a> {
    tools: &'a Tools,
    enter: [Vec<String>; 2],
    ips: [&'static str; 2],
    net: &'static str,
    names: [&'static str; 2],
    fabric: Option<String>,
    holders: Vec<Child>,
}

impl<'a> Stage<'a> {
    /// Builds the network.
    ///
    /// # Errors
    /// The kernel refuses namespaces, or a program is missing.
    pub fn build(kind: Kind, tools: &'a Tools) -> Result<Self> {
        fs::create_dir_all(&tools.folder)
            .map_err(|e| format!("{}: {e}", tools.folder.display()))?;
        let stage = match kind {
            Kind::Link => Self::link(tools)?,
            Kind::Fabric => Self::fabric(tools)?,
        };
        stage.scripts_write()?;
        Ok(stage)
    }

    fn fabric(tools: &'a Tools) -> Result<Self> {
        let pid = std::process::id().to_string();
        let name = format!("mpi-{pid}");
        let mut c = Command::new(&tools.srd);
        c.args(["net", "up", "--name", &name, "--until-pid", &pid, "--leaves", "2"]);
        c.args(["--hosts", "2", "--spines", "2", "--host-rate", "400M", "--uplink-rate", "200M"]);
        output(&mut c)?;
        let srd = tools.srd.display().to_string();
        let enter =
            ["h0x0", "h1x0"].map(|h| words(&[&srd, "net", "exec", h, "--name", &name, "--"]));
        Ok(Self {
            tools,
            enter,
            ips: ["10.1.0.10", "10.1.1.10"],
            net: "10.1.0.0/16",
            names: ["h0x0", "h1x0"],
            fabric: Some(name),
            holders: Vec::new(),
        })
    }

    fn link(tools: &'a Tools) -> Result<Self> {
        let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
        let works = |way: &&&[&str]| {
            let mut c = Command::new("unshare");
            c.args(**way).arg("true").stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        };
        let way = ways.iter().find(works).ok_or("the kernel refuses network namespaces")?;
        let user = way.len() > 1;
        let mut first = Command::new("unshare");
        first.args(*way).args(["sh", "-c", LINK]);
        let (near, near_holder) = held(first)?;
        let mut second = Command::new("nsenter");
        second.args(entering(&near, user).iter().skip(1)).args(["unshare", "--net"]);
        second.args(["sh", "-c", LINK]);
        let (far, far_holder) = held(second)?;
        let stage = Self {
            tools,
            enter: [entering(&near, user), entering(&far, user)],
            ips: ["10.78.0.1", "10.78.0.2"],
            net: "10.78.0.0/24",
            names: ["near", "far"],
            fabric: None,
            holders: vec![near_holder, far_holder],
        };
        let make = "ip link add n0 mtu 9000 type veth peer name n1 mtu 9000 netns";
        stage.inside(0, &format!("{make} {far}"))?;
        for (i, ip) in stage.ips.iter().enumerate() {
            stage.inside(i, &format!("ethtool -K n{i} {OFFLOADS}"))?;
            stage.inside(i, &format!("ip addr add {ip}/24 dev n{i}"))?;
            stage.inside(i, &format!("ip link set n{i} up"))?;
        }
        Ok(stage)
    }

    fn inside(&self, host: usize, line: &str) -> Result {
        let all = &self.enter[host];
        let mut c = command(&all[0], &[]);
        c.args(&all[1..]).args(line.split(' '));
        output(&mut c).map(|_| ())
    }

    /// Path of a script in the folder.
    fn script(&self, what: &str) -> PathBuf {
        self.tools.folder.join(format!("{what}-{}", self.names[0]))
    }

    /// Writes the scripts that start ranks on the other host, and that pin a rank to its processor.
    fn scripts_write(&self) -> Result {
        let agent = self.ips.iter().zip(&self.enter).zip(self.names).fold(
            "#!/bin/sh\nwhile case \"$1\" in -*) true ;; *) false ;; esac; do shift; done\n\
             host=$1\nshift\ncase $host in\n"
                .to_owned(),
            |text, ((ip, enter), name)| {
                let enter = quoted(enter);
                let raise = quoted(&words(&["setsid", "-w", "sh", "-c", RAISE, "sh"]));
                let named = quoted(&words(&["unshare", "-u", "sh", "-c", NAMED, name]));
                text + &format!("{ip}) exec {raise} {enter} {named} sh -c \"$*\" ;;\n")
            },
        ) + "*) echo \"no host $host\" >&2; exit 1 ;;\nesac\n";
        executable(&self.script("agent"), &agent)?;
        let pinned = "#!/bin/sh\nif [ \"$(nproc)\" -gt \"$OMPI_COMM_WORLD_RANK\" ]; then\n    \
                      exec taskset -c \"$OMPI_COMM_WORLD_RANK\" \"$@\"\nfi\nexec \"$@\"\n";
        executable(&self.script("rank"), pinned)
    }

    /// A command that runs `mpirun` with one rank of the program on each host.
    pub fn mpirun(&self, over: Transport, program: &Path, args: &[&str]) -> Command {
        let srd = self.tools.srd.display().to_string();
        let verbs = self.tools.verbs.display().to_string();
        let lead = ["run", "--verbs-dir", &verbs, "--"];
        let start =
            if over == Transport::Srd { [&[srd.as_str()], &lead[..]].concat() } else { vec![] };
        let hosts = format!("{}:1,{}:1", self.ips[0], self.ips[1]);
        let agent = self.script("agent").display().to_string();
        let mut c = Command::new("setsid");
        c.args(["-w", "sh", "-c", RAISE, "sh"]).args(&self.enter[0]);
        c.args(["unshare", "-u", "sh", "-c", NAMED, self.names[0], "timeout", "-k", "5", LIMIT_S]);
        c.args(start).args(over.mpirun(self.net)).args(["--mca", "plm_rsh_agent", &agent]);
        c.args(["--mca", "oob_tcp_if_include", self.net, "--host", &hosts, "--bind-to", "none"]);
        c.args(["-np", "2"]).arg(self.script("rank")).arg(program).args(args);
        c.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        c
    }

    /// Runs the program until it ends, and returns its output.
    ///
    /// # Errors
    /// The program fails.
    pub fn run(&self, over: Transport, program: &Path, args: &[&str]) -> Result<String> {
        output(&mut self.mpirun(over, program, args))
    }

    /// Starts a TCP connection at full speed between the two other hosts of the fabric.
    ///
    /// # Errors
    /// It does not start, or there is no fabric.
    pub fn elephant(&self) -> Result<Elephant> {
        let name = self.fabric.as_deref().ok_or("a link has no other hosts")?;
        let on = |host: &str, args: &[&str]| {
            let mut c = Command::new(&self.tools.srd);
            c.args(["net", "exec", host, "--name", name, "--", "iperf3"]).args(args);
            c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            c.spawn().map_err(|e| format!("cannot start iperf3: {e}"))
        };
        let server = on("h1x1", &["-s", "-1"])?;
        sleep(Duration::from_millis(500));
        let client = on("h0x1", &["-c", "10.1.1.11", "-t", "600"])?;
        let mut both = Elephant(vec![client, server]);
        sleep(Duration::from_secs(2));
        match both.0[0].try_wait() {
            Ok(None) => Ok(both),
            _ => Err("iperf3 ended at once".into()),
        }
    }

    /// Lets a spine drop all packets for a time, by `srd net fail`.
    ///
    /// # Errors
    /// There is no fabric, or the fault cannot be injected.
    pub fn blackhole(&self, spine: &str, time: &str) -> Result {
        let name = self.fabric.as_deref().ok_or("a link has no spines")?;
        let mut c = Command::new(&self.tools.srd);
        c.args(["net", "fail", "--name", name, "spine", "--blackhole", "--for", time, spine]);
        output(c.stdin(Stdio::null())).map(|_| ())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.fabric {
            // The fabric also ends with this process.
            let _ = output(Command::new(&self.tools.srd).args(["net", "down", "--name", name]));
        }
        for mut child in self.holders.drain(..).rev() {
            drop(child.stdin.take());
            // Fails if the process has ended already.
            let _ = child.wait();
        }
    }
}

/// A TCP connection at full speed; ended when dropped.
pub struct Elephant(Vec<Child>);

impl Drop for Elephant {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a process that keeps a namespace alive; returns the process ID by which to enter it.
fn held(mut c: Command) -> Result<(String, Child)> {
    let mut child = c
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot create a namespace: {e}"))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let read = BufReader::new(out).read_line(&mut line);
        read.map_err(|e| format!("the keeper of a namespace: {e}"))?;
    }
    if line.trim() == "ready" {
        return Ok((child.id().to_string(), child));
    }
    Err("a network namespace could not be created".into())
}

fn entering(pid: &str, user: bool) -> Vec<String> {
    let mut all = words(&["nsenter", "--target", pid, "--net"]);
    if user {
        all.extend(words(&["--user", "--preserve-credentials"]));
    }
    all
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|w| (*w).to_owned()).collect()
}

/// Quotes words for a shell.
fn quoted(all: &[String]) -> String {
    let one = |w: &String| format!("'{}'", w.replace('\'', r"'\''"));
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn executable(path: &Path, text: &str) -> Result {
    let fail = |e| format!("{}: {e}", path.display());
    fs::write(path, text).map_err(fail)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let all = words(&["printf", "%s|", "a b", "it's", "$HOME", "\"x\""]);
        let out = Command::new("sh").args(["-c", &quoted(&all)]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "a b|it's|$HOME|\"x\"|");
    }
}
