//! UDP sockets: one to receive, one per path to send.
//!
//! The receive socket is bound to a known port (port base + slot). Each path has a socket at a port
//! that the kernel chose, shared by all peers. The path sockets are never read, because peers send
//! everything to the receive port. With several rails there is one receive socket on each.

mod addr;
mod backlog;
mod config;
pub(crate) mod control;
mod paths;
mod rails;
mod ring;
mod rx;
mod socket;
mod tx;

pub use config::{OpenError, PATHS_MAX, PORT_BASE_DEFAULT, SEGMENTS_MAX, UdpConfig};
pub use rails::{RAIL_PORTS, RAILS_MAX, same_network};
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
use rails::Rails;
use rx::RxQueue;
use std::{
    io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd, RawFd},
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
    /// One for each rail.
    receives: Vec<Receive>,
    rails: Rails,
    sockets: PathSockets,
    tx: TxQueue,
    waker: Waker,
    counters: Counters,
    polls: Vec<Poll>,
}

/// A receive socket.
struct Receive {
    socket: UdpSocket,
    queue: RxQueue,
}

impl UdpDatapath {
    /// Opens the sockets.
    ///
    /// # Errors
    /// See [`OpenError`]; each says what to change.
    pub fn open(config: UdpConfig) -> Result<Self, OpenError> {
        config.validate()?;
        let rails = Rails::new(&config);
        let link_mtus = (0..rails.count()).map(|rail| link_mtu_choose(&config.on_rail(rail)));
        let link_mtus = link_mtus.collect::<Result<Vec<_>, _>>()?;
        let link_mtu = link_mtus.into_iter().min().unwrap_or(0);
        let payload_max = route::udp_payload_max(link_mtu, config.ip);
        let receives = socket::receives_open(&config, rails.count())?;
        let local = receives[0].local_addr();
        let local = local.map_err(OpenError::system("read the receive port"))?;
        let receive = |socket| Receive { socket, queue: RxQueue::new(config.rx_batch_max) };
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
            receives: receives.into_iter().map(receive).collect(),
            sockets: PathSockets::open(&config, rails.count())?,
            tx: TxQueue::new(limits, config.paths),
            waker: Waker::new().map_err(OpenError::system("make an event descriptor"))?,
            counters: Counters::default(),
            polls: Vec::with_capacity(1 + rails.count() + config.paths),
            rails,
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

    /// Size of the receive buffer in bytes, including the kernel's overhead per packet; that of one
    /// rail, because all packets may arrive there.
    pub fn rcvbuf_bytes(&self) -> usize {
        socket::rcvbuf_get(&self.receives[0].socket)
    }

    /// Warning for the user if the receive buffer is smaller than requested.
    pub fn rcvbuf_warning(&self) -> Option<String> {
        rcvbuf_warning(self.config.rcvbuf_bytes, self.rcvbuf_bytes())
    }

    fn polls_fill(&mut self) {
        self.polls.clear();
        self.polls.push(Poll::readable(self.waker.as_raw_fd()));
        let receives = self.receives.iter();
        self.polls.extend(receives.map(|r| Poll::readable(r.socket.as_raw_fd())));
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
        if self.rails.count() == 1 {
            return self.tx.push(packet);
        }
        let (path, dst) = self.rails.route(packet.path, packet.dst);
        self.tx.push(&TxPacket { path, dst, ..*packet })
    }

    fn tx_copies(&self, len: usize) -> bool {
        tx::copies(len)
    }

    fn tx_flush(&mut self) -> io::Result<TxReport> {
        let mut report = self.tx.flush(&mut self.sockets, &mut self.counters);
        if let Some(too_long) = &mut report.too_long {
            too_long.dst = self.rails.receiver(too_long.dst);
        }
        Ok(report)
    }

    fn tx_discard(&mut self) {
        self.tx.discard();
    }

    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        if let [only] = &mut self.receives[..] {
            return only.queue.receive(only.socket.as_fd(), &mut self.counters, sink);
        }
        // A batch of each rail. The engine sees one receiver: senders have their address on rail 0,
        // and drops are those of all.
        let mut all = RxReport::default();
        for rail in 0..self.receives.len() {
            let drops = |r: &Receive| r.queue.drops();
            let (before, here) = self.receives.split_at_mut(rail);
            let [here, after @ ..] = here else { break };
            let others = before.iter().chain(&*after).map(drops).fold(0, u32::wrapping_add);
            let rails = &self.rails;
            let mut sink = |d: RxDatagram<'_>| {
                let (src, rxq_drops) =
                    (rails.sender(rail, d.src), d.rxq_drops.wrapping_add(others));
                sink(RxDatagram { src, rxq_drops, ..d });
            };
            let one = here.queue.receive(here.socket.as_fd(), &mut self.counters, &mut sink)?;
            all.datagrams += one.datagrams;
            all.more |= one.more;
        }
        Ok(all)
    }

    fn rx_backlog(&self) -> RxBacklog {
        // Half of the kernel's figures: the rest is its overhead per packet. Of several rails, the
        // one that is full first.
        let memory = |r: &Receive| sys::receive_memory(r.socket.as_fd()).unwrap_or_default();
        let fullest = self.receives.iter().map(memory).max_by_key(|memory| memory.0);
        let (bytes, limit_bytes) = fullest.unwrap_or_default();
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
        if self.polls[0].fired() {
            self.waker.take();
        }
        Ok(())
    }

    fn receivers(&self, tell: &mut dyn FnMut(RawFd)) {
        self.receives.iter().for_each(|receive| tell(receive.socket.as_raw_fd()));
    }

    fn full(&self, tell: &mut dyn FnMut(RawFd)) {
        if !self.tx.backlog().is_empty() {
            let full = self.tx.backlog().full_paths();
            full.filter_map(|path| self.sockets.socket(path)).for_each(|s| tell(s.as_raw_fd()));
        }
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
