//! What was taken back of what was sent.

use crate::api::WrHandle;
use crate::ids::JobId;
use crate::peer::scoreboard::{Entry, Kind, Work};

/// A range of a request or of a read that is served, to be cut anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recut {
    /// `Write` or `ReadResp`.
    kind: Kind,
    work: Work,
    off: u32,
    len: u32,
}

impl Recut {
    /// What `e` carried, or was to take back.
    pub fn of(e: &Entry) -> Self {
        let kind = e.kind.recalled().unwrap_or(e.kind);
        debug_assert!(matches!(kind, Kind::Write | Kind::ReadResp), "{kind:?} is of one packet");
        debug_assert!(e.len > 0, "what is too large holds bytes: {e:?}");
        Self { kind, work: e.work(), off: e.off, len: u32::from(e.len) }
    }

    /// Whether it is of a write, and not of a read that is served.
    pub fn is_write(&self) -> bool {
        self.kind == Kind::Write
    }
    /// Whether it is of this request.
    pub fn is_of(&self, wi: WrHandle) -> bool {
        self.is_write() && self.request() == wi
    }
    /// The work request that it is of, if it is of a write.
    pub fn request(&self) -> WrHandle {
        self.work.request(self.kind)
    }
    /// The read that it is of, if it is not of a write.
    pub fn job(&self) -> JobId {
        self.work.job(self.kind)
    }

    /// The first packet of it, of at most `mtu` bytes, and the range that remains.
    pub fn cut(self, mtu: u16) -> (Entry, Option<Self>) {
        let len = self.len.min(u32::from(mtu));
        let rest = Self { off: self.off + len, len: self.len - len, ..self };
        let entry = Entry::new(self.kind, self.work, self.off, len as u16);
        debug_assert!(len > 0 && entry.off + len <= rest.off, "{self:?}");
        (entry, (rest.len > 0).then_some(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_packets_that_cover_it_once() {
        let mut e = Entry::new(Kind::Write, Work::of_request(WrHandle(7)), 3_000, 2_500);
        e.kind = e.kind.recall();
        let mut rest = Some(Recut::of(&e));
        let mut cut = Vec::new();
        while let Some(r) = rest {
            assert!(r.is_of(WrHandle(7)) && !r.is_of(WrHandle(8)));
            let (entry, more) = r.cut(1_024);
            assert_eq!((entry.kind, entry.request()), (Kind::Write, WrHandle(7)));
            cut.push((entry.off, entry.len));
            rest = more;
        }
        assert_eq!(cut, [(3_000, 1_024), (4_024, 1_024), (5_048, 452)]);
    }
}
