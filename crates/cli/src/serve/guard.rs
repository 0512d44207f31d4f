//! Verifies that clients that request a session hold the token. Unauthenticated requests use no
//! memory.

use super::control::ClientAddress;
use crate::{
    app::{
        message::{Body, Message},
        token::{PROOF_BYTES, Token, nonce_random},
    },
    failure::{Failure, Result},
};
use srd::Qpn;
use std::{
    collections::VecDeque,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Length of a period. A nonce is valid in its own period and in the next; clients answer within
/// milliseconds.
const PERIOD: Duration = Duration::from_secs(15);
/// Most remembered proofs of two periods: enough for a hundred sessions per second.
const USED_MAX: usize = 1 << 12;

/// Checks tokens for the server.
pub struct Guard {
    token: Token,
    /// Secret from which nonces are computed, so that none needs to be stored.
    secret: [u8; 32],
    begin: Instant,
    /// Valid proofs with their period, because each may be used once.
    used: VecDeque<(u64, [u8; PROOF_BYTES])>,
}

impl Guard {
    /// Accepts clients that hold this token.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn new(token: Token) -> Result<Self> {
        let (secret, begin) = (nonce_random()?, Instant::now());
        Ok(Self { token, secret, begin, used: VecDeque::new() })
    }

    /// Answers a client's challenge in the name of the server's queue pair `own`.
    pub fn challenged(&self, own: Qpn, from: ClientAddress, asked: &[u8; PROOF_BYTES]) -> Body {
        let nonce = self.nonce(from, self.period(Instant::now()));
        Body::Nonce { nonce, proof: *self.token.of_server(own, asked, &nonce).as_bytes() }
    }

    /// Verifies the proof of a request.
    ///
    /// # Errors
    /// The proof is wrong, too old, or was used before.
    pub fn check(
        &mut self,
        now: Instant,
        from: ClientAddress,
        request: &Message,
        proof: [u8; PROOF_BYTES],
    ) -> Result {
        let period = self.period(now);
        let good = [period, period.wrapping_sub(1)].into_iter().any(|period| {
            // Hash comparison takes constant time.
            self.token.of_client(from.qpn, &self.nonce(from, period), request) == proof
        });
        while self.used.front().is_some_and(|(of, _)| of + 1 < period) {
            self.used.pop_front();
        }
        if !good || self.used.iter().any(|(_, p)| *p == proof) {
            return Err(Failure::new("the request does not prove that its sender has the token"));
        }
        if self.used.len() >= USED_MAX {
            return Err(Failure::new("too many sessions were started; try again in half a minute"));
        }
        self.used.push_back((period, proof));
        Ok(())
    }

    fn period(&self, now: Instant) -> u64 {
        // Counts from 1, so that there always is a previous period.
        now.duration_since(self.begin).as_secs() / PERIOD.as_secs() + 1
    }

    fn nonce(&self, from: ClientAddress, period: u64) -> [u8; PROOF_BYTES] {
        let ip = match from.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&period.to_le_bytes()).update(&ip.octets());
        *hasher.update(&from.qpn.0.to_le_bytes()).finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::token::tests::token;
    use srd::QKey;

    #[test]
    fn a_proof_is_valid_once_for_its_request_sender_and_period() {
        let holder = token("guard", &[b'a'; 40], 0o600).unwrap();
        let stranger = token("stranger", &[b'b'; 40], 0o600).unwrap();
        let mut guard = Guard::new(holder.clone()).unwrap();
        let from = |n, qpn| ClientAddress { ip: IpAddr::from([10, 0, 0, n]), qpn: Qpn(qpn) };
        let request = |id, name: &str| Message {
            id,
            reply_qkey: QKey(7),
            body: Body::PutOpen { size: 1, name: name.into() },
        };
        let (own, client, asked) = (Qpn(0), from(1, 0x300), [1; 32]);
        let Body::Nonce { nonce, proof } = guard.challenged(own, client, &asked) else {
            panic!("no nonce");
        };
        assert!(holder.of_server(own, &asked, &nonce) == proof);
        assert!(stranger.of_server(own, &asked, &nonce) != proof);
        assert!(holder.of_server(own, &[2; 32], &nonce) != proof);
        let prove = |token: &Token, m: &Message| *token.of_client(client.qpn, &nonce, m).as_bytes();
        let (now, first) = (guard.begin, request(1, "a"));
        let good = prove(&holder, &first);
        for (who, message, proof) in [
            (client, &first, prove(&stranger, &first)),
            (client, &request(1, "b"), good),
            (client, &request(2, "a"), good),
            (from(2, 0x300), &first, good),
            (from(1, 0x301), &first, good),
            (client, &first, proof),
            (client, &first, [0; 32]),
        ] {
            assert!(guard.check(now, who, message, proof).is_err(), "{who:?} {message:?}");
        }
        assert!(guard.check(now, client, &first, good).is_ok());
        assert!(guard.check(now, client, &first, good).is_err(), "twice");
        let second = request(2, "a");
        let late = prove(&holder, &second);
        assert!(guard.check(now + PERIOD, client, &first, good).is_err(), "twice, later");
        assert!(guard.check(now + PERIOD, client, &second, late).is_ok());
        let (third, late) = (request(3, "a"), prove(&holder, &request(3, "a")));
        assert!(guard.check(now + 2 * PERIOD, client, &third, late).is_err(), "too old");
        assert!(guard.check(now + 2 * PERIOD, client, &first, good).is_err());
        assert_eq!(guard.used.len(), 1, "expired proofs are removed");
    }
}
