//! Guards: special cases of congestion control, each of which can be turned off.
//!
//! A guard is a rule that was added because some network or load needed it; congestion control
//! would work without it elsewhere. All guards are on; a measurement turns one off to see its
//! effect (`srd lab run guards`, docs/results/guards.txt). A guard without a benefit in any
//! measurement is deleted.

macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// A special case of congestion control that can be turned off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Guard {
            $($(#[$doc])* $name,)+
        }

        impl Guard {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The guard's name in specifications and tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

guards! {
    /// While little is in flight, a packet takes the most recently clean path (one whose last
    /// packet came back without delay), or the quickest that is known.
    Alone = "alone",
    /// While packets are sent one at a time, a probe of another path follows now and then.
    Explore = "explore",
    /// A retransmission takes the most recently clean path, not the one that has waited longest to
    /// be reused.
    ProofOrder = "proof-order",
    /// A lone acknowledgment takes the most recently clean path.
    AckProof = "ack-proof",
    /// Paths of acknowledgments on which none gets through are replaced.
    AckDead = "ack-dead",
    /// An acknowledgment that the sender seems to have missed is repeated on any path.
    AckRepeat = "ack-repeat",
    /// Somewhat late paths are given up now and then, in proportion to their lateness.
    LateShare = "late-share",
    /// All losses of a path within one RTT count as one loss event.
    LossEvent = "loss-event",
    /// No path is blamed for a loss while nothing is heard from the peer on any path.
    SilenceBlame = "silence-blame",
    /// A spurious loss removes the penalty of its path.
    Acquit = "acquit",
    /// A packet that was retransmitted without blaming its path, and never arrived, is blamed on
    /// the path later.
    ProvedLost = "proved-lost",
    /// One-way delay of an acknowledgment above the recent minimum is subtracted from the RTT.
    WayBack = "way-back",
    /// Delay in the hosts lengthens timers and widens the window.
    HostDelay = "host-delay",
    /// Spurious losses widen the reordering slack.
    Widen = "widen",
    /// A timer declares losses that no later packet can reveal any more.
    Overtaken = "overtaken",
    /// The tail of a burst is sent again before the retransmission timeout (tail-loss probe).
    TailProbe = "tail-probe",
    /// A lone packet is copied even earlier.
    Hedge = "hedge",
    /// The timeout of a packet doubles every few transmissions.
    Doubling = "doubling",
    /// The first window exceeds the bandwidth-delay product of the base RTT.
    QuickStart = "quick-start",
    /// Bytes acknowledged without queueing delay widen the first window.
    OpeningWidens = "opening-widens",
    /// The first round also ends after a maximum time.
    OpeningEnds = "opening-ends",
    /// After a long pause the rate starts again from its initial value.
    Restart = "restart",
    /// Twice the delay target is tolerated while credits are in force.
    CreditedSlack = "credited-slack",
    /// Losses do not cut the rate to the delivery rate while credits are in force.
    CreditedLoss = "credited-loss",
    /// The only sender's grants are not paced.
    LoneGrant = "lone-grant",
    /// Slow senders tolerate more queueing delay than fast ones.
    TargetSlope = "target-slope",
    /// A queue that all paths share is tolerated less than one that differs between paths.
    SharedQueue = "shared-queue",
    /// A steady delay that less sending does not shorten raises the base RTT.
    StaleBase = "stale-base",
    /// A sender holds its own against others that keep a queue which no sender would tolerate.
    Rivals = "rivals",
    /// Delay alone does not bring the rate below a burst per RTT.
    LosslessFloor = "lossless-floor",
    /// Below a packet per RTT, delay does not reduce the rate.
    PacketFloor = "packet-floor",
    /// Increases are larger after several rounds without a queue.
    QuickSteps = "quick-steps",
    /// An increase has a part that does not depend on the line rate.
    PacketStep = "packet-step",
    /// The rate is reduced when less was delivered than sent.
    Short = "short",
    /// A decrease is followed by a round without one.
    Hold = "hold",
    /// The rate is reduced after many losses without delay.
    Lossy = "lossy",
    /// Many losses with delay cut the rate to the delivery rate.
    HeavyLoss = "heavy-loss",
    /// A decrease starts from at most twice the delivery rate, not from a rate that was never used.
    UsedRate = "used-rate",
    /// Differences of delay between paths count as noise, not as a queue.
    Uneven = "uneven",
    /// An ECN mark counts as a queueing delay of at least the target.
    Mark = "mark",
    /// A first round in which most packets were marked lowers the rate to twice what was delivered.
    MarkedStart = "marked-start",
    /// After the start what is in flight at most doubles per round.
    Growth = "growth",
    /// Marks of all packets for many round trips lower the rate.
    MarkedOn = "marked-on",
    /// After a start that lost packets, the first window after the next pause is smaller.
    KnownStart = "known-start",
    /// Losses that do not end cap the rate at what is delivered.
    LossCap = "loss-cap",
    /// Where a full buffer is proven, a share of its delay is the target.
    FullBuffer = "full-buffer",
    /// All addresses together send at most at the rate of the port, in turn.
    PortTurns = "port-turns",
    /// Drops in the peer's receive queue reduce the inflight cap.
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

    /// The same set with one guard off.
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
