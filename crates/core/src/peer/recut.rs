//! Ranges whose packets were recalled because they had become too large for the paths.

use crate::api::WrHandle;
use crate::ids::JobId;
use crate::peer::scoreboard::{Entry, Kind, Work};

/// A range of a write or of a read being served that is to be cut into packets again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recut {
    /// `Write` or `ReadResp`.
    kind: Kind,
    work: Work,
    off: u32,
    len: u32,
}

impl Recut {
    /// The range that entry `e` carried or recalls.
    pub fn of(e: &Entry) -> Self {
        let kind = e.kind.recalled().unwrap_or(e.kind);
        debug_assert!(matches!(kind, Kind::Write | Kind::ReadResp), "{kind:?} is of one packet");
        debug_assert!(e.len > 0, "what is too large holds bytes: {e:?}");
        Self { kind, work: e.work(), off: e.off, len: u32::from(e.len) }
    }

    /// Whether the range belongs to a write, and not to a read being served.
    pub fn is_write(&self) -> bool {
        self.kind == Kind::Write
    }
    /// Whether the range belongs to request `wi`.
    pub fn is_of(&self, wi: WrHandle) -> bool {
        self.is_write() && self.request() == wi
    }
    /// The work request of the range, which must belong to a write.
    pub fn request(&self) -> WrHandle {
        self.work.request(self.kind)
    }
    /// The read of the range, which must not belong to a write.
    pub fn job(&self) -> JobId {
        self.work.job(self.kind)
    }

    /// The first packet of the range, of at most `mtu` bytes, and the rest of the range.
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
