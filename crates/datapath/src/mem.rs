//! A network in memory: endpoints with addresses that exchange datagrams through bounded queues.
//! For tests of everything above the datapath, in one thread or several.
//!
//! Only a full queue loses datagrams, and order is kept; [`fault`](crate::fault) changes that. Path
//! `p` has source port 40000 + `p`.

use crate::{
    Counters, Datapath, RxBacklog, RxDatagram, RxReport, TxPacket, TxPushError, TxReport, Waker,
    sys::{self, Poll},
};
use core::{
    fmt, mem,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::AsRawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Source port of path 0.
pub const PATH_PORT_BASE: u16 = 40_000;
/// Most buffers that an endpoint keeps for reuse.
const SPARE_MAX: usize = 1024;

/// Configuration of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct MemConfig {
    /// Paths, 1 to 256.
    pub paths: usize,
    /// Most bytes of UDP payload in one datagram.
    pub udp_payload_max: usize,
    /// Most datagrams waiting to be received; more are dropped and counted as `rxq_drops`.
    pub queue_max: usize,
    /// Most datagrams between two flushes, and in one receive.
    pub batch_max: usize,
}

impl Default for MemConfig {
    /// 64 paths, an MTU of 9000 bytes, 65536 waiting datagrams.
    fn default() -> Self {
        Self { paths: 64, udp_payload_max: 8_952, queue_max: 65_536, batch_max: 256 }
    }
}

/// The network. Clones refer to the same network.
#[derive(Clone, Default)]
pub struct MemNet(Arc<Mutex<BTreeMap<SocketAddr, Arc<Inbox>>>>);

struct Inbox {
    config: MemConfig,
    waker: Waker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Datagram>,
    spare: Vec<Vec<u8>>,
    drops: u32,
}

struct Datagram {
    src: SocketAddr,
    bytes: Vec<u8>,
}

/// After a panic elsewhere the queues are still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemNet {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an endpoint that receives at `addr`, with the default [`MemConfig`].
    ///
    /// # Errors
    /// `addr` is in use (until the endpoint there is dropped).
    pub fn endpoint(&self, addr: SocketAddr) -> io::Result<MemDatapath> {
        self.endpoint_with(addr, MemConfig::default())
    }

    /// Adds an endpoint that receives at `addr`.
    ///
    /// # Errors
    /// `addr` is in use (until the endpoint there is dropped), or a number is out of bounds.
    pub fn endpoint_with(&self, addr: SocketAddr, config: MemConfig) -> io::Result<MemDatapath> {
        let bad = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=256).contains(&config.paths) {
            return bad(format!("paths must be from 1 to 256, not {}", config.paths));
        }
        if config.batch_max == 0 || config.queue_max == 0 {
            return bad("batch_max and queue_max must be at least 1".into());
        }
        let waker = Waker::new()?;
        let inbox = Arc::new(Inbox { config, waker, state: Mutex::default() });
        let mut net = lock(&self.0);
        if net.contains_key(&addr) {
            let what = format!("{addr} is in use: choose another port or drop the endpoint there");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        net.insert(addr, Arc::clone(&inbox));
        Ok(MemDatapath {
            net: self.clone(),
            addr,
            inbox,
            queued: Vec::new(),
            taken: VecDeque::new(),
            spare: Vec::new(),
            last: None,
            counters: Counters::default(),
        })
    }
}

impl fmt::Debug for MemNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(lock(&self.0).keys()).finish()
    }
}

/// An endpoint of a [`MemNet`]. Dropping it frees its address; datagrams waiting there are lost.
pub struct MemDatapath {
    net: MemNet,
    addr: SocketAddr,
    inbox: Arc<Inbox>,
    queued: Vec<(SocketAddr, Datagram)>,
    taken: VecDeque<Datagram>,
    spare: Vec<Vec<u8>>,
    /// The last destination, cached because most packets of a batch have the same.
    last: Option<(SocketAddr, Arc<Inbox>)>,
    counters: Counters,
}

impl MemDatapath {
    /// The endpoint at `dst`, if there is one.
    fn inbox_of(&mut self, dst: SocketAddr) -> Option<Arc<Inbox>> {
        if let Some((addr, inbox)) = &self.last
            && *addr == dst
        {
            return Some(Arc::clone(inbox));
        }
        let inbox = Arc::clone(lock(&self.net.0).get(&dst)?);
        self.last = Some((dst, Arc::clone(&inbox)));
        Some(inbox)
    }

    fn deliver(&mut self, dst: SocketAddr, datagram: Datagram, report: &mut TxReport) {
        let len = datagram.bytes.len() as u64;
        let Some(inbox) = self.inbox_of(dst) else {
            self.counters.tx_refused += 1;
            report.dropped += 1;
            self.spare.push(datagram.bytes);
            return;
        };
        self.counters.tx_packets += 1;
        self.counters.tx_bytes += len;
        report.sent += 1;
        let mut state = lock(&inbox.state);
        if state.waiting.len() >= inbox.config.queue_max {
            state.drops = state.drops.wrapping_add(1);
            self.spare.push(datagram.bytes);
            return;
        }
        state.waiting.push_back(datagram);
        let spare = state.spare.pop();
        drop(state);
        self.spare.extend(spare);
        inbox.waker.wake();
    }
}

impl Drop for MemDatapath {
    fn drop(&mut self) {
        lock(&self.net.0).remove(&self.addr);
    }
}

impl Datapath for MemDatapath {
    fn local_ip(&self) -> IpAddr {
        self.addr.ip()
    }

    fn port(&self) -> u16 {
        self.addr.port()
    }

    fn paths(&self) -> usize {
        self.inbox.config.paths
    }

    fn path_port(&self, path: u8) -> u16 {
        if usize::from(path) < self.paths() { PATH_PORT_BASE + u16::from(path) } else { 0 }
    }

    fn udp_payload_max(&self) -> usize {
        self.inbox.config.udp_payload_max
    }

    fn tx_room(&self) -> usize {
        self.inbox.config.batch_max - self.queued.len()
    }

    fn tx_ready(&self) -> bool {
        true
    }

    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        let (len, max) = (packet.wire_len(), self.udp_payload_max());
        if len > max {
            return Err(TxPushError::TooLong { len, max });
        }
        if packet.dst.is_ipv4() != self.addr.is_ipv4() {
            return Err(TxPushError::BadFamily);
        }
        if usize::from(packet.path) >= self.paths() {
            return Err(TxPushError::BadPath { path: packet.path, paths: self.paths() });
        }
        if self.tx_room() == 0 {
            return Err(TxPushError::Full);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        packet.gather_into(&mut bytes);
        let src = SocketAddr::new(self.addr.ip(), self.path_port(packet.path));
        self.queued.push((packet.dst, Datagram { src, bytes }));
        Ok(())
    }

    fn tx_copies(&self, _: usize) -> bool {
        true
    }

    fn tx_flush(&mut self) -> io::Result<TxReport> {
        let mut report = TxReport::default();
        // The endpoint may have been replaced by another since the last batch.
        self.last = None;
        let mut queued = mem::take(&mut self.queued);
        for (dst, datagram) in queued.drain(..) {
            self.deliver(dst, datagram, &mut report);
        }
        self.queued = queued;
        self.last = None;
        self.spare.truncate(SPARE_MAX);
        Ok(report)
    }

    fn tx_discard(&mut self) {
        self.spare.extend(self.queued.drain(..).map(|(_, datagram)| datagram.bytes));
        self.spare.truncate(SPARE_MAX);
    }

    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        let mut state = lock(&self.inbox.state);
        let count = state.waiting.len().min(self.inbox.config.batch_max);
        self.taken.extend(state.waiting.drain(..count));
        let (rxq_drops, more) = (state.drops, !state.waiting.is_empty());
        drop(state);
        let new_drops = rxq_drops.wrapping_sub(self.counters.rxq_drops as u32);
        self.counters.rxq_drops += u64::from(new_drops);
        self.counters.rx_packets += count as u64;
        for datagram in &mut self.taken {
            self.counters.rx_bytes += datagram.bytes.len() as u64;
            let (src, bytes) = (datagram.src, &mut datagram.bytes[..]);
            sink(RxDatagram { src, ce: false, rxq_drops, waited_ns: 0, bytes });
        }
        let mut state = lock(&self.inbox.state);
        state.spare.extend(self.taken.drain(..).map(|datagram| datagram.bytes));
        state.spare.truncate(SPARE_MAX);
        Ok(RxReport { datagrams: count, more })
    }

    fn rx_backlog(&self) -> RxBacklog {
        let MemConfig { queue_max, udp_payload_max, .. } = self.inbox.config;
        let waiting = lock(&self.inbox.state).waiting.iter().map(|d| d.bytes.len() as u64).sum();
        RxBacklog { bytes: waiting, limit_bytes: queue_max as u64 * udp_payload_max as u64 }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if lock(&self.inbox.state).waiting.is_empty() {
            self.counters.waits += 1;
            sys::poll(&mut [Poll::readable(self.inbox.waker.as_raw_fd())], timeout)?;
        }
        self.inbox.waker.take();
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.inbox.waker.clone()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send_batch;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn received(d: &mut MemDatapath) -> Vec<(u16, Vec<u8>)> {
        let mut all = Vec::new();
        d.rx(&mut |r| all.push((r.src.port(), r.bytes.to_vec()))).unwrap();
        all
    }

    #[test]
    fn datagrams_arrive_in_order_with_the_paths_port() {
        let net = MemNet::new();
        let (mut a, mut b) = (net.endpoint(addr("1.1.1.1:7")), net.endpoint(addr("1.1.1.2:7")));
        let (a, b) = (a.as_mut().unwrap(), b.as_mut().unwrap());
        let (_, report) = send_batch(a, |batch| {
            for path in 0..5u8 {
                batch.push(addr("1.1.1.2:7"), path, &[path], &[b"ab", b"c"]).unwrap();
            }
        })
        .unwrap();
        assert_eq!(report, TxReport { sent: 5, ..TxReport::default() });
        let want = (0..5u8).map(|p| (40_000 + u16::from(p), vec![p, b'a', b'b', b'c']));
        assert_eq!(received(b), want.collect::<Vec<_>>());
        assert!(received(b).is_empty());
    }

    #[test]
    fn a_full_queue_drops_and_tells() {
        let net = MemNet::new();
        let config = MemConfig { queue_max: 3, ..MemConfig::default() };
        let mut a = net.endpoint(addr("[::1]:1")).unwrap();
        let mut b = net.endpoint_with(addr("[::1]:2"), config).unwrap();
        send_batch(&mut a, |batch| {
            for i in 0..10u8 {
                batch.push(addr("[::1]:2"), 0, &[i], &[]).unwrap();
            }
        })
        .unwrap();
        let mut told = Vec::new();
        b.rx(&mut |r| told.push((r.bytes[0], r.rxq_drops))).unwrap();
        assert_eq!(told, [(0, 7), (1, 7), (2, 7)]);
        assert_eq!(b.counters().rxq_drops, 7);
    }

    #[test]
    fn an_address_is_free_again_after_drop() {
        let net = MemNet::new();
        let mut a = net.endpoint(addr("1.1.1.1:1")).unwrap();
        let b = net.endpoint(addr("1.1.1.2:1")).unwrap();
        let error = net.endpoint(addr("1.1.1.2:1")).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(b);
        let push = |a: &mut MemDatapath| {
            send_batch(a, |batch| batch.push(addr("1.1.1.2:1"), 0, b"x", &[]).unwrap()).unwrap().1
        };
        assert_eq!(push(&mut a).dropped, 1);
        let mut b = net.endpoint(addr("1.1.1.2:1")).unwrap();
        assert_eq!(push(&mut a).sent, 1);
        assert_eq!(received(&mut b).len(), 1);
    }

    #[test]
    fn refusals_name_their_cause() {
        let net = MemNet::new();
        let config = MemConfig { paths: 2, batch_max: 1, udp_payload_max: 100, queue_max: 9 };
        let mut a = net.endpoint_with(addr("1.1.1.1:1"), config).unwrap();
        let mut push = |dst: &str, path, len: usize| {
            let headers = &vec![0; len][..];
            let payload = &[];
            a.tx_push(&TxPacket {
                dst: addr(dst),
                path,
                headers,
                payload,
                padded_len: 0,
                finish: None,
            })
        };
        assert_eq!(push("1.1.1.2:1", 0, 101), Err(TxPushError::TooLong { len: 101, max: 100 }));
        assert_eq!(push("1.1.1.2:1", 2, 9), Err(TxPushError::BadPath { path: 2, paths: 2 }));
        assert_eq!(push("[::1]:1", 0, 9), Err(TxPushError::BadFamily));
        assert_eq!(push("1.1.1.2:1", 1, 9), Ok(()));
        assert_eq!(push("1.1.1.2:1", 1, 9), Err(TxPushError::Full));
    }

    #[test]
    fn a_thread_that_waits_is_woken_by_a_datagram() {
        let net = MemNet::new();
        let mut a = net.endpoint(addr("1.1.1.1:1")).unwrap();
        let mut b = net.endpoint(addr("1.1.1.2:1")).unwrap();
        let thread = std::thread::spawn(move || {
            let mut got = Vec::new();
            while got.len() < 3 {
                b.wait(None).unwrap();
                got.extend(received(&mut b));
            }
            got
        });
        for i in 0..3u8 {
            send_batch(&mut a, |batch| batch.push(addr("1.1.1.2:1"), i, &[i], &[]))
                .unwrap()
                .0
                .unwrap();
        }
        assert_eq!(thread.join().unwrap().len(), 3);
    }
}
