//! The path MTU of one remote address, found by probes.
//!
//! Packetization-layer path MTU discovery after RFC 8899, without ICMP messages, which anybody can
//! forge. A context opens with packets of full size. When large packets are lost repeatedly while
//! none as large arrives, the size is *doubted*: probes of that size are sent in rounds, and with
//! them *controls*, probes of the least size. An overloaded network or host loses packets as well,
//! and large ones more often. So a round counts only if all its controls were echoed, neither end's
//! socket overflowed and the timer fired in time. Several rounds must count in a row, with ever
//! longer waits between them, and the arrival of one packet as large ends the doubt. Only then
//! probes of several sizes find out what still passes. The largest size echoed is used from then
//! on, and now and then larger ones are tried again.
//!
//! Headers differ in length, but a link limits the total length of a packet. So a *size* is the
//! payload of a packet with the longest headers. A probe of a size is as long as such a packet, and
//! any other packet proves the size that corresponds to its length: the arrival of a message of
//! 1400 bytes proves less than that of a segment of a write with as many bytes. While probes search
//! for the sizes that pass, the arrival of any packet counts like the echo of a probe of the same
//! length.

use crate::ids::Ctx;
use crate::psn::TxLow;
use crate::time::{Span, Time};
use arrayvec::ArrayVec;
use core::net::IpAddr;
use srd_wire::{IPV4_BYTES, IPV6_BYTES, payload_bytes_max};

/// MTUs of common links and tunnels, which are tried below the full size: 802.5, jumbo frames,
/// 802.4, FDDI (RFC 1191, table 7-1), Ethernet, PPPoE (RFC 2516), IP in IP (RFC 2003), VXLAN (RFC
/// 7348), WireGuard, the least of IPv6 (RFC 8200) and what every IPv4 host takes (RFC 791).
const LINK_MTUS: [u32; 11] = [576, 1280, 1420, 1450, 1480, 1492, 1500, 4352, 8166, 9000, 17_914];
/// Most sizes tried in one round: the table and the full size.
const SIZES_MAX: usize = LINK_MTUS.len() + 1;
/// Rounds that must count in a row until a size is taken to be too large. RFC 8899 takes 3 lost
/// probes (MAX_PROBES), which assumes that large and small packets are lost alike. Here each round
/// has two large probes, besides the retransmissions. Where a queue drops every second large
/// packet, all of these 20 probes are lost once in 10^6 doubts, and even then only if no small
/// packet is lost in between.
const ROUNDS_COUNTED: u8 = 10;
/// Most rounds of one doubt, whether they count or not.
const ROUNDS_MAX: u8 = 24;
/// Rounds that search for the sizes that pass (RFC 8899: MAX_PROBES).
const SIZE_ROUNDS: u8 = 3;
/// Longest duration of half a round, unless an answer may take longer: ten rounds take 0.7 s where
/// round trips are short.
const STEP_MAX: Span = Span::from_ms(50);
/// Probes that are remembered: those of several rounds, because a late echo counts as well.
const ASKED_MAX: usize = 64;
/// Large packets lost in a row, with none as large arriving, after which the size is doubted.
const LOST_MAX: u8 = 4;
/// Least time from the end of a search to the next one; [`QUIET_ARRIVED`]: from the beginning of a
/// doubt that the arrival of a large packet ended.
const QUIET: Span = Span::from_ms(100);
const QUIET_ARRIVED: Span = Span::from_ms(10);
/// First and last wait before a larger size is tried again (the last is RFC 8899's
/// PMTU_RAISE_TIMER).
const RAISE_FIRST: Span = Span::from_secs(1);
const RAISE_MAX: Span = Span::from_secs(600);
/// Sizes are multiples of this many bytes where the device's MTU is one, so that segments stay
/// aligned.
const ALIGN: u16 = 128;

/// Sizes to try, the smallest first: of the probes on one path only the newest to arrive is echoed,
/// which then is the largest that passes.
pub(crate) type Sizes = ArrayVec<u16, SIZES_MAX>;

/// What a search tries to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whether the size in use passes.
    Doubt,
    /// Which smaller size passes.
    Sizes,
    /// Whether a larger size passes.
    Raise,
}

/// A probe that has left.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ci: Ctx,
    tx_num: TxLow,
    size: u16,
    round: u8,
}

/// A search under way.
#[derive(Debug)]
struct Search {
    stage: Stage,
    /// The context on which the probes are sent.
    carrier: Ctx,
    /// The size in use when the search began.
    top: u16,
    /// Number of rounds begun.
    round: u8,
    /// Rounds of this stage that counted (for a doubt, in a row).
    counted: u8,
    /// No probe was sent yet: packets in flight may settle the doubt.
    idle: bool,
    /// This is the second half of a round.
    second: bool,
    /// The path of the large probe of the first half; the second half sends a control on it.
    path: u8,
    /// When this half of the round is over, and how long it lasts.
    at: Time,
    wait: Span,
    /// The largest size that was echoed.
    best: u16,
    /// Payload of controls.
    least: u16,
    /// Whether only multiples of [`ALIGN`] are taken as sizes.
    aligned: bool,
    /// Controls sent in this round.
    controls_sent: u8,
    /// How many of them were echoed.
    controls_echoed: u8,
    /// The round does not count: the peer's socket overflowed, or the timer was late.
    spoiled: bool,
    /// Packets that our socket had dropped when the round began.
    rxq_drops: u32,
    /// Probes sent, the newest last.
    asked: ArrayVec<Asked, ASKED_MAX>,
}

/// State of path MTU discovery for one address.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// Largest payload of one packet; `u16::MAX` while no size is known to be too large.
    size: u16,
    /// Large packets lost in a row, and the largest size among them: the arrival of a packet as
    /// large shows that the losses do not depend on the size.
    lost: u8,
    lost_most: u16,
    quiet_until: Time,
    search: Option<Box<Search>>,
    raise_at: Time,
    /// Failed attempts to raise the size; the wait before the next one doubles with each.
    raises: u8,
}

/// Inputs of half a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Time within which a probe should be answered.
    pub wait: Span,
    /// Packets that our socket has dropped so far.
    pub rxq_drops: u32,
    pub ip: IpAddr,
    /// Largest size that the carrier may ever send.
    pub full: u16,
    /// Sizes are multiples of [`ALIGN`].
    pub aligned: bool,
}

/// What follows from the end of a half round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    Nothing,
    /// More probes: [`PathMtu::step_begin`] says which.
    Again,
    /// The size has changed.
    Changed,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self {
            size: u16::MAX,
            lost: 0,
            lost_most: 0,
            quiet_until: Time(0),
            search: None,
            raise_at: Time::NEVER,
            raises: 0,
        }
    }
}

/// The payload sizes that belong to the MTUs in the table, towards `ip`, the smallest first.
fn table(ip: IpAddr, aligned: bool) -> impl Iterator<Item = u16> {
    let ip_bytes = if ip.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
    let sizes = LINK_MTUS.into_iter().filter_map(move |m| payload_bytes_max(m, ip_bytes));
    sizes.map(move |size| if aligned { size - size % ALIGN } else { size })
}

/// The largest size of the table below `size`, or the smallest size of the table.
pub(crate) fn next_below(ip: IpAddr, size: u16, aligned: bool) -> u16 {
    table(ip, aligned).filter(|&s| s < size).last().unwrap_or_else(|| least_of(ip, aligned))
}

/// Number `n` of the sizes of the table below `size`, the largest first, starting over at the end.
/// If there is none, the smallest size of the table.
pub(crate) fn below(ip: IpAddr, size: u16, aligned: bool, n: usize) -> Option<u16> {
    let all = || table(ip, aligned).filter(|&s| s < size);
    let count = all().count();
    if count == 0 { Some(least_of(ip, aligned)) } else { all().nth(count - 1 - n % count) }
}

/// The smallest size of the table, which always passes.
fn least_of(ip: IpAddr, aligned: bool) -> u16 {
    table(ip, aligned).next().unwrap_or(u16::MAX)
}

impl PathMtu {
    /// Heap memory that it holds, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.search.as_ref().map_or(0, |_| Self::held_bytes_max())
    }
    /// Upper bound of [`Self::held_bytes`].
    pub fn held_bytes_max() -> usize {
        size_of::<Search>()
    }
    /// Largest payload of one packet in bytes.
    #[inline]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Whether packets may not have the full size.
    pub fn is_small(&self) -> bool {
        self.size < u16::MAX
    }

    /// Whether acknowledgments and echoes bear on the path MTU at present.
    pub fn is_awake(&self) -> bool {
        self.lost > 0 || self.search.is_some()
    }

    /// A packet of this size was lost. Returns whether a search is to begin.
    pub fn on_lost(&mut self, now: Time, size: u16, ip: IpAddr) -> bool {
        if size <= least_of(ip, false) {
            return false;
        }
        self.lost_most = self.lost_most.max(size);
        if self.doubts() {
            return false;
        }
        self.lost = self.lost.saturating_add(1);
        self.lost >= LOST_MAX && now >= self.quiet_until
    }

    /// A packet of this size has arrived.
    #[inline]
    pub fn on_arrived(&mut self, size: u16) {
        if self.lost > 0 && size >= self.lost_most {
            self.passes();
        } else if let Some(s) = &mut self.search
            && s.stage != Stage::Raise
            && !s.aligned
        {
            s.best = s.best.max(size.min(s.top - 1));
        }
    }

    /// The losses do not depend on the size: ends a doubt.
    #[cold]
    fn passes(&mut self) {
        (self.lost, self.lost_most) = (0, 0);
        if self.doubts() {
            self.search = None;
        }
    }

    /// Whether a search is under way that may end with a smaller size.
    pub fn doubts(&self) -> bool {
        self.search.as_ref().is_some_and(|s| s.stage != Stage::Raise)
    }

    /// Begins to doubt the size `full`, which is in use; the probes are sent on context `carrier`.
    pub fn search_begin(&mut self, now: Time, carrier: Ctx, full: u16) {
        self.quiet_until = now + QUIET_ARRIVED;
        self.search = Some(Box::new(Search::new(Stage::Doubt, carrier, full)));
    }

    /// Sizes to try on one path in the search under way; `full` is the largest that the carrier may
    /// ever send.
    fn sizes(&self, ip: IpAddr, full: u16, aligned: bool) -> Sizes {
        let Some(s) = &self.search else { return Sizes::new() };
        let to = if s.stage == Stage::Raise { full } else { s.top };
        let above = s.best.max(least_of(ip, aligned));
        let mut sizes = Sizes::new();
        for size in table(ip, aligned).filter(|&size| size > above && size < to) {
            if sizes.last() != Some(&size) {
                sizes.push(size);
            }
        }
        sizes.push(to);
        sizes
    }

    /// The carrier of the search under way.
    pub fn carrier(&self) -> Option<Ctx> {
        self.search.as_ref().map(|s| s.carrier)
    }

    /// Begins half a round. `push` takes the path and payload of each probe; `path_any` returns the
    /// paths in use, one after the other.
    ///
    /// Of the probes on one path only the newest to arrive is echoed. So several sizes on one path
    /// leave the smallest first, and a control leaves on another path than the large probes before
    /// it, or after their answer is due.
    pub fn step_begin(
        &mut self,
        now: Time,
        &Step { wait, rxq_drops, ip, full, aligned }: &Step,
        mut path_any: impl FnMut() -> u8,
        mut push: impl FnMut(u8, u16),
    ) {
        let least = least_of(ip, aligned);
        let sizes = self.sizes(ip, full, aligned);
        let Some(s) = &mut self.search else { return };
        (s.least, s.aligned) = (least, aligned);
        let (first, other) = (path_any(), path_any());
        match (s.stage, s.second) {
            (Stage::Doubt, false) if s.idle => s.round_begin(first, rxq_drops, false),
            (Stage::Doubt, false) => {
                push(first, s.top);
                s.round_begin(first, rxq_drops, other != first);
                if other != first {
                    push(other, least);
                }
            }
            (stage, false) => {
                // With a single path, the echo of a control sent before them shows that none of the
                // probes passed.
                let before = stage == Stage::Raise && other == first;
                s.round_begin(first, rxq_drops, before || other != first);
                if before {
                    push(first, least);
                }
                sizes.iter().for_each(|&size| push(first, size));
                if other != first {
                    push(other, least);
                }
            }
            (stage, true) => {
                push(s.path, least);
                s.controls_sent += 1;
                let large = if first == s.path { other } else { first };
                if stage == Stage::Doubt && large != s.path {
                    push(large, s.top);
                }
            }
        }
        let doublings = if s.stage == Stage::Doubt { s.round.saturating_sub(2) } else { 2 };
        s.wait = Span(wait.scale(1 << doublings.min(10), 1).0.min(STEP_MAX.0.max(wait.0)));
        s.at = now + s.wait;
    }

    /// A probe of context `ci` with this payload was sent. `asks`: this search had asked for it.
    pub fn on_probe_sent(&mut self, ci: Ctx, tx_num: TxLow, size: u16, asks: bool) {
        let Some(s) = self.search.as_mut().filter(|s| asks || size >= s.top) else { return };
        if s.asked.is_full() {
            s.asked.remove(0);
        }
        s.asked.push(Asked { ci, tx_num, size, round: s.round });
    }

    /// A transmission of context `ci` was echoed.
    #[inline]
    pub fn on_echo(&mut self, ci: Ctx, tx_num: TxLow) {
        let Some(s) = &mut self.search else { return };
        let same = |a: &&Asked| a.tx_num == tx_num && a.ci == ci;
        let Some(&Asked { size, round, .. }) = s.asked.iter().find(same) else { return };
        if size <= s.least {
            s.controls_echoed += u8::from(round == s.round);
            return;
        }
        s.best = s.best.max(size);
        if size >= s.top && s.stage != Stage::Raise {
            self.passes();
        }
    }

    /// The peer's socket has dropped packets, of whatever size.
    pub fn on_receiver_drops(&mut self) {
        if let Some(s) = &mut self.search {
            s.spoiled = true;
        }
    }

    /// Next deadline of the search.
    pub fn next(&self) -> Time {
        self.search.as_ref().map_or(self.raise_at, |s| s.at)
    }

    /// Checks whether half a round is over; everything that arrived before `seen` has been handled.
    /// `full`: the largest size that may ever be sent; `rxq_drops`: packets that our socket has
    /// dropped so far.
    pub fn poll(&mut self, now: Time, seen: Time, full: u16, rxq_drops: u32) -> Found {
        let Some(s) = self.search.as_mut().filter(|s| s.at <= seen) else {
            return Found::Nothing;
        };
        if core::mem::take(&mut s.idle) {
            return Found::Again;
        }
        // The process did not run in time: packets may have been lost in this host meanwhile,
        // unreported.
        s.spoiled |= now > s.at + s.wait;
        if !s.second && s.stage != Stage::Raise {
            s.second = true;
            return Found::Again;
        }
        s.second = false;
        let echoed = s.controls_sent == s.controls_echoed || planted!(ControlsUnechoed);
        let counts = !s.spoiled && echoed && s.rxq_drops == rxq_drops;
        match s.stage {
            Stage::Raise => return self.raise_end(now, counts, full),
            Stage::Doubt => s.counted = if counts { s.counted + 1 } else { 0 },
            Stage::Sizes => s.counted += u8::from(counts),
        }
        let rounds = if planted!(OneRoundDecides) { 1 } else { ROUNDS_COUNTED };
        let enough = if s.stage == Stage::Doubt { rounds } else { SIZE_ROUNDS };
        if s.counted < enough {
            if s.round < ROUNDS_MAX {
                return Found::Again;
            }
            // Too few rounds counted: packets are lost for other reasons as well.
            self.search = None;
            (self.lost, self.lost_most) = (0, 0);
            self.quiet_until = now + QUIET;
            return Found::Nothing;
        }
        if s.stage == Stage::Doubt {
            (s.stage, s.round, s.counted) = (Stage::Sizes, 0, 0);
            return Found::Again;
        }
        let best = if planted!(SizeKept) { s.top } else { s.best.max(s.least) };
        self.search = None;
        (self.lost, self.lost_most) = (0, 0);
        self.quiet_until = now + QUIET;
        self.size_set(now, best, full);
        Found::Changed
    }

    /// Ends a search for a larger size. A peer that answered no probe at all has not shown that
    /// none passes.
    fn raise_end(&mut self, now: Time, counts: bool, full: u16) -> Found {
        let best = self.search.take().map_or(0, |s| s.best);
        if best > self.size {
            self.size_set(now, best, full);
            return Found::Changed;
        }
        if counts {
            self.raises = self.raises.saturating_add(1);
        }
        self.raise_at = now + self.raise_wait();
        Found::Nothing
    }

    /// Time until a larger size is tried again.
    fn raise_wait(&self) -> Span {
        let doublings = u32::from(self.raises).min(RAISE_MAX.0.ilog2());
        Span(RAISE_FIRST.0.saturating_mul(1 << doublings).min(RAISE_MAX.0))
    }

    fn size_set(&mut self, now: Time, size: u16, full: u16) {
        let whole = size >= full;
        self.size = if whole { u16::MAX } else { size };
        if whole {
            self.raises = 0;
        }
        let kept = whole || planted!(SizeNeverRaised);
        self.raise_at = if kept { Time::NEVER } else { now + self.raise_wait() };
    }

    /// The local link carries packets of at most `size`. Returns whether that reduces the size.
    pub fn limit(&mut self, now: Time, size: u16) -> bool {
        let news = size < self.size;
        if news {
            self.search = None;
            self.size_set(now, size, u16::MAX);
        }
        news
    }

    /// Begins to try larger sizes if it is time, by probes of `carrier`, which may send `full`.
    /// Returns whether it did.
    pub fn raise_begin(&mut self, now: Time, carrier: Ctx, full: u16) -> bool {
        if self.search.is_some() || self.raise_at > now {
            return false;
        }
        self.raise_at = Time::NEVER;
        if self.size >= full {
            return false;
        }
        let search = Search::new(Stage::Raise, carrier, full);
        self.search = Some(Box::new(Search { best: self.size, ..search }));
        true
    }

    /// The search cannot go on: its carrier has gone.
    pub fn search_end(&mut self, now: Time) {
        self.search = None;
        if self.size < u16::MAX {
            self.raise_at = now + self.raise_wait();
        }
    }
}

impl Search {
    fn new(stage: Stage, carrier: Ctx, top: u16) -> Self {
        Self {
            stage,
            carrier,
            top,
            round: 0,
            counted: 0,
            idle: stage == Stage::Doubt,
            second: false,
            path: 0,
            at: Time(0),
            wait: Span::ZERO,
            best: 0,
            least: 0,
            aligned: true,
            controls_sent: 0,
            controls_echoed: 0,
            spoiled: false,
            rxq_drops: 0,
            asked: ArrayVec::new(),
        }
    }

    fn round_begin(&mut self, path: u8, rxq_drops: u32, control: bool) {
        (self.path, self.rxq_drops, self.spoiled) = (path, rxq_drops, false);
        self.controls_sent = u8::from(control);
        self.controls_echoed = 0;
        self.round += 1;
    }
}

#[cfg(test)]
#[path = "mtu_tests.rs"]
mod tests;
