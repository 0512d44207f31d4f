//! One engine sends to many addresses through one port: together they send at its rate, and each
//! has its turn.

use crate::common::*;
use srd_core::guards::{Guard, Guards};
use srd_core::*;

/// Rate of the port in bytes per second: 1 Gb/s.
const LINE: u64 = 125_000_000;
/// Addresses that the engine sends to.
const PEERS: usize = 4;
/// What an idle port may catch up, in bytes, and a burst of each address.
const AHEAD: u64 = LINE / 10_000 + PEERS as u64 * 10_000;

/// Host 0 sends through a port of [`LINE`] bytes per second, and has more to send to each of the
/// other hosts than fits into the time. Returns its queue pairs by host; host 1 is the first.
fn sender(seed: u64, guards: Guards, mut configs: Vec<EngineConfig>) -> (Net, Vec<Qpn>) {
    for c in &mut configs {
        c.rate.line_bytes_per_sec = LINE;
        c.guards = guards;
    }
    let mut net = Net::new(seed, configs);
    let now = net.now;
    let mut own = vec![];
    for peer in 1..net.hosts.len() {
        let to = net.hosts[peer].ip;
        let ah = net.hosts[0].ah(now, to);
        let there = net.hosts[peer].qp(now, QpType::Srd, false);
        let qp = net.hosts[0].qp(now, QpType::Srd, false);
        for i in 0..1000 {
            net.hosts[peer].recv(there, i, 1000);
            net.hosts[0].post(now, qp, send_wr(i, ah, there, 1000), vec![0; 1000]).unwrap();
        }
        own.push(qp);
    }
    net.run(Span::from_ms(2));
    (net, own)
}

/// The bytes that leave host 0 within 10 ms, and how many messages each peer acknowledges.
fn sent((mut net, own): (Net, Vec<Qpn>)) -> (u64, Vec<usize>) {
    let before = net.hosts[0].engine.counters().tx_bytes;
    net.run(Span::from_ms(10));
    let bytes = net.hosts[0].engine.counters().tx_bytes - before;
    let of = |&qp: &Qpn| net.hosts[0].done.iter().filter(|c| c.qpn == qp).count();
    (bytes, own.iter().map(of).collect())
}

/// One engine for each of the addresses that host 0 sends to.
fn peers() -> Vec<EngineConfig> {
    (0..=PEERS).map(config).collect()
}

/// Each address was paced at the whole line. Together they filled the queue of the port, in which
/// a peer that hid its delay took the turns of those that told theirs (seed 53000037917 of the
/// checker: honest peers beside one liar moved 61 % of what they move without it).
#[test]
fn all_addresses_together_send_at_the_rate_of_the_port_and_have_equal_turns() {
    let most = LINE / 100 + AHEAD;
    for seed in 0..3 {
        let (bytes, ended) = sent(sender(seed, Guards::ALL, peers()));
        assert!(bytes <= most, "seed {seed}: {bytes} bytes in 10 ms, {most} fit");
        assert!(bytes >= most * 8 / 10, "seed {seed}: the port is not full: {bytes} of {most}");
        let (least, largest) = (ended.iter().min().unwrap(), ended.iter().max().unwrap());
        assert!(least * 10 >= largest * 8, "seed {seed}: messages by address: {ended:?}");
        let off = Guards::ALL.without(Guard::PortTurns);
        let (free, _) = sent(sender(seed, off, peers()));
        assert!(free > 2 * most, "seed {seed}: without the rule {free} bytes leave");
    }
}

/// While the port is busy, the engine asks to be called when it is free, not at once.
#[test]
fn who_waits_for_the_port_is_called_when_it_is_free() {
    let (mut net, _) = sender(7, Guards::ALL, peers());
    let host = &mut net.hosts[0];
    let polled = host.transmit(net.now);
    assert!(polled.len() < 100, "not all that could be sent: {} packets", polled.len());
    let at = host.engine.next_timeout();
    assert!(at > net.now && at < net.now + Span::from_ms(1), "called at {at:?}");
    assert!(host.transmit(net.now).is_empty(), "nothing leaves before");
    host.engine.handle_timeout(at);
    assert!(!host.transmit(at).is_empty(), "and then something does");
}
