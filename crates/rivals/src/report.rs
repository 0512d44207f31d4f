//! What happened: messages and counters.

use srd_fabric::{HostId, Ps};

/// A connection, named by its sending host and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn {
    /// The sending host.
    pub src: HostId,
    /// Its number there.
    pub index: u32,
}

/// A message, named by its connection and its place among the connection's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Its connection.
    pub conn: Conn,
    /// Its place, from 0.
    pub index: u32,
}

/// Bytes that an application wrote at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its connection.
    pub conn: Conn,
    /// Who receives it.
    pub dst: HostId,
    /// Its length.
    pub bytes: u64,
    /// When it was written.
    pub start_ps: Ps,
    /// When its last byte had arrived at `dst` with all before it.
    pub received_ps: Option<Ps>,
    /// When its sender knew that.
    pub acked_ps: Option<Ps>,
}

impl Message {
    /// Flow completion time: from writing to the arrival of the last byte.
    pub fn fct_ps(&self) -> Option<Ps> {
        self.received_ps.map(|at| at.saturating_sub(self.start_ps))
    }
}

/// What connections did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data segments sent, copies included.
    pub segments_sent: u64,
    /// Payload bytes sent, copies included.
    pub bytes_sent: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments taken for lost, each time.
    pub segments_lost: u64,
    /// Recoveries that began without a timeout.
    pub fast_recoveries: u64,
    /// Retransmission timeouts, of SYNs too.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Reductions taken back because the losses were none.
    pub undone: u64,
    /// Duplicates that receivers reported.
    pub duplicates_reported: u64,
    /// Acks that senders read.
    pub acks_received: u64,
    /// Acks that receivers sent.
    pub acks_sent: u64,
    /// Data segments that held nothing new.
    pub duplicates_received: u64,
    /// Refusals by a full card.
    pub local_drops: u64,
    /// Changes of path.
    pub rehashes: u64,
    /// Connections given up.
    pub aborted: u64,
    /// Packets with a wrong checksum.
    pub corrupt: u64,
    /// Largest window, segments.
    pub cwnd_max: u32,
}

impl Counters {
    /// Adds another's counts; of the windows the larger.
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
        self.aborted += other.aborted;
        self.corrupt += other.corrupt;
        self.cwnd_max = self.cwnd_max.max(other.cwnd_max);
    }
}
