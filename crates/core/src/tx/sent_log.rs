//! What left lately, by transmission number: an echo is believed only if it names a transmission.
//!
//! A ring with one word for each transmission of a context that is echoed (reliable packets and
//! probes): when it left, on which path, and enough of its number to tell it from those a turn of
//! the ring ago. It grows with the scoreboard, to twice as many entries: what is in flight, with as
//! many copies, and numbers that pure acknowledgments take. An
//! echo of what is older says nothing, but doubles the ring, up to [`SENT_LOG_MAX`]: where round
//! trips are far longer than they are known to be, many copies of little leave within one, and
//! without an echo that would never end.

use crate::limits::SENT_LOG_MAX;
use crate::time::Time;
use srd_wire::Echo;

/// Entries of the smallest ring, 2^6: lower bits of a number are its place.
const LEN_MIN: usize = 64;
const PLACE_BITS: u32 = LEN_MIN.trailing_zeros();

/// Transmissions of one context.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    /// A power of two of words, or none; 0 is no transmission.
    ring: Vec<u64>,
}

impl SentLog {
    /// Forgets all; the room stays.
    pub fn clear(&mut self) {
        self.ring.clear();
    }

    /// Number `tx_num` leaves now on `path`. `board_len`: entries of the context's scoreboard.
    #[inline]
    pub fn note(&mut self, now: Time, tx_num: u64, path: u8, board_len: usize) {
        if self.ring.len() < 2 * board_len {
            self.grow(2 * board_len);
        }
        let at = tx_num as usize & (self.ring.len() - 1);
        self.ring[at] = word(now, path, tx_num as u32);
    }

    /// Whether `echo`, of something sent at `sent`, names a transmission that was not echoed yet.
    /// From now on it was. `next`: the number of the next transmission.
    pub fn take(&mut self, sent: Time, echo: &Echo, next: u64) -> bool {
        let ago = (next as u32).wrapping_sub(echo.tx_num) as usize;
        if ago == 0 || ago > self.ring.len() {
            if (1..=SENT_LOG_MAX).contains(&ago) && !self.ring.is_empty() {
                self.grow(2 * self.ring.len());
            }
            return false;
        }
        let at = echo.tx_num as usize & (self.ring.len() - 1);
        match self.ring.get_mut(at) {
            Some(w) if *w != 0 && *w == word(sent, echo.path, echo.tx_num) => {
                *w = 0;
                true
            }
            _ => false,
        }
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let len = len.max(LEN_MIN);
        if self.ring.is_empty() {
            return self.ring.resize(len, 0);
        }
        let old = core::mem::replace(&mut self.ring, vec![0; len]);
        for (i, w) in old.into_iter().enumerate() {
            let number = (w as usize & 0xFFFF) << PLACE_BITS | i & (LEN_MIN - 1);
            let at = number & (len - 1);
            self.ring[at] = self.ring[at].max(w);
        }
    }
}

/// 40 bits of the time in units of the clock in packets, which turns 256 times before the same
/// value returns (4.9 hours); 8 bits of the path; 16 of the number, above those that are its place.
fn word(sent: Time, path: u8, tx_num: u32) -> u64 {
    (sent.0 >> 4) << 24 | u64::from(path) << 16 | u64::from((tx_num >> PLACE_BITS) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(tx_num: u32, path: u8) -> Echo {
        Echo { tx_num, timestamp: 0, delay: 0, path, ce: false }
    }

    /// The ring grows as the board does, over the wrap of the numbers on the wire, and still knows
    /// what it has room for.
    #[test]
    fn knows_the_newest_transmissions_each_once() {
        let mut log = SentLog::default();
        assert!(!log.take(Time(0), &echo(0, 0), 1), "nothing has left");
        let first = (1u64 << 32) - 300;
        let at = |n: u64| Time(1_000_000 + (n - first) * 40);
        for n in first..first + 1000 {
            let board_len = if n < first + 500 { 32 } else { 128 };
            log.note(at(n), n, n as u8 & 7, board_len);
        }
        let mut known = 0;
        for n in first..first + 1000 {
            let e = echo(n as u32, n as u8 & 7);
            let taken = log.take(at(n), &e, first + 1000);
            assert_eq!(taken, n >= first + 1000 - 256, "{n}");
            assert!(!log.take(at(n), &e, first + 1000), "once");
            known += u32::from(taken);
        }
        assert_eq!(known, 256);
    }

    /// Many copies leave within a round trip: the ring comes to hold them all.
    #[test]
    fn echoes_of_what_is_no_longer_known_make_room() {
        let mut log = SentLog::default();
        let mut known = 0;
        for n in 21_000..23_000 {
            log.note(Time(n * 1600), n, 1, 16);
            let old = n - 300;
            known += u32::from(log.take(Time(old * 1600), &echo(old as u32, 1), n + 1));
        }
        assert_eq!(known, 1700, "all but those that left before the first");
        let len = log.ring.len();
        assert!(!log.take(Time(0), &echo(23_000 - SENT_LOG_MAX as u32 - 1, 1), 23_000));
        assert_eq!((len, log.ring.len()), (512, 512), "too old to ask for room");
        for _ in 0..20 {
            let _ = log.take(Time(0), &echo(23_000 - SENT_LOG_MAX as u32, 1), 23_000);
        }
        assert_eq!(log.ring.len(), SENT_LOG_MAX);
    }

    #[test]
    fn growth_loses_nothing() {
        let mut log = SentLog::default();
        for n in 0..64 {
            log.note(Time(16 + n * 16), n, 3, 32);
        }
        log.note(Time(5000), 64, 3, 4096);
        assert!((0..64).all(|n| log.take(Time(16 + n * 16), &echo(n as u32, 3), 65)));
    }

    #[test]
    fn number_time_and_path_have_to_fit() {
        let mut log = SentLog::default();
        let sent = Time(123_456_789);
        log.note(sent, 77, 5, 32);
        let mut take = |sent, tx_num, path| log.take(sent, &echo(tx_num, path), 78);
        assert!(!take(sent + crate::time::Span(16), 77, 5));
        assert!(!take(Time(sent.0 + (1 << 36)), 77, 5), "a turn of the clock in packets");
        assert!(!take(sent, 77, 4));
        assert!(!take(sent, 77 - 64, 5));
        assert!(!take(sent, 77 + (1 << 31), 5));
        assert!(take(sent, 77, 5));
        log.note(sent, 78, 5, 32);
        log.clear();
        assert!(!log.take(sent, &echo(78, 5), 79));
    }
}
