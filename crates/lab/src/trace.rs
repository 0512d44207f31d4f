//! What the network sees of the packets of flows, whatever their transport: which arrive before an
//! earlier one of their flow, how long after a loss the lost part arrives, how long packets are
//! under way, and over how many paths a flow goes (`measure.trace`).
//!
//! A tap at the network observes all packets and changes nothing.

use crate::packet::LabPacket;
use crate::run::Plan;
use crate::spec::Transport;
use crate::watch::place_of;
use rustc_hash::FxHashMap;
use srd_fabric::{Host, HostId, LinkId, Node, Ps, Tap, TapEvent, TapWhat, Topology, World};
use srd_rivals::TcpSegment;
use srd_rivals::rc::RcPacket;
use srd_rivals::ue::UePacket;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// Part of a flow's data that one packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The sender's number of the flow or connection, and of its incarnation.
    stream: (u32, u32),
    /// First position: a byte or a packet number.
    at: u64,
    /// One past the last position.
    end: u64,
}

/// A packet whose part of a flow can be told.
pub trait Traced {
    /// The part; `None`: it carries none.
    fn piece(&self) -> Option<Piece>;
}

impl Traced for LabPacket {
    fn piece(&self) -> Option<Piece> {
        let (flow, at) = place_of(self.address()?)?;
        Some(Piece { stream: (flow, 0), at, end: at + u64::from(self.payload_len()) })
    }
}

impl Traced for TcpSegment {
    fn piece(&self) -> Option<Piece> {
        match *self {
            // What the program gets in order is the stream of all subflows.
            Self::Data { group, dsn, len, .. } if group != u32::MAX => {
                Some(Piece { stream: (group, 0), at: dsn, end: dsn + u64::from(len) })
            }
            Self::Data { conn, seq, len, .. } => {
                Some(Piece { stream: (conn, 0), at: seq, end: seq + u64::from(len) })
            }
            _ => None,
        }
    }
}

impl Traced for RcPacket {
    fn piece(&self) -> Option<Piece> {
        match *self {
            Self::Data { qp, life, psn, .. } => {
                Some(Piece { stream: (qp, life), at: psn, end: psn + 1 })
            }
            _ => None,
        }
    }
}

impl Traced for UePacket {
    fn piece(&self) -> Option<Piece> {
        match *self {
            Self::Data { conn, psn, len, .. } if len > 0 => {
                Some(Piece { stream: (conn, 0), at: psn, end: psn + 1 })
            }
            _ => None,
        }
    }
}

/// Results of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceOutcome {
    /// Data packets that arrived.
    pub packets: u64,
    /// Data packets that arrived for the first time, and before an earlier one of their flow.
    pub early: u64,
    /// Time from the arrival of each of these until all earlier ones have arrived, or until they
    /// arrive again where the receiver drops them, in us.
    pub waits_us: Vec<f64>,
    /// Parts of flows that the network lost before they had arrived.
    pub lost: u64,
    /// Time from each such loss to the arrival of the lost part, in us.
    pub repairs_us: Vec<f64>,
    /// Time of each data packet from its sender's card to its receiver, in us.
    pub travels_us: Vec<f64>,
    /// Data packets that queues marked.
    pub marked: u64,
    /// Links side by side that carried data of the only flow, each at least a hundredth of an equal
    /// share; `None` with several flows.
    pub paths: Option<u32>,
    /// Paths of that flow in the network.
    pub paths_all: Option<u32>,
    /// The receiver hands on what arrives early at once, so that nothing waits.
    pub any_order: bool,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    /// Everything before this position has arrived.
    next: u64,
    /// What arrived beyond: its end, and its first arrival.
    early: BTreeMap<u64, (u64, Ps)>,
    /// What was lost and has not arrived since: its end, and when it was lost first.
    lost: BTreeMap<u64, (u64, Ps)>,
}

/// The record of a run.
#[derive(Debug, Default)]
struct Record {
    streams: FxHashMap<(HostId, (u32, u32)), Stream>,
    out: TraceOutcome,
    /// Receivers drop what arrives early.
    drops_early: bool,
}

fn us(ps: Ps) -> f64 {
    ps as f64 / 1e6
}

impl Record {
    fn delivered(&mut self, event: &TapEvent, piece: Piece) {
        let out = &mut self.out;
        out.packets += 1;
        out.travels_us.push(us(event.now - event.sent_ps));
        let stream = self.streams.entry((event.src, piece.stream)).or_default();
        let now = event.now;
        if self.drops_early && piece.at > stream.next {
            if stream.early.try_insert_first(piece, now) {
                out.early += 1;
            }
            return;
        }
        let covered: Vec<u64> = stream.lost.range(piece.at..piece.end).map(|(at, _)| *at).collect();
        for at in covered {
            let (_, since) = stream.lost.remove(&at).expect("it was found");
            out.repairs_us.push(us(now - since));
        }
        if piece.at > stream.next {
            if stream.early.try_insert_first(piece, now) {
                out.early += 1;
            }
            return;
        }
        stream.next = stream.next.max(piece.end);
        while let Some(first) = stream.early.first_entry() {
            let at = *first.key();
            // Where early packets are dropped, each waits for its own repetition.
            if at > stream.next || self.drops_early && at >= stream.next {
                return;
            }
            let (end, since) = first.remove();
            stream.next = stream.next.max(end);
            out.waits_us.push(us(now - since));
        }
    }

    fn lost(&mut self, event: &TapEvent, piece: Piece) {
        let stream = self.streams.entry((event.src, piece.stream)).or_default();
        let held = !self.drops_early && stream.early.contains_key(&piece.at);
        if piece.end <= stream.next || held || stream.lost.contains_key(&piece.at) {
            return;
        }
        self.out.lost += 1;
        stream.lost.insert(piece.at, (piece.end, event.now));
    }
}

trait FirstArrival {
    fn try_insert_first(&mut self, piece: Piece, now: Ps) -> bool;
}

impl FirstArrival for BTreeMap<u64, (u64, Ps)> {
    /// Adds a piece unless it is there.
    fn try_insert_first(&mut self, piece: Piece, now: Ps) -> bool {
        let std::collections::btree_map::Entry::Vacant(entry) = self.entry(piece.at) else {
            return false;
        };
        entry.insert((piece.end, now));
        true
    }
}

/// The record, shared with the tap.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<Record>>);

impl<P: Traced> Tap<P> for Trace {
    fn on_event(&mut self, event: &TapEvent, payload: &P) {
        let Some(piece) = payload.piece() else { return };
        let mut record = self.0.lock().expect("nobody else holds it");
        match event.what {
            TapWhat::Delivered => record.delivered(event, piece),
            TapWhat::Dropped(_) => record.lost(event, piece),
            TapWhat::Marked => record.out.marked += 1,
            _ => {}
        }
    }
}

impl Trace {
    /// Begins to record if the spec asks for it.
    pub fn start<P: Clone + Traced, H: Host<P>>(
        plan: &Plan<'_>,
        world: &mut World<P, H>,
    ) -> Option<Self> {
        if !plan.spec.measure.trace {
            return None;
        }
        let transport = plan.spec.transport;
        let drops_early =
            transport == Transport::Rc && plan.spec.rc.recovery.as_deref() != Some("irn");
        let any_order = matches!(transport, Transport::Srd | Transport::Ue);
        let out = TraceOutcome { any_order, ..TraceOutcome::default() };
        let trace = Self(Arc::new(Mutex::new(Record { out, drops_early, ..Record::default() })));
        world.tap_set(Some(Box::new(trace.clone())));
        Some(trace)
    }

    /// The results at the end of a run.
    pub fn finish<P: Clone, H: Host<P>>(
        &self,
        plan: &Plan<'_>,
        world: &World<P, H>,
    ) -> TraceOutcome {
        let mut out = std::mem::take(&mut self.0.lock().expect("nobody else holds it").out);
        if let [flow] = plan.flows.flows.as_slice() {
            let ends = (flow.src, flow.dst);
            let all = width(&plan.topo, ends, |_| true);
            // Requests that open a context may take another path than data.
            let least_bytes = flow.bytes / u64::from(all.max(1)) / 100;
            let used = |link: LinkId| world.link_stats(link).bytes > least_bytes;
            out.paths = Some(width(&plan.topo, ends, used));
            out.paths_all = Some(all);
        }
        out
    }
}

/// Number of links that `counts` admits among those of the shortest paths between two hosts that
/// are equally far from the first, at the distance at which there are most. Data from the first
/// host to the second take only such links, and acknowledgments none of them.
fn width(topo: &Topology, (from, to): (HostId, HostId), counts: impl Fn(LinkId) -> bool) -> u32 {
    let near = distances(topo, from);
    let far = distances(topo, to);
    let Some(all) = near.get(&Node::Host(to)).copied() else { return 0 };
    let mut widths: BTreeMap<u32, u32> = BTreeMap::new();
    for link in (0..topo.links()).map(LinkId) {
        let (Some(a), Some(b)) = (near.get(&topo.from(link)), far.get(&topo.to(link))) else {
            continue;
        };
        if a + 1 + b == all && counts(link) {
            *widths.entry(*a).or_default() += 1;
        }
    }
    widths.into_values().max().unwrap_or(0)
}

/// Links from a host to each node that can be reached without passing another host.
fn distances(topo: &Topology, from: HostId) -> FxHashMap<Node, u32> {
    let mut out: FxHashMap<Node, Vec<Node>> = FxHashMap::default();
    for link in (0..topo.links()).map(LinkId) {
        out.entry(topo.from(link)).or_default().push(topo.to(link));
    }
    let mut distance = FxHashMap::from_iter([(Node::Host(from), 0)]);
    let mut queue = VecDeque::from([Node::Host(from)]);
    while let Some(node) = queue.pop_front() {
        let there = distance[&node];
        if matches!(node, Node::Host(h) if h != from) {
            continue;
        }
        for next in out.get(&node).into_iter().flatten() {
            if let std::collections::hash_map::Entry::Vacant(entry) = distance.entry(*next) {
                entry.insert(there + 1);
                queue.push_back(*next);
            }
        }
    }
    distance
}
