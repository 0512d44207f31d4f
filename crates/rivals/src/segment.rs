//! What travels in packets.

use srd_fabric::Ps;

/// Most SACK blocks that fit beside timestamps (RFC 2018).
pub const SACK_BLOCKS: usize = 3;

/// Stands for "not known yet" in [`TcpSegment::Data::peer`].
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// A TCP segment. Data flow one way per connection: from its opener, which is called the sender.
/// Connections are named by numbers instead of by looking ports up; ports still decide the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpSegment {
    /// Opens a connection.
    Syn {
        /// Number of the connection at its sender.
        conn: u32,
        /// When it was sent.
        ts: Ps,
    },
    /// Agrees.
    SynAck {
        /// Number of the connection at its sender.
        conn: u32,
        /// Number of the connection at its receiver.
        peer: u32,
        /// The time that the answered SYN carried.
        ts_echo: Ps,
    },
    /// Bytes of the stream.
    Data {
        /// Number of the connection at its sender.
        conn: u32,
        /// Number of the connection at its receiver; `u32::MAX` until the sender has learnt it.
        peer: u32,
        /// Place of the first byte in the stream.
        seq: u64,
        /// Bytes.
        len: u32,
        /// Messages of the stream that end at or before the last byte.
        messages: u32,
        /// When it was sent.
        ts: Ps,
        /// "Congestion window reduced" (RFC 3168).
        cwr: bool,
    },
    /// An acknowledgement.
    Ack(Ack),
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Number of the connection at its sender.
    pub conn: u32,
    /// Number of the connection at its receiver.
    pub peer: u32,
    /// All bytes before this place have arrived.
    pub ack: u64,
    /// Timestamp of the segment that RFC 7323 says to echo.
    pub ts_echo: Ps,
    /// Bytes after `ack` that may be sent.
    pub window: u32,
    /// Blocks that arrived out of order, relative to `ack`, latest first. The first may lie below
    /// `ack` or inside the second: a duplicate (RFC 2883).
    pub sacks: [(i32, i32); SACK_BLOCKS],
    /// Blocks in use.
    pub sack_count: u8,
    /// The first block reports a duplicate.
    pub duplicate: bool,
    /// "Congestion experienced" echo.
    pub ece: bool,
}

impl Ack {
    /// The blocks as places in the stream.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let place = |offset: i32| self.ack.saturating_add_signed(i64::from(offset));
        self.sacks[..usize::from(self.sack_count)].iter().map(move |(a, b)| (place(*a), place(*b)))
    }

    /// Bytes of TCP options for the blocks, padded to words.
    pub const fn option_bytes(&self) -> u32 {
        if self.sack_count == 0 { 0 } else { 4 + 8 * self.sack_count as u32 }
    }
}
