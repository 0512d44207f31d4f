//! Faults as plain data, which the world applies at their time.

use crate::rng::Chance;
use crate::topo::{CableId, HostId, LinkId, Ps, SwitchId, Topology};
use std::fmt;

/// The links that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One direction of a cable.
    Link(LinkId),
    /// Both directions.
    Cable(CableId),
    /// Every link into and out of a switch.
    Switch(SwitchId),
    /// Both directions of a host's cable.
    Host(HostId),
    /// Every link between switches.
    Core,
    /// Every link.
    All,
}

/// Gilbert-Elliott loss: a link is in a good or a bad state and may change it with every packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Probability of entering the bad state, per packet.
    pub enter: f64,
    /// Probability of leaving the bad state, per packet: bursts last `1 / leave` packets on
    /// average.
    pub leave: f64,
    /// Loss probability in the good state.
    pub loss_good: f64,
    /// Loss probability in the bad state.
    pub loss_bad: f64,
}

/// Effect of a link on the ECN bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnFault {
    /// None, as in a healthy link.
    None,
    /// Marks every ECN-capable packet.
    Set,
    /// Removes every mark.
    Clear,
}

/// An effect of a link on the packets that crossed its wire. Each kind is set independently and
/// draws from its own random stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Random loss of each packet with this probability (gray failure). 0 ends it.
    Loss(f64),
    /// Random loss in bursts. `None` ends it.
    Burst(Option<Burst>),
    /// Loss of all packets of this share of flows (chosen by a hash of addresses and ports); other
    /// flows lose nothing. 0 ends it.
    FlowHole(f64),
    /// Damages each packet with this probability. 0 ends it.
    Corrupt(f64),
    /// Delivers a second copy with this probability, up to `delay_ps` later. 0 ends it.
    Duplicate {
        /// Probability per packet.
        prob: f64,
        /// Upper bound of the copy's delay after the original, which is uniform in `0..=delay_ps`.
        delay_ps: Ps,
    },
    /// Delays packets, which causes reordering. Zeros end it.
    Delay {
        /// Probability that a packet is delayed.
        prob: f64,
        /// Added to every delayed packet.
        fixed_ps: Ps,
        /// Additional delay, uniform in `0..=jitter_ps`.
        jitter_ps: Ps,
    },
    /// Sets ECN marks that no queue made, or removes marks.
    Ecn(EcnFault),
    /// Drops packets larger than this on the wire. `None` ends it.
    Mtu(Option<u32>),
}

/// A change of the network at one time. `routing` is the delay until routing reacts, when the link
/// leaves or rejoins the ECMP groups; `None` = routing never reacts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Carrier lost: queued packets and packets on the wire are lost, later ones are dropped.
    Down {
        /// Links.
        at: Target,
        /// Delay until routing avoids them.
        routing: Option<Ps>,
    },
    /// Carrier back.
    Up {
        /// Links.
        at: Target,
        /// Delay until routing uses them.
        routing: Option<Ps>,
    },
    /// Down for `down_ps`, up for `up_ps`, `times` times.
    Flap {
        /// Links.
        at: Target,
        /// Length of an outage.
        down_ps: Ps,
        /// Time between outages.
        up_ps: Ps,
        /// Number of outages.
        times: u32,
        /// Delay until routing reacts to each change (it acts on the state at that time).
        routing: Option<Ps>,
    },
    /// Links appear up and accept packets, but lose them.
    BlackHole {
        /// Links.
        at: Target,
        /// Delay until routing avoids them.
        routing: Option<Ps>,
    },
    /// Ends [`Fault::BlackHole`].
    BlackHoleEnd {
        /// Links.
        at: Target,
        /// Delay until routing uses them.
        routing: Option<Ps>,
    },
    /// A switch accepts packets and loses all of them.
    SwitchHole {
        /// Switch.
        switch: SwitchId,
        /// Delay until routing avoids it.
        routing: Option<Ps>,
    },
    /// Ends [`Fault::SwitchHole`].
    SwitchHoleEnd {
        /// Switch.
        switch: SwitchId,
        /// Delay until routing uses it.
        routing: Option<Ps>,
    },
    /// A switch goes down: its links lose carrier and its queues are lost.
    SwitchDown {
        /// Switch.
        switch: SwitchId,
        /// Delay until routing avoids it.
        routing: Option<Ps>,
    },
    /// A switch comes up again with another hash seed, so flows take other paths.
    SwitchUp {
        /// Switch.
        switch: SwitchId,
        /// The new hash seed; `None` = the next of the switch's own stream.
        hash_seed: Option<u64>,
        /// Delay until routing uses it.
        routing: Option<Ps>,
    },
    /// A switch changes its hash seed: live flows change paths.
    Rehash {
        /// Switch.
        switch: SwitchId,
        /// The new hash seed; `None` = the next of the switch's own stream.
        hash_seed: Option<u64>,
    },
    /// Links run at a share of their built rate, in percent, 1 to 1000; 100 ends it. Queued bytes
    /// leave at the new rate.
    Rate {
        /// Links.
        at: Target,
        /// Percent of the built rate.
        percent: u32,
    },
    /// Queue limits change to `bytes` (queued packets stay); `None` = as built.
    Buffer {
        /// Links.
        at: Target,
        /// New limit.
        bytes: Option<u64>,
    },
    /// Sets one [`Effect`].
    Impair {
        /// Links.
        at: Target,
        /// The effect, or its neutral value to end it.
        effect: Effect,
    },
    /// A host stops for a while: packets, timers and calls are held until the end; packets beyond
    /// [`crate::WorldConfig::host_hold_bytes`] are dropped.
    HostStall {
        /// Host.
        host: HostId,
        /// Duration.
        for_ps: Ps,
    },
    /// A host's ring drains at a share of its configured rate, in percent, 1 to 1000; 100 ends it.
    /// Waiting bytes are written at the new rate.
    HostDrain {
        /// Host.
        host: HostId,
        /// Percent of the configured rate.
        percent: u32,
    },
    /// Ends all faults, with immediate convergence of routing: links, switches, rates, buffers,
    /// effects, drains. Stalled hosts continue at once. Hash seeds stay. Remaining outages of a
    /// [`Fault::Flap`] still occur.
    HealAll,
}

/// Faults in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// `(time, fault)` in any order; faults of the same time are applied in the order given.
    pub events: Vec<(Ps, Fault)>,
}

/// Why a fault was refused. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultError(String);

impl FaultError {
    /// An error with a text that says what to change.
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for FaultError {}

impl Target {
    /// The affected links, in order.
    pub(crate) fn links(self, topo: &Topology) -> Vec<LinkId> {
        let both = |cables: &mut dyn Iterator<Item = CableId>| -> Vec<LinkId> {
            cables.flat_map(|c| [c.up(), c.down()]).collect()
        };
        match self {
            Self::Link(link) => vec![link],
            Self::Cable(cable) => vec![cable.up(), cable.down()],
            Self::Switch(s) => both(&mut topo.cables_of(crate::topo::Node::Switch(s))),
            Self::Host(h) => both(&mut topo.cables_of(crate::topo::Node::Host(h))),
            Self::Core => both(&mut topo.core_cables()),
            Self::All => (0..topo.links()).map(LinkId).collect(),
        }
    }

    fn check(self, topo: &Topology) -> Result<(), FaultError> {
        let ok = match self {
            Self::Link(l) => l.0 < topo.links(),
            Self::Cable(c) => c.0 < topo.links() / 2,
            Self::Switch(s) => s.0 < topo.switches(),
            Self::Host(h) => h.0 < topo.hosts(),
            Self::Core | Self::All => true,
        };
        ok.then_some(()).ok_or_else(|| {
            FaultError(format!("{self:?} is not in the topology, which has {}", sizes(topo)))
        })
    }
}

fn sizes(topo: &Topology) -> String {
    let (h, s, l) = (topo.hosts(), topo.switches(), topo.links());
    format!("{h} hosts, {s} switches and {l} links")
}

impl Fault {
    /// Checks numbers and targets.
    ///
    /// # Errors
    /// A target outside the topology, a probability outside `0..=1`, a percentage outside
    /// `1..=1000`, a flap of zero length.
    pub fn check(&self, topo: &Topology) -> Result<(), FaultError> {
        match *self {
            Self::Down { at, .. }
            | Self::Up { at, .. }
            | Self::BlackHole { at, .. }
            | Self::BlackHoleEnd { at, .. }
            | Self::Buffer { at, .. } => at.check(topo),
            Self::SwitchHole { switch, .. }
            | Self::SwitchHoleEnd { switch, .. }
            | Self::SwitchDown { switch, .. }
            | Self::SwitchUp { switch, .. }
            | Self::Rehash { switch, .. } => Target::Switch(switch).check(topo),
            Self::HostStall { host, .. } => Target::Host(host).check(topo),
            Self::HostDrain { host, percent } => {
                Target::Host(host).check(topo)?;
                percent_check("drain", percent)
            }
            Self::Flap { at, down_ps, up_ps, .. } => {
                at.check(topo)?;
                if down_ps == 0 || up_ps == 0 {
                    return Err(FaultError("a flap needs down_ps and up_ps above 0".into()));
                }
                Ok(())
            }
            Self::Rate { at, percent } => {
                at.check(topo)?;
                rate_check(&at.links(topo), percent, topo)
            }
            Self::Impair { at, effect } => {
                at.check(topo)?;
                effect.check()
            }
            Self::HealAll => Ok(()),
        }
    }
}

fn percent_check(what: &str, percent: u32) -> Result<(), FaultError> {
    if (1..=1000).contains(&percent) {
        return Ok(());
    }
    Err(FaultError(format!("{what} {percent} %: give 1 to 1000")))
}

fn rate_check(links: &[LinkId], percent: u32, topo: &Topology) -> Result<(), FaultError> {
    percent_check("rate", percent)?;
    let slow = |l: &&LinkId| topo.port(**l).bits_per_s as u128 * (percent as u128) < 100_000_000;
    match links.iter().find(slow) {
        Some(l) => {
            let name = topo.link_name(*l);
            Err(FaultError(format!("{percent} % of {name} is below 1 Mb/s: give a larger share")))
        }
        None => Ok(()),
    }
}

impl Effect {
    fn check(&self) -> Result<(), FaultError> {
        let probs: [f64; 4] = match *self {
            Self::Loss(p) | Self::FlowHole(p) | Self::Corrupt(p) => [p; 4],
            Self::Duplicate { prob, .. } | Self::Delay { prob, .. } => [prob; 4],
            Self::Burst(Some(b)) => [b.enter, b.leave, b.loss_good, b.loss_bad],
            Self::Burst(None) | Self::Ecn(_) | Self::Mtu(_) => [0.0; 4],
        };
        match probs.iter().find(|p| Chance::new(**p).is_none()) {
            Some(p) => Err(FaultError(format!("probability {p} in {self:?}: give 0 to 1"))),
            None => Ok(()),
        }
    }
}
