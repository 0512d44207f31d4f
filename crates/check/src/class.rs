//! The classes of faults. Each world has a random subset of them (swarm testing): a fault that is
//! always on hides what happens without it.

/// A class of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Independent loss on every link.
    Loss,
    /// Loss in bursts (Gilbert-Elliott).
    Burst,
    /// Packets arrive twice.
    Duplicate,
    /// Some cables are slower than others: paths reorder.
    Skew,
    /// A few packets are delayed for long.
    Spike,
    /// Bits flip; the UDP checksum drops the packet.
    Corrupt,
    /// Truncated, random and forged packets from strangers.
    Garbage,
    /// A cable takes packets and loses them.
    BlackHole,
    /// One direction of a cable, or a share of its flows, vanishes.
    OneWay,
    /// A cable goes up and down.
    Flap,
    /// A cable loses 1 to 20 %.
    Gray,
    /// A switch dies and comes back.
    SwitchDeath,
    /// A switch hashes anew: live entropy takes other ways.
    Rehash,
    /// Small buffers and slow links: queues overflow.
    Overflow,
    /// ECN marks wiped or set on every packet.
    Ecn,
    /// A cable drops large packets.
    Mtu,
    /// Receives are posted late.
    Rnr,
    /// Small completion queues, polled late.
    CqFull,
    /// A host stops for a while.
    HostStall,
    /// An engine is killed and started again.
    Restart,
    /// Packets of the past arrive again, also those meant for a former life of the engine.
    Stale,
    /// Timers fire late and coarsely, the clock leaps ahead.
    Clock,
    /// The card refuses packets, sends come in partial batches, receives in bursts.
    Backpressure,
    /// Address handles, regions and queue pairs are destroyed in flight.
    Churn,
    /// A peer that holds tags and lies.
    Liar,
    /// Datagrams with flipped bits are delivered.
    Damage,
    /// Engines die with work under way and never return.
    Dead,
    /// A socket never runs empty.
    Busy,
    /// Two devices in one process, on two networks.
    Rails,
    /// Many messages are refused at once: receives come late.
    Late,
    /// Strangers flood an engine with handshakes, resets and unknown tags.
    Flood,
    /// Ways carry less than full packets, or only look so; engines look for the size that passes.
    Narrow,
}

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 32;
    /// Number of those that worlds of honest members have: the first ones.
    pub const ORDINARY: usize = 24;
    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Loss,
        Self::Burst,
        Self::Duplicate,
        Self::Skew,
        Self::Spike,
        Self::Corrupt,
        Self::Garbage,
        Self::BlackHole,
        Self::OneWay,
        Self::Flap,
        Self::Gray,
        Self::SwitchDeath,
        Self::Rehash,
        Self::Overflow,
        Self::Ecn,
        Self::Mtu,
        Self::Rnr,
        Self::CqFull,
        Self::HostStall,
        Self::Restart,
        Self::Stale,
        Self::Clock,
        Self::Backpressure,
        Self::Churn,
        Self::Liar,
        Self::Damage,
        Self::Dead,
        Self::Busy,
        Self::Rails,
        Self::Late,
        Self::Flood,
        Self::Narrow,
    ];
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(pub u32);

impl Classes {
    /// Every class.
    pub const ALL: Self = Self(u32::MAX >> (u32::BITS - Class::COUNT as u32));
    /// Those of worlds whose members all keep to the protocol.
    pub const ORDINARY: Self = Self((1 << Class::ORDINARY) - 1);
    /// Those of worlds with hostile members.
    pub const HOSTILE: Self = Self(Self::ALL.0 & !Self::ORDINARY.0);
    /// Whether `c` is in the set.
    pub const fn has(self, c: Class) -> bool {
        self.0 >> c as u8 & 1 == 1
    }
    /// With `c`.
    #[must_use]
    pub const fn with(self, c: Class) -> Self {
        Self(self.0 | 1 << c as u8)
    }
    /// Without `c`.
    #[must_use]
    pub const fn without(self, c: Class) -> Self {
        Self(self.0 & !(1 << c as u8))
    }
    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// Its members, in order.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |&c| self.has(c))
    }
}

impl core::fmt::Display for Classes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<String> = self.iter().map(|c| format!("{c:?}")).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(" "))
    }
}
