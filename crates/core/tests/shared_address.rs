//! Engines at one address share what may be in flight to it, and the pacer: each has its turn.

use crate::common::puppet::{Puppet, TAG};
use crate::common::*;
use srd_core::wire::{AckBlock, Body, Message, OpenParams, ReadReq};
use srd_core::*;

/// What all engines at one address share.
#[derive(Clone, Copy, Debug)]
enum Shared {
    /// Room in flight for one packet.
    Room,
    /// A rate of a packet per 10 us.
    Rate,
}

/// Host 0 works with engines at one address, all at once, with little to share.
/// Returns how many requests each had ended when the first of them had ended all.
fn ended_beside_the_first(
    seed: u64,
    shared: Shared,
    peers: usize,
    op: Opcode,
    requests: usize,
) -> Vec<usize> {
    let mut configs: Vec<_> = (0..=peers).map(|i| config(i.min(1))).collect();
    for (slot, c) in configs.iter_mut().skip(1).enumerate() {
        c.slot = slot as u8;
    }
    // The answers to reads leave at the other end, for one engine: there is nothing to share.
    configs[0].rate.policy = config::RatePolicy::Fixed;
    match shared {
        Shared::Room => configs[0].rate.inflight_fixed_bytes = 1,
        Shared::Rate => configs[0].rate.rate_fixed_bytes_per_sec = 100_000_000,
    }
    let mut net = Net::new(seed, configs);
    let (now, to) = (net.now, net.hosts[1].ip);
    let back = net.hosts[0].ip;
    let ah = net.hosts[0].ah(now, to);
    let mut own = vec![];
    for peer in 1..=peers {
        let there = net.hosts[peer].qp(now, QpType::Srd, false);
        net.hosts[peer].ah(now, back);
        let (key, raddr) = net.hosts[peer].region(vec![1; 1000], Access::REMOTE_READ);
        let qp = net.hosts[0].qp(now, QpType::Srd, false);
        for i in 0..requests as u64 {
            net.hosts[peer].recv(there, i, 1000);
            let mut wr = send_wr(i, ah, there, 1000);
            (wr.op, wr.rkey, wr.raddr) = (op, key.0, raddr);
            net.hosts[0].post(now, qp, wr, vec![0; 1000]).unwrap();
        }
        own.push(qp);
    }
    let of = |n: &Net, qp: Qpn| n.hosts[0].done.iter().filter(|c| c.qpn == qp).count();
    let first = |n: &Net| own.iter().any(|&qp| of(n, qp) == requests);
    assert!(net.run_until(Span::from_secs(1), first), "seed {seed}: {op:?} hangs");
    own.iter().map(|&qp| of(&net, qp)).collect()
}

/// Whoever was parked last was let go first, as soon as there was room: with room for one packet
/// that is who has just had it, and the others waited until it had nothing left to send. Two
/// engines that did so to each other, each with reads under way whose answers waited, never ended.
#[test]
fn room_for_one_packet_goes_round() {
    for (seed, op) in (0..5).flat_map(|seed| [(seed, Opcode::Send), (seed, Opcode::Read)]) {
        for peers in [2, 3, 4] {
            let ended = ended_beside_the_first(seed, Shared::Room, peers, op, 100);
            let least = ended.iter().min().unwrap();
            assert!(*least >= 80, "seed {seed}: {op:?}: {ended:?} of 100");
        }
    }
}

/// Each waited for the pacer with a timer of its own. All timers fired in the same instant, the
/// lowest number first: that one sent, and the others waited again until it had nothing left.
#[test]
fn a_pacer_goes_round() {
    for (seed, op) in (0..5).flat_map(|seed| [(seed, Opcode::Send), (seed, Opcode::Read)]) {
        for peers in [2, 3, 4] {
            let ended = ended_beside_the_first(seed, Shared::Rate, peers, op, 100);
            let least = ended.iter().min().unwrap();
            assert!(*least >= 80, "seed {seed}: {op:?}: {ended:?} of 100");
        }
    }
}

/// Slot and tag of the honest neighbour of the puppet, at the same address.
const NEIGHBOUR: (u8, u32) = (1, TAG + 1);
/// A queue pair of the neighbour.
const NEIGHBOUR_QP: Qpn = Qpn(1 << 8);
/// Packets that may be in flight to the address of both.
const ROOM_PKTS: u64 = 4;

/// The neighbour's end of its context.
struct Neighbour {
    /// Tag that the victim chose.
    tag: u32,
    tx_num: u32,
}

impl Neighbour {
    fn say(&mut self, p: &mut Puppet, body: Body, ack: Option<AckBlock>) {
        let (tag, tx_num) = (self.tag, self.tx_num);
        self.tx_num += 1;
        p.say_as(body, 0, ack, |h| {
            (h.slot, h.dst_tag, h.psn, h.tx_num) = (NEIGHBOUR.0, tag, 9000, tx_num);
        });
    }

    /// Acknowledges everything before `cum`.
    fn ack(&mut self, p: &mut Puppet, cum: u32) {
        let ack = AckBlock { cum, base: cum, rx_budget: u32::MAX, ..AckBlock::default() };
        self.say(p, Body::Ack, Some(ack));
    }
}

/// A puppet that never acknowledges anything, and a neighbour whose context is open.
fn puppet_with_neighbour() -> (Puppet, Neighbour) {
    let mut cfg = config(0);
    cfg.rate.policy = config::RatePolicy::Fixed;
    cfg.rate.inflight_fixed_bytes = ROOM_PKTS * 1200;
    let mut p = Puppet::new(cfg, |_| {});
    let (slot, tag) = NEIGHBOUR;
    let params = OpenParams { tag, psn_start: 9000, tx_num_start: 90, ..p.params() };
    p.say_as(Body::Open(params), 0, None, |h| (h.slot, h.dst_tag) = (slot, 0));
    p.listen();
    let theirs = p.heard.iter().find_map(|f| match f.body {
        Body::OpenAck(a) if a.echo_tag == tag => Some(a.tag),
        _ => None,
    });
    let mut neighbour = Neighbour { tag: theirs.expect("an Open is answered"), tx_num: 90 };
    neighbour.say(&mut p, Body::Probe, None);
    p.pass(Span::from_us(10));
    p.heard.clear();
    (p, neighbour)
}

/// The victim fills the room with work for the puppet, which takes it, answers and never
/// acknowledges. Returns how often each of these packets left before one for the neighbour did.
fn sent_before_the_neighbour(work: Opcode) -> u32 {
    const EACH: u32 = 1000;
    let (mut p, _) = puppet_with_neighbour();
    let many = 8 * EACH;
    match work {
        Opcode::Send => {
            (0..8).for_each(|_| {
                p.post(Opcode::Send, EACH as usize);
            });
        }
        Opcode::Write => {
            p.post(Opcode::Write, many as usize);
        }
        _ => {
            let access = Access::REMOTE_READ;
            let (key, raddr) = p.victim.region(vec![1; many as usize], access);
            let msg = Message { src_qpn: 0, dst_qpn: p.qp.0, qkey: 0x11, msg_id: 7 };
            p.say(Body::ReadReq(msg, ReadReq { rkey: key.0, raddr, len: many }), 0, None);
        }
    }
    p.pass(Span::from_us(5));
    assert_eq!(p.reliable().len() as u64, ROOM_PKTS, "{work:?} fills the room");
    let wr = send_wr(9, p.ah, NEIGHBOUR_QP, 1000);
    p.victim.post(p.now, p.qp, wr, vec![0; 1000]).unwrap();
    let mut copies = 0;
    while copies < 50 * ROOM_PKTS as u32 {
        p.say(Body::Tombstone, 0, None);
        p.pass(Span::from_us(5));
        for f in p.reliable() {
            if f.header.dst_tag == NEIGHBOUR.1 {
                return copies.div_ceil(ROOM_PKTS as u32);
            }
            copies += 1;
        }
    }
    panic!("{work:?}: nothing left for the neighbour, but {copies} copies for the puppet");
}

/// What is lost leaves room. The context that had lost it filled the room with copies at once, and
/// the others of the address, which waited for an acknowledgment, had none of it for ever.
#[test]
fn who_acknowledges_nothing_does_not_keep_the_room() {
    for work in [Opcode::Send, Opcode::Write, Opcode::Read] {
        let times = sent_before_the_neighbour(work);
        assert!(times <= 1, "{work:?}: sent again {times} times before the neighbour had a turn");
    }
}

/// Each context has its part of the room, whatever the others acknowledge: the neighbour that
/// acknowledges at once has half of it in flight at a time, not one packet per timeout.
#[test]
fn who_acknowledges_nothing_keeps_an_equal_part_of_the_room() {
    let (mut p, mut neighbour) = puppet_with_neighbour();
    (0..200).for_each(|_| {
        p.post(Opcode::Send, 1000);
    });
    p.pass(Span::from_us(5));
    assert_eq!(p.reliable().len() as u64, ROOM_PKTS, "the room is full");
    for i in 0..400 {
        let wr = send_wr(1000 + i, p.ah, NEIGHBOUR_QP, 1000);
        p.victim.post(p.now, p.qp, wr, vec![0; 1000]).unwrap();
    }
    let (mut theirs, mut copies, mut cum) = (0, 0, None);
    while theirs < 400 && copies < 100 {
        p.say(Body::Tombstone, 0, None);
        p.pass(Span::from_us(5));
        for f in p.reliable() {
            if f.header.dst_tag == NEIGHBOUR.1 {
                theirs += 1;
                cum = Some(f.header.psn.wrapping_add(1));
            } else {
                copies += 1;
            }
        }
        if let Some(cum) = cum.take() {
            neighbour.ack(&mut p, cum);
        }
    }
    assert!(theirs == 400, "{theirs} for who acknowledges, {copies} for who does not");
}
