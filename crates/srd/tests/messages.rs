//! Sends and receives.

use crate::common::{Node, PATIENCE, QKEY, THREAD, everywhere, loopback_pair, mem_pair, pattern};
use srd::{CompletionOp, Progress, QpModify, QpState, RecvWr, SendWr, Status, WorkCompletion};
use std::time::Duration;

/// One message from `a` to `b` with everything checked.
fn exchange(a: &Node, b: &Node, ah: &srd::AddressHandle, len: usize, imm: Option<u32>) {
    let (from, to) = (a.memory(len.max(1)), b.memory(len.max(1)));
    let bytes = pattern(len, len as u64 + 1);
    from.write_at(0, &bytes).unwrap();
    b.qp.post_recv(&RecvWr::recv(1).sges(&[to.sge(0, len as u32)])).unwrap();
    let sges = [from.sge(0, len as u32)];
    let mut wr = SendWr::send(2, ah, b.qp.qpn(), QKEY).sges(&sges);
    if let Some(imm) = imm {
        wr = wr.imm(imm);
    }
    a.qp.post_send(&wr).unwrap();
    let sent = a.next(b);
    assert_eq!((sent.wr_id, sent.status, sent.op), (2, Status::Ok, CompletionOp::Send));
    let got = b.next(a);
    assert_eq!((got.wr_id, got.status, got.op), (1, Status::Ok, CompletionOp::Recv));
    assert_eq!((got.byte_len as usize, got.imm), (len, imm));
    assert_eq!((got.src_qpn, got.src_ip), (a.qp.qpn(), Some(a.device.ip())));
    assert_eq!(to.to_vec(0, len).unwrap(), bytes, "{len} bytes");
}

#[test]
fn every_size_arrives_whole() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = mem_pair(300, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let ah = a.ah_to(&b);
        for len in 0..=300 {
            exchange(&a, &b, &ah, len, (len % 3 == 0).then_some(len as u32));
        }
    }
}

#[test]
fn sizes_at_the_edges_over_sockets() {
    for (mtu, progress) in [(1400, Progress::Caller), (8900, THREAD)] {
        let (a, b) = loopback_pair(mtu, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let ah = a.ah_to(&b);
        for len in [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 1023, usize::from(mtu) - 1, mtu.into()] {
            exchange(&a, &b, &ah, len, None);
        }
    }
}

#[test]
fn a_thousand_messages_arrive_once_whatever_happens_on_the_way() {
    everywhere(1000, |a, b| {
        let (a, b) = (Node::new(a), Node::new(b));
        let ah = a.ah_to(&b);
        let (from, to) = (a.memory(256 * 1000), b.memory(256 * 1000));
        from.write_at(0, &pattern(256 * 1000, 5)).unwrap();
        let (mut posted, mut sent, mut received) = (0_u64, 0, 0);
        let mut seen = vec![0_u32; 1000];
        for slot in 0..256 {
            let sges = [to.sge(slot * 1000, 1000)];
            b.qp.post_recv(&RecvWr::recv(slot as u64).sges(&sges)).unwrap();
        }
        while sent < 1000 || received < 1000 {
            while posted < 1000 && posted - sent < 200 {
                let offset = (posted % 256) as usize * 1000;
                let sges = [from.sge(offset, 1000)];
                let wr = SendWr::send(posted, &ah, b.qp.qpn(), QKEY).sges(&sges);
                a.qp.post_send(&wr.imm(posted as u32)).unwrap();
                posted += 1;
            }
            if let Some(wc) = a.cq.poll_one().unwrap() {
                wc.ok().unwrap();
                sent += 1;
            }
            if let Some(wc) = b.cq.poll_one().unwrap() {
                wc.ok().unwrap();
                let (number, slot) = (wc.imm.unwrap() as usize, wc.wr_id as usize);
                seen[number] += 1;
                let expected = from.to_vec(number % 256 * 1000, 1000).unwrap();
                assert_eq!(to.to_vec(slot * 1000, 1000).unwrap(), expected);
                let sges = [to.sge(slot * 1000, 1000)];
                b.qp.post_recv(&RecvWr::recv(wc.wr_id).sges(&sges)).unwrap();
                received += 1;
            }
        }
        assert!(seen.iter().all(|&n| n == 1), "each message exactly once");
        assert_eq!(a.qp.sends_outstanding(), 0);
        assert_eq!(b.qp.recvs_outstanding(), 256);
    });
}

#[test]
fn two_pieces_are_gathered_and_scattered() {
    let (a, b) = loopback_pair(1400, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    let (m1, m2, to) = (a.memory(1000), a.memory(1000), b.memory(2000));
    let (p1, p2) = (pattern(1000, 1), pattern(1000, 2));
    m1.write_at(0, &p1).unwrap();
    m2.write_at(0, &p2).unwrap();
    let parts = [to.sge(0, 10), to.sge(100, 1), to.sge(200, 100), to.sge(1000, 500)];
    b.qp.post_recv(&RecvWr::recv(1).sges(&parts)).unwrap();
    let sges = [m1.sge(3, 77), m2.sge(500, 433)];
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).sges(&sges)).unwrap();
    assert_eq!(a.next(&b).byte_len, 510);
    assert_eq!(b.next(&a).byte_len, 510);
    let sent: Vec<u8> = p1[3..80].iter().chain(&p2[500..933]).copied().collect();
    let got: Vec<u8> = parts
        .iter()
        .flat_map(|p| to.to_vec((p.addr - to.addr()) as usize, p.len as usize).unwrap())
        .collect();
    assert_eq!(got[..510], sent);
    assert_eq!(got[510..], [0; 101], "nothing beyond the message");
}

#[test]
fn inline_data_may_change_after_the_post() {
    let (a, b) = mem_pair(1000, Progress::Caller);
    let (a, b) = (Node::new(a), Node::new(b));
    let ah = a.ah_to(&b);
    let to = b.memory(100);
    b.qp.post_recv(&RecvWr::recv(1).sges(&[to.sge(0, 100)])).unwrap();
    let mut bytes = pattern(80, 3);
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(&bytes)).unwrap();
    let sent = bytes.clone();
    bytes.fill(0);
    assert!(a.next(&b).is_ok());
    assert_eq!(to.to_vec(0, 80).unwrap(), sent);
}

#[test]
fn waiting_drives_a_device_and_sleeping_threads_are_woken() {
    for progress in [Progress::Caller, THREAD] {
        let (a, b) = loopback_pair(1400, progress);
        let (a, b) = (Node::new(a), Node::new(b));
        let (to_a, to_b) = (b.ah_to(&a), a.ah_to(&b));
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                let m = b.memory(64);
                for i in 0..100 {
                    b.qp.post_recv(&RecvWr::recv(i).sges(&[m.sge(0, 64)])).unwrap();
                    let got = b.cq.wait(PATIENCE).unwrap().expect("a message");
                    assert_eq!(got.op, CompletionOp::Recv);
                    let wr = SendWr::send(i, &to_a, a.qp.qpn(), QKEY).inline(b"pong");
                    b.qp.post_send(&wr).unwrap();
                    assert!(b.cq.wait(PATIENCE).unwrap().expect("sent").is_ok());
                }
            });
            let m = a.memory(64);
            for i in 0..100 {
                a.qp.post_recv(&RecvWr::recv(i).sges(&[m.sge(0, 64)])).unwrap();
                let wr = SendWr::send(1000 + i, &to_b, b.qp.qpn(), QKEY).inline(b"ping");
                a.qp.post_send(&wr).unwrap();
                for _ in 0..2 {
                    a.cq.wait(PATIENCE).unwrap().expect("in time").ok().unwrap();
                }
            }
            // A device that nobody drives acknowledges nothing.
            while !other.is_finished() {
                a.device.wait(Some(Duration::from_millis(1))).unwrap();
            }
        });
    }
}

#[test]
fn a_device_can_talk_to_itself() {
    let (a, _b) = loopback_pair(1400, THREAD);
    let a = Node::new(a);
    let ah = a.ah_to(&a);
    let m = a.memory(128);
    m.write_at(0, b"to myself").unwrap();
    a.qp.post_recv(&RecvWr::recv(1).sges(&[m.sge(64, 64)])).unwrap();
    a.qp.post_send(&SendWr::send(2, &ah, a.qp.qpn(), QKEY).sges(&[m.sge(0, 9)])).unwrap();
    let both = a.next_n(&a, 2);
    assert!(both.iter().all(|wc| wc.is_ok()));
    assert_eq!(m.to_vec(64, 9).unwrap(), b"to myself");
}

/// Numbers of requests whose halves and quarters are all needed to tell them apart.
#[test]
fn numbers_of_requests_keep_their_64_bits() {
    everywhere(1000, |a, b| {
        let (a, b) = (Node::new(a), Node::new(b));
        let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
        let (m, there) = (a.memory(8), b.memory(8));
        let piece = [m.sge(0, 8)];
        // One bit differs from one to the next, at each of the 64 places, and the rest is the same.
        const SAME: u64 = 0xA5C3_0F96_5A3C_F069;
        let number = |bit: usize| SAME ^ 1 << bit;
        for bit in 0..64 {
            b.qp.post_recv(&RecvWr { wr_id: number(bit), sges: &[] }).unwrap();
        }
        for bit in 0..64 {
            let wr = match bit % 3 {
                0 => SendWr::send(number(bit), &to_b, b.qp.qpn(), QKEY),
                1 => SendWr::write(number(bit), &to_b, b.qp.qpn(), QKEY)
                    .remote(there.addr(), there.rkey())
                    .inline(b"a number"),
                _ => SendWr::read(number(bit), &to_b, b.qp.qpn(), QKEY)
                    .remote(there.addr(), there.rkey())
                    .sges(&piece),
            };
            a.qp.post_send(&wr).unwrap();
        }
        let sorted = |mut all: Vec<u64>| {
            all.sort_unstable();
            all
        };
        let ids = |wcs: Vec<WorkCompletion>| sorted(wcs.iter().map(|wc| wc.wr_id).collect());
        assert_eq!(ids(a.next_n(&b, 64)), sorted((0..64).map(number).collect()));
        // Receives are consumed in order; those that are left keep their numbers when flushed.
        assert_eq!(ids(b.next_n(&a, 22)), sorted((0..22).map(number).collect()));
        let change = QpModify { state: Some(QpState::Err), ..QpModify::default() };
        b.qp.modify(change).unwrap();
        assert_eq!(ids(b.next_n(&a, 42)), sorted((22..64).map(number).collect()));
    });
}
