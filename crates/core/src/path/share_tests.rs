//! Tests of the shares of engines of one host, and of the host's rounds.

use super::*;
use crate::config::EngineConfig;
use crate::guards::{Guard, Guards};
use crate::path::Gate;
use crate::rng::Rng;
use std::sync::Arc;

const LINE: u64 = 12_500_000_000;
const IP: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));

fn view(senders: u32, backlogged: u32, limited: u64, rate: u64) -> HostView {
    HostView {
        senders,
        backlogged,
        limited_bytes_per_sec: limited,
        rate_bytes_per_sec: rate,
        ..HostView::ALONE
    }
}

fn context() -> PathContext {
    context_with(Guards::ALL)
}

fn context_with(guards: Guards) -> PathContext {
    let mut cfg = EngineConfig::sockets(IP, 0, 4096);
    cfg.line_set(LINE);
    let params = Params::new(&cfg.path, &cfg.rate, &cfg.loss, cfg.mtu, guards, &cfg.own);
    PathContext::with_params(Arc::new(params), &mut Rng::from_seed(1))
}

/// Senders with a backlog get equal shares of what the senders without one leave.
#[test]
fn parts_of_the_host_add_up_to_the_host() {
    for senders in 1..=HOST_SENDERS_MAX {
        for few in 0..senders {
            let (limited, more) = (u64::from(few) * 10_000_000, senders - few);
            let v = view(senders, more, limited, LINE / 2);
            let sum = Part::fair(&v, LINE, None).of(LINE / 2) * u64::from(more);
            let all = (sum + limited) as f64 / (LINE / 2) as f64;
            let fits =
                if limited >= LINE / 2 { sum <= LINE / 2 } else { all > 0.98 && all <= 1.0001 };
            // Never less than an equal share, even where the others take more than theirs.
            assert!(
                fits || limited > LINE / 2 / u64::from(senders) * u64::from(few),
                "{v:?}: {all}"
            );
        }
        // A sender without a backlog gets the share that it would have with one.
        let v = view(senders, senders - 1, 10_000_000, LINE / 2);
        let part = Part::fair(&v, LINE, Some(10_000_000));
        let equal = Part::fair(&view(senders, senders, 0, LINE / 2), LINE, None);
        assert_eq!(part, equal);
    }
}

#[test]
fn lies_of_a_neighbour_end_at_the_line_and_at_the_least_part() {
    let mut rng = Rng::from_seed(7);
    let mut wild = || u64::from(rng.next_u32()) << rng.below(33);
    for _ in 0..5_000 {
        let v = HostView {
            senders: wild() as u32,
            backlogged: wild() as u32,
            limited_bytes_per_sec: wild(),
            delivered_bytes_per_sec: wild(),
            lost_permille: wild() as u32,
            rate_bytes_per_sec: wild(),
            rtt_ns_min: wild() as u32,
        };
        let mut c = context();
        let now = Time(1_000_000);
        c.share_note(now, IP);
        c.awake(now).on_sent(0, 4096, false, false);
        c.share_view(&v);
        let (note, least) = (c.share_note(now, IP), 4096 / u64::from(HOST_SENDERS_MAX));
        assert!((1..=LINE).contains(&note.rate_own), "{v:?}: {note:?}");
        assert!(note.inflight_max >= 4096.max(least), "{v:?}: {note:?}");
        let later = now + Span::from_us(60);
        c.awake(later).on_acked(0, 4096, now);
        c.awake(later).on_echo(0, Span::from_us(50), false);
        c.awake(later).on_ack_end(4096, false, false);
        assert!(c.rate_bytes_per_sec() <= LINE, "{v:?}");
        assert!(c.rtt_min() >= Span::from_us(37), "three quarters of what was measured: {v:?}");
    }
}

/// Burst, window and rate of twelve engines together are those of one.
#[test]
fn twelve_engines_begin_with_the_window_of_one() {
    let now = Time(1_000_000);
    let mut one = context();
    one.share_note(now, IP);
    let mut sum = 0;
    for _ in 0..12 {
        let mut c = context();
        c.share_note(now, IP);
        c.share_view(&view(12, 12, 0, 0));
        sum += c.inflight_max();
        let Gate::Open { bytes } = c.gate(now, false) else { panic!("nothing was sent yet") };
        assert!(bytes <= 65_536 / 12 + 1, "{bytes}");
    }
    let whole = one.inflight_max();
    assert!(sum <= whole && sum > whole * 99 / 100, "{sum} of {whole}");
}

#[test]
fn who_begins_among_others_goes_on_from_their_rate() {
    let now = Time(1_000_000);
    let mut c = context();
    assert_eq!(c.share_note(now, IP).rate_host, 0, "no round has ended");
    c.share_view(&view(4, 4, 0, LINE / 8));
    let note = c.share_note(now, IP);
    assert_eq!((note.rate_host, note.rate_own), (LINE / 8, LINE / 32));
    // The others stop sending: this engine gets the whole rate of the host.
    c.share_view(&HostView::ALONE);
    assert_eq!(c.share_note(now, IP).rate_own, LINE / 8);
}

/// A note is due at intervals and when sending begins or ends, and is queued only once.
#[test]
fn notes_are_rare() {
    let now = Time(1_000_000);
    let mut c = context();
    assert!(!c.share_wants(now, true), "nothing was sent");
    assert!(c.share_wants(now, false));
    let note = c.share_note(now, IP);
    assert!(note.until > now && note.backlogged);
    assert!(!c.share_wants(now + Span::from_us(19), false));
    let due = now + SHARE_EVERY;
    assert!(c.share_wants(due, false) && !c.share_wants(due, false), "it waits already");
    c.share_note(due, IP);
    assert!(c.share_wants(due, true), "there is nothing to send");
    assert_eq!(c.share_note(due, IP).until, Time(0));
    assert!(!c.share_wants(due + Span::from_ms(1), true), "that was said");
}

/// An engine that shares a window requests an acknowledgment after a quarter of it and with its
/// last packet; a single engine only with the latter.
#[test]
fn acknowledgments_are_asked_for_within_a_part_of_a_window() {
    let now = Time(1_000_000);
    let mut c = context();
    c.share_note(now, IP);
    assert!(!(0..1_000).any(|_| c.share_asks(4096, false)) && c.share_asks(4096, true));
    c.share_view(&view(12, 12, 0, LINE / 2));
    let asked = (0..1_000).filter(|_| c.share_asks(4096, false)).count() as u64;
    let each = (c.inflight_max() / 4).div_ceil(4096);
    assert_eq!(asked, 1_000 / each);
    assert!(c.share_asks(4096, true) && !c.share_asks(1, false), "counted from the newest");
}

#[test]
fn the_hosts_rate_moves_by_the_length_of_rounds() {
    let mut cfg = EngineConfig::sockets(IP, 0, 4096);
    cfg.line_set(LINE);
    let link = context().awake(Time(1)).active.link_now(&Params::new(
        &cfg.path,
        &cfg.rate,
        &cfg.loss,
        cfg.mtu,
        Guards::ALL,
        &cfg.own,
    ));
    let usual = Span(link.srtt_ns + SHARE_ACKED_PKTS * link.mtu * 1_000_000_000 / (LINE / 2));
    let (v, less, more) = (LINE / 2, LINE / 2 - LINE / 10, LINE / 2 + LINE / 100);
    assert_eq!(stretched(&link, usual.scale(1, 3), v, less), less, "a short round is a round");
    assert_eq!(stretched(&link, usual.scale(2, 1), v, more), v + LINE / 50);
    assert_eq!(stretched(&link, usual.scale(2, 1), v, less), v - LINE / 5);
    assert_eq!(stretched(&link, usual.scale(99, 1), v, more), v + LINE / 25, "four at most");
    assert_eq!(stretched(&link, usual.scale(9, 1), v, less), v / 2, "half at most");
    assert_eq!(stretched(&link, usual.scale(9, 1), v, v / 8), v / 8, "where the law says more");
    assert_eq!(stretched(&link, usual.scale(9, 1), LINE, LINE), LINE);
}

/// Credits leave the law as it is where several engines of a host send to the address: the rates
/// of each follow those of all.
#[test]
fn credits_raise_the_tolerance_of_lone_engines_only() {
    let rate_after_a_queue = |guards: Guards, senders: u32| {
        let mut c = context_with(guards);
        c.share_note(Time(1_000_000), IP);
        if senders > 1 {
            c.share_view(&view(senders, senders, 0, 0));
        }
        let mut now = Time(1_000_000);
        for rtt_us in [20u64; 20].into_iter().chain([46; 200]) {
            for path in 0..16 {
                c.awake(now).on_sent(path, 4096, false, true);
            }
            let sent = now;
            now += Span::from_us(rtt_us);
            for path in 0..16 {
                c.awake(now).on_acked(path, 4096, sent);
                c.awake(now).on_echo(path, Span::from_us(rtt_us), false);
            }
            c.awake(now).on_ack_end(16 * 4096, false, true);
        }
        c.rate_bytes_per_sec() * u64::from(senders) * 100 / LINE
    };
    // A queue that stays whatever is sent would pass for a longer way.
    let on = Guards::ALL.without(Guard::StaleBase);
    let off = on.without(Guard::SharedQueue);
    assert_eq!(rate_after_a_queue(off, 1), 100, "one and a half targets are the fabric's");
    assert!(rate_after_a_queue(off, 4) < 95, "several engines see what they would without credits");
    // All paths have it, so that it is a port's.
    assert!(rate_after_a_queue(on, 1) < 60, "a lone engine leaves room for others");
    assert_eq!(rate_after_a_queue(Guards::ALL, 1), 100, "a longer way leaves the whole line");
    let same = (rate_after_a_queue(on, 4), rate_after_a_queue(off, 4));
    assert_eq!(same.0, same.1, "each of several engines sees too few packets");
}

/// An engine among 100 whose process waited for the processor for three packets' time catches up
/// one of them, not all. Rule CC-51.
#[test]
fn a_late_engine_among_others_catches_up_a_packet() {
    let leaves = |gaps_percent: u64| {
        let senders = 100;
        let mut c = context();
        let now = Time(1_000_000);
        c.share_note(now, IP);
        c.share_view(&view(senders, senders, 0, LINE / 100 * u64::from(senders)));
        c.awake(now).on_sent(0, 4096, false, false);
        let gap = Span(4096 * 1_000_000_000 / (LINE / 100));
        let now = now + gap.scale(gaps_percent, 100);
        let mut n = 0;
        while let Gate::Open { bytes } = c.gate(now, false) {
            // What is in flight is told at once, so that only the pacer is asked.
            c.awake(now).on_sent(0, bytes.min(4096), false, false);
            c.awake(now).active.leave_flight(4096);
            n += 1;
            assert!(n < 100, "the pacer never closes");
        }
        n
    };
    assert_eq!(leaves(95), 0, "too early");
    assert_eq!(leaves(105), 1, "on time");
    assert_eq!(leaves(205), 2, "a packet late");
    assert_eq!(leaves(405), 2, "three packets late");
}

/// Before anything is lost for certain, each engine of the host may have sent a packet before: all
/// waits allow for them. A lone engine waits as before. Rule CC-50.
#[test]
fn waits_allow_for_a_packet_of_each_engine() {
    let rate = LINE / 100;
    let waits = |senders: u32| {
        let mut c = context();
        c.awake(Time(1_000_000)).active.rtt.hint(20_000);
        c.share_view(&view(senders, senders, 0, rate));
        [c.hedge_delay(), c.tlp_delay(), c.rto(0), c.reorder_slack()]
    };
    let alone = waits(1);
    assert_eq!(waits(2), alone, "two packets take less than any wait");
    let turn = 200 * 4096 * 1_000_000_000 / rate;
    for (i, (wait, alone)) in waits(200).into_iter().zip(alone).enumerate() {
        let least = if i == 3 { turn / 2 } else { turn * 3 / 2 };
        assert!(alone.0 < least && wait.0 >= least, "wait {i}: {alone:?}, {wait:?}, {least}");
        assert!(wait.0 < 2 * least, "wait {i}: {wait:?}, {least}");
    }
    // A neighbour that lies about its number or rate cannot silence an engine for ever.
    let mut c = context();
    c.share_note(Time(1_000_000), IP);
    c.share_view(&view(u32::MAX, u32::MAX, 0, 1));
    assert!(c.hedge_delay() > alone[0]);
    assert!(c.hedge_delay() <= Span::from_ms(500), "{:?}", c.hedge_delay());
}
