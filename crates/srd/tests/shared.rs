//! `Progress::Shared`: callers and a thread drive by turns. Doorbells, faults at completion,
//! closing.

use srd::{
    Access, CompletionQueue, CqInit, Device, DeviceConfig, Error, Faults, LKey, PostError,
    Progress, ProtectionDomain, QKey, QpInit, QueuePair, RecvWr, SendWr, Sge, Status,
};
use std::time::{Duration, Instant};

const QKEY: QKey = QKey(5);
const PATIENCE: Duration = Duration::from_secs(20);

struct End {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
}

fn end(idle: Duration) -> End {
    let mut config = DeviceConfig::loopback();
    config.progress = Progress::Shared { idle };
    let device = Device::open(config).unwrap();
    let pd = device.pd_create().unwrap();
    let cq = device.cq_create(256).unwrap();
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    qp.activate(QKEY).unwrap();
    End { device, pd, cq, qp }
}

fn spin(cq: &CompletionQueue) -> srd::WorkCompletion {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(wc) = cq.poll_one().unwrap() {
            return wc;
        }
        assert!(Instant::now() < deadline, "no completion");
    }
}

#[test]
fn polling_callers_drive() {
    let (a, b) = (end(Duration::from_millis(1)), end(Duration::from_millis(1)));
    let (to_b, to_a) =
        (a.pd.ah_create(b.device.ip()).unwrap(), b.pd.ah_create(a.device.ip()).unwrap());
    let buffer = b.pd.mr_allocate(64, Access::LOCAL_WRITE).unwrap();
    for i in 0..200_u64 {
        b.qp.enqueue_recv(&RecvWr { wr_id: i, sges: &[buffer.sge(0, 64)] }, Faults::AtPost)
            .unwrap();
        b.qp.doorbell_recv();
        let bytes = i.to_le_bytes();
        let wr = SendWr::send(i, &to_b, b.qp.qpn(), QKEY).inline(&bytes);
        a.qp.post_send(&wr).unwrap();
        // One thread polls both ends by turns, as two processes on one core do.
        let deadline = Instant::now() + PATIENCE;
        let (mut sent, mut received) = (None, None);
        while sent.is_none() || received.is_none() {
            sent = sent.or_else(|| a.cq.poll_one().unwrap());
            received = received.or_else(|| b.cq.poll_one().unwrap());
            assert!(Instant::now() < deadline, "message {i}");
        }
        assert_eq!((sent.unwrap().wr_id, received.unwrap().wr_id), (i, i));
        assert_eq!(buffer.to_vec(0, 8).unwrap(), i.to_le_bytes());
    }
    drop(to_a);
    assert!(a.device.counters().unwrap().paths_used >= 1);
}

#[test]
fn the_thread_serves_a_peer_that_never_polls() {
    let (a, b) = (end(Duration::from_micros(200)), end(Duration::from_micros(200)));
    let (to_b, _to_a) =
        (a.pd.ah_create(b.device.ip()).unwrap(), b.pd.ah_create(a.device.ip()).unwrap());
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let target = b.pd.mr_allocate(1 << 16, all).unwrap();
    let source = a.pd.mr_allocate(1 << 16, Access::LOCAL_WRITE).unwrap();
    // B polled once and went on to compute.
    assert!(b.cq.poll_one().unwrap().is_none());
    for round in 0..20_u8 {
        source.write_at(0, &[round; 1 << 16]).unwrap();
        let wr = SendWr::write(1, &to_b, b.qp.qpn(), QKEY).remote(target.addr(), target.rkey());
        a.qp.post_send(&wr.sges(&[source.sge(0, 1 << 16)])).unwrap();
        spin(&a.cq).ok().unwrap();
        assert_eq!(target.to_vec(65_000, 2).unwrap(), [round; 2]);
    }
}

#[test]
fn an_armed_queue_hands_over_to_the_thread_at_once() {
    // An idle time that the test does not last.
    let (a, b) = (end(Duration::from_secs(3600)), end(Duration::from_millis(1)));
    let channel = a.device.channel_create().unwrap();
    let init = CqInit { depth: 16, channel: Some(&channel), context: 77 };
    let cq = a.device.cq_create_ex(&init).unwrap();
    let qp = a.pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    qp.activate(QKEY).unwrap();
    let to_a = b.pd.ah_create(a.device.ip()).unwrap();
    let buffer = a.pd.mr_allocate(64, Access::LOCAL_WRITE).unwrap();
    for i in 0..10 {
        qp.post_recv(&RecvWr { wr_id: i, sges: &[buffer.sge(0, 64)] }).unwrap();
        // The caller polls, so the thread rests; then the caller sleeps on the channel.
        assert!(cq.poll_one().unwrap().is_none());
        cq.req_notify().unwrap();
        assert!(cq.poll_one().unwrap().is_none());
        b.qp.post_send(&SendWr::send(i, &to_a, qp.qpn(), QKEY).inline(b"wake")).unwrap();
        let event = channel.get(Some(PATIENCE)).unwrap().expect("an event");
        assert_eq!(event.context, 77);
        assert_eq!(spin(&cq).wr_id, i);
        spin(&b.cq).ok().unwrap();
    }
}

#[test]
fn faults_at_completion_name_what_was_wrong() {
    let a = end(Duration::from_millis(1));
    let to_a = a.pd.ah_create(a.device.ip()).unwrap();
    let wrong = [Sge { addr: 0x1000, len: 8, lkey: LKey(0xdead) }];
    let wr = SendWr::send(3, &to_a, a.qp.qpn(), QKEY).sges(&wrong);
    assert_eq!(a.qp.enqueue_send(&wr, Faults::AtPost), Err(PostError::BadLkey));
    a.qp.enqueue_send(&wr, Faults::AtCompletion).unwrap();
    a.qp.doorbell();
    let wc = spin(&a.cq);
    assert_eq!((wc.wr_id, wc.status), (3, Status::LocalInvalidLkey));
    let big = a.pd.mr_allocate(1 << 20, Access::LOCAL_WRITE).unwrap();
    let long = [big.sge(0, 1 << 20)];
    let wr = SendWr::send(4, &to_a, a.qp.qpn(), QKEY).sges(&long);
    a.qp.enqueue_send(&wr, Faults::AtCompletion).unwrap();
    a.qp.doorbell();
    let wc = spin(&a.cq);
    assert_eq!((wc.wr_id, wc.status), (4, Status::LocalBadLength));
    // A receive into memory that is not there fails when it is to be filled.
    a.qp.enqueue_recv(&RecvWr { wr_id: 5, sges: &wrong }, Faults::AtCompletion).unwrap();
    a.qp.doorbell_recv();
    a.qp.post_send(&SendWr::send(6, &to_a, a.qp.qpn(), QKEY).inline(b"x")).unwrap();
    let ends = [spin(&a.cq), spin(&a.cq)];
    let received = ends.iter().find(|wc| wc.wr_id == 5).expect("the receive ends");
    assert_eq!(received.status, Status::LocalInvalidLkey);
}

#[test]
fn a_closed_device_refuses_work_and_its_peers_hear_of_it() {
    let (a, b) = (end(Duration::from_millis(1)), end(Duration::from_millis(1)));
    let to_b = a.pd.ah_create(b.device.ip()).unwrap();
    let buffer = b.pd.mr_allocate(64, Access::LOCAL_WRITE).unwrap();
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[buffer.sge(0, 64)] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &to_b, b.qp.qpn(), QKEY).inline(b"x")).unwrap();
    spin(&a.cq).ok().unwrap();
    b.device.close();
    b.device.close();
    assert_eq!(b.device.pd_create().unwrap_err(), Error::Closed);
    let wr = RecvWr { wr_id: 2, sges: &[] };
    assert_eq!(b.qp.post_recv(&wr), Err(PostError::Closed));
    assert!(!b.device.is_left());
}

#[test]
fn several_requests_are_taken_in_all_or_none() {
    let a = end(Duration::from_millis(1));
    let to_a = a.pd.ah_create(a.device.ip()).unwrap();
    let cq = a.device.cq_create(4).unwrap();
    let mut init = QpInit::srd(&cq, &a.cq);
    init.sq_depth = 8;
    let qp = a.pd.qp_create(&init).unwrap();
    qp.activate(QKEY).unwrap();
    let buffer = a.pd.mr_allocate(64, Access::LOCAL_WRITE).unwrap();
    let place = [buffer.sge(0, 64)];
    for i in 0..16 {
        a.qp.post_recv(&RecvWr { wr_id: 100 + i, sges: &place }).unwrap();
    }
    let wrs = |n: u64| (0..n).map(|i| SendWr::send(i, &to_a, a.qp.qpn(), QKEY).inline(b"all"));
    let faults = Faults::AtCompletion;
    assert_eq!(qp.enqueue_sends(wrs(9), faults), Err(PostError::QueueFull));
    assert_eq!(qp.enqueue_sends(wrs(5), faults), Err(PostError::CqFull));
    let wrong = SendWr::send(9, &to_a, a.qp.qpn(), QKEY).inline(&[0; 80]);
    let mixed = wrs(2).chain([wrong]);
    assert_eq!(qp.enqueue_sends(mixed, faults), Err(PostError::BadInline));
    assert_eq!(qp.sends_outstanding(), 0);
    // None of the refusals has kept a slot.
    qp.enqueue_sends(wrs(4), faults).unwrap();
    assert_eq!(qp.enqueue_sends(wrs(1), faults), Err(PostError::CqFull));
    qp.doorbell();
    let mut ends: Vec<_> = (0..4).map(|_| spin(&cq).wr_id).collect();
    ends.sort_unstable();
    assert_eq!(ends, [0, 1, 2, 3]);
}
