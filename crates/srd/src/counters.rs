//! Counters of a device.

use crate::nic::Nic;
use srd_core::counters::Counters as EngineCounters;
use srd_datapath::Counters as DatapathCounters;
use srd_wire::ParseError;

/// Every kind of malformed packet, in the order of [`DeviceCounters::parse_errors`].
pub const PARSE_ERROR_KINDS: [ParseError; crate::nic::PARSE_ERRORS] = [
    ParseError::Truncated,
    ParseError::Version,
    ParseError::Type,
    ParseError::ListTooLong,
    ParseError::Value,
    ParseError::Sealed,
    ParseError::TrailingBytes,
    ParseError::Checksum,
];

/// Counters of all layers of a device, since it was opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// The protocol: EFA's port statistics and counters of this implementation.
    pub engine: srd_core::counters::Counters,
    /// The datapath: system calls, segmentation, refused datagrams by kind.
    pub datapath: srd_datapath::Counters,
    /// Malformed packets by kind: see [`PARSE_ERROR_KINDS`].
    pub parse_errors: [u64; crate::nic::PARSE_ERRORS],
    /// Packets that the datapath refused; they count as lost.
    pub tx_refused: u64,
    /// Payloads that were not placed because their memory was deregistered after the engine
    /// accepted the packet.
    pub rx_unplaced: u64,
    /// Asynchronous events dropped because nobody read them.
    pub events_dropped: u64,
    /// Turns that the engine took.
    pub turns: u64,
    /// Paths on which packets were sent, to any peer.
    pub paths_used: u32,
}

impl DeviceCounters {
    pub(crate) fn collect(nic: &Nic, events_dropped: u64) -> Self {
        Self {
            engine: *nic.engine.counters(),
            datapath: nic.net.counters(),
            parse_errors: nic.counters.parse_errors,
            tx_refused: nic.counters.tx_refused,
            rx_unplaced: nic.counters.rx_unplaced,
            events_dropped,
            turns: nic.counters.turns,
            paths_used: nic.counters.paths_used.iter().map(|word| word.count_ones()).sum(),
        }
    }

    /// Adds those of another shard of the device. The paths are the same for all, so that the shard
    /// that used most tells how many.
    pub(crate) fn add(&mut self, other: &Self) {
        engine_add(&mut self.engine, &other.engine);
        datapath_add(&mut self.datapath, &other.datapath);
        arrays_add(&mut self.parse_errors, &other.parse_errors);
        self.tx_refused += other.tx_refused;
        self.rx_unplaced += other.rx_unplaced;
        self.events_dropped += other.events_dropped;
        self.turns += other.turns;
        self.paths_used = self.paths_used.max(other.paths_used);
    }

    /// Malformed packets of one kind.
    pub fn parse_errors_of(&self, kind: ParseError) -> u64 {
        self.parse_errors[crate::nic::parse_error_index(kind)]
    }
}

/// Adds all of these fields. The pattern has every field, so that none is forgotten.
macro_rules! fields_add {
    ($sum:ident += $more:ident: $all:ident { $($field:ident,)* } and { $($rest:ident,)* }) => {
        let $all { $($field,)* $($rest: _,)* } = $more;
        $($sum.$field += $field;)*
    };
}

/// Adds one array to another, place by place.
pub(crate) fn arrays_add(sum: &mut [u64], more: &[u64]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn engine_add(sum: &mut EngineCounters, more: &EngineCounters) {
    fields_add!(sum += more: EngineCounters {
        tx_bytes, tx_pkts, rx_bytes, rx_pkts, rx_drops, send_bytes, send_wrs,
        recv_bytes, recv_wrs, rdma_read_wrs, rdma_read_bytes, rdma_read_wr_err,
        rdma_read_resp_bytes, rdma_write_wrs, rdma_write_bytes, rdma_write_wr_err,
        rdma_write_recv_bytes, retrans_bytes, retrans_pkts, retrans_timeout_events,
        unresponsive_remote_events, impaired_remote_conn_events, qkey_viol,
        rkey_guesses, retrans_spurious_pkts, echoes_refused, tlp_pkts, probe_pkts,
        ack_pkts, dup_pkts, rnr_events, ce_pkts, tombstone_pkts, opens_sent,
        opens_received, challenges_sent, resets_sent, resets_received, doubts,
        doubts_refuted, contexts_opened, contexts_closed, paths_retired, paths_returned,
        stalls, events_dropped, control_dropped, timer_steps, ack_steps, cancel_steps,
        read_steps, reads_slow, mtu_changes, recalls, contexts_forgotten,
    } and { drops, });
    arrays_add(&mut sum.drops, &more.drops);
}

fn datapath_add(sum: &mut DatapathCounters, more: &DatapathCounters) {
    fields_add!(sum += more: DatapathCounters {
        tx_packets, tx_bytes, tx_syscalls, tx_gso_batches, tx_gso_packets,
        tx_gso_refused, tx_would_block, tx_nobufs, tx_backlogged, tx_too_long,
        tx_refused, tx_unreachable, tx_forbidden, tx_other, rx_packets, rx_bytes,
        rx_syscalls, rx_gro_batches, rx_gro_packets, rx_ce, rx_truncated, rxq_drops,
        waits,
    } and { tx_other_errno, });
    if more.tx_other_errno != 0 {
        sum.tx_other_errno = more.tx_other_errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_where_they_are_counted() {
        for (i, kind) in PARSE_ERROR_KINDS.into_iter().enumerate() {
            assert_eq!(crate::nic::parse_error_index(kind), i);
        }
    }
}
