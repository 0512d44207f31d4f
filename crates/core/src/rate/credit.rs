//! Credits at the sender: what the peer's link has granted and what was sent of it.

use srd_wire::CREDIT_UNIT_BYTES;

/// Balance of granted bytes. The peer's counter is cumulative, so a lost acknowledgment loses none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    on: bool,
    granted: u32,
    balance: i64,
}

impl Credit {
    /// Obeys credits from now on. Starts with `first` bytes that nobody granted.
    pub(crate) fn begin(&mut self, first: u64) {
        if !self.on {
            *self =
                Self { on: true, granted: 0, balance: i64::try_from(first).unwrap_or(i64::MAX) };
        }
    }

    /// The peer's counter. One that runs backwards is older than the newest and says nothing.
    pub(crate) fn on_counter(&mut self, granted_64b: u32) {
        let units = granted_64b.wrapping_sub(self.granted);
        if units == 0 || units > u32::MAX / 2 {
            return;
        }
        self.granted = granted_64b;
        let bytes = i64::from(units) * i64::from(CREDIT_UNIT_BYTES);
        self.balance = self.balance.saturating_add(bytes);
    }

    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.balance -= i64::from(bytes);
    }

    /// The peer owes us nothing and knows nothing of us: `first` bytes are free again.
    pub(crate) fn refill(&mut self, first: u64) {
        self.balance = self.balance.max(i64::try_from(first).unwrap_or(i64::MAX));
    }

    /// Bytes that may be sent. Whoever has any credit may send a whole packet and owe the rest:
    /// peers need not agree on the size of a packet, and what is left over from the last one must
    /// not be a dead end.
    pub(crate) fn room(&self) -> u64 {
        u64::try_from(self.balance).unwrap_or(0)
    }
}
