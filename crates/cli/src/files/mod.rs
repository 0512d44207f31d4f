//! Files that are opened only within one folder, and appear under their name only when complete.

mod folder;
mod target;

pub use folder::Folder;
pub use target::Target;

use crate::failure::{Failure, Result};
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Explains a file error, with what to do where possible.
fn failure(what: &str, e: Errno) -> Failure {
    Failure::new(match e {
        Errno::NOSPC | Errno::DQUOT => format!("{what}: no space left; delete other files there"),
        Errno::NOENT => format!("{what}: no such file or folder"),
        Errno::NOTDIR => format!("{what}: part of the path is not a folder"),
        Errno::LOOP => format!("{what}: symbolic links are not followed"),
        Errno::ISDIR => format!("{what}: is a folder; name a file"),
        Errno::NAMETOOLONG => format!("{what}: the name is too long"),
        Errno::FBIG => format!("{what}: too large for the file system"),
        Errno::ACCESS | Errno::PERM => format!("{what}: permission denied"),
        other => format!("{what}: {}", io::Error::from(other)),
    })
}

/// Opens a folder; `follow` allows a symbolic link as the last part.
fn folder_open(at: impl AsFd, name: &Path, follow: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    match rustix::fs::openat(at.as_fd(), name, flags, Mode::empty()) {
        // The error of O_DIRECTORY with O_NOFOLLOW for a symbolic link.
        Err(Errno::NOTDIR) if !follow && is_link(at, name) => Err(Errno::LOOP),
        other => other,
    }
}

fn is_link(at: impl AsFd, name: &Path) -> bool {
    let stat = rustix::fs::statat(at, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink)
}

/// Opens a regular file for reading. Returns it and its size in bytes.
fn read_open(at: impl AsFd, name: &Path, what: &str, follow: bool) -> Result<(File, u64)> {
    // Without blocking: opening a FIFO would wait for a writer.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let fail = |e| failure(what, e);
    let fd = rustix::fs::openat(at, name, flags, Mode::empty()).map_err(fail)?;
    let stat = rustix::fs::fstat(&fd).map_err(fail)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((File::from(fd), u64::try_from(stat.st_size).unwrap_or(0))),
        FileType::Directory => Err(fail(Errno::ISDIR)),
        _ => Err(Failure::new(format!("{what}: is not a regular file (device, pipe or socket)"))),
    }
}

/// Opens a local file for reading.
///
/// # Errors
/// The file does not exist, is not a regular file, or cannot be read.
pub fn local_read(path: &Path) -> Result<(File, u64)> {
    read_open(rustix::fs::CWD, path, &path.display().to_string(), true)
}

/// Creates a local file. If `path` is a folder, the file is created in it under `name`.
///
/// # Errors
/// The folder does not exist or is not writable.
pub fn local_create(path: &Path, name: &str, size: u64) -> Result<Target> {
    let path = if path.is_dir() { path.join(name) } else { path.to_owned() };
    let what = path.display().to_string();
    let file = path.file_name().ok_or_else(|| failure(&what, Errno::ISDIR))?;
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let dir = folder_open(rustix::fs::CWD, &parent, true)
        .map_err(|e| failure(&parent.display().to_string(), e))?;
    Target::create(dir, Path::new(file), &what, size)
}

#[cfg(test)]
mod tests;
