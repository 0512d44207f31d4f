//! Topologies from a spec's network.

use crate::spec::{
    AdaptationSpec, FlowControlSpec, Network, RingSpec, Routing, ServiceSpec, Shape, TiesSpec,
};
use srd_fabric::lossless::LANES_MAX;
use srd_fabric::routing::{Adaptation, CircuitConfig, Placement, Ties};
use srd_fabric::{
    CreditConfig, Ecn, FatTree, FlowControl, FlowLimit, HostId, KaryNTree, LeafSpine, LinkId, NS,
    Node, PfcConfig, Port, RoutingConfig, Service, SharedBuffer, SwitchId, Topology, WorldConfig,
    back_to_back, dumbbell,
};
use std::path::Path;

/// Ports as configured by a spec.
struct Ports {
    nic: Port,
    edge: Port,
    core: Port,
}

/// Bytes that a flow with a limit may send at once.
const FLOW_BURST_BYTES: u64 = 64_000;
/// Default thresholds of priority flow control in packets, those of htsim's RoCE.
const PFC_XOFF_PACKETS: u64 = 15;
const PFC_XON_PACKETS: u64 = 12;

impl Network {
    fn ports(&self) -> Result<Ports, String> {
        let rate = |gbps: f64, field| {
            let bits = gbps * 1e9;
            if (1e6..=1e15).contains(&bits) {
                return Ok(bits.round() as u64);
            }
            Err(format!("network.{field} = {gbps} is not between 0.001 and 1,000,000"))
        };
        let link = rate(self.link_gbps, "link_gbps")?;
        let core = rate(self.core_gbps.unwrap_or(self.link_gbps), "core_gbps")?;
        let nic = Port::new(link, self.link_delay_ns * NS);
        let switch = |bits| {
            let mut port = Port::new(bits, self.link_delay_ns * NS).buffer(self.port_bytes());
            if self.ecn_bytes_min > 0 {
                port = port.ecn(Ecn {
                    min_bytes: self.ecn_bytes_min,
                    max_bytes: self.ecn_bytes_max,
                    prob_max: self.ecn_prob_max,
                });
            }
            port
        };
        Ok(Ports { nic, edge: switch(link), core: switch(core) })
    }

    /// Size of the buffer of each port.
    fn port_bytes(&self) -> u64 {
        self.shared_buffer_bytes.map_or(self.buffer_bytes, |_| u64::MAX)
    }

    /// Gives every switch its shared buffer.
    fn buffers_share(&self, topo: &mut Topology) {
        let Some(bytes) = self.shared_buffer_bytes else { return };
        let alpha = self.shared_buffer_alpha.unwrap_or(1.0);
        for switch in (0..topo.switches()).map(SwitchId) {
            topo.buffer_share(switch, SharedBuffer { bytes, alpha });
        }
    }

    /// The value of a field that the shape requires.
    fn need<T: Copy>(&self, field: Option<T>, name: &str) -> Result<T, String> {
        field.ok_or_else(|| format!("network.{name} is missing: shape {:?} needs it", self.shape))
    }

    /// The tree, if the shape has one.
    fn tree(&self) -> Result<KaryNTree, String> {
        let (k, n) = (self.need(self.k, "k")?, self.need(self.n, "n")?);
        let tree = KaryNTree::new(k, n, self.horizontal.unwrap_or(0));
        let tree = tree.map_err(|e| format!("network.{e}"))?;
        let tree = if self.ring == Some(RingSpec::Line) { tree.line() } else { tree };
        Ok(self.ring_hops_max.map_or(tree, |hops| tree.ring_hops_limit(hops)))
    }

    /// Whether packets could return to a switch along horizontal cables.
    fn has_rings(&self) -> bool {
        self.horizontal.unwrap_or(0) > 0 && self.ring != Some(RingSpec::Line)
    }

    /// Refuses settings of horizontal cables in a network without them.
    fn rings_check(&self) -> Result<(), String> {
        let rules =
            [("ring", self.ring.is_some()), ("ring_hops_max", self.ring_hops_max.is_some())];
        if let Some((name, _)) = rules.iter().find(|(_, given)| *given)
            && self.horizontal.unwrap_or(0) == 0
        {
            return Err(format!("network.{name}: there are no rings; set network.horizontal"));
        }
        if self.ring_hops_max == Some(0) {
            return Err("network.ring_hops_max = 0: give at least 1; to forbid ring links, leave \
                        network.horizontal out"
                .into());
        }
        Ok(())
    }

    /// Refuses invalid settings before the network is built.
    ///
    /// # Errors
    /// The text names the field.
    pub fn check(&self) -> Result<(), String> {
        self.unused()?;
        if self.shape != Shape::Topo {
            self.flow_gbps_check(self.link_gbps)?;
        }
        if self.shape == Shape::KAryNTree {
            self.tree()?;
        }
        Ok(())
    }

    /// Limit of each flow at its sender's card.
    pub fn flow_limit(&self) -> Option<FlowLimit> {
        self.flow_gbps.map(|gbps| FlowLimit {
            bits_per_s: (gbps * 1e9).round() as u64,
            burst_bytes: FLOW_BURST_BYTES,
            queue_bytes: self.buffer_bytes,
        })
    }

    /// Refuses limits of flows that are not possible. `link_gbps`: the rate of a host's link.
    fn flow_gbps_check(&self, link_gbps: f64) -> Result<(), String> {
        let Some(gbps) = self.flow_gbps else { return Ok(()) };
        if !(0.001..=link_gbps).contains(&gbps) {
            return Err(format!(
                "network.flow_gbps = {gbps} must be at least 0.001, and at most {link_gbps}, the \
                 rate of a host's link; leave it out for flows without a limit"
            ));
        }
        if self.flow_control != FlowControlSpec::Drop {
            return Err("network.flow_gbps: a card with limits drops packets, and this network \
                        loses none; give flow_control = \"drop\", or leave it out"
                .into());
        }
        Ok(())
    }

    /// Refuses fields that the shape does not use.
    fn unused(&self) -> Result<(), String> {
        let credits = self.flow_control == FlowControlSpec::Credits;
        let (pfc, ring) = (self.flow_control == FlowControlSpec::Pfc, self.shape == Shape::Ring);
        let (leaf_spine, tree) = (self.shape == Shape::LeafSpine, self.shape == Shape::KAryNTree);
        let given = [
            ("k", self.k.is_some(), self.shape == Shape::FatTree || tree),
            ("n", self.n.is_some(), tree),
            ("horizontal", self.horizontal.is_some(), tree),
            ("ring", self.ring.is_some(), tree),
            ("ring_hops_max", self.ring_hops_max.is_some(), tree),
            ("routing", self.routing != Routing::Ecmp, tree),
            ("circuit_entries", self.circuit_entries.is_some(), tree),
            ("adaptation", self.adaptation.is_some(), tree),
            ("ties", self.ties.is_some(), tree),
            ("input_bytes", self.input_bytes.is_some(), credits),
            ("lanes", self.lanes.is_some(), credits),
            ("service", self.service.is_some(), credits || pfc),
            ("pfc_xoff_bytes", self.pfc_xoff_bytes.is_some(), pfc),
            ("pfc_xon_bytes", self.pfc_xon_bytes.is_some(), pfc),
            ("pfc_headroom_bytes", self.pfc_headroom_bytes.is_some(), pfc),
            ("switches", self.switches.is_some(), ring),
            ("hosts_per_switch", self.hosts_per_switch.is_some(), ring),
            ("leaves", self.leaves.is_some(), leaf_spine),
            ("spines", self.spines.is_some(), leaf_spine),
            ("hosts_per_leaf", self.hosts_per_leaf.is_some(), leaf_spine),
            ("cables_per_spine", self.cables_per_spine.is_some(), leaf_spine),
            ("left", self.left.is_some(), self.shape == Shape::Dumbbell),
            ("right", self.right.is_some(), self.shape == Shape::Dumbbell),
            ("file", self.file.is_some(), self.shape == Shape::Topo),
            (
                "shared_buffer_bytes",
                self.shared_buffer_bytes.is_some(),
                self.shape != Shape::BackToBack,
            ),
        ];
        if self.shared_buffer_alpha.is_some() && self.shared_buffer_bytes.is_none() {
            return Err("network.shared_buffer_alpha: give shared_buffer_bytes, too".into());
        }
        let circuits = [
            ("circuit_entries", self.circuit_entries.is_some()),
            ("adaptation", self.adaptation.is_some()),
            ("ties", self.ties.is_some()),
        ];
        let without = circuits.iter().find(|(_, g)| *g && self.routing != Routing::Circuits);
        if let (true, Some((name, _))) = (tree, without) {
            return Err(format!("network.{name}: only routing = \"circuits\" uses it"));
        }
        if tree {
            self.rings_check()?;
        }
        if credits {
            self.credits_check()?;
        }
        if pfc && self.shared_buffer_bytes.is_some() {
            return Err("network.shared_buffer_bytes: flow_control = \"pfc\" has input buffers \
                        instead"
                .into());
        }
        if !(0.0..=1.0).contains(&self.ecn_prob_max) {
            return Err(format!(
                "network.ecn_prob_max = {} must be from 0 to 1",
                self.ecn_prob_max
            ));
        }
        match given.iter().find(|(_, given, used)| *given && !*used) {
            Some((name, ..)) if name.starts_with("pfc_") => {
                Err(format!("network.{name}: only flow_control = \"pfc\" uses it"))
            }
            Some((name, ..)) => {
                Err(format!("network.{name} has no meaning for shape {:?}", self.shape))
            }
            None => Ok(()),
        }
    }

    /// Checks that networks with credits have buffers, and with rings two lanes.
    fn credits_check(&self) -> Result<(), String> {
        if self.input_bytes.is_none() {
            return Err(
                "network.input_bytes is missing: flow_control = \"credits\" needs it".into()
            );
        }
        if self.shared_buffer_bytes.is_some() {
            return Err(
                "network.shared_buffer_bytes: flow_control = \"credits\" has input buffers \
                        instead"
                    .into(),
            );
        }
        if !(1..=LANES_MAX).contains(&self.lanes()) {
            return Err(format!("network.lanes = {} must be 1 or {LANES_MAX}", self.lanes()));
        }
        if self.has_rings() && self.lanes() < 2 {
            return Err("network.lanes = 1: one lane can deadlock around the rings of horizontal \
                        cables; give 2"
                .into());
        }
        Ok(())
    }

    fn lanes(&self) -> u32 {
        self.lanes.unwrap_or(if self.has_rings() { 2 } else { 1 })
    }

    /// Settings of priority flow control for packets of up to `packet_bytes` on the wire.
    fn pfc(&self, packet_bytes: u32) -> PfcConfig {
        let packets = |n: u64| n * u64::from(packet_bytes);
        let xoff_bytes = self.pfc_xoff_bytes.unwrap_or(packets(PFC_XOFF_PACKETS));
        let xon = packets(PFC_XON_PACKETS).min(xoff_bytes * PFC_XON_PACKETS / PFC_XOFF_PACKETS);
        PfcConfig {
            xoff_bytes,
            xon_bytes: self.pfc_xon_bytes.unwrap_or(xon),
            headroom_bytes: self.pfc_headroom_bytes,
            packet_bytes,
            service: match self.service {
                Some(ServiceSpec::Rr) => Service::RoundRobin,
                Some(ServiceSpec::Fcfs) | None => Service::Fcfs,
            },
        }
    }

    /// Checks pauses for packets of up to `packet_bytes`, where the network needs no file.
    ///
    /// # Errors
    /// The text names the field.
    pub fn pfc_check(&self, packet_bytes: u32) -> Result<(), String> {
        if self.flow_control != FlowControlSpec::Pfc || self.shape == Shape::Topo {
            return Ok(());
        }
        let topo = self.build(Path::new("."))?;
        self.pfc(packet_bytes).check(&topo).map_err(|e| format!("network.{e}"))
    }

    /// Settings of a world with this network. `packet_bytes`: the transport's largest packet on the
    /// wire.
    pub fn world_config(&self, seed: u64, packet_bytes: u32) -> WorldConfig {
        let mut config = WorldConfig::new(seed);
        if self.flow_control == FlowControlSpec::Pfc {
            config.flow_control = FlowControl::Pfc(self.pfc(packet_bytes));
        }
        if self.flow_control == FlowControlSpec::Credits {
            config.flow_control = FlowControl::Credits(CreditConfig {
                input_bytes: self.input_bytes.unwrap_or(0),
                lanes: self.lanes(),
                service: match self.service {
                    Some(ServiceSpec::Fcfs) => Service::Fcfs,
                    Some(ServiceSpec::Rr) | None => Service::RoundRobin,
                },
            });
        }
        config.routing = match self.routing {
            Routing::Ecmp => RoutingConfig::Ecmp,
            Routing::Oblivious => RoutingConfig::Oblivious,
            Routing::Circuits => RoutingConfig::Circuits(self.circuits()),
        };
        config
    }

    /// Builds the network. `folder`: folder of the files that the spec names.
    ///
    /// # Errors
    /// The text names the missing or invalid field.
    pub fn build(&self, folder: &Path) -> Result<Topology, String> {
        self.unused()?;
        let p = self.ports()?;
        let mut topo = match self.shape {
            Shape::FatTree => {
                let k = self.need(self.k, "k")?;
                if !(2..=128).contains(&k) || k % 2 == 1 {
                    return Err(format!("network.k = {k} must be even, from 2 to 128"));
                }
                let mut tree = FatTree::k_ary(k, p.nic, p.edge);
                (tree.agg, tree.core) = (p.core, p.core);
                tree.build()
            }
            Shape::KAryNTree => self.tree()?.build(p.nic, p.edge, p.core),
            Shape::LeafSpine => LeafSpine {
                leaves: self.need(self.leaves, "leaves")?,
                spines: self.need(self.spines, "spines")?,
                hosts_per_leaf: self.need(self.hosts_per_leaf, "hosts_per_leaf")?,
                cables_per_spine: self.cables_per_spine.unwrap_or(1),
                nic: p.nic,
                edge: p.edge,
                uplink: p.core,
            }
            .build(),
            Shape::Dumbbell => {
                let left = self.need(self.left, "left")?;
                dumbbell(left, self.need(self.right, "right")?, p.nic, p.edge, p.core)
            }
            Shape::Ring => {
                let n = self.need(self.switches, "switches")?;
                if !(3..=1_024).contains(&n) {
                    return Err(format!("network.switches = {n} must be from 3 to 1,024"));
                }
                ring(n, self.hosts_per_switch.unwrap_or(1), &p)
            }
            Shape::SharedInput => shared_input(&p),
            Shape::BackToBack => back_to_back(p.nic),
            Shape::Topo => {
                let name = self.file.as_deref().ok_or("network.file is missing")?;
                let path = folder.join(name);
                let text = std::fs::read_to_string(&path)
                    .map_err(|e| format!("{}: {e}", path.display()))?;
                let topo = srd_fabric::htsim::TopoFile::parse(&text)
                    .map_err(|e| format!("{}: {e}", path.display()))?;
                topo.build(self.port_bytes(), p.edge.ecn)
            }
        };
        self.buffers_share(&mut topo);
        topo.validate().map_err(|e| e.to_string())?;
        // The files of htsim have rates of their own.
        let from_host = |l: &LinkId| matches!(topo.from(*l), Node::Host(_));
        let rates = (0..topo.links()).map(LinkId).filter(from_host);
        let slowest = rates.map(|l| topo.port(l).bits_per_s).min().unwrap_or(0);
        self.flow_gbps_check(slowest as f64 / 1e9)?;
        Ok(topo)
    }
}

impl Network {
    /// Settings of circuits. Oblivious routing always keeps to the default port.
    pub fn circuits(&self) -> CircuitConfig {
        let adaptation = match (self.routing, self.adaptation) {
            (Routing::Oblivious, _) | (_, Some(AdaptationSpec::Default)) => Adaptation::Default,
            (_, Some(AdaptationSpec::LeastQueue)) => Adaptation::LeastQueue,
            (_, Some(AdaptationSpec::Random)) => Adaptation::Random,
            (_, Some(AdaptationSpec::LeastFlows) | None) => Adaptation::LeastFlows,
        };
        let ties = match self.ties {
            Some(TiesSpec::Default) => Ties::Default,
            Some(TiesSpec::Drawn) | None => Ties::Drawn,
        };
        CircuitConfig { adaptation, entries: self.circuit_entries, ties }
    }

    /// An empty network for placing flows without packets.
    ///
    /// # Errors
    /// If the network is not a k-ary n-tree.
    pub fn placement(&self, topo: &Topology, seed: u64) -> Result<Placement, String> {
        let tree = topo.tree().ok_or("network.shape must be \"k-ary-n-tree\"")?;
        Ok(Placement::new(*tree, self.circuits(), seed))
    }
}

/// Switches in a circle, each with `hosts` hosts.
fn ring(switches: u32, hosts: u32, p: &Ports) -> Topology {
    let mut t = Topology::new(switches * hosts);
    let all: Vec<Node> = (0..switches).map(|_| Node::Switch(t.switch_add(0))).collect();
    for h in 0..switches * hosts {
        t.cable_add(Node::Host(HostId(h)), all[(h / hosts) as usize], p.nic, p.edge);
    }
    for i in 0..switches as usize {
        t.cable_add(all[i], all[(i + 1) % switches as usize], p.core, p.core);
    }
    t
}

/// Three senders on each of two switches, with one cable from each of these to a third switch,
/// which has the five receivers.
fn shared_input(p: &Ports) -> Topology {
    let mut t = Topology::new(crate::pattern::SHARED_INPUT_HOSTS);
    let senders = [Node::Switch(t.switch_add(0)), Node::Switch(t.switch_add(0))];
    let receivers = Node::Switch(t.switch_add(1));
    for h in 0..crate::pattern::SHARED_INPUT_HOSTS {
        let switch = senders.get(h as usize / 3).copied().unwrap_or(receivers);
        t.cable_add(Node::Host(HostId(h)), switch, p.nic, p.edge);
    }
    for switch in senders {
        t.cable_add(switch, receivers, p.core, p.core);
    }
    t
}
