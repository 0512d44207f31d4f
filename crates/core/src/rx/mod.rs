//! Reception of a packet: header, window, delivery (send, write, read).

mod arrive;
mod deliver;
mod read;
mod write;
