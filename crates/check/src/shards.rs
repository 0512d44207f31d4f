//! Hosts whose engines are the shards of one device: a share of the worlds.
//!
//! As in a device, regions and address handles exist in every shard under one number, which the
//! first shard chooses. Commands reach one shard after the other, and packets arrive in between:
//! each shard is judged by what it has been told. A device restarts as a whole.

use crate::draw::Draw;
use crate::ledger::{Ledger, Oracle, Region};
use crate::machine::Machine;
use crate::node::Node;
use crate::scenario::{Scenario, stream};
use crate::workload::Workload;
use srd_core::{Access, AhId, MrKey, PdId};
use srd_fabric::{NS, Ps};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Share of the seeds whose hosts have such devices, in percent.
const SHARE: u64 = 8;
/// One of so many seeds, about, has them.
pub(crate) const SHARDED_EACH: u64 = 12;
/// Slots of the shards.
const SLOTS: [u8; 4] = [0, 1, 7, 255];
/// Chance that a command reaches the next shard at once, in percent.
const AT_ONCE: u64 = 50;
/// Longest time between two shards otherwise.
const BETWEEN_NS: u64 = 3_000;

/// Number of shards of each host's device, if the seed has such devices. From a stream of its own:
/// the other seeds keep their worlds.
pub(crate) fn draw(seed: u64) -> Option<usize> {
    let mut d = Draw::new(seed, stream::SHARDS, 0);
    d.percent(SHARE).then(|| d.range(2, SLOTS.len() as u64) as usize)
}

/// Slots of a host's engines: as many as were drawn at least, and no more where peers are too many
/// already for the context tables.
pub(crate) fn slots(shards: Option<usize>, w: Workload, drawn: Vec<u8>) -> Vec<u8> {
    match shards {
        Some(_) if w == Workload::Crowd => SLOTS[..2].to_vec(),
        Some(n) => SLOTS[..n.max(drawn.len())].to_vec(),
        None => drawn,
    }
}

/// A region to be registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionPlan {
    pub addr: u64,
    pub len: u64,
    pub access: Access,
    pub pd: PdId,
}

/// A command for all shards.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    RegionNew(RegionPlan),
    RegionGone(MrKey),
    HandleNew(IpAddr),
    HandleGone(AhId),
}

/// A command on its way.
#[derive(Debug)]
struct Running {
    command: Command,
    /// The shard that it reaches next, and when.
    next: usize,
    at: Ps,
    /// What the first shard has chosen.
    key: Option<MrKey>,
    handle: Option<AhId>,
    /// The region in each shard, which peers learn of when all have it.
    regions: Vec<Region>,
}

/// The commands of a host's device.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    waiting: VecDeque<Command>,
    running: Option<Running>,
}

impl Commands {
    /// When the next one has to go on.
    pub fn due(&self) -> Ps {
        match &self.running {
            Some(running) => running.at,
            None if self.waiting.is_empty() => Ps::MAX,
            None => 0,
        }
    }
}

impl Machine {
    /// Passes on commands as far as they get by now; `all`: to their end.
    pub(crate) fn commands_run(&mut self, led: &mut Ledger, all: bool) {
        for node in &mut self.nodes {
            self.commands.waiting.extend(node.orders.drain(..));
        }
        while self.commands.due() <= led.now || (all && self.commands.due() != Ps::MAX) {
            let running = self.commands.running.take();
            let mut running = match running.or_else(|| self.command_begin(led)) {
                Some(running) => running,
                None => continue,
            };
            let shard = &mut self.nodes[running.next];
            running.reach(shard, led);
            shard.observed(led);
            running.next += 1;
            if running.next == self.nodes.len() {
                for region in &running.regions {
                    led.public[usize::from(region.owner)].regions.push(*region);
                }
                continue;
            }
            let wait = if self.draw.percent(AT_ONCE) { 0 } else { self.draw.range(1, BETWEEN_NS) };
            running.at = led.now + wait * NS;
            self.commands.running = Some(running);
        }
    }

    /// Begins the command that has waited longest; `None` if it has become needless.
    fn command_begin(&mut self, led: &mut Ledger) -> Option<Running> {
        let command = self.commands.waiting.pop_front()?;
        let first = &self.nodes[0].mirror;
        let needed = match command {
            Command::RegionNew(_) => true,
            Command::RegionGone(key) => first.mrs.contains_key(&key.0),
            Command::HandleNew(ip) => first.ahs.iter().all(|a| a.1 != ip),
            Command::HandleGone(ah) => first.ahs.iter().any(|a| a.0 == ah),
        };
        if !needed {
            return None;
        }
        if let Command::RegionGone(key) = command {
            for node in &self.nodes {
                led.public[usize::from(node.id)].regions.retain(|r| r.key != key.0);
            }
        }
        led.note(|| format!("the device begins {command:?}"));
        let (key, handle) = (None, None);
        Some(Running { command, next: 0, at: led.now, key, handle, regions: Vec::new() })
    }

    /// Starts all shards again.
    pub(crate) fn device_restart(&mut self, s: &Scenario, led: &mut Ledger) {
        self.commands = Commands::default();
        for k in 0..self.nodes.len() {
            let (first, others) = self.nodes.split_at_mut(k.max(1));
            match k {
                0 => first[0].restart(s, led, None),
                _ => others[0].restart(s, led, Some(&first[0])),
            }
        }
    }
}

impl Running {
    /// Executes the command in one shard.
    fn reach(&mut self, shard: &mut Node, led: &mut Ledger) {
        match self.command {
            Command::RegionNew(plan) => {
                let region = shard.region_enter(led, plan, self.key);
                self.key = region.map(|r| MrKey(r.key));
                self.regions.extend(region);
            }
            Command::RegionGone(key) => shard.region_leave(led, key),
            Command::HandleNew(ip) => self.handle = shard.handle_enter(led, ip, self.handle),
            Command::HandleGone(ah) => shard.handle_leave(led, ah),
        }
    }
}

impl Node {
    /// Registers a region, under the key of the first shard if it has one already.
    pub(crate) fn region_enter(
        &mut self,
        led: &mut Ledger,
        plan: RegionPlan,
        key: Option<MrKey>,
    ) -> Option<Region> {
        let RegionPlan { addr, len, access, pd } = plan;
        let made = match key {
            None => self.engine.mr_register(pd, addr, len, access),
            Some(key) => self.engine.mr_register_as(pd, addr, len, access, key).map(|()| key),
        };
        let Ok(key) = made else {
            led.fail(Oracle::Post, format!("a small region was refused: {made:?}"));
            return None;
        };
        Some(self.region_known(led, plan, key))
    }

    /// Deregisters a region, of which peers know no longer.
    pub(crate) fn region_leave(&mut self, led: &mut Ledger, key: MrKey) {
        let done = self.engine.mr_deregister(key);
        let was = self.mirror.mrs.remove(&key.0);
        let ok = done.is_ok() == was.is_some();
        led.require(ok, Oracle::Post, || format!("deregister {key:?}: {done:?}"));
    }

    /// Creates an address handle, under the number of the first shard if that has one already.
    pub(crate) fn handle_enter(
        &mut self,
        led: &mut Ledger,
        ip: IpAddr,
        number: Option<AhId>,
    ) -> Option<AhId> {
        let (now, pd) = (self.clock.read(led.now), self.pds[0]);
        let made = match number {
            None => self.engine.ah_create(now, pd, ip),
            Some(ah) => self.engine.ah_create_as(pd, ip, ah).map(|()| ah),
        };
        led.require(made.is_ok(), Oracle::Post, || format!("a handle for {ip}: {made:?}"));
        let ah = made.ok()?;
        self.mirror.ahs.push((ah, ip));
        Some(ah)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Classes;
    use crate::corpus;
    use crate::scenario::Limits;
    use crate::world::{Options, run};

    fn world(seed: u64) -> Scenario {
        Scenario::from_seed(seed, Limits { classes: Classes::ORDINARY, ..Limits::NONE })
    }

    /// Seeds of the corpus that were found before there were such devices keep their worlds.
    #[test]
    fn a_share_of_the_worlds_has_devices_of_several_shards() {
        for entry in corpus::parse(corpus::BUILT_IN).unwrap() {
            let told = entry.story.contains("shards");
            let has = Scenario::from_seed(entry.seed, Limits::USUAL).sharded;
            assert_eq!(has, told, "seed {}", entry.seed);
        }
        let with: Vec<_> = (0..1_000).map(world).filter(|s| s.sharded).collect();
        assert!((40..140).contains(&with.len()), "{} of 1,000 worlds", with.len());
        let mut counts = [0; 5];
        with.iter().for_each(|s| counts[s.slots.len()] += 1);
        assert!(counts[..2] == [0, 0] && counts[2..].iter().all(|&n| n > 5), "{counts:?}");
        let shards = with[0].slots.len() as u32;
        let all: Vec<_> = with[0].slots.iter().map(|&k| with[0].config_of(0, k)).collect();
        assert!(all.iter().all(|c| c.engines_of_device == shards && c.mtu == all[0].mtu));
    }

    /// In such worlds regions and handles come and go in all shards, peers use them through each,
    /// and the oracles are content.
    #[test]
    fn worlds_of_shards_run_clean_and_twice_alike() {
        let seeds = (0..).filter(|&seed| world(seed).sharded).take(12);
        let mut churned = 0;
        for seed in seeds {
            let s = world(seed);
            let [a, b] = [0, 1].map(|_| run(&s, Options::default()));
            assert_eq!(a.violation, None, "seed {seed}");
            assert_eq!(a.hash, b.hash, "seed {seed}");
            churned += a.tally.churned;
        }
        assert!(churned > 0, "no object was destroyed while in use");
    }
}
