//! Faults: spines and links that drop packets, slow down or go down.
//!
//! Packets are dropped by a kernel filter (`tc … bpf`, classic bytecode) where they enter the
//! faulty node, which needs no further privileges.

use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    plan,
    spec::Node,
};

/// Place of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A spine with all its links.
    Spine(u8),
    /// The link between a leaf and a spine.
    Link {
        /// The leaf's number.
        leaf: u8,
        /// The spine's number.
        spine: u8,
    },
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All packets are dropped without notice.
    Blackhole,
    /// The link has no carrier, which both ends see.
    LinkDown,
    /// This share of the packets is dropped in each direction, in parts per million.
    Loss(u32),
    /// The rate is changed in both directions, in bits per second.
    Rate(u64),
}

impl Place {
    /// The links of the place: (leaf, spine).
    fn links(self, fabric: &Fabric) -> Result<Vec<(u8, u8)>> {
        let spec = fabric.spec();
        let spine_ok = |s: u8| spec.node(&Node::Spine(s).to_string()).map(|_| ());
        match self {
            Self::Spine(spine) => {
                spine_ok(spine)?;
                Ok((0..spec.leaves).map(|leaf| (leaf, spine)).collect())
            }
            Self::Link { leaf, spine } => {
                spine_ok(spine)?;
                spec.node(&Node::Leaf(leaf).to_string())?;
                Ok(vec![(leaf, spine)])
            }
        }
    }
}

impl Place {
    /// Interfaces at whose ingress packets are dropped, such that each packet through the place
    /// passes one of them: both ends of a link, or the spine's interface.
    fn lossy_ends(self, leaf: u8, spine: u8) -> Vec<(Node, String)> {
        let own = match self {
            Self::Spine(_) => 1,
            Self::Link { .. } => 0,
        };
        ends(leaf, spine).into_iter().skip(own).collect()
    }
}

/// Injects a fault.
///
/// # Errors
/// The place does not exist, or the kernel refuses.
pub fn fail(fabric: &Fabric, place: Place, fault: Fault) -> Result {
    for (leaf, spine) in place.links(fabric)? {
        let ends = place.lossy_ends(leaf, spine);
        match fault {
            Fault::Blackhole => loss_set(fabric, &ends, 1_000_000)?,
            Fault::Loss(ppm) => loss_set(fabric, &ends, ppm)?,
            Fault::Rate(bits) => rate_set(fabric, leaf, spine, bits)?,
            Fault::LinkDown => {
                let batch = format!("link set dev d{leaf} down\n");
                fabric.ns(Node::Spine(spine))?.run("ip", &["-batch", "-"], &batch)?;
            }
        }
    }
    Ok(())
}

/// Removes one kind of fault.
///
/// # Errors
/// The place does not exist, or the kernel refuses.
pub fn heal(fabric: &Fabric, place: Place, fault: Fault) -> Result {
    let links = place.links(fabric)?;
    for (leaf, spine) in &links {
        match fault {
            Fault::Blackhole | Fault::Loss(_) => {
                loss_clear(fabric, &place.lossy_ends(*leaf, *spine))?
            }
            Fault::Rate(_) => {
                let own = fabric.spec().uplink_bits_per_sec;
                rate_set(fabric, *leaf, *spine, own)?;
            }
            Fault::LinkDown => {}
        }
    }
    if fault == Fault::LinkDown {
        let mut spines: Vec<u8> = links.iter().map(|(_, s)| *s).collect();
        spines.dedup();
        let mut leaves: Vec<u8> = links.iter().map(|(l, _)| *l).collect();
        leaves.dedup();
        for spine in spines {
            fabric.restore(Node::Spine(spine))?;
        }
        for leaf in leaves {
            fabric.restore(Node::Leaf(leaf))?;
        }
    }
    Ok(())
}

/// Removes all faults.
///
/// # Errors
/// The kernel refuses.
pub fn heal_all(fabric: &Fabric) -> Result {
    for spine in 0..fabric.spec().spines {
        for leaf in 0..fabric.spec().leaves {
            heal(fabric, Place::Link { leaf, spine }, Fault::Blackhole)?;
        }
        heal(fabric, Place::Spine(spine), Fault::Rate(0))?;
        heal(fabric, Place::Spine(spine), Fault::LinkDown)?;
    }
    Ok(())
}

/// Cuts one of a host's links: both directions drop all packets without notice.
///
/// # Errors
/// The link does not exist, or the kernel refuses.
pub fn cable_cut(fabric: &Fabric, host: (u8, u8), rail: u8) -> Result {
    loss_set(fabric, &cable_ends(host, rail), 1_000_000)
}

/// Repairs a link after [`cable_cut`].
///
/// # Errors
/// The link does not exist, or the kernel refuses.
pub fn cable_mend(fabric: &Fabric, host: (u8, u8), rail: u8) -> Result {
    loss_clear(fabric, &cable_ends(host, rail))
}

/// Both ends of one of a host's links: node and interface.
fn cable_ends((leaf, host): (u8, u8), rail: u8) -> [(Node, String); 2] {
    [(Node::Leaf(leaf), plan::down_dev(host, rail)), (Node::Host(leaf, host), format!("e{rail}"))]
}

/// Both ends of a link between leaf and spine: node and interface.
fn ends(leaf: u8, spine: u8) -> [(Node, String); 2] {
    [(Node::Leaf(leaf), format!("up{spine}")), (Node::Spine(spine), format!("d{leaf}"))]
}

fn loss_set(fabric: &Fabric, ends: &[(Node, String)], ppm: u32) -> Result {
    loss_clear(fabric, ends)?;
    for (node, dev) in ends {
        let batch = format!(
            "qdisc add dev {dev} clsact\n\
             filter add dev {dev} ingress protocol all prio 1 bpf da bytecode '{}'\n",
            loss_code(ppm)
        );
        let done = fabric.ns(*node)?.run("tc", &["-batch", "-"], &batch);
        done.map_err(|e| {
            NetError::new(format!(
                "{e} (the kernel needs CONFIG_NET_CLS_BPF and CONFIG_NET_SCH_INGRESS, modules \
                 cls_bpf and sch_ingress)"
            ))
        })?;
    }
    Ok(())
}

/// A packet filter in classic BPF bytecode that drops with a probability of `ppm` / 1,000,000.
fn loss_code(ppm: u32) -> String {
    if ppm >= 1_000_000 {
        // return TC_ACT_SHOT
        return "1,6 0 0 2".into();
    }
    // A packet is dropped if a 32-bit random number is below this.
    let below = (u64::from(ppm) << 32) / 1_000_000;
    // load random (SKF_AD_OFF + SKF_AD_RANDOM); if it is >= below: return TC_ACT_OK; else
    // TC_ACT_SHOT.
    format!("4,32 0 0 4294963256,53 0 1 {below},6 0 0 0,6 0 0 2")
}

fn loss_clear(fabric: &Fabric, ends: &[(Node, String)]) -> Result {
    for (node, dev) in ends {
        let ns = fabric.ns(*node)?;
        if ns.run("tc", &["qdisc", "show", "dev", dev], "")?.contains("clsact") {
            ns.run("tc", &["qdisc", "del", "dev", dev, "clsact"], "")?;
        }
    }
    Ok(())
}

fn rate_set(fabric: &Fabric, leaf: u8, spine: u8, bits_per_sec: u64) -> Result {
    for (node, dev) in ends(leaf, spine) {
        let spec = fabric.spec();
        let batch = plan::shaper(spec, &dev, bits_per_sec, spec.queue_bytes);
        let batch = batch.replace("qdisc replace", "qdisc change");
        fabric.ns(node)?.run("tc", &["-batch", "-"], &batch)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
