//! What was counted: the whole network, each link, chosen links over time.

use crate::topo::{HostId, LinkId, Ps};

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// The output queue was full.
    BufferFull,
    /// The link it was to take is down.
    LinkDown,
    /// It was queued or on the wire when the link went down.
    Cut,
    /// Swallowed by a black hole.
    BlackHole,
    /// Gray loss.
    Loss,
    /// Loss in bursts.
    BurstLoss,
    /// A link loses this flow.
    FlowHole,
    /// Larger than the link's MTU.
    Mtu,
    /// No way to the destination.
    NoRoute,
    /// Passed more than [`HOPS_MAX`] switches.
    HopLimit,
    /// Its host had no room: its ring was full, or it was stalled and held all it could.
    HostFull,
}

/// Most switches a packet may pass; routing that changes under way can lead it in circles.
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
    /// Name in tables.
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
    /// Packets dropped for one reason.
    pub const fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }
    /// Packets dropped by hosts.
    pub const fn at_hosts(&self) -> u64 {
        self.of(DropReason::HostFull)
    }
    /// Packets dropped.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Packets of the whole network. Always `sent + duplicated = delivered + drops.total() +
/// in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Handed to a card by a host.
    pub sent: u64,
    /// Copies the network made.
    pub duplicated: u64,
    /// Given to a host.
    pub delivered: u64,
    /// Bytes given to hosts.
    pub delivered_bytes: u64,
    /// Lost, by reason.
    pub drops: Drops,
    /// Still queued, on a wire or held for a stalled host.
    pub in_flight: u64,
    /// Marks "congestion experienced" set by queues.
    pub marked: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Events handled.
    pub events: u64,
}

impl Totals {
    /// Whether every packet is accounted for.
    pub fn conserved(&self) -> bool {
        self.sent + self.duplicated == self.delivered + self.drops.total() + self.in_flight
    }
}

/// Counters of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets its queue took.
    pub packets: u64,
    /// Bytes its queue took.
    pub bytes: u64,
    /// Largest backlog in bytes, the arriving packet included.
    pub queue_bytes_max: u64,
    /// Packets its queue marked.
    pub marked: u64,
    /// Packets lost here, by reason.
    pub drops: Drops,
}

/// One link at one moment; see [`World::links_sample`](crate::World::links_sample).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// Bytes that have left since the start: what the queue took less what it holds. Bytes lost in
    /// the queue when the carrier went count as having left.
    pub sent_bytes: u64,
    /// Packets its queue took since the start.
    pub packets: u64,
    /// Backlog in bytes, the packet on the wire included.
    pub queue_bytes: u64,
    /// Largest backlog in bytes since the sample before.
    pub queue_bytes_max: u64,
}

/// One interval of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes whose last bit was sent in it.
    pub bytes: u64,
    /// Largest backlog in bytes seen by a packet arriving in it, that packet included.
    pub queue_bytes_max: u64,
    /// Packets dropped in it.
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
    /// Length of an interval.
    pub const fn bucket_ps(&self) -> Ps {
        self.bucket_ps
    }
    /// The links watched, in ascending order.
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
    /// A link's intervals from time 0; those after the last event are missing.
    pub fn series(&self, link: LinkId) -> Option<&[Bucket]> {
        let at = self.links.binary_search(&link).ok()?;
        Some(&self.series[at])
    }
    /// The interval of a watched link at `time`.
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
    /// Handed to the card.
    Sent,
    /// About to be given to its host.
    Delivered,
    /// Lost.
    Dropped(DropReason),
    /// Marked by a queue.
    Marked,
    /// Damaged.
    Corrupted,
    /// A second copy was made.
    Duplicated,
    /// Will arrive later by this.
    Delayed(Ps),
}

/// Something that happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapEvent {
    /// When.
    pub now: Ps,
    /// What.
    pub what: TapWhat,
    /// Where; `None` for what happens at a host.
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
    /// When it was sent.
    pub sent_ps: Ps,
    /// Number of its place in memory: tells packets in flight apart, is used again later.
    pub packet: u32,
}

/// Sees everything that happens to packets: for traces and captures. It must not change the run,
/// and cannot: it gets no access to the network.
pub trait Tap<P> {
    /// Something happened to a packet that carries `payload`.
    fn on_event(&mut self, event: &TapEvent, payload: &P);
}
