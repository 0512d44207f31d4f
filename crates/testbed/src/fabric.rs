//! Builds a fabric and configures its nodes.

use crate::{
    error::{NetError, Result},
    ns::NetNs,
    plan,
    spec::{FabricSpec, Node},
};
use std::collections::BTreeMap;

/// A fabric: either built by this process, or opened from the process that holds it.
#[derive(Debug)]
pub struct Fabric {
    spec: FabricSpec,
    nodes: BTreeMap<Node, NetNs>,
    v6: bool,
}

impl Fabric {
    /// Builds the fabric, and returns notes for the user. The kernel removes it when the value is
    /// dropped and no process is left inside.
    ///
    /// # Errors
    /// The kernel, `ip` or `tc` refuses; the text says what to do.
    pub fn build(spec: &FabricSpec) -> Result<(Self, Vec<String>)> {
        spec.validate()?;
        let mut nodes = BTreeMap::new();
        let mut notes = Vec::new();
        for node in spec.nodes() {
            nodes.insert(node, NetNs::create()?);
        }
        let v6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
        if !v6 {
            notes.push("this kernel has no IPv6: TCP over IPv6 cannot be compared".into());
        }
        let fabric = Self { spec: spec.clone(), nodes, v6 };
        for (node, ns) in &fabric.nodes {
            fabric.sysctls_apply(*node, ns, &mut notes)?;
            if matches!(node, Node::Host(..)) {
                tcp_apply(ns, &mut notes)?;
            }
        }
        for leaf in 0..spec.leaves {
            let home = |n: Node| fabric.nodes[&n].path();
            let batch = plan::cable_batch(spec, leaf, home);
            fabric.ns(Node::Leaf(leaf))?.run("ip", &["-batch", "-"], &batch)?;
        }
        for (node, ns) in &fabric.nodes {
            ns.run("ip", &["-batch", "-"], &plan::node_batch(spec, *node, v6))?;
            ns.run("tc", &["-batch", "-"], &plan::shaper_batch(spec, *node))?;
        }
        Ok((fabric, notes))
    }

    /// A fabric whose namespaces are already open.
    pub fn opened(spec: FabricSpec, nodes: BTreeMap<Node, NetNs>, v6: bool) -> Self {
        Self { spec, nodes, v6 }
    }

    fn sysctls_apply(&self, node: Node, ns: &NetNs, notes: &mut Vec<String>) -> Result {
        for s in plan::sysctls(&self.spec, node) {
            if !ns.sysctl_set(s.path, &s.value.to_string())? {
                match s.without {
                    None => {
                        let text = format!("this kernel has no net/{}: too old", s.path);
                        return Err(NetError::new(text));
                    }
                    Some(why) if !why.is_empty() => {
                        let text = format!("this kernel has no net/{}: {why}", s.path);
                        if !notes.contains(&text) {
                            notes.push(text);
                        }
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// The specification of the fabric.
    pub fn spec(&self) -> &FabricSpec {
        &self.spec
    }

    /// Whether the fabric has IPv6.
    pub fn v6(&self) -> bool {
        self.v6
    }

    /// The namespace of a node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn ns(&self, node: Node) -> Result<&NetNs> {
        self.nodes.get(&node).ok_or_else(|| NetError::new(format!("there is no node {node}")))
    }

    /// All nodes with their namespaces.
    pub fn nodes(&self) -> impl Iterator<Item = (Node, &NetNs)> {
        self.nodes.iter().map(|(node, ns)| (*node, ns))
    }

    /// Changes the seed of the ECMP hashes, so that ports take other spines. Kernels before 6.11
    /// cannot set the seed: there, the random source ports of each run serve the same purpose.
    ///
    /// # Errors
    /// The kernel refuses the seed.
    pub fn reseed(&mut self, seed: u32) -> Result {
        self.spec.seed = seed;
        for (node, ns) in &self.nodes {
            if !matches!(node, Node::Host(..)) {
                let value = self.spec.hash_seed(*node).to_string();
                ns.sysctl_set("ipv4/fib_multipath_hash_seed", &value)?;
            }
        }
        Ok(())
    }

    /// Configures a node again, because taking interfaces down removes addresses and routes.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn restore(&self, node: Node) -> Result {
        let batch = plan::node_batch(&self.spec, node, self.v6);
        self.ns(node)?.run("ip", &["-batch", "-"], &batch)?;
        Ok(())
    }

    /// Predicts, by `ip route get` at the leaf, which spine packets of these addresses and ports
    /// take.
    ///
    /// # Errors
    /// `ip` fails, or the hosts share a leaf.
    pub fn predict(&self, from: (u8, u8), to: (u8, u8), ports: &[(u16, u16)]) -> Result<Vec<u8>> {
        if from.0 == to.0 {
            return Err(NetError::usage(format!(
                "both hosts are at leaf l{}, so no spine is between them",
                from.0
            )));
        }
        let (src, dst) = (self.spec.ip(from.0, from.1), self.spec.ip(to.0, to.1));
        let ask = |(sport, dport): &(u16, u16)| {
            format!(
                "route get {dst} from {src} iif dn{} ipproto udp sport {sport} dport {dport}\n",
                from.1
            )
        };
        let batch: String = ports.iter().map(ask).collect();
        let said = self.ns(Node::Leaf(from.0))?.run("ip", &["-batch", "-"], &batch)?;
        let spine = |l: &str| {
            let mut words = l.split_whitespace().skip_while(|w| *w != "dev");
            words.nth(1)?.strip_prefix("up")?.parse::<u8>().ok()
        };
        let spines: Vec<u8> = said.lines().filter_map(spine).collect();
        if spines.len() != ports.len() {
            return Err(NetError::new(format!(
                "`ip route get` answered for {} of {} ports",
                spines.len(),
                ports.len()
            )));
        }
        Ok(spines)
    }

    /// Counters of a node's interfaces, by interface.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn counters(&self, node: Node) -> Result<BTreeMap<String, DevCounters>> {
        self.ns(node)?.inside(counters_here)
    }
}

/// Counters of the interfaces of the node whose namespace the calling thread is in.
///
/// # Errors
/// /proc is not mounted.
pub(crate) fn counters_here() -> Result<BTreeMap<String, DevCounters>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(dev_counters(&text))
}

/// Sets TCP's settings at a host.
fn tcp_apply(ns: &NetNs, notes: &mut Vec<String>) -> Result {
    for s in plan::TCP_SETTINGS {
        if !ns.sysctl_set(s.path, s.value)? {
            let text = format!("this kernel has no net/{}: {}", s.path, s.without);
            if !notes.contains(&text) {
                notes.push(text);
            }
        }
    }
    Ok(())
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevCounters {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
}

/// Parses `/proc/net/dev`.
fn dev_counters(text: &str) -> BTreeMap<String, DevCounters> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let n: Vec<u64> = rest.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        if n.len() >= 10 {
            let c =
                DevCounters { rx_bytes: n[0], rx_packets: n[1], tx_bytes: n[8], tx_packets: n[9] };
            out.insert(name.trim().to_owned(), c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_net_dev_is_read() {
        let text = "Inter-|   Receive | Transmit\n face |bytes packets\n    lo: 1 2 0 0 0 0 \
                    0 0 3 4 0 0 0 0 0 0\n   up0: 10 20 0 0 0 0 0 0 30 40 0 0 0 0 0 0\n";
        let got = dev_counters(text);
        assert_eq!(got.len(), 2);
        assert_eq!((got["up0"].rx_packets, got["up0"].tx_bytes), (20, 30));
    }
}
