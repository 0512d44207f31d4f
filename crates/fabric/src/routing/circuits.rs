//! Virtual circuits: the first packet of a flow chooses a way, the others follow it.
//!
//! Each switch of a [`KaryNTree`] knows a *default* port for every destination and *alternates*
//! ([`KaryNTree::ways`]), and has room for a fixed number of *entries*, one flow each. The first
//! packet of a flow compares the outputs it may take by an [`Adaptation`] policy. If the default is
//! the best or no entry is free, it takes the default, which needs no entry, so that the number of
//! flows is not limited; else it takes an entry and the best ([`Ties`] says which of equals). All
//! other packets of the flow follow in order. Its last packet frees the entries.
//!
//! A switch keeps no state of a flow beyond its entry, and one number per output: how many flows
//! go there.

use super::table::TreeTable;
use crate::rng::{SplitMix, stream_seed};
use crate::topo::{HostId, LinkId, SwitchId};
use crate::tree::{KaryNTree, Ways};

/// Kind of the streams that break ties.
const STREAM: u64 = 2;

/// By what a switch compares the outputs that a new flow may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Adaptation {
    /// The number of flows that go there.
    #[default]
    LeastFlows,
    /// The bytes that wait in the switch to go there. Without packets nothing waits, and every
    /// flow takes its default.
    LeastQueue,
    /// Upwards any port with the same probability, whatever the load; downwards the default.
    Random,
    /// Not at all: always the default. This is oblivious routing ("d-mod-k").
    Default,
}

impl Adaptation {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::LeastFlows, Self::LeastQueue, Self::Random, Self::Default];

    /// Name in specs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeastFlows => "least-flows",
            Self::LeastQueue => "least-queue",
            Self::Random => "random",
            Self::Default => "default",
        }
    }
}

/// What a switch does with a new flow when several outputs upwards are equally good. (Downwards the
/// default wins: a detour along a ring that gains nothing costs capacity.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ties {
    /// Draws among all of them. This gives the published congestion.
    #[default]
    Drawn,
    /// Takes the default if it is one of them, else draws. Oblivious ways down meet nobody else's
    /// destination, so flows that keep to them for want of a reason meet less congestion, and take
    /// fewer entries.
    Default,
}

impl Ties {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::Drawn, Self::Default];

    /// Name in specs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drawn => "drawn",
            Self::Default => "default",
        }
    }
}

/// Settings of circuit switching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CircuitConfig {
    /// The policy.
    pub adaptation: Adaptation,
    /// Entries of each switch; `None` = as many as are wanted.
    pub entries: Option<u32>,
    /// What happens among equals.
    pub ties: Ties,
}

/// What a switch chose for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The output.
    pub link: LinkId,
    /// It is not the default, and holds an entry.
    pub entry: bool,
}

/// The choices of all switches of a tree: flows on each output, entries in use.
#[derive(Clone, Debug)]
pub struct Circuits {
    table: TreeTable,
    config: CircuitConfig,
    /// Flows on each link.
    flows: Vec<u32>,
    /// Entries in use in each switch.
    entries: Vec<u32>,
    /// Breaks the ties of each switch.
    ties: Vec<SplitMix>,
}

impl Circuits {
    /// Switches without flows.
    pub fn new(tree: KaryNTree, config: CircuitConfig, seed: u64) -> Self {
        let mut new = Self {
            table: TreeTable::new(tree),
            config,
            flows: vec![0; tree.links() as usize],
            entries: vec![0; tree.switches() as usize],
            ties: Vec::new(),
        };
        new.clear(seed);
        new
    }

    /// Takes all flows away and begins with another seed.
    pub fn clear(&mut self, seed: u64) {
        self.flows.fill(0);
        self.entries.fill(0);
        let ties = |s| SplitMix::new(stream_seed(seed, STREAM, s));
        self.ties.clear();
        self.ties.extend((0..u64::from(self.table.tree().switches())).map(ties));
    }

    /// The tree.
    pub const fn tree(&self) -> &KaryNTree {
        self.table.tree()
    }

    /// Its numbers as tables.
    pub const fn table(&self) -> &TreeTable {
        &self.table
    }

    /// The settings.
    pub const fn config(&self) -> &CircuitConfig {
        &self.config
    }

    /// Flows that go over a link now.
    #[inline]
    pub fn flows(&self, link: LinkId) -> u32 {
        self.flows[link.0 as usize]
    }

    /// Entries of a switch in use now.
    pub fn entries_used(&self, switch: SwitchId) -> u32 {
        self.entries[switch.0 as usize]
    }

    /// Chooses the output of a new flow at a switch and counts the flow there. `ring_hops`: links
    /// of this ring that its first packet has passed. `queue_bytes`: what waits in the switch for
    /// an output. `usable`: whether a link leads on; if the default does not, the next alternate
    /// that does is the default. `None` if no link leads on.
    #[inline]
    pub fn choose(
        &mut self,
        switch: SwitchId,
        dst: HostId,
        ring_hops: u32,
        queue_bytes: impl Fn(LinkId) -> u64,
        usable: impl Fn(&TreeTable, LinkId) -> bool,
    ) -> Option<Choice> {
        let mut ways = self.table.ways(switch, dst, ring_hops);
        ways.default = ways.default_usable(|l| usable(&self.table, l))?;
        let room = self.config.entries.is_none_or(|n| self.entries[switch.0 as usize] < n);
        let link = if room && ways.alternates().len() > 0 {
            self.best(switch, &ways, queue_bytes, usable)
        } else {
            ways.default
        };
        let choice = Choice { link, entry: link != ways.default };
        self.entries[switch.0 as usize] += u32::from(choice.entry);
        self.flows[link.0 as usize] += 1;
        Some(choice)
    }

    /// One of the best outputs.
    #[inline]
    fn best(
        &mut self,
        switch: SwitchId,
        ways: &Ways,
        queue_bytes: impl Fn(LinkId) -> u64,
        usable: impl Fn(&TreeTable, LinkId) -> bool,
    ) -> LinkId {
        let load = |link: LinkId| {
            if !usable(&self.table, link) {
                return u64::MAX;
            }
            match self.config.adaptation {
                Adaptation::LeastFlows => u64::from(self.flows[link.0 as usize]),
                Adaptation::LeastQueue => queue_bytes(link),
                Adaptation::Random => u64::from(ways.ring && link != ways.default),
                Adaptation::Default => u64::from(link != ways.default),
            }
        };
        let random = self.config.adaptation == Adaptation::Random;
        let drawn = !ways.ring && (random || self.config.ties == Ties::Drawn);
        let default = load(ways.default);
        let (mut least, mut equal) = (default, 0);
        for link in ways.alternates() {
            let load = load(link);
            if load < least {
                (least, equal) = (load, 1);
            } else if load == least && (drawn || load < default) {
                equal += 1;
            }
        }
        if equal == 0 {
            return ways.default;
        }
        let tie = &mut self.ties[switch.0 as usize];
        let nth = if equal == 1 { 0 } else { tie.below(equal) as usize };
        let mut best = ways.alternates().filter(|l| load(*l) == least);
        best.nth(nth).unwrap_or(ways.default)
    }

    /// Takes a flow off an output of a switch, with its entry.
    pub fn release(&mut self, switch: SwitchId, choice: Choice) {
        self.entries[switch.0 as usize] -= u32::from(choice.entry);
        self.flows[choice.link.0 as usize] -= 1;
    }

    /// Counts a flow on the link from its host, which offers no choice.
    pub(crate) fn host_link_count(&mut self, host: HostId, flows: i32) {
        let link = self.table.tree().host_link(host);
        let count = &mut self.flows[link.0 as usize];
        *count = count.wrapping_add_signed(flows);
    }
}
