//! Log of recent transmissions by transmission number: an echo is believed only if it names one of
//! them.
//!
//! The log is a ring with one word for each transmission that the peer echoes (reliable packets and
//! probes): send time, path, and enough of the number to distinguish it from the transmission one
//! turn of the ring earlier. The ring grows, up to [`SENT_LOG_MAX`], so that nothing is overwritten
//! that an honest peer may still echo: everything sent within [`SENT_LOG_SPAN`], however many
//! retransmissions and pure acknowledgments have used numbers since, and at least twice as many
//! transmissions as the scoreboard has entries. An echo of an older transmission is not believed,
//! but doubles the ring: where round trips are far longer than that span, many retransmissions of
//! few packets are sent within one, and their echoes would otherwise never be found.

use crate::limits::{SENT_LOG_MAX, SENT_LOG_SPAN};
use crate::psn::{TxLow, TxNum};
use crate::time::Time;
use srd_wire::Echo;

/// Entries of the smallest ring, 2^6: the lower bits of a transmission number are its index.
const LEN_MIN: usize = 64;
const PLACE_BITS: u32 = LEN_MIN.trailing_zeros();

/// Largest distance of numbers that a word distinguishes. Entries may stay for longer than a turn
/// of the ring, because numbers that are not noted overwrite nothing; older echoes are refused.
const AGO_MAX: u32 = (1 << (16 + PLACE_BITS)) - 1;
/// [`SENT_LOG_SPAN`] as a difference of words.
const SPAN: u64 = SENT_LOG_SPAN.0 >> 4 << TIME_AT;
/// Whether it was a full packet, and the lowest bit of the send time.
const FULL: u64 = 1 << 24;
/// See [`FULL`].
const TIME_AT: u32 = 25;

/// The recent transmissions of one context.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    /// One word for each transmission; 0 stands for none. Empty, or a power of two long.
    ring: Vec<u64>,
}

impl SentLog {
    /// Memory held by the ring, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<u64>()
    }
    /// Largest value of [`Self::held_bytes`] with a scoreboard of `board_len` PSNs.
    pub fn held_bytes_max(board_len: usize) -> usize {
        (2 * board_len).max(SENT_LOG_MAX) * size_of::<u64>()
    }

    /// Removes all entries; the memory is kept.
    pub fn clear(&mut self) {
        self.ring.clear();
    }

    /// Notes that transmission `tx_num` is sent now on `path`. `board_len`: entries of the
    /// context's scoreboard.
    #[inline]
    pub fn note(&mut self, now: Time, tx_num: TxNum, path: u8, full: bool, board_len: usize) {
        let new = word(now, path, tx_num.low()) | (u64::from(full) * FULL);
        let len = self.ring.len();
        debug_assert!(len == 0 || len.is_power_of_two(), "places are lower bits of numbers");
        let at = tx_num.0 as usize & len.wrapping_sub(1);
        let Some(w) = self.ring.get_mut(at) else {
            return self.make_room(new, tx_num, board_len);
        };
        let recent = len < SENT_LOG_MAX && new.wrapping_sub(*w) < SPAN;
        if *w != 0 && (recent || len < 2 * board_len) {
            self.make_room(new, tx_num, board_len);
        } else {
            *w = new;
        }
    }

    /// Notes the transmission `new`, whose index is taken by one that may still be echoed, after
    /// the ring has grown.
    #[cold]
    fn make_room(&mut self, new: u64, tx_num: TxNum, board_len: usize) {
        let recent = |w: u64| w != 0 && new.wrapping_sub(w) < SPAN;
        self.grow(2 * board_len);
        loop {
            let len = self.ring.len();
            let at = tx_num.0 as usize & (len - 1);
            if !recent(self.ring[at]) || len >= SENT_LOG_MAX {
                debug_assert!(len <= SENT_LOG_MAX.max(2 * board_len), "a bounded ring");
                self.ring[at] = new;
                return;
            }
            self.grow(2 * len);
        }
    }

    /// Whether `echo`, with the send time `sent`, names a transmission in the log that was not
    /// echoed before. If so, the transmission counts as echoed from now on. `next`: the next
    /// transmission number.
    pub fn take(&mut self, sent: Time, echo: &Echo, next: TxNum) -> Option<bool> {
        let ago = next.low().0.wrapping_sub(echo.tx_num);
        if ago == 0 || ago > AGO_MAX {
            return None;
        }
        let len = self.ring.len();
        debug_assert!(len == 0 || len.is_power_of_two(), "places are lower bits of numbers");
        let at = echo.tx_num as usize & len.wrapping_sub(1);
        let w = self.ring.get_mut(at)?;
        if *w != 0 && *w & !FULL == word(sent, echo.path, TxLow(echo.tx_num)) {
            return Some(core::mem::take(w) & FULL != 0);
        }
        if (len + 1..=SENT_LOG_MAX).contains(&(ago as usize)) {
            self.grow(2 * len);
        }
        None
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let len = len.max(LEN_MIN);
        if len <= self.ring.len() {
            return;
        }
        if self.ring.is_empty() {
            return self.ring.resize(len, 0);
        }
        let old = core::mem::replace(&mut self.ring, vec![0; len]);
        for (i, w) in old.into_iter().enumerate() {
            let number = (w as usize & 0xFFFF) << PLACE_BITS | i & (LEN_MIN - 1);
            let at = number & (len - 1);
            self.ring[at] = self.ring[at].max(w);
        }
        debug_assert!(self.ring.len() == len && len.is_power_of_two(), "it has grown");
    }
}

/// A word of the ring, from the top: 39 bits of the send time in units of the packet timestamp,
/// which wraps 128 times before a value repeats (2.4 hours); [`FULL`]; 8 bits of the path; 16 bits
/// of the number, above those that are its index.
fn word(sent: Time, path: u8, tx_num: TxLow) -> u64 {
    (sent.0 >> 4) << TIME_AT | u64::from(path) << 16 | u64::from((tx_num.0 >> PLACE_BITS) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SentLog {
        fn notes(&mut self, now: Time, tx_num: u64, path: u8, board_len: usize) {
            self.note(now, TxNum(tx_num), path, tx_num.is_multiple_of(2), board_len);
        }
        fn takes(&mut self, sent: Time, echo: &Echo, next: u64) -> bool {
            self.take(sent, echo, TxNum(next)).is_some()
        }
    }

    fn echo(tx_num: u32, path: u8) -> Echo {
        Echo { tx_num, timestamp: 0, delay: 0, path, ce: false }
    }

    /// Distance of transmissions at which the ring grows only with the scoreboard.
    const APART: u64 = SENT_LOG_SPAN.0 / 50;

    /// The ring grows with the scoreboard, across the wrap of the numbers on the wire, and keeps
    /// the newest transmissions.
    #[test]
    fn knows_the_newest_transmissions_each_once() {
        let mut log = SentLog::default();
        assert!(!log.takes(Time(0), &echo(0, 0), 1), "nothing has left");
        let first = (1u64 << 32) - 300;
        let at = |n: u64| Time(1_000_000 + (n - first) * APART);
        for n in first..first + 1000 {
            let board_len = if n < first + 500 { 32 } else { 128 };
            log.notes(at(n), n, n as u8 & 7, board_len);
        }
        let mut known = 0;
        for n in first..first + 1000 {
            let e = echo(n as u32, n as u8 & 7);
            let taken = log.takes(at(n), &e, first + 1000);
            assert_eq!(taken, n >= first + 1000 - 256, "{n}");
            assert!(!log.takes(at(n), &e, first + 1000), "once");
            known += u32::from(taken);
        }
        assert_eq!(known, 256);
    }

    /// Many retransmissions are sent within a round trip: the ring grows to hold them all.
    #[test]
    fn echoes_of_what_is_no_longer_known_make_room() {
        let mut log = SentLog::default();
        let mut known = 0;
        for n in 21_000..23_000 {
            log.notes(Time(n * APART), n, 1, 16);
            let old = n - 300;
            known += u32::from(log.takes(Time(old * APART), &echo(old as u32, 1), n + 1));
        }
        assert_eq!(known, 1700, "all but those that left before the first");
        let len = log.ring.len();
        assert!(!log.takes(Time(0), &echo(23_000 - SENT_LOG_MAX as u32 - 1, 1), 23_000));
        assert_eq!((len, log.ring.len()), (512, 512), "too old to ask for room");
        for _ in 0..20 {
            let _ = log.takes(Time(0), &echo(23_000 - SENT_LOG_MAX as u32, 1), 23_000);
        }
        assert_eq!(log.ring.len(), SENT_LOG_MAX);
    }

    /// A path with a long queue: its packets were given up and their retransmissions acknowledged
    /// while many others were sent and acknowledgments used numbers. Their echoes were refused when
    /// the ring was no larger than twice the scoreboard.
    #[test]
    fn what_left_lately_is_known_whatever_left_since() {
        let mut log = SentLog::default();
        let (first, n) = (u64::from(u32::MAX) - 700, 2_000);
        let at = |n: u64| Time(1_000_000 + (n - first) * 400);
        let leaves = |n: u64| !n.is_multiple_of(3);
        for n in (first..first + n).filter(|&n| leaves(n)) {
            log.notes(at(n), n, 7, 16);
        }
        for n in first..first + n {
            assert_eq!(log.takes(at(n), &echo(n as u32, 7), first + 2_000), leaves(n), "{n}");
        }
        // Most transmissions were echoed, so there is room; but the ring is bounded.
        assert_eq!(log.ring.len(), 2048);
        for n in first + n..first + 100_000 {
            log.notes(at(n), n, 7, 16);
        }
        assert_eq!(log.ring.len(), SENT_LOG_MAX);
    }

    /// Acknowledgments use numbers and are not echoed, so they overwrite nothing.
    #[test]
    fn what_is_not_noted_overwrites_nothing() {
        let mut log = SentLog::default();
        log.notes(Time(500), 9, 2, 16);
        assert!(!log.takes(Time(500), &echo(9 + 64, 2), 5_000));
        assert!(log.takes(Time(500), &echo(9, 2), 5_000));
    }

    #[test]
    fn growth_loses_nothing() {
        let mut log = SentLog::default();
        for n in 0..64 {
            log.notes(Time(16 + n * 16), n, 3, 32);
        }
        log.notes(Time(5000), 64, 3, 4096);
        assert!((0..64).all(|n| log.takes(Time(16 + n * 16), &echo(n as u32, 3), 65)));
    }

    #[test]
    fn number_time_and_path_have_to_fit() {
        let mut log = SentLog::default();
        let sent = Time(123_456_789);
        log.notes(sent, 77, 5, 32);
        let mut take = |sent, tx_num, path| log.takes(sent, &echo(tx_num, path), 78);
        assert!(!take(sent + crate::time::Span(16), 77, 5));
        assert!(!take(Time(sent.0 + (1 << 36)), 77, 5), "a turn of the clock in packets");
        assert!(!take(sent, 77, 4));
        assert!(!take(sent, 77 - 64, 5));
        assert!(!take(sent, 77 + (1 << 31), 5));
        assert!(take(sent, 77, 5));
        log.notes(sent, 78, 5, 32);
        log.clear();
        assert!(!log.takes(sent, &echo(78, 5), 79));
    }
}
