//! Cancelled work: its PSNs become tombstones, so that the window never stalls on them.

use crate::api::{AsyncEvent, Status, WrHandle};
use crate::events::Observer;
use crate::lane::Lane;
use crate::objects::wr::WrState;
use crate::peer::scoreboard::SentState;

/// How cancelled requests end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// With a completion.
    Complete(Status),
    /// Without a completion, because the queue pair is gone; the user is told that the memory is
    /// released.
    Release,
}

impl<O: Observer> Lane<'_, O> {
    /// Ends request `wi` with `status` now, even if packets of it are in flight.
    pub(crate) fn wr_cancel(&mut self, wi: WrHandle, status: Status) {
        let psns = self.wr_withdraw(wi);
        if psns > 0 {
            self.board_withdraw(psns);
        }
        self.wr_cancelled(wi, Ending::Complete(status));
    }

    /// Removes request `wi` from all queues. Returns the number of its unresolved PSNs, for
    /// [`Self::board_withdraw`].
    pub(crate) fn wr_withdraw(&mut self, wi: WrHandle) -> u32 {
        self.wr_uncut(wi);
        let w = self.objects.wrs.get_mut(wi);
        debug_assert!(!w.withdrawn, "a request is withdrawn once: {w:?}");
        let psns = w.open;
        if psns > 0 {
            w.withdrawn = true;
            self.win.queues.recuts_drop(wi);
        }
        w.open = 0;
        w.awaited = 0;
        w.state = WrState::Sent;
        // The failure makes the peer forget a message that it tracks, whatever status the
        // completion has.
        w.failed = w.failed.or(Some(Status::Flushed));
        psns
    }

    /// Turns the `psns` unresolved PSNs of withdrawn requests into tombstones.
    pub(crate) fn board_withdraw(&mut self, mut psns: u32) {
        for p in self.win.board.psns() {
            let e = self.win.board.get(p);
            let open =
                e.kind.is_own() && e.state != SentState::Acked && !planted!(TombstoneForgotten);
            self.shared.counters.cancel_steps += 1;
            if !open || self.objects.wrs.find(e.request()).is_none_or(|w| !w.withdrawn) {
                continue;
            }
            self.win.board.bury(p);
            psns -= 1;
            if psns == 0 {
                return;
            }
        }
    }

    /// Ends the withdrawn request `wi`.
    pub(crate) fn wr_cancelled(&mut self, wi: WrHandle, ending: Ending) {
        match ending {
            Ending::Complete(status) => self.wr_end(wi, status),
            Ending::Release => {
                let w = self.wr_retire(wi);
                if let Some(cq) = w.cq.and_then(|cq| self.objects.cqs.get_mut(cq)) {
                    cq.release(1);
                }
                self.shared.event_push(AsyncEvent::WrReleased(wi));
            }
        }
        self.ready_push();
        self.rearm_push();
    }

    /// Ends every request of the context with `status`; their PSNs become tombstones.
    pub(crate) fn work_end(&mut self, status: Status) {
        self.shared.counters.timer_steps += u64::from(self.win.board.span());
        for p in self.win.board.psns() {
            let e = self.win.board.get(p);
            if e.kind.is_own() && e.state != SentState::Acked {
                self.win.board.bury(p);
            }
        }
        self.win.queues.requests_clear();
        while let Some(wi) = self.win.live.front() {
            self.shared.counters.timer_steps += 1;
            let w = self.objects.wrs.get_mut(wi);
            w.open = 0;
            w.failed = Some(status);
            self.wr_end(wi, status);
        }
        debug_assert_eq!(self.win.queues.unsent_bytes(), 0, "no request waits to leave");
    }

    /// Drops what is in flight to the peer, the reads that it has asked for and what it had to be
    /// told, because it has said that it has nothing open. Work that was not sent yet stays.
    pub(crate) fn window_forget(&mut self) {
        let flying = self.win.board.drain();
        self.way.paths.on_forgotten(flying);
        self.inflight_freed();
        self.jobs_forget();
        self.win.queues.sent_forget();
        self.win.outstanding.imms_forget();
        debug_assert!(self.win.board.is_empty() && self.win.jobs.is_empty(), "all is void");
    }
}
