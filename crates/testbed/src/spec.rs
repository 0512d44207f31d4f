//! Specification of a fabric: nodes, addresses, limits.

use crate::error::{NetError, Result};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Most spines.
pub const SPINES_MAX: u8 = 32;
/// Most leaves.
pub const LEAVES_MAX: u8 = 16;
/// Most hosts per leaf.
pub const HOSTS_MAX: u8 = 64;
/// Most namespaces per fabric.
pub const NODES_MAX: usize = 400;
/// Most additional addresses per host: MPTCP uses at most eight subflows.
pub const EXTRA_MAX: u8 = 7;

/// Second byte of the IPv4 addresses of further interfaces, minus the interface's number.
pub const RAIL_NET: u8 = 60;
/// Most links per host: the number of network cards of the largest EFA instances of one kind.
pub const RAILS_MAX: u8 = 4;

/// A leaf-spine fabric. Every leaf is linked to every spine, every host to one leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricSpec {
    /// Number of spines, which is the number of paths between two leaves: 1 to [`SPINES_MAX`].
    pub spines: u8,
    /// Number of leaves: 1 to [`LEAVES_MAX`].
    pub leaves: u8,
    /// Hosts per leaf: 1 to [`HOSTS_MAX`].
    pub hosts: u8,
    /// Rate between host and leaf in each direction, in bits per second.
    pub host_bits_per_sec: u64,
    /// Rate between leaf and spine in each direction, in bits per second.
    pub uplink_bits_per_sec: u64,
    /// Size of each switch queue in bytes.
    pub queue_bytes: u64,
    /// Size of a host's transmit queue in bytes. It is as deep as a NIC's: a shallow queue drops
    /// packets in the host, which makes TCP look worse than it is.
    pub nic_queue_bytes: u64,
    /// MTU of all links in bytes, IP header included.
    pub mtu: u16,
    /// Seed of the nodes' ECMP hash seeds: the same seed maps the same ports to the same spines.
    pub seed: u32,
    /// Whether leaves stop using a link without carrier at once (`ignore_routes_with_linkdown`; the
    /// kernel's default is to continue).
    pub linkdown_aware: bool,
    /// Additional IPv4 addresses per host, for MPTCP subflows.
    pub extra: u8,
    /// Links, and thus network interfaces, per host: 1 to [`RAILS_MAX`]. The first interface has
    /// all addresses of the host; each further one has an IPv4 address of its own.
    pub rails: u8,
}

impl Default for FabricSpec {
    fn default() -> Self {
        Self {
            spines: 4,
            leaves: 2,
            hosts: 2,
            host_bits_per_sec: 200_000_000,
            uplink_bits_per_sec: 200_000_000,
            queue_bytes: 200_000,
            nic_queue_bytes: 8_000_000,
            mtu: 9000,
            seed: 1,
            linkdown_aware: false,
            extra: 0,
            rails: 1,
        }
    }
}

/// A node of a fabric, which is one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// `s0`, `s1`, …
    Spine(u8),
    /// `l0`, `l1`, …
    Leaf(u8),
    /// `h0x0`: leaf, then number at that leaf.
    Host(u8, u8),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spine(s) => write!(f, "s{s}"),
            Self::Leaf(l) => write!(f, "l{l}"),
            Self::Host(l, h) => write!(f, "h{l}x{h}"),
        }
    }
}

impl Node {
    /// Parses the name of a node.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(1)?;
        match kind {
            "s" => rest.parse().ok().map(Self::Spine),
            "l" => rest.parse().ok().map(Self::Leaf),
            "h" => {
                let (l, h) = rest.split_once('x')?;
                Some(Self::Host(l.parse().ok()?, h.parse().ok()?))
            }
            _ => None,
        }
    }
}

impl FabricSpec {
    /// Checks all fields.
    ///
    /// # Errors
    /// A field is out of range.
    pub fn validate(&self) -> Result {
        let range = |what: &str, n: u64, max: u64| {
            if (1..=max).contains(&n) {
                return Ok(());
            }
            Err(NetError::usage(format!("{what} must be from 1 to {max}, not {n}")))
        };
        range("--spines", u64::from(self.spines), u64::from(SPINES_MAX))?;
        range("--leaves", u64::from(self.leaves), u64::from(LEAVES_MAX))?;
        range("--hosts", u64::from(self.hosts), u64::from(HOSTS_MAX))?;
        range("--rails", u64::from(self.rails), u64::from(RAILS_MAX))?;
        if self.nodes().len() > NODES_MAX {
            return Err(NetError::usage(format!(
                "{} namespaces are too many; the maximum is {NODES_MAX}: use fewer leaves or hosts",
                self.nodes().len()
            )));
        }
        if self.extra > EXTRA_MAX {
            return Err(NetError::usage(format!("at most {EXTRA_MAX} additional addresses")));
        }
        if !(1280..=65_000).contains(&self.mtu) {
            return Err(NetError::usage(
                "--mtu must be from 1280 (the minimum of IPv6) to 65000 bytes",
            ));
        }
        let queue_min = 2 * u64::from(self.mtu);
        if self.queue_bytes < queue_min || self.nic_queue_bytes < queue_min {
            return Err(NetError::usage(format!(
                "a queue must hold two packets: at least {queue_min} bytes at this MTU"
            )));
        }
        Ok(())
    }

    /// All nodes: spines, then leaves, then hosts.
    pub fn nodes(&self) -> Vec<Node> {
        let spines = (0..self.spines).map(Node::Spine);
        let leaves = (0..self.leaves).map(Node::Leaf);
        spines.chain(leaves).chain(self.host_nodes()).collect()
    }

    /// All hosts, ordered by leaf.
    pub fn host_nodes(&self) -> Vec<Node> {
        let of_leaf = |l| (0..self.hosts).map(move |h| Node::Host(l, h));
        (0..self.leaves).flat_map(of_leaf).collect()
    }

    /// Finds the node with this name.
    ///
    /// # Errors
    /// There is no such node; the text lists the names.
    pub fn node(&self, name: &str) -> Result<Node> {
        Node::parse(name).filter(|n| self.nodes().contains(n)).ok_or_else(|| {
            NetError::usage(format!(
                "there is no node `{name}`; spines are s0 to s{}, leaves l0 to l{}, hosts h0x0 \
                 (leaf, number) to h{}x{}",
                self.spines - 1,
                self.leaves - 1,
                self.leaves - 1,
                self.hosts - 1
            ))
        })
    }

    /// IPv4 address of a host.
    pub fn ip(&self, leaf: u8, host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 1, leaf, 10 + host))
    }

    /// IPv4 address of a host's interface.
    pub fn rail_ip(&self, rail: u8, leaf: u8, host: u8) -> IpAddr {
        match rail {
            0 => self.ip(leaf, host),
            _ => IpAddr::V4(Ipv4Addr::new(10, RAIL_NET + rail, leaf, 10 + host)),
        }
    }

    /// IPv6 address of a host.
    pub fn ip6(&self, leaf: u8, host: u8) -> IpAddr {
        let host = 10 + u16::from(host);
        IpAddr::V6(Ipv6Addr::new(0xfd00, 1, u16::from(leaf), 0, 0, 0, 0, host))
    }

    /// ECMP hash seed of a node: different for each node, because otherwise the paths in both
    /// directions would be correlated.
    pub fn hash_seed(&self, node: Node) -> u32 {
        let index = self.nodes().iter().position(|n| *n == node).unwrap_or(0) as u32;
        // 0 would select the kernel's random seed.
        (self.seed.wrapping_mul(1000).wrapping_add(index + 1)).max(1)
    }

    /// A description in one line.
    pub fn describe(&self) -> String {
        use crate::units::rate_text;
        format!(
            "{} spines, {} leaves, {} hosts each; hosts {}, uplinks {}, queues {} kB, MTU {}, \
             hash seed {}",
            self.spines,
            self.leaves,
            self.hosts,
            rate_text(self.host_bits_per_sec),
            rate_text(self.uplink_bits_per_sec),
            self.queue_bytes / 1000,
            self.mtu,
            self.seed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_parsing() {
        let spec = FabricSpec { spines: 3, leaves: 2, hosts: 4, ..FabricSpec::default() };
        assert_eq!(spec.nodes().len(), 3 + 2 + 8);
        for node in spec.nodes() {
            assert_eq!(spec.node(&node.to_string()), Ok(node));
        }
        for bad in ["s3", "h2x0", "h0x4", "x", "", "h0", "é"] {
            assert!(spec.node(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bounds_are_checked() {
        let ok = FabricSpec::default();
        assert!(ok.validate().is_ok());
        for bad in [
            FabricSpec { spines: 0, ..ok.clone() },
            FabricSpec { leaves: 17, ..ok.clone() },
            FabricSpec { mtu: 1000, ..ok.clone() },
            FabricSpec { queue_bytes: 9000, ..ok.clone() },
            FabricSpec { leaves: 16, hosts: 64, ..ok.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_node_hashes_differently() {
        let spec = FabricSpec::default();
        let mut seeds: Vec<u32> = spec.nodes().iter().map(|n| spec.hash_seed(*n)).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), spec.nodes().len());
        assert!(!seeds.contains(&0));
    }
}
