//! Rounds of flows on a world of any transport: starts flows, records their ends, fires triggers.

use crate::board::{FlowEnd, SharedBoard};
use crate::observe::{Counted, Moment, Observation, Resent, Sampler};
use crate::spec::Spec;
use crate::workload::Flows;
use srd_fabric::{Host, HostId, MS, Ps, Rng, US, World};

/// Events between two checks of the board.
const LOOK_EVERY: u64 = 256;
/// First index of warm-up flows, which are not measured.
pub const WARM: u32 = 1 << 31;
/// Warm-up flows start spread over this time to avoid collisions.
const WARM_SPREAD: Ps = 50 * US;

/// State of a run.
pub struct Running<'a, P, H> {
    spec: &'a Spec,
    flows: &'a Flows,
    tokens: Vec<u64>,
    /// The network and its hosts.
    pub world: World<P, H>,
    /// The board on which hosts report the ends of flows.
    pub board: SharedBoard,
    round: u32,
    /// Start of each flow of the present round.
    started: Vec<Option<Ps>>,
    /// Completion times: `[round][flow]`.
    pub fct: Vec<Vec<Option<Ps>>>,
    /// Completion times until the arrival of the last byte; empty unless the spec measures phases.
    pub arrived: Vec<Vec<Option<Ps>>>,
    left: usize,
    fired: Vec<u32>,
    seen_ends: usize,
    /// Latest end of a flow so far.
    end_last: Ps,
    /// Start of each round so far.
    pub rounds_at: Vec<Ps>,
    /// Time that the run continues after the last flow's end, for the release of state.
    pub tail_ps: Ps,
    seen_arrivals: usize,
    sampler: Option<Sampler>,
}

/// Calls that start flows: one token per flow, and those of warm-up and background flows.
pub struct Calls {
    /// Token of each flow.
    pub tokens: Vec<u64>,
    /// Host and token of each warm-up flow.
    pub warm: Vec<(HostId, u64)>,
    /// Host and token of each background flow, which starts half-way to the first round.
    pub background: Vec<(HostId, u64)>,
}

impl<'a, P: Clone, H: Host<P> + Counted> Running<'a, P, H> {
    /// A run at time 0 with its warm-up flows scheduled.
    pub fn new(
        spec: &'a Spec,
        flows: &'a Flows,
        mut world: World<P, H>,
        board: SharedBoard,
        calls: Calls,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::stream(seed, 0x3a93, 0);
        for (host, token) in calls.background {
            world.call_at(spec.workload.start_us * US / 2, host, token);
        }
        for (host, token) in calls.warm {
            world.call_at(rng.below(WARM_SPREAD), host, token);
        }
        Self {
            spec,
            flows,
            tokens: calls.tokens,
            world,
            board,
            round: 0,
            started: Vec::new(),
            fct: Vec::new(),
            arrived: Vec::new(),
            left: 0,
            fired: vec![0; flows.triggers.len()],
            seen_ends: 0,
            end_last: 0,
            rounds_at: Vec::new(),
            tail_ps: 0,
            seen_arrivals: 0,
            sampler: None,
        }
    }

    /// Starts recording at the first round.
    pub fn observe(&mut self, interval_ps: Ps) {
        let start = self.spec.workload.start_us * US;
        let topo = self.world.topology();
        self.sampler = Some(Sampler::new(topo, &self.flows.flows, start, interval_ps));
        self.board.progress_begin(self.flows.flows.len());
    }

    /// The recorded observation; `None` without recording.
    pub fn observed(&mut self) -> Option<Observation> {
        let sampler = self.sampler.take()?;
        let mut paths = Vec::new();
        self.world.hosts().iter().for_each(|h| h.path_packets(&mut paths));
        Some(self.sampled(|world, moment| sampler.finish(world, moment, paths)))
    }

    /// Calls `see` with the protocol's state at the present moment.
    fn sampled<R>(&mut self, see: impl FnOnce(&mut World<P, H>, &Moment<'_>) -> R) -> R {
        let resent = self.world.hosts().iter().map(Counted::resent);
        let resent = resent.fold(Resent::default(), Resent::plus);
        let (started, fct, round) = (&self.started, &self.fct, self.round as usize);
        let board = &self.board;
        let moment = Moment {
            flow_bytes: &|i| board.progress(i),
            flow_active: &|i| started[i].is_some() && fct[round][i].is_none(),
            resent,
        };
        see(&mut self.world, &moment)
    }

    /// Processes events like [`World::events_run`], with samples at the ends of intervals. Returns
    /// their number.
    fn advance(&mut self, end: Ps, events: u64) -> u64 {
        let mut n = 0;
        while let Some(due) = self.sampler.as_ref().map(Sampler::due).filter(|due| *due < end) {
            n += self.world.events_run(due, events - n);
            if n >= events {
                return n;
            }
            if let Some(mut sampler) = self.sampler.take() {
                self.sampled(|world, moment| sampler.take(world, due, moment));
                self.sampler = Some(sampler);
            }
        }
        n + self.world.events_run(end, events - n)
    }

    /// Runs all rounds, until the last flow ends or the time is up.
    pub fn go(&mut self) {
        let limit = self.spec.time_ms_max * MS;
        // Triggers act at the exact event; a barrier of some microseconds tolerates a delay.
        let events = if self.flows.triggers.is_empty() { LOOK_EVERY } else { 1 };
        let ahead = (self.spec.workload.barrier_us * US / 2).max(US);
        self.round_start(self.spec.workload.start_us * US);
        let Some(mut from) = self.world.next_event_at() else { return };
        while from <= limit {
            // Bounded, because the next event after the last flow of a round may be far away.
            let n = self.advance(from + ahead, events);
            from = self.world.now();
            if n == 0 {
                match self.world.next_event_at() {
                    Some(next) => from = next,
                    None => return,
                }
            }
            self.look();
            if self.left == 0 {
                if self.round + 1 == self.spec.workload.rounds {
                    if self.tail_ps > 0 {
                        self.world.run_until(self.world.now() + self.tail_ps);
                    }
                    return;
                }
                self.round += 1;
                self.round_start(self.end_last + self.spec.workload.barrier_us * US);
            }
        }
    }

    /// Time from the start of the last round to the end of its last flow; `None` if a flow did not
    /// end.
    pub fn phase_ps(&self) -> Option<Ps> {
        (self.left == 0)
            .then(|| self.end_last.saturating_sub(self.rounds_at.last().copied().unwrap_or(0)))
    }

    fn round_start(&mut self, at: Ps) {
        self.rounds_at.push(at.max(self.world.now()));
        let n = self.flows.flows.len();
        self.started = vec![None; n];
        self.fct.push(vec![None; n]);
        if self.spec.measure.phase {
            self.arrived.push(vec![None; n]);
        }
        self.left = n;
        self.fired.fill(0);
        for (i, f) in self.flows.flows.iter().enumerate() {
            if let Some(late) = f.start_ps {
                self.flow_start(i, at + late);
            }
        }
    }

    fn flow_start(&mut self, i: usize, at: Ps) {
        let at = at.max(self.world.now());
        self.started[i] = Some(at);
        let token = self.tokens[i] | u64::from(self.round) << 32;
        self.world.call_at(at, self.flows.flows[i].src, token);
    }

    /// Records ended flows and fires triggers.
    fn look(&mut self) {
        if self.board.ended() > self.seen_ends {
            let ends = self.board.ends_from(self.seen_ends);
            self.seen_ends += ends.len();
            for end in ends.iter().filter(|e| e.flow & WARM == 0) {
                self.flow_ended(end);
            }
        }
        if self.flows.triggers.is_empty() && !self.spec.measure.phase {
            return;
        }
        let arrivals = self.board.arrivals_from(self.seen_arrivals);
        self.seen_arrivals += arrivals.len();
        for a in arrivals.iter().filter(|a| a.flow & WARM == 0) {
            let i = a.flow as usize;
            if let (Some(round), Some(start)) = (self.arrived.last_mut(), self.started[i]) {
                round[i] = Some(a.at - start);
            }
            if let Some(t) = self.flows.flows[i].on_received {
                self.trigger_fire(t, a.at);
            }
        }
    }

    fn flow_ended(&mut self, end: &FlowEnd) {
        let i = end.flow as usize;
        let Some(start) = self.started[i] else { return };
        let fct = &mut self.fct[end.round as usize][i];
        if fct.is_none() {
            self.left -= 1;
        }
        self.end_last = self.end_last.max(end.at);
        // A flow that a trigger starts again counts with its last run.
        *fct = Some(end.at - start);
        if let Some(t) = self.flows.flows[i].on_sent {
            self.trigger_fire(t, end.at);
        }
    }

    fn trigger_fire(&mut self, id: u32, at: Ps) {
        let Some(n) = self.flows.triggers.iter().position(|t| t.id == id) else { return };
        let trigger = &self.flows.triggers[n];
        self.fired[n] += 1;
        let due = if trigger.once {
            self.fired[n] == trigger.needs
        } else {
            self.fired[n].is_multiple_of(trigger.needs)
        };
        if due {
            for i in trigger.starts.clone() {
                self.flow_start(i as usize, at);
            }
        }
    }
}
