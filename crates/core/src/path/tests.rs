//! Tests of path policies, health, delays and sizes of contexts.

use super::*;
use crate::config::{EngineConfig, HostPolicy, PathPolicy};
use crate::events::LossRule;
use core::net::{IpAddr, Ipv4Addr};

mod credits;
mod few;

const US: u64 = 1000;
const CTX: Ctx = Ctx(0);

struct Bench {
    context: PathContext,
    rng: Rng,
    now: Time,
}

impl Bench {
    fn new(policy: PathPolicy, paths: u16) -> Self {
        Self::configured(policy, paths, HostPolicy::Budget)
    }

    fn configured(policy: PathPolicy, paths: u16, host: HostPolicy) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let rtt = Span::from_us(10);
        let mut c = EngineConfig::simulated(ip, 0, 4096, 12_500_000_000, rtt);
        (c.path.policy, c.path.paths, c.rate.host_policy) = (policy, paths, host);
        c.path.live_min = c.path.live_min.min(paths);
        let mut rng = Rng::from_seed(1);
        let now = Time(1_000_000);
        let context = PathContext::new(&c.path, &c.rate, &c.loss, c.mtu, &mut rng);
        Self { context, rng, now }
    }

    fn choose(&mut self, flow: u32, avoid: Option<u8>) -> u8 {
        self.context.awake(self.now).path_choose(Ctx(flow), avoid.map(Lost::on), &mut self.rng)
    }

    fn wait_us(&mut self, us: u64) {
        self.now += Span(us * US);
    }

    fn echo(&mut self, path: u8, rtt_us: u64) {
        self.context.awake(self.now).on_echo(path, Span(rtt_us * US), false);
    }

    /// Sends one packet, which is lost; another packet is acknowledged meanwhile.
    fn lose(&mut self, path: u8, rule: LossRule) {
        self.context.awake(self.now).on_sent(path, 4096, false, false);
        self.wait_us(30);
        let other = if path == 9 { 10 } else { 9 };
        self.echo(other, 10);
        self.context.awake(self.now).on_lost(path, 4096, rule);
    }

    fn state(&self, path: u8) -> &'static str {
        let mut stats = Vec::new();
        self.context.stats(&mut stats);
        stats[usize::from(path)].state
    }
}

#[test]
fn sizes_are_within_budget() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.choose(0, None);
    let active = size_of::<ActivePaths>() + 64 * size_of::<set::Path>();
    let summary = size_of::<PathContext>();
    assert!(summary <= 160, "{summary} bytes when idle");
    // Of these, 1 KiB are the acknowledgments of a round trip at 100 Gb/s, 104 bytes what the
    // engines of a host tell each other, and 24 what probes have used.
    assert!(summary + active <= 4 * 1024 + 128, "{} bytes when active", summary + active);
    b.context.shrink();
    assert!(b.context.active.is_none());
}

#[test]
fn all_paths_are_used_before_one_comes_back() {
    for policy in [PathPolicy::Srd, PathPolicy::Oblivious] {
        let mut b = Bench::new(policy, 64);
        let mut seen = [0; 64];
        // From the first wrap on, each turn visits each path once.
        while b.context.active.as_ref().is_none_or(|a| !a.set.at_wrap()) {
            b.choose(0, None);
        }
        for _ in 0..64 {
            seen[usize::from(b.choose(0, None))] += 1;
        }
        assert_eq!(seen, [1; 64], "{policy:?}");
    }
}

#[test]
fn clean_paths_come_first_and_late_ones_wait() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    for path in [7, 5, 30] {
        b.echo(path, 10);
    }
    b.echo(5, 10);
    b.echo(40, 60);
    assert_eq!(b.state(40), "penalised");
    assert_eq!([b.choose(0, None), b.choose(0, None), b.choose(0, None)], [7, 30, 5]);
    let next: Vec<u8> = (0..63).map(|_| b.choose(0, None)).collect();
    assert!(!next.contains(&40), "a penalised path is passed over");
    b.echo(12, 10);
    b.wait_us(1000);
    assert_eq!([b.choose(0, None), b.choose(0, None)], [12, 12], "alone: what is known");
    b.context.awake(b.now).on_sent(12, 4096, false, false);
    let stale = (0..8).filter(|_| b.choose(0, None) == 12).count();
    assert!(stale <= 1, "what was clean long ago is one path among others");
}

#[test]
fn a_retransmission_takes_another_path() {
    for policy in [PathPolicy::Srd, PathPolicy::Oblivious, PathPolicy::RttP2c] {
        let mut b = Bench::new(policy, 64);
        for i in 0..2000 {
            b.echo((i % 64) as u8, 10);
            let avoid = (i * 7 % 64) as u8;
            assert_ne!(b.choose(0, Some(avoid)), avoid, "{policy:?}");
        }
    }
    let mut single = Bench::new(PathPolicy::Srd, 1);
    assert_eq!(single.choose(0, Some(0)), 0, "there is no other");
    let mut pair = Bench::new(PathPolicy::Oblivious, 2);
    assert!((0..100).all(|_| pair.choose(0, Some(1)) == 0));
}

#[test]
fn the_median_is_over_paths_and_over_their_best() {
    let mut set = set::PathSet::new(256, 0);
    assert_eq!(set.quartiles_take(), None);
    for (path, queue) in [(0, 9), (70, 1), (140, 2), (255, 8), (0, 7), (0, 30)] {
        set.touch(path, queue);
    }
    assert_eq!(set.quartiles_take(), Some((2, 1)), "a tie of two good and two bad is good");
    assert_eq!(set.quartiles_take(), None, "a new round");
    for path in 0..=10 {
        set.touch(path, u32::from(path) * 10);
    }
    assert_eq!(set.quartiles_take(), Some((50, 20)));
}

#[test]
fn ecmp_stays_and_spreads_flows() {
    let mut b = Bench::new(PathPolicy::Ecmp, 64);
    let home: Vec<u8> = (0..64).map(|flow| b.choose(flow, None)).collect();
    for (flow, path) in home.iter().enumerate() {
        assert_eq!(b.choose(flow as u32, Some(*path)), *path);
    }
    let mut distinct = home.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() >= 16, "{} of 64 paths for 64 flows", distinct.len());
}

#[test]
fn two_choices_prefer_the_lower_rtt() {
    let mut b = Bench::new(PathPolicy::RttP2c, 64);
    for path in 0..64 {
        b.echo(path, if path < 32 { 10 } else { 40 });
    }
    let low = (0..1000).filter(|_| b.choose(0, None) < 32).count();
    assert!((680..820).contains(&low), "{low} of 1000: three quarters expected");
}

/// The next change of a path: its number, the former and the new state.
fn change(b: &mut Bench) -> Option<(u8, &'static str, &'static str)> {
    let PathChange { path, live, was_live, from, to } = b.context.change_take()?;
    assert_eq!((was_live, live), (from == "live", to == "live"));
    Some((path, from, to))
}

#[test]
fn repeated_loss_retires_and_two_probes_bring_back() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(3, 10);
    b.lose(3, LossRule::Overtaken);
    assert_eq!(b.state(3), "penalised");
    b.lose(3, LossRule::Overtaken);
    assert_eq!(b.state(3), "retired");
    assert_eq!(change(&mut b), Some((3, "live", "retired")));
    assert_eq!(b.context.change_take(), None);
    assert!((0..500).all(|_| b.choose(0, None) != 3));
    // The first probe is lost, the next two are echoed.
    let mut waits = Vec::new();
    for (good, told) in [
        (false, None),
        (true, Some((3, "retired", "probing"))),
        (true, Some((3, "probing", "live"))),
    ] {
        let due = b.context.probe_next();
        waits.push(due.since(b.now).0 / 1_000_000);
        assert_eq!(b.context.probe_poll(Time(due.0 - 1), 4096), None);
        b.now = due;
        // Only the second probe is as large as data, and only its own echo counts.
        let payload = if b.state(3) == "probing" { 4096 } else { 0 };
        assert_eq!(b.context.probe_poll(b.now, 4096), Some(PathProbe { path: 3, payload }));
        if good && payload > 0 {
            b.echo(3, 15);
            assert_eq!(b.state(3), "probing", "an answer to an earlier, smaller one");
        }
        if good {
            b.wait_us(10);
            b.echo(3, 10);
        }
        assert_eq!(change(&mut b), told);
    }
    assert_eq!(waits, [1, 1, 1]);
    assert_eq!(b.state(3), "live");
    assert_eq!(b.context.probe_next(), Time::NEVER);
}

#[test]
fn probes_back_off_and_are_few() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(3, 10);
    b.lose(3, LossRule::Timeout);
    assert_eq!(b.state(3), "retired", "a timeout while others are heard is enough");
    let mut last = b.now;
    let mut waits = Vec::new();
    for _ in 0..10 {
        b.now = b.context.probe_next();
        waits.push(b.now.since(last).0.div_ceil(1_000_000));
        last = b.now;
        assert_eq!(b.context.probe_poll(b.now, 0), Some(PathProbe { path: 3, payload: 0 }));
    }
    assert_eq!(waits, [1, 1, 2, 4, 8, 16, 32, 64, 100, 100]);
    for path in 11..40 {
        b.lose(path, LossRule::Timeout);
    }
    let end = b.now + Span::from_ms(4);
    let mut probes = 0;
    while b.context.probe_next() <= end {
        b.now = b.context.probe_next();
        probes += u32::from(b.context.probe_poll(b.now, 0).is_some());
    }
    assert!((4..=17).contains(&probes), "{probes} probes in 4 ms, while nothing arrives");
}

#[test]
fn a_minimum_of_paths_stays() {
    let mut b = Bench::new(PathPolicy::Srd, 16);
    for turn in 0..20 {
        for path in 0..16 {
            b.lose((path + turn) % 16, LossRule::Timeout);
        }
    }
    let live = (0..16).filter(|&p| b.state(p) == "live" || b.state(p) == "penalised").count();
    assert_eq!(live, 4);
    let path = b.choose(0, None);
    assert_ne!(b.state(path), "retired");
}

#[test]
fn acknowledged_losses_do_not_add_up() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    for _ in 0..100 {
        b.lose(3, LossRule::Overtaken);
        b.context.awake(b.now).on_sent(3, 4096, false, false);
        b.context.awake(b.now).on_acked(3, 4096, b.now);
        b.echo(3, 10);
    }
    assert_ne!(b.state(3), "retired");
    // A burst that is lost in one piece is one event.
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(9, 10);
    for _ in 0..8 {
        b.context.awake(b.now).on_sent(3, 4096, false, false);
    }
    for _ in 0..8 {
        b.context.awake(b.now).on_lost(3, 4096, LossRule::Overtaken);
    }
    assert_eq!(b.state(3), "penalised");
    assert_eq!(b.context.inflight(), 0);
}

#[test]
fn a_path_is_blamed_when_the_copy_proves_the_loss() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(9, 10);
    b.context.awake(b.now).on_ack_end(4096, true, false);
    b.context.awake(b.now).on_sent(3, 4096, false, false);
    b.now += Span::from_secs(1);
    assert!(!b.context.awake(b.now).on_lost(3, 4096, LossRule::Timeout), "the peer was silent too");
    assert_eq!(b.state(3), "live");
    b.context.awake(b.now).on_proved_lost(3, true);
    assert_eq!(b.state(3), "penalised");
    let mut all = Vec::new();
    b.context.stats(&mut all);
    assert_eq!(all[3].packets_lost, 1, "counted once");
}

#[test]
fn spurious_losses_acquit_and_widen() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(3, 10);
    let slack = b.context.reorder_slack();
    b.lose(3, LossRule::Overtaken);
    b.lose(3, LossRule::Overtaken);
    assert_eq!(b.state(3), "retired");
    b.context.awake(b.now).on_spurious(3);
    assert_eq!(b.state(3), "live");
    assert_eq!(b.context.change_take(), None, "gone and back before anybody asked");
    assert!(b.context.reorder_slack() > slack);
    for _ in 0..100 {
        b.context.awake(b.now).on_spurious(3);
    }
    let widened = b.context.reorder_slack() - slack;
    assert!(widened < b.context.srtt().scale(4, 1), "bounded");
}

#[test]
fn timeouts_double_per_path_and_end() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    assert_eq!(b.context.rto(3), Span(30 * US), "three assumed RTTs");
    for _ in 0..40 {
        b.echo(3, 10);
        b.echo(9, 10);
    }
    let first = b.context.rto(3);
    assert_eq!(first, Span(30 * US), "the floor: there is no variance");
    b.lose(3, LossRule::Timeout);
    assert_eq!(b.context.rto(3), first.scale(2, 1));
    assert!(b.context.rto(9) <= first, "the others are not concerned");
    for _ in 0..30 {
        b.lose(3, LossRule::Timeout);
    }
    assert_eq!(b.context.rto(3), first.scale(4, 1), "the packet waits longer, not the path");
    b.context.awake(b.now).on_sent(3, 100, false, false);
    b.context.awake(b.now).on_acked(3, 100, b.now);
    assert_eq!(b.context.rto(3), first);
}

#[test]
fn the_least_rtt_forgets() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(0, 10);
    assert_eq!(b.context.rtt_min(), Span(10 * US));
    for _ in 0..40 {
        b.now += Span::from_secs(6);
        b.echo(0, 30);
        b.echo(0, 30);
    }
    assert_eq!(b.context.rtt_min(), Span(30 * US));
}

/// The delays that the peer reports are subtracted from each sample, but the least RTT does not
/// fall below three quarters of the shortest whole round trip measured.
#[test]
fn the_least_rtt_is_without_waits_but_not_below_what_was_measured() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let least = |b: &mut Bench, rtt: u64, claimed: u64| {
        let (rtt, claimed) = (Span(rtt * US), Span(claimed * US));
        let sample = Sample { rtt, back: Span::ZERO, sent: b.now, claimed, ce: false, full: true };
        b.context.awake(b.now).on_sample(3, &sample);
        let mut stats = Vec::new();
        b.context.stats(&mut stats);
        assert!(stats[3].rtt_ns_min >= b.context.rtt_min().0);
        assert!(stats[3].rtt_ns_smoothed >= stats[3].rtt_ns_min);
        b.context.rtt_min().0
    };
    assert_eq!(least(&mut b, 20, 20), 30 * US, "no packet was there and back in less than 40");
    assert_eq!(least(&mut b, 24, 0), 20 * US, "believed now of the one before");
    assert_eq!(least(&mut b, 19, 21), 19 * US);
    assert_eq!(least(&mut b, 1, 39), 18 * US);
    assert_eq!(least(&mut b, 1, 15), 12 * US);
    // A context that shrank and woke up does not subtract as much again.
    b.context.shrink();
    assert_eq!(b.context.rtt_min().0, 12 * US);
    assert_eq!(least(&mut b, 1, 15), 12 * US);
}

#[test]
fn acknowledgments_rotate_and_leave_dead_paths() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let dead = b.context.awake(b.now).ack_path_choose(false, &mut b.rng);
    let mut used = Vec::new();
    for i in 0..2000u16 {
        let path = b.context.awake(b.now).ack_path_choose(false, &mut b.rng);
        b.context.ack_sent(b.now, CTX, path, i);
        // The peer echoes every fourth acknowledgment that arrives.
        if path != dead && i % 4 == 0 {
            b.context.ack_echoed(b.now, CTX, i);
        }
        used.push(path);
    }
    let mut distinct = used[..16].to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() >= 4, "{distinct:?}");
    assert!(used[..16].contains(&dead));
    let late = used[1000..].iter().filter(|&&p| p == dead).count();
    assert!(late <= 60, "{late} of 1000 acknowledgments into a black hole");
}

/// A host that only receives has no round trips of its own, but grants ahead for one.
#[test]
fn the_least_time_to_an_echo_is_a_round_trip() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let echo = |b: &mut Bench, from: u16, wait_us: u64, echoed: u16| {
        let path = b.context.awake(b.now).ack_path_choose(false, &mut b.rng);
        for i in 0..4 {
            b.context.ack_sent(b.now, CTX, path, from.wrapping_add(i));
        }
        b.wait_us(wait_us);
        b.context.ack_echoed(b.now, CTX, echoed);
        b.context.active.as_ref().expect("it has sent").ack_paths.echo().0.div_ceil(US)
    };
    assert_eq!(echo(&mut b, 100, 900, 99), 0, "an earlier one says nothing");
    assert_eq!(echo(&mut b, 104, 100, 107), 1000, "a later one ends what was timed before it");
    assert_eq!(echo(&mut b, 108, 50, 108), 50, "the least counts");
    assert_eq!(echo(&mut b, 112, 3_000, 112), 50, "the peer paused");
    assert_eq!(echo(&mut b, u16::MAX - 1, 40, 1), 40, "numbers begin anew");
    b.wait_us(6_000_000);
    assert_eq!(echo(&mut b, 120, 70, 120), 70, "the least is forgotten after five seconds");
}

#[test]
fn unechoed_acknowledgments_alone_prove_nothing() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let mut used = Vec::new();
    for i in 0..1000u16 {
        let path = b.context.awake(b.now).ack_path_choose(false, &mut b.rng);
        b.context.ack_sent(b.now, CTX, path, i);
        used.push(path);
    }
    used.sort_unstable();
    used.dedup();
    assert!((4..=16).contains(&used.len()), "{} paths", used.len());
}

#[test]
fn the_gate_follows_inflight_and_drops() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(0, 10);
    let fill = |b: &mut Bench| {
        let mut sent = 0;
        loop {
            match b.context.gate(b.now, false) {
                Gate::Open { bytes } => {
                    assert!(bytes >= 4096);
                    b.context.awake(b.now).on_sent(0, 4096, false, false);
                    sent += 4096;
                }
                Gate::Until(t) | Gate::Uncredited(t) => b.now = t,
                Gate::Blocked => return sent,
            }
        }
    };
    let window = 12_500_000_000 / 100_000 / 5 * 7;
    let first = fill(&mut b);
    assert!(first <= window && first + 4096 > window, "{first}: 1.4 bandwidth-delay products");
    b.context.awake(b.now).on_receiver_drops(10);
    assert_eq!(b.context.inflight_max(), first / 2);
    assert!((0..9).all(|p| b.state(p) == "live"), "no path is blamed");
    b.context.on_forgotten(first as u32);
    assert_eq!(fill(&mut b) / 4096, first / 2 / 4096);
    b.context.on_forgotten((first / 2 / 4096 * 4096) as u32);
    assert!(fill(&mut b) > 0 && !b.context.is_idle());
}

/// A clock leaps by 37 ms in one of many round trips of 10 us: a stop lasts two of the others.
#[test]
fn a_stop_is_not_counted_in_a_round_trip_in_which_a_clock_leapt() {
    let mut b = Bench::configured(PathPolicy::Srd, 64, HostPolicy::StopGo);
    b.wait_us(100_000);
    for rtt_us in [10, 10, 37_000] {
        b.echo(1, rtt_us);
    }
    b.context.on_host_signal(b.now, Ctx(0), true);
    let Gate::Until(at) = b.context.gate(b.now, false) else { panic!("it is stopped") };
    assert!(at.since(b.now) <= Span::from_us(20), "{:?}", at.since(b.now));
}

#[test]
fn what_was_lost_takes_the_path_that_proved_itself_last() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    for path in [7, 9, 9, 11] {
        b.echo(path, 12);
    }
    assert_eq!(b.choose(0, Some(9)), 11, "the newest");
    b.echo(11, 12);
    assert_eq!(b.choose(0, Some(11)), 9, "not the one that lost it");
    let rest = [b.choose(0, Some(3)), b.choose(0, Some(3))];
    assert_eq!(rest, [11, 7], "each is good for one packet");
    let others = [b.choose(0, Some(3)), b.choose(0, Some(3))];
    assert!(!others.contains(&3));
}

#[test]
fn probes_go_everywhere_but_where_nothing_lives() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.lose(3, LossRule::Timeout);
    assert_eq!(b.state(3), "retired");
    let mut rng = Rng::from_seed(1);
    let mut seen = [false; 64];
    for _ in 0..256 {
        seen[usize::from(b.context.awake(b.now).path_any(&mut rng))] = true;
    }
    assert!(!seen[3] && seen.iter().filter(|s| **s).count() == 63);
}

#[test]
fn a_shrunk_context_remembers_what_matters() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(0, 12);
    b.lose(3, LossRule::Timeout);
    b.context.shrink();
    assert_eq!(b.state(3), "retired", "a change untold keeps it active");
    assert!(b.context.change_take().is_some());
    let (srtt, min) = (b.context.srtt(), b.context.rtt_min());
    assert!(b.context.is_idle());
    b.context.shrink();
    assert!(b.context.active.is_none());
    assert_eq!((b.context.srtt(), b.context.rtt_min()), (srtt, min));
    assert_eq!(b.state(3), "retired");
    assert_eq!(b.context.probe_next(), Time::NEVER, "an idle peer is not probed");
    assert!(matches!(b.context.gate(b.now, false), Gate::Open { .. }));
    assert!((0..200).all(|_| b.choose(0, None) != 3));
    assert_eq!((b.context.srtt(), b.context.rtt_min()), (srtt, min));
    assert_eq!(b.context.change_take(), None);
    assert!(b.context.probe_next() > b.now);
}

/// Whatever their numbers, retired paths carry no data after a rest before they were probed.
#[test]
fn a_shrunk_context_remembers_each_retired_path() {
    let mut b = Bench::new(PathPolicy::Srd, 256);
    let dead = [3, 63, 64, 100, 255];
    for path in dead {
        b.lose(path, LossRule::Timeout);
    }
    let told: Vec<_> = std::iter::from_fn(|| b.context.change_take()).collect();
    assert!(told.len() == 5 && told.iter().all(|c| !c.live && dead.contains(&c.path)), "{told:?}");
    b.context.shrink();
    assert!(b.context.active.is_none());
    let retired = |b: &Bench| (0..=255).filter(|i| b.state(*i) == "retired").collect::<Vec<u8>>();
    assert_eq!(retired(&b), dead);
    assert!((0..2000).all(|_| !dead.contains(&b.choose(0, None))));
    assert_eq!((retired(&b), b.context.change_take()), (dead.to_vec(), None));
    assert!(b.context.probe_next() > b.now && b.context.probe_next() < Time::NEVER);
}

#[test]
fn the_path_machine_is_declared() {
    let dot = PathState::dot();
    for edge in ["Live -> Retired", "Retired -> Probing", "Probing -> Live", "Probing -> Retired"] {
        assert!(dot.contains(edge), "{edge} in {dot}");
    }
}

/// One acknowledgment comes late and covers all of a window. Whether the sender then has left its
/// start behind.
fn start_is_over_after_windows(app_limited: bool) -> bool {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.echo(0, 10);
    for _ in 0..4 {
        let began = b.now;
        let mut sent = 0;
        loop {
            match b.context.gate(b.now, false) {
                Gate::Open { .. } => b.context.awake(b.now).on_sent(0, 4096, false, false),
                Gate::Until(t) | Gate::Uncredited(t) => {
                    b.now = t;
                    continue;
                }
                Gate::Blocked => break,
            }
            sent += 4096;
        }
        b.wait_us(40);
        for _ in 0..sent / 4096 {
            b.context.awake(b.now).on_acked(0, 4096, began);
        }
        b.context.awake(b.now).on_ack_end(sent, app_limited, false);
    }
    !b.context.active.as_ref().expect("it has sent").rate.is_opening()
}

#[test]
fn a_window_that_one_acknowledgment_covers_is_a_round_and_no_pause() {
    assert!(start_is_over_after_windows(false), "there was more to send");
    assert!(!start_is_over_after_windows(true), "pauses of the program measure nothing");
}

/// Whoever sends the next message when the last one came back reuses one path. If that were the
/// worst of all, nothing would ever tell.
#[test]
fn a_closed_loop_looks_at_other_paths() {
    let probed = probes_of_a_closed_loop(PathPolicy::Srd);
    assert!((4..8).contains(&probed.len()) && probed.iter().any(|p| p.1), "{probed:?}");
    assert!(probed[0].0 >= 4, "{probed:?}");
    assert_eq!(probes_of_a_closed_loop(PathPolicy::Ecmp), [], "it has one path");
}

/// The messages after which another path is probed, and whether it is another.
fn probes_of_a_closed_loop(policy: PathPolicy) -> Vec<(u32, bool)> {
    let mut b = Bench::new(policy, 64);
    let mut probed = vec![];
    for n in 1..=64 {
        let path = b.choose(0, None);
        if let Some(other) = b.context.awake(b.now).explore_take(&mut b.rng) {
            probed.push((n, other != path));
        }
        let sent = b.now;
        b.context.awake(sent).on_sent(path, 64, false, false);
        b.wait_us(10);
        b.context.awake(b.now).on_acked(path, 64, sent);
        b.context.awake(b.now).on_echo(path, Span::from_us(10), false);
        b.context.awake(b.now).on_ack_end(64, true, false);
    }
    probed
}

/// The program has not looked since, so the acknowledgment of the last message is unread, or it is
/// late: the next message does not look for another path.
#[test]
fn a_message_behind_an_unread_acknowledgment_keeps_to_the_known_path() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let known = b.choose(0, None);
    let sent = b.now;
    b.context.awake(sent).on_sent(known, 64, false, false);
    b.wait_us(10);
    b.context.awake(b.now).on_acked(known, 64, sent);
    b.context.awake(b.now).on_echo(known, Span::from_us(10), false);
    b.context.awake(b.now).on_ack_end(64, true, false);
    for n in 1..=4 {
        b.wait_us(200);
        assert_eq!(b.choose(0, None), known, "message {n}");
        b.context.awake(b.now).on_sent(known, 64, false, false);
    }
    // Overdue: the quickest path that is known otherwise, and a second copy takes any but those.
    b.context.on_copied(known, Span::from_us(50));
    let copied = b.choose(0, Some(known));
    assert_ne!(copied, known);
    assert!(b.context.awake(b.now).explore_take(&mut b.rng).is_some_and(|p| p != copied));
}
