//! Virtual output queues, and the order in which an output serves them.

use super::{Cell, NONE, Service, ends_at_switch};
use crate::topo::{LinkId, Topology};

/// First and last packet of a queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

const EMPTY: Queue = Queue { head: NONE, tail: NONE };

/// The queues of one output.
#[derive(Clone, Copy, Debug)]
struct Queues {
    first: u32,
    /// Inputs of the output's switch; a host's card has one.
    inputs: u32,
    /// Index of its first word in `busy`.
    word: u32,
    /// The input that is served next.
    turn: u32,
}

/// All virtual output queues of a network.
#[derive(Clone, Debug)]
pub(super) struct Voqs {
    service: Service,
    lanes: u32,
    outputs: Vec<Queues>,
    /// Round robin: for each output one queue per input and lane. First come, first served: one
    /// queue per lane of the output, which holds packets of all inputs.
    queues: Vec<Queue>,
    /// Round robin: one bit per input that has a packet for the output.
    busy: Vec<u64>,
    /// Index of each link among the inputs of the switch at its end.
    input_of: Vec<u32>,
}

impl Voqs {
    pub fn new(topo: &Topology, service: Service, lanes: u32) -> Self {
        let mut inputs = vec![0; topo.switches() as usize];
        let mut input_of = vec![0; topo.links() as usize];
        for link in (0..topo.links()).map(LinkId).filter(|l| ends_at_switch(topo, *l)) {
            if let crate::topo::Node::Switch(s) = topo.to(link) {
                input_of[link.0 as usize] = inputs[s.0 as usize];
                inputs[s.0 as usize] += 1;
            }
        }
        let mut new = Self {
            service,
            lanes,
            outputs: Vec::with_capacity(topo.links() as usize),
            queues: Vec::new(),
            busy: Vec::new(),
            input_of,
        };
        for link in (0..topo.links()).map(LinkId) {
            let inputs = match topo.from(link) {
                crate::topo::Node::Switch(s) => inputs[s.0 as usize],
                crate::topo::Node::Host(_) => 1,
            };
            let (first, word) = (new.queues.len() as u32, new.busy.len() as u32);
            let count = if service == Service::Fcfs { lanes } else { inputs * lanes };
            new.queues.resize(new.queues.len() + count as usize, EMPTY);
            new.busy.resize(new.busy.len() + (inputs as usize).div_ceil(64), 0);
            new.outputs.push(Queues { first, inputs, word, turn: 0 });
        }
        new
    }

    fn input(&self, cell: &Cell) -> u32 {
        if cell.link == NONE { 0 } else { self.input_of[cell.link as usize] }
    }

    /// Appends a packet to its queue.
    pub fn push(&mut self, cells: &mut [Cell], packet: u32) {
        let cell = cells[packet as usize];
        let output = self.outputs[cell.out as usize];
        let lane = match self.service {
            Service::Fcfs => u32::from(cell.out_lane),
            Service::RoundRobin => {
                let input = self.input(&cell);
                self.busy[(output.word + input / 64) as usize] |= 1 << (input % 64);
                input * self.lanes + u32::from(cell.lane)
            }
        };
        let queue = &mut self.queues[(output.first + lane) as usize];
        match queue.tail {
            NONE => queue.head = packet,
            tail => cells[tail as usize].next = packet,
        }
        queue.tail = packet;
    }

    /// Takes the packet that an output sends next, among those for which `fits` holds.
    pub fn pick(
        &mut self,
        cells: &mut [Cell],
        out: u32,
        fits: impl Fn(&Cell) -> bool,
    ) -> Option<u32> {
        if self.service == Service::Fcfs {
            let first = self.outputs[out as usize].first;
            let queue = self.earliest(cells, first, &fits)?;
            return Some(self.pop(cells, queue));
        }
        let Queues { first, inputs, turn, .. } = self.outputs[out as usize];
        let mut at = self.busy_from(out, turn)?;
        let start = at;
        loop {
            let own = first + at * self.lanes;
            if let Some(queue) = self.earliest(cells, own, &fits) {
                let packet = self.pop(cells, queue);
                let left = (0..self.lanes).any(|l| self.queues[(own + l) as usize].head != NONE);
                let output = &mut self.outputs[out as usize];
                if !left {
                    self.busy[(output.word + at / 64) as usize] &= !(1 << (at % 64));
                }
                output.turn = if at + 1 == inputs { 0 } else { at + 1 };
                return Some(packet);
            }
            at = self.busy_from(out, if at + 1 == inputs { 0 } else { at + 1 })?;
            if at == start {
                return None;
            }
        }
    }

    /// The next input with a packet, searched cyclically from `from`.
    fn busy_from(&self, out: u32, from: u32) -> Option<u32> {
        let output = &self.outputs[out as usize];
        let words = output.inputs.div_ceil(64);
        // The first word is read twice: its upper bits first, its lower bits last.
        (0..=words).find_map(|i| {
            let word = (from / 64 + i) % words;
            let mut bits = self.busy[(output.word + word) as usize];
            if i == 0 {
                bits &= u64::MAX << (from % 64);
            }
            (bits != 0).then(|| word * 64 + bits.trailing_zeros())
        })
    }

    /// Of the queues of all lanes, starting with `first`, the one whose head fits and has waited
    /// longest.
    fn earliest(&self, cells: &[Cell], first: u32, fits: &impl Fn(&Cell) -> bool) -> Option<u32> {
        let head = |q: &u32| match self.queues[*q as usize].head {
            NONE => None,
            packet => Some(&cells[packet as usize]),
        };
        let lanes = first..first + self.lanes;
        let ready = lanes.filter(|q| head(q).is_some_and(fits));
        ready.min_by_key(|q| head(q).map(|c| c.arrived))
    }

    fn pop(&mut self, cells: &mut [Cell], queue: u32) -> u32 {
        let queue = &mut self.queues[queue as usize];
        let packet = queue.head;
        queue.head = cells[packet as usize].next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        packet
    }

    /// Removes and returns all packets of an output, in no particular order.
    pub fn drain(&mut self, cells: &mut [Cell], out: u32) -> Vec<u32> {
        let output = &mut self.outputs[out as usize];
        let count = if self.service == Service::Fcfs { 1 } else { output.inputs } * self.lanes;
        let (first, word, inputs) = (output.first, output.word, output.inputs);
        let mut packets = Vec::new();
        for queue in first..first + count {
            while self.queues[queue as usize].head != NONE {
                packets.push(self.pop(cells, queue));
            }
        }
        self.busy[word as usize..(word + inputs.div_ceil(64)) as usize].fill(0);
        packets
    }
}
