//! Mistakes that the fault checker found, each as a small story.

use crate::common::door;
use crate::common::*;
use srd_core::*;

fn peer_of(h: &Host, i: usize) -> usize {
    h.engine.context_stats().iter().filter(|c| c.peer.ip == ip(i)).count()
}

/// The answer to a Close carries no transmission number. It was dropped as a replay, so that every
/// close took a second round, and work posted meanwhile could be aborted.
#[test]
fn a_close_needs_one_round_trip() {
    let mut configs: Vec<_> = (0..6).map(config).collect();
    configs[0].contexts_max = 4;
    configs[0].idle_after = Span::from_us(100);
    let mut net = Net::new(21, configs);
    let now = net.now;
    let server = net.hosts[0].qp(now, QpType::Srd, false);
    let to = net.hosts[0].ip;
    for i in 1..6 {
        let t = net.now;
        net.hosts[0].recv(server, i as u64, 100);
        let qp = net.hosts[i].qp(t, QpType::Srd, false);
        let ah = net.hosts[i].ah(t, to);
        net.hosts[i].post(t, qp, send_wr(1, ah, server, 10), pattern(1, 10)).unwrap();
        assert!(net.run_until(Span::from_ms(90), |n| n.hosts[i].sends_done() == 1));
        net.run(Span::from_ms(1));
    }
    let c = net.hosts[0].engine.counters();
    assert!(c.contexts_closed > 0, "{c:#?}");
    assert_eq!(
        (c.resets_received, c.drops[counters::DropReason::Replay as usize]),
        (0, 0),
        "{c:#?}"
    );
    let known: usize = (1..6).map(|i| peer_of(&net.hosts[i], 0)).sum();
    assert_eq!(known, net.hosts[0].engine.context_stats().len(), "both sides agree");
}

/// Two engines at one address share what may be in flight. One of them dies with the whole of it:
/// the other one must not wait.
#[test]
fn a_dead_engine_does_not_hold_up_its_neighbour() {
    let mut configs: Vec<_> = [0, 1, 1].map(config).into();
    configs[2].slot = 1;
    configs[0].rate.policy = config::RatePolicy::Fixed;
    configs[0].rate.inflight_fixed_bytes = 2000;
    let mut net = Net::new(22, configs);
    let now = net.now;
    let dst = [1, 2].map(|i: usize| net.hosts[i].qp(now, QpType::Srd, false));
    let qp = net.hosts[0].qp(now, QpType::Srd, false);
    let to = net.hosts[1].ip;
    let ah = net.hosts[0].ah(now, to);
    for i in 0..100 {
        net.hosts[1].recv(dst[0], i, 1024);
        net.hosts[2].recv(dst[1], i, 1024);
    }
    for (k, d) in dst.into_iter().enumerate() {
        net.hosts[0].post(now, qp, send_wr(k as u64, ah, d, 1000), pattern(1, 1000)).unwrap();
    }
    assert!(net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == 2));
    // The first engine is gone without a word: nobody receives at its port.
    let dead = net.hosts.remove(1);
    for d in dst {
        let now = net.now;
        for k in 0..10 {
            net.hosts[0].post(now, qp, send_wr(k, ah, d, 1000), pattern(k, 1000)).unwrap();
        }
        net.run(Span::from_ms(5));
    }
    let ok = |n: &Net| n.hosts[0].statuses().iter().filter(|s| **s == Status::Ok).count();
    assert!(net.run_until(Span::from_ms(100), |n| ok(n) == 12), "{} of 12", ok(&net));
    assert!(net.run_until(Span::from_ms(400), |n| n.hosts[0].sends_done() == 22));
    let given_up = |s: &&Status| **s == Status::LocalUnrespRemote;
    assert_eq!(net.hosts[0].statuses().iter().filter(given_up).count(), 10);
    drop(dead);
}

/// A queue pair that drains holds its work back; the peer dies. Work that cannot leave ends, too.
#[test]
fn work_that_cannot_leave_notices_a_dead_peer() {
    let mut p = Pair::new(23);
    p.net.hosts[1].recv(p.qp[1], 0, 100);
    p.send(0, 0, pattern(1, 50)).unwrap();
    assert!(p.net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == 1));
    p.send(0, 1, pattern(1, 50)).unwrap();
    let now = p.net.now;
    let drain = QpModify { state: Some(QpState::Sqd), ..QpModify::default() };
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], drain).unwrap();
    p.net.faults.dead = true;
    assert!(p.net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 2));
    assert_eq!(p.net.hosts[0].statuses()[1], Status::LocalUnrespRemote);
}

/// A write with immediate is given up while segments of it are still under way. They arrive after
/// the word that it was given up, and must not start it again: nobody would end it, and its place
/// in the responder's table would be lost for good.
#[test]
fn late_segments_do_not_revive_a_message_that_was_given_up() {
    for seed in 0..40 {
        let mut configs: Vec<_> = (0..2).map(config).collect();
        configs[1].write_imms_per_context_max = 1;
        let mut p = Pair::with(seed, configs);
        p.net.faults.jitter_ns = 300_000;
        let (key, addr) = p.net.hosts[1].region(vec![0; 8192], Access::REMOTE_WRITE);
        let back = p.net.hosts[0].ip;
        let now = p.net.now;
        p.net.hosts[1].ah(now, back);
        for i in 0..10 {
            p.net.hosts[1].recv(p.qp[1], i, 100);
        }
        let wr = |id| SendRequest {
            op: Opcode::WriteImm,
            rkey: key.0,
            raddr: addr,
            ..send_wr(id, p.ah[0], p.qp[1], 8192)
        };
        let given_up = p.net.hosts[0].qp(now, QpType::Srd, false);
        p.net.hosts[0].post(now, given_up, wr(0), vec![0; 8192]).unwrap();
        let under_way = |n: &Net| n.hosts[0].sent_packets > 6;
        assert!(p.net.run_until(Span::from_ms(50), under_way));
        let now = p.net.now;
        p.net.hosts[0].engine.qp_destroy(now, given_up).unwrap();
        p.net.hosts[0].post(now, p.qp[0], wr(1), vec![1; 8192]).unwrap();
        assert!(p.net.run_until(Span::from_ms(100), |n| n.hosts[0].sends_done() == 1));
        assert_eq!(p.net.hosts[0].statuses(), [Status::Ok], "seed {seed}");
    }
}

/// Counts packets and drops them.
struct Nowhere(usize);

impl TxSink for Nowhere {
    fn push(&mut self, _: &Transmit<'_>) {
        self.0 += 1;
    }
}

/// With the inflight cap full, datagrams left as fast as they were posted, whatever the rate.
#[test]
fn datagrams_keep_to_the_rate_when_the_cap_is_full() {
    let mut configs: Vec<_> = (0..2).map(config).collect();
    configs[0].rate.policy = config::RatePolicy::Fixed;
    configs[0].rate.rate_fixed_bytes_per_sec = 10_000_000;
    configs[0].rate.inflight_fixed_bytes = 1024;
    let mut p = Pair::with(24, configs);
    let ud = [0, 1].map(|i: usize| p.net.hosts[i].qp(Time(1), QpType::Ud, false));
    for i in 0..10 {
        p.net.hosts[1].recv(p.qp[1], i, 1024);
        p.send(0, i, pattern(i, 1024)).unwrap();
    }
    assert!(p.net.run_until(Span::from_ms(9), |n| n.hosts[0].sends_done() == 1));
    let later = p.net.now + Span::from_ms(1);
    let h = &mut p.net.hosts[0];
    h.engine.handle_timeout(later);
    let mut sink = Nowhere(0);
    h.engine.poll_transmit(later, 1, &mut sink);
    assert_eq!((sink.0, h.engine.context_stats()[0].packets_in_flight), (1, 1), "the cap is full");
    for i in 0..50 {
        let wr = send_wr(100 + i, p.ah[0], ud[1], 1000);
        h.post(later, ud[0], wr, pattern(i, 1000)).unwrap();
    }
    h.engine.poll_transmit(later, 100, &mut sink);
    assert!(sink.0 <= 3, "{} packets left at once", sink.0);
}

/// Both sides open at once; one of them loses interest before it hears that the other accepted. The
/// other one counts the context as open and uses it: it must not be thrown away.
#[test]
fn an_opening_context_that_the_peer_accepted_outlives_its_work() {
    let mut p = Pair::new(25);
    p.net.faults.delay_ns = 30_000;
    let now = p.net.now;
    let fleeting = p.net.hosts[0].qp(now, QpType::Srd, false);
    let wr = send_wr(1, p.ah[0], p.qp[1], 10);
    p.net.hosts[0].post(now, fleeting, wr, pattern(1, 10)).unwrap();
    p.net.hosts[0].recv(p.qp[0], 1, 100);
    p.send(1, 2, pattern(2, 10)).unwrap();
    // Time for the Opens to arrive, not for the answers.
    assert!(p.net.run_until(Span::from_us(39), |n| n.now >= Time(30_001)));
    let now = p.net.now;
    p.net.hosts[0].engine.qp_destroy(now, fleeting).unwrap();
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[1].sends_done() == 1));
    assert_eq!(p.net.hosts[1].statuses(), [Status::Ok]);
}

/// A context that is only opening has sent no work: news that the peer does not know its tag must
/// not end that work.
#[test]
fn a_reset_does_not_end_work_that_never_left() {
    let mut p = Pair::new(26);
    p.net.faults.delay_ns = 30_000;
    let now = p.net.now;
    let fleeting = p.net.hosts[0].qp(now, QpType::Srd, false);
    let wr = send_wr(1, p.ah[0], p.qp[1], 10);
    p.net.hosts[0].post(now, fleeting, wr, pattern(1, 10)).unwrap();
    p.net.hosts[0].recv(p.qp[0], 1, 100);
    // The Open leaves; the work is withdrawn; the Open arrives; the other side posts, too.
    p.net.step();
    let now = p.net.now;
    p.net.hosts[0].engine.qp_destroy(now, fleeting).unwrap();
    p.send(1, 2, pattern(2, 10)).unwrap();
    assert!(p.net.run_until(Span::from_ms(50), |n| n.hosts[1].sends_done() == 1));
    assert_eq!(p.net.hosts[1].statuses(), [Status::Ok]);
}

/// Keeps the last packet.
struct Last(Option<(wire::Header, wire::Body, u16)>);

impl TxSink for Last {
    fn push(&mut self, t: &Transmit<'_>) {
        self.0 = Some((t.packet.header, t.packet.body, t.packet.payload_len));
    }
}

/// A peer that restarts while it opens may be given the tag that its former life had. A late packet
/// of that life must not carry the replay window away, or everything that follows is a replay.
#[test]
fn packets_of_a_former_life_do_not_move_the_replay_window() {
    let mut p = Pair::new(27);
    for i in 0..2 {
        p.net.hosts[1].recv(p.qp[1], i, 100);
    }
    p.send(0, 0, pattern(1, 50)).unwrap();
    assert!(p.net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == 1));
    p.send(0, 1, pattern(2, 50)).unwrap();
    let now = p.net.now + Span::from_us(100);
    let mut sink = Last(None);
    p.net.hosts[0].engine.poll_transmit(now, 1, &mut sink);
    let (header, body, payload_len) = sink.0.unwrap();
    let src_ip = p.net.hosts[0].ip;
    let meta = RxMeta { src_ip, ce: false, rxq_drops: 0, waited: Span::ZERO };
    let stale = wire::Header {
        psn: header.psn ^ 0x4000_0000,
        tx_num: header.tx_num.wrapping_add(1 << 24),
        ..header
    };
    let packet = |header| wire::Packet { header, ack: None, body, payload_len };
    let engine = &mut p.net.hosts[1].engine;
    assert_eq!(
        engine.handle(now, &meta, &packet(stale)),
        Rx::Dropped(counters::DropReason::TooFar)
    );
    assert!(matches!(engine.handle(now, &meta, &packet(header)), Rx::Place(_)));
}

/// Acknowledgments were charged to the pacer without bound: towards a peer that sends faster than
/// our rate allows its acknowledgments, no data ever left.
#[test]
fn acknowledgments_do_not_starve_data() {
    let mut configs: Vec<_> = (0..2).map(config).collect();
    configs[0].rate.policy = config::RatePolicy::Fixed;
    configs[0].rate.rate_fixed_bytes_per_sec = 1_000_000;
    configs[0].ack.every = 1;
    let mut p = Pair::with(28, configs);
    for i in 0..20 {
        p.net.hosts[1].recv(p.qp[1], i, 1000);
        p.send(0, i, pattern(i, 1000)).unwrap();
    }
    // An acknowledgment every 10 us: some 6 MB/s.
    for i in 0..6000 {
        p.net.hosts[0].recv(p.qp[0], i, 8);
        p.send(1, i, pattern(i, 8)).unwrap();
        p.net.run(Span::from_us(10));
    }
    // 20 kB at 1 MB/s take 20 ms.
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 20]);
}

/// Work that waits for its turn says nothing, and so hears nothing. The peer must be asked before
/// it is called silent, however long the timers are.
#[test]
fn a_peer_is_asked_before_it_is_called_silent() {
    let patient = |i| {
        let mut c = config(i);
        c.loss.rto_max = Span::from_secs(1);
        c
    };
    let mut p = Pair::with(29, vec![patient(0), patient(1)]);
    for i in 0..2 {
        p.net.hosts[1].recv(p.qp[1], i, 100);
    }
    p.send(0, 0, pattern(1, 50)).unwrap();
    assert!(p.net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == 1));
    p.send(0, 1, pattern(1, 50)).unwrap();
    let now = p.net.now;
    let to = |state| QpModify { state: Some(state), ..QpModify::default() };
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Sqd)).unwrap();
    p.net.run(Span::from_ms(900));
    let now = p.net.now;
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to(QpState::Rts)).unwrap();
    assert!(p.net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == 2));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 2]);
}

/// A late copy of an old Open arrives while both sides are opening anew. It proves nothing: what is
/// known of the peer stays, or both would talk to tags that nobody has.
#[test]
fn a_stale_open_does_not_replace_what_is_known_of_the_peer() {
    for seed in 0..60 {
        let mut p = Pair::new(1000 + seed);
        p.net.faults.duplicate = 9_000;
        p.net.faults.jitter_ns = 150_000;
        let now = p.net.now;
        let fleeting = p.net.hosts[0].qp(now, QpType::Srd, false);
        let wr = send_wr(1, p.ah[0], p.qp[1], 10);
        // An Open of a context that goes before it is answered, then one of another.
        p.net.hosts[0].post(now, fleeting, wr, pattern(1, 10)).unwrap();
        p.net.step();
        let now = p.net.now;
        p.net.hosts[0].engine.qp_destroy(now, fleeting).unwrap();
        p.net.run(Span::from_us(60));
        for from in 0..2 {
            p.net.hosts[1 - from].recv(p.qp[1 - from], 1, 100);
            p.send(from, 2, pattern(2, 10)).unwrap();
        }
        let done = |n: &Net| n.hosts.iter().all(|h| h.sends_done() == 1);
        assert!(p.net.run_until(Span::from_ms(90), done), "seed {seed}");
        let all = [0, 1].map(|i: usize| p.net.hosts[i].statuses()[0]);
        assert_eq!(all, [Status::Ok; 2], "seed {seed}");
    }
}

/// Two hosts, bearing half a second of silence, on a network that has been slow and is quick now:
/// eight messages went from the first to the second, which can take one more.
fn after_a_slow_past(seed: u64) -> Pair {
    let patient = |i| {
        let mut c = config(i);
        c.loss.unresponsive_after = Span::from_ms(500);
        c.loss.unreachable_after = Span::from_secs(9);
        c
    };
    let mut p = Pair::with(seed, vec![patient(0), patient(1)]);
    p.net.faults.delay_ns = 100_000_000;
    for i in 0..9 {
        p.net.hosts[1].recv(p.qp[1], i, 1000);
    }
    for i in 0..8 {
        p.send(0, i, pattern(i, 50)).unwrap();
        assert!(p.net.run_until(Span::from_secs(3), |n| n.hosts[0].sends_done() == i as usize + 1));
    }
    p.net.faults.delay_ns = 5_000;
    p
}

/// A network that was slow has left long timers behind. They must not outlast the silence after
/// which the peer is given up: it was not asked again.
#[test]
fn timers_of_a_slow_past_do_not_outlast_the_silence() {
    let mut p = after_a_slow_past(30);
    p.net.faults.dead = true;
    p.send(0, 8, pattern(8, 50)).unwrap();
    p.net.run(Span::from_ms(350));
    p.net.faults.dead = false;
    assert!(p.net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 9));
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 9]);
}

/// A context that rests once remembered the state of its first 64 paths only. Of the others, those
/// that were out of use came back without a word, and then without a probe. Now all stay as they
/// were told, and carry no data before they were probed.
#[test]
fn a_rest_changes_the_state_of_no_path() {
    let mut configs: Vec<_> = (0..2).map(config).collect();
    configs[0].path.paths = 256;
    configs[0].idle_after = Span::from_us(500);
    configs[0].path.probe_first = Span::from_ms(50);
    configs[0].path.probe_max = Span::from_ms(50);
    let mut p = Pair::with(32, configs);
    p.net.faults.black_paths = (60..120).collect();
    for i in 0..2000 {
        p.net.hosts[1].recv(p.qp[1], i, 1024);
        p.send(0, i, pattern(i, 1024)).unwrap();
    }
    assert!(p.net.run_until(Span::from_ms(40), |n| n.hosts[0].sends_done() == 2000));
    p.net.run(Span::from_ms(5));
    let mut out = std::collections::BTreeSet::new();
    let mut most = 0;
    for e in &p.net.hosts[0].events {
        if let AsyncEvent::PathChanged(_, path, retired) = *e {
            let changed = if retired { out.insert(path) } else { out.remove(&path) };
            assert!(changed, "path {path} was told twice to be {retired}");
        }
        most = most.max(out.len());
    }
    assert!(most > 10, "{most} paths were retired");
    let stats = p.net.hosts[0].engine.path_stats(ip(1));
    let known: Vec<u8> = stats.iter().filter(|s| s.state == "retired").map(|s| s.path).collect();
    assert_eq!(Vec::from_iter(out), known);
    assert!(known.iter().all(|&path| (60..120).contains(&path)), "{known:?}");
    assert!(known.iter().any(|&path| path >= 64), "{known:?}");
    // Probes of two sizes are all that these paths carry after the rest.
    p.net.hosts[0].done.clear();
    let before = *p.net.hosts[0].engine.counters();
    let used = |p: &Pair, i: u8| p.net.hosts[0].paths_used[usize::from(i)];
    let sent = |p: &Pair| known.iter().map(|&i| used(p, i)).sum::<u64>();
    let was = sent(&p);
    for i in 0..500 {
        p.net.hosts[1].recv(p.qp[1], i, 1024);
        p.send(0, i, pattern(i, 1024)).unwrap();
    }
    assert!(p.net.run_until(Span::from_ms(40), |n| n.hosts[0].sends_done() == 500));
    let after = *p.net.hosts[0].engine.counters();
    assert!(sent(&p) - was <= after.probe_pkts - before.probe_pkts);
    assert_eq!(after.retrans_pkts, before.retrans_pkts, "nothing was lost on a dead path");
}

/// Keeps the cookies of challenges.
struct Cookies(Vec<u64>);

impl TxSink for Cookies {
    fn push(&mut self, t: &Transmit<'_>) {
        if let wire::Body::Challenge { cookie, .. } = t.packet.body {
            self.0.push(cookie);
        }
    }
}

/// A peer gives up a context and opens another one. A late copy of its older Open, which had been
/// proven with a cookie, ended the newer context and all its work.
#[test]
fn an_open_that_was_proven_once_does_not_end_a_newer_context() {
    let mut p = Pair::new(33);
    let engine = &mut p.net.hosts[1].engine;
    let now = Time(1_000_000);
    let meta = door::from(ip(9));
    let mut open = |tag, cookie| {
        let packet = door::stranger(door::open(tag, cookie), 0, 0);
        assert_eq!(engine.handle(now, &meta, &packet), Rx::Done);
        let mut seen = Cookies(Vec::new());
        engine.poll_transmit(now, 64, &mut seen);
        seen.0.first().copied()
    };
    assert_eq!(open(1, 0), None, "nobody is known: accepted as it is");
    let first = open(2, 0).expect("another context is known: challenged");
    assert_eq!(open(2, first), None, "proven");
    let second = open(3, 0).expect("challenged");
    assert_eq!(open(3, second), None, "proven");
    assert!(open(2, first).is_some(), "the late copy must prove itself anew");
    assert_eq!(open(3, 0), None, "and has ended nothing");
}

/// Two engines at one address; one of them grants credits and one does not. What went to the second
/// waited for grants that nobody made, the first window per two round trips.
#[test]
fn credits_of_one_engine_do_not_hold_back_what_goes_to_its_neighbour() {
    let run = |credits| {
        let mut configs: Vec<_> = [0, 1, 1].map(config).into();
        configs[2].slot = 1;
        (configs[0].rate.credits, configs[1].rate.credits) = (credits, credits);
        configs[0].rate.policy = config::RatePolicy::Fixed;
        configs[0].rate.inflight_fixed_bytes = 2000;
        let mut net = Net::new(25, configs);
        let now = net.now;
        let dst = [2, 1].map(|i: usize| net.hosts[i].qp(now, QpType::Srd, false));
        let qp = net.hosts[0].qp(now, QpType::Srd, false);
        let to = net.hosts[1].ip;
        let ah = net.hosts[0].ah(now, to);
        for i in 0..300 {
            net.hosts[2].recv(dst[0], i, 1024);
            net.hosts[1].recv(dst[1], i, 1024);
        }
        for (k, d) in dst.into_iter().enumerate() {
            let now = net.now;
            net.hosts[0].post(now, qp, send_wr(1, ah, d, 1000), pattern(1, 1000)).unwrap();
            assert!(net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == k + 1));
        }
        let began = net.now;
        for k in 0..200 {
            net.hosts[0].post(began, qp, send_wr(k, ah, dst[0], 1000), pattern(k, 1000)).unwrap();
        }
        assert!(net.run_until(Span::from_ms(100), |n| n.hosts[0].sends_done() == 202));
        net.now.since(began)
    };
    let (without, beside) = (run(false), run(true));
    assert!(beside <= without.scale(11, 10), "{beside:?}, {without:?} without credits");
}

/// The peer's clock leapt back: its acknowledgments seemed to be on their way for longer than the
/// whole round trip, which left nothing for the way there, and no sample was taken for two seconds.
#[test]
fn round_trips_are_measured_after_a_clock_has_leapt() {
    let mut net = Net::new(26, (0..2).map(config).collect());
    let now = net.now;
    let server = net.hosts[1].qp(now, QpType::Srd, false);
    let qp = net.hosts[0].qp(now, QpType::Srd, false);
    let to = net.hosts[1].ip;
    let ah = net.hosts[0].ah(now, to);
    let mut done = 0;
    let mut srtt_after_40 = |net: &mut Net| {
        for _ in 0..40 {
            let now = net.now;
            net.hosts[1].recv(server, done, 1024);
            net.hosts[0].post(now, qp, send_wr(done, ah, server, 100), pattern(1, 100)).unwrap();
            done += 1;
            let count = done as usize;
            assert!(net.run_until(Span::from_ms(10), |n| n.hosts[0].sends_done() == count));
        }
        net.hosts[0].engine.context_stats()[0].srtt_ns
    };
    let before = srtt_after_40(&mut net);
    assert!((10_000..20_000).contains(&before), "{before} ns of 10 us");
    net.faults.clock_back = Some((to, Span::from_ms(33)));
    net.faults.delay_ns = 50_000;
    let after = srtt_after_40(&mut net);
    assert!((80_000..150_000).contains(&after), "{after} ns of 100 us");
}

/// Where round trips took longer than a quarter of the silence that a peer is given, all that was
/// under way was sent again, however often the peer answered: the copies kept the queue alive that
/// had made the round trips long.
#[test]
fn what_is_under_way_is_not_sent_again_while_answers_come() {
    let mut p = Pair::new(31);
    p.net.faults.delay_ns = 35_000_000;
    let mut sent_again = [0; 2];
    for half in &mut sent_again {
        for i in 0..200 {
            p.net.hosts[1].recv(p.qp[1], i, 100);
            p.send(0, i, pattern(i, 50)).unwrap();
            p.net.run(Span::from_ms(5));
        }
        *half = p.net.hosts[0].engine.counters().retrans_pkts;
    }
    assert!(p.net.run_until(Span::from_secs(1), |n| n.hosts[0].sends_done() == 400));
    assert_eq!(sent_again[1] - sent_again[0], 0, "once the round trip is known: {sent_again:?}");
}

/// The same where nothing of ours arrives: what the peer sends by itself says nothing of it, and
/// the round trips of a slow past do not hold back what was lost.
#[test]
fn a_peer_that_talks_but_answers_nothing_is_not_waited_for() {
    let mut p = after_a_slow_past(32);
    // What we send is lost. The peer's own messages come.
    p.net.faults.longer_lost = 100;
    p.send(0, 8, pattern(8, 500)).unwrap();
    for i in 0..56 {
        p.net.hosts[0].recv(p.qp[0], i, 100);
        p.send(1, i, pattern(i, 50)).unwrap();
        p.net.run(Span::from_ms(10));
        if i == 42 {
            p.net.faults.longer_lost = usize::MAX;
        }
    }
    let c = p.net.hosts[0].engine.counters();
    assert_eq!(p.net.hosts[0].statuses(), [Status::Ok; 9], "after 130 ms of calm: {c:#?}");
}

/// A peer with a tag of its own that says `body` to engine `h`, of whose context it knows the tag.
fn say(h: &mut Host, now: Time, dst_tag: u32, body: wire::Body) {
    let header = wire::Header {
        kind: body.kind(),
        flags: wire::Flags(0),
        backlog: wire::Backlog(0),
        path: 0,
        slot: 0,
        dst_tag,
        tx_num: 700,
        timestamp: now.to_wire(),
        psn: 5000,
        una_delta: 0,
        ack_echo: 0,
    };
    let meta = RxMeta { src_ip: ip(1), ce: false, rxq_drops: 0, waited: Span::ZERO };
    h.receive(now, &meta, &wire::Packet { header, ack: None, body, payload_len: 0 }, &[]);
}

/// A peer was asked whether it has the context still. Before it answered, a datagram opened the
/// context anew, and the peer said that it had forgotten its part: the question went on to nobody.
#[test]
fn a_question_ends_when_its_peer_has_forgotten_its_part() {
    const TAG: u32 = 0x90_99E7;
    let now = Time(1_000_000);
    let mut h = Host::new(config(0), 1, now);
    let (qp, ah) = (h.qp(now, QpType::Ud, false), h.ah(now, ip(1)));
    let post = |h: &mut Host, at| {
        h.post(at, qp, send_wr(1, ah, Qpn(0), 10), pattern(1, 10)).unwrap();
        h.transmit(at)
    };
    let open = post(&mut h, now).into_iter().find_map(|f| match f.body {
        wire::Body::Open(p) => Some(p),
        _ => None,
    });
    let open = open.expect("work opens a context");
    let params = wire::OpenParams { tag: TAG, incarnation: 77, echo_tag: open.tag, ..open };
    say(&mut h, now, open.tag, wire::Body::OpenAck(params));
    assert!(h.transmit(now).iter().any(|f| f.header.kind == wire::PacketType::Ud));
    let reset = wire::Body::Reset { echo_tag: TAG, code: wire::CloseCode::UnknownTag, nonce: 0 };
    say(&mut h, now, 0, reset);
    let asks = |f: &Flying| matches!(f.body, wire::Body::Challenge { echo_tag: TAG, .. });
    assert!(h.transmit(now).iter().any(asks), "a Reset is a reason to ask");
    let again = post(&mut h, now);
    assert!(again.iter().any(|f| f.header.kind == wire::PacketType::Open), "nobody has used it");
    say(&mut h, now, 0, reset);
    let end = now + Span::from_ms(50);
    while h.engine.next_timeout() <= end {
        let at = now.max(h.engine.next_timeout());
        h.engine.handle_timeout(at);
        for f in h.transmit(at) {
            assert_eq!(f.header.kind, wire::PacketType::Open, "nobody else is asked: {:?}", f.body);
        }
    }
}
