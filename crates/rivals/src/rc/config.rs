//! Parameters of a reliable connection.

use srd_fabric::{PACKET_BYTES_MAX, Ps, US};
use std::fmt;

/// How losses are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The receiver drops what comes early; the sender repeats everything from the gap on.
    GoBackN,
    /// The receiver keeps what comes early; the sender repeats what is missing.
    Irn,
}

/// Parameters of DCQCN (Zhu et al., "Congestion control for large-scale RDMA deployments", 2015).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnConfig {
    /// Least time between two notifications of a queue pair. Default 50 us.
    pub cnp_ps: Ps,
    /// Time without notification after which alpha decays. Default 55 us.
    pub alpha_ps: Ps,
    /// Period of rate increases. Default 55 us.
    pub increase_ps: Ps,
    /// Bytes sent per rate increase. Default 10 MB.
    pub increase_bytes: u64,
    /// Gain of alpha. Default 1/256.
    pub gain: f64,
    /// Increases of each kind that halve the distance to the target first. Default 5.
    pub fast_steps: u32,
    /// Additive increase of the target. Default 40 Mb/s.
    pub additive_bps: f64,
    /// Hyper increase of the target. Default 400 Mb/s.
    pub hyper_bps: f64,
    /// Least rate. Default 100 Mb/s.
    pub rate_bps_min: f64,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        Self {
            cnp_ps: 50 * US,
            alpha_ps: 55 * US,
            increase_ps: 55 * US,
            increase_bytes: 10_000_000,
            gain: 1.0 / 256.0,
            fast_steps: 5,
            additive_bps: 40e6,
            hyper_bps: 400e6,
            rate_bps_min: 100e6,
        }
    }
}

/// Parameters of InfiniBand's congestion control (Architecture, annex A10).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IbCcConfig {
    /// CCTI_Increase: by how much a notification raises the index into the table. Default 1.
    pub increase: u32,
    /// CCTI_Timer: period after which the index falls by one. The architecture counts it in units
    /// of 1.024 us, up to 65,535 of them. Default 150 units, those of the published measurements
    /// with hardware (Gran et al., "First experiences with congestion control in InfiniBand
    /// hardware", 2010).
    pub timer_ps: Ps,
    /// CCTI_Limit: largest index. Default 127, as there.
    pub limit: u32,
    /// The table: entry i is a pause of i times this many packet times after each packet. The
    /// architecture leaves the table to the administrator, in eighths of a packet time. Default
    /// 1/8.
    pub step: f64,
}

/// Unit of CCTI_Timer.
pub const CCTI_TIMER_UNIT_PS: Ps = 1_024_000;

impl Default for IbCcConfig {
    fn default() -> Self {
        Self { increase: 1, timer_ps: 150 * CCTI_TIMER_UNIT_PS, limit: 127, step: 0.125 }
    }
}

/// Parameters of the queue pairs of a host. [`RcConfig::parameters`] prints them all.
#[derive(Clone, Debug, PartialEq)]
pub struct RcConfig {
    /// Payload of a full packet in bytes. Default 4,096.
    pub mtu: u32,
    /// Bytes of headers per data packet on the wire. Default 82: Ethernet 18, preamble and gap 20,
    /// IPv4 20, UDP 8, BTH 12, ICRC 4.
    pub header_bytes: u32,
    /// Bytes of an acknowledgment on the wire. Default 86: headers and AETH 4.
    pub ack_bytes: u32,
    /// Bytes of a congestion notification on the wire. Default 98: headers and 16.
    pub cnp_bytes: u32,
    /// Loss repair. Default [`Recovery::GoBackN`].
    pub recovery: Recovery,
    /// Exponent t of the Local ACK timeout 4.096 us x 2^t, 1 to 31; 0: no timeout. Default 14.
    pub ack_timeout: u32,
    /// Timeouts in a row that are followed by a repetition; the next one breaks the queue pair.
    /// Default 7.
    pub retry_cnt: u32,
    /// Time from the break of a queue pair until a new one can send. Default 1 ms, an assumption.
    pub reconnect_ps: Ps,
    /// Most bytes in flight per queue pair; 0 = unlimited. With IRN: one bandwidth-delay product.
    pub window_bytes: u64,
    /// Largest message in bytes, into which what is posted is divided; 0 = no limit. Default 0.
    pub message_bytes: u64,
    /// Messages of a queue pair that may be unacknowledged; 0 = no limit. With 1 a queue pair is
    /// like a context of InfiniBand's reliable datagram. Default 0.
    pub outstanding: u32,
    /// Rate of each queue pair, of the set of InfiniBand's static rates ([`STATIC_GBPS`]); `None` =
    /// the link's. Default none.
    pub static_gbps: Option<f64>,
    /// Data packets per acknowledgment; the last of a message is acknowledged at once. With IRN
    /// every packet is. Default 4.
    pub ack_every: u32,
    /// IRN: timeout with fewer than [`RcConfig::irn_few`] packets in flight. Default 100 us.
    pub irn_low_ps: Ps,
    /// IRN: timeout otherwise. Default 320 us.
    pub irn_high_ps: Ps,
    /// See [`RcConfig::irn_low_ps`]. Default 3 packets.
    pub irn_few: u64,
    /// Rate control by InfiniBand's congestion control, in place of DCQCN. Default none.
    pub ib_cc: Option<IbCcConfig>,
    /// Rate control by DCQCN; `None`: line rate.
    pub dcqcn: Option<DcqcnConfig>,
    /// Rate of the host's link.
    pub line_bps: f64,
}

impl Default for RcConfig {
    fn default() -> Self {
        Self {
            mtu: 4_096,
            header_bytes: 82,
            ack_bytes: 86,
            cnp_bytes: 98,
            recovery: Recovery::GoBackN,
            ack_timeout: 14,
            retry_cnt: 7,
            reconnect_ps: 1_000 * US,
            window_bytes: 0,
            message_bytes: 0,
            outstanding: 0,
            static_gbps: None,
            ack_every: 4,
            irn_low_ps: 100 * US,
            irn_high_ps: 320 * US,
            irn_few: 3,
            ib_cc: None,
            dcqcn: Some(DcqcnConfig::default()),
            line_bps: 100e9,
        }
    }
}

/// Static rates of the InfiniBand architecture in Gb/s.
pub const STATIC_GBPS: [f64; 23] = [
    2.5, 5.0, 10.0, 14.0, 20.0, 25.0, 28.0, 30.0, 40.0, 50.0, 56.0, 60.0, 80.0, 100.0, 112.0,
    120.0, 168.0, 200.0, 300.0, 400.0, 600.0, 800.0, 1_200.0,
];

/// An invalid parameter. The text names it and says what to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RcConfigError(String);

impl fmt::Display for RcConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for RcConfigError {}

impl RcConfig {
    /// Checks the parameters.
    ///
    /// # Errors
    /// Names the first invalid parameter.
    pub fn check(&self) -> Result<(), RcConfigError> {
        let fail = |text: String| Err(RcConfigError(text));
        let wire = u64::from(self.mtu) + u64::from(self.header_bytes);
        if self.mtu < 256 || self.header_bytes == 0 || wire > u64::from(PACKET_BYTES_MAX) {
            return fail(format!("mtu = {}: give 256 bytes up to a packet of 1 MiB", self.mtu));
        }
        if self.ack_timeout > 31 {
            return fail(format!(
                "ack_timeout = {}: the exponent has five bits; give 0 (no timeout) to 31",
                self.ack_timeout
            ));
        }
        if self.retry_cnt > 7 {
            return fail(format!(
                "retry_cnt = {}: the counter has three bits; give 0 to 7",
                self.retry_cnt
            ));
        }
        if let Some(gbps) = self.static_gbps
            && !STATIC_GBPS.contains(&gbps)
        {
            let set: Vec<String> = STATIC_GBPS.iter().map(f64::to_string).collect();
            return fail(format!("static_rate = {gbps} Gb/s is not one of {}", set.join(", ")));
        }
        if self.ack_every == 0 || self.ack_bytes == 0 || self.cnp_bytes == 0 {
            return fail("ack_every, ack_bytes and cnp_bytes must be at least 1".into());
        }
        if self.window_bytes > 0 && self.window_bytes < u64::from(self.mtu) {
            return fail(format!(
                "window_bytes = {} holds no packet of {} bytes; give more, or 0 for no limit",
                self.window_bytes, self.mtu
            ));
        }
        if self.recovery == Recovery::Irn && self.window_bytes == 0 {
            return fail(
                "window_bytes = 0: recovery = \"irn\" needs one bandwidth-delay \
                         product"
                    .into(),
            );
        }
        if self.recovery == Recovery::Irn && (self.irn_low_ps == 0 || self.irn_high_ps == 0) {
            return fail(
                "irn_low_us and irn_high_us must be above 0 with recovery = \"irn\"".into(),
            );
        }
        if let Some(ib) = &self.ib_cc {
            if self.dcqcn.is_some() {
                return fail("ib_cc and dcqcn: a queue pair has one of them".into());
            }
            let units = ib.timer_ps / CCTI_TIMER_UNIT_PS;
            if !(1..=65_535).contains(&units) {
                return fail(format!(
                    "ccti_timer = {units}: the timer has 16 bits; give 1 to 65535 units of 1.024 us"
                ));
            }
            if ib.increase == 0 || ib.limit == 0 || ib.increase > 255 || ib.limit > 16_383 {
                return fail("ccti_increase: give 1 to 255; ccti_limit: give 1 to 16383".into());
            }
            if !(0.125..=2_047.0).contains(&ib.step) || (ib.step * 8.0).fract() != 0.0 {
                return fail(format!(
                    "cct_step = {}: entries of the table are eighths of a packet time; give a \
                     multiple of 0.125",
                    ib.step
                ));
            }
        }
        if let Some(d) = &self.dcqcn {
            let times = [d.alpha_ps, d.increase_ps, d.cnp_ps, d.increase_bytes];
            if times.contains(&0) || !(0.0..=1.0).contains(&d.gain) || d.rate_bps_min < 1e6 {
                return fail(
                    "dcqcn: times and bytes must be above 0, the gain from 0 to 1, and \
                             the least rate at least 1 Mb/s"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// Whether switches may mark data packets: with rate control.
    pub(super) const fn marks(&self) -> bool {
        self.dcqcn.is_some() || self.ib_cc.is_some()
    }

    /// The Local ACK timeout; [`Ps::MAX`] = none.
    ///
    /// ```
    /// use srd_rivals::rc::RcConfig;
    /// let of = |ack_timeout| RcConfig { ack_timeout, ..RcConfig::default() }.timeout_ps();
    /// assert_eq!((of(10), of(14), of(18)), (4_194_304_000, 67_108_864_000, 1_073_741_824_000));
    /// ```
    pub const fn timeout_ps(&self) -> Ps {
        if self.ack_timeout == 0 { Ps::MAX } else { 4_096_000 << self.ack_timeout }
    }

    /// Every parameter with its value and unit, for reports.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let us = |ps: Ps| format!("{} us", ps as f64 / 1e6);
        let mut out = vec![
            ("mtu", format!("{} B", self.mtu)),
            ("header_bytes", format!("{} B", self.header_bytes)),
            ("ack_bytes", format!("{} B", self.ack_bytes)),
            ("recovery", format!("{:?}", self.recovery)),
            ("ack_timeout", format!("{}: {}", self.ack_timeout, us(self.timeout_ps()))),
            ("retry_cnt", self.retry_cnt.to_string()),
            ("reconnect", us(self.reconnect_ps)),
            ("window", format!("{} B", self.window_bytes)),
            ("message", format!("{} B", self.message_bytes)),
            ("outstanding", format!("{} messages", self.outstanding)),
            ("static_rate", self.static_gbps.map_or("none".into(), |g| format!("{g} Gb/s"))),
            ("ack_every", format!("{} packets", self.ack_every)),
        ];
        if self.recovery == Recovery::Irn {
            out.push(("irn_low", us(self.irn_low_ps)));
            out.push(("irn_high", us(self.irn_high_ps)));
        }
        if let Some(d) = &self.dcqcn {
            out.extend([
                ("dcqcn.cnp", us(d.cnp_ps)),
                ("dcqcn.alpha", us(d.alpha_ps)),
                ("dcqcn.increase", us(d.increase_ps)),
                ("dcqcn.increase_bytes", format!("{} B", d.increase_bytes)),
                ("dcqcn.gain", d.gain.to_string()),
                ("dcqcn.fast_steps", d.fast_steps.to_string()),
                ("dcqcn.additive", format!("{} Mb/s", d.additive_bps / 1e6)),
                ("dcqcn.hyper", format!("{} Mb/s", d.hyper_bps / 1e6)),
                ("dcqcn.rate_min", format!("{} Mb/s", d.rate_bps_min / 1e6)),
            ]);
        } else {
            if let Some(ib) = &self.ib_cc {
                out.extend([
                    ("ib_cc.increase", ib.increase.to_string()),
                    ("ib_cc.timer", us(ib.timer_ps)),
                    ("ib_cc.limit", ib.limit.to_string()),
                    ("ib_cc.step", format!("{} packet times", ib.step)),
                ]);
            }
            out.push(("dcqcn", "off".into()));
        }
        out.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }
}
