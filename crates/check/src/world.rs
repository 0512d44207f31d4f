//! Runs a world: faults and requests, then healing, then the check that everything has ended.

use crate::ledger::{Ledger, Oracle, Public, ReqState, Tally, Tamper, Violation};
use crate::machine::Machine;
use crate::packet::Pkt;
use crate::scenario::Scenario;
use crate::trace::Trace;
use srd_core::Status;
use srd_fabric::{Effect, Fault, HostId, MS, Ps, Totals, World, WorldConfig};
use std::cell::RefCell;
use std::rc::Rc;

/// Events after which a world counts as a loop: some hundred times what the largest world needs.
const EVENTS_MAX: u64 = 20_000_000;
/// Rounds of new requests after the settling time. All but the last may fail because of restarts.
const ROUNDS: u64 = 8;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a trace.
    pub trace: bool,
    /// Deliberate fault of the checker.
    pub tamper: Tamper,
}

/// Result of a world.
#[derive(Debug)]
pub struct Outcome {
    /// The first violation.
    pub violation: Option<Violation>,
    /// Hash of all deliveries and decisions.
    pub hash: u64,
    /// Counters of engines.
    pub tally: Tally,
    /// Counters of the network.
    pub network: Totals,
    /// The trace, if requested.
    pub trace: Option<Box<Trace>>,
}

type Net = World<Pkt, Machine>;

/// Runs one world to its end or its first violation.
pub fn run(scenario: &Scenario, options: Options) -> Outcome {
    if let Some(plan) = &scenario.hostile {
        return crate::hostile::run(plan, scenario.seed, &scenario.bytes, options);
    }
    #[cfg(feature = "sealed")]
    if let Some(plan) = &scenario.sealed {
        return crate::sealed::run(plan, scenario.seed, options);
    }
    if let Some(plan) = &scenario.crowd {
        return crate::crowd::run(plan, options);
    }
    let s = Rc::new(scenario.clone());
    let engines = s.hosts as usize * s.slots.len();
    // If the context table is small, contexts of silent peers are evicted.
    let crowded = s.config.contexts_max < 64;
    let mut ledger = Ledger { disturbed: crowded, tamper: options.tamper, ..Ledger::default() };
    ledger.narrow_from = s.faults.iter().filter(|f| is_narrowing(&f.1)).map(|f| f.0).min();
    ledger.public = vec![Public::default(); engines];
    ledger.trace = options.trace.then(Box::default);
    let led = Rc::new(RefCell::new(ledger));
    let config = WorldConfig { host_hold_bytes: 256 << 10, ..WorldConfig::new(s.seed) };
    let make = |h| Machine::new(s.clone(), led.clone(), h);
    let mut net =
        Net::new(s.topology.clone(), config, make).expect("the scenario draws sound topologies");
    schedule(&s, &mut net);
    live(&mut net, &led, s.heal_at);
    let settled = s.heal_at + s.settle_ps(packets_left(&led.borrow(), &s));
    // A round is as much as one message between each pair of engines.
    let round = s.settle_ps((engines * engines) as u64) / 2;
    for (h, round_k) in (0..s.hosts).flat_map(|h| (0..ROUNDS).map(move |k| (h, k))) {
        let at = settled + 1 + round_k * round;
        net.call_at(at, HostId(h), Machine::token_probe(round_k));
    }
    live(&mut net, &led, settled);
    if led.borrow().violation.is_none() {
        settled_check(&led, &mut net);
    }
    live(&mut net, &led, settled + ROUNDS * round);
    let led_ref = &mut led.borrow_mut();
    led_ref.now = net.now();
    if led_ref.violation.is_none() {
        end_check(led_ref, &s, &mut net, settled + (ROUNDS - 1) * round);
    }
    for h in 0..s.hosts {
        for node in net.host_mut(HostId(h)).nodes() {
            led_ref.tally.retransmitted += node.engine.counters().retrans_pkts;
            led_ref.tally.sizes += node.engine.counters().mtu_changes;
            led_ref.tally.recalls += node.engine.counters().recalls;
        }
    }
    Outcome {
        violation: led_ref.violation.take(),
        hash: net.run_hash() ^ led_ref.hash,
        tally: led_ref.tally,
        network: net.totals(),
        trace: led_ref.trace.take(),
    }
}

fn is_narrowing(f: &Fault) -> bool {
    matches!(f, Fault::Impair { effect: Effect::Mtu(Some(_)), .. })
}

/// Schedules all faults and incidents.
fn schedule(s: &Scenario, net: &mut Net) {
    for (at, fault) in &s.faults {
        net.fault_at(*at, *fault).expect("the scenario draws faults of its topology");
    }
    for (k, (at, host, _)) in s.incidents.iter().enumerate() {
        net.call_at(*at, HostId(*host), k as u64);
    }
    // Twice: the outages of a flap in between may leave stale routes.
    for at in [s.heal_at, s.heal_at + 10 * MS] {
        net.fault_at(at, Fault::HealAll).expect("always possible");
    }
    for h in 0..s.hosts {
        net.call_at(0, HostId(h), u64::from(u32::MAX));
        net.call_at(s.heal_at, HostId(h), Machine::token_calm());
    }
}

/// Packets that all outstanding requests take if they are sent anew in the smallest packets that
/// any two engines agree on, with one more packet each for a recall or a Cancel.
fn packets_left(led: &Ledger, s: &Scenario) -> u64 {
    let mtu = s.least_mtu();
    let live = led.reqs.iter().filter(|r| r.state == ReqState::Live);
    live.map(|r| u64::from(r.wr.len).div_ceil(mtu) + 1).sum()
}

/// Runs until `end` or the first violation.
fn live(net: &mut Net, led: &Rc<RefCell<Ledger>>, end: Ps) {
    let mut events = 0;
    while led.borrow().violation.is_none() {
        let n = net.events_run(end, 256);
        events += n;
        if n < 256 {
            net.run_until(end);
            return;
        }
        if events > EVENTS_MAX {
            let mut led = led.borrow_mut();
            led.now = net.now();
            led.fail(Oracle::Liveness, format!("{events} events without an end"));
        }
    }
}

/// After the settling time no older request may be outstanding.
fn settled_check(led: &Rc<RefCell<Ledger>>, net: &mut Net) {
    let led = &mut *led.borrow_mut();
    led.now = net.now();
    if let Some(k) = led.reqs.iter().position(|r| r.state == ReqState::Live) {
        let (r, n) = (&led.reqs[k], led.reqs.iter().filter(|r| r.state == ReqState::Live).count());
        let what = format!("request {k} and {} more have not ended: {r:?}", n - 1);
        led.fail(Oracle::Liveness, what);
    }
}

/// At the end every request has ended, the last round of new requests (posted from `last` on) has
/// succeeded, and no state is left.
fn end_check(led: &mut Ledger, s: &Scenario, net: &mut Net, last: Ps) {
    for k in 0..led.reqs.len() {
        let r = &led.reqs[k];
        let ok = match r.state {
            ReqState::Live => false,
            // With short queues receives are few: finite retries may be exhausted.
            ReqState::Done(Status::RemoteRnr) => r.rnr_retry < 7,
            // A context table that is too small for all peers may stay full.
            ReqState::Done(_) if s.config.contexts_max < 64 => true,
            // Engines probe only once a second whether larger packets pass again.
            ReqState::Done(Status::LocalBadLength) => r.at < last || s.config.mtu_search,
            ReqState::Done(status) => r.at < last || status == Status::Ok,
            ReqState::Released | ReqState::Orphan => r.at < last,
        };
        if !ok {
            let what = format!("request {k}, posted after healing, did not succeed: {r:?}");
            return led.fail(Oracle::Liveness, what);
        }
    }
    for h in 0..s.hosts {
        for node in net.host_mut(HostId(h)).nodes() {
            node.poll(s, led);
            node.accounts_check(led);
            let id = node.id;
            for c in node.engine.context_stats() {
                let rest = c.outstanding + c.psns_unresolved + c.packets_in_flight;
                // A Cancel to a silent peer remains pending.
                led.require(
                    (rest == 0 || c.stalled) && c.inflight_bytes == 0,
                    Oracle::Inflight,
                    || format!("engine {id} at rest: {c:?}"),
                );
            }
        }
    }
    let totals = net.totals();
    led.require(totals.conserved(), Oracle::Counters, || format!("the network: {totals:?}"));
}
