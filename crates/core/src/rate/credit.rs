//! Credits at the sender: bytes granted by the peer, less the bytes sent.

use srd_wire::CREDIT_UNIT_BYTES;

/// Balance of granted bytes. The peer's counter is cumulative, so a lost acknowledgment loses no
/// credit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    on: bool,
    granted: u32,
    balance: i64,
}

impl Credit {
    /// Obeys credits from now on, starting with a balance of `first` bytes.
    pub(crate) fn begin(&mut self, first: u64) {
        if !self.on {
            *self =
                Self { on: true, granted: 0, balance: i64::try_from(first).unwrap_or(i64::MAX) };
        }
    }

    /// Takes the peer's counter. A value below the newest one is outdated and ignored.
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

    /// After a pause, `first` bytes may be sent without a grant again.
    pub(crate) fn refill(&mut self, first: u64) {
        self.balance = self.balance.max(i64::try_from(first).unwrap_or(i64::MAX));
    }

    /// Bytes that may be sent. With any credit left, a whole packet may be sent, and the balance
    /// becomes negative: the two ends need not agree on the size of a packet, and a small remainder
    /// must not block the sender.
    pub(crate) fn room(&self) -> u64 {
        u64::try_from(self.balance).unwrap_or(0)
    }
}
