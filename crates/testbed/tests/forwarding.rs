//! Packets reach every host over every spine in fabrics of all kinds: checked without a kernel, by
//! forwarding packets along the planned routes.

mod common;

use common::Net;
use srd_testbed::plan;
use srd_testbed::spec::{FabricSpec, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Fabrics of all kinds: smallest, uneven, with many rails, with many addresses.
fn fabrics() -> Vec<FabricSpec> {
    let of = |spines, leaves, hosts, extra, rails| {
        let spec = FabricSpec { spines, leaves, hosts, extra, rails, ..FabricSpec::default() };
        spec.validate().unwrap();
        spec
    };
    vec![
        of(1, 1, 1, 0, 1),
        of(1, 2, 1, 0, 1),
        of(4, 2, 2, 0, 1),
        of(3, 3, 2, 7, 1),
        of(2, 2, 3, 0, 4),
        of(5, 2, 2, 2, 3),
    ]
}

/// All addresses of a host, with the rail of each.
fn addresses(spec: &FabricSpec, leaf: u8, host: u8) -> Vec<(IpAddr, u8)> {
    let mut out = vec![(spec.ip(leaf, host), 0), (spec.ip6(leaf, host), 0)];
    out.extend((0..spec.extra).map(|k| (plan::extra_ip(k, leaf, host), 0)));
    out.extend((1..spec.rails).map(|r| (spec.rail_ip(r, leaf, host), r)));
    out
}

#[test]
fn packets_reach_every_address_over_every_spine() {
    for spec in fabrics() {
        let net = Net::of(&spec);
        for from in spec.host_nodes() {
            let Node::Host(leaf, _) = from else { unreachable!() };
            for to in spec.host_nodes() {
                let Node::Host(to_leaf, to_host) = to else { unreachable!() };
                for (ip, _) in addresses(&spec, to_leaf, to_host) {
                    let ways = net.ways(from, ip);
                    assert!(ways.iter().all(|w| *w.last().unwrap() == to), "{from} to {ip}");
                    let spines: BTreeSet<Node> = ways
                        .iter()
                        .flat_map(|w| w.iter().copied().filter(|n| matches!(n, Node::Spine(_))))
                        .collect();
                    let want = if leaf == to_leaf { 0 } else { usize::from(spec.spines) };
                    assert_eq!(spines.len(), want, "{from} to {ip} in {}", spec.describe());
                }
            }
        }
    }
}

#[test]
fn a_rail_is_a_network_of_its_own() {
    for spec in fabrics().into_iter().filter(|s| s.rails > 1) {
        let net = Net::of(&spec);
        for rail in 0..spec.rails {
            let (from, ip) = (Node::Host(0, 0), spec.rail_ip(rail, 1, 0));
            let route = net.boxes[&from].route(ip).unwrap();
            let dev = format!("e{rail}");
            assert!(route.hops.iter().all(|(_, d)| *d == dev), "{route:?}");
            // Packets that leave by a rail have its source address, so that answers use the same
            // rail.
            assert_eq!(route.src, Some(spec.rail_ip(rail, 0, 0)), "{route:?}");
            // Packets arrive on the rail, not on another interface of the host.
            assert_eq!(net.boxes[&Node::Host(1, 0)].own[&ip], BTreeSet::from([dev]));
            let down = net.boxes[&Node::Leaf(1)].route(ip).unwrap();
            let port = &net.peer[&(Node::Leaf(1), down.hops[0].1.clone())];
            assert_eq!((port.node, port.dev.clone()), (Node::Host(1, 0), format!("e{rail}")));
        }
    }
}

#[test]
fn routers_are_reachable_and_answer_from_the_incoming_interface() {
    let spec = FabricSpec { spines: 3, ..FabricSpec::default() };
    let net = Net::of(&spec);
    // `srd doctor` distinguishes paths by the addresses of the spines' interfaces.
    let mut seen = BTreeSet::new();
    for spine in 0..spec.spines {
        let own = &net.boxes[&Node::Spine(spine)].own;
        let v4: Vec<&IpAddr> = own.keys().filter(|ip| ip.is_ipv4()).collect();
        assert_eq!(v4.len(), usize::from(spec.leaves), "one address per leaf: {own:?}");
        assert!(own.keys().all(|ip| seen.insert(*ip)), "two spines share an address");
        // A spine has a route to every host.
        for host in spec.host_nodes() {
            let Node::Host(l, h) = host else { unreachable!() };
            for ip in [spec.ip(l, h), spec.ip6(l, h)] {
                let ways = net.ways(Node::Spine(spine), ip);
                assert_eq!(ways, [vec![Node::Spine(spine), Node::Leaf(l), host]]);
            }
        }
    }
}

#[test]
fn cables_have_one_mtu_and_each_interface_one_shaper() {
    for mtu in [1280, 1500, 9000] {
        let spec = FabricSpec { mtu, extra: 1, rails: 2, ..FabricSpec::default() };
        let net = Net::of(&spec);
        assert!(net.peer.values().all(|p| p.mtu == mtu));
        for node in spec.nodes() {
            let text = plan::shaper_batch(&spec, node);
            let mut shaped = BTreeMap::new();
            for line in text.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(words[..3], ["qdisc", "replace", "dev"], "{line}");
                shaped.insert(words[3].to_owned(), line);
                let burst = words[words.iter().position(|w| *w == "burst").unwrap() + 1];
                assert!(
                    burst.parse::<u32>().unwrap() > 2 * u32::from(mtu),
                    "at least two packets: {line}"
                );
            }
            let devs: BTreeSet<String> = shaped.keys().cloned().collect();
            assert_eq!(devs, net.boxes[&node].up, "{node}");
        }
    }
}

#[test]
fn each_end_has_its_rate_and_queue() {
    let spec = FabricSpec {
        host_bits_per_sec: 1_000_000_000,
        uplink_bits_per_sec: 400_000_000,
        queue_bytes: 100_000,
        nic_queue_bytes: 3_000_000,
        ..FabricSpec::default()
    };
    let line = |node: Node, dev: &str| {
        let text = plan::shaper_batch(&spec, node);
        let line = text.lines().find(|l| l.contains(&format!("dev {dev} ")));
        line.unwrap_or_else(|| panic!("{node} {dev}")).to_owned()
    };
    // A switch's interface towards a host has the host's rate and a switch's queue.
    for (node, dev, rate, limit) in [
        (Node::Leaf(0), "dn0", 1_000_000_000_u64, 100_000),
        (Node::Leaf(0), "up3", 400_000_000, 100_000),
        (Node::Spine(2), "d1", 400_000_000, 100_000),
        (Node::Host(1, 1), "e0", 1_000_000_000, 3_000_000),
    ] {
        let text = line(node, dev);
        assert!(text.contains(&format!(" rate {rate}bit ")), "{text}");
        assert!(text.ends_with(&format!(" limit {limit}")), "{text}");
    }
}

#[test]
fn without_ipv6_the_rest_stays_the_same() {
    for spec in fabrics() {
        for node in spec.nodes() {
            let both = plan::node_batch(&spec, node, true);
            let v4 = plan::node_batch(&spec, node, false);
            let kept: Vec<&str> = both.lines().filter(|l| !l.contains("fd00:")).collect();
            assert_eq!(v4.lines().collect::<Vec<_>>(), kept, "{node}");
            assert!(v4.ends_with('\n'), "tc and ip need complete lines");
        }
    }
}

#[test]
fn switches_forward_and_hash_ports_and_hosts_do_not() {
    for aware in [false, true] {
        let spec = FabricSpec { linkdown_aware: aware, ..FabricSpec::default() };
        let mut seeds = BTreeSet::new();
        for node in spec.nodes() {
            let list = plan::sysctls(&spec, node);
            let value = |path: &str| list.iter().find(|s| s.path == path).map(|s| s.value);
            let is_host = matches!(node, Node::Host(..));
            assert_eq!(value("ipv4/ip_forward"), (!is_host).then_some(1), "{node}");
            assert_eq!(value("ipv4/fib_multipath_hash_policy"), (!is_host).then_some(3));
            assert_eq!(value("ipv4/fib_multipath_hash_fields"), (!is_host).then_some(0x37));
            let linkdown = value("ipv4/conf/all/ignore_routes_with_linkdown");
            assert_eq!(linkdown, (!is_host).then_some(u32::from(aware)), "{node}");
            if let Some(seed) = value("ipv4/fib_multipath_hash_seed") {
                assert!(
                    seed != 0 && seeds.insert(seed),
                    "{node}: both directions would be correlated"
                );
            }
            // Indispensable sysctls have no text for their absence.
            let must: Vec<&str> =
                list.iter().filter(|s| s.without.is_none()).map(|s| s.path).collect();
            let switch = [
                "ipv4/ip_forward",
                "ipv4/fib_multipath_hash_fields",
                "ipv4/fib_multipath_hash_policy",
            ];
            let want: &[&str] = if is_host { &[] } else { &switch };
            assert_eq!(must, want, "{node}");
        }
    }
}

#[test]
fn another_seed_changes_the_hash_of_every_switch() {
    let draw = |seed| {
        let spec = FabricSpec { seed, ..FabricSpec::default() };
        spec.nodes().iter().map(|n| spec.hash_seed(*n)).collect::<BTreeSet<u32>>()
    };
    for seed in 1..100 {
        assert!(draw(seed).is_disjoint(&draw(seed + 1)), "{seed}");
        assert_eq!(draw(seed), draw(seed), "the same seed gives the same hashes");
    }
    assert!(!draw(u32::MAX).contains(&0), "0 is the kernel's own random seed");
}
