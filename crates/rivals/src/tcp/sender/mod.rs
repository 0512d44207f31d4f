//! The sending end of a connection.
//!
//! [`ack`] processes an acknowledgement, [`recover`] decides the change of state, [`send`]
//! transmits segments, [`timer`] acts when no ack arrives. The states, the order of decisions and
//! the constants are those of the Linux kernel where the RFCs leave a choice.

mod ack;
mod board;
mod recover;
mod sampler;
mod send;
mod timer;

use crate::tcp::bundle::Chunk;
use crate::tcp::cc::bbr::{Bbr, BbrMode};
use crate::tcp::cc::{Control, INFINITE, Window};
use crate::tcp::report::{Conn, Counters};
use crate::tcp::rtt::Rtt;
use crate::tcp::segment::{TcpSegment, UNKNOWN};
use crate::tcp::{Message, TcpConfig};
use board::Board;
use srd_fabric::rng::mix64;
use srd_fabric::{HostId, HostIo, Ps};
use std::collections::VecDeque;

/// State of a connection's congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waits for the SYN-ACK.
    Opening,
    /// Normal operation.
    Open,
    /// Something arrived out of order; no loss is known yet.
    Disorder,
    /// Shrinks the window for a reason other than a loss.
    Reduced,
    /// Fast recovery from a loss.
    Recovery,
    /// Recovery after a retransmission timeout.
    Timeout,
    /// Aborted after too many timeouts.
    Aborted,
}

/// Why the retransmission timer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Retransmission timeout.
    Rto,
    /// Tail loss probe.
    Probe,
    /// RACK reordering timeout.
    Reorder,
}

/// RACK's most recently sent segment that was delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Rack {
    sent_ps: Ps,
    end: u64,
    rtt: Ps,
    advanced: bool,
    /// Reordering window, in quarters of the minimum RTT.
    steps: u32,
    /// Recoveries after which `steps` returns to its default.
    persist: u32,
    /// Duplicates reported until SND.UNA passes this byte belong to the round of the last one.
    duplicate_until: u64,
}

/// The sending end of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    // Identity.
    src: HostId,
    conn: u32,
    peer: u32,
    pub(crate) dst: HostId,
    dport: u16,
    /// Source port on the wire; changes with the path.
    port: u16,
    // The stream.
    una: u64,
    next: u64,
    /// Bytes written by the application.
    written: u64,
    /// Right edge of the receive window.
    right: u64,
    pub(crate) messages: Vec<Message>,
    /// Stream end of each message.
    ends: Vec<u64>,
    /// Messages that end at or before SND.NXT, and at or before SND.UNA.
    messages_sent: usize,
    messages_acked: usize,
    board: Board,
    /// Multipath TCP: number of the first subflow, and the chunk that is to be sent next.
    group: u32,
    chunk: Chunk,
    /// It timed out, and what it had in flight has not been given to other subflows.
    fallen: bool,
    /// Growth of the window per acknowledged segment that coupled subflows permit.
    pub(crate) growth: f64,
    // The window.
    window: Window,
    control: Control,
    state: State,
    /// The state ends when this byte is acknowledged.
    high: u64,
    window_prior: u32,
    threshold_prior: u32,
    sampler: sampler::Sampler,
    prr_delivered: u32,
    prr_out: u32,
    // Undo of spurious reductions.
    undo: Option<u64>,
    /// Retransmissions since `undo` not reported as duplicates; `None` = no retransmission.
    undo_copies: Option<u32>,
    /// Time of the first retransmission of this recovery.
    copy_first_ps: Option<Ps>,
    frto: bool,
    reordered: bool,
    rack: Rack,
    // Tail loss probe: the byte whose ack ends it, and whether it was a retransmission.
    probe: Option<(u64, bool)>,
    // Timers.
    rtt: Rtt,
    timer: Option<(Purpose, Ps)>,
    /// When the NIC or the pacer permits the next packet.
    wake: Option<Ps>,
    backoff: u32,
    /// Consecutive timeouts.
    timeouts: u32,
    // Use of the congestion window.
    limited: bool,
    out_max: u32,
    usage_end: u64,
    used: u32,
    used_ps: Ps,
    sent_last_ps: Ps,
    paced_next: Ps,
    /// Packets of this connection in the NIC: when each will have left, bytes.
    card: VecDeque<(Ps, u32)>,
    card_bytes: u64,
    /// SACK blocks of the last ack, already processed.
    blocks_seen: [(u64, u64); 3],
    cwr_owed: bool,
    syn_ps: Ps,
    counters: Counters,
}

impl Sender {
    pub(crate) fn new(
        conn: Conn,
        dst: HostId,
        ports: (u16, u16),
        now: Ps,
        config: &TcpConfig,
    ) -> Self {
        let seed = mix64(u64::from(conn.src.0) << 32 | u64::from(conn.index)) ^ u64::from(ports.0);
        Self {
            src: conn.src,
            conn: conn.index,
            peer: UNKNOWN,
            dst,
            dport: ports.1,
            port: ports.0,
            una: 0,
            next: 0,
            written: 0,
            right: u64::from(config.window_bytes),
            messages: Vec::new(),
            ends: Vec::new(),
            messages_sent: 0,
            messages_acked: 0,
            board: Board::new(),
            group: UNKNOWN,
            chunk: Chunk::default(),
            fallen: false,
            growth: 0.0,
            window: Window { size: config.initial_window, threshold: INFINITE, count: 0 },
            control: Control::new(config, seed),
            state: if config.handshake { State::Opening } else { State::Open },
            high: 0,
            window_prior: 0,
            threshold_prior: 0,
            sampler: sampler::Sampler::default(),
            prr_delivered: 0,
            prr_out: 0,
            undo: None,
            undo_copies: None,
            copy_first_ps: None,
            frto: false,
            reordered: false,
            rack: Rack { steps: 1, ..Rack::default() },
            probe: None,
            rtt: Rtt::new(config),
            timer: None,
            wake: None,
            backoff: 0,
            timeouts: 0,
            limited: false,
            out_max: 0,
            usage_end: 0,
            used: 0,
            used_ps: now,
            sent_last_ps: now,
            paced_next: 0,
            card: VecDeque::new(),
            card_bytes: 0,
            blocks_seen: [(0, 0); 3],
            cwr_owed: false,
            syn_ps: now,
            counters: Counters::default(),
        }
    }

    /// Congestion window, segments.
    pub const fn cwnd(&self) -> u32 {
        self.window.size
    }
    /// Slow start threshold, segments; 2^31 - 1 before the first congestion signal.
    pub const fn ssthresh(&self) -> u32 {
        self.window.threshold
    }
    /// Segments estimated to be in flight.
    pub fn in_flight(&self) -> u32 {
        self.board.pipe()
    }
    /// What BBR does; `None` with another algorithm.
    pub fn bbr_mode(&self) -> Option<BbrMode> {
        self.control.bbr().map(Bbr::mode)
    }
    /// BBR's estimate of the path's bandwidth, segments per second; `None` with another algorithm.
    pub fn bbr_bandwidth(&self) -> Option<f64> {
        self.control.bbr().map(Bbr::bandwidth)
    }
    /// Smoothed RTT; 0 before the first sample.
    pub const fn srtt_ps(&self) -> Ps {
        self.rtt.srtt()
    }
    /// State of its congestion control.
    pub const fn state(&self) -> State {
        self.state
    }
    /// Bytes acknowledged cumulatively.
    pub const fn acked_bytes(&self) -> u64 {
        self.una
    }
    /// This end's counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Source and destination port of its next packet.
    pub const fn ports(&self) -> (u16, u16) {
        (self.port, self.dport)
    }
    /// Bytes of this end with its list of segments, without those that the program has written.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.board.held_bytes()
    }
    /// Messages written to it.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// When its timer fires; [`Ps::MAX`] = never.
    pub(crate) fn timer_at(&self) -> Ps {
        self.timer.map_or(Ps::MAX, |(_, at)| at)
    }

    /// When the NIC or pacer permits the next packet; [`Ps::MAX`] = it does not wait for them.
    pub(crate) fn wake_at(&self) -> Ps {
        self.wake.unwrap_or(Ps::MAX)
    }

    /// Accepts a message from the application.
    pub(crate) fn post(
        &mut self,
        now: Ps,
        message: Message,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        let card_empty = self.card.back().is_none_or(|(gone, _)| *gone <= now);
        if self.next == self.written
            && card_empty
            && self.board.pipe() < self.window.size
            && self.board.lost() <= self.board.retrans()
        {
            self.sampler.limit(self.board.pipe());
        }
        self.written = self.written.saturating_add(message.bytes);
        self.messages.push(message);
        self.ends.push(self.written);
        if !matches!(self.state, State::Opening | State::Aborted) {
            self.pause_check(now, config);
            self.push(now, config, io);
        }
    }

    /// Makes it a subflow of the connection that begins with subflow `group`.
    pub(crate) const fn join(&mut self, group: u32) {
        self.group = group;
    }

    /// Number of the connection's first subflow; `None` for a plain connection.
    pub(crate) const fn group(&self) -> Option<u32> {
        if self.group == UNKNOWN { None } else { Some(self.group) }
    }

    /// Whether this subflow can send a chunk now. One that timed out is given none until it has
    /// heard from its receiver.
    pub(crate) fn room(&mut self, now: Ps, config: &TcpConfig) -> bool {
        !matches!(self.state, State::Opening | State::Aborted)
            && self.timeouts == 0
            && self.next == self.written
            && self.board.pipe() < self.window.size
            && self.right >= self.next + u64::from(config.mss)
            && !self.held_back(now, config)
    }

    /// Sends a chunk of the connection's stream.
    pub(crate) fn give(
        &mut self,
        now: Ps,
        chunk: Chunk,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        self.chunk = chunk;
        self.pause_check(now, config);
        self.written += u64::from(chunk.len);
        self.push(now, config, io);
    }

    /// Whether it has timed out since the last call.
    pub(crate) const fn fallen_take(&mut self) -> bool {
        std::mem::replace(&mut self.fallen, false)
    }

    /// Chunks in flight that the receiver has not acknowledged.
    pub(crate) fn unacked(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.board.unacked().map(|seg| Chunk { dsn: seg.dsn, len: seg.len, messages: seg.messages })
    }

    /// See [`Control::loss_span`].
    pub(crate) fn loss_span(&self) -> u64 {
        self.control.loss_span()
    }

    const fn repairing(&self) -> bool {
        matches!(self.state, State::Recovery | State::Timeout)
    }

    /// Whether the window follows deliveries (proportional rate reduction).
    const fn reducing(&self) -> bool {
        matches!(self.state, State::Recovery | State::Reduced)
    }
}

#[cfg(test)]
mod tests;
