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

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = exit::at_exit;
