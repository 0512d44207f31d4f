//! Real sockets over loopback.

use core::{net::SocketAddr, time::Duration};
use srd_datapath::{Datapath, OpenError, TxPushError, UdpConfig, UdpDatapath, send_batch};
use std::collections::BTreeSet;

/// Receives give up after this long without a datagram; only failing tests wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A port base for the test that counts from `at`: each test has ports of its own, and so has each
/// process, so that all can run at the same time. Below the range that the kernel chooses from.
fn ports(at: u16) -> u16 {
    assert!(at < 200);
    20_000 + (std::process::id() % 60) as u16 * 200 + at
}

fn open(ip: &str, at: u16, change: impl FnOnce(&mut UdpConfig)) -> UdpDatapath {
    let mut config = UdpConfig::new(ip.parse().unwrap());
    config.port_base = ports(at);
    change(&mut config);
    UdpDatapath::open(config).unwrap()
}

fn addr_of(d: &UdpDatapath) -> SocketAddr {
    (d.local_ip(), d.port()).into()
}

struct Got {
    src: SocketAddr,
    bytes: Vec<u8>,
}

fn receive(d: &mut UdpDatapath, count: usize) -> Vec<Got> {
    let mut all = Vec::new();
    while all.len() < count {
        let before = all.len();
        d.rx(&mut |r| all.push(Got { src: r.src, bytes: r.bytes.to_vec() })).unwrap();
        if all.len() == before {
            let waits = d.counters().waits;
            d.wait(Some(PATIENCE)).unwrap();
            if d.counters().waits > waits
                && d.rx(&mut |r| {
                    all.push(Got { src: r.src, bytes: r.bytes.to_vec() });
                })
                .unwrap()
                .datagrams
                    == 0
            {
                break;
            }
        }
    }
    assert_eq!(all.len(), count, "datagrams are missing");
    all
}

/// A datagram that its number determines.
fn content(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = (number as u32).to_le_bytes().to_vec();
    bytes.extend((4..len).map(|i| (number * 31 + i * 7) as u8));
    bytes.truncate(len);
    bytes
}

fn number_of(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize
}

/// Sends `count` datagrams of `len` bytes over paths chosen by `path`, receiving in between.
fn bulk(a: &mut UdpDatapath, b: &mut UdpDatapath, count: usize, len: usize, path: fn(usize) -> u8) {
    let dst = addr_of(b);
    let data: Vec<_> = (0..count).map(|i| content(i, len)).collect();
    let mut seen = BTreeSet::new();
    // Fits the receive buffer of a system that allows no more than 208 KiB.
    let chunk = if len > 2000 { 8 } else { 64 };
    for (start, batch) in data.chunks(chunk).enumerate().map(|(i, c)| (i * chunk, c)) {
        let (_, report) = send_batch(a, |tx| {
            for (i, bytes) in batch.iter().enumerate() {
                tx.push(dst, path(start + i), &bytes[..10], &[&bytes[10..]]).unwrap();
            }
        })
        .unwrap();
        assert_eq!((report.sent, report.backlog, report.dropped), (batch.len(), 0, 0));
        for got in receive(b, batch.len()) {
            let number = number_of(&got.bytes);
            assert_eq!(got.bytes, data[number]);
            assert_eq!(got.src.port(), a.path_port(path(number)));
            assert!(seen.insert(number), "{number} twice");
        }
    }
    assert_eq!(seen.len(), count);
}

#[test]
fn segmented_batches_arrive_whole_v4() {
    segmented_batches("127.0.0.1", 20);
}

#[test]
fn segmented_batches_arrive_whole_v6() {
    segmented_batches("::1", 30);
}

fn segmented_batches(ip: &str, at: u16) {
    let (mut a, mut b) = (open(ip, at, |_| {}), open(ip, at, |_| {}));
    bulk(&mut a, &mut b, 512, 1400, |i| (i / 8 % 64) as u8);
    let (sent, received) = (a.counters(), b.counters());
    assert_eq!((sent.tx_packets, sent.tx_bytes), (512, 512 * 1400));
    assert_eq!((sent.tx_gso_batches, sent.tx_gso_packets, sent.tx_syscalls), (64, 512, 64));
    assert_eq!((received.rx_packets, received.rx_bytes), (512, 512 * 1400));
    assert_eq!((received.rx_gro_batches, received.rx_gro_packets), (64, 512));
}

#[test]
fn one_path_and_jumbo_and_no_segmentation_also_arrive_whole() {
    let (mut a, mut b) = (open("127.0.0.1", 40, |_| {}), open("127.0.0.1", 40, |_| {}));
    bulk(&mut a, &mut b, 100, 8900, |_| 3);
    // Seven fit in 64 KiB: each batch of 8 leaves one over, the last one of 4 does not.
    assert_eq!(a.counters().tx_gso_packets, 12 * 7 + 4);
    bulk(&mut a, &mut b, 64, 11, |i| (i % 2) as u8);
    // Round robin over two paths is sorted by path: 32 packets each, in one message.
    assert_eq!((a.counters().tx_gso_packets, a.counters().tx_gso_batches), (88 + 64, 13 + 2));
    let mut eight = open("127.0.0.1", 40, |c| c.gso_segments_max = 8);
    bulk(&mut eight, &mut b, 64, 11, |i| (i % 2) as u8);
    assert_eq!((eight.counters().tx_gso_packets, eight.counters().tx_gso_batches), (64, 8));
    let mut plain = open("127.0.0.1", 40, |c| c.gso = false);
    bulk(&mut plain, &mut b, 100, 1400, |i| (i % 64) as u8);
    assert_eq!(plain.counters().tx_gso_batches, 0);
}

#[test]
fn sizes_may_change_within_a_batch() {
    let (mut a, mut b) = (open("127.0.0.1", 50, |_| {}), open("127.0.0.1", 50, |c| c.paths = 1));
    let dst = addr_of(&b);
    let sizes = [500, 500, 500, 20, 500, 501, 501, 4, 4, 0, 0, 7, 65_507, 65_507, 9];
    let data: Vec<Vec<u8>> = sizes.iter().map(|&len| vec![len as u8; len]).collect();
    send_batch(&mut a, |tx| {
        for bytes in &data {
            tx.push(dst, 0, &[], &[bytes]).unwrap();
        }
    })
    .unwrap();
    // 500 500 500 20 | 500 | 501 501 4 | 4 0(never merged) ...: order and sizes are kept.
    let got = receive(&mut b, sizes.len());
    assert_eq!(got.iter().map(|g| g.bytes.len()).collect::<Vec<_>>(), sizes);
    assert!(got.iter().zip(&data).all(|(g, d)| g.bytes == *d));
}

#[test]
fn every_path_has_a_source_port_of_its_own() {
    for paths in [1, 64, 256] {
        let d = open("127.0.0.1", 80, |c| c.paths = paths);
        let ports: BTreeSet<_> = (0..paths).map(|path| d.path_port(path as u8)).collect();
        assert_eq!(ports.len(), paths);
        assert!(!ports.contains(&0));
    }
}

#[test]
fn a_slot_is_given_once() {
    let fixed = |slot| {
        let mut config = UdpConfig::new("127.0.0.1".parse().unwrap());
        (config.port_base, config.slot, config.paths) = (ports(90), slot, 1);
        UdpDatapath::open(config)
    };
    let first = fixed(Some(1)).unwrap();
    let error = fixed(Some(1)).err().unwrap();
    assert!(
        matches!(error, OpenError::SlotTaken { slot: 1, port, .. } if port == ports(91)),
        "{error}"
    );
    let (zero, two) = (fixed(None).unwrap(), fixed(None).unwrap());
    assert_eq!((zero.slot(), first.slot(), two.slot()), (0, 1, 2));
    drop(first);
    assert_eq!(fixed(None).unwrap().slot(), 1);
}

#[test]
fn an_mtu_that_does_not_fit_is_refused() {
    let wish = |mtu| {
        let mut config = UdpConfig::new("127.0.0.1".parse().unwrap());
        (config.port_base, config.link_mtu, config.paths) = (ports(100), mtu, 1);
        UdpDatapath::open(config).map(|d| (d.link_mtu(), d.udp_payload_max()))
    };
    assert_eq!(wish(None).unwrap(), (65_535, 65_507));
    assert_eq!(wish(Some(1500)).unwrap(), (1500, 1472));
    let error = wish(Some(70_000)).unwrap_err().to_string();
    assert!(error.contains("70000") && error.contains("65535"), "{error}");
    assert!(matches!(wish(Some(500)), Err(OpenError::MtuTooSmall { mtu: 500 })));
}

#[test]
fn bad_pushes_are_refused_and_queue_nothing() {
    let mut d = open("127.0.0.1", 110, |c| {
        (c.link_mtu, c.paths, c.tx_batch_max) = (Some(1500), 4, 2);
    });
    let dst = addr_of(&d);
    let (_, report) = send_batch(&mut d, |tx| {
        let long = vec![0; 1473];
        let too_long = TxPushError::TooLong { len: 1473, max: 1472 };
        assert_eq!(tx.push(dst, 0, &long, &[]), Err(too_long));
        assert_eq!(tx.push(dst, 4, b"", &[]), Err(TxPushError::BadPath { path: 4, paths: 4 }));
        assert_eq!(tx.push("[::1]:1".parse().unwrap(), 0, b"", &[]), Err(TxPushError::BadFamily));
        assert_eq!(tx.push(dst, 0, &long[1..], &[]), Ok(()));
        assert_eq!(tx.push(dst, 0, b"", &[]), Ok(()));
        assert_eq!(tx.push(dst, 0, b"", &[]), Err(TxPushError::Full));
    })
    .unwrap();
    assert_eq!(report.sent, 2);
    assert_eq!(d.tx_room(), 2);
}

#[test]
fn addresses_of_others_are_refused() {
    for ip in ["0.0.0.0", "::", "224.0.0.1", "192.0.2.1"] {
        let error = UdpDatapath::open(UdpConfig::new(ip.parse().unwrap())).err().unwrap();
        let refused = matches!(error, OpenError::Config(_) | OpenError::Address { .. });
        assert!(refused, "{ip}: {error}");
    }
}

#[test]
fn a_waker_ends_a_wait_without_timeout() {
    let mut d = open("127.0.0.1", 120, |c| c.paths = 1);
    let waker = d.waker();
    // Wakes before the wait are not lost, and many are one.
    waker.wake();
    waker.wake();
    d.wait(None).unwrap();
    let thread = std::thread::spawn(move || waker.wake());
    d.wait(None).unwrap();
    thread.join().unwrap();
    assert_eq!(d.rx(&mut |_| panic!("nothing was sent")).unwrap().datagrams, 0);
}

#[test]
fn drops_of_a_full_receive_buffer_are_told() {
    let mut a = open("127.0.0.1", 130, |c| c.gso = false);
    let mut b = open("127.0.0.1", 130, |c| (c.rcvbuf_bytes, c.gso) = (16 << 10, false));
    let (dst, data) = (addr_of(&b), vec![5u8; 1000]);
    for _ in 0..4 {
        send_batch(&mut a, |tx| {
            for i in 0..100 {
                tx.push(dst, i % 64, &[], &[&data]).unwrap();
            }
        })
        .unwrap();
    }
    let mut taken = 0;
    while b.rx(&mut |_| taken += 1).unwrap().datagrams > 0 {}
    // The count travels with datagrams that come after the drops.
    send_batch(&mut a, |tx| tx.push(dst, 0, b"after", &[]).unwrap()).unwrap();
    let mut told = 0;
    b.rx(&mut |r| told = r.rxq_drops).unwrap();
    assert!(taken > 0 && taken < 400);
    assert_eq!((told, b.counters().rxq_drops), (400 - taken, u64::from(400 - taken)));
    assert!(b.rcvbuf_warning().is_none());
}

#[test]
fn a_destination_that_refuses_does_not_end_the_datapath() {
    let (mut a, mut b) = (open("127.0.0.1", 140, |_| {}), open("127.0.0.1", 140, |_| {}));
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let unreachable: SocketAddr = "240.0.0.1:9".parse().unwrap();
    let dst = addr_of(&b);
    for _ in 0..3 {
        send_batch(&mut a, |tx| {
            for to in [nobody, unreachable, dst] {
                tx.push(to, 0, b"1", &[]).unwrap();
            }
        })
        .unwrap();
    }
    assert_eq!(receive(&mut b, 3).len(), 3);
    assert_eq!(a.counters().tx_packets + dropped(&a), 9);
}

fn dropped(d: &UdpDatapath) -> u64 {
    let c = d.counters();
    c.tx_refused + c.tx_unreachable + c.tx_forbidden + c.tx_too_long + c.tx_other
}
