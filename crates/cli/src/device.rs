//! Device options, which every command that opens a device has, and the device that they describe.

use crate::{
    app::token::Token,
    failure::{Failure, Result},
    host, output, units,
};
use clap::ValueEnum;
use srd::{
    AsyncEvent, Device, DeviceConfig, Progress,
    datapath::{
        Datapath,
        capture::{Capture, CaptureSecrets},
        fault::{Fault, FaultHandle, Rates},
    },
};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::BufWriter,
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

/// Bytes buffered before a capture is written; more than the length of its header.
const CAPTURE_BUFFER_BYTES: usize = 1 << 18;
/// Default distance, in packets, by which a reordered packet is late at most.
const REORDER_PACKETS_DEFAULT: u32 = 16;

/// How the path of each packet is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathPolicy {
    /// Reuse paths that delivered in time and without CE marks; avoid slow, marked and lossy paths
    Srd,
    /// Use all paths in turn, regardless of their state
    Oblivious,
    /// Use one path, as ECMP does for a TCP connection
    Ecmp,
    /// Use the path with the lower RTT of two drawn at random
    RttP2c,
}

/// How the sending rate is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RatePolicy {
    /// Control the rate by measured delivery rate and delay
    Srd,
    /// Send at the constant rate of --rate
    Fixed,
}

/// Which contexts are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SealPolicy {
    /// None: the key file is not used
    Never,
    /// Those whose other side has a key file; who can change packets can prevent the seal
    Prefer,
    /// All; who has no key is refused
    Require,
}

impl SealPolicy {
    /// Its name in SRD_SEAL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Prefer => "prefer",
            Self::Require => "require",
        }
    }
}

/// Options of the device.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Local address to use [default: 127.0.0.1 for a server, the address of the route to HOST for
    /// a client]
    #[arg(long, value_name = "ADDR", value_parser = own_ip, conflicts_with = "interface")]
    pub ip: Option<IpAddr>,
    /// Local network interface to use (its first address)
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Slot of this process: it receives at UDP port base + slot; `auto` = the first free one
    #[arg(long, visible_alias = "port-slot", value_name = "N", default_value = "auto",
          value_parser = slot)]
    pub slot: Slot,
    /// First of the 256 UDP ports that the processes of a host share; the same on all hosts.
    /// SRD_PORT_BASE sets another default
    #[arg(long, value_name = "PORT",
          default_value_t = port_base().unwrap_or(srd::PORT_BASE_DEFAULT))]
    pub port_base: u16,
    /// Paths (UDP source ports) to spray over: a power of two up to 256
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = paths)]
    pub paths: u16,
    /// How a path is chosen for each packet [default: srd; of `srd paths`: oblivious]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub path_policy: Option<PathPolicy>,
    /// How fast to send
    #[arg(long, value_name = "POLICY", value_enum, default_value = "srd")]
    pub rate_policy: RatePolicy,
    /// Constant rate of --rate-policy fixed in bits per second, as 500M or 10G [default: 10G]
    #[arg(long, value_name = "RATE", value_parser = units::rate_bytes_per_sec)]
    pub rate: Option<u64>,
    /// Most bytes in flight to one host, for --rate-policy fixed [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub inflight: Option<u64>,
    /// Payload bytes per packet [default: what the link's MTU allows]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u16>,
    /// Send and request data without checksums (CRC-32C). Saves processor time on networks that are
    /// known not to damage data
    #[arg(long)]
    pub unchecked: bool,
    /// File with the secret keys of the cluster: all packets are encrypted and authenticated, and
    /// peers need the same file. `srd key new FILE` makes one [default: SRD_KEY_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Access and limits")]
    pub key: Option<PathBuf>,
    /// Which contexts are sealed [default: SRD_SEAL, or require with a key file, never without]
    #[arg(long, value_name = "POLICY", value_enum, help_heading = "Access and limits")]
    pub seal: Option<SealPolicy>,
    /// File with a secret shared by server and clients. A server with a token refuses clients
    /// without it, and a client with a token refuses servers without it
    #[arg(long, value_name = "FILE", help_heading = "Access and limits")]
    pub token_file: Option<PathBuf>,
    /// Faults of the packets that this process sends.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// Record all packets into a pcapng file (replaced if it exists)
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Write the secrets of sealed contexts into the capture, so that whoever gets it can decrypt
    /// its packets. The file gets mode 0600
    #[arg(long, requires = "capture")]
    pub capture_secrets: bool,
    /// Denied paths are used like others: `srd paths` probes them.
    #[arg(skip)]
    pub paths_denied_used: bool,
}

impl DeviceArgs {
    /// Reads the token file, if the options name one.
    ///
    /// # Errors
    /// Those of [`Token::read`].
    pub fn token(&self) -> Result<Option<Token>> {
        self.token_file.as_deref().map(Token::read).transpose()
    }
}

/// Fault injection, for tests and demonstrations.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Fault injection (into the packets that this process sends)")]
pub struct FaultArgs {
    /// Drop this share of the packets, as 1% or 0.01
    #[arg(long, visible_alias = "loss", value_name = "SHARE", value_parser = units::share_ppm)]
    pub fault_loss: Option<u32>,
    /// Send this share of the packets twice
    #[arg(long, value_name = "SHARE", value_parser = units::share_ppm)]
    pub fault_duplicate: Option<u32>,
    /// Delay this share of the packets until up to 16 later ones have been sent
    #[arg(long, value_name = "SHARE", value_parser = units::share_ppm)]
    pub fault_reorder: Option<u32>,
    /// Flip a bit in this share of the packets, with a valid UDP checksum. The receiver's CRC-32C
    /// detects the damage; with --unchecked, damaged data is delivered
    #[arg(long, value_name = "SHARE", value_parser = units::share_ppm)]
    pub fault_corrupt: Option<u32>,
    /// Seed of the random faults: the same seed and packets give the same faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub fault_seed: u64,
}

impl FaultArgs {
    fn rates(&self) -> Rates {
        Rates {
            loss_ppm: self.fault_loss.unwrap_or(0),
            duplicate_ppm: self.fault_duplicate.unwrap_or(0),
            reorder_ppm: self.fault_reorder.unwrap_or(0),
            reorder_packets_max: REORDER_PACKETS_DEFAULT,
            corrupt_ppm: self.fault_corrupt.unwrap_or(0),
            ..Rates::default()
        }
    }
}

/// The first of the UDP ports without an option: that of `SRD_PORT_BASE`, if it is set.
///
/// # Errors
/// It is no port.
pub fn port_base() -> Result<u16> {
    Ok(number_set("SRD_PORT_BASE", "port")?.unwrap_or(srd::PORT_BASE_DEFAULT))
}

/// The bytes that a packet carries at most, as the drop-in libraries take it from `SRD_MTU`;
/// `None`: as the link permits.
///
/// # Errors
/// It is no number.
pub fn mtu_set() -> Result<Option<u16>> {
    number_set("SRD_MTU", "number of bytes")
}

/// The value of a setting that is a number of `what`, if it is set.
///
/// # Errors
/// It is no such number.
pub fn number_set(name: &str, what: &str) -> Result<Option<u16>> {
    let Some(text) = srd::setting(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = || Failure::usage(format!("{name}={}: it is no {what}", text.display()));
    text.to_str().and_then(|t| t.parse().ok()).ok_or_else(wrong).map(Some)
}

fn own_ip(text: &str) -> Result<IpAddr, String> {
    host::ip(text).map_err(|e| format!("{e}; --interface takes the name of an interface"))
}

/// A slot, or `None` for the first free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub Option<u8>);

fn slot(text: &str) -> Result<Slot, String> {
    if text == "auto" {
        return Ok(Slot(None));
    }
    let wrong = |_| format!("`{text}` is not a slot; write a number from 0 to 255, or auto");
    text.parse().map(|n| Slot(Some(n))).map_err(wrong)
}

fn paths(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(n) if n.is_power_of_two() && n <= 256 => Ok(n),
        _ => Err("the number of paths must be 1, 2, 4, 8, 16, 32, 64, 128 or 256".into()),
    }
}

/// An open device, with its fault injection.
pub struct OpenDevice {
    /// The device.
    pub device: Device,
    /// Counters of the injected faults, if there are any.
    faults: Option<FaultHandle>,
    /// A peer has refused the seal, or the lack of one.
    refused: Arc<AtomicBool>,
}

impl DeviceArgs {
    /// The default options.
    ///
    /// # Errors
    /// Never: the defaults are valid.
    pub fn default_options() -> Result<Self> {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            device: DeviceArgs,
        }
        let parsed = <Alone as clap::Parser>::try_parse_from(["srd"]);
        parsed.map(|alone| alone.device).map_err(|e| Failure::usage(e.to_string()))
    }

    /// Opens the device at `ip` (unless the options name an address or interface) and prints its
    /// warnings.
    ///
    /// # Errors
    /// The options contradict each other, or the device cannot be opened.
    pub fn open(&self, ip: IpAddr, progress: Progress) -> Result<OpenDevice> {
        self.open_with(ip, progress, None)
    }

    /// As [`Self::open`], but the first queue pair has a given index, for servers whose clients
    /// must know it.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_with(
        &self,
        ip: IpAddr,
        progress: Progress,
        qpn_start: Option<u8>,
    ) -> Result<OpenDevice> {
        let mut config = match (&self.interface, self.ip) {
            (Some(name), _) => DeviceConfig::interface(name),
            (None, own) => DeviceConfig::ip(own.unwrap_or(ip)),
        };
        config.slot = self.slot.0;
        config.qpn_start = qpn_start;
        config.port_base = self.port_base;
        config.mtu = self.mtu;
        config.paths = self.paths;
        config.integrity = !self.unchecked;
        config.progress = progress;
        config.path_policy = match self.path_policy {
            None | Some(PathPolicy::Srd) => srd::PathPolicy::Srd,
            Some(PathPolicy::Oblivious) => srd::PathPolicy::Oblivious,
            Some(PathPolicy::Ecmp) => srd::PathPolicy::Ecmp,
            Some(PathPolicy::RttP2c) => srd::PathPolicy::RttP2c,
        };
        if let Some(policy) = self.seal {
            config.seal = Some(policy.name().to_owned());
        }
        if let Some(file) = &self.key {
            key_check(
                config.seal.as_deref(),
                if self.seal.is_some() { "--seal" } else { "SRD_SEAL" },
            )?;
            config.key_file = Some(file.clone());
        }
        let refused = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&refused);
        config.watch = Some(Box::new(move |event| {
            if matches!(event, AsyncEvent::SealRefused { .. }) {
                told.store(true, Ordering::Relaxed);
            }
            if let Some(text) = event.seal_text() {
                output::note(&format!("srd: {text}"));
            }
        }));
        config.path_control = !self.paths_denied_used;
        self.rate_set(&mut config)?;
        let faults = self.wrap_set(&mut config)?;
        let device = Device::open(config)?;
        for warning in device.warnings() {
            output::note(&format!("srd: warning: {warning}"));
        }
        if let Ok(Some(status)) = device.seal() {
            let what = match status.policy {
                srd::seal::Policy::Require => "all packets are sealed",
                _ => "packets are sealed where the other side has a key file",
            };
            output::note(&format!("srd: {what}"));
        }
        let faults = faults.and_then(|from| from.try_recv().ok());
        Ok(OpenDevice { device, faults, refused })
    }

    fn rate_set(&self, config: &mut DeviceConfig) -> Result {
        if self.rate_policy == RatePolicy::Srd {
            if self.rate.is_some() || self.inflight.is_some() {
                return Err(Failure::usage("--rate and --inflight need --rate-policy fixed"));
            }
            return Ok(());
        }
        config.rate_policy = srd::RatePolicy::Fixed;
        let (rate, inflight) = (self.rate, self.inflight);
        config.tune = Some(Box::new(move |engine| {
            engine.rate.rate_fixed_bytes_per_sec =
                rate.unwrap_or(engine.rate.rate_fixed_bytes_per_sec);
            engine.rate.inflight_fixed_bytes = inflight.unwrap_or(engine.rate.inflight_fixed_bytes);
        }));
        Ok(())
    }

    /// Wraps capture and fault injection around the datapath. The capture records packets after the
    /// faults.
    fn wrap_set(&self, config: &mut DeviceConfig) -> Result<Option<mpsc::Receiver<FaultHandle>>> {
        let (rates, seed) = (self.faults.rates(), self.faults.fault_seed);
        let none = Rates { reorder_packets_max: REORDER_PACKETS_DEFAULT, ..Rates::default() };
        let faulty = rates != none;
        if self.capture_secrets && config.key_file.is_none() {
            return Err(Failure::usage(
                "--capture-secrets needs a key file (--key FILE, SRD_KEY_FILE): nothing is sealed",
            ));
        }
        let open = |path: &Path| capture_file(path, self.capture_secrets);
        let capture = self.capture.as_deref().map(open).transpose()?;
        let secrets = CaptureSecrets::default();
        if self.capture_secrets {
            let theirs = secrets.clone();
            config.capture_secrets = Some(Box::new(move |line| theirs.push(line)));
        }
        if !faulty && capture.is_none() {
            return Ok(None);
        }
        let (handle, from) = mpsc::channel();
        config.wrap = Some(Box::new(move |mut datapath| {
            if let Some(file) = capture {
                let recorded = Capture::to_writer(datapath, file);
                let recorded = recorded.expect("the buffer takes the capture's header");
                datapath = Box::new(recorded.with_secrets(secrets));
            }
            if !faulty {
                return datapath;
            }
            let fault = Fault::new(datapath, seed, rates, Rates::default());
            // The receiver is waiting in `open`; if opening failed, the handle is not needed.
            let _ = handle.send(fault.handle());
            Box::new(fault) as Box<dyn Datapath>
        }));
        Ok(faulty.then_some(from))
    }
}

/// Refuses a key file whose use is turned off at the same time: who names one wants a seal, and
/// must not find out later that there was none.
///
/// # Errors
/// `policy` is never; `set_by` is the option or variable that says so.
pub fn key_check(policy: Option<&str>, set_by: &str) -> Result {
    if policy != Some(SealPolicy::Never.name()) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--key names a key file, and {set_by}=never says that it is not used: leave out one of both"
    )))
}

/// Creates a capture. With `secrets` nobody but its owner may read it: a file that existed is
/// removed, since it may belong to somebody else, and others may have opened it before.
///
/// # Errors
/// The file cannot be made.
pub fn capture_file(path: &Path, secrets: bool) -> Result<BufWriter<File>> {
    let fail = |e| Failure::new(format!("cannot write the capture {}: {e}", path.display()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let old = fs::canonicalize(path).ok().filter(|old| secrets && old.is_file());
    if let Some(old) = &old {
        fs::remove_file(old).map_err(fail)?;
        options.create_new(true);
    }
    if secrets {
        options.mode(0o600);
    }
    let path = old.as_deref().unwrap_or(path);
    let file = options.open(path).map_err(fail)?;
    if secrets {
        // What existed and is no file, for example a named pipe, keeps its mode otherwise.
        file.set_permissions(Permissions::from_mode(0o600)).map_err(fail)?;
    }
    Ok(BufWriter::with_capacity(CAPTURE_BUFFER_BYTES, file))
}

impl OpenDevice {
    /// Whether a peer has refused the seal, or the lack of one; the user was told why.
    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Says, where shards are asked for, that the device has one all the same: who measures with it
    /// would take what it does for what they do.
    pub fn shards_tell(&self) {
        let asked = DeviceConfig::loopback().shards;
        if asked > 1 && self.device.shard_count() == 1 {
            output::note(&format!(
                "srd: SRD_SHARDS={asked} has no effect on this command: one thread drives its \
                 device, which has one shard"
            ));
        }
    }

    /// Summary of the injected faults; `None` without fault injection.
    pub fn faults_text(&self) -> Option<String> {
        let done = self.faults.as_ref()?.tx_done();
        Some(format!(
            "injected faults: of {} packets sent {} lost, {} sent twice, {} held back, \
             {} damaged",
            done.packets, done.lost, done.duplicated, done.held, done.corrupted
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody has opened the file before the secrets come.
    #[test]
    fn a_capture_with_secrets_is_a_new_file() {
        use std::io::{Read, Write};
        let path = std::env::temp_dir().join(format!("srd-secrets-{}", std::process::id()));
        let mut others = [false, true].map(|secrets| {
            // Another file than that of the turn before.
            let _ = fs::remove_file(&path);
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            let other = File::open(&path).unwrap();
            let mut capture = capture_file(&path, secrets).unwrap();
            capture.write_all(b"new").unwrap();
            capture.flush().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            other
        });
        let seen = others.each_mut().map(|other| {
            let mut text = String::new();
            other.read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!(seen, ["new", "old"], "the first one has no secrets");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn slots_and_paths_are_checked() {
        assert_eq!(slot("auto"), Ok(Slot(None)));
        assert_eq!(slot("255"), Ok(Slot(Some(255))));
        assert!(slot("256").is_err() && slot("-1").is_err());
        assert_eq!(paths("256"), Ok(256));
        assert!(paths("0").is_err() && paths("3").is_err() && paths("512").is_err());
    }
}
