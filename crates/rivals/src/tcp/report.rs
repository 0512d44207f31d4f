//! Results of a run: messages and counters.

use srd_fabric::{HostId, Ps};

/// A connection, identified by its sending host and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn {
    /// The sending host.
    pub src: HostId,
    /// Index of the connection at the sending host.
    pub index: u32,
}

/// A message, identified by its connection and its index within the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Its connection.
    pub conn: Conn,
    /// Index within the connection, from 0.
    pub index: u32,
}

/// Bytes that an application wrote at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its connection.
    pub conn: Conn,
    /// The receiving host.
    pub dst: HostId,
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the write.
    pub start_ps: Ps,
    /// Time at which its last byte and all bytes before it had arrived at `dst`.
    pub received_ps: Option<Ps>,
    /// Time at which the sender received the ack of its last byte.
    pub acked_ps: Option<Ps>,
}

impl Message {
    /// Flow completion time: from the write to the arrival of the last byte.
    pub fn fct_ps(&self) -> Option<Ps> {
        self.received_ps.map(|at| at.saturating_sub(self.start_ps))
    }
}

/// Counters of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data segments sent, retransmissions included.
    pub segments_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Segments marked lost; a segment counts each time.
    pub segments_lost: u64,
    /// Recoveries entered without a timeout.
    pub fast_recoveries: u64,
    /// Retransmission timeouts, SYNs included.
    pub timeouts: u64,
    /// Tail loss probes sent.
    pub probes: u64,
    /// Window reductions undone because the loss was spurious.
    pub undone: u64,
    /// Duplicates reported by receivers (D-SACK).
    pub duplicates_reported: u64,
    /// Acks received by senders.
    pub acks_received: u64,
    /// Acks sent by receivers.
    pub acks_sent: u64,
    /// Data segments received without new bytes.
    pub duplicates_received: u64,
    /// Packets refused by a full NIC queue.
    pub local_drops: u64,
    /// Path changes.
    pub rehashes: u64,
    /// Multipath TCP: chunks of subflows that timed out, sent on others, and chunks that had
    /// arrived on another subflow.
    pub reinjected: u64,
    /// See `reinjected`.
    pub joined_duplicates: u64,
    /// Connections aborted.
    pub aborted: u64,
    /// Packets dropped because of a wrong checksum.
    pub corrupt: u64,
    /// Largest congestion window, segments.
    pub cwnd_max: u32,
}

impl Counters {
    /// Adds another's counters; `cwnd_max` becomes the larger one.
    pub fn add(&mut self, other: &Self) {
        self.segments_sent += other.segments_sent;
        self.bytes_sent += other.bytes_sent;
        self.retransmits += other.retransmits;
        self.segments_lost += other.segments_lost;
        self.fast_recoveries += other.fast_recoveries;
        self.timeouts += other.timeouts;
        self.probes += other.probes;
        self.undone += other.undone;
        self.duplicates_reported += other.duplicates_reported;
        self.acks_received += other.acks_received;
        self.acks_sent += other.acks_sent;
        self.duplicates_received += other.duplicates_received;
        self.local_drops += other.local_drops;
        self.rehashes += other.rehashes;
        self.reinjected += other.reinjected;
        self.joined_duplicates += other.joined_duplicates;
        self.aborted += other.aborted;
        self.corrupt += other.corrupt;
        self.cwnd_max = self.cwnd_max.max(other.cwnd_max);
    }
}
