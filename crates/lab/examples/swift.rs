//! Swift (Kumar et al., SIGCOMM 2020) as a rate policy of one's own, beside SRD's and a fixed
//! window: a program that adds a policy to the lab and is otherwise the lab's command line.
//!
//! ```sh
//! cargo run --release -p srd-lab --example swift -- run crates/lab/examples/swift.toml
//! ```

use srd_core::Time;
use srd_core::policy::{Acked, Echo, LinkView, Lost, RateLaw};
use srd_lab::Parameters;
use std::process::ExitCode;

/// Delay-based window control: additive increase below a target delay, multiplicative decrease
/// above it, at most once per round trip.
#[derive(Debug)]
pub struct Swift {
    /// Parameters; the published names are in parentheses.
    base_target_ns: f64,
    /// Packets per round trip (ai).
    increase_pkts: f64,
    /// Share of the excess delay by which the window shrinks (beta).
    decrease: f64,
    /// Largest decrease of a round trip (max_mdf).
    decrease_max: f64,
    /// Range of the target over windows, in ns (fs_range): small windows tolerate more delay.
    scaling_ns: f64,
    /// Window in packets.
    window: f64,
    /// Newest delay in ns.
    delay_ns: f64,
    decreased_at: Time,
    srtt_ns: f64,
    mtu: f64,
}

/// Windows, in packets, between which the target is scaled (fs_min_cwnd, fs_max_cwnd).
const SCALED: (f64, f64) = (0.1, 100.0);
/// Least window in packets (min_cwnd).
const WINDOW_MIN: f64 = 0.001;
/// Bytes of headers per packet on the wire.
const HEADERS: f64 = 100.0;

impl Swift {
    /// The object of an address.
    pub fn new(keys: &mut Parameters<'_>, link: &LinkView) -> Self {
        let bdp = link.line_bytes_per_sec as f64 * link.rtt_ns_min as f64 / 1e9;
        let packet = link.mtu as f64 + HEADERS;
        Self {
            // The base delay of the way, and the queue that is aimed at.
            base_target_ns: link.rtt_ns_min as f64
                + 1e3 * keys.number("queue_us", 5.0, 0.1..=10_000.0),
            increase_pkts: keys.number("increase_pkts", 1.0, 0.001..=100.0),
            decrease: keys.number("decrease", 0.8, 0.01..=1.0),
            decrease_max: keys.number("decrease_max", 0.5, 0.01..=0.99),
            scaling_ns: 1e3 * keys.number("scaling_us", 15.0, 0.0..=10_000.0),
            window: (bdp / packet).max(1.0),
            delay_ns: 0.0,
            decreased_at: Time(0),
            srtt_ns: link.rtt_ns_smoothed as f64,
            mtu: packet,
        }
    }

    /// Delay that the present window tolerates.
    fn target_ns(&self) -> f64 {
        let (small, large) = SCALED;
        let per = self.scaling_ns / (1.0 / small.sqrt() - 1.0 / large.sqrt());
        let more = per / self.window.sqrt() - per / large.sqrt();
        self.base_target_ns + more.clamp(0.0, self.scaling_ns)
    }

    /// Shrinks the window, at most once per round trip.
    fn shrink(&mut self, link: &LinkView, factor: f64) {
        if link.now.since(self.decreased_at).0 as f64 >= self.srtt_ns {
            self.window = (self.window * factor.max(1.0 - self.decrease_max)).max(WINDOW_MIN);
            self.decreased_at = link.now;
        }
    }
}

impl RateLaw for Swift {
    fn rate_bytes_per_sec(&self) -> u64 {
        // Twice the window per round trip: the window limits, the pace only spreads it.
        let rtts = if self.window < 1.0 { 1.0 } else { 2.0 };
        (rtts * self.window * self.mtu * 1e9 / self.srtt_ns.max(1.0)) as u64
    }

    fn inflight_bytes_max(&self, _: &LinkView) -> u64 {
        (self.window.max(1.0) * self.mtu) as u64
    }

    fn on_echo(&mut self, link: &LinkView, echo: &Echo) {
        self.delay_ns = echo.rtt_ns as f64;
        self.srtt_ns = link.rtt_ns_smoothed as f64;
    }

    fn on_acked(&mut self, link: &LinkView, acked: &Acked) {
        let target = self.target_ns();
        if self.delay_ns > target {
            let excess = (self.delay_ns - target) / self.delay_ns;
            return self.shrink(link, 1.0 - self.decrease * excess);
        }
        let packets = acked.bytes as f64 / self.mtu;
        let per_packet = self.increase_pkts / self.window.max(1.0);
        self.window += if acked.app_limited { 0.0 } else { per_packet * packets };
        let most = 2.0 * link.line_bytes_per_sec as f64 * link.rtt_ns_smoothed as f64 / 1e9;
        self.window = self.window.min((most / self.mtu).max(1.0));
    }

    fn on_lost(&mut self, link: &LinkView, _: &Lost) {
        self.shrink(link, 1.0 - self.decrease_max);
    }
}

fn main() -> ExitCode {
    srd_lab::rate_policy_add("swift", Swift::new);
    srd_lab::cli::main(std::env::args_os())
}
