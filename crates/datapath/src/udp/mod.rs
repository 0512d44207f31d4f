//! UDP sockets: one to receive, one per path to send.
//!
//! The receive socket is bound to a known port (port base + slot). Each path has a socket at a port
//! that the kernel chose, shared by all peers. The path sockets are never read, because peers send
//! everything to the receive port.

mod addr;
mod backlog;
mod config;
pub(crate) mod control;
mod paths;
mod ring;
mod rx;
mod socket;
mod tx;

pub use config::{OpenError, PATHS_MAX, PORT_BASE_DEFAULT, SEGMENTS_MAX, UdpConfig};
pub use socket::rcvbuf_warning;

use crate::{
    Counters, Datapath, RxBacklog, RxDatagram, RxReport, TxPacket, TxPushError, TxReport, Waker,
    route,
    sys::{self, Poll},
};
use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use paths::PathSockets;
use rx::RxQueue;
use std::{
    io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd},
    time::Instant,
};
use tx::{TxLimits, TxQueue};

/// Longest sleep while the kernel lacks memory: no event reports when it has memory again.
const NOBUFS_WAIT_MAX: Duration = Duration::from_millis(1);

/// A [`Datapath`] over UDP sockets.
pub struct UdpDatapath {
    config: UdpConfig,
    local: SocketAddr,
    link_mtu: u32,
    payload_max: usize,
    receive: UdpSocket,
    sockets: PathSockets,
    tx: TxQueue,
    rx: RxQueue,
    waker: Waker,
    counters: Counters,
    polls: Vec<Poll>,
}

impl UdpDatapath {
    /// Opens the sockets.
    ///
    /// # Errors
    /// See [`OpenError`]; each says what to change.
    pub fn open(config: UdpConfig) -> Result<Self, OpenError> {
        config.validate()?;
        let link_mtu = link_mtu_choose(&config)?;
        let payload_max = route::udp_payload_max(link_mtu, config.ip);
        let receive = socket::receive_open(&config)?;
        let local = receive.local_addr().map_err(OpenError::system("read the receive port"))?;
        let limits = TxLimits {
            batch_max: config.tx_batch_max,
            segments_max: if config.gso { config.gso_segments_max } else { 1 },
            payload_max,
            v4: config.ip.is_ipv4(),
        };
        Ok(Self {
            local,
            link_mtu,
            payload_max,
            receive,
            sockets: PathSockets::open(&config)?,
            tx: TxQueue::new(limits, config.paths),
            rx: RxQueue::new(config.rx_batch_max),
            waker: Waker::new().map_err(OpenError::system("make an event descriptor"))?,
            counters: Counters::default(),
            polls: Vec::with_capacity(2 + config.paths),
            config,
        })
    }

    /// Slot of the engine: receive port minus port base.
    pub fn slot(&self) -> u8 {
        (self.local.port() - self.config.port_base) as u8
    }

    /// MTU in use in bytes, IP header included.
    pub fn link_mtu(&self) -> u32 {
        self.link_mtu
    }

    /// Size of the receive buffer in bytes, including the kernel's overhead per packet.
    pub fn rcvbuf_bytes(&self) -> usize {
        socket::rcvbuf_get(&self.receive)
    }

    /// Warning for the user if the receive buffer is smaller than requested.
    pub fn rcvbuf_warning(&self) -> Option<String> {
        rcvbuf_warning(self.config.rcvbuf_bytes, self.rcvbuf_bytes())
    }

    fn polls_fill(&mut self) {
        self.polls.clear();
        self.polls.push(Poll::readable(self.receive.as_raw_fd()));
        self.polls.push(Poll::readable(self.waker.as_raw_fd()));
        if !self.tx.backlog().is_empty() {
            let full = self.tx.backlog().full_paths();
            let sockets = full.filter_map(|path| self.sockets.socket(path));
            self.polls.extend(sockets.map(|s| Poll::writable(s.as_raw_fd())));
        }
    }
}

/// The requested MTU if it fits, else the interface's.
fn link_mtu_choose(config: &UdpConfig) -> Result<u32, OpenError> {
    let link = route::mtu_of_interface(config.ip)
        .map_err(|error| OpenError::Address { ip: config.ip, error })?;
    let mtu = config.link_mtu.unwrap_or(link);
    if mtu > link {
        return Err(OpenError::MtuTooLarge { wished: mtu, link });
    }
    // RFC 791, RFC 8200: the minimum of every link.
    if mtu < if config.ip.is_ipv4() { 576 } else { 1280 } {
        return Err(OpenError::MtuTooSmall { mtu });
    }
    Ok(mtu)
}

impl Datapath for UdpDatapath {
    fn local_ip(&self) -> IpAddr {
        self.config.ip
    }

    fn port(&self) -> u16 {
        self.local.port()
    }

    fn paths(&self) -> usize {
        self.config.paths
    }

    fn path_port(&self, path: u8) -> u16 {
        self.sockets.port(path)
    }

    fn udp_payload_max(&self) -> usize {
        self.payload_max
    }

    fn tx_room(&self) -> usize {
        self.tx.room()
    }

    fn tx_ready(&self) -> bool {
        self.tx.backlog().is_empty()
    }

    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        self.tx.push(packet)
    }

    fn tx_copies(&self, len: usize) -> bool {
        tx::copies(len)
    }

    fn tx_flush(&mut self) -> io::Result<TxReport> {
        Ok(self.tx.flush(&mut self.sockets, &mut self.counters))
    }

    fn tx_discard(&mut self) {
        self.tx.discard();
    }

    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        self.rx.receive(self.receive.as_fd(), &mut self.counters, sink)
    }

    fn rx_backlog(&self) -> RxBacklog {
        // Half of the kernel's figures: the rest is its overhead per packet.
        let (bytes, limit_bytes) = sys::receive_memory(self.receive.as_fd()).unwrap_or_default();
        RxBacklog { bytes: u64::from(bytes) / 2, limit_bytes: u64::from(limit_bytes) / 2 }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.polls_fill();
        let timeout = match timeout {
            _ if self.tx.backlog().timed() => {
                Some(timeout.map_or(NOBUFS_WAIT_MAX, |t| t.min(NOBUFS_WAIT_MAX)))
            }
            timeout => timeout,
        };
        let mut left = timeout;
        let spin = timeout.map_or(self.config.spin, |t| t.min(self.config.spin));
        let mut fired = 0;
        if !spin.is_zero() {
            let start = Instant::now();
            while fired == 0 && start.elapsed() < spin {
                fired = sys::poll(&mut self.polls, Some(Duration::ZERO))?;
                core::hint::spin_loop();
            }
            left = timeout.map(|t| t.saturating_sub(start.elapsed()));
        }
        if fired == 0 {
            self.counters.waits += 1;
            sys::poll(&mut self.polls, left)?;
        }
        if self.polls[1].fired() {
            self.waker.take();
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
