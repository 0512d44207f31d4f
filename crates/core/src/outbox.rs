//! What waits to leave the engine.

use crate::api::Endpoint;
use srd_wire::Body;

/// A packet to someone with whom there may be no context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub dst: Endpoint,
    pub dst_tag: u32,
    pub body: Body,
    pub padded_len: u16,
    /// Of a packet that belongs to a context: its transmission number and the next PSN.
    pub tx_num: u64,
    pub psn: u32,
}

/// A probe that is to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeOut {
    pub ci: u32,
    pub path: u8,
    /// Payload of the packet that it is as large as; 0: no larger than it must be.
    pub size: u16,
    /// It belongs to a search for the size that passes.
    pub asks: bool,
}

impl ProbeOut {
    pub fn small(ci: u32, path: u8) -> Self {
        Self { ci, path, size: 0, asks: false }
    }
}
