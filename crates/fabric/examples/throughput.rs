//! Speed of the fabric in packets per CPU-second, with hosts that cost almost nothing.
//!
//! Every host sends to another of a random permutation: packets of 4,150 bytes, at most 64 in
//! flight, each with another source port, acknowledged every `ack-every` packets by 64 bytes. A
//! timer of 100 µs per host is moved with every packet, like a retransmission timer.
//!
//! `throughput [leafspine|fat16|fat32] [packets per host] [ack-every] [slot shift]`

use srd_fabric::rng::Rng;
use srd_fabric::{
    Delivered, FatTree, Host, HostId, HostIo, LeafSpine, NS, Outbound, Port, Ps, Topology, US,
    World, WorldConfig,
};

const BYTES: u32 = 4_150;
const WINDOW: u64 = 64;
const TIMEOUT: Ps = 100 * US;
const RATE: u64 = 100_000_000_000;

/// Payload of a packet, of the size of a protocol header.
#[derive(Clone, Copy, Debug, Default)]
struct Payload {
    ack: bool,
    number: u64,
    _rest: [u64; 6],
}

struct Peer {
    to: HostId,
    packets: u64,
    ack_every: u64,
    sent: u64,
    acked: u64,
    received: u64,
    finished_at: Ps,
    timeouts: u64,
}

impl Peer {
    fn send_more(&mut self, io: &mut HostIo<'_, Payload>) {
        while self.sent < self.packets && self.sent - self.acked < WINDOW {
            let sport = (self.sent % 256) as u16;
            let out = Outbound { dst: self.to, sport, dport: 1, bytes: BYTES, ect: true };
            let payload = Payload { ack: false, number: self.sent, ..Payload::default() };
            if io.send(out, payload).is_err() {
                return;
            }
            self.sent += 1;
        }
    }
}

impl Host<Payload> for Peer {
    fn on_packet(&mut self, now: Ps, p: Delivered<Payload>, io: &mut HostIo<'_, Payload>) {
        if p.payload.ack {
            self.acked = self.acked.max(p.payload.number);
            if self.acked >= self.packets {
                self.finished_at = self.finished_at.max(now);
                io.timer_clear();
                return;
            }
            io.timer_set(now + TIMEOUT);
            self.send_more(io);
            return;
        }
        self.received += 1;
        if self.received.is_multiple_of(self.ack_every) || self.received == self.packets {
            let out = Outbound { dst: p.src, sport: p.sport, dport: 2, bytes: 64, ect: false };
            let payload = Payload { ack: true, number: self.received, ..Payload::default() };
            io.send(out, payload).expect("the card's queue has no limit");
        }
    }
    fn on_timer(&mut self, _: Ps, _: &mut HostIo<'_, Payload>) {
        self.timeouts += 1;
    }
    fn on_call(&mut self, now: Ps, _: u64, io: &mut HostIo<'_, Payload>) {
        io.timer_set(now + TIMEOUT);
        self.send_more(io);
    }
}

fn topology(name: &str) -> Topology {
    let nic = Port::new(RATE, US);
    let port = Port::new(RATE, US).buffer(4 << 20);
    match name {
        "leafspine" => LeafSpine {
            leaves: 8,
            spines: 16,
            hosts_per_leaf: 16,
            cables_per_spine: 1,
            nic,
            edge: port,
            uplink: port,
        }
        .build(),
        "fat16" => FatTree::k_ary(16, nic, port).build(),
        "fat32" => FatTree::k_ary(32, nic, port).build(),
        other => {
            eprintln!(
                "unknown topology {other}: use leafspine (128 hosts), fat16 (1,024) or fat32"
            );
            std::process::exit(2);
        }
    }
}

/// CPU time of this thread in ns, and resident memory in MB, from procfs.
fn cost() -> (u64, u64) {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, i| text.split(' ').nth(i).and_then(|v| v.parse::<u64>().ok());
    let ns = field(&read("/proc/thread-self/schedstat"), 0).unwrap_or(0);
    let pages = field(&read("/proc/self/statm"), 1).unwrap_or(0);
    (ns, pages * 4096 / 1_000_000)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| -> u64 {
        args.get(i).map_or(default, |a| {
            a.parse().unwrap_or_else(|_| panic!("argument {}: {a} is not a number", i + 1))
        })
    };
    let name = args.first().map_or("leafspine", String::as_str);
    let (packets, ack_every) = (number(1, 2_000), number(2, 4).max(1));
    let topo = topology(name);
    let n = topo.hosts() as usize;
    let mut to: Vec<u32> = (0..n as u32).collect();
    let mut rng = Rng::new(1);
    while to.iter().enumerate().any(|(i, t)| i as u32 == *t) {
        rng.shuffle(&mut to);
    }
    let (start_build, _) = cost();
    let mut config = WorldConfig::new(1);
    config.slot_shift = args.get(3).map(|_| number(3, 10) as u32);
    let mut world = World::new(topo, config, |h| Peer {
        to: HostId(to[h.0 as usize]),
        packets,
        ack_every,
        sent: 0,
        acked: 0,
        received: 0,
        finished_at: 0,
        timeouts: 0,
    })
    .expect("the shapes here are sound");
    for h in 0..n as u32 {
        world.call_at(u64::from(h) * NS / 8, HostId(h), 0);
    }
    let (start, _) = cost();
    world.run_to_end();
    let (end, mb) = cost();
    let t = world.totals();
    let data: u64 = world.hosts().iter().map(|h| h.received).sum();
    let last = world.hosts().iter().map(|h| h.finished_at).max().unwrap_or(0);
    let timeouts: u64 = world.hosts().iter().map(|h| h.timeouts).sum();
    let seconds = (end - start) as f64 / 1e9;
    println!("{name}: {n} hosts, {data} data packets, {} events, {mb} MB", t.events);
    println!("dropped {}, marked {}, timeouts {timeouts}", t.drops.total(), t.marked);
    println!("last ack at {:.1} us, run hash {:016x}", last as f64 / 1e6, world.run_hash());
    println!(
        "build {:.2} s; {seconds:.2} CPU-s; {:.2} M events/s; {:.0} k data packets per CPU-s",
        (start - start_build) as f64 / 1e9,
        t.events as f64 / seconds / 1e6,
        data as f64 / seconds / 1e3
    );
}
