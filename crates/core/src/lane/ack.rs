//! Builds acknowledgment blocks from the state of a context.

use crate::events::Observer;
use crate::lane::Lane;
use crate::psn::{PsnRange, TxNum};
use srd_wire::ACK_WORDS_MAX;

/// PSNs that the bitmap of one block covers.
const BITMAP_PSNS: u32 = 64 * ACK_WORDS_MAX as u32;

impl<O: Observer> Lane<'_, O> {
    /// Writes the block for the peer into the scratch block. Returns the changed PSNs that it could
    /// not cover, for [`crate::peer::ack::AckState::sent`].
    pub(crate) fn ack_build(&mut self) -> Option<PsnRange> {
        let rx_budget = self.rx_budget_share();
        let above = self.signalling() && self.shared.rx.host.is_above();
        let b = &mut self.shared.rx.scratch;
        self.peer.reports().tell(b);
        b.rx_budget = rx_budget;
        b.rxq_drops = self.shared.rx.rxq_drops;
        b.rxq_depth = self.shared.rx.host.depth_packets();
        b.above = above;
        b.echoes = self.win.ack.echoes(self.now);
        b.verdicts.clear();
        b.partial = false;
        if !self.win.verdicts.is_empty() {
            let (partial, steps) = self.win.verdicts.list(&mut b.verdicts);
            b.partial = partial && !planted!(VerdictOverflowAcked);
            self.shared.counters.ack_steps += steps;
        }
        let top = self.win.rx_window.top();
        let cum = if planted!(AckJumpsGap) { top } else { self.win.rx_window.cum() };
        let (mut base, mut rest) = (cum, None);
        if top.since(cum) > BITMAP_PSNS {
            // The window is longer than the bitmap: cover what has changed, and send the rest in
            // another block.
            let whole = PsnRange { first: cum, end: top };
            let changed = self.win.ack.changed().unwrap_or(whole);
            debug_assert!(!top.is_before(changed.end) || cfg!(planted_bugs), "what has arrived");
            base = if changed.first.is_before(cum) { cum } else { changed.first };
            let first = base.plus(BITMAP_PSNS);
            rest = first.is_before(changed.end).then_some(PsnRange { first, ..changed });
        }
        debug_assert!(!base.is_before(cum), "bits below the edge say nothing");
        (b.cum, b.base) = (cum.0, base.0);
        b.words.clear();
        let mut at = base;
        while at.is_before(top) && !b.words.is_full() {
            b.words.push(self.win.rx_window.word(at.plus(u32::from(planted!(AckBitmapShifted)))));
            at = at.plus(64);
        }
        rest
    }

    /// Bytes that the peer may have in flight: its share of the receive buffers, or less where the
    /// host drains less than arrives. Shared among the peers that send now.
    fn rx_budget_share(&mut self) -> u32 {
        let buffers = match self.shared.cfg.rx_budget_bytes {
            u32::MAX => u32::MAX,
            bytes => self.budget_share(bytes).max(2 * u32::from(self.shared.cfg.mtu)),
        };
        // The share may be less than a packet: the peer then sends a packet in more than a round
        // trip.
        self.shared.rx.host.senders_set(self.shared.rx.flows.senders());
        match self.shared.rx.host.budget(self.way.paths.rtt_min()) {
            Some(bytes) => buffers.min(self.budget_share(bytes)),
            None => buffers,
        }
    }

    fn budget_share(&mut self, bytes: u32) -> u32 {
        let share = self.shared.rx.flows.share(self.now, self.ci, bytes);
        debug_assert!(share <= bytes, "a part of what there is");
        share
    }

    /// Queues the context for an acknowledgment if one is due now; otherwise its timer sees to it.
    pub(crate) fn ack_schedule(&mut self) {
        if self.win.ack.due() <= self.now {
            self.shared.out.ack_push(self.ci);
        }
    }

    /// Notes that an acknowledgment block was sent on `path`.
    pub(crate) fn ack_left(&mut self, path: u8, tx_num: TxNum, rest: Option<PsnRange>) {
        debug_assert!(!self.win.ack.is_quiet(), "there was something to say");
        self.win.ack.sent(self.now, rest);
        if planted!(VerdictToldOnce) {
            self.win.verdicts.clear();
        }
        self.way.paths.ack_sent(self.now, self.ci, path, tx_num.low().0 as u16);
    }
}
