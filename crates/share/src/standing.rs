//! Root's orders about paths for users who have no table yet ([`PathControl`]).
//!
//! One file of `/dev/shm` per network namespace, which belongs to root and which all may read. The
//! table of a user begins with what it says. It has the layout of a user's table.

use crate::control::{PathControl, PathTable, TABLE_WORDS, change_in, path_for, table_write};
use crate::map::{Map, file_link, file_reserve, file_unnamed};
use srd_core::PathMask;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// In place of a user's number in the name.
const ALL: &str = "all";
/// The user whose file is believed.
pub(crate) const ROOT: u32 = 0;

/// Path of the file of this process's network namespace.
pub(crate) fn standing_path() -> PathBuf {
    path_for(ALL)
}

/// Root's standing orders in this network namespace; `None`: there are none, or they are damaged.
pub fn standing_orders() -> Option<PathTable> {
    crate::control::table_read(&standing_path(), ROOT).flatten()
}

/// Changes the standing orders, as [`PathControl::change`] does those of a user; `paths`: as many
/// as devices have. Returns what is denied to `ip` now. `control`: that of root.
///
/// # Errors
/// As for [`PathControl::change`], or the caller is not root.
pub fn standing_change(
    control: &PathControl,
    ip: IpAddr,
    paths: u16,
    least: u16,
    change: impl FnOnce(PathMask) -> PathMask,
) -> io::Result<PathMask> {
    control.locked(|| change_at(&standing_path(), ROOT, ip, (paths, least), change))
}

pub(crate) fn change_at(
    path: &Path,
    owner: u32,
    ip: IpAddr,
    (paths, least): (u16, u16),
    change: impl FnOnce(PathMask) -> PathMask,
) -> io::Result<PathMask> {
    // A file of somebody else, or a damaged one, ends here.
    let mut table = crate::control::table_read(path, owner).flatten().unwrap_or_default();
    let mask = change_in(&mut table, ip, paths, least, change)?;
    table.probes.clear();
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    if !table.orders.is_empty() {
        let file = file_unnamed(path)?;
        file_reserve(&file, 8 * TABLE_WORDS)?;
        table_write(Map::new(&file, TABLE_WORDS)?.words(), 1, &table);
        file.set_permissions(Permissions::from_mode(0o644))?;
        // It has a name only when it is complete.
        file_link(&file, path)?;
    }
    Ok(mask)
}
