//! Paths that an operator denies: they carry nothing, and nothing is lost or late because of it.

use crate::common::*;
use srd_core::config::PathPolicy;
use srd_core::*;

const POLICIES: [PathPolicy; 4] =
    [PathPolicy::Srd, PathPolicy::Oblivious, PathPolicy::Ecmp, PathPolicy::RttP2c];

/// A pair with this policy and number of paths.
fn pair(seed: u64, policy: PathPolicy, paths: u16) -> Pair {
    let configs = [0, 1].map(|i| {
        let mut c = config(i);
        (c.path.policy, c.path.paths) = (policy, paths);
        c.path.live_min = c.path.live_min.min(paths);
        c
    });
    Pair::with(seed, configs.into())
}

fn mask(paths: impl IntoIterator<Item = u8>) -> PathMask {
    let mut mask = PathMask::NONE;
    paths.into_iter().for_each(|path| mask.put(path, true));
    mask
}

/// Denies the same paths at both hosts.
fn deny_both(p: &mut Pair, mask: &PathMask) {
    let now = p.net.now;
    for (i, other) in [(0, ip(1)), (1, ip(0))] {
        p.net.hosts[i].engine.paths_deny(now, other, mask, 1).unwrap();
    }
}

/// Packets that host `i` has sent on paths of `mask`.
fn sent_on(p: &Pair, i: usize, mask: &PathMask) -> u64 {
    let used = p.net.hosts[i].paths_used.iter().enumerate();
    used.filter(|(path, _)| mask.has(*path as u8)).map(|(_, n)| n).sum()
}

fn stats(p: &Pair, i: usize) -> Vec<path::PathStats> {
    p.net.hosts[i].engine.path_stats(ip(1 - i))
}

/// With every policy, before the handshake and in the midst of traffic: neither data nor
/// acknowledgments, probes or handshakes leave on a denied path; nothing is sent twice; and the
/// paths are used again after they are allowed.
#[test]
fn a_denied_path_carries_nothing_and_nothing_is_lost() {
    for policy in POLICIES {
        let mut p = pair(5, policy, 16);
        let half = mask((0..16).filter(|i| i % 2 == 0));
        deny_both(&mut p, &half);
        assert_eq!(p.batch(300, 1_000, Span::from_ms(50)), vec![Status::Ok; 300], "{policy:?}");
        for i in 0..2 {
            assert_eq!(sent_on(&p, i, &half), 0, "{policy:?}: host {i}");
        }
        // The other half, while packets fly on it.
        for k in 0..300 {
            p.net.hosts[1].recv(p.qp[1], k, 1_000);
            p.send(0, k, vec![1; 1_000]).unwrap();
        }
        p.net.run_until(Span::from_ms(50), |n| n.hosts[0].done.len() >= 50);
        let flying = p.net.hosts[0].engine.context_stats()[0].packets_in_flight;
        assert!(flying > 0, "{policy:?}: nothing flies");
        let other = mask((0..16).filter(|i| i % 2 == 1));
        deny_both(&mut p, &other);
        let before = [0, 1].map(|i| sent_on(&p, i, &other));
        assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[0].done.len() == 300));
        let after = [0, 1].map(|i| sent_on(&p, i, &other));
        assert_eq!(before, after, "{policy:?}");
        assert!(p.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
        assert_eq!(p.net.hosts[0].engine.counters().retrans_pkts, 0, "{policy:?}");
        let states: Vec<_> = stats(&p, 0).iter().map(|s| s.state == "denied").collect();
        assert_eq!(states, (0..16).map(|i| i % 2 == 1).collect::<Vec<_>>(), "{policy:?}");
        deny_both(&mut p, &PathMask::NONE);
        assert!(stats(&p, 0).iter().all(|s| s.state != "denied"));
        p.net.hosts[0].done.clear();
        let before = sent_on(&p, 0, &other);
        assert_eq!(p.batch(300, 1_000, Span::from_ms(50)), vec![Status::Ok; 300], "{policy:?}");
        if policy != PathPolicy::Ecmp {
            assert!(sent_on(&p, 0, &other) > before, "{policy:?}: allowed and not used");
        }
    }
}

/// The denial belongs to the address: it outlives an idle context and one that was closed.
#[test]
fn a_denial_outlives_idle_and_closed_contexts() {
    let mut p = pair(6, PathPolicy::Srd, 8);
    let most = mask(0..7);
    deny_both(&mut p, &most);
    assert_eq!(p.batch(10, 500, Span::from_ms(50)).len(), 10);
    p.net.run(Span::from_secs(30));
    assert_eq!(p.batch(10, 500, Span::from_ms(50)).len(), 10);
    // Host 1 loses its state; host 0 opens anew.
    p.net.restart(1, 77);
    p.qp[1] = p.net.hosts[1].qp(p.net.now, QpType::Srd, false);
    p.ah[1] = p.net.hosts[1].ah(p.net.now, ip(0));
    p.net.run(Span::from_ms(300));
    p.net.hosts[0].done.clear();
    let _ = p.batch(10, 500, Span::from_ms(300));
    assert_eq!(p.net.hosts[0].engine.paths_denied(ip(1)), most);
    assert_eq!(sent_on(&p, 0, &most), 0);
}

/// At least one path remains, or as many as the caller asks for; a refusal changes nothing.
#[test]
fn the_last_path_cannot_be_denied() {
    let mut p = pair(7, PathPolicy::Srd, 8);
    let now = p.net.now;
    let engine = &mut p.net.hosts[0].engine;
    assert_eq!(engine.paths_deny(now, ip(1), &mask(0..2), 6), Ok(()));
    for (first, least, left) in [(8, 1, 0), (8, 0, 0), (255, 1, 0), (7, 2, 1), (3, 6, 5)] {
        let refused = engine.paths_deny(now, ip(1), &mask(0..first), least);
        let least = least.max(1);
        assert_eq!(refused, Err(DenyError::TooFewLeft { left, least }), "{first}");
        assert!(refused.unwrap_err().to_string().contains("deny fewer paths"));
        assert_eq!(engine.paths_denied(ip(1)), mask(0..2));
    }
    // Numbers beyond the paths of the engine do not count.
    assert_eq!(engine.paths_deny(now, ip(1), &mask(7..=255), 7), Ok(()));
    assert_eq!(engine.paths_denied(ip(1)), mask([7]));
}

/// The table of addresses with denied paths is bounded.
#[test]
fn as_many_addresses_have_denied_paths_as_the_table_has_room_for() {
    let mut p = pair(8, PathPolicy::Srd, 8);
    let now = p.net.now;
    let engine = &mut p.net.hosts[0].engine;
    for i in 0..limits::DENIALS_MAX {
        assert_eq!(engine.paths_deny(now, ip(i), &mask([1]), 1), Ok(()));
    }
    let more = ip(limits::DENIALS_MAX);
    assert_eq!(engine.paths_deny(now, more, &mask([1]), 1), Err(DenyError::TableFull));
    assert_eq!(engine.paths_deny(now, ip(3), &mask([2]), 1), Ok(()), "it has a place already");
    assert_eq!(engine.paths_deny(now, ip(3), &PathMask::NONE, 1), Ok(()));
    assert_eq!(engine.paths_deny(now, more, &mask([1]), 1), Ok(()));
}

/// If only retired paths would remain, some of them return to use.
#[test]
fn retired_paths_return_when_the_others_are_denied() {
    let mut p = pair(9, PathPolicy::Srd, 8);
    p.net.faults.black_paths = (0..4).collect();
    let _ = p.batch(400, 1_000, Span::from_ms(100));
    let retired = stats(&p, 0).iter().filter(|s| matches!(s.state, "retired" | "probing")).count();
    assert!(retired > 0, "{:?}", stats(&p, 0));
    let now = p.net.now;
    p.net.hosts[0].engine.paths_deny(now, ip(1), &mask(4..8), 1).unwrap();
    let states: Vec<_> = stats(&p, 0).iter().map(|s| s.state).collect();
    assert!(states[..4].iter().all(|s| matches!(*s, "live" | "penalised")), "{states:?}");
    assert!(states[4..].iter().all(|s| *s == "denied"), "{states:?}");
}

/// A path that was retired when it was denied is probed before it is used again.
#[test]
fn a_retired_path_that_was_denied_is_probed_when_it_is_allowed() {
    let mut p = pair(10, PathPolicy::Srd, 8);
    p.net.faults.black_paths = vec![2];
    let _ = p.batch(400, 1_000, Span::from_ms(100));
    assert_eq!(stats(&p, 0)[2].state, "retired");
    let now = p.net.now;
    p.net.hosts[0].engine.paths_deny(now, ip(1), &mask([2, 3]), 1).unwrap();
    p.net.hosts[0].engine.paths_deny(now, ip(1), &PathMask::NONE, 1).unwrap();
    assert_eq!((stats(&p, 0)[2].state, stats(&p, 0)[3].state), ("retired", "live"));
    p.net.faults.black_paths.clear();
    let _ = p.batch(400, 1_000, Span::from_ms(100));
    p.net.run(Span::from_ms(300));
    assert!(matches!(stats(&p, 0)[2].state, "live" | "penalised"), "{:?}", stats(&p, 0)[2]);
}

/// An operator asks for probes, of a peer that was active just now: each path in use carries one
/// packet and tells whether it came back, and a denied one carries none.
#[test]
fn an_ordered_probe_takes_each_path_in_use() {
    let mut p = pair(11, PathPolicy::Srd, 8);
    assert_eq!(p.batch(400, 1_000, Span::from_ms(100)).len(), 400);
    let now = p.net.now;
    p.net.hosts[0].engine.paths_deny(now, ip(1), &mask([1]), 1).unwrap();
    assert!(stats(&p, 0).iter().all(|s| s.echoed), "each has carried something");
    p.net.faults.black_paths = vec![2];
    let (now, before) = (p.net.now, p.net.hosts[0].paths_used);
    let engine = &mut p.net.hosts[0].engine;
    assert!(!engine.paths_probe(now, ip(7), &mask(0..8)), "nobody is there");
    assert!(engine.paths_probe(now, ip(1), &mask(0..7)));
    p.net.run(Span::from_ms(50));
    let used = p.net.hosts[0].paths_used;
    let sent: Vec<_> = (0..8).map(|i| used[i] - before[i]).collect();
    assert_eq!(sent, [1, 0, 1, 1, 1, 1, 1, 0]);
    let echoed: Vec<_> = stats(&p, 0).iter().map(|s| s.echoed).collect();
    // Nothing was asked of path 1, which is denied, and of path 7.
    assert_eq!(echoed, [true, true, false, true, true, true, true, true]);
    // However often it is asked, the queue of probes is bounded.
    let now = p.net.now;
    let engine = &mut p.net.hosts[0].engine;
    let taken = (0..1000).filter(|_| engine.paths_probe(now, ip(1), &mask(0..8))).count();
    assert!((limits::PROBES_ORDERED_MAX / 8..1000).contains(&taken), "{taken}");
    p.net.run(Span::from_ms(50));
    let now = p.net.now;
    assert!(p.net.hosts[0].engine.paths_probe(now, ip(1), &mask(0..8)), "they have left");
}

/// The probe of a retired path, which would be due much later, leaves at once; the path returns
/// only by the second one, which has full size and its own time.
#[test]
fn an_ordered_probe_of_a_retired_path_leaves_at_once() {
    let mut configs: Vec<_> = (0..2).map(config).collect();
    configs[0].path.paths = 8;
    (configs[0].path.probe_first, configs[0].path.probe_max) =
        (Span::from_secs(10), Span::from_secs(10));
    let mut p = Pair::with(12, configs);
    p.net.faults.black_paths = vec![2];
    let _ = p.batch(400, 1_000, Span::from_ms(100));
    assert_eq!(stats(&p, 0)[2].state, "retired");
    p.net.faults.black_paths.clear();
    p.net.run(Span::from_ms(50));
    assert_eq!(stats(&p, 0)[2].state, "retired", "its time has not come");
    let now = p.net.now;
    assert!(p.net.hosts[0].engine.paths_probe(now, ip(1), &mask([2])));
    p.net.run(Span::from_ms(50));
    assert_eq!((stats(&p, 0)[2].state, stats(&p, 0)[2].echoed), ("probing", true));
}

/// The same after a rest: both ends have given back the state of their windows and paths, and the
/// answers come to what is made anew.
#[test]
fn an_ordered_probe_is_answered_after_a_rest_of_any_length() {
    for rest in [1, 20, 31, 40, 68, 69, 100, 3_600, 20_000].map(Span::from_secs) {
        let mut p = pair(13, PathPolicy::Srd, 8);
        assert_eq!(p.batch(400, 1_000, Span::from_ms(100)).len(), 400);
        p.net.run(rest);
        let now = p.net.now;
        assert!(p.net.hosts[0].engine.paths_probe(now, ip(1), &mask(0..8)), "{rest:?}");
        p.net.run(Span::from_ms(50));
        let refused = p.net.hosts[0].engine.counters().echoes_refused;
        assert!(
            stats(&p, 0).iter().all(|s| s.echoed),
            "{rest:?}, refused {refused}: {:?}",
            stats(&p, 0)
        );
    }
}
