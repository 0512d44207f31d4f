//! Invariants between tables, checked from time to time where debug assertions are on: each sum is
//! compared with its terms, and each flag with the queue that it stands for.

use crate::api::{Opcode, WrHandle};
use crate::engine::Engine;
use crate::events::Observer;
use crate::ids::Ctx;
use crate::objects::wr::{Wqe, WrState, WrTable};
use crate::path::table::PathEntry;
use crate::peer::scoreboard::{Entry, Kind, SentState};
use crate::peer::{Context, ContextState, Window};
use crate::time::Time;

/// Packets, received and sent, between two checks.
const EVERY: u64 = 64;
/// Maximum number of peers with which the engine is checked; with more, the checks would take too
/// long.
const PEERS_MAX: u32 = 64;

/// Sums over all contexts of one address, or of the engine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    contexts: u32,
    active: u32,
    jobs: u32,
    inflight_bytes: u64,
}

impl Sums {
    fn add(&mut self, c: &Context) {
        self.contexts += 1;
        if let Some(win) = c.win() {
            self.active += 1;
            self.jobs += win.jobs.placed();
            self.inflight_bytes += win.board.in_flight_bytes();
        }
    }
}

impl<O: Observer> Engine<O> {
    /// Checks all invariants, if a check is due.
    pub(crate) fn audit(&self) {
        let n = &self.shared.counters;
        let due = (n.rx_pkts + n.tx_pkts).is_multiple_of(EVERY);
        if !due || self.contexts.len() > PEERS_MAX {
            return;
        }
        self.shared.out.audit();
        self.shared.rx.flows.audit();
        let mut all = Sums::default();
        for (ci, c) in self.contexts.iter() {
            all.add(c);
            self.audit_context(ci, c);
            let way = self.paths.get(c.way());
            if way.carrier == ci || way.contexts == 1 {
                self.audit_way(way);
            }
        }
        assert_eq!(all.jobs, self.objects.places.taken(), "reads being served");
        self.audit_queue_pairs();
    }

    fn audit_context(&self, ci: Ctx, c: &Context) {
        let parked = self.paths.get(c.way()).waits.is_parked(ci);
        assert!(parked || !self.shared.out.is_parked(ci), "parked, and nobody will wake it");
        let paced = self.paths.get(c.way()).waits.paced().any(|waits| waits == ci);
        assert_eq!(paced, self.shared.out.is_paced(ci), "who is marked waits for the pacer");
        let Some(win) = c.win() else {
            return;
        };
        self.audit_room(ci, c, win);
        win.board.audit();
        audit_work(ci, win, &self.objects.wrs);
        audit_open(win, &self.objects.wrs);
    }

    /// Who waits for room in flight finds none, or has a turn to come in which it looks.
    fn audit_room(&self, ci: Ctx, c: &Context, win: &Window) {
        let out = &self.shared.out;
        let sends = c.state() == ContextState::Open && win.has_to_send() && !win.loss.is_stalled();
        if !sends || !out.is_parked(ci) || out.is_ready(ci) || out.is_paced(ci) {
            return;
        }
        let flying = win.board.in_flight_bytes();
        let budget = u64::from(c.reports().rx_budget());
        let alone = flying > 0 && flying + u64::from(self.shared.cfg.mtu) > budget;
        let full = self.paths.get(c.way()).paths.is_blocked(c.grants(&self.shared.cfg));
        assert!(alone || full, "there is room in flight, and who waits for it was not told");
    }

    fn audit_way(&self, way: &PathEntry) {
        way.paths.audit();
        let waits = &way.waits;
        let called = waits
            .paced_first()
            .is_none_or(|first| waits.pace_at() != Time::NEVER || self.shared.out.is_ready(first));
        assert!(called, "they wait for the pacer, and nobody will call the first");
        let mut sums = Sums::default();
        let here = self.contexts.iter().filter(|(_, c)| c.way() == way.number);
        here.for_each(|(_, c)| sums.add(c));
        let told = Sums {
            contexts: way.contexts,
            active: way.active,
            jobs: way.jobs,
            inflight_bytes: way.paths.inflight(),
        };
        // Leaks of planted bugs are left for the checker's oracles to find.
        let told = if cfg!(planted_bugs) {
            Sums { inflight_bytes: sums.inflight_bytes, ..told }
        } else {
            told
        };
        assert_eq!(told, sums, "what the contexts of {} add up to", way.ip);
    }

    fn audit_queue_pairs(&self) {
        let requests = self.contexts.iter().filter_map(|(_, c)| c.win());
        let requests: Vec<&Wqe> =
            requests.flat_map(|win| live(win, &self.objects.wrs)).map(|(_, w)| w).collect();
        let used: u32 = self.objects.qps.iter().map(|q| q.sq_used).sum();
        let started: u32 = self.objects.qps.iter().map(|q| q.sq_started).sum();
        let begun = requests.iter().filter(|w| w.started).count();
        assert_eq!((used as usize, started as usize), (requests.len(), begun), "send queues");
    }
}

/// The live requests of a context.
fn live<'a>(win: &'a Window, wrs: &'a WrTable) -> impl Iterator<Item = (WrHandle, &'a Wqe)> {
    win.live.iter(wrs)
}

/// Checks outstanding requests, used credits and unsent bytes against the live requests.
fn audit_work(ci: Ctx, win: &Window, wrs: &WrTable) {
    let mut n = 0;
    let (mut reads, mut imms, mut unsent) = (0, 0, 0);
    for (_, w) in live(win, wrs) {
        assert_eq!(w.ctx, ci, "a request stands in the list of its context");
        n += 1;
        reads += u16::from(w.credited && w.wr.op == Opcode::Read);
        imms += u16::from(w.credited && w.wr.op != Opcode::Read);
        if w.state != WrState::Sent && !w.imm_only {
            unsent += u64::from(w.wr.len - w.cut);
        }
    }
    assert_eq!(win.outstanding.requests(), n, "requests outstanding");
    assert_eq!(win.queues.unsent_bytes(), unsent, "bytes of requests that have no PSN");
    if !cfg!(planted_bugs) {
        let cancels = entries(win).filter(|e| e.kind == Kind::Cancel).count();
        let cancels = cancels + win.queues.cancels_len();
        assert_eq!(win.outstanding.reads(), reads, "reads outstanding");
        let tracked = usize::from(win.outstanding.imms());
        assert_eq!(tracked, usize::from(imms) + cancels, "messages tracked");
    }
}

/// Checks unresolved PSNs against the live requests and the reads being served.
fn audit_open(win: &Window, wrs: &WrTable) {
    let of_requests: u32 = live(win, wrs).map(|(_, w)| w.open).sum();
    let of_jobs = win.jobs.audit();
    let recuts = |write| win.queues.recuts_count(write);
    let own = entries(win).filter(|e| e.kind.is_own()).count() + recuts(true);
    let jobs = entries(win).filter(|e| e.kind.is_served()).count() + recuts(false);
    if !cfg!(planted_bugs) {
        assert_eq!(of_requests as usize, own, "packets of requests");
        assert_eq!(of_jobs as usize, jobs, "packets of reads being served");
    }
}

/// The scoreboard entries that are not acknowledged.
fn entries(win: &Window) -> impl Iterator<Item = &Entry> {
    win.board.psns().map(|p| win.board.get(p)).filter(|e| e.state != SentState::Acked)
}
