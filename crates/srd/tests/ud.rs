//! Unreliable datagrams.

use crate::common::{Node, QKEY, THREAD, loopback_pair, mem_pair, pattern};
use srd::{CompletionOp, GRH_BYTES, Progress, QpInit, QpType, RecvWr, SendWr, Status, gid_from_ip};

fn ud(device: srd::Device) -> Node {
    Node::with(device, 512, |init| init.kind = QpType::Ud)
}

#[test]
fn a_datagram_comes_after_forty_bytes_that_name_both_ends() {
    for (a, b) in [mem_pair(1000, Progress::Caller), loopback_pair(1400, THREAD)] {
        let (a, b) = (ud(a), ud(b));
        let ah = a.ah_to(&b);
        let (from, to) = (a.memory(1000), b.memory(2000));
        for len in [0_usize, 1, 100, 1000] {
            let bytes = pattern(len, 3 + len as u64);
            from.write_at(0, &bytes).unwrap();
            let room = GRH_BYTES + 1000;
            b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[to.sge(0, room)] }).unwrap();
            let sges = [from.sge(0, len as u32)];
            let wr = SendWr::send(2, &ah, b.qp.qpn(), QKEY).sges(&sges).imm(5);
            a.qp.post_send(&wr).unwrap();
            let sent = a.next(&b);
            assert_eq!((sent.wr_id, sent.status), (2, Status::Ok));
            let got = b.next(&a);
            assert_eq!((got.op, got.imm, got.src_qpn), (CompletionOp::Recv, Some(5), a.qp.qpn()));
            assert_eq!(got.byte_len, GRH_BYTES + len as u32);
            let grh = to.to_vec(0, 40).unwrap();
            assert_eq!(grh[8..24], gid_from_ip(a.device.ip()));
            assert_eq!(grh[24..40], gid_from_ip(b.device.ip()));
            assert_eq!(to.to_vec(40, len).unwrap(), bytes);
        }
    }
}

#[test]
fn without_a_receive_it_is_lost_and_counted() {
    let (a, b) = mem_pair(1000, Progress::Caller);
    let (a, b) = (ud(a), ud(b));
    let ah = a.ah_to(&b);
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(b"lost")).unwrap();
    assert!(a.next(&b).is_ok(), "nobody promises that it arrives");
    b.assert_quiet(&a);
    let drops = b.device.counters().unwrap().engine.drops;
    assert_eq!(drops[srd_core::counters::DropReason::UdUndeliverable as usize], 1);
}

#[test]
fn reliable_and_unreliable_queue_pairs_do_not_talk() {
    let (a, b) = mem_pair(1000, Progress::Caller);
    let (a, b) = (Node::new(a), ud(b));
    let ah = a.ah_to(&b);
    let m = b.memory(100);
    b.qp.post_recv(&RecvWr { wr_id: 1, sges: &[m.sge(0, 100)] }).unwrap();
    a.qp.post_send(&SendWr::send(1, &ah, b.qp.qpn(), QKEY).inline(b"x")).unwrap();
    assert_eq!(a.next(&b).status, Status::RemoteBadDestQpn);
    let both = a.pd.qp_create(&QpInit::ud(&a.cq, &a.cq)).unwrap();
    both.activate(QKEY).unwrap();
    both.post_send(&SendWr::send(2, &ah, b.qp.qpn(), QKEY).inline(b"y")).unwrap();
    assert!(a.next(&b).is_ok());
    assert_eq!(b.next(&a).byte_len, GRH_BYTES + 1);
}
