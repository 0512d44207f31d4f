//! The scenarios whose instructions are counted.

use crate::checksum;
use crate::world::{MESSAGE_BYTES, MTU, World};
use srd_core::Opcode;
use std::fmt;

/// One row of the table.
pub struct Scenario {
    /// Name in the table.
    pub name: &'static str,
    /// Operations of the shorter run: so many that incomplete batches do not affect the result.
    pub operations: u64,
    /// Functions of `world` that toggle counting at entry and exit; a listed function that another
    /// listed one calls is thereby excluded.
    pub toggles: &'static [&'static str],
    /// Executes the given number of operations.
    pub run: fn(u64) -> Result<(), String>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.operations)?;
        self.toggles.iter().try_for_each(|t| write!(f, " {t}"))
    }
}

/// All scenarios. `send`, `receive` and `ack` are the three parts of a message: the requester until
/// the packet is sent; the responder from the packet's arrival until its acknowledgment is sent;
/// the requester from the acknowledgment's arrival until its completion is polled. The other
/// scenarios include both ends. `checksum-…` is the cost, at one end, of the checksum of a packet
/// with that many bytes of payload.
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

/// Sends one request of the given number of segments.
fn one(op: Opcode, segments: u64) -> Result<(), String> {
    let len = u32::try_from(segments * u64::from(MTU)).map_err(|_| "too many segments")?;
    let mut world = World::new(1)?;
    world.post_many(op, 1, len);
    world.run_until_done()
}

/// Sends a message to each of `peers` peers: Open, OpenAck, the message, its acknowledgment.
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
