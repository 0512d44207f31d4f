//! Devices of several shards: many queue pairs from many threads over real sockets, with peers of
//! as many shards or of one; objects that all shards know; failing and closing.

use crate::common::{ALL_ACCESS, PATIENCE, QKEY, THREAD, pattern};
use crate::sealed::Folder;
use srd::{
    AddressHandle, AsyncEvent, CompletionOp, CompletionQueue, CqInit, Device, DeviceConfig, Error,
    Faults, MemoryRegion, PostError, Progress, ProtectionDomain, QpInit, QueuePair, RKey, RecvWr,
    SendWr, Status, WorkCompletion,
};
use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const SHARED: Progress = Progress::Shared { idle: Duration::from_millis(1) };
/// Bytes of one message, and of one RDMA operation: several packets.
const SEND_BYTES: usize = 200;
const RDMA_BYTES: usize = 5_000;

fn data(seed: usize, len: usize) -> Vec<u8> {
    pattern(len, seed as u64)
}

fn config(shards: u16, progress: Progress) -> DeviceConfig {
    let mut config = DeviceConfig::loopback();
    (config.shards, config.progress) = (shards, progress);
    (config.paths, config.mtu, config.key_file, config.seal) = (4, Some(1024), None, None);
    config
}

fn device(shards: u16, progress: Progress) -> Device {
    let device = Device::open(config(shards, progress)).unwrap();
    assert_eq!(device.shard_count(), usize::from(shards), "{:?}", device.warnings());
    device
}

/// The next completion of a queue.
fn next(cq: &CompletionQueue) -> WorkCompletion {
    cq.wait(PATIENCE).unwrap().expect("a completion in time")
}

/// One side of a test: a device with one protection domain and queue pairs of several threads.
struct Side {
    device: Device,
    pd: ProtectionDomain,
    /// The queue pairs of each thread, and the completion queue that they use.
    threads: Vec<(CompletionQueue, Vec<QueuePair>)>,
}

/// How many threads there are, and queue pairs of each.
#[derive(Clone, Copy)]
struct Shape {
    threads: usize,
    each: usize,
    rounds: usize,
}

impl Side {
    fn new(device: Device, pd: ProtectionDomain, shape: Shape) -> Self {
        let threads = (0..shape.threads).map(|_| {
            let cq = device.cq_create(64 * shape.each as u32).unwrap();
            let qps = (0..shape.each).map(|_| {
                let mut init = QpInit::srd(&cq, &cq);
                (init.sq_depth, init.rq_depth) = (16, 16);
                let qp = pd.qp_create(&init).unwrap();
                qp.activate(QKEY).unwrap();
                qp
            });
            let qps = qps.collect();
            (cq, qps)
        });
        let threads = threads.collect();
        Self { device, pd, threads }
    }

    fn shards_used(&self) -> usize {
        let qps = self.threads.iter().flat_map(|(_, qps)| qps);
        qps.map(|qp| qp.qpn().slot()).collect::<HashSet<u8>>().len()
    }
}

/// What a sender needs to know of a peer.
struct Target<'a> {
    side: &'a Side,
    memory: &'a MemoryRegion,
}

/// Number that makes the data of each operation different.
fn seed(thread: usize, qp: usize, round: usize) -> usize {
    (thread * 64 + qp) * 1024 + round
}

/// One thread that sends, writes and reads through its queue pairs, to those of the peer's thread
/// of the same number and others; everything is checked.
fn drive(side: &Side, thread: usize, shape: Shape, ah: &AddressHandle, to: &Target<'_>) {
    let (cq, qps) = &side.threads[thread];
    let local = side.pd.mr_allocate(shape.each * 3 * RDMA_BYTES, ALL_ACCESS).unwrap();
    let part = |qp: usize, kind: usize| (qp * 3 + kind) * RDMA_BYTES;
    for round in 0..shape.rounds {
        let mut left = 0;
        for (i, qp) in qps.iter().enumerate() {
            // Another queue pair of the same thread of the peer each round, mostly another shard.
            let dst = &to.side.threads[thread].1[(i + round) % shape.each];
            let seed = seed(thread, i, round);
            local.write_at(part(i, 0), &data(seed, SEND_BYTES)).unwrap();
            local.write_at(part(i, 1), &data(seed + 1, RDMA_BYTES)).unwrap();
            let sges = [local.sge(part(i, 0), SEND_BYTES as u32)];
            let send = SendWr::send(0, ah, dst.qpn(), QKEY).imm(seed as u32).sges(&sges);
            qp.post_send(&send).unwrap();
            let there = to.memory.addr() + ((thread * shape.each + i) * RDMA_BYTES) as u64;
            let sges = [local.sge(part(i, 1), RDMA_BYTES as u32)];
            let write = SendWr::write(1 + i as u64, ah, dst.qpn(), QKEY);
            qp.post_send(&write.remote(there, to.memory.rkey()).sges(&sges)).unwrap();
            left += 2;
        }
        while left > 0 {
            let wc = next(cq);
            assert_eq!(wc.status, Status::Ok, "{wc:?}");
            left -= 1;
            if wc.op != CompletionOp::Write {
                continue;
            }
            // What was written is read back through another queue pair, that is, another shard.
            let i = wc.wr_id as usize - 1;
            let dst = &to.side.threads[thread].1[(i + 1) % shape.each];
            let there = to.memory.addr() + ((thread * shape.each + i) * RDMA_BYTES) as u64;
            let sges = [local.sge(part(i, 2), RDMA_BYTES as u32)];
            let read = SendWr::read(0, ah, dst.qpn(), QKEY);
            let read = read.remote(there, to.memory.rkey()).sges(&sges);
            qps[(i + 3) % shape.each].post_send(&read).unwrap();
            left += 1;
        }
        for i in 0..shape.each {
            let read = local.to_vec(part(i, 2), RDMA_BYTES).unwrap();
            assert!(read == data(seed(thread, i, round) + 1, RDMA_BYTES), "{thread} {i}");
        }
    }
}

/// One thread that receives what its queue pairs get, and checks it.
fn receive(side: &Side, thread: usize, shape: Shape) {
    let (cq, qps) = &side.threads[thread];
    let slot = |qp: usize, place: u64| (qp * 8 + place as usize) * SEND_BYTES;
    let memory = side.pd.mr_allocate(shape.each * 8 * SEND_BYTES, ALL_ACCESS).unwrap();
    let post = |qp: usize, place: u64| {
        let sges = [memory.sge(slot(qp, place), SEND_BYTES as u32)];
        qps[qp].post_recv(&RecvWr { wr_id: place, sges: &sges }).unwrap();
    };
    (0..shape.each).for_each(|qp| (0..8).for_each(|place| post(qp, place)));
    let mut seen = HashSet::new();
    for _ in 0..shape.each * shape.rounds {
        let wc = next(cq);
        assert_eq!((wc.status, wc.op), (Status::Ok, CompletionOp::Recv), "{wc:?}");
        let qp = qps.iter().position(|qp| qp.qpn() == wc.qpn).expect("a queue pair of ours");
        let seed = wc.imm.expect("immediate data") as usize;
        let bytes = memory.to_vec(slot(qp, wc.wr_id), SEND_BYTES).unwrap();
        assert!(bytes == data(seed, SEND_BYTES), "message {seed}");
        assert!(seen.insert(seed), "message {seed} came twice");
        post(qp, wc.wr_id);
    }
    let wanted = (0..shape.rounds)
        .flat_map(|round| (0..shape.each).map(move |qp| seed(thread, qp, round)))
        .collect::<HashSet<_>>();
    assert_eq!(seen, wanted);
}

/// Every thread of `a` sends to the threads of `b`, and `b` to `a`.
fn exchange(a: Device, b: Device, shape: Shape) {
    let pds = [a.pd_create().unwrap(), b.pd_create().unwrap()];
    let side = |i: usize| Side::new(pds[i].device().clone(), pds[i].clone(), shape);
    let sides = [side(0), side(1)];
    for side in &sides {
        let most = shape.threads * shape.each;
        assert_eq!(side.shards_used(), side.device.shard_count().min(most));
    }
    let bytes = shape.threads * shape.each * RDMA_BYTES;
    let memory = [0, 1].map(|i: usize| sides[i].pd.mr_allocate(bytes, ALL_ACCESS).unwrap());
    let ahs = [0, 1].map(|i: usize| sides[i].pd.ah_create(sides[1 - i].device.ip()).unwrap());
    // Receivers have queues of their own, so that each thread polls what is its own.
    let inboxes = [side(0), side(1)];
    thread::scope(|scope| {
        for i in [0, 1] {
            for thread in 0..shape.threads {
                let inbox = &inboxes[i];
                scope.spawn(move || receive(inbox, thread, shape));
                let (from, ah) = (&sides[i], &ahs[i]);
                let to = Target { side: &inboxes[1 - i], memory: &memory[1 - i] };
                scope.spawn(move || drive(from, thread, shape, ah, &to));
            }
        }
    });
    for side in &sides {
        assert_eq!(side.device.event_get(), None);
    }
}

#[test]
fn eight_shards_serve_many_threads_on_both_sides() {
    let shape = Shape { threads: 4, each: 8, rounds: 12 };
    exchange(device(8, THREAD), device(8, THREAD), shape);
}

#[test]
fn two_hundred_and_fifty_six_queue_pairs_from_sixteen_threads() {
    // Half of them send, half receive.
    let shape = Shape { threads: 8, each: 16, rounds: 3 };
    exchange(device(8, THREAD), device(2, THREAD), shape);
}

#[test]
fn polling_threads_drive_the_shards_of_their_queues() {
    let shape = Shape { threads: 2, each: 4, rounds: 8 };
    exchange(device(3, SHARED), device(2, SHARED), shape);
}

#[test]
fn a_device_of_one_shard_and_one_of_eight_understand_each_other() {
    let shape = Shape { threads: 2, each: 8, rounds: 6 };
    exchange(device(1, THREAD), device(8, THREAD), shape);
    exchange(device(8, SHARED), device(1, SHARED), shape);
}

#[test]
fn sealed_devices_have_shards_too() {
    let folder = Folder::new();
    let open = |shards: u16, key: &Path| {
        let mut config = config(shards, THREAD);
        config.key_file = Some(key.to_owned());
        Device::open(config).unwrap()
    };
    let key = folder.key("key");
    let (a, b) = (open(4, &key), open(2, &key));
    exchange(a.clone(), b.clone(), Shape { threads: 2, each: 6, rounds: 5 });
    let seal = b.seal().unwrap().expect("it seals");
    assert!(seal.counters.sealed > 100 && seal.counters.plain == 0, "{seal:?}");
    assert!(a.seal().unwrap().unwrap().counters.handshakes > 1, "one for each pair of shards");
}

/// One completion queue gets the completions of all queue pairs, while other threads poll it, too.
#[test]
fn threads_share_a_completion_queue_of_all_shards() {
    const EACH: usize = 120;
    let (a, b) = (device(8, THREAD), device(4, THREAD));
    let (pd_a, pd_b) = (a.pd_create().unwrap(), b.pd_create().unwrap());
    let (cq_a, cq_b) = (a.cq_create(4096).unwrap(), b.cq_create(4096).unwrap());
    let qp = |pd: &ProtectionDomain, cq| {
        let qp = pd.qp_create(&QpInit::srd(cq, cq)).unwrap();
        qp.activate(QKEY).unwrap();
        qp
    };
    let from: Vec<_> = (0..8).map(|_| qp(&pd_a, &cq_a)).collect();
    let to: Vec<_> = (0..4).map(|_| qp(&pd_b, &cq_b)).collect();
    let memory = pd_b.mr_allocate(64, ALL_ACCESS).unwrap();
    for qp in &to {
        for _ in 0..2 * EACH {
            qp.post_recv(&RecvWr { wr_id: 0, sges: &[memory.sge(0, 64)] }).unwrap();
        }
    }
    let ah = pd_a.ah_create(b.ip()).unwrap();
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let total = from.len() * EACH;
    thread::scope(|scope| {
        for (i, qp) in from.iter().enumerate() {
            let (to, ah) = (&to[i % 4], &ah);
            scope.spawn(move || {
                for n in 0..EACH as u64 {
                    qp.post_send(&SendWr::send(n, ah, to.qpn(), QKEY).inline(b"x")).unwrap();
                }
            });
        }
        for (cq, count) in [(&cq_a, &sent), (&cq_b, &received)] {
            for _ in 0..3 {
                scope.spawn(move || {
                    let deadline = Instant::now() + PATIENCE;
                    while count.load(Ordering::Relaxed) < total {
                        assert!(Instant::now() < deadline, "{count:?} of {total}");
                        if let Some(wc) = cq.wait(Duration::from_millis(5)).unwrap() {
                            wc.ok().unwrap();
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        }
    });
    assert_eq!((sent.into_inner(), received.into_inner()), (total, total));
    assert!(cq_a.poll_one().unwrap().is_none() && cq_b.poll_one().unwrap().is_none());
}

/// A thread that sleeps on a channel misses no completion, whatever shard it comes from.
#[test]
fn events_come_from_every_shard() {
    let (a, b) = (device(2, THREAD), device(4, SHARED));
    let (pd_a, pd_b) = (a.pd_create().unwrap(), b.pd_create().unwrap());
    let channel = b.channel_create().unwrap();
    let init = CqInit { depth: 64, channel: Some(&channel), context: 7 };
    let (cq_a, cq_b) = (a.cq_create(64).unwrap(), b.cq_create_ex(&init).unwrap());
    let from = pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a)).unwrap();
    from.activate(QKEY).unwrap();
    let to: Vec<_> = (0..4).map(|_| pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b)).unwrap()).collect();
    to.iter().for_each(|qp| qp.activate(QKEY).unwrap());
    let ah = pd_a.ah_create(b.ip()).unwrap();
    for round in 0..100 {
        let qp = &to[round % 4];
        qp.post_recv(&RecvWr { wr_id: round as u64, sges: &[] }).unwrap();
        cq_b.req_notify().unwrap();
        from.post_send(&SendWr::send(0, &ah, qp.qpn(), QKEY)).unwrap();
        let event = channel.get(Some(PATIENCE)).unwrap().expect("an event in time");
        assert_eq!((event.cq, event.context), (cq_b.id(), 7));
        let wc = cq_b.poll_one().unwrap().expect("a completion comes before its event");
        assert_eq!((wc.wr_id, wc.qpn), (round as u64, qp.qpn()));
        next(&cq_a).ok().unwrap();
    }
}

/// Regions, keys and address handles are the device's: every shard knows them, and forgets them.
#[test]
fn every_shard_knows_regions_and_handles_and_forgets_them() {
    let (a, b) = (device(1, THREAD), device(4, THREAD));
    let (pd_a, pd_b) = (a.pd_create().unwrap(), b.pd_create().unwrap());
    let (cq_a, cq_b) = (a.cq_create(64).unwrap(), b.cq_create(64).unwrap());
    let from = pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a)).unwrap();
    from.activate(QKEY).unwrap();
    let to: Vec<_> = (0..8).map(|_| pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b)).unwrap()).collect();
    to.iter().for_each(|qp| qp.activate(QKEY).unwrap());
    let slots: HashSet<u8> = to.iter().map(|qp| qp.qpn().slot()).collect();
    assert_eq!(slots.len(), 4, "queue pairs are spread over the shards");
    let ah = pd_a.ah_create(b.ip()).unwrap();
    let local = pd_a.mr_allocate(64, ALL_ACCESS).unwrap();
    let write = |qp: &QueuePair, memory: (u64, RKey)| {
        let sges = [local.sge(0, 64)];
        let write = SendWr::write(0, &ah, qp.qpn(), QKEY).remote(memory.0, memory.1);
        from.post_send(&write.sges(&sges)).unwrap();
        next(&cq_a).status
    };
    let mut stale = Vec::new();
    for round in 0..5 {
        let handles: Vec<_> = (0..=round).map(|_| pd_b.ah_create(a.ip()).unwrap()).collect();
        let memory = pd_b.mr_allocate(64, ALL_ACCESS).unwrap();
        let at = (memory.addr(), memory.rkey());
        assert_eq!(memory.lkey().0, memory.rkey().0);
        for (i, qp) in to.iter().enumerate() {
            local.write_at(0, &data(round * 8 + i, 64)).unwrap();
            assert_eq!(write(qp, at), Status::Ok);
            assert_eq!(memory.to_vec(0, 64).unwrap(), data(round * 8 + i, 64));
        }
        // A peer without a handle may use no RDMA, and messages do not name it.
        drop(handles);
        assert!(to.iter().all(|qp| write(qp, at) != Status::Ok));
        let handle = pd_b.ah_create(a.ip()).unwrap();
        for qp in &to {
            qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
            from.post_send(&SendWr::send(0, &ah, qp.qpn(), QKEY)).unwrap();
            assert_eq!((next(&cq_a).status, next(&cq_b).src_ah), (Status::Ok, handle.id()));
        }
        memory.deregister();
        stale.push(at);
        for &at in &stale {
            assert!(to.iter().all(|qp| write(qp, at) == Status::RemoteBadAddress));
        }
    }
    assert_eq!(b.counters().unwrap().engine.rkey_guesses, 0, "stale keys are no guesses");
}

/// A receive or send whose memory is deregistered ends, whatever shard has it.
#[test]
fn requests_of_all_shards_end_with_their_memory() {
    let (a, b) = (device(4, THREAD), device(1, THREAD));
    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(64).unwrap());
    let qps: Vec<_> = (0..4).map(|_| pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap()).collect();
    qps.iter().for_each(|qp| qp.activate(QKEY).unwrap());
    let memory = pd.mr_allocate(64, ALL_ACCESS).unwrap();
    // B has no receive, so that the sends go on.
    let (pd_b, cq_b) = (b.pd_create().unwrap(), b.cq_create(4).unwrap());
    let quiet = pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b)).unwrap();
    quiet.activate(QKEY).unwrap();
    let ah = pd.ah_create(b.ip()).unwrap();
    for qp in &qps {
        let sges = [memory.sge(0, 64)];
        qp.post_send(&SendWr::send(3, &ah, quiet.qpn(), QKEY).sges(&sges)).unwrap();
    }
    thread::sleep(Duration::from_millis(20));
    memory.deregister();
    for _ in &qps {
        let wc = next(&cq);
        assert_eq!((wc.wr_id, wc.status), (3, Status::LocalInvalidLkey));
    }
}

#[test]
fn a_device_has_as_many_queue_pairs_as_all_its_shards() {
    let a = device(2, THREAD);
    assert_eq!(a.attr().max_qp, 512);
    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(4).unwrap());
    let mut init = QpInit::srd(&cq, &cq);
    (init.sq_depth, init.rq_depth) = (1, 1);
    let qps: Vec<_> = (0..512).map(|_| pd.qp_create(&init).unwrap()).collect();
    let numbers: HashSet<_> = qps.iter().map(|qp| qp.qpn()).collect();
    assert_eq!(numbers.len(), 512);
    assert!(matches!(pd.qp_create(&init), Err(Error::NoRoom(_))));
}

/// Each shard's engine has a table of requests of its own.
#[test]
fn lists_of_requests_find_the_room_of_their_own_shard() {
    const ROOM: u32 = 16;
    let mut config = config(2, THREAD);
    config.tune = Some(Box::new(|engine| engine.wrs_max = ROOM));
    let a = Device::open(config).unwrap();
    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(512).unwrap());
    let mut init = QpInit::srd(&cq, &cq);
    init.sq_depth = ROOM;
    let qps: Vec<_> = (0..6).map(|_| pd.qp_create(&init).unwrap()).collect();
    qps.iter().for_each(|qp| qp.activate(QKEY).unwrap());
    let slot = |qp: &QueuePair| qp.qpn().0 >> 8;
    // Nobody is there, so that requests stay.
    let ah = pd.ah_create(std::net::IpAddr::from([127, 9, 9, 9])).unwrap();
    let wr = SendWr::send(1, &ah, srd::Qpn(1), QKEY);
    for full in [slot(&qps[0]), slot(&qps[1])] {
        let (these, others): (Vec<_>, Vec<_>) = qps.iter().partition(|qp| slot(qp) == full);
        assert_eq!((these.len(), others.len()), (3, 3));
        let two = |qp: &QueuePair| qp.enqueue_sends([wr; 2].into_iter(), Faults::AtPost);
        for _ in 0..ROOM / 2 {
            two(these[0]).unwrap();
        }
        assert_eq!(two(these[1]), Err(PostError::NoRoom), "as many as the table has");
        if others[0].sends_outstanding() == 0 {
            two(others[0]).unwrap();
            others[0].modify(to(srd::QpState::Reset)).unwrap();
            others[0].activate(QKEY).unwrap();
        }
    }
}

fn to(state: srd::QpState) -> srd::QpModify {
    srd::QpModify { state: Some(state), ..srd::QpModify::default() }
}

#[test]
fn a_failed_device_fails_in_all_shards() {
    for panics in [false, true] {
        let (a, b) = (device(4, THREAD), device(1, THREAD));
        let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(64).unwrap());
        let qps: Vec<_> = (0..8).map(|_| pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap()).collect();
        for qp in &qps {
            qp.activate(QKEY).unwrap();
            qp.post_recv(&RecvWr { wr_id: 5, sges: &[] }).unwrap();
        }
        let ah = pd.ah_create(b.ip()).unwrap();
        if panics {
            let other = a.clone();
            assert!(thread::spawn(move || other.panic_on_purpose()).join().is_err());
        } else {
            a.fail();
        }
        let deadline = Instant::now() + PATIENCE;
        while !a.has_failed() {
            assert!(Instant::now() < deadline, "the other shards go on");
            thread::sleep(Duration::from_millis(1));
        }
        let mut ended = HashSet::new();
        for _ in &qps {
            let wc = cq.poll_one().unwrap().expect("it was there before the device had failed");
            assert_eq!((wc.wr_id, wc.status), (5, Status::LocalQpInternalError));
            ended.insert(wc.qpn);
        }
        assert_eq!(ended.len(), 8);
        assert!(matches!(cq.poll_one(), Err(Error::Closed)));
        assert_eq!(a.event_get(), Some(AsyncEvent::DeviceFatal));
        assert_eq!(a.event_get(), None, "told once");
        let send = SendWr::send(0, &ah, qps[1].qpn(), QKEY);
        assert!(qps.iter().all(|qp| qp.post_send(&send) == Err(PostError::Closed)));
        assert!(matches!(a.pd_create(), Err(Error::Closed)));
    }
}

/// Peers learn at once that a device with many shards has closed.
#[test]
fn closing_tells_the_peers_of_every_shard() {
    let (a, b) = (device(4, THREAD), device(2, THREAD));
    let (pd_a, pd_b) = (a.pd_create().unwrap(), b.pd_create().unwrap());
    let (cq_a, cq_b) = (a.cq_create(64).unwrap(), b.cq_create(64).unwrap());
    let from: Vec<_> =
        (0..4).map(|_| pd_a.qp_create(&QpInit::srd(&cq_a, &cq_a)).unwrap()).collect();
    let to: Vec<_> = (0..4).map(|_| pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b)).unwrap()).collect();
    from.iter().chain(&to).for_each(|qp| qp.activate(QKEY).unwrap());
    let ah = pd_a.ah_create(b.ip()).unwrap();
    for (from, to) in from.iter().zip(&to) {
        to.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
        from.post_send(&SendWr::send(0, &ah, to.qpn(), QKEY)).unwrap();
        next(&cq_a).ok().unwrap();
    }
    let contexts = || b.context_stats().unwrap().len();
    assert_eq!(contexts(), 4, "one for each pair of engines that talk");
    a.close();
    assert!(matches!(cq_a.poll_one(), Err(Error::Closed)));
    let deadline = Instant::now() + PATIENCE;
    while contexts() > 0 {
        assert!(Instant::now() < deadline, "{} contexts left", contexts());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn where_shards_make_no_sense_there_is_one() {
    let alone = Device::open(config(4, Progress::Caller)).unwrap();
    let mut wrapped = config(4, THREAD);
    wrapped.wrap = Some(Box::new(|datapath| datapath));
    let wrapped = Device::open(wrapped).unwrap();
    assert_eq!((alone.shard_count(), wrapped.shard_count()), (1, 1));
    for shards in [0, 65] {
        let error = Device::open(config(shards, THREAD)).unwrap_err().to_string();
        assert!(error.contains("from 1 to 64"), "{error}");
    }
    // The slot that is asked for, and the next ones that are free.
    let mut first = config(3, THREAD);
    (first.slot, first.port_base) = (Some(254), 28_700);
    let a = Device::open(first).unwrap();
    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(4).unwrap());
    let qps: Vec<_> = (0..3).map(|_| pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap()).collect();
    let slots: Vec<u8> = qps.iter().map(|qp| qp.qpn().slot()).collect();
    assert_eq!((slots, a.slot()), (vec![254, 255, 0], 254));
}

/// Objects come and go in many threads while others send: every shard has them in the same order.
#[test]
fn objects_come_and_go_in_many_threads() {
    let (a, b) = (device(4, THREAD), device(2, THREAD));
    let (pd_b, cq_b) = (b.pd_create().unwrap(), b.cq_create(64).unwrap());
    let target = pd_b.qp_create(&QpInit::srd(&cq_b, &cq_b)).unwrap();
    target.activate(QKEY).unwrap();
    let memory = Arc::new(pd_b.mr_allocate(4096, ALL_ACCESS).unwrap());
    let _back = pd_b.ah_create(a.ip()).unwrap();
    thread::scope(|scope| {
        for n in 0..6_usize {
            let (a, b, memory, target) = (&a, &b, &memory, &target);
            scope.spawn(move || {
                for round in 0..25 {
                    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(16).unwrap());
                    let qps = [0, 1].map(|_| pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap());
                    let ah = pd.ah_create(b.ip()).unwrap();
                    let local = pd.mr_allocate(512, ALL_ACCESS).unwrap();
                    local.write_at(0, &data(n * 100 + round, 512)).unwrap();
                    for qp in &qps {
                        qp.activate(QKEY).unwrap();
                        let sges = [local.sge(0, 512)];
                        let to = memory.addr() + 512 * n as u64;
                        let write = SendWr::write(9, &ah, target.qpn(), QKEY);
                        qp.post_send(&write.remote(to, memory.rkey()).sges(&sges)).unwrap();
                        next(&cq).ok().unwrap();
                    }
                    let there = memory.to_vec(512 * n, 512).unwrap();
                    assert_eq!(there, data(n * 100 + round, 512));
                }
            });
        }
    });
}
