use super::*;

fn counted(n: u64) -> Counted {
    Counted {
        tx_packets: 10 * n,
        retransmitted: n,
        spurious: n,
        probes: n,
        timeouts: n,
        stalls: n,
        paths_retired: n,
        duplicates_dropped: n,
        socket_drops: n,
        memory_bytes: n,
        rate_bits_per_sec: n,
        srtt_ns: n,
        rtt_ns_min: n / 2,
    }
}

#[test]
fn the_last_block_of_a_run_may_be_shorter() {
    let run = Run {
        run: 1,
        start_ns: 500,
        block_bytes: 8900,
        blocks: 3,
        last_bytes: 17,
        stop_ns: 400,
        pace_ns: 0,
    };
    assert_eq!([0, 1, 2].map(|n| run.bytes_of(n)), [8900, 8900, 17]);
    // Without a number of blocks none is the last one.
    let endless = Run { blocks: 0, ..run };
    assert_eq!(endless.bytes_of(u64::MAX - 1), 8900);
    assert_eq!(run.length(), Duration::ZERO, "it stops before it starts");
}

#[test]
fn counts_are_summed_and_the_slowest_peer_is_kept_whole() {
    let mut sum = counted(3);
    sum.add(&counted(5));
    assert_eq!(sum.tx_packets, 80);
    let counts = [sum.retransmitted, sum.spurious, sum.probes, sum.timeouts, sum.stalls];
    assert_eq!(counts, [8; 5]);
    assert_eq!([sum.paths_retired, sum.duplicates_dropped, sum.socket_drops], [8; 3]);
    assert_eq!([sum.memory_bytes, sum.rate_bits_per_sec], [5, 5]);
    assert_eq!((sum.srtt_ns, sum.rtt_ns_min), (5, 2), "both of the same peer");
    sum.add(&Counted { rtt_ns_min: 1, ..counted(4) });
    assert_eq!((sum.srtt_ns, sum.rtt_ns_min), (5, 2));
}

#[test]
fn an_increase_leaves_the_values_that_are_no_counts() {
    let since = counted(9).since(&counted(4));
    assert_eq!(
        since,
        Counted { memory_bytes: 9, rate_bits_per_sec: 9, srtt_ns: 9, rtt_ns_min: 4, ..counted(5) }
    );
    let text = Counted { srtt_ns: 1_500_000, ..since }.text();
    assert!(text.starts_with("50 packets, 5 of them probes, 5 retransmitted"), "{text}");
    assert!(text.contains("RTT 1.50 ms"), "{text}");
}

#[test]
fn a_message_is_one_line() {
    let failed = Report::Failed("line one\nline two".into());
    let text = serde_json::to_string(&failed).unwrap();
    assert!(!text.contains('\n'), "{text}");
    let Ok(Report::Failed(why)) = serde_json::from_str(&text) else { panic!("{text}") };
    assert_eq!(why, "line one\nline two");
    assert!(serde_json::from_str::<Order>("\"Stop\"").is_err());
}
