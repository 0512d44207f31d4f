//! Receivers that grant more than a sender keeps: because their port is faster than the sender's,
//! or because several of them have one address.

use crate::common::*;
use srd_core::*;

/// Rate of the sender's port in bytes per second: 10 Gb/s.
const LINE: u64 = 1_250_000_000;
/// Bytes of a message, which fill a packet.
const MESSAGE: usize = 4096;

/// How long `messages` messages take to each of so many engines of one host, whose port has `times`
/// the sender's rate, after one to each.
fn time_of_messages(engines: usize, times: u64, messages: u64) -> Span {
    let mut configs = vec![config(0)];
    configs[0].rate.line_bytes_per_sec = LINE;
    configs.extend((0..engines).map(|slot| {
        let mut c = config(1);
        c.slot = slot as u8;
        c.rate.line_bytes_per_sec = times * LINE;
        c
    }));
    for c in &mut configs {
        (c.mtu, c.rate.credits) = (MESSAGE as u16, true);
    }
    let mut net = Net::new(5, configs);
    let now = net.now;
    let to = net.hosts[1].ip;
    let ah = net.hosts[0].ah(now, to);
    let qp = net.hosts[0].qp(now, QpType::Srd, false);
    let there: Vec<_> = (1..=engines).map(|k| net.hosts[k].qp(now, QpType::Srd, false)).collect();
    let mut sent = 0;
    let mut all = |net: &mut Net, messages: u64| {
        let began = net.now;
        for (k, &to) in there.iter().enumerate() {
            for _ in 0..messages {
                net.hosts[1 + k].recv(to, sent, MESSAGE as u32);
                let wr = send_wr(sent, ah, to, MESSAGE);
                net.hosts[0].post(began, qp, wr, vec![0; MESSAGE]).unwrap();
                sent += 1;
            }
        }
        assert!(net.run_until(Span::from_ms(100), |n| n.hosts[0].sends_done() as u64 == sent));
        net.now.since(began)
    };
    all(&mut net, 1);
    all(&mut net, messages)
}

/// The receiver's port carries ten times as much, and so did its grants; what the sender did not
/// keep of them the receiver counted to the end, and granted nothing in its place: the message took
/// 1.4 times as long.
#[test]
fn a_receiver_grants_no_more_than_its_sender_keeps() {
    let (equal, fast) = (time_of_messages(1, 1, 1000), time_of_messages(1, 10, 1000));
    eprintln!("{equal:?} {fast:?}");
    assert!(fast <= equal.scale(21, 20), "{fast:?}, {equal:?} where both ports are as fast");
}

/// Each of several engines at one address grants as if it were the only one, and the sender keeps
/// one sum for all.
#[test]
fn engines_at_one_address_grant_together_no_more_than_their_sender_keeps() {
    let (one, all) = (time_of_messages(1, 1, 500), time_of_messages(8, 1, 500));
    eprintln!("{one:?} {all:?}");
    assert!(all <= one.scale(8 * 21, 20), "{all:?} for eight, {one:?} for one");
}
