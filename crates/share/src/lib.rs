//! What the processes of a host tell each other and tools: a table of congestion state, and the
//! status of each device ([`status`]); and what tools tell the devices ([`PathControl`]) and ask of
//! them ([`CaptureRing`]).
//!
//! The table makes the processes of a user on one host send as one sender.
//! Each engine is a *member* with a slot. Each remote address has an *entry*, and in it each member
//! has a *seat*: what that member knows about the address ([`srd_core::HostNote`]). A member writes
//! only its own seats. The entry also holds the sum of its seats ([`srd_core::HostView`]);
//! whichever member finds the sum outdated recalculates it.
//!
//! The table consists of 64-bit words that are read and written atomically. It lies in memory of
//! the process (simulator, tests) or in a file of `/dev/shm` ([`Segment`]). There are no locks: the
//! words of a process that is killed, at whatever instruction, expire soon after. No word is
//! trusted: any word may have any value at any time.

mod control;
mod layout;
mod map;
mod mirror;
mod process;
mod segment;
mod snapshot;
mod standing;
pub mod status;
mod table;

pub use control::{PATH_PROBES_MAX, PathControl, PathOrder, PathTable, path_tables};
pub use map::shared_memory_free;
pub use mirror::{
    CaptureFeed, CaptureRing, Mirrored, MirroredPacket, RING_BYTES, capture_rings_sweep,
};
pub use process::Owner;
pub use segment::{OpenError, Segment, segment_path};
pub use snapshot::{MemberRow, SeatRow, Snapshot};
pub use srd_core::PathMask;
pub use standing::{standing_change, standing_orders};
pub use table::{Member, Table};

#[cfg(test)]
mod tests;
