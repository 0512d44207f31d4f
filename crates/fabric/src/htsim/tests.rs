use super::*;
use crate::topo::{Ecn, MS, Node, US};

const SMALL: &str =
    "Nodes 4\nConnections 2\n0->1 id 1 start 5 size 2000000\n2->3 id 2 start 0 size 7\n";

fn reason(text: &str) -> String {
    CmFile::parse(text, StartUnit::Picoseconds).unwrap_err().to_string()
}

#[test]
fn reads_connections_in_both_units() {
    let ps = CmFile::parse(SMALL, StartUnit::Picoseconds).unwrap();
    assert_eq!((ps.nodes, ps.connections.len()), (4, 2));
    let c = &ps.connections[0];
    assert_eq!((c.src, c.dst, c.id, c.start_ps, c.bytes), (0, 1, Some(1), Some(5), 2_000_000));
    let us = CmFile::parse(&SMALL.replace("start 5", "start 5.25"), StartUnit::Microseconds);
    assert_eq!(us.unwrap().connections[0].start_ps, Some(5 * US + US / 4));
}

#[test]
fn large_numbers_are_exact() {
    let text = "Nodes 2\nConnections 1\n0->1 start 18446744073709551615 size 9223372036854775808\n";
    let c = CmFile::parse(text, StartUnit::Picoseconds).unwrap().connections[0].clone();
    assert_eq!((c.start_ps, c.bytes), (Some(u64::MAX), 1 << 63));
    let e = CmFile::parse(text, StartUnit::Microseconds).unwrap_err();
    assert_eq!((e.line, e.to_string().contains("does not fit")), (3, true));
}

#[test]
fn triggers_link_flows() {
    let text = "# two steps\nNodes 3\nConnections 2\nTriggers 1\n\
                0->1 id 1 start 0 size 10 send_done_trigger 7\n1->2 id 2 trigger 7 size 10\n\
                trigger id 7 barrier count 1\n";
    let cm = CmFile::parse(text, StartUnit::Picoseconds).unwrap();
    assert_eq!(cm.connections[0].send_done_trigger, Some(7));
    assert_eq!((cm.connections[1].trigger, cm.connections[1].start_ps), (Some(7), None));
    assert_eq!(cm.triggers[0].kind, TriggerKind::Barrier { count: 1 });
}

#[test]
fn what_cannot_be_honoured_is_refused_with_its_line() {
    let cases = [
        ("start 5 size", "start 5 prio 1 size", "line 3: `prio`"),
        ("start 5", "start 5.5", "line 3: start"),
        ("size 2000000", "size -1", "line 3: size"),
        ("size 2000000", "size 0", "line 3: `size`"),
        ("start 5 ", "", "line 3: `start` or `trigger`"),
        ("0->1", "0->9", "line 3: 0->9"),
        ("0->1", "0->0", "line 3: sender and receiver"),
        ("id 2", "id 1", "line 4: id 1"),
        ("id 2", "colour 2", "line 4: `colour`"),
        ("Connections 2", "Connections 3", "says 3 of Connections, the file has 2"),
        ("Nodes 4", "Nodes 4x", "line 1: Nodes"),
        ("Nodes 4\n", "", "`Nodes N`"),
        ("start 5", "trigger 1", "line 3: there is no trigger 1"),
    ];
    for (from, to, message) in cases {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL);
        let got = reason(&text);
        assert!(got.contains(message), "{from} -> {to}: {got}");
    }
}

#[test]
fn failures_name_an_uplink() {
    let text = format!("{SMALL}Failures 1\nfailure switch_type AGG switch_id 3 link_id 1\n");
    let cm = CmFile::parse(&text, StartUnit::Picoseconds).unwrap();
    assert_eq!((cm.failures[0].agg, cm.failures[0].link), (3, 1));
    let core = text.replace("AGG", "CORE");
    assert!(reason(&core).contains("line 6: switch_type CORE"), "{}", reason(&core));
}

const TREE: &str = "Nodes 16\nTiers 3\nPodsize 4\n\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\n\
    Radix_Up 2\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\nOversubscribed 1\n\nTier 1\n\
    Downlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 500\n\
    Switch_Latency_ns 100\nBundle 1\n\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\n\
    Downlink_Latency_ns 2000\nBundle 1\n";

#[test]
fn a_tree_has_the_switches_cables_and_delays_of_its_file() {
    let topo = TopoFile::parse(TREE).unwrap().build(1000, Ecn::OFF);
    topo.validate().unwrap();
    let tiers: Vec<usize> = (0..3).map(|t| topo.tier_switches(t).count()).collect();
    assert_eq!((topo.hosts(), tiers), (16, vec![8, 8, 4]));
    assert_eq!(topo.cables().len(), 16 + 16 + 16);
    let leaf_up = &topo.cables()[16];
    assert_eq!((leaf_up.up.delay_ps, leaf_up.down.delay_ps), (600 * NS_, 500 * NS_));
    // Every core reaches every pod.
    for core in topo.tier_switches(2) {
        assert_eq!(topo.cables_of(Node::Switch(core)).count(), 4);
    }
}
const NS_: u64 = MS / 1_000_000;

#[test]
fn inconsistent_trees_are_refused() {
    let cases = [
        ("Radix_Up 2", "Radix_Up 3", "Nodes"),
        ("Podsize 4", "Podsize 5", "Nodes over Podsize: 16 cannot be divided by 5"),
        ("Tier 1\n", "Tier 2\n", "line 13: Tier 2"),
        ("Oversubscribed 1", "Oversubscribed 2", "not Oversubscribed 2"),
        ("Radix_Down 4", "Radix_Down 5", "tier 2: Radix_Down 5, 4 cables come"),
        ("Bundle 1", "Queue_up 88", "line 19: queues are set"),
        ("Bundle 1", "Colour 1", "line 19: `colour`"),
        ("Tiers 3", "Tiers 2", "Tiers 2, but 3"),
        ("Nodes 16", "Nodes 16 17", "line 1: `17`"),
    ];
    for (from, to, message) in cases {
        let text = TREE.replacen(from, to, 1);
        assert_ne!(text, TREE);
        let got = TopoFile::parse(&text).unwrap_err().to_string();
        if message != "Nodes" {
            assert!(got.contains(message), "{from} -> {to}: {got}");
        }
    }
}

#[test]
fn two_tiers_and_bundles() {
    let text = "Nodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\n\
        Radix_Up 4\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\n\
        Downlink_Latency_ns 1000\nBundle 2\n";
    let topo = TopoFile::parse(text).unwrap().build(1000, Ecn::OFF);
    topo.validate().unwrap();
    assert_eq!((topo.tier_switches(0).count(), topo.tier_switches(1).count()), (2, 2));
    let first = Node::Switch(topo.tier_switches(0).next().unwrap());
    let second = Node::Switch(topo.tier_switches(1).next().unwrap());
    assert_eq!(topo.links_between(first, second).count(), 2);
}
