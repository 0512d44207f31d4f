//! A file on its way: without a name until it is complete, where the file system can do that, so
//! that not even `kill -9` leaves anything.

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

/// Rights of a new file, less the process's umask.
const MODE: Mode = Mode::from_raw_mode(0o666);
/// Temporary names tried before giving up.
const TRIES_MAX: u32 = 64;

/// A file that is being written. Dropped without [`Target::commit`], it leaves nothing.
#[derive(Debug)]
pub struct Target {
    dir: OwnedFd,
    name: PathBuf,
    what: String,
    file: File,
    /// Its name until it is complete; `None` while it has none.
    temporary: Option<PathBuf>,
}

impl Target {
    /// Begins the file `name` of `size` bytes in `dir`; messages call it `what`.
    ///
    /// # Errors
    /// Something else than a regular file has the name; no file can be made; no space.
    pub fn create(dir: OwnedFd, name: &Path, what: &str, size: u64) -> Result<Self> {
        check_free(&dir, name, what)?;
        let (file, temporary) = begin(&dir).map_err(|e| failure(what, e))?;
        let target = Self { dir, name: name.to_owned(), what: what.to_owned(), file, temporary };
        if size > 0 {
            // Early notice of a full disk. Where the file system cannot tell, writing will.
            match rustix::fs::fallocate(&target.file, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(Errno::INVAL) => return Err(target.failure(Errno::FBIG)),
                Err(e) => return Err(target.failure(e)),
            }
        }
        Ok(target)
    }

    /// As on a file system without nameless files.
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
    /// The disk is full or broken.
    pub fn write(&mut self, data: &[u8]) -> Result {
        self.file.write_all(data).map_err(|e| match Errno::from_io_error(&e) {
            Some(errno) => self.failure(errno),
            None => Failure::new(format!("{}: {e}", self.what)),
        })
    }

    /// Makes sure that the data is on the disk. May take long.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub fn sync(&self) -> Result {
        rustix::fs::fsync(&self.file).map_err(|e| self.failure(e))
    }

    /// Gives the file its name, in place of an older one. Call after [`Target::sync`].
    ///
    /// # Errors
    /// Meanwhile a folder has that name, or the rights are gone. Nothing is left then.
    pub fn commit(mut self) -> Result {
        self.rename().map_err(|e| self.failure(e))?;
        // The name, too, shall survive a loss of power. Some file systems cannot do this.
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
            // A link replaces nothing, a renaming does.
            let (temporary, ()) = with_free_name(|name| self.link(name))?;
            self.temporary = Some(temporary);
        }
        if let Some(temporary) = &self.temporary {
            rustix::fs::renameat(&self.dir, temporary, &self.dir, &self.name)?;
            self.temporary = None;
        }
        Ok(())
    }

    /// Gives the nameless file a name.
    fn link(&self, name: &Path) -> Result<(), Errno> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, own, &self.dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // It can only be gone already.
            let _ = rustix::fs::unlinkat(&self.dir, temporary, AtFlags::empty());
        }
    }
}

/// Refuses a name that something else than a regular file has.
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

/// A new file in `dir`, without a name if that can be.
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
