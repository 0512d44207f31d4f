//! Hosts that send flows on circuits as fast as the network takes them, and check the packets they
//! receive.

use srd_fabric::{
    Delivered, FlowId, Host, HostId, HostIo, KaryNTree, Outbound, Port, Ps, RegisterOp, Rng, Tag,
    Topology, World, WorldConfig,
};
use std::collections::BTreeMap;

/// Bytes of a packet, announcements of a flow and of its end included.
pub const BYTES: u32 = 2_048;
pub const CONTROL_BYTES: u32 = 16;

#[derive(Clone, Debug)]
pub struct Sending {
    pub dst: HostId,
    pub packets: u64,
    pub sent: u64,
    pub id: Option<FlowId>,
    /// Added to the registers by the first packet, and subtracted by the last.
    pub weight: i64,
}

/// Payload of a packet: index of the flow at its sender, and of the packet in the flow.
pub type Payload = (u32, u64);

#[derive(Debug, Default)]
pub struct Flows {
    pub flows: Vec<Sending>,
    next: usize,
    /// The expected next packet of each incoming flow.
    pub expected: BTreeMap<(HostId, u32), u64>,
    pub got: u64,
    pub out_of_order: u64,
    pub ended_at: Ps,
    pub register_max: i64,
    /// Time between packets; `None` = whenever the card has room.
    pub pace_ps: Option<Ps>,
}

impl Flows {
    fn send(&mut self, io: &mut HostIo<'_, Payload>) {
        loop {
            if self.flows.iter().all(|f| f.sent == f.packets) || !io.room_want() {
                return;
            }
            while self.flows[self.next].sent == self.flows[self.next].packets {
                self.next = (self.next + 1) % self.flows.len();
            }
            let at = self.next as u32;
            self.next = (self.next + 1) % self.flows.len();
            let flow = &mut self.flows[at as usize];
            let id = *flow.id.get_or_insert_with(|| io.flow_open(flow.dst));
            let (first, last) = (flow.sent == 0, flow.sent + 1 == flow.packets);
            let number = u64::from(io.host().0) << 32 | u64::from(at) << 1;
            let register = if first {
                Some(RegisterOp { add: flow.weight, number })
            } else if last {
                Some(RegisterOp { add: -flow.weight, number: number + 1 })
            } else {
                flow.sent.is_multiple_of(8).then_some(RegisterOp::default())
            };
            let bytes = if first || last { CONTROL_BYTES } else { BYTES };
            let out = Outbound { dst: flow.dst, sport: at as u16, dport: 1, bytes, ect: false };
            let tag = Tag { flow: Some(id), last, register };
            io.send_tagged(out, tag, (at, flow.sent)).expect("the card takes everything");
            flow.sent += 1;
            if let Some(pace) = self.pace_ps {
                io.timer_set(io.now() + pace);
                return;
            }
        }
    }
}

impl Host<Payload> for Flows {
    fn on_packet(&mut self, now: Ps, p: Delivered<Payload>, _: &mut HostIo<'_, Payload>) {
        let (flow, number) = p.payload;
        let expected = self.expected.entry((p.src, flow)).or_default();
        self.out_of_order += u64::from(number < *expected);
        *expected = number + 1;
        self.got += 1;
        self.ended_at = now;
        self.register_max = self.register_max.max(p.register_max);
    }
    fn on_timer(&mut self, _: Ps, io: &mut HostIo<'_, Payload>) {
        self.send(io);
    }
    fn on_call(&mut self, _: Ps, _: u64, io: &mut HostIo<'_, Payload>) {
        self.send(io);
    }
    fn on_room(&mut self, _: Ps, io: &mut HostIo<'_, Payload>) {
        self.send(io);
    }
}

/// 100 Gb/s, with a delay that is short compared with a packet of 164 ns.
pub fn port() -> Port {
    Port::new(100_000_000_000, 20_000)
}

pub fn tree(k: u32, n: u32, w: u32) -> Topology {
    KaryNTree::new(k, n, w).expect("sound").build(port(), port(), port())
}

/// A world in which every host sends `packets` packets to its successor in each of `p` random
/// permutations.
pub fn permutations(
    topology: Topology,
    config: WorldConfig,
    p: u32,
    packets: u64,
) -> World<Payload, Flows> {
    let hosts = topology.hosts();
    let mut rng = Rng::stream(config.seed, 0x5aa, 0);
    let mut world = World::new(topology, config, |_| Flows::default()).expect("sound");
    for _ in 0..p {
        let mut to: Vec<u32> = (0..hosts).collect();
        rng.shuffle(&mut to);
        for (src, dst) in to.into_iter().enumerate() {
            let dst = HostId(dst);
            let flow = Sending { dst, packets, sent: 0, id: None, weight: packets as i64 };
            world.host_mut(HostId(src as u32)).flows.push(flow);
        }
    }
    for host in 0..hosts {
        world.call_at(0, HostId(host), 0);
    }
    world
}
