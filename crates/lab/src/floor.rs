//! The floor: the shortest possible completion time of a workload's flows, to which results are
//! compared.
//!
//! *Floor* of a flow = all bytes, with headers, that its slower end must carry no later than the
//! flow's own last byte, at that end's rate, plus the base round trip of its last packet. Equal
//! flows that start together and share an end fairly all complete exactly at their floor. A
//! receiver with a ring is as slow as the slower of its link and its drain. Links between switches
//! are not included.

use crate::packet::wire_bytes;
use rustc_hash::FxHashMap;
use srd_core::wire::{ACK_ECHO_BYTES, ACK_FIXED_BYTES, ACK_WORD_BYTES, HEADER_BYTES, PacketType};
use srd_fabric::{HostId, LinkId, Node, Ps, Topology};
use std::collections::VecDeque;

/// Larger than all headers; also a payload size that needs no padding.
const PLENTY: u32 = 1 << 16;
/// Marks a switch without predecessor.
const NONE: u32 = u32::MAX;

/// Shortest paths through a topology.
#[derive(Debug)]
pub struct Ways<'a> {
    topo: &'a Topology,
    /// Link from each host to its switch.
    uplink: Vec<LinkId>,
    /// Links from each switch to other switches.
    out: Vec<Vec<LinkId>>,
    /// For a destination switch: the link that each switch takes towards it.
    towards: FxHashMap<u32, Vec<u32>>,
}

impl<'a> Ways<'a> {
    /// Paths through a valid topology.
    pub fn new(topo: &'a Topology) -> Self {
        let mut uplink = vec![LinkId(0); topo.hosts() as usize];
        let mut out = vec![Vec::new(); topo.switches() as usize];
        for i in 0..topo.links() {
            let link = LinkId(i);
            match (topo.from(link), topo.to(link)) {
                (Node::Host(h), _) => uplink[h.0 as usize] = link,
                (Node::Switch(s), Node::Switch(_)) => out[s.0 as usize].push(link),
                (Node::Switch(_), Node::Host(_)) => {}
            }
        }
        Self { topo, uplink, out, towards: FxHashMap::default() }
    }

    /// The link from a host to its switch; its reverse leads back.
    pub fn uplink(&self, host: HostId) -> LinkId {
        self.uplink[host.0 as usize]
    }

    /// A shortest path from one host to another as links in order; empty if there is none.
    pub fn way(&mut self, from: HostId, to: HostId) -> Vec<LinkId> {
        let (first, last) = (self.uplink(from), self.uplink(to).reverse());
        let mut way = vec![first];
        if let (Node::Switch(mut at), Node::Switch(end)) =
            (self.topo.to(first), self.topo.from(last))
        {
            let (topo, out) = (self.topo, &self.out);
            let next = self.towards.entry(end.0).or_insert_with(|| tree(topo, out, end.0));
            while at != end {
                if next[at.0 as usize] == NONE {
                    return Vec::new();
                }
                let link = LinkId(next[at.0 as usize]);
                way.push(link);
                let Node::Switch(s) = topo.to(link) else { return Vec::new() };
                at = s;
            }
            way.push(last);
        }
        way
    }

    /// One-way delay of a packet of `bytes`, from its start on the first link to its arrival; with
    /// `first` = false, without the serialisation time on that link.
    fn one_way(&self, way: &[LinkId], bytes: u64, first: bool) -> Ps {
        let hop = |(i, link): (usize, &LinkId)| {
            let port = self.topo.port(*link);
            let wire = if i == 0 && !first { 0 } else { port.serialise_ps(bytes) };
            wire + port.delay_ps
        };
        way.iter().enumerate().map(hop).sum()
    }

    /// Base round trip: a data packet of `bytes` without its serialisation time on the first link,
    /// and the acknowledgment of one packet back.
    pub fn base_rtt(&mut self, from: HostId, to: HostId, bytes: u64) -> Ps {
        let there = self.way(from, to);
        let back = self.way(to, from);
        self.one_way(&there, bytes, false) + self.one_way(&back, ack_wire_bytes().into(), true)
    }

    /// One-way part of the base round trip.
    pub fn base_delay(&mut self, from: HostId, to: HostId, bytes: u64) -> Ps {
        let there = self.way(from, to);
        self.one_way(&there, bytes, false)
    }
}

/// The link from every switch towards switch `end`, by breadth-first search.
fn tree(topo: &Topology, out: &[Vec<LinkId>], end: u32) -> Vec<u32> {
    let mut next = vec![NONE; out.len()];
    let mut seen = vec![false; out.len()];
    let mut queue = VecDeque::from([end]);
    seen[end as usize] = true;
    while let Some(s) = queue.pop_front() {
        for link in &out[s as usize] {
            let Node::Switch(from) = topo.to(*link) else { continue };
            if !std::mem::replace(&mut seen[from.0 as usize], true) {
                next[from.0 as usize] = link.reverse().0;
                queue.push_back(from.0);
            }
        }
    }
    next
}

/// Wire bytes of a pure acknowledgment with one bitmap word and one echo.
pub const fn ack_wire_bytes() -> u32 {
    wire_bytes((HEADER_BYTES + ACK_FIXED_BYTES + ACK_WORD_BYTES + ACK_ECHO_BYTES) as u32)
}

/// Sizes of a transport's packets and the definition of a flow's end.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    /// Payload of a full packet in bytes.
    pub mtu: u32,
    /// Bytes of headers per packet, preamble and gap included.
    pub headers: u32,
    /// Least size of a packet in bytes.
    pub least: u32,
    /// The moment at which a flow counts as complete.
    pub end: FlowEndAt,
    /// Whether data travel from a flow's second host to its first, on a request of the first.
    pub reads: bool,
}

/// See [`Framing::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEndAt {
    /// The sender has the last acknowledgment.
    Sender,
    /// The receiver has the last byte.
    Receiver,
    /// The slower link has carried the last byte.
    Link,
}

impl Framing {
    /// Packets of type `kind` with up to `mtu` bytes of payload, without acknowledgment blocks.
    pub fn new(mtu: u32, kind: PacketType) -> Self {
        let udp = (HEADER_BYTES + kind.body_bytes()) as u32;
        let headers = udp + wire_bytes(PLENTY) - PLENTY;
        Self { mtu, headers, least: wire_bytes(0), end: FlowEndAt::Sender, reads: false }
    }
    /// TCP segments of up to `mss` bytes with `headers` bytes from IP's header to the gap.
    pub const fn tcp(mss: u32, headers: u32) -> Self {
        Self { mtu: mss, headers, least: 0, end: FlowEndAt::Receiver, reads: false }
    }
    /// A copy for flows that are complete when their sender has the last acknowledgment.
    #[must_use]
    pub const fn ends_at_sender(mut self) -> Self {
        self.end = FlowEndAt::Sender;
        self
    }
    /// Payload without headers.
    pub const fn ideal() -> Self {
        Self { mtu: PLENTY, headers: 0, least: 0, end: FlowEndAt::Link, reads: false }
    }
    /// Bytes on the wire of a packet with `payload` bytes.
    fn packet(&self, payload: u32) -> u64 {
        (self.headers + payload).max(self.least).into()
    }
    /// Number of data packets of a flow.
    pub fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.mtu.into()).max(1)
    }
    /// Bytes on the wire of a full packet.
    pub fn full(&self) -> u64 {
        self.packet(self.mtu)
    }
    /// Bytes on the wire of all data packets of a flow, without retransmissions.
    pub fn wire(&self, bytes: u64) -> u64 {
        let last = bytes - (self.packets(bytes) - 1) * u64::from(self.mtu);
        (self.packets(bytes) - 1) * self.full() + self.packet(last as u32)
    }
}

/// Properties of a flow that its floor depends on.
#[derive(Clone, Copy, Debug)]
pub struct FloorFlow {
    /// Sender.
    pub src: HostId,
    /// Receiver.
    pub dst: HostId,
    /// Payload in bytes.
    pub bytes: u64,
    /// Group of flows that start together and compete.
    pub group: u32,
}

/// Properties of a receiver's ring that floors depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Rate at which packets are written to memory.
    pub bits_per_s: u64,
    /// Bytes that may still wait in the ring when a flow ends.
    pub waiting_bytes: u64,
    /// Delay from the end of waiting to the flow's end.
    pub delay_ps: Ps,
}

impl Drain {
    /// The shortest time in which the ring accepts `bytes`.
    fn least_ps(&self, bytes: u64) -> Ps {
        let bits = u128::from(bytes.saturating_sub(self.waiting_bytes)) * 8;
        (bits * 1_000_000_000_000 / u128::from(self.bits_per_s)) as Ps
    }
}

/// Drains by host; other hosts have no ring.
pub type Drains = FxHashMap<u32, Drain>;

/// The floor of each flow in ps, by its slower end; a receiver's rate is the lower of its link's
/// and its drain's.
pub fn floors(topo: &Topology, framing: &Framing, flows: &[FloorFlow], drains: &Drains) -> Vec<Ps> {
    let mut ways = Ways::new(topo);
    let mut ends: FxHashMap<(LinkId, u32), Vec<u64>> = FxHashMap::default();
    let turned = |f: &FloorFlow| {
        if framing.reads { FloorFlow { src: f.dst, dst: f.src, ..*f } } else { *f }
    };
    let flows: Vec<FloorFlow> = flows.iter().map(turned).collect();
    for f in &flows {
        let (first, last) = (ways.uplink(f.src), ways.uplink(f.dst).reverse());
        ends.entry((first, f.group)).or_default().push(framing.wire(f.bytes));
        // With a single cable both ends are the same link.
        if last != first {
            ends.entry((last, f.group)).or_default().push(framing.wire(f.bytes));
        }
    }
    let mut rtts: FxHashMap<(u32, u32), Ps> = FxHashMap::default();
    let floor = |f: &FloorFlow| {
        let own = framing.wire(f.bytes);
        // With fair sharing, no competing flow has sent more than this flow when it ends.
        let bytes_at =
            |link: LinkId| ends[&(link, f.group)].iter().map(|b| (*b).min(own)).sum::<u64>();
        let at_end = |link: LinkId| topo.port(link).serialise_ps(bytes_at(link));
        let (first, last) = (ways.uplink(f.src), ways.uplink(f.dst).reverse());
        let drain = drains.get(&f.dst.0);
        let taken = drain.map_or(0, |d| d.least_ps(bytes_at(last)));
        let late = drain.map_or(0, |d| d.delay_ps);
        let packet = framing.full().min(own);
        let after = *rtts.entry((f.src.0, f.dst.0)).or_insert_with(|| match framing.end {
            FlowEndAt::Sender => ways.base_rtt(f.src, f.dst, packet),
            FlowEndAt::Receiver => ways.base_delay(f.src, f.dst, packet),
            FlowEndAt::Link => 0,
        });
        at_end(first).max(at_end(last)).max(taken) + after + late
    };
    flows.iter().map(floor).collect()
}
