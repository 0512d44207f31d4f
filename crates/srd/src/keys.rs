//! Keys and access rights: each has a type of its own, so that none can be taken for another.

use core::{
    fmt,
    ops::{BitOr, BitOrAssign},
};

/// Declares a key: a number of 32 bits that is shown in decimal.
macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

key! {
    /// Local key of a memory region: names it in an [`Sge`](crate::Sge). It never leaves the
    /// process.
    LKey
}

key! {
    /// Remote key of a memory region: peers name the region by it in RDMA requests. Whoever knows
    /// it and has access to the network can do what the region's [`Access`] allows.
    RKey
}

key! {
    /// Q_Key of a queue pair: a message or RDMA request is refused unless it carries the one with
    /// which the destination was activated. Choose a random one for each start of a program, so
    /// that requests meant for a former process are refused. It is no secret: packets carry it.
    QKey
}

/// Access rights of a memory region, combined with `|`. The device may always read it.
///
/// ```
/// use srd::Access;
///
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
/// assert!(rights.allows(Access::REMOTE_READ) && !rights.allows(Access::REMOTE_WRITE));
/// assert_eq!(format!("{rights:?}"), "Access(LOCAL_WRITE | REMOTE_READ)");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// No right but the device's to read it: a source of sends and writes.
    pub const NONE: Self = Self(0);
    /// The device may write into the region: receives, and the data of reads.
    pub const LOCAL_WRITE: Self = Self(srd_core::Access::LOCAL_WRITE);
    /// Peers may write into the region; needs `LOCAL_WRITE`, too.
    pub const REMOTE_WRITE: Self = Self(srd_core::Access::REMOTE_WRITE);
    /// Peers may read the region.
    pub const REMOTE_READ: Self = Self(srd_core::Access::REMOTE_READ);
    /// All rights.
    pub const ALL: Self = Self(Self::LOCAL_WRITE.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0);

    /// The names of the rights, as `Debug` shows them.
    const NAMES: [(Self, &'static str); 3] = [
        (Self::LOCAL_WRITE, "LOCAL_WRITE"),
        (Self::REMOTE_WRITE, "REMOTE_WRITE"),
        (Self::REMOTE_READ, "REMOTE_READ"),
    ];

    /// The rights as a number: 1 local write, 2 remote write, 4 remote read.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The rights of which this is the number; `None` if a bit stands for no right.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Whether all the rights in `other` are given.
    pub const fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As the engine has them.
    pub(crate) const fn to_core(self) -> srd_core::Access {
        srd_core::Access(self.0)
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = Self::NAMES.iter().filter(|(right, _)| self.allows(*right));
        let names: Vec<&str> = given.map(|(_, name)| *name).collect();
        write!(
            f,
            "Access({})",
            if names.is_empty() { "NONE".to_owned() } else { names.join(" | ") }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_and_numbers_go_both_ways_and_unknown_bits_are_refused() {
        for bits in 0..=u8::MAX {
            let access = Access::from_bits(bits);
            assert_eq!(access.map(Access::bits), (bits < 8).then_some(bits));
            let Some(access) = access else { continue };
            let named = Access::NAMES.iter().filter(|(right, _)| access.allows(*right));
            let sum = named.fold(Access::NONE, |all, (right, _)| all | *right);
            assert_eq!(sum, access);
            assert_eq!(access.to_core(), srd_core::Access(bits), "the engine's bits are the same");
        }
        assert_eq!(format!("{:?}", Access::default()), "Access(NONE)");
    }
}
