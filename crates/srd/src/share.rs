//! The device's part in the table of congestion state that the processes of a user on this host
//! share ([`srd_share`]).

use crate::nic::Nic;
use srd_core::Time;
use srd_datapath::clock;
use srd_share::{Member, Segment, segment_path};
use std::{fmt, net::IpAddr};

/// A slot in the host's table, given back when the device closes.
pub(crate) struct Share {
    member: Option<Member>,
    segment: Option<Segment>,
    /// What the host's monotonic clock shows when the engine's clock shows 0, ns.
    origin_ns: u64,
}

impl Share {
    /// Takes a slot for a device at `local`. The caller reports an error as a warning: without a
    /// slot, the device sends as if it were the only process on the host.
    pub(crate) fn join(local: IpAddr) -> Result<Self, String> {
        let (segment, member) = Segment::join(&segment_path(), local).map_err(|e| {
            format!(
                "this process shares nothing with others of this host, and each sends as if it \
                 were the only one: {e} (SRD_SHARE=0 does without, and says nothing)"
            )
        })?;
        let origin_ns = clock::origin_ns();
        Ok(Self { member: Some(member), segment: Some(segment), origin_ns })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.member.take());
        if let Some(segment) = self.segment.take() {
            segment.leave();
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Nic {
    /// Writes this engine's state to the shared table where that is due, and passes what the table
    /// says to the engine. In nearly every turn nothing is due.
    #[inline(always)]
    pub(crate) fn share_turn(&mut self, now: Time) {
        if self.share.is_some() {
            self.share_exchange(now);
        }
    }

    fn share_exchange(&mut self, now: Time) {
        let Self { engine, share, status, .. } = self;
        let Some(Share { member: Some(member), origin_ns, .. }) = share else { return };
        if let Some(engines) = member.granters(*origin_ns + now.0, engine.grants_wanted()) {
            engine.granters_set(engines);
        }
        while let Some(note) = engine.share_next(now) {
            let view = member.exchange(*origin_ns + now.0, now, &note);
            engine.share_view(note.ip, &view);
            if let Some(shown) = status {
                shown.note(&note);
            }
        }
    }
}
