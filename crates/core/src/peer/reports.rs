//! Counters that the two ends of a context report to each other in acknowledgments, and their
//! growth.

use srd_wire::{AckBlock, CREDIT_UNIT_BYTES};

/// The counters of one context.
#[derive(Debug)]
pub(crate) struct Reports {
    /// CE-marked packets of the peer that have arrived (wraps).
    ce_count: u32,
    /// Cumulative credit granted to the peer, in units of 64 bytes (wraps).
    credit_granted: u32,
    /// Cumulative credit that the peer granted us, as last reported.
    credit_seen: u32,
    /// Bytes that the peer's receive buffers allow us to have in flight (`u32::MAX`: no limit).
    rx_budget: u32,
    /// Socket drops of the peer as last reported; only the growth matters.
    rxq_drops: u32,
    /// Whether the peer has reported a drop count yet.
    rxq_drops_told: bool,
    /// Low bits of the transmission number of the last received packet with an acknowledgment,
    /// which the next packet echoes.
    ack_echo: u16,
}

/// Growth of the peer's counters since the acknowledgment before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// Packets that the peer's receive socket has dropped.
    pub drops: u32,
    /// Credit that the peer has granted us, in units of 64 bytes.
    pub credit_units: u32,
}

/// Growth of a counter that wraps; 0 if it went backwards.
fn growth(now: u32, before: u32) -> u32 {
    let more = now.wrapping_sub(before);
    if more < 1 << 31 { more } else { 0 }
}

impl Reports {
    /// Counters of a new context, all zero. `rx_budget`: bytes that the peer allows in flight.
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
    /// Starts over when the peer's end of the context starts, with its counters at zero.
    pub fn begin(&mut self, rx_budget: u32) {
        *self = Self { ack_echo: self.ack_echo, ..Self::new(rx_budget) };
    }

    /// Notes a received packet with a CE mark.
    pub fn ce_note(&mut self) {
        self.ce_count = self.ce_count.wrapping_add(1);
    }
    /// Grants the peer credit for `bytes` more, rounded up to units.
    pub fn grant(&mut self, bytes: u32) {
        let units = bytes.div_ceil(CREDIT_UNIT_BYTES);
        debug_assert!(
            units > 0 && units < 1 << 31,
            "a step that the peer takes for growth: {bytes}"
        );
        self.credit_granted = self.credit_granted.wrapping_add(units);
    }
    /// Writes our counters into an acknowledgment.
    #[inline(always)]
    pub fn tell(&self, ack: &mut AckBlock) {
        (ack.credit, ack.ce_count) = (self.credit_granted, self.ce_count);
    }

    /// Takes the peer's counters from the newest acknowledgment. `credits`: both ends use credits.
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

    /// Notes that an acknowledgment arrived in the packet with these low bits of the transmission
    /// number.
    #[inline(always)]
    pub fn ack_heard(&mut self, tx_num_low: u16) {
        self.ack_echo = tx_num_low;
    }
    /// Low bits of the transmission number that the next packet echoes.
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
