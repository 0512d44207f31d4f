//! Tests of the liars: their packets are well-formed, use what the victim sent, and differ from the
//! truth where intended.

use super::forge::{self, Draft, Manner, REFUSALS};
use super::heard::{Dice, Heard};
use super::party::Direction;
use super::pretend::{self, Act};
use srd_wire::{
    AckBlock, Body, Flags, Header, Message, OpenParams, Packet, PacketType, ReadReq, ReadStatus,
    Verdict, parse_checked,
};
use std::collections::{BTreeMap, BTreeSet};

const HONEST: Manner = Manner { stateful: true, checked: true, slot: 3, room: 8900 };

fn header(kind: PacketType, psn: u32) -> Header {
    Header {
        kind,
        flags: Flags(0),
        backlog: srd_wire::Backlog(0),
        path: 5,
        slot: 0,
        dst_tag: 7,
        tx_num: psn.wrapping_mul(2),
        timestamp: psn.wrapping_mul(3),
        psn,
        una_delta: 0,
        ack_echo: 0,
    }
}

fn message(msg_id: u32) -> Message {
    Message { src_qpn: 0x205, dst_qpn: 1, qkey: 2, msg_id }
}

fn note(heard: &mut Heard, body: Body, psn: u32, payload_len: u16) {
    let packet = Packet { header: header(body.kind(), psn), ack: None, body, payload_len };
    heard.note(&packet);
}

/// A liar that was sent `n` messages from PSN 100 on, every tenth with a long payload.
fn heard_of(n: u32) -> Heard {
    let mut heard = Heard { tag: 9, own_tag: 8, life: 5, psn: 50, told: 50, ..Heard::default() };
    for i in 0..n {
        let payload = if i % 10 == 9 { 4000 } else { 500 };
        note(&mut heard, Body::Send(message(i)), 100 + i, payload);
    }
    heard
}

#[test]
fn random_numbers_are_reproducible_and_uniform() {
    let draw = |seed| {
        let mut dice = Dice(seed);
        (0..100).map(|_| dice.next()).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_eq!(draw(1).iter().collect::<BTreeSet<_>>().len(), 100);
    assert!(draw(1).iter().zip(draw(2)).all(|(a, b)| *a != b));
    let mut dice = Dice(4);
    let mut counts = [0_u32; 8];
    for _ in 0..80_000 {
        counts[dice.below(8) as usize] += 1;
    }
    assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    let once = (0..40_000).filter(|_| dice.once_in(20)).count();
    assert!((1_700..2_300).contains(&once), "{once}");
    let picked: BTreeSet<u8> = (0..100).map(|_| dice.pick(&[1, 2, 3])).collect();
    assert_eq!(picked.len(), 3);
}

#[test]
fn most_lies_are_near_the_truth_and_some_far() {
    for truth in [0_u32, 5, 1 << 31, u32::MAX] {
        let mut dice = Dice(8);
        let far = |n: u32| (n.wrapping_sub(truth) as i32).unsigned_abs();
        let (mut near, mut windows, mut sides) = (0, 0, [0, 0]);
        for _ in 0..10_000 {
            let n = dice.near(truth);
            near += u32::from(far(n) <= 32);
            windows += u32::from((70_000..).contains(&far(n)));
            sides[usize::from((n.wrapping_sub(truth) as i32) < 0)] += 1;
        }
        assert!((5_500..7_500).contains(&near), "{near} near {truth}");
        assert!(windows > 1_000, "{windows} beyond every window of {truth}");
        assert!(sides.iter().all(|s| *s > 3_000), "{sides:?} around {truth}");
    }
}

#[test]
fn memory_of_a_victim_is_bounded_and_keeps_the_newest() {
    let mut heard = heard_of(1000);
    assert_eq!((heard.seen.len(), heard.msg_ids.len()), (64, 64));
    assert_eq!(heard.seen.back().unwrap().psn, 1099);
    assert_eq!(heard.seen.front().unwrap().psn, 1036);
    assert_eq!(heard.peer_psn, 1100, "one past the newest");
    assert_eq!(heard.qpn, 0x205);
    for i in 0..200 {
        let read = ReadReq { rkey: 1, raddr: 2, len: 10 + i };
        note(&mut heard, Body::ReadReq(message(i), read), 1100 + i, 0);
    }
    assert_eq!(heard.reads.len(), 64);
    let newest = heard.reads.back().unwrap();
    assert_eq!((newest.msg_id, newest.len, newest.next), (199, 209, 0));
}

#[test]
fn sequence_numbers_wrap_around() {
    let mut heard = Heard { peer_psn: u32::MAX - 1, ..Heard::default() };
    note(&mut heard, Body::Send(message(1)), u32::MAX, 1);
    assert_eq!(heard.peer_psn, 0);
    note(&mut heard, Body::Send(message(2)), u32::MAX - 5, 1);
    assert_eq!(heard.peer_psn, 0, "a late old packet moves nothing back");
    note(&mut heard, Body::Send(message(3)), 3, 1);
    assert_eq!(heard.peer_psn, 4);
}

#[test]
fn opens_and_challenges_are_recorded() {
    let mut heard = heard_of(3);
    let open = OpenParams { psn_start: 7000, ..forge::params(&mut Dice(1), &heard, HONEST, false) };
    note(&mut heard, Body::OpenAck(open), 0, 0);
    assert_eq!(heard.peer_psn, 7000);
    note(&mut heard, Body::Challenge { echo_tag: 1, cookie: 0xC00C }, 0, 0);
    assert_eq!(heard.cookie, 0xC00C);
    let block = AckBlock { cum: 60, ..AckBlock::default() };
    let body = Body::Ack;
    let packet = Packet { header: header(body.kind(), 0), ack: Some(&block), body, payload_len: 0 };
    heard.note(&packet);
    assert_eq!(heard.told, 60);
}

#[test]
fn honest_offers_are_constant_and_odd_ones_vary() {
    let heard = heard_of(3);
    let mut dice = Dice(2);
    let first = forge::params(&mut dice, &heard, HONEST, false);
    assert_eq!((first.tag, first.incarnation, first.psn_start), (8, 5, 50));
    assert!(first.window > 0 && first.mtu > 0 && first.reads_max > 0);
    assert_eq!(forge::params(&mut dice, &heard, HONEST, false), first, "the same each time");
    let odd: Vec<_> = (0..200).map(|_| forge::params(&mut dice, &heard, HONEST, true)).collect();
    for field in [
        |p: &OpenParams| u64::from(p.window),
        |p: &OpenParams| u64::from(p.mtu),
        |p: &OpenParams| u64::from(p.psn_start),
        |p: &OpenParams| u64::from(p.rx_budget),
        |p: &OpenParams| u64::from(p.features.0),
    ] {
        let values: BTreeSet<u64> = odd.iter().map(field).collect();
        assert!(values.contains(&field(&first)) && values.len() > 2, "{values:?}");
    }
}

/// The encoded and parsed datagrams of drafts that `next` returns.
fn datagrams(
    manner: Manner,
    n: usize,
    mut next: impl FnMut(&mut Dice, &mut Heard) -> Draft,
    mut look: impl FnMut(&Packet<'_>, usize),
) {
    let (mut dice, mut heard) = (Dice(11), heard_of(40));
    let (mut out, mut ack) = (Vec::new(), AckBlock::default());
    for _ in 0..n {
        let draft = next(&mut dice, &mut heard);
        forge::datagram(&mut dice, &mut heard, manner, &draft, &mut out);
        assert!(out.len() <= manner.room, "{} bytes: {draft:?}", out.len());
        let (packet, _) = parse_checked(&out, &mut ack).unwrap_or_else(|e| panic!("{e} {draft:?}"));
        look(&packet, out.len());
    }
}

#[test]
fn every_lie_can_be_parsed_at_any_length() {
    for room in [1400, 8900] {
        let manner = Manner { room, ..HONEST };
        let (mut kinds, mut opens) = (BTreeSet::new(), 0);
        let forged = |dice: &mut Dice, heard: &mut Heard| forge::forge(dice, heard, manner);
        datagrams(manner, 30_000, forged, |packet, len| {
            kinds.insert(packet.header.kind as u8);
            assert_eq!(packet.header.slot, manner.slot);
            if packet.header.kind == PacketType::Open {
                opens += 1;
                assert_eq!(len, room, "an Open is padded to prove the MTU");
                assert_eq!(packet.header.dst_tag, 0);
            }
        });
        assert_eq!(kinds.len(), 18, "{kinds:?}");
        assert!(opens > 0);
    }
}

#[test]
fn transmission_numbers_mostly_continue() {
    let mut before = 0_u32;
    let (mut next, mut all) = (0, 0);
    let forged = |dice: &mut Dice, heard: &mut Heard| forge::forge(dice, heard, HONEST);
    datagrams(HONEST, 10_000, forged, |packet, _| {
        let tx_num = packet.header.tx_num;
        next += u32::from(tx_num == before.wrapping_add(1));
        all += 1;
        before = tx_num;
    });
    assert!(next > all * 97 / 100 && next < all, "{next} of {all}");
}

#[test]
fn resets_rarely_have_the_valid_cookie() {
    let heard = Heard { cookie: 0xFEED, own_tag: 1, tag: 2, ..Heard::default() };
    let mut dice = Dice(6);
    let (mut proofs, mut zeros) = (0, 0);
    for _ in 0..10_000 {
        let Body::Reset { nonce, .. } = forge::reset(&mut dice, &heard) else { panic!("no Reset") };
        proofs += u32::from(nonce == heard.cookie);
        zeros += u32::from(nonce == 0);
    }
    assert!((20..400).contains(&proofs), "{proofs} of 10,000");
    assert!((4_000..6_000).contains(&zeros), "{zeros} of 10,000");
}

/// The first `n` acknowledgment blocks of honest steps.
fn truths(heard: &mut Heard, n: usize) -> Vec<AckBlock> {
    let (mut dice, mut act) = (Dice(21), Act::default());
    let mut out = Vec::new();
    while out.len() < n {
        let draft = act.step(&mut dice, heard, HONEST);
        if draft.body == Body::Ack
            && let Some(ack) = draft.ack.filter(|a| a.verdicts.is_empty() && a.rx_budget > 0)
        {
            out.push(ack);
        }
    }
    out
}

#[test]
fn most_packets_of_a_stateful_liar_are_true() {
    let mut heard = heard_of(40);
    let known: BTreeMap<u32, u32> = heard.seen.iter().map(|s| (s.tx_num, s.timestamp)).collect();
    let acks = truths(&mut heard, 500);
    let whole = acks.iter().filter(|a| a.cum == heard.peer_psn).count();
    assert!(whole > 300, "{whole} of 500 acknowledge all that came");
    let honest =
        |a: &&AckBlock| a.echoes.iter().all(|e| known.get(&e.tx_num) == Some(&e.timestamp));
    let told = acks.iter().filter(honest).count();
    assert!(told > 400, "{told} of 500 echo what was really sent");
}

#[test]
fn a_deaf_liar_misses_only_long_packets() {
    let heard = heard_of(40);
    let mut deaf = 0;
    for ack in truths(&mut heard.clone(), 20_000) {
        if ack.cum == heard.peer_psn {
            continue;
        }
        deaf += 1;
        assert_eq!(ack.cum, 109, "the first long packet is missing");
        for d in 0..31_u32 {
            let arrived = ack.words.first().is_some_and(|w| w >> d & 1 == 1);
            assert_eq!(arrived, (109 + d) % 10 != 9, "PSN {}", 109 + d);
        }
    }
    assert!(deaf > 0, "it never pretended");
}

#[test]
fn requests_are_mostly_in_order() {
    let (mut dice, mut act, mut heard) = (Dice(31), Act::default(), heard_of(10));
    let (mut before, mut steps) = (None, [0_u32; 3]);
    for _ in 0..20_000 {
        let draft = act.step(&mut dice, &mut heard, HONEST);
        if !draft.body.kind().is_reliable() {
            continue;
        }
        if let Some(before) = before.replace(draft.psn) {
            match draft.psn.wrapping_sub(before) {
                1 => steps[0] += 1,
                0 => steps[1] += 1,
                _ => steps[2] += 1,
            }
        }
    }
    assert!(steps[0] > 5 * (steps[1] + steps[2]), "{steps:?}");
    assert!(steps[1] > 0 && steps[2] > 0, "some are repeated and some left out: {steps:?}");
}

#[test]
fn read_answers_mostly_continue() {
    let mut heard = Heard { psn: 1, told: 1, ..Heard::default() };
    let read = ReadReq { rkey: 1, raddr: 0, len: 1 << 20 };
    note(&mut heard, Body::ReadReq(message(77), read), 5, 0);
    let (mut dice, mut act) = (Dice(41), Act::default());
    let (mut pieces, mut strays, mut gone) = (0, 0, 0);
    let mut next = 0;
    for _ in 0..5_000 {
        let draft = act.step(&mut dice, &mut heard, HONEST);
        let Body::ReadResp(answer) = draft.body else { continue };
        assert_eq!(answer.msg_id, 77);
        gone += u32::from(answer.status == ReadStatus::RegionGone);
        if answer.offset == next {
            pieces += 1;
            next += u32::from(draft.payload);
        } else {
            strays += 1;
        }
    }
    assert!(pieces > 100 && strays > 50 && gone > 10, "{pieces} {strays} {gone}");
    assert_eq!(heard.reads[0].next, next);
}

#[test]
fn an_open_is_answered_at_once() {
    let heard = heard_of(1);
    let mut dice = Dice(1);
    let answer = pretend::answer(&mut dice, &heard, HONEST, PacketType::Open).unwrap();
    let Body::OpenAck(p) = answer.body else { panic!("{answer:?}") };
    assert_eq!((p.echo_tag, p.tag), (heard.tag, heard.own_tag));
    let challenged = (0..800)
        .filter(|_| pretend::answer(&mut dice, &heard, HONEST, PacketType::Challenge).is_some());
    let n = challenged.count();
    assert!((600..800).contains(&n), "{n} of 800 keep the context");
    for kind in [PacketType::Send, PacketType::Ack, PacketType::Probe, PacketType::Close] {
        assert!(pretend::answer(&mut dice, &heard, HONEST, kind).is_none(), "{kind:?}");
    }
}

#[test]
fn refusals_are_all_verdicts_except_success() {
    let set: BTreeSet<u8> = REFUSALS.iter().map(|v| *v as u8).collect();
    assert_eq!(set.len(), REFUSALS.len());
    assert!(!set.contains(&(Verdict::Ok as u8)));
}

fn way(sent: u64, accepted: u64, failed: u32, arrived: u64) -> Direction {
    let failed = if failed > 0 { [("no answer", failed)].into() } else { BTreeMap::new() };
    Direction { sent, accepted, failed, arrived, twice: 0, damaged: 0, strayed: 0, pause_ns: 0 }
}

#[test]
fn a_direction_is_correct_if_successful_blocks_arrived_once() {
    assert!(way(10, 10, 0, 10).is_true());
    assert!(way(10, 7, 3, 7).is_true() && way(10, 7, 3, 10).is_true(), "an error may have arrived");
    assert!(!way(10, 10, 0, 9).is_true(), "accepted, and not there");
    assert!(!way(10, 7, 3, 11).is_true(), "more than was sent");
    assert!(!way(10, 7, 2, 7).is_true(), "one has not ended");
    for wrong in [
        Direction { twice: 1, ..way(1, 1, 0, 1) },
        Direction { damaged: 1, ..way(1, 1, 0, 1) },
        Direction { strayed: 1, ..way(1, 1, 0, 1) },
    ] {
        assert!(!wrong.is_true(), "{wrong:?}");
    }
}
