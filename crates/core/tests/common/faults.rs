//! What the network does to packets.

use srd_core::*;
use std::net::IpAddr;

/// What the network does to packets.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Chances in 10,000.
    pub loss: u32,
    pub duplicate: u32,
    /// One-way delay: fixed part and random part.
    pub delay_ns: u64,
    pub jitter_ns: u64,
    /// Paths whose packets vanish, by sender's path number.
    pub black_paths: Vec<u8>,
    /// Chances in 10,000 that packets vanish which a host sends on even and on odd paths: two
    /// interfaces ("rails"). By number of the host; hosts without a row lose nothing.
    pub rail_loss: Vec<[u32; 2]>,
    /// What is added to the one-way delay of even and of odd paths.
    pub rail_delay_ns: [u64; 2],
    /// Everything vanishes.
    pub dead: bool,
    /// Hosts that were killed and never return: they neither send nor receive nor look at a clock.
    pub killed: Vec<usize>,
    /// Packets with more payload than this, or padded to as much, vanish: a path MTU that nobody
    /// tells.
    pub longer_lost: usize,
    /// Packets longer than this in all (UDP payload) vanish, but for handshakes.
    pub link_bytes: usize,
    /// Handshakes, too: otherwise those have passed before.
    pub opens_too: bool,
    /// The same on some paths only, by sender's path number.
    pub longer_lost_on: Option<(Vec<u8>, usize)>,
    /// Chance in 10,000 that bits flip on the way and UDP's checksum does not notice.
    pub damage: u32,
    /// How far the clock of the sender at this address has leapt back.
    pub clock_back: Option<(IpAddr, Span)>,
    /// Flags that every packet of an engine has when it arrives, as a driver sets them that has
    /// opened a seal.
    pub marks: u8,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0,
            duplicate: 0,
            delay_ns: 5_000,
            jitter_ns: 0,
            black_paths: vec![],
            rail_loss: vec![],
            rail_delay_ns: [0; 2],
            dead: false,
            killed: vec![],
            longer_lost: usize::MAX,
            link_bytes: usize::MAX,
            opens_too: false,
            longer_lost_on: None,
            damage: 0,
            clock_back: None,
            marks: 0,
        }
    }
}
