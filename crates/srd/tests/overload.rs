//! Sockets that never run empty: timers fire all the same, and what waits unread is not lost.

use crate::common::{MemWorld, Node, PATIENCE, QKEY};
use srd::{
    Device, DeviceConfig, Progress, RecvWr, SendWr, Span, Status,
    datapath::{
        Counters, Datapath, ReleasesParts, RxDatagram, RxReport, TxPacket, TxPushError, TxReport,
        Waker,
        fault::{FaultHandle, Rates},
    },
};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// Datagrams handed over at each look, besides those of the network.
const FILL: usize = 16;

/// Least timeout of the devices under test.
const TIMEOUT: Span = Span::from_ms(10);

/// What keeps the socket full.
#[derive(Clone, Copy, PartialEq)]
enum Crowd {
    /// Datagrams that no engine understands, without arrival stamps.
    Junk,
    /// Everything waits that long, as behind a queue of packets of peers, and is stamped. Copies of
    /// the last packet stand for the queue.
    Queue(Duration),
}

/// A datagram in the queue.
struct Waiting {
    arrived: Instant,
    src: SocketAddr,
    ce: bool,
    bytes: Vec<u8>,
}

/// A datapath that always has more to read.
struct Crowded {
    inner: Box<dyn Datapath>,
    crowd: Crowd,
    queue: VecDeque<Waiting>,
    last: Option<Waiting>,
}

impl Crowded {
    fn new(inner: Box<dyn Datapath>, crowd: Crowd) -> Self {
        Self { inner, crowd, queue: VecDeque::new(), last: None }
    }

    fn hand_over(w: &Waiting, waited: Duration, sink: &mut dyn FnMut(RxDatagram<'_>)) {
        let waited_ns = waited.as_nanos() as u64;
        let (src, ce, bytes) = (w.src, w.ce, &mut w.bytes.clone()[..]);
        sink(RxDatagram { src, ce, rxq_drops: 0, waited_ns, bytes });
    }
}

// SAFETY: flush and discard are handed on, and nothing is kept.
unsafe impl ReleasesParts for Crowded {}

impl Datapath for Crowded {
    fn local_ip(&self) -> IpAddr {
        self.inner.local_ip()
    }
    fn port(&self) -> u16 {
        self.inner.port()
    }
    fn paths(&self) -> usize {
        self.inner.paths()
    }
    fn path_port(&self, path: u8) -> u16 {
        self.inner.path_port(path)
    }
    fn udp_payload_max(&self) -> usize {
        self.inner.udp_payload_max()
    }
    fn tx_room(&self) -> usize {
        self.inner.tx_room()
    }
    fn tx_ready(&self) -> bool {
        self.inner.tx_ready()
    }
    fn tx_push(&mut self, packet: &TxPacket<'_>) -> Result<(), TxPushError> {
        self.inner.tx_push(packet)
    }
    fn tx_copies(&self, len: usize) -> bool {
        self.inner.tx_copies(len)
    }
    fn tx_flush(&mut self) -> io::Result<TxReport> {
        self.inner.tx_flush()
    }
    fn tx_discard(&mut self) {
        self.inner.tx_discard();
    }
    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        let Crowd::Queue(wait) = self.crowd else {
            let report = self.inner.rx(sink)?;
            let src = SocketAddr::from(([10, 9, 9, 9], 9));
            let junk = Waiting { arrived: Instant::now(), src, ce: false, bytes: vec![0; 24] };
            (0..FILL).for_each(|_| Self::hand_over(&junk, Duration::ZERO, sink));
            return Ok(RxReport { datagrams: report.datagrams + FILL, more: true });
        };
        let arrived = Instant::now();
        let queue = &mut self.queue;
        self.inner.rx(&mut |d| {
            queue.push_back(Waiting { arrived, src: d.src, ce: d.ce, bytes: d.bytes.to_vec() });
        })?;
        let mut datagrams = 0;
        while self.queue.front().is_some_and(|w| w.arrived.elapsed() >= wait) {
            let Some(w) = self.queue.pop_front() else { break };
            Self::hand_over(&w, w.arrived.elapsed(), sink);
            datagrams += 1;
            self.last = Some(w);
        }
        let Some(last) = &self.last else { return Ok(RxReport { datagrams, more: false }) };
        (0..FILL).for_each(|_| Self::hand_over(last, wait, sink));
        Ok(RxReport { datagrams: datagrams + FILL, more: true })
    }
    fn rx_backlog(&self) -> srd_datapath::RxBacklog {
        self.inner.rx_backlog()
    }
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.wait(timeout)
    }
    fn waker(&self) -> Waker {
        self.inner.waker()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

fn crowd_in(config: &mut DeviceConfig, crowd: Crowd) {
    config.progress = Progress::Caller;
    config.wrap = Some(Box::new(move |inner| Box::new(Crowded::new(inner, crowd))));
}

/// Two devices, of which the first always has more to read, and what loses the second's packets.
fn crowded_pair(crowd: Crowd) -> (Node, Node, FaultHandle) {
    let world = MemWorld::new(1000);
    let (b, faults) = world.faulty(2, Progress::Caller, Rates::default());
    let mut config = world.config(1);
    crowd_in(&mut config, crowd);
    config.tune = Some(Box::new(|engine| {
        let loss = &mut engine.loss;
        (loss.rto_min, loss.tlp_min, loss.hedge_min) = (TIMEOUT, TIMEOUT, TIMEOUT);
    }));
    (Node::new(Device::open(config).unwrap()), Node::new(b), faults)
}

#[test]
fn a_peer_that_never_answers_is_told_of_while_junk_comes_without_end() {
    let world = MemWorld::new(1000);
    let mut config = world.config(1);
    crowd_in(&mut config, Crowd::Junk);
    config.tune = Some(Box::new(|engine| engine.loss.unreachable_after = Span::from_ms(100)));
    let a = Node::new(Device::open(config).unwrap());
    let nobody = a.pd.ah_create(IpAddr::from([10, 0, 0, 7])).unwrap();
    a.qp.post_send(&SendWr::send(1, &nobody, a.qp.qpn(), QKEY)).unwrap();
    let wc = a.next(&a);
    assert_eq!(wc.status, Status::LocalUnreachRemote);
    let opens = a.device.counters().unwrap().engine.opens_sent;
    assert!(opens > 2, "{opens} Opens");
}

#[test]
fn what_is_lost_is_sent_again_however_much_waits_to_be_read() {
    for crowd in [Crowd::Junk, Crowd::Queue(Duration::from_millis(5))] {
        let (a, b, faults) = crowded_pair(crowd);
        let (ah, _to_a) = (a.ah_to(&b), b.ah_to(&a));
        for i in 0..20 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
        }
        a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY)).unwrap();
        assert!(a.next(&b).is_ok());
        for i in 1..20 {
            // The peer does not hear the first copy.
            faults.rx_off(true);
            a.qp.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY)).unwrap();
            a.device.progress().unwrap();
            b.device.progress().unwrap();
            faults.rx_off(false);
            assert!(a.next_within(&b, PATIENCE).is_some_and(|wc| wc.is_ok()), "message {i}");
        }
        let engine = a.device.counters().unwrap().engine;
        assert!(engine.retrans_pkts >= 19, "{engine:?}");
    }
}

#[test]
fn acknowledgments_that_wait_unread_are_no_loss() {
    // Each acknowledgment waits for ten timeouts. (The timeouts are long so that a busy machine,
    // which keeps this program waiting, adds few of its own.)
    let (a, b, _) = crowded_pair(Crowd::Queue(Duration::from_millis(100)));
    let (ah, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    for i in 0..11 {
        b.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
    }
    a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    let before = a.device.counters().unwrap().engine;
    for i in 1..11 {
        a.qp.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY)).unwrap();
        assert!(a.next(&b).is_ok());
    }
    let after = a.device.counters().unwrap().engine;
    let copies = after.retrans_pkts - before.retrans_pkts;
    assert!(copies < 5, "{copies} copies of 10 packets: {after:?}");
}
