//! Objects that go away while they are used, restarts, fork.

use crate::common;
use crate::common::{MemWorld, Node, PATIENCE, QKEY, THREAD, loopback_pair, mem_pair, pattern};
use srd::{
    Access, AsyncEvent, CompletionOp, CqInit, Device, DeviceConfig, Error, PostError, Progress,
    QpInit, QpModify, QpState, RecvWr, SendWr, Status, datapath::fault::Rates,
};
use std::{
    os::fd::AsRawFd,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

#[test]
fn destroying_a_queue_pair_leaves_the_others_alone() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(1000, progress);
        let (a, b) = (Node::with(a, 300, |_| {}), Node::new(b));
        let ah = a.ah_to(&b);
        let victim = a.pd.qp_create(&QpInit::srd(&a.cq, &a.cq)).unwrap();
        victim.activate(QKEY).unwrap();
        let m = a.memory(1000);
        for i in 0..100 {
            // Nobody has posted a receive: all are outstanding for ever.
            let sges = [m.sge(0, 1000)];
            victim.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY).sges(&sges)).unwrap();
            victim.post_recv(&RecvWr { wr_id: 1000 + i, sges: &[m.sge(0, 100)] }).unwrap();
        }
        a.qp.post_send(&SendWr::send(500, &ah, b.qp.qpn(), QKEY).inline(b"survivor")).unwrap();
        a.assert_quiet(&b);
        drop(victim);
        drop(m);
        let to = b.memory(1000);
        // Copies of the victim's messages may still be on their way, and each takes a receive.
        for i in 0..101 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[to.sge(0, 1000)] }).unwrap();
        }
        let wc = a.next(&b);
        assert_eq!((wc.wr_id, wc.status), (500, Status::Ok));
        a.assert_quiet(&b);
        // All slots of the completion queue are free again.
        for i in 0..256 {
            a.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
        }
        for i in 0..44 {
            a.qp.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY)).unwrap();
        }
        let full = a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY));
        assert_eq!(full, Err(PostError::CqFull));
    }
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_gone() {
    let (a, b) = mem_pair(1000, THREAD);
    let (a, b) = (Node::with(a, 64, |_| {}), Node::new(b));
    let ah = a.ah_to(&b);
    let second = a.pd.qp_create(&QpInit::srd(&a.cq, &a.cq)).unwrap();
    second.activate(QKEY).unwrap();
    for _ in 0..20 {
        b.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    }
    for i in 0..10 {
        a.qp.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY)).unwrap();
        second.post_send(&SendWr::send(100 + i, &ah, b.qp.qpn(), QKEY)).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while a.qp.sends_outstanding() + second.sends_outstanding() > 0 {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    drop(second);
    let left = a.next_n(&b, 10);
    assert!(left.iter().all(|wc| wc.wr_id < 10 && wc.is_ok()));
    a.assert_quiet(&b);
}

#[test]
fn a_deregistered_region_ends_its_requests_and_is_touched_no_more() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(1000, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let (ah, to_a) = (a.ah_to(&b), b.ah_to(&a));
        let (gone, stays) = (a.memory(1000), a.memory(1000));
        let to = b.memory(1000);
        // No receive is posted: these wait.
        for i in 0..10 {
            let m = if i % 2 == 0 { &gone } else { &stays };
            let sges = [m.sge(0, 500)];
            a.qp.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY).sges(&sges)).unwrap();
        }
        a.qp.post_recv(&RecvWr { wr_id: 50, sges: &[gone.sge(0, 1000)] }).unwrap();
        a.assert_quiet(&b);
        let (lkey, rkey, addr) = (gone.lkey(), gone.rkey(), gone.addr());
        gone.deregister();
        for wc in a.next_n(&b, 5) {
            assert_eq!((wc.wr_id % 2, wc.status), (0, Status::LocalInvalidLkey));
        }
        let sge = srd::Sge { addr, len: 8, lkey };
        let wr = SendWr::send(99, &ah, b.qp.qpn(), QKEY);
        assert_eq!(a.qp.post_send(&wr.sges(&[sge])), Err(PostError::BadLkey));
        // A copy of each that is gone may still be under way, and takes a receive, too.
        for i in 0..10 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[to.sge(0, 1000)] }).unwrap();
        }
        for wc in a.next_n(&b, 5) {
            assert_eq!((wc.wr_id % 2, wc.status), (1, Status::Ok));
        }
        // What `b` has sent next, after all that it has received.
        let sent = || {
            loop {
                let wc = b.next(&a);
                if wc.op != CompletionOp::Recv {
                    return wc;
                }
                assert!(wc.is_ok(), "{wc:?}");
            }
        };
        // A message for the receive that lost its memory: the receiver learns why.
        b.qp.post_send(&SendWr::send(7, &to_a, a.qp.qpn(), QKEY).inline(b"into nothing")).unwrap();
        let wc = a.next(&b);
        assert_eq!((wc.wr_id, wc.status), (50, Status::LocalInvalidLkey));
        // The old key is worth nothing to peers.
        let wr = SendWr::write(8, &to_a, a.qp.qpn(), QKEY).inline(b"12345678");
        assert_eq!(sent().status, Status::Ok);
        b.qp.post_send(&wr.remote(addr, rkey)).unwrap();
        assert_eq!(sent().status, Status::RemoteBadAddress);
    }
}

#[test]
fn memory_of_a_dropped_region_is_never_written_by_late_packets() {
    let world = MemWorld::new(1000);
    let rates = Rates {
        duplicate_ppm: 200_000,
        reorder_ppm: 300_000,
        reorder_packets_max: 64,
        ..Rates::default()
    };
    let (a, _) = world.faulty(1, THREAD, rates);
    let (b, _) = world.faulty(2, THREAD, rates);
    let (a, b) = (Node::new(a), Node::new(b));
    let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let from = a.memory(200_000);
    from.write_at(0, &pattern(200_000, 1)).unwrap();
    let mut backing = vec![0_u8; 200_000];
    for round in 0..20 {
        // SAFETY: the vector outlives the region, and is not used while the region is there.
        let there =
            unsafe { b.pd.mr_register(backing.as_mut_ptr(), 200_000, Access::ALL) }.unwrap();
        let wr = SendWr::write(round, &to_b, b.qp.qpn(), QKEY);
        a.qp.post_send(&wr.remote(there.addr(), there.rkey()).sges(&[from.sge(0, 200_000)]))
            .unwrap();
        std::thread::sleep(Duration::from_micros(200 * round));
        there.deregister();
        let before = backing.clone();
        let status = a.next(&b).status;
        assert!(matches!(status, Status::Ok | Status::RemoteBadAddress), "{status:?}");
        assert!(backing == before, "written after the deregistration");
        backing.fill(0);
    }
}

#[test]
fn dropping_an_address_handle_ends_its_requests() {
    let (a, b) = mem_pair(1000, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let (gone, stays) = (a.ah_to(&b), a.ah_to(&b));
    a.qp.post_send(&SendWr::send(1, &gone, b.qp.qpn(), QKEY)).unwrap();
    a.qp.post_send(&SendWr::send(2, &stays, b.qp.qpn(), QKEY)).unwrap();
    a.assert_quiet(&b);
    drop(gone);
    let wc = a.next(&b);
    assert_eq!((wc.wr_id, wc.status), (1, Status::LocalInvalidAh));
    for _ in 0..2 {
        b.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    }
    let wc = a.next(&b);
    assert_eq!((wc.wr_id, wc.status), (2, Status::Ok));
}

#[test]
fn a_queue_pair_in_error_flushes_and_in_reset_forgets() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(1000, progress);
        let (a, b) = (Node::with(a, 64, |_| {}), Node::new(b));
        let ah = a.ah_to(&b);
        let fill = || {
            for i in 0..10 {
                a.qp.post_send(&SendWr::send(i, &ah, b.qp.qpn(), QKEY)).unwrap();
                a.qp.post_recv(&RecvWr { wr_id: 100 + i, sges: &[] }).unwrap();
            }
        };
        let to = |state| QpModify { state: Some(state), ..QpModify::default() };
        fill();
        a.qp.modify(to(QpState::Err)).unwrap();
        let flushed = a.next_n(&b, 20);
        assert!(flushed.iter().all(|wc| wc.status == Status::Flushed));
        a.qp.modify(to(QpState::Reset)).unwrap();
        a.qp.activate(QKEY).unwrap();
        fill();
        a.qp.modify(to(QpState::Reset)).unwrap();
        a.assert_quiet(&b);
        a.qp.activate(QKEY).unwrap();
        assert_eq!(a.qp.sends_outstanding() + a.qp.recvs_outstanding(), 0);
        for i in 0..64 {
            a.qp.post_recv(&RecvWr { wr_id: i, sges: &[] }).unwrap();
        }
        assert_eq!(a.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }), Err(PostError::CqFull));
    }
}

#[test]
fn a_restarted_peer_ends_old_work_and_takes_new() {
    let world = MemWorld::new(1000);
    let a = Node::new(world.device(1, THREAD));
    let ah = a.pd.ah_create("10.0.0.2".parse().unwrap()).unwrap();
    let (device, network) = world.faulty(2, THREAD, Rates::default());
    let first = Node::new(device);
    let qpn = first.qp.qpn();
    first.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, qpn, QKEY)).unwrap();
    assert!(a.next(&first).is_ok());
    a.qp.post_send(&SendWr::send(2, &ah, qpn, QKEY)).unwrap();
    a.assert_quiet(&first);
    // Killed: no goodbye reaches anybody.
    network.tx_off(true);
    network.rx_off(true);
    drop(first);

    let second = Node::new(world.device(2, THREAD));
    let wc = a.next(&second);
    assert_eq!((wc.wr_id, wc.status), (2, Status::RemoteAbort));
    let reset = |e| matches!(e, AsyncEvent::PeerReset(_));
    assert!(std::iter::from_fn(|| a.device.event_get()).any(reset));
    let m = second.memory(64);
    second.qp.post_recv(&RecvWr { wr_id: 1, sges: &[m.sge(0, 64)] }).unwrap();
    a.qp.post_send(&SendWr::send(3, &ah, second.qp.qpn(), QKEY).inline(b"new life")).unwrap();
    assert!(a.next(&second).is_ok());
    assert_eq!(second.next(&a).byte_len, 8);
    second.assert_quiet(&a);
}

#[test]
fn closing_acknowledges_what_has_arrived() {
    for progress in [Progress::Caller, THREAD] {
        for _ in 0..20 {
            let (a, b) = loopback_pair(1400, THREAD);
            drop(b);
            let mut config = srd::DeviceConfig::loopback();
            config.progress = progress;
            let (a, b) = (Node::new(a), Node::new(Device::open(config).unwrap()));
            let ah = a.ah_to(&b);
            b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
            a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY)).unwrap();
            assert!(b.cq.wait(PATIENCE).unwrap().expect("a message").is_ok());
            drop(b);
            assert_eq!(a.next(&a).status, Status::Ok, "it was accepted");
        }
    }
}

#[test]
fn two_hundred_queue_pairs_reach_each_other() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = loopback_pair(1400, progress);
        let make = |device: &Device| {
            let pd = device.pd_create().unwrap();
            let cq = device.cq_create(1000).unwrap();
            let qps: Vec<_> = (0..200)
                .map(|_| {
                    let init = QpInit { sq_depth: 4, rq_depth: 4, ..QpInit::srd(&cq, &cq) };
                    let qp = pd.qp_create(&init).unwrap();
                    qp.activate(QKEY).unwrap();
                    qp
                })
                .collect();
            (pd, cq, qps)
        };
        let (pd_a, cq_a, qps_a) = make(&a);
        let (_pd_b, cq_b, qps_b) = make(&b);
        let ah = pd_a.ah_create(b.ip()).unwrap();
        for (i, (x, y)) in qps_a.iter().zip(qps_b.iter().rev()).enumerate() {
            y.post_recv(&RecvWr { wr_id: i as u64, sges: &[] }).unwrap();
            let wr = SendWr::send(i as u64, &ah, y.qpn(), QKEY).imm(i as u32);
            x.post_send(&wr).unwrap();
        }
        let (mut sent, mut received) = (0, 0);
        let end = Instant::now() + PATIENCE;
        while sent < 200 || received < 200 {
            assert!(Instant::now() < end, "{sent} sent, {received} received");
            if let Some(wc) = cq_a.poll_one().unwrap() {
                wc.ok().unwrap();
                sent += 1;
            }
            if let Some(wc) = cq_b.poll_one().unwrap() {
                wc.ok().unwrap();
                assert_eq!(wc.imm, Some(wc.wr_id as u32));
                received += 1;
            }
        }
    }
}

#[test]
fn an_armed_queue_makes_one_event() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(1000, progress);
        let a = Node::new(a);
        let pd = b.pd_create().unwrap();
        let channel = b.channel_create().unwrap();
        let init = CqInit { depth: 16, channel: Some(&channel), context: 4711 };
        let cq = b.cq_create_ex(&init).unwrap();
        let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(QKEY).unwrap();
        let ah = a.pd.ah_create(b.ip()).unwrap();
        for _ in 0..4 {
            qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
        }
        cq.req_notify().unwrap();
        assert_eq!(channel.get(Some(Duration::from_millis(20))).unwrap(), None);
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                for _ in 0..2 {
                    a.qp.post_send(&SendWr::send(1, &ah, qp.qpn(), QKEY)).unwrap();
                    assert!(a.cq.wait(PATIENCE).unwrap().unwrap().is_ok());
                }
            });
            let event = channel.get(Some(PATIENCE)).unwrap().expect("an event");
            assert_eq!((event.cq, event.context), (cq.id(), 4711));
            for _ in 0..2 {
                assert!(cq.wait(PATIENCE).unwrap().unwrap().is_ok());
            }
            for _ in 0..20 {
                b.wait(Some(Duration::from_millis(1))).unwrap();
            }
        });
        assert_eq!(channel.try_get(), None, "armed once, one event");
        assert!(channel.as_raw_fd() >= 0);
        let unarmed = a.cq.req_notify();
        assert!(matches!(unarmed, Err(Error::Invalid(_))), "no channel");
    }
}

#[test]
fn an_idle_device_sleeps() {
    let (a, b) = loopback_pair(1400, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    std::thread::sleep(Duration::from_millis(700));
    let before = (a.device.counters().unwrap().turns, b.device.counters().unwrap().turns);
    std::thread::sleep(Duration::from_millis(300));
    let after = (a.device.counters().unwrap().turns, b.device.counters().unwrap().turns);
    let (x, y) = (after.0 - before.0, after.1 - before.1);
    assert!(x < 200 && y < 200, "{x} and {y} turns in 300 ms of silence");
}

#[test]
fn a_forked_child_has_no_device_and_does_no_harm() {
    forked_child(1);
    forked_child(3);
}

fn forked_child(shards: u16) {
    let open = || {
        let mut config = DeviceConfig::loopback();
        (config.progress, config.shards, config.paths) = (THREAD, shards, 4);
        Node::new(Device::open(config).unwrap())
    };
    let (a, b) = (open(), open());
    let ah = a.ah_to(&b);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    // SAFETY: the child calls nothing but code of this crate that takes no lock, and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let wr = SendWr::send(1, &ah, b.qp.qpn(), QKEY);
        let refused = a.qp.post_send(&wr) == Err(PostError::Forked)
            && a.device.progress() == Err(Error::Forked)
            && a.cq.poll(&mut [srd::WorkCompletion::default()]) == Err(Error::Forked)
            && matches!(a.device.pd_create(), Err(Error::Forked));
        drop((a, b, ah));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was not refused");
    // The parent's contexts are untouched.
    b.qp.post_recv(&RecvWr { wr_id: 2, sges: &[] }).unwrap();
    a.qp.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY)).unwrap();
    assert!(a.next(&b).is_ok());
    assert_eq!(b.device.counters().unwrap().engine.resets_received, 0);
}

/// A thread of the parent may be in the middle of anything at the moment of a `fork`, and never
/// ends it in the child.
#[test]
fn a_future_is_dropped_in_a_forked_child() {
    use std::{
        future::Future,
        pin::{Pin, pin},
        sync::atomic::{AtomicBool, Ordering},
        task::{Context, Waker},
    };
    let device = Device::open(DeviceConfig::loopback()).unwrap();
    let cq = device.cq_create(4).unwrap();
    let stop = AtomicBool::new(false);
    let poll = |future: Pin<&mut dyn Future<Output = Result<srd::WorkCompletion, Error>>>| {
        assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    poll(pin!(cq.next()));
                }
            });
        }
        let mut ends = Vec::new();
        for _ in 0..200 {
            let mut future = Box::pin(cq.next());
            poll(future.as_mut());
            // SAFETY: the child calls nothing but code of this crate that takes no lock, and _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a child that waits for ever is ended.
                unsafe { libc::alarm(10) };
                drop(future);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            ends.push(status);
            if status != 0 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(|status| *status == 0), "a child waited for a lock: {ends:?}");
    });
}

#[test]
fn regions_are_bounded_and_checked() {
    let (a, _b) = mem_pair(1000, THREAD);
    let pd = a.pd_create().unwrap();
    assert!(matches!(pd.mr_allocate(0, Access::NONE), Err(Error::Invalid(_))));
    assert!(matches!(pd.mr_allocate(8, Access::REMOTE_WRITE), Err(Error::Invalid(_))));
    let m = pd.mr_allocate(8, Access::NONE).unwrap();
    assert!(m.write_at(4, &[1; 5]).is_err() && m.to_vec(9, 0).is_err());
    assert!(m.to_vec(8, 0).unwrap().is_empty());
    assert!(pd.in_use());
    drop(m);
    assert!(!pd.in_use());
}

#[test]
fn who_goes_away_delivers_and_acknowledges_first() {
    const LOSSY: Rates =
        Rates { loss_ppm: 300_000, ..Rates { reorder_ppm: 0, ..common::BAD_NETWORK } };
    const N: u64 = 40;
    let world = MemWorld::new(1000);
    for round in 0..4 {
        let a = Node::new(world.faulty(1, THREAD, Rates::default()).0);
        let b = Node::new(world.faulty(2, THREAD, LOSSY).0);
        let (to_b, to_a) = (a.ah_to(&b), b.ah_to(&a));
        let (at_a, at_b) = (a.memory(4000), b.memory(4000));
        for i in 0..N {
            a.qp.post_recv(&RecvWr { wr_id: 100 + i, sges: &[at_a.sge(0, 4000)] }).unwrap();
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[at_b.sge(0, 4000)] }).unwrap();
            a.qp.post_send(&SendWr::send(i, &to_b, b.qp.qpn(), QKEY).inline(b"there")).unwrap();
        }
        assert_eq!(b.next_n(&a, N as usize).len(), N as usize);
        for i in 0..N {
            b.qp.post_send(&SendWr::send(i, &to_a, a.qp.qpn(), QKEY).inline(b"back")).unwrap();
        }
        // All has arrived here, its acknowledgments perhaps not; the answers have just left.
        b.device.close();
        for _ in 0..2 * N {
            let wc = a.cq.wait(PATIENCE).unwrap().expect("in time");
            assert_eq!(wc.status, Status::Ok, "round {round}: {wc:?}");
        }
    }
}

/// A program that sleeps on a channel, or in an event loop on its descriptor, learns that what it
/// waits for does not come any more.
#[test]
fn a_device_that_is_closed_ends_receives_and_says_so() {
    for progress in [Progress::Caller, THREAD, Progress::Shared { idle: Duration::from_millis(1) }]
    {
        let (a, _b) = loopback_pair(1000, progress);
        let node = Node::new(a);
        let channel = node.device.channel_create().unwrap();
        let init = CqInit { depth: 4, channel: Some(&channel), context: 7 };
        let cq = node.device.cq_create_ex(&init).unwrap();
        let qp = node.pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
        qp.activate(QKEY).unwrap();
        (0..3).for_each(|n| qp.post_recv(&RecvWr::recv(n)).unwrap());
        cq.req_notify().unwrap();
        node.device.close();
        assert_eq!(channel.try_get().map(|event| event.context), Some(7), "{progress:?}");
        for n in 0..3 {
            let wc = cq.poll_one().unwrap().expect("a completion");
            assert_eq!((wc.wr_id, wc.status), (n, Status::Flushed));
        }
        assert_eq!(cq.poll_one().unwrap_err(), Error::Closed);
    }
}

/// A signal handler that calls `exit` closes the device in the middle of a turn of its thread; the
/// process then never ended. The watch of events is called in a turn, too.
#[test]
fn a_thread_that_holds_the_device_is_not_waited_for_by_itself() {
    for progress in [Progress::Caller, Progress::Shared { idle: Duration::from_millis(1) }] {
        let (told, heard) = std::sync::mpsc::channel();
        let own = Arc::new(OnceLock::<Device>::new());
        let theirs = Arc::clone(&own);
        let mut config = MemWorld::new(1000).config(1);
        config.progress = progress;
        config.tune = Some(Box::new(|engine| {
            engine.loss.unreachable_after = srd::Span::from_ms(50);
        }));
        config.watch = Some(Box::new(move |event| {
            if let (AsyncEvent::PeerUnreachable(_), Some(device)) = (event, theirs.get()) {
                let counters = device.counters().map(drop);
                device.close();
                let _ = told.send(counters);
            }
        }));
        // It is never dropped, as in a process that exits.
        std::thread::spawn(move || {
            let node = Node::new(Device::open(config).unwrap());
            own.set(node.device.clone()).unwrap();
            let nowhere = node.pd.ah_create([10, 0, 0, 9].into()).unwrap();
            node.qp.post_send(&SendWr::send(1, &nowhere, srd::Qpn(1), QKEY)).unwrap();
            while node.cq.poll_one().is_ok() {
                std::thread::yield_now();
            }
            std::mem::forget(node);
        });
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Err(Error::Closed)), "{progress:?}");
    }
}
