//! What peers share of a host, and how little one of them can take from the others by saying that
//! it needs much: the receive budget, the places of reads. One story each.

use crate::common::door::*;
use crate::common::*;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use srd_core::wire::{AckBlock, Body, Message, PacketType, ReadReq};
use srd_core::*;

const BUDGET: u32 = 1 << 20;

/// A host with receive buffers of a megabyte, and an honest sender that it tells what it may have
/// in flight.
struct Buffers {
    d: Door,
    qp: Qpn,
    honest: Guest,
}

impl Buffers {
    fn new() -> Self {
        let mut d = Door::new(|c| c.rx_budget_bytes = BUDGET);
        let qp = d.host.qp(d.now, QpType::Srd, false);
        let honest = Guest::new(&mut d, network(0), 0);
        Self { d, qp, honest }
    }

    /// A full message of `guest`, which is taken.
    fn message(&self) -> Body {
        Body::Send(Message { src_qpn: 1, dst_qpn: self.qp.0, qkey: 0x11, msg_id: 1 })
    }

    fn send(&mut self, guest: &mut Guest) {
        let body = self.message();
        for i in 0..2 {
            self.d.host.recv(self.qp, i, 1024);
            guest.say(&mut self.d, body, 1024, None);
        }
    }

    /// What the honest sender may have in flight, as the next acknowledgment tells it.
    fn honest_share(&mut self) -> u32 {
        let (body, guest) = (self.message(), &mut self.honest);
        for i in 0..2 {
            self.d.host.recv(self.qp, i, 1024);
            guest.say(&mut self.d, body, 1024, None);
        }
        self.d.pass(Span::from_us(10), [&mut *guest]);
        let told = guest.heard.iter().rev().find_map(|f| f.ack.as_ref());
        told.expect("messages are acknowledged").rx_budget
    }
}

/// A context with one empty packet that said "more to come", and some probes a second, had a share
/// like every sender: whoever opened 256 of them left the others a 257th of the buffers, without a
/// Q_Key, and with the contexts of one /24 two packets each.
#[test]
fn who_says_that_much_is_to_come_takes_no_share() {
    let mut b = Buffers::new();
    let attacker = Ipv4Addr::new(10, 7, 7, 1).into();
    let mut slots: Vec<_> = (0..=255).map(|slot| Guest::new(&mut b.d, attacker, slot)).collect();
    let wrong = Message { src_qpn: 1, dst_qpn: b.qp.0, qkey: 0x12, msg_id: 1 };
    for g in &mut slots {
        g.say(&mut b.d, Body::Tombstone, 0, None);
        g.say(&mut b.d, Body::Send(wrong), 1024, None);
        g.say(&mut b.d, Body::Probe, 0, None);
    }
    assert_eq!(b.honest_share(), BUDGET);
}

/// Who has the Q_Key and sends what is wanted has the share of one address, whatever the number of
/// its contexts; with all addresses of a network, that of four.
#[test]
fn who_holds_many_addresses_has_the_share_of_a_few() {
    let mut b = Buffers::new();
    let attacker = Ipv4Addr::new(10, 7, 7, 1).into();
    for slot in 0..=255 {
        let mut g = Guest::new(&mut b.d, attacker, slot);
        b.send(&mut g);
    }
    assert_eq!(b.honest_share(), BUDGET / 2);
    for host in 2..=255 {
        let mut g = Guest::new(&mut b.d, Ipv4Addr::new(10, 7, 7, host).into(), 0);
        b.send(&mut g);
    }
    assert_eq!(b.honest_share(), BUDGET / 5);
    // What was paid for lasts for a timeout at most.
    b.d.pass(Span::from_ms(101), []);
    for _ in 0..20 {
        b.honest_share();
    }
    assert_eq!(b.honest_share(), BUDGET);
}

/// A host that serves eight reads at once.
struct Server {
    d: Door,
    qp: Qpn,
    region: (MrKey, u64),
}

const REGION: u32 = 1 << 22;

impl Server {
    fn new() -> Self {
        let mut d = Door::new(|c| {
            c.reads_max = 8;
            c.rdma_needs_ah = false;
            c.loss.unresponsive_after = Span::from_secs(5);
        });
        let qp = d.host.qp(d.now, QpType::Srd, false);
        let region = d.host.region(vec![0; REGION as usize], Access::REMOTE_READ);
        Self { d, qp, region }
    }

    /// A guest at `ip` asks for `n` long reads.
    fn ask(&mut self, g: &mut Guest, n: u32) {
        for k in 0..n {
            let msg = Message { src_qpn: 1, dst_qpn: self.qp.0, qkey: 0x11, msg_id: 900 + k };
            let read = ReadReq { rkey: self.region.0.0, raddr: self.region.1, len: REGION };
            g.say(&mut self.d, Body::ReadReq(msg, read), 0, None);
        }
    }

    fn served(&self, at: IpAddr) -> u32 {
        let stats = self.d.host.engine.context_stats();
        stats.iter().filter(|c| c.peer.ip == at).map(|c| c.reads_served).sum()
    }
}

/// `g` takes one packet of what was sent to it, or all, and wants no more than one under way.
fn take(d: &mut Door, g: &mut Guest, all: bool) {
    let sent = core::mem::take(&mut g.heard);
    let psns = sent.iter().filter(|f| f.header.kind.is_reliable()).map(|f| f.header.psn);
    match if all { psns.max() } else { psns.min() } {
        Some(psn) => {
            let cum = psn.wrapping_add(1);
            let block = AckBlock { cum, base: cum, rx_budget: 0, ..AckBlock::default() };
            g.say(d, Body::Ack, 0, Some(&block));
        }
        None => g.say(d, Body::Probe, 0, None),
    }
}

/// Peers that are alive and take a packet now and then held their places for weeks, and all other
/// reads ended with status 10.
#[test]
fn reads_that_make_no_progress_leave_their_places() {
    let mut s = Server::new();
    let slow: Vec<IpAddr> = (1..=4).map(ip).collect();
    let mut guests: Vec<_> = slow.iter().map(|&at| Guest::new(&mut s.d, at, 0)).collect();
    guests.iter_mut().for_each(|g| s.ask(g, 8));
    assert_eq!(slow.iter().map(|&at| s.served(at)).collect::<Vec<_>>(), [4, 2, 1, 1]);
    let mut honest = Guest::new(&mut s.d, ip(9), 0);
    let mut seconds = 0;
    while s.served(ip(9)) == 0 {
        guests.iter_mut().for_each(|g| take(&mut s.d, g, false));
        s.ask(&mut honest, 1);
        s.d.pass(Span::from_secs(1), guests.iter_mut().chain([&mut honest]));
        seconds += 1;
        assert!(seconds < 30, "nobody is served");
    }
    let patience = limits::READ_PATIENCE.0 / 1_000_000_000;
    assert!((patience..=patience + 2).contains(&seconds), "{seconds} s");
    assert!(s.d.host.engine.counters().reads_slow >= 1);
    // Those whose reads have ended are told so, when they take it.
    let told =
        |g: &mut Guest| {
            g.heard.iter().any(|f| f.header.kind == PacketType::ReadResp
        && matches!(f.body, Body::ReadResp(r) if r.status == wire::ReadStatus::RegionGone))
        };
    for _ in 0..200 {
        if guests.iter_mut().any(told) {
            return;
        }
        guests.iter_mut().for_each(|g| take(&mut s.d, g, true));
        s.d.pass(Span::from_ms(100), &mut guests);
    }
    panic!("nobody is told that a read has failed");
}

/// As long as nobody wants its place, a slow read goes on; and a quick one whoever wants it.
#[test]
fn reads_that_go_on_keep_their_places() {
    let mut s = Server::new();
    let (mut slow, mut other) = (Guest::new(&mut s.d, ip(1), 0), Guest::new(&mut s.d, ip(2), 0));
    s.ask(&mut slow, 4);
    for _ in 0..25 {
        take(&mut s.d, &mut slow, false);
        s.d.pass(Span::from_secs(1), [&mut slow]);
    }
    assert_eq!((s.served(ip(1)), s.d.host.engine.counters().reads_slow), (4, 0));
    s.ask(&mut other, 1);
    assert_eq!((s.served(ip(1)), s.served(ip(2))), (4, 1), "there was a place");
}

/// Each address of a network had the places of one that is alone: an IPv6 network has as many as
/// anybody wants.
#[test]
fn addresses_of_one_ipv6_network_count_as_one() {
    let mut s = Server::new();
    let at = |network, host| IpAddr::V6(Ipv6Addr::new(0xFD00, 0, 0, network, 0, 0, 0, host));
    for host in 1..=20 {
        let mut g = Guest::new(&mut s.d, at(7, host), 0);
        s.ask(&mut g, 8);
    }
    let of_network: u32 = (1..=20).map(|host| s.served(at(7, host))).sum();
    assert_eq!(of_network, 4, "half of all");
    let mut g = Guest::new(&mut s.d, at(8, 1), 0);
    s.ask(&mut g, 8);
    assert_eq!(s.served(at(8, 1)), 2);
    let mut g = Guest::new(&mut s.d, ip(1), 0);
    s.ask(&mut g, 8);
    assert_eq!(s.served(ip(1)), 1);
}

/// A region or queue pair that went away looked at every context, while any read was served:
/// whoever kept one open made each deregistration a walk over all peers.
#[test]
fn what_goes_away_looks_at_its_own_reads_alone() {
    let mut s = Server::new();
    let mut guests: Vec<_> = (1..500).map(|i| Guest::new(&mut s.d, ip(i), 0)).collect();
    s.ask(&mut guests[0], 2);
    s.ask(&mut guests[1], 1);
    assert_eq!(s.d.host.engine.context_stats().len(), 499);
    let other = s.d.host.region(vec![0; 10], Access::REMOTE_READ).0;
    s.d.host.region_remove(other);
    let other = s.d.host.qp(s.d.now, QpType::Srd, false);
    s.d.host.engine.qp_destroy(s.d.now, other).unwrap();
    assert_eq!(s.d.host.engine.counters().read_steps, 0);
    s.d.host.region_remove(s.region.0);
    assert_eq!(s.d.host.engine.counters().read_steps, 3);
    s.region = s.d.host.region(vec![0; REGION as usize], Access::REMOTE_READ);
    s.ask(&mut guests[3], 2);
    s.d.host.engine.qp_destroy(s.d.now, s.qp).unwrap();
    assert_eq!(s.d.host.engine.counters().read_steps, 5);
    s.d.host.engine.qp_destroy(s.d.now, s.qp).unwrap_err();
}
