//! The input of `ip` and `tc` and the sysctls of each node, as text, so that it can be tested.
//!
//! Every host has its own link to its leaf, with host routes and permanent neighbour entries: there
//! is no bridge, no ARP, and no packet that was not sent on purpose.

use crate::spec::{FabricSpec, Node, RAIL_NET};
use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
};

/// A cable between two interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cable {
    /// The end at the leaf.
    pub leaf: End,
    /// The other end, at a spine or a host.
    pub far: End,
}

/// One end of a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub node: Node,
    /// Interface name.
    pub dev: String,
    /// Number of the cable among those of a host; 0 between switches.
    pub rail: u8,
    /// MAC address.
    pub mac: String,
    /// Sending rate in bits per second.
    pub bits_per_sec: u64,
    /// Size of the queue in bytes.
    pub queue_bytes: u64,
}

/// All cables of a fabric.
pub fn cables(spec: &FabricSpec) -> Vec<Cable> {
    let mut out = Vec::new();
    for l in 0..spec.leaves {
        for s in 0..spec.spines {
            out.push(uplink(spec, l, s));
        }
        for (h, rail) in (0..spec.hosts).flat_map(|h| (0..spec.rails).map(move |r| (h, r))) {
            let end = |node, dev: String, side: u8, queue_bytes| End {
                node,
                dev,
                rail,
                // Sides 1 and 2 are the ends of the first cable, 3 and 4 those of the second, and
                // so on.
                mac: mac(1, l, h, 2 * rail + side),
                bits_per_sec: spec.host_bits_per_sec,
                queue_bytes,
            };
            out.push(Cable {
                leaf: end(Node::Leaf(l), down_dev(h, rail), 1, spec.queue_bytes),
                far: end(Node::Host(l, h), format!("e{rail}"), 2, spec.nic_queue_bytes),
            });
        }
    }
    out
}

/// Name of a leaf's interface towards a host.
pub(crate) fn down_dev(host: u8, rail: u8) -> String {
    if rail == 0 { format!("dn{host}") } else { format!("dn{host}r{rail}") }
}

/// The cable between a leaf and a spine.
pub fn uplink(spec: &FabricSpec, leaf: u8, spine: u8) -> Cable {
    let end = |node, dev, side| End {
        node,
        dev,
        rail: 0,
        mac: mac(2, leaf, spine, side),
        bits_per_sec: spec.uplink_bits_per_sec,
        queue_bytes: spec.queue_bytes,
    };
    Cable {
        leaf: end(Node::Leaf(leaf), format!("up{spine}"), 1),
        far: end(Node::Spine(spine), format!("d{leaf}"), 2),
    }
}

/// A locally administered MAC address.
fn mac(kind: u8, leaf: u8, other: u8, side: u8) -> String {
    format!("02:{kind:02x}:{leaf:02x}:{other:02x}:00:{side:02x}")
}

/// Input of `ip -batch` in the leaf's namespace that creates its cables; `home` returns the path of
/// the namespace of a far end.
pub fn cable_batch(spec: &FabricSpec, leaf: u8, home: impl Fn(Node) -> String) -> String {
    let mut out = String::new();
    for cable in cables(spec).iter().filter(|c| c.leaf.node == Node::Leaf(leaf)) {
        let (a, b) = (&cable.leaf, &cable.far);
        let _ = writeln!(
            out,
            "link add name {} address {} mtu {} type veth peer name {} address {} mtu {} netns {}",
            a.dev,
            a.mac,
            spec.mtu,
            b.dev,
            b.mac,
            spec.mtu,
            home(b.node)
        );
    }
    out
}

/// Interfaces of a node, each with the other end of its cable.
fn ends_of(spec: &FabricSpec, node: Node) -> Vec<(End, End)> {
    let both = |c: Cable| [(c.leaf.clone(), c.far.clone()), (c.far, c.leaf)];
    cables(spec).into_iter().flat_map(both).filter(|(own, _)| own.node == node).collect()
}

/// Input of `ip -batch` in a node's namespace: interfaces, addresses, neighbours, routes. It can be
/// repeated at any time, because taking an interface down removes most of them.
pub fn node_batch(spec: &FabricSpec, node: Node, v6: bool) -> String {
    let mut lines = vec!["link set lo up".to_owned()];
    for (own, _) in ends_of(spec, node) {
        // At most one segment per buffer: every packet is shaped, counted and dropped separately,
        // as on a physical link.
        lines.push(format!("link set dev {} gso_max_segs 1 up", own.dev));
    }
    for (own, other) in ends_of(spec, node) {
        lines.extend(addresses(&own, &other, spec));
    }
    lines.extend(routes(spec, node));
    lines.retain(|l| v6 || !l.contains("fd00:"));
    lines.push(String::new());
    lines.join("\n")
}

fn addresses(own: &End, other: &End, spec: &FabricSpec) -> Vec<String> {
    let dev = &own.dev;
    let addr = |a: String| format!("addr replace {a} dev {dev}");
    let neigh =
        |a: String| format!("neigh replace {a} lladdr {} dev {dev} nud permanent", other.mac);
    match (own.node, other.node) {
        (Node::Leaf(l), Node::Spine(s)) => vec![
            addr(format!("{}/30", link_ip(s, l, 1))),
            addr(format!("{}/64 nodad", link_ip6(s, l, 1))),
            neigh(link_ip(s, l, 2)),
            neigh(link_ip6(s, l, 2)),
        ],
        (Node::Spine(s), Node::Leaf(l)) => vec![
            addr(format!("{}/30", link_ip(s, l, 2))),
            addr(format!("{}/64 nodad", link_ip6(s, l, 2))),
            neigh(link_ip(s, l, 1)),
            neigh(link_ip6(s, l, 1)),
        ],
        (Node::Leaf(l), Node::Host(_, h)) => {
            let mut out = vec![addr(format!("{}/32", leaf_ip(own.rail, l)))];
            if own.rail == 0 {
                out.push(addr(format!("fd00:1:{l}::1/128 nodad")));
            }
            for ip in rail_ips(spec, own.rail, l, h) {
                out.push(neigh(ip));
            }
            out
        }
        (Node::Host(l, h), _) => {
            let mut out = Vec::new();
            for ip in rail_ips(spec, own.rail, l, h) {
                out.push(addr(if ip.contains(':') {
                    format!("{ip}/128 nodad")
                } else {
                    format!("{ip}/32")
                }));
            }
            out.push(neigh(leaf_ip(own.rail, l)));
            if own.rail == 0 {
                out.push(neigh(format!("fd00:1:{l}::1")));
            }
            out
        }
        _ => Vec::new(),
    }
}

/// Address of a leaf on the links of its hosts.
fn leaf_ip(rail: u8, leaf: u8) -> String {
    let net = if rail == 0 { 1 } else { RAIL_NET + rail };
    format!("10.{net}.{leaf}.1")
}

/// Address of a leaf (side 1) or spine (side 2) on the link between them.
fn link_ip(spine: u8, leaf: u8, side: u8) -> String {
    format!("10.2.{spine}.{}", 4 * leaf + side)
}

fn link_ip6(spine: u8, leaf: u8, side: u8) -> String {
    format!("fd00:2:{spine}:{leaf}::{side}")
}

/// All addresses of a host's interface; of the first interface: IPv4, IPv6, additional ones.
fn rail_ips(spec: &FabricSpec, rail: u8, leaf: u8, host: u8) -> Vec<String> {
    if rail > 0 {
        return vec![spec.rail_ip(rail, leaf, host).to_string()];
    }
    let mut out = vec![spec.ip(leaf, host).to_string(), spec.ip6(leaf, host).to_string()];
    out.extend((0..spec.extra).map(|k| extra_ip(k, leaf, host).to_string()));
    out
}

/// Additional address `k` of a host.
pub fn extra_ip(k: u8, leaf: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 20 + k, leaf, 10 + host))
}

fn routes(spec: &FabricSpec, node: Node) -> Vec<String> {
    let mut out = Vec::new();
    match node {
        Node::Host(l, h) => {
            let (ip, ip6) = (spec.ip(l, h), spec.ip6(l, h));
            out.push(format!("route replace 10.1.{l}.1/32 dev e0 src {ip}"));
            out.push(format!("route replace {}", default_route(spec, l, h)));
            for rail in 1..spec.rails {
                // Packets to the addresses of a rail leave through the interface of that rail.
                let (gate, dev) = (leaf_ip(rail, l), format!("dev e{rail}"));
                let src = spec.rail_ip(rail, l, h);
                out.push(format!("route replace {gate}/32 {dev} src {src}"));
                let net = format!("10.{}.0.0/16", RAIL_NET + rail);
                out.push(format!("route replace {net} via {gate} {dev} src {src}"));
            }
            out.push(format!("route replace fd00:1:{l}::1/128 dev e0"));
            out.push(format!("route replace fd00::/16 via fd00:1:{l}::1 dev e0 src {ip6}"));
        }
        Node::Spine(s) => {
            for l in 0..spec.leaves {
                let via = format!("via {} dev d{l}", link_ip(s, l, 1));
                out.extend(subnets(spec, l).map(|net| format!("route replace {net} {via}")));
                let via = link_ip6(s, l, 1);
                out.push(format!("route replace fd00:1:{l}::/64 via {via} dev d{l}"));
            }
        }
        Node::Leaf(l) => {
            for h in 0..spec.hosts {
                for rail in 0..spec.rails {
                    let (own, dev) = (rail_ips(spec, rail, l, h), down_dev(h, rail));
                    out.extend(own.iter().map(|ip| format!("route replace {ip} dev {dev}")));
                }
            }
            for to in (0..spec.leaves).filter(|to| *to != l) {
                let hops = |via: fn(u8, u8, u8) -> String| {
                    let hop = |s| format!(" nexthop via {} dev up{s}", via(s, l, 2));
                    (0..spec.spines).map(hop).collect::<String>()
                };
                let hops4 = hops(link_ip);
                out.extend(subnets(spec, to).map(|net| format!("route replace {net}{hops4}")));
                out.push(format!("route replace fd00:1:{to}::/64{}", hops(link_ip6)));
            }
        }
    }
    out
}

/// A host's route to all other hosts, for `ip route`.
pub fn default_route(spec: &FabricSpec, leaf: u8, host: u8) -> String {
    format!("default via {} dev e0 src {}", leaf_ip(0, leaf), spec.ip(leaf, host))
}

/// IPv4 networks of a leaf's hosts.
fn subnets(spec: &FabricSpec, leaf: u8) -> impl Iterator<Item = String> {
    let extra = (0..spec.extra).map(move |k| format!("10.{}.{leaf}.0/24", 20 + k));
    let rails = (1..spec.rails).map(move |r| format!("10.{}.{leaf}.0/24", RAIL_NET + r));
    std::iter::once(format!("10.1.{leaf}.0/24")).chain(extra).chain(rails)
}

/// Input of `tc -batch` in a node's namespace: a token bucket with a queue at each interface.
pub fn shaper_batch(spec: &FabricSpec, node: Node) -> String {
    let ends = ends_of(spec, node).into_iter();
    ends.map(|(own, _)| shaper(spec, &own.dev, own.bits_per_sec, own.queue_bytes)).collect()
}

/// One line for `tc`. The bucket holds two packets; with one, the rate would be 3 % too low.
pub fn shaper(spec: &FabricSpec, dev: &str, bits_per_sec: u64, queue_bytes: u64) -> String {
    let burst = 2 * (u32::from(spec.mtu) + 100);
    format!(
        "qdisc replace dev {dev} root tbf rate {bits_per_sec}bit burst {burst} \
         limit {queue_bytes}\n"
    )
}

/// A sysctl of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// Path below `/proc/sys/net/`.
    pub path: &'static str,
    /// Value.
    pub value: u32,
    /// Consequence if the kernel lacks it; `None` if the fabric needs it.
    pub without: Option<&'static str>,
}

/// Addresses, protocol and ports, as bits of `fib_multipath_hash_fields` (Linux's `ip-sysctl.rst`).
const HASH_FIELDS: u32 = 0x0001 | 0x0002 | 0x0004 | 0x0010 | 0x0020;

/// Sysctls of a node, to be set before it has interfaces.
pub fn sysctls(spec: &FabricSpec, node: Node) -> Vec<Sysctl> {
    let must = |path, value| Sysctl { path, value, without: None };
    let may = |path, value, without| Sysctl { path, value, without: Some(without) };
    let mut out = vec![
        may("ipv4/conf/all/rp_filter", 0, "replies on another path may be dropped"),
        may("ipv4/conf/default/rp_filter", 0, "replies on another path may be dropped"),
        may("ipv6/conf/default/accept_dad", 0, "IPv6 addresses come late"),
        may("ipv6/conf/default/accept_ra", 0, ""),
        may("ipv6/conf/default/router_solicitations", 0, ""),
    ];
    if matches!(node, Node::Host(..)) {
        return out;
    }
    let aware = u32::from(spec.linkdown_aware);
    out.push(must("ipv4/ip_forward", 1));
    // Hash addresses, protocol and ports of each packet, so that each source port is a path. The
    // policy 1 is for that, too, but it takes the hash that the sender's kernel has given to the
    // packets of a connected socket, if there is one: a random number that no switch sees, another
    // one after each connect and each timeout of TCP.
    out.push(must("ipv4/fib_multipath_hash_fields", HASH_FIELDS));
    out.push(must("ipv4/fib_multipath_hash_policy", 3));
    let seed = "each run maps ports to other spines (kernels before 6.11)";
    out.push(may("ipv4/fib_multipath_hash_seed", spec.hash_seed(node), seed));
    out.push(may("ipv4/conf/all/ignore_routes_with_linkdown", aware, ""));
    out.push(may("ipv4/conf/default/ignore_routes_with_linkdown", aware, ""));
    // ICMP errors are not rate-limited, and come from the address of the interface on which the
    // packet arrived, so that probes with small TTLs show all paths.
    out.push(may("ipv4/icmp_ratelimit", 0, "`srd doctor` sees fewer answers of routers"));
    out.push(may("ipv4/icmp_errors_use_inbound_ifaddr", 1, ""));
    out.push(may("ipv6/icmp/ratelimit", 0, ""));
    out.push(may("ipv6/conf/all/forwarding", 1, "no IPv6"));
    // Hash addresses and flow label, by which an IPv6 sender chooses a path.
    out.push(may("ipv6/fib_multipath_hash_policy", 0, ""));
    out.push(may("ipv6/conf/all/ignore_routes_with_linkdown", aware, ""));
    out.push(may("ipv6/conf/all/keep_addr_on_down", 1, ""));
    out
}

/// A setting of TCP at the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSetting {
    /// Path below `/proc/sys/net/`.
    pub path: &'static str,
    /// Value.
    pub value: &'static str,
    /// Consequence if the kernel lacks it.
    pub without: &'static str,
}

/// Settings of TCP at each host, to be set before it has interfaces. A new namespace inherits
/// settings that depend on the machine's memory and its administrator; these make a run repeatable.
pub const TCP_SETTINGS: [TcpSetting; 3] = [
    // The kernel caches round-trip time, window and reordering of each address for the next
    // connection: a run's result would depend on the contenders before it.
    TcpSetting {
        path: "ipv4/tcp_no_metrics_save",
        value: "1",
        without: "TCP's connections begin with what earlier ones measured",
    },
    // The kernel's own values on a host with 2 GB of memory or more (tcp_init in net/ipv4/tcp.c).
    TcpSetting {
        path: "ipv4/tcp_rmem",
        value: "4096 131072 6291456",
        without: "TCP's receive buffers are those of this machine",
    },
    TcpSetting {
        path: "ipv4/tcp_wmem",
        value: "4096 16384 4194304",
        without: "TCP's send buffers are those of this machine",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> FabricSpec {
        FabricSpec { spines: 3, leaves: 2, hosts: 2, extra: 1, rails: 2, ..FabricSpec::default() }
    }

    #[test]
    fn cables_are_made_once_and_addresses_are_unique() {
        let spec = spec();
        assert_eq!(cables(&spec).len(), 2 * 3 + 2 * 2 * 2);
        let mut seen = std::collections::BTreeSet::new();
        for c in cables(&spec) {
            assert!(seen.insert(c.leaf.mac.clone()) && seen.insert(c.far.mac.clone()), "{c:?}");
        }
        let mut ips = Vec::new();
        for node in spec.nodes() {
            let text = node_batch(&spec, node, true);
            let of = |l: &str| {
                l.strip_prefix("addr replace ").map(|r| r.split(' ').next().map(str::to_owned))
            };
            // A leaf has the same address on the links of all its hosts.
            let mut own: Vec<_> = text.lines().filter_map(of).flatten().collect();
            own.sort();
            own.dedup();
            ips.extend(own);
        }
        let count = ips.len();
        ips.sort();
        ips.dedup();
        assert_eq!(ips.len(), count);
    }

    #[test]
    fn leaves_route_over_all_spines() {
        let text = node_batch(&spec(), Node::Leaf(0), true);
        let line = text.lines().find(|l| l.starts_with("route replace 10.1.1.0/24")).unwrap();
        assert_eq!(line.matches("nexthop").count(), 3);
        assert!(text.contains("route replace 10.20.1.0/24 nexthop"));
        assert!(text.contains("route replace 10.61.1.0/24 nexthop"));
        assert!(text.contains("route replace 10.61.0.11 dev dn1r1"));
        assert!(!node_batch(&spec(), Node::Leaf(0), false).contains("fd00"));
    }
}
