//! What the device shows to tools while it runs ([`srd_share::status`]).
//!
//! The status is written at the end of a turn, at most every [`EVERY`], and only if something was
//! done since: no packet costs anything, and a device at rest stays at rest.

use crate::{
    DeviceConfig, config::Bind, counters::DeviceCounters, interface, logging::Growth, nic::Nic,
};
use rustc_hash::FxHashMap;
use srd_core::{ContextStats, HostNote, Span, Time};
use srd_datapath::clock;
use srd_seal::Policy;
use srd_share::status::{
    Counter, Limit, Peer, STATUS_PATHED_MAX, STATUS_PEERS_MAX, SealMode, Status, StatusFile, ns_of,
};
use std::{cmp::Reverse, env, fmt, fs, io, net::IpAddr};

/// Least time between two statuses.
const EVERY: Span = Span::from_ms(100);
/// The time between two statuses is at least this many times what one takes to write: devices with
/// many peers spend at most a hundredth of a processor on it.
const COST: u64 = 100;
/// Variables with the rank of the process, which launchers set: Open MPI, PMIx, PMI (MPICH, Intel
/// MPI), Slurm.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// What the engine said last about an address, and what limited it so far.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Delivery rate, and whether there is a backlog.
    note: Option<(u64, bool)>,
    limits: [u32; Limit::ALL.len()],
}

/// See the module. The file is removed when this value is dropped.
pub(crate) struct Shown {
    file: StatusFile,
    status: Status,
    /// What the host's monotonic clock shows when the engine's clock shows 0, ns.
    origin_ns: u64,
    /// When the next status may be written.
    due: Time,
    /// Whether something was done since the last one.
    changed: bool,
    known: FxHashMap<IpAddr, Known>,
    growth: Growth,
}

impl Shown {
    /// Makes the file, unless the configuration says that nothing is to be shown.
    pub(crate) fn open(config: &Wanted, nic: &Nic, seal: Option<Policy>) -> io::Result<Self> {
        let engine = nic.engine.config();
        let file = StatusFile::create(engine.path.paths)?;
        let origin_ns = clock::origin_ns();
        let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let rank = RANK_VARIABLES.iter().find_map(|name| env::var(name).ok()?.parse().ok());
        let status = Status {
            program: program.trim_end().to_owned(),
            rank,
            name: config.name(engine.ip),
            local: engine.ip,
            port: nic.net.port(),
            slot: engine.slot,
            mtu: engine.mtu,
            paths: engine.path.paths,
            seal: match seal {
                None | Some(Policy::Never) => SealMode::Never,
                Some(Policy::Prefer) => SealMode::Prefer,
                Some(Policy::Require) => SealMode::Require,
            },
            opened_ns: origin_ns + Nic::now().0,
            ..Status::default()
        };
        let (known, growth) = (FxHashMap::default(), Growth::default());
        Ok(Self { file, status, origin_ns, due: Time(0), changed: true, known, growth })
    }

    /// Until when the device may sleep; [`Time::NEVER`] if there is nothing new to show.
    pub(crate) fn due(&self) -> Time {
        if self.changed { self.due } else { Time::NEVER }
    }

    /// Takes over what the engine tells other processes about an address.
    pub(crate) fn note(&mut self, note: &HostNote) {
        let sends = note.until > Time(0);
        self.known.entry(note.ip).or_default().note =
            sends.then_some((note.delivered, note.backlogged));
    }

    fn write(&mut self, nic: &Nic, now: Time, events_dropped: u64, last: bool) {
        let s = &mut self.status;
        s.written_ns = self.origin_ns + now.0;
        s.qps = nic.tables.qps.iter().flatten().count() as u32;
        let counters = DeviceCounters::collect(nic, events_dropped);
        for &counter in Counter::ALL {
            s.counters[counter as usize] = value(counter, &counters);
        }
        let contexts = nic.engine.context_stats();
        s.contexts = contexts.len() as u32;
        s.contexts_sealed = contexts.iter().filter(|c| c.sealed).count() as u32;
        let mut peers = peers_of(&contexts, nic.engine.config().mtu);
        s.addresses = peers.len() as u32;
        self.known.retain(|ip, _| peers.binary_search_by_key(ip, |(peer, _)| peer.ip).is_ok());
        peers.sort_by_key(|(p, _)| Reverse((p.outstanding > 0, p.inflight_bytes, Reverse(p.ip))));
        peers.truncate(STATUS_PEERS_MAX);
        let host_is_busy = !nic.net.tx_ready() || nic.behind;
        s.peers.clear();
        for (i, (mut peer, credits_used)) in peers.into_iter().enumerate() {
            let known = self.known.entry(peer.ip).or_default();
            let backlogged = known.note.map(|(_, backlogged)| backlogged);
            peer.delivered_bytes_per_sec = known.note.map_or(0, |(delivered, _)| delivered);
            if let Some(limit) = limit_of(&peer, backlogged, credits_used, host_is_busy, s.mtu) {
                let count = &mut known.limits[limit as usize];
                *count = count.wrapping_add(1);
            }
            peer.limits = known.limits;
            peer.paths_set(&nic.engine.path_stats(peer.ip), i < STATUS_PATHED_MAX);
            peer.paths.iter_mut().for_each(|path| path.port = nic.net.path_port(path.path));
            s.peers.push(peer);
        }
        self.file.write(s);
        self.growth.note(now, s, last);
        self.changed = false;
        let took = Nic::now().since(now).0;
        self.due = now + EVERY.max(Span(took.saturating_mul(COST)));
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("file", &self.file).finish_non_exhaustive()
    }
}

/// What the configuration says about the status.
#[derive(Debug)]
pub(crate) struct Wanted {
    name: Option<String>,
    interface: Option<String>,
}

impl Wanted {
    /// `None`: nothing is to be shown.
    pub(crate) fn of(config: &DeviceConfig) -> Option<Self> {
        let interface = match &config.bind {
            Bind::Interface(name) => Some(name.clone()),
            Bind::Ip(_) => None,
        };
        let shown = config.status && config.datapath.is_none();
        shown.then(|| Self { name: config.name.clone(), interface })
    }

    /// The name of the device: as configured, or its interface's.
    fn name(&self, ip: IpAddr) -> String {
        let by_address = || {
            let all = interface::interface_addresses().unwrap_or_default();
            all.into_iter().find(|a| a.ip == ip).map(|a| a.name)
        };
        let name = self.name.clone().or_else(|| self.interface.clone()).or_else(by_address);
        name.unwrap_or_else(|| ip.to_string())
    }
}

impl Nic {
    /// Writes the status if one is due and something was done since the last one; `busy`: in this
    /// turn.
    #[inline]
    pub(crate) fn status_turn(&mut self, now: Time, busy: bool, events_dropped: u64) {
        let Some(shown) = &mut self.status else { return };
        shown.changed |= busy;
        if shown.changed && now >= shown.due {
            self.status_write(now, events_dropped);
        }
    }

    /// Writes the status.
    #[cold]
    pub(crate) fn status_write(&mut self, now: Time, events_dropped: u64) {
        if let Some(mut shown) = self.status.take() {
            shown.write(self, now, events_dropped, false);
            self.status = Some(shown);
        }
    }

    /// The device closes: it is not shown any more.
    pub(crate) fn status_end(&mut self, now: Time, events_dropped: u64) {
        if let Some(mut shown) = self.status.take() {
            shown.write(self, now, events_dropped, true);
        }
    }
}

/// The remote addresses of contexts, in the order of the addresses, each with whether some context
/// has used all that its receiver has room for.
fn peers_of(contexts: &[ContextStats], mtu: u16) -> Vec<(Peer, bool)> {
    let mut order: Vec<&ContextStats> = contexts.iter().collect();
    order.sort_by_key(|c| c.peer.ip);
    let same = order.chunk_by(|a, b| a.peer.ip == b.peer.ip);
    same.map(|same| peer_of(same, mtu.into())).collect()
}

/// The address that these contexts, at least one, have in common.
fn peer_of(contexts: &[&ContextStats], mtu: u64) -> (Peer, bool) {
    let first = contexts[0];
    let count = |is: fn(&ContextStats) -> bool| contexts.iter().filter(|c| is(c)).count() as u32;
    let peer = Peer {
        ip: first.peer.ip,
        contexts: contexts.len() as u32,
        contexts_sealed: count(|c| c.sealed),
        contexts_stalled: count(|c| c.stalled),
        outstanding: contexts.iter().map(|c| c.outstanding).sum(),
        packets_in_flight: contexts.iter().map(|c| c.packets_in_flight).sum(),
        inflight_bytes: first.inflight_bytes,
        inflight_bytes_max: first.inflight_bytes_max,
        rate_bytes_per_sec: first.rate_bytes_per_sec,
        // Where round trips have become longer, the least one of the last seconds is the new one at
        // once, and the smoothed one follows by steps.
        rtt_ns_smoothed: ns_of(first.srtt_ns.max(first.rtt_ns_min)),
        rtt_ns_min: ns_of(first.rtt_ns_min),
        ..Peer::default()
    };
    // The bytes in flight of one context are not known, but neither those of the address nor those
    // of as many full packets are fewer.
    let credits_used = contexts.iter().any(|c| {
        let flying = first.inflight_bytes.min(u64::from(c.packets_in_flight) * mtu);
        let budget_used = c.rx_budget != u32::MAX && flying + mtu > u64::from(c.rx_budget);
        flying > 0 && (budget_used || c.credit_bytes == Some(0))
    });
    (peer, credits_used)
}

/// What limits the sender to this address now; `None`: not known. `backlogged`: whether it would
/// send more if it might, if the engine said so.
fn limit_of(
    peer: &Peer,
    backlogged: Option<bool>,
    credits_used: bool,
    host_is_busy: bool,
    mtu: u16,
) -> Option<Limit> {
    let room = peer.inflight_bytes_max.saturating_sub(peer.inflight_bytes);
    let window_is_full = peer.inflight_bytes > 0 && room < u64::from(mtu);
    match backlogged {
        _ if peer.outstanding == 0 => Some(Limit::Idle),
        Some(false) => Some(Limit::Program),
        _ if host_is_busy => Some(Limit::Host),
        _ if credits_used => Some(Limit::Credits),
        _ if window_is_full => Some(Limit::Window),
        Some(true) => Some(Limit::Rate),
        None => None,
    }
}

fn value(counter: Counter, all: &DeviceCounters) -> u64 {
    let (e, d) = (&all.engine, &all.datapath);
    match counter {
        Counter::TxBytes => e.tx_bytes,
        Counter::TxPkts => e.tx_pkts,
        Counter::RxBytes => e.rx_bytes,
        Counter::RxPkts => e.rx_pkts,
        Counter::RxDrops => e.rx_drops,
        Counter::SendBytes => e.send_bytes,
        Counter::SendWrs => e.send_wrs,
        Counter::RecvBytes => e.recv_bytes,
        Counter::RecvWrs => e.recv_wrs,
        Counter::RdmaReadWrs => e.rdma_read_wrs,
        Counter::RdmaReadBytes => e.rdma_read_bytes,
        Counter::RdmaReadWrErr => e.rdma_read_wr_err,
        Counter::RdmaReadRespBytes => e.rdma_read_resp_bytes,
        Counter::RdmaWriteWrs => e.rdma_write_wrs,
        Counter::RdmaWriteBytes => e.rdma_write_bytes,
        Counter::RdmaWriteWrErr => e.rdma_write_wr_err,
        Counter::RdmaWriteRecvBytes => e.rdma_write_recv_bytes,
        Counter::RetransBytes => e.retrans_bytes,
        Counter::RetransPkts => e.retrans_pkts,
        Counter::RetransTimeoutEvents => e.retrans_timeout_events,
        Counter::UnresponsiveRemoteEvents => e.unresponsive_remote_events,
        Counter::ImpairedRemoteConnEvents => e.impaired_remote_conn_events,
        Counter::RetransSpuriousPkts => e.retrans_spurious_pkts,
        Counter::TlpPkts => e.tlp_pkts,
        Counter::ProbePkts => e.probe_pkts,
        Counter::AckPkts => e.ack_pkts,
        Counter::DupPkts => e.dup_pkts,
        Counter::RnrEvents => e.rnr_events,
        Counter::CePkts => e.ce_pkts,
        Counter::ContextsOpened => e.contexts_opened,
        Counter::ContextsClosed => e.contexts_closed,
        Counter::ContextsForgotten => e.contexts_forgotten,
        Counter::PathsRetired => e.paths_retired,
        Counter::PathsReturned => e.paths_returned,
        Counter::Stalls => e.stalls,
        Counter::MtuChanges => e.mtu_changes,
        Counter::ResetsSent => e.resets_sent,
        Counter::ResetsReceived => e.resets_received,
        Counter::EventsDropped => e.events_dropped + all.events_dropped,
        Counter::ParseErrors => all.parse_errors.iter().sum(),
        Counter::TxRefused => all.tx_refused,
        Counter::TxWouldBlock => d.tx_would_block,
        Counter::RxqDrops => d.rxq_drops,
        Counter::Syscalls => d.tx_syscalls + d.rx_syscalls,
        Counter::Sleeps => d.waits,
        Counter::Turns => all.turns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_core::{ContextId, Endpoint};

    #[test]
    fn no_smoothed_round_trip_is_below_the_least() {
        let context = ContextStats {
            ctx: ContextId(0),
            peer: Endpoint { ip: [10, 0, 0, 1].into(), port: 18_700 },
            state: "Open",
            outstanding: 0,
            psns_unresolved: 0,
            packets_in_flight: 0,
            stalled: false,
            is_active: true,
            inflight_bytes: 0,
            inflight_bytes_max: 0,
            rate_bytes_per_sec: 0,
            // The way became longer 10 s ago, and only a few packets went since.
            srtt_ns: 30_000,
            rtt_ns_min: 100_000,
            held_bytes: 0,
            psns_ahead: 0,
            reads_served: 0,
            checked: false,
            sealed: false,
            rx_budget: u32::MAX,
            credit_bytes: None,
        };
        let shown = |c: ContextStats| {
            let peer = peer_of(&[&c], 1400).0;
            (peer.rtt_ns_smoothed, peer.rtt_ns_min)
        };
        assert_eq!(shown(context), (100_000, 100_000));
        assert_eq!(shown(ContextStats { srtt_ns: 120_000, ..context }), (120_000, 100_000));
    }
}
