//! One PSN on the scoreboard: what it carries, where it is in its life, and what it is of.

use super::lists::NIL;
use crate::api::WrHandle;
use crate::ids::JobId;
use crate::psn::TxNum;
use crate::time::Time;
use srd_wire::OVERHEAD_BYTES;

/// Which request of ours, or which read that is served, a PSN belongs to: its kind says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work(u32);

impl Work {
    /// Neither: it carries nothing of either.
    pub const NONE: Self = Self(0);

    pub const fn of_request(h: WrHandle) -> Self {
        Self(h.0)
    }
    pub const fn of_job(id: JobId) -> Self {
        Self(id.0)
    }
    /// The request, where `kind` is of one.
    #[inline(always)]
    pub fn request(self, kind: Kind) -> WrHandle {
        debug_assert!(kind.is_own(), "{kind:?} is of no request");
        WrHandle(self.0)
    }
    /// The read, where `kind` is of one.
    #[inline(always)]
    pub fn job(self, kind: Kind) -> JobId {
        debug_assert!(kind.is_served(), "{kind:?} is of no read that is served");
        JobId(self.0)
    }
}

/// What a PSN was before it was settled: the entry itself has its new state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub kind: Kind,
    pub state: SentState,
    pub path: u8,
    pub again: u8,
    pub(super) work: Work,
    pub wire_bytes: u32,
    pub sent: Time,
}

impl Settled {
    /// See [`Entry::request`].
    pub fn request(&self) -> WrHandle {
        self.work.request(self.kind)
    }
    /// See [`Entry::job`].
    pub fn job(&self) -> JobId {
        self.work.job(self.kind)
    }
    /// See [`Entry::size_shown`].
    pub fn size_shown(&self) -> u16 {
        size_shown(self.wire_bytes)
    }
}

/// See [`Entry::size_shown`].
fn size_shown(wire_bytes: u32) -> u16 {
    u16::try_from(wire_bytes.saturating_sub(OVERHEAD_BYTES as u32)).unwrap_or(u16::MAX)
}

/// What a PSN carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Send or send with immediate.
    Send,
    /// One segment of a write (plain or with immediate).
    Write,
    /// The immediate alone, again after RNR.
    ImmRetry,
    /// Read request.
    ReadReq,
    /// One segment of a region that is served.
    ReadResp,
    /// The error that ends a read that is served.
    ReadError,
    /// Nothing: its data was given up.
    Tombstone,
    /// Frees the message named in `off` at the peer.
    Cancel,
    /// Takes back a `Send`, `Write` or `ReadResp` that has become too large for the way: the peer
    /// tells whether it had arrived.
    RecallSend,
    /// See `RecallSend`.
    RecallWrite,
    /// See `RecallSend`.
    RecallResp,
}

impl Kind {
    /// Whether a work request of this side stands behind it.
    pub fn is_own(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::Write
                | Self::ImmRetry
                | Self::ReadReq
                | Self::RecallSend
                | Self::RecallWrite
        )
    }
    /// Whether a read that is served stands behind it.
    pub fn is_served(self) -> bool {
        matches!(self, Self::ReadResp | Self::ReadError | Self::RecallResp)
    }
    /// What takes its place when it is too large.
    pub fn recall(self) -> Self {
        let recall = match self {
            Self::Send => Self::RecallSend,
            Self::Write => Self::RecallWrite,
            Self::ReadResp => Self::RecallResp,
            other => return other,
        };
        debug_assert_eq!(recall.recalled(), Some(self), "it says what it takes back");
        debug_assert_eq!(recall.is_own(), self.is_own(), "the same work stands behind both");
        recall
    }
    /// What was to be sent, if it takes something back.
    pub fn recalled(self) -> Option<Self> {
        match self {
            Self::RecallSend => Some(Self::Send),
            Self::RecallWrite => Some(Self::Write),
            Self::RecallResp => Some(Self::ReadResp),
            _ => None,
        }
    }
}

/// Where a PSN is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentState {
    /// On its way; in the order list.
    InFlight,
    /// Declared lost; in the lost list.
    Lost,
    /// The peer has it, but has not said yet how it was judged: it is asked, and nothing is sent
    /// again. In no list.
    Arrived,
    /// Acknowledged above `una`.
    Acked,
}

/// One PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub state: SentState,
    /// Path of the last transmission.
    pub path: u8,
    /// Transmissions after the first (saturating).
    pub again: u8,
    /// Payload bytes.
    pub len: u16,
    /// What it is of.
    pub(super) work: Work,
    /// Offset of the segment (message id for `Cancel`).
    pub off: u32,
    /// Bytes on the wire of the last transmission, as counted in flight.
    pub wire_bytes: u32,
    /// Transmission number of the last transmission.
    pub tx_num: TxNum,
    /// When it left.
    pub sent: Time,
    /// Its neighbours in the order list or the lost list.
    pub(super) prev: u16,
    pub(super) next: u16,
}

impl Entry {
    /// The size of packets ([`PathMtu`](crate::path::mtu::PathMtu)) that its transmission was as
    /// long as: what a packet with the longest headers has for payload at that length.
    pub fn size_shown(&self) -> u16 {
        size_shown(self.wire_bytes)
    }

    /// The work request that it is of; only of an own one ([`Kind::is_own`]).
    pub fn request(&self) -> WrHandle {
        self.work.request(self.kind)
    }
    /// The read that it is of; only of one that is served ([`Kind::is_served`]).
    pub fn job(&self) -> JobId {
        self.work.job(self.kind)
    }
    /// What it is of, whatever that is.
    pub fn work(&self) -> Work {
        self.work
    }
    /// An entry of these bytes of `work`; `off` is the message id of a `Cancel`.
    pub fn new(kind: Kind, work: Work, off: u32, len: u16) -> Self {
        debug_assert!(
            len == 0 || matches!(kind, Kind::Send | Kind::Write | Kind::ReadResp),
            "{kind:?} carries nothing"
        );
        Self {
            kind,
            state: SentState::Acked,
            path: 0,
            again: 0,
            len,
            work,
            off,
            wire_bytes: 0,
            tx_num: TxNum(0),
            sent: Time(0),
            prev: NIL,
            next: NIL,
        }
    }
}
