//! Contenders: the transports that are measured.

use super::{
    FlowSpec, Outcome,
    block::{HEADER_BYTES, now_ns},
    mpi::Over,
    protocol::{Counted, Run, Watched},
    srd_side::{SrdSetup, SrdSide},
    tcp_side::{TcpKind, TcpSide},
};
use crate::{
    error::{NetError, Result},
    fabric::Fabric,
    spec::Node,
};
use srd::HostPolicy;
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Time between the order to begin a run and its start.
const AHEAD_NS: u64 = 60_000_000;

/// The names of the policies for a receiving host that is slower than its link.
const HOST_POLICIES: [(&str, HostPolicy); 3] =
    [("off", HostPolicy::Off), ("stop-go", HostPolicy::StopGo), ("budget", HostPolicy::Budget)];

/// Finds a host policy by its name.
///
/// # Errors
/// The name is unknown; the text lists the names.
pub fn host_policy(name: &str) -> std::result::Result<HostPolicy, String> {
    let found = HOST_POLICIES.iter().find(|(n, _)| *n == name);
    found.map(|(_, p)| *p).ok_or_else(|| format!("`{name}` is none of off, stop-go, budget"))
}

/// Name of a host policy.
pub fn host_policy_name(policy: HostPolicy) -> &'static str {
    HOST_POLICIES.iter().find(|(_, p)| *p == policy).map_or("", |(n, _)| n)
}

/// A receiving host that is slower than its link.
#[derive(Clone, Copy, Debug)]
pub struct SlowHost {
    /// Rate at which the host takes data, in bits per second.
    pub bits_per_sec: u64,
    /// Flow of round-trip messages of 8 bytes to the slow host, from a host that sends nothing
    /// else.
    pub ping: FlowSpec,
}

/// Most blocks in flight from one sender to a slow host: as many as a socket holds.
const SLOW_BLOCKS: u32 = 1000;

/// SRD, or a variant of TCP.
#[derive(Clone, Debug)]
pub struct Contender {
    name: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Srd(SrdSetup),
    Tcp(TcpKind),
}

impl Contender {
    /// Finds a contender by its name.
    ///
    /// # Errors
    /// The name is unknown; the text lists the names.
    pub fn parse(name: &str) -> Result<Self> {
        let unknown = || {
            NetError::usage(format!(
                "`{name}` is not a contender; the contenders are srd, srd-processes, srd-one-path \
                 (each also with -off, -stop-go or -budget, what becomes of the word that a host \
                 falls behind, and then -no-credits, or -unknown: the device is not told the rate \
                 of its port), cubic, bbr, reno (each also with -cached: begins with what its \
                 earlier connections measured), mptcp, cubic-v6 (all of TCP also with -50ms: its \
                 least timeout)"
            ))
        };
        let (base, rto_ms) = match name.strip_suffix("-50ms") {
            Some(base) => (base, 50),
            None => (name, 200),
        };
        let (base, cached) = match base.strip_suffix("-cached") {
            Some(base) => (base, true),
            None => (base, false),
        };
        let tcp = |congestion, v6, multipath| {
            What::Tcp(TcpKind { congestion, v6, multipath, rto_ms, cached })
        };
        let (base, credits) = match base.strip_suffix("-no-credits") {
            Some(base) => (base, false),
            None => (base, true),
        };
        let (base, unknown_rate) = match base.strip_suffix("-unknown") {
            Some(base) => (base, true),
            None => (base, false),
        };
        let told = |(name, policy): &(&str, HostPolicy)| {
            Some((base.strip_suffix(name)?.strip_suffix('-')?, Some(*policy)))
        };
        let (base, host_policy) = HOST_POLICIES.iter().find_map(told).unwrap_or((base, None));
        let srd = |processes, one_path| {
            let setup = SrdSetup { processes, one_path, credits, ..SrdSetup::default() };
            let setup = SrdSetup { unknown_rate, ..setup };
            What::Srd(SrdSetup { host_policy, ..setup })
        };
        let what = match base {
            _ if name.starts_with("srd") && rto_ms != 200 => return Err(unknown()),
            _ if cached && !["cubic", "bbr", "reno"].contains(&base) => return Err(unknown()),
            _ if host_policy.is_some() && !name.starts_with("srd") => return Err(unknown()),
            _ if (!credits || unknown_rate) && !name.starts_with("srd") => return Err(unknown()),
            _ if !credits && unknown_rate => return Err(unknown()),
            "srd" => srd(1, false),
            "srd-processes" => srd(12, false),
            "srd-one-path" => srd(1, true),
            "cubic" => tcp("cubic", false, false),
            "bbr" => tcp("bbr", false, false),
            "reno" => tcp("reno", false, false),
            "mptcp" => tcp("cubic", false, true),
            "cubic-v6" => tcp("cubic", true, false),
            _ => return Err(unknown()),
        };
        Ok(Self { name: name.to_owned(), what })
    }

    /// Writes a trace of each SRD process to `folder`.
    pub fn traced(mut self, folder: Option<&Path>) -> Self {
        if let What::Srd(setup) = &mut self.what {
            setup.trace = folder.map(|f| f.join(&self.name));
        }
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is SRD.
    pub fn is_srd(&self) -> bool {
        matches!(self.what, What::Srd(_))
    }

    /// Checks whether the kernel has the required features.
    ///
    /// # Errors
    /// A feature is missing; the text names it.
    pub fn probe(&self, fabric: &Fabric) -> Result {
        let What::Tcp(kind) = &self.what else { return Ok(()) };
        // Includes algorithms restricted to root, because this process is root in its namespaces.
        let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
        if !known.split_whitespace().any(|w| w == kind.congestion) {
            return Err(NetError::new(format!(
                "the kernel has only `{}` (try modprobe tcp_{})",
                known.trim(),
                kind.congestion
            )));
        }
        if kind.cached && fabric.spec().extra == 0 {
            return Err(NetError::new("the hosts have no additional address"));
        }
        if kind.v6 && !fabric.v6() {
            return Err(NetError::new("the kernel has no IPv6"));
        }
        if kind.rto_ms != 200 && !Path::new("/proc/sys/net/ipv4/tcp_rto_min_us").exists() {
            return Err(NetError::new(
                "the kernel has no net.ipv4.tcp_rto_min_us (6.11 and later)",
            ));
        }
        if kind.multipath {
            mptcp_prepare(fabric)?;
        }
        Ok(())
    }

    /// Its transport below MPI.
    ///
    /// # Errors
    /// MPI cannot run over it; the text names the contenders over which it can.
    pub fn mpi(&self) -> Result<Over> {
        match &self.what {
            What::Srd(s)
                if s.processes == 1
                    && !s.one_path
                    && s.credits
                    && !s.unknown_rate
                    && s.host_policy.is_none() =>
            {
                Ok(Over::Srd)
            }
            What::Tcp(TcpKind {
                congestion,
                v6: false,
                multipath: false,
                rto_ms,
                cached: false,
            }) => Ok(Over::Tcp(TcpSystem { congestion, rto_ms: *rto_ms })),
            _ => Err(NetError::usage(format!(
                "`{}` is no contender of mpi-incast; those are srd (a process per rank, as \
                 configured by the drop-in libraries), cubic, bbr and reno, also with -50ms",
                self.name
            ))),
        }
    }

    /// Opens devices or connections for `flows`.
    ///
    /// # Errors
    /// A process cannot be started, or a connection cannot be opened.
    pub fn start(&self, fabric: &Fabric, flows: &[FlowSpec]) -> Result<Side> {
        match &self.what {
            What::Srd(setup) => {
                let side = SrdSide::start(fabric, setup.clone(), flows)?;
                Ok(Side { mtu: side.mtu, kind: Kind::Srd(side), runs: 0 })
            }
            What::Tcp(kind) => {
                let side = TcpSide::start(fabric, *kind, flows)?;
                Ok(Side { mtu: 0, kind: Kind::Tcp(side), runs: 0 })
            }
        }
    }

    /// Like [`Self::start`], to a receiver that is slower than its link.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_slow(&self, fabric: &Fabric, flows: &[FlowSpec], slow: SlowHost) -> Result<Side> {
        let mut slowed = self.clone();
        match &mut slowed.what {
            What::Srd(setup) => {
                (setup.slow, setup.window, setup.blocks) = (Some(slow), SLOW_BLOCKS, SLOW_BLOCKS);
                slowed.start(fabric, flows)
            }
            What::Tcp(kind) => {
                let mut side = TcpSide::start(fabric, *kind, flows)?;
                side.slow_down(fabric, *kind, slow)?;
                Ok(Side { mtu: 0, kind: Kind::Tcp(side), runs: 0 })
            }
        }
    }
}

/// Configures each host's additional addresses as MPTCP endpoints, for subflows.
fn mptcp_prepare(fabric: &Fabric) -> Result {
    let spec = fabric.spec();
    for host in spec.host_nodes() {
        let Node::Host(l, h) = host else { continue };
        let ns = fabric.ns(host)?;
        if !ns.sysctl_set("mptcp/enabled", "1")? {
            return Err(NetError::new("the kernel has no MPTCP (CONFIG_MPTCP)"));
        }
        let mut batch =
            "mptcp endpoint flush\nmptcp limits set subflows 8 add_addr_accepted 8\n".to_owned();
        for k in 0..spec.extra {
            let ip = crate::plan::extra_ip(k, l, h);
            batch.push_str(&format!("mptcp endpoint add {ip} dev e0 subflow\n"));
        }
        ns.run("ip", &["-batch", "-"], &batch)?;
    }
    Ok(())
}

/// A variant of TCP as settings of the hosts, for programs that open their own sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSystem {
    /// Congestion control of new sockets.
    pub congestion: &'static str,
    /// Minimum retransmission timeout in ms.
    pub rto_ms: u32,
}

impl TcpSystem {
    /// Sets the hosts.
    ///
    /// # Errors
    /// The kernel refuses the congestion control.
    pub fn apply(&self, fabric: &Fabric) -> Result {
        let rto_us = (u64::from(self.rto_ms) * 1000).to_string();
        for host in fabric.spec().host_nodes() {
            let Node::Host(l, h) = host else { continue };
            let ns = fabric.ns(host)?;
            // Set on the route, because a namespace's sysctl accepts only a congestion control that
            // the machine's administrator allows to all users.
            let route = crate::plan::default_route(fabric.spec(), l, h);
            let line = format!("route replace {route} congctl {}\n", self.congestion);
            ns.run("ip", &["-batch", "-"], &line)?;
            // Kernels before 6.11 lack this sysctl and use 200 ms; `probe` refuses other values.
            ns.sysctl_set("ipv4/tcp_rto_min_us", &rto_us)?;
        }
        Ok(())
    }
}

/// The open devices or connections of a contender.
pub struct Side {
    kind: Kind,
    mtu: u32,
    runs: u32,
}

enum Kind {
    Srd(SrdSide),
    Tcp(TcpSide),
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes per flow; 0 = unlimited during `time`.
    pub bytes: u64,
    /// Time during which new data is sent if `bytes` is 0.
    pub time: Duration,
    /// Bits per second per flow; 0 = as fast as possible.
    pub bits_per_sec: u64,
    /// Bytes per block for TCP; upper limit for SRD.
    pub block_bytes: u32,
    /// Time limit of the run.
    pub limit: Duration,
}

impl Load {
    /// Run number `run`, with blocks of `block_bytes`, starting at `start_ns`.
    pub fn run(&self, run: u32, block_bytes: u32, start_ns: u64) -> Run {
        let blocks = self.bytes.div_ceil(u64::from(block_bytes));
        // The last block contains the remaining bytes, but has at least a header.
        let full_bytes = blocks.saturating_sub(1) * u64::from(block_bytes);
        let last_bytes = (self.bytes - full_bytes.min(self.bytes)) as u32;
        Run {
            run,
            start_ns,
            block_bytes,
            blocks,
            last_bytes: last_bytes.max(HEADER_BYTES as u32),
            stop_ns: start_ns + self.time.as_nanos() as u64,
            pace_ns: match self.bits_per_sec {
                0 => 0,
                rate => u64::from(block_bytes) * 8_000_000_000 / rate,
            },
        }
    }
}

impl Side {
    /// Bytes per block: one SRD message, or as much as fills one TCP packet.
    pub fn block_bytes(&self, load: &Load) -> u32 {
        if self.mtu == 0 { load.block_bytes } else { load.block_bytes.min(self.mtu) }
    }

    /// Start time of a run that is ordered now.
    pub fn start_ns() -> u64 {
        now_ns() + AHEAD_NS
    }

    /// Executes one run that begins at `start_ns`.
    ///
    /// # Errors
    /// A process or connection fails, or the time limit is exceeded.
    pub fn run(&mut self, load: &Load, start_ns: u64) -> Result<Outcome> {
        self.runs += 1;
        let run = load.run(self.runs, self.block_bytes(load), start_ns);
        let deadline = Instant::now() + Duration::from_nanos(AHEAD_NS) + load.time + load.limit;
        match &mut self.kind {
            Kind::Srd(side) => side.run(run, deadline),
            Kind::Tcp(side) => side.run(run, deadline),
        }
    }

    /// Starts counting waiting and round-trip times at a slow host again, for times measured within
    /// `[from_ns, until_ns)` of the monotonic clock.
    ///
    /// # Errors
    /// A process has ended.
    pub fn watch(&mut self, from_ns: u64, until_ns: u64) -> Result {
        match &mut self.kind {
            Kind::Srd(side) => side.watch(from_ns, until_ns),
            Kind::Tcp(side) => {
                side.watch(from_ns, until_ns);
                Ok(())
            }
        }
    }

    /// The times counted since the last [`Self::watch`].
    ///
    /// # Errors
    /// A process does not answer.
    pub fn times(&mut self) -> Result<Watched> {
        match &mut self.kind {
            Kind::Srd(side) => side.times(),
            Kind::Tcp(side) => Ok(side.times()),
        }
    }

    /// Counters of the SRD devices; `None` for TCP.
    ///
    /// # Errors
    /// A process does not answer.
    pub fn counters(&mut self) -> Result<Option<Counted>> {
        match &mut self.kind {
            Kind::Srd(side) => side.counters().map(Some),
            Kind::Tcp(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_has_a_cache_and_a_least_timeout() {
        let kind = |name: &str| match Contender::parse(name).map(|c| c.what) {
            Ok(What::Tcp(kind)) => (kind.congestion, kind.cached, kind.rto_ms),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(kind("cubic"), ("cubic", false, 200));
        assert_eq!(kind("bbr-cached"), ("bbr", true, 200));
        assert_eq!(kind("cubic-cached-50ms"), ("cubic", true, 50));
        for bad in [
            "srd-cached",
            "mptcp-cached",
            "cubic-v6-cached",
            "srd-50ms",
            "cubic-50ms-cached",
            "cubic-no-credits",
            "cubic-budget",
            "srd-budget-off",
            "srd-no-credits-off",
            "srd-unknown-no-credits",
            "cubic-unknown",
            "-cached",
        ] {
            assert!(Contender::parse(bad).unwrap_err().is_usage(), "{bad}");
        }
    }

    #[test]
    fn mpi_runs_over_srd_and_plain_tcp() {
        let over = |name: &str| Contender::parse(name).and_then(|c| c.mpi());
        assert_eq!(over("srd"), Ok(Over::Srd));
        let tcp = TcpSystem { congestion: "bbr", rto_ms: 50 };
        assert_eq!(over("bbr-50ms"), Ok(Over::Tcp(tcp)));
        for name in
            ["srd-processes", "srd-one-path", "srd-no-credits", "srd-unknown", "mptcp", "cubic-v6"]
        {
            assert!(over(name).unwrap_err().is_usage(), "{name}");
        }
        assert!(over("cubic-cached").unwrap_err().is_usage());
    }

    #[test]
    fn runs_send_the_requested_bytes() {
        let load = |bytes| Load {
            bytes,
            time: Duration::ZERO,
            bits_per_sec: 0,
            block_bytes: 8900,
            limit: Duration::ZERO,
        };
        let sent = |bytes| {
            let run = load(bytes).run(1, 8900, 0);
            (0..run.blocks).map(|n| u64::from(run.bytes_of(n))).sum::<u64>()
        };
        for bytes in [100, 8_899, 8_900, 64_000, 89_000, 250_000] {
            assert_eq!(sent(bytes), bytes);
        }
        // A block is at least as long as its header.
        assert_eq!(sent(8_901), 8_900 + HEADER_BYTES as u64);
        let timed = load(0).run(1, 8900, 0);
        assert_eq!((timed.blocks, timed.bytes_of(0), timed.bytes_of(9)), (0, 8900, 8900));
    }
}
