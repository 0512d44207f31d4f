//! Deliberate bugs of sealing, to measure which ones the fault checker finds. They exist only in
//! builds with `--cfg planted_bugs`, where one of them can be turned on at run time.

use core::sync::atomic::{AtomicU32, Ordering};

/// Numbers of these bugs are above this one, so that lists of other crates can grow below.
pub const FIRST: u32 = 200;

static ON: AtomicU32 = AtomicU32::new(0);

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A bug. Its number is [`FIRST`] and its place in the list, from 1 on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Bug {
            /// None of them.
            None,
            $($(#[$doc])* $name,)+
        }

        /// Number, name and area of every bug.
        pub fn all() -> Vec<(u32, &'static str, &'static str)> {
            vec![$((FIRST + Bug::$name as u32, stringify!($name), "seals"),)+]
        }
    };
}

bugs! {
    /// A CloseAck is sealed with the first number of the context instead of its own.
    CloseAckNonceFixed,
    /// The number of a packet counts as the newest before its seal was checked.
    NumberBeforeSeal,
    /// A packet whose flag says that it is not sealed is taken for one that was opened.
    StrippedTaken,
    /// The sender begins an epoch one number too early.
    EpochOffByOne,
    /// A Reset without a seal is taken for a sealed one.
    ResetBelieved,
    /// Each copy of a SealedOpen gets an answer of its own, with other keys.
    OpenAckRebuilt,
    /// Both directions are sealed with the initiator's secret.
    KeyOfOneDirection,
    /// The path in the header is not authenticated.
    PathUnbound,
    /// The policy `require` is taken for `prefer`.
    RequireIgnored,
    /// The keyed hash of a SealedOpen is not checked.
    OpenMacUnchecked,
    /// The keyed hash of a ContextGone is not checked.
    GoneMacUnchecked,
    /// The key of the epoch before is erased when the next begins.
    EpochBeforeErased,
    /// Contexts whose pre-shared key was removed go on.
    RetiredKept,
    /// Keys of ended contexts are kept.
    KeysKept,
    /// A copy of a sealed Open from another address speaks for that address.
    AddressUnbound,
    /// Handshakes that were begun with the key before are repeated when the first key changes.
    HandshakesKept,
}

/// Turns bug `n` on; any number that none of these bugs has turns all off.
pub fn plant(n: u32) {
    ON.store(n.saturating_sub(FIRST), Ordering::Relaxed);
}

/// Whether `bug` is on.
pub fn on(bug: Bug) -> bool {
    ON.load(Ordering::Relaxed) == bug as u32
}
