//! Choice of an entropy for each packet.

use super::{Balancing, UeConfig};
use srd_fabric::Rng;
use std::collections::VecDeque;

/// Most times that an entropy is skipped.
const PENALTY_MAX: u8 = 15;
/// Penalty of a mark, and of a lost packet.
const PENALTY_MARK: u8 = 1;
const PENALTY_LOSS: u8 = PENALTY_MAX;
/// Most entropies that wait for another use: those of one window.
const RECYCLED_MAX: usize = 256;

/// Entropies of one connection.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    balancing: Balancing,
    count: u16,
    penalty: Vec<u8>,
    at: u16,
    mix: u16,
    recycled: VecDeque<u16>,
    rng: Rng,
}

impl Paths {
    pub fn new(config: &UeConfig, mut rng: Rng) -> Self {
        let count = config.entropies;
        let mix = rng.below(count.into()) as u16;
        Self {
            balancing: config.balancing,
            count,
            penalty: vec![0; count.into()],
            at: 0,
            mix,
            recycled: VecDeque::new(),
            rng,
        }
    }

    /// A packet on this entropy was acknowledged.
    pub fn acked(&mut self, entropy: u16, marked: bool) {
        if marked {
            self.punish(entropy, PENALTY_MARK);
        } else if self.recycled.len() < RECYCLED_MAX {
            self.recycled.push_back(entropy);
        }
    }

    /// A packet on this entropy was lost.
    pub fn lost(&mut self, entropy: u16) {
        self.punish(entropy, PENALTY_LOSS);
        self.recycled.retain(|e| *e != entropy);
    }

    fn punish(&mut self, entropy: u16, by: u8) {
        let penalty = &mut self.penalty[usize::from(entropy)];
        *penalty = (*penalty + by).min(PENALTY_MAX);
    }

    /// The entropy of the next packet.
    pub fn next(&mut self) -> u16 {
        let recycles = matches!(self.balancing, Balancing::Reps | Balancing::Mixed);
        if recycles && let Some(entropy) = self.recycled.pop_front() {
            return entropy;
        }
        match self.balancing {
            Balancing::Reps => self.rng.below(self.count.into()) as u16,
            Balancing::Oblivious => self.turn(),
            Balancing::Bitmap | Balancing::Mixed => self.unpunished(),
        }
    }

    /// The next in turn.
    fn turn(&mut self) -> u16 {
        let entropy = self.at ^ self.mix;
        self.at += 1;
        if self.at == self.count {
            self.at = 0;
            self.mix = self.rng.below(self.count.into()) as u16;
        }
        entropy
    }

    /// The next in turn without penalty; the first of those skipped is forgiven one.
    fn unpunished(&mut self) -> u16 {
        let mut entropy = self.turn();
        for skipped in 0..self.count {
            let penalty = &mut self.penalty[usize::from(entropy)];
            if *penalty == 0 {
                break;
            }
            *penalty -= u8::from(skipped == 0);
            entropy = self.turn();
        }
        entropy
    }
}
