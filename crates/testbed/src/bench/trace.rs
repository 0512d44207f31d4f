//! The state of a worker's contexts over time.

use super::{block::now_ns, protocol::Run};
use crate::error::Result;
use srd::Device;
use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

/// Writes the state of the contexts over time as CSV.
pub(super) struct Trace {
    out: BufWriter<File>,
    next_ns: u64,
}

impl Trace {
    /// A new file.
    pub fn create(path: &Path) -> Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(
            out,
            "run,ms,peer,outstanding,in_flight_packets,in_flight_bytes,in_flight_bytes_max,\
             rate_mbit,srtt_us,rtt_min_us,stalled,live,penalised,retired,probing,tx_packets,again,\
             needless,timeouts,budget_bytes"
        )?;
        Ok(Self { out, next_ns: 0 })
    }

    /// Writes a line per peer if 10 ms have passed.
    pub fn write(&mut self, device: &Device, run: &Run) -> Result {
        let now = now_ns();
        if now < self.next_ns.max(run.start_ns) {
            return Ok(());
        }
        self.next_ns = now + 10_000_000;
        let ms = (now - run.start_ns) as f64 / 1e6;
        let c = device.counters()?.engine;
        for peer in device.context_stats()? {
            let paths = device.path_stats(peer.peer.ip)?;
            let count = |state: &str| paths.iter().filter(|p| p.state == state).count();
            writeln!(
                self.out,
                "{},{ms:.1},{},{},{},{},{},{:.1},{},{},{},{},{},{},{},{},{},{},{},{}",
                run.run,
                peer.peer.ip,
                peer.outstanding,
                peer.packets_in_flight,
                peer.inflight_bytes,
                peer.inflight_bytes_max,
                peer.rate_bytes_per_sec as f64 * 8e-6,
                peer.srtt_ns / 1000,
                peer.rtt_ns_min / 1000,
                u8::from(peer.stalled),
                count("live"),
                count("penalised"),
                count("retired"),
                count("probing"),
                c.tx_pkts,
                c.retrans_pkts,
                c.retrans_spurious_pkts,
                c.retrans_timeout_events,
                peer.rx_budget
            )?;
        }
        self.out.flush()?;
        Ok(())
    }
}
