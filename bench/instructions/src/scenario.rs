//! What is counted.

use crate::checksum;
use crate::world::{MESSAGE_BYTES, MTU, World};
use srd_core::Opcode;
use std::fmt;

/// One row of the table.
pub struct Scenario {
    /// Its name there.
    pub name: &'static str,
    /// Operations of the shorter run; large enough that batches of odd sizes do not show.
    pub operations: u64,
    /// Functions of `world` at whose entry and exit counting is switched: one that is called by
    /// another of the list is thereby left out.
    pub toggles: &'static [&'static str],
    /// Does so many operations.
    pub run: fn(u64) -> Result<(), String>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.operations)?;
        self.toggles.iter().try_for_each(|t| write!(f, " {t}"))
    }
}

/// All of them. `send`, `receive` and `ack` are the three parts of one message's life: the
/// requester until the packet is out; the responder from the packet in to its acknowledgment out;
/// the requester from the acknowledgment in to its completion polled. The others hold both ends.
/// `checksum-…` is what one end adds to a packet of so many bytes of payload.
pub const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "send",
        operations: 4000,
        toggles: &["near_posts", "near_transmits", "arrives_at_far"],
        run: sends,
    },
    Scenario {
        name: "receive",
        operations: 4000,
        toggles: &["arrives_at_far", "far_finishes", "far_transmits", "arrives_at_near"],
        run: sends,
    },
    Scenario {
        name: "ack",
        operations: 4000,
        toggles: &["arrives_at_near", "near_finishes"],
        run: sends,
    },
    Scenario { name: "write-segment", operations: 4000, toggles: &["all_turns"], run: write },
    Scenario { name: "read-segment", operations: 4000, toggles: &["all_turns"], run: read },
    Scenario { name: "handshake", operations: 400, toggles: &["all_turns"], run: handshakes },
    Scenario {
        name: "checksum-1400",
        operations: 400,
        toggles: &["datagram_is_stamped"],
        run: checksum::ordinary,
    },
    Scenario {
        name: "checksum-8900",
        operations: 400,
        toggles: &["datagram_is_stamped"],
        run: checksum::jumbo,
    },
];

fn sends(n: u64) -> Result<(), String> {
    let mut world = World::new(1)?;
    world.post_many(Opcode::Send, n, MESSAGE_BYTES);
    world.run_until_done()
}

fn write(segments: u64) -> Result<(), String> {
    one(Opcode::Write, segments)
}

fn read(segments: u64) -> Result<(), String> {
    one(Opcode::Read, segments)
}

/// One request that takes so many segments.
fn one(op: Opcode, segments: u64) -> Result<(), String> {
    let len = u32::try_from(segments * u64::from(MTU)).map_err(|_| "too many segments")?;
    let mut world = World::new(1)?;
    world.post_many(op, 1, len);
    world.run_until_done()
}

/// A message to each of so many peers: open, open-ack, the message, its acknowledgment.
fn handshakes(peers: u64) -> Result<(), String> {
    let mut world = World::new(u32::try_from(peers).map_err(|_| "too many peers")?)?;
    world.post_many(Opcode::Send, peers, MESSAGE_BYTES);
    world.run_until_done()
}

#[cfg(test)]
mod tests {
    use super::SCENARIOS;

    #[test]
    fn every_scenario_completes() {
        for s in &SCENARIOS {
            (s.run)(100).unwrap_or_else(|e| panic!("{}: {e}", s.name));
        }
    }
}
