//! A deterministic packet-level network in simulated time.
//!
//! Hosts run any program that implements [`Host`], and packets carry any payload. The network
//! consists of links with queues, switches with ECMP, and timed faults. Everything follows from one
//! seed: two runs of a [`World`] are equal event by event, which [`World::run_hash`] verifies.
//!
//! The path of a packet: [`HostIo::send`] → the card's queue → wire → switch → … →
//! [`Host::on_packet`]. Each hop is one event, because the departure from a FIFO is known on
//! arrival, where drops and ECN marks are decided, too. Faults that change this future (a cable
//! cut, a change of rate) correct the queued events.
//!
//! ```
//! use srd_fabric::{Delivered, Host, HostId, HostIo, Outbound, Port, Ps, US, World, WorldConfig};
//!
//! struct Echo {
//!     arrived_ps: Ps,
//! }
//! impl Host<&'static str> for Echo {
//!     fn on_packet(&mut self, now: Ps, p: Delivered<&'static str>, io: &mut HostIo<'_, &'static
//! str>) {
//!         self.arrived_ps = now;
//!         if p.payload == "ping" {
//!             let back = Outbound { dst: p.src, sport: 1, dport: 2, bytes: 64, ect: false };
//!             io.send(back, "pong").expect("room in the card");
//!         }
//!     }
//!     fn on_timer(&mut self, _: Ps, _: &mut HostIo<'_, &'static str>) {}
//!     fn on_call(&mut self, _: Ps, _: u64, io: &mut HostIo<'_, &'static str>) {
//!         let to = Outbound { dst: HostId(1), sport: 1, dport: 2, bytes: 64, ect: false };
//!         io.send(to, "ping").expect("room in the card");
//!     }
//! }
//!
//! let wire = srd_fabric::back_to_back(Port::new(100_000_000_000, US));
//! let mut world = World::new(wire, WorldConfig::new(7), |_| Echo { arrived_ps: 0 })?;
//! world.call_at(0, HostId(0), 0);
//! world.run_until(10 * US);
//! // Two wires of 1 µs, two packets of 64 bytes at 80 ps per byte.
//! assert_eq!(world.hosts()[0].arrived_ps, 2 * (US + 64 * 80));
//! # Ok::<(), srd_fabric::TopologyError>(())
//! ```
#![forbid(unsafe_code)]

mod ahead;
mod apply;
mod event;
mod fault;
mod host;
pub mod htsim;
mod impair;
mod limit;
mod link;
pub mod lossless;
mod net;
mod pool;
mod ring;
pub mod rng;
pub mod routing;
mod slab;
mod stats;
mod topo;
pub mod tree;
pub mod wheel;
mod world;

pub use fault::{Burst, EcnFault, Effect, Fault, FaultError, FaultPlan, Target};
pub use host::{Delivered, FlowId, Host, HostIo, HostNet, Outbound, PACKET_BYTES_MAX, Tag};
pub use limit::{FlowLimit, FlowLimitError, FlowLimitStats, LIMITED_FLOWS_MAX};
pub use lossless::{
    CreditConfig, Credits, Deadlock, FlowControl, Pauses, PfcConfig, RegisterOp, Service,
};
pub use ring::{
    Placement, RingConfig, RingError, RingFull, RingPut, RingSample, RingState, RingStats,
};
pub use rng::Rng;
pub use routing::RoutingConfig;
pub use stats::{
    Bucket, DROP_REASONS, DropReason, Drops, HOPS_MAX, LinkSample, LinkStats, Monitor, Tap,
    TapEvent, TapWhat, Totals,
};
pub use topo::{
    Cable, CableId, Ecn, FatTree, HostId, LeafSpine, LinkId, MS, NS, Node, Port, Ps, SEC,
    SharedBuffer, SwitchId, Topology, TopologyError, US, back_to_back, dumbbell,
};
pub use tree::{KaryNTree, Ways};
pub use world::{World, WorldConfig};
