//! Network namespaces without names: each lives as long as somebody has its file open, so nothing
//! is left behind by a process that dies, whatever it dies of.

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
    /// Makes one, empty.
    ///
    /// # Errors
    /// The process may not: see [`privileges_take`].
    pub fn create() -> Result<Self> {
        // A thread of its own: whoever calls stays where it is.
        let made = thread::scope(|s| {
            let inner = || -> Result<OwnedFd> {
                crate::sys::unshare(UnshareFlags::NEWNET)
                    .map_err(|e| NetError::system("cannot make a network namespace", e))?;
                Ok(File::open("/proc/thread-self/ns/net")?.into())
            };
            s.spawn(inner).join()
        });
        let file = made.map_err(|_| NetError::new("a thread ended early"))??;
        Ok(Self { file })
    }

    /// The namespace that the calling thread is in.
    ///
    /// # Errors
    /// /proc is not there.
    pub fn current() -> Result<Self> {
        Ok(Self { file: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// One that another process holds open.
    pub fn from_file(file: File) -> Self {
        Self { file: file.into() }
    }

    /// Name under which other processes can open it while this one lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Number of the open file.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Moves the calling thread into it; threads and processes that it starts begin there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> Result {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| NetError::system("cannot enter a network namespace", e))
    }

    /// Does `work` on a thread inside.
    ///
    /// # Errors
    /// It cannot be entered, or `work` fails.
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

    /// Runs `program args` inside with `input`, and returns what it prints.
    ///
    /// # Errors
    /// It is not installed, or ends with an error, whose text is given.
    pub fn run(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        self.inside(|| run_here(program, args, input))
    }

    /// Sets a sysctl below `/proc/sys/net`; `Ok(false)` when the kernel does not have it.
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
}

/// Which package a program is in, for error texts.
fn package_of(program: &str) -> &str {
    match program {
        "ip" | "tc" => "iproute2",
        other => other,
    }
}

/// Where Debian keeps programs of the system, which is not in every user's PATH.
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
        // A program that ends early says why itself.
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

/// What made namespaces possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// A user namespace of this process's own: no rights outside are needed or used.
    UserNamespace,
    /// Rights that the process has anyway (root).
    Own,
}

/// Gains the right to make namespaces, by a user namespace where the kernel allows it. Must be
/// called while the process has one thread.
///
/// # Errors
/// Neither way is open; the text says what to change.
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
            // Some systems grant the namespace but no rights in it.
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
        "the kernel refuses network namespaces ({e}). What helps: as root; or \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04 and later); or \
         `sysctl -w kernel.unprivileged_userns_clone=1` (older Debian); or \
         `sysctl -w user.max_user_namespaces=10000`; in a container: start it with --privileged"
    ))
}
