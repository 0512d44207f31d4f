//! Contents of the simulated packets.

use srd_fabric::Ps;

/// Most SACK blocks that fit beside timestamps (RFC 2018).
pub const SACK_BLOCKS: usize = 3;

/// Value of [`TcpSegment::Data::peer`] before the receiver's number is known.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// A TCP segment. Data flow in one direction per connection, from the opener, called the sender.
/// Connections are identified by numbers instead of a port look-up; ports still decide the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpSegment {
    /// Opens a connection.
    Syn {
        /// The sender's number of the connection.
        conn: u32,
        /// When it was sent.
        ts: Ps,
    },
    /// Accepts the connection.
    SynAck {
        /// The sender's number of the connection.
        conn: u32,
        /// The receiver's number of the connection.
        peer: u32,
        /// Timestamp of the answered SYN.
        ts_echo: Ps,
    },
    /// A range of the stream.
    Data {
        /// The sender's number of the connection.
        conn: u32,
        /// The receiver's number of the connection; `u32::MAX` until the sender has learnt it.
        peer: u32,
        /// Sequence number of the first byte.
        seq: u64,
        /// Length in bytes.
        len: u32,
        /// Messages of the stream that end at or before the last byte.
        messages: u32,
        /// When it was sent.
        ts: Ps,
        /// "Congestion window reduced" (RFC 3168).
        cwr: bool,
        /// Multipath TCP: the sender's number of the connection's first subflow; `u32::MAX`
        /// without it.
        group: u32,
        /// Multipath TCP: data sequence number of the first byte.
        dsn: u64,
    },
    /// An acknowledgement.
    Ack(Ack),
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The sender's number of the connection.
    pub conn: u32,
    /// The receiver's number of the connection.
    pub peer: u32,
    /// Cumulative acknowledgement: all bytes before this one have arrived.
    pub ack: u64,
    /// Timestamp of the segment that RFC 7323 says to echo.
    pub ts_echo: Ps,
    /// Receive window: bytes after `ack` that may be sent.
    pub window: u32,
    /// SACK blocks relative to `ack`, latest first. A first block below `ack` or inside the second
    /// reports a duplicate (RFC 2883).
    pub sacks: [(i32, i32); SACK_BLOCKS],
    /// Blocks in use.
    pub sack_count: u8,
    /// The first block reports a duplicate.
    pub duplicate: bool,
    /// ECN echo ("congestion experienced").
    pub ece: bool,
    /// Multipath TCP: all data of the connection before this byte have arrived.
    pub data_ack: u64,
}

impl Ack {
    /// The blocks as absolute ranges of the stream.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let place = |offset: i32| self.ack.saturating_add_signed(i64::from(offset));
        self.sacks[..usize::from(self.sack_count)].iter().map(move |(a, b)| (place(*a), place(*b)))
    }

    /// Bytes of TCP options that the blocks take, padded to words.
    pub const fn option_bytes(&self) -> u32 {
        if self.sack_count == 0 { 0 } else { 4 + 8 * self.sack_count as u32 }
    }
}
