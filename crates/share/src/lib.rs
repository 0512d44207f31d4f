//! One host, one sender: a table of what the processes of a user on one host know together.
//!
//! Each engine is a *member* with a slot. Per remote address there is an *entry* with a *seat* for
//! each member: what that member says of the address ([`srd_core::HostNote`]). Nobody writes
//! another's seat. The sum of the seats ([`srd_core::HostView`]) is kept in the entry, made anew by
//! whoever finds it old.
//!
//! The table is words of 64 bits that are read and written atomically, in memory of the process
//! (the simulator, tests) or in a file of `/dev/shm` ([`Segment`]). There are no locks: a process
//! that is killed at any instruction leaves words that others ignore soon after. Nothing read is
//! believed: every word may be anything, at any time.

mod layout;
mod map;
mod process;
mod segment;
mod snapshot;
mod table;

pub use process::Owner;
pub use segment::{OpenError, Segment, segment_path};
pub use snapshot::{MemberRow, SeatRow, Snapshot};
pub use table::{Member, Table};

#[cfg(test)]
mod tests;
