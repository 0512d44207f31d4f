//! `srd top`: what all processes of this user on this host send, and to which addresses.

use crate::{
    failure::{Failure, Result},
    observe::{
        now_ns, printable,
        rates::{self, Key, Rates, allowed_mbps, limit_most},
    },
    output,
    signals::Stop,
    units,
};
use serde::Serialize;
use srd_share::{
    Owner, SeatRow, Segment, Snapshot, segment_path,
    status::{Limit, Status, StatusRow, StatusScope, status_list},
};
use std::{
    collections::BTreeMap,
    fs,
    io::IsTerminal,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

const EXAMPLES: &str = "Examples:
  srd top                 live table until Ctrl-C
  srd top --once          one table
  srd top --json          one table as a line of JSON, for programs

The first table has a line per device of the processes of this user in this network namespace (not
of those with SRD_STATUS=0), the second one a line per process and address to which it sends now
(not of those with SRD_SHARE=0, which share nothing of what they know of addresses). `srd stat`
shows totals.

messages, sent, received, again
          messages posted, Mb/s of messages, and packets sent again: per second, in the interval
          (--once, --json: in the last tenth of a second)
allowed   what the device may send to all addresses to which it sends, Mb/s
rate      what the process may send, Mb/s: its share of what the host may send there
arrives   what arrived of it in the last round trip, Mb/s
rtt, min  smoothed and least round trip, us
flight    bytes in flight, of at most `cap`
lost %    packets declared lost, of those sent in the interval (--once: since it began to send)
share %   the part of the host's rate to this address
limit     what limited the sender most often in the interval: program (it has no more to send),
          rate, window, credits (the receiver grants no more), host (its processor or network card);
          network: one of the last four, of a process that does not show which

Exit codes: 0 done (also where no process is running), 1 the table of the host cannot be read,
2 wrong usage.";

/// How often it looks whether it is to end.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// Moves the cursor to the top left and clears the screen below, to redraw the table.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Arguments of `srd top`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Time between two tables, as 1s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub interval: Duration,
    /// Write one table and end
    #[arg(long)]
    pub once: bool,
    /// Write one table as a line of JSON and end
    #[arg(long)]
    pub json: bool,
}

/// A process and an address that it sends to.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    pid: u32,
    /// Name of the program.
    program: String,
    /// The engine's slot in the table: a process may have several.
    engine: usize,
    local: String,
    /// Remote address.
    peer: String,
    rate_mbps: f64,
    arrives_mbps: f64,
    rtt_us: Option<f64>,
    rtt_us_min: Option<f64>,
    inflight_bytes: u32,
    inflight_bytes_max: u32,
    sent: u32,
    lost: u32,
    lost_percent: f64,
    /// Part of what the host may send to the address.
    share_percent: Option<f64>,
    /// Processes of the host that send to the address, this one included.
    senders: u32,
    /// "program", "rate", "window", "credits" or "host"; "network": one of the last four.
    limit: &'static str,
}

/// What a device did in the interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Device {
    pid: u32,
    /// Name of the program.
    program: String,
    /// Rank in the MPI job.
    rank: Option<u32>,
    device: String,
    /// Peer engines: in MPI, other ranks.
    peers: u32,
    #[serde(flatten)]
    rates: Rates,
    allowed_mbps: f64,
    /// "program", "rate", "window", "credits", "host" or "idle"; `None`: not known.
    limit: Option<&'static str>,
}

/// Both tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Table {
    devices: Vec<Device>,
    /// Processes that share, whether they send or not.
    processes: usize,
    /// Devices of them.
    engines: usize,
    rows: Vec<Row>,
}

/// What the last tables were made of.
#[derive(Debug, Default)]
struct Before {
    /// Packets sent and lost, by engine, process and address.
    packets: BTreeMap<(usize, u32, String), (u32, u32)>,
    statuses: BTreeMap<Key, Status>,
}

/// What limits a process, by process, local and remote address.
type Limits = BTreeMap<(u32, IpAddr, IpAddr), Limit>;

/// Runs the command.
///
/// # Errors
/// The file of the host's table belongs to somebody else.
pub fn run(args: &TopArgs, stop: &Stop) -> Result {
    let once = args.once || args.json || !std::io::stdout().is_terminal();
    let mut before = Before::default();
    loop {
        let segment = Segment::look(&segment_path()).map_err(|e| Failure::new(e.to_string()))?;
        let shot = segment
            .map_or_else(Snapshot::default, |s| s.table().snapshot(now_ns(), Owner::is_alive));
        let list = status_list(StatusScope::Network).unwrap_or_default();
        let (devices, limits) = devices_of(&list.rows, &before, now_ns());
        let mut table = table_of(&shot, &before, &limits, program_of);
        table.devices = devices;
        if args.json {
            let fail = |e| Failure::new(format!("cannot write the table as JSON: {e}"));
            return output::line(&serde_json::to_string(&table).map_err(fail)?);
        }
        let clear = if once { "" } else { CLEAR };
        output::line(&format!("{clear}{}", text(&table)))?;
        if once {
            return Ok(());
        }
        before.packets = table.rows.iter().map(|r| (key(r), (r.sent, r.lost))).collect();
        before.statuses = list.rows.into_iter().map(|r| (rates::key(&r), r.status)).collect();
        let end = Instant::now() + args.interval;
        while Instant::now() < end {
            if stop.asked() {
                return Ok(());
            }
            thread::sleep(STOP_CHECK.min(args.interval));
        }
    }
}

/// Name of a process's program.
fn program_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    printable(name.trim_end())
}

fn key(row: &Row) -> (usize, u32, String) {
    (row.engine, row.pid, row.peer.clone())
}

/// What devices did since `before`, and what limits them.
fn devices_of(rows: &[StatusRow], before: &Before, now_ns: u64) -> (Vec<Device>, Limits) {
    let mut all = Limits::new();
    let devices = rows.iter().map(|row| {
        let (s, before) = (&row.status, before.statuses.get(&rates::key(row)));
        let limits = rates::limits(row, before);
        all.extend(limits.iter().map(|(&peer, &limit)| ((row.pid, s.local, peer), limit)));
        Device {
            pid: row.pid,
            program: printable(&s.program),
            rank: s.rank,
            device: printable(&s.name),
            peers: s.contexts,
            rates: Rates::of(row, before, now_ns),
            allowed_mbps: allowed_mbps(s),
            limit: limit_most(&limits).map(Limit::name),
        }
    });
    (devices.collect(), all)
}

fn table_of(
    shot: &Snapshot,
    before: &Before,
    limits: &Limits,
    program: impl Fn(u32) -> String,
) -> Table {
    let mut pids: Vec<u32> = shot.members.iter().map(|m| m.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let row = |s| row_of(s, before, limits, &program);
    let mut rows: Vec<Row> = shot.seats.iter().map(row).collect();
    rows.sort_by(|a, b| (&a.peer, a.pid, a.engine).cmp(&(&b.peer, b.pid, b.engine)));
    Table { devices: Vec::new(), processes: pids.len(), engines: shot.members.len(), rows }
}

fn row_of(s: &SeatRow, before: &Before, limits: &Limits, program: impl Fn(u32) -> String) -> Row {
    let limit = limits.get(&(s.pid, s.local, s.remote)).copied();
    let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6;
    let us = |ns: u32| (ns > 0).then_some(f64::from(ns) / 1e3);
    let mut row = Row {
        pid: s.pid,
        program: program(s.pid),
        engine: s.member,
        local: s.local.to_string(),
        peer: s.remote.to_string(),
        rate_mbps: mbps(s.rate_own),
        arrives_mbps: mbps(s.delivered),
        rtt_us: us(s.rtt_ns_smoothed),
        rtt_us_min: us(s.rtt_ns_min),
        inflight_bytes: s.inflight,
        inflight_bytes_max: s.inflight_max,
        sent: s.packets_sent,
        lost: s.packets_lost,
        lost_percent: 0.0,
        share_percent: (s.rate_host > 0)
            .then(|| (s.rate_own as f64 * 100.0 / s.rate_host as f64).min(100.0)),
        senders: s.senders,
        limit: match limit {
            Some(limit) if limit != Limit::Idle => limit.name(),
            _ if s.backlogged => "network",
            _ => "program",
        },
    };
    // Counters that went back are those of another life.
    let (sent, lost) = before.packets.get(&key(&row)).copied().unwrap_or_default();
    let (sent, lost) = if sent <= row.sent && lost <= row.lost { (sent, lost) } else { (0, 0) };
    if row.sent > sent {
        row.lost_percent = f64::from(row.lost - lost) * 100.0 / f64::from(row.sent - sent);
    }
    row
}

/// A number with its noun.
fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The table as text.
fn text(table: &Table) -> String {
    if table.engines == 0 && table.devices.is_empty() {
        return "no process of this user uses SRD over sockets in this network namespace (those \
                with SRD_SHARE=0 and SRD_STATUS=0 are not seen)"
            .into();
    }
    let mut lines = device_lines(&table.devices);
    lines.push(format!(
        "{} with {}; {} of process and address with something to send",
        counted(table.processes, "process", "processes"),
        counted(table.engines, "device", "devices"),
        counted(table.rows.len(), "pair", "pairs")
    ));
    if !table.rows.is_empty() {
        lines.push(format!(
            "{:>8} {:<15} {:<24} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {}",
            "pid",
            "program",
            "peer",
            "rate",
            "arrives",
            "rtt",
            "min",
            "flight",
            "cap",
            "lost %",
            "share %",
            "limit"
        ));
    }
    let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
    lines.extend(table.rows.iter().map(|r| {
        format!(
            "{:>8} {:<15} {:<24} {:>9.1} {:>9.1} {:>8} {:>8} {:>8} {:>8} {:>7.2} {:>7} {}",
            r.pid,
            r.program,
            r.peer,
            r.rate_mbps,
            r.arrives_mbps,
            number(r.rtt_us),
            number(r.rtt_us_min),
            r.inflight_bytes,
            r.inflight_bytes_max,
            r.lost_percent,
            number(r.share_percent),
            r.limit
        )
    }));
    lines.join("\n")
}

fn device_lines(devices: &[Device]) -> Vec<String> {
    let head = format!(
        "{:>8} {:<15} {:>5} {:<10} {:>6} {:>10} {:>10} {:>10} {:>9} {:>10} {}",
        "pid",
        "program",
        "rank",
        "device",
        "peers",
        "messages",
        "sent",
        "received",
        "again",
        "allowed",
        "limit"
    );
    let line = |d: &Device| {
        format!(
            "{:>8} {:<15} {:>5} {:<10} {:>6} {:>10.0} {:>10.1} {:>10.1} {:>9.0} {:>10.1} {}",
            d.pid,
            d.program,
            d.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            d.device,
            d.peers,
            d.rates.messages_per_s,
            d.rates.sent_mbps,
            d.rates.received_mbps,
            d.rates.again_per_s,
            d.allowed_mbps,
            d.limit.unwrap_or("-")
        )
    };
    std::iter::once(head).chain(devices.iter().map(line)).chain([String::new()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_share::MemberRow;

    fn seat(member: usize, sent: u32, lost: u32) -> SeatRow {
        SeatRow {
            member,
            pid: 40 + member as u32,
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            backlogged: member == 0,
            senders: 2,
            rate_own: 125_000_000,
            rate_host: 500_000_000,
            delivered: 100_000_000,
            inflight: 5_000,
            inflight_max: 20_000,
            rtt_ns_min: 20_000,
            rtt_ns_smoothed: 0,
            packets_sent: sent,
            packets_lost: lost,
        }
    }

    #[test]
    fn rows_say_what_each_process_has_and_losses_are_those_of_the_interval() {
        let member = |member| MemberRow { member, pid: 40 + member as u32, quiet_ns: Some(1) };
        let shot =
            |a, b| Snapshot { members: vec![member(0), member(1), member(2)], seats: vec![a, b] };
        let program = |pid| format!("p{pid}");
        let (mut before, none) = (Before::default(), Limits::new());
        let first = table_of(&shot(seat(0, 100, 50), seat(1, 9, 0)), &before, &none, program);
        before.packets = first.rows.iter().map(|r| (key(r), (r.sent, r.lost))).collect();
        let shot = shot(seat(0, 200, 51), seat(1, 4, 1));
        let table = table_of(&shot, &before, &none, program);
        let lost: Vec<f64> = table.rows.iter().map(|r| r.lost_percent).collect();
        assert_eq!(lost, [1.0, 25.0], "of 100 since, and of 4 of another life");
        assert_eq!((table.processes, table.engines), (3, 3));
        let row = &table.rows[0];
        assert_eq!((row.rate_mbps, row.share_percent, row.rtt_us), (1_000.0, Some(25.0), None));
        assert_eq!((row.limit, table.rows[1].limit), ("network", "program"));
        let at = |seat: SeatRow| (seat.pid, seat.local, seat.remote);
        let limits =
            Limits::from([(at(seat(0, 0, 0)), Limit::Window), (at(seat(1, 0, 0)), Limit::Host)]);
        let known = table_of(&shot, &before, &limits, program);
        assert_eq!(known.rows.iter().map(|r| r.limit).collect::<Vec<_>>(), ["window", "host"]);
        let shown = text(&table);
        assert!(shown.contains("p40") && shown.lines().count() == 6, "{shown}");
        assert!(text(&Table::default()).contains("no process"), "{}", text(&Table::default()));
    }
}
