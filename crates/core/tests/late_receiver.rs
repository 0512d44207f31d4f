//! Many sends to a program whose receives come late: MPI's eager messages to a rank that computes.
//! Refusals, however many, are no losses.

use crate::common::*;
use srd_core::*;

/// What a run took.
struct Outcome {
    /// Reliable packets sent again under the same number.
    copies: u64,
    packets: u64,
    /// Counted work of both ends per packet. An acknowledgment says again of up to 512 PSNs that
    /// they have arrived while one before them is missing: that is the most it can grow to.
    steps_per_packet: u64,
}

fn outcome(net: &Net) -> Outcome {
    let sum = |of: fn(&counters::Counters) -> u64| {
        net.hosts.iter().map(|h| of(h.engine.counters())).sum()
    };
    let packets: u64 = sum(|c| c.tx_pkts);
    let steps: u64 = sum(|c| c.ack_steps + c.timer_steps);
    Outcome { copies: sum(|c| c.retrans_pkts), packets, steps_per_packet: steps / packets }
}

impl Outcome {
    /// What holds where nothing was lost.
    fn require_frugal(&self, what: &str) {
        let Self { copies, packets, .. } = self;
        assert!(copies * 100 <= *packets, "{what}: {copies} copies among {packets} packets");
        self.require_constant_work(what);
    }

    fn require_constant_work(&self, what: &str) {
        let steps = self.steps_per_packet;
        assert!(steps <= 64, "{what}: {steps} steps per packet");
    }
}

/// Two hosts, and `n` numbered messages posted to the second, which has no receive.
fn posted(seed: u64, n: usize) -> Pair {
    let mut p = Pair::new(seed);
    for i in 0..n {
        p.send(0, i as u64, (i as u32).to_be_bytes().to_vec()).unwrap();
    }
    p
}

fn receive(p: &mut Pair, i: usize) {
    p.net.hosts[1].recv(p.qp[1], i as u64, 100);
}

/// Each message arrived once, and each request succeeded.
fn require_all(p: &Pair, n: usize, what: &str) {
    assert_eq!(p.net.hosts[0].statuses(), vec![Status::Ok; n], "{what}");
    let mut got = p.net.hosts[1].received.clone();
    got.sort();
    let sent: Vec<_> = (0..n).map(|i| (i as u32).to_be_bytes().to_vec()).collect();
    assert_eq!(got, sent, "{what}");
}

const COUNTS: [usize; 4] = [16, 64, 1024, 4000];

/// All receives come at once, after 20 ms.
#[test]
fn receives_that_come_late_cost_no_copies() {
    for n in COUNTS {
        let mut p = posted(1, n);
        p.net.run(Span::from_ms(20));
        let what = format!("{n} sends, none received yet");
        assert!(p.net.hosts[1].received.is_empty());
        outcome(&p.net).require_frugal(&what);
        for i in 0..n {
            receive(&mut p, i);
        }
        assert!(p.net.run_until(Span::from_secs(2), |n_| n_.hosts[0].sends_done() == n), "{what}");
        let what = format!("{n} sends");
        require_all(&p, n, &what);
        outcome(&p.net).require_frugal(&what);
    }
}

/// Receives come one by one, while packets arrive in any order: accepted and refused PSNs mix.
#[test]
fn receives_given_one_by_one_cost_no_copies() {
    for (k, n) in COUNTS.into_iter().enumerate() {
        for jitter_ns in [0, 4_000] {
            let mut p = posted(10 + k as u64, n);
            p.net.faults.jitter_ns = jitter_ns;
            for i in 0..n {
                p.net.run(Span::from_us(7));
                receive(&mut p, i);
            }
            let done = p.net.run_until(Span::from_secs(2), |n_| n_.hosts[0].sends_done() == n);
            let what = format!("{n} sends, jitter of {jitter_ns} ns");
            assert!(done, "{what}");
            require_all(&p, n, &what);
            outcome(&p.net).require_frugal(&what);
        }
    }
}

/// With losses in both directions every copy is owed to a loss, and the work stays bounded.
#[test]
fn receives_that_come_late_behind_losses() {
    for (k, n) in COUNTS.into_iter().enumerate() {
        for loss in [100, 1_000] {
            let mut p = posted(20 + k as u64, n);
            (p.net.faults.loss, p.net.faults.jitter_ns) = (loss, 3_000);
            for i in 0..n {
                p.net.run(Span::from_us(3));
                receive(&mut p, i);
            }
            let done = p.net.run_until(Span::from_secs(20), |n_| n_.hosts[0].sends_done() == n);
            let what = format!("{n} sends, {loss} of 10,000 lost");
            assert!(done, "{what}");
            require_all(&p, n, &what);
            let out = outcome(&p.net);
            let owed = 2 * p.net.dropped + out.packets / 50;
            assert!(out.copies <= owed, "{what}: {} copies for {}", out.copies, p.net.dropped);
            out.require_constant_work(&what);
        }
    }
}

/// Four verdicts in no order fill the list of an acknowledgment: what finds no room in it has
/// arrived all the same, and its sender asks for it.
#[test]
fn verdicts_that_find_no_room_are_asked_for() {
    for seed in 0..4 {
        for loss in [0, 200] {
            let n = 3000;
            let mut p = Pair::new(30 + seed);
            p.net.faults.loss = loss;
            let now = p.net.now;
            let late = p.net.hosts[1].qp(now, QpType::Srd, false);
            let mut rng = Rng::from_seed(seed);
            let (mut expected, mut ours) = (vec![], 0);
            for i in 0..n {
                let mut wr = send_wr(i, p.ah[0], p.qp[1], 4);
                expected.push(match rng.below(4) {
                    0 => {
                        wr.dst_qpn = late;
                        Status::Ok
                    }
                    1 => {
                        wr.qkey ^= 1;
                        Status::RemoteBadDestQpn
                    }
                    2 => {
                        wr.len = 101;
                        Status::RemoteBadLength
                    }
                    _ => {
                        ours += 1;
                        Status::Ok
                    }
                });
                let data = vec![0; wr.len as usize];
                p.net.hosts[0].post(now, p.qp[0], wr, data).unwrap();
            }
            // One more than it takes: a message that is too long finds a receive, and leaves it.
            for i in 0..=ours {
                receive(&mut p, i);
            }
            p.net.run(Span::from_ms(10));
            for i in 0..n {
                p.net.hosts[1].recv(late, i, 100);
            }
            let all = |net: &Net| net.hosts[0].sends_done() == n as usize;
            let what = format!("seed {seed}, {loss} of 10,000 lost");
            assert!(p.net.run_until(Span::from_secs(5), all), "{what}");
            let mut done = p.net.hosts[0].done.clone();
            done.sort_by_key(|c| c.wr_id);
            let statuses: Vec<_> = done.iter().map(|c| c.status).collect();
            assert_eq!(statuses, expected, "{what}");
            let asked = p.net.hosts[0].engine.counters().probe_pkts;
            let out = outcome(&p.net);
            let often = asked * 20 > out.packets;
            assert!(asked > 0 && !often, "{what}: asked {asked} times of {}", out.packets);
            match loss {
                0 => out.require_frugal(&what),
                _ => out.require_constant_work(&what),
            }
        }
    }
}
