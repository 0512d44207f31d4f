//! Settings of Ultra Ethernet's congestion control in a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use srd_fabric::{Ps, SEC, US};
use srd_rivals::ue::{Balancing, UeConfig};

/// Settings that differ from the rival's defaults.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct UeSpec {
    /// "nscc" (default), "rccc" or "both".
    pub cc: Option<String>,
    /// "mixed" (default), "reps", "bitmap" or "oblivious".
    pub balancing: Option<String>,
    /// Entropies of a connection, a power of two (default 256).
    pub entropies: Option<u16>,
    /// Payload of a full packet in bytes; default: `engine.mtu`.
    pub mtu: Option<u32>,
    /// Bytes of headers per packet, from Ethernet to the gap (default 64).
    pub header_bytes: Option<u32>,
    /// Data packets per acknowledgment, up to 16 (default 1).
    pub ack_every: Option<u32>,
    /// Queueing delay that NSCC aims at, in us; default: the base round trip.
    pub target_us: Option<f64>,
    /// Largest window in bandwidth-delay products (default 1.5).
    pub window_bdp_max: Option<f64>,
    /// Packets out of order, as a multiple of the window, from which missing ones count as lost
    /// (default 1.5).
    pub early_windows: Option<f64>,
    /// Age from which a missing packet may count as lost, in target delays above the base round
    /// trip (default 2).
    pub late_targets: Option<u64>,
    /// Retransmission timeout in us; default: 15 us and six times the drain of a port's buffer.
    pub timeout_us: Option<f64>,
    /// Share of the link's rate at which receivers grant credit (default 0.99).
    pub credit_share: Option<f64>,
}

fn time(value: f64, field: &str) -> Result<Ps, String> {
    let ps = value * US as f64;
    if (0.0..=1e6 * SEC as f64).contains(&ps) {
        return Ok(ps.round() as Ps);
    }
    Err(format!("ue.{field} = {value} is not a time from 0 to 1,000,000 s"))
}

impl UeSpec {
    /// The rival's configuration. `drain_ps`: time in which the buffer of a port drains.
    ///
    /// # Errors
    /// The text names the invalid field.
    pub fn config(&self, base_rtt_ps: Ps, line_bps: f64, drain_ps: Ps) -> Result<UeConfig, String> {
        let mut c = UeConfig::new(base_rtt_ps, line_bps);
        (c.nscc, c.rccc) = match self.cc.as_deref() {
            None | Some("nscc") => (true, false),
            Some("rccc") => (false, true),
            Some("both") => (true, true),
            Some(other) => {
                return Err(format!("ue.cc = \"{other}\" is not one of nscc, rccc, both"));
            }
        };
        c.balancing = match self.balancing.as_deref() {
            None | Some("mixed") => Balancing::Mixed,
            Some("reps") => Balancing::Reps,
            Some("bitmap") => Balancing::Bitmap,
            Some("oblivious") => Balancing::Oblivious,
            Some(other) => {
                return Err(format!(
                    "ue.balancing = \"{other}\" is not one of mixed, reps, bitmap, oblivious"
                ));
            }
        };
        c.entropies = self.entropies.unwrap_or(c.entropies);
        c.mtu = self.mtu.unwrap_or(c.mtu);
        c.header_bytes = self.header_bytes.unwrap_or(c.header_bytes);
        c.ack_every = self.ack_every.unwrap_or(c.ack_every);
        c.window_bdp_max = self.window_bdp_max.unwrap_or(c.window_bdp_max);
        c.early_windows = self.early_windows.unwrap_or(c.early_windows);
        c.late_targets = self.late_targets.unwrap_or(c.late_targets);
        c.credit_share = self.credit_share.unwrap_or(c.credit_share);
        c.timeout_ps = (15 * US).saturating_add(drain_ps.saturating_mul(6)).max(3 * base_rtt_ps);
        if let Some(us) = self.timeout_us {
            c.timeout_ps = time(us, "timeout_us")?;
        }
        if let Some(us) = self.target_us {
            c.target_ps = time(us, "target_us")?;
        }
        c.check().map_err(|e| format!("ue: {e}"))?;
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<UeConfig, String> {
        let spec: UeSpec = toml::from_str(text).map_err(|e| e.message().to_string())?;
        spec.config(12 * US, 100e9, 54 * US)
    }

    #[test]
    fn fields_reach_the_rival() {
        let c = of("cc = \"both\"\nbalancing = \"reps\"\ntarget_us = 6").unwrap();
        assert_eq!((c.nscc, c.rccc, c.balancing), (true, true, Balancing::Reps));
        assert_eq!((c.target_ps, c.timeout_ps), (6 * US, 339 * US));
        assert_eq!(of("").unwrap().target_ps, 12 * US);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, part) in [
            ("cc = \"swift\"", "nscc, rccc, both"),
            ("balancing = \"luck\"", "mixed, reps"),
            ("entropies = 48", "entropies"),
            ("ack_every = 65", "ack_every"),
            ("mtu = 100", "mtu"),
            ("target_us = -3", "target_us"),
            ("timeout_us = 1", "timeout_us"),
            ("credit_share = 2", "credit_share"),
            ("window = 3", "`window`"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
