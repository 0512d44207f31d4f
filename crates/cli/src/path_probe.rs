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
    PATH_PROBES_MAX, PathMask,
    status::{Path, PathState, StatusRow},
};
use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

/// Time between two looks at what the processes show.
const LOOK: Duration = Duration::from_millis(20);

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
        return Err(Failure::new("no running process of this user shows paths to there"));
    }
    if peers.len() > PATH_PROBES_MAX {
        output::note(&format!(
            "{} addresses: the first {PATH_PROBES_MAX} are probed, name another with --peer",
            peers.len()
        ));
        peers.truncate(PATH_PROBES_MAX);
    }
    let probes: Vec<(IpAddr, PathMask)> = peers.iter().map(|&ip| (ip, mask)).collect();
    let asked_ns = now_ns();
    control.probe(&probes).map_err(|e| Failure::new(format!("nothing was probed: {e}")))?;
    wake(&open);
    let begin = Instant::now();
    let rows = loop {
        thread::sleep(LOOK);
        let shown = devices()?;
        // What was shown before the order says nothing about it.
        let fresh = shown.iter().all(|row| row.status.written_ns > asked_ns || !has(row, &peers));
        let rows = rows(&shown, asked_ns, &peers, &mask);
        let done = fresh && rows.iter().all(|row| row.answered || row.state == "DENIED");
        if done || begin.elapsed() >= args.wait || stop.asked() {
            break rows;
        }
    };
    show(&rows, args.json)?;
    let silent = rows.iter().filter(|row| !row.answered && row.state == "GOOD").count();
    match (rows.len(), silent) {
        (0, _) => Err(Failure::new("no process has obeyed in time")),
        (_, 0) => Ok(()),
        (_, n) => Err(Failure::new(format!("{n} paths in use did not answer in time"))),
    }
}

fn has(row: &StatusRow, peers: &[IpAddr]) -> bool {
    row.status.peers.iter().any(|p| peers.contains(&p.ip) && !p.paths.is_empty())
}

/// The probed paths of the processes that have shown something since.
fn rows(shown: &[StatusRow], since_ns: u64, peers: &[IpAddr], mask: &PathMask) -> Vec<Row> {
    let us = |ns: u32| (ns > 0).then_some(f64::from(ns) / 1e3);
    let mut rows = Vec::new();
    for row in shown.iter().filter(|row| row.status.written_ns > since_ns) {
        for peer in row.status.peers.iter().filter(|p| peers.contains(&p.ip)) {
            rows.extend(peer.paths.iter().filter(|p| mask.has(p.path)).map(|p: &Path| Row {
                pid: row.pid,
                program: printable(&row.status.program),
                peer: peer.ip,
                path: p.path,
                udp_port: p.port,
                state: word(p.state),
                answered: p.echoed && p.state != PathState::Denied,
                rtt_us: us(p.rtt_ns_smoothed),
                rtt_us_min: us(p.rtt_ns_min),
            }));
        }
    }
    rows
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
