//! Contexts that never rest are closed and opened anew, and no request notices.

use crate::common::*;
use srd_core::*;

/// Requests of each host that are outstanding all the time.
const DEPTH: usize = 8;
/// Bytes of a read: several packets.
const READ_BYTES: usize = 4_000;

/// Two hosts that never rest, and the requests that each has posted.
struct Busy {
    p: Pair,
    /// What each host lets the other read.
    regions: [(MrKey, u64); 2],
    posted: [usize; 2],
    /// Largest distance between two completions of a host.
    pause: Span,
    ended: [(usize, Time); 2],
}

impl Busy {
    fn new(seed: u64, faults: impl Fn(&mut Faults)) -> Self {
        let mut p = Pair::opened(seed, 500);
        faults(&mut p.net.faults);
        let ended = [0, 1].map(|host| (p.net.hosts[host].sends_done(), p.net.now));
        let regions = [0, 1].map(|host: usize| {
            p.net.hosts[host].region(vec![host as u8; READ_BYTES], Access::REMOTE_READ)
        });
        Self { p, regions, posted: ended.map(|e| e.0), pause: Span::ZERO, ended }
    }

    /// Keeps both busy for a while.
    fn run(&mut self, span: Span) {
        let until = self.p.net.now + span;
        while self.p.net.now < until {
            for host in 0..2 {
                let done = self.p.net.hosts[host].sends_done();
                if done > self.ended[host].0 {
                    self.pause = self.pause.max(self.p.net.now.since(self.ended[host].1));
                    self.ended[host] = (done, self.p.net.now);
                }
                while self.posted[host] < done + DEPTH {
                    let n = self.posted[host] as u64;
                    self.post(host, n);
                    self.posted[host] += 1;
                }
            }
            self.p.net.run(Span::from_us(20));
        }
    }

    /// Posts request `n`: each fourth one is a read.
    fn post(&mut self, host: usize, n: u64) {
        let (qp, now) = (self.p.qp, self.p.net.now);
        if !n.is_multiple_of(4) {
            self.p.net.hosts[1 - host].recv(qp[1 - host], n, 500);
            self.p.send(host, n, vec![n as u8; 1 + (n as usize * 37) % 499]).unwrap();
            return;
        }
        let (rkey, raddr) = self.regions[1 - host];
        let wr = send_wr(n, self.p.ah[host], qp[1 - host], READ_BYTES);
        let wr = SendRequest { op: Opcode::Read, rkey: rkey.0, raddr, ..wr };
        self.p.net.hosts[host].post(now, qp[host], wr, vec![9; READ_BYTES]).unwrap();
    }

    fn tags(&self) -> [u32; 2] {
        [self.p.net.tag_for(0), self.p.net.tag_for(1)]
    }

    fn renew(&mut self, host: usize, patience: Span) {
        let (tag, now) = (self.tags()[1 - host], self.p.net.now);
        self.p.net.hosts[host].engine.context_renew(now, tag, patience);
    }

    /// Lets all requests end, which must have succeeded.
    fn end(&mut self) {
        let posted = self.posted;
        let done = |net: &Net| (0..2).all(|host| net.hosts[host].sends_done() == posted[host]);
        assert!(self.p.net.run_until(Span::from_secs(2), done), "{posted:?}");
        for host in &self.p.net.hosts {
            let wrong = host.statuses().into_iter().filter(|s| *s != Status::Ok).count();
            assert_eq!(wrong, 0);
        }
    }
}

#[test]
fn a_context_that_never_rests_is_opened_anew_and_no_request_notices() {
    for (seed, host) in [(1, 0), (2, 1)] {
        let mut b = Busy::new(seed, |_| {});
        b.run(Span::from_ms(2));
        let (before, retry) = (b.tags(), b.p.net.hosts[0].engine.config().loss.open_retry);
        b.renew(host, Span::from_ms(50));
        b.run(Span::from_ms(30));
        let after = b.tags();
        assert!(before[0] != after[0] && before[1] != after[1], "{before:?}, {after:?}");
        assert!(
            b.pause < retry.scale(4, 1),
            "no longer than a few times open_retry: {:?}",
            b.pause
        );
        b.end();
    }
}

#[test]
fn renewals_lose_and_repeat_nothing_on_a_bad_network() {
    let mut opened = 0;
    for seed in 0..8 {
        let mut b = Busy::new(seed, |f| {
            (f.loss, f.duplicate, f.jitter_ns) = (300, 300, 20_000);
        });
        for round in 0..6 {
            b.run(Span::from_ms(5));
            b.renew(round % 2, Span::from_ms(20));
            if round == 3 {
                b.renew(0, Span::from_ms(20));
            }
        }
        b.run(Span::from_ms(40));
        b.end();
        opened += b.p.net.hosts[0].engine.counters().contexts_opened;
    }
    assert!(opened > 8 * 4, "most renewals are made: {opened}");
}

/// The request that has begun waits for a receive that the peer posts when it has the next one.
#[test]
fn who_waits_for_what_has_not_begun_goes_on() {
    let mut p = Pair::opened(3, 500);
    let done = p.net.hosts[0].sends_done();
    p.send(0, 50, vec![1; 400]).unwrap();
    p.net.run(Span::from_ms(1));
    assert_eq!(p.net.hosts[0].sends_done(), done, "there is no receive");
    let (tag, now) = (p.net.tag_for(1), p.net.now);
    p.net.hosts[0].engine.context_renew(now, tag, Span::from_ms(30));
    p.send(0, 51, vec![2; 300]).unwrap();
    p.net.run(Span::from_ms(60));
    assert_eq!(p.net.tag_for(1), tag, "it was given up");
    for i in 0..2 {
        p.net.hosts[1].recv(p.qp[1], 60 + i, 500);
    }
    let all = |net: &Net| net.hosts[0].sends_done() == done + 2;
    assert!(p.net.run_until(Span::from_secs(2), all));
    assert!(p.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
}
