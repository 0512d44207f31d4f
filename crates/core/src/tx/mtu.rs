//! The size of packets: what the way to a peer carries now, how that is found out, and what becomes
//! of packets that have become too large for it.
//!
//! A packet that was sent may have arrived, whatever was lost since. So its PSN is not used for
//! less, and its bytes get no new PSN, before the peer has told: a *recall* takes the PSN, which is
//! refused where the packet had not arrived (nobody awaits a response to message 0). Only then are
//! its bytes cut anew. Each byte is placed at most once all the same.

use crate::api::{AsyncEvent, Opcode, Status};
use crate::engine::Engine;
use crate::events::Observer;
use crate::limits::MTU_MIN;
use crate::outbox::ProbeOut;
use crate::path::table::PathEntry;
use crate::path::{Found, next_below};
use crate::peer::ContextState;
use crate::peer::recut::Recut;
use crate::peer::scoreboard::{Kind, Sent};
use crate::time::Time;
use core::net::IpAddr;
use srd_wire::Verdict;

impl<O: Observer> Engine<O> {
    /// Payload of a packet of `ci` at most, now: what both sides take, and what the way carries.
    #[inline(always)]
    pub(crate) fn mtu_of(&self, ci: u32) -> u16 {
        let c = self.contexts.get(ci);
        let full = self.shared.sizes.small == 0;
        debug_assert!(!full || !self.paths.get(c.path_ctx).mtu.is_small(), "counted");
        if full { c.limits.mtu } else { c.limits.mtu.min(self.mtu_of_path(c.path_ctx)) }
    }

    #[cold]
    fn mtu_of_path(&self, pi: u32) -> u16 {
        self.paths.get(pi).mtu.size()
    }

    /// A packet of context `ci` was echoed, or, with the length of its payload, is known to have
    /// arrived, while that matters for some address.
    #[cold]
    pub(crate) fn mtu_passed(&mut self, ci: u32, echoed: Option<u32>, arrived: Option<u16>) {
        let pi = self.contexts.get(ci).path_ctx;
        let mtu = &mut self.paths.get_mut(pi).mtu;
        if let Some(tx_num) = echoed {
            mtu.on_echo(ci, tx_num);
        }
        if let Some(len) = arrived {
            mtu.on_arrived(len);
        }
        self.shared.sizes.recount(self.paths.get_mut(pi));
    }

    /// Payload of a packet to `ip` at most, as far as is known; `None` if nothing is known to be
    /// too large.
    pub fn path_mtu(&self, ip: IpAddr) -> Option<u16> {
        let size = self.paths.get(self.paths.by_ip(&ip)?).mtu.size();
        (size < u16::MAX).then_some(size)
    }

    /// A packet with `payload_len` bytes of payload to `ip` could not leave this host because it is
    /// too large; `payload_max` is what can, if that is known.
    pub fn path_too_long(
        &mut self,
        now: Time,
        ip: IpAddr,
        payload_len: u16,
        payload_max: Option<u16>,
    ) {
        let Some(pi) = self.paths.by_ip(&ip) else { return };
        // A packet with no more payload than the least size cannot get any smaller.
        if payload_len <= next_below(ip, 0, false) {
            return;
        }
        let aligned = self.mtu_aligned();
        let told = payload_max.filter(|&max| max < payload_len);
        let told = told.map(|max| if aligned { max - max % 128 } else { max });
        let size = told.unwrap_or_else(|| next_below(ip, payload_len, aligned)).max(MTU_MIN);
        let news = self.paths.get_mut(pi).mtu.limit(now, size);
        self.shared.sizes.recount(self.paths.get_mut(pi));
        if news {
            self.mtu_changed(now, pi);
        }
    }

    pub(crate) fn mtu_aligned(&self) -> bool {
        self.shared.cfg.mtu.is_multiple_of(128)
    }

    /// The packet `e` of `ci` was lost: if too many large ones were, it is asked what passes.
    pub(crate) fn mtu_lost(&mut self, now: Time, ci: u32, e: &Sent) {
        if !self.shared.cfg.mtu_search || e.kind.recalled().is_some() {
            return;
        }
        let full = self.mtu_of(ci);
        let pi = self.contexts.get(ci).path_ctx;
        let entry = self.paths.get_mut(pi);
        if e.len <= full && entry.mtu.on_lost(now, e.len, entry.ip) {
            entry.mtu.search_begin(now, ci, full);
            self.mtu_round(now, pi);
        }
        self.shared.sizes.recount(self.paths.get_mut(pi));
    }

    /// Whether it is being asked if packets of that size can arrive at all: for the few rounds that
    /// takes, they are sent on.
    pub(crate) fn mtu_doubted(&self, ci: u32, len: u16) -> bool {
        if self.shared.sizes.awake == 0 {
            return false;
        }
        let entry = self.paths.get(self.contexts.get(ci).path_ctx);
        entry.mtu.doubts() && len > next_below(entry.ip, 0, false)
    }

    /// Sends the probes of half a round.
    fn mtu_round(&mut self, now: Time, pi: u32) {
        let Some(ci) = self.paths.get(pi).mtu.carrier() else { return };
        let fits = |c: &&crate::peer::Context| {
            c.path_ctx == pi && c.state == ContextState::Open && c.active.is_some()
        };
        let Some(full) = self.contexts.find(ci).filter(fits).map(|c| c.limits.mtu) else {
            return self.paths.get_mut(pi).mtu.search_end(now);
        };
        let (aligned, rxq_drops) = (self.mtu_aligned(), self.shared.rx.rxq_drops);
        let PathEntry { ctx, mtu, ip, .. } = self.paths.get_mut(pi);
        let wait = ctx.answer_wait();
        let path_any = || ctx.path_any(now, &mut self.shared.rng);
        mtu.step_begin(now, (wait, rxq_drops), (*ip, full, aligned), path_any, |path, size| {
            self.shared.out.probe_push(ProbeOut { ci, path, size, asks: true });
        });
        // Sets the timer.
        self.path_changes(now, pi);
    }

    /// The timer of the paths to an address has fired.
    pub(crate) fn mtu_fire(&mut self, now: Time, pi: u32) {
        self.mtu_look(now, pi);
        self.shared.sizes.recount(self.paths.get_mut(pi));
    }

    fn mtu_look(&mut self, now: Time, pi: u32) {
        let (seen, rxq_drops) = (self.shared.seen(now), self.shared.rx.rxq_drops);
        let entry = self.paths.get_mut(pi);
        // The answers may wait in our socket.
        if entry.mtu.next() > seen {
            return;
        }
        let carrier = entry.mtu.carrier().unwrap_or(entry.carrier);
        let known = self.contexts.find(carrier).filter(|c| c.path_ctx == pi);
        let Some(full) = known.map(|c| c.limits.mtu) else {
            return self.paths.get_mut(pi).mtu.search_end(now);
        };
        let entry = self.paths.get_mut(pi);
        match entry.mtu.poll(now, seen, full, rxq_drops) {
            Found::Again => self.mtu_round(now, pi),
            Found::Changed => self.mtu_changed(now, pi),
            Found::Nothing => {
                if entry.mtu.raise_begin(now, carrier, full) {
                    self.mtu_round(now, pi);
                }
            }
        }
    }

    /// Packets to the address have another size from now on.
    pub(crate) fn mtu_changed(&mut self, now: Time, pi: u32) {
        let entry = self.paths.get(pi);
        let (ip, size) = (entry.ip, entry.mtu.size().min(self.shared.cfg.mtu));
        self.shared.counters.mtu_changes += 1;
        self.shared.event_push(AsyncEvent::PathMtu(ip, size));
        self.path_changes(now, pi);
    }

    /// The peer has told what became of a PSN that was taken back.
    pub(crate) fn recall_resolved(&mut self, now: Time, ci: u32, was: &Sent, verdict: Verdict) {
        let kind = was.kind.recalled().unwrap_or(was.kind);
        if verdict != Verdict::NoRequest {
            // It had arrived as it was.
            match kind {
                Kind::ReadResp => self.job_segment_done(ci, was.wr, Some(verdict)),
                _ => self.wr_segment_done(now, was.wr, kind, verdict),
            }
            return;
        }
        match kind {
            Kind::Send => {
                self.objects.wrs.get_mut(was.wr).open -= 1;
                self.wr_fail(was.wr, Status::LocalBadLength);
            }
            _ => {
                let range = Recut { kind, wr: was.wr, off: was.off, len: u32::from(was.len) };
                self.contexts.get_mut(ci).act().recuts.push_back(range);
                self.shared.out.ready_push(ci);
            }
        }
    }

    /// Cuts the next packet from what was taken back.
    pub(crate) fn recut_cut(&mut self, ci: u32) -> Option<u32> {
        let mtu = u32::from(self.mtu_of(ci));
        for _ in 0..self.contexts.get_mut(ci).act().recuts.len() {
            let r = self.contexts.get_mut(ci).act().recuts.pop_front()?;
            if !self.recut_lives(ci, &r) {
                self.recut_drop(ci, &r);
                continue;
            }
            if self.recut_refused(ci, &r) {
                self.wr_fail(r.wr, Status::RemoteFeatureMismatch);
                self.recut_drop(ci, &r);
                continue;
            }
            if !self.recut_credit(ci, &r) {
                self.contexts.get_mut(ci).act().recuts.push_back(r);
                continue;
            }
            let len = mtu.min(r.len);
            if len < r.len {
                let rest = Recut { off: r.off + len, len: r.len - len, ..r };
                self.contexts.get_mut(ci).act().recuts.push_front(rest);
                self.recut_open(ci, &r);
            }
            let entry = Sent::new(r.kind, r.wr, r.off, len as u16);
            return Some(self.contexts.get_mut(ci).act().board.append(entry));
        }
        None
    }

    /// Whether what the range is of goes on.
    fn recut_lives(&mut self, ci: u32, r: &Recut) -> bool {
        match r.kind {
            Kind::Write => self.objects.wrs.get(r.wr).failed.is_none(),
            _ => {
                let jobs = &self.contexts.get_mut(ci).act().jobs;
                jobs.iter().any(|j| j.id == r.wr && !j.dead)
            }
        }
    }

    /// Whether a message of one packet with immediate would become one of several, of which the
    /// peer tracks none.
    fn recut_refused(&mut self, ci: u32, r: &Recut) -> bool {
        if r.kind != Kind::Write {
            return false;
        }
        let w = self.objects.wrs.get(r.wr);
        w.wr.op == Opcode::WriteImm && !w.credited && self.contexts.get(ci).limits.imms_max == 0
    }

    /// A message of one packet with immediate becomes one of several, which the peer tracks: that
    /// takes a credit.
    fn recut_credit(&mut self, ci: u32, r: &Recut) -> bool {
        if r.kind != Kind::Write {
            return true;
        }
        let c = self.contexts.get_mut(ci);
        let w = self.objects.wrs.get_mut(r.wr);
        if w.wr.op != Opcode::WriteImm || w.credited {
            return true;
        }
        if c.imms_out >= c.limits.imms_max {
            return false;
        }
        c.imms_out += 1;
        w.credited = true;
        true
    }

    /// One packet more of it is open.
    fn recut_open(&mut self, ci: u32, r: &Recut) {
        match r.kind {
            Kind::Write => self.objects.wrs.get_mut(r.wr).open += 1,
            _ => {
                let jobs = &mut self.contexts.get_mut(ci).act().jobs;
                if let Some(job) = jobs.iter_mut().find(|j| j.id == r.wr) {
                    job.open += 1;
                }
            }
        }
    }

    /// What the range is of has ended otherwise.
    fn recut_drop(&mut self, ci: u32, r: &Recut) {
        match r.kind {
            Kind::Write => {
                self.objects.wrs.get_mut(r.wr).open -= 1;
                self.wr_check_done(r.wr);
            }
            _ => self.job_segment_done(ci, r.wr, None),
        }
    }
}
