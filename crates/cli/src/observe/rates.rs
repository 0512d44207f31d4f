//! Rates of a device between two statuses of it.

use super::stat::{limit, mbps};
use serde::Serialize;
use srd_share::status::{Counter, Limit, Status, StatusRow};
use std::{collections::BTreeMap, net::IpAddr};

/// A device at rest for longer than this has no rates, ns: two times the longest interval at which
/// a device with few peers shows what it does.
const QUIET_NS: u64 = 200_000_000;

/// What identifies a device as long as it is open.
pub type Key = (u64, u32, u16, u64);

/// The key of a device.
pub fn key(row: &StatusRow) -> Key {
    (row.network, row.pid, row.status.port, row.status.opened_ns)
}

/// What a device did per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Messages posted.
    pub messages_per_s: f64,
    /// Bytes of messages sent, Mb/s.
    pub sent_mbps: f64,
    /// Bytes of messages received, Mb/s.
    pub received_mbps: f64,
    /// Packets sent.
    pub packets_per_s: f64,
    /// Packets sent again.
    pub again_per_s: f64,
}

impl Rates {
    /// The rates of a device since `before`, or, without it, between the newest two statuses.
    pub fn of(row: &StatusRow, before: Option<&Status>, now_ns: u64) -> Self {
        let s = &row.status;
        let Some(b) = before.or(row.before.as_ref()) else { return Self::default() };
        let ns = s.written_ns.saturating_sub(b.written_ns);
        let at_rest = before.is_none() && now_ns.saturating_sub(s.written_ns) > QUIET_NS;
        if ns == 0 || at_rest {
            return Self::default();
        }
        let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 * 1e9 / ns as f64;
        let count = |c: Counter| per_s(s.counter(c), b.counter(c));
        Self {
            messages_per_s: per_s(s.messages_sent(), b.messages_sent()),
            sent_mbps: per_s(s.bytes_sent(), b.bytes_sent()) * 8.0 / 1e6,
            received_mbps: per_s(s.bytes_received(), b.bytes_received()) * 8.0 / 1e6,
            packets_per_s: count(Counter::TxPkts),
            again_per_s: count(Counter::RetransPkts),
        }
    }
}

/// What limited the sender to each address most often since `before`, or, without it, lately.
pub fn limits(row: &StatusRow, before: Option<&Status>) -> BTreeMap<IpAddr, Limit> {
    let before = before.or(row.before.as_ref());
    let of = |ip: IpAddr| before.and_then(|b| b.peers.iter().find(|p| p.ip == ip));
    let since =
        |now: [u32; 6], then: [u32; 6]| std::array::from_fn(|i| now[i].wrapping_sub(then[i]));
    let peers = row.status.peers.iter().filter_map(|p| {
        let counts = since(p.limits, of(p.ip).map_or([0; 6], |b| b.limits));
        Some((p.ip, limit(&counts)?))
    });
    peers.collect()
}

/// What limits most of the addresses of a device that have something to send.
pub fn limit_most(of: &BTreeMap<IpAddr, Limit>) -> Option<Limit> {
    let mut counts = [0; 6];
    of.values().for_each(|limit| counts[*limit as usize] += 1);
    limit(&counts)
}

/// Paced rates to all addresses together that have something to send, Mb/s.
pub fn allowed_mbps(s: &Status) -> f64 {
    mbps(s.peers.iter().filter(|p| p.outstanding > 0).map(|p| p.rate_bytes_per_sec).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_share::status::Peer;

    fn status(written_ns: u64, bytes: u64, limits: [u32; 6]) -> Status {
        let mut s = Status { written_ns, ..Status::default() };
        s.counters[Counter::SendBytes as usize] = bytes;
        s.peers.push(Peer { limits, ..Peer::default() });
        s
    }

    #[test]
    fn rates_are_those_of_the_interval_and_zero_at_rest() {
        let (b, s) = (
            status(1_000_000_000, 0, [9, 0, 0, 0, 0, 0]),
            status(1_100_000_000, 12_500, [9, 0, 1, 3, 0, 0]),
        );
        let row =
            StatusRow { pid: 1, uid: 0, network: 1, status: s.clone(), before: Some(b.clone()) };
        let soon = s.written_ns + 1;
        assert_eq!(Rates::of(&row, None, soon).sent_mbps, 1.0);
        assert_eq!(Rates::of(&row, Some(&s), soon), Rates::default(), "nothing since then");
        assert_eq!(Rates::of(&row, None, soon + QUIET_NS), Rates::default(), "at rest");
        assert_eq!(limit_most(&limits(&row, None)), Some(Limit::Window));
        assert_eq!(limit_most(&limits(&row, Some(&s))), None);
        let first = StatusRow { before: None, ..row };
        assert_eq!(Rates::of(&first, None, soon), Rates::default());
        assert_eq!(limit_most(&limits(&first, None)), Some(Limit::Window), "busy counts first");
    }
}
