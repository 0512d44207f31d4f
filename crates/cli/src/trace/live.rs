//! A trace of running processes, from what they show ([`srd_share::status`]).

use super::TraceArgs;
use crate::{
    failure::{Failure, Result},
    observe::{UNSEEN, now_ns, printable},
    signals::Stop,
};
use srd_share::status::{Counter, Limit, PathState, Peer, Status, StatusRow};
use srd_timeline::{Group, Timeline, Track};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

/// Processes write their status at most ten times per second.
const LOOK: Duration = Duration::from_millis(20);
/// Most processes that are shown.
const DEVICES_MAX: usize = 1_000;

/// Number of the process, and when its device was opened.
type Key = (u64, u32, u16, u64);

/// A process that was seen.
struct Seen {
    group: Group,
    device: Track,
    /// Tracks of limits, by peer.
    limits: BTreeMap<IpAddr, Track>,
    paths: BTreeMap<(IpAddr, u8), Path>,
    last: Status,
}

/// A path of a process.
struct Path {
    track: Track,
    state: PathState,
    since_ns: u64,
    lost: u64,
}

/// Looks at the processes until the time is over.
///
/// # Errors
/// There is no `/dev/shm`, or no process was seen.
pub fn record(args: &TraceArgs, stop: &Stop) -> Result<Timeline> {
    let (begin, begin_ns) = (Instant::now(), now_ns());
    let mut timeline = Timeline::new("srd trace");
    let mut all: BTreeMap<Key, Seen> = BTreeMap::new();
    while !stop.asked() && args.duration.is_none_or(|time| begin.elapsed() < time) {
        // A process that was asked for may end meanwhile.
        let everyone = crate::observe::Chosen { pids: Vec::new(), all: args.chosen.all };
        for row in everyone.list()?.rows {
            let wanted = args.chosen.pids.is_empty() || args.chosen.pids.contains(&row.pid);
            let key = (row.network, row.pid, row.status.port, row.status.opened_ns);
            if !wanted || all.len() >= DEVICES_MAX && !all.contains_key(&key) {
                continue;
            }
            match all.get_mut(&key) {
                Some(seen) => seen.take(&mut timeline, row.status, begin_ns),
                None => drop(all.insert(key, Seen::new(&mut timeline, row, begin_ns))),
            }
        }
        thread::sleep(LOOK);
    }
    let end_ns = now_ns().saturating_sub(begin_ns);
    for seen in all.values() {
        for path in seen.paths.values() {
            timeline.slice(path.track, path.state.name(), path.since_ns, end_ns, Vec::new());
        }
    }
    if timeline.is_empty() {
        return Err(Failure::new(format!("no process with an open SRD device was seen; {UNSEEN}")));
    }
    Ok(timeline)
}

impl Seen {
    fn new(timeline: &mut Timeline, row: StatusRow, begin_ns: u64) -> Self {
        let s = &row.status;
        let rank = s.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        let name = format!(
            "{} {}{rank}, {} {} port {}",
            row.pid,
            printable(&s.program),
            printable(&s.name),
            s.local,
            s.port
        );
        let group = timeline.group(&name);
        let device = timeline.track(group, "device", 0);
        let at_ns = s.written_ns.saturating_sub(begin_ns);
        timeline.instant(device, "seen", at_ns, vec![("paths", u32::from(s.paths).into())]);
        let (limits, paths) = (BTreeMap::new(), BTreeMap::new());
        let mut seen = Self { group, device, limits, paths, last: Status::default() };
        seen.last.clone_from(s);
        for peer in row.status.peers {
            seen.peer(timeline, &peer, None, (at_ns, at_ns));
        }
        seen
    }

    /// Takes what a process shows, if it is new.
    fn take(&mut self, timeline: &mut Timeline, now: Status, begin_ns: u64) {
        if now.written_ns == self.last.written_ns {
            return;
        }
        let time = |of: &Status| of.written_ns.saturating_sub(begin_ns);
        let ns = (time(&self.last), time(&now));
        let last = std::mem::replace(&mut self.last, now.clone());
        for (counter, name) in [
            (Counter::RetransPkts, "packets sent again"),
            (Counter::RetransTimeoutEvents, "timeouts"),
            (Counter::RxDrops, "received packets dropped"),
            (Counter::Stalls, "no path to a peer answers"),
            (Counter::RnrEvents, "messages that found no receive posted"),
        ] {
            let more = now.counter(counter).saturating_sub(last.counter(counter));
            if more > 0 {
                timeline.instant(self.device, name, ns.1, vec![("count", more.into())]);
            }
        }
        let s = (ns.1.saturating_sub(ns.0)).max(1) as f64 / 1e9;
        for (name, sum) in [
            ("messages sent per second", Status::messages_sent as fn(&Status) -> u64),
            ("sent (Mb/s)", |of| of.bytes_sent() * 8 / 1_000_000),
            ("received (Mb/s)", |of| of.bytes_received() * 8 / 1_000_000),
        ] {
            let more = sum(&now).saturating_sub(sum(&last));
            timeline.counter(self.group, name, ns.1, more as f64 / s);
        }
        for peer in &now.peers {
            let before = last.peers.iter().find(|p| p.ip == peer.ip);
            self.peer(timeline, peer, before, ns);
        }
    }

    fn peer(
        &mut self,
        timeline: &mut Timeline,
        peer: &Peer,
        before: Option<&Peer>,
        ns: (u64, u64),
    ) {
        let (ip, group) = (peer.ip, self.group);
        let us = |ns: u32| f64::from(ns) / 1e3;
        let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6;
        for (name, value) in [
            ("in flight (bytes)", peer.inflight_bytes as f64),
            ("window (bytes)", peer.inflight_bytes_max as f64),
            ("rate (Mb/s)", mbps(peer.rate_bytes_per_sec)),
            ("delivered (Mb/s)", mbps(peer.delivered_bytes_per_sec)),
            ("smoothed RTT (us)", us(peer.rtt_ns_smoothed)),
            ("least RTT (us)", us(peer.rtt_ns_min)),
            ("requests", f64::from(peer.outstanding)),
        ] {
            timeline.counter(group, format!("to {ip}: {name}"), ns.1, value);
        }
        if let Some(limit) = before.and_then(|before| limit_of(before, peer)) {
            let make = || timeline.track(group, &format!("to {ip}: limited by"), 1);
            let track = *self.limits.entry(ip).or_insert_with(make);
            timeline.slice(track, limit.name(), ns.0, ns.1, Vec::new());
        }
        for path in &peer.paths {
            let number = path.path;
            let of = self.paths.entry((ip, number)).or_insert_with(|| Path {
                track: timeline.track(group, &format!("to {ip}: path {number}"), 2),
                state: path.state,
                since_ns: ns.1,
                lost: path.packets_lost,
            });
            let lost = path.packets_lost.saturating_sub(of.lost);
            of.lost = path.packets_lost;
            if lost > 0 {
                timeline.instant(of.track, "lost", ns.1, vec![("packets", lost.into())]);
            }
            if path.state != of.state {
                timeline.slice(of.track, of.state.name(), of.since_ns, ns.1, Vec::new());
                (of.state, of.since_ns) = (path.state, ns.1);
            }
        }
    }
}

/// What was found most often since then.
fn limit_of(before: &Peer, now: &Peer) -> Option<Limit> {
    let more = |i: usize| now.limits[i].wrapping_sub(before.limits[i]);
    let most = (0..Limit::ALL.len()).max_by_key(|&i| more(i))?;
    (more(most) > 0).then_some(Limit::ALL[most])
}
