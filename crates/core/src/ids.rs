//! Numbers that must not be taken for each other.

/// Number of a reliability context in its engine: one per remote engine. It is used again for
/// another one after the context has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ctx(pub u32);

impl Ctx {
    /// As an index of tables by context.
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
