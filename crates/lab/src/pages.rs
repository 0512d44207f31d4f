//! Huge pages for large runs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Environment variable of glibc's settings.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Setting that requests huge pages for the heap.
const HUGE: &str = "glibc.malloc.hugetlb=1";

/// Restarts the process with a heap on huge pages: the hosts of a large network occupy many pages,
/// whose address translation takes a fifth to a third of a run. glibc reads this setting before a
/// program starts, so it must be in the environment. Does nothing if any of glibc's settings is
/// given, on systems without glibc, or if the restart fails.
pub fn huge_pages(args: &[OsString]) {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) || std::env::var_os(TUNABLES).is_some() {
        return;
    }
    let Some((name, rest)) = args.split_first() else { return };
    // Returns only on an error; the heap then keeps small pages.
    let _ = Command::new("/proc/self/exe").arg0(name).args(rest).env(TUNABLES, HUGE).exec();
}
