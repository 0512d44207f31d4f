//! Handshake state of a context: its state, both tags, and the progress of an open or a close.

use super::ContextState;
use super::narrow::Narrow;
use crate::ids::{OwnTag, PeerTag};
use crate::time::{Span, Time};

/// An Open-Ack that waits to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    waits: bool,
    /// Length in bytes to which it is padded; 0: no padding.
    padded_len: u16,
    /// 0 in an answer to an Open; else the number of the Challenge that it answers.
    cookie: u64,
    /// Path by which the question came.
    near: u8,
}

/// What an outgoing Open-Ack carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerOut {
    /// The peer's tag.
    pub echo_tag: PeerTag,
    /// See [`Handshake::answer`].
    pub cookie: u64,
    /// Length in bytes to which it is padded; 0: no padding.
    pub padded_len: u16,
    /// Path by which the question came.
    pub near: u8,
}

/// Reaction to a Challenge that answers our Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenged {
    /// Send the Open again at once, with the cookie.
    Now,
    /// Send the Open again soon, because the peer has challenged it before.
    Soon,
    /// Do nothing: the same Challenge came before.
    Known,
}

/// Why no request begins in an open context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Requests begin.
    Free,
    /// The context is to be closed and opened anew as soon as no request that has begun is
    /// outstanding.
    Draining,
    /// The peer's answer came late, and the peer may have dropped the context meanwhile; it is
    /// asked.
    Unproven,
}

/// State that is needed only while a context opens or closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Underway {
    /// Cookie of the last Challenge, for our next Open.
    cookie: u64,
    /// When the present close began; in an open context that is draining, until when.
    close_began: Time,
    answer: Answer,
    /// What the handshake has shown about packet sizes.
    narrow: Narrow,
}

/// Handshake state of one context.
#[derive(Debug)]
pub(crate) struct Handshake {
    state: ContextState,
    /// Handshake packets of the present kind that were sent (saturating).
    round: u8,
    /// No answer had told anybody our tag before the last Open was sent.
    tag_fresh: bool,
    /// While opening: an Open that claimed to be the peer's turned out not to be. The next one must
    /// be proven.
    disowned: bool,
    /// The user was told that the peer and this engine do not agree on sealing.
    refusal_told: bool,
    /// While opening: to be begun anew at the next Open unless the peer uses our tag until then.
    anew_waits: bool,
    hold: Hold,
    local_tag: OwnTag,
    /// `PeerTag::NONE` until the peer's parameters are known.
    peer_tag: PeerTag,
    peer_incarnation: u64,
    /// When the handshake timer fires.
    at: Time,
    /// `None` stands for the default values.
    underway: Option<Box<Underway>>,
}

impl Handshake {
    /// Handshake of a new context in `state`, with our `tag`.
    pub fn new(state: ContextState, tag: OwnTag) -> Self {
        debug_assert!(matches!(state, ContextState::Opening | ContextState::HalfOpen), "{state:?}");
        debug_assert!(tag != OwnTag::NONE, "a context has a tag");
        Self {
            state,
            round: 0,
            tag_fresh: false,
            disowned: false,
            refusal_told: false,
            anew_waits: false,
            hold: Hold::Free,
            local_tag: tag,
            peer_tag: PeerTag::NONE,
            peer_incarnation: 0,
            at: Time::NEVER,
            underway: None,
        }
    }

    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.underway.as_ref().map_or(0, |_| Self::held_bytes_max())
    }
    /// Largest value of [`Self::held_bytes`].
    pub fn held_bytes_max() -> usize {
        size_of::<Underway>()
    }

    fn underway(&self) -> Underway {
        self.underway.as_deref().copied().unwrap_or_default()
    }
    /// Changes the state that is needed only while opening or closing; its memory is freed when all
    /// values are the defaults.
    fn underway_change<R>(&mut self, change: impl FnOnce(&mut Underway) -> R) -> R {
        let mut underway = self.underway();
        let result = change(&mut underway);
        if underway == Underway::default() {
            self.underway = None;
        } else {
            **self.underway.get_or_insert_default() = underway;
        }
        debug_assert!(
            self.underway.as_deref() != Some(&Underway::default()),
            "nothing is kept of what is as in one that begins"
        );
        result
    }
    /// What the handshake has shown about packet sizes.
    pub fn narrow(&self) -> Narrow {
        self.underway().narrow
    }
    /// Changes what the handshake has shown about packet sizes.
    pub fn narrow_change<R>(&mut self, change: impl FnOnce(&mut Narrow) -> R) -> R {
        self.underway_change(|u| change(&mut u.narrow))
    }

    #[inline(always)]
    pub fn state(&self) -> ContextState {
        self.state
    }
    /// When the handshake timer fires next.
    pub fn at(&self) -> Time {
        self.at
    }
    /// Handshake packets of the present kind that were sent (saturating).
    pub fn round(&self) -> u8 {
        self.round
    }
    /// Our tag, which the peer's packets carry.
    #[inline(always)]
    pub fn local_tag(&self) -> OwnTag {
        self.local_tag
    }
    /// The peer's tag; none until its parameters are known.
    #[inline(always)]
    pub fn peer_tag(&self) -> PeerTag {
        self.peer_tag
    }
    /// Whether the peer's tag and parameters are known.
    #[inline(always)]
    pub fn knows_peer(&self) -> bool {
        let known = self.peer_tag != PeerTag::NONE;
        debug_assert!(known || self.peer_incarnation == 0, "both are known, or none");
        known
    }
    /// Both tags in one number, so that a proof made for one context is not valid for another.
    pub fn tags_both(&self) -> u64 {
        u64::from(self.local_tag.0) << 32 | u64::from(self.peer_tag.0)
    }
    /// Replaces our tag. Returns the old one.
    pub fn retag(&mut self, tag: OwnTag) -> OwnTag {
        debug_assert!(tag != OwnTag::NONE, "a context has a tag");
        self.anew_waits = false;
        core::mem::replace(&mut self.local_tag, tag)
    }

    /// Whether the peer is known by this tag and incarnation.
    pub fn is_with(&self, tag: PeerTag, incarnation: u64) -> bool {
        (self.peer_tag, self.peer_incarnation) == (tag, incarnation)
    }
    /// Stores the tag and incarnation of the peer.
    pub fn peer_is(&mut self, tag: PeerTag, incarnation: u64) {
        debug_assert!(tag != PeerTag::NONE, "who is known has a tag");
        (self.peer_tag, self.peer_incarnation) = (tag, incarnation);
    }
    /// Whether an Open from the peer's address is believed without a proof: both sides open at the
    /// same time, and it is the first Open of the peer.
    pub fn takes_first_open(&self) -> bool {
        self.state == ContextState::Opening && !self.knows_peer() && !self.disowned
    }
    /// Notes that the user is told of the peer's refusal. Returns whether it is the first time.
    pub fn refusal_tell(&mut self) -> bool {
        !core::mem::replace(&mut self.refusal_told, true)
    }
    /// Whether the user was told of a refusal, and the peer has not accepted since.
    pub fn is_refused(&self) -> bool {
        self.refusal_told
    }
    /// Forgets the peer, whose supposed Open it has not sent.
    pub fn disown(&mut self) {
        debug_assert_eq!(self.state, ContextState::Opening, "only then it is not proven");
        self.peer_is_unknown();
        self.disowned = true;
    }
    fn peer_is_unknown(&mut self) {
        (self.peer_tag, self.peer_incarnation) = (PeerTag::NONE, 0);
    }

    // ---- opening -------------------------------------------------------------------------------

    /// Notes that an Open is sent now; the next is due after `retry`, doubled with each and at most
    /// `most`.
    pub fn open_sent(&mut self, now: Time, retry: Span, most: Span) {
        debug_assert_eq!(self.state, ContextState::Opening, "who opens says so");
        let wait = retry.scale(1 << self.round.min(16), 1).min(most);
        self.tag_fresh = !self.knows_peer();
        self.round = self.round.saturating_add(1);
        self.at = now + wait;
    }
    /// Send time of the only Open that an answer can belong to, with a retry time of `retry`;
    /// `None` if the answer may belong to another Open, or may have been sent before ours arrived.
    pub fn opened_at(&self, retry: Span) -> Option<Time> {
        // A peer that knew our tag before can send an answer before our Open arrives.
        let Underway { cookie, narrow, .. } = self.underway();
        let doubtful = cookie != 0 || narrow.answered().is_some() || !self.tag_fresh;
        (self.round == 1 && !doubtful).then(|| Time(self.at.0.saturating_sub(retry.0)))
    }
    /// The cookie that our Open carries; 0: the peer has not challenged it.
    pub fn cookie(&self) -> u64 {
        self.underway().cookie
    }
    /// Notes that a Challenge with `cookie` answered our Open. `soon`: the latest time for the next
    /// Open, which answers all Challenges until then.
    pub fn challenge(&mut self, cookie: u64, soon: Time) -> Challenged {
        debug_assert_eq!(self.state, ContextState::Opening, "nobody else is asked for a proof");
        let before = self.underway_change(|u| core::mem::replace(&mut u.cookie, cookie));
        if before == cookie {
            return Challenged::Known;
        }
        if before == 0 {
            return Challenged::Now;
        }
        self.at = self.at.min(soon);
        Challenged::Soon
    }
    /// Notes the first answer to an Open of less than full size; rounds count from here.
    pub fn narrow_begin(&mut self, size: u16) {
        debug_assert_eq!(self.state, ContextState::Opening, "our Opens are answered then");
        self.narrow_change(|n| n.answered_set(size));
        self.round = 1;
    }

    /// Starts to open from our side, for a request to a peer that has not confirmed yet. Returns
    /// the previous state, `None` if it does not apply.
    pub fn open_too(&mut self) -> Option<ContextState> {
        self.state.open_wanted().ok()
    }
    /// Starts to open again, for the first request to a peer that never used the context. Returns
    /// the previous state, `None` if it was not open.
    pub fn reopen(&mut self) -> Option<ContextState> {
        let from = self.state.reopened().ok()?;
        debug_assert!(self.knows_peer(), "who was open knows its peer");
        self.open_anew();
        Some(from)
    }
    /// Starts to open again while no Open was answered; a refusal is forgotten, and so is the peer,
    /// whose Open was answered with the present tag.
    pub fn open_again(&mut self) {
        debug_assert_eq!(self.state, ContextState::Opening, "not answered");
        (self.refusal_told, self.anew_waits) = (false, false);
        self.peer_is_unknown();
        self.open_anew();
    }
    /// Opens again at `at` unless the peer uses our tag until then: an answer with it may be under
    /// way to the peer. A refusal is forgotten.
    pub fn open_again_at(&mut self, at: Time) {
        debug_assert!(self.state == ContextState::Opening && self.knows_peer(), "it was answered");
        (self.refusal_told, self.anew_waits, self.at) = (false, true, at);
    }
    /// Whether the context is about to be opened again. No answer leaves until then.
    pub fn anew_waits(&self) -> bool {
        self.anew_waits
    }
    /// Opens the context, because the peer holds our tag. Returns the previous state, `None` if the
    /// context was open already.
    pub fn confirm(&mut self) -> Option<ContextState> {
        let from = self.state.confirmed().ok()?;
        debug_assert!(self.knows_peer(), "who confirms has been heard");
        self.rest();
        self.underway_change(|u| u.cookie = 0);
        (self.disowned, self.refusal_told, self.anew_waits) = (false, false, false);
        Some(from)
    }
    /// Stops opening, because the requests for it were withdrawn. Returns the previous state,
    /// `None` if it was not opening.
    pub fn unwant(&mut self) -> Option<ContextState> {
        let from = self.state.unwanted().ok()?;
        self.anew_waits = false;
        Some(from)
    }
    /// Starts over and opens, for requests of which nothing was sent. Returns the previous state.
    pub fn begin_again(&mut self) -> ContextState {
        debug_assert!(self.state != ContextState::Closed, "what is over stays over");
        self.peer_is_unknown();
        self.open_anew();
        core::mem::replace(&mut self.state, ContextState::Opening)
    }
    /// Sets the handshake timer to `at`.
    pub fn wait_until(&mut self, at: Time) {
        debug_assert_eq!(self.state, ContextState::HalfOpen, "it waits to be confirmed");
        self.at = at;
    }
    /// Stops the handshake timer.
    pub fn timer_off(&mut self) {
        self.at = Time::NEVER;
    }
    fn open_anew(&mut self) {
        (self.round, self.hold) = (0, Hold::Free);
        let anew = |u: &mut Underway| *u = Underway { answer: u.answer, ..Underway::default() };
        self.underway_change(anew);
    }
    fn rest(&mut self) {
        self.timer_off();
        self.round = 0;
    }

    // ---- closing -------------------------------------------------------------------------------

    /// Lets no request begin until `until` at the latest, so that the context can be closed.
    pub fn drain_begin(&mut self, until: Time) {
        debug_assert_eq!(self.state, ContextState::Open, "requests begin in open contexts");
        self.hold = Hold::Draining;
        self.underway_change(|u| u.close_began = until);
    }
    /// Whether the context is to be closed as soon as nothing that has begun is outstanding.
    #[inline(always)]
    pub fn is_draining(&self) -> bool {
        self.hold == Hold::Draining
    }
    /// Whether no request begins now.
    #[inline(always)]
    pub fn is_held(&self) -> bool {
        self.hold != Hold::Free
    }
    /// Whether no request begins because the peer has yet to show that it has the context.
    pub fn is_unproven(&self) -> bool {
        self.hold == Hold::Unproven
    }
    /// Lets no request begin until the peer has shown that it has the context.
    pub fn unproven(&mut self) {
        debug_assert_eq!(self.state, ContextState::Open, "requests begin in open contexts");
        debug_assert_eq!(self.hold, Hold::Free, "it has just opened");
        self.hold = Hold::Unproven;
    }
    /// The peer was asked whether it has the context, and has it or is silent. Returns whether
    /// requests waited for that.
    pub fn proven(&mut self) -> bool {
        let waited = self.hold == Hold::Unproven;
        if waited {
            self.hold = Hold::Free;
        }
        waited
    }
    /// Looks again at `next` whether all that has begun has ended, and gives up at last. Returns
    /// whether it is time to give up.
    pub fn drain_wait(&mut self, now: Time, next: Time) -> bool {
        debug_assert!(self.is_draining() && self.state == ContextState::Open, "it waits for that");
        let until = self.underway().close_began;
        self.at = next.min(until);
        until <= now
    }
    /// Requests may begin again.
    pub fn drain_end(&mut self) {
        self.hold = Hold::Free;
        self.underway_change(|u| u.close_began = Time(0));
    }

    /// Starts to close. Returns the previous state, `None` if it was not open.
    pub fn close_begin(&mut self, now: Time) -> Option<ContextState> {
        let from = self.state.close_begun().ok()?;
        debug_assert!(self.knows_peer(), "who was open knows its peer");
        self.round = 0;
        self.underway_change(|u| u.close_began = now);
        Some(from)
    }
    /// Notes that a Close is sent now; the next is due after `retry`, doubled with each.
    pub fn close_sent(&mut self, now: Time, retry: Span) {
        debug_assert_eq!(self.state, ContextState::Closing, "who closes says so");
        self.at = now + retry.scale(1 << self.round.min(16), 1);
        self.round += 1;
    }
    /// When the present close began.
    pub fn close_began(&self) -> Time {
        self.underway().close_began
    }
    /// Withdraws the close: the context stays open. Returns the previous state, `None` if it was
    /// not closing.
    pub fn close_withdraw(&mut self) -> Option<ContextState> {
        let from = self.state.close_withdrawn().ok()?;
        debug_assert!(self.knows_peer(), "who was open knows its peer");
        self.rest();
        self.drain_end();
        Some(from)
    }
    /// Ends the context. Returns the previous state, `None` if it had ended already.
    pub fn end(&mut self) -> Option<ContextState> {
        self.state.ended().ok()
    }

    // ---- answers -------------------------------------------------------------------------------

    /// Whether an Open-Ack waits to be sent.
    pub fn answer_waits(&self) -> bool {
        self.underway().answer.waits
    }
    /// Queues an Open-Ack of `padded_len` bytes (0: no padding) that answers an Open, or the
    /// Challenge whose number is `cookie`. However often a peer asks before the answer is sent, it
    /// gets one. The last question came by the path `near`.
    pub fn answer(&mut self, cookie: u64, padded_len: u16, near: u8) {
        debug_assert!(self.knows_peer(), "an answer has somebody to go to");
        let before = self.underway().answer;
        // Of a full Open and a smaller one sent beside it, the full one is answered, without
        // padding.
        let full = before.waits && padded_len.min(before.padded_len) == 0;
        let padded_len = if full { 0 } else { padded_len.max(before.padded_len) };
        self.underway_change(|u| u.answer = Answer { waits: true, padded_len, cookie, near });
    }
    /// Takes the Open-Ack that waits; `None` if none waits, or if the peer is no longer known.
    pub fn answer_take(&mut self) -> Option<AnswerOut> {
        let Answer { waits, padded_len, cookie, near } =
            self.underway_change(|u| core::mem::take(&mut u.answer));
        let out = AnswerOut { echo_tag: self.peer_tag, cookie, padded_len, near };
        (waits && self.knows_peer()).then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Span = Span(100);
    const MOST: Span = Span(350);

    fn opening() -> Handshake {
        Handshake::new(ContextState::Opening, OwnTag(7))
    }

    #[test]
    fn opens_are_further_apart_each_time_and_a_close_begins_anew() {
        let mut h = opening();
        let mut waits = Vec::new();
        for _ in 0..4 {
            h.open_sent(Time(1000), RETRY, MOST);
            waits.push(h.at().0 - 1000);
        }
        assert_eq!((waits, h.round()), (vec![100, 200, 350, 350], 4));
        h.peer_is(PeerTag(9), 1);
        assert_eq!(h.confirm(), Some(ContextState::Opening));
        assert_eq!((h.at(), h.round(), h.confirm()), (Time::NEVER, 0, None));
        assert_eq!(h.close_begin(Time(5000)), Some(ContextState::Open));
        for round in [1, 2] {
            h.close_sent(Time(5000), RETRY);
            assert_eq!((h.at(), h.round()), (Time(5000 + 100 * u64::from(round)), round));
        }
        assert_eq!(
            (h.close_began(), h.close_withdraw()),
            (Time(5000), Some(ContextState::Closing))
        );
        assert_eq!((h.state(), h.at()), (ContextState::Open, Time::NEVER));
        assert_eq!((h.end(), h.end()), (Some(ContextState::Open), None));
    }

    #[test]
    fn only_an_answer_to_the_first_open_tells_a_round_trip() {
        let mut h = opening();
        h.open_sent(Time(1000), RETRY, MOST);
        assert_eq!(h.opened_at(RETRY), Some(Time(1000)));
        h.open_sent(Time(1100), RETRY, MOST);
        assert_eq!(h.opened_at(RETRY), None, "to which of the two?");
        let mut told = opening();
        told.peer_is(PeerTag(9), 1);
        told.open_sent(Time(1000), RETRY, MOST);
        assert_eq!(told.opened_at(RETRY), None, "who knew the tag may have answered before");
        let mut asked = opening();
        asked.open_sent(Time(1000), RETRY, MOST);
        assert_eq!(asked.challenge(5, Time(0)), Challenged::Now);
        assert_eq!(asked.opened_at(RETRY), None);
    }

    #[test]
    fn a_challenge_is_answered_once_and_others_wait() {
        let mut h = opening();
        h.open_sent(Time(1000), RETRY, MOST);
        assert_eq!(h.challenge(5, Time(1050)), Challenged::Now);
        assert_eq!((h.cookie(), h.at()), (5, Time(1100)));
        assert_eq!(h.challenge(5, Time(1050)), Challenged::Known);
        assert_eq!(h.challenge(6, Time(1050)), Challenged::Soon);
        assert_eq!((h.cookie(), h.at()), (6, Time(1050)));
        h.peer_is(PeerTag(9), 1);
        h.confirm();
        assert_eq!((h.cookie(), h.underway.is_none()), (0, true), "nothing is kept of it");
    }

    #[test]
    fn a_disowned_open_is_not_followed_by_another_without_proof() {
        let mut h = opening();
        assert!(h.takes_first_open());
        h.peer_is(PeerTag(9), 1);
        assert!(h.is_with(PeerTag(9), 1) && !h.is_with(PeerTag(9), 2) && !h.takes_first_open());
        assert_eq!(h.tags_both(), 7 << 32 | 9);
        h.disown();
        assert!(!h.knows_peer() && !h.takes_first_open());
        assert_eq!((h.retag(OwnTag(8)), h.local_tag()), (OwnTag(7), OwnTag(8)));
        assert_eq!(h.begin_again(), ContextState::Opening);
        assert!(!h.takes_first_open(), "it is forgotten with the handshake that it belongs to");
    }

    #[test]
    fn answers_are_one_and_the_full_one_wins() {
        let mut h = Handshake::new(ContextState::HalfOpen, OwnTag(7));
        h.peer_is(PeerTag(9), 1);
        h.answer(0, 500, 5);
        h.peer_is_unknown();
        assert_eq!((h.answer_waits(), h.answer_take()), (true, None), "to nobody that is known");
        h.peer_is(PeerTag(9), 1);
        h.answer(0, 500, 5);
        h.answer(3, 900, 6);
        let out = |cookie, padded_len, near| {
            Some(AnswerOut { echo_tag: PeerTag(9), cookie, padded_len, near })
        };
        assert_eq!((h.answer_take(), h.answer_waits()), (out(3, 900, 6), false));
        h.answer(0, 500, 5);
        h.answer(0, 0, 5);
        h.answer(0, 500, 5);
        assert_eq!((h.answer_take(), h.answer_take()), (out(0, 0, 5), None));
        assert!(h.underway.is_none(), "nothing is kept of it");
    }
}
