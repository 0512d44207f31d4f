//! Messages between the measuring process and its workers: one line of JSON each.

use super::{block::FlowStats, times::Times};
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, time::Duration};

/// A message to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Sets the flows that the worker sends and receives.
    Flows {
        /// Flows to send.
        send: Vec<SendFlow>,
        /// Numbers of the flows to receive.
        receive: Vec<u32>,
    },
    /// Begins a run.
    Go(Run),
    /// Requests the received blocks of this run.
    Collect,
    /// Requests the device's counters.
    Counters,
    /// Starts counting times again, for times measured from `from_ns` until before `until_ns`.
    Watch {
        /// Start.
        from_ns: u64,
        /// End.
        until_ns: u64,
    },
    /// Requests the times counted since [`Order::Watch`].
    Times,
    /// Requests a text on standard error about what the worker waits for.
    Explain,
    /// Ends the worker.
    Quit,
}

/// A flow to send.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SendFlow {
    /// Number of the flow.
    pub flow: u32,
    /// IP address of the receiver.
    pub ip: IpAddr,
    /// Queue pair of the receiver.
    pub qpn: u16,
    /// Whether it consists of messages of 8 bytes that the receiver sends back, one at a time.
    pub ping: bool,
}

/// One run of all flows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Number of the run.
    pub run: u32,
    /// Start time in ns of the monotonic clock.
    pub start_ns: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Blocks per flow; 0 = unlimited until `stop_ns`.
    pub blocks: u64,
    /// Bytes of the last block, if `blocks` is not 0.
    pub last_bytes: u32,
    /// Time in ns after which no new blocks are sent.
    pub stop_ns: u64,
    /// Interval between the blocks of a flow in ns; 0 = as fast as possible.
    pub pace_ns: u64,
}

impl Run {
    /// Bytes of block `number`.
    pub fn bytes_of(&self, number: u64) -> u32 {
        if number + 1 == self.blocks { self.last_bytes } else { self.block_bytes }
    }

    /// Duration of a run without `blocks`.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.stop_ns.saturating_sub(self.start_ns))
    }
}

/// A message from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The device is open.
    Ready {
        /// Number of the queue pair.
        qpn: u16,
        /// Longest message in bytes.
        mtu: u32,
    },
    /// All blocks of this run were sent and have completed.
    Sent {
        /// Number of accepted blocks per flow.
        blocks: Vec<(u32, u64)>,
        /// Blocks whose send failed.
        failed: u64,
        /// Error of the first failed send.
        why: String,
    },
    /// Answer to [`Order::Collect`].
    Received {
        /// Statistics per flow.
        flows: Vec<FlowStats>,
        /// Blocks that were damaged or of an unknown flow.
        damaged: u64,
    },
    /// Answer to [`Order::Counters`].
    Counters(Counted),
    /// Answer to [`Order::Times`].
    Times(Watched),
    /// The worker failed.
    Failed(String),
}

/// Waiting and round-trip times of a part of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Watched {
    /// Times that packets waited in the socket of the slow receiver.
    pub waits: Times,
    /// Round-trip times of the messages of 8 bytes.
    pub round_trips: Times,
}

impl Watched {
    /// Adds the times of another process or run.
    pub fn add(&mut self, other: &Self) {
        self.waits.add_all(&other.waits);
        self.round_trips.add_all(&other.round_trips);
    }
}

/// Some counters of a device and its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Retransmitted packets that were not lost after all.
    pub spurious: u64,
    /// Probe packets: sent to test whether a path works again, or which packet sizes pass.
    pub probes: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Silences attributed to a stall of the peer.
    pub stalls: u64,
    /// Paths retired.
    pub paths_retired: u64,
    /// Duplicate packets seen by the receiving engine.
    pub duplicates_dropped: u64,
    /// Packets dropped because the socket buffer was full.
    pub socket_drops: u64,
    /// Resident memory of the process in bytes.
    pub memory_bytes: u64,
    /// Current pacing rate to the peers in bits per second.
    pub rate_bits_per_sec: u64,
    /// Smoothed RTT of the slowest peer in ns.
    pub srtt_ns: u64,
    /// Lowest RTT of the same peer in ns.
    pub rtt_ns_min: u64,
}

impl Counted {
    /// Adds the counters of another process or run: counts are summed; of other values the largest
    /// is kept.
    pub fn add(&mut self, other: &Self) {
        self.tx_packets += other.tx_packets;
        self.retransmitted += other.retransmitted;
        self.spurious += other.spurious;
        self.probes += other.probes;
        self.timeouts += other.timeouts;
        self.stalls += other.stalls;
        self.paths_retired += other.paths_retired;
        self.duplicates_dropped += other.duplicates_dropped;
        self.socket_drops += other.socket_drops;
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.rate_bits_per_sec = self.rate_bits_per_sec.max(other.rate_bits_per_sec);
        if other.srtt_ns > self.srtt_ns {
            (self.srtt_ns, self.rtt_ns_min) = (other.srtt_ns, other.rtt_ns_min);
        }
    }

    /// The increase of the counters since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            tx_packets: self.tx_packets - before.tx_packets,
            retransmitted: self.retransmitted - before.retransmitted,
            spurious: self.spurious - before.spurious,
            probes: self.probes - before.probes,
            timeouts: self.timeouts - before.timeouts,
            stalls: self.stalls - before.stalls,
            paths_retired: self.paths_retired - before.paths_retired,
            duplicates_dropped: self.duplicates_dropped - before.duplicates_dropped,
            socket_drops: self.socket_drops - before.socket_drops,
            ..*self
        }
    }

    /// Summary below a table.
    pub fn text(&self) -> String {
        format!(
            "{} packets, {} of them probes, {} retransmitted ({} needlessly), {} timeouts, {} \
             stalls, {} paths retired, {} lost in sockets; last: rate {:.0} Mb/s, RTT {:.2} ms \
             (least {:.2})",
            self.tx_packets,
            self.probes,
            self.retransmitted,
            self.spurious,
            self.timeouts,
            self.stalls,
            self.paths_retired,
            self.socket_drops,
            self.rate_bits_per_sec as f64 / 1e6,
            self.srtt_ns as f64 / 1e6,
            self.rtt_ns_min as f64 / 1e6
        )
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
