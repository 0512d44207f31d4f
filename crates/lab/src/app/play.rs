//! Execution of a schedule: which operations can begin, what is computed, and which messages are
//! under way. The network is the caller's: it starts the messages that [`Play::sends_take`] names,
//! and reports their arrivals and ends.

use super::outcome::AppOutcome;
use super::schedule::{Followers, OpId, OpKind, Schedule, Waits};
use rustc_hash::FxHashMap;
use srd_fabric::Ps;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// State of one processor of a rank.
#[derive(Clone, Debug, Default)]
struct Cpu {
    busy: bool,
    waiting: VecDeque<OpId>,
}

/// State of an operation.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Number of events that it waits for.
    waits: u32,
    started: bool,
    /// Whether its message has arrived (receives).
    arrived: bool,
    done: bool,
}

/// A schedule in execution.
#[derive(Debug)]
pub struct Play<'a> {
    schedule: &'a Schedule,
    followers: Followers,
    states: Vec<State>,
    /// Operations that have become ready, in order.
    ready: VecDeque<OpId>,
    cpus: FxHashMap<(u32, u32), Cpu>,
    /// Ends of computations.
    ends: BinaryHeap<Reverse<(Ps, OpId)>>,
    /// Sends that may begin now.
    sends: Vec<OpId>,
    left: usize,
    began_at: Ps,
    ended_at: Ps,
    /// Sum of all computations that have ended.
    computed_ps: Ps,
    /// Ranks that have not ended each step, and the time at which the last one did.
    steps: Vec<(u32, Ps)>,
}

impl<'a> Play<'a> {
    /// A schedule before its beginning.
    pub fn new(schedule: &'a Schedule) -> Self {
        let mut states = vec![State::default(); schedule.ops.len()];
        schedule.dependences.iter().for_each(|d| states[d.op as usize].waits += 1);
        let mut steps = vec![(0, 0); schedule.steps as usize];
        for op in &schedule.ops {
            if let OpKind::Join { step: Some(step) } = op.kind {
                steps[step as usize].0 += 1;
            }
        }
        Self {
            followers: schedule.followers(),
            states,
            ready: VecDeque::new(),
            cpus: FxHashMap::default(),
            ends: BinaryHeap::new(),
            sends: Vec::new(),
            left: schedule.ops.len(),
            began_at: 0,
            ended_at: 0,
            computed_ps: 0,
            steps,
            schedule,
        }
    }

    /// Begins everything that waits for nothing.
    pub fn begin(&mut self, at: Ps) {
        self.began_at = at;
        let free = (0..).zip(&self.states).filter(|(_, s)| s.waits == 0).map(|(op, _)| op);
        self.ready.extend(free.collect::<Vec<OpId>>());
        self.advance(at);
    }

    /// Whether everything is done.
    pub const fn done(&self) -> bool {
        self.left == 0
    }

    /// Time of the next end of a computation, which [`Play::until`] handles.
    pub fn due(&self) -> Option<Ps> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    /// Ends all computations that are due at `now`.
    pub fn until(&mut self, now: Ps) {
        while let Some(Reverse((at, op))) = self.ends.peek().copied().filter(|e| e.0.0 <= now) {
            self.ends.pop();
            let OpKind::Calc { ps, cpu } = self.schedule.ops[op as usize].kind else { continue };
            self.computed_ps += ps;
            let rank = self.schedule.ops[op as usize].rank;
            let cpu = self.cpus.entry((rank, cpu)).or_default();
            cpu.busy = false;
            if let Some(next) = cpu.waiting.pop_front() {
                self.calc_begin(next, at);
            }
            self.op_done(op, at);
            self.advance(at);
        }
    }

    /// The sends that may begin now; each is named once.
    pub fn sends_take(&mut self) -> Vec<OpId> {
        std::mem::take(&mut self.sends)
    }

    /// The message of this send has arrived completely.
    pub fn arrived(&mut self, send: OpId, at: Ps) {
        let Some(OpKind::Send { to, .. }) = self.schedule.ops.get(send as usize).map(|o| o.kind)
        else {
            return;
        };
        let state = &mut self.states[to as usize];
        if !std::mem::replace(&mut state.arrived, true) && state.started {
            self.op_done(to, at);
        }
        self.advance(at);
    }

    /// The transport has told the sender that the message is complete.
    pub fn sent(&mut self, send: OpId, at: Ps) {
        if (send as usize) < self.states.len() {
            self.op_done(send, at);
            self.advance(at);
        }
    }

    /// Begins what has become ready.
    fn advance(&mut self, at: Ps) {
        while let Some(op) = self.ready.pop_front() {
            self.op_begin(op, at);
        }
    }

    fn op_begin(&mut self, op: OpId, at: Ps) {
        let one = self.schedule.ops[op as usize];
        match one.kind {
            OpKind::Send { .. } => {
                self.started(op);
                self.sends.push(op);
            }
            OpKind::Recv => {
                self.started(op);
                if self.states[op as usize].arrived {
                    self.op_done(op, at);
                }
            }
            OpKind::Calc { cpu, .. } => {
                let cpu = self.cpus.entry((one.rank, cpu)).or_default();
                if cpu.busy {
                    cpu.waiting.push_back(op);
                } else {
                    self.calc_begin(op, at);
                }
            }
            OpKind::Join { step } => {
                self.started(op);
                if let Some((left, last)) = step.and_then(|s| self.steps.get_mut(s as usize)) {
                    *left -= 1;
                    *last = at;
                }
                self.op_done(op, at);
            }
        }
    }

    fn calc_begin(&mut self, op: OpId, at: Ps) {
        let one = self.schedule.ops[op as usize];
        let OpKind::Calc { ps, cpu } = one.kind else { return };
        self.cpus.entry((one.rank, cpu)).or_default().busy = true;
        self.ends.push(Reverse((at.saturating_add(ps), op)));
        self.started(op);
    }

    fn started(&mut self, op: OpId) {
        self.states[op as usize].started = true;
        self.tell(op, Waits::Start);
    }

    fn op_done(&mut self, op: OpId, at: Ps) {
        if std::mem::replace(&mut self.states[op as usize].done, true) {
            return;
        }
        self.left -= 1;
        self.ended_at = self.ended_at.max(at);
        self.tell(op, Waits::End);
    }

    /// Tells those that wait for this event of an operation.
    fn tell(&mut self, op: OpId, event: Waits) {
        for i in self.followers.range(op) {
            let (next, waits) = self.followers.at(i);
            if waits != event {
                continue;
            }
            let state = &mut self.states[next as usize];
            state.waits -= 1;
            if state.waits == 0 {
                self.ready.push_back(next);
            }
        }
    }

    /// The results at the end.
    pub fn outcome(&self) -> AppOutcome {
        let ended = self.steps.iter().take_while(|(left, _)| *left == 0).map(|(_, at)| *at);
        let mut before = self.began_at;
        let mut steps_ps: Vec<Ps> =
            ended.map(|at| at - std::mem::replace(&mut before, at)).collect();
        if self.schedule.steps == 0 && self.done() {
            // A schedule from a file has no marks: all of it is one step.
            steps_ps.push(self.ended_at.saturating_sub(self.began_at));
        }
        let mut cpus = vec![0u64; self.schedule.ranks as usize];
        self.cpus.keys().for_each(|(rank, _)| cpus[*rank as usize] += 1);
        AppOutcome {
            ranks: self.schedule.ranks,
            done: self.done(),
            undone: self.left,
            total_ps: self.ended_at.saturating_sub(self.began_at),
            steps_ps,
            computed_ps: self.computed_ps,
            work_ps: self.schedule.work_ps,
            cpus: cpus.iter().map(|n| (*n).max(1)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::goal;

    /// Executes a schedule on a network that takes `latency` for every message and half of it until
    /// the sender knows.
    fn played(text: &str, latency: Ps) -> AppOutcome {
        let schedule = goal::parse(text).unwrap();
        let mut play = Play::new(&schedule);
        // Due time, whether the sender is told, and the message.
        let mut events: BinaryHeap<Reverse<(Ps, bool, OpId)>> = BinaryHeap::new();
        let mut now = 0;
        play.begin(0);
        while !play.done() {
            for send in play.sends_take() {
                events.push(Reverse((now + latency, false, send)));
                events.push(Reverse((now + latency + latency / 2, true, send)));
            }
            let next = events.peek().map_or(Ps::MAX, |Reverse((at, ..))| *at);
            now = next.min(play.due().unwrap_or(Ps::MAX));
            assert_ne!(now, Ps::MAX, "nothing can happen any more: {play:?}");
            if next == now
                && let Some(Reverse((_, told, send))) = events.pop()
            {
                if told { play.sent(send, now) } else { play.arrived(send, now) }
            } else {
                play.until(now);
            }
        }
        play.outcome()
    }

    const NS: Ps = 1_000;

    #[test]
    fn a_rank_waits_for_its_message_and_then_computes() {
        let text = "num_ranks 2\nrank 0 {\na: calc 100\nb: send 8b to 1\nb requires a\n}\n\
                    rank 1 {\nc: recv 8b from 0\nd: calc 50\nd requires c\n}";
        let o = played(text, 30 * NS);
        assert_eq!((o.total_ps, o.computed_ps, o.done), (180 * NS, 150 * NS, true));
        // Of 2 x 180 ns, 150 were computed.
        assert!((o.waiting_share() - (1.0 - 150.0 / 360.0)).abs() < 1e-12);
    }

    #[test]
    fn one_processor_computes_one_thing_at_a_time_and_two_compute_two() {
        let one = "num_ranks 1\nrank 0 {\na: calc 100\nb: calc 100\n}";
        assert_eq!(played(one, 0).total_ps, 200 * NS);
        assert_eq!(played(&one.replace("b: calc 100", "b: calc 100 cpu 1"), 0).total_ps, 100 * NS);
    }

    #[test]
    fn requires_waits_for_the_end_and_irequires_for_the_start() {
        let text = "num_ranks 1\nrank 0 {\na: calc 100\nb: calc 10 cpu 1\nb requires a\n}";
        assert_eq!(played(text, 0).total_ps, 110 * NS);
        assert_eq!(played(&text.replace("requires", "irequires"), 0).total_ps, 100 * NS);
        // The start of a computation is that of its processor, not the moment it became ready.
        let busy = "num_ranks 1\nrank 0 {\nx: calc 40\na: calc 100\nb: calc 10 cpu 1\n\
                    b irequires a\nc: calc 200 cpu 1\nc requires b\n}";
        assert_eq!(played(busy, 0).total_ps, 250 * NS);
    }

    #[test]
    fn a_message_may_come_before_its_receive() {
        let text = "num_ranks 2\nrank 0 {\nb: send 8b to 1\n}\n\
                    rank 1 {\na: calc 500\nc: recv 8b from 0\nc requires a\nd: calc 1\n\
                    d requires c\n}";
        assert_eq!(played(text, 30 * NS).total_ps, 501 * NS);
    }
}
