//! Counters: of the whole network, of each link, and of chosen links over time.

use crate::topo::{HostId, LinkId, Ps};

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// The output queue was full.
    BufferFull,
    /// The next link is down.
    LinkDown,
    /// The link went down while the packet was queued for it or on its wire.
    Cut,
    /// Lost in a black hole.
    BlackHole,
    /// Random loss that no counter of the network shows (gray failure).
    Loss,
    /// Random loss in bursts.
    BurstLoss,
    /// The link loses all packets of this flow.
    FlowHole,
    /// Larger than the link's MTU.
    Mtu,
    /// No route to the destination.
    NoRoute,
    /// Passed more than [`HOPS_MAX`] switches.
    HopLimit,
    /// The host had no room: its ring was full, or it was stalled and its card held as much as it
    /// can.
    HostFull,
}

/// Most switches that a packet may pass; while routing changes, a packet can travel in circles.
pub const HOPS_MAX: u8 = 64;

/// Number of drop reasons.
pub const DROP_REASONS: usize = 11;

impl DropReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; DROP_REASONS] = [
        Self::BufferFull,
        Self::LinkDown,
        Self::Cut,
        Self::BlackHole,
        Self::Loss,
        Self::BurstLoss,
        Self::FlowHole,
        Self::Mtu,
        Self::NoRoute,
        Self::HopLimit,
        Self::HostFull,
    ];
    /// Name in tables and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer full",
            Self::LinkDown => "link down",
            Self::Cut => "cut",
            Self::BlackHole => "black hole",
            Self::Loss => "loss",
            Self::BurstLoss => "burst loss",
            Self::FlowHole => "flow hole",
            Self::Mtu => "mtu",
            Self::NoRoute => "no route",
            Self::HopLimit => "hop limit",
            Self::HostFull => "host full",
        }
    }
}

/// Packets dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops(pub(crate) [u64; DROP_REASONS]);

impl Drops {
    /// Packets dropped for `reason`.
    pub const fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
    /// Packets dropped by hosts.
    pub const fn at_hosts(&self) -> u64 {
        self.of(DropReason::HostFull)
    }
    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Packets of the whole network. Always `sent + duplicated = delivered + drops.total() +
/// in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that hosts handed to their cards.
    pub sent: u64,
    /// Copies that faulty links made.
    pub duplicated: u64,
    /// Packets delivered to hosts.
    pub delivered: u64,
    /// Bytes delivered to hosts.
    pub delivered_bytes: u64,
    /// Packets lost, by reason.
    pub drops: Drops,
    /// Packets queued, on a wire or held for a stalled host.
    pub in_flight: u64,
    /// "Congestion experienced" marks set by queues.
    pub marked: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Events processed.
    pub events: u64,
}

impl Totals {
    /// Whether the counters account for every packet.
    pub fn conserved(&self) -> bool {
        self.sent + self.duplicated == self.delivered + self.drops.total() + self.in_flight
    }
}

/// Counters of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets that entered its queue.
    pub packets: u64,
    /// Bytes that entered its queue.
    pub bytes: u64,
    /// Largest backlog in bytes, the arriving packet included.
    pub queue_bytes_max: u64,
    /// Packets that its queue marked.
    pub marked: u64,
    /// Packets lost at this link, by reason.
    pub drops: Drops,
}

/// State of one link at one moment; see [`World::links_sample`](crate::World::links_sample).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// Bytes that have left since the start: those that entered the queue, less those that it
    /// holds. Bytes lost in the queue when the carrier failed count as sent.
    pub sent_bytes: u64,
    /// Packets that entered the queue since the start.
    pub packets: u64,
    /// Backlog in bytes, the packet on the wire included.
    pub queue_bytes: u64,
    /// Largest backlog in bytes since the previous sample.
    pub queue_bytes_max: u64,
}

/// One interval of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes whose last bit was sent in the interval.
    pub bytes: u64,
    /// Largest backlog in bytes at the arrival of a packet in the interval, that packet included.
    pub queue_bytes_max: u64,
    /// Packets dropped in the interval.
    pub drops: u64,
}

/// Chosen links over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitor {
    bucket_ps: Ps,
    links: Vec<LinkId>,
    series: Vec<Vec<Bucket>>,
}

impl Monitor {
    pub(crate) fn new(mut links: Vec<LinkId>, bucket_ps: Ps) -> Self {
        links.sort_unstable();
        links.dedup();
        Self { bucket_ps: bucket_ps.max(1), series: vec![Vec::new(); links.len()], links }
    }
    /// Length of an interval, ps.
    pub const fn bucket_ps(&self) -> Ps {
        self.bucket_ps
    }
    /// The links watched, in ascending order.
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
    /// A link's intervals from time 0 to the last event; `None` if the link is not watched.
    pub fn series(&self, link: LinkId) -> Option<&[Bucket]> {
        let at = self.links.binary_search(&link).ok()?;
        Some(&self.series[at])
    }
    /// The interval of a link at `time`; `None` if the link is not watched.
    pub(crate) fn at(&mut self, link: u32, time: Ps) -> Option<&mut Bucket> {
        let at = self.links.binary_search(&LinkId(link)).ok()?;
        let bucket = usize::try_from(time / self.bucket_ps).ok()?;
        let series = &mut self.series[at];
        if series.len() <= bucket {
            series.resize(bucket + 1, Bucket::default());
        }
        series.get_mut(bucket)
    }
}

/// An event that a [`Tap`] observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapWhat {
    /// Handed to the sender's card.
    Sent,
    /// About to be delivered to its host.
    Delivered,
    /// Dropped.
    Dropped(DropReason),
    /// Marked by a queue.
    Marked,
    /// Damaged.
    Corrupted,
    /// Duplicated by a faulty link.
    Duplicated,
    /// Delayed by this much.
    Delayed(Ps),
}

/// An event of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapEvent {
    /// Present time.
    pub now: Ps,
    /// Kind of event.
    pub what: TapWhat,
    /// The link; `None` for events at a host.
    pub link: Option<LinkId>,
    /// Sender.
    pub src: HostId,
    /// Destination.
    pub dst: HostId,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Bytes on the wire.
    pub bytes: u32,
    /// When the packet was handed to the sender's card, ps.
    pub sent_ps: Ps,
    /// Index of the packet in memory. Unique among packets in flight, reused later.
    pub packet: u32,
}

/// An observer of all packets, for traces and captures. It has no access to the network, so it
/// cannot change the run.
pub trait Tap<P> {
    /// Reports an event of a packet that carries `payload`.
    fn on_event(&mut self, event: &TapEvent, payload: &P);
}
