//! Cookies: a challenge that costs no memory. Only who receives at an address can echo it.

use crate::api::Endpoint;
use crate::limits::COOKIE_LIFETIME;
use crate::rng::Rng;
use crate::time::Time;
use core::hash::{Hash, Hasher};
use siphasher::sip::SipHasher24;

/// Makes and checks cookies with a key of its own.
#[derive(Debug)]
pub(crate) struct CookieJar {
    key: (u64, u64),
}

impl CookieJar {
    pub fn new(rng: &mut Rng) -> Self {
        Self { key: (rng.next_u64(), rng.next_u64()) }
    }

    fn mac(&self, epoch: u64, who: Endpoint, tag: u32, incarnation: u64) -> u64 {
        let mut h = SipHasher24::new_with_keys(self.key.0, self.key.1);
        (epoch, who, tag, incarnation).hash(&mut h);
        // 0 means "no cookie" on the wire.
        h.finish().max(1)
    }

    /// The cookie for an Open from `who` with this tag.
    pub fn make(&self, now: Time, who: Endpoint, tag: u32, incarnation: u64) -> u64 {
        self.mac(now.0 / COOKIE_LIFETIME.0, who, tag, incarnation)
    }

    /// Whether `cookie` was made for the same Open in this lifetime or the one before.
    pub fn check(&self, now: Time, who: Endpoint, tag: u32, incarnation: u64, cookie: u64) -> bool {
        let epoch = now.0 / COOKIE_LIFETIME.0;
        let earlier = epoch.checked_sub(1);
        cookie == self.mac(epoch, who, tag, incarnation)
            || earlier.is_some_and(|e| cookie == self.mac(e, who, tag, incarnation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    #[test]
    fn good_for_the_same_open_and_a_while() {
        let jar = CookieJar::new(&mut Rng::from_seed(1));
        let who = Endpoint { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 5 };
        let c = jar.make(Time(0), who, 7, 9);
        assert!(jar.check(Time(COOKIE_LIFETIME.0), who, 7, 9, c));
        assert!(!jar.check(Time(2 * COOKIE_LIFETIME.0), who, 7, 9, c));
        assert!(!jar.check(Time(0), who, 8, 9, c));
        assert!(!jar.check(Time(0), Endpoint { port: 6, ..who }, 7, 9, c));
        assert!(!jar.check(Time(0), who, 7, 9, 0));
    }
}
