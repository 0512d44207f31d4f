//! Many threads, full kernels, strangers, broken datapaths.

use crate::common::{MemWorld, Node, PATIENCE, QKEY, THREAD, loopback_pair, mem_pair, pattern};
use srd::{
    AsyncEvent, CompletionOp, CqInit, Device, DeviceConfig, Error, PostError, Progress, QpInit,
    QpModify, QpState, RecvWr, SendWr, Status,
    datapath::{
        Counters, Datapath, ReleasesParts, RxDatagram, RxReport, TxPacket, TxPushError, TxReport,
        Waker, fault::Rates,
    },
};
use std::{
    io,
    net::{IpAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

#[test]
fn threads_post_and_poll_while_objects_come_and_go() {
    let (a, b) = loopback_pair(1400, THREAD);
    let (a, b) = (Node::with(a, 4096, |_| {}), Node::with(b, 4096, |_| {}));
    let (ah, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let there = b.memory(64 * 1024);
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    const EACH: u64 = 2000;
    std::thread::scope(|s| {
        for thread in 0..3_u64 {
            let (a, ah, b, there) = (&a, &ah, &b, &there);
            s.spawn(move || {
                for i in 0..EACH {
                    let to = there.addr() + thread * 16 * 1024 + i % 1000 * 8;
                    let wr = SendWr::write(i, ah, b.qp.qpn(), QKEY).remote(to, there.rkey());
                    let bytes = (thread << 32 | i).to_ne_bytes();
                    while let Err(e) = a.qp.post_send(&wr.inline(&bytes)) {
                        assert!(e.is_full(), "{e}");
                        std::thread::yield_now();
                    }
                }
            });
        }
        s.spawn(|| {
            while done.load(Ordering::Relaxed) < 3 * EACH {
                if let Some(wc) = a.cq.wait(PATIENCE).unwrap() {
                    wc.ok().unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let m = a.memory(4096);
                let cq = a.device.cq_create(16).unwrap();
                // Numbers of queue pairs rest for a second after use: not more than 256 fit in.
                if let Ok(qp) = a.pd.qp_create(&QpInit::srd(&cq, &cq)) {
                    qp.activate(QKEY).unwrap();
                    qp.post_recv(&RecvWr { wr_id: 1, sges: &[m.sge(0, 4096)] }).unwrap();
                    let wr = SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(b"nobody receives");
                    qp.post_send(&wr).unwrap();
                }
                a.device.counters().unwrap();
                a.device.path_stats(b.device.ip()).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    });
    for thread in 0..3_u64 {
        for slot in 0..1000 {
            let at = (thread * 16 * 1024 + slot * 8) as usize;
            let got = u64::from_ne_bytes(there.to_vec(at, 8).unwrap().try_into().unwrap());
            assert_eq!((got >> 32, (got & 0xFFFF_FFFF) % 1000), (thread, slot));
        }
    }
}

#[test]
fn a_kernel_that_takes_no_packets_loses_nothing_and_burns_no_time() {
    let world = MemWorld::new(1000);
    let (a, faults) = world.faulty(1, THREAD, Rates::default());
    let a = Node::new(a);
    let b = Node::new(world.device(2, THREAD));
    let (ah, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let (from, there) = (a.memory(100_000), b.memory(100_000));
    let bytes = pattern(100_000, 2);
    from.write_at(0, &bytes).unwrap();
    b.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());

    faults.tx_stall(true);
    let wr = SendWr::write(1, &ah, b.qp.qpn(), QKEY).remote(there.addr(), there.rkey());
    a.qp.post_send(&wr.sges(&[from.sge(0, 100_000)])).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let before = a.device.counters().unwrap().turns;
    std::thread::sleep(Duration::from_millis(200));
    let turns = a.device.counters().unwrap().turns - before;
    assert!(turns < 1000, "{turns} turns in 200 ms without a chance to send");
    faults.tx_stall(false);
    assert!(a.next(&b).is_ok());
    assert!(there.to_vec(0, 100_000).unwrap() == bytes);
}

#[test]
fn noise_from_strangers_is_counted_and_harmless() {
    let (a, b) = loopback_pair(1400, Progress::Caller);
    let (a, b) = (Node::new(a), Node::new(b));
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = (b.device.ip(), b.device.port().udp_port);
    for len in [0, 1, 5, 23, 24, 60, 200, 1400] {
        stranger.send_to(&pattern(len, len as u64 + 77), target).unwrap();
        stranger.send_to(&vec![0x28; len], target).unwrap();
        stranger.send_to(&vec![0; len], target).unwrap();
    }
    let ah = a.ah_to(&b);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    assert!(b.next(&a).is_ok());
    let counters = b.device.counters().unwrap();
    let malformed: u64 = counters.parse_errors.iter().sum();
    let dropped: u64 = counters.engine.drops.iter().sum();
    assert!(malformed > 0, "{counters:?}");
    assert!(malformed + dropped >= 20, "each is counted: {counters:?}");
}

/// `Duration::MAX` is what programs write for "for ever".
#[test]
fn a_time_that_no_clock_reaches_is_no_limit() {
    let max = Duration::MAX;
    for progress in
        [Progress::Caller, Progress::Thread { spin: max }, Progress::Shared { idle: max }]
    {
        let (a, b) = loopback_pair(1000, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let ah = a.ah_to(&b);
        b.qp.post_recv(&RecvWr::recv(1)).unwrap();
        a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY)).unwrap();
        if progress == Progress::Caller {
            a.device.wait(Some(max)).unwrap();
        }
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| a.cq.wait(max).unwrap().expect("no limit").ok().unwrap());
            assert_eq!(b.cq.wait(max).unwrap().expect("no limit").ok().unwrap().wr_id, 1);
            while !sent.is_finished() {
                b.device.progress().unwrap();
            }
        });
        let channel = b.device.channel_create().unwrap();
        let init = CqInit { depth: 4, channel: Some(&channel), context: 7 };
        let cq = b.device.cq_create_ex(&init).unwrap();
        let qp = b.pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(QKEY).unwrap();
        qp.post_recv(&RecvWr::recv(3)).unwrap();
        cq.req_notify().unwrap();
        qp.modify(QpModify { state: Some(QpState::Err), ..QpModify::default() }).unwrap();
        assert_eq!(channel.get(Some(max)).unwrap().expect("no limit").context, 7);
    }
}

#[test]
fn a_queue_pair_that_drains_tells_when_it_has() {
    let world = MemWorld::new(1000);
    let (b, faults) = world.faulty(2, THREAD, Rates::default());
    let (a, b) = (Node::new(world.device(1, THREAD)), Node::new(b));
    let ah = a.ah_to(&b);
    for i in 0..2 {
        b.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
    }
    a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    // On its way, and not answered.
    faults.tx_off(true);
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY)).unwrap();
    a.assert_quiet(&b);
    a.qp.modify(QpModify { state: Some(QpState::Sqd), ..QpModify::default() }).unwrap();
    assert_eq!(a.device.event_get(), None);
    faults.tx_off(false);
    assert!(a.next(&b).is_ok());
    let end = Instant::now() + PATIENCE;
    let event = loop {
        assert!(Instant::now() < end, "no event");
        if let Some(event) = a.device.event_get() {
            break event;
        }
    };
    assert_eq!(event, AsyncEvent::SqDrained(a.qp.qpn()));
    a.qp.modify(QpModify { state: Some(QpState::Rts), ..QpModify::default() }).unwrap();
}

#[test]
fn threads_that_wait_for_different_queues_take_turns_at_driving() {
    let (a, b) = loopback_pair(1400, Progress::Caller);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    let pairs: Vec<_> = (0..4)
        .map(|_| {
            let cq = b.device.cq_create(64).unwrap();
            let qp = b.pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
            qp.activate(QKEY).unwrap();
            (cq, qp)
        })
        .collect();
    let (finished, driver) = (&AtomicBool::new(false), &b.device);
    std::thread::scope(|s| {
        let waiting: Vec<_> = pairs
            .iter()
            .map(|(cq, qp)| {
                s.spawn(move || {
                    for i in 0..50 {
                        qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
                        assert!(cq.wait(PATIENCE).unwrap().expect("a message").is_ok());
                    }
                })
            })
            .collect();
        // The last acknowledgment needs somebody who drives, after the last message, too.
        s.spawn(move || {
            while !finished.load(Ordering::Relaxed) {
                driver.wait(Some(Duration::from_millis(1))).unwrap();
            }
        });
        for _ in 0..50 {
            for (_, qp) in &pairs {
                a.qp.post_send(&SendWr::send(1, &ah, qp.qpn(), QKEY)).unwrap();
            }
            for _ in &pairs {
                assert!(a.cq.wait(PATIENCE).unwrap().expect("sent").is_ok());
            }
        }
        finished.store(true, Ordering::Relaxed);
        while waiting.iter().any(|w| !w.is_finished()) {
            a.device.wait(Some(Duration::from_millis(1))).unwrap();
        }
    });
}

#[test]
fn unsolicited_writes_and_receives_share_a_queue_without_a_loss() {
    let (a, b) = mem_pair(1000, THREAD);
    let a = Node::new(a);
    let b = Node::with(b, 8, |init| init.unsolicited_write_recv = true);
    let (ah, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let there = b.memory(64);
    const EACH: u64 = 1500;
    let (mut posted, mut done) = (0, 0);
    let (mut receives, mut received, mut unsolicited) = (0, 0, 0);
    let end = Instant::now() + PATIENCE;
    while done < 2 * EACH || received < EACH || unsolicited < EACH {
        assert!(Instant::now() < end, "{done} done, {received} and {unsolicited} received");
        if posted < 2 * EACH && posted - done < 64 {
            let wr = if posted % 2 == 0 {
                SendWr::send(posted, &ah, b.qp.qpn(), QKEY)
            } else {
                let wr = SendWr::write(posted, &ah, b.qp.qpn(), QKEY).inline(b"unasked").imm(1);
                wr.remote(there.addr(), there.rkey())
            };
            a.qp.post_send(&wr).unwrap();
            posted += 1;
        }
        if let Some(wc) = a.cq.poll_one().unwrap() {
            wc.ok().unwrap();
            done += 1;
        }
        if let Some(wc) = b.cq.poll_one().unwrap() {
            match wc.ok().unwrap().op {
                CompletionOp::RecvUnsolicited => unsolicited += 1,
                CompletionOp::Recv => received += 1,
                other => panic!("{other:?}"),
            }
        }
        // Half of the queue at most, so that unsolicited ones find room, too.
        if receives < EACH && b.qp.recvs_outstanding() < 4 {
            match b.qp.post_recv(&RecvWr { wr_id: receives, sges: &[] }) {
                Ok(()) => receives += 1,
                Err(e) => assert_eq!(e, PostError::CqFull),
            }
        }
    }
    assert_eq!((received, unsolicited), (EACH, EACH));
    b.assert_quiet(&a);
    for i in 0..8 {
        b.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
    }
}

/// A datapath that fails or panics on command.
struct Broken {
    inner: Box<dyn Datapath>,
    fail: Arc<AtomicBool>,
    panic: Arc<AtomicBool>,
}

// SAFETY: flush and discard are handed on, and nothing is kept.
unsafe impl ReleasesParts for Broken {}

impl Datapath for Broken {
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
        if self.fail.load(Ordering::Relaxed) {
            self.inner.tx_discard();
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.inner.tx_flush()
    }
    fn tx_discard(&mut self) {
        self.inner.tx_discard();
    }
    fn rx(&mut self, sink: &mut dyn FnMut(RxDatagram<'_>)) -> io::Result<RxReport> {
        assert!(!self.panic.load(Ordering::Relaxed), "on purpose");
        self.inner.rx(sink)
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

fn broken(progress: Progress) -> (Device, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (fail, panic) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut config = DeviceConfig::loopback();
    config.progress = progress;
    let (f, p) = (Arc::clone(&fail), Arc::clone(&panic));
    config.wrap = Some(Box::new(move |inner| Box::new(Broken { inner, fail: f, panic: p })));
    (Device::open(config).unwrap(), fail, panic)
}

#[test]
fn a_failing_datapath_is_reported_and_used_on() {
    let (a, fail, _) = broken(THREAD);
    let a = Node::new(a);
    let ah = a.ah_to(&a);
    fail.store(true, Ordering::Relaxed);
    a.qp.post_recv(&RecvWr { wr_id: 2, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, a.qp.qpn(), QKEY)).unwrap();
    a.assert_quiet(&a);
    assert_eq!(a.device.event_get(), Some(AsyncEvent::DatapathError(libc::EBADF)));
    assert_eq!(a.device.event_get(), None, "reported once");
    fail.store(false, Ordering::Relaxed);
    assert!(a.next_n(&a, 2).iter().all(|wc| wc.is_ok()));
}

#[test]
fn a_panic_fails_the_device_and_every_request_ends_once() {
    for progress in [THREAD, Progress::Caller, Progress::Shared { idle: Duration::ZERO }] {
        let (a, fail, panic) = broken(progress);
        let a = Node::new(a);
        let ah = a.ah_to(&a);
        // Requests that the engine has: receives that nobody fills, sends that never leave.
        fail.store(true, Ordering::Relaxed);
        for wr_id in [1, 2] {
            a.qp.post_recv(&RecvWr { wr_id, sges: &[] }).unwrap();
        }
        for wr_id in [11, 12] {
            a.qp.post_send(&SendWr::send(wr_id, &ah, a.qp.qpn(), QKEY)).unwrap();
        }
        a.assert_quiet(&a);
        assert_eq!(a.device.event_get(), Some(AsyncEvent::DatapathError(libc::EBADF)));
        panic.store(true, Ordering::Relaxed);
        // One that waits in its ring, unless the device has noticed already.
        let last = SendWr::send(13, &ah, a.qp.qpn(), QKEY);
        let posted = std::thread::scope(|s| s.spawn(|| a.qp.post_send(&last)).join());
        let looked = std::thread::scope(|s| s.spawn(|| a.device.wait(None)).join());
        assert!(progress != Progress::Caller || looked.is_err(), "the panic is the caller's own");
        let mut ended = Vec::new();
        let end = loop {
            match a.cq.wait(PATIENCE) {
                Ok(Some(wc)) => {
                    assert_eq!(wc.status, Status::LocalQpInternalError);
                    ended.push(wc.wr_id);
                }
                end => break end,
            }
        };
        assert_eq!(end, Err(Error::Closed), "{progress:?}");
        ended.sort_unstable();
        let all = if matches!(posted, Ok(Ok(()))) { 5 } else { ended.len() };
        assert_eq!(ended, &[1, 2, 11, 12, 13][..all], "{progress:?}");
        assert_eq!(a.device.event_get(), Some(AsyncEvent::DeviceFatal));
        assert_eq!(a.device.event_get(), None);
        assert!(a.device.has_failed());
        assert!(matches!(a.device.pd_create(), Err(Error::Closed)));
        assert_eq!(a.qp.post_send(&last), Err(PostError::Closed));
        assert_eq!(a.device.progress(), Err(Error::Closed));
    }
}

#[test]
fn a_device_that_is_given_up_ends_its_requests_too() {
    let (a, fail, _) = broken(THREAD);
    let a = Node::new(a);
    fail.store(true, Ordering::Relaxed);
    a.qp.post_recv(&RecvWr { wr_id: 7, sges: &[] }).unwrap();
    a.device.fail();
    a.device.fail();
    let wc = a.cq.wait(PATIENCE).unwrap().expect("an end");
    assert_eq!((wc.wr_id, wc.status), (7, Status::LocalQpInternalError));
    assert_eq!(a.cq.wait(PATIENCE), Err(Error::Closed));
    assert_eq!(a.device.event_get(), Some(AsyncEvent::DeviceFatal));
    assert_eq!(a.device.event_get(), None);
}
