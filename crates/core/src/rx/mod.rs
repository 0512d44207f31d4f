//! What a packet in does: its window, its delivery (send, write, read).

mod arrive;
mod deliver;
mod read;
mod write;
