//! Credits at the sender: bytes granted by the peer, less the bytes sent.

use crate::time::{Span, Time};
use crate::tuning::{
    GRANT_AHEAD, GRANT_LONE_RTTS, GRANT_RTT_MAX, GRANT_STALE, GRANT_STALE_PKTS, GRANT_STALE_RTTS,
};
use srd_wire::CREDIT_UNIT_BYTES;

/// A silence this long ends all grants, also those whose time is too long ago for 32 bits.
const SILENCE_WHOLE: Span = Span::from_secs(1);

/// Balance of granted bytes. The peer's counter is cumulative, so a lost acknowledgment loses no
/// credit.
///
/// Both ends forget at a silence. After [`stale`] without a packet the receiver no longer counts
/// what it granted, because it may be lost, and grants anew. A sender that was silent for 7/8 of
/// that drops what it did not use. A silence begins with the last packet or the last grant,
/// whichever is later: waiting for one's turn is none. What it holds is thus never more than the
/// first window and what the receiver still counts as granted, unless the network made the silence:
/// packets that are lost are a silence for the receiver alone. A limit holds for that case, for
/// several contexts to one address, and for a receiver that grants without measure (see
/// [`Self::on_counter`]).
///
/// Packed, because each idle peer has one: padding would cost the path context eight bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed)]
pub(crate) struct Credit {
    on: bool,
    /// What may be in flight of packets that needed no grant, in units of 1 KiB.
    free: u16,
    granted: u32,
    balance: i32,
    /// Time of the last grant in units of 16 ns.
    since: u32,
}

/// Silence after which the receiver counts a grant no longer, on a line of `line_bytes_per_sec`,
/// with packets of up to `packet` bytes and round trips of `rtt`.
pub(super) fn stale(packet: u32, line_bytes_per_sec: u64, rtt: Span) -> Span {
    let packets = u64::from(GRANT_STALE_PKTS) * u64::from(packet) * 1_000_000_000;
    GRANT_STALE.max(Span(packets / line_bytes_per_sec.max(1))).max(stale_rtts(rtt))
}

/// The least of [`stale`] that a round trip asks for.
pub(super) fn stale_rtts(rtt: Span) -> Span {
    rtt.min(GRANT_RTT_MAX).scale(GRANT_STALE_RTTS, 1)
}

/// Bytes of grants that a peer may hold unused, beside a least number of packets.
pub(crate) fn grants_ahead(line_bytes_per_sec: u64, rtt: Span) -> u64 {
    let ahead = GRANT_AHEAD.max(rtt.min(GRANT_RTT_MAX).scale(GRANT_LONE_RTTS, 1));
    // At most 400 Gb/s for 200 ms.
    line_bytes_per_sec.saturating_mul(ahead.0) / 1_000_000_000
}

/// Silence after which a sender drops what it did not use. It is less than [`stale`] by 1/8, 125 us
/// at least: the receiver measures the silence between arrivals, which is longer than that of the
/// sender where the second packet waits longer in queues. A port with a full buffer of 679 KB at
/// 100 Gb/s holds a packet for 54 us.
fn kept(packet: u32, line_bytes_per_sec: u64, rtt: Span) -> Span {
    stale(packet, line_bytes_per_sec, rtt).scale(7, 8)
}

/// A balance for a number of bytes.
fn balance_of(bytes: u64) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// Bytes in units of 1 KiB, rounded up.
fn kib(bytes: u64) -> u16 {
    u16::try_from(bytes.div_ceil(1024)).unwrap_or(u16::MAX)
}

impl Credit {
    /// Obeys credits from now on, starting with a balance of `first` bytes.
    pub(crate) fn begin(&mut self, first: u64) {
        if !self.on {
            *self = Self { on: true, ..Self::default() };
            self.refill(first, 0);
        }
    }

    /// Takes the peer's counter. A value below the newest one is outdated and ignored. Grants do
    /// not raise the balance above `balance_max` bytes. Rule CC-25.
    pub(crate) fn on_counter(&mut self, now: Time, granted_64b: u32, balance_max: u64) {
        let units = granted_64b.wrapping_sub(self.granted);
        if units == 0 || units > u32::MAX / 2 {
            return;
        }
        self.granted = granted_64b;
        self.since = now.to_wire();
        let bytes = balance_of(u64::from(units) * u64::from(CREDIT_UNIT_BYTES));
        let before = self.balance;
        self.balance = before.saturating_add(bytes).min(balance_of(balance_max).max(before));
        debug_assert!(self.balance >= before, "a grant takes nothing away");
    }

    /// A packet is sent, or a grant comes, after a silence. What was granted before a long one is
    /// dropped, because the receiver no longer counts it. What was sent in advance stays owed.
    /// Rule CC-25.
    pub(crate) fn on_silence(
        &mut self,
        now: Time,
        silence: Span,
        packet: u16,
        line: u64,
        rtt: Span,
    ) {
        if silence < GRANT_STALE.scale(7, 8) {
            return;
        }
        let kept = kept(packet.into(), line, rtt);
        if silence >= kept && (silence >= SILENCE_WHOLE || now.since_wire(self.since) >= kept) {
            self.forget();
        }
    }

    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.balance = self.balance.saturating_sub_unsigned(bytes);
    }

    /// A packet arrived.
    #[inline(always)]
    pub(crate) fn on_acked(&mut self, bytes: u32) {
        if self.free > 0 {
            self.free = self.free.saturating_sub(kib(bytes.into()));
        }
    }

    /// A packet was lost: what it needed is there again, because the receiver still counts it as
    /// granted, until it arrives. Packets that needed no grant, which are the first in flight, need
    /// one to be sent again, and so do those that a queue dropped (`queued`): who shares it shares
    /// out its room anew.
    pub(crate) fn on_lost(&mut self, bytes: u32, queued: bool) {
        if self.on && self.free == 0 && !queued {
            self.balance = self.balance.saturating_add_unsigned(bytes);
        }
        self.on_acked(bytes);
    }

    /// Drops what was granted and not used. What was sent in advance stays owed.
    pub(crate) fn forget(&mut self) {
        self.balance = self.balance.min(0);
    }

    /// With `inflight` bytes in flight, up to `first` of them need no grant: after a pause, when
    /// the first window becomes known, and while there is nothing else to send, so that nothing is
    /// asked for.
    pub(crate) fn refill(&mut self, first: u64, inflight: u64) {
        self.balance = self.balance.max(balance_of(first.saturating_sub(inflight)));
        self.free = kib(first);
    }

    /// Bytes that may be sent. With any credit left, a whole packet may be sent, and the balance
    /// becomes negative: the two ends need not agree on the size of a packet, and a small remainder
    /// must not block the sender.
    pub(crate) fn room(&self) -> u64 {
        u64::try_from(self.balance).unwrap_or(0)
    }
}
