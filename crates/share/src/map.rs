//! A file mapped as 64-bit words: the only `unsafe` code of this crate.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The words of a mapped file.
#[derive(Debug)]
pub(crate) struct Map {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is shared memory that is read and written by atomic operations only, from
// whichever thread, and stays until the value is dropped.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `words` words of a file. The caller has checked that the file has that many.
    pub(crate) fn new(file: &File, words: usize) -> io::Result<Self> {
        let (rights, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), words * 8, rights, shared, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, words })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to a page, and lives as long as `self`.
        // Every bit pattern is a valid `AtomicU64`, and everybody who maps the file reads and
        // writes words by atomic operations. (A process of the same user that makes the file
        // shorter ends this one with SIGBUS, as it could with a signal.)
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody refers to it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * 8) };
    }
}

/// Reserves `bytes` bytes of memory for a file. Without that, a full `/dev/shm` would kill the
/// process with a signal at some later write.
pub(crate) fn file_reserve(file: &File, bytes: usize) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Gives a file without a name (`O_TMPFILE`) the name `path`, unless a file of that name exists.
pub(crate) fn file_link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both are strings that end with a zero and live until the call returns.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Effective user ID of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}
