//! Network namespaces without names: each exists as long as a process has its file open, so a
//! process that dies for any reason leaves nothing behind.

use crate::error::{NetError, Result};
use rustix::{
    io::Errno,
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};
use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    process::{Command, Stdio},
    thread,
};

/// An open network namespace.
#[derive(Debug)]
pub struct NetNs {
    file: OwnedFd,
}

impl NetNs {
    /// Creates an empty namespace.
    ///
    /// # Errors
    /// The process lacks the privilege: see [`privileges_take`].
    pub fn create() -> Result<Self> {
        // In a separate thread, so that the calling thread stays in its namespace.
        let made = thread::scope(|s| {
            let inner = || -> Result<OwnedFd> {
                crate::sys::unshare(UnshareFlags::NEWNET)
                    .map_err(|e| NetError::system("cannot create a network namespace", e))?;
                Ok(File::open("/proc/thread-self/ns/net")?.into())
            };
            s.spawn(inner).join()
        });
        let file = made.map_err(|_| NetError::new("a thread ended early"))??;
        Ok(Self { file })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn current() -> Result<Self> {
        Ok(Self { file: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// A namespace that another process holds open.
    pub fn from_file(file: File) -> Self {
        Self { file: file.into() }
    }

    /// Path by which other processes can open the namespace while this value exists.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// File descriptor of the namespace.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Moves the calling thread into the namespace; threads and processes that it starts begin
    /// there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> Result {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| NetError::system("cannot enter a network namespace", e))
    }

    /// Runs `work` in a thread inside the namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `work` fails.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let done = thread::scope(|s| {
            let inner = || {
                self.enter()?;
                work()
            };
            s.spawn(inner).join()
        });
        done.map_err(|_| NetError::new("a thread ended early"))?
    }

    /// Runs `program args` inside the namespace with `input`, and returns its output.
    ///
    /// # Errors
    /// The program is not installed, or fails; the text contains its error output.
    pub fn run(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        self.inside(|| run_here(program, args, input))
    }

    /// Sets a sysctl below `/proc/sys/net`; `Ok(false)` if the kernel does not have it.
    ///
    /// # Errors
    /// The kernel refuses the value.
    pub fn sysctl_set(&self, path: &str, value: &str) -> Result<bool> {
        self.inside(|| {
            let file = format!("/proc/sys/net/{path}");
            match fs::write(&file, value) {
                Ok(()) => Ok(true),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(NetError::new(format!(
                    "cannot write {value} to {file}: {e} (in a container, /proc/sys must be \
                     writable: run it with --privileged)"
                ))),
            }
        })
    }

    /// Reads a sysctl below `/proc/sys/net`, with single spaces between its words; `None` if the
    /// kernel does not have it.
    pub fn sysctl(&self, path: &str) -> Option<String> {
        let read = || Ok(fs::read_to_string(format!("/proc/sys/net/{path}"))?);
        let text = self.inside(read).ok()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The package that contains a program, for error texts.
fn package_of(program: &str) -> &str {
    match program {
        "ip" | "tc" => "iproute2",
        other => other,
    }
}

/// Folders of system programs, which are not in every user's PATH.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

fn run_here(program: &str, args: &[&str], input: &str) -> Result<String> {
    let own = std::env::var("PATH").unwrap_or_default();
    let child = Command::new(program)
        .args(args)
        .env("PATH", format!("{own}:{SYSTEM_PATH}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => NetError::new(format!(
            "`{program}` is not installed: install the package {} (apt-get install {})",
            package_of(program),
            package_of(program)
        )),
        _ => NetError::system(&format!("cannot run {program}"), e),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A write fails if the program has ended; its own error text is reported below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let out = child.wait_with_output()?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let line = said
        .lines()
        .find_map(|l| l.strip_prefix("Command failed -:"))
        .and_then(|n| n.parse::<usize>().ok())
        .and_then(|n| input.lines().nth(n - 1))
        .unwrap_or("");
    Err(NetError::new(format!(
        "`{program} {}` failed at `{line}`: {}",
        args.join(" "),
        said.trim()
    )))
}

/// The source of the privilege to create namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// A user namespace of this process, without privileges outside it.
    UserNamespace,
    /// The process's own privileges (root).
    Own,
}

/// Acquires the privilege to create namespaces, by a user namespace if the kernel allows it. Must
/// be called while the process has a single thread.
///
/// # Errors
/// The process cannot acquire it; the text says what to change.
pub fn privileges_take() -> Result<Privilege> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    match crate::sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) {
        Ok(()) => {
            let map = |file: &str, text: String| {
                fs::write(format!("/proc/self/{file}"), text)
                    .map_err(|e| NetError::system(&format!("cannot write /proc/self/{file}"), e))
            };
            map("setgroups", "deny".into())?;
            map("uid_map", format!("0 {uid} 1"))?;
            map("gid_map", format!("0 {gid} 1"))?;
            // Some systems allow user namespaces but no privileges in them.
            match crate::sys::unshare(UnshareFlags::NEWNET) {
                Ok(()) => Ok(Privilege::UserNamespace),
                Err(e) => Err(refused(e)),
            }
        }
        Err(first) => {
            crate::sys::unshare(UnshareFlags::NEWNET).map_err(|_| refused(first))?;
            Ok(Privilege::Own)
        }
    }
}

fn refused(e: Errno) -> NetError {
    NetError::new(format!(
        "the kernel refuses network namespaces ({e}). Run as root; or set \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04 and later); or \
         `sysctl -w kernel.unprivileged_userns_clone=1` (older Debian); or \
         `sysctl -w user.max_user_namespaces=10000`; in a container: start it with --privileged"
    ))
}
