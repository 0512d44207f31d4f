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
    /// Every PSN below the window counts as new.
    DedupForgetsOld,
    /// A duplicate of a packet that arrived out of order counts as new.
    DedupIgnoresBits,
    /// Bits of the receive window are not cleared when the ring wraps.
    WindowKeepsBits,
    /// Every transmission number counts as new.
    ReplayTakesAll,
    "acknowledgments":
    /// The cumulative acknowledgment jumps over a gap.
    AckJumpsGap,
    /// The bitmap is off by one.
    AckBitmapShifted,
    "verdicts":
    /// Refusals are not stored for acknowledgments.
    VerdictNotKept,
    /// Refusals are sent only once.
    VerdictToldOnce,
    /// Refusals that do not fit into an acknowledgment are acknowledged as successes.
    VerdictOverflowAcked,
    /// Refusals are dropped when any packet of the peer arrives.
    VerdictRetiredEarly,
    /// A refused request succeeds.
    VerdictIgnored,
    "RNR":
    /// Retries are not counted.
    RnrUncounted,
    /// One retry too few.
    RnrOneTooFew,
    /// The whole message is sent again, not only its immediate.
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
    /// Packets carry the upper edge of the send window as the lower one.
    UnaAhead,
    "wrap":
    /// PSNs are compared as plain numbers.
    PsnUnsigned,
    /// Transmission numbers keep their upper half for ever.
    TxNumHighKept,
    "tags and epochs":
    /// A packet with an unknown tag is taken for its sender's context.
    TagUnchecked,
    /// Tags are consecutive numbers, so a new incarnation gives out those of the old one.
    TagCounted,
    /// A new incarnation of the peer continues the old context.
    RestartContinues,
    /// Requests cut off by a restart succeed.
    AbortSucceeds,
    "placement":
    /// A write is placed one byte too high.
    WriteShifted,
    /// Every read response is placed at the start.
    ReadAtStart,
    /// A message is placed into the neighbouring receive.
    ReceiveNeighbour,
    /// A request ends with its first segment.
    FirstSegmentCompletes,
    /// A datagram is placed over the header area.
    DatagramAtStart,
    /// A response to a request that has ended is accepted.
    ReadLateTaken,
    "RDMA bounds":
    /// Bounds checks take a region as one byte longer.
    RegionOneMore,
    /// Rights are not checked.
    RightsUnchecked,
    /// Protection domains are not checked.
    DomainUnchecked,
    /// A key finds whatever region has its slot.
    KeyStale,
    /// Reads of a region continue after it was deregistered.
    RegionReadOn,
    /// Q_Keys are not checked.
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
    /// A lost packet may be sent again on the path that lost it.
    PathNotAvoided,
    "scheduling":
    /// Of the contexts that wait for room in flight, only one is woken.
    WaiterForgotten,
    /// A context that has to wait for the pacer is never called.
    PacedForgotten,
    /// The pacer is not obeyed.
    PacingIgnored,
    /// The removal of an empty flow removes another one as well.
    FlowForgotten,
    "completion queues":
    /// A receive reserves no completion slot.
    ReceiveUnreserved,
    /// An unsolicited write reserves no completion slot.
    UnsolicitedUnreserved,
    /// A destroyed queue pair's completions stay.
    PurgeForgotten,
    /// A handle is free before its completion is polled.
    HandleEarly,
    "giving up":
    /// Requests given up keep their PSNs.
    TombstoneForgotten,
    "credits":
    /// More reads are requested than the peer serves at a time.
    ReadCreditIgnored,
    /// More writes with immediate of several packets are in flight than the peer supports.
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
    /// Acknowledgments of PSNs that were never sent are accepted.
    AckUnsentTaken,
    /// PSNs beyond the window are accepted.
    PsnFarTaken,
    /// One peer may occupy all places for reads.
    ReadsUnshared,
    /// Payload may be longer than a packet of the device.
    PayloadLongTaken,
    /// A read only counts bytes, so duplicates hide a gap.
    ReadHoleTaken,
    /// An echo of anything is believed.
    EchoUnmatched,
    /// The peer's reported delay is subtracted in full, whatever is left of the round trip.
    WaitBelieved,
    /// The state kept for a dead peer, including its reads, is kept for ever.
    DeadKept,
    /// As many packets are in flight as the peer's window allows, even if the own window is
    /// smaller.
    PeerWindowTaken,
    /// A packet without a checksum is accepted where each must have one.
    UncheckedTaken,
    /// Missing verdicts on packets that have arrived are never requested.
    ArrivedUnasked,
    "sizes of packets":
    /// A round of probes counts although its controls were not echoed.
    ControlsUnechoed,
    /// One round of probes decides that a size is too large.
    OneRoundDecides,
    /// When a size does not pass, it is kept instead of a smaller one.
    SizeKept,
    /// A reduced size is never raised again.
    SizeNeverRaised,
    /// Every Open is as large as the largest packet.
    OpensAllFull,
    /// The first answer to a smaller Open decides that full packets do not pass.
    OneOpenDecides,
    /// An Open that is not padded proves a size, too.
    BareOpenProves,
    /// A packet that had arrived before it was recalled is segmented again nevertheless.
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
    /// A packet declared lost stays in the sum of bytes in flight to the peer.
    LostInFlight,
    /// A sender whose context has ended stays counted among those that share the receive budget.
    FlowingLeaks,
    /// The cache of the context last found by tag keeps a context that has ended.
    TagRemembered,
    /// The list of a context's requests keeps one that has ended, if it is not the newest.
    LiveKept,
    "hostile peers":
    /// Every context that says it has more to come has a share of the receive budget.
    ClaimBelieved,
    /// Tags and first numbers come from the generator whose numbers peers see.
    SecretsFast,
    "links":
    /// A packet that leaves the list of packets in flight is still linked from its successor.
    FlightLinkKept,
    /// A request that leaves a queue is still linked from its successor.
    QueueLinkKept,
    /// A read that has ended is still linked from its successor in the list of its region.
    PlaceLinkKept,
    "hosts that fall behind":
    /// A sender that was signalled to stop waits for the signal to go on, even if that was lost.
    HostStopForever,
    /// The host signal and the budget of an outdated acknowledgment are accepted.
    HostSignalStale,
    /// The receiver's backlog is cleared before an acknowledgment reports it.
    DepthCleared,
    "giving up":
    /// A peer that is heard is given up after 20 transmissions of a packet without content.
    DeafEarly,
    "inflight":
    /// The room of a packet that was lost is offered to no other context that waits for room.
    RoomKept,
    /// Room goes to the contexts in the order in which they began to wait.
    RoomUnordered,
    "seals":
    /// Requests begin while the context waits to be opened anew.
    DrainBegins,
    /// A context that is to be opened anew does not wait for requests that have begun.
    DrainForgets,
    "path health":
    /// Acknowledgments keep their paths when these are denied.
    DeniedAcked,
    /// Handshakes and answers to strangers take denied paths.
    DeniedOpened,
    "shards":
    /// A handle that another engine of the device has numbered is not found by its address.
    ShardHandleUnfound,
    /// A region that another engine of the device has registered has all rights.
    ShardRegionRights,
    /// A region stays in the engines of a device but the first when it is deregistered.
    ShardRegionStays,
    "full buffers":
    /// The window before a proven full buffer does not fall when the buffer overflows.
    FullOverflowIgnored,
    /// The queueing delay at which such a window stays is the same for all windows.
    FullTargetFlat,
    "crowds":
    /// Losses that go on lower no cap.
    CapNeverFalls,
    /// A cap that has ended the losses never rises.
    CapNeverRises,
    /// Losses that do not depend on the rate are taken for a limit for ever.
    BadLinkCapped,
    /// Marks of all packets are not counted.
    MarksUncounted,
    /// Marks that have ended still count.
    MarksKept,
    "hostile peers":
    /// What a peer leaves out of its transmission numbers counts as sent, however much it is.
    NumbersBelieved,
    "rails":
    /// Nobody judges the paths of a rail together.
    RailsUnknown,
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
