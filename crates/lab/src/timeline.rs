//! Records a run for Perfetto (`--perfetto`): messages of each queue pair, what is in flight on
//! each path, losses, retransmissions and changes of paths, and the sender's window, rate and round
//! trips over time. A recording changes nothing.
//!
//! SRD's engines tell what they do; of other transports only flows and the network's losses are
//! known.

mod engine;

pub use engine::{EngineEvents, Posted};

use crate::workload::Flow;
use srd_fabric::{HostId, NS, Ps, Tap, TapEvent, TapWhat, Topology};
use srd_timeline::{Group, Name, Timeline, Track, Values};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// First source port of the simulated hosts of SRD; the path is added.
pub const SPORT_BASE: u16 = 49_152;

/// A run's recording, if it has one.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Option<Arc<Mutex<Record>>>);

/// Tracks of a host, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    /// Flows from the start to the end, of any transport.
    Flows,
    /// States of contexts of this process.
    Contexts(u32),
    /// Messages: process and queue pair.
    Queue(u32, u16),
    /// Process, peer and path.
    Path(u32, HostId, u8),
    /// Losses in the network, of other transports than SRD: peer and source port.
    Port(HostId, u16),
}

impl Row {
    fn order(self) -> u32 {
        match self {
            Self::Flows => 0,
            Self::Contexts(_) => 1,
            Self::Queue(..) => 2,
            Self::Path(..) => 3,
            Self::Port(..) => 4,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Flows => "flows".into(),
            Self::Contexts(process) => format!("{}contexts", of_process(process)),
            Self::Queue(process, qpn) => format!("{}queue pair {qpn}", of_process(process)),
            Self::Path(process, peer, path) => {
                format!("{}to host {}: path {path}", of_process(process), peer.0)
            }
            Self::Port(peer, port) => format!("to host {}: port {port}", peer.0),
        }
    }
}

/// The first process of a host needs no name.
fn of_process(process: u32) -> String {
    if process == 0 { String::new() } else { format!("process {process}: ") }
}

/// What is known so far.
#[derive(Debug)]
struct Record {
    timeline: Timeline,
    topo: Topology,
    groups: BTreeMap<HostId, Group>,
    tracks: BTreeMap<(HostId, Row), Track>,
    /// Engines that have told something, by host and process.
    engines: BTreeMap<(HostId, u32), engine::State>,
    /// Engines of each host.
    counts: BTreeMap<HostId, u32>,
    /// Least time between two samples of windows and rates, ns.
    sample_ns: u64,
}

impl Record {
    fn group(&mut self, host: HostId) -> Group {
        let timeline = &mut self.timeline;
        *self.groups.entry(host).or_insert_with(|| timeline.group(&format!("host {}", host.0)))
    }

    fn track(&mut self, host: HostId, row: Row) -> Track {
        let group = self.group(host);
        let timeline = &mut self.timeline;
        let make = || timeline.track(group, &row.name(), row.order());
        *self.tracks.entry((host, row)).or_insert_with(make)
    }

    fn slice(&mut self, at: (HostId, Row), name: Name, ns: (u64, u64), values: Values) {
        let track = self.track(at.0, at.1);
        self.timeline.slice(track, name, ns.0, ns.1, values);
    }

    fn instant(&mut self, at: (HostId, Row), name: Name, ns: u64, values: Values) {
        let track = self.track(at.0, at.1);
        self.timeline.instant(track, name, ns, values);
    }
}

impl Recorder {
    /// A recording of a run, if its spec asks for one.
    pub fn of(wanted: bool, title: &str, topo: &Topology, flows: &[Flow]) -> Self {
        if !wanted {
            return Self::default();
        }
        let mut record = Record {
            timeline: Timeline::new(title),
            topo: topo.clone(),
            groups: BTreeMap::new(),
            tracks: BTreeMap::new(),
            engines: BTreeMap::new(),
            counts: BTreeMap::new(),
            sample_ns: 0,
        };
        // Shown in the order of their numbers.
        let hosts: BTreeSet<HostId> = flows.iter().flat_map(|f| [f.src, f.dst]).collect();
        for host in hosts {
            record.group(host);
        }
        Self(Some(Arc::new(Mutex::new(record))))
    }

    /// Whether the run is recorded.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn record(&self) -> Option<MutexGuard<'_, Record>> {
        Some(self.0.as_ref()?.lock().expect("no recorder panics while it holds the lock"))
    }

    /// The number of another engine of a host, from 0 on.
    fn engine_add(&self, host: HostId) -> u32 {
        let Some(mut record) = self.record() else { return 0 };
        let count = record.counts.entry(host).or_default();
        *count += 1;
        *count - 1
    }

    /// Samples windows and rates at most once in this time.
    pub fn sample_every(&self, interval_ps: Ps) {
        if let Some(mut record) = self.record() {
            record.sample_ns = interval_ps / NS;
        }
    }

    /// A flow has ended.
    pub fn flow(&self, flow: &Flow, index: usize, round: u32, from: Ps, to: Ps) {
        let Some(mut record) = self.record() else { return };
        let name = format!("flow {index} to host {}", flow.dst.0);
        let values = vec![("bytes", flow.bytes.into()), ("round", round.into())];
        record.slice((flow.src, Row::Flows), name.into(), (from / NS, to / NS), values);
    }

    /// The observer of the packets of this run, which hands on everything to `inner`.
    pub fn tap<P: 'static>(
        &self,
        inner: Option<Box<dyn Tap<P> + Send>>,
        is_srd: bool,
    ) -> Option<Box<dyn Tap<P> + Send>> {
        match &self.0 {
            None => inner,
            Some(record) => Some(Box::new(Drops { record: Arc::clone(record), inner, is_srd })),
        }
    }

    /// The recording at the end of the run; the first result that asks gets it.
    pub fn finish(&self, end_ps: Ps) -> Option<Box<Timeline>> {
        let mut record = self.record()?;
        let engines = std::mem::take(&mut record.engines);
        for ((host, process), state) in engines {
            state.finish(&mut record, host, process, end_ps / NS);
        }
        let all = std::mem::replace(&mut record.timeline, Timeline::new(""));
        (!all.is_empty()).then(|| Box::new(all))
    }
}

/// Shows packets that the network drops, at the path that they took.
struct Drops<P> {
    record: Arc<Mutex<Record>>,
    inner: Option<Box<dyn Tap<P> + Send>>,
    is_srd: bool,
}

impl<P> Tap<P> for Drops<P> {
    fn on_event(&mut self, event: &TapEvent, payload: &P) {
        if let Some(inner) = &mut self.inner {
            inner.on_event(event, payload);
        }
        let TapWhat::Dropped(reason) = event.what else { return };
        let mut record = self.record.lock().expect("no recorder panics while it holds the lock");
        let path = event.sport.checked_sub(SPORT_BASE).and_then(|path| u8::try_from(path).ok());
        let row = match path {
            // Several processes of a host send from the same ports.
            Some(path) if self.is_srd && record.counts.get(&event.src) == Some(&1) => {
                Row::Path(0, event.dst, path)
            }
            _ => Row::Port(event.dst, event.sport),
        };
        let place = event.link.map_or_else(|| "host".into(), |link| record.topo.link_name(link));
        let values = vec![
            ("where", place.into()),
            ("why", format!("{reason:?}").into()),
            ("bytes", event.bytes.into()),
        ];
        record.instant((event.src, row), "dropped by the network".into(), event.now / NS, values);
    }
}
