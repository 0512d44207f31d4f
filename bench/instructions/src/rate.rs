//! Packets per CPU-second of the core alone.

use crate::world::{MESSAGE_BYTES, MTU, World};
use srd_core::Opcode;
use std::fs;

/// Turns between two looks at the clock.
const TURNS: u32 = 200;
/// Requests kept waiting, so that the engine never runs dry.
const WAITING: u64 = 1 << 40;

/// Each kind of work for `seconds` of CPU time. A data packet counts once: its sending,
/// reception, acknowledgment and completion are all in.
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
        // Data flows towards the requester when it reads.
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

/// CPU time of this thread: the first figure of its scheduler statistics, in nanoseconds.
fn cpu_ns() -> Result<u64, String> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let first = text.split_whitespace().next().and_then(|w| w.parse().ok());
    first.ok_or_else(|| format!("cannot read the CPU time in {path}"))
}
