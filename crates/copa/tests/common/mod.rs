//! Senders behind one switch, receivers behind another, rings at the receivers.
#![allow(dead_code, reason = "every test file uses its own share of these helpers")]

use srd_copa::{CopaConfig, CopaHost, CopaPacket, Counters, End};
use srd_fabric::{
    HostId, MS, NS, Placement, Port, Ps, RingConfig, RingStats, Topology, World, WorldConfig,
    dumbbell,
};
use std::rc::Rc;

/// 400 Gb/s: 20 ps per byte.
pub const RATE: u64 = 400_000_000_000;
pub const PER_BYTE: Ps = 20;

pub type Net = World<CopaPacket, CopaHost>;

/// `left` senders and `right` receivers, links of `delay` each; the cable between is as fast as all
/// receivers.
pub fn shape(left: u32, right: u32, delay: Ps) -> Topology {
    let port = Port::new(RATE, delay);
    let core = Port::new(RATE * u64::from(right), delay);
    dumbbell(left, right, port, port.buffer(1 << 22), core.buffer(1 << 22))
}

/// Base round trip over three links: a data packet without its time on the first, and an
/// acknowledgment back.
pub fn base_rtt(config: &CopaConfig, delay: Ps) -> Ps {
    let (data, ack) = (u64::from(config.packet_bytes()), u64::from(config.control_bytes));
    6 * delay + (2 * data + 3 * ack) * PER_BYTE
}

/// One sender, one receiver with a slow host.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub config: CopaConfig,
    pub delay: Ps,
    /// Host over link.
    pub h: f64,
    /// Ring in units of link times base round trip.
    pub ring: f64,
    /// Data packets.
    pub packets: u64,
    pub seed: u64,
}

impl Cell {
    /// Settings changed by `change`; the base round trip is told.
    pub fn new(h: f64, ring: f64, packets: u64, change: impl FnOnce(&mut CopaConfig)) -> Self {
        let delay = 1_050 * NS;
        let mut config = CopaConfig::new(NS);
        change(&mut config);
        config.rtt_ps = base_rtt(&config, delay);
        config.check().expect("sound settings");
        Self { config, delay, h, ring, packets, seed: 1 }
    }

    pub fn bdp_bytes(&self) -> f64 {
        base_rtt(&self.config, self.delay) as f64 / PER_BYTE as f64
    }

    pub fn ring_config(&self) -> RingConfig {
        RingConfig {
            limit_bytes: (self.ring * self.bdp_bytes()) as u64,
            bits_per_s: Some((self.h * RATE as f64) as u64),
            dma_delay_ps: 0,
            placement: Placement::Card,
        }
    }

    /// The world with its flow planned.
    pub fn world(&self) -> Net {
        let config = Rc::new(self.config);
        let host = |h| CopaHost::new(h, Rc::clone(&config));
        let mut w = World::new(shape(1, 1, self.delay), WorldConfig::new(self.seed), host).unwrap();
        w.ring_set(HostId(1), self.ring_config()).unwrap();
        let bytes = self.packets * u64::from(self.config.payload_bytes);
        let token = w.host_mut(HostId(0)).flow_add(0, HostId(1), bytes);
        w.call_at(0, HostId(0), token);
        w
    }

    pub fn run(&self) -> Out {
        let mut w = self.world();
        w.run_until(3_000 * MS);
        Out::of(&mut w)
    }
}

/// What came of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Out {
    pub hash: u64,
    pub sum: Counters,
    pub ring: RingStats,
    pub ends: Vec<End>,
}

impl Out {
    pub fn of(w: &mut Net) -> Self {
        let mut sum = Counters::default();
        let mut ends = Vec::new();
        for h in (0..w.hosts().len() as u32).map(HostId) {
            sum.add(w.hosts()[h.0 as usize].counters());
            ends.extend(w.host_mut(h).ends_take());
        }
        let last = HostId(w.hosts().len() as u32 - 1);
        let ring = w.ring_stats(last).unwrap_or_default();
        assert_eq!(
            ring.arrived_bytes,
            ring.written_bytes + ring.waiting_bytes + ring.dropped_bytes
        );
        assert!(w.totals().conserved());
        Self { hash: w.run_hash(), sum, ring, ends }
    }
    /// Sent packets that found no room, in percent.
    pub fn lost_percent(&self) -> f64 {
        100.0 * self.sum.full as f64 / self.sum.data_sent as f64
    }
    /// What the host wrote over what it could have.
    pub fn goodput(&self) -> f64 {
        let (wrote, idle) = (self.ring.written_bytes as f64, self.ring.idle_bytes as f64);
        wrote / (wrote + idle)
    }
    /// When the first flow was done for its sender.
    pub fn done_at(&self) -> Ps {
        self.ends.iter().find(|e| e.done).expect("a flow is done").at
    }
}
