//! Settings of the reliable connection of RoCEv2 and InfiniBand in a spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use srd_fabric::{Ps, SEC, US};
use srd_rivals::rc::{CCTI_TIMER_UNIT_PS, DcqcnConfig, IbCcConfig, RcConfig, Recovery};

/// Settings that differ from the rival's defaults (go-back-N, DCQCN with its published parameters).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RcSpec {
    /// "go-back-n" (default) or "irn" (selective, within a window).
    pub recovery: Option<String>,
    /// Payload of a full packet in bytes; default: `engine.mtu`.
    pub mtu: Option<u32>,
    /// Bytes of headers per packet, from Ethernet to the gap (default 82).
    pub header_bytes: Option<u32>,
    /// Exponent t of the Local ACK timeout 4.096 us x 2^t, up to 31; 0: no timeout (default 14).
    pub ack_timeout: Option<u32>,
    /// Timeouts in a row that are followed by a repetition, up to 7 (default 7).
    pub retry_cnt: Option<u32>,
    /// Time in us until a broken queue pair is made anew (default 1,000).
    pub reconnect_us: Option<f64>,
    /// Most bytes in flight per queue pair; default: no limit, with irn one bandwidth-delay
    /// product.
    pub window_bytes: Option<u64>,
    /// Largest message in bytes, into which flows are divided (default: no limit).
    pub message_bytes: Option<u64>,
    /// Messages of a queue pair that may be unacknowledged (default: no limit; 1: as InfiniBand's
    /// reliable datagram).
    pub outstanding: Option<u32>,
    /// Static rate of each queue pair in Gb/s, of InfiniBand's set (default: that of the link).
    pub static_rate: Option<f64>,
    /// Data packets per acknowledgment (default 4; irn: 1).
    pub ack_every: Option<u32>,
    /// Timeout of irn with fewer than three packets in flight, in us (default 100).
    pub irn_low_us: Option<f64>,
    /// Timeout of irn otherwise, in us (default 320).
    pub irn_high_us: Option<f64>,
    /// Whether DCQCN controls rates; default: unless `ib_cc` does.
    pub dcqcn: Option<bool>,
    /// Whether InfiniBand's congestion control controls rates, over credits (default false).
    pub ib_cc: Option<bool>,
    /// InfiniBand: by how much a notification raises the index into the table (CCTI_Increase,
    /// default 1).
    pub ccti_increase: Option<u32>,
    /// InfiniBand: period after which the index falls by one, in units of 1.024 us (CCTI_Timer,
    /// default 150).
    pub ccti_timer: Option<u32>,
    /// InfiniBand: largest index (CCTI_Limit, default 127).
    pub ccti_limit: Option<u32>,
    /// InfiniBand: pause after each packet per step of the index, in packet times, in eighths
    /// (default 0.125).
    pub cct_step: Option<f64>,
    /// DCQCN: least time between notifications of a queue pair, in us (default 50).
    pub cnp_us: Option<f64>,
    /// DCQCN: time without notification after which alpha decays, in us (default 55).
    pub alpha_us: Option<f64>,
    /// DCQCN: period of rate increases, in us (default 55).
    pub increase_us: Option<f64>,
    /// DCQCN: bytes sent per rate increase (default 10,000,000).
    pub increase_bytes: Option<u64>,
    /// DCQCN: gain of alpha (default 1/256).
    pub gain: Option<f64>,
    /// DCQCN: additive increase in Mb/s (default 40).
    pub additive_mbps: Option<f64>,
    /// DCQCN: hyper increase in Mb/s (default 400).
    pub hyper_mbps: Option<f64>,
}

fn time(value: f64, field: &str) -> Result<Ps, String> {
    let ps = value * US as f64;
    if (0.0..=1e6 * SEC as f64).contains(&ps) {
        return Ok(ps.round() as Ps);
    }
    Err(format!("rc.{field} = {value} is not a time from 0 to 1,000,000 s"))
}

fn rate(value: f64, field: &str) -> Result<f64, String> {
    if (0.0..=1e9).contains(&value) {
        return Ok(value * 1e6);
    }
    Err(format!("rc.{field} = {value} is not a rate from 0 to 1,000,000,000 Mb/s"))
}

impl RcSpec {
    /// The rival's configuration for links of `line_bps`. `bdp_bytes`: bandwidth-delay product of
    /// the network.
    ///
    /// # Errors
    /// The text names the invalid field.
    pub fn config(&self, line_bps: f64, bdp_bytes: u64) -> Result<RcConfig, String> {
        let mut c = RcConfig { line_bps, ..RcConfig::default() };
        c.recovery = match self.recovery.as_deref() {
            None | Some("go-back-n") => Recovery::GoBackN,
            Some("irn") => Recovery::Irn,
            Some(other) => {
                return Err(format!("rc.recovery = \"{other}\" is not one of go-back-n, irn"));
            }
        };
        c.mtu = self.mtu.unwrap_or(c.mtu);
        c.header_bytes = self.header_bytes.unwrap_or(c.header_bytes);
        c.ack_timeout = self.ack_timeout.unwrap_or(c.ack_timeout);
        c.retry_cnt = self.retry_cnt.unwrap_or(c.retry_cnt);
        c.message_bytes = self.message_bytes.unwrap_or(c.message_bytes);
        c.outstanding = self.outstanding.unwrap_or(c.outstanding);
        c.static_gbps = self.static_rate;
        c.ack_every = self.ack_every.unwrap_or(c.ack_every);
        let bdp = if c.recovery == Recovery::Irn { bdp_bytes.max(c.mtu.into()) } else { 0 };
        c.window_bytes = self.window_bytes.unwrap_or(bdp);
        for (field, name, to) in [
            (self.reconnect_us, "reconnect_us", &mut c.reconnect_ps),
            (self.irn_low_us, "irn_low_us", &mut c.irn_low_ps),
            (self.irn_high_us, "irn_high_us", &mut c.irn_high_ps),
        ] {
            if let Some(us) = field {
                *to = time(us, name)?;
            }
        }
        let ib_cc = self.ib_cc.unwrap_or(false);
        c.ib_cc = if ib_cc { Some(self.ib_cc()) } else { None };
        let given = [
            ("ccti_increase", self.ccti_increase.is_some()),
            ("ccti_timer", self.ccti_timer.is_some()),
            ("ccti_limit", self.ccti_limit.is_some()),
            ("cct_step", self.cct_step.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given && !ib_cc) {
            return Err(format!("rc.{name} is a setting of rc.ib_cc = true: give that, too"));
        }
        c.dcqcn = if self.dcqcn.unwrap_or(!ib_cc) { Some(self.dcqcn()?) } else { None };
        c.check().map_err(|e| format!("rc.{e}"))?;
        Ok(c)
    }

    fn ib_cc(&self) -> IbCcConfig {
        let d = IbCcConfig::default();
        IbCcConfig {
            increase: self.ccti_increase.unwrap_or(d.increase),
            timer_ps: self.ccti_timer.map_or(d.timer_ps, |n| Ps::from(n) * CCTI_TIMER_UNIT_PS),
            limit: self.ccti_limit.unwrap_or(d.limit),
            step: self.cct_step.unwrap_or(d.step),
        }
    }

    fn dcqcn(&self) -> Result<DcqcnConfig, String> {
        let mut d = DcqcnConfig::default();
        for (field, name, to) in [
            (self.cnp_us, "cnp_us", &mut d.cnp_ps),
            (self.alpha_us, "alpha_us", &mut d.alpha_ps),
            (self.increase_us, "increase_us", &mut d.increase_ps),
        ] {
            if let Some(us) = field {
                *to = time(us, name)?;
            }
        }
        for (field, name, to) in [
            (self.additive_mbps, "additive_mbps", &mut d.additive_bps),
            (self.hyper_mbps, "hyper_mbps", &mut d.hyper_bps),
        ] {
            if let Some(mbps) = field {
                *to = rate(mbps, name)?;
            }
        }
        d.increase_bytes = self.increase_bytes.unwrap_or(d.increase_bytes);
        d.gain = self.gain.unwrap_or(d.gain);
        Ok(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<RcConfig, String> {
        let spec: RcSpec = toml::from_str(text).map_err(|e| e.message().to_string())?;
        spec.config(100e9, 136_000)
    }

    #[test]
    fn fields_reach_the_rival() {
        let c = of("recovery = \"irn\"\nack_timeout = 10\nreconnect_us = 2.5").unwrap();
        assert_eq!((c.recovery, c.window_bytes), (Recovery::Irn, 136_000));
        assert_eq!((c.timeout_ps(), c.reconnect_ps), (4_194_304_000, 2_500_000));
        assert_eq!(of("dcqcn = false").unwrap().dcqcn, None);
        let c = of("ib_cc = true\nccti_timer = 20\ncct_step = 0.5").unwrap();
        let ib = c.ib_cc.unwrap();
        assert_eq!((c.dcqcn, ib.timer_ps, ib.step, ib.limit), (None, 20_480_000, 0.5, 127));
        assert_eq!(of("hyper_mbps = 200").unwrap().dcqcn.unwrap().hyper_bps, 200e6);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, part) in [
            ("recovery = \"hope\"", "go-back-n, irn"),
            ("ack_timeout = 32", "ack_timeout = 32"),
            ("retry_cnt = 8", "retry_cnt"),
            ("static_rate = 33.0", "static_rate = 33"),
            ("reconnect_us = -1", "reconnect_us"),
            ("recovery = \"irn\"\nwindow_bytes = 0", "window_bytes"),
            ("window_bytes = 100", "window_bytes"),
            ("mtu = 12", "mtu"),
            ("increase_us = 0", "dcqcn"),
            ("t = 3", "`t`"),
            ("ib_cc = true\ndcqcn = true", "dcqcn"),
            ("ib_cc = true\nccti_timer = 65536", "ccti_timer = 65536"),
            ("ib_cc = true\nccti_increase = 0", "ccti_increase"),
            ("ib_cc = true\ncct_step = 0.3", "cct_step = 0.3"),
            ("cct_step = 0.25", "rc.ib_cc = true"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
