//! Memory per peer, and messages per CPU-second, of the protocol core alone: `peers [SECONDS]`
//! prints one line of JSON.

mod count;
mod world;

use count::live;
use srd_datapath::process_cpu_ns;
use std::process::ExitCode;
use world::{REQUESTER, RESPONDER, World};

type Result<T> = std::result::Result<T, String>;

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

/// Number of peers in the published figures.
const PEERS: u32 = 1000;
/// Number of peers that are active at the same time while the memory of idle ones is counted.
const TOGETHER: u32 = 10;

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).unwrap_or_else(|| "1".into());
    let line = match seconds.parse::<f64>() {
        Ok(s) if s > 0.0 => measure(s),
        _ => Err(format!("`{seconds}` is not a number of seconds")),
    };
    match line {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("peers: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure(seconds: f64) -> Result<String> {
    let memory = memory()?;
    let one = rate(1, seconds)?;
    let many = rate(PEERS, seconds)?;
    Ok(serde_json::json!({
        "peers": PEERS, "bytes_idle": memory.idle, "bytes_active": memory.active,
        "bytes_rested": memory.rested,
        "bytes_hostile": memory.hostile, "bytes_counted": memory.counted,
        "bytes_max": memory.max,
        "messages_per_cpu_second_one": one, "messages_per_cpu_second_many": many,
    })
    .to_string())
}

/// Bytes per peer, at the requester and at the responder.
struct Memory {
    /// Of peers with an idle context, of which few were active at a time.
    idle: [f64; 2],
    /// Of peers that have just completed one message each.
    active: [f64; 2],
    /// Of idle peers after all were active at once; includes memory that pools keep.
    rested: [f64; 2],
    /// Of one hostile peer that answers nothing and uses all resources that it can.
    hostile: [f64; 2],
    /// The same by the engines' own count, which the fault checker limits.
    counted: [usize; 2],
    /// Upper limit of that count, by the engines' configuration.
    max: usize,
}

fn memory() -> Result<Memory> {
    let mut world = World::new()?;
    let held = || [live(REQUESTER), live(RESPONDER)];
    let before = held();
    let per_peer = || [0, 1].map(|i| (held()[i] - before[i]) as f64 / f64::from(PEERS));
    for _ in 0..PEERS / TOGETHER {
        world.peers_add(TOGETHER)?;
        world.greet()?;
        world.rest()?;
    }
    let idle = per_peer();
    world.peers_all();
    world.greet()?;
    let active = per_peer();
    world.rest()?;
    let rested = per_peer();
    let (hostile, counted, max) = hostile()?;
    Ok(Memory { idle, active, rested, hostile, counted, max })
}

/// Memory of one peer if each end is the most demanding possible peer of the other: measured,
/// counted, and the configured limit.
fn hostile() -> Result<([f64; 2], [usize; 2], usize)> {
    let mut world = World::new()?;
    world.peers_add(1)?;
    let before = [REQUESTER, RESPONDER].map(live);
    let mut most = [0; 2];
    let counted = world.worst(|| {
        for (i, owner) in [REQUESTER, RESPONDER].into_iter().enumerate() {
            most[i] = most[i].max(live(owner) - before[i]);
        }
    })?;
    Ok((most.map(|n| n as f64), counted, world.peer_bytes_max()))
}

/// Messages of 64 bytes per CPU-second of both ends, sent round robin to `peers` peers.
fn rate(peers: u32, seconds: f64) -> Result<f64> {
    let mut world = World::new()?;
    world.peers_add(peers)?;
    world.greet()?;
    let (start, before) = (process_cpu_ns(), world.completed);
    loop {
        for _ in 0..200 {
            world.turn(true)?;
        }
        let spent = (process_cpu_ns() - start) as f64 / 1e9;
        if spent >= seconds {
            return Ok((world.completed - before) as f64 / spent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_peers_hold_less_than_active_ones() {
        let m = memory().unwrap();
        for i in [0, 1] {
            // The goal of idle peers.
            assert!(m.idle[i] <= 512.0, "{}", m.idle[i]);
            assert!(0.0 < m.idle[i] && m.idle[i] <= m.rested[i] && m.rested[i] < m.active[i]);
            assert!(m.active[i] < m.hostile[i] && m.hostile[i] <= m.max as f64);
            // Growth of the engine's tables is not counted for the peer.
            assert!(m.hostile[i] * 0.95 <= m.counted[i] as f64 && m.counted[i] <= m.max);
        }
    }
}
