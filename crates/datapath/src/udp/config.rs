//! Configuration of the sockets, and errors of opening them.

use core::{net::IpAddr, time::Duration};
use std::{error::Error, fmt, io};

/// Default first UDP port of the 256 that the engines of a host share.
pub const PORT_BASE_DEFAULT: u16 = 18_700;
/// Most paths of one datapath: a path number is one byte.
pub const PATHS_MAX: usize = 256;
/// Most segments of one segmented send that a kernel accepts: 64 before Linux 6.9, 128 since.
pub const SEGMENTS_MAX: usize = 64;

/// Configuration of a [`UdpDatapath`](super::UdpDatapath).
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Address of this host that peers use; a single address, not "any".
    pub ip: IpAddr,
    /// Interface number for a link-local IPv6 address (`fe80::`), 0 otherwise.
    pub scope_id: u32,
    /// The receive port is this plus the slot.
    pub port_base: u16,
    /// Slot of the engine; `None` = the first free one. The kernel's bind decides, so that two
    /// engines never get the same slot.
    pub slot: Option<u8>,
    /// Source ports, 1 to [`PATHS_MAX`].
    pub paths: usize,
    /// MTU to use in bytes, IP header included; `None` = the interface's. A larger one than the
    /// interface's is refused.
    pub link_mtu: Option<u32>,
    /// Send buffer of each path's socket in bytes (the kernel doubles it). Small, so that a slow
    /// link causes backpressure instead of a long queue in this host.
    pub sndbuf_bytes_per_path: usize,
    /// Requested receive buffer in bytes (the kernel doubles it).
    pub rcvbuf_bytes: usize,
    /// Use segmentation (GSO) for sends and merging (GRO) for receives.
    pub gso: bool,
    /// Packets per segmented send, 1 to [`SEGMENTS_MAX`].
    pub gso_segments_max: usize,
    /// Packets between two flushes, 1 to 4096.
    pub tx_batch_max: usize,
    /// Messages per receive, 1 to 64; a merged message counts as one.
    pub rx_batch_max: usize,
    /// Poll for this long in `wait` before sleeping.
    pub spin: Duration,
    /// `SO_BUSY_POLL` of the receive socket in microseconds; 0 = leave it alone.
    pub busy_poll_us: u32,
    /// Addresses of this host on further rails, at most three. Path *k* leaves by rail *k* modulo
    /// the number of rails; rail 0 is `ip`. All peers need the same rails: a host has the same
    /// number in the network of each. On rail *r* packets arrive at 256 *r* ports above the slot's.
    pub rails: Vec<IpAddr>,
    /// Length in bits of the networks that the rails are; no effect without rails.
    pub rail_prefix_bits: u8,
}

impl UdpConfig {
    /// The defaults at the address `ip`: 64 paths, first free slot, GSO of up to 64 packets.
    pub fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            scope_id: 0,
            port_base: PORT_BASE_DEFAULT,
            slot: None,
            paths: 64,
            link_mtu: None,
            sndbuf_bytes_per_path: 64 << 10,
            rcvbuf_bytes: 8 << 20,
            gso: true,
            gso_segments_max: SEGMENTS_MAX,
            tx_batch_max: 256,
            rx_batch_max: 32,
            spin: Duration::ZERO,
            busy_poll_us: 0,
            rails: Vec::new(),
            rail_prefix_bits: 0,
        }
    }

    /// Checks the bounds given at the fields.
    ///
    /// # Errors
    /// [`OpenError::Config`] names the field and its bounds.
    pub fn validate(&self) -> Result<(), OpenError> {
        let bad = |what| Err(OpenError::Config(what));
        if self.ip.is_unspecified() || self.ip.is_multicast() {
            return bad("ip must be one address of this host, not \"any\" or a group");
        }
        if !(1..=PATHS_MAX).contains(&self.paths) {
            return bad("paths must be from 1 to 256");
        }
        if !(1..=SEGMENTS_MAX).contains(&self.gso_segments_max) {
            return bad("gso_segments_max must be from 1 to 64");
        }
        if !(1..=4096).contains(&self.tx_batch_max) {
            return bad("tx_batch_max must be from 1 to 4096");
        }
        if !(1..=super::ring::MESSAGES_MAX).contains(&self.rx_batch_max) {
            return bad("rx_batch_max must be from 1 to 64");
        }
        if self.port_base == 0 || self.port_base > u16::MAX - 255 {
            return bad("port_base must be from 1 to 65280: 256 ports follow it");
        }
        self.rails_validate()
    }
}

/// Why opening a datapath failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A field of the configuration is out of bounds.
    Config(&'static str),
    /// The rails cannot be used together.
    Rails(String),
    /// The address is not one of this host.
    Address {
        /// The address.
        ip: IpAddr,
        /// The system's error, with the list of local addresses.
        error: io::Error,
    },
    /// The slot is taken.
    SlotTaken {
        /// The requested slot.
        slot: u8,
        /// Its UDP port.
        port: u16,
        /// The address.
        ip: IpAddr,
    },
    /// All 256 slots are taken.
    SlotsFull {
        /// First UDP port of the slots.
        port_base: u16,
        /// The address.
        ip: IpAddr,
    },
    /// The requested MTU does not fit the interface.
    MtuTooLarge {
        /// Requested MTU in bytes.
        wished: u32,
        /// MTU of the interface in bytes.
        link: u32,
    },
    /// The MTU leaves no room for a useful packet.
    MtuTooSmall {
        /// MTU in bytes.
        mtu: u32,
    },
    /// A system call failed.
    System {
        /// What the call was for.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl OpenError {
    pub(super) fn system(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { doing, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::Rails(what) => f.write_str(what),
            Self::Address { ip, error } => write!(f, "cannot use the address {ip}: {error}"),
            Self::SlotTaken { slot, port, ip } => write!(
                f,
                "slot {slot} (UDP port {port} of {ip}) is in use by another engine or program: \
                 choose another slot or none, or another port base"
            ),
            Self::SlotsFull { port_base, ip } => write!(
                f,
                "all 256 slots of {ip} (UDP ports {port_base} to {}) are in use: end an engine or \
                 choose another port base",
                port_base + 255
            ),
            Self::MtuTooLarge { wished, link } => write!(
                f,
                "an MTU of {wished} bytes does not fit the interface, whose MTU is {link}: ask for \
                 at most {link}, or raise the interface's (ip link set dev NAME mtu {wished})"
            ),
            Self::MtuTooSmall { mtu } => write!(
                f,
                "an MTU of {mtu} bytes is too small: IP networks carry at least 576 (IPv4) or \
                 1280 (IPv6)"
            ),
            Self::System { doing, error } => write!(f, "cannot {doing}: {error}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Address { error, .. } | Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::Address { error, .. } | OpenError::System { error, .. } => error.kind(),
            OpenError::SlotTaken { .. } | OpenError::SlotsFull { .. } => io::ErrorKind::AddrInUse,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
