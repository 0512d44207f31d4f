//! The limits of a process, of a container and of the host that matter to devices, and those that
//! do not although other RDMA hardware needs them.

use super::doctor::{Findings, Verdict};
use crate::{device::number_set, failure::Result};
use srd::DeviceConfig;
use srd_share::shared_memory_free;
use std::{
    fs, io,
    process::{Command, Stdio},
};

/// File descriptors for the program, and for a device beside the sockets of its paths.
const DESCRIPTORS_BESIDE: u64 = 192;
/// Bytes of `/dev/shm` that the processes of a host want: 2.1 MB for what they know together of
/// remote addresses, some kB each for what they show to tools, and as much again for MPI.
const SHM_BYTES_MIN: u64 = 16 << 20;

/// A finding, and the advice that goes with it.
type Told = (Verdict, String, &'static str);

/// Checks the limits of this user's processes, for devices as the settings want them.
///
/// # Errors
/// A setting has a wrong value, or the reader of the output has exited.
pub fn check(found: &mut Findings) -> Result {
    let config = DeviceConfig::loopback();
    let paths = number_set("SRD_PATHS", "number of paths")?.unwrap_or(config.paths);
    let sockets = u64::from(paths) * u64::from(config.shards);
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let namespaces = number("/proc/sys/user/max_user_namespaces");
    let by_all = number("/proc/sys/kernel/unprivileged_userns_clone");
    let all = [
        open_files(soft(&limits, "Max open files"), sockets),
        locked_memory(soft(&limits, "Max locked memory"), is_privileged(&status)),
        shared_memory(shared_memory_free()),
        user_namespaces(namespaces, by_all, namespace_made()),
    ];
    all.iter().try_for_each(|(verdict, what, advice)| found.tell(*verdict, what, advice))
}

/// The soft limit of that name in `/proc/self/limits`; `None` if it is not there, `u64::MAX` if
/// there is no limit.
fn soft(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        value => value.parse().ok(),
    }
}

/// Whether the process has any capability, by `/proc/self/status`.
fn is_privileged(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.is_some_and(|set| !set.trim().trim_start_matches('0').is_empty())
}

/// `sockets`: of the paths of a device, in all its shards.
fn open_files(soft: Option<u64>, sockets: u64) -> Told {
    const RAISE: &str = "ulimit -n 8192 (docker run --ulimit nofile=8192; systemd: \
                         LimitNOFILE=8192), or fewer paths: SRD_PATHS=16, or fewer shards: \
                         SRD_SHARDS";
    let needed = DESCRIPTORS_BESIDE + sockets;
    match soft {
        Some(n) if n < needed => {
            let what = format!(
                "only {n} open files are allowed, not {needed}: a device has a socket per path in \
                 each of its shards"
            );
            (Verdict::Failed, what, RAISE)
        }
        _ => (Verdict::Good, "enough open files are allowed".to_owned(), ""),
    }
}

fn locked_memory(soft: Option<u64>, privileged: bool) -> Told {
    let limit = match soft {
        None => "unknown".to_owned(),
        Some(u64::MAX) => "none".to_owned(),
        Some(bytes) => format!("{} KiB", bytes >> 10),
    };
    let has = if privileged { "this process has some" } else { "this process has none" };
    let what = format!(
        "locked memory (limit: {limit}) and capabilities ({has}) are not needed: no memory is \
         pinned"
    );
    (Verdict::Good, what, "")
}

fn shared_memory(free: io::Result<u64>) -> Told {
    match free {
        Ok(bytes) if bytes >= SHM_BYTES_MIN => {
            (Verdict::Good, format!("/dev/shm has {} MiB free", bytes >> 20), "")
        }
        Ok(bytes) => {
            let what = format!(
                "/dev/shm has only {} MiB free: processes without room there do not share what \
                 they know of paths, tools do not see them, and MPI may fail",
                bytes >> 20
            );
            (Verdict::Advice, what, "docker run --shm-size=64m; mount -o remount,size=64m /dev/shm")
        }
        Err(e) => {
            let what = format!(
                "/dev/shm cannot be used ({e}): processes do not share what they know of paths, \
                 and tools do not see them"
            );
            (Verdict::Advice, what, "mount -t tmpfs tmpfs /dev/shm")
        }
    }
}

/// Whether a user namespace with a network of its own can be made here: switches of the kernel are
/// not all that can forbid it (AppArmor, filters of system calls in containers, a changed root).
/// `None` if there is no program to try it with.
fn namespace_made() -> Option<bool> {
    let mut attempt = Command::new("unshare");
    attempt.args(["--user", "--map-root-user", "--net", "true"]).stdin(Stdio::null());
    Some(attempt.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?.success())
}

/// `most`: of this user, or of a container; `by_all`: Debian's switch for users other than root;
/// `made`: what an attempt gave.
fn user_namespaces(most: Option<u64>, by_all: Option<u64>, made: Option<bool>) -> Told {
    if most == Some(0) || by_all == Some(0) {
        let what = "user namespaces are forbidden: `srd net` needs root then, nothing else does";
        let advice = "sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1";
        return (Verdict::Advice, what.to_owned(), advice);
    }
    if made == Some(false) {
        let what = "user namespaces are refused: `srd net` needs root then, nothing else does";
        let advice = "Ubuntu 24.04 and later: sysctl -w \
                      kernel.apparmor_restrict_unprivileged_userns=0; in a container: start it \
                      with --privileged; in a chroot there are none";
        return (Verdict::Advice, what.to_owned(), advice);
    }
    (Verdict::Good, "user namespaces are allowed (only `srd net` uses them)".to_owned(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max open files            255                  4096                 files
Max locked memory         0                    unlimited            bytes
Max address space         unlimited            unlimited            bytes
";

    #[test]
    fn soft_limits_are_read() {
        assert_eq!(soft(LIMITS, "Max open files"), Some(255));
        assert_eq!(soft(LIMITS, "Max locked memory"), Some(0));
        assert_eq!(soft(LIMITS, "Max address space"), Some(u64::MAX));
        assert_eq!(soft(LIMITS, "Max processes"), None);
    }

    #[test]
    fn only_open_files_are_required() {
        let (verdict, what, advice) = open_files(Some(255), 64);
        assert_eq!(verdict, Verdict::Failed);
        assert!(what.contains("255") && advice.contains("ulimit -n"), "{what}: {advice}");
        assert_eq!(open_files(Some(256), 64).0, Verdict::Good);
        assert_eq!(open_files(Some(u64::MAX), 64).0, Verdict::Good);
        // 16 shards, by the limit of most systems.
        let (verdict, what, advice) = open_files(Some(1024), 16 * 64);
        assert!(verdict == Verdict::Failed && advice.contains("SRD_SHARDS"), "{what}: {advice}");
        assert!(what.contains("only 1024") && what.contains("not 1216"), "{what}");
        assert_eq!(open_files(Some(1024), 8 * 64).0, Verdict::Good);
        for limit in [None, Some(0), Some(64 << 10), Some(u64::MAX)] {
            assert_eq!(locked_memory(limit, false).0, Verdict::Good);
        }
        assert!(locked_memory(Some(64 << 10), false).1.contains("64 KiB"));
        assert!(locked_memory(Some(0), true).1.contains("(limit: 0 KiB)"));
    }

    #[test]
    fn capabilities_are_read() {
        assert!(!is_privileged("Name:\tx\nCapEff:\t0000000000000000\n"));
        assert!(is_privileged("Name:\tx\nCapEff:\t0000000000003000\n"));
        assert!(!is_privileged(""));
    }

    #[test]
    fn little_shared_memory_and_no_namespaces_are_worth_advice() {
        assert_eq!(shared_memory(Ok(64 << 20)).0, Verdict::Good);
        for result in [Ok(4 << 20), Err(io::ErrorKind::NotFound.into())] {
            let (verdict, _, advice) = shared_memory(result);
            assert!(verdict == Verdict::Advice && !advice.is_empty());
        }
        assert_eq!(user_namespaces(Some(0), None, None).0, Verdict::Advice);
        assert_eq!(user_namespaces(Some(100), Some(0), Some(false)).0, Verdict::Advice);
        assert_eq!(user_namespaces(Some(100), Some(1), None).0, Verdict::Good);
        assert_eq!(user_namespaces(None, None, Some(true)).0, Verdict::Good);
        // No switch forbids them, and there are none nevertheless.
        let (verdict, what, _) = user_namespaces(Some(100), None, Some(false));
        assert!(verdict == Verdict::Advice && what.contains("refused"), "{what}");
    }
}
