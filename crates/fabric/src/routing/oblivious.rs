//! Oblivious routing: the path of a packet depends on its destination alone.

use super::reach::Reach;
use super::table::TreeTable;
use super::{Passing, Routing};
use crate::topo::{HostId, LinkId, SwitchId};
use crate::tree::KaryNTree;

/// "d-mod-k" in a tree. If the port of the rule leads to failed links, the next usable port is
/// taken.
#[derive(Clone, Debug)]
pub(crate) struct Oblivious {
    table: TreeTable,
    reach: Option<Reach>,
}

impl Oblivious {
    pub fn new(tree: KaryNTree) -> Self {
        Self { table: TreeTable::new(tree), reach: None }
    }
}

impl Routing for Oblivious {
    fn next(&mut self, packet: &Passing, _: &dyn Fn(LinkId) -> u64) -> Option<LinkId> {
        let (switch, dst) = (SwitchId(packet.switch), HostId(packet.dst));
        let ways = self.table.ways(switch, dst, packet.ring_hops);
        let Some(reach) = &self.reach else { return Some(ways.default) };
        ways.default_usable(|l| reach.allows(&self.table, l, dst, packet.ring_hops))
    }

    fn converge(&mut self, usable: &dyn Fn(u32) -> bool) {
        self.reach = Reach::of(&self.table, usable);
    }
}
