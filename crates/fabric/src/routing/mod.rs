//! Routing: which link a packet takes from a switch.
//!
//! - `ecmp`: shortest paths; a hash of the packet's addresses and ports chooses among equal ones.
//!   Works in every topology.
//! - Oblivious: in a [`KaryNTree`], by the destination alone ("d-mod-k").
//! - [`circuits`]: in a [`KaryNTree`]. Each flow chooses its path once, by the state of each
//!   switch's own outputs, and keeps it.
//!
//! # Placing flows without packets
//!
//! [`Placement`] routes flows one after the other through switches that only count flows. The path
//! of a flow depends on the flows placed before it. The same code routes the first packet of a flow
//! in a packet-level run, so both follow the same rules. Oblivious routing is
//! [`Adaptation::Default`].
//!
//! ```
//! use srd_fabric::routing::{Adaptation, CircuitConfig, Placement, Ties};
//! use srd_fabric::{HostId, KaryNTree};
//!
//! let tree = KaryNTree::new(4, 3, 2)?;
//! let adaptation = Adaptation::LeastFlows;
//! let config = CircuitConfig { adaptation, entries: Some(16), ties: Ties::Default };
//! let mut placement = Placement::new(tree, config, 7);
//! let (mut a, mut b) = (Vec::new(), Vec::new());
//! placement.place(HostId(0), HostId(63), &mut a);
//! placement.place(HostId(1), HostId(59), &mut b);
//! // The path leads from the host's card to the destination's cable.
//! assert_eq!(a[0], tree.host_link(HostId(0)));
//! assert_eq!(a.last(), Some(&tree.host_link(HostId(63)).reverse()));
//! // Both destinations have the same default output at the leaf; the second flow avoids it.
//! assert_ne!(a[1], b[1]);
//! assert_eq!((placement.flows(a[1]), placement.congestion(&b)), (1, 1));
//! placement.remove(HostId(63), &a);
//! assert_eq!(placement.flows(a[1]), 0);
//! # Ok::<(), srd_fabric::TopologyError>(())
//! ```

pub mod circuits;
pub(crate) mod ecmp;
pub(crate) mod flows;
pub(crate) mod oblivious;
mod place;
mod reach;
mod table;

pub use circuits::{Adaptation, Choice, CircuitConfig, Circuits, Ties};
pub use flows::CircuitStats;
pub use place::Placement;
pub use table::TreeTable;

use crate::topo::{LinkId, TopologyError};
use crate::tree::KaryNTree;
use flows::CircuitRouter;
use oblivious::Oblivious;

/// Routing algorithm of the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RoutingConfig {
    /// Shortest paths, with a hash among equals.
    #[default]
    Ecmp,
    /// By destination ("d-mod-k"). Needs a [`KaryNTree`].
    Oblivious,
    /// Virtual circuits. Needs a [`KaryNTree`] and a lossless network
    /// ([`FlowControl::Credits`](crate::FlowControl)), because the last packet of a flow must
    /// arrive to free its entries.
    Circuits(CircuitConfig),
}

/// The properties of a packet in a switch that routing depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    pub switch: u32,
    pub dst: u32,
    /// Hash of addresses and ports.
    pub hash: u32,
    /// Links of the current ring that the packet has passed.
    pub ring_hops: u32,
    /// The packet's flow; for packets without a circuit a number that no flow has.
    pub flow: u32,
    /// Whether it is the last packet of its flow.
    pub last: bool,
    /// Change that the packet makes to the registers of links; `None` without a register operation.
    pub adds: Option<i64>,
}

/// A routing algorithm.
pub(crate) trait Routing {
    /// The link that a packet takes; `None` if there is no route to its destination. `queue_bytes`:
    /// bytes that wait in the switch for an output.
    fn next(&mut self, packet: &Passing, queue_bytes: &dyn Fn(LinkId) -> u64) -> Option<LinkId>;
    /// Recomputes routes after links failed or came back: from now on, only links for which
    /// `usable` holds may be used.
    fn converge(&mut self, usable: &dyn Fn(u32) -> bool);
}

/// The routing of a network, unless it is ECMP, whose tables every network has.
#[derive(Clone, Debug)]
pub(crate) enum Router {
    /// Routing by [`ecmp::Routes`].
    Ecmp,
    Oblivious(Box<Oblivious>),
    Circuits(Box<CircuitRouter>),
}

impl Router {
    /// The routing that `config` selects.
    pub fn new(
        config: RoutingConfig,
        tree: Option<&KaryNTree>,
        seed: u64,
    ) -> Result<Self, TopologyError> {
        let need = |name: &str| {
            let text = format!("{name} routing needs a k-ary n-tree: build the topology as one");
            tree.copied().ok_or_else(|| TopologyError::new(text))
        };
        Ok(match config {
            RoutingConfig::Ecmp => Self::Ecmp,
            RoutingConfig::Oblivious => {
                Self::Oblivious(Box::new(Oblivious::new(need("oblivious")?)))
            }
            RoutingConfig::Circuits(c) => {
                Self::Circuits(Box::new(CircuitRouter::new(need("circuit")?, c, seed)))
            }
        })
    }

    /// The circuits, if there are any.
    pub const fn circuits(&self) -> Option<&CircuitRouter> {
        match self {
            Self::Circuits(c) => Some(c),
            _ => None,
        }
    }

    /// The circuits, to be changed.
    pub const fn circuits_mut(&mut self) -> Option<&mut CircuitRouter> {
        match self {
            Self::Circuits(c) => Some(c),
            _ => None,
        }
    }
}
