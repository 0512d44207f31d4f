//! Handles of send requests name one request from post until its completion or release comes out.

use crate::common::*;
use srd_core::*;

/// A request that has ended keeps its handle while its completion waits to be polled: the device
/// keeps buffers under it, and would free those of a newer request.
#[test]
fn a_handle_is_not_given_out_again_before_its_completion_is_polled() {
    let mut p = Pair::new(1);
    let now = p.net.now;
    let h = &mut p.net.hosts[0];
    let (qp, ah) = (p.qp[0], p.ah[0]);
    let wr = send_wr(1, ah, p.qp[1], 8);
    let first = h.engine.post_send(now, qp, &wr).unwrap();
    h.engine.wr_abort(now, first, Status::LocalInvalidLkey);
    let second = h.engine.post_send(now, qp, &wr).unwrap();
    assert_ne!(first, second);
    let c = h.engine.cq_poll(h.cq).unwrap();
    assert_eq!(c.kind, CompletionKind::Send(first, Opcode::Send));
    let third = h.engine.post_send(now, qp, &wr).unwrap();
    assert_eq!(third, first, "polled: free again");
}

/// A completion that is removed with its queue pair is a release: one of the two always comes out.
#[test]
fn an_unpolled_completion_of_a_destroyed_queue_pair_is_released() {
    let mut p = Pair::new(2);
    let now = p.net.now;
    let h = &mut p.net.hosts[0];
    let wr = send_wr(1, p.ah[0], p.qp[1], 8);
    let ended = h.engine.post_send(now, p.qp[0], &wr).unwrap();
    let live = h.engine.post_send(now, p.qp[0], &wr).unwrap();
    h.engine.wr_abort(now, ended, Status::LocalInvalidLkey);
    h.engine.qp_destroy(now, p.qp[0]).unwrap();
    assert!(h.engine.cq_poll(h.cq).is_none());
    let mut released = vec![];
    while let Some(e) = h.engine.poll_event() {
        if let AsyncEvent::WrReleased(h) = e {
            released.push(h);
        }
    }
    released.sort_by_key(|h| h.0);
    assert_eq!(released, [ended, live]);
    assert_eq!(h.engine.cq_reserved(h.cq), Some(0));
}

/// The counter of bytes sent is what was sent: acknowledgments that ride along included.
#[test]
fn bytes_sent_are_counted_with_the_acknowledgments_they_carry() {
    let patient = |i| {
        let mut c = config(i);
        // Long enough for a packet to take the acknowledgment along.
        c.ack.delay_requested = Span::from_us(20);
        c.ack.delay_max = Span::from_us(20);
        c.ack.every = 64;
        c
    };
    let mut p = Pair::with(3, vec![patient(0), patient(1)]);
    for i in 0..50 {
        for from in 0..2 {
            p.net.hosts[1 - from].recv(p.qp[1 - from], i, 1024);
            p.send(from, i, pattern(i, 100)).unwrap();
        }
    }
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts.iter().all(|h| h.sends_done() == 50)));
    p.net.run(Span::from_ms(5));
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = p.net.hosts[from].engine.counters().tx_bytes;
        let got = p.net.hosts[to].engine.counters().rx_bytes;
        assert_eq!(sent, got, "from host {from}");
    }
}
