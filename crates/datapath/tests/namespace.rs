//! What loopback cannot show: a link slower than the sender, a route with a smaller MTU, no route.
//! Runs itself again in a network namespace of its own, which needs no privileges where user
//! namespaces are allowed. Where they are not, it says so and passes, unless
//! `SRD_TEST_NAMESPACE=require` is set.

use core::{net::SocketAddr, time::Duration};
use srd_datapath::{Datapath, TooLong, UdpConfig, UdpDatapath, send_batch};
use std::{collections::BTreeSet, process::Command};

const INSIDE: &str = "SRD_TEST_INSIDE";

/// Runs `test` in a namespace whose loopback device has a shaper of 200 Mbit/s; true inside.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let make =
        "ip link set lo up && tc qdisc add dev lo root tbf rate 200mbit burst 70kb limit 9mb";
    let run = |script: &str| {
        let me = std::env::current_exe().unwrap();
        Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", script])
            .arg(me)
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .output()
    };
    let made = run(make);
    if !made.as_ref().is_ok_and(|out| out.status.success()) {
        let required = std::env::var("SRD_TEST_NAMESPACE").is_ok_and(|v| v == "require");
        assert!(!required, "no network namespace with a shaper: {made:?}");
        eprintln!("skipped: no network namespace with a shaper here ({made:?})");
        return false;
    }
    let out = run(&format!("{make} && exec \"$0\" \"$@\"")).unwrap();
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("1 passed"), "inside the namespace:\n{text}");
    false
}

fn open(change: impl FnOnce(&mut UdpConfig)) -> UdpDatapath {
    let mut config = UdpConfig::new("127.0.0.1".parse().unwrap());
    change(&mut config);
    UdpDatapath::open(config).unwrap()
}

#[test]
fn a_slow_link_pushes_back_and_nothing_is_lost() {
    if !inside("a_slow_link_pushes_back_and_nothing_is_lost") {
        return;
    }
    const COUNT: u32 = 3000;
    let mut a = open(|c| (c.paths, c.sndbuf_bytes_per_path) = (4, 4096));
    let mut b = open(|c| c.rcvbuf_bytes = 1 << 20);
    let dst: SocketAddr = (b.local_ip(), b.port()).into();
    let (mut next, mut seen) = (0, BTreeSet::new());
    while seen.len() < COUNT as usize {
        let room = a.tx_room().min((COUNT - next) as usize) as u32;
        let (_, report) = send_batch(&mut a, |tx| {
            for number in next..next + room {
                let bytes = [&number.to_le_bytes()[..], &[number as u8; 1396]].concat();
                tx.push(dst, (number / 8 % 4) as u8, &bytes, &[]).unwrap();
            }
        })
        .unwrap();
        next += room;
        assert_eq!(report.dropped, 0);
        assert_eq!(a.tx_ready(), report.backlog == 0);
        if !a.tx_ready() {
            // Ends when a path that was full can take more.
            a.wait(Some(Duration::from_secs(5))).unwrap();
        } else if next == COUNT {
            let waits = b.counters().waits;
            b.wait(Some(Duration::from_secs(5))).unwrap();
            assert!(b.counters().waits == waits + 1);
        }
        let before = seen.len();
        while b
            .rx(&mut |r| {
                let number = u32::from_le_bytes(r.bytes[..4].try_into().unwrap());
                assert_eq!((r.bytes.len(), r.bytes[1399]), (1400, number as u8));
                assert!(seen.insert(number), "{number} came twice");
            })
            .unwrap()
            .more
        {}
        assert!(seen.len() > before || next < COUNT || !a.tx_ready(), "datagrams are missing");
    }
    let c = a.counters();
    assert!(c.tx_would_block > 0 && c.tx_backlogged > 0, "the link never pushed back: {c:?}");
    assert_eq!((c.tx_packets, b.counters().rxq_drops), (COUNT.into(), 0));
}

#[test]
fn a_shrunken_mtu_and_a_missing_route_are_told() {
    if !inside("a_shrunken_mtu_and_a_missing_route_are_told") {
        return;
    }
    let mut a = open(|c| c.link_mtu = Some(9000));
    let mut b = open(|_| {});
    let dst: SocketAddr = (b.local_ip(), b.port()).into();
    let shrink = Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap();
    assert!(shrink.success());
    let (_, report) = send_batch(&mut a, |tx| {
        for _ in 0..4 {
            tx.push(dst, 0, &[1; 4000], &[]).unwrap();
        }
        tx.push(dst, 1, &[2; 1472], &[]).unwrap();
        tx.push(dst, 1, &[2; 1472], &[]).unwrap();
    })
    .unwrap();
    assert_eq!((report.sent, report.dropped, report.backlog), (2, 4, 0));
    assert_eq!(report.too_long, Some(TooLong { dst, len: 4000, mtu: Some(1500) }));
    assert_eq!(a.counters().tx_too_long, 4);
    assert_eq!(b.rx(&mut |r| assert_eq!(r.bytes, [2; 1472])).unwrap().datagrams, 2);
    // What the kernel remembers of the way beyond, from a route or from ICMP that anybody can
    // forge, is not what refused the packet.
    let remembered = ["route", "add", "10.8.8.0/24", "dev", "lo", "mtu", "1000"];
    assert!(Command::new("ip").args(remembered).status().unwrap().success());
    let far = "10.8.8.8:1".parse().unwrap();
    let (_, report) = send_batch(&mut a, |tx| tx.push(far, 2, &[1; 4000], &[]).unwrap()).unwrap();
    assert_eq!(report.too_long, Some(TooLong { dst: far, len: 4000, mtu: Some(1500) }));
    // Only the MTU was wrong: segmentation goes on.
    assert_eq!(a.counters().tx_gso_packets, 2);
    let nowhere = "10.9.9.9:1".parse().unwrap();
    let (_, report) = send_batch(&mut a, |tx| tx.push(nowhere, 0, b"x", &[]).unwrap()).unwrap();
    assert_eq!((report.dropped, a.counters().tx_unreachable), (1, 1));
}
