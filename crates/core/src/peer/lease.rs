//! Window state: the part of a context that is needed only while there is traffic, or something to
//! remember besides the window edges. It is leased from a pool, and returned after a while without
//! activity.

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

/// Window state of one active context.
#[derive(Debug)]
pub(crate) struct Window {
    pub board: Scoreboard,
    pub sent_log: SentLog,
    pub loss: LossState,
    /// Work that waits for a PSN, except responses to reads.
    pub queues: SendQueues,
    pub outstanding: Outstanding,
    /// Reads that are being served to the peer.
    pub jobs: ReadJobs,
    /// All live requests of this context.
    pub live: WrList,
    pub rx_window: RxWindow,
    pub replay: Replay,
    pub verdicts: Verdicts,
    pub imms: ImmTable,
    pub ack: AckState,
    pub inbound: Inbound,
    /// When the context may send although the peer's credits are used up.
    pub(super) credit_at: Time,
    /// When the window state may be returned to the pool.
    pub(super) idle_at: Time,
    /// The question whether the peer still has the context, while it is open.
    pub(super) doubt: Option<Doubt>,
    /// The earliest time for the next such question.
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

    /// Starts with the sequence numbers of the idle context.
    pub(super) fn start(&mut self, psn: Psn, rx_cum: Psn, rx_tx_num: TxNum) {
        debug_assert!(self.live.front().is_none(), "no request of another context");
        self.board.reset(psn);
        self.rx_window.reset(rx_cum);
        self.replay.reset(rx_tx_num);
        self.imms.clear();
    }

    /// Clears the state, which is then ready for another context.
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

    /// Whether the context is idle: only sequence numbers need to be remembered, and perhaps
    /// verdicts.
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

    /// Whether state is kept that only packets of the peer can free: unresolved PSNs, cancelled
    /// messages, reads being served, gaps in the receive window, messages being written.
    pub fn keeps(&self) -> bool {
        !self.board.is_empty()
            || self.queues.cancels_len() > 0
            || !self.jobs.is_empty()
            || self.rx_window.has_gap()
            || !self.imms.is_empty()
    }

    /// Whether anything waits for a PSN or for retransmission.
    #[inline]
    pub fn has_to_send(&self) -> bool {
        debug_assert!(self.board.lost_len() <= self.board.span(), "some of the unresolved");
        self.board.lost_len() > 0 || !self.queues.is_empty() || self.jobs.has_to_send()
    }

    // ---- timers --------------------------------------------------------------------------------

    /// Sets the time at which the context may send although the peer's credits are used up
    /// (`Time::NEVER`: not needed).
    #[inline(always)]
    pub fn credit_set(&mut self, at: Time) {
        self.credit_at = at;
    }
    /// Whether such a time is set.
    #[inline(always)]
    pub fn credit_waits(&self) -> bool {
        self.credit_at != Time::NEVER
    }
    /// Whether that time has come; true only once.
    pub fn credit_end(&mut self, now: Time) -> bool {
        let opened = self.credit_at <= now;
        if opened {
            self.credit_at = Time::NEVER;
        }
        opened
    }
    /// Updates the idle deadline after a change: the window state is returned once the context has
    /// been idle for `after`.
    pub fn idle_note(&mut self, now: Time, after: Span) {
        if !self.is_idle() {
            self.idle_at = Time::NEVER;
        } else if self.idle_at == Time::NEVER {
            self.idle_at = now + after;
        }
    }
    /// When the window state may be returned to the pool.
    pub fn idle_at(&self) -> Time {
        self.idle_at
    }
    /// Sets the time at which the window state may be returned to the pool.
    pub fn idle_set(&mut self, at: Time) {
        self.idle_at = at;
    }

    // ---- backlog -------------------------------------------------------------------------------

    /// Bytes posted by the user, or requested by the peer's reads, that have no PSN yet.
    #[inline(always)]
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.queues.unsent_bytes() + self.jobs.unsent_bytes()
    }

    /// Backlog: packets of `mtu` bytes that wait to be sent.
    pub fn backlog_packets(&self, mtu: u16) -> u64 {
        self.unsent_bytes().div_ceil(u64::from(mtu.max(1))) + u64::from(self.board.lost_len())
    }
}
