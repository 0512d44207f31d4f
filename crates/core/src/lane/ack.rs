//! Fills an acknowledgment block from the context's state.

use crate::events::Observer;
use crate::lane::Lane;
use crate::psn;
use srd_wire::ACK_WORDS_MAX;

/// PSNs that one block's bitmap can speak of.
const BITMAP_PSNS: u32 = 64 * ACK_WORDS_MAX as u32;

impl<O: Observer> Lane<'_, O> {
    /// Writes the block for the peer into the scratch block. Returns the PSNs it could not
    /// speak of, for [`crate::peer::ack::AckState::sent`].
    pub(crate) fn ack_build(&mut self) -> Option<(u32, u32)> {
        let rx_budget = self.rx_budget_share();
        let (credit, ce_count) = (self.peer.credit_granted, self.peer.rx_ce_count);
        let b = &mut self.shared.rx.scratch;
        b.credit = credit;
        b.rx_budget = rx_budget;
        b.rxq_drops = self.shared.rx.rxq_drops;
        b.rxq_depth = self.shared.rx.rxq_depth;
        b.ce_count = ce_count;
        b.echoes = self.win.ack.echoes(self.now);
        b.verdicts.clear();
        b.partial = false;
        if !self.win.verdicts.is_empty() {
            let (partial, steps) = self.win.verdicts.list(&mut b.verdicts);
            b.partial = partial && !planted!(VerdictOverflowAcked);
            self.shared.counters.ack_steps += steps;
        }
        b.cum = if planted!(AckJumpsGap) { self.win.window.top() } else { self.win.window.cum() };
        let top = self.win.window.top();
        let mut rest = None;
        b.base = b.cum;
        if top.wrapping_sub(b.cum) > BITMAP_PSNS {
            // More than fits: speak of what changed, and come back for what lies beyond.
            let (lo, hi) = self.win.ack.changed().unwrap_or((b.cum, top));
            b.base = if psn::before(lo, b.cum) { b.cum } else { lo };
            let end = b.base.wrapping_add(BITMAP_PSNS);
            rest = psn::before(end, hi).then_some((end, hi));
        }
        b.words.clear();
        let mut at = b.base;
        while psn::before(at, top) && !b.words.is_full() {
            b.words
                .push(self.win.window.word(at.wrapping_add(u32::from(planted!(AckBitmapShifted)))));
            at = at.wrapping_add(64);
        }
        rest
    }

    /// What one sender may have in flight: the receive buffers, shared among those who send now.
    fn rx_budget_share(&mut self) -> u32 {
        if self.shared.cfg.rx_budget_bytes == u32::MAX {
            return u32::MAX;
        }
        let often = self.shared.cfg.loss.rto_max;
        let share = self.shared.cfg.rx_budget_bytes / self.shared.rx.flows.count(self.now, often);
        share.max(2 * u32::from(self.shared.cfg.mtu))
    }

    /// Puts the context into the queue of those with an acknowledgment due, or arms its timer.
    pub(crate) fn ack_schedule(&mut self) {
        if self.win.ack.due() <= self.now {
            self.shared.out.ack_push(self.ci);
        }
    }

    /// An acknowledgment block has left on `path`.
    pub(crate) fn ack_left(&mut self, path: u8, tx_num: u64, rest: Option<(u32, u32)>) {
        self.win.ack.sent(self.now, rest);
        if planted!(VerdictToldOnce) {
            self.win.verdicts.clear();
        }
        self.way.paths.ack_sent(self.now, path, tx_num as u16);
    }
}
