//! Resource limits per client and for all clients together. A client is an IP address: a host with
//! several addresses counts as several clients, and `--allow` limits their number.

use crate::{
    failure::{Failure, Result},
    units::{self, bytes_text},
};
use rustix::fs::{StatVfs, statvfs};
use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Queue pairs of the device that are not available to sessions: that of the request handler, and
/// some that are not yet reusable.
const QPS_KEPT: u64 = 16;
/// Queue pairs of a device.
const QPS: u64 = 256;
/// Assumed memory in bytes if the machine's is unknown.
const MEMORY_UNKNOWN: u64 = 4 << 30;
/// Upper limit of the default of `--disk-keep` in bytes: enough for logs and logins.
const KEEP_MAX: u64 = 1 << 30;

/// Options that limit what clients may use.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Access and limits")]
pub struct LimitArgs {
    /// Serve only these addresses: ADDRESS or ADDRESS/BITS, as 10.0.0.0/8; may be repeated
    #[arg(long, value_name = "PREFIX", value_parser = Prefix::parse)]
    pub allow: Vec<Prefix>,
    /// Let clients read files, but not write any
    #[arg(long)]
    pub read_only: bool,
    /// Most measurements and copies at once [default: 64]
    #[arg(long, value_name = "N", default_value_t = 64, hide_default_value = true)]
    pub sessions_max: u64,
    /// Most measurements and copies of one client at once [default: half of all]
    #[arg(long, value_name = "N")]
    pub client_sessions_max: Option<u64>,
    /// Most queue pairs of all sessions [default: 240]
    #[arg(long, value_name = "N", default_value_t = QPS - QPS_KEPT, hide_default_value = true)]
    pub qps_max: u64,
    /// Most queue pairs of one client [default: half of all]
    #[arg(long, value_name = "N")]
    pub client_qps_max: Option<u64>,
    /// Most memory of all sessions, as 4G [default: a quarter of the machine's]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub memory_max: Option<u64>,
    /// Most memory of one client [default: half of all]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub client_memory_max: Option<u64>,
    /// Most disk space of files being received [default: the free space less --disk-keep]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub disk_max: Option<u64>,
    /// Most disk space of files being received from one client [default: half of all]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub client_disk_max: Option<u64>,
    /// Disk space that must stay free [default: a tenth of the file system, 1 GiB at most]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub disk_keep: Option<u64>,
    /// Sleep while idle, even if a client asks the server to poll continuously
    #[arg(long)]
    pub no_spin: bool,
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    ip: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Parses `ADDRESS` or `ADDRESS/BITS`.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a prefix: write it as 10.0.0.5, 10.0.0.0/8 or fd00::/16");
        let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, n)| (ip, Some(n)));
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let all = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |n| n.parse().map_err(|_| wrong()))?;
        // An IPv4-mapped IPv6 prefix has 96 bits more.
        let own = ip.to_canonical();
        let within = if own.is_ipv4() && ip.is_ipv6() { 96 } else { 0 };
        match u8::checked_sub(bits, within) {
            Some(own_bits) if bits <= all => Ok(Self { ip: own, bits: own_bits }),
            _ => Err(wrong()),
        }
    }

    /// Whether the prefix contains the address. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let (own, ip) = (self.ip.to_canonical(), ip.to_canonical());
        if own.is_ipv4() != ip.is_ipv4() {
            return false;
        }
        let (offset, bits) =
            if own.is_ipv4() { (96, u32::from(self.bits)) } else { (0, u32::from(self.bits)) };
        let number = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u128::from(ip.to_ipv6_mapped()),
            IpAddr::V6(ip) => u128::from(Ipv6Addr::from(ip.octets())),
        };
        let differ = number(own) ^ number(ip);
        differ.leading_zeros() >= offset + bits
    }
}

/// Resources of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of queue pairs.
    pub qps: u64,
    /// Registered memory in bytes.
    pub memory: u64,
    /// Bytes of a file being received.
    pub disk: u64,
}

/// Names of the counted resources, and the options that limit them: sessions, then the fields of
/// [`Share`].
const NAMES: [(&str, &str); 4] = [
    ("sessions", "--sessions-max"),
    ("queue pairs", "--qps-max"),
    ("of memory", "--memory-max"),
    ("of disk space", "--disk-max"),
];

type Amounts = [u64; NAMES.len()];

/// The limits of a server, and the resources in use.
#[derive(Clone, Debug)]
pub struct Limits {
    allow: Vec<Prefix>,
    /// Whether clients may not write files.
    pub read_only: bool,
    /// Whether the server sleeps even if clients ask it to poll continuously.
    pub no_spin: bool,
    /// Limits of all clients together; `None` if the free disk space is the limit.
    all: [Option<u64>; NAMES.len()],
    /// Limits of one client; `None` means half of the limit for all.
    client: [Option<u64>; NAMES.len()],
    disk: Option<Disk>,
    taken: Arc<Mutex<Taken>>,
}

/// The file system that stores received files.
#[derive(Clone, Debug)]
struct Disk {
    folder: PathBuf,
    /// Bytes that must stay free.
    keep: u64,
}

#[derive(Debug, Default)]
struct Taken {
    all: Amounts,
    clients: BTreeMap<IpAddr, Amounts>,
}

/// Resources in use by a session; returned when dropped.
#[derive(Debug)]
pub struct Lease {
    ip: IpAddr,
    amounts: Amounts,
    taken: Arc<Mutex<Taken>>,
}

fn locked(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limits {
    /// Limits by the options; unset ones depend on the machine's memory and the folder's file
    /// system.
    pub fn new(args: &LimitArgs, folder: Option<&Path>) -> Self {
        let memory = args.memory_max.unwrap_or_else(|| machine_memory() / 4);
        let all = [Some(args.sessions_max), Some(args.qps_max), Some(memory), args.disk_max];
        let client = [
            args.client_sessions_max,
            args.client_qps_max,
            args.client_memory_max,
            args.client_disk_max,
        ];
        let disk = folder.map(|folder| {
            let keep = args.disk_keep.unwrap_or_else(|| (disk_bytes(folder).1 / 10).min(KEEP_MAX));
            Disk { folder: folder.to_owned(), keep }
        });
        let (allow, read_only, no_spin) = (args.allow.clone(), args.read_only, args.no_spin);
        Self { allow, read_only, no_spin, all, client, disk, taken: Arc::default() }
    }

    /// Checks whether enough disk space stays free after the space for a file has been reserved.
    ///
    /// # Errors
    /// Too little stays free; the text names the option that changes the limit.
    pub fn disk_check(&self) -> Result {
        let Some(disk) = &self.disk else { return Ok(()) };
        let free = disk_bytes(&disk.folder).0;
        if free < disk.keep {
            return Err(Failure::new(format!(
                "the server must keep {} of its disk free, but only {} would be with this file: \
                 delete files there, or start it with a smaller --disk-keep",
                bytes_text(disk.keep),
                bytes_text(free)
            )));
        }
        Ok(())
    }

    /// Limits of all clients, given the amounts in use. Queries the disk only for a session with a
    /// file.
    fn all(&self, taken: &Amounts, share: &Share) -> Amounts {
        let free = || {
            let disk = self.disk.as_ref().filter(|_| share.disk > 0);
            disk.map_or(0, |d| disk_bytes(&d.folder).0.saturating_sub(d.keep))
        };
        let mut all = *taken;
        for (place, max) in all.iter_mut().zip(self.all) {
            // Space reserved for files being received is no longer free.
            *place = max.unwrap_or_else(|| place.saturating_add(free()));
        }
        all
    }

    /// Whether clients at this address are served.
    pub fn allows(&self, ip: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|p| p.holds(ip))
    }

    /// Reserves resources for a session.
    ///
    /// # Errors
    /// A limit would be exceeded; the text names it and the option that changes it.
    pub fn take(&self, ip: IpAddr, share: Share) -> Result<Lease> {
        let amounts = [1, share.qps, share.memory, share.disk];
        let mut taken = locked(&self.taken);
        let client = taken.clients.get(&ip).copied().unwrap_or_default();
        let all = self.all(&taken.all, &share);
        for (i, (name, flag)) in NAMES.iter().enumerate() {
            let (want, of_all) = (amounts[i], all[i]);
            if want == 0 {
                continue;
            }
            let of_client = self.client[i].unwrap_or(of_all.div_ceil(2));
            let told = |n: u64| if i < 2 { n.to_string() } else { bytes_text(n) };
            let fits = |taken: u64, max: u64| taken.checked_add(want).is_some_and(|n| n <= max);
            if !fits(taken.all[i], of_all) {
                let keep = if self.all[i].is_some() { "" } else { ", or a smaller --disk-keep" };
                return Err(Failure::new(format!(
                    "all clients together may have {} {name}; {} are in use, and this request \
                     needs {}: try again later, or start the server with a larger {flag}{keep}",
                    told(of_all),
                    told(taken.all[i]),
                    told(want)
                )));
            }
            if !fits(client[i], of_client) {
                return Err(Failure::new(format!(
                    "one client may have {} {name}; {} are in use, and this request needs {}: end \
                     other sessions of this host, or start the server with a larger --client{}",
                    told(of_client),
                    told(client[i]),
                    told(want),
                    &flag[1..]
                )));
            }
        }
        let client = taken.clients.entry(ip).or_default();
        add(client, &amounts);
        add(&mut taken.all, &amounts);
        Ok(Lease { ip, amounts, taken: Arc::clone(&self.taken) })
    }
}

fn add(to: &mut Amounts, amounts: &Amounts) {
    to.iter_mut().zip(amounts).for_each(|(to, n)| *to += n);
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        let give = |from: &mut Amounts| {
            from.iter_mut().zip(self.amounts).for_each(|(from, n)| *from -= n);
        };
        give(&mut taken.all);
        if let Some(client) = taken.clients.get_mut(&self.ip) {
            give(client);
            if client.iter().all(|&n| n == 0) {
                taken.clients.remove(&self.ip);
            }
        }
    }
}

/// Size of the machine's memory in bytes.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.map_or(MEMORY_UNKNOWN, |n| n << 10)
}

/// Bytes of the folder's file system: available to this user, and in total.
fn disk_bytes(folder: &Path) -> (u64, u64) {
    let bytes = |blocks: u64, s: &StatVfs| blocks.saturating_mul(s.f_frsize);
    statvfs(folder).map_or((0, 0), |s| (bytes(s.f_bavail, &s), bytes(s.f_blocks, &s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(all: Amounts, client: Amounts) -> Limits {
        Limits {
            allow: Vec::new(),
            read_only: false,
            no_spin: false,
            all: all.map(Some),
            client: client.map(Some),
            disk: None,
            taken: Arc::default(),
        }
    }

    #[test]
    fn prefixes_contain_addresses_with_the_same_bits() {
        let holds = |p: &str, ip: &str| Prefix::parse(p).unwrap().holds(ip.parse().unwrap());
        assert!(holds("10.0.0.0/8", "10.255.1.2") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("10.0.0.5", "10.0.0.5") && !holds("10.0.0.5", "10.0.0.4"));
        assert!(holds("0.0.0.0/0", "1.2.3.4") && !holds("0.0.0.0/0", "fd00::1"));
        assert!(holds("fd00::/16", "fd00:1::2") && !holds("fd00::/16", "fd01::2"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(holds("::/0", "fe80::1") && !holds("::/0", "10.0.0.1"));
        assert!(holds("::ffff:10.0.0.0/104", "10.1.2.3"), "IPv4 within IPv6");
        assert!(holds("::ffff:0:0/96", "1.2.3.4") && holds("::ffff:10.0.0.5", "10.0.0.5"));
        assert!(!holds("::ffff:10.0.0.0/104", "11.0.0.1"));
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/x", "host", "fd00::/129", "::ffff:10.0.0.0/8"] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_greedy_client_leaves_room_for_another() {
        let limits = limits([4, 100, 1000, 1000], [2, 50, 500, 500]);
        let [greedy, other] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let share = |memory| Share { qps: 1, memory, disk: 0 };
        let one = limits.take(greedy, share(400)).unwrap();
        let text = limits.take(greedy, share(200)).unwrap_err().to_string();
        assert!(text.contains("--client-memory-max"), "{text}");
        let two = limits.take(greedy, share(100)).unwrap();
        let text = limits.take(greedy, share(0)).unwrap_err().to_string();
        assert!(text.contains("--client-sessions-max"), "{text}");
        let rest = limits.take(other, share(500)).unwrap();
        let third = IpAddr::from([10, 0, 0, 3]);
        let text = limits.take(third, share(1)).unwrap_err().to_string();
        assert!(text.contains("--memory-max") && !text.contains("--client"), "{text}");
        // A refused request uses nothing.
        assert_eq!(locked(&limits.taken).all, [3, 3, 1000, 0]);
        drop((one, two, rest));
        assert!(locked(&limits.taken).clients.is_empty());
        assert_eq!(locked(&limits.taken).all, [0; 4]);
        limits.take(third, share(500)).unwrap();
    }

    #[test]
    fn the_free_disk_space_is_the_default_limit() {
        let folder = std::env::temp_dir();
        // More than is free also where nothing is stored yet, as in a new tmpfs.
        let size = disk_bytes(&folder).1 + 1;
        let mut limits = limits([9; 4], [9; 4]);
        (limits.all[3], limits.client[3]) = (None, None);
        let ip = IpAddr::from([10, 0, 0, 1]);
        let share = |disk| Share { qps: 1, memory: 1, disk };
        // Without a folder no files are stored.
        assert!(limits.take(ip, share(1)).is_err() && limits.disk_check().is_ok());
        limits.disk = Some(Disk { folder: folder.clone(), keep: 0 });
        let text = limits.take(ip, share(size)).unwrap_err().to_string();
        assert!(text.contains("--disk-max") && text.contains("--disk-keep"), "{text}");
        // One client gets half of the free space; the other half may change during the test.
        let free = disk_bytes(&folder).0;
        let text = limits.take(ip, share(free / 4 * 3)).unwrap_err().to_string();
        assert!(text.contains("--client-disk-max"), "{text}");
        let stored = limits.take(ip, share(1 << 10)).unwrap();
        // A session without a file needs no disk space.
        limits.take(ip, share(0)).unwrap();
        drop(stored);
        limits.disk_check().unwrap();
        limits.disk = Some(Disk { folder, keep: u64::MAX });
        assert!(limits.take(ip, share(1)).is_err());
        let text = limits.disk_check().unwrap_err().to_string();
        assert!(text.contains("--disk-keep"), "{text}");
    }
}
