//! Speed of a network with credits, in packets per CPU-second: superposed permutations on a k-ary
//! 3-tree with two horizontal links and circuits, flows as fast as the network takes them.
//!
//! `lossless [k] [permutations] [packets per flow] [packets per buffer]`

#[path = "../tests/common/flows.rs"]
mod flows;

use flows::{BYTES, permutations, tree};
use srd_fabric::routing::CircuitConfig;
use srd_fabric::{CreditConfig, FlowControl, RoutingConfig, Service, WorldConfig};

/// CPU time of this thread in ns, from procfs.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| -> u64 {
        args.get(i).map_or(default, |a| {
            a.parse().unwrap_or_else(|_| panic!("argument {}: {a} is not a number", i + 1))
        })
    };
    let (k, p, packets) = (number(0, 8) as u32, number(1, 4) as u32, number(2, 64));
    let config = WorldConfig {
        flow_control: FlowControl::Credits(CreditConfig {
            input_bytes: number(3, 8) * u64::from(BYTES),
            lanes: 2,
            service: Service::RoundRobin,
        }),
        routing: RoutingConfig::Circuits(CircuitConfig::default()),
        ..WorldConfig::new(1)
    };
    let mut world = permutations(tree(k, 3, 2), config, p, packets);
    let start = cpu_ns();
    world.run_to_end();
    let seconds = (cpu_ns() - start) as f64 / 1e9;
    let t = world.totals();
    let hops: u64 = (0..world.topology().links())
        .map(|l| world.link_stats(srd_fabric::LinkId(l)).packets)
        .sum();
    let unit = packets as f64 * f64::from(BYTES) * 80.0;
    let last = world.hosts().iter().map(|h| h.ended_at).max().unwrap_or(0) as f64 / unit;
    println!("k = {k}, P = {p}: {} packets, {hops} hops, {} events", t.delivered, t.events);
    println!("last packet after {last:.2} units, run hash {:016x}", world.run_hash());
    println!(
        "{seconds:.2} CPU-s: {:.2} M hops/s, {:.2} M events/s",
        hops as f64 / seconds / 1e6,
        t.events as f64 / seconds / 1e6
    );
}
