//! The connections of a host, which share its card in turn, and their deadlines.

use crate::deadlines::Deadlines;
use srd_fabric::{HostIo, Ps};
use std::collections::VecDeque;

/// Connections that may send, in turn, in front of the host's card.
#[derive(Debug)]
pub(crate) struct Turns {
    ring: VecDeque<u32>,
    pub deadlines: Deadlines,
    /// Kind of the deadline at which the card has room.
    card: u32,
}

impl Turns {
    /// `card`: the kind of deadline that stands for the card.
    pub fn new(card: u32) -> Self {
        Self { ring: VecDeque::new(), deadlines: Deadlines::default(), card }
    }

    /// Appends a connection.
    pub fn add(&mut self, conn: u32) {
        self.ring.push_back(conn);
    }

    /// Takes the connection whose turn it is if the card has room: for one packet on the wire and
    /// one behind it. `packet_bytes`: of a full packet; `line_bps`: rate of the card's link.
    pub fn next<P>(
        &mut self,
        packet_bytes: u32,
        line_bps: f64,
        io: &mut HostIo<'_, P>,
    ) -> Option<u32> {
        if self.ring.is_empty() || !io.room_want() {
            return None;
        }
        let packet_ps = (f64::from(packet_bytes) * 8e12 / line_bps) as Ps;
        let free_at = io.nic_free_at();
        if free_at > io.now() + packet_ps {
            self.deadlines.arm(self.card, 0, free_at - packet_ps, io);
            return None;
        }
        self.ring.pop_front()
    }
}
