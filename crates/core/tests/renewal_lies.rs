//! A peer that asks for another context again and again: it can hold up what is sent to itself, but
//! not for ever, and each question costs little.

use crate::common::puppet::Puppet;
use crate::common::*;
use srd_core::wire::{Backlog, Body, Features, Flags, OpenParams, PacketType};
use srd_core::*;

/// Asks for another context.
fn ask(p: &mut Puppet) {
    p.say_as(Body::Close, 0, None, |h| h.flags = Flags(h.flags.0 | Flags::ACK_REQUEST));
}

/// Accepts the newest Open of the victim. Returns whether there was one.
fn reopen(p: &mut Puppet) -> bool {
    let newest = p.heard.iter().rev().find_map(|f| match f.body {
        Body::Open(params) => Some(params),
        _ => None,
    });
    let Some(OpenParams { tag, psn_start, .. }) = newest else { return false };
    p.context_is(tag, psn_start);
    p.heard.clear();
    let answer = OpenParams { echo_tag: tag, ..p.params() };
    p.say(Body::OpenAck(answer), 0, None);
    true
}

fn sends(p: &mut Puppet) -> usize {
    p.reliable().iter().filter(|f| f.header.kind == PacketType::Send).count()
}

/// The question comes with each answer to an Open, before anything is sent: nothing has begun, and
/// the next context is opened, each time with the whole patience for an answer.
#[test]
fn who_asks_with_each_answer_gets_one_other_context_and_then_the_request() {
    let mut p = Puppet::new(config(0), |_| {});
    p.post(Opcode::Send, 100);
    ask(&mut p);
    let mut opened = 0;
    for _ in 0..1000 {
        p.pass(Span::from_us(50));
        if !reopen(&mut p) {
            break;
        }
        opened += 1;
        ask(&mut p);
    }
    assert_eq!(opened, 1, "one more context without the end of a request");
    assert!(sends(&mut p) > 0, "and then the request is sent");
}

/// A read that the peer accepts and never answers has begun and does not end. Each question used to
/// renew the wait for it.
#[test]
fn who_asks_again_and_again_holds_requests_up_once() {
    let mut p = Puppet::new(config(0), |_| {});
    let retry = p.victim.engine.config().loss.open_retry;
    p.post(Opcode::Read, 100);
    p.pass(Span::from_us(50));
    p.ack_all();
    ask(&mut p);
    p.post(Opcode::Send, 100);
    let (began, mut waited) = (p.now, None);
    while p.now < began + retry.scale(200, 1) {
        p.pass(retry.scale(1, 2));
        if waited.is_none() && sends(&mut p) > 0 {
            waited = Some(p.now.since(began));
        }
        ask(&mut p);
    }
    let waited = waited.expect("the request is sent at last");
    assert!(waited >= retry.scale(16, 1), "the question is heeded: {waited:?}");
    assert!(waited <= retry.scale(34, 1), "{waited:?}, open_retry is {retry:?}");
    // What is posted now is sent at once: the peer has had its wait.
    p.post(Opcode::Send, 200);
    ask(&mut p);
    p.heard.clear();
    p.pass(Span::from_us(50));
    assert!(sends(&mut p) > 0, "no second wait without the end of a request");
}

/// The peer agreed on credits, said with its question for another context that it has much to send,
/// and knows no credits in that one. What it had asked for before was granted in it.
#[test]
fn who_reopens_without_credits_is_granted_nothing_of_before() {
    let mut p = Puppet::new(config(0), |params| params.features.0 |= Features::CREDITS);
    p.post(Opcode::Send, 100);
    p.say_as(Body::Close, 0, None, |h| {
        h.flags = Flags(h.flags.0 | Flags::ACK_REQUEST);
        h.backlog = Backlog::MAX;
    });
    p.pass(Span(100));
    assert!(reopen(&mut p), "the request goes into another context");
    p.pass(Span::from_us(100));
    let granted = p.heard.iter().any(|f| f.ack.as_ref().is_some_and(|a| a.credit > 0));
    assert!(!granted, "nothing was asked for");
}
