//! Oracles of what an engine reports: each sees what is wrong, and is content with what is right.

use super::*;
use crate::mirror::Expected;
use crate::tests::{broken, node, req};
use srd_core::{AhId, RecvHandle, Time};

/// A ledger with this request alone.
fn ledger(r: crate::ledger::Req) -> Ledger {
    Ledger { reqs: vec![r], ..Ledger::default() }
}

#[test]
fn a_success_needs_all_bytes_one_delivery_and_a_good_verdict() {
    let ends = |op, placed: u32, delivered, verdicts: &[Verdict]| {
        let mut led = ledger(req(op, 100));
        led.place(0, 0, placed);
        verdicts.iter().for_each(|&v| led.judged(0, v));
        led.reqs[0].delivered = delivered;
        succeeded(&mut led, 0);
        broken(&mut led)
    };
    let early = Some(Oracle::CompletionAfterPlacement);
    for (op, times) in [(Opcode::Send, 1), (Opcode::WriteImm, 1), (Opcode::Write, 0)] {
        assert_eq!(ends(op, 100, times, &[Verdict::Ok]), None, "{op:?}");
        assert_eq!(ends(op, 99, times, &[Verdict::Ok]), early, "{op:?}: a byte is missing");
        let unjudged = ends(op, 100, times, &[Verdict::BadQpn]);
        assert_eq!(unjudged, Some(Oracle::Verdict), "{op:?}: no packet was accepted");
    }
    assert_eq!(ends(Opcode::Send, 100, 0, &[Verdict::Ok]), early, "nobody was told");
    assert_eq!(ends(Opcode::Send, 100, 2, &[Verdict::Ok]), early, "told twice");
    let retried = [Verdict::Rnr, Verdict::Rnr, Verdict::Ok];
    assert_eq!(ends(Opcode::Send, 100, 1, &retried), None, "retries without a limit");
    let mut led = ledger(crate::ledger::Req { rnr_retry: 1, delivered: 1, ..req(Opcode::Send, 0) });
    retried.iter().for_each(|&v| led.judged(0, v));
    succeeded(&mut led, 0);
    assert_eq!(broken(&mut led), Some(Oracle::Verdict), "one retry more than were allowed");
    let mut led = ledger(crate::ledger::Req { datagram: true, ..req(Opcode::Send, 100) });
    succeeded(&mut led, 0);
    assert_eq!(broken(&mut led), None, "a datagram has ended when it was sent");
}

#[test]
fn an_error_follows_from_a_verdict_that_was_given() {
    let ends = |verdicts: &[Verdict], status| {
        let mut led = ledger(crate::ledger::Req { rnr_retry: 1, ..req(Opcode::Write, 100) });
        verdicts.iter().for_each(|&v| led.judged(0, v));
        failed(&mut led, 0, status);
        broken(&mut led)
    };
    for (verdict, status) in [
        (Verdict::BadQpn, Status::RemoteBadDestQpn),
        (Verdict::BadQkey, Status::RemoteBadDestQpn),
        (Verdict::BadLength, Status::RemoteBadLength),
        (Verdict::BadRkey, Status::RemoteBadAddress),
        (Verdict::UnknownPeer, Status::RemoteUnknownPeer),
        (Verdict::FeatureMismatch, Status::RemoteFeatureMismatch),
    ] {
        assert_eq!(ends(&[verdict], status), None, "{verdict:?}");
        assert_eq!(ends(&[Verdict::Ok, verdict], status), None, "{verdict:?} of a later packet");
        let other = ends(&[Verdict::Ok], status);
        assert_eq!(other, Some(Oracle::Verdict), "{status:?} without {verdict:?}");
    }
    let rnr = |n: usize| ends(&vec![Verdict::Rnr; n], Status::RemoteRnr);
    assert_eq!([rnr(1), rnr(2), rnr(3)], [Some(Oracle::Verdict), None, Some(Oracle::Verdict)]);
    assert_eq!(ends(&[Verdict::Ok], Status::Ok), Some(Oracle::Verdict), "that is no error");
    assert_eq!(ends(&[], Status::Flushed), None, "local events need no verdict");
}

#[test]
fn some_errors_need_what_happened_outside_of_the_request() {
    let ends = |status, op, change: &dyn Fn(&mut Ledger)| {
        let mut led = ledger(req(op, 100));
        change(&mut led);
        failed(&mut led, 0, status);
        broken(&mut led)
    };
    let wrong = Some(Oracle::Verdict);
    assert_eq!(ends(Status::RemoteAbort, Opcode::Send, &|_| {}), wrong, "nothing was disturbed");
    assert_eq!(ends(Status::RemoteAbort, Opcode::Send, &|l| l.disturbed = true), None);
    assert_eq!(ends(Status::RemoteBadAddress, Opcode::Read, &|_| {}), wrong);
    let gone = ends(Status::RemoteBadAddress, Opcode::Read, &|l| l.reqs[0].region_gone = true);
    assert_eq!(gone, None, "the responder said that the region had gone");
    let long =
        |op, delivered| ends(Status::LocalBadLength, op, &|l| l.reqs[0].delivered = delivered);
    assert_eq!(long(Opcode::Send, 0), None, "too long for the path");
    assert_eq!(long(Opcode::Send, 1), wrong, "but it has arrived");
    assert_eq!(long(Opcode::Write, 0), wrong, "writes are cut");
}

/// The completion of the request that [`posted`] makes.
fn completion(qpn: Qpn) -> Completion {
    Completion {
        wr_id: 7,
        status: Status::Flushed,
        kind: CompletionKind::Send(WrHandle(0), Opcode::Write),
        qpn,
        byte_len: 100,
        imm: None,
        src_qpn: Qpn(0),
        src_ah: AhId(0),
        src_ip: None,
    }
}

/// An engine with one request outstanding, as far as the model knows.
fn posted() -> (Node, Ledger, Qpn) {
    let (_, mut n, mut led) = node();
    let qpn = n.mirror.qps[0].qpn;
    let mut r = req(Opcode::Write, 100);
    (r.qpn, r.wr.wr_id) = (qpn, 7);
    led.reqs.push(r);
    n.wrs = vec![Some(0)];
    (n.mirror.sends, n.mirror.qps[0].sends) = (1, 1);
    (n, led, qpn)
}

#[test]
fn a_completion_is_of_an_outstanding_request_and_comes_once() {
    let ends = |c: &dyn Fn(&mut Completion)| {
        let (mut n, mut led, qpn) = posted();
        let mut of = completion(qpn);
        c(&mut of);
        let CompletionKind::Send(handle, op) = of.kind else { panic!("of a send") };
        n.send_done(&mut led, &of, handle, op);
        broken(&mut led)
    };
    let wrong = Some(Oracle::Completion);
    assert_eq!(ends(&|_| {}), None);
    assert_eq!(ends(&|c| c.wr_id = 8), wrong);
    assert_eq!(ends(&|c| c.byte_len = 99), wrong);
    let kind = |handle, op| CompletionKind::Send(WrHandle(handle), op);
    assert_eq!(ends(&|c| c.kind = kind(0, Opcode::Send)), wrong);
    assert_eq!(ends(&|c| c.kind = kind(1, Opcode::Write)), wrong, "no such request");
    assert_eq!(ends(&|c| c.qpn = Qpn(999)), Some(Oracle::Destroyed));
    let (mut n, mut led, qpn) = posted();
    n.send_done(&mut led, &completion(qpn), WrHandle(0), Opcode::Write);
    assert_eq!((broken(&mut led), led.tally.failed, n.mirror.sends), (None, 1, 0));
    n.send_done(&mut led, &completion(qpn), WrHandle(0), Opcode::Write);
    assert_eq!(broken(&mut led), wrong, "a second time");
}

#[test]
fn a_request_is_released_with_its_queue_pair_and_not_before() {
    let (mut n, mut led, _) = posted();
    n.released(&mut led, WrHandle(0));
    assert_eq!(broken(&mut led), Some(Oracle::Destroyed), "its queue pair is there");
    let (mut n, mut led, _) = posted();
    n.mirror.qps.clear();
    n.released(&mut led, WrHandle(0));
    assert_eq!((broken(&mut led), led.reqs[0].state), (None, ReqState::Released));
    n.released(&mut led, WrHandle(0));
    assert_eq!(broken(&mut led), Some(Oracle::Completion), "a second time");
    let (mut n, mut led, qpn) = posted();
    n.purged(&mut led, Qpn(qpn.0 + 999));
    assert_eq!((n.mirror.sends, led.reqs[0].state), (1, ReqState::Live), "of another one");
    n.purged(&mut led, qpn);
    assert_eq!((n.mirror.sends, led.reqs[0].state), (0, ReqState::Released));
}

#[test]
fn receives_complete_in_order_and_after_their_bytes() {
    let done = |placed: u32, change: &dyn Fn(&mut Completion)| {
        let (mut n, mut led, qpn) = posted();
        let kind = CompletionKind::Recv(RecvHandle { qp: qpn, index: 0 });
        let right = Completion { kind, status: Status::Ok, ..completion(qpn) };
        led.reqs[0].wr.op = Opcode::Send;
        led.place(0, 0, placed);
        n.mirror.expected.push_back(Expected { completion: right, request: Some(0) });
        let mut is = right;
        change(&mut is);
        n.recv_done(&mut led, &is);
        broken(&mut led)
    };
    assert_eq!(done(100, &|_| {}), None);
    assert_eq!(done(99, &|_| {}), Some(Oracle::CompletionAfterPlacement));
    assert_eq!(done(100, &|c| c.wr_id += 1), Some(Oracle::Receive), "of a later receive");
    assert_eq!(done(100, &|c| c.imm = Some(1)), Some(Oracle::Receive));
    let (mut n, mut led, qpn) = posted();
    n.recv_done(&mut led, &completion(qpn));
    assert_eq!(broken(&mut led), Some(Oracle::Receive), "nothing arrived");
}

#[test]
fn a_peer_that_was_just_heard_is_not_silent() {
    let (_, mut n, mut led) = node();
    let peer = crate::packet::endpoint_of(1, 0);
    n.silent(&mut led, peer);
    assert_eq!(broken(&mut led), None, "never heard");
    let after = n.cfg.loss.unresponsive_after;
    for (ago, right) in [(after.0, None), (after.0 - 1, Some(Oracle::Verdict))] {
        led.now = 2 * after.0 * 1_000;
        let now = n.clock.read(led.now);
        n.heard.insert(peer, Time(now.0 - ago));
        n.silent(&mut led, peer);
        assert_eq!(broken(&mut led), right, "heard {ago} ns ago");
    }
}

#[test]
fn slots_counters_and_statistics_are_those_of_the_model() {
    let (_, mut n, mut led) = node();
    n.reserved_check(&mut led);
    n.accounts_check(&mut led);
    assert_eq!(broken(&mut led), None, "of a new engine");
    n.mirror.sends += 1;
    n.reserved_check(&mut led);
    assert_eq!(broken(&mut led), Some(Oracle::CqReservation), "a slot that nobody reserved");
    for k in 0..3 {
        let (_, mut n, mut led) = node();
        let counts = [&mut n.counts.0, &mut n.counts.1, &mut n.counts.2];
        *counts.into_iter().nth(k).unwrap() += 1;
        n.accounts_check(&mut led);
        assert_eq!(broken(&mut led), Some(Oracle::Counters), "number {k}");
    }
}
