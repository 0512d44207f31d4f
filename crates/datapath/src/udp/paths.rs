//! The sockets that send packets, one per path.
//!
//! A path serves all peers, but when it has sent to only one of them for a while, its socket is
//! connected to that peer: the kernel then keeps the route, which saves about 125 ns per message
//! (measured on Linux 6.18). Other peers are still reached by giving their address.

use super::{
    addr::SockAddr,
    config::{OpenError, UdpConfig},
    ring::{SendRing, datagram_send},
    socket,
    tx::Kernel,
};
use crate::{Part, route};
use core::net::{IpAddr, SocketAddr};
use std::{net::UdpSocket, os::fd::AsFd};

/// Consecutive system calls to one peer before a socket is connected to it: connecting takes about
/// as long as ten such calls save.
const STREAK_MIN: u32 = 32;

/// Calls to send one message over a connected socket. To block the message, an attacker must make
/// each of the first seven calls meet a new forged ICMP message, which arrived in the microsecond
/// or so since the call before.
const SENDS_MAX: usize = 8;

struct PathSocket {
    socket: UdpSocket,
    port: u16,
    connected: Option<SocketAddr>,
    /// The last destination, and the number of consecutive calls to it.
    peer: Option<SocketAddr>,
    streak: u32,
}

/// One socket per path.
pub struct PathSockets {
    paths: Vec<PathSocket>,
    /// Addresses that they send from, one for each rail.
    local: Vec<IpAddr>,
}

impl PathSockets {
    /// Opens them, those of the rails by turns.
    pub fn open(config: &UdpConfig, rails: usize) -> Result<Self, OpenError> {
        let on: Vec<UdpConfig> = (0..rails).map(|rail| config.on_rail(rail)).collect();
        let open = |path: usize| {
            let socket = socket::path_open(&on[path % rails])?;
            let port = socket.local_addr().map_err(OpenError::system("read a path's port"))?.port();
            Ok(PathSocket { socket, port, connected: None, peer: None, streak: 0 })
        };
        let paths = (0..config.paths).map(open).collect::<Result<_, _>>()?;
        Ok(Self { paths, local: on.iter().map(|on| on.ip).collect() })
    }

    /// Source port of `path`, 0 if there is no such path.
    pub fn port(&self, path: u8) -> u16 {
        self.paths.get(usize::from(path)).map_or(0, |p| p.port)
    }

    /// Socket of `path`.
    pub fn socket(&self, path: u8) -> Option<&UdpSocket> {
        self.paths.get(usize::from(path)).map(|p| &p.socket)
    }

    /// Peer that the socket of `path` is connected to.
    #[cfg(test)]
    pub fn connected(&self, path: u8) -> Option<SocketAddr> {
        self.paths[usize::from(path)].connected
    }
}

impl PathSocket {
    /// Records the destination of a batch, and connects the socket when that pays.
    fn follow(&mut self, first: SocketAddr, last: SocketAddr) {
        if self.connected == Some(first) || self.peer != Some(first) || first != last {
            (self.peer, self.streak) = (Some(last), 0);
            return;
        }
        self.streak += 1;
        if self.streak >= STREAK_MIN {
            self.streak = 0;
            // If connecting fails, the next send reports why, and the socket keeps its former peer.
            let done = self.socket.connect(first);
            self.connected = done.map_or_else(|_| self.socket.peer_addr().ok(), |()| Some(first));
        }
    }
}

/// Calls `send` until its error cannot have been forged. A connected socket reports an ICMP error
/// about an earlier packet once, and sends nothing in that call; anybody can forge such an error.
/// An error of the local system repeats in each call.
///
/// Errors that Linux 6.18 reports for ICMP (`tests/namespace.rs` forges every code): type 3 code 2
/// ENOPROTOOPT, 3 ECONNREFUSED, 4 EMSGSIZE, 6 and 9 ENETUNREACH, 7 EHOSTDOWN, 8 ENONET, 10 and 13
/// to 15 EHOSTUNREACH; type 12 EPROTO. For ICMPv6: type 1 codes 1, 5 and 6 EACCES, 4 ECONNREFUSED,
/// codes above 6 EPROTO; type 2 EMSGSIZE; type 4 EPROTO. Other kernels may have others, so any
/// error counts as one of these unless it says that there is no room now or that a signal came.
fn insist(mut send: impl FnMut() -> Result<usize, i32>) -> Result<usize, i32> {
    let mut result = send();
    for _ in 1..SENDS_MAX {
        match result {
            Ok(_) | Err(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => break,
            Err(_) => result = send(),
        }
    }
    result
}

impl Kernel for PathSockets {
    fn send(&mut self, path: u8, ring: &SendRing, from: usize) -> Result<usize, i32> {
        let path = &mut self.paths[usize::from(path)];
        if let [first, .., last] | [first @ last] = &ring.messages()[from..] {
            path.follow(first.dst, last.dst);
        }
        let connected = path.connected;
        let send = || ring.send(path.socket.as_fd(), from, connected);
        if connected.is_some() { insist(send) } else { send() }
    }

    fn send_lone(&mut self, path: u8, dst: SocketAddr, datagram: Part) -> bool {
        let path = &mut self.paths[usize::from(path)];
        path.follow(dst, dst);
        let fd = path.socket.as_fd();
        let sent = if path.connected == Some(dst) {
            datagram_send(fd, None, datagram)
        } else {
            datagram_send(fd, Some(&SockAddr::new(dst)), datagram)
        };
        sent.is_ok()
    }

    fn link_mtu(&self) -> Option<u32> {
        self.local.iter().filter_map(|&ip| route::mtu_of_interface(ip).ok()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the repeated calls, consecutive forged messages made the socket drop the message, or
    /// were taken for an error of the local link.
    #[test]
    fn seven_forged_messages_in_a_row_lose_nothing() {
        let forgeable = [
            libc::EACCES,
            libc::ECONNREFUSED,
            libc::EHOSTDOWN,
            libc::EHOSTUNREACH,
            libc::EMSGSIZE,
            libc::ENETUNREACH,
            libc::ENONET,
            libc::ENOPROTOOPT,
            libc::EPROTO,
        ];
        let calls = |errno: i32, forged: usize| {
            let mut n = 0;
            let result = insist(|| {
                n += 1;
                if n <= forged { Err(errno) } else { Ok(3) }
            });
            (result, n)
        };
        for errno in forgeable {
            assert_eq!(calls(errno, 0), (Ok(3), 1));
            assert_eq!(calls(errno, 7), (Ok(3), 8), "errno {errno}");
            assert_eq!(calls(errno, usize::MAX), (Err(errno), 8), "the local system's word");
        }
        for errno in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EINTR] {
            assert_eq!(calls(errno, usize::MAX), (Err(errno), 1), "errno {errno} is no refusal");
        }
    }

    /// When connecting fails, the kernel keeps the former peer and goes on reporting errors about
    /// it.
    #[test]
    fn a_socket_that_cannot_be_connected_keeps_its_peer() {
        let config = UdpConfig::new("127.0.0.1".parse().unwrap());
        let mut path = PathSocket {
            socket: socket::path_open(&config).unwrap(),
            port: 0,
            connected: None,
            peer: None,
            streak: 0,
        };
        let near: SocketAddr = "127.0.0.1:9".parse().unwrap();
        // From a loopback address no other host can be reached.
        let far: SocketAddr = "192.0.2.1:9".parse().unwrap();
        for (to, connected) in [(near, near), (far, near)] {
            for _ in 0..=STREAK_MIN {
                path.follow(to, to);
            }
            assert_eq!(path.connected, Some(connected), "after packets to {to}");
            assert_eq!(path.socket.peer_addr().ok(), Some(connected));
        }
    }
}
