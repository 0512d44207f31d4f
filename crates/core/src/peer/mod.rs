//! Reliability context: the protocol state between this engine and one remote engine.
//!
//! An idle context is a [`Context`] of a few hundred bytes. Window state ([`Window`]) is leased
//! from a pool while there is something to send, to receive, or to remember besides the two window
//! edges.
//!
//! Each part of the state is private to its module, and others use it through its methods. The
//! public fields of [`Window`] are such parts, so that two of them can be borrowed at once.

pub(crate) mod ack;
pub(crate) mod doubt;
pub(crate) mod given_up;
pub(crate) mod handshake;
pub(crate) mod inbound;
mod lease;
pub(crate) mod narrow;
pub(crate) mod outstanding;
pub(crate) mod read_job;
pub(crate) mod recut;
pub(crate) mod replay;
pub(crate) mod reports;
pub(crate) mod scoreboard;
pub(crate) mod send_queues;
pub(crate) mod sent_log;
pub(crate) mod verdicts;
pub(crate) mod window;
pub(crate) mod write_imm;

use crate::api::{AhId, Endpoint};
use crate::config::EngineConfig;
use crate::ids::{PeerTag, Way};
use crate::objects::memory::AhTable;
use crate::psn::{Psn, TxNum};
use crate::state::state_machine;
use crate::time::Time;
use core::ops::{Deref, DerefMut};
use handshake::Handshake;
pub(crate) use lease::Window;
use narrow::Narrow;
use reports::Reports;
use srd_wire::{
    Backlog, CHECKSUM_BYTES, Features, Flags, HEADER_BYTES, Header, OpenParams, PacketType,
};

state_machine! {
    /// Life of a reliability context.
    pub enum ContextState {
        /// Our Open is in flight; the peer may have sent an Open of its own.
        Opening,
        /// We answered the peer's Open; no packet with our tag has arrived yet, so no data is sent.
        HalfOpen,
        /// Both sides hold the other's tag: data flows.
        Open,
        /// We asked for a mutual close; none of our requests is outstanding.
        Closing,
        /// The context has ended; its slot is free.
        Closed,
    }
    /// The peer accepted our Open or used our tag, so it holds the tag.
    confirmed: Opening | HalfOpen => Open;
    /// Work was posted before the peer confirmed: we open from our side, too.
    open_wanted: HalfOpen => Opening;
    /// New work for a peer that accepted our Open and never used the context: it may have dropped
    /// the context since.
    reopened: Open => Opening;
    /// The work that needed the Open was withdrawn; the peer may still use the context.
    unwanted: Opening => HalfOpen;
    /// The context is idle and is to be closed.
    close_begun: Open => Closing;
    /// The peer still has traffic, or new work was posted.
    close_withdrawn: Closing => Open;
    /// The context is dropped.
    ended: Opening | HalfOpen | Open | Closing => Closed;
}

/// Our address handle for a peer, valid for one generation of the handle table.
#[derive(Clone, Copy, Debug)]
struct KnownAh {
    generation: u32,
    ah: AhId,
}

/// State kept for every peer, idle or not.
#[derive(Debug)]
pub(crate) struct Peer {
    endpoint: Endpoint,
    /// Index of the paths and rate state of the peer's address.
    way: Way,
    limits: Negotiated,
    /// Next PSN to send, receive edge and newest transmission number received, kept here while no
    /// window state is leased.
    psn_idle: Psn,
    rx_cum_idle: Psn,
    rx_tx_num_idle: TxNum,
    tx_num_next: TxNum,
    /// The lower edge of the peer's send window, as the peer announces it.
    rx_una: Psn,
    last_heard: Time,
    known_ah: KnownAh,
    /// The peer opened the context.
    inbound: bool,
    /// A packet of this context has arrived, so the peer uses the context.
    proven: bool,
    /// The peer is this engine itself and has refused a request of its own; the user was told.
    own_told: bool,
    /// The peer, or recently another context of its network, has sent a region key that was never
    /// given out.
    key_guessed: bool,
    handshake: Handshake,
    reports: Reports,
}

/// The context of one remote engine: the state always kept, and the window state while leased.
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

/// The header numbers of one outgoing packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    pub path: u8,
    pub tx_num: TxNum,
    /// PSN of the packet; for a packet without one, the next PSN to be used.
    pub psn: Psn,
    /// Lower edge of our send window: every PSN below is resolved.
    pub una: Psn,
    /// Packets that wait to be sent after this one.
    pub backlog: u64,
}

/// The first PSN and transmission number that we use towards a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstNumbers {
    pub psn: Psn,
    pub tx_num: TxNum,
}

/// Parameters that both sides agreed on in the handshake.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated {
    /// Largest payload of one packet in either direction.
    pub mtu: u16,
    /// Send window in PSNs: the smaller of the windows that the two sides announce.
    pub window: u16,
    /// Reads that the peer serves for us at the same time.
    pub reads_max: u16,
    /// Multi-segment writes with immediate that the peer tracks for us at the same time.
    pub imms_max: u16,
    /// Features that the peer offered, without `RDMA_READ` if it serves no reads.
    pub features: Features,
    /// Every packet of the context carries a checksum.
    pub checked: bool,
    /// Every packet of the context is sealed; none has a checksum then.
    pub sealed: bool,
}

impl Negotiated {
    /// Header flag that says whether packets of the context carry a checksum.
    pub fn check_flag(&self) -> u8 {
        if self.checked { Flags::CHECKED } else { 0 }
    }
    /// Length in bytes of the common header with its checksum, before any acknowledgment block.
    pub fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.check_bytes()
    }
    /// Length in bytes of the checksum field; 0 without one.
    pub fn check_bytes(&self) -> usize {
        if self.checked { CHECKSUM_BYTES } else { 0 }
    }
}

impl Peer {
    /// A peer of which only the endpoint is known. Our PSNs and transmission numbers start at
    /// `numbers`.
    pub fn new(
        endpoint: Endpoint,
        way: Way,
        handshake: Handshake,
        numbers: FirstNumbers,
        now: Time,
    ) -> Self {
        let FirstNumbers { psn, tx_num } = numbers;
        debug_assert!(!handshake.knows_peer(), "nothing is known of it: {handshake:?}");
        Self {
            endpoint,
            way,
            limits: Negotiated::default(),
            psn_idle: psn,
            rx_cum_idle: Psn(0),
            rx_tx_num_idle: TxNum(0),
            tx_num_next: tx_num,
            rx_una: Psn(0),
            last_heard: now,
            known_ah: KnownAh { generation: u32::MAX, ah: AhId::UNKNOWN },
            inbound: handshake.state() == ContextState::HalfOpen,
            proven: false,
            own_told: false,
            key_guessed: false,
            handshake,
            reports: Reports::new(u32::MAX),
        }
    }

    #[inline(always)]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }
    /// Index of the paths and rate state of the peer's address.
    #[inline(always)]
    pub fn way(&self) -> Way {
        self.way
    }
    #[inline(always)]
    pub fn state(&self) -> ContextState {
        self.handshake.state()
    }
    /// The negotiated parameters; all zero until the peer's parameters are known.
    #[inline(always)]
    pub fn limits(&self) -> &Negotiated {
        &self.limits
    }
    /// The state machine of the context: tags, and what is sent until both ends hold them.
    #[inline(always)]
    pub fn handshake(&self) -> &Handshake {
        &self.handshake
    }
    #[inline(always)]
    pub fn handshake_mut(&mut self) -> &mut Handshake {
        &mut self.handshake
    }
    /// What the two ends tell each other about themselves, beside what is acknowledged.
    #[inline(always)]
    pub fn reports(&self) -> &Reports {
        &self.reports
    }
    #[inline(always)]
    pub fn reports_mut(&mut self) -> &mut Reports {
        &mut self.reports
    }
    /// Whether the peer opened the context.
    pub fn is_inbound(&self) -> bool {
        self.inbound
    }

    // ---- receiving -----------------------------------------------------------------------------

    /// When the last packet of the peer arrived.
    pub fn last_heard(&self) -> Time {
        self.last_heard
    }
    /// Notes that a packet of the peer has arrived.
    #[inline(always)]
    pub fn heard(&mut self, now: Time) {
        self.last_heard = now;
    }
    /// Notes that a packet of this context has arrived, so the peer uses the context.
    #[inline(always)]
    pub fn heard_within(&mut self, now: Time) {
        self.heard(now);
        self.proven = true;
    }
    /// Whether a packet of this context has arrived from the peer.
    pub fn is_proven(&self) -> bool {
        self.proven
    }
    /// The lower edge of the peer's send window, as the peer announces it.
    #[inline(always)]
    pub fn rx_una(&self) -> Psn {
        self.rx_una
    }
    /// Takes the lower edge that the peer announces. Returns whether it has advanced.
    #[inline(always)]
    pub fn rx_una_advance(&mut self, una: Psn) -> bool {
        let news = self.rx_una.is_before(una);
        if news {
            self.rx_una = una;
        }
        news
    }
    /// Our address handle for the peer, or `AhId::UNKNOWN`.
    #[inline(always)]
    pub fn ah(&mut self, ahs: &AhTable) -> AhId {
        let generation = ahs.generation();
        if self.known_ah.generation != generation {
            self.known_ah = KnownAh { generation, ah: ahs.find(&self.endpoint.ip) };
        }
        self.known_ah.ah
    }
    /// Notes that the peer, which is this engine, has refused a request of its own. Returns whether
    /// it is the first time.
    pub fn own_tell(&mut self) -> bool {
        !core::mem::replace(&mut self.own_told, true)
    }
    /// Notes that the peer has sent a region key that was never given out. Returns whether it, or
    /// recently its network, had done so before.
    pub fn key_guess_note(&mut self) -> bool {
        core::mem::replace(&mut self.key_guessed, true)
    }
    /// Whether such a key was noted.
    #[inline(always)]
    pub fn has_guessed(&self) -> bool {
        self.key_guessed
    }

    // ---- sending -------------------------------------------------------------------------------

    /// Whether both ends use credits.
    #[inline]
    pub fn grants(&self, cfg: &EngineConfig) -> bool {
        cfg.rate.grants() && self.limits.features.has(Features::CREDITS)
    }

    /// The next transmission number.
    #[inline(always)]
    pub fn tx_num_next(&self) -> TxNum {
        self.tx_num_next
    }

    /// Takes the next transmission number.
    #[inline(always)]
    pub fn tx_num_take(&mut self) -> TxNum {
        let n = self.tx_num_next;
        self.tx_num_next = n.next();
        n
    }

    /// The common header of a packet of this context.
    #[inline]
    pub fn header(&self, now: Time, slot: u8, kind: PacketType, flags: u8, n: &Numbered) -> Header {
        debug_assert!(self.handshake.knows_peer(), "a packet of a context carries the peer's tag");
        debug_assert!(n.psn.since(n.una) <= u32::from(u16::MAX), "the lower edge is near: {n:?}");
        Header {
            kind,
            flags: Flags(flags | self.limits.check_flag()),
            backlog: Backlog::from_packets(n.backlog),
            path: n.path,
            slot,
            dst_tag: self.handshake.peer_tag().0,
            tx_num: n.tx_num.low().0,
            timestamp: now.to_wire(),
            psn: n.psn.0,
            una_delta: if planted!(UnaAhead) { 0 } else { n.psn.since(n.una) as u16 },
            ack_echo: self.reports.ack_echo(),
        }
    }
}

impl Context {
    pub fn new(peer: Peer) -> Self {
        Self { peer, window: None }
    }

    /// The window state. The context must be known to be active.
    pub fn act(&mut self) -> &mut Window {
        self.window.as_mut().expect("window state is leased before traffic")
    }

    /// The window state, if it is leased.
    #[inline]
    pub fn win(&self) -> Option<&Window> {
        self.window.as_deref()
    }

    /// Like [`Self::win`], mutable.
    #[inline]
    pub fn win_mut(&mut self) -> Option<&mut Window> {
        self.window.as_deref_mut()
    }

    /// Whether window state is leased.
    pub fn is_active(&self) -> bool {
        self.window.is_some()
    }

    /// Peer and window state as separate borrows, if window state is leased.
    #[inline]
    pub fn split(&mut self) -> Option<(&mut Peer, &mut Window)> {
        Some((&mut self.peer, self.window.as_deref_mut()?))
    }

    /// Number of our outstanding requests.
    pub fn outstanding(&self) -> u32 {
        self.win().map_or(0, |win| win.outstanding.requests())
    }
    /// Start of the present period with at least one outstanding request (`Time::NEVER`: no request
    /// is outstanding).
    pub fn outstanding_since(&self) -> Time {
        self.win().map_or(Time::NEVER, |win| win.outstanding.since())
    }
    /// Earliest deadline of the handshake, of the wait for credits and of idle window state.
    pub fn deadline(&self) -> Time {
        let at = self.peer.handshake.at();
        self.win().map_or(at, |win| at.min(win.credit_at).min(win.idle_at))
    }

    /// Attaches leased window state and starts it with the numbers kept while the context was idle.
    pub fn lease(&mut self, mut window: Box<Window>) {
        debug_assert!(self.window.is_none(), "leased once");
        let Peer { psn_idle, rx_cum_idle, rx_tx_num_idle, .. } = self.peer;
        window.start(psn_idle, rx_cum_idle, rx_tx_num_idle);
        debug_assert!(window.is_idle() && window.unsent_bytes() == 0, "what is leased is empty");
        self.window = Some(window);
    }

    /// Detaches the window state for the pool; its sequence numbers are kept here.
    pub fn lease_end(&mut self) -> Option<Box<Window>> {
        let window = self.window.take()?;
        debug_assert!(window.outstanding.is_empty(), "work keeps the window state");
        debug_assert!(window.live.front().is_none(), "each of them is outstanding");
        debug_assert!(
            window.queues.unsent_bytes() == 0,
            "bytes of no request: {:?}",
            window.queues
        );
        self.peer.psn_idle = window.board.next();
        self.peer.rx_cum_idle = window.rx_window.cum();
        self.peer.rx_tx_num_idle = window.replay.newest();
        Some(window)
    }

    /// Stores the peer's parameters `p`, with which the peer's end of the context starts, and the
    /// negotiated `limits`.
    pub fn params_set(&mut self, p: &OpenParams, limits: Negotiated) {
        debug_assert!(limits.mtu > 0 && limits.window > 0, "{limits:?}");
        let peer = &mut self.peer;
        peer.handshake.peer_is(PeerTag(p.tag), p.incarnation);
        peer.handshake.narrow_change(Narrow::heard_forget);
        (peer.rx_cum_idle, peer.rx_una) = (Psn(p.psn_start), Psn(p.psn_start));
        peer.rx_tx_num_idle = TxNum(p.tx_num_start).prev();
        peer.proven = false;
        peer.reports.begin(p.rx_budget);
        peer.limits = limits;
        let (cum, newest) = (peer.rx_cum_idle, peer.rx_tx_num_idle);
        if let Some(win) = self.win_mut() {
            win.rx_window.reset(cum);
            win.replay.reset(newest);
        }
    }

    /// Drops the peer's parameters, because the peer has forgotten the context; a pending question
    /// whether it still has the context ends.
    pub fn disown(&mut self) {
        self.peer.handshake.disown();
        if let Some(win) = self.win_mut() {
            win.doubt_forget();
        }
    }

    /// Starts the context over at PSN `psn`, for requests of which nothing was sent. Returns the
    /// previous state.
    pub fn begin_again(&mut self, psn: Psn) -> ContextState {
        self.peer.psn_idle = psn;
        if let Some(win) = self.win_mut() {
            win.board.reset(psn);
            win.ack.clear();
            win.verdicts.clear();
            win.imms.clear();
            win.doubt_forget();
        }
        self.peer.handshake.begin_again()
    }

    /// Lower edge of our send window: every PSN below is resolved.
    pub fn una(&self) -> Psn {
        self.window.as_ref().map_or(self.psn_idle, |a| a.board.una())
    }

    /// The next PSN that we use.
    pub fn psn_next(&self) -> Psn {
        self.window.as_ref().map_or(self.psn_idle, |a| a.board.next())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
