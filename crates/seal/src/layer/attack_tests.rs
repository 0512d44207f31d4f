//! What strangers can cause in a layer without a key.

use super::*;
use srd_wire::{
    Backlog, Body, CloseCode, Features, Flags, HEADERS_BYTES_MAX, Header, OpenParams, Packet,
    PacketType, VERSION, emit, stamp,
};
use std::net::Ipv4Addr;

const KEY: &str = "7 01080f161d242b323940474e555c636a71787f868d949ba2a9b0b7bec5ccd3da";
const OTHER_KEY: &str = "7 f1080f161d242b323940474e555c636a71787f868d949ba2a9b0b7bec5ccd3da";
const PORT: u16 = 18_700;
const TAG_A: u32 = 0xaaaa_0001;
const TAG_B: u32 = 0xbbbb_0002;
/// The numbers of B are about to pass a multiple of 2^32, where a packet without a number, whose
/// field is 0, seems to belong.
const START_B: u64 = (1 << 32) - 100;

fn ip(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, host))
}

fn end(host: u8) -> End {
    End { ip: ip(host), port: PORT }
}

fn layer(host: u8, policy: Policy) -> SealLayer {
    layer_of(host, policy, host)
}

/// A layer whose shares follow from `seed`.
fn layer_of(host: u8, policy: Policy, seed: u8) -> SealLayer {
    let mut next = seed;
    let entropy = move |bytes: &mut [u8; SECRET_BYTES]| {
        bytes.fill_with(|| {
            next = next.wrapping_mul(5).wrapping_add(17);
            next
        });
        true
    };
    let (suites, limits) = (Suites::default(), Limits::default());
    let cfg =
        LayerConfig { own: end(host), port_base: PORT, policy, suites, limits, contexts_max: 8 };
    SealLayer::new(cfg, entropy)
}

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text.as_bytes()).expect("a good key file")
}

fn packet(kind: PacketType, dst_tag: u32, number: u64, body: Body) -> Packet<'static> {
    let header = Header {
        kind,
        flags: Flags(0),
        backlog: Backlog::from_packets(0),
        path: 0,
        slot: 0,
        dst_tag,
        tx_num: number as u32,
        timestamp: 0,
        psn: 0,
        una_delta: 0,
        ack_echo: 0,
    };
    Packet { header, ack: None, body, payload_len: 0 }
}

fn params(tag: u32, tx_num_start: u64) -> OpenParams {
    OpenParams {
        tag,
        incarnation: 1,
        echo_tag: 0,
        psn_start: 0,
        tx_num_start,
        window: 64,
        mtu: 1000,
        reads_max: 1,
        write_imms_max: 1,
        rx_budget: u32::MAX,
        features: Features(0),
        cookie: 0,
    }
}

fn open_of_a(number: u64) -> Packet<'static> {
    open_of(TAG_A, number)
}

fn open_of(tag: u32, number: u64) -> Packet<'static> {
    packet(PacketType::Open, 0, number, Body::Open(params(tag, number)))
}

/// The answer of an engine with the tag `own` to the Open of `tag`.
fn ack_of(own: u32, start: u64, tag: u32) -> Packet<'static> {
    let body = Body::OpenAck(OpenParams { echo_tag: tag, ..params(own, start) });
    packet(PacketType::OpenAck, tag, start + 1, body)
}

fn reset(dst_tag: u32, number: u64, echo_tag: u32, code: CloseCode) -> Packet<'static> {
    packet(PacketType::Reset, dst_tag, number, Body::Reset { echo_tag, code, nonce: 0 })
}

/// The bytes of a packet without a seal, with its checksum.
fn plain_bytes(packet: &Packet<'_>) -> Vec<u8> {
    let mut checked = *packet;
    checked.header.flags.0 |= Flags::CHECKED;
    let mut bytes = vec![0; HEADERS_BYTES_MAX];
    let len = emit(&checked, &mut bytes);
    bytes.truncate(len);
    stamp(&mut bytes);
    bytes
}

/// A (192.0.2.1) has opened a context with B (192.0.2.2).
fn pair() -> (SealLayer, SealLayer) {
    let (mut a, mut b) = (layer(1, Policy::Require), layer(2, Policy::Require));
    let ring = ring(KEY);
    let mut opens = a.handshake_out(&ring, end(2), &open_of_a(0), 0).datagrams;
    assert_eq!(b.receive(&ring, ip(1), &mut opens[0]), Incoming::Made);
    let body = Body::OpenAck(OpenParams { echo_tag: TAG_A, ..params(TAG_B, START_B) });
    let ack = packet(PacketType::OpenAck, TAG_A, START_B, body);
    let mut acks = b.handshake_out(&ring, end(1), &ack, 0).datagrams;
    assert_eq!(a.receive(&ring, ip(2), &mut acks[0]), Incoming::Made);
    assert_eq!((a.contexts(), b.contexts()), (1, 1));
    (a, b)
}

/// Whether B can seal a packet to A with this number.
fn seals(b: &mut SealLayer, number: u64) -> bool {
    sealed_close(b, 1, TAG_A, number).is_some()
}

/// A Close with this number for `tag` of the other host.
fn sealed_close(from: &mut SealLayer, to: u8, tag: u32, number: u64) -> Option<Vec<u8>> {
    let close = packet(PacketType::Close, tag, number, Body::Close);
    let Route::Sealed(slot) = from.route(end(to), &close) else { return None };
    let mut bytes = vec![0; HEADERS_BYTES_MAX];
    let len = emit(&close, &mut bytes);
    bytes.truncate(len);
    bytes.resize(len + 16, 0);
    from.seal(slot, &mut bytes).then_some(bytes)
}

#[test]
fn a_refusal_that_a_stranger_causes_takes_no_number_of_the_context() {
    let (_, mut b) = pair();
    assert!(seals(&mut b, START_B + 1));
    // The tag of A stands readable in each packet to it.
    let mut forged = plain_bytes(&open_of_a(0));
    let code = CloseCode::SealRequired;
    assert_eq!(b.receive(&ring(KEY), ip(1), &mut forged), Incoming::Refuse(TAG_A, code));
    let out = b.handshake_out(&ring(KEY), end(1), &reset(TAG_A, 0, 0, code), 0);
    assert!(out.plain && out.datagrams.is_empty(), "not within the context");
    assert!(seals(&mut b, START_B + 2), "the context goes on");
    // The goodbye does travel within.
    let goodbye = reset(TAG_A, START_B + 3, TAG_B, CloseCode::GoingAway);
    let out = b.handshake_out(&ring(KEY), end(1), &goodbye, 0);
    assert!(!out.plain && out.datagrams.len() == 1);
}

#[test]
fn a_copied_open_speaks_for_no_other_address() {
    let (mut a, mut b) = pair();
    let out = a.handshake_out(&ring(KEY), end(2), &open_of_a(1), 0);
    let [datagram] = &out.datagrams[..] else { panic!("within the context: {out:?}") };
    let mut copy = datagram.clone();
    assert_eq!(b.receive(&ring(KEY), ip(3), &mut copy), Incoming::Dropped);
    let mut true_one = datagram.clone();
    assert!(matches!(b.receive(&ring(KEY), ip(1), &mut true_one), Incoming::Opened(_)));
}

/// What sealing adds to an idle peer: its slot, and its places in the maps from tags and from
/// peers, which are at least 7/16 full. The figure of docs/sealing.md.
#[test]
fn an_idle_context_is_small() {
    const fn place(bytes: usize) -> usize {
        (bytes + 1) * 16 / 7
    }
    let maps = place(size_of::<(u32, Entry)>()) + place(size_of::<((End, u32), u32)>());
    let bytes = crate::slots::IDLE_BYTES + maps;
    let document = include_str!("../../../../docs/sealing.md");
    assert!(document.contains(&format!("an idle context takes {bytes} bytes")), "{bytes} bytes");
    assert!(bytes <= 700);
}

/// A Reset has 44 bytes: nobody has more sent to a forged address than he sends.
#[test]
fn short_packets_of_strangers_have_no_answer() {
    let mut layer = layer(2, Policy::Require);
    let ring = ring(KEY);
    for len in 40..48 {
        let mut datagram = vec![0; len];
        datagram[..2].copy_from_slice(&[VERSION << 5 | PacketType::Ack as u8, Flags::SEALED]);
        datagram[4..8].copy_from_slice(&TAG_B.to_be_bytes());
        let answered = layer.receive(&ring, ip(1), &mut datagram) == Incoming::Unknown(TAG_B);
        assert_eq!(answered, len >= 44, "{len} bytes");
    }
}

#[test]
fn a_key_that_is_replaced_under_its_number_retires_its_contexts() {
    let (_, mut b) = pair();
    let other = ring(OTHER_KEY);
    assert!(b.tick(&ring(KEY), |_| true).is_empty());
    b.keys_removed(&[6]);
    assert!(b.tick(&other, |_| true).is_empty(), "of another number");
    b.keys_removed(&[7]);
    assert_eq!(b.tick(&other, |_| true), [TAG_B]);
    assert_eq!(b.tick(&other, |_| true), [TAG_B], "until it has ended");
}

/// Who has the key that is replaced answers a handshake that was begun with it, late: the context
/// must end like those that were open.
#[test]
fn a_handshake_that_outlives_its_key_gives_a_retired_context() {
    let (ring, other) = (ring(KEY), ring(OTHER_KEY));
    let (mut a, mut b) = (layer(1, Policy::Require), layer(2, Policy::Require));
    let mut opens = a.handshake_out(&ring, end(2), &open_of_a(0), 0).datagrams;
    assert_eq!(b.receive(&ring, ip(1), &mut opens[0]), Incoming::Made);
    let ack = ack_of(TAG_B, START_B, TAG_A);
    let mut acks = b.handshake_out(&ring, end(1), &ack, 0).datagrams;
    a.keys_removed(&[7]);
    assert_eq!(a.receive(&other, ip(2), &mut acks[0]), Incoming::Made);
    assert_eq!(a.tick(&other, |_| true), [TAG_A]);
    // The other side: what waits for the engine is forgotten.
    let mut late = layer(2, Policy::Require);
    let mut opens = a.handshake_out(&ring, end(2), &open_of(TAG_A + 1, 0), 0).datagrams;
    assert_eq!(late.receive(&ring, ip(1), &mut opens[0]), Incoming::Made);
    late.keys_removed(&[7]);
    let out = late.handshake_out(&other, end(1), &ack_of(TAG_B, START_B, TAG_A + 1), 0);
    assert!(out.datagrams.is_empty() && !out.plain);
    assert_eq!(late.contexts(), 0);
}

/// The key file names another key to send with: handshakes without an answer are begun anew, with
/// another tag, and late answers to the old ones change nothing.
#[test]
fn handshakes_of_another_key_are_given_up() {
    let both = ring(&format!("8 {}\n{KEY}", &OTHER_KEY[2..]));
    let new = ring(&format!("8 {}", &OTHER_KEY[2..]));
    let old = ring(KEY);
    let (mut a, mut b) = (layer(1, Policy::Require), layer(2, Policy::Require));
    let mut opens = a.handshake_out(&old, end(2), &open_of_a(0), 0).datagrams;
    assert_eq!(b.receive(&both, ip(1), &mut opens[0].clone()), Incoming::Made);
    let ack = ack_of(TAG_B, START_B, TAG_A);
    let mut late = b.handshake_out(&both, end(1), &ack, 0).datagrams;
    let refused = layer(2, Policy::Require).receive(&new, ip(1), &mut opens[0]);
    assert_eq!(refused, Incoming::Refuse(TAG_A, CloseCode::KeyUnknown));
    assert_eq!(a.handshakes_begun(), [TAG_A]);
    a.handshake_forget(TAG_A);
    assert!(a.handshakes_begun().is_empty());
    assert_eq!(a.receive(&both, ip(2), &mut late[0]), Incoming::Dropped);
    let mut opens = a.handshake_out(&both, end(2), &open_of(TAG_A + 1, 5), 0).datagrams;
    let mut c = layer(2, Policy::Require);
    assert_eq!(c.receive(&new, ip(1), &mut opens[0]), Incoming::Made);
    let ack = ack_of(TAG_B, START_B, TAG_A + 1);
    let mut acks = c.handshake_out(&new, end(1), &ack, 0).datagrams;
    assert_eq!(a.receive(&both, ip(2), &mut acks[0]), Incoming::Made);
    assert!(a.tick(&new, |tag| tag == TAG_A + 1).is_empty());
}

#[test]
fn only_the_peer_is_believed_that_it_has_no_key() {
    let mut a = layer(1, Policy::Prefer);
    let open = |a: &mut SealLayer| a.handshake_out(&ring(KEY), end(2), &open_of_a(0), 0).plain;
    assert!(!open(&mut a));
    let refusal = plain_bytes(&reset(TAG_A, 0, 0, CloseCode::SealUnknown));
    assert_eq!(a.receive(&ring(KEY), ip(3), &mut refusal.clone()), Incoming::Plain);
    assert!(!open(&mut a), "still sealed");
    assert_eq!(a.receive(&ring(KEY), ip(2), &mut refusal.clone()), Incoming::Plain);
    assert!(open(&mut a), "without a seal");
    let close = packet(PacketType::Close, TAG_B, 8, Body::Close);
    assert_eq!((a.route(end(2), &close), a.counters().plain), (Route::Plain, 1), "and counted");
}

/// B answers A's handshake and begins its own in the same breath, and A answers that one before it
/// has B's answer: two handshakes are complete at both ends, and both must keep the same one.
#[test]
fn answers_that_cross_leave_both_sides_the_same_keys() {
    let ring = ring(KEY);
    let mut wins = [0; 2];
    for seed in 1..=24 {
        let mut a = layer_of(1, Policy::Require, seed);
        let mut b = layer_of(2, Policy::Require, seed.wrapping_mul(91).wrapping_add(50));
        let mut of_a = a.handshake_out(&ring, end(2), &open_of_a(0), 0).datagrams;
        assert_eq!(b.receive(&ring, ip(1), &mut of_a[0]), Incoming::Made);
        let open = packet(PacketType::Open, 0, START_B, Body::Open(params(TAG_B, START_B)));
        let mut of_b = b.handshake_out(&ring, end(1), &open, 0).datagrams;
        let body = Body::OpenAck(OpenParams { echo_tag: TAG_A, ..params(TAG_B, START_B) });
        let ack = packet(PacketType::OpenAck, TAG_A, START_B + 1, body);
        let mut ack_of_b = b.handshake_out(&ring, end(1), &ack, 0).datagrams;

        let b_wins = a.receive(&ring, ip(2), &mut of_b[0]) == Incoming::Made;
        wins[usize::from(b_wins)] += 1;
        if b_wins {
            let body = Body::OpenAck(OpenParams { echo_tag: TAG_B, ..params(TAG_A, 0) });
            let ack = packet(PacketType::OpenAck, TAG_B, 1, body);
            let mut ack_of_a = a.handshake_out(&ring, end(2), &ack, 0).datagrams;
            let settled = a.receive(&ring, ip(2), &mut ack_of_b[0]);
            assert_eq!(settled, Incoming::Dropped, "A's context begins when B has the keys");
            assert_eq!(b.receive(&ring, ip(1), &mut ack_of_a[0]), Incoming::Made);
        } else {
            assert_eq!(a.receive(&ring, ip(2), &mut ack_of_b[0]), Incoming::Made);
        }
        let mut to_b = sealed_close(&mut a, 2, TAG_B, 2).expect("it has keys");
        let at_b = b.receive(&ring, ip(1), &mut to_b);
        let mut to_a = sealed_close(&mut b, 1, TAG_A, START_B + 2).expect("it has keys");
        let at_a = a.receive(&ring, ip(2), &mut to_a);
        let opened = [at_a, at_b].map(|i| matches!(i, Incoming::Opened(_)));
        assert_eq!(opened, [true; 2], "seed {seed}, {b_wins}: {at_a:?}, {at_b:?}");
    }
    assert!(wins.iter().all(|&n| n > 3), "either side wins now and then: {wins:?}");
}

/// Whether what each of two layers seals opens at the other.
fn understand(a: (&mut SealLayer, u64), b: (&mut SealLayer, u64), tags: (u32, u32)) -> bool {
    let ring = ring(KEY);
    let mut to_b = sealed_close(a.0, 2, tags.1, a.1 + 2).expect("it has keys");
    let at_b = b.0.receive(&ring, ip(1), &mut to_b);
    let mut to_a = sealed_close(b.0, 1, tags.0, b.1 + 2).expect("it has keys");
    let at_a = a.0.receive(&ring, ip(2), &mut to_a);
    [at_a, at_b].iter().all(|i| matches!(i, Incoming::Opened(_)))
}

/// A's engine opens anew with another tag while the answer to its first handshake is under way. B
/// has one tag for both, and the late answer must not give that tag to the keys of the first.
#[test]
fn a_late_answer_for_a_tag_that_was_replaced_changes_no_keys() {
    const NEW: u32 = TAG_A + 7;
    let (ring, mut a, mut b) = (ring(KEY), layer(1, Policy::Require), layer(2, Policy::Require));
    let mut first = a.handshake_out(&ring, end(2), &open_of(TAG_A, 0), 0).datagrams;
    assert_eq!(b.receive(&ring, ip(1), &mut first[0]), Incoming::Made);
    let ack = ack_of(TAG_B, START_B, TAG_A);
    let mut late = b.handshake_out(&ring, end(1), &ack, 0).datagrams;
    let mut second = a.handshake_out(&ring, end(2), &open_of(NEW, 0), 0).datagrams;
    assert_eq!(b.receive(&ring, ip(1), &mut second[0]), Incoming::Made);
    let ack = ack_of(TAG_B, START_B, NEW);
    let mut acks = b.handshake_out(&ring, end(1), &ack, 0).datagrams;
    assert_eq!(a.receive(&ring, ip(2), &mut acks[0]), Incoming::Made);
    assert_eq!(a.receive(&ring, ip(2), &mut late[0]), Incoming::Dropped);
    a.tick(&ring, |tag| tag == NEW);
    assert!(understand((&mut a, 0), (&mut b, START_B), (NEW, TAG_B)));
}

/// The same, but A has its new tag because it answers a handshake that B has begun.
#[test]
fn a_late_answer_changes_no_keys_of_an_answered_handshake() {
    const NEW: u32 = TAG_A + 7;
    let (ring, mut answered) = (ring(KEY), 0);
    for seed in 1..=24 {
        let mut a = layer_of(1, Policy::Require, seed);
        let mut b = layer_of(2, Policy::Require, seed.wrapping_mul(91).wrapping_add(50));
        let mut first = a.handshake_out(&ring, end(2), &open_of(TAG_A, 0), 0).datagrams;
        assert_eq!(b.receive(&ring, ip(1), &mut first[0]), Incoming::Made);
        let ack = ack_of(TAG_B, START_B, TAG_A);
        let mut late = b.handshake_out(&ring, end(1), &ack, 0).datagrams;
        // Opens within the context, which A cannot read, until B begins a handshake of its own.
        let body = Body::Open(params(TAG_B, START_B));
        let mut opens = (2..9).map(|n| {
            let open = packet(PacketType::Open, 0, START_B + n, body);
            b.handshake_out(&ring, end(1), &open, 0).datagrams
        });
        let mut of_b = opens.find(|datagrams| datagrams.len() == 2).expect("it does");
        if a.receive(&ring, ip(2), &mut of_b[1]) != Incoming::Made {
            continue;
        }
        answered += 1;
        let ack = ack_of(NEW, 0, TAG_B);
        let mut ack_of_a = a.handshake_out(&ring, end(2), &ack, 0).datagrams;
        assert_eq!(a.receive(&ring, ip(2), &mut late[0]), Incoming::Dropped);
        assert_eq!(b.receive(&ring, ip(1), &mut ack_of_a[0]), Incoming::Made);
        a.tick(&ring, |tag| tag == NEW);
        assert!(understand((&mut a, 0), (&mut b, START_B + 9), (NEW, TAG_B)), "seed {seed}");
    }
    assert!(answered > 3, "handshakes of B win now and then: {answered}");
}

/// A has answered the handshake of B and begun one of its own; then its engine takes another tag,
/// for another key. B repeats its handshake, whose first answer was lost: the answer now names the
/// new tag. (It was withheld, because the handshake counted as answered.)
#[test]
fn a_handshake_is_answered_again_for_another_tag() {
    const NEW: u32 = TAG_A + 7;
    let ring = ring(KEY);
    let mut answered = 0;
    for seed in 1..=24 {
        let mut a = layer_of(1, Policy::Require, seed);
        let mut b = layer_of(2, Policy::Require, seed.wrapping_mul(91).wrapping_add(50));
        let first = a.handshake_out(&ring, end(2), &open_of(TAG_A, 0), 0).datagrams;
        assert_eq!(first.len(), 1);
        let open_b = packet(PacketType::Open, 0, START_B, Body::Open(params(TAG_B, START_B)));
        let of_b = b.handshake_out(&ring, end(1), &open_b, 0).datagrams;
        if a.receive(&ring, ip(2), &mut of_b[0].clone()) != Incoming::Made {
            continue;
        }
        let lost = a.handshake_out(&ring, end(2), &ack_of(TAG_A, 0, TAG_B), 0).datagrams;
        assert_eq!(lost.len(), 1);
        let anew = a.handshake_out(&ring, end(2), &open_of(NEW, 0), 0).datagrams;
        assert_eq!(anew.len(), 1);
        if a.receive(&ring, ip(2), &mut of_b[0].clone()) != Incoming::Made {
            continue;
        }
        answered += 1;
        let mut again = a.handshake_out(&ring, end(2), &ack_of(NEW, 0, TAG_B), 0).datagrams;
        assert_eq!(again.len(), 1, "seed {seed}: answered again");
        assert_eq!(b.receive(&ring, ip(1), &mut again[0]), Incoming::Made);
        a.tick(&ring, |tag| tag == NEW);
        assert!(understand((&mut a, 0), (&mut b, START_B), (NEW, TAG_B)), "seed {seed}");
    }
    assert!(answered > 3, "handshakes of B win now and then: {answered}");
}

/// More SealedOpens than a layer remembers come between one and its answer. The answer left without
/// a seal with `prefer`, and so did all data of the context.
#[test]
fn a_flood_of_handshakes_takes_nobodys_seal() {
    let ring = ring(KEY);
    let mut b = layer(2, Policy::Prefer);
    let mut opens: Vec<_> = (0..=WAITING_MAX as u32)
        .map(|k| layer(1, Policy::Require).handshake_out(&ring, end(2), &open_of(TAG_A + k, 0), 0))
        .collect();
    for open in &mut opens {
        assert_eq!(b.receive(&ring, ip(1), &mut open.datagrams[0]), Incoming::Made);
    }
    let answer = |b: &mut SealLayer, tag: u32| {
        let out = b.handshake_out(&ring, end(1), &ack_of(tag.wrapping_add(TAG_B), START_B, tag), 0);
        (out.plain, out.datagrams.len())
    };
    let last = TAG_A + WAITING_MAX as u32;
    assert_eq!(answer(&mut b, last), (false, 1), "sealed");
    assert_eq!(answer(&mut b, TAG_A), (false, 0), "forgotten, so its peer asks again");
    let bare = plain_bytes(&open_of(TAG_A, 0));
    assert_eq!(b.receive(&ring, ip(1), &mut bare.clone()), Incoming::Plain);
    assert_eq!(answer(&mut b, TAG_A), (true, 0), "asked for without a seal");
    assert_eq!(answer(&mut b, TAG_A), (false, 0), "answered once");
    // Whoever was asked after a context without a seal answers with the number of the question.
    let numbered =
        Body::OpenAck(OpenParams { echo_tag: TAG_A, cookie: 9, ..params(TAG_B, START_B) });
    let numbered = packet(PacketType::OpenAck, TAG_A, START_B, numbered);
    assert!(b.handshake_out(&ring, end(1), &numbered, 0).plain);
}
