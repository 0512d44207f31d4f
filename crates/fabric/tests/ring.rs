//! Receive rings of hosts: compared with arithmetic, and their counters under random faults.

use crate::common::{PER_BYTE, Probe, RATE, finish, leaf_spine, port, send_at, world};
use srd_fabric::{
    Delivered, DropReason, Fault, Host, HostId, HostIo, LinkId, MS, NS, Outbound, Placement, Ps,
    RingConfig, RingPut, RingStats, Rng, US, World, WorldConfig, back_to_back,
};

/// A ring of `limit_bytes` that drains at half the rate of the tests' links.
fn half(limit_bytes: u64, placement: Placement) -> RingConfig {
    RingConfig { limit_bytes, bits_per_s: Some(RATE / 2), dma_delay_ps: 0, placement }
}

/// Time per byte at half the rate.
const DRAIN: Ps = 2 * PER_BYTE;
const B: u32 = 1_000;
/// Arrival of the first packet of [`B`] bytes over one cable.
const FIRST: Ps = US + B as Ps * PER_BYTE;

/// Two hosts with `n` packets of 1,000 bytes back to back from host 0 to host 1, which has this
/// ring.
fn stream(n: u64, ring: RingConfig) -> World<u64, Probe> {
    let mut w = world(back_to_back(port()), 1);
    w.ring_set(HostId(1), ring).unwrap();
    for id in 0..n {
        send_at(&mut w, 0, 0, 1, 1, B, id);
    }
    w
}

fn stats(w: &World<u64, Probe>) -> RingStats {
    let s = w.ring_stats(HostId(1)).expect("host 1 has a ring");
    assert_eq!(s.arrived_bytes, s.written_bytes + s.waiting_bytes + s.dropped_bytes, "{s:?}");
    s
}

#[test]
fn behind_the_ring_packets_come_at_its_rate_and_the_copy_takes_its_time() {
    let mut w = stream(50, RingConfig { dma_delay_ps: 300 * NS, ..half(1 << 20, Placement::Host) });
    finish(&mut w);
    let got = &w.hosts()[1].got;
    assert_eq!(got.len(), 50);
    for (i, g) in got.iter().enumerate() {
        assert_eq!(g.at, FIRST + (i as Ps + 1) * Ps::from(B) * DRAIN + 300 * NS);
    }
    // At the arrival of the last of 50 packets, 24.5 have been written.
    let s = stats(&w);
    assert_eq!((s.written_bytes, s.dropped, s.depth_bytes_max), (50_000, 0, 25_500));
    assert_eq!((s.idle_ps, s.span_ps), (0, 50_000 * DRAIN));
}

#[test]
fn what_does_not_fit_is_lost_at_the_host_and_counted_as_its_own() {
    for (limit, n) in [(1_000, 400), (10_500, 1_000), (64_000, 1_000)] {
        for placement in [Placement::Host, Placement::Card] {
            let mut w = stream(n, half(limit, placement));
            if placement == Placement::Card {
                w = card_of(n, limit);
            }
            finish(&mut w);
            let s = stats(&w);
            // Until the last packet arrived, the ring wrote half of the bytes that arrived since
            // the first one: it accepted those, the bytes that it holds, and less than one packet.
            let most = limit + (n - 1) * u64::from(B) / 2;
            let took = s.arrived_bytes - s.dropped_bytes;
            assert!(took <= most && took + 2 * u64::from(B) > most, "{limit}: {took} of {most}");
            let drops = w.totals().drops;
            assert_eq!((drops.at_hosts(), drops.total()), (s.dropped, s.dropped));
            assert_eq!(w.link_stats(LinkId(0)).drops.of(DropReason::HostFull), s.dropped);
            assert!(s.depth_bytes_max <= limit && s.depth_bytes_p99 <= s.depth_bytes_max);
        }
    }
}

/// The same with the transport on the card.
fn card_of(n: u64, limit: u64) -> World<u64, Probe> {
    let mut w = stream(n, half(limit, Placement::Card));
    w.host_mut(HostId(1)).puts = Some(Vec::new());
    w
}

#[test]
fn the_card_sees_packets_on_arrival_and_memory_follows() {
    let mut w = card_of(10, 1 << 20);
    w.host_mut(HostId(1)).call_at = vec![2_500, 10_000];
    finish(&mut w);
    let host = &w.hosts()[1];
    for (i, (at, put)) in host.puts.iter().flatten().enumerate() {
        let (i, b) = (i as u64, u64::from(B));
        assert_eq!(*at, FIRST + i * b * PER_BYTE);
        let put = put.expect("there is room");
        let want = RingPut {
            end_bytes: (i + 1) * b,
            backlog_bytes: (i + 1) * b - i * b / 2,
            written_at: FIRST + (i + 1) * b * DRAIN,
        };
        assert_eq!(put, want);
    }
    assert_eq!(host.rung, [FIRST + 2_500 * DRAIN, FIRST + 10_000 * DRAIN]);
}

#[test]
fn a_ring_that_slows_down_or_hurries_moves_what_waits() {
    for (percent, per_byte) in [(50, 2 * DRAIN), (200, DRAIN / 2), (100, DRAIN)] {
        let fault = Fault::HostDrain { host: HostId(1), percent };
        // Ten packets have arrived when five have been written.
        let change = FIRST + 5_000 * DRAIN;
        let mut behind = stream(10, half(1 << 20, Placement::Host));
        let mut before = card_of(10, 1 << 20);
        before.host_mut(HostId(1)).call_at = vec![7_000];
        for w in [&mut behind, &mut before] {
            w.fault_at(change, fault).unwrap();
            finish(w);
            w.run_until(MS);
            assert_eq!(stats(w).span_ps, 5_000 * DRAIN + 5_000 * per_byte);
        }
        let at: Vec<Ps> = behind.hosts()[1].got.iter().map(|g| g.at).collect();
        let want = |i: Ps| {
            if i <= 5 { FIRST + i * 1_000 * DRAIN } else { change + (i - 5) * 1_000 * per_byte }
        };
        assert_eq!(at, (1..=10).map(want).collect::<Vec<_>>());
        assert_eq!(before.hosts()[1].rung, [change + 2_000 * per_byte]);
    }
}

#[test]
fn idle_is_what_could_have_been_written_between_the_first_packet_and_the_last() {
    let mut w = world(back_to_back(port()), 1);
    w.ring_set(HostId(1), half(1 << 20, Placement::Host)).unwrap();
    send_at(&mut w, 0, 0, 1, 1, B, 0);
    send_at(&mut w, 10 * US, 0, 1, 1, B, 1);
    // Idle from the end of the first packet to the arrival of the second, the latter half at twice
    // the rate.
    let pause = 10 * US - 1_000 * DRAIN;
    let middle = FIRST + 1_000 * DRAIN + pause / 2;
    w.fault_at(middle, Fault::HostDrain { host: HostId(1), percent: 200 }).unwrap();
    // A change before the first packet, or after all is written, has no effect.
    w.fault_at(100, Fault::HostDrain { host: HostId(1), percent: 100 }).unwrap();
    w.fault_at(MS, Fault::HealAll).unwrap();
    finish(&mut w);
    let s = stats(&w);
    assert_eq!((s.idle_ps, s.span_ps), (pause, 10 * US + 1_000 * PER_BYTE));
    assert_eq!(s.idle_bytes, pause / 2 / DRAIN + pause / 2 / PER_BYTE);
}

#[test]
fn a_host_without_a_ring_has_its_packets_at_once() {
    let mut w = world(back_to_back(port()), 1);
    w.host_mut(HostId(1)).puts = Some(Vec::new());
    send_at(&mut w, 0, 0, 1, 1, B, 0);
    finish(&mut w);
    let (at, put) = w.hosts()[1].puts.as_ref().unwrap()[0];
    assert_eq!((at, put.unwrap().written_at, w.ring_stats(HostId(1))), (FIRST, FIRST, None));
}

#[test]
fn rings_and_drains_that_make_no_sense_are_refused() {
    let mut w = world(back_to_back(port()), 1);
    let good = half(1_000, Placement::Card);
    for (host, config, words) in [
        (2, good, "host 2 does not exist"),
        (1, RingConfig { limit_bytes: 0, ..good }, "0 bytes"),
        (1, RingConfig { bits_per_s: Some(10), ..good }, "1 Mb/s"),
    ] {
        let e = w.ring_set(HostId(host), config).unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    }
    w.ring_set(HostId(1), RingConfig { bits_per_s: None, ..good }).unwrap();
    assert!(w.ring_set(HostId(1), good).unwrap_err().to_string().contains("already"));
    for (host, percent, words) in
        [(0, 50, "has no ring"), (1, 50, "has no ring"), (2, 50, "2 hosts"), (1, 0, "drain 0 %")]
    {
        let fault = Fault::HostDrain { host: HostId(host), percent };
        let e = w.fault_at(0, fault).unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    }
}

/// Sends at random, and puts two packets of three into its ring, if it has one.
struct Chatter {
    rng: Rng,
    hosts: u64,
    left: u32,
    rung: u64,
}

impl Chatter {
    fn send(&mut self, io: &mut HostIo<'_, u64>) {
        let dst = HostId(self.rng.below(self.hosts) as u32);
        if dst != io.host() {
            let (bytes, sport) = (self.rng.range(64, 3_000) as u32, self.rng.below(9) as u16);
            let _ = io.send(Outbound { dst, sport, dport: 1, bytes, ect: false }, 0);
        }
        if self.left > 0 {
            self.left -= 1;
            io.timer_set(io.now() + self.rng.below(400 * NS));
        }
    }
}

impl Host<u64> for Chatter {
    fn on_packet(&mut self, _: Ps, _: Delivered<u64>, io: &mut HostIo<'_, u64>) {
        if self.rng.below(3) > 0
            && let Ok(put) = io.rx_ring_put()
        {
            io.rx_ring_call(Some(put.end_bytes));
        }
    }
    fn on_ring(&mut self, _: Ps, io: &mut HostIo<'_, u64>) {
        self.rung += 1;
        if self.rng.below(4) == 0 {
            self.send(io);
        }
    }
    fn on_timer(&mut self, _: Ps, io: &mut HostIo<'_, u64>) {
        self.send(io);
    }
    fn on_call(&mut self, _: Ps, _: u64, io: &mut HostIo<'_, u64>) {
        self.send(io);
    }
}

/// Six hosts with different rings, changing drain rates, and stalls.
fn storm(seed: u64, slot_shift: Option<u32>, windows: bool) -> World<u64, Chatter> {
    let topo = leaf_spine(3, 2, 2);
    let config = WorldConfig { slot_shift, windows, ..WorldConfig::new(seed) };
    let host =
        |h: HostId| Chatter { rng: Rng::stream(seed, 7, h.0.into()), hosts: 6, left: 600, rung: 0 };
    let mut w = World::new(topo, config, host).unwrap();
    let mut rng = Rng::new(seed);
    for h in (0..5).map(HostId) {
        let ring = RingConfig {
            limit_bytes: rng.range(3_000, 40_000),
            bits_per_s: (h.0 != 4).then(|| rng.range(RATE / 50, RATE)),
            dma_delay_ps: rng.below(2) * 700 * NS,
            placement: if h.0 % 2 == 0 { Placement::Card } else { Placement::Host },
        };
        w.ring_set(h, ring).unwrap();
        for _ in 0..6 {
            let at = rng.below(150 * US);
            let fault = match rng.below(5) {
                0 => Fault::HostStall { host: h, for_ps: rng.below(9 * US) },
                1 => Fault::HealAll,
                _ if h.0 == 4 => continue,
                _ => Fault::HostDrain { host: h, percent: rng.range(1, 300) as u32 },
            };
            w.fault_at(at, fault).unwrap();
        }
    }
    (0..6).for_each(|h| w.call_at(0, HostId(h), 0));
    w
}

#[test]
fn the_books_of_rings_balance_at_every_moment_of_a_storm() {
    let mut drops = 0;
    for seed in 0..40 {
        let mut w = storm(seed, None, false);
        let mut at = 0;
        while w.next_event_at().is_some() {
            at += 3 * US;
            w.run_until(at);
            assert!(w.totals().conserved(), "seed {seed}");
            let mut dropped = 0;
            for s in (0..6).filter_map(|h| w.ring_stats(HostId(h))) {
                let books = s.written_bytes + s.waiting_bytes + s.dropped_bytes;
                assert_eq!(s.arrived_bytes, books, "seed {seed}: {s:?}");
                dropped += s.dropped;
            }
            assert_eq!(dropped, w.totals().drops.at_hosts());
        }
        assert_eq!(w.totals().in_flight, 0, "seed {seed}: nothing stays behind a ring");
        for s in (0..6).filter_map(|h| w.ring_stats(HostId(h))) {
            assert_eq!(s.waiting_bytes, 0);
            assert!(s.idle_ps <= s.span_ps, "seed {seed}: {s:?}");
        }
        drops += w.totals().drops.at_hosts();
        assert!(w.hosts().iter().any(|h| h.rung > 0));
    }
    assert!(drops > 1_000, "the rings were never full: {drops}");
}

#[test]
fn slots_and_windows_of_the_event_queue_change_nothing() {
    for seed in 0..12 {
        let run = |slot_shift, windows| {
            let mut w = storm(seed, slot_shift, windows);
            w.run_to_end();
            let stats: Vec<_> = (0..6).map(|h| w.ring_stats(HostId(h))).collect();
            let rung: Vec<_> = w.hosts().iter().map(|h| h.rung).collect();
            (w.run_hash(), w.totals().drops, stats, rung)
        };
        let plain = run(None, false);
        assert_eq!(plain, run(Some(20), false), "seed {seed}");
        assert_eq!(plain, run(None, true), "seed {seed}");
    }
}
