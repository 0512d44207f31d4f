//! Who sends next: round robin over peers, and over the queue pairs and reads of a peer.

use crate::api::{Status, TxSink};
use crate::engine::Engine;
use crate::events::Observer;
use crate::objects::qp::QpState;
use crate::outbox::ProbeOut;
use crate::path::Gate;
use crate::peer::ContextState;
use crate::time::Time;
use crate::tx::Out;

/// What became of a context's turn.
enum Turn {
    /// It has more to send.
    More,
    /// Nothing to send now; an event will bring it back.
    Idle,
    /// The pacer lets it send at this time.
    Paced(Time),
    /// The inflight cap (or credits) must open first.
    Blocked,
}

/// What leaves next within a burst.
enum Next {
    Psn(u32),
    /// Something, but not on this burst's path.
    OtherPath,
    /// Nothing can be cut: no work, window full, or the peer's credits are used up.
    Nothing,
}

impl<O: Observer> Engine<O> {
    /// Reliable packets of contexts in turn, each at most one burst, until all rest or `out` is
    /// full.
    pub(crate) fn emit_ready(&mut self, now: Time, out: &mut Out<'_, impl TxSink>) {
        while out.left > 0 {
            let Some(ci) = self.shared.out.ready_pop() else { return };
            match self.context_turn(now, ci, out) {
                Turn::More => self.shared.out.ready_push(ci),
                Turn::Idle => {}
                Turn::Paced(_) if planted!(PacedForgotten) => {}
                Turn::Paced(at) => self.contexts.get_mut(ci).pace_at = at,
                Turn::Blocked => self.wait_for_inflight(ci),
            }
            self.shared.out.rearm_push(ci);
        }
    }

    fn context_turn(&mut self, now: Time, ci: u32, out: &mut Out<'_, impl TxSink>) -> Turn {
        let c = self.contexts.get_mut(ci);
        if c.state != ContextState::Open || c.active.is_none() {
            return Turn::Idle;
        }
        c.pace_at = Time::NEVER;
        let budget = u64::from(c.rx_budget);
        let mtu = u64::from(self.mtu_of(ci));
        let a = self.contexts.get_mut(ci).act();
        if a.loss.stalled || !a.has_to_send() {
            return Turn::Idle;
        }
        let held = |wi| {
            self.objects
                .qps
                .get(self.objects.wrs.get(wi).qp)
                .is_some_and(|q| q.state == QpState::Sqd)
        };
        if a.datagrams.front().is_some_and(|wi| !held(wi))
            && let Some(wi) = a.datagrams.pop_front(&mut self.objects.wrs)
        {
            return self.datagram_turn(now, ci, wi, out);
        }
        let lost = a.board.lost_front().map(|p| a.board.get(p).path);
        let flying = a.board.in_flight_bytes();
        if flying > 0 && flying + mtu > budget {
            return Turn::Blocked;
        }
        let path_ctx = self.contexts.get(ci).path_ctx;
        let credited = self.granting(ci);
        let pc = &mut self.paths.get_mut(path_ctx).ctx;
        let mut bytes = match pc.gate(now, credited) {
            Gate::Open { bytes } => bytes,
            Gate::Until(_) if planted!(PacingIgnored) => 1,
            Gate::Until(at) => return Turn::Paced(at),
            Gate::Blocked => return Turn::Blocked,
        };
        let path = pc.path_choose(now, ci, lost, &mut self.shared.rng);
        if let Some(other) = pc.explore_take(&mut self.shared.rng) {
            self.shared.out.probe_push(ProbeOut::small(ci, other));
        }
        let mut packets = usize::from(self.shared.cfg.burst_packets).min(out.left);
        let mut first = true;
        while packets > 0 {
            let p = match self.psn_next(ci, path, first) {
                Next::Psn(p) => p,
                Next::OtherPath => return Turn::More,
                Next::Nothing => return Turn::Idle,
            };
            first = false;
            let used = self.emit_reliable(now, ci, p, path, out);
            packets -= 1;
            bytes = bytes.saturating_sub(used);
            if bytes == 0 {
                break;
            }
        }
        if self.contexts.get_mut(ci).act().has_to_send() { Turn::More } else { Turn::Idle }
    }

    /// One unreliable datagram leaves: paced with the rest. It is not counted in flight, but waits
    /// with the others while there is no room: past the cap nothing would pace it.
    fn datagram_turn(
        &mut self,
        now: Time,
        ci: u32,
        wi: u32,
        out: &mut Out<'_, impl TxSink>,
    ) -> Turn {
        let len = self.objects.wrs.get(wi).wr.len;
        let mtu = self.mtu_of(ci);
        let c = self.contexts.get_mut(ci);
        if len > u32::from(mtu) {
            c.act().unsent_bytes -= u64::from(len);
            self.wr_end(wi, Status::LocalBadLength);
            return Turn::More;
        }
        let path_ctx = c.path_ctx;
        let credited = self.granting(ci);
        let turn = match self.paths.get_mut(path_ctx).ctx.gate(now, credited) {
            Gate::Open { .. } => None,
            Gate::Until(at) => Some(Turn::Paced(at)),
            Gate::Blocked => Some(Turn::Blocked),
        };
        if let Some(turn) = turn {
            self.contexts.get_mut(ci).act().datagrams.push_front(&mut self.objects.wrs, wi);
            return turn;
        }
        self.contexts.get_mut(ci).act().unsent_bytes -= u64::from(len);
        self.emit_ud(now, wi, out);
        Turn::More
    }

    /// The next PSN to leave on `path`: lost ones first, then what can be cut newly.
    fn psn_next(&mut self, ci: u32, path: u8, first: bool) -> Next {
        let a = self.contexts.get_mut(ci).act();
        if let Some(p) = a.board.lost_front() {
            // The path was chosen for the first of the burst; a packet lost on this very path
            // waits.
            if !first && a.board.get(p).path == path {
                return Next::OtherPath;
            }
            a.board.lost_pop();
            self.lost_refresh(ci, p);
            return Next::Psn(p);
        }
        self.cut_next(ci).map_or(Next::Nothing, Next::Psn)
    }

    /// Parks the context until an acknowledgment frees inflight of its address.
    fn wait_for_inflight(&mut self, ci: u32) {
        if self.shared.out.park(ci) {
            let path_ctx = self.contexts.get(ci).path_ctx;
            self.paths.get_mut(path_ctx).waiters.push(ci);
        }
    }

    /// Inflight towards an address went down: its parked contexts may try again.
    pub(crate) fn inflight_freed(&mut self, path_ctx: u32) {
        while let Some(ci) = self.paths.get_mut(path_ctx).waiters.pop() {
            if self.shared.out.unpark(ci) {
                self.shared.out.ready_push(ci);
                if planted!(WaiterForgotten) {
                    self.paths.get_mut(path_ctx).waiters.clear();
                }
            }
        }
    }
}
