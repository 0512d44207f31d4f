//! Numbers that must not be taken for each other.

/// Number of a reliability context in its engine: one per remote engine. It is used again for
/// another one after the context has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ctx(pub u32);

impl Ctx {
    /// As an index of tables by context.
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Our tag of a context: packets to us carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct OwnTag(pub u32);

impl OwnTag {
    /// That of no context.
    pub const NONE: Self = Self(0);
}

/// The peer's tag of a context: packets to the peer carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PeerTag(pub u32);

impl PeerTag {
    /// That of no context, or one that is not known.
    pub const NONE: Self = Self(0);
}

/// Number of a read that is served to a peer, among those of its engine. Numbers come again only
/// after 2^32 reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct JobId(pub u32);

impl JobId {
    /// The number of the next read.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Number of a place of a read that is served, in its engine. It is used again.
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
