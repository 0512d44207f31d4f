//! The receiving end of a queue pair.

use super::{RcConfig, RcPacket, Recovery};
use srd_fabric::{HostId, Ps};
use std::collections::VecDeque;

/// State of a receiving end.
#[derive(Clone, Debug, Default)]
pub(super) struct Responder {
    life: u32,
    expected: u64,
    /// Packets since the last acknowledgment.
    silent: u32,
    /// The gap has been reported (go-back-N).
    asked: bool,
    /// Packets after `expected` that have arrived, and whether each ends a message (IRN).
    kept: VecDeque<bool>,
    /// InfiniBand: a packet since the last acknowledgment was marked.
    marked: bool,
    /// When the last notification was sent.
    notified_at: Option<Ps>,
    pub early: u64,
    pub duplicates: u64,
}

/// What a receiving end answers to a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    pub ack: Option<RcPacket>,
    pub notify: bool,
    /// The payload is new.
    pub new: bool,
}

/// A data packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub src: HostId,
    pub qp: u32,
    pub life: u32,
    pub psn: u64,
    pub last: bool,
    pub ce: bool,
}

impl Responder {
    /// Bytes of this end with its queue.
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.kept.capacity()
    }

    pub fn on_data(&mut self, now: Ps, p: &Arrived, config: &RcConfig) -> Answer {
        if p.life < self.life {
            return Answer::default();
        }
        if p.life > self.life {
            // The queue pair was made anew.
            let (early, duplicates) = (self.early, self.duplicates);
            *self = Self { life: p.life, early, duplicates, ..Self::default() };
        }
        let mut answer =
            Answer { notify: p.ce && self.notify_due(now, config), ..Answer::default() };
        self.marked |= p.ce && config.ib_cc.is_some();
        let marked = &mut self.marked;
        let mut ack = |expected, kept, nak| {
            let (qp, life) = (p.qp, p.life);
            let becn = std::mem::take(marked);
            Some(RcPacket::Ack { qp, life, expected, kept, nak, becn })
        };
        if p.psn < self.expected {
            self.duplicates += 1;
            answer.ack = ack(self.expected, None, false);
            return answer;
        }
        if config.recovery == Recovery::Irn {
            let at = (p.psn - self.expected) as usize;
            if self.kept.len() <= at {
                self.kept.resize(at + 1, false);
            }
            answer.new = !std::mem::replace(&mut self.kept[at], true);
            self.duplicates += u64::from(!answer.new);
            self.early += u64::from(at > 0);
            while self.kept.front() == Some(&true) {
                self.kept.pop_front();
                self.expected += 1;
            }
            let kept = (p.psn >= self.expected).then_some(p.psn);
            answer.ack = ack(self.expected, kept, false);
            return answer;
        }
        if p.psn > self.expected {
            self.early += 1;
            if !std::mem::replace(&mut self.asked, true) {
                answer.ack = ack(self.expected, None, true);
                self.silent = 0;
            }
            return answer;
        }
        (self.asked, answer.new) = (false, true);
        self.expected += 1;
        self.silent += 1;
        if p.last || self.silent >= config.ack_every {
            self.silent = 0;
            answer.ack = ack(self.expected, None, false);
        }
        answer
    }

    fn notify_due(&mut self, now: Ps, config: &RcConfig) -> bool {
        let Some(dcqcn) = &config.dcqcn else { return false };
        let due = self.notified_at.is_none_or(|at| now - at >= dcqcn.cnp_ps);
        if due {
            self.notified_at = Some(now);
        }
        due
    }
}
