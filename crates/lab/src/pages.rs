//! Huge pages for large runs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where glibc looks for settings.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Asks the kernel for huge pages behind the heap.
const HUGE: &str = "glibc.malloc.hugetlb=1";

/// Starts the process once more, with a heap on huge pages: hosts of a large network lie on many
/// pages, and looking those up takes a fifth to a third of a run. glibc reads this setting before
/// a program begins, so it must be in the environment. Does nothing if any of glibc's settings is
/// given, if this is not glibc, or if the start fails.
pub fn huge_pages(args: &[OsString]) {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) || std::env::var_os(TUNABLES).is_some() {
        return;
    }
    let Some((name, rest)) = args.split_first() else { return };
    // Comes back only with an error; then the pages stay small.
    let _ = Command::new("/proc/self/exe").arg0(name).args(rest).env(TUNABLES, HUGE).exec();
}
