//! A fabric in the background: a process, the holder, keeps its namespaces open, and a small file
//! describes them. When the holder ends for any reason, the kernel removes the fabric.

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    ns::{NetNs, privileges_take},
    spec::FabricSpec,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal, setsid},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env,
    fs::{self, DirBuilder, File},
    io::{BufRead as _, BufReader, Write as _},
    os::{
        fd::AsFd as _,
        unix::{
            fs::{DirBuilderExt as _, MetadataExt as _},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Content of a fabric's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Process ID of the holder.
    pub pid: i32,
    /// Start time of the holder in clock ticks since boot, because process IDs are reused.
    pub started: u64,
    /// Whether the holder has its own user namespace.
    pub user_namespace: bool,
    /// Whether the fabric has IPv6.
    pub v6: bool,
    /// The specification of the fabric.
    pub spec: FabricSpec,
    /// File descriptor of each node's namespace in the holder.
    pub nodes: BTreeMap<String, i32>,
}

/// The folder of the files, accessible only to this user.
///
/// # Errors
/// The folder belongs to another user, or cannot be created.
fn folder() -> Result<PathBuf> {
    let uid = getuid().as_raw();
    let base = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_dir());
    let folder = base.map_or_else(
        || env::temp_dir().join(format!("srd-net-{uid}")),
        |base| base.join("srd-net"),
    );
    let what = || format!("cannot use the folder {}", folder.display());
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(NetError::system(&what(), e)),
    }
    let meta = fs::symlink_metadata(&folder).map_err(|e| NetError::system(&what(), e))?;
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o077 != 0 {
        return Err(NetError::new(format!(
            "{}: it must be a folder of your own with mode 0700; remove it",
            what()
        )));
    }
    Ok(folder)
}

fn file_of(name: &str) -> Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
        return Err(NetError::usage(format!(
            "`{name}` cannot name a fabric: use letters, digits, - and _, at most 40 of them"
        )));
    }
    Ok(folder()?.join(format!("{name}.json")))
}

/// Start time of a process in clock ticks since boot.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name may contain any character, but is followed by the last ')'.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    if words.next() == Some("Z") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

impl State {
    /// Whether the holder is running.
    pub fn is_up(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Whether this process is in the fabric's user namespace already, as are children of `srd net
    /// exec`: the kernel refuses to enter a user namespace twice.
    fn is_entered(&self) -> bool {
        let name = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let own = name("self");
        own.is_some() && own == name(&self.pid.to_string())
    }

    /// Opens the fabric's nodes, and enters its user namespace if it has one and this process needs
    /// its privileges. The process must have a single thread.
    ///
    /// # Errors
    /// The holder has ended, or belongs to another user.
    pub fn open(&self) -> Result<Fabric> {
        let what = |e: &dyn std::fmt::Display| {
            NetError::new(format!("cannot enter the fabric of process {}: {e}", self.pid))
        };
        let mut nodes = BTreeMap::new();
        for (name, fd) in &self.nodes {
            let node = self.spec.node(name)?;
            let file = File::open(format!("/proc/{}/fd/{fd}", self.pid)).map_err(|e| what(&e))?;
            nodes.insert(node, NetNs::from_file(file));
        }
        // Root has them anyway, and would lose others: in a user namespace with a single user,
        // daemons such as Slurm's cannot change to the users of their jobs.
        if self.user_namespace && !self.is_entered() && !is_root_of_all() {
            let user = File::open(format!("/proc/{}/ns/user", self.pid)).map_err(|e| what(&e))?;
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(|e| what(&e))?;
        }
        Ok(Fabric::opened(self.spec.clone(), nodes, self.v6))
    }
}

/// Number of the capability to enter namespaces (capabilities(7)).
const CAP_SYS_ADMIN: u32 = 21;

/// Whether this process is root outside of all user namespaces, with the privilege to enter
/// namespaces: it has this privilege in every user namespace, too.
fn is_root_of_all() -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    has_all_users(&read("uid_map")) && may_enter(&read("status"))
}

/// Whether a `uid_map` is that of the first user namespace, in which each user is itself.
fn has_all_users(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether a process with this `status` may enter namespaces.
fn may_enter(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// All running fabrics of this user, by name. Removes the files of others.
///
/// # Errors
/// The folder cannot be read.
pub fn all() -> Result<BTreeMap<String, State>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(folder()?)? {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let Some(name) = path.file_stem().and_then(|s| s.to_str()) else { continue };
        match read(&path) {
            Some(state) if state.is_up() => {
                out.insert(name.to_owned(), state);
            }
            _ => fs::remove_file(&path)?,
        }
    }
    Ok(out)
}

fn read(path: &Path) -> Option<State> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// The running fabric with this name.
///
/// # Errors
/// No such fabric is running.
pub fn get(name: &str) -> Result<State> {
    read(&file_of(name)?).filter(State::is_up).ok_or_else(|| {
        NetError::new(format!(
            "there is no fabric `{name}`: `srd net up` builds one, `srd net status` lists them"
        ))
    })
}

/// Starts a holder in the background and waits until the fabric is built.
///
/// # Errors
/// A fabric with this name is running, or the fabric cannot be built.
pub fn up(name: &str, spec: &FabricSpec, until_pid: Option<i32>) -> Result<Vec<String>> {
    spec.validate()?;
    let file = file_of(name)?;
    if read(&file).is_some_and(|s| s.is_up()) {
        return Err(NetError::new(format!(
            "the fabric `{name}` is up already: `srd net down --name {name}` first, or another \
             --name"
        )));
    }
    let exe = env::current_exe()?;
    let mut command = Command::new(exe);
    command.args(["net", "hold", "--name", name, "--spec", &serde_json::to_string(spec)?]);
    if let Some(pid) = until_pid {
        command.args(["--until-pid", &pid.to_string()]);
    }
    let mut child = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let mut notes = Vec::new();
    let out = child.stdout.take().ok_or_else(|| NetError::new("no pipe"))?;
    for line in BufReader::new(out).lines() {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("note", text) => notes.push(text.to_owned()),
            ("failed", text) => return Err(NetError::new(text.replace('\u{1}', "\n"))),
            ("up", _) => return Ok(notes),
            _ => {}
        }
    }
    Err(NetError::new("the process that should hold the fabric ended without an error message"))
}

/// The holder: builds the fabric, reports it, and waits until it is killed or `until_pid` ends.
///
/// # Errors
/// The fabric cannot be built; also reported on standard output.
pub fn hold(name: &str, spec: &str, until_pid: Option<i32>) -> Result {
    let tell = |line: &str| {
        let mut out = std::io::stdout().lock();
        // Fails if the starting process has exited; the fabric stays nevertheless.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    let build = || -> Result<Fabric> {
        let file = file_of(name)?;
        // Opened before the user namespace is entered, which hides the owner of that process.
        let spec: FabricSpec = serde_json::from_str(spec)?;
        let privilege = privileges_take()?;
        let (fabric, notes) = Fabric::build(&spec)?;
        for note in notes {
            tell(&format!("note {note}"));
        }
        let pid = std::process::id() as i32;
        let state = State {
            pid,
            started: started(pid).ok_or_else(|| NetError::new("/proc is not mounted"))?,
            user_namespace: privilege == crate::ns::Privilege::UserNamespace,
            v6: fabric.v6(),
            nodes: fabric.nodes().map(|(n, ns)| (n.to_string(), ns.fd())).collect(),
            spec,
        };
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(&state)?)?;
        fs::rename(&new, &file)?;
        Ok(fabric)
    };
    let watched = until_pid.and_then(Pid::from_raw).map(|p| pidfd_open(p, PidfdFlags::empty()));
    // Fails only if the process is a session leader already.
    let _ = setsid();
    match build() {
        Ok(fabric) => {
            tell("up");
            match watched {
                Some(Ok(fd)) => {
                    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
                }
                Some(Err(_)) => {}
                None => loop {
                    std::thread::park();
                },
            }
            drop(fabric);
            fs::remove_file(file_of(name)?).map_err(Into::into)
        }
        Err(e) => {
            tell(&format!("failed {}", e.to_string().replace('\n', "\u{1}")));
            Err(e)
        }
    }
}

/// Removes a fabric, and ends the processes in it. Returns their number.
///
/// # Errors
/// The holder belongs to another user.
pub fn down(name: &str, state: &State) -> Result<usize> {
    let spaces: Vec<u64> = state
        .nodes
        .values()
        .filter_map(|fd| fs::metadata(format!("/proc/{}/fd/{fd}", state.pid)).ok())
        .map(|m| m.ino())
        .collect();
    let mut ended = 0;
    for pid in processes()? {
        let inside =
            fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| spaces.contains(&m.ino()));
        if inside && pid != state.pid {
            end(pid)?;
            ended += 1;
        }
    }
    if state.is_up() {
        end(state.pid)?;
    }
    match fs::remove_file(file_of(name)?) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(ended),
    }
}

fn processes() -> Result<Vec<i32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

/// Kills a process and waits for its end.
fn end(pid: i32) -> Result {
    let Some(number) = Pid::from_raw(pid) else { return Ok(()) };
    let Ok(fd) = pidfd_open(number, PidfdFlags::empty()) else { return Ok(()) };
    pidfd_send_signal(&fd, Signal::KILL)
        .map_err(|e| NetError::system(&format!("cannot end process {pid}"), e))?;
    let two_seconds = rustix::event::Timespec { tv_sec: 2, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&two_seconds))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_of_all_users_with_the_privilege_keeps_its_own() {
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(!has_all_users("         0       1000          1\n"));
        assert!(!has_all_users("0 0 1000\n1000 1000 4294966295\n") && !has_all_users(""));
        assert!(may_enter("Name:\tsrd\nCapEff:\t000001ffffffffff\n"));
        assert!(may_enter("CapEff:\t0000000000200000\n"));
        // Root of a container without privileges.
        assert!(!may_enter("CapEff:\t00000000a80425fb\n") && !may_enter("CapEff:\tx\n"));
    }
}
