//! A file being written. Where the file system supports it (`O_TMPFILE`), the file has no name
//! until it is complete, so that even `kill -9` leaves nothing.

use super::failure;
use crate::failure::{Failure, Result};
use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    fs::File,
    io::Write,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Permissions of a new file before the umask.
const MODE: Mode = Mode::from_raw_mode(0o666);
/// Temporary names tried before giving up.
const TRIES_MAX: u32 = 64;

/// A file being written. If dropped without [`Target::commit`], it is removed.
#[derive(Debug)]
pub struct Target {
    dir: OwnedFd,
    name: PathBuf,
    what: String,
    file: File,
    /// Temporary name; `None` if the file has no name yet.
    temporary: Option<PathBuf>,
}

impl Target {
    /// Creates the file `name` of `size` bytes in `dir`; error texts call it `what`.
    ///
    /// # Errors
    /// The name belongs to something other than a regular file, the file cannot be created, or
    /// there is no space.
    pub fn create(dir: OwnedFd, name: &Path, what: &str, size: u64) -> Result<Self> {
        check_free(&dir, name, what)?;
        let (file, temporary) = begin(&dir).map_err(|e| failure(what, e))?;
        let target = Self { dir, name: name.to_owned(), what: what.to_owned(), file, temporary };
        if size > 0 {
            // Reserves the space, to detect a full disk early. If the file system cannot, writes
            // will detect it.
            match rustix::fs::fallocate(&target.file, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(Errno::INVAL) => return Err(target.failure(Errno::FBIG)),
                Err(e) => return Err(target.failure(e)),
            }
        }
        Ok(target)
    }

    /// As on a file system without `O_TMPFILE`.
    #[cfg(test)]
    pub(super) fn with_temporary(dir: OwnedFd, name: &Path, file: File, temporary: &Path) -> Self {
        let what = name.display().to_string();
        Self { dir, name: name.to_owned(), what, file, temporary: Some(temporary.to_owned()) }
    }

    fn failure(&self, e: Errno) -> Failure {
        failure(&self.what, e)
    }

    /// Appends data.
    ///
    /// # Errors
    /// The disk is full or has failed.
    pub fn write(&mut self, data: &[u8]) -> Result {
        self.file.write_all(data).map_err(|e| match Errno::from_io_error(&e) {
            Some(errno) => self.failure(errno),
            None => Failure::new(format!("{}: {e}", self.what)),
        })
    }

    /// Waits until the data is on the disk, which may take long.
    ///
    /// # Errors
    /// The disk is full or has failed.
    pub fn sync(&self) -> Result {
        rustix::fs::fsync(&self.file).map_err(|e| self.failure(e))
    }

    /// Gives the file its name, replacing an older file. Call after [`Target::sync`].
    ///
    /// # Errors
    /// The name has become a folder's, or permission was revoked. The file is removed then.
    pub fn commit(mut self) -> Result {
        self.rename().map_err(|e| self.failure(e))?;
        // Makes the name durable, too; some file systems do not support it.
        match rustix::fs::fsync(&self.dir) {
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(self.failure(e)),
        }
    }

    fn rename(&mut self) -> Result<(), Errno> {
        if self.temporary.is_none() {
            match self.link(&self.name.clone()) {
                Err(Errno::EXIST) => {}
                done => return done,
            }
            // A hard link cannot replace a file, but a rename can.
            let (temporary, ()) = with_free_name(|name| self.link(name))?;
            self.temporary = Some(temporary);
        }
        if let Some(temporary) = &self.temporary {
            rustix::fs::renameat(&self.dir, temporary, &self.dir, &self.name)?;
            self.temporary = None;
        }
        Ok(())
    }

    /// Links the nameless file to a name.
    fn link(&self, name: &Path) -> Result<(), Errno> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, own, &self.dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Can fail only if the file no longer exists.
            let _ = rustix::fs::unlinkat(&self.dir, temporary, AtFlags::empty());
        }
    }
}

/// Refuses a name that belongs to anything other than a regular file.
fn check_free(dir: &OwnedFd, name: &Path, what: &str) -> Result {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(failure(what, e)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(failure(what, Errno::ISDIR)),
        FileType::Symlink => Err(failure(what, Errno::LOOP)),
        _ => Err(Failure::new(format!("{what}: exists and is not a regular file"))),
    }
}

/// Creates a file in `dir`, without a name if possible.
fn begin(dir: &OwnedFd) -> Result<(File, Option<PathBuf>), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if Path::new("/proc/self/fd").exists()
        && let Ok(fd) = rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, MODE)
    {
        return Ok((File::from(fd), None));
    }
    let new = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let (name, fd) = with_free_name(|name| rustix::fs::openat(dir, name, new, MODE))?;
    Ok((File::from(fd), Some(name)))
}

/// Calls `make` with temporary names until one is free.
fn with_free_name<T>(make: impl Fn(&Path) -> Result<T, Errno>) -> Result<(PathBuf, T), Errno> {
    let process = std::process::id();
    for try_number in 0..TRIES_MAX {
        let name = PathBuf::from(format!(".srd-{process}-{try_number}.part"));
        match make(&name) {
            Err(Errno::EXIST) => {}
            done => return done.map(|made| (name, made)),
        }
    }
    Err(Errno::EXIST)
}
