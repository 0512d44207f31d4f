//! A queue that nearly all paths have, beside one that differs between paths.

use super::*;
use crate::guards::Guard;

const TARGET: u64 = 8_000;

const LINK: Link = Link { target_ns: TARGET, credited: true, ..marks::LINK };

/// The change of `rate`, in thousandths, after a round in which the median path has a queue of
/// `median` and nearly all paths have one of `shared`, in eighths of the target.
fn change(link: &Link, rate: u64, median: u64, shared: u64) -> i64 {
    let round = |median: u64, shared: u64| Round {
        queue_ns: Some(TARGET * median / 8),
        median_ns: TARGET * median / 8,
        shared_ns: TARGET * shared / 8,
        delivered: rate,
        sent: rate,
        packets: 40,
        full: true,
        ..Round::default()
    };
    let mut control = SrdRate::new(LINE);
    control.adopt(rate);
    control.on_round(link, &round(median, shared));
    (control.rate() as i64 - rate as i64) * 1000 / rate as i64
}

#[test]
fn a_queue_of_all_paths_is_tolerated_less_than_one_of_some() {
    let half = LINE / 2;
    assert!(change(&LINK, half, 16, 0) > 0, "two targets of queue in the fabric");
    assert!(change(&LINK, half, 16, 6) > 0, "and a short one at the port");
    assert!(change(&LINK, half, 16, 12) < 0, "a longer one at the port");
    assert!(change(&LINK, half, 16, 16) < change(&LINK, half, 16, 12), "a still longer one");
    let uncredited = Link { credited: false, ..LINK };
    assert!(change(&uncredited, half, 8, 12) > 0, "no grants make senders equal");
    let off = Link { guards: Guards::ALL.without(Guard::SharedQueue), ..LINK };
    assert!(change(&off, half, 16, 12) > 0, "turned off");
}

#[test]
fn slow_senders_tolerate_more_of_it() {
    assert!(change(&LINK, LINE, 6, 6) < 0, "more than half a target at line rate");
    assert!(change(&LINK, LINE / 8, 6, 6) > 0, "not too much at an eighth of it");
    assert!(change(&LINK, LINE / 8, 20, 20) < 0, "two and a half are");
}

#[test]
fn a_queue_that_cannot_be_told_from_noise_does_not_count() {
    let noisy = Link { unsure_ns: 2 * TARGET, ..LINK };
    assert!(change(&noisy, LINE / 2, 16, 15) > 0, "round trips differ by as much anyway");
    let less = Link { unsure_ns: TARGET / 2, ..LINK };
    assert!(change(&less, LINE / 2, 16, 15) < 0);
}

/// Many targets of shared queue take an eighth of the rate: only the median path makes an overload,
/// which cuts the rate to what was delivered.
#[test]
fn it_takes_an_eighth_of_the_rate_at_most() {
    let change = change(&LINK, LINE / 2, 8, 80);
    assert_eq!(change, -125, "per thousand");
}
