//! `srd stat`: what every process of this host that uses SRD has done and does, from outside.

use super::{Chosen, UNSEEN, now_ns, printable, sealed_text};
use crate::{
    failure::{Failure, Result},
    output,
    units::bytes_text,
};
use serde::Serialize;
use srd_share::status::{Counter, Limit, Path, PathState, Peer, StatusList, StatusRow};
use std::collections::BTreeMap;

const EXAMPLES: &str = "Examples:
  srd stat                one line per device (with SRD_SHARDS: per shard), and the peers of each
  srd stat --json 4711    all that process 4711 shows, as one line of JSON
  srd stat --counters     all counters, too

Shown are the processes of this user (root: of all users) in this network namespace, while they run.

qps       queue pairs
peers     remote addresses
messages  sends, RDMA reads and writes that were posted
sent, received
          bytes of messages; an RDMA read is received by who posted it, and sent by the peer
again     packets sent again
lost      packets declared lost
paths     paths in use, of all paths to the peers shown
sealed    whether the packets of all contexts are encrypted and authenticated (`part`: of some)
quiet     time since the device last did something
ranks     devices (in MPI: ranks) at the peer's address that this one speaks with
requests  requests to the address that have not ended
rate      what may be sent to the address, Mb/s
rtt, min  smoothed and least round trip, us
flight    bytes in flight, of at most `window`
live      paths to the address that are in use
limit     what limited the sender most often: program (it had no more to send), rate, window,
          credits (the receiver grants no more), host (its processor or network card), idle

Exit codes: 0 done (also where no process is running), 1 a process that was asked for has no device,
or /dev/shm cannot be read, 2 wrong usage.";

/// Arguments of `srd stat`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Write all figures as one line of JSON
    #[arg(long)]
    json: bool,
    /// Most peers to show per device, at most 64
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u8).range(0..=64))]
    peers: u8,
    /// Show the paths to each peer, for at most 8 peers per device
    #[arg(long)]
    paths: bool,
    /// Show all counters of each device
    #[arg(long)]
    counters: bool,
}

/// Runs the command.
///
/// # Errors
/// See the exit codes.
pub fn run(args: &StatArgs) -> Result {
    let list = args.chosen.list()?;
    if args.json {
        let fail = |e| Failure::new(format!("cannot write the status as JSON: {e}"));
        let all = Json::of(&list, now_ns());
        return output::line(&serde_json::to_string(&all).map_err(fail)?);
    }
    output::line(&text(&list, now_ns(), args))
}

/// Everything, for programs.
#[derive(Serialize)]
struct Json {
    devices: Vec<JsonDevice>,
    /// Devices of other users, of which nothing is known.
    devices_of_others: usize,
    /// Files that could not be understood: of another version.
    unreadable: usize,
}

#[derive(Serialize)]
struct JsonDevice {
    pid: u32,
    uid: u32,
    network_namespace: u64,
    program: String,
    rank: Option<u32>,
    device: String,
    local: String,
    port: u16,
    slot: u8,
    mtu: u16,
    paths: u16,
    seal: &'static str,
    sealed: &'static str,
    open_s: f64,
    quiet_s: f64,
    queue_pairs: u32,
    contexts: u32,
    contexts_sealed: u32,
    addresses: u32,
    messages_sent: u64,
    bytes_sent: u64,
    messages_received: u64,
    bytes_received: u64,
    packets_lost: u64,
    counters: BTreeMap<&'static str, u64>,
    peers: Vec<JsonPeer>,
}

#[derive(Serialize)]
struct JsonPeer {
    peer: String,
    contexts: u32,
    contexts_sealed: u32,
    contexts_stalled: u32,
    outstanding: u32,
    packets_in_flight: u32,
    inflight_bytes: u64,
    window_bytes: u64,
    rate_mbps: f64,
    arrives_mbps: f64,
    rtt_us: Option<f64>,
    rtt_us_min: Option<f64>,
    packets_sent: u64,
    packets_lost: u64,
    packets_ce: u64,
    paths_live: u32,
    paths_penalised: u32,
    paths_retired: u32,
    paths_probing: u32,
    paths_denied: u32,
    limit: Option<&'static str>,
    limits: BTreeMap<&'static str, u32>,
    paths: Vec<JsonPath>,
}

#[derive(Serialize)]
struct JsonPath {
    path: u8,
    /// Source port of its packets.
    udp_port: u16,
    state: &'static str,
    rtt_us: Option<f64>,
    rtt_us_min: Option<f64>,
    packets_sent: u64,
    packets_lost: u64,
    packets_ce: u64,
}

impl Json {
    fn of(list: &StatusList, now_ns: u64) -> Self {
        let devices = list.rows.iter().map(|row| JsonDevice::of(row, now_ns)).collect();
        Self { devices, devices_of_others: list.foreign, unreadable: list.unread }
    }
}

impl JsonDevice {
    fn of(row: &StatusRow, now_ns: u64) -> Self {
        let s = &row.status;
        let since = |then: u64| now_ns.saturating_sub(then) as f64 / 1e9;
        Self {
            pid: row.pid,
            uid: row.uid,
            network_namespace: row.network,
            program: printable(&s.program),
            rank: s.rank,
            device: printable(&s.name),
            local: s.local.to_string(),
            port: s.port,
            slot: s.slot,
            mtu: s.mtu,
            paths: s.paths,
            seal: s.seal.name(),
            sealed: sealed_text(row),
            open_s: since(s.opened_ns),
            quiet_s: since(s.written_ns),
            queue_pairs: s.qps,
            contexts: s.contexts,
            contexts_sealed: s.contexts_sealed,
            addresses: s.addresses,
            messages_sent: s.messages_sent(),
            bytes_sent: s.bytes_sent(),
            messages_received: s.counter(Counter::RecvWrs),
            bytes_received: s.bytes_received(),
            packets_lost: lost(row),
            counters: Counter::ALL.iter().map(|&c| (c.name(), s.counter(c))).collect(),
            peers: s.peers.iter().map(JsonPeer::of).collect(),
        }
    }
}

impl JsonPeer {
    fn of(p: &Peer) -> Self {
        let [paths_live, paths_penalised, paths_retired, paths_probing, paths_denied] =
            p.path_counts;
        Self {
            peer: p.ip.to_string(),
            contexts: p.contexts,
            contexts_sealed: p.contexts_sealed,
            contexts_stalled: p.contexts_stalled,
            outstanding: p.outstanding,
            packets_in_flight: p.packets_in_flight,
            inflight_bytes: p.inflight_bytes,
            window_bytes: p.inflight_bytes_max,
            rate_mbps: mbps(p.rate_bytes_per_sec),
            arrives_mbps: mbps(p.delivered_bytes_per_sec),
            rtt_us: us(p.rtt_ns_smoothed),
            rtt_us_min: us(p.rtt_ns_min),
            packets_sent: p.packets_sent,
            packets_lost: p.packets_lost,
            packets_ce: p.packets_ce,
            paths_live,
            paths_penalised,
            paths_retired,
            paths_probing,
            paths_denied,
            limit: limit(&p.limits).map(Limit::name),
            limits: Limit::ALL.iter().map(|l| (l.name(), p.limits[*l as usize])).collect(),
            paths: p.paths.iter().map(JsonPath::of).collect(),
        }
    }
}

impl JsonPath {
    fn of(p: &Path) -> Self {
        Self {
            path: p.path,
            udp_port: p.port,
            state: p.state.name(),
            rtt_us: us(p.rtt_ns_smoothed),
            rtt_us_min: us(p.rtt_ns_min),
            packets_sent: p.packets_sent,
            packets_lost: p.packets_lost,
            packets_ce: p.packets_ce,
        }
    }
}

/// The limit that was found most often, other than that nothing was to be sent.
pub fn limit(counts: &[u32; 6]) -> Option<Limit> {
    let busy = Limit::ALL.into_iter().filter(|l| *l != Limit::Idle && counts[*l as usize] > 0);
    let most = busy.max_by_key(|l| counts[*l as usize]);
    most.or((counts[Limit::Idle as usize] > 0).then_some(Limit::Idle))
}

/// Packets declared lost, to all addresses that are shown.
pub fn lost(row: &StatusRow) -> u64 {
    row.status.peers.iter().map(|p| p.packets_lost).sum()
}

/// Megabits per second.
pub fn mbps(bytes_per_sec: u64) -> f64 {
    bytes_per_sec as f64 * 8.0 / 1e6
}

fn us(ns: u32) -> Option<f64> {
    (ns > 0).then_some(f64::from(ns) / 1e3)
}

/// A number with one digit after the point, or "-".
pub fn number(n: Option<f64>) -> String {
    n.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"))
}

fn text(list: &StatusList, now_ns: u64, args: &StatArgs) -> String {
    if list.rows.is_empty() {
        return format!("no process uses SRD here now; {UNSEEN}");
    }
    let mut lines = vec![line(&HEAD.map(str::to_owned))];
    for row in &list.rows {
        device_lines(row, now_ns, args, &mut lines);
    }
    if list.foreign > 0 {
        lines.push(format!("{} devices of other users: root sees them", list.foreign));
    }
    if list.unread > 0 {
        lines.push(format!("{} devices of another version of software SRD", list.unread));
    }
    lines.join("\n")
}

/// Columns of the line of a device.
#[rustfmt::skip]
const HEAD: [&str; 15] = [
    "pid", "program", "rank", "device", "address", "qps", "peers", "messages", "sent", "received",
    "again", "lost", "paths", "sealed", "quiet s",
];
/// Their widths; texts begin at the left.
const WIDTHS: [usize; 15] = [8, 15, 5, 10, 16, 3, 5, 9, 9, 9, 7, 7, 9, 6, 7];
const TEXTS: [&str; 3] = ["program", "device", "address"];

fn line(cells: &[String; 15]) -> String {
    let columns = HEAD.iter().zip(WIDTHS).zip(cells);
    let cell = |((head, width), cell): ((&&str, usize), &String)| {
        if TEXTS.contains(head) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    };
    columns.map(cell).collect::<Vec<_>>().join(" ")
}

fn device_lines(row: &StatusRow, now_ns: u64, args: &StatArgs, lines: &mut Vec<String>) {
    let s = &row.status;
    let counts = |i: usize| s.peers.iter().map(|p| p.path_counts[i]).sum::<u32>();
    let (live, all) = (counts(0), (0..PathState::ALL.len()).map(counts).sum::<u32>());
    lines.push(line(&[
        row.pid.to_string(),
        printable(&s.program),
        s.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        printable(&s.name),
        s.local.to_string(),
        s.qps.to_string(),
        s.contexts.to_string(),
        s.messages_sent().to_string(),
        bytes_text(s.bytes_sent()),
        bytes_text(s.bytes_received()),
        s.counter(Counter::RetransPkts).to_string(),
        lost(row).to_string(),
        format!("{live}/{all}"),
        sealed_text(row).to_owned(),
        format!("{:.1}", now_ns.saturating_sub(s.written_ns) as f64 / 1e9),
    ]));
    let shown = s.peers.iter().take(args.peers.into());
    for (i, peer) in shown.enumerate() {
        if i == 0 {
            lines.push(peer_head());
        }
        lines.push(peer_line(peer));
        if args.paths {
            lines.extend(peer.paths.iter().map(path_line));
        }
    }
    let hidden = (s.addresses as usize).saturating_sub(s.peers.len().min(args.peers.into()));
    if hidden > 0 && args.peers > 0 {
        lines.push(format!("{:>12} {hidden} more addresses (--peers N shows up to 64)", ""));
    }
    if args.counters {
        let counter = |c: &Counter| {
            format!("{:>12} {:<28} {:>16}  {}", "", c.name(), s.counter(*c), c.help())
        };
        lines.extend(Counter::ALL.iter().map(counter));
    }
}

fn peer_head() -> String {
    format!(
        "{:>12} {:<24} {:>5} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7} {:>7} {}",
        "",
        "peer",
        "ranks",
        "requests",
        "rate",
        "rtt",
        "min",
        "flight",
        "window",
        "packets",
        "lost",
        "live",
        "limit"
    )
}

fn peer_line(p: &Peer) -> String {
    format!(
        "{:>12} {:<24} {:>5} {:>9} {:>9.1} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7} {:>7} {}",
        "",
        p.ip.to_string(),
        p.contexts,
        p.outstanding,
        mbps(p.rate_bytes_per_sec),
        number(us(p.rtt_ns_smoothed)),
        number(us(p.rtt_ns_min)),
        p.inflight_bytes,
        p.inflight_bytes_max,
        p.packets_sent,
        p.packets_lost,
        p.path_counts[0],
        limit(&p.limits).map_or("-", Limit::name)
    )
}

fn path_line(p: &Path) -> String {
    format!(
        "{:>16} path {:>3} port {:>5} {:<9} rtt {:>8} min {:>8} sent {:>9} lost {:>7} marked {:>7}",
        "",
        p.path,
        p.port,
        p.state.name(),
        number(us(p.rtt_ns_smoothed)),
        number(us(p.rtt_ns_min)),
        p.packets_sent,
        p.packets_lost,
        p.packets_ce
    )
}
