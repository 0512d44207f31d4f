//! Contents of the simulated packets.

/// A packet. Connections are identified by their number at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UePacket {
    /// Part of a message, or a probe without payload (`len` = 0).
    Data {
        /// The sender's number of the connection.
        conn: u32,
        /// Packet sequence number; of a probe, that of the last packet sent.
        psn: u64,
        /// Bytes of payload.
        len: u32,
        /// Entropy: the path.
        entropy: u16,
        /// Credit that the sender wants, in bytes since the start.
        wanted: u64,
        /// Whether an acknowledgment is wanted at once.
        ask: bool,
    },
    /// An acknowledgment.
    Ack {
        /// The connection.
        conn: u32,
        /// All packets before this one have arrived.
        expected: u64,
        /// The packet that caused it.
        psn: u64,
        /// Packets from `base` on that have arrived, lowest bit first.
        base: u64,
        /// See `base`.
        bits: u64,
        /// Number of packets that arrived after a missing one.
        early: u32,
        /// Path of that packet, and whether it was marked.
        entropy: u16,
        /// See `entropy`.
        marked: bool,
        /// It answers a probe.
        probe: bool,
    },
    /// Credit in bytes since the start.
    Credit {
        /// The connection.
        conn: u32,
        /// Sum of all credit.
        granted: u64,
    },
}
