//! One PSN on the scoreboard: what it carries, its state, and the request or read that it belongs
//! to.

use super::lists::NIL;
use crate::api::WrHandle;
use crate::ids::JobId;
use crate::psn::TxNum;
use crate::time::Time;
use srd_wire::OVERHEAD_BYTES;

/// The request of ours, or the read being served, that a PSN belongs to; its kind says which of the
/// two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work(u32);

impl Work {
    /// Neither a request nor a read.
    pub const NONE: Self = Self(0);

    pub const fn of_request(h: WrHandle) -> Self {
        Self(h.0)
    }
    pub const fn of_job(id: JobId) -> Self {
        Self(id.0)
    }
    /// The request, where `kind` belongs to one.
    #[inline(always)]
    pub fn request(self, kind: Kind) -> WrHandle {
        debug_assert!(kind.is_own(), "{kind:?} is of no request");
        WrHandle(self.0)
    }
    /// The read, where `kind` belongs to one.
    #[inline(always)]
    pub fn job(self, kind: Kind) -> JobId {
        debug_assert!(kind.is_served(), "{kind:?} is of no read that is served");
        JobId(self.0)
    }
}

/// The state of a PSN before it was settled; its entry has the new state.
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
    /// A send, with or without immediate.
    Send,
    /// One segment of a write (plain or with immediate).
    Write,
    /// Only the immediate, sent again after RNR.
    ImmRetry,
    /// A read request.
    ReadReq,
    /// One segment of the response to a read.
    ReadResp,
    /// The error response that ends a read.
    ReadError,
    /// Nothing: the work that it carried was given up.
    Tombstone,
    /// Makes the peer forget the message whose id is in `off`.
    Cancel,
    /// Takes back a `Send` that has become too large for the paths: the peer reports whether it had
    /// arrived.
    RecallSend,
    /// Takes back a `Write` or `ReadResp` in the same way.
    RecallWrite,
    /// Takes back a `Write` or `ReadResp` in the same way.
    RecallResp,
}

impl Kind {
    /// Whether it belongs to a work request of this side.
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
    /// Whether it belongs to a read being served.
    pub fn is_served(self) -> bool {
        matches!(self, Self::ReadResp | Self::ReadError | Self::RecallResp)
    }
    /// The kind that replaces it when its packet is too large; itself if it cannot become too
    /// large.
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
    /// The kind that a recall takes back; `None` for other kinds.
    pub fn recalled(self) -> Option<Self> {
        match self {
            Self::RecallSend => Some(Self::Send),
            Self::RecallWrite => Some(Self::Write),
            Self::RecallResp => Some(Self::ReadResp),
            _ => None,
        }
    }
}

/// State of a PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentState {
    /// In flight; in the order list.
    InFlight,
    /// Declared lost; in the lost list.
    Lost,
    /// The peer has received it and not reported its verdict yet: the peer is asked, and nothing is
    /// retransmitted. In no list.
    Arrived,
    /// Acknowledged, with a known verdict.
    Acked,
}

/// The scoreboard entry of one PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub state: SentState,
    /// Path of the last transmission.
    pub path: u8,
    /// Number of retransmissions (saturating).
    pub again: u8,
    /// Payload bytes.
    pub len: u16,
    /// The request or read that it belongs to.
    pub(super) work: Work,
    /// Offset of the segment (message id for `Cancel`).
    pub off: u32,
    /// Bytes on the wire of the last transmission, as counted in flight.
    pub wire_bytes: u32,
    /// Transmission number of the last transmission.
    pub tx_num: TxNum,
    /// Send time of the last transmission.
    pub sent: Time,
    /// Ring indices of its neighbours in the order list or the lost list.
    pub(super) prev: u16,
    pub(super) next: u16,
}

impl Entry {
    /// The packet size ([`PathMtu`](crate::path::mtu::PathMtu)) that its last transmission shows:
    /// the payload of a packet of that length with the longest headers.
    pub fn size_shown(&self) -> u16 {
        size_shown(self.wire_bytes)
    }

    /// The work request that it belongs to; only for kinds with [`Kind::is_own`].
    pub fn request(&self) -> WrHandle {
        self.work.request(self.kind)
    }
    /// The read that it belongs to; only for kinds with [`Kind::is_served`].
    pub fn job(&self) -> JobId {
        self.work.job(self.kind)
    }
    /// The request or read that it belongs to.
    pub fn work(&self) -> Work {
        self.work
    }
    /// An entry for `len` bytes at offset `off` of `work`; `off` is the message id of a `Cancel`.
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
