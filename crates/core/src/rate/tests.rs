//! Tests of the rate control in a small model of a network, and of its parts.

mod crowd;
mod marks;
mod model;
mod network;
mod overload;
mod starts;
mod unknown;

use super::credit::Credit;
use super::pacing::Pacing;
use super::srd::SrdRate;
use super::{Grant, Granter, Link, RateControl as _, Round, RoundMeter};
use crate::config::{EngineConfig, PathPolicy, RatePolicy};
use crate::guards::Guards;
use crate::ids::Ctx;
use crate::time::{Span, Time};
use core::net::{IpAddr, Ipv4Addr};
use model::{MTU, Model};
use srd_wire::HEADER_BYTES;

const GB: u64 = 1_000_000_000;
const LINE: u64 = 12_500_000_000;
const BASE: Span = Span::from_us(10);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// `n` senders after a handshake each, with half a microsecond of noise.
fn model(n: usize, rate: u64) -> Model {
    let mut m = Model::new(n, LINE, rate, BASE, 7);
    m.noise = Span(500);
    m.handshakes();
    m
}

/// Runs; returns delivered bytes over what the queue could have moved, in percent.
fn used_percent(m: &mut Model, rate: u64, span: Span) -> u64 {
    m.counters_reset();
    m.run(span);
    let delivered: u64 = m.senders.iter().map(|s| s.delivered).sum();
    delivered * 100 / (rate / 1_000_000 * (span.0 / 1000))
}

/// The largest distance of a sender from the equal share, in percent.
fn unfair_percent(m: &Model) -> u64 {
    let each = m.senders.iter().map(|s| s.delivered);
    let mean = each.clone().sum::<u64>() / m.senders.len() as u64;
    each.map(|d| d.abs_diff(mean) * 100 / mean).max().unwrap_or(0)
}

#[test]
fn one_sender_fills_any_bottleneck_with_a_short_queue() {
    for rate in [LINE, 5 * GB, GB] {
        let mut m = model(1, rate);
        m.run(Span::from_ms(2));
        let used = used_percent(&mut m, rate, Span::from_ms(5));
        assert!(used >= 95, "{used} % of {rate}");
        // Twice the target of 7.5 us, as a rate of a twelfth tolerates, and what overshoots.
        assert!(m.queue_ns_max < 30_000, "queue of {} ns at {rate}", m.queue_ns_max);
        assert_eq!(m.senders[0].losses, 0);
    }
}

#[test]
fn senders_share_equally() {
    for (n, rate) in [(2, 5 * GB), (2, 12 * GB), (4, 12 * GB), (16, 12 * GB)] {
        let mut m = model(n, rate);
        m.run(Span::from_ms(2));
        let used = used_percent(&mut m, rate, Span::from_ms(5));
        assert!(used >= 95, "{n} senders use {used} %");
        assert!(unfair_percent(&m) <= 10, "{n} senders differ by {} %", unfair_percent(&m));
        assert!(m.queue_ns_max < 25_000, "queue of {} ns with {n} senders", m.queue_ns_max);
    }
}

/// A link that carries twelve times as much again is in use after 25 round trips: without a queue
/// the steps grow. In steps of one size it would take 45.
#[test]
fn a_link_that_widens_is_soon_used() {
    let mut m = model(1, GB);
    m.run(Span::from_ms(2));
    m.rate_set(LINE);
    m.run(Span::from_us(250));
    let used = used_percent(&mut m, LINE, Span::from_us(100));
    assert!(used >= 95, "{used} % of the wider link");
}

#[test]
fn a_late_comer_gets_its_share() {
    let mut m = model(2, 5 * GB);
    m.senders[1].active = false;
    m.run(Span::from_ms(2));
    m.start(1);
    m.run(Span::from_ms(3));
    assert!(used_percent(&mut m, 5 * GB, Span::from_ms(3)) >= 95);
    assert!(unfair_percent(&m) <= 10, "{} %", unfair_percent(&m));
}

#[test]
fn nobody_starves_where_the_least_rtt_is_never_seen() {
    let mut m = Model::new(2, LINE, 5 * GB, BASE, 7);
    m.run(Span::from_ms(2));
    assert!(used_percent(&mut m, 5 * GB, Span::from_ms(5)) >= 95);
    assert!(unfair_percent(&m) <= 40, "{} %", unfair_percent(&m));
}

#[test]
fn a_slow_path_does_not_slow_the_connection() {
    for slow in [1, 16] {
        let mut m = model(1, LINE);
        m.path_extra[..slow].fill(Span::from_us(50));
        m.run(Span::from_ms(3));
        let used = used_percent(&mut m, LINE, Span::from_ms(3));
        assert!(used >= 95, "{used} % with {slow} slow paths");
        let rate = m.senders[0].context.rate_bytes_per_sec();
        assert!(rate > LINE / 10 * 9, "rate {rate} with {slow} slow paths");
    }
}

#[test]
fn a_minority_of_late_paths_does_not_slow_even_those_who_keep_using_them() {
    let run = |late: usize| {
        let mut config = EngineConfig::simulated(LOCAL, 0, MTU as u16, LINE, BASE);
        config.path.policy = PathPolicy::Oblivious;
        let mut m = Model::with_config(1, &config, LINE, BASE, 7);
        m.path_extra[..late].fill(Span::from_us(18));
        m.run(Span::from_ms(5));
        m.senders[0].context.rate_bytes_per_sec()
    };
    assert!(run(16) > LINE / 10 * 9, "{}", run(16));
    assert!(run(60) < LINE / 2, "{}", run(60));
}

/// On a slow wire the time that a full packet takes is many targets above the least RTT, which a
/// short packet had. Losses took the rate to its least; when they have ended it must not stay.
#[test]
fn a_packets_own_time_on_the_wire_does_not_hold_the_rate_down() {
    let link = Link {
        line: 125_000_000,
        line_known: true,
        base_ns: 8_300,
        base_known: true,
        host_bytes: 0,
        srtt_ns: 19_600,
        burst: 1024,
        known_ns: 0,
        target_ns: 1_000,
        mtu: 1024,
        credited: false,
        guards: Guards::ALL,
    };
    let round = |lost_permille| Round {
        queue_ns: Some(11_300),
        delivered: 1_000_000,
        sent: 1_000_000,
        packets: 20,
        lost_permille,
        ..Round::default()
    };
    let mut rate = SrdRate::new(link.line);
    for _ in 0..100 {
        rate.on_round(&link, &round(80));
    }
    assert_eq!(rate.rate(), link.rate_min());
    for _ in 0..100 {
        rate.on_round(&link, &round(0));
    }
    let packet = Link::rate(1024, 19_600);
    assert_eq!(rate.rate(), packet, "one packet per round trip, which no queue forbids");
}

#[test]
fn delay_without_loss_leaves_a_burst_per_round_trip() {
    let link = Link {
        line: LINE,
        line_known: true,
        base_ns: 20_000,
        base_known: true,
        host_bytes: 0,
        srtt_ns: 400_000,
        burst: 65_536,
        known_ns: 0,
        target_ns: 100_000,
        mtu: 1400,
        credited: false,
        guards: Guards::ALL,
    };
    let late = |lost_permille| Round {
        queue_ns: Some(380_000),
        delivered: 1000,
        sent: 1000,
        packets: 20,
        lost_permille,
        ..Round::default()
    };
    let mut floor = SrdRate::new(LINE);
    for _ in 0..10 {
        floor.on_round(&link, &Round { queue_ns: Some(0), ..late(0) });
    }
    for _ in 0..200 {
        floor.on_round(&link, &late(0));
    }
    assert_eq!(floor.rate(), Link::rate(65_536, 400_000));
    assert!(floor.inflight_max(&link) >= 65_536);
    for _ in 0..200 {
        floor.on_round(&link, &late(60));
    }
    assert_eq!(floor.rate(), link.rate_min(), "losses prove the queue");
}

#[test]
fn black_holes_are_retired_and_return() {
    let mut m = Model::new(1, LINE, LINE, BASE, 7);
    m.path_dead[3..19].fill(true);
    // Clean paths are recycled for as long as data flows; after a pause all get their turn again.
    for _ in 0..24 {
        m.run(Span(200_000));
        m.senders[0].active = false;
        m.run(Span(200_000));
        m.start(0);
    }
    assert_eq!(m.senders[0].live(), 48);
    let used = used_percent(&mut m, LINE, Span::from_ms(2));
    assert!(used >= 95, "{used} % with a quarter of the paths dead");
    let losses = m.senders[0].losses;
    m.run(Span::from_ms(20));
    assert_eq!(m.senders[0].losses, losses, "data goes to dead paths");
    let mut change = 0;
    while let Some(c) = m.senders[0].context.change_take() {
        assert!((3..19).contains(&c.path) && !c.live, "{c:?}");
        change += 1;
    }
    assert_eq!(change, 16);
    m.path_dead.fill(false);
    m.run(Span::from_ms(120));
    assert_eq!(m.senders[0].live(), 64);
    assert!(m.senders[0].context.change_take().is_some_and(|c| c.live));
}

#[test]
fn random_loss_keeps_paths_and_rate() {
    let mut m = model(1, LINE);
    m.loss_permille = 10;
    let mut least = 64;
    for _ in 0..50 {
        m.run(Span(200_000));
        least = least.min(m.senders[0].live());
    }
    assert!(m.senders[0].losses > 100, "the model lost {}", m.senders[0].losses);
    assert!(least * 10 >= 64 * 9, "{least} paths live");
    let used = used_percent(&mut m, LINE, Span::from_ms(5));
    assert!(used >= 95, "{used} % under 1 % loss");
}

#[test]
fn silence_of_all_paths_keeps_them() {
    let mut m = model(1, LINE);
    m.run(Span::from_ms(1));
    m.silent = true;
    m.run(Span(30_000));
    m.run(Span::from_ms(50));
    assert_eq!(m.senders[0].live(), 64, "no path is to blame");
    assert_eq!(m.senders[0].context.probe_next(), Time::NEVER);
    m.silent = false;
    let now = m.now;
    m.senders[0].context.awake(now).resumed();
    m.run(Span::from_ms(120));
    assert!(used_percent(&mut m, LINE, Span::from_ms(3)) >= 95);
    assert_eq!(m.senders[0].live(), 64);
}

#[test]
fn silence_retires_nothing_even_before_it_is_noticed() {
    let mut m = model(1, LINE);
    m.run(Span::from_ms(1));
    m.silent = true;
    m.run(Span::from_ms(20));
    assert!(m.senders[0].losses > 20);
    assert!(m.senders[0].live() >= 58, "{} live", m.senders[0].live());
}

#[test]
fn noise_of_hosts_does_not_collapse_the_rate() {
    let mut config = EngineConfig::sockets(LOCAL, 0, MTU as u16);
    // What follows from as much noise once it was measured (rule CC-28).
    config.rate.target_min = Span::from_us(100);
    for (noise_us, least) in [(50, 95), (100, 70), (500, 10)] {
        let mut m = Model::with_config(1, &config, 2 * GB, Span::from_us(20), 7);
        m.noise = Span::from_us(noise_us);
        m.run(Span::from_ms(30));
        let used = used_percent(&mut m, 2 * GB, Span::from_ms(30));
        assert!(used >= least, "{used} % with {noise_us} us of noise");
    }
}

#[test]
fn a_line_rate_that_is_not_there_is_noticed_in_the_first_window() {
    // 1 Gb/s where 100 Gb/s are configured: one RTT of the first window alone takes 8 ms.
    let config = EngineConfig::sockets(LOCAL, 0, MTU as u16);
    let mut m = Model::with_config(1, &config, GB / 8, Span::from_us(20), 7);
    m.run(Span::from_ms(2));
    let rate = m.senders[0].context.rate_bytes_per_sec();
    assert!(rate < LINE / 4, "{rate}");
    m.run(Span::from_ms(30));
    let used = used_percent(&mut m, GB / 8, Span::from_ms(30));
    assert!(used >= 90, "{used} %");
    assert!(m.queue_ns_max < 2_000_000, "queue of {} ns", m.queue_ns_max);
}

#[test]
fn heavy_incast_shares_a_shallow_buffer() {
    let mut m = model(64, 12 * GB);
    m.run(Span::from_ms(5));
    let losses = |m: &Model| m.senders.iter().map(|s| s.losses).sum::<u64>();
    let before = losses(&m);
    let used = used_percent(&mut m, 12 * GB, Span::from_ms(5));
    assert!(used >= 95, "{used} %");
    let sent = 12 * GB / 200 / u64::from(MTU);
    assert!((losses(&m) - before) * 100 < sent, "{} of {sent} lost", losses(&m) - before);
}

#[test]
fn every_policy_carries_traffic() {
    use PathPolicy::{Ecmp, Oblivious, RttP2c, Srd};
    for policy in [Srd, Oblivious, Ecmp, RttP2c] {
        let mut config = EngineConfig::simulated(LOCAL, 0, MTU as u16, LINE, BASE);
        config.path.policy = policy;
        let mut m = Model::with_config(2, &config, LINE, BASE, 7);
        m.run(Span::from_ms(2));
        let used = used_percent(&mut m, LINE, Span::from_ms(2));
        assert!(used >= 90, "{used} % with {policy:?}");
    }
}

#[test]
fn a_fixed_rate_is_kept_exactly() {
    let mut config = EngineConfig::simulated(LOCAL, 0, MTU as u16, LINE, BASE);
    config.rate.policy = RatePolicy::Fixed;
    config.rate.rate_fixed_bytes_per_sec = 3 * GB;
    let mut m = Model::with_config(1, &config, LINE, BASE, 7);
    m.run(Span::from_ms(1));
    m.counters_reset();
    m.run(Span::from_ms(10));
    let expected = 3 * GB / 100;
    assert!(m.senders[0].delivered.abs_diff(expected) <= 2 * u64::from(MTU));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut m = model(4, 5 * GB);
        m.loss_permille = 5;
        m.run(Span::from_ms(3));
        m.senders.iter().map(|s| (s.delivered, s.losses)).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn pacing_is_exact_over_a_second() {
    // 1400 bytes at 100 Gb/s are 112 ns; 1437 are 114.96 ns: rounding would show.
    for (bytes, rate) in [(1400u32, LINE), (1437, LINE), (9000, 1_250_000_123), (1400, 3)] {
        let mut pacing = Pacing::new(Time(0), rate, 2 * bytes, bytes as u16);
        let packets = (rate / u64::from(bytes)).clamp(2, 100_000);
        for _ in 0..packets {
            let now = pacing.next();
            pacing.on_sent(now, bytes);
        }
        let exact = u128::from(packets) * u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let off = u128::from(pacing.next().0).abs_diff(exact);
        assert!(off * 1_000_000 <= exact.max(1_000_000), "{off} ns off at {rate}");
    }
}

#[test]
fn pacing_forgives_a_late_sender_only_its_allowance() {
    let mut pacing = Pacing::new(Time(0), GB, 10_000, 1000);
    let late = Time(1_000_000);
    let mut sent = 0;
    while pacing.next() <= late {
        pacing.on_sent(late, 1000);
        sent += 1;
    }
    assert_eq!(sent, 10, "burst_bytes leave at once");
    assert_eq!(pacing.burst_bytes(), 10_000, "20 us at 1 GB/s are more than the allowance");
    pacing.rate_set(GB / 10, 10_000, 1000);
    assert_eq!(pacing.burst_bytes(), 2000, "a burst lasts 20 us");
}

#[test]
fn a_round_measures_between_acknowledgments() {
    let mut meter = RoundMeter::new(Time(0));
    let step = |meter: &mut RoundMeter, at: u64| {
        meter.on_sent(Time(at), 1000, LINE);
        meter.on_acked(1000, Time(at.saturating_sub(5000)));
        meter.on_ack_end(Time(at), false, 1000, Span::from_secs(1), LINE)
    };
    let rounds: Vec<_> = (5..40).filter_map(|i| step(&mut meter, i * 1000)).collect();
    assert!(rounds.len() >= 5, "{} rounds of 5 us in 35 us", rounds.len());
    for round in &rounds {
        assert_eq!(round.delivered, GB, "1000 bytes each us");
        assert_eq!(round.lost_permille, 0);
    }
    meter.on_lost(1000, true);
    let lossy = (40..50).find_map(|i| step(&mut meter, i * 1000)).expect("a round ends");
    assert!(lossy.lost_permille > 100, "{}", lossy.lost_permille);
}

#[test]
fn credit_counts_across_the_wrap_and_ignores_the_past() {
    let mut credit = Credit::default();
    credit.begin(2000);
    credit.on_sent(1500);
    assert_eq!(credit.room(), 500, "enough for one packet more, on credit");
    credit.on_counter(100, 1 << 20);
    assert_eq!(credit.room(), 500 + 6400);
    credit.on_counter(90, 1 << 20);
    credit.on_counter(100, 1 << 20);
    assert_eq!(credit.room(), 6900, "an older counter and a repeated one grant nothing");
    credit.on_counter(1_000_000, 10_000);
    assert_eq!(credit.room(), 10_000, "what piles up is bounded");
    credit.on_counter(1_000_001, 5_000);
    assert_eq!(credit.room(), 10_000, "a lower limit takes nothing away");
    credit.forget();
    credit.on_sent(1500);
    credit.forget();
    credit.on_counter(1_000_101, 1 << 20);
    assert_eq!(credit.room(), 6400 - 1500, "what was sent in advance is not forgotten");
    let mut wrapped = Credit::default();
    wrapped.begin(0);
    for counter in [1 << 30, 1 << 31, 3 << 30, u32::MAX - 9, 10] {
        wrapped.on_sent(1 << 20);
        wrapped.on_counter(counter, 1 << 40);
    }
    assert_eq!(wrapped.room(), ((1u64 << 32) + 10) * 64 - (5 << 20));
}

/// Takes all grants due until `end`; returns the bytes for each of `n` peers.
fn granted(granter: &mut Granter, n: usize, end: Time) -> Vec<u64> {
    let mut got = vec![0; n];
    while granter.next() <= end {
        let now = granter.next();
        if let Some(Grant { ctx, bytes }) = granter.poll(now) {
            got[ctx.index()] += u64::from(bytes);
            granter.on_backlog(now, ctx, u32::MAX, bytes);
        }
    }
    got
}

#[test]
fn grants_are_paced_and_equal() {
    let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
    assert_eq!(granter.next(), Time::NEVER);
    for ctx in [0, 3, 1].map(Ctx) {
        granter.on_backlog(Time(0), ctx, u32::MAX, 0);
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
    granter.on_backlog(Time(0), Ctx(5), 6, 0);
    let mut sum = 0;
    while let Some(Grant { ctx: Ctx(5), bytes }) = granter.poll(granter.next()) {
        sum += bytes;
    }
    assert!((6336..6464).contains(&sum), "{sum}: six packets with headers, in units of 64");
    assert_eq!(granter.next(), Time::NEVER);
    // A peer with an unbounded backlog gets grants ahead of its arrivals, up to a limit.
    granter.on_backlog(Time(20_000), Ctx(7), u32::MAX, 0);
    let mut ahead = 0;
    while let Some(Grant { ctx: Ctx(7), bytes }) = granter.poll(granter.next()) {
        ahead += u64::from(bytes);
    }
    assert!(ahead <= LINE / 5000 + 4 * 1056 + 64, "{ahead} bytes ahead of a silent peer");
    granter.on_backlog(Time(9_000_000), Ctx(7), 100, 0);
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
    (0..100).for_each(|ctx| granter.on_backlog(Time(0), Ctx(ctx), u32::MAX, 0));
    let all = grants(&mut granter, Time(0));
    assert!((one - grant..=one + grant).contains(&all), "{all} for claims, {one} for a peer");
    let now = Time(300_000);
    (0..100).for_each(|ctx| granter.on_backlog(now, Ctx(ctx), u32::MAX, 0));
    assert_eq!(grants(&mut granter, now), 0, "the claims are repeated");
    granter.on_backlog(now, Ctx(100), u32::MAX, 50_000);
    let sender = grants(&mut granter, Time(400_000));
    assert!((50_000..50_000 + grant).contains(&sender), "{sender} for who sent 50,000 bytes");
    // A peer that is gone holds nothing, nor does one whose grants were forgotten in a silence.
    (0..50).for_each(|ctx| granter.forget(Ctx(ctx)));
    let now = Time(9_000_000);
    (50..100).for_each(|ctx| granter.on_backlog(now, Ctx(ctx), u32::MAX, 0));
    let again = grants(&mut granter, now);
    assert!((one - grant..=one + grant).contains(&again), "{again} for the claims of the rest");
}

#[test]
fn grants_that_a_silent_sender_lost_are_given_again() {
    let mut granter = Granter::new(LINE, 1000, BASE, HEADER_BYTES);
    granter.on_backlog(Time(0), Ctx(0), 20, 0);
    while granter.poll(granter.next()).is_some() {}
    // Most of it did not fit into the sender's window. It speaks again as patience has it.
    let later = Time(7_000_000);
    granter.on_backlog(later, Ctx(0), 10, 1056);
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
            m.senders[0].context.on_credit(counter);
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

/// The only sender is never short of credits; with a second one, grants are paced again.
#[test]
fn a_lone_peer_has_two_round_trips_in_hand() {
    let mut granter = Granter::new(LINE, 4096, BASE, HEADER_BYTES);
    let per_rtt = LINE * BASE.0 / 1_000_000_000;
    let grants = |g: &mut Granter, now: Time| -> u64 {
        core::iter::from_fn(|| g.poll(now)).map(|g| u64::from(g.bytes)).sum()
    };
    granter.on_backlog(Time(0), Ctx(0), u32::MAX, 0);
    assert!(grants(&mut granter, Time(0)) < per_rtt, "others may just be starting");
    granter.on_backlog(Time(BASE.0), Ctx(0), u32::MAX, 0);
    let lone = grants(&mut granter, Time(BASE.0));
    assert!((per_rtt..2 * per_rtt + 20_000).contains(&lone), "{lone}");

    let now = Time(2 * BASE.0);
    granter.on_backlog(now, Ctx(1), u32::MAX, 0);
    granter.on_backlog(now, Ctx(0), u32::MAX, 100_000);
    assert!(grants(&mut granter, now) < 20_000, "paced: one grant at a time");
}

/// With credits in force the queue is the fabric's, and losses without it are some path's.
#[test]
fn credited_senders_tolerate_the_queue_of_the_fabric() {
    let link = |credited| Link {
        line: LINE,
        line_known: true,
        base_ns: 14_000,
        base_known: true,
        host_bytes: 0,
        srtt_ns: 28_000,
        burst: 8192,
        known_ns: 0,
        target_ns: 10_000,
        mtu: 4096,
        credited,
        guards: Guards::ALL,
    };
    let round = |queue, lost_permille| Round {
        queue_ns: Some(queue),
        delivered: LINE / 2,
        sent: LINE,
        packets: 40,
        lost_permille,
        ..Round::default()
    };
    let after = |credited, queue, lost| {
        let mut rate = SrdRate::new(LINE);
        rate.on_round(&link(credited), &round(queue, lost));
        rate.rate()
    };
    assert!(after(false, 20_000, 0) < LINE);
    assert_eq!(after(true, 20_000, 0), LINE);
    assert!(after(true, 40_000, 0) < LINE, "up to a point");
    assert_eq!(after(false, 8_000, 100), LINE / 2, "overload: what was delivered");
    assert!(after(true, 20_000, 100) > LINE / 5 * 4, "lost on some paths");
}
