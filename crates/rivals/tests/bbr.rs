//! BBR against what is known in closed form: its queue, its shares, its measurement of round trips.

use crate::wire::{bottleneck, exact, forward, net, open};
use srd_fabric::{HostId, MS, Ps, SEC, US};
use srd_rivals::{Algorithm, BbrMode, TcpConfig, TcpNet};

fn bbr() -> TcpConfig {
    exact().mss(1448).algorithm(Algorithm::Bbr)
}

fn goodput_max(rate: u64, tcp: &TcpConfig) -> f64 {
    let wire = tcp.mss + tcp.header_bytes + tcp.link_bytes;
    rate as f64 * f64::from(tcp.mss) / f64::from(wire)
}

/// Bytes that wait at the bottleneck, seen every 100 us from `from` to `to`: mean and largest.
fn backlog(net: &mut TcpNet, from: Ps, to: Ps) -> (f64, u64) {
    net.run_until(from);
    let (mut sum, mut most, mut count) = (0.0, 0, 0u32);
    while net.world.now() < to {
        let next = net.world.now() + 100 * US;
        net.run_until(next);
        let link = forward(net);
        let mut waiting = 0;
        net.world.links_sample(next, |l, s| {
            if l == link {
                waiting = s.queue_bytes
            }
        });
        sum += waiting as f64;
        most = most.max(waiting);
        count += 1;
    }
    (sum / f64::from(count), most)
}

#[test]
fn one_flow_fills_the_line_with_a_short_queue() {
    for (rate, delay) in [(1_000_000_000, MS), (10_000_000_000, 200 * US), (100_000_000, 5 * MS)] {
        let tcp = bbr();
        let bdp = rate / 8 * (2 * delay / US) / 1_000_000;
        let mut net = net(bottleneck(1, rate, delay, 20 * bdp), 1, &tcp);
        let conn = open(&mut net, 1)[0];
        net.message_at(conn, MS, 1 << 36);
        let start = SEC / 2;
        let (mean, most) = backlog(&mut net, start, 2 * SEC);
        let sender = net.sender(conn).expect("open");
        assert_eq!(sender.bbr_mode(), Some(BbrMode::ProbeBw));
        let share = sender.acked_bytes() as f64 * 8.0 / 2.0 / goodput_max(rate, &tcp);
        assert!(share > 0.97 && share <= 1.0, "{rate}: {share}");
        // The phase of 1.25 adds a quarter of a bandwidth-delay product, and that of 0.75 drains
        // it; the window of twice the product is never reached.
        let bursts = 20.0 * 1_518.0;
        assert!(mean < 0.25 * bdp as f64 + bursts, "{rate}: {mean} of {bdp}");
        assert!((most as f64) < bdp as f64 + bursts, "{rate}: {most} of {bdp}");
        // The estimate is the line.
        let seen = sender.bbr_bandwidth().expect("BBR") * 1_448.0 * 8.0;
        assert!((seen / goodput_max(rate, &tcp) - 1.0).abs() < 0.05, "{rate}: {seen}");
        assert_eq!(net.counters().retransmits, 0);
    }
}

/// Flows that begin at different times, with a deep queue: equal shares, and in flight at most the
/// windows of two bandwidth-delay products, of which one waits.
#[test]
fn two_flows_converge_to_equal_shares() {
    let (rate, delay) = (1_000_000_000, MS);
    let tcp = bbr();
    let bdp = 250_000;
    let mut net = net(bottleneck(2, rate, delay, 20 * bdp), 3, &tcp);
    let conns = open(&mut net, 2);
    net.message_at(conns[0], MS, 1 << 36);
    net.message_at(conns[1], 300 * MS, 1 << 36);
    let (mean, most) = backlog(&mut net, 3 * SEC, 5 * SEC);
    let acked = |net: &TcpNet, i: usize| net.sender(conns[i]).expect("open").acked_bytes();
    let before = [acked(&net, 0), acked(&net, 1)];
    net.run_until(8 * SEC);
    let rates: Vec<f64> = (0..2).map(|i| (acked(&net, i) - before[i]) as f64 * 8.0 / 3.0).collect();
    let share = (rates[0] + rates[1]) / goodput_max(rate, &tcp);
    assert!(share > 0.97 && share <= 1.001, "{share}");
    assert!((rates[0] / rates[1]).ln().abs() < 0.5, "{rates:?}");
    // Each flow measures the largest share that it had in ten rounds, and the sum of these is more
    // than the line: the windows of two products become what limits, and one product waits.
    assert!((0.7..1.2).contains(&(mean / bdp as f64)), "{mean} of {bdp}");
    assert!((most as f64) < 1.5 * bdp as f64, "{most} of {bdp}");
    assert_eq!(net.counters().retransmits, 0);
}

#[test]
fn the_round_trip_is_measured_again_after_ten_seconds() {
    let (rate, delay) = (100_000_000, 5 * MS);
    let mut net = net(bottleneck(2, rate, delay, 1 << 22), 1, &bbr());
    let conns = open(&mut net, 2);
    conns.iter().for_each(|c| {
        net.message_at(*c, MS, 1 << 36);
    });
    // Two flows keep a queue, so the least round trip, that of the handshake, is not seen again.
    let (mut begun, mut ended, mut low) = (None, None, 0);
    while ended.is_none() && net.world.now() < 15 * SEC {
        let next = net.world.now() + MS;
        net.run_until(next);
        let s = net.sender(conns[0]).expect("open");
        let probing = s.bbr_mode() == Some(BbrMode::ProbeRtt);
        match begun {
            None if probing => begun = Some(next),
            Some(_) if probing => low += u32::from(s.in_flight() <= 4),
            Some(_) => ended = Some(next),
            None => {}
        }
    }
    let (begun, ended) = (begun.expect("it began"), ended.expect("it ended"));
    assert!((10 * SEC..10 * SEC + 500 * MS).contains(&begun), "{begun}");
    // Until four segments are in flight takes a round trip with its queue, then 200 ms and the end
    // of a round.
    let took = ended - begun;
    assert!((200 * MS..300 * MS).contains(&took), "{took}");
    assert!(low >= 195, "{low} ms with four segments in flight");
    // Both measure at once, since both see the queue that the other leaves: it is empty now.
    let host = HostId(0);
    assert_eq!(net.world.hosts()[host.0 as usize].counters().timeouts, 0);
    let before = net.sender(conns[0]).expect("open").acked_bytes();
    net.run_until(ended + 2 * SEC);
    assert!(net.sender(conns[0]).expect("open").acked_bytes() - before > 5_000_000);
}

#[test]
fn losses_are_repaired_and_are_no_signal() {
    use srd_fabric::{Effect, Fault, Target};
    // 1 % of segments are lost: Reno has sqrt(3/2p) = 12 segments per round trip of 10 ms, which
    // are 14 Mb/s of 200; BBR has nearly all.
    let (rate, delay) = (200_000_000, 5 * MS);
    let share = |algorithm| {
        let tcp = exact().mss(1448).algorithm(algorithm);
        let mut net = net(bottleneck(1, rate, delay, 1 << 21), 1, &tcp);
        let at = Target::Link(forward(&net));
        let fault = Fault::Impair { at, effect: Effect::Loss(0.01) };
        net.world.fault_at(0, fault).expect("a link that exists");
        let conn = open(&mut net, 1)[0];
        net.message_at(conn, MS, 1 << 36);
        net.run_until(8 * SEC);
        let acked = net.sender(conn).expect("open").acked_bytes();
        acked as f64 * 8.0 / 8.0 / goodput_max(rate, &tcp)
    };
    let (reno, bbr) = (share(Algorithm::Reno), share(Algorithm::Bbr));
    assert!(reno < 0.12 && bbr > 0.9, "{reno} {bbr}");
}
