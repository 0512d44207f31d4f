//! Receiver credits: the balance of a sender, and the grants of a receiver.

use super::*;
use crate::rate::credit::Credit;
use crate::rate::{Grant, Granter};
use crate::rng::Rng;

const NOW: Time = Time(1_000_000_000);

/// A packet in its turn.
fn arrived(bytes: u32) -> (u32, u32) {
    (bytes, 1)
}

#[test]
fn credit_counts_across_the_wrap_and_ignores_the_past() {
    let mut credit = Credit::default();
    credit.begin(2000);
    credit.on_sent(1500);
    assert_eq!(credit.room(), 500, "enough for one packet more, on credit");
    credit.on_counter(NOW, 100, 1 << 20);
    assert_eq!(credit.room(), 500 + 6400);
    credit.on_counter(NOW, 90, 1 << 20);
    credit.on_counter(NOW, 100, 1 << 20);
    assert_eq!(credit.room(), 6900, "an older counter and a repeated one grant nothing");
    credit.on_counter(NOW, 1_000_000, 10_000);
    assert_eq!(credit.room(), 10_000, "what piles up is bounded");
    credit.on_counter(NOW, 1_000_001, 5_000);
    assert_eq!(credit.room(), 10_000, "a lower limit takes nothing away");
    credit.forget();
    credit.on_sent(1500);
    credit.forget();
    credit.on_counter(NOW, 1_000_101, 1 << 20);
    assert_eq!(credit.room(), 6400 - 1500, "what was sent in advance is not forgotten");
    let mut wrapped = Credit::default();
    wrapped.begin(0);
    for counter in [1 << 30, 1 << 31, 3 << 30, u32::MAX - 9] {
        wrapped.on_counter(NOW, counter, 1 << 20);
        assert_eq!(wrapped.room(), 1 << 20, "as much as may be held");
        wrapped.forget();
    }
    wrapped.on_counter(NOW, 10, 1 << 20);
    assert_eq!(wrapped.room(), 20 * 64, "the counter begins anew");
}

/// Takes all grants due until `end`; returns the bytes for each of `n` peers.
fn granted(granter: &mut Granter, n: usize, end: Time) -> Vec<u64> {
    let mut got = vec![0; n];
    while granter.next() <= end {
        let now = granter.next();
        if let Some(Grant { ctx, bytes, .. }) = granter.poll(now) {
            got[ctx.index()] += u64::from(bytes);
            granter.on_backlog(now, ctx, u32::MAX, arrived(bytes), Span::ZERO);
        }
    }
    got
}

#[test]
fn grants_are_paced_and_equal() {
    let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
    assert_eq!(granter.next(), Time::NEVER);
    for ctx in [0, 3, 1].map(Ctx) {
        granter.on_backlog(Time(0), ctx, u32::MAX, arrived(0), Span::ZERO);
    }
    let got = granted(&mut granter, 4, Time(1_000_000));
    let total: u64 = got.iter().sum();
    let exact = LINE / 1000 / 100 * 98;
    assert!(total.abs_diff(exact) <= 2 * 4 * 4096, "{total} of {exact}");
    assert_eq!(got[2], 0);
    for ctx in [0, 1, 3] {
        assert!(got[ctx].abs_diff(total / 3) <= 4 * 4096, "{got:?}");
    }
}

#[test]
fn grants_end_with_the_backlog_and_with_silence() {
    let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
    granter.on_backlog(Time(0), Ctx(5), 6, arrived(0), Span::ZERO);
    let mut sum = 0;
    while let Some(Grant { ctx: Ctx(5), bytes, .. }) = granter.poll(granter.next()) {
        sum += bytes;
    }
    assert!((6336..6464).contains(&sum), "{sum}: six packets with headers, in units of 64");
    assert_eq!(granter.next(), Time::NEVER);
    // A peer with an unbounded backlog gets grants ahead of its arrivals, up to a limit.
    granter.on_backlog(Time(20_000), Ctx(7), u32::MAX, arrived(0), Span::ZERO);
    let mut ahead = 0;
    while let Some(Grant { ctx: Ctx(7), bytes, .. }) = granter.poll(granter.next()) {
        ahead += u64::from(bytes);
    }
    assert!(ahead <= LINE / 5000 + 4 * 1056 + 64, "{ahead} bytes ahead of a silent peer");
    granter.on_backlog(Time(9_000_000), Ctx(7), 100, arrived(0), Span::ZERO);
    granter.forget(Ctx(7));
    granter.forget(Ctx(70_000));
    assert_eq!(granter.poll(Time(9_000_000)), None, "a peer forgotten gets nothing");
}

/// However many peers say that they have much to send: until they send, all of them together hold
/// what one may hold. Who has sent may hold as much again meanwhile.
#[test]
fn claims_alone_hold_no_more_than_one_peer() {
    let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
    let grants = |g: &mut Granter, now: Time| -> u64 {
        core::iter::from_fn(|| g.poll(now.max(g.next()))).map(|g| u64::from(g.bytes)).sum()
    };
    let (one, grant) = (LINE / 5000, 4 * 1064);
    (0..100)
        .for_each(|ctx| granter.on_backlog(Time(0), Ctx(ctx), u32::MAX, arrived(0), Span::ZERO));
    let all = grants(&mut granter, Time(0));
    assert!((one - grant..=one + grant).contains(&all), "{all} for claims, {one} for a peer");
    let now = Time(300_000);
    (0..100).for_each(|ctx| granter.on_backlog(now, Ctx(ctx), u32::MAX, arrived(0), Span::ZERO));
    assert_eq!(grants(&mut granter, now), 0, "the claims are repeated");
    granter.on_backlog(now, Ctx(100), u32::MAX, arrived(50_000), Span::ZERO);
    let sender = grants(&mut granter, Time(400_000));
    assert!((50_000..50_000 + grant).contains(&sender), "{sender} for who sent 50,000 bytes");
    // A peer that is gone holds nothing, nor does one whose grants were forgotten in a silence.
    (0..50).for_each(|ctx| granter.forget(Ctx(ctx)));
    let now = Time(9_000_000);
    (50..100).for_each(|ctx| granter.on_backlog(now, Ctx(ctx), u32::MAX, arrived(0), Span::ZERO));
    let again = grants(&mut granter, now);
    assert!((one - grant..=one + grant).contains(&again), "{again} for the claims of the rest");
}

#[test]
fn grants_that_a_silent_sender_lost_are_given_again() {
    let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
    granter.on_backlog(Time(0), Ctx(0), 20, arrived(0), Span::ZERO);
    while granter.poll(granter.next()).is_some() {}
    // Most of it did not fit into the sender's window. It speaks again as patience has it.
    let later = Time(7_000_000);
    granter.on_backlog(later, Ctx(0), 10, arrived(1056), Span::ZERO);
    assert!(granter.poll(later.max(granter.next())).is_some(), "nothing for ten packets more");
}

#[test]
fn a_sender_without_credit_waits_and_recovers() {
    let run = |granted: bool| {
        let mut m = model(1, LINE);
        m.senders[0].context.credits_begin();
        m.senders[0].credited = true;
        for i in 1..=100u32 {
            // Half of what the line could carry.
            let counter = if granted { i * 10_000 * (LINE / GB) as u32 / 2 / 64 } else { 0 };
            let now = m.now;
            m.senders[0].context.on_credit(now, counter, 1);
            m.run(Span(10_000));
        }
        m.senders[0].delivered * 100 / (LINE / 1000)
    };
    // No grants come: one first window is sent each time that nothing was in flight for two RTTs.
    let free = run(false);
    assert!((10..45).contains(&free), "{free} % of the line without any credit");
    let granted = run(true);
    assert!((45..60).contains(&granted), "{granted} % of the line with credits for a half");
}

/// Who waits for a grant is not silent: with many peers or on a slow line, a turn lasts longer than
/// the time after which unused grants are forgotten. Before, each grant that came late was dropped
/// when the next packet left, and on a line of 200 Mb/s a flow took four times as long.
#[test]
fn waiting_for_a_turn_is_no_silence() {
    let silence = Span::from_ms(5);
    let mut credit = Credit::default();
    credit.begin(1000);
    credit.on_sent(1500);
    let later = NOW + silence;
    credit.on_counter(later, 100, 1 << 20);
    credit.on_silence(later, silence, 1000, LINE, BASE);
    assert_eq!(credit.room(), 6400 - 500, "it came just now");
    credit.on_silence(later + Span::from_ms(2), silence, 1000, LINE, BASE);
    assert_eq!(credit.room(), 0, "it was not used for two milliseconds");
    // The receiver judges alike.
    let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
    granter.on_backlog(NOW, Ctx(0), 100, arrived(0), Span::ZERO);
    let later = NOW + silence;
    let first = granter.poll(later).expect("it wants credit");
    assert_eq!(granter.ahead(Ctx(0)), first.bytes);
    let soon = later + Span::from_us(100);
    granter.on_backlog(soon, Ctx(0), 96, arrived(1064), Span::ZERO);
    assert_eq!(granter.ahead(Ctx(0)), first.bytes - 1064, "what it holds is not forgotten");
    assert!(granter.poll(soon.max(granter.next())).is_some(), "and it gets more");
}

/// A packet of 8,936 bytes takes 357 us at 200 Mb/s: a sender of several, which paces them at a
/// part of the line, uses its grants later than a fast one.
#[test]
fn slow_lines_have_more_time_to_use_grants() {
    let slow = 25_000_000;
    let mut credit = Credit::default();
    credit.on_counter(NOW, 100, 1 << 20);
    let gap = Span::from_ms(4);
    credit.on_silence(NOW + gap, gap, 8936, slow, BASE);
    assert_eq!(credit.room(), 6400, "a twelfth of the line is no silence");
    let gap = Span::from_ms(6);
    credit.on_silence(NOW + gap, gap, 8936, slow, BASE);
    assert_eq!(credit.room(), 0, "a pause is one");
}

/// What a turn of the engine comes too late is granted at once, within bounds that follow from the
/// noise of the host: without, hosts that look every 25 us lose a part of their line.
#[test]
fn late_turns_lose_no_bandwidth() {
    let granted_in_ms = |noise_ns: u32, late: Span| {
        let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
        granter.noise_set(noise_ns);
        (0..2).for_each(|ctx| granter.on_backlog(NOW, Ctx(ctx), u32::MAX, arrived(0), Span::ZERO));
        let mut bytes = 0;
        let mut now = NOW;
        while now < NOW + Span::from_ms(1) {
            now = now.max(granter.next()) + late;
            while let Some(grant) = granter.poll(now) {
                bytes += u64::from(grant.bytes);
                granter.on_backlog(now, grant.ctx, u32::MAX, arrived(grant.bytes), Span::ZERO);
            }
        }
        bytes * 100 / (LINE / 1000)
    };
    assert!(granted_in_ms(0, Span::ZERO) >= 97, "a card is never late");
    assert!(granted_in_ms(0, Span::from_us(25)) < 50, "without a measured noise lateness costs");
    assert!(granted_in_ms(25_000, Span::from_us(25)) >= 95, "with it, it does not");
    let long = granted_in_ms(25_000, Span::from_ms(3));
    assert!(long <= 60, "{long} % of 1 ms are granted at once after 3 ms");
}

/// A peer that holds much learns of more with its next acknowledgment, and one that holds little at
/// once.
#[test]
fn grants_to_peers_that_hold_much_are_not_urgent() {
    let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
    granter.on_backlog(NOW, Ctx(0), u32::MAX, arrived(0), Span::ZERO);
    let urgent: Vec<bool> =
        core::iter::from_fn(|| granter.poll(granter.next().max(NOW))).map(|g| g.urgent).collect();
    assert!(urgent[0] && urgent.len() > 4, "{urgent:?}");
    assert!(urgent[1..].iter().all(|u| !u), "it holds a grant already: {urgent:?}");
}

/// The only sender is never short of credits; with a second one, grants are paced again.
#[test]
fn a_lone_peer_has_two_round_trips_in_hand() {
    let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
    let per_rtt = LINE * BASE.0 / 1_000_000_000;
    let grants = |g: &mut Granter, now: Time| -> u64 {
        core::iter::from_fn(|| g.poll(now)).map(|g| u64::from(g.bytes)).sum()
    };
    granter.on_backlog(Time(0), Ctx(0), u32::MAX, arrived(0), Span::ZERO);
    assert!(grants(&mut granter, Time(0)) < per_rtt, "others may just be starting");
    granter.on_backlog(Time(BASE.0), Ctx(0), u32::MAX, arrived(0), Span::ZERO);
    let lone = grants(&mut granter, Time(BASE.0));
    assert!((per_rtt..2 * per_rtt + 20_000).contains(&lone), "{lone}");

    let now = Time(2 * BASE.0);
    granter.on_backlog(now, Ctx(1), u32::MAX, arrived(0), Span::ZERO);
    granter.on_backlog(now, Ctx(0), u32::MAX, arrived(100_000), Span::ZERO);
    assert!(grants(&mut granter, now) < 20_000, "paced: one grant at a time");
}

/// Who sends over long round trips holds grants for two of them, once it has sent as much, and
/// keeps them for four. Before, 200 us of the line were the most, a fifth of it at 1 ms.
#[test]
fn long_round_trips_are_granted_ahead() {
    let per_ms = LINE / 1000;
    let ahead = |echo: Span| {
        let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
        granter.on_backlog(NOW, Ctx(0), u32::MAX, arrived(100_000_000), echo);
        let late = NOW + Span::from_ms(3);
        while granter.next() < late && granter.poll(granter.next().max(NOW)).is_some() {}
        granter.on_backlog(late, Ctx(0), u32::MAX, arrived(0), echo);
        u64::from(granter.ahead(Ctx(0))) * 10 / per_ms
    };
    assert!((19..=20).contains(&ahead(Span::from_ms(1))), "two round trips");
    assert_eq!(ahead(Span::from_us(10)), 0, "forgotten");
    // A claim alone holds no more than before, whatever it says of round trips.
    let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
    granter.on_backlog(NOW, Ctx(0), u32::MAX, arrived(0), Span::from_ms(100));
    while granter.poll(granter.next().max(NOW)).is_some() {}
    assert!(u64::from(granter.ahead(Ctx(0))) <= per_ms / 5 + 4 * 4200, "200 us");
}

/// The receiver counts what it granted until it arrives, so a packet that was lost may be sent
/// again without another grant: else a sender with little to send waits for one that does not
/// come. What needed no grant, and what a queue dropped, waits for its turn.
#[test]
fn lost_packets_keep_their_grant() {
    let mut credit = Credit::default();
    credit.begin(2048);
    (0..2).for_each(|_| credit.on_sent(1024));
    credit.on_counter(NOW, 64, 1 << 20);
    (0..4).for_each(|_| credit.on_sent(1024));
    assert_eq!(credit.room(), 0);
    credit.on_acked(1024);
    credit.on_lost(1024, false);
    assert_eq!(credit.room(), 0, "the first window needed no grant");
    credit.on_lost(1024, true);
    assert_eq!(credit.room(), 0, "a queue dropped it");
    credit.on_lost(1024, false);
    assert_eq!(credit.room(), 1024, "a path lost it");
    let mut off = Credit::default();
    off.on_lost(1024, false);
    assert_eq!(off.room(), 0);
}

/// Packets that are lost were sent: what they were granted is used up, and is granted anew to
/// whoever still has data to send. Otherwise a sender through a full core soon had a fifth of what
/// it may have.
#[test]
fn lost_packets_have_used_up_their_grants() {
    let mut granter = Granter::new(1_250_000_000, 4096, Span::from_us(10), 0);
    (0..4).for_each(|_| granter.on_backlog(NOW, Ctx(0), 1000, arrived(4096), Span::ZERO));
    let mut now = NOW;
    while granter.next() < Time::NEVER {
        now = now.max(granter.next());
        granter.poll(now);
    }
    let full = granter.ahead(Ctx(0));
    assert!(full > 40 * 4096);
    // Every second packet is lost; the last three arrive in reverse order.
    for passed in [2, 2, 2, 4, 0, 0] {
        granter.on_backlog(now, Ctx(0), 1000, (4096, passed), Span::ZERO);
    }
    assert_eq!(granter.ahead(Ctx(0)), full - 10 * 4096);
}

/// A peer chooses its transmission numbers, and may leave some out. Whoever claims to have sent
/// much holds no more than whoever did not claim it.
#[test]
fn numbers_that_are_left_out_earn_nothing() {
    const ROUNDS: u32 = 200;
    let held = |passed: u32| {
        let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
        let (mut now, mut bytes) = (NOW, 0);
        for _ in 0..ROUNDS {
            for ctx in (0..12).map(Ctx) {
                granter.on_backlog(now, ctx, u32::MAX, (64, passed), Span::ZERO);
            }
            let end = now + Span::from_us(50);
            while granter.next() <= end {
                now = now.max(granter.next());
                bytes += granter.poll(now).map_or(0, |g| g.bytes);
            }
            now = end;
        }
        bytes
    };
    // What arrived is believed once more.
    let (honest, liar) = (held(1), held(1000));
    assert!(liar <= honest + 12 * ROUNDS * 64, "{liar} bytes, {honest} without");
    let line = LINE * 50 * u64::from(ROUNDS) / 1_000_000;
    assert!(u64::from(honest) < line / 4, "{honest} bytes, and the line carries {line}");
}

/// Small messages among large ones, in any order: what is counted follows what was sent.
#[test]
fn overtaken_packets_count_once() {
    let mut rng = Rng::from_seed(7);
    let mut granter = Granter::new(12_500_000_000, 4096, Span::from_us(10), 0);
    let mut packets: Vec<u32> = (0..400).map(|_| [0, 100, 4096][rng.below(3) as usize]).collect();
    (packets[0], packets[399]) = (4096, 4096);
    for _ in 0..1000 {
        granter.on_backlog(NOW, Ctx(0), u32::MAX, arrived(4096), Span::ZERO);
    }
    let mut now = NOW;
    while granter.ahead(Ctx(0)) < 2_000_000 {
        now = now.max(granter.next());
        granter.poll(now);
    }
    let before = granter.ahead(Ctx(0));
    let mut order: Vec<u32> = (0..400).collect();
    order.sort_by_cached_key(|n| n + rng.below(40));
    let mut newest = -1;
    for n in order {
        let passed = u32::try_from(i64::from(n) - newest).unwrap_or(0);
        newest = newest.max(n.into());
        let arrival = (packets[n as usize], passed);
        granter.on_backlog(now, Ctx(0), u32::MAX, arrival, Span::ZERO);
    }
    let (sent, counted) = (packets.iter().sum::<u32>(), before - granter.ahead(Ctx(0)));
    assert!(counted.abs_diff(sent) < sent / 10, "{counted} of {sent}");
}
