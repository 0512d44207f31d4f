//! Window state: what is kept of a peer while there is traffic, or something to remember beyond the
//! edges. It is leased from a pool, and given back when nothing has been going on for a while.

use crate::config::EngineConfig;
use crate::objects::keys::WrongKeys;
use crate::objects::wr::WrList;
use crate::peer::ack::AckState;
use crate::peer::doubt::Doubt;
use crate::peer::given_up::LossState;
use crate::peer::inbound::Inbound;
use crate::peer::outstanding::Outstanding;
use crate::peer::read_job::ReadJobs;
use crate::peer::replay::Replay;
use crate::peer::scoreboard::Scoreboard;
use crate::peer::send_queues::SendQueues;
use crate::peer::sent_log::SentLog;
use crate::peer::verdicts::Verdicts;
use crate::peer::window::RxWindow;
use crate::peer::write_imm::ImmTable;
use crate::psn::{Psn, TxNum};
use crate::time::{Span, Time};

/// Window state, leased while there is traffic.
#[derive(Debug)]
pub(crate) struct Window {
    pub board: Scoreboard,
    pub sent_log: SentLog,
    pub loss: LossState,
    /// What waits for a PSN, reads that are served apart.
    pub queues: SendQueues,
    pub outstanding: Outstanding,
    /// Reads that are being served to the peer.
    pub jobs: ReadJobs,
    /// Every live request through this context.
    pub live: WrList,
    pub rx_window: RxWindow,
    pub replay: Replay,
    pub verdicts: Verdicts,
    pub imms: ImmTable,
    pub ack: AckState,
    pub inbound: Inbound,
    /// When it may send although the peer's credits are used up.
    pub(super) credit_at: Time,
    /// When the window state may be given back.
    pub(super) idle_at: Time,
    /// The peer is asked whether it still has the context.
    pub(super) doubt: Option<Doubt>,
    /// When it may be asked again at the earliest.
    pub(super) doubt_next: Time,
    pub wrong_keys: WrongKeys,
}

impl Window {
    pub fn new(cfg: &EngineConfig) -> Self {
        Self {
            board: Scoreboard::new(Psn(0)),
            sent_log: SentLog::default(),
            loss: LossState::default(),
            queues: SendQueues::default(),
            outstanding: Outstanding::default(),
            jobs: ReadJobs::default(),
            live: WrList::default(),
            rx_window: RxWindow::new(Psn(0), cfg.window.max(64)),
            replay: Replay::new(),
            verdicts: Verdicts::new(cfg.window),
            imms: ImmTable::default(),
            ack: AckState::default(),
            inbound: Inbound::default(),
            credit_at: Time::NEVER,
            idle_at: Time::NEVER,
            doubt: None,
            doubt_next: Time(0),
            wrong_keys: WrongKeys::default(),
        }
    }

    /// Takes the idle context's numbers up.
    pub(super) fn start(&mut self, psn: Psn, rx_cum: Psn, rx_tx_num: TxNum) {
        debug_assert!(self.live.front().is_none(), "no request of another context");
        self.board.reset(psn);
        self.rx_window.reset(rx_cum);
        self.replay.reset(rx_tx_num);
        self.imms.clear();
    }

    /// Forgets everything, ready for another context.
    pub fn clear(&mut self) {
        self.sent_log.clear();
        self.loss = LossState::default();
        self.queues.clear();
        self.outstanding = Outstanding::default();
        (self.credit_at, self.idle_at) = (Time::NEVER, Time::NEVER);
        self.jobs.clear();
        self.live = WrList::default();
        self.verdicts.clear();
        self.imms.clear();
        self.ack.clear();
        debug_assert!(self.jobs.is_empty() && self.queues.is_empty(), "nothing waits");
        self.inbound = Inbound::default();
        (self.doubt, self.doubt_next) = (None, Time(0));
        self.wrong_keys.clear();
    }

    /// Whether nothing is going on: only numbers need to be remembered, and perhaps verdicts.
    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
            && self.board.is_empty()
            && self.queues.is_empty()
            && self.jobs.is_empty()
            && !self.rx_window.has_gap()
            && self.imms.is_empty()
            && self.ack.is_quiet()
            && self.doubt.is_none()
    }

    /// Whether something is kept that only the peer's word can free: what it must be told, what it
    /// has asked for, what it has begun.
    pub fn keeps(&self) -> bool {
        !self.board.is_empty()
            || self.queues.cancels_len() > 0
            || !self.jobs.is_empty()
            || self.rx_window.has_gap()
            || !self.imms.is_empty()
    }

    /// Whether anything waits for a PSN or to be sent again.
    #[inline]
    pub fn has_to_send(&self) -> bool {
        debug_assert!(self.board.lost_len() <= self.board.span(), "some of the unresolved");
        self.board.lost_len() > 0 || !self.queues.is_empty() || self.jobs.has_to_send()
    }

    // ---- its timers ----------------------------------------------------------------------------

    /// It may send at `at` although the peer's credits are used up (`Time::NEVER`: it need not).
    #[inline(always)]
    pub fn credit_set(&mut self, at: Time) {
        self.credit_at = at;
    }
    /// Whether that time has come. True once.
    pub fn credit_end(&mut self, now: Time) -> bool {
        let opened = self.credit_at <= now;
        if opened {
            self.credit_at = Time::NEVER;
        }
        opened
    }
    /// Something has changed: the window state is given back when nothing was going on for `after`.
    pub fn idle_note(&mut self, now: Time, after: Span) {
        if !self.is_idle() {
            self.idle_at = Time::NEVER;
        } else if self.idle_at == Time::NEVER {
            self.idle_at = now + after;
        }
    }
    /// When the window state may be given back.
    pub fn idle_at(&self) -> Time {
        self.idle_at
    }
    /// It may be given back at `at`.
    pub fn idle_set(&mut self, at: Time) {
        self.idle_at = at;
    }

    // ---- what waits ----------------------------------------------------------------------------

    /// Bytes posted, or asked for by the peer, that have no PSN yet.
    #[inline(always)]
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.queues.unsent_bytes() + self.jobs.unsent_bytes()
    }

    /// Packets of `mtu` bytes that wait to leave.
    pub fn backlog_packets(&self, mtu: u16) -> u64 {
        self.unsent_bytes().div_ceil(u64::from(mtu.max(1))) + u64::from(self.board.lost_len())
    }
}
