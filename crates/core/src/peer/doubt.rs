//! State of the question whether the peer still has its end of the context (see `engine/doubt.rs`).

use crate::limits::DOUBT_EVERY;
use crate::peer::Window;
use crate::psn::TxNum;
use crate::time::{Span, Time};

/// A question that the peer has not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    nonce: u64,
    began: Time,
    /// When the next Challenge is sent.
    at: Time,
    round: u8,
    /// When silence counts as an answer.
    ends: Time,
    /// The peer has announced, with both tags, that it shuts down.
    goodbye: bool,
    /// The peer's newest transmission number when the question began.
    newest: TxNum,
}

/// State of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The peer may still answer.
    Open,
    /// The peer is to be asked again now.
    AskAgain,
    /// The peer was heard since, so it has the context.
    Alive,
    /// The peer has not been silent for long enough; the question now ends later.
    TooEarly,
    /// The peer has announced that it shuts down, and has not contradicted.
    Left,
    /// The peer is silent.
    Silent,
}

impl Doubt {
    /// The secret number of the question, which only the peer can know.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }
    /// The peer's newest transmission number when the question began.
    pub fn newest(&self) -> TxNum {
        self.newest
    }

    /// Notes the peer's announcement that it shuts down: it has until `last_word` to contradict.
    /// Returns whether it is the first announcement.
    pub fn hear_goodbye(&mut self, last_word: Time) -> bool {
        debug_assert!(self.began <= self.ends, "{self:?}");
        let news = !self.goodbye;
        if news {
            (self.goodbye, self.ends) = (true, self.ends.min(last_word));
        }
        news
    }

    /// Notes that a Challenge is sent now; the next is due after `retry`, doubled with each and at
    /// most `most`. Returns the number that it carries.
    pub fn ask(&mut self, now: Time, retry: Span, most: Span) -> u64 {
        debug_assert!(self.at <= now && self.nonce != 0, "asked when it is due: {self:?}");
        self.at = now + retry.scale(1 << self.round.min(16), 1).min(most);
        self.round = self.round.saturating_add(1);
        self.nonce
    }

    /// The state of the question at `now`, where all packets that arrived up to `seen` were handled
    /// and the peer was last heard at `heard`. `unresponsive_after`: how long a peer may be silent.
    pub fn judge(
        &mut self,
        now: Time,
        seen: Time,
        heard: Time,
        unresponsive_after: Span,
    ) -> Outcome {
        debug_assert!(self.began <= now && seen <= now, "{self:?}");
        if self.ends > seen {
            return if self.at <= now { Outcome::AskAgain } else { Outcome::Open };
        }
        // Packets that arrived in the first half may have been in flight when the peer lost the
        // context.
        let half = Span(self.ends.since(self.began).0 / 2);
        if heard > self.began + half {
            return Outcome::Alive;
        }
        let silent_at = heard + unresponsive_after;
        if !self.goodbye && silent_at > seen {
            // The peer was heard in the first half, so its silence is not long enough yet.
            self.ends = silent_at;
            return Outcome::TooEarly;
        }
        if self.goodbye { Outcome::Left } else { Outcome::Silent }
    }
}

impl Window {
    /// The open question, if there is one.
    pub fn doubt(&self) -> Option<&Doubt> {
        self.doubt.as_ref()
    }
    /// The open question, if there is one.
    pub fn doubt_mut(&mut self) -> Option<&mut Doubt> {
        self.doubt.as_mut()
    }
    /// Whether the peer may be asked at `now`.
    pub fn may_doubt(&self, now: Time) -> bool {
        debug_assert!(self.doubt.is_none(), "one question at a time");
        now >= self.doubt_next
    }
    /// Opens a question with the secret `nonce`; silence counts as an answer at `ends`.
    pub fn doubt_begin(&mut self, now: Time, nonce: u64, ends: Time, goodbye: bool) {
        debug_assert!(self.doubt.is_none() && self.may_doubt(now), "one question at a time");
        debug_assert!(nonce != 0 && now <= ends, "a number that only the peer can know");
        let newest = self.replay.newest();
        self.doubt = Some(Doubt { nonce, began: now, at: now, round: 0, ends, goodbye, newest });
        self.doubt_next = now + DOUBT_EVERY;
    }
    /// Closes the question, which is answered.
    pub fn doubt_end(&mut self, now: Time) {
        debug_assert!(self.doubt.is_some(), "there was a question");
        self.doubt = None;
        self.doubt_next = now + DOUBT_EVERY;
    }
    /// Drops the question, because the context starts over: it was about the one before, and the
    /// next one may be asked about at any time.
    pub fn doubt_forget(&mut self) {
        (self.doubt, self.doubt_next) = (None, Time(0));
    }

    /// When the question next needs a Challenge or a decision.
    pub fn doubt_at(&self) -> Time {
        self.doubt.as_ref().map_or(Time::NEVER, |d| d.at.min(d.ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use core::net::Ipv4Addr;

    const SILENT: Span = Span(1_000);

    fn asked(goodbye: bool, ends: u64) -> Window {
        let ip = Ipv4Addr::LOCALHOST.into();
        let mut w = Window::new(&EngineConfig::sockets(ip, 0, 1024));
        w.doubt_begin(Time(100), 7, Time(ends), goodbye);
        w
    }

    #[test]
    fn a_peer_that_is_silent_long_enough_is_gone() {
        let mut w = asked(false, 1_100);
        let mut judge =
            |now, heard| w.doubt_mut().unwrap().judge(Time(now), Time(now), Time(heard), SILENT);
        assert_eq!(judge(100, 50), Outcome::AskAgain);
        assert_eq!(judge(1_100, 700), Outcome::Alive, "heard in the second half");
        assert_eq!(judge(1_100, 300), Outcome::TooEarly, "in the first: it is not silent for long");
        assert_eq!(judge(1_299, 300), Outcome::AskAgain);
        assert_eq!(judge(1_300, 300), Outcome::Silent);
    }

    #[test]
    fn who_took_leave_has_less_time_to_contradict() {
        let mut w = asked(false, 5_000);
        let d = w.doubt_mut().unwrap();
        assert!(d.hear_goodbye(Time(400)) && !d.hear_goodbye(Time(300)), "news once");
        assert_eq!(d.judge(Time(400), Time(399), Time(50), SILENT), Outcome::AskAgain);
        assert_eq!(d.judge(Time(400), Time(400), Time(50), SILENT), Outcome::Left);
    }

    #[test]
    fn questions_are_repeated_at_growing_distances_and_rarely_begin() {
        let mut w = asked(false, 5_000);
        let d = w.doubt_mut().unwrap();
        let mut at = vec![];
        for _ in 0..4 {
            assert_eq!(d.ask(d.at, Span(10), Span(35)), 7);
            at.push(d.at.0 - 100);
        }
        assert_eq!((at, w.doubt_at()), (vec![10, 30, 65, 100], Time(200)));
        w.doubt_end(Time(200));
        assert!(w.doubt().is_none() && w.doubt_at() == Time::NEVER);
        assert!(!w.may_doubt(Time(201)) && w.may_doubt(Time(200) + DOUBT_EVERY));
    }
}
