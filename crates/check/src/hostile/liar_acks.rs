//! The acknowledgments of a liar: true ones, those that judge wrongly, and those with false fields.

use super::liar::Liar;
use super::plan::DELAY_NS;
use crate::draw::Draw;
use srd_core::wire::{AckBlock, Body, Echo, Others, Verdict, VerdictEntry};

/// Most that an echoed timestamp is later than the true one, in units of the wire's clock (16 ns):
/// two round trips.
pub(super) const ECHO_LATER_MAX: u64 = 4 * DELAY_NS / 16;
/// Largest false acknowledgment delay, in units of 64 ns: a round trip. A larger one would leave no
/// round trip time, and the sample would be discarded.
pub(super) const WAIT_MAX: u64 = 2 * DELAY_NS / 64;
/// Every verdict of the wire format.
pub(super) const VERDICTS: [Verdict; 8] = [
    Verdict::Rnr,
    Verdict::Busy,
    Verdict::BadQpn,
    Verdict::BadQkey,
    Verdict::BadLength,
    Verdict::BadRkey,
    Verdict::UnknownPeer,
    Verdict::FeatureMismatch,
];

/// A verdict on `psn` and often on some PSNs after it.
pub(super) fn entry(d: &mut Draw, psn: u32, verdict: Verdict) -> VerdictEntry {
    let others = match d.below(4) {
        0 => Others::Run(d.pick(&[1, 2, 64, 1000, u16::MAX])),
        1 => Others::Mask(1 + (d.bits() as u32 >> d.range(9, 30))),
        _ => Others::Run(1),
    };
    VerdictEntry { psn, verdict, others }
}

impl Liar {
    /// Judges these PSNs, whatever was told of them before.
    pub(super) fn judge(&mut self, d: &mut Draw, verdicts: &[(u32, Verdict)]) {
        let mut block = self.block_true(d);
        if d.percent(50) {
            block.cum = verdicts[0].0;
            block.base = block.cum;
            block.words.clear();
            block.words.push(d.pick(&[0, 1, 3, u64::MAX]));
        }
        block.partial = d.percent(20);
        for &(psn, verdict) in verdicts {
            block.verdicts.push(entry(d, psn, verdict));
        }
        self.say(d, Body::Ack, Some(&block), 0);
    }

    /// The acknowledgment block of an honest receiver.
    pub(super) fn block_true(&self, d: &mut Draw) -> AckBlock {
        let mut b = AckBlock { cum: self.highest, base: self.highest, ..AckBlock::default() };
        b.rx_budget = u32::MAX;
        b.credit = u32::MAX / 2;
        b.words.push(0);
        if let Some(s) = self.seen.back() {
            let h = &s.header;
            let delay = d.below(16) as u16;
            b.echoes.push(Echo {
                tx_num: h.tx_num,
                timestamp: h.timestamp,
                delay,
                path: h.path,
                ce: false,
            });
        }
        b
    }

    /// An acknowledgment block with some false fields.
    pub(super) fn block(&self, d: &mut Draw) -> AckBlock {
        let mut b = self.block_true(d);
        let near = |d: &mut Draw, at: u32| at.wrapping_add(d.below(160) as u32).wrapping_sub(80);
        if d.percent(60) {
            b.cum = near(d, self.highest);
        }
        if d.percent(60) {
            b.base = near(d, b.cum);
        }
        b.words.clear();
        for _ in 0..d.below(9) {
            b.words.push(d.bits() & d.bits());
        }
        for _ in 0..d.below(17) {
            let psn = match self.seen_any(d) {
                Some(s) if d.percent(70) => s.header.psn,
                _ => near(d, self.highest),
            };
            let verdict = d.pick(&VERDICTS);
            b.verdicts.push(entry(d, psn, verdict));
        }
        b.partial = d.percent(30);
        b.echoes.clear();
        for _ in 0..d.below(9) {
            // Echo the latest packet, since each echo is evaluated only once.
            let newest = self.seen.back().copied().filter(|_| d.percent(50));
            let Some(s) = newest.or_else(|| self.seen_any(d)) else { break };
            let h = &s.header;
            let wait = d.below(WAIT_MAX) as u16;
            b.echoes.push(Echo {
                tx_num: if d.percent(80) { h.tx_num } else { d.bits() as u32 },
                timestamp: match d.below(4) {
                    0 | 1 => h.timestamp,
                    // A later timestamp than the true one: the RTT sample is too short.
                    2 => h.timestamp.wrapping_add(d.below(ECHO_LATER_MAX) as u32),
                    _ => h.timestamp ^ d.bits() as u32,
                },
                delay: d.pick(&[0, wait, wait, 60_000, u16::MAX - 1, u16::MAX]),
                path: if d.percent(70) { h.path } else { d.bits() as u8 },
                ce: d.percent(30),
            });
        }
        let any = d.bits() as u32;
        b.credit = d.pick(&[0, 1, 1 << 16, 1 << 31, u32::MAX, any]);
        b.rx_budget = d.pick(&[0, 0, 1, 4096, u32::MAX]);
        b.rxq_drops = d.pick(&[0, 1, 1 << 20, u32::MAX]);
        b.ce_count = d.bits() as u32;
        b.rxq_depth = d.pick(&[0, 1, u16::MAX]);
        b.above = b.rxq_depth > 0;
        b
    }
}
