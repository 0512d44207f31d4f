//! A read that is being served to a peer.

use crate::api::{MrKey, Qpn};

/// One region being sent to a requester.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadJob {
    /// Number among this engine's jobs (what the scoreboard refers to).
    pub id: u32,
    /// The requester's message.
    pub msg_id: u32,
    /// The queue pair it came through.
    pub qp: Qpn,
    pub key: MrKey,
    pub addr: u64,
    pub len: u32,
    /// Bytes that have PSNs.
    pub cut: u32,
    /// PSNs unresolved.
    pub open: u32,
    /// The region went away: an error response is owed (`false`: it has a PSN).
    pub error_owed: bool,
    /// Nothing more to cut: aborted by either side.
    pub dead: bool,
}

impl ReadJob {
    /// Whether a packet of it can leave.
    pub fn has_to_send(&self) -> bool {
        self.error_owed || (!self.dead && self.cut < self.len)
    }
    /// Whether it can be forgotten.
    pub fn is_done(&self) -> bool {
        self.open == 0 && !self.has_to_send()
    }
}

/// Nothing more of the region is cut into packets.
pub(crate) fn job_abort(job: &mut ReadJob, unsent: &mut u64) {
    if !job.dead {
        *unsent -= u64::from(job.len - job.cut);
        job.dead = true;
        job.cut = job.len;
    }
}
