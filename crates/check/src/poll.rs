//! Checks of what an engine reports to its user: completions, events, statistics.

use crate::ledger::{Ledger, Oracle, ReqState};
use crate::node::Node;
use crate::scenario::Scenario;
use srd_core::wire::Verdict;
use srd_core::{AsyncEvent, Completion, CompletionKind, Endpoint, Opcode, Qpn, Status, WrHandle};

impl Node {
    /// Polls completions and events until there are none.
    pub fn poll(&mut self, s: &Scenario, led: &mut Ledger) {
        self.events(led);
        while let Some(c) = self.engine.cq_poll(self.cq) {
            self.mirror.unreleased += 1;
            let id = self.id;
            led.note(|| format!("engine {id}: {:?} {:?} {}", c.status, c.kind, c.wr_id));
            led.fold(
                c.wr_id << 8 | c.status as u64,
                u64::from(c.qpn.0) << 32 | u64::from(c.byte_len),
            );
            match c.kind {
                CompletionKind::Send(h, op) => self.send_done(led, &c, h, op),
                _ => self.recv_done(led, &c),
            }
        }
        let batch = s.machine.release_batch;
        let give = self.mirror.unreleased / batch * batch;
        self.engine.cq_release(self.cq, give);
        self.mirror.unreleased -= give;
        self.reserved_check(led);
        for (req, at, len) in core::mem::take(&mut self.late) {
            led.place(req, at, len);
        }
    }

    /// Takes all events.
    pub fn events(&mut self, led: &mut Ledger) {
        while let Some(e) = self.engine.poll_event() {
            let id = self.id;
            led.note(|| format!("engine {id}: {e:?}"));
            match e {
                AsyncEvent::WrReleased(h) => self.released(led, h),
                AsyncEvent::PeerUnresponsive(peer) => {
                    *self.engagements.entry(peer).or_default() += 1;
                    if !self.deaf.report(peer) {
                        self.silent(led, peer);
                    }
                }
                AsyncEvent::PathMtu(ip, size) => {
                    let narrow = led.narrow_from.is_some_and(|from| from <= led.now);
                    led.require(narrow, Oracle::Paths, || {
                        format!("engine {id}: packet size {size} to {ip} although all sizes pass")
                    });
                }
                AsyncEvent::PeerUnreachable(peer) => {
                    *self.engagements.entry(peer).or_default() += 1;
                    led.disturbed = true;
                }
                _ => {}
            }
        }
    }

    /// A peer may be reported silent only after the configured silence.
    pub(crate) fn silent(&mut self, led: &mut Ledger, peer: Endpoint) {
        let now = self.clock.read(led.now);
        let (id, after) = (self.id, self.cfg.loss.unresponsive_after);
        let quiet = self.heard.get(&peer).is_none_or(|&t| now.since(t) >= after);
        led.require(quiet, Oracle::Verdict, || format!("engine {id}: {peer:?} is not silent"));
    }

    fn released(&mut self, led: &mut Ledger, h: WrHandle) {
        let Some(req) = self.wrs.get_mut(h.0 as usize).and_then(Option::take) else {
            return led.fail(Oracle::Completion, format!("{h:?} released, not outstanding"));
        };
        self.mirror.sends -= 1;
        let r = &mut led.reqs[req as usize];
        r.state = ReqState::Released;
        let qpn = r.qpn;
        let gone = self.mirror.qp(qpn).is_none();
        led.require(gone, Oracle::Destroyed, || format!("{h:?} released, {qpn:?} is there"));
    }

    /// Outstanding requests of a destroyed queue pair were released, or had ended unpolled.
    pub fn purged(&mut self, led: &mut Ledger, qpn: Qpn) {
        for slot in &mut self.wrs {
            let Some(req) = *slot else { continue };
            if led.reqs[req as usize].qpn == qpn {
                led.reqs[req as usize].state = ReqState::Released;
                self.mirror.sends -= 1;
                *slot = None;
            }
        }
        self.mirror.expected.retain(|e| e.completion.qpn != qpn);
    }

    /// Checks a send completion.
    fn send_done(&mut self, led: &mut Ledger, c: &Completion, h: WrHandle, op: Opcode) {
        let id = self.id;
        let Some(req) = self.wrs.get_mut(h.0 as usize).and_then(Option::take) else {
            return led.fail(Oracle::Completion, format!("engine {id}: {c:?} without a request"));
        };
        self.mirror.sends -= 1;
        let live = self.mirror.qp(c.qpn).map(|q| q.sends -= 1).is_some();
        led.require(live, Oracle::Destroyed, || {
            format!("engine {id}: {c:?}, but its queue pair was destroyed")
        });
        let r = &mut led.reqs[req as usize];
        let same = r.wr.wr_id == c.wr_id
            && r.qpn == c.qpn
            && r.wr.op == op
            && r.wr.len == c.byte_len
            && r.state == ReqState::Live;
        r.state = ReqState::Done(c.status);
        if c.status == Status::Ok {
            led.tally.completed += 1;
        } else {
            led.tally.failed += 1;
        }
        led.require(same, Oracle::Completion, || format!("engine {id}: {c:?} for request {req}"));
        if c.status == Status::Ok {
            succeeded(led, req);
        } else {
            failed(led, req, c.status);
        }
    }

    /// Checks a receive completion.
    fn recv_done(&mut self, led: &mut Ledger, c: &Completion) {
        let id = self.id;
        let right = self.mirror.expected.pop_front();
        let same = right.is_some_and(|e| e.completion == *c);
        led.require(same, Oracle::Receive, || format!("engine {id}: {c:?}, right is {right:?}"));
        let Some(req) = right.and_then(|e| e.request) else { return };
        let r = &led.reqs[req as usize];
        let needs = if r.wr.op == Opcode::WriteImm || r.is_message() { r.wr.len } else { 0 };
        let there = r.placed.total() == u64::from(needs);
        led.require(there, Oracle::CompletionAfterPlacement, || {
            format!(
                "engine {id}: receive completed, but {} bytes of request {req} are missing",
                needs
            )
        });
    }

    /// Reserved slots must equal outstanding requests plus completions not returned.
    pub fn reserved_check(&mut self, led: &mut Ledger) {
        let (is, right) = (self.engine.cq_reserved(self.cq), self.mirror.reserved());
        let (id, depth) = (self.id, self.mirror.cq_depth);
        led.require(is == Some(right) && right <= depth, Oracle::CqReservation, || {
            format!("engine {id}: {is:?} slots are reserved, expected {right} (depth {depth})")
        });
    }

    /// Checks the statistics of contexts and paths.
    pub fn accounts_check(&mut self, led: &mut Ledger) {
        let id = self.id;
        let stats = self.engine.context_stats();
        for c in &stats {
            let packets: u32 =
                stats.iter().filter(|o| o.peer.ip == c.peer.ip).map(|o| o.packets_in_flight).sum();
            let most = u64::from(packets) * (u64::from(self.cfg.mtu) + 512);
            let fits = (packets == 0) == (c.inflight_bytes == 0) && c.inflight_bytes <= most;
            led.require(fits, Oracle::Inflight, || {
                format!("engine {id}: {packets} packets in flight, but {} bytes", c.inflight_bytes)
            });
            let in_window = c.psns_unresolved <= u32::from(u16::MAX) / 2;
            let consistent = c.packets_in_flight <= c.psns_unresolved;
            led.require(in_window && consistent, Oracle::Window, || format!("engine {id}: {c:?}"));
        }
        let unsaid = self.judgments.iter().filter_map(|(p, j)| Some((*p, j.unsaid_since?)));
        let missed = |&(_, since): &(Endpoint, _)| self.ack_deadline.is_missed(since, led.now);
        // The minimum, so that the result does not depend on the map's order.
        if let Some((peer, since)) = unsaid.filter(missed).min() {
            let what = format!(
                "engine {id} judged a packet at {since} ps, but sent no acknowledgment to {peer:?}"
            );
            led.fail(Oracle::Ack, what);
        }
        let table = stats.len() <= self.cfg.contexts_max as usize;
        led.require(table, Oracle::Limits, || format!("engine {id}: {} contexts", stats.len()));
        let live = self.wrs.iter().flatten().count() as u32;
        let outstanding: u32 = stats.iter().map(|c| c.outstanding).sum();
        led.require(outstanding <= live, Oracle::Inflight, || {
            format!("engine {id}: {outstanding} requests outstanding, expected {live}")
        });
        self.counters_check(led);
    }

    fn counters_check(&mut self, led: &mut Ledger) {
        let n = self.engine.counters();
        let (id, (received, sent, bytes)) = (self.id, self.counts);
        let drops: u64 = n.drops.iter().sum();
        let ok = n.rx_pkts == received
            && n.tx_pkts == sent
            && n.tx_bytes == bytes
            && n.rx_drops == drops
            && n.ack_pkts + n.retrans_pkts <= sent
            && n.contexts_closed <= n.opens_received + n.opens_sent
            && n.paths_returned <= n.paths_retired;
        led.require(ok, Oracle::Counters, || format!("engine {id}: {:?}, {n:?}", self.counts));
    }
}

/// Checks a request that succeeded.
fn succeeded(led: &mut Ledger, id: u32) {
    let r = &led.reqs[id as usize];
    if r.datagram {
        return;
    }
    let there = r.placed.total() == u64::from(r.wr.len);
    let delivered = !r.is_message() || r.delivered == 1;
    let judged = r.judged(Verdict::Ok) && (r.rnr <= u32::from(r.rnr_retry) || r.rnr_retry == 7);
    if !there || !delivered {
        let what = format!(
            "request {id} {:?} succeeded: {} of {} bytes placed, delivered {} times",
            r.wr.op,
            r.placed.total(),
            r.wr.len,
            r.delivered
        );
        led.fail(Oracle::CompletionAfterPlacement, what);
    } else if !judged {
        led.fail(Oracle::Verdict, format!("request {id} should have failed, but succeeded: {r:?}"));
    }
}

/// Checks that an error status follows from the verdicts, or from local events.
fn failed(led: &mut Ledger, id: u32, status: Status) {
    let r = &led.reqs[id as usize];
    let retries = u32::from(r.rnr_retry);
    let disturbed = led.disturbed;
    let right = match status {
        Status::RemoteRnr => r.judged(Verdict::Rnr) && r.rnr == retries + 1 && retries < 7,
        Status::RemoteBadDestQpn => r.judged(Verdict::BadQpn) || r.judged(Verdict::BadQkey),
        Status::RemoteBadLength => r.judged(Verdict::BadLength),
        Status::RemoteBadAddress => r.judged(Verdict::BadRkey) || r.region_gone,
        Status::RemoteUnknownPeer => r.judged(Verdict::UnknownPeer),
        Status::RemoteFeatureMismatch => r.judged(Verdict::FeatureMismatch) || r.verdicts == 0,
        Status::RemoteAbort => disturbed,
        Status::LocalUnrespRemote | Status::LocalUnreachRemote => true,
        // The request was too long for the path, and the peer reported that it did not arrive.
        Status::LocalBadLength => {
            matches!(r.wr.op, Opcode::Send | Opcode::SendImm) && (r.datagram || r.delivered == 0)
        }
        Status::Flushed | Status::LocalInvalidAh => true,
        _ => false,
    };
    if !right {
        let what = format!(
            "request {id} {:?} ended with {status:?}; verdicts {:b}, RNR {} of {retries}",
            r.wr, r.verdicts, r.rnr
        );
        led.fail(Oracle::Verdict, what);
    }
}

#[cfg(test)]
#[path = "poll_tests.rs"]
mod tests;
