//! A rate limit per flow at its sender's card, as clouds have one: one token bucket for each pair
//! of addresses and ports.
//!
//! A host hands packets to its card at most at the rate of its link, packets that the card drops
//! included. A packet leaves for the card's queue when the bucket of its flow holds enough bytes.
//! Until then it waits behind the earlier packets of its flow, without delaying other flows. A
//! bucket is stored as one number, the time at which it will be full again, so a packet's departure
//! is known on arrival.

use crate::event::{Event, SHAPED};
use crate::host::Outbound;
use crate::link::Profile;
use crate::net::Net;
use crate::stats::DropReason;
use crate::topo::{HostId, Port, Ps};
use std::collections::BTreeMap;
use std::fmt;

/// Most flows of a host whose buckets its card keeps at the same time.
pub const LIMITED_FLOWS_MAX: usize = 16_384;

/// The rate limit of each flow at its sender's card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimit {
    /// Rate at which a bucket fills, in bits on the wire per second.
    pub bits_per_s: u64,
    /// Size of a bucket in bytes: what a flow may send at once. A larger packet needs a full
    /// bucket.
    pub burst_bytes: u64,
    /// Limit of a flow's waiting bytes: a packet that would wait longer than this many bytes take
    /// at `bits_per_s` is dropped as [`DropReason::BufferFull`] of the host's link.
    pub queue_bytes: u64,
}

/// Why a limit was refused. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowLimitError(String);

impl fmt::Display for FlowLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FlowLimitError {}

/// Counters of a card that limits its flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowLimitStats {
    /// Flows that the card has seen. A flow whose full bucket was discarded to make room counts
    /// again.
    pub flows: u64,
    /// Packets that waited for their bucket.
    pub waited: u64,
    /// Packets dropped because too many bytes of their flow waited, or because too many other flows
    /// had buckets that were not full.
    pub dropped: u64,
    /// Longest wait of a packet, ps.
    pub wait_ps_max: Ps,
}

/// The buckets of one card.
#[derive(Clone, Debug, Default)]
struct Card {
    /// For each flow, the time at which its bucket will be full.
    full_at: BTreeMap<u64, Ps>,
    /// When the host will have handed over all packets that it has sent so far.
    taken_at: Ps,
    stats: FlowLimitStats,
}

/// Limits of all cards.
#[derive(Clone, Debug)]
pub(crate) struct FlowLimits {
    rate: Profile,
    burst_ps: Ps,
    queue_ps: Ps,
    cards: Vec<Card>,
}

impl FlowLimits {
    fn new(limit: FlowLimit, hosts: usize) -> Self {
        let rate = Profile::new(Port::new(limit.bits_per_s, 0));
        Self {
            rate,
            burst_ps: rate.bytes_to_ps(limit.burst_bytes),
            queue_ps: rate.bytes_to_ps(limit.queue_bytes),
            cards: vec![Card::default(); hosts],
        }
    }

    /// Takes the tokens of a packet that the host needs `line_ps` to hand over. Returns when the
    /// packet may leave, or `None` if it must be dropped.
    fn take(&mut self, host: u32, flow: u64, bytes: u32, now: Ps, line_ps: Ps) -> Option<Ps> {
        let card = &mut self.cards[host as usize];
        let now = now.max(card.taken_at);
        card.taken_at = now + line_ps;
        let own = self.rate.serialise_ps(bytes);
        let full_at = match card.full_at.get_mut(&flow) {
            Some(full_at) => full_at,
            None => {
                if card.full_at.len() >= LIMITED_FLOWS_MAX {
                    // A full bucket is the same as that of a new flow, so it can be discarded.
                    card.full_at.retain(|_, full_at| *full_at > now);
                }
                if card.full_at.len() >= LIMITED_FLOWS_MAX {
                    card.stats.dropped += 1;
                    return None;
                }
                card.stats.flows += 1;
                card.full_at.entry(flow).or_insert(now)
            }
        };
        // Tokens suffice once the time until the bucket is full is at most that of the rest of the
        // burst.
        let rest = self.burst_ps.saturating_sub(own);
        let leaves = now.max(full_at.saturating_sub(rest));
        let wait = leaves - now;
        if wait > self.queue_ps {
            card.stats.dropped += 1;
            return None;
        }
        *full_at = leaves.max(*full_at) + own;
        card.stats.waited += u64::from(wait > 0);
        card.stats.wait_ps_max = card.stats.wait_ps_max.max(wait);
        Some(leaves)
    }
}

impl<P> Net<P> {
    /// Limits the flows of all cards.
    pub fn flow_limit_set(&mut self, limit: FlowLimit) -> Result<(), FlowLimitError> {
        let fail = |text: String| Err(FlowLimitError(text));
        if self.lossless.is_some() {
            return fail(
                "a limit of flows drops packets, and this network loses none: use \
                 FlowControl::Drop"
                    .into(),
            );
        }
        let rates = self.hosts.iter().map(|h| self.cold[h.nic as usize].built.bits_per_s);
        let line = rates.min().unwrap_or(0);
        if limit.bits_per_s == 0 || limit.bits_per_s > line {
            return fail(format!(
                "a flow's limit of {} bit/s must be above 0 and at most {line}, the rate of the \
                 slowest host's link",
                limit.bits_per_s
            ));
        }
        if limit.burst_bytes == 0 {
            return fail("a flow's limit needs a burst of at least 1 byte".into());
        }
        self.limits = Some(Box::new(FlowLimits::new(limit, self.hosts.len())));
        Ok(())
    }

    /// Puts a packet into the queue of its card as soon as the limit of its flow permits.
    #[cold]
    pub fn limited_send(&mut self, from: HostId, out: &Outbound, event: Event) {
        let nic = self.hosts[from.0 as usize].nic;
        let flow = u64::from(out.dst.0) << 32 | u64::from(out.sport) << 16 | u64::from(out.dport);
        let now = self.now;
        let profile = self.links[nic as usize].profile;
        let line_ps = self.profiles[profile as usize].serialise_ps(out.bytes);
        let limits = self.limits.as_deref_mut();
        match limits.map_or(Some(now), |l| l.take(from.0, flow, out.bytes, now, line_ps)) {
            None => self.discard(Some(nic), event.b, DropReason::BufferFull),
            Some(leaves) if leaves <= now => self.enqueue(nic, event),
            Some(leaves) => {
                let waits = Event { to: from.0, ..event }.of_kind(SHAPED, nic);
                self.schedule(leaves, waits);
            }
        }
    }

    /// When a card with limits will have taken all packets that its host has sent; 0 without
    /// limits.
    pub fn limit_taken_at(&self, host: HostId) -> Ps {
        self.limits.as_ref().map_or(0, |l| l.cards[host.0 as usize].taken_at)
    }

    /// Queues a packet that has waited: the bucket of its flow now holds enough bytes.
    pub fn limit_due(&mut self, event: Event) {
        self.enqueue(event.id(), event);
    }

    /// Counters of a host's card; `None` without a limit.
    pub fn flow_limit_stats(&self, host: HostId) -> Option<FlowLimitStats> {
        Some(self.limits.as_ref()?.cards[host.0 as usize].stats)
    }
}
