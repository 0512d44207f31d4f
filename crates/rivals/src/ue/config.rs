//! Parameters of Ultra Ethernet's congestion control.

use srd_fabric::{PACKET_BYTES_MAX, Ps, US};
use std::fmt;

/// How packets are spread over paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancing {
    /// All entropies in turn, in a changing order.
    Oblivious,
    /// The same, but skipping those that were marked (a penalty each).
    Bitmap,
    /// Entropies whose packets came back unmarked are used again; otherwise a drawn one.
    Reps,
    /// Recycled as with `Reps`, otherwise as with `Bitmap`.
    Mixed,
}

/// Parameters of a host. [`UeConfig::parameters`] prints them all.
#[derive(Clone, Debug, PartialEq)]
pub struct UeConfig {
    /// Payload of a full packet in bytes. Default 4,096.
    pub mtu: u32,
    /// Bytes of headers per packet on the wire. Default 64, the public simulator's.
    pub header_bytes: u32,
    /// Bytes of an acknowledgment, credit or probe on the wire. Default 84, the least frame.
    pub control_bytes: u32,
    /// Whether NSCC controls windows.
    pub nscc: bool,
    /// Whether receivers grant credit.
    pub rccc: bool,
    /// Path selection. Default [`Balancing::Mixed`].
    pub balancing: Balancing,
    /// Entropies of a connection, a power of two up to 1,024. Default 256.
    pub entropies: u16,
    /// Data packets per acknowledgment; marked packets are acknowledged at once. Default 1.
    pub ack_every: u32,
    /// Base round trip of the network.
    pub base_rtt_ps: Ps,
    /// Queueing delay that NSCC aims at. Default one base round trip (without trimming).
    pub target_ps: Ps,
    /// Largest window in bandwidth-delay products. Default 1.5.
    pub window_bdp_max: f64,
    /// Share of the link's rate at which receivers grant credit. Default 0.99.
    pub credit_share: f64,
    /// Packets per credit. Default 4.
    pub credit_packets: u32,
    /// Packets out of order, as a multiple of the window, from which missing ones count as lost.
    /// Default 1.5, and at least five packets.
    pub early_windows: f64,
    /// Age from which a missing packet may count as lost, in target delays above the base round
    /// trip. Default 2. Not part of the published algorithm, which without it repeats what waits on
    /// slow links.
    pub late_targets: u64,
    /// Retransmission timeout. The lab gives 15 us and six times the drain of a port's buffer.
    pub timeout_ps: Ps,
    /// Rate of the host's link.
    pub line_bps: f64,
}

impl UeConfig {
    /// Default parameters for a network with this base round trip and rate.
    pub fn new(base_rtt_ps: Ps, line_bps: f64) -> Self {
        Self {
            mtu: 4_096,
            header_bytes: 64,
            control_bytes: 84,
            nscc: true,
            rccc: false,
            balancing: Balancing::Mixed,
            entropies: 256,
            ack_every: 1,
            base_rtt_ps,
            target_ps: base_rtt_ps,
            window_bdp_max: 1.5,
            credit_share: 0.99,
            credit_packets: 4,
            early_windows: 1.5,
            late_targets: 2,
            timeout_ps: 341 * US,
            line_bps,
        }
    }

    /// Bytes on the wire of a full packet.
    pub const fn wire_bytes(&self) -> u32 {
        self.mtu + self.header_bytes
    }

    /// Bandwidth-delay product in bytes.
    pub fn bdp_bytes(&self) -> f64 {
        self.base_rtt_ps as f64 * self.line_bps / 8e12
    }

    /// Largest window in bytes, at least one packet.
    pub fn window_bytes_max(&self) -> f64 {
        (self.window_bdp_max * self.bdp_bytes()).max(self.wire_bytes().into())
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Names the first invalid parameter.
    pub fn check(&self) -> Result<(), UeConfigError> {
        let fail = |text: String| Err(UeConfigError(text));
        if self.mtu < 256 || self.header_bytes == 0 || self.wire_bytes() > PACKET_BYTES_MAX {
            return fail(format!("mtu = {}: give 256 bytes up to a packet of 1 MiB", self.mtu));
        }
        if !self.entropies.is_power_of_two() || self.entropies > 1_024 {
            return fail(format!(
                "entropies = {}: give a power of two up to 1,024",
                self.entropies
            ));
        }
        if !self.nscc && !self.rccc {
            return fail("cc: give \"nscc\", \"rccc\" or \"both\"".into());
        }
        if !(1..=16).contains(&self.ack_every) {
            return fail(format!(
                "ack_every = {}: give 1 to 16, since an acknowledgment reports 64 packets",
                self.ack_every
            ));
        }
        if self.control_bytes == 0 || self.credit_packets == 0 {
            return fail("control_bytes and credit_packets must be at least 1".into());
        }
        if !(0.1..=1.0).contains(&self.credit_share) {
            return fail(format!("credit_share = {}: give 0.1 to 1", self.credit_share));
        }
        if !(0.1..=100.0).contains(&self.window_bdp_max) || self.early_windows < 0.0 {
            return fail("window_bdp_max: give 0.1 to 100; early_windows: at least 0".into());
        }
        if self.base_rtt_ps == 0 || self.target_ps == 0 || self.timeout_ps <= self.base_rtt_ps {
            return fail(
                "target_us must be above 0, and timeout_us above the base round trip".into(),
            );
        }
        Ok(())
    }

    /// Every parameter with its value and unit, for reports.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let us = |ps: Ps| format!("{} us", ps as f64 / 1e6);
        let out = [
            ("mtu", format!("{} B", self.mtu)),
            ("header_bytes", format!("{} B", self.header_bytes)),
            ("control_bytes", format!("{} B", self.control_bytes)),
            ("nscc", self.nscc.to_string()),
            ("rccc", self.rccc.to_string()),
            ("balancing", format!("{:?}", self.balancing)),
            ("entropies", self.entropies.to_string()),
            ("ack_every", format!("{} packets", self.ack_every)),
            ("base_rtt", us(self.base_rtt_ps)),
            ("target", us(self.target_ps)),
            ("window_max", format!("{:.0} B", self.window_bytes_max())),
            ("credit_share", self.credit_share.to_string()),
            ("credit_packets", self.credit_packets.to_string()),
            ("early_windows", self.early_windows.to_string()),
            ("late_targets", self.late_targets.to_string()),
            ("timeout", us(self.timeout_ps)),
        ];
        out.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }
}

/// An invalid parameter. The text names it and says what to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UeConfigError(String);

impl fmt::Display for UeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for UeConfigError {}
