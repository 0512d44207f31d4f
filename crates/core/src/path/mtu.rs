//! The size of packets that the way to one address carries: found by probes, not believed.
//!
//! Packetization-layer path MTU discovery after RFC 8899, without the word of routers: what they
//! say in ICMP messages anybody can forge. A context opens with packets of full size. When large
//! packets are lost again and again while none as large arrives, the size is *doubted*: probes of
//! that size leave in rounds, and with them *controls*, probes of the least size. An overloaded
//! network or host loses packets, too, and large ones more often. So a round counts only if all
//! its controls were echoed, nobody's socket overflowed and the timer was in time; several must
//! count in a row, with ever longer waits between them, and one packet as large that arrives ends
//! the doubt. Only then probes of several sizes ask what still passes; the largest that is echoed
//! is the size from then on, and now and then larger ones are asked for again.
//!
//! Headers of packets differ in length, and a link knows only how long a packet is in all. So a
//! *size* is the payload of a packet with the longest headers. Probes of a size are as long as such
//! a packet, and any other shows the size that belongs to its length: a message of 1400 bytes shows
//! less than a segment of a write with as many, and its arrival says nothing of that segment. What
//! arrives while it is asked which sizes pass counts like the echo of a probe as long.

use crate::ids::Ctx;
use crate::time::{Span, Time};
use arrayvec::ArrayVec;
use core::net::IpAddr;
use srd_wire::{IPV4_BYTES, IPV6_BYTES, payload_bytes_max};

/// MTUs that links and tunnels have, which are asked for below the full size: 802.5, jumbo frames,
/// 802.4, FDDI (RFC 1191, table 7-1), Ethernet, PPPoE (RFC 2516), IP in IP (RFC 2003), VXLAN
/// (RFC 7348), WireGuard, the least of IPv6 (RFC 8200) and what every IPv4 host takes (RFC 791).
const LINK_MTUS: [u32; 11] = [576, 1280, 1420, 1450, 1480, 1492, 1500, 4352, 8166, 9000, 17_914];
/// Sizes asked for in one round: the table and the full size.
const SIZES_MAX: usize = LINK_MTUS.len() + 1;
/// Rounds that must count in a row until a size is believed to be too large. RFC 8899 takes 3 lost
/// probes (MAX_PROBES), of a network that loses large and small packets alike. Each round here has
/// two, beside what is sent again anyway: where a queue has room for one large packet in two, these
/// 20 alone are lost together once in 10^6 doubts, and that with no small one lost in between.
const ROUNDS_COUNTED: u8 = 10;
/// Rounds of one doubt at most, counted or not.
const ROUNDS_MAX: u8 = 24;
/// Rounds that ask what passes (RFC 8899: MAX_PROBES).
const SIZE_ROUNDS: u8 = 3;
/// Half a round lasts no longer than this, or than a packet is waited for if that is longer: ten
/// rounds take 0.7 s where round trips are short.
const STEP_MAX: Span = Span::from_ms(50);
/// Probes that are kept in mind: those of several rounds, because a late echo counts, too.
const ASKED_MAX: usize = 64;
/// Large packets lost in a row, with none as large arriving, after which it is asked.
const LOST_MAX: u8 = 4;
/// After a search that found nothing wrong, the next one waits so long; after a doubt that a large
/// packet ended, from its beginning on, less.
const QUIET: Span = Span::from_ms(100);
const QUIET_ARRIVED: Span = Span::from_ms(10);
/// First and last wait before a larger size is tried again (the last is RFC 8899's
/// PMTU_RAISE_TIMER).
const RAISE_FIRST: Span = Span::from_secs(1);
const RAISE_MAX: Span = Span::from_secs(600);
/// Segments keep beginning at multiples of this, where the device's MTU is one.
const ALIGN: u16 = 128;

/// Sizes to ask for, the smallest first: of probes on one path, the echo of the newest stands for
/// all, and that is the largest that passes.
pub(crate) type Sizes = ArrayVec<u16, SIZES_MAX>;

/// What a search is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whether the size in use passes.
    Doubt,
    /// Which smaller size does.
    Sizes,
    /// Whether a larger one does.
    Raise,
}

/// A probe that has left.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ci: Ctx,
    tx_num: u32,
    size: u16,
    round: u8,
}

/// A search under way.
#[derive(Debug)]
struct Search {
    stage: Stage,
    /// The context whose probes they are.
    carrier: Ctx,
    /// The size that was in use.
    top: u16,
    /// Rounds begun.
    round: u8,
    /// Of this stage, in a row, those that counted.
    counted: u8,
    /// Nothing is asked yet: what is under way may settle it.
    idle: bool,
    /// This is the second half of a round.
    second: bool,
    /// The path that the first half asked about; the second sends a control there.
    path: u8,
    /// When this half is over, and how long it lasts.
    at: Time,
    wait: Span,
    /// The largest size that was echoed.
    best: u16,
    /// Payload of controls.
    least: u16,
    /// Only sizes of the table are taken.
    aligned: bool,
    /// Controls of this round, and those of them that were echoed.
    controls: (u8, u8),
    /// A socket overflowed in this round, or nobody looked at ours for long.
    spoiled: bool,
    /// What our socket had dropped when the round began.
    rxq_drops: u32,
    /// The newest last.
    asked: ArrayVec<Asked, ASKED_MAX>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// Payload of one packet at most; `u16::MAX` while nothing is known to be too large.
    size: u16,
    /// Large packets lost in a row, and the largest size among them: the arrival of one as large
    /// makes that no matter of sizes.
    lost: u8,
    lost_most: u16,
    quiet_until: Time,
    search: Option<Box<Search>>,
    raise_at: Time,
    /// Waits before a larger size is tried again, each twice as long as the one before.
    raises: u8,
}

/// What half a round begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Until an answer should be here.
    pub wait: Span,
    /// What our socket has dropped so far.
    pub rxq_drops: u32,
    pub ip: IpAddr,
    /// The most that the carrier may ever send.
    pub full: u16,
    /// Sizes keep to multiples of [`ALIGN`].
    pub aligned: bool,
}

/// What is to be done when a round is over.
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

/// The payload of each link in the table on a way to `ip`, the smallest first.
fn table(ip: IpAddr, aligned: bool) -> impl Iterator<Item = u16> {
    let ip_bytes = if ip.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
    let sizes = LINK_MTUS.into_iter().filter_map(move |m| payload_bytes_max(m, ip_bytes));
    sizes.map(move |size| if aligned { size - size % ALIGN } else { size })
}

/// The largest size of the table below `size`, or the least of all.
pub(crate) fn next_below(ip: IpAddr, size: u16, aligned: bool) -> u16 {
    table(ip, aligned).filter(|&s| s < size).last().unwrap_or_else(|| least_of(ip, aligned))
}

/// The sizes of the table below `size`, the largest first, again and again: number `n` of them. If
/// there is none, the least of all.
pub(crate) fn below(ip: IpAddr, size: u16, aligned: bool, n: usize) -> Option<u16> {
    let all = || table(ip, aligned).filter(|&s| s < size);
    let count = all().count();
    if count == 0 { Some(least_of(ip, aligned)) } else { all().nth(count - 1 - n % count) }
}

/// Payload of the packets that always pass.
fn least_of(ip: IpAddr, aligned: bool) -> u16 {
    table(ip, aligned).next().unwrap_or(u16::MAX)
}

impl PathMtu {
    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.search.as_ref().map_or(0, |_| Self::held_bytes_max())
    }
    /// The most that it may hold.
    pub fn held_bytes_max() -> usize {
        size_of::<Search>()
    }
    /// Payload of one packet at most.
    #[inline]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Whether packets may not have the full size.
    pub fn is_small(&self) -> bool {
        self.size < u16::MAX
    }

    /// Whether it matters what arrives and what is echoed.
    pub fn is_awake(&self) -> bool {
        self.lost > 0 || self.search.is_some()
    }

    /// A packet of that size was lost. Whether it is time to ask.
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

    /// A packet of that size has arrived.
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

    /// No size is to blame.
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

    /// Begins to ask, by probes of `carrier`, whether packets of `full`, which is in use, pass.
    pub fn search_begin(&mut self, now: Time, carrier: Ctx, full: u16) {
        self.quiet_until = now + QUIET_ARRIVED;
        self.search = Some(Box::new(Search::new(Stage::Doubt, carrier, full)));
    }

    /// Sizes that one path is asked for, where sizes are asked for; `full` is the most that the
    /// carrier may ever send.
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

    /// Begins half a round. `push` takes its probes, path and payload; `path_any` says which paths
    /// are in use, one after the other; `wait`: until an answer should be here; `rxq_drops`: what
    /// our socket has dropped so far.
    ///
    /// Of probes on one path the echo of the newest stands for all. So several sizes on one path
    /// leave the smallest first, and a control leaves on another path than the large ones before
    /// it, or later than their answer is due.
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
                // Where there is but one path, the echo of a control before them says that none of
                // them has passed.
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
                s.controls.0 += 1;
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

    /// A probe of context `ci` with this payload has left. `asks`: it was asked for here.
    pub fn on_probe_sent(&mut self, ci: Ctx, tx_num: u32, size: u16, asks: bool) {
        let Some(s) = self.search.as_mut().filter(|s| asks || size >= s.top) else { return };
        if s.asked.is_full() {
            s.asked.remove(0);
        }
        s.asked.push(Asked { ci, tx_num, size, round: s.round });
    }

    /// A transmission of context `ci` was echoed.
    #[inline]
    pub fn on_echo(&mut self, ci: Ctx, tx_num: u32) {
        let Some(s) = &mut self.search else { return };
        let same = |a: &&Asked| a.tx_num == tx_num && a.ci == ci;
        let Some(&Asked { size, round, .. }) = s.asked.iter().find(same) else { return };
        if size <= s.least {
            s.controls.1 += u8::from(round == s.round);
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

    /// When there is something to do by itself.
    pub fn next(&self) -> Time {
        self.search.as_ref().map_or(self.raise_at, |s| s.at)
    }

    /// Looks whether half a round is over, of which everything that arrived until `seen` is known.
    /// `full`: the most that may ever be sent; `rxq_drops`: what our socket has dropped so far.
    pub fn poll(&mut self, now: Time, seen: Time, full: u16, rxq_drops: u32) -> Found {
        let Some(s) = self.search.as_mut().filter(|s| s.at <= seen) else {
            return Found::Nothing;
        };
        if core::mem::take(&mut s.idle) {
            return Found::Again;
        }
        // We have slept: much may have been lost meanwhile that nobody tells.
        s.spoiled |= now > s.at + s.wait;
        if !s.second && s.stage != Stage::Raise {
            s.second = true;
            return Found::Again;
        }
        s.second = false;
        let echoed = s.controls.0 == s.controls.1 || planted!(ControlsUnechoed);
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
            // What is lost here is lost for other reasons as well.
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

    /// It was asked whether larger sizes pass. Who does not answer at all has not said no.
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

    /// How long a larger size is not tried now.
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

    /// Nothing larger than `size` can leave this host. Whether that is news.
    pub fn limit(&mut self, now: Time, size: u16) -> bool {
        let news = size < self.size;
        if news {
            self.search = None;
            self.size_set(now, size, u16::MAX);
        }
        news
    }

    /// Whether a larger size is to be asked for now, by probes of `carrier`, which may send `full`.
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
            controls: (0, 0),
            spoiled: false,
            rxq_drops: 0,
            asked: ArrayVec::new(),
        }
    }

    fn round_begin(&mut self, path: u8, rxq_drops: u32, control: bool) {
        (self.path, self.rxq_drops, self.spoiled) = (path, rxq_drops, false);
        self.controls = (u8::from(control), 0);
        self.round += 1;
    }
}

#[cfg(test)]
#[path = "mtu_tests.rs"]
mod tests;
