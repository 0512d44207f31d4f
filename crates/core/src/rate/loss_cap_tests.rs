use super::*;
use crate::guards::Guards;

const LINE: u64 = 1_250_000_000;
const LINK: Link = Link {
    line: LINE,
    line_known: true,
    base_ns: 12_000,
    base_known: true,
    host_bytes: 0,
    srtt_ns: 14_000,
    burst: 65_536,
    known_ns: 60_000,
    target_ns: 100_000,
    unsure_ns: 0,
    mtu: 4096,
    credited: false,
    guards: Guards::ALL,
};

/// A round of 100 us at `rate` where so many bytes per second pass, and then `permille` at random
/// are lost. Returns the bytes per second that were delivered.
fn round(cap: &mut LossCap, rate: u64, passes: u64, permille: u32, queue_ns: u64) -> u64 {
    let delivered = rate.min(passes) / 1000 * u64::from(1000 - permille);
    let bytes = |rate: u64| rate / 10_000;
    let round = Round {
        queue_ns: Some(queue_ns),
        delivered,
        sent: rate,
        ns: 100_000,
        acked: bytes(delivered),
        missing: bytes(rate - delivered),
        packets: bytes(delivered) / 4096,
        lost_permille: ((rate - delivered) * 1000 / rate) as u32,
        app_limited: false,
        ..Round::default()
    };
    cap.on_round(&LINK, &round, 150_000);
    delivered
}

/// Share delivered of what could have been, and share lost of what was sent, per thousand, in so
/// many rounds of a sender that sends at the line rate or at its cap.
fn run(cap: &mut LossCap, rounds: u64, passes: u64, permille: u32, queue_ns: u64) -> (u64, u64) {
    let (mut sent, mut delivered) = (0, 0);
    for _ in 0..rounds {
        let rate = LINE.min(cap.cap());
        sent += rate;
        delivered += round(cap, rate, passes, permille, queue_ns);
    }
    let could = rounds * passes.min(LINE);
    (delivered * 1000 / could, (sent - delivered) * 1000 / sent)
}

#[test]
fn a_limit_that_drops_is_found_kept_and_tried_again() {
    for part in [2, 10, 20] {
        let mut cap = LossCap::new();
        run(&mut cap, 2_000, LINE / part, 0, 0);
        let mut most = 0;
        for _ in 0..200 {
            let (used, lost) = run(&mut cap, 100, LINE / part, 0, 0);
            assert!(used >= 850 && lost <= 60, "1/{part}: used {used}, lost {lost} per thousand");
            most = most.max(cap.cap());
        }
        assert!(most > LINE / part, "1/{part}: it is never tried again");
        let (used, lost) = run(&mut cap, 20_000, LINE / part, 0, 0);
        assert!(used >= 950 && lost <= 10, "1/{part}: used {used}, lost {lost} per thousand");
    }
}

/// The base RTT is that of small packets, of which a full one takes several by itself: a packet per
/// eight of them is more than the limit lets pass, and half of all packets were lost for ever (seed
/// 2091106 of `srd check --with Crowd`).
#[test]
fn the_least_cap_is_a_packet_per_eight_round_trips_of_full_packets() {
    let link = Link { mtu: 9000, ..LINK };
    let passes = link.rate_min() / 2;
    let mut cap = LossCap::new();
    let after = |cap: &mut LossCap, own_ns: u64| {
        for _ in 0..1_000 {
            let rate = LINE.min(cap.cap());
            let delivered = rate.min(passes);
            let ns = 9000 * 1_000_000_000 / delivered;
            let (acked, missing) = (9000, 9000 * (rate - delivered) / delivered);
            let queue_ns = Some(own_ns);
            let full = true;
            let round =
                Round { queue_ns, own_ns, full, delivered, acked, missing, ns, ..Round::default() };
            cap.on_round(&link, &round, 150_000);
        }
        cap.cap()
    };
    assert!(after(&mut cap, 60_000) < passes * 5 / 4, "{} of {passes}", cap.cap());
    assert!(after(&mut cap, 0) >= link.rate_min(), "where full packets are as quick");
}

#[test]
fn a_limit_that_is_gone_is_soon_left() {
    let mut cap = LossCap::new();
    run(&mut cap, 2_000, LINE / 10, 0, 0);
    assert!(cap.cap() <= LINE / 9, "{}", cap.cap());
    let length = length(&LINK) / 100_000;
    let rounds = (0..400 * length).take_while(|_| {
        run(&mut cap, 1, u64::MAX, 0, 0);
        cap.cap() < LINE
    });
    let lengths = rounds.count() as u64 / length;
    assert!(lengths < 200, "after {lengths} least lengths of an interval");
}

#[test]
fn losses_that_do_not_depend_on_the_rate_are_no_limit() {
    for permille in [10, 49, 70, 150, 300, 500] {
        let mut cap = LossCap::new();
        let (used, _) = run(&mut cap, 20_000, u64::MAX, permille, 0);
        let most = u64::from(1000 - permille);
        assert!(used >= most * 9 / 10, "{permille}: used {used} per thousand");
    }
}

#[test]
fn losses_at_a_queue_begin_no_cap() {
    let mut cap = LossCap::new();
    run(&mut cap, 2_000, LINE / 10, 0, 151_000);
    assert_eq!(cap.cap(), u64::MAX, "delay answers them");
    run(&mut cap, 2_000, LINE / 10, 0, 149_000);
    assert!(cap.cap() < LINE / 8, "delay does not: {}", cap.cap());
}

#[test]
fn rounds_that_say_little_are_not_counted() {
    let mut cap = LossCap::new();
    let lossy = Round {
        queue_ns: Some(0),
        delivered: LINE / 10,
        sent: LINE,
        ns: 10_000_000,
        acked: LINE / 1000,
        missing: LINE / 100,
        packets: 3_000,
        lost_permille: 900,
        app_limited: true,
        ..Round::default()
    };
    for _ in 0..100 {
        assert!(!cap.on_round(&LINK, &lossy, 150_000));
    }
    assert_eq!(cap.cap(), u64::MAX);
    // Credits of the receiver say nothing of a limit on the way to it.
    let credited = Link { credited: true, ..LINK };
    (0..100).for_each(|_| _ = cap.on_round(&credited, &Round { app_limited: false, ..lossy }, 0));
    assert!(cap.cap() < LINE / 8, "{}", cap.cap());
}

#[test]
fn a_pause_keeps_the_cap_and_drops_what_was_measured() {
    let mut cap = LossCap::new();
    run(&mut cap, 2_000, LINE / 10, 0, 0);
    let before = cap.cap();
    cap.on_restart();
    assert_eq!(cap.cap(), before);
    assert!(cap.settling && cap.sums.ns == 0);
}
