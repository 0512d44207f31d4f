//! Timers: retransmission timeout, tail loss probe, RACK reordering timeout.

use super::ack::{News, Resend};
use super::board::{LOST, RETRANS};
use super::{Purpose, Sender, State};
use crate::tcp::segment::{Ack, TcpSegment};
use crate::tcp::{Recovery, TcpConfig};
use srd_fabric::{HostIo, Ps};

impl Sender {
    /// Handles a timer that fired.
    pub(crate) fn on_deadline(
        &mut self,
        now: Ps,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        if self.wake.is_some_and(|at| at <= now) {
            self.wake = None;
            let resend = if self.repairing() { Resend::Lost } else { Resend::Nothing };
            self.resend(now, resend, config, io);
            self.push(now, config, io);
        }
        let Some((purpose, at)) = self.timer else { return };
        if at > now {
            return;
        }
        self.timer = None;
        match purpose {
            _ if self.state == State::Opening => self.syn_again(now, config, io),
            Purpose::Rto => self.timed_out(now, config, io),
            Purpose::Probe => self.probe_send(now, config, io),
            Purpose::Reorder => self.reorder_over(now, config, io),
        }
    }

    /// Retransmits the SYN.
    fn syn_again(&mut self, now: Ps, config: &TcpConfig, io: &mut HostIo<'_, TcpSegment>) {
        if self.give_up(config) {
            return;
        }
        self.backoff += 1;
        self.path_change(now, config);
        self.syn_send(now, config, io);
    }

    /// Counts a timeout; true if the connection is aborted by it.
    fn give_up(&mut self, config: &TcpConfig) -> bool {
        self.counters.timeouts += 1;
        if self.timeouts >= config.retries_max {
            self.counters.aborted += 1;
            self.state = State::Aborted;
            (self.timer, self.wake) = (None, None);
            return true;
        }
        self.timeouts += 1;
        false
    }

    /// Changes the path, if flow labels decide paths.
    fn path_change(&mut self, now: Ps, config: &TcpConfig) {
        if config.rehash_on_rto {
            let mixed = srd_fabric::rng::mix64(now ^ u64::from(self.port) << 48);
            self.port = (mixed >> 48) as u16;
            self.counters.rehashes += 1;
        }
    }

    /// Handles the retransmission timeout.
    fn timed_out(&mut self, now: Ps, config: &TcpConfig, io: &mut HostIo<'_, TcpSegment>) {
        if self.board.len() == 0 {
            return;
        }
        let again = self.timeouts > 0;
        if self.give_up(config) {
            return;
        }
        self.path_change(now, config);
        self.fallen = true;
        self.timeout_enter(now, again, config);
        let head = self.board.first();
        if !self.in_card(head, now) {
            self.copy_send(now, head, config, io);
        }
        self.backoff += 1;
        let at = now + self.rtt.rto(self.backoff, config);
        self.timer_set(Purpose::Rto, at, config);
    }

    /// Marks what is in flight lost and restarts with a window of one segment.
    fn timeout_enter(&mut self, now: Ps, again: bool, config: &TcpConfig) {
        let fresh = self.state < State::Recovery;
        self.all_lost(now, config);
        if self.state <= State::Disorder
            || self.una >= self.high
            || self.state == State::Timeout && !again
        {
            self.threshold_prior = self.threshold_now();
            self.window_prior = self.window.size;
            self.window.threshold = self.control.reduce(&self.window, false);
            self.undo_begin();
        }
        self.control.timed_out();
        self.window.size = self.board.pipe() + 1;
        self.window.count = 0;
        self.state = State::Timeout;
        self.high = self.next;
        self.probe = None;
        self.frto = fresh || again;
    }

    /// Marks all segments lost except those acknowledged and, with RACK, those sent too recently.
    fn all_lost(&mut self, now: Ps, config: &TcpConfig) {
        if config.recovery == Recovery::NewReno {
            self.board.dupacks_clear();
        }
        self.board.judge_anew();
        let mut next = self.board.oldest();
        while let Some(no) = next {
            next = self.board.later(no);
            let seg = self.board.get(no);
            if seg.is(LOST) && !seg.is(RETRANS) {
                continue;
            }
            let recent = config.recovery == Recovery::Rack && seg.sent_ps + self.rack.rtt > now;
            if no == self.board.first() || !recent {
                self.lose(no);
            }
        }
    }

    /// Marks segments lost whose reordering window has expired.
    fn reorder_over(&mut self, now: Ps, config: &TcpConfig, io: &mut HostIo<'_, TcpSegment>) {
        let pipe = self.board.pipe();
        let before = self.counters.segments_lost;
        let wait = self.rack_losses(now);
        if self.board.pipe() != pipe {
            if self.state != State::Recovery {
                self.recovery_enter(false);
                let lost = (self.counters.segments_lost - before) as u32;
                self.prr(&News { acked: 1, lost, ..News::default() });
            }
            self.resend(now, Resend::Lost, config, io);
        }
        match wait {
            Some(wait) => {
                self.timer_set(Purpose::Reorder, now + wait + config.timer_slack_ps, config);
            }
            None => self.rto_start(now, None, config),
        }
    }

    /// Sends new bytes or retransmits the last segment to detect a tail loss.
    fn probe_send(&mut self, now: Ps, config: &TcpConfig, io: &mut HostIo<'_, TcpSegment>) {
        // Only one probe may be outstanding; else the timeout counts from the head's transmission.
        let mut running = Some(Purpose::Probe);
        if self.board.len() > 0 && self.probe.is_none() {
            let fresh = self.new_send(now, config, io);
            let last = self.board.last();
            if fresh || !self.in_card(last, now) && self.copy_send(now, last, config, io) {
                self.probe = Some((self.next, !fresh));
                self.counters.probes += 1;
                running = None;
            }
        }
        self.rto_start(now, running, config);
    }

    /// Evaluates an ack for an outstanding probe.
    pub(super) fn probe_check(&mut self, _: Ps, ack: &Ack, news: &News, _: &TcpConfig) {
        let Some((edge, copy)) = self.probe else { return };
        if ack.ack < edge {
            return;
        }
        if !copy || news.duplicate {
            self.probe = None;
        } else if ack.ack > edge {
            // The retransmission was needed, and nothing else detected the loss.
            self.probe = None;
            self.probe_reduce();
        } else if !news.advanced && news.acked == 0 && news.sacked == 0 {
            self.probe = None;
        }
    }

    pub(super) const fn timer_set(&mut self, purpose: Purpose, at: Ps, config: &TcpConfig) {
        self.timer = Some((purpose, config.tick(at, self.src)));
    }

    /// Restarts the timer after an ack: a probe if one is possible, else the timeout.
    pub(super) fn timer_renew(&mut self, now: Ps, config: &TcpConfig) {
        if !self.probe_start(now, true, config) {
            let purpose = self.timer.map(|(purpose, _)| purpose);
            self.rto_start(now, purpose, config);
        }
    }

    /// Starts the retransmission timer. If another timer was running, the time since the head was
    /// sent is deducted.
    pub(super) fn rto_start(&mut self, now: Ps, running: Option<Purpose>, config: &TcpConfig) {
        let Some(head) = self.board.front() else {
            self.timer = None;
            return;
        };
        let rto = self.rtt.rto(self.backoff, config);
        let at = match running {
            Some(Purpose::Probe | Purpose::Reorder) => (head.sent_ps + rto).max(now + 1),
            _ => now + rto,
        };
        self.timer_set(Purpose::Rto, at, config);
    }

    /// Starts the probe timer if a probe is possible; `renew` = the timeout restarts, too. False if
    /// no probe is possible.
    pub(super) fn probe_start(&mut self, now: Ps, renew: bool, config: &TcpConfig) -> bool {
        let out = self.board.len();
        if !config.tlp || out == 0 || !matches!(self.state, State::Open | State::Reduced) {
            return false;
        }
        let rto = self.rtt.rto(self.backoff, config);
        let srtt = self.rtt.srtt();
        let mut wait = if srtt == 0 {
            config.rto_initial_ps
        } else {
            // A single segment may wait for a delayed ack.
            2 * srtt + if out == 1 { config.rto_min_ps } else { config.timer_slack_ps }
        };
        let head = self.board.front().map_or(now, |head| head.sent_ps);
        let rest = if renew { rto } else { (head + rto).saturating_sub(now) };
        if rest > 0 {
            wait = wait.min(rest);
        }
        self.timer_set(Purpose::Probe, now + wait, config);
        true
    }
}
