//! Duration of calls into the engine while many peers become silent at the same time.

use crate::world::{Call, MESSAGE_BYTES, World};
use srd_core::Opcode;

/// Most peers; each needs an address handle.
pub const PEERS_MAX: u32 = 65_535;
/// Runs of the same scenario. A call does the same work in each, so its shortest time excludes
/// disturbances by the machine.
const RUNS: usize = 5;

/// All peers die after each received one message and while another one is in flight to each. Prints
/// the durations of calls until every request has ended.
pub fn run(peers: u32) -> Result<(), String> {
    if peers == 0 || peers > PEERS_MAX {
        return Err(format!("{peers} peers: from 1 to {PEERS_MAX}, an address handle each"));
    }
    let mut least = once(peers)?;
    for _ in 1..RUNS {
        let again = once(peers)?;
        if again.len() != least.len() {
            return Err("the number of calls differs between runs of the same scenario".into());
        }
        for (l, a) in least.iter_mut().zip(again) {
            l.ns = l.ns.min(a.ns);
        }
    }
    println!(
        "{peers} peers become silent together; us per call, the least of {RUNS} runs for each"
    );
    println!("{:<28} {:>8} {:>8} {:>8} {:>8}", "calls", "number", "median", "99.9 %", "most");
    type Pick = fn(&Call) -> bool;
    let rows: [(&str, Pick); 3] = [
        ("handle_timeout, timers fire", |c| c.name == "handle_timeout" && c.steps > 0),
        ("handle_timeout, none fires", |c| c.name == "handle_timeout" && c.steps == 0),
        ("poll_transmit", |c| c.name == "poll_transmit"),
    ];
    for (name, pick) in rows {
        let mut ns: Vec<u64> = least.iter().filter(|c| pick(c)).map(|c| c.ns).collect();
        ns.sort_unstable();
        let us = |at: usize| ns.get(at).map_or(0.0, |&ns| ns as f64 / 1000.0);
        let (n, most) = (ns.len(), us(ns.len().saturating_sub(1)));
        println!("{name:<28} {n:>8} {:>8.1} {:>8.1} {most:>8.1}", us(n / 2), us(n * 999 / 1000));
    }
    Ok(())
}

fn once(peers: u32) -> Result<Vec<Call>, String> {
    let mut world = World::with_depth(peers, peers.max(2048))?;
    world.post_many(Opcode::Send, u64::from(peers), MESSAGE_BYTES);
    world.run_until_done()?;
    world.post_many(Opcode::Send, u64::from(peers), MESSAGE_BYTES);
    world.fall_silent()
}

#[cfg(test)]
mod tests {
    #[test]
    fn dead_peers_end_every_request() {
        super::run(300).unwrap();
        assert!(super::run(0).is_err() && super::run(65_536).is_err());
    }
}
