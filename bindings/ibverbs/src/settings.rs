//! Settings from the environment. All are optional; an unknown variable `SRD_…` or an invalid value
//! is reported once on standard error.

use crate::{peers::Silent, refused::JOB_VARIABLE};
use srd::{DeviceConfig, PathPolicy, Progress};
use std::{
    env, fmt::Display, io::Write as _, net::IpAddr, str::FromStr, sync::OnceLock, time::Duration,
};

/// Default vendor and part number: none, because this is no vendor's hardware.
const NO_ID: u32 = 0;

/// Default of the largest payload of a packet: that of EFA devices. Programs size their pools of
/// receive buffers by it.
const MTU_MAX_DEFAULT: u16 = 8928;

/// Time without a poll by the program after which the device's thread takes over.
const IDLE: Duration = Duration::from_micros(300);

/// How long a peer may be silent while it owes an answer, in seconds, before requests to it end
/// with status 13 (or 15, if it never answered), unless `SRD_SILENT_S` says otherwise. Longer than
/// the device's default of 5 s: the peer is a process, and on overcommitted processors one was seen
/// to get no CPU time for 5.4 s.
const SILENT_S_DEFAULT: u64 = 20;
/// The longest that may be asked for.
const SILENT_S_MAX: u64 = 3_600;

/// The variables and their purpose.
pub const VARIABLES: &[(&str, &str)] = &[
    ("SRD_INTERFACE", "network interfaces to offer as devices: names separated by commas"),
    ("SRD_IP", "the same, by IP address"),
    ("SRD_DEVICE_NAME", "names of the devices, separated by commas (default: srd0, srd1, ...)"),
    ("SRD_MTU", "most payload bytes per packet (default: as the link permits, at most 8928)"),
    ("SRD_PATHS", "paths per peer address: a power of two up to 256 (default 64)"),
    ("SRD_PATH_POLICY", "srd, oblivious, ecmp or rtt-p2c (default srd)"),
    ("SRD_SHARDS", "processors that a device uses at once, 1 to 64 (default 1)"),
    ("SRD_LINE_MBPS", "rate of the port in Mb/s (default: what the interface tells, else learnt)"),
    ("SRD_SILENT_S", "seconds until requests to a silent peer fail, 1 to 3600 (default 20)"),
    ("SRD_RAILS", "further networks of each device, as e1/16, separated by commas"),
    ("SRD_SHARE", "0: share nothing with other processes of this host (default 1)"),
    ("SRD_STATUS", "0: show nothing to `srd stat`, `srd top` and `srd export` (default 1)"),
    ("SRD_INTEGRITY", "on or off: whether data carries a checksum, CRC-32C (default on)"),
    (
        "SRD_KEY_FILE",
        "file with the keys of the cluster: packets are sealed (`srd key new` makes one)",
    ),
    ("SRD_SEAL", "never, prefer or require (default: require with a key file, never without)"),
    (
        "SRD_CAPTURE_SECRETS",
        "1: `srd capture --secrets` gets what opens sealed packets (default 0)",
    ),
    ("SRD_PORT_BASE", "first of the engines' 256 UDP ports; must be the same on all hosts"),
    ("SRD_VENDOR_ID", "vendor number that the device reports (default 0; EFA: 0x1d0f)"),
    ("SRD_PART_ID", "part number that the device reports (default 0; EFA: 0xefa0 to 0xefa4)"),
    ("SRD_PCI", "none: devices report the PCI address 0000:00:00.0 (default: an existing one)"),
    ("SRD_STATS_DIR", "folder to which each process writes its statistics at exit"),
    ("SRD_LOG", "what is logged: off, error, warn, info or debug (default off)"),
    ("SRD_LOG_FILE", "file that the log is appended to (default: standard error)"),
    ("SRD_CONF", "file with those of these settings that are not set here (/etc/srd.conf)"),
    ("SRD_VERBS_DIR", "folder with libibverbs.so.1 and libefa.so.1 (for `srd run`)"),
];

/// The settings of this process.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub interfaces: Vec<String>,
    pub ips: Vec<IpAddr>,
    pub device_names: Vec<String>,
    pub mtu: Option<u16>,
    pub paths: Option<u16>,
    pub path_policy: Option<PathPolicy>,
    pub integrity: Option<bool>,
    pub port_base: Option<u16>,
    /// How long a peer may be silent, in seconds.
    pub silent_s: u64,
    pub vendor_id: u32,
    pub part_id: u32,
    /// Whether devices report the PCI address of an existing device, if there is one.
    pub pci: bool,
}

/// The settings, parsed once.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        if let Err(text) = srd::settings_file() {
            warn(text);
        }
        if let Err(text) = srd::log_from_env() {
            warn(&format!("{text}; nothing is logged"));
        }
        for (name, _) in env::vars_os() {
            let Some(name) = name.to_str().filter(|n| n.starts_with("SRD_")) else { continue };
            if !VARIABLES.iter().any(|(known, _)| *known == name) {
                warn(&format!("{name} is not a variable of software SRD and has no effect"));
            }
        }
        // `srd run` tells it once for all processes.
        let unused = DeviceConfig::loopback().key_file_unused();
        if let Some(text) = unused.filter(|_| env::var_os(JOB_VARIABLE).is_none()) {
            warn(&format!("warning: {text}"));
        }
        Settings {
            interfaces: list("SRD_INTERFACE"),
            ips: list("SRD_IP"),
            device_names: list::<DeviceName>("SRD_DEVICE_NAME").into_iter().map(|n| n.0).collect(),
            mtu: one("SRD_MTU", str::parse),
            paths: one("SRD_PATHS", str::parse),
            path_policy: one("SRD_PATH_POLICY", path_policy),
            integrity: one("SRD_INTEGRITY", on_or_off),
            port_base: one("SRD_PORT_BASE", str::parse),
            silent_s: one("SRD_SILENT_S", silent).unwrap_or(SILENT_S_DEFAULT),
            vendor_id: one("SRD_VENDOR_ID", number).unwrap_or(NO_ID),
            part_id: one("SRD_PART_ID", number).unwrap_or(NO_ID),
            pci: one("SRD_PCI", none_of_pci).is_none(),
        }
    })
}

impl Settings {
    /// Configuration of the device at `ip`.
    pub(crate) fn device_config(&self, ip: IpAddr) -> DeviceConfig {
        let mut config = DeviceConfig::ip(ip);
        config.progress = Progress::Shared { idle: IDLE };
        config.mtu = self.mtu;
        let silent_s = self.silent_s;
        config.tune = Some(Box::new(move |engine| {
            let silent_max = srd::Span::from_secs(silent_s);
            engine.loss.unresponsive_after = silent_max;
            engine.loss.unreachable_after = silent_max;
        }));
        if let Some(paths) = self.paths {
            config.paths = paths;
        }
        if let Some(policy) = self.path_policy {
            config.path_policy = policy;
        }
        if let Some(on) = self.integrity {
            config.integrity = on;
        }
        if let Some(base) = self.port_base {
            config.port_base = base;
        }
        let (silent, base) = (Silent::default(), config.port_base);
        config.watch = Some(Box::new(move |event| silent.watch(event, base, silent_s)));
        if self.mtu.is_none() {
            // No more than EFA, although the loopback interface would permit it.
            config.mtu_max = Some(MTU_MAX_DEFAULT);
        }
        config
    }
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: &str) {
    // In one call, so that lines of ranks that share the terminal stay whole.
    let _ = std::io::stderr().write_all(format!("srd: {text}\n").as_bytes());
}

/// The value of a variable, or of the host's file.
fn text(name: &str) -> Option<String> {
    srd::setting(name)?.into_string().ok()
}

fn one<T, E: Display>(name: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
    let text = text(name).filter(|t| !t.is_empty())?;
    match parse(&text) {
        Ok(value) => Some(value),
        Err(e) => {
            warn(&format!("{name}={text} is ignored: {e}"));
            None
        }
    }
}

fn list<T: FromStr<Err: Display>>(name: &str) -> Vec<T> {
    let text = text(name).unwrap_or_default();
    let parse = |part: &str| match part.parse() {
        Ok(value) => Some(value),
        Err(e) => {
            warn(&format!("{part} in {name} is ignored: {e}"));
            None
        }
    };
    text.split(',').map(str::trim).filter(|p| !p.is_empty()).filter_map(parse).collect()
}

/// A name that programs show, and that is a folder's in the description of the device.
struct DeviceName(String);

/// Most bytes of a name, without the zero at its end: IB_DEVICE_NAME_MAX of the kernel.
const DEVICE_NAME_BYTES_MAX: usize = 63;

impl FromStr for DeviceName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if text.is_empty() || text.len() > DEVICE_NAME_BYTES_MAX || !text.chars().all(allowed) {
            return Err("a name has 1 to 63 letters, digits, `_` and `-`");
        }
        Ok(Self(text.to_owned()))
    }
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it must be on or off"),
    }
}

fn none_of_pci(text: &str) -> Result<(), &'static str> {
    if text == "none" { Ok(()) } else { Err("it must be none") }
}

fn path_policy(text: &str) -> Result<PathPolicy, &'static str> {
    match text {
        "srd" => Ok(PathPolicy::Srd),
        "oblivious" => Ok(PathPolicy::Oblivious),
        "ecmp" => Ok(PathPolicy::Ecmp),
        "rtt-p2c" => Ok(PathPolicy::RttP2c),
        _ => Err("it must be srd, oblivious, ecmp or rtt-p2c"),
    }
}

fn silent(text: &str) -> Result<u64, &'static str> {
    let wrong = "it must be a whole number of seconds from 1 to 3600";
    text.parse().ok().filter(|s| (1..=SILENT_S_MAX).contains(s)).ok_or(wrong)
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Result<u32, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_policies_are_read() {
        assert_eq!(number("0x1d0f").unwrap(), 0x1d0f);
        assert_eq!(number("61345").unwrap(), 0xefa1);
        assert!(number("efa0").is_err());
        assert_eq!(path_policy("ecmp"), Ok(PathPolicy::Ecmp));
        assert!(path_policy("best").is_err());
        assert_eq!(silent("60"), Ok(60));
        assert!(["0", "3601", "1m"].into_iter().all(|wrong| silent(wrong).is_err()));
        assert!("rdmap0s6".parse::<DeviceName>().is_ok());
        let long = "x".repeat(64);
        for wrong in ["", "../x", "a/b", "a b", long.as_str()] {
            assert!(wrong.parse::<DeviceName>().is_err(), "{wrong}");
        }
    }
}
