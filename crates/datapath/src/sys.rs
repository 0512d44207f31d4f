//! System calls that std does not provide, each as a safe function.
#![allow(unsafe_code, reason = "system calls; nothing else is in here")]

use core::{ffi::CStr, mem, net::IpAddr, time::Duration};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// Sets an integer socket option.
pub fn option_set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option value is an i32 on this stack frame, and `len` is its size.
    let rc =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an integer socket option.
pub fn option_get(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Memory that the datagrams waiting in a socket take, and its limit, in bytes (`SO_MEMINFO`).
pub fn receive_memory(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut memory = [0u32; 9];
    let mut len = mem::size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `memory`.
    let rc = unsafe {
        let to = (&raw mut memory).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, to, &raw mut len)
    };
    let of = |index: i32| memory[index as usize];
    if rc == 0 {
        Ok((of(libc::SK_MEMINFO_RMEM_ALLOC), of(libc::SK_MEMINFO_RCVBUF)))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC` or `CLOCK_REALTIME`, which every system has.
#[inline]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, `at`.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Opens an event descriptor: readable from a write until the next read.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Buffer for the control messages of an error.
#[repr(C, align(8))]
pub struct ErrorControl([u8; 256]);

impl ErrorControl {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self([0; 256])
    }
}

/// Reads the control messages of one error from a socket's error queue (`IP_RECVERR`). `None`: the
/// queue is empty.
pub fn error_take<'a>(
    fd: BorrowedFd<'_>,
    control: &'a mut ErrorControl,
) -> io::Result<Option<&'a [u8]>> {
    // SAFETY: an all-zero msghdr is a valid value of that plain struct: nothing to write to.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes control messages of at most msg_controllen bytes, the size of
    // `control`, which nobody else refers to; there are no buffers for data.
    let rc = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    if rc >= 0 {
        let len = header.msg_controllen.min(control.0.len());
        return Ok(Some(&control.0[..len]));
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) }
}

/// A descriptor to wait for, and whether it is ready.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Poll(libc::pollfd);

impl Poll {
    /// Waits until `fd` is readable.
    pub fn readable(fd: RawFd) -> Self {
        Self(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// Waits until `fd` is writable.
    pub fn writable(fd: RawFd) -> Self {
        Self(libc::pollfd { fd, events: libc::POLLOUT, revents: 0 })
    }

    /// Whether it is ready (or in error).
    pub fn fired(&self) -> bool {
        self.0.revents != 0
    }
}

/// Waits for any of `fds`; returns how many are ready. A signal counts as none.
pub fn poll(fds: &mut [Poll], timeout: Option<Duration>) -> io::Result<usize> {
    if cfg!(miri) {
        // Miri has no ppoll. Callers poll again after a signal, which may come at any time.
        std::thread::sleep(timeout.unwrap_or(Duration::MAX).min(Duration::from_micros(100)));
        return Ok(0);
    }
    let spec = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let spec = spec.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = fds.len() as libc::nfds_t;
    // SAFETY: `Poll` is transparent over `pollfd`, `count` is the length of the slice, `spec` is
    // null or points to a timespec that lives until the end of this function.
    let rc = unsafe { libc::ppoll(fds.as_mut_ptr().cast(), count, spec, ptr::null()) };
    if rc >= 0 {
        return Ok(rc as usize);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
}

/// Most descriptors of one [`wait_any`].
const ANY_MAX: usize = 128;

/// Waits until one descriptor of the first kind is readable or one of the second is writable, a
/// signal comes, or the time is up. Returns how many are. Of more than 128 descriptors the first
/// 128 are looked at.
///
/// # Errors
/// None, unless the process lacks memory.
pub fn wait_any(
    readable: impl Iterator<Item = RawFd>,
    writable: impl Iterator<Item = RawFd>,
    timeout: Duration,
) -> io::Result<usize> {
    // Descriptors below zero are passed over.
    let mut polls = [Poll::readable(-1); ANY_MAX];
    let mut count = 0;
    let wanted = readable.map(Poll::readable).chain(writable.map(Poll::writable));
    for (poll, one) in polls.iter_mut().zip(wanted) {
        *poll = one;
        count += 1;
    }
    poll(&mut polls[..count], Some(timeout))
}

/// Sets the timer slack of this thread: how late the kernel may end its sleeps. Linux starts
/// threads with 50 µs, longer than a round trip; a driving thread needs 1 ns.
///
/// # Errors
/// None on Linux when a thread sets its own value.
pub fn timer_slack_ns_set(ns: u32) -> io::Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: PR_SET_TIMERSLACK takes one number and no pointer.
    let rc = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns)) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// CPU time of this process so far, user and system, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    // SAFETY: an all-zero rusage is a valid value of that plain struct.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is a writable rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return 0;
    }
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// One address of one network interface.
pub struct InterfaceAddress {
    /// Name of the interface.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// Whether it is the loopback interface.
    pub loopback: bool,
}

/// All IP addresses of this host (in this network namespace).
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut head: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `head` is a writable pointer; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: `next` is a node of the list that getifaddrs made and that is not freed yet.
        let node = unsafe { &*next };
        next = node.ifa_next;
        // SAFETY: ifa_addr is null or a socket address of the family that it names.
        if let Some(ip) = unsafe { ip_of(node.ifa_addr) } {
            // SAFETY: ifa_name is a nul-terminated string of the same list.
            let name = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
            let loopback = node.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
            found.push(InterfaceAddress { name, ip, loopback });
        }
    }
    // SAFETY: the list came from getifaddrs; nothing points into it any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `addr` is null or points to a socket address as long as its family says.
unsafe fn ip_of(addr: *const libc::sockaddr) -> Option<IpAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: not null, hence at least a sockaddr.
    match i32::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// MTU of the interface `name`, in bytes, IP header included.
pub fn interface_mtu(name: &str) -> io::Result<u32> {
    let socket =
        std::net::UdpSocket::bind("0.0.0.0:0").or_else(|_| std::net::UdpSocket::bind("[::]:0"))?;
    // SAFETY: an all-zero ifreq is a valid value of that plain struct.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name from and writes the MTU into an ifreq.
    let rc = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFMTU succeeded, hence the union holds the MTU.
    Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}
