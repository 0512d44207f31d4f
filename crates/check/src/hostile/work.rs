//! The work of the members: flows of jobs, each kept full while the load lasts.

use super::jobs::{Flow, Job};
use super::peer::{REGION_AT, REGION_BYTES};
use super::plan::ip_of;
use super::stage::Stage;
use crate::cover::Cover;
use crate::draw::Draw;
use crate::scenario::stream;
use srd_core::config::PORT_BASE_DEFAULT;
use srd_core::{Endpoint, Opcode, Qpn, Status};

/// Operations of honest work.
const HONEST: &[Opcode] = &[Opcode::Send, Opcode::Write, Opcode::Read];
/// Operations of work between a victim and those it cannot rely on.
const HOSTILE: &[Opcode] = &[Opcode::Send, Opcode::Write, Opcode::WriteImm, Opcode::Read];
/// Pieces of work of a liar and its victim.
const HOSTILE_PIECES: u32 = 60;

impl Stage<'_> {
    /// Adds work of member `from` with member `to`: at most `depth` jobs at a time.
    pub(super) fn flow_add(
        &mut self,
        from: usize,
        to: usize,
        depth: u32,
        honest: bool,
    ) -> &mut Flow {
        let mtu = u32::from(self.plan.config.mtu);
        self.board.flows.push(Flow {
            from,
            to,
            depth,
            honest,
            must_end: false,
            faulty: false,
            compared: honest,
            start_at: 0,
            each_ns: 0,
            left: if honest { u32::MAX } else { HOSTILE_PIECES },
            open: 0,
            bytes: 0,
            pieces: 0,
            last_at: 0,
            pause_ns: 0,
            ops: if honest { HONEST } else { HOSTILE },
            len: mtu * self.plan.packets,
        });
        let last = self.board.flows.len() - 1;
        &mut self.board.flows[last]
    }

    /// Keeps the flows of a member full.
    pub(super) fn work_post(&mut self, id: usize) -> bool {
        let mut any = false;
        for f in 0..self.board.flows.len() {
            if self.board.flows[f].from != id || self.now >= self.board.load_until {
                continue;
            }
            while self.board.flows[f].wants(self.now) {
                if !self.piece_post(f) {
                    break;
                }
                any = true;
            }
        }
        any
    }

    fn piece_post(&mut self, f: usize) -> bool {
        let flow = self.board.flows[f].clone();
        // From the number of the piece in its flow alone, so that a flow has the same pieces in the
        // same order without the hostile side: how many bytes a piece has, and how long it takes,
        // depends on its operation.
        let n = (f as u64) << 32 | u64::from(flow.left);
        let pick = Draw::new(n, stream::HOSTILE, 3).bits() >> 33;
        let op = flow.ops[(pick % flow.ops.len() as u64) as usize];
        let mtu = u32::from(self.plan.config.mtu);
        let most = if flow.each_ns > 0 && pick >> 20 & 1 == 0 { 300 } else { mtu };
        let len = if op == Opcode::Send { flow.len.min(most) } else { flow.len };
        let (dst, dst_qpn, rkey) = match self.peers.get(flow.to) {
            Some(p) => {
                let side = if flow.honest || flow.faulty { p.main } else { p.other };
                (p.at, side.qpn, side.key.0)
            }
            None => match self.liars.first() {
                Some(l) if flow.to == usize::MAX - 1 => {
                    let slot = l.at.port - PORT_BASE_DEFAULT;
                    (l.at, Qpn(slot << 8), 0)
                }
                _ => {
                    let ip = ip_of(self.plan.honest + 2, 0);
                    (Endpoint { ip, port: PORT_BASE_DEFAULT }, Qpn(0), 0)
                }
            },
        };
        let (mut op, mut dst_qpn, mut rkey, mut main) = (op, dst_qpn, rkey, flow.honest);
        let mut refused = None;
        if flow.faulty {
            main = true;
            let kind = pick >> 16 & 7;
            match kind {
                0 | 1 => dst_qpn.0 ^= 1,
                // The other queue pair has another Q_Key.
                2 | 3 => main = false,
                4 => (op, rkey) = (Opcode::Write, rkey ^ 0x5555),
                _ if self.peers[0].receives > 0 => op = Opcode::Write,
                _ => {}
            }
            let status = if kind < 4 { Status::RemoteBadDestQpn } else { Status::RemoteBadAddress };
            refused = (kind < 5).then_some(status);
        }
        let raddr = match op {
            Opcode::Send => 0,
            _ => REGION_AT + pick % (REGION_BYTES - u64::from(len)),
        };
        let job = Job {
            from: flow.from,
            to: flow.to,
            dst,
            dst_qpn,
            op,
            len,
            rkey,
            raddr,
            main,
            honest: flow.honest && self.plan.is_sound(),
            must_end: flow.must_end,
            refused,
            over: self.plan.is_over(flow.from, flow.to, op, len),
            flow: f,
            posted_at: self.now,
            placed: Cover::default(),
            ended: None,
        };
        let posted = self.peers[flow.from].post(self.now, &mut self.board, job);
        if posted {
            let flow = &mut self.board.flows[f];
            flow.open += 1;
            flow.left -= 1;
            flow.start_at = flow.start_at.max(self.now + flow.each_ns);
        }
        posted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Class, Classes};

    /// Destination, operation, length and place of the jobs that member `id` has posted.
    fn posted(stage: &Stage<'_>, id: usize) -> Vec<(usize, Opcode, u32, u64)> {
        let own = stage.board.jobs.iter().filter(|j| j.from == id && j.honest);
        own.map(|j| (j.to, j.op, j.len, j.raddr)).collect()
    }

    #[test]
    fn honest_work_is_the_same_with_and_without_the_hostile_side() {
        let only = Classes::default().with(Class::Liar);
        let plans = (0..).filter_map(|seed| crate::hostile::draw(seed, &[], only));
        for plan in plans.take(20) {
            let [with, without] = [false, true].map(|alone| {
                let mut stage = Stage::new(&plan, 1, &[], alone);
                for id in 0..stage.peers.len() {
                    stage.peers[id].receives_fill();
                }
                assert!(stage.work_post(0) && !stage.work_post(0), "each flow is full at once");
                posted(&stage, 0)
            });
            assert_eq!(with, without, "{plan:?}");
            assert_eq!(with.len(), 2 * plan.honest, "two jobs to each of them: {plan:?}");
        }
    }

    #[test]
    fn a_flow_ends_with_its_jobs_and_the_load() {
        let only = Classes::default().with(Class::Liar);
        let plan = (0..).find_map(|seed| crate::hostile::draw(seed, &[], only)).unwrap();
        let mut stage = Stage::new(&plan, 1, &[], true);
        stage.peers[0].receives_fill();
        stage.board.flows.clear();
        let flow = stage.flow_add(0, 1, 2, true);
        flow.left = 3;
        assert!(stage.work_post(0));
        assert_eq!((stage.board.flows[0].open, stage.board.flows[0].left), (2, 1));
        stage.board.flows[0].open = 0;
        stage.now = plan.load_ns;
        assert!(!stage.work_post(0), "the load has ended");
        stage.now = plan.load_ns - 1;
        assert!(stage.work_post(0) && !stage.work_post(0), "the last one");
        assert_eq!((stage.board.flows[0].open, stage.board.flows[0].left), (1, 0));
    }
}
