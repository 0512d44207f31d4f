//! Tests of the rate control in a small model of a network, and of its parts.

mod credits;
mod crowd;
mod marks;
mod model;
mod network;
mod overload;
mod rivals;
mod shared;
mod starts;
mod unknown;

use super::pacing::Pacing;
use super::srd::SrdRate;
use super::{Link, RateControl as _, Round, RoundMeter};
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
        unsure_ns: 0,
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
        unsure_ns: 0,
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
        unsure_ns: 0,
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
