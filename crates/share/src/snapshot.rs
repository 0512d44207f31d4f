//! A copy of the table's content, for tools that display it.

use crate::layout::{ADDRESSES, EntryWord, MemberWord, SeatWord, entry_at, member_at, seat_at};
use crate::process::Owner;
use crate::table::{Table, delivered_of};
use std::net::{IpAddr, Ipv6Addr};

/// A seat that expired up to this long ago is still shown, unless its member cleared it, ns.
const SHOWN_NS: u64 = 300_000_000;

/// An engine that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Number of the slot.
    pub member: usize,
    /// Number of the process that the engine belongs to.
    pub pid: u32,
    /// Time since the member last wrote that it is alive, ns; `None`: it has not written yet.
    pub quiet_ns: Option<u64>,
}

/// State of one engine about one remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatRow {
    /// Number of the engine's slot.
    pub member: usize,
    /// Number of the process that the engine belongs to.
    pub pid: u32,
    /// Address of this host.
    pub local: IpAddr,
    /// The remote address.
    pub remote: IpAddr,
    /// Whether the engine has a backlog: it would send more if it might.
    pub backlogged: bool,
    /// Number of engines that send to the remote address.
    pub senders: u32,
    /// Pacing rate of the engine, bytes per second.
    pub rate_own: u64,
    /// Rate at which the host may send there, as this engine estimates it, bytes per second; 0 =
    /// unknown.
    pub rate_host: u64,
    /// Delivery rate of the engine in the last round trip, bytes per second.
    pub delivered: u64,
    /// Bytes in flight; `u32::MAX` = that many or more.
    pub inflight: u32,
    /// Congestion window in bytes; `u32::MAX` = that many or more.
    pub inflight_max: u32,
    /// Minimum RTT in ns; 0 = none measured.
    pub rtt_ns_min: u32,
    /// Smoothed RTT in ns; 0 = none measured.
    pub rtt_ns_smoothed: u32,
    /// Packets sent to the address (wraps around).
    pub packets_sent: u32,
    /// Packets declared lost of those sent (wraps around).
    pub packets_lost: u32,
}

/// The content of the table at one time; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Engines of processes that are alive.
    pub members: Vec<MemberRow>,
    /// Their state about the remote addresses that they send to, or recently sent to.
    pub seats: Vec<SeatRow>,
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Table {
    /// The content of the table at `now_ns` of the host's clock. `alive` says whether a process is
    /// alive.
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
                // A member that has not run for a moment does not count as a sender now, but is
                // still shown.
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
