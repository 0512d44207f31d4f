//! What a handshake has shown about the packet sizes that the paths carry (see `engine/narrow.rs`).

/// What the handshake of one context has shown about packet sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Narrow {
    /// Size (payload of a packet of that length) of the reduced Open of ours that was answered
    /// first; 0: none was.
    answered: u16,
    /// Rounds in a row in which an Open of that size was answered, and the last of these rounds.
    rounds: u8,
    round: u8,
    /// Size of the largest Open of the peer; 0: none came, `u16::MAX`: a full one.
    heard: u16,
    /// Opens received from the peer in this handshake (saturating).
    heard_opens: u8,
}

impl Narrow {
    /// Size of the reduced Open of ours that was answered, if one was.
    pub fn answered(&self) -> Option<u16> {
        (self.answered > 0).then_some(self.answered)
    }
    /// Notes the first answer to a reduced Open of ours.
    pub fn answered_set(&mut self, size: u16) {
        debug_assert!(self.answered == 0 && size > 0, "{self:?}");
        self.answered = size;
    }
    /// Begins a round of Opens. If no Open was answered in `round`, the last one, the count of
    /// rounds in a row starts over.
    pub fn round_begin(&mut self, round: u8) {
        debug_assert!(self.answered > 0, "an Open was answered before: {self:?}");
        if self.round != round {
            self.rounds = 0;
        }
    }
    /// Notes that the Open of size `size` was answered in `round`. Returns in how many rounds in a
    /// row it now was.
    pub fn round_answered(&mut self, round: u8, size: u16) -> u8 {
        debug_assert!(self.answered > 0, "an Open was answered before: {self:?}");
        if self.round != round && size == self.answered {
            (self.rounds, self.round) = (self.rounds + 1, round);
        }
        self.rounds
    }
    /// Notes an Open of the peer of size `size` (`u16::MAX`: a full one).
    pub fn heard(&mut self, size: u16) {
        self.heard = self.heard.max(size);
        self.heard_opens = self.heard_opens.saturating_add(1);
    }
    /// Forgets what the peer's Opens have shown.
    pub fn heard_forget(&mut self) {
        (self.heard, self.heard_opens) = (0, 0);
    }
    /// The proven size; 0: none. Where we opened (`own`), the size of our Open that was answered in
    /// `rounds` rounds in a row. Else the size of the peer's largest Open, if at least `rounds`
    /// Opens came, because a peer sees so many reduced ones answered before it opens a context with
    /// them. A peer that opens for another reason, because we answered its Challenge, has shown
    /// nothing.
    pub fn proved(&self, own: bool, rounds: u8) -> u16 {
        debug_assert!(self.rounds == 0 || self.answered > 0, "{self:?}");
        debug_assert!(self.heard == 0 || self.heard_opens > 0, "{self:?}");
        match self {
            n if own && n.rounds >= rounds => n.answered,
            n if n.heard_opens >= rounds => n.heard,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_count_in_a_row_and_only_for_the_size_that_was_answered_first() {
        let mut n = Narrow::default();
        assert_eq!((n.answered(), n.proved(true, 1)), (None, 0));
        n.answered_set(1_200);
        for round in 2..=4 {
            n.round_begin(round - 1);
            assert_eq!(n.round_answered(round, 900), round - 2, "another size");
            assert_eq!(n.round_answered(round, 1_200), round - 1);
            assert_eq!(n.round_answered(round, 1_200), round - 1, "once in a round");
        }
        assert_eq!((n.proved(true, 3), n.proved(true, 4)), (1_200, 0));
        n.round_begin(5);
        assert_eq!(n.proved(true, 1), 0, "one round was not answered: they count from there");
    }

    #[test]
    fn the_largest_open_of_the_peer_counts_where_we_did_not_ask() {
        let mut n = Narrow::default();
        n.heard(900);
        n.heard(700);
        assert_eq!((n.proved(false, 2), n.proved(false, 3)), (900, 0), "too few of them came");
        n.heard(u16::MAX);
        assert_eq!(n.proved(false, 1), u16::MAX);
        n.heard_forget();
        assert_eq!(n.proved(false, 1), 0);
    }
}
