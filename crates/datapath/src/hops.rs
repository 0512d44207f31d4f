//! Finds the routers on the paths to a peer, for different source ports.
//!
//! A packet with a small time to live ends at a router, which reports that by ICMP "time exceeded"
//! from its own address. If equal-cost multipath routing hashes ports, packets of different source
//! ports end at different routers. No privilege is needed: the reports arrive in the error queues
//! of ordinary UDP sockets.

use crate::{
    sys::{self, ErrorControl, Poll},
    udp::control::Messages,
};
use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::{
    io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd},
    thread,
    time::Instant,
};

/// Most hops searched: a fabric has at most five, plus some outside of it.
const HOPS_MAX: u8 = 12;
/// The search ends after this many hops in a row without an answer.
const SILENT_MAX: usize = 2;
/// Probes per hop and port, since probes and answers may be lost.
const ROUNDS: usize = 2;
/// Interval between two probes: routers limit the rate of their answers.
const GAP: Duration = Duration::from_micros(500);
/// Time to wait for answers after the last probe, or after the last answer.
const PATIENCE: Duration = Duration::from_millis(250);
/// Payload of a probe; no receiver recognizes it.
const PAYLOAD: [u8; 16] = [0; 16];

/// `sock_extended_err`: origin of the error, its ICMP type and code, and the size of the structure.
const ORIGIN_AT: usize = 4;
const TYPE_AT: usize = 5;
const REPORT_BYTES: usize = 16;
/// ICMP types of "time exceeded" and "destination unreachable", IPv4 and IPv6.
const TIME_EXCEEDED: [u8; 2] = [11, 3];
const UNREACHABLE: [u8; 2] = [3, 1];

/// Answers of the routers at one distance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// For each source port, the router at which the packet ended; `None` = no answer.
    pub routers: Vec<Option<IpAddr>>,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Answers by distance, from 1.
    pub hops: Vec<Hop>,
    /// Whether the peer itself reported that a probe arrived.
    pub arrived: bool,
}

/// Content of one ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// The packet ended at this router.
    Ended(IpAddr),
    /// The packet was undeliverable: no host, or no socket at that port of the peer.
    Unreachable(Option<IpAddr>),
}

/// One source port.
struct Flow {
    socket: UdpSocket,
    /// Answer at the current distance.
    said: Option<IpAddr>,
}

/// Searches for the routers between `local` and `remote` with `flows` source ports. No socket
/// should listen at the port of `remote`: the peer then reports probes that arrive. Takes some
/// seconds.
///
/// # Errors
/// `local` is not an address of this host, or packets cannot be sent.
pub fn trace(local: SocketAddr, remote: SocketAddr, flows: usize) -> io::Result<Trace> {
    let mut flows: Vec<Flow> =
        (0..flows).map(|_| Flow::open(local)).collect::<io::Result<Vec<_>>>()?;
    let mut out = Trace::default();
    for ttl in 1..=HOPS_MAX {
        out.arrived |= hop_ask(&mut flows, remote, ttl)?;
        let routers: Vec<_> = flows.iter_mut().map(|f| f.said.take()).collect();
        let any = routers.iter().any(Option::is_some);
        if any || !out.arrived {
            out.hops.push(Hop { routers });
        }
        let silent = |h: &Hop| h.routers.iter().all(Option::is_none);
        let tail = out.hops.iter().rev().take_while(|h| silent(h)).count();
        if out.arrived || tail == SILENT_MAX {
            break;
        }
    }
    while out.hops.last().is_some_and(|h| h.routers.iter().all(Option::is_none)) {
        out.hops.pop();
    }
    Ok(out)
}

/// Probes the routers at distance `ttl`. Returns whether the peer answered.
fn hop_ask(flows: &mut [Flow], remote: SocketAddr, ttl: u8) -> io::Result<bool> {
    let mut arrived = false;
    for flow in flows.iter() {
        flow.ttl_set(ttl)?;
    }
    for _ in 0..ROUNDS {
        for flow in flows.iter().filter(|f| f.said.is_none()) {
            flow.send(remote)?;
            thread::sleep(GAP);
        }
        arrived |= answers_await(flows, remote.ip())?;
        let any = flows.iter().any(|f| f.said.is_some());
        // A router that answers on no port is not probed again, and neither is the peer.
        if arrived || (!any && ttl > 1) || flows.iter().all(|f| f.said.is_some()) {
            break;
        }
    }
    Ok(arrived)
}

/// Reads answers until none arrives for a while. Returns whether the peer was among the senders.
fn answers_await(flows: &mut [Flow], peer: IpAddr) -> io::Result<bool> {
    let mut arrived = false;
    let begin = Instant::now();
    let mut until = begin + PATIENCE;
    loop {
        let mut fds: Vec<Poll> =
            flows.iter().map(|f| Poll::readable(f.socket.as_raw_fd())).collect();
        let left = until.saturating_duration_since(Instant::now());
        let done = arrived || flows.iter().all(|f| f.said.is_some());
        if done || left.is_zero() {
            return Ok(arrived);
        }
        sys::poll(&mut fds, Some(left))?;
        for (flow, fd) in flows.iter_mut().zip(&fds) {
            if !fd.fired() {
                continue;
            }
            until = (Instant::now() + PATIENCE).min(begin + 4 * PATIENCE);
            match flow.report_take()? {
                Some(Report::Ended(router)) => flow.said = Some(router),
                Some(Report::Unreachable(from)) => arrived |= from == Some(peer),
                None => {}
            }
        }
    }
}

impl Flow {
    fn open(local: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        let (level, name) = match local {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVERR),
            SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVERR),
        };
        sys::option_set(socket.as_fd(), level, name, 1)?;
        Ok(Self { socket, said: None })
    }

    fn ttl_set(&self, ttl: u8) -> io::Result<()> {
        let (level, name) = match self.socket.local_addr()? {
            SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_TTL),
            SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS),
        };
        sys::option_set(self.socket.as_fd(), level, name, ttl.into())
    }

    /// Sends a probe. The kernel reports a pending error of an earlier probe here, once.
    fn send(&self, remote: SocketAddr) -> io::Result<()> {
        let once = |_| self.socket.send_to(&PAYLOAD, remote);
        self.socket.send_to(&PAYLOAD, remote).or_else(once).map(|_| ())
    }

    fn report_take(&self) -> io::Result<Option<Report>> {
        let mut control = ErrorControl::new();
        let queued = sys::error_take(self.socket.as_fd(), &mut control)?;
        if queued.is_none() {
            // This read a datagram or a pending error; neither matters here.
            let _ = self.socket.take_error()?;
            let _ = self.socket.recv(&mut [0; 16]);
        }
        Ok(queued.and_then(report))
    }
}

/// Parses the control messages of an error.
fn report(control: &[u8]) -> Option<Report> {
    let error = |&(level, kind, _): &(i32, i32, &[u8])| {
        (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
    };
    let (_, _, data) = Messages(control).find(error)?;
    let (head, offender) = data.split_at_checked(REPORT_BYTES)?;
    let family = match head[ORIGIN_AT] {
        libc::SO_EE_ORIGIN_ICMP => 0,
        libc::SO_EE_ORIGIN_ICMP6 => 1,
        _ => return None,
    };
    let from = address(offender);
    match head[TYPE_AT] {
        t if t == TIME_EXCEEDED[family] => from.map(Report::Ended),
        t if t == UNREACHABLE[family] => Some(Report::Unreachable(from)),
        _ => None,
    }
}

/// The address in a `sockaddr`.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => Some(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?.into()),
        libc::AF_INET6 => Some(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn queued(level: i32, kind: i32, origin: u8, icmp: u8, offender: &[u8]) -> Vec<u8> {
        let mut data = vec![0; REPORT_BYTES];
        (data[ORIGIN_AT], data[TYPE_AT]) = (origin, icmp);
        data.extend_from_slice(offender);
        let mut out = (16 + data.len()).to_ne_bytes().to_vec();
        out.extend_from_slice(&level.to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend(data);
        out
    }

    #[test]
    fn reports_say_who_and_what() {
        let v4 =
            [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0, 0, 10, 2, 3, 4], &[0; 8]].concat();
        let (level, kind, icmp) = (libc::SOL_IP, libc::IP_RECVERR, libc::SO_EE_ORIGIN_ICMP);
        let at = IpAddr::from([10, 2, 3, 4]);
        let ended = queued(level, kind, icmp, 11, &v4);
        assert_eq!(report(&ended), Some(Report::Ended(at)));
        let gone = report(&queued(level, kind, icmp, 3, &v4));
        assert_eq!(gone, Some(Report::Unreachable(Some(at))));
        // Errors reported by this host itself and other kinds of messages are ignored.
        assert_eq!(report(&queued(level, kind, libc::SO_EE_ORIGIN_LOCAL, 11, &v4)), None);
        assert_eq!(report(&queued(level, libc::IP_TOS, icmp, 11, &v4)), None);
        for cut in 0..16 + REPORT_BYTES {
            assert_eq!(report(&ended[..cut]), None, "cut at {cut}");
        }
        let mut v6 = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        v6.extend([0; 6]);
        v6.extend([0xfd; 16]);
        v6.extend([0; 4]);
        let (level, kind) = (libc::SOL_IPV6, libc::IPV6_RECVERR);
        let said = report(&queued(level, kind, libc::SO_EE_ORIGIN_ICMP6, 3, &v6));
        assert_eq!(said, Some(Report::Ended(IpAddr::from([0xfd; 16]))));
    }

    #[test]
    fn nothing_is_between_a_host_and_itself() {
        // A port that is free: bound once, then released.
        let here = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let remote = here.local_addr().unwrap();
        drop(here);
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let found = trace(local, remote, 4).unwrap();
        assert_eq!(found, Trace { hops: vec![], arrived: true });
    }
}
