//! Contexts whose driver seals, as the engine sees them: what is not marked as sealed changes
//! nothing. The network of these tests marks what the engines send, as a driver does that has
//! opened it, and a forger's packets lack the mark.

use crate::common::*;
use srd_core::counters::DropReason;
use srd_core::wire::{Body, CloseCode, Flags};
use srd_core::*;

fn sealing() -> Pair {
    let configs = (0..2).map(|i| EngineConfig { seals: true, ..config(i) }).collect();
    let mut p = Pair::with(5, configs);
    p.net.faults.marks = Flags::SEALED;
    p.net.hosts.iter().for_each(|h| assert!(h.engine.config().seals));
    for i in 0..400 {
        p.net.hosts[1].recv(p.qp[1], i, 500);
    }
    p.work(10);
    p
}

fn drops(p: &Pair, reason: DropReason) -> u64 {
    p.net.hosts[0].engine.counters().drops[reason as usize]
}

#[test]
fn a_sealed_context_is_known_as_one_and_needs_no_checksum() {
    let p = sealing();
    for host in &p.net.hosts {
        let stats = host.engine.context_stats();
        assert!(stats.len() == 1 && stats[0].sealed && !stats[0].checked);
    }
}

#[test]
fn a_packet_without_the_mark_changes_nothing() {
    let mut p = sealing();
    let bodies = [Body::Close, Body::CloseAck, Body::Ack, Body::Probe];
    for body in bodies {
        let before = drops(&p, DropReason::Unsealed);
        p.net.forge((1, 0), body, |_| {});
        p.net.run(Span::from_us(50));
        assert_eq!(drops(&p, DropReason::Unsealed), before + 1, "{body:?}");
    }
    p.work(10);
    assert_eq!(p.net.hosts[0].engine.counters().contexts_closed, 0);
}

#[test]
fn a_reset_without_the_mark_only_asks_whatever_it_knows() {
    let mut p = sealing();
    let tag = p.net.tag_for(0);
    for i in 0..20 {
        p.send(0, i, vec![1; 500]).unwrap();
    }
    for code in [CloseCode::UnknownTag, CloseCode::GoingAway] {
        for nonce in 0..200 {
            p.net.forge((1, 0), Body::Reset { echo_tag: tag, code, nonce }, |_| {});
            p.net.run(Span::from_us(3));
        }
    }
    assert!(p.net.run_until(Span::from_ms(150), |net| net.hosts[0].sends_done() == 30));
    assert!(p.net.hosts[0].statuses().iter().all(|s| *s == Status::Ok));
    let c = *p.net.hosts[0].engine.counters();
    assert_eq!((c.contexts_closed, c.doubts - c.doubts_refuted), (0, 0));
}
