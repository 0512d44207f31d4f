//! Transmission of segments.

use super::ack::Resend;
use super::{Purpose, Sender, State};
use crate::tcp::TcpConfig;
use crate::tcp::segment::TcpSegment;
use srd_fabric::{HostIo, Outbound, Ps, SEC};

/// Options of a SYN beyond those of a data segment.
const SYN_OPTION_BYTES: u32 = 8;

/// A range of bytes to send.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    len: u32,
    messages: u32,
    dsn: u64,
    again: bool,
}

impl Sender {
    /// Opens the connection.
    pub(crate) fn syn_send(
        &mut self,
        now: Ps,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        self.syn_ps = now;
        let bytes = config.header_bytes + config.link_bytes + SYN_OPTION_BYTES;
        let (sport, dport) = (self.port, self.dport);
        let out = Outbound { dst: self.dst, sport, dport, bytes, ect: false };
        if io.send(out, TcpSegment::Syn { conn: self.conn, ts: now }).is_err() {
            self.counters.local_drops += 1;
        }
        let at = now + self.rtt.rto(self.backoff, config);
        self.timer_set(Purpose::Rto, at, config);
    }

    /// Handles the SYN-ACK.
    pub(crate) fn on_syn_ack(
        &mut self,
        now: Ps,
        peer: u32,
        ts_echo: Ps,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        if self.state != State::Opening {
            return;
        }
        (self.peer, self.state, self.timer) = (peer, State::Open, None);
        if self.backoff > 0 {
            // RFC 6298 (5.7) and RFC 5681: a lost SYN means a window of one.
            self.window.size = 1;
        }
        (self.backoff, self.timeouts) = (0, 0);
        self.rtt.sample(now - ts_echo, 0, 0, config);
        self.control.opened(now, now - ts_echo, self.window.size);
        self.sent_last_ps = now;
        self.used_ps = now;
        self.push(now, config, io);
    }

    /// Retransmits lost segments as far as the window allows.
    pub(super) fn resend(
        &mut self,
        now: Ps,
        resend: Resend,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        match resend {
            Resend::Nothing => return,
            Resend::New => {
                self.push(now, config, io);
                if self.next > self.high {
                    return;
                }
                // Nothing could be sent, so F-RTO cannot decide: treat the timeout as genuine.
                self.frto = false;
            }
            Resend::Lost => {}
        }
        let mut head = true;
        while self.board.pipe() < self.window.size {
            let Some(no) = self.board.resend_next() else { break };
            if self.in_card(no, now) || self.held_back(now, config) {
                break;
            }
            if !self.copy_send(now, no, config, io) {
                break;
            }
            self.prr_out += u32::from(self.reducing());
            if head
                && no == self.board.first()
                && self.timer.is_none_or(|t| t.0 != Purpose::Reorder)
            {
                self.rto_start(now, None, config);
            }
            head = false;
        }
    }

    /// Sends new bytes as far as window, receive window, NIC and pacer allow.
    pub(super) fn push(&mut self, now: Ps, config: &TcpConfig, io: &mut HostIo<'_, TcpSegment>) {
        let out_prior = self.board.len();
        let mut sent = false;
        let mut full = false;
        while self.next < self.written && !matches!(self.state, State::Opening | State::Aborted) {
            let quota = self.window.size.saturating_sub(self.board.pipe());
            if quota == 0 {
                full = true;
                break;
            }
            if self.right <= self.next || self.held_back(now, config) {
                break;
            }
            let burst = quota.min(config.burst_segments());
            if self.defer(now, burst, &mut full, config) {
                break;
            }
            let mut gone = 0;
            while gone < burst && self.new_send(now, config, io) {
                gone += 1;
            }
            sent |= gone > 0;
            if self.reducing() {
                self.prr_out += gone;
            }
            if gone == 0 {
                break;
            }
        }
        full |= self.board.pipe() >= self.window.size;
        if sent || full {
            self.usage_note(now, full, config);
        }
        if sent {
            let running = self.timer.map(|(purpose, _)| purpose);
            if out_prior == 0 || running == Some(Purpose::Probe) {
                self.rto_start(now, running, config);
            }
            if running != Some(Purpose::Reorder) {
                self.probe_start(now, false, config);
            }
        }
    }

    /// Whether to wait until a larger burst can be sent, as the kernel does (TSO deferral).
    fn defer(&self, now: Ps, burst: u32, full: &mut bool, config: &TcpConfig) -> bool {
        let most = config.burst_segments();
        let rest = (self.written - self.next).div_ceil(u64::from(config.mss));
        if most == 1
            || self.state >= State::Recovery
            || burst >= most
            || u64::from(burst) >= rest
            || now.saturating_sub(self.sent_last_ps) >= srd_fabric::MS
            || burst >= self.window.size.div_ceil(3)
        {
            return false;
        }
        // If the head was sent recently, its ack is too far away to wait for.
        let Some(head) = self.board.front() else { return false };
        if now - head.sent_ps < self.rtt.srtt() / 2 {
            return false;
        }
        *full = true;
        true
    }

    /// Sends one new segment. False if there is none, the receive window is full or the NIC is
    /// full.
    pub(super) fn new_send(
        &mut self,
        now: Ps,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) -> bool {
        let room = self.right.saturating_sub(self.next);
        let len = (self.written - self.next).min(config.mss.into());
        if len == 0 || len > room {
            return false;
        }
        let end = self.next + len;
        let sent = self.messages_sent;
        while self.ends.get(self.messages_sent).is_some_and(|e| *e <= end) {
            self.messages_sent += 1;
        }
        if self.board.len() == 0 {
            self.control.resumed(self.sent_last_ps, now, self.sampler.limited());
        }
        let (start, len, mut messages) = (self.next, len as u32, self.messages_sent as u32);
        if self.group().is_some() {
            messages = self.chunk.messages;
        }
        let dsn = self.chunk.dsn;
        let stamp = self.sampler.sent(now, self.board.len() == 0);
        let piece = Piece { start, len, messages, dsn, again: false };
        let Some(gone_ps) = self.wire_send(now, piece, config, io) else {
            self.messages_sent = sent;
            return false;
        };
        self.board.push(start, len, messages, now, gone_ps);
        self.board.stamp(self.board.last(), stamp);
        self.board.place(self.board.last(), dsn);
        self.next = end;
        true
    }

    /// Retransmits a segment.
    pub(super) fn copy_send(
        &mut self,
        now: Ps,
        no: u32,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) -> bool {
        let seg = *self.board.get(no);
        let (start, len, messages, dsn) = (seg.start, seg.len, seg.messages, seg.dsn);
        let piece = Piece { start, len, messages, dsn, again: true };
        let Some(gone_ps) = self.wire_send(now, piece, config, io) else { return false };
        self.board.resent(no, now, gone_ps);
        let stamp = self.sampler.sent(now, false);
        self.board.stamp(no, stamp);
        self.copy_first_ps = self.copy_first_ps.or(Some(now));
        self.undo_copies = Some(self.undo_copies.unwrap_or(0) + 1);
        true
    }

    /// Hands bytes to the NIC; returns when they will have left it, or `None` if it is full.
    fn wire_send(
        &mut self,
        now: Ps,
        piece: Piece,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) -> Option<Ps> {
        let Piece { start: seq, len, messages, dsn, again } = piece;
        let bytes = len + config.overhead_bytes();
        let ect = config.ect() && !again;
        let out = Outbound { dst: self.dst, sport: self.port, dport: self.dport, bytes, ect };
        let (conn, peer, group) = (self.conn, self.peer, self.group);
        let cwr = std::mem::take(&mut self.cwr_owed) && !again;
        let data = TcpSegment::Data { conn, peer, seq, len, messages, ts: now, cwr, group, dsn };
        if io.send(out, data).is_err() {
            self.cwr_owed |= cwr;
            self.counters.local_drops += 1;
            self.reduced_enter(false);
            // Try again when half of the NIC's queue has been sent.
            let wait = (io.nic_free_at().saturating_sub(now) / 2).max(1);
            self.wake = Some(now + wait);
            return None;
        }
        let gone_ps = io.nic_free_at();
        self.card.push_back((gone_ps, bytes));
        self.card_bytes += u64::from(bytes);
        self.sent_last_ps = now;
        self.counters.segments_sent += 1;
        self.counters.bytes_sent += u64::from(len);
        self.counters.retransmits += u64::from(again);
        if let Some(bbr) = self.control.bbr() {
            let full = config.mss + config.overhead_bytes();
            let segments = f64::from(bytes) / f64::from(full);
            let gap = (segments * SEC as f64 / bbr.pace()) as Ps;
            self.paced_next = self.paced_next.max(now) + gap;
        } else if config.pacing {
            let round = u128::from(self.rtt.srtt()) * u128::from(bytes);
            let gap = round / u128::from(self.rate_bytes(config).max(1));
            self.paced_next = self.paced_next.max(now) + gap as Ps;
        }
        Some(gone_ps)
    }

    /// Whether a segment's last transmission is still in the NIC.
    pub(super) fn in_card(&self, no: u32, now: Ps) -> bool {
        self.board.get(no).gone_ps > now
    }

    /// Bytes per round trip that pacing and small queues assume: twice the window in slow start,
    /// 1.2 times later.
    fn rate_bytes(&self, config: &TcpConfig) -> u64 {
        if let Some(bbr) = self.control.bbr() {
            let segments = bbr.pace() * self.rtt.srtt() as f64 / SEC as f64;
            return (segments * f64::from(config.mss)) as u64;
        }
        let percent = if self.window.size < self.window.threshold / 2 { 200 } else { 120 };
        let segments = self.window.size.max(self.board.len());
        u64::from(segments) * u64::from(config.mss) * percent / 100
    }

    /// Time in which a NIC sends four bursts of 64 KiB at the current rate.
    pub(super) fn burst_ps(&self, config: &TcpConfig) -> Ps {
        let rate = u128::from(self.rate_bytes(config).max(1));
        (u128::from(self.rtt.srtt()) * (4 << 16) / rate).min(u128::from(srd_fabric::MS)) as Ps
    }

    /// Whether the small queue limit or the pacer stops sending; sets the time to continue.
    pub(super) fn held_back(&mut self, now: Ps, config: &TcpConfig) -> bool {
        let paced = config.pacing || self.control.whole();
        if paced && self.paced_next > now {
            self.wake = Some(self.paced_next);
            return true;
        }
        while let Some((gone, bytes)) = self.card.front() {
            if *gone > now {
                break;
            }
            self.card_bytes -= u64::from(*bytes);
            self.card.pop_front();
        }
        let wire = u64::from(config.mss + config.overhead_bytes());
        let least = 2 * u64::from(config.burst_segments()) * wire;
        if self.card_bytes <= least || self.board.len() <= 1 {
            return false;
        }
        let share = u128::from(self.rate_bytes(config)) * u128::from(config.small_queue_ps)
            / u128::from(self.rtt.srtt().max(1));
        let most = share.min(config.small_queue_bytes_max.into()) as u64;
        let most = most.max(least);
        if self.card_bytes <= most {
            return false;
        }
        // NICs report completions in batches; half of the limit keeps them busy.
        let mut left = self.card_bytes;
        let half = self.card.iter().find(|(_, bytes)| {
            left -= u64::from(*bytes);
            left <= most / 2
        });
        self.wake = half.map(|(gone, _)| *gone);
        true
    }

    /// Records how much of the window is used: an unused window must not grow.
    fn usage_note(&mut self, now: Ps, full: bool, config: &TcpConfig) {
        let out = self.board.len();
        if self.una >= self.usage_end || full || !self.limited && out > self.out_max {
            self.limited = full;
            self.out_max = out;
            self.usage_end = self.next;
        }
        let open = self.window.slow() && self.window.size < 2 * self.out_max;
        if self.limited || self.control.whole() || open {
            (self.used, self.used_ps) = (0, now);
            return;
        }
        self.used = self.used.max(out);
        let rto = self.rtt.rto(0, config);
        let idle = now.saturating_sub(self.used_ps) >= rto;
        if config.restart_after_idle && idle && self.state == State::Open {
            let used = self.used.max(config.initial_window);
            if used < self.window.size {
                self.window.threshold = self.threshold_now();
                self.window.size = u32::midpoint(self.window.size, used);
            }
            (self.used, self.used_ps) = (0, now);
        }
    }

    /// After an idle period the window is halved once per RTO that passed.
    pub(super) fn pause_check(&mut self, now: Ps, config: &TcpConfig) {
        let rto = self.rtt.rto(0, config);
        let mut pause = now.saturating_sub(self.sent_last_ps);
        let restart = config.restart_after_idle && !self.control.whole();
        if !restart || self.board.len() > 0 || pause <= rto {
            return;
        }
        self.window.threshold = self.threshold_now();
        let floor = config.initial_window.min(self.window.size);
        while pause > rto && self.window.size > floor {
            pause -= rto;
            self.window.size /= 2;
        }
        self.window.size = self.window.size.max(floor);
        (self.used, self.used_ps) = (0, now);
    }
}
