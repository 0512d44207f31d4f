//! Types for numbers of different kinds, so that they cannot be mixed up.

/// Number of a reliability context in its engine, one per remote engine. It is reused after the
/// context has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ctx(pub u32);

impl Ctx {
    /// As an index of tables by context.
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// This engine's tag of a context: arriving packets carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct OwnTag(pub u32);

impl OwnTag {
    /// That of no context.
    pub const NONE: Self = Self(0);
}

/// The peer's tag of a context: packets sent to the peer carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PeerTag(pub u32);

impl PeerTag {
    /// The tag of no context, or of an unknown one.
    pub const NONE: Self = Self(0);
}

/// Number of a read being served to a peer, unique in its engine for 2^32 reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct JobId(pub u32);

impl JobId {
    /// The number of the next read.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Number of the place of a read being served, in its engine. It is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(pub u32);

impl Place {
    /// As an index of the table of places.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a path and rate context in its engine: one per remote address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Way(pub u32);

impl Way {
    /// As an index of the table of addresses.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a network of peers' addresses in its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network(pub u32);

impl Network {
    /// As an index of the table of networks.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
