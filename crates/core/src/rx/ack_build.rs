//! Fills an acknowledgment block from the context's state.

use crate::engine::Engine;
use crate::events::Observer;
use crate::psn;
use crate::time::Time;
use srd_wire::ACK_WORDS_MAX;

/// PSNs that one block's bitmap can speak of.
const BITMAP_PSNS: u32 = 64 * ACK_WORDS_MAX as u32;

impl<O: Observer> Engine<O> {
    /// Writes the block for context `ci` into the scratch block. Returns the PSNs it could not
    /// speak of, for [`crate::peer::ack::AckState::sent`].
    pub(crate) fn ack_build(&mut self, now: Time, ci: u32) -> Option<(u32, u32)> {
        let rx_budget = self.rx_budget_share(now);
        let c = self.contexts.get_mut(ci);
        let (credit, ce_count) = (c.credit_granted, c.rx_ce_count);
        let a = c.act();
        let b = &mut self.shared.rx.scratch;
        b.credit = credit;
        b.rx_budget = rx_budget;
        b.rxq_drops = self.shared.rx.rxq_drops;
        b.rxq_depth = self.shared.rx.rxq_depth;
        b.ce_count = ce_count;
        b.echoes = a.ack.echoes(now);
        b.verdicts.clear();
        b.partial = false;
        if !a.verdicts.is_empty() {
            let (partial, steps) = a.verdicts.list(&mut b.verdicts);
            b.partial = partial && !planted!(VerdictOverflowAcked);
            self.shared.counters.ack_steps += steps;
        }
        b.cum = if planted!(AckJumpsGap) { a.window.top() } else { a.window.cum() };
        let top = a.window.top();
        let mut rest = None;
        b.base = b.cum;
        if top.wrapping_sub(b.cum) > BITMAP_PSNS {
            // More than fits: speak of what changed, and come back for what lies beyond.
            let (lo, hi) = a.ack.changed().unwrap_or((b.cum, top));
            b.base = if psn::before(lo, b.cum) { b.cum } else { lo };
            let end = b.base.wrapping_add(BITMAP_PSNS);
            rest = psn::before(end, hi).then_some((end, hi));
        }
        b.words.clear();
        let mut at = b.base;
        while psn::before(at, top) && !b.words.is_full() {
            b.words.push(a.window.word(at.wrapping_add(u32::from(planted!(AckBitmapShifted)))));
            at = at.wrapping_add(64);
        }
        rest
    }

    /// What one sender may have in flight: the receive buffers, shared among those who send now.
    fn rx_budget_share(&mut self, now: Time) -> u32 {
        if self.shared.cfg.rx_budget_bytes == u32::MAX {
            return u32::MAX;
        }
        let often = self.shared.cfg.loss.rto_max;
        let share = self.shared.cfg.rx_budget_bytes / self.shared.rx.flows.count(now, often);
        share.max(2 * u32::from(self.shared.cfg.mtu))
    }
}
