//! From a spec's network to a topology.

use crate::spec::{Network, Shape};
use srd_fabric::{
    Ecn, FatTree, LeafSpine, NS, Port, SharedBuffer, SwitchId, Topology, back_to_back, dumbbell,
};
use std::path::Path;

/// Ports as a spec describes them.
struct Ports {
    nic: Port,
    edge: Port,
    core: Port,
}

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
                    prob_max: 1.0,
                });
            }
            port
        };
        Ok(Ports { nic, edge: switch(link), core: switch(core) })
    }

    /// Buffer that each port has for itself.
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

    /// A field that the shape needs.
    fn need<T: Copy>(&self, field: Option<T>, name: &str) -> Result<T, String> {
        field.ok_or_else(|| format!("network.{name} is missing: shape {:?} needs it", self.shape))
    }

    /// Refuses fields that the shape does not use.
    fn unused(&self) -> Result<(), String> {
        let leaf_spine = self.shape == Shape::LeafSpine;
        let given = [
            ("k", self.k.is_some(), self.shape == Shape::FatTree),
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
        match given.iter().find(|(_, given, used)| *given && !*used) {
            Some((name, ..)) => {
                Err(format!("network.{name} has no meaning for shape {:?}", self.shape))
            }
            None => Ok(()),
        }
    }

    /// Lays the network out. `folder`: where files are looked for.
    ///
    /// # Errors
    /// Names the field that is missing or wrong.
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
        Ok(topo)
    }
}
