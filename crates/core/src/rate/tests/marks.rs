//! Marks of switches (ECN) in the first round of a sender.

use super::*;
use crate::guards::Guard;

const LINK: Link = Link {
    line: LINE,
    base_ns: 12_000,
    base_known: true,
    host_bytes: 0,
    srtt_ns: 14_000,
    burst: 65_536,
    known_ns: 0,
    target_ns: 23_000,
    mtu: 4096,
    credited: false,
    guards: Guards::ALL,
};

/// A first round that delivered a tenth of the line rate, with a short queue.
const MARKED: Round = Round {
    queue_ns: Some(2_000),
    median_ns: 0,
    delivered: LINE / 10,
    sent: LINE / 10,
    packets: 40,
    lost_permille: 0,
    most_ns: 0,
    port_ns: 0,
    ns: 0,
    acked: 0,
    missing: 0,
    app_limited: false,
    marked: true,
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
    assert_eq!(rates(&Link { credited: true, ..LINK }, &[MARKED]), [LINE], "credits govern it");
    let off = Guards::ALL.without(Guard::MarkedStart);
    assert_eq!(rates(&Link { guards: off, ..LINK }, &[MARKED]), [LINE], "turned off");
}

#[test]
fn a_round_is_marked_by_more_than_half_of_its_echoes() {
    let round = |meter: &mut RoundMeter, at: u64, marks: &[bool]| {
        for &ce in marks {
            meter.on_echo(ce, 0);
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
