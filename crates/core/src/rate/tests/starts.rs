//! What a sender remembers of its last start when it starts again after a pause.

use super::*;
use crate::guards::Guard;

const LINK: Link = Link {
    line: LINE,
    line_known: true,
    base_ns: 100_000,
    base_known: true,
    host_bytes: 0,
    srtt_ns: 120_000,
    burst: 65_536,
    known_ns: 0,
    target_ns: 75_000,
    unsure_ns: 0,
    mtu: 4096,
    credited: false,
    guards: Guards::ALL,
};

/// A first round that lost packets at a marked queue, and delivered a twentieth of the line rate.
const LOST: Round = Round {
    queue_ns: Some(20_000),
    median_ns: 0,
    shared_ns: 0,
    delivered: LINE / 20,
    sent: LINE,
    packets: 40,
    lost_permille: 200,
    most_ns: 0,
    own_ns: 0,
    full: true,
    port_ns: 0,
    ns: 0,
    acked: 0,
    missing: 0,
    app_limited: false,
    marked: true,
    marked_all: false,
};

/// A round without a queue.
const CLEAR: Round =
    Round { queue_ns: Some(0), delivered: LINE, lost_permille: 0, marked: false, ..LOST };

/// First window of a sender that starts again after these rounds.
fn window_after(link: &Link, rounds: &[Round]) -> u64 {
    let mut rate = SrdRate::new(LINE);
    rounds.iter().for_each(|round| rate.on_round(link, round));
    rate.on_restart(link);
    assert_eq!((rate.rate(), rate.is_opening()), (LINE, true), "it starts at the line rate");
    rate.inflight_max(link)
}

/// First window of a sender that knows nothing.
fn whole() -> u64 {
    window_after(&LINK, &[])
}

#[test]
fn a_start_that_lost_packets_makes_the_next_first_window_smaller() {
    assert_eq!(window_after(&LINK, &[LOST]), whole() / 8, "to a tenth: 3 halvings");
    let credited = Link { credited: true, ..LINK };
    assert_eq!(window_after(&credited, &[LOST]), whole() / 8, "the first window needs no credit");
    let half = Round { delivered: LINE / 4, ..LOST };
    assert_eq!(window_after(&LINK, &[half]), whole() / 2, "twice what was delivered");
    let most = Round { delivered: LINE / 2, ..LOST };
    assert_eq!(window_after(&LINK, &[most]), whole(), "no halving");
    let none = Round { delivered: 1, ..LOST };
    assert_eq!(window_after(&LINK, &[none]), (whole() >> 7).max(4 * 4096), "not without bound");
}

#[test]
fn a_start_says_nothing_where_it_lost_nothing_at_a_queue() {
    for (round, why) in [
        (Round { lost_permille: 0, ..LOST }, "marked, but nothing was lost"),
        (Round { lost_permille: 20, marked: false, ..LOST }, "a few random losses, no queue"),
        (Round { packets: 7, ..LOST }, "too few packets for a delivery rate"),
    ] {
        assert_eq!(window_after(&LINK, &[round]), whole(), "{why}");
    }
    let off = Link { guards: Guards::ALL.without(Guard::KnownStart), ..LINK };
    assert_eq!(window_after(&off, &[LOST]), whole(), "turned off");
    assert_eq!(window_after(&LINK, &[CLEAR, LOST]), whole(), "not in the start");
}

#[test]
fn a_smaller_first_window_doubles_while_it_meets_no_queue() {
    let mut rate = SrdRate::new(LINE);
    rate.on_round(&LINK, &LOST);
    rate.on_restart(&LINK);
    for times in [4, 2, 1] {
        rate.on_round(&LINK, &CLEAR);
        assert_eq!((rate.is_opening(), rate.inflight_max(&LINK)), (true, whole() / times));
    }
    rate.on_round(&LINK, &CLEAR);
    assert!(!rate.is_opening(), "the start is over as for a sender that knows nothing");
    rate.on_restart(&LINK);
    assert_eq!(rate.inflight_max(&LINK), whole(), "nothing is left of the memory");
}

#[test]
fn a_smaller_first_window_that_is_marked_stays_and_one_that_loses_shrinks() {
    let mut rate = SrdRate::new(LINE);
    let half = Round { delivered: LINE / 4, ..LOST };
    for (round, times) in [(half, 2), (Round { lost_permille: 0, ..LOST }, 2), (LOST, 8), (half, 8)]
    {
        rate.on_round(&LINK, &round);
        assert!(!rate.is_opening(), "a queue ends the start");
        rate.on_restart(&LINK);
        assert_eq!(rate.inflight_max(&LINK), whole() / times);
    }
}

#[test]
fn what_is_in_flight_at_most_doubles_after_the_start() {
    // A slow port: a delay target of many round trips.
    let link = Link { line: LINE / 100, target_ns: 40 * LINK.base_ns, ..LINK };
    let clear = |bytes: u64, ns: u64| Round {
        delivered: Link::rate(bytes, ns),
        acked: bytes,
        ns,
        sent: 0,
        lost_permille: 0,
        queue_ns: Some(0),
        marked: false,
        ..LOST
    };
    let run = |link: &Link, rounds: &[Round]| {
        let mut rate = SrdRate::new(link.line);
        rounds.iter().for_each(|round| rate.on_round(link, round));
        rate.inflight_max(link)
    };
    let first = SrdRate::new(link.line).inflight_max(&link);
    let mut rounds = vec![clear(first, link.base_ns)];
    let doubled = run(&link, &rounds);
    assert!(doubled.abs_diff(2 * first) <= first / 100, "{first}, then {doubled}");
    rounds.push(clear(doubled, link.base_ns));
    let again = run(&link, &rounds);
    assert!(again.abs_diff(4 * first) <= first / 50, "{first}, {doubled}, then {again}");
    let whole = Link::bytes(link.line, link.base_ns + 2 * link.target_ns);
    assert!(again < whole / 2, "the window of the rate, {whole}, is far");
    rounds.extend([clear(whole, link.base_ns); 2]);
    assert!(run(&link, &rounds) >= whole * 9 / 10, "in the end it is reached");
    let lost = Round { missing: 4096, lost_permille: 10, ..clear(doubled, link.base_ns) };
    assert!(run(&link, &[rounds[0], lost]) > 4 * first, "a loss ends the growth: the rate governs");
    let off = Link { guards: Guards::ALL.without(Guard::Growth), ..link };
    assert!(run(&off, &rounds[..1]) >= whole * 9 / 10, "turned off");
}
