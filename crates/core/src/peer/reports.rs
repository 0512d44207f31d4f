//! Counters that the two ends of a context tell each other in acknowledgments, and what is news in
//! them.

use srd_wire::{AckBlock, CREDIT_UNIT_BYTES};

/// See the module.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Marked packets of the peer that have arrived (wraps).
    ce_count: u32,
    /// Cumulative credit granted to the peer, units of 64 bytes (wraps).
    credit_granted: u32,
    /// The peer's counter of what it granted us, as last seen.
    credit_seen: u32,
    /// Bytes the peer's receive buffers allow us to have in flight (`u32::MAX`: no limit).
    rx_budget: u32,
    /// Socket drops of the peer as last told; only their growth is news.
    rxq_drops: u32,
    /// Whether it has told any.
    rxq_drops_told: bool,
    /// Transmission number of the last packet with an acknowledgment that has arrived, which the
    /// next packet echoes.
    ack_echo: u16,
}

/// What is new in an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Packets that the peer's receive queue has dropped since.
    pub drops: u32,
    /// Credit units that it has granted us since.
    pub credit_units: u32,
}

/// Growth of a counter that wraps; a step backwards is none.
fn growth(now: u32, before: u32) -> u32 {
    let more = now.wrapping_sub(before);
    if more < 1 << 31 { more } else { 0 }
}

impl Reports {
    /// Of a context that begins: all counters stand at zero. `rx_budget`: what the peer says that
    /// we may have in flight.
    pub fn new(rx_budget: u32) -> Self {
        Self {
            ce_count: 0,
            credit_granted: 0,
            credit_seen: 0,
            rx_budget,
            rxq_drops: 0,
            rxq_drops_told: false,
            ack_echo: 0,
        }
    }
    /// The peer's end of the context begins: its counters start at zero.
    pub fn begin(&mut self, rx_budget: u32) {
        *self = Self { ack_echo: self.ack_echo, ..Self::new(rx_budget) };
    }

    /// A marked packet has arrived.
    pub fn ce_note(&mut self) {
        self.ce_count = self.ce_count.wrapping_add(1);
    }
    /// The peer may send so many bytes more.
    pub fn grant(&mut self, bytes: u32) {
        let units = bytes.div_ceil(CREDIT_UNIT_BYTES);
        debug_assert!(
            units > 0 && units < 1 << 31,
            "a step that the peer takes for growth: {bytes}"
        );
        self.credit_granted = self.credit_granted.wrapping_add(units);
    }
    /// Writes what the peer is told into an acknowledgment.
    #[inline(always)]
    pub fn tell(&self, ack: &mut AckBlock) {
        (ack.credit, ack.ce_count) = (self.credit_granted, self.ce_count);
    }

    /// Reads what the peer tells in the newest acknowledgment. `credits`: both ends grant and obey
    /// them.
    #[inline(always)]
    pub fn read(&mut self, ack: &AckBlock, credits: bool) -> News {
        let drops = if self.rxq_drops_told { growth(ack.rxq_drops, self.rxq_drops) } else { 0 };
        (self.rxq_drops, self.rxq_drops_told) = (ack.rxq_drops, true);
        let credit_units = if credits { growth(ack.credit, self.credit_seen) } else { 0 };
        if credit_units > 0 {
            self.credit_seen = ack.credit;
        }
        self.rx_budget = ack.rx_budget;
        News { drops, credit_units }
    }
    /// Bytes that the peer's receive buffers allow us to have in flight (`u32::MAX`: no limit).
    #[inline(always)]
    pub fn rx_budget(&self) -> u32 {
        self.rx_budget
    }

    /// An acknowledgment came with the packet of which this is the lower part of its number.
    #[inline(always)]
    pub fn ack_heard(&mut self, tx_num_low: u16) {
        self.ack_echo = tx_num_low;
    }
    /// What the next packet echoes of it.
    #[inline(always)]
    pub fn ack_echo(&self) -> u16 {
        self.ack_echo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rxq_drops: u32, credit: u32) -> AckBlock {
        AckBlock { rxq_drops, credit, rx_budget: 500, ..AckBlock::default() }
    }

    #[test]
    fn growth_is_news_and_a_step_back_is_none() {
        let mut r = Reports::new(u32::MAX);
        let news = |drops, credit_units| News { drops, credit_units };
        assert_eq!(r.read(&told(90, 5), true), news(0, 5), "drops count from the first report");
        assert_eq!((r.read(&told(93, 5), true), r.rx_budget()), (news(3, 0), 500));
        assert_eq!(r.read(&told(93, 4), true), news(0, 0), "a step back");
        assert_eq!(r.read(&told(93, 6), true), news(0, 1));
        assert_eq!(r.read(&told(93, 9), false), news(0, 0), "not obeyed, and not forgotten");
        assert_eq!(r.read(&told(93, 9), true), news(0, 3));
        assert_eq!(r.read(&told(92, 9), true), news(0, 0));
        assert_eq!(r.read(&told(93, 9), true), news(1, 0));
    }

    #[test]
    fn what_is_told_begins_with_the_peers_end() {
        let mut r = Reports::new(u32::MAX);
        r.ce_note();
        r.grant(65);
        r.ack_heard(77);
        let mut ack = AckBlock::default();
        r.tell(&mut ack);
        assert_eq!((ack.credit, ack.ce_count), (2, 1));
        r.begin(4_000);
        r.tell(&mut ack);
        assert_eq!((ack.credit, ack.ce_count, r.rx_budget(), r.ack_echo()), (0, 0, 4_000, 77));
    }
}
