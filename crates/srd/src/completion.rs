//! Work completions in the user's view.

use core::fmt;
use srd_core::{AhId, Qpn, Status};
use std::net::IpAddr;

/// The operation that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionOp {
    /// A message sent.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// A message received.
    Recv,
    /// A peer's write with immediate consumed a posted receive; the receive's buffers are
    /// untouched.
    RecvRdmaImm,
    /// A peer's write with immediate that consumed no receive; `wr_id` is 0.
    RecvUnsolicited,
}

impl CompletionOp {
    /// Whether it belongs to the receive side.
    pub const fn is_recv(self) -> bool {
        matches!(self, Self::Recv | Self::RecvRdmaImm | Self::RecvUnsolicited)
    }
}

/// A work completion: the end of a work request (or an unsolicited write with immediate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The number given when it was posted.
    pub wr_id: u64,
    /// Result. Unless it is [`Status::Ok`], only `wr_id`, `op` and `qpn` are valid.
    pub status: Status,
    /// The operation.
    pub op: CompletionOp,
    /// Local queue pair.
    pub qpn: Qpn,
    /// Bytes received, sent, read or written. For a UD receive this includes the 40-byte GRH area.
    pub byte_len: u32,
    /// Immediate data, if the message carried some.
    pub imm: Option<u32>,
    /// Receive: the sender's queue pair.
    pub src_qpn: Qpn,
    /// Receive: a local address handle of the sender; [`AhId::UNKNOWN`] if there is none.
    pub src_ah: AhId,
    /// Receive: the sender's address.
    pub src_ip: Option<IpAddr>,
    /// Receive: the first 40 bytes of the buffer are a header with the addresses (UD).
    pub grh: bool,
}

impl Default for WorkCompletion {
    /// An empty completion, to fill an array for polling.
    fn default() -> Self {
        Self {
            wr_id: 0,
            status: Status::Ok,
            op: CompletionOp::Send,
            qpn: Qpn(0),
            byte_len: 0,
            imm: None,
            src_qpn: Qpn(0),
            src_ah: AhId::UNKNOWN,
            src_ip: None,
            grh: false,
        }
    }
}

impl WorkCompletion {
    /// Whether the request succeeded.
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }

    /// The completion, or the failure as an error.
    ///
    /// # Errors
    /// When the status is not [`Status::Ok`].
    pub fn ok(self) -> Result<Self, CompletionError> {
        if self.is_ok() { Ok(self) } else { Err(CompletionError(self)) }
    }
}

/// A work request that failed. `Debug`, which `unwrap` prints, says the same as `Display`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CompletionError(pub WorkCompletion);

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkCompletion { wr_id, op, qpn, status, .. } = self.0;
        write!(f, "{op:?} request {wr_id} of queue pair {}: {}", qpn.0, status_text(status))
    }
}

impl fmt::Debug for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.status)
    }
}

impl std::error::Error for CompletionError {}

/// Meaning of a status and, if possible, what to do.
pub const fn status_text(status: Status) -> &'static str {
    match status {
        Status::Ok => "success",
        Status::Flushed => {
            "flushed: the queue pair went to the error state; reset it or make another"
        }
        Status::LocalQpInternalError => "local error inside the queue pair",
        Status::LocalUnsupportedOp => "the queue pair does not support the operation",
        Status::LocalInvalidAh => "the address handle was destroyed; keep it until the completion",
        Status::LocalInvalidLkey => {
            "the local memory region was deregistered; keep it until the completion"
        }
        Status::LocalBadLength => "longer than the operation allows",
        Status::RemoteBadAddress => {
            "the peer refused the rkey: unknown, out of bounds, or without that access"
        }
        Status::RemoteAbort => {
            "the peer restarted or was reset; the request may have been executed"
        }
        Status::RemoteBadDestQpn => {
            "the peer has no such queue pair, or it is not ready, or the Q_Key is wrong"
        }
        Status::RemoteRnr => {
            "the peer had no receive posted in time: it is busy elsewhere (raise rnr_retry), or \
             the process that was meant is gone and another has its queue pair number"
        }
        Status::RemoteBadLength => "the receive posted at the peer is too short; post larger ones",
        Status::RemoteBadStatus => "the peer sent an invalid answer",
        Status::LocalUnrespRemote => "the peer answered before, but is silent now",
        Status::RemoteUnknownPeer => {
            "the peer has no address handle for this host, which RDMA needs: create one there"
        }
        Status::LocalUnreachRemote => {
            "the peer never answered: is it running, and does a firewall drop its UDP port?"
        }
        Status::RemoteFeatureMismatch => "the peer does not offer the operation",
    }
}
