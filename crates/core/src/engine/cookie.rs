//! Cookies: proof that the sender of an Open receives at its address, without state per Open.

use crate::api::Endpoint;
use crate::ids::PeerTag;
use crate::limits::COOKIE_LIFETIME;
use crate::random::{HashKey, Random};
use crate::time::Time;
use core::hash::{Hash, Hasher};
use siphasher::sip::SipHasher24;

/// What an Open claims, which its cookie covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Address and port from which it was sent.
    pub who: Endpoint,
    /// The sender's tag of the context.
    pub tag: PeerTag,
    /// Incarnation of the sender's engine.
    pub incarnation: u64,
    /// Both tags of the context that it would replace, as far as they are known; 0 if there is
    /// none. So a late copy of a proven Open is not valid against a context made since, nor against
    /// a peer whose tag became known since.
    pub against: u64,
}

/// Makes and checks cookies with a secret key.
#[derive(Debug)]
pub(crate) struct CookieJar {
    key: HashKey,
}

impl CookieJar {
    pub fn new(rng: &mut impl Random) -> Self {
        Self { key: HashKey::draw(rng) }
    }

    fn mac(&self, epoch: u64, claim: &Claim) -> u64 {
        let mut h = SipHasher24::new_with_keys(self.key.low, self.key.high);
        (epoch, claim.who, claim.tag, claim.incarnation, claim.against).hash(&mut h);
        // 0 means "no cookie" on the wire.
        h.finish().max(1)
    }

    /// The cookie for this Open.
    pub fn make(&self, now: Time, claim: &Claim) -> u64 {
        let cookie = self.mac(now.0 / COOKIE_LIFETIME.0, claim);
        debug_assert!(self.check(now, claim, cookie), "who echoes it is believed");
        cookie
    }

    /// Whether `cookie` was made for the same Open in this lifetime or the one before.
    pub fn check(&self, now: Time, claim: &Claim, cookie: u64) -> bool {
        debug_assert!(claim.tag != PeerTag::NONE, "who opens has a tag");
        let epoch = now.0 / COOKIE_LIFETIME.0;
        let earlier = epoch.checked_sub(1);
        cookie == self.mac(epoch, claim) || earlier.is_some_and(|e| cookie == self.mac(e, claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use core::net::{IpAddr, Ipv4Addr};

    #[test]
    fn good_for_the_same_open_and_a_while() {
        let jar = CookieJar::new(&mut Rng::from_seed(1));
        let who = Endpoint { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 5 };
        let claim = Claim { who, tag: PeerTag(7), incarnation: 9, against: 3 };
        let c = jar.make(Time(0), &claim);
        assert!(jar.check(Time(COOKIE_LIFETIME.0), &claim, c));
        assert!(!jar.check(Time(2 * COOKIE_LIFETIME.0), &claim, c));
        assert!(!jar.check(Time(0), &Claim { tag: PeerTag(8), ..claim }, c));
        assert!(!jar.check(Time(0), &Claim { against: 4, ..claim }, c));
        assert!(!jar.check(Time(0), &Claim { who: Endpoint { port: 6, ..who }, ..claim }, c));
        assert!(!jar.check(Time(0), &claim, 0));
    }
}
