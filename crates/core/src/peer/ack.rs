//! When the next acknowledgment is due, and what it must contain.

use crate::config::AckConfig;
use crate::psn::{Psn, PsnRange};
use crate::time::{Span, Time};
use arrayvec::ArrayVec;
use srd_wire::{ACK_ECHOES_MAX, Echo, Header};

/// Largest number of packets that does not count as a burst.
const ALONE_MAX: u16 = 2;

/// Answers in time, less those that did not come, that are counted at most, and from which on the
/// next one is likely.
const ANSWERS_MAX: u8 = 3;
const ANSWERS_LIKELY: u8 = 2;

/// What is due after this delay leaves in the next turn: the program sees what has arrived first,
/// and an answer that it posts before it asks for more takes the acknowledgment along.
const NEXT_TURN: Span = Span(1);

/// A received packet whose timing the next acknowledgment echoes.
#[derive(Clone, Copy, Debug)]
struct PendingEcho {
    tx_num: u32,
    timestamp: u32,
    at: Time,
    path: u8,
    ce: bool,
}

/// Whether an acknowledgment is to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    No,
    /// The next acknowledgment is to be followed by a repetition.
    Wanted,
    /// The next acknowledgment is the repetition.
    Due,
}

/// Acknowledgment state of one context.
#[derive(Debug)]
pub(crate) struct AckState {
    /// Reliable packets received since the last acknowledgment.
    unacked: u16,
    /// When the next acknowledgment is due (`Time::NEVER`: none is needed).
    due: Time,
    echoes: ArrayVec<PendingEcho, ACK_ECHOES_MAX>,
    /// Range of PSNs whose state has changed since the last acknowledgment.
    changed: Option<PsnRange>,
    /// One past the last PSN of a burst, after which the sender had nothing to send: it waits for
    /// the acknowledgment of all PSNs before.
    end: Option<Psn>,
    /// Whether the sender seems to have missed an acknowledgment: the next one is then repeated on
    /// another path than the usual ones.
    repeat: Repeat,
    /// Whether the acknowledgment of a burst waits for an answer that carries it.
    awaits_answer: bool,
    /// Answers that came soon enough to carry such an acknowledgment, less those that did not:
    /// 0 to [`ANSWERS_MAX`].
    answers: u8,
    /// When a burst may be acknowledged again without waiting for an answer, in units of 16 ns.
    next_end: u32,
}

impl Default for AckState {
    fn default() -> Self {
        Self {
            unacked: 0,
            due: Time::NEVER,
            echoes: ArrayVec::new(),
            changed: None,
            end: None,
            repeat: Repeat::No,
            awaits_answer: false,
            answers: 0,
            next_end: 0,
        }
    }
}

impl AckState {
    /// Whether no acknowledgment is due.
    pub fn is_quiet(&self) -> bool {
        debug_assert!(
            self.due != Time::NEVER || self.unacked == 0 && self.changed.is_none(),
            "what has arrived is acknowledged some time: {self:?}"
        );
        self.due == Time::NEVER
    }
    /// When the next acknowledgment must be sent (`Time::NEVER`: none is needed).
    pub fn due(&self) -> Time {
        self.due
    }
    /// Whether the next acknowledgment covers only one or two packets, and not a burst.
    pub fn is_alone(&self) -> bool {
        self.unacked <= ALONE_MAX
    }
    /// Range of PSNs whose state has changed since the last acknowledgment.
    pub fn changed(&self) -> Option<PsnRange> {
        debug_assert!(self.changed.is_none_or(|c| c.first != c.end), "a range holds a PSN");
        self.changed
    }

    /// Notes a packet whose timing is to be echoed.
    pub fn note_echo(&mut self, now: Time, h: &Header, ce: bool) {
        let e = PendingEcho { tx_num: h.tx_num, timestamp: h.timestamp, at: now, path: h.path, ce };
        // One echo stands for a burst on one path with the same CE mark: that of the newest packet.
        if let Some(last) = self.echoes.last_mut()
            && last.path == e.path
            && last.ce == e.ce
        {
            *last = e;
            return;
        }
        if self.echoes.is_full() {
            self.echoes.remove(0);
        }
        self.echoes.push(e);
    }

    /// Notes that reliable packet `p` was received, perhaps not for the first time.
    #[inline]
    pub fn note_psn(&mut self, now: Time, p: Psn, cfg: &AckConfig) {
        self.unacked = self.unacked.saturating_add(1);
        self.changed = Some(match self.changed {
            None => PsnRange { first: p, end: p.next() },
            Some(PsnRange { first, end }) => PsnRange {
                first: if p.is_before(first) { p } else { first },
                end: if p.is_before(end) { end } else { p.next() },
            },
        });
        debug_assert!(self.changed.is_some_and(|c| p.is_within(c.first, c.end)), "it has changed");
        let delay = if self.unacked >= cfg.every { Span::ZERO } else { cfg.delay_max };
        self.due = self.due.min(now + delay);
    }

    /// Makes the next acknowledgment due after `delay` at the latest.
    pub fn hasten(&mut self, now: Time, delay: Span) {
        self.due = self.due.min(now + delay);
    }

    /// Notes that the sender has nothing to send after `p`.
    pub fn note_end(&mut self, p: Psn) {
        self.end = Some(p.next());
    }

    /// Whether the sender's burst is complete, with all PSNs before `cum` received; true only once.
    pub fn end_reached(&mut self, cum: Psn) -> bool {
        let reached = self.end.is_some_and(|end| !cum.is_before(end));
        if reached {
            self.end = None;
        }
        reached
    }

    /// The sender's burst is complete, and it waits for the acknowledgment. If the program here is
    /// likely to answer within `delay`, the answer is to carry it. Otherwise it leaves in the next
    /// turn, but not twice within `delay`: small messages that follow each other share one.
    pub fn hasten_end(&mut self, now: Time, delay: Span) {
        self.awaits_answer = self.answers >= ANSWERS_LIKELY;
        if self.awaits_answer {
            self.hasten(now, delay);
            return;
        }
        let wait = self.until_next_end(now, delay).unwrap_or(Span::ZERO);
        let at = now + wait.max(NEXT_TURN).min(delay);
        if at < self.due {
            self.due = at;
            self.next_end = (at + delay).to_wire();
        }
    }

    /// Time until the next burst may be acknowledged without waiting for an answer, if it is not
    /// long past.
    fn until_next_end(&self, now: Time, delay: Span) -> Option<Span> {
        let units = self.next_end.wrapping_sub(now.to_wire());
        let until = Span(u64::from(units) << 4);
        (until <= delay.scale(2, 1)).then_some(until)
    }

    /// A packet with data leaves for the sender of the burst.
    #[inline]
    pub fn note_answer(&mut self, now: Time, delay: Span) {
        let soon = || self.until_next_end(now, delay).is_some();
        if self.awaits_answer || self.answers < ANSWERS_LIKELY && soon() {
            self.awaits_answer = false;
            self.answers = (self.answers + 1).min(ANSWERS_MAX);
            // Each burst has one answer.
            self.next_end = now.to_wire().wrapping_sub(1);
        }
    }

    /// An acknowledgment leaves in a packet of its own.
    pub fn note_unanswered(&mut self) {
        self.answers -= u8::from(self.awaits_answer && self.answers > 0);
        self.awaits_answer = false;
    }

    /// The echoes of an acknowledgment that is sent now.
    pub fn echoes(&self, now: Time) -> ArrayVec<Echo, ACK_ECHOES_MAX> {
        let echo = |e: &PendingEcho| {
            debug_assert!(e.at <= now, "what is echoed has arrived");
            Echo {
                tx_num: e.tx_num,
                timestamp: e.timestamp,
                delay: u16::try_from(now.since(e.at).0 >> 6).unwrap_or(u16::MAX),
                path: e.path,
                ce: e.ce,
            }
        };
        self.echoes.iter().map(echo).collect()
    }

    /// Notes that an acknowledgment was sent. `rest`: PSNs that it could not cover; for them
    /// another one is due at once.
    pub fn sent(&mut self, now: Time, rest: Option<PsnRange>) {
        debug_assert!(rest.is_none_or(|r| r.first.is_before(r.end)), "a range holds a PSN");
        self.unacked = 0;
        self.echoes.clear();
        self.changed = rest;
        let wanted = self.repeat == Repeat::Wanted;
        self.repeat = if wanted { Repeat::Due } else { Repeat::No };
        self.due = if rest.is_some() || wanted { now } else { Time::NEVER };
        debug_assert!(self.changed.is_none() || self.due == now, "what is left out is said next");
    }

    /// Notes that a packet arrived again, or that the sender probes: earlier acknowledgments may
    /// have been lost with their paths.
    pub fn note_missed(&mut self) {
        self.repeat = Repeat::Wanted;
    }

    /// Whether the acknowledgment that is sent now is a repetition.
    pub fn is_repeat(&self) -> bool {
        self.repeat == Repeat::Due
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::{Backlog, Flags, PacketType};

    const CFG: AckConfig = AckConfig { every: 2, delay_max: Span(1000), delay_requested: Span(10) };

    fn header(path: u8, tx_num: u32) -> Header {
        Header {
            kind: PacketType::Send,
            flags: Flags(0),
            backlog: Backlog(0),
            path,
            slot: 0,
            dst_tag: 1,
            tx_num,
            timestamp: tx_num,
            psn: 0,
            una_delta: 0,
            ack_echo: 0,
        }
    }

    #[test]
    fn coalesces_until_enough_or_late() {
        let mut a = AckState::default();
        assert!(a.is_quiet());
        a.note_psn(Time(0), Psn(5), &CFG);
        assert_eq!(a.due(), Time(1000));
        a.note_psn(Time(10), Psn(3), &CFG);
        let changed = PsnRange { first: Psn(3), end: Psn(6) };
        assert_eq!((a.due(), a.changed()), (Time(10), Some(changed)));
        a.sent(Time(20), None);
        assert!(a.is_quiet());
        a.hasten(Time(30), Span(5));
        assert_eq!(a.due(), Time(35));
    }

    #[test]
    fn what_seems_to_be_missed_is_said_once_more() {
        let mut a = AckState::default();
        a.note_psn(Time(0), Psn(5), &CFG);
        a.note_missed();
        assert!(!a.is_repeat());
        a.sent(Time(20), None);
        assert_eq!((a.due(), a.is_repeat()), (Time(20), true));
        a.sent(Time(20), None);
        assert!(a.is_quiet() && !a.is_repeat());
    }

    #[test]
    fn the_end_of_a_burst_is_told_once() {
        let mut a = AckState::default();
        assert!(!a.end_reached(Psn(7)));
        a.note_end(Psn(u32::MAX));
        assert!(!a.end_reached(Psn(u32::MAX)), "PSN u32::MAX itself is missing");
        assert!(a.end_reached(Psn(0)), "across the wrap");
        assert!(!a.end_reached(Psn(1)));
    }

    const DELAY: Span = Span(4800);

    /// A burst ends at `now`. Returns when it is acknowledged.
    fn ended(a: &mut AckState, now: Time) -> Time {
        a.note_psn(now, Psn(5), &AckConfig { every: 8, delay_max: Span(50_000), ..CFG });
        a.hasten_end(now, DELAY);
        a.due()
    }

    /// An acknowledgment leaves in a packet of its own.
    fn leaves(a: &mut AckState, now: Time) {
        a.note_unanswered();
        a.sent(now, None);
    }

    /// One leaves at once, those of small messages that follow each other share one.
    #[test]
    fn the_end_of_a_burst_is_acknowledged_soon_but_not_too_often() {
        let mut a = AckState::default();
        let mut now = Time(1 << 30);
        for _ in 0..5 {
            assert_eq!(ended(&mut a, now), now + NEXT_TURN);
            leaves(&mut a, now + NEXT_TURN);
            for soon in [800, 1600, 3200] {
                assert_eq!(ended(&mut a, now + Span(soon)), now + DELAY);
            }
            leaves(&mut a, now + DELAY);
            assert_eq!(ended(&mut a, now + Span(6400)), now + DELAY.scale(2, 1), "{a:?}");
            leaves(&mut a, now + DELAY.scale(2, 1));
            now += Span(48_000);
        }
    }

    #[test]
    fn answers_carry_the_acknowledgment_once_they_are_likely() {
        let mut a = AckState::default();
        let mut now = Time(1 << 30);
        let mut exchange = |a: &mut AckState, answered: bool| {
            now += Span(32_000);
            let at = ended(a, now);
            if at == now + NEXT_TURN {
                leaves(a, at);
            }
            let later = now + Span(1600);
            if answered {
                a.note_answer(later, DELAY);
                a.note_answer(later, DELAY);
            }
            if at > now + NEXT_TURN {
                leaves(a, later);
            }
            at.since(now)
        };
        assert_eq!([true; 2].map(|y| exchange(&mut a, y)), [NEXT_TURN; 2]);
        assert_eq!([true; 3].map(|y| exchange(&mut a, y)), [DELAY; 3]);
        assert_eq!([false, true, true].map(|y| exchange(&mut a, y)), [DELAY; 3], "one was late");
        assert_eq!([false; 4].map(|y| exchange(&mut a, y))[2..], [NEXT_TURN; 2], "nobody answers");
    }

    #[test]
    fn one_echo_per_burst_and_delay_saturates() {
        let mut a = AckState::default();
        for n in 0..5 {
            a.note_echo(Time(0), &header(1, n), false);
        }
        a.note_echo(Time(64), &header(2, 9), true);
        let e = a.echoes(Time(128));
        assert_eq!((e.len(), e[0].tx_num, e[0].delay), (2, 4, 2));
        assert_eq!((e[1].delay, e[1].ce), (1, true));
        assert_eq!(a.echoes(Time(1 << 40))[0].delay, u16::MAX);
        for n in 0..20 {
            a.note_echo(Time(0), &header(n, 0), false);
        }
        assert_eq!(a.echoes(Time(0)).len(), ACK_ECHOES_MAX);
    }
}
