use super::*;
use crate::hostile::liar_acks::entry;
use crate::hostile::mutate::mutate;
use crate::packet::endpoint_of;
use srd_core::wire::{Others, PacketType};
use std::collections::BTreeSet;

const MTU: u16 = 1024;
const TAG: u32 = 0x7A6;

/// A packet of the victim with the number `psn`.
fn packet(body: Body, psn: u32, payload: u16) -> Vec<u8> {
    let header = Header {
        kind: body.kind(),
        flags: Flags(Flags::CHECKED),
        backlog: Backlog(0),
        path: 3,
        slot: 0,
        dst_tag: 1,
        tx_num: psn + 100,
        timestamp: 55,
        psn,
        una_delta: 0,
        ack_echo: 0,
    };
    let packet = Packet { header, ack: None, body, payload_len: payload };
    let mut bytes = vec![0; packet.headers_len()];
    wire::emit(&packet, &mut bytes);
    bytes.resize(bytes.len() + usize::from(payload), 7);
    wire::stamp(&mut bytes);
    bytes
}

fn open(d: &mut Draw, liar: &mut Liar) -> OpenParams {
    OpenParams { tag: TAG, psn_start: 40, window: 16, ..liar.params(d, 0, false) }
}

fn message(msg_id: u32) -> Message {
    Message { src_qpn: 0, dst_qpn: 0, qkey: QKEY_HOSTILE, msg_id }
}

/// A liar to which the victim has opened a context.
fn met(seed: u64, manner: (Mode, bool)) -> (Draw, Liar) {
    let mut d = Draw::new(seed, 9, 9);
    let mut liar = Liar::new(endpoint_of(4, 0), 4, manner, MTU, &mut d);
    let params = open(&mut d, &mut liar);
    liar.hear(&mut d, &packet(Body::Open(params), 0, 0));
    (d, liar)
}

/// What was said; all of it can be parsed.
fn said(liar: &mut Liar) -> Vec<(Header, Body, Option<AckBlock>)> {
    let parse = |bytes: Vec<u8>| {
        let mut ack = AckBlock::default();
        let (p, _) = wire::parse_checked(&bytes, &mut ack).expect("well-formed");
        let (header, body, told) = (p.header, p.body, p.ack.is_some());
        (header, body, told.then_some(ack))
    };
    liar.out().map(parse).collect()
}

#[test]
fn an_open_is_answered_with_its_tag_nearly_always() {
    let answers = (0..200).filter(|&seed| {
        let (_, mut liar) = met(seed, (Mode::Random, false));
        let all = said(&mut liar);
        all.iter().any(|(_, body, _)| matches!(body, Body::OpenAck(o) if o.echo_tag == TAG))
    });
    assert!((180..200).contains(&answers.count()));
}

#[test]
fn lies_are_well_formed_and_of_all_kinds() {
    let mut kinds = BTreeSet::new();
    let (mut unchecked, mut acks) = (0, 0);
    for seed in 0..60 {
        let mode = [Mode::Random, Mode::Stateful][seed as usize % 2];
        let (mut d, mut liar) = met(seed, (mode, false));
        for psn in 40..80 {
            let read = ReadReq { rkey: 1, raddr: REGION_AT, len: 3000 };
            let (body, payload) = match psn % 3 {
                0 => (Body::ReadReq(message(psn), read), 0),
                _ => (Body::Send(message(psn)), MTU),
            };
            liar.hear(&mut d, &packet(body, psn, payload));
            liar.act(&mut d);
        }
        for (header, body, ack) in said(&mut liar) {
            assert!(header.dst_tag == TAG || matches!(body, Body::Open(_)), "{body:?}");
            kinds.insert(format!("{:?}", body.kind()));
            unchecked += u32::from(header.flags.0 & Flags::CHECKED == 0);
            acks += u32::from(ack.is_some());
        }
    }
    for kind in [
        PacketType::Open,
        PacketType::OpenAck,
        PacketType::Reset,
        PacketType::Challenge,
        PacketType::Close,
        PacketType::CloseAck,
        PacketType::Ack,
        PacketType::Probe,
        PacketType::Tombstone,
        PacketType::Cancel,
        PacketType::Send,
        PacketType::Write,
        PacketType::WriteImm,
        PacketType::ReadReq,
        PacketType::ReadResp,
    ] {
        assert!(kinds.contains(&format!("{kind:?}")), "no {kind:?} among {kinds:?}");
    }
    assert!(unchecked > 10 && acks > 500, "{unchecked} {acks}");
}

#[test]
fn who_claims_sends_numbers_in_order_and_nothing_else() {
    let (mut d, mut liar) = met(1, (Mode::Random, true));
    drop(said(&mut liar));
    (0..300).for_each(|_| liar.act(&mut d));
    let all = said(&mut liar);
    let claims: Vec<u32> = all
        .iter()
        .filter(|(header, body, _)| *body == Body::Tombstone && header.backlog == Backlog(15))
        .map(|(header, ..)| header.psn)
        .collect();
    assert!(claims.len() > 240, "{} of {}", claims.len(), all.len());
    let steps = claims.windows(2).map(|w| w[1].wrapping_sub(w[0]));
    assert!(steps.into_iter().all(|step| (1..8).contains(&step)), "in order: {claims:?}");
}

#[test]
fn who_leaves_out_numbers_earns_what_it_sent() {
    let (mut d, mut liar) = met(1, (Mode::Random, true));
    (liar.leaves_out, liar.grants) = (true, Grants::default());
    drop(said(&mut liar));
    (0..300).for_each(|_| liar.act(&mut d));
    let all = said(&mut liar);
    assert!(all.iter().all(|(_, body, _)| *body == Body::Tombstone), "claims and nothing else");
    let numbers: Vec<u32> = all.iter().map(|(header, ..)| header.tx_num).collect();
    let steps: Vec<u32> = numbers.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(steps.contains(&1) && steps.contains(&2_001), "{steps:?}");
    assert_eq!(liar.grants.earned_bytes, 300 * 64, "each is at most a unit");
}

#[test]
fn grants_are_counted_over_contexts_and_bounded_by_what_was_sent() {
    let mut g = Grants { earned_bytes: 1_000, ..Grants::default() };
    g.opened(7);
    [5, 5, 9, 8].into_iter().for_each(|counter| g.told(counter));
    assert_eq!(g.bytes, 9 * GRANT_UNIT_BYTES, "an old counter is no grant");
    g.opened(7);
    g.opened(8);
    g.told(2);
    assert_eq!((g.bytes, g.afresh), (11 * GRANT_UNIT_BYTES, 2));
    assert_eq!(Grants::most_bytes(&[g], 50), 4 * 1_000 + 2 * 50);
    let silent = Grants::default();
    assert_eq!(Grants::most_bytes(&[g, silent], 50), 4 * 1_000 + 2 * 50, "one allowance for all");
}

#[test]
fn a_true_block_tells_what_has_arrived_and_a_false_one_does_not() {
    let (mut d, mut liar) = met(2, (Mode::Random, false));
    (40..50).for_each(|psn| liar.hear(&mut d, &packet(Body::Send(message(psn)), psn, MTU)));
    let truth = liar.block_true(&mut d);
    assert_eq!((truth.cum, truth.rx_budget, truth.verdicts.is_empty()), (50, u32::MAX, true));
    let echo = truth.echoes.iter().next().expect("the newest is echoed");
    assert_eq!((echo.tx_num, echo.timestamp, echo.path), (149, 55, 3));
    let lies: Vec<AckBlock> = (0..200).map(|_| liar.block(&mut d)).collect();
    let count = |lies_so: fn(&AckBlock) -> bool| lies.iter().filter(|b| lies_so(b)).count();
    for (what, n) in [
        ("numbers never sent", count(|b| b.cum > 50)),
        ("less than was told", count(|b| b.cum < 50)),
        ("no room", count(|b| b.rx_budget == 0)),
        ("refusals", count(|b| !b.verdicts.is_empty())),
        ("drops", count(|b| b.rxq_drops > 0)),
        ("echoes of nothing", count(|b| b.echoes.iter().any(|e| e.timestamp != 55))),
    ] {
        assert!(n > 20, "{what}: {n} of 200");
    }
}

#[test]
fn a_judgment_concerns_the_packet_and_often_others() {
    let mut d = Draw::new(3, 9, 9);
    let (mut one, mut more) = (0, 0);
    for _ in 0..200 {
        let e = entry(&mut d, 7, Verdict::Rnr);
        assert_eq!((e.psn, e.verdict), (7, Verdict::Rnr));
        match e.others {
            Others::Run(1) => one += 1,
            Others::Run(n) => more += u32::from(n > 1),
            Others::Mask(mask) => more += u32::from(mask != 0),
        }
    }
    assert!(one > 80 && more > 50, "{one} {more}");
}

#[test]
fn what_was_changed_on_the_way_is_well_formed_and_junk_stays_junk() {
    let mut d = Draw::new(4, 9, 9);
    let mut changed = 0;
    for psn in 0..300 {
        let (body, payload) = match psn % 3 {
            0 => (Body::Send(message(psn)), 100),
            1 => (Body::Cancel { msg_id: psn }, 0),
            _ => (Body::ReadResp(ReadResp { msg_id: 1, offset: 0, status: ReadStatus::Ok }), 64),
        };
        let before = packet(body, psn, payload);
        let mut after = before.clone();
        mutate(&mut d, &mut after);
        let mut ack = AckBlock::default();
        let (p, _) = wire::parse_checked(&after, &mut ack).expect("well-formed");
        let carried = if p.body.may_have_payload() { payload } else { 0 };
        assert_eq!((p.body.kind(), p.payload_len), (body.kind(), carried));
        changed += u32::from(after != before);
    }
    // Half of the fields are those of acknowledgments, which these packets lack.
    assert!(changed > 150, "{changed} of 300");
    let mut junk = vec![0xFF; 30];
    mutate(&mut d, &mut junk);
    assert_eq!(junk, vec![0xFF; 30]);
}
