//! Reliability context: everything between this engine and one remote engine.
//!
//! An idle context is a [`Context`] of a few hundred bytes. Window state ([`Window`]) is leased
//! from a pool while there is something to send, to receive or to remember beyond the edges.
//!
//! State is private to its room: what others may do with it are methods of the room. The fields of
//! [`Peer`] and [`Window`] that are public are rooms, so that two of them can be held at once.

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

/// Our address handle for a peer, as of a generation of the table of handles.
#[derive(Clone, Copy, Debug)]
struct KnownAh {
    generation: u32,
    ah: AhId,
}

/// What is kept of every peer, idle or not.
#[derive(Debug)]
pub(crate) struct Peer {
    endpoint: Endpoint,
    /// Path-and-rate context of the peer's address.
    way: Way,
    limits: Negotiated,
    /// Lower edges and newest number taken while no window state is leased.
    psn_idle: Psn,
    rx_cum_idle: Psn,
    rx_tx_num_idle: TxNum,
    tx_num_next: TxNum,
    /// The peer's lower edge.
    rx_una: Psn,
    last_heard: Time,
    known_ah: KnownAh,
    /// The peer opened it.
    inbound: bool,
    /// Something that the peer sent within it has arrived: the peer uses it.
    proven: bool,
    /// The peer is this engine, and has refused a request of its own.
    own_told: bool,
    /// It, or another context of its address lately, has sent a region key that was never given
    /// out.
    key_guessed: bool,
    pub handshake: Handshake,
    pub reports: Reports,
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
    pub tx_num: TxNum,
    /// Its PSN, or the next one to be used.
    pub psn: Psn,
    /// Lower edge of what we send.
    pub una: Psn,
    /// Packets that wait to leave after it.
    pub backlog: u64,
}

/// The numbers of our first packet to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstNumbers {
    pub psn: Psn,
    pub tx_num: TxNum,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, Default)]
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

impl Peer {
    /// A peer of which nothing is known but where it is; we send from these numbers on.
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
    /// Path-and-rate context of the peer's address.
    #[inline(always)]
    pub fn way(&self) -> Way {
        self.way
    }
    #[inline(always)]
    pub fn state(&self) -> ContextState {
        self.handshake.state()
    }
    /// What both sides agreed on; all zero until the peer's parameters are known.
    #[inline(always)]
    pub fn limits(&self) -> &Negotiated {
        &self.limits
    }
    /// Whether the peer opened it.
    pub fn is_inbound(&self) -> bool {
        self.inbound
    }

    // ---- hearing it ----------------------------------------------------------------------------

    /// When the peer was last heard.
    pub fn last_heard(&self) -> Time {
        self.last_heard
    }
    /// The peer has said something.
    #[inline(always)]
    pub fn heard(&mut self, now: Time) {
        self.last_heard = now;
    }
    /// Something that the peer sent within the context has arrived: the peer uses it.
    #[inline(always)]
    pub fn heard_within(&mut self, now: Time) {
        self.heard(now);
        self.proven = true;
    }
    /// Whether something that the peer sent within the context has arrived.
    pub fn is_proven(&self) -> bool {
        self.proven
    }
    /// The peer's lower edge.
    #[inline(always)]
    pub fn rx_una(&self) -> Psn {
        self.rx_una
    }
    /// The peer tells its lower edge. Whether that is news.
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
    /// The peer, which is this engine, has refused a request of its own. Whether that is news.
    pub fn own_tell(&mut self) -> bool {
        !core::mem::replace(&mut self.own_told, true)
    }
    /// The peer, or its address lately, has sent a region key that was never given out. Whether it
    /// had before.
    pub fn key_guess_note(&mut self) -> bool {
        core::mem::replace(&mut self.key_guessed, true)
    }
    /// Whether it has sent such a key.
    #[inline(always)]
    pub fn has_guessed(&self) -> bool {
        self.key_guessed
    }

    // ---- sending to it -------------------------------------------------------------------------

    /// Whether both ends grant and obey credits.
    #[inline]
    pub fn grants(&self, cfg: &EngineConfig) -> bool {
        cfg.rate.credits && self.limits.features.has(Features::CREDITS)
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

    /// Live requests of ours.
    pub fn outstanding(&self) -> u32 {
        self.win().map_or(0, |win| win.outstanding.requests())
    }
    /// Since when there is one without break (`Time::NEVER`: there is none).
    pub fn outstanding_since(&self) -> Time {
        self.win().map_or(Time::NEVER, |win| win.outstanding.since())
    }
    /// When handshake, credits or idleness have something to do.
    pub fn deadline(&self) -> Time {
        let at = self.peer.handshake.at();
        self.win().map_or(at, |win| at.min(win.credit_at).min(win.idle_at))
    }

    /// Gives it window state, which takes its numbers up.
    pub fn lease(&mut self, mut window: Box<Window>) {
        debug_assert!(self.window.is_none(), "leased once");
        let Peer { psn_idle, rx_cum_idle, rx_tx_num_idle, .. } = self.peer;
        window.start(psn_idle, rx_cum_idle, rx_tx_num_idle);
        debug_assert!(window.is_idle() && window.unsent_bytes() == 0, "what is leased is empty");
        self.window = Some(window);
    }

    /// Takes its window state away; its numbers stay.
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

    /// The peer's parameters are known: its end of the context begins. `limits`: what both sides
    /// agree on.
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

    /// The peer has forgotten its part: it is not known any more, and nobody is left to be asked
    /// whether it is.
    pub fn disown(&mut self) {
        self.peer.handshake.disown();
        if let Some(win) = self.win_mut() {
            win.doubt_forget();
        }
    }

    /// It begins anew, with `psn`, for requests that are still to leave. The state left behind.
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

    /// Lower edge of what we send.
    pub fn una(&self) -> Psn {
        self.window.as_ref().map_or(self.psn_idle, |a| a.board.una())
    }

    /// Next PSN we use.
    pub fn psn_next(&self) -> Psn {
        self.window.as_ref().map_or(self.psn_idle, |a| a.board.next())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
