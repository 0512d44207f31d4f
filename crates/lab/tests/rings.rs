//! Hosts that are slower than their link, with transports that do not know it.

use crate::common::{cases, run_text, spec};
use srd_fabric::DropReason;
use srd_lab::spec::SpecFile;
use srd_lab::{RunResult, jobs_of, run, run_all};
use std::path::Path;

const PAIR: &str = "shape = \"dumbbell\"\nleft = 2\nright = 2\nlink_delay_ns = 500";

/// Flows of 2 MB from host 0 on the left to the first host on the right, with this `[host]`.
fn text(transport: &str, host: &str, more: &str) -> String {
    let rest = format!("transport = \"{transport}\"\ntime_ms_max = 3_000\n{more}\n{host}");
    let network =
        if transport == "tcp" { format!("{PAIR}\necn_bytes_min = 0") } else { PAIR.into() };
    spec(
        &network,
        "pattern = \"leaf-pairs\"\npairs = 1\nflows_per_pair = 4\nbytes = 2_000_000",
        &rest,
    )
}

fn ring(r: &RunResult) -> srd_fabric::RingStats {
    assert_eq!((r.unfinished(), r.failures, r.rings.len()), (0, 0, 1));
    let s = r.rings[0].stats;
    assert_eq!(s.arrived_bytes, s.written_bytes + s.waiting_bytes + s.dropped_bytes);
    assert_eq!(s.dropped, r.drops.of(DropReason::HostFull));
    s
}

#[test]
fn behind_a_slow_ring_flows_take_the_time_that_the_ring_needs() {
    for transport in ["srd", "tcp"] {
        for placement in ["card", "host"] {
            let host = format!(
                "host = {{ drain_gbps = 50, ring_bytes = 4_000_000, placement = \"{placement}\" }}"
            );
            let r = run_text(&text(transport, &host, ""), 1);
            let s = ring(&r);
            let over = r.summary.over_floor.max;
            // 8 MB at 50 Gb/s take 1.28 ms, of which a card may hold back 4 MB.
            let floor = if placement == "card" { 650.0 } else { 1_300.0 };
            assert!(
                (floor - 30.0..floor + 60.0).contains(&r.summary.floor_us),
                "{}",
                r.summary.floor_us
            );
            assert!(over > 0.99, "{transport}, {placement}: {over}");
            assert!(s.written_bytes >= 8_000_000 - 4_000_000 * u64::from(placement == "card"));
            // SRD is told to keep the ring short (`engine.host_policy = "budget"`).
            let least = if transport == "srd" { 20_000 } else { 100_000 };
            let most = s.depth_bytes_max;
            assert!(most > least, "{transport}, {placement}: at most {most} bytes waited");
        }
    }
}

#[test]
fn a_ring_that_is_full_drops_and_the_flows_recover() {
    for transport in ["srd", "tcp"] {
        for placement in ["card", "host"] {
            let host = format!(
                "host = {{ drain_gbps = 20, ring_bytes = 60_000, placement = \"{placement}\" }}"
            );
            let r = run_text(&text(transport, &host, ""), 1);
            let s = ring(&r);
            assert!(
                s.dropped > 0 && s.depth_bytes_max <= 60_000,
                "{transport}, {placement}: {s:?}"
            );
            assert_eq!(r.drops.total() - r.drops.at_hosts(), 0, "nothing is lost on the way");
        }
    }
}

#[test]
fn a_host_as_fast_as_its_link_changes_no_delivery() {
    for transport in ["srd", "tcp"] {
        let with = run_text(&text(transport, "host = {}", ""), 3);
        let without = run_text(&text(transport, "", ""), 3);
        assert_eq!((with.hash, with.fct_ps), (without.hash, without.fct_ps.clone()));
        // A ring at line rate, even before the transport, never holds more than the packet that
        // arrives.
        let host = "host = { placement = \"host\", hosts = [2] }";
        assert_eq!(run_text(&text(transport, host, ""), 3).hash, without.hash);
    }
}

#[test]
fn pulses_and_slow_times_are_those_of_the_spec() {
    let host =
        "host = { drain_gbps = 100, ring_bytes = 8_000_000, placement = \"host\", hosts = [2] }";
    let idle = |fault: &str| {
        let r = run_text(&text("srd", host, &format!("fault = [{{ {fault} }}]")), 1);
        ring(&r);
        r.summary.fct_us.max
    };
    let well = run_text(&text("srd", host, ""), 1).summary.fct_us.max;
    // Half of the rate is missing for 200 us, which costs 100 us.
    let slow = "kind = \"host-slow\", host = 2, at_us = 350, percent = 50, for_us = 200";
    let pulses = "kind = \"host-pulse\", host = 2, at_us = 350, percent = 50, slow_us = 50, \
                  fast_us = 25, times = 4";
    for fault in [slow, pulses] {
        // The sender's rate recovers gradually.
        let later = idle(fault) - well;
        assert!((90.0..300.0).contains(&later), "{fault}: {later} us later");
    }
}

#[test]
fn what_is_watched_shows_the_ring_and_changes_nothing() {
    let host = "host = { drain_gbps = 40, ring_bytes = 100_000 }";
    let mut watched = cases(&text("srd", host, "")).remove(0);
    let plain = run(&watched, Path::new("."), 1).unwrap();
    watched.measure.observe = true;
    watched.measure.interval_us = 10;
    let r = run(&watched, Path::new("."), 1).unwrap();
    assert_eq!(r.hash, plain.hash);
    let o = r.observation.as_ref().unwrap();
    let series = &o.rings[0];
    assert_eq!((o.rings.len(), series.host), (1, 2));
    assert_eq!(series.depth_max.len(), o.intervals.len());
    assert_eq!(series.drops.iter().sum::<u64>(), ring(&r).dropped);
    let most = series.depth_max.iter().max().copied();
    assert!(most > Some(90_000) && most <= Some(100_000), "{most:?}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let fault = |f: &str| format!("fault = [{{ {f}, host = 2, at_us = 1, percent = 50 }}]");
    let slow = fault("kind = \"host-slow\"");
    let pulse = fault("kind = \"host-pulse\", slow_us = 1, fast_us = 1, times = 0");
    for (transport, host, more, words) in [
        ("srd", "host = { drain_gbps = 0 }", "", "host.drain_gbps = 0: give a rate above 0"),
        ("srd", "host = { drain_gbps = -3 }", "", "host.drain_gbps = -3"),
        ("srd", "host = { drain_gbps = 101 }", "", "above network.link_gbps = 100"),
        ("srd", "host = { ring_bytes = 4_000 }", "", "ring_bytes = 4000 holds no packet of 4"),
        ("tcp", "host = { ring_bytes = 4_100 }", "", "ring_bytes = 4100 holds no packet of 41"),
        ("srd", "host = { hosts = [] }", "", "host.hosts = []"),
        ("srd", "host = { hosts = [7] }", "", "host 7 does not exist"),
        ("srd", "host = { placement = \"moon\" }", "", "moon"),
        ("srd", "host = { drain = 3 }", "", "unknown field `drain`"),
        ("saa", "host = {}", "", "lose nothing"),
        ("srd", "", &slow, "host-slow: it changes the rate of a host's ring; give a table [host]"),
        ("srd", "host = {}", &slow, "drain_gbps"),
        ("srd", "host = { drain_gbps = 9, hosts = [1] }", &slow, "host 2 has no ring"),
        ("srd", "host = { drain_gbps = 9 }", &pulse, "times from 1 to"),
        ("srd", "host = { drain_gbps = 9 }", &slow.replace("50", "0"), "percent = 0: give 1 to"),
    ] {
        let text = text(transport, host, more).replace("ecn_bytes_min = 0", "");
        let e = SpecFile::parse(&text, Path::new("."), false)
            .and_then(|file| {
                file.cases.iter().try_for_each(srd_lab::check)?;
                run_all(&jobs_of(&file, None), 1, &|_| ()).map(|r| r.len().to_string())
            })
            .unwrap_err();
        assert!(e.contains(words), "{host} {more}: {e}");
    }
    // The memory behind a socket may be faster than the link.
    let host = "host = { drain_gbps = 300, placement = \"host\" }";
    assert_eq!(run_text(&text("srd", host, ""), 1).unfinished(), 0);
}
