//! Code that runs when the library is loaded into a process, and at process exit.

use crate::{exit, sysfs};
use srd_guard::guarded;
use std::env;

/// Programs look for the device's description in the folder that this variable names.
#[guarded]
extern "C" fn at_load() {
    if env::var_os(sysfs::SYSFS_PATH).is_none_or(|path| path != sysfs::root()) {
        // SAFETY: libraries are loaded before the program starts threads, or under the loader's
        // lock by a program that must not change its environment meanwhile.
        unsafe { env::set_var(sysfs::SYSFS_PATH, sysfs::root()) };
    }
}

/// What a process says when it gets SIGUSR1.
const SIGUSR1_TEXT: &str = "srd: SIGUSR1 has no effect; `srd stat` shows what this process does\n";

/// Makes SIGUSR1 harmless where it would end the process. People send it to see what a process
/// does, and launchers pass it on to all processes of a job. A program's own handler stays, and one
/// that it installs later replaces this one.
pub(crate) fn sigusr1_survive() {
    // SAFETY: both structures live until the calls return, all zeros is a valid action, and the
    // handler calls only what is safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut action);
        if asked == 0 && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = on_sigusr1 as *const () as usize;
            // Calls that the signal interrupts continue.
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        }
    }
}

#[guarded]
extern "C" fn on_sigusr1(_: libc::c_int) {
    // SAFETY: write is async-signal-safe, the text is static, and errno, which belongs to whatever
    // was interrupted, is restored.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(libc::STDERR_FILENO, SIGUSR1_TEXT.as_ptr().cast(), SIGUSR1_TEXT.len());
        *errno = before;
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = exit::at_exit;
