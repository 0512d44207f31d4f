//! Packets per CPU-second of the core alone.

use crate::world::{MESSAGE_BYTES, MTU, World};
use srd_core::Opcode;
use std::fs;

/// Turns between two reads of the clock.
const TURNS: u32 = 200;
/// Number of pending requests, so large that the engine never runs out.
const WAITING: u64 = 1 << 40;

/// Runs each kind of work for `seconds` of CPU time. A data packet counts once, with its sending,
/// reception, acknowledgment and completion.
pub fn run(seconds: f64) -> Result<(), String> {
    println!("{:<16} {:>14} {:>14} {:>12}", "operation", "packets/CPU-s", "with acks", "ns/packet");
    let write_bytes = u32::from(MTU) * 64;
    let rows = [
        ("send", Opcode::Send, MESSAGE_BYTES),
        ("write, 64 seg", Opcode::Write, write_bytes),
        ("read, 64 seg", Opcode::Read, write_bytes),
    ];
    for (name, op, len) in rows {
        let mut world = World::new(1)?;
        world.post_many(op, WAITING, len);
        for _ in 0..TURNS {
            world.turn()?;
        }
        let (start, before) = (cpu_ns()?, world.arrived);
        let mut spent = 0;
        while spent < (seconds * 1e9) as u64 {
            for _ in 0..TURNS {
                world.turn()?;
            }
            spent = cpu_ns()? - start;
        }
        let [to_far, to_near] = [0, 1].map(|i| (world.arrived[i] - before[i]) as f64);
        // In a read, data flows towards the requester.
        let data = if op == Opcode::Read { to_near } else { to_far };
        let second = spent as f64 / 1e9;
        println!(
            "{name:<16} {:>14.0} {:>14.0} {:>12.1}",
            data / second,
            (to_far + to_near) / second,
            spent as f64 / data
        );
    }
    Ok(())
}

/// CPU time of this thread in nanoseconds: the first value of its scheduler statistics.
fn cpu_ns() -> Result<u64, String> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let first = text.split_whitespace().next().and_then(|w| w.parse().ok());
    first.ok_or_else(|| format!("cannot read the CPU time in {path}"))
}
