//! One device over two interfaces ("rails"): even paths leave by one, odd ones by the other. Rule
//! CC-46: a rail that dies is left at once, not path by path.

use crate::common::*;
use core::ops::RangeInclusive;
use srd_core::*;

/// How long both rails are well before something happens to them.
const BEFORE: Span = Span::from_ms(10);

/// Chances in 10,000 that a packet is lost, of each host on each rail.
type Loss = [[u32; 2]; 2];

const UP: Loss = [[0, 0], [0, 0]];
const CUT: Loss = [[0, 10_000], [0, 10_000]];
const CUT_FORTH: Loss = [[0, 10_000], [0, 0]];
const CUT_BACK: Loss = [[0, 0], [0, 10_000]];
const OTHER_CUT: Loss = [[10_000, 0], [10_000, 0]];
/// Each rail lives in one direction only.
const CROSSED: Loss = [[0, 10_000], [10_000, 0]];
const TENTH: Loss = [[1_000, 1_000], [1_000, 1_000]];
const CUT_TENTH: Loss = [[1_000, 10_000], [1_000, 10_000]];
const THIRD: Loss = [[0, 3_000], [0, 3_000]];

/// What is sent, and on what.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Hosts on sockets, with a round trip of 100 us; else cards, with one of 10 us.
    sockets: bool,
    /// Messages of each host that wait for their completion at a time.
    deep: [usize; 2],
    loss: Loss,
    /// How long packets are lost like this.
    with: Span,
}

/// What came of it, over some seeds.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Messages of host 0 that were done.
    done: usize,
    /// Longest time without one.
    pause: Span,
    /// Packets that host 0 sent again.
    again: u64,
}

/// Engines that know of their two rails, and such that do not.
const KNOWN: u8 = 2;
const UNKNOWN: u8 = 1;

/// Two hosts with this many rails.
fn pair(seed: u64, sockets: bool, rails: u8) -> Pair {
    let config = |i: usize| {
        let mut c = config(i);
        if sockets {
            c = EngineConfig::sockets(ip(i), 0, 1024);
            c.line_unknown();
        }
        c.path.rails = rails;
        c
    };
    let mut p = Pair::with(seed, vec![config(0), config(1)]);
    // Packets are late by chance, so that the paths in use change.
    (p.net.faults.delay_ns, p.net.faults.jitter_ns) =
        if sockets { (45_000, 10_000) } else { (4_500, 1_000) };
    p
}

/// Keeps messages under way for `span`, `deep` of each host, and adds to `sum` what came of it.
fn pass(p: &mut Pair, deep: [usize; 2], span: Span, sum: &mut Figures) {
    let again = p.net.hosts[0].engine.counters().retrans_pkts;
    let end = p.net.now + span;
    let mut last = p.net.now;
    let mut posted = [0; 2];
    loop {
        for i in 0..2 {
            let ends = p.net.hosts[i].done.drain(..);
            let sends = ends.filter(|c| matches!(c.kind, CompletionKind::Send(..)));
            let done = sends.inspect(|c| assert_eq!(c.status, Status::Ok)).count();
            posted[i] -= done;
            if i == 0 && done > 0 {
                sum.done += done;
                sum.pause = sum.pause.max(p.net.now.since(last));
                last = p.net.now;
            }
            p.net.hosts[i].received.clear();
            while posted[i] < deep[i] && p.net.now < end {
                p.net.hosts[1 - i].recv(p.qp[1 - i], 1, 1000);
                p.send(i, 1, vec![1; 1000]).unwrap();
                posted[i] += 1;
            }
        }
        if p.net.now >= end && posted == [0; 2] {
            break;
        }
        assert!(p.net.step(), "what was posted ends");
    }
    sum.again += p.net.hosts[0].engine.counters().retrans_pkts - again;
}

impl Case {
    fn run(&self, rails: u8, seeds: RangeInclusive<u64>) -> Figures {
        let mut sum = Figures::default();
        for seed in seeds {
            let mut p = pair(seed, self.sockets, rails);
            if self.loss == UP {
                // What is late may be sent twice.
                p.net.faults.jitter_ns = 0;
            }
            pass(&mut p, self.deep, BEFORE, &mut Figures::default());
            p.net.faults.rail_loss = self.loss.to_vec();
            pass(&mut p, self.deep, self.with, &mut sum);
        }
        sum
    }
}

/// Paths of host 0 that are in use, of each rail.
fn live(p: &Pair) -> [usize; 2] {
    let stats = p.net.hosts[0].engine.path_stats(p.net.hosts[1].ip);
    [0, 1].map(|rail| {
        let own = stats.iter().filter(|s| s.path % 2 == rail);
        own.filter(|s| matches!(s.state, "live" | "penalised")).count()
    })
}

/// The table of docs/congestion.md: `cargo test --release -p srd-core --test main
/// rails_in_figures -- --nocapture`; as a test, of one seed.
#[test]
fn rails_in_figures() {
    let seeds = std::env::var("SRD_TEST_SEEDS").ok().and_then(|s| s.parse().ok());
    let (seeds, with) = seeds.map_or((1, Span::from_ms(20)), |n| (n, Span::from_ms(300)));
    let losses = [
        ("both up", UP),
        ("one cut", CUT),
        ("cut on the way there", CUT_FORTH),
        ("cut on the way back", CUT_BACK),
        ("both lose 10 %", TENTH),
        ("10 %, one cut", CUT_TENTH),
        ("one loses 30 %", THIRD),
    ];
    for (sockets, deep) in
        [(true, [1, 0]), (true, [4, 0]), (true, [32, 0]), (true, [4, 4]), (false, [1, 0])]
    {
        for (name, loss) in losses {
            let case = Case { sockets, deep, loss, with };
            let [without, known] = [UNKNOWN, KNOWN].map(|rails| case.run(rails, 1..=seeds));
            let ms = |f: Figures| f.pause.0 as f64 / 1e6;
            println!(
                "sockets {sockets}, {deep:?} messages, {name}: {} done, pause {:.3} ms, {} again; \
                 without the rule {}, {:.3} ms, {}",
                known.done,
                ms(known),
                known.again,
                without.done,
                ms(without),
                without.again
            );
        }
    }
}

/// Half of the paths die at once, in both directions or in one. Without the rule a sender with few
/// packets in flight found them one at a time: each loss was silence, which blames nobody, and half
/// of the acknowledgments died as well.
#[test]
fn a_rail_that_dies_is_left_within_a_few_timeouts() {
    for (sockets, deep) in [(true, [1, 0]), (true, [4, 0]), (true, [4, 4]), (false, [1, 0])] {
        for loss in [CUT, CUT_FORTH, CUT_BACK, OTHER_CUT] {
            let case = Case { sockets, deep, loss, with: Span::from_ms(60) };
            let f = case.run(KNOWN, 1..=5);
            // The least timeout is 2 ms on sockets, and 30 us on cards.
            let most = if sockets { Span::from_ms(4) } else { Span::from_us(150) };
            assert!(f.pause < most, "{case:?}: {f:?}");
        }
    }
    let case = Case { sockets: true, deep: [4, 0], loss: CUT, with: Span::from_ms(60) };
    let [known, without] = [KNOWN, UNKNOWN].map(|rails| case.run(rails, 1..=5));
    // Without the rule, copies and their probes find the other rail, one path at a time (CC-52).
    assert!(known.pause < without.pause, "{known:?}, without {without:?}");
    assert!(known.again * 4 < without.again, "{known:?}, without {without:?}");
    assert!(known.done * 5 > without.done * 6, "{known:?}, without {without:?}");
}

/// Nothing changes while both rails are well, to the last packet.
#[test]
fn rails_that_are_up_are_used_as_if_nobody_knew_of_them() {
    for (sockets, deep) in [(true, [1, 0]), (true, [32, 0]), (true, [4, 4]), (false, [4, 4])] {
        let with = Span::from_ms(if sockets { 60 } else { 10 });
        let case = Case { sockets, deep, loss: UP, with };
        let [known, without] = [KNOWN, UNKNOWN].map(|rails| case.run(rails, 1..=2));
        let text = |f: Figures| format!("{f:?}");
        assert_eq!(text(known), text(without), "{case:?}");
    }
}

/// Rails that lose packets at random are not dead.
#[test]
fn rails_that_lose_some_packets_carry_as_much_as_before() {
    for (deep, loss) in [([4, 0], TENTH), ([32, 0], TENTH), ([4, 0], THIRD), ([32, 0], THIRD)] {
        let case = Case { sockets: true, deep, loss, with: Span::from_ms(100) };
        let [known, without] = [KNOWN, UNKNOWN].map(|rails| case.run(rails, 1..=6));
        assert!(known.done * 100 > without.done * 95, "{case:?}: {known:?}, without {without:?}");
    }
}

/// All paths of the rail are retired together; when it is repaired, probes bring all back. Then the
/// other rail may die.
#[test]
fn a_rail_that_is_repaired_returns() {
    for seed in 1..=3 {
        let mut p = pair(seed, true, KNOWN);
        for (cut, dead) in [(CUT, 1), (OTHER_CUT, 0)] {
            pass(&mut p, [32, 0], BEFORE, &mut Figures::default());
            assert_eq!(live(&p), [32, 32], "seed {seed}");
            p.net.faults.rail_loss = cut.to_vec();
            let mut f = Figures::default();
            pass(&mut p, [32, 0], Span::from_ms(10), &mut f);
            let left = live(&p);
            // The rail that was dead before has few of the paths that are in use.
            assert!(left[dead] == 0 || dead == 0, "seed {seed}: {left:?}");
            assert!(left[1 - dead] > 24, "seed {seed}: {left:?}");
            assert!(f.pause < Span::from_ms(4), "seed {seed}: {f:?}");
            p.net.faults.rail_loss.clear();
            pass(&mut p, [32, 0], Span::from_ms(300), &mut f);
        }
        assert_eq!(live(&p), [32, 32], "seed {seed}");
    }
}

/// Silence of both rails is not the death of either: a peer that is away for a while comes back to
/// the paths that it had.
#[test]
fn no_rail_is_blamed_for_a_peer_that_is_away() {
    for seed in 1..=5 {
        let mut p = pair(seed, true, KNOWN);
        pass(&mut p, [4, 0], BEFORE, &mut Figures::default());
        for i in 0..4 {
            p.net.hosts[1].recv(p.qp[1], 1, 1000);
            p.send(0, i, vec![1; 1000]).unwrap();
        }
        p.net.faults.dead = true;
        p.net.run(Span::from_ms(50));
        p.net.faults.dead = false;
        assert!(p.net.run_until(Span::from_ms(200), |n| n.hosts[0].sends_done() == 4));
        p.net.hosts[0].done.clear();
        pass(&mut p, [4, 0], BEFORE, &mut Figures::default());
        assert_eq!(live(&p), [32, 32], "seed {seed}");
    }
}

/// Time until the first message of a pair is done, with the rails as `loss` says from the start:
/// the most over 100 seeds.
fn opening(sockets: bool, loss: Loss, both: bool) -> Span {
    let mut most = Span::ZERO;
    for seed in 1..=100 {
        let mut p = pair(seed, sockets, KNOWN);
        p.net.faults.rail_loss = loss.to_vec();
        let began = p.net.now;
        for i in 0..=usize::from(both) {
            p.net.hosts[1 - i].recv(p.qp[1 - i], 1, 1000);
            p.send(i, 1, vec![1; 1000]).unwrap();
        }
        assert!(p.net.run_until(Span::from_ms(5_000), |n| n.hosts[0].sends_done() == 1));
        most = most.max(p.net.now.since(began));
    }
    most
}

/// A rail that is dead while a context opens costs one Open: the next one, and its answer, leave by
/// the other rail. Each was sent on a path drawn at random, so that half of the Opens and half of
/// the answers died: up to 0.8 s on sockets, and 86 ms in the mean of 100 seeds.
#[test]
fn an_open_takes_the_other_rail_at_its_first_repetition() {
    for (sockets, both) in [(true, false), (true, true), (false, false), (false, true)] {
        for loss in [UP, CUT, CUT_FORTH, CUT_BACK, OTHER_CUT] {
            let most = opening(sockets, loss, both);
            // The second Open leaves after 5 ms on sockets, and after 40 us on cards.
            let retry = Span::from_us(if sockets { 5_000 } else { 40 });
            let opens = if loss == OTHER_CUT { retry } else { Span::ZERO };
            let work = Span::from_us(if sockets { 4_000 } else { 200 });
            assert!(most < opens + work, "sockets {sockets}, both {both}, {loss:?}: {most:?}");
        }
    }
}

/// Each rail lives in one direction only. Acknowledgments of what came by one have to leave by the
/// other: they kept to the rail by which the peer was heard, until the work ended with an error.
#[test]
fn rails_that_live_in_opposite_directions_carry_work() {
    for (sockets, deep) in [(true, [1, 0]), (true, [4, 0]), (true, [32, 0]), (true, [4, 4])] {
        for loss in [CROSSED, [CROSSED[1], CROSSED[0]]] {
            let case = Case { sockets, deep, loss, with: Span::from_ms(100) };
            let f = case.run(KNOWN, 1..=10);
            assert!(f.pause < Span::from_ms(3), "{case:?}: {f:?}");
            assert!(f.done > 9_000 * deep[0], "{case:?}: {f:?}");
        }
    }
}

/// The networks are not alike: round trips are ten times longer on the one that is left. They are
/// no queue: the least round trip of the dead rail, kept for up to 10 s, slowed the sender down to
/// less than half of this.
#[test]
fn the_longer_rail_that_is_left_is_used_in_full() {
    let mut f = Figures::default();
    for seed in 1..=3 {
        let mut p = pair(seed, true, KNOWN);
        p.net.faults.rail_delay_ns = [0, 450_000];
        pass(&mut p, [32, 0], BEFORE, &mut Figures::default());
        p.net.faults.rail_loss = OTHER_CUT.to_vec();
        pass(&mut p, [32, 0], Span::from_ms(300), &mut f);
    }
    // 32 messages in each millisecond.
    assert!(f.done > 3 * 300 * 32 * 8 / 10, "{f:?}");
}
