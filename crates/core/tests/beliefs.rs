//! What a peer says is believed only as far as it can be checked: bytes of a read, transmissions
//! that it echoes, packets that it acknowledges. One story each.

use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::counters::DropReason;
use srd_core::wire::{AckBlock, Body, Echo, Message, ReadReq};
use srd_core::*;
use std::collections::VecDeque;

fn open() -> Puppet {
    Puppet::new(config(0), |_| {})
}

/// What a read of 3,000 bytes ends with if its answer comes in these pieces.
fn read_of(pieces: &[(u32, u16)]) -> Vec<Status> {
    let mut p = open();
    p.post(Opcode::Read, 3000);
    p.pass(Span::from_us(5));
    let msg = p.read_heard();
    for &(offset, len) in pieces {
        p.respond(msg, offset, len);
    }
    p.ack(p.cum.wrapping_add(1), |_| {});
    p.pass(Span::from_us(1));
    p.victim.statuses()
}

/// The engine counted the bytes of an answer, not which: a piece that came twice made up for one
/// that never came, and the read succeeded with a hole.
#[test]
fn a_read_succeeds_only_if_each_byte_came_once() {
    let holes: [&[(u32, u16)]; 5] = [
        &[(0, 1024), (0, 1024), (2048, 952)],
        &[(0, 1000), (500, 1000), (2000, 1000)],
        &[(0, 1000), (1000, 1000), (1000, 1000)],
        &[(2000, 1000), (1999, 1000), (1000, 1000)],
        &[(1, 1000), (1001, 1000), (2000, 1000)],
    ];
    for pieces in holes {
        assert_eq!(read_of(pieces), [Status::RemoteBadStatus], "{pieces:?}");
    }
}

/// Pieces of any size, in any order: a responder may come to send smaller ones.
#[test]
fn a_read_succeeds_however_its_bytes_are_cut_and_ordered() {
    let whole: [&[(u32, u16)]; 4] = [
        &[(0, 1024), (1024, 1024), (2048, 952)],
        &[(2048, 952), (0, 1024), (1024, 1024)],
        &[(0, 1024), (2700, 300), (1024, 512), (2000, 700), (1536, 464)],
        &[(2999, 1), (1, 1000), (0, 1), (1001, 999), (2000, 999)],
    ];
    for pieces in whole {
        assert_eq!(read_of(pieces), [Status::Ok], "{pieces:?}");
    }
}

/// A bit for a PSN that nobody has sent was passed over; whoever sets one speaks of nothing real.
#[test]
fn an_acknowledgment_of_what_was_never_sent_is_refused() {
    for (cum, bit) in [(0, 1), (0, 63), (0, 200), (2, 0), (1, 1)] {
        let mut p = open();
        p.post(Opcode::Send, 100);
        p.pass(Span::from_us(5));
        let una = p.cum;
        p.ack(una.wrapping_add(cum), |a| {
            for k in 0..8 {
                a.words.push(if bit / 64 == k { 1 << (bit % 64) } else { 0 });
            }
            a.base = una;
        });
        let refused = p.victim.engine.counters().drops[DropReason::BadAck as usize];
        assert_eq!((refused, p.victim.statuses()), (1, vec![]), "cum {cum}, bit {bit}");
    }
}

/// A puppet to which one packet was sent 100 us ago, and what an honest peer would echo of it.
fn heard_of() -> (Puppet, Echo) {
    let mut p = open();
    p.post(Opcode::Send, 100);
    p.pass(Span::from_us(100));
    let f = p.reliable().remove(0);
    let (tx_num, timestamp, path) = (f.header.tx_num, f.header.timestamp, f.header.path);
    (p, Echo { tx_num, timestamp, delay: 0, path, ce: false })
}

fn tell(p: &mut Puppet, echoes: &[Echo]) {
    p.ack(p.cum, |a: &mut AckBlock| a.echoes.extend(echoes.iter().copied()));
}

/// Least round trip over all paths to the puppet in ns, and echoes that were not believed.
fn learned(p: &Puppet) -> (u64, u64) {
    let paths = p.victim.engine.path_stats(ip(1));
    let least = paths.iter().map(|s| s.rtt_ns_min).filter(|&ns| ns > 0).min().unwrap_or(0);
    (least, p.victim.engine.counters().echoes_refused)
}

/// Echoes set the round trips of all contexts to an address, so that one forged by a peer hurt the
/// others. An echo has to name a transmission by its number, its time and its path.
#[test]
fn an_echo_is_believed_if_it_names_a_transmission() {
    let (mut p, honest) = heard_of();
    let before = learned(&p).0;
    let forged = [
        Echo { timestamp: p.now.to_wire().wrapping_sub(1), ..honest },
        Echo { timestamp: honest.timestamp.wrapping_add(3000), ..honest },
        Echo { path: honest.path ^ 1, ..honest },
        Echo { path: 255, ..honest },
        Echo { tx_num: honest.tx_num.wrapping_add(1), ..honest },
        Echo { tx_num: honest.tx_num.wrapping_sub(64), ..honest },
        Echo { tx_num: honest.tx_num ^ 1 << 31, ..honest },
    ];
    for (k, e) in forged.into_iter().enumerate() {
        tell(&mut p, &[e]);
        assert_eq!(learned(&p), (before, k as u64 + 1), "{e:?}");
    }
    tell(&mut p, &[honest]);
    let least = learned(&p).0;
    assert!((100_000 - 5_000..=100_000).contains(&least), "{least}");
}

/// The same echo again is no second arrival: a path would prove itself with one packet.
#[test]
fn an_echo_is_believed_once() {
    let (mut p, honest) = heard_of();
    tell(&mut p, &[honest, honest]);
    tell(&mut p, &[honest]);
    assert_eq!(learned(&p).1, 2);
}

/// The clock in packets wraps after 68.7 s. An echo held back for as long looked like a new one,
/// with any round trip that its sender wished for.
#[test]
fn an_echo_held_back_for_a_turn_of_the_clock_is_not_believed() {
    let (mut p, honest) = heard_of();
    let before = learned(&p).0;
    let turn = Span(1 << 36);
    p.now += turn - Span::from_us(99);
    tell(&mut p, &[honest]);
    assert_eq!(learned(&p), (before, 1));
}

/// How long a packet waited at the peer is its word alone. It could say that the whole round trip
/// was its own, and make the least round trip of everybody a few nanoseconds.
#[test]
fn a_claimed_wait_takes_a_quarter_off_the_least_round_trip_at_most() {
    let (mut p, honest) = heard_of();
    tell(&mut p, &[Echo { delay: (99_900 / 64) as u16, ..honest }]);
    let (least, refused) = learned(&p);
    assert_eq!(refused, 0);
    assert!((70_000..=75_000).contains(&least), "{least} of 100,000 ns");
}

/// The rate towards a puppet that reads 256 MB and acknowledges each packet soon after it left,
/// with an echo for one in `each` of them, after `packets` packets; in bytes per second.
fn rate_after(packets: u32, each: u32) -> u64 {
    const LEN: u32 = 1 << 28;
    let mut p = Puppet::new(config(0), |_| {});
    let region = p.victim.region(vec![0; LEN as usize], Access::REMOTE_READ);
    let msg = Message { src_qpn: 1, dst_qpn: p.qp.0, qkey: 0x11, msg_id: 3 };
    let read = ReadReq { rkey: region.0.0, raddr: region.1, len: LEN };
    p.say(Body::ReadReq(msg, read), 0, None);
    let (mut told, mut under_way) = (0, VecDeque::new());
    while told < packets {
        p.pass(Span::from_us(1));
        let now = p.now;
        under_way.extend(p.reliable().into_iter().map(|f| (now, f)));
        // Ten microseconds there and back.
        let back = under_way.iter().take_while(|f| now.since(f.0) >= Span::from_us(10)).count();
        let back: Vec<Flying> = under_way.drain(..back).map(|f| f.1).collect();
        for some in back.chunks(8) {
            let mut echoes = vec![];
            for f in some {
                let h = &f.header;
                let (tx_num, timestamp, path) = (h.tx_num, h.timestamp, h.path);
                if told % each == each - 1 {
                    echoes.push(Echo { tx_num, timestamp, delay: 0, path, ce: false });
                }
                told += 1;
            }
            p.cum = p.cum.wrapping_add(some.len() as u32);
            tell(&mut p, &echoes);
        }
        assert!(p.now < Time(3_000_000_000), "the read goes on: {told} packets");
    }
    p.victim.engine.context_stats()[0].rate_bytes_per_sec
}

/// Acknowledgments of what had not arrived made the rate rise to the line and stay there: whoever
/// asked for a gigabyte and stopped receiving had it sent at full rate into its own network. An
/// echo is proof, since only who receives a packet knows what to echo.
#[test]
fn acknowledgments_that_prove_nothing_slow_the_sender_down() {
    const LINE: u64 = 12_500_000_000;
    assert_eq!(rate_after(50_000, 8), LINE, "a busy receiver echoes some");
    assert_eq!(rate_after(50_000, 64), LINE);
    // 2,048 packets for each cut to an eighth: after five, the least rate.
    let least = rate_after(11_000, u32::MAX);
    assert!(least < LINE / 900, "{least}");
    let some = rate_after(50_000, 2_000);
    assert!(some < LINE / 4, "{some}");
}

/// Among honest hosts no echo is refused, with losses, duplicates and reordering.
#[test]
fn honest_echoes_are_believed() {
    let mut pair = Pair::new(7);
    pair.net.faults = Faults { loss: 500, duplicate: 500, jitter_ns: 30_000, ..Faults::default() };
    for k in 0..400 {
        let _ = pair.send(0, k, pattern(k, 800));
        pair.net.run(Span::from_us(20));
    }
    pair.net.run(Span::from_ms(200));
    let n = pair.net.hosts[0].engine.counters();
    assert!(n.retrans_pkts > 0, "something was lost");
    assert_eq!(n.echoes_refused + pair.net.hosts[1].engine.counters().echoes_refused, 0);
}
