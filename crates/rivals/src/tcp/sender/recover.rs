//! State changes on an ack: entering, leaving and undoing recoveries.

use super::ack::{News, Resend};
use super::board::{LOST, RETRANS};
use super::{Purpose, Sender, State};
use crate::tcp::cc::INFINITE;
use crate::tcp::{Recovery, TcpConfig};
use srd_fabric::Ps;

/// Later segments, or duplicate acks, after which a segment is lost (RFC 5681).
const DUPLICATES: u32 = 3;
/// Resolution of the kernel's timestamps: times that differ by less compare as equal.
const TIMESTAMP_TICK: Ps = srd_fabric::MS;

impl Sender {
    /// Detects losses and changes the state after an ack.
    pub(super) fn decide(&mut self, now: Ps, news: &mut News, config: &TcpConfig) -> Resend {
        if news.ece && !self.repairing() && self.state != State::Reduced {
            self.reduced_enter(true);
        }
        let alert = news.sacked > 0 || news.dupack || news.duplicate || self.board.lost() > 0;
        if !alert && self.state == State::Open {
            return Resend::Nothing;
        }
        if self.una >= self.high && self.state_end(now, news, config) {
            return Resend::Nothing;
        }
        match self.state {
            State::Recovery => {
                if news.advanced && self.undo_partial(now, news) {
                    return Resend::Nothing;
                }
                self.dupack_count(news, config);
                if self.undo_by_duplicates() {
                    self.open();
                    return Resend::Nothing;
                }
                self.losses_find(now, news, config);
                return Resend::Lost;
            }
            State::Timeout => {
                let resend = self.timeout_go_on(now, news, config);
                self.losses_find(now, news, config);
                if self.state != State::Open && !news.lost_copy {
                    return resend;
                }
            }
            _ => {
                self.dupack_count(news, config);
                if self.state <= State::Disorder && self.undo_by_duplicates() {
                    self.open();
                }
                self.losses_find(now, news, config);
            }
        }
        if self.board.lost() == 0 {
            self.open_try();
            return Resend::Nothing;
        }
        self.recovery_enter(news.ece);
        Resend::Lost
    }

    /// Leaves the state once SND.UNA has passed its end. True if nothing else is to be done.
    fn state_end(&mut self, now: Ps, news: &News, config: &TcpConfig) -> bool {
        match self.state {
            State::Reduced if self.una != self.high => {
                self.reduction_end();
                self.open();
            }
            State::Recovery => {
                self.dupacks_clear(config);
                if self.undo_possible(now, news) {
                    self.undo_do(false);
                    self.open();
                    return true;
                }
                // D-SACKs may still show that the retransmissions were spurious: keep `undo`.
                self.reduction_end();
                self.open();
            }
            _ => {}
        }
        false
    }

    /// Without SACK, clears the counted duplicate acks once SND.UNA has advanced.
    fn dupacks_clear(&mut self, config: &TcpConfig) {
        if config.recovery == Recovery::NewReno {
            self.board.dupacks_clear();
        }
    }

    /// Counts a duplicate ack, where no SACK says what arrived.
    fn dupack_count(&mut self, news: &News, config: &TcpConfig) {
        if config.recovery == Recovery::NewReno && news.dupack {
            self.board.dupack();
        }
    }

    /// Detects losses and marks them.
    fn losses_find(&mut self, now: Ps, news: &mut News, config: &TcpConfig) {
        match config.recovery {
            Recovery::Rack => {
                let copies = self.board.retrans();
                if self.rack.advanced {
                    self.rack.advanced = false;
                    if let Some(wait) = self.rack_losses(now) {
                        let at = now + wait + config.timer_slack_ps;
                        let rto = now + self.rtt.rto(self.backoff, config);
                        self.timer_set(Purpose::Reorder, at.min(rto), config);
                        news.timer_renew = false;
                    }
                }
                news.lost_copy |= self.board.retrans() < copies;
            }
            Recovery::Sack => {
                let lost = self.board.lost();
                self.board.lose_by_count(DUPLICATES);
                self.counters.segments_lost += u64::from(self.board.lost() - lost);
            }
            Recovery::NewReno => {
                let partial = self.state == State::Recovery && news.advanced;
                let head = self.board.front().is_some_and(|s| !s.is(LOST));
                let proven = self.board.sacked() >= DUPLICATES && self.state < State::Recovery;
                if head && (partial || proven) {
                    self.lose(self.board.first());
                }
            }
        }
    }

    /// Marks one segment lost.
    pub(super) fn lose(&mut self, no: u32) {
        self.board.lose(no);
        self.counters.segments_lost += 1;
    }

    /// RACK: a segment sent at least a reordering window before a delivered one is lost. Returns
    /// the time until the next segment would be lost.
    pub(super) fn rack_losses(&mut self, now: Ps) -> Option<Ps> {
        let window = self.rack_window();
        let mut wait = None;
        let mut next = self.board.oldest();
        while let Some(no) = next {
            next = self.board.later(no);
            let seg = self.board.get(no);
            if seg.is(LOST) && !seg.is(RETRANS) {
                continue;
            }
            if (seg.sent_ps, seg.end()) >= (self.rack.sent_ps, self.rack.end) {
                break;
            }
            let due = seg.sent_ps + self.rack.rtt + window;
            if due <= now {
                self.lose(no);
            } else {
                wait = wait.max(Some(due - now));
            }
        }
        wait
    }

    fn rack_window(&self) -> Ps {
        let proven = self.state >= State::Recovery || self.board.sacked() >= DUPLICATES;
        if !self.reordered && proven {
            return 0;
        }
        let quarter = self.rtt.min().unwrap_or(0) / 4;
        (quarter * Ps::from(self.rack.steps)).min(self.rtt.srtt())
    }

    /// Enters fast recovery.
    pub(super) fn recovery_enter(&mut self, ece: bool) {
        self.counters.fast_recoveries += 1;
        self.threshold_prior = 0;
        self.undo_begin();
        if !self.reducing() {
            if !ece {
                self.threshold_prior = self.threshold_now();
            }
            self.reduction_begin(ece);
        }
        self.state = State::Recovery;
    }

    /// Shrinks the window without a loss: an ECN mark, a full NIC, a probe that repaired a loss.
    pub(super) fn reduced_enter(&mut self, ece: bool) {
        if self.state >= State::Reduced {
            return;
        }
        self.threshold_prior = 0;
        self.undo = None;
        self.reduction_begin(ece);
        self.state = State::Reduced;
    }

    fn reduction_begin(&mut self, ece: bool) {
        self.high = self.next;
        self.probe = None;
        self.window.count = 0;
        self.window_prior = self.window.size;
        (self.prr_delivered, self.prr_out) = (0, 0);
        self.window.threshold = self.control.reduce(&self.window, ece);
        self.cwr_owed |= ece;
    }

    /// Proportional rate reduction (RFC 6937 with the kernel's reduction bound).
    pub(super) fn prr(&mut self, news: &News) {
        let delivered = news.acked + news.sacked;
        if delivered == 0 || self.window_prior == 0 || self.control.whole() {
            return;
        }
        let pipe = self.board.pipe();
        let target = self.window.threshold;
        self.prr_delivered += delivered;
        let mut send = if pipe > target {
            let due = u64::from(target) * u64::from(self.prr_delivered);
            due.div_ceil(u64::from(self.window_prior)) as i64 - i64::from(self.prr_out)
        } else {
            let owed = i64::from(self.prr_delivered) - i64::from(self.prr_out);
            let faster = i64::from(news.advanced && news.lost == 0);
            (owed.max(delivered.into()) + faster).min(i64::from(target - pipe))
        };
        send = send.max(i64::from(self.prr_out == 0));
        self.window.size = (i64::from(pipe) + send).max(1) as u32;
    }

    /// Completes the reduction.
    pub(super) fn reduction_end(&mut self) {
        if self.window.threshold < INFINITE && !self.control.whole() {
            self.window.size = self.window.threshold;
        }
    }

    /// Applies the whole reduction at once after a probe repaired a loss.
    pub(super) fn probe_reduce(&mut self) {
        self.reduced_enter(false);
        self.reduction_end();
        self.state = State::Open;
        self.open_try();
    }

    fn open(&mut self) {
        self.state = State::Open;
        self.copy_first_ps = None;
    }

    fn open_try(&mut self) {
        if self.state == State::Reduced {
            return;
        }
        let odd = self.board.sacked() > 0 || self.board.retrans() > 0 || self.board.lost() > 0;
        if odd {
            if self.state != State::Disorder {
                (self.state, self.high) = (State::Disorder, self.next);
            }
        } else {
            self.open();
        }
    }

    /// The threshold to restore if the current reduction proves spurious.
    pub(super) fn threshold_now(&self) -> u32 {
        if self.reducing() {
            return self.window.threshold;
        }
        self.window.threshold.max(self.window.size / 2 + self.window.size / 4)
    }

    pub(super) fn undo_begin(&mut self) {
        self.undo = Some(self.una);
        let copies = self.board.retrans();
        self.undo_copies = (copies > 0).then_some(copies);
    }

    /// Whether the retransmissions were spurious: all were reported as duplicates, or an ack
    /// answers a segment sent before the first of them.
    fn undo_possible(&self, now: Ps, news: &News) -> bool {
        self.undo.is_some() && (self.undo_copies == Some(0) || self.only_late(now, news))
    }

    /// The ack's timestamp is older than the first retransmission (Eifel, RFC 3522).
    fn only_late(&self, now: Ps, news: &News) -> bool {
        let tick = |ps: Ps| ps / TIMESTAMP_TICK;
        let copy = self.copy_first_ps.filter(|copy| *copy <= now);
        news.advanced && copy.is_some_and(|copy| tick(news.ts_echo) < tick(copy))
    }

    /// Undoes the reduction.
    fn undo_do(&mut self, unlose: bool) {
        self.counters.undone += 1;
        if unlose {
            self.board.unlose();
        }
        self.control.undone();
        if self.control.whole() {
            self.undo = None;
            self.rack.advanced = true;
            return;
        }
        self.window.size = self.window.size.max(self.window_prior);
        if self.threshold_prior > 0 {
            self.window.threshold = self.window.threshold.max(self.threshold_prior);
        }
        self.undo = None;
        self.rack.advanced = true;
    }

    /// Handles a partial ack of an original transmission: the path is only slow. True if the
    /// remaining segments may wait.
    fn undo_partial(&mut self, now: Ps, news: &News) -> bool {
        if self.undo.is_none() || !self.only_late(now, news) {
            return false;
        }
        self.reordered = true;
        if self.board.retrans() > 0 {
            return true;
        }
        self.undo_do(true);
        self.open_try();
        true
    }

    fn undo_by_duplicates(&mut self) -> bool {
        let yes = self.undo.is_some() && self.undo_copies == Some(0);
        if yes {
            self.undo_do(false);
        }
        yes
    }

    /// Handles an ack after a timeout (with F-RTO, RFC 5682).
    fn timeout_go_on(&mut self, now: Ps, news: &News, config: &TcpConfig) -> Resend {
        let recovered = self.una >= self.high;
        if news.advanced && self.undo_possible(now, news) {
            self.undo_do(true);
            self.timeouts = 0;
            self.open();
            return Resend::Nothing;
        }
        if self.frto {
            // An original transmission arrived without any retransmission: the timeout was
            // spurious.
            if news.original && config.recovery != Recovery::NewReno && self.undo.is_some() {
                self.undo_do(true);
                self.timeouts = 0;
                self.open();
                return Resend::Nothing;
            }
            if self.next > self.high {
                if news.sacked > 0 || news.dupack {
                    self.frto = false;
                }
            } else if news.advanced && !recovered {
                self.high = self.next;
                if self.written > self.next && self.right > self.next {
                    return Resend::New;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.dupacks_clear(config);
            self.open();
            return Resend::Nothing;
        }
        self.dupack_count(news, config);
        Resend::Lost
    }
}
