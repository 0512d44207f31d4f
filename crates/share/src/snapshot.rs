//! The table as a tool shows it.

use crate::layout::{ADDRESSES, EntryWord, MemberWord, SeatWord, entry_at, member_at, seat_at};
use crate::process::Owner;
use crate::table::{Table, delivered_of};
use std::net::{IpAddr, Ipv6Addr};

/// What was said until so long ago is shown, unless its process has said that it is over, ns.
const SHOWN_NS: u64 = 300_000_000;

/// An engine that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Number of the slot.
    pub member: usize,
    /// Its process.
    pub pid: u32,
    /// Age of what it said last, ns; `None`: nothing yet.
    pub quiet_ns: Option<u64>,
}

/// What one engine says of one remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatRow {
    /// Number of the engine's slot.
    pub member: usize,
    /// Its process.
    pub pid: u32,
    /// Address of this host.
    pub local: IpAddr,
    /// The remote address.
    pub remote: IpAddr,
    /// It would send more if it might.
    pub backlogged: bool,
    /// Engines that send there.
    pub senders: u32,
    /// Bytes per second that it paces.
    pub rate_own: u64,
    /// Bytes per second that the host may send there, as this engine sees it; 0 = not known.
    pub rate_host: u64,
    /// Bytes per second that lately arrived.
    pub delivered: u64,
    /// Bytes in flight, and their cap; `u32::MAX` = that or more.
    pub inflight: u32,
    /// See `inflight`.
    pub inflight_max: u32,
    /// Least round trip in ns; 0 = none measured.
    pub rtt_ns_min: u32,
    /// Smoothed round trip in ns; 0 = none measured.
    pub rtt_ns_smoothed: u32,
    /// Packets sent to the address (wraps).
    pub packets_sent: u32,
    /// Of these, packets declared lost (wraps).
    pub packets_lost: u32,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Engines of processes that live.
    pub members: Vec<MemberRow>,
    /// What they say of the addresses that they send to now.
    pub seats: Vec<SeatRow>,
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Table {
    /// What is in the table at `now_ns` of the host's clock.
    pub fn snapshot(&self, now_ns: u64, alive: impl Fn(Owner) -> bool) -> Snapshot {
        let mut shot = Snapshot::default();
        for member in 0..self.top() {
            let owner = Owner::from_word(self.load(member_at(member, MemberWord::Owner)));
            if let Some(owner) = owner.filter(|o| alive(*o)) {
                let heard = self.load(member_at(member, MemberWord::Heard));
                let quiet_ns = (heard != 0).then(|| now_ns.saturating_sub(heard));
                shot.members.push(MemberRow { member, pid: owner.pid(), quiet_ns });
            }
        }
        for entry in 0..ADDRESSES {
            let key = self.load(entry_at(entry, EntryWord::Key));
            if key == 0 {
                continue;
            }
            let first = shot.seats.len();
            for m in &shot.members {
                // Who has not run for a moment sends nothing now, but is worth a line.
                let lately = now_ns.saturating_sub(SHOWN_NS);
                let shown = [now_ns, lately, lately + SHOWN_NS / 2];
                let until = shown.iter().find_map(|&t| self.seat_until(entry, m.member, key, t));
                if let Some(until) = until {
                    shot.seats.push(self.seat(entry, m, until & 1 == 1));
                }
            }
            let senders = (shot.seats.len() - first) as u32;
            shot.seats[first..].iter_mut().for_each(|s| s.senders = senders);
        }
        shot
    }

    fn seat(&self, entry: usize, of: &MemberRow, backlogged: bool) -> SeatRow {
        let load = |word| self.load(seat_at(entry, of.member, word));
        let (inflight, rtt) = (load(SeatWord::Inflight), load(SeatWord::Rtt));
        let packets = load(SeatWord::Packets);
        SeatRow {
            member: of.member,
            pid: of.pid,
            local: self.address(entry, EntryWord::Local, EntryWord::LocalLow),
            remote: self.address(entry, EntryWord::Remote, EntryWord::RemoteLow),
            backlogged,
            senders: 0,
            rate_own: load(SeatWord::RateOwn),
            rate_host: load(SeatWord::RateHost),
            delivered: delivered_of(load(SeatWord::Delivered)).0,
            inflight: high(inflight),
            inflight_max: inflight as u32,
            rtt_ns_min: high(rtt),
            rtt_ns_smoothed: rtt as u32,
            packets_sent: high(packets),
            packets_lost: packets as u32,
        }
    }

    fn address(&self, entry: usize, top: EntryWord, low: EntryWord) -> IpAddr {
        let (top, low) = (self.load(entry_at(entry, top)), self.load(entry_at(entry, low)));
        Ipv6Addr::from_bits(u128::from(top) << 64 | u128::from(low)).to_canonical()
    }
}
