//! Deliberate bugs, to measure which ones the fault checker finds. They exist only in builds with
//! `--cfg planted_bugs`, where one of them can be turned on at run time.

use core::sync::atomic::{AtomicU32, Ordering};

/// A string in every program that contains the bugs, so that a test can search for it.
pub const MARK: &str = "software-srd has planted bugs";

static ON: AtomicU32 = AtomicU32::new(0);

macro_rules! bugs {
    ($($area:literal: $($(#[$doc:meta])* $name:ident,)+)+) => {
        /// A bug. Its number is its place in the list, from 1 on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Bug {
            /// None of them.
            None,
            $($($(#[$doc])* $name,)+)+
        }

        /// Number, name and area of every bug.
        pub fn all() -> Vec<(u32, &'static str, &'static str)> {
            vec![$($((Bug::$name as u32, stringify!($name), $area),)+)+]
        }
    };
}

bugs! {
    "dedup":
    /// Everything below the window is new.
    DedupForgetsOld,
    /// What arrived out of order is new again.
    DedupIgnoresBits,
    /// Bits of a full turn ago stay.
    WindowKeepsBits,
    /// Any transmission number is new.
    ReplayTakesAll,
    "acknowledgments":
    /// The cumulative acknowledgment jumps over a gap.
    AckJumpsGap,
    /// The bitmap is off by one.
    AckBitmapShifted,
    "verdicts":
    /// No refusal is kept.
    VerdictNotKept,
    /// Refusals are told once.
    VerdictToldOnce,
    /// Refusals that find no room are acknowledged all the same.
    VerdictOverflowAcked,
    /// Refusals go when anything is heard of the peer.
    VerdictRetiredEarly,
    /// A refused request succeeds.
    VerdictIgnored,
    "RNR":
    /// Retries are not counted.
    RnrUncounted,
    /// One retry too few.
    RnrOneTooFew,
    /// The whole message comes again, not its immediate alone.
    RnrWholeAgain,
    /// A back-off beside another one is forgotten.
    RnrBackoffForgotten,
    /// A message that is too long consumes the receive.
    TooLongConsumes,
    /// The immediate is delivered and refused.
    ImmediateTwice,
    "windows":
    /// The peer's window is one smaller than the sender thinks.
    WindowOneMore,
    /// The lower edge told is the upper one.
    UnaAhead,
    "wrap":
    /// PSNs are compared as plain numbers.
    PsnUnsigned,
    /// Transmission numbers keep their upper half for ever.
    TxNumHighKept,
    "tags and epochs":
    /// A packet with an unknown tag is taken for its sender's context.
    TagUnchecked,
    /// Tags are counted, so that a new life gives out those of the old one.
    TagCounted,
    /// A new life of the peer continues the old context.
    RestartContinues,
    /// Work cut off by a restart succeeds.
    AbortSucceeds,
    "placement":
    /// A write goes one byte too far.
    WriteShifted,
    /// Every response goes to the start.
    ReadAtStart,
    /// A message goes into the neighbouring receive.
    ReceiveNeighbour,
    /// A request ends with its first segment.
    FirstSegmentCompletes,
    /// A datagram goes where the header area is.
    DatagramAtStart,
    /// A response to a request that is over is taken.
    ReadLateTaken,
    "RDMA bounds":
    /// A region is one byte longer.
    RegionOneMore,
    /// Rights are not checked.
    RightsUnchecked,
    /// Protection domains are not checked.
    DomainUnchecked,
    /// A key finds whatever has its place.
    KeyStale,
    /// A region that goes away is read on.
    RegionReadOn,
    /// Keys of queue pairs are not checked.
    QkeyUnchecked,
    "credits":
    /// Ended reads keep their credit.
    ReadCreditLost,
    /// Cancelled messages keep their credit.
    ImmediateCreditLost,
    /// Late segments revive a cancelled message.
    CancelForgotten,
    "inflight":
    /// A tail probe leaves its original in flight.
    TailProbeLeaks,
    /// A context that ends leaves its packets in flight.
    EndLeaks,
    /// A stalled context keeps its packets in flight.
    StallLeaks,
    "timers":
    /// A timer that has fired is not set again.
    TimerOnce,
    /// The heap of timers loses its order.
    TimerDisorder,
    /// An Open is sent once.
    OpenOnce,
    /// A silent peer is never asked.
    StallUnprobed,
    "path health":
    /// A retired path is chosen like any other.
    PathRetiredChosen,
    /// The last paths are retired, too.
    PathLeastForgotten,
    /// Nobody is told that a path is back.
    PathReturnUntold,
    /// What was lost goes again on the path that lost it.
    PathNotAvoided,
    "scheduling":
    /// Of those who wait for inflight, one is woken.
    WaiterForgotten,
    /// Who has to wait for the pacer is forgotten.
    PacedForgotten,
    /// The pacer is not obeyed.
    PacingIgnored,
    /// An emptied flow takes another one with it.
    FlowForgotten,
    "completion queues":
    /// A receive promises no slot.
    ReceiveUnreserved,
    /// An unsolicited write promises no slot.
    UnsolicitedUnreserved,
    /// A destroyed queue pair's completions stay.
    PurgeForgotten,
    /// A handle is free before its completion is polled.
    HandleEarly,
    "giving up":
    /// Work given up keeps its PSNs.
    TombstoneForgotten,
    "credits":
    /// More reads are asked for than the peer serves at a time.
    ReadCreditIgnored,
    /// More messages of several packets are under way than the peer keeps apart.
    ImmediateCreditIgnored,
    "hostile peers":
    /// Strangers need no cookie, however full the table is.
    CookieNever,
    /// A reset is believed without the tag that proves it.
    ResetUnproven,
    /// An Open ends the context of its sender's address without a cookie.
    RestartUnproven,
    /// While packets wait to be read, no timer of losses fires.
    TimersSuppressed,
    /// What was never sent can be acknowledged.
    AckUnsentTaken,
    /// PSNs beyond the window are taken.
    PsnFarTaken,
    /// One peer may hold all reads.
    ReadsUnshared,
    /// Payload may be longer than a packet of the device.
    PayloadLongTaken,
    /// A read counts bytes, whichever they are.
    ReadHoleTaken,
    /// An echo of anything is believed.
    EchoUnmatched,
    /// How long a packet waited at the peer is believed, whatever is left of the round trip.
    WaitBelieved,
    /// What is kept for a peer that has died is kept for ever: its reads, too.
    DeadKept,
    /// As many packets are under way as the peer's window says, however small ours is.
    PeerWindowTaken,
    /// A packet without its checksum is taken where each must have one.
    UncheckedTaken,
    /// The verdict on what has arrived is waited for, and nobody is asked for it.
    ArrivedUnasked,
    "sizes of packets":
    /// A round of probes counts although its controls were not echoed.
    ControlsUnechoed,
    /// One round of probes decides that a size is too large.
    OneRoundDecides,
    /// When a size does not pass, none of the smaller ones is taken.
    SizeKept,
    /// A size that was found is never left for a larger one.
    SizeNeverRaised,
    /// Every Open is as large as the largest packet.
    OpensAllFull,
    /// The first answer to a smaller Open decides that full packets do not pass.
    OneOpenDecides,
    /// An Open that is not padded proves a size, too.
    BareOpenProves,
    /// What had arrived before its PSN was taken back is cut anew all the same.
    RecallUnheard,
    "sums":
    /// A segment of a write that is not the last stays counted as unsent.
    UnsentLeaks,
    /// A read that has ended stays counted as outstanding.
    OutstandingLeaks,
    /// Now and then a peer with something to send is marked and does not join the queue.
    ReadyUnqueued,
    /// A peer that has become idle stays counted at its address.
    ActiveLeaks,
    /// A read that was served stays counted in the engine.
    JobsLeak,
    /// What is declared lost stays in the sum of bytes in flight to the peer.
    LostInFlight,
    /// A sender whose context has ended stays counted among those that share the receive budget.
    FlowingLeaks,
    /// The context that was found last by its tag is remembered beyond its end.
    TagRemembered,
    /// The list of a context's requests keeps one that has ended, if it is not the newest.
    LiveKept,
    "hostile peers":
    /// Every context that says it has more to come has a share of the receive budget.
    ClaimBelieved,
    /// Tags and first numbers come from the generator whose numbers peers see.
    SecretsFast,
    "links":
    /// A packet that leaves the list of what is in flight is still the neighbour of the one after.
    FlightLinkKept,
    /// A request that is taken out of a queue is still the neighbour of the one after.
    QueueLinkKept,
    /// A read that has ended is still the neighbour of the one after, in the list of its region.
    PlaceLinkKept,
    "hosts that fall behind":
    /// A sender that was told to stop waits for the word to go on, whatever was lost.
    HostStopForever,
    /// An older acknowledgment says whether the peer's host is behind, and what may be in flight.
    HostSignalStale,
    /// What waits in the receiver is forgotten before an acknowledgment tells it.
    DepthCleared,
}

/// Turns bug `n` on; 0 turns all off.
///
/// # Errors
/// A number that no bug has.
pub fn plant(n: u32) -> Result<(), String> {
    let most = all().len() as u32;
    if n > most {
        return Err(format!("{MARK}: from 1 to {most}; there is no {n}"));
    }
    ON.store(n, Ordering::Relaxed);
    Ok(())
}

/// Whether `bug` is on.
pub fn on(bug: Bug) -> bool {
    ON.load(Ordering::Relaxed) == bug as u32
}
