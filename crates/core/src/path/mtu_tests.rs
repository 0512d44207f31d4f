use super::*;
use crate::ids::Ctx;
use core::net::Ipv4Addr;

const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const WAIT: Span = Span::from_ms(1);

/// Runs a search to its end. `passes(step, size)`: whether a probe of that size is echoed.
fn asked(
    m: &mut PathMtu,
    mut now: Time,
    (full, paths): (u16, u8),
    mut passes: impl FnMut(u32, u16) -> bool,
) -> (Found, Time) {
    let (mut tx_num, mut path) = (0, 0);
    for step in 0.. {
        let mut probes = Vec::new();
        let next = || {
            path = (path + 1) % paths;
            path
        };
        m.step_begin(
            now,
            &Step { wait: WAIT, rxq_drops: 0, ip: IP, full, aligned: false },
            next,
            |p, size| probes.push((p, size)),
        );
        let mut echoed = vec![None; paths.into()];
        for (path, size) in probes {
            tx_num += 1;
            m.on_probe_sent(Ctx(7), TxLow(tx_num), size, true);
            if passes(step, size) {
                echoed[usize::from(path)] = Some(tx_num);
            }
        }
        // Of the probes on one path only the newest is echoed.
        echoed.into_iter().flatten().for_each(|n| m.on_echo(Ctx(7), TxLow(n)));
        if m.search.is_none() {
            return (Found::Nothing, now);
        }
        now = m.next().max(now);
        match m.poll(now, now, full, 0) {
            Found::Again => {}
            found => return (found, now),
        }
    }
    unreachable!()
}

/// The same where all probes up to the size `passes` are echoed.
fn searched(m: &mut PathMtu, now: Time, full: u16, passes: u16) -> (Found, Time) {
    asked(m, now, (full, 4), |_, size| size <= passes)
}

/// The same where probes pass only up to an MTU of 1280, while data of size `arrives` arrives.
fn asked_beside(m: &mut PathMtu, arrives: u16) -> (Found, Time) {
    let mut begun = false;
    let first = Step { wait: WAIT, rxq_drops: 0, ip: IP, full: 1400, aligned: false };
    m.step_begin(Time(1), &first, || 0, |_, _| begun = true);
    assert!(!begun, "what is under way is waited for first");
    m.on_arrived(arrives);
    let now = m.next();
    assert_eq!(m.poll(now, now, 1400, 0), Found::Again);
    asked(m, now, (1400, 4), |_, size| size <= 1180)
}

fn lose(m: &mut PathMtu, now: Time, len: u16) -> bool {
    (0..LOST_MAX).any(|_| m.on_lost(now, len, IP))
}

#[test]
fn the_largest_size_that_passes_is_taken_and_raised_again() {
    for (passes, want) in
        [(8899, 8066), (1400, 1400), (1399, 1392), (1180, 1180), (480, 476), (476, 476)]
    {
        let mut m = PathMtu::default();
        let now = Time(1_000);
        assert!(lose(&mut m, now, 8900));
        m.search_begin(now, Ctx(7), 8900);
        let (found, now) = searched(&mut m, now, 8900, passes);
        assert_eq!((found, m.size()), (Found::Changed, want), "{passes}");
        assert!(now < Time(900_000_000), "{now:?}");
        // A second later all passes again.
        let later = m.next();
        assert_eq!(later, now + RAISE_FIRST);
        assert!(
            !m.raise_begin(Time(later.0 - 1), Ctx(7), 8900) && m.raise_begin(later, Ctx(7), 8900)
        );
        let (found, _) = searched(&mut m, later, 8900, u16::MAX);
        assert_eq!((found, m.size(), m.next()), (Found::Changed, u16::MAX, Time::NEVER));
    }
}

#[test]
fn where_all_passes_or_nothing_does_no_size_is_to_blame() {
    for passes in [u16::MAX, 0] {
        let mut m = PathMtu::default();
        assert!(lose(&mut m, Time(1), 1400));
        m.search_begin(Time(1), Ctx(7), 1400);
        let (found, now) = searched(&mut m, Time(1), 1400, passes);
        assert_eq!((found, m.size()), (Found::Nothing, u16::MAX));
        assert!(!lose(&mut m, now, 1400), "not again at once");
        assert!(lose(&mut m, now + QUIET, 1400));
    }
}

/// A search on a path that carries only small packets, with one exception.
fn doubted(paths: u8, mut except: impl FnMut(u32, u16) -> bool) -> u16 {
    let mut m = PathMtu::default();
    assert!(lose(&mut m, Time(1), 1400));
    m.search_begin(Time(1), Ctx(7), 1400);
    asked(&mut m, Time(1), (1400, paths), |step, size| (size <= 600) != except(step, size));
    m.size()
}

#[test]
fn what_is_lost_with_the_small_ones_is_no_matter_of_sizes() {
    // One step without probes, then two steps per round.
    let last = 2 * u32::from(ROUNDS_COUNTED);
    for paths in [1, 2, 3, 64] {
        assert_eq!(doubted(paths, |_, _| false), 476, "{paths} paths");
        // A small one in each round is lost.
        assert_eq!(doubted(paths, |step, size| size < 600 && step % 4 == 2), u16::MAX);
        // A large one passes at the end.
        assert_eq!(doubted(paths, |step, size| size == 1400 && step == last - 1), u16::MAX);
    }
    // No probe of the second half of each round is echoed.
    assert_eq!(doubted(64, |step, size| size < 600 && step % 2 == 1), u16::MAX);
    assert_eq!(doubted(64, |step, size| size < 600 && step % 2 == 0), u16::MAX);
}

#[test]
fn rounds_in_which_sockets_overflow_or_we_sleep_do_not_count() {
    let rounds = |late: Span, drops: u32, told: bool| {
        let mut m = PathMtu::default();
        assert!(lose(&mut m, Time(1), 1400));
        m.search_begin(Time(1), Ctx(7), 1400);
        let (mut now, mut tx_num, mut path) = (Time(1), 0, 0);
        for step in 0u32.. {
            let mut probes = Vec::new();
            let rxq_drops = step / 3 * drops;
            let next = || {
                path = (path + 1) % 4;
                path
            };
            let half = Step { wait: WAIT, rxq_drops, ip: IP, full: 1400, aligned: false };
            m.step_begin(now, &half, next, |_, size| probes.push(size));
            for size in probes {
                tx_num += 1;
                m.on_probe_sent(Ctx(7), TxLow(tx_num), size, true);
                if size == 476 {
                    m.on_echo(Ctx(7), TxLow(tx_num));
                }
            }
            if told {
                m.on_receiver_drops();
            }
            now = m.next() + if step % 5 == 4 { late } else { Span::ZERO };
            if m.poll(now, now, 1400, (step + 1) / 3 * drops) != Found::Again {
                break;
            }
        }
        m.size()
    };
    assert_eq!(rounds(Span::ZERO, 0, false), 476);
    assert_eq!(rounds(Span::from_secs(1), 0, false), u16::MAX);
    assert_eq!(rounds(Span::ZERO, 1, false), u16::MAX);
    assert_eq!(rounds(Span::ZERO, 0, true), u16::MAX);
}

#[test]
fn one_large_packet_that_arrives_ends_the_doubt() {
    let mut m = PathMtu::default();
    assert!(lose(&mut m, Time(1), 1400));
    m.search_begin(Time(1), Ctx(7), 1400);
    m.on_arrived(1399);
    assert!(m.search.is_some());
    m.on_arrived(1400);
    assert!(m.search.is_none() && m.next() == Time::NEVER);
}

#[test]
fn only_what_is_as_long_as_the_longest_that_was_lost_ends_the_doubt() {
    let mut m = PathMtu::default();
    // Segments with long headers are lost, messages with short ones arrive.
    let asked = (0..LOST_MAX).any(|_| {
        m.on_arrived(1360);
        m.on_lost(Time(1), 1372, IP)
    });
    assert!(asked);
    m.search_begin(Time(1), Ctx(7), 1400);
    let (found, _) = asked_beside(&mut m, 1360);
    assert_eq!((found, m.size()), (Found::Changed, 1360), "and they go on");
    // If one of them arrives, its size is not to blame.
    let mut m = PathMtu::default();
    assert!((0..LOST_MAX).any(|_| m.on_lost(Time(1), 1372, IP)));
    m.search_begin(Time(1), Ctx(7), 1400);
    m.on_arrived(1372);
    assert!(m.search.is_none());
}

#[test]
fn small_losses_and_losses_among_arrivals_ask_nothing() {
    let mut m = PathMtu::default();
    assert!(!lose(&mut m, Time(1), 400));
    for _ in 0..50 {
        assert!(!m.on_lost(Time(1), 1400, IP));
        m.on_arrived(1400);
    }
    // Smaller ones that arrive prove nothing.
    let asked = (0..LOST_MAX).any(|_| {
        m.on_arrived(1000);
        m.on_lost(Time(1), 1400, IP)
    });
    assert!(asked);
}

#[test]
fn what_does_not_raise_is_tried_ever_more_rarely() {
    let mut m = PathMtu::default();
    assert!(m.limit(Time(1), 1400) && !m.limit(Time(1), 1400) && !m.limit(Time(1), 2000));
    let mut last = Time(1);
    for round in 0..14 {
        let at = m.next();
        let wait = Span((RAISE_FIRST.0 << round).min(RAISE_MAX.0));
        assert!(at.since(last) >= wait && at.since(last) <= wait + WAIT, "{round}");
        assert!(m.raise_begin(at, Ctx(7), 8900));
        let (found, now) = searched(&mut m, at, 8900, 1400);
        assert_eq!((found, m.size()), (Found::Nothing, 1400));
        last = now;
    }
}

#[test]
fn sizes_keep_blocks_whole() {
    let mut m = PathMtu::default();
    m.search_begin(Time(1), Ctx(7), 8960);
    let sizes = m.sizes(IP, 8960, true);
    assert!(sizes.iter().all(|s| s % ALIGN == 0) && sizes.is_sorted(), "{sizes:?}");
    assert_eq!((sizes[0], *sizes.last().unwrap()), (1152, 8960));
    assert_eq!((next_below(IP, 8900, false), next_below(IP, 100, false)), (8066, 476));
}
