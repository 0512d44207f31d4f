//! Credits at the sender: bytes granted by the peer, less the bytes sent.

use srd_wire::CREDIT_UNIT_BYTES;

/// Balance of granted bytes. The peer's counter is cumulative, so a lost acknowledgment loses no
/// credit.
///
/// Both ends forget at a silence. After [`crate::tuning::GRANT_STALE`] without a packet the
/// receiver no longer counts what it granted, because it may be lost, and grants anew. A sender
/// that was silent for [`crate::tuning::GRANT_KEEP`], which is less, drops what it did not use.
/// What it holds is thus never more than the first window and what the receiver still counts as
/// granted, unless the network made the silence: packets that are lost are a silence for the
/// receiver alone. A limit holds for that case, for several contexts to one address, and for a
/// receiver that grants without measure (see [`Self::on_counter`]).
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

    /// Takes the peer's counter. A value below the newest one is outdated and ignored. Grants do
    /// not raise the balance above `balance_max` bytes. Rule CC-25.
    pub(crate) fn on_counter(&mut self, granted_64b: u32, balance_max: u64) {
        let units = granted_64b.wrapping_sub(self.granted);
        if units == 0 || units > u32::MAX / 2 {
            return;
        }
        self.granted = granted_64b;
        let bytes = i64::from(units) * i64::from(CREDIT_UNIT_BYTES);
        let before = self.balance;
        let most = i64::try_from(balance_max).unwrap_or(i64::MAX).max(before);
        self.balance = before.saturating_add(bytes).min(most);
        debug_assert!(self.balance >= before, "a grant takes nothing away");
    }

    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.balance -= i64::from(bytes);
    }

    /// Drops what was granted and not used. What was sent in advance stays owed.
    /// Rule CC-25.
    pub(crate) fn forget(&mut self) {
        self.balance = self.balance.min(0);
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
