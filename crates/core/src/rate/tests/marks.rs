//! Marks of switches (ECN): in the first round of a sender, and in all rounds.

use super::*;
use crate::guards::Guard;

pub(super) const LINK: Link = Link {
    line: LINE,
    line_known: true,
    base_ns: 12_000,
    base_known: true,
    host_bytes: 0,
    srtt_ns: 14_000,
    burst: 65_536,
    known_ns: 0,
    target_ns: 23_000,
    unsure_ns: 0,
    mtu: 4096,
    credited: false,
    guards: Guards::ALL,
};

/// A first round that delivered a tenth of the line rate, with a short queue.
const MARKED: Round = Round {
    queue_ns: Some(2_000),
    median_ns: 0,
    shared_ns: 0,
    delivered: LINE / 10,
    sent: LINE / 10,
    packets: 40,
    lost_permille: 0,
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

/// Rates after each of these rounds, from a new sender on.
fn rates(link: &Link, rounds: &[Round]) -> Vec<u64> {
    let mut rate = SrdRate::new(LINE);
    let after = |round: &Round| {
        rate.on_round(link, round);
        rate.rate()
    };
    rounds.iter().map(after).collect()
}

#[test]
fn a_marked_first_round_ends_the_line_rate() {
    assert_eq!(rates(&LINK, &[MARKED]), [LINE / 5], "twice what was delivered");
    let credited = Link { credited: true, ..LINK };
    assert_eq!(rates(&credited, &[MARKED]), [LINE / 5], "the first window needs no credit");
    let little = Round { delivered: LINE / 100, ..MARKED };
    assert_eq!(rates(&LINK, &[little]), [LINE / 8], "an eighth at least, as after any cut");
    let most = Round { delivered: LINE * 3 / 4, ..MARKED };
    assert_eq!(rates(&LINK, &[most]), [LINE], "a mark never raises a rate");
    // Only the start is a guess. Later rounds have a measured rate, which delay and losses govern.
    let later = rates(&LINK, &[MARKED, Round { delivered: LINE / 20, ..MARKED }]);
    assert!(later[1] > later[0], "{later:?}");
}

#[test]
fn a_start_is_left_alone_where_marks_or_deliveries_say_little() {
    let clear = Round { marked: false, ..MARKED };
    assert_eq!(rates(&LINK, &[clear]), [LINE], "less than half of the packets were marked");
    let limited = Round { app_limited: true, ..MARKED };
    assert_eq!(rates(&LINK, &[limited]), [LINE], "there was no more to send");
    let few = Round { packets: 7, ..MARKED };
    assert_eq!(rates(&LINK, &[few]), [LINE], "too few packets for a delivery rate");
    let off = Guards::ALL.without(Guard::MarkedStart);
    assert_eq!(rates(&Link { guards: off, ..LINK }, &[MARKED]), [LINE], "turned off");
}

#[test]
fn a_round_is_marked_by_more_than_half_of_its_echoes() {
    let round = |meter: &mut RoundMeter, at: u64, marks: &[bool]| {
        for &ce in marks {
            meter.on_echo(ce, 0, true);
        }
        meter.on_acked(4096, Time(at));
        meter.on_ack_end(Time(at + 100), false, 4096, Span(u64::MAX), LINE)
    };
    let mut meter = RoundMeter::new(Time(0));
    assert!(round(&mut meter, 0, &[]).is_none(), "the measurement has no beginning yet");
    assert!(!round(&mut meter, 200, &[true, false]).expect("a round").marked, "half of two");
    assert!(round(&mut meter, 400, &[true, false, true]).expect("a round").marked, "two of three");
    assert!(!round(&mut meter, 600, &[]).expect("a round").marked, "marks of earlier rounds ended");
}

/// A round at the line rate without a queue, in which all packets were marked.
const ALL_MARKED: Round =
    Round { delivered: LINE, sent: LINE, marked_all: true, queue_ns: Some(0), ..MARKED };

#[test]
fn marks_of_all_packets_that_do_not_end_lower_the_rate() {
    let rounds = |n: usize| vec![ALL_MARKED; n];
    let rate = |rounds: &[Round]| *rates(&LINK, rounds).last().expect("a rate");
    assert_eq!(rate(&rounds(15)), LINE, "15 rounds may be the sender's own start");
    assert_eq!(rate(&rounds(16)), LINE - LINE / 16);
    assert!(rate(&rounds(28)) < LINE / 2, "half within a dozen rounds");
    assert_eq!(rate(&rounds(200)), Link::rate(LINK.burst, LINK.srtt_ns), "a burst per round trip");
    let credited = Link { credited: true, ..LINK };
    assert!(rates(&credited, &rounds(28))[27] < LINE / 2, "credits make no difference");
    let off = Guards::ALL.without(Guard::MarkedOn).without(Guard::MarkedStart);
    assert_eq!(rates(&Link { guards: off, ..LINK }, &rounds(28))[27], LINE, "turned off");
}

/// A mark counts as one target of delay on each path, which credits tolerate at less than the line
/// rate only as far as it is not a shared queue's. Where that was a little more than is tolerated,
/// each decrease was smaller than the one before, and none was for the marks (seed 1006528 of
/// `srd check --with Crowd`: half of the line rate for ever).
#[test]
fn marks_that_look_like_a_shared_queue_lower_the_rate_too() {
    let target = LINK.target_ns;
    let queue = Round { queue_ns: Some(target), median_ns: target, ..ALL_MARKED };
    let queue = Round { shared_ns: target, ..queue };
    let credited = Link { credited: true, ..LINK };
    let mut rate = SrdRate::new(LINE);
    let mut after = |rounds: usize| {
        for _ in 0..rounds {
            let delivered = rate.rate();
            rate.on_round(&credited, &Round { delivered, sent: delivered, ..queue });
        }
        rate.rate()
    };
    assert!(after(40) < LINE / 2, "fewer than the line's half after 40 rounds");
    assert_eq!(after(160), Link::rate(LINK.burst, LINK.srtt_ns), "a burst per round trip");
}

#[test]
fn marks_that_end_or_leave_packets_out_are_no_reason() {
    let clear = Round { marked: false, marked_all: false, ..ALL_MARKED };
    let mut rounds = [vec![ALL_MARKED; 28], vec![clear]].concat();
    let after = rates(&LINK, &rounds);
    assert!(after[28] > after[27], "the rate rises with the first round that is not marked");
    rounds.extend(vec![ALL_MARKED; 15]);
    let again = rates(&LINK, &rounds);
    assert!(again.last() > again.get(28), "counted anew");
    let most = Round { marked_all: false, ..ALL_MARKED };
    assert_eq!(rates(&LINK, &[most; 100])[99], LINE, "delay and losses govern the rate");
    let limited = Round { app_limited: true, ..ALL_MARKED };
    assert_eq!(rates(&LINK, &[limited; 100])[99], LINE, "a rate that was not used");
}

#[test]
fn all_packets_of_a_round_are_marked_from_seven_eighths_on() {
    let all = |marks: u32, echoes: u32| {
        let mut meter = RoundMeter::new(Time(0));
        meter.on_acked(4096, Time(0));
        assert!(meter.on_ack_end(Time(100), false, 4096, Span(u64::MAX), LINE).is_none());
        (0..echoes).for_each(|n| meter.on_echo(n < marks, 0, true));
        meter.on_acked(4096, Time(200));
        meter.on_ack_end(Time(300), false, 4096, Span(u64::MAX), LINE).expect("a round").marked_all
    };
    assert!(!all(0, 0), "nothing was echoed");
    assert!(all(1, 1) && all(15, 16) && all(16, 16));
    assert!(!all(14, 16) && !all(0, 16));
}

/// Whether marks on all packets count as those of rivals after 200 rounds that deliver a quarter of
/// the line rate, with these rates: `rate` says each one, and the law lowers it each `falls` rounds
/// of `falls + 1`.
fn rivals_are_seen(rate: impl Fn(u64) -> u64, falls: u64) -> bool {
    let mut marks = crate::rate::marks::Marks::default();
    let queue = Round { queue_ns: Some(50_000), median_ns: 50_000, most_ns: 50_000, ..ALL_MARKED };
    for n in 0..200 {
        marks.on_change(n % (falls + 1) != 0);
        let delivered = rate(n).min(LINE / 4);
        marks.on_round(&LINK, &Round { delivered, sent: delivered, ..queue }, rate(n));
    }
    marks.are_of_rivals(&LINK, rate(200))
}

#[test]
fn marks_are_those_of_rivals_where_next_to_nothing_is_left_or_the_rate_falls_all_the_time() {
    // Four equals, the rates of which fall from the line rate to a quarter of it.
    let equals = |n: u64| LINE.saturating_sub(LINE * n / 160).max(LINE / 4 + LINE / 100);
    assert!(!rivals_are_seen(equals, 9), "they keep what was delivered");
    let rivals = |n: u64| LINE.saturating_sub(LINE * n / 100).max(LINE / 17);
    assert!(rivals_are_seen(rivals, 9), "less than a quarter of what was delivered");
    let before = |n: u64| if n < 20 { LINE } else { LINE / 17 };
    assert!(rivals_are_seen(before, 9), "a rate that fell at once");
    assert!(rivals_are_seen(|_| LINE / 17, 500), "a rate that does nothing but fall");
    assert!(!rivals_are_seen(|_| LINE / 8, 500), "an eighth of the line rate");
    assert!(!rivals_are_seen(|_| LINE / 17, 50), "a rate that goes up and down");
}
