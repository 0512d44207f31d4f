//! Tens of thousands of peers that fall silent together: a datacenter loses a spine, or its power.
//! However many they are, each call on the engine does a bounded amount of work.

use crate::common::*;
use srd_core::wire::{AckBlock, Packet};
use srd_core::*;

/// As many as there are address handles.
const PEERS: u32 = 65_535;
const HOP: Span = Span::from_us(3);

/// One engine, and another one that stands for all its peers: it has an address for each.
struct Crowd {
    now: Time,
    near: Engine,
    far: Engine,
    cq: CqId,
    ended: Vec<Status>,
    steps_max: u64,
    calls: u64,
}

fn config_of(i: usize) -> EngineConfig {
    let mut c = config(i);
    c.window = 64;
    c.path.paths = 1;
    c.path.live_min = 1;
    // Room for all without anybody being asked to close.
    c.contexts_max = 2 * PEERS;
    c.wrs_max = PEERS;
    (c.half_opens_max, c.inbound_per_prefix_max) = (2 * PEERS, 2 * PEERS);
    c.idle_after = Span::from_secs(10);
    c
}

fn engine(i: usize, now: Time, depth: u32) -> (Engine, PdId, CqId, Qpn) {
    let mut e = Engine::new(config_of(i), Rng::from_seed(i as u64), now, ()).unwrap();
    let pd = e.pd_create().unwrap();
    let cq = e.cq_create(2 * depth).unwrap();
    let init = QpInit {
        kind: QpType::Srd,
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: depth,
        rq_depth: depth,
        unsolicited_write_recv: false,
    };
    let qp = e.qp_create(now, init).unwrap();
    let to = |state, qkey, rnr_retry| QpModify { state: Some(state), qkey, rnr_retry };
    e.qp_modify(now, qp, to(QpState::Init, Some(0x11), None)).unwrap();
    e.qp_modify(now, qp, to(QpState::Rtr, None, None)).unwrap();
    e.qp_modify(now, qp, to(QpState::Rts, None, Some(7))).unwrap();
    (e, pd, cq, qp)
}

/// Hands each packet over at once. Payload does not exist.
struct Over<'a> {
    to: &'a mut Engine,
    now: Time,
}

impl TxSink for Over<'_> {
    fn push(&mut self, t: &Transmit<'_>) {
        let (src_ip, waited) = (t.dst.ip, Span::ZERO);
        let meta = RxMeta { src_ip, ce: false, rxq_drops: 0, waited };
        let ack: Option<&AckBlock> = t.packet.ack;
        self.to.handle(self.now, &meta, &Packet { ack, ..t.packet });
    }
}

/// Where a packet to the dead goes.
struct Nowhere;

impl TxSink for Nowhere {
    fn push(&mut self, _: &Transmit<'_>) {}
}

impl Crowd {
    /// A message to each of `n` peers has arrived, and another one to each is posted.
    fn new(n: u32) -> Self {
        let now = Time(1_000_000);
        let (near, pd, cq, qp) = engine(0, now, PEERS);
        let (mut far, ..) = engine(1, now, PEERS);
        let far_qp = Qpn(0);
        for _ in 0..n {
            far.post_recv(far_qp, &RecvRequest { wr_id: 0, len: 100 }).unwrap();
        }
        let mut c = Self { now, near, far, cq, ended: vec![], steps_max: 0, calls: 0 };
        let address = |i| std::net::IpAddr::V4(std::net::Ipv4Addr::from(0x0A01_0000 + i));
        let handles: Vec<_> =
            (0..n).map(|i| c.near.ah_create(now, pd, address(i)).unwrap()).collect();
        for &ah in &handles {
            c.near.post_send(now, qp, &send_wr(1, ah, far_qp, 10)).unwrap();
        }
        while c.ended.len() < n as usize {
            c.near.poll_transmit(c.now, 4096, &mut Over { to: &mut c.far, now: c.now + HOP });
            c.now += HOP;
            c.far.handle_timeout(c.now);
            c.far.poll_transmit(c.now, 4096, &mut Over { to: &mut c.near, now: c.now + HOP });
            c.now += HOP;
            c.turn_ended();
        }
        assert_eq!(core::mem::take(&mut c.ended), vec![Status::Ok; n as usize]);
        for &ah in &handles {
            c.near.post_send(c.now, qp, &send_wr(2, ah, far_qp, 10)).unwrap();
        }
        c
    }

    fn turn_ended(&mut self) {
        let before = self.near.counters().timer_steps;
        self.near.handle_timeout(self.now);
        self.steps_max = self.steps_max.max(self.near.counters().timer_steps - before);
        self.calls += 1;
        while let Some(done) = self.near.cq_poll(self.cq) {
            self.near.cq_release(self.cq, 1);
            self.ended.push(done.status);
        }
        while self.near.poll_event().is_some() {}
    }

    /// Time passes for the survivor alone until nothing is left to do.
    fn fall_silent(&mut self) {
        let end = self.now + Span::from_secs(2);
        (self.steps_max, self.calls) = (0, 0);
        while self.now < end
            && self.near.counters().contexts_forgotten < self.near.counters().contexts_opened
        {
            while self.near.poll_transmit(self.now, 64, &mut Nowhere) > 0 {}
            self.now = self.now.max(self.near.next_timeout());
            self.turn_ended();
        }
    }
}

#[test]
fn peers_that_fall_silent_together_are_bounded_work_per_call() {
    let mut c = Crowd::new(PEERS);
    c.fall_silent();
    assert_eq!(c.ended, vec![Status::LocalUnrespRemote; PEERS as usize]);
    let bound = limits::TIMER_STEPS_MAX + 8;
    assert!(c.steps_max <= bound, "{} steps in one call", c.steps_max);
    let steps = c.near.counters().timer_steps;
    assert!(steps < 60 * u64::from(PEERS), "{steps} steps in {} calls", c.calls);
    assert_eq!(c.near.counters().contexts_forgotten, u64::from(PEERS));
}

/// Requests of a queue pair that ends are taken off the scoreboards in one pass over each.
#[test]
fn a_queue_pair_with_much_in_flight_ends_in_one_pass() {
    let mut p = Pair::new(1);
    // The context is open; then nobody acknowledges.
    p.send(0, 0, vec![1; 10]).unwrap();
    p.net.run(Span::from_us(30));
    p.net.faults.killed = vec![1];
    let n = 4000;
    for i in 1..n {
        p.send(0, i, vec![1; 10]).unwrap();
    }
    p.net.run(Span::from_us(20));
    let open = u64::from(p.net.hosts[0].engine.context_stats()[0].psns_unresolved);
    assert!(open > 1000, "{open}");
    let now = p.net.now;
    let to = QpModify { state: Some(QpState::Err), ..QpModify::default() };
    p.net.hosts[0].engine.qp_modify(now, p.qp[0], to).unwrap();
    p.net.hosts[0].collect();
    assert_eq!(p.net.hosts[0].statuses(), vec![Status::Flushed; n as usize]);
    let steps = p.net.hosts[0].engine.counters().cancel_steps;
    assert!(steps <= open, "{steps} steps for {open} packets");
}
