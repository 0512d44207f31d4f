//! A file mapped as 64-bit words: the only `unsafe` code of this crate.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
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

/// Bytes that are free for this user where processes share memory (`/dev/shm`).
///
/// # Errors
/// There is no such folder.
pub fn shared_memory_free() -> io::Result<u64> {
    let folder = CString::new(crate::segment::FOLDER)?;
    let mut of = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a string that ends with zero, and a place for the answer.
    if unsafe { libc::statvfs(folder.as_ptr(), of.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written it.
    let of = unsafe { of.assume_init() };
    Ok(of.f_bavail.saturating_mul(of.f_frsize))
}

/// Makes a file without a name in the folder of `path`, which only this user may open: others see
/// no file that is half made, and a process that is killed meanwhile leaves none.
pub(crate) fn file_unnamed(path: &Path) -> io::Result<File> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder)
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

/// Takes the write lock of a file for this open file, if nobody else has it. It does not touch the
/// locks of [`File::lock`], and the kernel takes it back when the file is closed.
pub(crate) fn file_lock(file: &File) -> io::Result<()> {
    whole_lock(file.as_raw_fd(), libc::F_WRLCK)
}

/// Gives the lock of [`file_lock`] back.
pub(crate) fn file_unlock(file: &File) -> io::Result<()> {
    whole_lock(file.as_raw_fd(), libc::F_UNLCK)
}

fn whole_lock(fd: RawFd, kind: libc::c_int) -> io::Result<()> {
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the call reads a structure that lives until it returns.
    match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Number of this process's network namespace that the kernel gives to no other one (Linux 5.14);
/// `None` where the kernel has none.
pub(crate) fn network_cookie() -> Option<u64> {
    /// `SO_NETNS_COOKIE` of Linux's `socket.h`.
    const OPTION: libc::c_int = 71;
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    let (mut cookie, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
    let at = (&raw mut cookie).cast();
    // SAFETY: the kernel writes at most `len` bytes to a number that lives until the call returns.
    let got =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, OPTION, at, &raw mut len) };
    (got == 0 && cookie != 0).then_some(cookie)
}
