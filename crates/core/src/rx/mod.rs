//! The journey of a packet in: demux, window, deliver (send, write, read), and the acknowledgment.

pub(crate) mod ack;
mod ack_build;
mod deliver;
mod demux;
pub(crate) mod inbound;
pub(crate) mod read;
pub(crate) mod replay;
pub(crate) mod tiling;
pub(crate) mod verdicts;
pub(crate) mod window;
mod write;
pub(crate) mod write_imm;
