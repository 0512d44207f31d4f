//! Reliability context: everything between this engine and one remote engine.
//!
//! An idle context is a [`Context`] of a few hundred bytes. Window state ([`Window`]) is leased
//! from a pool while there is something to send, to receive or to remember beyond the edges.

pub(crate) mod ack;
pub(crate) mod doubt;
pub(crate) mod given_up;
pub(crate) mod inbound;
pub(crate) mod narrow;
pub(crate) mod read_job;
pub(crate) mod recut;
pub(crate) mod replay;
pub(crate) mod scoreboard;
pub(crate) mod sent_log;
pub(crate) mod verdicts;
pub(crate) mod window;
pub(crate) mod write_imm;

use crate::api::{AhId, Endpoint, Qpn};
use crate::config::EngineConfig;
use crate::ids::Way;
use crate::objects::keys::WrongKeys;
use crate::objects::wr::{WrList, WrQueue};
use crate::peer::inbound::Inbound;
use crate::peer::write_imm::ImmTable;
use crate::state::state_machine;
use crate::time::Time;
use ack::AckState;
use core::ops::{Deref, DerefMut};
use doubt::Doubt;
use given_up::LossState;
use narrow::Narrow;
use read_job::ReadJob;
use recut::Recut;
use replay::Replay;
use scoreboard::Scoreboard;
use sent_log::SentLog;
use srd_wire::{Backlog, CHECKSUM_BYTES, Features, Flags, HEADER_BYTES, Header, PacketType};
use std::collections::VecDeque;
use verdicts::Verdicts;
use window::RxWindow;

state_machine! {
    /// Life of a reliability context.
    pub enum ContextState {
        /// Our Open is on its way; the peer may or may not have opened by itself.
        Opening,
        /// We answered an Open; nothing with our tag has come back yet, so no data leaves.
        HalfOpen,
        /// Both sides hold the other's tag: data flows.
        Open,
        /// We asked for a mutual close; nothing of ours is outstanding.
        Closing,
        /// Gone; the slot is free.
        Closed,
    }
    /// The peer accepted our Open, or used our tag: it holds it.
    confirmed: Opening | HalfOpen => Open;
    /// Work was posted before the peer confirmed: we open from our side, too.
    open_wanted: HalfOpen => Opening;
    /// The first work for a peer that accepted our Open and never used the context: it may have
    /// dropped it since.
    reopened: Open => Opening;
    /// The work that wanted it was withdrawn; the peer may use it all the same.
    unwanted: Opening => HalfOpen;
    /// Idle and wanted gone.
    close_begun: Open => Closing;
    /// The peer still had something to say, or new work came.
    close_withdrawn: Closing => Open;
    /// Dropped for good.
    ended: Opening | HalfOpen | Open | Closing => Closed;
}

/// An Open-Ack that waits to leave. (An `Option` of it would be larger.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    pub waits: bool,
    /// Bytes that it is padded to; 0: no more than it must have.
    pub padded_len: u16,
    /// 0 to an Open, else to the Challenge with this number.
    pub cookie: u64,
}

/// What is kept of every peer, idle or not.
#[derive(Debug)]
pub(crate) struct Peer {
    pub endpoint: Endpoint,
    pub state: ContextState,
    pub local_tag: u32,
    /// 0 until the peer's parameters are known.
    pub peer_tag: u32,
    pub peer_incarnation: u64,
    /// Cookie of the last challenge, for our next Open.
    pub cookie: u64,
    pub answer: Answer,
    /// Path-and-rate context of the peer's address.
    pub way: Way,
    pub limits: Negotiated,
    /// Lower edge and next number while no window state is leased.
    pub psn_idle: u32,
    pub rx_cum_idle: u32,
    pub tx_num_next: u64,
    pub rx_tx_num_max: u64,
    /// The peer's lower edge.
    pub rx_una: u32,
    pub rx_ce_count: u32,
    /// Socket drops of the peer as last reported; only their growth is news.
    pub peer_rxq_drops: Option<u32>,
    /// Cumulative credit granted to the peer, units of 64 bytes.
    pub credit_granted: u32,
    /// The peer's counter of what it granted us, as last seen.
    pub credit_seen: u32,
    pub last_heard: Time,
    /// Since when work is outstanding without break (`Time::NEVER`: none is).
    pub outstanding_since: Time,
    /// Live work requests through this context.
    pub outstanding: u32,
    pub reads_out: u16,
    pub imms_out: u16,
    /// Next handshake packet of ours.
    pub handshake_at: Time,
    pub handshake_round: u8,
    /// What it has shown about sizes.
    pub narrow: Narrow,
    /// When the present wish to close began.
    pub close_began: Time,
    /// Bytes the peer's receive buffers allow us to have in flight (`u32::MAX`: no limit).
    pub rx_budget: u32,
    /// When the rate gate opens.
    pub pace_at: Time,
    /// When the window state may be given back.
    pub idle_at: Time,
    pub ack_echo: u16,
    /// Our address handle for the peer, as of that generation of the table.
    pub peer_ah: (u32, AhId),
    /// The peer opened it.
    pub inbound: bool,
    /// Something that the peer sent within it has arrived: the peer uses it.
    pub proven: bool,
    /// The peer is this engine, and has refused a request of its own.
    pub own_told: bool,
    /// Nobody could know its tag before its first Open left.
    pub tag_fresh: bool,
    /// While opening: an Open that claimed to be the peer's was not. The next must prove it.
    pub open_disowned: bool,
    /// It, or another context of its address lately, has sent a region key that was never given
    /// out.
    pub key_guessed: bool,
}

/// One remote engine: what is always kept of it, and its window state while that is leased.
#[derive(Debug)]
pub(crate) struct Context {
    peer: Peer,
    window: Option<Box<Window>>,
}

impl Deref for Context {
    type Target = Peer;
    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

/// The numbers of one packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    pub path: u8,
    pub tx_num: u64,
    /// Its PSN, or the next one to be used.
    pub psn: u32,
    /// Lower edge of what we send.
    pub una: u32,
    /// Packets that wait to leave after it.
    pub backlog: u64,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    /// Largest payload of one packet in either direction.
    pub mtu: u16,
    /// PSNs the peer's window holds.
    pub window: u16,
    /// Reads the peer serves at once for us.
    pub reads_max: u16,
    /// Multi-segment writes with immediate it tracks at once for us.
    pub imms_max: u16,
    /// What it can do.
    pub features: Features,
    /// Every packet of the context carries a checksum.
    pub checked: bool,
}

impl Negotiated {
    /// Flag of every packet of the context.
    pub fn check_flag(&self) -> u8 {
        if self.checked { Flags::CHECKED } else { 0 }
    }
    /// Bytes of every packet before the acknowledgment block.
    pub fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.check_bytes()
    }
    /// Bytes of its checksum.
    pub fn check_bytes(&self) -> usize {
        if self.checked { CHECKSUM_BYTES } else { 0 }
    }
}

/// Requests of one queue pair to one peer, waiting for PSNs.
#[derive(Debug)]
pub(crate) struct Flow {
    pub qp: Qpn,
    pub queue: WrQueue,
}

/// Window state, leased while there is traffic.
#[derive(Debug)]
pub(crate) struct Window {
    pub board: Scoreboard,
    pub sent_log: SentLog,
    pub loss: LossState,
    pub flows: Vec<Flow>,
    pub flow_cursor: usize,
    /// Packets cut from the flow whose turn it is.
    pub flow_turn: u16,
    /// Unreliable datagrams waiting to leave.
    pub datagrams: WrQueue,
    /// Every live request through this context.
    pub live: WrList,
    /// Messages the peer must be told to forget.
    pub cancels: VecDeque<u32>,
    /// Ranges that were taken back because their packets had become too large. Each is one of the
    /// open packets of its request or job.
    pub recuts: VecDeque<Recut>,
    /// Regions being served to the peer.
    pub jobs: Vec<ReadJob>,
    pub job_cursor: usize,
    /// Bytes posted that have no PSN yet (requests and read responses).
    pub unsent_bytes: u64,
    pub window: RxWindow,
    pub replay: Replay,
    pub verdicts: Verdicts,
    pub imms: ImmTable,
    pub ack: AckState,
    pub inbound: Inbound,
    /// The peer is asked whether it still has the context.
    doubt: Option<Doubt>,
    /// When it may be asked again at the earliest.
    doubt_next: Time,
    /// The peer is alive and does not take packets that have no content any more.
    pub deaf: bool,
    pub wrong_keys: WrongKeys,
}

impl Window {
    pub fn new(cfg: &EngineConfig) -> Self {
        Self {
            board: Scoreboard::new(0, usize::from(cfg.path.paths)),
            sent_log: SentLog::default(),
            loss: LossState::default(),
            flows: Vec::new(),
            flow_cursor: 0,
            flow_turn: 0,
            datagrams: WrQueue::default(),
            live: WrList::default(),
            cancels: VecDeque::new(),
            recuts: VecDeque::new(),
            jobs: Vec::new(),
            job_cursor: 0,
            unsent_bytes: 0,
            window: RxWindow::new(0, cfg.window.max(64)),
            replay: Replay::new(),
            verdicts: Verdicts::new(cfg.window),
            imms: ImmTable::default(),
            ack: AckState::default(),
            inbound: Inbound::default(),
            doubt: None,
            doubt_next: Time(0),
            deaf: false,
            wrong_keys: WrongKeys::default(),
        }
    }

    /// Takes the idle context's numbers up.
    fn start(&mut self, psn: u32, rx_cum: u32, rx_tx_num_max: u64) {
        self.board.reset(psn);
        self.window.reset(rx_cum);
        self.replay.reset(rx_tx_num_max);
        self.imms.clear();
    }

    /// Forgets everything, ready for another context.
    pub fn clear(&mut self) {
        self.sent_log.clear();
        self.loss = LossState::default();
        self.flows.clear();
        self.datagrams = WrQueue::default();
        self.live = WrList::default();
        self.cancels.clear();
        self.recuts.clear();
        self.jobs.clear();
        self.unsent_bytes = 0;
        self.verdicts.clear();
        self.imms.clear();
        self.ack.clear();
        self.inbound = Inbound::default();
        (self.doubt, self.doubt_next, self.deaf) = (None, Time(0), false);
        self.wrong_keys.clear();
    }

    /// Whether nothing is going on: only numbers need to be remembered, and perhaps verdicts.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty()
            && self.flows.is_empty()
            && self.datagrams.is_empty()
            && self.cancels.is_empty()
            && self.jobs.is_empty()
            && !self.window.has_gap()
            && self.imms.is_empty()
            && self.ack.is_quiet()
            && self.doubt.is_none()
    }

    /// Whether something is kept that only the peer's word can free: what it must be told, what it
    /// has asked for, what it has begun.
    pub fn keeps(&self) -> bool {
        !self.board.is_empty()
            || !self.cancels.is_empty()
            || !self.jobs.is_empty()
            || self.window.has_gap()
            || !self.imms.is_empty()
    }

    /// Whether anything waits for a PSN or to be sent again.
    #[inline]
    pub fn has_to_send(&self) -> bool {
        self.board.lost_len() > 0
            || !self.flows.is_empty()
            || !self.datagrams.is_empty()
            || !self.cancels.is_empty()
            || !self.recuts.is_empty()
            || self.jobs.iter().any(|j| j.has_to_send())
    }

    /// Packets of `mtu` bytes that wait to leave.
    pub fn backlog_packets(&self, mtu: u16) -> u64 {
        self.unsent_bytes.div_ceil(u64::from(mtu.max(1))) + u64::from(self.board.lost_len())
    }

    /// For looking ahead: parts that lie apart.
    pub fn ahead(&self) -> u64 {
        let a = u64::from(self.board.una()) ^ self.board.newest_acked.0 ^ self.unsent_bytes;
        let b = self.flows.len() ^ self.jobs.len() ^ self.cancels.len();
        let c = u64::from(self.window.cum()) ^ self.replay.newest() ^ self.ack.ahead();
        let d = u64::from(self.verdicts.is_empty()) ^ u64::from(self.imms.is_empty());
        a ^ b as u64 ^ c ^ d ^ u64::from(self.loss.is_stalled())
    }

    /// The flow of `qp`, made if there is none.
    pub fn flow(&mut self, qp: Qpn) -> &mut Flow {
        let at = self.flows.iter().position(|f| f.qp == qp).unwrap_or_else(|| {
            self.flows.push(Flow { qp, queue: WrQueue::default() });
            self.flows.len() - 1
        });
        &mut self.flows[at]
    }
}

impl Peer {
    pub fn new(
        endpoint: Endpoint,
        state: ContextState,
        local_tag: u32,
        way: Way,
        now: Time,
    ) -> Self {
        Self {
            endpoint,
            state,
            local_tag,
            peer_tag: 0,
            peer_incarnation: 0,
            cookie: 0,
            way,
            limits: Negotiated {
                mtu: 0,
                window: 0,
                reads_max: 0,
                imms_max: 0,
                features: Features(0),
                checked: false,
            },
            psn_idle: 0,
            rx_cum_idle: 0,
            tx_num_next: 0,
            rx_tx_num_max: 0,
            rx_una: 0,
            rx_ce_count: 0,
            peer_rxq_drops: None,
            credit_granted: 0,
            credit_seen: 0,
            last_heard: now,
            outstanding_since: Time::NEVER,
            outstanding: 0,
            reads_out: 0,
            imms_out: 0,
            handshake_at: Time::NEVER,
            handshake_round: 0,
            narrow: Narrow::default(),
            close_began: Time(0),
            rx_budget: u32::MAX,
            pace_at: Time::NEVER,
            idle_at: Time::NEVER,
            ack_echo: 0,
            peer_ah: (u32::MAX, AhId::UNKNOWN),
            inbound: state == ContextState::HalfOpen,
            proven: false,
            own_told: false,
            tag_fresh: false,
            open_disowned: false,
            answer: Answer::default(),
            key_guessed: false,
        }
    }

    /// Whether both ends grant and obey credits.
    #[inline]
    pub fn grants(&self, cfg: &EngineConfig) -> bool {
        cfg.rate.credits && self.limits.features.has(Features::CREDITS)
    }

    /// Takes the next transmission number.
    pub fn tx_num_take(&mut self) -> u64 {
        let n = self.tx_num_next;
        self.tx_num_next = n.wrapping_add(1);
        n
    }

    /// The common header of a packet of this context.
    #[inline]
    pub fn header(&self, now: Time, slot: u8, kind: PacketType, flags: u8, n: &Numbered) -> Header {
        Header {
            kind,
            flags: Flags(flags | self.limits.check_flag()),
            backlog: Backlog::from_packets(n.backlog),
            path: n.path,
            slot,
            dst_tag: self.peer_tag,
            tx_num: n.tx_num as u32,
            timestamp: now.to_wire(),
            psn: n.psn,
            una_delta: if planted!(UnaAhead) { 0 } else { n.psn.wrapping_sub(n.una) as u16 },
            ack_echo: self.ack_echo,
        }
    }
}

impl Context {
    pub fn new(peer: Peer) -> Self {
        Self { peer, window: None }
    }

    /// The window state. Only called where the context is known to be active.
    pub fn act(&mut self) -> &mut Window {
        self.window.as_mut().expect("window state is leased before traffic")
    }

    /// Its window state, if that is leased.
    #[inline]
    pub fn win(&self) -> Option<&Window> {
        self.window.as_deref()
    }

    /// See [`Self::win`].
    #[inline]
    pub fn win_mut(&mut self) -> Option<&mut Window> {
        self.window.as_deref_mut()
    }

    /// Whether window state is leased.
    pub fn is_active(&self) -> bool {
        self.window.is_some()
    }

    /// Both parts, if window state is leased.
    #[inline]
    pub fn split(&mut self) -> Option<(&mut Peer, &mut Window)> {
        Some((&mut self.peer, self.window.as_deref_mut()?))
    }

    /// Gives it window state, which takes its numbers up.
    pub fn lease(&mut self, mut window: Box<Window>) {
        debug_assert!(self.window.is_none(), "leased once");
        let Peer { psn_idle, rx_cum_idle, rx_tx_num_max, .. } = self.peer;
        window.start(psn_idle, rx_cum_idle, rx_tx_num_max);
        debug_assert!(window.is_idle() && window.unsent_bytes == 0, "what is leased is empty");
        self.window = Some(window);
    }

    /// Takes its window state away; its numbers stay.
    pub fn lease_end(&mut self) -> Option<Box<Window>> {
        let window = self.window.take()?;
        self.peer.psn_idle = window.board.next();
        self.peer.rx_cum_idle = window.window.cum();
        Some(window)
    }

    /// For looking ahead.
    pub fn ahead(&self) -> u64 {
        let a = self.peer_incarnation ^ self.tx_num_next ^ self.last_heard.0 ^ self.pace_at.0;
        let b = u64::from(self.ack_echo) ^ u64::from(self.rx_una) ^ u64::from(self.peer_tag);
        a ^ b ^ u64::from(self.window.is_some())
    }

    /// Lower edge of what we send.
    pub fn una(&self) -> u32 {
        self.window.as_ref().map_or(self.psn_idle, |a| a.board.una())
    }

    /// Next PSN we use.
    pub fn psn_next(&self) -> u32 {
        self.window.as_ref().map_or(self.psn_idle, |a| a.board.next())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
