//! Credits at the receiver: grants for the last hop, given in turn to the peers that have data to
//! send.

use super::credit::{grants_ahead, stale, stale_rtts};
use crate::ids::Ctx;
use crate::params::ns32;
use crate::time::{Span, Time};
use crate::tuning::{
    GRANT_AHEAD, GRANT_AHEAD_MIN, GRANT_LATE_NOISES, GRANT_LONE_AFTER, GRANT_LONE_RTTS,
    GRANT_NOISES, GRANT_PACKETS, GRANT_SHARE,
};
use srd_wire::{BODY_BYTES_MAX, CREDIT_UNIT_BYTES};

/// Marks the end of the ring, and a peer that is not in it.
const NONE: u32 = u32::MAX;

/// A packet changes the mean of their bytes by this part of the difference.
const MEAN_GAIN: u16 = 16;

/// What one peer wants and was granted.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// Packets that the peer last said it still has to send, at most 65,535.
    wanted: u16,
    /// What has arrived from the peer, in credit units; 65,535 (4 MB) stands for all that follows.
    earned: u16,
    /// Bytes granted that the peer has not sent yet, as far as is known.
    ahead: u32,
    /// Mean of the bytes of the peer's packets, which are 0 for acknowledgments.
    mean: u16,
    /// What may be believed to be on its way or lost without having arrived, in credit units: at
    /// most what has arrived, and 4 MB.
    believed: u16,
    /// Time of the last arrival or grant in units of 16 ns.
    heard: u32,
    /// Time from an acknowledgment to its echo by the peer, in ns; 0 = not known.
    echo_ns: u32,
    /// Next peer in the ring.
    next: u32,
}

impl Demand {
    const NEW: Self = Self {
        wanted: 0,
        earned: 0,
        ahead: 0,
        mean: 0,
        believed: 0,
        heard: 0,
        echo_ns: 0,
        next: NONE,
    };

    /// A packet arrived: it and those that it overtook were sent. Packets that are lost do not
    /// arrive, but what they were granted is used up. Those that it overtook count as many bytes
    /// as a packet has in the mean; what is wrong with that is corrected when they arrive. No more
    /// is believed to be on its way or lost than has arrived: a peer chooses its own numbers.
    fn on_arrived(&mut self, arrived: u32, passed: u32) {
        let units =
            |bytes: u32| u16::try_from(bytes.div_ceil(CREDIT_UNIT_BYTES)).unwrap_or(u16::MAX);
        let mean = u32::from(self.mean);
        self.mean_note(arrived);
        self.earned = self.earned.saturating_add(units(arrived));
        self.believed = self.believed.saturating_add(units(arrived));
        match passed {
            0 => {
                self.believed = self.believed.saturating_add(units(mean));
                let most = self.earned_bytes().max(self.ahead);
                self.ahead = self.ahead.saturating_add(mean).saturating_sub(arrived).min(most);
            }
            1 => self.ahead = self.ahead.saturating_sub(arrived),
            _ => {
                let overtaken = (passed - 1).saturating_mul(mean);
                let believed = u32::from(self.believed) * CREDIT_UNIT_BYTES;
                let overtaken =
                    if planted!(NumbersBelieved) { overtaken } else { overtaken.min(believed) };
                self.believed = self.believed.saturating_sub(units(overtaken));
                self.ahead = self.ahead.saturating_sub(arrived.saturating_add(overtaken));
            }
        }
    }

    fn mean_note(&mut self, arrived: u32) {
        let bytes = u16::try_from(arrived).unwrap_or(u16::MAX);
        self.mean = match self.mean {
            0 => bytes,
            mean if bytes >= mean => mean + (bytes - mean) / MEAN_GAIN,
            mean => mean - (mean - bytes) / MEAN_GAIN,
        };
    }

    /// Bytes that the peer still has to send, in packets of `packet` bytes.
    fn wanted_bytes(&self, packet: u32) -> u32 {
        u32::from(self.wanted).saturating_mul(packet)
    }

    /// Bytes that have arrived from the peer; `u32::MAX`: more than are counted.
    fn earned_bytes(&self) -> u32 {
        match self.earned {
            u16::MAX => u32::MAX,
            units => u32::from(units) * CREDIT_UNIT_BYTES,
        }
    }

    /// Whether the peer has been silent for so long that its grants count no longer: for at least
    /// `stale_least`, which holds for short round trips, and for some of its own.
    #[inline(always)]
    fn is_silent(&self, now: Time, stale_least: Span) -> bool {
        let silence = now.since_wire(self.heard);
        silence > stale_least && silence > stale_rtts(Span(self.echo_ns.into()))
    }

    /// Most bytes that the peer may hold, `least` of them in any case.
    fn ahead_max(&self, line: u64, least: u32) -> u32 {
        let bytes = grants_ahead(line, Span(self.echo_ns.into()));
        u32::try_from(bytes).unwrap_or(u32::MAX / 2).max(least)
    }

    /// Unused grants beyond what the peer has sent so far.
    fn unearned(&self) -> u32 {
        self.ahead.saturating_sub(self.earned_bytes())
    }
}

/// Credit that one peer is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Reliability context with the peer.
    pub ctx: Ctx,
    /// Bytes granted in addition, a multiple of 64.
    pub bytes: u32,
    /// Whether the peer holds so little that it is to be told at once. Else its next acknowledgment
    /// is early enough.
    pub urgent: bool,
}

/// Grants the capacity of the receiver's link, at 98 % of the line rate, four packets to each peer
/// in turn. A peer that is the only one with data to send gets grants for two round trips at once.
/// What peers hold beyond what each has sent is bounded for all of them together: otherwise a host
/// with many contexts could reserve the link by claiming to have much to send.
/// There is one granter per engine; peers are numbered by reliability context.
#[derive(Debug)]
pub struct Granter {
    peers: Vec<Demand>,
    /// Last peer of the circular ring of peers that wait for a grant; `NONE` = empty.
    tail: u32,
    next: Time,
    next_fraction: u64,
    /// Rate of all grants in bytes per second: [`GRANT_SHARE`] of the line rate, or less.
    rate: u64,
    line: u64,
    /// Whether the host drains less than the line rate.
    slow: bool,
    packet: u32,
    /// Silence after which grants count no longer, where round trips are short.
    stale_least: Span,
    /// Most bytes of one grant.
    grant: u32,
    /// Time that grants may be behind: what a turn of the engine came too late is granted at once.
    late: Span,
    /// The noise of the host that both were computed for, in ns.
    noise_ns: u32,
    ahead_max: u32,
    /// Sum of [`Demand::unearned`]: at most `ahead_max` and a grant.
    unearned: u32,
    /// Number of peers with data to send.
    wanting: u32,
    /// Time at which the number of peers with data to send became one.
    lone_since: Time,
    /// Round trip assumed.
    rtt: Span,
    /// Bytes that the only peer with data to send may hold without pacing.
    ahead_lone: u32,
    /// Number of engines that share the link, including this one.
    engines: u32,
}

impl Granter {
    /// For a link of this rate (bytes per second, above zero) and packets of up to `mtu` bytes of
    /// payload behind `head_bytes` of common header, with round trips of about `rtt`.
    pub fn new(line_bytes_per_sec: u64, mtu: u16, rtt: Span, head_bytes: usize) -> Self {
        let bytes = |span: Span| {
            let bytes = u128::from(line_bytes_per_sec) * u128::from(span.0) / 1_000_000_000;
            u32::try_from(bytes).unwrap_or(u32::MAX / 2)
        };
        // Senders count headers as well.
        let packet = u32::from(mtu) + (head_bytes + BODY_BYTES_MAX) as u32;
        Self {
            peers: Vec::new(),
            tail: NONE,
            next: Time(0),
            next_fraction: 0,
            rate: GRANT_SHARE.of(line_bytes_per_sec).max(1),
            line: GRANT_SHARE.of(line_bytes_per_sec).max(1),
            slow: false,
            packet,
            stale_least: stale(packet, GRANT_SHARE.of(line_bytes_per_sec).max(1), Span::ZERO),
            grant: GRANT_PACKETS * packet,
            late: Span::ZERO,
            noise_ns: 0,
            ahead_max: bytes(GRANT_AHEAD).max(GRANT_AHEAD_MIN * GRANT_PACKETS * packet),
            unearned: 0,
            wanting: 0,
            lone_since: Time(0),
            rtt,
            ahead_lone: bytes(rtt.scale(GRANT_LONE_RTTS, 1).min(GRANT_AHEAD)),
            engines: 1,
        }
    }

    /// Takes the noise of this host in ns: the time by which its timers are late, and which an
    /// acknowledgment takes to leave. One grant covers a part of it, because each is an
    /// acknowledgment of its own, and what a turn of the engine came too late is made up for.
    pub(crate) fn noise_set(&mut self, noise_ns: u32) {
        if noise_ns == self.noise_ns {
            return;
        }
        self.noise_ns = noise_ns;
        let noise = Span(noise_ns.into());
        self.late = noise.scale(GRANT_LATE_NOISES, 1);
        let bytes = self.line.saturating_mul(GRANT_NOISES.of_span(noise).0) / 1_000_000_000;
        let most = self.ahead_max / GRANT_AHEAD_MIN;
        self.grant = u32::try_from(bytes).unwrap_or(u32::MAX).min(most);
        self.grant = self.grant.max(GRANT_PACKETS * self.packet);
    }

    /// Paces the grants of the only sender like those of several.
    pub(crate) fn lone_off(&mut self) {
        self.ahead_lone = 0;
    }

    /// Sets the rate of grants, in bytes per second, for a host that drains less than the line
    /// rate. `None`: the host is no limit.
    pub fn drain_set(&mut self, bytes_per_sec: Option<u64>) {
        let rate = bytes_per_sec.map_or(self.line, |rate| rate.clamp(1, self.line));
        self.slow = rate < self.line;
        if rate != self.rate {
            // The remainder of the division by the old rate is less than a nanosecond.
            (self.rate, self.next_fraction) = (rate, 0);
        }
    }

    /// Sets the number of engines of this host that grant the link's capacity, including this one
    /// (at least 1).
    pub fn engines_set(&mut self, engines: u32) {
        self.engines = engines.max(1);
    }

    /// Bytes granted to peer `ctx` that have not arrived yet.
    #[cfg(test)]
    pub(crate) fn ahead(&self, ctx: Ctx) -> u32 {
        self.peers.get(ctx.index()).map_or(0, |peer| peer.ahead)
    }

    /// Whether any peer has data to send.
    pub fn is_wanted(&self) -> bool {
        self.wanting > 0
    }

    /// A packet of peer `ctx` arrived, with the backlog it announces: up to `packets_max` more
    /// packets (`u32::MAX`: no bound known). `arrived`: its bytes as the sender counts them against
    /// credits, and by how much its transmission number is ahead of the newest one before (0: it
    /// was overtaken).
    /// `echo`: how long its echo of an acknowledgment takes.
    pub fn on_backlog(
        &mut self,
        now: Time,
        ctx: Ctx,
        packets_max: u32,
        (arrived, passed): (u32, u32),
        echo: Span,
    ) {
        let i = ctx.index();
        if i >= self.peers.len() {
            if packets_max == 0 {
                return;
            }
            self.peers.resize(i + 1, Demand::NEW);
        }
        let packet = self.packet;
        let peer = &mut self.peers[i];
        // A peer without grants has none that could be dropped, and none in the sum.
        if peer.ahead > 0 {
            self.unearned -= peer.unearned();
            // Grants from before a silence count no longer: they may be lost, and the sender drops
            // them after a silence that is a little shorter.
            if peer.is_silent(now, self.stale_least) {
                peer.ahead = 0;
            }
        }
        peer.echo_ns = ns32(echo);
        peer.heard = now.to_wire();
        peer.on_arrived(arrived, passed);
        if peer.ahead > 0 {
            self.unearned += peer.unearned();
        }
        if self.wanting != 1 {
            self.lone_since = now;
        }
        self.wanting -= u32::from(peer.wanted > 0);
        peer.wanted = u16::try_from(packets_max).unwrap_or(u16::MAX);
        self.wanting += u32::from(peer.wanted > 0);
        if peer.wanted_bytes(packet) > peer.ahead && peer.next == NONE {
            self.insert(ctx.0);
        }
    }

    /// Appends a peer to the ring. Its links are bare numbers of contexts, because one of them
    /// stands for none.
    fn insert(&mut self, peer: u32) {
        let head = if self.tail == NONE { peer } else { self.peers[self.tail as usize].next };
        self.peers[peer as usize].next = head;
        if self.tail != NONE {
            self.peers[self.tail as usize].next = peer;
        }
        self.tail = peer;
    }

    /// Takes the first peer out of the ring.
    fn pop(&mut self) -> Option<u32> {
        let tail = *self.peers.get(self.tail as usize)?;
        let head = tail.next;
        let after = core::mem::replace(&mut self.peers[head as usize].next, NONE);
        if head == self.tail {
            self.tail = NONE;
        } else {
            self.peers[self.tail as usize].next = after;
        }
        Some(head)
    }

    /// Peer `ctx` is gone, or gets no grants any more.
    pub fn forget(&mut self, ctx: Ctx) {
        let Some(peer) = self.peers.get_mut(ctx.index()) else { return };
        self.wanting -= u32::from(peer.wanted > 0);
        self.unearned -= peer.unearned();
        // The peer leaves the ring at its turn.
        *peer = Demand { next: peer.next, ..Demand::NEW };
    }

    /// When [`Self::poll`] is to be called next; [`Time::NEVER`] while no peer waits for a grant.
    pub fn next(&self) -> Time {
        if self.tail == NONE { Time::NEVER } else { self.next }
    }

    /// The next grant that is due.
    /// Rule CC-25.
    pub fn poll(&mut self, now: Time) -> Option<Grant> {
        if now < self.next {
            return None;
        }
        while let Some(first) = self.pop() {
            let grant = self.grant;
            let peer = &mut self.peers[first as usize];
            if peer.ahead > 0 && peer.is_silent(now, self.stale_least) {
                // The peer is silent although it holds grants: it gets no more until a packet of it
                // arrives.
                self.wanting -= u32::from(peer.wanted > 0);
                peer.wanted = 0;
                continue;
            }
            let ahead_max = peer.ahead_max(self.line, self.ahead_max);
            let most = peer.wanted_bytes(self.packet).min(ahead_max);
            // A peer that may hold no more comes back to the ring with its next packet.
            let earned = peer.earned_bytes().saturating_sub(peer.ahead);
            let unearned = self.ahead_max.saturating_sub(self.unearned);
            let most_now = most.saturating_sub(peer.ahead).min(earned.saturating_add(unearned));
            if most_now == 0 {
                continue;
            }
            let bytes = most_now.min(grant).next_multiple_of(CREDIT_UNIT_BYTES);
            self.unearned -= peer.unearned();
            // Waiting for one's turn is no silence.
            peer.heard = now.to_wire();
            let urgent = peer.ahead < grant;
            peer.ahead += bytes;
            self.unearned += peer.unearned();
            debug_assert!(self.unearned <= self.ahead_max + grant, "bounded for all together");
            let ahead = peer.ahead;
            let peer_lone = if peer.echo_ns > ns32(self.rtt) { ahead_max } else { 0 };
            if most > ahead {
                self.insert(first);
            }
            // After half a round trip, peers that started together have been heard.
            let lone = self.wanting == 1
                && !self.slow
                && self.engines == 1
                && now.since(self.lone_since) > GRANT_LONE_AFTER.of_span(self.rtt);
            let ahead_lone = match self.ahead_lone {
                0 => 0,
                least => peer_lone.max(least),
            };
            if !lone || ahead > ahead_lone {
                self.pace(now, bytes);
            }
            return Some(Grant { ctx: Ctx(first), bytes, urgent });
        }
        None
    }

    /// Advances the clock of grants; the remainder of the division stays for the next one.
    fn pace(&mut self, now: Time, bytes: u32) {
        let from = Time(now.0.saturating_sub(self.late.0));
        if self.next < from {
            self.next = from;
            self.next_fraction = 0;
        }
        // An equal share of the link for each engine, or less if this host drains more slowly.
        let rate = self.rate.min(self.line / u64::from(self.engines)).max(1);
        let exact = u64::from(bytes) * 1_000_000_000 + self.next_fraction;
        self.next += Span(exact / rate);
        self.next_fraction = exact % rate;
    }
}
