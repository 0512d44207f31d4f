//! The size of packets that the way to one address carries: found by probes, not believed.
//!
//! Packetization-layer path MTU discovery after RFC 8899, without the word of routers: what they
//! say in ICMP messages anybody can forge. A context opens with packets of full size. When large
//! packets are lost again and again while none as large arrives, padded probes of several sizes
//! ask what still passes; the largest that is echoed is the size from then on, and now and then
//! larger ones are asked for again.

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
/// Rounds until a size that is not echoed counts as too large (RFC 8899: MAX_PROBES).
const ROUNDS_MAX: u8 = 3;
/// Large packets lost in a row, with none as large arriving, after which it is asked.
const LOST_MAX: u8 = 4;
/// After a search that found nothing wrong, the next one waits so long.
const QUIET: Span = Span::from_ms(100);
/// First and last wait before a larger size is tried again (the last is RFC 8899's
/// PMTU_RAISE_TIMER).
const RAISE_FIRST: Span = Span::from_secs(1);
const RAISE_MAX: Span = Span::from_secs(600);
/// Segments keep beginning at multiples of this, where the device's MTU is one.
const ALIGN: u16 = 128;

/// Sizes to ask for, the smallest first: of probes on one path, the echo of the newest stands for
/// all, and that is the largest that passes.
pub(crate) type Sizes = ArrayVec<u16, SIZES_MAX>;

/// A search under way.
#[derive(Debug)]
struct Search {
    /// The context whose probes they are.
    carrier: u32,
    /// The size that was in use.
    top: u16,
    /// It was begun to find a larger one.
    raises: bool,
    round: u8,
    /// When this round is over.
    at: Time,
    /// The largest size that was echoed.
    best: u16,
    sent: ArrayVec<(u32, u16), { SIZES_MAX * ROUNDS_MAX as usize }>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// Payload of one packet at most; `u16::MAX` while nothing is known to be too large.
    size: u16,
    /// Large packets lost in a row, and the least payload among them.
    lost: u8,
    lost_least: u16,
    quiet_until: Time,
    search: Option<Box<Search>>,
    raise_at: Time,
    raise_wait: Span,
}

/// What is to be done when a round is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    Nothing,
    /// Another round: [`PathMtu::sizes`] says of what.
    Again,
    /// The size has changed.
    Changed,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self {
            size: u16::MAX,
            lost: 0,
            lost_least: u16::MAX,
            quiet_until: Time(0),
            search: None,
            raise_at: Time::NEVER,
            raise_wait: RAISE_FIRST,
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
    let least = table(ip, aligned).next().unwrap_or(u16::MAX);
    table(ip, aligned).filter(|&s| s < size).last().unwrap_or(least)
}

impl PathMtu {
    /// Payload of one packet at most.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// A packet with so much payload was lost, where `full` would be sent. Whether it is time to
    /// ask.
    pub fn on_lost(&mut self, now: Time, len: u16, ip: IpAddr) -> bool {
        let least = table(ip, false).next().unwrap_or(0);
        if len <= least {
            return false;
        }
        self.lost = self.lost.saturating_add(1);
        self.lost_least = self.lost_least.min(len);
        let asks = self.search.as_ref().is_some_and(|s| !s.raises);
        self.lost >= LOST_MAX && !asks && now >= self.quiet_until
    }

    /// A packet with so much payload has arrived.
    #[inline]
    pub fn on_arrived(&mut self, len: u16) {
        if self.lost > 0 && len >= self.lost_least {
            (self.lost, self.lost_least) = (0, u16::MAX);
        }
    }

    /// Begins to ask, by probes of `carrier`, what passes: of all sizes up to `full`, which is in
    /// use.
    pub fn search_begin(&mut self, carrier: u32, full: u16) {
        let at = Time(0);
        let (raises, round, best, sent) = (false, 0, 0, ArrayVec::new());
        let search = Search { carrier, top: full, raises, round, at, best, sent };
        self.search = Some(Box::new(search));
    }

    /// Sizes that this round asks for; `full` is the most that `carrier` may ever send.
    pub fn sizes(&self, ip: IpAddr, full: u16, aligned: bool) -> Sizes {
        let Some(s) = &self.search else { return Sizes::new() };
        let to = if s.raises { full } else { s.top };
        let mut sizes = Sizes::new();
        for size in table(ip, aligned).filter(|&size| size > s.best && size < to) {
            if sizes.last() != Some(&size) {
                sizes.push(size);
            }
        }
        sizes.push(to);
        sizes
    }

    /// The carrier of the search under way.
    pub fn carrier(&self) -> Option<u32> {
        self.search.as_ref().map(|s| s.carrier)
    }

    /// A probe of `carrier` with this payload has left.
    pub fn on_probe_sent(&mut self, carrier: u32, tx_num: u64, size: u16) {
        if let Some(s) = self.search.as_mut().filter(|s| s.carrier == carrier)
            && !s.sent.is_full()
        {
            s.sent.push((tx_num as u32, size));
        }
    }

    /// A transmission of `carrier` was echoed.
    #[inline]
    pub fn on_echo(&mut self, carrier: u32, tx_num: u32) {
        let Some(s) = self.search.as_mut().filter(|s| s.carrier == carrier) else { return };
        if let Some(&(_, size)) = s.sent.iter().find(|&&(n, _)| n == tx_num) {
            s.best = s.best.max(size);
        }
    }

    /// The probes of this round have been asked for: it is over after `wait`.
    pub fn round_begin(&mut self, now: Time, wait: Span) {
        if let Some(s) = &mut self.search {
            s.at = now + wait.scale(1 << s.round, 1);
            s.round += 1;
        }
    }

    /// When there is something to do by itself.
    pub fn next(&self) -> Time {
        self.search.as_ref().map_or(self.raise_at, |s| s.at)
    }

    /// Looks whether a round is over. `full`: the most that may ever be sent.
    pub fn poll(&mut self, now: Time, full: u16) -> Found {
        let Some(s) = &self.search else {
            return Found::Nothing;
        };
        let whole = s.best >= if s.raises { full } else { s.top };
        if s.at > now && !whole {
            return Found::Nothing;
        }
        let enough = s.raises || s.round >= ROUNDS_MAX;
        if !whole && !enough {
            return Found::Again;
        }
        let (best, top, raises) = (s.best, s.top, s.raises);
        self.search = None;
        (self.lost, self.lost_least) = (0, u16::MAX);
        self.quiet_until = now + QUIET;
        if raises && best <= self.size {
            self.raise_wait = Span((self.raise_wait.0 * 2).min(RAISE_MAX.0));
            self.raise_at = now + self.raise_wait;
            return Found::Nothing;
        }
        // Nothing passes: that is no matter of sizes. All passes: neither.
        if best == 0 || !raises && best >= top {
            return Found::Nothing;
        }
        self.size_set(now, best, full);
        Found::Changed
    }

    fn size_set(&mut self, now: Time, size: u16, full: u16) {
        let whole = size >= full;
        self.size = if whole { u16::MAX } else { size };
        if whole {
            self.raise_wait = RAISE_FIRST;
        }
        self.raise_at = if whole { Time::NEVER } else { now + self.raise_wait };
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
    pub fn raise_begin(&mut self, now: Time, carrier: u32, full: u16) -> bool {
        if self.search.is_some() || self.raise_at > now {
            return false;
        }
        self.raise_at = Time::NEVER;
        if self.size >= full {
            return false;
        }
        self.search_begin(carrier, full);
        if let Some(s) = &mut self.search {
            (s.raises, s.best) = (true, self.size);
        }
        true
    }

    /// The search cannot go on: its carrier has gone.
    pub fn search_end(&mut self, now: Time) {
        self.search = None;
        if self.size < u16::MAX {
            self.raise_at = now + self.raise_wait;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const WAIT: Span = Span::from_ms(1);

    /// Asks until there is an answer, with all that is not larger than `passes` echoed.
    fn searched(m: &mut PathMtu, mut now: Time, full: u16, passes: u16) -> (Found, Time) {
        let mut tx_num = 0;
        loop {
            for size in m.sizes(IP, full, false) {
                tx_num += 1;
                m.on_probe_sent(7, tx_num, size);
                if size <= passes {
                    m.on_echo(7, tx_num as u32);
                }
            }
            m.round_begin(now, WAIT);
            now = m.next().max(now);
            match m.poll(now, full) {
                Found::Again => {}
                found => return (found, now),
            }
        }
    }

    fn lose(m: &mut PathMtu, now: Time, len: u16) -> bool {
        (0..LOST_MAX).any(|_| m.on_lost(now, len, IP))
    }

    #[test]
    fn the_largest_size_that_passes_is_taken_and_raised_again() {
        for (passes, want) in [(8899, 8066), (1400, 1400), (1399, 1392), (1180, 1180), (480, 476)] {
            let mut m = PathMtu::default();
            let now = Time(1_000);
            assert!(lose(&mut m, now, 8900));
            m.search_begin(7, 8900);
            let (found, now) = searched(&mut m, now, 8900, passes);
            assert_eq!((found, m.size()), (Found::Changed, want), "{passes}");
            // A second later all passes again.
            let later = m.next();
            assert_eq!(later, now + RAISE_FIRST);
            assert!(!m.raise_begin(Time(later.0 - 1), 7, 8900) && m.raise_begin(later, 7, 8900));
            let (found, _) = searched(&mut m, later, 8900, u16::MAX);
            assert_eq!((found, m.size(), m.next()), (Found::Changed, u16::MAX, Time::NEVER));
        }
    }

    #[test]
    fn where_all_passes_or_nothing_does_no_size_is_to_blame() {
        for passes in [u16::MAX, 0] {
            let mut m = PathMtu::default();
            assert!(lose(&mut m, Time(1), 1400));
            m.search_begin(7, 1400);
            let (found, now) = searched(&mut m, Time(1), 1400, passes);
            assert_eq!((found, m.size()), (Found::Nothing, u16::MAX));
            assert!(!lose(&mut m, now, 1400), "not again at once");
            assert!(lose(&mut m, now + QUIET, 1400));
        }
    }

    #[test]
    fn small_losses_and_losses_among_arrivals_ask_nothing() {
        let mut m = PathMtu::default();
        assert!(!lose(&mut m, Time(1), 400));
        for _ in 0..50 {
            assert!(!m.on_lost(Time(1), 1400, IP));
            m.on_arrived(1400);
        }
        // Smaller ones that arrive prove nothing.
        let asked = (0..LOST_MAX).any(|_| {
            m.on_arrived(1000);
            m.on_lost(Time(1), 1400, IP)
        });
        assert!(asked);
    }

    #[test]
    fn what_does_not_raise_is_tried_ever_more_rarely() {
        let mut m = PathMtu::default();
        assert!(m.limit(Time(1), 1400) && !m.limit(Time(1), 1400) && !m.limit(Time(1), 2000));
        let mut last = Time(1);
        for round in 0..14 {
            let at = m.next();
            let wait = Span((RAISE_FIRST.0 << round).min(RAISE_MAX.0));
            assert!(at.since(last) >= wait && at.since(last) <= wait + WAIT, "{round}");
            assert!(m.raise_begin(at, 7, 8900));
            let (found, now) = searched(&mut m, at, 8900, 1400);
            assert_eq!((found, m.size()), (Found::Nothing, 1400));
            last = now;
        }
    }

    #[test]
    fn sizes_keep_blocks_whole() {
        let mut m = PathMtu::default();
        m.search_begin(7, 8960);
        let sizes = m.sizes(IP, 8960, true);
        assert!(sizes.iter().all(|s| s % ALIGN == 0) && sizes.is_sorted(), "{sizes:?}");
        assert_eq!((sizes[0], *sizes.last().unwrap()), (384, 8960));
        assert_eq!((next_below(IP, 8900, false), next_below(IP, 100, false)), (8066, 476));
    }
}
