//! TCP's settings in a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use srd_fabric::{MS, Ps, SEC, US};
use srd_rivals::{Algorithm, Recovery, Scheduler, SlowStart, TcpConfig};

/// Bytes of TCP packets below IP, equal to SRD's: Ethernet header and check sequence, preamble and
/// gap.
const LINK_BYTES: u32 = crate::packet::ETHERNET_BYTES + crate::packet::ETHERNET_GAP_BYTES;

/// TCP settings that differ from the rival's defaults (CUBIC as in the Linux kernel, RTO floor of
/// 50 ms).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSpec {
    /// "cubic" (default), "reno", "dctcp", "bbr", or with subflows "lia" or "olia".
    pub cc: Option<String>,
    /// Subflows of each connection, each with a path of its own (Multipath TCP), up to 64; 1
    /// (default): plain TCP.
    pub subflows: Option<u32>,
    /// Which subflow carries the next data: "lowest-rtt" (default) or "round-robin".
    pub scheduler: Option<String>,
    /// "hystart" (default), "hystart++" or "standard".
    pub slow_start: Option<String>,
    /// "rack" (default), "sack" or "newreno".
    pub recovery: Option<String>,
    /// Largest payload of a segment in bytes; default: `engine.mtu`.
    pub mss: Option<u32>,
    /// Floor of the retransmission timeout in ms (default 50). With `cc = "dctcp"` the four timers
    /// have other defaults, if none of them is given: 1 ms, `tick_us` and `timer_slack_us` 100,
    /// `delayed_ack_ms` 0.5.
    pub rto_floor_ms: Option<f64>,
    /// Granularity of timers in us; 0 = exact (default 1,000).
    pub tick_us: Option<f64>,
    /// Slack that the kernel adds to timers of probes and reordering, in us (default 2,000).
    pub timer_slack_us: Option<f64>,
    /// Longest delay of an acknowledgment in ms (default 40).
    pub delayed_ack_ms: Option<f64>,
    /// Full segments per acknowledgment (default 2).
    pub ack_every: Option<u32>,
    /// First congestion window in segments (default 10).
    pub initial_window: Option<u32>,
    /// Receive window in bytes (default 6 MiB).
    pub window_bytes: Option<u32>,
    /// Largest burst handed to the card in one call, in bytes; 0 (default) = one segment.
    pub tso_bytes: Option<u32>,
    /// Whether segments are spread over the round trip (default false; BBR always does so).
    pub pacing: Option<bool>,
    /// Whether classic ECN is on (default false; DCTCP always uses its own).
    pub ecn: Option<bool>,
    /// Whether tail loss probes are sent (default true).
    pub tlp: Option<bool>,
    /// Whether the window shrinks after a pause (default true).
    pub restart_after_idle: Option<bool>,
    /// Whether a timeout changes the path, as IPv6 flow labels do (default false).
    pub rehash_on_rto: Option<bool>,
}

fn time(value: f64, unit: Ps, field: &str) -> Result<Ps, String> {
    let ps = value * unit as f64;
    if (0.0..=1e6 * SEC as f64).contains(&ps) {
        return Ok(ps.round() as Ps);
    }
    Err(format!("tcp.{field} = {value} is not a time from 0 to 1,000,000 s"))
}

fn one_of<T: Copy>(given: &str, known: &[(&str, T)], field: &str) -> Result<T, String> {
    known.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        format!("tcp.{field} = \"{given}\" is not one of {}", names.join(", "))
    })
}

impl TcpSpec {
    /// The rival's configuration.
    ///
    /// # Errors
    /// The text names the invalid field.
    pub fn config(&self) -> Result<TcpConfig, String> {
        let mut c = TcpConfig { link_bytes: LINK_BYTES, ..TcpConfig::default() };
        self.algorithms(&mut c)?;
        if let Some(ms) = self.rto_floor_ms {
            c.rto_min_ps = time(ms, MS, "rto_floor_ms")?;
        }
        if let Some(us) = self.tick_us {
            c.tick_ps = time(us, US, "tick_us")?;
        }
        if let Some(us) = self.timer_slack_us {
            c.timer_slack_ps = time(us, US, "timer_slack_us")?;
        }
        if let Some(ms) = self.delayed_ack_ms {
            c.delayed_ack_ps = time(ms, MS, "delayed_ack_ms")?;
        }
        c.subflows = self.subflows.unwrap_or(c.subflows);
        c.mss = self.mss.unwrap_or(c.mss);
        c.ack_every = self.ack_every.unwrap_or(c.ack_every);
        c.initial_window = self.initial_window.unwrap_or(c.initial_window);
        c.window_bytes = self.window_bytes.unwrap_or(c.window_bytes);
        c.tso_bytes = self.tso_bytes.unwrap_or(c.tso_bytes);
        c.pacing = self.pacing.unwrap_or(c.pacing);
        c.ecn = self.ecn.unwrap_or(c.ecn);
        c.tlp = self.tlp.unwrap_or(c.tlp);
        c.restart_after_idle = self.restart_after_idle.unwrap_or(c.restart_after_idle);
        c.rehash_on_rto = self.rehash_on_rto.unwrap_or(c.rehash_on_rto);
        c.check().map_err(|e| format!("tcp: {e}"))?;
        Ok(c)
    }

    fn algorithms(&self, c: &mut TcpConfig) -> Result<(), String> {
        if let Some(cc) = &self.cc {
            let known = [
                ("cubic", Algorithm::Cubic),
                ("reno", Algorithm::Reno),
                ("dctcp", Algorithm::Dctcp),
                ("bbr", Algorithm::Bbr),
                ("lia", Algorithm::Lia),
                ("olia", Algorithm::Olia),
            ];
            *c = c.clone().algorithm(one_of(cc, &known, "cc")?);
        }
        if let Some(name) = &self.scheduler {
            let known =
                [("lowest-rtt", Scheduler::LowestRtt), ("round-robin", Scheduler::RoundRobin)];
            c.scheduler = one_of(name, &known, "scheduler")?;
            if self.subflows.is_none_or(|n| n < 2) {
                return Err(format!(
                    "tcp.scheduler = \"{name}\" chooses among subflows: give tcp.subflows = 2 or \
                     more"
                ));
            }
        }
        if let Some(name) = &self.slow_start {
            let known = [
                ("hystart", SlowStart::HyStart),
                ("hystart++", SlowStart::HyStartPlusPlus),
                ("standard", SlowStart::Standard),
            ];
            c.slow_start = one_of(name, &known, "slow_start")?;
        }
        if let Some(name) = &self.recovery {
            let known = [
                ("rack", Recovery::Rack),
                ("sack", Recovery::Sack),
                ("newreno", Recovery::NewReno),
            ];
            *c = c.clone().recovery(one_of(name, &known, "recovery")?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<TcpConfig, String> {
        toml::from_str::<TcpSpec>(text).map_err(|e| e.message().to_string())?.config()
    }

    #[test]
    fn fields_reach_the_rival() {
        let c = of("cc = \"dctcp\"\nmss = 1448\nrto_floor_ms = 0.5\ndelayed_ack_ms = 1").unwrap();
        assert_eq!((c.algorithm, c.mss), (Algorithm::Dctcp, 1448));
        assert_eq!((c.rto_min_ps, c.delayed_ack_ps), (MS / 2, MS));
        assert_eq!((c.slow_start, c.link_bytes), (SlowStart::Standard, 38));
        let c = of("subflows = 8\ncc = \"olia\"\nscheduler = \"round-robin\"").unwrap();
        assert_eq!((c.algorithm, c.subflows), (Algorithm::Olia, 8));
        assert_eq!(c.scheduler, Scheduler::RoundRobin);
        assert_eq!(of("").unwrap().rto_min_ps, 50 * MS);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, part) in [
            ("cc = \"vegas\"", "cubic, reno, dctcp, bbr, lia, olia"),
            ("cc = \"lia\"", "subflows"),
            ("subflows = 0", "subflows = 0"),
            ("subflows = 2\nrecovery = \"newreno\"", "recovery"),
            ("scheduler = \"round-robin\"", "tcp.subflows"),
            ("subflows = 8\nscheduler = \"blest\"", "lowest-rtt, round-robin"),
            ("cc = \"bbr\"\nslow_start = \"hystart\"", "slow_start"),
            ("cc = \"bbr\"\nrecovery = \"newreno\"", "recovery"),
            ("rto_floor_ms = -1", "rto_floor_ms"),
            ("rto_floor_ms = 0", "rto_min"),
            ("mss = 0", "mss"),
            ("msss = 3", "msss"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
