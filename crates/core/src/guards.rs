//! Guards: special cases of the law of congestion, each of which can be turned off.
//!
//! A guard is a rule that the law would work without, added because some network or load needed
//! it. All are on; a measurement turns one off to see what it is worth (`srd lab run guards`,
//! docs/results/guards.txt). What pays nowhere is deleted.

macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// A special case of the law that can be turned off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Guard {
            $($(#[$doc])* $name,)+
        }

        impl Guard {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name in specifications and tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

guards! {
    /// Once nothing is in flight, a packet takes the path that came back clean last.
    Alone = "alone",
    /// While packets leave alone, a probe of another path follows now and then.
    Explore = "explore",
    /// A lost packet takes the path that came back clean last, not the one that waits longest.
    ProofOrder = "proof-order",
    /// A lone acknowledgment takes the path that came back clean last.
    AckProof = "ack-proof",
    /// Return paths on which nothing gets through are replaced.
    AckDead = "ack-dead",
    /// An acknowledgment that the sender seems to have missed is repeated on any path.
    AckRepeat = "ack-repeat",
    /// Paths that are somewhat late are given up in proportion to their lateness.
    LateShare = "late-share",
    /// What a path loses within one RTT is one event.
    LossEvent = "loss-event",
    /// No path is blamed for a loss while the peer is silent as well.
    SilenceBlame = "silence-blame",
    /// A loss that turns out to be none takes the blame back.
    Acquit = "acquit",
    /// A packet that was repeated without blame, and never arrived, is blamed on its path later.
    ProvedLost = "proved-lost",
    /// What an acknowledgment's own way took too long is taken out of the round trip.
    WayBack = "way-back",
    /// What hosts take of a round trip lengthens timers and widens the window.
    HostDelay = "host-delay",
    /// Spurious losses widen the reordering slack.
    Widen = "widen",
    /// A timer tells losses that nothing sent later can tell any more.
    Overtaken = "overtaken",
    /// The tail of a burst is sent again early.
    TailProbe = "tail-probe",
    /// A lone packet is copied still earlier.
    Hedge = "hedge",
    /// A packet that was sent often waits longer.
    Doubling = "doubling",
    /// The first window holds more than the base RTT.
    QuickStart = "quick-start",
    /// Bytes that come back without a queue widen the first window.
    OpeningWidens = "opening-widens",
    /// The first round ends by time, too.
    OpeningEnds = "opening-ends",
    /// After a long pause the rate is that of the start.
    Restart = "restart",
    /// Three delay targets are tolerated while credits are in force.
    CreditedSlack = "credited-slack",
    /// Losses do not cut the rate to what was delivered while credits are in force.
    CreditedLoss = "credited-loss",
    /// The only sender's grants are not paced.
    LoneGrant = "lone-grant",
    /// Slow senders tolerate a longer queue than quick ones.
    TargetSlope = "target-slope",
    /// Delay alone does not bring the rate below a burst per RTT.
    LosslessFloor = "lossless-floor",
    /// Below a packet per RTT, delay says nothing.
    PacketFloor = "packet-floor",
    /// Increases quicken where no queue is.
    QuickSteps = "quick-steps",
    /// An increase has a part that does not depend on the line.
    PacketStep = "packet-step",
    /// Less delivered than sent slows down.
    Short = "short",
    /// A decrease is followed by a round without.
    Hold = "hold",
    /// Losses without delay slow down.
    Lossy = "lossy",
    /// Many losses with delay cut the rate to what was delivered.
    HeavyLoss = "heavy-loss",
    /// A decrease begins at a rate that was used.
    UsedRate = "used-rate",
    /// What differs between paths is noise, not queue.
    Uneven = "uneven",
    /// A mark says "no faster".
    Mark = "mark",
    /// Drops of the peer's receive queue bound what is in flight.
    DropCap = "drop-cap",
}

/// Which guards are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guards(u64);

impl Default for Guards {
    fn default() -> Self {
        Self::ALL
    }
}

impl Guards {
    /// All of them.
    pub const ALL: Self = Self(u64::MAX);

    /// The same with one off.
    #[must_use]
    pub const fn without(self, guard: Guard) -> Self {
        Self(self.0 & !(1 << guard as u8))
    }

    /// Whether a guard is on.
    #[inline(always)]
    pub const fn has(self, guard: Guard) -> bool {
        self.0 >> guard as u8 & 1 == 1
    }
}

const _: () = assert!(Guard::ALL.len() <= 64, "one bit each");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_turned_off_alone() {
        for &guard in Guard::ALL {
            let left = Guards::default().without(guard);
            let off: Vec<_> = Guard::ALL.iter().filter(|g| !left.has(**g)).collect();
            assert_eq!(off, [&guard], "{}", guard.name());
        }
    }
}
