use super::*;
use crate::sealed::plan::tests::calm;

/// A datagram of member 0 to member 1 with these first bytes.
fn gram(first: u8, flags: u8) -> Gram {
    let dst = crate::sealed::member::Member::new(&calm(), 1, 1, 0, 1_000).at;
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[1]) = (first, flags);
    let src = crate::sealed::plan::ip_of(0);
    Gram { bytes, src, dst, honest: Some(0), id: 0, at: 0, job: None }
}

#[test]
fn answers_to_handshakes_are_lost_as_often_and_as_long_as_planned() {
    let lost = |plan: &Plan, from: usize, to: usize, kind: u8, n: usize| {
        let mut network = Network::default();
        let gram = gram(kind, Flags::SEALED);
        (0..n).filter(|_| network.loses_answer(plan, from, Some(to), &gram, 700)).count()
    };
    let plan = Plan { answers_lost: [3, 1], ..calm() };
    assert_eq!(lost(&plan, 0, 1, SEALED_OPEN_ACK, 9), 3, "the first three of the lower number");
    assert_eq!(lost(&plan, 1, 0, SEALED_OPEN_ACK, 9), 1);
    assert_eq!(lost(&plan, 0, 1, SEALED_OPEN, 9), 0, "handshakes themselves arrive");
    let while_changing = |from, until| Plan { answers_lost_ns: Some([from, until]), ..calm() };
    assert_eq!(lost(&while_changing(700, 701), 0, 1, SEALED_OPEN_ACK, 9), 9);
    assert_eq!(lost(&while_changing(600, 700), 0, 1, SEALED_OPEN_ACK, 9), 0, "it is over");
    let mut network = Network::default();
    let stranger = gram(SEALED_OPEN_ACK, Flags::SEALED);
    assert!(!network.loses_answer(&plan, 0, None, &stranger, 700), "to nobody of this world");
}

#[test]
fn an_attacker_remembers_a_bounded_past_and_what_it_needs_most() {
    let mut network = Network::default();
    for at in 0..5_000 {
        network.remember(&gram(PacketType::Send as u8, Flags::SEALED), at);
    }
    assert_eq!(network.past.len(), 512);
    assert!(network.asked.is_none() && network.opener.is_none());
    network.remember(&gram(srd_seal::CONTEXT_QUERY, Flags::SEALED), 0);
    network.remember(&gram(PacketType::Reset as u8, 0), 1);
    assert!(network.asked.is_some() && network.opener.is_none(), "that one has no seal");
    network.remember(&gram(PacketType::Reset as u8, Flags::SEALED), 2);
    assert!(network.opener.is_some());
    assert_eq!(network.past.len(), 512, "the old make room");
}
