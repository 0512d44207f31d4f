//! The table: members, and for each remote address the state of each member and the sum of all.

use crate::layout::{
    ADDRESSES, AT_MAGIC, AT_SIZES, AT_TOP, EntryWord, MAGIC, MEMBERS, MemberWord, SIZES, SeatWord,
    WORDS, entry_at, member_at, seat_at,
};
use crate::map::Map;
use crate::process::Owner;
use rustc_hash::FxHashMap;
use srd_core::{HostNote, HostView, Time};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Age from which a sum is recalculated by whichever member reads it, ns.
const SUM_NS: u64 = 10_000;
/// Words with a time further than this in the future are ignored, ns.
const AHEAD_NS_MAX: u64 = 200_000_000;
/// Shortest interval at which a member writes that it is alive, ns.
const HEARD_NS: u64 = 1_000_000;
/// Interval at which engines that hand out grants count each other, ns.
const GRANTS_NS: u64 = 20_000;
/// An engine that hands out grants and does not repeat it for this long no longer counts, ns.
const GRANTS_STALE_NS: u64 = 1_000_000;
/// Time after which a member looks up an entry again, ns: two processes that started at the same
/// moment may have created one entry each for the same address.
const FIND_NS: u64 = 1_000_000_000;

/// The words of a table.
#[derive(Debug)]
enum Words {
    /// In memory of this process.
    Own(Box<[AtomicU64]>),
    /// In a file that others map, too.
    Mapped(Map),
}

/// A table of shared congestion state; see the module. Shared by all engines of a process, or of a
/// simulated host.
#[derive(Debug)]
pub struct Table {
    words: Words,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// An empty table in memory of this process.
    pub fn new() -> Self {
        let words = Words::Own((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let table = Self { words };
        table.label();
        table
    }

    /// The table in a mapped file, which must have [`WORDS`] words.
    pub(crate) fn mapped(map: Map) -> Self {
        Self { words: Words::Mapped(map) }
    }

    /// Writes the words that identify a table. The magic number comes last.
    pub(crate) fn label(&self) {
        self.word(AT_SIZES).store(SIZES, Ordering::Relaxed);
        self.word(AT_MAGIC).store(MAGIC, Ordering::Release);
    }

    /// Whether it is a table of this layout (`true`), something else (`false`), or still empty
    /// (`None`).
    pub(crate) fn is_labelled(&self) -> Option<bool> {
        match self.word(AT_MAGIC).load(Ordering::Acquire) {
            0 => None,
            magic => Some(magic == MAGIC && self.word(AT_SIZES).load(Ordering::Relaxed) == SIZES),
        }
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        match &self.words {
            Words::Own(words) => &words[at],
            Words::Mapped(map) => &map.words()[at],
        }
    }

    pub(crate) fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    fn store(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Number of slots to look at: no slot from this number on was ever taken.
    pub(crate) fn top(&self) -> usize {
        (self.load(AT_TOP) as usize).min(MEMBERS)
    }

    /// Takes a slot for an engine of process `owner` at the address `local`. `alive` says whether
    /// the owner of a slot is alive. `None`: all slots belong to processes that are alive.
    pub fn join(
        self: &Arc<Self>,
        owner: Owner,
        local: IpAddr,
        alive: impl Fn(Owner) -> bool,
    ) -> Option<Member> {
        for index in 0..MEMBERS {
            let word = self.word(member_at(index, MemberWord::Owner));
            let found = word.load(Ordering::Acquire);
            if Owner::from_word(found).is_some_and(&alive) {
                continue;
            }
            if word
                .compare_exchange(found, owner.word(), Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                continue;
            }
            self.word(AT_TOP).fetch_max(index as u64 + 1, Ordering::AcqRel);
            self.store(member_at(index, MemberWord::GrantsUntil), 0);
            self.store(member_at(index, MemberWord::Local), key_of(local, local));
            let (table, found) = (Arc::clone(self), FxHashMap::default());
            return Some(Member {
                table,
                index,
                owner,
                local,
                found,
                heard: 0,
                grants: (0, false),
            });
        }
        None
    }

    /// The seat's word [`SeatWord::Until`] if the seat counts at `now`: it was written for this key
    /// and has not expired.
    pub(crate) fn seat_until(
        &self,
        entry: usize,
        member: usize,
        key: u64,
        now: u64,
    ) -> Option<u64> {
        let until = self.word(seat_at(entry, member, SeatWord::Until)).load(Ordering::Acquire);
        let counts = (until >> 1) > now
            && (until >> 1) <= now + AHEAD_NS_MAX
            && self.load(seat_at(entry, member, SeatWord::Key)) == key;
        counts.then_some(until)
    }

    /// The entry of `key`, which is created if there is room.
    fn entry_find(&self, key: u64, remote: IpAddr, local: IpAddr, now: u64) -> Option<usize> {
        let start = (key >> 32) as usize % ADDRESSES;
        let order = || (start..ADDRESSES).chain(0..start);
        if let Some(entry) = order().find(|&e| self.load(entry_at(e, EntryWord::Key)) == key) {
            return Some(entry);
        }
        for entry in order() {
            let word = self.word(entry_at(entry, EntryWord::Key));
            let found = word.load(Ordering::Acquire);
            let used = found != 0
                && found != key
                && (0..self.top()).any(|m| self.seat_until(entry, m, found, now).is_some());
            if used {
                continue;
            }
            match word.compare_exchange(found, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {}
                Err(other) if other == key => return Some(entry),
                Err(_) => continue,
            }
            let (remote, local) = (bits_of(remote), bits_of(local));
            self.store(entry_at(entry, EntryWord::Remote), (remote >> 64) as u64);
            self.store(entry_at(entry, EntryWord::RemoteLow), remote as u64);
            self.store(entry_at(entry, EntryWord::Local), (local >> 64) as u64);
            self.store(entry_at(entry, EntryWord::LocalLow), local as u64);
            self.store(entry_at(entry, EntryWord::SumAt), 0);
            return Some(entry);
        }
        None
    }

    /// Recalculates the sum of an entry if it is outdated and no other member has just begun to.
    /// With `must` it does so in any case.
    fn sum(&self, entry: usize, key: u64, now: u64, must: bool) {
        let at = self.word(entry_at(entry, EntryWord::SumAt));
        let made = at.load(Ordering::Acquire);
        let fresh = made <= now && now - made < SUM_NS;
        if fresh && !must {
            return;
        }
        // One of the members that find it outdated is enough. If that one dies now, the sum becomes
        // outdated again.
        let taken = at.compare_exchange(made, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !taken && !must {
            return;
        }
        let (mut senders, mut backlogged, mut known) = (0u64, 0u64, 0u64);
        let (mut rate, mut limited, mut rtt) = (0u128, 0u64, u32::MAX);
        let (mut delivered, mut lost) = (0u64, 0u128);
        for member in 0..self.top() {
            let Some(until) = self.seat_until(entry, member, key, now) else { continue };
            let load = |word| self.load(seat_at(entry, member, word));
            senders += 1;
            let (arrived, permille) = delivered_of(load(SeatWord::Delivered));
            delivered = delivered.saturating_add(arrived);
            lost += u128::from(arrived) * u128::from(permille);
            if until & 1 == 1 {
                backlogged += 1;
            } else {
                limited = limited.saturating_add(arrived);
            }
            let host = load(SeatWord::RateHost);
            known += u64::from(host > 0);
            rate += u128::from(host);
            let least = (load(SeatWord::Rtt) >> 32) as u32;
            rtt = if least == 0 { rtt } else { rtt.min(least) };
        }
        let rate = u64::try_from(rate / u128::from(known.max(1))).unwrap_or(u64::MAX);
        let rtt = if rtt == u32::MAX { 0 } else { u64::from(rtt) };
        self.store(entry_at(entry, EntryWord::SumRate), rate);
        self.store(entry_at(entry, EntryWord::SumLimited), limited);
        let permille = (lost / u128::from(delivered.max(1))) as u64;
        let delivered = delivered_word(delivered, permille);
        self.store(entry_at(entry, EntryWord::SumDelivered), delivered);
        self.store(entry_at(entry, EntryWord::SumCounts), senders << 48 | backlogged << 32 | rtt);
    }

    fn view(&self, entry: usize) -> HostView {
        let counts = self.load(entry_at(entry, EntryWord::SumCounts));
        let senders = ((counts >> 48) as u32).clamp(1, MEMBERS as u32);
        let (delivered, permille) =
            delivered_of(self.load(entry_at(entry, EntryWord::SumDelivered)));
        HostView {
            senders,
            backlogged: ((counts >> 32) as u32 & 0xFFFF).min(senders),
            delivered_bytes_per_sec: delivered,
            lost_permille: permille,
            limited_bytes_per_sec: self.load(entry_at(entry, EntryWord::SumLimited)),
            rate_bytes_per_sec: self.load(entry_at(entry, EntryWord::SumRate)),
            rtt_ns_min: counts as u32,
        }
    }
}

/// A rate and a fraction in thousandths, packed into one word.
fn delivered_word(bytes_per_sec: u64, permille: u64) -> u64 {
    bytes_per_sec.min((1 << 48) - 1) << 16 | permille.min(1000)
}

/// Unpacks the rate (bytes per second) and the fraction (0 to 1000).
pub(crate) fn delivered_of(word: u64) -> (u64, u32) {
    (word >> 16, (word as u32 & 0xFFFF).min(1000))
}

/// The address as IPv6.
fn bits_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Hash of a pair of addresses; never 0. All processes must agree on it. The finisher of
/// SplitMix64 over four words.
fn key_of(local: IpAddr, remote: IpAddr) -> u64 {
    let (l, r) = (bits_of(local), bits_of(remote));
    let words = [l as u64, (l >> 64) as u64, r as u64, (r >> 64) as u64];
    let mixed = words.into_iter().fold(0x9E37_79B9_7F4A_7C15u64, |hash, word| {
        let mut x = hash.wrapping_add(word);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    });
    mixed.max(1)
}

/// Where a member found the entry of an address.
#[derive(Clone, Copy, Debug)]
struct Found {
    key: u64,
    entry: Option<usize>,
    /// When the member looked it up, ns of the host's clock.
    at: u64,
    /// Whether the newest note said that there is something to send.
    sends: bool,
}

/// An engine's slot in a table. It is given back when this value is dropped.
#[derive(Debug)]
pub struct Member {
    table: Arc<Table>,
    index: usize,
    owner: Owner,
    local: IpAddr,
    found: FxHashMap<IpAddr, Found>,
    /// When the member last wrote that it is alive, ns of the host's clock.
    heard: u64,
    /// When the member last wrote whether it hands out grants (ns of the host's clock), and what it
    /// wrote.
    grants: (u64, bool),
}

impl Member {
    /// Number of the slot.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Writes what this engine knows about one address, and returns what all engines know about it.
    /// `now_ns` is the time of the clock that all processes of the host share, `now` that of the
    /// engine's clock.
    pub fn exchange(&mut self, now_ns: u64, now: Time, note: &HostNote) -> HostView {
        self.heard(now_ns);
        let Some((found, entry, began)) = self.entry_of(now_ns, now, note) else {
            return HostView::ALONE;
        };
        let t = &*self.table;
        let store = |word, value| t.store(seat_at(entry, self.index, word), value);
        let pair = |high: u64, low: u64| high.min(u32::MAX.into()) << 32 | low.min(u32::MAX.into());
        store(SeatWord::RateHost, note.rate_host);
        store(SeatWord::RateOwn, note.rate_own);
        store(SeatWord::Delivered, delivered_word(note.delivered, note.lost_permille.into()));
        store(SeatWord::Inflight, pair(note.inflight, note.inflight_max));
        store(SeatWord::Rtt, pair(note.rtt_ns_min.into(), note.rtt_ns_smoothed.into()));
        store(SeatWord::Packets, pair(note.packets_sent.into(), note.packets_lost.into()));
        store(SeatWord::Key, found.key);
        let until = now_ns + note.until.since(now).0;
        let until = if found.sends { until << 1 | u64::from(note.backlogged) } else { 0 };
        t.word(seat_at(entry, self.index, SeatWord::Until)).store(until, Ordering::Release);
        if !found.sends {
            // Other members see this with the next sum.
            return HostView::ALONE;
        }
        t.sum(entry, found.key, now_ns, began);
        t.view(entry)
    }

    /// Writes whether this engine hands out grants (`wanted`), and returns how many engines do for
    /// the same local address, this one included. `None`: an update is not due yet, or this engine
    /// hands out none and the table already says so.
    #[inline]
    pub fn granters(&mut self, now_ns: u64, wanted: bool) -> Option<u32> {
        let (at, told) = self.grants;
        if !wanted && !told || wanted == told && now_ns.wrapping_sub(at) < GRANTS_NS {
            return None;
        }
        self.grants = (now_ns, wanted);
        self.heard(now_ns);
        let t = &*self.table;
        let until = if wanted { now_ns + GRANTS_STALE_NS } else { 0 };
        t.store(member_at(self.index, MemberWord::GrantsUntil), until);
        let local = key_of(self.local, self.local);
        let others = (0..t.top()).filter(|&m| {
            let until = t.load(member_at(m, MemberWord::GrantsUntil));
            m != self.index
                && until > now_ns
                && until <= now_ns + AHEAD_NS_MAX
                && t.load(member_at(m, MemberWord::Local)) == local
        });
        Some(others.count() as u32 + 1)
    }

    fn heard(&mut self, now_ns: u64) {
        if now_ns.wrapping_sub(self.heard) >= HEARD_NS {
            self.heard = now_ns;
            self.table.store(member_at(self.index, MemberWord::Heard), now_ns);
        }
    }

    /// The entry of a note's address, and whether this note is the first with which the member
    /// sends there.
    fn entry_of(
        &mut self,
        now_ns: u64,
        now: Time,
        note: &HostNote,
    ) -> Option<(Found, usize, bool)> {
        let sends = note.until > now;
        let (local, remote) = (self.local, note.ip);
        if self.found.len() > 2 * ADDRESSES {
            // This is rare: not all of so many addresses can have an entry.
            self.found.clear();
        }
        let known = self.found.get(&remote).copied();
        let key = known.map_or_else(|| key_of(local, remote), |f| f.key);
        let usable = known.filter(|f| {
            let mine = f.entry.is_none_or(|e| self.table.load(entry_at(e, EntryWord::Key)) == key);
            mine && now_ns.wrapping_sub(f.at) < FIND_NS
        });
        let began = sends && !usable.is_some_and(|f| f.sends);
        let found = match usable {
            Some(found) => Found { sends, ..found },
            None => {
                let entry = self.table.entry_find(key, remote, local, now_ns);
                Found { key, entry, at: now_ns, sends }
            }
        };
        self.found.insert(remote, found);
        Some((found, found.entry?, began))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A child of `fork` holds a copy, but the slot belongs to its parent.
        if self.owner.pid() != std::process::id() && self.owner.pid() != 0 {
            return;
        }
        let word = self.table.word(member_at(self.index, MemberWord::Owner));
        let mine = self.owner.word();
        if word.load(Ordering::Acquire) != mine {
            return;
        }
        for found in self.found.values().filter(|f| f.sends) {
            if let Some(entry) = found.entry {
                self.table.store(seat_at(entry, self.index, SeatWord::Until), 0);
            }
        }
        let _ = word.compare_exchange(mine, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
