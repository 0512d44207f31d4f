use super::*;
use crate::{FlowHost, Reports};
use srd_fabric::{
    Delivered, Ecn, Fault, FlowControl, Host, HostId, HostIo, LinkId, MS, Node, PfcConfig, Port,
    Ps, Service, Target, Topology, US, World, WorldConfig, back_to_back, dumbbell,
};
use std::sync::Arc;

/// A host that starts flows of a fixed size when called with their number of bytes as the token.
struct Sender {
    rc: RcHost,
    dst: HostId,
    conn: Option<u32>,
    done: Reports,
}

impl Host<RcPacket> for Sender {
    fn on_packet(&mut self, now: Ps, p: Delivered<RcPacket>, io: &mut HostIo<'_, RcPacket>) {
        self.rc.on_packet(now, p, io);
        self.done.done.append(&mut self.rc.reports().done);
        self.done.got.append(&mut self.rc.reports().got);
    }
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, RcPacket>) {
        self.rc.on_timer(now, io);
    }
    fn on_room(&mut self, now: Ps, io: &mut HostIo<'_, RcPacket>) {
        self.rc.on_room(now, io);
    }
    fn on_call(&mut self, _: Ps, bytes: u64, io: &mut HostIo<'_, RcPacket>) {
        let dst = self.dst;
        let conn = *self.conn.get_or_insert_with(|| self.rc.connect(dst));
        self.rc.post(conn, bytes, bytes, io);
    }
}

fn world(topo: Topology, config: WorldConfig, rc: RcConfig, dst: u32) -> World<RcPacket, Sender> {
    rc.check().expect("sound");
    let rc = Arc::new(rc);
    World::new(topo, config, |id| Sender {
        rc: RcHost::new(id, Arc::clone(&rc), config.seed),
        dst: HostId(dst),
        conn: None,
        done: Reports::default(),
    })
    .expect("sound")
}

const LINE: u64 = 100_000_000_000;

fn rc() -> RcConfig {
    RcConfig { dcqcn: None, ..RcConfig::default() }
}

/// Time on the wire at 100 Gb/s.
fn wire(bytes: u64) -> Ps {
    bytes * 80
}

/// 1,000 packets from host 0 to host 1 over a wire of 1 us on which `faults` happen.
fn one_flow(config: RcConfig, faults: &[(Ps, Fault)]) -> World<RcPacket, Sender> {
    let topo = back_to_back(Port::new(LINE, US));
    let mut w = world(topo, WorldConfig::new(1), config, 1);
    for (at, fault) in faults {
        w.fault_at(*at, *fault).expect("possible");
    }
    w.call_at(0, HostId(0), 4_096_000);
    w.run_to_end();
    w
}

fn ended(w: &World<RcPacket, Sender>, host: usize) -> Ps {
    w.hosts()[host].done.done.last().expect("the message is complete").at
}

#[test]
fn a_message_takes_what_its_packets_take() {
    let w = one_flow(rc(), &[]);
    assert_eq!(ended(&w, 0), 1_000 * wire(4_178) + US + wire(86) + US);
    let c = w.hosts()[0].rc.counters();
    assert_eq!((c.sent, c.repeated, c.timeouts, c.broken), (1_000, 0, 0, 0));
    // One acknowledgment for four packets.
    assert_eq!(w.hosts()[1].rc.counters().acks, 250);
    let got: u64 = w.hosts()[1].done.got.iter().map(|g| u64::from(g.bytes)).sum();
    assert_eq!(got, 4_096_000);
}

/// Loses what is on the wire from `at` for `for_ps`.
fn hole(at: Ps, for_ps: Ps) -> [(Ps, Fault); 2] {
    let link = Target::Link(LinkId(0));
    [
        (at, Fault::BlackHole { at: link, routing: None }),
        (at + for_ps, Fault::BlackHoleEnd { at: link, routing: None }),
    ]
}

#[test]
fn go_back_n_repeats_the_flight_and_irn_what_is_missing() {
    // Exactly the packet that arrives at 10.x us is lost.
    let lost = hole(wire(4_178) * 30 + US - wire(2_000), wire(4_178));
    let back = one_flow(rc(), &lost);
    let c = back.hosts()[0].rc.counters();
    assert_eq!((c.went_back, c.timeouts), (1, 0));
    // The NAK takes one wire more than the early packet; meanwhile the sender has sent on: a round
    // trip, the packet on the wire and the one behind it.
    let flight = (2 * US + wire(86)).div_ceil(wire(4_178)) + 1;
    assert!(c.repeated >= flight && c.repeated <= flight + 2, "{c:?} {flight}");
    let irn = RcConfig { recovery: Recovery::Irn, window_bytes: 136_000, ..rc() };
    let selective = one_flow(irn, &lost);
    let c = selective.hosts()[0].rc.counters();
    assert_eq!((c.repeated, c.timeouts), (1, 0), "{c:?}");
    assert_eq!(selective.hosts()[1].rc.counters().duplicates, 0);
    let whole = 1_000 * wire(4_178) + 2 * US + wire(86);
    assert!(ended(&selective, 0) < whole + 2 * wire(4_178) + US, "{}", ended(&selective, 0));
}

#[test]
fn a_lost_last_packet_waits_for_the_timeout() {
    for t in [4, 10, 14] {
        let lost = hole(wire(4_178) * 1_000 + US - wire(2_000), 10 * US);
        let w = one_flow(RcConfig { ack_timeout: t, ..rc() }, &lost);
        let c = w.hosts()[0].rc.counters();
        assert_eq!((c.timeouts, c.repeated), (1, 4), "t = {t}: {c:?}");
        // The timer runs from the last acknowledgment that made progress, that of packet 996; the
        // four packets since are repeated.
        let acked = 996 * wire(4_178) + 2 * US + wire(86);
        let after = 4 * wire(4_178) + 2 * US + wire(86);
        assert_eq!(ended(&w, 0), acked + (4_096_000 << t) + after, "t = {t}");
    }
}

#[test]
fn the_eighth_timeout_breaks_the_queue_pair_and_a_new_one_continues() {
    for (retry_cnt, timeouts) in [(7, 8), (0, 1)] {
        let t = 4_096_000 << 4;
        let lost = hole(10 * US, t * (timeouts + 2));
        let config = RcConfig { ack_timeout: 4, retry_cnt, reconnect_ps: 3 * t, ..rc() };
        let w = one_flow(config, &lost);
        let c = w.hosts()[0].rc.counters();
        assert_eq!((c.timeouts, c.broken), (timeouts, 1), "{c:?}");
        // The last acknowledgment before the hole is the last that arrives by 10 us.
        let end = ended(&w, 0);
        let (least, most) = (10 * US + (timeouts + 3) * t, 12 * US + (timeouts + 3) * t);
        let whole = 1_000 * wire(4_178) + 2 * US + wire(86);
        assert!((least + whole - 2 * US..=most + whole).contains(&end), "{end}: {least} {most}");
        assert_eq!(w.hosts()[0].rc.queue_pair(0).map(|q| q.life), Some(1));
    }
}

#[test]
fn one_message_outstanding_is_a_message_per_round_trip() {
    let config = RcConfig { message_bytes: 4_096, outstanding: 1, ..rc() };
    let w = one_flow(config, &[]);
    let round = wire(4_178) + US + wire(86) + US;
    assert_eq!(ended(&w, 0), 1_000 * round);
    assert_eq!(w.hosts()[0].done.done.len(), 1, "the flow is one piece of work");
    // With two messages of two packets, two leave in each round trip of a message.
    let two = one_flow(RcConfig { message_bytes: 8_192, outstanding: 2, ..rc() }, &[]);
    let round = 2 * wire(4_178) + US + wire(86) + US;
    let end = ended(&two, 0);
    assert!((250 * round..=251 * round).contains(&end), "{end}, rounds of {round}");
}

#[test]
fn a_static_rate_spaces_packets_exactly() {
    let w = one_flow(RcConfig { static_gbps: Some(25.0), ..rc() }, &[]);
    assert_eq!(ended(&w, 0), 999 * 4 * wire(4_178) + wire(4_178) + US + wire(86) + US);
}

fn pfc() -> FlowControl {
    FlowControl::Pfc(PfcConfig {
        xoff_bytes: 60_000,
        xon_bytes: 48_000,
        headroom_bytes: None,
        packet_bytes: 4_178,
        service: Service::Fcfs,
    })
}

#[test]
fn pauses_lose_nothing_and_share_a_link() {
    let port = Port::new(LINE, US);
    let config = WorldConfig { flow_control: pfc(), ..WorldConfig::new(2) };
    let mut w = world(dumbbell(4, 1, port, port, port), config, rc(), 4);
    (0..4).for_each(|h| w.call_at(0, HostId(h), 1_024_000));
    w.run_to_end();
    let t = w.totals();
    assert_eq!((t.drops.total(), t.in_flight), (0, 0));
    let ends: Vec<Ps> = (0..4).map(|h| ended(&w, h)).collect();
    let all = 1_000 * wire(4_178);
    let last = ends.iter().max().copied().unwrap_or(0);
    assert!((all..all + 10 * US).contains(&last), "{ends:?}");
    for h in 0..4 {
        let link = (0..w.topology().links()).map(LinkId);
        let mut mine = link.filter(|l| w.topology().from(*l) == Node::Host(HostId(h)));
        let p = mine.next().and_then(|l| w.pauses(l)).expect("a link");
        // Three quarters of the time, less the packets that leave while a pause begins.
        let share = p.paused_ps as f64 / last as f64;
        assert!((0.6..0.8).contains(&share), "{share}");
        assert_eq!(w.hosts()[h as usize].rc.counters().repeated, 0);
    }
}

#[test]
fn dcqcn_follows_its_published_steps() {
    let d = DcqcnConfig::default();
    let mut r = Dcqcn::new(d, 100e9);
    assert_eq!(r.rate_bps(5 * MS), 100e9);
    r.notified(0);
    // Alpha begins at 1, so the first notification halves the rate.
    assert_eq!(r.rate_bps(0), 50e9);
    assert_eq!(r.alpha(), 1.0);
    // Five fast steps halve the distance to the old rate; then it is added to the target.
    for (i, step) in (1..=5).enumerate() {
        let expected = 100e9 - 50e9 / f64::from(1 << (i + 1));
        assert_eq!(r.rate_bps(step * 55 * US), expected);
    }
    let decayed = (1.0 - d.gain).powi(5);
    assert!((r.alpha() - decayed).abs() < 1e-12);
    // A second notification reduces by alpha / 2.
    let before = r.rate_bps(5 * 55 * US);
    r.notified(5 * 55 * US + US);
    assert!((r.rate_bps(5 * 55 * US + US) - before * (1.0 - decayed / 2.0)).abs() < 1.0);
    // Additive increase moves the target by 40 Mb/s, hyper increase by 400 Mb/s and more. The
    // target is the rate before the second notification.
    let at = |n: u64| 5 * 55 * US + US + n * 55 * US;
    let five = r.rate_bps(at(5));
    assert!((r.rate_bps(at(6)) - f64::midpoint(five, before + 40e6)).abs() < 1.0);
    let mut bytes = Dcqcn::new(d, 100e9);
    bytes.notified(0);
    (0..10_000).for_each(|_| bytes.sent(1_000));
    assert_eq!(bytes.rate_bps(0), 75e9, "10 MB are a step, too");
}

/// Two senders, one link, marks between 5 and 200 KB: both have half of it, and notifications come
/// as often as makes decreases and increases equal.
#[test]
fn dcqcn_settles_at_its_fixed_point() {
    let ecn = Ecn { min_bytes: 5_000, max_bytes: 200_000, prob_max: 0.01 };
    let port = Port::new(40_000_000_000, US);
    let config = WorldConfig { flow_control: pfc_deep(), ..WorldConfig::new(3) };
    let dcqcn = Some(DcqcnConfig::default());
    let rc = RcConfig { line_bps: 40e9, dcqcn, ..RcConfig::default() };
    let topo = dumbbell(2, 1, port, port, port.ecn(ecn));
    let mut w = world(topo, config, rc, 2);
    (0..2).for_each(|h| w.call_at(0, HostId(h), 1 << 40));
    w.run_until(100 * MS);
    let count = |w: &World<RcPacket, Sender>| {
        let got = |h| w.hosts()[2].done.got.iter().filter(|g| g.src == HostId(h)).count();
        (got(0), got(1), w.hosts()[2].rc.counters().cnps)
    };
    let before = count(&w);
    w.run_until(500 * MS);
    let after = count(&w);
    let rate = |packets: usize| packets as f64 * 4_178.0 * 8.0 / 0.4 / 1e9;
    let (a, b) = (rate(after.0 - before.0), rate(after.1 - before.1));
    assert!(a + b > 38.0 && (a / b).ln().abs() < 0.35, "{a:.2} and {b:.2} Gb/s");
    // With a notification in a share q of the periods of 55 us, alpha is q. A notification after k
    // periods lowers the target by q / 2 x rate x 2^-k, the mean of which is q / (1 + q); the
    // periods after the fifth raise it by 40 Mb/s each, (1 - q)^5 / q of them on average. Both are
    // equal at one q.
    let (rate, step) = (20e9, 40e6);
    let excess = |q: f64| q * q / 2.0 * rate / (1.0 + q) - step * (1.0 - q).powi(5) / q;
    let q = (1..1_000).map(|i| f64::from(i) / 1_000.0).find(|q| excess(*q) > 0.0).expect("a root");
    let measured = (after.2 - before.2) as f64 / 2.0 / (0.4 / 55e-6);
    println!("notifications per period: {measured:.4}, closed form {q:.4}");
    assert!((measured / q).ln().abs() < 0.4, "{measured:.4} against {q:.4}");
    assert_eq!(w.totals().drops.total(), 0);
}

#[test]
fn infinibands_index_rises_with_notifications_and_falls_with_time() {
    let ib = IbCcConfig { timer_ps: 10 * CCTI_TIMER_UNIT_PS, limit: 20, ..IbCcConfig::default() };
    let mut r = IbCc::new(ib, 100e9);
    let period = 10_240_000;
    assert_eq!(r.rate_bps(3), 100e9);
    // Entry i of the table is a pause of i / 8 packet times: after eight notifications half.
    for i in 1..=8 {
        r.notified(period / 2);
        assert_eq!(r.rate_bps(period / 2), 100e9 / (1.0 + f64::from(i) / 8.0));
    }
    // The timer is the card's: the first step is due at its next period, not one after the last
    // notification.
    assert_eq!((r.index(period - 1), r.index(period), r.index(4 * period)), (8, 7, 4));
    assert_eq!(r.rate_bps(4 * period), 100e9 / 1.5);
    (0..100).for_each(|_| r.notified(4 * period));
    assert_eq!(r.index(4 * period), 20, "the limit");
    assert_eq!((r.index(23 * period), r.index(24 * period), r.index(99 * period)), (1, 0, 0));
}

fn infiniband(topo: Topology, ib_cc: Option<IbCcConfig>) -> World<RcPacket, Sender> {
    let credits =
        srd_fabric::CreditConfig { input_bytes: 65_536, lanes: 1, service: Service::RoundRobin };
    let flow_control = FlowControl::Credits(credits);
    let config = WorldConfig { flow_control, ..WorldConfig::new(4) };
    world(topo, config, RcConfig { ib_cc, ..rc() }, 4)
}

/// Four senders to one host, whose link is the bottleneck: with credits alone the link before it
/// fills, too; with congestion control it does not, and the bottleneck stays full.
#[test]
fn infinibands_congestion_control_empties_the_links_before_the_bottleneck() {
    let port = Port::new(LINE, US);
    let marks = Ecn { min_bytes: 32_768, max_bytes: 32_768, prob_max: 1.0 };
    let slow = Port::new(LINE / 2, US).ecn(marks);
    let run = |ib_cc: Option<IbCcConfig>| {
        let topo = dumbbell(4, 1, port, slow, port.ecn(marks));
        let mut w = infiniband(topo, ib_cc);
        (0..4).for_each(|h| w.call_at(0, HostId(h), 1 << 40));
        let core = w.topology().core_cables().next().expect("one").up();
        let (mut waiting, mut count) = (0.0, 0.0);
        w.run_until(4 * MS);
        let before: u64 = w.hosts()[4].done.got.iter().map(|g| u64::from(g.bytes)).sum();
        for t in 0..400 {
            let at = 4 * MS + (t + 1) * 10 * US;
            w.run_until(at);
            w.links_sample(at, |l, s| {
                if l == core {
                    waiting += s.queue_bytes as f64
                }
            });
            count += 1.0;
        }
        let after: u64 = w.hosts()[4].done.got.iter().map(|g| u64::from(g.bytes)).sum();
        let share = (after - before) as f64 * 8.0 / 4e-3 / (LINE as f64 / 2.0) * 4178.0 / 4096.0;
        let edge: u64 = (0..w.topology().links()).map(|l| w.link_stats(LinkId(l)).marked).sum();
        let marked = (w.link_stats(core).marked, edge);
        assert_eq!(w.totals().drops.total(), 0);
        (waiting / count, share, marked, w.hosts()[0].rc.counters().becns)
    };
    let off = run(None);
    let on = run(Some(IbCcConfig::default()));
    println!("{off:?} {on:?}");
    assert!(off.1 > 0.99 && on.1 > 0.95, "{off:?} {on:?}");
    assert!(off.0 > 60_000.0 && on.0 < off.0 / 3.0, "{off:?} {on:?}");
    assert!(off.3 == 0 && on.3 > 10, "{on:?}");
    // Packets wait for credits at the link before: a victim, which does not mark.
    assert!(on.2.0 * 20 < on.2.1, "{on:?}");
}

/// Pauses that begin above the marks.
fn pfc_deep() -> FlowControl {
    FlowControl::Pfc(PfcConfig {
        xoff_bytes: 1_000_000,
        xon_bytes: 900_000,
        headroom_bytes: None,
        packet_bytes: 4_178,
        service: Service::Fcfs,
    })
}

#[test]
fn what_cannot_be_is_refused() {
    let fails = |c: RcConfig| c.check().expect_err("refused").to_string();
    assert!(fails(RcConfig { ack_timeout: 32, ..rc() }).contains("ack_timeout = 32"));
    assert!(fails(RcConfig { retry_cnt: 8, ..rc() }).contains("retry_cnt = 8"));
    assert!(fails(RcConfig { window_bytes: 10, ..rc() }).contains("window_bytes = 10"));
    let endless = RcConfig { recovery: Recovery::Irn, ..rc() };
    assert!(fails(endless).contains("window_bytes = 0"));
    let odd = RcConfig { static_gbps: Some(33.0), ..rc() };
    assert!(fails(odd).contains("static_rate = 33"));
    assert!(fails(RcConfig { mtu: 64, ..rc() }).contains("mtu = 64"));
    let ib = |change: fn(&mut IbCcConfig)| {
        let mut ib = IbCcConfig::default();
        change(&mut ib);
        fails(RcConfig { ib_cc: Some(ib), ..rc() })
    };
    assert!(ib(|ib| ib.timer_ps = 65_536 * CCTI_TIMER_UNIT_PS).contains("ccti_timer = 65536"));
    assert!(ib(|ib| ib.increase = 0).contains("ccti_increase"));
    assert!(ib(|ib| ib.limit = 0).contains("ccti_limit"));
    assert!(ib(|ib| ib.step = 0.1).contains("cct_step = 0.1"));
    let both = RcConfig { ib_cc: Some(IbCcConfig::default()), ..RcConfig::default() };
    assert!(fails(both).contains("dcqcn"));
}
