//! An independent interpreter of the input of `ip` and `tc`: it builds interfaces, addresses,
//! neighbours and routes, and forwards packets as a kernel would.
#![allow(dead_code, reason = "each test file uses its part")]

use srd_testbed::plan;
use srd_testbed::spec::{FabricSpec, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A network and the next hops to it.
#[derive(Debug)]
pub struct Route {
    pub net: IpAddr,
    pub bits: u8,
    /// Next router, unless the destination is on the link, and interface.
    pub hops: Vec<(Option<IpAddr>, String)>,
    /// Source address of the host's own packets.
    pub src: Option<IpAddr>,
}

/// One namespace.
#[derive(Debug, Default)]
pub struct Space {
    pub up: BTreeSet<String>,
    /// Addresses, with their interfaces.
    pub own: BTreeMap<IpAddr, BTreeSet<String>>,
    /// MAC address of a neighbour's IP address on an interface.
    pub neighbours: BTreeMap<(IpAddr, String), String>,
    pub routes: Vec<Route>,
}

/// One interface of a cable: node, name and MAC address.
#[derive(Clone, Debug)]
pub struct Port {
    pub node: Node,
    pub dev: String,
    pub mac: String,
    pub mtu: u16,
}

/// All namespaces and the cables between them.
pub struct Net {
    pub boxes: BTreeMap<Node, Space>,
    /// The other end of each interface.
    pub peer: BTreeMap<(Node, String), Port>,
    /// MAC address of each interface.
    pub mac: BTreeMap<(Node, String), String>,
}

fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    let at = words.iter().position(|w| *w == word)?;
    words.get(at + 1).copied()
}

fn network(text: &str) -> (IpAddr, u8) {
    if text == "default" {
        return ("0.0.0.0".parse().unwrap(), 0);
    }
    let (ip, bits) = text.split_once('/').unwrap_or((text, ""));
    let ip: IpAddr = ip.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    let whole = if ip.is_ipv4() { 32 } else { 128 };
    (ip, if bits.is_empty() { whole } else { bits.parse().unwrap() })
}

fn holds(net: IpAddr, bits: u8, ip: IpAddr) -> bool {
    match (net, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            u32::try_from(u64::from(a.to_bits() ^ b.to_bits()) >> (32 - bits)).unwrap() == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            bits == 0 || (a.to_bits() ^ b.to_bits()) >> (128 - u32::from(bits)) == 0
        }
        _ => false,
    }
}

impl Space {
    /// Interprets one line of `ip -batch`.
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let dev = after(&words, "dev").map(String::from);
        match words[..] {
            ["link", "set", "lo", "up"] => {}
            ["link", "set", "dev", dev, .., "up"] => {
                self.up.insert(dev.into());
            }
            ["addr", "replace", ip, ..] => {
                let dev = dev.unwrap();
                assert!(
                    self.up.contains(&dev),
                    "{dev} must be up before it gets an address: {line}"
                );
                self.own.entry(network(ip).0).or_default().insert(dev);
            }
            ["neigh", "replace", ip, "lladdr", mac, ..] => {
                assert!(line.ends_with("nud permanent"), "{line}");
                self.neighbours.insert((network(ip).0, dev.unwrap()), mac.into());
            }
            ["route", "replace", net, ..] => {
                let (net, bits) = network(net);
                let via = |words: &[&str]| after(words, "via").map(|ip| network(ip).0);
                let hops = if line.contains("nexthop") {
                    let each = line.split(" nexthop ").skip(1);
                    each.map(|h| {
                        let words: Vec<&str> = h.split_whitespace().collect();
                        let dev = match words[..] {
                            ["via", _, "dev", dev] => dev.to_owned(),
                            _ => panic!("a next hop without an interface: {line}"),
                        };
                        (via(&words), dev)
                    })
                    .collect()
                } else {
                    vec![(via(&words), dev.unwrap())]
                };
                let src = after(&words, "src").map(|ip| network(ip).0);
                self.routes.push(Route { net, bits, hops, src });
            }
            _ => panic!("an unknown command: {line}"),
        }
    }

    /// The route with the longest matching prefix.
    pub fn route(&self, to: IpAddr) -> Option<&Route> {
        let fits = self.routes.iter().filter(|r| holds(r.net, r.bits, to));
        fits.max_by_key(|r| r.bits)
    }
}

impl Net {
    /// The network that the plan describes.
    pub fn of(spec: &FabricSpec) -> Self {
        let mut net = Self { boxes: BTreeMap::new(), peer: BTreeMap::new(), mac: BTreeMap::new() };
        for leaf in 0..spec.leaves {
            let home = |n: Node| n.to_string();
            for line in plan::cable_batch(spec, leaf, home).lines() {
                net.cable(Node::Leaf(leaf), line);
            }
        }
        for node in spec.nodes() {
            let mut own = Space::default();
            for line in plan::node_batch(spec, node, true).lines() {
                own.read(line);
            }
            for dev in &own.up {
                assert!(net.mac.contains_key(&(node, dev.clone())), "{node} has no {dev}");
            }
            net.boxes.insert(node, own);
        }
        net
    }

    fn cable(&mut self, node: Node, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (own, far) = words.split_at(words.iter().position(|w| *w == "peer").unwrap());
        let far_node = Node::parse(after(far, "netns").unwrap()).unwrap();
        let port = |node, words: &[&str]| Port {
            node,
            dev: after(words, "name").unwrap().into(),
            mac: after(words, "address").unwrap().into(),
            mtu: after(words, "mtu").unwrap().parse().unwrap(),
        };
        let (a, b) = (port(node, own), port(far_node, far));
        for (port, other) in [(&a, &b), (&b, &a)] {
            let key = (port.node, port.dev.clone());
            assert!(port.dev.len() < 16, "{}: the kernel takes 15 letters", port.dev);
            assert!(self.mac.insert(key.clone(), port.mac.clone()).is_none(), "{line}");
            self.peer.insert(key, other.clone());
        }
    }

    /// All paths that a packet from `node` to `to` may take, each as the list of its nodes; follows
    /// all next hops of a route.
    pub fn ways(&self, node: Node, to: IpAddr) -> Vec<Vec<Node>> {
        let mut done = Vec::new();
        let mut open = vec![vec![node]];
        while let Some(way) = open.pop() {
            let at = *way.last().unwrap();
            assert!(way.len() <= 4 + 1, "a packet to {to} is in a routing loop: {way:?}");
            let here = &self.boxes[&at];
            if here.own.contains_key(&to) {
                done.push(way);
                continue;
            }
            let route = here.route(to).unwrap_or_else(|| panic!("{at} has no route to {to}"));
            for (via, dev) in &route.hops {
                let next = via.unwrap_or(to);
                let port = &self.peer[&(at, dev.clone())];
                let mac = here.neighbours.get(&(next, dev.clone()));
                let mac = mac.unwrap_or_else(|| panic!("{at} does not know {next} at {dev}"));
                assert_eq!(*mac, port.mac, "{at} sends packets for {next} to another node");
                open.push([&way[..], &[port.node]].concat());
            }
        }
        done
    }
}
