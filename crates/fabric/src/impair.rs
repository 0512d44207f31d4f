//! Effects of a faulty link on the packets that have crossed its wire.

use crate::fault::{Burst, EcnFault, Effect};
use crate::rng::{Chance, SplitMix, stream_seed};
use crate::slab::{CE, ECT, Header};
use crate::stats::DropReason;
use crate::topo::Ps;

/// First stream kind of a link; each effect has its own.
const STREAMS: u64 = 0x100;

/// Gilbert-Elliott loss.
#[derive(Clone, Debug)]
struct BurstState {
    enter: Chance,
    leave: Chance,
    loss_good: Chance,
    loss_bad: Chance,
    bad: bool,
}

/// State of a faulty link.
#[derive(Clone, Debug)]
pub(crate) struct Impair {
    loss: Chance,
    burst: Option<BurstState>,
    flow_hole: Chance,
    flow_key: u64,
    corrupt: Chance,
    duplicate: Chance,
    duplicate_ps: Ps,
    delay: Chance,
    delay_ps: Ps,
    jitter_ps: Ps,
    ecn: EcnFault,
    mtu: Option<u32>,
    loss_rng: SplitMix,
    burst_rng: SplitMix,
    corrupt_rng: SplitMix,
    duplicate_rng: SplitMix,
    delay_rng: SplitMix,
}

/// The verdict on one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    pub drop: Option<DropReason>,
    pub corrupted: bool,
    /// Extra delay.
    pub delay_ps: Ps,
    /// Delay of a duplicate after the packet; `None`: no duplicate.
    pub copy_after_ps: Option<Ps>,
}

impl Impair {
    /// A link without effects.
    pub fn new(seed: u64, link: u32) -> Self {
        let stream = |kind| SplitMix::new(stream_seed(seed, STREAMS + kind, u64::from(link)));
        Self {
            loss: Chance::NEVER,
            burst: None,
            flow_hole: Chance::NEVER,
            flow_key: stream(0).next_u64(),
            corrupt: Chance::NEVER,
            duplicate: Chance::NEVER,
            duplicate_ps: 0,
            delay: Chance::NEVER,
            delay_ps: 0,
            jitter_ps: 0,
            ecn: EcnFault::None,
            mtu: None,
            loss_rng: stream(1),
            burst_rng: stream(2),
            corrupt_rng: stream(3),
            duplicate_rng: stream(4),
            delay_rng: stream(5),
        }
    }

    /// Sets one effect. Its probabilities were checked when the fault was accepted.
    pub fn set(&mut self, effect: Effect) {
        let chance = |p| Chance::new(p).unwrap_or_default();
        match effect {
            Effect::Loss(p) => self.loss = chance(p),
            Effect::Burst(b) => self.burst = b.map(|b| BurstState::new(&b)),
            Effect::FlowHole(p) => self.flow_hole = chance(p),
            Effect::Corrupt(p) => self.corrupt = chance(p),
            Effect::Duplicate { prob, delay_ps } => {
                (self.duplicate, self.duplicate_ps) = (chance(prob), delay_ps);
            }
            Effect::Delay { prob, fixed_ps, jitter_ps } => {
                (self.delay, self.delay_ps, self.jitter_ps) = (chance(prob), fixed_ps, jitter_ps);
            }
            Effect::Ecn(e) => self.ecn = e,
            Effect::Mtu(m) => self.mtu = m,
        }
    }

    /// Ends all effects; the random streams continue.
    pub fn clear(&mut self) {
        for effect in [
            Effect::Loss(0.0),
            Effect::Burst(None),
            Effect::FlowHole(0.0),
            Effect::Corrupt(0.0),
            Effect::Duplicate { prob: 0.0, delay_ps: 0 },
            Effect::Delay { prob: 0.0, fixed_ps: 0, jitter_ps: 0 },
            Effect::Ecn(EcnFault::None),
            Effect::Mtu(None),
        ] {
            self.set(effect);
        }
    }

    /// Whether any effect is active.
    pub const fn active(&self) -> bool {
        self.loss.possible()
            || self.burst.is_some()
            || self.flow_hole.possible()
            || self.corrupt.possible()
            || self.duplicate.possible()
            || self.delay.possible()
            || !matches!(self.ecn, EcnFault::None)
            || self.mtu.is_some()
    }

    /// Decides the fate of a packet and changes its header accordingly.
    pub fn judge(&mut self, header: &mut Header) -> Fate {
        if let Some(drop) = self.loses(header) {
            return Fate { drop: Some(drop), ..Fate::default() };
        }
        let mut fate = Fate::default();
        if self.corrupt_rng.chance(self.corrupt) {
            header.corrupt = (self.corrupt_rng.next_u64() as u16).max(1);
            fate.corrupted = true;
        }
        match self.ecn {
            EcnFault::None => {}
            EcnFault::Set if header.flags & ECT != 0 => header.flags |= CE,
            EcnFault::Set => {}
            EcnFault::Clear => header.flags &= !CE,
        }
        if self.delay_rng.chance(self.delay) {
            let jitter = self.delay_rng.below(self.jitter_ps.saturating_add(1));
            fate.delay_ps = self.delay_ps.saturating_add(jitter);
        }
        if self.duplicate_rng.chance(self.duplicate) {
            fate.copy_after_ps =
                Some(self.duplicate_rng.below(self.duplicate_ps.saturating_add(1)));
        }
        fate
    }

    fn loses(&mut self, header: &Header) -> Option<DropReason> {
        if self.mtu.is_some_and(|mtu| header.bytes > mtu) {
            return Some(DropReason::Mtu);
        }
        if self.flow_hole.possible() {
            let bits = crate::rng::mix64(self.flow_key ^ u64::from(header.hash));
            if self.flow_hole.hit(bits) {
                return Some(DropReason::FlowHole);
            }
        }
        if self.loss_rng.chance(self.loss) {
            return Some(DropReason::Loss);
        }
        let lost = self.burst.as_mut().is_some_and(|b| b.loses(&mut self.burst_rng));
        lost.then_some(DropReason::BurstLoss)
    }
}

impl BurstState {
    fn new(b: &Burst) -> Self {
        let chance = |p| Chance::new(p).unwrap_or_default();
        Self {
            enter: chance(b.enter),
            leave: chance(b.leave),
            loss_good: chance(b.loss_good),
            loss_bad: chance(b.loss_bad),
            bad: false,
        }
    }
    fn loses(&mut self, rng: &mut SplitMix) -> bool {
        let change = if self.bad { self.leave } else { self.enter };
        self.bad ^= rng.chance(change);
        rng.chance(if self.bad { self.loss_bad } else { self.loss_good })
    }
}
