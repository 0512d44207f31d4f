//! A bottleneck between hosts, and a record of what passed.

use srd_fabric::{
    Effect, Fault, HostId, LinkId, Port, Ps, Tap, TapEvent, TapWhat, Target, Topology, WorldConfig,
    dumbbell,
};
use srd_rivals::{Conn, TcpConfig, TcpNet, TcpSegment};
use std::sync::{Arc, Mutex};

/// A packet's fate.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub at: Ps,
    pub what: TapWhat,
    pub segment: TcpSegment,
}

/// Everything that happened, in order.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Seen>>>);

impl Tap<TcpSegment> for Log {
    fn on_event(&mut self, event: &TapEvent, payload: &TcpSegment) {
        let seen = Seen { at: event.now, what: event.what, segment: *payload };
        self.0.lock().expect("one thread").push(seen);
    }
}

impl Log {
    /// Watches a network from now on.
    pub fn watch(net: &mut TcpNet) -> Self {
        let log = Self::default();
        net.world.tap_set(Some(Box::new(log.clone())));
        log
    }
    /// All of it.
    pub fn all(&self) -> Vec<Seen> {
        self.0.lock().expect("one thread").clone()
    }
    /// When each data segment was sent, and its first byte.
    pub fn data_sent(&self) -> Vec<(Ps, u64)> {
        let sent = self.all().into_iter().filter(|s| s.what == TapWhat::Sent);
        sent.filter_map(|s| match s.segment {
            TcpSegment::Data { seq, .. } => Some((s.at, seq)),
            _ => None,
        })
        .collect()
    }
    /// When acks were sent.
    pub fn acks_sent(&self) -> Vec<Ps> {
        let sent = self.all().into_iter().filter(|s| s.what == TapWhat::Sent);
        sent.filter(|s| matches!(s.segment, TcpSegment::Ack(_))).map(|s| s.at).collect()
    }
}

/// `pairs` hosts on each side of one link of `rate` and one-way delay `delay_ps` with a queue of
/// `buffer` bytes; all other links are fast and short. Host `i` talks to host `pairs + i`.
pub fn bottleneck(pairs: u32, rate: u64, delay_ps: Ps, buffer: u64) -> Topology {
    let fast = Port::new(400_000_000_000, 1_000);
    dumbbell(pairs, pairs, fast, fast, Port::new(rate, delay_ps).buffer(buffer))
}

/// The link of [`bottleneck`] that data take.
pub fn forward(net: &TcpNet) -> LinkId {
    net.world.topology().core_cables().next().expect("the bottleneck").up()
}

/// The link that acks take.
pub fn back(net: &TcpNet) -> LinkId {
    forward(net).reverse()
}

/// A network over [`bottleneck`].
pub fn net(topology: Topology, seed: u64, tcp: &TcpConfig) -> TcpNet {
    TcpNet::new(topology, WorldConfig::new(seed), tcp.clone()).expect("a sound network")
}

/// Connections `i -> pairs + i`, open and with a round trip time.
pub fn open(net: &mut TcpNet, pairs: u32) -> Vec<Conn> {
    (0..pairs).map(|i| net.connect(HostId(i), HostId(pairs + i))).collect()
}

/// Loses everything on a link from `from` until `to`.
pub fn swallow(net: &mut TcpNet, link: LinkId, from: Ps, to: Ps) {
    let at = Target::Link(link);
    for (when, p) in [(from, 1.0), (to, 0.0)] {
        let fault = Fault::Impair { at, effect: Effect::Loss(p) };
        net.world.fault_at(when, fault).expect("a link that exists");
    }
}

/// Exact timers: no ticks, no slack.
pub fn exact() -> TcpConfig {
    TcpConfig { tick_ps: 0, ..TcpConfig::default() }
}
