use super::*;
use crate::Part;

/// Opens a datapath at a port of its own for each test and process; see `tests/loopback.rs`.
fn open(ip: &str, at: u16) -> UdpDatapath {
    let mut config = UdpConfig::new(ip.parse().unwrap());
    config.port_base = 20_000 + (std::process::id() % 60) as u16 * 200 + at;
    config.paths = 16;
    UdpDatapath::open(config).unwrap()
}

/// Waits for one datagram.
fn receive(d: &mut UdpDatapath) -> (SocketAddr, bool, Vec<u8>) {
    for _ in 0..50 {
        let mut got = None;
        d.rx(&mut |r| got = Some((r.src, r.ce, r.bytes.to_vec()))).unwrap();
        if let Some(got) = got {
            return got;
        }
        d.wait(Some(Duration::from_millis(100))).unwrap();
    }
    panic!("no datagram came");
}

#[test]
fn headers_payload_and_padding_arrive_as_one() {
    for (ip, at) in [("127.0.0.1", 0), ("::1", 10)] {
        let (mut a, mut b) = (open(ip, at), open(ip, at));
        let dst = (b.local_ip(), b.port()).into();
        let (x, y) = (vec![1u8; 3000], vec![2u8; 17]);
        let payload = &[Part::of_batch(&x), Part::of_batch(&y)];
        let packet =
            TxPacket { dst, path: 9, headers: b"head", payload, padded_len: 4000, finish: None };
        a.tx_push(&packet).unwrap();
        let report = a.tx_flush().unwrap();
        assert_eq!((report.sent, report.backlog, report.dropped), (1, 0, 0));
        let want = [&b"head"[..], &x, &y, &[0; 4000 - 3021]].concat();
        let src = SocketAddr::new(a.local_ip(), a.path_port(9));
        assert_eq!(receive(&mut b), (src, false, want));
    }
}

#[test]
fn packets_of_many_parts_are_segmented_at_their_ends() {
    let (mut a, mut b) = (open("127.0.0.1", 30), open("127.0.0.1", 30));
    let dst = (b.local_ip(), b.port()).into();
    let body: Vec<Vec<u8>> = (0..8u8).map(|i| vec![i; 500]).collect();
    for (i, bytes) in body.iter().enumerate() {
        // The payload is split at a different place each time; the length is 500 + 4 + 6 of
        // padding.
        let (x, y) = bytes.split_at(i * 60);
        let payload = &[Part::of_batch(x), Part::of_batch(y)];
        let headers = &[0xee; 4][..];
        a.tx_push(&TxPacket { dst, path: 1, headers, payload, padded_len: 510, finish: None })
            .unwrap();
    }
    a.tx_flush().unwrap();
    assert_eq!((a.counters().tx_syscalls, a.counters().tx_gso_packets), (1, 8));
    let mut got = Vec::new();
    while got.len() < 8 {
        b.wait(Some(Duration::from_secs(5))).unwrap();
        let seen = b.rx(&mut |r| got.push(r.bytes.to_vec())).unwrap().datagrams;
        assert!(seen > 0, "datagrams are missing");
    }
    for (i, bytes) in got.iter().enumerate() {
        assert_eq!(*bytes, [&[0xee; 4][..], &body[i], &[0; 6]].concat());
    }
}

#[test]
fn congestion_marks_are_seen_and_ours_say_ect() {
    let v4 = (libc::SOL_IP, libc::IP_TOS);
    let v6 = (libc::SOL_IPV6, libc::IPV6_TCLASS);
    for (ip, (level, name), at) in [("127.0.0.1", v4, 60), ("::1", v6, 70)] {
        let mut d = open(ip, at);
        let to = (d.local_ip(), d.port());
        let marker = UdpSocket::bind((d.local_ip(), 0)).unwrap();
        for field in 0..4 {
            sys::option_set(marker.as_fd(), level, name, field).unwrap();
            marker.send_to(b"x", to).unwrap();
            assert_eq!(receive(&mut d).1, field == 3, "{ip} with ECN field {field}");
        }
        assert_eq!(d.counters().rx_ce, 1);
        for socket in (0..16).filter_map(|path| d.sockets.socket(path)) {
            assert_eq!(sys::option_get(socket.as_fd(), level, name).unwrap() & 3, 2);
        }
    }
}

#[test]
fn strangers_cannot_fill_a_path_socket() {
    let d = open("127.0.0.1", 180);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        stranger.send_to(&[0; 1000], (d.local_ip(), d.path_port(0))).unwrap();
    }
    let mut waiting = 0;
    while d.sockets.socket(0).unwrap().recv_from(&mut [0; 1000]).is_ok() {
        waiting += 1;
    }
    assert!(waiting < 10, "{waiting} datagrams wait");
}

/// Sends `count` numbered datagrams to each of `to` in turn, over path 2, one flush each.
fn send(d: &mut UdpDatapath, to: &[&UdpDatapath], count: u32) {
    for number in 0..count {
        for receiver in to {
            let dst = (receiver.local_ip(), receiver.port()).into();
            let headers = &number.to_le_bytes()[..];
            let packet =
                TxPacket { dst, path: 2, headers, payload: &[], padded_len: 0, finish: None };
            d.tx_push(&packet).unwrap();
            assert_eq!(d.tx_flush().unwrap().sent, 1);
        }
    }
}

fn received(d: &mut UdpDatapath) -> Vec<u32> {
    let mut all = Vec::new();
    let mut number = |r: RxDatagram<'_>| {
        all.push(u32::from_le_bytes(r.bytes.try_into().unwrap()));
    };
    while d.rx(&mut number).unwrap().datagrams > 0 {}
    all
}

#[test]
fn a_path_used_for_one_peer_is_connected_and_still_serves_all() {
    let (mut a, mut b, mut c) =
        (open("127.0.0.1", 190), open("127.0.0.1", 190), open("127.0.0.1", 190));
    let address = |d: &UdpDatapath| SocketAddr::new(d.local_ip(), d.port());
    send(&mut a, &[&b], 20);
    assert_eq!(received(&mut b), (0..20).collect::<Vec<_>>());
    assert_eq!(a.sockets.connected(2), None);
    send(&mut a, &[&b], 200);
    assert_eq!(received(&mut b), (0..200).collect::<Vec<_>>());
    assert_eq!(a.sockets.connected(2), Some(address(&b)));
    let port = a.path_port(2);
    send(&mut a, &[&b, &c], 100);
    assert_eq!(received(&mut b), (0..100).collect::<Vec<_>>());
    assert_eq!(received(&mut c), (0..100).collect::<Vec<_>>());
    send(&mut a, &[&c], 300);
    assert_eq!(received(&mut c), (0..300).collect::<Vec<_>>());
    assert_eq!(a.sockets.connected(2), Some(address(&c)));
    let socket = a.sockets.socket(2).unwrap();
    assert_eq!(socket.local_addr().unwrap(), SocketAddr::new(a.local_ip(), port));
}

#[test]
fn a_connected_peer_that_restarts_misses_nothing_after() {
    let mut a = open("127.0.0.1", 195);
    let slot = {
        let b = open("127.0.0.1", 195);
        send(&mut a, &[&b], 300);
        assert!(a.sockets.connected(2).is_some());
        b.slot()
    };
    let gone: SocketAddr = (a.local_ip(), a.port() - u16::from(a.slot()) + u16::from(slot)).into();
    // Each of these makes the host answer "port unreachable", an error that the next send reports.
    for _ in 0..5 {
        let packet = TxPacket {
            dst: gone,
            path: 2,
            headers: b"void",
            payload: &[],
            padded_len: 0,
            finish: None,
        };
        a.tx_push(&packet).unwrap();
        a.tx_flush().unwrap();
    }
    let mut b = open("127.0.0.1", 195);
    assert_eq!(b.slot(), slot);
    send(&mut a, &[&b], 50);
    assert_eq!(received(&mut b), (0..50).collect::<Vec<_>>());
    assert_eq!(a.counters().tx_refused, 0);
}

#[test]
fn several_datapaths_are_waited_for_at_once() {
    let (mut a, mut b, c) =
        (open("127.0.0.1", 195), open("127.0.0.1", 195), open("127.0.0.1", 195));
    let mut all = Vec::new();
    for datapath in [&b, &c] {
        datapath.receivers(&mut |fd| all.push(fd));
    }
    assert_eq!(all.len(), 2, "one each, without rails");
    let wait = |readable: &[RawFd], writable: &[RawFd], timeout| {
        crate::wait_any(readable.iter().copied(), writable.iter().copied(), timeout).unwrap()
    };
    let ready = |timeout| wait(&all, &[], timeout);
    assert_eq!(ready(Duration::ZERO), 0);
    send(&mut a, &[&c, &b], 1);
    assert_eq!(ready(Duration::from_secs(3_600)), 2);
    assert_eq!(received(&mut b), [0]);
    assert_eq!(ready(Duration::from_secs(3_600)), 1);
    assert_eq!(wait(&[], &[], Duration::ZERO), 0);
    assert_eq!(wait(&[], &all, Duration::from_secs(3_600)), 2, "nothing waits to be sent");
    c.full(&mut |fd| panic!("{fd} is full without a backlog"));
}
