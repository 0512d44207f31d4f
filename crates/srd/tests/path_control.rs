//! `srd paths deny`: devices of this user obey the control file, those that are open and those that
//! are opened later. The addresses are this test's own, since all devices of the user obey.

use crate::common::*;
use srd::{Bind, Device, DeviceConfig, PathPolicy, PathState, Progress, RecvWr, SendWr, Status};
use srd_share::{PathControl, PathMask};
use std::{
    net::{IpAddr, UdpSocket},
    time::{Duration, Instant},
};

fn device(host: u8) -> Device {
    device_driven(host, Progress::Caller)
}

fn device_driven(host: u8, progress: Progress) -> Device {
    let mut config = DeviceConfig::loopback();
    config.bind = Bind::Ip(IpAddr::from([127, 0, 77, host]));
    config.progress = progress;
    (config.mtu, config.paths) = (Some(1024), 8);
    // Each burst takes the next path.
    config.path_policy = PathPolicy::Oblivious;
    Device::open(config).unwrap()
}

fn mask(paths: impl IntoIterator<Item = u8>) -> PathMask {
    let mut mask = PathMask::NONE;
    paths.into_iter().for_each(|path| mask.put(path, true));
    mask
}

/// Sends `n` messages from `a` to `b`, in batches of 50.
fn exchange(a: &Node, b: &Node, n: u64) {
    let (ah, memory) = (a.ah_to(b), b.memory(1000));
    for batch in 0..n / 50 {
        for k in 0..50 {
            let wr_id = batch * 50 + k;
            b.qp.post_recv(&RecvWr { wr_id, sges: &[memory.sge(0, 1000)] }).unwrap();
            a.qp.post_send(&SendWr::send(wr_id, &ah, b.qp.qpn(), QKEY).inline(&[7; 80])).unwrap();
        }
        for node in [(a, b), (b, a)] {
            assert!(node.0.next_n(node.1, 50).iter().all(|wc| wc.status == Status::Ok));
        }
    }
}

/// Packets sent on each path to `to`, and which of the paths are denied.
fn sent(from: &Node, to: &Node) -> (Vec<u64>, Vec<bool>) {
    let stats = from.device.path_stats(to.device.ip()).unwrap();
    stats.iter().map(|s| (s.packets_sent, s.state == "denied")).unzip()
}

#[test]
fn devices_obey_what_an_operator_denies() {
    let control = PathControl::open().unwrap();
    let (a, b) = (Node::new(device(1)), Node::new(device(2)));
    let to = b.device.ip();
    exchange(&a, &b, 1000);
    assert!(sent(&a, &b).0.iter().all(|n| *n > 0), "all paths are used: {:?}", sent(&a, &b));
    control.change(to, 8, 1, |_| mask(0..4)).unwrap();
    a.device.progress().unwrap();
    let (before, denied) = sent(&a, &b);
    assert_eq!(denied, [true, true, true, true, false, false, false, false]);
    exchange(&a, &b, 1000);
    let (after, _) = sent(&a, &b);
    assert_eq!(before[..4], after[..4], "a denied path carried something");
    assert!(after[4..].iter().sum::<u64>() > before[4..].iter().sum::<u64>());
    assert!(sent(&b, &a).1.iter().all(|denied| !denied), "an order is about one address");

    // A device that is opened later.
    let c = Node::new(device(3));
    exchange(&c, &b, 100);
    let (carried, denied) = sent(&c, &b);
    assert_eq!((&carried[..4], &denied[..4]), (&[0; 4][..], &[true; 4][..]));

    // Each device refuses what would leave it without a path; the command refuses it, too.
    assert!(control.change(to, 8, 1, |_| mask(0..8)).is_err());
    control.change(to, 256, 1, |_| mask(0..8)).unwrap();
    exchange(&a, &b, 100);
    assert_eq!(sent(&a, &b).1.iter().filter(|denied| **denied).count(), 4, "as before");

    control.change(to, 8, 1, |_| PathMask::NONE).unwrap();
    let (before, _) = sent(&a, &b);
    exchange(&a, &b, 1000);
    let (after, denied) = sent(&a, &b);
    assert!(!denied.contains(&true));
    assert!(after[..4].iter().sum::<u64>() > before[..4].iter().sum::<u64>(), "used again");
}

/// A device whose thread sleeps, with nothing to do, obeys as soon as the command wakes it, and
/// tells its subscribers; and an order to probe is obeyed once.
#[test]
fn a_device_at_rest_obeys_and_tells() {
    let control = PathControl::open().unwrap();
    let thread = || Progress::Thread { spin: Duration::ZERO };
    let a = Node::new(device_driven(11, thread()));
    let b = Node::new(device_driven(12, thread()));
    let (to, from) = (b.device.ip(), a.device.ip());
    // Orders outlive a run that was killed.
    control.change(to, 8, 1, |_| PathMask::NONE).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        exchange(&a, &b, 1000);
        // Acknowledgments, timers and the status are done long before: the thread sleeps.
        std::thread::sleep(Duration::from_millis(500));
        let stats = a.device.path_stats(to).unwrap();
        // A path that a busy machine has made late is probed again and again.
        if stats.iter().all(|s| !["retired", "probing"].contains(&s.state)) {
            break;
        }
        assert!(Instant::now() < end, "a path does not return: {stats:?}");
    }
    let events = a.device.path_events().unwrap();
    let late = a.device.path_events().unwrap();
    let turns = a.device.counters().unwrap().turns;
    std::thread::sleep(Duration::from_millis(100));
    assert!(a.device.counters().unwrap().turns <= turns + 2, "it does not rest");
    let errors = a.device.counters().unwrap().parse_errors;
    let wake = || {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.send_to(&[], (from, a.device.port().udp_port)).unwrap();
    };
    control.change(to, 8, 1, |_| mask([1, 2, 6])).unwrap();
    wake();
    let take = |n: usize| -> Vec<(u8, PathState, PathState)> {
        let next = |_| events.wait(PATIENCE).unwrap().expect("told in time");
        (0..n).map(next).inspect(|e| assert_eq!(e.ip, to)).map(|e| (e.path, e.from, e.to)).collect()
    };
    let denied = |path| (path, PathState::Active, PathState::Denied);
    assert_eq!(take(3), [1, 2, 6].map(denied));
    control.change(to, 8, 1, |_| mask([2])).unwrap();
    wake();
    let allowed = |path| (path, PathState::Denied, PathState::Active);
    assert_eq!(take(2), [1, 6].map(allowed));
    assert_eq!((events.get(), events.missed()), (None, 0));
    // Told one after the other: the last event may still be on its way to this one.
    (0..5)
        .for_each(|_| assert!(late.wait(PATIENCE).unwrap().is_some(), "each subscriber gets all"));
    assert!(late.get().is_none(), "and each event once");
    assert_eq!(a.device.counters().unwrap().parse_errors, errors, "to be woken is no error");

    let (before, _) = sent(&a, &b);
    control.probe(&[(to, mask(0..6))]).unwrap();
    wake();
    let end = Instant::now() + PATIENCE;
    while sent(&a, &b).0 == before {
        assert!(Instant::now() < end, "nothing was probed");
        std::thread::yield_now();
    }
    // The next order repeats no probe.
    control.change(to, 8, 1, |_| PathMask::NONE).unwrap();
    wake();
    assert_eq!(take(1), [allowed(2)]);
    let more: Vec<_> = sent(&a, &b).0.iter().zip(before).map(|(n, m)| n - m).collect();
    assert_eq!(more, [1, 1, 0, 1, 1, 1, 0, 0]);
}
