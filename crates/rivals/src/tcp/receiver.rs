//! The receiving end of a connection: reassembles the stream and acknowledges it.

use crate::tcp::bundle::Chunk;
use crate::tcp::config::{Algorithm, Recovery, TcpConfig};
use crate::tcp::joined::Joined;
use crate::tcp::report::Counters;
use crate::tcp::segment::{Ack, SACK_BLOCKS, TcpSegment};
use srd_fabric::{HostId, HostIo, Outbound, Ps};
use std::collections::BTreeMap;

/// A range of bytes that arrived out of order.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: u64,
    to: u64,
    /// Messages that end at or before `to`.
    messages: u32,
}

/// The fields of a data segment that the receiver reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub seq: u64,
    pub len: u32,
    pub messages: u32,
    pub ts: Ps,
    pub cwr: bool,
    pub ce: bool,
    /// Source port of the packet.
    pub sport: u16,
    /// Multipath TCP: data sequence number of the first byte.
    pub dsn: u64,
}

/// The receiving end of a connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    pub(crate) conn: u32,
    pub(crate) peer: u32,
    pub(crate) src: HostId,
    sport: u16,
    dport: u16,
    /// RCV.NXT: next byte expected.
    next: u64,
    /// Ranges above `next`, ascending and disjoint.
    ranges: Vec<Range>,
    /// SACK blocks to report, latest first.
    recent: [(u64, u64); SACK_BLOCKS],
    recent_count: usize,
    duplicate: Option<(u64, u64)>,
    /// Multipath TCP: chunks that arrived before an earlier one of this subflow, by their sequence
    /// number.
    held: BTreeMap<u64, Chunk>,
    /// Multipath TCP: what was passed on ends here.
    passed: u64,
    /// Multipath TCP: data of the connection before this byte have arrived.
    data_ack: u64,
    /// Value of `next` in the last ack sent.
    acked: u64,
    ts_echo: Ps,
    quick: u32,
    delayed: Option<Ps>,
    last_ps: Ps,
    ece: bool,
    ce_last: bool,
    /// Source port of the last data packet.
    data_port: u16,
    messages: u32,
    /// Arrival time of each message.
    pub(crate) arrivals: Vec<Ps>,
    pub(crate) samples: Vec<u64>,
    counters: Counters,
}

impl Receiver {
    /// Bytes of this end with its list of ranges.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.ranges.capacity() * size_of::<Range>()
    }

    pub(crate) fn new(
        conn: u32,
        peer: u32,
        src: HostId,
        ports: (u16, u16),
        config: &TcpConfig,
    ) -> Self {
        Self {
            conn,
            peer,
            src,
            sport: ports.1,
            dport: ports.0,
            next: 0,
            ranges: Vec::new(),
            recent: [(0, 0); SACK_BLOCKS],
            recent_count: 0,
            duplicate: None,
            held: BTreeMap::new(),
            passed: 0,
            data_ack: 0,
            acked: 0,
            ts_echo: 0,
            quick: config.quick_acks,
            delayed: None,
            last_ps: 0,
            ece: false,
            ce_last: false,
            data_port: ports.0,
            messages: 0,
            arrivals: Vec::new(),
            samples: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Bytes received in order.
    pub const fn received_bytes(&self) -> u64 {
        self.next
    }
    /// Time at which each message, and every message before it, had arrived.
    pub fn arrivals(&self) -> &[Ps] {
        &self.arrivals
    }
    /// Bytes received in order per interval of [`TcpConfig::sample_ps`], from time 0.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }
    /// This end's counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn deadline(&self) -> Ps {
        self.delayed.unwrap_or(Ps::MAX)
    }

    /// Handles a data segment. `joined`: the connection to which this subflow belongs. Returns how
    /// many messages the segment completed.
    pub(crate) fn on_data(
        &mut self,
        now: Ps,
        data: &Arrived,
        joined: Option<&mut Joined>,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) -> u32 {
        if now.saturating_sub(self.last_ps) > config.rto_min_ps {
            // After a pause the sender is in slow start again.
            self.quick = config.quick_acks;
        }
        self.last_ps = now;
        self.marks_read(now, data, config, io);
        if data.seq <= self.acked && data.seq + u64::from(data.len) > self.acked {
            self.ts_echo = data.ts;
        }
        let end = data.seq + u64::from(data.len);
        let before = (self.next, self.messages);
        // Messages of a subflow's data are those of its connection.
        let messages = if joined.is_some() { 0 } else { data.messages };
        let mut at_once = !self.ranges.is_empty();
        if end <= self.next || self.holds(data.seq, end) {
            self.repeated(data, end, config);
            at_once = true;
        } else if data.seq <= self.next {
            self.next = end;
            self.messages = self.messages.max(messages);
            self.absorb();
        } else {
            self.insert(Range { from: data.seq, to: end, messages });
            at_once = true;
        }
        self.data_port = data.sport;
        let mut done = self.messages - before.1;
        self.arrivals.resize(self.arrivals.len() + done as usize, now);
        if let Some(joined) = joined {
            done = self.chunks_pass(now, data, joined, config);
        }
        self.sample(now, self.next - before.0, config);
        let mature =
            self.next - self.acked > u64::from(config.mss) * u64::from(config.ack_every - 1);
        if at_once || mature || self.quick > 0 {
            self.ack_send(config, io);
        } else if self.delayed.is_none() {
            self.delayed = Some(config.tick(now + config.delayed_ack_ps, io.host()));
        }
        done
    }

    /// Passes chunks on to the connection in the order of the subflow.
    fn chunks_pass(
        &mut self,
        now: Ps,
        data: &Arrived,
        joined: &mut Joined,
        config: &TcpConfig,
    ) -> u32 {
        let chunk = Chunk { dsn: data.dsn, len: data.len, messages: data.messages };
        if data.seq >= self.passed {
            self.held.insert(data.seq, chunk);
        }
        let mut done = 0;
        while let Some(first) = self.held.first_entry().filter(|e| *e.key() < self.next) {
            let (seq, chunk) = first.remove_entry();
            self.passed = seq + u64::from(chunk.len);
            done += joined.arrived(now, chunk, config);
        }
        self.data_ack = joined.next;
        done
    }

    /// Sends the delayed ack when its timer fires.
    pub(crate) fn on_deadline(
        &mut self,
        now: Ps,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        if self.delayed.is_some_and(|at| at <= now) {
            self.ack_send(config, io);
        }
    }

    /// ECN echo: RFC 3168 echoes until the sender answers, RFC 8257 echoes each segment's mark.
    fn marks_read(
        &mut self,
        _now: Ps,
        data: &Arrived,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        if config.algorithm == Algorithm::Dctcp {
            if data.ce != self.ce_last && self.delayed.is_some() {
                // Pending data must be acknowledged with their own mark.
                self.ack_send(config, io);
            }
            self.ce_last = data.ce;
            self.ece = data.ce;
            return;
        }
        if data.cwr {
            self.ece = false;
        }
        if data.ce {
            self.ece = true;
            self.quick = self.quick.max(2);
        }
    }

    /// Handles a segment without new bytes: reports a duplicate and may change the acks' path.
    fn repeated(&mut self, data: &Arrived, end: u64, config: &TcpConfig) {
        self.counters.duplicates_received += 1;
        self.duplicate = Some((data.seq, end));
        self.quick = config.quick_acks;
        if config.rehash_on_rto && data.sport != self.data_port {
            // The sender changed its path because it received no acks: change the acks' path, too.
            let mixed = srd_fabric::rng::mix64(u64::from(self.sport) << 32 | u64::from(data.sport));
            self.sport = (mixed >> 48) as u16;
            self.counters.rehashes += 1;
        }
    }

    fn holds(&self, from: u64, to: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.to < to);
        self.ranges.get(at).is_some_and(|r| r.from <= from && to <= r.to)
    }

    /// Moves ranges that `next` has reached into the stream.
    fn absorb(&mut self) {
        let reached = self.ranges.iter().take_while(|r| r.from <= self.next).count();
        for range in self.ranges.drain(..reached) {
            self.next = self.next.max(range.to);
            self.messages = self.messages.max(range.messages);
        }
        let mut kept = 0;
        for i in 0..self.recent_count {
            if self.recent[i].0 > self.next {
                self.recent[kept] = self.recent[i];
                kept += 1;
            }
        }
        self.recent_count = kept;
    }

    /// Adds a range, merges it with adjacent ranges, and reports the result first.
    fn insert(&mut self, mut new: Range) {
        let first = self.ranges.partition_point(|r| r.to < new.from);
        let touching = self.ranges[first..].iter().take_while(|r| r.from <= new.to).count();
        for old in &self.ranges[first..first + touching] {
            new.from = new.from.min(old.from);
            new.to = new.to.max(old.to);
            new.messages = new.messages.max(old.messages);
        }
        if touching == 0 {
            self.ranges.insert(first, new);
        } else {
            self.ranges[first] = new;
            self.ranges.drain(first + 1..first + touching);
        }
        let within = |b: &(u64, u64)| new.from <= b.0 && b.1 <= new.to;
        let mut blocks = [(new.from, new.to); SACK_BLOCKS];
        let mut count = 1;
        let old = self.recent[..self.recent_count].iter().filter(|b| !within(b));
        for (slot, block) in blocks[1..].iter_mut().zip(old) {
            *slot = *block;
            count += 1;
        }
        (self.recent, self.recent_count) = (blocks, count);
    }

    fn sample(&mut self, now: Ps, bytes: u64, config: &TcpConfig) {
        let Some(width) = config.sample_ps else { return };
        let at = (now / width) as usize;
        if self.samples.len() <= at {
            self.samples.resize(at + 1, 0);
        }
        self.samples[at] += bytes;
    }

    /// Sends an ack for everything received.
    fn ack_send(&mut self, config: &TcpConfig, io: &mut HostIo<'_, TcpSegment>) {
        self.delayed = None;
        self.quick = self.quick.saturating_sub(1);
        self.acked = self.next;
        let mut ack = Ack {
            conn: self.conn,
            peer: self.peer,
            ack: self.next,
            ts_echo: self.ts_echo,
            window: config.window_bytes,
            ece: self.ece,
            data_ack: self.data_ack,
            ..Ack::default()
        };
        if config.recovery != Recovery::NewReno {
            let duplicate = self.duplicate.take();
            ack.duplicate = duplicate.is_some();
            let blocks =
                duplicate.into_iter().chain(self.recent[..self.recent_count].iter().copied());
            // Multipath TCP's option takes the room of one block.
            let most = if config.subflows > 1 { SACK_BLOCKS - 1 } else { SACK_BLOCKS };
            for ((from, to), slot) in blocks.take(most).zip(&mut ack.sacks) {
                let offset = |place: u64| (place as i64 - ack.ack as i64) as i32;
                *slot = (offset(from), offset(to));
                ack.sack_count += 1;
            }
        }
        let bytes = config.ack_bytes() + ack.option_bytes();
        let (sport, dport) = (self.sport, self.dport);
        let out = Outbound { dst: self.src, sport, dport, bytes, ect: false };
        match io.send(out, TcpSegment::Ack(ack)) {
            Ok(()) => self.counters.acks_sent += 1,
            Err(_) => self.counters.local_drops += 1,
        }
    }

    /// Answers a SYN.
    pub(crate) fn syn_ack_send(
        &mut self,
        ts_echo: Ps,
        config: &TcpConfig,
        io: &mut HostIo<'_, TcpSegment>,
    ) {
        let bytes = config.header_bytes + config.link_bytes + 8;
        let (sport, dport) = (self.sport, self.dport);
        let out = Outbound { dst: self.src, sport, dport, bytes, ect: false };
        let answer = TcpSegment::SynAck { conn: self.conn, peer: self.peer, ts_echo };
        if io.send(out, answer).is_err() {
            self.counters.local_drops += 1;
        }
    }
}
