//! What one engine tells of its packets, paths and messages.

use super::{Record, Recorder, Row};
use srd_core::events::{Event, Observer};
use srd_core::{ContextId, ContextStats, Endpoint, Psn, Time};
use srd_fabric::HostId;
use srd_timeline::Values;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Events of one engine go to the recording, if there is one.
pub struct EngineEvents {
    recorder: Recorder,
    host: HostId,
    process: u32,
    /// Engine clock at time 0 of the network, ns.
    epoch_ns: u64,
    /// Address of host 0.
    first: u32,
    sampled_ns: Option<u64>,
}

/// A message that was posted.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Queue pair.
    pub qpn: u16,
    /// Receiver.
    pub to: HostId,
    /// Operation.
    pub op: &'static str,
    /// Payload in bytes.
    pub bytes: u32,
    /// Flow of the workload.
    pub flow: u32,
    /// Time, ns.
    pub at_ns: u64,
}

/// A packet: its context and PSN.
type Packet = (ContextId, u32);

/// Packets in flight on a path, from the first that left to the last that is known to have arrived
/// or to be lost.
#[derive(Debug)]
struct Busy {
    since_ns: u64,
    packets: u64,
    bytes: u64,
    flying: u64,
}

/// State of one engine.
#[derive(Debug, Default)]
pub(super) struct State {
    peers: BTreeMap<ContextId, HostId>,
    /// Path of each packet in flight.
    flying: BTreeMap<Packet, u8>,
    /// Path on which each packet was lost that has not been sent again.
    lost: BTreeMap<Packet, u8>,
    busy: BTreeMap<(HostId, u8), Busy>,
    /// Paths that are not live: their state, and since when.
    away: BTreeMap<(HostId, u8), (&'static str, u64)>,
    posted: BTreeMap<u32, Posted>,
    /// Last value of each counter, by peer and name.
    counters: BTreeMap<(HostId, &'static str), f64>,
}

impl EngineEvents {
    /// Events of the next engine of a host, whose clock shows `epoch_ns` at time 0; `first` is the
    /// address of host 0.
    pub fn new(recorder: Recorder, host: HostId, epoch_ns: u64, first: u32) -> Self {
        let process = recorder.engine_add(host);
        Self { recorder, host, process, epoch_ns, first, sampled_ns: None }
    }

    /// Whether anything is recorded.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.recorder.is_on()
    }

    fn ns(&self, at: Time) -> u64 {
        at.0.saturating_sub(self.epoch_ns)
    }

    fn host_of(&self, ip: IpAddr) -> Option<HostId> {
        match ip {
            IpAddr::V4(v4) => v4.to_bits().checked_sub(self.first).map(HostId),
            IpAddr::V6(_) => None,
        }
    }

    fn with(&self, act: impl FnOnce(&mut Record, &mut State)) {
        let Some(mut record) = self.recorder.record() else { return };
        let key = (self.host, self.process);
        let mut state = record.engines.remove(&key).unwrap_or_default();
        act(&mut record, &mut state);
        record.engines.insert(key, state);
    }

    /// A message was posted; `handle` identifies it until it ends.
    #[cold]
    pub fn posted(&self, handle: u32, posted: Posted) {
        self.with(|_, state| {
            state.posted.insert(handle, posted);
        });
    }

    /// A message has ended.
    #[cold]
    pub fn ended(&self, handle: u32, at_ns: u64, status: &'static str) {
        self.with(|record, state| {
            let Some(posted) = state.posted.remove(&handle) else { return };
            posted.slice(record, (self.host, self.process), at_ns, status);
        });
    }

    /// Whether the windows and rates are to be sampled.
    #[inline]
    pub fn sample_due(&mut self, now_ns: u64) -> bool {
        let Some(record) = self.recorder.record() else { return false };
        let wait = record.sample_ns;
        let due = self.sampled_ns.is_none_or(|at| now_ns >= at.saturating_add(wait));
        if due {
            self.sampled_ns = Some(now_ns);
        }
        due
    }

    /// Takes a sample of all contexts.
    #[cold]
    pub fn sample(&self, now_ns: u64, contexts: &[ContextStats]) {
        self.with(|record, state| {
            for c in contexts {
                let Some(peer) = self.host_of(c.peer.ip) else { continue };
                let mbps = c.rate_bytes_per_sec as f64 * 8.0 / 1e6;
                for (what, value) in [
                    ("in flight (bytes)", c.inflight_bytes as f64),
                    ("window (bytes)", c.inflight_bytes_max as f64),
                    ("rate (Mb/s)", mbps),
                    ("smoothed RTT (us)", c.srtt_ns as f64 / 1e3),
                ] {
                    self.count(record, state, (peer, what), now_ns, value);
                }
            }
        });
    }

    /// A counter has a value; only changes are recorded.
    fn count(
        &self,
        record: &mut Record,
        state: &mut State,
        of: (HostId, &'static str),
        at_ns: u64,
        value: f64,
    ) {
        if state.counters.insert(of, value) == Some(value) {
            return;
        }
        let group = record.group(self.host);
        let of = format!("{}to host {}: {}", super::of_process(self.process), of.0.0, of.1);
        record.timeline.counter(group, of, at_ns, value);
    }

    fn take(&self, record: &mut Record, state: &mut State, at_ns: u64, event: Event) {
        let path_of = |peer, path| (self.host, Row::Path(self.process, peer, path));
        match event {
            Event::Context { ctx, peer, from, to } => {
                if let Some(host) = self.host_of(peer.ip) {
                    state.peers.insert(ctx, host);
                }
                self.context(record, at_ns, format!("{from} -> {to}"), name_of(peer));
                if to == "Closed" {
                    state.context_gone(record, (self.host, self.process), ctx, at_ns);
                }
            }
            Event::Forgotten { ctx, peer } => {
                self.context(record, at_ns, "forgotten".into(), name_of(peer));
                state.context_gone(record, (self.host, self.process), ctx, at_ns);
            }
            Event::Stalled { ctx } | Event::Resumed { ctx } => {
                let name =
                    if matches!(event, Event::Stalled { .. }) { "stalled" } else { "resumed" };
                let peer = state.peers.get(&ctx).map_or(0, |host| host.0);
                self.context(record, at_ns, name.into(), format!("host {peer}"));
            }
            Event::Sent { ctx, psn, path, bytes, retransmit, .. } => {
                let Some(&peer) = state.peers.get(&ctx) else { return };
                state.landed(record, (self.host, self.process), (ctx, psn.0), at_ns);
                state.left((ctx, psn.0), (peer, path), at_ns, bytes);
                let before = state.lost.remove(&(ctx, psn.0));
                if retransmit {
                    let name = match before {
                        Some(before) if before != path => "sent again on another path",
                        _ => "sent again",
                    };
                    let mut values = psn_values(psn);
                    values.extend(before.map(|before| ("lost on path", before.into())));
                    record.instant(path_of(peer, path), name.into(), at_ns, values);
                }
            }
            Event::Acked { ctx, psn } => {
                state.lost.remove(&(ctx, psn.0));
                state.landed(record, (self.host, self.process), (ctx, psn.0), at_ns);
            }
            Event::Lost { ctx, psn, path, rule } => {
                let Some(&peer) = state.peers.get(&ctx) else { return };
                state.landed(record, (self.host, self.process), (ctx, psn.0), at_ns);
                state.lost.insert((ctx, psn.0), path);
                let mut values = psn_values(psn);
                values.push(("rule", format!("{rule:?}").into()));
                record.instant(path_of(peer, path), "declared lost".into(), at_ns, values);
            }
            Event::Spurious { ctx, psn, path } => {
                let Some(&peer) = state.peers.get(&ctx) else { return };
                let name = "had not been lost".into();
                record.instant(path_of(peer, path), name, at_ns, psn_values(psn));
            }
            Event::Rtt { ctx, rtt_ns, .. } => {
                let Some(&peer) = state.peers.get(&ctx) else { return };
                let of = (peer, "RTT of each packet (us)");
                self.count(record, state, of, at_ns, rtt_ns as f64 / 1e3);
            }
            Event::Path { ip, path, from, to } => {
                let Some(peer) = self.host_of(ip) else { return };
                state.path_changed(record, path_of(peer, path), (peer, path), at_ns, to);
                let values = vec![("from", from.into()), ("to", to.into())];
                record.instant(path_of(peer, path), "state".into(), at_ns, values);
            }
            Event::Judged { .. } | Event::Rate { .. } => {}
        }
    }

    fn context(&self, record: &mut Record, at_ns: u64, name: String, peer: String) {
        let row = (self.host, Row::Contexts(self.process));
        record.instant(row, name.into(), at_ns, vec![("peer", peer.into())]);
    }
}

impl Observer for EngineEvents {
    #[inline]
    fn event(&mut self, now: Time, event: Event) {
        if !self.recorder.is_on() {
            return;
        }
        let at_ns = self.ns(now);
        self.with(|record, state| self.take(record, state, at_ns, event));
    }
}

fn name_of(peer: Endpoint) -> String {
    format!("{} port {}", peer.ip, peer.port)
}

fn psn_values(psn: Psn) -> Values {
    vec![("psn", psn.0.into())]
}

impl Posted {
    fn slice(self, record: &mut Record, at: (HostId, u32), end_ns: u64, status: &'static str) {
        let name = format!("{} {} B to host {}", self.op, self.bytes, self.to.0);
        let values = vec![
            ("bytes", self.bytes.into()),
            ("flow", self.flow.into()),
            ("status", status.into()),
        ];
        let row = (at.0, Row::Queue(at.1, self.qpn));
        record.slice(row, name.into(), (self.at_ns, end_ns), values);
    }
}

impl State {
    /// A packet has left.
    fn left(&mut self, of: Packet, to: (HostId, u8), at_ns: u64, bytes: u32) {
        self.flying.insert(of, to.1);
        let new = || Busy { since_ns: at_ns, packets: 0, bytes: 0, flying: 0 };
        let busy = self.busy.entry(to).or_insert_with(new);
        busy.packets += 1;
        busy.bytes += u64::from(bytes);
        busy.flying += 1;
    }

    /// A packet is no longer in flight.
    fn landed(&mut self, record: &mut Record, at: (HostId, u32), of: Packet, at_ns: u64) {
        let Some(path) = self.flying.remove(&of) else { return };
        let Some(&peer) = self.peers.get(&of.0) else { return };
        let Some(busy) = self.busy.get_mut(&(peer, path)) else { return };
        busy.flying -= 1;
        if busy.flying == 0
            && let Some(busy) = self.busy.remove(&(peer, path))
        {
            busy.slice(record, (at.0, Row::Path(at.1, peer, path)), at_ns);
        }
    }

    fn context_gone(&mut self, record: &mut Record, at: (HostId, u32), ctx: ContextId, at_ns: u64) {
        let of = |key: &&Packet| key.0 == ctx;
        let packets: Vec<_> = self.flying.keys().filter(of).copied().collect();
        for packet in packets {
            self.landed(record, at, packet, at_ns);
        }
        self.lost.retain(|key, _| key.0 != ctx);
    }

    fn path_changed(
        &mut self,
        record: &mut Record,
        row: (HostId, Row),
        of: (HostId, u8),
        at_ns: u64,
        to: &'static str,
    ) {
        if let Some((state, since)) = self.away.remove(&of) {
            record.slice(row, state.into(), (since, at_ns), Vec::new());
        }
        if to != "live" {
            self.away.insert(of, (to, at_ns));
        }
    }

    /// Ends what has not ended at the end of the run.
    pub fn finish(self, record: &mut Record, host: HostId, process: u32, end_ns: u64) {
        for posted in self.posted.into_values() {
            posted.slice(record, (host, process), end_ns, "not ended");
        }
        for ((peer, path), busy) in self.busy {
            busy.slice(record, (host, Row::Path(process, peer, path)), end_ns);
        }
        for ((peer, path), (state, since)) in self.away {
            let row = (host, Row::Path(process, peer, path));
            record.slice(row, state.into(), (since, end_ns), Vec::new());
        }
    }
}

impl Busy {
    fn slice(self, record: &mut Record, row: (HostId, Row), end_ns: u64) {
        let values = vec![("packets", self.packets.into()), ("bytes", self.bytes.into())];
        record.slice(row, "in flight".into(), (self.since_ns, end_ns), values);
    }
}
