//! Rounds of flows on a world of any transport: starts flows, records their ends, fires triggers.

use crate::app::{AppOutcome, Play};
use crate::away::Away;
use crate::board::{FlowEnd, SharedBoard};
use crate::observe::{Counted, Moment, Observation, Resent, Sampler};
use crate::spec::Spec;
use crate::timeline::Recorder;
use crate::workload::{FlowGroup, Flows};
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
    /// Of each flow, whether it starts once and is not waited for; and its group's delay in the
    /// first round. Empty if there is one group.
    groups: Vec<(bool, Ps)>,
    /// Absences of the hosts' processors, if they have any.
    pub away: Option<Away>,
    /// Times until the application saw a flow's end, if processors are ever away.
    pub seen: Vec<Vec<Option<Ps>>>,
    /// Time of each round, until the application saw its last end.
    pub round_ps: Vec<Ps>,
    fired: Vec<u32>,
    /// Latest firing of each trigger in this round.
    fired_at: Vec<Ps>,
    seen_ends: usize,
    /// Latest end of a flow so far.
    end_last: Ps,
    /// Start of each round so far.
    pub rounds_at: Vec<Ps>,
    /// Time that the run continues after the last flow's end, for the release of state.
    pub tail_ps: Ps,
    seen_arrivals: usize,
    sampler: Option<Sampler>,
    /// The recording of the run, if it has one.
    pub recorder: Recorder,
    /// The program in execution, if the flows carry one's messages.
    play: Option<Play<'a>>,
    /// Start of each message of the program, by its operation.
    sent_at: Vec<Ps>,
    /// Messages of each flow that have not ended.
    flow_left: Vec<u32>,
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
        // With nothing but endless groups, the time limit ends the run.
        let ends = flows.groups.iter().any(|g| !g.endless);
        let each = |g: &FlowGroup| std::iter::repeat_n((g.endless && ends, g.wait_ps), g.flows);
        Self {
            away: None,
            seen: Vec::new(),
            round_ps: Vec::new(),
            groups: flows.groups.iter().flat_map(each).collect(),
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
            fired_at: vec![0; flows.triggers.len()],
            seen_ends: 0,
            end_last: 0,
            rounds_at: Vec::new(),
            tail_ps: 0,
            seen_arrivals: 0,
            sampler: None,
            recorder: Recorder::default(),
            play: flows.program.as_deref().map(|p| Play::new(&p.schedule)),
            sent_at: Vec::new(),
            flow_left: flows.program.as_deref().map_or_else(Vec::new, |p| p.messages.clone()),
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
        if let Some(away) = &mut self.away {
            away.tell(&mut self.world, end);
        }
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
        if self.play.is_some() {
            return self.play_go(limit);
        }
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
                self.round_ps.push(self.end_last.saturating_sub(self.round_at()));
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

    /// Executes the program until it is done, or the time is up.
    fn play_go(&mut self, limit: Ps) {
        let start = self.spec.workload.start_us * US;
        self.fct.push(vec![None; self.flows.flows.len()]);
        self.started = vec![None; self.flows.flows.len()];
        self.sent_at = vec![0; self.flows.program.as_deref().map_or(0, |p| p.flow_of.len())];
        self.left = self.flows.flows.len();
        self.rounds_at.push(start);
        // Flows are warmed up before the beginning.
        self.advance(start, u64::MAX);
        self.play_do(start, |play| play.begin(start));
        loop {
            let due = self.play.as_ref().and_then(Play::due).unwrap_or(Ps::MAX);
            let event = self.world.next_event_at().unwrap_or(Ps::MAX);
            if self.play.as_ref().is_none_or(Play::done) || due.min(event) > limit {
                break;
            }
            if due < event {
                self.play_do(due, |play| play.until(due));
            } else {
                self.advance(event, 1);
                self.play_look();
            }
        }
        for (fct, left) in self.fct[0].iter_mut().zip(&self.flow_left) {
            if *left > 0 {
                *fct = None;
            }
        }
    }

    /// Lets the program go on, and starts the messages that may begin.
    fn play_do(&mut self, at: Ps, go: impl FnOnce(&mut Play<'a>)) {
        let (Some(play), Some(program)) = (&mut self.play, self.flows.program.as_deref()) else {
            return;
        };
        go(play);
        // A message within a host arrives at once, and may let others begin.
        loop {
            let sends = play.sends_take();
            if sends.is_empty() {
                return;
            }
            for send in sends {
                let Some(flow) = program.flow_of[send as usize] else {
                    play.arrived(send, at);
                    play.sent(send, at);
                    continue;
                };
                self.sent_at[send as usize] = at;
                let i = flow as usize;
                self.started[i].get_or_insert(at);
                let token = self.tokens[i] | u64::from(send) << 32;
                let at = at.max(self.world.now());
                self.world.call_at(at, self.flows.flows[i].src, token);
            }
        }
    }

    /// Tells the program which messages have arrived and ended.
    fn play_look(&mut self) {
        let arrivals = self.board.arrivals_from(self.seen_arrivals);
        self.seen_arrivals += arrivals.len();
        for a in arrivals.iter().filter(|a| a.flow & WARM == 0) {
            self.play_do(a.at, |play| play.arrived(a.round, a.at));
        }
        let ends = self.board.ends_from(self.seen_ends);
        self.seen_ends += ends.len();
        for end in ends.iter().filter(|e| e.flow & WARM == 0) {
            let (i, from) = (end.flow as usize, self.sent_at[end.round as usize]);
            self.recorder.flow(&self.flows.flows[i], i, end.round, from, end.at);
            let took = end.at - from;
            // A flow counts with its slowest message.
            self.fct[0][i] = self.fct[0][i].max(Some(took));
            self.flow_left[i] -= 1;
            self.left -= usize::from(self.flow_left[i] == 0);
            self.end_last = self.end_last.max(end.at);
            self.play_do(end.at, |play| play.sent(end.round, end.at));
        }
    }

    /// Times of the program, if the flows carry one's messages.
    pub fn app(&self) -> Option<AppOutcome> {
        self.play.as_ref().map(Play::outcome)
    }

    /// Time from the start of the last round to the end of its last flow; `None` if a flow did not
    /// end.
    pub fn phase_ps(&self) -> Option<Ps> {
        (self.left == 0).then(|| self.end_last.saturating_sub(self.round_at()))
    }

    /// Start of the present round; 0 before the first.
    fn round_at(&self) -> Ps {
        self.rounds_at.last().copied().unwrap_or(0)
    }

    fn round_start(&mut self, at: Ps) {
        self.rounds_at.push(at.max(self.world.now()));
        let n = self.flows.flows.len();
        let first = self.fct.is_empty();
        if self.groups.is_empty() || first {
            self.started = vec![None; n];
        }
        self.fct.push(vec![None; n]);
        if self.away.is_some() {
            self.seen.push(vec![None; n]);
        }
        if self.spec.measure.phase {
            self.arrived.push(vec![None; n]);
        }
        self.left = n - self.groups.iter().filter(|(endless, _)| *endless).count();
        self.fired.fill(0);
        self.fired_at.fill(0);
        for (i, f) in self.flows.flows.iter().enumerate() {
            let (endless, wait) = self.groups.get(i).copied().unwrap_or_default();
            if endless && !first {
                continue;
            }
            self.started[i] = None;
            if let Some(late) = f.start_ps {
                self.flow_start(i, at + late + if first { wait } else { 0 });
            }
        }
    }

    fn flow_start(&mut self, i: usize, at: Ps) {
        let src = self.flows.flows[i].src;
        let at = at.max(self.world.now());
        let at = self.away.as_mut().map_or(at, |away| away.present(src, at));
        self.started[i] = Some(at);
        let token = self.tokens[i] | u64::from(self.round) << 32;
        self.world.call_at(at, src, token);
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
                let dst = self.flows.flows[i].dst;
                let at = self.away.as_mut().map_or(a.at, |away| away.present(dst, a.at));
                self.trigger_fire(t, at);
            }
        }
    }

    fn flow_ended(&mut self, end: &FlowEnd) {
        let i = end.flow as usize;
        let Some(start) = self.started[i] else { return };
        let fct = &mut self.fct[end.round as usize][i];
        if fct.is_none() && !self.groups.get(i).is_some_and(|(endless, _)| *endless) {
            self.left -= 1;
        }
        // A flow that a trigger starts again counts with its last run.
        *fct = Some(end.at - start);
        let flow = &self.flows.flows[i];
        self.recorder.flow(flow, i, end.round, start, end.at);
        let mut seen_at = end.at;
        if let Some(away) = &mut self.away {
            seen_at = away.seen(flow.src, flow.dst, end.at);
            self.seen[end.round as usize][i] = Some(seen_at - start);
        }
        self.end_last = self.end_last.max(seen_at);
        if let Some(t) = flow.on_sent {
            self.trigger_fire(t, seen_at);
        }
    }

    fn trigger_fire(&mut self, id: u32, at: Ps) {
        let Some(n) = self.flows.triggers.iter().position(|t| t.id == id) else { return };
        let trigger = &self.flows.triggers[n];
        self.fired[n] += 1;
        // What a barrier waits for may be seen later than what was fired after it.
        self.fired_at[n] = self.fired_at[n].max(at);
        let at = self.fired_at[n];
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
