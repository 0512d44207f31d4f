//! Processing node by node within windows, and event by event: every node sees the same.

use srd_fabric::{
    Delivered, Effect, FatTree, Fault, Host, HostId, HostIo, LinkStats, MS, NS, Outbound, Port, Ps,
    Rng, SharedBuffer, SwitchId, Target, Totals, US, World, WorldConfig,
};

/// Sends to random hosts, in reply to packets and by its timer, which it moves earlier and later.
struct Chatter {
    rng: Rng,
    hosts: u64,
    left: u32,
    timers: u64,
}

impl Chatter {
    fn send(&mut self, io: &mut HostIo<'_, u32>) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let dst = HostId(self.rng.below(self.hosts) as u32);
        let bytes = self.rng.range(64, 4_150) as u32;
        let sport = self.rng.below(64) as u16;
        let _ = io.send(Outbound { dst, sport, dport: 1, bytes, ect: true }, self.left);
        // A near time, sometimes within the same window, or a far deadline.
        let next = io.now() + [20 * US, 300 * NS, 40 * NS][self.rng.below(3) as usize];
        io.timer_set_earlier(next);
    }
}

impl Host<u32> for Chatter {
    fn on_packet(&mut self, _: Ps, _: Delivered<u32>, io: &mut HostIo<'_, u32>) {
        self.send(io);
        if self.rng.chance(0.3) {
            self.send(io);
        }
    }
    fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, u32>) {
        self.timers += 1;
        io.timer_set(now + 50 * US);
        self.send(io);
    }
    fn on_call(&mut self, _: Ps, _: u64, io: &mut HostIo<'_, u32>) {
        self.send(io);
    }
}

/// Hash, totals, links, timers of each host.
type Seen = (u64, Totals, Vec<LinkStats>, Vec<u64>);

fn run(seed: u64, windows: bool, cuts: &[Ps]) -> Seen {
    let nic = Port::new(100_000_000_000, US);
    let port = nic.buffer(30_000).ecn(srd_fabric::Ecn::step(8_000));
    let mut topo = FatTree::k_ary(4, nic, port).build();
    // Some switches have shared buffers, the others one per port.
    for switch in (0..topo.switches()).step_by(3) {
        topo.buffer_share(SwitchId(switch), SharedBuffer { bytes: 40_000, alpha: 1.0 });
    }
    let hosts = u64::from(topo.hosts());
    let links = topo.links();
    let config = WorldConfig { windows, ..WorldConfig::new(seed) };
    let host =
        |h: HostId| Chatter { rng: Rng::stream(seed, 7, h.0.into()), hosts, left: 400, timers: 0 };
    let mut world = World::new(topo, config, host).unwrap();
    for h in 0..hosts as u32 {
        world.call_at(Ps::from(h % 3) * 100 * NS, HostId(h), 0);
    }
    let top = SwitchId(world.topology().switches() - 1);
    world.fault_at(15 * US, Fault::SwitchHole { switch: top, routing: Some(20 * US) }).unwrap();
    let effect = Effect::Duplicate { prob: 0.05, delay_ps: 900 * NS };
    world.fault_at(25 * US, Fault::Impair { at: Target::Core, effect }).unwrap();
    let effect = Effect::Delay { prob: 0.1, fixed_ps: 0, jitter_ps: 2 * US };
    world.fault_at(25 * US, Fault::Impair { at: Target::All, effect }).unwrap();
    world.fault_at(40 * US, Fault::HostStall { host: HostId(3), for_ps: 5 * US }).unwrap();
    world.fault_at(50 * US, Fault::Rate { at: Target::Core, percent: 30 }).unwrap();
    for cut in cuts {
        world.run_until(*cut);
        world.with_host(HostId(1), |h, io| h.send(io));
    }
    world.run_until(MS);
    let stats = (0..links).map(|l| world.link_stats(srd_fabric::LinkId(l))).collect();
    let timers = world.hosts().iter().map(|h| h.timers).collect();
    (world.run_hash(), world.totals(), stats, timers)
}

#[test]
fn windows_change_nothing_that_a_node_sees() {
    let cuts = [7 * US + 11, 31 * US, 31 * US + 1, 77 * US + 7 * NS];
    for seed in 0..8 {
        let by_event = run(seed, false, &cuts);
        let by_window = run(seed, true, &cuts);
        assert!(by_event.1.conserved() && by_event.1.delivered > 3_000, "{:?}", by_event.1);
        assert!(by_event.1.marked > 0 && by_event.1.duplicated > 0 && by_event.1.drops.total() > 0);
        assert_eq!(by_event, by_window, "seed {seed}");
    }
    assert_ne!(run(1, true, &cuts).0, run(2, true, &cuts).0);
}

#[test]
fn a_timer_moved_to_and_fro_leaves_few_events() {
    struct Mover(u64);
    impl Host<()> for Mover {
        fn on_packet(&mut self, _: Ps, _: Delivered<()>, _: &mut HostIo<'_, ()>) {}
        fn on_timer(&mut self, now: Ps, io: &mut HostIo<'_, ()>) {
            self.0 += 1;
            if self.0 < 1_000 {
                // A far deadline, then a near time.
                io.timer_set(now + MS);
                io.timer_set_earlier(now + 100 * NS);
            }
        }
        fn on_call(&mut self, now: Ps, _: u64, io: &mut HostIo<'_, ()>) {
            io.timer_set(now);
        }
    }
    let wire = srd_fabric::back_to_back(Port::new(100_000_000_000, US));
    let mut world = World::new(wire, WorldConfig::new(1), |_| Mover(0)).unwrap();
    world.call_at(0, HostId(0), 0);
    let events = world.run_to_end();
    assert_eq!(world.hosts()[0].0, 1_000);
    // The call, each due timer, and few stale events.
    assert!(events <= 1_010, "{events}");
}
