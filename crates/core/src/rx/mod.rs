//! The journey of a packet in: demux, window, deliver (send, write, read), and the acknowledgment.

mod ack_build;
mod deliver;
mod demux;
pub(crate) mod read;
mod write;
