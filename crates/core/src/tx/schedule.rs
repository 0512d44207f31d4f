//! Scheduling: round robin over peers, and over the queue pairs and reads of a peer.

use crate::api::{Opcode, Status, TxSink, WrHandle};
use crate::events::Observer;
use crate::lane::Lane;
use crate::objects::qp::QpState;
use crate::outbox::ProbeOut;
use crate::path::{Gate, Lost};
use crate::peer::ContextState;
use crate::psn::Psn;
use crate::time::Time;
use crate::timer::TimerOf;
use crate::tx::Out;
use srd_wire::PacketType;

/// Result of a context's turn to send.
enum Turn {
    /// The context has more to send.
    More,
    /// The context has nothing to send now; a later event makes it ready again.
    Idle,
    /// The pacer lets the context send at this time.
    Paced(Time),
    /// Other contexts of the address have waited longer for the pacer.
    Behind,
    /// There are no credits before this time.
    Uncredited(Time),
    /// The context waits for room under the inflight cap, or for credits.
    Blocked,
}

/// The next packet of a burst.
enum Next {
    Psn(Psn),
    /// There is a packet to send, but not on this burst's path.
    OtherPath,
    /// Nothing can be sent: no requests, the window is full, or the peer's limits are reached.
    Nothing,
}

impl<O: Observer> Lane<'_, O> {
    /// The context's turn: sends at most one burst.
    pub(crate) fn turn(&mut self, out: &mut Out<'_, impl TxSink>) {
        let turn = self.burst(out);
        match turn {
            Turn::Paced(_) if planted!(PacedForgotten) => {}
            Turn::Paced(at) => return self.wait_for_pacer(Some(at)),
            Turn::Behind => return self.wait_for_pacer(None),
            Turn::More | Turn::Idle | Turn::Uncredited(_) | Turn::Blocked => {}
        }
        // If the context was called by the pacer, it has had its turn.
        if self.way.waits.paced_first() == Some(self.ci) {
            self.shared.pace_leave(self.way, self.ci);
        }
        match turn {
            Turn::More => self.ready_push(),
            Turn::Uncredited(at) => self.win.credit_set(at),
            Turn::Blocked => self.wait_for_inflight(),
            Turn::Idle | Turn::Paced(_) | Turn::Behind => {}
        }
    }

    fn burst(&mut self, out: &mut Out<'_, impl TxSink>) -> Turn {
        // Reads of a peer that has them under way are served until it agrees to the close.
        let state = self.peer.state();
        let draining = self.peer.handshake().is_draining();
        if state != ContextState::Open && !(state == ContextState::Closing && draining) {
            return Turn::Idle;
        }
        debug_assert!(self.peer.handshake().knows_peer(), "who is open knows its peer");
        self.win.credit_set(Time::NEVER);
        let budget = u64::from(self.peer.reports().rx_budget());
        let mtu = u64::from(self.mtu_of());
        if self.win.loss.is_stalled() || !self.win.has_to_send() {
            return Turn::Idle;
        }
        let held = |wi| {
            self.objects
                .qps
                .get(self.objects.wrs.get(wi).qp)
                .is_some_and(|q| q.state == QpState::Sqd)
        };
        if self.way.waits.paced_first().is_some_and(|first| first != self.ci) {
            return Turn::Behind;
        }
        if self.win.queues.datagram_next().is_some_and(|wi| !held(wi))
            && !self.peer.handshake().is_held()
            && let Some(wi) = self.win.queues.datagrams().pop_front(&mut self.objects.wrs)
        {
            return self.datagram_turn(wi, out);
        }
        self.share_touch(false);
        let lost = self.win.board.lost_front().map(|p| {
            let e = self.win.board.get(p);
            Lost { path: e.path, sent: e.sent, again: e.again > 0 }
        });
        let flying = self.win.board.in_flight_bytes();
        // With more in flight, what the peer takes (`rx_budget`) has no room for another packet.
        let flying_max = budget.saturating_sub(mtu);
        if flying > flying_max {
            return Turn::Blocked;
        }
        if flying == 0
            && budget < mtu
            && let Some(at) = self.host_pause(budget)
        {
            return Turn::Paced(at);
        }
        let credited = self.granting();
        let mut bytes = match self.way.paths.gate(self.now, credited) {
            Gate::Open { bytes } => bytes,
            Gate::Until(_) if planted!(PacingIgnored) => 1,
            Gate::Until(at) => return Turn::Paced(at),
            Gate::Uncredited(at) => return Turn::Uncredited(at),
            Gate::Blocked => return Turn::Blocked,
        };
        let path = self.way.paths.awake(self.now).path_choose(self.ci, lost, &mut self.shared.rng);
        if let Some(other) = self.way.paths.awake(self.now).explore_take(&mut self.shared.rng) {
            self.shared.out.probe_push(ProbeOut::small(self.ci, other));
        }
        debug_assert!(bytes > 0, "an open gate lets something through");
        let mut packets = usize::from(self.shared.cfg.burst_packets).min(out.left);
        let mut first = true;
        while packets > 0 {
            let p = match self.psn_next(path, first) {
                Next::Psn(p) => p,
                Next::OtherPath => return Turn::More,
                Next::Nothing => return Turn::Idle,
            };
            first = false;
            let used = self.emit_reliable(p, path, flying_max, out);
            packets -= 1;
            bytes = bytes.saturating_sub(used);
            if bytes == 0 {
                break;
            }
        }
        if self.win.has_to_send() { Turn::More } else { Turn::Idle }
    }

    /// Sends one unreliable datagram. It is paced like other packets. It does not count as in
    /// flight, but waits while the inflight cap is reached, because above the cap nothing would
    /// limit datagrams.
    fn datagram_turn(&mut self, wi: WrHandle, out: &mut Out<'_, impl TxSink>) -> Turn {
        debug_assert_eq!(self.objects.wrs.get(wi).cut, 0, "a datagram leaves in one");
        let wr = &self.objects.wrs.get(wi).wr;
        let kind = if wr.op == Opcode::SendImm { PacketType::UdImm } else { PacketType::Ud };
        let len = wr.len;
        if len > u32::from(self.message_max(kind.body_bytes())) {
            self.win.queues.unsent_take(len);
            self.wr_end(wi, Status::LocalBadLength);
            return Turn::More;
        }
        let credited = self.granting();
        let turn = match self.way.paths.gate(self.now, credited) {
            Gate::Open { .. } => None,
            Gate::Until(at) => Some(Turn::Paced(at)),
            Gate::Uncredited(at) => Some(Turn::Uncredited(at)),
            Gate::Blocked => Some(Turn::Blocked),
        };
        if let Some(turn) = turn {
            self.win.queues.datagrams().push_front(&mut self.objects.wrs, wi);
            return turn;
        }
        self.win.queues.unsent_take(len);
        self.emit_ud(wi, out);
        Turn::More
    }

    /// The next PSN to send on `path`: retransmissions first, then new segments.
    #[inline(always)]
    fn psn_next(&mut self, path: u8, first: bool) -> Next {
        if let Some(p) = self.win.board.lost_front() {
            // The path was chosen for the first packet of the burst; a packet that was lost on this
            // path waits.
            if !first && self.win.board.get(p).path == path {
                return Next::OtherPath;
            }
            let popped = self.win.board.lost_pop();
            debug_assert_eq!(popped, Some(p), "the first of the lost");
            self.lost_refresh(p);
            return Next::Psn(p);
        }
        self.cut_next().map_or(Next::Nothing, Next::Psn)
    }

    /// Parks the context until an acknowledgment makes room in flight at its address.
    fn wait_for_inflight(&mut self) {
        if self.shared.out.park(self.ci) {
            debug_assert!(self.way.active > 0, "who sends is active");
            self.way.waits.park(self.ci, self.win.board.in_flight_bytes());
        }
    }

    /// Puts the context at the end of the queue for the pacer of its address, unless it is already
    /// in it. `at`: the context is the first in the queue, and is called at this time.
    fn wait_for_pacer(&mut self, at: Option<Time>) {
        if self.shared.out.pace_begin(self.ci) {
            self.way.waits.pace_join(self.ci);
        }
        let Some(at) = at else { return };
        debug_assert_eq!(self.way.waits.paced_first(), Some(self.ci), "who asked the pacer");
        self.way.waits.pace_set(at);
        self.shared.timers.arm(TimerOf::Path(self.way.number).number(), at);
    }
}
