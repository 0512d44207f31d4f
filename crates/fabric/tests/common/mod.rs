//! A host that sends prepared packets and records those it receives.

pub mod flows;

use srd_fabric::{
    Delivered, Host, HostId, HostIo, LeafSpine, Outbound, Port, Ps, RingFull, RingPut, Topology,
    US, World, WorldConfig,
};

/// 100 Gb/s: 80 ps per byte.
pub const RATE: u64 = 100_000_000_000;
/// Picoseconds per byte at [`RATE`].
pub const PER_BYTE: Ps = 80;

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    pub at: Ps,
    pub src: HostId,
    pub sport: u16,
    pub ce: bool,
    pub corrupt: u16,
    pub id: u64,
}

/// Sends `queued[token]` when called, records arrivals, timers and refusals.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    pub queued: Vec<(Outbound, u64)>,
    pub got: Vec<Got>,
    pub timers: Vec<Ps>,
    pub calls: Vec<(Ps, u64)>,
    pub refused: Vec<u64>,
    /// Results of putting each packet into the ring, if the probe does so.
    pub puts: Option<Vec<(Ps, Result<RingPut, RingFull>)>>,
    /// Numbers of written bytes at which it requests a call, in order.
    pub call_at: Vec<u64>,
    /// Times of these calls.
    pub rung: Vec<Ps>,
    /// If set, each timer is set again after this time.
    pub again_ps: Option<Ps>,
}

impl Host<u64> for Probe {
    fn on_packet(&mut self, at: Ps, p: Delivered<u64>, io: &mut HostIo<'_, u64>) {
        if let Some(puts) = &mut self.puts {
            puts.push((at, io.rx_ring_put()));
            let took = |s: srd_fabric::RingState| s.written_bytes + s.backlog_bytes;
            let took = io.rx_ring().map_or(0, took);
            io.rx_ring_call(self.call_at.first().copied().filter(|b| *b <= took));
        }
        let Delivered { src, sport, ce, corrupt, payload: id, .. } = p;
        self.got.push(Got { at, src, sport, ce, corrupt, id });
    }
    fn on_ring(&mut self, now: Ps, io: &mut HostIo<'_, u64>) {
        self.rung.push(now);
        self.call_at.remove(0);
        io.rx_ring_call(self.call_at.first().copied());
    }
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, u64>) {
        assert_eq!(io.timer(), Ps::MAX, "the timer is off when it is called");
        self.timers.push(now);
        if let Some(after) = self.again_ps {
            io.timer_set(now + after);
        }
    }
    fn on_call(&mut self, now: Ps, token: u64, io: &mut HostIo<'_, u64>) {
        self.calls.push((now, token));
        if let Some((out, id)) = self.queued.get(token as usize)
            && let Err(id) = io.send(*out, *id)
        {
            self.refused.push(id);
        }
    }
}

pub type Net = World<u64, Probe>;

pub fn world(topology: Topology, seed: u64) -> Net {
    World::new(topology, WorldConfig::new(seed), |_| Probe::default()).expect("a sound topology")
}

/// Sends a packet at a time.
pub fn send_at(w: &mut Net, at: Ps, src: u32, dst: u32, sport: u16, bytes: u32, id: u64) {
    let out = Outbound { dst: HostId(dst), sport, dport: 7, bytes, ect: true };
    let host = w.host_mut(HostId(src));
    host.queued.push((out, id));
    let token = host.queued.len() as u64 - 1;
    w.call_at(at, HostId(src), token);
}

/// Ids that a host received, in order.
pub fn ids(w: &Net, host: u32) -> Vec<u64> {
    w.hosts()[host as usize].got.iter().map(|g| g.id).collect()
}

/// 100 Gb/s, 1 µs.
pub fn port() -> Port {
    Port::new(RATE, US)
}

/// `leaves` × `per_leaf` hosts under `spines` spines, all links 100 Gb/s and 1 µs, 1 MB queues.
pub fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32) -> Topology {
    let switch = port().buffer(1 << 20);
    LeafSpine {
        leaves,
        spines,
        hosts_per_leaf: per_leaf,
        cables_per_spine: 1,
        nic: port(),
        edge: switch,
        uplink: switch,
    }
    .build()
}

/// Runs to the end and checks that every packet is accounted for and none is in flight.
pub fn finish(w: &mut Net) {
    w.run_to_end();
    let t = w.totals();
    assert!(t.conserved(), "{t:?}");
    assert_eq!(t.in_flight, 0, "{t:?}");
}
