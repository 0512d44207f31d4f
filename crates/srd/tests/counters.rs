//! Completion counters: every request that ends is counted once, under its operation, whether or
//! not its completion is polled.

use crate::common::{Node, PATIENCE, QKEY, THREAD, everywhere, loopback_pair, mem_pair, pattern};
use srd::{
    COUNTERS_MAX, CompletionCounter, CountedOp, Device, Error, Progress, QKey, QpInit, QpModify,
    QpState, QueuePair, RKey, RecvWr, SendWr, Status,
};
use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

const ALL: [CountedOp; 4] = [CountedOp::Send, CountedOp::Recv, CountedOp::Read, CountedOp::Write];

/// A node whose queue pair has a counter for each operation, in the order of [`ALL`].
fn counted(device: Device) -> (Node, [CompletionCounter; 4]) {
    let pd = device.pd_create().unwrap();
    let cq = device.cq_create(512).unwrap();
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    let counters = ALL.map(|op| {
        let counter = device.counter_create().unwrap();
        qp.counter_attach(&counter, &[op]).unwrap();
        counter
    });
    qp.activate(QKEY).unwrap();
    (Node { device, pd, cq, qp }, counters)
}

fn numbers(counters: &[CompletionCounter; 4]) -> [(u64, u64); 4] {
    counters.each_ref().map(|c| (c.completions(), c.errors()))
}

/// Waits by the counter alone until its numbers have this sum.
fn await_sum(counter: &CompletionCounter, other: &Device, sum: u64) {
    let end = Instant::now() + PATIENCE;
    while counter.completions() + counter.errors() < sum {
        assert!(Instant::now() < end, "{counter:?} does not reach {sum}");
        counter.progress().unwrap();
        other.progress().unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn each_operation_has_its_number_without_a_poll() {
    everywhere(1000, |a, b| {
        let ((a, of_a), (b, of_b)) = (counted(a), counted(b));
        let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
        let (from, there) = (a.memory(50_000), b.memory(50_000));
        from.write_at(0, &pattern(50_000, 3)).unwrap();
        for i in 0..20 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[there.sge(0, 500)] }).unwrap();
        }
        for i in 0..12 {
            let send = SendWr::send(i, &to_b, b.qp.qpn(), QKEY);
            a.qp.post_send(&send.sges(&[from.sge(0, 500)])).unwrap();
        }
        for i in 0..5 {
            let wr =
                SendWr::write(100 + i, &to_b, b.qp.qpn(), QKEY).remote(there.addr(), there.rkey());
            a.qp.post_send(&wr.sges(&[from.sge(0, 7_000)])).unwrap();
        }
        for i in 0..3 {
            let wr =
                SendWr::write(200 + i, &to_b, b.qp.qpn(), QKEY).remote(there.addr(), there.rkey());
            a.qp.post_send(&wr.imm(9).sges(&[from.sge(0, 2_500)])).unwrap();
        }
        for i in 0..4 {
            let wr =
                SendWr::read(300 + i, &to_b, b.qp.qpn(), QKEY).remote(there.addr(), there.rkey());
            a.qp.post_send(&wr.sges(&[from.sge(10_000, 40_000)])).unwrap();
        }
        await_sum(&of_a[0], &b.device, 12);
        await_sum(&of_a[3], &b.device, 8);
        await_sum(&of_a[2], &b.device, 4);
        await_sum(&of_b[1], &a.device, 15);
        assert_eq!(numbers(&of_a), [(12, 0), (0, 0), (4, 0), (8, 0)]);
        assert_eq!(numbers(&of_b), [(0, 0), (15, 0), (0, 0), (0, 0)]);
        // The completions are where they were, and polling them counts nothing again.
        assert_eq!(a.next_n(&b, 24).len(), 24);
        assert_eq!(b.next_n(&a, 15).len(), 15);
        assert_eq!(numbers(&of_a), [(12, 0), (0, 0), (4, 0), (8, 0)]);
        // Five receives are left; they are flushed.
        let change = QpModify { state: Some(QpState::Err), ..QpModify::default() };
        b.qp.modify(change).unwrap();
        await_sum(&of_b[1], &a.device, 20);
        assert_eq!(numbers(&of_b)[1], (15, 5));
    });
}

#[test]
fn requests_that_fail_count_as_errors() {
    let (a, b) = loopback_pair(1400, THREAD);
    let ((a, of_a), b) = (counted(a), Node::new(b));
    let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let there = b.memory(64);
    let none = SendWr::send(1, &to_b, b.qp.qpn(), QKey(QKEY.0 + 1)).inline(b"wrong Q_Key");
    a.qp.post_send(&none).unwrap();
    let bad = SendWr::write(2, &to_b, b.qp.qpn(), QKEY).inline(b"beyond the end");
    a.qp.post_send(&bad.remote(there.addr() + 60, there.rkey())).unwrap();
    let bad =
        SendWr::read(3, &to_b, b.qp.qpn(), QKEY).remote(there.addr(), RKey(there.rkey().0 ^ 1));
    let own = a.memory(8);
    a.qp.post_send(&bad.sges(&[own.sge(0, 8)])).unwrap();
    for (i, counter) in of_a.iter().enumerate().filter(|(i, _)| *i != 1) {
        await_sum(counter, &b.device, 1);
        assert_eq!((counter.completions(), counter.errors()), (0, 1), "{:?}", ALL[i]);
    }
    // A device that fails ends its requests with errors, too.
    for i in 0..7 {
        a.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
    }
    a.device.fail();
    assert_eq!(numbers(&of_a), [(0, 1), (0, 7), (0, 1), (0, 1)]);
    let wcs = a.next_n(&b, 10);
    assert!(wcs.iter().all(|wc| wc.status != Status::Ok));
}

#[test]
fn one_counter_sums_what_it_is_attached_to() {
    let (device, peer) = mem_pair(1000, Progress::Caller);
    let b = Node::new(peer);
    let pd = device.pd_create().unwrap();
    let cq = device.cq_create(64).unwrap();
    let counter = device.counter_create().unwrap();
    let make = || {
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.counter_attach(&counter, &[CountedOp::Send, CountedOp::Write]).unwrap();
        qp.activate(QKEY).unwrap();
        qp
    };
    let (one, two) = (make(), make());
    let (ah, _back) = (pd.ah_create(b.device.ip()).unwrap(), b.pd.ah_create(device.ip()).unwrap());
    let there = b.memory(64);
    for qp in [&one, &two, &one] {
        b.qp.post_recv(&RecvWr { wr_id: 0, sges: &[there.sge(0, 64)] }).unwrap();
        qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(b"here")).unwrap();
        let write = SendWr::write(2, &ah, b.qp.qpn(), QKEY).inline(b"there");
        qp.post_send(&write.remote(there.addr(), there.rkey())).unwrap();
    }
    await_sum(&counter, &b.device, 6);
    assert_eq!((counter.completions(), counter.errors()), (6, 0));
    assert!(counter.in_use());
    drop(one);
    assert!(counter.in_use(), "the other queue pair still counts");
    drop(two);
    assert!(!counter.in_use());
    assert_eq!(counter.completions(), 6, "what was counted stays");
}

#[test]
fn an_operation_has_one_counter_and_gets_it_early() {
    let (device, other) = mem_pair(1000, Progress::Caller);
    let pd = device.pd_create().unwrap();
    let cq = device.cq_create(64).unwrap();
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    let (one, two) = (device.counter_create().unwrap(), device.counter_create().unwrap());
    qp.counter_attach(&one, &[CountedOp::Send, CountedOp::Recv]).unwrap();
    let busy = qp.counter_attach(&two, &[CountedOp::Read, CountedOp::Recv]);
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    assert!(!two.in_use(), "nothing has changed");
    qp.counter_attach(&two, &[CountedOp::Read, CountedOp::Read]).unwrap();
    let foreign = other.counter_create().unwrap();
    let invalid = |result| assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    invalid(qp.counter_attach(&foreign, &[CountedOp::Write]));
    invalid(qp.counter_attach(&two, &[]));
    qp.modify(QpModify { state: Some(QpState::Init), qkey: Some(QKey(1)), rnr_retry: None })
        .unwrap();
    qp.modify(QpModify { state: Some(QpState::Rtr), ..QpModify::default() }).unwrap();
    invalid(qp.counter_attach(&two, &[CountedOp::Write]));
}

#[test]
fn counters_are_bounded_and_come_back() {
    let (device, _) = mem_pair(1000, Progress::Caller);
    let mut all: Vec<_> = (0..COUNTERS_MAX).map(|_| device.counter_create().unwrap()).collect();
    assert!(matches!(device.counter_create(), Err(Error::NoRoom(_))));
    all.truncate(7);
    assert!(device.counter_create().is_ok());
}

#[test]
fn numbers_lie_in_the_callers_memory_if_asked() {
    let (a, b) = loopback_pair(1400, THREAD);
    let b = Node::new(b);
    let memory: &'static [AtomicU64; 2] =
        Box::leak(Box::new([AtomicU64::new(77), AtomicU64::new(u64::MAX)]));
    let at = |i: usize| NonNull::new(memory[i].as_ptr());
    let pd = a.pd_create().unwrap();
    let cq = a.cq_create(64).unwrap();
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    // SAFETY: the memory is leaked, and atomic.
    let counter = unsafe { a.counter_create_in(at(0), at(1)) }.unwrap();
    let value = |i: usize| memory[i].load(Ordering::Acquire);
    assert_eq!((value(0), value(1)), (0, 0));
    qp.counter_attach(&counter, &[CountedOp::Send]).unwrap();
    qp.activate(QKEY).unwrap();
    counter.set(u64::MAX);
    counter.add_errors(3);
    let ah = pd.ah_create(b.device.ip()).unwrap();
    b.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY)).unwrap();
    // Nobody polls or calls anything: the device's thread counts.
    let end = Instant::now() + PATIENCE;
    while value(0) != 0 {
        assert!(Instant::now() < end, "nothing is counted");
        std::thread::yield_now();
    }
    assert_eq!((value(1), counter.errors(), counter.completions()), (3, 3, 0), "wrapped to zero");
    let odd = NonNull::new(memory[0].as_ptr().cast::<u8>().wrapping_add(4).cast());
    // SAFETY: it is refused.
    assert!(matches!(unsafe { a.counter_create_in(odd, None) }, Err(Error::Invalid(_))));
}

/// Queue pairs of several threads, one counter for all, while other threads add to it.
#[test]
fn nothing_is_lost_among_threads() {
    const THREADS: usize = 4;
    const EACH: u64 = 300;
    for shards in [1, 3] {
        let mut config = srd::DeviceConfig::loopback();
        config.shards = shards;
        let a = Device::open(config).unwrap();
        let b = Device::open(srd::DeviceConfig::loopback()).unwrap();
        let pd = a.pd_create().unwrap();
        let b = Node::new(b);
        let _back = b.pd.ah_create(a.ip()).unwrap();
        let ah = pd.ah_create(b.device.ip()).unwrap();
        let there = b.memory(64);
        let counter = a.counter_create().unwrap();
        let cqs: Vec<_> = (0..THREADS).map(|_| a.cq_create(1024).unwrap()).collect();
        let make = |cq| -> QueuePair {
            let qp = pd.qp_create(&QpInit::srd(cq, cq)).unwrap();
            qp.counter_attach(&counter, &[CountedOp::Write]).unwrap();
            qp.activate(QKEY).unwrap();
            qp
        };
        let qps: Vec<_> = cqs.iter().map(make).collect();
        std::thread::scope(|s| {
            for qp in &qps {
                s.spawn(|| {
                    for i in 0..EACH {
                        let wr = SendWr::write(i, &ah, b.qp.qpn(), QKEY).inline(b"x");
                        let wr = wr.remote(there.addr(), there.rkey());
                        while qp.post_send(&wr).is_err() {
                            counter.progress().unwrap();
                            qp.send_cq().poll_one().unwrap();
                        }
                        counter.add(2);
                    }
                });
            }
            await_sum(&counter, &b.device, 3 * EACH * THREADS as u64);
        });
        assert_eq!(
            (counter.completions(), counter.errors()),
            (3 * EACH * THREADS as u64, 0),
            "{shards} shards"
        );
    }
}
