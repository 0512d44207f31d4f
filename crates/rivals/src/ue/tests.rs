use super::*;
use crate::{FlowHost, Reports};
use srd_fabric::{
    Delivered, Fault, Host, HostId, HostIo, LeafSpine, LinkId, MS, Port, Ps, SwitchId, Target,
    Topology, US, World, WorldConfig, back_to_back, dumbbell,
};
use std::sync::Arc;

/// A host that sends as many bytes to `dst` as the token of a call says.
struct Sender {
    ue: UeHost,
    dst: HostId,
    conn: Option<u32>,
    done: Reports,
}

impl Host<UePacket> for Sender {
    fn on_packet(&mut self, now: Ps, p: Delivered<UePacket>, io: &mut HostIo<'_, UePacket>) {
        self.ue.on_packet(now, p, io);
        self.done.done.append(&mut self.ue.reports().done);
        self.done.got.append(&mut self.ue.reports().got);
    }
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, UePacket>) {
        self.ue.on_timer(now, io);
    }
    fn on_call(&mut self, _: Ps, bytes: u64, io: &mut HostIo<'_, UePacket>) {
        let dst = self.dst;
        let conn = *self.conn.get_or_insert_with(|| self.ue.connect(dst));
        self.ue.post(conn, bytes, bytes, io);
    }
}

const LINE: u64 = 100_000_000_000;

fn config(rtt: Ps) -> UeConfig {
    UeConfig::new(rtt, LINE as f64)
}

fn world(topo: Topology, seed: u64, ue: UeConfig, dst: u32) -> World<UePacket, Sender> {
    ue.check().expect("sound");
    let ue = Arc::new(ue);
    World::new(topo, WorldConfig::new(seed), |id| Sender {
        ue: UeHost::new(id, Arc::clone(&ue), seed),
        dst: HostId(dst),
        conn: None,
        done: Reports::default(),
    })
    .expect("sound")
}

fn wire(bytes: u64) -> Ps {
    bytes * 80
}

fn ended(w: &World<UePacket, Sender>, host: usize) -> Ps {
    w.hosts()[host].done.done.last().map_or(0, |d| d.at)
}

fn payload(w: &World<UePacket, Sender>, host: usize) -> u64 {
    w.hosts()[host].done.got.iter().map(|g| u64::from(g.bytes)).sum()
}

#[test]
fn a_message_alone_takes_what_its_packets_take() {
    for (nscc, rccc) in [(true, false), (false, true), (true, true)] {
        let rtt = 2 * US + wire(4_160) + wire(84);
        let c = UeConfig { nscc, rccc, ack_every: 1, ..config(rtt) };
        let mut w = world(back_to_back(Port::new(LINE, US)), 1, c, 1);
        w.call_at(0, HostId(0), 4_096_000);
        w.run_to_end();
        let least = 1_000 * wire(4_160) + 2 * US + wire(84);
        let end = ended(&w, 0);
        // Receivers grant 99 % of the rate.
        let most = if rccc { least + least / 80 } else { least + wire(4_160) };
        assert!((least..=most).contains(&end), "{nscc} {rccc}: {end}, {least} to {most}");
        let c = w.hosts()[0].ue.counters();
        assert_eq!((c.sent, c.repeated, c.timeouts), (1_000, 0, 0), "{nscc} {rccc}");
        assert_eq!(payload(&w, 1), 4_096_000);
    }
}

#[test]
fn everything_arrives_once_whatever_is_lost() {
    for (seed, (nscc, rccc)) in
        (0..24).zip([(true, false), (false, true), (true, true)].into_iter().cycle())
    {
        let port = Port::new(LINE, US).buffer(300_000);
        let topo = LeafSpine {
            leaves: 2,
            spines: 4,
            hosts_per_leaf: 4,
            cables_per_spine: 1,
            nic: Port::new(LINE, US),
            edge: port,
            uplink: port,
        }
        .build();
        let mut w = world(topo, seed, UeConfig { nscc, rccc, ..config(10 * US) }, 7);
        let effect = srd_fabric::Effect::Loss(0.02);
        w.fault_now(Fault::Impair { at: Target::All, effect }).expect("possible");
        let hole = Fault::SwitchHole { switch: SwitchId(3), routing: None };
        w.fault_at(60 * US, hole).expect("possible");
        (0..6).for_each(|h| w.call_at(u64::from(h) * US, HostId(h), 700_000));
        w.run_until(60 * MS);
        let what = format!("seed {seed}, nscc {nscc}, rccc {rccc}");
        for h in 0..6 {
            assert!(ended(&w, h) > 0, "{what}: host {h} is not done");
        }
        assert_eq!(payload(&w, 7), 6 * 700_000, "{what}");
        // Silence follows: no timer repeats for ever.
        assert!(w.next_event_at().is_none_or(|at| at < 61 * MS), "{what}");
        w.run_to_end();
    }
}

#[test]
fn a_lost_last_packet_is_found_by_a_probe() {
    let rtt = 2 * US + wire(4_160) + wire(84);
    let c = UeConfig { ack_every: 1, ..config(rtt) };
    let mut w = world(back_to_back(Port::new(LINE, US)), 1, c, 1);
    let link = Target::Link(LinkId(0));
    let at = wire(4_160) * 100 + US - wire(2_000);
    w.fault_at(at, Fault::BlackHole { at: link, routing: None }).expect("possible");
    let end = Fault::BlackHoleEnd { at: link, routing: None };
    w.fault_at(at + wire(4_000), end).expect("possible");
    w.call_at(0, HostId(0), 409_600);
    w.run_to_end();
    let c = w.hosts()[0].ue.counters();
    assert_eq!((c.sent, c.repeated, c.probes, c.timeouts), (101, 1, 1, 0), "{c:?}");
    // The probe leaves a round trip and the target after the last acknowledgment; probe, repeated
    // packet and acknowledgments cross the wire one after another.
    let acked = 99 * wire(4_160) + 2 * US + wire(84);
    let after = 2 * rtt + 2 * (2 * US) + wire(4_160) + 3 * wire(84);
    assert_eq!(ended(&w, 0), acked + after);
}

#[test]
fn credits_keep_the_queue_short_and_shares_equal() {
    let port = Port::new(LINE, US);
    let c = UeConfig { nscc: false, rccc: true, ..config(10 * US) };
    let mut w =
        world(dumbbell(8, 1, port, port.buffer(4_000_000), port.buffer(4_000_000)), 1, c, 8);
    (0..8).for_each(|h| w.call_at(0, HostId(h), 2_048_000));
    w.run_to_end();
    let ends: Vec<Ps> = (0..8).map(|h| ended(&w, h)).collect();
    let least = 8 * 500 * wire(4_160);
    let (first, last) = (ends.iter().min().copied(), ends.iter().max().copied());
    let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
    // 1 % less than the rate, after a first window of each.
    assert!((least..least + least / 60).contains(&last), "{last} {least}");
    assert!(first * 100 > last * 97, "{ends:?}");
    let sent: u64 = (0..8).map(|h| w.hosts()[h].ue.counters().sent).sum();
    assert_eq!(sent, 8 * 500, "nothing was lost");
}

#[test]
fn the_window_follows_its_four_cases() {
    let c = UeConfig { target_ps: 12 * US, ..config(12 * US) };
    let most = c.window_bytes_max();
    assert_eq!(most, 225_000.0);
    let mut n = Nscc::new(&c);
    assert_eq!(n.window(), most);
    // Marked and far above the target: the mean must pass the target before the window shrinks, at
    // most by half and once per round trip.
    let mut now = 0;
    for _ in 0..200 {
        now += US / 2;
        let delay = n.delay_of(12 * US + 40 * US, true);
        n.on_ack(now, 4_160.0, Some(delay), true, 200_000.0);
    }
    assert!(n.mean_delay() > 12e6 && n.window() < most, "{} {}", n.mean_delay(), n.window());
    let low = n.window();
    // Marked below the target: nothing but the increase per round trip of 0.15 packets.
    n.on_ack(now, 4_160.0, Some(US), true, 50_000.0);
    assert!(n.window() >= low && n.window() <= low + 0.15 * 4_096.0, "{} {low}", n.window());
    // Unmarked, without a queue for more than a window: fast growth to the largest window.
    for _ in 0..300 {
        now += US / 2;
        n.on_ack(now, 4_160.0, Some(0), false, 50_000.0);
    }
    assert_eq!(n.window(), most);
    // Loss while next to nothing arrives: the window becomes what arrived, at least a packet.
    for _ in 0..3 {
        now += 30 * US;
        n.on_ack(now, 8_320.0, Some(20 * US), true, 200_000.0);
        n.on_loss(now, 4_160.0, 200_000.0);
    }
    assert!(n.window() >= 4_160.0 && n.window() <= 12_480.0, "{}", n.window());
}

#[test]
fn what_cannot_be_is_refused() {
    let fails = |c: UeConfig| c.check().expect_err("refused").to_string();
    let c = || config(12 * US);
    assert!(fails(UeConfig { entropies: 3, ..c() }).contains("entropies = 3"));
    assert!(fails(UeConfig { nscc: false, ..c() }).contains("cc"));
    assert!(fails(UeConfig { ack_every: 0, ..c() }).contains("ack_every = 0"));
    assert!(fails(UeConfig { credit_share: 1.5, ..c() }).contains("credit_share = 1.5"));
    assert!(fails(UeConfig { timeout_ps: US, ..c() }).contains("timeout_us"));
}
