//! Members that die and never return: who they are, what they hold, and what is sent to them.

use super::net::{Act, Event, Gram};
use super::stage::Stage;
use crate::packet::CABLE_BYTES;
use srd_core::Opcode;

/// Operations that need no place for reads at the responder.
const NO_READS: &[Opcode] = &[Opcode::Send, Opcode::Write];
/// Slots of those who come after the dead.
const SLOT_AFTER: usize = 100;

impl Stage<'_> {
    /// Engines that die in the middle of reads, writes and messages, and those who come after them
    /// on other slots of their hosts. Without the hostile side, they have never been there.
    pub(super) fn cast_dead(&mut self) {
        let plan = self.plan;
        let (mtu, reads, dies_at) =
            (u32::from(plan.config.mtu), plan.reads_of_dead(), plan.dies_ns());
        if plan.dead_fill() {
            // Reads from the victim wait until it has given up the dead: they must end, but other
            // work alone shows what throughput is left.
            for f in 0..self.board.flows.len() {
                self.reads_split(f);
            }
        }
        let hosts = plan.honest + 1..plan.honest + 1 + plan.dead_hosts();
        for (slot, host) in hosts.clone().cycle().take(plan.dead).enumerate() {
            let d = self.peer_add(host, 0, slot as u8);
            self.doomed.push(d);
            let flow = self.flow_add(d, 0, reads, false);
            // Longer than what may be under way at once.
            (flow.ops, flow.len) = (&[Opcode::Read], 4096 * mtu);
            self.flow_add(d, 0, 2, false);
            let alone = self.alone;
            let flow = self.flow_add(0, d, 2, false);
            flow.must_end = true;
            if alone {
                flow.left = 0;
                self.peers[d].alive = false;
            }
        }
        self.net.at(dies_at, Event::Act(Act::Die));
        for (k, host) in hosts.cycle().take(2).enumerate() {
            let next = self.peer_add(host, 0, (SLOT_AFTER + k) as u8);
            for (from, to) in [(next, 0), (0, next)] {
                // Who comes shares the paths of the dead, and nobody promises it a throughput.
                let flow = self.flow_add(from, to, 2, true);
                (flow.start_at, flow.compared) = (dies_at + 20_000, false);
            }
        }
        self.net.at(dies_at + 20_000, Event::Act(Act::Begin));
    }

    /// Gives the reads of a flow towards the victim a flow of their own, which is not compared.
    fn reads_split(&mut self, f: usize) {
        let (from, to) = (self.board.flows[f].from, self.board.flows[f].to);
        if to == 0 {
            self.board.flows[f].ops = NO_READS;
            let reads = self.flow_add(from, to, 2, true);
            (reads.ops, reads.compared) = (&[Opcode::Read], false);
        }
    }

    pub(super) fn die(&mut self) {
        let held = self.peers[0].engine.context_stats();
        for &id in &self.doomed {
            let p = &mut self.peers[id];
            (p.alive, p.wake_at) = (false, u64::MAX);
            let of_it = held.iter().filter(|c| c.peer == p.at).map(|c| c.reads_served);
            self.dead_reads += of_it.sum::<u32>();
        }
    }

    /// Counts a datagram that is sent to a dead member.
    pub(super) fn dead_bytes_count(&mut self, gram: &Gram) {
        let (peers, now) = (&self.peers, self.now);
        if self.doomed.iter().any(|&d| peers[d].at == gram.dst && !peers[d].alive)
            && now <= self.plan.load_ns
        {
            self.to_dead_bytes += gram.bytes.len() as u64 + CABLE_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::class::{Class, Classes};
    use crate::hostile::{plan, stage::Stage};

    /// Worlds of the dead show something only if the dead hold every place for reads: with all of
    /// them at one address they held half.
    #[test]
    fn the_dead_hold_every_place_for_reads_and_leave_it() {
        let plans = (0..).filter_map(|seed| {
            let plan = plan::draw(seed, &[], Classes::default().with(Class::Dead))?;
            plan.dead_fill().then_some((seed, plan))
        });
        let (mut full, mut waited) = (0, 0);
        const WORLDS: usize = 12;
        for (seed, plan) in plans.take(WORLDS) {
            let mut stage = Stage::new(&plan, seed, &[], false);
            stage.run();
            full += usize::from(stage.dead_reads == plan.config.reads_max);
            let held = stage.peers[0].engine.context_stats();
            let of_dead = |peer| stage.doomed.iter().any(|&d| stage.peers[d].at == peer);
            let kept: u32 = held.iter().filter(|c| of_dead(c.peer)).map(|c| c.reads_served).sum();
            assert_eq!(kept, 0, "seed {seed}");
            let jobs = stage.board.jobs.iter().filter(|j| j.honest);
            waited += jobs.clone().filter(|j| j.op == srd_core::Opcode::Read).count();
            assert!(jobs.clone().all(|j| j.ended.is_some()), "seed {seed}");
        }
        // In the others, reads of the living held some at that moment.
        assert!(full >= WORLDS / 2 && waited > WORLDS, "{full} full tables, {waited} reads");
    }
}
