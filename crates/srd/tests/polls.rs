//! Polls that take the turn themselves: their completions skip the ring, and nothing else changes.

use crate::common::{ALL_ACCESS, MemWorld, Node, PATIENCE, QKEY};
use srd::{AddressHandle, CqInit, Progress, QpInit, RecvWr, SendWr, WorkCompletion};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

const WAYS: [Progress; 2] = [Progress::Caller, Progress::Shared { idle: Duration::from_millis(1) }];

/// Posts `n` messages and their receives.
fn post_all(from: &Node, to: &Node, ah: &AddressHandle, first: u64, n: u64) {
    for wr_id in first..first + n {
        to.qp.post_recv(&RecvWr::recv(wr_id)).unwrap();
        from.qp.post_send(&SendWr::send(wr_id, ah, to.qp.qpn(), QKEY)).unwrap();
    }
}

#[test]
fn what_waits_in_the_ring_comes_first_and_small_buffers_lose_nothing() {
    for progress in WAYS {
        let world = MemWorld::new(1500);
        let (a, b) = (Node::new(world.device(1, progress)), Node::new(world.device(2, progress)));
        let ah = a.ah_to(&b);
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let end = Instant::now() + PATIENCE;
        for round in 0..60_u64 {
            post_all(&a, &b, &ah, 3 * round, 3);
            if round % 2 == 1 {
                // These completions go to the rings.
                a.device.progress().unwrap();
                b.device.progress().unwrap();
            }
            // Buffers of each length, so that some turns complete more than fits.
            let mut out = vec![WorkCompletion::default(); 1 + round as usize % 5];
            let mut take = |node: &Node, all: &mut Vec<u64>| {
                let n = node.cq.poll(&mut out).unwrap();
                all.extend(out[..n].iter().map(|wc| wc.ok().unwrap().wr_id));
            };
            take(&a, &mut sent);
            take(&b, &mut received);
            while round == 59 && sent.len() + received.len() < 2 * 180 {
                take(&a, &mut sent);
                take(&b, &mut received);
                assert!(Instant::now() < end, "{} sent, {} received", sent.len(), received.len());
            }
        }
        // Receives are filled in order. A message that is sent again may end after later ones.
        sent.sort_unstable();
        assert_eq!(sent, (0..180).collect::<Vec<_>>(), "{progress:?}");
        assert_eq!(received, (0..180).collect::<Vec<_>>(), "{progress:?}");
        a.assert_quiet(&b);
    }
}

/// A queue of four slots: each poll frees those that it took, in the queue and in the engine.
#[test]
fn slots_come_back_from_every_poll() {
    for progress in WAYS {
        let world = MemWorld::new(1500);
        let (a, b) = (
            Node::with(world.device(1, progress), 4, |_| {}),
            Node::new(world.device(2, progress)),
        );
        let ah = a.ah_to(&b);
        for round in 0..50 {
            post_all(&a, &b, &ah, 4 * round, 4);
            let full = a.qp.post_send(&SendWr::send(0, &ah, b.qp.qpn(), QKEY));
            assert_eq!(full, Err(srd::PostError::CqFull));
            assert_eq!(a.next_n(&b, 4).len(), 4);
            assert_eq!(b.next_n(&a, 4).len(), 4);
        }
    }
}

/// Two threads poll one queue of each end while a third posts: each completion comes once.
#[test]
fn threads_that_poll_together_share_the_completions() {
    const N: u64 = 3_000;
    for progress in WAYS {
        let world = MemWorld::new(1500);
        let (a, b) = (Node::new(world.device(1, progress)), Node::new(world.device(2, progress)));
        let ah = a.ah_to(&b);
        let taken: [AtomicU64; 2] = Default::default();
        let failed = AtomicBool::new(false);
        let poll = |max: usize| {
            let mut out = vec![WorkCompletion::default(); max];
            let (mut seen, mut last) = (Vec::new(), None);
            let end = Instant::now() + PATIENCE;
            while taken.iter().any(|n| n.load(Ordering::SeqCst) < N) {
                for (i, node) in [&a, &b].into_iter().enumerate() {
                    let n = node.cq.poll(&mut out).unwrap();
                    for wc in &out[..n] {
                        let wr_id = wc.ok().unwrap().wr_id;
                        // Receives are filled in order, and a thread takes them in order. A message
                        // that is sent again may end after later ones.
                        if i == 1 && last.replace(wr_id) >= Some(wr_id) {
                            failed.store(true, Ordering::SeqCst);
                        }
                        seen.push((i, wr_id));
                    }
                    taken[i].fetch_add(n as u64, Ordering::SeqCst);
                }
                if Instant::now() > end {
                    failed.store(true, Ordering::SeqCst);
                    break;
                }
            }
            seen
        };
        let mut all = std::thread::scope(|s| {
            let polls = [s.spawn(|| poll(1)), s.spawn(|| poll(7))];
            for wr_id in 0..N {
                let end = Instant::now() + PATIENCE;
                while b.qp.post_recv(&RecvWr::recv(wr_id)).is_err() && Instant::now() < end {
                    std::thread::yield_now();
                }
                let wr = SendWr::send(wr_id, &ah, b.qp.qpn(), QKEY);
                while a.qp.post_send(&wr).is_err() && Instant::now() < end {
                    std::thread::yield_now();
                }
            }
            polls.map(|poll| poll.join().unwrap()).concat()
        });
        all.sort_unstable();
        let every = (0..2).flat_map(|i| (0..N).map(move |wr_id| (i, wr_id)));
        assert!(all.iter().copied().eq(every), "{progress:?}: {} completions", all.len());
        assert!(!failed.load(Ordering::SeqCst), "{progress:?}: order or time");
    }
}

/// A poll that takes the completion of an armed queue leaves its event all the same.
#[test]
fn an_armed_queue_tells_of_a_completion_that_a_poll_took() {
    let world = MemWorld::new(1500);
    let (a, b) = (Node::new(world.device(1, WAYS[0])), Node::new(world.device(2, WAYS[0])));
    let channel = a.device.channel_create().unwrap();
    let init = CqInit { depth: 16, channel: Some(&channel), context: 9 };
    let cq = a.device.cq_create_ex(&init).unwrap();
    let qp = a.pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    qp.activate(QKEY).unwrap();
    let memory = b.pd.mr_allocate(64, ALL_ACCESS).unwrap();
    b.qp.post_recv(&RecvWr::recv(1).sges(&[memory.sge(0, 64)])).unwrap();
    let ah = a.ah_to(&b);
    cq.req_notify().unwrap();
    qp.post_send(&SendWr::send(5, &ah, b.qp.qpn(), QKEY).imm(3)).unwrap();
    let end = Instant::now() + PATIENCE;
    let wc = loop {
        if let Some(wc) = cq.poll_one().unwrap() {
            break wc;
        }
        b.device.progress().unwrap();
        assert!(Instant::now() < end, "no completion");
    };
    assert_eq!(wc.ok().unwrap().wr_id, 5);
    let event = channel.try_get().expect("an event");
    assert_eq!((event.cq, event.context), (cq.id(), 9));
    assert!(channel.try_get().is_none(), "one event, since the queue was armed once");
}
