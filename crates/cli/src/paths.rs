//! `srd paths`: a live table of the paths to a server.

use crate::{
    app::{
        client::{Client, STOP_CHECK},
        link::{Event, LinkDepth},
        message::Body,
    },
    device::{DeviceArgs, PathPolicy},
    failure::{Failure, Result},
    host::HostName,
    output,
    path_orders::{self, PathOrders},
    signals::Stop,
    units,
};
use serde::{Deserialize, Serialize};
use srd::{AsyncEvent, PathStats, Progress, Status};
use std::{
    io::IsTerminal,
    net::IpAddr,
    time::{Duration, Instant},
};

const EXAMPLES: &str = "Examples:
  srd paths 10.0.0.5                    live table until Ctrl-C
  srd paths --count 1 --json 10.0.0.5   one measurement, for programs
  srd paths --paths 16 --probes 32 --interval 5s 10.0.0.5
  srd paths deny 0-15 --peer 10.0.0.5   take paths out of use, before a switch is serviced
  srd paths allow --peer 10.0.0.5       use all of them again
  srd paths watch                       each change: GOOD, ASSUMED_BAD (retired), DENIED
  srd paths probe                       running processes probe their paths now

Each interval, small messages are sent over all paths (with --path-policy oblivious unless given);
their acknowledgments show each path's round-trip time and losses, also of denied paths. If the
output is not a terminal, or with --json, one table is written after the first interval unless
--count asks for more.

Exit codes: 0 done, 1 the server cannot be reached, 2 wrong usage, 130 ended by Ctrl-C before the
first table.";

/// Buffers of the link: one batch of probes.
const DEPTH: LinkDepth = LinkDepth { sends: 256, recvs: 16, writes: 0 };
/// Rounds of probes in a survey.
const SURVEY_ROUNDS_MAX: usize = 3;
/// Moves the cursor to the top left and clears the screen below, to redraw the table.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Arguments of `srd paths`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PathsArgs {
    /// An order to the devices of this host, in place of a table.
    #[command(subcommand)]
    pub order: Option<PathOrders>,
    /// Server: HOST, HOST:PORT or [IPV6]:PORT
    #[arg(value_name = "HOST[:PORT]", value_parser = HostName::parse, required = true)]
    pub host: Option<HostName>,
    /// Time between two tables, as 1s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub interval: Duration,
    /// Number of tables to write [default: unlimited on a terminal, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Probes per path and interval
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub probes: u32,
    /// Write each table as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// One path in the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    /// Number of the path.
    path: u8,
    /// Smoothed RTT in microseconds; `None` before the first sample.
    rtt_us: Option<f64>,
    /// Lowest RTT in microseconds.
    rtt_us_min: Option<f64>,
    /// Share of the packets sent in this interval, in percent.
    share_percent: f64,
    /// Packets sent since the start.
    sent: u64,
    /// Packets declared lost since the start.
    lost: u64,
    /// `lost` in percent of `sent`.
    lost_percent: f64,
    /// Packets acknowledged with CE ("congestion experienced").
    marked: u64,
    /// "live", "penalised", "retired" or "probing".
    state: &'static str,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Table {
    /// The server's address and port.
    server: String,
    /// Seconds since the start.
    seconds: f64,
    /// The paths.
    paths: Vec<Row>,
}

/// Runs the command.
///
/// # Errors
/// The server cannot be reached.
pub fn run(args: &PathsArgs, stop: &Stop) -> Result {
    let host = match (&args.order, &args.host) {
        (Some(order), _) => return path_orders::run(order, stop),
        (None, Some(host)) => host,
        (None, None) => {
            return Err(Failure::usage("name the server, or an order: srd paths --help"));
        }
    };
    let mut device = args.device.clone();
    device.path_policy = device.path_policy.or(Some(PathPolicy::Oblivious));
    // Denied paths are probed, too: that shows whether they may be allowed again.
    device.paths_denied_used = true;
    let progress = Progress::Thread { spin: Duration::ZERO };
    let mut client = Client::open(&device, host, progress, DEPTH)?;
    let live = std::io::stdout().is_terminal() && !args.json;
    let count = args.count.unwrap_or(if live { u64::MAX } else { 1 });
    let begin = Instant::now();
    let mut before: Vec<PathStats> = Vec::new();
    let mut written = 0;
    while written < count {
        match probe(args, &mut client, stop) {
            Err(e) if stop.asked() && written == 0 => return Err(e),
            Err(_) if stop.asked() => break,
            other => other?,
        }
        let stats = client.open.device.path_stats(client.server.ip)?;
        let table = Table {
            server: client.server.to_string(),
            seconds: begin.elapsed().as_secs_f64(),
            paths: rows(&before, &stats),
        };
        show(&table, live, args.json)?;
        before = stats;
        written += 1;
    }
    Ok(())
}

/// Sends the probes of one interval, evenly spaced.
fn probe(args: &PathsArgs, client: &mut Client, stop: &Stop) -> Result {
    let begin = Instant::now();
    let total = args.probes * u32::from(client.open.device.port().paths);
    let (mut sent, mut ended) = (0, 0);
    let control = client.control.clone();
    let ping = client.message(0, Body::Ping);
    loop {
        stop.check()?;
        let passed = begin.elapsed();
        if passed >= args.interval && ended == total {
            return Ok(());
        }
        // Over nine tenths of the interval, so that the last answers arrive within it.
        let share = (passed.as_secs_f64() / (args.interval.as_secs_f64() * 0.9)).min(1.0);
        let due = (f64::from(total) * share).ceil() as u32;
        while sent < due && client.link.can_send() {
            client.link.send(&control, &ping, 0)?;
            sent += 1;
        }
        let step = (args.interval / 200).clamp(Duration::from_millis(1), STOP_CHECK);
        if let Some(Event::Sent { status, .. }) = client.event(step)? {
            if status != Status::Ok {
                return Err(client.unreachable(status));
            }
            ended += 1;
        }
    }
}

/// Result of a short survey of the paths to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// Address and port of the server.
    pub server: String,
    /// Number of paths with an answer.
    pub answering: usize,
    /// Number of paths probed.
    pub total: usize,
    /// Numbers of the paths without an answer.
    #[serde(default)]
    pub silent: Vec<u8>,
    /// Lowest smoothed RTT of a path in microseconds.
    pub rtt_us_min: f64,
    /// Highest smoothed RTT of a path in microseconds.
    pub rtt_us_max: f64,
    /// Payload of the packets that arrive, in bytes, if full packets do not.
    pub narrow: Option<u16>,
}

/// Probes all paths to a server for half a second, from the address `ip` (`None`: that of the route
/// to it), with packets of at most `mtu` bytes of payload (`None`: as the link permits), and up to
/// twice more while some of them do not answer: an acknowledgment echoes one of the packets that it
/// tells of, and a busy receiver tells of many at once.
///
/// # Errors
/// The server cannot be reached.
pub fn survey(
    host: &HostName,
    ip: Option<IpAddr>,
    port_base: u16,
    mtu: Option<u16>,
    stop: &Stop,
) -> Result<Survey> {
    let mut device = DeviceArgs::default_options()?;
    (device.ip, device.path_policy) = (ip, Some(PathPolicy::Oblivious));
    (device.port_base, device.mtu) = (port_base, mtu);
    let interval = Duration::from_millis(500);
    let args = PathsArgs {
        order: None,
        host: Some(host.clone()),
        interval,
        count: Some(1),
        probes: 4,
        json: true,
        device: device.clone(),
    };
    let progress = Progress::Thread { spin: Duration::ZERO };
    let mut client = Client::open(&device, host, progress, DEPTH)?;
    let mut stats = Vec::new();
    for _ in 0..SURVEY_ROUNDS_MAX {
        probe(&args, &mut client, stop)?;
        stats = client.open.device.path_stats(client.server.ip)?;
        if stats.iter().all(|path| path.rtt_ns_smoothed > 0) {
            break;
        }
    }
    let rows = rows(&[], &stats);
    let rtts: Vec<f64> = rows.iter().filter_map(|r| r.rtt_us).collect();
    let events = std::iter::from_fn(|| client.open.device.event_get());
    let narrow = events.filter_map(|e| match e {
        AsyncEvent::PathMtu { ip, payload_max } if ip == client.server.ip => Some(payload_max),
        _ => None,
    });
    let narrow = narrow.last().filter(|&size| usize::from(size) < client.open.device.mtu());
    Ok(Survey {
        narrow,
        server: client.server.to_string(),
        answering: rtts.len(),
        total: stats.len(),
        silent: rows.iter().filter(|r| r.rtt_us.is_none()).map(|r| r.path).collect(),
        rtt_us_min: rtts.iter().copied().fold(f64::INFINITY, f64::min),
        rtt_us_max: rtts.iter().copied().fold(0.0, f64::max),
    })
}

fn rows(before: &[PathStats], now: &[PathStats]) -> Vec<Row> {
    let sent_before =
        |path: u8| before.iter().find(|p| p.path == path).map_or(0, |p| p.packets_sent);
    let in_interval = |p: &PathStats| p.packets_sent.saturating_sub(sent_before(p.path));
    let total: u64 = now.iter().map(in_interval).sum();
    let us = |ns: u64| (ns > 0).then_some(ns as f64 / 1e3);
    let percent = |part: u64, of: u64| if of > 0 { part as f64 * 100.0 / of as f64 } else { 0.0 };
    now.iter()
        .map(|p| Row {
            path: p.path,
            rtt_us: us(p.rtt_ns_smoothed),
            rtt_us_min: us(p.rtt_ns_min),
            share_percent: percent(in_interval(p), total),
            sent: p.packets_sent,
            lost: p.packets_lost,
            lost_percent: percent(p.packets_lost, p.packets_sent),
            marked: p.packets_ce,
            state: p.state,
        })
        .collect()
}

fn show(table: &Table, live: bool, json: bool) -> Result {
    if json {
        let text = serde_json::to_string(table);
        let fail = |e| Failure::new(format!("cannot write the table as JSON: {e}"));
        return output::line(&text.map_err(fail)?);
    }
    let clear = if live { CLEAR } else { "" };
    output::line(&format!("{clear}{}", text(table)))
}

/// The table as text.
fn text(table: &Table) -> String {
    let used = table.paths.iter().filter(|r| r.sent > 0).count();
    let sent: u64 = table.paths.iter().map(|r| r.sent).sum();
    let lost: u64 = table.paths.iter().map(|r| r.lost).sum();
    let mut lines = vec![
        format!(
            "{}: {used} of {} paths used, {sent} packets sent, {lost} lost, {:.1} s",
            table.server,
            table.paths.len(),
            table.seconds
        ),
        " path   rtt us   min us  share %     sent     lost   lost %   marked state".to_owned(),
    ];
    let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
    lines.extend(table.paths.iter().map(|r| {
        format!(
            "{:>5} {:>8} {:>8} {:>8.2} {:>8} {:>8} {:>8.2} {:>8} {}",
            r.path,
            number(r.rtt_us),
            number(r.rtt_us_min),
            r.share_percent,
            r.sent,
            r.lost,
            r.lost_percent,
            r.marked,
            r.state
        )
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(path: u8, sent: u64, lost: u64, rtt_ns: u64) -> PathStats {
        PathStats {
            path,
            rtt_ns_smoothed: rtt_ns,
            rtt_ns_min: rtt_ns / 2,
            packets_sent: sent,
            packets_lost: lost,
            packets_ce: 0,
            state: "live",
            echoed: true,
        }
    }

    #[test]
    fn shares_cover_the_interval_and_losses_the_whole_time() {
        let before = [stats(0, 100, 0, 10_000), stats(1, 10, 0, 0)];
        let now = [stats(0, 130, 13, 20_000), stats(1, 20, 0, 0), stats(2, 0, 0, 0)];
        let rows = rows(&before, &now);
        let shares: Vec<f64> = rows.iter().map(|r| r.share_percent).collect();
        assert_eq!(shares, [75.0, 25.0, 0.0]);
        assert_eq!((rows[0].lost_percent, rows[0].rtt_us), (10.0, Some(20.0)));
        assert_eq!((rows[2].lost_percent, rows[2].rtt_us), (0.0, None));
        let text = text(&Table { server: "s".into(), seconds: 1.0, paths: rows });
        assert!(text.contains("2 of 3 paths used, 150 packets sent, 13 lost"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }
}
