//! Cookies: who wants a handshake shows first that it receives at its address. A cookie costs the
//! receiver no memory.

use crate::handshake::Greeting;
use crate::secret::{SECRET_BYTES, Secret};

/// Makes and checks cookies, with a key of its own that never leaves it.
#[derive(Debug)]
pub struct Cookies(Secret);

impl Cookies {
    /// Takes 32 random bytes; the caller's copy is erased.
    pub fn take(bytes: &mut [u8; SECRET_BYTES]) -> Self {
        Self(Secret::take(bytes))
    }

    /// The cookie for this greeting in this period. It is bound to both addresses, to the key's
    /// number, to the initiator's tag and to its share, so it is good for one handshake. Never 0,
    /// which means "no cookie" in a packet.
    pub fn make(&self, period: u64, greeting: &Greeting<'_>) -> u64 {
        let parts = [&period.to_be_bytes()[..], greeting.prologue(), greeting.share()];
        let mac = self.0.mac(&parts);
        u64::from_be_bytes(*mac.first_chunk().expect("a keyed hash has 16 bytes")).max(1)
    }

    /// Whether the greeting carries the cookie of this period or of the one before. Periods are
    /// numbered by the caller, who has the clock: the time divided by what a cookie should live.
    pub fn good(&self, period: u64, greeting: &Greeting<'_>) -> bool {
        let earlier = period.checked_sub(1);
        let cookie = greeting.cookie();
        // The value is known to who receives at the address; comparing it leaks no key.
        cookie == self.make(period, greeting)
            || earlier.is_some_and(|period| cookie == self.make(period, greeting))
    }
}
