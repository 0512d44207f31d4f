//! RDMA: reads, writes, immediates; content, bounds, rights, credits, regions that go away.

use crate::common::*;
use srd_core::counters::DropReason;
use srd_core::*;

fn rdma(op: Opcode, wr_id: u64, p: &Pair, remote: (MrKey, u64), len: usize) -> SendRequest {
    let mut wr = send_wr(wr_id, p.ah[0], p.qp[1], len);
    (wr.op, wr.rkey, wr.raddr, wr.imm) = (op, remote.0.0, remote.1, 0xABCD);
    wr
}

fn lossy(seed: u64) -> Pair {
    let mut p = Pair::new(seed);
    p.net.faults.loss = 300;
    p.net.faults.duplicate = 300;
    p.net.faults.jitter_ns = 10_000;
    p
}

fn finish(p: &mut Pair, sends: usize) {
    let ok = p.net.run_until(Span::from_secs(20), |n| n.hosts[0].sends_done() == sends);
    assert!(ok, "{:#?} {:?}", p.net.hosts[0].engine.context_stats(), p.net.hosts[0].done);
}

#[test]
fn writes_and_reads_of_megabytes() {
    for seed in 0..5 {
        let mut p = lossy(seed);
        let data = pattern(seed, 3_000_001);
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let remote = p.net.hosts[1].region(vec![0; data.len()], all);
        let wr = rdma(Opcode::Write, 1, &p, remote, data.len());
        let now = p.net.now;
        p.net.hosts[0].post(now, p.qp[0], wr, data.clone()).unwrap();
        finish(&mut p, 1);
        assert!(p.net.hosts[1].region_bytes(remote.0) == data);
        let wr = rdma(Opcode::Read, 2, &p, remote, data.len());
        let now = p.net.now;
        let h = p.net.hosts[0].post(now, p.qp[0], wr, vec![0; data.len()]).unwrap();
        finish(&mut p, 2);
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 2], "seed {seed}");
        assert!(p.net.hosts[0].wr_bytes(h) == data);
        assert!(p.net.hosts[1].done.is_empty(), "RDMA is silent at the responder");
    }
}

#[test]
fn write_with_immediate_waits_for_every_byte() {
    for seed in 0..10 {
        let mut p = lossy(seed);
        let remote = p.net.hosts[1].region(vec![0; 100_000], Access::REMOTE_WRITE);
        for i in 0..20u64 {
            let len = [0, 500, 1024, 1025, 5000][(i % 5) as usize];
            let mut wr = rdma(Opcode::WriteImm, i, &p, remote, len);
            wr.raddr += i * 5000;
            let now = p.net.now;
            p.net.hosts[0].post(now, p.qp[0], wr, pattern(i, len)).unwrap();
        }
        // Receives come late: RNR, several times.
        p.net.run(Span::from_ms(2));
        assert_eq!(p.net.hosts[0].sends_done(), 0);
        for i in 0..20 {
            p.net.hosts[1].recv(p.qp[1], 100 + i, 0);
            p.net.run(Span::from_us(300));
        }
        finish(&mut p, 20);
        let r = &p.net.hosts[1];
        assert_eq!(r.done.len(), 20);
        for c in &r.done {
            assert!(matches!(c.kind, CompletionKind::RecvRdmaImm(_)));
            assert_eq!((c.imm, c.status), (Some(0xABCD), Status::Ok));
        }
        for i in 0..20u64 {
            let len = [0, 500, 1024, 1025, 5000][(i % 5) as usize];
            let at = (i * 5000) as usize;
            assert!(r.region_bytes(remote.0)[at..at + len] == pattern(i, len), "seed {seed} {i}");
        }
        assert!(r.engine.counters().rnr_events > 0);
    }
}

#[test]
fn unsolicited_immediates_need_a_completion_slot() {
    let mut net = Net::pair(5);
    let now = net.now;
    let small = net.hosts[1].engine.cq_create(3).unwrap();
    net.hosts[1].cq = small;
    let qp1 = net.hosts[1].qp(now, QpType::Srd, true);
    let qp0 = net.hosts[0].qp(now, QpType::Srd, false);
    let to = [net.hosts[1].ip, net.hosts[0].ip];
    let ah = [0, 1].map(|i: usize| net.hosts[i].ah(now, to[i]));
    let mut p = Pair { net, qp: [qp0, qp1], ah };
    let remote = p.net.hosts[1].region(vec![0; 100], Access::REMOTE_WRITE);
    for i in 0..50 {
        let wr = rdma(Opcode::WriteImm, i, &p, remote, 10);
        p.net.hosts[0].post(now, qp0, wr, pattern(i, 10)).unwrap();
    }
    finish(&mut p, 50);
    assert_eq!(p.net.hosts[1].done.len(), 50);
    assert!(p.net.hosts[1].done.iter().all(|c| c.kind == CompletionKind::RecvUnsolicited));
    assert_eq!(p.net.hosts[1].engine.cq_reserved(small), Some(0));
}

#[test]
fn many_reads_share_the_credits() {
    let configs = (0..2).map(|i| EngineConfig { reads_per_context_max: 4, ..config(i) });
    let mut p = Pair::with(6, configs.collect());
    p.net.faults.loss = 200;
    let data = pattern(1, 64_000);
    let remote = p.net.hosts[1].region(data.clone(), Access::REMOTE_READ);
    let mut handles = vec![];
    for i in 0..64u64 {
        let mut wr = rdma(Opcode::Read, i, &p, remote, 1000);
        wr.raddr += i * 1000;
        let now = p.net.now;
        handles.push(p.net.hosts[0].post(now, p.qp[0], wr, vec![0; 1000]).unwrap());
    }
    finish(&mut p, 64);
    assert_eq!(p.net.hosts[0].statuses(), vec![Status::Ok; 64]);
    for (i, h) in handles.iter().enumerate() {
        assert!(p.net.hosts[0].wr_bytes(*h) == &data[i * 1000..][..1000]);
    }
}

#[test]
fn refusals_have_their_status() {
    let mut p = Pair::new(7);
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (key, addr) = p.net.hosts[1].region(vec![9; 1000], all);
    let (read_only, _) = p.net.hosts[1].region(vec![9; 1000], Access::REMOTE_READ);
    let now = p.net.now;
    let bad = |p: &Pair| -> Vec<(SendRequest, Status)> {
        let good = rdma(Opcode::Write, 0, p, (key, addr), 100);
        let with = |f: &dyn Fn(&mut SendRequest)| {
            let mut w = good;
            f(&mut w);
            w
        };
        vec![
            (good, Status::Ok),
            (with(&|w| w.rkey ^= 1 << 25), Status::RemoteBadAddress),
            (with(&|w| w.raddr += 901), Status::RemoteBadAddress),
            (with(&|w| w.raddr -= 1), Status::RemoteBadAddress),
            (with(&|w| w.raddr = u64::MAX - 50), Status::RemoteBadAddress),
            (with(&|w| w.rkey = read_only.0), Status::RemoteBadAddress),
            (with(&|w| w.qkey = 9), Status::RemoteBadDestQpn),
            (with(&|w| w.dst_qpn = Qpn(77)), Status::RemoteBadDestQpn),
            (with(&|w| (w.op, w.raddr) = (Opcode::Read, addr + 950)), Status::RemoteBadAddress),
            (with(&|w| w.op = Opcode::Read), Status::Ok),
        ]
    };
    for (wr, expected) in bad(&p) {
        p.net.hosts[0].done.clear();
        p.net.hosts[0].post(now, p.qp[0], wr, vec![1; 100]).unwrap();
        finish(&mut p, 1);
        assert_eq!(p.net.hosts[0].statuses(), [expected], "{wr:?}");
    }
    assert!(p.net.hosts[1].engine.counters().qkey_viol > 0);
    // The responder must know the requester.
    let back = p.ah[1];
    p.net.hosts[1].engine.ah_destroy(p.net.now, back).unwrap();
    p.net.hosts[0].done.clear();
    let wr = rdma(Opcode::Write, 0, &p, (key, addr), 100);
    p.net.hosts[0].post(p.net.now, p.qp[0], wr, vec![1; 100]).unwrap();
    finish(&mut p, 1);
    assert_eq!(p.net.hosts[0].statuses(), [Status::RemoteUnknownPeer]);
}

#[test]
fn features_that_the_peer_does_not_have() {
    let mut configs = vec![config(0), config(1)];
    (configs[1].rdma_read, configs[1].rdma_write) = (false, false);
    let mut p = Pair::with(8, configs);
    let remote = p.net.hosts[1].region(vec![9; 1000], Access::REMOTE_WRITE);
    for op in [Opcode::Write, Opcode::Read] {
        let wr = rdma(op, 0, &p, remote, 100);
        let now = p.net.now;
        p.net.hosts[0].post(now, p.qp[0], wr, vec![1; 100]).unwrap();
    }
    finish(&mut p, 2);
    assert_eq!(p.net.hosts[0].statuses(), [Status::RemoteFeatureMismatch; 2]);
}

#[test]
fn a_region_that_goes_away_ends_its_readers() {
    for seed in 0..10 {
        let mut p = lossy(seed);
        let remote = p.net.hosts[1].region(pattern(1, 2_000_000), Access::REMOTE_READ);
        let wr = rdma(Opcode::Read, 1, &p, remote, 2_000_000);
        let now = p.net.now;
        p.net.hosts[0].post(now, p.qp[0], wr, vec![0; 2_000_000]).unwrap();
        p.net.run(Span::from_us(60));
        assert_eq!(p.net.hosts[0].sends_done(), 0);
        p.net.hosts[1].region_remove(remote.0);
        finish(&mut p, 1);
        assert_eq!(p.net.hosts[0].statuses(), [Status::RemoteBadAddress], "seed {seed}");
        p.net.run(Span::from_secs(2));
        let idle = |h: &Host| h.engine.context_stats().iter().all(|c| !c.is_active);
        assert!(p.net.hosts.iter().all(idle), "{:#?}", p.net.hosts[1].engine.context_stats());
    }
}

/// Hosts 0 and 1 write into regions of host 2.
struct Writers {
    net: Net,
    qp: Vec<Qpn>,
    ah: Vec<AhId>,
}

impl Writers {
    fn new(seed: u64) -> Self {
        Self::to_engines(seed, 1)
    }

    /// Host 2 is one of several engines with the same region keys.
    fn to_engines(seed: u64, engines_of_device: u32) -> Self {
        let target = EngineConfig { engines_of_device, ..config(2) };
        let mut net = Net::new(seed, vec![config(0), config(1), target]);
        let now = net.now;
        let qp = net.hosts.iter_mut().map(|h| h.qp(now, QpType::Srd, false)).collect();
        let to = net.hosts[2].ip;
        let ah = (0..2).map(|i| net.hosts[i].ah(now, to)).collect();
        for i in 0..2 {
            let back = net.hosts[i].ip;
            net.hosts[2].ah(now, back);
        }
        Self { net, qp, ah }
    }

    fn write(&mut self, host: usize, remote: (MrKey, u64)) {
        let mut wr = send_wr(1, self.ah[host], self.qp[2], 1);
        (wr.op, wr.rkey, wr.raddr) = (Opcode::Write, remote.0.0, remote.1);
        let now = self.net.now;
        self.net.hosts[host].post(now, self.qp[host], wr, vec![7]).unwrap();
    }

    fn ended(&self, host: usize) -> usize {
        self.net.hosts[host].sends_done()
    }
}

#[test]
fn who_guesses_keys_waits_and_nobody_else() {
    guess_keys(1);
}

/// The engines of a device have the same keys, and judge no more guesses than one engine.
#[test]
fn engines_with_the_same_keys_share_the_budget_of_guesses() {
    guess_keys(4);
}

fn guess_keys(engines: u32) {
    let mut w = Writers::to_engines(3, engines);
    let remote = w.net.hosts[2].region(vec![0; 64], Access::REMOTE_WRITE);
    let mut rng = Rng::from_seed(99);
    // Eight guesses at a time, until no answer comes.
    let guess = |w: &mut Writers, rng: &mut Rng, rounds: u32| {
        for _ in 0..rounds {
            let ended = w.ended(0);
            for _ in 0..8 {
                w.write(0, (MrKey(rng.next_u32()), remote.1));
            }
            if !w.net.run_until(Span::from_us(500), |n| n.hosts[0].sends_done() == ended + 8) {
                break;
            }
        }
        w.net.hosts[2].engine.counters().rkey_guesses
    };
    let start = w.net.now;
    let judged = guess(&mut w, &mut rng, 1000);
    // 1,024 and the first, and one for each 8 ms; of several engines, each has its share.
    let engines = u64::from(engines);
    let more = w.net.now.since(start).0 / (8_000_000 * engines);
    let least = 1024 / engines + 1;
    assert!((least..=least + 1 + more).contains(&judged), "{judged} guesses judged");
    w.net.run(Span::from_ms(80));
    let later = w.net.hosts[2].engine.counters().rkey_guesses - judged;
    assert!(later <= 10 / engines + 1, "{later} more in 80 ms");
    let drops = w.net.hosts[2].engine.counters().drops[DropReason::KeyGuessing as usize];
    assert!(drops > 0);
    // Another peer writes as ever meanwhile, and what it gets wrong it hears at once.
    for _ in 0..100 {
        w.write(1, remote);
    }
    w.write(1, (MrKey(remote.0.0 ^ 1), remote.1));
    let ok = w.net.run_until(Span::from_ms(20), |n| n.hosts[1].sends_done() == 101);
    assert!(ok, "{} of 101 ended", w.ended(1));
    let statuses = w.net.hosts[1].statuses();
    assert_eq!(statuses.iter().filter(|&&s| s == Status::Ok).count(), 100);
}

/// A program has one key wrong and writes with it, in thousands of packets. Each packet counted as
/// a guess of its own: after 1,024 of them its context waited 8 ms for each packet that asks for
/// memory, and requests with good keys waited with them.
#[test]
fn a_wrong_key_that_is_repeated_is_one_guess() {
    let mut w = Writers::new(5);
    let remote = w.net.hosts[2].region(vec![0; 64], Access::REMOTE_WRITE);
    for (n, wrong) in [0, remote.0.0 ^ 1].into_iter().cycle().take(200).enumerate() {
        let mut wr = send_wr(1, w.ah[0], w.qp[2], 40_000);
        (wr.op, wr.rkey) = (Opcode::WriteImm, wrong);
        let now = w.net.now;
        w.net.hosts[0].post(now, w.qp[0], wr, vec![0; 40_000]).unwrap();
        if n % 20 == 19 {
            w.write(0, remote);
        }
    }
    let ok = w.net.run_until(Span::from_ms(20), |n| n.hosts[0].sends_done() == 210);
    assert!(ok, "{} of 210 ended", w.ended(0));
    let statuses = w.net.hosts[0].statuses();
    assert_eq!(statuses.iter().filter(|&&s| s == Status::Ok).count(), 10);
    assert_eq!(statuses.iter().filter(|&&s| s == Status::RemoteBadAddress).count(), 200);
    let n = w.net.hosts[2].engine.counters();
    assert_eq!((n.rkey_guesses, n.drops[DropReason::KeyGuessing as usize]), (2, 0));
}

#[test]
fn stale_keys_are_refused_without_punishment() {
    let mut w = Writers::new(4);
    let old = w.net.hosts[2].region(vec![0; 64], Access::REMOTE_WRITE);
    w.net.hosts[2].region_remove(old.0);
    let new = w.net.hosts[2].region(vec![0; 64], Access::REMOTE_WRITE);
    for n in 1..=400 {
        for _ in 0..8 {
            w.write(0, old);
        }
        let ok = w.net.run_until(Span::from_ms(20), |net| net.hosts[0].sends_done() == 8 * n);
        assert!(ok, "{} of {} ended", w.ended(0), 8 * n);
    }
    assert!(w.net.hosts[0].statuses().iter().all(|&s| s == Status::RemoteBadAddress));
    w.write(0, new);
    let ok = w.net.run_until(Span::from_ms(20), |n| n.hosts[0].sends_done() == 3201);
    assert!(ok && w.net.hosts[0].statuses()[3200] == Status::Ok);
    assert_eq!(w.net.hosts[2].engine.counters().rkey_guesses, 0);
}
