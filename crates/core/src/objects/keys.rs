//! Keys of memory regions: numbers that peers cannot guess, and that are not reused.
//!
//! A key is a counter under a secret permutation of 32 bits. So no key is given out twice before
//! the counter wraps, and a key that was given out once can be distinguished from one that never
//! was: the former is a stale key of an honest peer, the latter a guess.

use crate::hash::Keyed;
use crate::limits::{GUESSERS_KEPT, GUESSERS_MAX, WRONG_KEYS_MAX};
use crate::random::{HashKey, Random};
use crate::time::Time;
use arrayvec::ArrayVec;
use core::hash::Hasher;
use core::net::IpAddr;
use hashbrown::HashSet;
use siphasher::sip::SipHasher13;

/// Rounds of the permutation, a Feistel network: as many as NIST's FF1 has for small domains
/// (SP 800-38G).
const ROUNDS: u16 = 10;

/// The counter advances by a random step of at most this much, so that keys do not reveal how many
/// regions were registered. The last 2^28 keys are all different.
const STEP_MAX: u32 = 16;

/// Makes keys, and recognizes the keys that it has made.
#[derive(Clone, Debug)]
pub(crate) struct KeyMaker {
    secret: HashKey,
    counter: u32,
    /// How far the counter has advanced in all (saturating): numbers up to this far behind it were
    /// given out or stepped over.
    gone: u32,
}

impl KeyMaker {
    pub fn new(secret: HashKey) -> Self {
        Self { secret, counter: 0, gone: 0 }
    }

    /// Makes the next key. `free` says whether no live region has a key; few keys are in use, so
    /// the search is short.
    pub fn next(&mut self, random: &mut impl Random, free: impl Fn(u32) -> bool) -> u32 {
        let mut step = 1 + random.next_u32() % STEP_MAX;
        loop {
            debug_assert!((1..=STEP_MAX).contains(&step), "on, and not far");
            self.counter = self.counter.wrapping_add(step);
            self.gone = self.gone.saturating_add(step);
            let key = self.permuted(self.counter);
            // Programs use 0 for "no key".
            if key != 0 && free(key) {
                debug_assert!(self.has_made(key), "what is given out is known");
                return key;
            }
            step = 1;
        }
    }

    /// Notes a key that another maker of the same secret has made, after all that this one knows:
    /// the counter advances to it.
    pub fn follow(&mut self, key: u32) {
        let step = self.number_of(key).wrapping_sub(self.counter);
        self.counter = self.counter.wrapping_add(step);
        self.gone = self.gone.saturating_add(step);
        debug_assert!(key == 0 || step == 0 || self.has_made(key), "what was made is known");
    }

    /// Whether the key was given out at some time; also true for the numbers that were stepped
    /// over.
    pub fn has_made(&self, key: u32) -> bool {
        self.counter.wrapping_sub(self.number_of(key)) < self.gone
    }

    /// A number that changes with each key that is made.
    pub fn stand(&self) -> u32 {
        self.counter
    }

    fn permuted(&self, n: u32) -> u32 {
        let (mut left, mut right) = ((n >> 16) as u16, n as u16);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        let key = u32::from(left) << 16 | u32::from(right);
        debug_assert_eq!(self.number_of(key), n, "a permutation");
        key
    }

    fn number_of(&self, key: u32) -> u32 {
        let (mut left, mut right) = ((key >> 16) as u16, key as u16);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mix(round, left), left);
        }
        u32::from(left) << 16 | u32::from(right)
    }

    fn mix(&self, round: u16, half: u16) -> u16 {
        let mut h = SipHasher13::new_with_keys(self.secret.low, self.secret.high);
        h.write_u32(u32::from(round) << 16 | u32::from(half));
        h.finish() as u16
    }
}

/// Wrong keys that one peer used recently. A peer that repeats one of them, as each packet of a
/// long write with a wrong key does, learns nothing new, so the repetition does not count as a
/// guess.
#[derive(Debug, Default)]
pub(crate) struct WrongKeys {
    known: ArrayVec<u32, WRONG_KEYS_MAX>,
    /// [`KeyMaker::stand`] when the list was begun. The list is void when it changes, because a new
    /// key may be one of those listed.
    stand: u32,
}

impl WrongKeys {
    /// Notes a key that no region has. Returns false if the peer was already told so.
    pub fn note(&mut self, key: u32, stand: u32) -> bool {
        if self.stand != stand {
            self.known.clear();
            self.stand = stand;
        }
        if self.known.contains(&key) {
            return false;
        }
        if self.known.is_full() {
            self.known.remove(0);
        }
        debug_assert!(self.known.len() < WRONG_KEYS_MAX, "a bounded list");
        self.known.push(key);
        true
    }

    pub fn clear(&mut self) {
        self.known.clear();
    }
}

/// Networks from which a key was guessed recently. A context with such an address starts as one
/// that has guessed already, so its first guess is not free.
#[derive(Debug)]
pub(crate) struct Guessers {
    seen: HashSet<IpAddr, Keyed>,
    /// When the present set was begun.
    since: Time,
}

impl Guessers {
    pub fn new(now: Time, keyed: Keyed) -> Self {
        Self { seen: HashSet::with_hasher(keyed), since: now }
    }

    /// Notes that a key was guessed from `ip`. An IPv6 address counts as its /64, because one host
    /// has all addresses of it.
    pub fn note(&mut self, ip: IpAddr) {
        if self.seen.len() < GUESSERS_MAX {
            self.seen.insert(network(ip));
        }
        debug_assert!(self.seen.len() <= GUESSERS_MAX, "a bounded table");
    }

    /// Whether a new context with address `ip` counts as one that has guessed. When the table is
    /// full, every new context does.
    pub fn suspects(&mut self, now: Time, ip: IpAddr) -> bool {
        if now.since(self.since) >= GUESSERS_KEPT {
            self.seen.clear();
            self.since = now;
        }
        self.seen.len() >= GUESSERS_MAX || !self.seen.is_empty() && self.seen.contains(&network(ip))
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(a) => IpAddr::V6((a.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use rustc_hash::FxHashSet;

    fn maker(seed: u64) -> (KeyMaker, Rng) {
        let mut rng = Rng::from_seed(seed);
        (KeyMaker::new(HashKey::draw(&mut rng)), rng)
    }

    #[test]
    fn a_million_keys_are_different_and_known() {
        let (mut keys, mut rng) = maker(1);
        let mut made = FxHashSet::default();
        for _ in 0..1 << 20 {
            assert!(made.insert(keys.next(&mut rng, |_| true)), "a key came back");
        }
        assert!(made.iter().take(10_000).all(|&k| keys.has_made(k)));
        // Of the other keys, those that the counter stepped over are taken for old ones: it
        // advanced 8.5 steps for each key, 2^23.1 of 2^32.
        let others = (0..100_000).map(|_| rng.next_u32()).filter(|k| !made.contains(k));
        let mistaken = others.filter(|&k| keys.has_made(k)).count();
        assert!(mistaken < 400, "{mistaken} of 100000, 185 expected");
    }

    #[test]
    fn a_key_that_was_refused_is_news_again_when_one_was_made() {
        let mut w = WrongKeys::default();
        assert!(w.note(7, 1) && !w.note(7, 1) && w.note(8, 1) && !w.note(7, 1));
        assert!(w.note(7, 2) && w.note(8, 2));
        for key in 100..100 + WRONG_KEYS_MAX as u32 {
            assert!(w.note(key, 2));
        }
        assert!(!w.note(100, 2) && w.note(7, 2), "the oldest made room");
    }

    #[test]
    fn guessers_are_known_by_their_networks_for_a_while() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        let mut g = Guessers::new(Time(0), Keyed::draw(&mut Rng::from_seed(1)));
        g.note(ip("10.0.0.1"));
        g.note(ip("fd00::1"));
        let mut suspects = |now, s| g.suspects(now, ip(s));
        assert!(suspects(Time(1), "10.0.0.1") && suspects(Time(1), "::ffff:10.0.0.1"));
        assert!(suspects(Time(1), "fd00::2:3") && !suspects(Time(1), "fd00:0:0:1::1"));
        assert!(!suspects(Time(1), "10.0.0.2"));
        assert!(!suspects(Time(0) + GUESSERS_KEPT, "10.0.0.1"));
        for i in 0..GUESSERS_MAX as u32 + 5 {
            g.note(IpAddr::V4((0x0A00_0000 + i).into()));
        }
        assert!(g.seen.len() == GUESSERS_MAX && g.suspects(Time(0) + GUESSERS_KEPT, ip("1.2.3.4")));
    }

    #[test]
    fn keys_of_one_life_say_nothing_of_another() {
        let ((mut a, mut rng), (mut b, _)) = (maker(2), maker(3));
        let of_a: Vec<_> = (0..1000).map(|_| a.next(&mut rng, |_| true)).collect();
        assert!(of_a.iter().filter(|&&k| b.has_made(k)).count() == 0);
        let of_b: Vec<_> = (0..1000).map(|_| b.next(&mut rng, |_| true)).collect();
        assert!(of_a.iter().all(|k| !of_b.contains(k)));
        // Each bit is set in about half of the keys.
        for bit in 0..32 {
            let set = of_a.iter().filter(|&&k| k >> bit & 1 == 1).count();
            assert!((400..600).contains(&set), "bit {bit}: {set} of 1000");
        }
    }

    #[test]
    fn keys_in_use_are_passed_over_when_the_counter_comes_round() {
        let (mut keys, mut rng) = maker(4);
        let first = keys.next(&mut rng, |_| true);
        keys.counter = keys.number_of(first).wrapping_sub(1);
        let next = (0..STEP_MAX).map(|_| keys.next(&mut rng, |k| k != first));
        assert!(next.into_iter().all(|k| k != first));
    }
}
