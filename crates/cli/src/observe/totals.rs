//! Totals over all processes that never go back: those of processes that ended stay in them.
//!
//! A monitoring system takes a counter that went back for one that began again at zero, so a sum
//! over the processes that happen to run would look like much traffic whenever one of them ends.

use super::rates::{Key, key};
use srd_share::status::{Counter, Path, Status, StatusRow};
use std::{collections::BTreeMap, net::IpAddr};

/// Most paths to count; those beyond are not counted.
const PATHS_MAX: usize = 16_384;

/// Most names of devices: users choose them. What devices with more names do is counted as that of
/// [`OTHER`].
const DEVICES_MAX: usize = 256;
/// Name for the devices beyond.
const OTHER: &str = "other";

/// A path of a device to an address.
pub type PathKey = (String, IpAddr, u8);

/// What is counted of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTotal {
    /// Packets sent.
    pub sent: u64,
    /// Of these, declared lost.
    pub lost: u64,
    /// Acknowledged with the mark CE.
    pub ce: u64,
}

/// What is known of an open device.
#[derive(Debug)]
struct Seen {
    counters: [u64; Counter::COUNT],
    paths: BTreeMap<(IpAddr, u8), PathTotal>,
    /// Whether the device was opened after counting began: all that it did counts.
    is_new: bool,
}

/// See the module. Counting begins with the first [`Totals::add`].
#[derive(Debug, Default)]
pub struct Totals {
    /// By name of the device.
    pub devices: BTreeMap<String, [u64; Counter::COUNT]>,
    /// By path.
    pub paths: BTreeMap<PathKey, PathTotal>,
    /// Whether there were more paths than can be counted.
    pub paths_dropped: u64,
    open: BTreeMap<Key, Seen>,
    began: bool,
}

impl Totals {
    /// Adds what the devices did since the last call. What they did before the first call does not
    /// count: the counters begin at zero when the exporter does.
    pub fn add(&mut self, rows: &[StatusRow], with_paths: bool) {
        let mut open = BTreeMap::new();
        for row in rows {
            let s = &row.status;
            let mut seen = self.open.remove(&key(row)).unwrap_or_else(|| Seen {
                counters: if self.began { [0; Counter::COUNT] } else { s.counters },
                paths: BTreeMap::new(),
                is_new: self.began,
            });
            let fits =
                self.devices.len() < DEVICES_MAX || self.devices.contains_key(s.name.as_str());
            let name = if fits { s.name.as_str() } else { OTHER };
            let total = self.devices.entry(name.to_owned()).or_insert([0; Counter::COUNT]);
            for (i, now) in s.counters.iter().enumerate() {
                total[i] = total[i].saturating_add(now.saturating_sub(seen.counters[i]));
            }
            seen.counters = s.counters;
            if with_paths {
                self.paths_add(s, &mut seen);
            }
            open.insert(key(row), seen);
        }
        (self.open, self.began) = (open, true);
    }

    fn paths_add(&mut self, s: &Status, seen: &mut Seen) {
        for peer in &s.peers {
            for path in &peer.paths {
                let now = PathTotal::of(path);
                let first = if seen.is_new { PathTotal::default() } else { now };
                let at = (s.name.clone(), peer.ip, path.path);
                if self.paths.len() >= PATHS_MAX && !self.paths.contains_key(&at) {
                    self.paths_dropped += 1;
                    continue;
                }
                let then = seen.paths.insert((peer.ip, path.path), now).unwrap_or(first);
                let total = self.paths.entry(at).or_default();
                let add = |total: &mut u64, now: u64, then: u64| {
                    *total = total.saturating_add(now.saturating_sub(then));
                };
                add(&mut total.sent, now.sent, then.sent);
                add(&mut total.lost, now.lost, then.lost);
                add(&mut total.ce, now.ce, then.ce);
            }
        }
    }
}

impl PathTotal {
    fn of(path: &Path) -> Self {
        Self { sent: path.packets_sent, lost: path.packets_lost, ce: path.packets_ce }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_share::status::Peer;

    fn row(pid: u32, packets: u64) -> StatusRow {
        let mut s = Status { name: "srd0".into(), ..Status::default() };
        s.counters[Counter::TxPkts as usize] = packets;
        let path = Path { path: 3, packets_sent: packets, ..Path::default() };
        s.peers.push(Peer { paths: vec![path], ..Peer::default() });
        StatusRow { pid, uid: 0, network: 1, status: s, before: None }
    }

    #[test]
    fn totals_begin_at_zero_and_keep_what_ended_processes_did() {
        let mut totals = Totals::default();
        let mut after = |rows: &[StatusRow]| {
            totals.add(rows, true);
            let paths: u64 = totals.paths.values().map(|p| p.sent).sum();
            let packets = totals.devices.get("srd0").map_or(0, |c| c[Counter::TxPkts as usize]);
            assert_eq!(packets, paths);
            packets
        };
        assert_eq!(after(&[row(1, 1_000)]), 0, "before counting began");
        assert_eq!(after(&[row(1, 1_010), row(2, 5)]), 15, "a new process counts from its start");
        assert_eq!(after(&[row(2, 6)]), 16, "what the ended one did stays");
        assert_eq!(after(&[]), 16);
        assert_eq!(after(&[row(1, 7)]), 23, "another process with the same number");
    }

    /// What root exports, other users wrote.
    #[test]
    fn names_and_numbers_that_users_choose_have_bounds() {
        let mut totals = Totals::default();
        totals.add(&[], false);
        for i in 0..10 * DEVICES_MAX {
            let mut liar = row(1, u64::MAX);
            liar.status.name = format!("srd{i}");
            liar.status.opened_ns = i as u64;
            totals.add(&[liar], false);
        }
        assert_eq!(totals.devices.len(), DEVICES_MAX + 1);
        assert_eq!(totals.devices[OTHER][Counter::TxPkts as usize], u64::MAX);
    }
}
