//! Counters: EFA's hw_counters names, the protocol's own, and one per drop reason.
//! Source of the EFA names: amzn-drivers, `efa_verbs.c` port statistics.

/// Port statistics with EFA's names and meanings, then those of this implementation. All count up
/// from the creation of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are EFA's port statistics")]
pub struct Counters {
    pub tx_bytes: u64,
    pub tx_pkts: u64,
    pub rx_bytes: u64,
    pub rx_pkts: u64,
    pub rx_drops: u64,
    pub send_bytes: u64,
    pub send_wrs: u64,
    pub recv_bytes: u64,
    pub recv_wrs: u64,
    pub rdma_read_wrs: u64,
    pub rdma_read_bytes: u64,
    pub rdma_read_wr_err: u64,
    pub rdma_read_resp_bytes: u64,
    pub rdma_write_wrs: u64,
    pub rdma_write_bytes: u64,
    pub rdma_write_wr_err: u64,
    pub rdma_write_recv_bytes: u64,
    pub retrans_bytes: u64,
    pub retrans_pkts: u64,
    pub retrans_timeout_events: u64,
    pub unresponsive_remote_events: u64,
    pub impaired_remote_conn_events: u64,
    pub qkey_viol: u64,
    /// Region keys in requests that this engine never issued; a repeated key counts once.
    pub rkey_guesses: u64,
    /// Packets that were declared lost and had arrived (spurious retransmissions).
    pub retrans_spurious_pkts: u64,
    /// Echoes that name a transmission that was never made, or one that was echoed before.
    pub echoes_refused: u64,
    pub tlp_pkts: u64,
    pub probe_pkts: u64,
    pub ack_pkts: u64,
    pub dup_pkts: u64,
    pub rnr_events: u64,
    pub ce_pkts: u64,
    pub tombstone_pkts: u64,
    pub opens_sent: u64,
    pub opens_received: u64,
    pub challenges_sent: u64,
    pub resets_sent: u64,
    pub resets_received: u64,
    /// Times that a peer was asked whether it still has a context; `doubts_refuted`: times that it
    /// had.
    pub doubts: u64,
    pub doubts_refuted: u64,
    pub contexts_opened: u64,
    pub contexts_closed: u64,
    pub paths_retired: u64,
    pub paths_returned: u64,
    pub stalls: u64,
    pub events_dropped: u64,
    pub control_dropped: u64,
    /// Steps of work done by timers: timers that fired, and packets and requests that they
    /// examined.
    pub timer_steps: u64,
    /// Steps of work done for acknowledgments, beyond a fixed amount each: PSNs examined when one
    /// arrives, words of the ring of refusals read when one is built.
    pub ack_steps: u64,
    /// Packets examined because requests were cancelled.
    pub cancel_steps: u64,
    /// Reads examined because their region or queue pair was destroyed, or because they were slow.
    pub read_steps: u64,
    /// Reads that lost their places to others because they made too little progress.
    pub reads_slow: u64,
    /// Times that the path MTU to an address changed.
    pub mtu_changes: u64,
    /// Packets taken back (recalled) because they exceeded a reduced path MTU.
    pub recalls: u64,
    /// Contexts dropped with all their state because the peer fell silent.
    pub contexts_forgotten: u64,
    /// Packets dropped, per reason, indexed by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}

/// Why a well-formed packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// No context has this tag.
    UnknownTag,
    /// The packet does not belong to the state of the context (data before open, …).
    BadState,
    /// The transmission number was seen before, or is too old to tell.
    Replay,
    /// The PSN was received before: the packet is acknowledged again, not delivered again.
    Duplicate,
    /// The PSN is beyond the window.
    TooFar,
    /// The packet acknowledges PSNs that were never sent.
    BadAck,
    /// A datagram for no queue pair, with a wrong Q_Key, or without a receive posted (UD).
    UdUndeliverable,
    /// Handshake packet that contradicts what is known (wrong cookie, wrong echo).
    BadHandshake,
    /// The table of contexts is full.
    NoRoom,
    /// The source address is not that of the context's peer.
    BadSource,
    /// The payload is longer than the device's MTU.
    TooLong,
    /// An RDMA request in a context that has guessed region keys, while too many keys are being
    /// guessed.
    KeyGuessing,
    /// The packet carries no checksum, where each packet must.
    Unchecked,
    /// The packet of a sealed context is not sealed.
    Unsealed,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = 14;
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UnknownTag,
        Self::BadState,
        Self::Replay,
        Self::Duplicate,
        Self::TooFar,
        Self::BadAck,
        Self::UdUndeliverable,
        Self::BadHandshake,
        Self::NoRoom,
        Self::BadSource,
        Self::TooLong,
        Self::KeyGuessing,
        Self::Unchecked,
        Self::Unsealed,
    ];
}
