//! Processing of a received acknowledgement.

use super::board::{AGAIN, SACKED};
use super::{Sender, State};
use crate::tcp::cc::AckInfo;
use crate::tcp::cc::bbr::{Repair, Report};
use crate::tcp::segment::{Ack, TcpSegment};
use crate::tcp::{Recovery, TcpConfig};
use srd_fabric::{HostIo, Ps};

/// What an ack reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// End of the highest byte acknowledged selectively before this ack.
    pub sacked_end_prior: u64,
    /// The cumulative acknowledgement advanced.
    pub advanced: bool,
    /// The retransmission timer is to be restarted.
    pub timer_renew: bool,
    /// Segments newly acknowledged cumulatively.
    pub acked: u32,
    /// Segments newly acknowledged selectively.
    pub sacked: u32,
    /// It reports a duplicate.
    pub duplicate: bool,
    /// A segment below `high` arrived that was never retransmitted nor marked lost.
    pub original: bool,
    /// A duplicate ack in the sense of RFC 5681.
    pub dupack: bool,
    /// A retransmission was lost.
    pub lost_copy: bool,
    /// RTT of the oldest and of the newest segment that was never retransmitted.
    pub rtt_first: Option<Ps>,
    pub rtt_last: Option<Ps>,
    pub rtt_sack: Option<Ps>,
    pub ts_echo: Ps,
    pub ece: bool,
    /// Segments marked lost because of it.
    pub lost: u32,
}

/// What may be retransmitted after an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    Nothing,
    Lost,
    /// New bytes first: they show whether a timeout was spurious (F-RTO).
    New,
}

impl Sender {
    /// An acknowledgement arrived.
    pub(crate) fn on_ack(
        &mut self,
        now: Ps,
        ack: &Ack,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        self.counters.acks_received += 1;
        if ack.ack > self.next || matches!(self.state, State::Opening | State::Aborted) {
            return;
        }
        self.peer = ack.peer;
        let mut news = News {
            sacked_end_prior: self.board.sacked_end().unwrap_or(0),
            advanced: ack.ack > self.una,
            ts_echo: ack.ts_echo,
            ece: ack.ece,
            ..News::default()
        };
        if news.advanced {
            self.timeouts = 0;
        }
        let right = ack.ack + u64::from(ack.window);
        let window_moved = right > self.right;
        self.right = self.right.max(right);
        let (out_prior, flight_prior) = (self.board.len(), self.board.pipe());
        let lost_prior = self.counters.segments_lost;
        self.blocks_read(now, ack, &mut news);
        if ack.ack < self.una {
            // Reordered behind a later ack; only its SACK blocks are new.
            self.decide_and_send(now, news, config, io);
            return;
        }
        self.una = ack.ack;
        self.clean(now, config, &mut news);
        self.rtt_take(now, &news, config);
        self.probe_check(now, ack, &news, config);
        let quiet = news.acked == 0 && news.sacked == 0 && !window_moved;
        news.dupack = !news.advanced && quiet && out_prior > 0 && !news.duplicate;
        let info = AckInfo {
            now,
            una: self.una,
            next: self.next,
            acked: news.acked + news.sacked,
            rtt: news.rtt_last.or(news.rtt_sack),
            srtt: self.rtt.srtt(),
            burst_ps: self.burst_ps(config),
            ece: news.ece,
            growth: self.growth,
        };
        self.control.on_ack(&info, &mut self.window);
        // Deliveries of segments sent after the head do not excuse the head's timeout.
        let head_ps = self.board.front().map_or(now, |head| head.sent_ps);
        news.timer_renew = news.acked > 0 || news.rtt_sack.is_some_and(|rtt| rtt > now - head_ps);
        let resend = self.decide(now, &mut news, config);
        news.lost += (self.counters.segments_lost - lost_prior) as u32;
        if self.control.whole() {
            self.model(&info, &news, flight_prior);
        } else {
            self.window_follow(&info, &news);
        }
        if self.board.len() == 0 {
            self.timer = None;
        } else if news.timer_renew {
            self.timer_renew(now, config);
        }
        self.resend(now, resend, config, io);
        self.push(now, config, io);
    }

    /// Handles an old ack, whose blocks may still complete the scoreboard of a recovery.
    fn decide_and_send(
        &mut self,
        now: Ps,
        mut news: News,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        if news.sacked == 0 && !news.duplicate {
            return;
        }
        self.sampler.take(now, news.sacked, self.rtt.min().unwrap_or(0));
        let resend = self.decide(now, &mut news, config);
        self.resend(now, resend, config, io);
        self.push(now, config, io);
    }

    /// Lets an algorithm with a model of the path evaluate an ack.
    fn model(&mut self, info: &AckInfo, news: &News, flight_prior: u32) {
        let sample = self.sampler.take(info.now, info.acked, self.rtt.min().unwrap_or(0));
        let repair = match self.state {
            State::Recovery => Repair::Losses,
            State::Timeout => Repair::Timeout,
            _ => Repair::Nothing,
        };
        let report = Report {
            now: info.now,
            sample,
            acked: info.acked,
            lost: news.lost,
            rtt: info.rtt,
            flight: self.board.pipe(),
            flight_prior,
            delivered: self.sampler.delivered(),
            repair,
        };
        if self.control.model(&report, &mut self.window) {
            self.sampler.limit(self.board.pipe());
        }
        self.counters.cwnd_max = self.counters.cwnd_max.max(self.window.size);
    }

    /// Sets the window after an ack: by deliveries during a reduction, else by the algorithm.
    fn window_follow(&mut self, info: &AckInfo, news: &News) {
        if self.reducing() {
            self.prr(news);
            return;
        }
        let forward = news.acked > 0 || self.reordered && info.acked > 0;
        let full = self.limited || self.window.slow() && self.window.size < 2 * self.out_max;
        if forward && full {
            self.control.grow(info, &mut self.window);
            self.counters.cwnd_max = self.counters.cwnd_max.max(self.window.size);
        }
    }

    /// Processes the SACK blocks.
    fn blocks_read(&mut self, now: Ps, ack: &Ack, news: &mut News) {
        let mut seen = [(0, 0); 3];
        for (i, (mut from, mut to)) in ack.blocks().enumerate() {
            if i == 0 && ack.duplicate {
                news.duplicate = true;
                self.duplicate_note(from, to);
                continue;
            }
            seen[i] = (from, to);
            for (a, b) in self.blocks_seen {
                if a <= from && from < b {
                    from = b;
                }
                if a < to && to <= b {
                    to = a;
                }
            }
            if from >= to || to > self.next {
                continue;
            }
            let (mut newest, rack_min) = (None, self.rtt.min());
            let highest = self.board.sacked_end().unwrap_or(0);
            let (high, rack, sampler) = (self.high, &mut self.rack, &mut self.sampler);
            let mut reordered = false;
            self.board.sack(from, to, |seg| {
                news.sacked += 1;
                let again = seg.is(AGAIN);
                if !again {
                    newest = Some(now - seg.sent_ps);
                    reordered |= seg.end() < highest;
                    news.original |= seg.end() <= high;
                }
                rack.advance(now, seg.sent_ps, seg.end(), again, rack_min);
                sampler.arrived(seg.sent_ps, seg.end(), &seg.stamp);
            });
            self.reordered |= reordered;
            news.rtt_sack = newest.or(news.rtt_sack);
        }
        self.blocks_seen = seen;
    }

    /// Handles a D-SACK: the receiver got these bytes twice.
    fn duplicate_note(&mut self, from: u64, to: u64) {
        self.counters.duplicates_reported += 1;
        if self.rack.duplicate_until <= self.una {
            // Once per round: widen the reordering window for a while.
            self.rack.duplicate_until = self.next;
            self.rack.steps = (self.rack.steps + 1).min(255);
            self.rack.persist = 16;
        }
        let counted = self.undo.is_some_and(|undo| to > undo && from < self.next);
        if let (true, Some(copies)) = (counted, &mut self.undo_copies) {
            *copies = copies.saturating_sub(1);
        }
    }

    /// Removes what is acknowledged cumulatively.
    fn clean(&mut self, now: Ps, config: &TcpConfig, news: &mut News) {
        let min = self.rtt.min();
        while let Some(seg) = self.board.pop(self.una) {
            news.acked += u32::from(!seg.is(SACKED));
            let again = seg.is(AGAIN);
            if seg.is(SACKED) {
                continue;
            }
            self.sampler.arrived(seg.sent_ps, seg.end(), &seg.stamp);
            if !again {
                let rtt = now - seg.sent_ps;
                news.rtt_first = news.rtt_first.or(Some(rtt));
                news.rtt_last = Some(rtt);
                news.original |= seg.end() <= self.high;
                self.reordered |= seg.end() < news.sacked_end_prior;
            }
            self.rack.advance(now, seg.sent_ps, seg.end(), again, min);
        }
        if config.recovery == Recovery::NewReno && news.acked > 0 {
            self.board.dupacks_eat(news.acked);
        }
        while self.ends.get(self.messages_acked).is_some_and(|end| *end <= self.una) {
            self.messages[self.messages_acked].acked_ps = Some(now);
            self.messages_acked += 1;
        }
    }

    fn rtt_take(&mut self, now: Ps, news: &News, config: &TcpConfig) {
        let echo = || news.advanced.then(|| now.saturating_sub(news.ts_echo));
        let sample = news.rtt_first.or(news.rtt_sack).or_else(echo);
        if let Some(rtt) = sample {
            self.rtt.sample(rtt, self.una, self.next, config);
            self.backoff = 0;
        }
    }
}

impl super::Rack {
    /// Records that a segment arrived.
    fn advance(&mut self, now: Ps, sent_ps: Ps, end: u64, again: bool, rtt_min: Option<Ps>) {
        let rtt = now - sent_ps;
        if again && rtt_min.is_some_and(|min| rtt < min) {
            // The ack was for the original transmission.
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if (sent_ps, end) > (self.sent_ps, self.end) {
            (self.sent_ps, self.end) = (sent_ps, end);
        }
    }
}
