//! One host, one sender: engines of one host that share what they know send as one engine would,
//! in virtual time and through the table that processes share. Without credits, which would limit
//! the senders as well; what receivers grant is looked at by itself.

use crate::common;
use srd_lab::{jobs_of, run_all};

/// Four hosts send 12 x 500 KB each into a fifth, from one engine each and from twelve.
const SPEC: &str = r#"
name = "one-sender"
title = "one engine and twelve"
seeds = 3
time_ms_max = 1_000

[network]
shape = "fat-tree"
k = 4

[engine]
defaults = "sockets"
credits = false

[workload]
pattern = "incast"
senders = 4
flows_per_pair = 12
bytes = 500_000

[[cases]]
case = "one engine"
[[cases]]
case = "shared"
engine = { senders_per_host = 12, receivers_per_host = 12 }
[[cases]]
case = "alone"
engine = { senders_per_host = 12, receivers_per_host = 12, host_shared = false }
[[cases]]
case = "shared, credits"
engine = { senders_per_host = 12, receivers_per_host = 12, credits = true }
[[cases]]
case = "alone, credits"
engine = { senders_per_host = 12, receivers_per_host = 12, host_shared = false, credits = true }
"#;

/// What was seen in a case: retransmissions per thousand data packets, and the latest flow in us.
#[derive(Clone, Copy, Debug)]
struct Seen {
    resent_permille: u64,
    us_max: u64,
}

fn seen(case: &str) -> Seen {
    let file = common::file_on_slow_wires(SPEC);
    let jobs = jobs_of(&file, None).into_iter().filter(|j| j.spec.case == case);
    let results = run_all(&jobs.collect::<Vec<_>>(), 2, &|_| ()).unwrap();
    assert_eq!(results.len(), 3, "{case}");
    let (mut resent, mut sent, mut us_max) = (0, 0, 0);
    for r in &results {
        assert_eq!((r.unfinished(), r.failures), (0, 0), "{case}, seed {}", r.seed);
        resent += r.tally.retransmitted;
        sent += r.data_packets;
        us_max = r.fct_ps.iter().flatten().flatten().fold(us_max, |m, ps| m.max(ps / 1_000_000));
    }
    let seen = Seen { resent_permille: resent * 1000 / sent, us_max };
    println!("{case}: {seen:?}");
    seen
}

/// Without sharing, what twelve engines of a host send overflows the last hop: they are twelve
/// senders. With it they are one, but for the few packets of each from which it learns.
#[test]
fn twelve_engines_of_a_host_send_as_one() {
    let (one, shared, alone) = (seen("one engine"), seen("shared"), seen("alone"));
    assert!(alone.resent_permille > 50, "there is nothing to be seen here: {alone:?}");
    assert!(shared.resent_permille * 4 < alone.resent_permille, "{shared:?}, not {alone:?}");
    assert!(shared.resent_permille < one.resent_permille + 20, "{shared:?}, one: {one:?}");
    assert!(shared.us_max * 100 < one.us_max * 115, "{shared:?}, one: {one:?}");
}

/// Receivers of one host grant its link once, not each of them all of it.
#[test]
fn twelve_engines_of_a_host_grant_as_one() {
    let (shared, alone) = (seen("shared, credits"), seen("alone, credits"));
    assert!(shared.resent_permille * 4 < alone.resent_permille, "{shared:?}, not {alone:?}");
}
