//! Wrong choices of paths, and choices that only look wrong.

use crate::recorder::Recorder;
use srd_core::config::PathPolicy;
use srd_core::events::{Event, LossRule, Observer as _};
use srd_core::wire::Verdict;
use srd_core::{ContextId, Endpoint, EngineConfig, Psn, Span, Time, TxNum};
use std::net::{IpAddr, Ipv4Addr};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

fn recorder(policy: PathPolicy, paths: u16, least: u16) -> Recorder {
    let own = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let mut c = EngineConfig::simulated(own, 0, 1024, 1_000_000_000, Span::from_us(10));
    (c.path.policy, c.path.paths, c.path.live_min) = (policy, paths, least);
    Recorder::new(&c, false)
}

fn tell(r: &mut Recorder, events: &[Event]) -> Option<String> {
    for e in events {
        r.event(Time(1), *e);
    }
    r.paths_check()
}

fn opened(ctx: u32, ip: IpAddr) -> Event {
    Event::Context { ctx: ContextId(ctx), peer: Endpoint { ip, port: 1 }, from: "", to: "Opening" }
}

fn closed(ctx: u32, ip: IpAddr) -> Event {
    Event::Context {
        ctx: ContextId(ctx),
        peer: Endpoint { ip, port: 1 },
        from: "Open",
        to: "Closed",
    }
}

fn path(path: u8, to: &'static str) -> Event {
    Event::Path { ip: PEER, path, from: "live", to }
}

fn sent(ctx: u32, psn: u32, path: u8) -> Event {
    Event::Sent {
        ctx: ContextId(ctx),
        psn: Psn(psn),
        tx_num: TxNum(0),
        path,
        bytes: 100,
        retransmit: false,
    }
}

fn lost(ctx: u32, psn: u32, path: u8) -> Event {
    Event::Lost { ctx: ContextId(ctx), psn: Psn(psn), path, rule: LossRule::Overtaken }
}

#[test]
fn a_path_out_of_use_carries_nothing() {
    for (policy, heeds) in [
        (PathPolicy::Srd, true),
        (PathPolicy::RttP2c, true),
        (PathPolicy::Oblivious, false),
        (PathPolicy::Ecmp, false),
    ] {
        let mut r = recorder(policy, 64, 1);
        let start = [opened(1, PEER), sent(1, 0, 5), path(5, "retired")];
        assert_eq!(tell(&mut r, &start), None, "{policy:?}");
        assert_eq!(tell(&mut r, &[sent(1, 1, 6)]), None, "{policy:?}");
        let wrong = tell(&mut r, &[sent(1, 2, 5)]);
        assert_eq!(wrong.is_some(), heeds, "{policy:?}: {wrong:?}");
        if let Some(wrong) = wrong {
            assert!(wrong.contains("psn 2") && wrong.contains("path 5"), "{wrong}");
        }
        // The path returns after probes, and not before the second was answered.
        let wrong = tell(&mut r, &[path(5, "probing"), sent(1, 3, 5)]);
        assert_eq!(wrong.is_some(), heeds, "{policy:?}: {wrong:?}");
        let back = [path(5, "live"), sent(1, 4, 5)];
        assert_eq!(tell(&mut r, &back), None, "{policy:?}");
    }
}

#[test]
fn every_path_has_its_own_mark() {
    let mut r = recorder(PathPolicy::Srd, 256, 1);
    assert_eq!(tell(&mut r, &[opened(1, PEER)]), None);
    for p in [0, 63, 64, 127, 128, 255] {
        assert_eq!(tell(&mut r, &[path(p, "retired")]), None);
        assert_eq!(tell(&mut r, &[sent(1, 0, p ^ 1)]), None, "its neighbour is in use");
        assert!(tell(&mut r, &[sent(1, 0, p)]).is_some(), "path {p}");
    }
}

#[test]
fn the_least_number_of_paths_stays_in_use() {
    let mut r = recorder(PathPolicy::Srd, 4, 2);
    assert_eq!(tell(&mut r, &[opened(1, PEER), path(0, "retired"), path(1, "retired")]), None);
    // Retiring the same path twice counts once.
    assert_eq!(tell(&mut r, &[path(1, "retired")]), None);
    let wrong = tell(&mut r, &[path(2, "retired")]).unwrap();
    assert!(wrong.contains("1 paths") && wrong.contains("10.0.0.2"), "{wrong}");
    assert_eq!(tell(&mut r, &[]), None, "told once");
    // Within one call one path may be retired and another one return.
    assert_eq!(tell(&mut r, &[path(3, "retired"), path(0, "live")]), None);
}

#[test]
fn what_was_lost_takes_another_path_if_there_is_one() {
    for (policy, paths, again) in [
        (PathPolicy::Srd, 64, true),
        (PathPolicy::Oblivious, 64, true),
        (PathPolicy::RttP2c, 2, true),
        (PathPolicy::Ecmp, 64, false),
        (PathPolicy::Srd, 1, false),
    ] {
        let mut r = recorder(policy, paths, 1);
        assert_eq!(tell(&mut r, &[opened(1, PEER), sent(1, 7, 0), lost(1, 7, 0)]), None);
        let wrong = tell(&mut r, &[sent(1, 7, 0)]);
        assert_eq!(wrong.is_some(), again, "{policy:?} of {paths}: {wrong:?}");
        // After its retransmission the packet may be on any path.
        assert_eq!(tell(&mut r, &[sent(1, 7, 0)]), None);
    }
}

#[test]
fn a_loss_is_of_one_packet_of_one_context() {
    let mut r = recorder(PathPolicy::Srd, 64, 1);
    assert_eq!(tell(&mut r, &[opened(1, PEER), opened(2, PEER), lost(1, 7, 3)]), None);
    assert_eq!(tell(&mut r, &[sent(1, 8, 3), sent(2, 7, 3)]), None);
    // It has arrived after all: it is not retransmitted, and its number may be reused.
    assert_eq!(
        tell(&mut r, &[Event::Acked { ctx: ContextId(1), psn: Psn(7) }, sent(1, 7, 3)]),
        None
    );
    // The context ended before the retransmission.
    assert_eq!(tell(&mut r, &[lost(1, 9, 3), closed(1, PEER), opened(1, PEER)]), None);
    assert_eq!(tell(&mut r, &[sent(1, 9, 3)]), None);
}

#[test]
fn a_choice_of_one_path_is_none() {
    // Two paths, one of them retired: the lost packet must take the path that lost it.
    let mut r = recorder(PathPolicy::Srd, 2, 1);
    let start = [opened(1, PEER), path(1, "retired"), sent(1, 7, 0), lost(1, 7, 0)];
    assert_eq!(tell(&mut r, &start), None);
    assert_eq!(tell(&mut r, &[sent(1, 7, 0)]), None);
}

#[test]
fn paths_are_forgotten_with_the_last_context_to_their_address() {
    let mut r = recorder(PathPolicy::Srd, 64, 1);
    let start = [opened(1, PEER), opened(2, PEER), path(5, "retired"), closed(1, PEER)];
    assert_eq!(tell(&mut r, &start), None);
    assert!(tell(&mut r, &[sent(2, 0, 5)]).is_some(), "one context is left");
    assert_eq!(tell(&mut r, &[closed(2, PEER), opened(3, PEER), sent(3, 0, 5)]), None);
}

#[test]
fn addresses_do_not_share_paths() {
    let mut r = recorder(PathPolicy::Srd, 64, 1);
    let start = [opened(1, PEER), opened(2, OTHER), path(5, "retired"), sent(2, 0, 5)];
    assert_eq!(tell(&mut r, &start), None);
}

#[test]
fn a_second_judgment_in_one_call_is_seen() {
    let judged = |psn| Event::Judged { ctx: ContextId(1), psn: Psn(psn), verdict: Verdict::Rnr };
    let mut r = recorder(PathPolicy::Srd, 4, 1);
    r.event(Time(1), judged(3));
    assert_eq!((r.judged, r.judged_twice), (Some((ContextId(1), Psn(3), Verdict::Rnr)), false));
    r.judged = None;
    r.event(Time(1), judged(4));
    assert!(!r.judged_twice, "of the next call");
    r.event(Time(1), judged(4));
    assert!(r.judged_twice);
}

#[test]
fn moves_and_lines_are_kept_for_who_asks() {
    let mut quiet = recorder(PathPolicy::Srd, 4, 1);
    tell(&mut quiet, &[opened(1, PEER), sent(1, 0, 0)]);
    assert!(quiet.lines.is_empty());
    let peer = Endpoint { ip: PEER, port: 1 };
    assert_eq!(quiet.moves, [(peer, "", "Opening")]);
    quiet.event(Time(1), Event::Forgotten { ctx: ContextId(1), peer });
    assert_eq!(quiet.moves[1], (peer, "Open", "Forgotten"));
    let config = EngineConfig::simulated(PEER, 0, 1024, 1_000_000_000, Span::from_us(10));
    let mut loud = Recorder::new(&config, true);
    let rate = Event::Rate { bytes_per_sec: 1, inflight_max: 1, inflight: 1 };
    let rtt = Event::Rtt { ctx: ContextId(1), path: 1, rtt_ns: 1, ce: false };
    tell(&mut loud, &[opened(1, PEER), rate, rtt, sent(1, 4, 2)]);
    assert_eq!(loud.lines.len(), 2, "rates and round trips are too many: {:?}", loud.lines);
    assert!(loud.lines[1].contains("psn: 4"));
}
