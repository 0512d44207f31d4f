//! Packet types. Packets are simulated as values; only their size on the wire is counted.

use srd_fabric::HostId;

/// COPA's header, after UDP's: kind (1 byte), flags (1), length (2), stream (4), acknowledged
/// sequence number (8), the packet's own sequence number (8). The layout is our choice; the slides
/// show none.
pub const HEADER_BYTES: u32 = 24;

/// A flow's packets from one sender, numbered from 0 across all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The host that sends the data.
    pub sender: HostId,
    /// The sender's number of the stream.
    pub number: u32,
}

/// A data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The stream.
    pub stream: Stream,
    /// Number of the flow in the workload.
    pub flow: u32,
    /// Sequence number.
    pub seq: u64,
    /// Payload in bytes.
    pub len: u32,
    /// The round.
    pub round: u32,
    /// End of the round: the sequence number after the round's last packet.
    pub end: u64,
}

/// An acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The stream.
    pub stream: Stream,
    /// Cumulative acknowledgment: all packets before this one.
    pub next: u64,
    /// The packet that caused it: it has arrived, or the ring has drained until it was at the
    /// threshold.
    pub of: u64,
    /// Whether that packet is itself acknowledged.
    pub own: bool,
}

/// A NACK: packets are missing and are to be retransmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The stream.
    pub stream: Stream,
    /// Cumulative acknowledgment: all packets before this one.
    pub next: u64,
    /// First missing packet.
    pub first: u64,
    /// Last missing packet.
    pub last: u64,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopaPacket {
    /// The source of this packet requests data (get).
    Request {
        /// Number of the flow in the workload.
        flow: u32,
        /// The round.
        round: u32,
        /// Bytes requested.
        bytes: u64,
    },
    /// Data.
    Data(Data),
    /// An acknowledgment.
    Ack(Ack),
    /// Missing packets.
    Nack(Nack),
}
