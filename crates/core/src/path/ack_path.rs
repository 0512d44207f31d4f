//! Paths of pure acknowledgments: a few at a time in turn, and whether they get through.
//!
//! A fixed return path that is a black hole would make every healthy forward path look dead. So
//! acknowledgments rotate, each carries a number that the peer echoes, and a path whose numbers
//! never come back while those of others do is replaced.

use super::set::PathSet;
use crate::rng::Rng;

/// Paths in rotation: enough to survive dead ones, few enough to learn about each quickly.
const SLOTS: usize = 8;
/// Acknowledgments remembered until their echo.
const REMEMBERED: usize = 16;
/// Patience in multiples of the usual number of acknowledgments per echo: false alarms e^-6.
const PATIENCE: u32 = 6;

#[derive(Debug)]
pub(crate) struct AckPaths {
    paths: [u8; SLOTS],
    /// Acknowledgments on the path of the slot since one of them was echoed.
    missed: [u8; SLOTS],
    sent: [u16; REMEMBERED],
    sent_slot: [u8; REMEMBERED],
    sent_next: u8,
    slot: u8,
    echoed_last: u16,
    /// Acknowledgments per echo, smoothed, times 8.
    per_echo_8: u16,
    since_echo: u16,
}

impl AckPaths {
    pub(crate) fn new(set: &mut PathSet, rng: &mut Rng) -> Self {
        Self {
            paths: core::array::from_fn(|_| set.scan_next(rng)),
            missed: [0; SLOTS],
            sent: [0; REMEMBERED],
            sent_slot: [u8::MAX; REMEMBERED],
            sent_next: 0,
            slot: 0,
            echoed_last: 0,
            per_echo_8: 8,
            since_echo: 0,
        }
    }

    /// The path of the next one.
    pub(crate) fn choose(&mut self, set: &mut PathSet, rng: &mut Rng) -> u8 {
        self.slot = (self.slot + 1) % SLOTS as u8;
        let slot = usize::from(self.slot);
        if self.suspect(slot) || !set.get(self.paths[slot]).is_live() {
            self.replace(slot, set, rng);
        }
        self.paths[slot]
    }

    fn per_echo(&self) -> u32 {
        u32::from(self.per_echo_8).div_ceil(8)
    }

    /// Whether the path of a slot gets nothing through while others do.
    fn suspect(&self, slot: usize) -> bool {
        let heard = u32::from(self.since_echo) <= 4 * self.per_echo() + SLOTS as u32;
        heard && u32::from(self.missed[slot]) > PATIENCE * self.per_echo() + 4
    }

    fn replace(&mut self, slot: usize, set: &mut PathSet, rng: &mut Rng) {
        for _ in 0..set.paths.len() {
            let path = set.scan_next(rng);
            if set.get(path).is_live() && !self.paths.contains(&path) {
                self.paths[slot] = path;
                self.missed[slot] = 0;
                return;
            }
        }
        self.missed[slot] = 0;
    }

    pub(crate) fn on_sent(&mut self, path: u8, tx_num_low: u16) {
        let Some(slot) = self.paths.iter().position(|&p| p == path) else { return };
        self.missed[slot] = self.missed[slot].saturating_add(1);
        self.since_echo = self.since_echo.saturating_add(1);
        let i = usize::from(self.sent_next) % REMEMBERED;
        self.sent[i] = tx_num_low;
        self.sent_slot[i] = slot as u8;
        self.sent_next = self.sent_next.wrapping_add(1);
    }

    pub(crate) fn on_echoed(&mut self, tx_num_low: u16) {
        if tx_num_low == self.echoed_last {
            return;
        }
        let found = (0..REMEMBERED)
            .find(|&i| self.sent[i] == tx_num_low && usize::from(self.sent_slot[i]) < SLOTS);
        let Some(i) = found else { return };
        self.echoed_last = tx_num_low;
        self.missed[usize::from(self.sent_slot[i])] = 0;
        self.sent_slot[i] = u8::MAX;
        let sample = self.since_echo.min(256) * 8;
        self.per_echo_8 = self.per_echo_8 - self.per_echo_8 / 8 + sample / 8;
        self.since_echo = 0;
    }
}
