//! The counters that a device shows, with their names.

/// Declares [`Counter`] with the name of each counter and what it counts.
macro_rules! counters {
    ($($variant:ident $name:literal $help:literal,)*) => {
        /// A counter of a device; see [`Counter::help`]. Those that EFA has, too, have its names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the text of help() says what each counts")]
        pub enum Counter { $($variant,)* }

        impl Counter {
            /// All counters, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            /// Number of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// The name, as in EFA's `hw_counters` where it has this counter.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it counts.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

counters! {
    TxBytes "tx_bytes" "Bytes sent in packets",
    TxPkts "tx_pkts" "Packets sent",
    RxBytes "rx_bytes" "Bytes received in packets",
    RxPkts "rx_pkts" "Packets received",
    RxDrops "rx_drops" "Received packets that were dropped",
    SendBytes "send_bytes" "Bytes of messages sent",
    SendWrs "send_wrs" "Send requests posted",
    RecvBytes "recv_bytes" "Bytes of messages received",
    RecvWrs "recv_wrs" "Messages received",
    RdmaReadWrs "rdma_read_wrs" "RDMA reads posted",
    RdmaReadBytes "rdma_read_bytes" "Bytes that own RDMA reads fetched",
    RdmaReadWrErr "rdma_read_wr_err" "RDMA reads that failed",
    RdmaReadRespBytes "rdma_read_resp_bytes" "Bytes sent for RDMA reads of peers",
    RdmaWriteWrs "rdma_write_wrs" "RDMA writes posted",
    RdmaWriteBytes "rdma_write_bytes" "Bytes of own RDMA writes",
    RdmaWriteWrErr "rdma_write_wr_err" "RDMA writes that failed",
    RdmaWriteRecvBytes "rdma_write_recv_bytes" "Bytes that RDMA writes of peers wrote here",
    RetransBytes "retrans_bytes" "Bytes sent again",
    RetransPkts "retrans_pkts" "Packets sent again",
    RetransTimeoutEvents "retrans_timeout_events" "Timeouts after which packets were sent again",
    UnresponsiveRemoteEvents "unresponsive_remote_events" "Peers that stopped to answer",
    ImpairedRemoteConnEvents "impaired_remote_conn_events" "Times that no path to a peer answered",
    RetransSpuriousPkts "retrans_spurious_pkts" "Packets sent again that had arrived",
    TlpPkts "tlp_pkts" "Packets sent again to find out whether the last ones were lost",
    ProbePkts "probe_pkts" "Probes of paths that are out of use",
    AckPkts "ack_pkts" "Packets sent only to acknowledge",
    DupPkts "dup_pkts" "Packets received twice",
    RnrEvents "rnr_events" "Messages that found no receive posted",
    CePkts "ce_pkts" "Packets received with the mark CE (congestion experienced)",
    ContextsOpened "contexts_opened" "Contexts opened with peers",
    ContextsClosed "contexts_closed" "Contexts closed",
    ContextsForgotten "contexts_forgotten" "Contexts dropped because the peer fell silent",
    PathsRetired "paths_retired" "Paths taken out of use",
    PathsReturned "paths_returned" "Paths taken back into use",
    Stalls "stalls" "Times that no path to a peer answered",
    MtuChanges "mtu_changes" "Changes of the path MTU",
    ResetsSent "resets_sent" "Resets sent, to peers that are not known",
    ResetsReceived "resets_received" "Resets received: a peer has restarted",
    EventsDropped "events_dropped" "Asynchronous events dropped because nobody read them",
    ParseErrors "parse_errors" "Malformed packets received",
    TxRefused "tx_refused" "Packets that the datapath refused; they count as lost",
    TxWouldBlock "tx_would_block" "Times that the send buffer of a socket was full",
    RxqDrops "rxq_drops" "Datagrams that the kernel dropped because the receive buffer was full",
    Syscalls "syscalls" "System calls made to send and to receive",
    Sleeps "sleeps" "Times that the device slept until something happened",
    Turns "turns" "Turns that the engine took",
}
