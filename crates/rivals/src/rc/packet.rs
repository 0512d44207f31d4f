//! Contents of the simulated packets.

/// A packet of a queue pair. Queue pairs are identified by their number at the sender; `life`
/// counts how often that queue pair was made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RcPacket {
    /// Part of a message.
    Data {
        /// The sender's number of the queue pair.
        qp: u32,
        /// Its incarnation.
        life: u32,
        /// Packet sequence number.
        psn: u64,
        /// Bytes of payload.
        len: u32,
        /// Whether it is the last packet of its message.
        last: bool,
    },
    /// All packets before `expected` have arrived.
    Ack {
        /// The queue pair.
        qp: u32,
        /// Its incarnation.
        life: u32,
        /// The next packet that the receiver expects.
        expected: u64,
        /// A packet that arrived early and is kept (IRN).
        kept: Option<u64>,
        /// Whether the sender must go back to `expected` (NAK: PSN sequence error).
        nak: bool,
        /// InfiniBand: packets since the last acknowledgment were marked (BECN).
        becn: bool,
    },
    /// Congestion notification packet.
    Cnp {
        /// The queue pair.
        qp: u32,
        /// Its incarnation.
        life: u32,
    },
}
