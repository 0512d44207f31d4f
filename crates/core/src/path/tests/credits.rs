//! Credits at the sender: what needs none, what is held, and what is forgotten.

use super::*;
use crate::rate::grant::Granter;

/// One long pause of a host makes the first round trip; without grants each packet after it would
/// wait for two of its kind.
#[test]
fn a_sender_without_credit_does_not_wait_for_a_pause_long_ago() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.context.credits_begin();
    b.echo(0, 300_000);
    b.echo(0, 10);
    // The first window leaves and arrives.
    let mut sent = 0;
    while let Gate::Open { bytes } = b.context.gate(b.now, true) {
        b.context.awake(b.now).on_sent(0, bytes, false, true);
        b.wait_us(1);
        b.context.awake(b.now).on_acked(0, bytes, b.now);
        sent += 1;
        assert!(sent < 1000, "credits bound nothing");
    }
    let Gate::Uncredited(at) = b.context.gate(b.now, true) else { panic!("nothing is under way") };
    assert!(b.context.srtt() > Span::from_ms(200), "the pause is not forgotten");
    assert!(at.since(b.now) <= Span::from_ms(100), "{:?}", at.since(b.now));
}

/// A receiver grants for what a sender says it has to send, and after a silence it grants anew.
/// What was granted and not used must not add up over many pauses: all of it could leave at once,
/// beside the grants of others.
#[test]
fn unused_credits_do_not_add_up_over_pauses() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.context.credits_begin();
    let first = ActivePaths::window_first(&b.context.params, b.context.rtt_min().0 as u32);
    let granted = 1 << 20;
    let mut counter = 0u32;
    for _ in 0..1000 {
        // One packet is sent, and a megabyte is granted.
        let sent = b.now;
        b.context.awake(sent).on_sent(0, 4096, false, true);
        let held = b.context.credit_bytes();
        assert!(held <= first, "{held} bytes are held, and the first window is {first}");
        b.wait_us(10);
        b.context.awake(b.now).on_acked(0, 4096, sent);
        b.echo(0, 10);
        counter = counter.wrapping_add(granted / 64);
        b.context.on_credit(b.now, counter, 1);
        let held = b.context.credit_bytes();
        assert!(held <= first + u64::from(granted), "{held} bytes are held");
        b.wait_us(2_000);
    }
    assert!(b.context.credit_bytes() >= 4096, "what may be used is there");
}

/// A sender of single packets between pauses of 0 to 2 ms, and the receiver that grants for a large
/// backlog: what the sender holds at most, what it may hold by the receiver's count at the same
/// time, and its limit.
fn credits_between_pauses(lost_percent: u32) -> (u64, u64, u64) {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let mut granter = Granter::new(12_500_000_000, 4096, Span::from_us(10), 0);
    b.context.credits_begin();
    let first = ActivePaths::window_first(&b.context.params, b.context.rtt_min().0 as u32);
    let (mut counter, mut most, mut beyond) = (0u32, 0, 0);
    for _ in 0..20_000 {
        let sent = b.now;
        b.context.awake(sent).on_sent(0, 4096, false, true);
        b.wait_us(5);
        if b.rng.below(100) >= lost_percent {
            granter.on_backlog(b.now, Ctx(0), 1000, (4096, 1), Span::ZERO);
        }
        let next = b.now + Span(u64::from(b.rng.below(2_000)) * US);
        while granter.next() <= next {
            b.now = b.now.max(granter.next());
            let Some(grant) = granter.poll(b.now) else { break };
            counter = counter.wrapping_add(grant.bytes / 64);
        }
        b.context.on_credit(b.now, counter, 1);
        let held = b.context.credit_bytes();
        most = most.max(held);
        beyond = beyond.max(held.saturating_sub(first + u64::from(granter.ahead(Ctx(0)))));
        b.context.awake(b.now).on_acked(0, 4096, sent);
        b.now = b.now.max(next);
    }
    (most, beyond, b.context.credit_max(1))
}

/// While no packet is lost, a sender holds at most the first window and what the receiver counts.
/// Lost packets are a silence for the receiver alone; the limit holds then.
#[test]
fn both_ends_forget_the_same_grants() {
    let (most, beyond, limit) = credits_between_pauses(0);
    assert!(most > 0 && most <= limit, "{most} of {limit}");
    assert_eq!(beyond, 0, "held beyond the receiver's count");
    let (most, beyond, limit) = credits_between_pauses(60);
    assert!(beyond > 0, "the receiver forgot alone");
    assert!(most <= limit, "{most} of {limit}");
}

/// Who sends one small message after the other asks for nothing, and is granted nothing.
#[test]
fn small_messages_need_no_grants() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.context.credits_begin();
    for n in 0..10_000 {
        let gate = b.context.gate(b.now, true);
        assert!(matches!(gate, Gate::Open { .. } | Gate::Until(_)), "message {n}: {gate:?}");
        let sent = b.now;
        b.context.awake(sent).on_sent(0, 4096, false, true);
        b.wait_us(10);
        b.context.awake(b.now).on_acked(0, 4096, sent);
        b.context.awake(b.now).on_ack_end(4096, true, true);
        b.context.credits_renew();
    }
}

/// What a receiver grants ahead comes on top of the first window: if the sender dropped a part of
/// it, the receiver would count that part for ever.
#[test]
fn grants_add_to_the_first_window() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    b.context.credits_begin();
    b.context.awake(b.now).on_sent(0, 4096, false, true);
    let before = b.context.credit_bytes();
    assert!(before > 4096);
    let ahead = grants_ahead(b.context.line_bytes_per_sec(), b.context.rtt_min()) / 64;
    b.context.on_credit(b.now, ahead as u32, 1);
    assert_eq!(b.context.credit_bytes(), before + ahead * 64);
}

/// A receiver whose line is faster grants ahead what a sender does not keep, and counts it to the
/// end of its message, unless the sender asks for no more than it keeps. So do several engines of a
/// host, to each of which the sender has a context.
#[test]
fn what_is_asked_for_is_kept() {
    for (times, contexts) in [(1, 1), (10, 1), (1, 8), (4, 3), (10, 64)] {
        let mut b = Bench::new(PathPolicy::Srd, 64);
        b.context.credits_begin();
        b.context.awake(b.now).on_sent(0, 4096, false, true);
        let line = b.context.line_bytes_per_sec() * times;
        let before = b.context.credit_bytes();
        let mut total = 0u32;
        for _ in 0..contexts {
            let mut granter = Granter::new(line, 4096, Span::from_us(10), 0);
            let asked = b.context.grants_asked(contexts);
            assert!(asked >= 16, "a few packets in any case");
            granter.on_backlog(b.now, Ctx(0), asked, (4096, 1), Span::ZERO);
            b.now += Span::from_us(1);
            while let Some(grant) = granter.poll(granter.next().max(b.now)) {
                total += grant.bytes / 64;
            }
        }
        b.context.on_credit(b.now, total, contexts);
        let kept = b.context.credit_bytes() - before;
        assert_eq!(kept, u64::from(total) * 64, "{times} times the line, {contexts} engines");
    }
}

/// Several engines of a host have an address in common, and each numbers its packets by itself.
#[test]
fn an_echo_ends_the_time_of_its_own_context_only() {
    let mut b = Bench::new(PathPolicy::Srd, 64);
    let path = b.context.awake(b.now).ack_path_choose(false, &mut b.rng);
    let (one, other) = (Ctx(1), Ctx(2));
    let echo = |b: &Bench| b.context.active.as_ref().expect("it has sent").ack_paths.echo();
    b.context.ack_sent(b.now, one, path, 100);
    b.context.ack_sent(b.now, other, path, 500);
    b.wait_us(1);
    b.context.ack_echoed(b.now, other, 450);
    assert_eq!(echo(&b), Span::ZERO, "of another context, and of an earlier acknowledgment");
    b.wait_us(499);
    b.context.ack_echoed(b.now, one, 100);
    assert_eq!(echo(&b).0 / US, 500);
}
