//! Schedules of parallel programs: what each rank sends, receives and computes, and what waits for
//! what. Patterns and GOAL files are translated into schedules, which [`super::Play`] executes.

use srd_fabric::Ps;

/// Index of an operation in its schedule.
pub type OpId = u32;

/// Most operations of a schedule: their numbers and the transports' marks share 32 bits.
pub const OPS_MAX: usize = 100_000_000;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Sends `bytes` to the rank of the operation `to`, which receives them. It is done when the
    /// transport reports the message complete to its sender.
    Send {
        /// The receiving operation.
        to: OpId,
        /// Payload in bytes.
        bytes: u64,
    },
    /// Receives the message of the send that refers to it. It is done when the message has arrived
    /// and everything that the operation requires is done.
    Recv,
    /// Computes. A processor of a rank does one computation at a time, in the order in which they
    /// become ready.
    Calc {
        /// Duration.
        ps: Ps,
        /// Number of the processor within the rank.
        cpu: u32,
    },
    /// Is done at once when everything that it requires is done; the end of a rank's step.
    Join {
        /// The step that ends here, if one does.
        step: Option<u32>,
    },
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The rank that executes it.
    pub rank: u32,
    /// What it does.
    pub kind: OpKind,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The end of the other operation (`requires`).
    End,
    /// The start of the other operation (`irequires`).
    Start,
}

/// A dependence: `op` waits for `on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependence {
    /// The operation that waits.
    pub op: OpId,
    /// The operation that it waits for.
    pub on: OpId,
    /// Which event of that operation.
    pub waits: Waits,
}

/// Operations of all ranks, with their dependences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of steps whose ends are marked by joins.
    pub steps: u32,
    /// All operations.
    pub ops: Vec<Op>,
    /// All dependences.
    pub dependences: Vec<Dependence>,
    /// What one rank alone would compute, without communication and imbalance.
    pub work_ps: Ps,
}

impl Schedule {
    /// A schedule without operations.
    pub fn new(ranks: u32, steps: u32) -> Self {
        Self { ranks, steps, ..Self::default() }
    }

    /// Adds an operation.
    pub fn add(&mut self, rank: u32, kind: OpKind) -> OpId {
        self.ops.push(Op { rank, kind });
        self.ops.len() as OpId - 1
    }

    /// Adds a message; returns the operations that send and receive it.
    pub fn message(&mut self, from: u32, to: u32, bytes: u64) -> (OpId, OpId) {
        let recv = self.add(to, OpKind::Recv);
        (self.add(from, OpKind::Send { to: recv, bytes }), recv)
    }

    /// Lets `op` wait for the ends of all of `on`.
    pub fn after(&mut self, op: OpId, on: impl IntoIterator<Item = OpId>) {
        let one = |on| Dependence { op, on, waits: Waits::End };
        self.dependences.extend(on.into_iter().map(one));
    }

    /// Adds an operation that is done when all of `on` are.
    pub fn join(&mut self, rank: u32, on: impl IntoIterator<Item = OpId>) -> OpId {
        let join = self.add(rank, OpKind::Join { step: None });
        self.after(join, on);
        join
    }

    /// Adds the end of a rank's step.
    pub fn step_end(&mut self, rank: u32, step: u32, on: impl IntoIterator<Item = OpId>) -> OpId {
        let join = self.add(rank, OpKind::Join { step: Some(step) });
        self.after(join, on);
        join
    }

    /// The messages: sending operation, sending and receiving rank, bytes.
    pub fn messages(&self) -> impl Iterator<Item = (OpId, u32, u32, u64)> {
        (0..).zip(&self.ops).filter_map(|(id, op)| match op.kind {
            OpKind::Send { to, bytes } => Some((id, op.rank, self.ops[to as usize].rank, bytes)),
            _ => None,
        })
    }

    /// Whom each operation lets continue, with what it has to reach; a message's arrival is no part
    /// of it.
    pub(super) fn followers(&self) -> Followers {
        let mut first = vec![0u32; self.ops.len() + 1];
        for d in &self.dependences {
            first[d.on as usize + 1] += 1;
        }
        for i in 1..first.len() {
            first[i] += first[i - 1];
        }
        let mut next = first.clone();
        let mut all = vec![(0, Waits::End); self.dependences.len()];
        for d in &self.dependences {
            let at = &mut next[d.on as usize];
            all[*at as usize] = (d.op, d.waits);
            *at += 1;
        }
        Followers { first, all }
    }

    /// Operations that wait for each other in a circle, in the order of waiting; empty if there is
    /// no circle, so that every operation can be done. A receive waits for its send.
    pub fn cycle(&self) -> Vec<OpId> {
        let followers = self.followers();
        let mut waits: Vec<u32> = vec![0; self.ops.len()];
        self.dependences.iter().for_each(|d| waits[d.op as usize] += 1);
        self.messages().for_each(|(send, ..)| waits[self.receiver(send) as usize] += 1);
        let mut ready: Vec<OpId> =
            (0..self.ops.len() as OpId).filter(|i| waits[*i as usize] == 0).collect();
        let mut left = self.ops.len();
        while let Some(op) = ready.pop() {
            left -= 1;
            let message = match self.ops[op as usize].kind {
                OpKind::Send { to, .. } => Some(to),
                _ => None,
            };
            for next in followers.of(op).iter().map(|(next, _)| *next).chain(message) {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        if left == 0 { Vec::new() } else { self.circle_among(&waits) }
    }

    /// A circle among the operations that still wait; each of them waits for another of them.
    fn circle_among(&self, waits: &[u32]) -> Vec<OpId> {
        let stuck = |op: OpId| waits[op as usize] > 0;
        let mut on: Vec<OpId> = vec![OpId::MAX; self.ops.len()];
        let sends = self.messages().map(|(send, ..)| (self.receiver(send), send));
        let edges = self.dependences.iter().map(|d| (d.op, d.on)).chain(sends);
        for (op, other) in edges.filter(|(op, other)| stuck(*op) && stuck(*other)) {
            on[op as usize] = other;
        }
        let mut seen = vec![false; self.ops.len()];
        let first = (0..self.ops.len() as OpId).find(|op| stuck(*op));
        let Some(mut at) = first else { return Vec::new() };
        while !std::mem::replace(&mut seen[at as usize], true) {
            at = on[at as usize];
        }
        let mut circle = vec![at];
        let mut next = on[at as usize];
        while next != at {
            circle.push(next);
            next = on[next as usize];
        }
        circle
    }

    fn receiver(&self, send: OpId) -> OpId {
        match self.ops[send as usize].kind {
            OpKind::Send { to, .. } => to,
            _ => unreachable!("operation {send} sends nothing"),
        }
    }
}

/// See [`Schedule::followers`].
#[derive(Clone, Debug)]
pub(super) struct Followers {
    first: Vec<u32>,
    all: Vec<(OpId, Waits)>,
}

impl Followers {
    /// Operations that wait for `op`.
    pub fn of(&self, op: OpId) -> &[(OpId, Waits)] {
        &self.all[self.range(op)]
    }

    /// Positions of these operations, for [`Followers::at`].
    pub fn range(&self, op: OpId) -> std::ops::Range<usize> {
        self.first[op as usize] as usize..self.first[op as usize + 1] as usize
    }

    /// The operation at one position.
    pub fn at(&self, i: usize) -> (OpId, Waits) {
        self.all[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_across_ranks_is_found() {
        let mut s = Schedule::new(2, 0);
        let (send_a, recv_a) = s.message(0, 1, 8);
        let (send_b, recv_b) = s.message(1, 0, 8);
        s.after(send_b, [recv_a]);
        assert!(s.cycle().is_empty(), "an answer is no circle");
        s.after(send_a, [recv_b]);
        let mut circle = s.cycle();
        circle.sort_unstable();
        assert_eq!(circle, [recv_a, send_a, recv_b, send_b]);
    }

    #[test]
    fn what_waits_behind_a_circle_is_no_part_of_it() {
        let mut s = Schedule::new(1, 0);
        let ops: Vec<OpId> = (0..4).map(|_| s.add(0, OpKind::Calc { ps: 1, cpu: 0 })).collect();
        s.after(ops[1], [ops[2]]);
        s.after(ops[2], [ops[1]]);
        s.after(ops[0], [ops[1]]);
        let mut circle = s.cycle();
        circle.sort_unstable();
        assert_eq!(circle, [ops[1], ops[2]]);
    }
}
