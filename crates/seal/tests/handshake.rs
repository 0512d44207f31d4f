//! The handshake: what it takes, what it refuses, and what happens when messages are lost, copied,
//! late, damaged or forged.

mod common;

use common::*;
use srd_seal::*;

/// Both sessions talk to each other, in both directions and across epochs.
fn talk(at_i: &mut Session, at_r: &mut Session, start_i: u64, start_r: u64) {
    for step in [0, 1, 17, 40] {
        let mut packet = plain(9, start_i + step, b"from the initiator");
        at_i.sender.seal(start_i + step, &mut packet).unwrap();
        let mut own = packet.clone();
        assert_eq!(at_r.receiver.open(&mut packet).unwrap().number, start_i + step);
        // A packet thrown back at its sender is not authentic: each direction has its own keys.
        assert!(at_i.receiver.open(&mut own).is_err());

        let mut packet = plain(9, start_r + step, b"from the responder");
        at_r.sender.seal(start_r + step, &mut packet).unwrap();
        assert_eq!(at_i.receiver.open(&mut packet).unwrap().number, start_r + step);
    }
}

#[test]
fn both_ends_get_the_keys_and_the_parameters() {
    let (ring, mut draw) = (ring(KEY_A), Draw(1));
    let mut initiator = initiator(&ring, &ends(), 77, &mut draw);
    for bytes in [SEALED_OPEN_BYTES, 576, 1472, 9000] {
        let open = open_packet(&initiator, bytes);
        assert!(open[SEALED_OPEN_BYTES..].iter().all(|&byte| byte == 0));
        assert!(!open.windows(4).any(|part| part == [0xa1; 4]), "the parameters are readable");
        let greeting = Greeting::read(&open, &ends(), LIMITS, &ring).unwrap();
        assert_eq!((greeting.tag(), greeting.key_id()), (77, 7));
        assert_eq!(greeting.propose().unwrap().params(), &PARAMS_I);
    }
    let open = open_packet(&initiator, 1472);
    let mut half = answer(&open, &ends(), &ring, &mut draw).unwrap();
    let (keys, params) = initiator.finish(&ack_packet(&half, 576)).unwrap();
    assert_eq!(params, PARAMS_R);
    let keys_r = half.keys_take().unwrap();
    assert!(half.keys_take().is_none(), "keys that two owners would use");
    assert_eq!((keys.hash(), keys.suite()), (keys_r.hash(), keys_r.suite()));
    let (start_i, start_r) = (123, (1 << 40) + 5);
    let mut at_i = keys.session(start_i, start_r).unwrap();
    let mut at_r = keys_r.session(start_r, start_i).unwrap();
    talk(&mut at_i, &mut at_r, start_i, start_r);
}

#[test]
fn an_answer_gives_keys_once() {
    let (ring, mut draw) = (ring(KEY_A), Draw(2));
    let mut initiator = initiator(&ring, &ends(), 77, &mut draw);
    let open = open_packet(&initiator, SEALED_OPEN_BYTES);
    let half = answer(&open, &ends(), &ring, &mut draw).unwrap();
    let ack = ack_packet(&half, SEALED_OPEN_ACK_BYTES);
    assert!(initiator.finish(&ack).is_ok());
    assert_eq!(initiator.finish(&ack).err(), Some(Refusal::Settled));
    let other = answer(&open, &ends(), &ring, &mut draw).unwrap();
    let ack = ack_packet(&other, SEALED_OPEN_ACK_BYTES);
    assert_eq!(initiator.finish(&ack).err(), Some(Refusal::Settled));
}

#[test]
fn one_changed_bit_of_any_handshake_packet_is_refused() {
    let (ring, mut draw) = (ring(KEY_A), Draw(3));
    let mut initiator = initiator(&ring, &ends(), 77, &mut draw);
    let open = open_packet(&initiator, SEALED_OPEN_BYTES + 9);
    let greeting = Greeting::read(&open, &ends(), LIMITS, &ring).unwrap();
    let mut challenge = [0; SEALED_CHALLENGE_BYTES];
    greeting.propose().unwrap().challenge_write(5, &HEADER, &mut challenge).unwrap();
    let half = answer(&open, &ends(), &ring, &mut draw).unwrap();
    let ack = ack_packet(&half, SEALED_OPEN_ACK_BYTES + 9);

    for bit in 0..open.len() * 8 {
        let mut damaged = open.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let read = Greeting::read(&damaged, &ends(), LIMITS, &ring);
        assert!(read.is_err(), "bit {bit} of the SealedOpen");
    }
    for bit in 0..challenge.len() * 8 {
        let mut damaged = challenge;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(initiator.challenged(&damaged).is_err(), "bit {bit} of the SealedChallenge");
    }
    for bit in 0..ack.len() * 8 {
        let mut damaged = ack.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(initiator.finish(&damaged).is_err(), "bit {bit} of the SealedOpenAck");
    }
    // After all that, the true ones are taken.
    initiator.challenged(&challenge).unwrap();
    initiator.finish(&ack).unwrap();
}

#[test]
fn no_other_length_is_taken() {
    let (ring, mut draw) = (ring(KEY_A), Draw(4));
    let mut initiator = initiator(&ring, &ends(), 77, &mut draw);
    let open = open_packet(&initiator, SEALED_OPEN_BYTES + 20);
    let half = answer(&open, &ends(), &ring, &mut draw).unwrap();
    let ack = ack_packet(&half, SEALED_OPEN_ACK_BYTES + 20);
    for bytes in (0..open.len()).chain([open.len() + 1, 2000]) {
        let mut other = open.clone();
        other.resize(bytes, 0);
        let error = Greeting::read(&other, &ends(), LIMITS, &ring).err();
        let short = bytes < SEALED_OPEN_BYTES;
        assert_eq!(error, Some(if short { Refusal::Truncated } else { Refusal::Mac }), "{bytes}");
    }
    for bytes in (0..ack.len()).chain([ack.len() + 1, 2000]) {
        let mut other = ack.clone();
        other.resize(bytes, 0);
        let error = initiator.finish(&other).err();
        let short = bytes < SEALED_OPEN_ACK_BYTES;
        assert_eq!(error, Some(if short { Refusal::Truncated } else { Refusal::Mac }), "{bytes}");
    }
    assert_eq!(initiator.write(&HEADER, &mut [0; SEALED_OPEN_BYTES - 1]), Err(Refusal::Truncated));
    assert_eq!(half.write(&HEADER, &mut [0; SEALED_OPEN_ACK_BYTES - 1]), Err(Refusal::Truncated));
}

#[test]
fn strangers_and_wrong_keys_end_at_the_keyed_hash() {
    let mut draw = Draw(5);
    let (a, b) = (ring(KEY_A), ring(KEY_B));
    let mut ours = initiator(&a, &ends(), 77, &mut draw);
    let open = open_packet(&ours, SEALED_OPEN_BYTES);
    // Another key under another number, and another key under the same number.
    assert_eq!(answer(&open, &ends(), &b, &mut draw).err(), Some(Refusal::KeyId));
    let same_id = ring(&KEY_B.replacen('8', "7", 1));
    assert_eq!(answer(&open, &ends(), &same_id, &mut draw).err(), Some(Refusal::Mac));
    // An answer by somebody with another key, who has guessed or seen everything readable.
    let forged = {
        let theirs = initiator(&same_id, &ends(), 77, &mut draw);
        let open = open_packet(&theirs, SEALED_OPEN_BYTES);
        ack_packet(&answer(&open, &ends(), &same_id, &mut draw).unwrap(), SEALED_OPEN_ACK_BYTES)
    };
    assert_eq!(ours.finish(&forged).err(), Some(Refusal::Mac));
    // The answer to another handshake with the same key and tag.
    let other = initiator(&a, &ends(), 77, &mut draw);
    let half = answer(&open_packet(&other, 200), &ends(), &a, &mut draw).unwrap();
    assert_eq!(ours.finish(&ack_packet(&half, 200)).err(), Some(Refusal::Mac));
}

#[test]
fn addresses_ports_parts_and_limits_are_bound() {
    let (ring, mut draw) = (ring(KEY_A), Draw(6));
    let sent = ends();
    let open = open_packet(&initiator(&ring, &sent, 77, &mut draw), SEALED_OPEN_BYTES);
    let swapped = Ends { initiator: sent.responder, responder: sent.initiator };
    let others = [
        Ends { initiator: end(3, 18_742), ..sent },
        Ends { initiator: end(1, 18_743), ..sent },
        Ends { responder: end(3, 18_703), ..sent },
        Ends { responder: end(2, 18_704), ..sent },
        swapped,
    ];
    for other in others {
        let error = Greeting::read(&open, &other, LIMITS, &ring).err();
        assert_eq!(error, Some(Refusal::Mac), "{other:?}");
    }
    let limits = Limits { epoch_bits: 5, ..LIMITS };
    assert_eq!(Greeting::read(&open, &sent, limits, &ring).err(), Some(Refusal::Mac));
    // Failed opens are each end's own affair.
    let limits = Limits { failed_opens_max: 5, ..LIMITS };
    assert!(Greeting::read(&open, &sent, limits, &ring).is_ok());
    // An IPv4 address and the same one mapped into IPv6 are one.
    let mapped = |end: End| match end.ip {
        std::net::IpAddr::V4(ip) => End { ip: ip.to_ipv6_mapped().into(), ..end },
        std::net::IpAddr::V6(_) => end,
    };
    let mapped = Ends { initiator: mapped(sent.initiator), responder: mapped(sent.responder) };
    assert!(Greeting::read(&open, &mapped, LIMITS, &ring).is_ok());
}

#[test]
fn what_cannot_be_begun_says_so() {
    let (ring, mut draw) = (ring(KEY_A), Draw(7));
    let offer = offer(&PARAMS_I);
    let begin = |limits, tag, ephemeral| {
        Initiator::new(ring.sending(), &ends(), limits, tag, &offer, ephemeral).err()
    };
    assert_eq!(begin(LIMITS, 0, draw.ephemeral()), Some(Refusal::Tag));
    for epoch_bits in [0, 31, 64] {
        let limits = Limits { epoch_bits, ..LIMITS };
        assert_eq!(begin(limits, 1, draw.ephemeral()), Some(Refusal::Limits));
    }
    assert!(Suites::new(&[]).is_none());
    assert!(Suites::new(&[Suite::Aes256Gcm, Suite::Aes256Gcm]).is_none());
    let mut draw = Draw(8);
    let mut initiator = initiator(&ring, &ends(), 5, &mut draw);
    let open = open_packet(&initiator, SEALED_OPEN_BYTES);
    let half = answer(&open, &ends(), &ring, &mut draw).unwrap();
    let (keys, _) = initiator.finish(&ack_packet(&half, SEALED_OPEN_ACK_BYTES)).unwrap();
    assert_eq!(keys.session(NUMBER_END, 0).err(), Some(Refusal::Numbers));
}

#[test]
fn the_responder_takes_the_initiators_first_cipher_that_it_accepts() {
    use Suite::{Aes256Gcm as Aes, ChaCha20Poly1305 as ChaCha};
    let (ring, mut draw) = (ring(KEY_A), Draw(9));
    let mut outcome = |offered: &[Suite], accepted: &[Suite]| {
        let suites = Suites::new(offered).unwrap();
        let offer = Offer { suites, params: &PARAMS_I };
        let mut initiator =
            Initiator::new(ring.sending(), &ends(), LIMITS, 77, &offer, draw.ephemeral()).unwrap();
        let open = open_packet(&initiator, SEALED_OPEN_BYTES);
        let greeting = Greeting::read(&open, &ends(), LIMITS, &ring).unwrap();
        let offer = Offer { suites: Suites::new(accepted).unwrap(), params: &PARAMS_R };
        let half = greeting.propose().unwrap().answer(&offer, draw.ephemeral())?;
        let (keys, _) = initiator.finish(&ack_packet(&half, SEALED_OPEN_ACK_BYTES))?;
        Ok(keys.suite())
    };
    assert_eq!(outcome(&[Aes, ChaCha], &[ChaCha, Aes]), Ok(Aes));
    assert_eq!(outcome(&[ChaCha, Aes], &[Aes, ChaCha]), Ok(ChaCha));
    assert_eq!(outcome(&[Aes, ChaCha], &[ChaCha]), Ok(ChaCha));
    assert_eq!(outcome(&[Aes], &[ChaCha]), Err(Refusal::Suite));
}

#[test]
fn keys_are_rotated_without_a_stop() {
    let mut draw = Draw(10);
    // One host has added the new key, the other one sends with it already.
    let (added, promoted) =
        (ring(&format!("{KEY_A}\n{KEY_B}")), ring(&format!("{KEY_B}\n{KEY_A}")));
    for (from, to, id) in [(&added, &promoted, 7), (&promoted, &added, 8)] {
        let mut initiator = initiator(from, &ends(), 77, &mut draw);
        let open = open_packet(&initiator, SEALED_OPEN_BYTES);
        let greeting = Greeting::read(&open, &ends(), LIMITS, to).unwrap();
        assert_eq!(greeting.key_id(), id);
        let half = answer(&open, &ends(), to, &mut draw).unwrap();
        assert!(initiator.finish(&ack_packet(&half, SEALED_OPEN_ACK_BYTES)).is_ok());
    }
}

#[test]
fn a_cookie_returns_only_from_who_has_the_key() {
    let (ring, mut draw) = (ring(KEY_A), Draw(11));
    let mut initiator = initiator(&ring, &ends(), 77, &mut draw);
    let mut other = common::initiator(&ring, &ends(), 77, &mut draw);
    let challenge = |initiator: &Initiator, cookie| {
        let open = open_packet(initiator, SEALED_OPEN_BYTES);
        let greeting = Greeting::read(&open, &ends(), LIMITS, &ring).unwrap();
        let mut packet = vec![0; SEALED_CHALLENGE_BYTES];
        greeting.propose().unwrap().challenge_write(cookie, &HEADER, &mut packet).unwrap();
        packet
    };
    let carried = |open: &[u8]| Greeting::read(open, &ends(), LIMITS, &ring).map(|g| g.cookie());
    let first = open_packet(&initiator, SEALED_OPEN_BYTES);
    assert_eq!(carried(&first), Ok(0), "none at first");
    let asked = challenge(&initiator, 5);
    assert_eq!(other.challenged(&asked), Err(Refusal::Mac), "the question of another handshake");
    initiator.challenged(&asked).unwrap();
    assert_eq!(carried(&open_packet(&initiator, SEALED_OPEN_BYTES)), Ok(5));
    // The newest question counts.
    initiator.challenged(&challenge(&initiator, 8)).unwrap();
    let proven = open_packet(&initiator, SEALED_OPEN_BYTES);
    assert_eq!(carried(&proven), Ok(8));
    // Who copies a SealedOpen cannot put a cookie into it, neither with its keyed hash nor without.
    let mut copied = first.clone();
    copied[136..144].copy_from_slice(&proven[136..144]);
    assert_eq!(carried(&copied), Err(Refusal::Mac));
    copied[136..160].copy_from_slice(&proven[136..160]);
    assert_eq!(carried(&copied), Ok(8), "which is the other packet of the same handshake");
    let mut of_other = open_packet(&other, SEALED_OPEN_BYTES);
    of_other[136..160].copy_from_slice(&proven[136..160]);
    assert_eq!(carried(&of_other), Err(Refusal::Mac));
}

#[test]
fn a_copied_open_has_the_same_answer_and_a_replayed_one_gives_no_keys_to_the_replayer() {
    let (ring, mut draw) = (ring(KEY_A), Draw(12));
    let mut ours = initiator(&ring, &ends(), 77, &mut draw);
    let (first, second) = (open_packet(&ours, 200), open_packet(&ours, 1000));
    let mut half = answer(&first, &ends(), &ring, &mut draw).unwrap();
    let greeting = Greeting::read(&second, &ends(), LIMITS, &ring).unwrap();
    assert!(half.answers(&greeting));
    assert_eq!(half.share(), ours.share());
    // The same message in any datagram: the keys are those of the first answer.
    let (ack, again) = (ack_packet(&half, 200), ack_packet(&half, 1000));
    assert_eq!(ack[24..128], again[24..128]);
    let other = initiator(&ring, &ends(), 77, &mut draw);
    let of_other = open_packet(&other, 200);
    assert!(!half.answers(&Greeting::read(&of_other, &ends(), LIMITS, &ring).unwrap()));

    let (keys, _) = ours.finish(&again).unwrap();
    let mut at_i = keys.session(0, 0).unwrap();
    let mut at_r = half.keys_take().unwrap().session(0, 0).unwrap();
    talk(&mut at_i, &mut at_r, 0, 0);

    // In a later life of the responder the old SealedOpen is authentic still, but what was sealed
    // in the old life is not: the responder's share is fresh. Numbers and epochs would fit.
    let mut replayed = plain(9, 60, b"of the old life");
    at_i.sender.seal(60, &mut replayed).unwrap();
    let mut new_half = answer(&first, &ends(), &ring, &mut draw).unwrap();
    assert_ne!(ack_packet(&new_half, 200), ack);
    let mut new_life = new_half.keys_take().unwrap().session(0, 44).unwrap();
    assert_eq!(new_life.receiver.open(&mut replayed.clone()), Err(OpenError::Seal));
    assert!(at_r.receiver.open(&mut replayed).is_ok());
    // Nor is what the new life answers taken by the old one, whatever is known of its answer.
    let mut of_new_life = plain(9, 0, b"of the new life");
    new_life.sender.seal(0, &mut of_new_life).unwrap();
    assert!(at_i.receiver.open(&mut of_new_life).is_err());
    assert_eq!(ours.finish(&ack_packet(&new_half, 200)).err(), Some(Refusal::Settled));
}

/// One host of two that open at once, by the rules of docs/sealing.md.
struct Host {
    own: End,
    peer: End,
    mine: Option<Initiator>,
    half: Option<HalfOpen>,
    keys: Vec<[u8; 32]>,
}

impl Host {
    /// Reads one packet; gives what it answers.
    fn read(&mut self, packet: &[u8], ring: &KeyRing, draw: &mut Draw) -> Option<Vec<u8>> {
        if packet[0] & 31 == SEALED_OPEN_ACK {
            let (keys, _) = self.mine.as_mut()?.finish(packet).ok()?;
            self.mine = None;
            self.keys.push(*keys.hash());
            return None;
        }
        let from_peer = Ends { initiator: self.peer, responder: self.own };
        let greeting = Greeting::read(packet, &from_peer, LIMITS, ring).ok()?;
        if let Some(half) = self.half.as_ref().filter(|half| half.answers(&greeting)) {
            return Some(ack_packet(half, SEALED_OPEN_ACK_BYTES));
        }
        if let Some(mine) = &self.mine {
            match crossing(mine.share(), greeting.share()) {
                Crossing::Ours => return None,
                Crossing::Theirs => self.mine = None,
            }
        } else if !self.keys.is_empty() {
            // Open already, by the smaller share: a late copy of the larger one.
            return None;
        }
        let mut half = answer(packet, &from_peer, ring, draw).expect("authentic");
        self.keys.push(*half.keys_take().expect("new").hash());
        let ack = ack_packet(&half, SEALED_OPEN_ACK_BYTES);
        self.half = Some(half);
        Some(ack)
    }
}

/// Two hosts open at the same moment, over a network that loses, copies and delays; both repeat
/// themselves. They always come to the same single handshake.
#[test]
fn simultaneous_opens_come_to_one_handshake() {
    let ring = ring(KEY_A);
    for seed in 0..300 {
        let mut draw = Draw(seed);
        let ends = [end(1, 18_742), end(2, 18_703)];
        let mut hosts = [0, 1].map(|at| {
            let (own, peer) = (ends[at], ends[1 - at]);
            let from_own = Ends { initiator: own, responder: peer };
            let mine = Some(initiator(&ring, &from_own, 70 + at as u32, &mut draw));
            Host { own, peer, mine, half: None, keys: Vec::new() }
        });
        let smaller = {
            let share = |at: usize| *hosts[at].mine.as_ref().expect("new").share();
            usize::from(share(1) < share(0))
        };
        let mut network: Vec<(usize, Vec<u8>)> = Vec::new();
        for round in 0..200 {
            for (at, host) in hosts.iter().enumerate() {
                if let Some(mine) = host.mine.as_ref().filter(|_| round % 4 == 0) {
                    network.push((1 - at, open_packet(mine, SEALED_OPEN_BYTES)));
                }
            }
            if network.is_empty() {
                continue;
            }
            let (to, packet) = network.swap_remove(draw.below(network.len() as u64) as usize);
            if draw.below(3) == 0 {
                continue; // Lost.
            }
            if draw.below(4) == 0 {
                network.push((to, packet.clone()));
            }
            if let Some(reply) = hosts[to].read(&packet, &ring, &mut draw) {
                network.push((1 - to, reply));
            }
        }
        let [a, b] = &hosts;
        assert_eq!(a.keys.len(), 1, "seed {seed}");
        assert_eq!(a.keys, b.keys, "seed {seed}");
        assert!(a.mine.is_none() && b.mine.is_none(), "seed {seed}");
        assert!(hosts[1 - smaller].half.is_some(), "seed {seed}: the larger share won");
    }
}

/// Whatever arrives in place of a handshake packet: refused, without a panic.
#[test]
fn noise_on_the_line() {
    let (ring, mut draw) = (ring(KEY_A), Draw(13));
    let mut initiator = initiator(&ring, &ends(), 77, &mut draw);
    for seed in 0..20_000 {
        let mut packet = vec![0; draw.below(300) as usize];
        packet.iter_mut().for_each(|byte| *byte = draw.next() as u8);
        if packet.len() > 1 && draw.below(8) > 0 {
            packet[0] = 0x28 + draw.below(5) as u8;
            packet[1] = packet[1] & 0xf0 | 4;
            if packet.len() > 160 {
                packet[160..].fill(0);
            }
        }
        let mut copy = packet.clone();
        assert!(Greeting::read(&packet, &ends(), LIMITS, &ring).is_err(), "seed {seed}");
        assert!(initiator.finish(&packet).is_err(), "seed {seed}");
        assert!(initiator.challenged(&packet).is_err(), "seed {seed}");
        assert!(KeySlots::new(1).open(&mut copy).is_err(), "seed {seed}");
    }
}
