//! Virtual circuits: the first packet of a flow chooses a path, the others follow it.
//!
//! Each switch of a [`KaryNTree`] has a *default* port for every destination, *alternates*
//! ([`KaryNTree::ways`]), and a fixed number of *entries*, one flow each. The first packet of a
//! flow compares the possible outputs by an [`Adaptation`] policy. If the default is the best
//! output or no entry is free, it takes the default. The default needs no entry, so the number of
//! flows is not limited. Otherwise it takes an entry and the best output ([`Ties`] chooses among
//! equals). All other packets of the flow follow in order. The last packet frees the entries.
//!
//! Besides its entries, a switch keeps one number per output: the flows that take it.

use super::table::TreeTable;
use crate::rng::{SplitMix, stream_seed};
use crate::topo::{HostId, LinkId, SwitchId};
use crate::tree::{KaryNTree, Ways};

/// Stream kind of the draws that break ties.
const STREAM: u64 = 2;

/// How a switch compares the possible outputs of a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Adaptation {
    /// By the number of flows on each output.
    #[default]
    LeastFlows,
    /// By the bytes queued in the switch for each output. When flows are placed without packets,
    /// all queues are empty, and every flow takes its default.
    LeastQueue,
    /// Upwards a random port, independent of the load; downwards the default.
    Random,
    /// No comparison: always the default. This is oblivious routing ("d-mod-k").
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

/// Choice among equally good outputs upwards. (Downwards the default wins, because a detour along a
/// ring that gains nothing costs capacity.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ties {
    /// Draws among all of them. This reproduces the published congestion.
    #[default]
    Drawn,
    /// Takes the default if it is among them, otherwise draws. Oblivious paths down carry one
    /// destination each, so flows that stay on their default meet less congestion and need fewer
    /// entries.
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
    /// Entries of each switch; `None` = unlimited.
    pub entries: Option<u32>,
    /// Choice among equally good outputs.
    pub ties: Ties,
}

/// A switch's choice for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The output.
    pub link: LinkId,
    /// Whether the output is an alternate, and so holds an entry.
    pub entry: bool,
}

/// State of all switches of a tree: flows on each output, entries in use.
#[derive(Clone, Debug)]
pub struct Circuits {
    table: TreeTable,
    config: CircuitConfig,
    /// Flows on each link.
    flows: Vec<u32>,
    /// Entries in use in each switch.
    entries: Vec<u32>,
    /// Random stream of each switch that breaks ties.
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

    /// Removes all flows and reseeds.
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

    /// The tree with its numbers in tables.
    pub const fn table(&self) -> &TreeTable {
        &self.table
    }

    /// The settings.
    pub const fn config(&self) -> &CircuitConfig {
        &self.config
    }

    /// Number of flows on a link.
    #[inline]
    pub fn flows(&self, link: LinkId) -> u32 {
        self.flows[link.0 as usize]
    }

    /// Entries of a switch in use.
    pub fn entries_used(&self, switch: SwitchId) -> u32 {
        self.entries[switch.0 as usize]
    }

    /// Chooses the output of a new flow at a switch and counts the flow there. `ring_hops`: links
    /// of the current ring that its first packet has passed. `queue_bytes`: bytes that wait in the
    /// switch for an output. `usable`: whether a link has a route to the destination; if the
    /// default has none, the next usable alternate replaces it. `None` if no link has a route.
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

    /// Removes a flow, and its entry, from an output of a switch.
    pub fn release(&mut self, switch: SwitchId, choice: Choice) {
        self.entries[switch.0 as usize] -= u32::from(choice.entry);
        self.flows[choice.link.0 as usize] -= 1;
    }

    /// Adds `flows` to the count of the link from a host, which has no alternates.
    pub(crate) fn host_link_count(&mut self, host: HostId, flows: i32) {
        let link = self.table.tree().host_link(host);
        let count = &mut self.flows[link.0 as usize];
        *count = count.wrapping_add_signed(flows);
    }
}
