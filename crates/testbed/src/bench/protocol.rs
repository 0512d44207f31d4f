//! What is said between the measuring process and its workers: a line of JSON each.

use super::block::FlowStats;
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, time::Duration};

/// To a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Flows that the worker sends and receives from now on.
    Flows {
        /// Flows to send.
        send: Vec<SendFlow>,
        /// Numbers of the flows to receive.
        receive: Vec<u32>,
    },
    /// Begin a run.
    Go(Run),
    /// Tell what has come in this run.
    Collect,
    /// Tell what the device has counted.
    Counters,
    /// Say on standard error what everybody waits for.
    Explain,
    /// End in good order.
    Quit,
}

/// A flow to send.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SendFlow {
    /// Its number.
    pub flow: u32,
    /// Address of the receiver.
    pub ip: IpAddr,
    /// Its queue pair.
    pub qpn: u16,
}

/// One run of all flows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Number of the run.
    pub run: u32,
    /// When to begin, in ns of the monotonic clock.
    pub start_ns: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Blocks per flow; 0 = until `stop_ns`.
    pub blocks: u64,
    /// Bytes of the last of `blocks`.
    pub last_bytes: u32,
    /// When to stop sending new blocks.
    pub stop_ns: u64,
    /// A block of each flow is due every so many ns; 0 = as fast as it goes.
    pub pace_ns: u64,
}

impl Run {
    /// Bytes of the block with this number.
    pub fn bytes_of(&self, number: u64) -> u32 {
        if number + 1 == self.blocks { self.last_bytes } else { self.block_bytes }
    }

    /// How long new blocks are sent, for a run by time.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.stop_ns.saturating_sub(self.start_ns))
    }
}

/// From a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The device is open; its queue pair.
    Ready {
        /// Number of the queue pair.
        qpn: u16,
        /// Most bytes per message.
        mtu: u32,
    },
    /// All blocks of this run were sent and accepted (or have failed).
    Sent {
        /// Flow and blocks accepted.
        blocks: Vec<(u32, u64)>,
        /// Blocks whose send failed.
        failed: u64,
        /// Why the first did.
        why: String,
    },
    /// Answer to [`Order::Collect`].
    Received {
        /// Per flow.
        flows: Vec<FlowStats>,
        /// Blocks that were not whole, or of no flow known.
        damaged: u64,
    },
    /// Answer to [`Order::Counters`].
    Counters(Counted),
    /// It cannot go on.
    Failed(String),
}

/// Some of a device's counters, and what the process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Of them, those that were not lost after all.
    pub spurious: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Silences taken for stalls of the peer.
    pub stalls: u64,
    /// Paths taken out of use.
    pub paths_retired: u64,
    /// Packets that came twice, as the receiver's engine saw them.
    pub duplicates_dropped: u64,
    /// Packets lost in the full socket buffer.
    pub socket_drops: u64,
    /// Resident memory of the process in bytes.
    pub memory_bytes: u64,
    /// Paced rate to the peers in bits per second, at this moment.
    pub rate_bits_per_sec: u64,
    /// Smoothed round-trip time of the slowest peer in ns.
    pub srtt_ns: u64,
    /// Least round-trip time of the same peer in ns.
    pub rtt_ns_min: u64,
}

impl Counted {
    /// Adds another process's (or run's): counts are summed, of the rest the largest counts.
    pub fn add(&mut self, other: &Self) {
        self.tx_packets += other.tx_packets;
        self.retransmitted += other.retransmitted;
        self.spurious += other.spurious;
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

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            tx_packets: self.tx_packets - before.tx_packets,
            retransmitted: self.retransmitted - before.retransmitted,
            spurious: self.spurious - before.spurious,
            timeouts: self.timeouts - before.timeouts,
            stalls: self.stalls - before.stalls,
            paths_retired: self.paths_retired - before.paths_retired,
            duplicates_dropped: self.duplicates_dropped - before.duplicates_dropped,
            socket_drops: self.socket_drops - before.socket_drops,
            ..*self
        }
    }

    /// One line below a table.
    pub fn text(&self) -> String {
        format!(
            "{} packets, {} again ({} needless), {} timeouts, {} stalls, {} paths retired, {} lost \
             in sockets; last: rate {:.0} Mb/s, RTT {:.2} ms (least {:.2})",
            self.tx_packets,
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
