//! Circuits of flows in a network with packets: the first packet sets a circuit up, the last frees
//! it, and a link failure tears it down.

use super::circuits::{Choice, CircuitConfig, Circuits};
use super::reach::Reach;
use super::{Passing, Routing};
use crate::topo::{HostId, LinkId, Node, SwitchId};
use crate::tree::KaryNTree;

/// Counters of circuits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitStats {
    /// Circuits that reached their destination for the first time.
    pub set_up: u64,
    /// Circuits that lost a part to a link failure.
    pub torn: u64,
    /// Circuits that reached their destination again after a link failure.
    pub set_up_again: u64,
    /// Circuits whose last packet was delivered or lost.
    pub ended: u64,
}

/// One switch on the path of a flow.
#[derive(Clone, Copy, Debug)]
struct Hop {
    switch: SwitchId,
    choice: Choice,
    /// The flow's contribution to the register of the link.
    weight: i64,
}

/// The circuit of one flow. Each switch knows only its own part; this complete record belongs to
/// the simulator, and corresponds to what a network manager would use to tear a circuit down.
#[derive(Clone, Debug)]
struct Circuit {
    src: HostId,
    dst: HostId,
    path: Vec<Hop>,
    /// The switch at which the circuit ends so far; the next packet there extends it. `None`: it
    /// reaches the destination.
    frontier: Option<SwitchId>,
    /// The flow's contribution to the register of its first link.
    weight: i64,
    torn: bool,
    over: bool,
}

/// Register changes of links, caused by circuits that are torn down or set up again.
pub(crate) type RegisterMoves = Vec<(LinkId, i64)>;

/// The circuits of a network with packets.
#[derive(Clone, Debug)]
pub(crate) struct CircuitRouter {
    circuits: Circuits,
    flows: Vec<Circuit>,
    reach: Option<Reach>,
    stats: CircuitStats,
    /// Whether the last routed packet follows its flow's circuit.
    pub on_circuit: bool,
    /// Whether that packet set its circuit up again, so that the register already includes its
    /// change.
    pub carried: bool,
    /// Register changes that the network has to apply.
    pub moves: RegisterMoves,
    spare: Vec<Vec<Hop>>,
}

impl CircuitRouter {
    pub fn new(tree: KaryNTree, config: CircuitConfig, seed: u64) -> Self {
        Self {
            circuits: Circuits::new(tree, config, seed),
            flows: Vec::new(),
            reach: None,
            stats: CircuitStats::default(),
            on_circuit: false,
            carried: false,
            moves: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub const fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    pub const fn stats(&self) -> CircuitStats {
        self.stats
    }

    /// Opens a flow and returns its number.
    pub fn flow_open(&mut self, src: HostId, dst: HostId) -> u32 {
        self.circuits.host_link_count(src, 1);
        let frontier = Some(self.circuits.tree().leaf(src));
        let path = self.spare.pop().unwrap_or_default();
        let (weight, torn, over) = (0, false, false);
        self.flows.push(Circuit { src, dst, path, frontier, weight, torn, over });
        self.flows.len() as u32 - 1
    }

    /// Ends a flow whose last packet was delivered or lost, and frees the rest of its circuit.
    pub fn flow_end(&mut self, flow: u32) {
        let Some(circuit) = self.flows.get_mut(flow as usize).filter(|c| !c.over) else { return };
        circuit.over = true;
        circuit.frontier = None;
        self.stats.ended += 1;
        let mut path = std::mem::take(&mut circuit.path);
        self.circuits.host_link_count(circuit.src, -1);
        for hop in path.drain(..) {
            self.circuits.release(hop.switch, hop.choice);
            if hop.weight != 0 {
                self.moves.push((hop.choice.link, -hop.weight));
            }
        }
        self.spare.push(path);
    }

    /// Whether a flow's circuit includes a link.
    pub fn takes(&self, flow: u32, link: LinkId) -> bool {
        self.flows.get(flow as usize).is_some_and(|c| {
            link == self.circuits.tree().host_link(c.src)
                || c.path.iter().any(|h| h.choice.link == link)
        })
    }

    /// Records the register change of a packet that follows its flow's circuit.
    pub fn weight_note(&mut self, flow: u32, link: LinkId, add: i64) {
        let Some(circuit) = self.flows.get_mut(flow as usize) else { return };
        if link == self.circuits.tree().host_link(circuit.src) {
            circuit.weight += add;
        } else if let Some(hop) = circuit.path.iter_mut().find(|h| h.choice.link == link) {
            hop.weight += add;
        }
    }

    /// The default route, around failed links.
    fn default_way(&self, packet: &Passing) -> Option<LinkId> {
        let (switch, dst) = (SwitchId(packet.switch), HostId(packet.dst));
        let table = self.circuits.table();
        let ways = table.ways(switch, dst, packet.ring_hops);
        match &self.reach {
            None => Some(ways.default),
            Some(reach) => ways.default_usable(|l| reach.allows(table, l, dst, packet.ring_hops)),
        }
    }

    /// Extends a circuit by one switch for a packet that has reached its end.
    fn extend(&mut self, packet: &Passing, queue_bytes: &dyn Fn(LinkId) -> u64) -> Option<LinkId> {
        let (switch, dst) = (SwitchId(packet.switch), HostId(packet.dst));
        let choice = match &self.reach {
            None => self.circuits.choose(switch, dst, packet.ring_hops, queue_bytes, |_, _| true),
            Some(reach) => {
                let usable = |table: &_, link| reach.allows(table, link, dst, packet.ring_hops);
                self.circuits.choose(switch, dst, packet.ring_hops, queue_bytes, usable)
            }
        }?;
        let circuit = &mut self.flows[packet.flow as usize];
        // A circuit that is set up again contributes its flow's whole weight. If the packet repeats
        // the announcement of that weight, the link records the number and adds nothing.
        let weight = if circuit.torn { circuit.weight } else { 0 };
        self.carried = circuit.torn && !packet.last;
        if weight != 0 {
            self.moves.push((choice.link, weight));
        }
        circuit.path.push(Hop { switch, choice, weight });
        circuit.frontier = match self.circuits.table().to(choice.link) {
            Node::Switch(next) => Some(next),
            Node::Host(_) => {
                let count = if circuit.torn {
                    &mut self.stats.set_up_again
                } else {
                    &mut self.stats.set_up
                };
                *count += 1;
                circuit.torn = false;
                None
            }
        };
        Some(choice.link)
    }

    /// Frees the part of a circuit from its `from`-th switch on.
    fn truncate(&mut self, flow: usize, from: usize) {
        let circuit = &mut self.flows[flow];
        circuit.frontier = Some(circuit.path[from].switch);
        circuit.torn = true;
        self.stats.torn += 1;
        for hop in circuit.path.drain(from..) {
            self.circuits.release(hop.switch, hop.choice);
            if hop.weight != 0 {
                self.moves.push((hop.choice.link, -hop.weight));
            }
        }
    }

    /// Where failed links cut a circuit: at the last switch before the failure that has another
    /// route.
    fn cut_at(&self, circuit: &Circuit) -> Option<usize> {
        let reach = self.reach.as_ref()?;
        let table = self.circuits.table();
        let (path, dst) = (&circuit.path, circuit.dst);
        // Links of the current ring that the path has taken before its `i`-th switch.
        let ring_hops = |i: usize| {
            let along = |h: &&Hop| table.tree().is_ring(h.choice.link);
            path[..i].iter().rev().take_while(along).count() as u32
        };
        let stands = |i: usize| reach.allows(table, path[i].choice.link, dst, ring_hops(i));
        let leads = |i: &usize| {
            let hops = ring_hops(*i);
            let ways = table.ways(path[*i].switch, dst, hops);
            ways.default_usable(|l| reach.allows(table, l, dst, hops)).is_some()
        };
        let broken = (0..path.len()).find(|i| !stands(*i))?;
        Some((0..=broken).rev().find(leads).unwrap_or(0))
    }
}

impl Routing for CircuitRouter {
    fn next(&mut self, packet: &Passing, queue_bytes: &dyn Fn(LinkId) -> u64) -> Option<LinkId> {
        (self.on_circuit, self.carried) = (false, false);
        let Some(circuit) = self.flows.get(packet.flow as usize).filter(|c| !c.over) else {
            return self.default_way(packet);
        };
        let switch = SwitchId(packet.switch);
        let at = circuit.path.iter().position(|h| h.switch == switch);
        let link = match at {
            Some(at) => circuit.path[at].choice.link,
            None if circuit.frontier == Some(switch) => self.extend(packet, queue_bytes)?,
            // The circuit was torn down while the packet was travelling on it.
            None => return self.default_way(packet),
        };
        self.on_circuit = true;
        if packet.last {
            let path = &mut self.flows[packet.flow as usize].path;
            let hop = path.remove(at.unwrap_or(path.len() - 1));
            self.circuits.release(hop.switch, hop.choice);
            // The rest of the circuit's weight on this link is removed by the packet itself, or
            // otherwise here.
            if hop.weight != 0 && packet.adds.is_none_or(|a| a == 0) {
                self.moves.push((hop.choice.link, -hop.weight));
            }
        }
        Some(link)
    }

    fn converge(&mut self, usable: &dyn Fn(u32) -> bool) {
        self.reach = Reach::of(self.circuits.table(), usable);
        for flow in 0..self.flows.len() {
            if self.flows[flow].over {
                continue;
            }
            if let Some(from) = self.cut_at(&self.flows[flow]) {
                self.truncate(flow, from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::{Adaptation, Ties};

    /// Sends a packet of `flow` along its circuit and maintains the registers as links would:
    /// `seen` makes each link count an announcement once.
    fn travel(
        router: &mut CircuitRouter,
        (registers, seen): (&mut [i64], &mut [bool]),
        flow: u32,
        adds: Option<i64>,
        last: bool,
    ) -> Vec<LinkId> {
        let (src, dst) = (router.flows[flow as usize].src, router.flows[flow as usize].dst);
        let (mut at, mut way) = (router.circuits.tree().leaf(src), Vec::new());
        loop {
            let (switch, dst, hash, ring_hops) = (at.0, dst.0, 0, 0);
            let packet = Passing { switch, dst, hash, ring_hops, flow, last, adds };
            let link = router.next(&packet, &|_| 0).expect("a way");
            assert!(router.on_circuit);
            for (link, add) in router.moves.drain(..) {
                registers[link.0 as usize] += add;
            }
            if let Some(add) = adds
                && (last || !std::mem::replace(&mut seen[link.0 as usize], true))
                && !router.carried
            {
                registers[link.0 as usize] += add;
                router.weight_note(flow, link, if last { 0 } else { add });
            }
            way.push(link);
            match router.circuits.table().to(link) {
                Node::Host(_) => return way,
                Node::Switch(next) => at = next,
            }
        }
    }

    #[test]
    fn weights_move_with_the_circuit_and_a_repeated_announcement_counts_once() {
        let tree = KaryNTree::new(3, 2, 0).expect("sound");
        let config =
            CircuitConfig { adaptation: Adaptation::LeastFlows, entries: None, ties: Ties::Drawn };
        for announced_again in [false, true] {
            let mut router = CircuitRouter::new(tree, config, 4);
            let mut registers = vec![0; tree.links() as usize];
            let mut seen = vec![false; tree.links() as usize];
            let (src, dst) = (HostId(0), HostId(8));
            let flow = router.flow_open(src, dst);
            router.weight_note(flow, tree.host_link(src), 7);
            let first = travel(&mut router, (&mut registers, &mut seen), flow, Some(7), false);
            let broken = first[0];
            router.converge(&|l| l != broken.0);
            for (link, add) in router.moves.drain(..) {
                registers[link.0 as usize] += add;
            }
            assert!(registers.iter().all(|r| *r == 0) && router.stats().torn == 1);
            // The next packet sets the circuit up again: data, or the repeated announcement.
            let adds = announced_again.then_some(7);
            let second = travel(&mut router, (&mut registers, &mut seen), flow, adds, false);
            assert_ne!(first[0], second[0]);
            assert_eq!(router.stats().set_up_again, 1);
            for (link, register) in registers.iter().enumerate() {
                let on_way = second.contains(&LinkId(link as u32));
                assert_eq!(*register, if on_way { 7 } else { 0 }, "again: {announced_again}");
            }
            travel(&mut router, (&mut registers, &mut seen), flow, Some(-7), true);
            router.flow_end(flow);
            assert!(registers.iter().all(|r| *r == 0) && router.moves.is_empty());
            assert!((0..tree.links()).all(|l| router.circuits.flows(LinkId(l)) == 0));
        }
    }
}
