//! Configuration of a device.

use crate::settings::setting;
use core::time::Duration;
use srd_core::{
    EngineConfig,
    config::{PORT_BASE_DEFAULT, PathPolicy, RatePolicy},
};
use srd_datapath::{Datapath, UdpConfig};
use srd_seal::Policy;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

/// Environment variable that, with the value 0, keeps this process out of the table in which
/// processes share congestion state.
const SHARE_VARIABLE: &str = "SRD_SHARE";
/// Environment variable that, with the value 0, keeps this process from showing its status.
const STATUS_VARIABLE: &str = "SRD_STATUS";
/// Environment variable with the number of shards.
const SHARDS_VARIABLE: &str = "SRD_SHARDS";
/// Environment variable that sets [`DeviceConfig::line_mbps`].
const LINE_VARIABLE: &str = "SRD_LINE_MBPS";
/// Environment variable with the rails.
const RAILS_VARIABLE: &str = "SRD_RAILS";
/// Environment variable with the path of the key file.
const KEY_FILE_VARIABLE: &str = "SRD_KEY_FILE";
/// Environment variable that says which contexts are sealed: never, prefer or require.
const SEAL_VARIABLE: &str = "SRD_SEAL";

/// Environment variable that, with the value 1, lets captures of the running process have secrets.
const CAPTURE_SECRETS_VARIABLE: &str = "SRD_CAPTURE_SECRETS";

/// Which local address a device uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// This address of this host.
    Ip(IpAddr),
    /// The first address of this network interface: IPv4 before IPv6, global before link-local.
    Interface(String),
}

/// Which thread drives the protocol.
///
/// # Which one to choose
///
/// Begin with the default, [`Progress::Thread`] without spinning. It is right unless a measurement
/// says otherwise, because peers are always answered, whatever the program does meanwhile.
///
/// - `Thread` with a `spin` of 20 to 100 µs: small messages go to and fro, and a processor may be
///   spent on it.
/// - `Shared`: the program polls in a loop and sometimes computes for milliseconds, as MPI programs
///   do; the drop-in libraries use it.
/// - `Caller`: the program has a processor to itself and polls all the time, for the lowest
///   latency; or it is a test with a datapath of its own that must run the same way each time.
///
/// With `Caller`, a program that computes answers nobody meanwhile: peers send again, and after 5 s
/// of silence their requests end with status 13. Such a device has one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The caller drives it, by [`Device::progress`](crate::Device::progress), polls of completion
    /// queues and waits. This has the lowest latency and needs no thread, but unless the caller
    /// calls, nothing is received, acknowledged or retransmitted, and RDMA requests of peers are
    /// not served. A program that stops calling right after its last message arrived leaves the
    /// sender without an acknowledgment: it should continue for a millisecond, or close the device,
    /// which sends pending acknowledgments.
    Caller,
    /// A thread of the device drives it, and sleeps when there is nothing to do.
    Thread {
        /// How long it polls before it sleeps. Zero saves CPU time; tens of microseconds save the
        /// wake-up (5 to 50 µs) in request-response traffic.
        spin: Duration,
    },
    /// Both: polls of completion queues drive the engine and posts leave at once, as with
    /// [`Progress::Caller`]; after a period without polls, a thread of the device drives, and
    /// sleeps when there is nothing to do. For programs that poll in a loop, compute, then poll
    /// again.
    ///
    /// Where polls were seen to come soon after posts, posts to a peer to which packets are in
    /// flight wait for the next poll, or for enough others to fill a burst, so that they leave with
    /// one system call. After a poll that came late none waits for a multiple of that time.
    ///
    /// Where more threads are ready to run than there are processors, a poll that finds nothing
    /// sleeps until a packet arrives, up to 250 us, so that those who work have the processor.
    ///
    /// A [`wait`](crate::CompletionQueue::wait) that ends soon counts as polls that sleep so.
    Shared {
        /// Period without polls after which the thread takes over. The thread checks at ticks of
        /// the kernel's clock (every 1 to 4 ms), so it may take over up to one tick later.
        idle: Duration,
    },
}

impl Default for Progress {
    fn default() -> Self {
        Self::Thread { spin: Duration::ZERO }
    }
}

/// Takes lines with the secrets of sealed contexts.
pub type SecretsSink = Box<dyn FnMut(&str) + Send>;

/// Wraps a datapath in another one, for fault injection or captures.
pub type DatapathWrap = Box<dyn FnOnce(Box<dyn Datapath>) -> Box<dyn Datapath> + Send>;

/// Changes any field of the sockets' configuration before the sockets are opened.
pub type UdpTune = Box<dyn FnOnce(&mut UdpConfig) + Send>;

/// Changes any field of the engine's configuration before it is checked.
pub type EngineTune = Box<dyn FnOnce(&mut EngineConfig) + Send>;

/// Receives every asynchronous event within the engine's turn: it must not call the device, and
/// must return quickly. A panic in it is caught and logged.
pub type EventWatch = Box<dyn Fn(&crate::AsyncEvent) + Send + Sync>;

/// Configuration of a [`Device`](crate::Device). Start from [`DeviceConfig::loopback`],
/// [`DeviceConfig::ip`], [`DeviceConfig::interface`] or [`DeviceConfig::custom`], then change
/// fields.
///
/// ```
/// use srd::{DeviceConfig, PathPolicy, Progress};
/// let mut config = DeviceConfig::loopback();
/// config.paths = 16;
/// config.path_policy = PathPolicy::RttP2c;
/// config.progress = Progress::Caller;
/// ```
#[non_exhaustive]
pub struct DeviceConfig {
    /// Local address. Not used with `datapath`, which has its own.
    pub bind: Bind,
    /// Engine slot, which selects the UDP port: `port_base` + slot. `None` = the first free slot.
    /// Peers learn the slot from the QPN.
    pub slot: Option<u8>,
    /// How many processors the device may use at once, 1 to [`SHARDS_MAX`](crate::SHARDS_MAX):
    /// it has as many *shards*, each an engine with a thread, a slot and sockets of its own, and
    /// spreads its queue pairs over them. Peers see one device at one address. 1 unless the
    /// environment variable `SRD_SHARDS` says otherwise. With [`Progress::Caller`], with `datapath`
    /// or with `wrap`, a device has one; [`Device::shard_count`](crate::Device::shard_count) tells.
    /// The first shard has the configured `slot`, the others the next free ones.
    pub shards: u16,
    /// Further networks that the device sends and receives on (*rails*): interfaces or addresses,
    /// each with the bits of its network, as `e1/16, 10.2.0.7/16`, up to three beside its own,
    /// which may be in the list. Path *k* leaves by rail *k* modulo their number. All hosts need
    /// the same rails, and the same number in the network of each. Peers name the device's own
    /// address only. The environment variable `SRD_RAILS` unless set otherwise; `docs/deploy.md`
    /// says what is gained. No effect with `datapath`.
    pub rails: Option<String>,
    /// Rate of the local port in Mb/s, 1 to 400,000: nothing is sent faster to any address. `None`:
    /// what the interface tells, and if it tells nothing (most virtual machines and containers),
    /// what is learnt from delivery. The environment variable `SRD_LINE_MBPS` unless set otherwise.
    pub line_mbps: Option<u32>,
    /// Index of the first queue pair, the low byte of its QPN; later queue pairs follow. `None` =
    /// random, so that requests to a former process in the same slot rarely find a queue pair. For
    /// servers whose clients must know the QPN.
    pub qpn_start: Option<u8>,
    /// First of the 256 UDP ports of engines; it must be the same on all hosts that communicate.
    pub port_base: u16,
    /// Largest message in bytes; `None` = as large as the link permits. The link must carry
    /// [`srd_wire::OVERHEAD_BYTES`] more.
    pub mtu: Option<u16>,
    /// Upper limit of the MTU when `mtu` is `None` and the link decides.
    pub mtu_max: Option<u16>,
    /// Paths per peer: a power of two up to 256; 64 by default.
    pub paths: u16,
    /// Path selection policy.
    pub path_policy: PathPolicy,
    /// Rate control policy.
    pub rate_policy: RatePolicy,
    /// Whether data carries a checksum (CRC-32C) to peers that also enable it; packets that begin
    /// or end a context always carry one. On by default. Without it, CPU time is saved, and only
    /// UDP's 16-bit checksum detects damage, which virtual links do not even calculate.
    pub integrity: bool,
    /// File with the secret keys of the cluster, which `srd key new` makes. With it packets are
    /// encrypted and authenticated, and peers need the same file. The environment variable
    /// `SRD_KEY_FILE` unless set otherwise; an empty one is none. For this and the other variables,
    /// see [`setting`]. `docs/sealing.md` says what is
    /// protected.
    pub key_file: Option<PathBuf>,
    /// Which contexts are sealed: `never`, `prefer` or `require`. `None`: `require` with a key
    /// file, `never` without. The environment variable `SRD_SEAL` unless set otherwise. Any other
    /// text is an error when the device is opened.
    pub seal: Option<String>,
    /// Takes the secrets of new sealed contexts, a line of text each, before the first packet that
    /// they open: for captures (`docs/sealing.md`). Who gets a line reads the packets of its
    /// context.
    pub capture_secrets: Option<SecretsSink>,
    /// Whether `srd capture --secrets` of this user, while the device runs, gets the secrets of its
    /// sealed contexts. Off unless the environment variable `SRD_CAPTURE_SECRETS` is 1.
    pub capture_secrets_on_request: bool,
    /// Which thread drives the protocol.
    pub progress: Progress,
    /// A datapath to use instead of UDP sockets. Its port must be `port_base` + slot.
    pub datapath: Option<Box<dyn Datapath>>,
    /// Wrapper of the datapath.
    pub wrap: Option<DatapathWrap>,
    /// Changes to the UDP sockets: buffers, segmentation, busy polling.
    pub tune_udp: Option<UdpTune>,
    /// Whether this process shares its congestion state per remote address with all other processes
    /// of this user on this host, so that together they send as one sender would (through a file in
    /// `/dev/shm`). On unless the environment variable `SRD_SHARE` is 0; without effect with a
    /// caller's own `datapath`, with `wrap`, or with a fixed rate.
    pub share: bool,
    /// Whether the device shows its counters, peers and paths to tools of this user (`srd stat`,
    /// `srd top`, `srd export`), through a file in `/dev/shm`. On unless the environment variable
    /// `SRD_STATUS` is 0; without effect with a caller's own `datapath`.
    pub status: bool,
    /// Whether the device obeys what `srd paths deny` orders for this user and network namespace,
    /// and shows its packets to `srd capture` (default: yes). Tools that test denied paths do not.
    /// No effect with a datapath of one's own.
    pub path_control: bool,
    /// Name of the device that tools show; `None` = that of its network interface. At most 63
    /// bytes count.
    pub name: Option<String>,
    /// Changes to the engine's configuration.
    pub tune: Option<EngineTune>,
    /// A function that receives events in addition to the queue of
    /// [`Device::event_get`](crate::Device::event_get).
    pub watch: Option<EventWatch>,
}

impl DeviceConfig {
    /// UDP sockets on an address of this host.
    pub fn ip(ip: IpAddr) -> Self {
        Self {
            bind: Bind::Ip(ip),
            slot: None,
            // What is no number is refused when the device is opened.
            shards: setting(SHARDS_VARIABLE)
                .filter(|v| !v.is_empty())
                .map_or(1, |v| v.to_str().and_then(|v| v.trim().parse().ok()).unwrap_or(0)),
            rails: setting(RAILS_VARIABLE)
                .filter(|list| !list.is_empty())
                .map(|list| list.to_string_lossy().into_owned()),
            line_mbps: setting(LINE_VARIABLE)
                .filter(|v| !v.is_empty())
                .map(|v| v.to_str().and_then(|v| v.trim().parse().ok()).unwrap_or(0)),
            qpn_start: None,
            port_base: PORT_BASE_DEFAULT,
            mtu: None,
            mtu_max: None,
            paths: 64,
            path_policy: PathPolicy::default(),
            rate_policy: RatePolicy::default(),
            integrity: true,
            key_file: setting(KEY_FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from),
            seal: setting(SEAL_VARIABLE)
                .filter(|name| !name.is_empty())
                .map(|name| name.to_string_lossy().into_owned()),
            capture_secrets: None,
            capture_secrets_on_request: setting(CAPTURE_SECRETS_VARIABLE).is_some_and(|v| v == "1"),
            progress: Progress::default(),
            datapath: None,
            wrap: None,
            tune_udp: None,
            share: setting(SHARE_VARIABLE).is_none_or(|v| v != "0"),
            status: setting(STATUS_VARIABLE).is_none_or(|v| v != "0"),
            path_control: true,
            name: None,
            tune: None,
            watch: None,
        }
    }

    /// UDP sockets on 127.0.0.1.
    pub fn loopback() -> Self {
        Self::ip(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// UDP sockets on the first address of a network interface.
    pub fn interface(name: &str) -> Self {
        Self { bind: Bind::Interface(name.to_owned()), ..Self::loopback() }
    }

    /// A datapath of the caller's, for example in memory.
    pub fn custom(datapath: Box<dyn Datapath>) -> Self {
        let mut config = Self::ip(datapath.local_ip());
        config.datapath = Some(datapath);
        config
    }

    /// What a user should be told who names a key file and turns sealing off at the same time, as
    /// by `SRD_KEY_FILE` together with `SRD_SEAL=never`; `None` if that is not so.
    /// [`Device::warnings`](crate::Device::warnings) has it, too.
    pub fn key_file_unused(&self) -> Option<String> {
        let never = self.seal.as_deref() == Some(Policy::Never.name());
        let file = self.key_file.as_ref().filter(|_| never)?;
        Some(format!(
            "packets are not sealed: the key file {} is not used, because the policy is never \
             ({SEAL_VARIABLE}, --seal); to seal, leave the policy out, otherwise the key file",
            file.display()
        ))
    }
}

impl fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfig")
            .field("bind", &self.bind)
            .field("slot", &self.slot)
            .field("shards", &self.shards)
            .field("rails", &self.rails)
            .field("line_mbps", &self.line_mbps)
            .field("qpn_start", &self.qpn_start)
            .field("port_base", &self.port_base)
            .field("mtu", &self.mtu)
            .field("mtu_max", &self.mtu_max)
            .field("paths", &self.paths)
            .field("path_policy", &self.path_policy)
            .field("rate_policy", &self.rate_policy)
            .field("integrity", &self.integrity)
            .field("key_file", &self.key_file)
            .field("seal", &self.seal)
            .field("capture_secrets", &self.capture_secrets.is_some())
            .field("capture_secrets_on_request", &self.capture_secrets_on_request)
            .field("progress", &self.progress)
            .field("datapath", &self.datapath.as_ref().map(|_| "custom"))
            .field("wrap", &self.wrap.is_some())
            .field("share", &self.share)
            .field("status", &self.status)
            .field("path_control", &self.path_control)
            .field("name", &self.name)
            .field("tune_udp", &self.tune_udp.is_some())
            .field("tune", &self.tune.is_some())
            .field("watch", &self.watch.is_some())
            .finish()
    }
}

/// Limits of a device, with EFA's names (`efadv_device_attr`, `ibv_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Largest depth of a send queue, in requests.
    pub max_sq_wr: u32,
    /// Largest depth of a receive queue, in requests.
    pub max_rq_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_sq_sge: u32,
    /// Scatter/gather entries of a receive request.
    pub max_rq_sge: u32,
    /// Scatter/gather entries of an RDMA request.
    pub max_sge_rd: u32,
    /// Inline bytes of a queue pair as created by default (EFA: 64-byte requests).
    pub inline_buf_size: u32,
    /// Inline bytes that a queue pair can ask for (EFA: 128-byte requests).
    pub inline_buf_size_ex: u32,
    /// Largest RDMA operation in bytes.
    pub max_rdma_size: u32,
    /// Capabilities: bits of [`caps`].
    pub device_caps: u32,
    /// Most queue pairs of the device.
    pub max_qp: u32,
    /// Most completion queues of the device.
    pub max_cq: u32,
    /// Slots of one completion queue.
    pub max_cqe: u32,
    /// Bytes of the largest memory region.
    pub max_mr_size: u64,
    /// Most send requests outstanding on the whole device.
    pub max_wr: u32,
}

/// Bits of [`DeviceAttr::device_caps`]; numbers as in `efadv`.
pub mod caps {
    /// The device serves and issues RDMA reads.
    pub const RDMA_READ: u32 = 1 << 0;
    /// `rnr_retry` can be set.
    pub const RNR_RETRY: u32 = 1 << 1;
    /// Completion queues can send events to a channel.
    pub const CQ_NOTIFICATIONS: u32 = 1 << 2;
    /// Completions contain the sender's address if no address handle for the sender exists.
    pub const CQ_WITH_SGID: u32 = 1 << 3;
    /// A program may poll memory that a peer writes: each aligned block of 128 bytes arrives whole
    /// and once. The order of different blocks is not defined.
    pub const DATA_POLLING_128: u32 = 1 << 4;
    /// The device serves and issues RDMA writes.
    pub const RDMA_WRITE: u32 = 1 << 5;
    /// A write with immediate can complete without a posted receive.
    pub const UNSOLICITED_WRITE_RECV: u32 = 1 << 6;
}

/// The device's one port, with the names of `ibv_port_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Largest message in bytes: the device MTU.
    pub max_msg_sz: u32,
    /// Largest `ibv_mtu` value that does not exceed `max_msg_sz`, in bytes (256 to 4096).
    pub active_mtu: u32,
    /// UDP port that the device receives on.
    pub udp_port: u16,
    /// Address of the device, which peers use.
    pub ip: IpAddr,
    /// The address as a GID.
    pub gid: [u8; 16],
    /// Paths per peer.
    pub paths: u16,
    /// Entries of the GID table.
    pub gid_tbl_len: u32,
    /// Entries of the partition key table (one, always 0xffff).
    pub pkey_tbl_len: u16,
}

/// An address as a GID: an IPv6 address unchanged, an IPv4 address mapped (`::ffff:a.b.c.d`).
pub fn gid_from_ip(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that a GID stands for.
pub fn ip_from_gid(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_go_both_ways() {
        for text in ["10.1.2.3", "fe80::1", "2001:db8::7"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(ip_from_gid(gid_from_ip(ip)), ip);
        }
        assert_eq!(gid_from_ip("1.2.3.4".parse().unwrap())[10..], [255, 255, 1, 2, 3, 4]);
    }
}
