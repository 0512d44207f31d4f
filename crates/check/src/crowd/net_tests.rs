use super::*;
use crate::crowd::draw;
use crate::packet::endpoint_of;

/// A network of this kind at 1,000 bytes per us, with ports that take no time.
fn net(kind: Kind) -> Net {
    let mut plan = (0..).find_map(|seed| draw(seed, 1)).expect("some seeds are crowded");
    (plan.kind, plan.rate) = (kind, 1_000_000_000);
    plan.config.rate.line_bytes_per_sec = 1_000_000_000_000;
    Net::new(&plan, 2, Draw::new(1, 1, 1))
}

/// A datagram of `bytes` with its frame.
fn gram(bytes: u64) -> Gram {
    Gram {
        head: Vec::new(),
        len: (bytes - CABLE_BYTES) as usize,
        src: endpoint_of(1, 0).ip,
        dst: endpoint_of(0, 0),
        sender: 0,
        forth: true,
        ce: false,
    }
}

/// When what has passed the bottleneck arrives, and whether it is marked.
fn arrivals(net: &mut Net) -> Vec<(u64, bool)> {
    let next = || match net.next(u64::MAX) {
        Some((at, Event::Arrive(g))) => Some((at, g.ce)),
        Some(other) => panic!("{other:?}"),
        None => None,
    };
    core::iter::from_fn(next).collect()
}

#[test]
fn a_buffer_delays_what_fits_and_drops_the_rest() {
    let mut net = net(Kind::Buffer { bytes: 3_000 });
    (0..5).for_each(|_| net.bottleneck(100, 0, gram(1_000)));
    assert_eq!((net.offered, net.dropped), (5, 2));
    let at: Vec<u64> = arrivals(&mut net).iter().map(|a| a.0).collect();
    assert_eq!(at, [1_100, 2_100, 3_100]);
    net.bottleneck(3_000, 200, gram(1_000));
    assert_eq!(arrivals(&mut net), [(4_200, false)], "100 ns are left of the queue, 100 ns of way");
}

#[test]
fn a_policer_passes_its_bucket_at_once_and_then_its_rate() {
    for (kind, changed, each_ns) in [
        (Kind::Policer { bytes: 4_000 }, false, 1_000),
        (Kind::Lifted { bytes: 4_000 }, true, 1_000 / LIFTED_TIMES),
    ] {
        let mut net = net(kind);
        net.changed = changed;
        (0..6).for_each(|_| net.bottleneck(0, 0, gram(1_000)));
        assert_eq!((net.offered, net.dropped), (6, 2), "the bucket was full");
        assert_eq!(arrivals(&mut net), [(0, false); 4], "nothing waits");
        for (at, dropped) in [(each_ns - 10, 3), (each_ns, 3), (each_ns + 10, 4)] {
            net.bottleneck(at, 0, gram(1_000));
            assert_eq!(net.dropped, dropped, "at {at} ns");
        }
    }
}

#[test]
fn a_switch_marks_until_it_changes_and_a_bad_link_loses_its_share() {
    let mut switch = net(Kind::Marks);
    switch.bottleneck(0, 0, gram(1_000));
    switch.changed = true;
    switch.bottleneck(0, 0, gram(1_000));
    assert_eq!(arrivals(&mut switch), [(1_000, true), (2_000, false)]);
    assert_eq!((switch.marked, switch.dropped), (1, 0));
    let mut bad = net(Kind::BadLink { permille: 150 });
    (0..10_000).for_each(|k| bad.bottleneck(k * 2_000, 0, gram(1_000)));
    // Five standard deviations of a binomial (10,000, 0.15) are 179.
    assert!((1_321..=1_679).contains(&bad.dropped), "{}", bad.dropped);
}

#[test]
fn a_port_sends_one_datagram_after_the_other() {
    let mut plan = (0..).find_map(|seed| draw(seed, 1)).expect("some seeds are crowded");
    plan.config.rate.line_bytes_per_sec = 1_000_000_000;
    let mut net = Net::new(&plan, 2, Draw::new(1, 1, 1));
    (0..3).for_each(|_| net.send(0, 1, 2_000_000, gram(1_000)));
    for k in 1..=3 {
        let (at, event) = net.next(u64::MAX).expect("three were sent");
        assert!(matches!(event, Event::Bottleneck(_)));
        let least = 1_000 * k + 1_000_000;
        assert!((least..least + JITTER_NS).contains(&at), "{at}");
    }
}
