use super::*;
use srd_core::config::PORT_BASE_DEFAULT;

const LEN: u32 = 100;

/// A job that is outstanding since 1,000 ns, between two honest members.
fn job() -> Job {
    Job {
        from: 0,
        to: 1,
        dst: Endpoint { ip: super::super::plan::ip_of(1, 0), port: PORT_BASE_DEFAULT },
        dst_qpn: Qpn(1),
        op: Opcode::Write,
        len: LEN,
        rkey: 7,
        raddr: 4_096,
        main: true,
        honest: true,
        must_end: true,
        refused: None,
        over: false,
        flow: 0,
        posted_at: 1_000,
        placed: Cover::default(),
        ended: None,
    }
}

fn flow() -> Flow {
    Flow {
        from: 0,
        to: 1,
        depth: 2,
        honest: true,
        must_end: true,
        start_at: 500,
        each_ns: 0,
        left: 3,
        open: 1,
        bytes: 0,
        pieces: 0,
        last_at: 0,
        pause_ns: 0,
        faulty: false,
        compared: true,
        ops: &[Opcode::Write],
        len: LEN,
    }
}

/// A board with one job and its flow; successes from 2,000 to 9,000 ns count.
fn board(job: Job) -> Board {
    let (jobs, flows) = (vec![job], vec![flow()]);
    Board { jobs, flows, count_from: 2_000, load_until: 9_000, ..Board::default() }
}

/// The oracle that is broken when `job` ends with `status`.
fn broken(job: Job, status: Status) -> Option<Oracle> {
    let op = job.op;
    let mut b = board(job);
    b.ended(5_000, 0, op, status);
    b.wrong.map(|v| {
        assert_eq!(v.at, 5_000 * NS, "the time of the violation");
        v.oracle
    })
}

fn whole(mut job: Job) -> Job {
    assert!(job.placed.add(0, LEN));
    job
}

#[test]
fn honest_work_succeeds_with_all_its_bytes_and_does_nothing_else() {
    assert_eq!(broken(whole(job()), Status::Ok), None);
    assert_eq!(broken(job(), Status::Ok), Some(Oracle::CompletionAfterPlacement), "no byte");
    let mut half = job();
    assert!(half.placed.add(0, LEN / 2));
    assert_eq!(broken(half, Status::Ok), Some(Oracle::CompletionAfterPlacement), "half of them");
    for status in [Status::RemoteAbort, Status::LocalUnrespRemote, Status::RemoteBadAddress] {
        assert_eq!(broken(whole(job()), status), Some(Oracle::Verdict), "{status:?}");
    }
}

#[test]
fn work_with_a_liar_may_end_in_any_way_but_a_read_has_its_bytes() {
    let lied = || Job { honest: false, ..job() };
    for status in [Status::Ok, Status::RemoteAbort, Status::RemoteBadAddress] {
        assert_eq!(broken(lied(), status), None, "{status:?}: a write may be lost");
    }
    let read = || Job { op: Opcode::Read, ..lied() };
    assert_eq!(broken(read(), Status::Ok), Some(Oracle::CompletionAfterPlacement));
    assert_eq!(broken(whole(read()), Status::Ok), None);
    assert_eq!(broken(read(), Status::RemoteAbort), None);
}

#[test]
fn who_must_be_refused_ends_with_that_status() {
    let refused = || Job { honest: false, refused: Some(Status::RemoteBadAddress), ..whole(job()) };
    assert_eq!(broken(refused(), Status::RemoteBadAddress), None);
    assert_eq!(broken(refused(), Status::Ok), Some(Oracle::Verdict));
    assert_eq!(broken(refused(), Status::RemoteAbort), Some(Oracle::Verdict));
}

#[test]
fn what_is_too_long_for_its_path_may_be_refused_if_nothing_of_it_arrived() {
    let over = || Job { over: true, ..job() };
    assert_eq!(broken(over(), Status::LocalBadLength), None);
    assert_eq!(broken(whole(over()), Status::LocalBadLength), Some(Oracle::Verdict));
    assert_eq!(broken(whole(over()), Status::Ok), None, "or it fits after all");
    assert_eq!(broken(job(), Status::LocalBadLength), Some(Oracle::Verdict), "it is not too long");
}

#[test]
fn a_job_ends_once_and_as_what_it_was() {
    let mut b = board(whole(job()));
    b.ended(5_000, 0, Opcode::Write, Status::Ok);
    assert!(b.wrong.is_none());
    b.ended(6_000, 0, Opcode::Write, Status::Ok);
    let twice = b.wrong.take().map(|v| (v.at, v.oracle));
    assert_eq!(twice, Some((6_000 * NS, Oracle::Completion)));
    let mut b = board(whole(job()));
    b.ended(5_000, 0, Opcode::Send, Status::Ok);
    assert_eq!(b.wrong.map(|v| v.oracle), Some(Oracle::Completion));
}

#[test]
fn the_first_violation_is_kept() {
    let mut b = Board::default();
    b.fail(3, Oracle::Verdict, "first".into());
    b.fail(4, Oracle::Placement, "second".into());
    let first = Violation { oracle: Oracle::Verdict, at: 3 * NS, what: "first".into() };
    assert_eq!(b.wrong, Some(first));
}

#[test]
fn what_counts_is_honest_and_succeeds_while_the_load_lasts() {
    let counted = |at: u64, job: Job, status| {
        let op = job.op;
        let mut b = board(job);
        b.ended(at, 0, op, status);
        let f = &b.flows[0];
        assert_eq!(f.open, 0, "a place is free for the next");
        (f.bytes, f.pieces)
    };
    let all = (u64::from(LEN), 1);
    assert_eq!(counted(5_000, whole(job()), Status::Ok), all);
    assert_eq!(counted(9_000, whole(job()), Status::Ok), all, "the last moment counts");
    for (at, why) in [(2_000, "too early"), (9_001, "too late")] {
        assert_eq!(counted(at, whole(job()), Status::Ok), (0, 0), "{why}");
    }
    assert_eq!(counted(5_000, whole(job()), Status::RemoteAbort), (0, 0), "an error");
    let lied = Job { honest: false, ..whole(job()) };
    assert_eq!(counted(5_000, lied, Status::Ok), (0, 0), "a liar's");
}

#[test]
fn a_flow_posts_from_its_start_up_to_its_depth_and_number() {
    assert!(flow().wants(500) && !flow().wants(499));
    assert!(!Flow { open: 2, ..flow() }.wants(900), "as deep as it may be");
    assert!(!Flow { left: 0, ..flow() }.wants(900), "no more are to come");
}

#[test]
fn each_end_of_a_job_changes_the_hash() {
    let hash = |at, status| {
        let mut b = board(whole(job()));
        b.ended(at, 0, Opcode::Write, status);
        b.hash
    };
    let hashes =
        [hash(5_000, Status::Ok), hash(5_001, Status::Ok), hash(5_000, Status::RemoteAbort)];
    assert_eq!(hashes[0], hash(5_000, Status::Ok), "the same end, the same hash");
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
}

#[test]
fn bytes_are_those_of_their_request_or_of_the_region_that_is_read() {
    let bytes = |id, job: &Job, offset| bytes_of(id, job, offset, 64).collect::<Vec<u8>>();
    let write = job();
    assert_eq!(bytes(3, &write, 10)[..54], bytes(3, &write, 0)[10..], "a later part of the same");
    assert_ne!(bytes(3, &write, 0), bytes(4, &write, 0), "another request");
    let read = Job { op: Opcode::Read, ..job() };
    assert_eq!(bytes(3, &read, 0), bytes(4, &read, 0), "one region");
    let region: Vec<u8> = (read.raddr..read.raddr + 64).map(region_byte).collect();
    assert_eq!(bytes(3, &read, 0), region);
}
