//! What travels. Packets are typed here; the bytes they would take are counted.

use srd_fabric::HostId;

/// COPA's header in every packet, behind UDP's: kind (1 byte), flags (1), length (2), stream (4),
/// sequence number acknowledged (8), sequence number meant (8). The layout is our choice; the
/// slides show none.
pub const HEADER_BYTES: u32 = 24;

/// A flow's packets from one sender, numbered from 0 on over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// Who sends the data.
    pub sender: HostId,
    /// Number among its streams.
    pub number: u32,
}

/// A data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Of which stream.
    pub stream: Stream,
    /// Number of the flow in the workload.
    pub flow: u32,
    /// Place in it.
    pub seq: u64,
    /// Payload in bytes.
    pub len: u32,
    /// Which round.
    pub round: u32,
    /// The round's last packet is the one before this.
    pub end: u64,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Of which stream.
    pub stream: Stream,
    /// All packets before this one are acknowledged.
    pub next: u64,
    /// The packet that caused it: it has arrived, or has sunk below the threshold.
    pub of: u64,
    /// That packet is acknowledged, too.
    pub own: bool,
}

/// Packets are missing and will not come: send them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Of which stream.
    pub stream: Stream,
    /// All packets before this one are acknowledged.
    pub next: u64,
    /// First one missing.
    pub first: u64,
    /// Last one missing.
    pub last: u64,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopaPacket {
    /// The sender of this wants data (get).
    Request {
        /// Number of the flow in the workload.
        flow: u32,
        /// Which round.
        round: u32,
        /// How much.
        bytes: u64,
    },
    /// Data.
    Data(Data),
    /// An acknowledgment.
    Ack(Ack),
    /// Missing packets.
    Nack(Nack),
}
