//! Which calls an engine asks its driver for.

use crate::common::Pair;
use srd_core::*;

/// Host `i` sends all that it has to send now, and the packets arrive at once.
fn exchange(p: &mut Pair, i: usize) {
    let now = p.net.now;
    loop {
        let out = p.net.hosts[i].transmit(now);
        if out.is_empty() {
            return;
        }
        out.into_iter().for_each(|f| p.net.hand_over(f));
    }
}

/// A driver of a ping-pong takes as many turns as there are packets: after the acknowledgment of
/// its last message the engine has nothing to send, and only its timers have changed.
#[test]
fn an_acknowledgment_of_all_that_was_sent_asks_for_no_transmission() {
    let mut p = Pair::opened(3, 100);
    p.net.run(Span::from_ms(1));
    p.net.hosts[1].recv(p.qp[1], 2, 100);
    assert!(!p.net.hosts[0].engine.only_recalculates(p.net.now), "there is nothing to do");
    p.send(0, 2, vec![1; 100]).unwrap();
    assert!(!p.net.hosts[0].engine.only_recalculates(p.net.now), "a request is to be sent");
    exchange(&mut p, 0);
    let delay = p.net.hosts[1].engine.config().ack.delay_requested;
    p.net.now += delay;
    let now = p.net.now;
    p.net.hosts[1].engine.handle_timeout(now);
    exchange(&mut p, 1);
    assert_eq!(p.net.hosts[0].sends_done(), 2);
    let engine = &mut p.net.hosts[0].engine;
    assert_eq!(engine.next_timeout(), Time(0), "a timer has changed");
    assert!(engine.only_recalculates(now), "and nothing else has");
    engine.handle_timeout(now);
    assert!(engine.next_timeout() > now && !engine.only_recalculates(now));
}
