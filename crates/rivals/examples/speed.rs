//! How fast the simulator runs TCP: a permutation of 64 hosts under 8 leaves and 8 spines.
//!
//! `cargo run --release -p srd-rivals --example speed`

use srd_fabric::{HostId, LeafSpine, MS, Port, SEC, US, WorldConfig};
use srd_rivals::{NetError, TcpConfig, TcpNet};

fn main() -> Result<(), NetError> {
    let port = Port::new(100_000_000_000, US).buffer(900_000);
    let nic = Port::new(100_000_000_000, US);
    let (leaves, spines, hosts_per_leaf) = (8, 8, 8);
    let shape = LeafSpine {
        leaves,
        spines,
        hosts_per_leaf,
        cables_per_spine: 1,
        nic,
        edge: port,
        uplink: port,
    };
    for mss in [1448, 8948] {
        let tcp = TcpConfig::default().mss(mss);
        let mut net = TcpNet::new(shape.build(), WorldConfig::new(1), tcp)?;
        let conns: Vec<_> =
            (0..64).map(|h| net.connect(HostId(h), HostId((h + 11) % 64))).collect();
        let bytes = u64::from(mss) * 10_000;
        conns.iter().for_each(|conn| _ = net.message_at(*conn, MS, bytes));
        #[expect(clippy::disallowed_methods, reason = "the measurement itself")]
        let start = std::time::Instant::now();
        let done = net.run_done(100 * SEC);
        #[expect(clippy::disallowed_methods, reason = "the measurement itself")]
        let took = start.elapsed().as_secs_f64();
        let (counters, totals) = (net.counters(), net.world.totals());
        println!(
            "mss {mss}: {:.2} M data packets/s, {:.1} M events/s, {} copies, {} timeouts, done \
             {done}, {:.1} ms simulated",
            counters.segments_sent as f64 / took / 1e6,
            totals.events as f64 / took / 1e6,
            counters.retransmits,
            counters.timeouts,
            net.world.now() as f64 / MS as f64,
        );
    }
    Ok(())
}
