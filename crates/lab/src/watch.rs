//! A receiver's records of arriving payload: bytes per interval, and order.

use crate::result::OrderCost;
use crate::stats::Quantiles;
use srd_fabric::{NS, Ps};
use std::collections::BTreeMap;

/// Bits of a remote address that hold the position within a flow; the flow's index is above.
const POSITION_BITS: u32 = 38;
/// Address of warm-up flows, above all others.
const WARM_ADDRESS: u64 = 1 << 60;

/// Remote address of byte `position` of flow `flow`; `None`: a warm-up flow.
pub const fn address_of(flow: Option<u32>, position: u64) -> u64 {
    let place = position & ((1 << POSITION_BITS) - 1);
    match flow {
        Some(flow) => (flow as u64) << POSITION_BITS | place,
        None => WARM_ADDRESS | place,
    }
}

/// Flow and position of a remote address; `None`: a warm-up flow.
pub const fn place_of(address: u64) -> Option<(u32, u64)> {
    if address >= WARM_ADDRESS {
        return None;
    }
    Some(((address >> POSITION_BITS) as u32, address & ((1 << POSITION_BITS) - 1)))
}

/// Selection of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchSpec {
    /// Width of the intervals in which payload is counted; 0 = not counted.
    pub bucket_ps: Ps,
    /// Whether to count each flow separately, too.
    pub flows: bool,
    /// Whether to record how long packets wait for earlier ones.
    pub order: bool,
    /// Whether to drop packets that arrive before an earlier one of their flow.
    pub drop_early: bool,
    /// Whether to report the progress of flows to the board.
    pub progress: bool,
    /// Whether to report payload to the board, which derives arrivals of flows.
    pub arrivals: bool,
}

/// Order of one flow.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// Position up to which everything has arrived.
    next: u64,
    /// Packets beyond `next`: length and arrival.
    early: BTreeMap<u64, (u32, Ps)>,
}

/// Records of one host.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    spec: WatchSpec,
    placed: Vec<u64>,
    flows: BTreeMap<u32, Vec<u64>>,
    streams: BTreeMap<u32, Stream>,
    /// Waiting times of packets in ns.
    waits: Vec<u32>,
    early: u64,
    held: u64,
    held_max: u64,
    dropped: u64,
}

fn count(series: &mut Vec<u64>, bucket: usize, bytes: u32) {
    if series.len() <= bucket {
        series.resize(bucket + 1, 0);
    }
    series[bucket] += u64::from(bytes);
}

impl Watch {
    /// Empty records.
    pub fn new(spec: WatchSpec) -> Self {
        Self { spec, ..Self::default() }
    }

    /// Whether anything is recorded.
    #[inline]
    pub const fn is_on(&self) -> bool {
        let s = &self.spec;
        s.bucket_ps > 0 || s.order || s.progress || s.arrivals
    }

    /// Whether the progress of flows is reported.
    pub const fn has_progress(&self) -> bool {
        self.spec.progress
    }

    /// Whether arrivals of flows are derived.
    pub const fn has_arrivals(&self) -> bool {
        self.spec.arrivals
    }

    /// Whether the receiver drops a packet for `address` because an earlier one is missing.
    pub fn drops(&mut self, address: u64, bytes: u32) -> bool {
        if !self.spec.drop_early {
            return false;
        }
        let Some((flow, position)) = place_of(address) else { return false };
        let stream = self.streams.entry(flow).or_default();
        if position > stream.next {
            self.dropped += 1;
            return true;
        }
        stream.next = stream.next.max(position + u64::from(bytes));
        false
    }

    /// Records that `bytes` were placed at `address`.
    pub fn placed(&mut self, now: Ps, address: u64, bytes: u32) {
        let place = place_of(address);
        if let Some(bucket) = now.checked_div(self.spec.bucket_ps) {
            count(&mut self.placed, bucket as usize, bytes);
            if let (true, Some((flow, _))) = (self.spec.flows, place) {
                count(self.flows.entry(flow).or_default(), bucket as usize, bytes);
            }
        }
        if let (true, false, Some((flow, position))) =
            (self.spec.order, self.spec.drop_early, place)
        {
            self.order_note(now, flow, position, bytes);
        } else if self.spec.order && place.is_some() {
            self.waits.push(0);
        }
    }

    fn order_note(&mut self, now: Ps, flow: u32, position: u64, bytes: u32) {
        let stream = self.streams.entry(flow).or_default();
        if position > stream.next {
            stream.early.insert(position, (bytes, now));
            self.early += 1;
            self.held += u64::from(bytes);
            self.held_max = self.held_max.max(self.held);
            return;
        }
        self.waits.push(0);
        stream.next = stream.next.max(position + u64::from(bytes));
        while let Some(first) = stream.early.first_entry() {
            if *first.key() > stream.next {
                return;
            }
            let (at, (len, since)) = first.remove_entry();
            stream.next = stream.next.max(at + u64::from(len));
            self.held -= u64::from(len);
            self.waits.push(((now - since) / NS).min(u32::MAX.into()) as u32);
        }
    }

    /// Payload bytes per interval.
    pub fn series(&self) -> &[u64] {
        &self.placed
    }

    /// Payload bytes of each flow per interval.
    pub fn flows(&self) -> &BTreeMap<u32, Vec<u64>> {
        &self.flows
    }

    /// Cost of in-order delivery over all hosts; `None` if it was not recorded.
    pub fn order_cost<'a>(hosts: impl Iterator<Item = &'a Self>) -> Option<OrderCost> {
        let mut cost = OrderCost::default();
        let mut waits = Vec::new();
        let mut any = false;
        for w in hosts.filter(|w| w.spec.order) {
            any = true;
            waits.extend(w.waits.iter().map(|ns| f64::from(*ns) / 1e3));
            cost.early += w.early;
            cost.held_bytes_max = cost.held_bytes_max.max(w.held_max);
            cost.dropped += w.dropped;
        }
        cost.packets = waits.len() as u64;
        let q = Quantiles::of(waits);
        (cost.wait_us_mean, cost.wait_us_p99, cost.wait_us_max) = (q.mean, q.p99, q.max);
        any.then_some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_fabric::US;

    #[test]
    fn addresses_hold_flow_and_position() {
        for (flow, position) in [(0, 0), (7, 4096), (1 << 20, (1 << 38) - 1)] {
            assert_eq!(place_of(address_of(Some(flow), position)), Some((flow, position)));
        }
        assert_eq!(place_of(address_of(None, 5)), None);
    }

    #[test]
    fn early_packets_wait_for_the_missing_one() {
        let mut w = Watch::new(WatchSpec { order: true, ..WatchSpec::default() });
        let at = |position| address_of(Some(3), position);
        w.placed(US, at(0), 100);
        w.placed(2 * US, at(200), 100);
        w.placed(3 * US, at(300), 50);
        w.placed(6 * US, at(100), 100);
        let cost = Watch::order_cost([w].iter()).unwrap();
        assert_eq!((cost.packets, cost.early, cost.held_bytes_max), (4, 2, 150));
        assert_eq!((cost.wait_us_max, cost.wait_us_mean), (4.0, 7.0 / 4.0));
    }

    #[test]
    fn a_receiver_in_order_drops_what_comes_early() {
        let spec = WatchSpec { order: true, drop_early: true, ..WatchSpec::default() };
        let mut w = Watch::new(spec);
        let at = |position| address_of(Some(0), position);
        assert!(!w.drops(at(0), 100) && w.drops(at(200), 100));
        assert!(!w.drops(at(100), 100) && !w.drops(at(200), 100) && !w.drops(at(0), 100));
        assert_eq!(Watch::order_cost([w].iter()).unwrap().dropped, 1);
    }
}
