//! Opens and configures the sockets.

use super::config::{OpenError, UdpConfig};
use crate::sys;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::{fs, io, net::UdpSocket, os::fd::AsFd};

/// ECT(0): the transport is ECN-capable (RFC 3168).
const ECN_ECT0: i32 = 2;

/// The address `config.ip` with a port.
pub fn address(config: &UdpConfig, port: u16) -> SocketAddr {
    match config.ip {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, config.scope_id).into(),
    }
}

/// Binds the receive sockets of all rails at the configured slot, or at the first one that is free
/// on all.
pub fn receives_open(config: &UdpConfig, rails: usize) -> Result<Vec<UdpSocket>, OpenError> {
    for slot in config.slot.map_or(0..=u8::MAX, |slot| slot..=slot) {
        let open = |rail| receive_open(&config.on_rail(rail), slot);
        match (0..rails).map(open).collect() {
            Err(OpenError::SlotTaken { .. }) if config.slot.is_none() => {}
            opened => return opened,
        }
    }
    Err(OpenError::SlotsFull { port_base: config.port_base, ip: config.ip })
}

fn receive_open(config: &UdpConfig, slot: u8) -> Result<UdpSocket, OpenError> {
    let (ip, port) = (config.ip, config.port_base + u16::from(slot));
    match UdpSocket::bind(address(config, port)) {
        Ok(socket) => receive_setup(socket, config),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(OpenError::SlotTaken { slot, port, ip })
        }
        Err(error) => Err(OpenError::Address { ip, error }),
    }
}

fn receive_setup(socket: UdpSocket, config: &UdpConfig) -> Result<UdpSocket, OpenError> {
    let fd = socket.as_fd();
    socket
        .set_nonblocking(true)
        .map_err(OpenError::system("make the receive socket non-blocking"))?;
    rcvbuf_set(&socket, config.rcvbuf_bytes)?;
    let (level, ecn) = match config.ip {
        IpAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVTOS),
        IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVTCLASS),
    };
    sys::option_set(fd, level, ecn, 1).map_err(OpenError::system("receive congestion marks"))?;
    // Optional: emulated processors and sandboxes have no count of drops.
    let _ = sys::option_set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    // Without stamps, waiting in the socket would count as network delay.
    let _ = sys::option_set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    // Optional: kernels without these options neither merge nor busy-poll.
    if config.gso {
        let _ = sys::option_set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    if config.busy_poll_us > 0 {
        let us = i32::try_from(config.busy_poll_us).unwrap_or(i32::MAX);
        let _ = sys::option_set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, us);
    }
    Ok(socket)
}

/// Sets the receive buffer, above the system's limit if permitted, else up to the limit.
fn rcvbuf_set(socket: &UdpSocket, bytes: usize) -> Result<(), OpenError> {
    // The kernel doubles the number and keeps it in an int.
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
    sys::option_set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| sys::option_set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
        .map_err(OpenError::system("set the receive buffer"))
}

/// Size of the receive buffer in bytes, including the kernel's overhead per packet.
pub fn rcvbuf_get(socket: &UdpSocket) -> usize {
    sys::option_get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(0)
}

/// Opens the socket of one path, at a port that the kernel chooses.
pub fn path_open(config: &UdpConfig) -> Result<UdpSocket, OpenError> {
    let what = "open a path's socket (raise ulimit -n, or use fewer paths or shards)";
    let socket = UdpSocket::bind(address(config, 0)).map_err(OpenError::system(what))?;
    let fd = socket.as_fd();
    socket.set_nonblocking(true).map_err(OpenError::system("make a path's socket non-blocking"))?;
    let bytes = i32::try_from(config.sndbuf_bytes_per_path).unwrap_or(i32::MAX).min(i32::MAX / 2);
    // This socket is never read: the smallest buffer limits what strangers can fill.
    for (name, value) in [(libc::SO_SNDBUF, bytes), (libc::SO_RCVBUF, 1)] {
        sys::option_set(fd, libc::SOL_SOCKET, name, value)
            .map_err(OpenError::system("set the buffers of a path's socket"))?;
    }
    // Never fragment, and ignore ICMP messages about the MTU, since they can be forged.
    let options = match config.ip {
        IpAddr::V4(_) => [
            (libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::SOL_IP, libc::IP_TOS, ECN_ECT0),
        ],
        IpAddr::V6(_) => [
            (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            (libc::SOL_IPV6, libc::IPV6_TCLASS, ECN_ECT0),
        ],
    };
    for (level, name, value) in options {
        sys::option_set(fd, level, name, value)
            .map_err(OpenError::system("forbid fragmentation and mark packets for ECN"))?;
    }
    if config.ip.is_ipv6() {
        sys::option_set(fd, libc::SOL_IPV6, libc::IPV6_DONTFRAG, 1)
            .map_err(OpenError::system("forbid fragmentation"))?;
    }
    Ok(socket)
}

/// Warning if the receive buffer is smaller than requested: the cause and the command that corrects
/// it. `None` if it is as large as requested. `effective` is the kernel's doubled figure.
pub fn rcvbuf_warning(wished_bytes: usize, effective_bytes: usize) -> Option<String> {
    // The kernel reports twice the requested value.
    if effective_bytes / 2 >= wished_bytes {
        return None;
    }
    let limit = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    let limit = match limit.trim() {
        "" => String::new(),
        limit => format!(" (net.core.rmem_max is {limit})"),
    };
    Some(format!(
        "receive buffer is {} bytes instead of {wished_bytes}{limit}, bursts from many senders may \
         be dropped; to raise it: sudo sysctl -w net.core.rmem_max={wished_bytes}",
        effective_bytes / 2
    ))
}

#[cfg(test)]
mod tests {
    use super::rcvbuf_warning;

    #[test]
    fn warning_names_the_command_and_only_when_needed() {
        assert_eq!(rcvbuf_warning(1 << 20, 2 << 20), None);
        let text = rcvbuf_warning(8_388_608, 425_984).unwrap();
        assert!(text.contains("sudo sysctl -w net.core.rmem_max=8388608"), "{text}");
        assert!(text.contains("212992 bytes instead of 8388608"), "{text}");
    }
}
