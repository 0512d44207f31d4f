//! Numbers with units, specifications and their limits.

use srd_testbed::NetError;
use srd_testbed::spec::{FabricSpec, Node};
use srd_testbed::units::{bytes, duration, rate_bits, rate_text, share_ppm};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn rates_have_the_units_that_people_write() {
    for (text, want) in [
        ("8000", 8_000),
        ("8k", 8_000),
        ("200M", 200_000_000),
        ("200m", 200_000_000),
        ("200Mbit", 200_000_000),
        ("200 Mbit/s", 200_000_000),
        ("0.5G", 500_000_000),
        ("2.5Gbit", 2_500_000_000),
        ("999G", 999_000_000_000),
    ] {
        assert_eq!(rate_bits(text), Ok(want), "{text}");
    }
    // Bytes per second, too low, too high, and not a number.
    for text in ["7999", "1T", "1000G", "1G B", "M", "1..2M", ".", "1e9", "∞"] {
        let error = rate_bits(text).expect_err(text);
        assert!(error.contains(text) && error.contains("200M"), "{error}");
    }
}

#[test]
fn sizes_distinguish_powers_of_1000_and_1024() {
    for (text, want) in [
        ("0", 0),
        ("1500", 1500),
        ("1500B", 1500),
        ("1k", 1000),
        ("1KiB", 1024),
        ("1 KiB", 1024),
        ("1.5k", 1500),
        ("2M", 2_000_000),
        ("2MiB", 2_097_152),
        ("1G", 1_000_000_000),
        ("1GiB", 1_073_741_824),
    ] {
        assert_eq!(bytes(text), Ok(want), "{text}");
    }
    for text in ["", "k", "1kk", "1 T", "-5", "1000000G"] {
        assert!(bytes(text).expect_err(text).contains("not a size"));
    }
}

#[test]
fn shares_are_at_most_1() {
    for (text, want) in
        [("0", 0), ("1", 1_000_000), ("0.01", 10_000), ("1%", 10_000), ("0.5 %", 5_000)]
    {
        assert_eq!(share_ppm(text), Ok(want), "{text}");
    }
    assert_eq!(share_ppm("0.0000005"), Ok(1), "rounded, not truncated");
    for text in ["1.01", "101%", "1 permille", ""] {
        assert!(share_ppm(text).expect_err(text).contains("1% or 0.01"));
    }
}

#[test]
fn times_are_seconds_by_default() {
    for (text, want_us) in [
        ("2", 2_000_000),
        ("2s", 2_000_000),
        ("0.5", 500_000),
        ("500ms", 500_000),
        ("20us", 20),
        ("3m", 180_000_000),
        ("3min", 180_000_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_micros(want_us)), "{text}");
    }
    for text in ["1h", "s", "", "100000001"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn rates_are_shown_in_the_larger_unit() {
    assert_eq!(rate_text(200_000_000), "200 Mb/s");
    assert_eq!(rate_text(999_000_000), "999 Mb/s");
    assert_eq!(rate_text(1_000_000_000), "1 Gb/s");
    assert_eq!(rate_text(2_500_000_000), "2.5 Gb/s");
    // The displayed rate is valid input.
    for bits in [8_000, 1_500_000, 200_000_000, 2_500_000_000] {
        assert_eq!(rate_bits(&rate_text(bits).replace("b/s", "")), Ok(bits));
    }
}

/// A field out of range, and the text that the error must contain.
type Wrong = (fn(&mut FabricSpec), &'static str);

#[test]
fn every_limit_is_refused_by_name() {
    let wrong: [Wrong; 14] = [
        (|s| s.spines = 0, "--spines"),
        (|s| s.spines = 33, "--spines"),
        (|s| s.leaves = 0, "--leaves"),
        (|s| s.leaves = 17, "--leaves"),
        (|s| s.hosts = 0, "--hosts"),
        (|s| s.hosts = 65, "--hosts"),
        (|s| s.rails = 0, "--rails"),
        (|s| s.rails = 5, "--rails"),
        (|s| s.extra = 8, "additional addresses"),
        (|s| s.mtu = 1279, "--mtu"),
        (|s| s.mtu = 65_001, "--mtu"),
        (|s| s.queue_bytes = 17_999, "two packets"),
        (|s| s.nic_queue_bytes = 17_999, "two packets"),
        (|s| (s.leaves, s.hosts) = (16, 25), "namespaces are too many"),
    ];
    for (change, named) in wrong {
        let mut spec = FabricSpec::default();
        change(&mut spec);
        let error: NetError = spec.validate().expect_err(named);
        assert!(error.to_string().contains(named), "{error}");
        assert!(error.is_usage(), "the command line is wrong: {error}");
    }
    let right: [fn(&mut FabricSpec); 6] = [
        |s| s.spines = 32,
        |s| (s.leaves, s.hosts) = (16, 23),
        |s| s.hosts = 64,
        |s| (s.rails, s.extra) = (4, 7),
        |s| s.mtu = 1280,
        |s| (s.queue_bytes, s.nic_queue_bytes) = (18_000, 18_000),
    ];
    for change in right {
        let mut spec = FabricSpec::default();
        change(&mut spec);
        spec.validate().unwrap();
    }
}

#[test]
fn a_specification_survives_serialization() {
    let spec = FabricSpec {
        spines: 7,
        leaves: 3,
        hosts: 5,
        host_bits_per_sec: 1,
        uplink_bits_per_sec: 2,
        queue_bytes: 3,
        nic_queue_bytes: 4,
        mtu: 1500,
        seed: 99,
        linkdown_aware: true,
        extra: 2,
        rails: 3,
    };
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<FabricSpec>(&text).unwrap(), spec);
    assert!(serde_json::from_str::<FabricSpec>("{}").is_err(), "every field is required");
}

#[test]
fn names_of_nodes_are_unique_and_readable() {
    let spec = FabricSpec { spines: 12, leaves: 11, hosts: 12, ..FabricSpec::default() };
    let names: BTreeSet<String> = spec.nodes().iter().map(Node::to_string).collect();
    assert_eq!(names.len(), spec.nodes().len(), "h1x11 is not h11x1");
    for node in spec.nodes() {
        assert_eq!(Node::parse(&node.to_string()), Some(node));
    }
    for text in ["", "s", "s-1", "s256", "h1", "hx", "h1x", "hx1", "h1x2x3", "S1", "leaf", " s1"] {
        assert_eq!(Node::parse(text), None, "{text}");
    }
    let error = spec.node("s12").unwrap_err().to_string();
    assert!(error.contains("s0 to s11") && error.contains("h0x0"), "{error}");
}

#[test]
fn addresses_of_hosts_are_unique() {
    let spec = FabricSpec { leaves: 16, hosts: 23, rails: 4, ..FabricSpec::default() };
    spec.validate().unwrap();
    let mut seen = BTreeSet::new();
    for (l, h) in (0..spec.leaves).flat_map(|l| (0..spec.hosts).map(move |h| (l, h))) {
        assert!(seen.insert(spec.ip6(l, h)));
        for rail in 0..spec.rails {
            assert!(seen.insert(spec.rail_ip(rail, l, h)), "leaf {l} host {h} rail {rail}");
        }
        assert_eq!(spec.rail_ip(0, l, h), spec.ip(l, h), "the first rail is the host's address");
    }
}

#[test]
fn a_fabric_is_described_in_one_line() {
    let text = FabricSpec::default().describe();
    for part in ["4 spines", "2 leaves", "2 hosts", "200 Mb/s", "200 kB", "MTU 9000", "seed 1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\n'));
}
