//! Counters of a device.

use crate::nic::Nic;
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

    /// Malformed packets of one kind.
    pub fn parse_errors_of(&self, kind: ParseError) -> u64 {
        self.parse_errors[crate::nic::parse_error_index(kind)]
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
