//! Faults of machines: packets of strangers, queues in front of engines, restarts, leaps of clocks.

use super::*;
use crate::ledger::Public;
use crate::{Classes, Limits};
use srd_core::wire::{AckBlock, PacketType};
use std::collections::BTreeSet;

/// Host 0 of a world without faults, after a change of the world.
fn machine(change: impl FnOnce(&mut Scenario)) -> Machine {
    let limits = Limits { classes: Classes::default(), ..Limits::NONE };
    let mut s = Scenario::from_seed(1, limits);
    change(&mut s);
    let public = vec![Public::default(); s.hosts as usize * s.slots.len()];
    let led = Ledger { public, ..Ledger::default() };
    Machine::new(Rc::new(s), Rc::new(RefCell::new(led)), HostId(0))
}

/// Runs `f` with the machine's ledger.
fn with<T>(m: &mut Machine, f: impl FnOnce(&mut Machine, &mut Ledger) -> T) -> T {
    let led = m.led.clone();
    f(m, &mut led.borrow_mut())
}

#[test]
fn forgeries_are_well_formed_and_of_all_kinds() {
    let mut kinds = BTreeSet::new();
    for seed in 0..300 {
        let mut d = Draw::new(seed, stream::MACHINE, 0);
        let checked = seed % 2 == 0;
        let mut bytes = vec![0; wire::HEADERS_BYTES_MAX];
        let n = wire::emit(&forgery(&mut d, 7, checked), &mut bytes);
        let mut ack = AckBlock::default();
        let (p, _) = wire::parse(&bytes[..n], &mut ack).expect("well-formed");
        assert_eq!((p.header.slot, p.header.flags.has(Flags::CHECKED)), (7, checked));
        assert_eq!(p.header.dst_tag == 0, p.header.kind == PacketType::Open, "{p:?}");
        kinds.insert(format!("{:?}", p.header.kind));
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}

#[test]
fn strangers_reach_the_engine_with_garbage_of_which_it_accepts_nothing() {
    let mut m = machine(|_| {});
    let (slot, mut read) = (m.nodes[0].slot, 0);
    let what = Incident::Garbage { slot, packets: 400 };
    with(&mut m, |m, led| {
        led.now = US;
        m.incident(led, US, what);
        assert!(led.violation.is_none(), "{:?}", led.violation);
        assert!(led.disturbed && led.tally.forged == 400, "{:?}", led.tally);
        let mut ack = AckBlock::default();
        for _ in 0..200 {
            let d = m.garbage(0);
            assert!(d.forged && d.dst == endpoint_of(0, slot) && d.request.is_none());
            read += u32::from(wire::parse(&d.head, &mut ack).is_ok());
        }
    });
    assert!((100..180).contains(&read), "{read} of 200 can be read");
    let received = m.nodes[0].counts.0;
    assert!((100..300).contains(&received), "{received} of 400 came to the engine");
}

/// A packet of a stranger to this slot of host 0.
fn gram(m: &mut Machine, slot: u8) -> Pkt {
    Rc::new(Datagram { dst: endpoint_of(0, slot), ..m.garbage(0) })
}

#[test]
fn a_receive_queue_holds_packets_for_its_time_and_drops_when_it_is_full() {
    let mut m = machine(|s| (s.machine.hold_ps, s.machine.hold_max) = (5 * US, 3));
    let (slot, s) = (m.nodes[0].slot, m.scenario.clone());
    for at in 0..5 {
        let d = gram(&mut m, slot);
        with(&mut m, |m, led| m.arrive(led, at, false, &d));
    }
    let held = |m: &Machine| (m.nodes[0].held.len(), m.nodes[0].queue_drops);
    assert_eq!((held(&m), m.led.borrow().tally.overflowed), ((3, 2), 2));
    with(&mut m, |m, led| m.drain_held(&s, led, 0, 5 * US - 1));
    assert_eq!(held(&m), (3, 2), "the first has waited for too short a time");
    with(&mut m, |m, led| {
        led.now = 5 * US;
        m.drain_held(&s, led, 0, 5 * US);
    });
    assert_eq!(held(&m), (0, 2), "all at once");
    let d = gram(&mut m, slot.wrapping_add(1));
    with(&mut m, |m, led| m.arrive(led, 6 * US, false, &d));
    assert_eq!(held(&m), (0, 2), "no engine has that slot");
}

#[test]
fn without_a_receive_queue_packets_come_at_once() {
    let mut m = machine(|s| s.machine.hold_ps = 0);
    let slot = m.nodes[0].slot;
    let mut bytes = vec![0; wire::HEADERS_BYTES_MAX];
    let n = wire::emit(&forgery(&mut Draw::new(1, 1, 1), slot, false), &mut bytes);
    bytes.truncate(n);
    let d = Rc::new(Datagram { head: bytes, ..m.garbage(0) });
    with(&mut m, |m, led| m.arrive(led, 0, false, &d));
    assert_eq!((m.nodes[0].counts.0, m.nodes[0].held.len()), (1, 0));
}

#[test]
fn a_leap_is_as_long_as_planned_and_of_one_engine() {
    let mut m = machine(|s| s.slots = vec![0, 7]);
    let read = |m: &Machine, k: usize, at| m.nodes[k].clock.read(at).0;
    let before = [read(&m, 0, US), read(&m, 1, US)];
    let what = Incident::Leap { slot: 7, by_ns: 5_000 };
    with(&mut m, |m, led| m.incident(led, US, what));
    assert_eq!([read(&m, 0, US), read(&m, 1, US)], [before[0], before[1] + 5_000]);
    assert_eq!(m.led.borrow().tally.leaps, 1);
}

#[test]
fn a_restart_makes_a_new_engine_and_orphans_of_its_requests() {
    let mut m = machine(|s| s.slots = vec![0, 7]);
    let mut own = crate::tests::req(Opcode::Send, 8);
    (own.owner, m.nodes[1].queue_drops) = (1, 0);
    let other = crate::tests::req(Opcode::Send, 8);
    m.led.borrow_mut().reqs = vec![own, other];
    m.nodes[1].counts.0 = 9;
    with(&mut m, |m, led| m.incident(led, US, Incident::Restart { slot: 7, gentle: false }));
    let led = m.led.borrow();
    let states: Vec<_> = led.reqs.iter().map(|r| r.state).collect();
    assert_eq!(states, [crate::ledger::ReqState::Orphan, crate::ledger::ReqState::Live]);
    assert_eq!((m.nodes[0].epoch, m.nodes[1].epoch, led.tally.restarts), (0, 1, 1));
    assert_eq!((m.nodes[1].counts.0, led.public[1].epoch), (0, 1), "everything is new");
}

#[test]
fn old_packets_come_again_from_the_past_alone() {
    let mut m = machine(|s| s.machine.hold_ps = 0);
    let slot = m.nodes[0].slot;
    let what = Incident::Stale { slot, packets: 12 };
    with(&mut m, |m, led| m.incident(led, US, what));
    assert_eq!(m.led.borrow().tally.stale, 0, "there is no past");
    let d = gram(&mut m, slot);
    m.past.push_back(d);
    with(&mut m, |m, led| m.incident(led, US, what));
    assert_eq!(m.led.borrow().tally.stale, 12);
}
