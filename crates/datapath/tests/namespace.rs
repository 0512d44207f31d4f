//! What loopback cannot show: a link slower than the sender, a route with a smaller MTU, no route.
//! Runs itself again in a network namespace of its own, which needs no privileges where user
//! namespaces are allowed. Where they are not, it says so and passes, unless
//! `SRD_TEST_NAMESPACE=require` is set.

#[path = "../../testbed/src/icmp.rs"]
mod icmp;

use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use icmp::Claim;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use srd_datapath::{Datapath, TooLong, UdpConfig, UdpDatapath, send_batch};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::UdpSocket,
    process::Command,
};

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

/// What a connected socket without our care reports of each error that is forged, by its errno;
/// errors that it does not report are left out.
fn reported(
    ip: IpAddr,
    forge: &dyn Fn(Claim, SocketAddr, SocketAddr),
) -> BTreeMap<i32, Vec<Claim>> {
    let (a, b) = (UdpSocket::bind((ip, 0)).unwrap(), UdpSocket::bind((ip, 0)).unwrap());
    let (from, to) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    a.connect(to).unwrap();
    let mut seen = BTreeMap::<i32, Vec<Claim>>::new();
    for claim in icmp::claims(ip.is_ipv6(), u8::MAX) {
        forge(claim, from, to);
        if let Err(e) = a.send(b"x") {
            seen.entry(e.raw_os_error().unwrap()).or_default().push(claim);
            assert!(a.send(b"x").is_ok(), "{claim:?} is reported once");
        }
    }
    seen
}

/// Of each code of ICMP and ICMPv6 that a connected socket reports, one forged message lost one
/// segmented send; only "port unreachable" and "too big" did not.
#[test]
fn forged_icmp_of_every_code_loses_nothing() {
    if !inside("forged_icmp_of_every_code_loses_nothing") {
        return;
    }
    let unshape = Command::new("tc").args(["qdisc", "del", "dev", "lo", "root"]).status().unwrap();
    assert!(unshape.success(), "no packet waits");
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let (family, proto) = match ip {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let raw = socket(family, SocketType::RAW, Some(proto)).unwrap();
        let forge = |claim, from: SocketAddr, to: SocketAddr| {
            let victim = SocketAddr::new(from.ip(), 0);
            let bytes = icmp::error(claim, from, to);
            sendto(&raw, &bytes, SendFlags::empty(), &victim).unwrap();
        };
        let seen = reported(ip, &forge);
        let counts: Vec<_> = seen.iter().map(|(errno, c)| (errno, c.len(), c[0])).collect();
        println!("{ip}: errno, codes, the first: {counts:?}");
        let wanted: &[i32] = match ip {
            IpAddr::V4(_) => &[
                libc::ENETUNREACH,
                libc::EHOSTUNREACH,
                libc::ECONNREFUSED,
                libc::ENOPROTOOPT,
                libc::EHOSTDOWN,
                libc::EMSGSIZE,
                libc::ENONET,
                libc::EPROTO,
            ],
            IpAddr::V6(_) => &[libc::EACCES, libc::ECONNREFUSED, libc::EMSGSIZE, libc::EPROTO],
        };
        for errno in wanted {
            assert!(seen.contains_key(errno), "{ip}: no forged error ends in errno {errno}");
        }
        let mut config = UdpConfig::new(ip);
        config.paths = 1;
        let mut a = UdpDatapath::open(config).unwrap();
        let mut b = UdpDatapath::open(UdpConfig::new(ip)).unwrap();
        let to: SocketAddr = (b.local_ip(), b.port()).into();
        let from = SocketAddr::new(ip, a.path_port(0));
        let mut send = |what: &str| {
            let sent = send_batch(&mut a, |tx| {
                for _ in 0..4 {
                    tx.push(to, 0, &[7; 1000], &[]).unwrap();
                }
            });
            let (_, report) = sent.unwrap();
            assert_eq!((report.sent, report.dropped, report.backlog), (4, 0, 0), "{what}");
            assert!(report.too_long.is_none(), "{what}");
            while b.rx(&mut |_| ()).unwrap().more {}
        };
        // Until the path's socket is connected.
        for _ in 0..64 {
            send("before anything is forged");
        }
        for claim in icmp::claims(ip.is_ipv6(), u8::MAX) {
            forge(claim, from, to);
            send(&format!("{ip} {claim:?}"));
        }
    }
}
