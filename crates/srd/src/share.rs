//! The device's part in what the processes of a user on this host share.

use crate::nic::Nic;
use srd_core::Time;
use srd_datapath::clock;
use srd_share::{Member, Segment, segment_path};
use std::{fmt, net::IpAddr};

/// A slot in the host's table, given back when the device closes.
pub(crate) struct Share {
    member: Option<Member>,
    segment: Option<Segment>,
    /// The host's clock when the engine's shows 0.
    origin_ns: u64,
}

impl Share {
    /// Takes a slot for a device at `local`. The error is a warning: without, the device does not
    /// know of other processes.
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
    /// Tells the other processes what they should know now, and hears of them. Nearly always there
    /// is nothing.
    #[inline]
    pub(crate) fn share_turn(&mut self, now: Time) {
        let Self { engine, share, .. } = self;
        let Some(Share { member: Some(member), origin_ns, .. }) = share else { return };
        if let Some(engines) = member.granters(*origin_ns + now.0, engine.grants_wanted()) {
            engine.granters_set(engines);
        }
        while let Some(note) = engine.share_next(now) {
            let view = member.exchange(*origin_ns + now.0, now, &note);
            engine.share_view(note.ip, &view);
        }
    }
}
