//! Which link a packet takes from a switch.
//!
//! - [`ecmp`]: shortest paths, one of the equal ones by a hash of the packet's addresses and ports.
//!   Works in every topology.
//! - Oblivious: in a [`KaryNTree`](crate::KaryNTree), by the destination alone ("d-mod-k").
//! - [`circuits`]: in a [`KaryNTree`](crate::KaryNTree), each flow chooses its way once, with what
//!   each switch knows of its own outputs, and keeps it.
//!
//! # Placing flows without packets
//!
//! [`Placement`] routes flows one after the other through switches that only count: which links a
//! flow takes, given the flows placed before it. It is the same code that routes the first packet
//! of a flow in a packet-level run, so both see the same rules. Oblivious routing is
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
//! // From the host's card to the destination's cable.
//! assert_eq!(a[0], tree.host_link(HostId(0)));
//! assert_eq!(a.last(), Some(&tree.host_link(HostId(63)).reverse()));
//! // Both destinations have the same default way out of the leaf; the second flow avoided it.
//! assert_ne!(a[1], b[1]);
//! assert_eq!((placement.flows(a[1]), placement.congestion(&b)), (1, 1));
//! placement.remove(HostId(63), &a);
//! assert_eq!(placement.flows(a[1]), 0);
//! # Ok::<(), srd_fabric::TopologyError>(())
//! ```

pub mod circuits;
pub(crate) mod ecmp;
mod place;
mod table;

pub use circuits::{Adaptation, Choice, CircuitConfig, Circuits, Ties};
pub use place::Placement;
pub use table::TreeTable;
