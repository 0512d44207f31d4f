//! The classes of faults. Each world has a random subset of them (swarm testing), since a fault
//! that is always present hides what happens without it.

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
    /// Some cables are slower than others, so that paths reorder.
    Skew,
    /// A few packets are delayed for a long time.
    Spike,
    /// Bits flip; the UDP checksum drops the packet.
    Corrupt,
    /// Truncated, random and forged packets from strangers.
    Garbage,
    /// A cable accepts packets and loses all of them.
    BlackHole,
    /// A cable loses all packets in one direction, or a share of its flows.
    OneWay,
    /// A cable goes up and down.
    Flap,
    /// A cable loses 1 to 20 % of its packets.
    Gray,
    /// A switch dies and comes back.
    SwitchDeath,
    /// A switch changes its ECMP hash: flows take other paths.
    Rehash,
    /// Small buffers and slow links: queues overflow.
    Overflow,
    /// ECN marks are cleared, or set on every packet.
    Ecn,
    /// A cable drops large packets.
    Mtu,
    /// Receives are posted late.
    Rnr,
    /// Small completion queues that are polled late.
    CqFull,
    /// A host stands still for a while.
    HostStall,
    /// An engine is killed and restarted.
    Restart,
    /// Old packets arrive again, also those sent to a former incarnation of the engine.
    Stale,
    /// Timers fire late and coarsely, and the clock leaps ahead.
    Clock,
    /// The NIC refuses packets; sends leave in partial batches, receives arrive in bursts.
    Backpressure,
    /// Address handles, regions and queue pairs are destroyed while in use.
    Churn,
    /// A peer that holds valid tags and sends false information.
    Liar,
    /// Datagrams with flipped bits are delivered.
    Damage,
    /// Engines die with requests outstanding and never return.
    Dead,
    /// A socket that is never empty.
    Busy,
    /// Two devices in one process, on two networks.
    Rails,
    /// Devices over two networks, one of which goes down for one host.
    RailDown,
    /// Many messages get RNR at once, because receives are posted late.
    Late,
    /// Strangers flood an engine with handshakes, resets and unknown tags.
    Flood,
    /// Paths with a smaller MTU, or faults that look like one; engines search for the packet size.
    Narrow,
    /// Engines behind layers that seal, and an attacker on the network.
    Sealed,
    /// Many senders before one bottleneck: a policer, a short buffer, marks of a switch, a bad
    /// link.
    Crowd,
    /// The same with what the engine does not master yet: a full buffer that is long enough to be
    /// proven, a link that loses 15 %.
    CrowdHard,
}

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 36;
    /// Number of classes whose worlds have honest members only; they are the first ones.
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
        Self::RailDown,
        Self::Late,
        Self::Flood,
        Self::Narrow,
        Self::Sealed,
        Self::Crowd,
        Self::CrowdHard,
    ];
}

/// A number for each class, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerClass([u64; Class::COUNT]);

impl Default for PerClass {
    fn default() -> Self {
        Self([0; Class::COUNT])
    }
}

impl core::ops::Deref for PerClass {
    type Target = [u64; Class::COUNT];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl core::ops::DerefMut for PerClass {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(pub u64);

impl Classes {
    /// Every class.
    pub const ALL: Self = Self(u64::MAX >> (u64::BITS - Class::COUNT as u32));
    /// Classes of worlds whose members all follow the protocol.
    pub const ORDINARY: Self = Self((1 << Class::ORDINARY) - 1);
    /// Classes of worlds with hostile members.
    pub const HOSTILE: Self =
        Self(Self::ALL.0 & !Self::ORDINARY.0 & !Self::SEALED.0 & !Self::CROWD.0);
    /// The class of worlds whose engines seal.
    pub const SEALED: Self = Self(1 << Class::Sealed as u8);
    /// The classes of worlds with a crowd before a bottleneck.
    pub const CROWD: Self = Self(1 << Class::Crowd as u8 | 1 << Class::CrowdHard as u8);
    /// Whether `c` is in the set.
    pub const fn has(self, c: Class) -> bool {
        self.0 >> c as u8 & 1 == 1
    }
    /// The set with `c` added.
    #[must_use]
    pub const fn with(self, c: Class) -> Self {
        Self(self.0 | 1 << c as u8)
    }
    /// The set without `c`.
    #[must_use]
    pub const fn without(self, c: Class) -> Self {
        Self(self.0 & !(1 << c as u8))
    }
    /// The intersection of both sets.
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
