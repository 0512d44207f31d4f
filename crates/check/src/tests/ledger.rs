//! The ledger of requests: bytes placed, verdicts, counters.

use crate::cover::Cover;
use crate::ledger::{Ledger, NO_CREDIT, Oracle, Req, ReqState, Tally};
use crate::tests::req;
use crate::trace::Trace;
use srd_core::wire::Verdict;
use srd_core::{Opcode, Status};

fn ledger(reqs: Vec<Req>) -> Ledger {
    Ledger { reqs, ..Ledger::default() }
}

#[test]
fn bytes_are_placed_once_and_within_the_request() {
    let mut l = ledger(vec![req(Opcode::Write, 100)]);
    for (at, len) in [(0, 40), (60, 40), (40, 20)] {
        l.place(0, at, len);
    }
    assert_eq!((l.violation.clone(), l.reqs[0].placed.total()), (None, 100));
    for (at, len) in [(0, 1), (99, 1), (100, 1), (99, 2), (u32::MAX, u32::MAX)] {
        let mut l = ledger(vec![req(Opcode::Write, 100)]);
        l.place(0, 0, 100);
        l.place(0, at, len);
        let v = l.violation.expect("placed twice, or beyond the end");
        assert_eq!(v.oracle, Oracle::Placement);
        assert!(v.what.contains("engine 3") && v.what.contains("100 bytes"), "{}", v.what);
    }
    let mut l = ledger(vec![req(Opcode::Send, 0)]);
    l.place(0, 0, 0);
    assert_eq!(l.violation, None, "a message without bytes arrives, too");
}

#[test]
fn the_first_broken_promise_counts() {
    let mut l = ledger(vec![]);
    l.now = 5;
    l.require(true, Oracle::Window, || panic!("not asked for"));
    assert_eq!(l.violation, None);
    l.require(false, Oracle::Window, || "first".into());
    l.now = 9;
    l.fail(Oracle::Paths, "second".into());
    let v = l.violation.unwrap();
    assert_eq!((v.oracle, v.at, v.what.as_str()), (Oracle::Window, 5, "first"));
}

#[test]
fn lines_are_made_only_where_somebody_reads_them() {
    let mut l = ledger(vec![]);
    l.note(|| panic!("nobody reads it"));
    l.trace = Some(Box::<Trace>::default());
    l.now = 2_500_000;
    l.note(|| "something".into());
    l.fail(Oracle::Ack, "wrong".into());
    let lines = &l.trace.as_ref().unwrap().lines;
    assert_eq!(lines[0].trim(), "2.500 us  something");
    assert!(lines[1].ends_with("VIOLATION Ack: wrong"), "{lines:?}");
}

#[test]
fn the_hash_is_of_what_happened_in_which_order_and_when() {
    let hash = |steps: &[(u64, u64, u64)]| {
        let mut l = ledger(vec![]);
        for (now, a, b) in steps {
            l.now = *now;
            l.fold(*a, *b);
        }
        l.hash
    };
    let base = hash(&[(1, 2, 3), (4, 5, 6)]);
    assert_eq!(base, hash(&[(1, 2, 3), (4, 5, 6)]));
    for other in [
        hash(&[(1, 2, 3), (4, 5, 7)]),
        hash(&[(1, 2, 3), (4, 6, 6)]),
        hash(&[(1, 2, 3), (5, 5, 6)]),
        hash(&[(4, 5, 6), (1, 2, 3)]),
        hash(&[(1, 2, 3)]),
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn verdicts_are_remembered_and_not_ready_is_counted() {
    let mut l = ledger(vec![req(Opcode::Send, 10)]);
    assert!(!l.reqs[0].judged(Verdict::Ok));
    for v in [Verdict::Rnr, Verdict::Rnr, Verdict::Ok] {
        l.judged(0, v);
    }
    let r = &l.reqs[0];
    assert!(r.judged(Verdict::Ok) && r.judged(Verdict::Rnr) && !r.judged(Verdict::Busy));
    assert_eq!((r.rnr, l.tally.rnr), (2, 2));
}

#[test]
fn messages_complete_a_receive_and_the_rest_does_not() {
    for (op, message) in [
        (Opcode::Send, true),
        (Opcode::SendImm, true),
        (Opcode::WriteImm, true),
        (Opcode::Write, false),
        (Opcode::Read, false),
    ] {
        assert_eq!(req(op, 1).is_message(), message, "{op:?}");
    }
}

#[test]
fn a_credit_is_held_until_the_work_is_done_or_ended() {
    let holds = |change: fn(&mut Req), op: Opcode| {
        let mut r = req(op, 10);
        change(&mut r);
        r.holds_credit(1)
    };
    let both = |change, want: [bool; 2]| {
        assert_eq!([holds(change, Opcode::Read), holds(change, Opcode::WriteImm)], want);
    };
    both(|_| (), [true, true]);
    both(|r| r.state = ReqState::Done(Status::Ok), [false, false]);
    both(|r| r.state = ReqState::Orphan, [false, false]);
    both(|r| r.credit = Some(2), [false, false]);
    both(|r| r.credit = None, [false, false]);
    both(|r| r.credit = Some(NO_CREDIT), [false, false]);
    // A read is complete when its bytes are placed, a write with immediate when that is delivered.
    both(|r| assert!(r.placed.add(0, 10)), [false, true]);
    both(|r| assert!(r.placed.add(0, 9)), [true, true]);
    both(|r| r.delivered = 1, [true, false]);
    both(|r| r.region_gone = true, [false, true]);
    // RNR: the write keeps its credit until the retry, the read returns it.
    both(|r| r.verdicts = 1 << Verdict::Rnr as u16, [false, true]);
    both(|r| r.verdicts = 1 << Verdict::Ok as u16, [true, true]);
    both(|r| r.verdicts = 1 << Verdict::BadRkey as u16, [false, false]);
    // With limited retries, one RNR too many ends it.
    both(|r| (r.rnr_retry, r.rnr) = (2, 2), [true, true]);
    both(|r| (r.rnr_retry, r.rnr) = (2, 3), [false, false]);
    both(|r| (r.rnr_retry, r.rnr) = (7, 1000), [true, true]);
}

#[test]
fn sums_leave_no_number_out() {
    let one = Tally {
        packets: 1,
        received: 2,
        requests: 3,
        completed: 4,
        failed: 5,
        judged: 6,
        retransmitted: 7,
        sizes: 8,
        recalls: 9,
        rnr: 10,
        restarts: 11,
        stale: 12,
        forged: 13,
        leaps: 14,
        refused: 15,
        overflowed: 16,
        churned: 17,
        denials: 18,
    };
    let mut sum = one;
    sum.add(&one);
    sum.add(&Tally::default());
    // As text, because a field forgotten in `add` would be forgotten here as well.
    let text = format!("{sum:?}");
    let numbers: Vec<u64> =
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
    assert_eq!(numbers, (1..=18).map(|n| 2 * n).collect::<Vec<u64>>(), "{text}");
}

#[test]
fn a_cover_takes_ranges_in_any_order() {
    let mut c = Cover::default();
    assert!(c.add(10, 10) && c.add(30, 10) && c.add(20, 10), "what lies between joins them");
    assert_eq!(c.total(), 30);
    for (at, len) in [(10, 1), (39, 1), (5, 6), (39, 5), (0, 100), (25, 2)] {
        assert!(!c.add(at, len), "{at}+{len}");
    }
    assert_eq!(c.total(), 30, "what is refused is not counted");
    assert!(c.add(0, 10) && c.add(40, 1));
    assert!(c.add(15, 0) && c.add(500, 0), "nothing is nowhere");
    assert_eq!(c.total(), 41);
}
