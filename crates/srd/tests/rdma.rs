//! RDMA writes and reads.

use crate::common;
use crate::common::{Node, QKEY, THREAD, everywhere, loopback_pair, mem_pair, pattern};
use srd::{CompletionOp, Device, DeviceConfig, Progress, RecvWr, SendWr, Status};
use std::time::{Duration, Instant};

#[test]
fn megabytes_written_and_read_back_are_the_same() {
    everywhere(4000, |a, b| {
        let (a, b) = (Node::new(a), Node::new(b));
        let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
        const LEN: usize = 3_000_001;
        let (from, there, back) = (a.memory(LEN), b.memory(LEN + 64), a.memory(LEN));
        let bytes = pattern(LEN, 9);
        from.write_at(0, &bytes).unwrap();

        let write = SendWr::write(1, &to_b, b.qp.qpn(), QKEY);
        let write = write.remote(there.addr() + 32, there.rkey());
        let pieces = [from.sge(0, 1_000_001), from.sge(1_000_001, 2_000_000)];
        a.qp.post_send(&write.sges(&pieces)).unwrap();
        let wc = a.next(&b);
        assert_eq!((wc.status, wc.op, wc.byte_len), (Status::Ok, CompletionOp::Write, LEN as u32));
        assert!(there.to_vec(32, LEN).unwrap() == bytes, "written as sent");
        assert_eq!(there.to_vec(0, 32).unwrap(), [0; 32], "nothing before");
        assert_eq!(there.to_vec(LEN + 32, 32).unwrap(), [0; 32], "nothing after");

        let read = SendWr::read(2, &to_b, b.qp.qpn(), QKEY);
        let read = read.remote(there.addr() + 32, there.rkey());
        a.qp.post_send(&read.sges(&[back.sge(0, LEN as u32)])).unwrap();
        let wc = a.next(&b);
        assert_eq!((wc.status, wc.op, wc.byte_len), (Status::Ok, CompletionOp::Read, LEN as u32));
        assert!(back.to_vec(0, LEN).unwrap() == bytes, "read as written");
        b.assert_quiet(&a);
    });
}

#[test]
fn many_operations_at_once_do_not_mix() {
    everywhere(1000, |a, b| {
        let (a, b) = (Node::new(a), Node::new(b));
        let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
        const N: usize = 40;
        const LEN: usize = 7_777;
        let (from, there, back) = (a.memory(N * LEN), b.memory(N * LEN), a.memory(N * LEN));
        let bytes = pattern(N * LEN, 4);
        from.write_at(0, &bytes).unwrap();
        for (phase, region) in [(0, &from), (1, &back)] {
            for i in 0..N {
                let new = if phase == 0 { SendWr::write } else { SendWr::read };
                let wr = new(i as u64, &to_b, b.qp.qpn(), QKEY);
                let wr = wr.remote(there.addr() + (i * LEN) as u64, there.rkey());
                a.qp.post_send(&wr.sges(&[region.sge(i * LEN, LEN as u32)])).unwrap();
            }
            for (i, wc) in a.next_n(&b, N).iter().enumerate() {
                assert_eq!((wc.wr_id, wc.status), (i as u64, Status::Ok));
            }
        }
        assert!(there.to_vec(0, N * LEN).unwrap() == bytes);
        assert!(back.to_vec(0, N * LEN).unwrap() == bytes);
    });
}

#[test]
fn write_with_immediate_consumes_a_receive_after_all_bytes() {
    everywhere(1000, |a, b| {
        let (a, b) = (Node::new(a), Node::new(b));
        let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
        let (from, there) = (a.memory(10_000), b.memory(10_000));
        let bytes = pattern(10_000, 8);
        from.write_at(0, &bytes).unwrap();
        b.qp.post_recv(&RecvWr::recv(77)).unwrap();
        let wr = SendWr::write(1, &to_b, b.qp.qpn(), QKEY).imm(0xFEED);
        let wr = wr.remote(there.addr(), there.rkey());
        a.qp.post_send(&wr.sges(&[from.sge(0, 10_000)])).unwrap();
        let wc = b.next(&a);
        assert_eq!((wc.wr_id, wc.op, wc.imm), (77, CompletionOp::RecvRdmaImm, Some(0xFEED)));
        assert_eq!(wc.byte_len, 10_000);
        assert!(there.to_vec(0, 10_000).unwrap() == bytes, "all bytes before the completion");
        assert!(a.next(&b).is_ok());
    });
}

#[test]
fn unsolicited_writes_need_no_receive() {
    let (a, b) = mem_pair(1000, Progress::Caller);
    let a = Node::new(a);
    let b = Node::with(b, 8, |init| init.unsolicited_write_recv = true);
    let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let there = b.memory(4096);
    // More than the completion queue holds: the rest waits at the sender (RNR) until it is polled.
    for i in 0..20 {
        let wr = SendWr::write(i, &to_b, b.qp.qpn(), QKEY).imm(i as u32).inline(b"12345678");
        a.qp.post_send(&wr.remote(there.addr() + i * 8, there.rkey())).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..20 {
        let wc = b.next(&a);
        assert_eq!((wc.op, wc.wr_id, wc.byte_len), (CompletionOp::RecvUnsolicited, 0, 8));
        seen.push(wc.imm.unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    assert!(a.next_n(&b, 20).iter().all(|wc| wc.is_ok()));
    assert_eq!(there.to_vec(0, 160).unwrap(), b"12345678".repeat(20));
    // The queue is whole afterwards: all its slots can be promised again.
    let m = b.memory(8);
    for i in 0..8 {
        b.qp.post_recv(&RecvWr::recv(i).sges(&[m.sge(0, 8)])).unwrap();
    }
}

#[test]
fn a_region_with_another_address_is_named_by_it() {
    let (a, b) = loopback_pair(1400, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let memory = vec![0_u8; 100].leak();
    // SAFETY: the memory is leaked, and no reference to it is used before the region is gone.
    let there =
        unsafe { b.pd.mr_register_at(memory.as_mut_ptr(), 100, 0x1000_0000, common::ALL_ACCESS) }
            .unwrap();
    assert_eq!(there.addr(), 0x1000_0000);
    let wr = SendWr::write(1, &to_b, b.qp.qpn(), QKEY).inline(b"by another name");
    a.qp.post_send(&wr.remote(0x1000_0000 + 50, there.rkey())).unwrap();
    assert!(a.next(&b).is_ok());
    there.deregister();
    assert_eq!(&memory[50..65], b"by another name");
}

#[test]
fn zero_bytes_are_written_and_read_without_a_fault() {
    let (a, b) = mem_pair(1000, THREAD);
    let (a, b) = (Node::new(a), Node::new(b));
    let (to_b, _to_a) = (a.ah_to(&b), b.ah_to(&a));
    let there = b.memory(16);
    for (wr_id, new) in [(1, SendWr::write as fn(_, _, _, _) -> _), (2, SendWr::read)] {
        let wr: SendWr<'_> = new(wr_id, &to_b, b.qp.qpn(), QKEY);
        a.qp.post_send(&wr.remote(there.addr(), there.rkey())).unwrap();
        let wc = a.next(&b);
        assert_eq!((wc.wr_id, wc.status, wc.byte_len), (wr_id, Status::Ok, 0));
    }
}

/// 2 MB at 80 Mb/s take 0.2 s; the burst at the beginning is far less than half of them.
#[test]
fn nothing_is_sent_faster_than_the_configured_rate_of_the_port() {
    let open = |mbps| {
        let mut config = DeviceConfig::loopback();
        config.progress = THREAD;
        config.share = false;
        config.line_mbps = Some(mbps);
        Device::open(config)
    };
    for wrong in [0, 400_001, u32::MAX] {
        let error = open(wrong).map(drop).unwrap_err().to_string();
        assert!(error.contains("SRD_LINE_MBPS"), "{error}");
    }
    let (a, b) = (Node::new(open(80).unwrap()), Node::new(open(80).unwrap()));
    let (ah, _back) = (a.ah_to(&b), b.ah_to(&a));
    let (from, to) = (a.memory(2_000_000), b.memory(2_000_000));
    let sges = [from.sge(0, 2_000_000)];
    let write = SendWr::write(1, &ah, b.qp.qpn(), QKEY).remote(to.addr(), to.rkey()).sges(&sges);
    let began = Instant::now();
    a.qp.post_send(&write).unwrap();
    assert_eq!(a.next(&b).status, Status::Ok);
    assert!(began.elapsed() > Duration::from_millis(100), "{:?}", began.elapsed());
    let rates: Vec<u64> =
        a.device.context_stats().unwrap().iter().map(|c| c.rate_bytes_per_sec).collect();
    assert!(!rates.is_empty() && rates.iter().all(|&rate| rate <= 10_000_000), "{rates:?}");
}
