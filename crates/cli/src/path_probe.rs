//! `srd paths probe`: asks running processes to probe their paths, and shows what came back.

use crate::{
    failure::{Failure, Result},
    observe::{now_ns, printable},
    output,
    path_orders::{ProbeArgs, control, devices, wake, word},
    signals::Stop,
};
use serde::Serialize;
use srd_share::{
    PATH_PROBES_MAX, PathControl, PathMask,
    status::{PathState, StatusRow},
};
use srd_wire::ACK_ECHOES_MAX;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

/// Time between two looks at what the processes show.
const LOOK: Duration = Duration::from_millis(20);

/// A path that does not answer is asked for again after this time: longer than round trips, and
/// than it takes until a process shows an answer.
const AGAIN_NS: u64 = 300_000_000;

/// What is known of a path after the probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    pid: u32,
    program: String,
    peer: IpAddr,
    path: u8,
    /// Source port of its packets.
    udp_port: u16,
    /// In the words of `srd paths watch`.
    state: &'static str,
    /// Whether a packet that took it came back since the command began.
    answered: bool,
    /// Smoothed round trip, us.
    rtt_us: Option<f64>,
    /// Least round trip, us.
    rtt_us_min: Option<f64>,
}

/// Executes the command.
///
/// # Errors
/// No process shows a path, a path that is in use does not answer, or the control file cannot be
/// used.
pub fn run(mask: PathMask, args: &ProbeArgs, stop: &Stop) -> Result {
    let control = control()?;
    let open = devices()?;
    let mut peers: Vec<IpAddr> = open
        .iter()
        .flat_map(|row| row.status.peers.iter().filter(|p| !p.paths.is_empty()).map(|p| p.ip))
        .filter(|ip| args.peer.is_none_or(|peer| peer.to_canonical() == *ip))
        .collect();
    peers.sort_unstable();
    peers.dedup();
    if peers.is_empty() {
        let to = args.peer.map_or_else(|| "any address".into(), |ip| ip.to_string());
        return Err(Failure::new(format!("no running process of this user shows paths to {to}")));
    }
    if peers.len() > PATH_PROBES_MAX {
        output::note(&format!(
            "{} addresses: the first {PATH_PROBES_MAX} are probed, name another with --peer",
            peers.len()
        ));
        peers.truncate(PATH_PROBES_MAX);
    }
    // No process has more paths.
    let mask = mask.below(open.iter().map(|row| row.status.paths).max().unwrap_or(0));
    if mask.is_empty() {
        return Err(Failure::new("no running process of this user has such paths"));
    }
    let rows = probed(&control, &peers, Orders::new(mask), args.wait, stop)?;
    show(&rows, args.json)?;
    let silent = rows.iter().filter(|row| !row.answered && row.state == "GOOD").count();
    match (rows.len(), silent) {
        (0, _) => Err(Failure::new("no process has obeyed in time")),
        (_, 0) => Ok(()),
        (_, n) => Err(Failure::new(format!("{n} paths in use did not answer in time"))),
    }
}

/// Orders probes until all paths have answered, or the time is over. Returns what is known of each
/// path.
fn probed(
    control: &PathControl,
    peers: &[IpAddr],
    mut orders: Orders,
    wait: Duration,
    stop: &Stop,
) -> Result<Vec<Row>> {
    let (begin, mut known) = (Instant::now(), Known::new());
    loop {
        if let Some(part) = orders.next(&known, now_ns()) {
            let probes: Vec<(IpAddr, PathMask)> = peers.iter().map(|&ip| (ip, part)).collect();
            let fail = |e| Failure::new(format!("nothing was probed: {e}"));
            orders.given(&part, now_ns());
            control.probe(&probes).map_err(fail)?;
            wake(&devices()?);
        }
        thread::sleep(LOOK);
        let shown = devices()?;
        take(&mut known, &shown, peers, &orders);
        // Each process must have shown each path since that was asked for.
        let fresh = |row: &StatusRow| !has(row, peers) || row.status.written_ns > orders.last_ns;
        let done = orders.all_given() && shown.iter().all(fresh);
        let open = known.values().any(|row| !row.answered && row.state != "DENIED");
        if done && !open || begin.elapsed() >= wait || stop.asked() {
            return Ok(known.into_values().collect());
        }
    }
}

/// Process, port of its device, address, path.
type Key = (u32, u16, IpAddr, u8);
/// What is known of each path.
type Known = BTreeMap<Key, Row>;

/// Which paths were asked for, and when. They are not asked for all at once: an acknowledgment
/// tells of [`ACK_ECHOES_MAX`] packets, so that of more probes that arrive together, the others
/// would seem lost. A process obeys the newest order only, hence what does not answer is asked for
/// again.
struct Orders {
    mask: PathMask,
    /// When each path was asked for last, ns of the host's monotonic clock; 0 = not yet.
    at_ns: [u64; 256],
    last_ns: u64,
    /// The path with which the next order begins.
    from: u8,
}

impl Orders {
    fn new(mask: PathMask) -> Self {
        Self { mask, at_ns: [0; 256], last_ns: 0, from: 0 }
    }

    /// Whether all paths that some process has were asked for.
    fn all_given(&self) -> bool {
        self.last_ns > 0
            && (0..=u8::MAX).all(|i| !self.mask.has(i) || self.at_ns[usize::from(i)] > 0)
    }

    /// The next paths to ask for; `None`: all have answered, or may still answer.
    fn next(&mut self, known: &Known, now_ns: u64) -> Option<PathMask> {
        let silent = |path: u8| {
            let mut rows = known.iter().filter(|((.., of), _)| *of == path);
            match self.at_ns[usize::from(path)] {
                0 => true,
                at if now_ns < at + AGAIN_NS => false,
                _ => rows.any(|(_, row)| !row.answered && row.state != "DENIED"),
            }
        };
        let (mut part, mut last) = (PathMask::NONE, None);
        for i in 0..=u8::MAX {
            let path = self.from.wrapping_add(i);
            if usize::from(part.len()) < ACK_ECHOES_MAX && self.mask.has(path) && silent(path) {
                part.put(path, true);
                last = Some(path);
            }
        }
        self.from = last?.wrapping_add(1);
        Some(part)
    }

    fn given(&mut self, part: &PathMask, now_ns: u64) {
        (0..=u8::MAX).filter(|i| part.has(*i)).for_each(|i| self.at_ns[usize::from(i)] = now_ns);
        self.last_ns = now_ns;
    }
}

fn has(row: &StatusRow, peers: &[IpAddr]) -> bool {
    row.status.peers.iter().any(|p| peers.contains(&p.ip) && !p.paths.is_empty())
}

/// Takes over what the processes show. A path that has answered stays answered: a process at rest
/// forgets it after half a second.
fn take(known: &mut Known, shown: &[StatusRow], peers: &[IpAddr], orders: &Orders) {
    let us = |ns: u32| (ns > 0).then_some(f64::from(ns) / 1e3);
    for row in shown {
        for peer in row.status.peers.iter().filter(|p| peers.contains(&p.ip)) {
            for p in peer.paths.iter().filter(|p| orders.mask.has(p.path)) {
                let asked_ns = orders.at_ns[usize::from(p.path)];
                // What was shown before the order says nothing about it.
                if asked_ns == 0 || row.status.written_ns <= asked_ns {
                    continue;
                }
                let key = (row.pid, row.status.port, peer.ip, p.path);
                if known.get(&key).is_some_and(|row| row.answered) {
                    continue;
                }
                let new = Row {
                    pid: row.pid,
                    program: printable(&row.status.program),
                    peer: peer.ip,
                    path: p.path,
                    udp_port: p.port,
                    state: word(p.state),
                    answered: p.echoed && p.state != PathState::Denied,
                    rtt_us: us(p.rtt_ns_smoothed),
                    rtt_us_min: us(p.rtt_ns_min),
                };
                known.insert(key, new);
            }
        }
    }
}

fn show(rows: &[Row], json: bool) -> Result {
    if json {
        let fail = |e| Failure::new(format!("cannot write the paths as JSON: {e}"));
        return output::line(&serde_json::to_string(rows).map_err(fail)?);
    }
    let number = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
    output::line("     pid program          peer             path  port   rtt us   min us answer")?;
    for row in rows {
        let answer = match (row.answered, row.state) {
            (true, state) => state.to_owned(),
            (false, "DENIED") => "DENIED, not probed".to_owned(),
            (false, state) => format!("none, {state}"),
        };
        output::line(&format!(
            "{:>8} {:<16} {:<16} {:>4} {:>5} {:>8} {:>8} {answer}",
            row.pid,
            row.program,
            row.peer.to_string(),
            row.path,
            row.udp_port,
            number(row.rtt_us),
            number(row.rtt_us_min),
        ))?;
    }
    Ok(())
}
